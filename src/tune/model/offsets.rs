//! Vectors whose lanes are a scalar plus constants: every second or third element, elements in
//! reverse, repeated ones, borders that are clamped.

use super::index::Lane;
use super::plan::AccessCost;
use super::walk::Walker;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{mentions, substitute};
use crate::ir::{BinOp, Buffer, Expr, ExprKind};
use crate::simd_ops::{
    MaskedOffsets, OffsetLoad, PartLoad, TableLookup, blend_lanes, lane_offsets, rows_in_turns,
};
use crate::target::SimdIsa;

/// The most combinations of unrolled iterations whose lanes are looked at one by one.
const MAX_ITERATIONS: f64 = 32.0;

impl Walker<'_> {
    /// Returns the cost of vectors whose lanes are at constant distances; `None` for others.
    pub(super) fn near_lanes_cost(
        &self,
        buffer: &Buffer,
        index: &Expr,
        mask: Option<&Expr>,
    ) -> Option<AccessCost> {
        if let Some(table) = mask.is_none().then(|| TableLookup::of(buffer, index)).flatten() {
            return self.lookup_cost(&table, index.ty.lanes);
        }
        let known = self.offsets_cost(buffer, index, mask);
        known.or_else(|| mask.is_none().then(|| self.unrolled_offsets_cost(buffer, index))?)
    }

    /// Returns the cost of a lookup in a table of bytes; `None` if it is done lane by lane.
    fn lookup_cost(&self, table: &TableLookup, lanes: u32) -> Option<AccessCost> {
        let isa = self.machine.target.simd()?;
        let parts = self.parts(f64::from(lanes), 1.0);
        let width = (f64::from(lanes) / parts) as u32;
        if !table.pays(width, isa) {
            return None;
        }
        let loads = f64::from(table.rows);
        let shuffles = parts * (table.instructions() as f64 - loads);
        Some(AccessCost { shuffles, ..AccessCost::moves(parts, parts * loads) })
    }

    /// Returns the mean cost of the vectors of unrolled iterations whose lanes are at constant
    /// distances once the loops are written out, such as `max(ramp(b - 1, 1, 16), x16(0))` for each
    /// `b`; `None` for others.
    fn unrolled_offsets_cost(&self, buffer: &Buffer, index: &Expr) -> Option<AccessCost> {
        if matches!(self.indices.sum(index).lane, Lane::Same | Lane::By(_)) {
            return None;
        }
        let bent = without_scalars(index);
        let unrolled = self.enclosing.iter().rev().take_while(|open| open.frame.is_none());
        let loops: Vec<_> = unrolled.filter(|open| mentions(bent, &open.var)).collect();
        let iterations: f64 = loops.iter().map(|open| open.count).product();
        if loops.is_empty() || iterations > MAX_ITERATIONS {
            return None;
        }
        let mut mean = AccessCost::moves(0.0, 0.0);
        for iteration in 0..iterations as i64 {
            let mut rest = iteration;
            let mut values = Vec::new();
            for open in &loops {
                let count = open.count as i64;
                values.push(open.min as i64 + rest % count);
                rest /= count;
            }
            let written = substitute(index, &mut |var| {
                let at = loops.iter().position(|open| open.var == *var)?;
                Some(Expr::index(values[at]))
            });
            let written = simplify_expr(&written, &Facts::new());
            let cost = match self.offsets_cost(buffer, &written, None) {
                Some(cost) => cost,
                None => {
                    let sum = self.indices.sum(&written);
                    if !matches!(sum.lane, Lane::Same | Lane::By(1.0)) {
                        return None;
                    }
                    self.access_cost(buffer, &sum, index.ty.lanes)
                }
            };
            mean.parts += cost.parts / iterations;
            mean.moves += cost.moves / iterations;
            mean.shuffles += cost.shuffles / iterations;
            mean.permutations += cost.permutations / iterations;
        }
        Some(mean)
    }

    /// Returns the cost of vectors whose lanes are a scalar plus constants, which are put together
    /// from contiguous loads; `None` for others. Constant masks may turn lanes off.
    fn offsets_cost(
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

/// Returns an index without the summands that are the same in all lanes.
fn without_scalars(index: &Expr) -> &Expr {
    match &index.kind {
        ExprKind::Binary(BinOp::Add, a, b) if matches!(a.kind, ExprKind::Broadcast(_)) => {
            without_scalars(b)
        }
        ExprKind::Binary(BinOp::Add | BinOp::Sub, a, b)
            if matches!(b.kind, ExprKind::Broadcast(_)) =>
        {
            without_scalars(a)
        }
        _ => index,
    }
}

/// Returns the instructions that put the elements of rows in turns: each row is widened; all but
/// one are shifted and joined.
fn joined_rows(rows: f64) -> f64 {
    3.0 * rows - 2.0
}
