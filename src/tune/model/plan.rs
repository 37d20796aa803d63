//! What the model keeps of a kernel: its loops as *frames*, with what one iteration of each does
//! and what it reads and writes.
//!
//! Unrolled loops are no frames: what they do is counted as often as they run, but for what does
//! not change in them, which the back ends compute once. A condition around loops is a frame whose
//! trips are the part of the cases in which it holds.

use super::gpu::{Launch, Warped};
use super::index::Dim;
use crate::ir::Scope;
use rustc_hash::FxHashSet;
use std::ops::Range;

/// A kernel.
#[derive(Default)]
pub(super) struct Plan {
    /// Parents before children, in the order of the program; the first is the kernel itself.
    pub(super) frames: Vec<Frame>,
    /// In the order of the program, those of a frame's inside next to each other.
    pub(super) accesses: Vec<Access>,
    pub(super) buffers: Vec<Memory>,
    /// How often each dimension runs.
    pub(super) extents: Vec<f64>,
    /// Of a kernel for a GPU.
    pub(super) gpu: Vec<Launch>,
    /// Parallel loops that begin in a call.
    pub(super) launches: f64,
    /// Allocations from the workspace in a call.
    pub(super) allocations: f64,
}

/// A loop or the like.
pub(super) struct Frame {
    /// The stage and the loop's variable.
    pub(super) name: String,
    pub(super) children: Vec<usize>,
    pub(super) parent: usize,
    /// Iterations each time that it is run. Those of one thread of a parallel loop, more where
    /// threads have different parts.
    pub(super) trips: f64,
    /// Whether something counts and branches.
    pub(super) is_loop: bool,
    /// Whether its iterations are those of threads.
    pub(super) parallel: bool,
    /// Dimensions of the loop itself.
    pub(super) own: Range<Dim>,
    /// Those of everything inside.
    pub(super) inner: Range<Dim>,
    /// Accesses inside, those of inner frames too.
    pub(super) accesses: Range<usize>,
    pub(super) work: Work,
    /// What an iteration does, in order.
    pub(super) events: Vec<Event>,
}

/// A step of an iteration, for which others may have to wait.
pub(super) enum Event {
    /// A store, or as many as unrolled loops make of it.
    Store(Step),
    /// All iterations of a frame.
    Frame(usize),
}

/// How long a store takes from what it reads.
pub(super) struct Step {
    /// Buffers by number, those in registers too.
    pub(super) reads: Vec<usize>,
    pub(super) writes: usize,
    /// Cycles of the longest chain of operations.
    pub(super) depth: f64,
    /// Cycles until what is stored can be read.
    pub(super) after: f64,
}

/// What is done directly in an iteration of a frame.
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
    /// Cycles for lanes that are accessed apart.
    pub(super) gather: f64,
    /// Branches that may go either way.
    pub(super) branches: f64,
    /// Cycles that each iteration waits for the one before.
    pub(super) chain: f64,
    /// The same through memory.
    pub(super) memory_chain: f64,
    /// Cycles of a chain inside of an iteration.
    pub(super) depth: f64,
    /// Cycles that each run of the loop waits for the run before, through memory.
    pub(super) run_chain: f64,
    /// Cycles of calls and fences, during which nothing else is done.
    pub(super) calls: f64,
    /// Stores to elements that were read just before, to be updated.
    pub(super) updates: f64,
    /// Vector registers that hold running values.
    pub(super) accumulators: f64,
    /// Vector registers that hold what unrolled loops read again.
    pub(super) registers: f64,
    /// How often these change in an iteration.
    pub(super) changes: f64,
    /// Arithmetic on data: a multiply-add counts two for each lane.
    pub(super) flops: f64,
    /// On a GPU: products of a warp on the tensor cores, and the cycles of these.
    pub(super) products: f64,
    pub(super) tensor: f64,
    /// On a GPU: how often the threads of a block wait for each other.
    pub(super) meets: f64,
    /// On a GPU: groups of copies that may be under way while it goes on.
    pub(super) in_flight: f64,
}

/// An access to memory that is not in a register.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) buffer: usize,
    /// The innermost frame around it.
    pub(super) frame: usize,
    /// Bytes for each dimension.
    pub(super) strides: Vec<(Dim, f64)>,
    /// First byte.
    pub(super) first: f64,
    /// Bytes from the first to the end of the last lane.
    pub(super) width: f64,
    /// Lanes that lie apart: how many, and bytes between them.
    pub(super) lanes: Option<(f64, f64)>,
    pub(super) write: bool,
    /// Some lanes are left out: nothing is fetched in advance for such loads.
    pub(super) masked: bool,
    /// A store past the caches.
    pub(super) past: bool,
    /// Part of the cases in which it happens.
    pub(super) weight: f64,
    /// Anywhere in the buffer.
    pub(super) irregular: bool,
    /// In a launch of a GPU: what a warp does.
    pub(super) warped: Option<Warped>,
}

/// A buffer in memory.
pub(super) struct Memory {
    pub(super) scope: Scope,
    pub(super) bytes: f64,
}

impl Plan {
    /// Pointers that a frame's loop moves on for some of the accesses.
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

    /// How often each frame's iteration is run in a call, by one thread.
    pub(super) fn runs(&self) -> Vec<f64> {
        let mut runs: Vec<f64> = Vec::with_capacity(self.frames.len());
        for (at, frame) in self.frames.iter().enumerate() {
            let around = if at == 0 { 1.0 } else { runs[frame.parent] };
            runs.push(around * frame.trips);
        }
        runs
    }
}
