//! Operators with what follows them.

use super::{apply, float, int, named};
use crate::context::{Context, axes, reduce_axis};
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::{Handler, activation, conv as convolution, elementwise, gather, norm, product};

/// The sum of operands, some of which may be missing.
fn sum(cx: &mut Context, part: &str, operands: &[Option<T>]) -> Outcome<T> {
    let mut operands = operands.iter().flatten();
    let mut total = *operands.next().ok_or("an input is missing")?;
    let rest: Vec<T> = operands.copied().collect();
    for (at, operand) in rest.iter().enumerate() {
        let part = if at + 1 == rest.len() { part.to_string() } else { format!("{part}{at}") };
        let add: (&str, Handler) = ("Add", elementwise::add);
        total = apply(cx, &part, add, &[Some(total), Some(*operand)], named(&[]))?;
    }
    Ok(total)
}

pub(super) fn gelu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    Ok(vec![apply(cx, "", ("Gelu", activation::gelu), &[Some(x)], named(&[]))?])
}

pub(super) fn bias_gelu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = sum(cx, "biased", &[Some(node.input(0)?), node.optional(1)])?;
    Ok(vec![apply(cx, "", ("Gelu", activation::gelu), &[Some(x)], named(&[]))?])
}

pub(super) fn fast_gelu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = sum(cx, "biased", &[Some(node.input(0)?), node.optional(1)])?;
    let s = Some(b"tanh".to_vec().into());
    let tanh = crate::proto::AttributeProto {
        name: Some("approximate".to_string()),
        s,
        ..Default::default()
    };
    Ok(vec![apply(cx, "", ("Gelu", activation::gelu), &[Some(x)], named(&[tanh]))?])
}

pub(super) fn quick_gelu(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let alpha = node.float("alpha", 1.702);
    let wide = if dtype.is_half() { DType::Float32 } else { dtype };
    let y = cx.elementwise("", dtype, &[x], |mut x| {
        let x = x.remove(0);
        let x = if wide == dtype { x } else { x.cast(wide) };
        let gate = E::call("sigmoid", [x.clone().bin("*", E::float(alpha, wide))]);
        let body = x.bin("*", gate);
        if wide == dtype { body } else { body.cast(dtype) }
    })?;
    Ok(vec![y])
}

/// Applies the attribute `activation`.
fn activated(cx: &mut Context, node: &Node, x: T) -> Outcome<T> {
    let params = node.floats("activation_params").unwrap_or(&[]);
    let alpha = |default: f64| params.first().map_or(default, |v| f64::from(*v));
    let alpha =
        node.attribute("activation_alpha").and_then(|a| a.f).map_or_else(|| alpha(0.01), f64::from);
    let one: (&str, Handler) = match node.text("activation", "") {
        "" => return Ok(x),
        "Relu" => ("Relu", activation::relu),
        "Sigmoid" => ("Sigmoid", elementwise::sigmoid),
        "Tanh" => ("Tanh", elementwise::tanh),
        "LeakyRelu" => ("LeakyRelu", activation::leaky_relu),
        "Clip" => {
            let [low, high] = params else { return Err("a clip needs two bounds".into()) };
            let (low, high, dtype) = (f64::from(*low), f64::from(*high), cx.dtype(x));
            return cx.elementwise("", dtype, &[x], |mut x| {
                let bounds = [E::float(low, dtype), E::float(high, dtype)];
                let [low, high] = bounds;
                E::call("clamp", [x.remove(0), low, high])
            });
        }
        "HardSigmoid" => {
            let beta = params.get(1).map_or(0.5, |v| f64::from(*v));
            let alpha = params.first().map_or(0.2, |v| f64::from(*v));
            let list = [float("alpha", alpha), float("beta", beta)];
            let one: (&str, Handler) = ("HardSigmoid", activation::hard_sigmoid);
            return apply(cx, "", one, &[Some(x)], named(&list));
        }
        _ => return Err("the activation is not supported".into()),
    };
    apply(cx, "", one, &[Some(x)], named(&[float("alpha", alpha)]))
}

pub(super) fn conv(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let inputs = [Some(node.input(0)?), Some(node.input(1)?), node.optional(2)];
    let one: (&str, Handler) = ("Conv", convolution::conv);
    let y = apply(cx, "conv", one, &inputs, node.attributes.clone())?;
    let y = sum(cx, "sum", &[Some(y), node.optional(3)])?;
    Ok(vec![activated(cx, node, y)?])
}

pub(super) fn gemm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let inputs = [Some(node.input(0)?), Some(node.input(1)?), node.optional(2)];
    let one: (&str, Handler) = ("Gemm", product::gemm);
    let y = apply(cx, "product", one, &inputs, node.attributes.clone())?;
    Ok(vec![activated(cx, node, y)?])
}

