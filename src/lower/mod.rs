//! From stage graph to loop IR, then the passes over it, in the order of `driver::PASSES`.
//!
//! The documentation of each pass has an example, the forms that it needs and ensures, why it has
//! its position, and what it does not change ("Declines").

pub mod build_loops;
mod in_place;
mod match_intrinsic;
mod match_product;
pub mod merge_versions;

pub mod expand_sorts;

pub mod inject_virtual_threads;

pub mod inject_double_buffer;

pub mod cut_borders;
pub mod cut_diagonals;
pub mod flatten_storage;
mod loop_range;
pub mod partition_loops;
pub mod trim_no_ops;
pub mod unroll_loops;
pub mod unswitch_loops;
pub mod vectorize_loops;

pub mod share_storage;

pub mod hoist_threads;

pub mod insert_barriers;

pub mod drop_hints;

pub mod prefetch_tiles;
pub mod promote_accumulators;

pub mod split_clamped_loads;
pub mod split_index_sets;

pub mod outline_simd;

pub mod transpose_tiles;

pub mod legalize_vectors;

pub mod hoist_invariants;

pub mod skip_empty_nests;

pub mod expand_math;
