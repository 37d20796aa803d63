//! Convolutions.

use crate::context::{Context, Convolution};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};
use crate::ops::dilated;
use crate::ops::norm::is_constant;
use crate::ops::slicing;
use crate::ops::windows::{Windows, key, letters, positive};

/// Transformed images and products of so many bytes stay in a cache.
const CACHED_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// The harmonic mean of the channels of image and result from which on Winograd's algorithm pays:
/// the products that it saves grow with it, the work of its transforms does not.
const CHANNELS: f64 = 16.0;
/// The same for transforms that are bound by memory.
const CHANNELS_BEYOND_CACHE: f64 = 96.0;

/// Constant extents of a kernel.
fn kernel_extents(shape: &[Dim]) -> Outcome<Vec<i64>> {
    let extent = |dim: &Dim| dim.as_const().filter(|extent| (1..=1 << 31).contains(extent));
    let extents: Option<Vec<i64>> = shape.iter().map(extent).collect();
    extents.ok_or_else(|| "weights with run-time extents are not supported".into())
}

pub(crate) fn conv(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (mut x, w) = (node.input(0)?, node.input(1)?);
    let (image, weight) = (cx.shape(x), cx.shape(w));
    if image.len() < 3 || image.len() > 5 || weight.len() != image.len() {
        return Err(format!("convolutions of rank {} are not supported", image.len()).into());
    }
    let groups = node.int("group", 1);
    let mut windows = Windows::with_any_pads(node, &image[2..], &kernel_extents(&weight[2..])?)?;
    cx.require_equal(&image[1], &(weight[1].clone() * groups))?;
    if !windows.has_constant_pads() {
        if windows.out != windows.expected {
            return Err("`auto_pad` of a run-time extent is not supported".into());
        }
        // The library pads by constants alone.
        let zero = E::num(0.0, cx.dtype(x));
        x = slicing::pad_with(cx, "padded", x, &windows.take_pads(), zero)?;
    }
    let mut keys = windows.keys(false);
    if groups != 1 {
        keys.push(("groups", groups.to_string()));
    }
    let op = match groups == 1 && by_winograd(cx, (x, w), &windows) {
        true => "winograd_conv2d",
        false => ["conv1d", "conv2d", "conv3d"][image.len() - 3],
    };
    let taps =
        (op == "conv2d" && groups == 1).then(|| dilated::taps(cx, (x, w), &windows)).flatten();
    let own = Convolution { op, image: x, weight: w, bias: node.optional(2), keys, taps };
    let mut shape = vec![image[0].clone(), weight[0].clone()];
    shape.extend(windows.out);
    let result = emit(cx, &own, shape)?;
    cx.convolutions.insert(result, own);
    Ok(vec![result])
}

/// Whether a convolution takes less time by Winograd's algorithm: products of images with three rows
/// of constant weights, with enough channels that the products outweigh the transforms.
fn by_winograd(cx: &Context, (image, weight): (T, T), windows: &Windows) -> bool {
    if !cx.winograd || cx.dtype(image) != DType::Float32 || !is_constant(cx, weight) {
        return false;
    }
    let (image, weight) = (cx.shape(image), cx.shape(weight));
    // Floating point: a model may declare extents whose products no integer holds.
    let extent = |dim: &Dim| dim.as_const().map(|extent| extent as f64);
    let extents = |dims: &[Dim]| dims.iter().map(extent).collect::<Option<Vec<f64>>>();
    let batch = extent(&image[0]).unwrap_or(1.0);
    let (Some(image), Some(weight), Some(out)) =
        (extents(&image[1..]), extents(&weight), extents(&windows.out))
    else {
        return false;
    };
    let ([in_channels, _, width], [out_channels, _, kernel_rows, _], [rows, columns]) =
        (&image[..], &weight[..], &out[..])
    else {
        return false;
    };
    let plain = windows.strides[0] == 1 && windows.dilations[0] == 1;
    if *kernel_rows != 3.0 || !plain || windows.out != windows.expected {
        return false;
    }
    let tiles = (rows / 4.0).ceil();
    // Six products instead of three for each row, but four rows at a time.
    let saves = 10.0 * 6.0 * tiles < 7.0 * 3.0 * rows;
    let transformed = 4.0 * batch * 6.0 * tiles * (in_channels * width + out_channels * columns);
    let channels = 2.0 * in_channels * out_channels / (in_channels + out_channels);
    let least = if transformed <= CACHED_BYTES { CHANNELS } else { CHANNELS_BEYOND_CACHE };
    saves && channels >= least
}

/// Defines a convolution with its bias.
pub(crate) fn emit(cx: &mut Context, own: &Convolution, shape: Vec<Dim>) -> Outcome<T> {
    let dtype = cx.dtype(own.image);
    let (image, weight) = (cx.widen("image", own.image)?, cx.widen("weight", own.weight)?);
    let wide = cx.dtype(image);
    let part = if own.bias.is_some() || wide != dtype { "sum" } else { "" };
    let sum = match &own.taps {
        Some([rows, columns]) => {
            dilated::emit(cx, own, (image, weight), (rows, columns), shape.clone())?
        }
        None => {
            cx.call(part, wide, shape.clone(), own.op, vec![image, weight], own.keys.clone())?
        }
    };
    add_bias(cx, sum, own.bias, dtype)
}

