//! Options of every command that compiles.

use super::report::Error;
use super::tune::best::put_best;
use super::tune::edit;
use crate::diag::Diag;
use crate::driver::{self, Failure, FpContract, Options, Trace};
use crate::lang::ast::Item;
use crate::lang::{Loader, Program};
use crate::module::input;
pub use crate::module::input::io_text;
use crate::schedule::{BoundedSchedule, Fallback};
use crate::target::Target;
use crate::te::Graph;
use std::path::Path;

/// What to compile, and how.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Compilation")]
pub struct CompileArgs {
    /// Only this kernel (repeatable); all by default.
    #[arg(long, value_name = "NAME")]
    pub kernel: Vec<String>,
    /// The machine to compile for: `tec targets` lists them.
    #[arg(long, default_value = "native", value_name = "TARGET")]
    pub target: String,
    /// A parameter's value: n=512, or matmul.n=512 (repeatable).
    #[arg(short = 'D', value_name = "[KERNEL.]NAME=VALUE")]
    pub define: Vec<String>,
    /// The schedule to use; `default` is the plain loop nest, `auto` one that the compiler makes.
    /// `tec bench` compares several.
    #[arg(long, value_name = "[KERNEL.]NAME", value_delimiter = ',')]
    pub schedule: Vec<String>,
    /// Build with the best schedules that `tec tune` recorded there for these kernels. `tec tune`
    /// itself keeps its trials there.
    #[arg(long, value_name = "FILE.records.jsonl")]
    pub records: Option<String>,
    /// Whether products and sums fuse; by default where the target can.
    #[arg(long, value_name = "fast|off", value_enum)]
    pub fp_contract: Option<Contract>,
    /// nvptx: float32 division, square roots and functions by approximating instructions; results
    /// are then those of the GPU, within the bounds of docs/MATH.md.
    #[arg(long)]
    pub fast_math: bool,
    /// 0: no optimisation. 1: simplified indices, Cranelift's optimiser. 2: storage sharing and
    /// accumulators in registers. 3: invariants hoisted. None changes a result.
    #[arg(long, default_value_t = 3, value_name = "0-3")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    pub opt: u8,
    /// Print the loop IR after a pass, or after `all` of them, to standard error.
    #[arg(long, value_name = "PASS|all")]
    pub dump: Option<String>,
    /// Print the milliseconds of each phase to standard error.
    #[arg(long)]
    pub time: bool,
}

/// `--fp-contract`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Contract {
    /// Each operation alone.
    Off,
    /// Fused as the language reference says.
    Fast,
}

impl CompileArgs {
    /// The driver's options.
    pub fn options(&self) -> Result<Options, Error> {
        let mut options = Options::new(Target::parse(&self.target)?);
        options.kernels = (!self.kernel.is_empty()).then(|| self.kernel.clone());
        options.defines =
            self.define.iter().map(|text| parse_define(text)).collect::<Result<_, _>>()?;
        options.schedule = match &self.schedule[..] {
            [] => None,
            [one] => Some(split_kernel(one)),
            several => {
                let names = several.join("`, `");
                let text = format!("one schedule at a time, not `{names}`");
                return Err(Error::Usage(text + "; `tec bench` compares several"));
            }
        };
        options.opt = self.opt;
        if self.fast_math {
            let Some(gpu) = &mut options.target.gpu else {
                let text = format!("`--fast-math` is for GPUs, not for {}", options.target);
                return Err(Diag::global("E0405", text)
                    .note("on CPUs functions are the same bits everywhere, and nearly as fast")
                    .help("leave it out, or give a target such as `--target nvptx-sm_80`")
                    .into());
            };
            gpu.fast_math = true;
        }
        match self.fp_contract {
            Some(Contract::Fast) => options.fp_contract = FpContract::Fast,
            Some(Contract::Off) => options.fp_contract = FpContract::Off,
            None => {}
        }
        Ok(options)
    }

    /// The same for machine code: a kernel without a schedule has one made.
    pub fn options_to_run(&self) -> Result<Options, Error> {
        Ok(Options { fallback: Fallback::Auto, ..self.options()? })
    }

    /// A trace that watches what was asked for.
    pub fn trace(&self) -> Result<Trace, Error> {
        let names = driver::pass_names();
        match &self.dump {
            Some(dump) if dump != "all" && !names.contains(&dump.as_str()) => {
                let all = names.join(", ");
                Err(Error::Usage(format!("unknown pass `{dump}`; passes: all, {all}")))
            }
            dump => Ok(Trace { dump: dump.clone(), ..Trace::default() }),
        }
    }
}

fn parse_define(text: &str) -> Result<(Option<String>, String, String), Error> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Error::Usage(format!("`-D {text}` has no value: write `-D {text}=VALUE`")));
    };
    let (kernel, name) = split_kernel(name);
    Ok((kernel, name, value.to_string()))
}

