//! Finds elements of memory that a loop may keep in a register: an accumulator `C[e]` whose index
//! the loop does not change is read before the loop and written behind it.

use crate::ir::{Buffer, Expr, ExprKind, Stmt, Var, visit};
use std::collections::{HashMap, HashSet};

/// `buffer[index]`, kept in a register.
pub(super) struct Element {
    pub(super) buffer: Buffer,
    pub(super) index: Expr,
}

/// The elements that the loop over `var` with `body`, entered at least once, may keep: those
/// stored to, of buffers accessed at this one index only, at least once whatever the conditions
/// in `body` are (else the address might not be valid at all).
pub(super) fn find(var: &Var, body: &Stmt) -> Vec<Element> {
    let mut scan = Scan::default();
    scan.bound.insert(var.clone());
    scan.stmt(body, true);
    let Scan { accesses, stored, bound, .. } = scan;
    stored
        .into_iter()
        .filter_map(|buffer| {
            let access = accesses.get(&buffer)?;
            let index = access.index.clone()?;
            let valid = access.certain && is_invariant(&index, &bound, &mut 64);
            valid.then_some(Element { buffer, index })
        })
        .collect()
}

#[derive(Default)]
struct Scan {
    accesses: HashMap<Buffer, Access>,
    /// In order of the first store.
    stored: Vec<Buffer>,
    /// Variables bound by the loop or inside it.
    bound: HashSet<Var>,
    seen: HashSet<usize>,
}

struct Access {
    /// The one index; none if there are different ones.
    index: Option<Expr>,
    /// Some access happens in every run of the body.
    certain: bool,
}

impl Scan {
    fn access(&mut self, buffer: &Buffer, indices: &[Expr], certain: bool) {
        let index = indices.first().filter(|_| indices.len() == 1);
        match self.accesses.get_mut(buffer) {
            None => {
                self.accesses.insert(buffer.clone(), Access { index: index.cloned(), certain });
            }
            Some(access) => {
                access.certain |= certain;
                let equal = match (&access.index, index) {
                    (Some(a), Some(b)) => is_equal(a, b, &mut 64),
                    _ => false,
                };
                if !equal {
                    access.index = None;
                }
            }
        }
    }

    fn stmt(&mut self, stmt: &Stmt, certain: bool) {
        visit::for_each_expr(stmt, &mut |expr| self.expr(expr));
        let mut certain = certain;
        match stmt {
            Stmt::Store { buffer, indices, .. } => {
                self.access(buffer, indices, certain);
                if !self.stored.contains(buffer) {
                    self.stored.push(buffer.clone());
                }
            }
            Stmt::For { var, extent, .. } => {
                self.bound.insert(var.clone());
                certain &= extent.as_int().is_some_and(|count| count > 0);
            }
            Stmt::If { .. } => certain = false,
            Stmt::Let { var, .. } => {
                self.bound.insert(var.clone());
            }
            // The buffer lives inside the loop only.
            Stmt::Allocate { buffer, .. } => {
                self.accesses.insert(buffer.clone(), Access { index: None, certain: false });
            }
            _ => {}
        }
        visit::for_each_stmt(stmt, &mut |inner| self.stmt(inner, certain));
    }

    fn expr(&mut self, expr: &Expr) {
        if !self.seen.insert(expr.id()) {
            return;
        }
        match &expr.kind {
            // Loads do not make an element certain: they may stand in a lazy branch.
            ExprKind::Load { buffer, indices, .. } => self.access(buffer, indices, false),
            ExprKind::Let(var, ..) => {
                self.bound.insert(var.clone());
            }
            _ => {}
        }
        visit::for_each_child(expr, &mut |child| self.expr(child));
    }
}

/// True if the index reads no memory and no variable of `bound`; gives up like [`is_equal`].
fn is_invariant(index: &Expr, bound: &HashSet<Var>, budget: &mut u32) -> bool {
    if *budget == 0 {
        return false;
    }
    *budget -= 1;
    let own = match &index.kind {
        ExprKind::Load { .. } | ExprKind::Let(..) => false,
        ExprKind::Var(var) => !bound.contains(var),
        _ => true,
    };
    let mut invariant = own;
    visit::for_each_child(index, &mut |child| {
        invariant = invariant && is_invariant(child, bound, budget);
    });
    invariant
}

/// True if both are certainly the same value; gives up when `budget` is spent.
fn is_equal(a: &Expr, b: &Expr, budget: &mut u32) -> bool {
    if a.same(b) {
        return true;
    }
    if *budget == 0 || a.ty != b.ty {
        return false;
    }
    *budget -= 1;
    match (&a.kind, &b.kind) {
        (ExprKind::Const(x), ExprKind::Const(y)) => x == y,
        (ExprKind::Var(x), ExprKind::Var(y)) => x == y,
        (ExprKind::Unary(f, x), ExprKind::Unary(g, y)) => f == g && is_equal(x, y, budget),
        (ExprKind::Cast(x), ExprKind::Cast(y)) => is_equal(x, y, budget),
        (ExprKind::Binary(f, x1, x2), ExprKind::Binary(g, y1, y2)) => {
            f == g && is_equal(x1, y1, budget) && is_equal(x2, y2, budget)
        }
        _ => false,
    }
}
