//! An index in a loop nest: its value in the first iteration, and its steps.

use super::arith::Facts;
use super::simplify::simplify_expr;
use super::visit::{any_expr, substitute};
use super::{BinOp, Expr, Var};

/// Replaces every variable of the nest by 0.
pub fn at_zero(expr: &Expr, vars: &[Var]) -> Expr {
    let expr = substitute(expr, &mut |var| vars.contains(var).then(|| Expr::index(0)));
    simplify_expr(&expr, &Facts::new())
}

/// Returns the increase of `expr` when `var` grows by one, if it is the same everywhere in the
/// nest.
pub fn step_of(expr: &Expr, var: &Var, vars: &[Var]) -> Option<Expr> {
    let next = Expr::binary(BinOp::Add, Expr::var(var), Expr::index(1));
    let after = substitute(expr, &mut |v| (v == var).then(|| next.clone()));
    let step = simplify_expr(&Expr::sub(after, expr.clone()), &Facts::new());
    let regular = !any_expr(&step, &mut |e| e.as_var().is_some_and(|v| vars.contains(v)));
    regular.then_some(step)
}
