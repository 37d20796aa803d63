//! `tec explain`: the cost model's estimate of a kernel, term by term.

use super::bench::machine;
use super::compile::schedule_file;
use super::options::CompileArgs;
use super::report::{Error, print, show_trace};
use super::text::duration;
use super::threads::{self, MAX_THREADS};
use crate::driver::{self, Options};
use crate::schedule::PrepackedInputs;
use crate::target::Target;
use crate::tune::model::{Estimate, MachineModel, estimate};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  tec explain matmul.te                             # the cost of each part, and its loop
  tec explain matmul.te --schedule block -D n=512   # under one schedule
  tec explain matmul.te --machine typical --json    # for a typical machine, as JSON";

/// Estimate the run time of kernels with the cost model.
///
/// Prints each term of the estimate with its share of the total. `tec tune` and `--schedule auto`
/// use the same model to rank schedules; as a prediction of seconds it is rough. If terms overlap
/// in time, the longest counts in full and the others in part (docs/COST-MODEL.md).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// Source file.
    #[arg(value_name = "FILE.te")]
    file: String,
    /// Threads for parallel loops, 512 at most [default: $TEC_NUM_THREADS, else one per CPU]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_THREADS))]
    threads: Option<u32>,
    /// Machine to estimate for [default: measured, if `tec bench` measured this machine]
    #[arg(long, value_enum, value_name = "WHICH")]
    machine: Option<MachineOption>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    compile: CompileArgs,
}

/// `--machine`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum MachineOption {
    /// This machine, with the limits that `tec bench` measured or measures now.
    Measured,
    /// A typical machine of the target.
    Typical,
}

/// Runs the command.
pub fn run(args: &ExplainArgs) -> Result<(), Error> {
    let options = args.compile.options_to_run()?;
    let mut trace = args.compile.trace()?;
    let threads = args.threads.map_or_else(threads::usual, |threads| threads as usize);
    let (machine, measured) = machine_of(args.machine, &options.target, threads)?;
    let (program, bounded) =
        schedule_file(&args.file, &options, args.compile.records.as_deref(), &mut trace)?;
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    let mut all = Vec::new();
    for one in &bounded {
        let kernel = driver::lower_to_estimate(one, &options, &mut trace).map_err(failed)?;
        let ahead =
            driver::prepacked_kernel(one, &PrepackedInputs::All, &mut trace).map_err(failed)?;
        let ahead = match ahead {
            None => None,
            Some(ahead) => {
                let kernel = driver::lower_to_estimate(&ahead, &options, &mut trace);
                let seconds = estimate(&kernel.map_err(failed)?, &machine, threads).seconds;
                let inputs = driver::packed_in_calls(one, &mut trace).map_err(failed)?;
                Some((inputs, seconds))
            }
        };
        let schedule = super::bench::label(&one.schedule).to_string();
        let estimate = estimate(&kernel, &machine, threads);
        all.push(KernelEstimate { kernel: kernel.name.clone(), schedule, estimate, ahead });
    }
    show_trace(&trace, args.compile.time);
    let from = if measured { "measured" } else { "typical" };
    match args.json {
        true => print(&as_json(&all, &options, threads, from)),
        false => print(&as_text(&all, &options, threads, from)),
    }
}

/// The estimate of a kernel.
struct KernelEstimate {
    kernel: String,
    schedule: String,
    /// The estimate of a call.
    estimate: Estimate,
    /// The `layout_free` inputs that the call packs, and its seconds without the packing.
    ahead: Option<(Vec<String>, f64)>,
}

/// Returns the options of `tec build` that pack these inputs ahead.
pub fn prepack_options(inputs: &[String]) -> String {
    let options: Vec<String> = inputs.iter().map(|name| format!("--prepack {name}")).collect();
    options.join(" ")
}

