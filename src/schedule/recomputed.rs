//! Notes about stages of which a schedule computes more than twice as many elements as they have.
//!
//! Before: `S.compute_at(C, o)`, an iteration of `o` reads elements from both ends of `S`.
//! After: a note that all iterations together compute 1024 times as many elements as `S` has.
//! Copies, converted ones too, are left out: a tile of an input is copied as often as it is used.

use super::phases::BoundedSchedule;
use super::state::{Attach, StageId};
use super::threads::is_private;
use crate::ir::{Expr, ExprKind, Scope};
use crate::te::Body;

/// Returns a note for each stage of which a schedule computes more than twice as many elements as
/// it has. Stages whose extents depend on run-time integers get no note.
pub fn note_recomputed(bounded: &BoundedSchedule) -> Vec<String> {
    let mut notes = Vec::new();
    for of in bounded.versions.iter().map(|version| &version.of).chain([bounded]) {
        notes.extend(of.schedule.order.iter().filter_map(|id| note_stage(of, *id)));
    }
    notes
}

fn note_stage(bounded: &BoundedSchedule, id: StageId) -> Option<String> {
    let schedule = &bounded.schedule;
    let stage = schedule.stage(id);
    let Attach::At { stage: consumer, axis, .. } = stage.attach else { return None };
    let is_load = |value: &Expr| match &value.kind {
        ExprKind::Cast(inner) => matches!(inner.kind, ExprKind::Load { .. }),
        kind => matches!(kind, ExprKind::Load { .. }),
    };
    let is_copy = match &stage.te.body {
        Body::Map(values) => values.iter().all(is_load),
        Body::Reduce(_) | Body::Sort(_) => false,
    };
    if is_copy {
        return None;
    }
    let bounds = bounded.of(id);
    // The threads of a block compute a shared stage together.
    let together = stage.scope == Some(Scope::Shared);
    let loops = bounds.enclosing_loops.iter();
    let loops = loops.filter(|(var, ..)| !(together && is_private(schedule, var)));
    let iterations = product(loops.map(|(.., extent)| extent))?;
    let region = product(bounds.shape.iter())?;
    let all = product(stage.te.axes.iter().map(|axis| &axis.extent))?;
    let computed = region.checked_mul(iterations)?;
    (computed > all.checked_mul(2)?).then(|| {
        let consumer = schedule.stage(consumer);
        format!(
            "`{name}` of `{kernel}` has {all} elements, but up to {computed} are computed: each \
             iteration of `{axis}` of `{consumer}` computes {region}",
            name = stage.te.name,
            kernel = schedule.graph.name,
            axis = consumer.axis(axis).name,
            consumer = consumer.te.name,
        )
    })
}

/// Returns the product of constant extents; `None` if one of them is not constant, or for too large
/// ones.
fn product<'a>(mut extents: impl Iterator<Item = &'a Expr>) -> Option<i128> {
    extents.try_fold(1i128, |product, extent| product.checked_mul(extent.as_int()?))
}
