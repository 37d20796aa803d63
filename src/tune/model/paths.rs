//! The critical path of an iteration: the chain of stages and loops, each of which reads what the
//! previous one stored.
//!
//! A processor overlaps as many iterations as its window holds. If these are few, the critical path
//! determines the time, not the units.

use super::cycles::Cycles;
use super::machine::MachineModel;
use super::plan::{CostPlan, Event};
use rustc_hash::{FxHashMap, FxHashSet};

/// The critical path of a frame.
#[derive(Clone, Default)]
struct FramePath {
    /// Instructions of an iteration.
    instructions: f64,
    /// Cycles of an iteration that overlaps with others.
    among: f64,
    /// Cycles of all iterations if nothing else overlaps.
    alone: f64,
    /// Cycles from the first to the last operation of an iteration.
    chain: f64,
    /// The registers that its last stores compute one after the other.
    parts: f64,
    reads: FxHashSet<usize>,
    writes: FxHashSet<usize>,
}

/// Returns the cycles that an iteration of each frame waits, beyond those of its parts.
pub(super) fn waits(plan: &CostPlan, machine: &MachineModel, cycles: &[Cycles]) -> Vec<f64> {
    let mut waits = vec![0.0; plan.frames.len()];
    let mut paths: Vec<FramePath> = vec![FramePath::default(); plan.frames.len()];
    for at in (0..plan.frames.len()).rev() {
        let frame = &plan.frames[at];
        let mut path = chain(plan, &paths, at);
        let inner = |of: &dyn Fn(usize) -> f64| -> f64 {
            frame.children.iter().map(|child| plan.frames[*child].trips * of(*child)).sum()
        };
        path.instructions = cycles[at].instructions + inner(&|child| paths[child].instructions);
        let parts = cycles[at].total + inner(&|child| paths[child].among);
        // Loops inside have no parts of their own in the chain.
        let registers = if frame.children.is_empty() { path.parts } else { 1.0 };
        let at_once = machine.chains_at_once(path.instructions, registers);
        waits[at] = (path.chain / at_once - parts).max(0.0);
        path.among = parts + waits[at];
        let carried = frame.work.chain.max(frame.work.memory_chain);
        path.alone = match frame.trips {
            trips if trips < 1.0 => trips * path.chain,
            trips => path.chain + (trips - 1.0) * path.among.max(carried),
        };
        paths[at] = path;
    }
    waits
}

/// Returns the path of an iteration, from the cycles at which each buffer is ready.
fn chain(plan: &CostPlan, paths: &[FramePath], at: usize) -> FramePath {
    let mut path = FramePath::default();
    let mut ready: FxHashMap<usize, f64> = FxHashMap::default();
    let begin = |ready: &FxHashMap<usize, f64>, reads: &mut dyn Iterator<Item = &usize>| {
        reads.filter_map(|buffer| ready.get(buffer)).copied().fold(0.0, f64::max)
    };
    for event in &plan.frames[at].events {
        match event {
            Event::Store(step) => {
                let end = begin(&ready, &mut step.reads.iter()) + step.depth;
                path.parts = path.parts.max(step.parts);
                let known = ready.entry(step.writes).or_default();
                *known = known.max(end + step.after);
                path.chain = path.chain.max(end);
                path.reads.extend(&step.reads);
                path.writes.insert(step.writes);
            }
            Event::Frame(child) => {
                let child = &paths[*child];
                let end = begin(&ready, &mut child.reads.iter()) + child.alone;
                for buffer in &child.writes {
                    let known = ready.entry(*buffer).or_default();
                    *known = known.max(end);
                }
                path.chain = path.chain.max(end);
                path.reads.extend(&child.reads);
                path.writes.extend(&child.writes);
            }
        }
    }
    path
}
