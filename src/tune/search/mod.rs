//! The search: which candidates to measure, given what was measured.
//!
//! Before: a [`Space`] and a model that estimates a candidate from its text. After: candidates in
//! batches ([`Search::propose`]), each told what became of it ([`Search::tell`]). A batch is the
//! best of a population that lives on estimates, corrected by what a learned model makes of the
//! trials so far; a share of it is drawn at random, so that the models hear of what they do not
//! expect. The method is Ansor's (Zheng et al., OSDI 2020, section 5), over questions and answers
//! instead of rewritten programs.
//!
//! Everything is a function of the seed and of the outcomes told, in their order.

pub mod budget;
mod evolve;
mod learned;

use super::{Candidate, Outcome, Space, Verdict, median};
use evolve::{Population, draw};
use learned::Learned;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// What a model says of a candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct CostPrediction {
    /// Of one call.
    pub seconds: f64,
    /// What a learned model may look at; as many for every candidate.
    pub features: Vec<f64>,
}

/// A model: what it makes of each schedule, given as text; nothing of one that is refused.
pub type CostModel<'a> = dyn Fn(&[&str]) -> Vec<Option<CostPrediction>> + 'a;

/// A candidate that was proposed or measured.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The answer to each question that it decides.
    pub answers: BTreeMap<String, String>,
    /// The schedule.
    pub text: String,
    /// What the model said before it was measured.
    pub prediction: CostPrediction,
}

/// A candidate and what became of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was measured.
    pub proposal: Proposal,
    /// What came out.
    pub outcome: Outcome,
}

impl Trial {
    /// Seconds of one call: the median; nothing if it failed or was wrong.
    pub fn seconds(&self) -> Option<f64> {
        match &self.outcome {
            Outcome::Measured { verdict: Verdict::Wrong { .. }, .. } | Outcome::Failed(_) => None,
            Outcome::Measured { times, .. } => median(times),
        }
    }
}

/// Random candidates at the beginning.
const FIRST: usize = 256;
/// Candidates like those that were good elsewhere.
const SEEDS: usize = 16;
/// The plain candidate takes so many times the best one's time before it is given up.
const CLEARLY: f64 = 1.25;
/// One candidate in so many of a batch is drawn at random.
const ONE_AT_RANDOM: usize = 8;

/// The search for one kernel's schedule.
pub struct Search<'a> {
    space: &'a dyn Space,
    rng: ChaCha8Rng,
    population: Population<'a>,
    learned: Learned,
    /// Texts that were proposed or measured: none is twice.
    known: FxHashSet<String>,
    trials: Vec<Trial>,
    /// Where the best trial is.
    best: Option<usize>,
    /// Whether there were random candidates.
    begun: bool,
}

impl<'a> Search<'a> {
    /// A search that has seen nothing.
    pub fn new(space: &'a dyn Space, model: &'a CostModel<'a>, seed: u64) -> Search<'a> {
        Search {
            space,
            rng: ChaCha8Rng::seed_from_u64(seed),
            population: Population::new(space, model),
            learned: Learned::default(),
            known: FxHashSet::default(),
            trials: Vec::new(),
            best: None,
            begun: false,
        }
    }

    /// Trials of other kernels, which add_foreign_trials the learned model and nothing else.
    pub fn add_foreign_trials(&mut self, trials: &[Trial]) {
        self.learned.add_foreign_trials(trials);
    }

    /// Answers that were good elsewhere: the search begins with the like of the first few.
    pub fn seed(&mut self, answers: impl Iterator<Item = BTreeMap<String, String>>) {
        self.population.seed(answers.take(SEEDS));
    }

    /// Up to `count` candidates that are worth measuring, the most promising first; fewer where
    /// the space holds no more.
    pub fn propose(&mut self, count: usize) -> Vec<Proposal> {
        if !self.begun {
            self.begun = true;
            self.population.begin(FIRST, &mut self.rng);
        }
        self.learned.fit(&self.trials);
        self.population.evolve(&self.learned, &mut self.rng);
        let at_random = count / ONE_AT_RANDOM;
        let mut chosen: Vec<Proposal> = Vec::new();
        for member in self.population.ranked() {
            if chosen.len() + at_random >= count {
                break;
            }
            if self.known.insert(member.text.clone()) {
                chosen.push(member.clone());
            }
        }
        // Small spaces run dry: it is tried a few times, and then there is no more.
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

    /// What became of candidates, whether this search proposed them or an earlier one.
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

    /// The fastest that is right.
    pub fn best(&self) -> Option<&Trial> {
        self.best.map(|at| &self.trials[at])
    }

    /// The `count` fastest that are right, the fastest first.
    pub fn fastest(&self, count: usize) -> Vec<&Trial> {
        let timed = |trial: &&Trial| trial.seconds().is_some();
        let mut fastest: Vec<&Trial> = self.trials.iter().filter(timed).collect();
        fastest.sort_by(|a, b| f64::total_cmp(&seconds(a), &seconds(b)));
        fastest.truncate(count);
        fastest
    }

    /// Everything that was told, in order.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }
}

fn seconds(trial: &Trial) -> f64 {
    trial.seconds().expect("only those with a time are asked")
}

/// A search by the model alone: nothing is measured.
pub struct ModelSearch<'a> {
    population: Population<'a>,
    rng: ChaCha8Rng,
    unlearned: Learned,
}

impl<'a> ModelSearch<'a> {
    /// With `first` candidates drawn at random, the default of everything among them.
    pub fn new(
        space: &'a dyn Space,
        model: &'a CostModel<'a>,
        first: usize,
        seed: u64,
    ) -> ModelSearch<'a> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut population = Population::new(space, model);
        let unlearned = Learned::default();
        population.begin(first.max(1), &mut rng);
        population.rank(&unlearned);
        ModelSearch { population, rng, unlearned }
    }

    /// A generation more; whether there was a candidate that was not known.
    pub fn step(&mut self) -> bool {
        let before = self.evaluated();
        self.population.generation(&self.unlearned, &mut self.rng);
        self.evaluated() > before
    }

    /// Candidates so far, refused ones too.
    pub fn evaluated(&self) -> usize {
        self.population.evaluated()
    }

    /// What the model says of a candidate; none if it is refused.
    pub fn evaluate(&mut self, candidate: Option<Candidate>) -> Option<Proposal> {
        self.population.evaluate(candidate.into_iter().collect()).pop()
    }

    /// The one that the model likes best; none while all were refused.
    pub fn best(&self) -> Option<&Proposal> {
        self.population.ranked().next()
    }
}

/// The best candidate by the model alone, out of about `count`: no measurement. The plain one, if
/// that is nearly as good: of what is written plainly the model knows the most.
pub fn choose_by_model(
    space: &dyn Space,
    model: &CostModel<'_>,
    count: usize,
    seed: u64,
) -> Option<Proposal> {
    let mut search = ModelSearch::new(space, model, count / 3, seed);
    while search.evaluated() < count && search.step() {}
    let best = search.best().cloned()?;
    let plain = search.evaluate(space.plain());
    Some(
        plain
            .filter(|plain| plain.prediction.seconds < CLEARLY * best.prediction.seconds)
            .unwrap_or(best),
    )
}

/// What a candidate decided, by question.
pub fn answers_of(candidate: &Candidate) -> BTreeMap<String, String> {
    let pair =
        |decision: &super::Decision| (decision.choice.name.clone(), decision.answer().to_string());
    candidate.decisions.iter().map(pair).collect()
}

#[cfg(test)]
mod tests;
