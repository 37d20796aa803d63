//! Operators: exact arithmetic on constants, typed loop IR on other values.

use super::casts::Operand;
use super::comparisons::compare_integers;
use super::constants::{floor_div, floor_mod, is_small, shift_amount};
use super::values::{SourceType, Typed, Value};
use super::{Elaborator, MAX_NODES};
use crate::diag::{Diag, Span};
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};
use crate::lang::ast::{BinaryOp, UnaryOp};
use num_bigint::BigInt;

impl<'a> Elaborator<'a> {
    /// Evaluates `a op b`.
    pub fn binary(
        &mut self,
        op: BinaryOp,
        a: Operand<'_, 'a>,
        b: Operand<'_, 'a>,
        span: Span,
    ) -> Value {
        if matches!(op, BinaryOp::And | BinaryOp::Or) {
            return self.logical(op, a, b);
        }
        match (a.0, b.0) {
            (Value::Poison, _) | (_, Value::Poison) => return Value::Poison,
            (Value::Int(x), Value::Int(y)) => {
                let folded = fold_integers(op, x, y);
                return self.folded(folded, op, SourceType::Index, span);
            }
            (Value::Int(_) | Value::Real(_), Value::Int(_) | Value::Real(_)) => {
                let folded = self.fold_reals(op, a.0, b.0, span);
                return self.folded(folded, op, SourceType::Data(DType::Float32), span);
            }
            (Value::Bool(x), Value::Bool(y)) => {
                let folded = fold_bools(op, *x, *y);
                return self.folded(folded, op, SourceType::Data(DType::Bool), span);
            }
            _ => {}
        }
        if self.refuses_quantized(&[a, b], &format!("`{}`", op.symbol()), span) {
            return Value::Poison;
        }
        if let Some(compared) = compare_integers(op, &a, &b) {
            return self.limit_size(compared, span);
        }
        let what = format!("`{}`", op.symbol());
        let Some((ty, mut exprs, size)) = self.unify(&[a, b], &what, span) else {
            return Value::Poison;
        };
        let Some(ir_op) = ir_operator(op, ty) else {
            self.error(refuse(op, ty, span));
            return Value::Poison;
        };
        let right = exprs.pop().expect("two operands");
        let left = exprs.pop().expect("two operands");
        let result = if ir_op.gives_bool() { SourceType::Data(DType::Bool) } else { ty };
        self.limit_size(Typed::new(result, Expr::binary(ir_op, left, right), size), span)
    }

    /// Evaluates `op a`.
    pub fn unary(&mut self, op: UnaryOp, a: Operand<'_, 'a>, span: Span) -> Value {
        match (op, a.0) {
            (_, Value::Poison) => return Value::Poison,
            (UnaryOp::Neg, Value::Int(x)) => return Value::Int(-x),
            (UnaryOp::Neg, Value::Real(x)) => return Value::real(x.negated()),
            (UnaryOp::BitNot, Value::Int(x)) => return Value::Int(-x - 1),
            (UnaryOp::Not, Value::Bool(x)) => return Value::Bool(!x),
            _ => {}
        }
        let text = match op {
            UnaryOp::Neg => "`-`",
            UnaryOp::BitNot => "`~`",
            UnaryOp::Not => "`not`",
        };
        if self.refuses_quantized(&[a], text, span) {
            return Value::Poison;
        }
        let Some((ty, exprs, size)) = self.unify(&[a], "an operator", span) else {
            return Value::Poison;
        };
        let expr = exprs.into_iter().next().expect("one operand");
        let boolean = ty == SourceType::Data(DType::Bool);
        let (name, ir_op, fits) = match op {
            UnaryOp::Neg => ("-", UnOp::Neg, !boolean),
            UnaryOp::BitNot => ("~", UnOp::BitNot, ty.is_int()),
            UnaryOp::Not => ("not", UnOp::Not, boolean),
        };
        if !fits {
            let diag = Diag::new("E0209", span, format!("`{name}` is not defined for `{ty}`"));
            self.error(match op {
                UnaryOp::Not if ty.is_int() => {
                    diag.help("write `~` for the complement of all bits")
                }
                UnaryOp::BitNot if boolean => diag.help("write `not`"),
                _ => diag,
            });
            return Value::Poison;
        }
        // A negated constant, as in `-inf(float32)`, stays a constant.
        if let (UnOp::Neg, ExprKind::Const(_)) = (ir_op, &expr.kind) {
            let negated = match (expr.as_int(), expr.as_float()) {
                (Some(value), _) => Expr::int(ty.compute(), -value),
                (_, Some(value)) => Expr::float(ty.compute(), -value),
                _ => crate::bug!("a constant without a value"),
            };
            return Value::Scalar(Typed { ty, expr: negated, size, choice: None });
        }
        self.limit_size(Typed::new(ty, Expr::unary(ir_op, expr), size), span)
    }

