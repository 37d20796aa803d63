//! Conversions between element types. Halves are converted by integer operations, because Cranelift
//! has no arithmetic on them that every target supports.

use super::emit::Emitter;
use crate::codegen::common::clif_type;
use crate::ir::DType;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Type, Value, types};

/// The source and result types of a conversion.
#[derive(Clone, Copy)]
pub(super) struct Conversion {
    pub(super) from: DType,
    pub(super) to: DType,
}

impl Emitter<'_, '_> {
    /// Converts a value as `ExprKind::Cast` specifies.
    pub(super) fn convert(&mut self, Conversion { from, to }: Conversion, x: Value) -> Value {
        if from == to {
            return x;
        }
        if to == DType::Bool {
            return self.is_nonzero(from, x);
        }
        match (from.is_float(), to.is_float()) {
            (false, false) => self.int_to_int(from, clif_type(to), x),
            (false, true) => self.int_to_float(from, to, x),
            (true, true) => self.float_to_float(from, to, x),
            (true, false) => {
                let (ty, x) =
                    if from.is_half() { (DType::Float32, self.widen(from, x)) } else { (from, x) };
                self.float_to_int(ty, to, x)
            }
        }
    }

    /// `x != 0`; true for NaN.
    fn is_nonzero(&mut self, from: DType, x: Value) -> Value {
        match from {
            DType::Float64 => {
                let zero = self.b.ins().f64const(0.0);
                self.b.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            DType::Float32 => {
                let zero = self.b.ins().f32const(0.0);
                self.b.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            DType::Float16 | DType::BFloat16 => {
                let magnitude = self.b.ins().band_imm_u(x, 0x7fff);
                self.b.ins().icmp_imm_u(IntCC::NotEqual, magnitude, 0)
            }
            _ => self.b.ins().icmp_imm_u(IntCC::NotEqual, x, 0),
        }
    }

    fn int_to_int(&mut self, from: DType, to: Type, x: Value) -> Value {
        let ty = self.b.func.dfg.value_type(x);
        if to.bits() < ty.bits() {
            self.b.ins().ireduce(to, x)
        } else if to.bits() == ty.bits() {
            x
        } else if from.is_signed() {
            self.b.ins().sextend(to, x)
        } else {
            self.b.ins().uextend(to, x)
        }
    }

    fn int_to_float(&mut self, from: DType, to: DType, x: Value) -> Value {
        let float = clif_type(to.compute_type());
        let result = match from {
            DType::Uint64 => self.b.ins().fcvt_from_uint(float, x),
            DType::Int32 | DType::Int64 | DType::Index => self.b.ins().fcvt_from_sint(float, x),
            // The others have every value in a wider signed integer.
            _ => {
                let wide = if from == DType::Uint32 { types::I64 } else { types::I32 };
                let wide = self.int_to_int(from, wide, x);
                self.b.ins().fcvt_from_sint(float, wide)
            }
        };
        if to.is_half() { self.narrow(to, result) } else { result }
    }

    /// Truncates and saturates; NaN gives 0. Results narrower than 32 bits are clamped in 32 bits.
    fn float_to_int(&mut self, from: DType, to: DType, x: Value) -> Value {
        debug_assert!(!from.is_half(), "halves are widened before");
        match to {
            DType::Uint32 => self.b.ins().fcvt_to_uint_sat(types::I32, x),
            DType::Uint64 => self.b.ins().fcvt_to_uint_sat(types::I64, x),
            DType::Int32 => self.b.ins().fcvt_to_sint_sat(types::I32, x),
            DType::Int64 | DType::Index => self.b.ins().fcvt_to_sint_sat(types::I64, x),
            _ => {
                let (min, max) = to.int_range();
                let wide = self.b.ins().fcvt_to_sint_sat(types::I32, x);
                let min = self.int(types::I32, min);
                let max = self.int(types::I32, max);
                let below = self.b.ins().icmp(IntCC::SignedLessThan, wide, min);
                let wide = self.b.ins().select(below, min, wide);
                let above = self.b.ins().icmp(IntCC::SignedGreaterThan, wide, max);
                let wide = self.b.ins().select(above, max, wide);
                self.b.ins().ireduce(clif_type(to), wide)
            }
        }
    }

    fn float_to_float(&mut self, from: DType, to: DType, x: Value) -> Value {
        let wide = if from.is_half() { self.widen(from, x) } else { x };
        match to {
            DType::Float64 => self.b.ins().fpromote(types::F64, wide),
            DType::Float32 if from == DType::Float64 => self.b.ins().fdemote(types::F32, wide),
            DType::Float32 => wide,
            _ if from == DType::Float64 => {
                let odd = self.demote_to_odd(wide);
                self.narrow(to, odd)
            }
            _ => self.narrow(to, wide),
        }
    }

    /// Converts a half's bits to the float32 of the same value.
    pub(super) fn widen(&mut self, half: DType, bits: Value) -> Value {
        let wide = self.b.ins().uextend(types::I32, bits);
        if half == DType::BFloat16 {
            let shifted = self.b.ins().ishl_imm_u(wide, 16);
            return self.float_of(shifted);
        }
        // Exponent and mantissa, moved to their places in a float32, encode a number 2^112 times
        // too small, for subnormal halves too. The largest exponent is infinity or NaN.
        let magnitude = self.b.ins().band_imm_u(wide, 0x7fff);
        let moved = self.b.ins().ishl_imm_u(magnitude, 13);
        let small = self.float_of(moved);
        let scale = self.b.ins().f32const(f32::from_bits((127 + 112) << 23));
        let finite = self.b.ins().fmul(small, scale);
        let finite = self.bits_of(finite);
        let infinite = self.b.ins().bor_imm_u(moved, 0x7f80_0000);
        let special = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, 0x7c00);
        let result = self.b.ins().select(special, infinite, finite);
        let sign = self.b.ins().band_imm_u(wide, 0x8000);
        let sign = self.b.ins().ishl_imm_u(sign, 16);
        let result = self.b.ins().bor(result, sign);
        self.float_of(result)
    }

    /// Rounds a float32 to the nearest half, ties to even, and returns its bits.
    fn narrow(&mut self, half: DType, x: Value) -> Value {
        let bits = self.bits_of(x);
        let magnitude = self.b.ins().band_imm_u(bits, 0x7fff_ffff);
        let nan = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, magnitude, 0x7f80_0000);
        let result = if half == DType::BFloat16 {
            let rounded = self.shift_rounding(bits, 16, 0);
            let quiet = self.int(types::I32, 0x7fc0);
            self.b.ins().select(nan, quiet, rounded)
        } else {
            self.narrow_f16(bits, magnitude, nan)
        };
        self.b.ins().ireduce(types::I16, result)
    }

