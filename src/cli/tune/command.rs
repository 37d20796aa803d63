//! `tec tune`: searches for the best schedule of each kernel of a file.
//!
//! The kernels share the budget: each batch goes to the one with the largest expected gain
//! (`tune::search::budget`). Every trial is recorded before the next begins, so measurements are
//! never lost, however the command ends.

use super::far::{FarKernel, Farm};
use super::log::{Log, context, owner};
use super::protocol::Setup;
use super::report::{self, Report};
use super::sizes;
use super::task::{CostEvaluator, ResumedTrials, Task, TaskView, Winner, machine_of};
use super::unmeasured;
use super::worker::MAX_COMPARISON_FACTOR;
use crate::cli::arguments::Arguments;
use crate::cli::bench::work::{Roofline, Work};
use crate::cli::compile::source::is_model;
use crate::cli::compile::{SingleKernel, elaborate_kernels, no_kernel, own_settings};
use crate::cli::data;
use crate::cli::machine::{self, Isa};
use crate::cli::options::CompileArgs;
use crate::cli::paths::Files;
use crate::cli::recorded::{self, files::Writer};
use crate::cli::remote::on::parse_time;
use crate::cli::remote::process::HELLO_LIMIT;
use crate::cli::remote::push::PushArgs;
use crate::cli::report::{Error, Reporter, print};
use crate::diag::{self, Diag};
use crate::driver::{self, Failure, Options};
use crate::ir::Kernel;
use crate::lang::{ParsedLines, Program, ast};
use crate::module::gpu::Gpu;
use crate::module::input;
use crate::module::write::OutputFile;
use crate::schedule::{PrepackedInputs, ScheduleSelector};
use crate::target::Os;
use crate::te::{Defines, Graph};
use crate::tune::model::MachineModel;
use crate::tune::search::{CostModel, Proposal, Search, budget};
use crate::tune::workload::workload_hash;
use crate::tune::{Measure, Space, dag, space};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  tec tune matmul.te                        # one minute for all kernels
  tec tune matmul.te -D n=512 --trials 200  # one size, 200 candidates
  tec tune mm.te --var n=1,32,1024          # versions for several run-time sizes
  tec tune matmul.te >> matmul.te           # append the best schedules to the file
  tec tune matmul.te --schedule block       # the knobs of one schedule
  tec tune matmul.te --dag                  # the stages of each kernel
  tec tune matmul.te --runner 'srun sh {}'  # measure with a job system
  tec tune matmul.te --on 'ssh pi'          # compile here, measure on another machine
  tec tune matmul.te --target nvptx-sm_80   # for a GPU; without one, by the cost model
  tec build matmul.te --records matmul.records.jsonl
  tec tune resnet50.onnx --budget 10m       # the kernels of a network
  tec build resnet50.onnx --records resnet50.records.jsonl";

