//! Attention and what belongs to it.

use super::movement::{concat_along, reshape_to};
use super::slicing::permute;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// Splits the last of three dimensions into heads: [batch, head, position, size].
fn by_heads(cx: &mut Context, part: &str, x: T, heads: i64) -> Outcome<T> {
    let shape = cx.shape(x);
    if shape.len() == 4 {
        return Ok(x);
    }
    if shape.len() != 3 || heads < 1 {
        return Err("the operands must have three or four dimensions".into());
    }
    let size = shape[2].div(&heads.into());
    let to = vec![shape[0].clone(), shape[1].clone(), heads.into(), size];
    let split = reshape_to(cx, &format!("{part}_heads"), x, to)?;
    permute(cx, part, split, &[0, 2, 1, 3])
}

/// An element of a mask that is broadcast to [batch, head, query, key].
fn mask_element(cx: &Context, mask: T, own: &[Dim]) -> E {
    cx.load_broadcast(mask, own)
}

pub(crate) fn attention(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (q, k, v) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let dtype = cx.dtype(q);
    let flat = cx.rank(q) == 3;
    let q = by_heads(cx, "query", q, node.int("q_num_heads", 0))?;
    let kv_heads = node.int("kv_num_heads", 0);
    let mut k = by_heads(cx, "key", k, kv_heads)?;
    let mut v = by_heads(cx, "value", v, kv_heads)?;
    let (mask, lens) = (node.optional(3), node.optional(6));
    let ranks = [Some(q), Some(k), Some(v), node.optional(4), node.optional(5)];
    if ranks.into_iter().flatten().any(|t| cx.rank(t) != 4) || mask.is_some_and(|m| cx.rank(m) > 4)
    {
        return Err("the rank of an operand is not supported".into());
    }
    let mut offset = E::Idx(Dim::zero());
    if let (Some(past_key), Some(past_value)) = (node.optional(4), node.optional(5)) {
        offset = E::Idx(cx.shape(past_key)[2].clone());
        k = concat_along(cx, "present_key", &[past_key, k], 2)?;
        v = concat_along(cx, "present_value", &[past_value, v], 2)?;
    }
    let present = (k, v);
    let (q, k, v) =
        (cx.widen("wide_query", q)?, cx.widen("wide_key", k)?, cx.widen("wide_value", v)?);
    let wide = cx.dtype(q);
    let (sq, sk, sv) = (cx.shape(q), cx.shape(k), cx.shape(v));
    let (heads, queries, keys) = (sq[1].clone(), sq[2].clone(), sk[2].clone());
    let group = heads.exact_div(&sk[1]).ok_or("the heads do not form groups")?;
    let shape = vec![sq[0].clone(), heads, queries.clone(), keys.clone()];
    let own = axes(&shape);
    let own_e: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    // Queries times keys.
    let inner = reduce_axis(0, &sq[3]);
    let term = cx.load(q, [own[0].clone(), own[1].clone(), own[2].clone(), inner.clone()]);
    let head = own[1].div(&group);
    let term = term.bin("*", cx.load(k, [own[0].clone(), head, own[3].clone(), inner]));
    let product = cx.fold("product", "sum", wide, shape.clone(), vec![sq[3].clone()], term)?;
    let scale = match node.attribute("scale").and_then(|a| a.f) {
        Some(scale) => E::float(f64::from(scale), wide),
        None => match sq[3].as_const() {
            Some(size) => E::float(1.0 / (size as f64).sqrt(), wide),
            None => E::float(1.0, wide).bin("/", E::call("sqrt", [E::dim(&sq[3], wide)])),
        },
    };
    let mut score = cx.load(product, own.clone()).bin("*", scale);
    let cap = node.float("softcap", 0.0);
    if cap > 0.0 {
        let inner = E::call("tanh", [score.bin("/", E::float(cap, wide))]);
        score = inner.bin("*", E::float(cap, wide));
    }
    let scores = cx.compute("scores", wide, shape.clone(), score)?;
    // Which keys each query may see.
    if let (Some(lens), None) = (lens, node.optional(4)) {
        let len = cx.load(lens, [own[0].clone()]).cast(DType::Int64);
        offset = len.bin("-", E::dim(&queries, DType::Int64));
    }
    let position = match offset {
        E::Idx(offset) => E::Idx(own[2].clone() + &offset),
        other => E::dim(&own[2], DType::Int64).bin("+", other),
    };
    let key = match &position {
        E::Idx(_) => own_e[3].clone(),
        _ => E::dim(&own[3], DType::Int64),
    };
    let number = |value: i64| match &position {
        E::Idx(_) => E::Idx(value.into()),
        _ => E::int(value, DType::Int64),
    };
    let mut allowed = Vec::new();
    let mut value = cx.load(scores, own.clone());
    if node.flag("is_causal", false) {
        allowed.push(key.clone().bin("<=", position.clone()));
    }
    let (left, right) = (node.int("left_window_size", -1), node.int("right_window_size", -1));
    if left >= 0 {
        allowed.push(key.clone().bin(">=", position.clone().bin("-", number(left))));
    }
    if right >= 0 {
        allowed.push(key.bin("<=", position.clone().bin("+", number(right))));
    }
    if let Some(lens) = lens {
        let len = cx.load(lens, [own[0].clone()]);
        allowed.push(E::Idx(own[3].clone()).bin("<", len));
    }
    if let Some(mask) = mask {
        let width = cx.shape(mask).last().cloned().ok_or("the mask has no dimensions")?;
        if width != keys && !width.is_one() {
            // A shorter mask hides the keys after it.
            allowed.push(E::Idx(own[3].clone()).bin("<", E::Idx(width.clone())));
            let mut padded = own.clone();
            padded[3] = own[3].clone();
            let index: Vec<E> = {
                let own_shape = cx.shape(mask);
                let lead = &padded[4 - own_shape.len()..];
                own_shape
                    .iter()
                    .zip(lead)
                    .enumerate()
                    .map(|(at, (n, axis))| match at + 1 == own_shape.len() {
                        true => E::call("min", [E::Idx(axis.clone()), E::Idx(n.clone() - 1)]),
                        false if n.is_one() => E::Idx(Dim::zero()),
                        false => E::Idx(axis.clone()),
                    })
                    .collect()
            };
            let element = E::Load(mask, index);
            value = apply_mask(cx, mask, element, value, &mut allowed, wide);
        } else {
            let element = mask_element(cx, mask, &own);
            value = apply_mask(cx, mask, element, value, &mut allowed, wide);
        }
    }
    let masked = !allowed.is_empty() || mask.is_some();
    if let Some(allowed) = E::all(allowed) {
        value = allowed.choose(value, E::float(f64::NEG_INFINITY, wide));
    }
    let biased = cx.compute("biased", wide, shape.clone(), value)?;
    let op = if masked { "masked_softmax4" } else { "softmax4" };
    let softmax = cx.call("softmax", wide, shape, op, vec![biased], Vec::new())?;
    // Probabilities times values.
    let out = vec![sq[0].clone(), sq[1].clone(), queries, sv[3].clone()];
    let own = axes(&out);
    let inner = reduce_axis(0, &keys);
    let head = own[1].div(&group);
    let term = cx.load(softmax, [own[0].clone(), own[1].clone(), own[2].clone(), inner.clone()]);
    let term = term.bin("*", cx.load(v, [own[0].clone(), head, inner, own[3].clone()]));
    let part = if flat || wide != dtype { "result" } else { "" };
    let mut result = cx.fold(part, "sum", wide, out.clone(), vec![keys], term)?;
    result = cx.cast("narrow", result, dtype)?;
    if flat {
        let moved = permute(cx, "merged", result, &[0, 2, 1, 3])?;
        let to = vec![out[0].clone(), out[2].clone(), &out[1] * &out[3]];
        result = reshape_to(cx, "", moved, to)?;
    }
    let exposed = match node.int("qk_matmul_output_mode", 0) {
        2 => biased,
        3 => softmax,
        _ => scores,
    };
    let exposed =
        if node.has_output(3) { cx.cast("scores_result", exposed, dtype)? } else { exposed };
    Ok(vec![result, present.0, present.1, exposed])
}

