//! The constants of a network: folded stages and packed inputs, computed while building by compiled
//! code.

use super::Scheduled;
use crate::codegen::ConstantBytes;
use crate::diag::Diag;
use crate::driver::{Failure, Options, Trace, build, lower};
use crate::ir::cost::Work;
use crate::ir::{Buffer, Expr, Kernel, Param};
use crate::module::load::{Arg, LoadedModule};
use crate::module::{BuildInfo, KernelInfo, ModuleKind};
use crate::network::{Argument, Plan, fold};
use crate::schedule::{Schedule, infer_bounds};
use crate::target::{Os, Target};
use crate::te::{Graph, Input};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The constants of a network.
pub(super) struct Constants {
    /// The elements of each param and of each folded stage.
    pub(super) of: FxHashMap<Buffer, ConstantBytes>,
    /// Those in another layout, by the kernel and the position of its input.
    pub(super) packed: FxHashMap<(usize, usize, Buffer), ConstantBytes>,
}

impl Constants {
    /// Computes folded stages and packed inputs.
    pub(super) fn evaluate(
        known: FxHashMap<Buffer, ConstantBytes>,
        (fold, plan, scheduled): (Option<&Graph>, &Plan, &[Scheduled]),
        options: &Options,
        trace: &mut Trace,
    ) -> Result<Constants, Failure> {
        let mut constants = Constants { of: known, packed: FxHashMap::default() };
        let mut lowered = Vec::new();
        if let Some(fold) = fold {
            let bounded = infer_bounds(Schedule::new(fold.clone(), &options.target))?;
            lowered.push(lower(&bounded, options, None, trace)?);
        }
        let mut pack_kernels = FxHashMap::default();
        for (kernel, one) in scheduled.iter().enumerate() {
            for (input, pack) in &one.packs {
                let mut packing = lower(pack, options, None, trace)?;
                packing.name = format!("pack_{kernel}_{input}");
                pack_kernels.insert((kernel, *input), lowered.len());
                lowered.push(packing);
            }
        }
        if lowered.is_empty() {
            return Ok(constants);
        }
        let module = load_kernels(&lowered, options, trace)?;
        if let Some(fold) = fold {
            let inputs: Vec<&Buffer> = fold.inputs.iter().filter_map(tensor_of).collect();
            let made = constants.call(&module, &lowered[0], &inputs)?;
            let made = fold.outputs.iter().cloned().zip(made);
            constants.of.extend(made);
        }
        for call in &plan.calls {
            for (input, _) in &scheduled[call.kernel].packs {
                let Argument::Tensor(source) = &call.arguments[*input] else {
                    crate::bug!("a scalar is packed")
                };
                let key = (call.kernel, *input, source.clone());
                if !constants.packed.contains_key(&key) {
                    let kernel = &lowered[pack_kernels[&(call.kernel, *input)]];
                    let made = constants.call(&module, kernel, &[source])?;
                    constants.packed.extend(made.into_iter().map(|bytes| (key.clone(), bytes)));
                }
            }
        }
        Ok(constants)
    }

    /// Runs a kernel on constants, which it may take in another shape; returns its outputs.
    fn call(
        &self,
        module: &LoadedModule,
        kernel: &Kernel,
        inputs: &[&Buffer],
    ) -> Result<Vec<ConstantBytes>, Failure> {
        let tensors: Vec<(&Buffer, bool)> = kernel.params.iter().filter_map(tensor_param).collect();
        let shape = |(buffer, _): &(&Buffer, bool)| -> Vec<i64> {
            let constant = |extent: &Expr| extent.as_int().expect("a constant shape") as i64;
            buffer.shape.iter().map(constant).collect()
        };
        let shapes: Vec<Vec<i64>> = tensors.iter().map(shape).collect();
        let mut made: Vec<Vec<u8>> = Vec::new();
        for (output, _) in tensors.iter().filter(|(_, output)| *output) {
            let bytes = fold::bytes_of(output).expect("a constant shape") as usize;
            made.push(vec![0; bytes]);
        }
        // The parts of a mapped file begin at any address.
        let elements = |input: &&Buffer| (**self.of.get(*input).expect("a constant")).as_ref();
        let given: Vec<&[u8]> = inputs.iter().map(elements).collect();
        let copies: Vec<Option<Vec<u8>>> = (given.iter().zip(inputs))
            .map(|(bytes, input)| {
                let is_aligned = bytes.as_ptr().addr().is_multiple_of(input.dtype.bytes() as usize);
                (!is_aligned).then(|| bytes.to_vec())
            })
            .collect();
        let mut given = given.into_iter().zip(&copies);
        let mut results = made.iter_mut();
        let argument = |((buffer, output), shape): ((&Buffer, bool), _)| match output {
            true => Arg::Output(buffer.dtype, shape, results.next().expect("one for each output")),
            false => {
                let (bytes, copy) = given.next().expect("one for each input");
                Arg::Input(buffer.dtype, shape, copy.as_deref().unwrap_or(bytes))
            }
        };
        let shapes: Vec<&[i64]> = shapes.iter().map(|shape| &shape[..]).collect();
        let args = tensors.iter().copied().zip(shapes).map(argument).collect();
        module.kernel(&kernel.name)?.call(args)?;
        Ok(made.into_iter().map(|bytes| Arc::new(bytes) as ConstantBytes).collect())
    }
}

/// Returns the tensor of a parameter, and whether it is an output.
fn tensor_param(param: &Param) -> Option<(&Buffer, bool)> {
    match param {
        Param::Tensor { buffer, role, .. } => Some((buffer, role.is_written())),
        _ => None,
    }
}

pub(super) fn tensor_of(input: &Input) -> Option<&Buffer> {
    match input {
        Input::Tensor { buffer, .. } => Some(buffer),
        Input::Scalar { .. } => None,
    }
}

/// Compiles and loads kernels, to run them while building.
fn load_kernels(
    kernels: &[Kernel],
    options: &Options,
    trace: &mut Trace,
) -> Result<LoadedModule, Failure> {
    // The same instructions compute the constants of another system.
    let target = Target { os: Os::HOST, ..options.target.clone() };
    if !target.runs_here() {
        let text = format!("the constants of a network for {} are computed here", options.target);
        let diag = Diag::global("E0702", text);
        let help = "build the network on a machine of the target";
        return Err(Failure::User(vec![diag.help(help)]));
    }
    let describe = |_: &Kernel| KernelInfo {
        parameters: Vec::new(),
        schedule: String::new(),
        automatic: false,
        work: Work { flops: Expr::index(0), bytes: Expr::index(0) },
        prepack_role: None,
    };
    let info = BuildInfo {
        module: "constants".to_string(),
        target,
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: Vec::new(),
        kernels: kernels.iter().map(describe).collect(),
    };
    let built = build(kernels, &info, ModuleKind::SharedObject, trace)?;
    Ok(LoadedModule::from_bytes(&built.bytes)?)
}
