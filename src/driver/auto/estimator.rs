//! Estimates of schedules on the target's processor, and the search for the best one.

use super::super::estimate::estimate_texts_at;
use super::super::{Failure, Options, SearchTrace};
use crate::lang::ParsedLines;
use crate::te::Graph;
use crate::tune;
use crate::tune::model::{Estimate, MachineModel, RunTimeValues};
use crate::tune::search::CostPrediction;
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
    /// Returns the seconds of calls under schedules: for each set of run-time integers those with
    /// each number of threads. `None` for a schedule that is refused.
    fn calls(
        &self,
        texts: &[&str],
        values: &[RunTimeValues],
        threads: &[usize],
    ) -> Vec<Option<Vec<Vec<f64>>>> {
        let Estimator { graph, options, parsed, bugs, search } = self;
        let machine = MachineModel::typical(&options.target);
        // A launch does not depend on the threads of the host.
        let threads = if options.target.is_gpu() { &threads[..1] } else { threads };
        let at = (&machine, threads, values);
        let search = &mut search.borrow_mut();
        let all = estimate_texts_at(graph, texts, options, at, parsed, search).into_iter();
        let seconds = |calls: &[Estimate]| calls.iter().map(|call| call.seconds).collect();
        all.map(|estimates| match estimates {
            Ok(estimates) => Some(estimates.chunks(threads.len()).map(seconds).collect()),
            Err(Failure::User(_)) => None,
            Err(Failure::Bug { pass, message, .. }) => {
                bugs.borrow_mut().push(format!("{message}, in `{pass}`"));
                None
            }
        })
        .collect()
    }

    /// Returns the seconds of calls under schedules: for each set of run-time integers the
    /// geometric mean over numbers of threads; of the first `serial` sets, over the first number
    /// only. `None` for a schedule that is refused.
    fn means(
        &self,
        texts: &[&str],
        (values, serial): (&[RunTimeValues], usize),
        threads: &[usize],
    ) -> Vec<Option<Vec<f64>>> {
        let mean = |(at, calls): (usize, Vec<f64>)| {
            geometric_mean(if at < serial { &calls[..1] } else { &calls })
        };
        let all = self.calls(texts, values, threads).into_iter();
        all.map(|calls| Some(calls?.into_iter().enumerate().map(mean).collect())).collect()
    }

    /// Returns the seconds of a call under a schedule, for each set of run-time integers those with
    /// each number of threads.
    pub(super) fn each(&self, text: &str, values: &[RunTimeValues]) -> Option<Vec<Vec<f64>>> {
        self.calls(&[text], values, &THREADS).pop()?
    }

    /// Returns the seconds of a call under a schedule, for each set of run-time integers.
    pub(super) fn seconds(
        &self,
        text: &str,
        values: &[RunTimeValues],
        threads: &[usize],
    ) -> Option<Vec<f64>> {
        self.means(&[text], (values, 0), threads).pop()?
    }

    /// Returns the best of about `count` candidates by the geometric mean of the times of calls
    /// with these run-time integers, of which the first `serial` sets count on one thread. Adds the
    /// candidates and their seconds to `seen`.
    pub(super) fn choose(
        &self,
        (values, serial): (&[RunTimeValues], usize),
        count: usize,
        seen: &mut Vec<(String, Vec<f64>)>,
    ) -> Option<String> {
        let all = RefCell::new(seen);
        let model = |texts: &[&str]| -> Vec<Option<CostPrediction>> {
            let prediction = |(text, seconds): (&&str, Option<Vec<f64>>)| {
                let seconds = seconds?;
                let mean = geometric_mean(&seconds);
                all.borrow_mut().push((text.to_string(), seconds));
                Some(CostPrediction { seconds: mean, features: Vec::new() })
            };
            texts
                .iter()
                .zip(self.means(texts, (values, serial), &THREADS))
                .map(prediction)
                .collect()
        };
        let space = tune::space::of_kernel(self.graph, &self.options.target, 0);
        tune::search::choose_by_model(&space, &model, count, 0).map(|one| one.text)
    }
}

fn geometric_mean(seconds: &[f64]) -> f64 {
    let logs: f64 = seconds.iter().map(|seconds| seconds.ln()).sum();
    (logs / seconds.len() as f64).exp()
}
