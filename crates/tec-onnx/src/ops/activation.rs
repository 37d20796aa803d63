//! Activation functions, and functions composed of those of the language.

use crate::context::Context;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

fn unary(cx: &mut Context, node: &Node, f: impl FnOnce(E, DType) -> E) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    Ok(vec![cx.elementwise("", dtype, &[x], |mut e| f(e.remove(0), dtype))?])
}

/// Computes in float32 what has several stages, so that 16-bit floats are rounded once.
fn in_stages(
    cx: &mut Context,
    node: &Node,
    f: impl FnOnce(&mut Context, T, DType) -> Outcome<T>,
) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let wide = cx.widen("input", x)?;
    let wide_type = cx.dtype(wide);
    let result = f(cx, wide, wide_type)?;
    Ok(vec![cx.cast("", result, dtype)?])
}

fn num(value: f64, dtype: DType) -> E {
    E::num(value, dtype)
}

pub(crate) fn relu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    // In this order NaN stays NaN.
    unary(cx, node, |x, dtype| E::call("max", [E::int(0, dtype), x]))
}

pub(crate) fn leaky_relu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let alpha = node.float("alpha", 0.01);
    unary(cx, node, |x, dtype| {
        let negative = x.clone().bin("<", num(0.0, dtype));
        negative.choose(num(alpha, dtype).bin("*", x.clone()), x)
    })
}

pub(crate) fn prelu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, slope) = (node.input(0)?, node.input(1)?);
    let dtype = cx.dtype(x);
    Ok(vec![cx.elementwise("", dtype, &[x, slope], |mut e| {
        let slope = e.remove(1);
        let x = e.remove(0);
        x.clone().bin("<", num(0.0, dtype)).choose(slope.bin("*", x.clone()), x)
    })?])
}

pub(crate) fn thresholded_relu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let alpha = node.float("alpha", 1.0);
    unary(cx, node, |x, dtype| x.clone().bin(">", num(alpha, dtype)).choose(x, num(0.0, dtype)))
}

/// `scale * x` for positive elements, else `scale * alpha * (exp(x / width) - 1)`.
fn exponential(scale: f64, alpha: f64, width: f64) -> impl FnOnce(E, DType) -> E {
    move |x, dtype| {
        let inner = if width == 1.0 { x.clone() } else { x.clone().bin("/", num(width, dtype)) };
        let negative = num(alpha, dtype).bin("*", E::call("expm1", [inner]));
        let positive = x.clone().bin(">", num(0.0, dtype));
        if scale == 1.0 {
            positive.choose(x, negative)
        } else {
            let scale = || num(scale, dtype);
            positive.choose(scale().bin("*", x), scale().bin("*", negative))
        }
    }
}

pub(crate) fn elu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, exponential(1.0, node.float("alpha", 1.0), 1.0))
}

pub(crate) fn selu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (alpha, gamma) = (node.float("alpha", 1.673_263_2), node.float("gamma", 1.050_701));
    unary(cx, node, exponential(gamma, alpha, 1.0))
}

pub(crate) fn celu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let alpha = node.float("alpha", 1.0);
    unary(cx, node, exponential(1.0, alpha, alpha))
}

fn hard_sigmoid_of(x: E, alpha: f64, beta: f64, dtype: DType) -> E {
    let line = num(alpha, dtype).bin("*", x).bin("+", num(beta, dtype));
    E::call("max", [num(0.0, dtype), E::call("min", [num(1.0, dtype), line])])
}

pub(crate) fn hard_sigmoid(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (alpha, beta) = (node.float("alpha", 0.2), node.float("beta", 0.5));
    unary(cx, node, |x, dtype| hard_sigmoid_of(x, alpha, beta, dtype))
}

pub(crate) fn hard_swish(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| {
        x.clone().bin("*", hard_sigmoid_of(x, f64::from(1.0_f32 / 6.0), 0.5, dtype))
    })
}

pub(crate) fn swish(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let alpha = node.float("alpha", 1.0);
    unary(cx, node, |x, dtype| {
        let inner = if alpha == 1.0 { x.clone() } else { num(alpha, dtype).bin("*", x.clone()) };
        x.bin("*", E::call("sigmoid", [inner]))
    })
}

pub(crate) fn swiglu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (gate, x, alpha) = (node.input(0)?, node.input(1)?, node.float("alpha", 1.0));
    let dtype = cx.dtype(gate);
    if cx.dtype(x) != dtype {
        return Err("the operands have different types".into());
    }
    let (a, b) = (cx.shape(gate), cx.shape(x));
    if a.len() != b.len() {
        return Err("the operands have different shapes".into());
    }
    for (a, b) in a.iter().zip(&b) {
        cx.require_equal(a, b)?;
    }
    Ok(vec![cx.elementwise("", dtype, &[gate, x], |mut e| {
        let (x, gate) = (e.remove(1), e.remove(0));
        let inner =
            if alpha == 1.0 { gate.clone() } else { num(alpha, dtype).bin("*", gate.clone()) };
        gate.bin("*", E::call("sigmoid", [inner])).bin("*", x)
    })?])
}

