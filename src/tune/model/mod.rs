//! The cost model: what a scheduled kernel will take on a machine, without running it.
//!
//! Reads the loop IR that `driver::lower_to_estimate` makes: vectors are there, unrolled loops are
//! not yet written out, which costs time and tells nothing. `walk` makes a plan of it, `cycles`
//! finds what limits each loop if all data is near, `traffic` what moves between the levels of
//! memory. Of each loop the largest of these counts, and a part of the others, because they
//! overlap; `docs/COST-MODEL.md` has the formulas.
//!
//! An estimate ranks schedules of one kernel. As a prediction of seconds it is rough.

mod cycles;
mod features;
mod gpu;
mod index;
pub mod machine;
mod nest;
mod ops;
mod paths;
mod plan;
#[cfg(test)]
mod tests;
mod traffic;
mod walk;

use crate::ir::Kernel;
use cycles::{Cycles, Unit};
pub use features::FEATURES;
pub use machine::{MachineModel, Measured};
use plan::{Access, Plan};
use rustc_hash::FxHashMap;
use traffic::Traffic;

/// What a kernel will take.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The parts of `seconds`, largest first.
    pub terms: Vec<Term>,
    /// Seconds of a call.
    pub seconds: f64,
    /// Numbers for a model that learns from measurements: always [`FEATURES`], on comparable
    /// scales.
    pub features: Vec<f64>,
    /// Of a kernel for a GPU: what its launches take beside time.
    pub warps: Option<WarpCounts>,
}

/// What the warps of a GPU do in a call, counted as the emulator counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WarpCounts {
    /// Passes through shared memory.
    pub wavefronts: f64,
    /// How many there would be if no threads wanted different words of a bank.
    pub ideal_wavefronts: f64,
    /// Sectors of 32 bytes of global memory.
    pub sectors: f64,
    /// How many the bytes that are accessed would fill.
    pub ideal_sectors: f64,
}

/// A part of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What takes the time: `multiply-adds`, `L2 traffic`, …
    pub name: &'static str,
    /// Its part of the estimate.
    pub seconds: f64,
    /// What it would take alone, if nothing overlapped.
    pub alone: f64,
    /// Where most of it is, and how much there is.
    pub about: String,
}

/// The part of what does not bind that is not hidden behind what does.
const EXPOSED: f64 = 0.2;

/// How much longer pages take that the lanes of one instruction miss.
const APART: f64 = 3.0;
/// How much longer lines from memory take that are read under a mask, each in its turn.
const UNFETCHED: f64 = 4.0;
/// How much longer a line takes that is stored past the caches.
const PAST: f64 = 1.6;
/// How much longer a store waits for a line that nothing announced: stores end in their order.
const LATE: f64 = 4.0;
/// The part of the lines from beyond the second cache that nothing announces where each load of an
/// unrolled loop moves on so many bytes an iteration, and none of it: what a processor foresees, it
/// foresees load by load, and within a page.
const LEAP: f64 = 0.4;
const LEAPS: std::ops::Range<f64> = 512.0..3072.0;
/// So much of what lies between two iterations is read.
const DENSE: f64 = 0.75;

/// Estimates a kernel that `driver::lower_to_estimate` lowered for the machine's target.
pub fn estimate(kernel: &Kernel, machine: &MachineModel, threads: usize) -> Estimate {
    let plan = walk::plan(kernel, machine, threads);
    let traffic = traffic::traffic(&plan, machine, threads);
    let mut sum = Sum::new(&plan, machine, &traffic);
    let mut warps = None;
    match &machine.gpu {
        Some(gpu) => warps = Some(sum.launches(gpu)),
        None => {
            let frames = 0..plan.frames.len();
            let cycles: Vec<Cycles> = frames.clone().map(|at| sum.cycles(at)).collect();
            let waits = paths::waits(&plan, machine, &cycles);
            frames.for_each(|at| sum.frame(at, &cycles[at], waits[at]));
            let alone = plan.launches * machine.launch * if threads > 1 { 1.0 } else { 0.2 };
            sum.add("parallel start", alone, alone, || counted(plan.launches, "loop"));
        }
    }
    let alone = plan.allocations * 3e-8;
    sum.add("allocations", alone, alone, || counted(plan.allocations, "buffer"));
    let seconds: f64 = sum.terms.iter().map(|(term, _)| term.seconds).sum();
    let features = features::features(&plan, machine, &traffic, &sum.terms, seconds);
    let mut terms: Vec<Term> = sum.terms.into_iter().map(|(term, _)| term).collect();
    terms.retain(|term| term.seconds > 0.0);
    terms.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    Estimate { terms, seconds, features, warps }
}

/// The terms so far, each with the largest part that one loop has of it.
struct Sum<'p> {
    plan: &'p Plan,
    machine: &'p MachineModel,
    traffic: &'p Traffic,
    runs: Vec<f64>,
    /// By access: the part of its lines that nothing announces, and the same of lines that the
    /// second cache does not have.
    apart: Vec<(f64, f64)>,
    terms: Vec<(Term, f64)>,
}

