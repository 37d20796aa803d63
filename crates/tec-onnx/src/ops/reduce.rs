//! Reductions, running sums, and positions of extrema.

use std::collections::BTreeSet;

use super::norm::{kept, reduced_index};
use crate::context::{Context, axes, axes_of, axis_of, reduce_axis};
use crate::dim::{Dim, product};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::{Reduce, T};
use crate::node::{Node, Outcome, Refusal};
use crate::run_time::{axis_sets, may_be, run_time_axes};

/// Removes dimensions of 1.
pub(crate) fn drop_axes(cx: &mut Context, part: &str, x: T, over: &[usize]) -> Outcome<T> {
    let shape = cx.shape(x).into_iter().enumerate();
    let to = shape.filter(|(at, _)| !over.contains(at)).map(|(_, dim)| dim).collect();
    super::movement::reshape_to(cx, part, x, to)
}

/// The axes of a reduction; `None` reduces nothing.
type Over = Option<Vec<usize>>;

/// Imports a reduction with its axes. If they are known at run time only, the declared shape of the
/// result leaves few sets of axes; the call chooses one of them.
fn with_axes(
    cx: &mut Context,
    node: &Node,
    make: &mut dyn FnMut(&mut Context, &Over) -> Outcome<Vec<T>>,
) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let Some(named) = run_time_axes(cx, node, 1)? else {
        let over = reduced_axes(cx, node, x)?;
        return make(cx, &over);
    };
    let (shape, keep) = (cx.shape(x), node.flag("keepdims", true));
    let rank = shape.len();
    let fits = |over: &[usize]| {
        let (out, ..) = layout(&shape, over, keep);
        may_be(cx.declared.first().and_then(Option::as_ref), &out)
    };
    let refuse = || match node.optional(1) {
        Some(axes) => Refusal::NotConstant("the axes".to_string(), axes),
        None => "the axes are missing".into(),
    };
    let sets = axis_sets(rank, named.list.len(), &fits).ok_or_else(refuse)?;
    let shapes: BTreeSet<Vec<Dim>> = sets.iter().map(|over| layout(&shape, over, keep).0).collect();
    if shapes.len() != 1 {
        return Err(refuse());
    }
    // Reducing an axis of one element changes nothing but the shape.
    let mut choices: Vec<(E, Over)> = Vec::new();
    for set in sets {
        let condition = named.are_axes(&set, rank);
        let over: Vec<usize> =
            set.iter().copied().filter(|at| !keep || !shape[*at].is_one()).collect();
        match choices.iter_mut().find(|(_, other)| other.as_ref() == Some(&over)) {
            Some((other, _)) => *other = other.clone().bin("or", condition),
            None => choices.push((condition, Some(over))),
        }
    }
    cx.choose(choices, "the axes contradict the declared shape", make)
}

/// Returns the axes of a reduction: an attribute, or from some opset on an input.
fn reduced_axes(cx: &Context, node: &Node, x: T) -> Outcome<Over> {
    let rank = cx.rank(x);
    let axes = match node.optional(1) {
        Some(axes) => Some(cx.ints(axes, "the axes")?),
        None => node.ints("axes").map(<[i64]>::to_vec),
    };
    match axes {
        Some(axes) if !axes.is_empty() => axes_of(&axes, rank).map(Some),
        _ if node.flag("noop_with_empty_axes", false) => Ok(None),
        _ => Ok(Some((0..rank).collect())),
    }
}

/// The result of a reduction without its reduced axes: shape, index of the operand and extents.
fn layout(shape: &[Dim], over: &[usize], keep: bool) -> (Vec<Dim>, Vec<Dim>, Vec<Dim>) {
    let (index, extents) = reduced_index(shape, over);
    if keep {
        return (kept(shape, over), index, extents);
    }
    let (mut out, mut moved) = (Vec::new(), Vec::new());
    for (at, own) in index.into_iter().enumerate() {
        if over.contains(&at) {
            moved.push(own);
        } else {
            moved.push(Dim::axis(out.len(), &shape[at]));
            out.push(shape[at].clone());
        }
    }
    (out, moved, extents)
}

/// A function of a result, its type, and the number of terms.
type Finish<'a> = &'a dyn Fn(E, DType, &Dim) -> E;

