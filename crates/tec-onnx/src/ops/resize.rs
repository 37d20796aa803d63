//! Resize and Upsample.

use super::resized::{Operands, Sampling, Stretch};
use crate::context::{Context, axes, axes_of, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome};

/// The largest number of entries of the tables of an axis, which take 100 bytes each while importing.
/// An element of the nearest mode counts as four.
const MAX_TABLE: f64 = (1 << 20) as f64;

/// How an axis is resized.
#[derive(Clone, Debug)]
struct Axis {
    from: i64,
    to: i64,
    /// The ratio of the coordinates, which need not be that of the extents.
    scale: f64,
    roi: (f64, f64),
}

/// Where each element of a result comes from: positions and factors by element.
struct Samples {
    positions: Vec<Vec<i64>>,
    factors: Vec<Vec<f64>>,
    /// Elements that take the extrapolation value.
    outside: Vec<bool>,
}

impl Axis {
    /// The coordinate of an element of the result in the operand.
    fn coordinate(&self, at: i64, mode: &str) -> Outcome<f64> {
        let x = at as f64;
        let (from, to) = (self.from as f64, self.to as f64);
        Ok(match mode {
            "half_pixel" => (x + 0.5) / self.scale - 0.5,
            "pytorch_half_pixel" if to > 1.0 => (x + 0.5) / self.scale - 0.5,
            "pytorch_half_pixel" => 0.0,
            // The length is that of the result, as in PyTorch and onnxruntime. The reference of ONNX
            // takes `from * scale`, which need not be an integer.
            "align_corners" if to > 1.0 => x * (from - 1.0) / (to - 1.0),
            "align_corners" => 0.0,
            "asymmetric" => x / self.scale,
            "half_pixel_symmetric" => {
                let adjustment = to / (self.scale * from);
                let center = from / 2.0;
                center * (1.0 - adjustment) + (x + 0.5) / self.scale - 0.5
            }
            "tf_half_pixel_for_nn" => (x + 0.5) / self.scale,
            "tf_crop_and_resize" => {
                let (start, end) = self.roi;
                if to > 1.0 {
                    start * (from - 1.0) + x * (end - start) * (from - 1.0) / (to - 1.0)
                } else {
                    0.5 * (start + end) * (from - 1.0)
                }
            }
            _ => return Err("the coordinate mode is not supported".into()),
        })
    }
}

fn nearest(x: f64, mode: &str) -> f64 {
    match mode {
        "round_prefer_ceil" => (x + 0.5).floor(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        // round_prefer_floor
        _ => (x - 0.5).ceil(),
    }
}

/// The factors of a filter at the distances of its positions.
fn filter(kind: &str, distance: f64, a: f64) -> f64 {
    let x = distance.abs();
    if kind == "linear" {
        return (1.0 - x).max(0.0);
    }
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

/// Samples of one axis.
fn samples(axis: &Axis, node: &Node, kind: &str) -> Outcome<Samples> {
    let mode = node.text("coordinate_transformation_mode", default_mode(node));
    let antialias = node.flag("antialias", false) && axis.scale < 1.0;
    let exclude = node.flag("exclude_outside", false);
    let a = node.float("cubic_coeff_a", -0.75);
    let rounding = default_rounding(node);
    let stretch = if antialias { 1.0 / axis.scale } else { 1.0 };
    let reach = if kind == "linear" { 1.0 } else { 2.0 } * stretch;
    let (mut positions, mut factors, mut outside) = (Vec::new(), Vec::new(), Vec::new());
    let last = axis.from - 1;
    let terms = if kind == "nearest" { 4.0 } else { 2.0 * reach + 2.0 };
    if axis.to as f64 * terms > MAX_TABLE {
        return Err("an extent is out of range".into());
    }
    for at in 0..axis.to {
        let x = axis.coordinate(at, mode)?;
        outside.push(x < 0.0 || x > last as f64);
        if kind == "nearest" {
            positions.push(vec![(nearest(x, rounding) as i64).clamp(0, last)]);
            factors.push(vec![1.0]);
            continue;
        }
        let first = (x - reach).floor() as i64 + 1;
        let end = (x + reach).ceil() as i64;
        let (mut own, mut weights) = (Vec::new(), Vec::new());
        for place in first..end.max(first + 1) {
            let mut factor = filter(kind, (place as f64 - x) / stretch, a);
            if exclude && !(0..=last).contains(&place) {
                factor = 0.0;
            }
            own.push(place.clamp(0, last));
            weights.push(factor);
        }
        let total: f64 = weights.iter().sum();
        if (exclude || antialias) && total != 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= total);
        }
        positions.push(own);
        factors.push(weights);
    }
    // All elements have as many terms; the added ones count nothing.
    let most = positions.iter().map(Vec::len).max().unwrap_or(1);
    for (own, weights) in positions.iter_mut().zip(&mut factors) {
        own.resize(most, own.last().copied().unwrap_or(0));
        weights.resize(most, 0.0);
    }
    Ok(Samples { positions, factors, outside })
}

