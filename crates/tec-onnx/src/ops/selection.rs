//! Operators whose number of results depends on the data. The model must declare it, and the entry
//! of the network compares it.

use super::movement::reshape_to;
use crate::context::{Context, axes, axis_of, reduce_axis};
use crate::dim::{Dim, product};
use crate::dtype::{DType, Val};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

const UNKNOWN: &str =
    "the number of results depends on the data; the model must declare the shape of the result";

/// The largest number of elements that are compared with each other on entry.
const MAX_COMPARED: usize = 600;

fn int(value: i64) -> E {
    E::int(value, DType::Int64)
}

/// The places of the elements that are not 0 in a tensor of one dimension, of which there must be
/// `count`.
fn places(cx: &mut Context, flags: T, count: Option<Dim>, role: &str) -> Outcome<T> {
    let extent = cx.shape(flags)[0].clone();
    if let Some(vals) = &cx.graph[flags].vals {
        let chosen = |(at, value): (usize, &Val)| {
            let chosen = value.as_f64().is_some_and(|value| value != 0.0);
            chosen.then(|| Dim::from(at as i64))
        };
        if vals.iter().all(|value| value.as_f64().is_some()) {
            let chosen: Vec<Dim> = vals.iter().enumerate().filter_map(chosen).collect();
            return cx.known_ints("places", &chosen);
        }
    }
    // `torch` makes `arange(n)` of the places in a list of `n` ones.
    if cx.graph.constant(flags).and_then(|value| value.as_f64()).is_some_and(|value| value != 0.0) {
        let own = axes(std::slice::from_ref(&extent));
        return cx.compute("places", DType::Int64, vec![extent], E::dim(&own[0], DType::Int64));
    }
    let count = count.ok_or(UNKNOWN)?;
    let dtype = cx.dtype(flags);
    let is_set = |e: E| match dtype {
        DType::Bool => e,
        _ => e.bin("!=", E::num(0.0, dtype)),
    };
    // Elements of integers are of type int64.
    let of_input = |e: E| match dtype {
        DType::Bool => e,
        own if own.is_int() => e.bin("!=", int(0)),
        own => e.bin("!=", E::num(0.0, own)),
    };
    let elements = cx.any_elements(flags, role).map_err(|_| UNKNOWN)?;
    let ones = elements.list.into_iter().map(|e| of_input(e).choose(int(1), int(0)));
    let sum = ones.reduce(|a, b| a.bin("+", b)).unwrap_or(int(0));
    let text = format!("the number of chosen elements must be {}", count.text(&|_| String::new()));
    cx.assert(sum.bin("==", E::Idx(count.clone())), &text)?;
    // A stable order has the chosen ones first.
    let k = reduce_axis(0, &extent);
    let key = is_set(E::Load(flags, vec![E::Idx(k)]));
    let key = key.choose(E::int(0, DType::Int32), E::int(1, DType::Int32));
    cx.order("places", vec![count], key, 0, extent, false)
}

pub(crate) fn compress(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, condition) = (node.input(0)?, node.input(1)?);
    let (x, axis) = match node.attribute("axis").and_then(|own| own.i) {
        Some(axis) => (x, axis_of(axis, cx.rank(x))?),
        None => {
            let flat = product(&cx.shape(x));
            (reshape_to(cx, "flat", x, vec![flat])?, 0)
        }
    };
    if cx.rank(condition) != 1 || cx.dtype(condition) != DType::Bool {
        return Err("the condition must be a list".into());
    }
    let (mut shape, dtype) = (cx.shape(x), cx.dtype(x));
    let missing = shape[axis].clone() - &cx.shape(condition)[0];
    if !missing.is_nonnegative() {
        return Err("the condition is longer than the axis".into());
    }
    let declared = cx.declared(0).filter(|to| to.len() == shape.len());
    let count = declared.map(|to| to[axis].clone());
    let places = places(cx, condition, count, "the condition")?;
    shape[axis] = cx.shape(places)[0].clone();
    let own = axes(&shape);
    let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    let last = E::dim(&(cx.shape(x)[axis].clone() - 1), DType::Int64);
    let place = cx.load(places, [own[axis].clone()]);
    index[axis] = E::call("clamp", [place, int(0), last]);
    let body = cx.load_at(x, index);
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