/// A reduction with a function of each term and one of the result.
fn reduction(
    cx: &mut Context,
    node: &Node,
    kind: &'static str,
    term: impl Fn(E, DType) -> E,
    finish: Option<Finish>,
) -> Outcome<Vec<T>> {
    with_axes(cx, node, &mut |cx, over| reduction_over(cx, node, kind, (&term, finish), over))
}

fn reduction_over(
    cx: &mut Context,
    node: &Node,
    kind: &'static str,
    (term, finish): (&dyn Fn(E, DType) -> E, Option<Finish>),
    over: &Over,
) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let (shape, keep) = (cx.shape(x), node.flag("keepdims", true));
    let Some(over) = over else {
        // Without axes each element is a reduction of its own.
        return Ok(vec![cx.elementwise("", dtype, &[x], |mut e| {
            let e = term(e.remove(0), dtype);
            finish.map_or(e.clone(), |finish| finish(e, dtype, &1.into()))
        })?]);
    };
    let count: Dim = product(&over.iter().map(|at| shape[*at].clone()).collect::<Vec<_>>());
    let (out, index, extents) = layout(&shape, over, keep);
    let sums = matches!(kind, "sum" | "prod") && dtype.is_half();
    let wide = if sums { DType::Float32 } else { dtype };
    let load = cx.load(x, index);
    let load = if sums { load.cast(wide) } else { load };
    let plain = finish.is_none() && wide == dtype;
    let part = if plain { "" } else { kind };
    let result = if extents.is_empty() {
        cx.compute(part, wide, out.clone(), term(load, wide))?
    } else {
        cx.fold(part, kind, wide, out.clone(), extents, term(load, wide))?
    };
    if plain {
        return Ok(vec![result]);
    }
    let body = cx.load(result, axes(&out));
    let body = finish.map_or(body.clone(), |finish| finish(body, wide, &count));
    let body = if wide == dtype { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, out, body)?])
}

pub(crate) fn sum(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    reduction(cx, node, "sum", |x, _| x, None)
}

pub(crate) fn prod(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    reduction(cx, node, "prod", |x, _| x, None)
}

/// The least or greatest element; of conditions, `all` or `any`.
fn extremum(
    cx: &mut Context,
    node: &Node,
    kind: &'static str,
    condition: &'static str,
) -> Outcome<Vec<T>> {
    let is_bool = cx.dtype(node.input(0)?) == DType::Bool;
    reduction(cx, node, if is_bool { condition } else { kind }, |x, _| x, None)
}

pub(crate) fn max(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    extremum(cx, node, "max", "any")
}

pub(crate) fn min(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    extremum(cx, node, "min", "all")
}

pub(crate) fn mean(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let mean = |e: E, dtype: DType, count: &Dim| {
        let count = E::dim(count, dtype);
        if dtype.is_float() {
            e.bin("/", count)
        } else {
            super::elementwise::truncated_div(e, count, dtype)
        }
    };
    reduction(cx, node, "sum", |x, _| x, Some(&mean))
}

fn square(x: E, _: DType) -> E {
    x.clone().bin("*", x)
}

/// A function of floats, applied to a number of any type.
fn through_float(name: &'static str) -> impl Fn(E, DType, &Dim) -> E {
    move |e, dtype, _| {
        if dtype.is_float() {
            E::call(name, [e])
        } else {
            E::call(name, [e.cast(DType::Float64)]).cast(dtype)
        }
    }
}

pub(crate) fn l1(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    reduction(cx, node, "sum", |x, _| E::call("abs", [x]), None)
}

pub(crate) fn l2(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    reduction(cx, node, "sum", square, Some(&through_float("sqrt")))
}

pub(crate) fn sum_square(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    reduction(cx, node, "sum", square, None)
}

pub(crate) fn log_sum(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    reduction(cx, node, "sum", |x, _| x, Some(&through_float("log")))
}

pub(crate) fn log_sum_exp(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    with_axes(cx, node, &mut |cx, over| log_sum_exp_over(cx, node, over))
}

