//! Cycles of an iteration if all data is in L1: those of the busiest unit, or of the longest
//! dependence chain.

use super::TermKind;
use super::machine::MachineModel;
use super::plan::{Frame, Work};

/// The bottleneck of an iteration, and its cycles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cycles {
    /// The largest of `units` and the chain, with the overhead of the loop.
    pub(super) total: f64,
    /// The bottleneck.
    pub(super) unit: Unit,
    /// Cycles of spilled registers that are in `total`.
    pub(super) spills: f64,
    /// Instructions of any kind in an iteration.
    pub(super) instructions: f64,
    /// Cycles to begin and end one run of the loop.
    pub(super) entry_and_exit: f64,
}

/// What can limit an iteration.
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

    /// The term that its time belongs to.
    pub(super) fn term(self) -> TermKind {
        match self {
            Unit::Multiply => TermKind::MultiplyAdds,
            Unit::Vector => TermKind::Arithmetic,
            Unit::Load => TermKind::Loads,
            Unit::Store => TermKind::Stores,
            Unit::Integer => TermKind::Integers,
            Unit::Divide => TermKind::Divisions,
            Unit::Gather => TermKind::Gathers,
            Unit::Issue => TermKind::Issue,
            Unit::Chain => TermKind::Latency,
        }
    }
}

/// Vector registers for intermediate results, which hold no accumulator.
const SCRATCH_REGISTERS: f64 = 2.0;
/// Cycles of each spilled value, which is stored and reloaded. Fitted on Zen 5.
const SPILL_CYCLES: f64 = 1.8;
/// Scalar registers, of integers or of floats, that Cranelift gives to sums and their terms.
const SCALAR_REGISTERS: f64 = 12.0;

/// How strongly units that are nearly as busy as the busiest one delay it: the exponent of a norm.
/// Fitted to tiles of convolutions on Emerald Rapids.
const CONTENTION: f64 = 4.0;

/// Additional cycles of a store that updates an element loaded just before. Fitted on Zen 5.
const UPDATE_CYCLES: f64 = 0.3;

/// Returns the cycles of an iteration of a frame that advances `pointers` pointers.
pub(super) fn cycles(frame: &Frame, machine: &MachineModel, pointers: f64) -> Cycles {
    let mut work = frame.work;
    if frame.is_loop {
        work.integers += 1.0 + pointers;
    }
    work.loads += loaded_again(&work, machine);
    let units = units(&work, frame, machine);
    let (unit, most) = Unit::ALL
        .into_iter()
        .zip(units)
        .fold((Unit::Issue, 0.0), |best, one| if one.1 > best.1 { one } else { best });
    let most = most.max(contended(&work, &units));
    let spills = SPILL_CYCLES * spilled(&work, machine);
    // At most one branch is taken per cycle.
    let floor = if frame.is_loop { 1.0 } else { 0.0 };
    let total = most.max(floor) + spills + work.branches * machine.mispredict;
    // The end of a short loop is predicted.
    let missed = if frame.trips > 32.0 { 1.0 } else { 0.1 };
    let entry_and_exit =
        if frame.is_loop { 3.0 + pointers + missed * machine.mispredict } else { 0.0 };
    Cycles { total, unit, spills, instructions: instructions(&work), entry_and_exit }
}

/// Returns the loads of elements that windows share, but that no register holds.
fn loaded_again(work: &Work, machine: &MachineModel) -> f64 {
    if work.shared == 0.0 {
        return 0.0;
    }
    let other = work.accumulators + work.registers + SCRATCH_REGISTERS;
    let free = (machine.registers - other).max(0.0);
    work.saved_loads * (1.0 - free / work.shared).max(0.0)
}

/// Returns the cycles of an iteration whose multiply-adds, loads and chain of sums take nearly the
/// same time: each delays the others, because none can catch up after a delay.
fn contended(work: &Work, units: &[f64; 9]) -> f64 {
    if work.chain == 0.0 {
        return 0.0;
    }
    let of = |unit: Unit| units[unit as usize].powf(CONTENTION);
    (of(Unit::Multiply) + of(Unit::Load) + of(Unit::Chain)).powf(1.0 / CONTENTION)
}

/// Returns the spilled registers.
fn spilled(work: &Work, machine: &MachineModel) -> f64 {
    // Cranelift computes the terms of all sums before it adds them.
    let scalars = (2.0 * work.scalar_accumulators - SCALAR_REGISTERS).max(0.0);
    let needed = work.accumulators + work.registers;
    if needed == 0.0 {
        return scalars;
    }
    let vectors = (needed + SCRATCH_REGISTERS - machine.registers).max(0.0);
    scalars + vectors * work.changes.max(1.0)
}

fn instructions(work: &Work) -> f64 {
    // Many loads are memory operands of other instructions.
    let memory = 0.5 * work.loads + work.stores + work.gather;
    work.multiplies + work.adds + work.integers + memory + 1.0
}

/// Returns the cycles of each unit, in the order of [`Unit::ALL`].
fn units(work: &Work, frame: &Frame, machine: &MachineModel) -> [f64; 9] {
    let vectors = work.multiplies + work.adds;
    let all = instructions(work);
    let issue = all / machine.issue;
    let depth = work.depth / machine.chains_at_once(all, work.parts);
    // The next run of a short loop begins before the previous one has ended.
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
        work.stores / machine.stores + UPDATE_CYCLES * work.updates,
        work.integers / machine.integers,
        work.divide,
        work.gather,
        issue,
        (work.chain / at_once).max(depth).max(through_memory),
    ]
}
