//! Loops over buffers of a thread are written out, so that the buffers become registers.
//!
//! Before: `local C[8]; for (j, 0, 8) { C[j] = C[j] + A[j] }`
//! After:  `local C[8]; C[0] = C[0] + A[0]; C[1] = …`
//! A loop is written out if its extent is constant, an index of a `local` buffer inside depends on
//! its variable, and the whole does not become too long.

use crate::ir::copy::fresh_copy;
use crate::ir::visit::{for_each_expr, for_each_stmt, map_stmts, walk_expr};
use crate::ir::{Buffer, Expr, ExprKind, ForKind, Scope, Stmt, Var};
use std::collections::HashMap;

/// A buffer with more elements stays in memory: registers are 255.
pub(super) const MAX_REGISTERS: i128 = 256;

/// Statements that one written-out nest may have.
const MAX_STATEMENTS: i128 = 4096;

/// Writes out the loops over buffers that could be registers; whether there were any.
pub(super) fn unroll_locals(stmt: Stmt) -> (Stmt, bool) {
    let mut changed = false;
    let stmt = unroll(stmt, &mut changed);
    (stmt, changed)
}

fn unroll(stmt: Stmt, changed: &mut bool) -> Stmt {
    let stmt = map_stmts(stmt, &mut |inner| unroll(inner, changed));
    let Stmt::For { var, min, extent, kind, body } = &stmt else { return stmt };
    let Some(count) = extent.as_int().filter(|count| *count >= 0) else { return stmt };
    let thread = matches!(kind, ForKind::Thread(_));
    if thread || count * count_statements(body) > MAX_STATEMENTS || !indexes_local(body, var) {
        return stmt;
    }
    *changed = true;
    let copy = |at: i128| {
        let value = Expr::add(min.clone(), Expr::index(at as i64));
        fresh_copy(body, &HashMap::from([(var.clone(), value)]))
    };
    Stmt::Block((0..count).map(copy).collect())
}

fn count_statements(stmt: &Stmt) -> i128 {
    let mut count = 1;
    for_each_stmt(stmt, &mut |inner| count += count_statements(inner));
    count
}

/// Whether a buffer of a thread, small enough for registers, has an index with `var`.
fn indexes_local(stmt: &Stmt, var: &Var) -> bool {
    let mut found = false;
    let mentions = |index: &Expr| {
        let mut found = false;
        walk_expr(index, &mut |e| found |= e.as_var() == Some(var));
        found
    };
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

/// The elements of a buffer with constant extents.
pub(super) fn elements(buffer: &Buffer) -> Option<i128> {
    let extents = buffer.shape.iter();
    extents
        .map(|extent| extent.as_int().map(|n| n.max(0)))
        .try_fold(1i128, |product, extent| product.checked_mul(extent?))
}
