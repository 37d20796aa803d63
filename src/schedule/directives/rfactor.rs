//! `rfactor`: splits a reduction into partial reductions, which can then run in parallel.
//!
//! Before: `S[i] = sum(A[i, k], axis=k)`, `k` split into `ko`, `ki`.
//! After `S.rfactor(ko)`: `S.rf[ko, i] = sum(A[i, ko*8 + ki], axis=ki, where=ko*8 + ki < n)`,
//! `S[i] = sum(S.rf[ko, i], axis=ko)`.
//! The terms of an element are combined in another order, so they must be integers, or the program
//! must allow to reassociate them.

use super::call::{Call, Value};
use super::linear_reductions::{Scan, Scatter};
use super::split::check_splittable;
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{Buffer, DType, Expr, Scope, UnOp, Var};
use crate::schedule::bounds::{axis_extents, axis_values, needed_iterations, runs_one_by_one};
use crate::schedule::derived_stage::{free_name, insert_stage, load, rename};
use crate::schedule::legality::{declared_order, order_is_free};
use crate::schedule::state::{Axis, AxisId, AxisKind, Relation, Schedule, Stage, StageId, Tail};
use crate::te::{self, Body, OrderMatters, Recurrence, Reduction};

/// `S.rfactor(k)`: a new stage reduces over all loops but `k`, and `S` reduces its results over
/// `k`.
pub(super) static RFACTOR: Directive = Directive {
    name: "rfactor",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("k", ArgKind::Axis), optional("reassociate", ArgKind::Bool)],
    usage: "rfactor(k) or rfactor(k, reassociate=true)",
    run: rfactor,
    check: None,
};

fn rfactor(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (id, k) = (call.stage(), call.axis(0));
    schedule.checked(check(schedule, call))?;
    let stage = schedule.stage(id);
    let Body::Reduce(reduction) = &stage.te.body else {
        crate::bug!("only a reduction has reduction axes")
    };
    // The partial results of an `argmax` need no more than 32 bits for positions below 2^31.
    let short = reduction.with_short_positions();
    let source = short.as_ref().unwrap_or(reduction);
    let domain = Domain::of(schedule, stage);
    let mut te = domain.partial(stage, &in_any_order(source), k);
    // They meet their terms in the order of the source, unless their loops are reordered.
    if !source.combiner.commutative
        && declared_order(stage, &domain.extents).is_ok()
        && let Body::Reduce(partial) = &mut te.body
    {
        partial.combiner.in_order = Some(source.combiner.result.clone());
    }
    if short.is_some() {
        let position = &mut te.buffers[0];
        *position = Buffer::new(&position.name, DType::Int32, Vec::new(), position.scope);
    }
    let reduction = in_any_order(reduction);
    rename(schedule, &mut te, "rf", Scope::Global);
    let buffers = te.buffers.clone();
    let k_extent = domain.extents[k.0].clone();
    let free = order_is_free(stage, &reduction);
    let in_order = keeps_order(stage, &reduction);
    let others: Vec<AxisId> = stage.reduce_leaves().into_iter().filter(|leaf| *leaf != k).collect();
    let annotations: Vec<_> = others.iter().map(|leaf| stage.axis(*leaf).annotation).collect();
    let reordered = stage.reordered;
    let new = insert_stage(schedule, te, id, call.span);
    let partial = schedule.stage_mut(new);
    let first = partial.rank();
    if !partial.te.reduce_axes().is_empty() {
        for (at, annotation) in annotations.into_iter().enumerate() {
            partial.axes[first + at].annotation = annotation;
        }
        partial.reordered = reordered;
    }
    keep_one_axis(schedule.stage_mut(id), call, k);
    let stage = schedule.stage_mut(id);
    let var = stage.axes[stage.rank()].var.clone();
    let mut indices = vec![Expr::var(&var)];
    indices.extend(stage.te.axes.iter().map(|axis| Expr::var(&axis.var)));
    let of_type =
        |(buffer, term): (&Buffer, &Expr)| Expr::cast(term.ty.dtype, load(buffer, indices.clone()));
    stage.te.body = Body::Reduce(Reduction {
        axes: vec![te::Axis { var, min: Expr::index(0), extent: k_extent }],
        terms: buffers.iter().zip(&reduction.terms).map(of_type).collect(),
        condition: None,
        fused: false,
        ..reduction
    });
    schedule.reassociated |= !free && !in_order;
    Ok(vec![Value::Stage(new)])
}

