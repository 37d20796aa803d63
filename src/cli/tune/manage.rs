//! `tec records`: shows, merges, prunes and replays files of records.

use super::super::arguments::Arguments;
use super::super::compile::{self, SingleKernel};
use super::super::options::CompileArgs;
use super::super::paths::Files;
use super::super::recorded::{files, machine};
use super::super::report::{Error, Reporter, print};
use super::super::text::{duration, plural};
use super::best::RecordSelection;
use super::command::check_options;
use super::log::{Log, context, owner};
use super::protocol::Setup;
use super::{open, pool};
use crate::diag::Diag;
use crate::driver::{self, Trace};
use crate::ir::Kernel;
use crate::module::write::OutputFile;
use crate::te::Graph;
use crate::tune::records::{Filter, Record, VerdictKind, best, merge, prune};
use crate::tune::workload::workload_hash;
use crate::tune::{Job, Measure, TrialFailure};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  tec records show matmul.records.jsonl
  tec records merge a.records.jsonl b.records.jsonl -o all.records.jsonl
  tec records prune all.records.jsonl --keep 20
  tec records replay old.records.jsonl matmul.te --threads 2";

const SHOW_EXAMPLES: &str = "\
Examples:
  tec records show matmul.records.jsonl
  tec records show matmul.records.jsonl --kernel matmul --threads 2";

const MERGE_EXAMPLES: &str = "\
Examples:
  tec records merge a.records.jsonl b.records.jsonl -o all.records.jsonl";

const PRUNE_EXAMPLES: &str = "\
Examples:
  tec records prune all.records.jsonl            # the 10 fastest, in place
  tec records prune all.records.jsonl --keep 20 -o few.records.jsonl";

const REPLAY_EXAMPLES: &str = "\
Examples:
  tec records replay old.records.jsonl matmul.te                     # on this machine
  tec records replay old.records.jsonl matmul.te -o new.records.jsonl
  tec records replay old.records.jsonl matmul.te --runner 'srun sh {}'";

/// Show, merge, prune or replay tuning records.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct RecordsArgs {
    #[command(subcommand)]
    action: Action,
}

const THREADS: &str = "Threads for parallel loops, 512 at most [default: as recorded]";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print one line for each record.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// File of records.
        #[arg(value_name = "FILE.records.jsonl")]
        file: PathBuf,
        #[command(flatten)]
        which: RecordSelection,
    },
    /// Merge several files into one, without duplicates.
    #[command(after_help = MERGE_EXAMPLES)]
    Merge {
        /// Files of records.
        #[arg(value_name = "FILE.records.jsonl", required = true)]
        files: Vec<PathBuf>,
        /// Write the records here.
        #[arg(short, long, value_name = "OUT")]
        output: PathBuf,
    },
    /// Keep only the fastest records.
    ///
    /// Keeps the fastest records of each workload, target, CPU and number of threads, and all
    /// records of wrong results.
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune {
        /// File of records.
        #[arg(value_name = "FILE.records.jsonl")]
        file: PathBuf,
        /// Records to keep of each workload, target, CPU and number of threads.
        #[arg(long, default_value_t = 10, value_name = "N")]
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        keep: u32,
        /// Write the records here [default: the same file]
        #[arg(short, long, value_name = "OUT")]
        output: Option<PathBuf>,
    },
    /// Measure recorded schedules again, on this machine with this version.
    ///
    /// Adds the results to the records. Schedules that this version measured on this machine are
    /// skipped.
    #[command(after_help = REPLAY_EXAMPLES)]
    #[command(mut_arg("threads", |arg| arg.help(THREADS)))]
    #[command(mut_arg("schedule", |arg| arg.hide(true)), mut_arg("records", |arg| arg.hide(true)))]
    #[command(mut_arg("opt", |arg| arg.hide(true)), mut_arg("fast_math", |arg| arg.hide(true)))]
    #[command(mut_arg("dump", |arg| arg.hide(true)), mut_arg("time", |arg| arg.hide(true)))]
    Replay(Box<Replay>),
}

