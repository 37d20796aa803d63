//! Launches (specified in `ir::stmt`): their indices, shared stages and barriers, and which values
//! are uniform in a block.

use super::visit::{any_expr, for_each_stmt, map_stmts, walk_stmt};
use super::{Expr, ExprKind, ForKind, GPU_INDICES, Scope, Stmt, ThreadIndex, Var};
use rustc_hash::FxHashSet;

/// An index of a launch.
#[derive(Clone, Debug)]
pub struct Dim {
    /// One of [`GPU_INDICES`].
    pub index: ThreadIndex,
    /// The variable, the same in all loops.
    pub var: Var,
    /// The number of blocks or threads.
    pub extent: Expr,
}

impl Dim {
    /// Whether it is a thread index.
    pub fn is_thread(&self) -> bool {
        self.index.is_thread()
    }
}

/// Returns the GPU indices that loops of the statement bind, in the order of [`GPU_INDICES`].
pub fn find_dims(stmt: &Stmt) -> Vec<Dim> {
    let mut dims: Vec<Dim> = Vec::new();
    walk_stmt(
        stmt,
        &mut |inner| {
            if let Stmt::For { var, extent, kind, .. } = inner
                && let Some(index) = kind.gpu_index()
                && dims.iter().all(|dim| dim.index != index)
            {
                dims.push(Dim { index, var: var.clone(), extent: extent.clone() });
            }
        },
        &mut |_| {},
    );
    dims.sort_by_key(|dim| GPU_INDICES.iter().position(|index| *index == dim.index));
    dims
}

/// Whether the statement contains a loop over a GPU index.
pub fn has_threads(stmt: &Stmt) -> bool {
    if let Stmt::For { kind, .. } = stmt
        && kind.gpu_index().is_some()
    {
        return true;
    }
    let mut found = false;
    for_each_stmt(stmt, &mut |inner| found = found || has_threads(inner));
    found
}

/// Applies `f` to every launch of a statement.
pub fn map_launches(stmt: Stmt, f: &mut dyn FnMut(Stmt) -> Stmt) -> Stmt {
    match stmt {
        Stmt::Produce { .. } if has_threads(&stmt) => f(stmt),
        other => map_stmts(other, &mut |inner| map_launches(inner, f)),
    }
}

/// Makes each stage without bound loops a launch of one thread, for GPU schedules without `bind`.
///
/// Before: `produce C { for (i, 0, n) { C[i] = A[i] } }`
/// After:  `produce C { blockIdx.x (b, 0, 1) { threadIdx.x (t, 0, 1) { for … } } }`
pub fn launch_unbound_stages(stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Produce { name, body } if !has_threads(&body) => {
            let one = |body: Stmt, index: ThreadIndex| Stmt::For {
                var: Var::index(index.name()),
                min: Expr::index(0),
                extent: Expr::index(1),
                kind: ForKind::Thread(index),
                body: Box::new(body),
            };
            let body = one(one(*body, ThreadIndex::Thread(0)), ThreadIndex::Block(0));
            Stmt::Produce { name, body: Box::new(body) }
        }
        Stmt::Produce { .. } => stmt,
        other => map_stmts(other, &mut launch_unbound_stages),
    }
}

/// Whether a `Produce` with this body is a shared stage, which has a barrier before and after it.
pub fn is_shared_stage(body: &Stmt) -> bool {
    match body {
        Stmt::Produce { .. } => false,
        Stmt::Store { buffer, .. } => buffer.scope == Scope::Shared,
        other => {
            let mut found = false;
            for_each_stmt(other, &mut |inner| found = found || is_shared_stage(inner));
            found
        }
    }
}

/// Whether the statement contains a barrier.
pub fn has_barrier(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Barrier | Stmt::AwaitCopies { .. } => true,
        Stmt::Produce { body, .. } if is_shared_stage(body) => true,
        other => {
            let mut found = false;
            for_each_stmt(other, &mut |inner| found = found || has_barrier(inner));
            found
        }
    }
}

/// The variables whose values may differ between the threads of a block.
#[derive(Clone, Default, Debug)]
pub struct Varying {
    vars: FxHashSet<Var>,
}

impl Varying {
    /// Enters a loop. Its variable varies if it is a thread index or if the bounds vary.
    pub fn enter_loop(&mut self, var: &Var, kind: &ForKind, min: &Expr, extent: &Expr) {
        let varies = match kind.gpu_index() {
            Some(index) => index.is_thread(),
            None => !self.agrees(min) || !self.agrees(extent),
        };
        if varies {
            self.vars.insert(var.clone());
        }
    }

    /// Enters the scope of a `let`.
    pub fn enter_let(&mut self, var: &Var, value: &Expr) {
        if !self.agrees(value) {
            self.vars.insert(var.clone());
        }
    }

    /// Whether the variable may differ between threads.
    pub fn contains(&self, var: &Var) -> bool {
        self.vars.contains(var)
    }

    /// Whether an expression has the same value in all threads of a block that evaluate it between
    /// the same two barriers.
    pub fn agrees(&self, expr: &Expr) -> bool {
        !any_expr(expr, &mut |e| match &e.kind {
            ExprKind::Var(var) => self.vars.contains(var),
            ExprKind::Load { buffer, .. } => {
                matches!(buffer.scope, Scope::Local | Scope::Register)
            }
            _ => false,
        })
    }
}
