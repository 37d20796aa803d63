//! Operators whose number of results depends on the data. The model must declare it, and the entry
//! of the network compares it.

use super::movement::reshape_to;
use crate::context::{Context, axes, axis_of, reduce_axis};
use crate::dim::{Dim, product};
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

const UNKNOWN: &str =
    "the number of results depends on the data; the model must declare the shape of the result";

fn int(value: i64) -> E {
    E::int(value, DType::Int64)
}

/// The places of the elements that are not 0 in a tensor of one dimension, of which there must be
/// `count`.
fn places(cx: &mut Context, flags: T, count: Option<Dim>, role: &str) -> Outcome<T> {
    let extent = cx.shape(flags)[0].clone();
    if let Some(vals) = &cx.graph[flags].vals {
        let chosen = |(at, value): (usize, &Val)| {
            let chosen = value.as_f64().is_some_and(|value| value != 0.0);
            chosen.then(|| Dim::from(at as i64))
        };
        if vals.iter().all(|value| value.as_f64().is_some()) {
            let chosen: Vec<Dim> = vals.iter().enumerate().filter_map(chosen).collect();
            return cx.known_ints("places", &chosen);
        }
    }
    let count = count.ok_or(UNKNOWN)?;
    let dtype = cx.dtype(flags);
    let is_set = |e: E| match dtype {
        DType::Bool => e,
        _ => e.bin("!=", E::num(0.0, dtype)),
    };
    // Elements of integers are of type int64.
    let of_input = |e: E| match dtype {
        DType::Bool => e,
        own if own.is_int() => e.bin("!=", int(0)),
        own => e.bin("!=", E::num(0.0, own)),
    };
    let elements = cx.any_elements(flags, role).map_err(|_| UNKNOWN)?;
    let ones = elements.list.into_iter().map(|e| of_input(e).choose(int(1), int(0)));
    let sum = ones.reduce(|a, b| a.bin("+", b)).unwrap_or(int(0));
    let text = format!("the number of chosen elements must be {}", count.text(&|_| String::new()));
    cx.assert(sum.bin("==", E::Idx(count.clone())), &text)?;
    // A stable order has the chosen ones first.
    let k = reduce_axis(0, &extent);
    let key = is_set(E::Load(flags, vec![E::Idx(k)]));
    let key = key.choose(E::int(0, DType::Int32), E::int(1, DType::Int32));
    cx.order("places", vec![count], key, 0, extent, false)
}

pub(crate) fn compress(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, condition) = (node.input(0)?, node.input(1)?);
    let (x, axis) = match node.attribute("axis").and_then(|own| own.i) {
        Some(axis) => (x, axis_of(axis, cx.rank(x))?),
        None => {
            let flat = product(&cx.shape(x));
            (reshape_to(cx, "flat", x, vec![flat])?, 0)
        }
    };
    if cx.rank(condition) != 1 || cx.dtype(condition) != DType::Bool {
        return Err("the condition must be a list".into());
    }
    let (mut shape, dtype) = (cx.shape(x), cx.dtype(x));
    let missing = shape[axis].clone() - &cx.shape(condition)[0];
    if !missing.is_nonnegative() {
        return Err("the condition is longer than the axis".into());
    }
    let declared = cx.declared(0).filter(|to| to.len() == shape.len());
    let count = declared.map(|to| to[axis].clone());
    let places = places(cx, condition, count, "the condition")?;
    shape[axis] = cx.shape(places)[0].clone();
    let own = axes(&shape);
    let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    let last = E::dim(&(cx.shape(x)[axis].clone() - 1), DType::Int64);
    let place = cx.load(places, [own[axis].clone()]);
    index[axis] = E::call("clamp", [place, int(0), last]);
    let body = cx.load_at(x, index);
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

pub(crate) fn non_zero(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let flat = reshape_to(cx, "flat", x, vec![product(&shape)])?;
    let declared = cx.declared(0).filter(|to| to.len() == 2);
    let places = places(cx, flat, declared.map(|to| to[1].clone()), "the operand")?;
    let to = vec![(shape.len() as i64).into(), cx.shape(places)[0].clone()];
    let own = axes(&to);
    let place = cx.load(places, [own[1].clone()]);
    // The coordinates of a place, one in each row.
    let mut body = int(0);
    for axis in 0..shape.len() {
        let stride = product(&shape[axis + 1..]);
        let whole = if stride.is_one() {
            place.clone()
        } else {
            place.clone().bin("//", E::dim(&stride, DType::Int64))
        };
        let coordinate = match axis {
            0 => whole,
            _ => whole.bin("%", E::dim(&shape[axis], DType::Int64)),
        };
        let here = E::Idx(own[0].clone()).bin("==", E::Idx((axis as i64).into()));
        body = if axis == 0 { coordinate } else { here.choose(coordinate, body) };
    }
    Ok(vec![cx.compute("", DType::Int64, to, body)?])
}

/// Refuses an operator whose number of results is never known.
pub(crate) fn unknown(_: &mut Context, _: &Node) -> Outcome<Vec<T>> {
    Err("the number of results depends on the data".into())
}
