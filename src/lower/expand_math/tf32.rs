//! `tf32`: a float32 number to the nearest with ten bits of significand behind the point, ties away
//! from zero, as `cvt.rna.tf32.f32` does. Half a unit of the last bit that stays is added to the
//! magnitude, the bits behind it go; a carry makes the next exponent, and infinity of the largest.

use super::builder::Value;

/// Bits that go.
const DROPPED: i64 = 13;

/// The rounded number.
pub fn tf32(x: Value<'_>) -> Value<'_> {
    let half = 1 << (DROPPED - 1);
    let bits = (x.bits() + half).shr(DROPPED).shl(DROPPED);
    x.eq(x).select(bits.bitcast(x.dtype()), x)
}
