//! Integer arithmetic for operators between `DequantizeLinear` and `QuantizeLinear` (QDQ).
//!
//! A dequantised tensor stands for `scale * (q - zero)`. As long as it is not rounded, a sum of
//! products of such tensors is an integer times a scale, so the importer remembers what it knows
//! ([`Integers`]) beside the stages as written, and `QuantizeLinear` takes it from there:
//!
//! - [`Exact::Sum`], a convolution or a product with constant weights: an exact int32 sum, one
//!   multiplication in float32, one rounding.
//! - [`Exact::Add`], [`Exact::Mean`]: the same for sums of two tensors and of all elements of a
//!   channel.
//! - Operators that only move or compare elements apply to the integers themselves.
//!
//! What nobody reads is not written, so the stages as written vanish. Where the form is another
//! one, they stay. `docs/NETWORKS.md` states the rounding.
//!
//! The integer tensors of images have their channels last: the factors that an instruction
//! multiplies and adds up are neighbours then, and no kernel transposes. Each has a view with the
//! order of the model, for operators that know nothing of this.

mod images;
mod means;
mod sums;
mod weights;

use std::collections::HashMap;

use super::windows::Windows;
use crate::context::Context;
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// A tensor with the scale and zero point of its elements.
#[derive(Clone)]
pub(crate) struct Quantized {
    pub(crate) q: T,
    pub(crate) scale: T,
    pub(crate) zero: Option<T>,
    /// The axis of several scales.
    pub(crate) axis: usize,
}

/// One scale and zero point for all elements.
#[derive(Clone, Copy, PartialEq)]
struct Level {
    scale: f32,
    zero: i64,
}

/// A float tensor that is an integer times a scale.
#[derive(Clone)]
enum Exact {
    Sum(Box<Sum>),
    Add([Quantized; 2]),
    Mean(Quantized),
}

/// A sum of products with constant weights.
#[derive(Clone)]
struct Sum {
    x: Quantized,
    weight: Quantized,
    bias: Option<T>,
    /// The bias with its scale, which has to be that of the sum; none if the operator implies it.
    scaled_bias: Option<Quantized>,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Convolution {
        windows: Windows,
        groups: i64,
    },
    /// `[…, k] * [k, n]`, the second factor transposed or not.
    Product {
        transposed: bool,
    },
}

/// What is known about integers behind float tensors.
#[derive(Default)]
pub(crate) struct Integers {
    quantized: HashMap<T, Quantized>,
    exact: HashMap<T, (Exact, f64, f64)>,
    /// By the view with the order of the model: the tensor with its channels last.
    channels_last: HashMap<T, T>,
    /// By a scale that quotients are rounded with: the param of one element.
    pub(super) divisors: HashMap<T, T>,
}

/// Takes notes about the results of a node.
pub(crate) fn observe(cx: &mut Context, node: &Node, values: &[T]) -> Outcome<()> {
    let [value] = values else { return Ok(()) };
    let value = *value;
    if cx.dtype(value) != DType::Float32 {
        return Ok(());
    }
    let of = |cx: &Context, at: usize| {
        node.optional(at).and_then(|x| cx.integers.quantized.get(&x).cloned())
    };
    let whole = (f64::NEG_INFINITY, f64::INFINITY);
    match node.op {
        "DequantizeLinear" => {
            let (q, scale) = (node.input(0)?, node.input(1)?);
            let (axis, block) = super::quant::axis_and_block(cx, node, (q, scale))?;
            if block == 0 && cx.dtype(q).is_int() {
                let own = Quantized { q, scale, zero: node.optional(2), axis };
                cx.integers.quantized.insert(value, own);
            }
        }
        "Conv" | "Gemm" | "MatMul" => {
            let (Some(x), Some(weight)) = (of(cx, 0), of(cx, 1)) else { return Ok(()) };
            let bias = match node.optional(2) {
                None => None,
                Some(_) => match of(cx, 2) {
                    None => return Ok(()),
                    bias => bias,
                },
            };
            let Some(form) = form(cx, node, &x, &weight)? else { return Ok(()) };
            let sum = Sum { x, weight, bias: bias.as_ref().map(|b| b.q), scaled_bias: bias, form };
            cx.integers.exact.insert(value, (Exact::Sum(Box::new(sum)), whole.0, whole.1));
        }
        "Add" => {
            let (Some(a), Some(b)) = (of(cx, 0), of(cx, 1)) else { return Ok(()) };
            if cx.shape(a.q) == cx.shape(b.q) {
                cx.integers.exact.insert(value, (Exact::Add([a, b]), whole.0, whole.1));
            }
        }
        "GlobalAveragePool" => {
            if let Some(x) = of(cx, 0) {
                cx.integers.exact.insert(value, (Exact::Mean(x), whole.0, whole.1));
            }
        }
        "Relu" | "Clip" => bound(cx, node, value)?,
        "Flatten" | "Identity" | "MaxPool" | "Reshape" | "Squeeze" | "Transpose" | "Unsqueeze" => {
            if let Some(x) = of(cx, 0).filter(|x| level(cx, x).is_some()) {
                let q = moved(cx, node, x.q)?;
                cx.integers.quantized.insert(value, Quantized { q, ..x });
            }
        }
        _ => {}
    }
    Ok(())
}

