//! A kernel in this process with its arguments: loads modules of candidates and calls them.

use super::super::data;
use super::super::measure::{AlignedArgs, Timed};
use super::packed::PackedCall;
use crate::diag::Diag;
use crate::ir::Kernel;
use crate::ir::interp::{Tensor, Value};
use crate::module::gpu::Gpu;
use crate::module::load::{Arg, LoadedKernel, LoadedModule};
use crate::module::manifest::{Manifest, PrepackManifest};
use crate::tune::TrialFailure;
use std::time::{Duration, Instant};

/// A kernel with its arguments, ready for candidates.
pub struct Subject {
    /// The kernel's parameters, with any body.
    pub kernel: Kernel,
    /// The arguments, in the order of the parameters.
    pub values: Vec<Value>,
    /// The arguments of calls.
    pub args: AlignedArgs,
    /// The GPU of candidates; none if they run on the CPU.
    pub gpu: Option<Gpu>,
    /// Threads of parallel loops.
    pub threads: usize,
}

/// A candidate, loaded into this process.
pub struct Loaded {
    kernel: LoadedKernel,
    /// The call with packed inputs, if the schedule packs `layout_free` inputs.
    pub packed: Option<PackedCall>,
    /// Whether the schedule changes the order of reduction terms.
    pub reassociated: bool,
}

impl Loaded {
    /// Returns the kernel, its code and its arguments; `plain` and `usual` are those of a candidate
    /// that packs nothing.
    pub fn called<'a>(
        &'a mut self,
        plain: &'a Kernel,
        usual: &'a mut AlignedArgs,
    ) -> (&'a Kernel, &'a LoadedKernel, &'a mut AlignedArgs) {
        match &mut self.packed {
            Some(packed) => {
                let (kernel, args) = packed.call();
                (kernel, &self.kernel, args)
            }
            None => (plain, &self.kernel, usual),
        }
    }
}

impl Subject {
    /// Makes the arguments of calls from values.
    pub fn new(kernel: Kernel, values: Vec<Value>, gpu: Option<Gpu>, threads: usize) -> Subject {
        let args = AlignedArgs::new(&kernel, values.clone());
        Subject { kernel, values, args, gpu, threads }
    }

    /// Takes the kernels of a candidate's module: one, or those that pack inputs, and last the one
    /// that reads packed inputs.
    pub fn load(&self, module: LoadedModule) -> Result<Loaded, TrialFailure> {
        let threads = match self.gpu {
            None => self.threads,
            Some(_) => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        };
        module.set_num_threads(threads as i32).map_err(broken)?;
        let manifest = module.manifest().map_err(broken)?;
        let manifest = Manifest::from_json(&manifest, "a candidate").map_err(broken)?;
        let unknown = || TrialFailure::Bug("it is no module of a candidate".to_string());
        let (last, packs) = manifest.kernels.split_last().ok_or_else(unknown)?;
        let kernel = module.kernel(&last.name).map_err(broken)?;
        let reassociated = last.reassociated;
        if packs.is_empty() {
            let own = last.to_kernel().map_err(broken)?;
            let same = own.params.iter().map(|param| param.name());
            if !same.eq(self.kernel.params.iter().map(|param| param.name())) {
                return Err(unknown());
            }
            return Ok(Loaded { kernel, packed: None, reassociated });
        }
        let mut parts = Vec::new();
        for pack in packs {
            let Some(PrepackManifest::Pack { input, .. }) = &pack.prepack else {
                return Err(unknown());
            };
            let code = module.kernel(&pack.name).map_err(broken)?;
            parts.push((input.clone(), pack.to_kernel().map_err(broken)?, code));
        }
        let packed = Some(PackedCall::new(last.to_kernel().map_err(broken)?, parts));
        Ok(Loaded { kernel, packed, reassociated })
    }

    /// Packs the inputs of a candidate that packs some.
    pub fn pack(&self, loaded: &mut Loaded) -> Result<(), TrialFailure> {
        let Some(packed) = &mut loaded.packed else { return Ok(()) };
        packed.pack(&self.kernel, &self.values).map_err(|diag| call_failure(&diag))
    }

    /// Calls a candidate, which leaves its results in the arguments, and returns the time.
    pub fn call(&mut self, loaded: &mut Loaded) -> Result<Duration, TrialFailure> {
        let (kernel, code, args) = loaded.called(&self.kernel, &mut self.args);
        let args = args.of(kernel);
        let called = match &self.gpu {
            Some(gpu) => {
                let start = Instant::now();
                gpu.call(code, args).map(|()| start.elapsed())
            }
            None => {
                let mut call = code.bind(args);
                let start = Instant::now();
                call.call().map(|()| start.elapsed())
            }
        };
        called.map_err(|diag| call_failure(&diag))
    }

    /// Fills the outputs with a pattern.
    pub fn reset_outputs(&mut self, loaded: &mut Loaded) {
        let (kernel, _, args) = loaded.called(&self.kernel, &mut self.args);
        args.reset_outputs(kernel);
    }

    /// Binds a call to be timed.
    pub fn timed<'a>(&'a mut self, loaded: &'a mut Loaded) -> crate::diag::Result<Timed<'a>> {
        let (kernel, code, args) = loaded.called(&self.kernel, &mut self.args);
        timed(self.gpu.as_ref(), code, args.of(kernel))
    }

    /// Returns the bytes of each output of the last call.
    pub fn results<'a>(&'a self, loaded: &'a Loaded) -> Vec<&'a [u8]> {
        match &loaded.packed {
            Some(packed) => packed.results(),
            None => self.args.results(&self.kernel),
        }
    }

    /// Returns tensors like the outputs.
    pub fn outputs(&self) -> impl Iterator<Item = &Tensor> {
        data::outputs(&self.kernel, &self.values).map(|(_, tensor)| tensor)
    }
}

/// Binds a call to be timed on the CPU or the GPU.
pub fn timed<'a>(
    gpu: Option<&'a Gpu>,
    kernel: &LoadedKernel,
    args: Vec<Arg<'a>>,
) -> crate::diag::Result<Timed<'a>> {
    Ok(match gpu {
        None => Timed::Cpu(kernel.bind(args)),
        Some(gpu) => Timed::Gpu(gpu.bind(kernel, &args)?),
    })
}

fn broken(diag: Box<Diag>) -> TrialFailure {
    TrialFailure::Bug(diag.to_string())
}

/// Returns the failure of a call that returned an error.
pub fn call_failure(diag: &Diag) -> TrialFailure {
    if diag.message.contains("out of memory") {
        return TrialFailure::Memory;
    }
    TrialFailure::Call(diag.message.clone())
}
