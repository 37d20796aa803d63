//! `tec tune-worker`: the process that compiles, runs, verifies and times candidates for a search,
//! and runs modules for `tec serve`.
//!
//! Requests come as lines on standard input, replies go to standard output. The worker dies with
//! the process that started it. If a candidate crashes the worker, another one is started; a
//! candidate that exceeds its memory limit fails alone.

use super::super::data;
use super::super::machine::{LimitLoop, Machine};
use super::super::measure::{AlignedArgs, Timed, measure_interleaved};
use super::super::remote::message::{
    Call, Candidate, Code, Done, Failure, GivenFiles, Prepared, TensorFile, Work,
};
use super::super::remote::store::Store;
use super::super::report::Error;
use super::super::session;
use super::comparison::Fastest;
use super::harness::{Builder, Harness, load};
use super::protocol::{Reference, Reply, Request, Setup};
use super::samples::SampleError;
use super::subject::{Loaded, Subject, call_failure, timed};
use super::{reference, verify};
use crate::diag::Diag;
use crate::driver::panic_text;
use crate::ir::Kernel;
use crate::ir::interp::{Tensor, Value};
use crate::module::gpu::Gpu;
use crate::module::load::{LoadedModule, args_of};
use crate::module::manifest::KernelManifest;
use crate::target::Target;
use crate::tune::{Outcome, TrialFailure, Verdict};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Compile, run and time candidates for the search that started this process.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// The folder of modules, inputs and outputs.
    #[arg(long)]
    store: Option<PathBuf>,
}

/// Seconds of a batch of calls.
const BATCH_SECONDS: f64 = 0.004;
/// Seconds of all batches of a candidate, about.
const MEASURE_SECONDS: f64 = 0.05;
/// Batches of a candidate, at least and at most.
const BATCHES: std::ops::RangeInclusive<usize> = 3..=12;
/// A candidate that is this many times slower than the best is measured by one batch only.
const CLEARLY_SLOWER: f64 = 1.5;
/// A comparison takes up to this many times its seconds if the best is not certain.
pub const MAX_COMPARISON_FACTOR: f64 = 2.5;

/// Candidates of a comparison whose arguments do not count against the memory limit.
const MAX_COMPARED: u64 = 16;

/// Runs the command.
pub fn run(args: &WorkerArgs) -> Result<(), Error> {
    // A crash is reported by its signal; a core file is of no use.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let store = args.store.as_ref().map(|folder| Store::at(folder, u64::MAX / 2));
    let store = store.as_ref();
    let mut trials: Option<Trials> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let request: Request = serde_json::from_str(&line).map_err(|error| {
            Error::Usage(format!("`tec tune-worker` takes requests from `tec tune`: {error}"))
        })?;
        let reply = match (request, &mut trials) {
            (Request::Setup { setup, reference }, _) => {
                opened(&mut trials, || Trials::open(*setup, reference))
            }
            (Request::Prepare(prepared), _) => {
                opened(&mut trials, || Trials::prepare(*prepared, required(store)?))
            }
            (Request::Measure { candidate, best }, Some(trials)) => {
                Reply::Done(vec![guarded(|| trials.measure(&candidate, store, best))])
            }
            (Request::Compare { candidates, seconds }, Some(trials)) => {
                Reply::Done(trials.compare(&candidates, store, seconds))
            }
            (Request::Export, Some(trials)) => {
                match required(store).and_then(|store| trials.export(store)) {
                    Ok(prepared) => Reply::Exported(Box::new(prepared)),
                    Err(why) => Reply::SetupFailed(why),
                }
            }
            (Request::Build(text), Some(trials)) => match trials.build(&text, store) {
                Ok(hash) => Reply::Built(hash),
                Err(failure) => Reply::Unbuilt(failure),
            },
            (Request::Work(work), _) => Reply::Worked(match required(store) {
                Ok(store) => worked(&work, store),
                Err(why) => Done::Failed(Failure::Machine(why)),
            }),
            (_, None) => {
                return Err(Error::Usage("the first message is the setup".to_string()));
            }
        };
        send(&reply)?;
    }
    Ok(())
}

fn required(store: Option<&Store>) -> Result<&Store, String> {
    store.ok_or_else(|| "the worker has no store".to_string())
}

