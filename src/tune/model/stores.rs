//! The cost of stores: chains of updates, registers that hold the elements, nontemporal stores.

use super::ops::{AccessTraits, LOAD_LATENCY, bit};
use super::plan::{Event, Step};
use super::walk::Walker;
use crate::ir::{Buffer, Expr, Scope};

/// Cycles until a stored value can be loaded.
const STORE_FORWARD_LATENCY: f64 = 6.0;
/// Stores of a vector whose address is aligned to 16 bytes: one in two is aligned to 32.
const NONTEMPORAL_PARTS: f64 = 3.0;
/// Cycles of a nontemporal store that writes part of a line. Fitted on Zen 5.
const PARTIAL_LINE_CYCLES: f64 = 400.0;
/// Ordinary updates of an element in memory that a masked one counts as: a masked store is not
/// forwarded to the next load. Fitted on Zen 5.
const MASKED_UPDATES: f64 = 8.0;

impl Walker<'_> {
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
            let one = self.update(buffer, index, (chain, deps), mask.is_some());
            depth = depth.max(LOAD_LATENCY + one);
            close = self.close_updates(deps);
        }
        let writes = self.number(buffer);
        if value.chain.is_none() {
            self.begun.insert((self.frame, writes));
        }
        let after =
            if self.in_registers.contains_key(buffer) { 0.0 } else { STORE_FORWARD_LATENCY };
        let reads = std::mem::take(&mut self.reads);
        let bytes = buffer.dtype.bytes() as f64;
        // Unrolled copies compute their values one after the other, but add terms in turns.
        let copies = if 2.0 * value.depth >= depth { self.copies_here() } else { 1.0 };
        let parts = copies * self.parts(f64::from(index.ty.lanes), bytes);
        let step = Step { reads, writes, depth, parts, after };
        let work = self.work();
        work.parts = work.parts.max(parts);
        self.plan.frames[self.frame].events.push(Event::Store(step));
        if self.in_registers.contains_key(buffer) {
            let held: f64 = self.in_registers.values().sum();
            let scalar = index.ty.lanes == 1 && !self.in_simd_kernel && !self.in_launch;
            let work = self.work();
            let registers =
                if scalar { &mut work.scalar_accumulators } else { &mut work.accumulators };
            *registers = registers.max(held);
            return;
        }
        self.put(buffer, index, mask, close);
    }

    /// Counts a store that updates its element, for which the next update waits. Returns the cycles
    /// of the chain of updates in one iteration.
    fn update(
        &mut self,
        buffer: &Buffer,
        index: &Expr,
        (chain, deps): (f64, u64),
        masked: bool,
    ) -> f64 {
        let first =
            self.enclosing.iter().rposition(|open| open.frame.is_some()).map_or(0, |at| at + 1);
        let again = (first..self.enclosing.len()).filter(|place| deps & bit(*place) == 0);
        let updates: f64 = again.map(|place| self.enclosing[place].count).product();
        let memory = !self.in_registers.contains_key(buffer);
        let forward = match index.ty.lanes {
            _ if !memory => 0.0,
            1 => self.machine.forward_latency,
            _ => self.machine.wide_forward_latency,
        };
        // Successive updates stay in a register.
        let close = self.close_updates(deps).min(updates);
        let one = chain * updates + forward * updates / close;
        let number = self.number(buffer);
        let carried = deps & self.loop_bit() == 0 && !self.begun.contains(&(self.frame, number));
        // The enclosing loop updates the elements that this loop has just written.
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
            work.updates += copies * if masked { MASKED_UPDATES } else { 1.0 };
        }
        one
    }

    /// Returns how often the innermost unrolled loops update the same element in succession.
    pub(super) fn close_updates(&self, deps: u64) -> f64 {
        let places = (0..self.enclosing.len()).rev();
        let close = places
            .take_while(|place| self.enclosing[*place].frame.is_none() && deps & bit(*place) == 0);
        close.map(|place| self.enclosing[place].count).product()
    }

    /// Counts a store of a register; `close` successive stores become one.
    pub(super) fn put(&mut self, buffer: &Buffer, index: &Expr, mask: Option<&Expr>, close: f64) {
        let sum = self.indices.sum(index);
        let cost = self.access_cost(buffer, &sum, index.ty.lanes);
        self.index_work(index);
        self.note_scatter(buffer, &cost, mask.is_none().then_some(index.ty.lanes));
        let copies = self.copies_here();
        let masked = mask.map_or(1.0, |mask| self.masked_stores(mask));
        if let Some(mask) = mask {
            self.value(mask);
        }
        let times = copies / close * self.weight;
        let bytes = buffer.dtype.bytes() as f64;
        let whole = |elements: f64, part: f64| (elements * bytes) % part == 0.0;
        let aligned_to = |part: f64| {
            let mut terms = sum.linear.terms.iter();
            whole(sum.linear.constant, part) && terms.all(|term| whole(term.1, part))
        };
        // Vectors at other addresses are stored in parts of 16 bytes, which fill the lines of rows
        // that follow each other, or by ordinary stores.
        let parts = whole(f64::from(index.ty.lanes), 16.0) && mask.is_none();
        let nontemporal = self.nontemporal;
        self.nontemporal &= aligned_to(16.0) || !parts;
        let in_parts = self.nontemporal && parts && !aligned_to(64.0);
        let split = if in_parts { NONTEMPORAL_PARTS } else { 1.0 };
        let width = f64::from(index.ty.lanes) * bytes;
        let fills =
            parts && (!self.nontemporal || self.fills_lines(buffer, &sum, width, !in_parts));
        let work = self.work();
        work.stores += times * cost.moves * masked * split;
        work.gather += times * cost.gather;
        // A partly written line is evicted and loaded again for the rest.
        work.calls += if nontemporal && !fills { times * PARTIAL_LINE_CYCLES } else { 0.0 };
        if buffer.scope == Scope::Shared {
            self.shared_stores += 1;
        }
        let placement = (self.frame, copies / close);
        let warp = self.warp_access(buffer, index, mask, placement, true);
        self.remember(
            buffer,
            sum,
            index.ty.lanes,
            AccessTraits { write: true, masked: mask.is_some(), iterations: 1.0, row: None, warp },
        );
        self.nontemporal = nontemporal;
    }
}
