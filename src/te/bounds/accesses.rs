//! The walk over a stage: every load with the conditions under which it is evaluated.
//!
//! `if_then_else` and the right sides of `and` and `or` are evaluated where their condition lets
//! them, the terms of a reduction where its `where=` does; both branches of a `select` are.

use super::{Checker, decide, overflow};
use crate::diag::Span;
use crate::ir::arith::{Interval, flatten_logic};
use crate::ir::visit::for_each_child;
use crate::ir::{BinOp, DType, Expr, ExprKind, Var};
use crate::te::{Axis, Body, Stage};
use rustc_hash::{FxHashMap, FxHashSet};

/// Visits of one stage, after which conditions are no longer told apart: an expression that
/// shares subterms can have exponentially many paths.
const MAX_VISITS: usize = 400_000;
/// Operands of one connective whose truth is known to the operands after them.
const MAX_LEARNT: usize = 32;

/// Checks the loads and the `index` arithmetic of a stage.
pub(super) fn check_stage(stage: &Stage, checker: &mut Checker) {
    if stage.axes.iter().any(is_empty) {
        return;
    }
    checker.made.clear();
    checker.facts.push();
    let mut walker = Walker {
        spans: stage.load_spans.iter().copied().collect(),
        stage_span: stage.span,
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
    match &stage.body {
        Body::Map(values) => values.iter().for_each(|value| walker.expr(value)),
        Body::Reduce(reduction) => {
            reduction.identity.iter().for_each(|value| walker.expr(value));
            if !reduction.axes.iter().any(is_empty) {
                walker.bind(&reduction.axes);
                // What was visited outside the reduction axes is visited again inside.
                walker.state = walker.next_state((usize::MAX, 0, true));
                if let Some(condition) = &reduction.condition {
                    walker.expr(condition);
                    walker.enter(condition, true);
                }
                reduction.terms.iter().for_each(|value| walker.expr(value));
                if reduction.condition.is_some() {
                    walker.leave();
                }
            }
        }
    }
    checker.facts.pop();
}

fn is_empty(axis: &Axis) -> bool {
    axis.extent.as_int().is_some_and(|extent| extent <= 0)
}

/// The state of a walk; `decide` and `overflow` read it.
pub(super) struct Walker<'a> {
    pub(super) checker: &'a mut Checker,
    spans: FxHashMap<usize, Span>,
    stage_span: Span,
    /// Axes in force, outermost first.
    pub(super) axes: Vec<Axis>,
    /// Conditions in force, outermost first, each with its truth.
    pub(super) guards: Vec<(Expr, bool)>,
    /// Number of the conditions in force; equal numbers, equal conditions.
    pub(super) state: usize,
    states: FxHashMap<(usize, usize, bool), usize>,
    seen: FxHashSet<(usize, usize)>,
    visits: usize,
    /// Constant bounds of `index` operations, by node and state.
    pub(super) intervals: FxHashMap<(usize, usize), Interval>,
}

impl Walker<'_> {
    fn bind(&mut self, axes: &[Axis]) {
        for axis in axes {
            self.checker.facts.bind(&axis.var, &axis.min, &axis.extent);
            self.axes.push(axis.clone());
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

    /// Closes a scope that learnt one condition.
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

    /// The smallest source range known around the current expression.
    pub(super) fn default_span(&self) -> Span {
        self.stage_span
    }
}

/// Calls `f` on every variable of an expression, shared nodes once.
pub(super) fn for_each_var(expr: &Expr, seen: &mut FxHashSet<usize>, f: &mut dyn FnMut(&Var)) {
    if !seen.insert(expr.id()) {
        return;
    }
    if let Some(var) = expr.as_var() {
        f(var);
    }
    for_each_child(expr, &mut |child| for_each_var(child, seen, f));
}

/// What an expression depends on.
#[derive(Default)]
pub(super) struct Profile {
    /// Axes by their place among those in force, ascending.
    pub(super) axes: Vec<usize>,
    /// Run-time integers.
    pub(super) runtime: bool,
    /// Values that exist at the entry but not when the kernel is compiled.
    pub(super) inputs: bool,
    /// Names of stages it reads: unknown at the entry.
    pub(super) stages: Vec<String>,
    /// Something else that the entry cannot evaluate.
    pub(super) unknown: bool,
}

impl Profile {
    /// True if the checked entry can evaluate it.
    pub(super) fn at_entry(&self) -> bool {
        self.stages.is_empty() && !self.unknown
    }

    /// True if the compiler can.
    pub(super) fn constant(&self) -> bool {
        self.at_entry() && !self.inputs && !self.runtime
    }
}

impl Walker<'_> {
    /// What these expressions depend on together, and the extents of their axes with them.
    pub(super) fn profile<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Profile {
        let mut profile = Profile::default();
        let mut seen = FxHashSet::default();
        for expr in exprs {
            self.add_to_profile(expr, &mut seen, &mut profile);
        }
        for at in 0..self.axes.len() {
            if profile.axes.contains(&at) {
                let axis = &self.axes[at];
                self.add_to_profile(&axis.min, &mut seen, &mut profile);
                self.add_to_profile(&axis.extent, &mut seen, &mut profile);
            }
        }
        profile.axes.sort_unstable();
        profile
    }

    fn add_to_profile(&self, expr: &Expr, seen: &mut FxHashSet<usize>, profile: &mut Profile) {
        if !seen.insert(expr.id()) {
            return;
        }
        match &expr.kind {
            ExprKind::Var(var) => {
                if let Some(at) = self.axes.iter().rposition(|axis| axis.var == *var) {
                    if !profile.axes.contains(&at) {
                        profile.axes.push(at);
                    }
                } else if self.checker.runtime.contains(var) {
                    profile.runtime = true;
                } else if self.checker.scalars.contains(var) {
                    profile.inputs = true;
                } else {
                    profile.unknown = true;
                }
            }
            ExprKind::Load { buffer, .. } => {
                if self.checker.inputs.contains(buffer) {
                    profile.inputs = true;
                } else if !profile.stages.contains(&buffer.name) {
                    profile.stages.push(buffer.name.clone());
                }
            }
            _ => {}
        }
        for_each_child(expr, &mut |child| self.add_to_profile(child, seen, profile));
    }
}
