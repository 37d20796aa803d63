//! Runs a network in the reference interpreter, kernel by kernel, in the order of terms of their
//! schedules.

use super::Network;
use crate::codegen::ConstantBytes;
use crate::driver::{Failure, Options, Trace, lower_in_order, lower_unoptimized};
use crate::ir::interp::{Evaluator, Tensor, Value};
use crate::ir::simplify::value_at;
use crate::ir::{Buffer, Expr, Kernel, Param, Role, Var};
use crate::network::Argument;
use rustc_hash::FxHashMap;

/// Runs a kernel on values; the outputs come back filled.
pub type Interpreter<'a, E> = dyn FnMut(&Kernel, Vec<Value>) -> Result<Vec<Value>, E> + 'a;

impl Network {
    /// Returns the whole network as one kernel in the order of the source, and its arguments for
    /// those of the entry: it takes the params as inputs.
    pub fn whole_kernel(
        &self,
        options: &Options,
        values: &[Value],
    ) -> Result<(Kernel, Vec<Value>), Failure> {
        let kernel = lower_unoptimized(&self.graph, &options.target)?;
        let entry = &self.code.entry.params;
        let value = |param: &Param| match param {
            Param::Tensor { buffer, role: Role::Input, .. } if self.params.contains_key(buffer) => {
                Value::Tensor(constant(buffer, &self.params[buffer]))
            }
            param => {
                let at = entry.iter().position(|own| own.name() == param.name());
                values[at.expect("a parameter of the entry")].clone()
            }
        };
        let values = kernel.params.iter().map(value).collect();
        Ok((kernel, values))
    }

    /// Runs the calls one after the other. Returns the values of the entry with the outputs.
    pub fn interpret_calls<E: From<Failure>>(
        &self,
        options: &Options,
        values: &[Value],
        run: &mut Interpreter<'_, E>,
    ) -> Result<Vec<Value>, E> {
        let mut state = State::default();
        let entry = &self.code.entry.params;
        for (param, value) in entry.iter().zip(values) {
            match (param, value) {
                (Param::Tensor { buffer, role, .. }, Value::Tensor(tensor)) if role.is_read() => {
                    state.tensors.insert(buffer.clone(), tensor.clone());
                }
                (Param::Scalar { var, .. } | Param::Runtime { var, .. }, value) => {
                    state.numbers.insert(var.clone(), value.clone());
                }
                _ => {}
            }
        }
        let params = self.params.iter();
        state
            .tensors
            .extend(params.map(|(buffer, bytes)| (buffer.clone(), constant(buffer, bytes))));
        if let Some(fold) = &self.fold {
            let kernel = lower_unoptimized(fold, &options.target)?;
            let inputs = fold.inputs.iter().filter_map(super::tensor_of);
            let tensors = inputs.chain(&fold.outputs).cloned();
            let arguments: Vec<Argument> = tensors.map(Argument::Tensor).collect();
            state.call(&kernel, &arguments, run)?;
        }
        let trace = &mut Trace::default();
        for call in &self.planned.plan.calls {
            let kernel = lower_in_order(&self.kernels[call.kernel].bounded, options, trace)?;
            state.call(&kernel, &call.arguments, run)?;
        }
        let outputs = entry.iter().zip(values).map(|(param, value)| match param {
            Param::Tensor { buffer, role: Role::Output | Role::Inout, .. } => {
                let shape = match value {
                    Value::Tensor(tensor) => tensor.shape.clone(),
                    _ => Vec::new(),
                };
                Value::Tensor(Tensor { shape, ..state.tensors[buffer].clone() })
            }
            _ => value.clone(),
        });
        Ok(outputs.collect())
    }
}

/// The tensors and numbers of a network, by the names of the network.
#[derive(Default)]
struct State {
    tensors: FxHashMap<Buffer, Tensor>,
    numbers: FxHashMap<Var, Value>,
}

impl State {
    /// Runs a kernel, which may take the tensors of the network in other shapes.
    fn call<E>(
        &mut self,
        kernel: &Kernel,
        arguments: &[Argument],
        run: &mut Interpreter<'_, E>,
    ) -> Result<(), E> {
        let numbers: Vec<(Var, i64)> = (kernel.params.iter().zip(arguments))
            .filter_map(|(param, argument)| match (param, argument) {
                (Param::Runtime { var, .. }, Argument::Integer(of)) => {
                    Some((var.clone(), self.integer(of)))
                }
                _ => None,
            })
            .collect();
        let value = |(param, argument): (&Param, &Argument)| match (param, argument) {
            (Param::Tensor { buffer, role, .. }, Argument::Tensor(of)) => {
                let shape = shape_of(buffer, &numbers);
                let elements = shape.iter().product::<i64>() as u64;
                let data = match role.is_read() {
                    false => vec![0; (elements * buffer.dtype.bytes()) as usize],
                    true => self.tensors[of].data.clone(),
                };
                Value::Tensor(Tensor { dtype: buffer.dtype, shape, data })
            }
            (_, Argument::Scalar(var)) => self.numbers[var].clone(),
            (_, Argument::Integer(of)) => Value::Index(self.integer(of)),
            (param, Argument::Tensor(of)) => {
                crate::bug!("the tensor {} for {}", of.name, param.name())
            }
        };
        let values = kernel.params.iter().zip(arguments).map(value).collect();
        let values = run(kernel, values)?;
        for ((param, argument), value) in kernel.params.iter().zip(arguments).zip(values) {
            if let (
                Param::Tensor { role: Role::Output | Role::Inout, .. },
                Argument::Tensor(of),
                Value::Tensor(made),
            ) = (param, argument, value)
            {
                self.tensors.insert(of.clone(), made);
            }
        }
        Ok(())
    }
}

impl State {
    /// Evaluates an expression of the integers of the network.
    fn integer(&self, value: &Expr) -> i64 {
        let known = |var: &Var| match self.numbers.get(var) {
            Some(Value::Index(value)) => Some(*value),
            _ => None,
        };
        value_at(value, &known)
            .unwrap_or_else(|| crate::bug!("an argument of a kernel has no value"))
    }
}

/// The extents of a tensor for these values of run-time integers.
fn shape_of(buffer: &Buffer, numbers: &[(Var, i64)]) -> Vec<i64> {
    let (vars, values): (Vec<Var>, Vec<u64>) =
        numbers.iter().map(|(var, value)| (var.clone(), *value as u64)).unzip();
    let shape = Evaluator::new(&buffer.shape, &vars)
        .and_then(|evaluator| evaluator.eval(&values))
        .unwrap_or_else(|trap| crate::bug!("the shape of {}: {trap:?}", buffer.name));
    shape.into_iter().map(|extent| extent as i64).collect()
}

/// Returns the elements of a constant as a tensor.
pub(super) fn constant(buffer: &Buffer, bytes: &ConstantBytes) -> Tensor {
    let extent = |extent: &crate::ir::Expr| extent.as_int().expect("a constant shape") as i64;
    let shape = buffer.shape.iter().map(extent).collect();
    Tensor { dtype: buffer.dtype, shape, data: (**bytes).as_ref().to_vec() }
}
