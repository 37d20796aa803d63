//! Share storage: temporaries with disjoint live ranges share an allocation, and an elementwise
//! stage overwrites a buffer that it reads for the last time.
//!
//! Before: `allocate T; allocate U; produce T { T[i] = … }  produce U { U[i] = T[i]/2 }  … U …`
//! After:  `allocate T;             produce T { T[i] = … }  produce U { T[i] = T[i]/2 }  … T …`
//! In a launch, shared and local memory is allocated once, inside of the outermost loop over a GPU
//! index ([`launches`]).
//! Needs: flattened, simplified indices, which it compares; all allocations outside of a sequence
//! of statements. Stands before `insert_barriers`, which needs one name for all accesses to the
//! same shared memory, and before `outline_simd` and the back ends, which place buffers.
//! Ensures: arguments are never shared.
//! Declines: buffers of different types or scopes; outside of launches, also of different sizes.

mod launches;

use crate::diag::Result;
use crate::ir::equal::equal;
use crate::ir::visit::{
    for_each_expr, for_each_stmt, rewrite_expr, rewrite_exprs, walk_expr, walk_stmt,
};
use crate::ir::{Buffer, Expr, ExprKind, Kernel, Scope, Stmt, Var};
use crate::target::Target;
use rustc_hash::FxHashMap;

/// Merges the outermost allocations of a kernel.
pub fn share_storage(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let (buffers, stmts) = peel_allocations(launches::share_in_launches(kernel.body));
    let live_ranges = find_live_ranges(&buffers, &stmts);
    let allocations = assign_allocations(&buffers, &stmts, &live_ranges);
    let stmts = stmts.into_iter().map(|stmt| rename_buffers(stmt, &allocations)).collect();
    let mut body = Stmt::Block(stmts);
    for buffer in buffers.iter().rev().filter(|buffer| !allocations.contains_key(*buffer)) {
        body = Stmt::Allocate { buffer: buffer.clone(), body: Box::new(body) };
    }
    Ok(Kernel { body, ..kernel })
}

/// Returns the buffers of the outermost allocations and the statements inside.
fn peel_allocations(body: Stmt) -> (Vec<Buffer>, Vec<Stmt>) {
    let mut buffers = Vec::new();
    let mut body = body;
    while let Stmt::Allocate { buffer, body: inner } = body {
        buffers.push(buffer);
        body = *inner;
    }
    match body {
        Stmt::Block(stmts) => (buffers, stmts),
        stmt => (buffers, vec![stmt]),
    }
}

/// Returns the live range of each buffer: the first and the last statement that accesses it.
fn find_live_ranges(buffers: &[Buffer], stmts: &[Stmt]) -> FxHashMap<Buffer, (usize, usize)> {
    let mut live_ranges: FxHashMap<Buffer, (usize, usize)> = FxHashMap::default();
    for (position, stmt) in stmts.iter().enumerate() {
        for_each_access(stmt, &mut |buffer| {
            if buffers.contains(buffer) {
                live_ranges.entry(buffer.clone()).or_insert((position, position)).1 = position;
            }
        });
    }
    live_ranges
}

fn for_each_access(stmt: &Stmt, f: &mut dyn FnMut(&Buffer)) {
    let mut touched: Vec<Buffer> = Vec::new();
    let mut stores: Vec<Buffer> = Vec::new();
    walk_stmt(
        stmt,
        &mut |s| {
            if let Stmt::Store { buffer, .. } = s {
                stores.push(buffer.clone());
            }
        },
        &mut |expr| {
            walk_expr(expr, &mut |e| {
                if let ExprKind::Load { buffer, .. } = &e.kind {
                    touched.push(buffer.clone());
                }
            });
        },
    );
    stores.iter().chain(&touched).for_each(f);
}

/// Maps each buffer that moves into another one's allocation to that other buffer.
fn assign_allocations(
    buffers: &[Buffer],
    stmts: &[Stmt],
    live_ranges: &FxHashMap<Buffer, (usize, usize)>,
) -> FxHashMap<Buffer, Buffer> {
    let mut allocations: FxHashMap<Buffer, Buffer> = FxHashMap::default();
    // Each allocation with the last buffer that was placed in it.
    let mut users: Vec<(Buffer, Buffer)> = Vec::new();
    let mut order: Vec<&Buffer> = buffers.iter().filter(|b| live_ranges.contains_key(*b)).collect();
    order.sort_by_key(|buffer| live_ranges[*buffer].0);
    for buffer in order {
        let born = live_ranges[buffer].0;
        let free = users.iter_mut().find(|(allocation, user)| {
            if allocation.dtype != buffer.dtype
                || allocation.scope != Scope::Global
                || !same_size(allocation, buffer)
            {
                return false;
            }
            let dies = live_ranges[user].1;
            dies < born || (dies == born && writes_over(&stmts[born], buffer, user))
        });
        match free {
            Some((allocation, user)) => {
                *user = buffer.clone();
                allocations.insert(buffer.clone(), allocation.clone());
            }
            None => users.push((buffer.clone(), buffer.clone())),
        }
    }
    allocations
}

