//! Operators that few models have.

use std::collections::BTreeMap;

use super::movement::reshape_to;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The largest number of n-grams of a vocabulary, and of their elements.
const MAX_GRAMS: usize = 1 << 20;

/// The largest matrix whose determinant is written out.
const MAX_DETERMINANT: i64 = 4;

/// Splits the last of three dimensions into heads: [batch, position, head, size].
fn split(cx: &mut Context, part: &str, x: T, heads: &Dim) -> Outcome<T> {
    let shape = cx.shape(x);
    if shape.len() != 3 {
        return Err("the operands must have three dimensions".into());
    }
    let size = shape[2].exact_div(heads).ok_or("the heads do not divide the operands")?;
    let to = vec![shape[0].clone(), shape[1].clone(), heads.clone(), size];
    let x = reshape_to(cx, part, x, to)?;
    cx.cast(&format!("{part}_wide"), x, DType::Float32)
}

pub(crate) fn linear_attention(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (q, k, v) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let dtype = cx.dtype(q);
    let (heads, groups) = (node.int("q_num_heads", 0), node.int("kv_num_heads", 0));
    if heads < 1 || groups < 1 || heads % groups != 0 || !dtype.is_float() {
        return Err("the numbers of heads are not supported".into());
    }
    if dtype == DType::Float64 {
        return Err("the element type float64 is not supported".into());
    }
    let (gated, delta) = match node.text("update_rule", "gated_delta") {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        rule => return Err(format!("the update rule `{rule}` is unknown").into()),
    };
    let (decay, beta) = (node.optional(4), node.optional(5));
    if decay.is_some() != gated || beta.is_some() != delta {
        return Err("the operands do not fit the update rule".into());
    }
    let (heads, groups) = (Dim::from(heads), Dim::from(groups));
    let q = split(cx, "query", q, &heads)?;
    let k = split(cx, "key", k, &groups)?;
    let v = split(cx, "value", v, &groups)?;
    let wide = DType::Float32;
    let (sq, sk, sv) = (cx.shape(q), cx.shape(k), cx.shape(v));
    cx.require_equal(&sq[3], &sk[3])?;
    if sk[1] == Dim::zero() {
        return Err("an empty sequence is not supported".into());
    }
    cx.require_elements(&sk[1]);
    for (a, b) in [(&sq[0], &sk[0]), (&sq[0], &sv[0]), (&sq[1], &sk[1]), (&sq[1], &sv[1])] {
        cx.require_equal(a, b)?;
    }
    let own = axes(&sk);
    // The factor of the state in each step.
    let factor = match decay {
        None => E::float(1.0, wide),
        Some(decay) => {
            let shape = cx.shape(decay);
            if shape.len() != 3 {
                return Err("the decay must have three dimensions".into());
            }
            let last = if shape[2] == groups {
                own[2].clone()
            } else if shape[2] == &groups * &sk[3] {
                &own[2] * &sk[3] + &own[3]
            } else {
                return Err("the shape of the decay is not supported".into());
            };
            let load = cx.load(decay, [own[0].clone(), own[1].clone(), last]);
            E::call("exp", [if cx.dtype(decay) == wide { load } else { load.cast(wide) }])
        }
    };
    let factor = cx.compute("factor", wide, sk.clone(), factor)?;
    let rate = match beta {
        None => E::float(1.0, wide),
        Some(beta) => {
            let shape = cx.shape(beta);
            let last = match shape.last() {
                Some(last) if shape.len() == 3 && last.is_one() => Dim::zero(),
                Some(last) if shape.len() == 3 && *last == groups => own[2].clone(),
                _ => return Err("the shape of the rate is not supported".into()),
            };
            let load = cx.load(beta, [own[0].clone(), own[1].clone(), last]);
            if cx.dtype(beta) == wide { load } else { load.cast(wide) }
        }
    };
    let rate = cx.compute("rate", wide, sk[..3].to_vec(), rate)?;
    let state = vec![sq[0].clone(), groups.clone(), sk[3].clone(), sv[3].clone()];
    let (past, state_dtype) = match node.optional(3) {
        Some(past) => {
            let shape = cx.shape(past);
            if shape.len() != 4 {
                return Err("the state must have four dimensions".into());
            }
            for (a, b) in shape.iter().zip(&state) {
                cx.require_equal(a, b)?;
            }
            (cx.cast("past", past, wide)?, cx.dtype(past))
        }
        None => (cx.compute("past", wide, state.clone(), E::float(0.0, wide))?, dtype),
    };
    let flag = |value: bool| value.to_string();
    let keys = vec![("delta", flag(delta))];
    let out = vec![sq[0].clone(), sq[1].clone(), heads.clone(), sv[3].clone()];
    let operands = vec![q, k, v, factor, rate, past];
    let sum = cx.call("sum", wide, out.clone(), "rare.linear_attention", operands, keys.clone())?;
    let scale = match node.float("scale", 0.0) {
        scale if scale != 0.0 => E::float(scale, wide),
        _ => match sk[3].as_const() {
            Some(size) => E::float(1.0 / (size as f64).sqrt(), wide),
            None => return Err("a run-time size of the heads is not supported".into()),
        },
    };
    let body = scale.bin("*", cx.load(sum, axes(&out)));
    let body = if dtype == wide { body } else { body.cast(dtype) };
    let result = cx.compute("heads", dtype, out.clone(), body)?;
    let to = vec![out[0].clone(), out[1].clone(), &heads * &sv[3]];
    let result = reshape_to(cx, "", result, to)?;
    if !node.has_output(1) {
        return Ok(vec![result]);
    }
    let operands = vec![k, v, factor, rate, past];
    let last = cx.call("state", wide, state, "rare.linear_attention_state", operands, keys)?;
    let last = cx.cast("present", last, state_dtype)?;
    Ok(vec![result, last])
}

