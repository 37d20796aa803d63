//! What is known of the elements of an integer stage, for indices that read it: `v[t[i]]`.
//!
//! A limit holds for every element, whatever the schedule: it is proved of the definition.
//! Sources: the values of a stage without reduction; those that a sort chooses from; the start
//! value and the terms of a reduction that returns one of them, as `max` and `argmax` do.

use super::walker::Walker;
use crate::ir::arith::Facts;
use crate::ir::visit::{NodeSet, for_each_load, walk_nodes};
use crate::ir::{BinOp, Buffer, Expr, ExprKind, Var};
use crate::te::{Body, Combiner, Graph, Input, Stage};
use rustc_hash::FxHashSet;

/// Limits of all elements of a stage, as `index` expressions of run-time integers.
#[derive(Clone, Default)]
pub(super) struct Limits {
    at_least: Vec<Expr>,
    at_most: Vec<Expr>,
}

impl Limits {
    /// Removes the limits that are not proved of `value`.
    fn retain_proved(&mut self, facts: &Facts, value: &Expr) {
        match facts.as_index(value) {
            Some(value) => {
                self.at_least.retain(|least| facts.prove(&Expr::le(least.clone(), value.clone())));
                self.at_most.retain(|most| facts.prove(&Expr::le(value.clone(), most.clone())));
            }
            None => *self = Limits::default(),
        }
    }
}

/// Returns the tensors that are read inside of indices and are not inputs, and those that the
/// values of these read.
pub(super) fn read_in_indices(graph: &Graph) -> FxHashSet<Buffer> {
    let (mut found, mut seen) = (FxHashSet::default(), NodeSet::default());
    let mut computed = graph.stages.iter().flat_map(|stage| &stage.buffers);
    if !computed.any(|buffer| buffer.dtype.is_int()) {
        return found;
    }
    let mut inner = NodeSet::default();
    let mut collect = |index: &Expr| {
        for_each_load(index, &mut inner, &mut |buffer, _, _| {
            found.insert(buffer.clone());
        });
    };
    for stage in &graph.stages {
        if let Body::Sort(sort) = &stage.body {
            collect(&sort.at);
        }
        stage.body.for_each_expr(&mut |value| {
            for_each_load(value, &mut seen, &mut |_, indices, _| {
                indices.iter().for_each(&mut collect);
            });
        });
    }
    for stage in graph.stages.iter().rev() {
        if stage.buffers.iter().any(|buffer| found.contains(buffer)) {
            stage.body.for_each_expr(&mut |value| {
                for_each_load(value, &mut NodeSet::default(), &mut |buffer, _, _| {
                    found.insert(buffer.clone());
                });
            });
        }
    }
    found
}

/// Returns the extents of the graph that are not constants.
pub(super) fn symbolic_extents(graph: &Graph, facts: &Facts) -> Vec<Expr> {
    let inputs = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, .. } => Some(buffer),
        Input::Scalar { .. } => None,
    });
    let computed = graph.stages.iter().flat_map(|stage| &stage.buffers);
    let shapes = inputs.chain(computed).flat_map(|buffer| buffer.shape.iter().cloned());
    let reduced = graph.stages.iter().flat_map(|stage| match &stage.body {
        Body::Reduce(reduction) => reduction.axes.iter().map(|axis| axis.extent.clone()).collect(),
        Body::Sort(sort) => vec![sort.axis.extent.clone()],
        Body::Map(_) => Vec::new(),
    });
    let mut seen = FxHashSet::default();
    let symbolic = shapes.chain(reduced).filter(|extent| extent.as_int().is_none());
    symbolic.filter(|extent| seen.insert(facts.key(extent))).collect()
}

/// Whether a component of the result of a combiner is always that of one of its operands.
fn chooses(combiner: &Combiner, component: usize) -> bool {
    fn of(result: &Expr, operands: [&Var; 2]) -> bool {
        match &result.kind {
            ExprKind::Var(var) => operands.contains(&var),
            ExprKind::Binary(BinOp::Min | BinOp::Max, a, b)
            | ExprKind::Select(_, a, b)
            | ExprKind::IfThenElse(_, a, b) => of(a, operands) && of(b, operands),
            _ => false,
        }
    }
    of(&combiner.result[component], [&combiner.lhs[component], &combiner.rhs[component]])
}

/// The values of which an element of a component of a stage is one.
struct Sources<'s> {
    /// The value of a stage without reduction, the term of a reduction, or what is sorted.
    value: &'s Expr,
    /// The start value of a reduction, over the data axes alone.
    start: Option<&'s Expr>,
}

