//! `rfactor`: partial results of a reduction, which may then be computed side by side.
//!
//! Before: `S[i] = sum(A[i, k], axis=k)`, `k` split into `ko`, `ki`.
//! After `S.rfactor(ko)`: `S.rf[ko, i] = sum(A[i, ko*8 + ki], axis=ki, where=ko*8 + ki < n)`,
//! `S[i] = sum(S.rf[ko, i], axis=ko)`.
//! The terms of an element meet in another order, so it must not matter, or be allowed.

use super::bounds::{axis_extents, axis_values};
use super::cache::{insert_stage, load, reduce_leaves, rename};
use super::directives::{Call, Value};
use super::legality::order_is_free;
use super::loops::check_splittable;
use super::state::{Axis, AxisId, AxisKind, Relation, Schedule, Stage, StageId, Tail};
use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::visit::substitute;
use crate::ir::{Expr, Scope, UnOp, Var};
use crate::te::{self, Body, Reduction};

/// `S.rfactor(k)`: a new stage reduces all but loop `k`, and `S` reduces its results over `k`.
pub fn rfactor(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let (id, k) = (call.stage(), call.axis(0));
    schedule.checked(check(schedule, call))?;
    let stage = schedule.stage(id);
    let Body::Reduce(reduction) = stage.te.body.clone() else {
        crate::bug!("only a reduction has reduction axes")
    };
    let domain = Domain::of(schedule, stage);
    let mut te = domain.partial(stage, &reduction, k);
    rename(schedule, &mut te, "rf", Scope::Global);
    let buffers = te.buffers.clone();
    let k_extent = domain.extents[k.0].clone();
    let free = order_is_free(stage, &reduction);
    let in_order = keeps_order(stage, &reduction);
    let others: Vec<AxisId> = reduce_leaves(stage).into_iter().filter(|leaf| *leaf != k).collect();
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
    stage.te.body = Body::Reduce(Reduction {
        axes: vec![te::Axis { var, min: Expr::index(0), extent: k_extent }],
        terms: buffers.iter().map(|buffer| load(buffer, indices.clone())).collect(),
        condition: None,
        fused: false,
        ..reduction
    });
    schedule.reassociated |= !free && !in_order;
    Ok(vec![Value::Stage(new)])
}

fn check(schedule: &Schedule, call: &Call) -> Result<()> {
    let stage = schedule.stage(call.stage());
    let (name, axis) = (&stage.te.name, stage.axis(call.axis(0)));
    if axis.kind == AxisKind::Data {
        let text = format!("`{}` is a data axis of `{name}`, not a reduction axis", axis.name);
        let reduce = reduce_leaves(stage);
        let names: Vec<String> =
            reduce.iter().map(|leaf| format!("`{}`", stage.axis(*leaf).name)).collect();
        let diag = Diag::new("E0355", call.span_of(0), text);
        return Err(Box::new(match &names[..] {
            [] => diag.note(format!("`{name}` is no reduction")),
            names => diag.help(format!("its reduction axes are {}", names.join(", "))),
        }));
    }
    check_splittable(stage, call.axis(0), call.span_of(0), "rfactor")?;
    // What is computed inside `S` is read by the new stage afterwards.
    if let Some((axis, place)) = stage.axes.iter().find_map(|axis| Some((axis, axis.attached?))) {
        let text = format!("a stage is computed in loop `{}` of `{name}`", axis.name);
        return Err(Box::new(
            Diag::new("E0355", call.span, text)
                .related(place, "here")
                .note(format!("after `rfactor` another stage reads what `{name}` read"))
                .help("write the `rfactor` before that line"),
        ));
    }
    // `S` keeps one loop over terms.
    let used = reduce_leaves(stage).into_iter().find_map(|leaf| stage.axis(leaf).used);
    if let Some((directive, place)) = used {
        let text = format!("a `{directive}` counts on the loops of `{name}`");
        return Err(Box::new(
            Diag::new("E0355", call.span, text)
                .related(place, "here")
                .note("`rfactor` gives the loops over terms to a new stage")
                .help("write the `rfactor` before that line"),
        ));
    }
    let reduction = match &stage.te.body {
        Body::Reduce(reduction) => reduction,
        Body::Map(_) => crate::bug!("only a reduction has reduction axes"),
    };
    if !reduction.combiner.commutative {
        let reducer = &reduction.combiner.name;
        let text = format!("`rfactor` of `{name}`: `{reducer}` is not commutative");
        return Err(Box::new(
            Diag::new("E0356", call.span, text)
                .note(format!(
                    "partial results meet in another order than the terms, and `{reducer}(a, b)` \
                     is not always `{reducer}(b, a)`"
                ))
                .help("leave the reduction whole, and share out its data axes"),
        ));
    }
    check_shift(stage)?;
    let allowed = call.flag(1) || reduction.reassociate || schedule.graph.reassociate;
    if allowed || order_is_free(stage, reduction) || keeps_order(stage, reduction) {
        return Ok(());
    }
    let dtype = stage.te.buffers.iter().map(|b| b.dtype).find(|dtype| dtype.is_float());
    let dtype = dtype.expect("an order that matters is of floats");
    let text = format!("`rfactor` changes the order in which `{name}` adds its {dtype} terms");
    let text = match reduction.combiner.name == "sum" {
        true => text,
        false => format!("`rfactor` changes the order in which `{name}` combines {dtype} terms"),
    };
    Err(Box::new(
        Diag::new("E0357", call.span, text)
            .note("another order may round differently")
            .help(format!("allow it: `{name}.rfactor({}, reassociate=true)`", axis.name)),
    ))
}