/// Search for the fastest schedule of each kernel.
///
/// Rules (or, with --schedule, the knobs of a schedule) generate candidates. A cost model, which
/// learns from the trials, selects those that are measured. A candidate counts only if its results
/// equal those of the default schedule. Trials are kept in a file of records, and the next run
/// continues from them. The best schedule is printed in the language, with comments, ready to be
/// pasted into the source. `--var n=16,256,4096` searches for each of these sizes, and the schedule
/// gets a version for each range of sizes in which another one is faster. Without a GPU for a GPU
/// target the cost model alone decides; nothing is measured or recorded, and a note says so
/// (docs/TUNING.md).
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("threads", |arg| arg.help(THREADS)), mut_arg("seed", |arg| arg.help(SEED)))]
#[command(mut_arg("schedule", |arg| arg.help(SCHEDULE).long_help(SCHEDULE)))]
#[command(mut_arg("records", |arg| arg.help(RECORDS)))]
#[command(mut_arg("var", |arg| arg.help(VAR).long_help(VAR)))]
#[command(mut_arg("opt", |arg| arg.hide(true)), mut_arg("fast_math", |arg| arg.hide(true)))]
#[command(mut_arg("dump", |arg| arg.hide(true)), mut_arg("time", |arg| arg.hide(true)))]
pub struct TuneArgs {
    /// Source file, or an ONNX model.
    #[arg(value_name = "FILE")]
    file: String,
    /// Candidates to measure, for all kernels together [default: limited by --budget only]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    trials: Option<usize>,
    /// Time of the search, such as 60s, 5m or 1h [default: 1m; no limit with --trials]
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    budget: Option<Duration>,
    /// Measure with this command, which runs the script of a batch in place of `{}`.
    #[arg(long, value_name = "COMMAND {}")]
    runner: Option<String>,
    /// Compile here, and measure on the machine that this command reaches, such as `ssh pi`
    /// (repeatable).
    ///
    /// The command gets `tec serve --stdio` as its last words, unless it has them. `native` is the
    /// target of that machine. Several machines of one kind share the work; `@FILE` has a command a
    /// line (docs/REMOTE.md).
    #[arg(long, value_name = "COMMAND|@FILE", conflicts_with_all = ["runner", "estimate", "dag"])]
    on: Vec<String>,
    /// Time until a machine answers, such as 60s, 5m or 1h [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "on")]
    on_wait: Option<Duration>,
    #[command(flatten)]
    push: PushArgs,
    /// Allow candidates to reorder reduction terms, as `reassociate` in the source does.
    #[arg(long)]
    reassociate: bool,
    /// Choose the schedule by the cost model alone, without measuring.
    #[arg(long, conflicts_with = "runner")]
    estimate: bool,
    /// Draw the best rate over the time of the search.
    #[arg(long, value_name = "OUT.svg")]
    plot: Option<String>,
    /// Print the stages of each kernel instead of searching.
    #[arg(long, conflicts_with_all = ["plot", "json"])]
    dag: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    compile: CompileArgs,
}

// What options of other commands mean here.
const THREADS: &str = "Threads for parallel loops, for which schedules are chosen, 512 at most \
                       [default: $TEC_NUM_THREADS, else one per CPU]";
const SEED: &str = "Seed of the search and of the random inputs";
const SCHEDULE: &str = "Search the knobs of this schedule instead of the space of the rules";
const VAR: &str = "Set a run-time integer (repeatable); a list, n=1,64,1024, searches for each of \
                   these sizes";
const RECORDS: &str =
    "Keep trials in this file, and continue from it [default: FILE.records.jsonl]";

/// Candidates of a batch.
const BATCH: usize = 16;
/// The part of the budget for the last comparison, and its bounds in seconds.
const LAST_COMPARISON: (f64, f64, f64) = (0.05, 0.5, 3.0);

