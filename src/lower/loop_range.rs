//! The iterations of a loop in which affine expressions are not negative.

use crate::ir::arith::Facts;
use crate::ir::simplify::{extremum, simplify_expr};
use crate::ir::visit::substitute;
use crate::ir::{BinOp, Expr, Var};

/// An index that is `start + slope*v` for the variable `v` of a loop.
#[derive(Clone)]
pub(super) struct Affine {
    pub slope: i64,
    pub start: Expr,
}

impl Affine {
    /// Matches an expression that is affine in `var`; `None` if it is not, or does not depend on
    /// `var`.
    pub fn new(expr: &Expr, var: &Var, facts: &Facts) -> Option<Affine> {
        let at = |value: Expr| substitute(expr, &mut |v| (v == var).then(|| value.clone()));
        if let Some((slope, _)) = facts.affine(expr, var) {
            let slope = i64::try_from(slope).ok().filter(|slope| *slope != 0)?;
            return Some(Affine { slope, start: simplify_expr(&at(Expr::index(0)), facts) });
        }
        let next = at(Expr::add(Expr::var(var), Expr::index(1)));
        let slope = simplify_expr(&Expr::sub(next, expr.clone()), facts);
        let slope = i64::try_from(slope.as_int()?).ok()?;
        let start = simplify_expr(&at(Expr::index(0)), facts);
        // Facts about the variable may make the slope constant where 0 is outside of its range.
        let line = Expr::add(start.clone(), Expr::mul(Expr::var(var), Expr::index(slope)));
        let fits = slope != 0 && facts.prove(&Expr::eq(expr.clone(), line));
        fits.then_some(Affine { slope, start })
    }
}

/// Returns the part `first .. end` of a range in which all `margins` are at least 0; an empty part
/// if there is none.
pub(super) fn iterations_where(
    margins: &[&Affine],
    range: (&Expr, &Expr),
    facts: &Facts,
) -> (Expr, Expr) {
    let (mut first, mut end) = (range.0.clone(), range.1.clone());
    for Affine { slope, start } in margins.iter().copied() {
        if *slope < 0 {
            // start + slope*v >= 0 up to v = start // -slope
            let high = Expr::binary(BinOp::FloorDiv, start.clone(), Expr::index(-slope));
            let high = Expr::add(high, Expr::index(1));
            end = extremum(BinOp::Min, end, high, facts);
        } else {
            // from v = ceil(-start / slope) on
            let up = Expr::sub(Expr::index(slope - 1), start.clone());
            let low = Expr::binary(BinOp::FloorDiv, up, Expr::index(*slope));
            first = extremum(BinOp::Max, first, low, facts);
        }
    }
    ordered(first, end, range.1, facts)
}

/// Limits `first .. end`, which may be in the wrong order or outside of a range that ends at
/// `last`, to that range.
pub(super) fn ordered(first: Expr, end: Expr, last: &Expr, facts: &Facts) -> (Expr, Expr) {
    let first = extremum(BinOp::Min, first, last.clone(), facts);
    let end = extremum(BinOp::Max, end, first.clone(), facts);
    (first, end)
}
