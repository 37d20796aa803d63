//! What expressions and stores cost: operations by kind, loads and stores, chains, registers.
//!
//! A value is computed in the innermost loop that it depends on, once for each combination of the
//! unrolled loops that it depends on: the passes and back ends move and share what does not
//! change.

use super::gpu::Warped;
use super::gpu::warp::touch;
use super::index::{Dim, Lane, Sum};
use super::plan::{Access, Event, Step};
use super::walk::{Open, Walker};
use crate::ir::visit::for_each_child;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind, Intrinsic, Scope, UnOp};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is known of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Value {
    /// Loops that it depends on, by their place in the nest.
    pub(super) deps: u64,
    /// Cycles since what the statement stores was read, if it was.
    chain: Option<f64>,
    /// Cycles from the first loads until it is there.
    depth: f64,
}

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Multiply,
    Add,
    Integer,
    Divide,
}

/// Cycles from an address to what is there, in the nearest cache.
const LOAD: f64 = 6.0;
/// Cycles until what is stored can be read again.
const FORWARD: f64 = 6.0;
/// Bytes of a row that one instruction reads where lanes lie apart.
const PIECE: f64 = 16.0;
/// Cycles of a store of which a part goes past the caches.
const MIXED: f64 = 400.0;
/// Integer operations that clamp a bound to the lanes of a vector.
const BOUND: f64 = 10.0;
/// Instructions of an operation on masks: they come from and go to other registers.
const MASK: f64 = 4.0;
/// Cycles of an integer division, which is one instruction a lane.
const INTEGER_DIVISION: f64 = 10.0;
/// A division of `float64`, and a square root, as divisions of `float32`.
const DOUBLE_DIVISION: f64 = 1.6;
const ROOT: f64 = 1.8;
/// Instructions of a division or square root of a GPU.
const LONG_DIVISION: f64 = 10.0;
/// The operations of a function that is no longer a call when this is asked for real code.
const CALL: f64 = 20.0;