/// Adds a mask of numbers to a score, or adds a mask of conditions to those of the score.
fn apply_mask(cx: &Context, mask: T, element: E, score: E, allowed: &mut Vec<E>, wide: DType) -> E {
    match cx.dtype(mask) {
        DType::Bool => {
            allowed.push(element);
            score
        }
        own if own == wide => score.bin("+", element),
        _ => score.bin("+", element.cast(wide)),
    }
}

pub(crate) fn rotary_embedding(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, cos, sin) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let positions = node.optional(3);
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let flat = shape.len() == 3;
    let heads = by_heads(cx, "heads", x, node.int("num_heads", 0))?;
    let to = cx.shape(heads);
    let size = to[3].as_const().ok_or("a run-time size of the heads is not supported")?;
    let turned = match node.int("rotary_embedding_dim", 0) {
        0 => size,
        turned => turned,
    };
    if turned < 2 || turned > size || turned % 2 != 0 {
        return Err("the rotated size is not supported".into());
    }
    let half = turned / 2;
    let own = axes(&to);
    let interleaved = node.flag("interleaved", false);
    // The pair of an element, its own place in the pair, and the place of the other one.
    let place = own[3].clone();
    let halves = Dim::from(half);
    let (pair, second, other) = if interleaved {
        let pair = place.div(&2.into());
        let second = E::Idx(place.rem(&2.into())).bin("==", E::Idx(1.into()));
        let other = pair.clone() * 4 + 1 - &place;
        (E::Idx(pair), second, E::Idx(other))
    } else {
        let second = E::Idx(place.clone()).bin(">=", E::Idx(halves.clone()));
        let from_end = (place.clone() + half).rem(&turned.into());
        (E::Idx(place.rem(&halves)), second, E::Idx(from_end))
    };
    let clamp = |e: E, last: i64| {
        if turned == size { e } else { E::call("min", [e, E::Idx(last.into())]) }
    };
    let (pair, other) = (clamp(pair, half - 1), clamp(other, size - 1));
    let angle = |cx: &mut Context, table: T| -> Outcome<E> {
        let mut index = match (positions, cx.rank(table)) {
            (Some(positions), 2) => {
                let at = vec![E::Idx(own[0].clone()), E::Idx(own[2].clone())];
                let rows = cx.shape(table)[0].clone();
                vec![super::gather::place(cx, positions, at, &rows)]
            }
            (None, 3) => vec![E::Idx(own[0].clone()), E::Idx(own[2].clone())],
            _ => return Err("the rank of the cache is not supported".into()),
        };
        index.push(pair.clone());
        // Of two tables the angles are chosen, not the tables.
        Ok(match cx.choices.get(&table).copied() {
            Some((condition, yes, no)) => {
                let flag = cx.load(condition, vec![Dim::zero(); cx.rank(condition)]);
                flag.choose(E::Load(yes, index.clone()), E::Load(no, index))
            }
            None => E::Load(table, index),
        })
    };
    let (c, s) = (angle(cx, cos)?, angle(cx, sin)?);
    let mut at: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    let mine = E::Load(heads, at.clone());
    at[3] = other;
    let theirs = E::Load(heads, at);
    let first = c.clone().bin("*", mine.clone()).bin("-", s.clone().bin("*", theirs.clone()));
    let last = s.bin("*", theirs).bin("+", c.bin("*", mine.clone()));
    let mut body = second.choose(last, first);
    if turned < size {
        let inside = E::Idx(own[3].clone()).bin("<", E::Idx(turned.into()));
        body = inside.choose(body, mine);
    }
    let part = if flat { "rotated" } else { "" };
    let result = cx.compute(part, dtype, to, body)?;
    if !flat {
        return Ok(vec![result]);
    }
    let moved = permute(cx, "merged", result, &[0, 2, 1, 3])?;
    Ok(vec![reshape_to(cx, "", moved, shape)?])
}