/// `tec records replay`.
#[derive(Debug, clap::Args)]
struct Replay {
    /// File of records.
    #[arg(value_name = "FILE.records.jsonl")]
    old: PathBuf,
    /// Source file with the kernels.
    #[arg(value_name = "FILE.te")]
    file: String,
    /// Write the results here [default: the file of records]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Measure with this command, which runs the script of a batch in place of `{}`.
    #[arg(long, value_name = "COMMAND {}")]
    runner: Option<String>,
    /// Longest time of a call, in seconds; longer calls are ended.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", allow_negative_numbers = true)]
    limit: f64,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    compile: CompileArgs,
}

/// Runs the command.
pub fn run(args: &RecordsArgs, reporter: &Reporter) -> Result<(), Error> {
    let read = |path: &Path| -> Result<Vec<Record>, Error> {
        let parsed = files::read(path)?;
        files::show_notes(path, &parsed);
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
            let _alone = match output {
                Some(_) => None,
                None => Some(files::lock(file)?),
            };
            let parsed = files::read(file)?;
            files::show_notes(file, &parsed);
            if output.is_none() && parsed.unread > 0 {
                let (unread, path) = (parsed.unread, file.display());
                let text =
                    format!("{path} would lose {unread} lines that this version cannot read");
                let help = "give the records another file, `-o OUT`";
                return Err(Diag::global("E0604", text).help(help).into());
            }
            let kept = prune(parsed.records, *keep as usize);
            write(output.as_deref().unwrap_or(file), &kept)
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
            (VerdictKind::Wrong, ..) => format!("WRONG by {} ULP", ulp.unwrap_or(0)),
            (_, Some(seconds), _) => duration(seconds),
            (_, None, Some(failure)) => pool::describe(failure),
            (_, None, None) => "no times".to_string(),
        };
        let how = if record.in_turns { ", interleaved" } else { "" };
        let mark = if best == Some(record as *const Record) { "  best" } else { "" };
        let vars: String =
            record.vars.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        text.push_str(&format!(
            "{:>5}  {}  {kernel}{vars} for {target}, {threads} thread{}, tec {tec}: \
             {what}{how}{mark}\n",
            at + 1,
            workload.get(..8).unwrap_or(workload),
            plural(*threads),
        ));
    }
    print(&text)
}

fn replay(args: &Replay) -> Result<(), Error> {
    check_options(&args.compile)?;
    let parsed = files::read(&args.old)?;
    files::show_notes(&args.old, &parsed);
    let options = args.compile.options()?;
    let files = args.compile.side_files();
    let (program, kernels) =
        compile::elaborate_kernels(&args.file, files, &options, &mut Trace::default())?;
    if kernels.is_empty() {
        return Err(compile::no_kernel(&args.file, &program).into());
    }
    let files = Files::default().program(&program).named_inputs(&args.arguments.input);
    files.output("-o", Some(args.output.as_ref().unwrap_or(&args.old))).check()?;
    let lower = |one: &SingleKernel| driver::lower_unoptimized(&one.graph, &options.target);
    let plain: Result<Vec<Kernel>, _> = kernels.iter().map(lower).collect();
    let plain = plain.map_err(|failure| Error::Compile(program.sources.clone(), failure))?;
    let all: Vec<&Kernel> = plain.iter().collect();
    let var = compile::own_settings(&kernels, &args.arguments.var);
    let arguments = Arguments { var, ..args.arguments.clone() };
    for (one, plain) in kernels.iter().zip(&plain) {
        let graph = &one.graph;
        arguments.read(plain, &all)?;
        let (workload, target) = (workload_hash(graph), options.target.cpu_name());
        let wanted = |record: &&Record| (&record.workload, &record.target) == (&workload, &target);
        let wanted: Vec<&Record> = parsed.records.iter().filter(wanted).collect();
        if wanted.is_empty() {
            let (old, name) = (args.old.display(), &graph.name);
            eprintln!("note: {old} has no record of what `{name}` computes for {target}");
        }
        // With the recorded number of threads, unless the user gives one.
        let own = |record: &&Record| args.arguments.threads.unwrap_or(record.threads as i32);
        let threads: BTreeSet<i32> = wanted.iter().map(own).collect();
        for threads in threads {
            let arguments = Arguments { threads: Some(threads), ..arguments.of(plain) };
            let setup = Setup::new(&args.file, one, &options, &args.compile, &arguments);
            let wanted = wanted.iter().filter(|record| own(record) == threads).copied();
            replay_kernel(args, graph, setup, wanted.collect(), &parsed.records)?;
        }
    }
    Ok(())
}