/// Runs the command.
pub fn run(args: &TuneArgs, reporter: &Reporter) -> Result<(), Error> {
    let begin = Instant::now();
    check_paths(args)?;
    check_options(&args.compile)?;
    let farm = match &machines(&args.on)?[..] {
        [] => None,
        commands => {
            let limit = args.on_wait.unwrap_or(HELLO_LIMIT);
            let started = |command: &String| {
                args.push.command(command, limit).map_err(|error| error.diag(command))
            };
            let commands: Vec<String> = commands.iter().map(started).collect::<Result<_, _>>()?;
            let mut farm = Farm::connect(&commands, args.on_wait)?;
            farm.notes().iter().for_each(|note| eprintln!("note: {note}"));
            Some(farm)
        }
    };
    let compile = match &farm {
        Some(farm) => args.compile.for_native(farm.hello()),
        None => args.compile.clone(),
    };
    let args = &TuneArgs { compile, ..args.clone() };
    let (template, options) = options_of(args)?;
    let mut trace = args.compile.trace()?;
    let files = args.compile.side_files();
    if let Some(farm) = &farm {
        farm.check(&options.target)?;
    }
    let (program, kernels) = elaborate_kernels(&args.file, files, &options, &mut trace)?;
    if kernels.is_empty() {
        return Err(no_kernel(&args.file, &program).into());
    }
    let kernels = searched(kernels, template.as_ref())?;
    let graphs: Vec<Graph> = kernels.iter().map(|one| one.graph.clone()).collect();
    if args.dag {
        return print(&dags(&graphs));
    }
    let path = match &args.compile.records {
        Some(path) => PathBuf::from(path),
        None => default_records(&args.file),
    };
    let files = Files::default().program(&program).named_inputs(&args.arguments.input);
    files.output("--records", Some(&path)).output("--plot", args.plot.as_ref()).check()?;
    let unmeasured = why_unmeasured(args, &options)?;
    let mut arguments = args.arguments.clone();
    arguments.var = own_settings(&kernels, &arguments.var);
    // The number of CPU threads does not affect a GPU.
    let usual = if options.target.is_gpu() {
        1
    } else {
        arguments.threads_on(farm.as_ref().map(Farm::hello)) as i32
    };
    let threads = *arguments.threads.get_or_insert(usual) as usize;
    let is_network = kernels.iter().any(|one| one.network.is_some());
    let alone = match (options.target.is_gpu(), is_network, &unmeasured) {
        (true, ..) => Some("schedules for GPUs have no versions for several sizes"),
        (_, true, _) => Some("kernels of networks have no versions for several sizes"),
        (.., Some(_)) => Some("sizes are compared by measurements"),
        _ => None,
    };
    let sizes = sizes::combinations(&arguments, alone)?;
    let how = (threads, args.reassociate);
    let spaces = spaces(&program, &graphs, template.as_ref(), &options, how)
        .map_err(|diag| Error::Compile(program.sources.clone(), Failure::User(vec![*diag])))?;
    let farm = farm.map(|farm| Rc::new(RefCell::new(farm)));
    let typical = MachineModel::typical(&options.target);
    let (machine, limits) = match (&unmeasured, &farm) {
        (Some(_), _) => (typical, None),
        (None, None) => machine_of(&options, threads),
        (None, Some(_)) if options.target.is_gpu() => (typical, None),
        (None, Some(farm)) => {
            let limits = farm.borrow_mut().limits(Isa::of(&options.target), threads)?;
            (limits.refine(typical), Some(limits))
        }
    };
    let bugs = RefCell::new(Vec::new());
    let evaluator = |graph| {
        let (refused, bugs, machine) = (RefCell::default(), &bugs, &machine);
        let parsed = ParsedLines::default();
        CostEvaluator { graph, options: &options, machine, threads, parsed, bugs, refused }
    };
    let evaluators: Vec<CostEvaluator<'_>> = graphs.iter().map(evaluator).collect();
    let models: Vec<Box<CostModel<'_>>> = evaluators.iter().map(CostEvaluator::model).collect();
    if let Some(why) = &unmeasured {
        let head = unmeasured::EstimateInfo { options: &options, machine: &machine, threads, why };
        let kernels = evaluators.iter().zip(&models).zip(&spaces);
        let kernels =
            kernels.map(|((evaluator, model), (space, _))| (evaluator, &**model, &**space));
        estimate(args, &program, (&head, &arguments), kernels, reporter)?;
        show_bugs(&bugs);
        return Ok(());
    }
    let plain: Vec<Kernel> = graphs
        .iter()
        .map(|graph| driver::lower_unoptimized(graph, &options.target))
        .collect::<Result<_, _>>()
        .map_err(|failure| Error::Compile(program.sources.clone(), failure))?;
    let (options, program) = (&options, &program);
    let (noted, shown) = (RefCell::default(), Cell::default());
    let run = Run { args, farm, options, program, plain, limits, path, begin, noted, shown };
    let (mut tasks, mut kernel_of) = (Vec::new(), Vec::new());
    let parts = kernels;
    let kernels = evaluators.iter().zip(&models).zip(&spaces);
    for (at, ((evaluator, model), (space, is_template))) in kernels.enumerate() {
        // A search of knobs ignores trials of other schedules.
        let own = is_template.then_some(&**space);
        let own_sizes = sizes::sizes_of(&run.plain[at], &sizes);
        for arguments in &own_sizes {
            let search = Search::new(&**space, &**model, arguments.seed);
            let mut task = run.open((at, &parts[at]), evaluator, (arguments, search), own)?;
            if own_sizes.len() > 1 {
                task.name = format!("{} {}", task.name, arguments.of(&run.plain[at]).var.join(" "));
            }
            tasks.push(task);
            kernel_of.push(at);
        }
    }
    let limits = Limits::new(args, begin, if tasks.len() > parts.len() { 2 } else { 1 });
    tasks.iter_mut().for_each(|task| task.ends = limits.search.map(|search| begin + search));
    search(&mut tasks, &limits, reporter)?;
    let (mut reports, winners) = decide(&mut tasks, &limits)?;
    let seconds = limits.last / tasks.len() as f64;
    for (at, graph) in graphs.iter().enumerate() {
        let first = kernel_of.partition_point(|kernel| *kernel < at);
        let end = kernel_of.partition_point(|kernel| *kernel <= at);
        let (tasks, winners) = (&mut tasks[first..end], &winners[first..end]);
        if !sizes::compare_sizes(tasks, winners, seconds, limits.end)? {
            eprintln!(
                "note: {}: the budget was too short to compare the schedules of all sizes; a \
                 schedule is used for the sizes at which it was measured",
                graph.name
            );
        }
    }
    for (report, at) in reports.iter_mut().zip(&kernel_of) {
        report.find_packed(&evaluators[*at]);
    }
    let versions = sizes::versions(&tasks, &run.path)?;
    for (graph, text) in graphs.iter().filter_map(|one| Some((one, versions.get(&one.name)?))) {
        // What is known in a version may make a directive illegal that was legal without it.
        if let Err(Failure::User(diags)) =
            driver::estimate_text(graph, text, options, &machine, threads)
        {
            eprintln!("note: {}: the versions are refused together: {}", graph.name, diags[0]);
        }
    }
    show_bugs(&bugs);
    let network = is_network.then_some(&args.file[..]);
    let head = report::RunInfo { options, threads, records: &run.path, network, versions };
    let text =
        if args.json { report::json(&head, &reports) } else { report::text(&head, &reports) };
    print_and_plot(&text, args, reporter, || report::svg(&reports))?;
    match tasks.iter().find_map(Task::lost) {
        None => Ok(()),
        Some(why) => {
            let text = format!("the search ended early: no machine is left; the last was {why}");
            let note = "what was measured is recorded; the next run continues from it";
            Err(Diag::global("E0607", text).note(note).into())
        }
    }
}

