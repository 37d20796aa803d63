//! The summary of a kernel: its loops as *frames*, with the operations and accesses of one
//! iteration of each.
//!
//! Unrolled loops are no frames: their operations count once for each copy, except those that do
//! not change in the loop, which the back ends hoist. A condition around loops is a frame whose
//! trips are the fraction of cases in which it holds.

use super::gpu::{Launch, WarpAccess};
use super::index::Dim;
use crate::ir::Scope;
use rustc_hash::FxHashSet;
use std::ops::Range;

/// The summary of a kernel.
#[derive(Default)]
pub(super) struct CostPlan {
    /// Parents before children, in the order of the program; the first is the kernel itself.
    pub(super) frames: Vec<Frame>,
    /// In program order; those of a frame and its children are contiguous.
    pub(super) accesses: Vec<Access>,
    pub(super) buffers: Vec<MemoryBuffer>,
    /// Iterations of each dimension.
    pub(super) extents: Vec<f64>,
    /// The launches of a GPU kernel.
    pub(super) gpu: Vec<Launch>,
    /// Parallel loops that begin in a call.
    pub(super) launches: f64,
    /// Allocations from the workspace in a call.
    pub(super) allocations: f64,
}

/// A loop, a condition around loops, a launch, or the kernel.
pub(super) struct Frame {
    /// The stage and the loop's variable.
    pub(super) name: String,
    pub(super) children: Vec<usize>,
    pub(super) parent: usize,
    /// Iterations per run; of a parallel loop, those of the thread with the most.
    pub(super) trips: f64,
    /// Whether it has a counter and a branch.
    pub(super) is_loop: bool,
    /// The fraction of its runs at which the loop begins: less than 1 for the last of several
    /// dimensions of a loop.
    pub(super) begins: f64,
    /// Whether its iterations run on several threads.
    pub(super) parallel: bool,
    /// Dimensions of the loop itself.
    pub(super) own: Range<Dim>,
    /// Dimensions of all inner loops.
    pub(super) inner: Range<Dim>,
    /// Accesses in it and its children.
    pub(super) accesses: Range<usize>,
    pub(super) work: Work,
    /// The steps of an iteration, in order.
    pub(super) events: Vec<Event>,
}

/// A step of an iteration, on which later ones may depend.
pub(super) enum Event {
    /// A store, with its copies in unrolled loops.
    Store(Step),
    /// All iterations of a frame.
    Frame(usize),
}

/// The latency of a store from the values that it reads.
pub(super) struct Step {
    /// Numbers of buffers, including those in registers.
    pub(super) reads: Vec<usize>,
    pub(super) writes: usize,
    /// Cycles of the longest chain of operations.
    pub(super) depth: f64,
    /// The registers that are computed one after the other, each by such a chain.
    pub(super) parts: f64,
    /// Cycles until the stored value can be read.
    pub(super) after: f64,
}

/// The operations of one iteration of a frame, without its children.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Work {
    /// Multiply-adds and products.
    pub(super) multiplies: f64,
    /// Other vector or floating-point operations.
    pub(super) adds: f64,
    pub(super) loads: f64,
    pub(super) stores: f64,
    pub(super) integers: f64,
    /// Cycles of divisions and square roots.
    pub(super) divide: f64,
    /// Cycles of gathers and scatters.
    pub(super) gather: f64,
    /// Unpredictable branches.
    pub(super) branches: f64,
    /// Cycles that each iteration waits for the previous one.
    pub(super) chain: f64,
    /// The same through memory.
    pub(super) memory_chain: f64,
    /// Cycles of the longest chain in an iteration.
    pub(super) depth: f64,
    /// The largest number of registers that a statement computes, each by a chain of its own.
    pub(super) parts: f64,
    /// Cycles that each run of the loop waits for the previous run, through memory.
    pub(super) run_chain: f64,
    /// Cycles of calls and fences, which overlap with nothing.
    pub(super) calls: f64,
    /// Stores that update an element loaded just before.
    pub(super) updates: f64,
    /// Vector registers of accumulators.
    pub(super) accumulators: f64,
    /// Scalar registers of accumulators.
    pub(super) scalar_accumulators: f64,
    /// Vector registers of values that unrolled loops read again.
    pub(super) registers: f64,
    /// How often these are reloaded in an iteration.
    pub(super) changes: f64,
    /// Vector registers of elements that overlapping windows share. The SIMD back end loads again
    /// what does not fit.
    pub(super) shared: f64,
    /// The loads that these registers save.
    pub(super) saved_loads: f64,
    /// Arithmetic on data: a multiply-add counts two for each lane.
    pub(super) flops: f64,
    /// On a GPU: products of a warp on the tensor cores, and their cycles.
    pub(super) products: f64,
    pub(super) tensor: f64,
    /// On a GPU: barriers.
    pub(super) barriers: f64,
    /// On a GPU: groups of asynchronous copies in flight.
    pub(super) in_flight: f64,
}

