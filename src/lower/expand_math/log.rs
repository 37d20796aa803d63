//! `log` and `log2`.
//!
//! `x = 2^e (1 + f)`, `f` exact. In Float32 `1 + f` is between 2/3 and 4/3 (for `log2` between
//! `sqrt(1/2)` and `sqrt(2)`), so that `e ln 2` and `log(1 + f)`, from a minimax polynomial
//! (`tools/minimax.py`), add up almost without an error where they cancel.
//!
//! In Float64 a table gives for each 64th of an octave a short number `1/c`, such that
//! `r = (1 + f) / c - 1` is exact and at most 0.012, and `log c` in two parts (Tang's method);
//! `log(1 + r)` is `r - r^2/2` as an unevaluated sum and a minimax polynomial for the rest. The
//! error before the last addition is about 2^-66, so `pow` uses it, too. Largest error measured:
//! `docs/MATH.md`.

use super::builder::Value;
use super::log_table::{FIRST, LOG};
use super::sums::renormalize;
use crate::ir::DType;
use std::f64::consts::{LN_2, LOG2_E};

/// Computes the natural logarithm.
pub fn log(x: Value<'_>) -> Value<'_> {
    if !x.is_f32() {
        let (hi, lo) = log_f64(x);
        return special_cases(x, hi + lo);
    }
    let (f, e) = decompose_f32(x, TWO_THIRDS);
    let rest = (f * f).fma(f.polynomial(&LOG_F32), f);
    special_cases(x, e.fma(LN_2, rest))
}

/// Computes the logarithm to base 2.
pub fn log2(x: Value<'_>) -> Value<'_> {
    if !x.is_f32() {
        let parts = decompose_f64(x);
        let (hi, lo) = log_of_mantissa(&parts, parts.log_hi, parts.log_lo);
        let linear = hi * LOG2_E;
        let linear_lo = hi.fma(2.0355273740931033e-17, hi.fma(LOG2_E, -linear));
        let (sum, sum_lo) = renormalize(parts.exponent, linear);
        return special_cases(x, sum + (sum_lo + lo.fma(LOG2_E, linear_lo)));
    }
    let (f, e) = decompose_f32(x, ROOT_OF_HALF);
    special_cases(x, f.fma(f.polynomial(&LOG2_F32), f) + e)
}

/// Splits a positive finite Float32 number `2^e (1 + f)` into `f` and `e`; the exponent steps at
/// `first`, the bits of the smallest `1 + f`.
fn decompose_f32(x: Value<'_>, first: i64) -> (Value<'_>, Value<'_>) {
    let denormal = x.lt(f32::MIN_POSITIVE as f64);
    let bits = denormal.select(x * 8388608.0, x).bits().bitcast(DType::Int32);
    // The exponent in its field, above 23 zero bits.
    let exponent = (bits - first) & (-1 << 23);
    let f = (bits - exponent).bitcast(DType::Float32) - 1.0;
    let shift = denormal.select(x.constant(-23.0), 0.0);
    (f, exponent.cast(DType::Float32).fma(2f64.powi(-23), shift))
}

/// The bits of 2/3 and of sqrt(1/2), rounded down.
const TWO_THIRDS: i64 = 0x3f2aaaab;
const ROOT_OF_HALF: i64 = 0x3f3504f3;

/// A positive finite Float64 number as `2^exponent * mantissa`, with the row of the table.
struct Parts<'b> {
    exponent: Value<'b>,
    mantissa: Value<'b>,
    inverse: Value<'b>,
    log_hi: Value<'b>,
    log_lo: Value<'b>,
}

fn decompose_f64(x: Value<'_>) -> Parts<'_> {
    let denormal = x.lt(f64::MIN_POSITIVE);
    let scaled = denormal.select(x * 2f64.powi(54), x);
    // The exponent counts from the first mantissa, and from 1024 below, which keeps it positive.
    const OFFSET: i64 = 1024 << 52;
    let biased = scaled.bits() - (FIRST - OFFSET);
    let field = biased.shr(52);
    let mantissa = (scaled.bits() + OFFSET - field.shl(52)).bitcast(DType::Float64);
    let exponent = (field | 0x433 << 52).bitcast(DType::Float64) - (2f64.powi(52) + 1024.0);
    let exponent = exponent - denormal.select(exponent.constant(54.0), 0.0);
    let row = biased.shr(46) & 63;
    let column = |i: usize| {
        (row + 64 * i as i64)
            .load("log_table", || (0..3).flat_map(|i| LOG.map(|row| row[i])).collect())
    };
    Parts { exponent, mantissa, inverse: column(0), log_hi: column(1), log_lo: column(2) }
}

/// Computes the logarithm of a positive finite Float64 number as an unevaluated sum.
pub fn log_f64(x: Value<'_>) -> (Value<'_>, Value<'_>) {
    let parts = decompose_f64(x);
    // Exact: multiples of 2^-42 below 2^10.
    let whole = parts.exponent.fma(0.6931471805598903, parts.log_hi);
    let whole_lo = parts.exponent.fma(5.497923018708371e-14, parts.log_lo);
    log_of_mantissa(&parts, whole, whole_lo)
}

/// Computes `whole + whole_lo + log(mantissa / c)` as an unevaluated sum.
fn log_of_mantissa<'b>(
    parts: &Parts<'b>,
    whole: Value<'b>,
    whole_lo: Value<'b>,
) -> (Value<'b>, Value<'b>) {
    let r = parts.mantissa.fma(parts.inverse, -1.0);
    let half = r * -0.5;
    let square = r * half;
    let square_lo = r.fma(half, -square);
    let curve = (r * r) * (r * r.polynomial(&LOG_F64));
    let (sum, sum_lo) = renormalize(whole, r);
    let (hi, hi_lo) = renormalize(sum, square);
    (hi, curve + ((square_lo + hi_lo) + (sum_lo + whole_lo)))
}

/// Returns `result`, or the logarithm of zero, infinity, NaN or a negative number.
fn special_cases<'b>(x: Value<'b>, result: Value<'b>) -> Value<'b> {
    let finite = x.lt(f64::INFINITY).select(result, x);
    let of_zero = x.eq(0.0).select(x.constant(f64::NEG_INFINITY), f64::NAN);
    x.gt(0.0).select(finite, of_zero)
}

/// `(log(1 + f) - f) / f^2` from -1/3 to 1/3, error relative to `log(1 + f)` 2^-27.68.
const LOG_F32: [f64; 9] = [
    -0.5,
    0.33333215,
    -0.24999806,
    0.20010427,
    -0.16680197,
    0.14005731,
    -0.121874444,
    0.13984627,
    -0.12880236,
];

/// `(log2(1 + f) - f) / f`, error relative to `log2(1 + f)` 2^-27.022.
const LOG2_F32: [f64; 10] = [
    0.44269505,
    -0.7213475,
    0.4808965,
    -0.3606826,
    0.28861892,
    -0.23995149,
    0.20415366,
    -0.18825628,
    0.18688573,
    -0.11641528,
];

/// `(log(1 + r) - r + r^2/2) / r^3`, error relative to `log(1 + r)` 2^-72.645.
const LOG_F64: [f64; 8] = [
    0.3333333333333333,
    -0.25,
    0.20000000000078047,
    -0.16666666666690133,
    0.14285713266262348,
    -0.12499999470299696,
    0.11116324477834617,
    -0.10003726095594039,
];
