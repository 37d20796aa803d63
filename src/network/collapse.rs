//! Collapses the axes of a kernel: fewer loops, longer ones, and more kernels that are equal.
//!
//! Before: `Y[n: 1, k: 64, x: 7, y: 7] = max(S[0, k, x, y] + b[k], 0)`
//! After:  `Y[k: 64, x_y: 49] = max(S[k, x_y] + b[k], 0)`
//!
//! The tensors of a network are contiguous, so a kernel may give them any shape with the same
//! elements in the same order. Axes of extent 1 are dropped. Two neighbouring axes become one if
//! every access uses them together, as neighbouring dimensions of which the second is covered
//! completely. Reduction axes are merged likewise, in the same order of terms.

use crate::ir::arith::Facts;
use crate::ir::equal::equal;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{for_each_child, rewrite_expr};
use crate::ir::{Buffer, Expr, ExprKind, Var};
use crate::te::{Axis, Body, Graph, Input, Stage, Update};
use rustc_hash::{FxHashMap, FxHashSet};

/// Collapses the axes of all stages of a kernel and the dimensions of its tensors.
pub fn collapse(graph: Graph) -> Graph {
    merge_axes(drop_unit_axes(simplify_extents(graph)))
}

/// Simplifies the extents of axes and tensors: those that an operator computes from its arguments,
/// such as `(n + 0 - 1) // 1 + 1` for a convolution with a window of one element, are those of the
/// tensors that it reads.
pub fn simplify_extents(mut graph: Graph) -> Graph {
    let facts = Facts::new();
    let simple = |expr: &Expr| simplify_expr(expr, &facts);
    let mut new: FxHashMap<Buffer, Buffer> = FxHashMap::default();
    for buffer in tensors(&graph) {
        let shape: Vec<Expr> = buffer.shape.iter().map(simple).collect();
        if !shape.iter().zip(&buffer.shape).all(|(new, old)| equal(new, old)) {
            new.insert(buffer.clone(), reshaped(&buffer, shape));
        }
    }
    for stage in &mut graph.stages {
        for axis in stage.axes.iter_mut().chain(stage.body.axes_mut()) {
            (axis.min, axis.extent) = (simple(&axis.min), simple(&axis.extent));
        }
    }
    replace_tensors(&mut graph, &new, &|_, indices| indices.to_vec());
    graph
}

/// The buffers of earlier steps of a stage.
fn earlier(stage: &Stage) -> &[Buffer] {
    stage.recurrence.as_ref().map_or(&[], |recurrence| &recurrence.previous)
}

/// The tensor that a stage updates in place, before and behind it.
fn updated(stage: &Stage) -> impl Iterator<Item = &Buffer> {
    stage.update.iter().flat_map(|update| [&update.before, &update.after])
}

/// The tensors of a kernel: inputs, then those of stages.
pub(super) fn tensors(graph: &Graph) -> Vec<Buffer> {
    let inputs = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, .. } => Some(buffer.clone()),
        Input::Scalar { .. } => None,
    });
    let of = |stage: &Stage| {
        let after = stage.update.iter().map(|update| &update.after);
        stage.buffers.iter().chain(earlier(stage)).chain(after).cloned().collect::<Vec<_>>()
    };
    inputs.chain(graph.stages.iter().flat_map(of)).collect()
}

/// Replaces tensors by those of `new`, and their indices by what `indices` makes of them.
pub(super) fn replace_tensors(
    graph: &mut Graph,
    new: &FxHashMap<Buffer, Buffer>,
    indices: &dyn Fn(&Buffer, &[Expr]) -> Vec<Expr>,
) {
    let renamed = |buffer: &mut Buffer| {
        if let Some(found) = new.get(buffer) {
            *buffer = found.clone();
        }
    };
    for input in &mut graph.inputs {
        if let Input::Tensor { buffer, .. } = input {
            renamed(buffer);
        }
    }
    graph.outputs.iter_mut().for_each(renamed);
    for stage in &mut graph.stages {
        stage.buffers.iter_mut().for_each(renamed);
        let recurrence = stage.recurrence.iter_mut();
        recurrence.for_each(|recurrence| recurrence.previous.iter_mut().for_each(renamed));
        if let Some(Update { before, after, .. }) = &mut stage.update {
            [before, after].into_iter().for_each(renamed);
        }
        stage.load_spans.clear();
        stage.body.map_exprs(&mut |expr| {
            rewrite_expr(expr, &mut |node| match &node.kind {
                ExprKind::Load { buffer, indices: old, mask } if new.contains_key(buffer) => {
                    let (buffer, indices) = (new[buffer].clone(), indices(buffer, old));
                    let kind = ExprKind::Load { buffer, indices, mask: mask.clone() };
                    Expr::new(node.ty, kind)
                }
                _ => node,
            })
        });
    }
}

