//! The cost of expressions: operations by kind, loads, chains, registers.
//!
//! A value is computed in the innermost loop that it depends on, once for each combination of the
//! unrolled loops that it depends on: passes and back ends hoist and share the rest.

use super::gpu::WarpAccess;
use super::gpu::warp::warp_cost;
use super::index::{Dim, Lane, Sum};
use super::plan::{Access, AccessCost};
use super::walk::Walker;
use crate::ir::visit::{any_expr, for_each_child};
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Intrinsic, Scope, UnOp};
use crate::simd_ops::{
    ProductForm, constant_division, constant_divisor, constant_lanes, lane_count, product_form,
};
use crate::target::SimdIsa;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The cost of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ValueCost {
    /// The loops that it depends on, a bit for each index in `enclosing`.
    pub(super) deps: u64,
    /// Cycles since the load of the element that the statement updates; none without such a load.
    pub(super) chain: Option<f64>,
    /// Cycles from the first load to the value.
    pub(super) depth: f64,
}

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Debug)]
enum OpKind {
    Multiply,
    Add,
    Integer,
    Divide,
}

/// Latency of a load from L1 in cycles, with the address.
pub(super) const LOAD_LATENCY: f64 = 6.0;
/// Integer instructions that clamp a bound to the lanes of a vector. This and the numbers below are
/// estimates of the code that the back ends emit.
const BOUND_INSTRUCTIONS: f64 = 10.0;
/// Instructions of an operation on masks in vector registers, with the conversions between lengths
/// of lanes. AVX-512 has one for each operation on mask registers.
const VECTOR_MASK_INSTRUCTIONS: f64 = 4.0;
/// Latency of a comparison into a mask register of AVX-512.
const MASK_LATENCY: f64 = 5.0;
/// Instructions of a division by a constant: a multiplication, shifts and moves.
pub(super) const CONSTANT_DIVISION_OPERATIONS: f64 = 5.0;
/// Instructions that make a remainder from a quotient.
pub(super) const REMAINDER_OPERATIONS: f64 = 2.0;
/// Integer operations that the division of one lane counts as: it is a scalar instruction.
const INTEGER_DIVISION_OPERATIONS: f64 = 10.0;
/// Instructions that count the one bits of a vector's elements.
const POPCOUNT_OPERATIONS: f64 = 7.0;
/// Instructions of a scalar shift by a variable, which takes its distance from one register and
/// wraps it.
const VARIABLE_SHIFT_OPERATIONS: f64 = 5.0;
/// The fraction of the branches on conditions of loop variables that are mispredicted.
const PREDICTED_FRACTION: f64 = 0.05;
/// The time of a `float64` division, and of a square root, relative to a `float32` division.
const FLOAT64_DIVISION_FACTOR: f64 = 1.6;
const SQRT_FACTOR: f64 = 1.8;
/// Instructions of a division or square root on a GPU.
const GPU_DIVISION_INSTRUCTIONS: f64 = 10.0;
/// Operations of a function call that `expand_math` has not replaced.
const CALL_OPERATIONS: f64 = 20.0;

