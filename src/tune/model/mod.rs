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
mod ops;
mod plan;
#[cfg(test)]
mod tests;
mod traffic;
mod walk;

use crate::ir::Kernel;
use cycles::{Cycles, Unit};
pub use features::FEATURES;
pub use machine::{MachineModel, Measured};
use plan::Plan;
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
/// How much longer a store waits for a line that nothing announced: stores end in their order.
const LATE: f64 = 4.0;

/// Estimates a kernel that `driver::lower_to_estimate` lowered for the machine's target.
pub fn estimate(kernel: &Kernel, machine: &MachineModel, threads: usize) -> Estimate {
    let plan = walk::plan(kernel, machine, threads);
    let traffic = traffic::traffic(&plan, machine, threads);
    let mut sum = Sum::new(&plan, machine, &traffic);
    let mut warps = None;
    match &machine.gpu {
        Some(gpu) => warps = Some(sum.launches(gpu)),
        None => {
            (0..plan.frames.len()).for_each(|at| sum.frame(at));
            let alone = plan.launches * machine.launch * if threads > 1 { 1.0 } else { 0.2 };
            sum.add("parallel start", alone, alone, || format!("{} loops", plan.launches));
        }
    }
    let alone = plan.allocations * 1e-7;
    sum.add("allocations", alone, alone, || format!("{} buffers", plan.allocations));
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
    terms: Vec<(Term, f64)>,
}

impl<'p> Sum<'p> {
    fn new(plan: &'p Plan, machine: &'p MachineModel, traffic: &'p Traffic) -> Sum<'p> {
        Sum { plan, machine, traffic, runs: plan.runs(), terms: Vec::new() }
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

    /// What a frame does itself: its own cycles and the misses of its own accesses.
    fn frame(&mut self, at: usize) {
        let frame = &self.plan.frames[at];
        let machine = self.machine;
        let runs = self.runs[at];
        let own: Vec<usize> =
            frame.accesses.clone().filter(|a| self.plan.accesses[*a].frame == at).collect();
        let cycles = cycles::cycles(frame, machine, self.pointers(at, &own));
        let begins = if at == 0 { 0.0 } else { self.runs[frame.parent] };
        let core = machine.seconds(cycles.total * runs);
        let moves = self.moves(&own);
        let most = moves.iter().map(|(_, seconds, _)| *seconds).fold(core, f64::max);
        let name = &frame.name;
        let of = |alone: f64, binds: bool| if binds { alone } else { EXPOSED * alone };
        self.core(name, &cycles, core, of(core, core >= most), runs);
        for (level, alone, lines) in moves {
            let about = || format!("{name}: {} lines", short(lines));
            self.add(level, of(alone, alone >= most && core < most), alone, about);
        }
        let around = machine.seconds(cycles.around * begins);
        self.add("loop ends", around, around, || format!("{name}: {} times", short(begins)));
    }

    /// The cycles of a frame as terms.
    fn core(&mut self, name: &str, cycles: &Cycles, core: f64, seconds: f64, runs: f64) {
        let spills = if cycles.total > 0.0 { cycles.spills / cycles.total } else { 0.0 };
        let about =
            || format!("{name}: {} iterations of {} cycles", short(runs), short(cycles.total));
        self.add(cycles.unit.name(), seconds * (1.0 - spills), core * (1.0 - spills), about);
        let about = || format!("{name}: {} cycles an iteration", short(cycles.spills));
        self.add("spills", seconds * spills, core * spills, about);
    }

    /// Pointers that a loop moves on.
    fn pointers(&self, at: usize, own: &[usize]) -> f64 {
        let frame = &self.plan.frames[at];
        let mut known: Vec<(usize, Vec<(usize, f64)>)> = Vec::new();
        for access in own.iter().map(|access| &self.plan.accesses[*access]) {
            let moves = access.strides.iter().any(|(dim, _)| frame.own.contains(dim));
            let outside: Vec<(usize, f64)> =
                access.strides.iter().filter(|(dim, _)| *dim < frame.own.end).copied().collect();
            if moves && !known.iter().any(|(b, s)| *b == access.buffer && *s == outside) {
                known.push((access.buffer, outside));
            }
        }
        known.len() as f64
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
                    _ if self.is_in_order(*at) => cache.in_order,
                    _ => cache.alone,
                };
                let waits = level == 0 && access.write && each > cache.in_order;
                let late = if waits { LATE } else { 1.0 };
                cycles += missed * both * each * late;
                lines += missed;
            }
            if cycles > 0.0 {
                moves.push((name, machine.seconds(cycles), lines));
            }
        }
        moves
    }

    /// Whether the lines of an access come one after the other, by themselves or with those of an
    /// access beside it: the border of a row goes where the row goes.
    fn is_in_order(&self, at: usize) -> bool {
        let one = &self.plan.accesses[at];
        let beside = |other: &usize| {
            let other = &self.plan.accesses[*other];
            other.frame == one.frame
                && other.buffer == one.buffer
                && other.strides == one.strides
                && other.write == one.write
        };
        self.runs(at) || (0..self.plan.accesses.len()).filter(beside).any(|other| self.runs(other))
    }

    /// Whether an access by itself goes through memory in order.
    fn runs(&self, at: usize) -> bool {
        const RUN: f64 = 256.0;
        const STREAMS: f64 = 16.0;
        const LINE: f64 = 64.0;
        let access = &self.plan.accesses[at];
        if access.irregular {
            return false;
        }
        let mut span = access.width;
        if let Some((count, apart)) = access.lanes {
            if apart > 128.0 {
                return false;
            }
            span += count * apart;
        }
        // Innermost first. A few streams side by side are as good as one; they become one where
        // what lies between them is read by a loop further out.
        let mut apart: Vec<(f64, f64)> = Vec::new();
        for (dim, stride) in access.strides.iter().rev() {
            apart.push((stride.abs(), self.plan.extents[*dim]));
            // A gap of less than a line leaves no line out.
            let reach = |span: f64| (span + LINE).max(2.0 * LINE);
            while let Some(near) = apart.iter().position(|(stride, _)| *stride < reach(span)) {
                let (stride, count) = apart.remove(near);
                span += stride * (count - 1.0);
                if span >= RUN {
                    return apart.iter().map(|(_, count)| count).product::<f64>() <= STREAMS;
                }
            }
        }
        span >= RUN
    }
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
