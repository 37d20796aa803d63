//! Estimates of schedules on the target's processor, and the search for the best one.

use super::super::estimate::estimate_texts_at;
use super::super::{Failure, Options, SearchTrace};
use crate::lang::ParsedLines;
use crate::te::Graph;
use crate::tune::model::{Estimate, MachineModel, NestTime, RunTimeValues};
use crate::tune::search::CostPrediction;
use crate::tune::{self, Space};
use std::cell::RefCell;

/// The numbers of threads that a schedule is made for; the mean of the times counts. The module
/// does not depend on this machine's number.
pub(super) const THREADS: [usize; 2] = [1, 4];

/// Estimates schedules of a kernel on the target's processor.
pub(super) struct Estimator<'a> {
    pub(super) graph: &'a Graph,
    pub(super) options: &'a Options,
    pub(super) parsed: ParsedLines,
    pub(super) bugs: &'a RefCell<Vec<String>>,
    pub(super) search: &'a RefCell<SearchTrace>,
}

impl Estimator<'_> {
    /// Returns the estimates of calls under schedules: for each set of run-time integers those with
    /// each number of threads. `None` for a schedule that is refused.
    fn estimates(
        &self,
        texts: &[&str],
        values: &[RunTimeValues],
        threads: &[usize],
    ) -> Vec<Option<Vec<Vec<Estimate>>>> {
        let Estimator { graph, options, parsed, bugs, search } = self;
        let machine = MachineModel::typical(&options.target);
        // A launch does not depend on the threads of the host.
        let threads = if options.target.is_gpu() { &threads[..1] } else { threads };
        let at = (&machine, threads, values);
        let search = &mut search.borrow_mut();
        let all = estimate_texts_at(graph, texts, options, at, parsed, search).into_iter();
        all.map(|estimates| match estimates {
            Ok(all) => Some(all.chunks(threads.len()).map(<[Estimate]>::to_vec).collect()),
            Err(Failure::User(_)) => None,
            Err(Failure::Bug { pass, message, .. }) => {
                bugs.borrow_mut().push(format!("{message}, in `{pass}`"));
                None
            }
        })
        .collect()
    }

    /// Returns the seconds of a call under a schedule, for each set of run-time integers those with
    /// each number of threads.
    pub(super) fn each(&self, text: &str, values: &[RunTimeValues]) -> Option<Vec<Vec<f64>>> {
        let estimates = self.estimates(&[text], values, &THREADS).pop()??;
        Some(estimates.iter().map(|calls| seconds(calls)).collect())
    }

    /// Returns the seconds of a call under a schedule, for each set of run-time integers the
    /// geometric mean over numbers of threads.
    pub(super) fn seconds(
        &self,
        text: &str,
        values: &[RunTimeValues],
        threads: &[usize],
    ) -> Option<Vec<f64>> {
        Some(means(&self.estimates(&[text], values, threads).pop()??, 0))
    }

    /// Returns what an estimate of the default candidate takes ([`SearchTrace::effort`]).
    pub(super) fn effort_of_default(&self, values: &[RunTimeValues]) -> i64 {
        let space = tune::space::of_kernel(self.graph, &self.options.target, 0);
        let default = space.replay(&mut |choice| choice.default).text;
        let before = self.effort();
        self.estimates(&[&default], values, &THREADS);
        self.effort() - before
    }

    /// Returns what all estimates took so far.
    pub(super) fn effort(&self) -> i64 {
        self.search.borrow().effort
    }

    /// Returns the best of about `count` candidates by the geometric mean of the times of calls
    /// with these run-time integers, of which the first `serial` sets count on one thread. The
    /// search ends early when the effort of all estimates reaches `end`. Adds the candidates and
    /// their seconds to `seen`.
    pub(super) fn choose(
        &self,
        (values, serial): (&[RunTimeValues], usize),
        (count, end): (usize, i64),
        seen: &mut Vec<(String, Vec<f64>)>,
    ) -> Option<String> {
        let all = RefCell::new(seen);
        let model = |texts: &[&str]| -> Vec<Option<CostPrediction>> {
            let prediction = |(text, estimates): (&&str, Option<Vec<Vec<Estimate>>>)| {
                let estimates = estimates?;
                let each = means(&estimates, serial);
                let seconds = geometric_mean(&each);
                all.borrow_mut().push((text.to_string(), each));
                let nests = mean_nests(&estimates.concat(), seconds);
                Some(CostPrediction { seconds, features: Vec::new(), nests })
            };
            let estimates = self.estimates(texts, values, &THREADS);
            texts.iter().zip(estimates).map(prediction).collect()
        };
        let space = tune::space::of_kernel(self.graph, &self.options.target, 0);
        tune::search::choose_by_model(&space, &model, count, &|| self.effort() >= end, 0)
            .map(|one| one.text)
    }
}

/// Returns the seconds of calls: for each set of run-time integers the geometric mean over numbers
/// of threads; of the first `serial` sets, over the first number only.
fn means(estimates: &[Vec<Estimate>], serial: usize) -> Vec<f64> {
    let mean = |(at, calls): (usize, &Vec<Estimate>)| {
        geometric_mean(&seconds(if at < serial { &calls[..1] } else { calls }))
    };
    estimates.iter().enumerate().map(mean).collect()
}

fn seconds(calls: &[Estimate]) -> Vec<f64> {
    calls.iter().map(|call| call.seconds).collect()
}

/// Returns the nests of calls with their mean shares of `seconds`.
fn mean_nests(calls: &[Estimate], seconds: f64) -> Vec<NestTime> {
    let mut nests: Vec<NestTime> = Vec::new();
    for call in calls {
        let factor = seconds / (call.seconds * calls.len() as f64);
        for nest in &call.nests {
            match nests.iter_mut().find(|known| known.stages == nest.stages) {
                Some(known) => known.seconds += factor * nest.seconds,
                None => nests.push(NestTime { seconds: factor * nest.seconds, ..nest.clone() }),
            }
        }
    }
    nests
}

pub(super) fn geometric_mean(seconds: &[f64]) -> f64 {
    let logs: f64 = seconds.iter().map(|seconds| seconds.ln()).sum();
    (logs / seconds.len() as f64).exp()
}
