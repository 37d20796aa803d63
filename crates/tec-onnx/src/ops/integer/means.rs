//! Sums of two tensors, and means.

use super::images::{channels_last, last_shape, view};
use super::{Quantized, Target, byte_level};
use crate::context::{Context, axes, reduce_axis};
use crate::dim::product;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::Outcome;

/// Defines the integer result of an addition.
pub(super) fn requantized_add(
    cx: &mut Context,
    terms: &[Quantized; 2],
    target: &Target,
) -> Outcome<Option<T>> {
    let [a, b] = terms;
    let (Some(x), Some(y)) = (byte_level(cx, a), byte_level(cx, b)) else { return Ok(None) };
    let is_image = cx.rank(a.q) >= 3
        && [a, b].iter().any(|term| cx.integers.channels_last.contains_key(&term.q));
    let (a, b) = match is_image {
        true => (channels_last(cx, a.q)?, channels_last(cx, b.q)?),
        false => (a.q, b.q),
    };
    let (first, second) = (x.scale / target.level.scale, y.scale / target.level.scale);
    let offset = first * x.zero as f32 + second * y.zero as f32;
    let fixed = target.level.zero as f32 - offset;
    let wide = DType::Float32;
    let number = |value: f32| E::float(value.into(), wide);
    let shape = cx.shape(a);
    let own = axes(&shape);
    let load = |q: T| cx.load(q, own.clone()).cast(wide);
    let inner = E::call("fma", [load(b), number(second), number(fixed)]);
    let value = E::call("fma", [load(a), number(first), inner]);
    let part = if is_image { "channels_last" } else { "" };
    let y = cx.compute(part, target.dtype, shape, target.rounded(value, 0))?;
    Ok(Some(if is_image { view(cx, y)? } else { y }))
}

/// Defines the integer result of a mean over the spatial dimensions.
pub(super) fn requantized_mean(
    cx: &mut Context,
    x: &Quantized,
    target: &Target,
) -> Outcome<Option<T>> {
    let Some(level) = byte_level(cx, x) else { return Ok(None) };
    let from = cx.shape(x.q);
    let Some(count) = product(&from[2..]).as_const().filter(|n| (1..1 << 23).contains(n)) else {
        return Ok(None);
    };
    if from.len() < 3 {
        return Ok(None);
    }
    let image = channels_last(cx, x.q)?;
    let shape = last_shape(&from[0], &vec![1.into(); from.len() - 2], &from[1]);
    let own = axes(&shape);
    let extents = from[2..].to_vec();
    let inner = extents.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect::<Vec<_>>();
    let index = last_shape(&own[0], &inner, &own[own.len() - 1]);
    let int = DType::Int32;
    let term = cx.load(image, index).cast(int);
    let sum = cx.fold("sum", "sum", int, shape.clone(), extents, term)?;
    let mut value = cx.load(sum, own);
    if level.zero != 0 {
        value = value.bin("-", E::int(level.zero * count, int));
    }
    let wide = DType::Float32;
    let factor = level.scale / (target.level.scale * count as f32);
    let scaled = value.cast(wide).bin("*", E::float(factor.into(), wide));
    let body = target.rounded(scaled, target.level.zero);
    let y = cx.compute("channels_last", target.dtype, shape, body)?;
    Ok(Some(view(cx, y)?))
}