fn default_mode(node: &Node) -> &'static str {
    if node.op == "Upsample" || node.opset < 11 { "asymmetric" } else { "half_pixel" }
}

pub(crate) fn resize(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let x = node.input(0)?;
    let shape = cx.shape(x);
    let rank = shape.len();
    let old = node.opset < 11 || node.op == "Upsample";
    let chosen = match node.ints("axes") {
        Some(axes) => axes_of(axes, rank)?,
        None => (0..rank).collect(),
    };
    let (roi, scales, sizes) = if old {
        (None, node.optional(1), None)
    } else {
        (node.optional(1), node.optional(2), node.optional(3))
    };
    let given = |cx: &Context, t: Option<T>| {
        t.filter(|t| cx.graph[*t].shape.first().is_none_or(|n| *n != Dim::zero()))
    };
    let (scales, sizes) = (given(cx, scales), given(cx, sizes));
    let mode = node.text("coordinate_transformation_mode", default_mode(node));
    let operands = Operands { roi: given(cx, roi), scales, sizes };
    let policy = node.text("keep_aspect_ratio_policy", "stretch");
    // The declared shape gives the sizes, and so the scales.
    let sizes_follow = scales.is_none() && policy == "stretch";
    let follow = |cx: &Context| -> Option<Vec<Dim>> {
        let to = cx.declared(0).filter(|to| to.len() == rank)?;
        Some(chosen.iter().map(|axis| to[*axis].clone()).collect())
    };
    let sizes_listed = sizes.filter(|_| !sizes_follow);
    let listed = [operands.roi.filter(|_| mode == "tf_crop_and_resize"), scales, sizes_listed];
    if listed.iter().flatten().any(|t| cx.graph[*t].vals.is_none()) {
        return at_run_time(cx, node, &chosen, &operands);
    }
    let roi = match given(cx, roi).filter(|_| mode == "tf_crop_and_resize") {
        Some(roi) => cx.floats(roi, "the region")?,
        None => Vec::new(),
    };
    let attribute = node.floats("scales").map(|s| s.iter().map(|v| f64::from(*v)).collect());
    let scales: Option<Vec<f64>> = match scales {
        Some(scales) => Some(cx.floats(scales, "the scales")?),
        None => attribute,
    };
    let declared = follow(cx);
    let sizes = sizes.map(|sizes| cx.declared_dims(sizes, "the sizes", declared)).transpose()?;
    let count = scales.as_ref().map(Vec::len).or(sizes.as_ref().map(Vec::len));
    if count != Some(chosen.len()) {
        return Err("there must be a scale or size for each axis".into());
    }
    let is_run_time = |axis: &usize| shape[*axis].as_const().is_none();
    let run_time_size = |sizes: &Vec<Dim>| sizes.iter().any(|size| size.as_const().is_none());
    let unchanged = |at: usize| match (&scales, &sizes) {
        (Some(scales), _) => scales[at] == 1.0,
        (None, Some(sizes)) => sizes[at] == shape[chosen[at]],
        _ => true,
    };
    let stretched: Vec<usize> = (0..chosen.len()).filter(|at| !unchanged(*at)).collect();
    let needs_run_time = stretched.iter().any(|at| is_run_time(&chosen[*at]))
        || sizes.as_ref().is_some_and(run_time_size) && !stretched.is_empty();
    if needs_run_time && policy == "stretch" && roi.is_empty() {
        let axis = |at: &usize| -> Outcome<Stretch> {
            let scale = scales.as_ref().map(|scales| scales[*at]);
            let to = match (scale, &sizes) {
                (Some(scale), _) => scaled_extent(&shape[chosen[*at]], scale)?,
                (None, Some(sizes)) => sizes[*at].clone(),
                _ => return Err("there must be scales or sizes".into()),
            };
            Ok(Stretch { at: chosen[*at], to, scale })
        };
        let list = stretched.iter().map(axis).collect::<Outcome<Vec<Stretch>>>()?;
        let sampling = sampling(node)?;
        let value = super::resized::stretch(cx, x, list, &sampling)?;
        let dtype = cx.dtype(x);
        return Ok(vec![restored(cx, value, dtype)?]);
    }
    let mut axes_to_resize: Vec<(usize, Axis)> = Vec::new();
    let mut ratio = if policy == "not_larger" { f64::INFINITY } else { 0.0 };
    if let (Some(sizes), false) = (&sizes, policy == "stretch") {
        for (at, axis) in chosen.iter().enumerate() {
            let (Some(size), Some(n)) = (sizes[at].as_const(), shape[*axis].as_const()) else {
                return Err("run-time extents are not supported".into());
            };
            let own = size as f64 / n as f64;
            ratio = if policy == "not_larger" { ratio.min(own) } else { ratio.max(own) };
        }
    }
    for (at, axis) in chosen.iter().enumerate() {
        let unchanged = match (&scales, &sizes) {
            (Some(scales), _) => scales[at] == 1.0 && roi.is_empty(),
            (None, Some(sizes)) => sizes[at] == shape[*axis] && roi.is_empty(),
            _ => true,
        };
        if unchanged && policy == "stretch" {
            continue;
        }
        let n = shape[*axis].as_const().ok_or("run-time extents are not supported")?;
        let (to, scale) = match (&scales, &sizes) {
            (Some(scales), _) => ((n as f64 * scales[at]).floor() as i64, scales[at]),
            (None, Some(_)) if policy != "stretch" => {
                ((ratio * n as f64 + 0.5).floor() as i64, ratio)
            }
            (None, Some(sizes)) => {
                let size = sizes[at].as_const().ok_or("run-time extents are not supported")?;
                (size, size as f64 / n as f64)
            }
            _ => (n, 1.0),
        };
        if !(0..=1 << 24).contains(&to) || n == 0 || scale <= 0.0 || scale.is_nan() {
            return Err("an extent is out of range".into());
        }
        let region = match roi.len() == 2 * chosen.len() {
            true => (roi[at], roi[at + chosen.len()]),
            false => (0.0, 1.0),
        };
        axes_to_resize.push((*axis, Axis { from: n, to, scale, roi: region }));
    }
    let kind = node.text("mode", "nearest");
    if !matches!(kind, "nearest" | "linear" | "cubic" | "bilinear") {
        return Err("the mode is not supported".into());
    }
    let kind = if kind == "bilinear" { "linear" } else { kind };
    if kind == "nearest" {
        return nearest_neighbour(cx, node, x, axes_to_resize, mode).map(|y| vec![y]);
    }
    let dtype = cx.dtype(x);
    let wide = if dtype == DType::Float64 { dtype } else { DType::Float32 };
    let mut value = cx.cast("input", x, wide)?;
    let mut outside: Vec<E> = Vec::new();
    for (axis, own) in &axes_to_resize {
        let samples = samples(own, node, kind)?;
        if mode == "tf_crop_and_resize" && samples.outside.contains(&true) {
            let flags: Vec<E> = ranges(&samples.outside, *axis, own.to);
            outside.extend(flags);
        }
        value = weighted(cx, &format!("axis{axis}"), value, *axis, &samples)?;
    }
    value = filled(cx, node, value, E::any(outside))?;
    Ok(vec![restored(cx, value, dtype)?])
}

