//! `tec explain`: the cost model's estimate of a kernel, term by term.

use super::arguments::run_time_integers;
use super::compile::{Compiled, compile_file};
use super::machine;
use super::options::CompileArgs;
use super::report::{Error, print, show_trace};
use super::text::duration;
use super::threads::{self, MAX_THREADS};
use crate::driver::{self, Failure, Network, Options, Trace};
use crate::ir::{Kernel, Param, Var};
use crate::schedule::{BoundedSchedule, PrepackedInputs};
use crate::target::Target;
use crate::tune::model::{Estimate, MachineModel, RunTimeValues, estimate_at};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  tec explain matmul.te                             # the cost of each part, and its loop
  tec explain matmul.te --schedule block -D n=512   # under one schedule
  tec explain matmul.te --machine typical --json    # for a typical machine, as JSON
  tec explain gemv.te --var n=4                     # of calls with this run-time integer
  tec explain resnet50.onnx                         # the kernels of a network
  tec explain resnet50.onnx --terms                 # the cost of their parts, too";

/// Estimate the run time of kernels with the cost model.
///
/// Prints each term of the estimate with its share of the total. `tec tune` and `--schedule auto`
/// use the same model to rank schedules; as a prediction of seconds it is rough. If terms overlap
/// in time, the longest counts in full and the others in part (docs/COST-MODEL.md). For a network,
/// prints what each of its kernels takes of a call.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// Source file, or an ONNX model.
    #[arg(value_name = "FILE")]
    file: String,
    /// Threads for parallel loops, 512 at most [default: $TEC_NUM_THREADS, else one per CPU]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_THREADS))]
    threads: Option<u32>,
    /// Estimate calls with this value of a run-time integer (repeatable)
    ///
    /// Without a value, extents count as 251, and branches on them as taken in half of the cases.
    /// `KERNEL.NAME` is for one of several kernels.
    #[arg(long, value_name = "n=100")]
    var: Vec<String>,
    /// Machine to estimate for [default: measured, if `tec bench` measured this machine]
    #[arg(long, value_enum, value_name = "WHICH")]
    machine: Option<MachineOption>,
    /// Print the terms of each kernel of a network.
    #[arg(long, conflicts_with = "json")]
    terms: bool,
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
    let compiled = compile_file(&args.file, args.compile.side_files(), &options, &mut trace)?;
    let Compiled { program, bounded, networks, .. } = &compiled;
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    if let (Some(network), [var, ..]) = (networks.first(), &args.var[..]) {
        let name = &network.graph.name;
        let text =
            format!("`--var {var}`: `{name}` is a network; estimates with values are for kernels");
        return Err(Error::Usage(text));
    }
    let mut estimator = Estimator { machine, threads, options: &options, trace: &mut trace };
    let kernels: Result<Vec<_>, _> = bounded.iter().map(|one| estimator.lower(one)).collect();
    let kernels = kernels.map_err(failed)?;
    let known: Vec<&Kernel> = kernels.iter().collect();
    let mut all = Vec::new();
    for (one, kernel) in bounded.iter().zip(&kernels) {
        let mut values = typical_call(one);
        values.extend(values_of(&args.var, kernel, &known)?);
        all.push(estimator.kernel(one, kernel, &values).map_err(failed)?);
    }
    for network in networks {
        all.extend(estimator.network(network).map_err(failed)?);
    }
    show_trace(&trace, args.compile.time);
    let from = if measured { "measured" } else { "typical" };
    if args.json {
        return print(&as_json(&all, &options, threads, from));
    }
    let (parts, kernels): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.part.is_some());
    let mut text = as_text(&kernels, &options, threads, from);
    for network in networks {
        let gap = if text.is_empty() { "" } else { "\n" };
        let name = &network.graph.name;
        let head = head_of(name, "", &options, threads, from);
        text.push_str(&format!("{gap}{head}\n{}", network_table(name, &parts)));
    }
    if args.terms {
        text.push_str(&format!("\n{}", as_text(&parts, &options, threads, from)));
    }
    print(&text)
}

/// Estimates kernels.
struct Estimator<'a> {
    machine: MachineModel,
    threads: usize,
    options: &'a Options,
    trace: &'a mut Trace,
}

impl Estimator<'_> {
    fn lower(&mut self, one: &BoundedSchedule) -> Result<Kernel, Failure> {
        driver::lower_to_estimate(one, self.options, self.trace)
    }

    /// Returns the estimate of a kernel for calls with these run-time integers.
    fn kernel(
        &mut self,
        one: &BoundedSchedule,
        kernel: &Kernel,
        values: &RunTimeValues,
    ) -> Result<KernelEstimate, Failure> {
        let ahead = match driver::prepacked_kernel(one, &PrepackedInputs::All, self.trace)? {
            None => None,
            Some(ahead) => {
                let kernel = self.lower(&ahead)?;
                let inputs = driver::packed_in_calls(one, self.trace)?;
                Some((inputs, self.estimate(&kernel, values)))
            }
        };
        Ok(KernelEstimate {
            kernel: kernel.name.clone(),
            schedule: super::bench::label(&one.schedule).to_string(),
            estimate: self.estimate(kernel, values),
            ahead,
            part: None,
        })
    }

    fn estimate(&self, kernel: &Kernel, values: &RunTimeValues) -> Estimate {
        let estimates = estimate_at(kernel, &self.machine, &[self.threads], values);
        estimates.into_iter().next().expect("an estimate for each number of threads")
    }

    /// Returns the estimates of the kernels of a network, whose params are packed already.
    fn network(&mut self, network: &Network) -> Result<Vec<KernelEstimate>, Failure> {
        let calls = &network.planned.plan.calls;
        let mut all = Vec::new();
        for (at, one) in network.kernels.iter().enumerate() {
            let kernel = self.lower(&one.bounded)?;
            let values = typical_call(&one.bounded);
            let mut found = self.kernel(&one.bounded, &kernel, &values)?;
            if let Some((_, estimate)) = found.ahead.take() {
                found.estimate = estimate;
            }
            let calls = calls.iter().filter(|call| call.kernel == at).count();
            found.part = Some(Part { network: network.graph.name.clone(), calls });
            all.push(found);
        }
        Ok(all)
    }
}