/// Checks the axis, the loops and the permission to reassociate (E0324, E0334, E0355 to E0357).
fn check(schedule: &Schedule, call: &Call) -> Result<()> {
    let stage = schedule.stage(call.stage());
    let (name, axis) = (&stage.te.name, stage.axis(call.axis(0)));
    if axis.kind == AxisKind::Data {
        let text = format!("`{}` is a data axis of `{name}`, not a reduction axis", axis.name);
        let reduce = stage.reduce_leaves();
        let names: Vec<String> =
            reduce.iter().map(|leaf| format!("`{}`", stage.axis(*leaf).name)).collect();
        let diag = Diag::new("E0355", call.span_of(0), text);
        return Err(Box::new(match &names[..] {
            [] => diag.note(format!("`{name}` is not a reduction")),
            names => diag.help(format!("its reduction axes are {}", names.join(", "))),
        }));
    }
    check_splittable(schedule, call.stage(), call.axis(0), call.span_of(0), "rfactor")?;
    // Stages that are attached to `S` are read by the new stage afterwards.
    let attached = |leaf: &AxisId| Some((*leaf, schedule.attached_to(call.stage(), *leaf)?));
    if let Some((leaf, place)) = stage.leaves.iter().find_map(attached) {
        let text = format!("a stage is computed in loop `{}` of `{name}`", stage.axis(leaf).name);
        return Err(Box::new(
            Diag::new("E0355", call.span, text)
                .related(place, "here")
                .note(format!("after `rfactor`, a new stage reads that stage instead of `{name}`"))
                .help("write the `rfactor` before that line"),
        ));
    }
    let scan = stage.annotation::<Scan>().map(|(annotation, _)| annotation);
    let used = stage.reduce_leaves().into_iter().find_map(|leaf| stage.annotation_at(leaf));
    let scatter = stage.annotation::<Scatter>().map(|(annotation, _)| annotation);
    let used = used.or(scan).or(scatter);
    if let Some(annotation) = used {
        let place = annotation.span;
        let text = format!("a `{}` needs the loops of `{name}`", annotation.directive.name);
        return Err(Box::new(
            Diag::new("E0355", call.span, text)
                .related(place, "here")
                .note("`rfactor` moves the loops over reduction terms to a new stage")
                .help("write the `rfactor` before that line"),
        ));
    }
    let reduction = match &stage.te.body {
        Body::Reduce(reduction) => reduction,
        Body::Map(_) | Body::Sort(_) => crate::bug!("only a reduction has reduction axes"),
    };
    let reduction = &in_any_order(reduction);
    if !reduction.combiner.commutative {
        let reducer = &reduction.combiner.name;
        let text = format!("`rfactor` of `{name}`: `{reducer}` is not commutative");
        let (note, help) = why_in_order(reduction);
        return Err(Box::new(Diag::new("E0356", call.span, text).note(note).help(help)));
    }
    check_shift(stage)?;
    let allowed = call.flag(1) || reduction.reassociate || schedule.graph.reassociate;
    if allowed || order_is_free(stage, reduction) || keeps_order(stage, reduction) {
        return Ok(());
    }
    let dtype = stage.te.buffers.iter().map(|b| b.dtype).find(|dtype| dtype.is_float());
    let dtype = dtype.expect("only the order of floats matters");
    let text = format!("`rfactor` changes the order in which `{name}` adds its {dtype} terms");
    let text = match reduction.combiner.is_sum() {
        true => text,
        false => format!("`rfactor` changes the order in which `{name}` combines {dtype} terms"),
    };
    Err(Box::new(
        Diag::new("E0357", call.span, text)
            .note("another order may round differently")
            .help(format!("allow it: `{name}.rfactor({}, reassociate=true)`", axis.name)),
    ))
}

/// Returns a note on why the terms of a reduction must keep their order, and what to write instead.
fn why_in_order(reduction: &Reduction) -> (String, String) {
    let (reducer, axis) = (&reduction.combiner.name, reduction.axes[0].var.name());
    match reduction.order_matters() {
        Some(OrderMatters::Start) => (
            "the start value, `init=`, has a position of its own, which may be greater than others"
                .to_string(),
            format!("leave out `init=`, and compare the result of `{reducer}` with it afterwards"),
        ),
        Some(OrderMatters::Position) => (
            "of equal values, the first in the order of the source is taken, and its position \
             need not be the least"
                .to_string(),
            format!("make the reduction axis the position: `{reducer}(({axis}, …), axis={axis})`"),
        ),
        Some(OrderMatters::Width(dtype)) => (
            format!("positions along `{axis}` might not fit `{dtype}` and wrap around"),
            format!(
                "declare the position as `int64`, or give `{axis}` a constant extent that \
                 `{dtype}` can count"
            ),
        ),
        Some(OrderMatters::Reducer) | None => (
            format!(
                "partial results are combined in another order than the terms, and \
                 `{reducer}(a, b)` is not always `{reducer}(b, a)`"
            ),
            "leave out the `rfactor`, and distribute the data axes".to_string(),
        ),
    }
}

