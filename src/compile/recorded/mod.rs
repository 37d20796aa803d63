//! Recorded schedules: the best ones of a file of records, and how they are put into a source.

pub mod edit;
pub mod files;

use super::cpu;
use super::text::{duration, plural};
use crate::diag::{Diag, Result};
use crate::driver::{RecordedSchedules, Trace};
use crate::module::gpu::Gpu;
use crate::target::Target;
use crate::te::Graph;
use crate::tune::records::{Filter, Machine, Record, SizedChoice, best, best_by_size};
use crate::tune::workload::workload_hash;
use std::path::{Path, PathBuf};

/// Returns this machine: its CPU, or its GPU for a GPU target.
pub fn machine(target: &str) -> Machine {
    let is_gpu = Target::parse(target).is_ok_and(|target| target.is_gpu());
    match is_gpu.then(Gpu::find) {
        Some(Ok(name)) => Machine { cpu: name, cores: 1 },
        _ => Machine { cpu: cpu::model(), cores: cpu::count() },
    }
}

/// Returns the best selected record, of this machine if there is one.
fn best_here<'a>(records: &'a [Record], filter: &Filter) -> Option<&'a Record> {
    best(records, &here(filter)).or_else(|| best(records, filter))
}

/// Returns the best selected schedules for all sizes, of this machine if there are some. A GPU,
/// whose schedules have no versions, gets that for the size of the last record.
pub fn best_sizes_here<'a>(records: &'a [Record], filter: &Filter) -> Option<SizedChoice<'a>> {
    let one = best_here(records, filter)?;
    let always = || SizedChoice::Always { sizes: vec![one] };
    if one.vars.is_empty() || Target::parse(&one.target).is_ok_and(|target| target.is_gpu()) {
        return Some(always());
    }
    let found = best_by_size(records, &here(filter)).or_else(|| best_by_size(records, filter));
    Some(found.unwrap_or_else(always))
}

/// Restricts a selection to this machine.
fn here(filter: &Filter) -> Filter {
    let target = filter.target.as_deref().unwrap_or_default();
    Filter { cpu: Some(machine(target).cpu), ..filter.clone() }
}

/// Returns the schedule of a choice, for a kernel; an error names the file of records.
pub fn tuned_schedule(choice: &SizedChoice<'_>, kernel: &str, path: &Path) -> Result<String> {
    edit::versions_to_tuned(choice, kernel).map_err(|mut diag| {
        diag.notes.push(format!("the schedule of `{kernel}` comes from {}", path.display()));
        diag
    })
}

/// Describes a record in a line.
pub fn describe(record: &Record, kernel: &str) -> String {
    let Record { target, threads, machine, tec, .. } = record;
    let vars: String = record.vars.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    let time = duration(record.seconds().unwrap_or(f64::NAN));
    let plural = plural(*threads);
    format!(
        "`{kernel}`{vars} took {time} for {target} with {threads} thread{plural} on {}, recorded \
         by tec {tec}",
        machine.cpu
    )
}

/// Returns the text of a file with the best recorded schedules of its kernels, and notes for the
/// user; `graphs` are the kernels as they are built.
pub fn insert_best_schedules(
    path: &Path,
    source: &str,
    graphs: &[Graph],
    target: &Target,
) -> Result<(String, Vec<String>)> {
    let parsed = files::read(path)?;
    let mut notes: Vec<String> =
        parsed.notes.iter().map(|note| format!("{}: {note}", path.display())).collect();
    let mut texts = Vec::new();
    for graph in graphs {
        let (workload, name) = (Some(workload_hash(graph)), Some(target.cpu_name()));
        let filter = Filter { workload, target: name, ..Filter::default() };
        match best_sizes_here(&parsed.records, &filter) {
            Some(choice) => {
                let sizes = choice.sizes();
                notes.extend(sizes.iter().map(|record| describe(record, &graph.name)));
                texts.push(tuned_schedule(&choice, &graph.name, path)?);
            }
            None => notes.push(format!(
                "{} has no record with correct results of `{}` for {target}, which is scheduled \
                 as if `--records` were not given",
                path.display(),
                graph.name,
            )),
        }
    }
    if texts.is_empty() {
        let text = format!("{} has no record of these kernels for {target}", path.display());
        let diag = Diag::global("E0605", text);
        let note = "a record matches a kernel with the same sizes, types and arithmetic";
        return Err(Box::new(diag.note(note).help("`tec records show` lists what it has")));
    }
    Ok((edit::insert_schedules(source, &texts)?, notes))
}

/// The best records of a file, for the kernels of networks.
#[derive(Default)]
pub struct BestRecords {
    path: PathBuf,
    records: Vec<Record>,
}

impl BestRecords {
    /// Reads a file of records.
    pub fn read(path: &Path) -> Result<BestRecords> {
        Ok(BestRecords { path: path.to_path_buf(), records: files::read(path)?.records })
    }

    /// Returns the best schedules of kernels, by workload. Notes how many have one. Refuses a file
    /// that has none of them (E0605).
    pub fn schedules<'a>(
        &self,
        graphs: impl ExactSizeIterator<Item = &'a Graph>,
        target: &Target,
        trace: &mut Trace,
    ) -> Result<RecordedSchedules> {
        let (count, path) = (graphs.len(), self.path.display());
        let mut schedules = RecordedSchedules::default();
        for graph in graphs {
            let workload = workload_hash(graph);
            let (of, name) = (Some(workload.clone()), Some(target.cpu_name()));
            let filter = Filter { workload: of, target: name, ..Filter::default() };
            if let Some(record) = best_here(&self.records, &filter) {
                let choice = SizedChoice::Always { sizes: vec![record] };
                schedules.insert(workload, tuned_schedule(&choice, &graph.name, &self.path)?);
            }
        }
        if schedules.is_empty() {
            let text = format!("{path} has no record of these kernels for {target}");
            let diag = Diag::global("E0605", text);
            let note = "a record matches a kernel with the same sizes, types and arithmetic";
            return Err(Box::new(diag.note(note).help("`tec records show` lists what it has")));
        }
        let found = schedules.len();
        trace.notes.push(match found == count {
            true => format!("all {count} kernels have schedules of {path}"),
            false => {
                let others = "the others have automatic ones";
                format!("{found} of {count} kernels have schedules of {path}; {others}")
            }
        });
        Ok(schedules)
    }
}
