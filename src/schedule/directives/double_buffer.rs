//! `double_buffer`: a stage is computed one iteration ahead of its readers.

use super::call::{Call, Value};
use super::{Directive, Subject, Targets};
use crate::diag::{Diag, Result, Span};
use crate::ir::Buffering;
use crate::schedule::bounds::attach_depth;
use crate::schedule::legality::AttachPoint;
use crate::schedule::phases::Inference;
use crate::schedule::state::{Annotation, Attach, Schedule, StageId};

/// `S.double_buffer()`: gives `S` two buffers. Each iteration of the loop that `S` is attached to
/// computes the elements that the next one reads. The annotation is a [`Buffering`].
pub(super) static DOUBLE_BUFFER: Directive = Directive {
    name: "double_buffer",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[],
    usage: "double_buffer()",
    run: double_buffer,
    check: Some(check),
};

fn double_buffer(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    stage.replace_annotation(call.directive, None, call.span, Buffering::Double);
    Ok(Vec::new())
}

/// Checks a stage that is computed ahead of its readers: it is attached to a loop whose iterations
/// run one after the other (E0372), and reads nothing that the same iteration computes (E0373).
pub(super) fn check(inference: &Inference, id: StageId, span: Span) -> Result<()> {
    let (schedule, reads) = (&inference.bounded.schedule, &inference.reads);
    let name = &schedule.stage(id).te.name;
    let help = format!("attach it to a serial loop: `{name}.compute_at(CONSUMER, AXIS)`");
    let Attach::At { stage: consumer, axis, .. } = schedule.stage(id).attach else {
        let text = format!("`{name}` is not computed inside a loop");
        return Err(Box::new(
            Diag::new("E0372", span, text)
                .note(
                    "each buffer belongs to an iteration of the loop that the stage is attached to",
                )
                .help(help),
        ));
    };
    let target = schedule.stage(consumer);
    let depth = attach_depth(target, axis);
    let looped = depth.map(|depth| target.axis(target.leaves[depth]));
    let why = match looped {
        None => {
            format!("`{}` is vectorized: all lanes read `{name}` at once", target.axis(axis).name)
        }
        Some(looped) => match looped.annotation {
            None | Some((Annotation::Unroll, _)) => String::new(),
            Some((how, _)) => format!(
                "`{}` has `{}`: its iterations do not run one after the other",
                looped.name,
                how.name()
            ),
        },
    };
    if !why.is_empty() {
        let text = format!("`{name}` is not computed in a serial loop");
        return Err(Box::new(Diag::new("E0372", span, text).note(why).help(help)));
    }
    // Stages that the same iteration computes, but not only for `S`.
    let point = AttachPoint { schedule, stage: consumer, depth };
    let own = |other: StageId| other == id || is_within(schedule, other, id);
    for other in schedule.order.iter().copied().filter(|other| !own(*other)) {
        let inside = other != consumer && point.encloses(other, false);
        let read = reads.of_stage(other).iter().find(|read| own(read.by));
        if let (true, Some(_)) = (inside, read) {
            let (made, looped) = (&schedule.stage(other).te.name, looped.map(|axis| &axis.name));
            let looped = looped.map_or("", |name| &name[..]);
            let text = format!("`{name}` reads `{made}`, which is computed in the same iteration");
            return Err(Box::new(
                Diag::new("E0373", span, text)
                    .note(format!(
                        "each iteration of `{looped}` computes `{name}` for a later one, whose \
                         `{made}` does not exist yet"
                    ))
                    .help(format!("compute `{made}` inside `{name}` or outside of `{looped}`")),
            ));
        }
    }
    Ok(())
}

/// Whether a stage is attached to `outer`, directly or through other stages.
fn is_within(schedule: &Schedule, mut id: StageId, outer: StageId) -> bool {
    // A chain of attachments has at most as many stages as the order.
    for _ in 0..schedule.order.len() {
        let Attach::At { stage, .. } = schedule.stage(id).attach else { return false };
        if stage == outer {
            return true;
        }
        id = stage;
    }
    false
}
