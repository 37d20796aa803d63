//! `merge`: two nested sums become one.
//!
//! Before: `P[r, i] = sum(A[r, i, k], axis=k)`, `S[i] = sum(P[r, i], axis=r)`.
//! After `S.merge(P)`: `S[i] = sum(A[r, i, k], axis=[r, k])`, and `P` is gone.
//! The terms are combined in another order, so they must be integers, or the program must allow to
//! reassociate them.

use super::algebra::{check_default_loops, check_order, is_neutral, set_body};
use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result};
use crate::ir::visit::{for_each_child, substitute};
use crate::ir::{Buffer, Expr, ExprKind, Var};
use crate::schedule::legality::order_is_free;
use crate::schedule::state::{Attach, Schedule, Stage, StageId};
use crate::te::{self, Body, Reduction};
use rustc_hash::FxHashSet;

/// `S.merge(P)`: moves the sum of `P` into `S`, its only reader.
pub(super) static MERGE: Directive = Directive {
    name: "merge",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("stage", ArgKind::Stage), optional("reassociate", ArgKind::Bool)],
    usage: "merge(STAGE) or merge(STAGE, reassociate=true)",
    run: merge,
    check: None,
};

fn merge(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let Some(Value::Stage(inner)) = call.value(0).cloned() else {
        crate::bug!("parameter 0 is a stage")
    };
    check_default_loops(schedule, id, call, "merge")?;
    check_default_loops(schedule, inner, call, "merge")?;
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
        Body::Sort(_) => crate::bug!("a sort takes no other stage in"),
    };
    let moved = matches!(stage.te.body, Body::Reduce(_)) && !order_is_free(stage, &merged);
    schedule.reassociated |= moved;
    set_body(schedule.stage_mut(id), Body::Reduce(merged));
    schedule.stage_mut(inner).attach = Attach::Inline { span: call.span };
    schedule.order.retain(|id| *id != inner);
    Ok(Vec::new())
}

/// Returns the indices at which `S` reads `P`; an error if the two cannot become one stage.
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
        return refuse(format!("`{other}` is not a reduction; write `{other}.compute_inline()`"));
    };
    let [buffer] = &producer.te.buffers[..] else {
        return refuse(format!("`{other}` is a tuple"));
    };
    if producer.te.output {
        return refuse(format!("`{other}` is an output of the kernel"));
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
        Body::Sort(_) => return refuse(format!("`{name}` is a sort")),
    };
    let indices = match element_of(&value, buffer) {
        Some(indices) if reads_of(&stage.te.body, buffer) == 1 => indices,
        _ => return refuse(format!("`{name}` does more with `{other}` than to read one element")),
    };
    if stage.te.buffers[0].dtype != buffer.dtype {
        let (a, b) = (buffer.dtype, stage.te.buffers[0].dtype);
        return refuse(format!("`{other}` is {a} and `{name}` {b}: rounding to {a} would be lost"));
    }
    if !is_neutral(sum) && matches!(stage.te.body, Body::Reduce(_)) {
        return refuse(format!("`{other}` has an `init=`, which would be added for each element"));
    }
    if let Body::Reduce(outer) = &stage.te.body {
        let allowed = outer.reassociate && sum.reassociate;
        check_order(schedule, call, 1, allowed || order_is_free(stage, outer), "merge")?;
    }
    Ok(indices)
}

/// Returns the indices of an expression that only reads one element of a tensor.
fn element_of(expr: &Expr, buffer: &Buffer) -> Option<Vec<Expr>> {
    match &expr.kind {
        ExprKind::Load { buffer: read, indices, .. } if read == buffer => Some(indices.clone()),
        // A cast to the compute type is exact.
        ExprKind::Cast(value) if expr.ty.dtype == buffer.dtype.compute_type() => {
            element_of(value, buffer)
        }
        _ => None,
    }
}

/// Returns the number of loads from a tensor in a body; shared expressions count once.
fn reads_of(body: &Body, buffer: &Buffer) -> usize {
    fn visit(expr: &Expr, buffer: &Buffer, seen: &mut FxHashSet<usize>, found: &mut usize) {
        if !seen.insert(expr.id()) {
            return;
        }
        let reads = matches!(&expr.kind, ExprKind::Load { buffer: read, .. } if read == buffer);
        *found += usize::from(reads);
        for_each_child(expr, &mut |child| visit(child, buffer, seen, found));
    }
    let (mut seen, mut found) = (FxHashSet::default(), 0);
    body.for_each_expr(&mut |expr| visit(expr, buffer, &mut seen, &mut found));
    found
}

/// Returns a variable with the name of an axis, numbered if the stage has an axis of this name.
fn fresh(axis: &te::Axis, stage: &Stage) -> Var {
    let taken = |name: &str| stage.axes.iter().any(|axis| axis.name == name);
    let name = axis.var.name();
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut all = std::iter::once(name.to_string()).chain(numbered);
    Var::index(all.find(|name| !taken(name)).expect("there are more numbers than axes"))
}
