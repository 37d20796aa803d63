//! The cost model: estimates the time of a scheduled kernel on a machine, without running it.
//!
//! The input is the loop IR that `driver::lower_to_estimate` makes, with vectors, but before
//! unrolled loops are written out, which would take time and add no information. `walk` summarizes
//! it as a [`CostPlan`], `cycles` finds the bottleneck of each loop if all data is in L1, and
//! `traffic` counts the lines that move between the levels of memory. The largest of these times of
//! a loop counts in full, the others in part, because they overlap. `docs/COST-MODEL.md` has the
//! formulas.
//!
//! An estimate ranks schedules of one kernel; it is a rough prediction of seconds.

mod access;
mod cycles;
mod features;
mod gpu;
mod index;
mod index_work;
mod lane_by_lane;
pub mod machine;
mod nest;
mod nest_time;
mod offsets;
mod ops;
mod partial_sums;
mod paths;
mod plan;
mod prefetch;
mod rest;
mod stores;
mod term;
#[cfg(test)]
mod tests;
mod tile;
mod traffic;
mod values;
mod walk;

use crate::ir::simplify::simplify_at;
use crate::ir::{Kernel, Var};
use cycles::{Cycles, Unit};
pub use features::FEATURES;
pub use index::ASSUMED_VALUE;
pub use machine::{MachineModel, Measured};
pub use nest_time::NestTime;
use nest_time::NestTimes;
use plan::{Access, CostPlan};
use prefetch::unprefetched_fractions;
use rustc_hash::FxHashMap;
pub use term::{Term, TermKind};
use traffic::Traffic;

/// The estimated time of a kernel.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The parts of `seconds`, largest first.
    pub terms: Vec<Term>,
    /// Seconds of a call.
    pub seconds: f64,
    /// The parts of `seconds` by nest, in the order in which they run.
    pub nests: Vec<NestTime>,
    /// Inputs of the learned model: always [`FEATURES`] numbers, on comparable scales.
    pub features: Vec<f64>,
    /// Accesses of the warps of a GPU kernel; none for a CPU.
    pub warps: Option<WarpCounts>,
}

/// Accesses of all warps of a GPU in a call, counted as the emulator counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WarpCounts {
    /// Wavefronts of shared memory.
    pub wavefronts: f64,
    /// Wavefronts without bank conflicts.
    pub ideal_wavefronts: f64,
    /// Sectors of 32 bytes of global memory.
    pub sectors: f64,
    /// Sectors that the accessed bytes would fill.
    pub ideal_sectors: f64,
}

/// Fraction of the time of a resource that the bottleneck of the same loop does not hide. This and
/// the factors below without another source were fitted to measurements on a Zen 5 server with
/// `tools/rank.py`.
const EXPOSED_FRACTION: f64 = 0.2;

/// Seconds to allocate a buffer in the workspace.
const ALLOCATION_SECONDS: f64 = 3e-8;
/// Factor on a page that the lanes of one gather miss.
const GATHER_PAGE_MISS_FACTOR: f64 = 3.0;
/// Factor on a line from memory that a masked load misses: it is not prefetched.
const MASKED_LOAD_MISS_FACTOR: f64 = 4.0;
/// Factor on a line that a store misses in L1 and that is not prefetched: stores retire in order.
const STORE_MISS_FACTOR: f64 = 4.0;
/// Values of run-time integers that an estimate assumes; others are [`ASSUMED_VALUE`].
pub type RunTimeValues = FxHashMap<Var, i64>;

/// Estimates a kernel that `driver::lower_to_estimate` lowered for the machine's target.
pub fn estimate(kernel: &Kernel, machine: &MachineModel, threads: usize) -> Estimate {
    let estimates = estimate_at(kernel, machine, &[threads], &RunTimeValues::default());
    estimates.into_iter().next().expect("an estimate for each number of threads")
}

