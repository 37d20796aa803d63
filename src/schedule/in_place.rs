//! The order of the reads of an `inout` tensor and of its `update`, which writes the same memory.
//!
//! Stages at the root run in the order of the schedule, which is that of the source. Directives can
//! move a read into the nest of the update or behind it: by inlining, by `compute_at`, by
//! `compute_with`. A read in the nest of the update is right if it is of the element that the same
//! iteration writes later, and if the update computes each of its elements once.

use super::fused::group_of;
use super::reads::for_each_read;
use super::state::{Attach, Relation, Schedule, StageId, Tail};
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{Buffer, Expr, Var};
use crate::target::Target;
use crate::te::{self, Body, Graph, Update};

/// Checks that the source, without a schedule, reads no element that it has overwritten (E0349).
pub fn check_updates(graph: &Graph, target: &Target) -> Result<()> {
    match graph.stages.iter().any(|stage| stage.update.is_some()) {
        true => check_order(&Schedule::new(graph.clone(), target)),
        false => Ok(()),
    }
}

/// Checks the reads of every tensor that is updated in place (E0349).
pub(super) fn check_order(schedule: &Schedule) -> Result<()> {
    for id in schedule.order.iter().copied() {
        if let Some(update) = &schedule.stage(id).te.update {
            check_update(schedule, id, update)?;
        }
    }
    Ok(())
}

/// Whether a stage in front of an `update` reads the elements that it overwrites, so that the stage
/// has to be computed at the root.
pub fn reads_overwritten(schedule: &Schedule, id: StageId) -> bool {
    let te = &schedule.stage(id).te;
    let mut found = false;
    for_each_read(&te.body, &mut |buffer, _, _, _| {
        found |= te.update.is_none() && schedule.graph.update_of(buffer).is_some();
    });
    found
}

fn check_update(schedule: &Schedule, id: StageId, update: &Update) -> Result<()> {
    let nest = nest_of(schedule, id);
    let (mut wrong, mut reads_in_nest): (Option<Box<Diag>>, bool) = (None, false);
    for by in schedule.order.iter().copied() {
        let own = nest_of(schedule, by);
        for_each_read(&schedule.stage(by).te.body, &mut |buffer, indices, _, initial| {
            reads_in_nest |= *buffer == update.before && own == nest;
            let found = if wrong.is_some() {
                None
            } else if *buffer == update.after {
                (own <= nest).then(|| read_early(schedule, by, id))
            } else if *buffer != update.before || own < nest {
                None
            } else if own > nest {
                Some(read_late(schedule, by, id))
            } else if by == id && !initial && matches!(schedule.stage(id).te.body, Body::Reduce(_))
            {
                Some(read_by_term(schedule, id))
            } else {
                let written = element_of(schedule, id, id).map(|own| update.place(&own));
                let read = element_of(schedule, by, id);
                let read = read.map(|own| at_element(indices, &schedule.stage(by).te, &own));
                let root = &schedule.stage(id).te;
                let same = Option::zip(written, read).is_some_and(|(a, b)| {
                    all_equal(&without_unit_axes(root, &a), &without_unit_axes(root, &b))
                });
                (!same).then(|| read_elsewhere(schedule, by, id))
            };
            wrong = wrong.take().or(found.map(Box::new));
        });
    }
    if let (None, true, Some(span)) = (&wrong, reads_in_nest, shifted_tail(schedule, id)) {
        wrong = Some(Box::new(computed_twice(schedule, id, span)));
    }
    wrong.map_or(Ok(()), Err)
}

/// Returns the `split` whose last step computes elements of the step before it again.
fn shifted_tail(schedule: &Schedule, id: StageId) -> Option<Span> {
    schedule.stage(id).relations.iter().find_map(|relation| match relation {
        Relation::Split { tail: Some(Tail::Shift), span, .. } => Some(*span),
        _ => None,
    })
}

/// Returns the place in the order of the first stage of the root nest that computes a stage.
fn nest_of(schedule: &Schedule, mut id: StageId) -> Option<usize> {
    // At most as many steps as stages.
    for _ in 0..schedule.order.len() {
        let Attach::At { stage, .. } = schedule.stage(id).attach else { break };
        id = stage;
    }
    let group = group_of(schedule, id);
    schedule.order.iter().position(|other| group.contains(other))
}