pub(crate) fn gelu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let tanh = node.text("approximate", "none") == "tanh";
    unary(cx, node, |x, dtype| {
        let half = num(0.5, dtype).bin("*", x.clone());
        let inner = if tanh {
            let cube =
                num(0.044_715, dtype).bin("*", x.clone()).bin("*", x.clone()).bin("*", x.clone());
            let factor = num(std::f64::consts::FRAC_2_PI.sqrt(), dtype);
            E::call("tanh", [factor.bin("*", x.bin("+", cube))])
        } else {
            E::call("erf", [x.bin("*", num(std::f64::consts::FRAC_1_SQRT_2, dtype))])
        };
        half.bin("*", num(1.0, dtype).bin("+", inner))
    })
}

/// log(1 + exp(x)), without an overflow.
fn softplus_of(x: E, dtype: DType) -> E {
    let small = E::call("exp", [E::call("abs", [x.clone()]).un("-")]);
    let log = E::call("log", [num(1.0, dtype).bin("+", small)]);
    E::call("max", [x, num(0.0, dtype)]).bin("+", log)
}

pub(crate) fn softplus(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, softplus_of)
}

pub(crate) fn mish(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| x.clone().bin("*", E::call("tanh", [softplus_of(x, dtype)])))
}

pub(crate) fn softsign(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| x.clone().bin("/", num(1.0, dtype).bin("+", E::call("abs", [x]))))
}

pub(crate) fn shrink(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (lambda, bias) = (node.float("lambd", 0.5), node.float("bias", 0.0));
    unary(cx, node, |x, dtype| {
        let low = x.clone().bin("<", num(-lambda, dtype));
        let high = x.clone().bin(">", num(lambda, dtype));
        let (down, up) = (x.clone().bin("+", num(bias, dtype)), x.bin("-", num(bias, dtype)));
        low.choose(down, high.choose(up, num(0.0, dtype)))
    })
}

/// log(1 + u) with a small relative error near 0, where `u` is a stage.
fn log1p(cx: &mut Context, part: &str, u: T) -> Outcome<T> {
    let dtype = cx.dtype(u);
    cx.elementwise(part, dtype, &[u], |mut e| {
        let u = e.remove(0);
        let one = || num(1.0, dtype);
        let w = one().bin("+", u.clone());
        let log = E::call("log", [w.clone()]);
        let infinite = w.clone().bin("==", E::float(f64::INFINITY, dtype));
        let exact = log.clone().bin("*", u.clone().bin("/", w.clone().bin("-", one())));
        w.bin("==", one()).choose(u, infinite.choose(log, exact))
    })
}

pub(crate) fn asin(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| {
        let one = || num(1.0, dtype);
        let square = one().bin("-", x.clone()).bin("*", one().bin("+", x.clone()));
        E::call("atan", [x.bin("/", E::call("sqrt", [square]))])
    })
}

pub(crate) fn acos(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| {
        let one = || num(1.0, dtype);
        let ratio = one().bin("-", x.clone()).bin("/", one().bin("+", x));
        num(2.0, dtype).bin("*", E::call("atan", [E::call("sqrt", [ratio])]))
    })
}

pub(crate) fn sinh(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| {
        let two = || num(2.0, dtype);
        let e = E::call("expm1", [x.clone()]);
        let small = e.clone().bin("+", e.clone().bin("/", e.bin("+", num(1.0, dtype))));
        let large = E::call("exp", [x.clone()]).bin("-", E::call("exp", [x.clone().un("-")]));
        let near = E::call("abs", [x]).bin("<", num(1.0, dtype));
        near.choose(small, large).bin("/", two())
    })
}

pub(crate) fn cosh(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| {
        let sum = E::call("exp", [x.clone()]).bin("+", E::call("exp", [x.un("-")]));
        sum.bin("/", num(2.0, dtype))
    })
}

pub(crate) fn asinh(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    in_stages(cx, node, |cx, x, dtype| {
        let u = cx.elementwise("u", dtype, &[x], |mut e| {
            let x = E::call("abs", [e.remove(0)]);
            let root = E::call("sqrt", [x.clone().bin("*", x.clone()).bin("+", num(1.0, dtype))]);
            let rest = x.clone().bin("*", x.clone().bin("/", num(1.0, dtype).bin("+", root)));
            // The square overflows far from 0, where the root is the number itself.
            let far = x.clone().bin(">", num(1e9, dtype));
            far.choose(x.clone().bin("+", x.clone()), x.bin("+", rest))
        })?;
        let log = log1p(cx, "log", u)?;
        cx.elementwise("wide", dtype, &[x, log], |mut e| {
            let log = e.remove(1);
            e.remove(0).bin("<", num(0.0, dtype)).choose(log.clone().un("-"), log)
        })
    })
}

pub(crate) fn acosh(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    in_stages(cx, node, |cx, x, dtype| {
        let u = cx.elementwise("u", dtype, &[x], |mut e| {
            let x = e.remove(0);
            let t = x.clone().bin("-", num(1.0, dtype));
            let roots = E::call("sqrt", [t.clone()])
                .bin("*", E::call("sqrt", [x.bin("+", num(1.0, dtype))]));
            t.bin("+", roots)
        })?;
        log1p(cx, "wide", u)
    })
}

pub(crate) fn atanh(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    in_stages(cx, node, |cx, x, dtype| {
        let u = cx.elementwise("u", dtype, &[x], |mut e| {
            let x = e.remove(0);
            num(2.0, dtype).bin("*", x.clone()).bin("/", num(1.0, dtype).bin("-", x))
        })?;
        let log = log1p(cx, "log", u)?;
        cx.elementwise("wide", dtype, &[log], |mut e| e.remove(0).bin("/", num(2.0, dtype)))
    })
}
