//! Directives that say where a stage is computed: `compute_at`, `compute_inline`, `compute_root`,
//! `auto_inline_injective`.

use super::directives::{Call, Value};
use super::state::{Attach, Schedule};
use crate::diag::{Diag, Result, Span};
use crate::te::Body;

/// `S.compute_at(P, i)`: in each iteration of loop `i` of `P`, as much of `S` as it needs.
pub fn compute_at(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
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
    detach(schedule, call);
    let stage = schedule.stage_mut(id);
    stage.attach = Attach::At { stage: *consumer, axis, span: call.span };
    stage.touched = true;
    schedule.stage_mut(*consumer).axis_mut(axis).attached = Some(call.span);
    Ok(Vec::new())
}

/// `S.compute_root()`: whole, before all that read it.
pub fn compute_root(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    detach(schedule, call);
    let stage = schedule.stage_mut(call.stage());
    stage.attach = Attach::Root;
    stage.touched = true;
    Ok(Vec::new())
}

/// `S.compute_inline()`: in the expressions that read it.
pub fn compute_inline(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
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
    detach(schedule, call);
    let stage = schedule.stage_mut(id);
    stage.attach = Attach::Inline { span: call.span };
    stage.touched = true;
    Ok(Vec::new())
}

/// Inlines every stage that has no reduction, is no output and has no directive yet.
pub fn auto_inline_injective(schedule: &mut Schedule, span: Span) {
    for stage in &mut schedule.stages {
        if !stage.touched && !stage.te.output && matches!(stage.te.body, Body::Map(_)) {
            stage.attach = Attach::Inline { span };
            stage.touched = true;
        }
    }
}

/// A stage that moves away leaves the loop that it was attached to, if nothing else is there.
fn detach(schedule: &mut Schedule, call: &Call) {
    let Attach::At { stage, axis, .. } = schedule.stage(call.stage()).attach else { return };
    let others = schedule.stages.iter().enumerate().find_map(|(at, other)| match other.attach {
        Attach::At { stage: s, axis: a, span } if (s, a) == (stage, axis) => {
            (at != call.stage().0).then_some(span)
        }
        _ => None,
    });
    schedule.stage_mut(stage).axis_mut(axis).attached = others;
}

fn output_moved(schedule: &Schedule, call: &Call, how: &str) -> Diag {
    let name = &schedule.stage(call.stage()).te.name;
    Diag::new("E0343", call.span, format!("`{name}` is an output and cannot be {how}"))
        .note("all of it is a result of the kernel")
        .help(format!("schedule a copy: `let L = {name}.cache_write(local)`"))
}
