//! `tec build`: a file becomes a module.

use super::options::{CompileArgs, front, split_kernel};
use super::paths::Files;
use super::report::{Error, Reporter, show_trace};
use crate::driver::{self, Options, Trace};
use crate::lang::Program;
use crate::module::write::OutputFile;
use crate::module::{BuildInfo, BuiltModule, KernelInfo, ModuleKind, module_name};
use crate::schedule::{BoundedSchedule, Free, Request};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  tec build matmul.te                          # matmul.so, matmul.json, matmul.h
  tec build matmul.te -D n=512 -o build/mm.so  # another size, another place
  tec build nn.te --kernel conv -o conv.o      # an object to link into a program
  tec build matmul_add.te --prepack B          # B packed once, for many calls
  tec build matmul.te --target aarch64 -o m.tar --no-sidecars";

/// Compile a file to a module.
///
/// The ending of the output decides what it is: `.so` (a complete module that Python, C and Rust
/// load), `.tar` (object, runtime, header, manifest), `.o` (an object to link with tec_runtime.o of
/// the `.tar`) or `.s` (an assembly listing). Files appear complete or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The `.te` file.
    file: String,
    /// The module; FILE.so by default.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// The module's name, the prefix of its functions; the output's stem by default.
    #[arg(long, value_name = "NAME")]
    module: Option<String>,
    /// Where the manifest goes; beside a `.so` by default.
    #[arg(long, value_name = "PATH")]
    manifest: Option<PathBuf>,
    /// Where the C header goes; beside a `.so` by default.
    #[arg(long, value_name = "PATH")]
    header: Option<PathBuf>,
    /// Neither manifest nor header beside the module.
    #[arg(long)]
    no_sidecars: bool,
    /// Pack this input ahead (repeatable): the module gets KERNEL_pack_INPUT, which does only that,
    /// and KERNEL_prepacked, which takes its result.
    #[arg(long, value_name = "[KERNEL.]INPUT")]
    prepack: Vec<String>,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Error> {
    let requests: Vec<_> = args.prepack.iter().map(|text| split_kernel(text)).collect();
    // A schedule that is made here need not spare the packing that no call does.
    let free = Free::Named(requests.clone());
    let options = Options { free, ..args.compile.options_to_run()? };
    let output = args.output.clone().unwrap_or_else(|| default_output(&args.file));
    let kind = ModuleKind::of_path(&output)?;
    let mut trace = args.compile.trace()?;
    let (program, mut placed) =
        front(&args.file, &options, args.compile.records.as_deref(), &mut trace)?;
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    for one in &placed {
        let kernel = &one.schedule.graph.name;
        let packed = driver::packed_in_calls(one, &mut trace).map_err(failed)?;
        let asked = |name: &String| {
            let of =
                |(of, input): &Request| input == name && of.as_ref().is_none_or(|of| of == kernel);
            requests.iter().any(of)
        };
        for name in packed.into_iter().filter(|name| !asked(name)) {
            trace.notes.push(format!(
                "`{kernel}` packs `{name}`, which is `layout_free`, in each call; with \
                 `--prepack {name}` it is packed once"
            ));
        }
    }
    if !requests.is_empty() {
        placed = driver::prepack(placed, &requests, &mut trace).map_err(failed)?;
    }
    let (manifest, header) = (
        beside(args, &args.manifest, "json", kind, &output),
        beside(args, &args.header, "h", kind, &output),
    );
    let files = Files::default().program(&program);
    let files = match &args.compile.records {
        Some(records) => files.input("the records", records),
        None => files,
    };
    let files = files.output("-o", Some(&output)).output("--manifest", manifest.as_ref());
    files.output("--header", header.as_ref()).check()?;
    let module = args.module.clone().unwrap_or_else(|| module_name(&output));
    let built = build(&program, &placed, &options, &module, kind, &mut trace);
    show_trace(&trace, args.compile.time);
    reporter.write(&output_files(built?, kind, output, manifest, header))
}

/// The file's name with another ending, in the current directory's terms.
fn default_output(file: &str) -> PathBuf {
    Path::new(file).with_extension("so")
}

/// Where a file beside the module goes, if it is wanted.
fn beside(
    args: &Args,
    explicit: &Option<PathBuf>,
    ending: &str,
    kind: ModuleKind,
    output: &Path,
) -> Option<PathBuf> {
    let usual = kind == ModuleKind::SharedObject && !args.no_sidecars;
    explicit.clone().or_else(|| usual.then(|| output.with_extension(ending)))
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

/// Lowers and compiles the kernels of a program.
pub fn build(
    program: &Program,
    placed: &[BoundedSchedule],
    options: &Options,
    module: &str,
    kind: ModuleKind,
    trace: &mut Trace,
) -> Result<BuiltModule, Error> {
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    let mut kernels = Vec::new();
    let mut infos = Vec::new();
    for one in placed {
        let (schedule, graph) = (&one.schedule, &one.schedule.graph);
        kernels.push(driver::lower(one, options, None, trace).map_err(failed)?);
        infos.push(KernelInfo {
            parameters: graph.params.clone(),
            schedule: schedule.text.clone(),
            work: driver::count_work(graph, &options.target).map_err(failed)?,
            part: one.part.clone(),
        });
    }
    // A module does not depend on the directory that it is built in.
    let name = |path: &str| match path.strip_prefix("lib/") {
        Some(_) => path.to_string(),
        None => path.rsplit('/').next().unwrap_or(path).to_string(),
    };
    let files = program.sources.files.iter();
    let info = BuildInfo {
        module: module.to_string(),
        target: options.target.clone(),
        fp_contract: options.fp_contract.name().to_string(),
        opt: options.opt,
        sources: files.map(|file| (name(&file.path), file.text.clone())).collect(),
        kernels: infos,
    };
    driver::build(&kernels, &info, kind, trace).map_err(failed)
}