/// The kernel, if there is one before a dot, and the name behind it.
pub fn split_kernel(text: &str) -> (Option<String>, String) {
    match text.split_once('.') {
        Some((kernel, name)) => (Some(kernel.to_string()), name.to_string()),
        None => (None, text.to_string()),
    }
}

/// Imports come from the disk.
pub struct DiskLoader;

impl Loader for DiskLoader {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        input::read(Path::new(path), input::SOURCE)
    }
}

/// Reads a file, elaborates and schedules its kernels, of which there is at least one; with the
/// best schedules of `records`, if that is given.
pub fn front(
    path: &str,
    options: &Options,
    records: Option<&str>,
    trace: &mut Trace,
) -> Result<(Program, Vec<BoundedSchedule>), Error> {
    if records.is_some() && options.schedule.is_some() {
        let text = "--records and --schedule both say which schedule to use; give one of them";
        return Err(Error::Usage(text.to_string()));
    }
    let (program, graphs) = elaborate(path, options, trace)?;
    if graphs.is_empty() {
        let diag = no_kernel(path, &program);
        return Err(Error::Compile(program.sources, Failure::User(vec![diag])));
    }
    if let Some(records) = records {
        return front_recorded(path, (program, graphs), options, records, trace);
    }
    match driver::schedule(&program, graphs, options, trace) {
        Ok(kernels) => Ok((program, kernels)),
        Err(failure) => Err(Error::Compile(program.sources, failure)),
    }
}

/// That there is nothing to compile, and why.
pub fn no_kernel(path: &str, program: &Program) -> Diag {
    let is_kernel = |item: &Item| matches!(item, Item::Kernel(_));
    if !program.files[0].items.iter().any(is_kernel) {
        return Diag::global("E0540", format!("{path} has no kernel"));
    }
    Diag::global("E0540", format!("{path} has no kernel that can be built"))
        .note("a kernel whose parameter has no value is not built by itself")
        .help("give the value with `-D name=value`")
}

/// The same as if the recorded schedules stood in the file.
fn front_recorded(
    path: &str,
    (program, graphs): (Program, Vec<Graph>),
    options: &Options,
    records: &str,
    trace: &mut Trace,
) -> Result<(Program, Vec<BoundedSchedule>), Error> {
    let source = &program.sources.files[0].text;
    let (text, notes) = put_best(Path::new(records), source, &graphs, &options.target)?;
    trace.notes.extend(notes);
    let loader = EditedLoader { path: path.to_string(), text };
    let loaded = driver::load(path, &loader, trace);
    let program = loaded.map_err(|(sources, failure)| Error::Compile(sources, failure))?;
    let tuned = Some((None, edit::NAME.to_string()));
    let options = Options { schedule: tuned, ..options.clone() };
    let scheduled = driver::elaborate(&program, &options, trace)
        .and_then(|graphs| driver::schedule(&program, graphs, &options, trace));
    match scheduled {
        Ok(kernels) => Ok((program, kernels)),
        Err(Failure::User(mut diags)) => {
            // What the file of the user does not have is shown as if it stood there.
            let note = format!("the schedule `{}` comes from {records}", edit::NAME);
            diags.iter_mut().for_each(|diag| diag.notes.push(note.clone()));
            Err(Error::Compile(program.sources, Failure::User(diags)))
        }
        Err(failure) => Err(Error::Compile(program.sources, failure)),
    }
}

/// The disk, but for one file.
struct EditedLoader {
    path: String,
    text: String,
}

impl Loader for EditedLoader {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == self.path { Ok(self.text.clone().into_bytes()) } else { DiskLoader.read(path) }
    }
}

/// Reads a file and elaborates its kernels, if it has any that can be built; applies every
/// schedule.
pub fn check(path: &str, options: &Options, trace: &mut Trace) -> Result<(), Error> {
    let (program, graphs) = elaborate(path, options, trace)?;
    let checked = match &options.schedule {
        Some(_) => driver::schedule(&program, graphs, options, trace).map(|_| ()),
        None => driver::check_schedules(&program, &graphs, options, trace),
    };
    checked.map_err(|failure| Error::Compile(program.sources, failure))
}

/// Reads a file and elaborates its kernels.
pub fn elaborate(
    path: &str,
    options: &Options,
    trace: &mut Trace,
) -> Result<(Program, Vec<Graph>), Error> {
    let program = driver::load(path, &DiskLoader, trace)
        .map_err(|(sources, failure)| Error::Compile(sources, failure))?;
    match driver::elaborate(&program, options, trace) {
        Ok(graphs) => Ok((program, graphs)),
        Err(failure) => Err(Error::Compile(program.sources, failure)),
    }
}
