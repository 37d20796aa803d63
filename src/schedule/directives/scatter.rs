//! `scatter`: each term of a reduction is added to the element that it belongs to.
//!
//! Before: `H[b] = sum(1, axis=k, where=A[k] == b)`: for each `b`, all terms are compared with `b`.
//! After `H.scatter(b)`: `H[b] = 0` for all `b`, then `H[A[k]] = H[A[k]] + 1` for all `k`.
//!
//! The condition gives the axis as a function of the term, so a term belongs to at most one value
//! of the axis. The loops over terms keep their order, so each element meets the same terms in the
//! same order. Terms whose element is not one of the stage are skipped, as before.

use super::call::{Call, Value};
use super::linear_reductions::{Scan, Scatter, conditional_reduction, is_small};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::mentions;
use crate::ir::{BinOp, DType, Expr, ExprKind, Var};
use crate::schedule::bounds::attach_depth;
use crate::schedule::fused::shared_loops;
use crate::schedule::phases::Inference;
use crate::schedule::state::{Attach, AxisId, AxisKind, Relation, Schedule, Stage, StageId};
use crate::te::{Body, Reduction};

/// `H.scatter(b)`: adds each term to the element along `b` that its `where=` names.
pub(super) static SCATTER: Directive = Directive {
    name: "scatter",
    subject: Subject::Stage,
    targets: Targets::Cpus,
    params: &[required("b", ArgKind::Axis)],
    usage: "scatter(b)",
    run: scatter,
    check: Some(check),
};

fn scatter(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (id, axis) = (call.stage(), call.axis(0));
    let found = find_scatter(schedule, id, axis).map_err(|why| {
        let stage = schedule.stage(id);
        let text = format!("the terms of `{}` cannot be scattered along `{}`", stage.te.name, {
            &stage.axis(axis).name
        });
        let diag = Diag::new("E0360", call.span_of(0), text).note(why.text);
        Box::new(diag.help(why.help))
    })?;
    move_loop(schedule.stage_mut(id), axis, call.directive, call.span, found);
    Ok(Vec::new())
}

/// Scatters the terms of a stage along a data axis, if that is possible.
pub(in crate::schedule) fn apply_scatter(schedule: &mut Schedule, id: StageId, axis: usize) {
    if let Ok(found) = find_scatter(schedule, id, AxisId(axis)) {
        move_loop(schedule.stage_mut(id), AxisId(axis), &SCATTER, Span::default(), found);
    }
}

/// Moves the loop of a scattered axis, which only stores start values, inside of the loops over
/// terms, so that all start values are stored before the terms.
fn move_loop(
    stage: &mut Stage,
    axis: AxisId,
    directive: &'static Directive,
    span: Span,
    scatter: Scatter,
) {
    let is_term = |leaf: &AxisId| stage.axis(*leaf).kind == AxisKind::Reduce;
    let last = stage.leaves.iter().rposition(is_term);
    let place = stage.place_of(axis);
    if let Some(last) = last.filter(|last| place < *last) {
        stage.leaves[place..=last].rotate_left(1);
    }
    stage.annotate(directive, None, span, scatter);
}

/// Returns the data axes along which the terms of a stage can be scattered, one at a time.
pub fn scatter_axes(schedule: &Schedule, id: StageId) -> Vec<usize> {
    let rank = schedule.stage(id).rank();
    (0..rank).filter(|axis| find_scatter(schedule, id, AxisId(*axis)).is_ok()).collect()
}

/// Why the terms of a stage cannot be scattered.
struct Refusal {
    text: String,
    help: String,
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        let help = "the `where=` of the reduction must compare the axis with a value of the term: \
                    `sum(X[k], axis=k, where=A[k] == b)`";
        Refusal { text, help: help.to_string() }
    }
}

/// Returns the scatter of a stage along a data axis; the error says why there is none.
fn find_scatter(
    schedule: &Schedule,
    id: StageId,
    axis: AxisId,
) -> std::result::Result<Scatter, Refusal> {
    let stage = schedule.stage(id);
    let reduction = conditional_reduction(stage, axis, "scatter")?;
    let (name, loop_name) = (&stage.te.name, &stage.axis(axis).name);
    if stage.annotation::<Scan>().is_some() {
        return Err(format!("`{name}` is computed by a scan").into());
    }
    let scattered = || stage.annotations_of::<Scatter>().map(|(_, scatter)| scatter);
    if scattered().any(|scatter| scatter.axis == axis.0) {
        return Err(format!("`{loop_name}` is scattered already").into());
    }
    let var = &stage.te.axes[axis.0].var;
    let earlier = scattered_axes(schedule, stage);
    if let Some(other) = earlier.iter().find(|other| mentions(&other.value, var)) {
        let other = stage.te.axes[other.axis].var.name();
        return Err(format!("the scattered axis `{other}` depends on `{loop_name}`").into());
    }
    match find_place((schedule, stage), reduction, axis.0, &earlier) {
        Ok(_) => Ok(Scatter { axis: axis.0 }),
        Err(NoPlace::TooWide) => Err(Refusal {
            text: format!(
                "`{loop_name}` is not alone on its side of the comparison, and its value for a \
                 term may need more than 64 bits"
            ),
            help: format!(
                "move the rest to the other side, where it wraps around in the type of the value: \
                 `A[k] - 1 == {loop_name}` for `A[k] == {loop_name} + 1`"
            ),
        }),
        Err(NoPlace::Late) => Err(format!(
            "a condition before the comparison with `{loop_name}` depends on `{loop_name}`, and \
             may keep the value in bounds: write the comparison first"
        )
        .into()),
        Err(NoPlace::Unnamed) => {
            Err(format!("its `where=` does not say which `{loop_name}` a term belongs to").into())
        }
    }
}

