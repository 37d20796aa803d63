//! The learned model: gradient-boosted trees over the features of the cost model.
//!
//! The trees predict the error of the cost model, as the logarithm of measured over estimated time.
//! Without trials, and for unfamiliar candidates, the cost model alone decides. Trials of other
//! kernels are used too: similar features have similar errors.

use super::{CostPrediction, Trial};
use forust_ml::data::Matrix;
use forust_ml::gradientbooster::GradientBooster;
use forust_ml::objective::ObjectiveType;

/// The fewest trials for trees.
const MIN_TRIALS: usize = 16;
/// The weight of a trial of another kernel.
const FOREIGN_WEIGHT: f64 = 0.3;
/// The most trials of other kernels; the last ones are kept.
const MAX_FOREIGN: usize = 2000;

/// The trees with their training data.
#[derive(Default)]
pub(super) struct Learned {
    trees: Option<GradientBooster>,
    foreign: Vec<Sample>,
    /// The number of trials of this kernel when the trees were fitted.
    fitted: usize,
    /// The number of samples of the trees.
    samples: usize,
}

#[derive(Clone)]
struct Sample {
    features: Vec<f64>,
    /// The logarithm of measured over estimated time.
    log_error: f64,
    seconds: f64,
}

impl Sample {
    fn of(trial: &Trial) -> Option<Sample> {
        let (prediction, seconds) = (&trial.proposal.prediction, trial.seconds()?);
        let known = prediction.seconds > 0.0 && !prediction.features.is_empty();
        known.then(|| Sample {
            features: prediction.features.clone(),
            log_error: (seconds / prediction.seconds).ln(),
            seconds,
        })
    }
}

impl Learned {
    /// Adds trials of other kernels.
    pub(super) fn add_foreign_trials(&mut self, trials: &[Trial]) {
        self.foreign.extend(trials.iter().filter_map(Sample::of));
        let surplus = self.foreign.len().saturating_sub(MAX_FOREIGN);
        self.foreign.drain(..surplus);
        self.fitted = usize::MAX;
    }

    /// Fits the trees if there are new trials.
    pub(super) fn fit(&mut self, trials: &[Trial]) {
        if self.fitted == trials.len() {
            return;
        }
        self.fitted = trials.len();
        let own: Vec<Sample> = trials.iter().filter_map(Sample::of).collect();
        let width = own.first().or(self.foreign.first()).map_or(0, |one| one.features.len());
        let same = |sample: &&Sample| sample.features.len() == width;
        let foreign: Vec<&Sample> = self.foreign.iter().filter(same).collect();
        let own: Vec<&Sample> = own.iter().filter(same).collect();
        self.samples = own.len() + foreign.len();
        if self.samples < MIN_TRIALS || width == 0 {
            self.trees = None;
            return;
        }
        // Accuracy matters for fast candidates.
        let best = own.iter().map(|sample| sample.seconds).fold(f64::INFINITY, f64::min);
        let own_weight = |sample: &&Sample| (best / sample.seconds).max(0.05);
        let weights: Vec<f64> =
            own.iter().map(own_weight).chain(foreign.iter().map(|_| FOREIGN_WEIGHT)).collect();
        let all: Vec<&Sample> = own.iter().chain(&foreign).copied().collect();
        let log_error: Vec<f64> = all.iter().map(|sample| sample.log_error).collect();
        let columns = columns(&all.iter().map(|sample| &sample.features[..]).collect::<Vec<_>>());
        let matrix = Matrix::new(&columns, all.len(), width);
        let mut trees = GradientBooster::default()
            .set_objective_type(ObjectiveType::SquaredLoss)
            .set_iterations(60)
            .set_learning_rate(0.15)
            .set_max_depth(5)
            .set_min_leaf_weight(1.0)
            .set_initialize_base_score(true)
            .set_parallel(false);
        self.trees = trees.fit(&matrix, &log_error, &weights, None).is_ok().then_some(trees);
    }

    /// Predicts the seconds of each candidate.
    pub(super) fn predict<'g>(
        &self,
        predictions: impl Iterator<Item = &'g CostPrediction>,
    ) -> Vec<f64> {
        let predictions: Vec<&CostPrediction> = predictions.collect();
        let seconds = predictions.iter().map(|prediction| prediction.seconds);
        let Some(trees) = &self.trees else { return seconds.collect() };
        if predictions.is_empty() {
            return Vec::new();
        }
        let rows: Vec<&[f64]> =
            predictions.iter().map(|prediction| &prediction.features[..]).collect();
        let columns = columns(&rows);
        let matrix = Matrix::new(&columns, rows.len(), rows[0].len());
        let log_error = trees.predict(&matrix, false);
        // Few trials get little weight.
        let trust = self.samples as f64 / (self.samples + MIN_TRIALS) as f64;
        seconds
            .zip(log_error)
            .map(|(seconds, log_error)| seconds * (trust * log_error).exp())
            .collect()
    }
}

/// Transposes rows to the column-major order of `Matrix`.
fn columns(rows: &[&[f64]]) -> Vec<f64> {
    let width = rows.first().map_or(0, |row| row.len());
    (0..width).flat_map(|at| rows.iter().map(move |row| row[at])).collect()
}
