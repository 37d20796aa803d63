//! A program that `run` or `bench` calls, from a `.te` file or from a module file: here, or on
//! another machine.

use super::compile::{Compiled, build_module, compile_file};
use super::data::{self, Given, outputs};
use super::options::CompileArgs;
use super::paths::Files;
use super::remote::on::Far;
use super::remote::store::Hash;
use super::report::{Error, show_trace};
use super::source;
use crate::diag::{self, Diag};
use crate::driver::{Network, Options};
use crate::ir::Kernel;
use crate::ir::interp::{Tensor, Value};
use crate::lang::Program;
use crate::module::gpu::Gpu;
use crate::module::load::{Arg, LoadedKernel, LoadedModule, args_of};
use crate::module::manifest::{KernelManifest, Manifest};
use crate::module::read::read_manifest;
use crate::module::{ModuleKind, input, module_name};
use crate::schedule::BoundedSchedule;
use crate::target::{Os, Target};
use std::ffi::OsStr;
use std::path::Path;

/// A program that can be called.
pub struct Session {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its code.
    pub code: Code,
    /// What it was compiled from; none for a module file.
    pub source: Option<Source>,
}

/// The code of a session.
pub enum Code {
    /// It is loaded into this process. The GPU is the one that its kernels run on, if any.
    Here(LoadedModule, Option<Gpu>),
    /// It runs on another machine (`--on`).
    There(Hash),
}

