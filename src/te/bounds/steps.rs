//! Reads of earlier steps of a recurrence: the check proves that the step is computed already, or
//! refuses the program (E0263).
//!
//! Steps run in lexicographic order. A stage may also read the current step of the stages in front
//! of it.

use super::decide::constant_axes;
use super::text::show;
use super::walker::Walker;
use super::witness::{Domain, SearchResult, find_violation};
use crate::diag::{Diag, Span};
use crate::ir::simplify::simplify_expr;
use crate::ir::{Buffer, Expr, Var};
use crate::te::StepRead;

/// Proves or refuses a load from the buffer of earlier steps.
pub(super) fn check_step(walker: &mut Walker, buffer: &Buffer, indices: &[Expr], span: Span) {
    let Some(producer) = walker.checker.previous.get(buffer).copied() else { return };
    let in_step = producer < walker.place;
    let axes: Vec<Var> = walker.axes[..walker.steps].iter().map(|axis| axis.var.clone()).collect();
    let distance = |(axis, index)| distance(walker, axis, index);
    let mut distances: Vec<_> = axes.iter().zip(indices).map(distance).collect();
    let mut found = Some(None);
    if !is_earlier(walker, &axes, indices, in_step) {
        found = search(walker, &axes, indices, in_step);
        // It searched along one axis.
        distances[0].0 = distances[0].0.max(Some(if in_step { 0 } else { 1 }));
    }
    if found == Some(None) {
        let place = walker.place;
        walker.checker.step_reads.push((place, StepRead { span, distances }));
        return;
    }
    let name = &buffer.name;
    let steps = |exprs: &[Expr]| exprs.iter().map(show).collect::<Vec<_>>().join(", ");
    let read = steps(&indices[..axes.len()]);
    let own: Vec<&str> = axes.iter().map(Var::name).collect();
    let own = own.join(", ");
    let text = match &found {
        Some(Some(at)) => format!("`{name}[{read}, …]` is not computed yet at {at}"),
        _ => format!("`{name}[{read}, …]` may not be computed yet"),
    };
    let text = if indices.len() == axes.len() { text.replace(", …]", "]") } else { text };
    let note = match in_step {
        true => format!("step `{own}` may read `{name}` up to step `{own}`"),
        false => format!("step `{own}` may read earlier steps of `{name}` only"),
    };
    let last = own.rsplit(", ").next().unwrap_or_default();
    let help =
        format!("read `{last} - 1` where `{last} > 0`, or state a condition with `if` or `where`");
    walker.refuse(Diag::new("E0263", span, text).note(note).help(help));
}

/// Whether the step `indices` is provably before the step `axes`, or the same if `in_step`.
fn is_earlier(walker: &Walker, axes: &[Var], indices: &[Expr], in_step: bool) -> bool {
    let facts = &walker.checker.facts;
    for (axis, index) in axes.iter().zip(indices) {
        if index.as_var() == Some(axis) {
            continue;
        }
        let axis = Expr::var(axis);
        if facts.prove(&Expr::lt(index.clone(), axis.clone())) {
            return true;
        }
        if !facts.prove(&Expr::le(index.clone(), axis)) {
            return false;
        }
    }
    in_step
}

/// A distance beyond this counts as unknown, so that sums of distances need no more than 64 bits.
const MAX_DISTANCE: i128 = 1 << 32;

/// Returns bounds of the difference between an axis of the steps and the index of a read.
fn distance(walker: &Walker, axis: &Var, index: &Expr) -> (Option<i64>, Option<i64>) {
    let facts = &walker.checker.facts;
    let axis = Expr::var(axis);
    let difference = simplify_expr(&Expr::sub(axis.clone(), index.clone()), facts);
    let (least, most) = facts.const_bounds(&difference);
    let bound = |bound: i128| (bound.abs() <= MAX_DISTANCE).then_some(bound as i64);
    let (mut least, most) = (least.and_then(bound), most.and_then(bound));
    if least < Some(1) && facts.prove(&Expr::lt(index.clone(), axis.clone())) {
        least = Some(1);
    } else if least < Some(0) && facts.prove(&Expr::le(index.clone(), axis)) {
        least = Some(0);
    }
    (least, most)
}

/// Looks for a step that reads a later one, if there is one axis of steps with a constant range.
/// `Some(None)` if there is none, `None` if that is unknown.
fn search(
    walker: &Walker,
    axes: &[Var],
    indices: &[Expr],
    in_step: bool,
) -> Option<Option<String>> {
    let ([axis], index) = (axes, indices.first()?) else { return None };
    let ahead = Expr::sub(index.clone(), Expr::var(axis));
    let guards = walker.guards_at_entry();
    let profile = walker.profile(guards.iter().map(|(cond, _)| cond).chain([&ahead]));
    if !profile.constant() {
        return None;
    }
    let ranges = constant_axes(walker, &profile)?;
    let last = if in_step { 0 } else { -1 };
    let domain = Domain { axes: &ranges, guards: &guards };
    match find_violation(&domain, &ahead, i128::from(i64::MIN), last)? {
        SearchResult::Holds => Some(None),
        SearchResult::Unknown => None,
        SearchResult::Violated(point, _) => {
            let values = ranges.iter().zip(&point);
            let values: Vec<String> =
                values.map(|((var, ..), value)| format!("{} = {value}", var.name())).collect();
            Some(Some(values.join(", ")))
        }
    }
}
