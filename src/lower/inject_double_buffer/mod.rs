//! Inject double buffer: computes a buffer that a loop reads one iteration ahead.
//!
//! Before: `for (i, 0, n) { allocate S[8] double  produce S { S[…] = f(i) }  … S[…] … }`
//! After:  `allocate S[2, 8]`
//!         `if 0 < n { produce S { S[0, …] = f(0) } }`
//!         `for (i, 0, n) {`
//!         `  if likely(i + 1 < n) { produce S { S[(i + 1) % 2, …] = f(i + 1) } }`
//!         `  … S[i % 2, …] …`
//!         `}`
//! On a GPU, shared memory is loaded in two parts ([`staged`]) or several iterations ahead
//! ([`pipelined`]). Conditions around the allocation are evaluated for the iteration that reads, so
//! the statement that fills the buffer has them with the next value of the loop's variable.
//! Needs: one index per dimension, as copies become a new outermost dimension; a serial or unrolled
//! loop around the buffer, and a producer that reads nothing that the same iteration computes (the
//! checks of `double_buffer` ensure both). Stands after `inject_virtual_threads`, which copies
//! buffers and their producers, and before `partition_loops`, which removes the `likely`
//! conditions.
//! Ensures: no buffer is marked; every variable is bound once.

mod pipelined;
mod staged;

use crate::diag::Result;
use crate::ir::copy::fresh_copy;
use crate::ir::visit::{map_exprs, map_stmts, rewrite_expr};
use crate::ir::{BinOp, Buffer, Buffering, Expr, ExprKind, ForKind, Kernel, Stmt, UnOp, Var};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Gives every marked buffer its copies, and fills them ahead.
pub fn inject_double_buffer(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = inject(kernel.body);
    Ok(Kernel { body, ..kernel })
}

fn inject(stmt: Stmt) -> Stmt {
    let stmt = map_stmts(stmt, &mut inject);
    match stmt {
        Stmt::For { var, min, extent, kind, body }
            if !matches!(kind, ForKind::Parallel | ForKind::Vectorized | ForKind::Thread(_)) =>
        {
            let mut found = Vec::new();
            let body = extract(*body, &mut Vec::new(), &mut found);
            inject_loop(Loop { var, min, extent, kind }, body, found)
        }
        other => other,
    }
}

struct Loop {
    var: Var,
    min: Expr,
    extent: Expr,
    kind: ForKind,
}

/// A stage that is computed ahead.
struct BufferedStage {
    how: Buffering,
    /// The buffers of its components.
    buffers: Vec<Buffer>,
    /// The statement that fills them in an iteration, under the conditions of that iteration.
    fill: Stmt,
}

/// A statement around an allocation in a loop's body.
enum Enclosing {
    Condition(Expr),
    /// The head of a loop over a GPU index.
    Thread(Var, Expr, ForKind),
}

impl Enclosing {
    fn wrap(&self, body: Stmt) -> Stmt {
        let body = Box::new(body);
        match self {
            Enclosing::Condition(cond) => {
                Stmt::If { cond: cond.clone(), then: body, otherwise: None }
            }
            Enclosing::Thread(var, extent, kind) => {
                let (var, min, extent) = (var.clone(), Expr::index(0), extent.clone());
                Stmt::For { var, min, extent, kind: kind.clone(), body }
            }
        }
    }
}

