//! `tec run`: runs kernels, and compares them with the reference interpreter.

use super::arguments::{Arguments, find};
use super::compile::split_value;
use super::data::{Given, call_with_indices, outputs, random_integers, summaries};
use super::npy;
use super::options::CompileArgs;
use super::remote::on::{Far, OnArgs};
use super::report::{Error, Reporter, print};
use super::session::{self, Source};
use super::verify::verify;
use crate::diag::Diag;
use crate::ir::Kernel;
use crate::ir::interp::Value;

const EXAMPLES: &str = "\
Examples:
  tec run matmul.te --verify                         # random inputs, compared bit by bit
  tec run matmul.so --input A=a.npy --output C=c.npy # a module, with NumPy files
  tec run rows.te --var n=10 --scalar alpha=0.5      # a run-time integer and a scalar
  tec run conv.te --target nvptx-sm_80 --emulate     # without a GPU: races, bank conflicts
  tec run matmul.te --on 'ssh pi' --verify           # compiled here, run on another machine";

/// Run kernels, and optionally verify their results.
///
/// Prints the type, shape, minimum, maximum and mean of each output. Inputs that are not given are
/// random: floats from 0 to 1, integers from 0 to 99, indices within their tensor.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Source file, or a module of `tec build`.
    #[arg(value_name = "FILE.te|MODEL.onnx|MODULE.so")]
    pub file: String,
    /// Write an output to a NumPy file (repeatable).
    #[arg(long, value_name = "C=c.npy")]
    output: Vec<String>,
    /// Compare the results with those of the reference interpreter.
    ///
    /// The exit status is 1 if a bit differs. If the schedule changes the order of reduction terms,
    /// the interpreter uses the schedule's order; the results must also be near those of the
    /// source's order (docs/CLI.md).
    #[arg(long)]
    pub verify: bool,
    /// Run kernels for an `nvptx-…` target in the PTX emulator, without a GPU.
    ///
    /// Reports defects such as races and out-of-bounds accesses (exit status 1), and counts
    /// instructions and memory transactions.
    #[arg(long, conflicts_with = "on")]
    pub emulate: bool,
    #[command(flatten)]
    on: OnArgs,
    #[command(flatten)]
    pub arguments: Arguments,
    #[command(flatten)]
    pub compile: CompileArgs,
}

/// Runs the command.
pub fn run(args: &RunArgs, reporter: &Reporter) -> Result<(), Error> {
    let mut far = args.on.connect()?;
    let session = session::open(&args.file, &args.compile, far.as_ref())?;
    if args.verify && session.source.is_none() {
        let text = "--verify needs the `.te` file: the interpreter cannot run a module";
        return Err(Error::Usage(text.to_string()));
    }
    let threads = args.arguments.threads_on(far.as_ref().map(Far::hello));
    let wanted = session.kernels(&args.compile.kernel)?;
    let params = wanted.iter().map(|kernel| kernel.to_kernel()).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<&Kernel> = params.iter().collect();
    check_outputs(args, &all, session.source.as_ref())?;
    let mut different = false;
    for (manifest, params) in wanted.iter().zip(&params) {
        let mut given = args.arguments.read(params, &all)?;
        let (kernel, mut values) = session.prepare(manifest, &given)?;
        let inputs = args.verify.then(|| values.clone());
        let call = |given: &Given, values: &mut [Value]| {
            session.run(&kernel, given, values, threads, far.as_mut())
        };
        let ran = call_with_indices(&kernel, &mut given, &mut values, call);
        ran.map_err(|error| explain_index(error, &kernel, &given))?;
        let mut text = String::new();
        if wanted.len() > 1 {
            text.push_str(&format!("# {}\n", kernel.name));
        }
        text.push_str(&summaries(&kernel, &values));
        if let Some(mut inputs) = inputs {
            for (at, param) in kernel.params.iter().enumerate() {
                if !param.is_written() {
                    inputs[at] = values[at].clone();
                }
            }
            let (lines, same) = {
                let source = session.source.as_ref().expect("--verify has a source");
                verify(source, &kernel, &values, inputs, reporter)?
            };
            text.push_str(&lines);
            different |= !same;
        }
        print(&text)?;
        write_outputs(args, &kernel, &values, reporter)?;
    }
    if different { Err(Error::Silent) } else { Ok(()) }
}

/// Refuses outputs that no kernel has, and those that would overwrite an input or each other.
pub fn check_outputs(
    args: &RunArgs,
    kernels: &[&Kernel],
    source: Option<&Source>,
) -> Result<(), Error> {
    let mut files = session::files(&args.file, source, &args.arguments.input, &args.compile);
    for text in &args.output {
        let (name, path) = split_value("--output", text)?;
        files = files.output(&format!("--output {name}"), Some(path));
        if let Some(kernel) = kernels.first() {
            check_output(name, kernel, kernels, source)?;
        }
    }
    files.check()
}

/// Writes the outputs that `--output` names.
pub fn write_outputs(
    args: &RunArgs,
    kernel: &Kernel,
    values: &[Value],
    reporter: &Reporter,
) -> Result<(), Error> {
    for text in &args.output {
        let (name, path) = split_value("--output", text)?;
        if let Some((_, tensor)) = outputs(kernel, values).find(|(known, _)| *known == name) {
            reporter.write(&[npy::to_file(path, tensor)])?;
        }
    }
    Ok(())
}

fn check_output(
    name: &str,
    kernel: &Kernel,
    all: &[&Kernel],
    source: Option<&Source>,
) -> Result<(), Error> {
    let graphs = source.into_iter().flat_map(|source| &source.bounded);
    let mut stages = graphs.flat_map(|bounded| &bounded.schedule.graph.stages);
    if stages.any(|stage| !stage.output && stage.buffers.iter().any(|b| b.name == name)) {
        let text = format!("`{name}` is an intermediate tensor, not an output");
        let help = format!("declare it by `output {name}[…] = …` instead of `compute`");
        return Err(Diag::global("E0543", text).help(help).into());
    }
    find("output", name, kernel, all, &|param| param.is_written()).map(|_| ())
}

/// Adds a help to the error of a call whose random integers were no indices.
fn explain_index(error: Error, kernel: &Kernel, given: &Given) -> Error {
    let random = kernel.params.iter().find_map(|param| random_integers(param, given));
    match (error, random) {
        (Error::Plain(mut diag), Some(buffer))
            if diag.code == "E0525" && diag.message.contains("but the extent is") =>
        {
            let name = &buffer.name;
            let text =
                format!("random integers are 0 to 99; give indices: `--input {name}=FILE.npy`");
            diag.help = Some(text);
            Error::Plain(diag)
        }
        (error, _) => error,
    }
}
