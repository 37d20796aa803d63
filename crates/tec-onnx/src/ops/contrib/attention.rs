//! Attention of onnxruntime, in terms of that of ONNX.

use super::{apply, float, int, named};
use crate::context::{Context, axes};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::movement::reshape_to;
use crate::ops::{Handler, attention as default, elementwise, product, slicing};

/// What is added to the scores: a bias, and a large negative number for keys that are hidden. A
/// mask of one dimension has the numbers of keys that are not. `keys` is the shape of the keys, of
/// which the first two dimensions are the batch and the position.
fn mask(
    cx: &mut Context,
    node: &Node,
    (mask, bias): (Option<T>, Option<T>),
    keys: &[Dim],
) -> Outcome<Option<T>> {
    let Some(mut mask) = mask else { return Ok(bias) };
    if !cx.dtype(mask).is_int() {
        return Err("the type of the mask is not supported".into());
    }
    if cx.rank(mask) == 1 {
        mask = shown_keys(cx, mask, keys)?;
    }
    let shape = cx.shape(mask);
    let to = match shape.len() {
        2 => vec![shape[0].clone(), 1.into(), 1.into(), shape[1].clone()],
        3 => vec![shape[0].clone(), 1.into(), shape[1].clone(), shape[2].clone()],
        _ => return Err("the rank of the mask is not supported".into()),
    };
    let mask = reshape_to(cx, "mask", mask, to)?;
    let hidden = node.float("mask_filter_value", -10000.0);
    let own = cx.dtype(mask);
    let dtype = DType::Float32;
    let hidden = cx.elementwise("hidden", dtype, &[mask], |mut m| {
        let keeps = m.remove(0).bin("!=", E::int(0, own));
        keeps.choose(E::num(0.0, dtype), E::float(hidden, dtype))
    })?;
    let Some(bias) = bias else { return Ok(Some(hidden)) };
    let bias = cx.cast("bias", bias, dtype)?;
    let one: (&str, Handler) = ("Add", elementwise::add);
    Ok(Some(apply(cx, "mask_and_bias", one, &[Some(bias), Some(hidden)], named(&[]))?))
}

/// The mask of two dimensions of the numbers of keys that are not hidden.
fn shown_keys(cx: &mut Context, lengths: T, keys: &[Dim]) -> Outcome<T> {
    // One with more elements has the first keys, too, or the places in a packed batch.
    cx.require_equal(&cx.shape(lengths)[0], &keys[0])?;
    let (shape, dtype) = (keys[..2].to_vec(), cx.dtype(lengths));
    let own = axes(&shape);
    let length = cx.load(lengths, [own[0].clone()]);
    let shown = E::dim(&own[1], DType::Int64).bin("<", length.cast(DType::Int64));
    let body = shown.choose(E::int(1, dtype), E::int(0, dtype));
    cx.compute("shown", dtype, shape, body)
}

/// The attention of queries, keys and values, each [batch, position, heads × size].
fn attend(
    cx: &mut Context,
    node: &Node,
    [q, k, v]: [T; 3],
    mask: Option<T>,
    past: [Option<T>; 2],
) -> Outcome<Vec<T>> {
    let heads = node.int("num_heads", 0);
    let mut list = vec![
        int("q_num_heads", heads),
        int("kv_num_heads", heads),
        int("is_causal", node.int("unidirectional", 0)),
    ];
    let scale = node.float("scale", 0.0);
    if scale != 0.0 {
        list.push(float("scale", scale));
    }
    let inner = Node {
        op: "Attention",
        opset: 23,
        inputs: vec![Some(q), Some(k), Some(v), mask, past[0], past[1]],
        outputs: vec!["result", "present_key", "present_value"],
        readers: vec![0; 6],
        attributes: named(&list),
    };
    default::attention(cx, &inner)
}

