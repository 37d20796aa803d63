//! Copies from global into shared memory that do not pass through registers: `cp.async`.
//!
//! `S[ramp(i, 1, 8)] = A[ramp(j, 1, 8)]` is one in launches with products by warps, where nobody
//! writes `A` and both sides are aligned. The thread waits for its copies before it meets others,
//! which see them then, and before it reads or writes shared memory itself. Products by warps read
//! what was there when the warp last met others, so that copies and products overlap: with two
//! halves of a buffer, one is filled while the other is read.

use super::emit::{Emitter, Memory, Place};
use crate::ir::visit::{walk_expr, walk_stmt};
use crate::ir::{Buffer, Expr, ExprKind, Scope, Stmt};
use nvptx_builder::{CpAsync, Space};

impl Emitter<'_> {
    /// Copies, if the store is such a copy.
    pub(super) fn copy_async(
        &mut self,
        (buffer, to): (&Buffer, &Memory),
        index: &Expr,
        value: &Expr,
    ) -> bool {
        let ExprKind::Load { buffer: source, indices, mask: None } = &value.kind else {
            return false;
        };
        let Place::Memory(from) = self.place(source) else { return false };
        let ([from_index], true) = (&indices[..], self.copies_async) else { return false };
        let spaces = (to.space, from.space) == (Space::Shared, Space::Global);
        if !spaces || !from.read_only || source.dtype != buffer.dtype || self.guard.is_some() {
            return false;
        }
        let bytes = buffer.dtype.bytes() as u32;
        let chunk = self.chunk(buffer, to, index).min(self.chunk(source, &from, from_index));
        let size = chunk as u32 * bytes;
        let (ExprKind::Ramp(to_first, _), ExprKind::Ramp(from_first, _), true) =
            (&index.kind, &from_index.kind, matches!(size, 4 | 8 | 16))
        else {
            return false;
        };
        let (to_first, from_first) =
            (self.address(to, bytes, to_first), self.address(&from, bytes, from_first));
        let how = if size == 16 { CpAsync::cg() } else { CpAsync::ca(size) };
        for at in (0..index.ty.lanes).step_by(chunk) {
            let offset = i64::from(at * bytes);
            self.e.cp_async(how, to_first.clone().plus(offset), from_first.clone().plus(offset));
        }
        self.copying = true;
        true
    }

    /// What was copied is there, for this thread.
    pub(super) fn wait_for_copies(&mut self) {
        if self.copying {
            self.e.cp_async_wait_all();
            self.copying = false;
        }
    }

    /// At the end of a loop's body, for what the next iteration does before it copies.
    pub(super) fn wait_in_loop(&mut self, body: &Stmt) {
        if self.copying && uses_shared(body) {
            self.wait_for_copies();
        }
    }
}

/// Whether a thread meets others in a statement, or reads shared memory.
fn uses_shared(stmt: &Stmt) -> bool {
    let (mut meets, mut reads) = (false, false);
    walk_stmt(stmt, &mut |stmt| meets |= matches!(stmt, Stmt::Barrier), &mut |expr| {
        walk_expr(expr, &mut |e| {
            if let ExprKind::Load { buffer, .. } = &e.kind {
                reads |= buffer.scope == Scope::Shared;
            }
        });
    });
    meets || reads
}
