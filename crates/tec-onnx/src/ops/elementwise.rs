//! Operators that compute each element from the elements at the same place.

use crate::context::Context;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// One input, one output of the same type.
fn unary(cx: &mut Context, node: &Node, f: impl FnOnce(E, DType) -> E) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    Ok(vec![cx.elementwise("", dtype, &[x], |mut e| f(e.remove(0), dtype))?])
}

/// Two inputs with broadcasting, one output of the same type.
fn binary(cx: &mut Context, node: &Node, f: impl FnOnce(E, E, DType) -> E) -> Outcome<Vec<T>> {
    let (x, y) = (node.input(0)?, node.input(1)?);
    let dtype = cx.dtype(x);
    let y = cx.cast("cast", y, dtype)?;
    Ok(vec![cx.elementwise("", dtype, &[x, y], |mut e| {
        let y = e.remove(1);
        f(e.remove(0), y, dtype)
    })?])
}

pub(crate) fn abs(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, _| E::call("abs", [x]))
}

pub(crate) fn add(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    binary(cx, node, |x, y, _| x.bin("+", y))
}

pub(crate) fn relu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    unary(cx, node, |x, dtype| E::call("max", [x, E::int(0, dtype)]))
}

pub(crate) fn identity(_: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    Ok(vec![node.input(0)?])
}

pub(crate) fn cast(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let to = node.dtype("to")?.ok_or("the attribute `to` is missing")?;
    let x = node.input(0)?;
    Ok(vec![cx.cast("", x, to)?])
}
