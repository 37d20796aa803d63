//! Arguments of a kernel: random data, with many special values.
//!
//! The data of a tensor depend only on the seed and its name, so that a shrunk program has the same
//! data. A name of the form `I5_…` holds indices into an extent of 5.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tec::ir::half_bits;
use tec::ir::interp::{Evaluator, Tensor, Value};
use tec::ir::{DType, Kernel, Param, Role, Source};

/// The kind of data in tensors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Data {
    /// Values of all kinds.
    Any,
    /// Small numbers, whose sums are seldom rounded.
    Small,
    /// Ordinary numbers, whose sums are rounded.
    Rough,
    /// Few different numbers, so that many elements are equal.
    Ties,
}

/// The largest number of elements of all tensors; larger programs are skipped.
const MAX_ELEMENTS: i64 = 100_000;

fn seeded(seed: u64, name: &str) -> ChaCha8Rng {
    let hash = name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    ChaCha8Rng::seed_from_u64(hash)
}

/// Arguments in the order of the parameters, or none if they would be too large. In one run of
/// sixteen an extent is off by one, so that the entry checks refuse the call.
pub fn make_args(
    kernel: &Kernel,
    vars: &[(String, i64)],
    seed: u64,
    data: Data,
) -> Option<Vec<Value>> {
    let mut runtime = Vec::new();
    for param in &kernel.params {
        if let Param::Runtime { var, source } = param
            && !matches!(source, Some(Source::Stride(..)))
        {
            let known = vars.iter().find(|(name, _)| name == var.name());
            runtime.push((var.clone(), known.map_or(3, |(_, value)| *value)));
        }
    }
    let (names, values): (Vec<_>, Vec<u64>) =
        runtime.iter().map(|(var, value)| (var.clone(), *value as u64)).unzip();
    let mut shapes: Vec<Vec<i64>> = Vec::new();
    for param in &kernel.params {
        let Param::Tensor { buffer, .. } = param else {
            shapes.push(Vec::new());
            continue;
        };
        let evaluator = Evaluator::new(&buffer.shape, &names).ok()?;
        // An extent that overflows counts as empty: the checks refuse both.
        let extents = evaluator.eval(&values).unwrap_or(vec![0; buffer.shape.len()]);
        shapes.push(extents.into_iter().map(|extent| (extent as i64).max(0)).collect());
    }
    // The interpreter has the bytes of a quantized tensor, not the extents that a caller passes.
    let is_quantized = |param: &Param| match param {
        Param::Tensor { buffer, .. } => buffer.declared.is_some(),
        _ => false,
    };
    let quantized: Vec<bool> = kernel.params.iter().map(is_quantized).collect();
    spoil(&mut shapes, &quantized, seed);
    let mut elements = shapes
        .iter()
        .map(|shape| shape.iter().try_fold(1i64, |count, extent| count.checked_mul(*extent)));
    if elements
        .try_fold(0i64, |sum, count| sum.checked_add(count?))
        .is_none_or(|count| count > MAX_ELEMENTS)
    {
        return None;
    }
    let make = |(at, param): (usize, &Param)| match param {
        Param::Tensor { buffer, role, .. } => {
            let mut rng = seeded(seed, &buffer.name);
            let shape = shapes[at].clone();
            Value::Tensor(tensor(
                buffer.dtype,
                &buffer.name,
                shape,
                *role == Role::Output,
                data,
                &mut rng,
            ))
        }
        Param::Scalar { var, dtype } => scalar(*dtype, &mut seeded(seed, var.name())),
        Param::Runtime { var, source } => {
            let given =
                runtime.iter().find(|(known, _)| known == var).map_or(0, |(_, value)| *value);
            // Tensors are contiguous. Strides of an empty one have no effect, and may overflow.
            Value::Index(match source {
                Some(Source::Extent(param, dim)) => match &kernel.params[*param] {
                    // The last dimension counts bytes of two elements, of which one may be missing.
                    Param::Tensor { buffer, .. }
                        if buffer.declared_dtype().bits() < 8 && dim + 1 == buffer.shape.len() =>
                    {
                        let elements = 2 * shapes[*param][*dim];
                        if given == elements - 1 { given } else { elements }
                    }
                    _ => shapes[*param][*dim],
                },
                Some(Source::Stride(param, dim)) => {
                    let inner = shapes[*param][dim + 1..].iter();
                    inner.fold(1i64, |stride, extent| stride.saturating_mul(*extent))
                }
                None => given,
            })
        }
    };
    Some(kernel.params.iter().enumerate().map(make).collect())
}

/// Seldom changes an extent, so that a check must refuse the call.
fn spoil(shapes: &mut [Vec<i64>], quantized: &[bool], seed: u64) {
    let mut rng = seeded(seed, "");
    if rng.random_range(0..16) != 0 {
        return;
    }
    let at = rng.random_range(0..shapes.len());
    if !shapes[at].is_empty() && !quantized[at] {
        let dim = rng.random_range(0..shapes[at].len());
        let by = if rng.random_bool(0.5) { 1 } else { -1 };
        shapes[at][dim] = (shapes[at][dim] + by).max(0);
    }
}

