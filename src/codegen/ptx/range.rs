//! Constant bounds of integers, which show what index arithmetic fits in 32 bits.
//!
//! They use only the ranges of variables, no conditions, so a bound holds wherever its variables
//! are bound.

use crate::ir::arith::{Facts, Interval};
use crate::ir::visit::Memo;
use crate::ir::{BinOp, DType, Expr, ExprKind, UnOp, Var};
use rustc_hash::FxHashMap;

/// Bounds of variables and of the expressions over them.
#[derive(Default)]
pub(super) struct Ranges {
    vars: FxHashMap<Var, Interval>,
    /// Bounds by the address of the node.
    memo: Memo<Interval>,
}

/// The range of a 32-bit signed integer.
pub(super) const WORD: Interval = Interval { lo: i32::MIN as i128, hi: i32::MAX as i128 };

impl Ranges {
    /// Sets the range of a variable.
    pub(super) fn bind(&mut self, var: &Var, range: Interval) {
        self.vars.insert(var.clone(), range);
    }

    /// Sets the range of a run-time integer from the facts about the kernel.
    pub(super) fn bind_runtime(&mut self, var: &Var, facts: &Facts) {
        let (lo, hi) = facts.const_bounds(&Expr::var(var));
        let all = of_type(DType::Index);
        let range = Interval::new(lo.unwrap_or(all.lo), hi.unwrap_or(all.hi));
        self.bind(var, range.intersect(all));
    }

    /// Whether the values of all lanes fit in a signed 32-bit integer.
    pub(super) fn is_word(&mut self, expr: &Expr) -> bool {
        WORD.covers(self.of(expr))
    }

    /// Bounds of all lanes of an integer expression.
    pub(super) fn of(&mut self, expr: &Expr) -> Interval {
        if let ExprKind::Const(_) = expr.kind {
            return self.node(expr);
        }
        if let ExprKind::Var(var) = &expr.kind {
            let all = of_type(var.ty().dtype);
            return self.vars.get(var).copied().unwrap_or(all);
        }
        if let Some(range) = self.memo.get(expr) {
            return *range;
        }
        let range = self.node(expr);
        self.memo.insert(expr, range);
        range
    }

    fn node(&mut self, expr: &Expr) -> Interval {
        let all = of_type(expr.ty.dtype);
        if expr.ty.dtype.is_float() {
            return all;
        }
        let range = match &expr.kind {
            ExprKind::Const(_) => expr.as_int().map_or(all, Interval::point),
            ExprKind::Unary(UnOp::Neg, a) => self.of(a).neg(),
            ExprKind::Binary(op, a, b) if !op.gives_bool() => {
                let (x, y) = (self.of(a), self.of(b));
                match op {
                    BinOp::Add => x.add(y),
                    BinOp::Sub => x.add(y.neg()),
                    BinOp::Mul => x.mul(y),
                    BinOp::FloorDiv => x.floor_div(y),
                    BinOp::FloorMod => x.floor_mod(y),
                    BinOp::Min => x.min(y),
                    BinOp::Max => x.max(y),
                    BinOp::BitAnd if y.lo >= 0 => Interval::new(0, y.hi),
                    BinOp::BitAnd if x.lo >= 0 => Interval::new(0, x.hi),
                    BinOp::Shr if x.lo >= 0 => Interval::new(0, x.hi),
                    _ => all,
                }
            }
            ExprKind::Select(_, t, f) | ExprKind::IfThenElse(_, t, f) => {
                self.of(t).hull(self.of(f))
            }
            ExprKind::Cast(a) if a.ty.dtype == DType::Bool => Interval::new(0, 1),
            ExprKind::Cast(a) if a.ty.dtype.is_int() => {
                let inner = self.of(a);
                if all.covers(inner) { inner } else { all }
            }
            ExprKind::Ramp(base, stride) => {
                let last = Interval::point(i128::from(expr.ty.lanes) - 1);
                let (base, step) = (self.of(base), self.of(stride).mul(last));
                base.hull(base.add(step))
            }
            ExprKind::Broadcast(a) => self.of(a),
            // The same body may occur under another value of the variable.
            ExprKind::Let(_, _, body) => self.of(body),
            _ => all,
        };
        // Machine integers wrap on overflow; an index never overflows.
        match expr.ty.dtype {
            DType::Index => range.intersect(all),
            _ if all.covers(range) => range,
            _ => all,
        }
    }
}

/// The range of a type; unbounded for floats.
fn of_type(dtype: DType) -> Interval {
    if dtype.is_float() {
        return Interval::ALL;
    }
    let (lo, hi) = dtype.int_range();
    Interval::new(lo, hi)
}
