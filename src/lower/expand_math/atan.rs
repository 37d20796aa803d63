//! `atan`, an odd function: the sign is restored at the end.
//!
//! Float32: beyond 1, `atan x = pi/2 + atan(-1/x)`; a minimax polynomial (`tools/minimax.py`) up
//! to 1. Float64: `atan x = atan c + atan((x - c) / (1 + c x))` with `c` one of 0, 1/2, 1, 3/2 and
//! infinity, the steps of fdlibm, so that the polynomial ends at 7/16. Largest error measured:
//! `docs/MATH.md`.

use super::builder::Value;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

/// Computes the arc tangent.
pub fn atan(x: Value<'_>) -> Value<'_> {
    let size = x.abs();
    let magnitude = if x.is_f32() { atan_f32(size) } else { atan_f64(size) };
    magnitude.with_sign_of(x)
}

fn atan_f32(size: Value<'_>) -> Value<'_> {
    let large = size.gt(1.0);
    let t = large.select(-1.0 / size, size);
    let square = t * t;
    let near = (t * square).fma(square.polynomial(&ATAN_F32), t);
    // pi/2 is this times 1.6839188885261840, to 48 bits.
    let quarter = large.select(t.constant(0.932_821_846_407_165_4), 0.0);
    quarter.fma(1.683_918_888_526_184, near)
}

fn atan_f64(size: Value<'_>) -> Value<'_> {
    // From the outermost step inwards: c of the step, atan c and its rounding error.
    let last = size.lt(2.4375);
    let (mut c, mut hi, mut lo) =
        (size.constant(1.5), size.constant(FRAC_PI_2), size.constant(6.123233995736766e-17));
    let steps = [
        (2.4375, 1.5, 0.982793723247329, 1.3903311031230998e-17),
        (1.1875, 1.0, FRAC_PI_4, 3.061616997868383e-17),
        (0.6875, 0.5, 0.4636476090008061, 2.2698777452961687e-17),
        (0.4375, 0.0, 0.0, 0.0),
    ];
    for (limit, step, value, rest) in steps {
        let below = size.lt(limit);
        c = below.select(c.constant(step), c);
        hi = below.select(hi.constant(value), hi);
        lo = below.select(lo.constant(rest), lo);
    }
    let numerator = last.select(size - c, -1.0);
    let divisor = last.select(size.fma(c, 1.0), size);
    let t = numerator / divisor;
    let square = t * t;
    let curve = (t * square).fma(square.polynomial(&ATAN_F64), lo);
    hi + (t + curve)
}

/// `(atan(x) - x) / x^3` in `x^2` up to 1, error relative to `atan(x)` 2^-25.822.
const ATAN_F32: [f64; 8] = [
    -0.33333153,
    0.19993767,
    -0.14211002,
    0.10665769,
    -0.07551662,
    0.043204796,
    -0.01636328,
    0.0029194623,
];

/// `(atan(x) - x) / x^3` in `x^2` up to 7/16, error relative to `atan(x)` 2^-57.696.
const ATAN_F64: [f64; 11] = [
    -0.3333333333333292,
    0.19999999999873752,
    -0.1428571427226722,
    0.1111111039527837,
    -0.09090886880388473,
    0.07691872309230796,
    -0.06661034755945015,
    0.05833327772823569,
    -0.04975929143529469,
    0.03651060222237003,
    -0.01626582168312031,
];
