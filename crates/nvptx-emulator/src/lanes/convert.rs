//! `cvt`: every pair of types, rounding, `.ftz` and `.sat`.
//!
//! Frequent conversions have their own lane functions; the others use one scalar function.

use super::{LaneFn, half, lanes};
use crate::float::{self, BF16, F16, F32, NAN16, NAN32, Round, TF32};
use crate::ty::Ty;

/// A conversion, as specified by an opcode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Convert {
    pub to: Ty,
    pub from: Ty,
    /// The rounding of a float result, or to an integral value.
    pub round: Round,
    /// Whether the rounding is to an integral value, such as `.rni`.
    pub integral: bool,
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
}

impl Convert {
    /// Returns a function for whole rows, for frequent pairs of types.
    pub fn lanes(&self) -> Option<LaneFn> {
        use Ty::*;
        if self.sat || self.ftz || self.relu {
            return None;
        }
        let rn = self.round == Round::Rn && !self.integral;
        Some(match (self.to, self.from) {
            (U64 | S64 | B64, U32 | B32) => lanes!(Wide1 |a: u32| u64::from(a)),
            (U64 | S64 | B64, S32) => lanes!(Wide1 |a: u32| a as i32 as i64 as u64),
            (U32 | S32 | B32, U64 | S64 | B64) => lanes!(Narrow1 |a: u64| a as u32),
            (U32 | S32 | B32, U16 | B16) => lanes!(A1 |a: u32| a & 0xffff),
            (U32 | S32 | B32, S16) => lanes!(A1 |a: u32| i32::from(a as i16) as u32),
            (U32 | S32 | B32, U8 | B8) => lanes!(A1 |a: u32| a & 0xff),
            (U32 | S32 | B32, S8) => lanes!(A1 |a: u32| i32::from(a as i8) as u32),
            (U16 | S16 | B16, U32 | S32 | B32) => lanes!(A1 |a: u32| a & 0xffff),
            (F32, S32) if rn => lanes!(A1 |a: u32| (a as i32 as f32).to_bits()),
            (F32, U32) if rn => lanes!(A1 |a: u32| (a as f32).to_bits()),
            (F32, F16) => lanes!(A1 |a: u32| quiet(float::f16_to_f32(a & 0xffff))),
            (F32, BF16) => lanes!(A1 |a: u32| quiet(float::bf16_to_f32(a & 0xffff))),
            (BF16, F32) if rn => lanes!(A1 to_bf16),
            (S32, F32) if self.integral && self.round == Round::Rz => {
                lanes!(A1 |a: u32| f32::from_bits(a) as i32 as u32)
            }
            _ => return None,
        })
    }

    /// Converts a value; operand and result are bits.
    pub fn scalar(&self, bits: u64) -> u64 {
        if self.to.is_float() {
            return if self.from.is_float() { self.float(bits) } else { self.int_to_float(bits) };
        }
        if self.from.is_float() { self.float_to_int(bits) } else { self.int(bits) }
    }

    /// Packs two floats into a register, the first one in the upper half.
    pub fn pack(&self, high: u64, low: u64) -> u64 {
        let to = if self.to == Ty::BF16x2 { Ty::BF16 } else { Ty::F16 };
        let part = Convert { to, ..*self };
        part.scalar(high) << 16 | part.scalar(low)
    }

    fn int(&self, bits: u64) -> u64 {
        let value = int_value(self.from, bits);
        let value = if self.sat { clamp(self.to, value) } else { value };
        value as u64 & mask(self.to)
    }

    fn int_to_float(&self, bits: u64) -> u64 {
        let value = int_value(self.from, bits);
        // An integer rounded to odd in 53 bits keeps what a directed rounding needs.
        let near = value as f64;
        let rest = value - near as i128;
        let odd = if rest == 0 || near.to_bits() & 1 == 1 {
            near
        } else {
            let grows = (rest > 0) == (value > 0);
            f64::from_bits(if grows { near.to_bits() + 1 } else { near.to_bits() - 1 })
        };
        if self.to == Ty::F64 { near.to_bits() } else { self.finish(odd) }
    }

    fn float(&self, bits: u64) -> u64 {
        let mut value = self.input(bits);
        if self.integral {
            value = integral(value, self.round);
            let format = Convert { integral: false, round: Round::Rn, ..*self };
            return format.finish(value);
        }
        self.finish(value)
    }

