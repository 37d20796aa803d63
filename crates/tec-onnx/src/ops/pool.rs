//! Pools.

use super::norm::{kept, reduced_index};
use super::slicing;
use super::windows::Windows;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::{Dim, product};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::{Reduce, T};
use crate::node::{Node, Outcome};

/// Reads the windows of a pool and checks its rank.
fn windows(cx: &Context, node: &Node, x: T) -> Outcome<(Windows, Vec<Dim>)> {
    let shape = cx.shape(x);
    if shape.len() < 3 || shape.len() > 5 {
        return Err(format!("pools of rank {} are not supported", shape.len()).into());
    }
    let kernel = node.ints("kernel_shape").ok_or("`kernel_shape` is missing")?;
    let windows = Windows::with_any_pads(node, &shape[2..], kernel)?;
    let mut out = shape[..2].to_vec();
    out.extend(windows.out.iter().cloned());
    Ok((windows, out))
}

/// Pads by `value` if the padding depends on run-time extents: the library pads by constants alone.
fn with_pads(cx: &mut Context, x: T, windows: &mut Windows, value: E) -> Outcome<T> {
    if windows.has_constant_pads() || windows.reach_beyond(&cx.shape(x)[2..]) {
        return Ok(x);
    }
    if windows.out != windows.expected {
        return Err("`auto_pad` of a run-time extent is not supported".into());
    }
    slicing::pad_with(cx, "padded", x, &windows.take_pads(), value)
}

/// The number of elements of a window that are in the operand, along each axis.
fn counts(windows: &Windows, extents: &[Dim], axes: &[Dim]) -> Outcome<Vec<Dim>> {
    let one = |at: usize| {
        let first = axes[at].clone() * windows.strides[at] - &windows.begin[at];
        let end = (first.clone() + windows.kernel[at]).minimum(&extents[at]);
        end - &first.maximum(&Dim::zero())
    };
    if windows.dilations.iter().any(|d| *d != 1) {
        return Err("`auto_pad` of a run-time extent with dilations is not supported".into());
    }
    Ok((0..extents.len()).map(one).collect())
}

/// The name of a kernel of the library for a number of spatial dimensions.
fn for_rank(shape: &[Dim], names: [&'static str; 3]) -> &'static str {
    names[shape.len() - 3]
}

pub(crate) fn max_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (windows, shape) = windows(cx, node, x)?;
    let op = for_rank(&shape, ["max_pool1d", "max_pool2d", "max_pool3d"]);
    let dtype = cx.dtype(x);
    let low = match dtype.is_float() {
        true => E::float(f64::NEG_INFINITY, dtype),
        false => E::int(dtype.int_range().0 as i64, dtype),
    };
    let mut padded = windows.clone();
    let own = with_pads(cx, x, &mut padded, low)?;
    let values = cx.call("", dtype, shape.clone(), op, vec![own], padded.keys(true))?;
    if !node.has_output(1) {
        return Ok(vec![values]);
    }
    // The position of the maximum in the whole tensor.
    let column_major = node.flag("storage_order", false);
    let from = cx.shape(x);
    let own = axes(&shape);
    let extents: Vec<Dim> = windows.kernel.iter().map(|k| (*k).into()).collect();
    let mut index = own[..2].to_vec();
    let mut conditions = Vec::new();
    for (at, begin) in windows.begin.iter().enumerate() {
        let inner = reduce_axis(at, &extents[at]) * windows.dilations[at];
        let place = own[at + 2].clone() * windows.strides[at] + &inner - begin;
        conditions.push(E::Idx(place.clone()).bin(">=", E::Idx(Dim::zero())));
        conditions.push(E::Idx(place.clone()).bin("<", E::Idx(from[at + 2].clone())));
        index.push(place);
    }
    let flat = |order: &mut dyn Iterator<Item = usize>| {
        order.fold(Dim::zero(), |flat, at| &flat * &from[at] + &index[at])
    };
    let position = if column_major {
        let spatial = flat(&mut (2..from.len()).rev());
        let outer = flat(&mut (0..2));
        &outer * &product(&from[2..]) + &spatial
    } else {
        flat(&mut (0..from.len()))
    };
    let value = cx.load(x, index);
    let terms = (E::Idx(position), value);
    let indices = cx.position("indices", "argmax", shape, extents, terms, E::all(conditions))?;
    Ok(vec![values, indices])
}

pub(crate) fn average_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (mut windows, shape) = windows(cx, node, x)?;
    let op = for_rank(&shape, ["avg_pool1d", "avg_pool2d", "avg_pool3d"]);
    let dtype = cx.dtype(x);
    let wide = cx.widen("input", x)?;
    let part = if wide == x { "" } else { "wide" };
    let wide_type = cx.dtype(wide);
    let counts_pads = node.flag("count_include_pad", false);
    if !windows.has_constant_pads() {
        if counts_pads {
            return Err("`count_include_pad` of `auto_pad` is not supported".into());
        }
        let given = windows.clone();
        let padded = with_pads(cx, wide, &mut windows, E::num(0.0, wide_type))?;
        if padded != wide {
            let sum = for_rank(&shape, ["sum_pool1d", "sum_pool2d", "sum_pool3d"]);
            let keys = windows.keys(true);
            let sum = cx.call("sum", wide_type, shape.clone(), sum, vec![padded], keys)?;
            let own = axes(&shape);
            let counts = counts(&given, &cx.shape(x)[2..], &own[2..])?;
            let body = cx.load(sum, own).bin("/", E::dim(&product(&counts), wide_type));
            let mean = cx.compute(part, wide_type, shape, body)?;
            return Ok(vec![cx.cast("", mean, dtype)?]);
        }
    }
    let mut keys = windows.keys(true);
    let padded = windows.begin.iter().chain(&windows.end).any(|pad| *pad != Dim::zero());
    if padded && counts_pads {
        keys.push(("border", "true".to_string()));
    }
    let mean = cx.call(part, wide_type, shape, op, vec![wide], keys)?;
    Ok(vec![cx.cast("", mean, dtype)?])
}

