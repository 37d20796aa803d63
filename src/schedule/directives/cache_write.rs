//! `cache_write`: a new stage computes the elements, and the stage copies them.
//!
//! Before: `C[x] = sum(A[x, k], axis=k)`.
//! After `C.cache_write(local)`: `C.local[x] = sum(A[x, k], axis=k)`, `C[x] = C.local[x]`.

use super::call::{Call, Value};
use super::linear_reductions::Scatter;
use super::set_scope::storage_scope;
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result};
use crate::ir::Expr;
use crate::ir::visit::substitute;
use crate::schedule::annotations::StageAnnotation;
use crate::schedule::derived_stage::{data_axes, insert_stage, load, rename};
use crate::schedule::layout::{Layout, parse_layout};
use crate::schedule::state::Schedule;
use crate::te::{self, Body, Recurrence};

/// `C.cache_write(SCOPE)`: a new stage computes the elements of `C`, and `C` copies them.
pub(super) static CACHE_WRITE: Directive = Directive {
    name: "cache_write",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("scope", ArgKind::Scope), optional("layout", ArgKind::Exprs)],
    usage: "cache_write(local) or cache_write(local, layout=[x // 8, y, x % 8])",
    run: cache_write,
    check: None,
};

fn cache_write(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let scope = storage_scope(schedule, call)?;
    check_untouched(schedule, call)?;
    let mut te = schedule.stage(id).te.clone();
    let layout = write_layout(schedule, call, &te)?;
    te.output = false;
    te.update = None;
    te.recurrence = te.recurrence.as_ref().map(Recurrence::of_added_stage);
    if let Some(layout) = &layout {
        te = lay_out(te, layout);
    }
    rename(schedule, &mut te, scope.name(), scope);
    let buffers = te.buffers.clone();
    let new = insert_stage(schedule, te, id, call.span);
    schedule.stage_mut(new).scope = Some(scope);
    let stage = schedule.stage_mut(id);
    let indices: Vec<Expr> = stage.te.axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let places = layout.map_or(indices.clone(), |layout| layout.places(&indices));
    stage.te.body = Body::Map(buffers.iter().map(|b| load(b, places.clone())).collect());
    // No directive has made axes yet, so those of the reduction are last.
    stage.axes.truncate(stage.te.axes.len());
    stage.leaves.retain(|leaf| leaf.0 < stage.te.axes.len());
    stage.computed_by = Some(new);
    Ok(vec![Value::Stage(new)])
}

/// Returns the layout of `C.cache_write(SCOPE, layout=[…])`, which must have an element at each
/// place (E0353).
fn write_layout(schedule: &Schedule, call: &Call, te: &te::Stage) -> Result<Option<Layout>> {
    if call.args[1].is_none() {
        return Ok(None);
    }
    let axes: Vec<String> = te.axes.iter().map(|axis| axis.var.name().to_string()).collect();
    let shape: Vec<Expr> = te.axes.iter().map(|axis| axis.extent.clone()).collect();
    let layout = parse_layout(schedule, (call, 1), &te.name, &axes, &shape)?;
    let places: Vec<Expr> =
        data_axes("p", &layout.shape).iter().map(|axis| Expr::var(&axis.var)).collect();
    if layout.inside(&places, &layout.elements(&places)).is_some() {
        let text = format!("the layout has places without an element of `{}`", te.name);
        return Err(Box::new(
            Diag::new("E0353", call.span_of(1), text)
                .note("the new stage would compute values there that are not elements")
                .help("take divisors of the extents"),
        ));
    }
    Ok(Some(layout))
}

/// Returns the stage that computes the same elements in the order of the layout, with axes `p0`,
/// `p1`, ….
fn lay_out(te: te::Stage, layout: &Layout) -> te::Stage {
    let axes = data_axes("p", &layout.shape);
    let places: Vec<Expr> = axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let elements = layout.elements(&places);
    let mut body = te.body.clone();
    body.map_exprs(&mut |expr| {
        substitute(expr, &mut |var| {
            let at = te.axes.iter().position(|axis| axis.var == *var)?;
            Some(elements[at].clone())
        })
    });
    te::Stage { axes, body, ..te }
}

/// Refuses a stage whose loops were changed (E0351): the new stage takes the loops as declared.
fn check_untouched(schedule: &Schedule, call: &Call) -> Result<()> {
    let stage = schedule.stage(call.stage());
    let name = &stage.te.name;
    let declared = stage.leaves.iter().enumerate().all(|(at, leaf)| at == leaf.0);
    let replaced = stage.axes.iter().find_map(|axis| axis.replaced);
    let scatters = |annotation: &StageAnnotation| annotation.value::<Scatter>().is_some();
    let mut annotations = stage.annotations().iter();
    let annotated = annotations.find(|one| one.axis.is_some() || scatters(one));
    let annotated = annotated.map(|annotation| (annotation.directive.name, annotation.span));
    let loop_annotation = stage.axes.iter().find_map(|axis| axis.annotation);
    // The stages of a step stand in its loop without a directive.
    let steps = stage.te.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
    let inside = stage.leaves.iter().skip(steps);
    let attached = inside.copied().find_map(|leaf| schedule.attached_to(call.stage(), leaf));
    let (what, place) = match (replaced.or(annotated), loop_annotation, attached) {
        (Some((directive, place)), ..) => (directive, Some(place)),
        (None, Some((annotation, place)), _) => (annotation.name(), Some(place)),
        (None, None, Some(place)) => ("compute_at", Some(place)),
        _ if !declared => ("reorder", stage.moved),
        _ => return Ok(()),
    };
    let text = format!("the loops of `{name}` were changed before `cache_write`");
    let diag = Diag::new("E0351", call.span, text)
        .note(format!("the new stage takes the loops of `{name}` as they were declared"))
        .help("write `cache_write` first, then schedule the two stages one by one");
    Err(Box::new(match place {
        Some(place) => diag.related(place, format!("`{what}` here")),
        None => diag,
    }))
}
