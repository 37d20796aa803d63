//! `contract`: one sum of products becomes two.
//!
//! Before: `S[i, l] = sum(A[i, k] * B[k, j] * C[j, l], axis=[k, j])`.
//! After `S.contract(k)`: `S.part[i, j] = sum(A[i, k] * B[k, j], axis=k)`,
//! `S[i, l] = sum(S.part[i, j] * C[j, l], axis=j)`.
//! Factors that do not depend on `k` move out of the sum over `k`. The axis that is contracted
//! first determines the order of a chain of products. Products are distributed over sums, so the
//! terms must be integers, or the program must allow to reassociate them.

use super::algebra::{
    check_default_loops, check_order, factors_of, is_neutral, plain_sum, set_body, typed,
};
use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result};
use crate::ir::visit::mentions;
use crate::ir::visit::substitute;
use crate::ir::{Expr, Scope, Var};
use crate::schedule::derived_stage::{insert_stage, load, rename};
use crate::schedule::legality::order_is_free;
use crate::schedule::state::{AxisId, AxisKind, Schedule, Stage};
use crate::te::{self, Body, Recurrence, Reduction};

/// `S.contract(k, …)`: sums the factors that depend on the axes first, in a new stage.
pub(super) static CONTRACT: Directive = Directive {
    name: "contract",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[required("axes", ArgKind::Axes), optional("reassociate", ArgKind::Bool)],
    usage: "contract(k, …) or contract(k, …, reassociate=true)",
    run: contract,
    check: None,
};

fn contract(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    check_default_loops(schedule, id, call, "contract")?;
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

/// The factors and axes of a sum of products, divided into two sums.
struct Parts {
    /// The axes of the new, inner sum.
    first: Vec<te::Axis>,
    /// The axes of the outer sum.
    kept: Vec<te::Axis>,
    /// Factors that depend on `first`.
    inside: Vec<Expr>,
    /// The other factors.
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
        let sum = match plain_sum(stage) {
            Ok(sum) => sum,
            Err(why) => return refuse(why),
        };
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
        check_order(schedule, call, 1, sum.reassociate || order_is_free(stage, sum), "contract")?;
        Ok(Parts { first, kept, inside, outside })
    }

    /// Returns the stage of partial sums, whose data axes are those that its factors depend on, and
    /// the indices at which the outer sum reads it.
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
            // The type of a running sum: partial sums must not be rounded further.
            buffers: vec![typed(&stage.te.buffers[0], dtype)],
            axes: data,
            body: Body::Reduce(reduction),
            output: false,
            recurrence: stage.te.recurrence.as_ref().map(Recurrence::of_added_stage),
            update: None,
            span: stage.te.span,
            load_spans: Vec::new(),
        };
        (te, indices.collect())
    }
}