/// Returns the commands of `--on`; `@FILE` has one a line.
fn machines(texts: &[String]) -> Result<Vec<String>, Error> {
    let mut commands = Vec::new();
    for text in texts {
        let Some(path) = text.strip_prefix('@') else {
            commands.push(text.clone());
            continue;
        };
        let listed = input::read_text(Path::new(path), 1 << 20)
            .map_err(|why| Diag::global("E0606", format!("cannot read `{path}`: {why}")))?;
        let lines = listed.lines().map(str::trim);
        commands.extend(lines.filter(|l| !l.is_empty() && !l.starts_with('#')).map(String::from));
    }
    match commands.is_empty() && !texts.is_empty() {
        true => Err(Error::Usage("`--on`: the file has no command".to_string())),
        false => Ok(commands),
    }
}

/// Prints first, because writing the plot may fail.
fn print_and_plot(
    text: &str,
    args: &TuneArgs,
    reporter: &Reporter,
    svg: impl FnOnce() -> String,
) -> Result<(), Error> {
    let printed = print(text);
    if let Some(plot) = &args.plot {
        let bytes = svg().into_bytes();
        reporter.write(&[OutputFile { path: plot.into(), bytes, executable: false }])?;
    }
    printed
}

fn show_bugs(bugs: &RefCell<Vec<String>>) {
    for bug in bugs.borrow().iter() {
        eprintln!("note: a candidate triggered a bug in tec: {bug}");
    }
}

/// Returns why nothing is measured, if so: `--estimate`, or no GPU for a GPU target.
fn why_unmeasured(args: &TuneArgs, options: &Options) -> diag::Result<Option<String>> {
    let target = &options.target;
    if args.estimate {
        return Ok(Some("--estimate".to_string()));
    }
    if args.runner.is_some() || !args.on.is_empty() || target.runs_here() {
        return Ok(None);
    }
    if target.is_gpu() {
        return Ok(Gpu::find().err().map(|diag| diag.message.clone()));
    }
    let text = format!("code for {target} does not run on this machine");
    let help = match target.os {
        Os::Linux => "measure it on a machine that it is for: --on 'ssh HOST'".to_string(),
        os => {
            let cpu = target.cpu_name();
            format!("tune for {cpu}: its schedules and records serve {} too", os.name())
        }
    };
    let help = format!("{help}; or let the cost model decide: --estimate");
    Err(Box::new(Diag::global("E0545", text).help(help)))
}