pub(super) fn reshaped(buffer: &Buffer, shape: Vec<Expr>) -> Buffer {
    Buffer::new(&buffer.name, buffer.dtype, shape, buffer.scope)
}

/// Replaces variables in the body of a stage, and simplifies indices.
fn substitute_axes(stage: &mut Stage, values: &FxHashMap<Var, Expr>) {
    let facts = Facts::new();
    stage.body.map_exprs(&mut |expr| {
        let expr = crate::ir::visit::substitute(expr, &mut |var| values.get(var).cloned());
        rewrite_expr(&expr, &mut |node| match &node.kind {
            ExprKind::Load { buffer, indices, mask } => {
                let indices = indices.iter().map(|index| simplify_expr(index, &facts)).collect();
                let (buffer, mask) = (buffer.clone(), mask.clone());
                Expr::new(node.ty, ExprKind::Load { buffer, indices, mask })
            }
            _ => node,
        })
    });
}

/// Replaces axes of extent 1 in the bodies of stages: `A[k, x + r]` becomes `A[k, x]` if the
/// reduction axis `r` has one position.
pub fn replace_unit_axes(mut graph: Graph) -> Graph {
    let is_unit = |axis: &Axis| axis.extent.as_int() == Some(1);
    for stage in &mut graph.stages {
        let axes = stage.axes.iter().chain(stage.reduce_axes());
        let units = axes.filter(|axis| is_unit(axis));
        let values: FxHashMap<Var, Expr> =
            units.map(|axis| (axis.var.clone(), axis.min.clone())).collect();
        if !values.is_empty() {
            substitute_axes(stage, &values);
        }
        if let Body::Reduce(reduction) = &mut stage.body {
            // A reduction has an axis.
            let all = reduction.axes.iter().all(is_unit);
            let mut at = 0;
            reduction.axes.retain(|axis| {
                at += 1;
                !is_unit(axis) || (all && at == 1)
            });
        }
    }
    graph
}

/// Drops the axes of extent 1.
fn drop_unit_axes(graph: Graph) -> Graph {
    let mut graph = replace_unit_axes(graph);
    // A dimension is dropped if every access has the index 0.
    let mut kept: FxHashMap<Buffer, Vec<bool>> = FxHashMap::default();
    for buffer in tensors(&graph) {
        let kept_dims = buffer.shape.iter().map(|extent| extent.as_int() != Some(1)).collect();
        kept.insert(buffer, kept_dims);
    }
    for stage in &graph.stages {
        super::reads::for_each_read(stage, &mut |buffer, indices| {
            if let Some(kept) = kept.get_mut(buffer) {
                for (kept, index) in kept.iter_mut().zip(indices) {
                    *kept |= index.as_int() != Some(0);
                }
            }
        });
    }
    // The tensors of a tuple have the same axes, and so has a tensor that is updated. Those of the
    // steps of a recurrence stay, and those at an offset.
    for stage in &graph.stages {
        let steps = stage.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
        let mut all: Vec<bool> = (0..stage.axes.len()).map(|at| at < steps).collect();
        if let Some(update) = &stage.update {
            let moved = update.offsets.iter().map(|offset| offset.as_int() != Some(0));
            all.iter_mut().zip(moved).for_each(|(all, moved)| *all |= moved);
        }
        for buffer in stage.buffers.iter().chain(earlier(stage)).chain(updated(stage)) {
            all.iter_mut().zip(&kept[buffer]).for_each(|(all, kept)| *all |= kept);
        }
        for buffer in stage.buffers.iter().chain(earlier(stage)).chain(updated(stage)) {
            kept.insert(buffer.clone(), all.clone());
        }
    }
    fn keep<T: Clone>(of: &[T], kept: &[bool]) -> Vec<T> {
        of.iter().zip(kept).filter(|(_, kept)| **kept).map(|(one, _)| one.clone()).collect()
    }
    let new: FxHashMap<Buffer, Buffer> = kept
        .iter()
        .filter(|(_, kept)| kept.contains(&false))
        .map(|(buffer, kept)| (buffer.clone(), reshaped(buffer, keep(&buffer.shape, kept))))
        .collect();
    for stage in &mut graph.stages {
        stage.axes = keep(&stage.axes, &kept[&stage.buffers[0]]);
        if let Some(update) = &mut stage.update {
            update.offsets = keep(&update.offsets, &kept[&stage.buffers[0]]);
        }
    }
    replace_tensors(&mut graph, &new, &|buffer, indices| keep(indices, &kept[buffer]));
    graph
}

