//! Floating-point formats and operations without double rounding.
//!
//! Short formats are computed in `f64` and *rounded to odd*: the last bit is set if the result is
//! not exact. Rounding such a value to a format with at least two bits less gives the same result
//! as rounding the exact value, in every rounding mode.

/// A rounding mode of PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Rn,
    /// Towards zero.
    Rz,
    /// Towards minus infinity.
    Rm,
    /// Towards plus infinity.
    Rp,
    /// To nearest, ties away from zero (`cvt.rna.tf32`).
    Rna,
}

/// A binary format: the bits of exponent and mantissa.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Format {
    pub exponent: u32,
    pub mantissa: u32,
}

pub(crate) const F16: Format = Format { exponent: 5, mantissa: 10 };
pub(crate) const BF16: Format = Format { exponent: 8, mantissa: 7 };
pub(crate) const TF32: Format = Format { exponent: 8, mantissa: 10 };
pub(crate) const F32: Format = Format { exponent: 8, mantissa: 23 };

/// The NaN result of `f32` arithmetic.
pub(crate) const NAN32: u32 = 0x7fff_ffff;
/// The NaN result of `f16` and `bf16` arithmetic.
pub(crate) const NAN16: u32 = 0x7fff;

impl Format {
    /// Returns the bits of infinity.
    pub fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    /// Rounds `value`, which is exact or rounded to odd, to this format; returns its bits.
    pub fn round(self, value: f64, mode: Round) -> u64 {
        let bits = value.to_bits();
        let negative = bits >> 63 == 1;
        let sign = (bits >> 63) << (self.exponent + self.mantissa);
        if value.is_nan() {
            return (1 << (self.exponent + self.mantissa)) - 1;
        }
        if value.is_infinite() {
            return sign | self.infinity();
        }
        let biased = (bits >> 52 & 0x7ff) as i32;
        let fraction = bits & ((1 << 52) - 1);
        let (significand, exponent) =
            if biased == 0 { (fraction, -1022) } else { (fraction | 1 << 52, biased - 1023) };
        if significand == 0 {
            return sign;
        }
        let mut target = exponent + (1 << (self.exponent - 1)) - 1;
        let mut drop = 52 - self.mantissa;
        if target <= 0 {
            drop = (drop as i32 + 1 - target).min(63) as u32;
            target = 0;
        }
        let kept = significand >> drop;
        let rest = significand & ((1 << drop) - 1);
        let half = 1 << (drop - 1);
        let up = match mode {
            Round::Rn => rest > half || (rest == half && kept & 1 == 1),
            Round::Rna => rest >= half,
            Round::Rz => false,
            Round::Rm => negative && rest != 0,
            Round::Rp => !negative && rest != 0,
        };
        let kept = kept + u64::from(up);
        let base = if target >= 1 { (target as u64 - 1) << self.mantissa } else { 0 };
        let magnitude = base + kept;
        if magnitude < self.infinity() {
            return sign | magnitude;
        }
        let to_infinity = match mode {
            Round::Rn | Round::Rna => true,
            Round::Rz => false,
            Round::Rm => negative,
            Round::Rp => !negative,
        };
        sign | if to_infinity { self.infinity() } else { self.infinity() - 1 }
    }
}

/// Returns the value of `f16` bits.
#[inline]
pub(crate) fn f16_to_f32(bits: u32) -> f32 {
    let sign = (bits & 0x8000) << 16;
    let magnitude = bits & 0x7fff;
    if magnitude >= 0x7c00 {
        return f32::from_bits(sign | 0x7f80_0000 | (magnitude & 0x3ff) << 13);
    }
    // A finite half is its shifted bits times 2 to the difference of the biases.
    let value = f32::from_bits(magnitude << 13) * f32::from_bits((254 - 15) << 23);
    f32::from_bits(value.to_bits() | sign)
}

