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
    let mut out = shape.clone();
    out[axis] = if onesided && !inverse { n / 2 + 1 } else { n }.into();
    out[rank - 1] = if halved { 1 } else { 2 }.into();
    if !halved
        && given >= n
        && let Some(factors) = two_factors(n)
    {
        return in_two_steps(cx, x, (axis, n, factors), out, inverse);
    }
    let [cos, sin] = circle(cx, n, wide)?;
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

/// Returns the factors of a length whose transform in two steps has at most an eighth of the terms.
fn two_factors(n: i64) -> Option<(i64, i64)> {
    let root = n.isqrt();
    let first = (2..=root).rev().find(|first| n % first == 0)?;
    let second = n / first;
    (8 * (first + second) <= n).then_some((first, second))
}

/// The sums of a transform: `real` and `imaginary` times a root of unity, which `cos` and `sin`
/// give. `imaginary` is absent for real numbers.
fn rotated(real: E, imaginary: Option<E>, cos: E, sin: E, inverse: bool) -> [E; 2] {
    // Forward by exp(-i t): real cos + imaginary sin, imaginary cos - real sin.
    let (cross, own) = (real.clone().bin("*", sin.clone()), real.bin("*", cos.clone()));
    let Some(imaginary) = imaginary else {
        return [own, if inverse { cross } else { cross.un("-") }];
    };
    let (a, b) = (imaginary.clone().bin("*", sin), imaginary.bin("*", cos));
    match inverse {
        true => [own.bin("-", a), b.bin("+", cross)],
        false => [own.bin("+", a), b.bin("-", cross)],
    }
}

/// A transform of length `n = first * second` in two steps (Cooley and Tukey, "An algorithm for the
/// machine calculation of complex Fourier series", 1965): transforms of the elements `second` apart,
/// whose results are turned and transformed across. Frequency `p + first * q` is element `[q, p]`.
fn in_two_steps(
    cx: &mut Context,
    x: T,
    (axis, n, (first, second)): (usize, i64, (i64, i64)),
    out: Vec<Dim>,
    inverse: bool,
) -> Outcome<T> {
    let (shape, dtype, wide) = (cx.shape(x), cx.dtype(x), DType::Float64);
    let rank = shape.len();
    let is_complex = !shape[rank - 1].is_one();
    // The rows and columns that a step has in place of the axis; real and imaginary parts are
    // tensors of their own.
    let with = |rows: i64, columns: i64| {
        let mut with = shape[..axis].to_vec();
        with.extend([rows.into(), columns.into()]);
        with.extend_from_slice(&shape[axis + 1..rank - 1]);
        with
    };
    let mut table = |rows: i64, columns: i64, period: i64| -> Outcome<[T; 2]> {
        let values = |f: fn(f64) -> f64| {
            let all = (0..rows).flat_map(|row| (0..columns).map(move |column| row * column));
            let turn = |product: i64| (product % period) as f64 / period as f64;
            all.map(|product| Val::Float(f(TAU * turn(product)))).collect::<Vec<_>>()
        };
        let shape = vec![rows.into(), columns.into()];
        let cos = cx.known("cosines", wide, shape.clone(), values(f64::cos))?;
        Ok([cos, cx.known("sines", wide, shape, values(f64::sin))?])
    };
    let [inner, turns, outer] =
        [table(first, first, first)?, table(second, first, n)?, table(second, second, second)?];
    let at = |table: [T; 2], row: &Dim, column: &Dim| {
        table.map(|one| E::Load(one, vec![E::Idx(row.clone()), E::Idx(column.clone())]))
    };
    let load =
        |tensor: T, index: Vec<Dim>| E::Load(tensor, index.into_iter().map(E::Idx).collect());

    let middle = with(second, first);
    let own = axes(&middle);
    let (terms, k) = (Dim::from(first), reduce_axis(0, &first.into()));
    let part = |imaginary: i64| {
        let mut index = own[..axis].to_vec();
        index.push(k.clone() * second + &own[axis]);
        index.extend_from_slice(&own[axis + 2..]);
        index.push(imaginary.into());
        let load = load(x, index);
        if dtype == wide { load } else { load.cast(wide) }
    };
    let [cos, sin] = at(inner, &k, &own[axis + 1]);
    let bodies = rotated(part(0), is_complex.then(|| part(1)), cos, sin, inverse);
    let mut fold = |name: &'static str, shape: &[Dim], terms: &Dim, body: E| {
        cx.fold(name, "sum", wide, shape.to_vec(), vec![terms.clone()], body)
    };
    let [real, imaginary] = bodies;
    let columns =
        [fold("real", &middle, &terms, real)?, fold("imaginary", &middle, &terms, imaginary)?];
    let [cos, sin] = at(turns, &own[axis], &own[axis + 1]);
    let [real, imaginary] = columns.map(|one| load(one, own.clone()));
    let [real, imaginary] = rotated(real, Some(imaginary), cos, sin, inverse);
    let turned = [
        cx.compute("turned_real", wide, middle.clone(), real)?,
        cx.compute("turned_imaginary", wide, middle, imaginary)?,
    ];

    // A one-sided transform has the first rows.
    let frequencies = out[axis].as_const().expect("a known length");
    let last = with((frequencies + first - 1) / first, first);
    let own = axes(&last);
    let (terms, k) = (Dim::from(second), reduce_axis(0, &second.into()));
    let mut index = own.clone();
    index[axis] = k.clone();
    let [real, imaginary] = turned.map(|one| load(one, index.clone()));
    let [cos, sin] = at(outer, &k, &own[axis]);
    let [real, imaginary] = rotated(real, Some(imaginary), cos, sin, inverse);
    let mut fold = |name: &'static str, body: E| {
        cx.fold(name, "sum", wide, last.clone(), vec![terms.clone()], body)
    };
    let rows = [fold("sum_real", real)?, fold("sum_imaginary", imaginary)?];
    let own = axes(&out);
    let mut index = own[..axis].to_vec();
    index.extend([own[axis].div(&first.into()), own[axis].rem(&first.into())]);
    index.extend_from_slice(&own[axis + 1..rank - 1]);
    let [real, imaginary] = rows.map(|one| load(one, index.clone()));
    let is_real = E::Idx(own[rank - 1].clone()).bin("==", E::Idx(Dim::zero()));
    let mut body = is_real.choose(real, imaginary);
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