pub(crate) fn causal_conv(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, w) = (node.input(0)?, node.input(1)?);
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let weight = cx.shape(w);
    if shape.len() != 3 || weight.len() != 3 {
        return Err("the operands must have three dimensions".into());
    }
    let (size, length) = (weight[2].clone(), shape[2].clone());
    let before = size.clone() - 1;
    let padded = match node.optional(3) {
        Some(past) => concat_along(cx, "padded", &[past, x], 2)?,
        None => {
            let around = [
                (Dim::zero(), Dim::zero()),
                (Dim::zero(), Dim::zero()),
                (before.clone(), Dim::zero()),
            ];
            super::slicing::pad_with(cx, "padded", x, &around, E::num(0.0, dtype))?
        }
    };
    let wide = if dtype.is_half() { DType::Float32 } else { dtype };
    let own = axes(&shape);
    let k = reduce_axis(0, &size);
    let load = cx.load(padded, [own[0].clone(), own[1].clone(), own[2].clone() + &k]);
    let weight = cx.load(w, [own[1].clone(), Dim::zero(), k]);
    let term = if wide == dtype {
        load.bin("*", weight)
    } else {
        load.cast(wide).bin("*", weight.cast(wide))
    };
    let sum = cx.fold("sum", "sum", wide, shape.clone(), vec![size], term)?;
    let mut body = cx.load(sum, own.clone());
    if let Some(bias) = node.optional(2) {
        let bias = cx.load(bias, [own[1].clone()]);
        body = body.bin("+", if wide == dtype { bias } else { bias.cast(wide) });
    }
    body = match node.text("activation", "none") {
        "none" => body,
        "silu" | "swish" => body.clone().bin("*", E::call("sigmoid", [body])),
        _ => return Err("the activation is not supported".into()),
    };
    let body = if wide == dtype { body } else { body.cast(dtype) };
    let y = cx.compute("", dtype, shape, body)?;
    let state = super::slicing::section(cx, "state", padded, 2, &length, &before)?;
    Ok(vec![y, state])
}

