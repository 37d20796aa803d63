//! Constant weights and scales.

use super::{Level, Quantized, Sum, byte_level};
use crate::context::Context;
use crate::dim::{Dim, product};
use crate::dtype::{DType, Val, read_element};
use crate::expr::E;
use crate::graph::{Def, T};

/// The largest relative distance of the scale of a bias to that of its sum: both are products of
/// float32 numbers that a quantiser rounded.
const SCALE_DISTANCE: f64 = 1e-6;

/// Constant weights relative to their zero points.
pub(super) struct Weights {
    pub(super) tensor: T,
    pub(super) dtype: DType,
    pub(super) zero: Option<T>,
    /// The largest sum of magnitudes of an output channel.
    magnitude: i64,
}

/// Reads the elements of a constant.
fn elements(cx: &Context, tensor: T) -> Option<Vec<i64>> {
    let own = &cx.graph[tensor];
    if let Some(vals) = &own.vals {
        return vals.iter().map(Val::as_int).collect();
    }
    let Def::Data(data) = &own.def else { return None };
    (0..own.len()?).map(|at| read_element(own.dtype, data, at)?.as_int()).collect()
}

/// Returns constant weights whose channels are the given axis.
pub(super) fn weights(cx: &Context, own: &Quantized, axis: usize) -> Option<Weights> {
    let shape: Vec<usize> =
        cx.shape(own.q).iter().map(Dim::as_extent).collect::<Option<Vec<usize>>>()?;
    let zeros = match own.zero {
        Some(zero) => elements(cx, zero)?,
        None => vec![0],
    };
    if cx.dtype(own.q).bytes() != 1 || (zeros.len() != 1 && zeros.len() != shape[axis]) {
        return None;
    }
    let inner: usize = shape[axis + 1..].iter().product();
    let mut sums = vec![0i64; shape[axis]];
    let (mut least, mut most) = (0, 0);
    for (at, element) in elements(cx, own.q)?.into_iter().enumerate() {
        let channel = at / inner % shape[axis];
        let centered = element - zeros[channel % zeros.len()];
        (least, most) = (centered.min(least), centered.max(most));
        sums[channel] += centered.abs();
    }
    let fits = least >= i64::from(i8::MIN) && most <= i64::from(i8::MAX);
    Some(Weights {
        tensor: own.q,
        dtype: if fits { DType::Int8 } else { DType::Int16 },
        zero: own.zero.filter(|_| zeros.iter().any(|zero| *zero != 0)),
        magnitude: sums.into_iter().max().unwrap_or(0),
    })
}

impl Weights {
    /// An element relative to its zero point, where `at` is the index and `channel` that of the
    /// zero point.
    pub(super) fn element(&self, cx: &Context, at: Vec<Dim>, channel: &Dim) -> E {
        let load = cx.load(self.tensor, at);
        let Some(zero) = self.zero else {
            return if cx.dtype(self.tensor) == self.dtype { load } else { load.cast(self.dtype) };
        };
        let several = cx.graph[zero].len() != Some(1);
        let index = if several { vec![channel.clone()] } else { vec![] };
        let shape = &cx.graph[zero].shape;
        let index =
            if several || shape.is_empty() { index } else { vec![Dim::zero(); shape.len()] };
        let wide = |e: E| e.cast(DType::Int32);
        wide(load).bin("-", wide(cx.load(zero, index))).cast(self.dtype)
    }
}

/// The scales of a sum that does not overflow.
pub(super) struct Factors {
    pub(super) x: Level,
    /// Of the weights: one, or one for each channel.
    pub(super) scales: Vec<f32>,
    /// No partial sum has a larger magnitude.
    pub(super) largest: i64,
}

/// Returns the scales of a sum; `None` if the sum may overflow or the scale of the bias is another
/// one.
pub(super) fn factors(cx: &Context, sum: &Sum, own: &Weights, channels: &Dim) -> Option<Factors> {
    let x = byte_level(cx, &sum.x)?;
    let scales = scales(cx, sum.weight.scale)?;
    let mut largest = own.magnitude.saturating_mul(255);
    if let Some(bias) = sum.bias {
        let shape = cx.shape(bias);
        let by_channel = shape.last() == Some(channels) && product(&shape) == *channels;
        if !by_channel || cx.dtype(bias) != DType::Int32 {
            return None;
        }
        let most = elements(cx, bias)?.into_iter().map(i64::abs).max().unwrap_or(0);
        largest = largest.saturating_add(most);
    }
    if let Some(bias) = &sum.scaled_bias {
        let of_bias = self::scales(cx, bias.scale)?;
        let zeros = match bias.zero {
            Some(zero) => elements(cx, zero)?,
            None => Vec::new(),
        };
        let near = |at: usize| {
            let product = f64::from(scales[at % scales.len()]) * f64::from(x.scale);
            let distance = f64::from(of_bias[at % of_bias.len()]) - product;
            distance.abs() <= SCALE_DISTANCE * product
        };
        let all_near = (0..scales.len().max(of_bias.len())).all(near);
        if !all_near || zeros.iter().any(|zero| *zero != 0) {
            return None;
        }
    }
    (largest <= i64::from(i32::MAX)).then_some(Factors { x, scales, largest })
}

/// Returns known float32 scales.
fn scales(cx: &Context, tensor: T) -> Option<Vec<f32>> {
    let own = &cx.graph[tensor];
    let Def::Data(data) = &own.def else { return None };
    let each = |at: usize| Some(read_element(own.dtype, data, at)?.as_f64()? as f32);
    let scales = (0..own.len()?).map(each).collect::<Option<Vec<f32>>>()?;
    let usable = |scale: &f32| scale.is_normal() && *scale > 0.0;
    let all = own.dtype == DType::Float32 && !scales.is_empty() && scales.iter().all(usable);
    all.then_some(scales)
}
