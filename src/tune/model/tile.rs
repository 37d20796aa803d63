//! Tile products (AMX).

use super::index::Sum;
use super::ops::{bit, key};
use super::plan::Access;
use super::walk::Walker;
use crate::ir::tile::{TilePart, TileProduct, TileStep};
use crate::ir::{Expr, Var};

/// Cycles of a product for each row of `a`, and of one with few rows. Measured on Emerald Rapids:
/// 16, 15, 10, 9 and 9 cycles for 16, 14, 8, 7 and 4 rows, whatever the number of terms.
const ROW_CYCLES: f64 = 1.0;
const LEAST_CYCLES: f64 = 9.0;
/// Cycles to store a row of sums. Measured on Emerald Rapids.
const STORE_CYCLES: f64 = 1.4;
/// Cycles for each row of sums in which products wait: the first one for the sums, the stores for
/// the last one. An estimate: a chain of a load, a product and a store, half of it hidden.
const VISIT_CYCLES: f64 = 0.6;
/// Cycles to configure the tile registers, once in a nest. Measured on Emerald Rapids.
pub(super) const CONFIG_CYCLES: f64 = 200.0;

impl Walker<'_> {
    /// Counts a step of a tile product: the product itself, the rows of the factors, and the rows
    /// of the sums, which stay in registers in loops that do not change their place.
    pub(super) fn tile_step(&mut self, product: TileProduct, step: &TileStep) {
        self.has_tiles = true;
        let TileStep::Product { c, a, b, shape: (rows, columns, groups) } = step else { return };
        let copies = self.copies_here() * self.weight;
        let (multiplies, stores) = (self.machine.multiplies, self.machine.stores);
        let terms = product.terms();
        let cycles = (ROW_CYCLES * *rows as f64).max(LEAST_CYCLES);
        let work = self.work();
        work.multiplies += copies * cycles * multiplies;
        work.flops += copies * 2.0 * (rows * columns * groups * terms) as f64;
        for (part, rows, elements) in [(a, rows, groups * terms), (b, groups, columns * terms)] {
            if let Some((frame, loads)) = self.rows_of(part, *rows, elements, false) {
                self.plan.frames[frame].work.loads += loads;
            }
        }
        let Some((frame, moved)) = self.rows_of(c, *rows, *columns, true) else { return };
        // Loops further out over other terms visit the sums again.
        let deps = self.index_deps(&c.first);
        let enclosing = self.enclosing.iter().enumerate();
        let mut outside = enclosing.take_while(|(_, open)| open.frame != Some(frame));
        let again = outside.any(|(place, open)| {
            deps & bit(place) == 0 && open.count > 1.0 && open.frame.is_some()
        });
        let work = &mut self.plan.frames[frame].work;
        work.stores += STORE_CYCLES * stores * moved;
        work.calls += VISIT_CYCLES * moved;
        work.loads += if again { moved } else { 0.0 };
    }

    /// Records the accesses to the rows of a matrix, unless they were met before. Returns the frame
    /// that has them and how many there are.
    fn rows_of(
        &mut self,
        part: &TilePart,
        rows: i64,
        elements: i64,
        write: bool,
    ) -> Option<(usize, f64)> {
        let row = Var::index("row");
        self.open_unrolled(&row, Sum::default(), rows as f64);
        let index = Expr::add(part.first.clone(), Expr::mul(Expr::var(&row), part.stride.clone()));
        let (sum, deps) = (self.indices.sum(&index), self.index_deps(&index));
        let (frame, copies) = self.placement(deps);
        self.close_unrolled(&row);
        let buffer = self.memory(&part.buffer);
        if !self.loaded.insert((buffer, key(&sum, elements as u32))) {
            return None;
        }
        let size = part.buffer.dtype.bytes() as f64;
        let access = Access {
            buffer,
            // Factors are loaded where they are used, sums are stored behind the loops over terms.
            frame: if write { frame } else { self.frame },
            strides: sum.linear.terms.iter().map(|(dim, by)| (*dim, by * size)).collect(),
            first: sum.linear.constant * size,
            width: elements as f64 * size,
            lanes: None,
            write,
            masked: false,
            nontemporal: false,
            tile: true,
            weight: self.weight,
            branch: self.branch,
            irregular: sum.irregular,
            iterations: 1.0,
            warp: None,
        };
        match access.frame == self.frame {
            true => self.plan.accesses.push(access),
            false => self.outer_accesses.push(access),
        }
        Some((frame, copies * self.weight))
    }
}
