//! Double buffers: what a loop reads is computed one iteration ahead.
//!
//! Before: `for (i, 0, n) { allocate S[8] double  produce S { S[…] = f(i) }  … S[…] … }`
//! After:  `allocate S[2, 8]`
//!         `if 0 < n { produce S { S[0, …] = f(0) } }`
//!         `for (i, 0, n) {`
//!         `  if likely(i + 1 < n) { produce S { S[(i + 1) % 2, …] = f(i + 1) } }`
//!         `  … S[i % 2, …] …`
//!         `}`
//! What the threads of a GPU fetch for shared memory comes in two parts, see [`staged`].
//! Conditions around the allocation hold for the iteration that reads, so they are asked about the
//! next one where it is computed.
//! Needs: one index per dimension; a double buffer stands in a loop whose iterations follow each
//! other, and what fills it reads nothing that the same iteration computes.
//! Ensures: no buffer is marked; every variable is bound once.

mod staged;

use crate::diag::Result;
use crate::ir::copy::fresh_copy;
use crate::ir::visit::{map_exprs, map_stmts, rewrite_expr};
use crate::ir::{BinOp, Buffer, Expr, ExprKind, ForKind, Kernel, Stmt, UnOp, Var};
use crate::target::Target;
use std::collections::HashMap;

/// Gives every marked buffer its second half.
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

/// A stage with two halves.
struct Double {
    /// One per component.
    buffers: Vec<Buffer>,
    /// What fills them in an iteration, under the conditions of that iteration.
    fill: Stmt,
}

/// What is around an allocation in a loop's body.
enum Around {
    Condition(Expr),
    /// The head of a loop about a GPU index.
    Thread(Var, Expr, ForKind),
}

impl Around {
    fn wrap(&self, body: Stmt) -> Stmt {
        let body = Box::new(body);
        match self {
            Around::Condition(cond) => Stmt::If { cond: cond.clone(), then: body, otherwise: None },
            Around::Thread(var, extent, kind) => {
                let (var, min, extent) = (var.clone(), Expr::index(0), extent.clone());
                Stmt::For { var, min, extent, kind: kind.clone(), body }
            }
        }
    }
}

/// The body of a loop without the marked allocations and what fills them.
fn extract(stmt: Stmt, around: &mut Vec<Around>, found: &mut Vec<Double>) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, kind, body } if kind.gpu_index().is_some() => {
            around.push(Around::Thread(var.clone(), extent.clone(), kind.clone()));
            let body = Box::new(extract(*body, around, found));
            around.pop();
            Stmt::For { var, min, extent, kind, body }
        }
        Stmt::For { .. } | Stmt::Tensorize { .. } => stmt,
        Stmt::If { cond, then, otherwise } => {
            around.push(Around::Condition(cond.clone()));
            let then = Box::new(extract(*then, around, found));
            around.pop();
            Stmt::If { cond, then, otherwise }
        }
        Stmt::Allocate { buffer, body } if buffer.double_buffered => {
            let mut buffers = vec![buffer];
            let mut body = *body;
            let rest = loop {
                match body {
                    Stmt::Allocate { buffer, body: inner } if buffer.double_buffered => {
                        buffers.push(buffer);
                        body = *inner;
                    }
                    Stmt::Block(stmts) => break stmts,
                    _ => crate::bug!("a double buffer that nothing fills"),
                }
            };
            let mut rest = rest.into_iter();
            let fill = rest.next().unwrap_or_else(Stmt::nothing);
            let fill = around.iter().rev().fold(fill, |body, one| one.wrap(body));
            found.push(Double { buffers, fill });
            extract(Stmt::Block(rest.collect()), around, found)
        }
        other => map_stmts(other, &mut |inner| extract(inner, around, found)),
    }
}

fn inject_loop(head: Loop, body: Stmt, found: Vec<Double>) -> Stmt {
    let Loop { var, min, extent, kind } = head;
    if found.is_empty() {
        return Stmt::For { var, min, extent, kind, body: Box::new(body) };
    }
    let half = |at: &Expr| {
        let turn = match min.as_int() {
            Some(0) => at.clone(),
            _ => Expr::sub(at.clone(), min.clone()),
        };
        Expr::binary(BinOp::FloorMod, turn, Expr::index(2))
    };
    let here = Expr::var(&var);
    let next = Expr::add(here.clone(), Expr::index(1));
    let end = match min.as_int() {
        Some(0) => extent.clone(),
        _ => Expr::add(min.clone(), extent.clone()),
    };
    let mut first: Vec<Stmt> = Vec::new();
    let mut ahead: Vec<Stmt> = Vec::new();
    let mut behind: Vec<Stmt> = Vec::new();
    let mut waiting: Vec<Buffer> = Vec::new();
    let mut halves: HashMap<Buffer, Buffer> = HashMap::new();
    let mut allocated: Vec<Buffer> = Vec::new();
    for double in found {
        for buffer in &double.buffers {
            let whole = two_halves(buffer);
            allocated.push(whole.clone());
            halves.insert(buffer.clone(), whole);
        }
        let fill_at = |at: &Expr| {
            let fill = fresh_copy(&double.fill, &HashMap::from([(var.clone(), at.clone())]));
            into_halves(fill, &halves, &half(at))
        };
        first.push(fill_at(&min));
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
    let first = Stmt::If {
        cond: Expr::lt(Expr::index(0), extent.clone()),
        then: Box::new(Stmt::Block(first)),
        otherwise: None,
    };
    let in_next = |stmts: Vec<Stmt>| Stmt::If {
        cond: Expr::unary(UnOp::Likely, Expr::lt(next.clone(), end.clone())),
        then: Box::new(Stmt::Block(stmts)),
        otherwise: None,
    };
    let mut body = vec![in_next(ahead), into_halves(body, &halves, &half(&here))];
    if !behind.is_empty() {
        body.push(in_next(behind));
    }
    let body = Box::new(allocate(waiting, Stmt::Block(body)));
    let nest = Stmt::Block(vec![first, Stmt::For { var, min, extent, kind, body }]);
    allocate(allocated, nest)
}

fn allocate(buffers: Vec<Buffer>, body: Stmt) -> Stmt {
    let around = |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) };
    buffers.into_iter().rev().fold(body, around)
}

/// The buffer with one more dimension, outermost, of two.
fn two_halves(buffer: &Buffer) -> Buffer {
    let mut shape = buffer.shape.clone();
    shape.insert(0, Expr::index(2));
    let strides = buffer.strides.clone().map(|mut strides| {
        strides.insert(0, buffer.len());
        strides
    });
    Buffer::with_layout(&buffer.name, buffer.dtype, shape, buffer.scope, strides, false)
}

/// Every access of the buffers goes to the half `at`.
fn into_halves(stmt: Stmt, halves: &HashMap<Buffer, Buffer>, at: &Expr) -> Stmt {
    let place = |buffer: Buffer, indices: Vec<Expr>| match halves.get(&buffer) {
        Some(whole) => {
            let mut indices = indices;
            indices.insert(0, at.clone());
            (whole.clone(), indices)
        }
        None => (buffer, indices),
    };
    let stmt = map_exprs(stmt, &mut |expr| {
        rewrite_expr(expr, &mut |e| match &e.kind {
            ExprKind::Load { buffer, indices, mask } if halves.contains_key(buffer) => {
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
        other => map_stmts(other, &mut |inner| into_halves(inner, halves, at)),
    }
}
