//! Resize with scales, sizes or a region of run time. The extents of the result are declared; the
//! entry compares them, and the coordinates are computed from the operands.

use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome, Refusal};

/// The largest number of terms of an element along one axis.
const MAX_TERMS: f64 = 4096.0;

const WIDE: DType = DType::Float64;

/// The operands that say how to resize.
pub(crate) struct Operands {
    pub(crate) roi: Option<T>,
    pub(crate) scales: Option<T>,
    pub(crate) sizes: Option<T>,
}

/// How the elements of a result are sampled.
pub(crate) struct Sampling<'a> {
    /// `nearest`, `linear` or `cubic`.
    pub(crate) kind: &'a str,
    /// How coordinates are computed.
    pub(crate) mode: &'a str,
    /// How the nearest position is rounded.
    pub(crate) rounding: &'a str,
    pub(crate) antialias: bool,
    pub(crate) exclude: bool,
    pub(crate) cubic: f64,
}

/// How an axis is resized; the ratio and the region are of type float64.
struct Axis {
    at: usize,
    from: Dim,
    to: Dim,
    scale: E,
    /// The scale is at least this, if that is known.
    least: Option<f64>,
    region: Option<(E, E)>,
}

fn float(value: f64) -> E {
    E::float(value, WIDE)
}

fn int(value: i64) -> E {
    E::int(value, DType::Int64)
}

/// The resized axes. Adds the conditions of the declared extents.
fn resized_axes(
    cx: &mut Context,
    node: &Node,
    (chosen, operands): (&[usize], &Operands),
    mode: &str,
) -> Outcome<(Vec<Axis>, Vec<Dim>)> {
    let shape = cx.shape(node.input(0)?);
    let operand = operands.scales.or(operands.sizes).or(operands.roi);
    let operand = operand.ok_or("there must be scales or sizes")?;
    let refuse = || Refusal::NotConstant("the scales".to_string(), operand);
    let to = cx.declared(0).filter(|to| to.len() == shape.len()).ok_or_else(refuse)?;
    let list = |t: Option<T>, role: &str| match t {
        Some(t) => cx.any_elements(t, role).map(|elements| Some(elements.list)),
        None => Ok(None),
    };
    let roi = list(operands.roi.filter(|_| mode == "tf_crop_and_resize"), "the region")?;
    let scales = list(operands.scales, "the scales")?;
    let sizes = list(operands.sizes, "the sizes")?;
    let count = scales.as_ref().or(sizes.as_ref()).map(Vec::len);
    if count != Some(chosen.len()) || roi.as_ref().is_some_and(|r| r.len() != 2 * chosen.len()) {
        return Err("there must be a scale or size for each axis".into());
    }
    let number = |dim: &Dim| dim.as_const().ok_or("run-time extents are not supported");
    for at in 0..shape.len() {
        if !chosen.contains(&at) && shape[at] != to[at] {
            return Err("the declared shape resizes another axis".into());
        }
    }
    let policy = node.text("keep_aspect_ratio_policy", "stretch");
    let mut ratio: Option<E> = None;
    if let (Some(sizes), None, false) = (&sizes, &scales, policy == "stretch") {
        let name = if policy == "not_larger" { "min" } else { "max" };
        for (size, axis) in sizes.iter().zip(chosen) {
            let own = size.clone().cast(WIDE).bin("/", float(number(&shape[*axis])? as f64));
            ratio = Some(match ratio {
                Some(other) => E::call(name, [other, own]),
                None => own,
            });
        }
    }
    let mut resized = Vec::new();
    for (nth, &at) in chosen.iter().enumerate() {
        let (from, new) = (number(&shape[at])?, number(&to[at])?);
        if from == 0 || new > 1 << 24 {
            return Err("an extent is out of range".into());
        }
        let wrong = format!("the extent of dimension {at} must be {new}");
        let length = |scale: E| float(from as f64).bin("*", scale);
        let stretched = new as f64 / from as f64;
        let (scale, least) = match (&scales, &sizes, &ratio) {
            (Some(scales), ..) => {
                let scale = scales[nth].clone().cast(WIDE);
                // Batches and channels stay as they are.
                if from == new && roi.is_none() && at < 2 && shape.len() > 2 {
                    let text = format!("the scale of dimension {at} must be 1");
                    cx.assert(scale.bin("==", float(1.0)), &text)?;
                    continue;
                }
                let own = E::call("floor", [length(scale.clone())]);
                cx.assert(own.bin("==", float(new as f64)), &wrong)?;
                (scale, stretched)
            }
            (None, Some(_), Some(ratio)) => {
                let own = length(ratio.clone()).bin("+", float(0.5));
                let own = E::call("floor", [own]);
                cx.assert(own.bin("==", float(new as f64)), &wrong)?;
                (ratio.clone(), (new as f64 - 0.5) / from as f64)
            }
            (None, Some(sizes), None) => {
                cx.assert(sizes[nth].clone().bin("==", int(new)), &wrong)?;
                if from == new && roi.is_none() {
                    continue;
                }
                (float(stretched), stretched)
            }
            _ => return Err("there must be scales or sizes".into()),
        };
        let region = roi
            .as_ref()
            .map(|roi| (roi[nth].clone().cast(WIDE), roi[nth + chosen.len()].clone().cast(WIDE)));
        let (from, to) = (from.into(), new.into());
        resized.push(Axis { at, from, to, scale, least: Some(least), region });
    }
    Ok((resized, to))
}

