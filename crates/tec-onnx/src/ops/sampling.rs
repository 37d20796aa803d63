//! Operators that interpolate at computed coordinates.

use crate::context::{Context, axes, reduce_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::expr::E;
use crate::graph::T;
use crate::node::{Node, Outcome, Refusal};
use crate::run_time::Elements;

/// Which elements count for a coordinate.
#[derive(Clone, Copy, PartialEq)]
enum Kernel {
    Nearest,
    Linear,
    Cubic,
}

impl Kernel {
    /// The number of elements along an axis.
    fn taps(self) -> i64 {
        match self {
            Kernel::Nearest => 1,
            Kernel::Linear => 2,
            Kernel::Cubic => 4,
        }
    }

    /// The factor of an element at a distance.
    fn factor(self, distance: E, dtype: DType) -> E {
        let num = |value: f64| E::float(value, dtype);
        match self {
            Kernel::Nearest => num(1.0),
            Kernel::Linear => num(1.0).bin("-", distance),
            Kernel::Cubic => {
                let a = -0.75;
                let d = || distance.clone();
                let near = num(a + 2.0).bin("*", d()).bin("-", num(a + 3.0));
                let near = near.bin("*", d()).bin("*", d()).bin("+", num(1.0));
                let far = num(a).bin("*", d()).bin("-", num(5.0 * a)).bin("*", d());
                let far = far.bin("+", num(8.0 * a)).bin("*", d()).bin("-", num(4.0 * a));
                d().bin("<=", num(1.0)).choose(near, far)
            }
        }
    }
}

/// What lies outside of a tensor.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// The place in `0..extent` that a coordinate is reflected to.
fn reflect(x: E, extent: &Dim, align: bool, dtype: DType) -> E {
    let half = E::float(0.5, dtype);
    let zero = E::float(0.0, dtype);
    let (low, range) = if align {
        (zero, E::dim(&(extent.clone() - 1), dtype))
    } else {
        (half.un("-"), E::dim(extent, dtype))
    };
    if align && extent.is_one() {
        return E::float(0.0, dtype);
    }
    let period = E::float(2.0, dtype).bin("*", range.clone());
    let from = E::call("abs", [x.bin("-", low.clone())]);
    let whole = E::call("floor", [from.clone().bin("/", period.clone())]);
    let phase = from.bin("-", whole.bin("*", period.clone()));
    let back = period.bin("-", phase.clone());
    low.bin("+", phase.clone().bin(">", range).choose(back, phase))
}

/// The elements along one axis that a coordinate is interpolated from: stages of their places and
/// factors, with a last axis over the elements.
struct Taps {
    places: T,
    factors: T,
    extent: Dim,
}

impl Taps {
    /// The index of an element in the sampled tensor.
    fn index(&self, cx: &Context, at: Vec<Dim>) -> E {
        let last = E::dim(&(self.extent.clone() - 1), DType::Int64);
        E::call("clamp", [cx.load(self.places, at), E::int(0, DType::Int64), last])
    }
}

/// Defines the elements for a stage of coordinates.
fn taps(
    cx: &mut Context,
    part: &str,
    coordinates: T,
    extent: &Dim,
    kernel: Kernel,
    outside: Outside,
    align: bool,
) -> Outcome<Taps> {
    let dtype = cx.dtype(coordinates);
    let mut shape = cx.shape(coordinates);
    shape.push(kernel.taps().into());
    let own = axes(&shape);
    let x = cx.load(coordinates, own[..own.len() - 1].to_vec());
    let tap = E::dim(&own[own.len() - 1], dtype);
    let first = match kernel {
        Kernel::Nearest => x.clone(),
        Kernel::Linear => E::call("floor", [x.clone()]).bin("+", tap),
        Kernel::Cubic => {
            let first = E::call("floor", [x.clone()]).bin("-", E::float(1.0, dtype));
            first.bin("+", tap)
        }
    };
    let raw = cx.compute(&format!("{part}_at"), dtype, shape.clone(), first)?;
    let at = cx.load(raw, own);
    let place = match outside {
        Outside::Reflection => reflect(at.clone(), extent, align, dtype),
        _ => at.clone(),
    };
    let places = cx.compute(
        &format!("{part}_place"),
        DType::Int64,
        shape.clone(),
        place.cast(DType::Int64),
    )?;
    let factor = kernel.factor(E::call("abs", [x.bin("-", at.clone())]), dtype);
    let factor = if outside == Outside::Zeros {
        let inside =
            [at.clone().bin(">=", E::float(0.0, dtype)), at.bin("<", E::dim(extent, dtype))];
        match E::all(inside.to_vec()) {
            Some(inside) => inside.choose(factor, E::float(0.0, dtype)),
            None => factor,
        }
    } else {
        factor
    };
    let factors = cx.compute(&format!("{part}_factor"), dtype, shape, factor)?;
    Ok(Taps { places, factors, extent: extent.clone() })
}

pub(crate) fn grid_sample(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, grid) = (node.input(0)?, node.input(1)?);
    let (from, places) = (cx.shape(x), cx.shape(grid));
    if from.len() < 3 || places.len() != from.len() {
        return Err("the ranks of the operands differ".into());
    }
    let dims = from.len() - 2;
    let kernel = match node.text("mode", "linear") {
        "nearest" => Kernel::Nearest,
        "linear" | "bilinear" => Kernel::Linear,
        "cubic" | "bicubic" => Kernel::Cubic,
        _ => return Err("the mode is not supported".into()),
    };
    let outside = match node.text("padding_mode", "zeros") {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        _ => return Err("the padding mode is not supported".into()),
    };
    let align = node.flag("align_corners", false);
    let dtype = cx.dtype(x);
    let wide = if dtype == DType::Float64 { dtype } else { DType::Float32 };
    let sampled = cx.cast("input", x, wide)?;
    // One stage of coordinates for each axis; the grid names the last axis first.
    let shape = places[..=dims].to_vec();
    let own = axes(&shape);
    let mut all = Vec::new();
    for axis in 0..dims {
        let extent = &from[axis + 2];
        let mut index = own.clone();
        index.push(((dims - 1 - axis) as i64).into());
        let value = cx.load(grid, index);
        let value = if cx.dtype(grid) == wide { value } else { value.cast(wide) };
        let one = || E::float(1.0, wide);
        let half = E::float(0.5, wide);
        let shifted = value.bin("+", one());
        let mut at = if align {
            shifted.bin("*", half).bin("*", E::dim(&(extent.clone() - 1), wide))
        } else {
            shifted.bin("*", E::dim(extent, wide)).bin("-", one()).bin("*", half)
        };
        if kernel == Kernel::Nearest {
            at = E::call("round", [at]);
        }
        let part = format!("axis{axis}");
        let mut coordinates = cx.compute(&part, wide, shape.clone(), at)?;
        if outside != Outside::Zeros {
            let value = cx.load(coordinates, own.clone());
            // PyTorch and onnxruntime clamp the places of the four elements of a cubic, not the
            // coordinate. Behind these bounds all four are the same element.
            let beyond = if kernel == Kernel::Cubic { 2 } else { 0 };
            let last = E::dim(&(extent.clone() - 1 + beyond), wide);
            let first = E::float(-beyond as f64, wide);
            let value = match outside {
                Outside::Border => E::call("clamp", [value, first, last]),
                _ => reflect(value, extent, align, wide),
            };
            coordinates = cx.compute(&format!("{part}_inside"), wide, shape.clone(), value)?;
        }
        all.push(taps(cx, &part, coordinates, extent, kernel, outside, align)?);
    }
    let mut out = from[..2].to_vec();
    out.extend(shape[1..].iter().cloned());
    let own = axes(&out);
    let mut position = vec![own[0].clone()];
    position.extend(own[2..].iter().cloned());
    let mut index: Vec<E> = own[..2].iter().cloned().map(E::Idx).collect();
    let mut factor: Option<E> = None;
    let extents = vec![Dim::from(kernel.taps()); dims];
    for (axis, taps) in all.iter().enumerate() {
        let mut at = position.clone();
        at.push(reduce_axis(axis, &extents[axis]));
        let own = cx.load(taps.factors, at.clone());
        factor = Some(match factor {
            None => own,
            Some(factor) => factor.bin("*", own),
        });
        index.push(taps.index(cx, at));
    }
    let value = E::Load(sampled, index);
    let term = match factor {
        Some(factor) => factor.bin("*", value),
        None => value,
    };
    let part = if wide == dtype { "" } else { "wide" };
    let result = cx.fold(part, "sum", wide, out, extents, term)?;
    Ok(vec![cx.cast("", result, dtype)?])
}

