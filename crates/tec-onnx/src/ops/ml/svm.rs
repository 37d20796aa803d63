//! Support vector machines.

use super::classify::{greatest, label_at, labels, pair, transformed};
use super::{floats, matrix, numbers};
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The kernel function of each row and vector: [rows, vectors].
fn kernels(
    cx: &mut Context,
    node: &Node,
    x: T,
    kind: &str,
    vectors: &[f64],
    n: usize,
) -> Outcome<T> {
    if n == 0 || !vectors.len().is_multiple_of(n) {
        return Err("the number of vectors is wrong".into());
    }
    let (dtype, shape) = (cx.dtype(x), cx.shape(x));
    let size = vectors.len() / n;
    cx.require_equal(&shape[1], &(size as i64).into())?;
    let table = floats(cx, "vectors", dtype, &[n, size], vectors)?;
    let to = vec![shape[0].clone(), (n as i64).into()];
    let own = axes(&to);
    let k = reduce_axis(0, &shape[1]);
    let a = cx.load(x, [own[0].clone(), k.clone()]);
    let b = cx.load(table, [own[1].clone(), k]);
    let term = match kind {
        "RBF" => {
            let difference = a.bin("-", b);
            difference.clone().bin("*", difference)
        }
        _ => a.bin("*", b),
    };
    let sum = cx.fold("dots", "sum", dtype, to.clone(), vec![shape[1].clone()], term)?;
    let params = numbers(cx, node, "kernel_params")?.unwrap_or_default();
    let param = |at: usize| E::float(params.get(at).copied().unwrap_or(0.0), dtype);
    let dot = cx.load(sum, own);
    let affine = |dot: E| dot.bin("*", param(0)).bin("+", param(1));
    let body = match kind {
        "LINEAR" => return Ok(sum),
        "RBF" => E::call("exp", [dot.bin("*", param(0)).un("-")]),
        "POLY" => E::call("pow", [affine(dot), param(2)]),
        "SIGMOID" => E::call("tanh", [affine(dot)]),
        _ => return Err("the kernel function is not supported".into()),
    };
    cx.compute("kernels", dtype, to, body)
}

pub(super) fn regressor(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let x = matrix(cx, x)?;
    let dtype = cx.dtype(x);
    let coefficients = numbers(cx, node, "coefficients")?.ok_or("the coefficients are missing")?;
    let rho = numbers(cx, node, "rho")?.and_then(|list| list.first().copied()).unwrap_or(0.0);
    let n = usize::try_from(node.int("n_supports", 0)).unwrap_or(0);
    let rows = cx.shape(x)[0].clone();
    let (values, weights) = if n > 0 {
        let vectors = numbers(cx, node, "support_vectors")?.ok_or("the vectors are missing")?;
        let kind = node.text("kernel_type", "LINEAR");
        (kernels(cx, node, x, kind, &vectors, n)?, coefficients)
    } else {
        (kernels(cx, node, x, "LINEAR", &coefficients, 1)?, vec![1.0])
    };
    let shape = vec![rows, 1.into()];
    let own = axes(&shape);
    let table = floats(cx, "coefficients", dtype, &[weights.len()], &weights)?;
    let count = cx.shape(values)[1].clone();
    cx.require_equal(&count, &(weights.len() as i64).into())?;
    let k = reduce_axis(0, &count);
    let term = cx.load(values, [own[0].clone(), k.clone()]).bin("*", cx.load(table, [k]));
    let sum = cx.fold("sum", "sum", dtype, shape.clone(), vec![count], term)?;
    let score = cx.load(sum, own).bin("+", E::float(rho, dtype));
    let body = if node.flag("one_class", false) {
        let is_inside = score.bin(">", E::num(0.0, dtype));
        is_inside.choose(E::num(1.0, dtype), E::num(-1.0, dtype))
    } else {
        score
    };
    let score = cx.compute("score", dtype, shape, body)?;
    Ok(vec![transformed(cx, node, "", score)?])
}

