//! Steps of optimizers, of the domain `ai.onnx.preview.training`.

use crate::context::{Context, axes};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::Handler;

/// The operators of `ai.onnx.preview.training`.
pub(super) const TABLE: &[(&str, Handler)] =
    &[("Adagrad", adagrad), ("Adam", adam), ("Momentum", momentum)];

/// The operands of a step: `kinds` tensors of each parameter, one kind after the other.
struct Step {
    rate: E,
    /// The number of steps before, a float.
    count: E,
    dtype: DType,
    /// The tensors of each parameter.
    parameters: Vec<Vec<T>>,
}

fn step(cx: &Context, node: &Node, kinds: usize) -> Outcome<Step> {
    let (rate, count) = (node.input(0)?, node.input(1)?);
    let len = node.inputs.len().saturating_sub(2);
    if len == 0 || !len.is_multiple_of(kinds) {
        return Err("the number of operands is wrong".into());
    }
    let each = len / kinds;
    let of = |at: usize| (0..kinds).map(|kind| node.input(2 + kind * each + at)).collect();
    let parameters = (0..each).map(of).collect::<Outcome<Vec<Vec<T>>>>()?;
    let dtype = cx.dtype(parameters[0][0]);
    let mut operands = parameters.iter().flatten();
    if !matches!(dtype, DType::Float32 | DType::Float64)
        || operands.any(|operand| cx.dtype(*operand) != dtype)
    {
        return Err("the element types are not supported".into());
    }
    let scalar = |t: T| cx.load(t, vec![Dim::zero(); cx.rank(t)]);
    let one = |t: T| cx.shape(t).iter().all(Dim::is_one);
    if !one(rate) || !one(count) {
        return Err("the rate and the count must have one element".into());
    }
    let rate = if cx.dtype(rate) == dtype { scalar(rate) } else { scalar(rate).cast(dtype) };
    Ok(Step { rate, count: scalar(count).cast(dtype), dtype, parameters })
}

/// Defines an elementwise stage over tensors of equal shapes.
fn stage(cx: &mut Context, part: &str, operands: &[T], f: impl FnOnce(&[E]) -> E) -> Outcome<T> {
    let (shape, dtype) = (cx.shape(operands[0]), cx.dtype(operands[0]));
    for operand in operands {
        let own = cx.shape(*operand);
        if own.len() != shape.len() {
            return Err("the operands have different shapes".into());
        }
        for (a, b) in own.iter().zip(&shape) {
            cx.require_equal(a, b)?;
        }
    }
    let own = axes(&shape);
    let loads: Vec<E> = operands.iter().map(|operand| cx.load(*operand, own.clone())).collect();
    cx.compute(part, dtype, shape, f(&loads))
}

/// The results of all parameters, one kind after the other.
fn by_kind(results: Vec<Vec<T>>) -> Vec<T> {
    let kinds = results.first().map_or(0, Vec::len);
    (0..kinds)
        .flat_map(|kind| results.iter().map(move |own| own[kind]).collect::<Vec<_>>())
        .collect()
}

/// The gradient with that of the norm.
fn regularized(node: &Node, x: &E, g: &E, dtype: DType) -> E {
    let norm = E::float(node.float("norm_coefficient", 0.0), dtype);
    norm.bin("*", x.clone()).bin("+", g.clone())
}

