//! `f32` and `f64` arithmetic.
//!
//! Results follow IEEE 754; a NaN result of an `f32` operation is 0x7fffffff. `.ftz` flushes
//! subnormal operands and results to zeros of their sign. `.approx` instructions are computed in
//! `f64` and rounded to nearest, so they are more precise than the hardware.

use super::{LaneFn, R32, lanes};
use crate::float::{self, F32, NAN32, Round};

/// The modifiers of a floating-point instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub round: Round,
    pub ftz: bool,
    pub sat: bool,
}

/// Selects the instance of a scalar function `<FTZ, SAT>` or `<RM, FTZ, SAT>`.
macro_rules! instance {
    ($shape:ident $f:ident, $mode:expr) => {
        match ($mode.ftz, $mode.sat) {
            (false, false) => lanes!($shape $f::<false, false>),
            (false, true) => lanes!($shape $f::<false, true>),
            (true, false) => lanes!($shape $f::<true, false>),
            (true, true) => lanes!($shape $f::<true, true>),
        }
    };
    ($shape:ident $f:ident, $rm:literal, $mode:expr) => {
        match ($mode.ftz, $mode.sat) {
            (false, false) => lanes!($shape $f::<$rm, false, false>),
            (false, true) => lanes!($shape $f::<$rm, false, true>),
            (true, false) => lanes!($shape $f::<$rm, true, false>),
            (true, true) => lanes!($shape $f::<$rm, true, true>),
        }
    };
}

macro_rules! rounded {
    ($shape:ident $rn:ident, $other:ident, $mode:expr) => {
        match $mode.round {
            Round::Rz => instance!($shape $other, 1, $mode),
            Round::Rm => instance!($shape $other, 2, $mode),
            Round::Rp => instance!($shape $other, 3, $mode),
            _ => instance!($shape $rn, $mode),
        }
    };
}

/// `add`, `sub`, `mul`, `div`, `min`, `max` (with `.nan`), `copysign` of `f32`.
pub(crate) fn binary32(op: &str, mode: Mode) -> Option<LaneFn> {
    Some(match op {
        "add" => rounded!(A2 add, add_rounded, mode),
        "sub" => rounded!(A2 sub, sub_rounded, mode),
        "mul" => rounded!(A2 mul, mul_rounded, mode),
        "div" => rounded!(A2 div, div_rounded, mode),
        "min" if mode.ftz => lanes!(A2 | a, b | min(float::flush(a), float::flush(b))),
        "max" if mode.ftz => lanes!(A2 | a, b | max(float::flush(a), float::flush(b))),
        "min.nan" if mode.ftz => lanes!(A2 | a, b | min_nan(float::flush(a), float::flush(b))),
        "max.nan" if mode.ftz => lanes!(A2 | a, b | max_nan(float::flush(a), float::flush(b))),
        "min" => lanes!(A2 min),
        "max" => lanes!(A2 max),
        "min.nan" => lanes!(A2 min_nan),
        "max.nan" => lanes!(A2 max_nan),
        "copysign" => lanes!(A2 |a: u32, b: u32| (a & 1 << 31) | (b & !(1 << 31))),
        _ => return None,
    })
}

/// `min` and `max` of three operands.
pub(crate) fn three32(op: &str) -> Option<LaneFn> {
    Some(match op {
        "min" => lanes!(A3 | a, b, c | min(min(a, b), c)),
        "max" => lanes!(A3 | a, b, c | max(max(a, b), c)),
        "min.nan" => lanes!(A3 | a, b, c | min_nan(min_nan(a, b), c)),
        "max.nan" => lanes!(A3 | a, b, c | max_nan(max_nan(a, b), c)),
        _ => return None,
    })
}

