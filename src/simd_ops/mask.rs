//! Masks that are conjunctions, such as the one at the end of a loop and a condition of the source.

use super::lane_count;
use crate::ir::equal::equal;
use crate::ir::{BinOp, Expr, ExprKind};

/// Returns the operand of a conjunction that holds in the first lanes only.
pub fn first_lanes(mask: &Expr) -> Option<Expr> {
    match &mask.kind {
        ExprKind::Binary(BinOp::And, a, b) => first_lanes(a).or_else(|| first_lanes(b)),
        ExprKind::Binary(op, a, b) => {
            lane_count(*op, a, b).filter(|count| !count.negated).map(|_| mask.clone())
        }
        _ => None,
    }
}

/// Returns a conjunction without an operand; `None` if it has no other.
pub fn without_operand(mask: &Expr, operand: &Expr) -> Option<Expr> {
    if equal(mask, operand) {
        return None;
    }
    match &mask.kind {
        ExprKind::Binary(BinOp::And, a, b) => {
            match (without_operand(a, operand), without_operand(b, operand)) {
                (Some(a), Some(b)) => Some(Expr::binary(BinOp::And, a, b)),
                (one, other) => one.or(other),
            }
        }
        _ => Some(mask.clone()),
    }
}
