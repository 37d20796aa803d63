//! The automatic schedule: the best candidate of the tuner's space by the cost model, or the one
//! that an earlier run of this build chose for the same kernel and options.

use super::estimate::estimate_texts;
use super::{Failure, Options, count_work};
use crate::diag::Result;
use crate::lang::ParsedLines;
use crate::schedule::{self, Origin, Schedule, infer_bounds};
use crate::target::Target;
use crate::te::Graph;
use crate::tune;
use crate::tune::model::{Estimate, MachineModel};
use crate::tune::search::CostPrediction;
use crate::tune::workload::named_text;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::fmt::Debug;

/// The largest number of candidates that are estimated, by default.
pub(super) const DEFAULT_CANDIDATES: usize = 384;
/// A small kernel gets one candidate for each this many of its operations, so that the search takes
/// no longer than the kernel deserves.
const FLOPS_PER_CANDIDATE: f64 = 1e4;
/// The number of candidates that the smallest kernel gets.
const MIN_CANDIDATES: usize = 16;
/// Threads that the schedule is made for. The module does not depend on this machine's number.
const THREADS: usize = 4;

/// Keeps the automatic schedules of earlier runs.
pub trait ScheduleCache: Debug + Send + Sync {
    /// Returns the text of the schedule with this key, if it is kept.
    fn load(&self, key: &str) -> Option<String>;

    /// Keeps the text of a schedule.
    fn store(&self, key: &str, text: &str);
}

/// Makes the schedule of a kernel, or takes it from the cache. The estimates are for a typical
/// machine of the target, not for this one, so that the module is the same everywhere.
///
/// If no candidate is legal, returns the default schedule and adds a note.
pub(super) fn automatic_schedule(
    graph: &Graph,
    options: &Options,
    notes: &mut Vec<String>,
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
    let best = best_by_model(graph, options, notes);
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
        "tec {version} {build}\n{target:?}\ncandidates {candidates} threads {THREADS}\n\
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

/// Returns the text of the candidate with the lowest estimate; none if all are refused.
fn best_by_model(graph: &Graph, options: &Options, notes: &mut Vec<String>) -> Option<String> {
    let target = &options.target;
    let machine = MachineModel::typical(target);
    let parsed = ParsedLines::default();
    let bugs = RefCell::new(Vec::new());
    let model = |texts: &[&str]| -> Vec<Option<CostPrediction>> {
        let prediction = |estimate| match estimate {
            Ok(Estimate { seconds, features, .. }) => Some(CostPrediction { seconds, features }),
            Err(Failure::User(_)) => None,
            Err(Failure::Bug { pass, message, .. }) => {
                bugs.borrow_mut().push(format!("{message}, in `{pass}`"));
                None
            }
        };
        let estimates = estimate_texts(graph, texts, options, &machine, THREADS, &parsed);
        estimates.into_iter().map(prediction).collect()
    };
    let space = tune::space::of_kernel(graph, target, 0);
    let flops = count_work(graph, target).ok().and_then(|work| work.flops.as_int());
    let count = flops.map_or(DEFAULT_CANDIDATES, |flops| {
        MIN_CANDIDATES + (flops as f64 / FLOPS_PER_CANDIDATE) as usize
    });
    let count = count.min(options.candidates);
    let chosen = tune::search::choose_by_model(&space, &model, count, 0);
    if let Some(bug) = bugs.borrow().first() {
        let name = &graph.name;
        notes.push(format!("a candidate for the schedule of `{name}` showed a bug of tec: {bug}"));
    }
    chosen.map(|one| one.text)
}