impl<'p> Sum<'p> {
    fn new(plan: &'p Plan, machine: &'p MachineModel, traffic: &'p Traffic) -> Sum<'p> {
        let apart = apart(plan);
        Sum { plan, machine, traffic, runs: plan.runs(), apart, terms: Vec::new() }
    }

    fn add(
        &mut self,
        name: &'static str,
        seconds: f64,
        alone: f64,
        about: impl FnOnce() -> String,
    ) {
        if alone <= 0.0 {
            return;
        }
        let at = match self.terms.iter().position(|(term, _)| term.name == name) {
            Some(at) => at,
            None => {
                let term = Term { name, seconds: 0.0, alone: 0.0, about: String::new() };
                self.terms.push((term, 0.0));
                self.terms.len() - 1
            }
        };
        let (term, most) = &mut self.terms[at];
        term.seconds += seconds;
        term.alone += alone;
        if seconds.max(alone * 1e-6) > *most {
            *most = seconds.max(alone * 1e-6);
            term.about = about();
        }
    }

    /// The launches of a kernel for a GPU, one after the other.
    fn launches(&mut self, gpu: &machine::GpuModel) -> WarpCounts {
        let mut all = WarpCounts::default();
        for launch in &self.plan.gpu {
            let parts = gpu::launch(self.plan, gpu, launch, &self.runs, &mut all);
            let most = parts.iter().map(|(_, alone, _)| *alone).fold(0.0, f64::max);
            let name = &self.plan.frames[launch.frame].name;
            for (part, alone, about) in parts {
                let seconds = if alone >= most { alone } else { EXPOSED * alone };
                self.add(part, seconds, alone, || format!("{name}: {about}"));
            }
        }
        let (count, alone) = (self.plan.launches, self.plan.launches * gpu.launch);
        self.add("launches", alone, alone, || format!("{count}"));
        all
    }

    /// The accesses of a frame itself.
    fn own(&self, at: usize) -> Vec<usize> {
        let accesses = self.plan.frames[at].accesses.clone();
        accesses.filter(|access| self.plan.accesses[*access].frame == at).collect()
    }

    /// The cycles of an iteration of a frame itself.
    fn cycles(&self, at: usize) -> Cycles {
        let pointers = self.plan.pointers(at, self.own(at).iter().copied());
        cycles::cycles(&self.plan.frames[at], self.machine, pointers)
    }

    /// What a frame does itself: its own cycles, those that it `waits`, and the misses of its own
    /// accesses.
    fn frame(&mut self, at: usize, cycles: &Cycles, waits: f64) {
        let frame = &self.plan.frames[at];
        let machine = self.machine;
        let runs = self.runs[at];
        let own = self.own(at);
        let begins = if at == 0 { 0.0 } else { self.runs[frame.parent] };
        let core = machine.seconds(cycles.total * runs);
        let moves = self.moves(&own);
        let most = moves.iter().map(|(_, seconds, _)| *seconds).fold(core, f64::max);
        let name = &frame.name;
        let of = |alone: f64, binds: bool| if binds { alone } else { EXPOSED * alone };
        self.core(name, cycles, core, of(core, core >= most), runs);
        let wait = machine.seconds(waits * runs);
        let about = || {
            format!("{name}: {} in each of {}", counted(waits, "cycle"), counted(runs, "iteration"))
        };
        self.add("latency", wait, wait, about);
        let calls = machine.seconds(frame.work.calls * runs);
        let about =
            || format!("{name}: {}, {}", counted(frame.work.calls, "cycle"), counted(runs, "time"));
        self.add("calls", calls, calls, about);
        for (level, alone, lines) in moves {
            let about = || format!("{name}: {}", counted(lines, "line"));
            self.add(level, of(alone, alone >= most && core < most), alone, about);
        }
        let around = machine.seconds(cycles.around * begins);
        self.add("loop ends", around, around, || format!("{name}: {}", counted(begins, "time")));
    }

    /// The cycles of a frame as terms.
    fn core(&mut self, name: &str, cycles: &Cycles, core: f64, seconds: f64, runs: f64) {
        let spills = if cycles.total > 0.0 { cycles.spills / cycles.total } else { 0.0 };
        let about = || {
            format!("{name}: {} of {}", counted(runs, "iteration"), counted(cycles.total, "cycle"))
        };
        self.add(cycles.unit.name(), seconds * (1.0 - spills), core * (1.0 - spills), about);
        let about = || format!("{name}: {} an iteration", counted(cycles.spills, "cycle"));
        self.add("spills", seconds * spills, core * spills, about);
    }

    /// What a frame's accesses move into each level: its term, seconds and lines.
    fn moves(&self, own: &[usize]) -> Vec<(&'static str, f64, f64)> {
        let machine = self.machine;
        let caches = machine.caches.len();
        let mut moves = Vec::new();
        for (level, cache) in machine.caches.iter().chain(&machine.pages).enumerate() {
            let name = match level {
                // The last cache reads from memory.
                _ if level + 1 == caches => "memory traffic",
                0 => "L2 traffic",
                _ if level < caches => "L3 traffic",
                _ if level == caches => "TLB",
                _ => "page walks",
            };
            let (mut cycles, mut lines) = (0.0, 0.0);
            for at in own {
                let access = &self.plan.accesses[*at];
                let mut missed = self.traffic.misses[*at][level];
                if access.past && level < caches {
                    // Whole lines go to memory, and nowhere else.
                    missed = if level + 1 == caches { self.traffic.misses[*at][0] } else { 0.0 };
                }
                // What is written is read before, and written back.
                let fills = access.write && !access.past && level < caches;
                let both = if fills { 2.0 } else { 1.0 };
                let each = match access.lanes {
                    Some((_, apart)) if apart >= cache.line && level >= caches => {
                        cache.alone * APART
                    }
                    _ if access.past => cache.in_order * PAST,
                    _ if access.masked && level + 1 == caches => cache.alone * UNFETCHED,
                    _ => {
                        let late = if level == 0 && access.write { LATE } else { 1.0 };
                        let (near, far) = self.apart[*at];
                        let apart = if level == 0 || level >= caches { near } else { far };
                        (1.0 - apart) * cache.in_order + apart * cache.alone * late
                    }
                };
                cycles += missed * both * each;
                lines += missed;
            }
            if cycles > 0.0 {
                moves.push((name, machine.seconds(cycles), lines));
            }
        }
        moves
    }
}

/// The part of the lines of each access that does not come one after the other, by themselves or
/// with those of an access beside it: the border of a row goes where the row goes. And the part
/// beyond the second cache.
fn apart(plan: &Plan) -> Vec<(f64, f64)> {
    type Beside = (usize, usize, bool, Vec<(usize, u64)>);
    let key = |access: &Access| -> Beside {
        let strides = access.strides.iter().map(|(dim, stride)| (*dim, stride.to_bits()));
        (access.frame, access.buffer, access.write, strides.collect())
    };
    let mut groups: FxHashMap<Beside, f64> = FxHashMap::default();
    for access in &plan.accesses {
        let part = groups.entry(key(access)).or_insert(1.0);
        *part = part.min(alone(access, &plan.extents));
    }
    let parts = |access: &Access| {
        let near = groups[&key(access)];
        (near, near.max(leaps(plan, access)))
    };
    plan.accesses.iter().map(parts).collect()
}

/// The part of the lines of a load in an unrolled loop that it leaps over, where all iterations
/// together leave nothing out.
fn leaps(plan: &Plan, access: &Access) -> f64 {
    let own = &plan.frames[access.frame].own;
    let moves = |own_dim: bool| {
        let of = move |dim: usize| own.contains(&dim) == own_dim && dim >= own.start;
        access.strides.iter().filter(move |(dim, _)| of(*dim))
    };
    let step = moves(true).map(|(_, stride)| stride.abs()).fold(f64::INFINITY, f64::min);
    let unrolled = moves(false).filter(|(_, stride)| stride.abs() < step);
    let bytes = unrolled.map(|(dim, _)| plan.extents[*dim]).product::<f64>() * access.width;
    if access.write || bytes < DENSE * step || bytes <= access.width {
        return 0.0;
    }
    LEAP * ((step - LEAPS.start) / (LEAPS.end - LEAPS.start)).clamp(0.0, 1.0)
}

/// The part of the lines of an access by itself that are not in order: none of long runs, all of
/// lines that are alone.
fn alone(access: &Access, extents: &[f64]) -> f64 {
    const RUN: f64 = 256.0;
    const STREAMS: f64 = 16.0;
    const LINE: f64 = 64.0;
    if access.irregular {
        return 1.0;
    }
    let mut span = access.width;
    if let Some((count, apart)) = access.lanes {
        if apart > 128.0 {
            return 1.0;
        }
        span += count * apart;
    }
    // Innermost first. A few streams side by side are as good as one; they become one where
    // what lies between them is read by a loop further out.
    let mut apart: Vec<(f64, f64)> = Vec::new();
    let short = |span: f64| ((RUN - span) / (RUN - LINE)).clamp(0.0, 1.0);
    let few = |apart: &[(f64, f64)]| ops::progressions(apart) <= STREAMS;
    for (dim, stride) in access.strides.iter().rev() {
        apart.push((stride.abs(), extents[*dim]));
        // A gap of less than a line leaves no line out.
        let reach = |span: f64| (span + LINE).max(2.0 * LINE);
        while let Some(near) = apart.iter().position(|(stride, _)| *stride < reach(span)) {
            let (stride, count) = apart.remove(near);
            span += stride * (count - 1.0);
            if span >= RUN {
                return if few(&apart) { 0.0 } else { 1.0 };
            }
        }
    }
    short(span)
}

/// `1 cycle`, `2.50 cycles`.
fn counted(number: f64, one: &str) -> String {
    format!("{} {one}{}", short(number), if number == 1.0 { "" } else { "s" })
}

/// A number in three digits.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.3} billion", n / 1e9),
        n if n >= 1e6 => format!("{:.3} million", n / 1e6),
        n if n >= 100.0 || n.fract() == 0.0 => format!("{n:.0}"),
        n => format!("{n:.2}"),
    }
}
