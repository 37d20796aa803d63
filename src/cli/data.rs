//! Values for kernels that run from the command line: run-time integers, random tensors, and the
//! comparison and summary of results.

use super::cpu;
use super::report::Error;
use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::fp8;
use crate::ir::interp::{Tensor, Value};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{Buffer, DType, Expr, Kernel, Param, Role, Source, Var};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The arguments given on the command line; tensors are read, scalars are as written.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `--input A=a.npy`, read.
    pub tensors: Vec<(String, Tensor)>,
    /// `--var n=100`.
    pub vars: Vec<(String, i64)>,
    /// `--scalar alpha=0.5`.
    pub scalars: Vec<(String, String)>,
    /// `--seed`.
    pub seed: u64,
}

/// Returns the values of the run-time integers; every tensor has a valid size with them.
pub fn find_sizes(kernel: &Kernel, given: &Given) -> Result<Vec<(Var, i64)>> {
    let vars = find_vars(kernel, given)?;
    tensor_bytes(kernel, &vars)?;
    Ok(vars)
}

/// Returns the size of all tensors, in bytes.
fn tensor_bytes(kernel: &Kernel, vars: &[(Var, i64)]) -> Result<u64> {
    let mut bytes = 0;
    for param in &kernel.params {
        let Param::Tensor { buffer, .. } = param else { continue };
        bytes += count_elements(&shape_of(buffer, vars)?) * buffer.dtype.bytes();
    }
    Ok(bytes)
}

/// Refuses arguments of which `copies` copies need more memory than is free: the system would kill
/// the process later.
pub fn check_memory(kernel: &Kernel, given: &Given, copies: u64) -> Result<()> {
    let bytes = tensor_bytes(kernel, &find_vars(kernel, given)?)?.saturating_mul(copies);
    let Some(free) = cpu::available_memory().filter(|free| *free < bytes) else { return Ok(()) };
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    let times = if copies > 1 { format!("{copies} times ") } else { String::new() };
    let text = format!(
        "{times}the arguments of `{}` take {:.1} GB, and {:.1} GB of memory are free",
        kernel.name,
        gigabytes(bytes),
        gigabytes(free)
    );
    Err(Box::new(Diag::global("E0543", text).help("give smaller sizes, with `-D` or `--var`")))
}

/// Returns the arguments of `kernel` in the order of its parameters; outputs are zero.
pub fn make_args(kernel: &Kernel, given: &Given) -> Result<Vec<Value>> {
    check_memory(kernel, given, 1)?;
    let vars = find_vars(kernel, given)?;
    let mut random = ChaCha8Rng::seed_from_u64(given.seed);
    let mut args = Vec::new();
    for param in &kernel.params {
        args.push(match param {
            Param::Tensor { buffer, role, .. } => {
                let shape = shape_of(buffer, &vars)?;
                let known = given.tensors.iter().find(|(name, _)| *name == buffer.name);
                Value::Tensor(match known {
                    Some((_, tensor)) if tensor.shape == shape => tensor.clone(),
                    Some((_, tensor)) => {
                        let text = format!(
                            "`{}` has shape {shape:?}, but the array in its file has {:?}",
                            buffer.name, tensor.shape
                        );
                        return Err(Box::new(Diag::global("E0542", text)));
                    }
                    None if *role == Role::Output => zeros(buffer, shape)?,
                    None => random_tensor(buffer, shape, &mut random)?,
                })
            }
            Param::Scalar { var, dtype } => scalar_value(var, *dtype, given, &mut random)?,
            Param::Runtime { var, .. } => {
                let value = vars.iter().find(|(known, _)| known == var);
                Value::Index(value.expect("find_vars gives every one").1)
            }
        });
    }
    Ok(args)
}

