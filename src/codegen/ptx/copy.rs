//! Copies from global into shared memory that do not pass through registers: `cp.async`.
//!
//! `S[ramp(i, 1, 8)] = A[ramp(j, 1, 8)]` is one in launches with products by warps, where nobody
//! writes `A` and both sides are aligned. The thread waits for its copies before it meets others,
//! which see them then, and before it reads or writes shared memory itself. Products by warps read
//! what was there when the warp last met others, so that copies and products overlap: with two
//! halves of a buffer, one is filled while the other is read.
//!
//! Copies of a group (`Stmt::CopyGroup`) are waited for where the program says so, and nowhere
//! else. There single elements are copied, too, and an element outside of its tensor is 0:
//! `S[i] = if_then_else(c, A[j], 0)` reads no byte where `c` is false. What the group itself reads
//! on, as one cached block that is made of another one, is copied through registers.

use super::emit::{Emitter, Memory, Place};
use crate::ir::visit::{walk_expr, walk_stmt};
use crate::ir::{Buffer, Const, Expr, ExprKind, Scope, Stmt};
use nvptx_builder::{CpAsync, Operand, Space, Ty, U32};
use std::collections::HashSet;

impl Emitter<'_> {
    /// Copies, if the store is such a copy.
    pub(super) fn copy_async(
        &mut self,
        (buffer, to): (&Buffer, &Memory),
        index: &Expr,
        value: &Expr,
    ) -> bool {
        let (value, cond) = match &value.kind {
            ExprKind::IfThenElse(cond, value, other) if self.in_group && is_zero(other) => {
                (super::expr::same_half(value).unwrap_or(value), Some(cond))
            }
            _ => (value, None),
        };
        let ExprKind::Load { buffer: source, indices, mask: None } = &value.kind else {
            return false;
        };
        let Place::Memory(from) = self.place(source) else { return false };
        let ([from_index], true) = (&indices[..], self.copies_async || self.in_group) else {
            return false;
        };
        let spaces = (to.space, from.space) == (Space::Shared, Space::Global);
        if self.in_group && self.read_in_group.contains(buffer) {
            return false;
        }
        if !spaces || !from.read_only || source.dtype != buffer.dtype || self.guard.is_some() {
            return false;
        }
        if cond.is_some_and(|cond| !cond.ty.is_scalar()) {
            return false;
        }
        let bytes = buffer.dtype.bytes() as u32;
        let chunk = self.chunk(buffer, to, index).min(self.chunk(source, &from, from_index));
        let size = chunk as u32 * bytes;
        // Elements that do not follow each other are copied one by one, a step apart.
        let ((to_first, to_step), (from_first, from_step)) = match (&index.kind, &from_index.kind) {
            (ExprKind::Ramp(to, to_step), ExprKind::Ramp(from, from_step))
                if index.ty.lanes > 1 =>
            {
                let (Some(to_step), Some(from_step)) = (to_step.as_int(), from_step.as_int())
                else {
                    return false;
                };
                ((to, to_step as i64), (from, from_step as i64))
            }
            _ if self.in_group && index.ty.is_scalar() => ((index, 1), (from_index, 1)),
            _ => return false,
        };
        if !matches!(size, 4 | 8 | 16) {
            return false;
        }
        let wanted = cond.map(|cond| {
            let pred = self.expr(cond).reg().expect("conditions are predicates");
            let pred = pred.typed().expect("conditions are predicates");
            let (all, none) = (Operand::int(Ty::U32, size.into()), Operand::int(Ty::U32, 0));
            let wanted = self.e.selp(all, none, pred);
            wanted.typed::<U32>().expect("a count of bytes")
        });
        let (to_first, from_first) =
            (self.address(to, bytes, to_first), self.address(&from, bytes, from_first));
        let how = if size == 16 { CpAsync::cg() } else { CpAsync::ca(size) };
        for at in (0..index.ty.lanes).step_by(chunk) {
            let offset = i64::from(at * bytes);
            let to = to_first.clone().plus(offset * to_step);
            let from = from_first.clone().plus(offset * from_step);
            match wanted {
                None => self.e.cp_async(how, to, from),
                Some(wanted) => self.e.cp_async_zero_fill(how, to, from, wanted),
            }
        }
        self.copying |= !self.in_group;
        true
    }

    /// Copies that are waited for together.
    pub(super) fn copy_group(&mut self, body: &Stmt) {
        let outer = std::mem::replace(&mut self.in_group, true);
        let mut read = HashSet::new();
        walk_stmt(body, &mut |_| {}, &mut |expr| {
            walk_expr(expr, &mut |expr| {
                if let ExprKind::Load { buffer, .. } = &expr.kind {
                    read.insert(buffer.clone());
                }
            });
        });
        let around = std::mem::replace(&mut self.read_in_group, read);
        self.stmt(body);
        self.read_in_group = around;
        self.in_group = outer;
        self.e.cp_async_commit_group();
    }

    /// What all groups but the last `in_flight` copied is there, for this thread.
    pub(super) fn wait_for_groups(&mut self, in_flight: u32) {
        match self.copying {
            true => self.wait_for_copies(),
            false => self.e.cp_async_wait_group(in_flight),
        }
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
    walk_stmt(
        stmt,
        &mut |stmt| meets |= matches!(stmt, Stmt::Barrier | Stmt::AwaitCopies { .. }),
        &mut |expr| {
            walk_expr(expr, &mut |e| {
                if let ExprKind::Load { buffer, .. } = &e.kind {
                    reads |= buffer.scope == Scope::Shared;
                }
            });
        },
    );
    meets || reads
}

fn is_zero(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Broadcast(scalar) => is_zero(scalar),
        ExprKind::Cast(inner) => is_zero(inner),
        // Minus zero is another value.
        ExprKind::Const(Const::Int(value)) => *value == 0,
        ExprKind::Const(Const::Float(value)) => value.to_bits() == 0,
        _ => false,
    }
}
