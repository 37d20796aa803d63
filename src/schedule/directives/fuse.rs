//! `fuse`: neighbouring loops become one.
//!
//! Before: loops `a`, `b`. After `S.fuse(a, b)`: loop `a_b`, `a = a_b // extent(b)`, `b = a_b %
//! extent(b)`.

use super::call::{Call, Value};
use super::reorder::expand_star;
use super::split::{axis_values, check_splittable};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result};
use crate::schedule::state::{AxisId, AxisKind, Relation, Schedule, Stage};

/// `S.fuse(a, b, …)`: fuses neighbouring loops into one; `S.fuse(*)` takes all data axes.
pub(super) static FUSE: Directive = Directive {
    name: "fuse",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("axes", ArgKind::Axes)],
    usage: "fuse(a, b, …) or fuse(*)",
    run: fuse,
    check: None,
};

fn fuse(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let parts = expand_star(schedule.stage(id), &call.axes(0), call)?;
    if parts.len() < 2 {
        let text = "`fuse` needs at least two axes";
        return Err(Box::new(Diag::new("E0322", call.span, text)));
    }
    for (part, span) in &parts {
        check_splittable(schedule, id, *part, *span, "fuse")?;
    }
    let stage = schedule.stage_mut(id);
    let parts: Vec<AxisId> = parts.iter().map(|(part, _)| *part).collect();
    let kinds: Vec<AxisKind> = parts.iter().map(|part| stage.axis(*part).kind).collect();
    if kinds.iter().any(|kind| *kind != kinds[0]) {
        let text = "a data axis and a reduction axis cannot be fused";
        let diag = Diag::new("E0322", call.span, text);
        return Err(Box::new(diag.note("data axes enumerate elements, reduction axes terms")));
    }
    let first = stage.place_of(parts[0]);
    if stage.leaves.get(first..first + parts.len()) != Some(&parts[..]) {
        let names = join(stage, &parts);
        let text = format!("{names} are not neighbours in this order");
        let order = stage.axis_names().join(", ");
        return Err(Box::new(
            Diag::new("E0322", call.span, text)
                .note(format!("the loops of `{}` are {order}", stage.te.name))
                .help("bring them together with `reorder` first"),
        ));
    }
    let name = parts.iter().map(|part| &stage.axis(*part).name[..]).collect::<Vec<_>>().join("_");
    stage.leaves.drain(first..first + parts.len());
    for part in &parts {
        stage.axis_mut(*part).replaced = Some(("fuse", call.span));
    }
    let fused = stage.add_axis(&name, kinds[0]);
    stage.leaves.insert(first, fused);
    stage.relations.push(Relation::Fuse { parts, fused, span: call.span });
    Ok(axis_values(id, &[fused]))
}

/// Returns the names of axes for a message: `` `a`, `b` and `c` ``.
fn join(stage: &Stage, axes: &[AxisId]) -> String {
    let names: Vec<String> =
        axes.iter().map(|axis| format!("`{}`", stage.axis(*axis).name)).collect();
    match &names[..] {
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}