/// Returns the reduction with a combiner whose operands can be exchanged, if it has one: that of
/// `argmax` over positions also compares these.
fn in_any_order(reduction: &Reduction) -> Reduction {
    match reduction.combiner_in_any_order() {
        Some(combiner) => Reduction { combiner, ..reduction.clone() },
        None => reduction.clone(),
    }
}

/// Whether each partial result is one term, so that the terms keep the order of the source.
fn keeps_order(stage: &Stage, reduction: &Reduction) -> bool {
    // A fused sum does not round its products, and a term that `where=` leaves out would be
    // combined as the identity.
    let whole = reduction.axes.len() == 1 && stage.reduce_leaves() == [AxisId(stage.rank())];
    whole && !reduction.fused && reduction.condition.is_none()
}

/// Returns the text of an `rfactor` of a reduction loop; `None` if it would be refused.
pub(super) fn rfactor_call(schedule: &Schedule, id: StageId, axis: &str) -> Option<String> {
    let stage = schedule.stage(id);
    let Body::Reduce(reduction) = &stage.te.body else { return None };
    let reduction = &in_any_order(reduction);
    let allowed = reduction.reassociate || schedule.graph.reassociate;
    let name = &stage.te.name;
    match (reduction.combiner.commutative, allowed || order_is_free(stage, reduction)) {
        (false, _) => None,
        (true, true) => Some(format!("{name}.rfactor({axis})")),
        (true, false) => Some(format!("{name}.rfactor({axis}, reassociate=true)")),
    }
}

/// Refuses a reduction axis split with `tail=shift` (E0334), whose steps overlap.
fn check_shift(stage: &Stage) -> Result<()> {
    for relation in &stage.relations {
        let Relation::Split { parent, tail: Some(Tail::Shift), span, .. } = relation else {
            continue;
        };
        if stage.axis(*parent).kind == AxisKind::Reduce {
            let name = &stage.axis(*parent).name;
            let text = format!("`tail=shift` on `{name}`: `{}` accumulates", stage.te.name);
            return Err(Box::new(
                Diag::new("E0334", *span, text)
                    .note("the steps overlap, and terms would be added twice")
                    .help("write `tail=peel`, `tail=mask` or `tail=guard`"),
            ));
        }
    }
    Ok(())
}

/// The loops of a reduction over its whole domain.
struct Domain {
    /// The extent of each axis, without idle iterations of the reduction loops.
    extents: Vec<Expr>,
    /// The value of each reduction axis of the source, over the loops.
    roots: Vec<Expr>,
    /// The conditions of a reduction term: the loops of splits may run beyond the axis.
    conditions: Vec<Expr>,
}

impl Domain {
    fn of(schedule: &Schedule, stage: &Stage) -> Domain {
        let mut facts = Facts::new();
        schedule.known_facts().iter().for_each(|cond| facts.assume(cond));
        let shape: Vec<Expr> = stage.te.axes.iter().map(|axis| axis.extent.clone()).collect();
        let extents = axis_extents(stage, &shape, &facts);
        let (values, _) = axis_values(stage, &extents);
        // A factor may be larger than the axis; the loops have no iterations beyond it.
        let mut loops = extents.clone();
        for leaf in stage.reduce_leaves() {
            let needed = needed_iterations(&stage.relations, &extents, leaf);
            let needed = needed.map(|(needed, _)| simplify_expr(&needed, &facts));
            let needed = needed.filter(|needed| needed.as_int().is_some());
            if let Some(needed) = needed.filter(|_| runs_one_by_one(stage, leaf)) {
                loops[leaf.0] = needed;
            }
            facts.bind(&stage.axis(leaf).var, &Expr::index(0), &loops[leaf.0]);
        }
        let mut conditions = Vec::new();
        for (at, relation) in stage.relations.iter().enumerate() {
            let Relation::Split { parent, tail, .. } = relation else { continue };
            // If the outer part of a split leaves its range, the whole axis does too.
            let implied = stage.relations[..at]
                .iter()
                .any(|earlier| matches!(earlier, Relation::Split { outer, .. } if outer == parent));
            if implied || stage.axis(*parent).kind == AxisKind::Data {
                continue;
            }
            let inside = Expr::lt(values[parent.0].clone(), extents[parent.0].clone());
            if !facts.prove(&inside) {
                let likely = !matches!(tail, Some(Tail::Guard | Tail::Mask));
                conditions.push(match likely {
                    true => Expr::unary(UnOp::Likely, inside),
                    false => inside,
                });
            }
        }
        let root = |(axis, value): (&te::Axis, &Expr)| match axis.min.as_int() {
            Some(0) => value.clone(),
            _ => Expr::add(axis.min.clone(), value.clone()),
        };
        let roots = stage.te.reduce_axes().iter().zip(&values[stage.rank()..]).map(root).collect();
        Domain { extents: loops, roots, conditions }
    }

