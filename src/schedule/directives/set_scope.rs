//! `set_scope`: the memory that a stage is stored in.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result};
use crate::ir::Scope;
use crate::schedule::derived_stage::proposed_name;
use crate::schedule::state::Schedule;

/// `S.set_scope(SCOPE)`: stores the elements of `S` in this memory.
pub(super) static SET_SCOPE: Directive = Directive {
    name: "set_scope",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("scope", ArgKind::Scope)],
    usage: "set_scope(local)",
    run: set_scope,
    check: None,
};

fn set_scope(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let scope = storage_scope(schedule, call)?;
    let copy = proposed_name(schedule, "L");
    let stage = schedule.stage_mut(call.stage());
    if stage.te.output {
        let name = &stage.te.name;
        let text = format!("`{name}` is an output, which is stored in memory of the caller");
        return Err(Box::new(
            Diag::new("E0350", call.span, text)
                .help(format!("store a copy there: `let {copy} = {name}.cache_write(local)`")),
        ));
    }
    stage.scope = Some(scope);
    Ok(Vec::new())
}

/// Returns the scope that the first argument names; `shared` needs a GPU (E0350).
pub(super) fn storage_scope(schedule: &Schedule, call: &Call) -> Result<Scope> {
    let Some(Value::Scope(scope)) = call.value(0) else { crate::bug!("no scope") };
    match scope {
        Scope::Shared if !schedule.target.is_gpu() => {
            let text = format!(
                "`shared` is memory of a GPU's thread blocks, but {} is a CPU",
                schedule.target
            );
            Err(Box::new(
                Diag::new("E0350", call.span_of(0), text).help("write `local` or `global`"),
            ))
        }
        scope => Ok(*scope),
    }
}
