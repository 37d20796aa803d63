//! Notes about work that a user does not expect: far more iterations than the arguments have
//! elements, and loops that check indices before the kernel runs.

use super::passes::{PASSES, PassId};
use super::run_pass::run_pass;
use super::{Options, Trace};
use crate::ir::iterations::{self, note_superlinear_work};
use crate::ir::visit::{any_expr, walk_stmt};
use crate::ir::{Expr, ExprKind, Stmt};
use crate::lower::build_loops::build_loops;
use crate::schedule::{BoundedSchedule, Schedule, copy_linear_work, infer_bounds};
use crate::te::{Graph, Stage};

/// Returns the note about a kernel, if there is one. It counts the iterations of the stages'
/// default loops, scans and scatters, because those of a tiled nest also stand in branches
/// that seldom run.
pub(super) fn note_work(bounded: &BoundedSchedule, options: &Options) -> Option<String> {
    let schedule = &bounded.schedule;
    let stages: Vec<Stage> =
        schedule.order.iter().map(|id| schedule.stage(*id).te.clone()).collect();
    // A kernel may run any number of steps over the same elements.
    if stages.iter().any(|stage| stage.recurrence.is_some()) {
        return None;
    }
    if !stages.iter().any(|stage| iterations::are_many(extents(stage))) {
        return None;
    }
    let graph = Graph { stages, ..schedule.graph.clone() };
    let mut plain = Schedule::new(graph, &options.target);
    copy_linear_work(schedule, &schedule.order, &mut plain);
    let mut kernel = build_loops(&infer_bounds(plain).ok()?).ok()?;
    // The passes only make loops shorter.
    note_superlinear_work(&kernel)?;
    let mut trace = Trace::default();
    for pass in PASSES.iter().take_while(|pass| pass.id != PassId::PartitionLoops) {
        kernel = run_pass(pass.id, kernel, &options.target, options.opt, &mut trace).ok()?;
    }
    note_superlinear_work(&kernel)
}

/// Returns a note for each check of an index that needs a loop on entry although it depends on no
/// element of an input: an `assume` may prove it.
pub(super) fn note_checks(graph: &Graph) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for check in &graph.checks {
        let mut reads = false;
        let is_load = &mut |e: &Expr| matches!(e.kind, ExprKind::Load { .. });
        walk_stmt(check, &mut |_| {}, &mut |e| reads |= any_expr(e, is_load));
        let mut loops = Vec::new();
        if let Some(message) = checked_in_loops(check, &mut loops)
            && !loops.is_empty()
            && !reads
        {
            // "index 0 of `A` is {0}, but …", "`i*j` does not fit 64 bits".
            let what = message.split(" is {").next().unwrap_or(message);
            let what = what.strip_suffix(" does not fit 64 bits").unwrap_or(what);
            let note = format!(
                "each call of `{}` checks {what} in a loop over {} before it computes: an `assume` \
                 or a `clamp` that proves it saves the time",
                graph.name,
                loops.join(", ")
            );
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Returns the message of the assertion in a check, and adds the variables of the loops around it.
fn checked_in_loops<'a>(check: &'a Stmt, loops: &mut Vec<String>) -> Option<&'a str> {
    match check {
        Stmt::For { var, body, .. } => {
            loops.push(format!("`{}`", var.name()));
            checked_in_loops(body, loops)
        }
        Stmt::If { then, .. } => checked_in_loops(then, loops),
        Stmt::Assert { message, .. } => Some(message),
        _ => None,
    }
}

/// The extents of the axes of a stage; `None` for those that depend on run-time integers.
fn extents(stage: &Stage) -> impl Iterator<Item = Option<i128>> + '_ {
    stage.axes.iter().chain(stage.reduce_axes()).map(|axis| axis.extent.as_int())
}