pub(crate) fn deform_conv(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, w, offset) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (bias, mask) = (node.optional(3), node.optional(4));
    let dtype = cx.dtype(x);
    let (image, weight, moved) = (cx.shape(x), cx.shape(w), cx.shape(offset));
    if image.len() != 4 || weight.len() != 4 || moved.len() != 4 {
        return Err("the operands must be images".into());
    }
    if !matches!(dtype, DType::Float32 | DType::Float64) {
        return Err(format!("the element type {} is not supported", dtype.name()).into());
    }
    let pair = |name: &str, default: i64| match node.ints(name) {
        None => Ok([default; 2]),
        Some([a, b]) if *a >= 1 && *b >= 1 => Ok([*a, *b]),
        Some(_) => Err(format!("the attribute `{name}` is not supported")),
    };
    let (strides, dilations) = (pair("strides", 1)?, pair("dilations", 1)?);
    let [top, left, _, _] = node.ints("pads").unwrap_or(&[0; 4]) else {
        return Err("the attribute `pads` is not supported".into());
    };
    let (group, offsets) = (node.int("group", 1), node.int("offset_group", 1));
    let size = |dim: &Dim| dim.as_const().filter(|size| *size >= 1);
    let (Some(channels), Some(of_group), Some(results), Some(rows), Some(columns)) =
        (size(&image[1]), size(&weight[1]), size(&weight[0]), size(&weight[2]), size(&weight[3]))
    else {
        return Err("run-time numbers of channels are not supported".into());
    };
    let taps = rows.checked_mul(columns).filter(|taps| *taps <= 1 << 20);
    let fits = group >= 1 && offsets >= 1 && results % group == 0 && channels % offsets == 0;
    let (Some(taps), true) = (taps, fits && channels == of_group * group) else {
        return Err("the channels do not form groups".into());
    };
    cx.require_equal(&moved[1], &Dim::from(2 * offsets * taps))?;
    cx.require_equal(&moved[0], &image[0])?;
    let number = |value: i64| value.to_string();
    let keys = vec![
        ("kh", number(rows)),
        ("kw", number(columns)),
        ("ph", number(*top)),
        ("pw", number(*left)),
        ("sh", number(strides[0])),
        ("sw", number(strides[1])),
        ("dh", number(dilations[0])),
        ("dw", number(dilations[1])),
        ("groups", number(offsets)),
    ];
    let (n, oh, ow) = (image[0].clone(), moved[2].clone(), moved[3].clone());
    let samples = vec![
        n.clone(),
        image[1].clone(),
        weight[2].clone(),
        weight[3].clone(),
        oh.clone(),
        ow.clone(),
    ];
    let offset = cx.cast("offset", offset, dtype)?;
    let samples =
        cx.call("samples", dtype, samples, "rare.deform_samples", vec![x, offset], keys)?;
    let out = vec![n, weight[0].clone(), oh, ow];
    let own = axes(&out);
    let extents = vec![weight[1].clone(), weight[2].clone(), weight[3].clone()];
    let k: Vec<Dim> = extents.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect();
    let first = own[1].div(&Dim::from(results / group)) * of_group;
    let channel = first + &k[0];
    let sample = cx.load(
        samples,
        [
            own[0].clone(),
            channel.clone(),
            k[1].clone(),
            k[2].clone(),
            own[2].clone(),
            own[3].clone(),
        ],
    );
    let load = cx.load(w, [own[1].clone(), k[0].clone(), k[1].clone(), k[2].clone()]);
    let mut term = sample.bin("*", load);
    if let Some(mask) = mask {
        if cx.rank(mask) != 4 || cx.dtype(mask) != dtype {
            return Err("the mask is not supported".into());
        }
        cx.require_equal(&cx.shape(mask)[1], &Dim::from(offsets * taps))?;
        let place = channel.div(&Dim::from(channels / offsets)) * taps;
        let place = place + &(k[1].clone() * columns) + &k[2];
        let at = [own[0].clone(), place, own[2].clone(), own[3].clone()];
        term = term.bin("*", cx.load(mask, at));
    }
    let part = if bias.is_some() { "sum" } else { "" };
    let sum = cx.fold(part, "sum", dtype, out.clone(), extents, term)?;
    let Some(bias) = bias else { return Ok(vec![sum]) };
    let body = cx.load(sum, own.clone()).bin("+", cx.load(bias, [own[1].clone()]));
    Ok(vec![cx.compute("", dtype, out, body)?])
}