/// Returns the value of `bf16` bits.
#[inline]
pub(crate) fn bf16_to_f32(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// Returns the value of `e4m3` bits; there are no infinities, and one NaN.
pub(crate) fn e4m3_to_f32(bits: u32) -> f32 {
    if bits & 0x7f == 0x7f {
        return f32::NAN;
    }
    let (exponent, mantissa) = ((bits >> 3 & 15) as i32, (bits & 7) as f32);
    let magnitude = match exponent {
        0 => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if bits & 0x80 != 0 { -magnitude } else { magnitude }
}

/// Returns the value of `e5m2` bits, the upper half of an `f16`.
pub(crate) fn e5m2_to_f32(bits: u32) -> f32 {
    f16_to_f32((bits & 0xff) << 8)
}

/// Rounds to `e4m3`, to nearest, saturating at 448.
pub(crate) fn to_e4m3(value: f64) -> u32 {
    if value.is_nan() {
        return 0x7f;
    }
    // With one more exponent bit and a value that is scaled by the difference of the biases, the
    // largest exponent of e4m3 is not special.
    let wide = Format { exponent: 5, mantissa: 3 };
    let bits = wide.round(value.clamp(-448.0, 448.0) / 256.0, Round::Rn) as u32;
    (bits & 0x7f) | (bits >> 1 & 0x80)
}

/// Rounds to `e5m2`, to nearest, saturating at 57344.
pub(crate) fn to_e5m2(value: f64) -> u32 {
    if value.is_nan() {
        return 0x7f;
    }
    Format { exponent: 5, mantissa: 2 }.round(value.clamp(-57344.0, 57344.0), Round::Rn) as u32
}

/// Computes `a + b`, rounded to odd.
#[inline]
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let part = sum - a;
    let error = (a - (sum - part)) + (b - part);
    round_to_odd(sum, error)
}

/// Computes `a * b + c`, rounded to odd. `a * b` must be exact in `f64`: factors of at most 24
/// bits.
#[inline]
pub(crate) fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    add_odd(a * b, c)
}

/// Computes `a / b`, rounded to odd.
pub(crate) fn div_odd(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if !quotient.is_finite() || quotient == 0.0 || b.is_infinite() {
        return quotient;
    }
    let rest = f64::mul_add(-quotient, b, a);
    round_to_odd(quotient, if b < 0.0 { -rest } else { rest })
}

/// Computes the square root, rounded to odd.
pub(crate) fn sqrt_odd(a: f64) -> f64 {
    let root = a.sqrt();
    if !root.is_finite() || root == 0.0 {
        return root;
    }
    round_to_odd(root, f64::mul_add(-root, root, a))
}

/// Rounds `rounded + error` to odd; `rounded` is its nearest `f64`.
#[inline]
fn round_to_odd(rounded: f64, error: f64) -> f64 {
    let bits = rounded.to_bits();
    if error == 0.0 || bits & 1 == 1 {
        return rounded;
    }
    let grows = (error > 0.0) == (rounded > 0.0);
    f64::from_bits(if grows { bits + 1 } else { bits - 1 })
}

/// Flushes subnormal `f32` bits to a zero of the same sign.
#[inline]
pub(crate) fn flush(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_trip() {
        for bits in 0..0x10000u32 {
            let value = f16_to_f32(bits);
            if value.is_nan() {
                assert!(bits & 0x7fff > 0x7c00);
                continue;
            }
            assert_eq!(F16.round(f64::from(value), Round::Rn) as u32, bits);
            assert_eq!(half::f16::from_bits(bits as u16).to_f32(), value);
        }
    }

    #[test]
    fn rounding_to_f32_is_the_processor_s() {
        let mut state = 1u64;
        for _ in 0..20000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = f64::from_bits(0x3600_0000_0000_0000 | state >> 2);
            if value.is_nan() {
                continue;
            }
            assert_eq!(F32.round(value, Round::Rn) as u32, (value as f32).to_bits());
        }
    }

    #[test]
    fn directed_roundings() {
        let third = div_odd(1.0, 3.0);
        let down = F32.round(third, Round::Rm) as u32;
        assert_eq!(F32.round(third, Round::Rp) as u32, down + 1);
        assert_eq!(F32.round(third, Round::Rz) as u32, down);
        assert_eq!(F32.round(1e39, Round::Rz) as u32, f32::MAX.to_bits());
        assert_eq!(F32.round(-1e39, Round::Rm) as u32, f32::NEG_INFINITY.to_bits());
    }

    #[test]
    fn sums_do_not_round_twice() {
        // 1 + 2^-11 + 2^-60 is just above the midpoint of two halves.
        let sum = add_odd(1.0 + 2f64.powi(-11), 2f64.powi(-60));
        assert_eq!(F16.round(sum, Round::Rn), 0x3c01);
        assert_eq!(F16.round(1.0 + 2f64.powi(-11), Round::Rn), 0x3c00);
    }
}
