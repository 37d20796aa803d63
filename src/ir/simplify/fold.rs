//! Constant folding and exact identities of machine integers, floats and `bool`.
//!
//! Floats are folded in the precision of the node. Only identities that keep every bit are applied:
//! `x*1`, `x/1`, `x - 0`, but not `x + 0`.

use crate::ir::arith::{floor_div, floor_mod};
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, Type, UnOp};

/// Evaluates an operation on two constants of type `ty`; `None` if an `index` overflows 128 bits or
/// the type has no such operation.
pub(crate) fn binary(op: BinOp, ty: DType, a: Const, b: Const) -> Option<Const> {
    match (a, b) {
        (Const::Int(a), Const::Int(b)) => int_binary(op, ty, a, b).map(Const::Int),
        (Const::Float(a), Const::Float(b)) => float_binary(op, ty, a, b),
        _ => None,
    }
}

fn int_binary(op: BinOp, ty: DType, a: i128, b: i128) -> Option<i128> {
    let amount = |b: i128| (b & (ty.bits() as i128 - 1)) as u32;
    let raw = match op {
        BinOp::Add => a.checked_add(b)?,
        BinOp::Sub => a.checked_sub(b)?,
        // A product of 64-bit factors fits 128 bits; of uint64, only the low bits are needed.
        BinOp::Mul => match ty {
            DType::Index => a.checked_mul(b)?,
            _ => a.wrapping_mul(b),
        },
        BinOp::FloorDiv if b == 0 => 0,
        BinOp::FloorDiv => floor_div(a, b),
        BinOp::FloorMod if b == 0 => 0,
        BinOp::FloorMod => floor_mod(a, b),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::BitAnd => a & b,
        BinOp::BitOr => a | b,
        BinOp::BitXor => a ^ b,
        BinOp::Shl => a.wrapping_shl(amount(b)),
        BinOp::Shr => a >> amount(b),
        BinOp::Eq => return Some((a == b).into()),
        BinOp::Ne => return Some((a != b).into()),
        BinOp::Lt => return Some((a < b).into()),
        BinOp::Le => return Some((a <= b).into()),
        BinOp::Gt => return Some((a > b).into()),
        BinOp::Ge => return Some((a >= b).into()),
        BinOp::And => return Some((a != 0 && b != 0).into()),
        BinOp::Or => return Some((a != 0 || b != 0).into()),
        BinOp::Div => return None,
    };
    let wrapped = ty.wrap(raw);
    // An `index` must not wrap: other code reports the overflow.
    (ty != DType::Index || wrapped == raw).then_some(wrapped)
}

fn float_binary(op: BinOp, ty: DType, a: f64, b: f64) -> Option<Const> {
    let single = ty == DType::Float32;
    let (sa, sb) = (a as f32, b as f32);
    let value = match op {
        BinOp::Eq => return Some(Const::Int((a == b).into())),
        BinOp::Ne => return Some(Const::Int((a != b).into())),
        BinOp::Lt => return Some(Const::Int((a < b).into())),
        BinOp::Le => return Some(Const::Int((a <= b).into())),
        BinOp::Gt => return Some(Const::Int((a > b).into())),
        BinOp::Ge => return Some(Const::Int((a >= b).into())),
        BinOp::Min => {
            if a < b {
                a
            } else {
                b
            }
        }
        BinOp::Max => {
            if a > b {
                a
            } else {
                b
            }
        }
        BinOp::Add if single => (sa + sb).into(),
        BinOp::Sub if single => (sa - sb).into(),
        BinOp::Mul if single => (sa * sb).into(),
        BinOp::Div if single => (sa / sb).into(),
        _ if ty != DType::Float64 => return None,
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a * b,
        BinOp::Div => a / b,
        _ => return None,
    };
    Some(Const::Float(value))
}

