//! The best decisions of each nest.
//!
//! The time of a kernel is about the sum of the times of its nests, the outermost loops of a stage
//! with all that they contain, and a decision mostly concerns the nest of its stage. Each candidate
//! is therefore a trial of every nest, and the best decisions of all nests together make a further
//! candidate. Without this, a kernel with several products would need as many candidates as there
//! are combinations of good tiles.

use super::{CostPrediction, Proposal};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Decisions: name and option.
type Answers = BTreeMap<String, String>;

/// The stage of each choice, by name.
type Stages = FxHashMap<String, String>;

/// A nest whose time is a smaller part of the kernel's is not mutated on its own.
const MIN_SHARE: f64 = 0.02;

/// The best decisions so far, by the stages of a nest.
#[derive(Default)]
pub(super) struct BestNests {
    best: FxHashMap<BTreeSet<String>, (f64, Answers)>,
}

impl BestNests {
    /// Adds a candidate.
    pub(super) fn add(&mut self, proposal: &Proposal, stages: &Stages) {
        for (nest, seconds) in nests(&proposal.prediction, stages) {
            let known = self.best.get(&nest);
            if known.is_none_or(|(best, _)| seconds < *best) {
                let answers = decisions_of(&proposal.answers, &nest, stages);
                self.best.insert(nest, (seconds, answers));
            }
        }
    }

    /// Returns a candidate's decisions with those of better nests of the same stages in their
    /// places; none if there are no better ones.
    pub(super) fn combined(&self, proposal: &Proposal, stages: &Stages) -> Option<Answers> {
        let mut answers = proposal.answers.clone();
        let mut better = false;
        for (nest, seconds) in nests(&proposal.prediction, stages) {
            if let Some((_, decisions)) = self.best.get(&nest).filter(|(best, _)| *best < seconds) {
                answers.retain(|name, _| !stages.get(name).is_some_and(|one| nest.contains(one)));
                answers.extend(decisions.clone());
                better = true;
            }
        }
        better.then_some(answers)
    }
}

/// Returns the names of a candidate's decisions: those of each nest that takes a part of the time,
/// and last the others. One group if there are not several such nests.
pub(super) fn groups<'p>(proposal: &'p Proposal, stages: &Stages) -> Vec<Vec<&'p String>> {
    let all = nests(&proposal.prediction, stages).into_iter();
    let least = MIN_SHARE * proposal.prediction.seconds;
    let large: Vec<BTreeSet<String>> =
        all.filter(|(_, seconds)| *seconds >= least).map(|(nest, _)| nest).collect();
    if large.len() < 2 {
        return vec![proposal.answers.keys().collect()];
    }
    let mut groups = vec![Vec::new(); large.len() + 1];
    for name in proposal.answers.keys() {
        let stage = stages.get(name);
        let nest = large.iter().position(|nest| stage.is_some_and(|stage| nest.contains(stage)));
        groups[nest.unwrap_or(large.len())].push(name);
    }
    groups.retain(|names| !names.is_empty());
    groups
}

/// Returns the stages with choices of each nest, with its seconds. A nest that has none, such as a
/// copy that a decision adds, counts to the next one, which reads it.
fn nests(prediction: &CostPrediction, stages: &Stages) -> Vec<(BTreeSet<String>, f64)> {
    let known: BTreeSet<&String> = stages.values().collect();
    let mut all: Vec<(BTreeSet<String>, f64)> = Vec::new();
    let mut before = 0.0;
    for nest in &prediction.nests {
        let stages = nest.stages.iter().filter(|stage| known.contains(stage));
        let stages: BTreeSet<String> = stages.cloned().collect();
        before += nest.seconds;
        if !stages.is_empty() {
            all.push((stages, std::mem::take(&mut before)));
        }
    }
    all
}

/// Returns the decisions that concern these stages.
fn decisions_of(answers: &Answers, nest: &BTreeSet<String>, stages: &Stages) -> Answers {
    let of_nest = |name: &String| stages.get(name).is_some_and(|stage| nest.contains(stage));
    let decisions = answers.iter().filter(|(name, _)| of_nest(name));
    decisions.map(|(name, answer)| (name.clone(), answer.clone())).collect()
}
