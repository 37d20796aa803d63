//! Legalize vectors: splits statements on vectors of any length into statements on vectors that the
//! back end has registers for, and scalar statements for the remaining lanes.
//!
//! Before: `C[ramp(b, 1, 10)] = A[ramp(b, 1, 10)] + x10(x)`
//! After:  `C[ramp(b, 1, 4)] = …; C[ramp(b + 4, 1, 4)] = …; C[b + 8] = A[b + 8] + x; C[b + 9] = …`
//! Needs: one index per access; nests are outlined (`outline_simd`), as they have longer vectors.
//! Stands after the passes that look for whole vectors (`promote_accumulators`, `transpose_tiles`)
//! and before `hoist_invariants`, whose variables must fit into registers.
//! Ensures: a vector has 16 bytes and only operations of [`native`]; accesses of vectors have an
//! index `ramp(b, 1, n)`; no access has a mask (a guard stands in its place); vectors are not
//! bound by statements. In a `simd_kernel`, a vector fits into one register of the target, has any
//! type and index, and may have a mask; if an access of the last lanes of a loop has none, they are
//! stored in halves.  Breaks: simplified form.
//!
//! A function is expanded here if its operations are native; else it stays one node for the passes
//! that follow. All operands are evaluated before memory changes: if a later part would read
//! elements that an earlier one wrote, all lanes are stored to a temporary first.

mod halves;
mod native;
mod simd_lanes;
mod slice;

use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::equal::{Sharer, equal};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{
    NodeSet, any_expr, for_each_load, map_exprs, map_stmts, reads_buffer, rewrite_exprs, walk_nodes,
};
use crate::ir::{Buffer, DType, Expr, ExprKind, Kernel, Scope, Stmt, Type, Var};
use crate::lower::expand_math::{expand_expr, expand_in_nest};
use crate::target::{SimdIsa, Target};
use rustc_hash::FxHashMap;
use simd_lanes::{parts_of_a_period, simd_lanes};
use slice::Slicer;

/// Bytes of a vector after this pass.
const NATIVE_BYTES: u32 = 16;
/// The largest number of vectors that a statement is written out in; more become a loop.
const MAX_VECTORS: u32 = 16;
/// The same limit for scalars.
const MAX_SCALARS: u32 = 8;
/// The largest number of expression nodes in all parts of a statement that is written out.
const MAX_NODES: usize = 2048;

/// Splits every vector statement into parts that the target supports.
pub fn legalize_vectors(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let mut legalizer = Legalizer {
        has_vectors: target.vector_bytes >= NATIVE_BYTES,
        has_fma: target.fma,
        in_memory: FxHashMap::default(),
        isa: target.simd(),
        in_simd_kernel: false,
    };
    let body = legalizer.stmt(kernel.body);
    Ok(Kernel { body, ..kernel })
}

struct Legalizer {
    has_vectors: bool,
    has_fma: bool,
    /// Variables that hold a vector, and the buffers that hold their lanes now.
    in_memory: FxHashMap<Var, Buffer>,
    isa: Option<SimdIsa>,
    /// Whether the statement is in a `simd_kernel`.
    in_simd_kernel: bool,
}

/// A store to one index per lane.
#[derive(Clone)]
struct Store {
    buffer: Buffer,
    index: Expr,
    value: Expr,
    mask: Option<Expr>,
    nontemporal: bool,
}

