//! Discrete Fourier transforms and windows.

use std::f64::consts::TAU;

use crate::context::{Context, axes, axis_of, reduce_axis};
use crate::dim::Dim;
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::run_time::run_time_axes;

/// The longest transform: its table of cosines has as many elements.
const MAX_LENGTH: i64 = 1 << 16;

/// Tables of the cosine and sine of the multiples of a turn divided by `n`.
fn circle(cx: &mut Context, n: i64, dtype: DType) -> Outcome<[T; 2]> {
    let table = |f: fn(f64) -> f64| {
        (0..n).map(|at| Val::Float(f(TAU * at as f64 / n as f64))).collect::<Vec<_>>()
    };
    let cos = cx.known("cosines", dtype, vec![n.into()], table(f64::cos))?;
    let sin = cx.known("sines", dtype, vec![n.into()], table(f64::sin))?;
    Ok([cos, sin])
}

pub(crate) fn dft(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let rank = shape.len();
    if rank < 2 || !dtype.is_float() {
        return Err("the operand is not supported".into());
    }
    if let Some(named) = run_time_axes(cx, node, 2)? {
        let [_] = named.list[..] else { return Err("the axis must be one number".into()) };
        let onesided = node.flag("onesided", false);
        // A one-sided result is shorter along the axis, which shows in the declared shape.
        let fits = |axis: &usize| match cx.declared(0) {
            Some(to) if onesided && to.len() == rank => to[*axis] != shape[*axis],
            _ => true,
        };
        let choices: Vec<usize> = (0..rank - 1).filter(fits).collect();
        let choices = choices.into_iter().map(|axis| (named.are_axes(&[axis], rank), axis));
        let text = "the axis contradicts the declared shape";
        return cx.choose(choices.collect(), text, &mut |cx, axis| dft_along(cx, node, *axis));
    }
    let axis = match node.optional(2) {
        Some(axis) => match cx.ints(axis, "the axis")?[..] {
            [axis] => axis,
            _ => return Err("the axis must be one number".into()),
        },
        None if node.opset < 20 => node.int("axis", 1),
        None => -2,
    };
    dft_along(cx, node, axis_of(axis, rank)?)
}

fn dft_along(cx: &mut Context, node: &Node, axis: usize) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let length = match node.optional(1) {
        Some(length) => Some(cx.dim(length, "the length")?),
        None => None,
    };
    let (inverse, onesided) = (node.flag("inverse", false), node.flag("onesided", false));
    Ok(vec![transform(cx, x, length, axis, inverse, onesided)?])
}

