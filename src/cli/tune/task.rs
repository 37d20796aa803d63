//! The search for one kernel of a file: cost evaluation, measurements, records.

use super::log::Log;
use crate::cli::bench::work::{Roofline, Work};
use crate::cli::cpu;
use crate::cli::machine::{Isa, Machine};
use crate::diag::Result;
use crate::driver::{self, Failure, Options};
use crate::lang::ParsedLines;
use crate::te::Graph;
use crate::tune::model::{Estimate, MachineModel};
use crate::tune::records::Record;
use crate::tune::search::budget::Progress;
use crate::tune::search::{CostModel, CostPrediction, Proposal, Search, Trial};
use crate::tune::{Choice, Compared, Job, Measure, Outcome, Space, TrialFailure, Verdict};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Predicts the cost of a kernel's schedules.
pub struct CostEvaluator<'a> {
    /// The kernel.
    pub graph: &'a Graph,
    /// How it is compiled.
    pub options: &'a Options,
    /// The machine to estimate for.
    pub machine: &'a MachineModel,
    /// Threads of parallel loops.
    pub threads: usize,
    /// The lines of schedules that were parsed.
    pub parsed: ParsedLines,
    /// Compiler bugs that candidates triggered, each once.
    pub bugs: &'a RefCell<Vec<String>>,
    /// Refused candidates by error code: their number, and an example.
    pub refused: RefCell<BTreeMap<String, (usize, String)>>,
}

impl CostEvaluator<'_> {
    /// Returns the cost model for the search.
    pub fn model(&self) -> Box<CostModel<'_>> {
        Box::new(|texts: &[&str]| -> Vec<Option<CostPrediction>> { self.predictions(texts) })
    }

    /// Predicts some schedules.
    pub fn predictions(&self, texts: &[&str]) -> Vec<Option<CostPrediction>> {
        let CostEvaluator { graph, options, machine, threads, parsed, .. } = self;
        let estimates = driver::estimate_texts(graph, texts, options, machine, *threads, parsed);
        estimates.into_iter().map(|estimate| self.prediction(estimate)).collect()
    }

    fn prediction(
        &self,
        estimate: std::result::Result<Estimate, Failure>,
    ) -> Option<CostPrediction> {
        match estimate {
            Ok(Estimate { seconds, mut features, nests, .. }) => {
                features.push(seconds.max(1e-12).ln());
                Some(CostPrediction { seconds, features, nests })
            }
            Err(Failure::User(diags)) => {
                let mut refused = self.refused.borrow_mut();
                if let Some(diag) = diags.first() {
                    let first = || (0, diag.message.clone());
                    refused.entry(diag.code.to_string()).or_insert_with(first).0 += 1;
                }
                None
            }
            Err(Failure::Bug { pass, message, .. }) => {
                let mut bugs = self.bugs.borrow_mut();
                let bug = format!("{message}, in `{pass}`");
                if !bugs.contains(&bug) {
                    bugs.push(bug);
                }
                None
            }
        }
    }
}

/// Returns the model's machine, and this machine's limits if it can run code for the target.
pub fn machine_of(options: &Options, threads: usize) -> (MachineModel, Option<Machine>) {
    let typical = MachineModel::typical(&options.target);
    if !options.target.runs_here() {
        return (typical, None);
    }
    let (isa, threads) = (Isa::of(&options.target), cpu::at_most(threads));
    let known = Machine::known(isa, threads, false);
    (known.refine(typical), Some(known))
}

/// Recorded trials that a search resumes.
pub struct ResumedTrials {
    /// The number of resumed trials.
    pub count: usize,
    /// The number of trials that ran, but whose schedules are refused now.
    pub refused: usize,
}

/// The search for a kernel.
pub struct Task<'a> {
    /// Its name, with the size if there are several.
    pub name: String,
    /// The search.
    pub search: Search<'a>,
    /// The expected gain of another batch.
    pub progress: Progress,
    /// The work of a call.
    pub work: Work,
    /// The roofline, if the machine's limits are known.
    pub roofline: Option<Roofline>,
    /// The records.
    pub log: Log,
    /// Files of candidates with wrong results.
    pub wrong: Vec<PathBuf>,
    /// Trials of this run.
    pub trials: usize,
    /// The best after each improvement in this run: seconds since its start, seconds of a call.
    pub curve: Vec<(f64, f64)>,
    /// The end of the search.
    pub ends: Option<Instant>,
    measure: Box<dyn Measure>,
    begin: Instant,
    /// The time of this run's trials.
    spent: Duration,
}

