//! The population: candidates that evolve by their predicted cost.
//!
//! A child takes its decisions from one parent, with some mutated, or from two parents, each stage
//! from one of them; one child of each generation takes the best decisions of each nest. Choices
//! that no parent has are decided at random. All children of a generation are predicted together,
//! so that the cost model can use all cores.

use super::learned::Learned;
use super::nests::{self, BestNests};
use super::{CostModel, CostPrediction, Proposal, answers_of};
use crate::tune::{Candidate, Choice, Decision, Space};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// The sizes of a population.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Candidates that survive a generation.
    pub(super) survivors: usize,
    /// Children of a generation.
    pub(super) children: usize,
}

/// Generations between two batches.
const GENERATIONS: usize = 4;
/// Candidates of a tournament, of which the best becomes a parent.
const TOURNAMENT: usize = 4;
/// Probability that a mutation takes a neighbouring option.
const NEIGHBOUR_PROBABILITY: f64 = 0.6;
/// Probability of a crossover.
const CROSSOVER_PROBABILITY: f64 = 0.3;
/// Probability that a child that is no crossover is mutated in every nest, each as if it were the
/// whole kernel.
const EVERY_NEST_PROBABILITY: f64 = 0.5;

/// The candidates.
pub(super) struct Population<'a> {
    space: &'a dyn Space,
    model: &'a CostModel<'a>,
    sizes: Sizes,
    /// Best first after `evolve`.
    members: Vec<Member>,
    /// Texts that were evaluated, including refused ones.
    seen: FxHashSet<String>,
    /// The stage of each choice, by name.
    stages: FxHashMap<String, String>,
    nests: BestNests,
}

struct Member {
    proposal: Proposal,
    /// Seconds: measured or predicted.
    score: f64,
    /// Seconds, if it was measured.
    measured: Option<f64>,
}

/// Draws a candidate: each choice takes a random option with probability `mutation_rate`, else its
/// default.
pub(super) fn draw(space: &dyn Space, mutation_rate: f64, rng: &mut ChaCha8Rng) -> Candidate {
    space.replay(&mut |choice| random_option(choice, mutation_rate, rng))
}

fn random_option(choice: &Choice, mutation_rate: f64, rng: &mut ChaCha8Rng) -> usize {
    match rng.random_bool(mutation_rate) {
        true => rng.random_range(0..choice.options.len()),
        false => choice.default,
    }
}

