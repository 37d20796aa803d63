//! Drop prefetches: hints go where the back end has no instruction for them, with the loops and
//! conditions that held nothing else.
//!
//! Before: `for (i, 0, n) { for (p, 0, 4) { prefetch(A[…]) }  C[i] = A[i] }`
//! After:  `for (i, 0, n) { C[i] = A[i] }`
//! Only nests of the wide back end have one (`simd_kernel`, x86-avx2 and x86-avx512); Cranelift
//! has none.

use crate::diag::Result;
use crate::ir::visit::{for_each_stmt, map_stmts};
use crate::ir::{Kernel, Stmt};
use crate::target::Target;

/// Removes every prefetch outside of nests of the wide back end.
pub fn drop_prefetches(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = drop_stmt(kernel.body);
    Ok(Kernel { body, ..kernel })
}

/// Whether a statement has prefetches that [`drop_prefetches`] removes.
pub fn drops_any(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Prefetch { .. } => true,
        Stmt::SimdKernel { .. } => false,
        other => {
            let mut found = false;
            for_each_stmt(other, &mut |inner| found = found || drops_any(inner));
            found
        }
    }
}

fn drop_stmt(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Prefetch { .. } => Stmt::nothing(),
        Stmt::Block(stmts) => {
            let stmts = stmts.into_iter().map(|stmt| {
                let empty = is_nothing(&stmt);
                (drop_stmt(stmt), empty)
            });
            // What was empty before is not this pass's business.
            let left = stmts.filter(|(stmt, empty)| *empty || !is_nothing(stmt));
            Stmt::Block(left.map(|(stmt, _)| stmt).collect())
        }
        // The wide back end has the instruction.
        nest @ Stmt::SimdKernel { .. } => nest,
        other => map_stmts(other, &mut drop_stmt),
    }
}

/// Whether running it has no effect.
fn is_nothing(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Block(stmts) => stmts.iter().all(is_nothing),
        Stmt::For { body, .. } | Stmt::Let { body, .. } => is_nothing(body),
        Stmt::If { then, otherwise, .. } => {
            is_nothing(then) && otherwise.as_deref().is_none_or(is_nothing)
        }
        _ => false,
    }
}
