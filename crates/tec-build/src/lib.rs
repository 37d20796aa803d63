#![doc = include_str!("../README.md")]

mod bindings;
mod cargo;

use cargo::Surroundings;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tec::compile::variants::{build_variants, compile_variants};
use tec::compile::{self, ModelFlags, SideFiles, cache, source, split_kernel};
use tec::driver::{self, FpContract, Options, Trace};
use tec::module::manifest::Manifest;
use tec::module::static_library::static_library;
use tec::module::write::{OutputFile, write_files};
use tec::module::{BuiltModule, ModuleKind, check_module_name, linked_prefix, module_name};
use tec::schedule::{Fallback, PrepackedInputs};

/// Compiles a file with the default options: [`Config::compile`].
pub fn compile(path: impl AsRef<Path>) -> Result<(), Error> {
    Config::new().compile(path)
}

/// How a file is compiled. The methods have the names and the meaning of the options of `tec
/// build`.
#[derive(Clone, Debug, Default)]
pub struct Config {
    defines: Vec<(Option<String>, String, String)>,
    fp_contract: Option<bool>,
    freeze: Vec<String>,
    kernels: Vec<String>,
    no_winograd: bool,
    module: Option<String>,
    params: Option<PathBuf>,
    prepack: Vec<String>,
    records: Option<PathBuf>,
    schedule: Option<String>,
    targets: Vec<String>,
    cpu: Option<String>,
    typical: Vec<Vec<(String, i64)>>,
}

impl Config {
    /// Returns the default options.
    pub fn new() -> Config {
        Config::default()
    }

    /// Sets a parameter, `-D name=value`. `matmul.n` is a parameter of one kernel. A run-time
    /// integer becomes a constant, and disappears from the arguments.
    pub fn define(&mut self, name: &str, value: impl fmt::Display) -> &mut Config {
        let (kernel, name) = split_kernel(name);
        self.defines.push((kernel, name, value.to_string()));
        self
    }

    /// Compiles products and sums to fused operations or not.
    pub fn fp_contract(&mut self, fuse: bool) -> &mut Config {
        self.fp_contract = Some(fuse);
        self
    }

    /// ONNX models: makes an input a constant. The value is a number, `true` or `false` for each
    /// element, or the path of a NumPy file.
    pub fn freeze(&mut self, input: &str, value: impl fmt::Display) -> &mut Config {
        self.freeze.push(format!("{input}={value}"));
        self
    }

    /// ONNX models: computes no convolution by Winograd's algorithm.
    pub fn no_winograd(&mut self) -> &mut Config {
        self.no_winograd = true;
        self
    }

    /// Compiles this kernel, and others only if they are named too.
    pub fn kernel(&mut self, name: &str) -> &mut Config {
        self.kernels.push(name.to_string());
        self
    }

    /// Names the module, instead of by the file's stem.
    pub fn module(&mut self, name: &str) -> &mut Config {
        self.module = Some(name.to_string());
        self
    }

    /// Takes the params of networks from this file.
    pub fn params(&mut self, path: impl AsRef<Path>) -> &mut Config {
        self.params = Some(path.as_ref().to_path_buf());
        self
    }

    /// Adds a type for this input, packed once for many calls: an input, or `kernel.input`.
    pub fn prepack(&mut self, input: &str) -> &mut Config {
        self.prepack.push(input.to_string());
        self
    }

    /// Uses the best schedules that `tec tune` recorded in this file.
    pub fn records(&mut self, path: impl AsRef<Path>) -> &mut Config {
        self.records = Some(path.as_ref().to_path_buf());
        self
    }

    /// Chooses a schedule: a name, `default` or `auto`; `kernel.name` applies to one kernel.
    pub fn schedule(&mut self, name: &str) -> &mut Config {
        self.schedule = Some(name.to_string());
        self
    }

    /// Compiles for this target instead of the widest one whose features every CPU has that Cargo
    /// builds for. On other CPUs the kernels return an error.
    pub fn target(&mut self, name: &str) -> &mut Config {
        self.targets = vec![name.to_string()];
        self
    }