/// Measures the wanted records that were not measured so already; `before` holds the records of the
/// file.
fn replay_kernel(
    args: &Replay,
    graph: &Graph,
    setup: Setup,
    wanted: Vec<&Record>,
    before: &[Record],
) -> Result<(), Error> {
    let limit = Duration::try_from_secs_f64(args.limit)
        .map_err(|_| Error::Usage("--limit is a number of seconds".to_string()))?;
    let output = args.output.as_ref().unwrap_or(&args.old);
    let open = || {
        let owner = owner(&workload_hash(graph), output);
        open(setup.clone(), args.runner.as_deref(), owner)
    };
    // A runner reports its machine; without one, the worker is started only if something is left to
    // measure.
    let (opened, machine) = match &args.runner {
        Some(_) => open().map(|(measure, machine)| (Some(measure), machine))?,
        None => (None, machine(&setup.target)),
    };
    let context = context(&setup, graph, machine, args.arguments.seed);
    let (mut log, written) = Log::open(output, &setup, context)?;
    let done = |record: &&Record| {
        let context = &log.context;
        (&record.workload, &record.target) == (&context.workload, &context.target)
            && (&record.tec, record.threads) == (&context.tec, context.threads)
            && (&record.machine, &record.vars) == (&context.machine, &context.vars)
            && !matches!(record.failure, Some(TrialFailure::Runner(_)))
    };
    // The file of the wanted records is also that of the results.
    let known = if args.output.is_some() { &written.records[..] } else { before };
    let mut seen: FxHashSet<String> =
        known.iter().filter(done).map(|record| record.schedule.clone()).collect();
    let job = |record: &Record| {
        let (text, decisions) = (record.schedule.clone(), record.decisions.clone());
        Job { text, limit, decisions }
    };
    let jobs: Vec<Job> =
        wanted.into_iter().filter(|record| seen.insert(record.schedule.clone())).map(job).collect();
    if jobs.is_empty() {
        eprintln!("note: every record of `{}` has been measured", graph.name);
        return Ok(());
    }
    let measure = match opened {
        Some(measure) => measure,
        None => open()?.0,
    };
    measure_all(&mut log, measure, &jobs)
}

fn measure_all(log: &mut Log, mut measure: Box<dyn Measure>, jobs: &[Job]) -> Result<(), Error> {
    let kernel = log.context.kernel.clone();
    measure.notes().iter().for_each(|note| eprintln!("note: {kernel}: {note}"));
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
        let said = match pool::correct_seconds(outcome) {
            Some(seconds) => duration(seconds),
            None => match outcome {
                crate::tune::Outcome::Failed(failure) => pool::describe(failure),
                crate::tune::Outcome::Measured { .. } => "wrong".to_string(),
            },
        };
        // A closed standard output does not matter; the records are written.
        let _ = print(&format!("{kernel} {}/{}: {said}\n", at + 1, jobs.len()));
    });
    measure.notes().iter().for_each(|note| eprintln!("note: {note}"));
    failed
}
