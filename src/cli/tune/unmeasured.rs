//! `tec tune` without measurements: the best schedules by the cost model alone.
//!
//! Nothing is recorded, because records hold measurements. The output states this and lists the
//! terms of the estimate.

use super::super::recorded::edit;
use super::report::Packed;
use super::task::CostEvaluator;
use crate::cli::bench::work::Work;
use crate::cli::estimate::table;
use crate::cli::report::Reporter;
use crate::cli::text::{duration, plural};
use crate::driver::{self, Failure, Options};
use crate::tune::Space;
use crate::tune::model::{Estimate, MachineModel};
use crate::tune::search::{CostModel, ModelSearch, Proposal};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Random candidates at the beginning.
const INITIAL_CANDIDATES: usize = 256;
/// Generations without an improvement after which the search ends, unless the user gave limits.
const MAX_IDLE_GENERATIONS: usize = 12;

/// The limits of the search.
pub struct Limits<'a> {
    /// The time for all kernels together.
    pub budget: Option<Duration>,
    /// The candidates for all kernels together.
    pub candidates: Option<usize>,
    /// Whether the user gave one of these; otherwise the search ends without improvements.
    pub given: bool,
    /// Set by Ctrl-C.
    pub stopped: &'a AtomicBool,
}

/// The result of a kernel.
pub struct EstimatedKernel {
    name: String,
    /// The work of a call, if its arguments are known.
    work: Option<Work>,
    candidates: usize,
    refused: BTreeMap<String, (usize, String)>,
    best: Option<(Proposal, Estimate)>,
    /// The inputs that the best candidate packs ahead.
    packed: Option<Packed>,
    /// The best estimate over the seconds of the search.
    curve: Vec<(f64, f64)>,
    took: Duration,
}

/// What all kernels of a run share.
pub struct EstimateInfo<'a> {
    /// The compile options.
    pub options: &'a Options,
    /// The machine of the estimates.
    pub machine: &'a MachineModel,
    /// Threads of parallel loops.
    pub threads: usize,
    /// Why nothing is measured.
    pub why: &'a str,
}