/// Takes notes about the bounds of a result.
fn bound(cx: &mut Context, node: &Node, value: T) -> Outcome<()> {
    let x = node.input(0)?;
    let known = |at: usize, name: &str, default: f64| match node.optional(at) {
        Some(bound) => cx.graph.scalar(bound).and_then(Val::as_f64),
        None if node.opset < 11 && node.has(name) => Some(node.float(name, 0.0)),
        None => Some(default),
    };
    let bounds = match node.op {
        "Relu" => Some((0.0, f64::INFINITY)),
        _ => known(1, "min", f64::NEG_INFINITY).zip(known(2, "max", f64::INFINITY)),
    };
    let Some((low, high)) = bounds.filter(|(low, high)| low <= high) else { return Ok(()) };
    let single = node.readers.first() == Some(&1);
    if let Some((exact, from, to)) = cx.integers.exact.get(&x).cloned().filter(|_| single) {
        let own = (exact, from.clamp(low, high), to.clamp(low, high));
        cx.integers.exact.insert(value, own);
    }
    Ok(())
}

/// Applies an operator that moves or compares elements to integers.
fn moved(cx: &mut Context, node: &Node, q: T) -> Outcome<T> {
    if node.op == "MaxPool" && cx.integers.channels_last.contains_key(&q) {
        return images::max_pool(cx, node, q);
    }
    let handler = super::find("", node.op).ok_or("the operator is not supported")?;
    let mut inputs = node.inputs.clone();
    inputs[0] = Some(q);
    let inner = Node {
        op: node.op,
        opset: node.opset,
        inputs,
        outputs: node.outputs.clone(),
        readers: node.readers.clone(),
        attributes: node.attributes.clone(),
    };
    handler(cx, &inner)?.pop().ok_or_else(|| "no result".into())
}

/// How a node sums products; `None` if it is another form.
fn form(cx: &Context, node: &Node, x: &Quantized, weight: &Quantized) -> Outcome<Option<Form>> {
    let (image, shape) = (cx.shape(x.q), cx.shape(weight.q));
    let Some(extents) = shape.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>() else {
        return Ok(None);
    };
    let several = cx.graph[weight.scale].len() != Some(1);
    let own_axis = |axis: usize| !several || weight.axis == axis;
    let form = match node.op {
        "Conv" | "QLinearConv" if own_axis(0) => {
            let windows = Windows::new(node, &image[2..], &extents[2..])?;
            Some(Form::Convolution { windows, groups: node.int("group", 1) })
        }
        "Gemm" => {
            let transposed = node.flag("transB", false);
            let plain = node.float("alpha", 1.0) == 1.0 && node.float("beta", 1.0) == 1.0;
            let fits = plain && !node.flag("transA", false) && image.len() == 2;
            let channel = if transposed { 0 } else { 1 };
            (fits && own_axis(channel)).then_some(Form::Product { transposed })
        }
        "MatMul" | "QLinearMatMul" if shape.len() == 2 && own_axis(1) && image.len() >= 2 => {
            Some(Form::Product { transposed: false })
        }
        _ => None,
    };
    Ok(form)
}

