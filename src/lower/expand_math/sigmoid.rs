//! `tanh` and `sigmoid`, from the reduced exponential of `exp`.
//!
//! Float32: `tanh |x|` is a minimax polynomial up to 0.55, then `1 - 2 / (e^(2|x|) + 1)`, which
//! halves the error of the quotient. `sigmoid(x) = 1 / (1 + e^-x)`: both parts of the quotient are
//! scaled by 2^-32, which leaves room for `e^104`, so the quotient is a denormal number if the
//! result is one.
//!
//! Float64: `tanh |x| = (1 - E) / (1 + E)` with `E = e^(-2|x|)`, from `1 - E` without cancellation;
//! `sigmoid(x) = E / (1 + E)` for negative `x` and `1 / (1 + E)` otherwise with `E = e^(-|x|)`. The
//! exponential and the divisor are unevaluated sums and the quotient is corrected by its
//! remainder if one more rounding would exceed the bound. Largest error measured: `docs/MATH.md`.

use super::builder::Value;
use super::exp::{
    EXP_F32, LN_2_LO_F32, lowest_argument, power_of_e, reduce, scale, two_step_shift,
};
use super::sums::{quotient, renormalize};
use std::f64::consts::{LN_2, LOG2_E};

/// Computes the hyperbolic tangent.
pub fn tanh(x: Value<'_>) -> Value<'_> {
    let magnitude = if x.is_f32() { tanh_f32(x.abs()) } else { tanh_f64(x.abs()) };
    magnitude.with_sign_of(x)
}

fn tanh_f32(size: Value<'_>) -> Value<'_> {
    let square = size * size;
    let small = (size * square).fma(square.polynomial(&TANH_F32), size);
    // From here on the result is 1.
    let bounded = size.at_most(10.0);
    let format = size.format();
    let magic = format.magic + format.bias as f64;
    let shifted = bounded.fma(2.0 * LOG2_E, magic);
    // Half the reduced argument; the low part of ln 2 does not matter for the quotient.
    let r = (shifted - magic).fma(-0.5 * LN_2, bounded);
    let mut power = EXP_F32;
    power.iter_mut().enumerate().for_each(|(i, c)| *c *= 2f64.powi(i as i32));
    let scale = shifted.bits().shl(format.mantissa).bitcast(size.dtype());
    let large = 1.0 - 2.0 / r.polynomial(&power).fma(scale, 1.0);
    size.lt(0.55).select(small, large)
}

fn tanh_f64(size: Value<'_>) -> Value<'_> {
    // From here on the result is 1.
    let size = size.at_most(20.0);
    let format = size.format();
    let reduced = reduce(size * -2.0, format.bias as f64);
    let scale = reduced.n_bits.shl(format.mantissa).bitcast(size.dtype());
    let (whole, linear) = (1.0 - scale, scale * reduced.exact);
    let sum = whole - linear;
    let whole_lo = (1.0 - whole) - scale;
    let sum_lo = (-scale).fma(reduced.rest(), ((whole - sum) - linear) + whole_lo);
    let (numerator, numerator_lo) = renormalize(sum, sum_lo);
    let (divisor, divisor_lo) = renormalize(sum.constant(2.0), -numerator);
    quotient((numerator, numerator_lo), (divisor, divisor_lo - numerator_lo))
}

/// Computes `1 / (1 + e^-x)`.
pub fn sigmoid(x: Value<'_>) -> Value<'_> {
    if x.is_f32() { sigmoid_f32(x) } else { sigmoid_f64(x) }
}

fn sigmoid_f32(x: Value<'_>) -> Value<'_> {
    const DOWN: f64 = 1.0 / (1u64 << 32) as f64;
    // Above 17.4 the result is 1, below -103.98 it is 0.
    let x = x.at_least(-104.0).at_most(20.0);
    let format = x.format();
    let magic = format.magic + (format.bias - 32) as f64;
    let shifted = x.fma(-LOG2_E, magic);
    let n = shifted - magic;
    let r = n.fma(-LN_2_LO_F32, n.fma(LN_2, x));
    let scale = shifted.bits().shl(format.mantissa).bitcast(x.dtype());
    // e^-r - 1, which is small, before the 1: one rounding less where the sum is about e^-x.
    let power = (r * r).fma(r.polynomial(&EXPM1_F32), -r);
    let sum = power.fma(scale, DOWN) + scale;
    DOWN / sum
}

fn sigmoid_f64<'b>(x: Value<'b>) -> Value<'b> {
    let negative = x.lt(0.0);
    let size = (-x.abs()).at_least(lowest_argument(x));
    let reduced = reduce(size, two_step_shift(x));
    let (hi, lo) = power_of_e(&reduced);
    let (power, power_lo) = renormalize(hi, lo);
    let scaled = |value: Value<'b>| scale(value, reduced.n, reduced.n_bits);
    let (exp, exp_lo) = (scaled(power), scaled(power_lo));
    let (divisor, divisor_lo) = renormalize(exp.constant(1.0), exp);
    let numerator = (negative.select(power, 1.0), negative.select(power_lo, 0.0));
    let result = quotient(numerator, (divisor, divisor_lo + exp_lo));
    negative.select(scaled(result), result)
}

/// `(tanh(x) - x) / x^3` in `x^2` up to 0.55, error relative to `tanh(x)` 2^-24.69.
const TANH_F32: [f64; 4] = [-0.33332947, 0.13320729, -0.052672006, 0.01643786];

/// `(e^-r - 1 + r) / r^2`, error relative to `e^-r` 2^-28.
const EXPM1_F32: [f64; 5] = [0.5, -0.16666548, 0.041666824, -0.008366107, 0.0013900711];
