//! Short statements under a condition: predicates in place of branches.
//!
//! A branch around a copy would keep the next copy's load from starting before this one's value has
//! arrived, and `ptxas` moves no load across the branches around the terms of a sum.
//!
//! Before: `@!p bra skip; ld.global a; st.shared next, a; skip: (work on current)`
//! After:  `@p ld.global a; (work on current); @p st.shared next, a`
//!
//! Before: `@!p bra skip; ld.shared a; fma sum, a, b, sum; skip:`
//! After:  `@p ld.shared a; @p fma sum, a, b, sum`

use super::emit::{Emitter, Place};
use super::speculate::{COPY_BUDGET, SPECULATION_BUDGET, is_guardable};
use crate::ir::visit::reads_memory;
use crate::ir::{Expr, Stmt};
use nvptx_builder::{Reg, Source};

/// Most updates of registers under a predicate: it costs all of them where the condition is false
/// for a whole warp.
const MAX_UPDATES: usize = 8;

impl Emitter<'_> {
    /// Emits `if pred { then }` under predicates if it consists of copies to shared memory, or of a
    /// few updates of registers. Returns whether it did.
    pub(super) fn guarded_statement(&mut self, pred: Reg, then: &Stmt) -> bool {
        // An asynchronous copy has no register to wait for.
        let copies = !self.copies_async && !self.in_group && self.are_copies(then);
        if !copies && self.updates(then).is_none_or(|count| count > MAX_UPDATES) {
            return false;
        }
        let pred = self.copy_if_mutable(pred.operand()).reg().expect("a predicate");
        self.guard = Some(pred);
        self.stmt(then);
        self.guard = None;
        true
    }

    /// Whether a statement consists of cheap copies to shared memory that can be delayed.
    fn are_copies(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().all(|one| self.are_copies(one)),
            Stmt::Let { value, body, .. } => is_cheap_let(value) && self.are_copies(body),
            Stmt::Store { buffer, indices, value, mask: None, .. } => {
                let exprs: Vec<&Expr> = indices.iter().chain([value]).collect();
                matches!(self.places.get(buffer), Some(Place::Memory(memory))
                    if self.can_delay(memory, value))
                    && are_cheap(&exprs, COPY_BUDGET * value.ty.lanes as i32)
            }
            _ => false,
        }
    }

    /// The number of cheap updates of single registers that a statement consists of; `None` if it
    /// does anything else.
    fn updates(&self, stmt: &Stmt) -> Option<usize> {
        match stmt {
            Stmt::Block(stmts) => stmts.iter().map(|one| self.updates(one)).sum(),
            Stmt::Let { value, body, .. } if is_cheap_let(value) => self.updates(body),
            Stmt::Store { buffer, value, mask: None, .. } => {
                let is_register = matches!(self.places.get(buffer), Some(Place::Registers(_)));
                let is_update =
                    is_register && value.ty.is_scalar() && are_cheap(&[value], SPECULATION_BUDGET);
                is_update.then_some(1)
            }
            _ => None,
        }
    }
}

fn are_cheap(exprs: &[&Expr], mut budget: i32) -> bool {
    exprs.iter().all(|expr| is_guardable(expr, &mut budget))
}

fn is_cheap_let(value: &Expr) -> bool {
    value.ty.is_scalar() && !reads_memory(value) && are_cheap(&[value], COPY_BUDGET)
}
