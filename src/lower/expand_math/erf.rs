//! `erf`, the error function, an odd function: the sign is put back at the end.
//!
//! Float32: two minimax polynomials (`tools/minimax.py`), one of `erf(x) / x` in `x^2` up to 1, one of
//! `1 - erf(x)` from 1 to 3.94, where the result becomes 1. Float64: a polynomial for each quarter,
//! up to 6, with coefficients from a table. Largest error measured: `docs/MATH.md`.

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
    let large = 1.0 - (size.at_most(3.94) - 2.4375).polynomial(&ERFC_F32);
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

/// `1 - erf(t + 2.4375)`, error 2^-24.971.
const ERFC_F32: [f64; 13] = [
    0.0005665136,
    -0.002965697,
    0.007230394,
    -0.010759516,
    0.010692046,
    -0.0072024106,
    0.0030309088,
    -0.00038615256,
    -0.00045379106,
    0.0003125416,
    -4.486921e-05,
    -2.787795e-05,
    9.090753e-06,
];
