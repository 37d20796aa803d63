//! Integer operations that Cranelift lacks: floor division and modulo that never trap, and `index`
//! arithmetic that records overflow.

use super::emit::Emitter;
use crate::ir::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

/// The kind of a division, and known facts about its operands.
#[derive(Clone, Copy)]
pub(super) struct Division {
    /// The type of the operands.
    pub(super) dtype: DType,
    /// Whether the remainder is wanted, not the quotient.
    pub(super) modulo: bool,
    /// The divisor, if it is a constant.
    pub(super) divisor: Option<i128>,
    /// Whether the dividend is known to be non-negative.
    pub(super) dividend_nonneg: bool,
    /// Whether the divisor is known to be at least 1.
    pub(super) divisor_positive: bool,
}

impl Emitter<'_, '_> {
    /// Emits floor division or modulo. Types narrower than 32 bits are divided in 32 bits, where
    /// `MIN // -1` cannot overflow.
    pub(super) fn floor_division(&mut self, what: Division, a: Value, b: Value) -> Value {
        let narrow = self.b.func.dfg.value_type(a);
        if narrow.bits() >= 32 {
            return self.floor_division_wide(what, a, b);
        }
        let (wide_a, wide_b) = if what.dtype.is_signed() {
            (self.b.ins().sextend(types::I32, a), self.b.ins().sextend(types::I32, b))
        } else {
            (self.b.ins().uextend(types::I32, a), self.b.ins().uextend(types::I32, b))
        };
        let wide = self.floor_division_wide(what, wide_a, wide_b);
        self.b.ins().ireduce(narrow, wide)
    }

    fn floor_division_wide(&mut self, what: Division, a: Value, b: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let unsigned = !what.dtype.is_signed()
            || what.dividend_nonneg
                && (what.divisor_positive || what.divisor.is_some_and(|c| c >= 0));
        match what.divisor {
            Some(0) => self.int(ty, 0),
            Some(divisor) if unsigned => self.udiv_const(what, a, divisor),
            Some(divisor) => self.sdiv_const(what, a, divisor),
            None if unsigned => self.udiv_any(what, a, b),
            None => self.sdiv_any(what, a, b),
        }
    }