/// The determinant of the rows from `row` on with the given columns.
fn minor(element: &dyn Fn(i64, i64) -> E, row: i64, columns: &[i64]) -> E {
    let (first, rest) = (columns[0], &columns[1..]);
    if rest.is_empty() {
        return element(row, first);
    }
    let mut sum: Option<E> = None;
    for (at, column) in columns.iter().enumerate() {
        let others: Vec<i64> = columns.iter().copied().filter(|own| own != column).collect();
        let term = element(row, *column).bin("*", minor(element, row + 1, &others));
        sum = Some(match sum {
            None => term,
            Some(sum) => sum.bin(if at % 2 == 0 { "+" } else { "-" }, term),
        });
    }
    sum.unwrap_or(E::Idx(Dim::zero()))
}

pub(crate) fn det(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let rank = shape.len();
    let size = match &shape[..] {
        [.., a, b] if a == b => a.as_const().filter(|n| (1..=MAX_DETERMINANT).contains(n)),
        _ => None,
    };
    let Some(size) = size else {
        let text = format!("only square matrices of at most {MAX_DETERMINANT} rows are supported");
        return Err(text.into());
    };
    let to = shape[..rank - 2].to_vec();
    let own = axes(&to);
    let wide = DType::Float64;
    let element = |row: i64, column: i64| {
        let at = own.iter().cloned().chain([row.into(), column.into()]);
        let load = cx.load(x, at);
        if dtype == wide { load } else { load.cast(wide) }
    };
    let columns: Vec<i64> = (0..size).collect();
    let body = minor(&element, 0, &columns);
    let body = if dtype == wide { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, to, body)?])
}

