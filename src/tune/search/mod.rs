//! The search: selects the candidates to measure.
//!
//! The input is a [`Space`] and a cost model of schedules as text. The search proposes batches of
//! candidates ([`Search::propose`]) and takes their outcomes ([`Search::add_trials`]). A batch
//! holds the best of a population, which evolves by the cost model with a learned correction, and
//! some random candidates, which the models may misjudge. The method is Ansor's (Zheng et al., OSDI
//! 2020, section 5), over decisions instead of rewritten programs.
//!
//! The proposals are a function of the seed and of the sequence of outcomes.

pub mod budget;
mod evolve;
#[cfg_attr(not(feature = "tune"), path = "unlearned.rs")]
mod learned;
mod nests;

use super::model::NestTime;
use super::{Candidate, Outcome, Space, Verdict, median};
use evolve::{Population, Sizes, draw};
use learned::Learned;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// The predicted cost of a candidate.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CostPrediction {
    /// Seconds of one call.
    pub seconds: f64,
    /// Inputs of the learned model; the same number for every candidate.
    pub features: Vec<f64>,
    /// The parts of `seconds` by nest, in the order in which they run.
    pub nests: Vec<NestTime>,
}

/// A cost model: predicts each schedule, given as text; none for one that is refused.
pub type CostModel<'a> = dyn Fn(&[&str]) -> Vec<Option<CostPrediction>> + 'a;

/// A candidate that was proposed or measured.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The decisions: name and option.
    pub answers: BTreeMap<String, String>,
    /// The schedule.
    pub text: String,
    /// The prediction of the cost model.
    pub prediction: CostPrediction,
}

/// A candidate with its outcome.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The candidate.
    pub proposal: Proposal,
    /// The outcome.
    pub outcome: Outcome,
}

impl Trial {
    /// Returns the median seconds of a call; none if it failed or was wrong.
    pub fn seconds(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Measured { verdict: Verdict::Wrong { .. }, .. } | Outcome::Failed(_) => None,
            Outcome::Measured { times, .. } => median(times),
        }
    }
}

/// Candidates of the initial population.
const INITIAL_CANDIDATES: usize = 256;
/// The population of a search that measures.
const MEASURED_POPULATION: Sizes = Sizes { survivors: 128, children: 96 };
/// The smallest population of a search by the cost model alone.
const MIN_POPULATION: Sizes = Sizes { survivors: 24, children: 24 };
/// The percentage of the candidates of `choose_by_model` that are not children of others.
const FIRST_PERCENT: usize = 40;
/// The most candidates that are seeded from other searches.
const MAX_SEEDS: usize = 16;
/// `choose_by_model` prefers the simple candidate up to this factor on the best prediction.
const SIMPLE_CANDIDATE_FACTOR: f64 = 1.25;
/// One in this many candidates of a batch is random.
const RANDOM_INTERVAL: usize = 8;

/// The search for one kernel's schedule.
pub struct Search<'a> {
    space: &'a dyn Space,
    rng: ChaCha8Rng,
    population: Population<'a>,
    learned: Learned,
    /// Texts that were proposed or measured, to avoid repetitions.
    known: FxHashSet<String>,
    trials: Vec<Trial>,
    /// The index of the best trial.
    best: Option<usize>,
    /// Whether the initial population was drawn.
    begun: bool,
}