/// Whether each partial result is one term, so that they meet in the order of the source.
fn keeps_order(stage: &Stage, reduction: &Reduction) -> bool {
    // The product of a fused sum is not rounded on its own.
    let whole = reduction.axes.len() == 1 && reduce_leaves(stage) == [AxisId(stage.rank())];
    whole && !reduction.fused
}

/// The `rfactor` of a loop over terms, as it is to be written; `None` if it would be refused.
pub(super) fn rfactor_call(schedule: &Schedule, id: StageId, axis: &str) -> Option<String> {
    let stage = schedule.stage(id);
    let Body::Reduce(reduction) = &stage.te.body else { return None };
    let allowed = reduction.reassociate || schedule.graph.reassociate;
    let name = &stage.te.name;
    match (reduction.combiner.commutative, allowed || order_is_free(stage, reduction)) {
        (false, _) => None,
        (true, true) => Some(format!("{name}.rfactor({axis})")),
        (true, false) => Some(format!("{name}.rfactor({axis}, reassociate=true)")),
    }
}

/// Overlapping steps would add terms twice.
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

/// The reduction's loops over its whole domain.
struct Domain {
    /// Per axis that the stage ever had.
    extents: Vec<Expr>,
    /// Per reduction axis of the source: its value over the loops.
    roots: Vec<Expr>,
    /// What holds for a term: the loops of splits may run too far.
    conditions: Vec<Expr>,
}

impl Domain {
    fn of(schedule: &Schedule, stage: &Stage) -> Domain {
        let mut facts = Facts::new();
        schedule.graph.known_facts().iter().for_each(|cond| facts.assume(cond));
        let shape: Vec<Expr> = stage.te.axes.iter().map(|axis| axis.extent.clone()).collect();
        let extents = axis_extents(stage, &shape, &facts);
        for leaf in reduce_leaves(stage) {
            facts.bind(&stage.axis(leaf).var, &Expr::index(0), &extents[leaf.0]);
        }
        let (values, _) = axis_values(stage, &extents);
        let mut conditions = Vec::new();
        for (at, relation) in stage.relations.iter().enumerate() {
            let Relation::Split { parent, tail, .. } = relation else { continue };
            // What leaves the range of an outer part leaves that of the whole too.
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
        Domain { extents, roots, conditions }
    }

    /// The stage of partial results: data axes `k`, then those of `stage`; the other loops over
    /// terms are its reduction axes.
    fn partial(&self, stage: &Stage, reduction: &Reduction, k: AxisId) -> te::Stage {
        let loops = reduce_leaves(stage);
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
        // What is read in `where=` is read only inside the domain.
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
            span: stage.te.span,
            load_spans: Vec::new(),
        }
    }
}

/// Of the loops over terms, `k` alone stays.
fn keep_one_axis(stage: &mut Stage, call: &Call, k: AxisId) {
    let root = AxisId(stage.rank());
    let name = stage.axis(k).name.clone();
    stage.relations.retain(|relation| {
        let axis = match relation {
            Relation::Split { parent, .. } => *parent,
            Relation::Fuse { fused, .. } => *fused,
        };
        stage.axes[axis.0].kind == AxisKind::Data
    });
    for leaf in reduce_leaves(stage).into_iter().filter(|leaf| *leaf != k) {
        stage.axis_mut(leaf).replaced = Some(("rfactor", call.span));
    }
    // The only reduction axis is the first after the data axes; what was there is remembered for
    // messages.
    let var = Var::index(&name[..]);
    let (kind, annotation, replaced, attached) = (AxisKind::Reduce, None, None, None);
    let used = None;
    let axis = Axis { name, var, kind, annotation, replaced, attached, used };
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
    stage.touched = true;
}

fn free_name(name: &str, taken: &[&str]) -> String {
    if !taken.contains(&name) {
        return name.to_string();
    }
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    numbered
        .into_iter()
        .find(|name| !taken.contains(&&name[..]))
        .expect("there are more numbers than axes")
}
