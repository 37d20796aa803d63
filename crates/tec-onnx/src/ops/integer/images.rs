//! Images with their channels last.

use super::super::windows::Windows;
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::{Reduce, T};
use crate::node::{Node, Outcome};

/// `[batch, spatial…, channels]`.
pub(super) fn last_shape(batch: &Dim, spatial: &[Dim], channels: &Dim) -> Vec<Dim> {
    let mut shape = vec![batch.clone()];
    shape.extend(spatial.iter().cloned());
    shape.push(channels.clone());
    shape
}

/// Returns a tensor with its channels last.
pub(super) fn channels_last(cx: &mut Context, q: T) -> Outcome<T> {
    if let Some(known) = cx.integers.channels_last.get(&q) {
        return Ok(*known);
    }
    let from = cx.shape(q);
    let shape = last_shape(&from[0], &from[2..], &from[1]);
    let own = axes(&shape);
    let mut index = vec![own[0].clone(), own[own.len() - 1].clone()];
    index.extend(own[1..own.len() - 1].iter().cloned());
    let hint = std::mem::replace(&mut cx.hint, cx.graph[q].name.clone());
    let y = cx.compute("channels_last", cx.dtype(q), shape, cx.load(q, index));
    cx.hint = hint;
    let y = y?;
    cx.integers.channels_last.insert(q, y);
    Ok(y)
}

/// Defines the view with the order of the model of a tensor with its channels last.
pub(super) fn view(cx: &mut Context, y: T) -> Outcome<T> {
    let from = cx.shape(y);
    let mut shape = vec![from[0].clone(), from[from.len() - 1].clone()];
    shape.extend(from[1..from.len() - 1].iter().cloned());
    let own = axes(&shape);
    let index = last_shape(&own[0], &own[2..], &own[1]);
    let view = cx.compute("", cx.dtype(y), shape, cx.load(y, index))?;
    cx.integers.channels_last.insert(view, y);
    Ok(view)
}

/// Where the channels of an image are.
#[derive(Clone, Copy)]
enum Order {
    Model,
    Last,
}

/// The image of a convolution with its channels last and its padding: elements equal to the zero
/// point around it, and channels up to a number. Its elements have the given type.
pub(super) fn padded(
    cx: &mut Context,
    q: T,
    windows: &Windows,
    channels: i64,
    zero: i64,
    dtype: DType,
) -> Outcome<T> {
    let none = windows.begin.iter().chain(&windows.end).all(|pad| *pad == Dim::zero());
    if none && cx.shape(q)[1] == channels.into() {
        return channels_last(cx, q);
    }
    if let Some(image) = cx.integers.channels_last.get(&q) {
        return pad(cx, *image, Order::Last, windows, channels, zero, dtype);
    }
    // Rows of the model's order are padded as vectors, and then transposed.
    let rows = pad(cx, q, Order::Model, windows, channels, zero, dtype)?;
    channels_last(cx, rows)
}

fn pad(
    cx: &mut Context,
    x: T,
    order: Order,
    windows: &Windows,
    channels: i64,
    zero: i64,
    dtype: DType,
) -> Outcome<T> {
    let from = cx.shape(x);
    let rank = from.len() - 2;
    let (channel, first) = match order {
        Order::Model => (1, 2),
        Order::Last => (rank + 1, 1),
    };
    let mut shape = from.clone();
    shape[channel] = channels.into();
    for at in 0..rank {
        let (begin, end) = (&windows.begin[at], &windows.end[at]);
        shape[first + at] = from[first + at].clone() + begin + end;
    }
    let own = axes(&shape);
    let mut index = own.clone();
    let mut conditions = Vec::new();
    for at in 0..rank {
        let (begin, axis) = (&windows.begin[at], &own[first + at]);
        if *begin != Dim::zero() {
            conditions.push(E::Idx(axis.clone()).bin("<", E::Idx(begin.clone())));
        }
        if windows.end[at] != Dim::zero() {
            let end = from[first + at].clone() + begin;
            conditions.push(E::Idx(axis.clone()).bin(">=", E::Idx(end)));
        }
        index[first + at] = axis.clone() - begin;
    }
    if from[channel] != channels.into() {
        let end = E::Idx(from[channel].clone());
        conditions.push(E::Idx(own[channel].clone()).bin(">=", end));
    }
    let inside = cx.load(x, index);
    let inside = if cx.dtype(x) == dtype { inside } else { inside.cast(dtype) };
    let body = match E::any(conditions) {
        Some(outside) => outside.choose(E::num(zero as f64, dtype), inside),
        None => inside,
    };
    cx.compute("padded", dtype, shape, body)
}

/// The largest element of each window, with the channels last.
pub(super) fn max_pool(cx: &mut Context, node: &Node, q: T) -> Outcome<T> {
    let x = channels_last(cx, q)?;
    let (model, dtype) = (cx.shape(q), cx.dtype(q));
    let rank = model.len() - 2;
    let kernel = node.ints("kernel_shape").ok_or("`kernel_shape` is missing")?;
    let windows = Windows::new(node, &model[2..], kernel)?;
    let extents: Vec<Dim> = windows.kernel.iter().map(|k| (*k).into()).collect();
    let shape = last_shape(&model[0], &windows.out, &model[1]);
    let own = axes(&shape);
    let mut index = vec![own[0].clone()];
    let mut conditions = Vec::new();
    for at in 0..rank {
        let inner = reduce_axis(at, &extents[at]) * windows.dilations[at];
        let place = own[at + 1].clone() * windows.strides[at] + &inner - &windows.begin[at];
        if windows.begin[at] != Dim::zero() {
            conditions.push(E::Idx(place.clone()).bin(">=", E::Idx(Dim::zero())));
        }
        if windows.end[at] != Dim::zero() || windows.out != windows.expected {
            conditions.push(E::Idx(place.clone()).bin("<", E::Idx(model[at + 2].clone())));
        }
        index.push(place);
    }
    index.push(own[rank + 1].clone());
    let body = cx.load(x, index);
    let reduce = Reduce { kind: "max", extents, condition: E::all(conditions), init: None };
    let y = cx.reduce("channels_last", dtype, shape, body, reduce)?;
    view(cx, y)
}
