//! Whole tiles: on CPUs, an attached stage computes whole tiles of lanes and of unrolled loops, so
//! that lanes need no masks and copies of a loop body no conditions.
//!
//! Before: `CL[i, j] = sum(A[i, k] * BP[j // 32, k, j % 32])` under the guards `i < 1021` and
//! `j < 1021`, where `j` is `jo*32 + ji`, and `ji` has lanes. `BP`, a packed copy of 1021 columns,
//! has 32 panels of 32 columns.
//! After: the guards `i < 1021` and `jo*32 < 1021`. The second one depends on no lane, and skips
//! tiles that begin outside of the domain. The guard of `i` stays: `A` has 1021 rows.
//!
//! A row of a run-time length, such as the `w + 2` columns of a padded image, is extended to whole
//! tiles of its lanes first: `P` then has `(w + 17) // 16 * 16` columns.
//!
//! Each data axis is decided by itself. The additional elements, those outside of the domain in a
//! tile that begins inside, change no result:
//!
//! - The stage is attached, so it is a temporary for one iteration of a loop of its reader. Each
//!   element of the region has its own place, and the guards that keep loops in the region stay: an
//!   additional element overwrites no other one.
//! - No stage reads an additional element, unless this phase has proved the read: readers keep
//!   their guards, and an element inside of a domain depends only on elements inside of theirs.
//! - An additional element reads only what is there and written ([`Inference::reads_are_written`]).
//!   An index that contains no padded axis has the same values as for an element of the domain.
//!   Every other index is provably in the shape of an input, in the domain of a stage, or in a
//!   region that another stage computes whole.
//! - Nothing traps. Integers wrap, division is total, floats have no exceptions. Arithmetic of type
//!   `index` must not overflow, so its values must have small constant bounds.
//! - A reduction adds the same terms as before: guards of reduction axes stay. A term outside of
//!   the domain is never added, as adding 0 can change a sum of floats (`-0 + 0`, `inf * 0`).
//!
//! Not padded are outputs, root stages, scans, scatters and stages that share loops with others.
//! Loops whose iterations run one by one keep their conditions, which become bounds of these loops.

use super::bounds::{
    Domain, Guard, StageBounds, compute_loops, is_in_tile, is_multiple, is_vectorized, loop_min,
    over_loops,
};
use super::directives::{Scan, Scatter};
use super::fused::group_of;
use super::phases::Inference;
use super::reads::for_each_read;
use super::state::{Attach, AxisKind, Factor, Relation, Stage, StageId};
use super::storage::Region;
use super::threads::has_launches;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{any_expr, mentions};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Var};
use crate::te::{Axis, Body};
use rustc_hash::{FxHashMap, FxHashSet};

/// Lets every stage compute whole tiles in each axis in which that is provably legal.
pub(super) fn pad_tiles(inference: &mut Inference) {
    if has_launches(&inference.bounded.schedule) {
        return;
    }
    let order = inference.bounded.schedule.order.clone();
    // The attached stages whose regions are written as a whole.
    let mut whole: FxHashSet<StageId> = FxHashSet::default();
    // Producers come first.
    for id in order {
        if !matches!(inference.bounded.schedule.stage(id).attach, Attach::At { .. }) {
            continue;
        }
        let rank = inference.bounded.schedule.stage(id).rank();
        let mut padded = vec![false; rank];
        if let Some(bounds) = inference.with_whole_rows(id, &whole) {
            inference.bounded.bounds[id.0] = Some(bounds);
            padded[rank - 1] = true;
        }
        for axis in inference.axes_with_tails(id) {
            padded[axis] = true;
            let bounds = inference.bounds_with(id, &padded);
            if inference.reads_are_written(id, &bounds, &padded, &whole) {
                inference.bounded.bounds[id.0] = Some(bounds);
            } else {
                padded[axis] = false;
            }
        }
        if !is_ordered(inference.bounded.schedule.stage(id)) && inference.writes_region(id) {
            whole.insert(id);
        }
    }
}

/// Whether an element of a stage depends on other elements of it, or on where they are stored.
pub(super) fn is_ordered(stage: &Stage) -> bool {
    stage.annotation::<Scan>().is_some()
        || stage.annotation::<Scatter>().is_some()
        || matches!(stage.te.body, Body::Sort(_))
}

/// The longest tile that a row of a run-time length is extended to.
const MAX_ROW_TILE: i64 = 64;

/// The largest magnitude of an `index` value in an additional element.
const MAX_INDEX: i128 = 1 << 62;

