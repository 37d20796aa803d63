//! Batches of random programs of one kind, each compared in all ways.

use crate::differential::{Case, Verdict, compare_all};
use rand::RngExt;
use std::collections::BTreeMap;
use tec::driver::Options;
use tec::target::Target;

/// Draws of the generators.
pub trait Draw: RngExt {
    /// Returns true in so many of 100 cases.
    fn chance(&mut self, percent: u32) -> bool {
        self.random_range(0..100) < percent
    }

    /// Returns one of some values.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random_range(0..from.len())]
    }
}

impl<R: RngExt> Draw for R {}

/// A kind of programs.
pub struct Batch<'a> {
    pub name: &'a str,
    /// Parts of programs, each of which one legal program in `per_feature` must have.
    pub features: &'a [&'a str],
    pub per_feature: u64,
    /// The percentage of programs that must be legal.
    pub legal: u64,
    /// The codes of the errors that others may have.
    pub refusals: &'a [&'a str],
}

impl Batch<'_> {
    /// Runs `n` programs; fails at the first wrong one, or if too few are legal.
    pub fn run(&self, n: u64, seed: u64, mut program: impl FnMut(u64) -> Case) {
        // Every fourth program is for vectors of 32 bytes, which have no masks.
        let avx2 = Target::parse("x86-avx2").expect("a target");
        let other = if avx2.runs_here() { avx2 } else { Target::native() };
        let options = [Target::native(), other].map(Options::new);
        let (mut legal, mut refused) = (0u64, BTreeMap::<String, u64>::new());
        let mut drawn: BTreeMap<&str, u64> = self.features.iter().map(|one| (*one, 0)).collect();
        for number in 0..n {
            let case = program(number);
            match compare_all(&case, &options[usize::from(number % 4 == 3)]) {
                Verdict::Same { .. } => {
                    legal += 1;
                    for (_, count) in drawn.iter_mut().filter(|(one, _)| case.text.contains(**one))
                    {
                        *count += 1;
                    }
                }
                Verdict::TooLarge => {}
                Verdict::Refused(codes, why) => {
                    let known = self.refusals.contains(&&codes[0][..]);
                    assert!(known, "{}\nrefused: {why}", case.text);
                    *refused.entry(codes[0].clone()).or_default() += 1;
                }
                Verdict::Wrong(what, details) => {
                    let (text, vars) = (&case.text, &case.vars);
                    let avx2 = if number % 4 == 3 { ", AVX2" } else { "" };
                    panic!(
                        "seed {seed}, program {number}, {vars:?}{avx2}: {what}\n{text}\n{details}"
                    )
                }
            }
        }
        println!("{}: {legal} of {n} agree, {drawn:?}, refused: {refused:?}", self.name);
        assert!(legal * 100 > n * self.legal, "{legal} of {n} are legal");
        let missed = drawn.iter().find(|(_, count)| **count * self.per_feature < n);
        assert!(missed.is_none(), "too few legal programs have {missed:?}");
    }
}
