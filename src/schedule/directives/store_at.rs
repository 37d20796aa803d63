//! `store_at` and `store_root`: where the buffer of an attached stage is, if not where the stage is
//! computed.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::Result;
use crate::schedule::state::{AxisId, Schedule, StageId};

/// The annotation of the stage that is stored; `schedule::sliding` implements it.
#[derive(Debug)]
pub(in crate::schedule) struct StoreAt {
    /// The loop in which the buffer is; `None` if it is outside of all loops.
    pub(in crate::schedule) inside: Option<(StageId, AxisId)>,
}

/// The annotation of the stage that has this loop, which can no longer be split.
#[derive(Debug)]
struct HasStorage;

/// `S.store_at(P, i)`: the buffer of `S` exists for one iteration of loop `i` of `P`, and each
/// iteration of the loop that `S` is attached to computes only the elements that it has not yet.
pub(super) static STORE_AT: Directive = Directive {
    name: "store_at",
    subject: Subject::Stage,
    targets: Targets::Cpus,
    params: &[required("stage", ArgKind::Stage), required("axis", ArgKind::AxisOfStage)],
    usage: "store_at(CONSUMER, axis)",
    run: store_at,
    check: None,
};

fn store_at(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let Some(Value::Stage(host)) = call.value(0) else { crate::bug!("`store_at` without a stage") };
    let (host, axis) = (*host, call.axis(1));
    let place = StoreAt { inside: Some((host, axis)) };
    schedule.stage_mut(call.stage()).replace_annotation(call.directive, None, call.span, place);
    let host = schedule.stage_mut(host);
    host.annotate(call.directive, Some(axis), call.span, HasStorage);
    host.touched = true;
    Ok(Vec::new())
}

/// `S.store_root()`: the buffer of `S` exists during the whole call.
pub(super) static STORE_ROOT: Directive = Directive {
    name: "store_root",
    subject: Subject::Stage,
    targets: Targets::Cpus,
    params: &[],
    usage: "store_root()",
    run: store_root,
    check: None,
};

fn store_root(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let place = StoreAt { inside: None };
    schedule.stage_mut(call.stage()).replace_annotation(call.directive, None, call.span, place);
    Ok(Vec::new())
}
