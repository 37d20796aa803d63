//! `tanh` and `sigmoid`: quotients of the reduced exponential of `exp`.
//!
//! `tanh |x| = (1 - E) / (1 + E)` with `E = e^(-2|x|)`, from `1 - E` without cancellation;
//! `sigmoid(x) = E / (1 + E)` for negative `x` and `1 / (1 + E)` otherwise with `E = e^(-|x|)`. The
//! exponential and the divisor are unevaluated sums and the quotient is corrected by its
//! remainder where one rounding more would break the bound. Largest error measured: `docs/MATH.md`.

use super::builder::Value;
use super::exp::{power_of_e, reduce, two_step_scale, two_step_shift};
use super::sums::{quotient, renormalize};

/// The hyperbolic tangent.
pub fn tanh(x: Value<'_>) -> Value<'_> {
    // From here on the result is 1.
    let size = x.abs().at_most(if x.is_f32() { 10.0 } else { 20.0 });
    let format = x.format();
    let reduced = reduce(size * -2.0, format.bias as f64);
    let scale = reduced.n_bits.shl(format.mantissa).bitcast(x.dtype());
    let (whole, linear) = (1.0 - scale, scale * reduced.exact);
    let sum = whole - linear;
    let whole_lo = (1.0 - whole) - scale;
    let sum_lo = (-scale).fma(reduced.rest(), ((whole - sum) - linear) + whole_lo);
    let (numerator, numerator_lo) = renormalize(sum, sum_lo);
    let (divisor, divisor_lo) = renormalize(sum.constant(2.0), -numerator);
    let magnitude = quotient((numerator, numerator_lo), (divisor, divisor_lo - numerator_lo));
    magnitude.with_sign_of(x)
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: Value<'_>) -> Value<'_> {
    let negative = x.lt(0.0);
    let size = (-x.abs()).at_least(if x.is_f32() { -104.0 } else { -746.0 });
    let reduced = reduce(size, two_step_shift(x));
    let (hi, lo) = power_of_e(&reduced);
    let (power, power_lo) = renormalize(hi, lo);
    let (first, second) = two_step_scale(x, reduced.n_bits);
    let (exp, exp_lo) = (power * first * second, power_lo * first * second);
    let (divisor, divisor_lo) = renormalize(exp.constant(1.0), exp);
    let numerator = (negative.select(power, 1.0), negative.select(power_lo, 0.0));
    let result = quotient(numerator, (divisor, divisor_lo + exp_lo));
    negative.select(result * first * second, result)
}
