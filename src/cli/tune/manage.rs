//! `tec records`: looks at files of records, joins them, thins them out, measures them again.

use super::super::options::{self, CompileArgs};
use super::super::report::{Error, Reporter, print};
use super::super::run::Arguments;
use super::best::Which;
use super::log::{Log, context};
use super::protocol::Setup;
use super::{open, pool, records};
use crate::driver::Trace;
use crate::module::write::OutputFile;
use crate::tune::records::{Filter, Mark, Record, best, merge, prune};
use crate::tune::{Job, TrialFailure};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  tec records show matmul_add.records.jsonl
  tec records merge a.records.jsonl b.records.jsonl -o all.records.jsonl
  tec records prune all.records.jsonl --keep 20
  tec records replay old.records.jsonl matmul_add.te --threads 2";

/// Look at, join, thin out or measure again what `tec tune` recorded.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// A line for each record.
    Show {
        /// Records.
        #[arg(value_name = "FILE.records.jsonl")]
        file: PathBuf,
        #[command(flatten)]
        which: Which,
    },
    /// One file of several; a record that is in two of them comes once.
    Merge {
        /// Records.
        #[arg(value_name = "FILE.records.jsonl", required = true)]
        files: Vec<PathBuf>,
        /// Where they go.
        #[arg(short, long, value_name = "OUT")]
        output: PathBuf,
    },
    /// Keep the fastest records of each workload, target, CPU and number of threads, and those
    /// that are wrong.
    Prune {
        /// Records.
        #[arg(value_name = "FILE.records.jsonl")]
        file: PathBuf,
        /// How many of each.
        #[arg(long, default_value_t = 10, value_name = "N")]
        keep: usize,
        /// Where they go; the same file by default.
        #[arg(short, long, value_name = "OUT")]
        output: Option<PathBuf>,
    },
    /// Measure recorded schedules of a file's kernels on this machine, with this version, and add
    /// the results; what was measured so already is left out.
    Replay(Box<Replay>),
}

/// `tec records replay`.
#[derive(Debug, clap::Args)]
struct Replay {
    /// Records.
    #[arg(value_name = "FILE.records.jsonl")]
    old: PathBuf,
    /// The file with the kernels.
    #[arg(value_name = "FILE.te")]
    file: String,
    /// Where the results go; the same file by default.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Measure by this command, which runs the script that `{}` stands for.
    #[arg(long, value_name = "COMMAND")]
    runner: Option<String>,
    /// A call that takes longer is ended.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    limit: f64,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Error> {
    let read = |path: &Path| -> Result<Vec<Record>, Error> {
        let parsed = records::read(path)?;
        records::show_notes(path, &parsed);
        Ok(parsed.records)
    };
    let write = |path: &Path, records: &[Record]| {
        let bytes = records.iter().map(Record::to_line).collect::<String>().into_bytes();
        reporter.write(&[OutputFile { path: path.to_path_buf(), bytes, executable: false }])
    };
    match &args.action {
        Action::Show { file, which } => show(&read(file)?, &which.filter()?),
        Action::Merge { files, output } => {
            let files = files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
            write(output, &merge(files))
        }
        Action::Prune { file, keep, output } => {
            write(output.as_deref().unwrap_or(file), &prune(read(file)?, *keep))
        }
        Action::Replay(args) => replay(args),
    }
}

fn show(records: &[Record], filter: &Filter) -> Result<(), Error> {
    let best = best(records, filter).map(|record| record as *const Record);
    let mut text = String::new();
    for (at, record) in records.iter().enumerate().filter(|(_, record)| filter.admits(record)) {
        let Record { workload, kernel, target, threads, verdict, ulp, tec, .. } = record;
        let what = match (verdict, record.seconds(), &record.failure) {
            (Mark::Wrong, ..) => format!("WRONG by {} ULP", ulp.unwrap_or(0)),
            (_, Some(seconds), _) => format!("{:.4} ms", seconds * 1e3),
            (_, None, Some(failure)) => pool::describe(failure),
            (_, None, None) => "no times".to_string(),
        };
        let turns = if record.in_turns { ", in turns" } else { "" };
        let mark = if best == Some(record as *const Record) { "  best" } else { "" };
        let vars: String =
            record.vars.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        text.push_str(&format!(
            "{:>5}  {}  {kernel}{vars} for {target}, {threads} threads, tec {tec}: \
             {what}{turns}{mark}\n",
            at + 1,
            &workload[..workload.len().min(8)],
        ));
    }
    print(&text)
}