/// A function of an element and its type.
type TermFunction = Box<dyn Fn(E, DType) -> E>;

/// The p-th root of a sum of p-th powers, by the function before and the one after the sum.
fn norm_functions(p: i64) -> Outcome<(TermFunction, TermFunction)> {
    if p < 1 {
        return Err("the order of a norm must be positive".into());
    }
    let before = move |x: E, dtype: DType| match p {
        1 => E::call("abs", [x]),
        2 => x.clone().bin("*", x),
        _ => E::call("pow", [E::call("abs", [x]), E::float(p as f64, dtype)]),
    };
    let after = move |x: E, dtype: DType| match p {
        1 => x,
        2 => E::call("sqrt", [x]),
        _ => E::call("pow", [x, E::float(1.0 / p as f64, dtype)]),
    };
    Ok((Box::new(before), Box::new(after)))
}

pub(crate) fn lp_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (mut windows, shape) = windows(cx, node, x)?;
    let op = for_rank(&shape, ["sum_pool1d", "sum_pool2d", "sum_pool3d"]);
    let dtype = cx.dtype(x);
    let (before, after) = norm_functions(node.int("p", 2))?;
    let x = cx.widen("input", x)?;
    let wide = cx.dtype(x);
    let powers = cx.elementwise("powers", wide, &[x], |mut e| before(e.remove(0), wide))?;
    let powers = with_pads(cx, powers, &mut windows, E::num(0.0, wide))?;
    let sum = cx.call("sum", wide, shape, op, vec![powers], windows.keys(true))?;
    Ok(vec![cx.elementwise("", dtype, &[sum], |mut e| {
        let root = after(e.remove(0), wide);
        if wide == dtype { root } else { root.cast(dtype) }
    })?])
}

