//! The search's side of the worker process: starts it, sends requests, watches it, and starts
//! another one if it dies or hangs.

use super::super::remote::message::{Candidate, Code, Done, Failure, Prepared, Work};
use super::super::remote::store::Hash;
use super::comparison;
use super::protocol::{Reference, Reply, Request, Setup};
use crate::diag::Diag;
use crate::target::Target;
use crate::tune::{Compared, Job, Measure, Outcome, TrialFailure, Verdict, median};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time limit until a worker is ready, without the reference output.
const SETUP_LIMIT: Duration = Duration::from_secs(120);
/// The time limit of the default schedule for the reference output.
const DEFAULT_REFERENCE_LIMIT: Duration = Duration::from_secs(1);
/// The time limit of another schedule for it, with the interpreter's part, or of the default
/// schedule as the last resort.
const REFERENCE_LIMIT: Duration = Duration::from_secs(300);
/// The time limit of compiling a candidate.
const COMPILE_LIMIT: Duration = Duration::from_secs(20);
/// The time limit of verifying and timing a candidate, without its calls.
const VERIFY_LIMIT: Duration = Duration::from_secs(10);
/// The most calls of a measurement if each takes its time limit.
const MAX_CALLS: u32 = 16;
/// The time between the limit of a call and its end by a signal: a call that returns by itself
/// costs no new worker.
const GRACE_TIME: Duration = Duration::from_millis(100);
/// The time limit of copying arguments to a GPU and results back.
const TRANSFER_LIMIT: Duration = Duration::from_secs(5);
/// The fraction of the CPUs' time that other processes may take without a note.
const MAX_OTHER_LOAD: f64 = 0.1;

/// Measures in a worker process.
pub struct Pool {
    begin: Begin,
    /// The folder of modules, inputs and outputs.
    store: Option<PathBuf>,
    /// Whether candidates run on a GPU.
    on_gpu: bool,
    worker: Option<Worker>,
    /// Seconds of the best call so far.
    best: Option<f64>,
    notes: Vec<String>,
}

/// The first message to a worker.
enum Begin {
    /// It compiles schedules.
    Setup(Box<Setup>, Reference),
    /// It takes modules.
    Prepare(Box<Prepared>),
}

impl Pool {
    /// Starts the worker; the error says why the kernel cannot be measured.
    pub fn open(setup: Setup) -> Result<Pool, Box<Diag>> {
        let mut pool = Pool::new(setup, None)?;
        pool.note_load();
        pool.open_worker()?;
        Ok(pool)
    }

    /// Starts a worker that compiles schedules for another machine, and writes modules to a store.
    pub fn to_build(setup: Setup, store: &Path) -> Result<Pool, Box<Diag>> {
        let mut pool = Pool::new(setup, Some(store.to_path_buf()))?;
        pool.open_worker()?;
        Ok(pool)
    }

    fn new(setup: Setup, store: Option<PathBuf>) -> Result<Pool, Box<Diag>> {
        let on_gpu = Target::parse(&setup.target)?.is_gpu();
        let begin = Begin::Setup(Box::new(setup), Reference::Default);
        Ok(Pool { begin, store, on_gpu, worker: None, best: None, notes: Vec::new() })
    }

    /// Starts a worker that takes modules of a store; the error says why it cannot.
    pub fn of_modules(prepared: Prepared, store: &Path) -> Result<Pool, String> {
        let target = Target::parse(&prepared.target).map_err(|diag| diag.message.clone())?;
        let (begin, store) = (Begin::Prepare(Box::new(prepared)), Some(store.to_path_buf()));
        let (on_gpu, worker, best) = (target.is_gpu(), None, None);
        let mut pool = Pool { begin, store, on_gpu, worker, best, notes: Vec::new() };
        pool.note_load();
        let notes = pool.start()?;
        pool.notes.extend(notes);
        Ok(pool)
    }

    fn open_worker(&mut self) -> Result<(), Box<Diag>> {
        match self.start() {
            Ok(notes) => self.notes.extend(notes),
            Err(why) => {
                let kernel = match &self.begin {
                    Begin::Setup(setup, _) => &setup.kernel,
                    Begin::Prepare(prepared) => &prepared.kernel.name,
                };
                let text = format!("`{kernel}` cannot be measured: {why}");
                return Err(Box::new(Diag::global("E0601", text)));
            }
        }
        Ok(())
    }

    /// Notes whether other processes take much of the CPUs.
    fn note_load(&mut self) {
        self.notes.extend(busy_note(others_share(Duration::from_millis(200))));
    }