/// Evaluates an operation on a constant.
pub(crate) fn unary(op: UnOp, ty: DType, a: Const) -> Option<Const> {
    let value = match (op, a) {
        (UnOp::Neg, Const::Int(a)) => return checked(ty, a.checked_neg()?),
        (UnOp::Abs, Const::Int(a)) => return checked(ty, a.checked_abs()?),
        (UnOp::BitNot, Const::Int(a)) => return Some(Const::Int(ty.wrap(!a))),
        (UnOp::Not, Const::Int(a)) => return Some(Const::Int((a == 0).into())),
        (UnOp::Likely, Const::Int(a)) => return Some(Const::Int(a)),
        (UnOp::Popcount, Const::Int(a)) => {
            let mask = if ty.bits() >= 64 { u64::MAX } else { (1 << ty.bits()) - 1 };
            return Some(Const::Int((a as u64 & mask).count_ones().into()));
        }
        (UnOp::IsNan, Const::Float(a)) => return Some(Const::Int(a.is_nan().into())),
        (_, Const::Int(_)) => return None,
        (UnOp::Neg, Const::Float(a)) => -a,
        (UnOp::Abs, Const::Float(a)) => a.abs(),
        (UnOp::Floor, Const::Float(a)) => a.floor(),
        (UnOp::Ceil, Const::Float(a)) => a.ceil(),
        (UnOp::Round, Const::Float(a)) => a.round_ties_even(),
        (UnOp::Trunc, Const::Float(a)) => a.trunc(),
        // The float64 root of a float32, rounded again, is correctly rounded.
        (UnOp::Sqrt, Const::Float(a)) if ty == DType::Float32 => (a.sqrt() as f32).into(),
        (UnOp::Sqrt, Const::Float(a)) if ty == DType::Float64 => a.sqrt(),
        _ => return None,
    };
    Some(Const::Float(value))
}

fn checked(ty: DType, raw: i128) -> Option<Const> {
    let wrapped = ty.wrap(raw);
    (ty != DType::Index || wrapped == raw).then_some(Const::Int(wrapped))
}

/// Evaluates a conversion.
pub(crate) fn cast(to: DType, value: Const) -> Const {
    match value {
        Const::Int(a) if to == DType::Bool => Const::Int((a != 0).into()),
        Const::Float(a) if to == DType::Bool => Const::Int((a != 0.0 || a.is_nan()).into()),
        Const::Int(a) if !to.is_float() => Const::Int(to.wrap(a)),
        Const::Float(a) if !to.is_float() => {
            let (min, max) = to.int_range();
            // `as` saturates and converts NaN to 0.
            Const::Int((a as i128).clamp(min, max))
        }
        Const::Int(a) => match to {
            DType::Float64 => Const::Float(a as f64),
            _ => float_of(to, (a as f32).into()),
        },
        Const::Float(a) => float_of(to, a),
    }
}

fn float_of(to: DType, value: f64) -> Const {
    Const::Float(Expr::float(to, value).as_float().expect("a float constant"))
}

/// Returns a constant of the given type.
pub(crate) fn literal(ty: Type, value: Const) -> Expr {
    Expr::new(ty, ExprKind::Const(value))
}

pub(crate) fn as_const(expr: &Expr) -> Option<Const> {
    match expr.kind {
        ExprKind::Const(value) => Some(value),
        _ => None,
    }
}

/// Folds a node with simplified operands, or applies an exact identity.
pub(super) fn fold_node(expr: Expr) -> Expr {
    let ty = expr.ty;
    match &expr.kind {
        ExprKind::Unary(op, a) => {
            if let Some(value) = as_const(a).and_then(|a_value| unary(*op, a.ty.dtype, a_value)) {
                return literal(ty, value);
            }
            match (&a.kind, op) {
                (ExprKind::Unary(inner, x), UnOp::Neg | UnOp::BitNot | UnOp::Not)
                    if inner == op =>
                {
                    x.clone()
                }
                _ => expr,
            }
        }
        ExprKind::Binary(op, a, b) => {
            if let (Some(x), Some(y)) = (as_const(a), as_const(b))
                && let Some(value) = binary(*op, a.ty.dtype, x, y)
            {
                return literal(ty, value);
            }
            let simpler = match ty.dtype.is_float() {
                true => float_identity(*op, a, b),
                false => int_identity(*op, a, b),
            };
            simpler.unwrap_or(expr)
        }
        ExprKind::Cast(a) => match as_const(a) {
            Some(value) => literal(ty, cast(ty.dtype, value)),
            None => cast_choice(ty, a).unwrap_or_else(|| joined_cast(&expr, a)),
        },
        _ => expr,
    }
}

