//! The walk over a stage: visits every load with the conditions under which it is evaluated.
//!
//! The branches of `if_then_else`, the right sides of `and` and `or`, and the terms of a reduction
//! with `where=` are evaluated under a condition; both branches of a `select` always are.

use super::walker::Walker;
use super::{Checker, decide, overflow, steps};
use crate::ir::arith::flatten_logic;
use crate::ir::visit::for_each_child;
use crate::ir::{BinOp, DType, Expr, ExprKind};
use crate::te::{Axis, Body, Stage};
use rustc_hash::{FxHashMap, FxHashSet};

/// The number of visits of one stage after which the walk ignores conditions: an expression with
/// shared subterms can have exponentially many paths.
const MAX_VISITS: usize = 400_000;
/// The number of operands of one connective whose truth the later operands may use.
const MAX_LEARNT: usize = 32;

/// Checks the loads and the `index` arithmetic of a stage.
/// `place` is its place in the graph.
pub(super) fn check_stage(stage: &Stage, place: usize, checker: &mut Checker) {
    if stage.axes.iter().any(is_empty) {
        return;
    }
    checker.made.clear();
    checker.facts.push();
    let mut walker = Walker {
        spans: stage.load_spans.iter().copied().collect(),
        stage_span: stage.span,
        place,
        steps: stage.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps),
        axes: Vec::new(),
        guards: Vec::new(),
        state: 0,
        states: FxHashMap::default(),
        seen: FxHashSet::default(),
        visits: 0,
        intervals: FxHashMap::default(),
        checker,
    };
    walker.bind(&stage.axes);
    walker.update(stage);
    match &stage.body {
        Body::Map(values) => {
            values.iter().for_each(|value| walker.expr(value));
            walker.note_limits(stage);
        }
        Body::Reduce(reduction) => {
            reduction.identity.iter().for_each(|value| walker.expr(value));
            if !reduction.axes.iter().any(is_empty) {
                walker.checker.facts.push();
                walker.bind(&reduction.axes);
                // Visit shared expressions again, inside the reduction axes.
                walker.state = walker.next_state((usize::MAX, 0, true));
                if let Some(condition) = &reduction.condition {
                    walker.expr(condition);
                    walker.enter(condition, true);
                }
                reduction.terms.iter().for_each(|value| walker.expr(value));
                walker.note_limits(stage);
                if reduction.condition.is_some() {
                    walker.leave();
                }
                walker.checker.facts.pop();
                walker.limit_starts(stage);
            }
        }
        Body::Sort(sort) => {
            walker.expr(&sort.at);
            overflow::check_index(&mut walker, &sort.at);
            decide::check_rank(&mut walker, sort, &stage.name, stage.span);
            walker.bind(std::slice::from_ref(&sort.axis));
            walker.state = walker.next_state((usize::MAX, 0, true));
            walker.expr(&sort.key);
            sort.values.iter().for_each(|value| walker.expr(value));
            walker.note_limits(stage);
        }
    }
    checker.facts.pop();
}

fn is_empty(axis: &Axis) -> bool {
    axis.extent.as_int().is_some_and(|extent| extent <= 0)
}

impl Walker<'_> {
    fn bind(&mut self, axes: &[Axis]) {
        for axis in axes {
            self.checker.facts.bind(&axis.var, &axis.min, &axis.extent);
            self.axes.push(axis.clone());
        }
    }

    /// Checks the elements that an `update` writes.
    fn update(&mut self, stage: &Stage) {
        let Some(update) = &stage.update else { return };
        let axes: Vec<Expr> = stage.axes.iter().map(|axis| Expr::var(&axis.var)).collect();
        for (dim, index) in update.place(&axes).iter().enumerate() {
            overflow::check_index(self, index);
            decide::check_index(self, &update.before, dim, index, stage.span);
        }
    }

    fn next_state(&mut self, key: (usize, usize, bool)) -> usize {
        let next = self.states.len() + 1;
        *self.states.entry(key).or_insert(next)
    }

    /// Opens a scope in which `cond` is `truth`.
    fn enter(&mut self, cond: &Expr, truth: bool) {
        self.checker.facts.push();
        self.learn(cond, truth);
    }

    fn learn(&mut self, cond: &Expr, truth: bool) {
        self.checker.facts.assume_truth(cond, truth);
        self.guards.push((cond.clone(), truth));
        self.state = self.next_state((self.state, cond.id(), truth));
    }

    /// Closes a scope of one condition.
    fn leave(&mut self) {
        self.guards.pop();
        self.checker.facts.pop();
    }

    fn within(&mut self, cond: &Expr, truth: bool, expr: &Expr) {
        if self.visits > MAX_VISITS {
            return self.expr(expr);
        }
        let state = self.state;
        self.enter(cond, truth);
        self.expr(expr);
        self.leave();
        self.state = state;
    }

    fn expr(&mut self, expr: &Expr) {
        if matches!(expr.kind, ExprKind::Const(_) | ExprKind::Var(_))
            || !self.seen.insert((expr.id(), self.state))
        {
            return;
        }
        self.visits += 1;
        if expr.ty.dtype == DType::Index {
            overflow::check_index(self, expr);
        }
        self.children(expr);
        if let ExprKind::Load { buffer, indices, .. } = &expr.kind {
            let span = self.spans.get(&expr.id()).copied().unwrap_or(self.stage_span);
            for (dim, index) in indices.iter().enumerate() {
                decide::check_index(self, buffer, dim, index, span);
            }
            steps::check_step(self, buffer, indices, span);
        }
    }

    fn children(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::IfThenElse(c, t, f) => {
                self.expr(c);
                self.within(c, true, t);
                self.within(c, false, f);
            }
            ExprKind::Binary(op @ (BinOp::And | BinOp::Or), ..) => self.connective(*op, expr),
            _ => for_each_child(expr, &mut |child| self.expr(child)),
        }
    }

    fn connective(&mut self, op: BinOp, expr: &Expr) {
        let (state, known) = (self.state, self.guards.len());
        self.checker.facts.push();
        for (at, part) in flatten_logic(op, expr).iter().enumerate() {
            self.expr(part);
            if at < MAX_LEARNT && self.visits <= MAX_VISITS {
                self.learn(part, op == BinOp::And);
            }
        }
        self.guards.truncate(known);
        self.checker.facts.pop();
        self.state = state;
    }
}