/// A scattered axis, with the condition that gives its value for a term.
pub struct ScatteredAxis {
    /// The data axis, by its index among the declared ones.
    pub axis: usize,
    /// The place of the condition in [`Reduction::conditions`]. Those before it do not depend on
    /// the axis, or hold for all its values.
    pub place: usize,
    /// The value of the axis, over the other declared axes that are not scattered. It can be
    /// evaluated if the conditions before its own hold.
    pub value: Expr,
}

/// Returns the scattered axes of a stage, in the order of their directives. The conditions are
/// those of now: a later directive may have inlined or copied what they read.
pub fn scattered_axes(schedule: &Schedule, stage: &Stage) -> Vec<ScatteredAxis> {
    let mut found: Vec<ScatteredAxis> = Vec::new();
    let Body::Reduce(reduction) = &stage.te.body else { return found };
    for (_, scatter) in stage.annotations_of::<Scatter>() {
        let Ok(next) = find_place((schedule, stage), reduction, scatter.axis, &found) else {
            crate::bug!("no condition gives a scattered axis of `{}`", stage.te.name)
        };
        found.push(next);
    }
    found
}

/// Why no condition gives the value of an axis.
#[derive(Clone, Copy, PartialEq)]
enum NoPlace {
    /// None compares the axis with a value of the term.
    Unnamed,
    /// One does, after a condition that depends on the axis.
    Late,
    /// One does, but the arithmetic that solves it might exceed 64 bits.
    TooWide,
}

/// Returns the first condition that gives the value of an axis.
fn find_place(
    (schedule, stage): (&Schedule, &Stage),
    reduction: &Reduction,
    axis: usize,
    earlier: &[ScatteredAxis],
) -> std::result::Result<ScatteredAxis, NoPlace> {
    let var = &stage.te.axes[axis].var;
    let mut facts = Facts::new();
    schedule.known_facts().iter().for_each(|cond| facts.assume(cond));
    for axis in stage.te.axes.iter().chain(&reduction.axes) {
        facts.bind(&axis.var, &axis.min, &axis.extent);
    }
    let conditions = reduction.conditions();
    let mut why = NoPlace::Unnamed;
    for (place, condition) in conditions.iter().enumerate() {
        let is_free = |value: &Solved| {
            let depends =
                |other: &ScatteredAxis| mentions(&value.value, &stage.te.axes[other.axis].var);
            !earlier.iter().any(|other| other.place == place || depends(other))
        };
        let Some(value) = solve(condition, var, &facts).filter(is_free) else { continue };
        let Solved { value, fits } = value;
        let decides = |other: &Expr| mentions(other, var) && !facts.prove(other);
        if !fits {
            why = NoPlace::TooWide;
        } else if conditions[..place].iter().any(decides) {
            why = if why == NoPlace::Unnamed { NoPlace::Late } else { why };
        } else {
            return Ok(ScatteredAxis { axis, place, value });
        }
    }
    Err(why)
}

/// The value of a variable that a condition determines.
struct Solved {
    value: Expr,
    /// Whether its arithmetic provably needs no more than 64 bits.
    fits: bool,
}

/// Returns the value of a variable that a condition determines: `f(k) + 3` for `b - 3 == f(k)`.
fn solve(condition: &Expr, var: &Var, facts: &Facts) -> Option<Solved> {
    let ExprKind::Binary(BinOp::Eq, a, b) = &condition.kind else { return None };
    if !mentions(condition, var) {
        return None;
    }
    let (a, b) = (same_bits(a, facts)?, same_bits(b, facts)?);
    for (side, other) in [(&a, &b), (&b, &a)] {
        if side.as_var() == Some(var) {
            let value = |other| Solved { value: simplify_expr(other, facts), fits: true };
            return (!mentions(other, var)).then(|| value(other));
        }
    }
    let (difference, own) = (Expr::sub(a, b), Expr::var(var));
    // The difference is `rest + var` or `rest - var`.
    let plus = simplify_expr(&Expr::sub(difference.clone(), own.clone()), facts);
    let value = match mentions(&plus, var) {
        false => simplify_expr(&Expr::sub(Expr::index(0), plus), facts),
        true => simplify_expr(&Expr::add(difference, own), facts),
    };
    let fits = is_small(&value, facts);
    (!mentions(&value, var)).then_some(Solved { value, fits })
}