impl Axis {
    /// The coordinate of an element of the result in the operand.
    fn coordinate(&self, at: E, mode: &str) -> Outcome<E> {
        let (from, to) = (|| E::dim(&self.from, WIDE), || E::dim(&self.to, WIDE));
        let scale = || self.scale.clone();
        let half = || float(0.5);
        let last = || E::dim(&(self.from.clone() - 1), WIDE);
        let centered = |at: E| at.bin("+", half()).bin("/", scale()).bin("-", half());
        // One choice for all elements of the axis.
        let unless_single = |several: E, single: E| match self.to.as_const() {
            Some(to) if to > 1 => several,
            Some(_) => single,
            None => to().bin(">", float(1.0)).choose(several, single),
        };
        Ok(match mode {
            "half_pixel" => centered(at),
            "pytorch_half_pixel" => unless_single(centered(at), float(0.0)),
            "align_corners" => {
                // The length is that of the result, not `from * scale`.
                let steps = E::dim(&(self.to.clone() - 1), WIDE);
                unless_single(at.bin("*", last()).bin("/", steps), float(0.0))
            }
            "asymmetric" => at.bin("/", scale()),
            "half_pixel_symmetric" => {
                let adjustment = to().bin("/", scale().bin("*", from()));
                let center = from().bin("/", float(2.0));
                let moved = float(1.0).bin("-", adjustment).bin("*", center);
                moved.bin("+", at.bin("+", half()).bin("/", scale())).bin("-", half())
            }
            "tf_half_pixel_for_nn" => at.bin("+", half()).bin("/", scale()),
            "tf_crop_and_resize" => {
                let whole = (float(0.0), float(1.0));
                let (start, end) = self.region.clone().unwrap_or(whole);
                let part = at.bin("*", end.clone().bin("-", start.clone()));
                let steps = E::dim(&(self.to.clone() - 1), WIDE);
                let part = part.bin("*", last()).bin("/", steps);
                let several = start.clone().bin("*", last()).bin("+", part);
                unless_single(several, half().bin("*", start.bin("+", end)).bin("*", last()))
            }
            _ => return Err("the coordinate mode is not supported".into()),
        })
    }
}

/// Resizes; returns the result in the operand's type for the nearest element, else in a float type,
/// and the condition that an element is outside of the operand.
pub(crate) fn resize(
    cx: &mut Context,
    node: &Node,
    (chosen, operands): (&[usize], &Operands),
    sampling: &Sampling,
) -> Outcome<(T, Option<E>)> {
    let x = node.input(0)?;
    let resized = resized_axes(cx, node, (chosen, operands), sampling.mode)?;
    sampled(cx, x, resized, sampling)
}

