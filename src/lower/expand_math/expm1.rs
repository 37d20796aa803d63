//! `expm1`, `e^x - 1` without cancellation near 0.
//!
//! `x = n ln 2 + r` as in `exp`, with `r` in two parts. The result is the sum of `2^n - 1`, of
//! `2^n` times the first part of `r`, and of a small rest. The first two are added as an
//! unevaluated sum, so that only the rest rounds before the result does. All are halved, so that
//! `2^n` does not overflow before the result does. Largest error measured: `docs/MATH.md`.

use super::builder::Value;
use super::exp::{EXPM1_F64, reduce};
use super::sums::renormalize;

/// Computes `e^x - 1`.
pub fn expm1(x: Value<'_>) -> Value<'_> {
    // Below the first limit the result is -1, above the second one infinity. For arguments smaller
    // than `tiny`, `x` is the nearest result. It keeps the sign of 0 and all bits of denormal
    // numbers, which lose one when they are halved.
    let (lowest, highest, tiny, curve): (f64, f64, f64, &[f64]) = match x.is_f32() {
        true => (-18.0, 89.0, 2f64.powi(-25), &EXPM1_F32),
        false => (-38.0, 710.0, 2f64.powi(-54), &EXPM1_F64),
    };
    let format = x.format();
    let reduced = reduce(x.at_least(lowest).at_most(highest), (format.bias - 1) as f64);
    // 2^n / 2.
    let scale = reduced.n_bits.shl(format.mantissa).bitcast(x.dtype());
    let whole = scale - 0.5;
    // -0.5 if the scale is so large that `whole` does not contain it. A scale so small that `whole`
    // is -0.5 is not added: then the result is -1, with an error of at most 0.71 ULP.
    let whole_lo = (scale - whole) - 0.5;
    let linear = scale * reduced.exact;
    let (sum, sum_lo) = renormalize(whole, linear);
    // Without the tail of `r`, `scale (e^r - 1 - r)` is `square * curve`.
    let square = linear * reduced.exact;
    let curve = reduced.exact.polynomial(curve);
    let power = square.fma(curve, linear + scale);
    let rest = square.fma(curve, reduced.tail.fma(power, sum_lo + whole_lo));
    let half = sum + rest;
    x.abs().lt(tiny).select(x, half + half)
}

/// `(e^r - 1 - r) / r^2`, error relative to `e^r - 1` 2^-31.104.
const EXPM1_F32: [f64; 6] = [0.5, 0.16666666, 0.041666493, 0.008333546, 0.001393233, 0.00019761563];
