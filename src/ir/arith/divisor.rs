//! Divisibility of indices by their structure.

use super::gcd;
use crate::ir::{BinOp, Expr, ExprKind, UnOp, Var};

/// The largest number of nodes that are visited.
const MAX_NODES: u32 = 4096;

/// Returns a divisor of all values of a scalar index, the largest that is found; 0 for the constant
/// 0. `value_of` returns the definition of a variable.
pub(crate) fn divisor(expr: &Expr, value_of: &dyn Fn(&Var) -> Option<Expr>) -> i128 {
    divisor_within(expr, value_of, &mut MAX_NODES.clone())
}

fn divisor_within(expr: &Expr, value_of: &dyn Fn(&Var) -> Option<Expr>, left: &mut u32) -> i128 {
    if *left == 0 {
        return 1;
    }
    *left -= 1;
    if let Some(value) = expr.as_int() {
        return value.checked_abs().unwrap_or(1);
    }
    let mut of = |expr: &Expr| divisor_within(expr, value_of, left);
    match &expr.kind {
        ExprKind::Var(var) => value_of(var).map_or(1, |value| of(&value)),
        ExprKind::Unary(UnOp::Neg | UnOp::Abs, a) => of(a),
        ExprKind::Binary(BinOp::Mul, a, b) => of(a).checked_mul(of(b)).unwrap_or(1),
        // The remainder is `a - b*(a//b)`, or 0 if `b` is 0.
        ExprKind::Binary(
            BinOp::Add | BinOp::Sub | BinOp::Min | BinOp::Max | BinOp::FloorMod,
            a,
            b,
        ) => gcd(of(a), of(b)),
        ExprKind::Binary(BinOp::FloorDiv, a, b) => match (of(a), b.as_int()) {
            (a, Some(b)) if b != 0 && a % b == 0 => (a / b).abs(),
            _ => 1,
        },
        ExprKind::Select(_, t, f) | ExprKind::IfThenElse(_, t, f) => gcd(of(t), of(f)),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mul(a: Expr, b: i64) -> Expr {
        Expr::binary(BinOp::Mul, a, Expr::index(b))
    }

    #[test]
    fn divisors_go_through_remainders_and_definitions() {
        let (i, stage, n) = (Var::index("i"), Var::index("stage"), Var::index("n"));
        let (at, size) = (Expr::var(&i), Expr::var(&n));
        let turn = Expr::binary(BinOp::FloorMod, at.clone(), Expr::index(3));
        let hoisted = mul(turn, 5120);
        let value_of = |var: &Var| (*var == stage).then(|| hoisted.clone());
        let of = |expr: &Expr| divisor(expr, &value_of);
        let index = Expr::add(Expr::var(&stage), mul(at.clone(), 40));
        assert_eq!(of(&index), 40);
        assert_eq!(divisor(&index, &|_| None), 1);
        assert_eq!(of(&Expr::binary(BinOp::FloorMod, mul(at.clone(), 24), Expr::index(16))), 8);
        assert_eq!(of(&Expr::binary(BinOp::FloorDiv, mul(at.clone(), 24), Expr::index(3))), 8);
        assert_eq!(of(&Expr::binary(BinOp::FloorDiv, mul(at.clone(), 24), Expr::index(5))), 1);
        assert_eq!(of(&Expr::sub(mul(size, 12), mul(at, 18))), 6);
        assert_eq!(of(&Expr::index(0)), 0);
    }
}
