//! The files of a search: its records, and a failing case for each candidate with wrong results.

use super::super::recorded::edit;
use super::super::recorded::files::Writer;
use super::protocol::{Owner, Setup};
use super::runner::leftovers;
use crate::diag::{Diag, Result};
use crate::module::input;
use crate::module::write::{OutputFile, write_files};
use crate::te::Graph;
use crate::tune::records::{Context, Machine, Parsed, Record};
use crate::tune::workload::workload_hash;
use crate::tune::{Outcome, Verdict};
use rustc_hash::FxHashSet;
use std::path::{Path, PathBuf};

/// The records of a search over one kernel.
pub struct Log {
    /// The fields that all its records share.
    pub context: Context,
    setup: Setup,
    writer: Writer,
    records: PathBuf,
}

/// Returns the common fields of the records of a kernel.
pub fn context(setup: &Setup, graph: &Graph, machine: Machine, seed: u64) -> Context {
    let vars = setup.var.iter().filter_map(|text| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_string(), value.parse().ok()?))
    });
    Context {
        workload: workload_hash(graph),
        kernel: setup.kernel.clone(),
        target: setup.target.clone(),
        machine,
        threads: setup.threads,
        fp_contract: setup.fp_contract.clone(),
        vars: vars.collect(),
        seed,
        tec: env!("CARGO_PKG_VERSION").to_string(),
    }
}

/// Returns the owner of batches for a file of records.
pub fn owner(workload: &str, records: &Path) -> Owner {
    Owner { workload: workload.to_string(), records: records.to_path_buf() }
}

impl Log {
    /// Opens or creates a file of records, and returns its contents. Adds trials that a runner
    /// finished after their search had ended.
    pub fn open(path: &Path, setup: &Setup, context: Context) -> Result<(Log, Parsed)> {
        let (writer, mut parsed) = Writer::open(path)?;
        let (setup, records) = (setup.clone(), path.to_path_buf());
        let mut log = Log { context, setup, writer, records };
        let known: FxHashSet<String> =
            parsed.records.iter().map(|record| record.schedule.clone()).collect();
        let left = leftovers(log.setup.clone(), log.owner())?;
        let left = left.into_iter().filter(|(job, _)| !known.contains(&job.text));
        let mut count = 0;
        for (job, outcome) in left {
            log.add(&job.text, (job.decisions.clone(), &[]), false, &outcome)?;
            let (text, decisions) = (&job.text[..], job.decisions);
            parsed.records.push(Record::new(&log.context, text, decisions, false, &outcome));
            count += 1;
        }
        if count > 0 {
            let (kernel, path) = (&log.context.kernel, path.display());
            eprintln!("note: {kernel}: {count} trials whose search had ended are added to {path}");
        }
        Ok((log, parsed))
    }

    fn owner(&self) -> Owner {
        owner(&self.context.workload, &self.records)
    }

    /// Records a trial. If its results are wrong, writes the failing case and returns its path.
    pub fn add(
        &mut self,
        schedule: &str,
        (decisions, features): (Vec<(String, String)>, &[f64]),
        in_turns: bool,
        outcome: &Outcome,
    ) -> Result<Option<PathBuf>> {
        let mut record = Record::new(&self.context, schedule, decisions, in_turns, outcome);
        record.features = features.iter().map(|value| (value * 1e4).round() / 1e4).collect();
        self.writer.append(&record)?;
        match outcome {
            Outcome::Measured { verdict: Verdict::Wrong { ulp }, .. } => {
                self.keep_wrong(schedule, *ulp).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Writes the source with the schedule to a new file.
    fn keep_wrong(&self, schedule: &str, ulp: u64) -> Result<PathBuf> {
        let Setup { file, kernel, target, fp_contract, seed, threads, .. } = &self.setup;
        let tuned = edit::rename_to_tuned(schedule, kernel)?;
        if let Some(network) = &self.setup.network {
            let text = format!(
                "# A bug in tec: this schedule of a kernel of the network `{network}` of {file}\n\
                 # changes the result, by {ulp} units of the last place, for {target}.\n\n{tuned}"
            );
            return self.write_wrong(text);
        }
        let source = input::read_text(Path::new(file), input::SOURCE)
            .map_err(|why| Box::new(Diag::global("E0604", format!("cannot read {file}: {why}"))))?;
        let path = self.wrong_path();
        let more = |option: &str, values: &[String]| -> String {
            values.iter().map(|value| format!(" {option} {value}")).collect()
        };
        let setup = &self.setup;
        let head = format!(
            "# A bug in tec: this schedule changes the result, by {ulp} units of the last place.\n\
             # tec run {} --kernel {kernel} --schedule {} --target {target} --fp-contract \
             {fp_contract}{}{}{}{} --seed {seed} --threads {threads} --verify\n\n",
            path.file_name().unwrap_or_default().to_string_lossy(),
            edit::NAME,
            more("-D", &setup.define),
            more("--var", &setup.var),
            more("--scalar", &setup.scalar),
            more("--input", &setup.input),
        );
        self.write_wrong(head + &edit::insert_schedules(&source, &[tuned])?)
    }

    /// Returns the path of the next failing case.
    fn wrong_path(&self) -> PathBuf {
        let stem = self.records.to_string_lossy().into_owned();
        let stem = stem.strip_suffix(".records.jsonl").unwrap_or(&stem);
        let mut paths = (1..).map(|number| PathBuf::from(format!("{stem}.wrong-{number}.te")));
        paths.find(|path| !path.exists()).expect("numbers do not end")
    }

    fn write_wrong(&self, text: String) -> Result<PathBuf> {
        let path = self.wrong_path();
        let file = OutputFile { path: path.clone(), bytes: text.into_bytes(), executable: false };
        write_files(&[file])?;
        Ok(path)
    }
}
