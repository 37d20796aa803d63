//! The process that compiles, runs, verifies and times candidates for a search: whatever becomes
//! of it, the search goes on with another.
//!
//! Requests come as lines on standard input, replies go to standard output. The process dies with
//! the one that started it, and a candidate that wants more memory than it may have fails alone.

use super::super::bench::measure::{AlignedArgs, Timed, in_turns};
use super::super::compile;
use super::super::data::{self, Given};
use super::super::report::Error;
use super::ahead::Ahead;
use super::leaders::Lead;
use super::plant::{Plant, planted};
use super::protocol::{Reference, Reply, Request, Setup};
use super::samples::Trouble;
use super::{reference, verify};
use crate::diag::Diag;
use crate::driver::{self, Failure, Options, Trace, panic_text};
use crate::ir::Kernel;
use crate::ir::cost::Work;
use crate::ir::interp::{Tensor, Value};
use crate::module::gpu::Gpu;
use crate::module::load::{Arg, LoadedKernel, LoadedModule};
use crate::module::write::{OutputFile, write_files};
use crate::module::{BuildInfo, KernelInfo, ModuleKind};
use crate::schedule::{self, BoundedSchedule, Free, Schedule};
use crate::target::Target;
use crate::te::Graph;
use crate::tune::{Job, Outcome, TrialFailure, Verdict};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Seconds of a batch of calls.
const BATCH: f64 = 0.004;
/// Seconds of all batches of a candidate, about.
const ENOUGH: f64 = 0.05;
/// Batches of a candidate, at least and at most.
const BATCHES: (usize, usize) = (3, 12);
/// How many times slower than the best a candidate is measured once only.
const CLEARLY_SLOWER: f64 = 1.5;
/// A comparison lasts longer where the best is not sure, and begins with compiling.
pub const LONGER: f64 = 2.5;

/// Candidates that are measured in turns without one another's memory, at least.
const LEADERS: u64 = 16;

/// Runs the command.
pub fn run() -> Result<(), Error> {
    // A crash is told by its signal; what the process held is of no use to anyone.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut bench: Option<Bench> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let request: Request = serde_json::from_str(&line).map_err(|error| {
            Error::Usage(format!("`tec tune-worker` is told what to do by `tec tune`: {error}"))
        })?;
        match (request, &mut bench) {
            (Request::Setup { setup, reference }, _) => {
                let opened = catch_unwind(AssertUnwindSafe(|| Bench::open(setup, reference)));
                match opened.unwrap_or_else(|payload| Err(Trouble::Wrong(panic_text(&*payload)))) {
                    Ok((made, notes)) => {
                        bench = Some(made);
                        say(&Reply::Ready { notes })?;
                    }
                    Err(Trouble::Unsampled(why)) => say(&Reply::Unsampled(why))?,
                    Err(Trouble::Wrong(why)) => say(&Reply::Unfit(why))?,
                }
            }
            (Request::Measure { job, best }, Some(bench)) => {
                let outcome = guarded(|| bench.measure(&job, best));
                say(&Reply::Done(vec![outcome]))?;
            }
            (Request::Compare { jobs, seconds }, Some(bench)) => {
                say(&Reply::Done(bench.compare(&jobs, seconds)))?;
            }
            (_, None) => {
                return Err(Error::Usage("the first message is the setup".to_string()));
            }
        }
    }
    Ok(())
}

fn say(reply: &Reply) -> Result<(), Error> {
    let line = serde_json::to_string(reply).expect("plain data") + "\n";
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|_| Error::BrokenPipe)
}

/// The outcome, or the panic as a defect.
fn guarded(run: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|payload| Outcome::Failed(TrialFailure::Bug(panic_text(&*payload))))
}

