//! The automatic schedule: the best candidate of the tuner's space by the cost model, or the one
//! that an earlier run of this build chose for the same kernel and options. Kernels with run-time
//! integers may get one for small values and one for others ([`sizes`]).

mod estimator;
mod sizes;

use super::estimate::typical_calls;
use super::{Options, SearchTrace, count_work};
use crate::diag::Result;
use crate::lang::ParsedLines;
use crate::schedule::{self, Origin, Schedule, infer_bounds};
use crate::target::Target;
use crate::te::Graph;
use crate::tune::model::RunTimeValues;
use crate::tune::workload::named_text;
use estimator::{Estimator, THREADS};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::fmt::Debug;

/// The largest number of candidates that are estimated for a CPU, by default. Three times as many
/// have estimates that are 2 to 3 % lower in the mean of the kernels of `bench/cliffs`.
const CPU_CANDIDATES: usize = 128;
/// The same for a GPU, whose schedules have more choices that depend on each other.
const GPU_CANDIDATES: usize = 384;
/// A small kernel gets one candidate for each this many of its operations, or of the bytes that it
/// moves, so that the search takes no longer than the kernel deserves.
const WORK_PER_CANDIDATE: f64 = 4e3;
/// The number of candidates that the smallest kernel gets.
const MIN_CANDIDATES: usize = 40;
/// What the estimates of a kernel's candidates may take ([`SearchTrace::effort`]): about 0.25
/// seconds. Where indices take long proofs or a nest is large, fewer are estimated.
const EFFORT: i64 = 250_000;
/// The number of candidates that each kernel gets.
const FEWEST_CANDIDATES: usize = 16;

/// Returns the largest number of candidates that are estimated by default.
pub(super) fn default_candidates(target: &Target) -> usize {
    if target.is_gpu() { GPU_CANDIDATES } else { CPU_CANDIDATES }
}

/// Keeps the automatic schedules of earlier runs.
pub trait ScheduleCache: Debug + Send + Sync {
    /// Returns the text of the schedule with this key, if it is kept.
    fn load(&self, key: &str) -> Option<String>;

    /// Keeps the text of a schedule.
    fn store(&self, key: &str, text: &str);
}

/// Makes the schedule of a kernel, or takes it from the cache. The estimates are for the target's
/// processor, not for this machine, so that the module is the same everywhere.
///
/// If no candidate is legal, returns the default schedule and adds a note. Adds the candidates that
/// are estimated to `search`.
pub(super) fn automatic_schedule(
    graph: &Graph,
    options: &Options,
    notes: &mut Vec<String>,
    search: &RefCell<SearchTrace>,
) -> Schedule {
    let target = &options.target;
    let cache = options.cache.as_ref().map(|cache| (cache, cache_key(graph, options)));
    if let Some((cache, key)) = &cache
        && let Some(text) = cache.load(key)
        && let Ok(schedule) = apply(graph, target, &text)
    {
        return schedule;
    }
    let earlier_notes = notes.len();
    let best = best_by_model(graph, options, notes, search);
    let why = match best.map(|text| (apply(graph, target, &text), text)) {
        Some((Ok(schedule), text)) => {
            // The next run prints the same notes.
            if let Some((cache, key)) = cache.filter(|_| notes.len() == earlier_notes) {
                cache.store(&key, &text);
            }
            return schedule;
        }
        Some((Err(diag), _)) => format!("{}: {}", diag.code, diag.message),
        None => "every candidate".to_string(),
    };
    let name = &graph.name;
    notes.push(format!(
        "the automatic schedule of `{name}` was refused ({why}); `{name}` uses the default schedule"
    ));
    Schedule::new(graph.clone(), target)
}

/// Returns the key of a kernel's automatic schedule in the cache: a hash of everything that the
/// schedule depends on. It includes names, because the text of a schedule does, and the build of
/// `tec`, because a change of the rules, the cost model or a pass may change the schedule.
fn cache_key(graph: &Graph, options: &Options) -> String {
    // Without the other fields, so that a new one is not forgotten.
    let Options {
        target,
        kernels: _,
        // These concern the graph and named schedules.
        defines: _,
        estimates: _,
        schedule: _,
        candidates,
        cache: _,
        fallback: _,
        prepacked,
        fp_contract,
        opt,
    } = options;
    let (version, build) = (env!("CARGO_PKG_VERSION"), env!("TEC_BUILD"));
    let text = format!(
        "tec {version} {build}\n{target:?}\ncandidates {candidates} threads {THREADS:?}\n\
         prepacked {:?}\nfp-contract {} opt {opt}\n{}",
        prepacked.selected(graph),
        fp_contract.name(),
        named_text(graph)
    );
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Applies the text of an automatic schedule and checks it.
fn apply(graph: &Graph, target: &Target, text: &str) -> Result<Schedule> {
    let mut schedule = schedule::apply_text(graph, target, &Vec::new(), text)?;
    infer_bounds(schedule.clone())?;
    schedule.origin = Origin::Auto;
    Ok(schedule)
}

/// Returns the text of the candidate with the lowest estimate; none if all are refused. If another
/// one is clearly faster where a run-time integer is small, the text chooses between both.
fn best_by_model(
    graph: &Graph,
    options: &Options,
    notes: &mut Vec<String>,
    search: &RefCell<SearchTrace>,
) -> Option<String> {
    let (bugs, parsed) = (RefCell::new(Vec::new()), ParsedLines::default());
    let estimator = Estimator { graph, options, parsed, bugs: &bugs, search };
    let work = count_work(graph, &options.target).ok();
    let work = work.and_then(|work| Some(work.flops.as_int()?.max(work.bytes.as_int()?)));
    let count = work.map_or(options.candidates, |work| {
        MIN_CANDIDATES + (work as f64 / WORK_PER_CANDIDATE) as usize
    });
    let count = count.min(options.candidates);
    let text = match sizes::depends_on_sizes(graph, options) {
        true => sizes::choose(&estimator, count),
        false => {
            let calls = typical_calls(graph);
            let end = estimator.effort() + EFFORT;
            let count = affordable(&estimator, count, &calls, EFFORT);
            estimator.choose((&calls, 0), (count, end), &mut Vec::new())
        }
    };
    if let Some(bug) = bugs.borrow().first() {
        let name = &graph.name;
        notes.push(format!("a candidate for the schedule of `{name}` showed a bug of tec: {bug}"));
    }
    text
}

/// Returns how many of `count` candidates may be estimated for calls with these run-time integers
/// if the default one takes as long as all.
fn affordable(estimator: &Estimator, count: usize, values: &[RunTimeValues], effort: i64) -> usize {
    if count <= FEWEST_CANDIDATES || estimator.options.target.is_gpu() {
        return count;
    }
    let of_one = estimator.effort_of_default(values).max(1);
    count.min((effort / of_one) as usize).max(FEWEST_CANDIDATES)
}