/// The time limit of a call, relative to the best.
const TIME_LIMIT_FACTOR: f64 = 6.0;
/// The least time limit of a call.
const MIN_TIME_LIMIT: Duration = Duration::from_millis(50);
/// The time limit of the first candidates, and the greatest one.
const MAX_TIME_LIMIT: Duration = Duration::from_secs(10);
/// Candidates that are measured again, interleaved, at the end.
const FINALISTS: usize = 4;

impl<'a> Task<'a> {
    /// Returns a task without trials.
    pub fn new(
        measure: Box<dyn Measure>,
        search: Search<'a>,
        (work, roofline): (Work, Option<Roofline>),
        log: Log,
        begin: Instant,
    ) -> Task<'a> {
        let name = log.context.kernel.clone();
        let progress = Progress::new(roofline.as_ref().map_or(0.0, |roofline| roofline.seconds));
        let (trials, curve, spent) = (0, Vec::new(), Duration::ZERO);
        let (wrong, ends) = (Vec::new(), None);
        Task {
            name,
            search,
            progress,
            work,
            roofline,
            log,
            wrong,
            trials,
            curve,
            ends,
            measure,
            begin,
            spent,
        }
    }

    /// Resumes recorded trials. Trials of this workload on this machine become trials of this
    /// search, if `space` is none or can write them. The learned model learns from trials of other
    /// workloads, and the best candidates of the same kernel in other sizes seed the search.
    pub fn resume(
        &mut self,
        records: &[Record],
        evaluator: &CostEvaluator<'_>,
        space: Option<&dyn Space>,
    ) -> ResumedTrials {
        let context = &self.log.context;
        let own = |record: &&Record| {
            record.workload == context.workload
                && record.vars == context.vars
                && record.target == context.target
                && record.machine == context.machine
                && record.threads == context.threads
                && record.fp_contract == context.fp_contract
                && record.kernel == context.kernel
                // A failure of the runner says nothing about the candidate.
                && !matches!(record.failure, Some(TrialFailure::Runner(_)))
                && space.is_none_or(|space| writes(space, record))
        };
        let own: Vec<&Record> = records.iter().filter(own).collect();
        let texts: Vec<&str> = own.iter().map(|record| &record.schedule[..]).collect();
        let predictions = evaluator.predictions(&texts);
        let trial = |(record, prediction): (&&Record, Option<CostPrediction>)| {
            Some(Trial {
                proposal: Proposal {
                    answers: answers_of(record),
                    text: record.schedule.clone(),
                    prediction: prediction?,
                },
                outcome: record.outcome(),
            })
        };
        let ran = own.iter().zip(&predictions).filter(|(record, _)| record.seconds().is_some());
        let refused = ran.filter(|(_, prediction)| prediction.is_none()).count();
        let trials: Vec<Trial> = own.iter().zip(predictions).filter_map(trial).collect();
        let count = trials.len();
        self.search.add_foreign_trials(&self.foreign(records));
        let kin = records.iter().rev().filter(|one| self.has_other_size(one));
        let kin: Vec<BTreeMap<String, String>> = kin.map(answers_of).collect();
        self.search.seed(kin.into_iter());
        self.search.add_trials(trials);
        if count > 0 {
            self.progress.best.push(self.best_seconds());
        }
        ResumedTrials { count, refused }
    }

    /// Whether a record is of another workload on the same machine.
    fn is_foreign(&self, record: &Record) -> bool {
        let context = &self.log.context;
        record.target == context.target
            && record.machine == context.machine
            && record.threads == context.threads
            && (record.workload != context.workload || record.vars != context.vars)
    }

    /// Whether a record is one of the best of the same kernel in another size.
    fn has_other_size(&self, record: &Record) -> bool {
        self.is_foreign(record) && record.kernel == self.log.context.kernel && record.in_turns
    }

    /// Returns the trials of other workloads whose records have features.
    fn foreign(&self, records: &[Record]) -> Vec<Trial> {
        let trial = |record: &Record| {
            let expected = record.features.last()?.exp();
            let features = record.features.clone();
            let prediction = CostPrediction { seconds: expected, features, nests: Vec::new() };
            let (answers, text) = (answers_of(record), record.schedule.clone());
            Some(Trial {
                proposal: Proposal { answers, text, prediction },
                outcome: record.outcome(),
            })
        };
        records.iter().filter(|record| self.is_foreign(record)).filter_map(trial).collect()
    }

    /// Seconds of the best candidate.
    pub fn best_seconds(&self) -> Option<f64> {
        self.search.best().and_then(Trial::seconds)
    }

    /// Measures up to `count` more candidates, and records each before the next begins.
    pub fn batch(
        &mut self,
        count: usize,
        goes_on: &mut dyn FnMut(&TaskView<'_>) -> bool,
    ) -> Result<()> {
        let proposals = self.search.propose(count);
        self.progress.exhausted = proposals.is_empty();
        // Only some at a time, so that the search can stop soon.
        let mut proposals = &proposals[..];
        while !proposals.is_empty() {
            let (few, rest) = proposals.split_at(self.trials_between_checks().min(proposals.len()));
            proposals = rest;
            let start = Instant::now();
            let best = self.best_seconds();
            let limit = match best {
                Some(best) => Duration::from_secs_f64(best * TIME_LIMIT_FACTOR)
                    .clamp(MIN_TIME_LIMIT, MAX_TIME_LIMIT),
                None => MAX_TIME_LIMIT,
            };
            let jobs: Vec<Job> = few.iter().map(|one| job(one, limit)).collect();
            let mut kept = Ok(Vec::new());
            let mut measured = vec![false; few.len()];
            let outcomes = self.measure.measure(&jobs, &mut |at, outcome| {
                measured[at] = true;
                if let Ok(paths) = &mut kept {
                    match add(&mut self.log, &few[at], false, outcome) {
                        Ok(path) => paths.extend(path),
                        Err(diag) => kept = Err(diag),
                    }
                }
            });
            self.wrong.extend(kept?);
            self.spent += start.elapsed();
            let trials = few.iter().zip(outcomes).zip(measured).filter(|(_, measured)| *measured);
            let trials: Vec<Trial> = trials
                .map(|((proposal, outcome), _)| Trial { proposal: proposal.clone(), outcome })
                .collect();
            self.trials += trials.len();
            self.search.add_trials(trials);
            let now = self.best_seconds();
            if let Some(seconds) = now.filter(|_| now != best) {
                self.curve.push((self.begin.elapsed().as_secs_f64(), seconds));
            }
            let view = TaskView {
                name: &self.name,
                best: now,
                work: &self.work,
                trials: self.trials,
                failures: self.failures().into_iter().map(|(kind, (n, _))| (kind, n)).collect(),
            };
            if !goes_on(&view) || self.measure.lost().is_some() {
                break;
            }
        }
        self.progress.best.push(self.best_seconds());
        Ok(())
    }

    /// Measures the best candidates again, interleaved, to exclude lucky measurements: as many as
    /// the time until `ends` allows.
    pub fn decide(&mut self, seconds: f64, ends: Option<Instant>) -> Result<Option<Winner>> {
        // The comparison first compiles and checks each candidate.
        let count = self.affordable(seconds, ends).min(FINALISTS);
        let finalists: Vec<Proposal> =
            self.search.fastest(count.max(1)).iter().map(|trial| trial.proposal.clone()).collect();
        let Some(first) = finalists.first() else { return Ok(None) };
        let alone = self.best_seconds().unwrap_or(f64::INFINITY);
        if count == 0 || self.lost().is_some() {
            return Ok(self.measured_alone(first, alone));
        }
        let limit = Duration::from_secs_f64(alone * TIME_LIMIT_FACTOR)
            .clamp(MIN_TIME_LIMIT, MAX_TIME_LIMIT);
        let jobs: Vec<Job> = finalists.iter().map(|one| job(one, limit)).collect();
        let Compared { outcomes, in_turns } = self.measure.compare(&jobs, seconds);
        if self.lost().is_some() {
            return Ok(self.measured_alone(first, alone));
        }
        let mut best: Option<Winner> = None;
        for (proposal, outcome) in finalists.iter().zip(&outcomes) {
            self.wrong.extend(add(&mut self.log, proposal, in_turns, outcome)?);
            let trial = Trial { proposal: proposal.clone(), outcome: outcome.clone() };
            if let (Some(seconds), Outcome::Measured { times, .. }) = (trial.seconds(), outcome)
                && best.as_ref().is_none_or(|best| seconds < best.seconds)
            {
                best = Some(Winner { trial, seconds, times: times.clone() });
            }
        }
        // If no candidate could be measured again, the first measurement counts.
        Ok(best.or_else(|| self.measured_alone(first, alone)))
    }

    /// Returns how many candidates can be compiled, checked and compared for `seconds` until
    /// `ends`.
    fn affordable(&self, seconds: f64, ends: Option<Instant>) -> usize {
        ends.map_or(usize::MAX, |ends| {
            let left = ends.saturating_duration_since(Instant::now()).as_secs_f64() - seconds;
            (left.max(0.0) / self.seconds_of_trial().max(1e-3)) as usize
        })
    }

    /// Measures candidates interleaved for about `seconds`, the first ones if the time until `ends`
    /// does not allow all, and records them. Returns whether all were measured.
    pub fn record_comparison(
        &mut self,
        proposals: &[Proposal],
        seconds: f64,
        ends: Option<Instant>,
    ) -> Result<bool> {
        let count = proposals.len().min(self.affordable(seconds, ends));
        let (proposals, rest) = proposals.split_at(count);
        // One alone tells nothing new.
        if self.lost().is_some() || proposals.len() < 2 {
            return Ok(false);
        }
        let limit = Duration::from_secs_f64(self.best_seconds().unwrap_or(1.0) * TIME_LIMIT_FACTOR)
            .clamp(MIN_TIME_LIMIT, MAX_TIME_LIMIT);
        let jobs: Vec<Job> = proposals.iter().map(|one| job(one, limit)).collect();
        let Compared { outcomes, in_turns } = self.measure.compare(&jobs, seconds);
        if self.lost().is_some() {
            return Ok(false);
        }
        for (proposal, outcome) in proposals.iter().zip(&outcomes) {
            self.wrong.extend(add(&mut self.log, proposal, in_turns, outcome)?);
        }
        Ok(rest.is_empty())
    }

    /// Returns a trial with its own measurement.
    fn measured_alone(&self, proposal: &Proposal, seconds: f64) -> Option<Winner> {
        let trial = self.search.trials().iter().find(|one| one.proposal.text == proposal.text)?;
        let Outcome::Measured { times, .. } = &trial.outcome else { return None };
        Some(Winner { trial: trial.clone(), seconds, times: times.clone() })
    }

    /// Returns the mean seconds of a trial of this run.
    fn seconds_of_trial(&self) -> f64 {
        self.spent.as_secs_f64() / self.trials.max(1) as f64
    }

    /// Returns how many candidates are measured between checks of the limits: one for each machine
    /// if several could exceed the time.
    fn trials_between_checks(&self) -> usize {
        let width = self.measure.width().max(1);
        let few = 4 * width;
        let Some(ends) = self.ends else { return few };
        let left = ends.saturating_duration_since(Instant::now()).as_secs_f64();
        let late = left < 2.0 * few as f64 * self.seconds_of_trial();
        if self.trials == 0 || late { width } else { few }
    }

    /// Returns how many candidates are measured at a time.
    pub fn width(&self) -> usize {
        self.measure.width()
    }

    /// Returns why nothing can be measured any more, if so.
    pub fn lost(&self) -> Option<String> {
        self.measure.lost()
    }

    /// Returns new notes for the user about the measurements.
    pub fn notes(&mut self) -> Vec<String> {
        self.measure.notes()
    }

    /// Counts failed trials by kind, with an example of each.
    pub fn failures(&self) -> BTreeMap<FailureKind, (usize, String)> {
        let mut kinds = BTreeMap::new();
        for trial in self.search.trials() {
            let Some((kind, example)) = failure_of(&trial.outcome) else { continue };
            kinds.entry(kind).or_insert_with(|| (0, example)).0 += 1;
        }
        kinds
    }
}

