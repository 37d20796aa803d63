//! The search on a synthetic machine: a space whose times are a formula.

use super::budget::{Progress, next};
use super::*;
use crate::tune::{Choice, Decision, TrialFailure};

/// Tile sizes of two loops, and packing with its own tile size.
struct Tiles;

const SIZES: &[&str] = &["1", "2", "4", "6", "8", "12", "16", "24", "32", "64"];

impl Space for Tiles {
    fn replay(&self, answer: &mut dyn FnMut(&Choice) -> usize) -> Candidate {
        let mut decisions: Vec<Decision> = Vec::new();
        let mut ask = |name: &str, stage: &str, choices: &[&str], default: usize| {
            let choice = Choice {
                name: name.to_string(),
                stage: stage.to_string(),
                options: choices.iter().map(|option| option.to_string()).collect(),
                default,
            };
            let chosen = answer(&choice);
            decisions.push(Decision { choice, chosen });
            choices[chosen].to_string()
        };
        let x = ask("C.x.tile", "C", SIZES, 0);
        let y = ask("C.y.tile", "C", SIZES, 0);
        let pack = ask("B.pack", "B", &["no", "yes"], 0);
        let k = if pack == "yes" { ask("B.k.tile", "B", SIZES, 3) } else { "0".to_string() };
        Candidate { decisions, text: format!("{x} {y} {pack} {k}") }
    }
}

/// Returns the seconds of a candidate: 6 by 64, packed by 24, is the best.
fn truth(text: &str) -> f64 {
    let parts: Vec<&str> = text.split(' ').collect();
    let off = |part: &str, best: f64| (part.parse::<f64>().unwrap() / best).ln().abs();
    let packed = if parts[2] == "yes" { 0.2 * off(parts[3], 24.0) } else { 1.0 };
    1e-3 * (1.0 + off(parts[0], 6.0) + off(parts[1], 64.0) + packed)
}

/// A cost model that ignores packing and refuses tiles of 64 by 64.
fn model(texts: &[&str]) -> Vec<Option<CostPrediction>> {
    let prediction = |text: &&str| {
        let parts: Vec<&str> = text.split(' ').collect();
        let number = |at: usize| parts[at].parse::<f64>().unwrap_or(0.0);
        let seconds = 1e-3 * (1.0 + (number(0) / 6.0).ln().abs() + (number(1) / 64.0).ln().abs());
        let packed = f64::from(u8::from(parts[2] == "yes"));
        let features = vec![number(0), number(1), packed, number(3)];
        let prediction = CostPrediction { seconds, features, nests: Vec::new() };
        (parts[0] != "64" || parts[1] != "64").then_some(prediction)
    };
    texts.iter().map(prediction).collect()
}

fn measure(proposals: Vec<Proposal>) -> Vec<Trial> {
    let trial = |proposal: Proposal| {
        let outcome = match &proposal.text[..] {
            // One candidate crashes: the search goes on.
            "6 32 no 0" => Outcome::Failed(TrialFailure::Crash { signal: 11 }),
            text => Outcome::Measured { times: vec![truth(text)], verdict: Verdict::Same },
        };
        Trial { proposal, outcome }
    };
    proposals.into_iter().map(trial).collect()
}

fn run(seed: u64, batches: usize) -> Vec<String> {
    let mut search = Search::new(&Tiles, &model, seed);
    for _ in 0..batches {
        let proposals = search.propose(8);
        search.add_trials(measure(proposals));
    }
    search.trials().iter().map(|trial| trial.proposal.text.clone()).collect()
}

#[test]
fn finds_the_best_candidate_that_the_model_misjudges() {
    let mut search = Search::new(&Tiles, &model, 1);
    for _ in 0..12 {
        let proposals = search.propose(8);
        search.add_trials(measure(proposals));
    }
    assert_eq!(search.best().unwrap().proposal.text, "6 64 yes 24");
    let fastest = search.fastest(3);
    assert_eq!(fastest[0].proposal.text, "6 64 yes 24");
    assert!(fastest[1].seconds() <= fastest[2].seconds());
}