/// Returns the machine to estimate for, and whether its limits were measured.
fn machine_of(
    which: Option<MachineOption>,
    target: &Target,
    threads: usize,
) -> Result<(MachineModel, bool), Error> {
    let typical = MachineModel::typical(target);
    let here = target.runs_here();
    if which == Some(MachineOption::Measured) && !here {
        let text = format!("--machine measured: code for {target} does not run on this machine");
        return Err(Error::Usage(text));
    }
    if which == Some(MachineOption::Typical) || !here {
        return Ok((typical, false));
    }
    let (isa, threads) = (machine::Isa::of(target), super::cpu::at_most(threads));
    let kept = machine::cache::load(isa, threads);
    let known = match (kept, which) {
        (Some(kept), _) => kept,
        (None, Some(_)) => machine::Machine::measure(isa, threads),
        (None, None) => return Ok((typical, false)),
    };
    Ok((known.refine(typical), true))
}

fn as_text(all: &[KernelEstimate], options: &Options, threads: usize, from: &str) -> String {
    let mut text = String::new();
    for (at, KernelEstimate { kernel, schedule, estimate, ahead }) in all.iter().enumerate() {
        let gap = if at > 0 { "\n" } else { "" };
        let threads = match (options.target.is_gpu(), threads) {
            (true, _) => String::new(),
            (false, 1) => ", 1 thread".to_string(),
            (false, threads) => format!(", {threads} threads"),
        };
        text.push_str(&format!(
            "{gap}{kernel}, schedule {schedule}, {}{threads}, {from} machine\n\n",
            options.target
        ));
        text.push_str(&table(estimate));
        if let Some(first) = estimate.terms.first() {
            text.push_str(&format!("\nbound by {}\n", first.kind.name()));
        }
        if let Some((inputs, seconds)) = ahead {
            let less = 100.0 * (1.0 - seconds / estimate.seconds);
            text.push_str(&format!(
                "with `tec build {}`: {}, {less:.1} % less\n",
                prepack_options(inputs),
                duration(*seconds)
            ));
        }
    }
    text
}

/// Returns the terms of an estimate, a line for each, and the total.
pub fn table(estimate: &Estimate) -> String {
    let names = estimate.terms.iter().map(|term| term.kind.name().len());
    let width = names.max().unwrap_or(0).max(5);
    let line = |name: &str, seconds: f64, share: f64, alone: &str, about: &str| {
        let line = format!(
            "{name:width$}  {:>10}  {:>5.1} %  {alone:>10}  {about}",
            duration(seconds),
            100.0 * share
        );
        line.trim_end().to_string() + "\n"
    };
    let mut text =
        format!("{:width$}  {:>10}  {:>7}  {:>10}  where\n", "", "time", "share", "alone");
    for term in &estimate.terms {
        let share = term.seconds / estimate.seconds;
        text.push_str(&line(
            term.kind.name(),
            term.seconds,
            share,
            &duration(term.alone),
            &term.about,
        ));
    }
    text + &line("total", estimate.seconds, 1.0, "", "")
}

fn as_json(all: &[KernelEstimate], options: &Options, threads: usize, from: &str) -> String {
    let kernel = |KernelEstimate { kernel, schedule, estimate, ahead }: &KernelEstimate| {
        let terms = estimate.terms.iter().map(|term| {
            json!({"name": term.kind.name(), "seconds": term.seconds, "alone": term.alone,
                   "about": term.about})
        });
        json!({"kernel": kernel, "schedule": schedule, "seconds": estimate.seconds,
        "terms": terms.collect::<Vec<_>>(), "features": estimate.features,
        "prepacked": ahead.as_ref().map(|(inputs, seconds)| json!({
            "inputs": inputs, "seconds": seconds,
        })),
        "warps": estimate.warps.map(|warps| json!({
            "wavefronts": warps.wavefronts, "ideal_wavefronts": warps.ideal_wavefronts,
            "sectors": warps.sectors, "ideal_sectors": warps.ideal_sectors,
        }))})
    };
    let all = json!({
        "target": options.target.to_string(),
        "threads": threads,
        "machine": from,
        "kernels": all.iter().map(kernel).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&all).expect("plain data") + "\n"
}