/// A kernel to search by the cost model alone.
type Unmeasured<'a> = (&'a CostEvaluator<'a>, &'a CostModel<'a>, &'a dyn Space);

/// Searches by the cost model alone, kernel by kernel, and prints the results.
fn estimate<'a>(
    args: &TuneArgs,
    program: &Program,
    (head, arguments): (&unmeasured::EstimateInfo<'_>, &Arguments),
    kernels: impl ExactSizeIterator<Item = Unmeasured<'a>>,
    reporter: &Reporter,
) -> Result<(), Error> {
    let minute = Duration::from_secs(60);
    let stopped = stop_flag();
    let limits = unmeasured::Limits {
        budget: args.budget.or(args.trials.is_none().then_some(minute)),
        candidates: args.trials,
        given: args.budget.is_some() || args.trials.is_some(),
        stopped: &stopped,
    };
    let (mut all, parts) = (Vec::new(), kernels.len());
    for (evaluator, model, space) in kernels {
        // Run-time integers may have no value; the model assumes one.
        let plain = driver::lower_unoptimized(evaluator.graph, &head.options.target).ok();
        let work = plain.and_then(|plain| {
            let arguments = arguments.of(&plain);
            work_of(evaluator.graph, &plain, &[&plain], head.options, &arguments, program).ok()
        });
        let (what, limits, seed) = ((space, model), (&limits, parts), arguments.seed);
        let found = unmeasured::search(evaluator, what, work, limits, seed, reporter);
        let failed = |failure| Error::Compile(program.sources.clone(), failure);
        all.push(found.map_err(failed)?);
    }
    if args.compile.records.is_some() {
        eprintln!("note: nothing was measured, so nothing is recorded");
    }
    let text = if args.json { unmeasured::json(head, &all) } else { unmeasured::text(head, &all) };
    print_and_plot(&text, args, reporter, || unmeasured::svg(&all))
}

/// The common state of all kernels of a run.
struct Run<'a> {
    args: &'a TuneArgs,
    /// The machines of `--on`.
    farm: Option<Rc<RefCell<Farm>>>,
    options: &'a Options,
    program: &'a Program,
    /// The loops of the kernels' default schedules.
    plain: Vec<Kernel>,
    /// The machine's limits, if it can run code for the target.
    limits: Option<machine::Machine>,
    /// The records.
    path: PathBuf,
    begin: Instant,
    /// The notes about kernels that are printed; without their names in a network.
    noted: RefCell<BTreeSet<String>>,
    /// Whether the notes about the records are printed.
    shown: Cell<bool>,
}

