//! `reorder`: loops of a stage exchange their places.
//!
//! Before: loops `i`, `j`, `k`. After `S.reorder(k, i)`: loops `k`, `j`, `i`.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result, Span};
use crate::schedule::state::{AxisId, AxisKind, Schedule, Stage};

/// `S.reorder(a, b, …)`: puts the named loops, in this order, into the places that they have
/// together; `*` stands for the data axes that are not named.
pub(super) static REORDER: Directive = Directive {
    name: "reorder",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("axes", ArgKind::Axes), optional("reassociate", ArgKind::Bool)],
    usage: "reorder(a, b, …)",
    run: reorder,
    check: None,
};

fn reorder(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let stage = schedule.stage_mut(id);
    let axes = expand_star(stage, &call.axes(0), call)?;
    let order: Vec<AxisId> = axes.iter().map(|(axis, _)| *axis).collect();
    place(stage, &order);
    note_order(stage, &order, call.span, call.flag(1));
    stage.moved = Some(call.span);
    Ok(Vec::new())
}

/// Returns the named axes, with `*` replaced by the data axes that are not named. No axis may be
/// named twice (E0323).
pub(super) fn expand_star(
    stage: &Stage,
    named: &[(Option<AxisId>, Span)],
    call: &Call,
) -> Result<Vec<(AxisId, Span)>> {
    for (at, (axis, span)) in named.iter().enumerate() {
        if named[..at].iter().any(|(earlier, _)| earlier == axis) {
            let what = match axis {
                Some(axis) => format!("axis `{}`", stage.axis(*axis).name),
                None => "`*`".to_string(),
            };
            let text = format!("{what} is named twice");
            return Err(Box::new(Diag::new("E0323", *span, text)));
        }
    }
    if named.is_empty() {
        let text = "at least one axis is expected";
        return Err(Box::new(Diag::new("E0322", call.span, text)));
    }
    let rest = stage.leaves.iter().copied().filter(|leaf| {
        stage.axis(*leaf).kind == AxisKind::Data && named.iter().all(|(n, _)| *n != Some(*leaf))
    });
    let rest: Vec<AxisId> = rest.collect();
    let mut axes = Vec::new();
    for (axis, span) in named {
        match axis {
            Some(axis) => axes.push((*axis, *span)),
            None => axes.extend(rest.iter().map(|axis| (*axis, *span))),
        }
    }
    Ok(axes)
}

/// Puts `order` into the places that these loops have now.
pub(super) fn place(stage: &mut Stage, order: &[AxisId]) {
    let mut next = order.iter();
    for leaf in &mut stage.leaves {
        if order.contains(leaf) {
            *leaf = *next.next().expect("as many places as axes");
        }
    }
}

/// Notes a directive that moved reduction axes, for the check of their order.
pub(super) fn note_order(stage: &mut Stage, order: &[AxisId], span: Span, reassociate: bool) {
    let reduce = order.iter().filter(|axis| stage.axis(**axis).kind == AxisKind::Reduce);
    if reduce.count() > 1 {
        let before = stage.reordered.is_some_and(|(_, allowed)| allowed);
        stage.reordered = Some((span, reassociate || before));
    }
}