fn float_identity(op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
    let is = |e: &Expr, value: f64| e.as_float().is_some_and(|x| x.to_bits() == value.to_bits());
    match op {
        BinOp::Mul if is(b, 1.0) => Some(a.clone()),
        BinOp::Mul if is(a, 1.0) => Some(b.clone()),
        BinOp::Div if is(b, 1.0) => Some(a.clone()),
        BinOp::Sub if is(b, 0.0) => Some(a.clone()),
        BinOp::Add if is(b, -0.0) => Some(a.clone()),
        BinOp::Add if is(a, -0.0) => Some(b.clone()),
        BinOp::Min | BinOp::Max if a.same(b) => Some(a.clone()),
        _ => None,
    }
}

fn int_identity(op: BinOp, a: &Expr, b: &Expr) -> Option<Expr> {
    let ty = a.ty.dtype;
    if !a.ty.is_scalar() || ty.is_float() {
        return None;
    }
    let (x, y) = (a.as_int(), b.as_int());
    let zero = || Some(Expr::int(ty, 0));
    let ones = ty.wrap(-1);
    match op {
        BinOp::Add | BinOp::BitOr | BinOp::BitXor if x == Some(0) => Some(b.clone()),
        BinOp::Add | BinOp::Sub | BinOp::BitOr | BinOp::BitXor | BinOp::Shl | BinOp::Shr
            if y == Some(0) =>
        {
            Some(a.clone())
        }
        BinOp::Mul | BinOp::BitAnd if x == Some(0) || y == Some(0) => zero(),
        BinOp::FloorDiv | BinOp::FloorMod if x == Some(0) || y == Some(0) => zero(),
        BinOp::Mul | BinOp::FloorDiv if y == Some(1) => Some(a.clone()),
        BinOp::Mul if x == Some(1) => Some(b.clone()),
        BinOp::FloorMod if y == Some(1) => zero(),
        BinOp::BitAnd if y == Some(ones) => Some(a.clone()),
        BinOp::BitAnd if x == Some(ones) => Some(b.clone()),
        BinOp::Sub | BinOp::BitXor if a.same(b) => zero(),
        BinOp::Min | BinOp::Max | BinOp::BitAnd | BinOp::BitOr if a.same(b) => Some(a.clone()),
        BinOp::Eq | BinOp::Le | BinOp::Ge if a.same(b) => Some(Expr::bool(true)),
        BinOp::Ne | BinOp::Lt | BinOp::Gt if a.same(b) => Some(Expr::bool(false)),
        BinOp::Eq | BinOp::Ne if ty == DType::Bool => {
            let (value, other) = match (x, y) {
                (Some(x), _) => (x, b),
                (_, Some(y)) => (y, a),
                _ => return None,
            };
            let keep = (value != 0) == (op == BinOp::Eq);
            Some(if keep { other.clone() } else { fold_node(Expr::not(other.clone())) })
        }
        _ => None,
    }
}

/// Converts the constants of a choice instead of its result: those of the source are 64 bits wide.
/// There are no choices of types that are only stored.
fn cast_choice(ty: Type, choice: &Expr) -> Option<Expr> {
    if ty.dtype.compute_type() != ty.dtype {
        return None;
    }
    let converted = |branch: &Expr| match as_const(branch) {
        Some(value) => Some(literal(ty, cast(ty.dtype, value))),
        None => cast_choice(ty, branch),
    };
    match &choice.kind {
        ExprKind::Select(c, t, f) => Some(Expr::select(c.clone(), converted(t)?, converted(f)?)),
        ExprKind::IfThenElse(c, t, f) => {
            Some(Expr::if_then_else(c.clone(), converted(t)?, converted(f)?))
        }
        _ => None,
    }
}

/// Joins two conversions between integer types, if the first one keeps the value.
fn joined_cast(expr: &Expr, a: &Expr) -> Expr {
    let ExprKind::Cast(x) = &a.kind else { return expr.clone() };
    let (from, middle, to) = (x.ty.dtype, a.ty.dtype, expr.ty.dtype);
    if from.is_float() || middle.is_float() || to.is_float() || to == DType::Bool {
        return expr.clone();
    }
    let ((lo, hi), (middle_lo, middle_hi)) = (from.int_range(), middle.int_range());
    match middle_lo <= lo && hi <= middle_hi {
        true => Expr::cast(to, x.clone()),
        false => expr.clone(),
    }
}
