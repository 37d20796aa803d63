//! `compute_at`, `compute_inline`, `compute_root` and `auto_inline_injective`: where a stage is
//! computed.

use super::call::{Call, Value};
use super::store_at::StoreAt;
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result, Span};
use crate::schedule::derived_stage::proposed_name;
use crate::schedule::state::{Attach, Schedule, StageId};
use crate::schedule::{outlives_its_step, reads_overwritten};
use crate::te::Body;

/// `S.compute_at(P, i)`: each iteration of loop `i` of `P` computes the region of `S` that it
/// reads.
pub(super) static COMPUTE_AT: Directive = Directive {
    name: "compute_at",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("stage", ArgKind::Stage), required("axis", ArgKind::AxisOfStage)],
    usage: "compute_at(CONSUMER, axis)",
    run: compute_at,
    check: None,
};

fn compute_at(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let Some(Value::Stage(consumer)) = call.value(0) else {
        crate::bug!("`compute_at` without a stage")
    };
    let axis = call.axis(1);
    if *consumer == id {
        let text = format!("`{}` cannot be computed inside itself", schedule.stage(id).te.name);
        return Err(Box::new(Diag::new("E0342", call.span_of(0), text)));
    }
    if schedule.stage(id).te.output {
        let diag = output_moved(schedule, call, "computed inside another stage");
        schedule.checked(Err(Box::new(diag)))?;
    }
    schedule.stage_mut(id).attach = Attach::At { stage: *consumer, axis, span: call.span };
    Ok(Vec::new())
}

/// `S.compute_root()`: computes all of `S` before its readers.
pub(super) static COMPUTE_ROOT: Directive = Directive {
    name: "compute_root",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[],
    usage: "compute_root()",
    run: compute_root,
    check: None,
};

fn compute_root(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    stage.attach = Attach::Root;
    stage.remove_annotations(|_, _: &StoreAt| true);
    Ok(Vec::new())
}

/// `S.compute_inline()`: computes elements of `S` in the expressions that read them.
pub(super) static COMPUTE_INLINE: Directive = Directive {
    name: "compute_inline",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[],
    usage: "compute_inline()",
    run: compute_inline,
    check: None,
};

fn compute_inline(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let stage = schedule.stage(id);
    let name = &stage.te.name;
    if stage.te.output {
        schedule.checked(Err(Box::new(output_moved(schedule, call, "inlined"))))?;
    }
    if let Body::Reduce(reduction) = &stage.te.body {
        let text = format!("`{name}` is a reduction and cannot be inlined");
        let axis = reduction.axes.first().map_or("k", |axis| axis.var.name());
        let diag = Diag::new("E0343", call.span, text)
            .note(format!("each element needs a loop over `{axis}`"))
            .help("compute it inside its consumer: `compute_at(CONSUMER, AXIS)`");
        schedule.checked(Err(Box::new(diag)))?;
    }
    if let Body::Sort(sort) = &stage.te.body {
        let text = format!("`{name}` is a sort and cannot be inlined");
        let diag = Diag::new("E0343", call.span, text)
            .note(format!("each element needs all values of `{}`", sort.axis.var.name()))
            .help("compute it inside its consumer: `compute_at(CONSUMER, AXIS)`");
        schedule.checked(Err(Box::new(diag)))?;
    }
    schedule.stage_mut(id).attach = Attach::Inline { span: call.span };
    Ok(Vec::new())
}

/// Inlines every stage that has no reduction, is not an output and has no directive yet.
pub(in crate::schedule) fn auto_inline_injective(schedule: &mut Schedule, span: Span) {
    for at in 0..schedule.stages.len() {
        if outlives_its_step(schedule, StageId(at)) || reads_overwritten(schedule, StageId(at)) {
            continue;
        }
        let stage = &mut schedule.stages[at];
        if !stage.touched && !stage.te.output && matches!(stage.te.body, Body::Map(_)) {
            stage.attach = Attach::Inline { span };
            stage.touched = true;
        }
    }
}

/// Returns the error for an output (E0343), which the caller reads as a whole.
fn output_moved(schedule: &Schedule, call: &Call, how: &str) -> Diag {
    let name = &schedule.stage(call.stage()).te.name;
    let copy = proposed_name(schedule, "L");
    Diag::new("E0343", call.span, format!("`{name}` is an output and cannot be {how}"))
        .note("the caller reads all of it")
        .help(format!("schedule a copy instead: `let {copy} = {name}.cache_write(local)`"))
}