/// floor(extent × scale), for scales that are fractions of small powers of 2 or their inverses.
fn scaled_extent(extent: &Dim, scale: f64) -> Outcome<Dim> {
    if let Some(n) = extent.as_const() {
        return Ok(((n as f64 * scale).floor() as i64).into());
    }
    for divisor in [1, 2, 4, 8, 16, 32, 64] {
        let factor = scale * f64::from(divisor);
        if factor.fract() == 0.0 && (1.0..1e6).contains(&factor) {
            return Ok((extent.clone() * factor as i64).div(&i64::from(divisor).into()));
        }
    }
    Err("a run-time extent with this scale is not supported".into())
}

/// The attributes that say how elements are sampled.
fn sampling<'a>(node: &Node<'a>) -> Outcome<Sampling<'a>> {
    let kind = node.text("mode", "nearest");
    if !matches!(kind, "nearest" | "linear" | "cubic" | "bilinear") {
        return Err("the mode is not supported".into());
    }
    Ok(Sampling {
        kind: if kind == "bilinear" { "linear" } else { kind },
        mode: node.text("coordinate_transformation_mode", default_mode(node)),
        rounding: default_rounding(node),
        antialias: node.flag("antialias", false),
        exclude: node.flag("exclude_outside", false),
        cubic: node.float("cubic_coeff_a", -0.75),
    })
}