fn replay(args: &Replay) -> Result<(), Error> {
    let parsed = records::read(&args.old)?;
    records::show_notes(&args.old, &parsed);
    let output = args.output.as_ref().unwrap_or(&args.old);
    let options = args.compile.options()?;
    let (_, graphs) = options::elaborate(&args.file, &options, &mut Trace::default())?;
    let limit = Duration::try_from_secs_f64(args.limit)
        .map_err(|_| Error::Usage("--limit is a number of seconds".to_string()))?;
    for graph in &graphs {
        let setup = Setup::new(&args.file, &graph.name, &options, &args.compile, &args.arguments);
        let context = context(&setup, graph, args.arguments.seed);
        let (mut log, written) = Log::open(output, &setup, context)?;
        let done = |record: &&Record| {
            let context = &log.context;
            (&record.workload, &record.target) == (&context.workload, &context.target)
                && (&record.tec, record.threads) == (&context.tec, context.threads)
                && (&record.machine, &record.vars) == (&context.machine, &context.vars)
                && !matches!(record.failure, Some(TrialFailure::Runner(_)))
        };
        let mut seen: HashSet<String> = HashSet::new();
        if args.output.is_some() {
            let done = written.records.iter().filter(done);
            seen.extend(done.map(|record| record.schedule.clone()));
        } else {
            // The same file: what to measure stands beside what was measured.
            let done = parsed.records.iter().filter(done);
            seen.extend(done.map(|record| record.schedule.clone()));
        }
        let wanted = parsed.records.iter().filter(|record| {
            (&record.workload, &record.target) == (&log.context.workload, &log.context.target)
        });
        let jobs: Vec<Job> = wanted
            .filter(|record| seen.insert(record.schedule.clone()))
            .map(|record| {
                let (text, decisions) = (record.schedule.clone(), record.decisions.clone());
                Job { text, limit, decisions }
            })
            .collect();
        if jobs.is_empty() {
            eprintln!("note: nothing of `{}` is left to measure", graph.name);
            continue;
        }
        measure(&mut log, setup, &jobs, args)?;
    }
    Ok(())
}

fn measure(log: &mut Log, setup: Setup, jobs: &[Job], args: &Replay) -> Result<(), Error> {
    let kernel = setup.kernel.clone();
    let mut measure = open(setup, args.runner.as_deref(), log.owner())?;
    let mut failed = Ok(());
    measure.measure(jobs, &mut |at, outcome| {
        let job = &jobs[at];
        let kept = log.add(&job.text, (job.decisions.clone(), &[]), false, outcome);
        match kept {
            Ok(Some(path)) => {
                eprintln!("warning: a bug in tec: {} computes wrongly", path.display());
            }
            Ok(None) => {}
            Err(diag) => failed = Err(Error::from(diag)),
        }
        let said = match pool::right_seconds(outcome) {
            Some(seconds) => format!("{:.4} ms", seconds * 1e3),
            None => match outcome {
                crate::tune::Outcome::Failed(failure) => pool::describe(failure),
                crate::tune::Outcome::Measured { .. } => "wrong".to_string(),
            },
        };
        // The reader of standard output may be gone; the records are what counts.
        let _ = print(&format!("{kernel} {}/{}: {said}\n", at + 1, jobs.len()));
    });
    measure.notes().iter().for_each(|note| eprintln!("note: {note}"));
    failed
}
