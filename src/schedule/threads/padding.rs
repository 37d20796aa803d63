//! Padded stages: a stage in shared or private memory of a launch computes its whole region, also
//! the elements outside of its domain, so that nothing inside a tile tests the borders.
//!
//! Before: `AS[x] = A[x]` under the guard `x < 100`, `AL[x] = AS[x]` under the same guard, and
//! `CL[x] = sum(AL[x] * …)` too.
//! After: `AS[x] = if_then_else(x < 100, A[x], 0)`; `AL` and `CL` have no guard.
//!
//! This changes no element of the domain:
//!
//! - Each element of a region has its own place, so an element outside of the domain overwrites no
//!   other one.
//! - An element inside of a domain depends only on elements inside of theirs. The stage that the
//!   launch stores to global memory keeps its guards, so nothing outside of a domain is stored.
//! - A padded stage reads global memory only inside of its domain. Of other stages it reads only
//!   elements that are provably in their regions, and written: those stages are padded, too, or
//!   their regions lie in their domains.
//! - No operation of the loop IR traps but such accesses.
//! - Guards of reduction axes stay: a term outside of the domain is never added, as adding 0 can
//!   change a sum (`-0 + 0`, `inf * 0`).

use super::super::bounds::{Guard, StageBounds, compute_loops, loop_min, over_loops};
use super::super::fused::group_of;
use super::super::phases::Inference;
use super::super::state::{Attach, Stage, StageId};
use super::super::storage::Region;
use super::has_launches;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{NodeSet, for_each_load};
use crate::ir::{Buffer, Expr, ExprKind, Scope, UnOp};
use crate::te::Body;
use rustc_hash::{FxHashMap, FxHashSet};

/// Pads every stage for which that is provably legal.
pub(in crate::schedule) fn pad_stages(inference: &mut Inference) {
    if !has_launches(&inference.bounded.schedule) {
        return;
    }
    let order = inference.bounded.schedule.order.clone();
    let mut producers: FxHashMap<Buffer, StageId> = FxHashMap::default();
    for id in &order {
        let buffers = &inference.bounded.schedule.stage(*id).te.buffers;
        producers.extend(buffers.iter().map(|buffer| (buffer.clone(), *id)));
    }
    // The stages whose regions are written as a whole.
    let mut whole: FxHashSet<StageId> = FxHashSet::default();
    for id in order {
        if !is_inside(inference, id) {
            continue;
        }
        let stage = inference.bounded.schedule.stage(id);
        let mut facts = inference.facts_inside(id);
        let tails = inference.tail_guards(id);
        tails.iter().for_each(|guard| facts.assume(without_likely(&guard.cond)));
        let outside = domain_conditions(stage, inference.bounded.of(id), &facts);
        if outside.is_empty() {
            whole.insert(id);
            continue;
        }
        let is_private =
            |buffer: &Buffer| producers.get(buffer).is_some_and(|of| is_inside(inference, *of));
        let zero_unless = match &stage.te.body {
            _ if !reads_others(stage, is_private) => {
                let mut read =
                    inference.bounded.schedule.order.iter().filter(|of| {
                        inference.reads.of_stage(**of).iter().any(|read| read.by == id)
                    });
                if !read.all(|of| whole.contains(of) && inference.reads_in_region(id, *of, &facts))
                {
                    continue;
                }
                None
            }
            Body::Map(_) => outside.into_iter().reduce(Expr::and),
            Body::Reduce(_) | Body::Sort(_) => continue,
        };
        whole.insert(id);
        let bounds = inference.bounded.bounds[id.0].as_mut().expect("all are inferred");
        (bounds.guards, bounds.zero_unless) = (tails, zero_unless);
    }
}

/// Whether only threads of a launch access the elements of a stage, which has a nest of its own.
fn is_inside(inference: &Inference, id: StageId) -> bool {
    let schedule = &inference.bounded.schedule;
    let stage = schedule.stage(id);
    matches!(stage.attach, Attach::At { .. })
        && !stage.te.output
        && matches!(stage.scope, Some(Scope::Shared | Scope::Local))
        && group_of(schedule, id).len() == 1
}

/// Whether the body of a stage reads a buffer for which `inside` is false.
fn reads_others(stage: &Stage, inside: impl Fn(&Buffer) -> bool) -> bool {
    let (mut others, mut seen) = (false, NodeSet::default());
    let mut look = |expr: &Expr| {
        for_each_load(expr, &mut seen, &mut |buffer, _, _| others |= !inside(buffer));
    };
    stage.te.body.for_each_expr(&mut look);
    others
}

impl Inference {
    /// Returns the facts inside all loops of a stage.
    fn facts_inside(&self, id: StageId) -> Facts {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let mut facts = self.facts_in(&bounds.enclosing_loops);
        for leaf in &stage.leaves {
            facts.bind(&stage.axis(*leaf).var, &loop_min(stage, *leaf), &bounds.extents[leaf.0]);
        }
        facts
    }

    /// Returns the guards of a stage that keep its loops in the region, and those of its reduction
    /// axes.
    fn tail_guards(&self, id: StageId) -> Vec<Guard> {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let (facts, enclosing) =
            (self.facts_in(&bounds.enclosing_loops), bounds.enclosing_loops.clone());
        compute_loops(stage, Region::of(bounds), None, enclosing, facts).guards
    }

    /// Whether `by` reads elements of `of` only in its region, also outside of its own domain.
    fn reads_in_region(&self, by: StageId, of: StageId, facts: &Facts) -> bool {
        let (reader, own) = (self.bounded.schedule.stage(by), self.bounded.of(by));
        let read = self.bounded.of(of);
        let reads = self.reads.of_stage(of).iter().filter(|read| read.by == by);
        let zero = Expr::index(0);
        let within = |index: &Expr, min: &Expr, extent: &Expr| {
            let local = Expr::sub(over_loops(reader, own, index), min.clone());
            let local = simplify_expr(&local, facts);
            facts.prove(&Expr::le(zero.clone(), local.clone()))
                && facts.prove(&Expr::lt(local, extent.clone()))
        };
        reads.into_iter().all(|found| {
            let dims = found.indices.iter().zip(&read.mins).zip(&read.shape);
            dims.into_iter().all(|((index, min), extent)| within(index, min, extent))
        })
    }
}

/// Returns the conditions, besides the facts, under which an element is in the domain.
fn domain_conditions(stage: &Stage, bounds: &StageBounds, facts: &Facts) -> Vec<Expr> {
    let mut conditions = Vec::new();
    for (axis, index) in stage.te.axes.iter().zip(&bounds.values) {
        conditions.push(Expr::le(Expr::index(0), index.clone()));
        conditions.push(Expr::lt(index.clone(), axis.extent.clone()));
    }
    let conditions = conditions.iter().map(|cond| simplify_expr(cond, facts));
    conditions.filter(|cond| !facts.prove(cond)).collect()
}

/// Returns the condition without its mark.
fn without_likely(cond: &Expr) -> &Expr {
    match &cond.kind {
        ExprKind::Unary(UnOp::Likely, cond) => cond,
        _ => cond,
    }
}