/// Resizes with operands of run time.
fn at_run_time(
    cx: &mut Context,
    node: &Node,
    chosen: &[usize],
    operands: &Operands,
) -> Outcome<Vec<T>> {
    let sampling = sampling(node)?;
    let dtype = cx.dtype(node.input(0)?);
    let (value, outside) = super::resized::resize(cx, node, (chosen, operands), &sampling)?;
    let value = filled(cx, node, value, outside)?;
    Ok(vec![restored(cx, value, dtype)?])
}

/// Replaces the elements that are outside of the operand.
fn filled(cx: &mut Context, node: &Node, value: T, outside: Option<E>) -> Outcome<T> {
    let Some(outside) = outside else { return Ok(value) };
    let (shape, dtype) = (cx.shape(value), cx.dtype(value));
    let fill = E::num(node.float("extrapolation_value", 0.0), dtype);
    let body = outside.choose(fill, cx.load(value, axes(&shape)));
    cx.compute("filled", dtype, shape, body)
}

/// Converts an interpolated value to the type of the operand.
fn restored(cx: &mut Context, value: T, dtype: DType) -> Outcome<T> {
    let wide = cx.dtype(value);
    if !dtype.is_int() || wide == dtype {
        return cx.cast("", value, dtype);
    }
    // A result is rounded, within the range of its type.
    let (low, high) = dtype.int_range();
    cx.elementwise("", dtype, &[value], |mut e| {
        let bounds = [E::float(low as f64, wide), E::float(high as f64, wide)];
        let [low, high] = bounds;
        E::call("clamp", [E::call("round", [e.remove(0)]), low, high]).cast(dtype)
    })
}

/// How the nearest position is rounded; before opset 11 down.
fn default_rounding<'a>(node: &Node<'a>) -> &'a str {
    let old = node.op == "Upsample" || node.opset < 11;
    node.text("nearest_mode", if old { "floor" } else { "round_prefer_floor" })
}

