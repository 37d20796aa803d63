//! Drop hints: removes prefetches and `nontemporal` marks where the back end has no instruction for
//! them, and loops and conditions that become empty.
//!
//! Before: `for (i, 0, n) { for (p, 0, 4) { prefetch(A[…]) }  C[i] = A[i]  // nontemporal }`
//! After:  `for (i, 0, n) { C[i] = A[i] }`
//! Only the SIMD back end has such instructions (`simd_kernel` on x86-avx2 and x86-avx512).
//! Needs: nests are outlined (`outline_simd`). Stands before the passes that would split or hoist
//! the indices of hints.
//! Declines: everything in a `simd_kernel`.

use crate::diag::Result;
use crate::ir::visit::{for_each_stmt, map_stmts};
use crate::ir::{Kernel, Stmt};
use crate::target::Target;

/// Removes every hint outside of nests of the SIMD back end.
pub fn drop_hints(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = drop_stmt(kernel.body);
    Ok(Kernel { body, ..kernel })
}

/// Whether a statement has prefetches that [`drop_hints`] removes.
pub fn drops_prefetches(stmt: &Stmt) -> bool {
    drops_any(stmt, &|stmt| matches!(stmt, Stmt::Prefetch { .. }))
}

/// Whether a statement has nontemporal stores that [`drop_hints`] makes ordinary ones.
pub fn drops_nontemporal(stmt: &Stmt) -> bool {
    drops_any(stmt, &|stmt| matches!(stmt, Stmt::Store { nontemporal: true, .. }))
}

fn drops_any(stmt: &Stmt, is_hint: &dyn Fn(&Stmt) -> bool) -> bool {
    match stmt {
        hint if is_hint(hint) => true,
        Stmt::SimdKernel { .. } => false,
        other => {
            let mut found = false;
            for_each_stmt(other, &mut |inner| found = found || drops_any(inner, is_hint));
            found
        }
    }
}

fn drop_stmt(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Prefetch { .. } => Stmt::nothing(),
        Stmt::Store { buffer, indices, value, mask, .. } => {
            Stmt::Store { buffer, indices, value, mask, nontemporal: false }
        }
        Stmt::Block(stmts) => {
            let stmts = stmts.into_iter().map(|stmt| {
                let empty = is_nothing(&stmt);
                (drop_stmt(stmt), empty)
            });
            // Statements that were already empty stay.
            let left = stmts.filter(|(stmt, empty)| *empty || !is_nothing(stmt));
            Stmt::Block(left.map(|(stmt, _)| stmt).collect())
        }
        nest @ Stmt::SimdKernel { .. } => nest,
        other => map_stmts(other, &mut drop_stmt),
    }
}

/// Whether a statement has no effect.
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
