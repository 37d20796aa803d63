//! Statistics of times: quartiles, and the confidence interval of a ratio of two medians.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The quartiles of a list of times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The minimum.
    pub min: f64,
    /// The first quartile.
    pub q1: f64,
    /// The median.
    pub median: f64,
    /// The third quartile.
    pub q3: f64,
}

/// A ratio of two medians, with its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The ratio of the measured medians.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Summary {
    /// Summarizes at least one time.
    pub fn new(times: &[f64]) -> Summary {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (q1, median, q3) = (at(&sorted, 0.25), at(&sorted, 0.5), at(&sorted, 0.75));
        Summary { min: sorted[0], q1, median, q3 }
    }
}

impl Ratio {
    /// Returns the median of `above` divided by that of `below`; both have one time per round.
    ///
    /// The interval is a bootstrap over whole rounds, so that disturbances of both in one round do
    /// not widen it.
    pub fn new(above: &[f64], below: &[f64]) -> Ratio {
        assert_eq!(above.len(), below.len(), "one of each a round");
        const DRAWS: usize = 1000;
        let rounds = above.len();
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let (mut x, mut y) = (vec![0.0; rounds], vec![0.0; rounds]);
        let mut drawn: Vec<f64> = (0..DRAWS)
            .map(|_| {
                for at in 0..rounds {
                    let round = random.random_range(0..rounds);
                    (x[at], y[at]) = (above[round], below[round]);
                }
                median(&mut x) / median(&mut y)
            })
            .collect();
        drawn.sort_by(f64::total_cmp);
        let value = median(&mut above.to_vec()) / median(&mut below.to_vec());
        Ratio { value, low: at(&drawn, 0.025), high: at(&drawn, 0.975) }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    at(values, 0.5)
}

/// Returns a quantile of a sorted list, interpolated.
fn at(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_values() {
        let summary = Summary::new(&[4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!(summary, Summary { min: 1.0, q1: 2.0, median: 3.0, q3: 4.0 });
        assert_eq!(Summary::new(&[1.0, 2.0]).median, 1.5);
        assert_eq!(Summary::new(&[7.0]).q3, 7.0);
    }

    #[test]
    fn disturbances_of_both_do_not_widen_the_interval() {
        let below: Vec<f64> = (0..50).map(|round| 1.0 + f64::from(round % 7)).collect();
        let above: Vec<f64> = below.iter().map(|time| 2.0 * time).collect();
        assert_eq!(Ratio::new(&above, &below), Ratio { value: 2.0, low: 2.0, high: 2.0 });
    }

    #[test]
    fn noise_widens_the_interval() {
        let above: Vec<f64> =
            (0..50).map(|round| 1.0 + f64::from(round * 13 % 10) / 10.0).collect();
        let below: Vec<f64> = (0..50).map(|round| 1.0 + f64::from(round * 7 % 10) / 10.0).collect();
        let ratio = Ratio::new(&above, &below);
        assert!(ratio.low < 1.0 && ratio.high > 1.0, "{ratio:?}");
        assert_eq!(ratio, Ratio::new(&above, &below));
    }
}
