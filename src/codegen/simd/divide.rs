//! Floor division of integers and its remainder. Both are 0 for a divisor of 0, and the least value
//! divided by -1 is itself.

use super::arith::unsigned_of;
use super::inst::{Arg, Cond, Width};
use super::nest::{Selector, Val};
use super::table::VOp;
use super::value::{add_of, sub_of, width_of};
use crate::ir::{BinOp, DType, Type};
use crate::simd_ops::{ConstantDivision, Conversion, Reciprocal, constant_division, conversion};
use iced_x86::Code::*;
use regalloc2::VReg;

/// The immediate of `vroundps` that rounds down and leaves the inexact flag as it is.
const FLOOR: i64 = 9;

impl Selector<'_> {
    /// `x // y` or `x % y` of integers up to 32 bits, scalars or vectors. A quotient of integers of
    /// 32 bits is at least 2^-32 of itself away from the next integer unless it is one, so rounding
    /// to a float64 does not cross it.
    pub(super) fn divide_as_doubles(&mut self, op: BinOp, ty: Type, x: VReg, y: VReg) -> VReg {
        let double = Type { dtype: DType::Float64, lanes: ty.lanes };
        let width = width_of(double);
        let dividend = self.convert(Val::Vec(x), ty, DType::Float64);
        let divisor = self.convert(Val::Vec(y), ty, DType::Float64);
        let exact = self.b.op2(VOp::DivPd, width, dividend, divisor);
        let floor = self.b.op_imm(VOp::RoundPd, width, exact, FLOOR);
        // The only quotient out of range, 2^31, becomes the least value.
        let Some(Conversion::Truncate(between)) = conversion(DType::Float64, ty.dtype, self.b.isa)
        else {
            crate::bug!("a quotient of {ty}");
        };
        let quotient = self.truncate_float(floor, double, between);
        let between = Type { dtype: between, lanes: ty.lanes };
        let quotient = self.int_to_int(quotient, between, ty.dtype);
        let result = self.quotient_or_rest(op, ty, x, y, quotient);
        let zero = self.b.zero();
        let none = self.compare_regs(BinOp::Eq, ty, y, zero);
        self.blend(none, zero, result, ty)
    }

    /// The same by a constant other than 0.
    pub(super) fn divide_by_constant(
        &mut self,
        op: BinOp,
        ty: Type,
        x: VReg,
        y: VReg,
        divisor: i128,
    ) -> VReg {
        let quotient = match (constant_division(ty.dtype, divisor), op) {
            (ConstantDivision::Shift(by), BinOp::FloorDiv) => {
                return self.shift_const(BinOp::Shr, ty, x, by);
            }
            (ConstantDivision::Shift(_), _) => {
                let rest = self.constant(divisor as u64 - 1, ty.dtype.bytes(), width_of(ty));
                return self.b.op2(VOp::And, width_of(ty), x, rest);
            }
            (ConstantDivision::EachLane, _) => return self.divide_quadwords(op, ty, x, y),
            (ConstantDivision::Multiply(by), _) => self.divide_by_product(ty, x, by),
            (ConstantDivision::Float(float), _) => self.divide_as_float(ty, x, divisor, float),
        };
        self.quotient_or_rest(op, ty, x, y, quotient)
    }

    /// `x // c` of floats for a constant other than 0: `floor(x/c)` is `floor((x + 0.5)/c)` for
    /// positive and `floor((x - 0.5)/c)` for negative `c`. These quotients are `0.5/|c|` away from
    /// any integer at least, and computing one as `x * (1/c) + 0.5/c` has an error below
    /// `|x/c| * 2^-22` in float32 (dividends of 16 bits) and `|x/c| * 2^-51` in float64 (of 32
    /// bits).
    fn divide_as_float(&mut self, ty: Type, x: VReg, divisor: i128, float: DType) -> VReg {
        let short = float == DType::Float32;
        let float = Type { dtype: float, lanes: ty.lanes };
        let width = width_of(float);
        let (inverse, half) = match short {
            true => {
                let inverse = 1.0 / divisor as f32;
                (inverse.to_bits().into(), (inverse.abs() / 2.0).to_bits().into())
            }
            false => {
                let inverse = 1.0 / divisor as f64;
                (inverse.to_bits(), (inverse.abs() / 2.0).to_bits())
            }
        };
        let dividend = self.convert(Val::Vec(x), ty, float.dtype);
        let inverse = self.constant(inverse, float.dtype.bytes(), width);
        let half = self.constant(half, float.dtype.bytes(), width);
        let exact = self.b.fma(!short, width, dividend, inverse, half);
        let round = if short { VOp::RoundPs } else { VOp::RoundPd };
        let floor = self.b.op_imm(round, width, exact, FLOOR);
        let Some(Conversion::Truncate(between)) = conversion(float.dtype, ty.dtype, self.b.isa)
        else {
            crate::bug!("a quotient of {ty}");
        };
        let quotient = self.truncate_float(floor, float, between);
        let between = Type { dtype: between, lanes: ty.lanes };
        self.int_to_int(quotient, between, ty.dtype)
    }

    /// `x // c` by the high half of a product. `x // c` is `~(~x // c)` for negative `x`.
    fn divide_by_product(&mut self, ty: Type, x: VReg, by: Reciprocal) -> VReg {
        let width = width_of(ty);
        let signed = ty.dtype.is_signed().then(|| self.sign_and_magnitude(ty, x));
        let dividend = signed.map_or(x, |(_, magnitude)| magnitude);
        let quotient = match ty.dtype.bytes() {
            1 => {
                let low = self.constant(0x00ff, 2, width);
                let even = self.b.op2(VOp::And, width, dividend, low);
                let odd = self.shift_words(dividend, 8, false, width);
                let lanes = ty.lanes.div_ceil(2);
                let words = Type { dtype: DType::Uint16, lanes };
                let even = self.divide_words(words, width, even, by);
                let odd = self.divide_words(words, width, odd, by);
                let odd = self.shift_words(odd, 8, true, width);
                self.b.op2(VOp::Or, width, even, odd)
            }
            bytes => {
                let words = Type { dtype: unsigned_of(bytes), lanes: ty.lanes };
                self.divide_words(words, width, dividend, by)
            }
        };
        match signed {
            Some((sign, _)) => self.b.op2(VOp::Xor, width, quotient, sign),
            None => quotient,
        }
    }

    /// All bits of a lane where it is negative, and `x` with its bits flipped there.
    fn sign_and_magnitude(&mut self, ty: Type, x: VReg) -> (VReg, VReg) {
        let width = width_of(ty);
        let sign = match ty.dtype.bytes() {
            1 if self.b.is_evex() => {
                // Of `x` and `~x`, the one without a sign bit is less.
                let ones = self.constant(0xff, 1, width);
                let flipped = self.b.op2(VOp::Xor, width, x, ones);
                let magnitude = self.b.op2(VOp::MinUB, width, x, flipped);
                return (self.b.op2(VOp::Xor, width, x, magnitude), magnitude);
            }
            1 => {
                let zero = self.b.zero();
                self.b.op2(VOp::CmpGtB, width, zero, x)
            }
            bytes => self.shift_const(BinOp::Shr, ty, x, bytes as u32 * 8 - 1),
        };
        (sign, self.b.op2(VOp::Xor, width, x, sign))
    }

    /// The quotient of words of 16 bits or more; see [`Reciprocal`].
    fn divide_words(&mut self, ty: Type, width: Width, x: VReg, by: Reciprocal) -> VReg {
        let bytes = ty.dtype.bytes();
        let x = self.shift_const(BinOp::Shr, ty, x, by.before);
        let mut high = match bytes {
            2 => {
                let factor = self.constant(by.factor, 2, width);
                self.b.op2(VOp::MulHighUW, width, x, factor)
            }
            4 => self.high_product(width, x, by.factor),
            _ => self.high_product_of_quadwords(width, x, by.factor),
        };
        if by.is_long {
            let rest = self.b.op2(sub_of(bytes), width, x, high);
            let rest = self.shift_const(BinOp::Shr, ty, rest, 1);
            high = self.b.op2(add_of(bytes), width, high, rest);
        }
        self.shift_const(BinOp::Shr, ty, high, by.after)
    }

    /// The high halves of the products of doublewords and a constant: those of even and odd lanes.
    fn high_product(&mut self, width: Width, x: VReg, factor: u64) -> VReg {
        let lanes = width.bytes() as u32 / 4;
        let quadwords = Type { dtype: DType::Uint64, lanes: lanes / 2 };
        let factor = self.constant(factor, 8, width);
        let even = self.b.op2(VOp::MulUdq, width, x, factor);
        let odd = self.shift_const(BinOp::Shr, quadwords, x, 32);
        let odd = self.b.op2(VOp::MulUdq, width, odd, factor);
        if self.b.is_evex() {
            let places = (0..lanes).map(|lane| lane | 1 | (lanes * (lane % 2)));
            let places = self.constant_bytes(places.flat_map(u32::to_le_bytes).collect());
            return self.b.accumulate(VOp::PermT2D, width, places, odd, even);
        }
        const ODD: u32 = 0xaa;
        let even = self.shift_const(BinOp::Shr, quadwords, even, 32);
        self.b.blend_doublewords(width, even, odd, ODD)
    }

    /// The high halves of the products of quadwords and a constant, from the products of their
    /// halves.
    fn high_product_of_quadwords(&mut self, width: Width, x: VReg, factor: u64) -> VReg {
        let quadwords = Type { dtype: DType::Uint64, lanes: width.bytes() as u32 / 8 };
        let half = u64::from(u32::MAX);
        let [low, high] = [factor & half, factor >> 32].map(|half| self.constant(half, 8, width));
        let x_high = self.shift_const(BinOp::Shr, quadwords, x, 32);
        let product = |selector: &mut Self, a, b| selector.b.op2(VOp::MulUdq, width, a, b);
        let add = |selector: &mut Self, a, b| selector.b.op2(add_of(8), width, a, b);
        let high_of =
            |selector: &mut Self, value| selector.shift_const(BinOp::Shr, quadwords, value, 32);
        let lowest = product(self, x, low);
        let lowest = high_of(self, lowest);
        let first = product(self, x_high, low);
        let first = add(self, first, lowest);
        let mask = self.constant(half, 8, width);
        let first_low = self.b.op2(VOp::AndQ, width, first, mask);
        let second = product(self, x, high);
        let second = add(self, second, first_low);
        let highest = product(self, x_high, high);
        let carried = [first, second].map(|value| high_of(self, value));
        let highest = add(self, highest, carried[0]);
        add(self, highest, carried[1])
    }

    /// The quotient, or `x - y * quotient`.
    fn quotient_or_rest(&mut self, op: BinOp, ty: Type, x: VReg, y: VReg, quotient: VReg) -> VReg {
        if op == BinOp::FloorDiv {
            return quotient;
        }
        let product = self.multiply_ints(ty, quotient, y);
        self.b.op2(sub_of(ty.dtype.bytes()), width_of(ty), x, product)
    }

    /// A division of 64-bit integers: one lane after the other, in general registers.
    pub(super) fn divide_quadwords(&mut self, op: BinOp, ty: Type, x: VReg, y: VReg) -> VReg {
        let insert = match self.b.is_evex() {
            true => EVEX_Vpinsrq_xmm_xmm_rm64_imm8,
            false => VEX_Vpinsrq_xmm_xmm_rm64_imm8,
        };
        let mut parts: Vec<VReg> = Vec::new();
        for lane in 0..ty.lanes {
            let [a, b] = [x, y].map(|value| {
                let one = self.extract(value, 8, lane);
                self.move_to_gpr(one, 8)
            });
            let result = self.divide_registers(op, ty.dtype != DType::Uint64, a, b);
            if lane % 2 == 0 {
                parts.push(self.of_gpr(result));
                continue;
            }
            let part = parts.pop().expect("its first lane");
            let args = [Arg::Use(part), Arg::Use(result), Arg::Imm(1)];
            parts.push(self.b.make(insert, &args));
        }
        self.join(parts)
    }

    /// The same of general registers. Divisors on which the instruction would trap become 1.
    pub(super) fn divide_registers(&mut self, op: BinOp, signed: bool, a: VReg, b: VReg) -> VReg {
        let (zero, one) = (self.b.imm(0), self.b.imm(1));
        self.b.cmp_imm(b, 0);
        let mut by = self.b.cmov(Cond::E, one, b);
        if !signed {
            let (q, r) = self.b.divide_unsigned(a, by);
            if op == BinOp::FloorMod {
                return r;
            }
            self.b.cmp_imm(b, 0);
            return self.b.cmov(Cond::E, zero, q);
        }
        self.b.cmp_imm(b, -1);
        by = self.b.cmov(Cond::E, one, by);
        let (q, r) = self.b.divide(a, by);
        // If remainder and divisor have different signs, the quotient is one too large.
        let signs = self.b.modify(Xor_r64_rm64, r, &[Arg::Use(by)]);
        let above = self.b.modify(Sar_rm64_imm8, signs, &[Arg::Imm(63)]);
        self.b.cmp_imm(r, 0);
        let above = self.b.cmov(Cond::E, zero, above);
        if op == BinOp::FloorMod {
            let more = self.b.modify(And_r64_rm64, above, &[Arg::Use(by)]);
            return self.b.add(r, more);
        }
        let q = self.b.add(q, above);
        let negated = self.b.modify(Neg_rm64, a, &[]);
        self.b.cmp_imm(b, -1);
        let q = self.b.cmov(Cond::E, negated, q);
        self.b.cmp_imm(b, 0);
        self.b.cmov(Cond::E, zero, q)
    }
}
