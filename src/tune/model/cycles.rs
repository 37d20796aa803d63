//! Cycles of an iteration, if everything it reads is near: the unit that has the most to do, or
//! the chain of operations that wait for each other.

use super::machine::MachineModel;
use super::plan::{Frame, Work};

/// What limits an iteration, and its cycles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cycles {
    /// The largest of `units` and the chain, with what the loop itself costs.
    pub(super) total: f64,
    /// What binds.
    pub(super) unit: Unit,
    /// Cycles of spilled registers that are in `total`.
    pub(super) spills: f64,
    /// What begins in an iteration, of any kind.
    pub(super) instructions: f64,
    /// Cycles to begin and end one run of the loop.
    pub(super) around: f64,
}

/// What an iteration may be bound by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(super) enum Unit {
    Multiply,
    Vector,
    Load,
    Store,
    Integer,
    Divide,
    Gather,
    Issue,
    Chain,
}

impl Unit {
    /// All of them.
    pub(super) const ALL: [Unit; 9] = [
        Unit::Multiply,
        Unit::Vector,
        Unit::Load,
        Unit::Store,
        Unit::Integer,
        Unit::Divide,
        Unit::Gather,
        Unit::Issue,
        Unit::Chain,
    ];

    /// The name of the term.
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::Multiply => "multiply-adds",
            Unit::Vector => "arithmetic",
            Unit::Load => "loads",
            Unit::Store => "stores",
            Unit::Integer => "integers",
            Unit::Divide => "divisions",
            Unit::Gather => "lanes apart",
            Unit::Issue => "issue",
            Unit::Chain => "latency",
        }
    }
}

/// Registers that are free for what is computed.
const COMPUTING: f64 = 2.0;
/// Cycles for each value that has none: it is stored, and loaded where it is used.
const SPILL: f64 = 1.8;

/// Cycles more of a store to what was read just before.
const UPDATE: f64 = 0.3;

/// The cycles of an iteration of a frame; the pointers are those that it moves.
pub(super) fn cycles(frame: &Frame, machine: &MachineModel, pointers: f64) -> Cycles {
    let mut work = frame.work;
    if frame.is_loop {
        work.integers += 1.0 + pointers;
    }
    let units = units(&work, frame, machine);
    let (unit, most) = Unit::ALL
        .into_iter()
        .zip(units)
        .fold((Unit::Issue, 0.0), |best, one| if one.1 > best.1 { one } else { best });
    let spills = SPILL * spilled(&work, machine);
    // A branch is taken once an iteration at most.
    let floor = if frame.is_loop { 1.0 } else { 0.0 };
    let total = most.max(floor) + spills + work.branches * machine.mispredict;
    // The end of a short loop is foreseen.
    let missed = if frame.trips > 32.0 { 1.0 } else { 0.1 };
    let around = if frame.is_loop { 3.0 + pointers + missed * machine.mispredict } else { 0.0 };
    Cycles { total, unit, spills, instructions: instructions(&work), around }
}

/// Registers that do not fit.
fn spilled(work: &Work, machine: &MachineModel) -> f64 {
    let needed = work.accumulators + work.registers;
    if needed == 0.0 {
        return 0.0;
    }
    (needed + COMPUTING - machine.registers).max(0.0) * work.changes.max(1.0)
}

fn instructions(work: &Work) -> f64 {
    // A load is a part of the operation that uses it.
    let memory = 0.5 * work.loads + work.stores + work.gather;
    work.multiplies + work.adds + work.integers + memory + 1.0
}

/// The cycles of each unit, in the order of [`Unit::ALL`].
fn units(work: &Work, frame: &Frame, machine: &MachineModel) -> [f64; 9] {
    let vectors = work.multiplies + work.adds;
    let all = instructions(work);
    let issue = all / machine.issue;
    let depth = work.depth / (machine.window / all).clamp(1.0, 8.0);
    // The next run of a short loop begins before the last one has ended.
    let at_once = if frame.children.is_empty() {
        (machine.window / (all * frame.trips.max(1.0))).clamp(1.0, 8.0)
    } else {
        1.0
    };
    let through_memory = (work.memory_chain / at_once).max(work.run_chain / frame.trips.max(1.0));
    [
        work.multiplies / machine.multiplies,
        (work.adds / machine.adds).max(vectors / machine.vectors),
        work.loads / machine.loads,
        work.stores / machine.stores + UPDATE * work.updates,
        work.integers / machine.integers,
        work.divide,
        work.gather,
        issue,
        (work.chain / at_once).max(depth).max(through_memory),
    ]
}
