//! The statements that a nest of the SIMD back end may contain. `simd_ops` has the operations; this
//! file adds the limits on whole nests.

use crate::ir::limits::NEST_FRAME_BYTES;
use crate::ir::tile::TileProduct;
use crate::ir::visit::{
    Memo, any_expr, for_each_child, for_each_expr, for_each_stmt, reads_memory,
};
use crate::ir::{Buffer, DType, Expr, ExprKind, ForKind, Stmt, Var};
use crate::lower::expand_math::expand_expr;
use crate::simd_ops;
use crate::target::SimdIsa;
use rustc_hash::FxHashSet;

/// The largest number of expression nodes of a nest: registers are allocated for a nest as a whole,
/// in time that grows faster than its size.
const MAX_NODES: usize = 60_000;

/// Whether a statement computes on vectors or tiles.
pub(super) fn has_vectors(stmt: &Stmt) -> bool {
    let mut found = matches!(stmt, Stmt::Tensorize { name, .. } if TileProduct::of(name).is_some());
    for_each_expr(stmt, &mut |expr| found |= expr.ty.lanes > 1);
    if !found {
        for_each_stmt(stmt, &mut |inner| found = found || has_vectors(inner));
    }
    found
}

/// Decides which statements can be nests.
pub(super) struct NestChecker {
    isa: SimdIsa,
    /// The nodes that were accepted.
    accepted: Memo<()>,
    nodes: usize,
    frame: i128,
    /// The scalars that are read from memory.
    read: FxHashSet<Var>,
}

/// The reason in words if it fails.
type Checked = Result<(), String>;

impl NestChecker {
    pub(super) fn new(isa: SimdIsa) -> NestChecker {
        let (accepted, read) = (Memo::default(), FxHashSet::default());
        NestChecker { isa, accepted, nodes: 0, frame: 0, read }
    }

    /// Whether a statement as a whole can be a nest.
    pub(super) fn check(&mut self, stmt: &Stmt) -> Checked {
        (self.nodes, self.frame) = (0, 0);
        self.accepted.clear();
        self.read.clear();
        self.stmt(stmt)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Checked {
        simd_ops::check_stmt(stmt)?;
        let mut checked = Ok(());
        match stmt {
            Stmt::For { kind: ForKind::Parallel, .. } => {
                return Err("a parallel loop is run by the runtime".into());
            }
            Stmt::Allocate { buffer, .. } => self.allocation(buffer)?,
            // Lanes of a `let` are kept in memory (`legalize_vectors`), where masks are bytes.
            Stmt::Let { var, .. } if var.ty().lanes > 1 && var.ty().dtype == DType::Bool => {
                return Err(format!("`{}` binds a vector of bool", var.name()));
            }
            Stmt::Let { var, value, .. } if reads_memory(value) => {
                self.read.insert(var.clone());
            }
            // Nothing there is a vector, and Cranelift has the better code for scalars.
            Stmt::Store { buffer, indices, .. } if self.is_scattered(&indices[0]) => {
                return Err(format!("it stores to `{}` at a place that it reads", buffer.name));
            }
            // Functions are expanded before instructions are selected.
            Stmt::Store { value, .. } => {
                let expanded = expand_expr(value);
                return self.expr(&expanded).and_then(|()| {
                    for_each_expr(stmt, &mut |expr| {
                        if checked.is_ok() && !expr.same(value) {
                            checked = self.expr(expr);
                        }
                    });
                    checked
                });
            }
            _ => {}
        }
        for_each_expr(stmt, &mut |expr| {
            if checked.is_ok() {
                checked = self.expr(expr);
            }
        });
        for_each_stmt(stmt, &mut |inner| {
            if checked.is_ok() {
                checked = self.stmt(inner);
            }
        });
        checked
    }

    /// Whether the index of a store is a scalar that is read from memory.
    fn is_scattered(&self, index: &Expr) -> bool {
        let is_read = |e: &Expr| {
            matches!(e.kind, ExprKind::Load { .. })
                || e.as_var().is_some_and(|var| self.read.contains(var))
        };
        index.ty.lanes == 1 && any_expr(index, &mut |e| is_read(e))
    }

    fn allocation(&mut self, buffer: &Buffer) -> Checked {
        let count = buffer
            .shape
            .iter()
            .try_fold(1i128, |count, extent| count.checked_mul(extent.as_int()?.max(0)));
        let Some(count) = count else {
            return Err(format!("`{}` has no constant size", buffer.name));
        };
        // Buffers are aligned to cache lines.
        self.frame += count * i128::from(buffer.dtype.bytes()) + 64;
        if self.frame > NEST_FRAME_BYTES {
            return Err(format!("`{}` is too large for the stack", buffer.name));
        }
        Ok(())
    }

    fn expr(&mut self, expr: &Expr) -> Checked {
        if self.accepted.insert(expr, ()).is_some() {
            return Ok(());
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err("it is too large".into());
        }
        simd_ops::check_node(expr, self.isa)?;
        let mut checked = Ok(());
        for_each_child(expr, &mut |child| {
            if checked.is_ok() {
                checked = self.expr(child);
            }
        });
        checked
    }
}
