//! Copies of statements that bind their own variables and buffers. GPU indices keep their
//! variables, because a launch has one variable for each index.

use super::visit::{map_exprs, map_stmts, replace_nodes};
use super::{Buffer, Expr, ExprKind, SortAxis, Stmt, Var};
use rustc_hash::FxHashMap;

/// Copies a statement with new variables and buffers in place of those bound inside, except GPU
/// indices, and replaces free variables as `free` says.
pub fn fresh_copy(stmt: &Stmt, free: &FxHashMap<Var, Expr>) -> Stmt {
    Copier { vars: free.clone(), buffers: FxHashMap::default() }.stmt(stmt.clone())
}

struct Copier {
    vars: FxHashMap<Var, Expr>,
    buffers: FxHashMap<Buffer, Buffer>,
}

impl Copier {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::For { var, min, extent, kind, body } => {
                let (min, extent) = (self.expr(&min), self.expr(&extent));
                let var = if kind.gpu_index().is_some() { var } else { self.bind(&var) };
                Stmt::For { var, min, extent, kind, body: Box::new(self.stmt(*body)) }
            }
            Stmt::Let { var, value, body } => {
                let value = self.expr(&value);
                let var = self.bind(&var);
                Stmt::Let { var, value, body: Box::new(self.stmt(*body)) }
            }
            Stmt::Allocate { buffer, body } => {
                let copy = buffer.duplicate();
                self.buffers.insert(buffer, copy.clone());
                Stmt::Allocate { buffer: copy, body: Box::new(self.stmt(*body)) }
            }
            Stmt::Sort(sort) => {
                let order = self.buffers.get(&sort.order).cloned().unwrap_or(sort.order.clone());
                let var = self.bind(&sort.var);
                let sort = Box::new(SortAxis { order, var, ..*sort });
                map_exprs(Stmt::Sort(sort), &mut |expr| self.expr(expr))
            }
            Stmt::Prefetch { buffer, indices } => {
                let buffer = self.buffers.get(&buffer).cloned().unwrap_or(buffer);
                map_exprs(Stmt::Prefetch { buffer, indices }, &mut |expr| self.expr(expr))
            }
            Stmt::Store { buffer, indices, value, mask, nontemporal } => {
                let buffer = self.buffers.get(&buffer).cloned().unwrap_or(buffer);
                let store = Stmt::Store { buffer, indices, value, mask, nontemporal };
                map_exprs(store, &mut |expr| self.expr(expr))
            }
            other => {
                let other = map_exprs(other, &mut |expr| self.expr(expr));
                map_stmts(other, &mut |inner| self.stmt(inner))
            }
        }
    }

    fn bind(&mut self, var: &Var) -> Var {
        let copy = Var::new(var.name(), var.ty());
        self.vars.insert(var.clone(), Expr::var(&copy));
        copy
    }

    fn expr(&self, expr: &Expr) -> Expr {
        replace_nodes(expr, &mut |e| match &e.kind {
            ExprKind::Var(var) => self.vars.get(var).cloned(),
            ExprKind::Load { buffer, indices, mask } => {
                let buffer = self.buffers.get(buffer)?.clone();
                let (indices, mask) = (indices.clone(), mask.clone());
                Some(Expr::new(e.ty, ExprKind::Load { buffer, indices, mask }))
            }
            _ => None,
        })
    }
}
