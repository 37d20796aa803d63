//! `erf`, the error function, an odd function: the sign is put back at the end.
//!
//! Float32: two minimax polynomials (`tools/minimax.py`), one of `erf(x) / x` in `x^2` up to 1, one
//! of `1 - erf(x)` from 1 to 4, where the result is 1. Float64: a polynomial for each quarter, up
//! to 6, with coefficients from a table. Largest error measured: `docs/MATH.md`.

use super::builder::Value;
use super::erf_table::{ERF, ROW};

/// The error function.
pub fn erf(x: Value<'_>) -> Value<'_> {
    let size = x.abs();
    let magnitude = if x.is_f32() { erf_f32(size) } else { erf_f64(size) };
    magnitude.with_sign_of(x)
}

fn erf_f32(size: Value<'_>) -> Value<'_> {
    let small = size.fma((size * size).polynomial(&ERF_F32), size);
    let large = 1.0 - (size.at_most(4.0) - 2.5).polynomial(&ERFC_F32);
    size.lt(1.0).select(small, large)
}

fn erf_f64(size: Value<'_>) -> Value<'_> {
    let size = size.at_most(6.0);
    let magic = size.format().magic;
    let shifted = size.fma(4.0, magic);
    let t = (shifted - magic).fma(-0.25, size);
    // The low bits count quarters. The mask is for NaN, whose low bits may be anything.
    let row = (shifted.bits() & 31).min(24) * ROW as i64;
    let column = |i: usize| (row + i as i64).load("erf_table", || ERF.to_vec());
    let start = column(ROW - 1);
    let slope = (2..ROW - 1).rev().fold(start, |sum, i| t.fma(sum, column(i)));
    column(0) + t.fma(slope, column(1))
}

/// `erf(x) / x - 1` in `x^2`, error relative to `erf(x)` 2^-29.386.
const ERF_F32: [f64; 7] =
    [0.12837917, -0.37612626, 0.11283579, -0.026853347, 0.005187162, -0.0007997853, 7.806904e-05];

/// `1 - erf(t + 2.5)`, error 2^-26.656, so that the result is exactly 1 from 4 on.
const ERFC_F32: [f64; 15] = [
    0.00040695266,
    -0.0021781889,
    0.005445677,
    -0.008351716,
    0.008622683,
    -0.0061093005,
    0.0027973577,
    -0.00056006823,
    -0.00025849263,
    0.0002704014,
    -8.1248385e-05,
    -1.7683002e-05,
    1.576518e-05,
    -5.091428e-07,
    -8.9575775e-07,
];
