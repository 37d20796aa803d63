//! `GroupQueryAttention` of onnxruntime: attention of decoders with their caches.
//!
//! A sequence of the batch has `seqlens_k[b] + 1` tokens, of which the last ones are new, and the
//! cache has those before them. The first call of a batch is one in which all tokens are new:
//! sequences that are shorter than the longest one end early then.

use super::{apply, float, int, named};
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::movement::reshape_to;
use crate::ops::{Handler, attention as default, norm, slicing};

/// The operands of a node, by heads.
pub(crate) struct Grouped {
    /// Queries, keys and values of the new tokens: [batch, head, position, size].
    query: T,
    pub(crate) key: T,
    pub(crate) value: T,
    lengths: Lengths,
}

/// What decides which keys a query sees.
struct Lengths {
    /// The number of tokens of the longest sequence.
    total: Dim,
    /// The number of tokens before the new ones: one for all sequences, or that of each.
    past: Past,
    /// `seqlens_k`, one for each sequence.
    last: T,
}

/// The number of tokens before the new ones.
enum Past {
    Equal(Dim),
    Each(T),
}

impl Past {
    /// The number for a sequence.
    fn of(&self, cx: &Context, batch: &Dim) -> E {
        match self {
            Past::Equal(dim) => E::Idx(dim.clone()),
            Past::Each(past) => cx.load(*past, [batch.clone()]),
        }
    }

    /// A number of the same type.
    fn number(&self, dim: &Dim) -> E {
        match self {
            Past::Equal(_) => E::Idx(dim.clone()),
            Past::Each(_) => E::dim(dim, DType::Int64),
        }
    }

    /// The sum with a number.
    fn plus(&self, cx: &Context, batch: &Dim, dim: &Dim) -> E {
        self.of(cx, batch).bin("+", self.number(dim))
    }
}

/// Refuses what changes the meaning of the operator.
fn check(node: &Node) -> Outcome<()> {
    let refuse = |text: &str| Err(text.into());
    if node.flag("sliding_window_cache", false) {
        return refuse("`sliding_window_cache` is not supported: rows move in the cache");
    }
    for name in ["k_quant_type", "v_quant_type"] {
        if node.text(name, "NONE") != "NONE" {
            return Err(format!("`{name}` is not supported: the cache must have floats").into());
        }
    }
    if node.int("qk_output", 0) != 0 || node.has_output(3) {
        return refuse("`qk_output` is not supported: its rows have no constant meaning");
    }
    if !node.flag("causal", true) && node.int("local_window_size", -1) > 0 {
        return refuse("`local_window_size` needs `causal`");
    }
    Ok(())
}

/// Splits [batch, position, heads × size] into heads.
fn by_heads(cx: &mut Context, part: &str, x: T, heads: i64) -> Outcome<T> {
    let shape = cx.shape(x);
    let size = shape[2].exact_div(&heads.into()).ok_or("the heads have different sizes")?;
    let to = vec![shape[0].clone(), shape[1].clone(), heads.into(), size];
    let split = reshape_to(cx, &format!("{part}_heads"), x, to)?;
    slicing::permute(cx, part, split, &[0, 2, 1, 3])
}

/// Queries, keys and values, which may be packed, by heads.
fn operands(cx: &mut Context, node: &Node) -> Outcome<[T; 3]> {
    let (q, k, v) = (node.input(0)?, node.optional(1), node.optional(2));
    let (heads, groups) = (node.int("num_heads", 0), node.int("kv_num_heads", 0));
    let ranks = [Some(q), k, v].into_iter().flatten();
    if heads < 1 || groups < 1 || heads % groups != 0 {
        return Err("`num_heads` must be a multiple of `kv_num_heads`".into());
    }
    if ranks.into_iter().any(|x| cx.rank(x) != 3) || !cx.dtype(q).is_float() {
        return Err("the operands must have three dimensions".into());
    }
    let [q, k, v] = match (k, v) {
        (Some(k), Some(v)) => [q, k, v],
        (None, None) => {
            let size = cx.shape(q)[2].exact_div(&(heads + 2 * groups).into());
            let size = size.and_then(|size| size.as_const()).ok_or("the heads differ in size")?;
            let mut first = 0;
            let mut part = |name: &str, count: i64| {
                let (from, extent) = (Dim::from(first * size), Dim::from(count * size));
                first += count;
                slicing::section(cx, name, q, 2, &from, &extent)
            };
            [
                part("packed_query", heads)?,
                part("packed_key", groups)?,
                part("packed_value", groups)?,
            ]
        }
        _ => return Err("keys and values must both be there or be packed".into()),
    };
    let q = by_heads(cx, "query", q, heads)?;
    let k = by_heads(cx, "key", k, groups)?;
    let v = by_heads(cx, "value", v, groups)?;
    for at in [0, 2, 3] {
        let (own, key, value) = (cx.shape(q)[at].clone(), cx.shape(k), cx.shape(v));
        cx.require_equal(&own, &key[at])?;
        cx.require_equal(&own, &value[at])?;
    }
    let scaled = |cx: &mut Context, part: &str, x: T, weight: usize| match node.optional(weight) {
        None => Ok(x),
        Some(weight) => {
            let list = [float("epsilon", node.float("qk_norm_epsilon", 1e-6)), int("axis", -1)];
            let one: (&str, Handler) = ("RMSNormalization", norm::rms_norm);
            apply(cx, part, one, &[Some(x), Some(weight)], named(&list))
        }
    };
    Ok([scaled(cx, "query_norm", q, 14)?, scaled(cx, "key_norm", k, 15)?, v])
}

