//! Delays stores to shared memory of values from global memory, up to a barrier, the end of a
//! loop's body, or an access to possibly the same elements. So the latency of the loads overlaps
//! with other work.
//!
//! Before: `ld.global a; st.shared next, a; (work on current)`
//! After:  `ld.global a; (work on current); st.shared next, a`

use super::address::{Atom, Term};
use super::emit::{Emitter, Memory, Place, Val};
use crate::ir::arith::Interval;
use crate::ir::visit::{NodeSet, for_each_child, for_each_expr, for_each_load, for_each_stmt};
use crate::ir::{BinOp, DType, Expr, ExprKind, Scope, Stmt};
use nvptx_builder::{Address, Reg, Space};
use rustc_hash::FxHashSet;

/// Most values that are delayed, because registers are few.
const MAX_DELAYED_VALUES: usize = 32;

/// The elements that an access touches: the terms of its index, and the range of the constants of
/// its lanes.
#[derive(Clone)]
pub(super) struct TouchedElements {
    terms: Vec<Term>,
    constants: Interval,
}

/// Delayed stores, whose values are computed.
pub(super) struct Pending {
    memory: Memory,
    touched: TouchedElements,
    dtype: DType,
    /// The stores with their values.
    stores: Vec<(Address, Vec<Val>)>,
    /// The predicate of the stores.
    guard: Option<Reg>,
}

