//! `rsqrt`, the reciprocal square root.
//!
//! With `s` the rounded square root and `q` the rounded reciprocal of `s`, the exact residues
//! `x - s^2` and `1 - q s` correct `q` to first order, which leaves an error just over half a unit
//! in the last place. Arguments so small that `x - s^2` would not be exact are scaled first.

use super::builder::Value;

/// Computes `1 / sqrt(x)`.
pub fn rsqrt(x: Value<'_>) -> Value<'_> {
    let (small, up, down) = if x.is_f32() {
        (2f64.powi(-100), 2f64.powi(48), 2f64.powi(24))
    } else {
        (2f64.powi(-900), 2f64.powi(110), 2f64.powi(55))
    };
    let is_small = x.lt(small);
    let scaled = is_small.select(x * up, x);
    let root = scaled.sqrt();
    let first = 1.0 / root;
    let square_residue = (-root).fma(root, scaled);
    let residue = (-first).fma(root, 1.0);
    let half = square_residue * first * -0.5;
    let corrected = first.fma(half.fma(first, residue), first);
    // For zero, infinity and negative numbers the correction is NaN and is not needed.
    let result = corrected.eq(corrected).select(corrected, first);
    is_small.select(result * down, result)
}
