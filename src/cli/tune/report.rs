//! The output of a search: its progress and its results.

use super::super::recorded::edit;
use super::task::{CostEvaluator, FailureKind, Task, TaskView, Winner};
use crate::cli::bench::stats::Summary;
use crate::cli::bench::work::{Roofline, Work};
use crate::cli::estimate::prepack_options;
use crate::cli::report::Reporter;
use crate::cli::text::{duration, plural};
use crate::driver::{self, Options};
use crate::schedule::PrepackedInputs;
use crate::target::Target;
use indicatif::ProgressBar;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The result of one kernel's search.
pub struct Report {
    name: String,
    kernel: String,
    vars: BTreeMap<String, i64>,
    /// The number of threads, or the GPU's name.
    place: String,
    workload: String,
    wrong: Vec<PathBuf>,
    trials: usize,
    known: usize,
    failures: BTreeMap<FailureKind, (usize, String)>,
    work: Work,
    roofline: Option<Roofline>,
    winner: Option<Winner>,
    /// The inputs that the winner packs ahead.
    packed: Option<Packed>,
    /// The best time over the seconds of the search.
    curve: Vec<(f64, f64)>,
    exhausted: bool,
    took: Duration,
}

impl Report {
    /// Returns the report of a finished search.
    pub fn new(task: &Task<'_>, winner: Option<Winner>, took: Duration) -> Report {
        let context = &task.log.context;
        let threads = context.threads;
        let on_gpu = Target::parse(&context.target).is_ok_and(|target| target.is_gpu());
        let place = match on_gpu {
            true => context.machine.cpu.clone(),
            false => format!("{threads} thread{}", plural(threads)),
        };
        Report {
            name: task.name.clone(),
            kernel: context.kernel.clone(),
            vars: context.vars.clone(),
            place,
            workload: task.log.context.workload.clone(),
            wrong: task.wrong.clone(),
            trials: task.trials,
            known: task.search.trials().len(),
            failures: task.failures(),
            work: task.work,
            roofline: task.roofline.clone(),
            winner,
            packed: None,
            curve: task.curve.clone(),
            exhausted: task.progress.exhausted,
            took,
        }
    }

    /// Finds the inputs that the winner packs ahead.
    pub fn find_packed(&mut self, evaluator: &CostEvaluator<'_>) {
        let winner = self.winner.as_ref();
        self.packed = winner.and_then(|one| Packed::of(evaluator, &one.trial.proposal.text));
    }
}

/// The `layout_free` inputs that a schedule packs; the measured time does not include packing.
pub struct Packed {
    /// Their names.
    pub inputs: Vec<String>,
    /// Estimated seconds that packing adds to a call.
    pub adds: f64,
}

impl Packed {
    /// Returns the packed inputs of a schedule, if there are any.
    pub fn of(evaluator: &CostEvaluator<'_>, text: &str) -> Option<Packed> {
        let inputs = driver::packed_ahead(evaluator.graph, text, evaluator.options).ok()?;
        if inputs.is_empty() {
            return None;
        }
        let seconds = |prepacked: PrepackedInputs| {
            let options = Options { prepacked, ..evaluator.options.clone() };
            let (graph, machine) = (evaluator.graph, evaluator.machine);
            let estimate = driver::estimate_text(graph, text, &options, machine, evaluator.threads);
            estimate.map(|estimate| estimate.seconds).ok()
        };
        let adds = seconds(PrepackedInputs::None)? - seconds(PrepackedInputs::All)?;
        Some(Packed { inputs, adds: adds.max(0.0) })
    }

    /// Returns the options that pack ahead, and the time that they save.
    pub fn lines(&self) -> [String; 2] {
        let names: Vec<String> = self.inputs.iter().map(|name| format!("`{name}`")).collect();
        let (names, adds) = (names.join(" and "), duration(self.adds));
        [
            format!(
                "this time is with {names} packed ahead: tec build {}",
                prepack_options(&self.inputs)
            ),
            format!("otherwise each call packs, which takes about {adds} more by the cost model"),
        ]
    }
}

