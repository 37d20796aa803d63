//! Value numbering: expressions that compute the same from the same variables get the same number.
//!
//! An expression that reads memory has none, because its value depends on the position. Nor has one
//! with a variable that a `let` inside of an expression binds.

use crate::ir::visit::Memo;
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, Intrinsic, UnOp, Var};
use rustc_hash::FxHashMap;

/// The number of a value that depends on variables only.
pub(super) type Number = u32;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Shape {
    Const(DType, i128),
    Float(DType, u64),
    Var(u32),
    Unary(UnOp, DType, Number),
    Binary(BinOp, DType, Number, Number),
    Select(Number, Number, Number),
    IfThenElse(Number, Number, Number),
    Cast(DType, DType, Number),
    Bitcast(DType, DType, Number),
    Call(Intrinsic, DType, Vec<Number>),
}

/// The numbers given so far.
#[derive(Default)]
pub(super) struct Numbers {
    shapes: FxHashMap<Shape, Number>,
    vars: FxHashMap<Var, u32>,
    /// One expression for each number.
    exprs: Vec<Expr>,
    /// Numbers by the address of the node.
    memo: Memo<Option<Number>>,
}

impl Numbers {
    /// Allows numbers for a variable that is bound once.
    pub(super) fn know(&mut self, var: &Var) {
        let next = self.vars.len() as u32;
        self.vars.entry(var.clone()).or_insert(next);
    }

    /// An expression with this number.
    pub(super) fn expr(&self, number: Number) -> &Expr {
        &self.exprs[number as usize]
    }

    /// The number of a scalar expression, if it has one.
    pub(super) fn of(&mut self, expr: &Expr) -> Option<Number> {
        if let Some(number) = self.memo.get(expr) {
            return *number;
        }
        let number = self.shape(expr).map(|shape| self.intern(shape, expr));
        self.memo.insert(expr, number);
        number
    }

    fn intern(&mut self, shape: Shape, expr: &Expr) -> Number {
        let next = self.exprs.len() as Number;
        let number = *self.shapes.entry(shape).or_insert(next);
        if number == next {
            self.exprs.push(expr.clone());
        }
        number
    }

    fn shape(&mut self, expr: &Expr) -> Option<Shape> {
        if !expr.ty.is_scalar() {
            return None;
        }
        let dtype = expr.ty.dtype;
        Some(match &expr.kind {
            ExprKind::Const(Const::Int(value)) => Shape::Const(dtype, *value),
            ExprKind::Const(Const::Float(value)) => Shape::Float(dtype, value.to_bits()),
            ExprKind::Var(var) => Shape::Var(*self.vars.get(var)?),
            ExprKind::Unary(op, a) => Shape::Unary(*op, dtype, self.of(a)?),
            ExprKind::Binary(op, a, b) => Shape::Binary(*op, a.ty.dtype, self.of(a)?, self.of(b)?),
            ExprKind::Select(c, t, f) => Shape::Select(self.of(c)?, self.of(t)?, self.of(f)?),
            ExprKind::IfThenElse(c, t, f) => {
                Shape::IfThenElse(self.of(c)?, self.of(t)?, self.of(f)?)
            }
            ExprKind::Cast(a) => Shape::Cast(dtype, a.ty.dtype, self.of(a)?),
            ExprKind::Bitcast(a) => Shape::Bitcast(dtype, a.ty.dtype, self.of(a)?),
            ExprKind::Call(function, args) => {
                let args = args.iter().map(|arg| self.of(arg)).collect::<Option<Vec<_>>>()?;
                Shape::Call(*function, dtype, args)
            }
            ExprKind::Load { .. }
            | ExprKind::Ramp(..)
            | ExprKind::Broadcast(_)
            | ExprKind::Let(..) => return None,
        })
    }
}
