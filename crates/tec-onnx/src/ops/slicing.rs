//! Operators that select, repeat or reorder parts of a tensor.

use super::movement::reshape_to;
use crate::context::{Context, axes, axes_of, axis_of};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome, Refusal};
use crate::run_time::{Elements, axis_sets, run_time_axes, wide};

pub(crate) fn transpose(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let rank = cx.rank(x);
    let order: Vec<i64> = match node.ints("perm") {
        Some(order) => order.to_vec(),
        None => (0..rank as i64).rev().collect(),
    };
    let order = axes_of(&order, rank)?;
    if order.len() != rank {
        return Err("`perm` does not name each axis".into());
    }
    let y = permute(cx, "", x, &order)?;
    if order[..] == [1, 0] {
        super::blocks::note_transposed(cx, x, y);
    }
    Ok(vec![y])
}

/// Reorders dimensions: dimension `i` of the result is `order[i]` of the operand.
pub(crate) fn permute(cx: &mut Context, part: &str, x: T, order: &[usize]) -> Outcome<T> {
    let shape = cx.shape(x);
    let dtype = cx.dtype(x);
    let to: Vec<Dim> = order.iter().map(|at| shape[*at].clone()).collect();
    let own = axes(&to);
    let mut index = vec![Dim::zero(); shape.len()];
    for (at, from) in order.iter().enumerate() {
        index[*from] = own[at].clone();
    }
    cx.compute(part, dtype, to, cx.load(x, index))
}

/// The axes of Squeeze and Unsqueeze: an input, or before opset 13 an attribute.
fn listed_axes(cx: &Context, node: &Node) -> Outcome<Option<Vec<i64>>> {
    match node.optional(1) {
        Some(axes) => cx.ints(axes, "the axes").map(Some),
        None => Ok(node.ints("axes").map(<[i64]>::to_vec)),
    }
}

/// Removes or adds dimensions of 1 at axes of run time: the declared shape, which the axes must
/// give.
fn reshaped_at_run_time(
    cx: &mut Context,
    (x, axes): (T, T),
    named: &Elements,
    adds: bool,
) -> Outcome<Vec<T>> {
    let refuse = || Refusal::NotConstant("the axes".to_string(), axes);
    let to = cx.declared(0).ok_or_else(refuse)?;
    let shape = cx.shape(x);
    let (large, small) = if adds { (&to, &shape) } else { (&shape, &to) };
    let is_removed = |over: &[usize]| {
        let rest = large.iter().enumerate().filter(|(at, _)| !over.contains(at));
        over.iter().all(|at| large[*at].is_one()) && rest.map(|(_, dim)| dim).eq(small)
    };
    let rank = large.len();
    let sets = axis_sets(rank, named.list.len(), &is_removed).ok_or_else(refuse)?;
    let conditions = sets.iter().map(|over| named.are_axes(over, rank)).collect();
    let any = E::any(conditions).ok_or("no axes give the declared shape")?;
    cx.assert(any, "the axes contradict the declared shape")?;
    Ok(vec![reshape_to(cx, "", x, to)?])
}

pub(crate) fn squeeze(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    if let (Some(named), Some(axes)) = (run_time_axes(cx, node, 1)?, node.optional(1)) {
        return reshaped_at_run_time(cx, (x, axes), &named, false);
    }
    let axes: Vec<usize> = match listed_axes(cx, node)? {
        Some(axes) => axes_of(&axes, shape.len())?,
        None if shape.iter().any(|dim| dim.as_const().is_none()) => {
            return Err("the axes must be given for run-time extents".into());
        }
        None => (0..shape.len()).filter(|at| shape[*at].is_one()).collect(),
    };
    for at in &axes {
        cx.require_equal(&shape[*at].clone(), &1.into())?;
    }
    Ok(vec![super::reduce::drop_axes(cx, "", x, &axes)?])
}

pub(crate) fn unsqueeze(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    if let (Some(named), Some(axes)) = (run_time_axes(cx, node, 1)?, node.optional(1)) {
        return reshaped_at_run_time(cx, (x, axes), &named, true);
    }
    let axes = listed_axes(cx, node)?.ok_or("the axes are missing")?;
    let mut shape = cx.shape(x).into_iter();
    let rank = shape.len() + axes.len();
    let axes = axes_of(&axes, rank)?;
    let mut to = Vec::new();
    for at in 0..rank {
        let dim = if axes.contains(&at) { Some(1.into()) } else { shape.next() };
        to.push(dim.ok_or("an axis is missing")?);
    }
    Ok(vec![reshape_to(cx, "", x, to)?])
}

