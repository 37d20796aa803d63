//! The state of the walk over a stage, and the dependences of expressions on it.

use super::Checker;
use crate::diag::Span;
use crate::ir::arith::Interval;
use crate::ir::visit::for_each_child;
use crate::ir::{Expr, ExprKind, Var};
use crate::te::Axis;
use rustc_hash::{FxHashMap, FxHashSet};

/// The state of a walk over a stage.
pub(super) struct Walker<'a> {
    pub(super) checker: &'a mut Checker,
    pub(super) spans: FxHashMap<usize, Span>,
    pub(super) stage_span: Span,
    /// The place of the stage in the graph.
    pub(super) place: usize,
    /// The number of axes of the steps of its recurrence, which are the first of `axes`.
    pub(super) steps: usize,
    /// The enclosing axes, outermost first.
    pub(super) axes: Vec<Axis>,
    /// The enclosing conditions, outermost first, each with its truth.
    pub(super) guards: Vec<(Expr, bool)>,
    /// The number that identifies the enclosing conditions.
    pub(super) state: usize,
    pub(super) states: FxHashMap<(usize, usize, bool), usize>,
    pub(super) seen: FxHashSet<(usize, usize)>,
    pub(super) visits: usize,
    /// The constant bounds of `index` operations, by node and state.
    pub(super) intervals: FxHashMap<(usize, usize), Interval>,
}

/// A condition that must hold at every point of the domain where the enclosing conditions hold.
pub(super) struct EntryCheck {
    pub(super) cond: Expr,
    pub(super) message: String,
    pub(super) values: Vec<Expr>,
}

/// Calls `f` on every variable of an expression; visits shared nodes once.
pub(super) fn for_each_var(expr: &Expr, seen: &mut FxHashSet<usize>, f: &mut dyn FnMut(&Var)) {
    if !seen.insert(expr.id()) {
        return;
    }
    if let Some(var) = expr.as_var() {
        f(var);
    }
    for_each_child(expr, &mut |child| for_each_var(child, seen, f));
}

/// The dependences of an expression.
#[derive(Default)]
pub(super) struct Profile {
    /// The axes, as indices of the enclosing axes, ascending.
    pub(super) axes: Vec<usize>,
    /// Whether it depends on run-time integers.
    pub(super) runtime: bool,
    /// Whether it depends on the values of inputs.
    pub(super) inputs: bool,
    /// The stages that it reads, whose elements are unknown on entry.
    pub(super) stages: Vec<String>,
    /// Whether it depends on anything else that the entry cannot evaluate.
    pub(super) unknown: bool,
}

impl Profile {
    /// Whether the checked entry can evaluate it.
    pub(super) fn at_entry(&self) -> bool {
        self.stages.is_empty() && !self.unknown
    }

    /// Whether the compiler can evaluate it.
    pub(super) fn constant(&self) -> bool {
        self.at_entry() && !self.inputs && !self.runtime
    }
}

impl Walker<'_> {
    /// Returns the place for errors without a load: the stage.
    pub(super) fn default_span(&self) -> Span {
        self.stage_span
    }

    /// Returns the enclosing conditions that the entry can evaluate. The others may hold or not.
    pub(super) fn guards_at_entry(&self) -> Vec<(Expr, bool)> {
        let at_entry = |(cond, _): &&(Expr, bool)| self.profile([cond]).at_entry();
        self.guards.iter().filter(at_entry).cloned().collect()
    }

    /// Returns the dependences of several expressions and of the extents of their axes.
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
