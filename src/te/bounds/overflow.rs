//! Checks that `index` arithmetic fits 64 bits: by constant bounds, by proof, or on entry.

use super::text::show;
use super::walker::{EntryCheck, Walker};
use super::witness::{Domain, SearchResult, find_violation};
use crate::diag::Diag;
use crate::ir::arith::Interval;
use crate::ir::visit::substitute;
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp, Var};
use crate::te::Axis;

/// Proves that one `index` operation cannot overflow, refuses it (E0262) or checks it on entry. Its
/// operands are visited separately.
pub(super) fn check_index(walker: &mut Walker, expr: &Expr) {
    let operation = matches!(
        &expr.kind,
        ExprKind::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Shl, ..)
            | ExprKind::Unary(UnOp::Neg | UnOp::Abs, _)
    );
    if !operation || fits(walker.quick_interval(expr)) {
        return;
    }
    let (low, high) = limits();
    let facts = &walker.checker.facts;
    if fits(facts.interval(expr)) || facts.prove(&Expr::and(at_least(expr), at_most(expr))) {
        return;
    }
    let guards = walker.guards_at_entry();
    let conds = guards.iter().map(|(cond, _)| cond);
    let profile = walker.profile(conds.chain([expr]));
    if profile.constant() {
        let ranges: Option<Vec<(Var, i64, i64)>> = profile
            .axes
            .iter()
            .map(|&at| {
                let axis = &walker.axes[at];
                let min = i64::try_from(axis.min.as_int()?).ok()?;
                Some((axis.var.clone(), min, i64::try_from(axis.extent.as_int()?).ok()?))
            })
            .collect();
        if let Some(axes) = ranges {
            let domain = Domain { axes: &axes, guards: &guards };
            match find_violation(&domain, expr, low, high) {
                Some(SearchResult::Holds) => return,
                Some(SearchResult::Violated(point, _)) => {
                    return refuse(walker, expr, &axes, &point);
                }
                _ => {}
            }
        }
    }
    if !walker.profile([expr]).at_entry() {
        return refuse(walker, expr, &[], &[]);
    }
    let message = format!("`{}` does not fit 64 bits", show(expr));
    let over: Vec<Var> = walker.axes.iter().map(|axis| axis.var.clone()).collect();
    let facts = &walker.checker.facts;
    let ends = facts.extreme(expr, &over, false).zip(facts.extreme(expr, &over, true));
    match ends {
        // The check evaluates both extremes and fails if one overflows. It evaluates the expression
        // as written, at the corner: in another order, an intermediate value could overflow.
        Some((least, most)) if walker.guards.is_empty() => {
            let corner = |values| at_corner(expr, values, &walker.axes);
            let cond = Expr::le(corner(&least.at), corner(&most.at));
            walker.add_check(EntryCheck { cond, message, values: Vec::new() });
        }
        _ => {
            let cond = Expr::or(at_most(expr), Expr::lt(Expr::index(0), expr.clone()));
            walker.add_scan(
                EntryCheck { cond, message, values: Vec::new() },
                &profile.axes,
                &guards,
            );
        }
    }
}

/// Refuses an operation that overflows (E0262).
fn refuse(walker: &mut Walker, expr: &Expr, axes: &[(Var, i64, i64)], point: &[i64]) {
    let values: Vec<String> =
        axes.iter().zip(point).map(|((var, ..), v)| format!("{} = {v}", var.name())).collect();
    let at = if values.is_empty() { String::new() } else { format!(" at {}", values.join(", ")) };
    let message = format!("`{}` does not fit 64 bits{at}", show(expr));
    let diag = Diag::new("E0262", walker.default_span(), message);
    walker.refuse(diag.note("axes and extents are computed with 64 bits"));
}

/// Returns the expression with these values of variables, and the first value of variables that
/// cancel out.
fn at_corner(expr: &Expr, values: &[(Var, Expr)], axes: &[Axis]) -> Expr {
    substitute(expr, &mut |var| {
        let value = values.iter().find(|(other, _)| other == var).map(|(_, value)| value);
        let first = || axes.iter().find(|axis| axis.var == *var).map(|axis| &axis.min);
        value.or_else(first).cloned()
    })
}

/// Returns the least and the largest `index`.
fn limits() -> (i128, i128) {
    DType::Index.int_range()
}

fn fits(interval: Interval) -> bool {
    let (low, high) = limits();
    Interval::new(low, high).covers(interval)
}

fn at_least(expr: &Expr) -> Expr {
    Expr::le(Expr::int(DType::Index, limits().0), expr.clone())
}

fn at_most(expr: &Expr) -> Expr {
    Expr::le(expr.clone(), Expr::int(DType::Index, limits().1))
}

impl Walker<'_> {
    /// Constant bounds, computed from the bounds of the operands. This is linear in the size of a
    /// sum; a normal form of each prefix would be quadratic.
    fn quick_interval(&mut self, expr: &Expr) -> Interval {
        if let Some(known) = self.intervals.get(&(expr.id(), self.state)) {
            return *known;
        }
        let interval = match &expr.kind {
            ExprKind::Binary(BinOp::Add, a, b) => {
                let (a, b) = (self.quick_interval(a), self.quick_interval(b));
                a.add(b)
            }
            ExprKind::Binary(BinOp::Sub, a, b) => {
                let (a, b) = (self.quick_interval(a), self.quick_interval(b));
                a.add(b.neg())
            }
            ExprKind::Binary(BinOp::Mul, a, b) => {
                let (a, b) = (self.quick_interval(a), self.quick_interval(b));
                a.mul(b)
            }
            ExprKind::Unary(UnOp::Neg, a) => self.quick_interval(a).neg(),
            _ => self.checker.facts.interval(expr),
        };
        self.intervals.insert((expr.id(), self.state), interval);
        interval
    }
}