    /// Evaluates `and` and `or`, whose right side is evaluated only if the left one does not
    /// decide.
    fn logical(&mut self, op: BinaryOp, a: Operand<'_, 'a>, b: Operand<'_, 'a>) -> Value {
        let (Some(x), Some(y)) = (self.condition(a), self.condition(b)) else {
            return Value::Poison;
        };
        let decides = op == BinaryOp::Or;
        match (a.0, b.0) {
            (Value::Bool(value), _) if *value == decides => Value::Bool(decides),
            (Value::Bool(_), other) => other.clone(),
            (other, Value::Bool(value)) if *value != decides => other.clone(),
            _ => {
                let ir_op = if decides { BinOp::Or } else { BinOp::And };
                let size = x.size.saturating_add(y.size);
                let ty = SourceType::Data(DType::Bool);
                let span = a.1.span.to(b.1.span);
                self.limit_size(Typed::new(ty, Expr::binary(ir_op, x.expr, y.expr), size), span)
            }
        }
    }

    /// Evaluates a value that must be `bool`.
    pub fn condition(&mut self, (value, expr): Operand<'_, 'a>) -> Option<Typed> {
        let boolean = SourceType::Data(DType::Bool);
        let found = match value {
            Value::Poison => return None,
            Value::Bool(_) => return self.adapt((value, expr), boolean),
            Value::Scalar(typed) if typed.ty == boolean => return Some(typed.clone()),
            Value::Scalar(typed) => format!("`{}`", typed.ty),
            other => other.describe(),
        };
        let message = format!("a condition must be `bool`, not {found}");
        let diag = Diag::new("E0209", expr.span, message);
        self.error(match value {
            Value::Scalar(_) | Value::Int(_) => {
                diag.help(format!("compare it, as in `{} != 0`", self.excerpt(expr)))
            }
            _ => diag,
        });
        None
    }

    /// Refuses expressions of more than [`MAX_NODES`] nodes (E0213).
    pub fn limit_size(&mut self, typed: Typed, span: Span) -> Value {
        if typed.size > MAX_NODES {
            self.error(too_large(span));
            return Value::Poison;
        }
        Value::Scalar(typed)
    }

    fn folded(&mut self, value: Option<Value>, op: BinaryOp, ty: SourceType, span: Span) -> Value {
        let Some(value) = value else {
            self.error(refuse(op, ty, span));
            return Value::Poison;
        };
        if value.as_real().is_some_and(|real| !is_small(real.exact())) {
            let message = "a constant of more than 4096 bits";
            self.error(Diag::new("E0212", span, message));
            return Value::Poison;
        }
        value
    }

    fn fold_reals(&mut self, op: BinaryOp, a: &Value, b: &Value, span: Span) -> Option<Value> {
        let (x, y) = (a.as_real()?, b.as_real()?);
        Some(match op {
            BinaryOp::Add => Value::real(x.plus(&y)),
            BinaryOp::Sub => Value::real(x.minus(&y)),
            BinaryOp::Mul => Value::real(x.times(&y)),
            BinaryOp::Div => match x.over(&y) {
                Some(quotient) => Value::real(quotient),
                None => {
                    let message = "division by zero in a constant expression";
                    let help = "infinity is `inf(float32)`";
                    self.error(Diag::new("E0210", span, message).help(help));
                    Value::Poison
                }
            },
            _ => Value::Bool(compare(op, &x, &y)?),
        })
    }
}

