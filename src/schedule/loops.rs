//! Directives that change the loops of one stage: `split`, `tile`, `fuse`, `reorder`, and the
//! annotations `unroll`, `vectorize`, `parallel`.
//!
//! Here is checked what names and kinds of axes tell; [`super::legality`] checks what depends on
//! extents.

use super::directives::{Call, Value};
use super::rfactor::rfactor_call;
use super::state::{
    Annotation, AxisId, AxisKind, Factor, Relation, Schedule, Stage, StageId, Tail,
};
use crate::diag::{Diag, Result, Span};

/// `S.split(i, factor=f)`, `nparts=p`, `factors=[a, b]`: `i` becomes an outer and an inner axis,
/// `factors` makes one more than it has elements.
pub fn split(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
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
    let stage = schedule.stage_mut(id);
    check_splittable(stage, axis, call.span_of(0), "split")?;
    let name = stage.axis(axis).name.clone();
    if call.args[3].is_some() {
        let factors = call.list(3).iter().map(|arg| match arg.value {
            Value::Int(factor) => check_factor(factor, arg.span),
            _ => crate::bug!("a factor that is no integer"),
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

/// `S.tile(x, y, a, b)`: both are split and the inner parts go inside: `xo, yo, xi, yi`. What was
/// between or around them stays where it is.
pub fn tile(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
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
    let stage = schedule.stage_mut(id);
    check_splittable(stage, x, call.span_of(0), "tile")?;
    check_splittable(stage, y, call.span_of(1), "tile")?;
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

/// `S.fuse(a, b, …)`: neighbours become one axis; `S.fuse(*)` takes all data axes.
pub fn fuse(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let stage = schedule.stage_mut(id);
    let named = call.axes(0);
    let parts = expand_star(stage, &named, call)?;
    if parts.len() < 2 {
        let text = "`fuse` needs at least two axes";
        return Err(Box::new(Diag::new("E0322", call.span, text)));
    }
    for (part, span) in &parts {
        check_splittable(stage, *part, *span, "fuse")?;
    }
    let parts: Vec<AxisId> = parts.iter().map(|(part, _)| *part).collect();
    let kinds: Vec<AxisKind> = parts.iter().map(|part| stage.axis(*part).kind).collect();
    if kinds.iter().any(|kind| *kind != kinds[0]) {
        let text = "a data axis and a reduction axis cannot be fused";
        let diag = Diag::new("E0322", call.span, text);
        return Err(Box::new(diag.note("data axes enumerate elements, reduction axes terms")));
    }
    let first = position(stage, parts[0]);
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
    stage.touched = true;
    Ok(axis_values(id, &[fused]))
}

/// `S.reorder(a, b, …)`: the named loops take each other's places in this order; `*` stands for the
/// data axes not named.
pub fn reorder(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let stage = schedule.stage_mut(id);
    let axes = expand_star(stage, &call.axes(0), call)?;
    let order: Vec<AxisId> = axes.iter().map(|(axis, _)| *axis).collect();
    place(stage, &order);
    note_order(stage, &order, call.span, call.flag(1));
    stage.moved = Some(call.span);
    stage.touched = true;
    Ok(Vec::new())
}

/// `S.unroll(i)`: the loop is written out.
pub fn unroll(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    annotate(schedule, call, Annotation::Unroll)
}

/// `S.vectorize(i)`: all iterations at once, one lane each.
pub fn vectorize(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    annotate(schedule, call, Annotation::Vectorize)
}

/// `S.parallel(i)`: iterations are shared out to threads.
pub fn parallel(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    if schedule.target.is_gpu() {
        let diag = Diag::new("E0311", call.span, "`parallel` needs a CPU target");
        return Err(Box::new(diag.help(
            "a GPU shares iterations out to blocks and threads: `bind(i, blockIdx.x)`; or write \
             this schedule `for cpu`",
        )));
    }
    annotate(schedule, call, Annotation::Parallel)
}

/// Gives the axis of the first argument its annotation.
pub(super) fn annotate(
    schedule: &mut Schedule,
    call: &Call,
    annotation: Annotation,
) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    let axis = call.axis(0);
    let name = stage.axis(axis).name.clone();
    if let Some((old, span)) = stage.axis(axis).annotation {
        let text = format!("axis `{name}` takes one annotation, and has `{}`", old.name());
        let diag = Diag::new("E0324", call.span_of(0), text);
        return Err(Box::new(diag.related(span, "annotated here")));
    }
    if stage.axis(axis).kind == AxisKind::Reduce && annotation != Annotation::Unroll {
        let diag = reduction_annotated(schedule, axis, call, annotation);
        schedule.checked(Err(Box::new(diag)))?;
    }
    let stage = schedule.stage_mut(call.stage());
    stage.axis_mut(axis).annotation = Some((annotation, call.span));
    stage.touched = true;
    Ok(Vec::new())
}

/// Iterations of a reduction axis all write the same element.
fn reduction_annotated(schedule: &Schedule, axis: AxisId, call: &Call, how: Annotation) -> Diag {
    let stage = schedule.stage(call.stage());
    let (name, of) = (&stage.axis(axis).name, &stage.te.name);
    let element = match &stage.te.axes[..] {
        [] => format!("`{of}`"),
        axes => {
            let names: Vec<&str> = axes.iter().map(|axis| axis.var.name()).collect();
            format!("`{of}[{}]`", names.join(", "))
        }
    };
    let (text, why) = match how {
        Annotation::Vectorize => (
            format!("reduction axis `{name}` of `{of}` cannot be vectorized"),
            format!("every lane of `{name}` would add to the same {element}"),
        ),
        _ => (
            format!("reduction axis `{name}` of `{of}` cannot run in parallel"),
            format!("iterations `{name} = 0` and `{name} = 1` both read and write {element}"),
        ),
    };
    let diag = Diag::new("E0325", call.span_of(0), text).note(why);
    match rfactor_call(schedule, call.stage(), name) {
        Some(rfactor) => {
            let call = match how {
                Annotation::Thread(index) => format!("P.bind({name}, {})", index.name()),
                _ => format!("P.{}({name})", how.name()),
            };
            diag.help(format!(
                "make partial results of their own first: `let P = {rfactor}`, then `{call}`"
            ))
        }
        None => diag.help("annotate a data axis"),
    }
}

/// Splits a loop; the parts stand where it stood.
pub(super) fn split_axis(
    stage: &mut Stage,
    parent: AxisId,
    names: &(String, String),
    factor: Factor,
    tail: Option<Tail>,
    span: Span,
) -> (AxisId, AxisId) {
    let kind = stage.axis(parent).kind;
    let at = position(stage, parent);
    stage.leaves.remove(at);
    stage.axis_mut(parent).replaced = Some(("split", span));
    let outer = stage.add_axis(&names.0, kind);
    stage.leaves.insert(at, outer);
    let inner = stage.add_axis(&names.1, kind);
    stage.leaves.insert(at + 1, inner);
    stage.relations.push(Relation::Split { parent, outer, inner, factor, tail, span });
    stage.touched = true;
    (outer, inner)
}

fn check_factor(factor: i64, span: Span) -> Result<i64> {
    if factor >= 1 {
        return Ok(factor);
    }
    let text = format!("a factor must be at least 1, this one is {factor}");
    Err(Box::new(Diag::new("E0321", span, text)))
}

/// An axis that is annotated, or that a stage is attached to, stays as it is.
pub(super) fn check_splittable(
    stage: &Stage,
    axis: AxisId,
    span: Span,
    directive: &str,
) -> Result<()> {
    let axis = stage.axis(axis);
    let (why, place) = match (axis.annotation, axis.attached, axis.used) {
        (Some((annotation, place)), ..) => (format!("has `{}`", annotation.name()), place),
        (None, Some(place), _) => ("has a stage attached".to_string(), place),
        (None, None, Some((directive, place))) => (format!("has `{directive}`"), place),
        (None, None, None) => return Ok(()),
    };
    let text = format!("axis `{}` {why} and cannot go into `{directive}`", axis.name);
    Err(Box::new(
        Diag::new("E0324", span, text)
            .related(place, "here")
            .help(format!("write the `{directive}` before that line")),
    ))
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

fn position(stage: &Stage, axis: AxisId) -> usize {
    stage.leaves.iter().position(|leaf| *leaf == axis).expect("the axis is a loop")
}

/// The axes named, once each; `*` becomes the data axes not named, in their order.
fn expand_star(
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
fn place(stage: &mut Stage, order: &[AxisId]) {
    let mut next = order.iter();
    for leaf in &mut stage.leaves {
        if order.contains(leaf) {
            *leaf = *next.next().expect("as many places as axes");
        }
    }
}

/// Remembers who moved reduction axes, for the check of their order.
fn note_order(stage: &mut Stage, order: &[AxisId], span: Span, reassociate: bool) {
    let reduce = order.iter().filter(|axis| stage.axis(**axis).kind == AxisKind::Reduce);
    if reduce.count() > 1 {
        let before = stage.reordered.is_some_and(|(_, allowed)| allowed);
        stage.reordered = Some((span, reassociate || before));
    }
}

fn join(stage: &Stage, axes: &[AxisId]) -> String {
    let names: Vec<String> =
        axes.iter().map(|axis| format!("`{}`", stage.axis(*axis).name)).collect();
    match &names[..] {
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}

fn axis_values(stage: StageId, axes: &[AxisId]) -> Vec<Value> {
    axes.iter().map(|axis| Value::Axis(stage, *axis)).collect()
}