    /// Returns the stage of partial results. Its data axes are `k`, then those of `stage`; its
    /// reduction axes are the other reduction loops.
    fn partial(&self, stage: &Stage, reduction: &Reduction, k: AxisId) -> te::Stage {
        let loops = stage.reduce_leaves();
        let mut names: Vec<&str> = stage.te.axes.iter().map(|axis| axis.var.name()).collect();
        let mut axes: Vec<te::Axis> = Vec::new();
        for leaf in &loops {
            let name = free_name(&stage.axis(*leaf).name, &names);
            let (min, extent) = (Expr::index(0), self.extents[leaf.0].clone());
            axes.push(te::Axis { var: Var::index(name), min, extent });
            names.push(&stage.axis(*leaf).name);
        }
        let over = |expr: &Expr| {
            let expr = substitute(expr, &mut |var| {
                let at = reduction.axes.iter().position(|axis| axis.var == *var)?;
                Some(self.roots[at].clone())
            });
            substitute(&expr, &mut |var| {
                let at = loops.iter().position(|leaf| stage.axis(*leaf).var == *var)?;
                Some(Expr::var(&axes[at].var))
            })
        };
        let bounds = self.conditions.iter().map(&over).reduce(Expr::and);
        let given = reduction.condition.as_ref().map(&over);
        // The `where=` may read elements only inside the domain.
        let condition = match (bounds, given) {
            (Some(bounds), Some(given)) => {
                Some(Expr::if_then_else(bounds, given, Expr::bool(false)))
            }
            (bounds, given) => bounds.or(given),
        };
        let terms: Vec<Expr> = reduction.terms.iter().map(&over).collect();
        let identity = reduction.combiner.identity.iter().zip(&terms);
        let identity: Vec<Expr> =
            identity.map(|(value, term)| Expr::cast(term.ty.dtype, value.clone())).collect();
        let at = loops.iter().position(|leaf| *leaf == k).expect("the axis is a loop");
        let mut data = vec![axes.remove(at)];
        data.extend(stage.te.axes.iter().cloned());
        let body = match axes.is_empty() {
            false => Body::Reduce(Reduction {
                axes,
                combiner: reduction.combiner.clone(),
                identity,
                terms,
                condition,
                reassociate: reduction.reassociate,
                fused: reduction.fused,
            }),
            true => Body::Map(match condition {
                None => terms,
                Some(condition) => {
                    let value =
                        |(term, identity)| Expr::if_then_else(condition.clone(), term, identity);
                    terms.into_iter().zip(identity).map(value).collect()
                }
            }),
        };
        te::Stage {
            name: stage.te.name.clone(),
            buffers: stage.te.buffers.clone(),
            axes: data,
            body,
            output: false,
            recurrence: stage.te.recurrence.as_ref().map(Recurrence::of_added_stage),
            update: None,
            span: stage.te.span,
            load_spans: Vec::new(),
        }
    }
}

/// Removes all reduction loops but `k`, which becomes the only reduction axis.
fn keep_one_axis(stage: &mut Stage, call: &Call, k: AxisId) {
    let root = AxisId(stage.rank());
    let name = stage.axis(k).name.clone();
    let axes = &stage.axes;
    stage.relations.retain(|relation| axes[relation.made()[0].0].kind == AxisKind::Data);
    for leaf in stage.reduce_leaves().into_iter().filter(|leaf| *leaf != k) {
        stage.axis_mut(leaf).replaced = Some(("rfactor", call.span));
    }
    // The reduction axis is the first after the data axes; messages still need the axis that was
    // there.
    let axis = Axis::new(Var::index(name), AxisKind::Reduce);
    let old = std::mem::replace(stage.axis_mut(root), axis);
    if old.replaced.is_some() {
        stage.axes.push(old);
    }
    let axes = &stage.axes;
    stage.leaves.retain(|leaf| *leaf == k || axes[leaf.0].kind == AxisKind::Data);
    for leaf in &mut stage.leaves {
        if *leaf == k {
            *leaf = root;
        }
    }
    stage.reordered = None;
}
