//! `sin`, `cos` and `tan`.
//!
//! After the range reduction of `reduce_angle`, minimax polynomials (`tools/minimax.py`) of the
//! sine and cosine on `[-pi/4, pi/4]`, as in fdlibm, with the low part of the angle in Float64; the
//! quadrant selects one of the two, and the sign. The tangent is a polynomial or its reciprocal in
//! Float64 for Float32, and a quotient corrected by its remainder for Float64. Largest error
//! measured: `docs/MATH.md`.

use super::builder::Value;
use super::reduce_angle::{Angle, reduce_f32, reduce_f64};
use super::sums::{quotient, renormalize};
use crate::ir::DType;

/// Computes the sine.
pub fn sin(x: Value<'_>) -> Value<'_> {
    // The polynomial gives +0 for -0.
    x.eq(0.0).select(x, sine_of_quadrant(x, 0))
}

/// Computes the cosine: the sine one quadrant further.
pub fn cos(x: Value<'_>) -> Value<'_> {
    sine_of_quadrant(x, 1)
}

/// Computes the sine of `x` and `offset` quadrants.
fn sine_of_quadrant(x: Value<'_>, offset: i64) -> Value<'_> {
    let (quadrant, sine, cosine) = if x.is_f32() {
        let (quadrant, angle) = reduce_f32(x);
        let angle = angle.cast(DType::Float32);
        (quadrant, sine_f32(angle), cosine_f32(angle))
    } else {
        let angle = reduce_f64(x);
        let (sine, sine_lo) = sine_f64(&angle);
        let (cosine, cosine_lo) = cosine_f64(&angle);
        (angle.quadrant, sine + sine_lo, cosine + cosine_lo)
    };
    let quadrant = if offset == 0 { quadrant } else { quadrant + offset };
    let magnitude = (quadrant & 1).eq(0).select(sine, cosine);
    let sign = (quadrant & 2).shl(8 * x.dtype().bytes() as i64 - 2);
    (magnitude.bits() ^ sign).bitcast(x.dtype())
}

/// Computes the tangent.
pub fn tan(x: Value<'_>) -> Value<'_> {
    if x.is_f32() {
        let (quadrant, angle) = reduce_f32(x);
        let square = angle * angle;
        let tangent = (angle * square).fma(square.polynomial(&TAN_F32), angle);
        let even = (quadrant & 1).eq(0);
        let result = even.select(tangent, -1.0) / even.select(tangent.constant(1.0), tangent);
        return result.cast(DType::Float32);
    }
    let angle = reduce_f64(x);
    let (sine, sine_lo) = sine_f64(&angle);
    let (sine, sine_lo) = renormalize(sine, sine_lo);
    let (cosine, cosine_lo) = cosine_f64(&angle);
    let (cosine, cosine_lo) = renormalize(cosine, cosine_lo);
    let even = (angle.quadrant & 1).eq(0);
    let numerator = (even.select(sine, -cosine), even.select(sine_lo, -cosine_lo));
    let divisor = (even.select(cosine, sine), even.select(cosine_lo, sine_lo));
    x.eq(0.0).select(x, quotient(numerator, divisor))
}

fn sine_f32(angle: Value<'_>) -> Value<'_> {
    let square = angle * angle;
    (angle * square).fma(square.polynomial(&SIN_F32), angle)
}

fn cosine_f32(angle: Value<'_>) -> Value<'_> {
    let square = angle * angle;
    (square * square).fma(square.polynomial(&COS_F32), square.fma(-0.5, 1.0))
}

/// Computes the sine as an unevaluated sum.
fn sine_f64<'b>(angle: &Angle<'b>) -> (Value<'b>, Value<'b>) {
    let square = angle.hi * angle.hi;
    // The derivative, 1 - x^2/2, adds the low part.
    let slope = square.fma(-0.5, 1.0);
    let curve = (angle.hi * square) * square.polynomial(&SIN_F64);
    (angle.hi, angle.lo.fma(slope, curve))
}

/// Computes the cosine as an unevaluated sum.
fn cosine_f64<'b>(angle: &Angle<'b>) -> (Value<'b>, Value<'b>) {
    let square = angle.hi * angle.hi;
    let half = square * 0.5;
    let hi = 1.0 - half;
    let half_lo = angle.hi.fma(angle.hi, -square) * -0.5;
    let curve = (square * square).fma(square.polynomial(&COS_F64), half_lo);
    (hi, ((1.0 - hi) - half) + (-angle.hi).fma(angle.lo, curve))
}

/// `(sin(x) - x) / x^3` in `x^2`, error relative to `sin(x)` 2^-27.911.
const SIN_F32: [f64; 3] = [-0.16666655, 0.008332189, -0.0001951829];

/// `(cos(x) - 1 + x^2/2) / x^4` in `x^2`, error relative to `cos(x)` 2^-32.985.
const COS_F32: [f64; 3] = [0.041666646, -0.001388731, 2.4432327e-05];

/// `(tan(x) - x) / x^3` in `x^2`, error relative to `tan(x)` 2^-33.38.
const TAN_F32: [f64; 8] = [
    0.3333333185025049,
    0.13333410365611303,
    0.053954666783372456,
    0.02198438809550831,
    0.008332554443450562,
    0.0049901601021753485,
    -0.0005929448652107018,
    0.0020398584842107065,
];

/// As `SIN_F32`, error 2^-57.887.
const SIN_F64: [f64; 6] = [
    -0.1666666666666663,
    0.00833333333332184,
    -0.00019841269829358541,
    2.7557313538529608e-06,
    -2.5050734393310205e-08,
    1.5895433590004306e-10,
];

/// As `COS_F32`, error 2^-63.937.
const COS_F64: [f64; 6] = [
    0.041666666666666595,
    -0.0013888888888873342,
    2.4801587289002093e-05,
    -2.755731421704975e-07,
    2.0875705398781133e-09,
    -1.1358749457921382e-11,
];