pub(super) fn classifier(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let labels = labels(node, "classlabels_ints")?;
    if numbers(cx, node, "prob_a")?.is_some() {
        return Err("probabilities of support vector machines are not supported".into());
    }
    let x = node.input(0)?;
    let x = matrix(cx, x)?;
    let (dtype, rows) = (cx.dtype(x), cx.shape(x)[0].clone());
    let coefficients = numbers(cx, node, "coefficients")?.ok_or("the coefficients are missing")?;
    let rho = numbers(cx, node, "rho")?.unwrap_or_default();
    let classes = labels.len();
    let counts: Vec<usize> = node
        .ints("vectors_per_class")
        .unwrap_or(&[])
        .iter()
        .map(|n| usize::try_from(*n).unwrap_or(0))
        .collect();
    let n = counts.iter().fold(0_usize, |n, count| n.saturating_add(*count));
    if n == 0 {
        return Err("classifiers without vectors are not supported".into());
    }
    let count = classes.saturating_mul(classes.saturating_sub(1)) / 2;
    if rho.len() != count || counts.len() != classes {
        return Err("the lists of the classes differ in length".into());
    }
    let pairs: Vec<(usize, usize)> =
        (0..classes).flat_map(|i| (i + 1..classes).map(move |j| (i, j))).collect();
    if (classes - 1).checked_mul(n) != Some(coefficients.len()) {
        return Err("the lists of the classes differ in length".into());
    }
    let vectors = numbers(cx, node, "support_vectors")?.ok_or("the vectors are missing")?;
    let kind = node.text("kernel_type", "LINEAR");
    let values = kernels(cx, node, x, kind, &vectors, n)?;
    // The weights of the vectors in the decision between each pair of classes.
    let first = |class: usize| counts[..class].iter().sum::<usize>();
    let mut weights = vec![0.0; n * pairs.len()];
    for (at, (i, j)) in pairs.iter().enumerate() {
        for (class, row) in [(*i, j - 1), (*j, *i)] {
            for vector in first(class)..first(class) + counts[class] {
                weights[vector * pairs.len() + at] = coefficients[row * n + vector];
            }
        }
    }
    let table = floats(cx, "coefficients", dtype, &[n, pairs.len()], &weights)?;
    let sums = crate::ops::product::product(cx, "products", values, table)?;
    let scores = super::add_row(cx, "decisions", sums, &rho)?;
    // Each pair votes for one of its classes.
    let vote = |cx: &Context, at: usize, class: usize, (i, _): (usize, usize)| {
        let score = super::classify::column(cx, scores, at as i64);
        let is_first = score.bin(">", E::num(0.0, dtype));
        let (yes, no) = if class == i { (1, 0) } else { (0, 1) };
        is_first.choose(E::int(yes, DType::Int32), E::int(no, DType::Int32)).cast(DType::Int32)
    };
    let shape = vec![rows.clone(), (classes as i64).into()];
    let own = axes(&shape);
    let mut body = E::int(0, DType::Int32);
    for class in (0..classes).rev() {
        let voting = pairs.iter().enumerate().filter(|(_, (i, j))| *i == class || *j == class);
        let votes = voting.map(|(at, pair)| vote(cx, at, class, *pair));
        let sum = votes.reduce(|a, b| a.bin("+", b)).unwrap_or(E::int(0, DType::Int32));
        let is_own = E::Idx(own[1].clone()).bin("==", E::Idx(Dim::from(class as i64)));
        body = if class + 1 == classes { sum } else { is_own.choose(sum, body) };
    }
    let votes = cx.compute("votes", DType::Int32, shape, body)?;
    let at = greatest(cx, votes)?;
    let all_positive = coefficients.iter().all(|c| *c >= 0.0);
    let at = if classes == 2 && all_positive { E::int(1, DType::Int64) } else { at };
    let label = label_at(cx, &rows, &labels, at)?;
    if pairs.len() > 1 {
        return Ok(vec![label, transformed(cx, node, "scores", scores)?]);
    }
    let score = super::classify::column(cx, scores, 0);
    let both = pair(cx, &rows, dtype, [score.clone().un("-"), score])?;
    Ok(vec![label, transformed(cx, node, "probabilities", both)?])
}
