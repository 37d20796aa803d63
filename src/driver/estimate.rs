//! The cost model's estimates of kernels under schedules.

use super::passes::PassId;
use super::run_pass::run_pass;
use super::{Failure, Options, STACK_BYTES, SearchTrace, Trace, lower};
use crate::codegen::ptx;
use crate::ir::arith::budget;
use crate::ir::launch::launch_unbound_stages;
use crate::ir::print::{Style, print_kernel};
use crate::ir::visit::{any_expr, walk_stmt};
use crate::ir::{Kernel, PrepackRole};
use crate::lang::ParsedLines;
use crate::schedule::{self, BoundedSchedule, infer_bounds};
use crate::te::Graph;
use crate::tune::model::{self, Estimate, MachineModel, RunTimeValues};
use std::io;
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

/// The passes after `vectorize_loops` whose results the cost model needs: which back end compiles a
/// nest, and what an access and a math function become.
const ESTIMATED: [PassId; 3] = [PassId::SplitClampedLoads, PassId::OutlineSimd, PassId::ExpandMath];

/// Lowers a scheduled kernel to what the cost model reads (`tune::model`): with vectors and with
/// the nests of the SIMD back end outlined. Unrolled loops stay loops, because writing them out
/// takes most of the time of lowering and does not change the estimate.
pub fn lower_to_estimate(
    bounded: &BoundedSchedule,
    options: &Options,
    trace: &mut Trace,
) -> Result<Kernel, Failure> {
    let mut kernel = lower(bounded, options, Some(PassId::VectorizeLoops), trace)?;
    for id in ESTIMATED {
        kernel = run_pass(id, kernel, &options.target, options.opt, trace)?;
    }
    if options.target.is_gpu() {
        kernel.body = launch_unbound_stages(ptx::annotate_unrolled(kernel.body));
    }
    Ok(kernel)
}

/// Returns the kernel that takes these `layout_free` inputs packed, if its schedule packs any of
/// them.
pub fn prepacked_kernel(
    bounded: &BoundedSchedule,
    inputs: &schedule::PrepackedInputs,
    trace: &mut Trace,
) -> Result<Option<BoundedSchedule>, Failure> {
    let kernels =
        trace.phase("prepack", &String::new, || schedule::prepack_layout_free(bounded, inputs))?;
    Ok(kernels.and_then(|mut kernels| kernels.pop()))
}

/// Returns the `layout_free` inputs that each call of a kernel packs.
pub fn packed_in_calls(
    bounded: &BoundedSchedule,
    trace: &mut Trace,
) -> Result<Vec<String>, Failure> {
    let prepacked = prepacked_kernel(bounded, &schedule::PrepackedInputs::All, trace)?;
    Ok(match prepacked.and_then(|kernel| kernel.prepack_role) {
        Some(PrepackRole::Prepacked { inputs, .. }) => inputs,
        _ => Vec::new(),
    })
}

/// Returns the `layout_free` inputs that a schedule given as text packs.
pub fn packed_ahead(graph: &Graph, text: &str, options: &Options) -> Result<Vec<String>, Failure> {
    let (target, defines) = (&options.target, &options.defines);
    let schedule = schedule::apply_text(graph, target, defines, text)?;
    packed_in_calls(&infer_bounds(schedule)?, &mut Trace::default())
}

/// Returns the run-time integers of the calls that a kernel's automatic schedule is for. Without
/// `estimate` statements, one set without values: the cost model assumes usual ones.
pub fn typical_calls(graph: &Graph) -> Vec<RunTimeValues> {
    match &graph.estimates[..] {
        [] => vec![RunTimeValues::default()],
        calls => calls.iter().map(|call| call.values.iter().cloned().collect()).collect(),
    }
}

/// Estimates a kernel under a schedule given as text.
pub fn estimate_text(
    graph: &Graph,
    text: &str,
    options: &Options,
    machine: &MachineModel,
    threads: usize,
) -> Result<Estimate, Failure> {
    let (parsed, values) = (ParsedLines::default(), [RunTimeValues::default()]);
    let at = (machine, &[threads][..], &values[..]);
    estimate_lines(graph, text, options, at, &parsed, &mut Trace::default()).map(only)
}

/// Returns the estimate for one number of threads and one set of run-time integers.
fn only(estimates: Vec<Estimate>) -> Estimate {
    estimates.into_iter().next().expect("an estimate for each set of values")
}

/// Like [`estimate_text`], with the lines that were parsed for other schedules.
fn estimate_lines(
    graph: &Graph,
    text: &str,
    options: &Options,
    (machine, threads, values): (&MachineModel, &[usize], &[RunTimeValues]),
    parsed: &ParsedLines,
    trace: &mut Trace,
) -> Result<Vec<Estimate>, Failure> {
    let (target, defines) = (&options.target, &options.defines);
    let apply = || {
        let fast = schedule::apply_lines(graph, target, defines, text, parsed);
        if let Some(bounded) = fast.and_then(|schedule| infer_bounds(schedule).ok()) {
            return Ok(bounded);
        }
        // The places of errors are in the whole text.
        infer_bounds(schedule::apply_text(graph, target, defines, text)?)
    };
    let terms_before = budget::spent();
    let bounded = trace.phase("schedule", &String::new, apply)??;
    let bounded = prepacked_kernel(&bounded, &options.prepacked, trace)?.unwrap_or(bounded);
    let kernel = lower_to_estimate(&bounded, options, trace)?;
    let calls = values.len() * threads.len();
    trace.search.effort += budget::spent() - terms_before + effort(&kernel, calls);
    let print = || print_kernel(&kernel, Style::Full);
    let at = |values| model::estimate_at(&kernel, machine, threads, values);
    trace.phase("estimate", &print, || values.iter().flat_map(at).collect())
}

