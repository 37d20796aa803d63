//! Lookups of bytes in short tables: `T[index(A[ramp(i, 1, 32)])]` with bytes `A` as indices.
//!
//! `vpshufb` looks up 16 bytes in each 16-byte group of a register. Each row of 16 bytes of the
//! table is looked up, and the upper bits of the indices choose between pairs of rows, pairs of
//! pairs, and so on.

use crate::ir::{Buffer, DType, Expr, ExprKind, Scope};
use crate::target::SimdIsa;

/// Bytes of a row.
const ROW_BYTES: i128 = 16;
/// Instructions of a lookup of one lane by itself: the index, the load, the insertion.
const LANE_INSTRUCTIONS: u64 = 3;

/// Bytes that are looked up in a table.
#[derive(Clone, Debug)]
pub struct TableLookup {
    /// The number of rows of 16 bytes: 1, 2, 4, 8 or 16.
    pub rows: u32,
    /// The indices, a vector of `uint8`.
    pub index: Expr,
}

impl TableLookup {
    /// Returns the lookup of a load without a mask; `None` if it is none.
    pub fn of(buffer: &Buffer, index: &Expr) -> Option<TableLookup> {
        let bytes = matches!(buffer.dtype, DType::Uint8 | DType::Int8);
        let in_memory = matches!(buffer.scope, Scope::Global | Scope::Constant);
        if !bytes || !in_memory || buffer.strides.is_some() || index.ty.is_scalar() {
            return None;
        }
        let index = of_bytes(index)?;
        let mut size = 1i128;
        for extent in &buffer.shape {
            size = size.checked_mul(extent.as_int()?)?;
        }
        let fits = |rows: &u32| i128::from(*rows) * ROW_BYTES == size;
        let rows = [1, 2, 4, 8, 16].into_iter().find(fits)?;
        Some(TableLookup { rows, index: index.clone() })
    }

    /// The instructions of a vector: loads, shuffles and choices of rows, and those that prepare
    /// the indices.
    pub fn instructions(&self) -> u64 {
        let rows = u64::from(self.rows);
        3 * rows + 2 * u64::from(self.rows.ilog2())
    }

    /// Whether the lookup of a vector of `lanes` lanes takes fewer instructions than that of each
    /// lane.
    pub fn pays(&self, lanes: u32, isa: SimdIsa) -> bool {
        let lanes = u64::from(lanes);
        lanes <= u64::from(isa.bytes()) && self.instructions() < LANE_INSTRUCTIONS * lanes
    }
}

/// Returns the bytes that indices are converted from.
fn of_bytes(index: &Expr) -> Option<&Expr> {
    let ExprKind::Cast(from) = &index.kind else { return None };
    match from.ty.dtype {
        DType::Uint8 => Some(from),
        // All wider types have the values of a byte.
        DType::Int16 | DType::Uint16 | DType::Int32 | DType::Uint32 => of_bytes(from),
        DType::Int64 | DType::Uint64 => of_bytes(from),
        _ => None,
    }
}