fn sources(stage: &Stage, component: usize) -> Option<Sources<'_>> {
    if stage.recurrence.is_some() || stage.update.is_some() {
        return None;
    }
    match &stage.body {
        Body::Map(values) => Some(Sources { value: &values[component], start: None }),
        Body::Sort(sort) => Some(Sources { value: &sort.values[component], start: None }),
        Body::Reduce(reduction) if chooses(&reduction.combiner, component) => Some(Sources {
            value: &reduction.terms[component],
            start: Some(&reduction.identity[component]),
        }),
        Body::Reduce(_) => None,
    }
}

impl Walker<'_> {
    /// Notes the limits of the elements of a stage that an index reads. Needs: all axes are bound,
    /// and `where=` holds.
    pub(super) fn note_limits(&mut self, stage: &Stage) {
        for (component, buffer) in stage.buffers.iter().enumerate() {
            if !self.checker.read_in_indices.contains(buffer) {
                continue;
            }
            let Some(Sources { value, start }) = sources(stage, component) else { continue };
            if value.ty.dtype != buffer.dtype {
                continue;
            }
            self.assume_limits(value);
            let mut limits = self.candidates(value, start);
            limits.retain_proved(&self.checker.facts, value);
            self.checker.limits.insert(buffer.clone(), limits);
        }
    }

    /// Removes the limits that the start value of a reduction does not keep. Needs: the data axes
    /// alone are bound, since the other ones may be empty.
    pub(super) fn limit_starts(&mut self, stage: &Stage) {
        for (component, buffer) in stage.buffers.iter().enumerate() {
            let start = sources(stage, component).and_then(|sources| sources.start);
            let limits = self.checker.limits.get_mut(buffer);
            if let Some((start, limits)) = start.zip(limits) {
                limits.retain_proved(&self.checker.facts, start);
            }
        }
    }

    /// Learns the limits of the elements of stages that `expr` reads.
    pub(super) fn assume_limits(&mut self, expr: &Expr) {
        let mut known = Vec::new();
        walk_nodes(expr, &mut NodeSet::default(), &mut |e| {
            if let ExprKind::Load { buffer, .. } = &e.kind
                && let Some(limits) = self.checker.limits.get(buffer)
                && let Some(element) = self.checker.facts.as_index(e)
            {
                known.extend(
                    limits.at_least.iter().map(|low| Expr::le(low.clone(), element.clone())),
                );
                known.extend(
                    limits.at_most.iter().map(|high| Expr::le(element.clone(), high.clone())),
                );
            }
        });
        known.iter().for_each(|cond| self.checker.facts.assume(cond));
    }

    /// Returns limits that may hold: the constant bounds, the last index of each dimension of the
    /// graph, and the operands of `min` and `max` that depend on run-time integers only.
    fn candidates(&self, value: &Expr, start: Option<&Expr>) -> Limits {
        let facts = &self.checker.facts;
        let ends: Vec<_> =
            [value].into_iter().chain(start).map(|value| facts.const_bounds(value)).collect();
        let index =
            |end: Option<i128>| end.and_then(|end| i64::try_from(end).ok()).map(Expr::index);
        let low = ends.iter().map(|(low, _)| *low).min().flatten();
        // `None` is less than every constant, but means that there is no bound.
        let bounded = ends.iter().all(|(_, high)| high.is_some());
        let high = ends.iter().map(|(_, high)| *high).max().flatten().filter(|_| bounded);
        let last = |extent: &Expr| Expr::sub(extent.clone(), Expr::index(1));
        let mut limits = Limits {
            at_least: index(low).into_iter().collect(),
            at_most: index(high).into_iter().collect(),
        };
        limits.at_most.extend(self.checker.extents.iter().map(last));
        walk_nodes(value, &mut NodeSet::default(), &mut |e| {
            let ExprKind::Binary(op @ (BinOp::Min | BinOp::Max), a, b) = &e.kind else { return };
            let ends = [a, b].into_iter().filter(|end| self.is_symbolic_constant(end));
            let ends = ends.filter_map(|end| facts.as_index(end));
            match op {
                BinOp::Min => limits.at_most.extend(ends),
                _ => limits.at_least.extend(ends),
            }
        });
        limits
    }

    /// Whether an expression depends on run-time integers and on nothing else.
    fn is_symbolic_constant(&self, expr: &Expr) -> bool {
        let of = self.profile([expr]);
        of.runtime && of.axes.is_empty() && of.at_entry() && !of.inputs
    }
}