/// Returns a side of an equation as an `index`. A `uint64` keeps its 64 bits, so two of them are
/// equal exactly if the results are.
fn same_bits(side: &Expr, facts: &Facts) -> Option<Expr> {
    if !side.ty.is_scalar() || side.ty.dtype != DType::Uint64 {
        return facts.as_index(side);
    }
    match &side.kind {
        ExprKind::Cast(inner) if inner.ty.dtype.is_int() => facts.as_index(inner),
        _ => Some(Expr::cast(DType::Index, side.clone())),
    }
}

/// Whether a loop of a stage only stores start values, because its axis is scattered.
pub fn is_scattered(stage: &Stage, leaf: AxisId) -> bool {
    stage.annotations_of::<Scatter>().any(|(_, scatter)| {
        let mut parts = vec![AxisId(scatter.axis)];
        for relation in &stage.relations {
            if let Relation::Split { parent, outer, inner, .. } = relation
                && parts.contains(parent)
            {
                parts.extend([*outer, *inner]);
            }
        }
        parts.contains(&leaf)
    })
}

/// Checks that the loops of a scattered axis only store start values (E0361).
fn check(inference: &Inference, id: StageId, span: Span) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    // A statement in a `for` may have scattered several axes.
    let scatters = schedule.stage(id).annotations_of::<Scatter>();
    for (_, scatter) in scatters.filter(|(annotation, _)| annotation.span == span) {
        schedule.checked(check_loops(schedule, id, scatter, span))?;
    }
    Ok(())
}

fn check_loops(schedule: &Schedule, id: StageId, scatter: &Scatter, span: Span) -> Result<()> {
    let stage = schedule.stage(id);
    let (name, axis) = (&stage.te.name, stage.te.axes[scatter.axis].var.name());
    let refuse = |text: String, place: Option<Span>, help: &str| {
        let diag = Diag::new("E0361", span, text);
        let diag = diag.note(format!("the loop over `{axis}` only stores the start values"));
        let diag = match place {
            Some(place) => diag.related(place, "here"),
            None => diag,
        };
        Err(Box::new(diag.help(help)))
    };
    let mut parts = vec![AxisId(scatter.axis)];
    for relation in &stage.relations {
        match relation {
            Relation::Split { parent, outer, inner, .. } if parts.contains(parent) => {
                parts.extend([*outer, *inner]);
            }
            Relation::Split { .. } => {}
            Relation::Fuse { span: place, .. } | Relation::Skew { span: place, .. } => {
                let of_parts = |made: &AxisId| parts.contains(made);
                if let Some(part) = relation.replaced().into_iter().find(of_parts) {
                    let how = stage.axis(part).replaced.map_or("fuse", |(how, _)| how);
                    let text = format!("`{how}` of scattered axis `{axis}` with another axis");
                    return refuse(text, Some(*place), &format!("leave out the `{how}`"));
                }
            }
        }
    }
    let is_part = |leaf: &AxisId| parts.contains(leaf);
    let first = stage.leaves.iter().position(is_part).expect("an axis has a loop");
    let is_term = |leaf: &AxisId| stage.axis(*leaf).kind == AxisKind::Reduce;
    if !stage.leaves[..first].iter().any(is_term) {
        let text = format!("the loop over `{axis}` encloses those over the terms of `{name}`");
        let help = format!("move `{axis}` inside of the reduction loops with `reorder`");
        return refuse(text, stage.moved, &help);
    }
    for leaf in &stage.leaves[first..] {
        let annotation = stage.annotation_at(*leaf).filter(|_| is_part(leaf));
        if let Some(annotation) = annotation {
            let text = format!("`{}` of scattered axis `{axis}`", annotation.directive.name);
            return refuse(text, Some(annotation.span), "name another loop");
        }
    }
    let inside = |other: &Stage| match other.attach {
        Attach::At { stage: consumer, axis, span } if consumer == id => {
            (attach_depth(stage, axis) >= Some(first)).then_some(span)
        }
        _ => None,
    };
    if let Some(place) = schedule.stages.iter().find_map(inside) {
        let text = format!("a stage is computed inside of scattered axis `{axis}`");
        let help = "attach it to a loop outside, or move the scattered axis inwards with `reorder`";
        return refuse(text, Some(place), help);
    }
    let shared = shared_loops(schedule);
    if let Some(with) = shared.iter().find(|with| with.guest == id || with.host == id) {
        let text = format!("`{name}`, whose terms are scattered, shares loops");
        return refuse(text, Some(with.span), "leave out the `compute_with`");
    }
    Ok(())
}