/// Returns the run-time integers of the first typical call of a kernel.
fn typical_call(one: &BoundedSchedule) -> RunTimeValues {
    driver::typical_calls(&one.schedule.graph).swap_remove(0)
}

/// Returns the values that `--var` gives to the run-time integers of `kernel`, one of `kernels`.
fn values_of(
    settings: &[String],
    kernel: &Kernel,
    kernels: &[&Kernel],
) -> Result<RunTimeValues, Error> {
    let given = run_time_integers(settings, kernel, kernels)?;
    let vars = kernel.params.iter().filter_map(|param| match param {
        Param::Runtime { var, .. } => Some(var),
        _ => None,
    });
    let value = |var: &Var| given.iter().find(|(name, _)| name == var.name()).map(|given| given.1);
    Ok(vars.filter_map(|var| Some((var.clone(), value(var)?))).collect())
}

/// The estimate of a kernel.
struct KernelEstimate {
    kernel: String,
    schedule: String,
    /// The estimate of a call.
    estimate: Estimate,
    /// The `layout_free` inputs that the call packs, and the estimate without the packing.
    ahead: Option<(Vec<String>, Estimate)>,
    /// The network that it is a part of.
    part: Option<Part>,
}

/// A kernel's place in a network.
struct Part {
    network: String,
    /// The number of calls in one call of the network.
    calls: usize,
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

/// Returns the line that says what is estimated.
fn head_of(name: &str, schedule: &str, options: &Options, threads: usize, from: &str) -> String {
    let threads = match (options.target.is_gpu(), threads) {
        (true, _) => String::new(),
        (false, 1) => ", 1 thread".to_string(),
        (false, threads) => format!(", {threads} threads"),
    };
    format!("{name}{schedule}, {}{threads}, {from} machine\n", options.target)
}

/// Returns a table of the kernels of a network, the most expensive first.
fn network_table(network: &str, parts: &[KernelEstimate]) -> String {
    let calls = |one: &KernelEstimate| {
        one.part.as_ref().filter(|part| part.network == network).map(|part| part.calls)
    };
    let mut rows: Vec<(&KernelEstimate, usize, f64)> = parts
        .iter()
        .filter_map(|one| calls(one).map(|calls| (one, calls, one.estimate.seconds * calls as f64)))
        .collect();
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    let sum: f64 = rows.iter().map(|(.., total)| total).sum();
    let names = rows.iter().map(|(one, ..)| one.kernel.chars().count());
    let width = names.max().unwrap_or(0).max(6);
    let schedules = rows.iter().map(|(one, ..)| one.schedule.len()).max().unwrap_or(0).max(8);
    let mut text = format!(
        "{:width$}  {:schedules$}  calls       time      total    share  bound by\n",
        "kernel", "schedule"
    );
    for (one, calls, total) in &rows {
        let bound = one.estimate.terms.first().map_or("", |term| term.kind.name());
        text.push_str(&format!(
            "{:width$}  {:schedules$}  {calls:>5}  {:>9}  {:>9}  {:>5.1} %  {bound}\n",
            one.kernel,
            one.schedule,
            duration(one.estimate.seconds),
            duration(*total),
            100.0 * total / sum,
        ));
    }
    text + &format!(
        "{:width$}  {:schedules$}         {:>9}  {:>9}\n",
        "total",
        "",
        "",
        duration(sum)
    )
}

fn as_text(all: &[KernelEstimate], options: &Options, threads: usize, from: &str) -> String {
    let mut text = String::new();
    for (at, KernelEstimate { kernel, schedule, estimate, ahead, .. }) in all.iter().enumerate() {
        let gap = if at > 0 { "\n" } else { "" };
        let schedule = format!(", schedule {schedule}");
        let head = head_of(kernel, &schedule, options, threads, from);
        text.push_str(&format!("{gap}{head}\n"));
        text.push_str(&table(estimate));
        if let Some(first) = estimate.terms.first() {
            text.push_str(&format!("\nbound by {}\n", first.kind.name()));
        }
        if let Some((inputs, Estimate { seconds, .. })) = ahead {
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
    let kernel = |KernelEstimate { kernel, schedule, estimate, ahead, part }: &KernelEstimate| {
        let terms = estimate.terms.iter().map(|term| {
            json!({"name": term.kind.name(), "seconds": term.seconds, "alone": term.alone,
                   "about": term.about})
        });
        json!({"kernel": kernel, "schedule": schedule, "seconds": estimate.seconds,
        "terms": terms.collect::<Vec<_>>(), "features": estimate.features,
        "prepacked": ahead.as_ref().map(|(inputs, estimate)| json!({
            "inputs": inputs, "seconds": estimate.seconds,
        })),
        "network": part.as_ref().map(|part| json!({
            "name": part.network, "calls": part.calls,
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
