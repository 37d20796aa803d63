//! The region of a stage that its readers require (Halide's "region required").
//!
//! Before: `C[i] = if i > 0 then S[i - 1] else S[0]`, `i = o*8 + q`, `o` fixed.
//! After: `S` from `o*8 - 1`, 8 elements. `S[0]` is read only if `o*8 <= 0`, and then it is one of
//! them.
//!
//! The analysis uses a condition around a read in three ways:
//!
//! - The read does not happen for some values of the fixed loops. The region has to contain its
//!   elements only for the others ([`Required::when`]).
//! - It bounds an axis or an index. The interval of the index gets smaller, if that is true for all
//!   values of the fixed loops ([`Bounds`]).
//! - It bounds an axis that exceeds the bound for some values of the fixed loops. The interval then
//!   starts at the bound: `S[i]` with `i <= n` has the interval from `min(o*8, n)`. No element of
//!   the interval is read then, but a union with `S[n]` stays small ([`Required::shifted`]). Other
//!   regions have no use for it: elements outside of the domain are not computed anyway.

use super::bounds::{Loop, clip_to, loop_min, whole};
use super::phases::Inference;
use super::reads::{Condition, MAX_CONDITIONAL_READS, Read, differences};
use super::region::{Interval, IntervalEvaluator};
use super::state::StageId;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{any_expr, mentions};
use crate::ir::{BinOp, Expr, ExprKind, UnOp, Var};
use crate::te::Axis;
use rustc_hash::FxHashMap;

/// The elements that a read, or several of them, require in one dimension.
#[derive(Clone)]
struct Required {
    interval: Interval,
    /// An interval that contains the same elements, and starts near the bounds of the axes where
    /// they are exceeded.
    shifted: Interval,
    /// The condition on the fixed loops under which an element is read; always if `None`.
    when: Option<Expr>,
}

impl Inference {
    /// Returns the region that covers all reads, for fixed iterations of the loops `fixed`.
    pub(super) fn region(
        &self,
        id: StageId,
        reads: &[Read],
        fixed: &[Loop],
        facts: &Facts,
    ) -> Vec<Interval> {
        let domain = &self.bounded.schedule.stage(id).te.axes;
        let mut dims: Vec<Option<Vec<Required>>> = vec![Some(Vec::new()); domain.len()];
        let mut readers: FxHashMap<StageId, FxHashMap<Var, Interval>> = FxHashMap::default();
        for (at, read) in reads.iter().enumerate() {
            let roots = readers
                .entry(read.by)
                .or_insert_with(|| self.axis_intervals(read.by, fixed, facts));
            // The index is over the declared axes. An unsplit one has the variable of its loop,
            // which may have a smaller extent.
            let over_axes = self.facts_over_axes(read.by);
            let reader = &self.bounded.schedule.stage(read.by).te;
            let axes: Vec<&Axis> = reader.axes.iter().chain(reader.reduce_axes()).collect();
            let conditions = match at < MAX_CONDITIONAL_READS {
                true => &read.conditions[..],
                false => &[],
            };
            let evaluator = IntervalEvaluator { moving: roots, facts };
            let Some(when) = evaluator.when(conditions, &over_axes) else { continue };
            let (inside, shifted) = match conditions.is_empty() {
                true => (roots.clone(), None),
                false => {
                    let known = Known::new(conditions, &over_axes);
                    let inside = known.roots(&axes, &evaluator, false);
                    let shifted = known.roots(&axes, &evaluator, true);
                    (inside, Some((known, shifted)))
                }
            };
            for (index, dim) in read.indices.iter().zip(&mut dims) {
                let index = simplify_expr(index, &over_axes);
                let plain = IntervalEvaluator { moving: &inside, facts };
                let new = plain.index_interval(&index);
                let new = self.tighten(new, read.by, &index, fixed, facts);
                let required = new.map(|new| match &shifted {
                    None => Required { shifted: new.clone(), interval: new, when: None },
                    Some((known, roots)) => {
                        let bounds = known.of_index(&index, &evaluator, &over_axes, &new);
                        let shifted = IntervalEvaluator { moving: roots, facts };
                        let other = shifted.index_interval(&index).unwrap_or_else(|| new.clone());
                        Required {
                            interval: bounds.restrict(new, &evaluator, false),
                            shifted: bounds.restrict(other, &evaluator, true),
                            when: when.clone(),
                        }
                    }
                });
                match (dim.as_mut(), required) {
                    (Some(all), Some(required)) => all.push(required),
                    // Everything may be read.
                    _ => *dim = None,
                }
            }
        }
        let moving = FxHashMap::default();
        let evaluator = IntervalEvaluator { moving: &moving, facts };
        let union = |(all, axis): (Option<Vec<Required>>, &Axis)| {
            let region = all.and_then(|all| evaluator.union_of(all));
            let region = region.unwrap_or_else(|| whole(&axis.extent, facts));
            clip_to(region, &axis.extent, facts)
        };
        dims.into_iter().zip(domain).map(union).collect()
    }

