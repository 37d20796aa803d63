//! Slices and pads whose places are known at run time only. The extents of the result are declared;
//! the entry compares them, and the places are read as data.

use super::slicing::Border;
use crate::context::{Context, axes};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::{Graph, T};
use crate::node::{Node, Outcome, Refusal};
use crate::run_time::{Elements, wide};

fn int(value: i64) -> E {
    E::int(value, DType::Int64)
}

/// A known number of type int64 as a literal: expressions of literals alone would be of type
/// `index`.
fn known(e: E) -> E {
    match e.eval(&Graph::default(), &|_| None) {
        Some(Val::Int(value)) => wide(&value),
        _ => e,
    }
}

/// The declared shape of the result, which must have this rank.
fn result_shape(cx: &Context, rank: usize, role: &str, operand: T) -> Outcome<Vec<Dim>> {
    let refuse = || Refusal::NotConstant(role.to_string(), operand);
    cx.declared(0).filter(|to| to.len() == rank).ok_or_else(refuse)
}

/// A slice with bounds, axes or steps of run time.
pub(crate) fn slice(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, first) = (node.input(0)?, node.input(1)?);
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let rank = shape.len();
    let starts = cx.any_elements(first, "the starts")?;
    let ends = cx.any_elements(node.input(2)?, "the ends")?;
    let named = node.optional(3).map(|t| cx.any_elements(t, "the axes")).transpose()?;
    let steps = node.optional(4).map(|t| cx.any_elements(t, "the steps")).transpose()?;
    let to = result_shape(cx, rank, "the starts", first)?;
    let count = starts.list.len();
    let fits = |list: Option<&Elements>| list.is_none_or(|own| own.list.len() == count);
    if !fits(Some(&ends)) || !fits(named.as_ref()) || !fits(steps.as_ref()) || count > rank {
        return Err("starts, ends, axes and steps differ in number".into());
    }
    if let Some(named) = &named {
        cx.assert_axes(named, rank)?;
    }
    let steps = steps.map_or_else(|| vec![int(1); count], |steps| steps.list);
    let nonzero = steps.iter().map(|step| step.clone().bin("!=", int(0)));
    if let Some(cond) = E::all(nonzero.collect()) {
        cx.assert(cond, "a step is 0")?;
    }
    let own = axes(&to);
    let (mut index, mut extents) = (Vec::new(), Vec::new());
    for (axis, (extent, new)) in shape.iter().zip(&to).enumerate() {
        let at = (axis, rank);
        let pick =
            |list: &[E], default: E| Elements::of_axis(cx, list, named.as_ref(), at, default);
        let start = pick(&starts.list, int(0));
        let end = pick(&ends.list, wide(extent));
        // A step beyond the extent gives one element, as one of the extent does.
        let most = extent.maximum(&1.into());
        let step = pick(&steps, int(1));
        let step = match step.eval(&cx.graph, &|_| None) {
            Some(Val::Int(one)) if one.as_const().is_some_and(|one| one.abs() == 1) => step,
            Some(Val::Int(step)) => wide(&step.minimum(&most).maximum(&-most.clone())),
            _ => E::call("clamp", [step, wide(&-most.clone()), wide(&most)]),
        };
        let bounds = [start.clone(), end, step.clone(), wide(extent)];
        extents.push(E::call("onnx.slice_count", bounds).bin("==", E::Idx(new.clone())));
        if *extent == Dim::zero() {
            index.push(E::Idx(own[axis].clone()));
            continue;
        }
        let first = E::call("onnx.slice_start", [start, step.clone(), wide(extent)]);
        let place = first.bin("+", known(wide(&own[axis]).bin("*", step)));
        let last = wide(&(extent.clone() - 1));
        index.push(E::call("clamp", [place, int(0), last]));
    }
    for (axis, cond) in extents.into_iter().enumerate() {
        let new = to[axis].text(&|_| String::new());
        cx.assert(cond, &format!("the extent of dimension {axis} of the slice must be {new}"))?;
    }
    let body = cx.load_at(x, index);
    Ok(vec![cx.compute("", dtype, to, body)?])
}

/// A pad with amounts or axes of run time.
pub(crate) fn pad(cx: &mut Context, node: &Node, border: Border, value: E) -> Outcome<Vec<T>> {
    let (x, amounts) = (node.input(0)?, node.input(1)?);
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let rank = shape.len();
    let pads = cx.any_elements(amounts, "the pads")?;
    let named = node.optional(3).map(|t| cx.any_elements(t, "the axes")).transpose()?;
    let to = result_shape(cx, rank, "the pads", amounts)?;
    let count = named.as_ref().map_or(rank, |named| named.list.len());
    if pads.list.len() != 2 * count {
        return Err("the number of pads is not twice that of the axes".into());
    }
    if let Some(named) = &named {
        cx.assert_axes(named, rank)?;
    }
    cx.assert_amounts(&pads, "the pads")?;
    let (before, after) = pads.list.split_at(count);
    let own = axes(&to);
    let (mut index, mut outside) = (Vec::new(), Vec::new());
    for (axis, (extent, new)) in shape.iter().zip(&to).enumerate() {
        let at = (axis, rank);
        let pick = |list: &[E]| Elements::of_axis(cx, list, named.as_ref(), at, int(0));
        let (begin, end) = (pick(before), pick(after));
        let sum = begin.clone().bin("+", end).bin("+", wide(extent));
        let text = new.text(&|_| String::new());
        let text = format!("the extent of dimension {axis} with its pads must be {text}");
        cx.assert(sum.bin("==", E::Idx(new.clone())), &text)?;
        if *extent == Dim::zero() && border != Border::Constant && *new != Dim::zero() {
            return Err("an empty dimension has no border to copy".into());
        }
        let place = known(wide(&own[axis]).bin("-", begin));
        let last = wide(&(extent.clone() - 1));
        let place = match border {
            Border::Constant => {
                outside.push(place.clone().bin("<", int(0)));
                outside.push(place.clone().bin(">=", wide(extent)));
                place
            }
            Border::Edge => place,
            Border::Wrap => place.bin("%", wide(extent)),
            Border::Reflect if extent.is_one() => int(0),
            Border::Reflect => {
                let period = wide(&((extent.clone() - 1) * 2));
                let phase = place.bin("%", period.clone());
                E::call("min", [phase.clone(), period.bin("-", phase)])
            }
        };
        index.push(E::call("clamp", [place, int(0), last]));
    }
    let is_empty = shape.contains(&Dim::zero());
    let body = match E::any(outside) {
        Some(_) if is_empty => value,
        Some(outside) => outside.choose(value, cx.load_at(x, index)),
        None => cx.load_at(x, index),
    };
    Ok(vec![cx.compute("", dtype, to, body)?])
}