    /// Compiles for each of these targets. A call runs the code for the most capable one that the
    /// CPU supports, with the same results on all. The least capable one decides which CPUs can
    /// call the kernels at all.
    pub fn targets<T: AsRef<str>>(&mut self, names: impl IntoIterator<Item = T>) -> &mut Config {
        self.targets = names.into_iter().map(|name| name.as_ref().to_string()).collect();
        self
    }

    /// Makes automatic schedules for this processor, as `--cpu` does, instead of a typical one. The
    /// kernels run on others, too.
    pub fn cpu(&mut self, name: &str) -> &mut Config {
        self.cpu = Some(name.to_string());
        self
    }

    /// Gives the run-time integers of a typical call, such as `[("n", 128)]`, for automatic
    /// schedules; several times for several calls. Results do not depend on it.
    pub fn typical<'a>(&mut self, sizes: impl IntoIterator<Item = (&'a str, i64)>) -> &mut Config {
        let call = sizes.into_iter().map(|(name, size)| (name.to_string(), size));
        self.typical.push(call.collect());
        self
    }

    /// Compiles a file for the package whose build script calls this.
    ///
    /// Writes a static library and bindings to `OUT_DIR`, and tells Cargo to link the library and
    /// to run the script again if the file, one of its imports, or a file of the options changes.
    ///
    /// # Errors
    ///
    /// The error has the diagnostics of the compiler as its text.
    pub fn compile(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let surroundings = Surroundings::of_build_script()?;
        let start = Instant::now();
        let built = self.build(path.as_ref(), &surroundings)?;
        take_name(&built.name)?;
        let library = built.library_name(&surroundings);
        let file = |name: String, bytes: Vec<u8>| {
            let path = surroundings.out_dir.join(name);
            OutputFile { path, bytes, executable: false }
        };
        let archive = static_library(&[(&built.name, &built.module.bytes)]);
        let files = [
            file(format!("lib{library}.a"), archive),
            file(format!("{}.rs", built.name), built.bindings.into_bytes()),
            file(format!("{}.json", built.name), built.module.manifest.into_bytes()),
        ];
        write_files(&files).map_err(|diag| Error::of(&diag.into()))?;
        println!("cargo::rustc-link-search=native={}", surroundings.out_dir.display());
        println!("cargo::rustc-link-lib=static={library}");
        for input in &built.inputs {
            println!("cargo::rerun-if-changed={}", input.display());
        }
        for note in &built.notes {
            eprintln!("note: {note}");
        }
        if let Some(text) = slow_compiler(path.as_ref(), tec::OPT_LEVEL, start.elapsed()) {
            println!("cargo::warning={text}");
        }
        Ok(())
    }

    /// Compiles a file.
    fn build(&self, path: &Path, surroundings: &Surroundings) -> Result<Built, Error> {
        let text_of = |path: &Path| {
            path.to_str()
                .map(str::to_string)
                .ok_or_else(|| Error::new(format!("error: `{}` is not UTF-8\n", path.display())))
        };
        let text = text_of(path)?;
        let records = self.records.as_deref().map(text_of).transpose()?;
        let params = self.params.as_deref().map(text_of).transpose()?;
        if source::is_model(&text) && !cfg!(feature = "networks") {
            let text = format!("error: `{text}` is an ONNX model\n");
            let help = "  = help: enable the feature `networks` of tec-build\n";
            return Err(Error::new(text + help));
        }
        let mut targets = surroundings.targets(&self.targets)?;
        for target in &mut targets {
            if let Some(cpu) = &self.cpu {
                *target =
                    target.clone().with_processor(cpu).map_err(|diag| Error::of(&diag.into()))?;
            }
        }
        let name = match &self.module {
            Some(name) => name.clone(),
            None => module_name(path),
        };
        check_module_name(&name).map_err(|diag| Error::of(&diag.into()))?;
        let options = self.options(targets[0].clone());
        let selectors: Vec<_> = self.prepack.iter().map(|text| split_kernel(text)).collect();
        let model = ModelFlags { freeze: &self.freeze, no_winograd: self.no_winograd };
        let files = SideFiles { records: records.as_deref(), params: params.as_deref(), model };
        let mut trace = Trace::default();
        let linked = linked_name(surroundings, &name);
        let work = || -> Result<_, compile::error::Error> {
            let (choice, contract) = ((&options, &targets[..]), self.contract());
            let mut compiled =
                compile_variants(&text, files, choice, contract, &selectors, &mut trace)?;
            let module = build_variants(&compiled, &linked, ModuleKind::Linked, &mut trace)?;
            let manifest = Manifest::from_json(&module.manifest, &text)?;
            Ok((compiled.swap_remove(0).compiled, module, manifest))
        };
        let done = driver::try_with_stack(work).map_err(|error| {
            Error::new(format!("error: tec needs 1 GiB of address space for its stack: {error}\n"))
        })?;
        let (compiled, module, manifest) = done.map_err(|error| Error::of(&error))?;
        let bindings = bindings::write(&manifest, &name, &linked_prefix(&linked))
            .map_err(|diag| Error::of(&diag.into()))?;
        Ok(Built { name, module, bindings, inputs: compiled.inputs, notes: trace.notes })
    }

    fn options(&self, target: tec::target::Target) -> Options {
        let mut options = Options::new(target);
        options.kernels = (!self.kernels.is_empty()).then(|| self.kernels.clone());
        options.defines = self.defines.clone();
        options.schedule = self.schedule.as_deref().map(split_kernel);
        options.cache = cache::schedules(false);
        options.fallback = Fallback::Auto;
        options.estimates = self.typical.clone();
        let selectors = self.prepack.iter().map(|text| split_kernel(text)).collect();
        options.prepacked = PrepackedInputs::Named(selectors);
        options
    }

    fn contract(&self) -> Option<FpContract> {
        self.fp_contract.map(|fuse| if fuse { FpContract::Fast } else { FpContract::Off })
    }
}

