//! Flatten storage: gives every access one row-major index.
//!
//! Before: `C[x, y] = A[x, k]`
//! After:  `C[((x*m) + y)] = A[((x*l) + k)]`
//! A buffer with strides becomes one of a single dimension, with the length that they give.
//! Needs: one index per dimension. Stands after the passes that add dimensions to buffers
//! (`inject_virtual_threads`, `inject_double_buffer`) and before all that compare indices.
//! Ensures: exactly one index, also for rank 0; no strides.  Breaks: simplified form.

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{map_accesses, map_stmts};
use crate::ir::{Buffer, Expr, Kernel, Stmt};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Flattens the accesses of body and checks.
pub fn flatten_storage(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    Ok(Kernel { checks: flatten(kernel.checks), body: flatten(kernel.body), ..kernel })
}

/// For each allocated buffer with strides, the one without.
type Plain = FxHashMap<Buffer, Buffer>;

fn flatten(stmt: Stmt) -> Stmt {
    let mut plain = Plain::default();
    let stmt = flatten_allocations(stmt, &mut plain);
    map_accesses(stmt, &mut |buffer, indices| {
        let index = flat_index(buffer, indices);
        Some((plain.get(buffer).unwrap_or(buffer).clone(), vec![index]))
    })
}

fn flatten_allocations(stmt: Stmt, plain: &mut Plain) -> Stmt {
    match stmt {
        Stmt::Allocate { buffer, body } if buffer.strides.is_some() => {
            let len = simplify_expr(&buffer.len(), &Facts::new());
            let flat = Buffer::new(&buffer.name, buffer.dtype, vec![len], buffer.scope);
            plain.insert(buffer, flat.clone());
            Stmt::Allocate { buffer: flat, body: Box::new(flatten_allocations(*body, plain)) }
        }
        other => map_stmts(other, &mut |inner| flatten_allocations(inner, plain)),
    }
}

/// Returns the row-major index: the sum of the indices times the strides. Without strides, these
/// are the products of the inner extents.
pub(super) fn flat_index(buffer: &Buffer, indices: &[Expr]) -> Expr {
    if buffer.shape.len() != indices.len() {
        crate::bug!("{} has rank {}, {} indices", buffer.name, buffer.shape.len(), indices.len());
    }
    if let Some(strides) = &buffer.strides {
        let terms = indices.iter().zip(strides);
        let terms = terms.map(|(index, stride)| match stride.as_int() {
            Some(1) => index.clone(),
            _ => Expr::mul(index.clone(), stride.clone()),
        });
        return terms.reduce(Expr::add).unwrap_or_else(|| Expr::index(0));
    }
    let mut flat: Option<Expr> = None;
    let mut stride: Option<Expr> = None;
    for (index, extent) in indices.iter().zip(&buffer.shape).rev() {
        let term = match &stride {
            None => index.clone(),
            Some(stride) => Expr::mul(index.clone(), stride.clone()),
        };
        flat = Some(match flat {
            None => term,
            Some(rest) => Expr::add(term, rest),
        });
        stride = Some(match stride {
            None => extent.clone(),
            Some(stride) => Expr::mul(extent.clone(), stride),
        });
    }
    flat.unwrap_or_else(|| Expr::index(0))
}
