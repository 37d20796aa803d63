//! Inject virtual threads: copies each statement for each virtual thread, so that all of them share
//! loops, barriers, and statements that are the same for all.
//!
//! Before: `// attr [iter_var(v, , vthread)] virtual_thread = 2`
//!         `allocate L[4]  for k { produce S { S[t] = A[k, t] }`
//!         `  for i { L[i] = L[i] + S[v*4 + i] } }`
//! After:  `allocate L[2, 4]  for k { produce S { S[t] = A[k, t] }`
//!         `  for i { L[0, i] = L[0, i] + S[i]  L[1, i] = L[1, i] + S[4 + i] } }`
//! A buffer that is allocated inside and differs between virtual threads gets a copy for each of
//! them, along a new outermost dimension. Statements that do not differ stand once. For more than
//! 15 virtual threads, a loop runs each statement.
//! Needs: one index per dimension; independent iterations. The first pass, so that all others get
//! ordinary loops and buffers of their final size.
//! Ensures: no `vthread` loop is left; every variable is bound once.

use crate::diag::Result;
use crate::ir::copy::fresh_copy;
use crate::ir::visit::{
    any_expr, for_each_expr, for_each_stmt, map_exprs, map_stmts, rewrite_expr, walk_stmt,
};
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Kernel, Stmt, Var};
use crate::target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// The smallest number of virtual threads for which a loop runs each statement. The number is
/// TVM's.
const MIN_LOOPED: i64 = 16;

/// Replaces every `vthread` loop by copies of its statements, innermost first.
pub fn inject_virtual_threads(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    Ok(Kernel { body: inject(kernel.body), ..kernel })
}

fn inject(stmt: Stmt) -> Stmt {
    let stmt = map_stmts(stmt, &mut inject);
    match stmt {
        Stmt::For { var, extent, kind, body, .. } if kind.is_vthread() => {
            let count = extent.as_int().and_then(|count| i64::try_from(count).ok());
            let Some(count) = count else {
                crate::bug!("an unknown number of virtual threads");
            };
            if count == 1 {
                return fresh_copy(&body, &FxHashMap::from_iter([(var, Expr::index(0))]));
            }
            let differing = Differing::find(&var, &body);
            Injector { var, count, differing, copies: FxHashMap::default() }.stmt(*body)
        }
        other => other,
    }
}

/// The variables and buffers that differ between the virtual threads.
struct Differing {
    vars: FxHashSet<Var>,
    /// The buffers that are allocated inside.
    own: FxHashSet<Buffer>,
    /// Those of them whose contents differ.
    buffers: FxHashSet<Buffer>,
}

impl Differing {
    fn find(var: &Var, body: &Stmt) -> Differing {
        let mut own = FxHashSet::default();
        walk_stmt(
            body,
            &mut |stmt| {
                if let Stmt::Allocate { buffer, .. } = stmt {
                    own.insert(buffer.clone());
                }
            },
            &mut |_| {},
        );
        let vars = FxHashSet::from_iter([var.clone()]);
        let mut differing = Differing { vars, own, buffers: FxHashSet::default() };
        // A buffer that is computed from a differing one differs, also from iteration to iteration.
        loop {
            let known = (differing.vars.len(), differing.buffers.len());
            differing.visit(body, false);
            if known == (differing.vars.len(), differing.buffers.len()) {
                return differing;
            }
        }
    }

    /// Adds the variables and buffers that differ in a statement; `control` says whether virtual
    /// threads differ in running it.
    fn visit(&mut self, stmt: &Stmt, control: bool) {
        let mut differs = control;
        for_each_expr(stmt, &mut |expr| differs |= self.expr(expr));
        match stmt {
            Stmt::For { var, .. } | Stmt::Let { var, .. } if differs => {
                self.vars.insert(var.clone());
            }
            Stmt::Store { buffer, .. } if differs && self.own.contains(buffer) => {
                self.buffers.insert(buffer.clone());
            }
            _ => {}
        }
        let control = match stmt {
            Stmt::For { .. } | Stmt::If { .. } => differs,
            _ => control,
        };
        for_each_stmt(stmt, &mut |inner| self.visit(inner, control));
    }

    fn expr(&self, expr: &Expr) -> bool {
        any_expr(expr, &mut |e| match &e.kind {
            ExprKind::Var(var) => self.vars.contains(var),
            ExprKind::Load { buffer, .. } => self.buffers.contains(buffer),
            _ => false,
        })
    }