/// How many tokens the sequences have. With `before`, the number of rows of the caches, all
/// sequences have as many tokens.
fn lengths(cx: &mut Context, node: &Node, new: &[Dim], before: Option<&Dim>) -> Outcome<Lengths> {
    let (batch, count) = (new[0].clone(), new[2].clone());
    let last = reshape_to(cx, "seqlens_k", node.input(5)?, vec![batch.clone()])?;
    let declared = cx.declared(1).and_then(|shape| shape.get(2).cloned());
    let total = node.input(6)?;
    let total = cx.declared_dim(total, "`total_sequence_length`", declared)?;
    cx.require_elements(&count);
    cx.new_tokens = Some(count.clone());
    if let Some(before) = before {
        let all = before.clone() + &count;
        cx.require_equal(&total, &all)?;
        return Ok(Lengths { total: all, past: Past::Equal(before.clone()), last });
    }
    let rows = match node.optional(3) {
        Some(past) if cx.rank(past) == 4 => cx.shape(past)[2].clone(),
        Some(_) => return Err("the cache must have four dimensions".into()),
        None => Dim::zero(),
    };
    // More tokens than the cache and the new ones would have no keys.
    let most = rows + &count;
    if most != total {
        if let (Some(most), Some(total)) = (most.as_const(), total.as_const()) {
            if total > most {
                return Err("`total_sequence_length` exceeds the cache and the new tokens".into());
            }
        } else {
            cx.assumptions.insert((total.clone(), "<=", most));
        }
    }
    let own = axes(std::slice::from_ref(&batch));
    let tokens = cx.load(last, own).cast(DType::Int64).bin("+", E::int(1, DType::Int64));
    let before = tokens.bin("-", E::dim(&count, DType::Int64));
    // All tokens are new.
    let first = E::Idx(total.clone()).bin("==", E::Idx(count.clone()));
    let body = if total == count {
        E::int(0, DType::Int64)
    } else {
        first.choose(E::int(0, DType::Int64), before)
    };
    let past = cx.compute("past", DType::Int64, vec![batch], body)?;
    Ok(Lengths { total, past: Past::Each(past), last })
}

/// Turns queries or keys by the angles of their positions.
fn turned(cx: &mut Context, node: &Node, x: T, part: &str, lengths: &Lengths) -> Outcome<T> {
    let (cos, sin) = (node.input(7)?, node.input(8)?);
    if cx.rank(cos) != 2 || cx.rank(sin) != 2 {
        return Err("the tables of angles must have two dimensions".into());
    }
    let (shape, table) = (cx.shape(x), cx.shape(cos));
    let rows = table[0].clone();
    if lengths.total != rows && !lengths.total.is_within(&(rows.clone() + 1)) {
        cx.assumptions.insert((lengths.total.clone(), "<=", rows));
    }
    let to = vec![shape[0].clone(), shape[2].clone()];
    let own = axes(&to);
    let (wide, counted) = (DType::Int64, E::dim(&own[1], DType::Int64));
    let after = match &lengths.past {
        Past::Equal(past) => E::dim(&(past.clone() + &own[1]), wide),
        past => past.plus(cx, &own[0], &own[1]),
    };
    let positions = match node.optional(9) {
        None => cx.compute("positions", wide, to, after)?,
        Some(own_positions) => {
            // The first call counts on from the first element.
            let given = cx.load(own_positions, own.clone());
            let start = cx.load(own_positions, [Dim::zero(), Dim::zero()]).bin("+", counted);
            let first = E::Idx(lengths.total.clone()).bin("==", E::Idx(shape[2].clone()));
            cx.compute("positions", wide, to, first.choose(start, given))?
        }
    };
    let size = table[1].as_const().ok_or("a run-time size of the heads is not supported")?;
    let list = [
        int("interleaved", node.int("rotary_interleaved", 0)),
        int("rotary_embedding_dim", 2 * size),
    ];
    let one: (&str, Handler) = ("RotaryEmbedding", default::rotary_embedding);
    apply(cx, part, one, &[Some(x), Some(cos), Some(sin), Some(positions)], named(&list))
}

