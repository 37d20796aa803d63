//! Limits that passes, the checks of schedules and the cost model share.

use super::DType;

/// The largest number of copies of a statement that unrolling makes.
pub const MAX_UNROLLED_COPIES: i128 = 65_536;

/// The largest number of elements of a buffer that `promote_accumulators` keeps in registers: the
/// number of registers of AVX-512.
pub const MAX_PROMOTED_ELEMENTS: usize = 32;
/// The largest total size of these elements in bytes: 32 registers of 64 bytes.
pub const MAX_PROMOTED_BYTES: i128 = 2048;
/// The largest number of lanes of one of them, on targets with vectors of its type.
const MAX_PROMOTED_LANES: u32 = 64;
/// The same without such vectors: each lane is a scalar.
const MAX_PROMOTED_SCALARS: u32 = 8;

/// Registers that a loop over terms needs for factors, beside those of its sums.
pub const FACTOR_REGISTERS: u64 = 3;

/// Returns the largest number of lanes of an element that `promote_accumulators` keeps in
/// registers, on a target with vectors of `vector_bytes` bytes. Only the SIMD back end (`simd`) has
/// vectors of short integers in registers, one register each.
pub fn max_promoted_lanes(vector_bytes: u32, simd: bool, dtype: DType) -> u32 {
    match dtype.bytes() {
        4.. if vector_bytes > 0 => MAX_PROMOTED_LANES,
        bytes if simd && dtype.is_int() => (u64::from(vector_bytes) / bytes) as u32,
        _ => MAX_PROMOTED_SCALARS,
    }
}

/// The bytes of a row that a transposed tile loads with one instruction: one lane group of AVX2 and
/// AVX-512, within which shuffles move elements.
pub const ROW_CHUNK_BYTES: u64 = 16;

/// The largest number of bytes that a nest of the SIMD back end may allocate in its frame. A nest
/// that allocates more is compiled by Cranelift, whose functions have a smaller limit
/// (`codegen::clif::storage`) and put the rest into the workspace.
pub const NEST_FRAME_BYTES: i128 = 32 * 1024;
