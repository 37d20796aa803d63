//! The domain of a user's reducer: the condition (`where`) on every value that it combines.
//!
//! `check_reducer` tries the reducer on values of its domain only. A term or start value that may
//! lie outside of the domain is refused here, because another schedule could then give another
//! result.

use super::Elaborator;
use super::reducers::ReducerKind;
use crate::diag::{Diag, Span};
use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::substitute;
use crate::ir::{BinOp, Const, Expr, ExprKind, UnOp};
use crate::te::{Axis, Combiner};

impl<'a> Elaborator<'a> {
    /// Proves that the values of a reduction are in the domain of its reducer, under the `where=`
    /// of the reduction (E0236).
    pub fn check_domain(
        &mut self,
        kind: &ReducerKind<'a>,
        combiner: &Combiner,
        (values, span): (&[Expr], Span),
        condition: Option<&Expr>,
        axes: &[Axis],
    ) -> Option<()> {
        let (Some(domain), ReducerKind::Custom(reducer)) = (&combiner.domain, kind) else {
            return Some(());
        };
        let domain = substitute(domain, &mut |var| {
            let at = combiner.lhs.iter().position(|lhs| lhs == var)?;
            Some(values[at].clone())
        });
        let mut facts = Facts::new();
        axes.iter().for_each(|axis| facts.bind(&axis.var, &axis.min, &axis.extent));
        let mut known = KnownConditions { facts, conditions: Vec::new() };
        if let Some(condition) = condition {
            known.assume(&simplify_expr(condition, &known.facts));
        }
        if known.proves(&simplify_expr(&domain, &known.facts)) {
            return Some(());
        }
        let name = &combiner.name;
        let message = format!("this value may be outside of the domain of `{name}`");
        let diag = Diag::new("E0236", span, message)
            .help("exclude such terms with the same condition: `where=…`");
        let place = reducer.domain.as_ref().expect("it has a domain").span;
        self.error(diag.related(place, format!("`{name}` takes values that satisfy this")));
        None
    }
}

/// The facts that hold where a term is evaluated.
struct KnownConditions {
    /// Facts about integers.
    facts: Facts,
    /// Conditions as written.
    conditions: Vec<Expr>,
}

impl KnownConditions {
    fn assume(&mut self, condition: &Expr) {
        if let ExprKind::Binary(BinOp::And, a, b) = &condition.kind {
            self.assume(a);
            self.assume(b);
            return;
        }
        self.facts.assume(condition);
        self.conditions.push(condition.clone());
    }

    fn proves(&self, goal: &Expr) -> bool {
        if self.conditions.iter().any(|known| implies(known, goal)) {
            return true;
        }
        match &goal.kind {
            ExprKind::Const(Const::Int(value)) => *value != 0,
            ExprKind::Binary(BinOp::And, a, b) => self.proves(a) && self.proves(b),
            ExprKind::Binary(BinOp::Or, a, b) => self.proves(a) || self.proves(b),
            ExprKind::Binary(op, a, b) if a.ty.dtype.is_float() => self.compares(*op, a, b),
            _ => self.facts.prove(goal),
        }
    }

    /// Whether a comparison of floats holds.
    fn compares(&self, op: BinOp, a: &Expr, b: &Expr) -> bool {
        let (Some(a), Some(b)) = (self.range(a), self.range(b)) else { return false };
        match op {
            BinOp::Lt => a.1 < b.0,
            BinOp::Le => a.1 <= b.0,
            BinOp::Gt => a.0 > b.1,
            BinOp::Ge => a.0 >= b.1,
            BinOp::Eq => a.0 == a.1 && b.0 == b.1 && a.0 == b.0,
            BinOp::Ne => a.1 < b.0 || b.1 < a.0,
            _ => false,
        }
    }

    /// Bounds of a float; `None` if it may be NaN.
    fn range(&self, expr: &Expr) -> Option<(f64, f64)> {
        let found = self.range_by_form(expr);
        let compared = self.conditions.iter().filter_map(|known| compared(known, expr));
        compared.chain(found).reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))
    }

    fn range_by_form(&self, expr: &Expr) -> Option<(f64, f64)> {
        let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
        match &expr.kind {
            ExprKind::Const(Const::Float(value)) => (!value.is_nan()).then_some((*value, *value)),
            ExprKind::Cast(a) if !a.ty.dtype.is_float() => {
                let (min, max) = a.ty.dtype.int_range();
                let (from, to) = self.facts.const_bounds(a);
                let round = |value: i128| expr.ty.dtype.round_float(value as f64);
                Some((round(from.unwrap_or(min)), round(to.unwrap_or(max))))
            }
            ExprKind::Unary(UnOp::Abs, a) => {
                let (from, to) = self.range(a)?;
                let both = (from.abs(), to.abs());
                let least = if from <= 0.0 && to >= 0.0 { 0.0 } else { both.0.min(both.1) };
                Some((least, both.0.max(both.1)))
            }
            // `max(a, b)` is `b` where `a` is NaN.
            ExprKind::Binary(BinOp::Max, a, b) => {
                let (from, to) = self.range(b)?;
                Some((from, self.range(a).map_or(high, |a| a.1.max(to))))
            }
            ExprKind::Binary(BinOp::Min, a, b) => {
                let (from, to) = self.range(b)?;
                Some((self.range(a).map_or(low, |a| a.0.min(from)), to))
            }
            ExprKind::Select(_, a, b) | ExprKind::IfThenElse(_, a, b) => {
                let (a, b) = (self.range(a)?, self.range(b)?);
                Some((a.0.min(b.0), a.1.max(b.1)))
            }
            _ => None,
        }
    }
}