impl Legalizer {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Store { buffer, mut indices, value, mask, nontemporal } => {
                if indices.len() != 1 {
                    crate::bug!("access to `{}` is not flat", buffer.name);
                }
                let index = indices.remove(0);
                self.store(Store { buffer, index, value, mask, nontemporal })
            }
            Stmt::Let { var, value, body } if var.ty().lanes > 1 => self.bind(var, value, *body),
            Stmt::SimdKernel { body } => {
                let outside = std::mem::replace(&mut self.in_simd_kernel, true);
                let body = Box::new(self.stmt(*body));
                self.in_simd_kernel = outside;
                Stmt::SimdKernel { body }
            }
            other => {
                let other = map_exprs(other, &mut |expr| self.scalar(expr));
                map_stmts(other, &mut |inner| self.stmt(inner))
            }
        }
    }

    /// Removes masks and vectors in memory from a scalar expression.
    fn scalar(&self, expr: &Expr) -> Expr {
        Slicer::new(Expr::index(0), 1, &self.in_memory, self.in_simd_kernel).slice(expr)
    }

    /// Keeps the lanes of a vector variable in memory, because its uses may be split differently.
    fn bind(&mut self, var: Var, value: Expr, body: Stmt) -> Stmt {
        let buffer = temporary(var.name(), value.ty);
        let write = self.store(Store {
            buffer: buffer.clone(),
            index: all_lanes(value.ty.lanes),
            value: stored(value),
            mask: None,
            nontemporal: false,
        });
        self.in_memory.insert(var, buffer.clone());
        let body = self.stmt(body);
        allocate(buffer, Stmt::Block(vec![write, body]))
    }

    fn store(&mut self, store: Store) -> Stmt {
        let lanes = store.index.ty.lanes.max(store.value.ty.lanes);
        if lanes == 1 {
            return self.part(&store, &Expr::index(0), 1);
        }
        if let Some(mask) = &store.mask
            && let ExprKind::Broadcast(cond) = &mask.kind
        {
            let then = self.store(Store { mask: None, ..store.clone() });
            return Stmt::If { cond: self.scalar(cond), then: Box::new(then), otherwise: None };
        }
        if reads_other_lanes(&store) {
            return self.store_after_evaluation(store, lanes);
        }
        if self.in_simd_kernel {
            let store = self.expanded(store);
            let halves = self.in_halves(&store, lanes);
            return halves.unwrap_or_else(|| self.simd_store(&store, 0, lanes));
        }
        let (store, width) = self.in_native_operations(store, lanes);
        let parts = lanes / width;
        let nodes = size_of(&store) * parts as usize;
        let few = parts <= if width == 1 { MAX_SCALARS } else { MAX_VECTORS };
        let mut stmts = Vec::new();
        // Buffers in registers need constant indices, which a loop would not have.
        if few && nodes <= MAX_NODES || touches_registers(&store) {
            for part in 0..parts {
                let start = Expr::index((part * width).into());
                stmts.push(self.part(&store, &start, width));
            }
        } else {
            let var = Var::index(if width == 1 { "lane" } else { "part" });
            let start = Expr::mul(Expr::var(&var), Expr::index(width.into()));
            let start = if width == 1 { Expr::var(&var) } else { start };
            let body = self.part(&store, &start, width);
            stmts.push(Stmt::serial(var, Expr::index(parts.into()), body));
        }
        if self.overlaps(&store, parts * width, lanes, width) {
            stmts.push(self.part(&store, &Expr::index((lanes - width).into()), width));
        } else {
            for lane in parts * width..lanes {
                stmts.push(self.part(&store, &Expr::index(lane.into()), 1));
            }
        }
        if stmts.len() == 1 { stmts.remove(0) } else { Stmt::Block(stmts) }
    }

    /// Splits the lanes of a store in a `simd_kernel`, from `first` on: into the longest vectors of
    /// the target, then into shorter ones.
    fn simd_store(&mut self, store: &Store, first: u32, lanes: u32) -> Stmt {
        let Store { buffer, index, value, mask, .. } = store;
        let rest = lanes - first;
        let isa = self.isa.expect("nests are outlined for targets with a SIMD back end");
        let lanes_of = |constants| {
            simd_lanes(index, value, mask.as_ref(), buffer, first..lanes, constants, isa)
        };
        let written_out_parts = |parts: u32| size_of(store) * parts as usize <= MAX_NODES;
        let written_out = |width: u32| {
            let parts = rest / width;
            let few = parts <= if width == 1 { MAX_SCALARS } else { MAX_VECTORS };
            few && written_out_parts(parts) || touches_registers(store)
        };
        let mut width = lanes_of(true);
        let mut periods = None;
        let written_out = written_out(width) || {
            let narrow = lanes_of(false);
            if narrow < width {
                let count = parts_of_a_period([index, value], mask.as_ref(), first..lanes, width);
                let count = count.filter(|count| written_out_parts(*count));
                periods = count.and_then(|together| {
                    let turns = rest / width / together;
                    Some((together, self.loop_of_parts(store, first, width, turns, together)?))
                });
            }
            width = if periods.is_some() { width } else { narrow };
            periods.is_none() && written_out(width)
        };
        let parts = rest / width;
        let mut stmts = Vec::new();
        if let Some((together, periods)) = periods {
            stmts.push(periods);
            for part in parts / together * together..parts {
                let start = Expr::index((first + part * width).into());
                stmts.push(self.part(store, &start, width));
            }
        } else if written_out {
            for part in 0..parts {
                let start = Expr::index((first + part * width).into());
                stmts.push(self.part(store, &start, width));
            }
        } else {
            let var = Var::index(if width == 1 { "lane" } else { "part" });
            let start = Expr::mul(Expr::var(&var), Expr::index(width.into()));
            let start = Expr::add(start, Expr::index(first.into()));
            let body = self.part(store, &start, width);
            stmts.push(Stmt::serial(var, Expr::index(parts.into()), body));
        }
        let done = first + parts * width;
        let is_one = isa == SimdIsa::Avx512 || (lanes - done).is_power_of_two();
        let has_form = |start| {
            simd_lanes(index, value, mask.as_ref(), buffer, start..lanes, true, isa) == width
        };
        if !is_one && self.overlaps(store, done, lanes, width) && has_form(lanes - width) {
            stmts.push(self.part(store, &Expr::index((lanes - width).into()), width));
        } else if done < lanes {
            stmts.push(self.simd_store(store, done, lanes));
        }
        if stmts.len() == 1 { stmts.remove(0) } else { Stmt::Block(stmts) }
    }

    /// Whether the lanes from `done` on are stored by a vector of `width` lanes that ends with
    /// them, so that some are stored twice: in place of several shorter vectors, or a mask. The
    /// value must not have changed. A partly written line makes nontemporal stores slow, and lanes
    /// that are not next to each other cost as much as their number.
    fn overlaps(&self, store: &Store, done: u32, lanes: u32, width: u32) -> bool {
        let are_adjacent = |index: &Expr| match &index.kind {
            ExprKind::Ramp(_, stride) => stride.as_int() == Some(1),
            ExprKind::Broadcast(_) => true,
            _ => index.ty.lanes == 1,
        };
        let mut repeats = true;
        let mut seen = NodeSet::default();
        for_each_load(&store.value, &mut seen, &mut |buffer, indices, mask| {
            repeats &= *buffer != store.buffer && mask.is_none() && are_adjacent(&indices[0]);
        });
        lanes > done + 1
            && done >= width
            && repeats
            && matches!(&store.index.kind, ExprKind::Ramp(_, stride) if stride.as_int() == Some(1))
            && store.mask.is_none()
            && !store.nontemporal
            && !touches_registers(store)
    }

    /// Returns a store and the lanes of the vectors that it can be split into; 1 lane if it must be
    /// scalar. Functions are expanded if that allows vectors, else they stay one node.
    fn in_native_operations(&self, store: Store, lanes: u32) -> (Store, u32) {
        if !self.has_vectors {
            return (store, 1);
        }
        let width = self.native_lanes(&store, lanes);
        if width == 1 && calls_functions(&store.value) {
            let expanded = Store { value: expand_expr(&store.value), ..store.clone() };
            let width = self.native_lanes(&expanded, lanes);
            if width > 1 {
                return (expanded, width);
            }
        }
        (store, width)
    }

    /// Returns a loop of `turns` iterations, each of which stores some vectors of `width` lanes: as
    /// many as the constants in its indices have in a period, so that they stay constants; `None`
    /// if they do not.
    fn loop_of_parts(
        &self,
        store: &Store,
        first: u32,
        width: u32,
        turns: u32,
        parts: u32,
    ) -> Option<Stmt> {
        let isa = self.isa.expect("nests are outlined for targets with a SIMD back end");
        let are_constants = |stmt: &Stmt| {
            let Stmt::Store { buffer, indices, value, mask, .. } = stmt else { return true };
            let (index, mask) = (&indices[0], mask.as_ref());
            simd_lanes(index, value, mask, buffer, 0..width, true, isa) == width
        };
        let var = Var::index("part");
        let mut facts = Facts::new();
        facts.bind(&var, &Expr::index(0), &Expr::index(turns.into()));
        let step = Expr::mul(Expr::var(&var), Expr::index((parts * width).into()));
        let part = |part: u32| {
            let start = Expr::add(step.clone(), Expr::index((first + part * width).into()));
            let stmt = self.part(store, &start, width);
            let stmt = rewrite_exprs(stmt, &mut |expr| simplify_expr(expr, &facts));
            are_constants(&stmt).then_some(stmt)
        };
        let body = Stmt::Block((0..parts).map(part).collect::<Option<Vec<Stmt>>>()?);
        Some(Stmt::serial(var, Expr::index(turns.into()), body))
    }

    /// Expands the functions of a store in a nest of the SIMD back end, which computes each node
    /// once: equal ones, as inlined stages leave, are one node first.
    fn expanded(&self, store: Store) -> Store {
        let mut sharer = Sharer::default();
        let value = sharer.share(&store.value);
        let mask = store.mask.map(|mask| sharer.share(&mask));
        let value = match self.isa {
            Some(isa) if calls_functions(&value) => expand_in_nest(&value, isa),
            _ => value,
        };
        Store { value, mask, ..store }
    }

    /// Returns `width` lanes of a store, from lane `start` on.
    fn part(&self, store: &Store, start: &Expr, width: u32) -> Stmt {
        let mut slicer = Slicer::new(start.clone(), width, &self.in_memory, self.in_simd_kernel);
        let index = slicer.slice(&store.index);
        let (indices, value) = (vec![index], slicer.slice(&store.value));
        let (buffer, nontemporal) = (store.buffer.clone(), store.nontemporal);
        let mut cond = store.mask.as_ref().map(|mask| slicer.slice(mask));
        let mask = if self.in_simd_kernel && width > 1 { cond.take() } else { None };
        let then = Stmt::Store { buffer, indices, value, mask, nontemporal };
        match cond {
            None => then,
            Some(cond) => Stmt::If { cond, then: Box::new(then), otherwise: None },
        }
    }

    /// Evaluates all lanes of the operands that read the stored buffer into temporaries, then
    /// stores.
    fn store_after_evaluation(&mut self, mut store: Store, lanes: u32) -> Stmt {
        let mut temporaries = Vec::new();
        let mut writes = Vec::new();
        let mut save = |name: &str, operand: &mut Expr| {
            if !reads_buffer(operand, &store.buffer) {
                return;
            }
            let ty = operand.ty;
            let buffer = temporary(&format!("{}.{name}", store.buffer.name), ty);
            let index = all_lanes(ty.lanes);
            let value = stored(operand.clone());
            writes.push(Store {
                buffer: buffer.clone(),
                index: index.clone(),
                value,
                mask: None,
                nontemporal: false,
            });
            *operand = Expr::cast(ty.dtype, Expr::load(&buffer, vec![index]));
            temporaries.push(buffer);
        };
        save("value", &mut store.value);
        save("index", &mut store.index);
        if let Some(mask) = &mut store.mask {
            save("mask", mask);
        }
        let mut stmts: Vec<Stmt> = writes.into_iter().map(|write| self.store(write)).collect();
        debug_assert!(lanes > 1, "one lane is evaluated before it is written");
        stmts.push(self.store(store));
        temporaries.into_iter().fold(Stmt::Block(stmts), |body, buffer| allocate(buffer, body))
    }
}

