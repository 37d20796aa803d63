//! Algebra: sums that are written apart become one, and one sum becomes two.
//!
//! `merge`, before: `P[r, i] = sum(A[r, i, k], axis=k)`, `S[i] = sum(P[r, i], axis=r)`.
//! After `S.merge(P)`: `S[i] = sum(A[r, i, k], axis=[r, k])`, and `P` is gone.
//!
//! `contract`, before: `S[i, l] = sum(A[i, k] * B[k, j] * C[j, l], axis=[k, j])`.
//! After `S.contract(k)`: `S.part[i, j] = sum(A[i, k] * B[k, j], axis=k)`,
//! `S[i, l] = sum(S.part[i, j] * C[j, l], axis=j)`. A factor that does not depend on `k` leaves
//! the sum over it, and which axis is contracted first is the order of a chain of products.
//!
//! Terms meet in another order, and products are distributed over sums, so rounding must not
//! matter, or be allowed.

use super::cache::{insert_stage, load, rename};
use super::directives::{Call, Value};
use super::legality::order_is_free;
use super::state::{Attach, Axis, AxisId, AxisKind, Schedule, Stage, StageId};
use crate::diag::{Diag, Result};
use crate::ir::equal::equal;
use crate::ir::visit::{NodeSet, for_each_load, mentions, substitute};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Scope, Var};
use crate::te::{self, Body, Reduction};

/// `S.merge(P)`: the sum that `P` is moves into `S`, which reads nothing else of it.
pub fn merge(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let Some(Value::Stage(inner)) = call.value(0).cloned() else {
        crate::bug!("parameter 0 is a stage")
    };
    plain_loops(schedule, id, call, "merge")?;
    plain_loops(schedule, inner, call, "merge")?;
    let indices = merged_indices(schedule, id, inner, call)?;
    let (stage, producer) = (schedule.stage(id), schedule.stage(inner));
    let Body::Reduce(sum) = &producer.te.body else { crate::bug!("a merged stage is a reduction") };
    let axes: Vec<te::Axis> =
        sum.axes.iter().map(|axis| te::Axis { var: fresh(axis, stage), ..axis.clone() }).collect();
    let over = |expr: &Expr| {
        substitute(expr, &mut |var| {
            let data = producer.te.axes.iter().position(|axis| axis.var == *var);
            let reduce = sum.axes.iter().position(|axis| axis.var == *var);
            let data = data.map(|at| indices[at].clone());
            data.or_else(|| reduce.map(|at| Expr::var(&axes[at].var)))
        })
    };
    let terms = sum.terms.iter().map(over).collect();
    let inside = sum.condition.as_ref().map(over);
    let merged = match &stage.te.body {
        Body::Map(_) => {
            // An `init=` may depend on the element.
            let identity = sum.identity.iter().map(over).collect();
            Reduction { axes, terms, condition: inside, identity, ..sum.clone() }
        }
        Body::Reduce(outer) => Reduction {
            axes: outer.axes.iter().cloned().chain(axes).collect(),
            terms,
            condition: match (outer.condition.clone(), inside) {
                (Some(a), Some(b)) => Some(Expr::if_then_else(a, b, Expr::bool(false))),
                (a, b) => a.or(b),
            },
            reassociate: outer.reassociate && sum.reassociate,
            fused: sum.fused,
            ..outer.clone()
        },
    };
    let moved = matches!(stage.te.body, Body::Reduce(_)) && !order_is_free(stage, &merged);
    schedule.reassociated |= moved;
    set_body(schedule.stage_mut(id), Body::Reduce(merged));
    schedule.stage_mut(inner).attach = Attach::Inline { span: call.span };
    schedule.order.retain(|id| *id != inner);
    Ok(Vec::new())
}

