//! Candidates that pack `layout_free` inputs: the inputs are packed once, before the first
//! call, and the measured calls read them packed.

use super::super::data::{shape_of, zeros};
use super::super::measure::AlignedArgs;
use crate::diag::Result;
use crate::ir::interp::Value;
use crate::ir::{Kernel, Param, Role, Var};
use crate::module::load::LoadedKernel;

/// A kernel that reads packed inputs, with the kernels that pack them.
pub struct PackedCall {
    /// The kernel that reads packed inputs.
    kernel: Kernel,
    /// Input names, each with the kernel that packs it.
    packs: Vec<(String, Kernel, LoadedKernel)>,
    /// The arguments, once the inputs are packed.
    args: Option<AlignedArgs>,
}

impl PackedCall {
    /// Takes the kernels of a module: the names of packed inputs with the kernels that pack them,
    /// and the one that reads packed inputs.
    pub fn new(kernel: Kernel, packs: Vec<(String, Kernel, LoadedKernel)>) -> PackedCall {
        PackedCall { kernel, packs, args: None }
    }

    /// Packs the inputs of a call of `default_loops` with these values.
    pub fn pack(&mut self, default_loops: &Kernel, values: &[Value]) -> Result<()> {
        let known = || default_loops.params.iter().zip(values);
        let mut own = values.to_vec();
        for (input, kernel, code) in &self.packs {
            // Each kernel has run-time integers of its own, by the same names.
            let value_of = |param: &Param| {
                let named = known().find(|(other, _)| other.name() == param.name());
                named.map(|(_, value)| value.clone())
            };
            let vars = kernel.params.iter().filter_map(|param| match (param, value_of(param)) {
                (Param::Runtime { var, .. }, Some(Value::Index(value))) => {
                    Some((var.clone(), value))
                }
                _ => None,
            });
            let vars: Vec<(Var, i64)> = vars.collect();
            let mut args = Vec::new();
            for param in &kernel.params {
                args.push(match param {
                    Param::Tensor { buffer, role: Role::Output | Role::Inout, .. } => {
                        Value::Tensor(zeros(buffer, shape_of(buffer, &vars)?)?)
                    }
                    other => value_of(other)
                        .unwrap_or_else(|| crate::bug!("no value for {}", other.name())),
                });
            }
            let shapes = args.clone();
            let mut args = AlignedArgs::new(kernel, args);
            code.bind(args.of(kernel)).call()?;
            let results = args.results(kernel);
            let at = default_loops.params.iter().position(|param| param.name() == input);
            let packed = shapes.into_iter().zip(&kernel.params).find_map(|pair| match pair {
                (Value::Tensor(tensor), Param::Tensor { role: Role::Output | Role::Inout, .. }) => {
                    Some(tensor)
                }
                _ => None,
            });
            if let (Some(at), Some(mut packed), [bytes]) = (at, packed, &results[..]) {
                packed.data = bytes.to_vec();
                own[at] = Value::Tensor(packed);
            } else {
                crate::bug!("{} does not pack {input} of {}", kernel.name, default_loops.name)
            }
        }
        self.args = Some(AlignedArgs::new(&self.kernel, own));
        Ok(())
    }

    /// Returns the kernel and the arguments of its calls.
    pub fn call(&mut self) -> (&Kernel, &mut AlignedArgs) {
        let args = self.args.as_mut().unwrap_or_else(|| crate::bug!("nothing was packed"));
        (&self.kernel, args)
    }

    /// Returns the bytes of each output, in order.
    pub fn results(&self) -> Vec<&[u8]> {
        let args = self.args.as_ref().unwrap_or_else(|| crate::bug!("nothing was packed"));
        args.results(&self.kernel)
    }
}
