//! Records: the trials, one line of JSON each.
//!
//! docs/RECORDS.md describes the format. This module converts between text and records; `cli` reads
//! and writes the files.

use super::{Outcome, TrialFailure, Verdict, median};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod sizes;

pub use sizes::{SizedChoice, best_by_size};

/// The version of the format that is written.
pub const FORMAT: u32 = 1;

/// A trial. Times of records with the same workload, run-time integers, target, CPU and threads are
/// comparable.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// [`workload_hash`](super::workload::workload_hash) of the kernel.
    pub workload: String,
    /// The kernel's name.
    pub kernel: String,
    /// The target's name.
    pub target: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Threads of parallel loops.
    pub threads: usize,
    /// `fast` or `off`.
    pub fp_contract: String,
    /// Values of run-time integers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, i64>,
    /// The schedule.
    pub schedule: String,
    /// The decisions: name and option, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<(String, String)>,
    /// The features of the cost model, to four decimals; the last one is the logarithm of the
    /// predicted seconds. Searches of other workloads learn from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<f64>,
    /// Measured interleaved with the other finalists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turns: bool,
    /// Seconds of one call, each the mean of a batch; none if the trial failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<f64>,
    /// The verdict: `same`, `within`, `wrong`, or `failed` without results.
    pub verdict: VerdictKind,
    /// The largest difference in ULP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ulp: Option<u64>,
    /// Why there are no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<TrialFailure>,
    /// The seed of the search.
    pub seed: u64,
    /// The version of `tec`.
    pub tec: String,
}

/// The machine of a measurement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// The number of usable CPUs.
    pub cores: usize,
}

/// The verdict on a trial, without its amount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Bit-exact.
    Same,
    /// Within the bound of `reassociate`.
    Within,
    /// Neither, which is a bug of `tec`.
    Wrong,
    /// There are no results.
    Failed,
}

/// The fields that all records of a search share.
#[derive(Clone, PartialEq, Debug)]
pub struct Context {
    /// See [`Record::workload`].
    pub workload: String,
    /// See [`Record::kernel`].
    pub kernel: String,
    /// See [`Record::target`].
    pub target: String,
    /// See [`Record::machine`].
    pub machine: Machine,
    /// See [`Record::threads`].
    pub threads: usize,
    /// See [`Record::fp_contract`].
    pub fp_contract: String,
    /// See [`Record::vars`].
    pub vars: BTreeMap<String, i64>,
    /// See [`Record::seed`].
    pub seed: u64,
    /// See [`Record::tec`].
    pub tec: String,
}

/// The fields that must be equal for times to be comparable: workload, run-time integers, target,
/// CPU, threads.
pub type Group<'a> = (&'a str, &'a BTreeMap<String, i64>, &'a str, &'a str, usize);

impl Record {
    /// Returns the record of a trial.
    pub fn new(
        context: &Context,
        schedule: &str,
        decisions: Vec<(String, String)>,
        in_turns: bool,
        outcome: &Outcome,
    ) -> Record {
        let (times, verdict, ulp, failure) = match outcome {
            Outcome::Measured { times, verdict } => {
                let (mark, ulp) = match verdict {
                    Verdict::Same => (VerdictKind::Same, None),
                    Verdict::Within { ulp } => (VerdictKind::Within, Some(*ulp)),
                    Verdict::Wrong { ulp } => (VerdictKind::Wrong, Some(*ulp)),
                };
                (times.clone(), mark, ulp, None)
            }
            Outcome::Failed(failure) => {
                (Vec::new(), VerdictKind::Failed, None, Some(failure.clone()))
            }
        };
        let context = context.clone();
        Record {
            format: FORMAT,
            workload: context.workload,
            kernel: context.kernel,
            target: context.target,
            machine: context.machine,
            threads: context.threads,
            fp_contract: context.fp_contract,
            vars: context.vars,
            schedule: schedule.to_string(),
            decisions,
            features: Vec::new(),
            in_turns,
            times,
            verdict,
            ulp,
            failure,
            seed: context.seed,
            tec: context.tec,
        }
    }

    /// Returns the outcome of the trial.
    pub fn outcome(&self) -> Outcome {
        let ulp = self.ulp.unwrap_or(0);
        let verdict = match self.verdict {
            VerdictKind::Same => Verdict::Same,
            VerdictKind::Within => Verdict::Within { ulp },
            VerdictKind::Wrong => Verdict::Wrong { ulp },
            VerdictKind::Failed => {
                let unknown = || TrialFailure::Runner("the record does not say why".to_string());
                return Outcome::Failed(self.failure.clone().unwrap_or_else(unknown));
            }
        };
        Outcome::Measured { times: self.times.clone(), verdict }
    }

