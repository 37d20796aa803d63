//! Splits a kernel into launches.
//!
//! A body is a sequence of launches under allocations in global memory and `let`s of run-time
//! integers. Temporaries become workspaces, and `let`s become parameters of the launches that use
//! them. A launch is a nest with thread loops; their extents are its grid and its block.

use super::launch::Workspace;
use crate::ir::visit::{Memo, any_expr, reads_memory, substitute, walk_stmt};
use crate::ir::{
    Buffer, DType, Expr, ExprKind, ForKind, Kernel, Param, Scope, Stmt, ThreadIndex, Var,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// The launches of a kernel.
pub(super) struct Split {
    /// Temporaries, in the order of their allocations.
    pub workspaces: Vec<(Buffer, Workspace)>,
    /// The launches, in order.
    pub pieces: Vec<Piece>,
}

/// One launch.
pub(super) struct Piece {
    /// The stage that it computes.
    pub stage: String,
    /// The body that each thread runs.
    pub body: Stmt,
    /// Blocks along x, y, z, over run-time integers.
    pub grid: [Expr; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Tensors and temporaries in global memory, in the order of their first uses.
    pub buffers: Vec<Buffer>,
    /// The buffers that it writes.
    pub written: FxHashSet<Buffer>,
    /// Constant buffers, in the order of their first uses.
    pub tables: Vec<Buffer>,
    /// Variables that it does not bind, in the order of their first uses.
    pub free: Vec<Var>,
    /// The definitions of the free variables that are no parameters of the kernel.
    pub outer: FxHashMap<Var, Expr>,
}

/// Splits a kernel into launches.
pub(super) fn split_kernel(kernel: &Kernel) -> Split {
    let mut splitter = Splitter {
        split: Split { workspaces: Vec::new(), pieces: Vec::new() },
        outer: FxHashMap::default(),
        runtime: kernel.params.iter().filter_map(runtime_var).collect(),
        lets: Vec::new(),
    };
    splitter.stmt(&kernel.body, "");
    splitter.split
}

struct Splitter {
    split: Split,
    outer: FxHashMap<Var, Expr>,
    /// The kernel's run-time integers.
    runtime: FxHashSet<Var>,
    /// The enclosing `let`s that the host cannot compute, so each launch computes them.
    lets: Vec<(Var, Expr)>,
}

impl Splitter {
    fn stmt(&mut self, stmt: &Stmt, stage: &str) {
        match stmt {
            Stmt::Block(stmts) if !stmts.iter().all(is_inside) => {
                stmts.iter().for_each(|one| self.stmt(one, stage));
            }
            Stmt::Block(stmts) if stmts.is_empty() => {}
            Stmt::Allocate { buffer, body } if buffer.scope == Scope::Global => {
                let bytes = Expr::mul(buffer.len(), Expr::index(buffer.dtype.bytes() as i64));
                let workspace = Workspace { name: buffer.name.clone(), bytes: self.host(&bytes) };
                self.split.workspaces.push((buffer.clone(), workspace));
                self.stmt(body, stage);
            }
            Stmt::Let { var, value, body } if !reads_memory(value) => {
                let value = self.host(value);
                if var.ty() == DType::Index.into() && self.is_host(&value) {
                    self.outer.insert(var.clone(), value);
                    return self.stmt(body, stage);
                }
                self.lets.push((var.clone(), value));
                self.stmt(body, stage);
                self.lets.pop();
            }
            Stmt::Produce { name, body } if holds_launches(body) => self.stmt(body, name),
            Stmt::Produce { name, .. } => self.piece(stmt, name),
            _ => self.piece(stmt, stage),
        }
    }

    /// A value for the host, with the variables of enclosing `let`s replaced.
    fn host(&self, value: &Expr) -> Expr {
        substitute(value, &mut |var| self.outer.get(var).cloned())
    }

    /// Whether a value depends on run-time integers only.
    fn is_host(&self, value: &Expr) -> bool {
        !any_expr(value, &mut |e| e.as_var().is_some_and(|var| !self.runtime.contains(var)))
    }

    fn piece(&mut self, body: &Stmt, stage: &str) {
        let body = &self.lets.iter().rev().fold(body.clone(), |body, (var, value)| {
            let (var, value) = (var.clone(), value.clone());
            Stmt::Let { var, value, body: Box::new(body) }
        });
        let mut piece = Piece {
            stage: stage.to_string(),
            body: body.clone(),
            grid: std::array::from_fn(|_| Expr::index(1)),
            block: [1; 3],
            buffers: Vec::new(),
            written: FxHashSet::default(),
            tables: Vec::new(),
            free: Vec::new(),
            outer: self.outer.clone(),
        };
        let mut extents: FxHashMap<ThreadIndex, Expr> = FxHashMap::default();
        walk_stmt(
            body,
            &mut |stmt| {
                if let Stmt::For { extent, kind: ForKind::Thread(tag), .. } = stmt {
                    let known = extents.entry(*tag).or_insert_with(|| extent.clone());
                    if let (Some(a), Some(b)) = (known.as_int(), extent.as_int())
                        && b > a
                    {
                        *known = extent.clone();
                    }
                }
            },
            &mut |_| {},
        );
        for axis in 0..3 {
            if let Some(extent) = extents.get(&ThreadIndex::Block(axis)) {
                piece.grid[axis] = self.host(extent);
            }
            if let Some(extent) = extents.get(&ThreadIndex::Thread(axis)) {
                let threads = extent.as_int().and_then(|threads| u32::try_from(threads).ok());
                let Some(threads) = threads else {
                    crate::bug!("the extent of {} is not constant", ThreadIndex::Thread(axis));
                };
                piece.block[axis] = threads;
            }
        }
        if piece.block.iter().product::<u32>() == 0 {
            // Without threads there is nothing to run.
            return;
        }
        collect_uses(&mut piece);
        self.split.pieces.push(piece);
    }
}

/// Whether a statement of a sequence belongs to an enclosing launch, not to the host.
fn is_inside(stmt: &Stmt) -> bool {
    matches!(
        stmt,
        Stmt::Store { .. }
            | Stmt::Barrier
            | Stmt::AwaitCopies { .. }
            | Stmt::CopyGroup { .. }
            | Stmt::Prefetch { .. }
    )
}

/// Whether a stage's marker encloses several launches.
fn holds_launches(body: &Stmt) -> bool {
    match body {
        Stmt::Block(stmts) => stmts.iter().any(|one| matches!(one, Stmt::Produce { .. })),
        Stmt::Allocate { buffer, body } => buffer.scope == Scope::Global && holds_launches(body),
        Stmt::Let { body, .. } => holds_launches(body),
        _ => false,
    }
}

fn runtime_var(param: &Param) -> Option<Var> {
    match param {
        Param::Runtime { var, .. } => Some(var.clone()),
        _ => None,
    }
}

/// Fills in the buffers and variables that the body of a launch uses from outside.
fn collect_uses(piece: &mut Piece) {
    let body = piece.body.clone();
    let mut uses = Uses::default();
    uses.stmt(&body);
    piece.buffers = uses.buffers;
    piece.written = uses.written;
    piece.tables = uses.tables;
    piece.free = uses.free.into_iter().filter(|var| !uses.bound.contains(var)).collect();
}

#[derive(Default)]
struct Uses {
    buffers: Vec<Buffer>,
    seen: FxHashSet<Buffer>,
    written: FxHashSet<Buffer>,
    tables: Vec<Buffer>,
    free: Vec<Var>,
    met: FxHashSet<Var>,
    bound: FxHashSet<Var>,
    visited: Memo<()>,
}

impl Uses {
    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For { var, .. } | Stmt::Let { var, .. } => {
                self.bound.insert(var.clone());
            }
            Stmt::Store { buffer, .. } => {
                self.written.insert(buffer.clone());
                self.buffer(buffer);
            }
            _ => {}
        }
        crate::ir::visit::for_each_expr(stmt, &mut |expr| self.expr(expr));
        crate::ir::visit::for_each_stmt(stmt, &mut |inner| self.stmt(inner));
    }

    fn buffer(&mut self, buffer: &Buffer) {
        if self.seen.insert(buffer.clone()) {
            match buffer.scope {
                Scope::Global => self.buffers.push(buffer.clone()),
                Scope::Constant => self.tables.push(buffer.clone()),
                Scope::Shared | Scope::Local | Scope::Register => {}
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        if self.visited.insert(expr, ()).is_some() {
            return;
        }
        match &expr.kind {
            ExprKind::Var(var) if self.met.insert(var.clone()) => self.free.push(var.clone()),
            ExprKind::Let(var, ..) => {
                self.bound.insert(var.clone());
            }
            ExprKind::Load { buffer, .. } => self.buffer(buffer),
            _ => {}
        }
        crate::ir::visit::for_each_child(expr, &mut |child| self.expr(child));
    }
}