/// A kernel with its arguments, ready for candidates.
pub struct Bench {
    /// What was asked for.
    pub setup: Setup,
    /// The kernel.
    pub graph: Graph,
    /// How it is compiled.
    pub options: Options,
    /// How the reference output is compiled: the same, but for this machine's CPU where candidates
    /// run on a GPU.
    pub judge: Options,
    /// Where candidates run, if not on the CPU.
    gpu: Option<Gpu>,
    /// Its plain loops: the judge's program.
    pub plain: Kernel,
    /// The arguments, in the order of the kernel's parameters.
    pub values: Vec<Value>,
    work: Work,
    args: AlignedArgs,
    expected: Vec<Tensor>,
    bound: f64,
}

/// A candidate in this process.
pub struct Compiled {
    kernel: LoadedKernel,
    /// What is called if it packs inputs whose layout is free.
    ahead: Option<Ahead>,
    /// The order of sums is the schedule's.
    reassociated: bool,
    plant: Option<Plant>,
}

impl Compiled {
    /// What is called, and with which arguments: `usual` are those of the plain loops.
    fn called<'a>(
        &'a mut self,
        plain: &'a Kernel,
        usual: &'a mut AlignedArgs,
    ) -> (&'a Kernel, &'a LoadedKernel, &'a mut AlignedArgs) {
        match &mut self.ahead {
            Some(ahead) => {
                let (kernel, args) = ahead.call();
                (kernel, &self.kernel, args)
            }
            None => (plain, &self.kernel, usual),
        }
    }
}

impl Bench {
    fn open(setup: Setup, how: Reference) -> Result<(Bench, Vec<String>), Trouble> {
        let (compile, arguments) = (setup.compile(), setup.arguments());
        let mut trace = Trace::default();
        let options = compile.options().map_err(text_of)?;
        let options = Options { free: Free::All, ..options };
        let elaborated = compile::elaborate_file(&setup.file, &options, &mut trace);
        let (program, mut graphs) = elaborated.map_err(text_of)?;
        if graphs.len() != 1 {
            return Err(format!("{} has no kernel `{}`", setup.file, setup.kernel).into());
        }
        let graph = graphs.remove(0);
        let failed = |failure| text_of(Error::Compile(program.sources.clone(), failure));
        let plain = driver::lower_naively(&graph, &options.target).map_err(failed)?;
        let work = driver::count_work(&graph, &options.target).map_err(failed)?;
        let given: Given = arguments.read(&plain, &[&plain]).map_err(text_of)?;
        // They are there as they were, as a candidate takes them, and as its results should be.
        data::check_memory(&plain, &given, 3).map_err(|diag| diag.message.clone())?;
        let values = data::make_args(&plain, &given).map_err(|diag| diag.to_string())?;
        let bound = verify::bound(&graph);
        let args = AlignedArgs::new(values.clone());
        let expected = Vec::new();
        let (mut judge, mut gpu) = (options.clone(), None);
        if options.target.is_gpu() {
            gpu = Some(Gpu::open().map_err(|diag| diag.message.clone())?);
            judge.target = Target::parse("native").map_err(|diag| diag.to_string())?;
        }
        let (mut bench, mut notes) = (
            Bench { setup, graph, options, judge, gpu, plain, values, work, args, expected, bound },
            Vec::new(),
        );
        let begin = &mut || {
            let _ = say(&Reply::Referring);
        };
        bench.expected = reference::make(&mut bench, &given, how, begin, &mut notes)?;
        if bench.gpu.is_some() {
            // Drivers reserve addresses as they like, and what a candidate takes is the GPU's.
            return Ok((bench, notes));
        }
        // What is there now is not the candidate's; leaders have arguments of their own.
        let own = bench.args.bytes() * LEADERS;
        let taken = address_space().unwrap_or(0) + own + bench.setup.memory;
        let _ = setrlimit(Resource::As, Rlimit { current: Some(taken), maximum: Some(taken) });
        Ok((bench, notes))
    }

