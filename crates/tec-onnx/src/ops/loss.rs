//! Losses.

use super::norm::log_softmax_over;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The negative logarithm of the probability of each target, weighted and reduced.
fn nll(
    cx: &mut Context,
    node: &Node,
    log_probability: T,
    target: T,
    weight: Option<T>,
) -> Outcome<T> {
    let dtype = cx.dtype(log_probability);
    let shape = cx.shape(log_probability);
    if shape.len() < 2 {
        return Err("the rank must be at least 2".into());
    }
    let out = cx.shape(target);
    if out.len() + 1 != shape.len() {
        return Err("the ranks of the operands do not fit".into());
    }
    let classes = shape[1].clone();
    let ignored = node.attribute("ignore_index").and_then(|a| a.i);
    let own = axes(&out);
    let label_type = cx.dtype(target);
    let label = cx.load(target, own.clone());
    let last = E::dim(&(classes - 1), label_type);
    let class = E::call("clamp", [label.clone(), E::int(0, label_type), last]);
    let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    index.insert(1, class.clone());
    let counted = |value: E| match ignored {
        Some(ignored) => {
            let skip = label.clone().bin("==", E::int(ignored, label_type));
            skip.choose(E::float(0.0, dtype), value)
        }
        None => value,
    };
    let factor = match weight {
        Some(weight) => cx.load_at(weight, vec![class]),
        None => E::float(1.0, dtype),
    };
    let value = cx.load_at(log_probability, index).un("-");
    let value = if weight.is_some() { value.bin("*", factor.clone()) } else { value };
    let reduction = node.text("reduction", "mean");
    let part = if reduction == "none" { "" } else { "terms" };
    let losses = cx.compute(part, dtype, out.clone(), counted(value))?;
    if reduction == "none" {
        return Ok(losses);
    }
    let index: Vec<Dim> = out.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect();
    let total_part = if reduction == "sum" { "" } else { "sum" };
    let load = cx.load(losses, index.clone());
    let total = cx.fold(total_part, "sum", dtype, vec![], out.clone(), load)?;
    if reduction == "sum" {
        return Ok(total);
    }
    let weights = cx.compute("weights", dtype, out.clone(), counted(factor))?;
    let load = E::Load(weights, index.into_iter().map(E::Idx).collect());
    let count = cx.fold("count", "sum", dtype, vec![], out, load)?;
    cx.elementwise("", dtype, &[total, count], |mut e| {
        let count = e.remove(1);
        e.remove(0).bin("/", count)
    })
}

pub(crate) fn negative_log_likelihood(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, target) = (node.input(0)?, node.input(1)?);
    if cx.dtype(x).is_half() {
        return Err("16-bit floats are not supported".into());
    }
    Ok(vec![nll(cx, node, x, target, node.optional(2))?])
}

pub(crate) fn softmax_cross_entropy(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, target) = (node.input(0)?, node.input(1)?);
    if cx.dtype(x) == DType::Float16 || cx.dtype(x) == DType::BFloat16 {
        return Err("16-bit floats are not supported".into());
    }
    let log = log_softmax_over(cx, "log_prob", x, &[1])?;
    let loss = nll(cx, node, log, target, node.optional(2))?;
    Ok(vec![loss, log])
}
