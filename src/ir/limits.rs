//! Limits that several parts of the compiler agree on: the schedule's checks refuse what a pass
//! would not do, and the cost model counts what the passes do.

/// Copies of a statement that unrolling writes out.
pub const MAX_UNROLLED_COPIES: i128 = 65_536;

/// Elements of one buffer that `promote_accumulators` keeps in registers: the registers of AVX-512.
pub const MAX_PROMOTED_ELEMENTS: usize = 32;
/// Bytes of these elements together.
pub const MAX_PROMOTED_BYTES: i128 = 2048;
/// Lanes of one of them.
pub const MAX_PROMOTED_LANES: u32 = 64;
/// The same for types and targets without vectors: lanes are scalars.
pub const MAX_PROMOTED_SCALARS: u32 = 8;

/// Bytes that a nest of the SIMD back end allocates in its frame; larger ones have their buffers in
/// the workspace.
pub const NEST_FRAME_BYTES: i128 = 32 * 1024;