fn same_size(a: &Buffer, b: &Buffer) -> bool {
    let constant = |buffer: &Buffer| {
        buffer.shape.iter().try_fold(1i128, |product, extent| Some(product * extent.as_int()?))
    };
    match (constant(a), constant(b)) {
        (Some(a), Some(b)) => a == b,
        _ => {
            a.shape.len() == b.shape.len() && a.shape.iter().zip(&b.shape).all(|(x, y)| equal(x, y))
        }
    }
}

/// Whether `stmt` may write `new` into the memory of `old`: it has one store, which runs once for
/// each element, and an iteration reads from `old` only the element that it writes.
fn writes_over(stmt: &Stmt, new: &Buffer, old: &Buffer) -> bool {
    let mut search = ElementwiseSearch { new, old, loops: Vec::new(), stores: 0, fits: true };
    search.visit(stmt);
    search.fits && search.stores == 1
}

struct ElementwiseSearch<'a> {
    new: &'a Buffer,
    old: &'a Buffer,
    loops: Vec<(Var, Expr)>,
    stores: usize,
    fits: bool,
}

impl ElementwiseSearch<'_> {
    fn visit(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Store { buffer, indices, value, mask, .. } if buffer == self.new => {
                self.stores += 1;
                self.fits &= mask.is_none() && self.covers_once(&indices[0]);
                walk_expr(value, &mut |e| match &e.kind {
                    ExprKind::Load { buffer, indices: read, .. } if buffer == self.old => {
                        self.fits &= equal(&read[0], &indices[0]);
                    }
                    ExprKind::Load { buffer, .. } if buffer == self.new => self.fits = false,
                    _ => {}
                });
                indices.iter().for_each(|index| self.refuse_reads(index));
            }
            // Loops that compute both, as `compute_with` makes them, need both memories.
            Stmt::Store { buffer, .. } if buffer == self.old => self.fits = false,
            Stmt::For { var, min, extent, body, .. } => {
                self.fits &= min.as_int() == Some(0);
                self.refuse_reads(extent);
                self.loops.push((var.clone(), extent.clone()));
                self.visit(body);
                self.loops.pop();
            }
            other => {
                for_each_expr(other, &mut |expr| self.refuse_reads(expr));
                for_each_stmt(other, &mut |inner| self.visit(inner));
            }
        }
    }

    /// Requires that an expression reads neither buffer.
    fn refuse_reads(&mut self, expr: &Expr) {
        walk_expr(expr, &mut |e| {
            if let ExprKind::Load { buffer, .. } = &e.kind {
                self.fits &= buffer != self.old && buffer != self.new;
            }
        });
    }

    /// Whether the index is the row-major number of the iteration, so that no element is written
    /// twice.
    fn covers_once(&self, index: &Expr) -> bool {
        let mut flat: Option<Expr> = None;
        let mut stride: Option<Expr> = None;
        for (var, extent) in self.loops.iter().rev() {
            let term = match &stride {
                None => Expr::var(var),
                Some(stride) => Expr::mul(Expr::var(var), stride.clone()),
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
        let facts = crate::ir::arith::Facts::new();
        let flat = flat.unwrap_or_else(|| Expr::index(0));
        equal(index, &crate::ir::simplify::simplify_expr(&flat, &facts))
    }
}

fn rename_buffers(stmt: Stmt, allocations: &FxHashMap<Buffer, Buffer>) -> Stmt {
    if allocations.is_empty() {
        return stmt;
    }
    let stmt = rewrite_exprs(stmt, &mut |expr| {
        rewrite_expr(expr, &mut |e| match &e.kind {
            ExprKind::Load { buffer, indices, mask } => match allocations.get(buffer) {
                Some(allocation) => Expr::new(
                    e.ty,
                    ExprKind::Load {
                        buffer: allocation.clone(),
                        indices: indices.clone(),
                        mask: mask.clone(),
                    },
                ),
                None => e,
            },
            _ => e,
        })
    });
    rename_stores(stmt, allocations)
}

fn rename_stores(stmt: Stmt, allocations: &FxHashMap<Buffer, Buffer>) -> Stmt {
    match stmt {
        Stmt::Store { buffer, indices, value, mask, nontemporal } => {
            let buffer = allocations.get(&buffer).cloned().unwrap_or(buffer);
            Stmt::Store { buffer, indices, value, mask, nontemporal }
        }
        Stmt::Prefetch { buffer, indices } => {
            let buffer = allocations.get(&buffer).cloned().unwrap_or(buffer);
            Stmt::Prefetch { buffer, indices }
        }
        other => crate::ir::visit::map_stmts(other, &mut |inner| rename_stores(inner, allocations)),
    }
}