impl Emitter<'_> {
    /// The elements that an access touches; `None` if its index depends on memory.
    pub(super) fn touched_elements(&mut self, index: &Expr) -> Option<TouchedElements> {
        let (first, reach) = match &index.kind {
            ExprKind::Ramp(base, stride) => {
                let step = Interval::point(stride.as_int()?);
                (base, step.mul(Interval::new(0, i128::from(index.ty.lanes) - 1)))
            }
            _ if index.ty.is_scalar() => (index, Interval::point(0)),
            _ => return None,
        };
        let (terms, constant) = self.access_key(first)?;
        Some(TouchedElements { terms, constants: reach.add(Interval::point(constant)) })
    }

    /// Whether a store can be delayed: one to shared memory of a value from global memory.
    pub(super) fn can_delay(&self, memory: &Memory, value: &Expr) -> bool {
        memory.space == Space::Shared && self.reads_global(value, &mut FxHashSet::default())
    }

    fn reads_global(&self, expr: &Expr, seen: &mut FxHashSet<usize>) -> bool {
        if !seen.insert(expr.id()) {
            return false;
        }
        if let ExprKind::Load { buffer, .. } = &expr.kind {
            return buffer.scope == Scope::Global;
        }
        let mut found = false;
        for_each_child(expr, &mut |child| found = found || self.reads_global(child, seen));
        found
    }

    /// Delays stores.
    pub(super) fn delay(
        &mut self,
        memory: &Memory,
        touched: TouchedElements,
        dtype: DType,
        stores: Vec<(Address, Vec<Val>)>,
    ) {
        let stores: Vec<(Address, Vec<Val>)> = stores
            .into_iter()
            .map(|(address, values)| {
                (address, values.into_iter().map(|value| self.copy_if_mutable(value)).collect())
            })
            .collect();
        let guard = self.guard;
        let count =
            |one: &Pending| one.stores.iter().map(|(_, values)| values.len()).sum::<usize>();
        let memory = memory.clone();
        let level = self.pending.last_mut().expect("there is the outermost level");
        level.push(Pending { memory, touched, dtype, stores, guard });
        if level.iter().map(count).sum::<usize>() > MAX_DELAYED_VALUES {
            self.flush();
        }
    }

    /// Emits the delayed stores of this level.
    pub(super) fn flush(&mut self) {
        let level = self.pending.last_mut().expect("there is the outermost level");
        for one in std::mem::take(level) {
            for (address, values) in one.stores {
                self.store_chunk(&one.memory, one.dtype, address, &values, one.guard);
            }
        }
    }

    /// Emits the delayed stores if an access may touch their elements.
    pub(super) fn flush_for(&mut self, memory: &Memory, index: &Expr) {
        if self.pending.iter().all(Vec::is_empty) || memory.space != Space::Shared {
            return;
        }
        if self.conflicts(memory.id, index) {
            self.flush();
        }
    }

    /// Enters code that may run zero or several times. Emits the delayed stores that affect it.
    pub(super) fn enter_level(&mut self, body: &[&Stmt]) {
        if self.pending.iter().any(|level| !level.is_empty())
            && body.iter().any(|stmt| self.needs_flush(stmt))
        {
            self.flush();
        }
        self.pending.push(Vec::new());
    }

    /// Leaves such code.
    pub(super) fn leave_level(&mut self) {
        self.flush();
        self.pending.pop();
    }

    fn conflicts(&mut self, memory: u32, index: &Expr) -> bool {
        let waiting: Vec<TouchedElements> = self
            .pending
            .iter()
            .flatten()
            .filter(|one| one.memory.id == memory)
            .map(|one| one.touched.clone())
            .collect();
        if waiting.is_empty() {
            return false;
        }
        match self.touched_elements(index) {
            None => true,
            Some(touched) => waiting.iter().any(|other| !self.are_disjoint(&touched, other)),
        }
    }

    /// Whether a statement contains a barrier, or may touch elements of delayed stores.
    fn needs_flush(&mut self, stmt: &Stmt) -> bool {
        if matches!(stmt, Stmt::Barrier | Stmt::AwaitCopies { .. }) {
            return true;
        }
        let mut accesses = Vec::new();
        if let Stmt::Store { buffer, indices, .. } = stmt {
            accesses.push((buffer.clone(), indices[0].clone()));
        }
        for_each_expr(stmt, &mut |expr| {
            for_each_load(expr, &mut NodeSet::default(), &mut |buffer, indices, _| {
                accesses.push((buffer.clone(), indices[0].clone()));
            })
        });
        for (buffer, index) in accesses {
            if let Some(Place::Memory(memory)) = self.places.get(&buffer) {
                let id = memory.id;
                if self.conflicts(id, &index) {
                    return true;
                }
            }
        }
        let mut found = false;
        for_each_stmt(stmt, &mut |inner| found = found || self.needs_flush(inner));
        found
    }

    /// Whether two accesses of one buffer provably touch different elements.
    fn are_disjoint(&mut self, a: &TouchedElements, b: &TouchedElements) -> bool {
        if a.terms == b.terms {
            return a.constants.hi < b.constants.lo || b.constants.hi < a.constants.lo;
        }
        // Different copies of a double buffer: `size * (x % copies)` with different remainders, and
        // the other terms within one copy.
        let (Some((term, rest_a)), Some((other, rest_b))) = (self.copy_of(a), self.copy_of(b))
        else {
            return false;
        };
        let (size, copies) = (term.1, term.2);
        if (size, copies) != (other.1, other.2) {
            return false;
        }
        let difference = Expr::sub(term.0, other.0);
        let poly = self.access_key(&difference);
        let apart = poly.is_some_and(|(terms, c)| terms.is_empty() && c % copies != 0);
        let inside = Interval::new(0, size - 1);
        apart && inside.covers(rest_a) && inside.covers(rest_b)
    }

    /// The term that selects a copy of a double buffer, as (dividend, size of a copy, number of
    /// copies), and the bounds of the other terms.
    fn copy_of(&mut self, touched: &TouchedElements) -> Option<((Expr, i128, i128), Interval)> {
        let mut found = None;
        let mut rest = Vec::new();
        for (factors, scale) in &touched.terms {
            if let ([Atom::Number(number)], true) = (&factors[..], found.is_none())
                && let ExprKind::Binary(BinOp::FloorMod, x, n) = &self.numbers.expr(*number).kind
                && let Some(copies) = n.as_int().filter(|n| *n > 1)
                // Thread indices are split by remainders too, but only copies depend on a loop.
                && self.depth_of(x) > 0
            {
                found = Some((x.clone(), *scale, copies));
            } else {
                rest.push((factors.clone(), *scale));
            }
        }
        let range = self.range_of(&rest, &[]).add(touched.constants);
        found.filter(|(_, size, _)| *size > 0).map(|found| (found, range))
    }
}