/// Conditions that an index is in one of the runs of elements outside.
fn ranges(outside: &[bool], axis: usize, extent: i64) -> Vec<E> {
    let index = Dim::axis(axis, &extent.into());
    let first = outside.iter().position(|o| !o).unwrap_or(outside.len());
    let last = outside.iter().rposition(|o| !o).map_or(0, |at| at + 1);
    let mut conditions = Vec::new();
    if first > 0 {
        conditions.push(E::Idx(index.clone()).bin("<", E::Idx((first as i64).into())));
    }
    if last < outside.len() && first < outside.len() {
        conditions.push(E::Idx(index).bin(">=", E::Idx((last as i64).into())));
    }
    conditions
}

/// Interpolates along one axis with constant tables.
fn weighted(cx: &mut Context, part: &str, x: T, axis: usize, samples: &Samples) -> Outcome<T> {
    let dtype = cx.dtype(x);
    let mut shape = cx.shape(x);
    let (rows, terms) = (samples.positions.len(), samples.positions.first().map_or(1, Vec::len));
    shape[axis] = (rows as i64).into();
    let table = vec![(rows as i64).into(), (terms as i64).into()];
    let flat = samples.positions.iter().flatten().map(|p| crate::dtype::Val::Int((*p).into()));
    let positions =
        cx.known(&format!("{part}_from"), DType::Int64, table.clone(), flat.collect())?;
    let flat = samples.factors.iter().flatten().map(|f| crate::dtype::Val::Float(*f));
    let factors = cx.known(&format!("{part}_factor"), dtype, table, flat.collect())?;
    let own = axes(&shape);
    let k = reduce_axis(0, &(terms as i64).into());
    let pair = [own[axis].clone(), k];
    let mut index: Vec<E> = own.iter().cloned().map(E::Idx).collect();
    index[axis] = cx.load(positions, pair.clone());
    let body = cx.load(factors, pair).bin("*", E::Load(x, index));
    cx.fold(part, "sum", dtype, shape, vec![(terms as i64).into()], body)
}

/// Copies the nearest element; positions that follow a simple rule become expressions.
fn nearest_neighbour(
    cx: &mut Context,
    node: &Node,
    x: T,
    resized: Vec<(usize, Axis)>,
    mode: &str,
) -> Outcome<T> {
    let dtype = cx.dtype(x);
    let mut shape = cx.shape(x);
    for (axis, own) in &resized {
        shape[*axis] = own.to.into();
    }
    let indices = axes(&shape);
    let mut index: Vec<E> = indices.iter().cloned().map(E::Idx).collect();
    let mut outside = Vec::new();
    for (axis, own) in &resized {
        let samples = samples(own, node, "nearest")?;
        let positions: Vec<i64> = samples.positions.iter().map(|p| p[0]).collect();
        if mode == "tf_crop_and_resize" {
            outside.extend(ranges(&samples.outside, *axis, own.to));
        }
        let by = |up: i64, down: i64| positions.iter().zip(0..).all(|(p, at)| *p == at * down / up);
        let simple = (1..=16).flat_map(|up| (1..=16).map(move |down| (up, down)));
        index[*axis] = match simple.into_iter().find(|(up, down)| by(*up, *down)) {
            Some((up, down)) => E::Idx((indices[*axis].clone() * down).div(&up.into())),
            None => {
                let values = positions.iter().map(|p| crate::dtype::Val::Int((*p).into()));
                let table = cx.known(
                    &format!("axis{axis}_from"),
                    DType::Int64,
                    vec![own.to.into()],
                    values.collect(),
                )?;
                cx.load(table, [indices[*axis].clone()])
            }
        };
    }
    let body = cx.load_at(x, index);
    let body = match E::any(outside) {
        Some(outside) => {
            outside.choose(E::num(node.float("extrapolation_value", 0.0), dtype), body)
        }
        None => body,
    };
    cx.compute("", dtype, shape, body)
}