    /// Sets the seconds of the best call so far.
    pub fn set_best(&mut self, best: Option<f64>) {
        self.best = best;
    }

    /// Starts a worker, which computes the reference output with the default schedule if that is
    /// fast.
    fn start(&mut self) -> Result<Vec<String>, String> {
        loop {
            let mut worker = Worker::spawn(self.store.as_deref())?;
            let reference = match &self.begin {
                Begin::Setup(setup, reference) => {
                    let setup = setup.clone();
                    worker.send(&Request::Setup { setup, reference: *reference });
                    *reference
                }
                Begin::Prepare(prepared) => {
                    worker.send(&Request::Prepare(prepared.clone()));
                    Reference::Default
                }
            };
            let mut limit = SETUP_LIMIT;
            let slower = loop {
                match worker.receive(limit) {
                    Ok(Reply::ComputingReference) => {
                        limit = if reference == Reference::Default {
                            DEFAULT_REFERENCE_LIMIT
                        } else {
                            REFERENCE_LIMIT
                        };
                    }
                    Ok(Reply::Ready { notes }) => {
                        self.worker = Some(worker);
                        return Ok(notes);
                    }
                    Ok(Reply::Unsampled(why)) if reference == Reference::Auto => {
                        let text = "the reference output is computed with the default schedule, \
                                    which takes long";
                        self.notes.push(format!("{text}: {why}"));
                        break Reference::DefaultUnlimited;
                    }
                    Ok(Reply::SetupFailed(why) | Reply::Unsampled(why)) => return Err(why),
                    Ok(reply) => return Err(format!("the worker says {reply:?}")),
                    Err(TrialFailure::Timeout) if reference == Reference::Default => {
                        break Reference::Auto;
                    }
                    Err(failure) => return Err(describe(&failure)),
                }
            };
            match &mut self.begin {
                Begin::Setup(_, reference) => *reference = slower,
                Begin::Prepare(_) => return Err("the arguments take too long".to_string()),
            }
        }
    }

    /// Returns what another machine needs to measure candidates.
    pub fn export(&mut self) -> Result<Prepared, TrialFailure> {
        match self.reply(&Request::Export, SETUP_LIMIT)? {
            Reply::Exported(prepared) => Ok(*prepared),
            Reply::SetupFailed(why) => Err(TrialFailure::Runner(why)),
            reply => Err(self.confused(&reply)),
        }
    }

    /// Compiles a schedule; the module is in the store.
    pub fn build(&mut self, text: &str) -> Result<Hash, TrialFailure> {
        match self.reply(&Request::Build(text.to_string()), COMPILE_LIMIT)? {
            Reply::Built(hash) => Ok(hash),
            Reply::Unbuilt(failure) => Err(failure),
            reply => Err(self.confused(&reply)),
        }
    }

    /// Sends a request and waits for one reply; a worker that exceeds the time limit is killed.
    fn reply(&mut self, request: &Request, limit: Duration) -> Result<Reply, TrialFailure> {
        if self.worker.is_none() {
            self.start().map_err(TrialFailure::Runner)?;
        }
        let worker = self.worker.as_mut().expect("it was started");
        worker.send(request);
        let reply = worker.receive(limit);
        if reply.is_err() {
            self.worker = None;
        }
        reply
    }

    fn confused(&mut self, reply: &Reply) -> TrialFailure {
        self.worker = None;
        TrialFailure::Runner(format!("the worker says {reply:?}"))
    }

    /// Sends a request and waits for its outcomes; a worker that exceeds a time limit is killed.
    fn ask(&mut self, request: &Request, jobs: &[Candidate], seconds: f64) -> Vec<Outcome> {
        let all = |failure: TrialFailure| vec![Outcome::Failed(failure); jobs.len()];
        if self.worker.is_none()
            && let Err(why) = self.start()
        {
            return all(TrialFailure::Runner(why));
        }
        let worker = self.worker.as_mut().expect("it was started");
        worker.send(request);
        let call = jobs.iter().map(|job| job.limit).max().unwrap_or_default();
        let measuring = VERIFY_LIMIT
            + call * MAX_CALLS * jobs.len() as u32
            + Duration::from_secs_f64(seconds * 4.0);
        let transfer = if self.on_gpu { TRANSFER_LIMIT } else { Duration::ZERO };
        let mut limit = COMPILE_LIMIT;
        let failure = loop {
            match worker.receive(limit) {
                Ok(Reply::Running) => limit = call + GRACE_TIME + transfer,
                Ok(Reply::Ran) => limit = measuring,
                Ok(Reply::Done(outcomes)) if outcomes.len() == jobs.len() => {
                    let failed =
                        |one: &Outcome| matches!(one, Outcome::Failed(TrialFailure::Call(_)));
                    if self.on_gpu && outcomes.iter().any(failed) {
                        // A failed call may leave the CUDA context unusable: the next candidate
                        // gets another worker.
                        self.worker = None;
                    }
                    return outcomes;
                }
                Ok(reply) => break TrialFailure::Runner(format!("the worker says {reply:?}")),
                Err(failure) => break failure,
            }
        };
        self.worker = None;
        all(failure)
    }
}

