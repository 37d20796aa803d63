//! The reference interpreter: the judge of every pass and back end. It follows the comments of
//! `ir` and shares no code with the back ends.

mod code;
mod machine;
pub mod scalar;
mod translate;

use super::{DType, Kernel, Param};
use machine::Machine;

/// A tensor's elements as raw little-endian bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<i64>,
    /// `dtype.bytes()` per element, row-major.
    pub data: Vec<u8>,
}

/// An argument of a kernel, in the order of [`Kernel::params`].
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// For `Param::Tensor`; outputs come back filled.
    Tensor(Tensor),
    /// For an integer or `bool` `Param::Scalar`.
    Int(i128),
    /// For a floating-point `Param::Scalar`: a value of the declared type.
    Float(f64),
    /// For `Param::Runtime`.
    Index(i64),
}

/// Why a run stopped.
#[derive(Clone, PartialEq, Debug)]
pub enum Trap {
    /// An entry check failed, with the formatted message.
    Check(String),
    /// A bug: an index outside its buffer, a read of an element never written, an `index`
    /// overflow, an ill-typed node.
    Bug(String),
}

/// Runs the checks, then the body. On `Check` nothing was written.
pub fn run(kernel: &Kernel, args: &mut [Value]) -> Result<(), Trap> {
    let layout = translate::translate(kernel);
    let mut machine = Machine::new(&layout.program);
    if args.len() != kernel.params.len() {
        let text = format!("{} takes {} arguments", kernel.name, kernel.params.len());
        return Err(Trap::Check(text));
    }
    for ((param, value), place) in kernel.params.iter().zip(args.iter()).zip(&layout.params) {
        bind(&mut machine, param, value, *place)?;
    }
    for (dim, reg) in kernel.dims.iter().zip(&layout.dims) {
        let Value::Tensor(tensor) = &args[dim.param] else { continue };
        machine.registers[*reg as usize] = tensor.shape[dim.dim] as u64;
    }
    let [shapes_known, checked, done] = layout.marks;
    machine.run(0, shapes_known)?;
    machine.run(shapes_known, checked)?;
    check_shapes(kernel, &machine, &layout.shapes)?;
    machine.run(checked, done)?;
    for ((param, value), place) in kernel.params.iter().zip(args).zip(&layout.params) {
        if let (Param::Tensor { output: true, .. }, Value::Tensor(tensor)) = (param, value) {
            machine.read_back(*place, &mut tensor.data);
        }
    }
    Ok(())
}

fn bind(machine: &mut Machine<'_>, param: &Param, value: &Value, place: u32) -> Result<(), Trap> {
    let wrong = || Trap::Check(format!("argument `{}` has the wrong type", param.name()));
    let bits = match (param, value) {
        (Param::Tensor { buffer, output, .. }, Value::Tensor(tensor)) => {
            if tensor.dtype != buffer.dtype || tensor.shape.len() != buffer.shape.len() {
                return Err(wrong());
            }
            machine.bind_tensor(place, tensor, *output);
            return Ok(());
        }
        (Param::Scalar { dtype, .. }, Value::Int(value)) if !dtype.is_float() => {
            scalar::from_int(*value, *dtype)
        }
        (Param::Scalar { dtype, .. }, Value::Float(value)) if dtype.is_float() => {
            scalar::from_f64(*value, dtype.compute_type())
        }
        (Param::Runtime { .. }, Value::Index(value)) => *value as u64,
        _ => return Err(wrong()),
    };
    machine.registers[place as usize] = bits;
    Ok(())
}

/// The tensors have the extents that the declaration says.
fn check_shapes(
    kernel: &Kernel,
    machine: &Machine<'_>,
    shapes: &[(u32, Vec<u32>)],
) -> Result<(), Trap> {
    for (buffer, extents) in shapes {
        let actual = machine.extents(*buffer);
        let declared = extents.iter().map(|reg| machine.registers[*reg as usize] as i64);
        if !declared.clone().eq(actual.iter().copied()) {
            let name = machine.buffer_name(*buffer);
            let declared: Vec<i64> = declared.collect();
            return Err(Trap::Check(format!(
                "`{name}` of `{}` must have shape {declared:?}, got {actual:?}",
                kernel.name
            )));
        }
    }
    Ok(())
}