/// The scale and zero point of a tensor that has one of each, and known ones.
fn level(cx: &Context, own: &Quantized) -> Option<Level> {
    let scale = cx.graph.scalar(own.scale)?.as_f64()? as f32;
    let zero = match own.zero {
        Some(zero) => cx.graph.scalar(zero)?.as_int()?,
        None => 0,
    };
    let usable = scale.is_normal() && scale > 0.0 && cx.dtype(own.scale) == DType::Float32;
    usable.then_some(Level { scale, zero })
}

/// The levels of a tensor of bytes.
fn byte_level(cx: &Context, own: &Quantized) -> Option<Level> {
    level(cx, own).filter(|_| cx.dtype(own.q).bytes() == 1)
}

/// Imports `QuantizeLinear` of a tensor that is an integer times a scale; `None` if it is not.
pub(crate) fn quantize(cx: &mut Context, node: &Node, dtype: DType) -> Outcome<Option<T>> {
    let x = node.input(0)?;
    let to = Quantized { q: x, scale: node.input(1)?, zero: node.optional(2), axis: 0 };
    let Some(to) = level(cx, &to).filter(|_| dtype.is_int() && dtype.bytes() == 1) else {
        return Ok(None);
    };
    if let Some(own) = cx.integers.quantized.get(&x)
        && level(cx, own) == Some(to)
        && cx.dtype(own.q) == dtype
    {
        return Ok(Some(own.q));
    }
    let single = node.readers.first() == Some(&1);
    let Some((exact, low, high)) = cx.integers.exact.get(&x).cloned().filter(|_| single) else {
        return Ok(None);
    };
    let target = Target::new(dtype, to, low, high);
    match exact {
        Exact::Sum(sum) => sums::requantized_sum(cx, &sum, &target),
        Exact::Add(terms) => means::requantized_add(cx, &terms, &target),
        Exact::Mean(x) => means::requantized_mean(cx, &x, &target),
    }
}

/// Imports `QLinearConv` and `QLinearMatMul` with constant weights; `None` for others.
pub(crate) fn qlinear(cx: &mut Context, node: &Node, dtype: DType) -> Outcome<Option<T>> {
    let of = |q: usize, axis: usize| -> Outcome<Quantized> {
        let (scale, zero) = (node.input(q + 1)?, node.optional(q + 2));
        Ok(Quantized { q: node.input(q)?, scale, zero, axis })
    };
    let (x, weight) = (of(0, 0)?, of(3, usize::from(node.op == "QLinearMatMul"))?);
    let y = Quantized { q: x.q, scale: node.input(6)?, zero: node.optional(7), axis: 0 };
    let Some(to) = level(cx, &y).filter(|_| dtype.is_int() && dtype.bytes() == 1) else {
        return Ok(None);
    };
    let Some(form) = form(cx, node, &x, &weight)? else { return Ok(None) };
    let sum = Sum { x, weight, bias: node.optional(8), scaled_bias: None, form };
    let target = Target::new(dtype, to, f64::NEG_INFINITY, f64::INFINITY);
    sums::requantized_sum(cx, &sum, &target)
}

/// The type of a result, its level, and its least and greatest element.
struct Target {
    dtype: DType,
    level: Level,
    low: f64,
    high: f64,
}

impl Target {
    /// A result whose values have the given bounds.
    fn new(dtype: DType, level: Level, low: f64, high: f64) -> Target {
        let (least, most) = dtype.int_range();
        let element = |value: f64| {
            let rounded = f64::from((value as f32 / level.scale).round_ties_even());
            (rounded + level.zero as f64).clamp(least as f64, most as f64)
        };
        Target { dtype, level, low: element(low), high: element(high) }
    }

    /// Rounds a float32 value relative to `zero` to a result.
    fn rounded(&self, value: E, zero: i64) -> E {
        let wide = DType::Float32;
        let bound = |element: f64| E::float(element - zero as f64, wide);
        let inside = E::call("clamp", [value, bound(self.low), bound(self.high)]);
        let rounded = E::call("round", [inside]);
        match zero {
            0 => rounded.cast(self.dtype),
            _ => {
                let shift = E::int(zero, DType::Int32);
                rounded.cast(DType::Int32).bin("+", shift).cast(self.dtype)
            }
        }
    }
}