    fn narrow_f16(&mut self, bits: Value, magnitude: Value, nan: Value) -> Value {
        // Normal results: the exponent is rebased, then 13 bits of the mantissa are rounded away.
        let normal = self.shift_rounding(magnitude, 13, (15 - 127) << 23);
        // Subnormal results: adding 0.5 leaves the rounded result in the low bits.
        let number = self.float_of(magnitude);
        let half = self.b.ins().f32const(0.5);
        let sum = self.b.ins().fadd(number, half);
        let sum = self.bits_of(sum);
        let subnormal = self.b.ins().iadd_imm_s(sum, -i64::from(0.5f32.to_bits()));
        let is_subnormal =
            self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, magnitude, (127 - 14) << 23);
        let finite = self.b.ins().select(is_subnormal, subnormal, normal);
        let (quiet, infinity) = (self.int(types::I32, 0x7e00), self.int(types::I32, 0x7c00));
        let special = self.b.ins().select(nan, quiet, infinity);
        let too_big =
            self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, magnitude, (127 + 16) << 23);
        let result = self.b.ins().select(too_big, special, finite);
        let sign = self.b.ins().ushr_imm_u(bits, 16);
        let sign = self.b.ins().band_imm_u(sign, 0x8000);
        self.b.ins().bor(result, sign)
    }

    /// Computes `(x + bias) >> shift` in 32 bits, rounded to nearest even.
    fn shift_rounding(&mut self, x: Value, shift: i64, bias: i64) -> Value {
        let odd = self.b.ins().ushr_imm_u(x, shift);
        let odd = self.b.ins().band_imm_u(odd, 1);
        let below_half = (1i64 << (shift - 1)) - 1;
        let sum = self.b.ins().iadd_imm_s(x, bias + below_half);
        let sum = self.b.ins().iadd(sum, odd);
        self.b.ins().ushr_imm_u(sum, shift)
    }

    /// Rounds a float64 to float32, to odd: towards zero, with the last bit set if that was
    /// inexact. Rounding the result to a half then equals rounding the float64 once.
    fn demote_to_odd(&mut self, x: Value) -> Value {
        let nearest = self.b.ins().fdemote(types::F32, x);
        let back = self.b.ins().fpromote(types::F64, nearest);
        let inexact = self.b.ins().fcmp(FloatCC::NotEqual, back, x);
        let (back, x) = (self.b.ins().fabs(back), self.b.ins().fabs(x));
        let away = self.b.ins().fcmp(FloatCC::GreaterThan, back, x);
        let bits = self.bits_of(nearest);
        let (away, inexact) =
            (self.b.ins().uextend(types::I32, away), self.b.ins().uextend(types::I32, inexact));
        let truncated = self.b.ins().isub(bits, away);
        let odd = self.b.ins().bor(truncated, inexact);
        self.float_of(odd)
    }

    fn bits_of(&mut self, x: Value) -> Value {
        self.b.ins().bitcast(types::I32, MemFlagsData::new(), x)
    }

    fn float_of(&mut self, bits: Value) -> Value {
        self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
    }
}