/// The part of an axis from `start` on with steps.
struct Range {
    start: Dim,
    step: i64,
    len: Dim,
}

/// The place of the one element that constant bounds select from an axis of a run-time extent, such
/// as `0:1`. The axis must have it: whoever takes one element has no use for none.
fn single(cx: &mut Context, extent: &Dim, start: &Dim, end: &Dim) -> Option<Dim> {
    let (first, end) = (start.as_const()?, end.as_const()?);
    if extent.as_const().is_some() || first.checked_add(1) != Some(end) || end == 0 {
        return None;
    }
    // The ends of an axis are written as large numbers.
    if first.unsigned_abs() >= i32::MAX as u64 || end.unsigned_abs() >= i32::MAX as u64 {
        return None;
    }
    cx.require_least(extent, if first < 0 { -first } else { end });
    Some(if first < 0 { extent.clone() + first } else { start.clone() })
}

/// Clamps the bounds of a slice as the specification says.
fn range(cx: &mut Context, extent: &Dim, start: &Dim, end: &Dim, step: i64) -> Outcome<Range> {
    if let Some(start) = single(cx, extent, start, end) {
        return Ok(Range { start, step: 1, len: 1.into() });
    }
    let last = if step > 0 { extent.clone() } else { extent.clone() - 1 };
    let first = if step > 0 { Dim::zero() } else { Dim::from(-1) };
    let mut clamp = |bound: &Dim, low: &Dim| -> Outcome<Dim> {
        let sentinel = bound.as_const().filter(|v| v.unsigned_abs() >= i32::MAX as u64);
        if let (Some(value), None) = (sentinel, extent.as_const()) {
            // Exporters write the ends of an axis as such numbers.
            if value.unsigned_abs() < 1 << 62 {
                let most = i64::from(i32::MAX);
                cx.assumptions.insert((extent.clone(), "<=", most.into()));
            }
            return Ok(if value < 0 { low.clone() } else { last.clone() });
        }
        let bound = match bound.as_const() {
            Some(value) if value < 0 => extent.clone() + value,
            _ if bound.is_nonnegative() => bound.clone(),
            // A difference such as `n - 1`, taken as not negative if its symbols are not 0.
            _ if (bound.clone() + 1).is_nonnegative() => bound.clone(),
            _ if (-bound.clone()).is_nonnegative() => {
                cx.require_least(&-bound.clone(), 1);
                extent.clone() + bound
            }
            // The entry checks that a bound of unknown sign, as `512 - n`, is not negative.
            _ => {
                cx.require_least(bound, 0);
                bound.clone()
            }
        };
        // The last element of an axis, which must have one.
        if extent.as_const().is_none() && (extent.clone() - &bound).is_one() {
            cx.require_elements(extent);
            return Ok(bound);
        }
        // An extent is not negative.
        if bound == Dim::zero() && step > 0 {
            return Ok(bound);
        }
        Ok(bound.maximum(low).minimum(&last))
    };
    let start = clamp(start, &Dim::zero())?;
    let end = clamp(end, &first)?;
    let distance = if step > 0 { end - &start } else { start.clone() - &end };
    let is_extent = distance == *extent;
    let len = (distance + (step.abs() - 1)).div(&step.abs().into());
    let len = if is_extent { len } else { len.maximum(&Dim::zero()) };
    Ok(Range { start, step, len })
}

