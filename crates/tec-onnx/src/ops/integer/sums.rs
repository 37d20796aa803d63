//! Sums of products.

use super::super::windows::Windows;
use super::images::{last_shape, padded, view};
use super::weights::{Factors, Weights, factors, weights};
use super::{Form, Sum, Target};
use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::Outcome;

/// Channels of an image are padded to a multiple of this: the terms of an instruction.
const TERMS: i64 = 4;

/// Sums of integers below this are exact in float32.
const EXACT_FLOAT: i64 = 1 << 24;

/// Defines the integer result of a sum of products.
pub(super) fn requantized_sum(cx: &mut Context, sum: &Sum, target: &Target) -> Outcome<Option<T>> {
    let channel_axis = match sum.form {
        Form::Product { transposed: false } => 1,
        _ => 0,
    };
    let Some(own) = weights(cx, &sum.weight, channel_axis) else { return Ok(None) };
    let channels = cx.shape(own.tensor)[channel_axis].clone();
    let Some(all) = channels.as_extent() else { return Ok(None) };
    let Some(Factors { x, scales, largest }) = factors(cx, sum, &own, &channels) else {
        return Ok(None);
    };
    let (weight, centre, products) = match &sum.form {
        Form::Convolution { windows, groups } => {
            let exact = largest < EXACT_FLOAT;
            convolution(cx, sum, &own, windows, *groups, x.zero, exact)?
        }
        Form::Product { transposed } => matrix_product(cx, sum, &own, *transposed)?,
    };
    // sum((x - zero) * w) + bias = sum(x * w) + (bias - zero * sum(w))
    let channel = axes(std::slice::from_ref(&channels));
    let mut addend = sum.bias.map(|bias| {
        let rank = cx.rank(bias);
        let mut index = vec![Dim::zero(); rank - 1];
        index.push(channel[0].clone());
        cx.load(bias, index)
    });
    if x.zero != 0 {
        let total = cx.fold(
            "weight_sum",
            "sum",
            DType::Int32,
            vec![channels.clone()],
            centre,
            weight.cast(DType::Int32),
        )?;
        let shift = E::int(x.zero, DType::Int32).bin("*", cx.load(total, channel.clone()));
        addend = Some(match addend {
            Some(bias) => bias.bin("-", shift),
            None => shift.un("-"),
        });
    }
    let (wide, of_sum) = (DType::Float32, cx.dtype(products));
    let addend = match addend {
        Some(addend) => {
            let addend = if of_sum == wide { addend.cast(wide) } else { addend };
            Some(cx.compute("addend", of_sum, vec![channels.clone()], addend)?)
        }
        None => None,
    };
    let factor: Vec<u8> = (0..all)
        .map(|at| x.scale * scales[at % scales.len()] / target.level.scale)
        .flat_map(f32::to_le_bytes)
        .collect();
    let factor = cx.data("factor", wide, vec![channels], factor.into())?;

    let shape = cx.shape(products);
    let index = axes(&shape);
    let last = index[index.len() - 1..].to_vec();
    let mut value = cx.load(products, index);
    if let Some(addend) = addend {
        value = value.bin("+", cx.load(addend, last.clone()));
    }
    let value = if of_sum == wide { value } else { value.cast(wide) };
    let scaled = value.bin("*", cx.load(factor, last));
    let body = target.rounded(scaled, target.level.zero);
    let is_image = matches!(sum.form, Form::Convolution { .. });
    let part = if is_image { "channels_last" } else { "" };
    let y = cx.compute(part, target.dtype, shape, body)?;
    Ok(Some(if is_image { view(cx, y)? } else { y }))
}

/// A term of the sum of weights by channel, its extents, and the sum of products.
type Products = (E, Vec<Dim>, T);

