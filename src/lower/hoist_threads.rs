//! Hoist threads: moves the loops over GPU indices outside of everything in their launch, one loop
//! for each index.
//!
//! Before: `produce C { for c { // attr blockIdx.x  allocate S: shared  // attr threadIdx.x …`
//!         `  produce S { // attr threadIdx.x … } } }`
//! After:  `produce C { // attr blockIdx.x  allocate S: shared  // attr threadIdx.x  for c { … } }`
//! The loops stand in the order of `GPU_INDICES`: blocks, then shared allocations, then threads.
//! Every thread runs the whole body, as before (`ir::stmt`). A stage that uses fewer values of an
//! index than the launch has gets a condition.
//! Needs: buffers are shared (`share_storage`), which depends on where they are allocated. Stands
//! before `promote_accumulators` and `insert_barriers`, which expect one definition of each index.
//! Ensures: a launch is its loops over indices, each index once, around a body without any.

use crate::diag::Result;
use crate::ir::equal::equal;
use crate::ir::launch::{Dim, find_dims, map_launches};
use crate::ir::visit::map_stmts;
use crate::ir::{Buffer, Expr, ForKind, Kernel, Scope, Stmt};
use crate::target::Target;

/// Hoists the indices of every launch.
pub fn hoist_threads(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    Ok(Kernel { body: map_launches(kernel.body, &mut hoist), ..kernel })
}

fn hoist(launch: Stmt) -> Stmt {
    let dims = find_dims(&launch);
    let Stmt::Produce { name, body } = launch else { crate::bug!("a launch is a produce") };
    let mut shared = Vec::new();
    let body = strip(*body, &dims, &mut shared);
    let wrap = |body: Stmt, dim: &Dim| Stmt::For {
        var: dim.var.clone(),
        min: Expr::index(0),
        extent: dim.extent.clone(),
        kind: ForKind::Thread(dim.index),
        body: Box::new(body),
    };
    let (threads, blocks): (Vec<&Dim>, Vec<&Dim>) = dims.iter().partition(|dim| dim.is_thread());
    let body = threads.into_iter().rev().fold(body, wrap);
    let body = shared
        .into_iter()
        .rev()
        .fold(body, |body, buffer| Stmt::Allocate { buffer, body: Box::new(body) });
    let body = blocks.into_iter().rev().fold(body, wrap);
    Stmt::Produce { name, body: Box::new(body) }
}

/// Removes the loops over GPU indices and the shared allocations; adds the latter to `shared`.
fn strip(stmt: Stmt, dims: &[Dim], shared: &mut Vec<Buffer>) -> Stmt {
    match stmt {
        Stmt::Allocate { buffer, body } if buffer.scope == Scope::Shared => {
            shared.push(buffer);
            strip(*body, dims, shared)
        }
        Stmt::For { var, extent, kind, body, .. } if kind.gpu_index().is_some() => {
            let dim = dims.iter().find(|dim| dim.var == var).expect("its indices were found");
            let body = strip(*body, dims, shared);
            if equal(&dim.extent, &extent) {
                return body;
            }
            let cond = Expr::lt(Expr::var(&var), extent);
            Stmt::If { cond, then: Box::new(body), otherwise: None }
        }
        other => map_stmts(other, &mut |inner| strip(inner, dims, shared)),
    }
}
