//! Quantised operators, computed in float32 between a dequantisation and a quantisation.

use super::{apply, int, named};
use crate::context::{Context, axes};
use crate::dim::Dim;
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

pub(super) fn matmul_n_bits(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (a, packed, scales) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (k, n) = (node.int("K", 0), node.int("N", 0));
    let (bits, block) = (node.int("bits", 4), node.int("block_size", 32));
    if node.optional(4).is_some() {
        return Err("an order of the groups is not supported".into());
    }
    let sizes = [k, n, block];
    if bits != 4 && bits != 8 || block < 16 || sizes.iter().any(|v| !(1..1 << 31).contains(v)) {
        return Err("the number of bits or the size of the blocks is not supported".into());
    }
    let blocks = (k + block - 1) / block;
    let each = 8 / bits;
    let dtype = cx.dtype(a);
    let bytes = reshaped(cx, "bytes", packed, &[n, blocks, block / each])?;
    let scales = reshaped(cx, "scales", scales, &[n, blocks])?;
    let zeros = match node.optional(3) {
        None => None,
        Some(zeros) if cx.dtype(zeros).is_float() => {
            Some(reshaped(cx, "zeros", zeros, &[n, blocks])?)
        }
        Some(zeros) => Some(reshaped(cx, "zeros", zeros, &[n, (blocks + each - 1) / each])?),
    };
    let wide = DType::Float32;
    let shape: Vec<Dim> = vec![n.into(), k.into()];
    let own = axes(&shape);
    let at = own[1].div(&block.into());
    let inside = own[1].rem(&block.into());
    // The bits of an element of a byte.
    let element = |byte: E, place: &Dim| {
        if bits == 8 {
            return byte.cast(wide);
        }
        let is_high = E::Idx(place.rem(&2.into())).bin("==", E::Idx(1.into()));
        let high = byte.clone().bin(">>", E::int(4, DType::Uint8));
        let low = byte.bin("&", E::int(15, DType::Uint8));
        is_high.choose(high, low).cast(wide)
    };
    let byte = cx.load(bytes, [own[0].clone(), at.clone(), inside.div(&each.into())]);
    let value = element(byte, &inside);
    let zero = match zeros {
        None => E::float(if bits == 4 { 8.0 } else { 128.0 }, wide),
        Some(zeros) if cx.dtype(zeros).is_float() => {
            cx.load(zeros, [own[0].clone(), at.clone()]).cast(wide)
        }
        Some(zeros) => element(cx.load(zeros, [own[0].clone(), at.div(&each.into())]), &at),
    };
    let scale = cx.load(scales, [own[0].clone(), at]).cast(wide);
    let weights = cx.compute("weights", wide, shape, value.bin("-", zero).bin("*", scale))?;
    let weights = crate::ops::slicing::permute(cx, "transposed", weights, &[1, 0])?;
    let a = cx.cast("left", a, wide)?;
    let sum = product::product(cx, "product", a, weights)?;
    let sum = match node.optional(5) {
        None => sum,
        Some(bias) => {
            let bias = cx.cast("bias", bias, wide)?;
            let one: (&str, Handler) = ("Add", elementwise::add);
            apply(cx, "biased", one, &[Some(sum), Some(bias)], named(&[]))?
        }
    };
    Ok(vec![cx.cast("", sum, dtype)?])
}

/// Gives an operand a shape of as many elements.
fn reshaped(cx: &mut Context, part: &str, x: T, to: &[i64]) -> Outcome<T> {
    let to: Vec<Dim> = to.iter().map(|n| Dim::from(*n)).collect();
    if cx.graph[x].len().map(|n| n as i64) != crate::dim::product(&to).as_const() {
        return Err("an operand has a wrong number of elements".into());
    }
    movement::reshape_to(cx, part, x, to)
}