impl<'a> Population<'a> {
    pub(super) fn new(
        space: &'a dyn Space,
        model: &'a CostModel<'a>,
        sizes: Sizes,
    ) -> Population<'a> {
        let (members, seen, stages) = (Vec::new(), FxHashSet::default(), FxHashMap::default());
        Population { space, model, sizes, members, seen, stages, nests: BestNests::default() }
    }

    /// Returns the number of texts that were evaluated.
    pub(super) fn evaluated(&self) -> usize {
        self.seen.len()
    }

    /// Adds the default, the simple one, candidates that differ from one of both in one decision,
    /// and random candidates with mutation rates from 0 to 1.
    pub(super) fn begin(&mut self, count: usize, rng: &mut ChaCha8Rng) {
        let default = draw(self.space, 0.0, rng);
        let plain = self.space.plain();
        let mut first: Vec<Candidate> = self.neighbours(&default).take(count / 3).collect();
        if let Some(plain) = &plain {
            first.extend(self.neighbours(plain).take(count / 4));
        }
        let drawn = count - first.len();
        first.extend((1..drawn).map(|at| draw(self.space, at as f64 / drawn as f64, rng)));
        first.extend(plain);
        first.push(default);
        self.add(first);
    }

    /// Returns the candidates that differ from one in one decision: the next option of each choice,
    /// then the one after it, and so on.
    fn neighbours<'b>(&'b self, one: &'b Candidate) -> impl Iterator<Item = Candidate> + 'b {
        let options = |decision: &Decision| decision.choice.options.len();
        let most = one.decisions.iter().map(options).max().unwrap_or(0);
        let steps = (1..most).flat_map(move |step| one.decisions.iter().map(move |of| (of, step)));
        steps.filter(move |(of, step)| *step < options(of)).map(|(changed, step)| {
            self.space.replay(&mut |choice| {
                let known = one.decisions.iter().find(|known| known.choice.name == choice.name);
                // What was chosen before may have left fewer options.
                let chosen = known.and_then(|known| position(choice, known.answer()));
                let chosen = chosen.unwrap_or(choice.default);
                let step = if choice.name == changed.choice.name { step } else { 0 };
                (chosen + step) % choice.options.len()
            })
        })
    }

    /// Adds candidates with these decisions; choices that they do not have are ignored.
    pub(super) fn seed(&mut self, all: impl Iterator<Item = BTreeMap<String, String>>) {
        let candidates = all.map(|answers| self.inherit(&answers, 0.0, None)).collect();
        self.add(candidates);
    }

    /// Replaces the prediction of a candidate by its measured time.
    pub(super) fn measured(&mut self, proposal: &Proposal, seconds: f64) {
        self.seen.insert(proposal.text.clone());
        let same = |member: &&mut Member| member.proposal.text == proposal.text;
        match self.members.iter_mut().find(same) {
            Some(member) => {
                member.measured = Some(seconds);
                member.score = seconds;
            }
            None => {
                // A candidate of another run has no stages; writing it again finds them.
                let candidate = self.inherit(&proposal.answers, 1.0, None);
                self.note_stages(&candidate);
                let (proposal, measured) = (proposal.clone(), Some(seconds));
                self.members.push(Member { proposal, score: seconds, measured });
            }
        }
    }

    /// Predicts candidates; refused ones are left out.
    pub(super) fn evaluate(&mut self, candidates: Vec<Candidate>) -> Vec<Proposal> {
        for candidate in &candidates {
            self.note_stages(candidate);
            self.seen.insert(candidate.text.clone());
        }
        propose(candidates, self.model)
    }

    /// Runs the generations of a batch.
    pub(super) fn evolve(&mut self, learned: &Learned, rng: &mut ChaCha8Rng) {
        for _ in 0..GENERATIONS {
            self.generation(learned, rng);
        }
    }

    /// Adds children, and keeps the best candidates.
    pub(super) fn generation(&mut self, learned: &Learned, rng: &mut ChaCha8Rng) {
        self.rank(learned);
        let mut children: Vec<Candidate> = self.combined().into_iter().collect();
        children.extend((0..self.sizes.children).map(|_| self.child(rng)));
        self.add(children);
        self.rank(learned);
    }

    /// Adds the candidate with the best decisions of each nest, and returns whether it is new.
    pub(super) fn combine(&mut self, learned: &Learned) -> bool {
        let before = self.evaluated();
        self.add(self.combined().into_iter().collect());
        self.rank(learned);
        self.evaluated() > before
    }

    /// Returns the best candidate with the best decisions of each of its nests.
    fn combined(&self) -> Option<Candidate> {
        let best = &self.members.first()?.proposal;
        let answers = self.nests.combined(best, &self.stages)?;
        Some(self.inherit(&answers, 0.0, None))
    }

    /// Returns all candidates, the best first.
    pub(super) fn ranked(&self) -> impl Iterator<Item = &Proposal> {
        self.members.iter().map(|member| &member.proposal)
    }

    /// Sorts by score, and drops the worst.
    pub(super) fn rank(&mut self, learned: &Learned) {
        let predictions =
            learned.predict(self.members.iter().map(|member| &member.proposal.prediction));
        for (member, prediction) in self.members.iter_mut().zip(predictions) {
            member.score = member.measured.unwrap_or(prediction);
        }
        self.members.sort_by(|a, b| f64::total_cmp(&a.score, &b.score));
        self.members.truncate(self.sizes.survivors);
    }

    /// Makes a child of members; a random candidate if there are none.
    fn child(&self, rng: &mut ChaCha8Rng) -> Candidate {
        if self.members.is_empty() {
            return draw(self.space, 0.5, rng);
        }
        let first = self.parent(rng);
        if rng.random_bool(CROSSOVER_PROBABILITY) {
            let second = &self.parent(rng).answers;
            return self.cross(&first.answers, second, rng);
        }
        let groups = nests::groups(first, &self.stages);
        let anew: FxHashSet<&String> = match groups.len() {
            2.. if rng.random_bool(EVERY_NEST_PROBABILITY) => {
                groups.iter().flat_map(|names| some_names(names, rng)).collect()
            }
            _ => some_names(&first.answers.keys().collect::<Vec<_>>(), rng).into_iter().collect(),
        };
        self.inherit_except(&first.answers, &anew, rng)
    }

    /// Returns the best of some random members.
    fn parent(&self, rng: &mut ChaCha8Rng) -> &Proposal {
        let at = (0..TOURNAMENT).map(|_| rng.random_range(0..self.members.len())).min();
        &self.members[at.expect("a tournament has members")].proposal
    }

    fn cross(
        &self,
        first: &BTreeMap<String, String>,
        second: &BTreeMap<String, String>,
        rng: &mut ChaCha8Rng,
    ) -> Candidate {
        let mut sides: FxHashMap<&str, bool> = FxHashMap::default();
        let mut answers = BTreeMap::new();
        for name in first.keys().chain(second.keys()) {
            let stage = self.stages.get(name).map_or("", |stage| &stage[..]);
            let from_first = *sides.entry(stage).or_insert_with(|| rng.random_bool(0.5));
            let (one, other) = if from_first { (first, second) } else { (second, first) };
            if let Some(answer) = one.get(name).or_else(|| other.get(name)) {
                answers.insert(name.clone(), answer.clone());
            }
        }
        self.inherit(&answers, 0.2, Some(rng))
    }

    /// Writes a candidate with these decisions; other choices are random, or take their defaults
    /// without `rng`.
    fn inherit(
        &self,
        answers: &BTreeMap<String, String>,
        mutation_rate: f64,
        mut rng: Option<&mut ChaCha8Rng>,
    ) -> Candidate {
        self.space.replay(&mut |choice| {
            let known = answers.get(&choice.name);
            match (known.and_then(|answer| position(choice, answer)), &mut rng) {
                (Some(at), _) => at,
                (None, Some(rng)) => random_option(choice, mutation_rate, rng),
                (None, None) => choice.default,
            }
        })
    }

    /// Writes a candidate with these decisions, except those in `anew`, which are mutated.
    fn inherit_except(
        &self,
        answers: &BTreeMap<String, String>,
        anew: &FxHashSet<&String>,
        rng: &mut ChaCha8Rng,
    ) -> Candidate {
        self.space.replay(&mut |choice| {
            let old = answers.get(&choice.name).and_then(|answer| position(choice, answer));
            let count = choice.options.len();
            match old {
                Some(at) if !anew.contains(&choice.name) || count == 1 => at,
                Some(at) if rng.random_bool(NEIGHBOUR_PROBABILITY) => {
                    match (rng.random_bool(0.5), at) {
                        (true, at) if at + 1 < count => at + 1,
                        (true, at) => at - 1,
                        (false, 0) => 1,
                        (false, at) => at - 1,
                    }
                }
                Some(at) => (at + rng.random_range(1..count)) % count,
                None => random_option(choice, 0.3, rng),
            }
        })
    }

    fn note_stages(&mut self, candidate: &Candidate) {
        for decision in &candidate.decisions {
            let choice = &decision.choice;
            if !self.stages.contains_key(&choice.name) {
                self.stages.insert(choice.name.clone(), choice.stage.clone());
            }
        }
    }

    /// Adds new candidates that the model does not refuse.
    fn add(&mut self, candidates: Vec<Candidate>) {
        let mut fresh = Vec::new();
        for candidate in candidates {
            if self.seen.insert(candidate.text.clone()) {
                self.note_stages(&candidate);
                fresh.push(candidate);
            }
        }
        let evaluated = propose(fresh, self.model);
        for proposal in &evaluated {
            self.nests.add(proposal, &self.stages);
        }
        let member = |proposal: Proposal| {
            let score = proposal.prediction.seconds;
            Member { proposal, score, measured: None }
        };
        self.members.extend(evaluated.into_iter().map(member));
    }
}

/// Predicts candidates, and leaves out refused ones.
fn propose(candidates: Vec<Candidate>, model: &CostModel<'_>) -> Vec<Proposal> {
    let texts: Vec<&str> = candidates.iter().map(|candidate| &candidate.text[..]).collect();
    let predictions = model(&texts);
    let proposal = |(candidate, prediction): (Candidate, Option<CostPrediction>)| {
        let answers = answers_of(&candidate);
        Some(Proposal { answers, text: candidate.text, prediction: prediction? })
    };
    candidates.into_iter().zip(predictions).filter_map(proposal).collect()
}

/// Returns the names of the decisions that a mutation changes. There are several at times: good
/// combinations are often more than one step away.
fn some_names<'p>(names: &[&'p String], rng: &mut ChaCha8Rng) -> Vec<&'p String> {
    let steps = match rng.random_range(0..10u32) {
        0..5 => 1,
        5..8 => 2,
        _ => 4,
    };
    match names.len() {
        0 => Vec::new(),
        count => (0..steps).map(|_| names[rng.random_range(0..count)]).collect(),
    }
}

fn position(choice: &Choice, answer: &str) -> Option<usize> {
    choice.options.iter().position(|option| option == answer)
}
