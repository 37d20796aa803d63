//! `tec build`: compiles a file to a module.

use super::compile::variants::{build_variants, compile_variants};
use super::compile::{params_file, split_kernel};
use super::options::CompileArgs;
use super::paths::Files;
use super::report::{Error, Reporter, show_trace};
use crate::driver::Options;
use crate::module::depfile::make_depfile;
use crate::module::write::{OutputFile, check_writable};
use crate::module::{BuiltModule, ModuleKind, module_name};
use crate::schedule::PrepackedInputs;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  tec build matmul.te                          # writes matmul.so, matmul.json, matmul.h
  tec build matmul.te -D n=512 -o build/mm.so  # another size and output
  tec build matmul.te -o matmul.a              # a static library: cc main.c matmul.a
  tec build nn.te --kernel conv -o conv.o      # an object file to link into a program
  tec build matmul.te -o matmul.s              # an assembly listing
  tec build matmul.te -D n=64 --prefix small_ -o small.a  # the function small_matmul
  tec build matmul_add.te --prepack B          # pack B once, for many calls
  tec build matmul.te --target aarch64 -o m.tar
  tec build matmul.te --target x86-avx512,x86-avx2,x86-64  # one module for several CPUs
  tec build matmul.te --records matmul.records.jsonl
  tec build matmul.te --schedule auto --no-cache  # search again for a schedule";

/// Compile a file to a module.
///
/// The extension of the output selects its kind: `.so` (a shared library for Python, C and Rust),
/// `.a` (a static library with the run-time library, to be linked into a program), `.tar` (object
/// files, run-time library, header, manifest), `.o` (an object file to link with tec_runtime.o of
/// the `.tar`), `.s` (an assembly listing) or `.ptx` (for GPUs). The manifest and the C header are
/// written beside a `.so` or `.a`. All files are written completely, or none.
///
/// `--target` takes several CPU targets, separated by commas. The module then has the kernels for
/// each of them, and runs those for the most capable one that the CPU supports. The results are the
/// same on all. `TEC_MAX_TARGET=x86-avx2` in the environment of a program limits the choice.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct BuildArgs {
    /// Source file.
    #[arg(value_name = "FILE.te|MODEL.onnx")]
    file: String,
    /// Write the module here [default: FILE.so]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Name of the module [default: the stem of OUT]
    #[arg(long, value_name = "NAME")]
    module: Option<String>,
    /// Put this in front of the name of each function
    ///
    /// The modules of a program need different names for their functions, also if they are made
    /// from one file: `--prefix small_` makes `small_matmul` of the kernel `matmul`.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Write the manifest here [default for a `.so` or `.a`: OUT with the extension `.json`]
    #[arg(long, value_name = "PATH")]
    manifest: Option<PathBuf>,
    /// Write the C header here [default for a `.so` or `.a`: OUT with the extension `.h`]
    #[arg(long, value_name = "PATH")]
    header: Option<PathBuf>,
    /// Also write which files the module was built from, as a Makefile and Ninja read it
    #[arg(long, value_name = "FILE")]
    depfile: Option<PathBuf>,
    /// Write neither manifest nor header.
    #[arg(long)]
    no_sidecars: bool,
    /// Add functions that pack this input ahead of the calls (repeatable).
    ///
    /// KERNEL_pack_INPUT packs the input; KERNEL_prepacked takes the packed input. `KERNEL.INPUT`
    /// applies to one kernel only.
    #[arg(long, value_name = "INPUT")]
    prepack: Vec<String>,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command.
pub fn run(args: &BuildArgs, reporter: &Reporter) -> Result<(), Error> {
    let selectors: Vec<_> = args.prepack.iter().map(|text| split_kernel(text)).collect();
    // The cost of packing ahead does not count in an automatic schedule.
    let prepacked = PrepackedInputs::Named(selectors.clone());
    let (options, targets) = args.compile.options_for_targets()?;
    let options = Options { prepacked, ..options };
    let output = args.output.clone().unwrap_or_else(|| default_output(&args.file));
    let kind = ModuleKind::of_path(&output)?;
    let (manifest, header) = (
        beside(args, &args.manifest, "json", kind, &output),
        beside(args, &args.header, "h", kind, &output),
    );
    let others = [&manifest, &header, &args.depfile].into_iter().flatten();
    check_writable([&output].into_iter().chain(others).map(PathBuf::as_path))?;
    let mut trace = args.compile.trace()?;
    let side_files = args.compile.side_files();
    let (contract, choice) = (args.compile.contract(), (&options, &targets[..]));
    let mut variants =
        compile_variants(&args.file, side_files, choice, contract, &selectors, &mut trace)?;
    for variant in &mut variants {
        variant.compiled.add_prefix(args.prefix.as_deref().unwrap_or_default())?;
    }
    let files = Files::default().program(&variants[0].compiled.program);
    let files = match &args.compile.records {
        Some(records) => files.input("the records", records),
        None => files,
    };
    let files = match params_file(&args.file, args.compile.params.as_deref()) {
        Some(params) => files.input("the parameter file", params),
        None => files,
    };
    let files = files.output("-o", Some(&output)).output("--manifest", manifest.as_ref());
    let files = files.output("--header", header.as_ref());
    files.output("--depfile", args.depfile.as_ref()).check()?;
    let module = args.module.clone().unwrap_or_else(|| module_name(&output));
    let built = build_variants(&variants, &module, kind, &mut trace);
    show_trace(&trace, args.compile.time);
    let mut outputs = output_files(built?, kind, output, manifest, header);
    if let Some(path) = &args.depfile {
        let written: Vec<PathBuf> = outputs.iter().map(|file| file.path.clone()).collect();
        let bytes = make_depfile(&written, &variants[0].compiled.inputs)?;
        outputs.push(OutputFile { path: path.clone(), bytes, executable: false });
    }
    reporter.write(&outputs)
}

/// `FILE.so` for `FILE.te`. A path without a name, such as `..`, is refused when it is read.
fn default_output(file: &str) -> PathBuf {
    let output = Path::new(file).with_extension("so");
    if output.extension().is_some() { output } else { output.join("module.so") }
}

/// Returns the path of a file beside the module, if it is written.
fn beside(
    args: &BuildArgs,
    explicit: &Option<PathBuf>,
    extension: &str,
    kind: ModuleKind,
    output: &Path,
) -> Option<PathBuf> {
    let is_library = matches!(kind, ModuleKind::SharedObject | ModuleKind::StaticLibrary);
    let usual = is_library && !args.no_sidecars;
    explicit.clone().or_else(|| usual.then(|| output.with_extension(extension)))
}

fn output_files(
    built: BuiltModule,
    kind: ModuleKind,
    output: PathBuf,
    manifest: Option<PathBuf>,
    header: Option<PathBuf>,
) -> Vec<OutputFile> {
    let text = |path: Option<PathBuf>, text: String| {
        path.map(|path| OutputFile { path, bytes: text.into_bytes(), executable: false })
    };
    let (manifest, header) = (text(manifest, built.manifest), text(header, built.header));
    let executable = kind == ModuleKind::SharedObject;
    let module = OutputFile { path: output, bytes: built.bytes, executable };
    [Some(module), manifest, header].into_iter().flatten().collect()
}