    /// Returns the facts about the declared axes of a stage.
    pub(super) fn facts_over_axes(&self, id: StageId) -> Facts {
        let mut facts = self.facts.clone();
        let stage = &self.bounded.schedule.stage(id).te;
        for axis in stage.axes.iter().chain(stage.reduce_axes()) {
            facts.bind(&axis.var, &axis.min, &axis.extent);
        }
        facts
    }

    /// Returns, for each dimension, the region that covers all reads if indices are not clamped:
    /// `S[max(i - 1, 0)]` reads from `i - 1` on. Elements outside of the domain are not computed,
    /// and the region is so large that it has the elements at which indices are clamped. It may be
    /// larger than the stage. `None` if it is unknown.
    pub(super) fn unclamped_region(
        &self,
        id: StageId,
        fixed: &[Loop],
        facts: &Facts,
    ) -> Vec<Option<Interval>> {
        let reads = self.reads.of_stage(id);
        let region = |dim: usize| {
            let mut all = Vec::new();
            let mut clamped_at = Vec::new();
            for read in reads {
                let roots = self.axis_intervals(read.by, fixed, facts);
                let inside = self.facts_of_reader(read.by, fixed, facts);
                let (index, ends) = without_clamps(&read.indices[dim], &roots);
                let evaluator = IntervalEvaluator { moving: &roots, facts };
                let interval = evaluator.interval(&index);
                let interval = self.tighten(interval, read.by, &index, fixed, facts)?;
                all.push(Required { shifted: interval.clone(), interval, when: None });
                clamped_at.extend(ends.into_iter().map(|(op, end)| (op, end, inside.clone())));
            }
            let moving = FxHashMap::default();
            let union = IntervalEvaluator { moving: &moving, facts }.union_of(all)?;
            let mut union = union;
            for (op, end, inside) in clamped_at {
                // The elements that are missing at the border, in any iteration that reads.
                let missing = match op {
                    BinOp::Max => Expr::sub(end, union.last()),
                    _ => Expr::sub(union.min.clone(), end),
                };
                let missing = simplify_expr(&missing, &inside);
                if inside.prove(&Expr::le(missing.clone(), Expr::index(0))) {
                    continue;
                }
                let more = Expr::index(i64::try_from(inside.const_bounds(&missing).1?).ok()?);
                union.width = simplify_expr(&Expr::add(union.width, more.clone()), facts);
                if op == BinOp::Min {
                    union.min = simplify_expr(&Expr::sub(union.min, more), facts);
                }
            }
            Some(union)
        };
        (0..self.bounded.schedule.stage(id).rank()).map(region).collect()
    }

