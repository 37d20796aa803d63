//! The inputs of the learned model.

use super::machine::MachineModel;
use super::plan::{CostPlan, Work};
use super::traffic::Traffic;
use super::{Term, TermKind, Unit};

/// The number of features.
pub const FEATURES: usize = 52;

/// The terms, in the order of the features.
const TERMS: [TermKind; 22] = [
    TermKind::MultiplyAdds,
    TermKind::Arithmetic,
    TermKind::Loads,
    TermKind::Stores,
    TermKind::Integers,
    TermKind::Divisions,
    TermKind::Gathers,
    TermKind::Issue,
    TermKind::Latency,
    TermKind::Spills,
    TermKind::LoopEnds,
    TermKind::L2Traffic,
    TermKind::L3Traffic,
    TermKind::MemoryTraffic,
    TermKind::Tlb,
    TermKind::PageWalks,
    TermKind::ParallelStart,
    TermKind::Allocations,
    TermKind::Instructions,
    TermKind::LoadUnits,
    TermKind::Launches,
    TermKind::Calls,
];

/// Returns the features: binary logarithms of counts, so that twice as much is one more.
pub(super) fn features(
    plan: &CostPlan,
    machine: &MachineModel,
    traffic: &Traffic,
    terms: &[(Term, f64)],
    seconds: f64,
) -> Vec<f64> {
    debug_assert!(Unit::ALL.iter().zip(TERMS).all(|(unit, kind)| unit.term() == kind));
    let mut all = vec![log(seconds * 1e9)];
    for kind in TERMS {
        let known = terms.iter().find(|(term, _)| term.kind == kind);
        all.push(log(known.map_or(0.0, |(term, _)| term.alone * 1e9)));
    }
    let runs = plan.runs();
    let mut sum = Work::default();
    let mut hottest = 0;
    let weigh = |at: usize| {
        let work = &plan.frames[at].work;
        runs[at] * (work.multiplies + work.adds + work.loads + work.stores + work.integers)
    };
    for (at, (frame, runs)) in plan.frames.iter().zip(&runs).enumerate() {
        let work = &frame.work;
        sum.multiplies += runs * work.multiplies;
        sum.adds += runs * work.adds;
        sum.loads += runs * work.loads;
        sum.stores += runs * work.stores;
        sum.integers += runs * work.integers;
        sum.divide += runs * work.divide;
        sum.gather += runs * work.gather;
        sum.branches += runs * work.branches;
        sum.flops += runs * work.flops;
        if weigh(at) > weigh(hottest) {
            hottest = at;
        }
    }
    let counts = [
        sum.multiplies,
        sum.adds,
        sum.loads,
        sum.stores,
        sum.integers,
        sum.divide,
        sum.gather,
        sum.branches,
        sum.flops,
    ];
    all.extend(counts.map(log));
    let frame = &plan.frames[hottest];
    let work = &frame.work;
    let inner = [
        frame.trips,
        work.multiplies,
        work.adds,
        work.loads,
        work.stores,
        work.chain,
        work.accumulators,
        work.registers,
        runs[hottest],
        runs[frame.parent],
    ];
    all.extend(inner.map(log));
    for level in 0..5 {
        let misses: f64 = traffic.misses.iter().filter_map(|missed| missed.get(level)).sum();
        all.push(log(misses));
    }
    let parallel = plan.frames.iter().filter(|frame| frame.parallel).map(|frame| frame.trips);
    all.push(log(traffic.touched));
    all.push(log(plan.launches));
    all.push(log(parallel.fold(0.0, f64::max)));
    all.push(log(plan.frames.len() as f64));
    all.push(log(sum.flops / (seconds * machine.ghz * 1e9).max(1e-9)));
    all.resize(FEATURES, 0.0);
    all
}

fn log(value: f64) -> f64 {
    (1.0 + value.max(0.0)).log2()
}
