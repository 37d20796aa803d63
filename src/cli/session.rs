//! A module that `run` or `bench` loaded, from a `.te` file or from a module file.

use super::compile::{Compiled, build_module, compile_file};
use super::data::{self, Given};
use super::options::CompileArgs;
use super::paths::Files;
use super::report::{Error, show_trace};
use super::source;
use crate::diag::Diag;
use crate::driver::{Network, Options};
use crate::ir::Kernel;
use crate::ir::interp::Value;
use crate::lang::Program;
use crate::module::gpu::Gpu;
use crate::module::load::{Arg, LoadedKernel, LoadedModule};
use crate::module::manifest::{KernelManifest, Manifest};
use crate::module::read::read_manifest;
use crate::module::{ModuleKind, module_name};
use crate::schedule::BoundedSchedule;
use crate::target::Target;
use std::path::Path;

/// A loaded module.
pub struct Session {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its code.
    pub module: LoadedModule,
    /// The GPU that its kernels run on, if any.
    pub gpu: Option<Gpu>,
    /// What it was compiled from; none for a module file.
    pub source: Option<Source>,
}

/// A program that was compiled in this process.
pub struct Source {
    /// The syntax trees and texts.
    pub program: Program,
    /// Its kernels, scheduled, in the order of the manifest.
    pub bounded: Vec<BoundedSchedule>,
    /// Its networks, behind the kernels.
    pub networks: Vec<Network>,
    /// The options that they were compiled with.
    pub options: Options,
}

/// Returns the files that a session reads: the file with its imports, and those of options.
pub fn files(
    file: &str,
    source: Option<&Source>,
    inputs: &[String],
    compile: &CompileArgs,
) -> Files {
    let files = match source {
        Some(source) => Files::default().program(&source.program),
        None => Files::default().input("the module", file),
    };
    let files = files.named_inputs(inputs);
    match &compile.records {
        Some(records) => files.input("the records", records),
        None => files,
    }
}

/// Compiles and loads a `.te` file, or loads a `.so`.
pub fn open(file: &str, compile: &CompileArgs) -> Result<Session, Error> {
    if is_source(file) { open_source(file, compile) } else { open_module(file, compile) }
}

/// Whether a file is compiled: a `.te` file or an ONNX model.
fn is_source(file: &str) -> bool {
    file.ends_with(".te") || source::is_model(file)
}

/// Refuses kernels for GPUs, for an option that only CPUs have.
pub fn require_cpu(
    file: &str,
    compile: &CompileArgs,
    command: &str,
    help: &str,
) -> Result<(), Error> {
    let target = if is_source(file) {
        Target::parse(&compile.target)?
    } else {
        Target::parse(&read_manifest(Path::new(file))?.target.name)?
    };
    if !target.is_gpu() {
        return Ok(());
    }
    let text = format!("`{command}` is for kernels that run on the CPU, not on {target}");
    let diag = Diag::global("E0546", text);
    Err(diag.help(help).into())
}

fn open_module(file: &str, compile: &CompileArgs) -> Result<Session, Error> {
    let manifest = read_manifest(Path::new(file))?;
    refuse_options(file, compile, &manifest)?;
    let module = LoadedModule::open(Path::new(file))?;
    let manifest = match &manifest.variants[..] {
        [] => manifest,
        _ => {
            let target = module.target(&manifest.module)?;
            manifest.for_target(&target)
        }
    };
    let gpu =
        if Target::parse(&manifest.target.name)?.is_gpu() { Some(Gpu::open()?) } else { None };
    Ok(Session { manifest, module, gpu, source: None })
}

/// Refuses options that affect compilation, for a module file.
fn refuse_options(file: &str, compile: &CompileArgs, manifest: &Manifest) -> Result<(), Error> {
    let target = &compile.target;
    let other = target != "native" && *target != manifest.target.name;
    let given = [
        compile.define.first().map(|define| format!("-D {define}")),
        compile.schedule.first().map(|schedule| format!("--schedule {schedule}")),
        compile.records.as_ref().map(|records| format!("--records {records}")),
        compile.fp_contract.map(|_| "--fp-contract".to_string()),
        compile.fast_math.then(|| "--fast-math".to_string()),
        compile.dump.as_ref().map(|dump| format!("--dump {dump}")),
        other.then(|| format!("--target {target}")),
    ];
    let Some(option) = given.into_iter().flatten().next() else { return Ok(()) };
    let text = format!("`{option}` has no effect on {file}, which is already compiled");
    let diag = Diag::global("E0547", text);
    Err(diag.help("give the option to `tec build`, or give the `.te` file here").into())
}

fn open_source(file: &str, compile: &CompileArgs) -> Result<Session, Error> {
    let options = compile.options_to_run()?;
    let gpu = if options.target.is_gpu() { Some(Gpu::open()?) } else { None };
    if gpu.is_none() && !options.target.runs_here() {
        let text = format!("code for {} does not run on this machine", options.target);
        return Err(Diag::global("E0545", text).note("`tec targets` marks the native one").into());
    }
    let mut trace = compile.trace()?;
    let compiled = compile_file(file, compile.side_files(), &options, &mut trace)?;
    let name = module_name(Path::new(file));
    let kind = ModuleKind::SharedObject;
    let built = build_module(&compiled, &options, &name, kind, &mut trace);
    show_trace(&trace, compile.time);
    let built = built?;
    let Compiled { program, bounded, networks, .. } = compiled;
    let manifest = Manifest::from_json(&built.manifest, file)?;
    let module = LoadedModule::from_bytes(&built.bytes)?;
    let source = Some(Source { program, bounded, networks, options });
    Ok(Session { manifest, module, gpu, source })
}

impl Source {
    /// Returns a network.
    pub fn network(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.graph.name == name)
    }

    /// Returns a kernel under its schedule.
    pub fn bounded_schedule(&self, kernel: &str) -> Option<&BoundedSchedule> {
        self.bounded.iter().find(|bounded| bounded.schedule.graph.name == kernel)
    }
}

impl Session {
    /// Returns the kernels that `--kernel` names; all if it names none.
    pub fn kernels(&self, wanted: &[String]) -> Result<Vec<&KernelManifest>, Error> {
        let all = &self.manifest.kernels;
        for name in wanted {
            if !all.iter().any(|kernel| kernel.name == *name) {
                let names: Vec<&str> = all.iter().map(|kernel| kernel.name.as_str()).collect();
                let text = format!("the module has no kernel `{name}`");
                let diag = Diag::global("E0543", text);
                return Err(diag.note(format!("kernels: {}", names.join(", "))).into());
            }
        }
        let chosen = |kernel: &&KernelManifest| wanted.is_empty() || wanted.contains(&kernel.name);
        Ok(all.iter().filter(chosen).collect())
    }

    /// Calls a kernel of the module.
    pub fn call(&self, kernel: &LoadedKernel, args: Vec<Arg<'_>>) -> Result<(), Error> {
        match &self.gpu {
            Some(gpu) => gpu.call(kernel, args)?,
            None => kernel.call(args)?,
        }
        Ok(())
    }

    /// Returns a kernel of the module, its parameters, and arguments for it.
    pub fn prepare(
        &self,
        manifest: &KernelManifest,
        given: &Given,
    ) -> Result<(LoadedKernel, Kernel, Vec<Value>), Error> {
        let kernel = manifest.to_kernel()?;
        let args = data::make_args(&kernel, given)?;
        Ok((self.module.kernel(&manifest.name)?, kernel, args))
    }
}