/// An axis of run-time extent that is resized by a constant scale, or to a size.
pub(crate) struct Stretch {
    pub(crate) at: usize,
    pub(crate) to: Dim,
    /// The constant scale; without it, the ratio of the extents.
    pub(crate) scale: Option<f64>,
}

/// Resizes axes of run-time extents.
pub(crate) fn stretch(
    cx: &mut Context,
    x: T,
    list: Vec<Stretch>,
    sampling: &Sampling,
) -> Outcome<T> {
    let (shape, mut to) = (cx.shape(x), cx.shape(x));
    let mut resized = Vec::new();
    for Stretch { at, to: extent, scale } in list {
        let from = shape[at].clone();
        // An empty axis has no elements to take.
        cx.require_elements(&from);
        let ratio = E::dim(&extent, WIDE).bin("/", E::dim(&from, WIDE));
        let constant = from.as_const().zip(extent.as_const());
        let least = scale.or(constant.map(|(from, to)| to as f64 / from as f64));
        let scale = scale.map_or(ratio, float);
        to[at] = extent.clone();
        resized.push(Axis { at, from, to: extent, scale, least, region: None });
    }
    Ok(sampled(cx, x, (resized, to), sampling)?.0)
}

/// Samples the operand at the coordinates of the axes.
fn sampled(
    cx: &mut Context,
    x: T,
    (resized, to): (Vec<Axis>, Vec<Dim>),
    sampling: &Sampling,
) -> Outcome<(T, Option<E>)> {
    let own = axes(&to);
    let mut coordinates = Vec::new();
    let mut outside = Vec::new();
    for axis in &resized {
        let shape: Vec<Dim> = vec![axis.to.clone()];
        let at = E::dim(&axes(&shape)[0], WIDE);
        let body = axis.coordinate(at, sampling.mode)?;
        let part = format!("axis{}_coordinate", axis.at);
        let coordinate = cx.compute(&part, WIDE, shape, body)?;
        if sampling.mode == "tf_crop_and_resize" {
            let here = cx.load(coordinate, [own[axis.at].clone()]);
            outside.push(here.clone().bin("<", float(0.0)));
            outside.push(here.bin(">", E::dim(&(axis.from.clone() - 1), WIDE)));
        }
        coordinates.push(coordinate);
    }
    let outside = E::any(outside);
    if sampling.kind == "nearest" {
        let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
        for (axis, coordinate) in resized.iter().zip(coordinates) {
            let here = cx.load(coordinate, [own[axis.at].clone()]);
            let rounded = match sampling.rounding {
                "round_prefer_ceil" => E::call("floor", [here.bin("+", float(0.5))]),
                "floor" => E::call("floor", [here]),
                "ceil" => E::call("ceil", [here]),
                _ => E::call("ceil", [here.bin("-", float(0.5))]),
            };
            let last = E::dim(&(axis.from.clone() - 1), DType::Int64);
            let bounds = [rounded.cast(DType::Int64), int(0), last];
            index[axis.at] = E::call("clamp", bounds);
        }
        let dtype = cx.dtype(x);
        let part = if outside.is_some() { "nearest" } else { "" };
        let body = cx.load_at(x, index);
        return Ok((cx.compute(part, dtype, to, body)?, outside));
    }
    let dtype = cx.dtype(x);
    let wide = if dtype == DType::Float64 { dtype } else { DType::Float32 };
    let mut value = cx.cast("input", x, wide)?;
    for (axis, coordinate) in resized.iter().zip(coordinates) {
        value = weighted(cx, value, axis, coordinate, sampling)?;
    }
    Ok((value, outside))
}