pub(crate) fn slice(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let is_unknown = |t: &T| cx.graph[*t].vals.is_none();
    if node.opset >= 10 && node.inputs.iter().skip(1).flatten().any(is_unknown) {
        return super::moved::slice(cx, node);
    }
    let shape = cx.shape(x);
    let list = |name: &str| -> Option<Vec<Dim>> {
        node.ints(name).map(|values| values.iter().map(|v| (*v).into()).collect())
    };
    let (starts, ends, axes, steps) = if node.opset < 10 {
        let starts = list("starts").ok_or("the starts are missing")?;
        (
            starts,
            list("ends").ok_or("the ends are missing")?,
            node.ints("axes").map(<[_]>::to_vec),
            None,
        )
    } else {
        let axes = node.optional(3).map(|t| cx.ints(t, "the axes")).transpose()?;
        let steps = node.optional(4).map(|t| cx.ints(t, "the steps")).transpose()?;
        (cx.dims(node.input(1)?, "the starts")?, cx.dims(node.input(2)?, "the ends")?, axes, steps)
    };
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let chosen = axes_of(&axes, shape.len())?;
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if chosen.len() != starts.len() || ends.len() != starts.len() || steps.len() != starts.len() {
        return Err("starts, ends, axes and steps differ in number".into());
    }
    let mut to = shape.clone();
    let mut ranges: Vec<Option<Range>> = shape.iter().map(|_| None).collect();
    for (at, axis) in chosen.into_iter().enumerate() {
        if steps[at] == 0 || steps[at] == i64::MIN {
            return Err("a step is 0".into());
        }
        let range = range(cx, &shape[axis], &starts[at], &ends[at], steps[at])?;
        to[axis] = range.len.clone();
        ranges[axis] = Some(range);
    }
    let own = crate::context::axes(&to);
    let index = own.into_iter().zip(ranges).map(|(axis, range)| match range {
        Some(range) => axis * range.step + &range.start,
        None => axis,
    });
    let body = cx.load(x, index.collect::<Vec<_>>());
    let dtype = cx.dtype(x);
    Ok(vec![cx.compute("", dtype, to, body)?])
}

/// Takes `len` elements from `start` on along an axis.
pub(crate) fn section(
    cx: &mut Context,
    part: &str,
    x: T,
    axis: usize,
    start: &Dim,
    len: &Dim,
) -> Outcome<T> {
    let mut to = cx.shape(x);
    to[axis] = len.clone();
    let mut index = axes(&to);
    index[axis] = index[axis].clone() + start;
    let dtype = cx.dtype(x);
    cx.compute(part, dtype, to, cx.load(x, index))
}

pub(crate) fn split(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let axis = axis_of(node.int("axis", 0), shape.len())?;
    let count = node.outputs.len() as i64;
    let sizes: Vec<Dim> = match node.optional(1) {
        Some(sizes) => {
            let own = |at: usize| cx.declared(at).and_then(|shape| shape.get(axis).cloned());
            let declared = (0..node.outputs.len()).map(own).collect();
            cx.declared_dims(sizes, "the sizes", declared)?
        }
        None => match node.ints("split") {
            Some(sizes) => sizes.iter().map(|size| (*size).into()).collect(),
            None => {
                if node.int("num_outputs", count) != count || count < 1 {
                    return Err("`num_outputs` is not the number of outputs".into());
                }
                let size = (shape[axis].clone() + (count - 1)).div(&count.into());
                let rest = shape[axis].clone() - &(size.clone() * (count - 1));
                let mut sizes = vec![size; count as usize - 1];
                sizes.push(rest);
                sizes
            }
        },
    };
    if sizes.len() != node.outputs.len() {
        return Err("the number of sizes is not that of the outputs".into());
    }
    let mut start = Dim::zero();
    let mut parts = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        let own = cx.hint.clone();
        cx.hint = node.outputs[at].to_string();
        parts.push(section(cx, "", x, axis, &start, size)?);
        cx.hint = own;
        start = start + size;
    }
    cx.require_equal(&start, &shape[axis])?;
    Ok(parts)
}

pub(crate) fn expand(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, shape) = (node.input(0)?, node.input(1)?);
    let Some(elements) = cx.run_time(shape, "the shape")? else {
        let target = cx.dims(shape, "the shape")?;
        return Ok(vec![broadcast_to(cx, "", x, target)?]);
    };
    let refuse = || Refusal::NotConstant("the shape".to_string(), shape);
    let to = cx.declared(0).ok_or_else(refuse)?;
    let from = cx.shape(x);
    let count = elements.list.len();
    if to.len() != count.max(from.len()) {
        return Err(refuse());
    }
    // A dimension of the operand stays if the shape has 1 there.
    let named = elements.list.iter().zip(&to[to.len() - count..]).enumerate();
    let conditions = named.map(|(at, (element, dim))| {
        let kept = (at + from.len()).checked_sub(count).map(|at| &from[at]) == Some(dim);
        let equal = element.clone().bin("==", E::Idx(dim.clone()));
        let one = element.clone().bin("==", E::int(1, DType::Int64));
        if kept && !dim.is_one() { equal.bin("or", one) } else { equal }
    });
    if let Some(cond) = E::all(conditions.collect()) {
        cx.assert(cond, &format!("the shape must be {}", crate::text::shape_text(&to)))?;
    }
    Ok(vec![broadcast_to(cx, "", x, to)?])
}