/// Returns a buffer for the lanes of a vector.
fn temporary(name: &str, ty: Type) -> Buffer {
    let dtype = if ty.dtype == DType::Index { DType::Int64 } else { ty.dtype };
    Buffer::new(name, dtype, vec![Expr::index(ty.lanes.into())], Scope::Local)
}

/// Converts a value to the type of its [`temporary`].
fn stored(value: Expr) -> Expr {
    if value.ty.dtype == DType::Index { Expr::cast(DType::Int64, value) } else { value }
}

fn allocate(buffer: Buffer, body: Stmt) -> Stmt {
    Stmt::Allocate { buffer, body: Box::new(body) }
}

/// Returns `ramp(0, 1, lanes)`; a scalar 0 for one lane.
fn all_lanes(lanes: u32) -> Expr {
    if lanes == 1 { Expr::index(0) } else { ramp(Expr::index(0), Expr::index(1), lanes) }
}

fn ramp(base: Expr, stride: Expr, lanes: u32) -> Expr {
    let ty = Type { dtype: base.ty.dtype, lanes };
    Expr::new(ty, ExprKind::Ramp(base, stride))
}

fn broadcast(value: Expr, lanes: u32) -> Expr {
    let ty = Type { dtype: value.ty.dtype, lanes };
    Expr::new(ty, ExprKind::Broadcast(value))
}