/// Calls a kernel. Where random integers are no indices, because a tensor has fewer than 100 rows,
/// halves their range until they are, and adds them to `given`. A call that is refused has written
/// nothing.
pub fn call_with_indices(
    kernel: &Kernel,
    given: &mut Given,
    values: &mut [Value],
    mut call: impl FnMut(&Given, &mut [Value]) -> std::result::Result<(), Error>,
) -> std::result::Result<(), Error> {
    let mut result = call(given, values);
    for (at, param) in kernel.params.iter().enumerate() {
        let Some(wrong) = result.as_ref().err().and_then(indexed_tensor) else { break };
        let Some(buffer) = random_integers(param, given) else { continue };
        let Value::Tensor(original) = values[at].clone() else { continue };
        let mut fits = false;
        for range in [50, 25, 12, 6, 3, 2, 1] {
            let mut tensor = original.clone();
            let low_bytes = tensor.data.iter_mut().step_by(buffer.dtype.bytes() as usize);
            low_bytes.for_each(|low| *low %= range);
            values[at] = Value::Tensor(tensor.clone());
            given.tensors.push((buffer.name.clone(), tensor));
            result = call(given, values);
            fits = result.as_ref().err().and_then(indexed_tensor).as_ref() != Some(&wrong);
            if fits {
                break;
            }
            given.tensors.pop();
        }
        if !fits {
            values[at] = Value::Tensor(original);
        }
    }
    result
}

/// The buffer of an input of integers that is not given.
pub fn random_integers<'k>(param: &'k Param, given: &Given) -> Option<&'k Buffer> {
    let Param::Tensor { buffer, role: Role::Input, .. } = param else { return None };
    let dtype = buffer.declared_dtype();
    let is_given = given.tensors.iter().any(|(name, _)| *name == buffer.name);
    (!is_given && dtype.is_int() && dtype.bits() >= 8).then_some(buffer)
}

/// Returns the dimension and the tensor that a call has no index for.
fn indexed_tensor(error: &Error) -> Option<String> {
    let Error::Plain(diag) = error else { return None };
    let (tensor, value) = diag.message.split_once("` is ")?;
    let is_index = diag.code == "E0525" && value.contains("but the extent is");
    is_index.then(|| tensor.to_string())
}

/// Refuses a given tensor whose rank is not that of the parameter; its shape would give no extents.
fn check_ranks(kernel: &Kernel, given: &Given) -> Result<()> {
    for param in &kernel.params {
        let Param::Tensor { buffer, .. } = param else { continue };
        let named = given.tensors.iter().find(|(name, _)| *name == buffer.name);
        let Some((name, tensor)) = named else { continue };
        let (own, found) = (buffer.shape.len(), tensor.shape.len());
        if own != found {
            let plural = if own == 1 { "" } else { "s" };
            let shape = &tensor.shape;
            let text = format!(
                "`{name}` has {own} dimension{plural}, but the array in its file has {found}: \
                 shape {shape:?}"
            );
            return Err(Box::new(Diag::global("E0542", text)));
        }
    }
    Ok(())
}

/// Values of the run-time integers, from `--var` or from the shapes of given tensors.
fn find_vars(kernel: &Kernel, given: &Given) -> Result<Vec<(Var, i64)>> {
    check_ranks(kernel, given)?;
    let mut vars = Vec::new();
    for param in &kernel.params {
        let Param::Runtime { var, source } = param else { continue };
        if matches!(source, Some(Source::Stride(..))) {
            continue;
        }
        let named = given.vars.iter().find(|(name, _)| name == var.name()).map(|(_, value)| *value);
        let from_shape = kernel.params.iter().find_map(|param| {
            let Param::Tensor { buffer, .. } = param else { return None };
            let (_, tensor) = given.tensors.iter().find(|(name, _)| *name == buffer.name)?;
            let declared = buffer.declared_shape();
            let dim = declared.iter().position(|extent| extent.as_var() == Some(var))?;
            // The last dimension counts bytes of two elements.
            let halved = buffer.declared_dtype().bits() < 8 && dim + 1 == declared.len();
            tensor.shape.get(dim)?.checked_mul(if halved { 2 } else { 1 })
        });
        let Some(value) = named.or(from_shape) else {
            let name = var.name();
            let text = format!("`{}` needs a value for its run-time integer `{name}`", kernel.name);
            let help = format!("give it with `--var {name}=100`");
            return Err(Box::new(Diag::global("E0543", text).help(help)));
        };
        vars.push((var.clone(), value));
    }
    // The arguments that commands make are contiguous.
    for param in &kernel.params {
        let Param::Runtime { var, source: Some(Source::Stride(at, dim)) } = param else { continue };
        let Param::Tensor { buffer, .. } = &kernel.params[*at] else { continue };
        let shape = shape_of(buffer, &vars)?;
        vars.push((var.clone(), shape[dim + 1..].iter().product()));
    }
    Ok(vars)
}

