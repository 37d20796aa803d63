//! Which expressions are evaluated in place of a branch around them.

use crate::ir::{BinOp, Expr, ExprKind, UnOp, visit};

/// Most operations that are evaluated speculatively in place of a branch.
pub(super) const SPECULATION_BUDGET: i32 = 24;

/// The same in a copy to shared memory, where a branch would keep the next copy's load from
/// starting before this one's value has arrived. Most operations belong to indices, which move into
/// addresses outside of the loop.
pub(super) const COPY_BUDGET: i32 = 160;

/// Whether evaluating an expression has no side effect, costs little, and loads nothing.
pub(super) fn is_speculatable(expr: &Expr, budget: &mut i32) -> bool {
    !visit::reads_memory(expr) && is_guardable(expr, budget)
}

/// Whether evaluating an expression costs little, apart from its loads.
pub(super) fn is_guardable(expr: &Expr, budget: &mut i32) -> bool {
    *budget -= match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) | ExprKind::Broadcast(_) => 0,
        ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod | BinOp::Div, ..) => 12,
        ExprKind::Unary(UnOp::Sqrt, _) => 12,
        _ => 1,
    };
    // A `let` is bound at each occurrence of the expression, so it stays in its branch.
    let mut fits = *budget >= 0 && !matches!(expr.kind, ExprKind::Let(..));
    visit::for_each_child(expr, &mut |child| fits = fits && is_guardable(child, budget));
    fits
}
