//! GPU launches: thread variables, storage scopes and the guards of threads.
//!
//! Before: `C.bind(xo, blockIdx.x)`, `C.bind(xi, threadIdx.x)`, `S.compute_at(C, ko)`. After: `C`
//! with everything attached to it is one launch. All loops that its stages bind to one index have
//! one variable, so that the threads that compute a stage are those that read it. Every attached
//! stage has a scope. The region of a `shared` stage covers the reads of all threads of a block
//! ([`is_private`]). Conditions that differ between threads stand around single statements where
//! threads have to reach a barrier ([`place_guards`]).

mod check;
mod padding;

use super::bounds::{Guard, StageBounds, attach_depth};
use super::phases::BoundedSchedule;
use super::state::{Annotation, Attach, AxisId, AxisKind, Origin, Schedule, Stage, StageId};
use crate::diag::Span;
use crate::ir::visit::any_expr;
use crate::ir::{BinOp, Expr, Scope, ThreadIndex, Var};

pub(super) use check::{check_extents, check_launches, check_stages};
pub(super) use padding::pad_stages;

/// Returns the index that a loop of a stage is bound to.
pub(super) fn bound_index(stage: &Stage, leaf: AxisId) -> Option<ThreadIndex> {
    match stage.axis(leaf).annotation {
        Some((Annotation::Thread(index), _)) => Some(index),
        _ => None,
    }
}

/// Whether the schedule has launches: every schedule for a GPU except the default one.
pub(super) fn has_launches(schedule: &Schedule) -> bool {
    schedule.target.is_gpu() && schedule.origin != Origin::Default
}

/// Returns the root stage whose launch a stage belongs to; `None` if its attachments form a cycle
/// or end at an inlined stage.
pub(super) fn launch_of(schedule: &Schedule, id: StageId) -> Option<StageId> {
    let mut at = id;
    for _ in 0..=schedule.order.len() {
        match schedule.stage(at).attach {
            Attach::Root => return Some(at),
            Attach::At { stage, .. } => at = stage,
            Attach::Inline { .. } => return None,
        }
    }
    None
}

/// Returns the indices that the enclosing loops of a stage bind.
fn indices_around(schedule: &Schedule, id: StageId) -> Vec<ThreadIndex> {
    let mut indices = Vec::new();
    let mut at = id;
    for _ in 0..=schedule.order.len() {
        let Attach::At { stage: consumer, axis, .. } = schedule.stage(at).attach else { break };
        let stage = schedule.stage(consumer);
        let inside = attach_depth(stage, axis).map_or(0, |depth| depth + 1);
        indices.extend(stage.leaves[..inside].iter().filter_map(|leaf| bound_index(stage, *leaf)));
        at = consumer;
    }
    indices
}

/// Gives every attached stage a scope, and all axes of a launch that are bound to the same index
/// one variable.
pub(super) fn share_thread_variables(schedule: &mut Schedule) {
    if !has_launches(schedule) {
        return;
    }
    for id in schedule.order.clone() {
        let attached = matches!(schedule.stage(id).attach, Attach::At { .. });
        if attached && schedule.stage(id).scope.is_none() {
            let enclosing = indices_around(schedule, id);
            let private = |index: &ThreadIndex| !matches!(index, ThreadIndex::Block(_));
            let scope = match enclosing.iter().any(private) {
                true => Scope::Local,
                false if enclosing.is_empty() => Scope::Global,
                false => Scope::Shared,
            };
            schedule.stage_mut(id).scope = Some(scope);
        }
    }
    let mut vars: Vec<(StageId, ThreadIndex, Var)> = Vec::new();
    for id in schedule.order.clone() {
        let Some(launch) = launch_of(schedule, id) else { continue };
        for leaf in schedule.stage(id).leaves.clone() {
            let Some(index) = bound_index(schedule.stage(id), leaf) else { continue };
            if index == ThreadIndex::Virtual {
                continue;
            }
            let known = vars.iter().find(|(l, i, _)| (*l, *i) == (launch, index));
            let var = match known {
                Some((.., var)) => var.clone(),
                None => {
                    let var = Var::index(index.name());
                    vars.push((launch, index, var.clone()));
                    var
                }
            };
            schedule.stage_mut(id).axis_mut(leaf).var = var;
        }
    }
}

/// Whether threads of one block, virtual ones included, have different values of the variable.
pub(super) fn is_private(schedule: &Schedule, var: &Var) -> bool {
    schedule.order.iter().any(|id| {
        let stage = schedule.stage(*id);
        stage.leaves.iter().any(|leaf| {
            stage.axis(*leaf).var == *var
                && matches!(
                    bound_index(stage, *leaf),
                    Some(ThreadIndex::Thread(_) | ThreadIndex::Virtual)
                )
        })
    })
}

