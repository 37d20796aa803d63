//! `tec best`: prints the best recorded schedules, or puts them into a file.

use super::super::paths::Files;
use super::super::recorded::{best_sizes_here, describe, edit, files, tuned_schedule};
use super::super::report::{Error, Reporter, print};
use super::super::text::plural;
use crate::diag::{Diag, Result};
use crate::module::input;
use crate::module::write::OutputFile;
use crate::target::Target;
use crate::tune::records::{Filter, Record, SizedChoice};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  tec best matmul.records.jsonl                         # prints the best schedules
  tec best matmul.records.jsonl --write-back matmul.te  # writes them into the source
  tec build matmul.te                                   # builds with them";

/// Print the fastest recorded schedule of each kernel.
///
/// Times of interleaved measurements count before others, and records of this machine's CPU before
/// those of other CPUs. A kernel that was tuned for several sizes gets a version for each range of
/// sizes in which another schedule is faster.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct BestArgs {
    /// Records of `tec tune`.
    #[arg(value_name = "FILE.records.jsonl")]
    records: PathBuf,
    #[command(flatten)]
    which: RecordSelection,
    /// Write the schedules into this file, each as the schedule `tuned` of its kernel.
    ///
    /// `tec build` then uses `tuned` for that target. A schedule of that name for the same target
    /// is replaced; nothing else changes.
    #[arg(long, value_name = "FILE.te")]
    write_back: Option<PathBuf>,
}

/// The selection of records.
#[derive(Debug, clap::Args)]
pub struct RecordSelection {
    /// Only this kernel.
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Only this target.
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// Only this number of threads.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

impl RecordSelection {
    /// Describes the selection.
    fn describe(&self) -> String {
        let kernel = self.kernel.as_ref().map(|name| format!(" of `{name}`"));
        let target = self.target.as_ref().map(|name| format!(" for {name}"));
        let threads = self.threads.map(|count| format!(" with {count} thread{}", plural(count)));
        [kernel, target, threads].into_iter().flatten().collect()
    }

    /// Returns the filter, with the full name for `native`.
    pub fn filter(&self) -> Result<Filter> {
        let target = match &self.target {
            Some(name) => Some(Target::parse(name)?.to_string()),
            None => None,
        };
        let (kernel, threads) = (self.kernel.clone(), self.threads);
        Ok(Filter { kernel, target, threads, ..Filter::default() })
    }
}

/// Runs the command.
pub fn run(args: &BestArgs, reporter: &Reporter) -> std::result::Result<(), Error> {
    let parsed = files::read(&args.records)?;
    files::show_notes(&args.records, &parsed);
    let filter = args.which.filter()?;
    // One choice for each kernel and target, in the order of their first record.
    let mut found: Vec<(&Record, SizedChoice<'_>)> = Vec::new();
    for record in parsed.records.iter().filter(|record| filter.admits(record)) {
        let same =
            |(one, _): &(&Record, _)| one.kernel == record.kernel && one.target == record.target;
        if found.iter().any(same) {
            continue;
        }
        let (kernel, target) = (Some(record.kernel.clone()), Some(record.target.clone()));
        let filter = Filter { kernel, target, ..filter.clone() };
        found.extend(best_sizes_here(&parsed.records, &filter).map(|choice| (record, choice)));
    }
    if found.is_empty() {
        let asked = args.which.describe();
        let text =
            format!("{} has no schedule{asked} that gave correct results", args.records.display());
        let diag = Diag::global("E0605", text);
        return Err(diag.help("`tec records show` lists what it has").into());
    }
    let named: Vec<String> = found
        .iter()
        .map(|(record, choice)| tuned_schedule(choice, &record.kernel, &args.records))
        .collect::<Result<_>>()?;
    for record in found.iter().flat_map(|(_, choice)| choice.sizes()) {
        eprintln!("note: {}", describe(record, &record.kernel));
    }
    let Some(path) = &args.write_back else { return print(&named.join("\n")) };
    let paths = Files::default().input("the records", &args.records);
    paths.output("--write-back", Some(path)).check()?;
    let source = input::read_text(path, input::SOURCE)
        .map_err(|why| Diag::global("E0604", format!("cannot read {}: {why}", path.display())))?;
    let bytes = edit::insert_schedules(&source, &named)?.into_bytes();
    reporter.write(&[OutputFile { path: path.clone(), bytes, executable: false }])
}
