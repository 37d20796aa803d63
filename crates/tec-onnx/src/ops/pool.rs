//! Pools.

use super::conv::Windows;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::{Dim, product};
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// Reads the windows of a pool and checks its rank.
fn windows(cx: &Context, node: &Node, x: T) -> Outcome<(Windows, Vec<Dim>)> {
    let shape = cx.shape(x);
    if shape.len() < 3 || shape.len() > 5 {
        return Err(format!("pools of rank {} are not supported", shape.len()).into());
    }
    let kernel = node.ints("kernel_shape").ok_or("`kernel_shape` is missing")?;
    let windows = Windows::new(node, &shape[2..], kernel)?;
    let mut out = shape[..2].to_vec();
    out.extend(windows.out.iter().cloned());
    Ok((windows, out))
}

pub(crate) fn max_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let (windows, shape) = windows(cx, node, x)?;
    let op = ["max_pool1d", "max_pool2d", "max_pool3d"][shape.len() - 3];
    let dtype = cx.dtype(x);
    let values = cx.call("", dtype, shape.clone(), op, vec![x], windows.keys(true))?;
    if !node.has_output(1) {
        return Ok(vec![values]);
    }
    Err("the indices are not supported".into())
}

pub(crate) fn global_average_pool(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let dtype = cx.dtype(x);
    let shape = cx.shape(x);
    if shape.len() < 2 {
        return Err("the rank must be at least 2".into());
    }
    let mut out = shape.clone();
    out[2..].fill(1.into());
    let own = axes(&out);
    let reduced = (2..shape.len()).map(|at| reduce_axis(at - 2, &shape[at]));
    let index: Vec<Dim> = own[..2].iter().cloned().chain(reduced).collect();
    let wide = if dtype.is_half() { crate::DType::Float32 } else { dtype };
    let body = cx.load(x, index);
    let body = if wide == dtype { body } else { body.cast(wide) };
    let sum = cx.fold("sum", "sum", wide, out.clone(), shape[2..].to_vec(), body)?;
    let count = E::dim(&product(&shape[2..]), wide);
    let mean = cx.load(sum, own).bin("/", count);
    let mean = if wide == dtype { mean } else { mean.cast(dtype) };
    Ok(vec![cx.compute("", dtype, out, mean)?])
}
