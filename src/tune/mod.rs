//! The tuner: searches for a good schedule of a kernel.
//!
//! A *space* (`space`) is a set of candidates: rules, or a schedule's knobs, offer choices, and the
//! decisions determine a schedule in the language. The search draws, mutates and crosses candidates
//! by deciding these choices ([`Space::replay`]). Only the text of a candidate is compiled,
//! measured and recorded.
//!
//! This folder does no I/O: the caller passes functions that lower and measure candidates
//! ([`Measure`]).

pub mod dag;
pub mod model;
pub mod records;
pub mod search;
pub mod space;
pub mod workload;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A choice in a candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The name, the same in every candidate with this choice: `C.y.tile`, `B.at`.
    pub name: String,
    /// The stage that it concerns; crossover takes the decisions of a stage together.
    pub stage: String,
    /// The options as they are printed and recorded: distinct, at least one.
    pub options: Vec<String>,
    /// The index of the default option.
    pub default: usize,
}

/// A choice with the option that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The choice.
    pub choice: Choice,
    /// The index of the option.
    pub chosen: usize,
}

impl Decision {
    /// Returns the option as it is printed and recorded.
    pub fn answer(&self) -> &str {
        &self.choice.options[self.chosen]
    }
}

/// A point of a space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The decisions, in the order of the choices.
    pub decisions: Vec<Decision>,
    /// The schedule: `schedule KERNEL for TARGET { … }`.
    pub text: String,
}

/// All candidates of a kernel on a target.
pub trait Space: Sync {
    /// Writes a candidate. `answer` decides each choice by the index of an option; the sequence of
    /// choices depends only on the decisions.
    fn replay(&self, answer: &mut dyn FnMut(&Choice) -> usize) -> Candidate;

    /// Returns a simple vectorized candidate, if there is one: a candidate that the model prefers
    /// should be clearly better than it.
    fn plain(&self) -> Option<Candidate> {
        None
    }
}

/// A candidate to measure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The schedule.
    pub text: String,
    /// The time limit of a call.
    pub limit: Duration,
    /// The decisions, name and option in order, for the record.
    #[serde(default)]
    pub decisions: Vec<(String, String)>,
}

/// The outcome of a trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran.
    Measured {
        /// Seconds of one call, each the mean of a batch of calls.
        times: Vec<f64>,
        /// Whether its results are right.
        verdict: Verdict,
    },
    /// It failed.
    Failed(TrialFailure),
}

/// Returns the median; none of an empty list.
pub fn median(times: &[f64]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The comparison of a candidate's results with the reference output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Bit-exact.
    Same,
    /// Within the bound of `reassociate`.
    Within {
        /// The largest difference in ULP.
        ulp: u64,
    },
    /// Neither, which is a bug of `tec`.
    Wrong {
        /// The largest difference in ULP.
        ulp: u64,
    },
}

/// The reason why a trial failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialFailure {
    /// The schedule is refused, with code and message.
    Refused(String),
    /// The compiler failed, which is a bug of `tec`.
    Bug(String),
    /// It exceeded its time limit.
    Timeout,
    /// Its process ended by a signal.
    Crash {
        /// The signal's number.
        signal: i32,
    },
    /// Its process ran out of memory.
    Memory,
    /// A call of it returned an error.
    Call(String),
    /// The runner failed.
    Runner(String),
}

/// The result of an interleaved measurement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// One for each candidate, in the same order.
    pub outcomes: Vec<Outcome>,
    /// Whether they were measured interleaved; otherwise one by one, because a candidate failed.
    pub in_turns: bool,
}

/// Compiles, runs, verifies and times candidates.
pub trait Measure {
    /// Measures each candidate and returns the outcomes in the same order. Calls `done` with the
    /// index and outcome of each before the next begins, so that it can be recorded.
    fn measure(&mut self, jobs: &[Job], done: &mut dyn FnMut(usize, &Outcome)) -> Vec<Outcome>;

    /// Measures candidates interleaved for about `seconds` in total, so that disturbances affect
    /// all alike. Candidates that fail are left out.
    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Compared;

    /// Returns new notes for the user about the machine or the verification.
    fn notes(&mut self) -> Vec<String>;

    /// Returns how many candidates are measured at a time.
    fn width(&self) -> usize {
        1
    }

    /// Returns why nothing can be measured any more, if so. Candidates for which `done` was not
    /// called have not been measured.
    fn lost(&self) -> Option<String> {
        None
    }
}