fn momentum(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let own = step(cx, node, 3)?;
    let dtype = own.dtype;
    let number = |value: f64| E::float(value, dtype);
    let (alpha, beta) = (node.float("alpha", 0.0), node.float("beta", 0.0));
    let nesterov = match node.text("mode", "standard") {
        "standard" => false,
        "nesterov" => true,
        mode => return Err(format!("the mode `{mode}` is unknown").into()),
    };
    let mut results = Vec::new();
    for (at, parameter) in own.parameters.iter().enumerate() {
        let v = stage(cx, &format!("momentum{at}"), parameter, |e| {
            let first = own.count.clone().bin(">", number(0.0));
            let factor = first.choose(number(beta), number(1.0));
            let gradient = regularized(node, &e[0], &e[1], dtype);
            number(alpha).bin("*", e[2].clone()).bin("+", factor.bin("*", gradient))
        })?;
        let operands = [parameter[0], parameter[1], v];
        let x = stage(cx, &format!("new{at}"), &operands, |e| {
            let direction = if nesterov {
                let ahead = number(alpha).bin("*", e[2].clone());
                regularized(node, &e[0], &e[1], dtype).bin("+", ahead)
            } else {
                e[2].clone()
            };
            e[0].clone().bin("-", own.rate.clone().bin("*", direction))
        })?;
        results.push(vec![x, v]);
    }
    Ok(by_kind(results))
}

fn adagrad(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let own = step(cx, node, 3)?;
    let dtype = own.dtype;
    let number = |value: f64| E::float(value, dtype);
    let (epsilon, decay) = (node.float("epsilon", 1e-6), node.float("decay_factor", 0.0));
    let mut results = Vec::new();
    for (at, parameter) in own.parameters.iter().enumerate() {
        let h = stage(cx, &format!("squares{at}"), parameter, |e| {
            let gradient = regularized(node, &e[0], &e[1], dtype);
            e[2].clone().bin("+", gradient.clone().bin("*", gradient))
        })?;
        let operands = [parameter[0], parameter[1], h];
        let x = stage(cx, &format!("new{at}"), &operands, |e| {
            let slower = number(1.0).bin("+", own.count.clone().bin("*", number(decay)));
            let rate = own.rate.clone().bin("/", slower);
            let gradient = rate.bin("*", regularized(node, &e[0], &e[1], dtype));
            let root = E::call("sqrt", [e[2].clone()]).bin("+", number(epsilon));
            e[0].clone().bin("-", gradient.bin("/", root))
        })?;
        results.push(vec![x, h]);
    }
    Ok(by_kind(results))
}

fn adam(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let own = step(cx, node, 4)?;
    let dtype = own.dtype;
    let number = |value: f64| E::float(value, dtype);
    let (alpha, beta) = (node.float("alpha", 0.9), node.float("beta", 0.999));
    let epsilon = node.float("epsilon", 1e-6);
    let post = node.float("norm_coefficient_post", 0.0);
    // The correction of both averages, which begin with 0.
    let power = |base: f64| number(1.0).bin("-", E::call("pow", [number(base), own.count.clone()]));
    let corrected =
        own.rate.clone().bin("*", E::call("sqrt", [power(beta)])).bin("/", power(alpha));
    let later = own.count.clone().bin(">", number(0.0));
    let rate = cx.compute("rate", dtype, vec![], later.choose(corrected, own.rate.clone()))?;
    let mut results = Vec::new();
    for (at, parameter) in own.parameters.iter().enumerate() {
        let v = stage(cx, &format!("mean{at}"), parameter, |e| {
            let gradient = regularized(node, &e[0], &e[1], dtype);
            let new = number(1.0 - alpha).bin("*", gradient);
            number(alpha).bin("*", e[2].clone()).bin("+", new)
        })?;
        let h = stage(cx, &format!("squares{at}"), parameter, |e| {
            let gradient = regularized(node, &e[0], &e[1], dtype);
            let new = number(1.0 - beta).bin("*", gradient.clone().bin("*", gradient));
            number(beta).bin("*", e[3].clone()).bin("+", new)
        })?;
        let rate = cx.load(rate, []);
        let x = stage(cx, &format!("new{at}"), &[parameter[0], v, h], |e| {
            let root = E::call("sqrt", [e[2].clone()]).bin("+", number(epsilon));
            let moved = e[0].clone().bin("-", rate.bin("*", e[1].clone().bin("/", root)));
            if post == 0.0 { moved } else { number(1.0 - post).bin("*", moved) }
        })?;
        results.push(vec![x, v, h]);
    }
    Ok(by_kind(results))
}
