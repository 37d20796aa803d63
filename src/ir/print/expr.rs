//! Expressions as text.

use super::{Printer, Style};
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, Intrinsic, UnOp};
use std::fmt::Write;

impl Printer {
    pub(super) fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Const(value) => self.constant(*value, expr.ty.dtype),
            ExprKind::Var(var) => self.text(&self.names.of(var)),
            ExprKind::Unary(op, x) => self.unary(*op, x),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b),
            ExprKind::Select(c, t, f) => self.call("select", &[c, t, f]),
            ExprKind::IfThenElse(c, t, f) => self.call("if_then_else", &[c, t, f]),
            ExprKind::Cast(x) => {
                let _ = write!(self.out, "{}(", expr.ty);
                self.expr(x);
                self.text(")");
            }
            ExprKind::Bitcast(x) => {
                let _ = write!(self.out, "reinterpret_{}(", expr.ty);
                self.expr(x);
                self.text(")");
            }
            ExprKind::Load { buffer, indices, mask } => {
                self.access(buffer, indices);
                if let Some(mask) = mask {
                    self.text(" if ");
                    self.expr(mask);
                }
            }
            ExprKind::Ramp(base, stride) => {
                self.text("ramp(");
                self.expr(base);
                self.text(", ");
                self.expr(stride);
                let _ = write!(self.out, ", {})", expr.ty.lanes);
            }
            ExprKind::Broadcast(x) => {
                let _ = write!(self.out, "x{}(", expr.ty.lanes);
                self.expr(x);
                self.text(")");
            }
            ExprKind::Call(Intrinsic::Fma, args) => self.fma(&args[0], &args[1], &args[2]),
            ExprKind::Call(function, args) => {
                self.call(function.name(), &args.iter().collect::<Vec<_>>());
            }
            ExprKind::Let(var, value, body) => {
                self.text("(let ");
                let start = self.out.len();
                self.expr(value);
                let value = self.out.split_off(start);
                let undo = self.names.enter(var, "");
                let _ = write!(self.out, "{} = {value} in ", self.names.of(var));
                self.expr(body);
                self.names.leave(undo);
                self.text(")");
            }
        }
    }

    fn call(&mut self, name: &str, args: &[&Expr]) {
        self.text(name);
        self.text("(");
        for (index, arg) in args.iter().enumerate() {
            if index > 0 {
                self.text(", ");
            }
            self.expr(arg);
        }
        self.text(")");
    }

    /// `z + x*y`, with negated operands as a subtraction.
    fn fma(&mut self, x: &Expr, y: &Expr, z: &Expr) {
        self.text("(");
        if let ExprKind::Unary(UnOp::Neg, z) = &z.kind {
            self.binary(BinOp::Mul, x, y);
            self.text(" - ");
            self.expr(z);
        } else if let ExprKind::Unary(UnOp::Neg, x) = &x.kind {
            self.expr(z);
            self.text(" - ");
            self.binary(BinOp::Mul, x, y);
        } else {
            self.expr(z);
            self.text(" + ");
            self.binary(BinOp::Mul, x, y);
        }
        self.text(")");
    }

    fn unary(&mut self, op: UnOp, x: &Expr) {
        match op {
            UnOp::Neg => {
                self.text("-");
                self.expr(x);
            }
            UnOp::BitNot => {
                self.text("~");
                self.expr(x);
            }
            UnOp::Not => {
                self.text("!");
                self.expr(x);
            }
            UnOp::Abs => self.call("abs", &[x]),
            UnOp::Floor => self.call("floor", &[x]),
            UnOp::Ceil => self.call("ceil", &[x]),
            UnOp::Round => self.call("round", &[x]),
            UnOp::Trunc => self.call("trunc", &[x]),
            UnOp::Sqrt => self.call("sqrt", &[x]),
            UnOp::Popcount => self.call("popcount", &[x]),
            UnOp::IsNan => self.call("is_nan", &[x]),
        }
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr) {
        let sign = match op {
            BinOp::Add => " + ",
            BinOp::Sub => " - ",
            BinOp::Mul => "*",
            BinOp::Div => "/",
            BinOp::FloorDiv => return self.call("floordiv", &[a, b]),
            BinOp::FloorMod => return self.call("floormod", &[a, b]),
            BinOp::Min => return self.call("min", &[a, b]),
            BinOp::Max => return self.call("max", &[a, b]),
            BinOp::BitAnd => " & ",
            BinOp::BitOr => " | ",
            BinOp::BitXor => " ^ ",
            BinOp::Shl => " << ",
            BinOp::Shr => " >> ",
            BinOp::Eq => " == ",
            BinOp::Ne => " != ",
            BinOp::Lt => " < ",
            BinOp::Le => " <= ",
            BinOp::Gt => " > ",
            BinOp::Ge => " >= ",
            BinOp::And => " && ",
            BinOp::Or => " || ",
        };
        self.text("(");
        self.expr(a);
        self.text(sign);
        self.expr(b);
        self.text(")");
    }

    /// Shortest digits that read back as the same value; `f` marks float32. The full style also
    /// shows the type of what is neither float32, index nor bool.
    fn constant(&mut self, value: Const, dtype: DType) {
        let text = match value {
            Const::Int(value) if dtype == DType::Bool => (value != 0).to_string(),
            Const::Int(value) => value.to_string(),
            Const::Float(value) => float_text(value, dtype),
        };
        let plain = matches!(dtype, DType::Float32 | DType::Index | DType::Bool);
        if self.style == Style::Full && !plain {
            let _ = write!(self.out, "{dtype}({text})");
        } else {
            self.text(&text);
        }
    }
}

fn float_text(value: f64, dtype: DType) -> String {
    let mut text = if value.is_nan() {
        "nan".to_string()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".to_string() } else { "-inf".to_string() }
    } else if dtype == DType::Float64 {
        shortest(format!("{value:e}"), format!("{value}"))
    } else {
        let value = value as f32;
        shortest(format!("{value:e}"), format!("{value}"))
    };
    if dtype == DType::Float32 {
        text.push('f');
    }
    text
}

/// `1e-05` for small and large magnitudes as C's `%g` prints them, plain digits between.
fn shortest(scientific: String, plain: String) -> String {
    let (mantissa, exponent) = scientific.split_once('e').expect("Rust prints an exponent");
    let exponent: i32 = exponent.parse().expect("an integer");
    if (-4..16).contains(&exponent) {
        return plain;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