    /// The kernel under the schedule of the reference output.
    pub fn place_reference(&self, reference: Reference) -> Result<BoundedSchedule, String> {
        let target = &self.judge.target;
        let schedule = match reference {
            Reference::Default | Reference::Patient => Schedule::new(self.graph.clone(), target),
            Reference::Auto => {
                // The order of sums is to be the declared one.
                let mut graph = self.graph.clone();
                graph.forbid_reassociation();
                let text = crate::tune::space::default_text(&graph, target);
                schedule::apply_text(&graph, target, &Vec::new(), &text)
                    .map_err(|diag| diag.to_string())?
            }
        };
        schedule::infer_bounds(schedule).map_err(|diag| diag.to_string())
    }

    /// The outputs of a candidate that nothing is compared with yet.
    pub fn run_reference(&mut self, compiled: &Compiled) -> Result<Vec<Tensor>, String> {
        let Bench { plain, args, values, .. } = self;
        args.spoil(plain);
        compiled.kernel.call(args.of(plain)).map_err(|diag| diag.message.clone())?;
        let outputs = values.iter().zip(&plain.params).filter_map(|(value, param)| {
            let is_output = matches!(param, crate::ir::Param::Tensor { output: true, .. });
            match value {
                Value::Tensor(tensor) if is_output => Some(tensor.clone()),
                _ => None,
            }
        });
        let results = args.results(plain);
        let outputs = outputs.zip(results);
        Ok(outputs.map(|(out, bytes)| Tensor { data: bytes.to_vec(), ..out }).collect())
    }

    fn compile(&self, text: &str) -> Result<Compiled, TrialFailure> {
        let (target, defines) = (&self.options.target, &self.options.defines);
        let mut trace = Trace::default();
        let apply = || schedule::apply_text(&self.graph, target, defines, text);
        let schedule = trace.phase("schedule", &String::new, apply).map_err(failure_of)?;
        let schedule = schedule.map_err(|diag| TrialFailure::Refused(diag.to_string()))?;
        let infer = || schedule::infer_bounds(schedule);
        let placed = trace.phase("infer_bounds", &String::new, infer).map_err(failure_of)?;
        let placed = placed.map_err(|diag| TrialFailure::Refused(diag.to_string()))?;
        let free = || schedule::prepack_free(&placed, &self.options.free);
        let made = trace.phase("prepack", &String::new, free).map_err(failure_of)?;
        let mut compiled = match made {
            Some(made) => self.compile_ahead(&made, &mut trace)?,
            None => self.compile_placed(&placed, &self.options, &mut trace)?,
        };
        compiled.plant = planted(text);
        Ok(compiled)
    }

    /// A scheduled kernel as code in this process.
    pub fn compile_placed(
        &self,
        placed: &BoundedSchedule,
        options: &Options,
        trace: &mut Trace,
    ) -> Result<Compiled, TrialFailure> {
        let placed = std::slice::from_ref(placed);
        let (module, lowered) = self.compile_all(placed, options, trace)?;
        let [lowered] = &lowered[..] else { crate::bug!("one kernel became several") };
        let kernel = module.kernel(&lowered.name).map_err(broken)?;
        Ok(Compiled { kernel, ahead: None, reassociated: lowered.reassociated, plant: None })
    }

    /// Kernels that pack inputs, and the one behind them that reads these.
    fn compile_ahead(
        &self,
        made: &[BoundedSchedule],
        trace: &mut Trace,
    ) -> Result<Compiled, TrialFailure> {
        let (module, mut lowered) = self.compile_all(made, &self.options, trace)?;
        let last = lowered.pop().unwrap_or_else(|| crate::bug!("no kernel"));
        let mut packs = Vec::new();
        for (one, pack) in made.iter().zip(lowered) {
            let code = module.kernel(&pack.name).map_err(broken)?;
            let part = one.part.clone().unwrap_or_else(|| crate::bug!("it packs something"));
            packs.push((part, pack, code));
        }
        let (kernel, reassociated) =
            (module.kernel(&last.name).map_err(broken)?, last.reassociated);
        let ahead = Some(Ahead::new(last, packs));
        Ok(Compiled { kernel, ahead, reassociated, plant: None })
    }

