//! Softmax and normalisations.

use super::conv;
use crate::context::{Context, Convolution, axes, axis_of, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The axes over which a softmax runs: one, or before opset 13 all from an axis on.
pub(crate) fn softmax_axes(cx: &Context, node: &Node, x: T) -> Outcome<Vec<usize>> {
    let rank = cx.rank(x);
    let axis = node.int("axis", if node.opset < 13 { 1 } else { -1 });
    if rank == 0 {
        return Ok(Vec::new());
    }
    if node.opset < 13 && axis == rank as i64 {
        return Err("the axis is the rank".into());
    }
    let axis = axis_of(axis, rank)?;
    Ok(if node.opset < 13 { (axis..rank).collect() } else { vec![axis] })
}

/// Index and extents for a reduction over some axes of a tensor; kept axes have their own number.
pub(crate) fn reduced_index(shape: &[Dim], over: &[usize]) -> (Vec<Dim>, Vec<Dim>) {
    let (mut index, mut extents) = (Vec::new(), Vec::new());
    for (at, extent) in shape.iter().enumerate() {
        if over.contains(&at) {
            index.push(reduce_axis(extents.len(), extent));
            extents.push(extent.clone());
        } else {
            index.push(Dim::axis(at, extent));
        }
    }
    (index, extents)
}

/// Extents with 1 for the reduced axes.
pub(crate) fn kept(shape: &[Dim], over: &[usize]) -> Vec<Dim> {
    let dim = |(at, dim): (usize, &Dim)| if over.contains(&at) { 1.into() } else { dim.clone() };
    shape.iter().enumerate().map(dim).collect()
}

pub(crate) fn softmax(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let over = softmax_axes(cx, node, x)?;
    let dtype = cx.dtype(x);
    let wide = cx.widen("input", x)?;
    let part = if wide == x { "" } else { "wide" };
    let result = softmax_over(cx, part, wide, &over)?;
    Ok(vec![cx.cast("", result, dtype)?])
}

/// exp(x) / sum of exp(x) over some axes.
pub(crate) fn softmax_over(cx: &mut Context, part: &str, x: T, over: &[usize]) -> Outcome<T> {
    let (dtype, shape) = (cx.dtype(x), cx.shape(x));
    let rank = shape.len();
    if rank <= 4 && over == [rank.wrapping_sub(1)] {
        let op = ["softmax1", "softmax2", "softmax3", "softmax4"][rank - 1];
        return cx.call(part, dtype, shape, op, vec![x], Vec::new());
    }
    let small = kept(&shape, over);
    let (index, extents) = reduced_index(&shape, over);
    let max =
        cx.fold("max", "max", dtype, small.clone(), extents.clone(), cx.load(x, index.clone()))?;
    let shifted = cx.elementwise("exp", dtype, &[x, max], |mut e| {
        let max = e.remove(1);
        E::call("exp", [e.remove(0).bin("-", max)])
    })?;
    let sum = cx.fold("sum", "sum", dtype, small, extents, cx.load(shifted, index))?;
    cx.elementwise(part, dtype, &[shifted, sum], |mut e| {
        let sum = e.remove(1);
        e.remove(0).bin("/", sum)
    })
}

/// Whether a tensor is computed from parameters alone.
fn is_constant(cx: &Context, tensor: T) -> bool {
    cx.roots(tensor).is_empty()
}

pub(crate) fn batch_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    if node.flag("training_mode", false) || (node.opset < 7 && !node.flag("is_test", false)) {
        return Err("training is not supported".into());
    }
    let [gamma, beta, mean, var] = [node.input(1)?, node.input(2)?, node.input(3)?, node.input(4)?];
    let eps = node.float("epsilon", 1e-5);
    let shape = cx.shape(x);
    if shape.len() < 2 {
        return Err("the rank must be at least 2".into());
    }
    let dtype = cx.dtype(x);
    let wide = if dtype.is_half() { DType::Float32 } else { dtype };
    let channels = vec![shape[1].clone()];
    for parameter in [gamma, beta, mean, var] {
        let own = cx.shape(parameter);
        if own.len() != 1 {
            return Err("the parameters must be vectors".into());
        }
        cx.require_equal(&own[0], &shape[1])?;
    }
    let c = axes(&channels);
    let get = |cx: &Context, t: T| {
        let value = cx.load(t, c.clone());
        if cx.dtype(t) == wide { value } else { value.cast(wide) }
    };
    let root = E::call("sqrt", [get(cx, var).bin("+", E::float(eps, wide))]);
    let body = get(cx, gamma).bin("/", root);
    let scale = cx.compute("scale", wide, channels.clone(), body)?;
    // A convolution that only this node reads takes the factor into its weights.
    if cx.reassociate && node.readers.first() == Some(&1) && wide == dtype {
        let constant = [gamma, beta, mean, var].iter().all(|t| is_constant(cx, *t));
        if let Some(own) = cx.convolutions.get(&x).cloned().filter(|_| constant) {
            let bias_constant = own.bias.is_none_or(|bias| is_constant(cx, bias));
            if bias_constant && is_constant(cx, own.weight) && cx.dtype(own.weight) == dtype {
                let weights = cx.shape(own.weight);
                let at = axes(&weights);
                let factor = cx.load(scale, [at[0].clone()]);
                let body = cx.load(own.weight, at).bin("*", factor);
                let weight = cx.compute("weight", dtype, weights, body)?;
                let offset = match own.bias {
                    Some(bias) => get(cx, bias).bin("-", get(cx, mean)),
                    None => get(cx, mean).un("-"),
                };
                let body = offset.bin("*", cx.load(scale, c.clone())).bin("+", get(cx, beta));
                let bias = cx.compute("bias", dtype, channels, body)?;
                let folded = Convolution { weight, bias: Some(bias), ..own };
                return Ok(vec![conv::emit(cx, &folded, shape)?]);
            }
        }
    }
    let own = axes(&shape);
    let channel = |cx: &Context, t: T| {
        let value = cx.load(t, [own[1].clone()]);
        if cx.dtype(t) == wide { value } else { value.cast(wide) }
    };
    let image = cx.load(x, own.clone());
    let image = if wide == dtype { image } else { image.cast(wide) };
    let body = image.bin("-", channel(cx, mean)).bin("*", channel(cx, scale));
    let body = body.bin("+", channel(cx, beta));
    let body = if wide == dtype { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, shape, body)?])
}
