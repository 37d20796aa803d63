//! What several tests need: programs in memory, arguments with special values, modules in this
//! process, comparison of results.

#![allow(dead_code)]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use tec::driver::{self, Failure, Options, Trace};
use tec::ir::interp::{Evaluator, Tensor, Value};
use tec::ir::{DType, Kernel, Param, Var};
use tec::lang::Loader;
use tec::module::load::{Arg, LoadedModule};
use tec::module::{BuildInfo, KernelInfo, ModuleKind};
use tec::te::Graph;

/// One file, `NAME`, that exists in memory only.
pub struct Memory<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl Loader for Memory<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path == self.name {
            true => Ok(self.text.as_bytes().to_vec()),
            false => Err("no such file".to_string()),
        }
    }
}

/// The text of a failure.
pub fn failure_text(failure: &Failure) -> String {
    match failure {
        Failure::User(diags) => {
            let texts = diags.iter().map(|diag| format!("{diag} {:?}", diag.notes));
            texts.collect::<Vec<_>>().join("\n")
        }
        Failure::Bug { pass, message, ir } => format!("bug in {pass}: {message}\n{ir}"),
    }
}

/// The graphs of a program's kernels.
pub fn elaborate(text: &str, options: &Options) -> Result<Vec<Graph>, Failure> {
    let mut trace = Trace::default();
    let memory = Memory { name: "test.te", text };
    let program = driver::load("test.te", &memory, &mut trace).map_err(|(_, failure)| failure)?;
    driver::elaborate(&program, options, &mut trace)
}

/// A module of one lowered kernel, loaded.
pub fn load_native(
    graph: &Graph,
    kernel: &Kernel,
    options: &Options,
) -> Result<LoadedModule, Failure> {
    let mut trace = Trace::default();
    let info = KernelInfo {
        parameters: graph.params.clone(),
        schedule: "default".to_string(),
        work: driver::count_work(graph)?,
    };
    let info = BuildInfo {
        module: "test".to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: Vec::new(),
        kernels: vec![info],
    };
    let kernels = std::slice::from_ref(kernel);
    let built = driver::build(kernels, &info, ModuleKind::SharedObject, &mut trace)?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("test.so");
    std::fs::write(&path, built.bytes).expect("the module can be written");
    Ok(LoadedModule::open(Path::new(&path))?)
}

/// Arguments of a kernel for these values of its run-time integers. Inputs are random, special
/// values among them; outputs are filled with a pattern. `small` names inputs of small integers.
pub fn make_args(
    kernel: &Kernel,
    value_of: &dyn Fn(&str) -> i64,
    small: &dyn Fn(&str) -> bool,
    seed: u64,
) -> Vec<Value> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let vars: Vec<Var> = kernel
        .params
        .iter()
        .filter_map(|param| match param {
            Param::Runtime { var, .. } => Some(var.clone()),
            _ => None,
        })
        .collect();
    let values: Vec<u64> = vars.iter().map(|var| value_of(var.name()) as u64).collect();
    let params = kernel.params.iter();
    params
        .map(|param| match param {
            Param::Tensor { buffer, output, .. } => {
                let shape = Evaluator::new(&buffer.shape, &vars).expect("a shape compiles");
                let shape = shape.eval(&values).expect("a shape has a value");
                let shape: Vec<i64> = shape.into_iter().map(|extent| extent as i64).collect();
                let small = small(&buffer.name);
                Value::Tensor(random_tensor(buffer.dtype, shape, *output, small, &mut random))
            }
            Param::Scalar { dtype, .. } => {
                let element = random_element(*dtype, false, &mut random);
                match dtype {
                    _ if dtype.is_float() => Value::Float(float_of(*dtype, element)),
                    _ => Value::Int(dtype.wrap(element.into())),
                }
            }
            Param::Runtime { var, .. } => Value::Index(value_of(var.name())),
        })
        .collect()
}

fn random_tensor(
    dtype: DType,
    shape: Vec<i64>,
    output: bool,
    small: bool,
    random: &mut ChaCha8Rng,
) -> Tensor {
    let count = shape.iter().map(|extent| (*extent).max(0)).product::<i64>() as usize;
    let bytes = dtype.bytes() as usize;
    let mut data = Vec::with_capacity(count * bytes);
    for _ in 0..count {
        let element = if output { 0xa5 } else { random_element(dtype, small, random) };
        data.extend_from_slice(&element.to_le_bytes()[..bytes]);
    }
    Tensor { dtype, shape, data }
}

/// The value of an element's bits.
pub fn float_of(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::Float64 => f64::from_bits(bits),
        DType::Float32 => f32::from_bits(bits as u32).into(),
        DType::Float16 => half::f16::from_bits(bits as u16).to_f64(),
        _ => half::bf16::from_bits(bits as u16).to_f64(),
    }
}