    /// Returns the group of comparable records.
    pub fn group(&self) -> Group<'_> {
        (&self.workload, &self.vars, &self.target, &self.machine.cpu, self.threads)
    }

    /// Returns the median seconds of a call; none if it failed or is wrong.
    pub fn seconds(&self) -> Option<f64> {
        if matches!(self.verdict, VerdictKind::Wrong | VerdictKind::Failed) {
            return None;
        }
        median(&self.times)
    }

    /// Returns the line of a file, with its newline.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("plain data") + "\n"
    }
}

/// The contents of a file of records.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parsed {
    /// The records, in order.
    pub records: Vec<Record>,
    /// Notes for the user: lines that were ignored, and why.
    pub notes: Vec<String>,
    /// The number of complete lines that are no usable record.
    pub unread: usize,
    /// Whether some of these lines were never written by `tec`.
    pub has_foreign_lines: bool,
    /// The offset of an incomplete last line, whose writer was killed.
    pub incomplete_line: Option<usize>,
}

/// Parses the text of a file. It ignores incomplete lines, whose writer was killed, lines that are
/// no records, and records of another format that lack required fields; `notes` lists them.
pub fn parse(text: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    let last = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    parsed.incomplete_line = (last < text.len()).then_some(last);
    // Ranges of lines that are ignored for the same reason.
    let mut left_out: Vec<(usize, usize, String)> = Vec::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let why = match parse_line(line) {
            Ok(record) => {
                parsed.records.push(record);
                continue;
            }
            Err(Unread::Incomplete) => INCOMPLETE.to_string(),
            Err(Unread::MissingFields(why)) => {
                parsed.unread += 1;
                why
            }
            Err(Unread::NotARecord(why)) => {
                (parsed.unread, parsed.has_foreign_lines) = (parsed.unread + 1, true);
                why
            }
        };
        match left_out.last_mut() {
            Some((_, to, before)) if *to == at && *before == why => *to = at + 1,
            _ => left_out.push((at + 1, at + 1, why)),
        }
    }
    let note = |(from, to, why)| match (from == to, why) {
        (true, why) if why == INCOMPLETE => format!("line {from} was not {why}, it is left out"),
        (true, why) => format!("line {from} is left out: {why}"),
        (false, why) if why == INCOMPLETE => format!("lines {from} to {to} were not {why}"),
        (false, why) => format!("lines {from} to {to} are left out: {why}"),
    };
    parsed.notes = left_out.into_iter().map(note).collect();
    parsed
}

/// The end of the note about an incomplete line.
const INCOMPLETE: &str = "written to its end";

/// Why a line is ignored.
enum Unread {
    /// Its writer was killed.
    Incomplete,
    /// It lacks required fields.
    MissingFields(String),
    /// It is no record.
    NotARecord(String),
}

/// Parses a record of any format that has the fields for building its schedule again.
fn parse_line(line: &[u8]) -> Result<Record, Unread> {
    let mut value: serde_json::Value = serde_json::from_slice(line).map_err(|error| {
        let begun = line.trim_ascii_start().starts_with(b"{");
        match error.is_eof() && begun {
            true => Unread::Incomplete,
            false => Unread::NotARecord(format!("it is no JSON: {}", without_place(&error))),
        }
    })?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    let Some(format) = format else {
        let why = "it has no `format`, so it is no record of `tec`";
        return Err(Unread::NotARecord(why.to_string()));
    };
    if format != u64::from(FORMAT) {
        value["format"] = FORMAT.into();
        // The form of a failure may differ between formats; only schedules that ran can be
        // replayed.
        if value.get("failure").is_some_and(|failure| !failure.is_null()) {
            let why = format!("it is of format {format} and has no schedule that ran");
            return Err(Unread::MissingFields(why));
        }
    }
    let record: Record = serde_json::from_value(value).map_err(|error| {
        Unread::MissingFields(if format == u64::from(FORMAT) {
            format!("{error}")
        } else {
            format!("it is of format {format}, this `tec` reads {FORMAT}: {error}")
        })
    })?;
    if record.threads == 0 || record.times.iter().any(|time| *time < 0.0) {
        return Err(Unread::MissingFields("it took no threads, or less than no time".to_string()));
    }
    Ok(record)
}

/// Returns the message of an error without the position.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_string()
}

/// Merges the records of several files in order, without duplicates.
pub fn merge(files: Vec<Vec<Record>>) -> Vec<Record> {
    let mut seen = FxHashSet::default();
    let records = files.into_iter().flatten();
    records.filter(|record| seen.insert(record.to_line())).collect()
}

