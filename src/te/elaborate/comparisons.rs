//! Comparisons of integers of different types, which compare the values as numbers.

use super::casts::{Operand, cast, cast_to_index, wider};
use super::values::{SourceType, Typed, Value};
use crate::ir::{BinOp, DType, Expr};
use crate::lang::ast::BinaryOp;

/// Returns the comparison of two integers of different types, `index` included; `None` for other
/// operators and operands. No value is converted to a type that lacks it.
pub(super) fn compare_integers(
    op: BinaryOp,
    a: &Operand<'_, '_>,
    b: &Operand<'_, '_>,
) -> Option<Typed> {
    let op = match op {
        BinaryOp::Eq => BinOp::Eq,
        BinaryOp::Ne => BinOp::Ne,
        BinaryOp::Lt => BinOp::Lt,
        BinaryOp::Le => BinOp::Le,
        BinaryOp::Gt => BinOp::Gt,
        BinaryOp::Ge => BinOp::Ge,
        _ => return None,
    };
    let (Value::Scalar(a), Value::Scalar(b)) = (a.0, b.0) else { return None };
    let constant = a.choice.is_some() || b.choice.is_some();
    if constant || a.ty == b.ty || !a.ty.is_int() || !b.ty.is_int() {
        return None;
    }
    let size = a.size + b.size;
    let boolean = |expr| Typed::new(SourceType::Data(DType::Bool), expr, size);
    let Some(dtype) = wider(a.ty, b.ty) else {
        return Some(boolean(with_unsigned(op, a, b)));
    };
    let convert = |typed: &Typed| match [a.ty, b.ty].contains(&SourceType::Index) {
        true => cast_to_index(typed).expr,
        false => cast(typed, dtype).expr,
    };
    Some(boolean(Expr::binary(op, convert(a), convert(b))))
}

/// Returns a comparison of a `uint64` with a signed integer: one that is not negative is converted.
fn with_unsigned(op: BinOp, a: &Typed, b: &Typed) -> Expr {
    let unsigned = SourceType::Data(DType::Uint64);
    if a.ty != unsigned {
        let mirrored = match op {
            BinOp::Lt => BinOp::Gt,
            BinOp::Le => BinOp::Ge,
            BinOp::Gt => BinOp::Lt,
            BinOp::Ge => BinOp::Le,
            other => other,
        };
        return with_unsigned(mirrored, b, a);
    }
    // A negative number is less than `a`: `==`, `<` and `<=` fail, their negations hold.
    let (holds, op) = match op {
        BinOp::Ne => (false, BinOp::Eq),
        BinOp::Gt => (false, BinOp::Le),
        BinOp::Ge => (false, BinOp::Lt),
        other => (true, other),
    };
    let zero = Expr::int(b.expr.ty.dtype, 0);
    let natural = Expr::le(zero, b.expr.clone());
    let compared = Expr::binary(op, a.expr.clone(), Expr::cast(DType::Uint64, b.expr.clone()));
    let both = Expr::binary(BinOp::And, natural, compared);
    if holds { both } else { Expr::not(both) }
}