/// What all kernels of a run share.
pub struct RunInfo<'a> {
    /// The compile options.
    pub options: &'a Options,
    /// Threads of parallel loops.
    pub threads: usize,
    /// The file of records.
    pub records: &'a Path,
    /// The source, if it has a network.
    pub network: Option<&'a str>,
    /// The schedules with versions, by kernel.
    pub versions: BTreeMap<String, String>,
}

/// Returns the schedules, with notes in comments.
pub fn text(head: &RunInfo<'_>, reports: &[Report]) -> String {
    let mut text = String::new();
    for (at, report) in reports.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        lines_of(head, report).iter().for_each(|line| text.push_str(&format!("# {line}\n")));
        let is_last = reports.get(at + 1).is_none_or(|next| next.kernel != report.kernel);
        match (&report.winner, head.versions.get(&report.kernel)) {
            // A schedule of a network's kernel has no place in the source.
            _ if head.network.is_some() => {}
            (_, Some(versions)) if is_last => text.push_str(&format!("\n{versions}")),
            (Some(winner), None) => {
                text.push('\n');
                text.push_str(&edit::rename_found(&winner.trial.proposal.text, &report.kernel));
            }
            _ => {}
        }
    }
    if let Some(file) = head.network {
        let records = head.records.display();
        text.push_str(&format!("\ntec build {file} --records {records}\n"));
    }
    text
}

fn lines_of(head: &RunInfo<'_>, report: &Report) -> Vec<String> {
    let target = &head.options.target;
    let (name, place, trials) = (&report.name, &report.place, report.trials);
    let mut lines = vec![format!(
        "{name} on {target}, {place}: {trials} trial{} in {:.1} s",
        plural(trials),
        report.took.as_secs_f64()
    )];
    if report.exhausted {
        lines[0].push_str("; the space is exhausted");
    }
    match &report.winner {
        None if report.known == 0 => {
            lines.push("no candidate was tried: the limits are too small".to_string())
        }
        None => lines.push("no candidate ran: use the default schedule".to_string()),
        Some(winner) => {
            let mut best = format!("the best takes {}", duration(winner.seconds));
            if report.work.flops > 0.0 {
                best.push_str(&format!(", {:.1} GFLOP/s", report.work.gflops(winner.seconds)));
            }
            best.push_str(&format!(", {:.1} GB/s", report.work.gbs(winner.seconds)));
            if let Some(roofline) = &report.roofline {
                let part = 100.0 * roofline.seconds / winner.seconds;
                best.push_str(&format!(": {part:.0} % of what {} allows", roofline.limit_name));
            }
            lines.push(best);
            // A network packs its params when it is built.
            let packed = report.packed.iter().filter(|_| head.network.is_none());
            lines.extend(packed.flat_map(Packed::lines));
        }
    }
    for path in &report.wrong {
        lines.push(format!("a bug in tec: {} holds a wrong candidate", path.display()));
    }
    for (kind, (count, example)) in &report.failures {
        let example = example.lines().next().unwrap_or_default();
        // The user needs the whole message of a runner.
        let most = if *kind == FailureKind::Runner { usize::MAX } else { 70 };
        let short: String = example.chars().take(most).collect();
        let dots = if short.len() < example.len() { "…" } else { "" };
        let kind = kind.name();
        lines.push(format!("{count} {kind}, for example: {short}{dots}"));
    }
    lines
}

/// Returns the results as JSON.
pub fn json(head: &RunInfo<'_>, reports: &[Report]) -> String {
    let kernel = |report: &Report| {
        let failures: BTreeMap<&str, usize> =
            report.failures.iter().map(|(kind, (count, _))| (kind.name(), *count)).collect();
        let best = report.winner.as_ref().map(|winner| {
            let times = Summary::new(&winner.times);
            json!({
                "seconds": winner.seconds,
                "q1": times.q1,
                "q3": times.q3,
                "gflops": report.work.gflops(winner.seconds),
                "gbs": report.work.gbs(winner.seconds),
                "roofline": report.roofline.as_ref().map(|limit| limit.seconds / winner.seconds),
                "limit": report.roofline.as_ref().map(|roofline| roofline.limit_name.clone()),
                "decisions": winner.trial.proposal.answers,
                "schedule": winner.trial.proposal.text,
                "prepack": report.packed.as_ref().map(|packed| &packed.inputs),
            })
        });
        json!({
            "kernel": report.kernel,
            "vars": report.vars,
            "workload": report.workload,
            "wrong": report.wrong,
            "trials": report.trials,
            "known": report.known,
            "exhausted": report.exhausted,
            "failures": failures,
            "best": best,
            "curve": report.curve,
        })
    };
    let all = json!({
        "target": head.options.target.to_string(),
        "threads": head.threads,
        "records": head.records,
        "kernels": reports.iter().map(kernel).collect::<Vec<_>>(),
        "versions": head.versions,
    });
    serde_json::to_string_pretty(&all).expect("plain data") + "\n"
}

