//! A note about kernels that do far more work than their arguments have elements.

use super::passes::{PASSES, PassId};
use super::run_pass::run_pass;
use super::{Options, Trace};
use crate::ir::iterations::{self, note_superlinear_work};
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

/// The extents of the axes of a stage; `None` for those that depend on run-time integers.
fn extents(stage: &Stage) -> impl Iterator<Item = Option<i128>> + '_ {
    stage.axes.iter().chain(stage.reduce_axes()).map(|axis| axis.extent.as_int())
}