/// Adds a bias by channel, and converts the sum to the type of the result.
fn add_bias(cx: &mut Context, sum: T, bias: Option<T>, dtype: crate::DType) -> Outcome<T> {
    let Some(bias) = bias else { return cx.cast("", sum, dtype) };
    let shape = cx.shape(sum);
    let wide = cx.dtype(sum);
    let axes = crate::context::axes(&shape);
    let value = cx.load(bias, [axes[1].clone()]);
    let value = if cx.dtype(bias) == wide { value } else { value.cast(wide) };
    let body = cx.load(sum, axes).bin("+", value);
    cx.compute("", dtype, shape, if wide == dtype { body } else { body.cast(dtype) })
}

pub(crate) fn conv_transpose(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, w) = (node.input(0)?, node.input(1)?);
    let (image, weight) = (cx.shape(x), cx.shape(w));
    if image.len() < 3 || image.len() > 5 || weight.len() != image.len() {
        return Err(format!("convolutions of rank {} are not supported", image.len()).into());
    }
    let rank = image.len() - 2;
    let kernel = kernel_extents(&weight[2..])?;
    let groups = node.int("group", 1);
    let strides = positive(node.ints("strides"), rank, "strides")?;
    let dilations = positive(node.ints("dilations"), rank, "dilations")?;
    let list = |name: &str, len: usize| -> Outcome<Vec<i64>> {
        let values = node.ints(name).filter(|v| !v.is_empty());
        let values = values.map_or(vec![0; len], <[i64]>::to_vec);
        if values.len() != len || values.iter().any(|v| !(0..=1 << 31).contains(v)) {
            return Err(format!("`{name}` must be {len} numbers from 0 up").into());
        }
        Ok(values)
    };
    let pads = list("pads", 2 * rank)?;
    let extra = list("output_padding", rank)?;
    let given = node.ints("output_shape").filter(|shape| !shape.is_empty());
    let auto = node.text("auto_pad", "NOTSET");
    let (mut out, mut begins) = (Vec::new(), Vec::new());
    for at in 0..rank {
        let (n, s, d) = (&image[at + 2], strides[at], dilations[at]);
        let window = (Dim::from(kernel[at]) - 1) * d + 1;
        let full = (n.clone() - 1) * s + extra[at] + &window;
        let wanted = match (given, auto) {
            // The shape may include batch and channels.
            (Some(shape), _) => {
                let shape = shape.get(shape.len().saturating_sub(rank)..).unwrap_or(&[]);
                Some((*shape.get(at).ok_or("the shape of the result is too short")?).into())
            }
            (None, "SAME_UPPER" | "SAME_LOWER") => Some(n.clone() * s),
            _ => None,
        };
        let (begin, extent) = match wanted {
            Some(extent) => {
                let total = (full - &extent).maximum(&Dim::zero());
                let half = total.div(&2.into());
                let begin = if auto == "SAME_UPPER" { half } else { total - &half };
                (begin, extent)
            }
            None => (pads[at].into(), full - (pads[at] + pads[at + rank])),
        };
        begins.push(begin.as_const().ok_or("pads of run-time extents are not supported")?);
        out.push(extent);
    }
    let text = |dim: &Dim| dim.text(&|_| String::new());
    let mut keys = Vec::new();
    let letters = letters(rank);
    for (at, letter) in letters.iter().enumerate() {
        keys.push((key("o", *letter), text(&out[at])));
    }
    for (kind, values, default) in [("p", &begins, 0), ("s", &strides, 1), ("d", &dilations, 1)] {
        let used = letters.iter().zip(values).filter(|(_, value)| **value != default);
        keys.extend(used.map(|(letter, value)| (key(kind, *letter), value.to_string())));
    }
    if groups != 1 {
        keys.push(("groups", groups.to_string()));
    }
    let tiled = (0..rank).all(|at| {
        // The element of the image that the last one of the result belongs to.
        let last = (out[at].clone() + (begins[at] - 1)).div(&strides[at].into());
        let inside = (image[at + 2].clone() - 1 - &last).is_nonnegative();
        kernel[at] == strides[at] && dilations[at] == 1 && inside
    });
    if tiled {
        keys.push(("tiled", "true".to_string()));
    }
    let mut shape = vec![image[0].clone(), weight[1].clone() * groups];
    shape.extend(out);
    cx.require_equal(&image[1], &weight[0])?;
    let op = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"][rank - 1];
    let own = Convolution { op, image: x, weight: w, bias: node.optional(2), keys, taps: None };
    Ok(vec![emit(cx, &own, shape)?])
}
