//! Quantised operators.

use super::product::product;
use super::{blocks, integer};
use crate::context::{Context, axes, axis_of, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::{Def, T};
use crate::narrow::Rounding;
use crate::node::{Node, Outcome};

/// The element of a scale or zero point for an element of a tensor: one for all, one for each
/// index of an axis, or one for each block.
fn parameter(cx: &Context, own: T, axes: &[Dim], axis: usize, block: i64) -> Outcome<E> {
    let shape = &cx.graph[own].shape;
    if shape.iter().all(Dim::is_one) {
        return Ok(cx.load(own, vec![Dim::zero(); shape.len()]));
    }
    if shape.len() == 1 && block == 0 {
        let at = axes.get(axis).cloned().ok_or("the axis is outside of the tensor")?;
        return Ok(cx.load(own, [at]));
    }
    if shape.len() != axes.len() || block < 1 {
        return Err("the shape of the scale is not supported".into());
    }
    let mut index = axes.to_vec();
    index[axis] = index[axis].div(&block.into());
    Ok(cx.load(own, index))
}

pub(super) fn axis_and_block(
    cx: &Context,
    node: &Node,
    (x, scale): (T, T),
) -> Outcome<(usize, i64)> {
    let rank = cx.rank(x);
    let is_counted = node.has("axis") && !cx.graph[scale].shape.iter().all(Dim::is_one);
    let axis = match axis_of(node.int("axis", 1), rank) {
        Ok(axis) => axis,
        // The axis counts only for several scales.
        Err(_) if rank == 0 || !is_counted => 0,
        Err(error) => return Err(error),
    };
    Ok((axis, node.int("block_size", 0)))
}

pub(crate) fn dequantize(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, scale) = (node.input(0)?, node.input(1)?);
    let dtype = node.dtype("output_dtype")?.unwrap_or(cx.dtype(scale));
    let (axis, block) = axis_and_block(cx, node, (x, scale))?;
    let shape = cx.shape(x);
    let own = axes(&shape);
    let wide = if dtype.is_half() { DType::Float32 } else { dtype };
    let zero = match node.optional(2).filter(|zero| !is_zero(cx, *zero)) {
        Some(zero) => Some(parameter(cx, zero, &own, axis, block)?),
        None => None,
    };
    let load = cx.load(x, own.clone());
    let difference = match zero {
        Some(zero) if cx.dtype(x).is_float() => load.bin("-", zero),
        // Integers of 32 bits do not overflow: their zero point is 0.
        Some(zero) => load.cast(DType::Int32).bin("-", widened(zero, DType::Int32)),
        None => load,
    };
    let factor = parameter(cx, scale, &own, axis, block)?;
    let factor = if cx.dtype(scale) == wide { factor } else { factor.cast(wide) };
    let body = difference.cast(wide).bin("*", factor);
    let body = if wide == dtype { body } else { body.cast(dtype) };
    let y = cx.compute("", dtype, shape, body)?;
    if block > 0 {
        blocks::note(cx, y, (x, scale, node.optional(2)), axis, block);
    }
    Ok(vec![y])
}

/// One known scale as an element of a param. By a literal the compiler divides with its rounded
/// reciprocal, which gives another integer where the quotient is near a tie.
fn divisor(cx: &mut Context, scale: T) -> Outcome<Option<E>> {
    let element = |divisor: T| E::Load(divisor, vec![E::Idx(Dim::zero())]);
    if let Some(known) = cx.integers.divisors.get(&scale) {
        return Ok(Some(element(*known)));
    }
    let own = &cx.graph[scale];
    let Def::Data(data) = &own.def else { return Ok(None) };
    if own.len() != Some(1) {
        return Ok(None);
    }
    let (data, dtype, name) = (data.clone(), own.dtype, own.name.clone());
    let hint = std::mem::replace(&mut cx.hint, name);
    let divisor = cx.data("", dtype, vec![1.into()], data);
    cx.hint = hint;
    let divisor = divisor?;
    cx.integers.divisors.insert(scale, divisor);
    Ok(Some(element(divisor)))
}

/// Whether all elements of a tensor are known to be 0.
fn is_zero(cx: &Context, x: T) -> bool {
    let vals = cx.graph[x].vals.as_ref();
    vals.is_some_and(|vals| vals.iter().all(|value| value.as_f64() == Some(0.0)))
}

/// A cast that folds literals.
fn widened(e: E, dtype: DType) -> E {
    match e {
        E::Lit(value, own) => match value.cast(dtype) {
            Some(value) => E::Lit(value, dtype),
            None => E::Lit(value, own).cast(dtype),
        },
        other => other.cast(dtype),
    }
}

fn whole_range(dtype: DType) -> (i64, i64) {
    let (low, high) = dtype.int_range();
    (low as i64, high as i64)
}