    /// Returns the facts about the loops `fixed` in iterations in which a stage computes elements.
    fn facts_of_reader(&self, id: StageId, fixed: &[Loop], facts: &Facts) -> Facts {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let mut facts = facts.clone();
        let is_fixed = |var: &Var| fixed.iter().any(|(other, ..)| other == var);
        let own = stage.leaves.iter().map(|leaf| {
            let var = stage.axis(*leaf).var.clone();
            (var, loop_min(stage, *leaf), bounds.extents[leaf.0].clone())
        });
        for (var, min, extent) in bounds.enclosing_loops.iter().cloned().chain(own) {
            if is_fixed(&var) {
                let end = Expr::add(min.clone(), extent);
                facts.assume(&Expr::le(min, Expr::var(&var)));
                facts.assume(&Expr::lt(Expr::var(&var), end));
            } else {
                facts.assume(&Expr::lt(Expr::index(0), extent));
            }
        }
        let moving = self.moving_loops(id, fixed, &facts);
        let moves = |e: &Expr| e.as_var().is_some_and(|var| moving.contains_key(var));
        for guard in &bounds.guards {
            if !any_expr(&guard.cond, &mut |e| moves(e)) {
                facts.assume(&guard.cond);
            }
        }
        for (axis, (min, extent)) in stage.te.axes.iter().zip(bounds.mins.iter().zip(&bounds.shape))
        {
            facts.assume(&Expr::lt(min.clone(), axis.extent.clone()));
            facts.assume(&Expr::lt(Expr::index(0), Expr::add(min.clone(), extent.clone())));
        }
        facts
    }
}

/// Returns an index without the bounds that `min` and `max` give it, and these bounds, which have
/// none of the variables `moving`.
fn without_clamps(index: &Expr, moving: &FxHashMap<Var, Interval>) -> (Expr, Vec<(BinOp, Expr)>) {
    let (mut index, mut ends) = (index.clone(), Vec::new());
    let is_bound =
        |e: &Expr| !any_expr(e, &mut |e| e.as_var().is_some_and(|var| moving.contains_key(var)));
    while let ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) = &index.kind {
        let (inner, end) = match (is_bound(a), is_bound(b)) {
            (false, true) => (a.clone(), b.clone()),
            (true, false) => (b.clone(), a.clone()),
            _ => break,
        };
        ends.push((*op, end));
        index = inner;
    }
    (index, ends)
}

/// What the conditions around a read say: expressions over the axes of the reader that are at least
/// 0.
struct Known(Vec<Expr>);

/// Bounds of an axis or an index, over fixed loops.
#[derive(Default)]
struct Bounds {
    least: Vec<Expr>,
    most: Vec<Expr>,
}

impl Known {
    fn new(conditions: &[Condition], over_axes: &Facts) -> Known {
        let mut known = Vec::new();
        for (condition, truth) in conditions {
            differences(condition, *truth, over_axes, &mut known);
        }
        Known(known.iter().map(|expr| simplify_expr(expr, over_axes)).collect())
    }

    /// Returns the intervals of the axes under the conditions.
    fn roots(
        &self,
        axes: &[&Axis],
        evaluator: &IntervalEvaluator,
        shift: bool,
    ) -> FxHashMap<Var, Interval> {
        let mut roots = FxHashMap::default();
        for axis in axes {
            let Some(interval) = evaluator.moving.get(&axis.var) else { continue };
            let mut bounds = Bounds::default();
            let last = Expr::sub(Expr::add(axis.min.clone(), axis.extent.clone()), Expr::index(1));
            bounds.least.push(axis.min.clone());
            bounds.most.push(last);
            for expr in &self.0 {
                bounds.learn(expr, &axis.var, evaluator);
            }
            roots.insert(axis.var.clone(), bounds.restrict(interval.clone(), evaluator, shift));
        }
        roots
    }

    /// Returns the bounds of an index with the interval `of`.
    fn of_index(
        &self,
        index: &Expr,
        evaluator: &IntervalEvaluator,
        over_axes: &Facts,
        of: &Interval,
    ) -> Bounds {
        let mut bounds = Bounds::default();
        let width = |interval: &Interval| interval.width.as_int();
        // A difference that varies as much as the index gives no useful bound.
        let useful = |rest: &Interval| match (width(rest), width(of)) {
            (Some(rest), Some(of)) => rest < of,
            (Some(rest), None) => rest == 0,
            _ => false,
        };
        for expr in &self.0 {
            // `index = expr + rest`, and `expr` is at least 0.
            let rest = simplify_expr(&Expr::sub(index.clone(), expr.clone()), over_axes);
            if let Some(rest) = evaluator.interval(&rest).filter(useful) {
                bounds.least.push(rest.min);
            }
            let rest = simplify_expr(&Expr::add(index.clone(), expr.clone()), over_axes);
            if let Some(rest) = evaluator.interval(&rest).filter(useful) {
                bounds.most.push(rest.last());
            }
        }
        bounds
    }
}

