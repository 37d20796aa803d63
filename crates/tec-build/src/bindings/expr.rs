//! Extents as Rust expressions over `tec_rt::bind::Int`, whose arithmetic is checked.

use tec::ir::{BinOp, Expr, ExprKind, UnOp};

/// Returns an integer expression; `name_of` is the local variable of a run-time integer.
pub(super) fn integer(expr: &Expr, name_of: &dyn Fn(&str) -> String) -> String {
    let int = |expr: &Expr| integer(expr, name_of);
    let operand = |expr: &Expr| match &expr.kind {
        ExprKind::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul, ..) => {
            format!("({})", integer(expr, name_of))
        }
        _ => integer(expr, name_of),
    };
    match &expr.kind {
        ExprKind::Const(_) => match expr.as_int() {
            Some(value) => format!("Int::from({value}_i64)"),
            None => unreachable!("an extent is an integer"),
        },
        ExprKind::Var(var) => name_of(var.name()),
        ExprKind::Unary(UnOp::Abs, a) => format!("{}.abs()", operand(a)),
        ExprKind::Unary(UnOp::Neg, a) => format!("Int::from(0_i64) - {}", operand(a)),
        ExprKind::Binary(op, a, b) => match op {
            BinOp::Add => format!("{} + {}", operand(a), operand(b)),
            BinOp::Sub => format!("{} - {}", operand(a), operand(b)),
            BinOp::Mul => format!("{} * {}", operand(a), operand(b)),
            BinOp::FloorDiv => format!("{}.floor_div({})", operand(a), int(b)),
            BinOp::FloorMod => format!("{}.floor_mod({})", operand(a), int(b)),
            BinOp::Min => format!("{}.min({})", operand(a), int(b)),
            BinOp::Max => format!("{}.max({})", operand(a), int(b)),
            _ => unreachable!("{op:?} is no integer"),
        },
        ExprKind::Select(c, a, b) | ExprKind::IfThenElse(c, a, b) => {
            format!("Int::select({}, {}, {})", condition(c, name_of), int(a), int(b))
        }
        ExprKind::Cast(a) => int(a),
        _ => unreachable!("manifests have no other extents"),
    }
}

/// Returns an expression of type `Option<bool>`.
fn condition(expr: &Expr, name_of: &dyn Fn(&str) -> String) -> String {
    let (int, inner) = (|e: &Expr| integer(e, name_of), |e: &Expr| condition(e, name_of));
    let compare = |a: &Expr, symbol: &str, b: &Expr| {
        format!("({}).compare({}).map(|sign| sign {symbol} 0)", int(a), int(b))
    };
    match &expr.kind {
        ExprKind::Const(_) => format!("Some({})", expr.as_int() == Some(1)),
        ExprKind::Unary(UnOp::Not, a) => format!("{}.map(|one| !one)", inner(a)),
        ExprKind::Binary(op, a, b) => match op {
            BinOp::Eq => compare(a, "==", b),
            BinOp::Ne => compare(a, "!=", b),
            BinOp::Lt => compare(a, "<", b),
            BinOp::Le => compare(a, "<=", b),
            BinOp::Gt => compare(a, ">", b),
            BinOp::Ge => compare(a, ">=", b),
            BinOp::And => format!("{}.zip({}).map(|(a, b)| a && b)", inner(a), inner(b)),
            BinOp::Or => format!("{}.zip({}).map(|(a, b)| a || b)", inner(a), inner(b)),
            _ => unreachable!("{op:?} is no condition"),
        },
        _ => unreachable!("manifests have no other conditions"),
    }
}