/// `neg`, `abs`, `rcp`, `sqrt` and the approximations of `f32`.
pub(crate) fn unary32(op: &str, mode: Mode) -> Option<LaneFn> {
    Some(match op {
        "neg" if mode.ftz => lanes!(A1 | a | float::flush(a) ^ 1 << 31),
        "abs" if mode.ftz => lanes!(A1 | a | float::flush(a) & !(1 << 31)),
        "neg" => lanes!(A1 |a: u32| a ^ 1 << 31),
        "abs" => lanes!(A1 |a: u32| a & !(1 << 31)),
        "rcp" => rounded!(A1 rcp, rcp_rounded, mode),
        "sqrt" => rounded!(A1 sqrt, sqrt_rounded, mode),
        "rsqrt" => approx!(mode, rsqrt),
        "ex2" => approx!(mode, f64::exp2),
        "lg2" => approx!(mode, f64::log2),
        "sin" => approx!(mode, f64::sin),
        "cos" => approx!(mode, f64::cos),
        "tanh" => approx!(mode, f64::tanh),
        _ => return None,
    })
}

macro_rules! approx {
    ($mode:expr, $f:expr) => {
        if $mode.ftz {
            lanes!(A1 | a | through_f64::<true>(a, $f))
        } else {
            lanes!(A1 | a | through_f64::<false>(a, $f))
        }
    };
}
use approx;

/// `fma` of `f32`.
pub(crate) fn fma32(mode: Mode) -> LaneFn {
    let plain = mode.round == Round::Rn && !mode.ftz && !mode.sat;
    if plain && simd::has_fma() {
        return LaneFn::A3(simd::fma);
    }
    rounded!(A3 fma, fma_rounded, mode)
}

/// Two operands of `f64`, rounded to nearest.
pub(crate) fn binary64(op: &str) -> Option<LaneFn> {
    Some(match op {
        "add" => lanes!(B2 | a, b | bits(value(a) + value(b))),
        "sub" => lanes!(B2 | a, b | bits(value(a) - value(b))),
        "mul" => lanes!(B2 | a, b | bits(value(a) * value(b))),
        "div" => lanes!(B2 | a, b | bits(value(a) / value(b))),
        "min" => lanes!(B2 | a, b | pick64(a, b, true)),
        "max" => lanes!(B2 | a, b | pick64(a, b, false)),
        "copysign" => lanes!(B2 |a: u64, b: u64| (a & 1 << 63) | (b & !(1 << 63))),
        _ => return None,
    })
}

/// `neg`, `abs`, `rcp`, `sqrt`, `rsqrt` of `f64`.
pub(crate) fn unary64(op: &str) -> Option<LaneFn> {
    Some(match op {
        "neg" => lanes!(B1 |a: u64| a ^ 1 << 63),
        "abs" => lanes!(B1 |a: u64| a & !(1 << 63)),
        "rcp" => lanes!(B1 | a | bits(1.0 / value(a))),
        "sqrt" => lanes!(B1 | a | bits(value(a).sqrt())),
        "rsqrt" => lanes!(B1 | a | bits(1.0 / value(a).sqrt())),
        _ => return None,
    })
}

pub(crate) fn fma64() -> LaneFn {
    lanes!(B3 | a, b, c | bits(f64::mul_add(value(a), value(b), value(c))))
}

/// `add`, `sub`, `mul` of pairs of `f32` in 64 bits, rounded to nearest.
pub(crate) fn binary_pair(op: &str, ftz: bool) -> Option<LaneFn> {
    fn map_pair(a: u64, b: u64, f: impl Fn(u32, u32) -> u32) -> u64 {
        let high = f((a >> 32) as u32, (b >> 32) as u32);
        u64::from(high) << 32 | u64::from(f(a as u32, b as u32))
    }
    Some(match (op, ftz) {
        ("add", false) => lanes!(B2 | a, b | map_pair(a, b, add::<false, false>)),
        ("sub", false) => lanes!(B2 | a, b | map_pair(a, b, sub::<false, false>)),
        ("mul", false) => lanes!(B2 | a, b | map_pair(a, b, mul::<false, false>)),
        ("add", true) => lanes!(B2 | a, b | map_pair(a, b, add::<true, false>)),
        ("sub", true) => lanes!(B2 | a, b | map_pair(a, b, sub::<true, false>)),
        ("mul", true) => lanes!(B2 | a, b | map_pair(a, b, mul::<true, false>)),
        _ => return None,
    })
}