pub(crate) fn non_zero(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let flat = reshape_to(cx, "flat", x, vec![product(&shape)])?;
    let declared = cx.declared(0).filter(|to| to.len() == 2);
    let places = places(cx, flat, declared.map(|to| to[1].clone()), "the operand")?;
    let to = vec![(shape.len() as i64).into(), cx.shape(places)[0].clone()];
    let own = axes(&to);
    let place = cx.load(places, [own[1].clone()]);
    // The coordinates of a place, one in each row.
    let mut body = int(0);
    for axis in 0..shape.len() {
        let stride = product(&shape[axis + 1..]);
        let whole = if stride.is_one() {
            place.clone()
        } else {
            place.clone().bin("//", E::dim(&stride, DType::Int64))
        };
        let coordinate = match axis {
            0 => whole,
            _ => whole.bin("%", E::dim(&shape[axis], DType::Int64)),
        };
        let here = E::Idx(own[0].clone()).bin("==", E::Idx((axis as i64).into()));
        body = if axis == 0 { coordinate } else { here.choose(coordinate, body) };
    }
    Ok(vec![cx.compute("", DType::Int64, to, body)?])
}

/// Whether two elements differ, and whether the first one is less. NaN is greater than all numbers
/// and equals itself.
fn differ(a: &E, b: &E, is_float: bool) -> E {
    let unequal = a.clone().bin("!=", b.clone());
    if !is_float {
        return unequal;
    }
    let nan = |e: &E| E::call("is_nan", [e.clone()]);
    unequal.bin("and", nan(a).bin("and", nan(b)).un("not"))
}

fn less(a: &E, b: &E, is_float: bool) -> E {
    let less = a.clone().bin("<", b.clone());
    if !is_float {
        return less;
    }
    let nan = |e: &E| E::call("is_nan", [e.clone()]);
    less.bin("or", nan(b).bin("and", nan(a).un("not")))
}

/// The number of different rows of a matrix, which the entry of the network compares with `count`
/// unless they are constant.
fn different_rows(
    cx: &mut Context,
    x: T,
    (n, m): (usize, usize),
    count: Option<Dim>,
) -> Outcome<Dim> {
    let is_float = cx.dtype(x).is_float();
    let flat = reshape_to(cx, "elements", x, vec![((n * m) as i64).into()])?;
    if let Some(vals) = &cx.graph[flat].vals {
        let numbers: Option<Vec<f64>> = vals.iter().map(Val::as_f64).collect();
        let numbers = numbers.ok_or(UNKNOWN)?;
        let bits = |v: &f64| if v.is_nan() { f64::NAN.to_bits() } else { (v + 0.0).to_bits() };
        let rows: Vec<Vec<u64>> =
            (0..n).map(|at| numbers[at * m..(at + 1) * m].iter().map(bits).collect()).collect();
        let found: std::collections::BTreeSet<_> = rows.into_iter().collect();
        return Ok((found.len() as i64).into());
    }
    let count = count.ok_or(UNKNOWN)?;
    let list = cx.elements(flat, "the operand").map_err(|_| UNKNOWN)?.list;
    if n * n * m > MAX_COMPARED {
        return Err(UNKNOWN.into());
    }
    let mut sum = int(0);
    for row in 0..n {
        // A row is new if it differs from each one before.
        let new = (0..row).map(|other| {
            let pairs =
                (0..m).map(|at| differ(&list[row * m + at], &list[other * m + at], is_float));
            E::any(pairs.collect()).unwrap_or(E::flag(false))
        });
        let one = match E::all(new.collect()) {
            Some(new) => new.choose(int(1), int(0)),
            None => int(1),
        };
        sum = if row == 0 { one } else { sum.bin("+", one) };
    }
    let text =
        format!("the number of different elements must be {}", count.text(&|_| String::new()));
    cx.assert(sum.bin("==", E::Idx(count.clone())), &text)?;
    Ok(count)
}