    fn compile_all(
        &self,
        placed: &[BoundedSchedule],
        options: &Options,
        trace: &mut Trace,
    ) -> Result<(LoadedModule, Vec<Kernel>), TrialFailure> {
        let mut lowered = Vec::new();
        for one in placed {
            lowered.push(driver::lower(one, options, None, trace).map_err(failure_of)?);
        }
        let info_of = |one: &BoundedSchedule| KernelInfo {
            parameters: self.graph.params.clone(),
            schedule: one.schedule.text.clone(),
            work: self.work.clone(),
            part: one.part.clone(),
        };
        let info = BuildInfo {
            module: "candidate".to_string(),
            target: options.target.clone(),
            fp_contract: self.setup.fp_contract.clone(),
            opt: options.opt,
            sources: Vec::new(),
            kernels: placed.iter().map(info_of).collect(),
        };
        let kind = ModuleKind::SharedObject;
        let built = driver::build(&lowered, &info, kind, trace).map_err(failure_of)?;
        let module = load(built.bytes).map_err(TrialFailure::Runner)?;
        let threads = match self.gpu {
            None => self.setup.threads,
            Some(_) => std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        };
        module.set_num_threads(threads as i32).map_err(broken)?;
        Ok((module, lowered))
    }

    /// Compiles, runs, verifies and times a candidate.
    fn measure(&mut self, job: &Job, best: Option<f64>) -> Outcome {
        let mut compiled = match self.compile(&job.text) {
            Ok(compiled) => compiled,
            Err(failure) => return Outcome::Failed(failure),
        };
        let mut run = |bench: &mut Bench| -> Result<Outcome, TrialFailure> {
            let first = bench.first_call(&mut compiled, job.limit)?;
            let verdict = bench.verdict(&compiled);
            if matches!(verdict, Verdict::Wrong { .. }) {
                return Ok(Outcome::Measured { times: vec![first], verdict });
            }
            let (kernel, code, args) = compiled.called(&bench.plain, &mut bench.args);
            let times = timed(bench.gpu.as_ref(), code, args.of(kernel))
                .and_then(|mut call| time(&mut call, first, best))
                .map_err(|diag| call_failure(&diag))?;
            if bench.gpu.is_some() {
                // What was timed left its results on the GPU.
                bench.args.spoil(&bench.plain);
                bench.call(&mut compiled)?;
            }
            // What threads do to each other may show later than in the first call.
            Ok(Outcome::Measured { times, verdict: bench.verdict(&compiled) })
        };
        run(self).unwrap_or_else(Outcome::Failed)
    }

    /// The seconds of a call whose outputs held nothing before.
    fn first_call(
        &mut self,
        compiled: &mut Compiled,
        limit: Duration,
    ) -> Result<f64, TrialFailure> {
        let gone = |_| TrialFailure::Runner("the search went away".to_string());
        say(&Reply::Running).map_err(gone)?;
        if let Some(plant) = compiled.plant {
            plant.act();
        }
        if let Some(ahead) = &mut compiled.ahead {
            ahead.pack(&self.plain, &self.values).map_err(|diag| call_failure(&diag))?;
        }
        let (kernel, _, args) = compiled.called(&self.plain, &mut self.args);
        args.spoil(kernel);
        let mut first = self.call(compiled)?.as_secs_f64();
        if self.gpu.is_some() {
            // Copies there and back took a part of that.
            let (kernel, code, args) = compiled.called(&self.plain, &mut self.args);
            let call = timed(self.gpu.as_ref(), code, args.of(kernel));
            let again = call.and_then(|mut call| call.seconds(1));
            first = again.map_err(|diag| call_failure(&diag))?;
        }
        say(&Reply::Ran).map_err(gone)?;
        if first > limit.as_secs_f64() { Err(TrialFailure::Timeout) } else { Ok(first) }
    }

