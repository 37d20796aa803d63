//! Skips the iterations of a stage whose elements nobody reads.
//!
//! Before: `C[i, j] = if j < i then 0 else S[i, j]`; the region of `S` is all of it, or the row
//! `0 .. n` with `S.compute_at(C, i)`: extents of regions are over run-time integers only.
//! After: the loop over `j` of `S` begins at `i`. If it is split, the loop over `jo` begins at
//! `i // 64`: parts of tiles are computed whole.
//!
//! A read gives *bounds*, expressions over the indices of the element that are at least 0 if it is
//! read: `j - i` here. `S[i, i]` gives `j - i` and `i - j`. A bound counts if it follows from one
//! of each read. What the loops of a reader leave out, it does not read. A bound shortens one loop:
//! each of its indices has an outermost loop, and the innermost of these is shortened. For tiles in
//! the order `io`, `jo`, `ii`, `ji`, that is `jo`.
//! Declines: outputs, and stages that later steps of a recurrence read; stages whose elements
//! depend on each other, share loops or are kept for later iterations (`store_at`); tiles and short
//! rows, in which a run-time extent costs more than it saves; GPUs, whose threads run one loop
//! together.

use super::bounds::{ReadRange, loop_extent, loop_min, runs_one_by_one};
use super::directives::store_at::StoreAt;
use super::fused::group_of;
use super::phases::Inference;
use super::reads::{MAX_CONDITIONAL_READS, Read, differences};
use super::recurrence::outlives_its_step;
use super::state::{AxisId, StageId};
use super::threads::has_launches;
use super::whole_tiles::is_ordered;
use crate::ir::arith::Facts;
use crate::ir::simplify::{extremum, simplify_expr};
use crate::ir::visit::{any_expr, mentions, substitute};
use crate::ir::{BinOp, Expr, ExprKind, Var};
use rustc_hash::FxHashMap;

/// How a bound ends a loop.
struct End {
    leaf: AxisId,
    /// The first iteration that computes an element inside of the bound.
    first: Option<Expr>,
    /// The last one.
    last: Option<Expr>,
    /// How far such an iteration may leave the bound, if that is constant.
    slack: Option<Expr>,
}

/// The smallest constant extent of a dimension that is computed in part.
const MIN_EXTENT: i128 = 64;

/// Bounds of the elements that each stage computes, over its declared axes.
type Computed = FxHashMap<StageId, Vec<Expr>>;

/// The largest magnitude of a bound: arithmetic on larger ones might overflow.
const MAX_BOUND: i128 = 1 << 61;

/// The largest number of bounds of a read that are used.
const MAX_BOUNDS: usize = 16;

impl Inference {
    /// Leaves out the iterations in front of the first element that is read, and behind the last.
    pub(super) fn skip_unread(&mut self) {
        if has_launches(&self.bounded.schedule) {
            return;
        }
        // Consumers come first: what they do not compute, they do not read.
        let mut computed = FxHashMap::default();
        for id in self.bounded.schedule.order.clone().into_iter().rev() {
            let (ranges, bounds) = self.read_ranges(id, &computed);
            computed.insert(id, bounds);
            self.bounded.bounds[id.0].as_mut().expect("all are inferred").read_ranges = ranges;
        }
    }

    /// Returns the iterations of loops that compute all elements of a stage that are read, and the
    /// bounds that all their elements keep.
    fn read_ranges(&self, id: StageId, computed: &Computed) -> (Vec<ReadRange>, Vec<Expr>) {
        let schedule = &self.bounded.schedule;
        let (stage, bounds) = (schedule.stage(id), self.bounded.of(id));
        let kept = stage.te.output
            || outlives_its_step(schedule, id)
            || stage.annotation::<StoreAt>().is_some()
            || !bounds.storage.is_region()
            || !bounds.warm_up.is_empty();
        let mut ranges: Vec<ReadRange> = Vec::new();
        let mut kept_bounds = Vec::new();
        if kept || is_ordered(stage) || group_of(schedule, id).len() > 1 {
            return (ranges, kept_bounds);
        }
        let read_bounds = self.read_bounds(id, computed);
        if read_bounds.is_empty() {
            return (ranges, kept_bounds);
        }
        let mut facts = self.facts_in(&bounds.enclosing_loops);
        for leaf in &stage.leaves {
            facts.bind(&stage.axis(*leaf).var, &loop_min(stage, *leaf), &bounds.extents[leaf.0]);
        }
        for bound in read_bounds {
            let Some(End { leaf, first, last, slack }) = self.end(id, &bound, &facts) else {
                continue;
            };
            let at = ranges.iter().position(|range| range.leaf == leaf);
            let mut range = match at {
                Some(at) => ranges.swap_remove(at),
                None => {
                    let extent = loop_extent(stage, bounds, leaf);
                    ReadRange { leaf, min: loop_min(stage, leaf), extent }
                }
            };
            let end = Expr::add(range.min.clone(), range.extent.clone());
            let clamp = |value: Expr| {
                let value = extremum(BinOp::Max, value, range.min.clone(), &facts);
                extremum(BinOp::Min, value, end.clone(), &facts)
            };
            let begin = first.map_or_else(|| range.min.clone(), clamp);
            let end = match last {
                Some(last) => {
                    let past = clamp(Expr::add(last, Expr::index(1)));
                    extremum(BinOp::Max, past, begin.clone(), &facts)
                }
                None => end.clone(),
            };
            range.extent = simplify_expr(&Expr::sub(end, begin.clone()), &facts);
            range.min = begin;
            ranges.push(range);
            kept_bounds.extend(slack.map(|slack| Expr::add(bound, slack)));
        }
        let is_part = |range: &ReadRange| {
            let all = loop_extent(stage, bounds, range.leaf);
            facts.key(&range.extent) != facts.key(&all)
        };
        ranges.retain(is_part);
        (ranges, kept_bounds)
    }

