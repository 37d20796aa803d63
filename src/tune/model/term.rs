//! The terms of an estimate.

/// A part of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The resource.
    pub kind: TermKind,
    /// Its part of the estimated time.
    pub seconds: f64,
    /// The time if nothing else had to be done.
    pub alone: f64,
    /// The loop with the largest part of it, and the amount there.
    pub about: String,
}

/// The resource whose time a term estimates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TermKind {
    /// Products and multiply-adds.
    MultiplyAdds,
    /// Other vector arithmetic, comparisons and shuffles.
    Arithmetic,
    /// Vector loads.
    Loads,
    /// Vector stores.
    Stores,
    /// Integer arithmetic of addresses and counters.
    Integers,
    /// Divisions and square roots.
    Divisions,
    /// Gathers and scatters, lane by lane.
    Gathers,
    /// The instructions that a core issues per cycle.
    Issue,
    /// Waiting for the results of earlier operations.
    Latency,
    /// Values that no register holds.
    Spills,
    /// The beginnings and ends of loops.
    LoopEnds,
    /// Lines that move between L1 and L2.
    L2Traffic,
    /// Lines that move between L2 and L3.
    L3Traffic,
    /// Lines that move from and to main memory.
    MemoryTraffic,
    /// Misses of the first TLB.
    Tlb,
    /// Misses of all TLBs.
    PageWalks,
    /// The start of parallel loops.
    ParallelStart,
    /// Allocations in the workspace.
    Allocations,
    /// GPUs: the instructions that a multiprocessor issues per cycle.
    Instructions,
    /// GPUs: wavefronts and sectors of loads and stores.
    LoadUnits,
    /// GPUs: the start of launches.
    Launches,
    /// GPUs: the start of blocks.
    Blocks,
    /// Calls of vectorized nests, and their fences.
    Calls,
    /// GPUs: warp products.
    TensorCores,
}

impl TermKind {
    /// Returns the name in tables, JSON and `docs/COST-MODEL.md`.
    pub fn name(self) -> &'static str {
        match self {
            TermKind::MultiplyAdds => "multiply-adds",
            TermKind::Arithmetic => "arithmetic",
            TermKind::Loads => "loads",
            TermKind::Stores => "stores",
            TermKind::Integers => "integers",
            TermKind::Divisions => "divisions",
            TermKind::Gathers => "gathers",
            TermKind::Issue => "issue",
            TermKind::Latency => "latency",
            TermKind::Spills => "spills",
            TermKind::LoopEnds => "loop ends",
            TermKind::L2Traffic => "L2 traffic",
            TermKind::L3Traffic => "L3 traffic",
            TermKind::MemoryTraffic => "memory traffic",
            TermKind::Tlb => "TLB",
            TermKind::PageWalks => "page walks",
            TermKind::ParallelStart => "parallel start",
            TermKind::Allocations => "allocations",
            TermKind::Instructions => "instructions",
            TermKind::LoadUnits => "load units",
            TermKind::Launches => "launches",
            TermKind::Blocks => "blocks",
            TermKind::Calls => "calls",
            TermKind::TensorCores => "tensor cores",
        }
    }
}