/// The progress of a running task.
pub struct TaskView<'a> {
    /// The kernel.
    pub name: &'a str,
    /// Seconds of the best candidate.
    pub best: Option<f64>,
    /// The work of a call.
    pub work: &'a Work,
    /// Trials of this run.
    pub trials: usize,
    /// Failed trials by kind.
    pub failures: BTreeMap<FailureKind, usize>,
}

/// The best candidate.
pub struct Winner {
    /// The trial.
    pub trial: Trial,
    /// Seconds of a call, the median.
    pub seconds: f64,
    /// Seconds of a call in each round.
    pub times: Vec<f64>,
}

fn job(proposal: &Proposal, limit: Duration) -> Job {
    let decisions = proposal.answers.clone().into_iter().collect();
    Job { text: proposal.text.clone(), limit, decisions }
}

/// Whether a space writes the schedule of a record for its decisions.
fn writes(space: &dyn Space, record: &Record) -> bool {
    let answers = answers_of(record);
    let answer = |choice: &Choice| {
        let known = answers.get(&choice.name);
        let at = known.and_then(|known| choice.options.iter().position(|one| one == known));
        at.unwrap_or(choice.default)
    };
    space.replay(&mut { answer }).text == record.schedule
}

fn answers_of(record: &Record) -> BTreeMap<String, String> {
    record.decisions.iter().cloned().collect()
}

