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
use crate::ir::async_copy::{ASYNC_COPY_BYTES, Copied, read_in};
use crate::ir::visit::{walk_expr, walk_stmt};
use crate::ir::{Buffer, Expr, ExprKind, Scope, Stmt};
use nvptx_builder::{CpAsync, Operand, Space, Ty, U32};

/// A copy that needs no registers.
struct Copy<'e> {
    from: Memory,
    cond: Option<&'e Expr>,
    /// Elements copied at once, and how many there are.
    chunk: usize,
    lanes: u32,
    /// The first element on both sides, and how far the next one is.
    to_first: (&'e Expr, i64),
    from_first: (&'e Expr, i64),
}

/// Why a store into shared memory is no asynchronous copy.
enum Why {
    /// It is not meant to be one.
    NotAsked,
    /// It is no copy of what the launch only reads.
    Computed,
    /// The group itself reads it.
    Read,
    /// So many bytes at once.
    Size(u32),
}

impl Emitter<'_> {
    /// Copies, if the store is such a copy.
    pub(super) fn copy_async(
        &mut self,
        (buffer, to): (&Buffer, &Memory),
        index: &Expr,
        value: &Expr,
    ) -> bool {
        let copy = match self.plan_copy((buffer, to), index, value) {
            Ok(copy) => copy,
            Err(why) => {
                self.note_no_copy(buffer, &why);
                return false;
            }
        };
        let bytes = buffer.dtype.bytes() as u32;
        let size = copy.chunk as u32 * bytes;
        let wanted = copy.cond.map(|cond| {
            let pred = self.expr(cond).reg().expect("conditions are predicates");
            let pred = pred.typed().expect("conditions are predicates");
            let (all, none) = (Operand::int(Ty::U32, size.into()), Operand::int(Ty::U32, 0));
            let wanted = self.e.selp(all, none, pred);
            wanted.typed::<U32>().expect("a count of bytes")
        });
        let (to_first, from_first) = (
            self.address(to, bytes, copy.to_first.0),
            self.address(&copy.from, bytes, copy.from_first.0),
        );
        let how = if size == 16 { CpAsync::cg() } else { CpAsync::ca(size) };
        for at in (0..copy.lanes).step_by(copy.chunk) {
            let offset = i64::from(at * bytes);
            let to = to_first.clone().plus(offset * copy.to_first.1);
            let from = from_first.clone().plus(offset * copy.from_first.1);
            match wanted {
                None => self.e.cp_async(how, to, from),
                Some(wanted) => self.e.cp_async_zero_fill(how, to, from, wanted),
            }
        }
        self.copying |= !self.in_group;
        true
    }

    fn plan_copy<'e>(
        &mut self,
        (buffer, to): (&Buffer, &Memory),
        index: &'e Expr,
        value: &'e Expr,
    ) -> Result<Copy<'e>, Why> {
        if to.space != Space::Shared || !(self.copies_async || self.in_group) {
            return Err(Why::NotAsked);
        }
        let copied = Copied::of(value, buffer.dtype, self.in_group).ok_or(Why::Computed)?;
        let Place::Memory(from) = self.place(copied.source) else { return Err(Why::Computed) };
        if from.space != Space::Global || !from.read_only || self.guard.is_some() {
            return Err(Why::Computed);
        }
        if self.in_group && self.read_in_group.contains(buffer) {
            return Err(Why::Read);
        }
        let chunk = self.chunk(buffer, to, index);
        let chunk = chunk.min(self.chunk(copied.source, &from, copied.index));
        let size = chunk as u32 * buffer.dtype.bytes() as u32;
        // Elements that do not follow each other are copied one by one, a step apart.
        let (to_first, from_first) = match (&index.kind, &copied.index.kind) {
            (ExprKind::Ramp(to, to_step), ExprKind::Ramp(from, from_step))
                if index.ty.lanes > 1 =>
            {
                let (Some(to_step), Some(from_step)) = (to_step.as_int(), from_step.as_int())
                else {
                    return Err(Why::Computed);
                };
                ((to, to_step as i64), (from, from_step as i64))
            }
            _ if self.in_group && index.ty.is_scalar() => ((index, 1), (copied.index, 1)),
            _ => return Err(Why::Computed),
        };
        if !ASYNC_COPY_BYTES.contains(&size) {
            return Err(Why::Size(size));
        }
        let (lanes, cond) = (index.ty.lanes, copied.cond);
        Ok(Copy { from, cond, chunk, lanes, to_first, from_first })
    }

    /// A pipeline asks for copies beside the work: where there is none, the user is told.
    fn note_no_copy(&mut self, buffer: &Buffer, why: &Why) {
        if !self.in_group {
            return;
        }
        let why = match why {
            Why::NotAsked => return,
            Why::Computed => "it is no plain copy of an input".to_string(),
            Why::Read => "another stage of the pipeline is made of it".to_string(),
            Why::Size(bytes) => {
                let unit = if *bytes == 1 { "byte" } else { "bytes" };
                format!("it is copied in pieces of {bytes} {unit}, `cp.async` takes 4, 8 or 16")
            }
        };
        let note = (buffer.name.clone(), why);
        if !self.synchronous.contains(&note) {
            self.synchronous.push(note);
        }
    }

    /// Copies that are waited for together.
    pub(super) fn copy_group(&mut self, body: &Stmt) {
        let outer = std::mem::replace(&mut self.in_group, true);
        let read = read_in(body);
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
