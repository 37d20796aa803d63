//! Functions of float64 with 192 bits, by `astro-float`.

use super::Exact;
use crate::ir::Intrinsic;
use astro_float::{BigFloat, Consts, RoundingMode, Sign};
use std::cell::RefCell;

/// The precision in bits.
const BITS: usize = 192;
const NEAREST: RoundingMode = RoundingMode::ToEven;

thread_local! {
    /// Digits of pi and ln 2, computed on first use.
    static CONSTANTS: RefCell<Consts> =
        RefCell::new(Consts::new().expect("memory for a few digits"));
}

/// Returns `function` of `args`. The caller handles special values.
pub fn evaluate(function: Intrinsic, args: &[f64]) -> Exact {
    CONSTANTS.with_borrow_mut(|consts| {
        let exact = function_value(function, args, consts);
        let nearest = round(&exact);
        if !nearest.is_finite() || exact.is_zero() {
            return Exact::special(nearest);
        }
        let unit = (exponent(&exact) - 53).max(-1074) as i32;
        let mut rest = exact.sub(&number(nearest), BITS, NEAREST);
        if let Some(exponent) = rest.exponent().filter(|_| !rest.is_zero()) {
            rest.set_exponent(exponent - unit);
        }
        Exact { nearest, rest: round(&rest), unit }
    })
}

fn number(x: f64) -> BigFloat {
    if x.is_subnormal() {
        // `from_f64` loses digits of denormal numbers.
        let scaled = BigFloat::from_f64(x * 2f64.powi(200), BITS);
        return scaled.mul(&BigFloat::from_f64(2f64.powi(-200), BITS), BITS, NEAREST);
    }
    BigFloat::from_f64(x, BITS)
}

fn function_value(function: Intrinsic, args: &[f64], consts: &mut Consts) -> BigFloat {
    let x = number(args[0]);
    match function {
        Intrinsic::Rsqrt => x.sqrt(BITS, NEAREST).reciprocal(BITS, NEAREST),
        Intrinsic::Exp => x.exp(BITS, NEAREST, consts),
        Intrinsic::Exp2 => power(&number(2.0), &x, consts),
        // `2 sinh(x/2) e^(x/2)` has no cancellation.
        Intrinsic::Expm1 => {
            let half = x.mul(&number(0.5), BITS, NEAREST);
            let sinh = half.sinh(BITS, NEAREST, consts).mul(&number(2.0), BITS, NEAREST);
            sinh.mul(&half.exp(BITS, NEAREST, consts), BITS, NEAREST)
        }
        Intrinsic::Log => x.ln(BITS, NEAREST, consts),
        // `log2` of `astro-float` is slow if the result is exact.
        Intrinsic::Log2 => {
            let ln_2 = number(2.0).ln(BITS, NEAREST, consts);
            x.ln(BITS, NEAREST, consts).div(&ln_2, BITS, NEAREST)
        }
        Intrinsic::Tanh => x.tanh(BITS, NEAREST, consts),
        Intrinsic::Sigmoid => {
            let power = x.neg().exp(BITS, NEAREST, consts);
            power.add(&number(1.0), BITS, NEAREST).reciprocal(BITS, NEAREST)
        }
        Intrinsic::Erf => erf(args[0], consts),
        Intrinsic::Sin => x.sin(BITS, NEAREST, consts),
        Intrinsic::Cos => x.cos(BITS, NEAREST, consts),
        Intrinsic::Tan => x.tan(BITS, NEAREST, consts),
        Intrinsic::Atan => match args[0].is_infinite() {
            true => number(1e300f64.copysign(args[0])).atan(BITS, NEAREST, consts),
            false => x.atan(BITS, NEAREST, consts),
        },
        Intrinsic::Fma | Intrinsic::Tf32 | Intrinsic::Scalef => {
            crate::bug!("{} is exact", function.name())
        }
        Intrinsic::Pow => {
            let power = power(&x.abs(), &number(args[1]), consts);
            if args[0] < 0.0 && (args[1] % 2.0).abs() == 1.0 { power.neg() } else { power }
        }
    }
}

/// Computes `2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / (3 * 5) + …)`, whose terms have one
/// sign.
fn erf(x: f64, consts: &mut Consts) -> BigFloat {
    if x.abs() > 9.0 {
        return number(1f64.copysign(x));
    }
    let big = number(x);
    let square = big.mul(&big, BITS, NEAREST);
    let double = square.mul(&number(2.0), BITS, NEAREST);
    let (mut term, mut sum, mut odd) = (big.clone(), big, 1.0);
    while exponent(&term) > exponent(&sum) - BITS as i64 {
        odd += 2.0;
        term = term.mul(&double, BITS, NEAREST).div(&number(odd), BITS, NEAREST);
        sum = sum.add(&term, BITS, NEAREST);
    }
    let factor = number(2.0).div(&consts_pi(consts).sqrt(BITS, NEAREST), BITS, NEAREST);
    let power = square.neg().exp(BITS, NEAREST, consts);
    sum.mul(&factor, BITS, NEAREST).mul(&power, BITS, NEAREST)
}

/// Computes `x^y` for positive `x`. `pow` of `astro-float` is slow if the result is nearly exact.
fn power(x: &BigFloat, y: &BigFloat, consts: &mut Consts) -> BigFloat {
    x.ln(BITS, NEAREST, consts).mul(y, BITS, NEAREST).exp(BITS, NEAREST, consts)
}

/// Computes pi as four times the arc tangent of 1.
fn consts_pi(consts: &mut Consts) -> BigFloat {
    number(1.0).atan(BITS, NEAREST, consts).mul(&number(4.0), BITS, NEAREST)
}

/// Returns the binary exponent; a very small one for zero.
fn exponent(x: &BigFloat) -> i64 {
    if x.is_zero() { i64::MIN / 2 } else { x.exponent().map_or(0, i64::from) }
}

/// Rounds to float64, ties to even, with denormals and overflow.
fn round(x: &BigFloat) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    if x.is_inf() {
        return if x.is_inf_pos() { f64::INFINITY } else { f64::NEG_INFINITY };
    }
    let (words, _, sign, exponent, _) = x.as_raw_parts().expect("finite numbers have digits");
    let sign = if sign == Sign::Neg { -1.0 } else { 1.0 };
    if x.is_zero() {
        return sign * 0.0;
    }
    // The value is 0.words * 2^exponent, and the first bit is set.
    let exponent = i64::from(exponent) - 1;
    let (top, below) = words.split_last().expect("numbers have digits");
    if exponent > 1023 {
        return sign * f64::INFINITY;
    }
    let digits = if exponent < -1022 { 53 - (-1022 - exponent) } else { 53 };
    if digits < 0 {
        return sign * 0.0;
    }
    let sticky = below.iter().any(|word| *word != 0);
    let (kept, rest) = match digits {
        0 => (0, *top),
        _ => (*top >> (64 - digits), *top << digits),
    };
    let half = 1 << 63;
    let up = rest > half || (rest == half && (sticky || kept & 1 == 1));
    let unit = f64_power_of_two(exponent - digits + 1);
    sign * (kept + up as u64) as f64 * unit
}

/// Returns `2^exponent`, which may be denormal.
fn f64_power_of_two(exponent: i64) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent + 1074))
    }
}
