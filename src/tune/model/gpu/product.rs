//! Products of a warp on the tensor cores.

use super::WarpAccess;
use super::warp::{WarpCost, first_warp, turns};
use crate::ir::warp::{Element, GROUP_WARPS, WarpProduct, thread_part};
use crate::ir::{Scope, Stmt, Var};
use crate::tune::model::index::Sum;
use crate::tune::model::machine::GpuModel;
use crate::tune::model::ops::{bit, key};
use crate::tune::model::plan::Access;
use crate::tune::model::walk::Walker;

/// Rows and columns of a warp product (`mma.sync.m16n8`).
const PRODUCT_SIZE: (f64, f64) = (16.0, 8.0);
/// How many times as fast a product by a warpgroup is as those by its warps: Hopper's tensor cores
/// reach their peak with `wgmma` alone.
const WARPGROUP_SPEED: f64 = 2.0;
/// Bytes of a wavefront: a register of each thread.
const WAVEFRONT_BYTES: f64 = 128.0;
/// Bytes of a row of `ldmatrix` (PTX ISA).
const LDMATRIX_ROW_BYTES: i64 = 16;

impl Walker<'_> {
    /// Counts a thread's part of a warp product: work of the tensor cores, and factors loaded by
    /// `ldmatrix`. Returns whether the nest is one.
    pub(in crate::tune::model) fn warp_product(&mut self, name: &str, nest: &Stmt) -> bool {
        let (Some(product), Some(gpu)) = (WarpProduct::of(name), self.machine.gpu) else {
            return false;
        };
        if !self.in_launch {
            return false;
        }
        let Ok(part) = thread_part(product, nest) else { return false };
        let copies = self.copies_here() * self.weight;
        let terms = product.terms as f64;
        let held: f64 = self.in_registers.values().sum();
        let work = self.work();
        work.products += copies;
        let groups = part.group.map_or(1.0, |(_, groups)| groups as f64);
        let columns = PRODUCT_SIZE.1 * groups;
        work.tensor += copies * PRODUCT_SIZE.0 * columns * terms / rate(product, &gpu);
        work.accumulators = work.accumulators.max(held);
        let bytes = product.a.bytes() as f64 * terms;
        let mut loops: Vec<(&Var, f64)> = part.vars.into_iter().zip([2.0, 2.0, 8.0]).collect();
        loops.extend(part.group.map(|(var, groups)| (var, groups as f64)));
        let shared = if product.is_by_warpgroup() { GROUP_WARPS as f64 } else { 1.0 };
        self.factor(product, part.a, &loops, (PRODUCT_SIZE.0 * bytes, false));
        self.factor(product, part.b, &loops, (columns * bytes / shared, true));
        true
    }

    /// Counts the loads of a factor of `bytes` bytes, of which the tensor cores read those of a
    /// warpgroup once for its warps, without registers and bank conflicts.
    fn factor(
        &mut self,
        product: WarpProduct,
        factor: Element<'_>,
        loops: &[(&Var, f64)],
        (bytes, columns): (f64, bool),
    ) {
        if self.in_registers.contains_key(factor.buffer) {
            return;
        }
        let index = &factor.indices[0];
        let place = self.enclosing.len();
        for (var, extent) in loops {
            self.open_unrolled(var, Sum::default(), *extent);
        }
        let sum = self.indices.sum(index);
        let deps = self.index_deps(index) & bit(place).wrapping_sub(1);
        let wavefronts = (bytes / WAVEFRONT_BYTES).max(1.0);
        let by_warpgroup = product.is_by_warpgroup();
        let ways = if by_warpgroup { 1.0 } else { self.ways(factor, loops[2].0, columns) };
        for (var, _) in loops.iter().rev() {
            self.close_unrolled(var);
        }
        let stored = (0..self.enclosing.len()).filter(|at| self.is_stored_in(*at, factor.buffer));
        let deps = stored.fold(deps, |deps, at| deps | bit(at));
        let (frame, copies) = self.placement(deps);
        let at = self.memory(factor.buffer);
        if !self.loaded.insert((at, key(&sum, 1))) {
            return;
        }
        let (held, _) = self.live(deps, frame, copies, 1, 1.0);
        if !by_warpgroup {
            self.work().registers += held.max(1.0) * bytes / WAVEFRONT_BYTES;
        }
        let global = factor.buffer.scope == Scope::Global;
        let sectors = bytes / 32.0;
        let cost = WarpCost {
            lines: 0.0,
            requests: if global { wavefronts } else { 1.0 },
            sectors: sectors * if global { 2.0 } else { 1.0 },
            ideal_sectors: sectors,
            wavefronts: wavefronts * ways,
            ideal_wavefronts: wavefronts,
        };
        let size = factor.buffer.dtype.bytes() as f64;
        self.plan.accesses.push(Access {
            buffer: at,
            frame: self.frame,
            strides: sum.linear.terms.iter().map(|(dim, by)| (*dim, by * size)).collect(),
            first: sum.linear.constant * size,
            width: size,
            lanes: None,
            write: false,
            masked: false,
            nontemporal: false,
            tile: false,
            weight: self.weight,
            branch: self.branch,
            irregular: sum.irregular,
            iterations: 1.0,
            warp: Some(WarpAccess {
                placement: (frame, copies),
                cost: Some(cost),
                latency_hidden: false,
                copied: false,
            }),
        });
    }

    /// Returns the bank conflicts of the eight rows that `ldmatrix` reads at once: 1 if there are
    /// none.
    fn ways(&self, factor: Element<'_>, term: &Var, columns: bool) -> f64 {
        let bytes = factor.buffer.dtype.bytes() as i64;
        let index = &factor.indices[0];
        let at = |k: i64| {
            let index = crate::ir::warp::index_at(index, &[(term, k)]);
            first_warp(&self.access_context(), &index)
        };
        let (Some(first), Some(next)) = (at(0), at(1)) else { return 1.0 };
        let along_terms = next[0] - first[0];
        // Rows lie along the reduction terms unless these are adjacent. The factor that is read by
        // rows has one row for each group of four threads, the other two for each thread.
        let apart = match (columns, along_terms) {
            (false, _) => first[4] - first[0],
            (true, 1) => (first[1] - first[0]) / 2,
            (true, apart) => apart,
        };
        let rows: Vec<i64> =
            (0..8).map(|row| (row * apart * bytes).div_euclid(LDMATRIX_ROW_BYTES)).collect();
        f64::from(turns(&rows, 8))
    }
}

/// Returns the multiply-adds of a product that a multiprocessor computes per cycle.
fn rate(product: WarpProduct, gpu: &GpuModel) -> f64 {
    let speed = if product.is_by_warpgroup() { WARPGROUP_SPEED } else { 1.0 };
    speed * gpu.tensor * 2.0 / product.a.bytes() as f64
}
