//! Quantised operators, computed in float32 between a dequantisation and a quantisation.

use super::{apply, int, named};
use crate::context::Context;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::{Handler, activation, elementwise, movement, norm, pool, product, quant};

/// The numbers of an operand with scale and zero point, which are three inputs from `at` on.
fn real(cx: &mut Context, node: &Node, part: &str, at: usize) -> Outcome<T> {
    let inputs = [Some(node.input(at)?), Some(node.input(at + 1)?), node.optional(at + 2)];
    dequantized(cx, part, &inputs, 1)
}

fn dequantized(cx: &mut Context, part: &str, inputs: &[Option<T>], axis: i64) -> Outcome<T> {
    let one: (&str, Handler) = ("DequantizeLinear", quant::dequantize);
    let is_single = inputs[1].is_none_or(|scale| cx.graph[scale].len() == Some(1));
    let list = if is_single { Vec::new() } else { vec![int("axis", axis)] };
    apply(cx, part, one, inputs, named(&list))
}

/// Quantises a result with the scale and zero point at `at`.
fn restored(cx: &mut Context, node: &Node, y: T, at: usize) -> Outcome<Vec<T>> {
    let zero = match node.optional(at + 1) {
        Some(zero) => zero,
        None => {
            let dtype = cx.dtype(node.input(0)?);
            cx.known("zero", dtype, Vec::new(), vec![Val::Int(0.into())])?
        }
    };
    let one: (&str, Handler) = ("QuantizeLinear", quant::quantize);
    let inputs = [Some(y), Some(node.input(at)?), Some(zero)];
    Ok(vec![apply(cx, "", one, &inputs, named(&[]))?])
}

fn binary(cx: &mut Context, node: &Node, one: (&str, Handler)) -> Outcome<Vec<T>> {
    let (a, b) = (real(cx, node, "left", 0)?, real(cx, node, "right", 3)?);
    let y = apply(cx, "result", one, &[Some(a), Some(b)], named(&[]))?;
    restored(cx, node, y, 6)
}

pub(super) fn add(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    binary(cx, node, ("Add", elementwise::add))
}

pub(super) fn mul(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    binary(cx, node, ("Mul", elementwise::mul))
}

fn unary(cx: &mut Context, node: &Node, one: (&str, Handler)) -> Outcome<Vec<T>> {
    let x = real(cx, node, "input", 0)?;
    let y = apply(cx, "result", one, &[Some(x)], node.attributes.clone())?;
    restored(cx, node, y, 3)
}

pub(super) fn sigmoid(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, ("Sigmoid", elementwise::sigmoid))
}

pub(super) fn leaky_relu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, ("LeakyRelu", activation::leaky_relu))
}

pub(super) fn softmax(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    if node.int("opset", 13) < 13 {
        return Err("a softmax before opset 13 is not supported".into());
    }
    unary(cx, node, ("Softmax", norm::softmax))
}

fn channels_first(node: &Node) -> Outcome<()> {
    match node.flag("channels_last", false) {
        true => Err("channels behind the extents of images are not supported".into()),
        false => Ok(()),
    }
}

pub(super) fn average_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    channels_first(node)?;
    unary(cx, node, ("AveragePool", pool::average_pool))
}

pub(super) fn global_average_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    channels_first(node)?;
    unary(cx, node, ("GlobalAveragePool", pool::global_average_pool))
}

pub(super) fn concat(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (scale, zero) = (node.input(0)?, node.input(1)?);
    let mut parts = Vec::new();
    for at in (2..node.inputs.len()).step_by(3) {
        parts.push(Some(real(cx, node, &format!("part{at}"), at)?));
    }
    let one: (&str, Handler) = ("Concat", movement::concat);
    let y = apply(cx, "result", one, &parts, node.attributes.clone())?;
    let one: (&str, Handler) = ("QuantizeLinear", quant::quantize);
    Ok(vec![apply(cx, "", one, &[Some(y), Some(scale), Some(zero)], named(&[]))?])
}

pub(super) fn gemm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let a = real(cx, node, "left", 0)?;
    let axis = if node.flag("transB", false) { 0 } else { 1 };
    let weights = [Some(node.input(3)?), Some(node.input(4)?), node.optional(5)];
    let b = dequantized(cx, "right", &weights, axis)?;
    let alpha = node.float("alpha", 1.0);
    // The bias has the product of the scales.
    let bias = match node.optional(6) {
        None => None,
        Some(bias) => {
            let operands = [bias, node.input(1)?, node.input(4)?];
            Some(cx.elementwise("bias", DType::Float32, &operands, |mut e| {
                let (weight, scale) = (e.pop(), e.pop());
                let factor = E::float(alpha, DType::Float32);
                let scales = weight.into_iter().chain(scale);
                scales.fold(e.remove(0).cast(DType::Float32).bin("*", factor), |product, scale| {
                    product.bin("*", scale)
                })
            })?)
        }
    };
    let one: (&str, Handler) = ("Gemm", product::gemm);
    let y = apply(cx, "result", one, &[Some(a), Some(b), bias], node.attributes.clone())?;
    match node.optional(7) {
        Some(_) => restored(cx, node, y, 7),
        None => Ok(vec![y]),
    }
}

/// The numbers of quantised weights, whose scales may differ by column.
fn weights(cx: &mut Context, node: &Node, inputs: [usize; 3]) -> Outcome<T> {
    let [b, scale, zero] = inputs;
    let axis = cx.rank(node.input(b)?) as i64 - 1;
    let inputs = [Some(node.input(b)?), Some(node.input(scale)?), node.optional(zero)];
    dequantized(cx, "right", &inputs, axis)
}

fn biased(cx: &mut Context, node: &Node, sum: T, at: usize) -> Outcome<Vec<T>> {
    let Some(bias) = node.optional(at) else { return Ok(vec![sum]) };
    let one: (&str, Handler) = ("Add", elementwise::add);
    Ok(vec![apply(cx, "", one, &[Some(sum), Some(bias)], named(&[]))?])
}

pub(super) fn matmul_integer_to_float(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let inputs = [Some(node.input(0)?), Some(node.input(2)?), node.optional(4)];
    let a = dequantized(cx, "left", &inputs, 1)?;
    let b = weights(cx, node, [1, 3, 5])?;
    let sum = product::product(cx, "product", a, b)?;
    biased(cx, node, sum, 6)
}

pub(super) fn dynamic_quantize_matmul(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let [a, scale, zero] = quant::dynamically_quantized(cx, "quantized", x)?;
    let a = dequantized(cx, "left", &[Some(a), Some(scale), Some(zero)], 1)?;
    let b = weights(cx, node, [1, 2, 3])?;
    let sum = product::product(cx, "product", a, b)?;
    biased(cx, node, sum, 4)
}
