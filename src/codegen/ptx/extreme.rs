//! Minimum and maximum.
//!
//! `ptxas` 13.0, the one in drivers of the 580 series, joins two signed 32-bit maxima (or minima)
//! to `VIMNMX3` from sm_90 on. If an operand of the first one is a negation, it drops the negation:
//! `max(max(a, -b), c)` becomes `max3(a, b, c)`. Version 13.5 is right. It recognizes a negation in
//! whatever form it is written (`0 - b`, `b * -1`), and a maximum by comparison and selection. So a
//! maximum whose operand may be a negation is computed as the complement of the minimum of the
//! complements, which no version joins.

use super::emit::{Emitter, Val, view};
use crate::ir::{BinOp, DType};
use nvptx_builder::{Cmp, Reg, Source, Ty};

impl Emitter<'_> {
    /// Emits a minimum or maximum.
    pub(super) fn extreme(&mut self, op: BinOp, dtype: DType, x: Val, y: Val) -> Val {
        let of_min = op == BinOp::Min;
        if dtype.is_float() {
            return self.float_extreme(if of_min { Cmp::Lt } else { Cmp::Gt }, x, y).operand();
        }
        self.int_extreme(of_min, x, y)
    }

    /// Emits a minimum or maximum of integers.
    pub(super) fn int_extreme(&mut self, of_min: bool, x: Val, y: Val) -> Val {
        let complement = x.ty() == Ty::S32 && (self.may_be_negation(x) || self.may_be_negation(y));
        // The minimum of extended values is extended.
        let (x, y) = match complement {
            true => (self.e.not(x).operand(), self.e.not(y).operand()),
            false => (x, y),
        };
        let found = match of_min != complement {
            true => self.e.min(x, y),
            false => self.e.max(x, y),
        };
        if complement { self.e.not(found.operand()).operand() } else { found.operand() }
    }

    /// Emits `x` if `x < y` (or `>`), else `y`.
    fn float_extreme(&mut self, cmp: Cmp, x: Val, y: Val) -> Reg {
        let less = self.e.setp(cmp, x, y);
        self.e.selp(x, y, less)
    }

    /// Notes the result of an operation that `ptxas` may turn into a negation.
    pub(super) fn note_negation(&mut self, op: BinOp, (x, y): (Val, Val), result: Reg) {
        let negative = |value: Val| {
            value.reg().is_none() && value.constant_bits().is_some_and(|bits| bits as i32 >> 31 < 0)
        };
        let may = match op {
            BinOp::Sub => true,
            BinOp::Mul => negative(x) || negative(y),
            BinOp::Add => self.may_be_negation(x) || self.may_be_negation(y),
            _ => false,
        };
        if may {
            self.set_negation(result);
        }
    }

    pub(super) fn set_negation(&mut self, reg: Reg) {
        if let Some(reg) = word(reg.operand()) {
            self.negations.insert(reg);
        }
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

/// Returns a register of 32 bits, whatever type it is used as.
fn word(value: Val) -> Option<Reg> {
    if value.ty().bits() != 32 || value.ty().is_float() {
        return None;
    }
    view(value, Ty::S32).reg()
}