/// The elements of n-grams by their length, and the output that each counts for.
fn grams(node: &Node) -> Outcome<(Vec<Vec<i64>>, Vec<i64>)> {
    let pool = node.ints("pool_int64s").ok_or("strings are not supported")?;
    let counts = node.ints("ngram_counts").ok_or("the attribute `ngram_counts` is missing")?;
    let outputs = node.ints("ngram_indexes").ok_or("the attribute `ngram_indexes` is missing")?;
    if pool.len() > MAX_GRAMS || outputs.iter().any(|at| !(0..=1 << 30).contains(at)) {
        return Err("the vocabulary is not supported".into());
    }
    let lengths = node.int("min_gram_length", 1)..=node.int("max_gram_length", 1);
    // The last one of equal n-grams counts.
    let mut found = BTreeMap::new();
    let mut number = 0;
    for (at, start) in counts.iter().enumerate() {
        let end = counts.get(at + 1).copied().unwrap_or(pool.len() as i64);
        let range = usize::try_from(*start).ok().zip(usize::try_from(end).ok());
        let list = range.and_then(|(start, end)| pool.get(start..end));
        let list = list.ok_or("the counts do not fit the vocabulary")?;
        for gram in list.chunks_exact(at + 1) {
            let output = outputs.get(number).ok_or("an n-gram has no output")?;
            if lengths.contains(&(at as i64 + 1)) {
                found.insert(gram.to_vec(), *output);
            }
            number += 1;
        }
    }
    Ok(found.into_iter().unzip())
}

pub(crate) fn tf_idf(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, wide) = (cx.shape(x), DType::Float32);
    if !(1..=2).contains(&shape.len()) || !cx.dtype(x).is_int() {
        return Err("only lists and matrices of integers are supported".into());
    }
    let outputs = node.ints("ngram_indexes").unwrap_or(&[]);
    let width = outputs.iter().max().map_or(0, |last| last + 1);
    let (grams, of) = grams(node)?;
    let skips = node.int("max_skip_count", 0);
    let length = shape[shape.len() - 1].clone();
    if !(0..=1 << 16).contains(&skips) {
        return Err("the attribute `max_skip_count` is not supported".into());
    }
    let mut to = shape[..shape.len() - 1].to_vec();
    let lead = to.clone();
    to.push(width.into());
    let own = axes(&to);
    let weight = |cx: &mut Context| -> Outcome<Option<T>> {
        let Some(weights) = node.floats("weights").filter(|own| !own.is_empty()) else {
            return Ok(None);
        };
        if weights.len() as i64 != width {
            return Err("the number of weights is wrong".into());
        }
        let vals = weights.iter().map(|v| Val::Float((*v).into())).collect();
        Ok(Some(cx.known("weights", wide, vec![width.into()], vals)?))
    };
    let mode = node.text("mode", "TF");
    if !["TF", "IDF", "TFIDF"].contains(&mode) {
        return Err(format!("the mode `{mode}` is unknown").into());
    }
    if grams.is_empty() || length.as_const() == Some(0) {
        return Ok(vec![cx.compute("", wide, to, E::float(0.0, wide))?]);
    }
    cx.require_elements(&length);
    // The elements of the n-grams in rows of equal length.
    let longest = grams.iter().map(Vec::len).max().unwrap_or(1);
    let count = grams.len() as i64;
    let int = |value: i64| Val::Int(value.into());
    let rows: Vec<Val> = grams
        .iter()
        .flat_map(|gram| (0..longest).map(|at| int(gram.get(at).copied().unwrap_or(0))))
        .collect();
    let list = DType::Int64;
    let table = cx.known("grams", list, vec![count.into(), (longest as i64).into()], rows)?;
    let lens = grams.iter().map(|gram| int(gram.len() as i64)).collect();
    let lens = cx.known("lengths", list, vec![count.into()], lens)?;
    let of = cx.known("outputs", list, vec![count.into()], of.into_iter().map(int).collect())?;
    // How often each n-gram begins at a place with a skip. That of one element has no skips.
    let mut stage = lead.clone();
    stage.push(count.into());
    let at = axes(&stage);
    let (start, skip) = (reduce_axis(0, &length), reduce_axis(1, &Dim::from(skips + 1)));
    let gram = at[lead.len()].clone();
    let len = cx.load_at(lens, vec![E::Idx(gram.clone())]);
    let number = |dim: &Dim| E::dim(dim, list);
    let step = number(&skip).bin("+", E::int(1, list));
    let last = number(&start).bin("+", len.clone().bin("-", E::int(1, list)).bin("*", step));
    let mut conditions = vec![
        last.bin("<", number(&length)),
        len.clone().bin(">", E::int(1, list)).bin("or", number(&skip).bin("==", E::int(0, list))),
    ];
    for part in 0..longest as i64 {
        let place = start.clone() + &((skip.clone() + 1) * part);
        let mut index: Vec<E> = at[..lead.len()].iter().cloned().map(E::Idx).collect();
        let end = E::Idx(length.clone() - 1);
        index.push(E::call("min", [E::Idx(place), end]));
        let element = cx.load_at(x, index).cast(list);
        let wanted = cx.load_at(table, vec![E::Idx(gram.clone()), E::Idx(part.into())]);
        let same = element.bin("==", wanted);
        let beyond = len.clone().bin("<=", E::int(part, list));
        conditions.push(if part == 0 { same } else { beyond.bin("or", same) });
    }
    let hit = E::all(conditions).unwrap_or(E::flag(true));
    let hit = hit.choose(E::float(1.0, wide), E::float(0.0, wide));
    let extents = vec![length, Dim::from(skips + 1)];
    let hits = cx.fold("hits", "sum", wide, stage, extents, hit)?;
    let k = reduce_axis(0, &count.into());
    let mut index: Vec<Dim> = own[..lead.len()].to_vec();
    index.push(k.clone());
    let here = cx.load_at(of, vec![E::Idx(k)]).bin("==", number(&own[lead.len()]));
    let term = here.choose(cx.load(hits, index), E::float(0.0, wide));
    let weights = if mode == "TF" { None } else { weight(cx)? };
    let part = if mode == "TF" { "" } else { "counts" };
    let sum = cx.fold(part, "sum", wide, to.clone(), vec![count.into()], term)?;
    if mode == "TF" {
        return Ok(vec![sum]);
    }
    let mut body = cx.load(sum, own.clone());
    if mode == "IDF" {
        let some = body.bin(">", E::float(0.0, wide));
        body = some.choose(E::float(1.0, wide), E::float(0.0, wide));
    }
    if let Some(weights) = weights {
        body = body.bin("*", cx.load(weights, [own[lead.len()].clone()]));
    }
    Ok(vec![cx.compute("", wide, to, body)?])
}

