//! Facts about the stages, given which ones are inlined.

use super::view::{Access, StageView, Stride, UNKNOWN, coefficient, views};
use crate::ir::Expr;
use crate::schedule::Schedule;
use crate::target::{Arch, Target};
use rustc_hash::FxHashMap;

/// The tile of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// Data axes of the reduction.
    pub(super) row: usize,
    pub(super) lane: usize,
    pub(super) rows: i64,
    /// Lanes of all vectors together.
    pub(super) width: i64,
    /// A short axis, all of which is in the tile.
    pub(super) taps: Option<usize>,
    /// Estimated cycles.
    pub(super) cycles: f64,
}

/// The stages, with some of them inlined.
pub(super) struct StageFacts {
    pub(super) views: Vec<StageView>,
    /// For each product: the tile with the fewest cycles by a simple estimate.
    pub(super) products: Vec<Option<Tile>>,
    /// For each product: the best tile along each axis that can have the lanes.
    pub(super) tiles: Vec<Vec<Tile>>,
    /// Whether it is a kernel of a network.
    pub(super) part_of_network: bool,
    /// Whether the kernel says `reassociate`.
    pub(super) reassociate: bool,
    /// Whether `--reassociate` lets schedules say it.
    pub(super) user_allows_reassociate: bool,
}

impl StageFacts {
    /// Returns the facts that need no tile.
    pub(super) fn new(
        schedule: &Schedule,
        inlined: &[bool],
        user_allows_reassociate: bool,
    ) -> StageFacts {
        let views = views(schedule, inlined);
        let products = vec![None; views.len()];
        let tiles = vec![Vec::new(); views.len()];
        StageFacts {
            views,
            products,
            tiles,
            part_of_network: schedule.graph.part_of_network,
            reassociate: schedule.graph.reassociate,
            user_allows_reassociate,
        }
    }

    /// Returns the stages that read a stage.
    pub(super) fn readers(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let reads =
            move |reader: &usize| !self.views[*reader].inlined && self.views[*reader].reads(at);
        (at + 1..self.views.len()).filter(reads)
    }

    /// Whether the terms of a reduction may be reordered.
    pub(super) fn order_may_change(&self, at: usize) -> bool {
        let view = &self.views[at];
        let Some(reduction) = &view.reduction else { return false };
        if reduction.combiner_in_any_order().is_some() {
            return true;
        }
        // A tuple may have floats after its first component.
        let exact = !view.dtype.is_float() && !view.tuple;
        let allowed = reduction.reassociate || self.reassociate || exact;
        reduction.combiner.commutative && (allowed || self.user_allows_reassociate)
    }

    /// Returns the argument that a directive needs to reorder terms.
    pub(super) fn permission(&self, at: usize) -> &'static str {
        let view = &self.views[at];
        let said = view.reduction.as_ref().is_some_and(|reduction| {
            reduction.reassociate || reduction.combiner_in_any_order().is_some()
        });
        if said || self.reassociate || !view.dtype.is_float() { "" } else { ", reassociate=true" }
    }

    /// Returns the dimension of a factor that only this axis indexes, if the factor can be packed.
    pub(super) fn packed_dim(&self, at: usize, load: &Access, axis: usize) -> Option<usize> {
        elements(load)?;
        let view = &self.views[at];
        let var = &view.data[axis].var;
        let directly = view.direct.contains(&load.buffer);
        let dim = load.indices.iter().position(|index| index.as_var() == Some(var))?;
        let alone = load.indices.iter().enumerate().all(|(at, index)| {
            at == dim || coefficient(index, var, &mut FxHashMap::default()) == Some(0)
        });
        (directly && alone && !load.earlier).then_some(dim)
    }
}

/// Returns the elements of the tensor that is read, with [`UNKNOWN`] for run-time extents; `None`
/// if they are too many.
pub(super) fn elements(load: &Access) -> Option<i64> {
    let shape = load.buffer.shape.iter();
    shape.map(extent_or_unknown).try_fold(1i64, |n, extent| n.checked_mul(extent?))
}

/// Returns an extent, or [`UNKNOWN`] for a run-time extent; `None` for one that does not fit.
pub(super) fn extent_or_unknown(extent: &Expr) -> Option<i64> {
    extent.as_int().map_or(Some(UNKNOWN), |extent| i64::try_from(extent).ok())
}

/// Returns the number of vector registers of a target.
pub(super) fn registers(target: &Target, lanes: i64) -> i64 {
    match target.simd() {
        Some(isa) => isa.registers().into(),
        // Scalars have as many registers as vectors of AArch64.
        None if lanes < 4 || target.arch == Arch::Aarch64 => 32,
        None => 16,
    }
}

/// Whether the result is contiguous along an axis.
pub(super) fn stores_along(view: &StageView, axis: usize) -> bool {
    view.data[axis + 1..].iter().all(|inner| inner.extent == Some(1))
}

/// Returns the reduction axis along which memory is contiguous, if no data axis can be vectorized.
pub(super) fn row_axis(view: &StageView) -> Option<usize> {
    let reduction = view.reduction.as_ref()?;
    if view.tuple && reduction.combiner_in_any_order().is_none() {
        return None;
    }
    let along = |stride: Stride| stride == Stride::By(1);
    let row = (0..view.reduce.len())
        .rev()
        .find(|axis| view.loads.iter().any(|load| along(load.stride(&view.reduce[*axis].var))))?;
    let near = |stride: Stride| match stride {
        Stride::Zero => true,
        Stride::By(step) => step.abs() <= 4,
        Stride::Far => false,
    };
    let in_lanes = view.data.iter().any(|axis| {
        let mut strides = view.loads.iter().map(|load| load.stride(&axis.var));
        axis.extent != Some(1) && strides.clone().any(along) && strides.all(near)
    });
    (!in_lanes).then_some(row)
}
