//! Prints expressions in the notation of the source, for messages: `(n - k + 2*p) // s + 1`.

use crate::ir::{BinOp, Const, DType, Expr, ExprKind, UnOp};

/// The length at which a text is cut, in bytes.
const MAX_LENGTH: usize = 160;

/// Returns the text of an expression; long ones end in `…`.
pub(super) fn show(expr: &Expr) -> String {
    let mut text = String::new();
    write(expr, 0, &mut text);
    if text.len() > MAX_LENGTH {
        let mut end = MAX_LENGTH;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Writes an operand of an operator of precedence `level`; stops when the text is too long.
fn write(expr: &Expr, level: u8, out: &mut String) {
    if out.len() > MAX_LENGTH {
        return;
    }
    match &expr.kind {
        ExprKind::Const(Const::Int(value)) if expr.ty.dtype == DType::Bool => {
            out.push_str(if *value != 0 { "true" } else { "false" });
        }
        ExprKind::Const(Const::Int(value)) if *value < 0 => {
            parenthesised(level > 8, out, |out| out.push_str(&value.to_string()));
        }
        ExprKind::Const(Const::Int(value)) => out.push_str(&value.to_string()),
        ExprKind::Const(Const::Float(value)) => out.push_str(&format!("{value:?}")),
        ExprKind::Var(var) => out.push_str(var.name()),
        ExprKind::Unary(op, a) => unary(*op, a, level, out),
        ExprKind::Binary(op, a, b) => binary(*op, a, b, level, out),
        ExprKind::Select(c, t, f) => call("select", &[c, t, f], out),
        ExprKind::IfThenElse(c, t, f) => parenthesised(level > 0, out, |out| {
            out.push_str("if ");
            write(c, 1, out);
            out.push_str(" then ");
            write(t, 1, out);
            out.push_str(" else ");
            write(f, 0, out);
        }),
        ExprKind::Cast(a) if expr.ty.dtype == DType::Index => write(a, level, out),
        ExprKind::Cast(a) => parenthesised(level > 10, out, |out| {
            write(a, 10, out);
            out.push_str(&format!(" as {}", expr.ty.dtype));
        }),
        ExprKind::Load { buffer, indices, .. } => {
            out.push_str(&buffer.name);
            list(&indices.iter().collect::<Vec<_>>(), ('[', ']'), out);
        }
        ExprKind::Call(function, args) => {
            call(function.name(), &args.iter().collect::<Vec<_>>(), out);
        }
        ExprKind::Bitcast(a) | ExprKind::Broadcast(a) | ExprKind::Ramp(a, _) => {
            write(a, level, out);
        }
        ExprKind::Let(_, _, body) => write(body, level, out),
    }
}

fn unary(op: UnOp, a: &Expr, level: u8, out: &mut String) {
    let function = match op {
        UnOp::Neg => return prefix("-", a, (9, 9), level, out),
        UnOp::BitNot => return prefix("~", a, (9, 9), level, out),
        UnOp::Not => return prefix("not ", a, (3, 3), level, out),
        UnOp::Abs => "abs",
        UnOp::Floor => "floor",
        UnOp::Ceil => "ceil",
        UnOp::Round => "round",
        UnOp::Trunc => "trunc",
        UnOp::Sqrt => "sqrt",
        UnOp::Popcount => "popcount",
        UnOp::IsNan => "is_nan",
        UnOp::Likely => "likely",
    };
    call(function, &[a], out);
}

fn prefix(sign: &str, a: &Expr, (own, inner): (u8, u8), level: u8, out: &mut String) {
    parenthesised(level > own, out, |out| {
        out.push_str(sign);
        write(a, inner, out);
    });
}

fn binary(op: BinOp, a: &Expr, b: &Expr, level: u8, out: &mut String) {
    // Precedence and spelling; products have no spaces, as in `n + 2*p`.
    let (own, sign) = match op {
        BinOp::Min => return call("min", &[a, b], out),
        BinOp::Max => return call("max", &[a, b], out),
        BinOp::Or => (1, " or "),
        BinOp::And => (2, " and "),
        BinOp::Eq => (4, " == "),
        BinOp::Ne => (4, " != "),
        BinOp::Lt => (4, " < "),
        BinOp::Le => (4, " <= "),
        BinOp::Gt => (4, " > "),
        BinOp::Ge => (4, " >= "),
        BinOp::BitOr => (5, " | "),
        BinOp::BitXor => (5, " ^ "),
        BinOp::BitAnd => (5, " & "),
        BinOp::Shl => (6, " << "),
        BinOp::Shr => (6, " >> "),
        BinOp::Add => (7, " + "),
        BinOp::Sub => (7, " - "),
        BinOp::Mul => (8, "*"),
        BinOp::Div => (8, "/"),
        BinOp::FloorDiv => (8, " // "),
        BinOp::FloorMod => (8, " % "),
    };
    // Comparisons do not chain. Each bitwise operator has its own level in the language, so nested
    // ones need parentheses here.
    let chains = !op.is_comparison() && own != 5;
    parenthesised(level > own, out, |out| {
        write(a, if chains { own } else { own + 1 }, out);
        out.push_str(sign);
        write(b, own + 1, out);
    });
}

fn call(name: &str, args: &[&Expr], out: &mut String) {
    out.push_str(name);
    list(args, ('(', ')'), out);
}

fn list(items: &[&Expr], (open, close): (char, char), out: &mut String) {
    out.push(open);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        write(item, 0, out);
    }
    out.push(close);
}

fn parenthesised(yes: bool, out: &mut String, inner: impl FnOnce(&mut String)) {
    if yes {
        out.push('(');
    }
    inner(out);
    if yes {
        out.push(')');
    }
}
