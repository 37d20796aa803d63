//! Evaluates integer and `bool` expressions without loads at many points. The expressions become a
//! list of operations, so that shared nodes are computed once for each point.

use crate::ir::simplify::fold;
use crate::ir::{BinOp, Const, DType, Expr, ExprKind, UnOp, Var};
use rustc_hash::FxHashMap;

/// Several expressions over the same variables.
#[derive(Default)]
pub(super) struct Tape {
    ops: Vec<Op>,
    memo: FxHashMap<usize, usize>,
    held: Vec<Expr>,
}

enum Op {
    Const(Const),
    Input(usize),
    Unary(UnOp, DType, usize),
    Binary(BinOp, DType, usize, usize),
    Choose(usize, usize, usize),
    Cast(DType, usize),
}

impl Tape {
    /// Adds an expression and returns the index of its value. `None` if it loads, calls a function
    /// or has a variable that is not in `vars`.
    pub(super) fn add(&mut self, expr: &Expr, vars: &[Var]) -> Option<usize> {
        if let Some(&at) = self.memo.get(&expr.id()) {
            return Some(at);
        }
        if !expr.ty.is_scalar() {
            return None;
        }
        let op = match &expr.kind {
            ExprKind::Const(value) => Op::Const(*value),
            ExprKind::Var(var) => Op::Input(vars.iter().position(|known| known == var)?),
            ExprKind::Unary(op, a) => Op::Unary(*op, a.ty.dtype, self.add(a, vars)?),
            ExprKind::Binary(op, a, b) => {
                Op::Binary(*op, a.ty.dtype, self.add(a, vars)?, self.add(b, vars)?)
            }
            ExprKind::Select(c, t, f) | ExprKind::IfThenElse(c, t, f) => {
                Op::Choose(self.add(c, vars)?, self.add(t, vars)?, self.add(f, vars)?)
            }
            ExprKind::Cast(a) => Op::Cast(expr.ty.dtype, self.add(a, vars)?),
            _ => return None,
        };
        self.ops.push(op);
        self.held.push(expr.clone());
        self.memo.insert(expr.id(), self.ops.len() - 1);
        Some(self.ops.len() - 1)
    }

    /// Computes every value at one point; `None` if an `index` overflows.
    pub(super) fn run(&self, point: &[i64], values: &mut Vec<Option<Const>>) {
        values.clear();
        for op in &self.ops {
            let value = match op {
                Op::Const(value) => Some(*value),
                Op::Input(at) => Some(Const::Int(point[*at].into())),
                Op::Unary(op, ty, a) => values[*a].and_then(|a| fold::unary(*op, *ty, a)),
                Op::Binary(op, ty, a, b) => binary(*op, *ty, values[*a], values[*b]),
                Op::Choose(c, t, f) => match values[*c] {
                    Some(Const::Int(0)) => values[*f],
                    Some(_) => values[*t],
                    None => None,
                },
                Op::Cast(ty, a) => values[*a].map(|a| fold::cast(*ty, a)),
            };
            values.push(value);
        }
    }
}

/// [`fold::binary`], but the left side alone can decide `and` and `or`.
fn binary(op: BinOp, ty: DType, a: Option<Const>, b: Option<Const>) -> Option<Const> {
    let a = a?;
    match (op, a) {
        (BinOp::And, Const::Int(0)) => return Some(Const::Int(0)),
        (BinOp::Or, Const::Int(1)) => return Some(Const::Int(1)),
        _ => {}
    }
    fold::binary(op, ty, a, b?)
}
