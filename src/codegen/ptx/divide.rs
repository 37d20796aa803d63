//! Floor division and modulo, with `x // 0 = 0` and `MIN // -1 = MIN`. Known bounds of the operands
//! make the code shorter.

use super::emit::{Emitter, Val, view};
use super::range::WORD;
use crate::ir::{BinOp, DType, Expr, ExprKind};
use nvptx_builder::{Cmp, Operand, Reg, Source, Ty};

/// The type of a division, and known facts about its operands.
#[derive(Clone, Copy)]
pub(super) struct Division {
    dtype: DType,
    modulo: bool,
    /// The divisor, if it is a constant.
    divisor: Option<i128>,
    /// Whether neither operand can be negative.
    unsigned: bool,
    /// Whether the divisor is known to be at least 1.
    positive: bool,
    /// Whether operands of type index fit in 32 bits.
    narrow: bool,
}

impl Emitter<'_> {
    pub(super) fn division(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Val {
        let (x, y) = (self.expr(a), self.expr(b));
        let what = self.division_facts(op, a, b);
        self.floor_division(what, x, y)
    }

    pub(super) fn division_facts(&mut self, op: BinOp, a: &Expr, b: &Expr) -> Division {
        let (dividend, divisor) = (self.ranges.of(a), self.ranges.of(b));
        let dtype = a.ty.dtype;
        let by = if let ExprKind::Broadcast(scalar) = &b.kind { scalar } else { b };
        Division {
            dtype,
            modulo: op == BinOp::FloorMod,
            divisor: by.as_int(),
            unsigned: !dtype.is_signed() || (dividend.lo >= 0 && divisor.lo >= 0),
            positive: divisor.lo >= 1,
            narrow: dtype == DType::Index && WORD.covers(dividend) && WORD.covers(divisor)
                // The least word divided by -1 does not fit in a word.
                && dividend.lo > WORD.lo,
        }
    }

    pub(super) fn floor_division(&mut self, what: Division, a: Val, b: Val) -> Val {
        let (a, b) = match what.dtype {
            DType::Index if what.narrow => (self.narrow(a), self.narrow(b)),
            DType::Index => (self.widen(a), self.widen(b)),
            _ => (a, b),
        };
        let ty = a.ty();
        if what.unsigned {
            let wide = ty.bits() == 64;
            let unsigned = if wide { Ty::U64 } else { Ty::U32 };
            let value = self.divide_unsigned(what, view(a, unsigned), view(b, unsigned));
            return view(value, ty);
        }
        let value = self.divide_signed(what, a, b);
        // -128 // -1 is 128 in 32 bits.
        match value.reg() {
            Some(reg) => self.wrap(what.dtype, reg),
            None => value,
        }
    }

    fn divide_unsigned(&mut self, what: Division, a: Val, b: Val) -> Val {
        let ty = a.ty();
        match what.divisor {
            Some(0) => return Operand::int(ty, 0),
            Some(1) if what.modulo => return Operand::int(ty, 0),
            Some(1) => return a,
            Some(divisor) if (divisor as u128).is_power_of_two() => {
                let shift = Operand::int(Ty::U32, i64::from(divisor.trailing_zeros()));
                return match what.modulo {
                    true => self.e.and(a, Operand::bits(ty, divisor as u64 - 1)).operand(),
                    false => self.e.shr(a, shift.typed().expect("it is a u32")).operand(),
                };
            }
            _ => {}
        }
        let sure = what.positive || what.divisor.is_some();
        let safe = if sure { b } else { self.safe_divisor(b).1 };
        if what.modulo {
            // A division by zero gives remainder 0, as a remainder modulo 1 is.
            return self.e.rem(a, safe).operand();
        }
        let quotient = self.e.div(a, safe);
        if sure {
            return quotient.operand();
        }
        let zero = self.e.setp(Cmp::Eq, b, Operand::int(ty, 0));
        self.e.selp(Operand::int(ty, 0), quotient.operand(), zero).operand()
    }

    /// Emits the test whether the divisor is 0, and the divisor with 0 replaced by 1.
    fn safe_divisor(&mut self, b: Val) -> (Reg<nvptx_builder::Pred>, Val) {
        let zero = self.e.setp(Cmp::Eq, b, Operand::int(b.ty(), 0));
        (zero, self.e.selp(Operand::int(b.ty(), 1), b, zero).operand())
    }

    fn divide_signed(&mut self, what: Division, a: Val, b: Val) -> Val {
        let ty = a.ty();
        match what.divisor {
            Some(0) => return Operand::int(ty, 0),
            Some(1 | -1) if what.modulo => return Operand::int(ty, 0),
            Some(1) => return a,
            Some(-1) => {
                let value = self.e.neg(a);
                self.set_negation(value);
                return value.operand();
            }
            Some(divisor) if divisor > 0 && (divisor as u128).is_power_of_two() => {
                let shift = Operand::int(Ty::U32, i64::from(divisor.trailing_zeros()));
                return match what.modulo {
                    true => self.e.and(a, Operand::bits(ty, divisor as u64 - 1)).operand(),
                    false => self.e.shr(a, shift.typed().expect("it is a u32")).operand(),
                };
            }
            _ => {}
        }
        if what.positive || what.divisor.is_some() {
            let positive = what.positive || what.divisor.is_some_and(|divisor| divisor > 0);
            return self.round_down(what, a, b, positive);
        }
        // Divisors 0 and -1 are undefined or overflow, so they are replaced by 1. Modulo 1 gives
        // the correct remainder 0. The quotient is -(a & b), which is 0 for b = 0 and -a for b =
        // -1.
        let (one, two) = (Operand::int(ty, 1), Operand::int(ty, 2));
        let next = self.e.add(b, one).operand();
        let unsigned = if ty.bits() == 64 { Ty::U64 } else { Ty::U32 };
        let special = self.e.setp(Cmp::Lt, view(next, unsigned), view(two, unsigned));
        let safe = self.e.selp(one, b, special).operand();
        let result = self.round_down(what, a, safe, false);
        if what.modulo {
            return result;
        }
        let masked = self.e.and(a, b);
        let negated = self.e.neg(masked);
        self.e.selp(negated.operand(), result, special).operand()
    }

    /// Computes the floor quotient or modulo from the truncating division.
    fn round_down(&mut self, what: Division, a: Val, b: Val, positive: bool) -> Val {
        let ty = a.ty();
        let (zero, one) = (Operand::int(ty, 0), Operand::int(ty, 1));
        let remainder = self.e.rem(a, b).operand();
        let adjust = if positive {
            self.e.setp(Cmp::Lt, remainder, zero)
        } else {
            let signs = self.e.xor(remainder, b);
            let differ = self.e.setp(Cmp::Lt, signs.operand(), zero);
            let combine = nvptx_builder::Combine::And;
            self.e.setp_combined(Cmp::Ne, combine, remainder, zero, differ)
        };
        if what.modulo {
            let step = self.e.selp(b, zero, adjust).operand();
            return self.e.add(remainder, step).operand();
        }
        let quotient = self.e.div(a, b).operand();
        let step = self.e.selp(one, zero, adjust).operand();
        self.e.sub(quotient, step).operand()
    }
}