impl Run<'_> {
    /// Opens the search for a kernel with its recorded trials, only those of the space `own` if
    /// there is one. Prints notes about the records for the first kernel.
    fn open<'s>(
        &self,
        (at, kernel): (usize, &SingleKernel),
        evaluator: &CostEvaluator<'_>,
        (arguments, search): (&Arguments, Search<'s>),
        own: Option<&dyn Space>,
    ) -> Result<Task<'s>, Error> {
        let (args, graph, plain) = (self.args, evaluator.graph, &self.plain[at]);
        let all: Vec<&Kernel> = self.plain.iter().collect();
        let work = work_of(graph, plain, &all, self.options, arguments, self.program)?;
        let arguments = arguments.of(plain);
        let setup = Setup::new(&args.file, kernel, self.options, &args.compile, &arguments);
        // Fails before the measurements if the records cannot be written.
        Writer::open(&self.path)?;
        let owner = owner(&workload_hash(graph), &self.path);
        let (measure, machine): (Box<dyn Measure>, _) = match &self.farm {
            Some(farm) => {
                let machine = farm.borrow().machine_for(&self.options.target);
                (Box::new(FarKernel::open(farm, setup.clone())?), machine)
            }
            None => super::open(setup.clone(), args.runner.as_deref(), owner)?,
        };
        // The limits are those of this machine, or of `--on`, not of a runner's.
        let known = self.farm.is_some() || machine == recorded::machine(&setup.target);
        let limits = self.limits.as_ref().filter(|_| known);
        let roofline = limits.and_then(|limits| Roofline::new(limits, &work));
        let context = context(&setup, graph, machine, arguments.seed);
        let (log, parsed) = Log::open(&self.path, &setup, context)?;
        if !self.shown.replace(true) {
            recorded::files::show_notes(&self.path, &parsed);
        }
        let mut task = Task::new(measure, search, (work, roofline), log, self.begin);
        task.progress.calls = kernel.calls;
        let ResumedTrials { count, refused } = task.resume(&parsed.records, evaluator, own);
        if count > 0 {
            let (plural, path) = (if count == 1 { "" } else { "s" }, self.path.display());
            eprintln!("note: {}: {count} trial{plural} resumed from {path}", graph.name);
        }
        if refused > 0 {
            let (plural, path) = (if refused == 1 { "" } else { "s" }, self.path.display());
            let all = evaluator.refused.borrow();
            let first = all.iter().next().map(|(code, (_, text))| format!(", {code}: {text}"));
            let (kernel, why) = (&graph.name, first.unwrap_or_default());
            eprintln!(
                "note: {kernel}: {refused} trial{plural} of {path} ignored, whose schedules \
                       this version refuses{why}"
            );
        }
        // The kernels of a network have the same notes, and so have the sizes of a kernel.
        for note in task.notes() {
            let about = match kernel.network {
                Some(_) => note.replace(&format!("`{}`", graph.name), ""),
                None => format!("{}: {note}", graph.name),
            };
            if self.noted.borrow_mut().insert(about) {
                eprintln!("note: {}: {note}", graph.name);
            }
        }
        Ok(task)
    }
}

fn check_paths(args: &TuneArgs) -> Result<(), Error> {
    if !args.file.ends_with(".te") && !is_model(&args.file) {
        let text = format!("`tec tune` takes a `.te` file or an ONNX model, not {}", args.file);
        return Err(Error::Usage(text));
    }
    let Some(path) = &args.plot else { return Ok(()) };
    if Path::new(path).extension().is_none_or(|ext| ext != "svg") {
        let text = format!("`--plot {path}`: the plot is an SVG; name it `OUT.svg`");
        return Err(Error::Usage(text));
    }
    // Check now, not after the search.
    match Path::new(path).parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            let text = format!("cannot write `{path}`: there is no folder {}", folder.display());
            Err(Diag::global("E0501", text).into())
        }
        _ => Ok(()),
    }
}

/// Refuses options for which candidates would differ from what `tec build` makes, or could not be
/// compared bit by bit.
pub fn check_options(compile: &CompileArgs) -> Result<(), Error> {
    let wrong = if compile.opt != 3 {
        "`--opt`: fully optimised code is measured; leave the option out"
    } else if compile.fast_math {
        "`--fast-math`: results that are approximated cannot be verified; leave the option out"
    } else if compile.no_cache {
        "`--no-cache`: a search does not use the cache of automatic schedules; leave the option out"
    } else if compile.dump.is_some() || compile.time {
        "`--dump` and `--time` are about one schedule: give them to `tec build`"
    } else {
        return Ok(());
    };
    Err(Error::Usage(wrong.to_string()))
}

/// Returns the schedule whose knobs are searched, if any, and options that ignore all schedules.
fn options_of(args: &TuneArgs) -> Result<(Option<ScheduleSelector>, Options), Error> {
    let mut options = args.compile.options()?;
    // The worker packs inputs before it measures.
    options.prepacked = PrepackedInputs::All;
    Ok((options.schedule.take(), options))
}

/// Returns `FILE.records.jsonl` for `FILE.te` or `FILE.onnx`.
pub fn default_records(file: &str) -> PathBuf {
    let stem = file.strip_suffix(".te").or_else(|| file.strip_suffix(".onnx"));
    PathBuf::from(format!("{}.records.jsonl", stem.unwrap_or(file)))
}

