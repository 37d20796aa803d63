//! Simplification of statements: loops bind facts, empty and single-iteration loops are removed,
//! decided branches are taken, neighbours with the same condition share it.

use super::Simplifier;
use super::lanes::truth;
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::visit::reads_memory;
use crate::ir::{Expr, ForKind, Kernel, Stmt, Var};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Simplifies every expression of a kernel's body under the facts of its loops and conditions.
/// Removes empty loops and decided branches, replaces the variable of a loop of one iteration, and
/// flattens blocks. `checks` are unchanged: they must not rely on the facts that they establish.
pub fn simplify_kernel(kernel: Kernel) -> Kernel {
    simplify_body(kernel, false, &FxHashMap::default())
}

/// Simplifies a kernel's body in which run-time integers have these values, like
/// [`simplify_kernel`]. What the kernel states about them is not used. Divisors in which they stand
/// are unchanged.
pub fn simplify_at(kernel: &Kernel, values: &FxHashMap<Var, i64>) -> Kernel {
    simplify_body(Kernel { facts: Vec::new(), ..kernel.clone() }, false, values)
}

/// Like [`simplify_kernel`], but also joins the quotient and the remainder of a division by a
/// run-time integer: `a[((floordiv(i, m)*m) + floormod(i, m))]`, a reshape of symbolic shapes,
/// becomes `a[i]`. A separate pass, because `tec lower --simple` shows the form before it.
pub fn join_divisions(kernel: Kernel) -> Kernel {
    simplify_body(kernel, true, &FxHashMap::default())
}

fn simplify_body(kernel: Kernel, join_symbolic: bool, values: &FxHashMap<Var, i64>) -> Kernel {
    let mut facts = Facts::new();
    kernel.facts.iter().for_each(|cond| facts.assume(cond));
    let mut simplifier = Simplifier::new(Cow::Owned(facts));
    simplifier.join_symbolic = join_symbolic;
    simplifier.given.extend(values.keys().cloned());
    let values = values.iter().map(|(var, value)| (var.clone(), Expr::index(*value)));
    simplifier.replaced.extend(values);
    let body = simplifier.stmt(&kernel.body);
    Kernel { body, ..kernel }
}