/// `S.contract(k, …)`: the factors that depend on the axes are summed over them first.
pub fn contract(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    plain_loops(schedule, id, call, "contract")?;
    let parts = Parts::of(schedule, call)?;
    let stage = schedule.stage(id);
    let Body::Reduce(sum) = stage.te.body.clone() else { crate::bug!("a sum is a reduction") };
    let free = order_is_free(stage, &sum);
    let (mut te, indices) = parts.partial(stage, &sum);
    rename(schedule, &mut te, "part", Scope::Global);
    let value = load(&te.buffers[0], indices);
    let new = insert_stage(schedule, te, id, call.span);
    let term = parts.outside.iter().cloned().chain([value]).reduce(Expr::mul);
    let term = term.expect("the partial sums are a factor");
    let body = match parts.kept.is_empty() {
        true => Body::Map(vec![term]),
        false => Body::Reduce(Reduction { axes: parts.kept, terms: vec![term], ..sum }),
    };
    set_body(schedule.stage_mut(id), body);
    schedule.reassociated |= !free;
    Ok(vec![Value::Stage(new)])
}

/// Algebra comes before all that is said about loops.
fn plain_loops(schedule: &Schedule, id: StageId, call: &Call, what: &str) -> Result<()> {
    let stage = schedule.stage(id);
    let in_order = stage.leaves.iter().enumerate().all(|(at, leaf)| leaf.0 == at);
    let plain =
        |axis: &Axis| axis.annotation.is_none() && axis.attached.is_none() && axis.used.is_none();
    let root = stage.attach == Attach::Root && stage.computed_by.is_none();
    if stage.relations.is_empty() && in_order && root && stage.axes.iter().all(plain) {
        return Ok(());
    }
    let name = &stage.te.name;
    let text = format!("`{what}` comes after a directive that changed the loops of `{name}`");
    Err(Box::new(
        Diag::new("E0395", call.span, text)
            .note("it changes what the stage computes, and with it the loops")
            .help(format!("write the `{what}` before what is said about `{name}`")),
    ))
}

/// Where `S` reads `P`, if the two can be one.
fn merged_indices(
    schedule: &Schedule,
    id: StageId,
    inner: StageId,
    call: &Call,
) -> Result<Vec<Expr>> {
    let (stage, producer) = (schedule.stage(id), schedule.stage(inner));
    let (name, other) = (&stage.te.name, &producer.te.name);
    let refuse = |why: String| -> Result<Vec<Expr>> {
        let text = format!("`{other}` cannot become part of `{name}`");
        Err(Box::new(Diag::new("E0395", call.span, text).note(why)))
    };
    let Body::Reduce(sum) = &producer.te.body else {
        return refuse(format!("`{other}` is no reduction; write `{other}.compute_inline()`"));
    };
    let [buffer] = &producer.te.buffers[..] else {
        return refuse(format!("`{other}` is a tuple"));
    };
    if producer.te.output {
        return refuse(format!("`{other}` is a result of the kernel"));
    }
    let reads = |stage: &&Stage| reads_of(&stage.te.body, buffer) > 0;
    let readers: Vec<&Stage> = schedule.order.iter().map(|id| schedule.stage(*id)).collect();
    if let Some(reader) = readers.iter().copied().filter(reads).find(|s| s.te.name != *name) {
        return refuse(format!("`{}` reads `{other}` too", reader.te.name));
    }
    let value = match &stage.te.body {
        Body::Map(values) => values[0].clone(),
        Body::Reduce(outer) if outer.combiner.name == sum.combiner.name => outer.terms[0].clone(),
        Body::Reduce(outer) => {
            let (a, b) = (&outer.combiner.name, &sum.combiner.name);
            return refuse(format!("`{name}` is a `{a}` and `{other}` a `{b}`"));
        }
    };
    let indices = match element_of(&value, buffer) {
        Some(indices) if reads_of(&stage.te.body, buffer) == 1 => indices,
        _ => return refuse(format!("`{name}` does more with `{other}` than to read an element")),
    };
    if stage.te.buffers[0].dtype != buffer.dtype {
        let (a, b) = (buffer.dtype, stage.te.buffers[0].dtype);
        return refuse(format!("`{other}` is {a} and `{name}` {b}: a rounding would be lost"));
    }
    if !is_neutral(sum) && matches!(stage.te.body, Body::Reduce(_)) {
        return refuse(format!("`{other}` has an `init=`, which every element would add once"));
    }
    if let Body::Reduce(outer) = &stage.te.body {
        let allowed = outer.reassociate && sum.reassociate;
        permit(schedule, call, 1, allowed || order_is_free(stage, outer), "merge")?;
    }
    Ok(indices)
}

