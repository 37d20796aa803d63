//! Contraction of floating-point operations. It runs on the stage graph, so that schedules and back
//! ends cannot change a result (LANGUAGE.md, section 3).
//!
//! Before: `a*b + c`         After: `fma(a, b, c)`
//! Before: `c - a*b`         After: `fma(-a, b, c)`
//! Before: `x / 3.0`         After: `x * 0.33333334`
//! Before: `sum(a*b, …)`     After: a reduction that accumulates with `fma(a, b, acc)`

use super::{Body, Graph, Reduction};
use crate::ir::visit::{Memo, map_children};
use crate::ir::{BinOp, DType, Expr, ExprKind, Intrinsic, UnOp};

/// Fuses products into sums and turns division by constants into multiplication, as
/// `--fp-contract fast` says.
pub fn contract_floats(mut graph: Graph) -> Graph {
    for stage in &mut graph.stages {
        match &mut stage.body {
            Body::Map(values) => values.iter_mut().for_each(|value| *value = contract(value)),
            Body::Reduce(reduction) => contract_reduction(reduction),
            Body::Sort(sort) => {
                sort.values.iter_mut().for_each(|value| *value = contract(value));
                sort.key = contract(&sort.key);
            }
        }
    }
    graph
}

fn contract_reduction(reduction: &mut Reduction) {
    let is_sum = reduction.combiner.is_sum();
    reduction.fused = is_sum && is_product(&reduction.terms[0]);
    reduction.terms = reduction.terms.iter().map(contract).collect();
    reduction.condition = reduction.condition.as_ref().map(contract);
    let results = &mut reduction.combiner.result;
    *results = results.iter().map(contract).collect();
}

fn contract(expr: &Expr) -> Expr {
    Contractor::default().visit(expr)
}

fn is_product(expr: &Expr) -> bool {
    is_computed_float(expr) && matches!(expr.kind, ExprKind::Binary(BinOp::Mul, ..))
}

fn is_computed_float(expr: &Expr) -> bool {
    matches!(expr.ty.dtype, DType::Float32 | DType::Float64)
}

/// Rewrites bottom up; a node that several expressions share is rewritten once.
#[derive(Default)]
struct Contractor {
    done: Memo<Expr>,
}

impl Contractor {
    fn visit(&mut self, expr: &Expr) -> Expr {
        if let Some(done) = self.done.get(expr) {
            return done.clone();
        }
        let result = self.rewrite(expr);
        self.done.insert(expr, result.clone());
        result
    }

    fn rewrite(&mut self, expr: &Expr) -> Expr {
        let inner = map_children(expr, &mut |child| self.visit(child));
        if !is_computed_float(expr) {
            return inner;
        }
        // Only products of the source are fused, not divisions that became products.
        match (&expr.kind, &inner.kind) {
            (ExprKind::Binary(BinOp::Add, a, b), ExprKind::Binary(_, new_a, new_b)) => {
                if is_product(a) {
                    fused(new_a, new_b.clone(), false)
                } else if is_product(b) {
                    fused(new_b, new_a.clone(), false)
                } else {
                    inner
                }
            }
            (ExprKind::Binary(BinOp::Sub, a, b), ExprKind::Binary(_, new_a, new_b)) => {
                if is_product(a) {
                    fused(new_a, Expr::unary(UnOp::Neg, new_b.clone()), false)
                } else if is_product(b) {
                    fused(new_b, new_a.clone(), true)
                } else {
                    inner
                }
            }
            (ExprKind::Binary(BinOp::Div, ..), ExprKind::Binary(_, x, divisor)) => {
                match reciprocal(divisor) {
                    Some(reciprocal) => Expr::mul(x.clone(), reciprocal),
                    None => inner,
                }
            }
            _ => inner,
        }
    }
}

/// `fma(x, y, addend)` of the product `x*y`, or of `-x*y`.
fn fused(product: &Expr, addend: Expr, negate: bool) -> Expr {
    let ExprKind::Binary(BinOp::Mul, x, y) = &product.kind else {
        crate::bug!("a product lost its multiplication");
    };
    let x = if negate { Expr::unary(UnOp::Neg, x.clone()) } else { x.clone() };
    Expr::call(Intrinsic::Fma, vec![x, y.clone(), addend])
}

/// `1 / divisor`, rounded, if both are normal numbers.
fn reciprocal(divisor: &Expr) -> Option<Expr> {
    let value = divisor.as_float()?;
    match divisor.ty.dtype {
        DType::Float32 => {
            let reciprocal = 1.0 / value as f32;
            let normal = (value as f32).is_normal() && reciprocal.is_normal();
            normal.then(|| Expr::float(DType::Float32, reciprocal as f64))
        }
        _ => {
            let reciprocal = 1.0 / value;
            let normal = value.is_normal() && reciprocal.is_normal();
            normal.then(|| Expr::float(DType::Float64, reciprocal))
        }
    }
}