/// Returns the operands by heads, turned by their positions. `before` is the number of rows of the
/// caches if all sequences have as many.
pub(crate) fn grouped(cx: &mut Context, node: &Node, before: Option<&Dim>) -> Outcome<Grouped> {
    check(node)?;
    let [mut query, mut key, value] = operands(cx, node)?;
    let new = cx.shape(key);
    let lengths = lengths(cx, node, &new, before)?;
    if node.flag("do_rotary", false) {
        query = turned(cx, node, query, "turned_query", &lengths)?;
        key = turned(cx, node, key, "turned_key", &lengths)?;
    }
    Ok(Grouped { query, key, value, lengths })
}

/// A cache with the new rows behind those of each sequence, and zeros behind them.
fn present(cx: &mut Context, part: &str, past: Option<T>, new: T, own: &Lengths) -> Outcome<T> {
    let (mut shape, dtype) = (cx.shape(new), cx.dtype(new));
    let count = shape[2].clone();
    let rows = past.map_or_else(Dim::zero, |past| cx.shape(past)[2].clone());
    if let Some(past) = past {
        let before = cx.shape(past);
        if before.len() != 4 || cx.dtype(past) != dtype {
            return Err("the cache must have the type and the rank of the keys".into());
        }
        for at in [0, 1, 3] {
            cx.require_equal(&shape[at].clone(), &before[at])?;
        }
    }
    shape[2] =
        if rows.as_const() == Some(0) { own.total.clone() } else { own.total.maximum(&rows) };
    let axes = axes(&shape);
    let (row, batch) = (E::dim(&axes[2], DType::Int64), axes[0].clone());
    let before = own.past.of(cx, &batch);
    let at = row.clone().bin("-", before.clone());
    let last = E::dim(&(count.clone() - 1), DType::Int64);
    let at = if count.is_one() {
        E::Idx(Dim::zero())
    } else {
        E::call("clamp", [at, E::int(0, DType::Int64), last])
    };
    let index = [E::Idx(batch.clone()), E::Idx(axes[1].clone()), at, E::Idx(axes[3].clone())];
    let own_row = cx.load_at(new, index.to_vec());
    let end = own.past.plus(cx, &batch, &count);
    let is_new = row.clone().bin("<", end).choose(own_row, E::num(0.0, dtype));
    let body = match past {
        None => is_new,
        Some(past) => {
            let old = cx.load(past, axes.clone());
            let inside = E::Idx(axes[2].clone()).bin("<", E::Idx(rows));
            inside.bin("and", row.bin("<", before)).choose(old, is_new)
        }
    };
    cx.compute(part, dtype, shape, body)
}

