//! Limits that passes, the checks of schedules and the cost model share.

/// The largest number of copies of a statement that unrolling makes.
pub const MAX_UNROLLED_COPIES: i128 = 65_536;

/// The largest number of elements of a buffer that `promote_accumulators` keeps in registers: the
/// number of registers of AVX-512.
pub const MAX_PROMOTED_ELEMENTS: usize = 32;
/// The largest size of these elements together: 32 registers of 64 bytes.
pub const MAX_PROMOTED_BYTES: i128 = 2048;
/// The largest number of lanes of an element: 64 bytes of int8.
pub const MAX_PROMOTED_LANES: u32 = 64;
/// The same for types and targets without vectors, where each lane is a scalar.
pub const MAX_PROMOTED_SCALARS: u32 = 8;

/// The largest frame of a nest of the SIMD back end in bytes; larger buffers are in the workspace.
pub const NEST_FRAME_BYTES: i128 = 32 * 1024;