    /// Calls a candidate; its results are in the arguments then.
    fn call(&mut self, compiled: &mut Compiled) -> Result<Duration, TrialFailure> {
        let (kernel, code, args) = compiled.called(&self.plain, &mut self.args);
        let args = args.of(kernel);
        let called = match &self.gpu {
            Some(gpu) => {
                let start = Instant::now();
                gpu.call(code, args).map(|()| start.elapsed())
            }
            None => {
                let mut call = code.bind(args);
                let start = Instant::now();
                call.call().map(|()| start.elapsed())
            }
        };
        called.map_err(|diag| call_failure(&diag))
    }

    fn verdict(&self, compiled: &Compiled) -> Verdict {
        let mut actual: Vec<&[u8]> = match &compiled.ahead {
            Some(ahead) => ahead.results(),
            None => self.args.results(&self.plain),
        };
        let bound = compiled.reassociated.then_some(self.bound);
        if compiled.plant == Some(Plant::Wrong) && !actual[0].is_empty() {
            let mut wrong = actual[0].to_vec();
            wrong[0] ^= 1;
            actual[0] = &wrong;
            return verify::verdict(&actual, &self.expected, bound);
        }
        verify::verdict(&actual, &self.expected, bound)
    }

    /// Measures candidates in turns, each with arguments of its own.
    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Vec<Outcome> {
        let begin = Instant::now();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; jobs.len()];
        let mut entrants = Vec::new();
        for (at, job) in jobs.iter().enumerate() {
            let mut compiled = None;
            let checked = guarded(|| {
                let made = self.compile(&job.text).and_then(|mut made| {
                    let first = self.first_call(&mut made, job.limit)?;
                    let verdict = self.verdict(&made);
                    compiled = Some(made);
                    Ok(Outcome::Measured { times: vec![first], verdict })
                });
                made.unwrap_or_else(Outcome::Failed)
            });
            match (checked, compiled) {
                (Outcome::Measured { verdict, .. }, Some(compiled))
                    if !matches!(verdict, Verdict::Wrong { .. }) =>
                {
                    // What reads packed inputs has arguments of its own.
                    let usual = if compiled.ahead.is_some() { &[][..] } else { &self.values[..] };
                    let args = AlignedArgs::new(usual.to_vec());
                    entrants.push((at, compiled, args, verdict));
                }
                (outcome, _) => outcomes[at] = Some(outcome),
            }
        }
        let plain = &self.plain;
        let gpu = self.gpu.as_ref();
        let calls = entrants.iter_mut();
        let calls = calls.map(|(_, one, args, _)| {
            let (kernel, code, args) = one.called(plain, args);
            timed(gpu, code, args.of(kernel))
        });
        let calls: crate::diag::Result<Vec<Timed<'_>>> = calls.collect();
        let rounds = calls.and_then(|mut calls| until_sure(&mut calls, seconds, begin));
        for (place, (at, .., verdict)) in entrants.iter().enumerate() {
            let (at, verdict) = (*at, *verdict);
            outcomes[at] = Some(match &rounds {
                Ok(times) => Outcome::Measured { times: times[place].clone(), verdict },
                Err(diag) => Outcome::Failed(call_failure(diag)),
            });
        }
        outcomes.into_iter().map(|one| one.expect("each has one")).collect()
    }
}

