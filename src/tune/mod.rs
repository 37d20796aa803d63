//! The tuner: from a computation alone to a good schedule, by search.
//!
//! A *space* (`space`) is what there is to decide about a kernel: rules, or a schedule's knobs,
//! ask questions, and the answers become a schedule in the language. Everything that the search
//! does with a candidate - draw it, change it, cross it with another, print it - is a matter of
//! how these questions are answered ([`Space::replay`]). A candidate is its text: nothing else is
//! built, measured or kept.
//!
//! Reads and writes nothing: programs are lowered by what the driver lends, measured by what the
//! command line lends ([`Measure`]).

pub mod dag;
pub mod model;
pub mod records;
pub mod search;
pub mod space;
pub mod workload;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One thing to decide while a candidate is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// What is decided, the same in every candidate that decides it: `C.y.tile`, `place of B`.
    pub name: String,
    /// The stage that it concerns; crossover takes the answers of a stage together.
    pub stage: String,
    /// The answers as they are printed and kept; none twice, at least one.
    pub options: Vec<String>,
    /// The answer that is given where nobody has a reason for another.
    pub default: usize,
}

/// A question with its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What was decided.
    pub choice: Choice,
    /// Which of its choices.
    pub chosen: usize,
}

impl Decision {
    /// The answer as it is printed and kept.
    pub fn answer(&self) -> &str {
        &self.choice.options[self.chosen]
    }
}

/// A point of a space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// What was decided, in the order of the questions.
    pub decisions: Vec<Decision>,
    /// The schedule: `schedule KERNEL for TARGET { … }`.
    pub text: String,
}

/// Everything that there is to decide about one kernel on one target.
pub trait Space: Sync {
    /// Writes a candidate: asks each question in an order that depends on the answers alone, and
    /// takes the index of a choice for an answer.
    fn replay(&self, answer: &mut dyn FnMut(&Choice) -> usize) -> Candidate;

    /// What somebody would write who knows nothing of the machine but that it has vectors: what a
    /// model takes for better should be clearly better. None where there is no such thing.
    fn plain(&self) -> Option<Candidate> {
        None
    }
}

/// A candidate to measure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The schedule.
    pub text: String,
    /// A call that takes longer is ended.
    pub limit: Duration,
    /// What was decided: question and answer, in order; it goes into the record.
    #[serde(default)]
    pub decisions: Vec<(String, String)>,
}

/// What became of a candidate.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran.
    Measured {
        /// Seconds of one call, each the mean of a batch of calls.
        times: Vec<f64>,
        /// What its results are worth.
        verdict: Verdict,
    },
    /// It did not run to its end.
    Failed(TrialFailure),
}

/// The value in the middle, between two if need be; none of none.
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

/// How the results of a candidate compare with those of the kernel without a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Bit by bit the same.
    Same,
    /// Within the bound of a kernel that says `reassociate`; the largest difference in units of
    /// the last place.
    Within {
        /// That difference.
        ulp: u64,
    },
    /// Neither: a defect of `tec`.
    Wrong {
        /// The largest difference in units of the last place.
        ulp: u64,
    },
}

/// Why a candidate has no time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialFailure {
    /// The schedule is refused: code and message.
    Refused(String),
    /// `tec` failed while compiling it: a defect.
    Bug(String),
    /// It took longer than it was given.
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
    /// The runner did not do its work.
    Runner(String),
}

/// What came of measuring in turns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// One for each candidate, in the same order.
    pub outcomes: Vec<Outcome>,
    /// They were measured in turns; otherwise each by itself, because together they failed.
    pub in_turns: bool,
}

/// Where candidates are compiled, run, verified and timed.
pub trait Measure {
    /// Measures each candidate; one outcome for each, in the same order. Each is told to `done`,
    /// with its index, as soon as it is known, so that it can be kept before the next begins.
    fn measure(&mut self, jobs: &[Job], done: &mut dyn FnMut(usize, &Outcome)) -> Vec<Outcome>;

    /// Measures some candidates in turns, so that what disturbs one disturbs all, for about
    /// `seconds` in all. Those that run are compared with each other without those that fail.
    fn compare(&mut self, jobs: &[Job], seconds: f64) -> Compared;

    /// What the user should know of the machine or of how results are verified, once each.
    fn notes(&mut self) -> Vec<String>;
}
