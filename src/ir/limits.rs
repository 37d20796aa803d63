//! Limits that several parts of the compiler agree on: the schedule's checks refuse what a pass
//! would not do, and the cost model counts what the passes do.

/// Copies of a statement that unrolling writes out.
pub const MAX_UNROLLED_COPIES: i128 = 65_536;

/// Elements of one buffer that `promote_accumulators` keeps in registers: the registers of AVX-512.
pub const MAX_PROMOTED_ELEMENTS: usize = 32;
/// Bytes of these elements together.
pub const MAX_PROMOTED_BYTES: i128 = 2048;
/// Lanes of one of them.
const MAX_PROMOTED_LANES: u32 = 64;
/// The same for types and targets without vectors: lanes are scalars.
const MAX_PROMOTED_SCALARS: u32 = 8;

/// The most lanes of an element that `promote_accumulators` keeps in registers; `vectors` says
/// whether the target has vectors.
pub const fn max_promoted_lanes(vectors: bool, element_bytes: u64) -> u32 {
    if vectors && element_bytes >= 4 { MAX_PROMOTED_LANES } else { MAX_PROMOTED_SCALARS }
}

/// Bytes that one instruction of the SIMD back end reads of a row, where it takes the columns of a
/// tile from registers: a register of SSE.
pub const TILE_PIECE_BYTES: u64 = 16;

/// Bytes that a nest of the SIMD back end may allocate in its frame. A nest that allocates more is
/// compiled by Cranelift, whose functions have a smaller limit (`codegen::clif::storage`) and put
/// the rest into the workspace.
pub const NEST_FRAME_BYTES: i128 = 32 * 1024;