impl Walker<'_> {
    /// Adds the cost of a value to the frames that compute it.
    pub(super) fn value(&mut self, expr: &Expr) -> ValueCost {
        if let Some(known) = self.memo.get(&expr.id()) {
            return *known;
        }
        let value = self.fresh_value(expr);
        self.memo.insert(expr.id(), value);
        value
    }

    fn fresh_value(&mut self, expr: &Expr) -> ValueCost {
        let ty = expr.ty;
        match &expr.kind {
            ExprKind::Const(_) => ValueCost::default(),
            ExprKind::Var(var) => match (self.places.get(var), self.lets.get(var)) {
                (Some(place), _) => ValueCost { deps: bit(*place), ..ValueCost::default() },
                (None, Some(known)) => {
                    let known = *known;
                    let reads = self.let_reads.get(var).cloned().unwrap_or_default();
                    self.reads.extend(reads);
                    known
                }
                (None, None) => ValueCost::default(),
            },
            ExprKind::Load { buffer, indices, mask } => {
                self.load(buffer, &indices[0], mask.as_ref())
            }
            ExprKind::Let(var, value, body) => {
                let value = self.value(value);
                self.lets.insert(var.clone(), value);
                self.value(body)
            }
            ExprKind::Broadcast(inner) => {
                let value = self.value(inner);
                let is_free = matches!(inner.kind, ExprKind::Load { .. } | ExprKind::Const(_));
                if is_free || ty.dtype == DType::Index {
                    return value;
                }
                match ty.dtype {
                    DType::Bool => self.mask(expr, value.deps, 1.0),
                    // Loaded into lanes, converted and broadcast, for each use.
                    _ if is_widened(inner) && self.in_simd_kernel => {
                        self.charge(OpKind::Add, 2.0, self.of_each_use(value.deps), expr);
                    }
                    _ => self.charge(OpKind::Add, 1.0, value.deps, expr),
                }
                value
            }
            ExprKind::Bitcast(inner) => self.value(inner),
            ExprKind::IfThenElse(cond, then, otherwise) if self.in_launch => {
                let cond_value = self.value(cond);
                self.guards.push(cond.clone());
                let then = self.value(then);
                self.guards.pop();
                self.guards.push(Expr::not(cond.clone()));
                let otherwise = self.value(otherwise);
                self.guards.pop();
                let chain = match (then.chain, otherwise.chain) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    (a, b) => a.or(b),
                };
                self.charge(OpKind::Integer, 1.0, cond_value.deps, expr);
                let deps = cond_value.deps | then.deps | otherwise.deps;
                ValueCost { deps, chain, depth: then.depth.max(otherwise.depth) }
            }
            _ => self.operation(expr),
        }
    }

    fn operation(&mut self, expr: &Expr) -> ValueCost {
        let mut value = ValueCost::default();
        if self.in_simd_kernel && constant_lanes(expr).is_some() {
            return value;
        }
        let near = self.here();
        let is_fma = matches!(expr.kind, ExprKind::Call(Intrinsic::Fma, _));
        for_each_child(expr, &mut |child| {
            let child = match &child.kind {
                // The instruction changes the sign.
                ExprKind::Unary(UnOp::Neg, inner) if is_fma => self.value(inner),
                _ => self.value(child),
            };
            value.deps |= child.deps;
            // Invariant values are ready.
            if child.deps & near != 0 {
                value.depth = value.depth.max(child.depth);
            }
            value.chain = match (value.chain, child.chain) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
        });
        if expr.ty.dtype == DType::Index && expr.ty.lanes == 1 {
            self.index_node(expr);
            return value;
        }
        let is_float = |expr: &Expr| expr.ty.dtype.is_float();
        let scalar = expr.ty.lanes == 1;
        let (kind, count) = match &expr.kind {
            ExprKind::Call(Intrinsic::Fma | Intrinsic::Scalef, _) => (OpKind::Multiply, 1.0),
            ExprKind::Call(..) => (OpKind::Add, CALL_OPERATIONS),
            ExprKind::Unary(UnOp::Sqrt, _) => (OpKind::Divide, SQRT_FACTOR),
            ExprKind::Unary(UnOp::Likely | UnOp::Not, _) => (OpKind::Integer, 0.0),
            ExprKind::Unary(UnOp::Popcount, _) if !scalar => (OpKind::Add, POPCOUNT_OPERATIONS),
            ExprKind::Binary(BinOp::Div, ..) => (OpKind::Divide, 1.0),
            ExprKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), _, by) => {
                let in_lanes = !scalar && self.in_simd_kernel && expr.ty.dtype != DType::Index;
                match constant_divisor(by) {
                    Some(by @ 1..) if by & (by - 1) == 0 => (OpKind::Integer, 1.0),
                    Some(by) if in_lanes => {
                        let dtype = expr.ty.dtype;
                        let quotient = f64::from(constant_division(dtype, by).instructions(dtype));
                        let rest = if *op == BinOp::FloorMod { 2.0 } else { 0.0 };
                        (OpKind::Add, quotient + rest)
                    }
                    Some(_) => {
                        let rest = if *op == BinOp::FloorMod { REMAINDER_OPERATIONS } else { 0.0 };
                        let each = CONSTANT_DIVISION_OPERATIONS + rest;
                        (OpKind::Integer, each * f64::from(expr.ty.lanes))
                    }
                    None => {
                        (OpKind::Integer, INTEGER_DIVISION_OPERATIONS * f64::from(expr.ty.lanes))
                    }
                }
            }
            ExprKind::Binary(BinOp::Mul, a, b) if !is_float(a) && !scalar => {
                match product_form(a.ty.dtype, a, b) {
                    ProductForm::Shift { .. } => (OpKind::Add, 1.0),
                    ProductForm::Whole => (OpKind::Multiply, integer_products(a.ty.dtype.bytes())),
                    _ => (OpKind::Multiply, 1.0),
                }
            }
            ExprKind::Binary(BinOp::Mul, a, _) if is_float(a) => (OpKind::Multiply, 1.0),
            ExprKind::Binary(_, a, _) if is_float(a) || !scalar => (OpKind::Add, 1.0),
            ExprKind::Binary(BinOp::Shl | BinOp::Shr, _, by) if by.as_int().is_none() => {
                (OpKind::Integer, VARIABLE_SHIFT_OPERATIONS)
            }
            ExprKind::Binary(..) => (OpKind::Integer, 1.0),
            ExprKind::Cast(a) if is_float(a) || is_float(expr) => {
                let halves = a.ty.dtype.is_half() || expr.ty.dtype.is_half();
                (OpKind::Add, if halves { 2.0 } else { 1.0 })
            }
            _ if is_float(expr) || !scalar => (OpKind::Add, 1.0),
            _ => (OpKind::Integer, 1.0),
        };
        let again = self.in_simd_kernel && !scalar && is_widened(expr);
        let used = if again { self.of_each_use(value.deps) } else { value.deps };
        match expr.ty.dtype == DType::Bool && !scalar {
            true => self.mask(expr, value.deps, count),
            false => self.charge(kind, count, used, expr),
        }
        let latency = match kind {
            OpKind::Multiply => self.machine.multiply_latency,
            OpKind::Add => self.machine.add_latency,
            OpKind::Integer => 1.0,
            OpKind::Divide => 3.0 * self.machine.multiply_latency,
        };
        let compares = matches!(expr.kind, ExprKind::Binary(op, ..) if op.is_comparison());
        let into_register =
            self.in_simd_kernel && self.machine.target.simd() == Some(SimdIsa::Avx512);
        let latency = match compares && !scalar && into_register {
            true => latency.max(MASK_LATENCY),
            false => latency,
        };
        value.chain = value.chain.map(|chain| chain + latency);
        value.depth += if count > 0.0 { latency } else { 0.0 };
        value
    }

    /// Returns the frame that computes a value with these dependences, and how often per iteration.
    pub(super) fn placement(&self, deps: u64) -> (usize, f64) {
        let (mut frame, mut copies) = (0, 1.0);
        for (place, open) in self.enclosing.iter().enumerate().rev() {
            if deps & bit(place) == 0 {
                continue;
            }
            match open.frame {
                None => copies *= open.count,
                Some(at) => {
                    frame = at;
                    break;
                }
            }
        }
        // A guarded value is not hoisted out of its condition.
        let mut around = self.frame;
        while around != 0 && around > frame {
            if !self.plan.frames[around].is_loop && self.plan.frames[around].trips < 1.0 {
                return (around, copies);
            }
            around = self.plan.frames[around].parent;
        }
        (frame, copies)
    }

    fn charge(&mut self, kind: OpKind, count: f64, deps: u64, expr: &Expr) {
        if self.copying {
            // Asynchronous copies convert nothing.
            return;
        }
        let (frame, copies) = self.placement(deps);
        let lanes = f64::from(expr.ty.lanes);
        let bytes = match &expr.kind {
            // Most masks are for lanes of four bytes.
            _ if expr.ty.dtype == DType::Bool => 4,
            ExprKind::Binary(_, a, _) => a.ty.dtype.bytes(),
            _ => expr.ty.dtype.bytes(),
        } as f64;
        let parts = self.parts(lanes, bytes);
        let amount = copies * self.weight * count * parts;
        let divide = self.machine.divide * if bytes > 4.0 { FLOAT64_DIVISION_FACTOR } else { 1.0 };
        let fused = matches!(expr.kind, ExprKind::Call(..));
        let gpu = self.machine.gpu.filter(|_| self.in_launch);
        let terms = self.terms;
        let work = &mut self.plan.frames[frame].work;
        let double = expr.ty.dtype == DType::Float64;
        let amount = amount * gpu.filter(|_| double).map_or(1.0, |gpu| gpu.double);
        match kind {
            // A GPU divides by a sequence of instructions.
            OpKind::Divide if gpu.is_some() => work.adds += amount * GPU_DIVISION_INSTRUCTIONS,
            OpKind::Multiply => work.multiplies += amount,
            OpKind::Add => work.adds += amount,
            OpKind::Integer => work.integers += amount,
            OpKind::Divide => work.divide += amount * divide,
        }
        if !matches!(expr.ty.dtype, DType::Index | DType::Bool) {
            let each = if fused { 2.0 * terms } else { 1.0 };
            work.flops += copies * self.weight * lanes * each;
        }
    }

    /// Counts an operation that makes a mask. A comparison of indices also clamps its bound to the
    /// lanes.
    fn mask(&mut self, expr: &Expr, deps: u64, count: f64) {
        let deps = deps | self.unrolled_near(deps);
        let of_indices = match &expr.kind {
            ExprKind::Binary(_, a, _) => a.ty.dtype == DType::Index,
            _ => false,
        };
        if of_indices {
            self.charge(OpKind::Integer, BOUND_INSTRUCTIONS * count, deps, expr);
        }
        let has_registers = self.machine.target.simd() == Some(SimdIsa::Avx512);
        let each = if has_registers { 1.0 } else { VECTOR_MASK_INSTRUCTIONS };
        self.charge(OpKind::Add, each * count, deps, expr);
    }

    /// Returns the current loop if the value depends on unrolled loops: there are few mask
    /// registers, so masks of unrolled iterations are computed again.
    fn unrolled_near(&self, deps: u64) -> u64 {
        let (near, inner) = (self.here(), self.loop_bit());
        if deps & near & !inner != 0 { inner } else { 0 }
    }

    /// Returns the current loop and the unrolled loops in it.
    fn here(&self) -> u64 {
        let mut deps = 0;
        for (place, open) in self.enclosing.iter().enumerate().rev() {
            deps |= bit(place);
            if open.frame.is_some() {
                break;
            }
        }
        deps
    }

    /// Returns the dependences of a conversion of integers, which the SIMD back end repeats for
    /// each use in the current loop.
    fn of_each_use(&self, deps: u64) -> u64 {
        let near = self.here();
        if deps & near == 0 { deps } else { deps | near }
    }

    /// Returns the loops that an index depends on.
    pub(super) fn index_deps(&mut self, index: &Expr) -> u64 {
        let mut deps = 0;
        self.collect_deps(index, &mut deps);
        deps
    }

    fn collect_deps(&mut self, expr: &Expr, deps: &mut u64) {
        match &expr.kind {
            ExprKind::Var(var) => match self.places.get(var) {
                Some(place) => *deps |= bit(*place),
                None => *deps |= self.lets.get(var).map_or(0, |known| known.deps),
            },
            // A loaded index has a cost of its own.
            ExprKind::Load { .. } => *deps |= self.value(expr).deps,
            _ => {
                let mut children = Vec::new();
                for_each_child(expr, &mut |child| children.push(child.clone()));
                children.iter().for_each(|child| self.collect_deps(child, deps));
            }
        }
    }

    fn load(&mut self, buffer: &Buffer, index: &Expr, mask: Option<&Expr>) -> ValueCost {
        let sum = self.indices.sum(index);
        if let Some((access, then)) = self.fetched.remove(buffer)
            && then.is_long_before(self.point())
            && let Some(warp) = &mut self.plan.accesses[access].warp
        {
            warp.latency_hidden = true;
        }
        let number = self.number(buffer);
        self.reads.push(number);
        if self.in_registers.contains_key(buffer) {
            return ValueCost { deps: self.here(), chain: Some(0.0), depth: 0.0 };
        }
        let index_deps = self.index_deps(index);
        let mut deps = index_deps;
        if let Some(mask) = mask {
            deps |= self.value(mask).deps;
            let apart = !matches!(sum.lane, Lane::Same | Lane::By(1.0));
            if apart && self.in_simd_kernel {
                // Like their masks, gathers of unrolled iterations are repeated, but not those that
                // are the same in all iterations of the loop.
                let outside = if deps & self.loop_bit() == 0 { self.loop_bit() } else { 0 };
                deps |= self.here() & !outside;
            }
        }
        let stored = (0..self.enclosing.len()).any(|place| self.is_stored_in(place, buffer));
        let updated = self.storing.as_ref().is_some_and(|(b, at)| b == buffer && *at == sum);
        if stored {
            deps |= self.here() & if updated { u64::MAX } else { self.loop_bit() };
        }
        let chain = updated.then_some(0.0);
        let at = self.memory(buffer);
        let depth = if updated { 0.0 } else { LOAD_LATENCY };
        if !self.loaded.insert((at, key(&sum, index.ty.lanes))) {
            return ValueCost { deps, chain, depth };
        }
        let (frame, mut copies) = self.placement(deps);
        let inner = self.enclosing.iter().rposition(|open| open.frame.is_some()).unwrap_or(0);
        let changes = (inner..self.enclosing.len()).any(|place| self.is_stored_in(place, buffer));
        if !changes && mask.is_none() && !self.in_launch {
            let (distinct, held) = self.distinct(&sum, deps);
            if distinct < copies {
                let parts = self.parts(f64::from(index.ty.lanes), buffer.dtype.bytes() as f64);
                let saved = (copies - distinct) * self.weight;
                copies = distinct;
                if self.in_simd_kernel {
                    let moves = self.access_cost(buffer, &sum, index.ty.lanes).moves;
                    let work = self.work();
                    work.shared += held * parts;
                    work.saved_loads += saved * moves;
                } else {
                    self.work().registers += held * parts;
                }
            }
        }
        let near =
            if self.in_simd_kernel { self.near_lanes_cost(buffer, index, mask) } else { None };
        // Lanes at constant distances are loaded without their mask.
        let masked = mask.is_some() && near.is_none();
        // Tiles are transposed under masks that count lanes only.
        let counts = mask.is_none_or(|mask| match &mask.kind {
            ExprKind::Binary(op, a, b) => lane_count(*op, a, b).is_some_and(|it| !it.negated),
            _ => false,
        });
        let tile = || self.tile(buffer, &sum, index.ty.lanes).filter(|_| !changes && counts);
        let cost = near.or_else(tile);
        if cost.is_none() {
            self.index_work(index);
        }
        let cost = cost.unwrap_or_else(|| self.access_cost(buffer, &sum, index.ty.lanes));
        let close = if updated { self.close_updates(index_deps) } else { 1.0 };
        let times = copies / close * self.weight;
        let waits = self.reload_cycles(buffer, index.ty.lanes, &cost);
        let work = &mut self.plan.frames[frame].work;
        work.loads += times * cost.moves;
        work.adds += times * cost.shuffles;
        work.multiplies += times * cost.permutations * self.machine.permutation;
        work.gather += times * (cost.gather + waits);
        let (live, changes) = self.live(deps, frame, copies, index.ty.lanes, cost.parts);
        let work = self.work();
        work.registers += live;
        work.changes = work.changes.max(if live > 1.0 { changes } else { 1.0 });
        let warp = self.warp_access(buffer, index, mask, (frame, copies / close), false);
        let AccessCost { iterations, row, .. } = cost;
        let traits = AccessTraits { write: false, masked, iterations, row, warp };
        self.remember(buffer, sum, index.ty.lanes, traits);
        let into = self.storing.as_ref().map(|(buffer, _)| buffer.clone());
        if let Some(into) = into.filter(|into| self.in_launch && is_private(into))
            && buffer.scope == Scope::Global
        {
            self.fetched.insert(into, (self.plan.accesses.len() - 1, self.point()));
        }
        ValueCost { deps, chain, depth }
    }

    /// Returns how many distinct vectors unrolled loops load, because overlapping windows share
    /// vectors, and how many registers hold them for that.
    fn distinct(&self, sum: &Sum, deps: u64) -> (f64, f64) {
        let factor =
            |dim: Dim| sum.linear.terms.iter().find(|term| term.0 == dim).map(|term| term.1);
        let mut all: Vec<(f64, f64)> = Vec::new();
        let mut counts = Vec::new();
        for (place, open) in self.enclosing.iter().enumerate().rev() {
            if deps & bit(place) == 0 {
                continue;
            }
            if open.frame.is_some() {
                break;
            }
            let Some(factor) = factor(open.dim).filter(|_| !sum.irregular) else {
                return (f64::INFINITY, 0.0);
            };
            all.push((factor.abs(), open.count));
            counts.push(progressions(&all));
        }
        let count = counts.last().copied().unwrap_or(1.0);
        // The vectors of one iteration of the outermost loop that reuses some are kept.
        let mut held = 0.0;
        for at in 1..counts.len() {
            if counts[at] < counts[at - 1] * all[at].1 {
                held = counts[at - 1];
            }
        }
        (count, held)
    }

    /// Returns the access of a warp, in a launch.
    pub(super) fn warp_access(
        &self,
        buffer: &Buffer,
        index: &Expr,
        mask: Option<&Expr>,
        placement: (usize, f64),
        write: bool,
    ) -> Option<WarpAccess> {
        if !self.in_launch {
            return None;
        }
        let bytes = buffer.dtype.bytes() as i64;
        let cost = warp_cost(&self.access_context(), index, mask, (bytes, write));
        Some(WarpAccess { placement, cost, latency_hidden: false, copied: self.copying })
    }

    /// Returns the innermost loop that is not unrolled.
    pub(super) fn loop_bit(&self) -> u64 {
        let place = self.enclosing.iter().rposition(|open| open.frame.is_some());
        place.map_or(0, bit)
    }

    /// Returns the registers of a value that unrolled loops use again, and how often per iteration
    /// they are loaded.
    pub(super) fn live(
        &self,
        deps: u64,
        frame: usize,
        copies: f64,
        lanes: u32,
        parts: f64,
    ) -> (f64, f64) {
        if frame != self.frame {
            return (if lanes > 1 { copies * parts } else { copies }, 1.0);
        }
        let first =
            self.enclosing.iter().rposition(|open| open.frame.is_some()).map_or(0, |at| at + 1);
        let mut unrolled = first..self.enclosing.len();
        let Some(reused) = unrolled.find(|place| deps & bit(*place) == 0) else {
            return (0.0, 1.0);
        };
        let inside = (reused..self.enclosing.len()).filter(|place| deps & bit(*place) != 0);
        let held: f64 = inside.map(|place| self.enclosing[place].count).product();
        let changes: f64 = self.enclosing[first..reused].iter().map(|open| open.count).product();
        (held * if lanes > 1 { parts } else { 1.0 }, changes)
    }

    /// Returns the copies that enclosing unrolled loops make in the current loop.
    pub(super) fn copies_here(&self) -> f64 {
        let unrolled = self.enclosing.iter().rev().take_while(|open| open.frame.is_none());
        unrolled.map(|open| open.count).product()
    }

    /// Counts a condition that holds in a fraction of the cases.
    pub(super) fn condition(&mut self, cond: &Expr, holds: f64) {
        let deps = self.value(cond).deps;
        let (frame, copies) = self.placement(deps | self.here());
        // Conditions on loop variables change rarely, or in a pattern.
        let of_data = any_expr(cond, &mut |e| matches!(e.kind, ExprKind::Load { .. }));
        let missed = if of_data { 1.0 } else { PREDICTED_FRACTION };
        let work = &mut self.plan.frames[frame].work;
        work.integers += 2.0 * copies * self.weight;
        work.branches += copies * self.weight * holds.min(1.0 - holds) * missed;
    }

    /// Records an access for the traffic.
    pub(super) fn remember(&mut self, buffer: &Buffer, sum: Sum, lanes: u32, how: AccessTraits) {
        let AccessTraits { write, masked, iterations, row, warp } = how;
        let bytes = buffer.dtype.bytes() as f64;
        let count = f64::from(lanes);
        let (width, apart) = match sum.lane {
            Lane::By(step) if step.abs() <= 1.0 => (bytes * count, None),
            Lane::By(step) => (bytes, Some((count, (step * bytes).abs()))),
            Lane::Same => (bytes, None),
            Lane::Irregular => (bytes, Some((count, bytes))),
        };
        let width = width * row.map_or(1.0, |(_, elements)| elements);
        let moving = sum.linear.terms.iter().filter(|(dim, _)| row.is_none_or(|row| row.0 != *dim));
        let access = Access {
            buffer: self.memory(buffer),
            frame: self.frame,
            strides: moving.map(|(dim, factor)| (*dim, factor * bytes)).collect(),
            first: sum.linear.constant * bytes,
            width,
            lanes: apart,
            write,
            masked: masked && !write,
            nontemporal: write && self.nontemporal,
            tile: false,
            weight: self.weight,
            branch: self.branch,
            irregular: sum.irregular,
            iterations,
            warp,
        };
        self.plan.accesses.push(access);
    }
}