/// A module file that is loaded into this process.
pub struct Opened {
    /// Its manifest, as the variant has it that runs here.
    pub manifest: Manifest,
    /// Its code.
    pub module: LoadedModule,
    /// The GPU that its kernels run on, if any.
    pub gpu: Option<Gpu>,
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

/// Compiles and loads a `.te` file, or loads a `.so`. With `far`, code is for that machine, and not
/// loaded.
pub fn open(file: &str, compile: &CompileArgs, far: Option<&Far>) -> Result<Session, Error> {
    match (is_source(file), far) {
        (true, None) => open_source(file, compile),
        (true, Some(far)) => build_for(file, compile, far),
        (false, None) => {
            refuse_options(file, compile, &read_manifest(Path::new(file))?)?;
            let Opened { manifest, module, gpu } = Opened::open(Path::new(file))?;
            Ok(Session { manifest, code: Code::Here(module, gpu), source: None })
        }
        (false, Some(far)) => {
            let manifest = read_manifest(Path::new(file))?;
            refuse_options(file, compile, &manifest)?;
            let manifest = variant_for(manifest, far)?;
            let bytes = input::read(Path::new(file), input::MODULE)
                .map_err(|why| Diag::global("E0523", format!("cannot read `{file}`: {why}")))?;
            Ok(Session { manifest, code: Code::There(far.add(&bytes)?), source: None })
        }
    }
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

impl Opened {
    /// Loads a module file.
    pub fn open(path: &Path) -> diag::Result<Opened> {
        let manifest = read_manifest(path)?;
        let to_link = |ext: &OsStr| ["a", "o", "tar", "ptx"].iter().any(|other| ext == *other);
        if path.extension().is_some_and(to_link) {
            let text = format!("`{}` is no shared object, and cannot be loaded", path.display());
            let diag = Diag::global("E0523", text);
            return Err(Box::new(diag.help("give the `.te` file, or a `.so` of `tec build`")));
        }
        let module = LoadedModule::open(path)?;
        let manifest = match &manifest.variants[..] {
            [] => manifest,
            _ => {
                let target = module.target(&manifest.module)?;
                manifest.for_target(&target)
            }
        };
        let is_gpu = Target::parse(&manifest.target.name)?.is_gpu();
        let gpu = if is_gpu { Some(Gpu::open()?) } else { None };
        Ok(Opened { manifest, module, gpu })
    }

    /// Calls a kernel of the module.
    pub fn call(&self, kernel: &LoadedKernel, args: Vec<Arg<'_>>) -> diag::Result<()> {
        call(self.gpu.as_ref(), kernel, args)
    }
}

fn call(gpu: Option<&Gpu>, kernel: &LoadedKernel, args: Vec<Arg<'_>>) -> diag::Result<()> {
    match gpu {
        Some(gpu) => gpu.call(kernel, args),
        None => kernel.call(args),
    }
}

/// Returns the manifest of a module file for another machine, as the variant has it that runs
/// there.
fn variant_for(manifest: Manifest, far: &Far) -> Result<Manifest, Error> {
    let of = |name: &str| Target::parse(name);
    for variant in &manifest.variants {
        let target = of(&variant.target.name)?;
        if far.hello().why_not(&target).is_none() {
            let name = target.to_string();
            return Ok(manifest.for_target(&name));
        }
    }
    far.check(&of(&manifest.target.name)?)?;
    Ok(manifest)
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
        let diag = Diag::global("E0545", text).note("`tec targets` marks the native one");
        let help = match options.target.os {
            Os::Linux => "run it on a machine that it is for: --on 'ssh HOST'",
            Os::Windows | Os::MacOs => "`tec build -o FILE.a` makes a library for programs there",
        };
        return Err(diag.help(help).into());
    }
    let (manifest, bytes, source) = build(file, compile, options)?;
    let module = LoadedModule::from_bytes(&bytes)?;
    Ok(Session { manifest, code: Code::Here(module, gpu), source: Some(source) })
}

/// Compiles a file for another machine.
fn build_for(file: &str, compile: &CompileArgs, far: &Far) -> Result<Session, Error> {
    let compile = compile.for_native(far.hello());
    let options = compile.options_to_run()?;
    far.check(&options.target)?;
    let (manifest, bytes, source) = build(file, &compile, options)?;
    Ok(Session { manifest, code: Code::There(far.add(&bytes)?), source: Some(source) })
}

/// Compiles a file; returns the module with its manifest.
fn build(
    file: &str,
    compile: &CompileArgs,
    options: Options,
) -> Result<(Manifest, Vec<u8>, Source), Error> {
    let mut trace = compile.trace()?;
    let compiled = compile_file(file, compile.side_files(), &options, &mut trace)?;
    let name = module_name(Path::new(file));
    let kind = ModuleKind::SharedObject;
    let built = build_module(&compiled, &options, &name, kind, &mut trace);
    show_trace(&trace, compile.time);
    let built = built?;
    let Compiled { program, bounded, networks, .. } = compiled;
    let manifest = Manifest::from_json(&built.manifest, file)?;
    Ok((manifest, built.bytes, Source { program, bounded, networks, options }))
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

    /// Returns the parameters of a kernel, and arguments for it.
    pub fn prepare(
        &self,
        manifest: &KernelManifest,
        given: &Given,
    ) -> Result<(Kernel, Vec<Value>), Error> {
        let kernel = manifest.to_kernel()?;
        let args = data::make_args(&kernel, given)?;
        Ok((kernel, args))
    }

    /// Calls a kernel with the arguments `values`, which were made from `given`.
    pub fn run(
        &self,
        kernel: &Kernel,
        given: &Given,
        values: &mut [Value],
        threads: usize,
        far: Option<&mut Far>,
    ) -> Result<(), Error> {
        match (&self.code, far) {
            (Code::Here(module, gpu), _) => {
                module.set_num_threads(threads as i32)?;
                let code = module.kernel(&kernel.name)?;
                Ok(call(gpu.as_ref(), &code, args_of(kernel, values))?)
            }
            (Code::There(hash), Some(far)) => {
                let call = far.describe(hash, &kernel.name, given, threads)?;
                let expected: Vec<&Tensor> = outputs(kernel, values).map(|(_, one)| one).collect();
                let mut results = far.call(call, &expected)?.into_iter();
                for (param, value) in kernel.params.iter().zip(values) {
                    if let (true, Value::Tensor(tensor)) = (param.is_written(), value) {
                        *tensor = results.next().expect("as many as expected");
                    }
                }
                Ok(())
            }
            (Code::There(_), None) => crate::bug!("the connection is gone"),
        }
    }
}