/// Removes the marked allocations and the statements that fill them; adds both to `found`.
fn extract(stmt: Stmt, enclosing: &mut Vec<Enclosing>, found: &mut Vec<BufferedStage>) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, kind, body } if kind.gpu_index().is_some() => {
            enclosing.push(Enclosing::Thread(var.clone(), extent.clone(), kind.clone()));
            let body = Box::new(extract(*body, enclosing, found));
            enclosing.pop();
            Stmt::For { var, min, extent, kind, body }
        }
        Stmt::For { .. } | Stmt::Tensorize { .. } => stmt,
        Stmt::If { cond, then, otherwise } => {
            enclosing.push(Enclosing::Condition(cond.clone()));
            let then = Box::new(extract(*then, enclosing, found));
            enclosing.pop();
            Stmt::If { cond, then, otherwise }
        }
        Stmt::Allocate { buffer, body } if buffer.buffering != Buffering::Single => {
            let how = buffer.buffering;
            let mut buffers = vec![buffer];
            let mut body = *body;
            let rest = loop {
                match body {
                    Stmt::Allocate { buffer, body: inner } if buffer.buffering == how => {
                        buffers.push(buffer);
                        body = *inner;
                    }
                    Stmt::Block(stmts) => break stmts,
                    _ => crate::bug!("a double buffer that nothing fills"),
                }
            };
            let mut rest = rest.into_iter();
            let fill = rest.next().unwrap_or_else(Stmt::nothing);
            let fill = enclosing.iter().rev().fold(fill, |body, one| one.wrap(body));
            found.push(BufferedStage { how, buffers, fill });
            extract(Stmt::Block(rest.collect()), enclosing, found)
        }
        other => map_stmts(other, &mut |inner| extract(inner, enclosing, found)),
    }
}

fn inject_loop(head: Loop, body: Stmt, found: Vec<BufferedStage>) -> Stmt {
    let (pipelined, found): (Vec<BufferedStage>, Vec<BufferedStage>) =
        found.into_iter().partition(|one| matches!(one.how, Buffering::Pipeline(_)));
    let Injected { before, mut body, allocated } = pipelined::inject(&head, body, pipelined);
    let (before, mut allocated) = (Vec::from_iter(before), allocated);
    let mut first: Vec<Stmt> = Vec::new();
    let mut ahead: Vec<Stmt> = Vec::new();
    let mut behind: Vec<Stmt> = Vec::new();
    let mut waiting: Vec<Buffer> = Vec::new();
    let mut halves: FxHashMap<Buffer, Buffer> = FxHashMap::default();
    let next = head.after(1);
    for double in &found {
        allocated.extend(double.add_copies(2, &mut halves));
        let fill_at = |at: &Expr| double.fill_at(at, &head, &halves, 2);
        first.push(fill_at(&head.min));
        let fill = fill_at(&next);
        match staged::stage(&fill, &body) {
            Some(parts) => {
                ahead.push(parts.load);
                behind.push(parts.store);
                waiting.push(parts.buffer);
            }
            None => ahead.push(fill),
        }
    }
    let mut nest = before;
    if !found.is_empty() {
        nest.push(head.if_iteration_exists(&Expr::index(0), first, false));
        body = into_copies(body, &halves, &head.copy(&Expr::var(&head.var), 2));
        let mut stmts = vec![head.if_iteration_exists(&Expr::index(1), ahead, true), body];
        if !behind.is_empty() {
            stmts.push(head.if_iteration_exists(&Expr::index(1), behind, true));
        }
        body = allocate(waiting, Stmt::Block(stmts));
    }
    let Loop { var, min, extent, kind } = head;
    nest.push(Stmt::For { var, min, extent, kind, body: Box::new(body) });
    match nest.len() {
        1 => nest.remove(0),
        _ => allocate(allocated, Stmt::Block(nest)),
    }
}

/// The parts of a loop that reads copies.
struct Injected {
    /// The statement before the loop.
    before: Option<Stmt>,
    body: Stmt,
    /// The buffers that are allocated around both.
    allocated: Vec<Buffer>,
}

impl Loop {
    /// Returns the value of the variable a number of iterations later.
    fn after(&self, iterations: i64) -> Expr {
        Expr::add(Expr::var(&self.var), Expr::index(iterations))
    }

    /// Returns the number of the copy that the iteration with value `at` of the variable reads.
    fn copy(&self, at: &Expr, copies: u32) -> Expr {
        let turn = match self.min.as_int() {
            Some(0) => at.clone(),
            _ => Expr::sub(at.clone(), self.min.clone()),
        };
        Expr::binary(BinOp::FloorMod, turn, Expr::index(copies.into()))
    }

