//! Walking and rewriting the loop IR. A pass matches only the nodes it changes and lets the rest
//! fall through; unchanged subtrees are returned as they are.

use super::{Expr, ExprKind, Stmt};

/// Calls `f` on the direct operands of `expr`.
pub fn for_each_child(expr: &Expr, f: &mut dyn FnMut(&Expr)) {
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) => {}
        ExprKind::Unary(_, a)
        | ExprKind::Cast(a)
        | ExprKind::Bitcast(a)
        | ExprKind::Broadcast(a) => f(a),
        ExprKind::Binary(_, a, b) | ExprKind::Ramp(a, b) | ExprKind::Let(_, a, b) => {
            f(a);
            f(b);
        }
        ExprKind::Select(a, b, c) | ExprKind::IfThenElse(a, b, c) => {
            f(a);
            f(b);
            f(c);
        }
        ExprKind::Load { indices, mask, .. } => {
            indices.iter().for_each(&mut *f);
            mask.iter().for_each(f);
        }
        ExprKind::Call(_, args) => args.iter().for_each(f),
    }
}

/// `expr` with every direct operand replaced by `f` of it; the same node if none changed.
pub fn map_children(expr: &Expr, f: &mut dyn FnMut(&Expr) -> Expr) -> Expr {
    let mut changed = false;
    let mut g = |x: &Expr| {
        let y = f(x);
        changed |= !y.same(x);
        y
    };
    let kind = match &expr.kind {
        ExprKind::Const(_) | ExprKind::Var(_) => return expr.clone(),
        ExprKind::Unary(op, a) => ExprKind::Unary(*op, g(a)),
        ExprKind::Cast(a) => ExprKind::Cast(g(a)),
        ExprKind::Bitcast(a) => ExprKind::Bitcast(g(a)),
        ExprKind::Broadcast(a) => ExprKind::Broadcast(g(a)),
        ExprKind::Binary(op, a, b) => ExprKind::Binary(*op, g(a), g(b)),
        ExprKind::Ramp(a, b) => ExprKind::Ramp(g(a), g(b)),
        ExprKind::Let(var, a, b) => ExprKind::Let(var.clone(), g(a), g(b)),
        ExprKind::Select(a, b, c) => ExprKind::Select(g(a), g(b), g(c)),
        ExprKind::IfThenElse(a, b, c) => ExprKind::IfThenElse(g(a), g(b), g(c)),
        ExprKind::Load { buffer, indices, mask } => ExprKind::Load {
            buffer: buffer.clone(),
            indices: indices.iter().map(&mut g).collect(),
            mask: mask.as_ref().map(&mut g),
        },
        ExprKind::Call(function, args) => {
            ExprKind::Call(*function, args.iter().map(&mut g).collect())
        }
    };
    if changed { Expr::new(expr.ty, kind) } else { expr.clone() }
}

/// Calls `f` on `expr` and everything below it, operands after the node.
pub fn walk_expr(expr: &Expr, f: &mut dyn FnMut(&Expr)) {
    f(expr);
    for_each_child(expr, &mut |child| walk_expr(child, f));
}

/// Rewrites bottom up: `f` sees each node with its operands already rewritten.
pub fn rewrite_expr(expr: &Expr, f: &mut dyn FnMut(Expr) -> Expr) -> Expr {
    let expr = map_children(expr, &mut |child| rewrite_expr(child, f));
    f(expr)
}

/// `expr` with variables replaced where `f` gives something. Names bound inside are distinct by
/// identity, so nothing can be captured.
pub fn substitute(expr: &Expr, f: &mut dyn FnMut(&super::Var) -> Option<Expr>) -> Expr {
    rewrite_expr(expr, &mut |e| match e.as_var() {
        Some(var) => f(var).unwrap_or(e),
        None => e,
    })
}

/// Calls `f` on the expressions that stand directly in `stmt` (not in nested statements).
pub fn for_each_expr(stmt: &Stmt, f: &mut dyn FnMut(&Expr)) {
    match stmt {
        Stmt::Block(_)
        | Stmt::Allocate { .. }
        | Stmt::Produce { .. }
        | Stmt::Tensorize { .. }
        | Stmt::SimdKernel { .. }
        | Stmt::CopyGroup { .. }
        | Stmt::AwaitCopies { .. }
        | Stmt::Barrier => {}
        Stmt::For { min, extent, .. } => {
            f(min);
            f(extent);
        }
        Stmt::If { cond, .. } => f(cond),
        Stmt::Store { indices, value, mask, .. } => {
            indices.iter().for_each(&mut *f);
            f(value);
            mask.iter().for_each(f);
        }
        Stmt::Prefetch { indices, .. } => indices.iter().for_each(f),
        Stmt::Let { value, .. } | Stmt::Evaluate(value) => f(value),
        Stmt::Assert { cond, values, .. } => {
            f(cond);
            values.iter().for_each(f);
        }
    }
}

