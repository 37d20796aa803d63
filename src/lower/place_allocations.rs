//! Place allocations: what the threads and blocks of a launch have is allocated where it begins.
//!
//! Before: `produce C { // attr blockIdx.x  for k { allocate S: shared  produce S { … } … } }`
//! After:  `produce C { // attr blockIdx.x  allocate S: shared  for k { produce S { … } … } }`
//! Shared and local memory is there as long as its block or thread runs, so this says what is so.
//! Ensures: such allocations stand in the order of their stages just inside the outermost loop
//! about an index.

use crate::ir::launch::map_launches;
use crate::ir::visit::map_stmts;
use crate::ir::{Buffer, Scope, Stmt};

/// Moves the allocations of every launch.
pub(super) fn place_allocations(body: Stmt) -> Stmt {
    map_launches(body, &mut |launch| {
        let mut buffers = Vec::new();
        let launch = collect(launch, &mut buffers);
        place(launch, &mut buffers)
    })
}

/// The statement without its allocations of shared and local memory.
fn collect(stmt: Stmt, buffers: &mut Vec<Buffer>) -> Stmt {
    match stmt {
        Stmt::Allocate { buffer, body } if matches!(buffer.scope, Scope::Shared | Scope::Local) => {
            buffers.push(buffer);
            collect(*body, buffers)
        }
        other => map_stmts(other, &mut |inner| collect(inner, buffers)),
    }
}

/// Puts them inside the first loop about an index; `buffers` is empty afterwards if there is one.
fn place(stmt: Stmt, buffers: &mut Vec<Buffer>) -> Stmt {
    match stmt {
        Stmt::For { var, min, extent, kind, body } if kind.gpu_index().is_some() => {
            let body = buffers
                .drain(..)
                .rev()
                .fold(*body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) });
            Stmt::For { var, min, extent, kind, body: Box::new(body) }
        }
        other => map_stmts(other, &mut |inner| place(inner, buffers)),
    }
}