/// How the elements of a tensor are drawn.
#[derive(Clone, Copy)]
enum Style {
    /// Special and ordinary values.
    Mixed,
    /// Small integers, whose operations seldom overflow.
    Small,
    /// Numbers whose sums are rounded: of several magnitudes, or near 1, so that products do not
    /// overflow.
    Rough {
        /// Of several magnitudes.
        wide: bool,
    },
    /// Few different values.
    Ties,
    /// Any bits.
    Bits,
    /// Valid indices of this extent, seldom another.
    Indices(i64),
}

fn tensor(
    dtype: DType,
    name: &str,
    shape: Vec<i64>,
    output: bool,
    data: Data,
    rng: &mut ChaCha8Rng,
) -> Tensor {
    let count: i64 = shape.iter().product();
    let size = dtype.bytes() as usize;
    if output {
        // The initial contents of outputs are neither NaN nor zero.
        return Tensor { dtype, data: vec![0x55; count as usize * size], shape };
    }
    let extent = name.strip_prefix('I').and_then(|rest| rest.split('_').next());
    let style = match extent.and_then(|extent| extent.parse().ok()) {
        Some(extent) => Style::Indices(extent),
        None if data == Data::Small => Style::Small,
        None if data == Data::Rough => Style::Rough { wide: rng.random_bool(0.5) },
        None if data == Data::Ties => Style::Ties,
        None => [Style::Mixed, Style::Mixed, Style::Small, Style::Bits][rng.random_range(0..4)],
    };
    let data = (0..count).flat_map(|_| element(dtype, style, rng)).collect();
    Tensor { dtype, data, shape }
}

fn element(dtype: DType, style: Style, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let bits = match style {
        Style::Bits if dtype == DType::Bool => rng.random::<u64>() & rng.random::<u64>() & 0x83,
        Style::Bits => rng.random::<u64>(),
        Style::Indices(extent) => {
            let bad = rng.random_range(0..200) == 0;
            let index = if bad { extent } else { rng.random_range(0..extent.max(1)) };
            index as u64
        }
        Style::Small if dtype.is_float() => {
            float_bits(dtype, f64::from(rng.random_range(-8..9)) / 2.0)
        }
        Style::Rough { wide } if dtype.is_float() => {
            let scale = if wide { 10f64.powi(rng.random_range(-2..9)) } else { 4.0 };
            float_bits(dtype, (rng.random::<f64>() - 0.5) * scale)
        }
        Style::Ties if dtype.is_float() => {
            let values = [0.0, -0.0, 1.0, 1.0, 2.0, -1.0, 2.0, f64::NAN];
            float_bits(dtype, values[rng.random_range(0..values.len())])
        }
        Style::Rough { .. } => rng.random_range(-40i64..60) as u64,
        Style::Ties => rng.random_range(-1i64..3) as u64,
        Style::Small => rng.random_range(-3i64..8) as u64,
        Style::Mixed if dtype.is_float() => float_bits(dtype, mixed_float(dtype, rng)),
        Style::Mixed => mixed_int(dtype, rng) as u64,
    };
    let bits = if dtype == DType::Bool && !matches!(style, Style::Bits) { bits & 1 } else { bits };
    bits.to_le_bytes()[..dtype.bytes() as usize].to_vec()
}

fn float_bits(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::Float64 => value.to_bits(),
        DType::Float32 => u64::from((value as f32).to_bits()),
        _ => u64::from(half_bits(value, dtype)),
    }
}

fn mixed_float(dtype: DType, rng: &mut ChaCha8Rng) -> f64 {
    let (largest, smallest) = match dtype {
        DType::Float64 => (f64::MAX, 5e-324),
        DType::Float32 => (f64::from(f32::MAX), 1.4e-45),
        DType::Float16 => (65504.0, 5.96e-8),
        _ => (3.3895e38, 9.2e-41),
    };
    let sign = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
    sign * match rng.random_range(0..24) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => 0.0,
        3 => largest,
        4 => smallest,
        5 => smallest * f64::from(rng.random_range(1..2000)),
        6 => 2147483648.0,
        7 => 9223372036854775808.0,
        8 => 255.5,
        9 => 1.0,
        10 => 0.5,
        11 => rng.random::<f64>() * 700.0,
        12 => rng.random::<f64>() * 1e30,
        13 => rng.random::<f64>() * 1e-30,
        14..18 => f64::from(rng.random_range(0..40)),
        _ => rng.random::<f64>() * 4.0,
    }
}

fn mixed_int(dtype: DType, rng: &mut ChaCha8Rng) -> i64 {
    let (min, max) = dtype.int_range();
    let value = match rng.random_range(0..14) {
        0 => min,
        1 => max,
        2 => min + 1,
        3 => max / 2 + 1,
        4 => -1,
        5 => 0,
        6 | 7 => i128::from(rng.random::<i64>()),
        _ => i128::from(rng.random_range(-20..40)),
    };
    dtype.wrap(value) as i64
}

fn scalar(dtype: DType, rng: &mut ChaCha8Rng) -> Value {
    if dtype.is_float() {
        return Value::Float(dtype.round_float(mixed_float(dtype, rng)));
    }
    if dtype == DType::Bool {
        return Value::Int(rng.random_range(0..2));
    }
    Value::Int(dtype.wrap(i128::from(mixed_int(dtype, rng))))
}