    /// Returns the bounds of the elements of a stage that are read, over its declared axes.
    fn read_bounds(&self, id: StageId, computed: &Computed) -> Vec<Expr> {
        let reads = self.reads.of_stage(id);
        let axes = &self.bounded.schedule.stage(id).te.axes;
        let is_bounded =
            |read: &Read| !read.conditions.is_empty() || !computed[&read.by].is_empty();
        if reads.len() > MAX_CONDITIONAL_READS || !reads.iter().any(is_bounded) {
            return Vec::new();
        }
        // A reader may have the same variables.
        let indices: Vec<Var> = axes.iter().map(|axis| Var::index(axis.var.name())).collect();
        let mut facts = self.facts.clone();
        for (index, axis) in indices.iter().zip(axes) {
            facts.bind(index, &axis.min, &axis.extent);
        }
        let of_reads: Vec<Vec<Expr>> = reads
            .iter()
            .map(|read| self.bounds_of_read(read, computed, &indices, &facts))
            .collect();
        let follows =
            |bound: &Expr, from: &Expr| facts.prove(&Expr::le(from.clone(), bound.clone()));
        let mut all: Vec<Expr> = Vec::new();
        for bound in of_reads.iter().flatten() {
            let kept = of_reads.iter().all(|of| of.iter().any(|from| follows(bound, from)));
            let is_new = !all.iter().any(|other| follows(bound, other));
            let is_weak = facts.prove(&Expr::le(Expr::index(0), bound.clone()));
            if kept && is_new && !is_weak {
                all.push(bound.clone());
            }
        }
        let over_axes = |bound: &Expr| {
            substitute(bound, &mut |var| {
                let at = indices.iter().position(|index| index == var)?;
                Some(Expr::var(&axes[at].var))
            })
        };
        all.iter().map(over_axes).collect()
    }

