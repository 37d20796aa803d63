//! Asynchronous copies from global to shared memory, without registers: `cp.async`.
//!
//! In launches with warp products, `S[ramp(i, 1, 8)] = A[ramp(j, 1, 8)]` is such a copy if the
//! launch does not write `A` and both sides are aligned. The thread waits for its copies before a
//! barrier, after which other threads may read them, and before it accesses shared memory itself. A
//! warp product does not wait: it reads only data from before the last barrier. So copies and
//! products overlap: with a double buffer, one half is filled while the other is read.
//!
//! Copies of a group (`Stmt::CopyGroup`) are awaited only by `Stmt::AwaitCopies`. In a group,
//! single elements are copied asynchronously too, and an element outside of its tensor is 0: `S[i]
//! = if_then_else(c, A[j], 0)` reads no byte if `c` is false. If the group itself reads a buffer
//! that it fills, such as a cached block computed from another one, that buffer is filled through
//! registers.

use super::emit::{Emitter, Memory, Place};
use crate::ir::async_copy::{ASYNC_COPY_BYTES, Copied, copied_at_once, read_in};
use crate::ir::visit::{walk_expr, walk_stmt};
use crate::ir::{Buffer, Expr, ExprKind, Scope, Stmt};
use nvptx_builder::{CpAsync, Operand, Space, Ty, U32};

/// An asynchronous copy.
struct Copy<'e> {
    from: Memory,
    cond: Option<&'e Expr>,
    /// Elements that one instruction copies.
    chunk: usize,
    lanes: u32,
    /// The index of the first element on both sides, and the step to the next one.
    to_first: (&'e Expr, i64),
    from_first: (&'e Expr, i64),
}

/// The reason why a store to shared memory is not an asynchronous copy.
enum NotAsync {
    /// The launch has no asynchronous copies here.
    Disabled,
    /// The value is not a copy of an element that the launch only reads.
    Computed,
    /// The group itself reads the buffer.
    Read,
    /// It copies a number of bytes for which `cp.async` has no form.
    Size(u32),
}

impl Emitter<'_> {
    /// Emits a store as an asynchronous copy, if it can be one. Returns whether it was.
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
            let to = match to.swizzled && at > 0 {
                true => {
                    let at = Expr::index(i64::from(at) * copy.to_first.1);
                    self.address(to, bytes, &Expr::add(copy.to_first.0.clone(), at))
                }
                false => to_first.clone().plus(offset * copy.to_first.1),
            };
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
    ) -> Result<Copy<'e>, NotAsync> {
        if to.space != Space::Shared || !(self.copies_async || self.in_group) {
            return Err(NotAsync::Disabled);
        }
        let copied = Copied::of(value, buffer.dtype, self.in_group).ok_or(NotAsync::Computed)?;
        let Place::Memory(from) = self.place(copied.source) else { return Err(NotAsync::Computed) };
        if from.space != Space::Global || !from.read_only || self.guard.is_some() {
            return Err(NotAsync::Computed);
        }
        if self.in_group && self.read_in_group.contains(buffer) {
            return Err(NotAsync::Read);
        }
        let most = copied_at_once(buffer.dtype);
        let chunk = self.chunk_of(buffer, to, index, most);
        let chunk = chunk.min(self.chunk_of(copied.source, &from, copied.index, most));
        let size = chunk as u32 * buffer.dtype.bytes() as u32;
        // Strided elements are copied one by one.
        let (to_first, from_first) = match (&index.kind, &copied.index.kind) {
            (ExprKind::Ramp(to, to_step), ExprKind::Ramp(from, from_step))
                if index.ty.lanes > 1 =>
            {
                let (Some(to_step), Some(from_step)) = (to_step.as_int(), from_step.as_int())
                else {
                    return Err(NotAsync::Computed);
                };
                ((to, to_step as i64), (from, from_step as i64))
            }
            _ if self.in_group && index.ty.is_scalar() => ((index, 1), (copied.index, 1)),
            _ => return Err(NotAsync::Computed),
        };
        if !ASYNC_COPY_BYTES.contains(&size) {
            return Err(NotAsync::Size(size));
        }
        let (lanes, cond) = (index.ty.lanes, copied.cond);
        Ok(Copy { from, cond, chunk, lanes, to_first, from_first })
    }

    /// Notes, for the user, a store of a pipeline that is not asynchronous.
    fn note_no_copy(&mut self, buffer: &Buffer, why: &NotAsync) {
        if !self.in_group {
            return;
        }
        let why = match why {
            NotAsync::Disabled => return,
            NotAsync::Computed => "it is not a plain copy of an input".to_string(),
            NotAsync::Read => "another stage of the pipeline reads it".to_string(),
            NotAsync::Size(bytes) => {
                let unit = if *bytes == 1 { "byte" } else { "bytes" };
                format!("it is copied in pieces of {bytes} {unit}, `cp.async` takes 4, 8 or 16")
            }
        };
        let note = (buffer.name.clone(), why);
        if !self.synchronous.contains(&note) {
            self.synchronous.push(note);
        }
    }

    /// Emits a group of copies, which are awaited together.
    pub(super) fn copy_group(&mut self, body: &Stmt) {
        let outer = std::mem::replace(&mut self.in_group, true);
        let read = read_in(body);
        let outer_read = std::mem::replace(&mut self.read_in_group, read);
        self.stmt(body);
        self.read_in_group = outer_read;
        self.in_group = outer;
        self.e.cp_async_commit_group();
    }

    /// Waits until this thread's copies of all groups but the last `in_flight` have completed.
    pub(super) fn wait_for_groups(&mut self, in_flight: u32) {
        match self.copying {
            true => self.wait_for_copies(),
            false => self.e.cp_async_wait_group(in_flight),
        }
    }

    /// Waits until all copies of this thread have completed.
    pub(super) fn wait_for_copies(&mut self) {
        if self.copying {
            self.e.cp_async_wait_all();
            self.copying = false;
        }
    }

    /// Waits at the end of a loop's body if the next iteration may access copied data.
    pub(super) fn wait_in_loop(&mut self, body: &Stmt) {
        if self.copying && uses_shared(body) {
            self.wait_for_copies();
        }
    }
}

/// Whether a statement contains a barrier or reads shared memory.
fn uses_shared(stmt: &Stmt) -> bool {
    let (mut waits, mut reads) = (false, false);
    walk_stmt(
        stmt,
        &mut |stmt| waits |= matches!(stmt, Stmt::Barrier | Stmt::AwaitCopies { .. }),
        &mut |expr| {
            walk_expr(expr, &mut |e| {
                if let ExprKind::Load { buffer, .. } = &e.kind {
                    reads |= buffer.scope == Scope::Shared;
                }
            });
        },
    );
    waits || reads
}
