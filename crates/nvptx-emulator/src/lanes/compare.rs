//! Comparisons of `setp` and `set`.

use super::{CompareFn, half};
use crate::float;
use crate::ty::Ty;
use std::cmp::Ordering;

macro_rules! mask {
    ($f:expr) => {
        |a, b| {
            let mut out = 0;
            for i in 0..32 {
                out |= u32::from($f(a[i], b[i])) << i;
            }
            out
        }
    };
}

macro_rules! ints {
    ($wrap:path, $op:expr, $view:expr) => {
        match $op {
            "eq" => $wrap(mask!(|a, b| $view(a) == $view(b))),
            "ne" => $wrap(mask!(|a, b| $view(a) != $view(b))),
            "lt" | "lo" => $wrap(mask!(|a, b| $view(a) < $view(b))),
            "le" | "ls" => $wrap(mask!(|a, b| $view(a) <= $view(b))),
            "gt" | "hi" => $wrap(mask!(|a, b| $view(a) > $view(b))),
            "ge" | "hs" => $wrap(mask!(|a, b| $view(a) >= $view(b))),
            _ => return None,
        }
    };
}

macro_rules! floats {
    ($wrap:path, $op:expr, $view:expr) => {
        match $op {
            "eq" => $wrap(mask!(|a, b| $view(a) == $view(b))),
            "ne" => $wrap(mask!(|a, b| {
                matches!($view(a).partial_cmp(&$view(b)), Some(Ordering::Less | Ordering::Greater))
            })),
            "lt" => $wrap(mask!(|a, b| $view(a) < $view(b))),
            "le" => $wrap(mask!(|a, b| $view(a) <= $view(b))),
            "gt" => $wrap(mask!(|a, b| $view(a) > $view(b))),
            "ge" => $wrap(mask!(|a, b| $view(a) >= $view(b))),
            "equ" => $wrap(mask!(|a, b| {
                matches!($view(a).partial_cmp(&$view(b)), None | Some(Ordering::Equal))
            })),
            "neu" => $wrap(mask!(|a, b| $view(a) != $view(b))),
            "ltu" => $wrap(mask!(|a, b| {
                matches!($view(a).partial_cmp(&$view(b)), None | Some(Ordering::Less))
            })),
            "leu" => {
                $wrap(mask!(|a, b| $view(a).partial_cmp(&$view(b)) != Some(Ordering::Greater)))
            }
            "gtu" => $wrap(mask!(|a, b| {
                matches!($view(a).partial_cmp(&$view(b)), None | Some(Ordering::Greater))
            })),
            "geu" => $wrap(mask!(|a, b| $view(a).partial_cmp(&$view(b)) != Some(Ordering::Less))),
            "num" => $wrap(mask!(|a, b| $view(a).partial_cmp(&$view(b)).is_some())),
            "nan" => $wrap(mask!(|a, b| $view(a).partial_cmp(&$view(b)).is_none())),
            _ => return None,
        }
    };
}

/// Returns the comparison `op` of two values of type `ty`.
pub(crate) fn compare(op: &str, ty: Ty, ftz: bool) -> Option<CompareFn> {
    use CompareFn::{C32, C64};
    let is_unsigned = matches!(ty, Ty::U16 | Ty::U32 | Ty::U64);
    let only_equality = ty.is_bits() && !matches!(op, "eq" | "ne");
    if only_equality || (matches!(op, "lo" | "ls" | "hi" | "hs") && !is_unsigned) {
        return None;
    }
    Some(match ty {
        Ty::B16 | Ty::U16 | Ty::B32 | Ty::U32 => ints!(C32, op, |a: u32| a),
        Ty::S16 => ints!(C32, op, |a: u32| a as i16),
        Ty::S32 => ints!(C32, op, |a: u32| a as i32),
        Ty::B64 | Ty::U64 => ints!(C64, op, |a: u64| a),
        Ty::S64 => ints!(C64, op, |a: u64| a as i64),
        Ty::F32 if ftz => floats!(C32, op, |a: u32| f32::from_bits(float::flush(a))),
        Ty::F32 => floats!(C32, op, f32::from_bits),
        Ty::F64 => floats!(C64, op, f64::from_bits),
        Ty::F16 => floats!(C32, op, |a: u32| half::value(false, a)),
        Ty::BF16 => floats!(C32, op, |a: u32| half::value(true, a)),
        _ => return None,
    })
}