    /// Returns expressions over the indices of an element that are at least 0 if the read reads it.
    fn bounds_of_read(
        &self,
        read: &Read,
        computed: &Computed,
        element: &[Var],
        facts: &Facts,
    ) -> Vec<Expr> {
        let over_axes = self.facts_over_axes(read.by);
        let te = &self.bounded.schedule.stage(read.by).te;
        let axes: Vec<&Var> =
            te.axes.iter().chain(te.reduce_axes()).map(|axis| &axis.var).collect();
        // The values of axes of the reader, as the element gives them.
        let mut known: FxHashMap<Var, Expr> = FxHashMap::default();
        let is_open = |expr: &Expr, known: &FxHashMap<Var, Expr>| {
            any_expr(expr, &mut |e| match &e.kind {
                ExprKind::Load { .. } => true,
                ExprKind::Var(var) => axes.contains(&var) && !known.contains_key(var),
                _ => false,
            })
        };
        let over_element = |expr: &Expr, known: &FxHashMap<Var, Expr>| {
            simplify_expr(&substitute(expr, &mut |var| known.get(var).cloned()), facts)
        };
        let mut bounds = Vec::new();
        let mut dims: Vec<(Expr, &Var)> = read
            .indices
            .iter()
            .map(|index| simplify_expr(index, &over_axes))
            .zip(element)
            .collect();
        // Single variables come first: `S[i, i + 1]` gives `i`, and a bound.
        dims.sort_by_key(|(index, _)| index.as_var().is_none());
        for (index, own) in &dims {
            let index = index.clone();
            if !is_open(&index, &known) {
                let index = over_element(&index, &known);
                bounds.push(Expr::sub(Expr::var(own), index.clone()));
                bounds.push(Expr::sub(index, Expr::var(own)));
                continue;
            }
            for var in axes.iter().filter(|var| mentions(&index, var)) {
                let Some((slope @ (1 | -1), rest)) = over_axes.affine(&index, var) else {
                    continue;
                };
                let Some(rest) = over_axes.poly_expr(&rest) else { continue };
                if !is_open(&rest, &known) && !known.contains_key(*var) {
                    // `index = rest + slope * var`
                    let rest = over_element(&rest, &known);
                    let value = Expr::sub(Expr::var(own), rest);
                    let value = Expr::mul(Expr::index(slope as i64), value);
                    known.insert((*var).clone(), simplify_expr(&value, facts));
                    break;
                }
            }
        }
        let mut found = computed[&read.by].clone();
        for (condition, truth) in read.conditions.iter() {
            differences(condition, *truth, &over_axes, &mut found);
        }
        for expr in &found {
            // With `index = own`, `expr` is at least 0 if and only if `expr + (index - own)` is.
            let without = |(index, own): &(Expr, &Var)| {
                let own = Expr::var(own);
                let sum = simplify_expr(&Expr::add(expr.clone(), index.clone()), &over_axes);
                let rest = simplify_expr(&Expr::sub(expr.clone(), index.clone()), &over_axes);
                match (is_open(&sum, &known), is_open(&rest, &known)) {
                    (false, _) => Some(Expr::sub(over_element(&sum, &known), own)),
                    (_, false) => Some(Expr::add(over_element(&rest, &known), own)),
                    _ => None,
                }
            };
            bounds.extend(match is_open(expr, &known) {
                false => Some(over_element(expr, &known)),
                true => dims.iter().find_map(without),
            });
        }
        bounds.truncate(MAX_BOUNDS);
        bounds.iter().map(|bound| simplify_expr(bound, facts)).collect()
    }

    /// Returns how a bound of the elements ends a loop. `None` if the iterations of the loop do not
    /// run one by one, if the bound does not change evenly with them, or if the loop is short.
    fn end(&self, id: StageId, bound: &Expr, facts: &Facts) -> Option<End> {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let axes = &stage.te.axes;
        let dims = (0..stage.rank()).filter(|dim| mentions(bound, &axes[*dim].var));
        let first_loop = |dim: usize| {
            let moves = |leaf: &AxisId| mentions(&bounds.values[dim], &stage.axis(*leaf).var);
            stage.leaves.iter().position(moves)
        };
        let (depth, dim) = dims.filter_map(|dim| Some((first_loop(dim)?, dim))).max()?;
        let leaf = stage.leaves[depth];
        let (extent, all) = (&bounds.shape[dim], &axes[dim].extent);
        // A region that moves with the enclosing loops is small already.
        let is_whole = extent.as_int().is_none_or(|extent| extent >= MIN_EXTENT)
            && bounds.mins[dim].as_int() == Some(0)
            && facts.key(extent) == facts.key(all);
        if !is_whole || !runs_one_by_one(stage, leaf) {
            return None;
        }
        let over_loops = substitute(bound, &mut |var| {
            let dim = axes.iter().position(|axis| axis.var == *var)?;
            Some(bounds.values[dim].clone())
        });
        let inner: Vec<Var> =
            stage.leaves[depth + 1..].iter().map(|leaf| stage.axis(*leaf).var.clone()).collect();
        // The bound in the iterations inside of the loop that keep it worst and best.
        let (least, most) = facts.bounds(&simplify_expr(&over_loops, facts), &inner)?;
        let slack = simplify_expr(&Expr::sub(most.clone(), least), facts);
        let slack = slack.as_int().is_some().then_some(slack);
        let (slope, rest) = facts.affine(&most, &stage.axis(leaf).var)?;
        let slope = i64::try_from(slope).ok().filter(|slope| *slope != 0)?;
        let rest = facts.poly_expr(&rest)?;
        let (low, high) = facts.const_bounds(&rest);
        if low.is_none_or(|low| low < -MAX_BOUND) || high.is_none_or(|high| high > MAX_BOUND) {
            return None;
        }
        let divided = |by: Expr| {
            let by = Expr::binary(BinOp::FloorDiv, by, Expr::index(slope.abs()));
            Some(simplify_expr(&by, facts))
        };
        // `rest + slope * x >= 0` holds from a quotient rounded up on, or up to one rounded down.
        let (first, last) = match slope > 0 {
            true => (divided(Expr::sub(Expr::index(slope - 1), rest)), None),
            false => (None, divided(rest)),
        };
        Some(End { leaf, first, last, slack })
    }
}
