//! `pipeline`: a GPU copies data to shared memory several iterations before it is read.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, double_buffer, required};
use crate::diag::{Diag, Result, Span};
use crate::ir::{Buffering, Scope};
use crate::schedule::phases::Inference;
use crate::schedule::state::{Attach, Schedule, StageId};

/// The largest number of stages.
const MAX_STAGES: u32 = 16;

/// The first GPUs with `cp.async`, as compute capability times 10 (PTX ISA).
const COPIES_FROM: u32 = 80;

/// A loop with a pipeline of so many stages.
#[derive(Clone, Copy, Debug)]
struct Pipeline(u32);

/// `S.pipeline(i, stages)`: the shared stages that are attached to loop `i` of `S` are copied
/// `stages - 1` iterations before they are read.
pub(super) static PIPELINE: Directive = Directive {
    name: "pipeline",
    subject: Subject::Stage,
    targets: Targets::Gpus,
    params: &[required("i", ArgKind::Axis), required("stages", ArgKind::Int)],
    usage: "pipeline(i, stages=3)",
    run: pipeline,
    check: Some(check),
};

fn pipeline(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (axis, stages) = (call.axis(0), call.int(1).unwrap_or(2));
    let Some(stages) = u32::try_from(stages).ok().filter(|n| (2..=MAX_STAGES).contains(n)) else {
        let text = format!("a pipeline must have 2 to {MAX_STAGES} stages, not {stages}");
        return Err(Box::new(
            Diag::new("E0391", call.span_of(1), text)
                .note("each stage is a copy of the shared memory that the loop reads"),
        ));
    };
    if stages > 2 && !has_async_copies(schedule) {
        let text = format!("a pipeline of {stages} stages needs the instruction `cp.async`");
        return Err(Box::new(
            Diag::new("E0403", call.span, text)
                .note(format!(
                    "it needs nvptx-sm_{COPIES_FROM} or later, but the target is {}",
                    schedule.target
                ))
                .help("with `stages=2` the copies wait in registers"),
        ));
    }
    let stage = schedule.stage_mut(call.stage());
    let mut pipelines = stage.annotations_of::<Pipeline>();
    if let Some((old, _)) = pipelines.find(|(old, _)| old.axis == Some(axis)) {
        let text = format!("`{}` already has a pipeline", stage.axis(axis).name);
        return Err(Box::new(Diag::new("E0391", call.span, text).related(old.span, "here")));
    }
    drop(pipelines);
    stage.annotate(call.directive, Some(axis), call.span, Pipeline(stages));
    Ok(Vec::new())
}

/// Gives the shared stages that are attached to the loop of a pipeline the [`Buffering`] of the
/// pipeline, and checks that there is one (E0391).
pub(in crate::schedule) fn assign_pipelines(schedule: &mut Schedule) -> Result<()> {
    // Without asynchronous copies, two stages that pass through registers are a double buffer.
    let buffering = |stages| match has_async_copies(schedule) {
        true => Buffering::Pipeline(stages),
        false => Buffering::Double,
    };
    let mut pipelines = Vec::new();
    for id in schedule.order.iter().copied() {
        for (annotation, Pipeline(stages)) in schedule.stage(id).annotations_of() {
            pipelines.push((id, annotation.clone(), buffering(*stages)));
        }
    }
    for (consumer, annotation, buffering) in pipelines {
        let (axis, span) = (annotation.axis.expect("a pipeline has a loop"), annotation.span);
        let mut found = false;
        for id in schedule.order.clone() {
            let stage = schedule.stage_mut(id);
            let here = matches!(stage.attach, Attach::At { stage, axis: at, .. }
                if stage == consumer && at == axis);
            let shared = stage.scope == Some(Scope::Shared);
            if here && shared && stage.buffering() == Buffering::Single {
                found = true;
                stage.annotate(annotation.directive, None, span, buffering);
            }
        }
        if !found {
            let stage = schedule.stage(consumer);
            let (name, axis) = (&stage.te.name, &stage.axis(axis).name);
            let text = format!("no shared stage is attached to loop `{axis}` of `{name}`");
            return Err(Box::new(Diag::new("E0391", span, text).help(format!(
                "copy what it reads: `let S = A.cache_read(shared, [{name}])` and \
                 `S.compute_at({name}, {axis})`"
            ))));
        }
    }
    Ok(())
}

/// Checks a stage that a pipeline copies as [`double_buffer`] does: it must be attached to a serial
/// loop (E0372) and read nothing that the same iteration computes (E0373).
fn check(inference: &Inference, id: StageId, span: Span) -> Result<()> {
    match inference.bounded.schedule.stage(id).buffering() {
        // The stage whose loop has the pipeline.
        Buffering::Single => Ok(()),
        _ => double_buffer::check(inference, id, span),
    }
}

/// Whether the target has `cp.async`.
fn has_async_copies(schedule: &Schedule) -> bool {
    schedule.target.gpu.is_some_and(|gpu| gpu.capability >= COPIES_FROM)
}