/// Estimates a kernel for calls with these run-time integers, for each number of threads.
pub fn estimate_at(
    kernel: &Kernel,
    machine: &MachineModel,
    threads: &[usize],
    values: &RunTimeValues,
) -> Vec<Estimate> {
    // With values, the estimate sees which branches run and how often.
    let bound = (!values.is_empty()).then(|| simplify_at(kernel, values));
    let kernel = bound.as_ref().unwrap_or(kernel);
    let mut known: Option<(CostPlan, Traffic)> = None;
    let estimate = |threads: &usize| {
        // Without a parallel loop, the plan is the same for any number of threads.
        let is_serial = |plan: &CostPlan| plan.frames.iter().all(|frame| !frame.parallel);
        let (plan, earlier) = match known.take().filter(|(plan, _)| is_serial(plan)) {
            Some((plan, traffic)) => (plan, Some(traffic)),
            None => (walk::plan(kernel, machine, *threads, values), None),
        };
        let traffic = traffic::traffic(&plan, machine, *threads, earlier.as_ref());
        let estimate = estimate_plan(&plan, &traffic, machine, *threads);
        known = Some((plan, traffic));
        estimate
    };
    threads.iter().map(estimate).collect()
}

fn estimate_plan(
    plan: &CostPlan,
    traffic: &Traffic,
    machine: &MachineModel,
    threads: usize,
) -> Estimate {
    let mut sum = TermTable::new(plan, machine, traffic);
    let mut nests = NestTimes::new(plan);
    let mut warps = None;
    match &machine.gpu {
        Some(gpu) => warps = Some(sum.launches(gpu, &mut nests)),
        None => {
            let frames = 0..plan.frames.len();
            let cycles: Vec<Cycles> = frames.clone().map(|at| sum.cycles(at)).collect();
            let waits = paths::waits(plan, machine, &cycles);
            let inner = inner_cycles(plan, &cycles, &waits);
            for at in frames {
                let before = sum.seconds;
                sum.frame(at, &cycles[at], (waits[at], inner[at]));
                nests.add(at, sum.seconds - before);
            }
            let alone = plan.launches * machine.launch * if threads > 1 { 1.0 } else { 0.2 };
            sum.add(TermKind::ParallelStart, alone, alone, || counted(plan.launches, "loop"));
        }
    }
    let alone = plan.allocations * ALLOCATION_SECONDS;
    sum.add(TermKind::Allocations, alone, alone, || counted(plan.allocations, "buffer"));
    let seconds = sum.seconds;
    let features = features::features(plan, machine, traffic, &sum.terms, seconds);
    let mut terms: Vec<Term> = sum.terms.into_iter().map(|(term, _)| term).collect();
    terms.retain(|term| term.seconds > 0.0);
    terms.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Estimate { terms, seconds, nests: nests.finish(), features, warps }
}

/// Returns the cycles of the inner loops of an iteration of each frame.
fn inner_cycles(plan: &CostPlan, cycles: &[Cycles], waits: &[f64]) -> Vec<f64> {
    let mut inner = vec![0.0; plan.frames.len()];
    for at in (1..plan.frames.len()).rev() {
        let frame = &plan.frames[at];
        let around = cycles[at].entry_and_exit * frame.begins;
        inner[frame.parent] += around + frame.trips * (cycles[at].total + waits[at] + inner[at]);
    }
    inner
}

/// The terms so far, each with the largest amount of one loop.
struct TermTable<'p> {
    plan: &'p CostPlan,
    machine: &'p MachineModel,
    traffic: &'p Traffic,
    runs: Vec<f64>,
    /// By access: the fraction of its lines that is not prefetched, from L2 and from beyond it.
    unprefetched: Vec<(f64, f64)>,
    terms: Vec<(Term, f64)>,
    /// The sum of the terms.
    seconds: f64,
}