impl Inference {
    /// Returns the data axes of a stage whose guards differ between lanes or copies of a body.
    fn axes_with_tails(&self, id: StageId) -> Vec<usize> {
        let schedule = &self.bounded.schedule;
        let (stage, bounds) = (schedule.stage(id), self.bounded.of(id));
        if stage.te.output || is_ordered(stage) || group_of(schedule, id).len() > 1 {
            return Vec::new();
        }
        let in_tile: Vec<&Var> = (0..stage.leaves.len())
            .filter(|at| is_in_tile(stage, *at))
            .map(|at| &stage.axis(stage.leaves[at]).var)
            .filter(|var| bounds.guards.iter().any(|guard| mentions(&guard.cond, var)))
            .collect();
        let has_tail = |at: &usize| in_tile.iter().any(|var| mentions(&bounds.values[*at], var));
        (0..stage.rank()).filter(has_tail).collect()
    }

    /// Returns the bounds of a stage that computes whole tiles in the axes `padded`.
    fn bounds_with(&self, id: StageId, padded: &[bool]) -> StageBounds {
        self.bounds_of_region(id, Region::of(self.bounded.of(id)), padded)
    }

    /// Returns the bounds of a stage that computes whole tiles of a region in the axes `padded`.
    fn bounds_of_region(&self, id: StageId, region: Region, padded: &[bool]) -> StageBounds {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let extents: Vec<Expr> = stage.te.axes.iter().map(|axis| axis.extent.clone()).collect();
        let domain = Domain { extents: &extents, whole_tiles: padded };
        let (facts, enclosing) = (self.facts_around(bounds), bounds.enclosing_loops.clone());
        let new = compute_loops(stage, region, Some(domain), enclosing, facts);
        let (warm_up, read_ranges) = (bounds.warm_up.clone(), bounds.read_ranges.clone());
        StageBounds { warm_up, read_ranges, ..new }
    }

    /// Returns the bounds of a stage whose region has rows of a run-time length, with rows that the
    /// vectors of its last axis fill; `None` if it has no such rows, or reads what is not there.
    ///
    /// Without a mask, the last vector of a row can be forwarded to loads of the next one.
    fn with_whole_rows(&self, id: StageId, whole: &FxHashSet<StageId>) -> Option<StageBounds> {
        let schedule = &self.bounded.schedule;
        let (stage, bounds) = (schedule.stage(id), self.bounded.of(id));
        let last = stage.rank().checked_sub(1)?;
        if stage.te.output || is_ordered(stage) || group_of(schedule, id).len() > 1 {
            return None;
        }
        let mut region = Region::of(bounds);
        let row = region.shape[last].clone();
        let is_plain = region.storage.is_region()
            && region.storage.ring.is_none()
            && region.storage.waves.is_none()
            && region.storage.shape[last].same(&row);
        let has_lanes = stage.leaves.iter().any(|leaf| {
            is_vectorized(stage, *leaf) && mentions(&bounds.values[last], &stage.axis(*leaf).var)
        });
        let factor = stage.relations.iter().find_map(|relation| match relation {
            Relation::Split { parent, factor: Factor::Inner(factor), tail: None, .. } => {
                (parent.0 == last).then_some(*factor)
            }
            _ => None,
        });
        let factor = factor.filter(|factor| (2..=MAX_ROW_TILE).contains(factor))?;
        let facts = self.facts_around(bounds);
        if row.as_int().is_some() || !is_plain || !has_lanes || is_multiple(&row, factor, &facts) {
            return None;
        }
        let tiles = Expr::add(row, Expr::index(factor - 1));
        let tiles = Expr::binary(BinOp::FloorDiv, tiles, Expr::index(factor));
        let row = simplify_expr(&Expr::mul(tiles, Expr::index(factor)), &facts);
        region.shape[last] = row.clone();
        region.storage.shape[last] = row;
        let mut padded = vec![false; stage.rank()];
        padded[last] = true;
        let bounds = self.bounds_of_region(id, region, &padded);
        self.reads_are_written(id, &bounds, &padded, whole).then_some(bounds)
    }

    /// Returns the facts inside the loops around a stage.
    fn facts_around(&self, bounds: &StageBounds) -> Facts {
        self.facts_in(&bounds.enclosing_loops)
    }

    /// Whether a stage writes its whole region: no guard keeps its data axes in the domain.
    fn writes_region(&self, id: StageId) -> bool {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let (facts, enclosing) = (self.facts_around(bounds), bounds.enclosing_loops.clone());
        let tails = compute_loops(stage, Region::of(bounds), None, enclosing, facts).guards;
        let of_data = |guards: &[Guard]| -> Vec<String> {
            let data = guards.iter().filter(|guard| guard.kind == AxisKind::Data);
            data.map(|guard| guard.text()).collect()
        };
        bounds.read_ranges.is_empty() && of_data(&bounds.guards) == of_data(&tails)
    }

