//! `pow`, with the special cases of C99, Annex F.
//!
//! `|x|^y = e^(y log |x|)` for Float64, with the logarithm and the product as unevaluated sums,
//! precise to about 2^-65; `2^(y log2 |x|)` in Float64 for Float32, the logarithm from a minimax
//! polynomial of `atanh` (`tools/minimax.py`). Largest error measured: `docs/MATH.md`.

use super::builder::Value;
use super::exp::{lowest_argument, power_of_e, reduce, scale, two_step_shift};
use super::log::log_f64;
use super::sums::renormalize;
use crate::ir::DType;

/// Computes `x^y`.
pub fn pow<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let magnitude = if x.is_f32() {
        power_f32(x.abs().cast(DType::Float64), y.cast(DType::Float64))
    } else {
        power_f64(x.abs(), y)
    };
    let is_integer = y.round().eq(y);
    let half = y * 0.5;
    let is_odd = is_integer & half.round().ne(half);
    let sign_bit = x.bits() & x.format().sign;
    let sign = is_odd.select(sign_bit, 0);
    let signed = (magnitude.bits() | sign).bitcast(x.dtype());
    // A negative finite number has only integral powers.
    let undefined = x.lt(0.0) & x.gt(f64::NEG_INFINITY) & y.round().ne(y);
    let result = undefined.select(x.constant(f64::NAN), signed);
    (x.eq(1.0) | y.eq(0.0)).select(x.constant(1.0), result)
}

/// Computes `size^y` for a `size` that is not negative, in Float64, rounded to Float32.
fn power_f32<'b>(size: Value<'b>, y: Value<'b>) -> Value<'b> {
    // The exponent counts from sqrt(1/2) and from 1024 below, which keeps it positive.
    const OFFSET: i64 = 1024 << 52;
    let field = (size.bits() - (0x3fe6a09e667f3bcd - OFFSET)).shr(52);
    let exponent = (field | 0x433 << 52).bitcast(DType::Float64) - (2f64.powi(52) + 1024.0);
    let f = (size.bits() + OFFSET - field.shl(52)).bitcast(DType::Float64) - 1.0;
    let s = f / (f + 2.0);
    let log2 = s.fma((s * s).polynomial(&LOG2_F32), exponent);
    let scaled = bounded_y(y) * ends(size, log2);
    // Beyond these, Float32 has no finite or no positive result.
    let scaled = scaled.at_least(-200.0).at_most(200.0);
    let format = size.format();
    let magic = format.magic + format.bias as f64;
    let shifted = scaled + magic;
    let r = scaled - (shifted - magic);
    let power = shifted.bits().shl(format.mantissa).bitcast(DType::Float64);
    (r.fma(r.polynomial(&EXP2_F32), 1.0) * power).cast(DType::Float32)
}

/// Computes `size^y` for a `size` that is not negative, in Float64.
fn power_f64<'b>(size: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (hi, lo) = log_f64(size);
    let (hi, lo) = renormalize(hi, lo);
    let hi = ends(size, hi);
    let y = bounded_y(y);
    let product = y * hi;
    let product_lo = y.fma(lo, y.fma(hi, -product));
    // If this changes the product, the result is infinite or zero, and the low part is not used.
    let bounded = product.at_least(lowest_argument(product)).at_most(710.0);
    let product_lo = bounded.eq(product).select(product_lo, 0.0);
    let reduced = reduce(bounded, two_step_shift(size)).plus(product_lo);
    let (hi, lo) = power_of_e(&reduced);
    scale(hi + lo, reduced.n, reduced.n_bits)
}

/// Bounds `y` to finite values, as infinity times the logarithm of 1 must be 0. NaN stays NaN.
fn bounded_y(y: Value<'_>) -> Value<'_> {
    y.at_least(-1e300).at_most(1e300)
}

/// Returns `log`, or the logarithm of zero, infinity and NaN.
fn ends<'b>(size: Value<'b>, log: Value<'b>) -> Value<'b> {
    let finite = size.lt(f64::INFINITY).select(log, size);
    size.eq(0.0).select(size.constant(f64::NEG_INFINITY), finite)
}

/// `2 atanh(s) / (s ln 2)` in `s^2`, error relative to it 2^-43.556.
const LOG2_F32: [f64; 6] = [
    2.8853900817778495,
    0.9617966941141083,
    0.5770779421151917,
    0.412209280308796,
    0.3199044514766664,
    0.2829192454213699,
];

/// `(2^r - 1) / r`, error relative to `2^r` 2^-34.319.
const EXP2_F32: [f64; 7] = [
    0.6931471807045018,
    0.24022651066534378,
    0.0555041036601497,
    0.009618038135436624,
    0.001333393506991266,
    0.00015466755399115334,
    1.51961490189987e-05,
];
