//! `tec run`: runs kernels, and compares them with the reference interpreter.

use super::data::{self, Given};
use super::options::CompileArgs;
use super::report::{Error, Reporter, print};
use super::session::{self, Source};
use super::verify::verify;
use super::{emulate, npy, threads};
use crate::diag::Diag;
use crate::ir::interp::{Tensor, Value};
use crate::ir::{DType, Kernel, Param};
use crate::module::load::args_of;

const EXAMPLES: &str = "\
Examples:
  tec run matmul.te --verify                        # random inputs, compared bit for bit
  tec run matmul.so --input A=a.npy --output C=c.npy
  tec run conv.te --target nvptx-sm_80 --emulate    # and races, bank conflicts, counters
  tec run slice.te --var n=10 --var m=10 --var bi=1 --var si=2 --var bj=0 --var sj=1";

/// Run kernels of a file or module.
///
/// Inputs that are not given are random: floats from 0 to 1, integers from 0 to 99. Prints a line
/// for each result: type, shape, smallest, largest, mean.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A `.te` file, or a `.so` that `tec build` made.
    #[arg(value_name = "FILE.te|MODULE.so")]
    pub file: String,
    #[command(flatten)]
    pub arguments: Arguments,
    /// Write a result to a NumPy file (repeatable).
    #[arg(long, value_name = "C=c.npy")]
    output: Vec<String>,
    /// Compare with the reference interpreter: exit status 1 unless bit-identical, and, where terms
    /// are added in the schedule's order, near the results of the source's order.
    #[arg(long)]
    pub verify: bool,
    /// Run kernels for an `nvptx-…` target in the PTX emulator, without a GPU: tells what is wrong
    /// with them, and counts.
    #[arg(long)]
    emulate: bool,
    #[command(flatten)]
    pub compile: CompileArgs,
}

/// Threads that a module's pool has at most (`src/runtime/pool.c`).
pub const MOST_THREADS: i64 = 512;

/// What a kernel is called with.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Arguments of the kernel")]
pub struct Arguments {
    /// An input from a NumPy file (repeatable).
    #[arg(long, value_name = "A=a.npy")]
    pub input: Vec<String>,
    /// A run-time integer, where no input's shape gives it (repeatable).
    #[arg(long, value_name = "n=100")]
    pub var: Vec<String>,
    /// A scalar input (repeatable).
    #[arg(long, value_name = "alpha=0.5")]
    pub scalar: Vec<String>,
    /// Where the random inputs begin.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Run parallel loops on so many threads; without it on $TEC_NUM_THREADS, or one for each CPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=MOST_THREADS))]
    pub threads: Option<i32>,
}

impl Arguments {
    /// Reads what is given for one of the module's kernels, the names checked against all of
    /// `kernels`.
    pub fn read(&self, kernel: &Kernel, kernels: &[&Kernel]) -> Result<Given, Error> {
        let mut given = Given { seed: self.seed, ..Given::default() };
        for text in &self.input {
            let (name, path) = split("--input", text)?;
            let is_tensor = |param: &Param| matches!(param, Param::Tensor { output: false, .. });
            if let Some(dtype) = find("input tensor", name, kernel, kernels, &is_tensor)? {
                given.tensors.push((name.to_string(), npy::read(path, name, dtype)?));
            }
        }
        for text in &self.var {
            let (name, value) = split("--var", text)?;
            let is_var = |param: &Param| matches!(param, Param::Runtime { .. });
            find("run-time integer", name, kernel, kernels, &is_var)?;
            let value = value.parse().map_err(|_| {
                Diag::global("E0543", format!("`--var {text}`: `{value}` is not an integer"))
            })?;
            given.vars.push((name.to_string(), value));
        }
        for text in &self.scalar {
            let (name, value) = split("--scalar", text)?;
            let is_scalar = |param: &Param| matches!(param, Param::Scalar { .. });
            find("scalar input", name, kernel, kernels, &is_scalar)?;
            given.scalars.push((name.to_string(), value.to_string()));
        }
        Ok(given)
    }

    /// Threads of parallel loops.
    pub fn threads(&self) -> usize {
        self.threads.map_or_else(threads::usual, |threads| threads as usize)
    }

    /// Those of these that a kernel has.
    pub fn of(&self, kernel: &Kernel) -> Arguments {
        let has = |text: &&String| {
            let name = text.split('=').next().unwrap_or_default();
            kernel.params.iter().any(|param| param.name() == name)
        };
        let own = |all: &[String]| all.iter().filter(has).cloned().collect();
        let [input, var, scalar] = [&self.input, &self.var, &self.scalar].map(|all| own(all));
        Arguments { input, var, scalar, ..self.clone() }
    }
}