/// Shows the progress of a search: a status line on a terminal, else a line of text in each
/// [`LINE_INTERVAL`].
pub struct ProgressLine {
    bar: ProgressBar,
    begin: Instant,
    budget: Option<Duration>,
    most: Option<usize>,
    /// The last best time of each kernel.
    best: BTreeMap<String, f64>,
    /// The time of the last line, without a terminal.
    said: Instant,
    trials: BTreeMap<String, usize>,
}

/// The interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

impl ProgressLine {
    /// Starts the display.
    pub fn new(
        reporter: &Reporter,
        budget: Option<Duration>,
        most: Option<usize>,
        begin: Instant,
    ) -> ProgressLine {
        let bar = reporter.spinner("looking for candidates".to_string());
        let (best, trials) = (BTreeMap::new(), BTreeMap::new());
        ProgressLine { bar, begin, budget, most, best, said: Instant::now(), trials }
    }

    /// Updates the display after trials of a kernel.
    pub fn show(&mut self, view: &TaskView<'_>) {
        self.trials.insert(view.name.to_string(), view.trials);
        let trials: usize = self.trials.values().sum();
        let elapsed = self.begin.elapsed();
        let mut text = format!("{}: ", view.name);
        text.push_str(&match view.best {
            None => "no correct candidate yet".to_string(),
            Some(best) if view.work.flops >= view.work.bytes => {
                format!("best {:.1} GFLOP/s ({})", view.work.gflops(best), duration(best))
            }
            Some(best) => format!("best {:.1} GB/s ({})", view.work.gbs(best), duration(best)),
        });
        let rate = trials as f64 / elapsed.as_secs_f64().max(1e-9);
        text.push_str(&format!(", {trials} trial{}, {rate:.1} a second", plural(trials)));
        if !view.failures.is_empty() {
            let kinds =
                view.failures.iter().map(|(kind, count)| format!("{count} {}", kind.name()));
            text.push_str(&format!(", {}", kinds.collect::<Vec<_>>().join(", ")));
        }
        match (self.budget, self.most) {
            (Some(budget), _) => {
                let left = budget.saturating_sub(elapsed).as_secs();
                text.push_str(&format!(", {left} s left"));
            }
            (None, Some(most)) => {
                text.push_str(&format!(", {} to go", most.saturating_sub(trials)))
            }
            (None, None) => {}
        }
        let known = self.best.get(view.name).copied();
        let better = view.best.is_some_and(|best| known.is_none_or(|known| best < known));
        if let Some(best) = view.best {
            self.best.insert(view.name.to_string(), best);
        }
        if self.bar.is_hidden()
            && (self.said.elapsed() >= LINE_INTERVAL || (better && known.is_none()))
        {
            eprintln!("{text}");
            self.said = Instant::now();
        }
        self.bar.set_message(text);
    }

    /// Prints a line that stays.
    pub fn note(&mut self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// Ends the display.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}

/// Plots the best rate of each kernel over the seconds of the search.
pub fn svg(reports: &[Report]) -> String {
    let computes =
        |report: &Report| report.work.flops >= report.work.bytes && report.work.flops > 0.0;
    let gflops = reports.iter().any(computes);
    let lines = reports.iter().map(|report| {
        let rate = |seconds: f64| match gflops {
            true => report.work.gflops(seconds),
            false => report.work.gbs(seconds),
        };
        let points = report.curve.iter().map(|(at, seconds)| (*at, rate(*seconds))).collect();
        (report.name.clone(), points)
    });
    let upwards = if gflops { "GFLOP/s" } else { "GB/s" };
    crate::cli::bench::plot::curves(
        "The best schedule so far",
        "seconds of the search",
        upwards,
        lines.collect(),
    )
}