/// A compiled module.
struct Built {
    name: String,
    module: BuiltModule,
    bindings: String,
    /// The files that it was compiled from.
    inputs: Vec<PathBuf>,
    notes: Vec<String>,
}

impl Built {
    /// Returns the name of the static library, which no other package has.
    fn library_name(&self, surroundings: &Surroundings) -> String {
        format!("tec_{}", linked_name(surroundings, &self.name))
    }
}

/// Returns the name of a module that no other package has. Its symbols begin with it, so that two
/// crates, or a crate and the C library, may have functions of one name.
fn linked_name(surroundings: &Surroundings, module: &str) -> String {
    let package = surroundings.package.chars();
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    // A package may begin with a digit or an underscore.
    format!("p{}_{module}", package.map(allowed).collect::<String>())
}

/// Refuses a second module of one name, whose files would replace those of the first.
fn take_name(name: &str) -> Result<(), Error> {
    static TAKEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if taken.iter().any(|one| one == name) {
        let text = format!("error: this build script compiles two modules of the name `{name}`\n");
        let help = "  = help: give one of them another name: `Config::module`\n";
        return Err(Error::new(text + help));
    }
    taken.push(name.to_string());
    Ok(())
}

/// The time of a compilation from which on a faster compiler is worth its own compilation.
const SLOW: Duration = Duration::from_secs(5);

/// Returns the warning for a compiler that was compiled without optimisation, if it took long.
fn slow_compiler(path: &Path, level: &str, time: Duration) -> Option<String> {
    (level == "0" && time >= SLOW).then(|| {
        format!(
            "tec took {:.1} s for {}, because it was compiled without optimisation: add \
             `[profile.dev.build-override]` with `opt-level = 2` to Cargo.toml",
            time.as_secs_f64(),
            path.display()
        )
    })
}

/// Why a file was not compiled: the diagnostics of the compiler. `Debug` prints them too, for build
/// scripts whose `main` returns the error.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    text: String,
}

impl Error {
    fn new(text: String) -> Error {
        Error { text }
    }

    fn of(error: &compile::error::Error) -> Error {
        Error::new(error.text(false))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // After the `Error: ` that `main` prints.
        write!(f, "\n{}", self.text)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