/// Two neighbouring dimensions of a tensor, or two neighbouring axes of a stage.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Pair {
    /// Dimension `.1` and the next one.
    Dims(Buffer, usize),
    /// Reduction axis `.1` of stage `.0` and the next one.
    Reduce(usize, usize),
}

/// Which pairs must be merged together, and which cannot be merged.
#[derive(Default)]
struct Pairs {
    numbers: FxHashMap<Pair, usize>,
    parent: Vec<usize>,
    separate: Vec<bool>,
}

impl Pairs {
    fn number(&mut self, pair: Pair) -> usize {
        let next = self.parent.len();
        let number = *self.numbers.entry(pair).or_insert(next);
        if number == next {
            self.parent.push(next);
            self.separate.push(false);
        }
        self.root(number)
    }

    fn root(&self, mut number: usize) -> usize {
        while self.parent[number] != number {
            number = self.parent[number];
        }
        number
    }

    fn together(&mut self, a: Pair, b: Pair) {
        let (a, b) = (self.number(a), self.number(b));
        self.parent[a] = b;
        self.separate[b] |= self.separate[a];
    }

    fn separate(&mut self, pair: Pair) {
        let number = self.number(pair);
        self.separate[number] = true;
    }

    fn is_merged(&self, pair: &Pair) -> bool {
        let number = self.numbers.get(pair);
        number.is_none_or(|number| !self.separate[self.root(*number)])
    }
}

/// The axes of a stage: for each variable, the pair with the axis before and the one behind it.
struct StageAxes<'a> {
    stage: &'a Stage,
    number: usize,
}

impl StageAxes<'_> {
    /// The list and the position of an axis.
    fn find(&self, var: &Var) -> Option<(bool, usize)> {
        let at = |axes: &[Axis]| axes.iter().position(|axis| axis.var == *var);
        let data = at(&self.stage.axes).map(|at| (false, at));
        data.or_else(|| at(self.stage.reduce_axes()).map(|at| (true, at)))
    }

    fn axes(&self, reduce: bool) -> &[Axis] {
        if reduce { self.stage.reduce_axes() } else { &self.stage.axes }
    }

    fn pair(&self, reduce: bool, at: usize) -> Pair {
        match reduce {
            true => Pair::Reduce(self.number, at),
            false => Pair::Dims(self.stage.buffers[0].clone(), at),
        }
    }

    /// The pairs of an axis with its neighbours.
    fn pairs_of(&self, var: &Var) -> Vec<Pair> {
        let Some((reduce, at)) = self.find(var) else { return Vec::new() };
        let before = at.checked_sub(1).map(|at| self.pair(reduce, at));
        let behind = (at + 1 < self.axes(reduce).len()).then(|| self.pair(reduce, at));
        before.into_iter().chain(behind).collect()
    }

    /// The pair of two indices, if they are neighbouring axes, and the second one covers `extent`.
    fn pair_of(&self, first: &Expr, second: &Expr, extent: &Expr) -> Option<Pair> {
        let (reduce, at) = self.find(first.as_var()?)?;
        let (list, next) = self.find(second.as_var()?)?;
        let axes = self.axes(reduce);
        let starts_at_0 = |axis: &Axis| axis.min.as_int() == Some(0);
        let fits = (list, next) == (reduce, at + 1)
            && starts_at_0(&axes[at])
            && starts_at_0(&axes[next])
            && equal(&axes[next].extent, extent);
        fits.then(|| self.pair(reduce, at))
    }
}

