//! `exp` and `exp2`, and the reduced exponential that other functions share.
//!
//! Range reduction (Cody and Waite): `x = n ln 2 + r`, `n` the nearest integer to `x / ln 2`, with
//! ln 2 in two parts, so that `|r| <= ln 2 / 2`; `exp2` takes `r = x - n`, which is exact. Then a
//! minimax polynomial (`tools/minimax.py`) and a product with `2^n`. It rounds once, if the result
//! is denormal, overflows or underflows, so no special case is left: as one instruction where there
//! is one (AVX-512), else in two factors, of which the first is exact. Largest error measured:
//! `docs/MATH.md`.

use super::builder::Value;
use super::sums::renormalize;
use std::f64::consts::{LN_2, LOG2_E};

/// Computes `e^x`.
pub fn exp(x: Value<'_>) -> Value<'_> {
    if !x.is_f32() {
        let x = x.at_least(lowest_argument(x)).at_most(710.0);
        let reduced = reduce(x, two_step_shift(x));
        let (hi, lo) = power_of_e(&reduced);
        return scale(hi + lo, reduced.n, reduced.n_bits);
    }
    let x = x.at_least(lowest_argument(x)).at_most(89.0);
    let magic = x.format().magic + two_step_shift(x);
    let shifted = x.fma(LOG2_E, magic);
    let n = shifted - magic;
    let r = n.fma(LN_2_LO_F32, n.fma(-LN_2, x));
    scale(r.polynomial(&EXP_F32), n, shifted.bits())
}

/// Computes `2^x`.
pub fn exp2(x: Value<'_>) -> Value<'_> {
    let highest = if x.is_f32() { 129.0 } else { 1025.0 };
    let x = x.at_least(lowest_exponent(x)).at_most(highest);
    let magic = x.format().magic + two_step_shift(x);
    let shifted = x + magic;
    let n = shifted - magic;
    let r = x - n;
    let power = if x.is_f32() { r.fma(r.polynomial(&EXP2_F32), 1.0) } else { power_of_2(r) };
    scale(power, n, shifted.bits())
}

/// Returns the bound of an argument for [`reduce`] and [`scale`].
pub fn lowest_argument(x: Value<'_>) -> f64 {
    (lowest_exponent(x) * LN_2).floor()
}

/// Returns a bound of `n` for [`scale`], below which results are 0. A denormal result takes an
/// assist of microcode (40 to 65 ns a vector on Golden Cove), and so does a 0 that is rounded from
/// a number near them: for the arguments that a mask makes very negative, `n` is beyond (measured:
/// from 2^-512 and 2^-4099 on for `scalef`, from 2^-160 and 2^-1088 on for products).
fn lowest_exponent(x: Value<'_>) -> f64 {
    match (x.is_f32(), x.has_scalef()) {
        (true, true) => -520.0,
        (true, false) => -164.0,
        (false, true) => -4104.0,
        (false, false) => -1092.0,
    }
}

/// An argument after range reduction.
pub struct Reduced<'b> {
    /// `n`, an integer.
    pub n: Value<'b>,
    /// `n` plus the shift, in the low bits of an integer.
    pub n_bits: Value<'b>,
    /// `r` without its small part, which is `-n` times the low part of ln 2. Exact.
    pub exact: Value<'b>,
    /// The small part of `r`.
    pub tail: Value<'b>,
}

impl<'b> Reduced<'b> {
    /// Adds `small` to the argument.
    pub fn plus(self, small: Value<'b>) -> Reduced<'b> {
        Reduced { tail: self.tail + small, ..self }
    }

    /// Computes `e^r - 1 - exact` in Float64.
    pub fn rest(&self) -> Value<'b> {
        let r = self.exact + self.tail;
        (r * r).fma(r.polynomial(&EXPM1_F64), self.tail)
    }
}

/// Returns the shift for [`scale`].
pub fn two_step_shift(like: Value<'_>) -> f64 {
    (2 * like.format().bias) as f64
}

/// Splits `x` (bounded, so that `n` fits) into `n ln 2 + r`; the integer is `n + shift`.
pub fn reduce(x: Value<'_>, shift: f64) -> Reduced<'_> {
    let magic = x.format().magic + shift;
    let shifted = x.fma(LOG2_E, magic);
    let n = shifted - magic;
    // Exact: both are multiples of the last bit of the smaller one, and the difference is small.
    let exact = n.fma(-LN_2, x);
    let ln_2_lo = if x.is_f32() { -LN_2_LO_F32 } else { LN_2_LO };
    Reduced { n, n_bits: shifted.bits(), exact, tail: n * -ln_2_lo }
}

/// Computes `value * 2^n`, rounded once; the low bits of `n_bits` are `n + two_step_shift`.
pub fn scale<'b>(value: Value<'b>, n: Value<'b>, n_bits: Value<'b>) -> Value<'b> {
    if let Some(scaled) = value.scalef(n) {
        return scaled;
    }
    let (first, second) = two_step_scale(value, n_bits);
    value * first * second
}

