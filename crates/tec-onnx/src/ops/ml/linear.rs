//! Linear models.

use super::classify::{column, greatest, label_at, labels, pair, transformed};
use super::{add_row, floats, matrix, numbers};
use crate::context::Context;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::product::product;
use crate::ops::slicing::permute;

/// The products of the rows with the rows of the coefficients, plus the intercepts.
fn scores(cx: &mut Context, node: &Node, rows: usize, part: &str) -> Outcome<T> {
    let x = node.input(0)?;
    let x = matrix(cx, x)?;
    let coefficients = numbers(cx, node, "coefficients")?.ok_or("the coefficients are missing")?;
    if rows == 0 || coefficients.len() % rows != 0 {
        return Err("the number of coefficients is wrong".into());
    }
    let shape = [rows, coefficients.len() / rows];
    let dtype = cx.dtype(x);
    let w = floats(cx, "coefficients", dtype, &shape, &coefficients)?;
    let w = permute(cx, "transposed", w, &[1, 0])?;
    let intercepts = numbers(cx, node, "intercepts")?.unwrap_or_default();
    let sum = product(cx, if intercepts.is_empty() { part } else { "product" }, x, w)?;
    add_row(cx, part, sum, &intercepts)
}

pub(super) fn regressor(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let targets = usize::try_from(node.int("targets", 1)).unwrap_or(0);
    let sum = scores(cx, node, targets, "sum")?;
    Ok(vec![transformed(cx, node, "", sum)?])
}

pub(super) fn classifier(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let labels = labels(node, "classlabels_ints")?;
    let coefficients = numbers(cx, node, "coefficients")?.map_or(0, |list| list.len());
    let features = cx.shape(node.input(0)?).last().and_then(|n| n.as_extent()).unwrap_or(0);
    let intercepts = numbers(cx, node, "intercepts")?.map_or(0, |list| list.len());
    let rows = match intercepts {
        0 if features > 0 => coefficients / features,
        0 => labels.len(),
        rows => rows,
    };
    let sum = scores(cx, node, rows, "sums")?;
    let count = cx.shape(sum)[0].clone();
    if rows == 1 {
        // One score tells two classes apart.
        let score = column(cx, sum, 0);
        let [negative, positive] = match labels[..] {
            [negative, positive] => [negative, positive],
            _ => return Err("one score needs two labels".into()),
        };
        let dtype = cx.dtype(sum);
        let is_positive = score.clone().bin(">", E::num(0.0, dtype));
        let at = is_positive.choose(E::int(1, DType::Int64), E::int(0, DType::Int64));
        let label = label_at(cx, &count, &[negative, positive], at)?;
        let score = match node.text("post_transform", "NONE") {
            "LOGISTIC" => E::call("sigmoid", [score]),
            "NONE" => score,
            _ => return Err("the transformation of one score is not supported".into()),
        };
        let other = E::num(1.0, dtype).bin("-", score.clone());
        let both = pair(cx, &count, dtype, [other, score])?;
        return Ok(vec![label, cx.cast("probabilities", both, DType::Float32)?]);
    }
    if rows != labels.len() {
        return Err("the numbers of scores and labels differ".into());
    }
    let at = greatest(cx, sum)?;
    let label = label_at(cx, &count, &labels, at)?;
    Ok(vec![label, transformed(cx, node, "probabilities", sum)?])
}
