//! The population: candidates that live on what the models say of them.
//!
//! A child takes its answers from a parent, but for some that are given anew, or from two parents,
//! a stage from one and a stage from the other. A question that no parent was asked is answered
//! as in a random draw. All children of a generation are written first and evaluated then,
//! together, so that whoever lends the model may use every core.

use super::learned::Learned;
use super::{CostModel, CostPrediction, Proposal, answers_of};
use crate::tune::{Candidate, Choice, Space};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Candidates that stay alive.
const SIZE: usize = 128;
/// Children of a generation.
const CHILDREN: usize = 96;
/// Generations between two batches.
const GENERATIONS: usize = 4;
/// Of how many a parent is the best.
const TOURNAMENT: usize = 4;
/// A new answer is a neighbour of the old one this often.
const NEAR: f64 = 0.6;
/// Children of two parents.
const CROSSED: f64 = 0.3;

/// Candidates and what is known of them.
pub(super) struct Population<'a> {
    space: &'a dyn Space,
    model: &'a CostModel<'a>,
    /// Best first after `evolve`.
    members: Vec<Member>,
    /// Texts that were evaluated, refused ones too.
    seen: FxHashSet<String>,
    /// The stage of each question.
    stages: FxHashMap<String, String>,
}

struct Member {
    proposal: Proposal,
    /// Seconds: measured, or as the models expect.
    score: f64,
    /// Seconds, if it was measured.
    measured: Option<f64>,
}

/// A candidate at random: each question is answered with its default, but for a part of
/// `mutation_rate` of them.
pub(super) fn draw(space: &dyn Space, mutation_rate: f64, rng: &mut ChaCha8Rng) -> Candidate {
    space.replay(&mut |choice| any(choice, mutation_rate, rng))
}

fn any(choice: &Choice, mutation_rate: f64, rng: &mut ChaCha8Rng) -> usize {
    match rng.random_bool(mutation_rate) {
        true => rng.random_range(0..choice.options.len()),
        false => choice.default,
    }
}

