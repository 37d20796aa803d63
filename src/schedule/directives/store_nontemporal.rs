//! `store_nontemporal`: the stores of a stage bypass the caches.

use super::call::{Call, Value};
use super::{Directive, Subject, Targets};
use crate::diag::{Diag, Result, Span};
use crate::ir::Scope;
use crate::schedule::derived_stage::proposed_name;
use crate::schedule::phases::Inference;
use crate::schedule::state::{Attach, Schedule, StageId};
use crate::te::Body;

/// The annotation of `store_nontemporal`.
#[derive(Debug)]
pub struct StoreNontemporal;

/// `S.store_nontemporal()`: a hint that nothing reads the elements of `S` soon, so that their
/// stores bypass the caches.
pub(super) static STORE_NONTEMPORAL: Directive = Directive {
    name: "store_nontemporal",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[],
    usage: "store_nontemporal()",
    run: store_nontemporal,
    check: Some(check),
};

fn store_nontemporal(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    stage.replace_annotation(call.directive, None, call.span, StoreNontemporal);
    Ok(Vec::new())
}

/// Checks that the stage is stored in memory and not read in the same loops (E0390).
fn check(inference: &Inference, id: StageId, span: Span) -> Result<()> {
    let stage = inference.bounded.schedule.stage(id);
    let name = &stage.te.name;
    let scope = stage.scope.unwrap_or(stage.te.buffers[0].scope);
    let (why, help) = if let Body::Reduce(_) = stage.te.body {
        let note = format!("each reduction term of `{name}` reads and stores the running value");
        let copy = proposed_name(&inference.bounded.schedule, "L");
        (note, format!("store a copy of the results: `let {copy} = {name}.cache_write(local)`"))
    } else if let Attach::At { .. } = stage.attach {
        let note = format!("`{name}` is computed in the loops of the stage that reads it");
        (note, format!("leave it out, or write `{name}.compute_root()`"))
    } else if scope != Scope::Global {
        let note = format!("`{name}` is {}", scope.name());
        (note, format!("leave it out, or write `{name}.set_scope(global)`"))
    } else {
        return Ok(());
    };
    let text = format!("the elements of `{name}` are read again soon");
    Err(Box::new(Diag::new("E0390", span, text).note(why).help(help)))
}
