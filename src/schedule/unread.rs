//! Skips the iterations of attached stages whose elements nobody reads.
//!
//! Before: `C[i, j] = if j < i then 0 else S[i, j]`, `S.compute_at(C, i)`; the region is the row
//! `0 .. n`, because the extents of regions are over run-time integers only.
//! After: the loop over `j` of `S` begins at `i`. If it is split, the loop over `jo` begins at
//! `i // 64`: parts of tiles are computed whole.
//!
//! A bound is used if every read of the stage keeps it, in each iteration of the enclosing loops.
//! Declines: outputs, and stages that later steps of a recurrence read; stages whose elements
//! depend on each other, share loops or are kept for later iterations (`store_at`); tiles and short
//! rows, in which a run-time extent costs more than it saves; GPUs, whose threads run one loop
//! together.

use super::bounds::{loop_extent, loop_min, runs_one_by_one};
use super::directives::store_at::StoreAt;
use super::fused::group_of;
use super::phases::Inference;
use super::recurrence::outlives_its_step;
use super::region::{Interval, IntervalEvaluator};
use super::state::{Attach, AxisId, StageId};
use super::threads::has_launches;
use super::whole_tiles::is_ordered;
use crate::ir::arith::Facts;
use crate::ir::simplify::{extremum, simplify_expr};
use crate::ir::visit::{mentions, substitute};
use crate::ir::{BinOp, Expr, Var};
use rustc_hash::FxHashMap;

/// The iterations of a loop that compute elements that are read, and perhaps others.
#[derive(Clone, Debug)]
pub struct ReadRange {
    /// The loop.
    pub leaf: AxisId,
    /// The first iteration.
    pub min: Expr,
    /// How many there are.
    pub extent: Expr,
}

/// The smallest constant extent of a region that is computed in part.
const MIN_EXTENT: i128 = 64;

/// Leaves out the iterations in front of the first element that is read, and behind the last one.
pub(super) fn skip_unread(inference: &mut Inference) {
    if has_launches(&inference.bounded.schedule) {
        return;
    }
    for id in inference.bounded.schedule.order.clone() {
        let ranges = inference.read_ranges(id);
        inference.bounded.bounds[id.0].as_mut().expect("all are inferred").read_ranges = ranges;
    }
}

/// The largest magnitude of a bound: arithmetic on larger ones might overflow.
const MAX_BOUND: i128 = 1 << 61;

impl Inference {
    /// Returns the iterations of loops that compute all elements of a stage that are read.
    fn read_ranges(&self, id: StageId) -> Vec<ReadRange> {
        let schedule = &self.bounded.schedule;
        let (stage, bounds) = (schedule.stage(id), self.bounded.of(id));
        let kept = stage.te.output
            || outlives_its_step(schedule, id)
            || stage.annotation::<StoreAt>().is_some()
            || !bounds.storage.is_region()
            || !bounds.warm_up.is_empty();
        let attached = matches!(stage.attach, Attach::At { .. });
        // A region that moves with the enclosing loops is small already.
        let facts = self.facts_in(&bounds.enclosing_loops);
        let is_whole = |dim: usize| {
            let (extent, all) = (&bounds.shape[dim], &stage.te.axes[dim].extent);
            extent.as_int().is_none_or(|extent| extent >= MIN_EXTENT)
                && bounds.mins[dim].as_int() == Some(0)
                && facts.key(extent) == facts.key(all)
        };
        if !attached
            || kept
            || is_ordered(stage)
            || group_of(schedule, id).len() > 1
            || !(0..stage.rank()).any(is_whole)
        {
            return Vec::new();
        }
        let ends = self.read_ends(id, &bounds.enclosing_loops, &facts);
        let dims = ends.into_iter().enumerate().filter(|(dim, _)| is_whole(*dim));
        dims.filter_map(|(dim, ends)| self.read_range(id, dim, ends, &facts)).collect()
    }

    /// Returns the iterations of the outermost loop over a dimension that compute the elements from
    /// `first` to `last`. `None` if there are no others, if they do not run one by one, or if the
    /// elements do not move evenly with them.
    fn read_range(
        &self,
        id: StageId,
        dim: usize,
        [first, last]: [Option<Expr>; 2],
        facts: &Facts,
    ) -> Option<ReadRange> {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let index = &bounds.values[dim];
        let moves = |leaf: &AxisId| mentions(index, &stage.axis(*leaf).var);
        let depth = stage.leaves.iter().position(moves)?;
        let leaf = stage.leaves[depth];
        if first.is_none() && last.is_none() || !runs_one_by_one(stage, leaf) {
            return None;
        }
        let mut moving: FxHashMap<Var, Interval> = FxHashMap::default();
        for inner in &stage.leaves[depth + 1..] {
            let width = Expr::sub(bounds.extents[inner.0].clone(), Expr::index(1));
            let width = simplify_expr(&width, facts);
            let interval = Interval { min: loop_min(stage, *inner), width };
            moving.insert(stage.axis(*inner).var.clone(), interval);
        }
        let values = |at: Expr| {
            let var = &stage.axis(leaf).var;
            let index = substitute(index, &mut |of| (of == var).then(|| at.clone()));
            IntervalEvaluator { moving: &moving, facts }.interval(&simplify_expr(&index, facts))
        };
        // Iteration `x` computes from `start.min + step*x` to `start.last() + step*x`.
        let var = &stage.axis(leaf).var;
        let (start, next) = (values(Expr::index(0))?, values(Expr::index(1))?);
        let any = values(Expr::var(var))?;
        let step = simplify_expr(&Expr::sub(next.min, start.min.clone()), facts).as_int()?;
        let step = Expr::index(i64::try_from(step).ok().filter(|step| *step > 0)?);
        let line = Expr::add(start.min.clone(), Expr::mul(step.clone(), Expr::var(var)));
        if !facts.prove(&Expr::eq(line, any.min)) {
            return None;
        }
        let is_small = |bound: &Expr| {
            let (low, high) = facts.const_bounds(bound);
            low.is_some_and(|low| low >= -MAX_BOUND) && high.is_some_and(|high| high <= MAX_BOUND)
        };
        let extent = loop_extent(stage, bounds, leaf);
        let divided = |by: Expr| {
            let quotient = Expr::binary(BinOp::FloorDiv, by.clone(), step.clone());
            is_small(&by).then(|| simplify_expr(&quotient, facts))
        };
        let up = Expr::sub(step.clone(), Expr::index(1));
        let begin = first.and_then(|first| divided(Expr::add(Expr::sub(first, start.last()), up)));
        let end = last.and_then(|last| divided(Expr::sub(last, start.min.clone())));
        let clamp = |value: Expr, least: Expr| {
            let value = extremum(BinOp::Max, value, least, facts);
            extremum(BinOp::Min, value, extent.clone(), facts)
        };
        let begin = begin.map_or(Expr::index(0), |begin| clamp(begin, Expr::index(0)));
        let end = match end {
            Some(end) => clamp(Expr::add(end, Expr::index(1)), begin.clone()),
            None => extent.clone(),
        };
        let extent = simplify_expr(&Expr::sub(end, begin.clone()), facts);
        let all = begin.as_int() == Some(0)
            && facts.key(&extent) == facts.key(&loop_extent(stage, bounds, leaf));
        (!all).then_some(ReadRange { leaf, min: begin, extent })
    }
}