/// Broadcasts a tensor to a shape, which is itself broadcast.
pub(crate) fn broadcast_to(cx: &mut Context, part: &str, x: T, target: Vec<Dim>) -> Outcome<T> {
    let dtype = cx.dtype(x);
    let shape = cx.broadcast(&[cx.shape(x), target])?;
    let body = cx.load_broadcast(x, &axes(&shape));
    cx.compute(part, dtype, shape, body)
}

pub(crate) fn tile(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let declared = cx.declared(0).filter(|to| to.len() == shape.len());
    let ratio = |(to, from): (&Dim, &Dim)| to.exact_div(from).filter(|_| *from != Dim::zero());
    let ratios = declared.and_then(|to| to.iter().zip(&shape).map(ratio).collect());
    let repeats = cx.declared_dims(node.input(1)?, "the repeats", ratios)?;
    if repeats.len() != shape.len() {
        return Err("there must be a repeat for each axis".into());
    }
    let to: Vec<Dim> = shape.iter().zip(&repeats).map(|(dim, n)| dim * n).collect();
    let own = axes(&to);
    let index: Vec<Dim> = own.iter().zip(&shape).map(|(axis, dim)| axis.rem(dim)).collect();
    let dtype = cx.dtype(x);
    Ok(vec![cx.compute("", dtype, to, cx.load(x, index))?])
}

/// What a pad holds.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Border {
    Constant,
    Reflect,
    Edge,
    Wrap,
}

