//! The cost of loads and stores in the core: moves, gathers, and columns of rows.

use super::index::{Lane, Sum};
use super::machine::MASKED_STORE_CYCLES;
use super::plan::AccessCost;
use super::walk::{EnclosingLoop, Walker};
use crate::ir::limits::ROW_CHUNK_BYTES;
use crate::ir::{Buffer, Expr, Scope};
use crate::simd_ops::constant_mask;

/// Cycles of each lane of one or two bytes that is loaded or stored by itself. Fitted on Zen 4.
const SHORT_LANE_CYCLES: f64 = 1.0;
/// Lanes of a gather that take as long as a scalar load at an address that was just loaded or
/// computed from data. Fitted on Emerald Rapids.
const SCALAR_GATHER_LANES: f64 = 2.0;
/// Cycles of the load of a vector whose elements were just scattered: each waits until the stores
/// are in the cache. Fitted on Zen 4.
const SCATTERED_RELOAD_CYCLES: f64 = 13.0;

/// Bytes of a line.
const LINE_BYTES: f64 = 64.0;
/// Lines whose parts a core gathers at the same time before it writes them to memory: 8 or more.
const WRITE_BUFFERS: f64 = 8.0;
/// Lines of a run of nontemporal stores that begins inside of a line, so that its ends cost little.
const UNALIGNED_RUN_LINES: f64 = 16.0;