    /// Returns the value of a float operand; `.ftz` flushes subnormal `f32`.
    fn input(&self, bits: u64) -> f64 {
        match self.from {
            Ty::F64 => f64::from_bits(bits),
            Ty::F32 | Ty::TF32 => {
                let bits = if self.ftz { float::flush(bits as u32) } else { bits as u32 };
                f64::from(f32::from_bits(bits))
            }
            Ty::BF16 => f64::from(half::value(true, bits as u32 & 0xffff)),
            _ => f64::from(half::value(false, bits as u32 & 0xffff)),
        }
    }

    /// Rounds to the float result type.
    fn finish(&self, value: f64) -> u64 {
        let value = if self.sat {
            if value > 0.0 { value.min(1.0) } else { 0.0 }
        } else if self.relu && value < 0.0 {
            0.0
        } else {
            value
        };
        match self.to {
            Ty::F64 if value.is_nan() => 0x7fff_ffff_ffff_ffff,
            Ty::F64 => value.to_bits(),
            Ty::F32 if value.is_nan() => u64::from(NAN32),
            Ty::F32 => {
                let bits = F32.round(value, self.round) as u32;
                u64::from(if self.ftz { float::flush(bits) } else { bits })
            }
            // A tf32 value has the layout of an f32 with 13 zero bits at its end.
            Ty::TF32 if value.is_nan() => u64::from(NAN32),
            Ty::TF32 => TF32.round(value, self.round) << 13,
            _ if value.is_nan() => u64::from(NAN16),
            Ty::BF16 => BF16.round(value, self.round),
            _ => F16.round(value, self.round),
        }
    }

    /// Converts to an integer, saturating. NaN gives 0, but for `f64` operands and 64-bit results
    /// the middle of the range.
    fn float_to_int(&self, bits: u64) -> u64 {
        let value = self.input(bits);
        if value.is_nan() {
            let is_odd = self.from == Ty::F64 || self.to.bytes() == 8;
            return if is_odd { 1 << (self.to.bits() - 1) } else { 0 };
        }
        let value = integral(value, self.round);
        clamp(self.to, value as i128) as u64 & mask(self.to)
    }
}

/// Converts two `f32` to a pair of 8-bit floats, saturating; the first is in the upper half.
pub(crate) fn to_float8(to: Ty) -> Option<LaneFn> {
    fn both(a: u32, b: u32, f: impl Fn(f64) -> u32) -> u32 {
        let value = |v: u32| f64::from(f32::from_bits(v));
        f(value(a)) << 8 | f(value(b))
    }
    match to {
        Ty::E4M3x2 => Some(lanes!(A2 | a, b | both(a, b, float::to_e4m3))),
        Ty::E5M2x2 => Some(lanes!(A2 | a, b | both(a, b, float::to_e5m2))),
        _ => None,
    }
}

/// Converts a pair of 8-bit floats to a pair of `f16`.
pub(crate) fn from_float8(from: Ty) -> Option<LaneFn> {
    fn both(a: u32, f: impl Fn(u32) -> f32) -> u32 {
        let half = |bits: u32| match f(bits) {
            v if v.is_nan() => NAN16,
            v => F16.round(f64::from(v), Round::Rn) as u32,
        };
        half(a >> 8 & 0xff) << 16 | half(a & 0xff)
    }
    match from {
        Ty::E4M3x2 => Some(lanes!(A1 | a | both(a, float::e4m3_to_f32))),
        Ty::E5M2x2 => Some(lanes!(A1 | a | both(a, float::e5m2_to_f32))),
        _ => None,
    }
}

fn quiet(v: f32) -> u32 {
    if v.is_nan() { NAN32 } else { v.to_bits() }
}

fn to_bf16(a: u32) -> u32 {
    if a & 0x7fff_ffff > 0x7f80_0000 {
        return NAN16;
    }
    a.wrapping_add(0x7fff + (a >> 16 & 1)) >> 16
}

fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Rn => value.round_ties_even(),
        Round::Rz => value.trunc(),
        Round::Rm => value.floor(),
        Round::Rp => value.ceil(),
        Round::Rna => value.round(),
    }
}

fn int_value(ty: Ty, bits: u64) -> i128 {
    match ty {
        Ty::S8 => i128::from(bits as i8),
        Ty::S16 => i128::from(bits as i16),
        Ty::S32 => i128::from(bits as i32),
        Ty::S64 => i128::from(bits as i64),
        _ => i128::from(bits & mask(ty)),
    }
}

fn clamp(ty: Ty, value: i128) -> i128 {
    let bits = ty.bits();
    if ty.is_signed() {
        value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

fn mask(ty: Ty) -> u64 {
    if ty.bytes() == 8 { !0 } else { (1 << ty.bits()) - 1 }
}