/// Returns the microseconds that lowering a kernel and `calls` estimates took on a Zen 5, without
/// the proofs, of which a term takes one. The numbers are a fit to 15,000 candidates of kernels of
/// `bench/cliffs`, with a median error of 14 %.
fn effort(kernel: &Kernel, calls: usize) -> i64 {
    let (mut nodes, mut stmts) = (0, 0);
    walk_stmt(&kernel.body, &mut |_| stmts += 1, &mut |expr| {
        any_expr(expr, &mut |_| {
            nodes += 1;
            false
        });
    });
    nodes * 3 / 2 + stmts * 10 + (nodes / 16 + stmts * 3 / 2) * calls as i64
}

/// Estimates a kernel under several schedules, on all cores of this machine. `parsed` keeps the
/// lines of the schedules for further calls. If the system refuses
/// a thread, its part runs on the calling one, which needs the stack of [`super::with_stack`].
pub fn estimate_texts(
    graph: &Graph,
    texts: &[&str],
    options: &Options,
    machine: &MachineModel,
    threads: usize,
    parsed: &ParsedLines,
) -> Vec<Result<Estimate, Failure>> {
    let at = (machine, &[threads][..], &[RunTimeValues::default()][..]);
    let mut search = SearchTrace::default();
    let estimates = estimate_texts_at(graph, texts, options, at, parsed, &mut search);
    estimates.into_iter().map(|estimate| estimate.map(only)).collect()
}

/// Like [`estimate_texts`], with estimates for several sets of run-time integers, each for several
/// numbers of threads. Adds the candidates and their times to `search`.
pub(super) fn estimate_texts_at(
    graph: &Graph,
    texts: &[&str],
    options: &Options,
    at: (&MachineModel, &[usize], &[RunTimeValues]),
    parsed: &ParsedLines,
    search: &mut SearchTrace,
) -> Vec<Result<Vec<Estimate>, Failure>> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let estimate_all = &|texts: &[&str]| {
        let mut trace = Trace { brief: true, ..Trace::default() };
        let estimate = |text: &&str| estimate_lines(graph, text, options, at, parsed, &mut trace);
        let estimates: Vec<_> = texts.iter().map(estimate).collect();
        let effort = trace.search.effort;
        let refused = estimates.iter().filter(|one| one.is_err()).count();
        let candidates = texts.len();
        (estimates, SearchTrace { candidates, refused, effort, times: trace.times })
    };
    std::thread::scope(|scope| {
        let parts = texts.chunks(texts.len().div_ceil(cores).max(1));
        let spawned = parts.map(|texts| {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            (texts, builder.spawn_scoped(scope, move || estimate_all(texts)))
        });
        let spawned: Vec<_> = spawned.collect();
        let finish = |(texts, thread): (_, io::Result<ScopedJoinHandle<'_, _>>)| {
            let (estimates, part) = match thread.map(ScopedJoinHandle::join) {
                Ok(result) => result.unwrap_or_else(|payload| resume_unwind(payload)),
                Err(_) => estimate_all(texts),
            };
            search.add(&part);
            estimates
        };
        spawned.into_iter().flat_map(finish).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The passes that an estimate leaves out, because the model counts what they do: it sees loops
    /// instead of copies, holds sums in registers, computes invariants and equal values once, and
    /// loads the columns of a tile by rows. A pass that decides more, such as which nests have
    /// vectors, belongs to [`ESTIMATED`].
    const LEFT_OUT: [PassId; 15] = [
        PassId::UnrollLoops,
        PassId::SimplifyAgain,
        PassId::UnswitchLoops,
        PassId::ShareStorage,
        PassId::HoistThreads,
        PassId::JoinDivisions,
        PassId::PromoteAccumulators,
        PassId::InsertBarriers,
        PassId::SplitIndexSets,
        PassId::DropHints,
        PassId::TransposeTiles,
        PassId::LegalizeVectors,
        PassId::PrefetchTiles,
        PassId::HoistInvariants,
        PassId::SkipEmptyNests,
    ];

    #[test]
    fn every_pass_after_vectors_is_estimated_or_left_out() {
        let all = PassId::ALL.iter().skip_while(|id| **id != PassId::VectorizeLoops).skip(1);
        let neither: Vec<&str> = all
            .filter(|id| !ESTIMATED.contains(id) && !LEFT_OUT.contains(id))
            .map(|id| id.name())
            .collect();
        assert!(neither.is_empty(), "add to ESTIMATED or LEFT_OUT: {}", neither.join(", "));
    }
}