/// Seconds of a call in each round, for every call: half the time, and up to as much again twice
/// while the best two cannot be told apart and the comparison is not too long already.
fn until_sure(
    calls: &mut [Timed<'_>],
    seconds: f64,
    begin: Instant,
) -> crate::diag::Result<Vec<Vec<f64>>> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); calls.len()];
    let share = seconds / 2.0 / calls.len().max(1) as f64;
    for _ in 0..if calls.is_empty() { 0 } else { 3 } {
        let before = begin.elapsed();
        let rounds = in_turns(calls, None, share)?;
        times.iter_mut().zip(rounds.times).for_each(|(all, new)| all.extend(new));
        let lists: Vec<&[f64]> = times.iter().map(|list| &list[..]).collect();
        let sure = Lead::new(&lists).is_none_or(|lead| lead.is_sure());
        let after_another = 2 * begin.elapsed() - before;
        if sure || after_another.as_secs_f64() > LONGER * seconds {
            break;
        }
    }
    Ok(times)
}

/// A call to be timed, where candidates run.
fn timed<'a>(
    gpu: Option<&'a Gpu>,
    kernel: &LoadedKernel,
    args: Vec<Arg<'a>>,
) -> crate::diag::Result<Timed<'a>> {
    Ok(match gpu {
        None => Timed::Cpu(kernel.bind(args)),
        Some(gpu) => Timed::Gpu(gpu.bind(kernel, &args)?),
    })
}

/// Batches of calls, fewer of one that is clearly slower than the best.
fn time(call: &mut Timed<'_>, first: f64, best: Option<f64>) -> crate::diag::Result<Vec<f64>> {
    let mut one = first;
    // What is short is called until it is known how short: the first call brought data to caches.
    let mut count = 1;
    while one * (count as f64) < BATCH && count < 1 << 20 {
        one = call.seconds(count)?.max(1e-9) / count as f64;
        count = ((BATCH / one).ceil() as usize).clamp(1, 8 * count);
    }
    let (mut times, mut total) = (Vec::new(), 0.0);
    while times.len() < BATCHES.0 || total < ENOUGH && times.len() < BATCHES.1 {
        let elapsed = call.seconds(count)?;
        total += elapsed;
        times.push(elapsed / count as f64);
        if best.is_some_and(|best| times.iter().all(|time| *time > CLEARLY_SLOWER * best)) {
            break;
        }
    }
    Ok(times)
}

/// Loads a module from its bytes: the loader wants a file, which may vanish once it is mapped.
fn load(bytes: Vec<u8>) -> Result<LoadedModule, String> {
    let directory = tempfile::tempdir().map_err(|error| {
        format!("cannot make a temporary directory: {}", crate::module::input::io_text(&error))
    })?;
    let path = directory.path().join("candidate.so");
    write_files(&[OutputFile { path: path.clone(), bytes, executable: true }])
        .map_err(|diag| diag.message.clone())?;
    LoadedModule::open(&path).map_err(|diag| match diag.notes.first() {
        Some(note) => format!("{}: {note}", diag.message),
        None => diag.message.clone(),
    })
}

/// Bytes of addresses that the process has taken.
fn address_space() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn failure_of(failure: Failure) -> TrialFailure {
    match failure {
        Failure::User(diags) => {
            let first = diags.first().map(ToString::to_string);
            TrialFailure::Refused(first.unwrap_or_else(|| "refused".to_string()))
        }
        Failure::Bug { pass, message, .. } => TrialFailure::Bug(format!("{pass}: {message}")),
    }
}

fn broken(diag: Box<Diag>) -> TrialFailure {
    TrialFailure::Bug(diag.to_string())
}

fn call_failure(diag: &Diag) -> TrialFailure {
    if diag.message.contains("out of memory") {
        return TrialFailure::Memory;
    }
    TrialFailure::Call(diag.message.clone())
}

/// What an error says, in one line.
fn text_of(error: Error) -> String {
    match error {
        Error::Compile(_, Failure::User(diags)) => {
            diags.first().map_or_else(|| "the program is wrong".to_string(), ToString::to_string)
        }
        Error::Compile(_, Failure::Bug { pass, message, .. }) => format!("{pass}: {message}"),
        Error::Plain(diag) => diag.to_string(),
        Error::Usage(text) => text,
        Error::Silent | Error::BrokenPipe => "an error without a message".to_string(),
    }
}