impl<'a> Search<'a> {
    /// Returns a search without trials.
    pub fn new(space: &'a dyn Space, model: &'a CostModel<'a>, seed: u64) -> Search<'a> {
        Search {
            space,
            rng: ChaCha8Rng::seed_from_u64(seed),
            population: Population::new(space, model, MEASURED_POPULATION),
            learned: Learned::default(),
            known: FxHashSet::default(),
            trials: Vec::new(),
            best: None,
            begun: false,
        }
    }

    /// Adds trials of other kernels, from which only the learned model learns.
    pub fn add_foreign_trials(&mut self, trials: &[Trial]) {
        self.learned.add_foreign_trials(trials);
    }

    /// Adds candidates with decisions that were good in other searches; only the first few are
    /// used.
    pub fn seed(&mut self, answers: impl Iterator<Item = BTreeMap<String, String>>) {
        self.population.seed(answers.take(MAX_SEEDS));
    }

    /// Returns up to `count` candidates to measure, the most promising first; fewer if the space
    /// has no more.
    pub fn propose(&mut self, count: usize) -> Vec<Proposal> {
        if !self.begun {
            self.begun = true;
            self.population.begin(INITIAL_CANDIDATES, &mut self.rng);
        }
        self.learned.fit(&self.trials);
        self.population.evolve(&self.learned, &mut self.rng);
        let at_random = count / RANDOM_INTERVAL;
        let mut chosen: Vec<Proposal> = Vec::new();
        for member in self.population.ranked() {
            if chosen.len() + at_random >= count {
                break;
            }
            if self.known.insert(member.text.clone()) {
                chosen.push(member.clone());
            }
        }
        // Drawing in a small space may repeat candidates; the number of attempts is limited.
        let mut drawn = Vec::new();
        for _ in 0..8 * count {
            if chosen.len() + drawn.len() >= count {
                break;
            }
            let mutation_rate = self.rng.random_range(0.0..1.0);
            let candidate = draw(self.space, mutation_rate, &mut self.rng);
            if self.known.insert(candidate.text.clone()) {
                drawn.push(candidate);
            }
        }
        chosen.extend(self.population.evaluate(drawn));
        chosen
    }

    /// Adds outcomes of candidates of this or an earlier search.
    pub fn add_trials(&mut self, trials: Vec<Trial>) {
        for trial in trials {
            self.known.insert(trial.proposal.text.clone());
            if let Some(seconds) = trial.seconds() {
                let best = self.best.and_then(|at| self.trials[at].seconds());
                if best.is_none_or(|best| seconds < best) {
                    self.best = Some(self.trials.len());
                }
                self.population.measured(&trial.proposal, seconds);
            }
            self.trials.push(trial);
        }
    }

    /// Returns the fastest trial with right results.
    pub fn best(&self) -> Option<&Trial> {
        self.best.map(|at| &self.trials[at])
    }

    /// Returns the `count` fastest trials with right results, the fastest first.
    pub fn fastest(&self, count: usize) -> Vec<&Trial> {
        let timed = |trial: &&Trial| trial.seconds().is_some();
        let mut fastest: Vec<&Trial> = self.trials.iter().filter(timed).collect();
        fastest.sort_by(|a, b| f64::total_cmp(&seconds(a), &seconds(b)));
        fastest.truncate(count);
        fastest
    }

    /// Returns all trials, in order.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }
}

fn seconds(trial: &Trial) -> f64 {
    trial.seconds().expect("only those with a time are asked")
}

/// A search by the cost model alone, without measurements.
pub struct ModelSearch<'a> {
    population: Population<'a>,
    rng: ChaCha8Rng,
    unlearned: Learned,
}

impl<'a> ModelSearch<'a> {
    /// Draws `first` candidates, the default one among them.
    pub fn new(
        space: &'a dyn Space,
        model: &'a CostModel<'a>,
        first: usize,
        seed: u64,
    ) -> ModelSearch<'a> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let at_least = |least: usize, most: usize| (first / 2).clamp(least, most);
        let sizes = Sizes {
            survivors: at_least(MIN_POPULATION.survivors, MEASURED_POPULATION.survivors),
            children: at_least(MIN_POPULATION.children, MEASURED_POPULATION.children),
        };
        let mut population = Population::new(space, model, sizes);
        let unlearned = Learned::default();
        population.begin(first.max(1), &mut rng);
        population.rank(&unlearned);
        ModelSearch { population, rng, unlearned }
    }

    /// Runs a generation, and returns whether it had a new candidate.
    pub fn step(&mut self) -> bool {
        let before = self.evaluated();
        self.population.generation(&self.unlearned, &mut self.rng);
        self.evaluated() > before
    }

    /// Adds the candidate with the best decisions of each nest, and returns whether it is new.
    pub fn combine(&mut self) -> bool {
        self.population.combine(&self.unlearned)
    }

    /// Returns the number of candidates so far, including refused ones.
    pub fn evaluated(&self) -> usize {
        self.population.evaluated()
    }

    /// Predicts a candidate; none if it is refused.
    pub fn evaluate(&mut self, candidate: Option<Candidate>) -> Option<Proposal> {
        self.population.evaluate(candidate.into_iter().collect()).pop()
    }

    /// Returns the candidate with the best prediction; none if all were refused.
    pub fn best(&self) -> Option<&Proposal> {
        self.population.ranked().next()
    }
}

/// Returns the best of about `count` candidates by the cost model alone (fewer if `is_enough`), or
/// the simple candidate if its prediction is nearly as good, because the model is most accurate for
/// simple loops.
pub fn choose_by_model(
    space: &dyn Space,
    model: &CostModel<'_>,
    count: usize,
    is_enough: &dyn Fn() -> bool,
    seed: u64,
) -> Option<Proposal> {
    let mut search = ModelSearch::new(space, model, count * FIRST_PERCENT / 100, seed);
    while search.evaluated() < count && !is_enough() && search.step() {}
    while search.combine() {}
    let best = search.best().cloned()?;
    let plain = search.evaluate(space.plain());
    Some(
        plain
            .filter(|plain| {
                plain.prediction.seconds < SIMPLE_CANDIDATE_FACTOR * best.prediction.seconds
            })
            .unwrap_or(best),
    )
}

/// Returns the decisions of a candidate by name.
pub fn answers_of(candidate: &Candidate) -> BTreeMap<String, String> {
    let pair =
        |decision: &super::Decision| (decision.choice.name.clone(), decision.answer().to_string());
    candidate.decisions.iter().map(pair).collect()
}

#[cfg(test)]
mod tests;
