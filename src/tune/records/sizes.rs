//! Schedules for several sizes: which recorded schedule each size gets, and the conditions that
//! tell the sizes apart.
//!
//! Before: times of several schedules, each for some values of the run-time integers.
//! After: `if n <= 64 { the best for n = 16 } else { the best for n = 256 and n = 4096 }`.

use super::{Filter, Record, last_times};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The most sizes that are told apart; the last ones count. A schedule has 16 versions at most
/// (E0319).
const MAX_SIZES: usize = 16;

/// A version of a schedule has to save this part of the time of one size.
const WORTH: f64 = 0.05;

/// Recorded schedules under conditions on run-time integers.
#[derive(Clone, PartialEq, Debug)]
pub enum SizedChoice<'a> {
    /// One schedule.
    Always {
        /// The sizes that it was chosen for, each with its record of this schedule.
        sizes: Vec<&'a Record>,
    },
    /// `if var <= most { small } else { large }`.
    AtMost {
        /// The run-time integer.
        var: &'a str,
        /// The largest value of the first branch.
        most: i64,
        /// For values up to `most`.
        small: Box<SizedChoice<'a>>,
        /// For larger values.
        large: Box<SizedChoice<'a>>,
    },
}

impl<'a> SizedChoice<'a> {
    /// Returns the records of all sizes, those of the first version first.
    pub fn sizes(&self) -> Vec<&'a Record> {
        match self {
            SizedChoice::Always { sizes } => sizes.clone(),
            SizedChoice::AtMost { small, large, .. } => [small.sizes(), large.sizes()].concat(),
        }
    }
}

/// Returns the best recorded schedules of the selection for all sizes of the family of its last
/// record; `None` if it has no right record.
///
/// A schedule is used for the sizes at which it was measured. As few versions as possible: another
/// one has to save [`WORTH`] of the time of a size in total.
pub fn best_by_size<'a>(records: &'a [Record], filter: &Filter) -> Option<SizedChoice<'a>> {
    let right = |record: &&Record| filter.admits(record) && record.seconds().is_some();
    let family = family(records.iter().rfind(right)?);
    let of_family: Vec<&Record> =
        records.iter().filter(right).filter(|record| self::family(record) == family).collect();
    Some(choice(&of_family))
}

/// What records of different sizes have in common: workload, target, CPU, threads, and the names of
/// the run-time integers.
pub(super) type Family<'a> = (&'a str, &'a str, &'a str, usize, Vec<&'a str>);

pub(super) fn family(record: &Record) -> Family<'_> {
    let (workload, vars, target, cpu, threads) = record.group();
    (workload, target, cpu, threads, vars.keys().map(|name| &name[..]).collect())
}

/// Returns the choice for all sizes of right records of a family, of which there is one at least.
pub(super) fn choice<'a>(records: &[&'a Record]) -> SizedChoice<'a> {
    let mut last: Vec<&BTreeMap<String, i64>> = Vec::new();
    for record in records {
        last.retain(|vars| **vars != record.vars);
        last.push(&record.vars);
    }
    let last = &last[last.len().saturating_sub(MAX_SIZES)..];
    let size = |vars: &&'a BTreeMap<String, i64>| {
        let of: Vec<&Record> =
            records.iter().copied().filter(|record| record.vars == **vars).collect();
        Size { vars, times: last_times(&of) }
    };
    let mut sizes: Vec<Size<'a>> = last.iter().map(size).collect();
    sizes.sort_by_key(|size| size.vars);
    let all: Vec<usize> = (0..sizes.len()).collect();
    let mut chooser = Chooser { sizes: &sizes, known: FxHashMap::default() };
    chooser.choose(&all).1
}

/// The times of one size.
struct Size<'a> {
    vars: &'a BTreeMap<String, i64>,
    /// The last record of each schedule, with the seconds of a call.
    times: Vec<(&'a Record, f64)>,
}