/// Calls `f` on the statements directly inside `stmt`.
pub fn for_each_stmt(stmt: &Stmt, f: &mut dyn FnMut(&Stmt)) {
    match stmt {
        Stmt::Block(stmts) => stmts.iter().for_each(f),
        Stmt::For { body, .. }
        | Stmt::Let { body, .. }
        | Stmt::Allocate { body, .. }
        | Stmt::Produce { body, .. }
        | Stmt::Tensorize { body, .. }
        | Stmt::SimdKernel { body }
        | Stmt::CopyGroup { body } => f(body),
        Stmt::If { then, otherwise, .. } => {
            f(then);
            if let Some(otherwise) = otherwise {
                f(otherwise);
            }
        }
        Stmt::Store { .. }
        | Stmt::Prefetch { .. }
        | Stmt::Assert { .. }
        | Stmt::Barrier
        | Stmt::AwaitCopies { .. }
        | Stmt::Evaluate(_) => {}
    }
}

/// Calls `on_stmt` on `stmt` and everything below, parents first, and `on_expr` on every whole
/// expression of each.
pub fn walk_stmt(stmt: &Stmt, on_stmt: &mut dyn FnMut(&Stmt), on_expr: &mut dyn FnMut(&Expr)) {
    on_stmt(stmt);
    for_each_expr(stmt, on_expr);
    for_each_stmt(stmt, &mut |inner| walk_stmt(inner, on_stmt, on_expr));
}

/// `stmt` with every expression that stands directly in it replaced.
pub fn map_exprs(stmt: Stmt, f: &mut dyn FnMut(&Expr) -> Expr) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, kind, body } => {
            Stmt::For { var, min: f(&min), extent: f(&extent), kind, body }
        }
        Stmt::If { cond, then, otherwise } => Stmt::If { cond: f(&cond), then, otherwise },
        Stmt::Store { buffer, indices, value, mask, nontemporal } => Stmt::Store {
            buffer,
            indices: indices.iter().map(&mut *f).collect(),
            value: f(&value),
            mask: mask.as_ref().map(f),
            nontemporal,
        },
        Stmt::Prefetch { buffer, indices } => {
            Stmt::Prefetch { buffer, indices: indices.iter().map(f).collect() }
        }
        Stmt::Let { var, value, body } => Stmt::Let { var, value: f(&value), body },
        Stmt::Evaluate(value) => Stmt::Evaluate(f(&value)),
        Stmt::Assert { cond, message, values } => {
            let cond = f(&cond);
            Stmt::Assert { cond, message, values: values.iter().map(f).collect() }
        }
        other => other,
    }
}

/// `stmt` with every statement directly inside it replaced.
pub fn map_stmts(stmt: Stmt, f: &mut dyn FnMut(Stmt) -> Stmt) -> Stmt {
    match stmt {
        Stmt::Block(stmts) => Stmt::Block(stmts.into_iter().map(f).collect()),
        Stmt::For { var, min, extent, kind, body } => {
            Stmt::For { var, min, extent, kind, body: Box::new(f(*body)) }
        }
        Stmt::Let { var, value, body } => Stmt::Let { var, value, body: Box::new(f(*body)) },
        Stmt::Allocate { buffer, body } => Stmt::Allocate { buffer, body: Box::new(f(*body)) },
        Stmt::Produce { name, body } => Stmt::Produce { name, body: Box::new(f(*body)) },
        Stmt::SimdKernel { body } => Stmt::SimdKernel { body: Box::new(f(*body)) },
        Stmt::CopyGroup { body } => Stmt::CopyGroup { body: Box::new(f(*body)) },
        Stmt::Tensorize { name, body } => Stmt::Tensorize { name, body: Box::new(f(*body)) },
        Stmt::If { cond, then, otherwise } => {
            let then = Box::new(f(*then));
            Stmt::If { cond, then, otherwise: otherwise.map(|s| Box::new(f(*s))) }
        }
        other => other,
    }
}

/// Rewrites every expression in `stmt`, nested statements included.
pub fn rewrite_exprs(stmt: Stmt, f: &mut dyn FnMut(&Expr) -> Expr) -> Stmt {
    let stmt = map_exprs(stmt, f);
    map_stmts(stmt, &mut |inner| rewrite_exprs(inner, f))
}