/// Opens trials; a panic is a bug of the compiler.
fn opened(
    trials: &mut Option<Trials>,
    open: impl FnOnce() -> Result<(Trials, Vec<String>), SampleError>,
) -> Reply {
    let opened = catch_unwind(AssertUnwindSafe(open));
    match opened.unwrap_or_else(|payload| Err(SampleError::Mismatch(panic_text(&*payload)))) {
        Ok((made, notes)) => {
            *trials = Some(made);
            Reply::Ready { notes }
        }
        Err(SampleError::Unavailable(why)) => Reply::Unsampled(why),
        Err(SampleError::Mismatch(why)) => Reply::SetupFailed(why),
    }
}

/// Writes a reply.
fn send(reply: &Reply) -> Result<(), Error> {
    let line = serde_json::to_string(reply).expect("plain data") + "\n";
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|_| Error::BrokenPipe)
}

/// Returns the outcome; a panic is a bug of the compiler.
fn guarded(run: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|payload| Outcome::Failed(TrialFailure::Bug(panic_text(&*payload))))
}

/// The trials of a kernel.
struct Trials {
    /// Compiles schedules; none if candidates come as modules.
    builder: Option<Builder>,
    subject: Subject,
    /// The arguments of the command line.
    given: data::Given,
    /// The reference output.
    expected: Vec<Tensor>,
    /// The bound of differences where reduction terms may be reordered.
    bound: f64,
}

impl Trials {
    /// Makes the arguments and the reference output; returns notes for the user too.
    fn open(setup: Setup, reference: Reference) -> Result<(Trials, Vec<String>), SampleError> {
        let mut harness = Harness::open(setup)?;
        let bound = verify::bound(&harness.builder.graph);
        let mut notes = Vec::new();
        let begin = &mut || {
            let _ = send(&Reply::ComputingReference);
        };
        let expected = reference::make(&mut harness, reference, begin, &mut notes)?;
        let Harness { builder, subject, given } = harness;
        limit_memory(&subject, builder.setup.memory);
        Ok((Trials { builder: Some(builder), subject, given, expected, bound }, notes))
    }

    /// Makes the arguments of another machine's search.
    fn prepare(prepared: Prepared, store: &Store) -> Result<(Trials, Vec<String>), SampleError> {
        let told = |diag: Box<Diag>| diag.message.clone();
        let kernel = prepared.kernel.to_kernel().map_err(told)?;
        let target = Target::parse(&prepared.target).map_err(told)?;
        if !target.is_gpu() && !target.runs_here() {
            return Err(format!("code for {target} does not run on this machine").into());
        }
        let given = prepared.given.load(store)?;
        data::check_memory(&kernel, &given, 3).map_err(told)?;
        let values = data::make_args(&kernel, &given).map_err(told)?;
        let expected = prepared.expected.iter().map(|file| file.load(store));
        let expected = expected.collect::<Result<Vec<Tensor>, String>>()?;
        let gpu = target.is_gpu().then(Gpu::open).transpose().map_err(told)?;
        let subject = Subject::new(kernel, values, gpu, prepared.threads.clamp(1, 512));
        let outputs: Vec<&Tensor> = subject.outputs().collect();
        let same = |(a, b): (&&Tensor, &Tensor)| (a.dtype, &a.shape) == (b.dtype, &b.shape);
        if outputs.len() != expected.len() || !outputs.iter().zip(&expected).all(same) {
            return Err("the reference output is that of another kernel".to_string().into());
        }
        limit_memory(&subject, prepared.memory);
        let bound = prepared.bound;
        Ok((Trials { builder: None, subject, given, expected, bound }, Vec::new()))
    }

    /// Returns what another machine needs to measure candidates.
    fn export(&self, store: &Store) -> Result<Prepared, String> {
        let builder = self.builder.as_ref().ok_or("the worker compiles nothing")?;
        let expected = self.expected.iter().map(|tensor| TensorFile::save(tensor, store));
        Ok(Prepared {
            kernel: KernelManifest::interface(&self.subject.kernel),
            target: builder.setup.target.clone(),
            given: GivenFiles::save(&self.given, store)?,
            expected: expected.collect::<Result<_, _>>()?,
            bound: self.bound,
            threads: builder.setup.threads,
            memory: builder.setup.memory,
        })
    }

