//! `f16`, `bf16` and their packed pairs.
//!
//! Each operation is computed exactly (in `f64`, rounded to odd) and rounded once; a NaN result is
//! 0x7fff.

use super::{LaneFn, lanes};
use crate::float::{self, BF16, F16, NAN16, Round, bf16_to_f32, f16_to_f32};
use crate::ty::Ty;

/// The scalar function of type `$h` on single or packed lanes.
macro_rules! shape {
    (A1 $packed:expr, $f:expr) => {
        if $packed { lanes!(A1 |a| halves(a, 0, 0, |a, _, _| $f(a))) } else { lanes!(A1 $f) }
    };
    (A2 $packed:expr, $f:expr) => {
        if $packed { lanes!(A2 |a, b| halves(a, b, 0, |a, b, _| $f(a, b))) } else { lanes!(A2 $f) }
    };
    (A3 $packed:expr, $f:expr) => {
        if $packed { lanes!(A3 |a, b, c| halves(a, b, c, $f)) } else { lanes!(A3 $f) }
    };
}

/// The same for both formats.
macro_rules! formats {
    ($shape:ident $ty:expr, $f:ident $(, $extra:literal)*) => {{
        let packed = $ty.bytes() == 4;
        if is_bf16($ty) {
            shape!($shape packed, $f::<true $(, $extra)*>)
        } else {
            shape!($shape packed, $f::<false $(, $extra)*>)
        }
    }};
}

/// `add`, `sub`, `mul`, `min`, `max` and their `.nan` and `.sat` forms.
pub(crate) fn binary(op: &str, ty: Ty) -> Option<LaneFn> {
    Some(match op {
        "add" => formats!(A2 ty, add, 0),
        "sub" => formats!(A2 ty, sub, 0),
        "mul" => formats!(A2 ty, mul, 0),
        "add.sat" => formats!(A2 ty, add, 1),
        "sub.sat" => formats!(A2 ty, sub, 1),
        "mul.sat" => formats!(A2 ty, mul, 1),
        "min" => formats!(A2 ty, min_max, true, false),
        "max" => formats!(A2 ty, min_max, false, false),
        "min.nan" => formats!(A2 ty, min_max, true, true),
        "max.nan" => formats!(A2 ty, min_max, false, true),
        _ => return None,
    })
}

/// `fma`, `fma.sat`, `fma.relu`.
pub(crate) fn fma_fn(op: &str, ty: Ty) -> Option<LaneFn> {
    Some(match op {
        "fma" => formats!(A3 ty, fma, 0),
        "fma.sat" => formats!(A3 ty, fma, 1),
        "fma.relu" => formats!(A3 ty, fma, 2),
        _ => return None,
    })
}

/// `neg`, `abs`, `ex2`, `tanh`.
pub(crate) fn unary(op: &str, ty: Ty) -> Option<LaneFn> {
    let packed = ty.bytes() == 4;
    Some(match op {
        "neg" => shape!(A1 packed, |a: u32| a ^ 0x8000),
        "abs" => shape!(A1 packed, |a: u32| a & 0x7fff),
        "ex2" => formats!(A1 ty, ex2),
        "tanh" => formats!(A1 ty, tanh),
        _ => return None,
    })
}

/// Returns the value of bits of either format.
pub(crate) fn value(is_bf16: bool, bits: u32) -> f32 {
    if is_bf16 { bf16_to_f32(bits) } else { f16_to_f32(bits) }
}

fn is_bf16(ty: Ty) -> bool {
    matches!(ty, Ty::BF16 | Ty::BF16x2)
}

fn halves(a: u32, b: u32, c: u32, f: impl Fn(u32, u32, u32) -> u32) -> u32 {
    let low = f(a & 0xffff, b & 0xffff, c & 0xffff);
    low | f(a >> 16, b >> 16, c >> 16) << 16
}

#[inline]
fn from<const B: bool>(a: u32) -> f64 {
    f64::from(value(B, a & 0xffff))
}

/// Rounds an exact value; `LIMIT` 1 saturates to 0..1, 2 clamps negatives to zero.
#[inline]
fn round<const B: bool, const LIMIT: u8>(exact: f64) -> u32 {
    let exact = match LIMIT {
        1 => {
            if exact > 0.0 {
                exact.min(1.0)
            } else {
                0.0
            }
        }
        2 if exact < 0.0 => 0.0,
        _ => exact,
    };
    let format = if B { BF16 } else { F16 };
    let bits = format.round(exact, Round::Rn) as u32;
    if exact.is_nan() { NAN16 } else { bits }
}

fn add<const B: bool, const LIMIT: u8>(a: u32, b: u32) -> u32 {
    round::<B, LIMIT>(float::add_odd(from::<B>(a), from::<B>(b)))
}

fn sub<const B: bool, const LIMIT: u8>(a: u32, b: u32) -> u32 {
    round::<B, LIMIT>(float::add_odd(from::<B>(a), -from::<B>(b)))
}

fn mul<const B: bool, const LIMIT: u8>(a: u32, b: u32) -> u32 {
    round::<B, LIMIT>(from::<B>(a) * from::<B>(b))
}

fn fma<const B: bool, const LIMIT: u8>(a: u32, b: u32, c: u32) -> u32 {
    round::<B, LIMIT>(float::fma_odd(from::<B>(a), from::<B>(b), from::<B>(c)))
}

fn min_max<const B: bool, const MIN: bool, const NAN: bool>(a: u32, b: u32) -> u32 {
    let (x, y) = (from::<B>(a), from::<B>(b));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => NAN16,
        (true, false) => {
            if NAN {
                NAN16
            } else {
                b
            }
        }
        (false, true) => {
            if NAN {
                NAN16
            } else {
                a
            }
        }
        (false, false) => {
            if x.total_cmp(&y).is_lt() == MIN {
                a
            } else {
                b
            }
        }
    }
}

/// `ex2` of `bf16` has `.ftz`: it flushes a subnormal result to zero.
fn ex2<const B: bool>(a: u32) -> u32 {
    let out = round::<B, 0>(from::<B>(a).exp2());
    if B && out < 0x80 { 0 } else { out }
}

fn tanh<const B: bool>(a: u32) -> u32 {
    round::<B, 0>(from::<B>(a).tanh())
}
