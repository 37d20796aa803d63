//! Flatten storage: every access gets one row-major index.
//!
//! Before: `C[x, y] = A[x, k]`
//! After:  `C[((x*m) + y)] = A[((x*l) + k)]`
//! Needs: one index per dimension.  Ensures: exactly one index, also for rank 0.  Breaks:
//! simplified form.

use crate::diag::Result;
use crate::ir::visit::{rewrite_expr, rewrite_exprs};
use crate::ir::{Buffer, Expr, ExprKind, Kernel, Stmt};
use crate::target::Target;

/// Flattens body and checks.
pub fn flatten_storage(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let checks = flatten_stmt(kernel.checks);
    let body = flatten_stmt(kernel.body);
    Ok(Kernel { checks, body, ..kernel })
}

fn flatten_stmt(stmt: Stmt) -> Stmt {
    let stmt = rewrite_exprs(stmt, &mut |expr| flatten_loads(expr));
    flatten_stores(stmt)
}

fn flatten_loads(expr: &Expr) -> Expr {
    rewrite_expr(expr, &mut |e| match &e.kind {
        ExprKind::Load { buffer, indices, mask } => {
            let indices = vec![flat_index(buffer, indices)];
            Expr::new(e.ty, ExprKind::Load { buffer: buffer.clone(), indices, mask: mask.clone() })
        }
        _ => e,
    })
}

fn flatten_stores(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Store { buffer, indices, value, mask } => {
            let indices = vec![flat_index(&buffer, &indices)];
            Stmt::Store { buffer, indices, value, mask }
        }
        other => crate::ir::visit::map_stmts(other, &mut flatten_stores),
    }
}

/// The row-major index: each index times the product of the extents after its own.
fn flat_index(buffer: &Buffer, indices: &[Expr]) -> Expr {
    if buffer.shape.len() != indices.len() {
        crate::bug!("{} has rank {}, {} indices", buffer.name, buffer.shape.len(), indices.len());
    }
    let mut flat: Option<Expr> = None;
    let mut stride: Option<Expr> = None;
    for (index, extent) in indices.iter().zip(&buffer.shape).rev() {
        let term = match &stride {
            None => index.clone(),
            Some(stride) => Expr::mul(index.clone(), stride.clone()),
        };
        flat = Some(match flat {
            None => term,
            Some(rest) => Expr::add(term, rest),
        });
        stride = Some(match stride {
            None => extent.clone(),
            Some(stride) => Expr::mul(extent.clone(), stride),
        });
    }
    flat.unwrap_or_else(|| Expr::index(0))
}