/// A transform of one axis. Sums are computed in float64, so that zeros are small.
pub(super) fn transform(
    cx: &mut Context,
    x: T,
    length: Option<Dim>,
    axis: usize,
    inverse: bool,
    onesided: bool,
) -> Outcome<T> {
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let (rank, wide) = (shape.len(), DType::Float64);
    // The one-sided inverse has half of the frequencies of a real signal.
    let halved = inverse && onesided;
    let length = match length {
        Some(length) => length.as_const(),
        None if halved => shape[axis].as_const().map(|given| 2 * (given - 1)),
        None => shape[axis].as_const(),
    };
    let (Some(n), Some(given)) = (length, shape[axis].as_const()) else {
        return Err("a run-time length is not supported".into());
    };
    if !(1..=MAX_LENGTH).contains(&n) {
        return Err(format!("the length {n} is not supported").into());
    }
    let is_complex = match shape[rank - 1].as_const() {
        Some(1) => false,
        Some(2) => true,
        _ => return Err("the last extent must be 1 or 2".into()),
    };
    if !is_complex && halved {
        return Err("a one-sided inverse needs complex numbers".into());
    }
    if is_complex && onesided && !inverse {
        return Err("a one-sided transform needs real numbers".into());
    }
    let [cos, sin] = circle(cx, n, wide)?;
    let mut out = shape.clone();
    out[axis] = if onesided && !inverse { n / 2 + 1 } else { n }.into();
    out[rank - 1] = if halved { 1 } else { 2 }.into();
    let own = axes(&out);
    // Elements beyond the length are cut; missing ones are 0.
    let terms = Dim::from(given.min(if halved { n / 2 + 1 } else { n }));
    let k = reduce_axis(0, &terms);
    let turn = (&own[axis] * &k).rem(&n.into());
    let part = |imaginary: i64| {
        let mut index = own.clone();
        index[axis] = k.clone();
        index[rank - 1] = imaginary.into();
        let load = E::Load(x, index.into_iter().map(E::Idx).collect());
        if dtype == wide { load } else { load.cast(wide) }
    };
    let (c, s) = (E::Load(cos, vec![E::Idx(turn.clone())]), E::Load(sin, vec![E::Idx(turn)]));
    let real = part(0);
    // Forward by exp(-i t): real cos + imaginary sin, imaginary cos - real sin.
    let (mut first, mut second) =
        (real.clone().bin("*", c.clone()), real.bin("*", s.clone()).un("-"));
    if inverse {
        second = match second {
            E::Un(_, inner) => *inner,
            other => other,
        };
    }
    if is_complex {
        let imaginary = part(1);
        let (sign, other) = if inverse { ("-", "+") } else { ("+", "+") };
        first = first.bin(sign, imaginary.clone().bin("*", s));
        second = second.bin(other, imaginary.bin("*", c));
    }
    let body = if halved {
        // Each frequency between the first and the middle one stands for two.
        let is_one = |at: i64| E::Idx(k.clone()).bin("==", E::Idx(at.into()));
        let mut single = is_one(0);
        if n % 2 == 0 {
            single = single.bin("or", is_one(n / 2));
        }
        single.choose(E::float(1.0, wide), E::float(2.0, wide)).bin("*", first)
    } else {
        let is_real = E::Idx(own[rank - 1].clone()).bin("==", E::Idx(Dim::zero()));
        is_real.choose(first, second)
    };
    let name = if inverse || dtype != wide { "sum" } else { "" };
    let sum = cx.fold(name, "sum", wide, out.clone(), vec![terms], body)?;
    let mut body = cx.load(sum, own);
    if inverse {
        body = body.bin("/", E::float(n as f64, wide));
    }
    cx.compute("", dtype, out, if dtype == wide { body } else { body.cast(dtype) })
}

/// A sum of cosines: `a - b cos t + c cos 2t`.
fn window(cx: &mut Context, node: &Node, [a, b, c]: [f64; 3]) -> Outcome<Vec<T>> {
    let dtype = node.dtype("output_datatype")?.unwrap_or(DType::Float32);
    let declared = cx.declared(0).and_then(|shape| shape.first().cloned());
    let size = cx.declared_dim(node.input(0)?, "the size", declared)?;
    let size = size.as_const().filter(|size| (0..=MAX_LENGTH).contains(size));
    let size = size.ok_or("the size is not supported")?;
    let period = if node.flag("periodic", true) { size } else { size - 1 }.max(1);
    let value = |at: i64| {
        let t = TAU * at as f64 / period as f64;
        Val::Float(a - b * t.cos() + c * (2.0 * t).cos())
    };
    if !dtype.is_float() {
        return Err("the element type is not supported".into());
    }
    Ok(vec![cx.known("", dtype, vec![size.into()], (0..size).map(value).collect())?])
}

pub(crate) fn hann(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    window(cx, node, [0.5, 0.5, 0.0])
}

pub(crate) fn hamming(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    window(cx, node, [25.0 / 46.0, 1.0 - 25.0 / 46.0, 0.0])
}

pub(crate) fn blackman(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    window(cx, node, [0.42, 0.5, 0.08])
}