/// The element type of the kernel's parameter `name`; none if only another kernel has it.
fn find(
    what: &str,
    name: &str,
    kernel: &Kernel,
    kernels: &[&Kernel],
    fits: &dyn Fn(&Param) -> bool,
) -> Result<Option<DType>, Error> {
    let named = |kernel: &Kernel| {
        let params = kernel.params.iter();
        params.filter(|param| fits(param)).find(|param| param.name() == name).cloned()
    };
    if let Some(param) = named(kernel) {
        return Ok(Some(match param {
            Param::Tensor { buffer, .. } => buffer.dtype,
            Param::Scalar { dtype, .. } => dtype,
            Param::Runtime { .. } => DType::Index,
        }));
    }
    if kernels.iter().any(|kernel| named(kernel).is_some()) {
        return Ok(None);
    }
    let all = kernel.params.iter().filter(|param| fits(param)).map(Param::name);
    let all: Vec<&str> = all.collect();
    let text = format!("`{}` has no {what} `{name}`", kernel.name);
    let mut diag = Diag::global("E0543", text);
    if let Some(close) = crate::diag::closest(name, all.iter().copied()) {
        diag = diag.help(format!("did you mean `{close}`?"));
    } else if !all.is_empty() {
        diag = diag.note(format!("it has: {}", all.join(", ")));
    }
    Err(diag.into())
}

fn split<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), Error> {
    text.split_once('=').ok_or_else(|| {
        Error::Usage(format!("`{option} {text}` has no value: write `{option} {text}=VALUE`"))
    })
}

/// Runs the command.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Error> {
    if args.emulate {
        return if emulate::run(args, reporter)? { Ok(()) } else { Err(Error::Silent) };
    }
    let session = session::open(&args.file, &args.compile)?;
    if args.verify && session.source.is_none() {
        let text = "--verify needs the `.te` file: a module holds no program to interpret";
        return Err(Error::Usage(text.to_string()));
    }
    check_outputs(args, session.source.as_ref())?;
    session.module.set_num_threads(args.arguments.threads() as i32)?;
    let wanted = session.kernels(&args.compile.kernel)?;
    let params = wanted.iter().map(|kernel| kernel.to_kernel()).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<&Kernel> = params.iter().collect();
    let mut different = false;
    for (manifest, params) in wanted.iter().zip(&params) {
        let given = args.arguments.read(params, &all)?;
        let (loaded, kernel, mut values) = session.prepare(manifest, &given)?;
        let inputs = args.verify.then(|| values.clone());
        session.call(&loaded, args_of(&kernel, &mut values))?;
        let mut text = String::new();
        if wanted.len() > 1 {
            text.push_str(&format!("# {}\n", kernel.name));
        }
        text.push_str(&summaries(&kernel, &values));
        if let Some(inputs) = inputs {
            let (lines, same) = {
                let source = session.source.as_ref().expect("asked for a file");
                verify(source, &kernel, &values, inputs, reporter)?
            };
            text.push_str(&lines);
            different |= !same;
        }
        print(&text)?;
        write_outputs(args, &kernel, &values, (&all, session.source.as_ref()), reporter)?;
    }
    if different { Err(Error::Silent) } else { Ok(()) }
}

/// The outputs among a kernel's arguments, with their names.
pub fn outputs<'a>(
    kernel: &'a Kernel,
    values: &'a [Value],
) -> impl Iterator<Item = (&'a str, &'a Tensor)> {
    kernel.params.iter().zip(values).filter_map(|(param, value)| match (param, value) {
        (Param::Tensor { buffer, output: true, .. }, Value::Tensor(tensor)) => {
            Some((buffer.name.as_str(), tensor))
        }
        _ => None,
    })
}

/// A line about each output.
pub fn summaries(kernel: &Kernel, values: &[Value]) -> String {
    outputs(kernel, values).map(|(name, tensor)| data::summary(name, tensor) + "\n").collect()
}

/// Refuses outputs that would overwrite what is read, or each other.
pub fn check_outputs(args: &Args, source: Option<&Source>) -> Result<(), Error> {
    let mut files = session::files(&args.file, source, &args.arguments.input, &args.compile);
    for text in &args.output {
        let (name, path) = split("--output", text)?;
        files = files.output(&format!("--output {name}"), Some(path));
    }
    files.check()
}

/// Writes the outputs that `--output` names.
pub fn write_outputs(
    args: &Args,
    kernel: &Kernel,
    values: &[Value],
    (all, source): (&[&Kernel], Option<&Source>),
    reporter: &Reporter,
) -> Result<(), Error> {
    for text in &args.output {
        let (name, path) = split("--output", text)?;
        let is_output = |param: &Param| matches!(param, Param::Tensor { output: true, .. });
        let graphs = source.into_iter().flat_map(|source| &source.placed);
        let mut stages = graphs.flat_map(|placed| &placed.schedule.graph.stages);
        if stages.any(|stage| !stage.output && stage.buffers.iter().any(|b| b.name == name)) {
            let text = format!("`{name}` is an intermediate tensor, which nothing keeps");
            let help = format!("declare it by `output {name}[…] = …` in place of `compute`");
            return Err(Diag::global("E0543", text).help(help).into());
        }
        find("output", name, kernel, all, &is_output)?;
        if let Some((_, tensor)) = outputs(kernel, values).find(|(known, _)| *known == name) {
            reporter.write(&[npy::to_file(path, tensor)])?;
        }
    }
    Ok(())
}