pub(crate) fn roi_align(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let (x, rois, batches) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (from, count) = (cx.shape(x), cx.shape(batches));
    let dtype = cx.dtype(x);
    if from.len() != 4 || count.len() != 1 || dtype.is_half() {
        return Err("an image of 32-bit floats is needed".into());
    }
    let sizes = [node.int("output_height", 1), node.int("output_width", 1)];
    let samples = node.int("sampling_ratio", 0);
    if !(1..=1 << 20).contains(&samples) {
        return Err("a sampling ratio that depends on the region is not supported".into());
    }
    // The default was `output_half_pixel` without a shift before opset 16.
    let default = if node.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half_pixel = node.text("coordinate_transformation_mode", default) == "half_pixel";
    let scale = node.float("spatial_scale", 1.0);
    let mut all = Vec::new();
    for (axis, part) in ["rows", "columns"].into_iter().enumerate() {
        let extent = &from[axis + 2];
        let shape = vec![count[0].clone(), sizes[axis].into(), samples.into()];
        let own = axes(&shape);
        let bound = |cx: &Context, at: usize| {
            let value = cx.load(rois, [own[0].clone(), (at as i64).into()]);
            let value = value.bin("*", E::float(scale, dtype));
            if half_pixel { value.bin("-", E::float(0.5, dtype)) } else { value }
        };
        // Regions are x, y, x, y.
        let (start, end) = (bound(cx, 1 - axis), bound(cx, 3 - axis));
        let mut length = end.bin("-", start.clone());
        if !half_pixel {
            length = E::call("max", [length, E::float(1.0, dtype)]);
        }
        let bin = length.bin("/", E::float(sizes[axis] as f64, dtype));
        let bins = cx.compute(&format!("{part}_bin"), dtype, shape.clone(), bin)?;
        let bin = cx.load(bins, own.clone());
        let step = E::dim(&own[2], dtype).bin("+", E::float(0.5, dtype));
        let step = step.bin("*", bin.clone()).bin("/", E::float(samples as f64, dtype));
        let at = start.bin("+", E::dim(&own[1], dtype).bin("*", bin)).bin("+", step);
        let raw = cx.compute(part, dtype, shape.clone(), at)?;
        // Samples beyond the image count nothing; those at its border use the nearest elements.
        let value = cx.load(raw, own.clone());
        let bounds = [E::float(0.0, dtype), E::dim(&(extent.clone() - 1), dtype)];
        let [low, high] = bounds;
        let clamped = E::call("clamp", [value.clone(), low, high]);
        let coordinates = cx.compute(&format!("{part}_inside"), dtype, shape.clone(), clamped)?;
        let own_taps = taps(cx, part, coordinates, extent, Kernel::Linear, Outside::Zeros, false)?;
        let valid = [
            value.clone().bin(">=", E::float(-1.0, dtype)),
            value.bin("<=", E::dim(extent, dtype)),
        ];
        let mut wide = shape;
        wide.push(2.into());
        let factor = cx.load(own_taps.factors, axes(&wide));
        let body = match E::all(valid.to_vec()) {
            Some(valid) => valid.choose(factor, E::float(0.0, dtype)),
            None => factor,
        };
        let factors = cx.compute(&format!("{part}_weight"), dtype, wide, body)?;
        all.push(Taps { factors, ..own_taps });
    }
    let out = vec![count[0].clone(), from[1].clone(), sizes[0].into(), sizes[1].into()];
    let own = axes(&out);
    let extents = vec![samples.into(), samples.into(), 2.into(), 2.into()];
    let k: Vec<Dim> = extents.iter().enumerate().map(|(at, n)| reduce_axis(at, n)).collect();
    let rows = vec![own[0].clone(), own[2].clone(), k[0].clone(), k[2].clone()];
    let columns = vec![own[0].clone(), own[3].clone(), k[1].clone(), k[3].clone()];
    let batch = super::gather::place(cx, batches, vec![E::Idx(own[0].clone())], &from[0]);
    let index = vec![
        batch,
        E::Idx(own[1].clone()),
        all[0].index(cx, rows.clone()),
        all[1].index(cx, columns.clone()),
    ];
    let factor = cx.load(all[0].factors, rows).bin("*", cx.load(all[1].factors, columns));
    let term = factor.bin("*", E::Load(x, index));
    if node.text("mode", "avg") == "max" {
        return Ok(vec![cx.fold("", "max", dtype, out, extents, term)?]);
    }
    let sum = cx.fold("sum", "sum", dtype, out.clone(), extents, term)?;
    let number = E::float((samples * samples) as f64, dtype);
    let body = cx.load(sum, own).bin("/", number);
    Ok(vec![cx.compute("", dtype, out, body)?])
}