/// Whether a lane might read an element that another lane writes.
fn reads_other_lanes(store: &Store) -> bool {
    let distinct = match &store.index.kind {
        ExprKind::Ramp(_, stride) => stride.as_int().is_some_and(|stride| stride != 0),
        _ => false,
    };
    let mut found = false;
    let mut seen = NodeSet::default();
    for operand in [Some(&store.index), Some(&store.value), store.mask.as_ref()] {
        let Some(operand) = operand else { continue };
        for_each_load(operand, &mut seen, &mut |buffer, indices, _| {
            found |= *buffer == store.buffer && !(distinct && equal(&indices[0], &store.index));
        });
    }
    found
}

fn touches_registers(store: &Store) -> bool {
    let is_register = |buffer: &Buffer| buffer.scope == Scope::Register;
    is_register(&store.buffer)
        || any_expr(
            &store.value,
            &mut |e| matches!(&e.kind, ExprKind::Load { buffer, .. } if is_register(buffer)),
        )
}

/// Whether an expression calls functions on vectors that the back end does not have.
fn calls_functions(expr: &Expr) -> bool {
    any_expr(
        expr,
        &mut |e| matches!(&e.kind, ExprKind::Call(f, _) if !f.is_operation() && e.ty.lanes > 1),
    )
}

/// Returns the number of nodes of a store, with shared nodes counted once.
fn size_of(store: &Store) -> usize {
    let mut seen = NodeSet::default();
    for operand in [Some(&store.index), Some(&store.value), store.mask.as_ref()] {
        operand.iter().for_each(|operand| walk_nodes(operand, &mut seen, &mut |_| {}));
    }
    seen.count()
}