/// Returns the element of `stage` that is computed for an element of `root`, over the axes of
/// `root`; `None` if there are several. `stage` is `root`, or attached to loops of its nest. On a
/// GPU, other threads may compute an attached stage again, at any time.
fn element_of(schedule: &Schedule, stage: StageId, root: StageId) -> Option<Vec<Expr>> {
    let te = &schedule.stage(stage).te;
    if stage == root {
        return Some(te.axes.iter().map(|axis| Expr::var(&axis.var)).collect());
    }
    let attached = matches!(schedule.stage(stage).attach, Attach::At { .. });
    if !attached || schedule.target.is_gpu() {
        return None;
    }
    let mut element: Option<Vec<Expr>> = None;
    for by in schedule.order.iter().copied() {
        let reader = &schedule.stage(by).te;
        let mut reads: Vec<Vec<Expr>> = Vec::new();
        for_each_read(&reader.body, &mut |buffer: &Buffer, indices, _, _| {
            if te.buffers.contains(buffer) {
                reads.push(indices.to_vec());
            }
        });
        if reads.is_empty() {
            continue;
        }
        let around = element_of(schedule, by, root)?;
        for indices in reads {
            let read = at_element(&indices, reader, &around);
            match &element {
                Some(known) if !all_equal(known, &read) => return None,
                _ => element = Some(read),
            }
        }
    }
    element
}

/// Returns indices over the axes of a stage for one of its elements.
fn at_element(indices: &[Expr], te: &te::Stage, element: &[Expr]) -> Vec<Expr> {
    let place = |index: &Expr| {
        substitute(index, &mut |var| {
            let at = te.axes.iter().position(|axis| axis.var == *var)?;
            Some(element[at].clone())
        })
    };
    indices.iter().map(place).collect()
}

/// Returns indices over the axes of a stage, with 0 for those of one element.
fn without_unit_axes(te: &te::Stage, indices: &[Expr]) -> Vec<Expr> {
    let is_unit =
        |var: &Var| te.axes.iter().any(|axis| axis.var == *var && axis.extent.as_int() == Some(1));
    let place = |index: &Expr| substitute(index, &mut |var| is_unit(var).then(|| Expr::index(0)));
    indices.iter().map(place).collect()
}

fn all_equal(a: &[Expr], b: &[Expr]) -> bool {
    let facts = Facts::new();
    let mut pairs = a.iter().zip(b);
    pairs.all(|(a, b)| equal(&simplify_expr(a, &facts), &simplify_expr(b, &facts)))
}

/// Returns an error about a stage, at the directive that moved it if there is one.
fn refuse(schedule: &Schedule, by: StageId, id: StageId, text: String) -> Diag {
    let (reader, update) = (schedule.stage(by), schedule.stage(id));
    let diag = match reader.attach {
        Attach::At { span, .. } => {
            let declared = format!("`{}` is declared here", reader.te.name);
            Diag::new("E0349", span, text).related(reader.te.span, declared)
        }
        _ => Diag::new("E0349", reader.te.span, text),
    };
    match by == id {
        true => diag,
        false => diag.related(update.te.span, "the update is here"),
    }
}

fn read_elsewhere(schedule: &Schedule, by: StageId, id: StageId) -> Diag {
    let (reader, name) = (&schedule.stage(by).te.name, &schedule.stage(id).te.name);
    if by == id {
        let text = format!("the update of `{name}` reads elements that it may have overwritten");
        return refuse(schedule, by, id, text)
            .note("in place, an element may read itself only")
            .help(format!(
                "compute the new elements first: `compute New[…] = …`, `update {name}[…] = New[…]`"
            ));
    }
    let text = format!("`{reader}` reads elements of `{name}` that may be overwritten already");
    refuse(schedule, by, id, text)
        .note(format!("it is computed in the loops of the update of `{name}`"))
        .help(format!("compute `{reader}` at the root: leave out `compute_at`"))
}

fn read_by_term(schedule: &Schedule, id: StageId) -> Diag {
    let name = &schedule.stage(id).te.name;
    let text = format!("the terms of the update of `{name}` read `{name}`");
    refuse(schedule, id, id, text)
        .note("the reduction is accumulated in the memory of the tensor; `init=` may read it")
        .help(format!("reduce in a stage: `compute New[…] = …`, `update {name}[…] = New[…]`"))
}

fn computed_twice(schedule: &Schedule, id: StageId, span: Span) -> Diag {
    let name = &schedule.stage(id).te.name;
    let text = format!("`tail=shift` updates elements of `{name}` twice");
    Diag::new("E0349", span, text)
        .note("the second time, their old values are gone")
        .related(schedule.stage(id).te.span, "the update is here")
        .help("write `tail=peel` or `tail=guard`")
}

fn read_late(schedule: &Schedule, by: StageId, id: StageId) -> Diag {
    let (reader, name) = (&schedule.stage(by).te.name, &schedule.stage(id).te.name);
    let text = format!("`{reader}` reads the old elements of `{name}`, which are overwritten then");
    refuse(schedule, by, id, text)
        .note(format!("`{reader}` is computed after the update of `{name}`"))
        .help(format!(
            "copy them before the update, in a stage at the root: `compute Old[…] = {name}[…]`"
        ))
}

fn read_early(schedule: &Schedule, by: StageId, id: StageId) -> Diag {
    let (reader, name) = (&schedule.stage(by).te.name, &schedule.stage(id).te.name);
    let text = format!("`{reader}` reads the new elements of `{name}` before they are written");
    refuse(schedule, by, id, text).help(format!("compute `{reader}` after the update of `{name}`"))
}