/// Returns which neighbouring axes all accesses of some stages use together.
fn pairs_of<'a>(stages: impl Iterator<Item = &'a Stage>) -> Pairs {
    let mut pairs = Pairs::default();
    for (number, stage) in stages.enumerate() {
        // The axes of the steps of a recurrence stay apart.
        let steps = stage.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
        for at in 0..steps.min(stage.axes.len().saturating_sub(1)) {
            pairs.separate(Pair::Dims(stage.buffers[0].clone(), at));
        }
        // The tensors of a tuple have the same axes.
        for buffer in stage.buffers[1..].iter().chain(earlier(stage)) {
            for at in 0..stage.axes.len().saturating_sub(1) {
                let first = Pair::Dims(stage.buffers[0].clone(), at);
                pairs.together(first, Pair::Dims(buffer.clone(), at));
            }
        }
        for at in 0..stage.axes.len().saturating_sub(1) {
            let first = Pair::Dims(stage.buffers[0].clone(), at);
            for buffer in updated(stage) {
                pairs.together(first.clone(), Pair::Dims(buffer.clone(), at));
            }
            // The rows of the region are those of the tensor, or the region is not contiguous.
            let covers = |update: &Update| {
                update.offsets[at + 1].as_int() == Some(0)
                    && equal(&stage.axes[at + 1].extent, &update.before.shape[at + 1])
            };
            if stage.update.as_ref().is_some_and(|update| !covers(update)) {
                pairs.separate(first);
            }
        }
        let axes = StageAxes { stage, number };
        let mut seen = FxHashSet::default();
        stage.body.for_each_expr(&mut |expr| examine(expr, &axes, &mut pairs, &mut seen));
    }
    pairs
}

/// Whether the last two dimensions of a tensor become one in a kernel of some stages, so that its
/// loops over them are one long loop.
pub fn merges_last_dims<'a>(stages: impl Iterator<Item = &'a Stage>, tensor: &Buffer) -> bool {
    let Some(first) = tensor.shape.len().checked_sub(2) else { return false };
    pairs_of(stages).is_merged(&Pair::Dims(tensor.clone(), first))
}

/// Merges neighbouring axes that all accesses use together.
fn merge_axes(mut graph: Graph) -> Graph {
    let pairs = pairs_of(graph.stages.iter());
    let shapes: FxHashMap<Buffer, Vec<usize>> = tensors(&graph)
        .into_iter()
        .map(|buffer| {
            let merged = |at: usize| pairs.is_merged(&Pair::Dims(buffer.clone(), at));
            let runs = runs(buffer.shape.len(), &merged);
            (buffer, runs)
        })
        .collect();
    let new: FxHashMap<Buffer, Buffer> = shapes
        .iter()
        .filter(|(buffer, runs)| runs.len() < buffer.shape.len())
        .map(|(buffer, runs)| (buffer.clone(), reshaped(buffer, products(&buffer.shape, runs))))
        .collect();
    if new.is_empty() && pairs.numbers.keys().all(|pair| !matches!(pair, Pair::Reduce(..))) {
        return graph;
    }
    // A run of indices of a load is a run of axes: its new variable is that of the first axis.
    let mut variables: FxHashMap<Var, Expr> = FxHashMap::default();
    for (number, stage) in graph.stages.iter_mut().enumerate() {
        let lengths = shapes[&stage.buffers[0]].clone();
        stage.axes = merge_list(&stage.axes, &lengths, &mut variables);
        if let Some(update) = &mut stage.update {
            let mut at = 0;
            let merged = lengths.iter().map(|length| {
                let run = at..at + length;
                at += length;
                row_major(&update.offsets[run.clone()], &update.before.shape[run])
            });
            update.offsets = merged.collect();
        }
        if let Body::Reduce(reduction) = &mut stage.body {
            let merged = |at: usize| pairs.is_merged(&Pair::Reduce(number, at));
            let lengths = runs(reduction.axes.len(), &merged);
            reduction.axes = merge_list(&reduction.axes, &lengths, &mut variables);
        }
    }
    replace_tensors(&mut graph, &new, &|buffer, indices| {
        let mut at = 0;
        let merged = shapes[buffer].iter().map(|length| {
            let (run, extents) = (&indices[at..at + length], &buffer.shape[at..at + length]);
            at += length;
            let first = || run[0].as_var().and_then(|var| variables.get(var)).cloned();
            match *length {
                1 => run[0].clone(),
                // All are constants, or neighbouring axes.
                _ => first().unwrap_or_else(|| row_major(run, extents)),
            }
        });
        merged.collect()
    });
    graph
}