impl Walker<'_> {
    /// Returns the cost of strided vectors whose neighbours are also loaded: rows are loaded in
    /// pieces, and columns are shuffled from registers.
    /// A condition in the loop beside them may skip some.
    pub(super) fn tile(&self, buffer: &Buffer, sum: &Sum, lanes: u32) -> Option<AccessCost> {
        let bytes = buffer.dtype.bytes() as f64;
        let piece = ROW_CHUNK_BYTES as f64 / bytes;
        let apart = matches!(sum.lane, Lane::By(step) if step.abs() > 1.0);
        if !self.in_simd_kernel || !apart || sum.irregular || piece < 2.0 {
            return None;
        }
        let inner = self.enclosing.iter().rposition(|open| open.frame.is_some()).unwrap_or(0);
        let beside = |open: &&EnclosingLoop| {
            let even = sum.uneven & 1 << open.dim.min(63) == 0;
            let moves = |step| sum.linear.terms.contains(&(open.dim, step));
            even && self.weight >= open.weight && (moves(1.0) || moves(-1.0)) && open.count >= piece
        };
        let beside = self.enclosing[inner..].iter().find(beside)?;
        let count = beside.count;
        let rest = (count % piece) / count;
        let rows = f64::from(lanes);
        let parts = self.parts(rows, bytes);
        let moves = rows / piece;
        let shuffles = (moves - parts).max(0.0) + 2.0 * parts;
        Some(AccessCost {
            parts,
            moves: (1.0 - rest) * moves,
            shuffles: (1.0 - rest) * shuffles,
            permutations: 0.0,
            gather: rest * rows * self.machine.gather,
            iterations: if beside.frame.is_some() { piece } else { 1.0 },
            row: beside.frame.is_none().then_some((beside.dim, count)),
        })
    }

    /// Returns the cost of a load or store, with the elements of a scalar or of `lanes` lanes.
    pub(super) fn access_cost(&self, buffer: &Buffer, sum: &Sum, lanes: u32) -> AccessCost {
        let (count, bytes) = (f64::from(lanes), buffer.dtype.bytes() as f64);
        let parts = self.parts(count, bytes);
        match sum.lane {
            _ if lanes == 1 && sum.irregular && !self.in_launch => {
                let gather = self.machine.gather * SCALAR_GATHER_LANES;
                AccessCost { gather, ..AccessCost::moves(parts, 1.0) }
            }
            _ if lanes == 1 => AccessCost::moves(parts, 1.0),
            Lane::Same => AccessCost::moves(1.0, 1.0),
            Lane::By(1.0) if self.in_launch => {
                AccessCost::moves(parts, (count * bytes / 16.0).ceil())
            }
            Lane::By(1.0) => {
                // A vector that crosses a line takes two accesses.
                let width = (count * bytes / parts).min(64.0);
                let whole = |elements: f64| (elements * bytes) % width == 0.0;
                let aligned =
                    whole(sum.linear.constant) && sum.linear.terms.iter().all(|term| whole(term.1));
                let turns = if aligned { 1.0 } else { 1.0 + (width - bytes) / 64.0 };
                AccessCost::moves(parts, parts * turns)
            }
            _ => {
                // There are no gathers of elements of one or two bytes.
                let lane = if bytes < 4.0 { SHORT_LANE_CYCLES } else { self.machine.gather };
                AccessCost { gather: count * lane, ..AccessCost::moves(parts, 0.0) }
            }
        }
    }

    /// Returns the stores that a store of some lanes counts as. With AVX2, a constant mask takes a
    /// few moves of parts of the register. Lanes that are stored one by one have branches.
    pub(super) fn masked_stores(&self, mask: &Expr) -> f64 {
        match constant_mask(mask) {
            None if !self.lane_by_lane => self.machine.masked_store,
            _ => MASKED_STORE_CYCLES,
        }
    }

    /// Whether nontemporal stores of `width` bytes fill lines before the buffers that gather their
    /// parts are needed for other lines. Runs that begin inside of a line must be long: their ends
    /// write parts of lines.
    pub(super) fn fills_lines(
        &self,
        buffer: &Buffer,
        sum: &Sum,
        width: f64,
        aligned: bool,
    ) -> bool {
        let needed = if aligned { LINE_BYTES } else { UNALIGNED_RUN_LINES * LINE_BYTES };
        let bytes = buffer.dtype.bytes() as f64;
        let mut inner: Vec<(usize, f64)> =
            sum.linear.terms.iter().map(|(dim, factor)| (*dim, (factor * bytes).abs())).collect();
        inner.sort_by_key(|(dim, _)| std::cmp::Reverse(*dim));
        let (mut run, mut lines) = (width, 1.0);
        for (dim, step) in inner {
            let count = self.indices.extents[dim];
            if run >= needed {
                break;
            } else if step <= run {
                run += step * (count - 1.0);
            } else {
                lines *= count;
            }
            if lines > WRITE_BUFFERS {
                return false;
            }
        }
        run >= needed
    }

    /// Returns the cycles that a load waits because its elements were not stored as one vector: a
    /// tile is transposed through memory, or some lanes were masked.
    pub(super) fn reload_cycles(&self, buffer: &Buffer, lanes: u32, cost: &AccessCost) -> f64 {
        match lanes > 1 && self.scattered.contains(buffer) {
            true => SCATTERED_RELOAD_CYCLES * cost.moves,
            false => 0.0,
        }
    }

    /// Notes a store of so many lanes, or of part of them, to a buffer that is read soon: a local
    /// one, or one that a part of a vector fills.
    pub(super) fn note_scatter(&mut self, buffer: &Buffer, cost: &AccessCost, whole: Option<u32>) {
        let in_parts = cost.gather > 0.0 || !whole.is_some_and(u32::is_power_of_two);
        let size = buffer.shape.iter().map(Expr::as_int).try_fold(1, |n, extent| Some(n * extent?));
        let part = f64::from(self.machine.target.vector_bytes) / buffer.dtype.bytes() as f64;
        let is_filled = whole.is_some_and(|lanes| {
            f64::from(lanes) < part && size.is_some_and(|size| size <= i128::from(lanes))
        });
        let is_temporary = buffer.scope == Scope::Local || self.temporaries.contains(buffer);
        if in_parts && (is_temporary || is_filled) && !self.in_launch {
            self.scattered.insert(buffer.clone());
        }
    }
}
