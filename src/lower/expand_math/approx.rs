//! Functions of float32 by the approximating instructions of GPUs, for `--fast-math`.
//!
//! `exp2`, `log2`, `rsqrt`, `sin`, `cos` and `tanh` stay calls, as each is one instruction. The
//! other functions are computed from these. `docs/MATH.md` lists the errors.

use super::builder::Value;
use crate::ir::{DType, Intrinsic};
use std::f64::consts::{LN_2, LOG2_E};

/// Approximates a call; `None` for other types and functions.
pub fn approximate<'b>(function: Intrinsic, args: &[Value<'b>]) -> Option<Value<'b>> {
    let x = args[0];
    if x.dtype() != DType::Float32 {
        return None;
    }
    let exp2 = |x: Value<'b>| x.call(Intrinsic::Exp2);
    let result = match function {
        Intrinsic::Exp2
        | Intrinsic::Log2
        | Intrinsic::Rsqrt
        | Intrinsic::Sin
        | Intrinsic::Cos
        | Intrinsic::Tanh => x.call(function),
        Intrinsic::Exp => exp2(x * LOG2_E),
        Intrinsic::Log => x.call(Intrinsic::Log2) * LN_2,
        Intrinsic::Sigmoid => 1.0 / (exp2(x * -LOG2_E) + 1.0),
        Intrinsic::Tan => x.call(Intrinsic::Sin) / x.call(Intrinsic::Cos),
        Intrinsic::Pow => pow(x, args[1]),
        // `exp2.approx` minus 1 would lose all digits near 0.
        Intrinsic::Expm1 => return None,
        Intrinsic::Atan | Intrinsic::Erf | Intrinsic::Tf32 | Intrinsic::Fma | Intrinsic::Scalef => {
            return None;
        }
    };
    Some(result)
}

/// Computes the power of the magnitude, with the sign for integral exponents.
fn pow<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let size = (x.abs().call(Intrinsic::Log2) * y).call(Intrinsic::Exp2);
    let half = y * 0.5;
    let is_odd = half.round().ne(half);
    let is_whole = y.round().eq(y);
    let signed = is_odd.select(-size, size);
    let of_negative = is_whole.select(signed, f64::NAN);
    let power = x.lt(0.0).select(of_negative, size);
    let one = x.constant(1.0);
    y.eq(0.0).select(one, x.eq(1.0).select(one, power))
}
