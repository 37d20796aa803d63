//! Stands in for the learned model without the feature `tune`: predicts what the cost model
//! predicts.

use super::{CostPrediction, Trial};

/// Has learned nothing.
#[derive(Default)]
pub(super) struct Learned;

impl Learned {
    /// Ignores trials of other kernels.
    pub(super) fn add_foreign_trials(&mut self, _: &[Trial]) {}

    /// Ignores the trials.
    pub(super) fn fit(&mut self, _: &[Trial]) {}

    /// Returns the seconds of the cost model.
    pub(super) fn predict<'g>(
        &self,
        predictions: impl Iterator<Item = &'g CostPrediction>,
    ) -> Vec<f64> {
        predictions.map(|prediction| prediction.seconds).collect()
    }
}