/// Adds the conditions that keep threads from repeating each other's work: thread 0 of each index
/// that a stage does not bind computes the stage, if several threads can access its elements. Moves
/// conditions that differ between threads inwards, so that none stands around a `shared` stage,
/// which has barriers.
pub(super) fn place_guards(schedule: &Schedule, bounds: &mut [Option<StageBounds>]) {
    if !has_launches(schedule) {
        return;
    }
    for id in schedule.order.iter().copied() {
        let Some(launch) = launch_of(schedule, id) else { continue };
        let indices = thread_loops(schedule, bounds, launch);
        let stage_bounds = bounds[id.0].as_ref().expect("all are inferred");
        let (mut guards, mut threads) = (stage_bounds.guards.clone(), Vec::new());
        let stage = schedule.stage(id);
        if stage.attach == Attach::Root || stage.scope != Some(Scope::Local) {
            let own = |index: ThreadIndex| {
                stage.leaves.iter().any(|leaf| bound_index(stage, *leaf) == Some(index))
            };
            for (index, var, extent) in indices.iter().filter(|(index, ..)| !own(*index)).rev() {
                if stage_bounds.enclosing_loops.iter().all(|(other, ..)| other != var) {
                    threads.insert(0, (*index, var.clone(), extent.clone()));
                }
                let cond = Expr::binary(BinOp::Eq, Expr::var(var), Expr::index(0));
                let (depth, initial_depth, kind) = (None, None, AxisKind::Data);
                guards.insert(0, Guard { cond, depth, initial_depth, kind, innermost: false });
            }
        }
        if stage.attach == Attach::Root && !is_bound(stage) && indices.is_empty() {
            // One thread computes a single element.
            let index = ThreadIndex::Block(0);
            threads.push((index, Var::index(index.name()), Expr::index(1)));
        }
        let last = stage.leaves.len().checked_sub(1);
        for guard in &mut guards {
            let terms_only = guard.depth.is_none() && guard.kind == AxisKind::Reduce;
            let depth = if terms_only { last } else { guard.depth };
            if differs(schedule, &guard.cond) && has_barrier_inside(schedule, id, depth) {
                (guard.depth, guard.innermost) = (last, true);
            }
        }
        let stage_bounds = bounds[id.0].as_mut().expect("all are inferred");
        (stage_bounds.guards, stage_bounds.threads) = (guards, threads);
    }
}

/// Returns the thread indices of the launch that a stage belongs to, with variable and extent.
pub fn threads_around(bounded: &BoundedSchedule, id: StageId) -> Vec<(ThreadIndex, Var, Expr)> {
    match launch_of(&bounded.schedule, id) {
        Some(launch) => thread_loops(&bounded.schedule, &bounded.bounds, launch),
        None => Vec::new(),
    }
}

/// Whether a loop of the stage is bound to a block or thread index.
fn is_bound(stage: &Stage) -> bool {
    let real = |index| matches!(index, ThreadIndex::Block(_) | ThreadIndex::Thread(_));
    stage.leaves.iter().any(|leaf| bound_index(stage, *leaf).is_some_and(real))
}

/// Returns the thread indices of a launch that have more than one value, with variable and extent.
fn thread_loops(
    schedule: &Schedule,
    bounds: &[Option<StageBounds>],
    launch: StageId,
) -> Vec<(ThreadIndex, Var, Expr)> {
    let mut found: Vec<(ThreadIndex, Var, Expr)> = Vec::new();
    for id in schedule.order.iter().copied() {
        if launch_of(schedule, id) != Some(launch) {
            continue;
        }
        let stage = schedule.stage(id);
        let extents = &bounds[id.0].as_ref().expect("all are inferred").extents;
        for leaf in &stage.leaves {
            let Some(index @ ThreadIndex::Thread(_)) = bound_index(stage, *leaf) else { continue };
            let (var, extent) = (stage.axis(*leaf).var.clone(), extents[leaf.0].clone());
            if extent.as_int() != Some(1) && found.iter().all(|(other, ..)| *other != index) {
                found.push((index, var, extent));
            }
        }
    }
    found
}

/// Whether a condition can differ between threads of a block.
fn differs(schedule: &Schedule, cond: &Expr) -> bool {
    any_expr(cond, &mut |e| e.as_var().is_some_and(|var| is_private(schedule, var)))
}

/// Whether a `shared` stage, which has barriers, is computed inside loop `depth` of a stage.
fn has_barrier_inside(schedule: &Schedule, id: StageId, depth: Option<usize>) -> bool {
    schedule.order.iter().copied().any(|other| {
        let Attach::At { stage, axis, .. } = schedule.stage(other).attach else { return false };
        let inside = stage == id && attach_depth(schedule.stage(id), axis) >= depth;
        let shared = schedule.stage(other).scope == Some(Scope::Shared);
        inside && (shared || has_barrier_inside(schedule, other, None))
    })
}

/// Returns the place of a loop's annotation.
fn span_of(stage: &Stage, leaf: AxisId) -> Span {
    stage.axis(leaf).annotation.map_or(stage.span, |(_, span)| span)
}
