//! Range reduction of `sin`, `cos` and `tan`: `x = (n + r) pi/2` with `|r| <= 1/2`, for every
//! finite `x`.
//!
//! Method of Payne and Hanek: only the part of `x * 2/pi` modulo 4 matters, so the bits of 2/pi
//! whose product with `x` is a multiple of 4 are left out, and enough of the following ones are
//! kept. This version uses floating point: for each range of 16 exponents, a table has 2/pi without
//! its leading bits, in parts on fixed grids, so that sums of the products are exact when they
//! cancel.

use super::builder::Value;
use super::sums::{renormalize, two_product, two_sum};
use crate::ir::DType;
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

/// An angle modulo pi/2.
pub struct Angle<'b> {
    /// The quadrant, in the two low bits of an unsigned integer.
    pub quadrant: Value<'b>,
    /// The angle in its quadrant, from -pi/4 to pi/4.
    pub hi: Value<'b>,
    /// Its rounding error.
    pub lo: Value<'b>,
}

/// Returns the quadrant (Uint32) of a Float32 angle, and the remaining angle in Float64.
pub fn reduce_f32(x: Value<'_>) -> (Value<'_>, Value<'_>) {
    let range = x.bits().shr(27) & 15;
    let part = |i: i64| (range + i * 16).load("two_over_pi_f32", table_f32);
    let x = x.cast(DType::Float64);
    let magic = x.format().magic;
    let (first, second) = (part(0), part(1));
    // The product has at most 77 bits; without its integer part it is exact.
    let shifted = x.fma(first, magic);
    let r = x.fma(second, x.fma(first, -(shifted - magic)));
    (shifted.bits().cast(DType::Uint32), r * FRAC_PI_2)
}

/// Reduces a Float64 angle; `quadrant` is Uint64.
pub fn reduce_f64(x: Value<'_>) -> Angle<'_> {
    let range = (x.bits().shr(56) & 127).bitcast(DType::Int64);
    let range = range.max(FIRST_RANGE) - FIRST_RANGE;
    let part = |i: i64| (range + i * RANGES).load("two_over_pi_f64", table_f64);
    let scaled = x * 2f64.powi(-SCALE);
    let (first, first_lo) = two_product(scaled, part(0));
    let (second, second_lo) = two_product(scaled, part(1));
    let (third, third_lo) = two_product(scaled, part(2));
    let tail = scaled.fma(part(3), third_lo);
    // Multiples of 2^-51 of at most 2: the sum is exact.
    let upper = modulo_4(first) + modulo_4(first_lo);
    let lower = modulo_4(second);
    let magic = x.format().magic;
    let shifted = (upper + lower) + magic;
    // The integer cancels most of `upper`, so this subtraction is exact, too. If the sum is small,
    // only its error and the terms below remain.
    let (sum, sum_lo) = two_sum(upper - (shifted - magic), lower);
    let (middle, middle_lo) = two_sum(second_lo, third);
    let (hi, hi_lo) = two_sum(sum, middle);
    let (hi, lo) = renormalize(hi, (sum_lo + hi_lo) + (middle_lo + tail));
    // From quarters of a turn to radians.
    let radians = hi * FRAC_PI_2;
    let rest = lo.fma(FRAC_PI_2, hi.fma(6.123233995736766e-17, hi.fma(FRAC_PI_2, -radians)));
    let (radians, rest) = renormalize(radians, rest);
    // A small angle is its own remainder; the scaled one may have lost bits.
    let small = x.abs().lt(FRAC_PI_4);
    Angle {
        quadrant: small.select(shifted.bits().constant(0), shifted.bits()),
        hi: small.select(x, radians),
        lo: small.select(x.constant(0.0), rest),
    }
}

/// Subtracts the nearest multiple of 4 from `x`, exactly. The result is from -2 to 2.
fn modulo_4(x: Value<'_>) -> Value<'_> {
    (x * 0.25).round().fma(-4.0, x)
}

/// The first range of exponents in the Float64 table: from 2^-15 on.
const FIRST_RANGE: i64 = 63;

/// The number of ranges in the Float64 table.
const RANGES: i64 = 128 - FIRST_RANGE;

/// The Float64 table is scaled by this power of two, as its last numbers would be denormal.
const SCALE: i32 = 200;

/// Returns two parts of 2/pi for each range of 16 exponents of Float32: first all first parts.
fn table_f32() -> Vec<f64> {
    // Below 2^-15 no bits are left out, and the parts of the first range are right.
    let rows: Vec<Vec<f64>> =
        (0..16).map(|range: i64| parts(16 * range.max(7) - 150, 2, 0)).collect();
    by_column(&rows)
}

/// Returns four parts of 2/pi for each range of 16 exponents of Float64, times `2^SCALE`.
fn table_f64() -> Vec<f64> {
    let rows: Vec<Vec<f64>> =
        (FIRST_RANGE..128).map(|range| parts(16 * range - 1075, 4, SCALE)).collect();
    by_column(&rows)
}

fn by_column(rows: &[Vec<f64>]) -> Vec<f64> {
    (0..rows[0].len()).flat_map(|i| rows.iter().map(move |row| row[i])).collect()
}

/// Returns `2/pi` for numbers that are multiples of `u = 2^unit`: without its multiples of `4 / u`,
/// in `count` parts, multiples of `2^-51 / u`, `2^-104 / u`, …; all times `2^scale`.
fn parts(unit: i64, count: i64, scale: i32) -> Vec<f64> {
    let bits = 64 * TWO_OVER_PI.len() as i64;
    let mut left =
        TWO_OVER_PI.iter().fold(BigInt::from(0), |sum, word| (sum << 64) + BigInt::from(*word));
    left = if unit >= 0 { left << unit } else { left >> -unit };
    left %= BigInt::from(1) << (bits + 2);
    (0..count)
        .map(|i| {
            let grid = 51 + 53 * i;
            let below = bits - grid;
            // Rounded down: with no negative part, the remainder of -0 is -0.
            let part: BigInt = &left >> below;
            left -= &part << below;
            let digits = part.to_f64().expect("at most 53 bits");
            let exponent = scale as i64 - grid - unit;
            // In two steps, because one power of two could overflow or underflow.
            digits * 2f64.powi((exponent / 2) as i32) * 2f64.powi((exponent - exponent / 2) as i32)
        })
        .collect()
}

/// The bits of 2/pi after the binary point (`tools/minimax.py two_over_pi`).
const TWO_OVER_PI: [u64; 20] = [
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
    0xf0cfbc209af4361d,
];