/// The largest extent, and the largest size of a tensor in bytes, that a command accepts.
const MAX_SIZE: i128 = 1 << 40;

/// Returns the extents of a tensor for these values of the run-time integers.
pub fn shape_of(buffer: &Buffer, vars: &[(Var, i64)]) -> Result<Vec<i64>> {
    let mut shape = Vec::new();
    for extent in &buffer.shape {
        let value = substitute(extent, &mut |var| {
            vars.iter().find(|(known, _)| known == var).map(|(_, value)| Expr::index(*value))
        });
        let value = simplify_expr(&value, &Facts::new());
        match value.as_int() {
            Some(extent) if (0..=MAX_SIZE).contains(&extent) => shape.push(extent as i64),
            Some(extent) => {
                let text = format!("an extent of `{}` would be {extent}", buffer.name);
                return Err(Box::new(Diag::global("E0543", text)));
            }
            // Simplification keeps an operation whose result does not fit.
            None => {
                let text = format!("an extent of `{}` overflows", buffer.name);
                return Err(Box::new(Diag::global("E0543", text)));
            }
        }
    }
    let bytes = buffer.dtype.bytes() as i128;
    let bytes = shape.iter().try_fold(bytes, |bytes, extent| bytes.checked_mul(*extent as i128));
    let is_empty = shape.contains(&0);
    if !is_empty && bytes.is_none_or(|bytes| bytes > MAX_SIZE) {
        let text = format!("`{}` of shape {shape:?} is too large to run", buffer.name);
        return Err(Box::new(Diag::global("E0543", text)));
    }
    Ok(shape)
}

/// Returns the number of elements of a shape. The product of the other extents may overflow if one
/// is 0.
fn count_elements(shape: &[i64]) -> u64 {
    if shape.contains(&0) { 0 } else { shape.iter().product::<i64>() as u64 }
}

fn scalar_value(var: &Var, dtype: DType, given: &Given, random: &mut ChaCha8Rng) -> Result<Value> {
    let name = var.name();
    let Some((_, text)) = given.scalars.iter().find(|(known, _)| known == name) else {
        return Ok(match dtype {
            _ if dtype.is_float() => Value::Float(round_to(dtype, random.random::<f64>())),
            DType::Bool => Value::Int(random.random_range(0..2)),
            _ => Value::Int(random.random_range(0..100)),
        });
    };
    let wrong = || {
        let text = format!("`{text}` is not a value of the {dtype} scalar `{name}`");
        Box::new(Diag::global("E0543", text))
    };
    if dtype.is_float() {
        return Ok(Value::Float(round_to(dtype, text.parse::<f64>().map_err(|_| wrong())?)));
    }
    let value: i128 = match (dtype, &text[..]) {
        (DType::Bool, "true") => 1,
        (DType::Bool, "false") => 0,
        _ => text.parse().map_err(|_| wrong())?,
    };
    let (min, max) = dtype.int_range();
    if (min..=max).contains(&value) { Ok(Value::Int(value)) } else { Err(wrong()) }
}

fn round_to(dtype: DType, value: f64) -> f64 {
    Expr::float(dtype, value).as_float().expect("a float constant")
}

/// Returns a tensor of zeros for `buffer`.
pub fn zeros(buffer: &Buffer, shape: Vec<i64>) -> Result<Tensor> {
    let bytes = (count_elements(&shape) * buffer.dtype.bytes()) as usize;
    let mut data = Vec::new();
    // The limit of the process may be lower than the free memory of the system.
    if data.try_reserve_exact(bytes).is_err() {
        let text = format!("no memory for `{}` of shape {shape:?}, {bytes} bytes", buffer.name);
        let help = "give smaller sizes, with `-D` or `--var`";
        return Err(Box::new(Diag::global("E0543", text).help(help)));
    }
    data.resize(bytes, 0);
    Ok(Tensor { dtype: buffer.dtype, data, shape })
}