/// Returns the kernels that can be measured on random inputs. Refuses knobs of a schedule for the
/// kernels of a network, which have none in the file (E0703).
fn searched(
    kernels: Vec<SingleKernel>,
    template: Option<&ScheduleSelector>,
) -> Result<Vec<SingleKernel>, Error> {
    let part = kernels.iter().find_map(|one| one.network.as_ref());
    if let (Some(network), Some((_, name))) = (part, template) {
        let text = format!("`--schedule {name}` has no effect on the network `{network}`");
        let note = "the file has no schedules for the kernels of a network";
        return Err(Diag::global("E0703", text).note(note).into());
    }
    let (left, kept): (Vec<_>, Vec<_>) = kernels
        .into_iter()
        .partition(|one| one.network.is_some() && one.graph.reads_at_loaded_indices());
    if !left.is_empty() {
        let names: Vec<String> = left.iter().map(|one| format!("`{}`", one.graph.name)).collect();
        eprintln!(
            "note: not searched: {}: random inputs would be indices out of bounds; automatic \
             schedules are kept",
            names.join(", ")
        );
    }
    if kept.is_empty() {
        let text = "no kernel of the network can be measured on random inputs";
        return Err(Diag::global("E0601", text).into());
    }
    Ok(kept)
}

fn dags(graphs: &[Graph]) -> String {
    let mut text = String::new();
    for (at, graph) in graphs.iter().enumerate() {
        if graphs.len() > 1 {
            text.push_str(&format!("{}# {}\n", if at > 0 { "\n" } else { "" }, graph.name));
        }
        text.push_str(&dag::print_dag(graph));
    }
    text
}

/// Returns the space of each kernel, and whether it is that of a schedule's knobs.
fn spaces(
    program: &Program,
    graphs: &[Graph],
    template: Option<&ScheduleSelector>,
    options: &Options,
    (threads, reassociate): (usize, bool),
) -> diag::Result<Vec<(Box<dyn Space>, bool)>> {
    let target = &options.target;
    crate::schedule::check_selector(program, graphs, target, template)?;
    let mut spaces: Vec<(Box<dyn Space>, bool)> = Vec::new();
    for graph in graphs {
        let wanted = template
            .filter(|(kernel, _)| kernel.as_ref().is_none_or(|kernel| *kernel == graph.name));
        let item =
            wanted.and_then(|(_, name)| crate::schedule::find(program, &graph.name, name, target));
        let space: Box<dyn Space> = match item {
            Some(item) => {
                let defines = &options.defines;
                check_defines(item, &graph.name, defines)?;
                Box::new(space::of_schedule(program, graph, target, defines, item)?)
            }
            None if reassociate => Box::new(space::of_kernel_reassociated(graph, target, threads)),
            None => Box::new(space::of_kernel(graph, target, threads)),
        };
        spaces.push((space, item.is_some()));
    }
    if let (true, Some((_, name))) = (spaces.iter().all(|(_, own)| !own), template) {
        let text = format!("the file has no schedule `{name}`");
        let help = "leave out `--schedule`: the rules write schedules";
        return Err(Box::new(Diag::global("E0303", text).help(help)));
    }
    for (graph, (_, is_template)) in graphs.iter().zip(&spaces) {
        if let (false, Some((_, name))) = (is_template, template) {
            let kernel = &graph.name;
            eprintln!(
                "note: {kernel}: the rules are searched, because it has no schedule `{name}`"
            );
        }
    }
    Ok(spaces)
}

/// Refuses definitions of a searched schedule's parameters: it is searched as it is in the file.
fn check_defines(item: &ast::Schedule, kernel: &str, defines: &Defines) -> diag::Result<()> {
    let Some(name) = &item.name else { return Ok(()) };
    let is_own = |(of, text, _): &&(Option<String>, String, String)| {
        let own = text.split_once('.').is_some_and(|(schedule, _)| schedule == name.text);
        own && of.as_ref().is_none_or(|of| of == kernel)
    };
    let Some((_, text, value)) = defines.iter().find(is_own) else { return Ok(()) };
    let message =
        format!("`{text}` cannot be {value} here: the schedule is searched as it is in the file");
    let diag = Diag::new("E0217", name.span, message);
    Err(Box::new(diag.help("write the value into the file, or a `knob` to search for it")))
}