/// Searches for one kernel's schedule with one part in `parts` of the limits.
pub fn search(
    evaluator: &CostEvaluator<'_>,
    (space, model): (&dyn Space, &CostModel<'_>),
    work: Option<Work>,
    (limits, parts): (&Limits<'_>, usize),
    seed: u64,
    reporter: &Reporter,
) -> Result<EstimatedKernel, Failure> {
    let begin = Instant::now();
    let name = evaluator.graph.name.clone();
    let budget = limits.budget.map(|budget| budget / parts as u32);
    let most = limits.candidates.map(|all| (all / parts).max(1));
    let bar = reporter.spinner(format!("{name}: looking for candidates"));
    let first = most.map_or(INITIAL_CANDIDATES, |most| (most / 3).clamp(1, INITIAL_CANDIDATES));
    let mut search = ModelSearch::new(space, model, first, seed);
    let (mut curve, mut best, mut idle): (Vec<(f64, f64)>, f64, usize) =
        (Vec::new(), f64::INFINITY, 0);
    loop {
        let seconds = search.best().map_or(f64::INFINITY, |one| one.prediction.seconds);
        idle += 1;
        if seconds < best {
            (best, idle) = (seconds, 0);
            curve.push((begin.elapsed().as_secs_f64(), seconds));
            bar.set_message(format!("{name}: best estimate {}", duration(seconds)));
        }
        let over = limits.stopped.load(Ordering::SeqCst)
            || budget.is_some_and(|budget| begin.elapsed() >= budget)
            || most.is_some_and(|most| search.evaluated() >= most)
            || !limits.given && idle > MAX_IDLE_GENERATIONS;
        // A generation may have no new candidate by chance; in a small space, all candidates are
        // known.
        if over || !search.step() && idle > MAX_IDLE_GENERATIONS {
            break;
        }
    }
    bar.finish_and_clear();
    let candidates = search.evaluated();
    let best = match search.best() {
        None => None,
        Some(one) => {
            let (graph, options) = (evaluator.graph, evaluator.options);
            let again = driver::estimate_text(
                graph,
                &one.text,
                options,
                evaluator.machine,
                evaluator.threads,
            );
            Some((one.clone(), again?))
        }
    };
    let packed = best.as_ref().and_then(|(one, _)| Packed::of(evaluator, &one.text));
    let refused = evaluator.refused.borrow().clone();
    Ok(EstimatedKernel {
        name,
        work,
        candidates,
        refused,
        best,
        packed,
        curve,
        took: begin.elapsed(),
    })
}

/// Describes the machine of the table.
pub fn machine_text(machine: &MachineModel) -> String {
    match (&machine.gpu, &machine.target.gpu) {
        (Some(gpu), Some(named)) => format!(
            "a typical GPU of sm_{}: {} multiprocessors at {} GHz, {} GB/s",
            named.capability, gpu.processors, gpu.ghz, gpu.memory_rate
        ),
        _ => format!("a typical machine for {}, at {} GHz", machine.target, machine.ghz),
    }
}

/// Returns the schedules, with notes in comments.
pub fn text(head: &EstimateInfo<'_>, all: &[EstimatedKernel]) -> String {
    let mut text = String::new();
    for (at, found) in all.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        for line in lines_of(head, found) {
            text.push_str(format!("# {line}").trim_end());
            text.push('\n');
        }
        if let Some((best, _)) = &found.best {
            text.push('\n');
            text.push_str(&edit::rename_found(&best.text, &found.name));
        }
    }
    text
}

fn lines_of(head: &EstimateInfo<'_>, found: &EstimatedKernel) -> Vec<String> {
    let EstimatedKernel { name, candidates, took, .. } = found;
    let mut lines = vec![
        format!(
            "{name} on {}{}: an estimate, nothing was measured ({})",
            head.options.target,
            match head.options.target.is_gpu() {
                true => String::new(),
                false => format!(", {} thread{}", head.threads, plural(head.threads)),
            },
            head.why
        ),
        format!(
            "{candidates} candidate{} in {:.1} s, by the cost model alone, for {}",
            plural(*candidates),
            took.as_secs_f64(),
            machine_text(head.machine)
        ),
    ];
    match &found.best {
        None => lines.push("every candidate was refused: use the default schedule".into()),
        Some((_, estimate)) => {
            let seconds = estimate.seconds;
            let mut best = format!("the best is estimated to take {}", duration(seconds));
            if let Some(work) = &found.work {
                if work.flops > 0.0 {
                    best.push_str(&format!(", {:.1} GFLOP/s", work.gflops(seconds)));
                }
                best.push_str(&format!(", {:.1} GB/s", work.gbs(seconds)));
            }
            lines.push(best);
            lines.extend(found.packed.iter().flat_map(Packed::lines));
        }
    }
    for (code, (count, example)) in &found.refused {
        lines.push(format!("{count} refused with {code}, for example: {example}"));
    }
    if let Some((_, estimate)) = &found.best {
        lines.push(String::new());
        lines.extend(table(estimate).lines().map(str::to_string));
    }
    lines
}

/// Returns the results as JSON.
pub fn json(head: &EstimateInfo<'_>, all: &[EstimatedKernel]) -> String {
    let kernel = |found: &EstimatedKernel| {
        let refused: BTreeMap<&str, usize> =
            found.refused.iter().map(|(code, (count, _))| (&code[..], *count)).collect();
        let best = found.best.as_ref().map(|(best, estimate)| {
            let terms = estimate.terms.iter().map(|term| {
                json!({"name": term.kind.name(), "seconds": term.seconds, "alone": term.alone,
                       "about": term.about})
            });
            json!({
                "estimated_seconds": estimate.seconds,
                "terms": terms.collect::<Vec<_>>(),
                "decisions": best.answers,
                "schedule": best.text,
                "prepack": found.packed.as_ref().map(|packed| &packed.inputs),
            })
        });
        json!({
            "kernel": found.name,
            "candidates": found.candidates,
            "refused": refused,
            "best": best,
            "curve": found.curve,
        })
    };
    let all = json!({
        "target": head.options.target.to_string(),
        "threads": head.threads,
        "measured": false,
        "why": head.why,
        "machine": machine_text(head.machine),
        "kernels": all.iter().map(kernel).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&all).expect("plain data") + "\n"
}

/// Plots the best estimate of each kernel over the seconds of the search.
pub fn svg(all: &[EstimatedKernel]) -> String {
    let computes = |work: &Work| work.flops >= work.bytes && work.flops > 0.0;
    let gflops = all.iter().any(|found| found.work.as_ref().is_some_and(computes));
    let lines = all.iter().map(|found| {
        let rate = |seconds: f64| match &found.work {
            Some(work) if gflops => work.gflops(seconds),
            Some(work) => work.gbs(seconds),
            None => 0.0,
        };
        let points = found.curve.iter().map(|(at, seconds)| (*at, rate(*seconds))).collect();
        (found.name.clone(), points)
    });
    crate::cli::bench::plot::curves(
        "The best estimate so far: nothing was measured",
        "seconds of the search",
        if gflops { "GFLOP/s" } else { "GB/s" },
        lines.collect(),
    )
}
