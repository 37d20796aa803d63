//! Constant bounds of integer expressions. They make divisions cheaper, whose operands are then
//! known to be non-negative.

use super::emit::Emitter;
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp};

impl Emitter<'_, '_> {
    /// Smallest and largest value of an integer; the whole range of the type if nothing is known.
    /// Only operations on `index` are analysed, because the other types wrap.
    pub(super) fn range_of(&mut self, expr: &Expr) -> (i128, i128) {
        let dtype = expr.ty.dtype;
        if dtype.is_float() {
            return (0, 0);
        }
        match &expr.kind {
            ExprKind::Const(_) => return expr.as_int().map_or((0, 0), |value| (value, value)),
            ExprKind::Var(var) => {
                return self.vars.get(var).map_or(dtype.int_range(), |binding| binding.range);
            }
            _ => {}
        }
        if let Some(range) = self.ranges.get(&expr.id()) {
            return *range;
        }
        let (min, max) = dtype.int_range();
        let (low, high) = self.compute_range(expr).unwrap_or((min, max));
        let range = if low < min || high > max { (min, max) } else { (low, high) };
        self.ranges.insert(expr.id(), range);
        range
    }

    fn compute_range(&mut self, expr: &Expr) -> Option<(i128, i128)> {
        match &expr.kind {
            ExprKind::Cast(a) if !a.ty.dtype.is_float() => return Some(self.range_of(a)),
            ExprKind::Select(_, a, b) | ExprKind::IfThenElse(_, a, b) => {
                let (a, b) = (self.range_of(a), self.range_of(b));
                return Some((a.0.min(b.0), a.1.max(b.1)));
            }
            _ if expr.ty.dtype != DType::Index => return None,
            _ => {}
        }
        match &expr.kind {
            ExprKind::Unary(UnOp::Neg, a) => {
                let a = self.range_of(a);
                Some((-a.1, -a.0))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.range_of(a), self.range_of(b));
                binary_range(*op, a, b)
            }
            _ => None,
        }
    }
}

/// Bounds of an operation on `index`, which never overflows.
fn binary_range(op: BinOp, a: (i128, i128), b: (i128, i128)) -> Option<(i128, i128)> {
    let (min, max) = DType::Index.int_range();
    let clamp = |low: i128, high: i128| (low.clamp(min, max), high.clamp(min, max));
    match op {
        BinOp::Add => Some(clamp(a.0 + b.0, a.1 + b.1)),
        BinOp::Sub => Some(clamp(a.0 - b.1, a.1 - b.0)),
        BinOp::Mul => {
            let products = [a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1];
            let low = products.into_iter().min()?;
            let high = products.into_iter().max()?;
            Some(clamp(low, high))
        }
        BinOp::Min => Some((a.0.min(b.0), a.1.min(b.1))),
        BinOp::Max => Some((a.0.max(b.0), a.1.max(b.1))),
        BinOp::FloorDiv if b.0 > 0 => {
            let low = if a.0 < 0 { a.0.div_euclid(b.0) } else { a.0 / b.1 };
            let high = if a.1 < 0 { a.1.div_euclid(b.1) } else { a.1 / b.0 };
            Some((low, high))
        }
        BinOp::FloorDiv if b.0 >= 0 && a.0 >= 0 => Some((0, a.1)),
        BinOp::FloorMod if b.0 >= 0 => Some((0, (b.1 - 1).max(0))),
        _ => None,
    }
}