/// Keeps the `count` fastest right records of each group, and all wrong ones, which show bugs.
/// Records of interleaved measurements rank first, by those times, so that [`best`] does not
/// change; the group of the last record stays last. What [`best_by_size`] chooses is kept, too.
pub fn prune(records: Vec<Record>, count: usize) -> Vec<Record> {
    let mut keep = vec![false; records.len()];
    let mut groups: BTreeMap<Group<'_>, Vec<usize>> = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        keep[at] = record.verdict == VerdictKind::Wrong;
        if record.seconds().is_some() {
            groups.entry(record.group()).or_default().push(at);
        }
    }
    // The end of each record's group.
    let mut ends: Vec<usize> = (0..records.len()).collect();
    for places in groups.values() {
        let end = *places.last().expect("none is empty");
        places.iter().for_each(|at| ends[*at] = end);
        // A schedule counts once, by its last interleaved time, else by its last time.
        let mut ranked: Vec<(bool, f64, usize)> = Vec::new();
        let mut known: FxHashMap<&str, usize> = FxHashMap::default();
        for at in places.iter().rev() {
            let record = &records[*at];
            let one = (!record.in_turns, record.seconds().expect("only those are here"), *at);
            match known.get(&record.schedule[..]) {
                None => {
                    known.insert(&record.schedule, ranked.len());
                    ranked.push(one);
                }
                Some(place) if ranked[*place].0 && record.in_turns => ranked[*place] = one,
                Some(_) => {}
            }
        }
        ranked.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        ranked.iter().take(count).for_each(|(.., at)| keep[*at] = true);
    }
    let mut families: BTreeMap<sizes::Family<'_>, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.seconds().is_some()) {
        families.entry(sizes::family(record)).or_default().push(record);
    }
    // For a single size, the fastest record is kept anyway.
    let several = |family: &&Vec<&Record>| family.iter().any(|one| one.vars != family[0].vars);
    for family in families.values().filter(several) {
        for chosen in sizes::choice(family).sizes() {
            let at = records.iter().position(|record| std::ptr::eq(record, chosen));
            keep[at.expect("it is one of the records")] = true;
        }
    }
    drop(families);
    let mut order: Vec<usize> = (0..records.len()).filter(|at| keep[*at]).collect();
    order.sort_by_key(|at| (ends[*at], *at));
    drop(groups);
    let mut records: Vec<Option<Record>> = records.into_iter().map(Some).collect();
    order.into_iter().filter_map(|at| records[at].take()).collect()
}

/// A selection of records; a missing field selects all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// A kernel's name.
    pub kernel: Option<String>,
    /// A workload's hash.
    pub workload: Option<String>,
    /// A target's name.
    pub target: Option<String>,
    /// Threads.
    pub threads: Option<usize>,
    /// A CPU's name.
    pub cpu: Option<String>,
}

impl Filter {
    /// Whether a record is selected.
    pub fn admits(&self, record: &Record) -> bool {
        self.kernel.as_ref().is_none_or(|kernel| *kernel == record.kernel)
            && self.workload.as_ref().is_none_or(|workload| *workload == record.workload)
            && self.target.as_ref().is_none_or(|target| *target == record.target)
            && self.threads.is_none_or(|threads| threads == record.threads)
            && self.cpu.as_ref().is_none_or(|cpu| *cpu == record.machine.cpu)
    }
}

/// Returns the fastest right record of the selection, in the group of its last record. If some were
/// measured interleaved, only these count, because a single measurement may be lucky. A schedule
/// that was measured several times counts by its last time.
pub fn best<'a>(records: &'a [Record], filter: &Filter) -> Option<&'a Record> {
    let right = |record: &&Record| filter.admits(record) && record.seconds().is_some();
    let group = records.iter().rfind(right)?.group();
    let right: Vec<&Record> =
        records.iter().filter(right).filter(|record| record.group() == group).collect();
    let fastest = last_times(&right).into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    fastest.map(|(record, _)| record)
}

/// Returns the last record of each schedule of right records of a group, with the seconds of a
/// call; only of interleaved measurements, if there are some.
fn last_times<'a>(group: &[&'a Record]) -> Vec<(&'a Record, f64)> {
    let mut right = group.to_vec();
    if right.iter().any(|record| record.in_turns) {
        right.retain(|record| record.in_turns);
    }
    let mut last: Vec<(&Record, f64)> = Vec::new();
    let mut places = FxHashMap::default();
    for record in right {
        let one = (record, record.seconds().expect("only right ones are here"));
        match places.get(&record.schedule) {
            Some(at) => last[*at] = one,
            None => {
                places.insert(&record.schedule, last.len());
                last.push(one);
            }
        }
    }
    last
}

#[cfg(test)]
mod tests;