/// Computes `2^floor(n/2)` and `2^ceil(n/2)` in the type of `like`.
fn two_step_scale<'b>(like: Value<'b>, n_bits: Value<'b>) -> (Value<'b>, Value<'b>) {
    // The shift, twice the bias, makes each half a biased exponent.
    let exponent = |n: Value<'b>| n.shl(like.format().mantissa).bitcast(like.dtype());
    let half = n_bits.shr(1);
    (exponent(half), exponent(n_bits - half))
}

/// Computes `e^r` as an unevaluated sum with an error of a few hundredths of a ULP; the second part
/// is at most a tenth of the first.
pub fn power_of_e<'b>(reduced: &Reduced<'b>) -> (Value<'b>, Value<'b>) {
    let (hi, lo) = renormalize(reduced.exact.constant(1.0), reduced.exact);
    (hi, lo + reduced.rest())
}

/// Computes `2^r` in Float64, rounded once except for a few hundredths of a ULP.
fn power_of_2(r: Value<'_>) -> Value<'_> {
    let linear = r * LN_2;
    let linear_lo = r.fma(LN_2_LO, r.fma(LN_2, -linear));
    let rest = (r * r).fma(r.polynomial(&EXP2_F64), linear_lo);
    let (hi, lo) = renormalize(r.constant(1.0), linear);
    hi + (lo + rest)
}

/// ln 2 minus its Float64 value.
const LN_2_LO: f64 = 2.3190468138462996e-17;

/// The Float32 value of ln 2 minus ln 2.
pub const LN_2_LO_F32: f64 = 1.904654212125934e-9;

/// `e^r`, error relative to it 2^-28.254.
pub const EXP_F32: [f64; 7] =
    [1.0, 1.0, 0.49999994, 0.16666521, 0.041668262, 0.008368674, 0.0013821023];

/// `(2^r - 1) / r`, error relative to `2^r` 2^-28.3.
const EXP2_F32: [f64; 6] = [LN_2, 0.24022648, 0.0555036, 0.009618506, 0.0013390806, 0.00015326471];

/// `(e^r - 1 - r) / r^2`, error relative to `e^r - 1` 2^-61.618.
pub const EXPM1_F64: [f64; 11] = [
    0.5,
    0.16666666666666677,
    0.041666666666666685,
    0.00833333333332175,
    0.001388888888889028,
    0.00019841269885445084,
    2.4801587288707048e-05,
    2.7557245082995186e-06,
    2.7557320371741827e-07,
    2.51086991536762e-08,
    2.0896767849921552e-09,
];

/// `(2^r - 1 - r ln 2) / r^2`, error relative to `2^r` 2^-57.935.
const EXP2_F64: [f64; 10] = [
    0.24022650695910122,
    0.05550410866482074,
    0.009618129107597026,
    0.0013333558146685612,
    0.00015403530454017353,
    1.5252733547235963e-05,
    1.3215436631662608e-06,
    1.0178184547732167e-07,
    7.073575736411245e-09,
    4.4363135085841186e-10,
];