/// A reduction over all spatial dimensions.
fn global(
    cx: &mut Context,
    node: &Node,
    kind: &'static str,
    before: impl Fn(E, DType) -> E,
    after: impl Fn(E, DType, &Dim) -> E,
) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let shape = cx.shape(x);
    if shape.len() < 2 {
        return Err("the rank must be at least 2".into());
    }
    let over: Vec<usize> = (2..shape.len()).collect();
    if over.is_empty() {
        return Ok(vec![x]);
    }
    let out = kept(&shape, &over);
    let (index, extents) = reduced_index(&shape, &over);
    let x = cx.widen("input", x)?;
    let wide = cx.dtype(x);
    let body = before(cx.load(x, index), wide);
    let sum = cx.fold(kind, kind, wide, out.clone(), extents, body)?;
    let count = product(&shape[2..]);
    let body = after(cx.load(sum, axes(&out)), wide, &count);
    let body = if wide == dtype { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, out, body)?])
}

pub(crate) fn global_average_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    global(cx, node, "sum", |x, _| x, |x, dtype, count| x.bin("/", E::dim(count, dtype)))
}

pub(crate) fn global_max_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    global(cx, node, "max", |x, _| x, |x, _, _| x)
}

pub(crate) fn global_lp_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (before, after) = norm_functions(node.int("p", 2))?;
    global(cx, node, "sum", before, |x, dtype, _| after(x, dtype))
}

/// Each element divided by the norm of its line along an axis.
pub(crate) fn lp_normalization(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let axis = crate::context::axis_of(node.int("axis", -1), shape.len())?;
    let (before, after) = norm_functions(node.int("p", 2))?;
    let x = cx.widen("input", x)?;
    let wide = cx.dtype(x);
    let small = kept(&shape, &[axis]);
    let (index, extents) = reduced_index(&shape, &[axis]);
    let body = before(cx.load(x, index), wide);
    let sum = cx.fold("sum", "sum", wide, small, extents, body)?;
    Ok(vec![cx.elementwise("", dtype, &[x, sum], |mut e| {
        let norm = after(e.remove(1), wide);
        // A line of zeros stays as it is.
        let zero = norm.clone().bin("==", E::float(0.0, wide));
        let value = zero.choose(E::float(0.0, wide), e.remove(0).bin("/", norm));
        if wide == dtype { value } else { value.cast(dtype) }
    })?])
}

pub(crate) fn max_unpool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    if shape.len() < 3 {
        return Err("the rank must be at least 3".into());
    }
    let kernel = node.ints("kernel_shape").ok_or("`kernel_shape` is missing")?;
    let rank = shape.len() - 2;
    let strides = node.ints("strides").map_or(vec![1; rank], <[i64]>::to_vec);
    let pads = node.ints("pads").map_or(vec![0; 2 * rank], <[i64]>::to_vec);
    let in_range = |list: &[i64]| list.iter().all(|value| (0..=1 << 31).contains(value));
    let fits = kernel.len() == rank && strides.len() == rank && pads.len() == 2 * rank;
    if !fits || !in_range(kernel) || !in_range(&strides) || !in_range(&pads) {
        return Err("the attributes do not fit the rank".into());
    }
    let mut small = shape[..2].to_vec();
    for at in 0..rank {
        let span = kernel[at] - pads[at] - pads[at + rank];
        small.push((shape[at + 2].clone() - 1) * strides[at] + span);
    }
    let out = match node.optional(2) {
        Some(shape) => {
            let declared = cx.declared(0);
            cx.declared_dims(shape, "the shape", declared)?
        }
        None => small.clone(),
    };
    if out.len() != shape.len() {
        return Err("the shape has a wrong rank".into());
    }
    // The indices count in the shape that the pool would have by its attributes.
    let own = axes(&out);
    let inner: Vec<Dim> = shape.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect();
    let flat = small.iter().zip(&own).fold(Dim::zero(), |flat, (n, axis)| &flat * n + axis);
    let place = E::Load(indices, inner.iter().cloned().map(E::Idx).collect());
    let mut conditions = vec![place.bin("==", E::dim(&flat, DType::Int64))];
    for (at, axis) in own.iter().enumerate().skip(2) {
        if out[at] != small[at] {
            conditions.push(E::Idx(axis.clone()).bin("<", E::Idx(small[at].clone())));
        }
    }
    let value = cx.load(x, inner);
    let reduce = Reduce { kind: "sum", extents: shape, condition: E::all(conditions), init: None };
    Ok(vec![cx.reduce("", dtype, out, value, reduce)?])
}
