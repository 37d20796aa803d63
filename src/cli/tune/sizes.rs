//! Searches for several sizes: the lists of `--var n=16,256`, and the last comparison, in which
//! each size measures the best schedules of the others.

use super::task::Task;
use crate::cli::arguments::Arguments;
use crate::cli::recorded::{edit, files};
use crate::cli::report::Error;
use crate::ir::Kernel;
use crate::tune::records::{Filter, Parsed, best_by_size};
use crate::tune::search::Proposal;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The most sizes of a kernel: a schedule has 16 versions at most (E0319).
const MAX_SIZES: usize = 16;

/// Returns the arguments for each combination of the values that `--var` lists. Refuses lists where
/// the result could have no versions, for the reason `alone`.
pub fn combinations(arguments: &Arguments, alone: Option<&str>) -> Result<Vec<Arguments>, Error> {
    let list = arguments.var.iter().find(|text| text.contains(','));
    if let (Some(list), Some(why)) = (list, alone) {
        return Err(Error::Usage(format!("`--var {list}`: {why}; give one value")));
    }
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    for text in &arguments.var {
        let (name, values) = text.split_once('=').unwrap_or((text, ""));
        let values: Vec<&str> = values.split(',').collect();
        let of = |value: &&str| match text.contains('=') {
            true => format!("{name}={value}"),
            false => text.clone(),
        };
        let with = |vars: &Vec<String>| {
            let vars = vars.clone();
            values.iter().map(move |value| [&vars[..], &[of(value)]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
        if all.len() > MAX_SIZES {
            let text = format!(
                "`--var`: {} sizes; a schedule has {MAX_SIZES} versions at most, so give fewer \
                 values",
                all.len()
            );
            return Err(Error::Usage(text));
        }
    }
    Ok(all.into_iter().map(|var| Arguments { var, ..arguments.clone() }).collect())
}

/// Returns the different arguments of a kernel.
pub fn sizes_of(kernel: &Kernel, all: &[Arguments]) -> Vec<Arguments> {
    let mut sizes: Vec<Arguments> = Vec::new();
    let mut known: Vec<Vec<String>> = Vec::new();
    for arguments in all {
        let own = arguments.of(kernel).var;
        if !known.contains(&own) {
            known.push(own);
            sizes.push(arguments.clone());
        }
    }
    sizes
}

/// Measures the best schedules of a kernel's sizes at all of these sizes, about `seconds` each and
/// as many as the time until `ends` allows. Returns whether all were measured.
pub fn compare_sizes(
    tasks: &mut [Task<'_>],
    winners: &[Option<Proposal>],
    seconds: f64,
    ends: Option<Instant>,
) -> Result<bool, Error> {
    let mut proposals: Vec<Proposal> = Vec::new();
    for winner in winners.iter().flatten() {
        if !proposals.iter().any(|one| one.text == winner.text) {
            proposals.push(winner.clone());
        }
    }
    if tasks.len() < 2 || proposals.len() < 2 {
        return Ok(true);
    }
    let (mut left, mut complete) = (tasks.len() as u32, true);
    for (task, own) in tasks.iter_mut().zip(winners) {
        let now = Instant::now();
        let ends = ends.map(|ends| now + ends.saturating_duration_since(now) / left);
        left -= 1;
        // Its own one is measured if any other is.
        proposals.sort_by_key(|one| own.as_ref().is_none_or(|own| own.text != one.text));
        complete &= task.record_comparison(&proposals, seconds, ends)?;
    }
    Ok(complete)
}

/// Returns the schedule `tuned` of each kernel that was searched for several sizes: versions for
/// ranges of sizes, as `tec best` prints them.
pub fn versions(tasks: &[Task<'_>], path: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut all = BTreeMap::new();
    let mut read: Option<Parsed> = None;
    for task in tasks {
        let context = &task.log.context;
        let of_kernel = |other: &&Task<'_>| other.log.context.kernel == context.kernel;
        if tasks.iter().filter(of_kernel).count() < 2 || all.contains_key(&context.kernel) {
            continue;
        }
        let records = match &read {
            Some(parsed) => &parsed.records,
            None => &read.insert(files::read(path)?).records,
        };
        let filter = Filter {
            kernel: Some(context.kernel.clone()),
            workload: Some(context.workload.clone()),
            target: Some(context.target.clone()),
            threads: Some(context.threads),
            cpu: Some(context.machine.cpu.clone()),
        };
        if let Some(choice) = best_by_size(records, &filter) {
            let text = edit::versions_to_tuned(&choice, &context.kernel)?;
            all.insert(context.kernel.clone(), text);
        }
    }
    Ok(all)
}
