//! Addresses, `base + size * index`, with the loop-invariant terms added first.
//!
//! Cranelift hoists invariant values but never reassociates. An index is therefore flattened into a
//! linear sum, whose terms are added to the base outermost loop first. Each prefix of the sum is
//! invariant in the loops further inside, and Cranelift folds the last addition of a term scaled by
//! 1, 2, 4 or 8 into an addressing mode.

use super::emit::Emitter;
use crate::ir::Expr;
use crate::ir::arith::{Linear, collect_wrapping};
use cranelift_codegen::ir::{InstBuilder, Value, types};
use std::num::Wrapping;

/// An index with more terms than this is added to the base as a single value.
const MAX_TERMS: usize = 16;

impl Emitter<'_, '_> {
    /// The address of element `index` as a value and a constant displacement. The arithmetic is
    /// modulo 2^64, where the order of additions does not matter.
    pub(super) fn address(&mut self, base: Value, bytes: u64, index: &Expr) -> (Value, i32) {
        let mut sum = collect_wrapping(index);
        if sum.terms.len() > MAX_TERMS {
            sum = Linear::of_term(index.clone());
        }
        let Linear { terms, constant } = &sum * Wrapping(bytes as i64);
        let mut terms: Vec<(u32, Expr, i64)> =
            terms.into_iter().map(|(expr, scale)| (self.depth_of(&expr), expr, scale.0)).collect();
        terms.sort_by_key(|(depth, ..)| *depth);
        let mut address = base;
        for (_, expr, scale) in terms {
            let value = self.expr(&expr);
            address = self.add_scaled(address, value, scale);
        }
        match i32::try_from(constant.0) {
            Ok(offset) => (address, offset),
            Err(_) => (self.b.ins().iadd_imm_s(address, constant.0), 0),
        }
    }

    /// `sum + value * scale`, with a shift if `scale` is a power of two.
    fn add_scaled(&mut self, sum: Value, value: Value, scale: i64) -> Value {
        let magnitude = scale.unsigned_abs();
        let product = if magnitude.is_power_of_two() {
            let shift = i64::from(magnitude.trailing_zeros());
            if shift == 0 { value } else { self.b.ins().ishl_imm_u(value, shift) }
        } else {
            let magnitude = self.b.ins().iconst(types::I64, magnitude as i64);
            self.b.ins().imul(value, magnitude)
        };
        if scale < 0 { self.b.ins().isub(sum, product) } else { self.b.ins().iadd(sum, product) }
    }
}