/// The attention to the keys and values of caches, which have the new rows.
pub(crate) fn attend(cx: &mut Context, node: &Node, own: &Grouped, [k, v]: [T; 2]) -> Outcome<T> {
    let (query, lengths) = (own.query, &own.lengths);
    let (dtype, wide) = (cx.dtype(query), DType::Float32);
    let widened = |e: E| if dtype == wide { e } else { e.cast(wide) };
    let (sq, total) = (cx.shape(query), lengths.total.clone());
    let group = sq[1].exact_div(&cx.shape(k)[1]).ok_or("the heads do not form groups")?;
    let shape = vec![sq[0].clone(), sq[1].clone(), sq[2].clone(), total.clone()];
    let at = axes(&shape);
    let inner = reduce_axis(0, &sq[3]);
    let term =
        widened(cx.load(query, [at[0].clone(), at[1].clone(), at[2].clone(), inner.clone()]));
    let key = cx.load(k, [at[0].clone(), at[1].div(&group), at[3].clone(), inner]);
    let term = term.bin("*", widened(key));
    let product = cx.fold("product", "sum", wide, shape.clone(), vec![sq[3].clone()], term)?;
    let scale = match (node.float("scale", 0.0), sq[3].as_const()) {
        (scale, _) if scale != 0.0 => scale,
        (_, Some(size)) => 1.0 / (size as f64).sqrt(),
        _ => return Err("a run-time size of the heads is not supported".into()),
    };
    let mut score = cx.load(product, at.clone()).bin("*", E::float(scale, wide));
    let cap = node.float("softcap", 0.0);
    if cap > 0.0 {
        let inner = E::call("tanh", [score.bin("/", E::float(cap, wide))]);
        score = inner.bin("*", E::float(cap, wide));
    }
    if let Some(bias) = node.optional(10) {
        score = score.bin("+", widened(bias_element(cx, bias, &shape)?));
    }
    // The keys that a query sees.
    let key = lengths.past.number(&at[3]);
    let position = lengths.past.plus(cx, &at[0], &at[2]);
    let mut shown = vec![if node.flag("causal", true) {
        key.clone().bin("<=", position.clone())
    } else {
        E::dim(&at[3], DType::Int64)
            .bin("<=", cx.load(lengths.last, [at[0].clone()]).cast(DType::Int64))
    }];
    let window = node.int("local_window_size", -1);
    if window > 0 {
        shown.push(key.bin(">", position.bin("-", lengths.past.number(&window.into()))));
    }
    let shown = E::all(shown).ok_or("no key is seen")?;
    let body = shown.choose(score, E::float(f64::NEG_INFINITY, wide));
    let scores = cx.compute("scores", wide, shape.clone(), body)?;
    let softmax = match (node.optional(11), node.flag("smooth_softmax", false)) {
        (None, false) => cx.call("softmax", wide, shape, "softmax4", vec![scores], Vec::new())?,
        (sink, _) => {
            let heads = vec![sq[1].clone()];
            let sink = match sink {
                Some(sink) if cx.rank(sink) == 1 => cx.cast("sink", sink, wide)?,
                Some(_) => return Err("the sink must have one dimension".into()),
                None => cx.compute("sink", wide, heads.clone(), E::float(0.0, wide))?,
            };
            cx.require_equal(&cx.shape(sink)[0].clone(), &heads[0])?;
            let args = vec![scores, sink];
            cx.call("softmax", wide, shape, "rare.sink_softmax4", args, Vec::new())?
        }
    };
    // Probabilities times values, by position: [batch, position, head, size].
    let out = vec![sq[0].clone(), sq[2].clone(), sq[1].clone(), sq[3].clone()];
    let at = axes(&out);
    let inner = reduce_axis(0, &total);
    let term = cx.load(softmax, [at[0].clone(), at[2].clone(), at[1].clone(), inner.clone()]);
    let value = cx.load(v, [at[0].clone(), at[2].div(&group), inner, at[3].clone()]);
    let term = term.bin("*", widened(value));
    let sum = cx.fold("sum", "sum", wide, out.clone(), vec![total.clone()], term)?;
    let valid = valid(cx, lengths, &at[0]);
    let nan = E::float(f64::NAN, wide);
    let body = valid.choose(cx.load(sum, at), nan);
    let body = if dtype == wide { body } else { body.cast(dtype) };
    let result = cx.compute("result", dtype, out.clone(), body)?;
    reshape_to(cx, "", result, vec![out[0].clone(), out[1].clone(), &out[2] * &out[3]])
}

/// Whether the length of a sequence is possible: at most that of the longest one, with all new
/// tokens unless the call is the first one. Otherwise its results are NaN.
fn valid(cx: &Context, own: &Lengths, batch: &Dim) -> E {
    let last = cx.load(own.last, [batch.clone()]).cast(DType::Int64);
    let end = E::dim(&own.total, DType::Int64);
    match &own.past {
        Past::Equal(_) => last.bin("+", E::int(1, DType::Int64)).bin("==", end),
        Past::Each(past) => {
            let before = cx.load(*past, [batch.clone()]);
            let zero = || E::int(0, DType::Int64);
            let all =
                [last.clone().bin(">=", zero()), last.bin("<", end), before.bin(">=", zero())];
            E::call("all", all)
        }
    }
}

/// An element of what is added to the scores, whose extents are those of the scores or 1.
fn bias_element(cx: &mut Context, bias: T, scores: &[Dim]) -> Outcome<E> {
    let shape = cx.shape(bias);
    if shape.len() != 4 {
        return Err("the bias of the scores must have four dimensions".into());
    }
    for (own, extent) in shape.iter().zip(scores) {
        if !own.is_one() {
            cx.require_equal(own, extent)?;
        }
    }
    Ok(cx.load_broadcast(bias, &axes(scores)))
}

pub(super) fn group_query_attention(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let own = grouped(cx, node, None)?;
    let key = present(cx, "present_key", node.optional(3), own.key, &own.lengths)?;
    let value = present(cx, "present_value", node.optional(4), own.value, &own.lengths)?;
    Ok(vec![attend(cx, node, &own, [key, value])?, key, value])
}