/// The different elements, or slices along an axis: their first places, the place of each element
/// among them, and how often they are there.
pub(crate) fn unique(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (x, axis) = match node.attribute("axis").and_then(|own| own.i) {
        Some(axis) => (x, axis_of(axis, cx.rank(x))?),
        None => {
            let flat = product(&cx.shape(x));
            (reshape_to(cx, "flat", x, vec![flat])?, 0)
        }
    };
    let (shape, dtype) = (cx.shape(x), cx.dtype(x));
    let is_float = dtype.is_float();
    let mut order: Vec<usize> = (0..shape.len()).filter(|at| *at != axis).collect();
    order.insert(0, axis);
    let rows = super::slicing::permute(cx, "moved", x, &order)?;
    let size = |dim: Dim| dim.as_extent().filter(|size| (1..=1 << 12).contains(size));
    let (n, m) = (size(shape[axis].clone()), size(product(&cx.shape(rows)[1..])));
    let (Some(n), Some(m)) = (n, m) else { return Err(UNKNOWN.into()) };
    let (count, width) = (Dim::from(n as i64), Dim::from(m as i64));
    let rows = reshape_to(cx, "rows", rows, vec![count.clone(), width.clone()])?;
    let declared = [1, 3].iter().find_map(|at| cx.declared(*at)).and_then(|to| to.first().cloned());
    let declared = match cx.declared(0) {
        Some(to) if to.len() == shape.len() => Some(to[axis].clone()),
        _ => declared,
    };
    let found = different_rows(cx, rows, (n, m), declared)?;
    let element = |cx: &Context, row: &Dim, at: E| cx.load_at(rows, vec![E::Idx(row.clone()), at]);
    // The first place at which two rows differ; `m` if they are equal.
    let pairs = vec![count.clone(), count.clone()];
    let own = axes(&pairs);
    let k = reduce_axis(0, &width);
    let at = |cx: &Context, row: usize| element(cx, &own[row], E::Idx(k.clone()));
    let unequal = differ(&at(cx, 0), &at(cx, 1), is_float);
    let place = unequal.choose(E::dim(&k, DType::Int64), int(m as i64));
    let differs = cx.fold("differs", "min", DType::Int64, pairs.clone(), vec![width], place)?;
    let place = cx.load(differs, own.clone());
    let equal = place.clone().bin("==", int(m as i64));
    let last = E::call("clamp", [place, int(0), int(m as i64 - 1)]);
    let smaller = less(&element(cx, &own[0], last.clone()), &element(cx, &own[1], last), is_float);
    let smaller = equal.clone().un("not").bin("and", smaller);
    let smaller = cx.compute("less", DType::Bool, pairs.clone(), smaller)?;
    let equal = cx.compute("equal", DType::Bool, pairs, equal)?;
    // The first of the rows that equal each one.
    let list = vec![count.clone()];
    let own = axes(&list);
    let k = reduce_axis(0, &count);
    let same = cx.load(equal, [own[0].clone(), k.clone()]);
    let body = same.choose(E::dim(&k, DType::Int64), int(n as i64));
    let first = cx.fold("first", "min", DType::Int64, list.clone(), list.clone(), body)?;
    // The number of different rows before it, in ascending order or in the order of their places.
    let is_first = cx.load(first, [k.clone()]).bin("==", E::dim(&k, DType::Int64));
    let before = match node.flag("sorted", true) {
        true => cx.load(smaller, [k.clone(), own[0].clone()]),
        false => E::dim(&k, DType::Int64).bin("<", cx.load(first, [own[0].clone()])),
    };
    let body = is_first.bin("and", before).choose(int(1), int(0));
    let rank = cx.fold("rank", "sum", DType::Int64, list.clone(), list.clone(), body)?;
    let to = vec![found];
    let own = axes(&to);
    let mine = cx.load(rank, [k.clone()]).bin("==", E::dim(&own[0], DType::Int64));
    let body = mine.clone().choose(E::dim(&k, DType::Int64), int(n as i64 - 1));
    let places = cx.fold("places", "min", DType::Int64, to.clone(), list.clone(), body)?;
    let body = mine.choose(int(1), int(0));
    let counts = cx.fold("counts", "sum", DType::Int64, to.clone(), list, body)?;
    let mut shape = shape;
    shape[axis] = to[0].clone();
    let own = axes(&shape);
    let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    let place = cx.load(places, [own[axis].clone()]);
    index[axis] = E::call("clamp", [place, int(0), int(n as i64 - 1)]);
    let body = cx.load_at(x, index);
    let y = cx.compute("", dtype, shape, body)?;
    Ok(vec![y, places, rank, counts])
}