/// The size of a grid from its declared shape. The number of channels does not matter.
fn grid_size(cx: &mut Context, operand: T, elements: &Elements) -> Outcome<Vec<Dim>> {
    let refuse = || Refusal::NotConstant("the size".to_string(), operand);
    let fits = |to: &Vec<Dim>| to.len() == elements.list.len() && to.len() > 2;
    let to = cx.declared(0).filter(fits).ok_or_else(refuse)?;
    let mut size = vec![to[0].clone(), 1.into()];
    size.extend(to[1..to.len() - 1].iter().cloned());
    for (at, (element, dim)) in elements.list.iter().zip(&size).enumerate() {
        if at != 1 {
            let text = dim.text(&|_| String::new());
            let equal = element.clone().bin("==", E::Idx(dim.clone()));
            cx.assert(equal, &format!("element {at} of the size must be {text}"))?;
        }
    }
    Ok(size)
}

pub(crate) fn affine_grid(cx: &mut Context, node: &Node) -> Outcome<Vec<T>> {
    let theta = node.input(0)?;
    let dtype = cx.dtype(theta);
    let operand = node.input(1)?;
    let size = match cx.run_time(operand, "the size")? {
        None => cx.dims(operand, "the size")?,
        Some(elements) => grid_size(cx, operand, &elements)?,
    };
    let dims = size.len().checked_sub(2).filter(|dims| *dims > 0).ok_or("the size is too short")?;
    let align = node.flag("align_corners", false);
    let mut shape = vec![size[0].clone()];
    shape.extend(size[2..].iter().cloned());
    shape.push((dims as i64).into());
    let own = axes(&shape);
    let row = own[dims + 1].clone();
    let theta_at = |cx: &Context, column: usize| {
        cx.load(theta, [own[0].clone(), row.clone(), (column as i64).into()])
    };
    let mut body = theta_at(cx, dims);
    for axis in 0..dims {
        let extent = &size[axis + 2];
        let (at, one) = (E::dim(&own[axis + 1], dtype), E::float(1.0, dtype));
        let two = E::float(2.0, dtype);
        let place = if align {
            two.bin("*", at).bin("/", E::dim(&(extent.clone() - 1), dtype)).bin("-", one)
        } else {
            let center = two.bin("*", at).bin("+", one.clone());
            center.bin("/", E::dim(extent, dtype)).bin("-", one)
        };
        body = body.bin("+", theta_at(cx, dims - 1 - axis).bin("*", place));
    }
    Ok(vec![cx.compute("", dtype, shape, body)?])
}
