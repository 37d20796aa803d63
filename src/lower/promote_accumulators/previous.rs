//! Recurrences along a loop: keeps the element of the iteration before in a register.
//!
//! Before: `for i from 0, n { D[i] = if 0 < i then D[i - 1]*2 + A[i] else A[i] }`
//! After:  `if 0 < n { D[0] = A[0]; allocate D.acc: register; D.acc[0] = D[0];
//!          for i from 1, n - 1 { D.acc[0] = D.acc[0]*2 + A[i]; D[i] = D.acc[0] } }`
//! Otherwise each iteration waits for the memory that the one before has written. The first
//! iteration stands alone, because it may be the one that reads no element before its own.

use super::elements::{Element, Elements};
use super::{Promoter, runs_alone};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{
    Memo, NodeSet, for_each_load, mentions, reads_memory, rewrite_exprs, substitute,
};
use crate::ir::{Expr, ForKind, Scope, Stmt, Var};

impl Promoter<'_> {
    /// Returns a loop over one store that keeps what it stored in the iteration before in a
    /// register; `None` if it does not read that.
    pub(super) fn carry_previous(&self, nest: &Stmt) -> Option<Stmt> {
        let Stmt::For { var, min, extent, kind, body } = nest else { return None };
        let Stmt::Store { buffer, indices, value, mask: None, .. } = &**body else { return None };
        let [index] = &indices[..] else { return None };
        if !self.loads
            || !matches!(kind, ForKind::Serial | ForKind::UnrollHint)
            || extent.as_int().is_some_and(|extent| extent < 2)
            || buffer.scope == Scope::Register
            || reads_memory(index)
            || !mentions(index, var)
            || !runs_alone(nest)
        {
            return None;
        }
        let entry = Element::new(buffer, index, None);
        let previous = previous_index(&entry, var, value)?;
        if !self.has_room(&entry.register) {
            return None;
        }
        let list = vec![entry.with_index(&previous)];
        let elements = Elements { buffer: buffer.clone(), list, selects: false };
        let one = Expr::index(1);
        let facts = Facts::new();
        let begin = simplify_expr(&Expr::add(min.clone(), one.clone()), &facts);
        let rest = simplify_expr(&Expr::sub(extent.clone(), one), &facts);
        let carried = elements.redirect_expr(value, &mut Memo::default());
        self.known.borrow_mut().enter_loop(var, &begin, &rest);
        let carried = self.known.borrow().simplify(&carried);
        self.known.borrow_mut().leave_loop();
        let store = Stmt::store(&entry.register, vec![entry.all_lanes()], carried);
        let inner = Stmt::For {
            var: var.clone(),
            min: begin,
            extent: rest,
            kind: kind.clone(),
            body: Box::new(Stmt::Block(vec![store, entry.write_back()])),
        };
        let at_first = |expr: &Expr| {
            let first = substitute(expr, &mut |v| (v == var).then(|| min.clone()));
            self.known.borrow().simplify(&first)
        };
        let first = rewrite_exprs((**body).clone(), &mut |expr| at_first(expr));
        let read = entry.with_index(&at_first(index)).read();
        let whole = Stmt::Allocate {
            buffer: entry.register.clone(),
            body: Box::new(Stmt::Block(vec![first, read, inner])),
        };
        Some(match extent.as_int() {
            Some(_) => whole,
            None => {
                let cond = Expr::lt(Expr::index(0), extent.clone());
                match self.known.borrow().prove(&cond) {
                    true => whole,
                    false => Stmt::If { cond, then: Box::new(whole), otherwise: None },
                }
            }
        })
    }
}

/// Returns the index, as the value reads it, of the element that the iteration before stored.
fn previous_index(entry: &Element, var: &Var, value: &Expr) -> Option<Expr> {
    let before = Expr::sub(Expr::var(var), Expr::index(1));
    let before = substitute(&entry.index, &mut |v| (v == var).then(|| before.clone()));
    let before = entry.with_index(&before);
    let before = before.lanes()?;
    let mut found = None;
    for_each_load(value, &mut NodeSet::default(), &mut |buffer, indices, mask| {
        if found.is_some() || *buffer != entry.buffer || mask.is_some() {
            return;
        }
        let read = entry.with_index(&indices[0]);
        let Some(lanes) = read.lanes() else { return };
        let distance = Expr::sub(lanes.first.clone(), before.first.clone());
        let same = (lanes.lanes, lanes.stride) == (before.lanes, before.stride)
            && simplify_expr(&distance, &Facts::new()).as_int() == Some(0);
        if same {
            found = Some(indices[0].clone());
        }
    });
    found
}
