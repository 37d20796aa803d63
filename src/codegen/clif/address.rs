//! Addresses: `base + size * index` written so that what is invariant in a loop is added first.
//!
//! Cranelift hoists invariant values but never reassociates. So an index is split into a sum of
//! scaled terms, and the terms are added to the base outermost loop first: every prefix of the
//! sum is invariant in the loops further inside, and the last addition of a term scaled by
//! 1, 2, 4 or 8 becomes an addressing mode.

use super::emit::Emitter;
use crate::ir::{BinOp, Expr, ExprKind, UnOp};
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// More terms than this in one index are left as they stand.
const MAX_TERMS: usize = 16;

/// A sum of scaled terms and a constant.
#[derive(Default)]
struct Linear<'e> {
    terms: Vec<(i128, &'e Expr)>,
    constant: i128,
}

impl<'e> Linear<'e> {
    fn add(&mut self, scale: i128, expr: &'e Expr) {
        if let Some(value) = expr.as_int() {
            self.constant = self.constant.wrapping_add(scale.wrapping_mul(value));
            return;
        }
        let open = self.terms.len() < MAX_TERMS;
        match &expr.kind {
            ExprKind::Binary(BinOp::Add, a, b) if open => {
                self.add(scale, a);
                self.add(scale, b);
            }
            ExprKind::Binary(BinOp::Sub, a, b) if open => {
                self.add(scale, a);
                self.add(-scale, b);
            }
            ExprKind::Unary(UnOp::Neg, a) if open => self.add(-scale, a),
            ExprKind::Binary(BinOp::Mul, a, b) => match (scaled(scale, a), scaled(scale, b)) {
                (_, Some(scale)) => self.add(scale, a),
                (Some(scale), None) => self.add(scale, b),
                (None, None) => self.push(scale, expr),
            },
            _ => self.push(scale, expr),
        }
    }

    fn push(&mut self, scale: i128, expr: &'e Expr) {
        match self.terms.iter_mut().find(|(_, other)| other.same(expr)) {
            Some(term) => term.0 = term.0.wrapping_add(scale),
            None => self.terms.push((scale, expr)),
        }
    }
}

/// `scale * factor` if that is a constant of 64 bits.
fn scaled(scale: i128, factor: &Expr) -> Option<i128> {
    let product = scale.checked_mul(factor.as_int()?)?;
    i64::try_from(product).ok().map(i128::from)
}

impl Emitter<'_, '_> {
    /// The address of element `index` as a value and a constant displacement. The arithmetic is
    /// modulo 2^64, where any order of additions gives the same.
    pub(super) fn address(&mut self, base: Value, bytes: u64, index: &Expr) -> (Value, i32) {
        let mut linear = Linear::default();
        linear.add(1, index);
        let mut terms: Vec<(u32, i128, &Expr)> = linear
            .terms
            .into_iter()
            .filter(|(scale, _)| *scale != 0)
            .map(|(scale, expr)| (self.depth_of(expr), scale, expr))
            .collect();
        terms.sort_by_key(|(depth, ..)| *depth);
        let mut sum = base;
        for (_, scale, expr) in terms {
            let value = self.expr(expr);
            sum = self.add_scaled(sum, value, (scale as i64).wrapping_mul(bytes as i64));
        }
        let offset = (linear.constant as i64).wrapping_mul(bytes as i64);
        match i32::try_from(offset) {
            Ok(offset) => (sum, offset),
            Err(_) => (self.b.ins().iadd_imm_s(sum, offset), 0),
        }
    }

    /// `sum + value * scale`.
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