impl<'a> Population<'a> {
    pub(super) fn new(space: &'a dyn Space, model: &'a CostModel<'a>) -> Population<'a> {
        let (members, seen, stages) = (Vec::new(), FxHashSet::default(), FxHashMap::default());
        Population { space, model, members, seen, stages }
    }

    /// How many texts were evaluated.
    pub(super) fn evaluated(&self) -> usize {
        self.seen.len()
    }

    /// The default of everything, the plain one, and random candidates of all degrees of mutation_rate.
    pub(super) fn begin(&mut self, count: usize, rng: &mut ChaCha8Rng) {
        let mut first = vec![draw(self.space, 0.0, rng)];
        first.extend(self.space.plain());
        first.extend((1..count).map(|at| draw(self.space, at as f64 / count as f64, rng)));
        self.add(first);
    }

    /// Candidates with these answers, as far as they are asked for.
    pub(super) fn seed(&mut self, all: impl Iterator<Item = BTreeMap<String, String>>) {
        let candidates = all.map(|answers| self.inherit(&answers, 0.0, None)).collect();
        self.add(candidates);
    }

    /// A measured candidate lives on with its time.
    pub(super) fn measured(&mut self, proposal: &Proposal, seconds: f64) {
        self.seen.insert(proposal.text.clone());
        let same = |member: &&mut Member| member.proposal.text == proposal.text;
        match self.members.iter_mut().find(same) {
            Some(member) => {
                member.measured = Some(seconds);
                member.score = seconds;
            }
            None => {
                // Of a candidate that another run measured the questions' stages are not known
                // before it is written again.
                let candidate = self.inherit(&proposal.answers, 1.0, None);
                self.note_stages(&candidate);
                let (proposal, measured) = (proposal.clone(), Some(seconds));
                self.members.push(Member { proposal, score: seconds, measured });
            }
        }
    }

    /// What the model says of candidates; those that are refused are left out.
    pub(super) fn evaluate(&mut self, candidates: Vec<Candidate>) -> Vec<Proposal> {
        for candidate in &candidates {
            self.note_stages(candidate);
            self.seen.insert(candidate.text.clone());
        }
        propose(candidates, self.model)
    }

    /// Some generations.
    pub(super) fn evolve(&mut self, learned: &Learned, rng: &mut ChaCha8Rng) {
        for _ in 0..GENERATIONS {
            self.generation(learned, rng);
        }
    }

    /// Children of those that are alive, of which the best stay.
    pub(super) fn generation(&mut self, learned: &Learned, rng: &mut ChaCha8Rng) {
        self.rank(learned);
        let children: Vec<Candidate> = (0..CHILDREN).map(|_| self.child(rng)).collect();
        self.add(children);
        self.rank(learned);
    }

    /// All that are alive, the best first.
    pub(super) fn ranked(&self) -> impl Iterator<Item = &Proposal> {
        self.members.iter().map(|member| &member.proposal)
    }

    /// Best first; those that are far behind do not live on.
    pub(super) fn rank(&mut self, learned: &Learned) {
        let predictions =
            learned.predict(self.members.iter().map(|member| &member.proposal.prediction));
        for (member, prediction) in self.members.iter_mut().zip(predictions) {
            member.score = member.measured.unwrap_or(prediction);
        }
        self.members.sort_by(|a, b| f64::total_cmp(&a.score, &b.score));
        self.members.truncate(SIZE);
    }

    /// A child of members; of nobody, if there is none.
    fn child(&self, rng: &mut ChaCha8Rng) -> Candidate {
        if self.members.is_empty() {
            return draw(self.space, 0.5, rng);
        }
        let first = &self.parent(rng).answers;
        if rng.random_bool(CROSSED) {
            let second = &self.parent(rng).answers;
            return self.cross(first, second, rng);
        }
        // A few answers at once: what fits together is often more than one step away.
        let steps = match rng.random_range(0..10u32) {
            0..5 => 1,
            5..8 => 2,
            _ => 4,
        };
        let names: Vec<&String> = first.keys().collect();
        let anew: FxHashSet<&String> = match names.len() {
            0 => FxHashSet::default(),
            count => (0..steps).map(|_| names[rng.random_range(0..count)]).collect(),
        };
        self.inherit_but(first, &anew, rng)
    }

    /// The best of some members at random.
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

    /// A candidate with these answers; other questions are answered at random, or by default.
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
                (None, Some(rng)) => any(choice, mutation_rate, rng),
                (None, None) => choice.default,
            }
        })
    }

    /// A candidate with these answers but for some.
    fn inherit_but(
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
                Some(at) if rng.random_bool(NEAR) => match (rng.random_bool(0.5), at) {
                    (true, at) if at + 1 < count => at + 1,
                    (true, at) => at - 1,
                    (false, 0) => 1,
                    (false, at) => at - 1,
                },
                Some(at) => (at + rng.random_range(1..count)) % count,
                None => any(choice, 0.3, rng),
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

    /// Judges candidates; those that are refused or known do not live.
    fn add(&mut self, candidates: Vec<Candidate>) {
        let mut fresh = Vec::new();
        for candidate in candidates {
            if self.seen.insert(candidate.text.clone()) {
                self.note_stages(&candidate);
                fresh.push(candidate);
            }
        }
        let evaluated = propose(fresh, self.model);
        let member = |proposal: Proposal| {
            let score = proposal.prediction.seconds;
            Member { proposal, score, measured: None }
        };
        self.members.extend(evaluated.into_iter().map(member));
    }
}

/// Those of the candidates that are not refused.
fn propose(candidates: Vec<Candidate>, model: &CostModel<'_>) -> Vec<Proposal> {
    let texts: Vec<&str> = candidates.iter().map(|candidate| &candidate.text[..]).collect();
    let predictions = model(&texts);
    let proposal = |(candidate, prediction): (Candidate, Option<CostPrediction>)| {
        let answers = answers_of(&candidate);
        Some(Proposal { answers, text: candidate.text, prediction: prediction? })
    };
    candidates.into_iter().zip(predictions).filter_map(proposal).collect()
}

fn position(choice: &Choice, answer: &str) -> Option<usize> {
    choice.options.iter().position(|option| option == answer)
}