/// Rounds to an integer type with saturation to a range, after the zero point is added.
fn saturated(x: E, zero: Option<E>, dtype: DType, (low, high): (i64, i64), wide: DType) -> E {
    let rounded = E::call("round", [x]);
    let shifted = match zero {
        Some(zero) => rounded.bin("+", widened(zero, wide)),
        None => rounded,
    };
    let bounds = [shifted, E::float(low as f64, wide), E::float(high as f64, wide)];
    E::call("clamp", bounds).cast(dtype)
}

pub(crate) fn quantize(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, scale) = (node.input(0)?, node.input(1)?);
    let narrow = match node.optional(2) {
        Some(zero) => cx.narrow(zero),
        None => node.narrow("output_dtype"),
    };
    let dtype = match (node.optional(2), narrow) {
        (_, Some(own)) => own.carrier(),
        (Some(zero), None) => cx.dtype(zero),
        (None, None) => node.dtype("output_dtype")?.unwrap_or(DType::Uint8),
    };
    if !dtype.is_int() && narrow.is_none() {
        return Err("the element type is not supported".into());
    }
    if narrow.is_none()
        && let Ok(Some(y)) = integer::quantize(cx, node, dtype)
    {
        return Ok(vec![y]);
    }
    let (axis, block) = axis_and_block(cx, node, (x, scale))?;
    let shape = cx.shape(x);
    let own = axes(&shape);
    let wide = match (cx.dtype(x), node.dtype("precision").ok().flatten()) {
        (_, Some(DType::Float64)) | (DType::Float64, None) => DType::Float64,
        (_, None | Some(DType::Float32)) => DType::Float32,
        (_, Some(other)) => {
            return Err(format!("division in {} is not supported", other.name()).into());
        }
    };
    let zero = match node.optional(2).filter(|zero| !is_zero(cx, *zero)) {
        Some(zero) => Some(parameter(cx, zero, &own, axis, block)?),
        None => None,
    };
    let load = cx.load(x, own.clone());
    let load = if cx.dtype(x) == wide { load } else { load.cast(wide) };
    let factor = match divisor(cx, scale)? {
        Some(known) => known,
        None => parameter(cx, scale, &own, axis, block)?,
    };
    let factor = if cx.dtype(scale) == wide { factor } else { widened(factor, wide) };
    let quotient = load.bin("/", factor);
    let y = match narrow {
        Some(own) if own.is_float() => {
            let shifted = match zero {
                Some(zero) => quotient.bin("+", widened(zero, wide)),
                None => quotient,
            };
            let body = own.round(shifted, wide, &Rounding::of(node)?);
            cx.compute("", dtype, shape, body)?
        }
        _ => {
            let range = match narrow {
                Some(own) => own.int_range(),
                None => whole_range(dtype),
            };
            cx.compute("", dtype, shape, saturated(quotient, zero, dtype, range, wide))?
        }
    };
    cx.narrow.extend(narrow.map(|own| (y, own)));
    Ok(vec![y])
}

pub(crate) fn dynamic_quantize(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    Ok(dynamically_quantized(cx, "", x)?.to_vec())
}

/// Quantises a tensor to uint8 by its range with 0. Returns it with its scale, which is 1 if all
/// elements are 0 as in onnxruntime, and its zero point.
pub(crate) fn dynamically_quantized(cx: &mut Context, part: &str, x: T) -> Outcome<[T; 3]> {
    let name = |of: &str| match (part, of) {
        ("", of) => of.to_string(),
        (part, "") => part.to_string(),
        (part, of) => format!("{part}_{of}"),
    };
    let (shape, wide) = (cx.shape(x), DType::Float32);
    let index: Vec<Dim> = shape.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect();
    let load = cx.load(x, index);
    let low = cx.fold(&name("min"), "min", wide, vec![], shape.clone(), load.clone())?;
    let high = cx.fold(&name("max"), "max", wide, vec![], shape.clone(), load)?;
    let zero = || E::float(0.0, wide);
    let (low, high) = (cx.load(low, []), cx.load(high, []));
    let range = E::call("max", [high, zero()]).bin("-", E::call("min", [low.clone(), zero()]));
    let divided = range.clone().bin("/", E::float(255.0, wide));
    let factor = range.bin("==", zero()).choose(E::float(1.0, wide), divided);
    let scale = cx.compute(&name("scale"), wide, vec![], factor)?;
    let factor = cx.load(scale, []);
    let start = zero().bin("-", E::call("min", [low, zero()])).bin("/", factor.clone());
    let bounds = [E::call("round", [start]), zero(), E::float(255.0, wide)];
    let body = E::call("clamp", bounds).cast(DType::Uint8);
    let point = cx.compute(&name("zero_point"), DType::Uint8, vec![], body)?;
    let offset = cx.load(point, []);
    let body = saturated(
        cx.load(x, axes(&shape)).bin("/", factor),
        Some(offset),
        DType::Uint8,
        (0, 255),
        wide,
    );
    let y = cx.compute(&name(""), DType::Uint8, shape, body)?;
    Ok([y, scale, point])
}