/// An access to memory.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) buffer: usize,
    /// The innermost enclosing frame.
    pub(super) frame: usize,
    /// Stride of each dimension in bytes.
    pub(super) strides: Vec<(Dim, f64)>,
    /// First byte.
    pub(super) first: f64,
    /// Bytes from the first to the end of the last lane.
    pub(super) width: f64,
    /// Lanes that are not adjacent: their number, and the bytes between them.
    pub(super) lanes: Option<(f64, f64)>,
    pub(super) write: bool,
    /// Whether some lanes are masked off: such loads are not prefetched.
    pub(super) masked: bool,
    /// A nontemporal store.
    pub(super) nontemporal: bool,
    /// A load or store of a tile register: its lines move at the same time, while products are
    /// computed, so that none takes as long as one that is not prefetched.
    pub(super) tile: bool,
    /// Fraction of the cases in which it runs.
    pub(super) weight: f64,
    /// The branch of conditions of the frame in which it stands; 0 outside of all.
    pub(super) branch: usize,
    /// The address depends on data, or is not affine.
    pub(super) irregular: bool,
    /// The iterations of the frame whose elements are loaded together.
    pub(super) iterations: f64,
    /// In a launch: the access of a warp.
    pub(super) warp: Option<WarpAccess>,
}

/// A buffer in memory.
pub(super) struct MemoryBuffer {
    pub(super) scope: Scope,
    pub(super) bytes: f64,
}

impl CostPlan {
    /// Returns the number of pointers that a frame's loop advances for some accesses.
    pub(super) fn pointers(&self, at: usize, accesses: impl Iterator<Item = usize>) -> f64 {
        let own = &self.frames[at].own;
        let mut known: FxHashSet<(usize, Vec<(usize, u64)>)> = FxHashSet::default();
        for access in accesses.map(|at| &self.accesses[at]) {
            if access.strides.iter().any(|(dim, _)| own.contains(dim)) {
                let outside = access.strides.iter().filter(|(dim, _)| *dim < own.end);
                let outside = outside.map(|(dim, stride)| (*dim, stride.to_bits()));
                known.insert((access.buffer, outside.collect()));
            }
        }
        known.len() as f64
    }

    /// Returns the iterations of each frame in a call, on one thread.
    pub(super) fn runs(&self) -> Vec<f64> {
        let mut runs: Vec<f64> = Vec::with_capacity(self.frames.len());
        for (at, frame) in self.frames.iter().enumerate() {
            let around = if at == 0 { 1.0 } else { runs[frame.parent] };
            runs.push(around * frame.trips);
        }
        runs
    }
}

/// The cost of an access without misses.
pub(super) struct AccessCost {
    /// Registers.
    pub(super) parts: f64,
    /// Loads or stores.
    pub(super) moves: f64,
    /// Shuffles that extract columns from rows.
    pub(super) shuffles: f64,
    /// Those of AVX2 that move doublewords across the halves of a register, `vpermd`.
    pub(super) permutations: f64,
    /// Cycles of a gather or scatter.
    pub(super) gather: f64,
    /// The iterations of the frame whose elements are loaded together.
    pub(super) iterations: f64,
    /// The unrolled loop whose elements are loaded together, and its iterations.
    pub(super) row: Option<(Dim, f64)>,
}

impl AccessCost {
    pub(super) fn moves(parts: f64, moves: f64) -> AccessCost {
        let (shuffles, permutations, gather) = (0.0, 0.0, 0.0);
        AccessCost { parts, moves, shuffles, permutations, gather, iterations: 1.0, row: None }
    }
}
