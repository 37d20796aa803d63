//! Statements to instructions.

use super::address::Moving;
use super::ahead::Ahead;
use super::emit::{Emitter, Val, view};
use super::range::WORD;
use crate::ir::arith::Interval;
use crate::ir::print::print_expr;
use crate::ir::warp::WarpProduct;
use crate::ir::{Expr, ForKind, Stmt, ThreadIndex, Var};
use crate::target::Gpu;
use nvptx_builder::{Cmp, Guard, Operand, Reg, Source, Special, Ty};

impl Emitter<'_> {
    /// Emits a statement.
    pub(super) fn stmt(&mut self, stmt: &Stmt) {
        self.end_products_before(stmt);
        match stmt {
            Stmt::Block(stmts) => stmts.iter().for_each(|one| self.stmt(one)),
            Stmt::For { var, extent, kind: ForKind::Thread(tag), body, .. } => {
                self.thread_loop(var, extent, *tag, body);
            }
            Stmt::For { var, min, extent, body, .. } => self.serial_loop(var, min, extent, body),
            Stmt::If { cond, then, otherwise } => self.branches(cond, then, otherwise.as_deref()),
            Stmt::Store { buffer, indices, value, mask, .. } => {
                self.store(buffer, indices, value, mask.as_ref());
                self.next_statement();
            }
            Stmt::Let { var, value, body } if !value.ty.is_scalar() => {
                let values = self.lanes(value);
                let values = values.into_iter().map(|value| self.copy_if_mutable(value)).collect();
                self.next_statement();
                self.vectors.insert(var.clone(), values);
                self.stmt(body);
            }
            Stmt::Let { var, value, body } => {
                let value_now = self.expr(value);
                let value_now = self.copy_if_mutable(value_now);
                self.next_statement();
                self.bind(var, value_now);
                if value.ty.dtype.is_int() {
                    let range = self.ranges.of(value);
                    self.ranges.bind(var, range);
                    self.facts.define(var, value);
                    self.definitions.insert(var.clone(), value.clone());
                }
                self.stmt(body);
            }
            Stmt::Allocate { body, .. } => self.stmt(body),
            Stmt::Produce { name, body } => {
                self.e.comment(&format!("produce {name}"));
                self.stmt(body);
            }
            Stmt::Tensorize { name, body } => match WarpProduct::of(name) {
                Some(product) if product.is_by_warpgroup() => self.warpgroup_product(product, body),
                Some(product) => self.warp_product(product, body),
                None => self.stmt(body),
            },
            Stmt::SimdKernel { body } => self.stmt(body),
            Stmt::Barrier => {
                self.flush();
                self.wait_for_copies();
                self.fence_for_products();
                self.e.bar_sync(0);
                self.all_changes += 1;
            }
            Stmt::CopyGroup { body } => self.copy_group(body),
            Stmt::AwaitCopies { in_flight, .. } => {
                self.flush();
                self.wait_for_groups(*in_flight);
                self.fence_for_products();
                self.e.bar_sync(0);
                self.all_changes += 1;
            }
            // A prefetch changes no result, and a GPU has no use for it.
            Stmt::Prefetch { .. } => {}
            Stmt::Assert { message, .. } => crate::bug!("assert {message:?} in a launch"),
            Stmt::Sort(_) => crate::bug!("a sort in a launch"),
        }
    }

    /// Binds the index of a thread or block to its special register.
    fn thread_loop(&mut self, var: &Var, extent: &Expr, index: ThreadIndex, body: &Stmt) {
        let (special, limit) = match index {
            ThreadIndex::Thread(at) => {
                ([Special::TidX, Special::TidY, Special::TidZ][at], Gpu::MAX_BLOCK[at])
            }
            ThreadIndex::Block(at) => {
                ([Special::CtaidX, Special::CtaidY, Special::CtaidZ][at], Gpu::MAX_GRID[at])
            }
            ThreadIndex::Virtual => crate::bug!("a loop over `{index}` is left"),
        };
        if index == ThreadIndex::Thread(0) {
            self.lane = Some(var.clone());
        }
        if index == ThreadIndex::Thread(1) {
            self.warp = Some(var.clone());
        }
        // A launch has no more threads or blocks than `limit`.
        let most = self.ranges.of(extent).hi.clamp(1, limit.into());
        if let ThreadIndex::Thread(_) = index {
            self.block_threads *= most as u64;
        }
        let index = self.e.special(special).s32().erase().operand();
        self.ranges.bind(var, Interval::new(0, most - 1));
        self.facts.bind(var, &Expr::index(0), extent);
        self.bind(var, index);
        self.stmt(body);
    }

    fn serial_loop(&mut self, var: &Var, min: &Expr, extent: &Expr, body: &Stmt) {
        let count = extent.as_int();
        if count.is_some_and(|count| count <= 0) {
            return;
        }
        let (low, trips) = (self.ranges.of(min), self.ranges.of(extent));
        let end_of = Expr::add(min.clone(), extent.clone());
        let last = low.hi.saturating_add(trips.hi.max(1)).saturating_sub(1);
        let range = Interval::new(low.lo, last);
        self.ranges.bind(var, range);
        // The counter also takes the value of the end.
        let counter_range = Interval::new(low.lo, last.saturating_add(1));
        let ty = if WORD.covers(counter_range) { Ty::S32 } else { Ty::S64 };
        let begin = self.expr(min);
        let begin = self.counter_value(ty, begin);
        if count == Some(1) {
            let begin = self.copy_if_mutable(begin);
            self.next_statement();
            self.bind(var, begin);
            self.facts.bind(var, min, extent);
            return self.stmt(body);
        }
        let end = self.expr(&end_of);
        let end = self.counter_value(ty, end);
        let end = self.copy_if_mutable(end);
        self.next_statement();
        self.enter_level(&[body]);
        let (name, from, extent_text) = (var.name(), print_expr(min), print_expr(extent));
        self.e.comment(&format!("for ({name}, {from}, {extent_text})"));
        let done = self.e.label(&format!("{name}_done"));
        if count.is_none() {
            let some = self.e.setp(Cmp::Lt, begin, end);
            self.e.when(!some, |e| e.bra(done));
        }
        let counter = self.e.reg_named_as(ty, name);
        self.e.to(counter).mov(begin);
        self.push();
        self.loops.push(var.clone());
        self.facts.bind(var, min, extent);
        self.bind(var, counter.operand());
        let moving = self.prepare_loop(var, begin, body);
        let copying = self.copying;
        let ahead = self.plan_ahead(body);
        if let Some(ahead) = &ahead {
            self.start_ahead(ahead, var, min);
        }
        self.loop_body((var, counter, end), &moving, body, ahead.as_ref());
        if self.runs_on(body) {
            self.e.wgmma_wait_group(0);
        }
        self.loops.pop();
        self.pop();
        self.vars.remove(var);
        if count.is_none() {
            self.copying |= copying;
            self.e.place(done);
        }
    }

    fn loop_body(
        &mut self,
        (var, counter, end): (&Var, Reg, Val),
        moving: &[Moving],
        body: &Stmt,
        ahead: Option<&Ahead<'_>>,
    ) {
        let next = self.e.label(var.name());
        self.e.place(next);
        self.all_changes += 1;
        self.push();
        match ahead {
            Some(ahead) => self.body_ahead(ahead, var, (counter, end)),
            None if self.runs_on(body) => self.body_running_on(body),
            None => self.stmt(body),
        }
        self.end_products();
        self.wait_in_loop(body);
        self.leave_level();
        self.pop();
        self.all_changes += 1;
        self.move_on(moving);
        let one = Operand::int(counter.ty(), 1);
        self.e.to(counter).add(counter.operand(), one);
        let more = self.e.setp(Cmp::Lt, counter.operand(), end);
        self.e.when(more, |e| e.bra(next));
    }

    fn counter_value(&mut self, ty: Ty, value: Val) -> Val {
        if ty == Ty::S32 { self.narrow(value) } else { self.widen(value) }
    }

    fn branches(&mut self, cond: &Expr, then: &Stmt, otherwise: Option<&Stmt>) {
        if let Some(value) = cond.as_int() {
            return match (value != 0, otherwise) {
                (true, _) => self.stmt(then),
                (false, Some(otherwise)) => self.stmt(otherwise),
                (false, None) => {}
            };
        }
        let pred = self.expr(cond).reg().expect("conditions are predicates");
        self.next_statement();
        if otherwise.is_none() && self.guarded_statement(pred, then) {
            return;
        }
        let both: Vec<&Stmt> = std::iter::once(then).chain(otherwise).collect();
        self.enter_level(&both);
        let skip = self.e.label(if otherwise.is_some() { "else" } else { "skip" });
        self.e.when(!Guard::from(pred), |e| e.bra(skip));
        let copying = self.copying;
        self.inner(then);
        self.leave_level();
        let Some(otherwise) = otherwise else {
            self.copying |= copying;
            self.e.place(skip);
            return;
        };
        let after_then = std::mem::replace(&mut self.copying, copying);
        self.enter_level(&[]);
        let done = self.e.label("end");
        self.e.bra(done);
        self.e.place(skip);
        self.inner(otherwise);
        self.copying |= after_then;
        self.leave_level();
        self.e.place(done);
    }

    fn inner(&mut self, stmt: &Stmt) {
        self.push();
        self.stmt(stmt);
        self.end_products();
        self.pop();
    }

    /// Binds a variable to a parameter of an entry.
    pub(super) fn bind_index(&mut self, var: &Var, loaded: Reg) {
        let value = loaded.operand();
        let value = match WORD.covers(self.ranges.of(&Expr::var(var))) {
            true => self.narrow(value),
            false => view(value, Ty::S64),
        };
        self.bind(var, value);
    }
}