/// Returns the error for an expression that is too large.
pub fn too_large(span: Span) -> Diag {
    let message = format!("this expression has more than {MAX_NODES} operations when expanded");
    Diag::new("E0213", span, message).help("compute a part of it in a stage of its own")
}

/// Returns the operator of the loop IR, if it is defined for a type.
fn ir_operator(op: BinaryOp, ty: SourceType) -> Option<BinOp> {
    let boolean = ty == SourceType::Data(DType::Bool);
    let (ir_op, fits) = match op {
        BinaryOp::Add => (BinOp::Add, !boolean),
        BinaryOp::Sub => (BinOp::Sub, !boolean),
        BinaryOp::Mul => (BinOp::Mul, !boolean),
        BinaryOp::Div => (BinOp::Div, ty.is_float()),
        BinaryOp::FloorDiv => (BinOp::FloorDiv, ty.is_int()),
        BinaryOp::Mod => (BinOp::FloorMod, ty.is_int()),
        BinaryOp::BitAnd => (BinOp::BitAnd, ty.is_int() || boolean),
        BinaryOp::BitOr => (BinOp::BitOr, ty.is_int() || boolean),
        BinaryOp::BitXor => (BinOp::BitXor, ty.is_int() || boolean),
        BinaryOp::Shl => (BinOp::Shl, ty.is_int()),
        BinaryOp::Shr => (BinOp::Shr, ty.is_int()),
        BinaryOp::Eq => (BinOp::Eq, true),
        BinaryOp::Ne => (BinOp::Ne, true),
        BinaryOp::Lt => (BinOp::Lt, true),
        BinaryOp::Le => (BinOp::Le, true),
        BinaryOp::Gt => (BinOp::Gt, true),
        BinaryOp::Ge => (BinOp::Ge, true),
        BinaryOp::And => (BinOp::And, boolean),
        BinaryOp::Or => (BinOp::Or, boolean),
    };
    fits.then_some(ir_op)
}

/// Returns the error for an operator that a type does not have.
fn refuse(op: BinaryOp, ty: SourceType, span: Span) -> Diag {
    let boolean = ty == SourceType::Data(DType::Bool);
    if op == BinaryOp::Div && ty.is_int() {
        return Diag::new("E0208", span, "`/` is not defined for integers")
            .help("write `//` for floor division, or cast to a float type with `as`");
    }
    let name = op.symbol();
    let diag = Diag::new("E0209", span, format!("`{name}` is not defined for `{ty}`"));
    match op {
        _ if boolean => diag.help("write `and`, `or`, `not`, or cast to a number with `as`"),
        BinaryOp::FloorDiv => diag.help("write `floor(a / b)`"),
        BinaryOp::Mod => diag.help("write `a - floor(a / b) * b`"),
        _ => diag,
    }
}

fn fold_integers(op: BinaryOp, x: &BigInt, y: &BigInt) -> Option<Value> {
    Some(Value::Int(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::FloorDiv => floor_div(x, y),
        BinaryOp::Mod => floor_mod(x, y),
        BinaryOp::BitAnd => x & y,
        BinaryOp::BitOr => x | y,
        BinaryOp::BitXor => x ^ y,
        BinaryOp::Shl => x << shift_amount(y),
        BinaryOp::Shr => x >> shift_amount(y),
        _ => return Some(Value::Bool(compare(op, x, y)?)),
    }))
}

fn fold_bools(op: BinaryOp, x: bool, y: bool) -> Option<Value> {
    Some(Value::Bool(match op {
        BinaryOp::BitAnd => x & y,
        BinaryOp::BitOr => x | y,
        BinaryOp::BitXor => x ^ y,
        _ => compare(op, &x, &y)?,
    }))
}

fn compare<T: PartialOrd>(op: BinaryOp, x: &T, y: &T) -> Option<bool> {
    Some(match op {
        BinaryOp::Eq => x == y,
        BinaryOp::Ne => x != y,
        BinaryOp::Lt => x < y,
        BinaryOp::Le => x <= y,
        BinaryOp::Gt => x > y,
        BinaryOp::Ge => x >= y,
        _ => return None,
    })
}