/// Whether the order of terms may change.
fn permit(schedule: &Schedule, call: &Call, flag: usize, allowed: bool, what: &str) -> Result<()> {
    if allowed || call.flag(flag) || schedule.graph.reassociate {
        return Ok(());
    }
    let stage = schedule.stage(call.stage());
    let (name, dtype) = (&stage.te.name, stage.te.buffers[0].dtype);
    let text = format!("`{what}` changes how the {dtype} sum `{name}` is rounded");
    Err(Box::new(
        Diag::new("E0357", call.span, text)
            .note("another order of terms may round differently")
            .help(format!("allow it: `{name}.{what}(…, reassociate=true)`")),
    ))
}

/// The indices of an expression that is an element of a tensor and nothing else.
fn element_of(expr: &Expr, buffer: &Buffer) -> Option<Vec<Expr>> {
    match &expr.kind {
        ExprKind::Load { buffer: read, indices, .. } if read == buffer => Some(indices.clone()),
        // To the type that is computed in, and exact.
        ExprKind::Cast(value) if expr.ty.dtype == buffer.dtype.compute_type() => {
            element_of(value, buffer)
        }
        _ => None,
    }
}

/// How often a body reads a tensor, shared expressions counted once.
fn reads_of(body: &Body, buffer: &Buffer) -> usize {
    let (mut seen, mut found) = (NodeSet::default(), 0);
    body.for_each_expr(&mut |expr| {
        for_each_load(expr, &mut seen, &mut |read, _, _| found += usize::from(read == buffer));
    });
    found
}

/// Whether a reduction starts with the neutral element of its reducer.
fn is_neutral(reduction: &Reduction) -> bool {
    let pairs = reduction.identity.iter().zip(&reduction.combiner.identity);
    pairs.into_iter().all(|(start, neutral)| {
        equal(start, &Expr::cast(start.ty.dtype, neutral.clone())) || equal(start, neutral)
    })
}

/// A variable with an axis's name, or a name like it that the stage has not.
fn fresh(axis: &te::Axis, stage: &Stage) -> Var {
    let taken = |name: &str| stage.axes.iter().any(|axis| axis.name == name);
    let name = axis.var.name();
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut all = std::iter::once(name.to_string()).chain(numbered);
    Var::index(all.find(|name| !taken(name)).expect("there are more numbers than axes"))
}

/// Gives a stage another body, and loops as if it had been declared so.
fn set_body(stage: &mut Stage, body: Body) {
    stage.te.body = body;
    stage.te.load_spans.clear();
    stage.axes.truncate(stage.te.axes.len());
    let reduce: Vec<te::Axis> = stage.te.reduce_axes().to_vec();
    for axis in reduce {
        stage.axes.push(Axis {
            name: axis.var.name().to_string(),
            var: axis.var,
            kind: AxisKind::Reduce,
            annotation: None,
            replaced: None,
            attached: None,
            used: None,
        });
    }
    stage.leaves = (0..stage.axes.len()).map(AxisId).collect();
    stage.touched = true;
}

/// A product under a sum, taken apart.
struct Parts {
    /// Axes that are summed first.
    first: Vec<te::Axis>,
    /// The other reduction axes.
    kept: Vec<te::Axis>,
    /// Factors that depend on `first`.
    inside: Vec<Expr>,
    /// The others.
    outside: Vec<Expr>,
}

