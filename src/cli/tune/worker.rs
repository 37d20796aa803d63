//! `tec tune-worker`: the process that compiles, runs, verifies and times candidates for a search.
//!
//! Requests come as lines on standard input, replies go to standard output. The worker dies with
//! the search. If a candidate crashes the worker, the search starts another one; a candidate that
//! exceeds its memory limit fails alone.

use super::super::bench::measure::{AlignedArgs, Timed, measure_interleaved};
use super::super::report::Error;
use super::comparison::Fastest;
use super::harness::{Compiled, Harness, call_failure, timed};
use super::protocol::{Reference, Reply, Request, Setup};
use super::samples::SampleError;
use super::{reference, verify};
use crate::driver::panic_text;
use crate::ir::interp::Tensor;
use crate::tune::{Job, Outcome, TrialFailure, Verdict};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

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
pub fn run() -> Result<(), Error> {
    // A crash is reported by its signal; a core file is of no use.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut trials: Option<Trials> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let request: Request = serde_json::from_str(&line).map_err(|error| {
            Error::Usage(format!("`tec tune-worker` takes requests from `tec tune`: {error}"))
        })?;
        match (request, &mut trials) {
            (Request::Setup { setup, reference }, _) => {
                let opened = catch_unwind(AssertUnwindSafe(|| Trials::open(*setup, reference)));
                match opened
                    .unwrap_or_else(|payload| Err(SampleError::Mismatch(panic_text(&*payload))))
                {
                    Ok((made, notes)) => {
                        trials = Some(made);
                        send(&Reply::Ready { notes })?;
                    }
                    Err(SampleError::Unavailable(why)) => send(&Reply::Unsampled(why))?,
                    Err(SampleError::Mismatch(why)) => send(&Reply::SetupFailed(why))?,
                }
            }
            (Request::Measure { job, best }, Some(trials)) => {
                let outcome = guarded(|| trials.measure(&job, best));
                send(&Reply::Done(vec![outcome]))?;
            }
            (Request::Compare { jobs, seconds }, Some(trials)) => {
                send(&Reply::Done(trials.compare(&jobs, seconds)))?;
            }
            (_, None) => {
                return Err(Error::Usage("the first message is the setup".to_string()));
            }
        }
    }
    Ok(())
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
    harness: Harness,
    /// The reference output.
    expected: Vec<Tensor>,
    /// The bound of differences where reduction terms may be reordered.
    bound: f64,
}

impl Trials {
    /// Makes the arguments and the reference output; returns notes for the user too.
    fn open(setup: Setup, reference: Reference) -> Result<(Trials, Vec<String>), SampleError> {
        let (mut harness, given) = Harness::open(setup)?;
        let bound = verify::bound(&harness.graph);
        let mut notes = Vec::new();
        let begin = &mut || {
            let _ = send(&Reply::ComputingReference);
        };
        let expected = reference::make(&mut harness, &given, reference, begin, &mut notes)?;
        if harness.gpu.is_none() {
            // The limit of a candidate does not include what is allocated now and the arguments of
            // compared candidates. A GPU driver reserves addresses without limit.
            let own = harness.args.bytes() * MAX_COMPARED;
            let taken = address_space().unwrap_or(0) + own + harness.setup.memory;
            let _ = setrlimit(Resource::As, Rlimit { current: Some(taken), maximum: Some(taken) });
        }
        Ok((Trials { harness, expected, bound }, notes))
    }

    /// Compiles, runs, verifies and times a candidate.
    fn measure(&mut self, job: &Job, best: Option<f64>) -> Outcome {
        let mut compiled = match self.harness.compile(&job.text) {
            Ok(compiled) => compiled,
            Err(failure) => return Outcome::Failed(failure),
        };
        self.run(&mut compiled, job, best).unwrap_or_else(Outcome::Failed)
    }

    fn run(
        &mut self,
        compiled: &mut Compiled,
        job: &Job,
        best: Option<f64>,
    ) -> Result<Outcome, TrialFailure> {
        let first = self.first_call(compiled, job.limit)?;
        let verdict = self.verdict(compiled);
        if matches!(verdict, Verdict::Wrong { .. }) {
            return Ok(Outcome::Measured { times: vec![first], verdict });
        }
        let harness = &mut self.harness;
        let (kernel, code, args) = compiled.called(&harness.default_loops, &mut harness.args);
        let times = timed(harness.gpu.as_ref(), code, args.of(kernel))
            .and_then(|mut call| time(&mut call, first, best))
            .map_err(|diag| call_failure(&diag))?;
        if harness.gpu.is_some() || harness.args.are_updated() {
            // The timed calls left their results on the GPU, or updated them many times.
            let (kernel, _, args) = compiled.called(&harness.default_loops, &mut harness.args);
            args.reset_outputs(kernel);
            harness.call(compiled)?;
        }
        // A race may become visible only after the first call.
        Ok(Outcome::Measured { times, verdict: self.verdict(compiled) })
    }

    /// Calls a candidate with poisoned outputs, and returns the seconds.
    fn first_call(
        &mut self,
        compiled: &mut Compiled,
        limit: Duration,
    ) -> Result<f64, TrialFailure> {
        let gone = |_| TrialFailure::Runner("the search has ended".to_string());
        send(&Reply::Running).map_err(gone)?;
        let harness = &mut self.harness;
        if let Some(packed) = &mut compiled.packed {
            let pack = packed.pack(&harness.default_loops, &harness.values);
            pack.map_err(|diag| call_failure(&diag))?;
        }
        let (kernel, _, args) = compiled.called(&harness.default_loops, &mut harness.args);
        args.reset_outputs(kernel);
        let mut first = harness.call(compiled)?.as_secs_f64();
        if harness.gpu.is_some() {
            // The first call included the transfers to and from the GPU.
            let (kernel, code, args) = compiled.called(&harness.default_loops, &mut harness.args);
            let call = timed(harness.gpu.as_ref(), code, args.of(kernel));
            let again = call.and_then(|mut call| call.seconds(1));
            first = again.map_err(|diag| call_failure(&diag))?;
        }
        send(&Reply::Ran).map_err(gone)?;
        if first > limit.as_secs_f64() { Err(TrialFailure::Timeout) } else { Ok(first) }
    }

    /// Compares the results of the last call with the reference output.
    fn verdict(&self, compiled: &Compiled) -> Verdict {
        let actual: Vec<&[u8]> = match &compiled.packed {
            Some(packed) => packed.results(),
            None => self.harness.args.results(&self.harness.default_loops),
        };
        let bound = compiled.reassociated.then_some(self.bound);
        verify::verdict(&actual, &self.expected, bound)
    }

    /// Measures candidates interleaved, each with arguments of its own.
    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Vec<Outcome> {
        let begin = Instant::now();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; jobs.len()];
        let mut entrants = Vec::new();
        for (at, job) in jobs.iter().enumerate() {
            let mut compiled = None;
            let checked = guarded(|| {
                let made = self.harness.compile(&job.text).and_then(|mut made| {
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
                    // A call with packed inputs has arguments of its own.
                    let values = &self.harness.values;
                    let usual = if compiled.packed.is_some() { &[][..] } else { &values[..] };
                    let args = AlignedArgs::new(&self.harness.default_loops, usual.to_vec());
                    entrants.push((at, compiled, args, verdict));
                }
                (outcome, _) => outcomes[at] = Some(outcome),
            }
        }
        let default_loops = &self.harness.default_loops;
        let gpu = self.harness.gpu.as_ref();
        let calls = entrants.iter_mut();
        let calls = calls.map(|(_, one, args, _)| {
            let (kernel, code, args) = one.called(default_loops, args);
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
