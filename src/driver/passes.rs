//! The passes over the loop IR, in order.

use crate::diag::Result;
use crate::ir::Kernel;
use crate::ir::simplify::{join_divisions, simplify_kernel};
use crate::lower::*;
use crate::target::{Target, Targets};

/// A pass over the loop IR.
pub struct Pass {
    /// The pass as a value.
    pub id: PassId,
    /// `verb_noun`, as in `--dump`, `--time` and the golden tests.
    pub name: &'static str,
    /// The lowest `--opt` that runs it.
    pub opt: u8,
    /// The targets that it runs for.
    pub targets: Targets,
    /// Rewrites a kernel for a target.
    pub run: fn(Kernel, &Target) -> Result<Kernel>,
}

impl Pass {
    /// Whether the pass runs for a target at an `--opt`.
    pub fn runs(&self, target: &Target, opt: u8) -> bool {
        self.targets.contain(target) && opt >= self.opt
    }
}

/// Declares [`PassId`] and [`PASSES`].
macro_rules! passes {
    ($($id:ident, $name:literal, $opt:literal, $targets:ident, $run:expr;)*) => {
        /// `build_loops`, which makes the loop IR, or one of the passes over it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)]
        pub enum PassId { BuildLoops, $($id),* }

        impl PassId {
            /// All values, in the order in which they run.
            pub const ALL: &[PassId] = &[PassId::BuildLoops, $(PassId::$id),*];

            /// Returns the name of `--dump`, `--time` and the golden tests.
            pub fn name(self) -> &'static str {
                match self {
                    PassId::BuildLoops => "build_loops",
                    $(PassId::$id => $name),*
                }
            }
        }

        /// The passes after `build_loops`, in the order in which they run.
        ///
        /// `share_storage` compares indices, so it runs after they are flattened and simplified.
        /// `hoist_invariants` runs before `expand_math` because there a math function is still one
        /// node.
        pub const PASSES: &[Pass] = &[$(Pass {
            id: PassId::$id,
            name: $name,
            opt: $opt,
            targets: Targets::$targets,
            run: $run,
        }),*];
    };
}

// Each row: the pass, its name, the lowest `--opt`, the targets, the function.
passes! {
    ExpandSorts, "expand_sorts", 0, Cpus, expand_sorts::expand_sorts;
    InjectVirtualThreads, "inject_virtual_threads", 0, Gpus,
        inject_virtual_threads::inject_virtual_threads;
    InjectDoubleBuffer, "inject_double_buffer", 0, All, inject_double_buffer::inject_double_buffer;
    FlattenStorage, "flatten_storage", 0, All, flatten_storage::flatten_storage;
    Simplify, "simplify", 1, All, |kernel, _| Ok(simplify_kernel(kernel));
    TrimNoOps, "trim_no_ops", 1, Cpus, trim_no_ops::trim_no_ops;
    PartitionLoops, "partition_loops", 1, All, partition_loops::partition_loops;
    CutDiagonals, "cut_diagonals", 1, Cpus, cut_diagonals::cut_diagonals;
    CutBorders, "cut_borders", 1, Cpus, cut_borders::cut_borders;
    VectorizeLoops, "vectorize_loops", 0, All, vectorize_loops::vectorize_loops;
    UnrollLoops, "unroll_loops", 1, All, unroll_loops::unroll_loops;
    SimplifyAgain, "simplify_again", 1, All, |kernel, _| Ok(simplify_kernel(kernel));
    UnswitchLoops, "unswitch_loops", 2, Cpus, unswitch_loops::unswitch_loops;
    ShareStorage, "share_storage", 2, All, share_storage::share_storage;
    HoistThreads, "hoist_threads", 0, Gpus, hoist_threads::hoist_threads;
    JoinDivisions, "join_divisions", 2, All, |kernel, _| Ok(join_divisions(kernel));
    PromoteAccumulators, "promote_accumulators", 2, All,
        promote_accumulators::promote_accumulators;
    InsertBarriers, "insert_barriers", 0, Gpus, insert_barriers::insert_barriers;
    SplitIndexSets, "split_index_sets", 2, Cpus, split_index_sets::split_index_sets;
    SplitClampedLoads, "split_clamped_loads", 1, Cpus, split_clamped_loads::split_clamped_loads;
    OutlineSimd, "outline_simd", 1, Cpus, outline_simd::outline_simd;
    DropHints, "drop_hints", 0, All, drop_hints::drop_hints;
    TransposeTiles, "transpose_tiles", 2, Cpus, transpose_tiles::transpose_tiles;
    LegalizeVectors, "legalize_vectors", 0, Cpus, legalize_vectors::legalize_vectors;
    PrefetchTiles, "prefetch_tiles", 2, Cpus, prefetch_tiles::prefetch_tiles;
    HoistInvariants, "hoist_invariants", 3, All, hoist_invariants::hoist_invariants;
    SkipEmptyNests, "skip_empty_nests", 0, All, skip_empty_nests::skip_empty_nests;
    ExpandMath, "expand_math", 0, All, expand_math::expand_math;
}

impl PassId {
    /// The last pass whose result resembles the source: `tec lower --simple` shows it.
    pub const LAST_READABLE: PassId = PassId::ShareStorage;

    /// Returns the pass of that name.
    pub fn parse(name: &str) -> Option<PassId> {
        PassId::ALL.iter().copied().find(|id| id.name() == name)
    }

    /// Returns the entry of [`PASSES`]; none for `build_loops`.
    pub(super) fn pass(self) -> Option<&'static Pass> {
        PASSES.iter().find(|pass| pass.id == self)
    }
}
