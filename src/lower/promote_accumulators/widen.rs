//! Stores to the first lanes of an element, such as those of the tail of a reduction in lanes, as
//! stores to all of its lanes under a mask: the element can then stay in its register.

use super::Element;
use crate::ir::equal::equal;
use crate::ir::visit::{reads_buffer, reads_memory};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Stmt, Type};

/// Returns `C[ramp(i, 1, 8)] = … if (ramp(0, 1, 8) < x8(4))` for `C[ramp(i, 1, 4)] = …`, where
/// `ramp(i, 1, 8)` is an element; `None` if `store` is not to the first lanes of an element, or
/// has an operation that may not run in the other lanes.
pub(super) fn widen(store: &Stmt, elements: &[Element]) -> Option<Stmt> {
    let Stmt::Store { buffer, indices, value, mask: None, nontemporal: false } = store else {
        return None;
    };
    let element = elements.iter().find(|element| {
        element.mask.is_none()
            && element.buffer == *buffer
            && starts_with(&element.index, &indices[0])
    })?;
    let lanes = element.index.ty.lanes;
    let narrow = indices[0].ty.lanes;
    let counted = Expr::new(
        Type { dtype: DType::Index, lanes },
        ExprKind::Ramp(Expr::index(0), Expr::index(1)),
    );
    let mask = Expr::lt(counted, broadcast(&Expr::index(narrow.into()), lanes));
    let value =
        Widener { buffer, index: &element.index, narrow, lanes, mask: &mask }.expr(value)?;
    let (buffer, indices) = (buffer.clone(), vec![element.index.clone()]);
    Some(Stmt::Store { buffer, indices, value, mask: Some(mask), nontemporal: false })
}

/// Whether a vector of consecutive elements begins with the elements of a shorter vector.
fn starts_with(long: &Expr, short: &Expr) -> bool {
    let base = |index: &Expr| match &index.kind {
        ExprKind::Ramp(base, stride) if stride.as_int() == Some(1) => Some(base.clone()),
        _ if index.ty.lanes == 1 => Some(index.clone()),
        _ => None,
    };
    let (Some(a), Some(b)) = (base(long), base(short)) else { return false };
    long.ty.lanes > short.ty.lanes && equal(&a, &b)
}

fn broadcast(value: &Expr, lanes: u32) -> Expr {
    Expr::new(Type { lanes, ..value.ty }, ExprKind::Broadcast(value.clone()))
}

/// Rewrites expressions with `narrow` lanes to `lanes` lanes, of which `mask` has the first
/// `narrow`.
struct Widener<'a> {
    buffer: &'a Buffer,
    /// The index of the element that is stored.
    index: &'a Expr,
    narrow: u32,
    lanes: u32,
    mask: &'a Expr,
}

impl Widener<'_> {
    fn expr(&self, expr: &Expr) -> Option<Expr> {
        let ty = Type { lanes: self.lanes, ..expr.ty };
        if expr.ty.lanes != self.narrow {
            return (expr.ty.lanes == 1 && !reads_buffer(expr, self.buffer)).then(|| expr.clone());
        }
        match &expr.kind {
            ExprKind::Load { buffer, indices, mask } if buffer == self.buffer => {
                let own = mask.is_none() && starts_with(self.index, &indices[0]);
                own.then(|| {
                    let (buffer, indices) = (buffer.clone(), vec![self.index.clone()]);
                    let mask = Some(self.mask.clone());
                    Expr::new(ty, ExprKind::Load { buffer, indices, mask })
                })
            }
            _ if self.narrow == 1 && !reads_buffer(expr, self.buffer) => {
                Some(broadcast(expr, self.lanes))
            }
            ExprKind::Broadcast(inner) if !reads_buffer(inner, self.buffer) => {
                Some(broadcast(inner, self.lanes))
            }
            ExprKind::Ramp(base, stride) if !reads_memory(base) && !reads_memory(stride) => {
                Some(Expr::new(ty, ExprKind::Ramp(base.clone(), stride.clone())))
            }
            ExprKind::Load { buffer, indices, mask } => {
                let index = self.expr(indices.first().filter(|_| indices.len() == 1)?)?;
                let mask = match mask {
                    Some(mask) => Expr::and(self.mask.clone(), self.expr(mask)?),
                    None => self.mask.clone(),
                };
                let (buffer, indices) = (buffer.clone(), vec![index]);
                Some(Expr::new(ty, ExprKind::Load { buffer, indices, mask: Some(mask) }))
            }
            // A divisor of 0 in another lane would trap.
            ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, ..) => None,
            ExprKind::Unary(op, a) => Some(Expr::new(ty, ExprKind::Unary(*op, self.expr(a)?))),
            ExprKind::Cast(a) => Some(Expr::new(ty, ExprKind::Cast(self.expr(a)?))),
            ExprKind::Binary(op, a, b) => {
                Some(Expr::new(ty, ExprKind::Binary(*op, self.expr(a)?, self.expr(b)?)))
            }
            ExprKind::Select(c, t, f) => {
                Some(Expr::new(ty, ExprKind::Select(self.expr(c)?, self.expr(t)?, self.expr(f)?)))
            }
            ExprKind::Call(function, args) => {
                let args: Option<Vec<Expr>> = args.iter().map(|arg| self.expr(arg)).collect();
                Some(Expr::new(ty, ExprKind::Call(*function, args?)))
            }
            _ => None,
        }
    }
}