    /// Divides by a constant, which Cranelift turns into shifts or a multiplication.
    fn udiv_const(&mut self, what: Division, a: Value, divisor: i128) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        if what.modulo && (divisor as u128).is_power_of_two() {
            return self.b.ins().band_imm_u(a, (divisor - 1) as i64);
        }
        let divisor = self.int(ty, divisor);
        let quotient = self.b.ins().udiv(a, divisor);
        if what.modulo { self.remainder(a, quotient, divisor) } else { quotient }
    }

    fn sdiv_const(&mut self, what: Division, a: Value, divisor: i128) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        match divisor {
            1 => return if what.modulo { self.int(ty, 0) } else { a },
            -1 => return if what.modulo { self.int(ty, 0) } else { self.b.ins().ineg(a) },
            _ if divisor > 0 && (divisor as u128).is_power_of_two() => {
                return if what.modulo {
                    self.b.ins().band_imm_u(a, (divisor - 1) as i64)
                } else {
                    self.b.ins().sshr_imm_u(a, i64::from(divisor.trailing_zeros()))
                };
            }
            _ => {}
        }
        let d = self.int(ty, divisor);
        if divisor < 0 {
            let quotient = self.b.ins().sdiv(a, d);
            return self.round_down(what, a, d, quotient);
        }
        // With s = a >> (bits - 1), floor(a / d) is ((a ^ s) /u d) ^ s: for a negative `a` the
        // complement of `a` is divided and the result complemented.
        let sign = self.b.ins().sshr_imm_u(a, i64::from(ty.bits() - 1));
        let magnitude = self.b.ins().bxor(a, sign);
        let quotient = self.b.ins().udiv(magnitude, d);
        let quotient = self.b.ins().bxor(quotient, sign);
        if what.modulo { self.remainder(a, quotient, d) } else { quotient }
    }

    fn udiv_any(&mut self, what: Division, a: Value, b: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        if what.divisor_positive {
            let quotient = self.b.ins().udiv(a, b);
            return if what.modulo { self.remainder(a, quotient, b) } else { quotient };
        }
        let one = self.int(ty, 1);
        let is_zero = self.b.ins().icmp_imm_u(IntCC::Equal, b, 0);
        let safe = self.b.ins().select(is_zero, one, b);
        if what.modulo {
            // A division by zero gives remainder 0, as a remainder modulo 1 is.
            return self.b.ins().urem(a, safe);
        }
        let quotient = self.b.ins().udiv(a, safe);
        let zero = self.int(ty, 0);
        self.b.ins().select(is_zero, zero, quotient)
    }

    fn sdiv_any(&mut self, what: Division, a: Value, b: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        if what.divisor_positive {
            let quotient = self.b.ins().sdiv(a, b);
            return self.round_down(what, a, b, quotient);
        }
        // Divisors 0 and -1 would trap, so they are replaced by 1. Modulo 1 gives the correct
        // remainder 0. The quotient is -(a & b), which is 0 for b = 0 and -a for b = -1.
        let one = self.int(ty, 1);
        let next = self.b.ins().iadd(b, one);
        let special = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, next, 1);
        let safe = self.b.ins().select(special, one, b);
        let quotient = self.b.ins().sdiv(a, safe);
        let result = self.round_down(what, a, safe, quotient);
        if what.modulo {
            return result;
        }
        let masked = self.b.ins().band(a, b);
        let special_quotient = self.b.ins().ineg(masked);
        self.b.ins().select(special, special_quotient, result)
    }

    /// Computes the floor quotient or modulo from the quotient rounded towards zero.
    fn round_down(&mut self, what: Division, a: Value, b: Value, quotient: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let remainder = self.remainder(a, quotient, b);
        let signs = self.b.ins().bxor(remainder, b);
        let differ = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, signs, 0);
        let inexact = self.b.ins().icmp_imm_s(IntCC::NotEqual, remainder, 0);
        let adjust = self.b.ins().band(differ, inexact);
        let zero = self.int(ty, 0);
        if what.modulo {
            let step = self.b.ins().select(adjust, b, zero);
            self.b.ins().iadd(remainder, step)
        } else {
            let one = self.int(ty, 1);
            let step = self.b.ins().select(adjust, one, zero);
            self.b.ins().isub(quotient, step)
        }
    }

    fn remainder(&mut self, a: Value, quotient: Value, divisor: Value) -> Value {
        let product = self.b.ins().imul(quotient, divisor);
        self.b.ins().isub(a, product)
    }

    /// Emits an integer constant; `value` is taken modulo 2^bits.
    pub(super) fn int(&mut self, ty: Type, value: i128) -> Value {
        let mask = if ty.bits() == 64 { u64::MAX } else { (1u64 << ty.bits()) - 1 };
        self.b.ins().iconst(ty, (value as u64 & mask) as i64)
    }

    /// Emits `a + b` of `index` and records overflow.
    pub(super) fn checked_add(&mut self, a: Value, b: Value) -> Value {
        let sum = self.b.ins().iadd(a, b);
        let x = self.b.ins().bxor(a, sum);
        let y = self.b.ins().bxor(b, sum);
        let both = self.b.ins().band(x, y);
        let flag = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, both, 0);
        self.note_overflow(flag);
        sum
    }

    /// Emits `a - b` of `index` and records overflow.
    pub(super) fn checked_sub(&mut self, a: Value, b: Value) -> Value {
        let difference = self.b.ins().isub(a, b);
        let x = self.b.ins().bxor(a, b);
        let y = self.b.ins().bxor(a, difference);
        let both = self.b.ins().band(x, y);
        let flag = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, both, 0);
        self.note_overflow(flag);
        difference
    }

    /// Emits `a * b` of `index` and records overflow.
    pub(super) fn checked_mul(&mut self, a: Value, b: Value) -> Value {
        let low = self.b.ins().imul(a, b);
        let high = self.b.ins().smulhi(a, b);
        let sign = self.b.ins().sshr_imm_u(low, 63);
        let flag = self.b.ins().icmp(IntCC::NotEqual, high, sign);
        self.note_overflow(flag);
        low
    }

    /// Records overflow if `a` is the least `index`, whose negation and magnitude do not exist.
    pub(super) fn check_not_min(&mut self, a: Value) {
        let min = self.int(types::I64, i64::MIN as i128);
        let flag = self.b.ins().icmp(IntCC::Equal, a, min);
        self.note_overflow(flag);
    }
}
