//! Unroll loops: writes out the iterations of unrolled loops.
//!
//! Before: `unrolled (k, 0, 2) { C[x] = C[x] + A[k] }`
//! After:  `C[x] = C[x] + A[0]; C[x] = C[x] + A[1]`
//! Needs: conditions moved out of the loops (`partition_loops`). Stands after `vectorize_loops`, as
//! one vector statement is copied faster than a loop over lanes, and before `simplify_again`, which
//! folds the indices, and `promote_accumulators`, which needs them constant.
//! Breaks: simplified form.
//! Declines: loops without a constant extent, which become serial.

use crate::diag::Result;
use crate::ir::copy::fresh_copy;
use crate::ir::limits::MAX_UNROLLED_COPIES;
use crate::ir::visit::map_stmts;
use crate::ir::{Expr, ForKind, Kernel, Stmt};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Writes out every unrolled loop.
pub fn unroll_loops(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    Ok(Kernel { body: unroll(kernel.body), ..kernel })
}

fn unroll(stmt: Stmt) -> Stmt {
    let Stmt::For { var, min, extent, kind: ForKind::Unrolled, body } = stmt else {
        return map_stmts(stmt, &mut unroll);
    };
    let body = unroll(*body);
    let Some(count) = extent.as_int() else {
        return Stmt::For { var, min, extent, kind: ForKind::Serial, body: Box::new(body) };
    };
    if count > MAX_UNROLLED_COPIES {
        crate::bug!("loop {} would be written out {count} times", var.name());
    }
    let copy = |at: i128| {
        let value = Expr::add(min.clone(), Expr::index(at as i64));
        fresh_copy(&body, &FxHashMap::from_iter([(var.clone(), value)]))
    };
    Stmt::Block((0..count).map(copy).collect())
}
