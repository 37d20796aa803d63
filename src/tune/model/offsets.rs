//! Vectors whose lanes are a scalar plus constants: every second or third element, elements in
//! reverse, repeated ones.

use super::plan::AccessCost;
use super::walk::Walker;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::{Buffer, Expr, ExprKind};
use crate::simd_ops::{
    MaskedOffsets, OffsetLoad, PartLoad, blend_lanes, lane_offsets, rows_in_turns,
};
use crate::target::SimdIsa;

impl Walker<'_> {
    /// Returns the cost of vectors whose lanes are a scalar plus constants, which are put together
    /// from contiguous loads; `None` for others. Constant masks may turn lanes off.
    pub(super) fn offsets_cost(
        &self,
        buffer: &Buffer,
        index: &Expr,
        mask: Option<&Expr>,
    ) -> Option<AccessCost> {
        let contiguous = match &index.kind {
            ExprKind::Ramp(_, step) => step.as_int() == Some(1),
            _ => index.ty.is_scalar() || matches!(index.kind, ExprKind::Broadcast(_)),
        };
        if contiguous {
            return None;
        }
        let isa = self.machine.target.simd()?;
        let bytes = buffer.dtype.bytes();
        if let Some(rows) = rows_in_turns(index, mask, bytes, isa) {
            let rows = rows.len() as f64;
            return Some(AccessCost {
                shuffles: joined_rows(rows),
                ..AccessCost::moves(1.0, rows)
            });
        }
        // Strides may still be products of constants.
        let simple = |expr| simplify_expr(expr, &Facts::new());
        let lanes = index.ty.lanes as usize;
        let mut known = match mask {
            Some(mask) => MaskedOffsets::of(&simple(index), &simple(mask))?.part(0..lanes)?,
            None => lane_offsets(&simple(index))?,
        };
        let step_of = |pair: &[i64]| pair[1] - pair[0];
        let first = step_of(&known.offsets[..2]);
        if matches!(first, 0 | 1) && known.offsets.windows(2).all(|pair| step_of(pair) == first) {
            // One element, or contiguous ones.
            return None;
        }
        let parts = self.parts(f64::from(index.ty.lanes), bytes as f64);
        known.offsets.truncate((f64::from(index.ty.lanes) / parts).floor() as usize);
        let avx2 = isa == SimdIsa::Avx2;
        let (moves, shuffles, permutations) = match known.load(bytes, isa)? {
            OffsetLoad::OneElement => (1.0, 0.0, 0.0),
            OffsetLoad::Shuffled { shuffle, .. } => {
                (1.0, 1.0, if shuffle.doublewords.is_some() { 1.0 } else { 0.0 })
            }
            OffsetLoad::Halves { .. } => (2.0, 2.0, 0.0),
            OffsetLoad::Runs(runs) => (runs.len() as f64, runs.len() as f64 - 1.0, 0.0),
            OffsetLoad::Vectors { vectors, doublewords } => {
                let vectors = vectors.len() as f64;
                match blend_lanes(&doublewords) {
                    _ if !avx2 => (vectors, vectors - 1.0, 0.0),
                    Some(_) => (vectors, vectors, 1.0),
                    None => (vectors, 2.0 * vectors - 1.0, vectors),
                }
            }
            OffsetLoad::EverySecond { .. } => (2.0, 4.0, 1.0),
            OffsetLoad::Interleaved { rows } => {
                (rows.len() as f64, joined_rows(rows.len() as f64), 0.0)
            }
            OffsetLoad::Joined(parts) => {
                let each = parts.iter().map(PartLoad::instructions);
                let (moves, shuffles) = each.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
                // Parts are joined by `vpor`.
                (moves as f64, (shuffles + parts.len() - 1) as f64, 0.0)
            }
        };
        let permutations = if avx2 { permutations } else { 0.0 };
        let shuffles = shuffles + if mask.is_some() { 1.0 } else { 0.0 };
        let (shuffles, permutations) = (parts * shuffles, parts * permutations);
        Some(AccessCost { shuffles, permutations, ..AccessCost::moves(parts, parts * moves) })
    }
}

/// Returns the instructions that put the elements of rows in turns: each row is widened; all but
/// one are shifted and joined.
fn joined_rows(rows: f64) -> f64 {
    3.0 * rows - 2.0
}