/// The scores of `FlexAttention`, [batch, head, query, key], as wide as its softmax.
pub(crate) fn flex_scores(cx: &mut Context, node: &Node) -> Outcome<T> {
    let (q, k) = (node.input(0)?, node.input(1)?);
    if cx.rank(q) != 4 || cx.rank(k) != 4 || !cx.dtype(q).is_float() {
        return Err("the operands must have four dimensions".into());
    }
    let double =
        cx.dtype(q) == DType::Float64 || node.dtype("softmax_precision")? == Some(DType::Float64);
    let wide = if double { DType::Float64 } else { DType::Float32 };
    let (q, k) = (cx.cast("query", q, wide)?, cx.cast("key", k, wide)?);
    let (sq, sk) = (cx.shape(q), cx.shape(k));
    let group = sq[1].exact_div(&sk[1]).ok_or("the heads do not form groups")?;
    cx.require_equal(&sq[3], &sk[3])?;
    cx.require_equal(&sq[0], &sk[0])?;
    let shape = vec![sq[0].clone(), sq[1].clone(), sq[2].clone(), sk[2].clone()];
    let own = axes(&shape);
    let inner = reduce_axis(0, &sq[3]);
    let term = cx.load(q, [own[0].clone(), own[1].clone(), own[2].clone(), inner.clone()]);
    let head = own[1].div(&group);
    let term = term.bin("*", cx.load(k, [own[0].clone(), head, own[3].clone(), inner]));
    let product = cx.fold("product", "sum", wide, shape.clone(), vec![sq[3].clone()], term)?;
    let scale = match (node.attribute("scale").and_then(|own| own.f), sq[3].as_const()) {
        (Some(scale), _) => E::float(f64::from(scale), wide),
        (None, Some(size)) => E::float(1.0 / (size as f64).sqrt(), wide),
        (None, None) => return Err("a run-time size of the heads is not supported".into()),
    };
    let body = cx.load(product, own).bin("*", scale);
    cx.compute("scores", wide, shape, body)
}

/// The softmax of scores.
pub(crate) fn flex_softmax(cx: &mut Context, scores: T) -> Outcome<T> {
    let (shape, wide) = (cx.shape(scores), cx.dtype(scores));
    if shape.len() != 4 {
        return Err("the graph must keep the shape of the scores".into());
    }
    cx.call("softmax", wide, shape, "softmax4", vec![scores], Vec::new())
}

/// The product of the probabilities and the values.
pub(crate) fn flex_result(cx: &mut Context, node: &Node, probabilities: T) -> Outcome<T> {
    let v = node.input(2)?;
    let (sp, sv, dtype) = (cx.shape(probabilities), cx.shape(v), cx.dtype(v));
    let wide = cx.dtype(probabilities);
    if sp.len() != 4 || sv.len() != 4 || !wide.is_float() {
        return Err("the operands must have four dimensions".into());
    }
    let group = sp[1].exact_div(&sv[1]).ok_or("the heads do not form groups")?;
    cx.require_equal(&sp[3], &sv[2])?;
    cx.require_equal(&sp[0], &sv[0])?;
    let v = cx.cast("value", v, wide)?;
    let out = vec![sp[0].clone(), sp[1].clone(), sp[2].clone(), sv[3].clone()];
    let own = axes(&out);
    let inner = reduce_axis(0, &sp[3]);
    let head = own[1].div(&group);
    let at = [own[0].clone(), own[1].clone(), own[2].clone(), inner.clone()];
    let term = cx.load(probabilities, at);
    let term = term.bin("*", cx.load(v, [own[0].clone(), head, inner, own[3].clone()]));
    let part = if wide == dtype { "" } else { "sum" };
    let sum = cx.fold(part, "sum", wide, out, vec![sp[3].clone()], term)?;
    cx.cast("", sum, dtype)
}
