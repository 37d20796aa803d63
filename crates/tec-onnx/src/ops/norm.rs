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
pub(crate) fn is_constant(cx: &Context, tensor: T) -> bool {
    cx.roots(tensor).is_empty()
}

pub(crate) fn batch_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    if node.opset < 7 && !node.flag("is_test", false) {
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
    if node.flag("training_mode", false) {
        return batch_norm_in_training(cx, node, x, [gamma, beta, mean, var]);
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
    let centered = image.bin("-", channel(cx, mean));
    let body = if cx.reassociate {
        centered.bin("*", channel(cx, scale))
    } else {
        let variance = channel(cx, var).bin("+", E::float(eps, wide));
        centered.bin("/", E::call("sqrt", [variance])).bin("*", channel(cx, gamma))
    };
    let body = body.bin("+", channel(cx, beta));
    let body = if wide == dtype { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

pub(crate) fn log_softmax(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let over = softmax_axes(cx, node, x)?;
    let dtype = cx.dtype(x);
    let wide = cx.widen("input", x)?;
    let result = log_softmax_over(cx, "wide", wide, &over)?;
    Ok(vec![cx.cast("", result, dtype)?])
}

/// x - log of the sum of exp(x) over some axes.
pub(crate) fn log_softmax_over(cx: &mut Context, part: &str, x: T, over: &[usize]) -> Outcome<T> {
    let (dtype, shape) = (cx.dtype(x), cx.shape(x));
    let small = kept(&shape, over);
    let (index, extents) = reduced_index(&shape, over);
    let load = cx.load(x, index.clone());
    let max = cx.fold("max", "max", dtype, small.clone(), extents.clone(), load)?;
    let shifted = cx.elementwise("shifted", dtype, &[x, max], |mut e| {
        let max = e.remove(1);
        e.remove(0).bin("-", max)
    })?;
    let term = E::call("exp", [cx.load(shifted, index)]);
    let sum = cx.fold("sum", "sum", dtype, small, extents, term)?;
    cx.elementwise(part, dtype, &[shifted, sum], |mut e| {
        let sum = e.remove(1);
        e.remove(0).bin("-", E::call("log", [sum]))
    })
}

pub(crate) fn hardmax(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let over = softmax_axes(cx, node, x)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let small = kept(&shape, &over);
    let (index, extents) = reduced_index(&shape, &over);
    let inner = over.iter().enumerate().map(|(at, axis)| reduce_axis(at, &shape[*axis]));
    let flat = over.iter().zip(inner).fold(Dim::zero(), |flat, (at, k)| &flat * &shape[*at] + &k);
    let terms = (E::Idx(flat), cx.load(x, index));
    let first = cx.position("position", "argmax", small.clone(), extents, terms, None)?;
    let own = axes(&shape);
    let zero = Dim::zero();
    let flat = over.iter().fold(zero, |flat, at| &flat * &shape[*at] + &own[*at]);
    let here = cx.load(first, axes(&small)).bin("==", E::dim(&flat, DType::Int64));
    let body = here.choose(E::num(1.0, dtype), E::num(0.0, dtype));
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

/// The mean over some axes, with 1 for their extents.
pub(crate) fn mean_over(cx: &mut Context, part: &str, x: T, over: &[usize]) -> Outcome<T> {
    let (dtype, shape) = (cx.dtype(x), cx.shape(x));
    let (index, extents) = reduced_index(&shape, over);
    let small = kept(&shape, over);
    let count = crate::dim::product(&extents);
    let load = cx.load(x, index);
    let sum = cx.fold(&format!("{part}_sum"), "sum", dtype, small.clone(), extents, load)?;
    let body = cx.load(sum, axes(&small)).bin("/", E::dim(&count, dtype));
    cx.compute(part, dtype, small, body)
}

/// The difference from the mean, the mean, and 1 / sqrt(variance + eps), over some axes.
fn standardize(cx: &mut Context, x: T, over: &[usize], eps: f64) -> Outcome<(T, T, T)> {
    let dtype = cx.dtype(x);
    let mean = mean_over(cx, "mean", x, over)?;
    let centered = cx.elementwise("centered", dtype, &[x, mean], |mut e| {
        let mean = e.remove(1);
        e.remove(0).bin("-", mean)
    })?;
    let scale = inverse_root_mean_square(cx, centered, over, eps)?;
    Ok((centered, mean, scale))
}

fn inverse_root_mean_square(cx: &mut Context, x: T, over: &[usize], eps: f64) -> Outcome<T> {
    let dtype = cx.dtype(x);
    let squares = cx.elementwise("squares", dtype, &[x], |mut e| {
        let x = e.remove(0);
        x.clone().bin("*", x)
    })?;
    let variance = mean_over(cx, "variance", squares, over)?;
    cx.elementwise("inverse", dtype, &[variance], |mut e| {
        let root = E::call("sqrt", [e.remove(0).bin("+", E::float(eps, dtype))]);
        E::float(1.0, dtype).bin("/", root)
    })
}

/// x * scale * gamma + beta, converted to the type of the result.
fn scaled(
    cx: &mut Context,
    dtype: DType,
    x: T,
    scale: T,
    gamma: Option<T>,
    beta: Option<T>,
) -> Outcome<T> {
    let wide = cx.dtype(x);
    let inputs: Vec<T> = [Some(x), Some(scale), gamma, beta].into_iter().flatten().collect();
    let types: Vec<DType> = inputs.iter().map(|input| cx.dtype(*input)).collect();
    cx.elementwise("", dtype, &inputs, |e| {
        let widened = e.into_iter().zip(types);
        let mut e = widened.map(|(e, own)| if own == wide { e } else { e.cast(wide) });
        let mut body = e.next().unwrap_or(E::float(0.0, wide));
        if let Some(scale) = e.next() {
            body = body.bin("*", scale);
        }
        if let Some(gamma) = gamma.and_then(|_| e.next()) {
            body = body.bin("*", gamma);
        }
        if let Some(beta) = beta.and_then(|_| e.next()) {
            body = body.bin("+", beta);
        }
        if wide == dtype { body } else { body.cast(dtype) }
    })
}

pub(crate) fn layer_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let rank = cx.rank(x);
    let axis = axis_of(node.int("axis", -1), rank)?;
    let over: Vec<usize> = (axis..rank).collect();
    let eps = node.float("epsilon", 1e-5);
    let (gamma, beta) = (node.optional(1), node.optional(2));
    let x = cx.widen("input", x)?;
    let wide = cx.dtype(x);
    let plain =
        |cx: &Context, t: Option<T>| t.is_some_and(|t| cx.rank(t) == 1 && cx.dtype(t) == wide);
    let statistics = node.has_output(1) || node.has_output(2);
    if over.len() == 1 && rank <= 4 && plain(cx, gamma) && plain(cx, beta) && !statistics {
        let op = ["layer_norm1", "layer_norm2", "layer_norm3", "layer_norm4"][rank - 1];
        let args = [Some(x), gamma, beta].into_iter().flatten().collect();
        let part = if wide == dtype { "" } else { "wide" };
        let shape = cx.shape(x);
        let keys = vec![("eps", format!("{:?}", eps as f32))];
        let result = cx.call(part, wide, shape, op, args, keys)?;
        return Ok(vec![cx.cast("", result, dtype)?]);
    }
    let (centered, mean, scale) = standardize(cx, x, &over, eps)?;
    let result = scaled(cx, dtype, centered, scale, gamma, beta)?;
    Ok(vec![result, mean, scale])
}

pub(crate) fn rms_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let rank = cx.rank(x);
    let axis = axis_of(node.int("axis", -1), rank)?;
    let over: Vec<usize> = (axis..rank).collect();
    let x = cx.widen("input", x)?;
    let scale = inverse_root_mean_square(cx, x, &over, node.float("epsilon", 1e-5))?;
    Ok(vec![scaled(cx, dtype, x, scale, node.optional(1), None)?])
}

/// Gives a vector by channel the rank of an image.
fn by_channel(cx: &mut Context, part: &str, x: T, rank: usize) -> Outcome<T> {
    let mut to = cx.shape(x);
    to.resize(rank.saturating_sub(1), 1.into());
    super::movement::reshape_to(cx, part, x, to)
}

pub(crate) fn instance_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (dtype, rank) = (cx.dtype(x), cx.rank(x));
    let over: Vec<usize> = (2..rank).collect();
    let gamma = by_channel(cx, "gamma", node.input(1)?, rank)?;
    let beta = by_channel(cx, "beta", node.input(2)?, rank)?;
    let x = cx.widen("input", x)?;
    let (centered, _, scale) = standardize(cx, x, &over, node.float("epsilon", 1e-5))?;
    Ok(vec![scaled(cx, dtype, centered, scale, Some(gamma), Some(beta))?])
}

pub(crate) fn group_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (dtype, shape) = (cx.dtype(x), cx.shape(x));
    let groups = node.int("num_groups", 1).max(1);
    if shape.len() < 2 {
        return Err("the rank must be at least 2".into());
    }
    let size = shape[1].div(&groups.into());
    let mut split = vec![shape[0].clone(), groups.into(), size];
    split.extend(shape[2..].iter().cloned());
    let x = cx.widen("input", x)?;
    let grouped = super::movement::reshape_to(cx, "grouped", x, split.clone())?;
    let over: Vec<usize> = (2..split.len()).collect();
    let (centered, _, scale) = standardize(cx, grouped, &over, node.float("epsilon", 1e-5))?;
    let wide = cx.dtype(x);
    let normal = cx.elementwise("normal", wide, &[centered, scale], |mut e| {
        let scale = e.remove(1);
        e.remove(0).bin("*", scale)
    })?;
    let normal = super::movement::reshape_to(cx, "flat", normal, shape.clone())?;
    // Up to opset 20 the factors are given by group.
    let (mut factors, own) = (Vec::new(), axes(&shape));
    for at in [1, 2] {
        let factor = node.input(at)?;
        let channel = if node.opset < 21 && cx.shape(factor) != [shape[1].clone()] {
            own[1].div(&shape[1].div(&groups.into()))
        } else {
            own[1].clone()
        };
        let value = cx.load(factor, [channel]);
        factors.push(if cx.dtype(factor) == wide { value } else { value.cast(wide) });
    }
    let beta = factors.remove(1);
    let body = cx.load(normal, own).bin("*", factors.remove(0)).bin("+", beta);
    let body = if wide == dtype { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

pub(crate) fn mean_variance_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let over = crate::context::axes_of(node.ints("axes").unwrap_or(&[0, 2, 3]), cx.rank(x))?;
    let x = cx.widen("input", x)?;
    let wide = cx.dtype(x);
    let mean = mean_over(cx, "mean", x, &over)?;
    let centered = cx.elementwise("centered", wide, &[x, mean], |mut e| {
        let mean = e.remove(1);
        e.remove(0).bin("-", mean)
    })?;
    let squares = cx.elementwise("squares", wide, &[centered], |mut e| {
        let x = e.remove(0);
        x.clone().bin("*", x)
    })?;
    let variance = mean_over(cx, "variance", squares, &over)?;
    Ok(vec![cx.elementwise("", dtype, &[centered, variance], |mut e| {
        let root = E::call("sqrt", [e.remove(1)]).bin("+", E::float(1e-9, wide));
        let value = e.remove(0).bin("/", root);
        if wide == dtype { value } else { value.cast(dtype) }
    })?])
}

pub(crate) fn local_response_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (dtype, shape) = (cx.dtype(x), cx.shape(x));
    let size = node.int("size", 1).clamp(1, 1 << 20);
    if shape.len() < 2 {
        return Err("the rank must be at least 2".into());
    }
    let x = cx.widen("input", x)?;
    let wide = cx.dtype(x);
    // A window of channels, less at the ends.
    let own = axes(&shape);
    let window = Dim::from(size);
    let channel = own[1].clone() + reduce_axis(0, &window) - (size - 1) / 2;
    let mut index = own.clone();
    index[1] = channel.clone();
    let inside = [
        E::Idx(channel.clone()).bin(">=", E::Idx(Dim::zero())),
        E::Idx(channel).bin("<", E::Idx(shape[1].clone())),
    ];
    let load = cx.load(x, index);
    let reduce = crate::graph::Reduce {
        kind: "sum",
        extents: vec![window],
        condition: E::all(inside.to_vec()),
        init: None,
    };
    let body = load.clone().bin("*", load);
    let sum = cx.reduce("squares", wide, shape, body, reduce)?;
    let (alpha, beta) = (node.float("alpha", 1e-4), node.float("beta", 0.75));
    let bias = node.float("bias", 1.0);
    Ok(vec![cx.elementwise("", dtype, &[x, sum], |mut e| {
        let factor = E::float(alpha / size as f64, wide);
        let base = E::float(bias, wide).bin("+", factor.bin("*", e.remove(1)));
        let value = e.remove(0).bin("/", E::call("pow", [base, E::float(beta, wide)]));
        if wide == dtype { value } else { value.cast(dtype) }
    })?])
}