impl<'a> Size<'a> {
    fn best(&self) -> f64 {
        self.times.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min)
    }

    fn of(&self, schedule: &str) -> Option<(&'a Record, f64)> {
        self.times.iter().find(|(record, _)| record.schedule == schedule).copied()
    }
}

/// Chooses versions for boxes of sizes: dynamic programming over all ways to divide them.
struct Chooser<'s, 'a> {
    sizes: &'s [Size<'a>],
    known: FxHashMap<Vec<usize>, (f64, SizedChoice<'a>)>,
}

impl<'a> Chooser<'_, 'a> {
    /// Returns the best choice for some sizes, with its cost: the sum over the sizes of the
    /// logarithm of (its time / the best time), and of [`WORTH`] for each version.
    fn choose(&mut self, sizes: &[usize]) -> (f64, SizedChoice<'a>) {
        if let Some(known) = self.known.get(sizes) {
            return known.clone();
        }
        let mut best = self.one_schedule(sizes);
        for (var, most) in self.cuts(sizes) {
            let (small, large): (Vec<usize>, Vec<usize>) =
                sizes.iter().partition(|at| self.sizes[**at].vars[var] <= most);
            let (small, large) = (self.choose(&small), self.choose(&large));
            let cost = small.0 + large.0;
            if best.as_ref().is_none_or(|best| cost < best.0) {
                let (small, large) = (Box::new(small.1), Box::new(large.1));
                best = Some((cost, SizedChoice::AtMost { var, most, small, large }));
            }
        }
        let best = best.expect("a single size has a schedule");
        self.known.insert(sizes.to_vec(), best.clone());
        best
    }

    /// Returns the schedule that is best for all of some sizes, with its cost; `None` if no
    /// schedule was measured at all of them.
    fn one_schedule(&self, sizes: &[usize]) -> Option<(f64, SizedChoice<'a>)> {
        let (first, others) = sizes.split_first().expect("there are sizes");
        let mut best: Option<(f64, SizedChoice<'a>)> = None;
        for (record, seconds) in &self.sizes[*first].times {
            let mut cost = WORTH + (seconds / self.sizes[*first].best()).ln();
            let mut records = vec![*record];
            for at in others {
                let Some((record, seconds)) = self.sizes[*at].of(&record.schedule) else { break };
                cost += (seconds / self.sizes[*at].best()).ln();
                records.push(record);
            }
            let complete = records.len() == sizes.len();
            if complete && best.as_ref().is_none_or(|best| cost < best.0) {
                best = Some((cost, SizedChoice::Always { sizes: records }));
            }
        }
        best
    }

    /// Returns the conditions `var <= most` that divide some sizes.
    fn cuts(&self, sizes: &[usize]) -> Vec<(&'a str, i64)> {
        let names = self.sizes[sizes[0]].vars.keys();
        let of = |name: &'a String| {
            let values: BTreeSet<i64> = sizes.iter().map(|at| self.sizes[*at].vars[name]).collect();
            let values: Vec<i64> = values.into_iter().collect();
            let cut = |pair: &[i64]| (&name[..], between(pair[0], pair[1]));
            values.windows(2).map(cut).collect::<Vec<_>>()
        };
        names.flat_map(of).collect()
    }
}

/// Returns the largest value that belongs to the smaller one of two sizes: about their geometric
/// mean, a power of two if one lies between.
fn between(small: i64, large: i64) -> i64 {
    if small < 1 {
        return small.max(0).min(large - 1);
    }
    let mean = ((small as f64) * (large as f64)).sqrt();
    let power = 1i64 << (mean.log2().round() as u32).min(62);
    let mean = if (small..large).contains(&power) { power } else { mean as i64 };
    mean.clamp(small, large - 1)
}

#[cfg(test)]
mod tests {
    use super::super::tests::context;
    use super::*;
    use crate::tune::{Outcome, Verdict};

