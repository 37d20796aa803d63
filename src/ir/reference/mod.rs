//! Mathematical functions in higher precision than any back end's, for the interpreter and the
//! tests of `expand_math`.
//!
//! Special values are decided here, exactly. Float32 is computed in Float64 (`narrow`), Float64
//! with 192 bits (`wide`), and then rounded: the result is correctly rounded unless the true value
//! lies closer to the middle of two neighbours than the error of the computation, about 2^-27 of a
//! unit in the last place for Float32 and 2^-130 for Float64.

mod narrow;
mod wide;

use super::{DType, Intrinsic};

/// The value of `function` at `args` (exact values of `dtype`, Float32 or Float64), correctly
/// rounded to `dtype` but for rare near-ties.
pub fn evaluate(function: Intrinsic, dtype: DType, args: &[f64]) -> f64 {
    evaluate_pair(function, dtype, args).0
}

/// The value of `function` at `args` as [`evaluate`] gives it, and what rounding took from it: the
/// sum of both is far more precise than `dtype`. The second is 0 where the first is not finite.
pub fn evaluate_pair(function: Intrinsic, dtype: DType, args: &[f64]) -> (f64, f64) {
    if let Some(value) = special_value(function, args) {
        return (value, 0.0);
    }
    match dtype {
        DType::Float32 => {
            let value = match function {
                // The product of two Float32 is exact in Float64, the sum is not.
                Intrinsic::Fma => {
                    let [a, b, c] = [args[0] as f32, args[1] as f32, args[2] as f32];
                    return (a.mul_add(b, c) as f64, 0.0);
                }
                _ => narrow::evaluate(function, args),
            };
            let rounded = value as f32 as f64;
            (rounded, if rounded.is_finite() { value - rounded } else { 0.0 })
        }
        DType::Float64 => match function {
            Intrinsic::Fma => (args[0].mul_add(args[1], args[2]), 0.0),
            _ => wide::evaluate(function, args),
        },
        other => crate::bug!("reference value of `{}` in {other}", function.name()),
    }
}

/// The result where it is decided by the kind of the arguments: NaN, infinity, zero, far outside
/// the range of results.
fn special_value(function: Intrinsic, args: &[f64]) -> Option<f64> {
    let x = args[0];
    match function {
        Intrinsic::Fma => None,
        Intrinsic::Pow => special_power(x, args[1]),
        _ if x.is_nan() => Some(f64::NAN),
        Intrinsic::Exp | Intrinsic::Exp2 => match x {
            0.0 => Some(1.0),
            x if x > 1100.0 => Some(f64::INFINITY),
            x if x < -1200.0 => Some(0.0),
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

/// The special cases of `pow` in C99, Annex F.9.4.4.
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
    // Both types end far inside these limits.
    match y * x.abs().log2() {
        exponent if exponent > 1100.0 => Some(sign * f64::INFINITY),
        exponent if exponent < -1200.0 => Some(sign * 0.0),
        _ => None,
    }
}