/// A batch normalisation by the statistics of its operand, which it merges with the running ones.
fn batch_norm_in_training(
    cx: &mut Context,
    node: &Node,
    x: T,
    [gamma, beta, mean, var]: [T; 4],
) -> Outcome<Vec<T>> {
    let (dtype, rank) = (cx.dtype(x), cx.rank(x));
    let over: Vec<usize> = (0..rank).filter(|at| *at != 1).collect();
    let eps = node.float("epsilon", 1e-5);
    let wide = cx.widen("input", x)?;
    let (centered, own_mean, scale) = standardize(cx, wide, &over, eps)?;
    let factor = by_channel(cx, "gamma", gamma, rank)?;
    let offset = by_channel(cx, "beta", beta, rank)?;
    let y = scaled(cx, dtype, centered, scale, Some(factor), Some(offset))?;
    let squares = cx.elementwise("own_squares", cx.dtype(wide), &[centered], |mut e| {
        let x = e.remove(0);
        x.clone().bin("*", x)
    })?;
    let own_var = mean_over(cx, "own_variance", squares, &over)?;
    let momentum = node.float("momentum", 0.9);
    let mut outputs = vec![y];
    for (part, old, new) in [("running_mean", mean, own_mean), ("running_var", var, own_var)] {
        let flat = super::movement::reshape_to(cx, &format!("{part}_new"), new, cx.shape(old))?;
        let (old_type, new_type) = (cx.dtype(old), cx.dtype(flat));
        outputs.push(cx.elementwise(part, old_type, &[old, flat], |mut e| {
            let new = e.remove(1);
            let new = if new_type == old_type { new } else { new.cast(old_type) };
            let old = e.remove(0).bin("*", E::float(momentum, old_type));
            old.bin("+", new.bin("*", E::float(1.0 - momentum, old_type)))
        })?);
    }
    Ok(outputs)
}