pub(super) fn attention(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, w) = (node.input(0)?, node.input(1)?);
    if node.optional(4).is_some() || node.optional(6).is_some() || node.has_output(1) {
        return Err("past keys and values are not supported".into());
    }
    if node.flag("do_rotary", false) || node.has("qkv_hidden_sizes") {
        return Err("`do_rotary` and `qkv_hidden_sizes` are not supported".into());
    }
    let mut all = product::product(cx, "product", x, w)?;
    if let Some(bias) = node.optional(2) {
        let one: (&str, Handler) = ("Add", elementwise::add);
        all = apply(cx, "biased", one, &[Some(all), Some(bias)], named(&[]))?;
    }
    let size = cx.shape(all).last().and_then(Dim::as_extent).unwrap_or(0) as i64;
    if cx.rank(all) != 3 || size == 0 || size % 3 != 0 {
        return Err("the weights must be those of queries, keys and values".into());
    }
    let size = size / 3;
    let mut part =
        |name: &str, at: i64| slicing::section(cx, name, all, 2, &(at * size).into(), &size.into());
    let parts = [part("query", 0)?, part("key", 1)?, part("value", 2)?];
    let keys = cx.shape(all);
    let mask = mask(cx, node, (node.optional(3), node.optional(5)), &keys)?;
    let mut results = attend(cx, node, parts, mask, [None, None])?;
    results.truncate(1);
    Ok(results)
}

pub(super) fn multi_head_attention(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (q, k, v) = (node.input(0)?, node.optional(1), node.optional(2));
    let (Some(k), Some(v)) = (k, v) else {
        return Err("packed keys and values are not supported".into());
    };
    let heads = node.int("num_heads", 0);
    let mut parts = [q, k, v];
    if parts.iter().any(|x| cx.rank(*x) != 3) || heads < 1 {
        return Err("the operands must have three dimensions".into());
    }
    if let Some(bias) = node.optional(3) {
        if cx.rank(bias) != 1 {
            return Err("the bias must have one dimension".into());
        }
        let mut first = Dim::zero();
        for (at, part) in parts.iter_mut().enumerate() {
            let size = cx.shape(*part)[2].clone();
            let name = ["query_bias", "key_bias", "value_bias"][at];
            let own = slicing::section(cx, name, bias, 0, &first, &size)?;
            let one: (&str, Handler) = ("Add", elementwise::add);
            let name = ["query", "key", "value"][at];
            *part = apply(cx, name, one, &[Some(*part), Some(own)], named(&[]))?;
            first = first + &size;
        }
    }
    if node.optional(6).is_some() && node.optional(4).is_some_and(|mask| cx.rank(mask) == 1) {
        return Err("lengths of keys with past keys are not supported".into());
    }
    let keys = cx.shape(k);
    let mask = mask(cx, node, (node.optional(4), node.optional(5)), &keys)?;
    let mut results = attend(cx, node, parts, mask, [node.optional(6), node.optional(7)])?;
    results.truncate(3);
    Ok(results)
}

pub(super) fn rotary_embedding(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, positions) = (node.input(0)?, node.input(1)?);
    let (cos, sin) = (node.input(2)?, node.input(3)?);
    if node.float("scale", 1.0) != 1.0 {
        return Err("a scale is not supported".into());
    }
    let shape = cx.shape(x);
    if !(3..=4).contains(&shape.len()) {
        return Err("the operand must have three or four dimensions".into());
    }
    let half = cx.shape(cos).last().and_then(Dim::as_extent).unwrap_or(0) as i64;
    let positions = match cx.rank(positions) {
        2 => positions,
        // The position of the first token.
        _ => {
            let dtype = cx.dtype(positions);
            let length = if shape.len() == 4 { shape[2].clone() } else { shape[1].clone() };
            let to = vec![shape[0].clone(), length];
            let own = axes(&to);
            let first = cx.load(positions, vec![Dim::zero(); cx.rank(positions)]);
            let body = first.bin("+", E::dim(&own[1], dtype));
            cx.compute("positions", dtype, to, body)?
        }
    };
    let mut list = vec![int("interleaved", node.int("interleaved", 0))];
    let mut heads = node.int("num_heads", 0);
    if heads == 0 && shape.len() == 3 {
        let size = shape[2].as_extent().unwrap_or(0) as i64;
        heads = if half > 0 { size / (2 * half) } else { 0 };
    }
    list.push(int("num_heads", heads));
    list.push(int("rotary_embedding_dim", node.int("rotary_embedding_dim", 0)));
    let one: (&str, Handler) = ("RotaryEmbedding", default::rotary_embedding);
    let inputs = [Some(x), Some(cos), Some(sin), Some(positions)];
    Ok(vec![apply(cx, "", one, &inputs, named(&list))?])
}
