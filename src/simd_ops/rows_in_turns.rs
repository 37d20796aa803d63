//! Vectors of short elements that several rows fill in turns.
//!
//! An instruction that adds products of several terms wants these terms side by side: lane `l` of
//! the vector is element `l // 4` of row `l % 4`. Each row is one load, also under a mask; the rows
//! are widened to doublewords, shifted and joined.

use super::masks_elements;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::{BinOp, Expr, ExprKind, Type, UnOp};
use crate::target::SimdIsa;

/// The load of a row: consecutive elements from an index on, under a mask.
#[derive(Clone, Debug)]
pub struct Row {
    /// The index of the first element.
    pub first: Expr,
    /// The elements that are read; all if absent.
    pub mask: Option<Expr>,
}

/// Returns the rows of a load of elements of `bytes` bytes; `None` for other loads, and if the
/// instruction set cannot mask such elements.
pub fn rows_in_turns(
    index: &Expr,
    mask: Option<&Expr>,
    bytes: u64,
    isa: SimdIsa,
) -> Option<Vec<Row>> {
    let count = match bytes {
        1 | 2 => 4 / bytes as u32,
        _ => return None,
    };
    let length = u64::from(index.ty.lanes) * bytes;
    let fits = [16, 32, 64].contains(&length) && length <= isa.bytes().into();
    if !fits || mask.is_some() && !masks_elements(bytes, isa) {
        return None;
    }
    let row = |number: u32| {
        let turn = Turn { count, number };
        let simple = |expr: Expr| simplify_expr(&expr, &Facts::new());
        let index = simple(turn.of(index)?);
        let ExprKind::Ramp(first, step) = &index.kind else { return None };
        let mask = match mask {
            Some(mask) => Some(simple(turn.of(mask)?)),
            None => None,
        };
        (step.as_int() == Some(1)).then(|| Row { first: first.clone(), mask })
    };
    (0..count).map(row).collect()
}

/// Every `count`-th lane of vectors, from lane `number` on.
#[derive(Clone, Copy)]
struct Turn {
    count: u32,
    number: u32,
}

impl Turn {
    /// Returns these lanes; `None` if an operation is not one of indices and conditions.
    fn of(self, expr: &Expr) -> Option<Expr> {
        let ty = Type { lanes: expr.ty.lanes / self.count, ..expr.ty };
        Some(match &expr.kind {
            ExprKind::Broadcast(one) => Expr::new(ty, ExprKind::Broadcast(one.clone())),
            ExprKind::Ramp(base, step) => {
                let skipped = Expr::mul(step.clone(), constant(base, self.number));
                let step = Expr::mul(step.clone(), constant(base, self.count));
                ramp(ty, Expr::add(base.clone(), skipped), step)
            }
            ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, b) => {
                let first = self.turns_from(a, b)?;
                match op {
                    BinOp::FloorMod => {
                        Expr::new(ty, ExprKind::Broadcast(constant(&first, self.number)))
                    }
                    _ => {
                        let quotient = first.as_int()? / i128::from(self.count);
                        let quotient = Expr::int(first.ty.dtype, quotient);
                        let step = constant(&quotient, 1);
                        ramp(ty, quotient, step)
                    }
                }
            }
            ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub | BinOp::Mul), a, b) => {
                let ((a, by), (b, other)) = (affine(&self.of(a)?)?, affine(&self.of(b)?)?);
                let step = match (op, by, other) {
                    (_, None, None) => None,
                    (BinOp::Mul, Some(by), None) => Some(Expr::mul(by, b.clone())),
                    (BinOp::Mul, None, Some(by)) => Some(Expr::mul(a.clone(), by)),
                    (BinOp::Mul, ..) => return None,
                    (_, Some(by), None) => Some(by),
                    (op, by, Some(other)) => {
                        let by = by.unwrap_or_else(|| constant(&a, 0));
                        Some(Expr::binary(*op, by, other))
                    }
                };
                let base = Expr::binary(*op, a, b);
                match step {
                    Some(step) => ramp(ty, base, step),
                    None => Expr::new(ty, ExprKind::Broadcast(base)),
                }
            }
            ExprKind::Binary(op, a, b) if op.gives_bool() => {
                let (a, b) = (self.of(a)?, self.of(b)?);
                match (&a.kind, &b.kind) {
                    (ExprKind::Broadcast(a), ExprKind::Broadcast(b)) => {
                        let one = Expr::binary(*op, a.clone(), b.clone());
                        Expr::new(ty, ExprKind::Broadcast(one))
                    }
                    _ => Expr::binary(*op, a, b),
                }
            }
            ExprKind::Unary(op @ UnOp::Not, a) => {
                let a = self.of(a)?;
                match &a.kind {
                    ExprKind::Broadcast(one) => {
                        let one = Expr::unary(*op, one.clone());
                        Expr::new(ty, ExprKind::Broadcast(one))
                    }
                    _ => Expr::unary(*op, a),
                }
            }
            _ => return None,
        })
    }

    /// Returns the first lane of `a` if its lanes count up from a multiple of `b`, which is the
    /// number of rows.
    fn turns_from(self, a: &Expr, b: &Expr) -> Option<Expr> {
        let (ExprKind::Ramp(first, step), ExprKind::Broadcast(by)) = (&a.kind, &b.kind) else {
            return None;
        };
        let count = i128::from(self.count);
        let fits = step.as_int() == Some(1)
            && by.as_int() == Some(count)
            && first.as_int()?.rem_euclid(count) == 0
            && first.as_int()? >= 0;
        fits.then(|| first.clone())
    }
}

/// Returns the first lane of a vector and, unless all lanes are equal, what each adds.
fn affine(expr: &Expr) -> Option<(Expr, Option<Expr>)> {
    match &expr.kind {
        ExprKind::Ramp(base, step) => Some((base.clone(), Some(step.clone()))),
        ExprKind::Broadcast(one) => Some((one.clone(), None)),
        _ => None,
    }
}

fn ramp(ty: Type, base: Expr, step: Expr) -> Expr {
    Expr::new(ty, ExprKind::Ramp(base, step))
}

/// Returns a constant of the type of another expression.
fn constant(like: &Expr, value: u32) -> Expr {
    Expr::int(like.ty.dtype, value.into())
}
