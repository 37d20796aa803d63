//! What classifiers have in common: labels, and functions of the scores.

use bytes::Bytes;

use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The labels of the classes.
pub(super) fn labels(node: &Node, ints: &str) -> Outcome<Vec<i64>> {
    if node.attribute("classlabels_strings").is_some_and(|a| !a.strings.is_empty()) {
        return Err("labels that are strings are not supported".into());
    }
    let labels = node.ints(ints).unwrap_or(&[]).to_vec();
    if labels.is_empty() { Err("the labels are missing".into()) } else { Ok(labels) }
}

/// The label at a position that is an expression of int64, for each row.
pub(super) fn label_at(cx: &mut Context, rows: &Dim, labels: &[i64], at: E) -> Outcome<T> {
    let last = labels.len() as i64 - 1;
    let at = E::call("clamp", [at, E::int(0, DType::Int64), E::int(last, DType::Int64)]);
    let body = if labels.iter().copied().eq(0..=last) {
        at
    } else {
        let data: Vec<u8> = labels.iter().flat_map(|v| v.to_le_bytes()).collect();
        let shape = vec![(labels.len() as i64).into()];
        let table = cx.data("classes", DType::Int64, shape, Bytes::from(data))?;
        E::Load(table, vec![at])
    };
    cx.compute("", DType::Int64, vec![rows.clone()], body)
}

/// The position of the greatest score of each row, as an expression over axis 0.
pub(super) fn greatest(cx: &mut Context, scores: T) -> Outcome<E> {
    let shape = cx.shape(scores);
    let rows = vec![shape[0].clone()];
    let own = axes(&rows);
    let k = reduce_axis(0, &shape[1]);
    let value = cx.load(scores, [own[0].clone(), k.clone()]);
    let extents = vec![shape[1].clone()];
    let at = cx.position("greatest", "argmax", rows, extents, (E::Idx(k), value), None)?;
    Ok(cx.load(at, own))
}

/// The element of one column.
pub(super) fn column(cx: &Context, scores: T, at: i64) -> E {
    let rows = Dim::axis(0, &cx.graph[scores].shape[0]);
    cx.load(scores, [rows, at.into()])
}

/// A matrix of two columns, from expressions over axis 0.
pub(super) fn pair(cx: &mut Context, rows: &Dim, dtype: DType, columns: [E; 2]) -> Outcome<T> {
    let shape = vec![rows.clone(), 2.into()];
    let own = axes(&shape);
    let [first, second] = columns;
    let is_first = E::Idx(own[1].clone()).bin("==", E::Idx(Dim::zero()));
    cx.compute("scores", dtype, shape, is_first.choose(first, second))
}

/// Applies the function of the attribute `post_transform`; the result is float32.
pub(super) fn transformed(cx: &mut Context, node: &Node, part: &str, scores: T) -> Outcome<T> {
    let (shape, dtype) = (cx.shape(scores), cx.dtype(scores));
    let result = match node.text("post_transform", "NONE") {
        "NONE" => scores,
        "LOGISTIC" => {
            cx.elementwise("logistic", dtype, &[scores], |mut x| E::call("sigmoid", [x.remove(0)]))?
        }
        "SOFTMAX" => cx.call("softmax", dtype, shape, "softmax2", vec![scores], Vec::new())?,
        "SOFTMAX_ZERO" => softmax_zero(cx, scores)?,
        _ => return Err("the transformation of the scores is not supported".into()),
    };
    cx.cast(part, result, DType::Float32)
}

/// A softmax that leaves out what is almost 0.
fn softmax_zero(cx: &mut Context, scores: T) -> Outcome<T> {
    let (shape, dtype) = (cx.shape(scores), cx.dtype(scores));
    let rows = vec![shape[0].clone()];
    let over = vec![shape[1].clone()];
    let (own, k) = (axes(&rows), reduce_axis(0, &shape[1]));
    let value = cx.load(scores, [own[0].clone(), k.clone()]);
    let most = cx.fold("most", "max", dtype, rows.clone(), over.clone(), value)?;
    let full = axes(&shape);
    let (x, top) = (cx.load(scores, full.clone()), cx.load(most, [full[0].clone()]));
    let counts = E::call("abs", [x.clone()]).bin(">", E::float(1e-7, dtype));
    let power = E::call("exp", [x.clone().bin("-", top.clone())]);
    let zero = x.bin("*", E::call("exp", [top.un("-")]));
    let powers = cx.compute("powers", dtype, shape.clone(), counts.clone().choose(power, zero))?;
    let own_counts = E::call("abs", [cx.load(scores, [own[0].clone(), k.clone()])])
        .bin(">", E::float(1e-7, dtype));
    let term = own_counts.choose(cx.load(powers, [own[0].clone(), k]), E::num(0.0, dtype));
    let total = cx.fold("total", "sum", dtype, rows, over, term)?;
    let total = cx.load(total, [full[0].clone()]);
    let is_zero = total.clone().bin("==", E::num(0.0, dtype));
    let own = cx.load(powers, full);
    let body = is_zero.choose(own.clone(), own.bin("/", total));
    cx.compute("softmax", dtype, shape, body)
}