    /// Whether anything in the statement differs.
    fn stmt(&self, stmt: &Stmt) -> bool {
        let mut found = match stmt {
            Stmt::Store { buffer, .. } => self.buffers.contains(buffer),
            _ => false,
        };
        for_each_expr(stmt, &mut |expr| found = found || self.expr(expr));
        for_each_stmt(stmt, &mut |inner| found = found || self.stmt(inner));
        found
    }
}

struct Injector {
    var: Var,
    count: i64,
    differing: Differing,
    /// For each differing buffer, the one with a copy for each virtual thread.
    copies: FxHashMap<Buffer, Buffer>,
}

impl Injector {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Block(stmts) => {
                Stmt::Block(stmts.into_iter().map(|inner| self.stmt(inner)).collect())
            }
            Stmt::Allocate { buffer, body } if self.differing.buffers.contains(&buffer) => {
                let copies = self.with_copies(&buffer);
                self.copies.insert(buffer, copies.clone());
                Stmt::Allocate { buffer: copies, body: Box::new(self.stmt(*body)) }
            }
            Stmt::Allocate { .. } | Stmt::Produce { .. } => {
                map_stmts(stmt, &mut |inner| self.stmt(inner))
            }
            stmt if !self.differing.stmt(&stmt) => stmt,
            Stmt::For { .. } | Stmt::Let { .. } | Stmt::If { .. } => {
                let mut differs = false;
                for_each_expr(&stmt, &mut |expr| differs |= self.differing.expr(expr));
                match differs {
                    true => self.replicate(&stmt),
                    false => map_stmts(stmt, &mut |inner| self.stmt(inner)),
                }
            }
            other => self.replicate(&other),
        }
    }

    /// Returns the buffer with a new outermost dimension, one copy for each virtual thread.
    fn with_copies(&self, buffer: &Buffer) -> Buffer {
        let mut shape = buffer.shape.clone();
        shape.insert(0, Expr::index(self.count));
        let strides = buffer.strides.clone().map(|mut strides| {
            strides.insert(0, buffer.len());
            strides
        });
        let how = buffer.buffering;
        Buffer::with_layout(&buffer.name, buffer.dtype, shape, buffer.scope, strides, how)
    }

    /// Copies the statement for every virtual thread.
    fn replicate(&self, stmt: &Stmt) -> Stmt {
        let copy = |value: Expr| {
            let own = self.redirect(stmt.clone(), &value);
            fresh_copy(&own, &FxHashMap::from_iter([(self.var.clone(), value)]))
        };
        if self.count < MIN_LOOPED {
            return Stmt::Block((0..self.count).map(|at| copy(Expr::index(at))).collect());
        }
        let var = Var::index(self.var.name());
        let (min, extent) = (Expr::index(0), Expr::index(self.count));
        let body = Box::new(copy(Expr::var(&var)));
        Stmt::For { var, min, extent, kind: ForKind::Serial, body }
    }

    /// Redirects every access of a buffer with copies to that of virtual thread `value`.
    fn redirect(&self, stmt: Stmt, value: &Expr) -> Stmt {
        let place = |buffer: &Buffer, indices: &[Expr]| {
            let copies = self.copies.get(buffer)?;
            let indices = std::iter::once(value).chain(indices).cloned().collect();
            Some((copies.clone(), indices))
        };
        let stmt = map_exprs(stmt, &mut |expr| {
            rewrite_expr(expr, &mut |e| match &e.kind {
                ExprKind::Load { buffer, indices, mask } => match place(buffer, indices) {
                    Some((buffer, indices)) => {
                        let mask = mask.clone();
                        Expr::new(e.ty, ExprKind::Load { buffer, indices, mask })
                    }
                    None => e,
                },
                _ => e,
            })
        });
        match stmt {
            Stmt::Store { buffer, indices, value, mask, nontemporal } => {
                let (buffer, indices) = place(&buffer, &indices).unwrap_or((buffer, indices));
                Stmt::Store { buffer, indices, value, mask, nontemporal }
            }
            Stmt::Prefetch { buffer, indices } => {
                let (buffer, indices) = place(&buffer, &indices).unwrap_or((buffer, indices));
                Stmt::Prefetch { buffer, indices }
            }
            other => map_stmts(other, &mut |inner| self.redirect(inner, value)),
        }
    }
}
