//! Candidates that pack inputs whose layout is free: those are packed once, before the first call,
//! and what is measured is a call that reads them packed.

use super::super::bench::measure::AlignedArgs;
use super::super::data::{shape_of, zeros};
use crate::diag::Result;
use crate::ir::interp::Value;
use crate::ir::{Kernel, Param, Part, Var};
use crate::module::load::LoadedKernel;

/// A kernel that reads packed inputs, with what packs them.
pub struct Ahead {
    /// It.
    kernel: Kernel,
    /// Each packs the input of that name.
    packs: Vec<(String, Kernel, LoadedKernel)>,
    /// Its arguments, once the inputs are packed.
    args: Option<AlignedArgs>,
}

impl Ahead {
    /// Of lowered kernels of one module: those that pack, and the one that reads what they make.
    pub fn new(kernel: Kernel, packs: Vec<(Part, Kernel, LoadedKernel)>) -> Ahead {
        let name = |part: Part| match part {
            Part::Pack { input, .. } => input,
            Part::Prepacked { of, .. } => crate::bug!("`{of}` packs nothing"),
        };
        let packs = packs.into_iter().map(|(part, kernel, code)| (name(part), kernel, code));
        Ahead { kernel, packs: packs.collect(), args: None }
    }

    /// Packs the inputs of a call of `plain` with these values.
    pub fn pack(&mut self, plain: &Kernel, values: &[Value]) -> Result<()> {
        let known = || plain.params.iter().zip(values);
        let vars: Vec<(Var, i64)> = known()
            .filter_map(|pair| match pair {
                (Param::Runtime { var, .. }, Value::Index(value)) => Some((var.clone(), *value)),
                _ => None,
            })
            .collect();
        let mut own = values.to_vec();
        for (input, kernel, code) in &self.packs {
            let mut args = Vec::new();
            for param in &kernel.params {
                args.push(match param {
                    Param::Tensor { buffer, output: true, .. } => {
                        Value::Tensor(zeros(buffer, shape_of(buffer, &vars)?)?)
                    }
                    other => known()
                        .find(|(param, _)| param.name() == other.name())
                        .map(|(_, value)| value.clone())
                        .unwrap_or_else(|| crate::bug!("no value for {}", other.name())),
                });
            }
            let shapes = args.clone();
            let mut args = AlignedArgs::new(args);
            code.bind(args.of(kernel)).call()?;
            let results = args.results(kernel);
            let at = plain.params.iter().position(|param| param.name() == input);
            let packed = shapes.into_iter().zip(&kernel.params).find_map(|pair| match pair {
                (Value::Tensor(tensor), Param::Tensor { output: true, .. }) => Some(tensor),
                _ => None,
            });
            if let (Some(at), Some(mut packed), [bytes]) = (at, packed, &results[..]) {
                packed.data = bytes.to_vec();
                own[at] = Value::Tensor(packed);
            } else {
                crate::bug!("{} does not pack {input} of {}", kernel.name, plain.name)
            }
        }
        self.args = Some(AlignedArgs::new(own));
        Ok(())
    }

    /// The kernel, and the arguments that it is called with.
    pub fn call(&mut self) -> (&Kernel, &mut AlignedArgs) {
        let args = self.args.as_mut().unwrap_or_else(|| crate::bug!("nothing was packed"));
        (&self.kernel, args)
    }

    /// The bytes of each output, in order.
    pub fn results(&self) -> Vec<&[u8]> {
        let args = self.args.as_ref().unwrap_or_else(|| crate::bug!("nothing was packed"));
        args.results(&self.kernel)
    }
}
