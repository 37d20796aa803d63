//! `split` and `tile`: a loop becomes an outer and an inner loop.
//!
//! Before: loop `i` of 100 iterations. After `S.split(i, factor=8)`: loops `i_o` of 13 and `i_i` of
//! 8, and `i = i_o*8 + i_i`, guarded where the factor does not divide.

use super::call::{Call, Value};
use super::reorder::{note_order, place};
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result, Span};
use crate::schedule::state::{Attach, AxisId, Factor, Relation, Schedule, Stage, StageId, Tail};

/// `S.split(i, factor=f)`, `nparts=p` or `factors=[a, b]`: splits `i` into an outer and an inner
/// loop; a list of factors makes one loop more than it has elements.
pub(super) static SPLIT: Directive = Directive {
    name: "split",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[
        required("i", ArgKind::Axis),
        optional("factor", ArgKind::Int),
        optional("nparts", ArgKind::Int),
        optional("factors", ArgKind::Ints),
        optional("tail", ArgKind::Word),
    ],
    usage: "split(i, factor=f), split(i, nparts=p) or split(i, factors=[a, b])",
    run: split,
    check: None,
};

fn split(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let axis = call.axis(0);
    let given = [1, 2, 3].iter().filter(|param| call.args[**param].is_some()).count();
    if given != 1 {
        let text = "`split` takes exactly one of `factor=`, `nparts=`, `factors=`";
        return Err(Box::new(
            Diag::new("E0320", call.span, text).help("write `split(i, factor=8)`"),
        ));
    }
    let tail = tail_of(call, 4)?;
    check_splittable(schedule, id, axis, call.span_of(0), "split")?;
    let stage = schedule.stage_mut(id);
    let name = stage.axis(axis).name.clone();
    if call.args[3].is_some() {
        let factors = call.list(3).iter().map(|arg| match arg.value {
            Value::Int(factor) => check_factor(factor, arg.span),
            _ => crate::bug!("a factor is an integer"),
        });
        let factors: Vec<i64> = factors.collect::<Result<_>>()?;
        if factors.is_empty() {
            let text = "`factors=` needs at least one factor";
            return Err(Box::new(Diag::new("E0320", call.span_of(3), text)));
        }
        let mut inner: Vec<AxisId> = Vec::new();
        let mut rest = axis;
        for (place, factor) in factors.iter().enumerate().rev() {
            let outer_name = if place == 0 { format!("{name}_0") } else { name.clone() };
            let names = (outer_name, format!("{name}_{}", place + 1));
            let (outer, part) =
                split_axis(stage, rest, &names, Factor::Inner(*factor), tail, call.span);
            inner.insert(0, part);
            rest = outer;
        }
        inner.insert(0, rest);
        return Ok(axis_values(id, &inner));
    }
    let factor = match (call.int(1), call.int(2)) {
        (Some(factor), _) => Factor::Inner(check_factor(factor, call.span_of(1))?),
        (None, Some(parts)) => Factor::Outer(check_factor(parts, call.span_of(2))?),
        (None, None) => crate::bug!("a split without a factor"),
    };
    let names = (format!("{name}_o"), format!("{name}_i"));
    let (outer, inner) = split_axis(stage, axis, &names, factor, tail, call.span);
    Ok(axis_values(id, &[outer, inner]))
}

/// `S.tile(x, y, a, b)`: splits both loops and moves the inner parts inwards: `xo, yo, xi, yi`.
/// Loops between and around them keep their places.
pub(super) static TILE: Directive = Directive {
    name: "tile",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[
        required("x", ArgKind::Axis),
        required("y", ArgKind::Axis),
        required("a", ArgKind::Int),
        required("b", ArgKind::Int),
        optional("tail", ArgKind::Word),
    ],
    usage: "tile(x, y, a, b)",
    run: tile,
    check: None,
};