/// Returns the bounds of an expression that a comparison with a constant implies. NaN satisfies
/// none.
fn compared(known: &Expr, expr: &Expr) -> Option<(f64, f64)> {
    let ExprKind::Binary(op, a, b) = &known.kind else { return None };
    let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
    let (value, is_left) = match (a.as_float(), b.as_float()) {
        (None, Some(value)) if equal(a, expr) => (value, true),
        (Some(value), None) if equal(b, expr) => (value, false),
        _ => return None,
    };
    match (op, is_left) {
        (BinOp::Lt | BinOp::Le, true) | (BinOp::Gt | BinOp::Ge, false) => Some((low, value)),
        (BinOp::Lt | BinOp::Le, false) | (BinOp::Gt | BinOp::Ge, true) => Some((value, high)),
        (BinOp::Eq, _) => Some((value, value)),
        _ => None,
    }
}

/// Whether one condition follows from another by its form.
fn implies(known: &Expr, goal: &Expr) -> bool {
    if equal(known, goal) {
        return true;
    }
    let (ExprKind::Binary(strict, a, b), ExprKind::Binary(op, x, y)) = (&known.kind, &goal.kind)
    else {
        return false;
    };
    let weaker = matches!(
        (strict, op),
        (BinOp::Lt, BinOp::Le | BinOp::Ne)
            | (BinOp::Gt, BinOp::Ge | BinOp::Ne)
            | (BinOp::Eq, BinOp::Le | BinOp::Ge)
    );
    weaker && equal(a, x) && equal(b, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{DType, Var};

    #[test]
    fn float_ranges_exclude_nan() {
        let known = KnownConditions { facts: Facts::new(), conditions: Vec::new() };
        let x = Expr::var(&Var::new("x", DType::Float32));
        let zero = Expr::float(DType::Float32, 0.0);
        let at_least = |a: &Expr| Expr::binary(BinOp::Le, zero.clone(), a.clone());
        let max = |a: &Expr, b: &Expr| Expr::binary(BinOp::Max, a.clone(), b.clone());
        assert!(known.proves(&at_least(&max(&x, &zero))));
        // The result is NaN if the second operand is.
        assert!(!known.proves(&at_least(&max(&zero, &x))));
        assert!(!known.proves(&at_least(&Expr::unary(UnOp::Abs, x.clone()))));
        let small = Expr::cast(DType::Float32, Expr::var(&Var::new("u", DType::Uint8)));
        assert!(known.proves(&at_least(&small)));
        assert!(!known.proves(&Expr::binary(BinOp::Lt, zero.clone(), small)));
    }

    #[test]
    fn proves_goals_that_follow_from_conditions() {
        let x = Expr::var(&Var::new("x", DType::Float32));
        let zero = Expr::float(DType::Float32, 0.0);
        let compare = |op| Expr::binary(op, zero.clone(), x.clone());
        let mut known = KnownConditions { facts: Facts::new(), conditions: Vec::new() };
        assert!(!known.proves(&compare(BinOp::Le)));
        known.assume(&Expr::and(compare(BinOp::Lt), Expr::bool(true)));
        for op in [BinOp::Lt, BinOp::Le, BinOp::Ne] {
            assert!(known.proves(&compare(op)), "{op:?}");
        }
        assert!(!known.proves(&compare(BinOp::Gt)));
        let half = Expr::float(DType::Float32, 0.5);
        let abs = Expr::unary(UnOp::Abs, x.clone());
        assert!(known.proves(&Expr::binary(BinOp::Le, zero.clone(), abs.clone())));
        assert!(!known.proves(&Expr::binary(BinOp::Lt, half.clone(), x.clone())));
        known.assume(&Expr::binary(BinOp::Gt, x.clone(), half.clone()));
        assert!(known.proves(&Expr::binary(BinOp::Le, half, abs)));
        assert!(known.proves(&Expr::binary(BinOp::Or, compare(BinOp::Eq), compare(BinOp::Lt))));
    }
}