pub(crate) fn pad(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (rank, dtype) = (cx.rank(x), cx.dtype(x));
    let border = match node.text("mode", "constant") {
        "constant" => Border::Constant,
        "reflect" => Border::Reflect,
        "edge" => Border::Edge,
        "wrap" => Border::Wrap,
        _ => return Err("the mode is not supported".into()),
    };
    let (pads, value) = if node.opset < 11 {
        let pads = node.ints("pads").or(node.ints("paddings")).ok_or("the pads are missing")?;
        let pads = pads.iter().map(|pad| (*pad).into()).collect();
        (pads, E::num(node.float("value", 0.0), dtype))
    } else {
        let value = match node.optional(2) {
            Some(value) if cx.rank(value) == 0 => cx.load(value, []),
            Some(value) => cx.load(value, [Dim::zero()]),
            None if dtype == DType::Bool => E::flag(false),
            None => E::num(0.0, dtype),
        };
        let is_unknown = |at: usize| node.optional(at).is_some_and(|t| cx.graph[t].vals.is_none());
        if is_unknown(1) || is_unknown(3) {
            return super::moved::pad(cx, node, border, value);
        }
        (cx.dims(node.input(1)?, "the pads")?, value)
    };
    let chosen = match node.optional(3) {
        Some(axes) => axes_of(&cx.ints(axes, "the axes")?, rank)?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * chosen.len() {
        return Err("the number of pads is not twice that of the axes".into());
    }
    let mut around = vec![(Dim::zero(), Dim::zero()); rank];
    for (at, axis) in chosen.iter().enumerate() {
        around[*axis] = (pads[at].clone(), pads[at + chosen.len()].clone());
    }
    Ok(vec![padded(cx, "", x, &around, border, value)?])
}

/// Adds zeros, or removes elements, around a tensor.
pub(crate) fn pad_with(
    cx: &mut Context,
    part: &str,
    x: T,
    around: &[(Dim, Dim)],
    value: E,
) -> Outcome<T> {
    padded(cx, part, x, around, Border::Constant, value)
}

fn padded(
    cx: &mut Context,
    part: &str,
    x: T,
    around: &[(Dim, Dim)],
    border: Border,
    value: E,
) -> Outcome<T> {
    let shape = cx.shape(x);
    let to: Vec<Dim> =
        shape.iter().zip(around).map(|(dim, (begin, end))| dim.clone() + begin + end).collect();
    let own = axes(&to);
    let zero = || E::Idx(Dim::zero());
    let mut outside = Vec::new();
    let mut index = Vec::new();
    for ((extent, (begin, end)), axis) in shape.iter().zip(around).zip(&own) {
        let at = axis.clone() - begin;
        // A negative pad removes elements.
        let before = begin.as_const().is_none_or(|begin| begin > 0);
        let after = end.as_const().is_none_or(|end| end > 0);
        let place = E::Idx(at.clone());
        let last = extent.clone() - 1;
        index.push(match border {
            Border::Constant => {
                if before {
                    outside.push(E::Idx(axis.clone()).bin("<", E::Idx(begin.clone())));
                }
                if after {
                    let limit = extent.clone() + begin;
                    outside.push(E::Idx(axis.clone()).bin(">=", E::Idx(limit)));
                }
                place
            }
            _ if !before && !after => place,
            Border::Edge => E::call("clamp", [place, zero(), E::Idx(last)]),
            Border::Wrap => E::Idx(at.rem(extent)),
            Border::Reflect => {
                // The distance from the nearest multiple of a period.
                let period = last.clone() * 2;
                let phase = E::Idx(at).bin("%", E::Idx(period.clone()));
                let back = E::Idx(period).bin("-", phase.clone());
                if extent.is_one() { zero() } else { E::call("min", [phase, back]) }
            }
        });
    }
    let body = cx.load_at(x, index);
    let body = match E::any(outside) {
        Some(outside) => outside.choose(value, body),
        None => body,
    };
    let dtype = cx.dtype(x);
    cx.compute(part, dtype, to, body)
}

pub(crate) fn center_crop_pad(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let chosen: Vec<usize> = match node.ints("axes") {
        Some(axes) => axes_of(axes, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    let declared = cx.declared(0).filter(|to| to.len() == shape.len());
    let declared = declared.map(|to| chosen.iter().map(|axis| to[*axis].clone()).collect());
    let target = cx.declared_dims(node.input(1)?, "the shape", declared)?;
    if chosen.len() != target.len() {
        return Err("there must be an extent for each axis".into());
    }
    let mut around = vec![(Dim::zero(), Dim::zero()); shape.len()];
    for (axis, extent) in chosen.into_iter().zip(target) {
        let grow = extent.clone() - &shape[axis];
        let Some(grow) = grow.as_const().filter(|_| extent.is_nonnegative()) else {
            return Err("run-time and negative extents are not supported".into());
        };
        // The begin of what is cut is rounded down, and so is the pad before.
        let begin = if grow < 0 { -(-grow / 2) } else { grow / 2 };
        around[axis] = (begin.into(), (grow - begin).into());
    }
    let dtype = cx.dtype(x);
    let zero = if dtype == DType::Bool { E::flag(false) } else { E::num(0.0, dtype) };
    Ok(vec![pad_with(cx, "", x, &around, zero)?])
}

pub(crate) fn trilu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    if shape.len() < 2 {
        return Err("the operand must be a matrix".into());
    }
    let own = axes(&shape);
    let (row, column) = (own[own.len() - 2].clone(), own[own.len() - 1].clone());
    let op = if node.flag("upper", true) { ">=" } else { "<=" };
    let inside = match node.optional(1) {
        Some(k) if cx.graph[k].vals.is_none() => {
            let index = vec![Dim::zero(); cx.rank(k).min(1)];
            // Beyond these bounds, the result is the same.
            let most = E::int(1 << 48, DType::Int64);
            let k = E::call("clamp", [cx.load(k, index), most.clone().un("-"), most]);
            wide(&column).bin(op, wide(&row).bin("+", k))
        }
        Some(k) => E::Idx(column).bin(op, E::Idx(row + &cx.dim(k, "the diagonal")?)),
        None => E::Idx(column).bin(op, E::Idx(row)),
    };
    let zero = if dtype == DType::Bool { E::flag(false) } else { E::num(0.0, dtype) };
    let body = inside.choose(cx.load(x, own), zero);
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

/// Moves blocks of a channel dimension to two spatial dimensions.
pub(crate) fn depth_to_space(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let b = node.int("blocksize", 1);
    if shape.len() != 4 || !(1..=1 << 20).contains(&b) {
        return Err("an image and a positive block are needed".into());
    }
    let depth = shape[1].div(&(b * b).into());
    let to = vec![shape[0].clone(), depth.clone(), shape[2].clone() * b, shape[3].clone() * b];
    let own = axes(&to);
    let (row, column) = (own[2].rem(&b.into()), own[3].rem(&b.into()));
    let place = row * b + &column;
    let channel = if node.text("mode", "DCR") == "DCR" {
        &place * &depth + &own[1]
    } else {
        own[1].clone() * (b * b) + &place
    };
    let index = [own[0].clone(), channel, own[2].div(&b.into()), own[3].div(&b.into())];
    Ok(vec![cx.compute("", dtype, to, cx.load(x, index))?])
}

pub(crate) fn space_to_depth(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let b = node.int("blocksize", 1);
    if shape.len() != 4 || !(1..=1 << 20).contains(&b) {
        return Err("an image and a positive block are needed".into());
    }
    let block = Dim::from(b);
    let to = vec![
        shape[0].clone(),
        shape[1].clone() * (b * b),
        shape[2].div(&block),
        shape[3].div(&block),
    ];
    let own = axes(&to);
    let (place, channel) = match node.text("mode", "DCR") {
        "DCR" => (own[1].div(&shape[1]), own[1].rem(&shape[1])),
        "CRD" => (own[1].rem(&(b * b).into()), own[1].div(&(b * b).into())),
        mode => return Err(format!("the mode `{mode}` is unknown").into()),
    };
    let index = [
        own[0].clone(),
        channel,
        own[2].clone() * b + &place.div(&block),
        own[3].clone() * b + &place.rem(&block),
    ];
    Ok(vec![cx.compute("", dtype, to, cx.load(x, index))?])
}

pub(crate) fn reverse_sequence(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, lens) = (node.input(0)?, node.input(1)?);
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let batch = axis_of(node.int("batch_axis", 1), shape.len())?;
    let time = axis_of(node.int("time_axis", 0), shape.len())?;
    let own = axes(&shape);
    let len = cx.load(lens, [own[batch].clone()]);
    let len_type = cx.dtype(lens);
    let at = E::dim(&own[time], len_type);
    let reversed = len.clone().bin("-", E::int(1, len_type)).bin("-", at.clone());
    let place = at.clone().bin("<", len).choose(reversed, at);
    let last = E::dim(&(shape[time].clone() - 1), len_type);
    let mut index: Vec<E> = own.into_iter().map(E::Idx).collect();
    index[time] = E::call("clamp", [place, E::int(0, len_type), last]);
    Ok(vec![cx.compute("", dtype, shape, E::Load(x, index))?])
}

pub(crate) fn one_hot(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (indices, depth, values) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let mut shape = cx.shape(indices);
    let axis = axis_of(node.int("axis", -1), shape.len() + 1)?;
    let depth = match cx.graph[depth].vals.as_deref() {
        Some([Val::Int(depth)]) => depth.clone(),
        Some([Val::Float(depth)]) => Dim::from(*depth as i64),
        Some(_) => return Err("the depth must be one number".into()),
        None => {
            let declared = cx.declared(0).and_then(|shape| shape.get(axis).cloned());
            cx.declared_dim(depth, "the depth", declared)?
        }
    };
    shape.insert(axis, depth.clone());
    let own = axes(&shape);
    let mut index = own.clone();
    index.remove(axis);
    let dtype = cx.dtype(values);
    let at = match cx.dtype(indices) {
        own if own.is_float() => cx.load(indices, index).cast(DType::Int64),
        _ => cx.load(indices, index),
    };
    let wide = DType::Int64;
    let at = if cx.dtype(indices) == wide { at } else { at.cast(wide) };
    let own_at = E::dim(&own[axis], wide);
    let from_end = at.clone().bin("+", E::dim(&depth, wide)).bin("==", own_at.clone());
    let here = at.bin("==", own_at).bin("or", from_end);
    let value = |cx: &Context, at: i64| match cx.graph[values].vals.as_deref() {
        Some(vals) if vals.len() == 2 => E::Lit(vals[at as usize].clone(), dtype),
        _ => cx.load(values, [at.into()]),
    };
    let body = here.choose(value(cx, 1), value(cx, 0));
    Ok(vec![cx.compute("", dtype, shape, body)?])
}