/// Records a trial; returns the path of the failing case if its results are wrong.
fn add(
    log: &mut Log,
    proposal: &Proposal,
    in_turns: bool,
    outcome: &Outcome,
) -> Result<Option<PathBuf>> {
    let decisions = proposal.answers.clone().into_iter().collect();
    log.add(&proposal.text, (decisions, &proposal.prediction.features), in_turns, outcome)
}

/// The kinds of trials without a valid time, in the order in which they are printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FailureKind {
    /// The compiler failed.
    Bug,
    /// The process ended by a signal.
    Crash,
    /// A call returned an error.
    Error,
    /// The process ran out of memory.
    Memory,
    /// The schedule was refused.
    Refused,
    /// The runner failed.
    Runner,
    /// It took too long.
    Timeout,
    /// The results were wrong.
    Wrong,
}

impl FailureKind {
    /// Returns the word that is printed.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Bug => "bug",
            FailureKind::Crash => "crash",
            FailureKind::Error => "error",
            FailureKind::Memory => "memory",
            FailureKind::Refused => "refused",
            FailureKind::Runner => "runner",
            FailureKind::Timeout => "timeout",
            FailureKind::Wrong => "wrong",
        }
    }
}

/// Returns the kind of a failure, with its message.
pub fn failure_of(outcome: &Outcome) -> Option<(FailureKind, String)> {
    Some(match outcome {
        Outcome::Measured { verdict: Verdict::Wrong { ulp }, .. } => {
            (FailureKind::Wrong, format!("a result was off by {ulp} ULP; this is a bug in tec"))
        }
        Outcome::Measured { .. } => return None,
        Outcome::Failed(failure) => match failure {
            TrialFailure::Refused(why) => (FailureKind::Refused, why.clone()),
            TrialFailure::Bug(why) => (FailureKind::Bug, format!("{why}; this is a bug in tec")),
            TrialFailure::Timeout => {
                (FailureKind::Timeout, "much slower than the best".to_string())
            }
            TrialFailure::Crash { signal } => (FailureKind::Crash, format!("signal {signal}")),
            TrialFailure::Memory => {
                (FailureKind::Memory, "it exceeded the memory limit".to_string())
            }
            TrialFailure::Call(why) => (FailureKind::Error, why.clone()),
            TrialFailure::Runner(why) => (FailureKind::Runner, why.clone()),
        },
    })
}
