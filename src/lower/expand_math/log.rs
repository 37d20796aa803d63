//! `log` and `log2`.
//!
//! `x = 2^e (1 + f)` with `1 + f` between `sqrt(1/2)` and `sqrt(2)`, `f` exact. In Float32 a minimax
//! polynomial (`tools/minimax.py`) gives `log(1 + f) - f`; the exact terms `e ln 2` and `f` (for
//! `log2`: `e` and `f / ln 2`) are added as an unevaluated pair (Dekker's Fast2Sum), so that only
//! the last addition rounds noticeably. Largest error measured: `docs/MATH.md`.

use super::builder::Value;
use crate::ir::DType;
use std::f64::consts::LOG2_E;

/// The natural logarithm.
pub fn log(x: Value<'_>) -> Value<'_> {
    let (f, e) = decompose_f32(x);
    // e times the high part is exact: 8 bits times 15.
    let whole = e * 0.693145751953125;
    let hi = whole + f;
    let lo = (whole - hi) + f;
    let curve = f * f.polynomial(&LOG_F32);
    let result = hi + f.fma(curve, e.fma(1.428606765330187e-6, lo));
    special_cases(x, result)
}

/// The logarithm to base 2.
pub fn log2(x: Value<'_>) -> Value<'_> {
    let (f, e) = decompose_f32(x);
    let linear = f * LOG2_E;
    let linear_lo = f.fma(1.925963033500011e-8, f.fma(LOG2_E, -linear));
    let hi = e + linear;
    let lo = (e - hi) + linear;
    let curve = f * f.polynomial(&LOG2_F32);
    let result = hi + (lo + f.fma(curve, linear_lo));
    special_cases(x, result)
}

/// `f` and `e` of a positive finite Float32 number `2^e (1 + f)`.
fn decompose_f32(x: Value<'_>) -> (Value<'_>, Value<'_>) {
    let denormal = x.lt(f32::MIN_POSITIVE as f64);
    let scaled = denormal.select(x * 8388608.0, x);
    let bits = scaled.bits().bitcast(DType::Int32);
    // The bits of sqrt(1/2), rounded down: the exponent steps there instead of at 1.
    let exponent = (bits - 0x3f3504f3).shr(23);
    let f = (bits - exponent.shl(23)).bitcast(DType::Float32) - 1.0;
    let exponent = exponent - denormal.select(exponent.constant(23), 0);
    (f, exponent.cast(DType::Float32))
}

/// `result`, or what a logarithm of zero, infinity, NaN or a negative number is.
pub fn special_cases<'b>(x: Value<'b>, result: Value<'b>) -> Value<'b> {
    let of_zero = x.eq(0.0).select(x.constant(f64::NEG_INFINITY), f64::NAN);
    let special = x.gt(0.0).select(x, of_zero);
    (x.gt(0.0) & x.lt(f64::INFINITY)).select(result, special)
}

/// `(log(1 + f) - f) / f^2`, error relative to `log(1 + f)` 2^-27.3.
const LOG_F32: [f64; 9] = [
    -0.5,
    0.3333333,
    -0.2500082,
    0.2000124,
    -0.16623406,
    0.14201616,
    -0.13159685,
    0.12762013,
    -0.07635992,
];

/// `(log2(1 + f) - f / ln 2) / f^2`, error relative to `log2(1 + f)` 2^-27.6.
const LOG2_F32: [f64; 9] = [
    -0.72134733,
    0.4808982,
    -0.36069867,
    0.28857142,
    -0.23956734,
    0.20448656,
    -0.19139108,
    0.18708847,
    -0.11025544,
];
