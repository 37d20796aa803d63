//! Other orders of a kernel's loops: what says that its iterations may run in any order must give
//! the same result backwards.

use tec::ir::visit::{map_stmts, rewrite_exprs, substitute};
use tec::ir::{Expr, ForKind, Kernel, Stmt};

/// The kernel with its parallel loops and lanes backwards; none if it has neither.
pub fn backwards(kernel: &Kernel) -> Option<Kernel> {
    let mut found = false;
    let body = reverse(kernel.body.clone(), &mut found);
    found.then(|| Kernel { body, ..kernel.clone() })
}

fn reverse(stmt: Stmt, found: &mut bool) -> Stmt {
    match map_stmts(stmt, &mut |inner| reverse(inner, found)) {
        Stmt::For { var, min, extent, kind, body }
            if matches!(kind, ForKind::Parallel | ForKind::Vectorized) =>
        {
            *found = true;
            let last = Expr::sub(Expr::add(min.clone(), extent.clone()), Expr::index(1));
            let first = Expr::add(last, min.clone());
            let mirrored = Expr::sub(first, Expr::var(&var));
            let body = rewrite_exprs(*body, &mut |expr| {
                substitute(expr, &mut |v| (*v == var).then(|| mirrored.clone()))
            });
            Stmt::For { var, min, extent, kind: ForKind::Serial, body: Box::new(body) }
        }
        other => other,
    }
}