impl Parts {
    fn of(schedule: &Schedule, call: &Call) -> Result<Parts> {
        let stage = schedule.stage(call.stage());
        let name = &stage.te.name;
        let refuse = |why: String| -> Result<Parts> {
            let text = format!("no part of `{name}` can be summed first");
            Err(Box::new(Diag::new("E0396", call.span, text).note(why)))
        };
        let Body::Reduce(sum) = &stage.te.body else {
            return refuse(format!("`{name}` is no reduction"));
        };
        if sum.combiner.name != "sum" || sum.terms.len() != 1 {
            return refuse(format!("`{name}` is a `{}`, not a sum", sum.combiner.name));
        }
        if sum.condition.is_some() {
            return refuse(format!("the sum of `{name}` has a `where=`"));
        }
        let mut chosen: Vec<AxisId> = Vec::new();
        for (axis, span) in call.axes(0) {
            match axis.filter(|axis| stage.axis(*axis).kind == AxisKind::Reduce) {
                Some(axis) => chosen.push(axis),
                None => {
                    let text = format!("`{name}` does not sum over every axis named here");
                    return Err(Box::new(
                        Diag::new("E0396", span, text).help("name reduction axes"),
                    ));
                }
            }
        }
        let is_first = |axis: &te::Axis| chosen.iter().any(|id| stage.axis(*id).var == axis.var);
        let (first, kept): (Vec<te::Axis>, Vec<te::Axis>) =
            sum.axes.iter().cloned().partition(is_first);
        let factors = factors_of(&sum.terms[0]);
        let depends = |factor: &Expr| first.iter().any(|axis| mentions(factor, &axis.var));
        let (inside, outside): (Vec<Expr>, Vec<Expr>) =
            factors.into_iter().partition(|factor| depends(factor));
        let names: Vec<String> =
            first.iter().map(|axis| format!("`{}`", axis.var.name())).collect();
        let names = names.join(", ");
        if outside.is_empty() {
            return refuse(format!(
                "every factor depends on {names}; `rfactor` makes partial sums of whole terms"
            ));
        }
        if inside.is_empty() {
            return refuse(format!("no factor depends on {names}"));
        }
        if kept.is_empty() && !is_neutral(sum) {
            return refuse(format!("`{name}` has an `init=`"));
        }
        permit(schedule, call, 1, sum.reassociate || order_is_free(stage, sum), "contract")?;
        Ok(Parts { first, kept, inside, outside })
    }

    /// The stage of partial sums, over the axes that its factors depend on, and where an element
    /// is read.
    fn partial(&self, stage: &Stage, sum: &Reduction) -> (te::Stage, Vec<Expr>) {
        let mentioned =
            |axis: &&te::Axis| self.inside.iter().any(|factor| mentions(factor, &axis.var));
        let around = stage.te.axes.iter().chain(&self.kept).filter(mentioned);
        let around: Vec<te::Axis> = around.cloned().collect();
        let data: Vec<te::Axis> = around
            .iter()
            .map(|axis| te::Axis {
                var: Var::index(axis.var.name()),
                min: Expr::index(0),
                extent: axis.extent.clone(),
            })
            .collect();
        let from_zero = |axis: &te::Axis| axis.min.as_int() == Some(0);
        let over = |expr: &Expr| {
            substitute(expr, &mut |var| {
                let at = around.iter().position(|axis| axis.var == *var)?;
                let value = Expr::var(&data[at].var);
                let min = &around[at].min;
                Some(if from_zero(&around[at]) { value } else { Expr::add(min.clone(), value) })
            })
        };
        let product = self.inside.iter().map(over).reduce(Expr::mul);
        let product = product.expect("there are factors inside");
        let indices = around.iter().map(|axis| match from_zero(axis) {
            true => Expr::var(&axis.var),
            false => Expr::sub(Expr::var(&axis.var), axis.min.clone()),
        });
        let dtype = product.ty.dtype;
        let zero = sum.combiner.identity[0].clone();
        let fused = sum.fused && self.inside.len() > 1;
        let reduction = Reduction {
            axes: self.first.clone(),
            combiner: sum.combiner.clone(),
            identity: vec![Expr::cast(dtype, zero)],
            terms: vec![product],
            condition: None,
            reassociate: sum.reassociate,
            fused,
        };
        let te = te::Stage {
            name: stage.te.name.clone(),
            // Rounded no further than a running sum is.
            buffers: vec![typed(&stage.te.buffers[0], dtype)],
            axes: data,
            body: Body::Reduce(reduction),
            output: false,
            span: stage.te.span,
            load_spans: Vec::new(),
        };
        (te, indices.collect())
    }
}

fn typed(buffer: &Buffer, dtype: DType) -> Buffer {
    Buffer::new(buffer.name.clone(), dtype, buffer.shape.clone(), buffer.scope)
}

/// The factors of a product, from left to right.
fn factors_of(expr: &Expr) -> Vec<Expr> {
    let mut factors = Vec::new();
    let mut left = vec![expr.clone()];
    while let Some(expr) = left.pop() {
        match &expr.kind {
            ExprKind::Binary(BinOp::Mul, a, b) => left.extend([b.clone(), a.clone()]),
            _ => factors.push(expr),
        }
    }
    factors
}
