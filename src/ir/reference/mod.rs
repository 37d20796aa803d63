//! Math functions in higher precision, for the interpreter and the tests of `expand_math`.
//!
//! Special values are exact. Float32 is computed in float64 (`narrow`), float64 with 192 bits
//! (`wide`), and then rounded. The result is correctly rounded unless the exact value is closer to
//! the midpoint of two neighbours than the error of the computation, about 2^-27 ULP for float32
//! and 2^-130 ULP for float64.

mod narrow;
mod wide;

use super::{DType, Intrinsic};

/// Returns `function` of `args` (values of `dtype`, Float32 or Float64), correctly rounded to
/// `dtype` except for rare near-ties.
pub fn evaluate(function: Intrinsic, dtype: DType, args: &[f64]) -> f64 {
    evaluate_exact(function, dtype, args).nearest
}

/// A value with more precision than its type.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    /// The nearest value of the type.
    pub nearest: f64,
    /// The exact value minus `nearest` in ULP; 0 if `nearest` is not finite.
    pub rest: f64,
    /// The ULP of the exact value, as the exponent of a power of two.
    pub unit: i32,
}

impl Exact {
    /// Creates a value that needs no rounding.
    fn special(nearest: f64) -> Exact {
        Exact { nearest, rest: 0.0, unit: 0 }
    }

    /// Returns the error of `value` in ULP. The error is infinite if only one of both is NaN or
    /// infinite, or if both are zeros of different sign; but infinity after the largest number
    /// counts as the next power of two.
    pub fn error_of(&self, dtype: DType, value: f64) -> f64 {
        let nearest = self.nearest;
        if value == nearest || (value.is_nan() && nearest.is_nan()) {
            let zeros_differ =
                value == 0.0 && value.is_sign_negative() != nearest.is_sign_negative();
            return if zeros_differ { f64::INFINITY } else { self.rest.abs() };
        }
        if value.is_finite() && nearest.is_finite() {
            // Two factors, because the ULP may be denormal.
            let half = -self.unit / 2;
            let steps = (value - nearest) * power_of_2(half) * power_of_2(-self.unit - half);
            return (steps - self.rest).abs();
        }
        let largest = if dtype == DType::Float32 { f32::MAX as f64 } else { f64::MAX };
        let finite = if value.is_finite() { value } else { nearest };
        let at_end = finite.abs() == largest && value.signum() == nearest.signum();
        if at_end { 1.0 + self.rest.abs() } else { f64::INFINITY }
    }
}

/// Like [`evaluate`], with the rounding error.
pub fn evaluate_exact(function: Intrinsic, dtype: DType, args: &[f64]) -> Exact {
    if let Some(value) = special_value(function, args) {
        return Exact::special(value);
    }
    match (function, dtype) {
        (Intrinsic::Fma, DType::Float32) => {
            let [a, b, c] = [args[0] as f32, args[1] as f32, args[2] as f32];
            Exact::special(a.mul_add(b, c) as f64)
        }
        (Intrinsic::Tf32, DType::Float32) => Exact::special(round_to_tf32(args[0])),
        (Intrinsic::Fma, DType::Float64) => Exact::special(args[0].mul_add(args[1], args[2])),
        (Intrinsic::Scalef, DType::Float32) => {
            Exact::special(times_power_of_2(args[0], args[1]) as f32 as f64)
        }
        (Intrinsic::Scalef, DType::Float64) => Exact::special(times_power_of_2(args[0], args[1])),
        (_, DType::Float32) => round_to_f32(narrow::evaluate(function, args)),
        (_, DType::Float64) => wide::evaluate(function, args),
        (_, other) => crate::bug!("reference value of `{}` in {other}", function.name()),
    }
}

fn round_to_f32(value: f64) -> Exact {
    let nearest = value as f32 as f64;
    if !nearest.is_finite() || value == 0.0 {
        return Exact::special(nearest);
    }
    // Float64 numbers in the range of float32 are normal.
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let unit = (exponent - 23).max(-149);
    Exact { nearest, rest: (value - nearest) * power_of_2(-unit), unit }
}