/// Reinterprets bits: of integers of one width alone.
pub(crate) fn bit_cast(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let from = cx.dtype(x);
    let to = node.dtype("to")?.ok_or("the attribute `to` is missing")?;
    if from == to {
        return Ok(vec![x]);
    }
    if from.bytes() != to.bytes() {
        return Err(format!("{} and {} have different widths", from.name(), to.name()).into());
    }
    if from.is_float() || to.is_float() {
        return Err("the bits of floats are not supported".into());
    }
    // A bool is a byte with the value 0 or 1.
    Ok(vec![cx.cast("", x, to)?])
}

pub(crate) fn stft(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (mut shape, dtype) = (cx.shape(x), cx.dtype(x));
    let window = node.optional(2);
    // As in onnxruntime, a real signal may go without its last dimension.
    let is_flat = shape.len() == 2;
    if is_flat {
        shape.push(1.into());
    }
    if shape.len() != 3 || !dtype.is_float() {
        return Err("the signal must have two or three dimensions".into());
    }
    let onesided = node.flag("onesided", true);
    let step = node.input(1)?;
    let declared = cx.declared(0).filter(|to| to.len() == 4);
    let length = match (node.optional(3), window) {
        (Some(length), _) => {
            frame_length(cx, length, &shape[1], step, declared.as_ref(), onesided)?
        }
        (None, Some(window)) => cx.shape(window).first().cloned().ok_or("the window is empty")?,
        (None, None) => shape[1].clone(),
    };
    let Some(n) = length.as_const().filter(|n| *n >= 1) else {
        return Err("the length of the frames is not supported".into());
    };
    let beyond = shape[1].clone() - n;
    if beyond.as_const().is_some_and(|beyond| beyond < 0) {
        return Err("a frame is longer than the signal".into());
    }
    if !beyond.is_nonnegative() {
        cx.assumptions.insert((shape[1].clone(), ">=", n.into()));
    }
    if let Some(window) = window {
        if cx.rank(window) != 1 || cx.dtype(window) != dtype {
            return Err("the window is not supported".into());
        }
        cx.require_equal(&cx.shape(window)[0], &length)?;
    }
    let wide = DType::Int64;
    let (frames, step) = match cx.dim(step, "the step of the frames") {
        Ok(step) => {
            let step =
                step.as_const().filter(|step| *step >= 1).ok_or("the step is not positive")?;
            (beyond.div(&step.into()) + 1, E::int(step, wide))
        }
        Err(refusal) => {
            let frames = declared.map(|to| to[1].clone()).ok_or(refusal)?;
            let elements = cx.elements(step, "the step of the frames")?;
            let [step] = &elements.list[..] else {
                return Err("the step must have one element".into());
            };
            cx.assert(step.clone().bin(">=", E::int(1, wide)), "the step must be positive")?;
            let count = E::dim(&beyond, wide).bin("//", step.clone()).bin("+", E::int(1, wide));
            let text = "the number of frames is not that of the declared shape";
            cx.assert(count.bin("==", E::Idx(frames.clone())), text)?;
            (frames, step.clone())
        }
    };
    let to = vec![shape[0].clone(), frames, length, shape[2].clone()];
    let own = axes(&to);
    let place = match &step {
        E::Lit(Val::Int(step), _) => E::Idx(&own[1] * step + &own[2]),
        step => {
            let first = E::dim(&own[1], wide).bin("*", step.clone());
            let place = first.bin("+", E::dim(&own[2], wide));
            E::call("clamp", [place, E::int(0, wide), E::dim(&(shape[1].clone() - 1), wide)])
        }
    };
    let mut index = vec![E::Idx(own[0].clone()), place];
    if !is_flat {
        index.push(E::Idx(own[3].clone()));
    }
    let mut body = cx.load_at(x, index);
    if let Some(window) = window {
        body = body.bin("*", cx.load(window, [own[2].clone()]));
    }
    let framed = cx.compute("frames", dtype, to, body)?;
    Ok(vec![super::signal::transform(cx, framed, None, 2, false, onesided)?])
}

