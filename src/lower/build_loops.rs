//! Build loops: makes the loop nest of every stage of a bounded schedule, attached stages inside
//! the loops of their readers.
//!
//! Before: `output C[x: n, y: m] = sum(A[x, k] * B[k, y], axis=k)`, loops `x`, `k`, `y`
//! After:  `for x { for y.init { C[x, y.init] = 0 } for k { for y { C[x, y] = C[x, y] + … } } }`
//! The first step: it needs the result of `schedule::infer_bounds`, and no other step knows both
//! stages and loop IR. Nests that `tensorize` names are checked here (`match_intrinsic`,
//! `match_product`), while the loops of their stage are known.
//! Ensures: accesses have one index per dimension; buffers of stages that are not outputs are
//! allocated where the stage is attached, or outermost; every variable is bound once.

use super::match_intrinsic::{in_lanes, match_intrinsic};
use super::match_product::match_product;
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{rewrite_expr, rewrite_exprs, substitute};
use crate::ir::warp::WarpProduct;
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, ForKind, Intrinsic, Kernel, Param, Stmt, Var,
};
use crate::schedule::{
    Annotation, Attach, AxisId, AxisKind, BoundedSchedule, FEW_STEPS, Factor, Guard,
    PrefetchRegion, Schedule, Stage, StageBounds, StageId, StoreNontemporal, Tensorize,
    attach_depth, infer_bounds, loop_min, mark_unrolled, needed_iterations, over_loops, strides,
};
use crate::target::Target;
use crate::te::{Body, Graph, Input, Reduction};
use rustc_hash::FxHashMap;

/// Bytes of a cache line on every target of this version.
const CACHE_LINE_BYTES: i64 = 64;

/// Up to this number the hints of one `prefetch` are written out.
const MAX_UNROLLED_HINTS: i128 = 32;

/// The loops of a placed schedule.
pub fn build_loops(placed: &BoundedSchedule) -> Result<Kernel> {
    let schedule = &placed.schedule;
    let graph = &schedule.graph;
    let nests = Nests::new(placed);
    let roots = schedule.order.iter().filter(|id| schedule.stage(**id).attach == Attach::Root);
    let roots: Vec<StageId> = roots.copied().collect();
    let mut body = Stmt::Block(roots.iter().map(|id| nests.produce(*id)).collect::<Result<_>>()?);
    for id in roots.iter().rev().filter(|id| !schedule.stage(**id).te.output) {
        body = nests.allocate(*id, body);
    }
    Ok(Kernel {
        name: graph.name.clone(),
        params: build_params(graph),
        dims: graph.dims.clone(),
        checks: Stmt::Block(graph.checks.clone()),
        body,
        reassociated: schedule.reassociated,
        facts: graph.known_facts(),
    })
}

/// The loops of a graph under its default schedule.
pub fn build_plain_loops(graph: &Graph, target: &Target) -> Result<Kernel> {
    build_loops(&infer_bounds(Schedule::new(graph.clone(), target))?)
}

/// Builds the nests of all stages.
struct Nests<'a> {
    placed: &'a BoundedSchedule,
    /// For the buffer of each stage, the one that is allocated for it, which is as large as the
    /// region of the stage, and the stage.
    boxes: FxHashMap<Buffer, (Buffer, StageId)>,
    /// The stages that are attached to each consumer, in order of computation, with the depth of
    /// the loop.
    attached: FxHashMap<StageId, Vec<(Option<usize>, StageId)>>,
}

