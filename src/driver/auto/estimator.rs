//! Estimates of schedules on the target's processor, and the search for the best one.

use super::super::estimate::estimate_texts_at;
use super::super::{Failure, Options};
use crate::lang::ParsedLines;
use crate::te::Graph;
use crate::tune;
use crate::tune::model::{Estimate, MachineModel, RunTimeValues};
use crate::tune::search::CostPrediction;
use std::cell::RefCell;

/// Threads that the schedule is made for. The module does not depend on this machine's number.
pub(super) const THREADS: usize = 4;

/// Estimates schedules of a kernel on the target's processor.
pub(super) struct Estimator<'a> {
    pub(super) graph: &'a Graph,
    pub(super) options: &'a Options,
    pub(super) parsed: ParsedLines,
    pub(super) bugs: &'a RefCell<Vec<String>>,
}

impl Estimator<'_> {
    /// Returns the estimates of schedules for each set of run-time integers; `None` for one that is
    /// refused.
    fn estimates(
        &self,
        texts: &[&str],
        values: &[RunTimeValues],
        threads: usize,
    ) -> Vec<Option<Vec<Estimate>>> {
        let Estimator { graph, options, parsed, bugs } = self;
        let machine = MachineModel::typical(&options.target);
        let at = (&machine, threads, values);
        let all = estimate_texts_at(graph, texts, options, at, parsed).into_iter();
        all.map(|estimates| match estimates {
            Ok(estimates) => Some(estimates),
            Err(Failure::User(_)) => None,
            Err(Failure::Bug { pass, message, .. }) => {
                bugs.borrow_mut().push(format!("{message}, in `{pass}`"));
                None
            }
        })
        .collect()
    }

    /// Returns the seconds of a call under a schedule, for each set of run-time integers.
    pub(super) fn seconds(
        &self,
        text: &str,
        values: &[RunTimeValues],
        threads: usize,
    ) -> Option<Vec<f64>> {
        let estimates = self.estimates(&[text], values, threads).pop()??;
        Some(estimates.into_iter().map(|estimate| estimate.seconds).collect())
    }

    /// Returns the best of about `count` candidates by the geometric mean of the times of calls
    /// with these run-time integers. Adds the candidates and their seconds to `seen`.
    pub(super) fn choose(
        &self,
        values: &[RunTimeValues],
        count: usize,
        seen: &mut Vec<(String, Vec<f64>)>,
    ) -> Option<String> {
        let all = RefCell::new(seen);
        let model = |texts: &[&str]| -> Vec<Option<CostPrediction>> {
            let prediction = |(text, estimates): (&&str, Option<Vec<Estimate>>)| {
                let seconds: Vec<f64> =
                    estimates?.into_iter().map(|estimate| estimate.seconds).collect();
                let logs: f64 = seconds.iter().map(|seconds| seconds.ln()).sum();
                let mean = (logs / seconds.len() as f64).exp();
                all.borrow_mut().push((text.to_string(), seconds));
                Some(CostPrediction { seconds: mean, features: Vec::new() })
            };
            texts.iter().zip(self.estimates(texts, values, THREADS)).map(prediction).collect()
        };
        let space = tune::space::of_kernel(self.graph, &self.options.target, 0);
        tune::search::choose_by_model(&space, &model, count, 0).map(|one| one.text)
    }
}
