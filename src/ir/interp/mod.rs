//! The reference interpreter, with which every pass and back end is compared. It follows the
//! specification in the comments of `ir` and shares no code with the back ends.
//!
//! For speed, a kernel is first compiled to linear code over registers. Loops run serially in
//! ascending order. Launches run block by block, each thread from barrier to barrier; a race is a
//! trap. Math functions that `expand_math` has not replaced are evaluated in higher precision and
//! rounded.

mod code;
mod compile;
mod launch;
mod machine;
mod race;
mod scalar;
mod sort;

use super::{ActualDim, Buffer, DType, Expr, Kernel, Param, Role, Stmt, Var};
use code::Code;
use machine::{Machine, Memory};

pub use race::Order;

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
    /// For a `Param::Scalar` of an integer type or `bool`.
    Int(i128),
    /// For a `Param::Scalar` of a floating-point type.
    Float(f64),
    /// For `Param::Runtime`.
    Index(i64),
}

/// Why a run stopped.
#[derive(Clone, PartialEq, Debug)]
pub enum Trap {
    /// An entry check failed, with the formatted message.
    Check(String),
    /// There is not enough memory for a tensor; the text names it.
    Memory(String),
    /// A bug: an index outside its buffer, a read of an element never written, an `index`
    /// overflow, an ill-typed node, a race, threads that diverge at a barrier.
    Bug(String),
}

/// Runs the checks, then the body. After `Trap::Check` nothing was written.
pub fn run(kernel: &Kernel, args: &mut [Value]) -> Result<(), Trap> {
    run_in_order(kernel, args, Order::Ascending)
}

/// Like [`run`], with blocks and threads in a given order. The order does not change the result.
pub fn run_in_order(kernel: &Kernel, args: &mut [Value], order: Order) -> Result<(), Trap> {
    let bound = bind_arguments(kernel, args)?;
    let mut in_checks = bound.clone();
    for dim in &kernel.dims {
        let Value::Tensor(tensor) = &args[dim.param] else {
            return Err(Trap::Bug(format!("{} is no tensor", kernel.params[dim.param].name())));
        };
        let extent = elements_of(kernel, dim, tensor.shape[dim.dim], &bound);
        in_checks.push((dim.var.clone(), extent as u64));
    }
    execute(kernel, &kernel.checks, &in_checks, args, order)?;
    compare_shapes(kernel, args, &bound)?;
    let body = super::empty::skip_empty_nests(kernel);
    execute(kernel, &body, &bound, args, order)
}

/// Returns the elements of a dimension that counts bytes. Two elements of 4 bits share one, of
/// which the last one may be missing if the declared extent is odd.
fn elements_of(kernel: &Kernel, dim: &ActualDim, count: i64, bound: &[(Var, u64)]) -> i64 {
    let Param::Tensor { buffer, .. } = &kernel.params[dim.param] else { return count };
    if buffer.declared_dtype().bits() >= 8 || dim.dim + 1 != buffer.shape.len() {
        return count;
    }
    let declared = std::slice::from_ref(&buffer.declared_shape()[dim.dim]);
    let (vars, values): (Vec<Var>, Vec<u64>) = bound.iter().cloned().unzip();
    let wanted = Evaluator::new(declared, &vars).and_then(|evaluator| evaluator.eval(&values));
    match wanted {
        Ok(wanted) if wanted[0] as i64 == count * 2 - 1 => count * 2 - 1,
        _ => count * 2,
    }
}

/// Scalar expressions over variables, compiled once and evaluated often. Values are registers, as
/// [`encode_int`] and [`encode_float`] make them.
pub struct Evaluator {
    code: Code,
    vars: Vec<u32>,
    results: Vec<u32>,
}

pub use scalar::{decode_float, decode_int, encode_float, encode_int};

impl Evaluator {
    /// Compiles `exprs`, which read no memory, over `vars`.
    pub fn new(exprs: &[Expr], vars: &[Var]) -> Result<Evaluator, Trap> {
        let (code, vars, results) = compile::compile_exprs(exprs, vars).map_err(Trap::Bug)?;
        Ok(Evaluator { code, vars, results })
    }

    /// Evaluates the expressions for these values of the variables.
    pub fn eval(&self, values: &[u64]) -> Result<Vec<u64>, Trap> {
        let mut machine = Machine::new(&self.code);
        for (reg, value) in self.vars.iter().zip(values) {
            machine.regs[*reg as usize] = *value;
        }
        machine.run()?;
        Ok(self.results.iter().map(|reg| machine.regs[*reg as usize]).collect())
    }
}

/// Returns the variables of scalars and run-time integers with their values. Checks types, ranks,
/// constant extents and extents that are a single run-time integer.
fn bind_arguments(kernel: &Kernel, args: &[Value]) -> Result<Vec<(Var, u64)>, Trap> {
    let failed = |text: String| Trap::Check(format!("{}: {text}", kernel.name));
    let check = |text: String| Err(failed(text));
    if args.len() != kernel.params.len() {
        return check(format!("expected {} arguments, got {}", kernel.params.len(), args.len()));
    }
    let mut bound = Vec::new();
    for (param, arg) in kernel.params.iter().zip(args) {
        match (param, arg) {
            (Param::Scalar { var, dtype }, Value::Int(value)) if !dtype.is_float() => {
                if dtype.wrap(*value) != *value {
                    return check(format!("{value} is no {dtype} (argument {})", var.name()));
                }
                bound.push((var.clone(), encode_int(*dtype, *value)));
            }
            (Param::Scalar { var, dtype }, Value::Float(value)) if dtype.is_float() => {
                let value = dtype.round_float(*value);
                bound.push((var.clone(), encode_float(dtype.compute_type(), value)));
            }
            (Param::Runtime { var, .. }, Value::Index(value)) => {
                bound.push((var.clone(), *value as u64));
            }
            (Param::Tensor { .. }, Value::Tensor(_)) => {}
            (param, _) => return check(format!("argument {} has the wrong kind", param.name())),
        }
    }
    for (param, arg) in kernel.params.iter().zip(args) {
        if let (Param::Tensor { buffer, .. }, Value::Tensor(tensor)) = (param, arg) {
            check_tensor(buffer, tensor, &bound)
                .map_err(|text| failed(format!("argument {}: {text}", buffer.name)))?;
        }
    }
    Ok(bound)
}