/// Properties of an access beside its addresses.
pub(super) struct AccessTraits {
    pub(super) write: bool,
    pub(super) masked: bool,
    pub(super) iterations: f64,
    pub(super) row: Option<(Dim, f64)>,
    pub(super) warp: Option<WarpAccess>,
}

/// Returns the multiplications that a vector product of integers counts as: `vpmulld` is two
/// operations on Intel's processors, `vpmullq` three.
fn integer_products(bytes: u64) -> f64 {
    match bytes {
        4 => 2.0,
        8 => 3.0,
        _ => 1.0,
    }
}

/// Whether a vector is made of integers by a conversion.
fn is_widened(expr: &Expr) -> bool {
    let is_integer = |expr: &Expr| {
        !expr.ty.dtype.is_float() && !matches!(expr.ty.dtype, DType::Bool | DType::Index)
    };
    match &expr.kind {
        ExprKind::Cast(from) => is_integer(expr) && is_integer(from),
        _ => false,
    }
}

/// Returns how many distinct sums `Σ factor·i` loops make, each given by its factor and count.
/// Multiples of a smaller factor coincide.
pub(super) fn progressions(loops: &[(f64, f64)]) -> f64 {
    let mut sorted = loops.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    // `run` multiples of `step` without gaps.
    let (mut all, mut step, mut run) = (1.0, 0.0, 1.0);
    for (factor, count) in sorted {
        if step > 0.0 && factor % step == 0.0 && factor / step <= run {
            run += factor / step * (count - 1.0);
        } else {
            all *= run;
            (step, run) = (factor, count);
        }
    }
    all * run
}

/// Returns the bit of a loop; loops deeper than 63 share the last one.
pub(super) fn bit(place: usize) -> u64 {
    1 << place.min(63)
}

/// Whether each thread has its own copy of a buffer.
fn is_private(buffer: &Buffer) -> bool {
    matches!(buffer.scope, Scope::Local | Scope::Register)
}

/// Returns a hash of an access.
pub(super) fn key(sum: &Sum, lanes: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (dim, factor) in &sum.linear.terms {
        (dim, factor.to_bits()).hash(&mut hasher);
    }
    (sum.linear.constant.to_bits(), lanes, sum.irregular).hash(&mut hasher);
    if let Lane::By(step) = sum.lane {
        step.to_bits().hash(&mut hasher);
    }
    hasher.finish()
}
