//! What the trials say beyond the analytical model: gradient-boosted trees over its features.
//!
//! The trees predict how far the model is off, as the logarithm of measured over estimated time,
//! so that without trials the model alone decides, and a kind of candidate that was never tried
//! is evaluated by it. Trials of other kernels are taught with the same target: the model's faults
//! are alike where the features are.

use super::{CostPrediction, Trial};
use forust_ml::data::Matrix;
use forust_ml::gradientbooster::GradientBooster;
use forust_ml::objective::ObjectiveType;

/// Trials before there are trees.
const ENOUGH: usize = 16;
/// A trial of another kernel counts this much.
const FOREIGN: f64 = 0.3;
/// So many of them at most, the last ones.
const MOST_FOREIGN: usize = 2000;

/// Trees, and what they were grown from.
#[derive(Default)]
pub(super) struct Learned {
    trees: Option<GradientBooster>,
    foreign: Vec<Sample>,
    /// The trials of this kernel when the trees were grown.
    fitted: usize,
    /// How many samples the trees are grown from.
    samples: usize,
}

#[derive(Clone)]
struct Sample {
    features: Vec<f64>,
    /// The logarithm of measured over estimated time.
    off: f64,
    seconds: f64,
}

impl Sample {
    fn of(trial: &Trial) -> Option<Sample> {
        let (prediction, seconds) = (&trial.proposal.prediction, trial.seconds()?);
        let known = prediction.seconds > 0.0 && !prediction.features.is_empty();
        known.then(|| Sample {
            features: prediction.features.clone(),
            off: (seconds / prediction.seconds).ln(),
            seconds,
        })
    }
}

impl Learned {
    /// Adds trials of other kernels.
    pub(super) fn add_foreign_trials(&mut self, trials: &[Trial]) {
        self.foreign.extend(trials.iter().filter_map(Sample::of));
        let surplus = self.foreign.len().saturating_sub(MOST_FOREIGN);
        self.foreign.drain(..surplus);
        self.fitted = usize::MAX;
    }

    /// Grows the trees anew if there are new trials.
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
        if self.samples < ENOUGH || width == 0 {
            self.trees = None;
            return;
        }
        // What is fast must be told apart; what is slow need not.
        let best = own.iter().map(|sample| sample.seconds).fold(f64::INFINITY, f64::min);
        let own_weight = |sample: &&Sample| (best / sample.seconds).max(0.05);
        let weights: Vec<f64> =
            own.iter().map(own_weight).chain(foreign.iter().map(|_| FOREIGN)).collect();
        let all: Vec<&Sample> = own.iter().chain(&foreign).copied().collect();
        let off: Vec<f64> = all.iter().map(|sample| sample.off).collect();
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
        self.trees = trees.fit(&matrix, &off, &weights, None).is_ok().then_some(trees);
    }

    /// Seconds that each candidate will take.
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
        let off = trees.predict(&matrix, false);
        // Few trials say little.
        let trust = self.samples as f64 / (self.samples + ENOUGH) as f64;
        seconds.zip(off).map(|(seconds, off)| seconds * (trust * off).exp()).collect()
    }
}

/// Rows to columns one after the other, as the matrix wants them.
fn columns(rows: &[&[f64]]) -> Vec<f64> {
    let width = rows.first().map_or(0, |row| row.len());
    (0..width).flat_map(|at| rows.iter().map(move |row| row[at])).collect()
}