/// Counts the work of a call.
fn work_of(
    graph: &Graph,
    plain: &Kernel,
    all: &[&Kernel],
    options: &Options,
    arguments: &Arguments,
    program: &Program,
) -> Result<Work, Error> {
    let failed = |failure| Error::Compile(program.sources.clone(), failure);
    let counted = driver::count_work(graph, &options.target).map_err(failed)?;
    let given = arguments.read(plain, all)?;
    Ok(Work::counted(&counted, plain, &data::find_sizes(plain, &given)?))
}

/// When to stop.
struct Limits {
    begin: Instant,
    /// The end of the search; the rest of the budget is for the last comparison.
    search: Option<Duration>,
    /// The end of the budget.
    end: Option<Instant>,
    /// Seconds of the last comparison of each kernel.
    last: f64,
    trials: Option<usize>,
    stopped: Arc<AtomicBool>,
}

impl Limits {
    /// Returns the limits of a search that compares its best candidates so many times at the end.
    fn new(args: &TuneArgs, begin: Instant, comparisons: u32) -> Limits {
        let minute = Duration::from_secs(60);
        let budget = args.budget.or((args.trials.is_none()).then_some(minute));
        let whole = budget.unwrap_or(minute).as_secs_f64();
        let (part, least, most) = LAST_COMPARISON;
        // Most of a short budget is for the search.
        let all = MAX_COMPARISON_FACTOR * f64::from(comparisons);
        let last = (whole * part).clamp(least, most).min(whole / (2.0 * all));
        let stopped = stop_flag();
        let search =
            budget.map(|budget| budget.saturating_sub(Duration::from_secs_f64(all * last)));
        let end = budget.map(|budget| begin + budget);
        Limits { begin, search, end, last, trials: args.trials, stopped }
    }

    fn is_over(&self, trials: usize) -> bool {
        self.stopped.load(Ordering::SeqCst)
            || self.search.is_some_and(|search| self.begin.elapsed() >= search)
            || self.trials.is_some_and(|most| trials >= most)
    }
}

/// Returns a flag that the first Ctrl-C sets, which ends the search and prints the results; a
/// second Ctrl-C ends the process.
fn stop_flag() -> Arc<AtomicBool> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        eprintln!("\nstopping after the current candidates; press Ctrl-C again to stop at once");
    });
    stopped
}

/// Measures batches until a limit is reached or all spaces are exhausted.
fn search(tasks: &mut [Task<'_>], limits: &Limits, reporter: &Reporter) -> Result<(), Error> {
    let mut progress =
        report::ProgressLine::new(reporter, limits.search, limits.trials, limits.begin);
    let mut trials = 0;
    while !limits.is_over(trials) {
        let all: Vec<budget::Progress> = tasks.iter().map(|task| task.progress.clone()).collect();
        let Some(at) = budget::next(&all) else { break };
        let task = &mut tasks[at];
        let batch = BATCH.max(4 * task.width());
        // Few trials are for all searches, too.
        let left = limits
            .trials
            .map_or(batch, |most| (most - trials).min(batch).min(most.div_ceil(all.len())));
        let before = task.trials;
        task.batch(left, &mut |view: &TaskView<'_>| {
            progress.show(view);
            !limits.is_over(view.trials - before + trials)
        })?;
        trials += task.trials - before;
        for note in task.notes() {
            progress.note(&format!("note: {}: {note}", task.name));
        }
        if task.lost().is_some() {
            break;
        }
    }
    progress.end();
    Ok(())
}

/// Returns the best candidate of each search.
fn decide(
    tasks: &mut [Task<'_>],
    limits: &Limits,
) -> Result<(Vec<Report>, Vec<Option<Proposal>>), Error> {
    let seconds = limits.last / tasks.len() as f64;
    let (mut reports, mut winners) = (Vec::new(), Vec::new());
    let mut left = tasks.len() as u32;
    for task in tasks {
        // The remaining kernels share the remaining time.
        let now = Instant::now();
        let ends = limits.end.map(|end| now + end.saturating_duration_since(now) / left);
        left -= 1;
        let winner: Option<Winner> = task.decide(seconds, ends)?;
        winners.push(winner.as_ref().map(|winner| winner.trial.proposal.clone()));
        reports.push(Report::new(task, winner, limits.begin.elapsed()));
    }
    Ok((reports, winners))
}