fn convolution(
    cx: &mut Context,
    sum: &Sum,
    own: &Weights,
    windows: &Windows,
    groups: i64,
    zero: i64,
    is_exact_float: bool,
) -> Outcome<Products> {
    let from = cx.shape(own.tensor);
    let (all, each) = (from[0].clone(), from[1].as_const().unwrap_or(1));
    let depthwise = each == 1 && all == groups.into();
    let channels = if groups == 1 { (each + TERMS - 1) / TERMS * TERMS } else { each };
    let stored = if groups == 1 { channels } else { each * groups };
    // A depthwise convolution has few terms, and instructions multiply floats faster than int32.
    let (float, wide) = (depthwise && is_exact_float, DType::Float32);
    let of_image = if float { wide } else { cx.dtype(sum.x.q) };
    let image = padded(cx, sum.x.q, windows, stored, zero, of_image)?;
    // Weights as [out channel, taps…, channel], or [taps…, channel].
    let taps = from[2..].to_vec();
    let rank = taps.len();
    let mut shape = taps.clone();
    if depthwise {
        shape.push(all.clone());
    } else {
        shape.insert(0, all.clone());
        shape.push(channels.into());
    }
    let axis = axes(&shape);
    let (out, tap, inner) = match depthwise {
        true => (axis[rank].clone(), &axis[..rank], Dim::zero()),
        false => (axis[0].clone(), &axis[1..=rank], axis[rank + 1].clone()),
    };
    let mut index = vec![out.clone(), inner.clone()];
    index.extend(tap.iter().cloned());
    let mut body = own.element(cx, index, &out);
    if channels != each && !depthwise {
        let padding = E::Idx(inner).bin(">=", E::Idx(each.into()));
        body = padding.choose(E::int(0, own.dtype), body);
    }
    let dtype = if float { wide } else { own.dtype };
    let body = if float { body.cast(wide) } else { body };
    let weight = cx.compute("weight", dtype, shape, body)?;

    let batch = cx.shape(image)[0].clone();
    let shape = last_shape(&batch, &windows.out, &all);
    let axis = axes(&shape);
    let channel = axis[rank + 1].clone();
    let mut extents = taps;
    if !depthwise {
        extents.push(channels.into());
    }
    let over: Vec<Dim> = extents.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect();
    let mut place = vec![axis[0].clone()];
    for at in 0..rank {
        let offset = over[at].clone() * windows.dilations[at];
        place.push(axis[at + 1].clone() * windows.strides[at] + &offset);
    }
    let of = |channel: &Dim| {
        let mut index = over.clone();
        match depthwise {
            true => index.push(channel.clone()),
            false => index.insert(0, channel.clone()),
        }
        index
    };
    place.push(match (depthwise, groups) {
        (true, _) => channel.clone(),
        (false, 1) => over[rank].clone(),
        _ => {
            let by = all.as_const().unwrap_or(1) / groups;
            channel.div(&by.into()) * each + &over[rank]
        }
    });
    let of_sum = if float { wide } else { DType::Int32 };
    let cast = |cx: &Context, e: E| {
        if e.dtype(&cx.graph) == Some(of_sum) { e } else { e.cast(of_sum) }
    };
    let (x, w) = (cx.load(image, place), cx.load(weight, of(&channel)));
    let term = cast(cx, x).bin("*", cast(cx, w));
    let products = cx.fold("sum", "sum", of_sum, shape, extents.clone(), term)?;
    let first = axes(std::slice::from_ref(&all));
    Ok((cx.load(weight, of(&first[0])), extents, products))
}

fn matrix_product(
    cx: &mut Context,
    sum: &Sum,
    own: &Weights,
    transposed: bool,
) -> Outcome<Products> {
    let (x, from) = (sum.x.q, cx.shape(own.tensor));
    let (terms, all) = if transposed { (&from[1], &from[0]) } else { (&from[0], &from[1]) };
    let left = cx.shape(x);
    cx.require_equal(&left[left.len() - 1], terms)?;
    let mut shape = left[..left.len() - 1].to_vec();
    shape.push(all.clone());
    let axis = axes(&shape);
    let over = reduce_axis(0, terms);
    let at = |channel: &Dim| match transposed {
        true => vec![channel.clone(), over.clone()],
        false => vec![over.clone(), channel.clone()],
    };
    let channel = axis[axis.len() - 1].clone();
    let mut place = axis[..axis.len() - 1].to_vec();
    place.push(over.clone());
    let int = DType::Int32;
    let plain = own.zero.is_none() && cx.dtype(own.tensor) == own.dtype;
    let own_axis = axes(&from);
    let weight = match plain {
        true => own.tensor,
        false => {
            let out = if transposed { &own_axis[0] } else { &own_axis[1] };
            let body = own.element(cx, own_axis.clone(), out);
            cx.compute("weight", own.dtype, from.clone(), body)?
        }
    };
    let term = cx.load(x, place).cast(int).bin("*", cx.load(weight, at(&channel)).cast(int));
    let products = cx.fold("sum", "sum", int, shape, vec![terms.clone()], term)?;
    let first = axes(std::slice::from_ref(all));
    Ok((cx.load(weight, at(&first[0])), vec![terms.clone()], products))
}