    /// Compiles a schedule, and writes the module to the store.
    fn build(
        &self,
        text: &str,
        store: Option<&Store>,
    ) -> Result<super::super::remote::store::Hash, TrialFailure> {
        let bytes = self.compile(text)?;
        let stored = required(store).and_then(|store| store.put(&bytes));
        stored.map_err(TrialFailure::Runner)
    }

    fn compile(&self, text: &str) -> Result<Vec<u8>, TrialFailure> {
        let Some(builder) = &self.builder else {
            return Err(TrialFailure::Runner("the worker compiles nothing".to_string()));
        };
        let built = catch_unwind(AssertUnwindSafe(|| builder.build(text)));
        built.unwrap_or_else(|payload| Err(TrialFailure::Bug(panic_text(&*payload))))
    }

    /// Loads a candidate, which may be compiled first.
    fn load(&self, code: &Code, store: Option<&Store>) -> Result<Loaded, TrialFailure> {
        let module = match code {
            Code::Schedule(text) => load(&self.compile(text)?)?,
            Code::Module(hash) => {
                let path = required(store).map_err(TrialFailure::Runner)?.path(hash);
                let failed = |diag: Box<Diag>| TrialFailure::Runner(told(&diag));
                LoadedModule::open(&path).map_err(failed)?
            }
        };
        self.subject.load(module)
    }

    /// Compiles, runs, verifies and times a candidate.
    fn measure(
        &mut self,
        candidate: &Candidate,
        store: Option<&Store>,
        best: Option<f64>,
    ) -> Outcome {
        let mut loaded = match self.load(&candidate.code, store) {
            Ok(loaded) => loaded,
            Err(failure) => return Outcome::Failed(failure),
        };
        self.run(&mut loaded, candidate.limit, best).unwrap_or_else(Outcome::Failed)
    }

    fn run(
        &mut self,
        loaded: &mut Loaded,
        limit: Duration,
        best: Option<f64>,
    ) -> Result<Outcome, TrialFailure> {
        let first = self.first_call(loaded, limit)?;
        let verdict = self.verdict(loaded);
        if matches!(verdict, Verdict::Wrong { .. }) {
            return Ok(Outcome::Measured { times: vec![first], verdict });
        }
        let call = self.subject.timed(loaded);
        let times = call.and_then(|mut call| time(&mut call, first, best));
        let times = times.map_err(|diag| call_failure(&diag))?;
        if self.subject.gpu.is_some() || self.subject.args.are_updated() {
            // The timed calls left their results on the GPU, or updated them many times.
            self.subject.reset_outputs(loaded);
            self.subject.call(loaded)?;
        }
        // A race may become visible only after the first call.
        Ok(Outcome::Measured { times, verdict: self.verdict(loaded) })
    }

    /// Calls a candidate with poisoned outputs, and returns the seconds.
    fn first_call(&mut self, loaded: &mut Loaded, limit: Duration) -> Result<f64, TrialFailure> {
        let gone = |_| TrialFailure::Runner("the search has ended".to_string());
        send(&Reply::Running).map_err(gone)?;
        self.subject.pack(loaded)?;
        self.subject.reset_outputs(loaded);
        let mut first = self.subject.call(loaded)?.as_secs_f64();
        if self.subject.gpu.is_some() {
            // The first call included the transfers to and from the GPU.
            let call = self.subject.timed(loaded);
            let again = call.and_then(|mut call| call.seconds(1));
            first = again.map_err(|diag| call_failure(&diag))?;
        }
        send(&Reply::Ran).map_err(gone)?;
        if first > limit.as_secs_f64() { Err(TrialFailure::Timeout) } else { Ok(first) }
    }

    /// Compares the results of the last call with the reference output.
    fn verdict(&self, loaded: &Loaded) -> Verdict {
        let bound = loaded.reassociated.then_some(self.bound);
        verify::verdict(&self.subject.results(loaded), &self.expected, bound)
    }