#[test]
fn proposes_no_candidate_twice_and_no_refused_one() {
    let texts = run(2, 12);
    let distinct: FxHashSet<&String> = texts.iter().collect();
    assert_eq!(distinct.len(), texts.len());
    assert!(texts.iter().all(|text| !text.starts_with("64 64 ")));
}

#[test]
fn the_same_seed_and_outcomes_give_the_same_proposals() {
    assert_eq!(run(7, 8), run(7, 8));
    assert_ne!(run(7, 8), run(8, 8));
}

#[test]
fn a_small_space_is_exhausted() {
    struct One;
    impl Space for One {
        fn replay(&self, _: &mut dyn FnMut(&Choice) -> usize) -> Candidate {
            Candidate { decisions: Vec::new(), text: "1 1 no 0".to_string() }
        }
    }
    let mut search = Search::new(&One, &model, 0);
    assert_eq!(search.propose(8).len(), 1);
    assert_eq!(search.propose(8).len(), 0);
}

#[test]
fn a_search_continues_from_earlier_trials() {
    let mut first = Search::new(&Tiles, &model, 3);
    for _ in 0..4 {
        let proposals = first.propose(8);
        first.add_trials(measure(proposals));
    }
    let mut second = Search::new(&Tiles, &model, 4);
    second.add_trials(first.trials().to_vec());
    assert_eq!(second.best().unwrap().proposal.text, first.best().unwrap().proposal.text);
    let known: FxHashSet<&String> = first.trials().iter().map(|t| &t.proposal.text).collect();
    assert!(second.propose(8).iter().all(|proposal| !known.contains(&proposal.text)));
}

#[test]
fn a_search_begins_with_seeded_decisions() {
    let best = [("C.x.tile", "6"), ("C.y.tile", "64"), ("B.pack", "yes"), ("B.k.tile", "24")];
    let best = best.into_iter().chain([("D.tile", "a choice that this space lacks")]);
    let best = best.map(|(name, answer)| (name.to_string(), answer.to_string())).collect();
    let mut search = Search::new(&Tiles, &model, 1);
    search.seed(std::iter::once(best));
    let texts: Vec<String> = search.propose(8).into_iter().map(|one| one.text).collect();
    assert!(texts.contains(&"6 64 yes 24".to_string()), "{texts:?}");
}

#[test]
fn a_wrong_result_is_never_the_best() {
    let mut search = Search::new(&Tiles, &model, 5);
    let proposals = search.propose(8);
    let wrong = |proposal: Proposal| Trial {
        proposal,
        outcome: Outcome::Measured { times: vec![1e-9], verdict: Verdict::Wrong { ulp: 9 } },
    };
    search.add_trials(proposals.into_iter().map(wrong).collect());
    assert!(search.best().is_none() && search.fastest(3).is_empty());
}

#[test]
fn choose_by_model_ends_when_it_is_enough() {
    let candidates = |is_enough: &dyn Fn() -> bool| {
        let asked = std::cell::Cell::new(0);
        let counted = |texts: &[&str]| {
            asked.set(asked.get() + texts.len());
            model(texts)
        };
        choose_by_model(&Tiles, &counted, 600, is_enough, 0).expect("a candidate");
        asked.get()
    };
    let (few, all) = (candidates(&|| true), candidates(&|| false));
    assert!(few > 0 && 2 * few < all, "{few} of {all}");
}

#[test]
fn choose_by_model_returns_the_best_prediction() {
    let best = choose_by_model(&Tiles, &model, 600, &|| false, 0).unwrap();
    assert!(best.text.starts_with("6 64 "), "{}", best.text);
}

/// Stages that run one after the other, each with the two tile sizes of a nest.
struct Nests(usize);