impl Bounds {
    /// Learns the bound of `var` from an expression that is at least 0, if it is linear in `var`.
    fn learn(&mut self, expr: &Expr, var: &Var, evaluator: &IntervalEvaluator) -> Option<()> {
        let poly = evaluator.facts.poly(expr);
        let atom = evaluator.facts.poly(&Expr::var(var)).atoms()[0];
        let (factor, rest) = poly.split(atom)?;
        let factor = i64::try_from(factor.as_constant()?).ok().filter(|factor| *factor != 0)?;
        let rest = evaluator.facts.poly_expr(&rest)?;
        if mentions(&rest, var) {
            return None;
        }
        let by = Expr::index(factor.checked_abs()?);
        let bound = Expr::binary(BinOp::FloorDiv, evaluator.interval(&rest)?.last(), by);
        match factor > 0 {
            // `factor * var >= -rest`
            true => self.least.push(Expr::sub(Expr::index(0), bound)),
            false => self.most.push(bound),
        }
        Some(())
    }

    /// Returns an interval that contains all values of `interval` inside the bounds. With `shift`
    /// it starts near the bounds if all values are outside.
    fn restrict(
        &self,
        mut interval: Interval,
        evaluator: &IntervalEvaluator,
        shift: bool,
    ) -> Interval {
        let ends = self.least.iter().map(|end| (end, BinOp::Max));
        for (end, op) in ends.chain(self.most.iter().map(|end| (end, BinOp::Min))) {
            let inside = match op {
                BinOp::Max => Expr::sub(interval.last(), end.clone()),
                _ => Expr::sub(end.clone(), interval.min.clone()),
            };
            let (_, most) = evaluator.bounds(&evaluator.simple(&inside));
            let most = most.and_then(|most| most.as_int()).map(|most| most.max(0));
            let smaller = match (most, interval.width.as_int()) {
                (Some(most), Some(width)) => most < width,
                (Some(most), None) => most == 0,
                _ => false,
            };
            if smaller && let Some(most) = most.and_then(|most| i64::try_from(most).ok()) {
                interval.width = Expr::index(most);
            }
            if shift || (smaller && op == BinOp::Max) {
                let start = Expr::binary(op, interval.min, end.clone());
                interval.min = evaluator.simple(&start);
            }
        }
        interval
    }
}