/// Subtracts a zero point, in int32. A zero point with several elements belongs to `axis`.
fn centered(cx: &mut Context, part: &str, x: T, zero: Option<T>, axis: usize) -> Outcome<T> {
    let shape = cx.shape(x);
    let own = axes(&shape);
    let load = cx.load(x, own.clone()).cast(DType::Int32);
    let body = match zero.filter(|zero| !is_zero(cx, *zero)) {
        None => load,
        Some(zero) => {
            let value = match parameter(cx, zero, &own, axis, 0) {
                Ok(value) => value,
                Err(_) => cx.load_broadcast(zero, &own),
            };
            load.bin("-", widened(value, DType::Int32))
        }
    };
    cx.compute(part, DType::Int32, shape, body)
}

pub(crate) fn matmul_integer(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (a, b) = (node.input(0)?, node.input(1)?);
    let (rows, columns) = (cx.rank(a).saturating_sub(2), cx.rank(b).saturating_sub(1));
    let a = centered(cx, "left", a, node.optional(2), rows)?;
    let b = centered(cx, "right", b, node.optional(3), columns)?;
    Ok(vec![product(cx, "", a, b)?])
}

/// Scales an int32 sum to a quantised result.
fn requantize(
    cx: &mut Context,
    sum: T,
    scales: [T; 3],
    zero: Option<T>,
    axis: usize,
    dtype: DType,
) -> Outcome<T> {
    let shape = cx.shape(sum);
    let own = axes(&shape);
    let wide = DType::Float32;
    let mut values = Vec::new();
    for scale in scales {
        let value = match parameter(cx, scale, &own, axis, 0) {
            Ok(value) => value,
            Err(_) => cx.load_broadcast(scale, &own),
        };
        values.push(if cx.dtype(scale) == wide { value } else { widened(value, wide) });
    }
    let y = values.remove(2);
    let b = values.remove(1);
    let factor = values.remove(0).bin("*", b).bin("/", y);
    let zero = match zero.filter(|zero| !is_zero(cx, *zero)) {
        Some(zero) => Some(parameter(cx, zero, &own, axis, 0)?),
        None => None,
    };
    let body = saturated(
        cx.load(sum, own).cast(wide).bin("*", factor),
        zero,
        dtype,
        whole_range(dtype),
        wide,
    );
    cx.compute("", dtype, shape, body)
}

pub(crate) fn qlinear_matmul(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (a, b, zero) = (node.input(0)?, node.input(3)?, node.input(7)?);
    let (rows, columns) = (cx.rank(a).saturating_sub(2), cx.rank(b).saturating_sub(1));
    let dtype = cx.dtype(zero);
    if let Ok(Some(y)) = integer::qlinear(cx, node, dtype) {
        return Ok(vec![y]);
    }
    let left = centered(cx, "left", a, node.optional(2), rows)?;
    let right = centered(cx, "right", b, node.optional(5), columns)?;
    let sum = product(cx, "sum", left, right)?;
    let scales = [node.input(1)?, node.input(4)?, node.input(6)?];
    let axis = cx.rank(sum).saturating_sub(1);
    Ok(vec![requantize(cx, sum, scales, Some(zero), axis, dtype)?])
}

/// A convolution node with other operands.
fn convolution(cx: &mut Context, node: &Node, x: T, w: T, bias: Option<T>) -> Outcome<T> {
    let inner = Node {
        op: "Conv",
        opset: node.opset,
        inputs: vec![Some(x), Some(w), bias],
        outputs: vec!["sum"],
        readers: vec![0; 3],
        attributes: node.attributes.clone(),
    };
    super::conv::conv(cx, &inner)?.pop().ok_or_else(|| "no result".into())
}

pub(crate) fn conv_integer(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, w) = (node.input(0)?, node.input(1)?);
    let x = centered(cx, "image", x, node.optional(2), 1)?;
    let w = centered(cx, "weight", w, node.optional(3), 0)?;
    Ok(vec![convolution(cx, node, x, w, None)?])
}

pub(crate) fn qlinear_conv(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, w, zero) = (node.input(0)?, node.input(3)?, node.input(7)?);
    let dtype = cx.dtype(zero);
    if let Ok(Some(y)) = integer::qlinear(cx, node, dtype) {
        return Ok(vec![y]);
    }
    let x = centered(cx, "image", x, node.optional(2), 1)?;
    let w = centered(cx, "weight", w, node.optional(5), 0)?;
    let hint = cx.hint.clone();
    cx.hint = format!("{hint}_product");
    let sum = convolution(cx, node, x, w, node.optional(8))?;
    cx.hint = hint;
    let scales = [node.input(1)?, node.input(4)?, node.input(6)?];
    Ok(vec![requantize(cx, sum, scales, Some(zero), 1, dtype)?])
}