impl Simplifier<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Stmt {
        match stmt {
            Stmt::Block(stmts) => {
                let mut flat = Vec::new();
                for inner in stmts {
                    match self.stmt(inner) {
                        Stmt::Block(inner) => {
                            inner.into_iter().for_each(|stmt| append(&mut flat, stmt));
                        }
                        other => append(&mut flat, other),
                    }
                }
                if flat.len() == 1 { flat.remove(0) } else { Stmt::Block(flat) }
            }
            Stmt::For { .. } => self.for_loop(stmt),
            Stmt::If { cond, then, otherwise } => self.if_stmt(cond, then, otherwise.as_deref()),
            Stmt::Store { buffer, indices, value, mask, nontemporal } => {
                let mask = mask.as_ref().map(|mask| self.expr(mask));
                let whole = mask.as_ref().and_then(truth);
                if whole == Some(false) {
                    return Stmt::nothing();
                }
                Stmt::Store {
                    buffer: buffer.clone(),
                    indices: indices.iter().map(|index| self.expr(index)).collect(),
                    value: self.expr(value),
                    mask: mask.filter(|_| whole.is_none()),
                    nontemporal: *nontemporal,
                }
            }
            Stmt::Let { var, value, body } => {
                let value = self.expr(value);
                self.push();
                self.facts.to_mut().define(var, &value);
                let body = self.stmt(body);
                self.pop();
                if is_nothing(&body) {
                    return body;
                }
                Stmt::Let { var: var.clone(), value, body: Box::new(body) }
            }
            Stmt::Allocate { buffer, body } => match self.stmt(body) {
                // Without loops there is no launch, and shared memory would be outside of one.
                body if is_nothing(&body) || is_marks(&body) => body,
                body => Stmt::Allocate { buffer: buffer.clone(), body: Box::new(body) },
            },
            Stmt::Produce { name, body } => {
                Stmt::Produce { name: name.clone(), body: Box::new(self.stmt(body)) }
            }
            Stmt::SimdKernel { body } => Stmt::SimdKernel { body: Box::new(self.stmt(body)) },
            Stmt::Tensorize { name, body } => match self.stmt(body) {
                body if is_nothing(&body) => body,
                body => Stmt::Tensorize { name: name.clone(), body: Box::new(body) },
            },
            Stmt::Prefetch { buffer, indices } => {
                let indices = indices.iter().map(|index| self.expr(index)).collect();
                Stmt::Prefetch { buffer: buffer.clone(), indices }
            }
            // `AwaitCopies` counts empty groups.
            Stmt::CopyGroup { body } => Stmt::CopyGroup { body: Box::new(self.stmt(body)) },
            Stmt::Assert { .. } | Stmt::Barrier | Stmt::AwaitCopies { .. } => stmt.clone(),
            Stmt::Sort(_) => crate::bug!("`expand_sorts` comes first"),
        }
    }

    fn for_loop(&mut self, stmt: &Stmt) -> Stmt {
        let Stmt::For { var, min, extent, kind, body } = stmt else {
            crate::bug!("a loop is expected")
        };
        let (min, extent) = (self.expr(min), self.expr(extent));
        if extent.as_int().is_some_and(|extent| extent <= 0) {
            return Stmt::nothing();
        }
        let thread = matches!(kind, ForKind::Thread(_));
        if thread && extent.as_int() == Some(1) && !self.replaced.contains_key(var) {
            return self.single_thread(stmt);
        }
        if extent.as_int() == Some(1) && !thread {
            // Another loop may bind the same variable, so the scope ends with the body.
            self.push();
            self.replaced.insert(var.clone(), min);
            let body = self.stmt(body);
            self.replaced.remove(var);
            self.pop();
            return body;
        }
        self.push();
        self.facts.to_mut().bind(var, &min, &extent);
        let body = self.stmt(body);
        self.pop();
        if is_nothing(&body) {
            return body;
        }
        Stmt::For { var: var.clone(), min, extent, kind: kind.clone(), body: Box::new(body) }
    }

    /// Replaces a thread index of extent 1 by 0 but keeps the loop, which defines the launch.
    fn single_thread(&mut self, stmt: &Stmt) -> Stmt {
        let Stmt::For { var, .. } = stmt else { crate::bug!("a loop is expected") };
        self.push();
        self.replaced.insert(var.clone(), Expr::index(0));
        let stmt = self.for_loop(stmt);
        self.replaced.remove(var);
        self.pop();
        stmt
    }

    fn if_stmt(&mut self, cond: &Expr, then: &Stmt, otherwise: Option<&Stmt>) -> Stmt {
        let cond = self.expr(cond);
        if let Some(value) = cond.as_int() {
            return match (value != 0, otherwise) {
                (true, _) => self.stmt(then),
                (false, Some(otherwise)) => self.stmt(otherwise),
                (false, None) => Stmt::nothing(),
            };
        }
        let mut branch = |truth: bool, stmt: &Stmt| {
            self.push();
            self.facts.to_mut().assume_truth(&cond, truth);
            let stmt = self.stmt(stmt);
            self.pop();
            stmt
        };
        let then = branch(true, then);
        let otherwise = otherwise.map(|stmt| branch(false, stmt)).filter(|s| !is_nothing(s));
        match (is_nothing(&then), otherwise) {
            (true, None) => Stmt::nothing(),
            (true, Some(otherwise)) => {
                let cond = self.negation(&cond);
                Stmt::If { cond, then: Box::new(otherwise), otherwise: None }
            }
            (false, otherwise) => {
                Stmt::If { cond, then: Box::new(then), otherwise: otherwise.map(Box::new) }
            }
        }
    }
}

/// Appends a statement to a block. Neighbours with the same condition, as unrolling makes them,
/// share it: `if c { A }; if c { B }` is `if c { A; B }`. A condition that reads memory may change.
fn append(block: &mut Vec<Stmt>, stmt: Stmt) {
    let shared = match (block.last(), &stmt) {
        (
            Some(Stmt::If { cond: before, otherwise: None, .. }),
            Stmt::If { cond, otherwise: None, .. },
        ) => !reads_memory(cond) && equal(before, cond),
        _ => false,
    };
    if !shared {
        return block.push(stmt);
    }
    let (Some(Stmt::If { then: before, .. }), Stmt::If { then, .. }) = (block.last_mut(), stmt)
    else {
        crate::bug!("both are conditions")
    };
    let mut both = match std::mem::replace(&mut **before, Stmt::nothing()) {
        Stmt::Block(stmts) => stmts,
        one => vec![one],
    };
    match *then {
        Stmt::Block(stmts) => stmts.into_iter().for_each(|stmt| append(&mut both, stmt)),
        one => append(&mut both, one),
    }
    **before = Stmt::Block(both);
}

fn is_nothing(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Block(stmts) if stmts.is_empty())
}

/// Whether the statement has only `Produce` marks.
fn is_marks(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Block(stmts) => stmts.iter().all(is_marks),
        Stmt::Produce { body, .. } => is_marks(body),
        _ => false,
    }
}