impl<'p> TermTable<'p> {
    fn new(plan: &'p CostPlan, machine: &'p MachineModel, traffic: &'p Traffic) -> TermTable<'p> {
        let unprefetched = unprefetched_fractions(plan, machine);
        let (runs, terms) = (plan.runs(), Vec::new());
        TermTable { plan, machine, traffic, runs, unprefetched, terms, seconds: 0.0 }
    }

    fn add(&mut self, kind: TermKind, seconds: f64, alone: f64, about: impl FnOnce() -> String) {
        if alone <= 0.0 {
            return;
        }
        let at = match self.terms.iter().position(|(term, _)| term.kind == kind) {
            Some(at) => at,
            None => {
                let term = Term { kind, seconds: 0.0, alone: 0.0, about: String::new() };
                self.terms.push((term, 0.0));
                self.terms.len() - 1
            }
        };
        let (term, most) = &mut self.terms[at];
        self.seconds += seconds;
        term.seconds += seconds;
        term.alone += alone;
        if seconds.max(alone * 1e-6) > *most {
            *most = seconds.max(alone * 1e-6);
            term.about = about();
        }
    }

    /// Adds the launches of a kernel for a GPU, which run one after the other.
    fn launches(&mut self, gpu: &machine::GpuModel, nests: &mut NestTimes) -> WarpCounts {
        let mut all = WarpCounts::default();
        for launch in &self.plan.gpu {
            let parts = gpu::launch(self.plan, gpu, launch, &self.runs, &mut all);
            let most = parts.iter().map(|(_, alone, _)| *alone).fold(0.0, f64::max);
            let name = &self.plan.frames[launch.frame].name;
            let before = self.seconds;
            for (part, alone, about) in parts {
                let seconds = if alone >= most { alone } else { EXPOSED_FRACTION * alone };
                self.add(part, seconds, alone, || format!("{name}: {about}"));
            }
            nests.add(launch.frame, self.seconds - before);
        }
        let (count, alone) = (self.plan.launches, self.plan.launches * gpu.launch);
        self.add(TermKind::Launches, alone, alone, || format!("{count}"));
        all
    }

    /// Returns the accesses of a frame outside of its children.
    fn own(&self, at: usize) -> Vec<usize> {
        let accesses = self.plan.frames[at].accesses.clone();
        accesses.filter(|access| self.plan.accesses[*access].frame == at).collect()
    }

    /// Returns the cycles of an iteration of a frame, without its children.
    fn cycles(&self, at: usize) -> Cycles {
        let pointers = self.plan.pointers(at, self.own(at).iter().copied());
        cycles::cycles(&self.plan.frames[at], self.machine, pointers)
    }

    /// Adds the terms of a frame without its children: its cycles, the cycles that it waits, and
    /// the misses of its accesses. `inner` are the cycles of the tiles in an iteration.
    fn frame(&mut self, at: usize, cycles: &Cycles, (waits, inner): (f64, f64)) {
        let frame = &self.plan.frames[at];
        let machine = self.machine;
        let runs = self.runs[at];
        let mut own = self.own(at);
        let behind = self.stores_behind(at, &mut own, machine.seconds(inner * runs));
        let begins = if at == 0 { 0.0 } else { self.runs[frame.parent] * frame.begins };
        let core = machine.seconds(cycles.total * runs);
        let moves = self.moves(&own);
        let most = moves.iter().map(|(_, seconds, _)| *seconds).fold(core, f64::max);
        let name = &frame.name;
        let of = |alone: f64, binds: bool| if binds { alone } else { EXPOSED_FRACTION * alone };
        self.core(name, cycles, core, of(core, core >= most), runs);
        let wait = machine.seconds(waits * runs);
        let about = || {
            format!("{name}: {} in each of {}", counted(waits, "cycle"), counted(runs, "iteration"))
        };
        self.add(TermKind::Latency, wait, wait, about);
        let calls = machine.seconds(frame.work.calls * runs);
        let about =
            || format!("{name}: {}, {}", counted(frame.work.calls, "cycle"), counted(runs, "time"));
        self.add(TermKind::Calls, calls, calls, about);
        for (level, alone, lines) in moves {
            let about = || format!("{name}: {}", counted(lines, "line"));
            self.add(level, of(alone, alone >= most && core < most), alone, about);
        }
        for (level, seconds, alone, lines) in behind {
            self.add(level, seconds, alone, || format!("{name}: {}", counted(lines, "line")));
        }
        let around = machine.seconds(cycles.entry_and_exit * begins);
        self.add(TermKind::LoopEnds, around, around, || {
            format!("{name}: {}", counted(begins, "time"))
        });
    }

    /// Takes the stores out of the accesses of a frame whose tiles take the time `inner`, and
    /// returns their traffic: term, seconds, seconds alone, lines. The stores that the store buffer
    /// holds wait for their lines while the next tile is computed.
    fn stores_behind(
        &self,
        at: usize,
        own: &mut Vec<usize>,
        inner: f64,
    ) -> Vec<(TermKind, f64, f64, f64)> {
        let stores = self.plan.frames[at].work.stores;
        if inner == 0.0 || stores == 0.0 {
            return Vec::new();
        }
        let held = (self.machine.store_buffer / stores).min(1.0);
        let ordinary = |access: &Access| access.write && !access.nontemporal;
        let written: Vec<usize> =
            own.iter().copied().filter(|at| ordinary(&self.plan.accesses[*at])).collect();
        own.retain(|at| !written.contains(at));
        let part = |(level, alone, lines): (TermKind, f64, f64)| {
            let hidden = (1.0 - EXPOSED_FRACTION) * (held * alone).min(inner);
            (level, alone - hidden, alone, lines)
        };
        self.moves(&written).into_iter().map(part).collect()
    }

    /// Adds the cycles of a frame as terms.
    fn core(&mut self, name: &str, cycles: &Cycles, core: f64, seconds: f64, runs: f64) {
        let spills = if cycles.total > 0.0 { cycles.spills / cycles.total } else { 0.0 };
        let about = || {
            format!("{name}: {} of {}", counted(runs, "iteration"), counted(cycles.total, "cycle"))
        };
        self.add(cycles.unit.term(), seconds * (1.0 - spills), core * (1.0 - spills), about);
        let about = || format!("{name}: {} an iteration", counted(cycles.spills, "cycle"));
        self.add(TermKind::Spills, seconds * spills, core * spills, about);
    }

    /// Returns the part of the time of lines from beyond L2 that they take because a loop that only
    /// reads follows several streams: those of the mean line.
    fn streams(&self, own: &[usize]) -> f64 {
        const MANY_STREAMS: f64 = 4.0;
        let (mut lines, mut streams) = (0.0, 0.0);
        for at in own {
            let (missed, access) = (self.traffic.misses[*at][1], &self.plan.accesses[*at]);
            if missed > 0.0 && access.write {
                return 1.0;
            }
            lines += missed;
            streams += missed * prefetch::streams(self.plan, access);
        }
        if lines == 0.0 {
            return 1.0;
        }
        let several = ((streams / lines).max(1.0).log2() / MANY_STREAMS.log2()).min(1.0);
        self.machine.many_streams.powf(several)
    }

    /// Returns the lines that accesses move into each level: the term, seconds and lines.
    fn moves(&self, own: &[usize]) -> Vec<(TermKind, f64, f64)> {
        let machine = self.machine;
        let caches = machine.caches.len();
        let mut moves = Vec::new();
        let streams = self.streams(own);
        for (level, cache) in machine.caches.iter().chain(&machine.pages).enumerate() {
            let kind = match level {
                // The last cache is filled from memory.
                _ if level + 1 == caches => TermKind::MemoryTraffic,
                0 => TermKind::L2Traffic,
                _ if level < caches => TermKind::L3Traffic,
                _ if level == caches => TermKind::Tlb,
                _ => TermKind::PageWalks,
            };
            let (mut cycles, mut lines) = (0.0, 0.0);
            for at in own {
                let access = &self.plan.accesses[*at];
                let mut missed = self.traffic.misses[*at][level];
                if access.nontemporal && level < caches {
                    // Nontemporal stores write whole lines to memory only.
                    missed = if level + 1 == caches { self.traffic.misses[*at][0] } else { 0.0 };
                }
                // A written line is read first and written back later.
                let fills = access.write && !access.nontemporal && level < caches;
                let both = if fills { 2.0 } else { 1.0 };
                let each = match access.lanes {
                    Some((_, apart)) if apart >= cache.line && level >= caches => {
                        cache.unprefetched_cycles * GATHER_PAGE_MISS_FACTOR
                    }
                    _ if access.nontemporal => cache.prefetched_cycles * machine.nontemporal,
                    _ if access.masked && level + 1 == caches => {
                        cache.unprefetched_cycles * MASKED_LOAD_MISS_FACTOR
                    }
                    _ => {
                        let late = if level == 0 && access.write { STORE_MISS_FACTOR } else { 1.0 };
                        let (near, far) = self.unprefetched[*at];
                        let fraction = if level == 0 || level >= caches { near } else { far };
                        (1.0 - fraction) * cache.prefetched_cycles
                            + fraction * cache.unprefetched_cycles * late
                    }
                };
                cycles += missed * both * each;
                lines += missed;
            }
            if (1..caches).contains(&level) {
                cycles *= streams;
            }
            if cycles > 0.0 {
                moves.push((kind, machine.seconds(cycles), lines));
            }
        }
        moves
    }
}

/// `1 cycle`, `2.50 cycles`.
fn counted(number: f64, one: &str) -> String {
    format!("{} {one}{}", short(number), if number == 1.0 { "" } else { "s" })
}

/// Formats a number with three digits.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.3} billion", n / 1e9),
        n if n >= 1e6 => format!("{:.3} million", n / 1e6),
        n if n >= 100.0 || n.fract() == 0.0 => format!("{n:.0}"),
        n => format!("{n:.2}"),
    }
}
