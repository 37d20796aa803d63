//! `distribute`: a sum of products of sums becomes several sums of products.
//!
//! Before: `S[i, j] = sum((A[i, k] - a) * (B[k, j] - b), axis=k)`, where `a` and `b` do not depend
//! on `k`.
//! After `S.distribute()`: `S.product[i, j] = sum(A[i, k] * B[k, j], axis=k)`,
//! `S.sum[j] = sum(B[k, j], axis=k)`, `S.sum_2[i] = sum(A[i, k], axis=k)`,
//! `S[i, j] = S.product[i, j] - a * S.sum[j] - b * S.sum_2[i] + a * b * n`.
//! Integers wrap, so this changes no bit of an integer sum.

use super::algebra::{check_default_loops, factors_of, is_neutral, plain_sum, set_body, typed};
use super::call::{Call, Value};
use super::{Directive, Subject, Targets};
use crate::diag::{Diag, Result};
use crate::ir::visit::{mentions, substitute};
use crate::ir::{BinOp, DType, Expr, ExprKind, Scope, UnOp, Var};
use crate::schedule::derived_stage::{insert_stage, load, rename};
use crate::schedule::state::{Schedule, Stage};
use crate::te::{self, Body, Recurrence, Reduction};

/// The most factors of a product that are distributed: each doubles the number of sums.
const MAX_FACTORS: usize = 2;

/// `S.distribute()`: sums the products of the parts that depend on the terms in stages of their
/// own.
pub(super) static DISTRIBUTE: Directive = Directive {
    name: "distribute",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[],
    usage: "distribute()",
    run: distribute,
    check: None,
};

fn distribute(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    check_default_loops(schedule, id, call, "distribute")?;
    let parts = Parts::of(schedule, call)?;
    let stage = schedule.stage(id).clone();
    let (mut value, mut made) = (None, Vec::new());
    for (coefficient, factors) in parts.products() {
        let product = coefficient.is_none();
        let of_terms = factors.iter().any(|factor| parts.depends(factor));
        let sum = if product || of_terms {
            let (mut te, indices) = parts.sum_stage(&stage, &factors, product);
            rename(schedule, &mut te, if product { "product" } else { "sum" }, Scope::Global);
            let read = load(&te.buffers[0], indices);
            made.push(Value::Stage(insert_stage(schedule, te, id, call.span)));
            let repeated = if product { None } else { parts.repetitions(&factors) };
            repeated.map_or(read.clone(), |times| Expr::mul(read, times))
        } else {
            let one = Expr::int(parts.dtype(), 1);
            let times = parts.repetitions(&[]).unwrap_or(one);
            factors.into_iter().fold(times, Expr::mul)
        };
        let addend = match coefficient {
            Some(coefficient) => Expr::mul(coefficient, sum),
            None => sum,
        };
        value = Some(match value {
            Some(before) => Expr::add(before, addend),
            None => addend,
        });
    }
    let value = value.expect("there is a product");
    set_body(schedule.stage_mut(id), Body::Map(vec![value]));
    Ok(made)
}

/// A factor of the terms: a part that depends on the term, and one that is the same for all terms
/// of an element.
struct Factor {
    varying: Expr,
    constant: Option<Expr>,
}

/// A sum of products, and its factors.
struct Parts {
    sum: Reduction,
    factors: Vec<Factor>,
}

impl Parts {
    fn of(schedule: &Schedule, call: &Call) -> Result<Parts> {
        let stage = schedule.stage(call.stage());
        let name = &stage.te.name;
        let refuse = |why: String| -> Result<Parts> {
            let text = format!("the terms of `{name}` cannot be distributed");
            Err(Box::new(Diag::new("E0398", call.span, text).note(why)))
        };
        let sum = match plain_sum(stage) {
            Ok(sum) => sum,
            Err(why) => return refuse(why),
        };
        let dtype = sum.terms[0].ty.dtype;
        if !dtype.is_int() || dtype == DType::Index || dtype != stage.te.buffers[0].dtype {
            return refuse(format!("its terms are {dtype}; only sums of integers stay the same"));
        }
        let depends = |expr: &Expr| sum.axes.iter().any(|axis| mentions(expr, &axis.var));
        let mut left = MAX_FACTORS;
        let mut factors = Vec::new();
        for factor in factors_of(&sum.terms[0]) {
            let (mut varying, mut constant) = (None, None);
            if left > 0 && depends(&factor) {
                split_addends(&factor, false, &depends, &mut varying, &mut constant);
            }
            match (varying, constant) {
                (Some(varying), constant @ Some(_)) => {
                    factors.push(Factor { varying, constant });
                    left -= 1;
                }
                _ => factors.push(Factor { varying: factor, constant: None }),
            }
        }
        if left == MAX_FACTORS {
            let names: Vec<String> =
                sum.axes.iter().map(|axis| format!("`{}`", axis.var.name())).collect();
            let names = names.join(", ");
            return refuse(format!("no factor adds something that does not depend on {names}"));
        }
        Ok(Parts { sum: sum.clone(), factors })
    }

