//! Extents as text: `.te` syntax over the run-time integers, for messages and manifests.

use crate::ir::{BinOp, Expr, ExprKind, UnOp};

/// Binary operators by precedence, lowest first, as in the language reference.
pub const LEVELS: [&[(&str, BinOp)]; 5] = [
    &[("or", BinOp::Or)],
    &[("and", BinOp::And)],
    &[
        ("==", BinOp::Eq),
        ("!=", BinOp::Ne),
        ("<=", BinOp::Le),
        (">=", BinOp::Ge),
        ("<", BinOp::Lt),
        (">", BinOp::Gt),
    ],
    &[("+", BinOp::Add), ("-", BinOp::Sub)],
    &[("*", BinOp::Mul), ("//", BinOp::FloorDiv), ("%", BinOp::FloorMod)],
];

/// Prints an `index` expression over run-time integers: `(n + 2*p - k)//s + 1`.
pub fn extent_text(expr: &Expr) -> String {
    let mut out = String::new();
    write_expr(&mut out, expr, 0);
    out
}

/// Writes an expression, in parentheses if its operator binds less tightly than `level`.
fn write_expr(out: &mut String, expr: &Expr, level: usize) {
    match &expr.kind {
        ExprKind::Const(_) => match expr.as_int() {
            Some(value) if value < 0 && level > 3 => *out += &format!("({value})"),
            Some(value) => *out += &value.to_string(),
            None => crate::bug!("a float in an extent"),
        },
        ExprKind::Var(var) => *out += var.name(),
        ExprKind::Binary(BinOp::Min, a, b) => write_call(out, "min", &[a, b]),
        ExprKind::Binary(BinOp::Max, a, b) => write_call(out, "max", &[a, b]),
        ExprKind::Binary(op, a, b) => {
            let find = |(level, ops): (usize, &&[(&'static str, BinOp)])| {
                ops.iter().find(|(_, known)| known == op).map(|(symbol, _)| (level, *symbol))
            };
            let Some((own, symbol)) = LEVELS.iter().enumerate().find_map(find) else {
                crate::bug!("{op:?} in an extent");
            };
            let brackets = own < level;
            *out += if brackets { "(" } else { "" };
            // Comparisons do not chain.
            write_expr(out, a, if own == 2 { 3 } else { own });
            *out += &if own == 4 { symbol.to_string() } else { format!(" {symbol} ") };
            write_expr(out, b, own + 1);
            *out += if brackets { ")" } else { "" };
        }
        ExprKind::Select(c, a, b) | ExprKind::IfThenElse(c, a, b) => {
            write_call(out, "select", &[c, a, b]);
        }
        ExprKind::Unary(UnOp::Neg, a) => {
            *out += "(0 - ";
            write_expr(out, a, 4);
            *out += ")";
        }
        ExprKind::Unary(UnOp::Abs, a) => write_call(out, "abs", &[a]),
        ExprKind::Unary(UnOp::Not, a) => write_call(out, "not", &[a]),
        ExprKind::Cast(a) => write_expr(out, a, level),
        _ => crate::bug!("an extent that is no integer expression"),
    }
}

fn write_call(out: &mut String, name: &str, args: &[&Expr]) {
    *out += name;
    *out += "(";
    for (index, arg) in args.iter().enumerate() {
        *out += if index > 0 { ", " } else { "" };
        write_expr(out, arg, 0);
    }
    *out += ")";
}