    /// Whether a stage with the bounds `bounds`, which computes whole tiles in the axes `padded`,
    /// reads only elements that are there and written. `whole` are the attached stages that write
    /// their whole regions.
    fn reads_are_written(
        &self,
        id: StageId,
        bounds: &StageBounds,
        padded: &[bool],
        whole: &FxHashSet<StageId>,
    ) -> bool {
        let schedule = &self.bounded.schedule;
        let stage = schedule.stage(id);
        let around = self.facts_around(bounds);
        let start = facts_inside(stage, bounds, &around, true);
        let term = facts_inside(stage, bounds, &around, false);
        let axes = stage.te.axes.iter().zip(padded);
        let axes: Vec<&Axis> = axes.filter(|(_, padded)| **padded).map(|(axis, _)| axis).collect();
        let is_padded = |expr: &Expr| axes.iter().any(|axis| mentions(expr, &axis.var));
        // If the domain has elements, one of them has the same indices in the other axes.
        let has_elements =
            |axis: &&Axis| start.prove(&Expr::lt(Expr::index(0), axis.extent.clone()));
        if !axes.iter().all(has_elements) || !has_small_indices(stage, bounds, &is_padded, &around)
        {
            return false;
        }
        // Where a choice depends on padded axes, an additional element may read what no other does.
        let mut chooses = false;
        stage.te.body.for_each_expr(&mut |expr| {
            chooses |= any_expr(expr, &mut |e| {
                matches!(
                    &e.kind,
                    ExprKind::IfThenElse(..) | ExprKind::Binary(BinOp::And | BinOp::Or, ..)
                ) && is_padded(e)
            })
        });
        if let Body::Reduce(reduction) = &stage.te.body {
            chooses |= reduction.condition.as_ref().is_some_and(is_padded);
        }
        let mut producers: FxHashMap<&Buffer, StageId> = FxHashMap::default();
        for of in &schedule.order {
            producers.extend(schedule.stage(*of).te.buffers.iter().map(|buffer| (buffer, *of)));
        }
        let mut written = true;
        for_each_read(&stage.te.body, &mut |buffer, indices, conditions, initial| {
            let same = |index: &Expr| !chooses && !is_padded(index);
            let attached = producers
                .get(buffer)
                .filter(|of| matches!(schedule.stage(**of).attach, Attach::At { .. }));
            if !written || (attached.is_none() && indices.iter().all(same)) {
                return;
            }
            let mut facts = if initial { start.clone() } else { term.clone() };
            for (cond, truth) in conditions {
                facts.assume_truth(&over_loops(stage, bounds, cond), *truth);
            }
            let within = |index: &Expr, extent: &Expr| {
                let index = simplify_expr(index, &facts);
                facts.prove(&Expr::le(Expr::index(0), index.clone()))
                    && facts.prove(&Expr::lt(index, extent.clone()))
            };
            written = indices.iter().enumerate().all(|(dim, index)| {
                let place = over_loops(stage, bounds, index);
                let in_domain = || same(index) || within(&place, &buffer.shape[dim]);
                let Some(of) = attached else { return in_domain() };
                let region = self.bounded.of(*of);
                if region.storage.slides_along(dim) {
                    // Of the elements of earlier iterations, only those that are read are there.
                    return same(index);
                }
                let local = Expr::sub(place.clone(), region.mins[dim].clone());
                within(&local, &region.shape[dim]) && (whole.contains(of) || in_domain())
            });
        });
        written
    }
}

/// Returns the facts inside the loops of a stage, where start values are stored or where terms are
/// added. A reduction without terms has start values, too.
fn facts_inside(stage: &Stage, bounds: &StageBounds, around: &Facts, start: bool) -> Facts {
    let mut facts = around.clone();
    let applies = |kind: AxisKind| !start || kind == AxisKind::Data;
    for leaf in stage.leaves.iter().filter(|leaf| applies(stage.axis(**leaf).kind)) {
        facts.bind(&stage.axis(*leaf).var, &loop_min(stage, *leaf), &bounds.extents[leaf.0]);
    }
    let guards = bounds.guards.iter().filter(|guard| applies(guard.kind));
    guards.for_each(|guard| facts.assume(&guard.cond));
    facts
}

/// Whether no arithmetic of type `index` on padded axes can overflow in the body of a stage.
fn has_small_indices(
    stage: &Stage,
    bounds: &StageBounds,
    is_padded: &dyn Fn(&Expr) -> bool,
    around: &Facts,
) -> bool {
    // Ranges of loops suffice; contradictory guards would hide an overflow.
    let mut facts = around.clone();
    for leaf in &stage.leaves {
        facts.bind(&stage.axis(*leaf).var, &loop_min(stage, *leaf), &bounds.extents[leaf.0]);
    }
    let is_large = |index: &Expr| {
        let (low, high) = facts.const_bounds(&over_loops(stage, bounds, index));
        low.is_none_or(|low| low < -MAX_INDEX) || high.is_none_or(|high| high > MAX_INDEX)
    };
    let mut small = true;
    stage.te.body.for_each_expr(&mut |expr| {
        small &= !any_expr(expr, &mut |e| {
            let arithmetic = matches!(e.kind, ExprKind::Binary(..) | ExprKind::Unary(..));
            arithmetic && e.ty == DType::Index.into() && is_padded(e) && is_large(e)
        });
    });
    small
}