/// `fma` of pairs of `f32` in 64 bits, rounded to nearest.
pub(crate) fn fma_pair(ftz: bool) -> LaneFn {
    fn map_pair(a: u64, b: u64, c: u64, f: impl Fn(u32, u32, u32) -> u32) -> u64 {
        let high = f((a >> 32) as u32, (b >> 32) as u32, (c >> 32) as u32);
        u64::from(high) << 32 | u64::from(f(a as u32, b as u32, c as u32))
    }
    match ftz {
        false => lanes!(B3 | a, b, c | map_pair(a, b, c, fma::<false, false>)),
        true => lanes!(B3 | a, b, c | map_pair(a, b, c, fma::<true, false>)),
    }
}

/// `testp.finite` and the like: the mask of lanes where it holds.
pub(crate) fn test32(op: &str) -> Option<fn(&R32) -> u32> {
    macro_rules! mask {
        ($f:expr) => {
            |a: &R32| (0..32).fold(0, |m, i| m | u32::from($f(f32::from_bits(a[i]))) << i)
        };
    }
    Some(match op {
        "finite" => mask!(f32::is_finite),
        "infinite" => mask!(f32::is_infinite),
        "number" => mask!(|v: f32| !v.is_nan()),
        "notanumber" => mask!(f32::is_nan),
        "normal" => mask!(f32::is_normal),
        "subnormal" => mask!(f32::is_subnormal),
        _ => return None,
    })
}

#[inline]
fn value(a: u64) -> f64 {
    f64::from_bits(a)
}

#[inline]
fn bits(a: f64) -> u64 {
    a.to_bits()
}

#[inline]
fn input<const FTZ: bool>(a: u32) -> f32 {
    f32::from_bits(if FTZ { float::flush(a) } else { a })
}

/// Returns the bits of a result: the canonical NaN, saturated to 0..1 if `SAT`, subnormals flushed
/// if `FTZ`.
#[inline]
fn output<const FTZ: bool, const SAT: bool>(v: f32) -> u32 {
    if SAT {
        let v = if v > 0.0 { v.min(1.0) } else { 0.0 };
        return if FTZ { float::flush(v.to_bits()) } else { v.to_bits() };
    }
    let out = if v.is_nan() { NAN32 } else { v.to_bits() };
    if FTZ { float::flush(out) } else { out }
}

/// Rounds an exact value, or one rounded to odd, by mode `RM`.
fn directed<const RM: u8, const FTZ: bool, const SAT: bool>(exact: f64) -> u32 {
    let mode = [Round::Rn, Round::Rz, Round::Rm, Round::Rp][RM as usize];
    output::<FTZ, SAT>(f32::from_bits(F32.round(exact, mode) as u32))
}

fn add<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    output::<FTZ, SAT>(input::<FTZ>(a) + input::<FTZ>(b))
}

fn sub<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    output::<FTZ, SAT>(input::<FTZ>(a) - input::<FTZ>(b))
}

fn mul<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    output::<FTZ, SAT>(input::<FTZ>(a) * input::<FTZ>(b))
}

fn div<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    output::<FTZ, SAT>(input::<FTZ>(a) / input::<FTZ>(b))
}

fn rcp<const FTZ: bool, const SAT: bool>(a: u32) -> u32 {
    output::<FTZ, SAT>(1.0 / input::<FTZ>(a))
}

fn sqrt<const FTZ: bool, const SAT: bool>(a: u32) -> u32 {
    output::<FTZ, SAT>(input::<FTZ>(a).sqrt())
}

fn fma<const FTZ: bool, const SAT: bool>(a: u32, b: u32, c: u32) -> u32 {
    output::<FTZ, SAT>(f32::mul_add(input::<FTZ>(a), input::<FTZ>(b), input::<FTZ>(c)))
}

/// Returns the sum of zeros. If their signs differ, it is minus zero only when rounding towards
/// minus infinity.
fn sum_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: f64, b: f64) -> u32 {
    let sum = float::add_odd(a, b);
    if sum == 0.0 && RM == 2 && (a.is_sign_negative() || b.is_sign_negative()) {
        return directed::<RM, FTZ, SAT>(-0.0);
    }
    directed::<RM, FTZ, SAT>(sum)
}

fn add_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    sum_rounded::<RM, FTZ, SAT>(input::<FTZ>(a).into(), input::<FTZ>(b).into())
}

