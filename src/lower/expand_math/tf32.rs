//! `tf32`: rounds a float32 number to ten explicit bits of significand, ties away from zero, as
//! `cvt.rna.tf32.f32` does. It adds half a unit of the last kept bit to the magnitude and clears
//! the bits after it; a carry goes to the exponent, and from the largest one to infinity.

use super::builder::Value;

/// The number of bits that are cleared.
const DROPPED: i64 = 13;

/// Rounds a Float32 number.
pub fn tf32(x: Value<'_>) -> Value<'_> {
    let half = 1 << (DROPPED - 1);
    let bits = (x.bits() + half).shr(DROPPED).shl(DROPPED);
    x.eq(x).select(bits.bitcast(x.dtype()), x)
}
