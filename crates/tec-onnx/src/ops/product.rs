//! Products of matrices.

use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The product of tensors over the last dimension of `a` and the last but one of `b`.
pub(crate) fn product(cx: &mut Context, part: &str, a: T, b: T) -> Outcome<T> {
    let dtype = cx.dtype(a);
    let (a, b) = (cx.widen("left", a)?, cx.widen("right", b)?);
    let wide = cx.dtype(a);
    let (left, right) = (cx.shape(a), cx.shape(b));
    if left.is_empty() || right.is_empty() {
        return Err("products of scalars are not supported".into());
    }
    // Vectors get a dimension of 1, which the result does not have.
    let matrix = |shape: &[Dim], front: bool| match (shape.len(), front) {
        (1, true) => vec![1.into(), shape[0].clone()],
        (1, false) => vec![shape[0].clone(), 1.into()],
        _ => shape.to_vec(),
    };
    let (m, n) = (matrix(&left, true), matrix(&right, false));
    let (lm, ln) = (m.len(), n.len());
    cx.require_equal(&m[lm - 1], &n[ln - 2])?;
    let batch = cx.broadcast(&[m[..lm - 2].to_vec(), n[..ln - 2].to_vec()])?;
    let mut shape = batch.clone();
    if left.len() > 1 {
        shape.push(m[lm - 2].clone());
    }
    if right.len() > 1 {
        shape.push(n[ln - 1].clone());
    }
    let own = axes(&shape);
    let k = reduce_axis(0, &m[lm - 1]);
    let index = |full: &[Dim], row: Dim, column: Dim, rank: usize, front: bool| {
        let lead = &full[..full.len() - 2];
        let offset = batch.len() - lead.len();
        let mut index: Vec<Dim> = Vec::new();
        for (at, extent) in lead.iter().enumerate() {
            index.push(if extent.is_one() { Dim::zero() } else { own[offset + at].clone() });
        }
        match (rank, front) {
            (1, true) => index.push(column),
            (1, false) => index.push(row),
            _ => index.extend([row, column]),
        }
        index
    };
    let row = if left.len() > 1 { own[batch.len()].clone() } else { Dim::zero() };
    let column = if right.len() > 1 { own[own.len() - 1].clone() } else { Dim::zero() };
    let x =
        E::Load(a, index(&m, row, k.clone(), left.len(), true).into_iter().map(E::Idx).collect());
    let y = E::Load(b, index(&n, k, column, right.len(), false).into_iter().map(E::Idx).collect());
    let own_part = if wide == dtype { part.to_string() } else { format!("{part}sum") };
    let sum = cx.fold(&own_part, "sum", wide, shape, vec![m[lm - 1].clone()], x.bin("*", y))?;
    cx.cast(part, sum, dtype)
}

pub(crate) fn matmul(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (a, b) = (node.input(0)?, node.input(1)?);
    if let Some(product) = super::blocks::product_of(cx, a, b)? {
        return Ok(vec![product]);
    }
    Ok(vec![product(cx, "", a, b)?])
}

pub(crate) fn gemm(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (a, b) = (node.input(0)?, node.input(1)?);
    let dtype = cx.dtype(a);
    if cx.rank(a) != 2 || cx.rank(b) != 2 {
        return Err("the operands must be matrices".into());
    }
    let (a, b) = (cx.widen("left", a)?, cx.widen("right", b)?);
    let wide = cx.dtype(a);
    let (left, right) = (cx.shape(a), cx.shape(b));
    let (ta, tb) = (node.flag("transA", false), node.flag("transB", false));
    let (m, l) = if ta { (&left[1], &left[0]) } else { (&left[0], &left[1]) };
    let (l2, n) = if tb { (&right[1], &right[0]) } else { (&right[0], &right[1]) };
    cx.require_equal(l, l2)?;
    let shape = vec![m.clone(), n.clone()];
    let own = axes(&shape);
    let k = reduce_axis(0, l);
    let order = |row: &Dim, column: &Dim, transposed: bool| {
        if transposed { [column.clone(), row.clone()] } else { [row.clone(), column.clone()] }
    };
    let load = |t: T, at: [Dim; 2]| E::Load(t, at.into_iter().map(E::Idx).collect());
    let body = load(a, order(&own[0], &k, ta)).bin("*", load(b, order(&k, &own[1], tb)));
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    let c = node.optional(2).filter(|_| beta != 0.0);
    let plain = alpha == 1.0 && c.is_none() && wide == dtype;
    let part = if plain { "" } else { "sum" };
    let sum = cx.fold(part, "sum", wide, shape.clone(), vec![l.clone()], body)?;
    if plain {
        return Ok(vec![sum]);
    }
    let mut body = cx.load(sum, own.clone());
    if alpha != 1.0 {
        body = body.bin("*", scale(alpha, wide)?);
    }
    if let Some(c) = c {
        if cx.rank(c) > 2 {
            return Err("the addend has more than two dimensions".into());
        }
        let mut addend = cx.load_broadcast(c, &own);
        if cx.dtype(c) != wide {
            addend = addend.cast(wide);
        }
        if beta != 1.0 {
            addend = addend.bin("*", scale(beta, wide)?);
        }
        body = body.bin("+", addend);
    }
    let body = if wide == dtype { body } else { body.cast(dtype) };
    Ok(vec![cx.compute("", dtype, shape, body)?])
}

/// A factor of a product, which must be an integer if the product is.
fn scale(value: f64, dtype: crate::DType) -> Outcome<E> {
    if !dtype.is_float() && value.fract() != 0.0 {
        return Err("factors of integers must be integers".into());
    }
    Ok(E::num(value, dtype))
}
