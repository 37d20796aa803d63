//! Statements in short form.

use crate::ir::{BinOp, Buffer, Expr, ForKind, Stmt, Var};

pub(super) fn index(value: i64) -> Expr {
    Expr::index(value)
}

pub(super) fn add(a: Expr, b: Expr) -> Expr {
    Expr::add(a, b)
}

pub(super) fn sub(a: Expr, b: Expr) -> Expr {
    Expr::sub(a, b)
}

pub(super) fn mul(a: Expr, b: Expr) -> Expr {
    Expr::mul(a, b)
}

pub(super) fn min(a: Expr, b: Expr) -> Expr {
    Expr::binary(BinOp::Min, a, b)
}

/// Returns `buffer[index]`.
pub(super) fn at(buffer: &Buffer, index: Expr) -> Expr {
    Expr::load(buffer, vec![index])
}

/// Returns `buffer[index] = value`.
pub(super) fn set(buffer: &Buffer, index: Expr, value: Expr) -> Stmt {
    Stmt::store(buffer, vec![index], value)
}

pub(super) fn block(stmts: impl IntoIterator<Item = Stmt>) -> Stmt {
    Stmt::Block(stmts.into_iter().collect())
}

pub(super) fn when(cond: Expr, then: Stmt) -> Stmt {
    Stmt::If { cond, then: Box::new(then), otherwise: None }
}

/// Returns a loop from 0.
pub(super) fn for_each(name: &str, extent: Expr, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let var = Var::index(name);
    let body = body(Expr::var(&var));
    Stmt::serial(var, extent, body)
}

/// Returns a loop whose iterations are written out.
pub(super) fn unrolled(name: &str, extent: i64, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    of_kind(ForKind::Unrolled, name, extent, body)
}

/// Returns a loop whose iterations are lanes.
pub(super) fn each_lane(name: &str, lanes: i64, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    of_kind(ForKind::Vectorized, name, lanes, body)
}

fn of_kind(kind: ForKind, name: &str, extent: i64, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let var = Var::index(name);
    let body = Box::new(body(Expr::var(&var)));
    Stmt::For { var, min: index(0), extent: index(extent), kind, body }
}

/// Returns `let name = value; body`.
pub(super) fn let_in(name: &str, value: Expr, body: impl FnOnce(Expr) -> Stmt) -> Stmt {
    let var = Var::new(name, value.ty);
    let body = Box::new(body(Expr::var(&var)));
    Stmt::Let { var, value, body }
}
