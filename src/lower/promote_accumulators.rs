//! Promote accumulators: a reduction's running value lives in a register, not in memory.
//!
//! Before: `C[i] = 0; for k { C[i] = C[i] + A[k] }`
//! After:  `allocate C.acc: register; C.acc[0] = 0; for k { C.acc[0] = C.acc[0] + A[k] };
//!          C[i] = C.acc[0]`
//! Needs: flattened indices.  Ensures: no access to a promoted element between the two ends.

use crate::diag::Result;
use crate::ir::equal::equal;
use crate::ir::visit::{map_stmts, rewrite_expr, rewrite_exprs, walk_expr, walk_stmt};
use crate::ir::{Buffer, Expr, ExprKind, Kernel, Scope, Stmt, Var};
use crate::target::Target;
use std::collections::HashSet;

/// Promotes every element that is stored, and then only updated by the loop that follows.
pub fn promote_accumulators(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = promote(kernel.body);
    Ok(Kernel { body, ..kernel })
}

fn promote(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Block(stmts) => promote_block(stmts),
        other => map_stmts(other, &mut promote),
    }
}

fn promote_block(stmts: Vec<Stmt>) -> Stmt {
    let mut done: Vec<Stmt> = Vec::new();
    for stmt in stmts {
        if !matches!(stmt, Stmt::For { .. }) {
            done.push(promote(stmt));
            continue;
        }
        let first = done.iter().rposition(|s| !matches!(s, Stmt::Store { .. }));
        let group = done.split_off(first.map_or(0, |position| position + 1));
        done.push(promote_group(group, stmt));
    }
    match done.len() {
        1 => done.remove(0),
        _ => Stmt::Block(done),
    }
}

/// `stores` stand immediately before `nest`.
fn promote_group(mut stores: Vec<Stmt>, nest: Stmt) -> Stmt {
    let mut elements: Vec<Element> = Vec::new();
    let bound = bound_vars(&nest);
    for position in 0..stores.len() {
        let Stmt::Store { buffer, indices, mask: None, .. } = &stores[position] else { continue };
        let element = Element::new(buffer.clone(), indices[0].clone());
        let rest = stores[position + 1..].iter().chain([&nest]);
        let alone = elements.iter().all(|other| other.buffer != element.buffer)
            && rest.clone().all(|stmt| element.is_only_access(stmt))
            && element.is_updated(&nest)
            && !mentions(&element.index, &bound);
        if alone {
            elements.push(element);
        }
    }
    let mut nest = nest;
    for element in &elements {
        stores = stores.into_iter().map(|stmt| element.redirect(stmt)).collect();
        nest = element.redirect(nest);
    }
    stores.push(map_stmts(nest, &mut promote));
    stores.extend(elements.iter().map(Element::write_back));
    elements.into_iter().rev().fold(Stmt::Block(stores), |body, element| Stmt::Allocate {
        buffer: element.register,
        body: Box::new(body),
    })
}

/// One element of a buffer and the register that stands for it.
struct Element {
    buffer: Buffer,
    index: Expr,
    register: Buffer,
}

impl Element {
    fn new(buffer: Buffer, index: Expr) -> Element {
        let shape = vec![Expr::index(1)];
        let name = format!("{}.acc", buffer.name);
        let register = Buffer::new(name, buffer.dtype, shape, Scope::Register);
        Element { buffer, index, register }
    }

    /// Whether `stmt` touches the buffer at no other index.
    fn is_only_access(&self, stmt: &Stmt) -> bool {
        let mut only = true;
        let at = |indices: &[Expr]| equal(&indices[0], &self.index);
        walk_stmt(
            stmt,
            &mut |s| {
                if let Stmt::Store { buffer, indices, mask, .. } = s {
                    only &= *buffer != self.buffer || (mask.is_none() && at(indices));
                }
            },
            &mut |_| {},
        );
        walk_stmt(stmt, &mut |_| {}, &mut |expr| {
            walk_expr(expr, &mut |e| {
                if let ExprKind::Load { buffer, indices, mask } = &e.kind {
                    only &= *buffer != self.buffer || (mask.is_none() && at(indices));
                }
            });
        });
        only
    }

    fn is_updated(&self, stmt: &Stmt) -> bool {
        let mut updated = false;
        walk_stmt(
            stmt,
            &mut |s| {
                updated |= matches!(s, Stmt::Store { buffer, .. } if *buffer == self.buffer);
            },
            &mut |_| {},
        );
        updated
    }

    /// `stmt` with every access to the element made one to the register.
    fn redirect(&self, stmt: Stmt) -> Stmt {
        let stmt = rewrite_exprs(stmt, &mut |expr| {
            rewrite_expr(expr, &mut |e| match &e.kind {
                ExprKind::Load { buffer, .. } if *buffer == self.buffer => {
                    Expr::load(&self.register, vec![Expr::index(0)])
                }
                _ => e,
            })
        });
        self.redirect_stores(stmt)
    }

    fn redirect_stores(&self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Store { buffer, value, .. } if buffer == self.buffer => {
                Stmt::store(&self.register, vec![Expr::index(0)], value)
            }
            other => map_stmts(other, &mut |inner| self.redirect_stores(inner)),
        }
    }

    fn write_back(&self) -> Stmt {
        let value = Expr::load(&self.register, vec![Expr::index(0)]);
        Stmt::store(&self.buffer, vec![self.index.clone()], value)
    }
}

fn bound_vars(stmt: &Stmt) -> HashSet<Var> {
    let mut bound = HashSet::new();
    walk_stmt(
        stmt,
        &mut |s| {
            if let Stmt::For { var, .. } | Stmt::Let { var, .. } = s {
                bound.insert(var.clone());
            }
        },
        &mut |_| {},
    );
    bound
}

/// An index that reads memory is left alone too: the loop might change what it reads.
fn mentions(expr: &Expr, vars: &HashSet<Var>) -> bool {
    let mut found = false;
    walk_expr(expr, &mut |e| {
        found |= matches!(e.kind, ExprKind::Load { .. })
            || e.as_var().is_some_and(|var| vars.contains(var));
    });
    found
}