fn sub_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    sum_rounded::<RM, FTZ, SAT>(input::<FTZ>(a).into(), (-input::<FTZ>(b)).into())
}

fn mul_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    directed::<RM, FTZ, SAT>(f64::from(input::<FTZ>(a)) * f64::from(input::<FTZ>(b)))
}

fn div_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    directed::<RM, FTZ, SAT>(float::div_odd(input::<FTZ>(a).into(), input::<FTZ>(b).into()))
}

fn rcp_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: u32) -> u32 {
    directed::<RM, FTZ, SAT>(float::div_odd(1.0, input::<FTZ>(a).into()))
}

fn sqrt_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: u32) -> u32 {
    directed::<RM, FTZ, SAT>(float::sqrt_odd(input::<FTZ>(a).into()))
}

fn fma_rounded<const RM: u8, const FTZ: bool, const SAT: bool>(a: u32, b: u32, c: u32) -> u32 {
    let product = f64::from(input::<FTZ>(a)) * f64::from(input::<FTZ>(b));
    sum_rounded::<RM, FTZ, SAT>(product, input::<FTZ>(c).into())
}

fn through_f64<const FTZ: bool>(a: u32, f: impl Fn(f64) -> f64) -> u32 {
    output::<FTZ, false>(f(f64::from(input::<FTZ>(a))) as f32)
}

fn rsqrt(a: f64) -> f64 {
    1.0 / a.sqrt()
}

/// Orders floats, with minus zero less than zero.
fn total_order(a: u32) -> i32 {
    (a ^ ((a as i32 >> 31) as u32 >> 1)) as i32
}

fn is_nan(a: u32) -> bool {
    a & !(1 << 31) > 0x7f80_0000
}

/// Prefers a number to a NaN.
fn min(a: u32, b: u32) -> u32 {
    match (is_nan(a), is_nan(b)) {
        (false, false) => {
            if total_order(a) < total_order(b) {
                a
            } else {
                b
            }
        }
        (true, true) => NAN32,
        (true, false) => b,
        (false, true) => a,
    }
}

fn max(a: u32, b: u32) -> u32 {
    match (is_nan(a), is_nan(b)) {
        (false, false) => {
            if total_order(a) > total_order(b) {
                a
            } else {
                b
            }
        }
        (true, true) => NAN32,
        (true, false) => b,
        (false, true) => a,
    }
}

fn min_nan(a: u32, b: u32) -> u32 {
    if is_nan(a) || is_nan(b) { NAN32 } else { min(a, b) }
}

fn max_nan(a: u32, b: u32) -> u32 {
    if is_nan(a) || is_nan(b) { NAN32 } else { max(a, b) }
}

fn pick64(a: u64, b: u64, smaller: bool) -> u64 {
    let (x, y) = (value(a), value(b));
    if x.is_nan() {
        return if y.is_nan() { 0x7fff_ffff_ffff_ffff } else { b };
    }
    if y.is_nan() {
        return a;
    }
    let less = x.total_cmp(&y).is_lt();
    if less == smaller { a } else { b }
}

/// `fma` with the instruction of the processor; without it, `f32::mul_add` is a call for each lane.
#[cfg(target_arch = "x86_64")]
mod simd {
    use super::{NAN32, R32};

    pub(super) fn has_fma() -> bool {
        std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2")
    }

    /// Must be selected only if `has_fma` holds.
    pub(super) fn fma(a: &R32, b: &R32, c: &R32) -> R32 {
        // SAFETY: `fma32` detected the features.
        unsafe { fma_avx(a, b, c) }
    }

    #[target_feature(enable = "avx2,fma")]
    fn fma_avx(a: &R32, b: &R32, c: &R32) -> R32 {
        let mut out = [0; 32];
        for i in 0..32 {
            let (x, y, z) = (f32::from_bits(a[i]), f32::from_bits(b[i]), f32::from_bits(c[i]));
            let v = x.mul_add(y, z);
            out[i] = if v.is_nan() { NAN32 } else { v.to_bits() };
        }
        out
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod simd {
    use super::R32;

    pub(super) fn has_fma() -> bool {
        false
    }

    pub(super) fn fma(_: &R32, _: &R32, _: &R32) -> R32 {
        unreachable!("picked only where `has_fma` holds")
    }
}