impl Space for Nests {
    fn replay(&self, answer: &mut dyn FnMut(&Choice) -> usize) -> Candidate {
        let mut decisions: Vec<Decision> = Vec::new();
        for name in (0..2 * self.0).map(|at| format!("S{}.tile{}", at / 2, at % 2)) {
            let stage = name.split('.').next().unwrap().to_string();
            let options = SIZES.iter().map(|size| size.to_string()).collect();
            let choice = Choice { name, stage, options, default: 0 };
            let chosen = answer(&choice);
            decisions.push(Decision { choice, chosen });
        }
        let text: Vec<&str> = decisions.iter().map(|decision| decision.answer()).collect();
        Candidate { text: text.join(" "), decisions }
    }
}

/// A cost model of `Nests`: the best tile of each nest is 6 by 24, and a copy is a part of it.
fn model_of_nests(texts: &[&str]) -> Vec<Option<CostPrediction>> {
    let prediction = |text: &&str| {
        let sizes: Vec<f64> = text.split(' ').map(|size| size.parse().unwrap()).collect();
        let mut nests: Vec<NestTime> = Vec::new();
        for (at, tile) in sizes.chunks(2).enumerate() {
            let copied = (tile[0] / 6.0).ln().abs();
            for (stage, seconds) in [("copy", copied), ("S", (tile[1] / 24.0).ln().abs() + 0.1)] {
                nests.push(NestTime { stages: [format!("{stage}{at}")].into(), seconds });
            }
        }
        let seconds = nests.iter().map(|nest| nest.seconds).sum();
        Some(CostPrediction { seconds, features: Vec::new(), nests })
    };
    texts.iter().map(prediction).collect()
}

#[test]
fn each_candidate_is_a_trial_of_each_of_its_nests() {
    // Decisions that differ from the best ones, of two for each nest.
    let misses = |nests: usize, model: &CostModel| {
        let best = choose_by_model(&Nests(nests), model, 128, &|| false, 0).unwrap();
        best.text.split(' ').zip(["6", "24"].into_iter().cycle()).filter(|(a, b)| a != b).count()
    };
    let without_parts = |texts: &[&str]| {
        let mut predictions = model_of_nests(texts);
        predictions.iter_mut().flatten().for_each(|prediction| prediction.nests.clear());
        predictions
    };
    assert_eq!(misses(1, &model_of_nests), 0);
    assert!(misses(8, &model_of_nests) <= 3);
    assert!(misses(8, &without_parts) >= 8);
}

#[test]
fn trees_learn_the_error_of_the_model() {
    let mut search = Search::new(&Tiles, &model, 6);
    for _ in 0..6 {
        let proposals = search.propose(16);
        search.add_trials(measure(proposals));
    }
    let mut learned = Learned::default();
    learned.fit(search.trials());
    let predictions: Vec<CostPrediction> = model(&["6 64 no 0", "6 64 yes 24"])
        .into_iter()
        .map(|prediction| prediction.unwrap())
        .collect();
    assert_eq!(predictions[0].seconds, predictions[1].seconds);
    let predicted = learned.predict(predictions.iter());
    assert!(predicted[0] > 1.2 * predicted[1], "{predicted:?}");
}

#[test]
fn the_budget_goes_to_the_largest_expected_gain() {
    let of = |best: &[f64], floor: f64| Progress {
        best: best.iter().map(|seconds| Some(*seconds)).collect(),
        floor,
        exhausted: false,
        calls: 1,
    };
    let fresh = Progress::new(0.0);
    let falling = of(&[10.0, 8.0, 6.0], 0.0);
    let flat = of(&[10.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0], 0.0);
    let at_its_limit = of(&[10.0, 8.0, 6.0], 5.99);
    assert_eq!(next(&[falling.clone(), fresh.clone()]), Some(1));
    assert_eq!(next(&[flat.clone(), falling.clone()]), Some(1));
    assert_eq!(next(&[at_its_limit, flat.clone()]), Some(1));
    let done = Progress { exhausted: true, ..fresh };
    assert_eq!(next(&[done.clone(), flat]), Some(1));
    assert_eq!(next(&[done]), None);
}
