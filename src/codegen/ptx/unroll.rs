//! Unrolls loops over buffers of a thread, so that the buffers live in registers, and short loops,
//! so that their addresses are constant and their loads overlap.
//!
//! Before: `local C[8]; for (j, 0, 8) { C[j] = C[j] + A[j] }` After: `local C[8]; C[0] = C[0] +
//! A[0]; C[1] = …` A loop is unrolled if its extent is constant, the result is not too long, and
//! either the index of a `local` buffer depends on its variable or it contains no barrier and no
//! other loop.

use crate::ir::copy::fresh_copy;
use crate::ir::visit::{for_each_expr, for_each_stmt, map_stmts, mentions, walk_expr};
use crate::ir::warp::is_warp_product;
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Scope, Stmt, Var};
use rustc_hash::FxHashMap;

/// Most elements of a buffer in registers; a thread has 255 registers.
pub(super) const MAX_REGISTERS: i128 = 256;

/// Most stores of an unrolled nest over a thread's buffers.
const MAX_LOCAL_STORES: i128 = 4096;

/// Most stores of another unrolled nest.
const MAX_SHORT_STORES: i128 = 512;

/// Unrolls the loops. Returns whether there were any.
pub(super) fn unroll_locals(stmt: Stmt) -> (Stmt, bool) {
    let mut changed = false;
    let stmt = unroll(stmt, &mut changed);
    (stmt, changed)
}

fn unroll(stmt: Stmt, changed: &mut bool) -> Stmt {
    if is_warp_product(&stmt) {
        return stmt;
    }
    let stmt = map_stmts(stmt, &mut |inner| unroll(inner, changed));
    let Stmt::For { var, min, extent, kind, body } = &stmt else { return stmt };
    let Some(count) = extent.as_int() else { return stmt };
    if matches!(kind, ForKind::Thread(_)) || !is_unrolled(var, extent, body) {
        return stmt;
    }
    *changed = true;
    let copy = |at: i128| {
        let value = Expr::add(min.clone(), Expr::index(at as i64));
        fresh_copy(body, &FxHashMap::from_iter([(var.clone(), value)]))
    };
    Stmt::Block((0..count).map(copy).collect())
}

/// Annotates those loops as unrolled, for the cost model, and leaves them in place.
pub fn annotate_unrolled(stmt: Stmt) -> Stmt {
    if is_warp_product(&stmt) {
        return stmt;
    }
    let stmt = map_stmts(stmt, &mut annotate_unrolled);
    match stmt {
        Stmt::For { var, min, extent, kind: ForKind::Serial, body }
            if is_unrolled(&var, &extent, &body) =>
        {
            Stmt::For { var, min, extent, kind: ForKind::Unrolled, body }
        }
        other => other,
    }
}

fn is_unrolled(var: &Var, extent: &Expr, body: &Stmt) -> bool {
    let Some(count) = extent.as_int().filter(|count| *count >= 0) else { return false };
    let (stores, waits) = count_stores(body);
    // The copies of a body without stores count too.
    let stores = stores.max(1);
    let local = count * stores <= MAX_LOCAL_STORES && indexes_local(body, var);
    let short = count * stores <= MAX_SHORT_STORES && !waits;
    local || short
}

/// The stores in a statement, multiplied by the extents of unrolled loops, and whether it contains
/// another loop or a barrier.
fn count_stores(stmt: &Stmt) -> (i128, bool) {
    let mut count = i128::from(matches!(stmt, Stmt::Store { .. }));
    let mut waits = matches!(stmt, Stmt::Barrier | Stmt::AwaitCopies { .. });
    let mut times = 1;
    if let Stmt::For { kind, extent, .. } = stmt {
        match (kind, extent.as_int()) {
            (ForKind::Unrolled, Some(extent)) => times = extent.max(0),
            _ => waits = true,
        }
    }
    for_each_stmt(stmt, &mut |inner| {
        let (stores, inside) = count_stores(inner);
        count += times * stores;
        waits |= inside;
    });
    (count, waits)
}

/// Whether a `local` buffer that fits in registers has an index with `var`.
fn indexes_local(stmt: &Stmt, var: &Var) -> bool {
    let mut found = false;
    let mentions = |index: &Expr| mentions(index, var);
    if let Stmt::Store { buffer, indices, .. } = stmt {
        found |= is_small_local(buffer) && indices.iter().any(mentions);
    }
    for_each_expr(stmt, &mut |expr| {
        walk_expr(expr, &mut |e| {
            if let ExprKind::Load { buffer, indices, .. } = &e.kind {
                found |= is_small_local(buffer) && indices.iter().any(mentions);
            }
        });
    });
    for_each_stmt(stmt, &mut |inner| found = found || indexes_local(inner, var));
    found
}

fn is_small_local(buffer: &Buffer) -> bool {
    matches!(buffer.scope, Scope::Local | Scope::Register)
        && elements(buffer).is_some_and(|count| count <= MAX_REGISTERS)
}

/// The number of elements of a buffer with constant extents.
pub(super) fn elements(buffer: &Buffer) -> Option<i128> {
    let extents = buffer.shape.iter();
    extents
        .map(|extent| extent.as_int().map(|n| n.max(0)))
        .try_fold(1i128, |product, extent| product.checked_mul(extent?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_loops_without_stores_stay_loops() {
        let empty = |count: i64| Stmt::For {
            var: Var::index("i"),
            min: Expr::index(0),
            extent: Expr::index(count),
            kind: ForKind::Serial,
            body: Box::new(Stmt::Block(Vec::new())),
        };
        assert!(!unroll_locals(empty(0x7fff_ffff)).1);
        assert!(unroll_locals(empty(MAX_SHORT_STORES as i64)).1);
    }
}