/// The bits of an element: often a special value, sometimes any bits, else a moderate number.
fn random_element(dtype: DType, small: bool, random: &mut ChaCha8Rng) -> u64 {
    if dtype == DType::Bool {
        return random.random_range(0..2);
    }
    if !dtype.is_float() {
        let value: i128 = match random.random_range(0..8) {
            _ if small => random.random_range(0..2),
            0 => dtype.int_range().0,
            1 => dtype.int_range().1,
            2 => random.random::<u64>().into(),
            _ => random.random_range(-9..10),
        };
        return dtype.wrap(value) as u64;
    }
    if random.random_range(0..10) == 0 {
        // Any bits, but of a quiet NaN: what a signalling one becomes is nobody's promise.
        let bits = random.random::<u64>() & (u64::MAX >> (64 - dtype.bits()));
        return if float_of(dtype, bits).is_nan() { nan_bits(dtype) } else { bits };
    }
    const SPECIAL: [f64; 12] =
        [0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, -1e-40, 1e-310, 6e-8, 65504.0, 3e38, 1e300];
    let value = match random.random_range(0..12) {
        0 => return nan_bits(dtype),
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => SPECIAL[random.random_range(0..SPECIAL.len())],
        4 => f64::from(random.random_range(-4..5)),
        _ => (random.random::<f64>() - 0.5) * 20.0,
    };
    match dtype {
        DType::Float64 => value.to_bits(),
        DType::Float32 => (value as f32).to_bits().into(),
        DType::Float16 => half::f16::from_f64(value).to_bits().into(),
        _ => half::bf16::from_f64(value).to_bits().into(),
    }
}

fn nan_bits(dtype: DType) -> u64 {
    match dtype {
        DType::Float64 => f64::NAN.to_bits(),
        DType::Float32 => f32::NAN.to_bits().into(),
        DType::Float16 => half::f16::NAN.to_bits().into(),
        _ => half::bf16::NAN.to_bits().into(),
    }
}

/// The arguments of a checked entry: all but the run-time integers that a shape gives.
pub fn call_args<'a>(kernel: &Kernel, values: &'a mut [Value]) -> Vec<Arg<'a>> {
    let pairs = kernel.params.iter().zip(values);
    pairs
        .filter_map(|(param, value)| match (param, value) {
            (Param::Tensor { output, .. }, Value::Tensor(tensor)) => Some(if *output {
                Arg::Output(tensor.dtype, &tensor.shape, &mut tensor.data)
            } else {
                Arg::Input(tensor.dtype, &tensor.shape, &tensor.data)
            }),
            (Param::Scalar { dtype, .. }, Value::Int(value)) => Some(match dtype {
                DType::Bool => Arg::Bool(*value != 0),
                DType::Uint64 => Arg::Uint(*value as u64),
                _ => Arg::Int(*value as i64),
            }),
            (Param::Scalar { .. }, Value::Float(value)) => Some(Arg::Float(*value)),
            (Param::Runtime { source: None, .. }, Value::Index(value)) => Some(Arg::Int(*value)),
            _ => None,
        })
        .collect()
}

/// Where two sets of arguments differ first, bit for bit; any NaN equals any NaN.
pub fn first_difference(kernel: &Kernel, a: &[Value], b: &[Value]) -> Option<String> {
    for (param, (a, b)) in kernel.params.iter().zip(a.iter().zip(b)) {
        let (Value::Tensor(a), Value::Tensor(b)) = (a, b) else { continue };
        let bytes = a.dtype.bytes() as usize;
        let elements = a.data.chunks_exact(bytes).zip(b.data.chunks_exact(bytes));
        for (position, (x, y)) in elements.enumerate() {
            let bits = |raw: &[u8]| {
                let mut wide = [0; 8];
                wide[..bytes].copy_from_slice(raw);
                u64::from_le_bytes(wide)
            };
            let (x, y) = (bits(x), bits(y));
            let nan = |bits| a.dtype.is_float() && float_of(a.dtype, bits).is_nan();
            if x != y && !(nan(x) && nan(y)) {
                let show = |bits| match a.dtype {
                    _ if a.dtype.is_float() => format!("{:?}", float_of(a.dtype, bits)),
                    _ => a.dtype.wrap(bits.into()).to_string(),
                };
                return Some(format!(
                    "{}[{position}] of {:?}: {} ({x:#x}) and {} ({y:#x})",
                    param.name(),
                    a.shape,
                    show(x),
                    show(y)
                ));
            }
        }
    }
    None
}