pub(super) fn matmul(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    if node.flag("transBatchA", false) || node.flag("transBatchB", false) {
        return Err("transposed batches are not supported".into());
    }
    let mut operands = [node.input(0)?, node.input(1)?];
    for (at, name) in ["transA", "transB"].into_iter().enumerate() {
        let rank = cx.rank(operands[at]);
        if node.flag(name, false) && rank > 1 {
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 1, rank - 2);
            let part = ["left", "right"][at];
            operands[at] = crate::ops::slicing::permute(cx, part, operands[at], &order)?;
        }
    }
    let alpha = node.float("alpha", 1.0);
    let part = if alpha == 1.0 { "" } else { "product" };
    let y = product::product(cx, part, operands[0], operands[1])?;
    if alpha == 1.0 {
        return Ok(vec![y]);
    }
    let dtype = cx.dtype(y);
    let y = cx.elementwise("", dtype, &[y], |mut y| y.remove(0).bin("*", E::num(alpha, dtype)))?;
    Ok(vec![y])
}

pub(super) fn skip_layer_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let total = sum(cx, "sum", &[Some(node.input(0)?), Some(node.input(1)?), node.optional(4)])?;
    let list = [float("epsilon", node.float("epsilon", 1e-12)), int("axis", -1)];
    let inputs = [Some(total), Some(node.input(2)?), node.optional(3)];
    let one: (&str, Handler) = ("LayerNormalization", norm::layer_norm);
    let y = apply(cx, "", one, &inputs, named(&list))?;
    with_sum(node, y, total)
}

/// The outputs of a normalisation of a sum; the statistics of training are left out.
fn with_sum(node: &Node, y: T, total: T) -> Outcome<Vec<T>> {
    if node.has_output(1) || node.has_output(2) {
        return Err("the statistics are not supported".into());
    }
    Ok(vec![y, total, total, total])
}

pub(super) fn skip_rms_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let total = sum(cx, "sum", &[Some(node.input(0)?), Some(node.input(1)?), node.optional(3)])?;
    let list = [float("epsilon", node.float("epsilon", 1e-12)), int("axis", -1)];
    let inputs = [Some(total), Some(node.input(2)?)];
    let one: (&str, Handler) = ("RMSNormalization", norm::rms_norm);
    let y = apply(cx, "", one, &inputs, named(&list))?;
    with_sum(node, y, total)
}

pub(super) fn embed_layer_norm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let ids = node.input(0)?;
    if cx.rank(ids) != 2 {
        return Err("the rank of the tokens is not supported".into());
    }
    let one: (&str, Handler) = ("Gather", gather::gather);
    let words = apply(cx, "words", one, &[Some(node.input(2)?), Some(ids)], named(&[]))?;
    let table = node.input(3)?;
    if cx.rank(table) != 2 || cx.rank(words) != 3 {
        return Err("the tables must have two dimensions".into());
    }
    let positions = match node.optional(8) {
        Some(at) => apply(cx, "positions", one, &[Some(table), Some(at)], named(&[]))?,
        None => {
            // The first rows of the table.
            let (shape, rows) = (cx.shape(words), cx.shape(table));
            let room = rows[0].clone() - &shape[1];
            if !room.is_nonnegative() {
                cx.assumptions.insert((shape[1].clone(), "<=", rows[0].clone()));
            }
            let to = shape[1..].to_vec();
            let dtype = cx.dtype(table);
            let body = cx.load(table, axes(&to));
            cx.compute("positions", dtype, to, body)?
        }
    };
    let segments = match (node.optional(1), node.optional(4)) {
        (Some(at), Some(table)) => {
            Some(apply(cx, "segments", one, &[Some(table), Some(at)], named(&[]))?)
        }
        _ => None,
    };
    let total = sum(cx, "sum", &[Some(words), Some(positions), segments])?;
    let list = [float("epsilon", node.float("epsilon", 1e-12)), int("axis", -1)];
    let inputs = [Some(total), Some(node.input(5)?), Some(node.input(6)?)];
    let one: (&str, Handler) = ("LayerNormalization", norm::layer_norm);
    let y = apply(cx, "", one, &inputs, named(&list))?;
    let lengths = if node.has_output(1) { mask_index(cx, ids, node.optional(7))? } else { total };
    Ok(vec![y, lengths, total])
}

/// The number of tokens that a mask shows in each sequence; 0 without a mask, as in onnxruntime.
fn mask_index(cx: &mut Context, ids: T, mask: Option<T>) -> Outcome<T> {
    let (batch, dtype) = (vec![cx.shape(ids)[0].clone()], DType::Int32);
    let Some(mask) = mask else {
        return cx.compute("mask_index", dtype, batch, E::int(0, dtype));
    };
    let (shape, own) = (cx.shape(mask), cx.dtype(mask));
    if shape.len() != 2 || !own.is_int() {
        return Err("the mask is not supported".into());
    }
    cx.require_equal(&shape[0], &batch[0])?;
    let load = cx.load(mask, [axes(&batch)[0].clone(), reduce_axis(0, &shape[1])]);
    let shown = load.bin("==", E::int(1, own));
    let term = shown.choose(E::int(1, dtype), E::int(0, dtype));
    cx.fold("mask_index", "sum", dtype, batch, vec![shape[1].clone()], term)
}
