//! Constants, and operators on shapes.

use crate::context::Context;
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::reader::constant as read;

pub(crate) fn constant(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    if let Some(tensor) = node.tensor("value") {
        let value = read(tensor, &cx.folder)?;
        return Ok(vec![cx.constant("", value)?]);
    }
    let float = |value: f32| Val::Float(value.into());
    let (dtype, shape, vals) = if let Some(value) = node.attribute("value_int") {
        (DType::Int64, vec![], vec![Val::Int(value.i.unwrap_or(0).into())])
    } else if let Some(value) = node.attribute("value_float") {
        (DType::Float32, vec![], vec![float(value.f.unwrap_or(0.0))])
    } else if let Some(values) = node.ints("value_ints") {
        let vals: Vec<Val> = values.iter().map(|v| Val::Int((*v).into())).collect();
        (DType::Int64, vec![vals.len()], vals)
    } else if let Some(values) = node.floats("value_floats") {
        let vals: Vec<Val> = values.iter().map(|v| float(*v)).collect();
        (DType::Float32, vec![vals.len()], vals)
    } else {
        return Err("strings and sparse tensors are not supported".into());
    };
    let shape = shape.into_iter().map(|n: usize| Dim::from(n as i64)).collect();
    Ok(vec![cx.known("", dtype, shape, vals)?])
}

pub(crate) fn shape(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let shape = cx.shape(node.input(0)?);
    let rank = shape.len() as i64;
    let clip =
        |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (clip(node.int("start", 0)), clip(node.int("end", rank)));
    let dims = if start < end { &shape[start..end] } else { &[] };
    Ok(vec![cx.known_ints("", dims)?])
}