/// Finds the uses of axes in an expression.
fn examine(expr: &Expr, axes: &StageAxes, pairs: &mut Pairs, seen: &mut FxHashSet<usize>) {
    if !seen.insert(expr.id()) && expr.as_var().is_none() {
        return;
    }
    if let Some(var) = expr.as_var() {
        axes.pairs_of(var).into_iter().for_each(|pair| pairs.separate(pair));
        return;
    }
    let ExprKind::Load { buffer, indices, mask } = &expr.kind else {
        for_each_child(expr, &mut |child| examine(child, axes, pairs, seen));
        return;
    };
    mask.iter().for_each(|mask| examine(mask, axes, pairs, seen));
    for (at, index) in indices.iter().enumerate() {
        let Some(var) = index.as_var() else {
            examine(index, axes, pairs, seen);
            continue;
        };
        // The neighbours of an axis must be its neighbours here.
        let before = at
            .checked_sub(1)
            .and_then(|before| axes.pair_of(&indices[before], index, &buffer.shape[at]));
        let behind =
            indices.get(at + 1).and_then(|next| axes.pair_of(index, next, &buffer.shape[at + 1]));
        for pair in axes.pairs_of(var) {
            if Some(&pair) != before.as_ref() && Some(&pair) != behind.as_ref() {
                pairs.separate(pair);
            }
        }
    }
    for at in 0..indices.len().saturating_sub(1) {
        let dims = Pair::Dims(buffer.clone(), at);
        let (first, second) = (&indices[at], &indices[at + 1]);
        match axes.pair_of(first, second, &buffer.shape[at + 1]) {
            Some(pair) => pairs.together(pair, dims),
            None if first.as_int().is_some() && second.as_int().is_some() => {}
            None => pairs.separate(dims),
        }
    }
}

/// Returns the lengths of the runs of merged neighbours among `count`.
fn runs(count: usize, is_merged: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let mut runs: Vec<usize> = Vec::new();
    for at in 0..count {
        match runs.last_mut() {
            Some(run) if is_merged(at - 1) => *run += 1,
            _ => runs.push(1),
        }
    }
    runs
}

fn products(extents: &[Expr], runs: &[usize]) -> Vec<Expr> {
    let mut at = 0;
    let product = |run: &usize| {
        let run = &extents[at..at + run];
        at += run.len();
        let product = run.iter().cloned().reduce(Expr::mul).expect("a run is not empty");
        simplify_expr(&product, &Facts::new())
    };
    runs.iter().map(product).collect()
}

/// Merges runs of axes; `variables` gets the new variable of each axis that begins one.
fn merge_list(axes: &[Axis], runs: &[usize], variables: &mut FxHashMap<Var, Expr>) -> Vec<Axis> {
    let extents: Vec<Expr> = axes.iter().map(|axis| axis.extent.clone()).collect();
    let mut at = 0;
    let merge = |(run, extent): (&usize, Expr)| {
        let run = &axes[at..at + run];
        at += run.len();
        if let [axis] = run {
            return axis.clone();
        }
        let names: Vec<&str> = run.iter().map(|axis| axis.var.name()).collect();
        let var = Var::index(names.join("_"));
        variables.insert(run[0].var.clone(), Expr::var(&var));
        Axis { var, min: Expr::index(0), extent }
    };
    runs.iter().zip(products(&extents, runs)).map(merge).collect()
}

/// The row-major position of constant indices.
fn row_major(indices: &[Expr], extents: &[Expr]) -> Expr {
    let position = indices.iter().zip(extents).fold(Expr::index(0), |position, (index, extent)| {
        Expr::add(Expr::mul(position, extent.clone()), index.clone())
    });
    simplify_expr(&position, &Facts::new())
}