impl Pool {
    /// Measures a candidate.
    pub fn measure_one(&mut self, candidate: &Candidate) -> Outcome {
        let request = Request::Measure { candidate: candidate.clone(), best: self.best };
        let outcome = self.ask(&request, std::slice::from_ref(candidate), 0.0).remove(0);
        if let Some(seconds) = correct_seconds(&outcome) {
            self.best = Some(self.best.map_or(seconds, |best| best.min(seconds)));
        }
        outcome
    }

    /// Measures candidates interleaved.
    pub fn compare_all(&mut self, candidates: &[Candidate], seconds: f64) -> Compared {
        if candidates.is_empty() {
            return Compared { outcomes: Vec::new(), in_turns: true };
        }
        self.note_load();
        let request = Request::Compare { candidates: candidates.to_vec(), seconds };
        let outcomes = self.ask(&request, candidates, seconds);
        if self.worker.is_some() {
            self.notes.extend(comparison::describe(&outcomes));
            return Compared { outcomes, in_turns: true };
        }
        // A candidate ended the worker: measure one by one to find out which.
        self.best = None;
        let outcomes = candidates.iter().map(|one| self.measure_one(one));
        let mut outcomes: Vec<Outcome> = outcomes.collect();
        let sound: Vec<usize> =
            (0..candidates.len()).filter(|at| correct_seconds(&outcomes[*at]).is_some()).collect();
        if sound.len() == candidates.len() || sound.len() < 2 {
            return Compared { outcomes, in_turns: false };
        }
        let fewer: Vec<Candidate> = sound.iter().map(|at| candidates[*at].clone()).collect();
        let again = self.compare_all(&fewer, seconds);
        for (at, outcome) in sound.into_iter().zip(again.outcomes) {
            outcomes[at] = outcome;
        }
        Compared { outcomes, in_turns: again.in_turns }
    }
}

impl Measure for Pool {
    fn measure(&mut self, jobs: &[Job], done: &mut dyn FnMut(usize, &Outcome)) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for (at, job) in jobs.iter().enumerate() {
            let outcome = self.measure_one(&candidate(job));
            done(at, &outcome);
            outcomes.push(outcome);
        }
        outcomes
    }

    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Compared {
        let candidates: Vec<Candidate> = jobs.iter().map(candidate).collect();
        self.compare_all(&candidates, seconds)
    }

    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

/// Returns the candidate of a job, which the worker compiles.
fn candidate(job: &Job) -> Candidate {
    Candidate { code: Code::Schedule(job.text.clone()), limit: job.limit }
}

/// Does other work of `tec serve` in a worker of its own, however long it takes.
pub fn work(work: Work, store: &Path) -> Done {
    let failed = |why| Done::Failed(Failure::Machine(why));
    let mut worker = match Worker::spawn(Some(store)) {
        Ok(worker) => worker,
        Err(why) => return failed(why),
    };
    worker.send(&Request::Work(work));
    const EVER: Duration = Duration::from_secs(1 << 40);
    const SIGILL: i32 = 4;
    match worker.receive(EVER) {
        Ok(Reply::Worked(done)) => done,
        Ok(reply) => failed(format!("the worker says {reply:?}")),
        Err(TrialFailure::Crash { signal: SIGILL }) => failed(format!(
            "the call failed: its process ended by signal {SIGILL}, an illegal instruction: the \
             CPU lacks one, or the code is wrong"
        )),
        Err(failure) => failed(format!("the call failed: {}", describe(&failure))),
    }
}

/// Returns the median time of right results.
pub fn correct_seconds(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Measured { verdict: Verdict::Wrong { .. }, .. } | Outcome::Failed(_) => None,
        Outcome::Measured { times, .. } => median(times),
    }
}

/// Describes a failure, for the end of a sentence.
pub fn describe(failure: &TrialFailure) -> String {
    match failure {
        TrialFailure::Refused(text) => format!("refused: {text}"),
        TrialFailure::Bug(text) => format!("a bug in tec: {text}"),
        TrialFailure::Timeout => "it took too long".to_string(),
        TrialFailure::Crash { signal } => format!("its process ended by signal {signal}"),
        TrialFailure::Memory => "it ran out of memory".to_string(),
        TrialFailure::Call(text) => format!("the call failed: {text}"),
        TrialFailure::Runner(text) => text.clone(),
    }
}