/// Returns a random tensor: floats uniform in [0, 1), integers from 0 to 99, those of 4 bits of all
/// values.
fn random_tensor(buffer: &Buffer, shape: Vec<i64>, random: &mut ChaCha8Rng) -> Result<Tensor> {
    let dtype = buffer.declared_dtype();
    let mut tensor = zeros(buffer, shape)?;
    for element in tensor.data.chunks_exact_mut(dtype.bytes() as usize) {
        match dtype {
            DType::Float64 => element.copy_from_slice(&random.random::<f64>().to_le_bytes()),
            DType::Float32 => element.copy_from_slice(&random.random::<f32>().to_le_bytes()),
            DType::Float16 => {
                let value = half::f16::from_f32(random.random::<f32>());
                element.copy_from_slice(&value.to_le_bytes());
            }
            DType::BFloat16 => {
                let value = half::bf16::from_f32(random.random::<f32>());
                element.copy_from_slice(&value.to_le_bytes());
            }
            DType::Bool => element[0] = random.random_range(0..2),
            DType::Int4 | DType::Uint4 => element[0] = random.random(),
            DType::Float8E4M3 | DType::Float8E5M2 => {
                element[0] = fp8::bits(random.random::<f64>(), dtype);
            }
            _ => element[0] = random.random_range(0..100),
        }
    }
    Ok(tensor)
}

/// Returns the value of an element; integers beyond 2^53 are rounded.
pub fn element(tensor: &Tensor, index: usize) -> f64 {
    let size = tensor.dtype.bytes() as usize;
    let mut bits = [0u8; 8];
    bits[..size].copy_from_slice(&tensor.data[index * size..][..size]);
    let bits = u64::from_le_bytes(bits);
    match tensor.dtype {
        DType::Float64 => f64::from_bits(bits),
        DType::Float32 => f32::from_bits(bits as u32) as f64,
        DType::Float16 => half::f16::from_bits(bits as u16).to_f64(),
        DType::BFloat16 => half::bf16::from_bits(bits as u16).to_f64(),
        dtype @ (DType::Float8E4M3 | DType::Float8E5M2) => fp8::value(bits as u8, dtype),
        dtype => dtype.wrap(bits as i128) as f64,
    }
}

/// Returns one line about a tensor: type, shape, minimum, maximum, mean.
pub fn summary(name: &str, tensor: &Tensor) -> String {
    let extents: Vec<String> = tensor.shape.iter().map(i64::to_string).collect();
    let head = format!("{name}: {}[{}]", tensor.dtype, extents.join(", "));
    let count = tensor.data.len() / tensor.dtype.bytes() as usize;
    if count == 0 {
        return format!("{head}  empty");
    }
    let values = || (0..count).map(|index| element(tensor, index));
    let nans = values().filter(|value| value.is_nan()).count();
    let min = values().fold(f64::INFINITY, f64::min);
    let max = values().fold(f64::NEG_INFINITY, f64::max);
    let mean = values().sum::<f64>() / count as f64;
    if nans == count {
        return format!("{head}  all NaN");
    }
    let nans = if nans > 0 { format!("  {nans} NaN") } else { String::new() };
    let is_float = tensor.dtype.is_float();
    let [min, max] = [min, max].map(|value| match is_float {
        true => number(value),
        false => format!("{value:.0}"),
    });
    format!("{head}  min {min}  max {max}  mean {}{nans}", number(mean))
}

/// Six decimals, or an exponent where they would show few digits of the number, or too many.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-3..1e9).contains(&value.abs());
    if plain { format!("{value:.6}") } else { format!("{value:.6e}") }
}

/// Returns the outputs among a kernel's arguments, with their names.
pub fn outputs<'a>(
    kernel: &'a Kernel,
    values: &'a [Value],
) -> impl Iterator<Item = (&'a str, &'a Tensor)> {
    kernel.params.iter().zip(values).filter_map(|(param, value)| match (param, value) {
        (Param::Tensor { buffer, role: Role::Output | Role::Inout, .. }, Value::Tensor(tensor)) => {
            Some((buffer.name.as_str(), tensor))
        }
        _ => None,
    })
}

/// Returns a line about each output.
pub fn summaries(kernel: &Kernel, values: &[Value]) -> String {
    let outputs = kernel.params.iter().zip(values).filter(|(param, _)| param.is_written());
    let line = |(param, value): (&Param, &Value)| match (param, value) {
        (Param::Tensor { buffer, .. }, Value::Tensor(tensor)) => {
            Some(summary(&buffer.name, &elements_of(buffer, tensor)) + "\n")
        }
        _ => None,
    };
    outputs.filter_map(line).collect()
}