/// The length of the frames. One of run time follows from the declared shape, if only one fits.
fn frame_length(
    cx: &mut Context,
    length: T,
    signal: &Dim,
    step: T,
    declared: Option<&Vec<Dim>>,
    onesided: bool,
) -> Outcome<Dim> {
    let refusal = match cx.dim(length, "the length of the frames") {
        Ok(length) => return Ok(length),
        Err(refusal) => refusal,
    };
    let known = declared.and_then(|to| Some((to[1].as_const()?, to[2].as_const()?)));
    let (Some((frames, bins)), Some(signal)) = (known, signal.as_const()) else {
        return Err(refusal);
    };
    let lengths = if onesided { vec![2 * (bins - 1), 2 * bins - 1] } else { vec![bins] };
    // Whether a step gives the number of frames.
    let steps = cx.ints(step, "the step of the frames").ok();
    let fits = |length: &i64| {
        let beyond = signal - length;
        match (&steps, frames) {
            _ if *length < 1 || beyond < 0 || frames < 1 => false,
            (Some(steps), _) => steps.iter().all(|s| *s >= 1 && beyond / s + 1 == frames),
            (None, 1) => true,
            (None, _) => beyond / frames < beyond / (frames - 1),
        }
    };
    let lengths: Vec<i64> = lengths.into_iter().filter(fits).collect();
    let [only] = lengths[..] else { return Err(refusal) };
    let elements = cx.elements(length, "the length of the frames")?;
    let [element] = &elements.list[..] else {
        return Err("the length must have one element".into());
    };
    let same = element.clone().bin("==", E::int(only, DType::Int64));
    cx.assert(same, &format!("the length of the frames must be {only}"))?;
    Ok(only.into())
}

/// Says that a file format is not decoded.
pub(crate) fn image_decoder(_: &mut Context, _: &Node) -> Outcome<Vec<T>> {
    Err("images in files are not decoded; decode them before the call".into())
}

/// Says that random numbers are refused.
pub(crate) fn random(_: &mut Context, _: &Node) -> Outcome<Vec<T>> {
    Err("random numbers are not supported; pass them as an input".into())
}

/// Says that strings are refused.
pub(crate) fn strings(_: &mut Context, _: &Node) -> Outcome<Vec<T>> {
    Err("strings are not supported".into())
}