impl IntervalEvaluator<'_> {
    /// Returns a necessary condition on the fixed loops for all conditions to hold somewhere,
    /// `Some(None)` if none is known; `None` if they never hold together.
    fn when(&self, conditions: &[Condition], over_axes: &Facts) -> Option<Option<Expr>> {
        let parts =
            conditions.iter().filter_map(|(cond, truth)| self.possible(cond, *truth, over_axes));
        let Some(when) = parts.reduce(Expr::and) else { return Some(None) };
        let when = self.simple(&when);
        match (self.facts.disprove(&when), self.facts.prove(&when)) {
            (true, _) => None,
            (_, true) => Some(None),
            _ => Some(Some(when)),
        }
    }

    /// Returns a necessary condition on the fixed loops for the condition to be `truth` somewhere;
    /// `None` if none is known.
    fn possible(&self, condition: &Expr, truth: bool, over_axes: &Facts) -> Option<Expr> {
        match &condition.kind {
            ExprKind::Unary(UnOp::Likely, a) => self.possible(a, truth, over_axes),
            ExprKind::Unary(UnOp::Not, a) => self.possible(a, !truth, over_axes),
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                match (self.possible(a, truth, over_axes), self.possible(b, truth, over_axes)) {
                    (Some(a), Some(b)) if truth == (*op == BinOp::And) => Some(Expr::and(a, b)),
                    (a, b) if truth == (*op == BinOp::And) => a.or(b),
                    (Some(a), Some(b)) => Some(Expr::or(a, b)),
                    _ => None,
                }
            }
            _ => {
                let mut known = Vec::new();
                differences(condition, truth, over_axes, &mut known);
                let parts = known.iter().filter_map(|expr| {
                    let most = self.interval(&simplify_expr(expr, over_axes))?.last();
                    Some(Expr::le(Expr::index(0), self.simple(&most)))
                });
                parts.reduce(Expr::and)
            }
        }
    }

    /// Returns a small interval that covers all that is required; `None` if none is known.
    fn union_of(&self, all: Vec<Required>) -> Option<Interval> {
        let plain = self.join_all(all.clone());
        let is_shifted = |one: &Required| {
            let (one, other) = (&one.interval.min, &one.shifted.min);
            self.facts.key(one) != self.facts.key(other)
        };
        if !all.iter().any(is_shifted) {
            return plain;
        }
        let shift = |one: Required| Required { interval: one.shifted.clone(), ..one };
        let shifted = self.join_all(all.into_iter().map(shift).collect());
        let width = |of: &Option<Interval>| of.as_ref().and_then(|of| of.width.as_int());
        match (width(&plain), width(&shifted)) {
            (None, Some(_)) => shifted,
            (Some(plain), Some(shifted_width)) if shifted_width < plain => shifted,
            _ => plain.or(shifted),
        }
    }

    /// Returns the union in the order that keeps it small: first what is always read, and intervals
    /// that are far from the others last.
    fn join_all(&self, mut all: Vec<Required>) -> Option<Interval> {
        all.sort_by_key(|one| one.when.is_some());
        let mut all = all.into_iter();
        let mut joined = all.next()?;
        let mut rest: Vec<Required> = all.collect();
        while !rest.is_empty() {
            let before = rest.len();
            let mut apart = Vec::new();
            for one in rest {
                match self.join(&joined, &one) {
                    Some(both) => joined = both,
                    None => apart.push(one),
                }
            }
            if apart.len() == before {
                return None;
            }
            rest = apart;
        }
        Some(joined.interval)
    }

    /// Returns the smallest known interval that contains what both require.
    fn join(&self, a: &Required, b: &Required) -> Option<Required> {
        let either = match (&a.when, &b.when) {
            (Some(a), Some(b)) => Some(Expr::or(a.clone(), b.clone())),
            _ => None,
        };
        let plain = self.union(a.interval.clone(), b.interval.clone());
        let extended = |a: &Required, b: &Required| {
            let mut facts = self.facts.clone();
            facts.assume(b.when.as_ref()?);
            self.extend(&a.interval, &b.interval, &facts)
        };
        let all = [plain, extended(a, b), extended(b, a)];
        // Of constant widths the smallest one, else the first one.
        let width = |interval: &Interval| interval.width.as_int().unwrap_or(i128::MAX);
        let interval = all.into_iter().flatten().min_by_key(width)?;
        Some(Required { shifted: interval.clone(), interval, when: either })
    }

    /// Returns the interval `a`, made so large that it contains `b` if `facts` hold.
    fn extend(&self, a: &Interval, b: &Interval, facts: &Facts) -> Option<Interval> {
        let inside = IntervalEvaluator { moving: self.moving, facts };
        let step = inside.simple(&Expr::sub(b.min.clone(), a.min.clone()));
        let (low, high) = inside.bounds(&step);
        let low = i64::try_from(low?.as_int()?).ok()?.min(0);
        let high = Expr::index(i64::try_from(high?.as_int()?).ok()?);
        let reach = Expr::add(b.width.clone(), high);
        let width = Expr::binary(BinOp::Max, a.width.clone(), reach);
        let min = Expr::add(a.min.clone(), Expr::index(low));
        Some(self.make(min, Expr::sub(width, Expr::index(low))))
    }
}