    fn dtype(&self) -> DType {
        self.sum.terms[0].ty.dtype
    }

    fn depends(&self, expr: &Expr) -> bool {
        self.sum.axes.iter().any(|axis| mentions(expr, &axis.var))
    }

    /// Returns the products that the terms are sums of: the factors that are constant, multiplied,
    /// and the others. The first product has no constant ones.
    fn products(&self) -> Vec<(Option<Expr>, Vec<Expr>)> {
        let mut products: Vec<(Option<Expr>, Vec<Expr>)> = vec![(None, Vec::new())];
        for factor in &self.factors {
            let mut with_constant = Vec::new();
            if let Some(constant) = &factor.constant {
                with_constant.extend(products.iter().map(|(before, factors)| {
                    let all = before.iter().cloned().chain([constant.clone()]).reduce(Expr::mul);
                    (all, factors.clone())
                }));
            }
            products.iter_mut().for_each(|(_, factors)| factors.push(factor.varying.clone()));
            products.extend(with_constant);
        }
        products
    }

    /// Returns how often a sum over the axes that the factors depend on occurs in the sum over all
    /// axes; `None` if once.
    fn repetitions(&self, factors: &[Expr]) -> Option<Expr> {
        let repeated = self
            .sum
            .axes
            .iter()
            .filter(|axis| !factors.iter().any(|factor| mentions(factor, &axis.var)));
        repeated.map(|axis| Expr::cast(self.dtype(), axis.extent.clone())).reduce(Expr::mul)
    }

    /// Returns the stage that sums a product, and the indices at which the element of the original
    /// stage reads it. If `whole`, it has all axes of the original stage and its start values.
    fn sum_stage(&self, stage: &Stage, factors: &[Expr], whole: bool) -> (te::Stage, Vec<Expr>) {
        let needed =
            |axis: &te::Axis| whole || factors.iter().any(|factor| mentions(factor, &axis.var));
        let around: Vec<te::Axis> =
            stage.te.axes.iter().filter(|axis| needed(axis)).cloned().collect();
        let over: Vec<te::Axis> =
            self.sum.axes.iter().filter(|axis| needed(axis)).cloned().collect();
        let renamed = |axes: &[te::Axis], from_zero: bool| -> Vec<te::Axis> {
            let axis = |axis: &te::Axis| te::Axis {
                var: Var::index(axis.var.name()),
                min: if from_zero { Expr::index(0) } else { axis.min.clone() },
                extent: axis.extent.clone(),
            };
            axes.iter().map(axis).collect()
        };
        let (data, terms) = (renamed(&around, true), renamed(&over, false));
        let starts_at_zero = |axis: &te::Axis| axis.min.as_int() == Some(0);
        let in_new_axes = |expr: &Expr| {
            substitute(expr, &mut |var| {
                if let Some(at) = around.iter().position(|axis| axis.var == *var) {
                    let value = Expr::var(&data[at].var);
                    let min = &around[at].min;
                    return Some(match starts_at_zero(&around[at]) {
                        true => value,
                        false => Expr::add(min.clone(), value),
                    });
                }
                let at = over.iter().position(|axis| axis.var == *var)?;
                Some(Expr::var(&terms[at].var))
            })
        };
        let product = factors.iter().map(in_new_axes).reduce(Expr::mul).expect("it has factors");
        let zero = Expr::cast(self.dtype(), self.sum.combiner.identity[0].clone());
        let identity = match whole && !is_neutral(&self.sum) {
            true => self.sum.identity.iter().map(in_new_axes).collect(),
            false => vec![zero],
        };
        let indices = around.iter().map(|axis| match starts_at_zero(axis) {
            true => Expr::var(&axis.var),
            false => Expr::sub(Expr::var(&axis.var), axis.min.clone()),
        });
        let reduction =
            Reduction { axes: terms, identity, terms: vec![product], ..self.sum.clone() };
        let te = te::Stage {
            name: stage.te.name.clone(),
            buffers: vec![typed(&stage.te.buffers[0], self.dtype())],
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

/// Adds the addends of a sum to those that vary and to those that do not; `negative` if the sum is
/// subtracted.
fn split_addends(
    expr: &Expr,
    negative: bool,
    depends: &dyn Fn(&Expr) -> bool,
    varying: &mut Option<Expr>,
    constant: &mut Option<Expr>,
) {
    match &expr.kind {
        ExprKind::Binary(BinOp::Add, a, b) => {
            split_addends(a, negative, depends, varying, constant);
            split_addends(b, negative, depends, varying, constant);
        }
        ExprKind::Binary(BinOp::Sub, a, b) => {
            split_addends(a, negative, depends, varying, constant);
            split_addends(b, !negative, depends, varying, constant);
        }
        _ => {
            let place = if depends(expr) { varying } else { constant };
            *place = Some(match (place.take(), negative) {
                (None, false) => expr.clone(),
                (None, true) => Expr::unary(UnOp::Neg, expr.clone()),
                (Some(before), false) => Expr::add(before, expr.clone()),
                (Some(before), true) => Expr::sub(before, expr.clone()),
            });
        }
    }
}