impl Walker<'_> {
    /// The cost of a value goes to the frames that compute it.
    pub(super) fn value(&mut self, expr: &Expr) -> Value {
        if let Some(known) = self.memo.get(&expr.id()) {
            return *known;
        }
        let value = self.fresh_value(expr);
        self.memo.insert(expr.id(), value);
        value
    }

    fn fresh_value(&mut self, expr: &Expr) -> Value {
        let ty = expr.ty;
        match &expr.kind {
            ExprKind::Const(_) => Value::default(),
            ExprKind::Var(var) => match (self.places.get(var), self.lets.get(var)) {
                (Some(place), _) => Value { deps: bit(*place), ..Value::default() },
                (None, Some(known)) => {
                    let known = *known;
                    let reads = self.let_reads.get(var).cloned().unwrap_or_default();
                    self.reads.extend(reads);
                    known
                }
                (None, None) => Value::default(),
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
                    _ => self.charge(Kind::Add, 1.0, value.deps, expr),
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
                self.charge(Kind::Integer, 1.0, cond_value.deps, expr);
                let deps = cond_value.deps | then.deps | otherwise.deps;
                Value { deps, chain, depth: then.depth.max(otherwise.depth) }
            }
            _ => self.operation(expr),
        }
    }

    fn operation(&mut self, expr: &Expr) -> Value {
        let mut value = Value::default();
        let near = self.here();
        for_each_child(expr, &mut |child| {
            let child = self.value(child);
            value.deps |= child.deps;
            // What does not change here is there already.
            if child.deps & near != 0 {
                value.depth = value.depth.max(child.depth);
            }
            value.chain = match (value.chain, child.chain) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
        });
        if expr.ty.dtype == DType::Index && expr.ty.lanes == 1 {
            return value;
        }
        let is_float = |expr: &Expr| expr.ty.dtype.is_float();
        let scalar = expr.ty.lanes == 1;
        let (kind, count) = match &expr.kind {
            ExprKind::Call(Intrinsic::Fma, _) => (Kind::Multiply, 1.0),
            ExprKind::Call(..) => (Kind::Add, CALL),
            ExprKind::Unary(UnOp::Sqrt, _) => (Kind::Divide, ROOT),
            ExprKind::Unary(UnOp::Likely | UnOp::Not, _) => (Kind::Integer, 0.0),
            ExprKind::Binary(BinOp::Div, ..) => (Kind::Divide, 1.0),
            ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, _, by) => {
                match by.as_int().is_some_and(|by| by > 0 && by & (by - 1) == 0) {
                    true => (Kind::Integer, 1.0),
                    false => (Kind::Integer, INTEGER_DIVISION * f64::from(expr.ty.lanes)),
                }
            }
            ExprKind::Binary(BinOp::Mul, a, _) if is_float(a) || !scalar => (Kind::Multiply, 1.0),
            ExprKind::Binary(_, a, _) if is_float(a) || !scalar => (Kind::Add, 1.0),
            ExprKind::Binary(..) => (Kind::Integer, 1.0),
            ExprKind::Cast(a) if is_float(a) || is_float(expr) => {
                let halves = a.ty.dtype.is_half() || expr.ty.dtype.is_half();
                (Kind::Add, if halves { 2.0 } else { 1.0 })
            }
            _ if is_float(expr) || !scalar => (Kind::Add, 1.0),
            _ => (Kind::Integer, 1.0),
        };
        match expr.ty.dtype == DType::Bool && !scalar {
            true => self.mask(expr, value.deps, count),
            false => self.charge(kind, count, value.deps, expr),
        }
        let latency = match kind {
            Kind::Multiply => self.machine.multiply_latency,
            Kind::Add => self.machine.add_latency,
            Kind::Integer => 1.0,
            Kind::Divide => 3.0 * self.machine.multiply_latency,
        };
        value.chain = value.chain.map(|chain| chain + latency);
        value.depth += if count > 0.0 { latency } else { 0.0 };
        value
    }

    /// The frame in which what depends on some loops is computed, and how often in an iteration.
    pub(super) fn spot(&self, deps: u64) -> (usize, f64) {
        let (mut frame, mut copies) = (0, 1.0);
        for (place, open) in self.open.iter().enumerate().rev() {
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
        // What a condition guards stays behind it.
        let mut around = self.frame;
        while around != 0 && around > frame {
            if !self.plan.frames[around].is_loop && self.plan.frames[around].trips < 1.0 {
                return (around, copies);
            }
            around = self.plan.frames[around].parent;
        }
        (frame, copies)
    }

    fn charge(&mut self, kind: Kind, count: f64, deps: u64, expr: &Expr) {
        if self.copying {
            // Elements are copied as they are.
            return;
        }
        let (frame, copies) = self.spot(deps);
        let lanes = f64::from(expr.ty.lanes);
        let bytes = match &expr.kind {
            // Masks are for lanes of four bytes, mostly.
            _ if expr.ty.dtype == DType::Bool => 4,
            ExprKind::Binary(_, a, _) => a.ty.dtype.bytes(),
            _ => expr.ty.dtype.bytes(),
        } as f64;
        let parts = self.parts(lanes, bytes);
        let amount = copies * self.weight * count * parts / self.terms;
        let divide = self.machine.divide * if bytes > 4.0 { DOUBLE_DIVISION } else { 1.0 };
        let fused = matches!(expr.kind, ExprKind::Call(..));
        let gpu = self.machine.gpu.filter(|_| self.in_launch);
        let work = &mut self.plan.frames[frame].work;
        let double = expr.ty.dtype == DType::Float64;
        let amount = amount * gpu.filter(|_| double).map_or(1.0, |gpu| gpu.double);
        match kind {
            // A GPU divides by a few instructions.
            Kind::Divide if gpu.is_some() => work.adds += amount * LONG_DIVISION,
            Kind::Multiply => work.multiplies += amount,
            Kind::Add => work.adds += amount,
            Kind::Integer => work.integers += amount,
            Kind::Divide => work.divide += amount * divide,
        }
        if !matches!(expr.ty.dtype, DType::Index | DType::Bool) {
            work.flops += copies * self.weight * lanes * if fused { 2.0 } else { 1.0 };
        }
    }

    /// An operation that makes a mask. One of indices counts lanes up to a bound, in integers.
    fn mask(&mut self, expr: &Expr, deps: u64, count: f64) {
        let deps = deps | self.unrolled_near(deps);
        let of_indices = match &expr.kind {
            ExprKind::Binary(_, a, _) => a.ty.dtype == DType::Index,
            _ => false,
        };
        if of_indices {
            self.charge(Kind::Integer, BOUND * count, deps, expr);
        }
        self.charge(Kind::Add, MASK * count, deps, expr);
    }

    /// The loop that is at work, for what depends on unrolled loops: there are registers for few
    /// masks, so those of unrolled iterations are not kept, but made again.
    fn unrolled_near(&self, deps: u64) -> u64 {
        let (near, inner) = (self.here(), self.loop_bit());
        if deps & near & !inner != 0 { inner } else { 0 }
    }

    /// The loop that is at work, and the unrolled ones in it.
    fn here(&self) -> u64 {
        let mut deps = 0;
        for (place, open) in self.open.iter().enumerate().rev() {
            deps |= bit(place);
            if open.frame.is_some() {
                break;
            }
        }
        deps
    }

    /// The loops that an index depends on.
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
            // Indices that are read have a cost of their own.
            ExprKind::Load { .. } => *deps |= self.value(expr).deps,
            _ => {
                let mut children = Vec::new();
                for_each_child(expr, &mut |child| children.push(child.clone()));
                children.iter().for_each(|child| self.collect_deps(child, deps));
            }
        }
    }

    fn load(&mut self, buffer: &Buffer, index: &Expr, mask: Option<&Expr>) -> Value {
        let sum = self.indices.sum(index);
        if let Some((access, then)) = self.fetched.remove(buffer)
            && then.is_long_before(self.moment())
            && let Some(warped) = &mut self.plan.accesses[access].warped
        {
            warped.ahead = true;
        }
        let number = self.number(buffer);
        self.reads.push(number);
        if self.in_registers.contains_key(buffer) {
            return Value { deps: self.here(), chain: Some(0.0), depth: 0.0 };
        }
        let index_deps = self.index_deps(index);
        let mut deps = index_deps;
        if let Some(mask) = mask {
            deps |= self.value(mask).deps;
        }
        let stored = (0..self.open.len()).any(|place| self.is_stored_in(place, buffer));
        let updated = self.storing.as_ref().is_some_and(|(b, at)| b == buffer && *at == sum);
        if stored {
            deps |= self.here() & if updated { u64::MAX } else { self.loop_bit() };
        }
        let chain = updated.then_some(0.0);
        let at = self.memory(buffer);
        let depth = if updated { 0.0 } else { LOAD };
        if !self.loaded.insert((at, key(&sum, index.ty.lanes))) {
            return Value { deps, chain, depth };
        }
        let (frame, mut copies) = self.spot(deps);
        let inner = self.open.iter().rposition(|open| open.frame.is_some()).unwrap_or(0);
        let changes = (inner..self.open.len()).any(|place| self.is_stored_in(place, buffer));
        if !changes && mask.is_none() && !self.in_launch {
            let (distinct, held) = self.distinct(&sum, deps);
            if distinct < copies {
                copies = distinct;
                let parts = self.parts(f64::from(index.ty.lanes), buffer.dtype.bytes() as f64);
                self.work().registers += held * parts;
            }
        }
        let tile = self.tile(buffer, &sum, index.ty.lanes).filter(|_| !changes);
        let cost = match tile {
            Some(cost) => cost,
            None => self.access_cost(buffer, &sum, index.ty.lanes),
        };
        let close = if updated { self.close_updates(index_deps) } else { 1.0 };
        let times = copies / close * self.weight;
        let work = &mut self.plan.frames[frame].work;
        work.loads += times * cost.moves;
        work.adds += times * cost.shuffles;
        work.gather += times * cost.gather;
        let (live, changes) = self.live(deps, frame, copies, index.ty.lanes, cost.parts);
        let work = self.work();
        work.registers += live;
        work.changes = work.changes.max(if live > 1.0 { changes } else { 1.0 });
        let masked = mask.is_some();
        let warped = self.warped(buffer, index, mask, (frame, copies / close));
        self.remember(buffer, sum, index.ty.lanes, How { write: false, masked, warped });
        let into = self.storing.as_ref().map(|(buffer, _)| buffer.clone());
        if let Some(into) = into.filter(|into| self.in_launch && is_private(into))
            && buffer.scope == Scope::Global
        {
            self.fetched.insert(into, (self.plan.accesses.len() - 1, self.moment()));
        }
        Value { deps, chain, depth }
    }

    /// How many different vectors unrolled loops load: windows that overlap share theirs. And how
    /// many of them have to stay in registers for that.
    fn distinct(&self, sum: &Sum, deps: u64) -> (f64, f64) {
        let factor =
            |dim: Dim| sum.linear.terms.iter().find(|term| term.0 == dim).map(|term| term.1);
        let mut all: Vec<(f64, f64)> = Vec::new();
        let mut counts = Vec::new();
        for (place, open) in self.open.iter().enumerate().rev() {
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
        // From the outermost loop that comes back to vectors on, those of one iteration are kept.
        let mut held = 0.0;
        for at in 1..counts.len() {
            if counts[at] < counts[at - 1] * all[at].1 {
                held = counts[at - 1];
            }
        }
        (count, held)
    }

    /// The cost of vectors whose lanes lie apart, where those beside them are read as well: rows
    /// are read in pieces, and columns are taken from registers.
    fn tile(&self, buffer: &Buffer, sum: &Sum, lanes: u32) -> Option<Cost> {
        let bytes = buffer.dtype.bytes() as f64;
        let piece = PIECE / bytes;
        let apart = matches!(sum.lane, Lane::By(step) if step.abs() > 1.0);
        if !self.wide || !apart || sum.irregular || self.weight < 1.0 || piece < 2.0 {
            return None;
        }
        let inner = self.open.iter().rposition(|open| open.frame.is_some()).unwrap_or(0);
        let beside =
            |open: &&Open| sum.linear.terms.contains(&(open.dim, 1.0)) && open.count >= piece;
        let count = self.open[inner..].iter().find(beside)?.count;
        let rest = (count % piece) / count;
        let rows = f64::from(lanes);
        let parts = self.parts(rows, bytes);
        let moves = rows / piece;
        let shuffles = (moves - parts).max(0.0) + 2.0 * parts;
        Some(Cost {
            parts,
            moves: (1.0 - rest) * moves,
            shuffles: (1.0 - rest) * shuffles,
            gather: rest * rows * self.machine.gather,
        })
    }

    /// In a launch: what a warp's access takes.
    fn warped(
        &self,
        buffer: &Buffer,
        index: &Expr,
        mask: Option<&Expr>,
        spot: (usize, f64),
    ) -> Option<Warped> {
        if !self.in_launch {
            return None;
        }
        let touch = touch(&self.place(), index, mask, buffer.dtype.bytes() as i64);
        Some(Warped { spot, touch, ahead: false, copied: self.copying })
    }

    /// The innermost loop that is no unrolled one.
    fn loop_bit(&self) -> u64 {
        let place = self.open.iter().rposition(|open| open.frame.is_some());
        place.map_or(0, bit)
    }

    /// Registers that hold a value which is used again in unrolled loops, and how often they are
    /// filled in an iteration.
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
        let first = self.open.iter().rposition(|open| open.frame.is_some()).map_or(0, |at| at + 1);
        let mut unrolled = first..self.open.len();
        let Some(reused) = unrolled.find(|place| deps & bit(*place) == 0) else {
            return (0.0, 1.0);
        };
        let inside = (reused..self.open.len()).filter(|place| deps & bit(*place) != 0);
        let held: f64 = inside.map(|place| self.open[place].count).product();
        let changes: f64 = self.open[first..reused].iter().map(|open| open.count).product();
        (held * if lanes > 1 { parts } else { 1.0 }, changes)
    }

    /// `buffer[index] = value`.
    pub(super) fn store(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        value: &Expr,
        mask: Option<&Expr>,
    ) {
        let sum = self.indices.sum(index);
        self.storing = Some((buffer.clone(), sum));
        self.reads.clear();
        let value = self.value(value);
        self.storing = None;
        let deps = self.index_deps(index);
        let (mut close, mut depth) = (1.0, value.depth);
        if let Some(chain) = value.chain {
            depth = depth.max(LOAD + self.update(buffer, index, chain, deps));
            close = self.close_updates(deps);
        }
        let writes = self.number(buffer);
        if value.chain.is_none() {
            self.begun.insert((self.frame, writes));
        }
        let after = if self.in_registers.contains_key(buffer) { 0.0 } else { FORWARD };
        let reads = std::mem::take(&mut self.reads);
        let step = Step { reads, writes, depth, after };
        self.plan.frames[self.frame].events.push(Event::Store(step));
        if self.in_registers.contains_key(buffer) {
            let held: f64 = self.in_registers.values().sum();
            let work = self.work();
            work.accumulators = work.accumulators.max(held);
            return;
        }
        self.put(buffer, index, mask, close);
    }

    /// A store of what was computed from the same element: the next one waits for it. Gives the
    /// cycles that the updates in one iteration wait for each other.
    fn update(&mut self, buffer: &Buffer, index: &Expr, chain: f64, deps: u64) -> f64 {
        let first = self.open.iter().rposition(|open| open.frame.is_some()).map_or(0, |at| at + 1);
        let again = (first..self.open.len()).filter(|place| deps & bit(*place) == 0);
        let updates: f64 = again.map(|place| self.open[place].count).product();
        let updates = updates / self.terms.min(updates);
        let memory = !self.in_registers.contains_key(buffer);
        let forward = match index.ty.lanes {
            _ if !memory => 0.0,
            1 => self.machine.forward_latency,
            _ => self.machine.wide_forward_latency,
        };
        // Updates one after the other stay in a register.
        let close = self.close_updates(deps).min(updates);
        let one = chain * updates + forward * updates / close;
        let number = self.number(buffer);
        let carried = deps & self.loop_bit() == 0 && !self.begun.contains(&(self.frame, number));
        // The loop around comes back to the elements that this one has just written.
        let soon = first > 1 && deps & bit(first - 2) == 0;
        let copies = self.copies_here() / close * self.weight;
        let work = self.work();
        match (carried, memory) {
            (true, false) => work.chain = work.chain.max(one),
            (true, true) => work.memory_chain = work.memory_chain.max(one),
            (false, _) => {
                work.depth = work.depth.max(if updates > 1.0 { one } else { 0.0 });
                if soon && memory {
                    work.run_chain = work.run_chain.max(one);
                }
            }
        }
        if memory {
            work.updates += copies;
        }
        one
    }

    /// How often the innermost unrolled loops update the same element in a row.
    fn close_updates(&self, deps: u64) -> f64 {
        let places = (0..self.open.len()).rev();
        let close =
            places.take_while(|place| self.open[*place].frame.is_none() && deps & bit(*place) == 0);
        close.map(|place| self.open[place].count).product()
    }

    /// A store of something that is in a register, `close` of which become one.
    pub(super) fn put(&mut self, buffer: &Buffer, index: &Expr, mask: Option<&Expr>, close: f64) {
        let sum = self.indices.sum(index);
        let cost = self.access_cost(buffer, &sum, index.ty.lanes);
        let copies = self.copies_here();
        let masked = if mask.is_some() { 1.5 } else { 1.0 };
        if let Some(mask) = mask {
            self.value(mask);
        }
        let times = copies / close * self.weight;
        let bytes = buffer.dtype.bytes() as f64;
        let whole = |elements: f64| (elements * bytes) % 64.0 == 0.0;
        let lines = whole(f64::from(index.ty.lanes)) && mask.is_none();
        let in_lines =
            whole(sum.linear.constant) && sum.linear.terms.iter().all(|term| whole(term.1));
        let past = self.past;
        // Addresses inside of lines are stored to as usual.
        self.past &= in_lines || !lines;
        let work = self.work();
        work.stores += times * cost.moves * masked;
        work.gather += times * cost.gather;
        // A part of a line goes past the caches, the rest brings it back.
        work.calls += if past && !lines { times * MIXED } else { 0.0 };
        if buffer.scope == Scope::Shared {
            self.shared_stores += 1;
        }
        let warped = self.warped(buffer, index, mask, (self.frame, copies / close));
        self.remember(
            buffer,
            sum,
            index.ty.lanes,
            How { write: true, masked: mask.is_some(), warped },
        );
        self.past = past;
    }

    /// Iterations of the unrolled loops around, in the loop at work.
    pub(super) fn copies_here(&self) -> f64 {
        let unrolled = self.open.iter().rev().take_while(|open| open.frame.is_none());
        unrolled.map(|open| open.count).product()
    }

    /// A condition that is tested, and holds in a part of the cases.
    pub(super) fn condition(&mut self, cond: &Expr, holds: f64) {
        let deps = self.value(cond).deps;
        let (frame, copies) = self.spot(deps | self.here());
        let work = &mut self.plan.frames[frame].work;
        work.integers += 2.0 * copies * self.weight;
        work.branches += copies * self.weight * holds.min(1.0 - holds);
    }

    fn access_cost(&self, buffer: &Buffer, sum: &Sum, lanes: u32) -> Cost {
        let (count, bytes) = (f64::from(lanes), buffer.dtype.bytes() as f64);
        let parts = self.parts(count, bytes);
        match sum.lane {
            _ if lanes == 1 => Cost::moves(parts, 1.0),
            Lane::Same => Cost::moves(1.0, 1.0),
            Lane::By(1.0) if self.in_launch => Cost::moves(parts, (count * bytes / 16.0).ceil()),
            Lane::By(1.0) => {
                // A vector that is in two lines takes two turns.
                let width = (count * bytes / parts).min(64.0);
                let whole = |elements: f64| (elements * bytes) % width == 0.0;
                let aligned =
                    whole(sum.linear.constant) && sum.linear.terms.iter().all(|term| whole(term.1));
                let turns = if aligned { 1.0 } else { 1.0 + (width - bytes) / 64.0 };
                Cost::moves(parts, parts * turns)
            }
            _ => Cost { gather: count * self.machine.gather, ..Cost::moves(parts, 0.0) },
        }
    }

    /// Keeps an access for the traffic.
    fn remember(&mut self, buffer: &Buffer, sum: Sum, lanes: u32, how: How) {
        let How { write, masked, warped } = how;
        let bytes = buffer.dtype.bytes() as f64;
        let count = f64::from(lanes);
        let (width, apart) = match sum.lane {
            Lane::By(step) if step.abs() <= 1.0 => (bytes * count, None),
            Lane::By(step) => (bytes, Some((count, (step * bytes).abs()))),
            Lane::Same => (bytes, None),
            Lane::Apart => (bytes, Some((count, bytes))),
        };
        let access = Access {
            buffer: self.memory(buffer),
            frame: self.frame,
            strides: sum.linear.terms.iter().map(|(dim, factor)| (*dim, factor * bytes)).collect(),
            first: sum.linear.constant * bytes,
            width,
            lanes: apart,
            write,
            masked: masked && !write,
            past: write && self.past,
            weight: self.weight,
            irregular: sum.irregular,
            warped,
        };
        self.plan.accesses.push(access);
    }
}

/// What is known of an access beside its addresses.
struct How {
    write: bool,
    masked: bool,
    warped: Option<Warped>,
}

/// What an access costs by itself.
struct Cost {
    /// Registers.
    parts: f64,
    /// Loads or stores.
    moves: f64,
    /// Operations that take columns from rows.
    shuffles: f64,
    /// Cycles for lanes that lie apart.
    gather: f64,
}

impl Cost {
    fn moves(parts: f64, moves: f64) -> Cost {
        Cost { parts, moves, shuffles: 0.0, gather: 0.0 }
    }
}

/// How many different sums loops make, innermost first, each with its factor and its count. Steps
/// of a factor that others step over as well fall together.
pub(super) fn progressions(loops: &[(f64, f64)]) -> f64 {
    let mut sorted = loops.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Multiples of `step` without gaps, as many as `run`.
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

/// The bit of a place in the nest; nests deeper than 63 loops share the last one.
pub(super) fn bit(place: usize) -> u64 {
    1 << place.min(63)
}

/// Whether each thread has a buffer for itself.
fn is_private(buffer: &Buffer) -> bool {
    matches!(buffer.scope, Scope::Local | Scope::Register)
}

/// A number for an access.
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