/// Returns the elements of an argument of a quantized type, one in a byte; a half byte behind the
/// last element is one of them.
fn elements_of(buffer: &Buffer, tensor: &Tensor) -> Tensor {
    let dtype = buffer.declared_dtype();
    let mut tensor = Tensor { dtype, ..tensor.clone() };
    if dtype.bits() < 8 {
        tensor.data = tensor.data.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
        if let Some(last) = tensor.shape.last_mut() {
            *last *= 2;
        }
    }
    tensor
}

/// How two results differ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Elements whose bits differ (any NaN equals any NaN).
    pub elements: usize,
    /// Largest absolute difference.
    pub absolute: f64,
    /// Largest distance, in ULP (floats) or units (integers).
    pub ulp: f64,
}

/// Compares two tensors of one type and shape.
pub fn compare(actual: &Tensor, expected: &Tensor) -> Difference {
    let mut difference = Difference::default();
    let size = actual.dtype.bytes() as usize;
    let pairs = actual.data.chunks_exact(size).zip(expected.data.chunks_exact(size));
    for (index, (a, b)) in pairs.enumerate() {
        if a == b {
            continue;
        }
        let (x, y) = (element(actual, index), element(expected, index));
        if x.is_nan() && y.is_nan() {
            continue;
        }
        difference.elements += 1;
        difference.absolute = difference.absolute.max((x - y).abs());
        difference.ulp = difference.ulp.max(ulp_distance(actual.dtype, a, b));
    }
    difference
}

/// Counts the elements that differ by more than `bound` times the same element of `scale`.
pub fn beyond(actual: &Tensor, expected: &Tensor, scale: &Tensor, bound: f64) -> usize {
    let count = actual.data.len() / actual.dtype.bytes() as usize;
    let far = |index: &usize| {
        let (x, y) = (element(actual, *index), element(expected, *index));
        let near = (x - y).abs() <= bound * element(scale, *index).abs();
        !(near || x == y || x.is_nan() && y.is_nan())
    };
    (0..count).filter(far).count()
}

/// Counts the elements that differ by more than `bound` times the largest finite magnitude in
/// `expected`. Integers must be equal.
pub fn beyond_largest(actual: &Tensor, expected: &Tensor, bound: f64) -> usize {
    let count = expected.data.len() / expected.dtype.bytes() as usize;
    let magnitudes = (0..count).map(|at| element(expected, at).abs());
    let largest = magnitudes.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let bound = if expected.dtype.is_float() { bound * largest } else { 0.0 };
    beyond(actual, expected, &ones(expected), bound)
}

/// Returns a tensor of ones, a scale for [`beyond`].
pub fn ones(tensor: &Tensor) -> Tensor {
    let count = tensor.data.len() / tensor.dtype.bytes() as usize;
    Tensor { dtype: DType::Bool, shape: tensor.shape.clone(), data: vec![1; count] }
}

/// Returns the absolute values of floats; integers are copied.
pub fn absolute(values: &[Value]) -> Vec<Value> {
    let tensor = |tensor: &Tensor| {
        let mut tensor = tensor.clone();
        if tensor.dtype.is_float() {
            let size = tensor.dtype.bytes() as usize;
            tensor.data.chunks_exact_mut(size).for_each(|bytes| bytes[size - 1] &= 0x7f);
        }
        tensor
    };
    let value = |value: &Value| match value {
        Value::Tensor(one) => Value::Tensor(tensor(one)),
        Value::Float(one) => Value::Float(one.abs()),
        other => other.clone(),
    };
    values.iter().map(value).collect()
}

fn ulp_distance(dtype: DType, a: &[u8], b: &[u8]) -> f64 {
    let order = |bytes: &[u8]| {
        let mut wide = [0u8; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide) as i128;
        let sign = 1i128 << (dtype.bits() - 1);
        match dtype {
            _ if dtype.is_float() && bits & sign != 0 => -(bits & !sign),
            _ if dtype.is_float() => bits,
            _ => dtype.wrap(bits),
        }
    };
    (order(a) - order(b)).unsigned_abs() as f64
}
