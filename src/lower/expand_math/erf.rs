//! `erf`, the error function, an odd function: the sign is restored at the end.
//!
//! Float32: two minimax polynomials (`tools/minimax.py`), one of `erf(x) / x` in `x^2` up to 1.1,
//! one of the fourth root of `1 - erf(x)`, a smoother function, up to 4, where the result is 1.
//! Float64: a polynomial for each quarter, up to 6, with coefficients from a table. Largest error
//! measured: `docs/MATH.md`.

use super::builder::Value;
use super::erf_table::{ERF, ROW};
use crate::ir::DType;

/// Computes the error function.
pub fn erf(x: Value<'_>) -> Value<'_> {
    let size = x.abs();
    let magnitude = if x.is_f32() { erf_f32(size) } else { erf_f64(size) };
    magnitude.with_sign_of(x)
}

fn erf_f32(size: Value<'_>) -> Value<'_> {
    let small = size.fma((size * size).polynomial(&ERF_F32), size);
    let root = (size.at_most(4.0) - 2.5).polynomial(&ERFC_F32);
    let square = root * root;
    size.lt(1.1).select(small, (-square).fma(square, 1.0))
}

fn erf_f64(size: Value<'_>) -> Value<'_> {
    let size = size.at_most(6.0);
    let magic = size.format().magic;
    let shifted = size.fma(4.0, magic);
    let t = (shifted - magic).fma(-0.25, size);
    // The low bits count quarters. The mask bounds the low bits of NaN.
    let quarter = (shifted.bits() & 31).bitcast(DType::Int64).min(24);
    let row = quarter * ROW as i64;
    let column = |i: usize| (row + i as i64).load("erf_table", || ERF.to_vec());
    let start = column(ROW - 1);
    let slope = (2..ROW - 1).rev().fold(start, |sum, i| t.fma(sum, column(i)));
    column(0) + t.fma(slope, column(1))
}

/// `erf(x) / x - 1` in `x^2` up to 1.1, error relative to `erf(x)` 2^-27.645.
const ERF_F32: [f64; 7] =
    [0.12837917, -0.3761261, 0.11283364, -0.026843518, 0.005167731, -0.00078247394, 7.236069e-05];

/// The fourth root of `1 - erf(t + 2.5)`, error of its fourth power 2^-26.421, so that the result
/// is exactly 1 from 4 on.
const ERFC_F32: [f64; 8] = [
    0.14203279,
    -0.19006124,
    0.0936301,
    -0.012326656,
    -0.0065031764,
    0.0027548468,
    0.0001068173,
    -0.00017562037,
];