    fn ran(vars: &[(&str, i64)], schedule: &str, seconds: f64) -> Record {
        let outcome = Outcome::Measured { times: vec![seconds], verdict: Verdict::Same };
        let mut record = Record::new(&context(), schedule, Vec::new(), true, &outcome);
        record.vars = vars.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        record
    }

    /// Returns the choice as text: `n<=64(a | b)`.
    fn text(choice: &SizedChoice<'_>) -> String {
        match choice {
            SizedChoice::Always { sizes } => sizes[0].schedule.clone(),
            SizedChoice::AtMost { var, most, small, large } => {
                format!("{var}<={most}({} | {})", text(small), text(large))
            }
        }
    }

    fn chosen(records: &[Record]) -> String {
        text(&best_by_size(records, &Filter::default()).expect("there are records"))
    }

    #[test]
    fn sizes_share_a_schedule_unless_another_one_saves_time() {
        let records = |second: f64| {
            [(16, 1.0, 1.2), (256, 1.0, 1.02), (4096, second, 1.0)]
                .map(|(n, a, b)| [ran(&[("n", n)], "a", a), ran(&[("n", n)], "b", b)])
        };
        assert_eq!(chosen(&records(1.04).concat()), "a");
        assert_eq!(chosen(&records(1.5).concat()), "n<=1024(a | b)");
    }

    #[test]
    fn a_schedule_is_for_the_sizes_at_which_it_was_measured() {
        let records =
            [ran(&[("n", 100)], "a", 1.0), ran(&[("n", 1)], "b", 2.0), ran(&[("n", 7)], "b", 2.0)];
        assert_eq!(chosen(&records), "n<=32(b | a)");
        assert_eq!(chosen(&records[..1]), "a");
    }

    #[test]
    fn several_integers_make_a_tree() {
        let mut records = Vec::new();
        for n in [1, 100] {
            for m in [1, 100] {
                let best = match (n, m) {
                    (1, _) => "a",
                    (_, 1) => "b",
                    _ => "c",
                };
                for schedule in ["a", "b", "c"] {
                    let seconds = if schedule == best { 1.0 } else { 2.0 };
                    records.push(ran(&[("n", n), ("m", m)], schedule, seconds));
                }
            }
        }
        assert_eq!(chosen(&records), "n<=8(a | m<=8(b | c))");
    }

    #[test]
    fn other_kernels_and_runs_without_these_integers_do_not_count() {
        let mut other = ran(&[("n", 1)], "other", 0.1);
        other.workload = "another".to_string();
        let records = [ran(&[], "old", 0.1), other, ran(&[("n", 8)], "a", 1.0)];
        assert_eq!(chosen(&records), "a");
        assert_eq!(best_by_size(&[], &Filter::default()), None);
    }

    #[test]
    fn the_last_time_of_a_size_counts_and_sizes_are_few() {
        let n = [("n", 5)];
        let records = [ran(&n, "a", 1.0), ran(&n, "b", 2.0), ran(&n, "a", 3.0)];
        assert_eq!(chosen(&records), "b");
        let many: Vec<Record> =
            (1..40).map(|n| ran(&[("n", n * n)], &format!("s{n}"), 1.0)).collect();
        let choice = best_by_size(&many, &Filter::default()).expect("there are records");
        assert_eq!(choice.sizes().len(), MAX_SIZES);
        assert_eq!(choice.sizes().last().unwrap().schedule, "s39");
    }

    #[test]
    fn the_limit_lies_between_two_sizes() {
        for (small, large, limit) in [
            (1, 2, 1),
            (16, 256, 64),
            (100, 1000, 256),
            (1000, 1001, 1000),
            (3, 5, 4),
            (0, 8, 0),
            (-5, 8, 0),
            (-9, -5, -6),
            (1 << 61, i64::MAX, 1 << 62),
        ] {
            let found = between(small, large);
            assert_eq!(found, limit, "{small} {large}");
            assert!(small <= found && found < large);
        }
    }
}