/// Puts the columns of windows back to their places and adds those of one place.
pub(crate) fn col2im(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let image = cx.ints(node.input(1)?, "the shape of the image")?;
    let block = cx.ints(node.input(2)?, "the shape of the block")?;
    let dims = image.len();
    let list = |name: &str, default: i64, len: usize| {
        node.ints(name).map_or(vec![default; len], <[i64]>::to_vec)
    };
    let (dilations, strides) = (list("dilations", 1, dims), list("strides", 1, dims));
    let pads = list("pads", 0, 2 * dims);
    let fits = block.len() == dims && dilations.len() == dims && strides.len() == dims;
    let positive = |list: &[i64]| list.iter().all(|v| (1..=1 << 31).contains(v));
    let in_range =
        positive(&image) && positive(&block) && positive(&dilations) && positive(&strides);
    let pads_in_range = pads.iter().all(|v| (0..=1 << 31).contains(v));
    if !fits || pads.len() != 2 * dims || shape.len() != 3 || dtype.is_half() {
        return Err("the operands are not supported".into());
    }
    if !in_range || !pads_in_range {
        return Err("an attribute is out of range".into());
    }
    let block_size = block.iter().try_fold(1_i64, |n, extent| n.checked_mul(*extent));
    let channels = block_size.and_then(|size| shape[1].exact_div(&size.into()));
    if channels.is_none() {
        return Err("the channels are no multiple of the block".into());
    }
    let block_dims: Vec<Dim> = block.iter().map(|n| (*n).into()).collect();
    let size = crate::dim::product(&block_dims);
    let mut out = vec![shape[0].clone(), shape[1].div(&size)];
    out.extend(image.iter().map(|n| Dim::from(*n)));
    let own = axes(&out);
    let (mut row, mut column) = (own[1].clone(), Dim::zero());
    let mut columns = Dim::from(1);
    let mut conditions = Vec::new();
    for at in 0..dims {
        let k = reduce_axis(at, &block_dims[at]);
        let span = dilations[at] * (block[at] - 1) + 1;
        let blocks = (image[at] + pads[at] + pads[at + dims] - span) / strides[at] + 1;
        if blocks < 1 {
            return Err("a block does not fit the image".into());
        }
        let offset = own[at + 2].clone() + pads[at] - &(k.clone() * dilations[at]);
        let place = offset.div(&strides[at].into());
        if strides[at] != 1 {
            let rest = E::Idx(offset.rem(&strides[at].into()));
            conditions.push(rest.bin("==", E::Idx(Dim::zero())));
        }
        conditions.push(E::Idx(place.clone()).bin(">=", E::Idx(Dim::zero())));
        conditions.push(E::Idx(place.clone()).bin("<", E::Idx(blocks.into())));
        columns = &columns * &Dim::from(blocks);
        row = &row * &block_dims[at] + &k;
        column = &column * &Dim::from(blocks) + &place;
    }
    cx.require_equal(&shape[2], &columns)?;
    let body = cx.load(x, [own[0].clone(), row, column]);
    let reduce = crate::graph::Reduce {
        kind: "sum",
        extents: block_dims,
        condition: E::all(conditions),
        init: None,
    };
    Ok(vec![cx.reduce("", dtype, out, body, reduce)?])
}

/// Writes an update into a cache from a place on.
pub(crate) fn tensor_scatter(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (past, update) = (node.input(0)?, node.input(1)?);
    let (shape, len, dtype) = (cx.shape(past), cx.shape(update), cx.dtype(past));
    let axis = axis_of(node.int("axis", -2), shape.len())?;
    if len.len() != shape.len() || axis == 0 {
        return Err("the operands are not supported".into());
    }
    let own = axes(&shape);
    let wide = DType::Int64;
    let start = match node.optional(2) {
        Some(start) => cx.load(start, [own[0].clone()]).cast(wide),
        None => E::int(0, wide),
    };
    let mut offset = E::dim(&own[axis], wide).bin("-", start);
    if node.text("mode", "linear") == "circular" {
        offset = offset.bin("%", E::dim(&shape[axis], wide));
    }
    let places = vec![shape[0].clone(), shape[axis].clone()];
    let body = offset.clone();
    let body = {
        // The stage has the batch and the position only.
        let moved =
            |dim: &Dim| dim.at(&|id| (usize::from(id) == axis).then(|| Dim::axis(1, &shape[axis])));
        map_indices(body, &moved)
    };
    let offsets = cx.compute("offset", wide, places, body)?;
    let at = cx.load(offsets, [own[0].clone(), own[axis].clone()]);
    let inside = at.clone().bin(">=", E::int(0, wide));
    let inside = inside.bin("and", at.clone().bin("<", E::dim(&len[axis], wide)));
    let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    let last = E::dim(&(len[axis].clone() - 1), wide);
    index[axis] = E::call("clamp", [at, E::int(0, wide), last]);
    let body = inside.choose(E::Load(update, index), cx.load(past, own));
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

/// Rewrites the indices of an expression.
fn map_indices(e: E, f: &dyn Fn(&Dim) -> Dim) -> E {
    match e {
        E::Idx(dim) => E::Idx(f(&dim)),
        E::Load(t, index) => E::Load(t, index.into_iter().map(|e| map_indices(e, f)).collect()),
        E::Cast(a, dtype) => E::Cast(Box::new(map_indices(*a, f)), dtype),
        E::Bin(op, a, b) => E::Bin(op, Box::new(map_indices(*a, f)), Box::new(map_indices(*b, f))),
        other => other,
    }
}