/// Interpolates along one axis.
fn weighted(cx: &mut Context, x: T, axis: &Axis, coordinate: T, sampling: &Sampling) -> Outcome<T> {
    let dtype = cx.dtype(x);
    let mut shape = cx.shape(x);
    shape[axis.at] = axis.to.clone();
    let base = if sampling.kind == "linear" { 1.0 } else { 2.0 };
    let most = match axis.least {
        _ if !sampling.antialias || axis.to == Dim::zero() => 1.0,
        Some(least) => (1.0 / least).max(1.0),
        None => return Err("`antialias` with run-time extents is not supported".into()),
    };
    let terms = if sampling.antialias { (2.0 * base * most).floor() + 2.0 } else { 2.0 * base };
    if terms > MAX_TERMS || axis.to.as_const().is_some_and(|to| to < 1) {
        return Err("an extent is out of range".into());
    }
    let part = format!("axis{}", axis.at);
    let table: Vec<Dim> = vec![axis.to.clone(), (terms as i64).into()];
    let pair = axes(&table);
    let here = || E::Load(coordinate, vec![E::Idx(pair[0].clone())]);
    // An enlarged filter covers more elements.
    let inverse = float(1.0).bin("/", axis.scale.clone());
    let stretch = match sampling.antialias {
        true => E::call("max", [inverse, float(1.0)]),
        false => float(1.0),
    };
    let reach = float(base).bin("*", stretch.clone());
    let first = E::call("floor", [here().bin("-", reach)]).bin("+", float(1.0));
    let place = first.bin("+", E::dim(&pair[1], WIDE));
    let places = cx.compute(&format!("{part}_place"), WIDE, table.clone(), place)?;
    let place = || E::Load(places, pair.iter().cloned().map(E::Idx).collect());
    let distance = E::call("abs", [place().bin("-", here())]).bin("/", stretch);
    let distances = cx.compute(&format!("{part}_distance"), WIDE, table.clone(), distance)?;
    let d = || E::Load(distances, pair.iter().cloned().map(E::Idx).collect());
    let filter = if sampling.kind == "linear" {
        E::call("max", [float(1.0).bin("-", d()), float(0.0)])
    } else {
        let a = sampling.cubic;
        let near = float(a + 2.0).bin("*", d()).bin("-", float(a + 3.0));
        let near = near.bin("*", d()).bin("*", d()).bin("+", float(1.0));
        let far = float(a).bin("*", d()).bin("-", float(5.0 * a)).bin("*", d());
        let far = far.bin("+", float(8.0 * a)).bin("*", d()).bin("-", float(4.0 * a));
        let far = d().bin("<", float(2.0)).choose(far, float(0.0));
        d().bin("<=", float(1.0)).choose(near, far)
    };
    let last = E::dim(&(axis.from.clone() - 1), WIDE);
    let filter = if sampling.exclude {
        let outside = place().bin("<", float(0.0)).bin("or", place().bin(">", last));
        outside.choose(float(0.0), filter)
    } else {
        filter
    };
    let weights = cx.compute(&format!("{part}_weight"), WIDE, table.clone(), filter)?;
    let weight = || E::Load(weights, pair.iter().cloned().map(E::Idx).collect());
    let factor = if sampling.exclude || sampling.antialias {
        let k = reduce_axis(0, &table[1]);
        let body = cx.load(weights, [pair[0].clone(), k]);
        let name = format!("{part}_total");
        let total =
            cx.fold(&name, "sum", WIDE, vec![table[0].clone()], vec![table[1].clone()], body)?;
        let total = || E::Load(total, vec![E::Idx(pair[0].clone())]);
        let scaled = weight().bin("/", total());
        total().bin("==", float(0.0)).choose(weight(), scaled)
    } else {
        weight()
    };
    let factor = if dtype == WIDE { factor } else { factor.cast(dtype) };
    let factors = cx.compute(&format!("{part}_factor"), dtype, table.clone(), factor)?;
    let own = axes(&shape);
    let k = reduce_axis(0, &table[1]);
    let pair = [own[axis.at].clone(), k];
    let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    let place = cx.load(places, pair.clone()).cast(DType::Int64);
    let last = E::dim(&(axis.from.clone() - 1), DType::Int64);
    index[axis.at] = E::call("clamp", [place, int(0), last]);
    let body = cx.load(factors, pair).bin("*", E::Load(x, index));
    cx.fold(&part, "sum", dtype, shape, vec![table[1].clone()], body)
}
