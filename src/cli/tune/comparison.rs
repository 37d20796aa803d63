//! The fastest of several candidates that were measured interleaved, and how certain that is.

use super::super::bench::stats::Ratio;
use crate::tune::median;
use crate::tune::{Outcome, Verdict};

/// The fastest candidate of a comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fastest {
    /// Its index: the one with the smallest median.
    pub best: usize,
    /// The time of the second fastest relative to it, with the 95 % confidence interval.
    pub next: Ratio,
}

impl Fastest {
    /// Compares candidates with the times of the same rounds; none for fewer than two.
    pub fn new(times: &[&[f64]]) -> Option<Fastest> {
        let mut order: Vec<(f64, usize)> =
            times.iter().enumerate().filter_map(|(at, one)| Some((median(one)?, at))).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let [(_, best), (_, next), ..] = order[..] else { return None };
        Some(Fastest { best, next: Ratio::new(times[next], times[best]) })
    }

    /// Whether it is certainly the fastest.
    pub fn is_certain(&self) -> bool {
        self.next.low > 1.0
    }
}

/// Describes the outcomes of a comparison, if two of them have right results.
pub fn describe(outcomes: &[Outcome]) -> Option<String> {
    let times: Vec<&[f64]> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Measured { verdict: Verdict::Wrong { .. }, .. } | Outcome::Failed(_) => None,
            Outcome::Measured { times, .. } => Some(&times[..]),
        })
        .collect();
    let rounds = times.first()?.len();
    if times.iter().any(|one| one.len() != rounds) {
        return None;
    }
    let fastest = Fastest::new(&times)?;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let (by, low, high) =
        (percent(fastest.next.value), percent(fastest.next.low), percent(fastest.next.high));
    let tail = match fastest.is_certain() {
        true => "",
        false => ": the difference is not significant",
    };
    Some(format!(
        "of {} candidates in {rounds} rounds, the second fastest takes {by:.1} % longer than the \
         fastest (95 %: {low:.1} to {high:.1} %){tail}",
        times.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_certain_if_the_interval_excludes_equality() {
        let noise = |at: usize| 1.0 + (at * 7 % 10) as f64 / 100.0;
        let fast: Vec<f64> = (0..40).map(noise).collect();
        let slow: Vec<f64> = (0..40).map(|at| 1.2 * noise(at + 3)).collect();
        let same: Vec<f64> = (0..40).map(|at| noise(at + 5)).collect();
        let fastest = Fastest::new(&[&slow, &fast]).unwrap();
        assert!(
            fastest.best == 1 && fastest.is_certain() && fastest.next.value > 1.15,
            "{fastest:?}"
        );
        let fastest = Fastest::new(&[&same, &fast, &slow]).unwrap();
        assert!(fastest.best != 2 && !fastest.is_certain(), "{fastest:?}");
        assert_eq!(Fastest::new(&[&fast]), None);
        let outcome = |times: &[f64], verdict| Outcome::Measured { times: times.to_vec(), verdict };
        let right = Verdict::Same;
        let said = describe(&[outcome(&fast, right), outcome(&same, right)]).unwrap();
        assert!(said.ends_with("not significant"), "{said}");
        let wrong = Verdict::Wrong { ulp: 1 };
        assert_eq!(describe(&[outcome(&fast, right), outcome(&slow, wrong)]), None);
    }
}