/// Rounds to ten fraction bits, to nearest, ties away from zero.
fn round_to_tf32(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let unit = power_of_2((exponent - 10).max(-126 - 10));
    // `round` rounds ties away from zero; the quotient is exact.
    ((x / unit).round() * unit) as f32 as f64
}

/// Returns `x * 2^n`, rounded once: the first product of a number near 1 is exact.
fn times_power_of_2(x: f64, n: f64) -> f64 {
    if n.is_nan() {
        return n;
    }
    let n = n.clamp(-2000.0, 2000.0) as i32;
    let half = n.div_euclid(2);
    x * power_of_2(half) * power_of_2(n - half)
}

/// Returns `2^exponent`, which must be a normal number.
fn power_of_2(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Returns the result for special arguments: NaN, infinity, zero, and arguments whose result is far
/// out of range.
fn special_value(function: Intrinsic, args: &[f64]) -> Option<f64> {
    let x = args[0];
    match function {
        Intrinsic::Fma | Intrinsic::Scalef => None,
        Intrinsic::Tf32 if !x.is_finite() => Some(x),
        Intrinsic::Tf32 => None,
        Intrinsic::Pow => special_power(x, args[1]),
        _ if x.is_nan() => Some(f64::NAN),
        Intrinsic::Exp | Intrinsic::Exp2 => match x {
            0.0 => Some(1.0),
            x if x > 1100.0 => Some(f64::INFINITY),
            x if x < -1200.0 => Some(0.0),
            _ => None,
        },
        Intrinsic::Expm1 => match x {
            0.0 => Some(x),
            x if x > 1100.0 => Some(f64::INFINITY),
            x if x < -100.0 => Some(-1.0),
            _ => None,
        },
        Intrinsic::Log | Intrinsic::Log2 => match x {
            0.0 => Some(f64::NEG_INFINITY),
            1.0 => Some(0.0),
            f64::INFINITY => Some(x),
            x if x < 0.0 => Some(f64::NAN),
            _ => None,
        },
        Intrinsic::Sigmoid => match x {
            x if x > 100.0 => Some(1.0),
            x if x < -1200.0 => Some(0.0),
            _ => None,
        },
        Intrinsic::Tanh | Intrinsic::Erf => match x {
            0.0 => Some(x),
            x if x.abs() > 40.0 => Some(1f64.copysign(x)),
            _ => None,
        },
        Intrinsic::Sin | Intrinsic::Tan | Intrinsic::Cos => match x {
            x if x.is_infinite() => Some(f64::NAN),
            0.0 if function == Intrinsic::Cos => Some(1.0),
            0.0 => Some(x),
            _ => None,
        },
        Intrinsic::Atan => (x == 0.0).then_some(x),
        Intrinsic::Rsqrt => match x {
            0.0 => Some(f64::INFINITY.copysign(x)),
            f64::INFINITY => Some(0.0),
            x if x < 0.0 => Some(f64::NAN),
            _ => None,
        },
    }
}

/// Returns the result of a special case of `pow` in C99, Annex F.9.4.4.
fn special_power(x: f64, y: f64) -> Option<f64> {
    if y == 0.0 || x == 1.0 {
        return Some(1.0);
    }
    if x.is_nan() || y.is_nan() {
        return Some(f64::NAN);
    }
    if y.is_infinite() {
        return Some(match x.abs() {
            1.0 => 1.0,
            size if (size > 1.0) == (y > 0.0) => f64::INFINITY,
            _ => 0.0,
        });
    }
    let is_odd = y.trunc() == y && (y % 2.0).abs() == 1.0;
    let sign = if x.is_sign_negative() && is_odd { -1.0 } else { 1.0 };
    if x == 0.0 || x.is_infinite() {
        let large = (x == 0.0) == (y < 0.0);
        return Some(sign * if large { f64::INFINITY } else { 0.0 });
    }
    if x < 0.0 && y.trunc() != y {
        return Some(f64::NAN);
    }
    // The ranges of both types are far smaller than these limits.
    match y * x.abs().log2() {
        exponent if exponent > 1100.0 => Some(sign * f64::INFINITY),
        exponent if exponent < -1200.0 => Some(sign * 0.0),
        _ => None,
    }
}