fn log_sum_exp_over(cx: &mut Context, node: &Node, over: &Over) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    if !dtype.is_float() {
        return Err("logarithms of integers are not supported".into());
    }
    let x = cx.widen("input", x)?;
    let wide = cx.dtype(x);
    let Some(over) = over else { return Ok(vec![node.input(0)?]) };
    let shape = cx.shape(x);
    let small = kept(&shape, over);
    let (index, extents) = reduced_index(&shape, over);
    let max =
        cx.fold("max", "max", wide, small.clone(), extents.clone(), cx.load(x, index.clone()))?;
    // An infinite maximum would make NaN of the differences.
    let shift = cx.elementwise("shift", wide, &[max], |mut e| {
        let max = e.remove(0);
        let finite = E::call("abs", [max.clone()]).bin("<", E::float(f64::INFINITY, wide));
        finite.choose(max, E::float(0.0, wide))
    })?;
    let own: Vec<Dim> = axes(&small);
    let term = E::call("exp", [cx.load(x, index).bin("-", cx.load(shift, own.clone()))]);
    let sum = cx.fold("sum", "sum", wide, small.clone(), extents, term)?;
    let log = cx.elementwise("log", wide, &[sum, shift], |mut e| {
        let shift = e.remove(1);
        E::call("log", [e.remove(0)]).bin("+", shift)
    })?;
    let result = if node.flag("keepdims", true) { log } else { drop_axes(cx, "flat", log, over)? };
    Ok(vec![cx.cast("", result, dtype)?])
}

/// The position of the first or last extremum along an axis.
fn arg(cx: &mut Context, node: &Node, kind: &'static str) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let axis = axis_of(node.int("axis", 0), shape.len())?;
    let keep = node.flag("keepdims", true);
    let (out, mut index, extents) = layout(&shape, &[axis], keep);
    let last = node.flag("select_last_index", false);
    if last {
        let k = index[axis].clone();
        index[axis] = shape[axis].clone() - 1 - &k;
    }
    let value = cx.load(x, index);
    let part = if last { "from_end" } else { "" };
    let k = E::Idx(reduce_axis(0, &shape[axis]));
    let position = cx.position(part, kind, out.clone(), extents, (k, value), None)?;
    if !last {
        return Ok(vec![position]);
    }
    let own = cx.load(position, axes(&out));
    let body = E::dim(&(shape[axis].clone() - 1), DType::Int64).bin("-", own);
    Ok(vec![cx.compute("", DType::Int64, out, body)?])
}

pub(crate) fn arg_max(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    arg(cx, node, "argmax")
}

pub(crate) fn arg_min(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    arg(cx, node, "argmin")
}

/// A running sum or product along an axis.
fn running(cx: &mut Context, node: &Node, kind: &'static str) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let rank = cx.rank(x);
    if let Some(named) = run_time_axes(cx, node, 1)? {
        let [_] = named.list[..] else { return Err("the axis must be one number".into()) };
        let choices = (0..rank).map(|axis| (named.are_axes(&[axis], rank), axis)).collect();
        return cx.choose(choices, "the axis is outside of the operand", &mut |cx, axis| {
            running_along(cx, node, kind, *axis)
        });
    }
    let axis = match node.optional(1) {
        Some(axis) => match cx.ints(axis, "the axis")?[..] {
            [axis] => axis,
            _ => return Err("the axis must be one number".into()),
        },
        None => node.int("axis", 0),
    };
    running_along(cx, node, kind, axis_of(axis, rank)?)
}

fn running_along(
    cx: &mut Context,
    node: &Node,
    kind: &'static str,
    axis: usize,
) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let shape = cx.shape(x);
    let (exclusive, reverse) = (node.flag("exclusive", false), node.flag("reverse", false));
    let wide = if dtype.is_half() { DType::Float32 } else { dtype };
    let own = axes(&shape);
    let mut index = own.clone();
    let k = reduce_axis(0, &shape[axis]);
    // A reversed sum counts the elements from the end.
    let (at, place) = if reverse {
        let last = shape[axis].clone() - 1;
        (last.clone() - &k, last - &own[axis])
    } else {
        (k.clone(), own[axis].clone())
    };
    index[axis] = at;
    let op = if exclusive { "<" } else { "<=" };
    let condition = E::Idx(k).bin(op, E::Idx(place));
    let load = cx.load(x, index);
    let load = if wide == dtype { load } else { load.cast(wide) };
    let reduce =
        Reduce { kind, extents: vec![shape[axis].clone()], condition: Some(condition), init: None };
    let part = if wide == dtype { "" } else { kind };
    let result = cx.reduce(part, wide, shape, load, reduce)?;
    Ok(vec![cx.cast("", result, dtype)?])
}

pub(crate) fn cum_sum(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    running(cx, node, "sum")
}

pub(crate) fn cum_prod(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    running(cx, node, "prod")
}
