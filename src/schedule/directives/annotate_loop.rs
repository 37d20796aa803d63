//! `unroll`, `vectorize`, `parallel`: how the iterations of a loop run.

use super::call::{Call, Value};
use super::rfactor::rfactor_call;
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result};
use crate::schedule::derived_stage::proposed_name;
use crate::schedule::state::{Annotation, AxisId, AxisKind, Schedule};

/// `S.unroll(i)`: writes out the iterations of the loop.
pub(super) static UNROLL: Directive = Directive {
    name: "unroll",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("i", ArgKind::Axis)],
    usage: "unroll(i)",
    run: |schedule, call| annotate(schedule, call, Annotation::Unroll),
    check: None,
};

/// `S.vectorize(i)`: runs all iterations at once, one in each lane of a vector.
pub(super) static VECTORIZE: Directive = Directive {
    name: "vectorize",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("i", ArgKind::Axis)],
    usage: "vectorize(i)",
    run: |schedule, call| annotate(schedule, call, Annotation::Vectorize),
    check: None,
};

/// `S.parallel(i)`: distributes the iterations over the threads of a CPU.
pub(super) static PARALLEL: Directive = Directive {
    name: "parallel",
    subject: Subject::Stage,
    targets: Targets::Cpus,
    params: &[required("i", ArgKind::Axis)],
    usage: "parallel(i)",
    run: |schedule, call| annotate(schedule, call, Annotation::Parallel),
    check: None,
};

/// Annotates the loop of the first argument, which may have no annotation yet (E0324).
pub(super) fn annotate(
    schedule: &mut Schedule,
    call: &Call,
    annotation: Annotation,
) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    let axis = call.axis(0);
    let name = stage.axis(axis).name.clone();
    if let Some((old, span)) = stage.axis(axis).annotation {
        let text = format!("axis `{name}` takes one annotation, and has `{}`", old.name());
        let diag = Diag::new("E0324", call.span_of(0), text);
        return Err(Box::new(diag.related(span, "annotated here")));
    }
    if stage.axis(axis).kind == AxisKind::Reduce && annotation != Annotation::Unroll {
        let diag = reduction_annotated(schedule, axis, call, annotation);
        schedule.checked(Err(Box::new(diag)))?;
    }
    let stage = schedule.stage_mut(call.stage());
    stage.axis_mut(axis).annotation = Some((annotation, call.span));
    Ok(Vec::new())
}

/// Returns the error for a reduction axis (E0325): its iterations all write the same element.
fn reduction_annotated(schedule: &Schedule, axis: AxisId, call: &Call, how: Annotation) -> Diag {
    let stage = schedule.stage(call.stage());
    let (name, of) = (&stage.axis(axis).name, &stage.te.name);
    let element = match &stage.te.axes[..] {
        [] => format!("`{of}`"),
        axes => {
            let names: Vec<&str> = axes.iter().map(|axis| axis.var.name()).collect();
            format!("`{of}[{}]`", names.join(", "))
        }
    };
    let (text, why) = match how {
        Annotation::Vectorize => (
            format!("reduction axis `{name}` of `{of}` cannot be vectorized"),
            format!("every lane of `{name}` would add to the same {element}"),
        ),
        _ => (
            format!("reduction axis `{name}` of `{of}` cannot run in parallel"),
            format!("iterations `{name} = 0` and `{name} = 1` both read and write {element}"),
        ),
    };
    let diag = Diag::new("E0325", call.span_of(0), text).note(why);
    match rfactor_call(schedule, call.stage(), name) {
        Some(rfactor) => {
            let parts = proposed_name(schedule, "P");
            let call = match how {
                Annotation::Thread(index) => format!("{parts}.bind({name}, {})", index.name()),
                _ => format!("{parts}.{}({name})", how.name()),
            };
            diag.help(format!(
                "first make partial results with `let {parts} = {rfactor}`, then `{call}`"
            ))
        }
        None => diag.help("annotate a data axis"),
    }
}
