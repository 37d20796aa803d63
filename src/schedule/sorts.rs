//! What is special about the stages that sort.
//!
//! Before: `S[p, i] = sort(A[i, r], axis=r, at=p)`, loops `p`, `i`, `r`.
//! After: loops `i`, `r`, `p`. In place of a loop `r`, the values of `r` are sorted, once for each
//! iteration of the loops around it, and the loops inside read elements of the order.
//!
//! The keys are evaluated at the place of `r`, so the loops of all axes that they depend on are
//! around it. No directive names `r` (E0392).

use super::bounds::whole;
use super::fused::shared_loops;
use super::phases::BoundedSchedule;
use super::region::{Interval, IntervalEvaluator};
use super::state::{Annotation, AxisId, AxisKind, Schedule, Stage, StageId};
use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{any_expr, mentions};
use crate::ir::{BinOp, Expr, Var};
use crate::te::{Body, Sort};
use rustc_hash::FxHashMap;

/// Returns the sort of a stage, if it is one.
pub fn sort_of(stage: &Stage) -> Option<&Sort> {
    match &stage.te.body {
        Body::Sort(sort) => Some(sort),
        _ => None,
    }
}

/// Returns the place among the leaves at which a stage sorts, if it does.
pub fn sort_place(stage: &Stage) -> Option<usize> {
    sort_of(stage)?;
    let sorted = stage.leaves.iter().position(|leaf| stage.axis(*leaf).kind == AxisKind::Reduce);
    Some(sorted.expect("the sorted axis is a loop"))
}

/// Moves the sorted axis of each stage inside the loops that its keys depend on, and checks the
/// loops around it (E0392). Other loops move inside it, unless a directive has placed them.
pub(super) fn place_sorts(schedule: &mut Schedule) -> Result<()> {
    for id in schedule.order.clone() {
        let Some(sort) = sort_of(schedule.stage(id)).cloned() else { continue };
        schedule.checked(check_target(schedule, id))?;
        let around = loops_of_keys(schedule.stage(id), &sort);
        let stage = schedule.stage(id);
        let is_free = |leaf: &AxisId| {
            stage.axis(*leaf).annotation.is_none() && schedule.attached_to(id, *leaf).is_none()
        };
        let shared = shared_loops(schedule).iter().any(|s| [s.guest, s.host].contains(&id));
        let placed = stage.moved.is_some() || shared || !stage.leaves.iter().all(is_free);
        let sorted = AxisId(stage.rank());
        let stage = schedule.stage_mut(id);
        stage.leaves.retain(|leaf| *leaf != sorted);
        if !placed {
            stage.leaves.sort_by_key(|leaf| !around[leaf.0]);
        }
        let last = stage.leaves.iter().rposition(|leaf| around[leaf.0]);
        stage.leaves.insert(last.map_or(0, |last| last + 1), sorted);
        schedule.checked(check_loops(schedule, id))?;
    }
    Ok(())
}

/// Whether the keys depend on each axis of a stage. The steps of a recurrence count too.
fn loops_of_keys(stage: &Stage, sort: &Sort) -> Vec<bool> {
    let steps = stage.te.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
    let mut depends = vec![false; stage.axes.len()];
    for (at, axis) in stage.te.axes.iter().enumerate() {
        depends[at] = at < steps || mentions(&sort.key, &axis.var);
    }
    for relation in &stage.relations {
        let any = relation.replaced().iter().any(|axis| depends[axis.0]);
        relation.made().iter().for_each(|axis| depends[axis.0] = any);
    }
    depends
}

fn check_target(schedule: &Schedule, id: StageId) -> Result<()> {
    if !schedule.target.is_gpu() {
        return Ok(());
    }
    let stage = schedule.stage(id);
    let text = format!("`{}` is a sort, which runs on CPUs only", stage.te.name);
    let diag = Diag::new("E0392", stage.te.span, text);
    Err(Box::new(diag.help("build the kernel for a CPU, or compare with reductions")))
}

/// Refuses lanes around a sort, and stages that share the loops inside it (E0392).
fn check_loops(schedule: &Schedule, id: StageId) -> Result<()> {
    let stage = schedule.stage(id);
    let place = sort_place(stage).expect("it is a sort");
    let (name, sorted) = (&stage.te.name, &stage.axis(stage.leaves[place]).name);
    for leaf in &stage.leaves[..place] {
        let axis = stage.axis(*leaf);
        let Some((Annotation::Vectorize, span)) = axis.annotation else { continue };
        let text =
            format!("`{name}` sorts the values of `{sorted}` in the lanes of `{}`", axis.name);
        let diag = Diag::new("E0392", span, text).note(format!(
            "the values are sorted once for each `{}`, one after the other",
            axis.name
        ));
        let inside = stage.leaves.get(place + 1).map(|leaf| &stage.axis(*leaf).name);
        return Err(Box::new(match inside {
            Some(inside) => diag.help(format!(
                "run it in parallel, `{name}.parallel({})`, or vectorize a loop inside the sort, \
                 `{inside}`",
                axis.name
            )),
            None => diag.help(format!("run it in parallel: `{name}.parallel({})`", axis.name)),
        }));
    }
    for shared in shared_loops(schedule) {
        if [shared.guest, shared.host].contains(&id) && shared.depth >= place {
            let text = format!("`{name}` cannot share loops inside its sort of `{sorted}`");
            let diag = Diag::new("E0392", shared.span, text);
            let help = match place.checked_sub(1) {
                Some(last) => {
                    let last = &stage.axis(stage.leaves[last]).name;
                    format!("share the loops down to `{last}`")
                }
                None => "leave out the `compute_with`".to_string(),
            };
            return Err(Box::new(diag.help(help)));
        }
    }
    Ok(())
}

/// Returns the number of positions in order that a stage reads: one more than the greatest rank,
/// over run-time integers.
pub fn sorted_count(bounded: &BoundedSchedule, id: StageId) -> Expr {
    let (graph, te) = (&bounded.schedule.graph, &bounded.schedule.stage(id).te);
    let Body::Sort(sort) = &te.body else { crate::bug!("`{}` is no sort", te.name) };
    let mut facts = Facts::new();
    graph.known_facts().iter().for_each(|cond| facts.assume(cond));
    let domain = |extent: &Expr| whole(extent, &facts);
    let moving: FxHashMap<Var, Interval> =
        te.axes.iter().map(|axis| (axis.var.clone(), domain(&axis.extent))).collect();
    let all = sort.axis.extent.clone();
    let evaluator = IntervalEvaluator { moving: &moving, facts: &facts };
    let Some(ranks) = evaluator.interval(&simplify_expr(&sort.at, &facts)) else { return all };
    let count = simplify_expr(&Expr::add(ranks.last(), Expr::index(1)), &facts);
    let is_runtime = |var: &Var| graph.vars.contains(var);
    if any_expr(&count, &mut |e| e.as_var().is_some_and(|var| !is_runtime(var)))
        || facts.prove(&Expr::le(all.clone(), count.clone()))
    {
        return all;
    }
    // Ranks are below the extent, but if no element is computed, they are arbitrary.
    let few = Expr::le(count.clone(), all.clone());
    match facts.prove(&few) {
        true => count,
        false => Expr::binary(BinOp::Min, count, all),
    }
}
