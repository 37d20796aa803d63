//! Functions of float32 in float64 arithmetic, with a relative error of a few times 2^-52.

use crate::ir::Intrinsic;

/// Returns `function` of `args`. The caller handles special values.
pub fn evaluate(function: Intrinsic, args: &[f64]) -> f64 {
    let x = args[0];
    match function {
        Intrinsic::Rsqrt => 1.0 / x.sqrt(),
        Intrinsic::Exp => x.exp(),
        Intrinsic::Exp2 => x.exp2(),
        Intrinsic::Expm1 => x.exp_m1(),
        Intrinsic::Log => x.ln(),
        Intrinsic::Log2 => x.log2(),
        Intrinsic::Tanh => x.tanh(),
        Intrinsic::Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
        Intrinsic::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Intrinsic::Erf => erf(x),
        Intrinsic::Sin => x.sin(),
        Intrinsic::Cos => x.cos(),
        Intrinsic::Tan => x.tan(),
        Intrinsic::Atan => x.atan(),
        Intrinsic::Pow => x.powf(args[1]),
        Intrinsic::Fma | Intrinsic::Tf32 | Intrinsic::Scalef => {
            crate::bug!("{} is exact", function.name())
        }
    }
}

/// Computes `2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / (3 * 5) + …)`, whose terms have one
/// sign. The square of a float32 number is exact.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return 1f64.copysign(x);
    }
    let square = x * x;
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > sum.abs() * 2f64.powi(-55) {
        odd += 2.0;
        term *= 2.0 * square / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-square).exp() * sum
}