impl<'a> Nests<'a> {
    fn new(placed: &'a BoundedSchedule) -> Nests<'a> {
        let schedule = &placed.schedule;
        let mut boxes = FxHashMap::default();
        let mut attached: FxHashMap<StageId, Vec<(Option<usize>, StageId)>> = FxHashMap::default();
        for id in schedule.order.iter().copied() {
            let stage = schedule.stage(id);
            if let Attach::At { stage: consumer, axis, .. } = stage.attach {
                let depth = attach_depth(schedule.stage(consumer), axis);
                attached.entry(consumer).or_default().push((depth, id));
            }
            for buffer in &stage.te.buffers {
                let placed_buffer = place_buffer(buffer, stage, placed.of(id));
                boxes.insert(buffer.clone(), (placed_buffer, id));
            }
        }
        Nests { placed, boxes, attached }
    }

    fn allocate(&self, id: StageId, body: Stmt) -> Stmt {
        let buffers = &self.placed.schedule.stage(id).te.buffers;
        buffers.iter().rev().fold(body, |body, buffer| {
            let buffer = self.boxes[buffer].0.clone();
            Stmt::Allocate { buffer, body: Box::new(body) }
        })
    }

    /// Returns the nest of a stage with all stages that are attached to it.
    fn produce(&self, id: StageId) -> Result<Stmt> {
        let stage = self.placed.schedule.stage(id);
        let bounds = self.placed.of(id);
        let count = stage.leaves.len();
        let kind = |at: usize| stage.axis(stage.leaves[at]).kind;
        let first = (0..count).find(|at| kind(*at) == AxisKind::Reduce).unwrap_or(count);
        let (start, mut inner) = self.statements(stage, bounds);
        for at in (first..count).rev() {
            inner = self.inside(id, stage, bounds, Some(at), inner)?;
            inner = wrap_loop(stage, bounds, at, inner);
            inner = self.mark_intrinsic(id, bounds, at, inner)?;
        }
        if let Some(start) = start {
            let start = self.initial_nest(stage, bounds, first, start);
            inner = Stmt::Block(vec![start, inner]);
        }
        for at in (0..first).rev() {
            inner = self.inside(id, stage, bounds, Some(at), inner)?;
            inner = wrap_loop(stage, bounds, at, inner);
            inner = self.mark_intrinsic(id, bounds, at, inner)?;
        }
        inner = self.inside(id, stage, bounds, None, inner)?;
        for (index, var, extent) in bounds.threads.iter().rev() {
            let kind = ForKind::Thread(*index);
            let (var, min, extent) = (var.clone(), Expr::index(0), extent.clone());
            inner = Stmt::For { var, min, extent, kind, body: Box::new(inner) };
        }
        Ok(Stmt::Produce { name: stage.te.name.clone(), body: Box::new(inner) })
    }

    /// Marks the nest of loop `at` if `tensorize` names that loop, after checking that it is the
    /// intrinsic.
    fn mark_intrinsic(
        &self,
        id: StageId,
        bounds: &StageBounds,
        at: usize,
        nest: Stmt,
    ) -> Result<Stmt> {
        let (stage, target) = (self.placed.schedule.stage(id), &self.placed.schedule.target);
        let asked = stage.annotation::<Tensorize>().map(|(_, asked)| asked);
        let asked = asked.filter(|asked| asked.axis == stage.leaves[at]);
        let Some(tensorize) = asked else { return Ok(nest) };
        let intrinsic = &tensorize.intrinsic;
        let name = intrinsic.name.clone();
        if let Some(product) = WarpProduct::of(&name) {
            match_product(product, (self.placed, id, stage), tensorize, &nest)?;
            return Ok(Stmt::Tensorize { name, body: Box::new(nest) });
        }
        let mut facts = Facts::new();
        for leaf in &stage.leaves[..at] {
            let (min, extent) = (loop_min(stage, *leaf), &bounds.extents[leaf.0]);
            facts.bind(&stage.axis(*leaf).var, &min, extent);
        }
        let loops = build_plain_loops(intrinsic, target)?;
        match_intrinsic(stage, tensorize, loops, &nest, facts)?;
        let body = match target.has_intrinsic(&name) {
            true => in_lanes(nest, intrinsic.reassociate),
            false => nest,
        };
        Ok(Stmt::Tensorize { name, body: Box::new(body) })
    }

    /// Whether the iterations of loop `at` are the lanes of an instruction.
    fn is_lanes(&self, stage: &Stage, at: usize) -> bool {
        stage.annotation::<Tensorize>().is_some_and(|(_, tensorize)| {
            tensorize.axis == stage.leaves[at]
                && self.placed.schedule.target.has_intrinsic(&tensorize.intrinsic.name)
        })
    }

    /// Returns the body of the loop at `depth`: the stages attached there, then `inner`, all under
    /// the guards of that depth.
    fn inside(
        &self,
        id: StageId,
        stage: &Stage,
        bounds: &StageBounds,
        depth: Option<usize>,
        inner: Stmt,
    ) -> Result<Stmt> {
        let innermost_guards =
            bounds.guards.iter().rev().filter(|g| g.innermost && g.depth == depth);
        let mut body = innermost_guards.fold(inner, |body, guard| Stmt::If {
            cond: guard.cond.clone(),
            then: Box::new(body),
            otherwise: None,
        });
        let ahead = self.placed.prefetches.iter();
        let ahead = ahead.filter(|ask| (ask.stage, Some(ask.depth)) == (id, depth));
        let mut ahead: Vec<Stmt> = ahead.map(|ask| self.prefetch(ask)).collect();
        if !ahead.is_empty() {
            ahead.push(body);
            body = Stmt::Block(ahead);
        }
        let attached = self.attached.get(&id).map_or(&[][..], |attached| attached);
        for (_, id) in attached.iter().rev().filter(|(at, _)| *at == depth) {
            body = self.allocate(*id, Stmt::Block(vec![self.produce(*id)?, body]));
        }
        // A guard of a reduction axis that depends on no loop skips terms, not initial values.
        let innermost = depth == stage.leaves.len().checked_sub(1);
        for guard in bounds.guards.iter().rev().filter(|guard| !guard.innermost) {
            let terms_only = guard.depth.is_none() && guard.kind == AxisKind::Reduce;
            if if terms_only { innermost } else { guard.depth == depth } {
                let cond = guard.cond.clone();
                body = Stmt::If { cond, then: Box::new(body), otherwise: None };
            }
        }
        Ok(body)
    }

    /// Returns the prefetches of a region, one for each cache line of each row.
    fn prefetch(&self, ask: &PrefetchRegion) -> Stmt {
        let (buffer, producer) = match self.boxes.get(&ask.buffer) {
            Some((buffer, id)) => (buffer, Some(*id)),
            None => (&ask.buffer, None),
        };
        let last = ask.shape.len().checked_sub(1);
        let dense = buffer.strides.as_ref().and_then(|strides| strides.last());
        let dense = dense.is_none_or(|stride| stride.as_int() == Some(1));
        let line = if dense { CACHE_LINE_BYTES / buffer.dtype.bytes() as i64 } else { 1 };
        let (mut indices, mut loops) = (Vec::new(), Vec::new());
        for (at, (min, count)) in ask.mins.iter().zip(&ask.shape).enumerate() {
            let (mut extent, step) = (count.clone(), if Some(at) == last { line } else { 1 });
            if step > 1 {
                let sum = Expr::add(extent, Expr::index(step - 1));
                extent = Expr::binary(BinOp::FloorDiv, sum, Expr::index(step));
                extent = simplify_expr(&extent, &Facts::new());
            }
            let mut index = min.clone();
            if let Some(first) = producer.map(|id| &self.placed.of(id).mins[at])
                && first.as_int() != Some(0)
            {
                index = Expr::sub(index, first.clone());
            }
            if extent.as_int() != Some(1) {
                let var = Var::index(format!("p{at}"));
                let offset = match step {
                    1 => Expr::var(&var),
                    step => Expr::mul(Expr::var(&var), Expr::index(step)),
                };
                index = match index.as_int() {
                    Some(0) => offset,
                    _ => Expr::add(index, offset),
                };
                loops.push((var, extent));
            }
            indices.push(index);
        }
        let hint = Stmt::Prefetch { buffer: buffer.clone(), indices };
        let mut lines: i128 = 1;
        loops.into_iter().rev().fold(hint, |body, (var, extent)| {
            // For a few lines, the loop would take longer than the hints.
            lines = extent.as_int().map_or(i128::MAX, |count| count.saturating_mul(lines));
            let kind =
                if lines <= MAX_UNROLLED_HINTS { ForKind::Unrolled } else { ForKind::Serial };
            Stmt::For { var, min: Expr::index(0), extent, kind, body: Box::new(body) }
        })
    }

    /// Returns the nest of the initial values: the loops over data axes that are inside the
    /// outermost reduction axis.
    fn initial_nest(&self, stage: &Stage, bounds: &StageBounds, first: usize, start: Stmt) -> Stmt {
        let data = (first..stage.leaves.len())
            .filter(|at| stage.axis(stage.leaves[*at]).kind == AxisKind::Data);
        // Guards of lanes stand innermost; a lane loop outside of the nest has no loop here.
        let mut inner = wrap_guards(bounds, start, |guard| {
            guard.depth >= Some(first) && guard.initial_depth < Some(first)
        });
        for at in data.rev() {
            inner = wrap_guards(bounds, inner, |guard| guard.initial_depth == Some(at));
            inner = wrap_loop(stage, bounds, at, inner);
            if let Stmt::For { kind, .. } = &mut inner
                && self.is_lanes(stage, at)
            {
                *kind = ForKind::Vectorized;
            }
        }
        rename_loops(inner)
    }

    /// Returns the stores of the initial values of a reduction, and the innermost statement.
    fn statements(&self, stage: &Stage, bounds: &StageBounds) -> (Option<Stmt>, Stmt) {
        let te = &stage.te;
        let buffers: Vec<Buffer> =
            te.buffers.iter().map(|buffer| self.boxes[buffer].0.clone()).collect();
        let place = |expr: &Expr| self.place_reads(&over_loops(stage, bounds, expr));
        match &te.body {
            Body::Map(values) => {
                let store = |(buffer, value): (&Buffer, &Expr)| {
                    let value = Expr::cast(buffer.dtype, place(value));
                    let (buffer, indices) = (buffer.clone(), bounds.locals.clone());
                    let nontemporal = stage.annotation::<StoreNontemporal>().is_some();
                    Stmt::Store { buffer, indices, value, mask: None, nontemporal }
                };
                let mut stores: Vec<Stmt> = buffers.iter().zip(values).map(store).collect();
                let only = if stores.len() == 1 { stores.pop() } else { None };
                (None, only.unwrap_or(Stmt::Block(stores)))
            }
            Body::Reduce(reduction) => {
                let stores = buffers.iter().zip(&reduction.identity).map(|(buffer, identity)| {
                    let identity = Expr::cast(buffer.dtype, fold_constant(place(identity)));
                    Stmt::store(buffer, bounds.locals.clone(), fold_constant(identity))
                });
                let start = Stmt::Block(stores.collect());
                let terms: Vec<Expr> = reduction.terms.iter().map(place).collect();
                let mut update = build_update(&buffers, reduction, &bounds.locals, terms);
                if let Some(condition) = &reduction.condition {
                    let then = Box::new(update);
                    update = Stmt::If { cond: place(condition), then, otherwise: None };
                }
                (Some(start), update)
            }
        }
    }

    /// Makes reads of attached stages relative to their regions.
    fn place_reads(&self, expr: &Expr) -> Expr {
        rewrite_expr(expr, &mut |e| {
            let ExprKind::Load { buffer, indices, .. } = &e.kind else { return e };
            let Some((buffer, id)) = self.boxes.get(buffer) else { return e };
            let relative = indices.iter().zip(&self.placed.of(*id).mins).map(|(index, min)| {
                match min.as_int() {
                    Some(0) => index.clone(),
                    _ => Expr::sub(index.clone(), min.clone()),
                }
            });
            Expr::load(buffer, relative.collect())
        })
    }
}

/// The buffer of a stage as it is allocated. Outputs are arguments and stay as they are.
fn place_buffer(buffer: &Buffer, stage: &Stage, bounds: &StageBounds) -> Buffer {
    let scope = stage.scope.unwrap_or(buffer.scope);
    let attached = matches!(stage.attach, Attach::At { .. });
    let strides = strides(stage, &bounds.shape);
    if stage.te.output || (!attached && scope == buffer.scope && strides.is_none()) {
        return buffer.clone();
    }
    let (shape, how) = (bounds.shape.clone(), stage.buffering());
    Buffer::with_layout(&buffer.name, buffer.dtype, shape, scope, strides, how)
}

fn wrap_loop(stage: &Stage, bounds: &StageBounds, at: usize, body: Stmt) -> Stmt {
    let leaf = stage.leaves[at];
    let body = mark_unrolled(stage, leaf, body);
    let axis = stage.axis(leaf);
    let kind = match axis.annotation {
        None => ForKind::Serial,
        Some((Annotation::Unroll, _)) => ForKind::Unrolled,
        Some((Annotation::Vectorize, _)) => ForKind::Vectorized,
        Some((Annotation::Parallel, _)) => ForKind::Parallel,
        Some((Annotation::Thread(index), _)) => ForKind::Thread(index),
    };
    let extent = match kind {
        ForKind::Serial | ForKind::Parallel => needed_extent(stage, bounds, leaf),
        _ => bounds.extents[leaf.0].clone(),
    };
    let (var, min) = (axis.var.clone(), loop_min(stage, leaf));
    Stmt::For { var, min, extent, kind, body: Box::new(body) }
}

/// The extent of a loop without the iterations that are outside of the domain: `nparts=64` of 40
/// elements makes 40 parts, and `factor=` may be larger than the whole.
fn needed_extent(stage: &Stage, bounds: &StageBounds, leaf: AxisId) -> Expr {
    let extent = bounds.extents[leaf.0].clone();
    let needed = needed_iterations(&stage.relations, &bounds.extents, leaf);
    let Some((needed, factor)) = needed else { return extent };
    let needed = simplify_expr(&needed, &Facts::new());
    let few = extent.as_int().is_none_or(|extent| extent < FEW_STEPS);
    match factor {
        Factor::Inner(_) if few && needed.as_int().is_none() => extent,
        _ => needed,
    }
}

/// `body` under the guards of data axes that `stands` selects.
fn wrap_guards(bounds: &StageBounds, body: Stmt, stands: impl Fn(&Guard) -> bool) -> Stmt {
    let guards = bounds.guards.iter().rev().filter(|guard| guard.kind == AxisKind::Data);
    guards.filter(|guard| stands(guard)).fold(body, |body, guard| Stmt::If {
        cond: guard.cond.clone(),
        then: Box::new(body),
        otherwise: None,
    })
}

/// Gives the loops of initial values variables of their own, named `x.init`.
fn rename_loops(stmt: Stmt) -> Stmt {
    match stmt {
        // All loops over one GPU index share a variable.
        Stmt::For { var, min, extent, kind, body } if kind.gpu_index().is_some() => {
            let body = Box::new(rename_loops(*body));
            Stmt::For { var, min, extent, kind, body }
        }
        Stmt::For { var, min, extent, kind, body } => {
            let fresh = Var::index(format!("{}.init", var.name()));
            let body = rewrite_exprs(rename_loops(*body), &mut |expr| {
                substitute(expr, &mut |v| (*v == var).then(|| Expr::var(&fresh)))
            });
            Stmt::For { var: fresh, min, extent, kind, body: Box::new(body) }
        }
        other => crate::ir::visit::map_stmts(other, &mut rename_loops),
    }
}

/// Inputs, outputs, run-time integers, as in the raw entry.
fn build_params(graph: &Graph) -> Vec<Param> {
    let mut params: Vec<Param> = Vec::new();
    for input in &graph.inputs {
        params.push(match input {
            Input::Tensor { buffer, layout_free, .. } => {
                Param::Tensor { buffer: buffer.clone(), output: false, layout_free: *layout_free }
            }
            Input::Scalar { var, dtype, .. } => Param::Scalar { var: var.clone(), dtype: *dtype },
        });
    }
    for buffer in &graph.outputs {
        let buffer = buffer.clone();
        params.push(Param::Tensor { buffer, output: true, layout_free: false });
    }
    for var in &graph.vars {
        let source = source_of(var, &params);
        params.push(Param::Runtime { var: var.clone(), source });
    }
    params
}

/// The first argument and dimension with extent `var`.
fn source_of(var: &Var, params: &[Param]) -> Option<(usize, usize)> {
    params.iter().enumerate().find_map(|(index, param)| match param {
        Param::Tensor { buffer, .. } => {
            let dim = buffer.shape.iter().position(|extent| extent.as_var() == Some(var))?;
            Some((index, dim))
        }
        _ => None,
    })
}

/// Folds a cast of a constant, so that an initial value is a literal in every dump.
fn fold_constant(expr: Expr) -> Expr {
    match (&expr.kind, expr.ty.dtype) {
        (ExprKind::Cast(inner), dtype) if dtype.is_float() => match inner.as_float() {
            Some(value) => Expr::float(dtype, value),
            None => expr,
        },
        _ => expr,
    }
}

/// `acc = combine(acc, term)`.
fn build_update(
    buffers: &[Buffer],
    reduction: &Reduction,
    indices: &[Expr],
    terms: Vec<Expr>,
) -> Stmt {
    let load = |buffer: &Buffer| {
        let load = Expr::load(buffer, indices.to_vec());
        Expr::cast(buffer.dtype.compute_type(), load)
    };
    let store = |buffer: &Buffer, value: Expr| {
        Stmt::store(buffer, indices.to_vec(), Expr::cast(buffer.dtype, value))
    };
    if reduction.fused {
        let buffer = &buffers[0];
        let ExprKind::Binary(BinOp::Mul, x, y) = &terms[0].kind else {
            crate::bug!("the term of a fused reduction is not a product");
        };
        let value = Expr::call(Intrinsic::Fma, vec![x.clone(), y.clone(), load(buffer)]);
        return store(buffer, value);
    }
    // Operands that the combiner reads more than once become lets; the others are substituted.
    let combiner = &reduction.combiner;
    let olds = buffers.iter().map(load);
    let operands = combiner.lhs.iter().chain(&combiner.rhs).zip(olds.chain(terms));
    let mut lets: Vec<(Var, Expr)> = Vec::new();
    let mut values: Vec<(Var, Expr)> = Vec::new();
    for (var, value) in operands {
        let uses = combiner.result.iter().map(|result| count_uses(result, var)).sum::<usize>();
        if uses > 1 && !is_trivial(&value) {
            let fresh = Var::new(var.name(), value.ty);
            values.push((var.clone(), Expr::var(&fresh)));
            lets.push((fresh, value));
        } else {
            values.push((var.clone(), value));
        }
    }
    let mut results: Vec<Expr> = Vec::new();
    for result in &combiner.result {
        results.push(substitute(result, &mut |var| {
            values.iter().find(|(v, _)| v == var).map(|(_, value)| value.clone())
        }));
    }
    let update = if let [result] = &results[..] {
        store(&buffers[0], result.clone())
    } else {
        store_tuple(buffers, results, &store)
    };
    lets.into_iter().rev().fold(update, |body, (var, value)| Stmt::Let {
        var,
        value,
        body: Box::new(body),
    })
}

/// Computes all components before it stores any.
fn store_tuple(
    buffers: &[Buffer],
    results: Vec<Expr>,
    store: &dyn Fn(&Buffer, Expr) -> Stmt,
) -> Stmt {
    let vars: Vec<Var> =
        buffers.iter().zip(&results).map(|(b, r)| Var::new(&b.name, r.ty)).collect();
    let stores = buffers.iter().zip(&vars).map(|(b, v)| store(b, Expr::var(v))).collect();
    vars.into_iter().zip(results).rev().fold(Stmt::Block(stores), |body, (var, value)| Stmt::Let {
        var,
        value,
        body: Box::new(body),
    })
}

fn count_uses(expr: &Expr, var: &Var) -> usize {
    let mut uses = 0;
    crate::ir::visit::walk_expr(expr, &mut |e| uses += usize::from(e.as_var() == Some(var)));
    uses
}

fn is_trivial(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Const(_) | ExprKind::Var(_))
        || matches!(&expr.kind, ExprKind::Cast(x) if x.ty.dtype == DType::Index && is_trivial(x))
}