fn tile(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let (x, y) = (call.axis(0), call.axis(1));
    if x == y {
        let text = format!("axis `{}` is named twice", schedule.stage(id).axis(x).name);
        return Err(Box::new(Diag::new("E0323", call.span_of(1), text)));
    }
    let factor = |param| {
        let factor = call.int(param).expect("the parameter is required");
        check_factor(factor, call.span_of(param))
    };
    let (a, b) = (factor(2)?, factor(3)?);
    let tail = tail_of(call, 4)?;
    check_splittable(schedule, id, x, call.span_of(0), "tile")?;
    check_splittable(schedule, id, y, call.span_of(1), "tile")?;
    let stage = schedule.stage_mut(id);
    let mut split = |axis: AxisId, factor| {
        let name = stage.axis(axis).name.clone();
        let names = (format!("{name}_o"), format!("{name}_i"));
        split_axis(stage, axis, &names, Factor::Inner(factor), tail, call.span)
    };
    let ((xo, xi), (yo, yi)) = (split(x, a), split(y, b));
    let order = [xo, yo, xi, yi];
    place(stage, &order);
    note_order(stage, &order, call.span, false);
    Ok(axis_values(id, &order))
}

/// Splits a loop; its parts take its place. Returns the outer and the inner one.
pub(super) fn split_axis(
    stage: &mut Stage,
    parent: AxisId,
    names: &(String, String),
    factor: Factor,
    tail: Option<Tail>,
    span: Span,
) -> (AxisId, AxisId) {
    let kind = stage.axis(parent).kind;
    let at = stage.place_of(parent);
    stage.leaves.remove(at);
    stage.axis_mut(parent).replaced = Some(("split", span));
    let outer = stage.add_axis(&names.0, kind);
    stage.leaves.insert(at, outer);
    let inner = stage.add_axis(&names.1, kind);
    stage.leaves.insert(at + 1, inner);
    stage.relations.push(Relation::Split { parent, outer, inner, factor, tail, span });
    (outer, inner)
}

pub(super) fn check_factor(factor: i64, span: Span) -> Result<i64> {
    if factor >= 1 {
        return Ok(factor);
    }
    let text = format!("a factor must be at least 1, not {factor}");
    Err(Box::new(Diag::new("E0321", span, text)))
}

/// Refuses a loop that has an annotation or an attached stage (E0324).
pub(super) fn check_splittable(
    schedule: &Schedule,
    id: StageId,
    axis: AxisId,
    span: Span,
    directive: &str,
) -> Result<()> {
    let stage = schedule.stage(id);
    let name = &stage.axis(axis).name;
    let attached = schedule.attached_to(id, axis);
    let (why, place) = match (stage.axis(axis).annotation, attached, stage.annotation_at(axis)) {
        (Some((annotation, place)), ..) => (format!("has `{}`", annotation.name()), place),
        (None, Some(place), _) => ("has a stage attached".to_string(), place),
        (None, None, Some(annotation)) => {
            (format!("has `{}`", annotation.directive.name), annotation.span)
        }
        (None, None, None) => return Ok(()),
    };
    // No directive attached the stages that a step computes.
    let of_step = schedule.stages.iter().find_map(|stage| match stage.attach {
        Attach::At { span, .. } if span == place && span == stage.te.span => Some(&stage.te.name),
        _ => None,
    });
    let help = match of_step {
        Some(inner) => format!("inline `{inner}` first: `{inner}.compute_inline()`"),
        None => format!("write the `{directive}` before that line"),
    };
    let text = format!("axis `{name}` {why}, so `{directive}` cannot replace it");
    Err(Box::new(Diag::new("E0324", span, text).related(place, "here").help(help)))
}

fn tail_of(call: &Call, param: usize) -> Result<Option<Tail>> {
    Ok(Some(match call.word(param) {
        None => return Ok(None),
        Some("peel") => Tail::Peel,
        Some("mask") => Tail::Mask,
        Some("guard") => Tail::Guard,
        Some("shift") => Tail::Shift,
        Some(other) => {
            let text = format!("`tail={other}` is none of `peel`, `mask`, `guard`, `shift`");
            return Err(Box::new(Diag::new("E0320", call.span_of(param), text)));
        }
    }))
}

/// Returns the results of a directive that makes loops.
pub(super) fn axis_values(stage: StageId, axes: &[AxisId]) -> Vec<Value> {
    axes.iter().map(|axis| Value::Axis(stage, *axis)).collect()
}