    /// Measures candidates interleaved, each with arguments of its own.
    fn compare(
        &mut self,
        candidates: &[Candidate],
        store: Option<&Store>,
        seconds: f64,
    ) -> Vec<Outcome> {
        let begin = Instant::now();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; candidates.len()];
        let mut entrants = Vec::new();
        for (at, candidate) in candidates.iter().enumerate() {
            let mut kept = None;
            let checked = guarded(|| {
                let made = self.load(&candidate.code, store).and_then(|mut made| {
                    let first = self.first_call(&mut made, candidate.limit)?;
                    let verdict = self.verdict(&made);
                    kept = Some(made);
                    Ok(Outcome::Measured { times: vec![first], verdict })
                });
                made.unwrap_or_else(Outcome::Failed)
            });
            match (checked, kept) {
                (Outcome::Measured { verdict, .. }, Some(loaded))
                    if !matches!(verdict, Verdict::Wrong { .. }) =>
                {
                    // A call with packed inputs has arguments of its own.
                    let values = &self.subject.values;
                    let usual = if loaded.packed.is_some() { &[][..] } else { &values[..] };
                    let args = AlignedArgs::new(&self.subject.kernel, usual.to_vec());
                    entrants.push((at, loaded, args, verdict));
                }
                (outcome, _) => outcomes[at] = Some(outcome),
            }
        }
        let plain = &self.subject.kernel;
        let gpu = self.subject.gpu.as_ref();
        let calls = entrants.iter_mut();
        let calls = calls.map(|(_, one, args, _)| {
            let (kernel, code, args) = one.called(plain, args);
            timed(gpu, code, args.of(kernel))
        });
        let calls: crate::diag::Result<Vec<Timed<'_>>> = calls.collect();
        let rounds = calls.and_then(|mut calls| measure_until_certain(&mut calls, seconds, begin));
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

/// Limits the memory of the process. The limit does not include what is allocated now and the
/// arguments of compared candidates. A GPU driver reserves addresses without limit.
fn limit_memory(subject: &Subject, memory: u64) {
    if subject.gpu.is_some() {
        return;
    }
    let own = subject.args.bytes().saturating_mul(MAX_COMPARED);
    let taken = address_space().unwrap_or(0).saturating_add(own).saturating_add(memory);
    let _ = setrlimit(Resource::As, Rlimit { current: Some(taken), maximum: Some(taken) });
}

/// Returns the message of an error with its first note.
fn told(diag: &Diag) -> String {
    match diag.notes.first() {
        Some(note) => format!("{}: {note}", diag.message),
        None => diag.message.clone(),
    }
}

/// Does other work of `tec serve`; a panic is a bug.
fn worked(work: &Work, store: &Store) -> Done {
    let done = catch_unwind(AssertUnwindSafe(|| match work {
        Work::Call(call) => called(call, store),
        Work::Time { calls, min_time, limit } => {
            let limit = limit.map(|(isa, limit)| {
                let threads = calls.first().map_or(1, |call| call.threads);
                LimitLoop::new(isa, limit, threads.clamp(1, 512))
            });
            timed_calls(calls, *min_time, limit, store)
        }
        Work::Limits { isa, threads, fresh } => {
            Ok(Done::Limits(Machine::known(*isa, (*threads).clamp(1, 512), *fresh)))
        }
    }));
    let machine = |why| Done::Failed(Failure::Machine(why));
    match done {
        Ok(Ok(done)) => done,
        Ok(Err(WorkError::Diag(diag))) => Done::Failed(Failure::Program(told(&diag))),
        Ok(Err(WorkError::Machine(why))) => machine(why),
        Err(payload) => machine(format!("a bug in tec: {}", panic_text(&*payload))),
    }
}

/// Why work failed.
enum WorkError {
    Diag(Box<Diag>),
    Machine(String),
}

impl From<Box<Diag>> for WorkError {
    fn from(diag: Box<Diag>) -> WorkError {
        WorkError::Diag(diag)
    }
}

impl From<String> for WorkError {
    fn from(why: String) -> WorkError {
        WorkError::Machine(why)
    }
}

/// A kernel of a module of the store, with its arguments.
struct Opened {
    module: session::Opened,
    kernel: Kernel,
    code: crate::module::load::LoadedKernel,
    values: Vec<Value>,
}

fn open_call(call: &Call, store: &Store) -> Result<Opened, WorkError> {
    let module = session::Opened::open(&store.path(&call.module))?;
    module.module.set_num_threads(call.threads.clamp(1, 512) as i32)?;
    let manifest = module.manifest.kernels.iter().find(|one| one.name == call.kernel);
    let manifest = manifest.ok_or_else(|| format!("the module has no kernel `{}`", call.kernel))?;
    let kernel = manifest.to_kernel()?;
    let values = data::make_args(&kernel, &call.given.load(store)?)?;
    let code = module.module.kernel(&manifest.name)?;
    Ok(Opened { module, kernel, code, values })
}

/// Calls a kernel, and stores its outputs.
fn called(call: &Call, store: &Store) -> Result<Done, WorkError> {
    let Opened { module, kernel, code, mut values } = open_call(call, store)?;
    module.call(&code, args_of(&kernel, &mut values))?;
    let outputs = data::outputs(&kernel, &values);
    let outputs = outputs.map(|(_, tensor)| TensorFile::save(tensor, store));
    Ok(Done::Called(outputs.collect::<Result<_, _>>()?))
}

/// Times kernels interleaved.
fn timed_calls(
    calls: &[Call],
    min_time: f64,
    mut limit: Option<LimitLoop>,
    store: &Store,
) -> Result<Done, WorkError> {
    if calls.is_empty() || !(0.0..=1e6).contains(&min_time) {
        return Err("there is nothing to time".to_string().into());
    }
    let mut opened = Vec::new();
    for call in calls {
        let Opened { module, kernel, code, values } = open_call(call, store)?;
        let args = AlignedArgs::new(&kernel, values);
        opened.push((module, kernel, code, args));
    }
    let calls = opened
        .iter_mut()
        .map(|(module, kernel, code, args)| timed(module.gpu.as_ref(), code, args.of(kernel)));
    let mut calls = calls.collect::<crate::diag::Result<Vec<Timed<'_>>>>()?;
    Ok(Done::Timed(measure_interleaved(&mut calls, limit.as_mut(), min_time)?))
}

/// Returns the seconds of each call in each round. Runs for half of `seconds`, and then up to twice
/// as long again, while the difference of the best two is not significant.
fn measure_until_certain(
    calls: &mut [Timed<'_>],
    seconds: f64,
    begin: Instant,
) -> crate::diag::Result<Vec<Vec<f64>>> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); calls.len()];
    let share = seconds / 2.0 / calls.len().max(1) as f64;
    for _ in 0..if calls.is_empty() { 0 } else { 3 } {
        let before = begin.elapsed();
        let rounds = measure_interleaved(calls, None, share)?;
        times.iter_mut().zip(rounds.times).for_each(|(all, new)| all.extend(new));
        let lists: Vec<&[f64]> = times.iter().map(|list| &list[..]).collect();
        let certain = Fastest::new(&lists).is_none_or(|fastest| fastest.is_certain());
        let after_another = 2 * begin.elapsed() - before;
        if certain || after_another.as_secs_f64() > MAX_COMPARISON_FACTOR * seconds {
            break;
        }
    }
    Ok(times)
}

/// Returns the seconds of a call, one for each batch; fewer batches for a candidate that is clearly
/// slower than the best.
fn time(call: &mut Timed<'_>, first: f64, best: Option<f64>) -> crate::diag::Result<Vec<f64>> {
    let mut one = first;
    // The first call also filled the caches, so the time of a short one is not representative.
    let mut count = 1;
    while one * (count as f64) < BATCH_SECONDS && count < 1 << 20 {
        one = call.seconds(count)?.max(1e-9) / count as f64;
        count = ((BATCH_SECONDS / one).ceil() as usize).clamp(1, 8 * count);
    }
    let (mut times, mut total) = (Vec::new(), 0.0);
    while times.len() < *BATCHES.start() || total < MEASURE_SECONDS && times.len() < *BATCHES.end()
    {
        let elapsed = call.seconds(count)?;
        total += elapsed;
        times.push(elapsed / count as f64);
        if best.is_some_and(|best| times.iter().all(|time| *time > CLEARLY_SLOWER * best)) {
            break;
        }
    }
    Ok(times)
}

/// Returns the size of the process's address space in bytes.
fn address_space() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
