//! Minimum, maximum and choice.
//!
//! `ptxas` 13.0, the one in drivers of the 580 series, joins two signed 32-bit maxima (or minima)
//! to `VIMNMX3` from sm_90 on. If an operand of the first one is a negation, it drops the negation:
//! `max(max(a, -b), c)` becomes `max3(a, b, c)`. Version 13.5 is right. It recognizes a negation in
//! whatever form it is written (`0 - b`, `b * -1`, `5 - b - 5`), and a maximum by comparison and
//! `selp`. So if an operand may be a negation, a maximum is the complement of the minimum of the
//! complements, and a choice that of a choice of complements, which no version joins. Branches are
//! not joined, nor are maxima of other types.

use super::emit::{Emitter, Val, view};
use crate::ir::{BinOp, DType};
use nvptx_builder::{Cmp, Pred, Reg, Source, Ty};

impl Emitter<'_> {
    /// Emits a minimum or maximum.
    pub(super) fn extreme(&mut self, op: BinOp, dtype: DType, x: Val, y: Val) -> Val {
        let of_min = op == BinOp::Min;
        if dtype.is_float() {
            return self.float_extreme(if of_min { Cmp::Lt } else { Cmp::Gt }, x, y).operand();
        }
        // The minimum of extended values is extended.
        match (of_min, self.complements(x, y)) {
            (true, None) => self.e.min(x, y).operand(),
            (false, None) => self.e.max(x, y).operand(),
            (true, Some((x, y))) => {
                let found = self.e.max(x, y);
                self.e.not(found.operand()).operand()
            }
            (false, Some((x, y))) => {
                let found = self.e.min(x, y);
                self.e.not(found.operand()).operand()
            }
        }
    }

    /// Emits `x` if `x < y` (or `>`), else `y`.
    fn float_extreme(&mut self, cmp: Cmp, x: Val, y: Val) -> Reg {
        let less = self.e.setp(cmp, x, y);
        self.e.selp(x, y, less)
    }

    /// Emits `x` if a condition holds, else `y`.
    pub(super) fn choice(&mut self, condition: Reg<Pred>, x: Val, y: Val) -> Val {
        match self.complements(x, y) {
            None => self.e.selp(x, y, condition).operand(),
            Some((x, y)) => {
                let chosen = self.e.selp(x, y, condition);
                self.e.not(chosen.operand()).operand()
            }
        }
    }

    /// Emits the complements of two signed 32-bit values of which one may be a negation; `None` for
    /// others.
    fn complements(&mut self, x: Val, y: Val) -> Option<(Val, Val)> {
        let needed = x.ty() == Ty::S32 && (self.may_be_negation(x) || self.may_be_negation(y));
        needed.then(|| (self.e.not(x).operand(), self.e.not(y).operand()))
    }

    /// Notes the result of an operation that `ptxas` may turn into a negation.
    pub(super) fn note_negation(&mut self, op: BinOp, (x, y): (Val, Val), result: Reg) {
        let is_negative = |value: Val| {
            value.reg().is_none() && value.constant_bits().is_some_and(|bits| (bits as i32) < 0)
        };
        let may_be = match op {
            BinOp::Sub => true,
            BinOp::Mul => is_negative(x) || is_negative(y),
            BinOp::Add => self.may_be_negation(x) || self.may_be_negation(y),
            _ => false,
        };
        if may_be {
            self.set_negation(result);
        }
    }

    /// Notes that a register may hold a negation.
    pub(super) fn set_negation(&mut self, reg: Reg) {
        self.negations.extend(word(reg.operand()));
    }

    /// Notes that a register gets a value.
    pub(super) fn note_move(&mut self, to: Reg, from: Val) {
        if self.may_be_negation(from) {
            self.set_negation(to);
        }
    }

    fn may_be_negation(&self, value: Val) -> bool {
        word(value).is_some_and(|reg| self.negations.contains(&reg))
    }
}

/// Returns a register of 32 bits, whatever integer type it is used as.
fn word(value: Val) -> Option<Reg> {
    if value.ty().bits() != 32 || value.ty().is_float() {
        return None;
    }
    view(value, Ty::S32).reg()
}