    /// Wraps statements in the condition that an iteration exists: the one with this number or, if
    /// `later`, the one that many after the current iteration.
    fn if_iteration_exists(&self, number: &Expr, stmts: Vec<Stmt>, later: bool) -> Stmt {
        let cond = match later {
            false => Expr::lt(number.clone(), self.extent.clone()),
            true => {
                let end = match self.min.as_int() {
                    Some(0) => self.extent.clone(),
                    _ => Expr::add(self.min.clone(), self.extent.clone()),
                };
                let next = Expr::add(Expr::var(&self.var), number.clone());
                Expr::unary(UnOp::Likely, Expr::lt(next, end))
            }
        };
        Stmt::If { cond, then: Box::new(Stmt::Block(stmts)), otherwise: None }
    }
}

impl BufferedStage {
    /// Adds a dimension of `count` copies to its buffers, notes them in `copies` and returns them.
    fn add_copies(&self, count: u32, copies: &mut FxHashMap<Buffer, Buffer>) -> Vec<Buffer> {
        let add = |buffer: &Buffer| {
            let whole = with_copies(buffer, count);
            copies.insert(buffer.clone(), whole.clone());
            whole
        };
        self.buffers.iter().map(add).collect()
    }

    /// Returns the statement that fills the copy for the iteration with value `at` of the loop's
    /// variable.
    fn fill_at(
        &self,
        at: &Expr,
        head: &Loop,
        copies: &FxHashMap<Buffer, Buffer>,
        count: u32,
    ) -> Stmt {
        let fill = fresh_copy(&self.fill, &FxHashMap::from_iter([(head.var.clone(), at.clone())]));
        into_copies(fill, copies, &head.copy(at, count))
    }
}

fn allocate(buffers: Vec<Buffer>, body: Stmt) -> Stmt {
    let around = |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) };
    buffers.into_iter().rev().fold(body, around)
}

/// Returns the buffer with a new outermost dimension of `count` copies.
fn with_copies(buffer: &Buffer, count: u32) -> Buffer {
    let mut shape = buffer.shape.clone();
    shape.insert(0, Expr::index(count.into()));
    let strides = buffer.strides.clone().map(|mut strides| {
        strides.insert(0, buffer.len());
        strides
    });
    Buffer::with_layout(&buffer.name, buffer.dtype, shape, buffer.scope, strides, Buffering::Single)
}

/// Redirects every access of the buffers to copy `at`.
fn into_copies(stmt: Stmt, copies: &FxHashMap<Buffer, Buffer>, at: &Expr) -> Stmt {
    let place = |buffer: Buffer, indices: Vec<Expr>| match copies.get(&buffer) {
        Some(whole) => {
            let mut indices = indices;
            indices.insert(0, at.clone());
            (whole.clone(), indices)
        }
        None => (buffer, indices),
    };
    let stmt = map_exprs(stmt, &mut |expr| {
        rewrite_expr(expr, &mut |e| match &e.kind {
            ExprKind::Load { buffer, indices, mask } if copies.contains_key(buffer) => {
                let (buffer, indices) = place(buffer.clone(), indices.clone());
                Expr::new(e.ty, ExprKind::Load { buffer, indices, mask: mask.clone() })
            }
            _ => e,
        })
    });
    match stmt {
        Stmt::Store { buffer, indices, value, mask, nontemporal } => {
            let (buffer, indices) = place(buffer, indices);
            Stmt::Store { buffer, indices, value, mask, nontemporal }
        }
        Stmt::Prefetch { buffer, indices } => {
            let (buffer, indices) = place(buffer, indices);
            Stmt::Prefetch { buffer, indices }
        }
        other => map_stmts(other, &mut |inner| into_copies(inner, copies, at)),
    }
}