/// A worker process; it ends when this is dropped.
struct Worker {
    child: Child,
    input: ChildStdin,
    replies: Receiver<Reply>,
    /// The end of its standard error.
    errors: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    fn spawn(store: Option<&Path>) -> Result<Worker, String> {
        let cannot = |error: std::io::Error| {
            format!("cannot start a worker: {}", crate::module::input::io_text(&error))
        };
        let program = std::env::current_exe().map_err(cannot)?;
        let mut command = Command::new(program);
        command.arg("tune-worker").stdin(Stdio::piped());
        if let Some(store) = store {
            command.arg("--store").arg(store);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C goes to the search only, which ends its workers.
        command.process_group(0);
        let mut child = command.spawn().map_err(cannot)?;
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut stderr = child.stderr.take().expect("it is piped");
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Ok(reply) = serde_json::from_str(&line) else { break };
                if sender.send(reply).is_err() {
                    break;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let kept = errors.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                let mut kept = kept.lock().expect("no holder panics");
                kept.push_str(&String::from_utf8_lossy(&bytes[..count]));
                let start = kept.len().saturating_sub(4096);
                let start = (start..kept.len()).find(|at| kept.is_char_boundary(*at));
                *kept = kept.split_off(start.unwrap_or(0));
            }
        });
        Ok(Worker { child, input, replies, errors, reader: Some(reader) })
    }

    /// `receive` reports a dead worker.
    fn send(&mut self, request: &Request) {
        let line = serde_json::to_string(request).expect("plain data") + "\n";
        let _ = self.input.write_all(line.as_bytes()).and_then(|()| self.input.flush());
    }

    fn receive(&mut self, limit: Duration) -> Result<Reply, TrialFailure> {
        match self.replies.recv_timeout(limit) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => Err(TrialFailure::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(self.exit_reason()),
        }
    }

    /// Returns why the worker ended.
    fn exit_reason(&mut self) -> TrialFailure {
        let Ok(status) = self.child.wait() else {
            return TrialFailure::Runner("a worker was lost".to_string());
        };
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let errors = self.errors.lock().expect("no holder panics").clone();
        exit_failure(status, &errors)
    }
}

/// Returns why a worker ended, from its status and its standard error.
fn exit_failure(status: ExitStatus, errors: &str) -> TrialFailure {
    const SIGABRT: i32 = 6;
    const SIGKILL: i32 = 9;
    match status.signal() {
        // Rust's message when an allocation fails.
        Some(SIGABRT) if errors.contains("memory allocation of") => TrialFailure::Memory,
        // The system kills a process if memory runs out.
        Some(SIGKILL) => TrialFailure::Memory,
        Some(signal) => TrialFailure::Crash { signal },
        None => {
            let last = errors.trim().lines().last().unwrap_or_default();
            TrialFailure::Runner(format!("the worker ended ({status}): {last}"))
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the part of the CPUs' time that other processes take while this one sleeps; none if the
/// system does not report it.
fn others_share(time: Duration) -> Option<f64> {
    let read = || -> Option<(f64, f64)> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some((idle, ticks.iter().take(8).sum()))
    };
    let (idle, all) = read()?;
    let start = Instant::now();
    std::thread::sleep(time.saturating_sub(start.elapsed()));
    let (idle_now, all_now) = read()?;
    let passed = all_now - all;
    (passed > 0.0).then(|| 1.0 - (idle_now - idle) / passed)
}

fn busy_note(share: Option<f64>) -> Option<String> {
    let share = share.filter(|share| *share > MAX_OTHER_LOAD)?;
    let percent = (share * 100.0).round();
    Some(format!(
        "the machine is busy: other processes take {percent} % of its CPUs, which distorts the \
         times"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_memory_is_told_from_other_exits() {
        let of = |status, errors| exit_failure(ExitStatus::from_raw(status), errors);
        let aborted = "memory allocation of 268435456 bytes failed\n";
        assert_eq!(of(6, aborted), TrialFailure::Memory);
        assert_eq!(of(6, "corrupted"), TrialFailure::Crash { signal: 6 });
        assert_eq!(of(9, ""), TrialFailure::Memory);
        assert_eq!(of(11, aborted), TrialFailure::Crash { signal: 11 });
        let TrialFailure::Runner(why) = of(2 << 8, "one\ntwo\n") else { panic!("it exited") };
        assert!(why.ends_with(": two"), "{why}");
    }
}