fn check_tensor(buffer: &Buffer, tensor: &Tensor, bound: &[(Var, u64)]) -> Result<(), String> {
    if tensor.dtype != buffer.dtype {
        return Err(format!("expected dtype {}, got {}", buffer.dtype, tensor.dtype));
    }
    if tensor.shape.len() != buffer.shape.len() {
        let (expected, got) = (buffer.shape.len(), tensor.shape.len());
        return Err(format!("expected rank {expected}, got {got}"));
    }
    let len = tensor.shape.iter().try_fold(buffer.dtype.bytes() as i64, |len, extent| {
        if *extent < 0 { None } else { len.checked_mul(*extent) }
    });
    if len != Some(tensor.data.len() as i64) {
        return Err(format!("shape {:?} does not fit the data", tensor.shape));
    }
    for (dim, (extent, actual)) in buffer.shape.iter().zip(&tensor.shape).enumerate() {
        let lone = extent.as_var().and_then(|var| bound.iter().find(|(v, _)| v == var));
        let expected = extent.as_int().or(lone.map(|(_, value)| *value as i64 as i128));
        if expected.is_some_and(|expected| expected != *actual as i128) {
            let expected = expected.expect("just tested");
            return Err(format!("expected shape[{dim}] to be {expected}, got {actual}"));
        }
    }
    Ok(())
}

/// Checks that every tensor has its declared shape.
fn compare_shapes(kernel: &Kernel, args: &[Value], bound: &[(Var, u64)]) -> Result<(), Trap> {
    let (vars, values): (Vec<Var>, Vec<u64>) = bound.iter().cloned().unzip();
    for (param, arg) in kernel.params.iter().zip(args) {
        if let (Param::Tensor { buffer, .. }, Value::Tensor(tensor)) = (param, arg) {
            let shape = Evaluator::new(&buffer.shape, &vars)?.eval(&values)?;
            let shape: Vec<i64> = shape.into_iter().map(|extent| extent as i64).collect();
            if shape != tensor.shape {
                let (name, got) = (&buffer.name, &tensor.shape);
                return Err(Trap::Bug(format!(
                    "the checks passed, but {name} has shape {got:?} instead of {shape:?}"
                )));
            }
        }
    }
    Ok(())
}

/// Runs `stmt` on the arguments and copies the outputs back.
fn execute(
    kernel: &Kernel,
    stmt: &Stmt,
    bound: &[(Var, u64)],
    args: &mut [Value],
    order: Order,
) -> Result<(), Trap> {
    if matches!(stmt, Stmt::Block(stmts) if stmts.is_empty()) {
        return Ok(());
    }
    let vars: Vec<Var> = bound.iter().map(|(var, _)| var.clone()).collect();
    let (code, regs) = compile::compile_stmt(stmt, &vars).map_err(Trap::Bug)?;
    let mut machine = Machine::new(&code);
    machine.order = order;
    for (reg, (_, value)) in regs.iter().zip(bound) {
        machine.regs[*reg as usize] = *value;
    }
    let mut outputs = Vec::new();
    for (position, (param, arg)) in kernel.params.iter().zip(args.iter()).enumerate() {
        let (Param::Tensor { buffer, role, .. }, Value::Tensor(tensor)) = (param, arg) else {
            continue;
        };
        let Some(id) = code.buffers.iter().position(|b| b == buffer) else {
            continue;
        };
        if role.is_written() {
            outputs.push((position, id));
        }
        machine.memory[id] = match role {
            Role::Output => Memory::unwritten(tensor.shape.clone()),
            Role::Input => read_tensor(tensor),
            Role::Inout => read_tensor(tensor).map(|memory| {
                let written = vec![true; memory.data.len()];
                Memory { written, ..memory }
            }),
        }
        .ok_or_else(|| no_memory(&buffer.name, &tensor.shape))?;
    }
    machine.run()?;
    for (position, id) in outputs {
        if let Value::Tensor(tensor) = &mut args[position] {
            write_tensor(&machine.memory[id], tensor);
        }
    }
    Ok(())
}

fn no_memory(name: &str, shape: &[i64]) -> Trap {
    let extents: Vec<String> = shape.iter().map(i64::to_string).collect();
    Trap::Memory(format!("no memory for `{name}[{}]`", extents.join(", ")))
}

/// Returns the elements as registers; `None` if there is not enough memory.
fn read_tensor(tensor: &Tensor) -> Option<Memory> {
    let elements = tensor.data.chunks_exact(tensor.dtype.bytes() as usize);
    let mut data = Vec::new();
    data.try_reserve_exact(elements.len()).ok()?;
    data.extend(elements.map(|raw| scalar::from_memory(tensor.dtype, raw)));
    Some(Memory { shape: tensor.shape.clone(), data, ..Memory::default() })
}

/// Copies the written elements to `tensor`; the others keep their values.
fn write_tensor(memory: &Memory, tensor: &mut Tensor) {
    let bytes = tensor.dtype.bytes() as usize;
    let elements = tensor.data.chunks_exact_mut(bytes);
    for ((element, value), written) in elements.zip(&memory.data).zip(&memory.written) {
        if *written {
            element.copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
    }
}

#[cfg(test)]
mod tests;
