//! Build loops: makes the loop nest of every stage of a bounded schedule, attached stages inside
//! the loops of their readers.
//!
//! Before: `output C[x: n, y: m] = sum(A[x, k] * B[k, y], axis=k)`, loops `x`, `k`, `y`
//! After:  `for x { for y.init { C[x, y.init] = 0 } for k { for y { C[x, y] = C[x, y] + … } } }`
//! The first step: it needs the result of `schedule::infer_bounds`, and no other step uses both
//! stages and loop IR. Nests that `tensorize` names are checked here (`match_intrinsic`,
//! `match_product`), while the loops of their stage are known.
//! Ensures: accesses have one index per dimension; buffers of stages that are not outputs are
//! allocated where the stage is attached, or outermost; every variable is bound once.

mod combine_terms;
mod intrinsics;
mod warm_up;

use super::in_place;
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::async_copy::{narrowed_back, same_half};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{mentions, rewrite_expr, rewrite_exprs, substitute};
use crate::ir::{
    BinOp, Buffer, DType, Expr, ExprKind, ForKind, Kernel, Scope, SortAxis, Stmt, UnOp, Var,
};
use crate::schedule::{
    Annotation, Attach, AxisId, AxisKind, BoundedSchedule, Guard, PrefetchRegion, Scan, Scatter,
    ScatteredAxis, Schedule, Stage, StageBounds, StageId, StoragePlace, StoreNontemporal,
    attach_depth, axis_value, fused_groups, group_of, in_order_of_loops, infer_bounds,
    is_scattered, is_terms_only, loop_extent, loop_min, mark_unrolled, over_loops, scattered_axes,
    sort_of, sort_place, sorted_count, step_depth, storage_place, strides,
};
use crate::target::Target;
use crate::te::{Body, Graph, Reduction, build_params};
use combine_terms::build_update;
use rustc_hash::FxHashMap;
use warm_up::WarmUp;

/// Bytes of a cache line on every target.
const CACHE_LINE_BYTES: i64 = 64;

/// The largest number of hints of one `prefetch` that are written out.
const MAX_UNROLLED_HINTS: i128 = 32;

/// Builds the loops of a bounded schedule.
pub fn build_loops(bounded: &BoundedSchedule) -> Result<Kernel> {
    let schedule = &bounded.schedule;
    let graph = &schedule.graph;
    let nests = Nests::new(bounded);
    let roots = schedule.order.iter().filter(|id| schedule.stage(**id).attach == Attach::Root);
    let roots: Vec<StageId> = roots.copied().collect();
    let at_root = |id: &&StageId| match schedule.stage(**id).attach {
        Attach::Root => !schedule.stage(**id).te.output,
        _ => storage_place(schedule, **id) == Some(StoragePlace::Root),
    };
    let groups = roots.iter().filter_map(|id| nests.group_ending_with(*id));
    let mut body = Stmt::Block(groups.map(|group| nests.produce(&group)).collect::<Result<_>>()?);
    for id in schedule.order.iter().rev().filter(at_root) {
        body = nests.allocate(*id, body);
    }
    let body = in_place::access_arguments(schedule, body);
    let kernel = Kernel {
        name: graph.name.clone(),
        params: build_params(graph),
        dims: graph.dims.clone(),
        checks: Stmt::Block(graph.checks.clone()),
        body,
        reassociated: schedule.reassociated,
        facts: schedule.known_facts(),
    };
    Ok(kernel.with_all_dims())
}

/// Builds the loops of a graph under its default schedule.
pub fn build_plain_loops(graph: &Graph, target: &Target) -> Result<Kernel> {
    build_loops(&infer_bounds(Schedule::new(graph.clone(), target))?)
}

/// Builds the nests of all stages.
struct Nests<'a> {
    bounded: &'a BoundedSchedule,
    /// For the buffer of each stage: the buffer that is allocated for it, as large as the region of
    /// the stage, and the stage.
    boxes: FxHashMap<Buffer, (Buffer, StageId)>,
    /// The stages that are attached to each consumer, in order of computation, with the depth of
    /// the loop.
    attached: FxHashMap<StageId, Vec<(Option<usize>, StageId)>>,
    /// For each stage that sorts, the positions in order.
    orders: FxHashMap<StageId, Buffer>,
    /// The stages whose loops begin earlier for attached ones.
    warm_ups: FxHashMap<StageId, WarmUp>,
}

impl<'a> Nests<'a> {
    fn new(bounded: &'a BoundedSchedule) -> Nests<'a> {
        let schedule = &bounded.schedule;
        let mut boxes = FxHashMap::default();
        let mut attached: FxHashMap<StageId, Vec<(Option<usize>, StageId)>> = FxHashMap::default();
        let mut orders = FxHashMap::default();
        for id in schedule.order.iter().copied() {
            let stage = schedule.stage(id);
            if let Attach::At { stage: consumer, axis, .. } = stage.attach {
                let depth = attach_depth(schedule.stage(consumer), axis);
                attached.entry(consumer).or_default().push((depth, id));
            }
            if sort_of(stage).is_some() {
                let (name, shape) = (format!("{}.order", stage.te.name), sorted_count(bounded, id));
                let order = Buffer::new(name, DType::Int32, vec![shape], Scope::Global);
                orders.insert(id, order);
            }
            for buffer in &stage.te.buffers {
                let region_buffer = place_buffer(buffer, stage, bounded.of(id));
                boxes.insert(buffer.clone(), (region_buffer, id));
            }
            // Earlier steps are in the same memory.
            let previous = stage.te.recurrence.iter().flat_map(|recurrence| &recurrence.previous);
            for (previous, buffer) in previous.zip(&stage.te.buffers) {
                let current = boxes[buffer].clone();
                boxes.insert(previous.clone(), current);
            }
        }
        let warm_ups = FxHashMap::default();
        let mut nests = Nests { bounded, boxes, attached, orders, warm_ups };
        nests.warm_ups = nests.find_warm_ups();
        nests
    }

    fn find_warm_ups(&self) -> FxHashMap<StageId, WarmUp> {
        let stages = self.attached.iter();
        stages.filter_map(|(id, attached)| Some((*id, WarmUp::of(self, *id, attached)?))).collect()
    }

    fn allocate(&self, id: StageId, body: Stmt) -> Stmt {
        let buffers = &self.bounded.schedule.stage(id).te.buffers;
        buffers.iter().rev().fold(body, |body, buffer| {
            let buffer = self.boxes[buffer].0.clone();
            Stmt::Allocate { buffer, body: Box::new(body) }
        })
    }

    /// Returns the stages that are computed in one nest with this one, if it is the last of them.
    /// They are adjacent in the order.
    fn group_ending_with(&self, id: StageId) -> Option<Vec<StageId>> {
        let group = group_of(&self.bounded.schedule, id);
        (group.last() == Some(&id)).then_some(group)
    }

    /// Returns the nest of a stage, or of stages that share loops, with all attached stages.
    fn produce(&self, group: &[StageId]) -> Result<Stmt> {
        let inner = self.shared_nest(group, 0)?;
        let mut inner = self.inside(group, None, inner)?;
        // Threads are added on GPUs only, and only to groups of one stage.
        for (index, var, extent) in self.bounded.of(group[0]).threads.iter().rev() {
            let kind = ForKind::Thread(*index);
            let (var, min, extent) = (var.clone(), Expr::index(0), extent.clone());
            inner = Stmt::For { var, min, extent, kind, body: Box::new(inner) };
        }
        Ok(self.mark_stages(group, inner))
    }

    /// Marks the statements that compute stages.
    fn mark_stages(&self, stages: &[StageId], body: Stmt) -> Stmt {
        let name = |id: &StageId| &self.bounded.schedule.stage(*id).te.name[..];
        let names: Vec<&str> = stages.iter().map(name).collect();
        Stmt::Produce { name: names.join(", "), body: Box::new(body) }
    }

    /// Returns the loops from `at` inwards of stages that share all loops around it.
    fn shared_nest(&self, stages: &[StageId], at: usize) -> Result<Stmt> {
        let schedule = &self.bounded.schedule;
        if let [id] = stages {
            return self.nest(*id, at);
        }
        let mut nests = Vec::new();
        for group in fused_groups(schedule, stages, at) {
            if let [id] = group[..] {
                let mut part = self.nest(id, at)?;
                for attached in self.attached_inside_step(id, at).into_iter().rev() {
                    part = Stmt::Block(vec![self.produce(&[attached])?, part]);
                }
                if at == schedule.stage(id).leaves.len() {
                    part = wrap_terms(self.bounded.of(id), part);
                }
                nests.push(self.mark_stages(&[id], part));
                continue;
            }
            let mut body = self.shared_nest(&group, at + 1)?;
            body = self.inside(&group, Some(at), body)?;
            let (first, others) = group.split_first().expect("a group has stages");
            for id in others {
                let stage = schedule.stage(*id);
                body = mark_unrolled(stage, stage.leaves[at], body);
            }
            body = wrap_loop(schedule.stage(*first), self.bounded.of(*first), at, body);
            for id in &group {
                let (stage, bounds) = (schedule.stage(*id), self.bounded.of(*id));
                if let (Some(start), _) = self.statements(*id, stage, bounds)
                    && first_reduction(stage) == at
                {
                    let start = self.initial_nest(stage, bounds, at, start);
                    nests.push(self.mark_stages(&[*id], start));
                }
            }
            nests.push(body);
        }
        Ok(Stmt::Block(nests))
    }

    /// Returns the innermost loop over the steps of a stage of a recurrence.
    fn last_step(&self, id: StageId) -> Option<usize> {
        step_depth(&self.bounded.schedule, id)?.checked_sub(1)
    }

    /// Returns the stages of the recurrence that a step computes in front of one of its stages, if
    /// `at` is the first loop of that inside the step, in order of computation.
    fn attached_inside_step(&self, id: StageId, at: usize) -> Vec<StageId> {
        let Some(last) = self.last_step(id).filter(|last| last + 1 == at) else {
            return Vec::new();
        };
        let attached = self.attached.get(&id).into_iter().flatten();
        let inside =
            attached.filter(|(depth, id)| *depth == Some(last) && self.is_in_recurrence(*id));
        inside.map(|(_, id)| *id).collect()
    }

    fn is_in_recurrence(&self, id: StageId) -> bool {
        self.bounded.schedule.stage(id).te.recurrence.is_some()
    }

    /// Returns the loops of a stage from `outer` inwards.
    fn nest(&self, id: StageId, outer: usize) -> Result<Stmt> {
        let stage = self.bounded.schedule.stage(id);
        let bounds = self.bounded.of(id);
        let count = stage.leaves.len();
        let first = first_reduction(stage);
        let (start, mut inner) = self.statements(id, stage, bounds);
        for at in (first.max(outer)..count).rev() {
            inner = self.inside(&[id], Some(at), inner)?;
            if sort_place(stage) == Some(at) {
                inner = self.sort_before(id, inner);
                continue;
            }
            if is_scattered(stage, stage.leaves[at]) {
                continue;
            }
            inner = self.wrap_loop(id, at, inner);
            inner = self.mark_intrinsic(id, bounds, at, inner)?;
        }
        // The initial values are stored before the outermost reduction loop.
        if let Some(start) = start.filter(|_| outer <= first) {
            let mut start = self.initial_nest(stage, bounds, first, start);
            if let Some(warm_up) = self.warm_ups.get(&id).filter(|w| w.reaches(Some(first))) {
                start = warm_up.guard_own(bounds, first, start);
            }
            inner = Stmt::Block(vec![start, inner]);
        }
        for at in (outer..first).rev() {
            inner = self.inside(&[id], Some(at), inner)?;
            inner = self.wrap_loop(id, at, inner);
            inner = self.mark_intrinsic(id, bounds, at, inner)?;
        }
        Ok(inner)
    }

    /// Returns the loop of a stage at a place, which begins earlier if attached stages need that.
    fn wrap_loop(&self, id: StageId, at: usize, body: Stmt) -> Stmt {
        let nest = wrap_loop(self.bounded.schedule.stage(id), self.bounded.of(id), at, body);
        match self.warm_ups.get(&id) {
            Some(warm_up) => warm_up.begin_earlier(at, nest),
            None => nest,
        }
    }

    /// Returns the statement that sorts the axis of a stage, then the loops that read the order.
    fn sort_before(&self, id: StageId, inner: Stmt) -> Stmt {
        let (stage, bounds) = (self.bounded.schedule.stage(id), self.bounded.of(id));
        let sort = sort_of(stage).expect("it is a sort");
        let order = self.orders[&id].clone();
        let leaf = stage.leaves[first_reduction(stage)];
        let fill = SortAxis {
            count: order.shape[0].clone(),
            order: order.clone(),
            var: stage.axis(leaf).var.clone(),
            min: sort.axis.min.clone(),
            extent: sort.axis.extent.clone(),
            key: self.place_reads(&over_loops(stage, bounds, &sort.key)),
            descending: sort.descending,
        };
        let body = Box::new(Stmt::Block(vec![Stmt::Sort(Box::new(fill)), inner]));
        Stmt::Allocate { buffer: order, body }
    }

    /// Returns the body of the loop at `depth`, which `group` shares: the stages attached there,
    /// then `inner`, all under the guards of that depth.
    fn inside(&self, group: &[StageId], depth: Option<usize>, inner: Stmt) -> Result<Stmt> {
        let schedule = &self.bounded.schedule;
        // Stages that share a loop have the same guards there.
        let bounds = self.bounded.of(group[0]);
        let innermost_guards =
            bounds.guards.iter().rev().filter(|g| g.innermost && g.depth == depth);
        let mut body = innermost_guards.fold(inner, |body, guard| Stmt::If {
            cond: guard.cond.clone(),
            then: Box::new(body),
            otherwise: None,
        });
        let ahead = self.bounded.prefetches.iter();
        let ahead = ahead.filter(|ask| group.contains(&ask.stage) && Some(ask.depth) == depth);
        let mut ahead: Vec<Stmt> = ahead.map(|ask| self.prefetch(ask)).collect();
        if !ahead.is_empty() {
            ahead.push(body);
            body = Stmt::Block(ahead);
        }
        let attached = group.iter().filter_map(|id| self.attached.get(id)).flatten();
        let attached = attached.filter(|(at, _)| *at == depth).map(|(_, id)| *id);
        let mut attached: Vec<StageId> = attached.collect();
        // In a step, `shared_nest` places the stages of the recurrence in front of their readers.
        // All others depend on no step and stand first.
        let ends_step = |id: &StageId| depth.is_some() && self.last_step(*id) == depth;
        let steps = group.len() > 1 && group.iter().any(ends_step);
        if group.len() > 1 {
            // A stage may read one that is attached to another stage of the group.
            attached.sort_by_key(|id| schedule.order.iter().position(|other| other == id));
        }
        // Only stages without others in their loops have a warm-up.
        let warm_up = self.warm_ups.get(&group[0]);
        if let Some(warm_up) = warm_up.filter(|warm_up| warm_up.ends_at(depth)) {
            body = warm_up.guard_own(bounds, depth.map_or(0, |depth| depth + 1), body);
        }
        for id in attached.into_iter().rev() {
            if let Some(produced) = self.group_ending_with(id) {
                if !(steps && self.is_in_recurrence(id)) {
                    let mut nest = self.produce(&produced)?;
                    if let Some(warm_up) = warm_up.filter(|warm_up| warm_up.reaches(depth)) {
                        let of_both = (bounds, self.bounded.of(id));
                        nest = warm_up.guard_attached(of_both, depth, nest);
                    }
                    body = Stmt::Block(vec![nest, body]);
                }
                let here = |id: &&StageId| storage_place(schedule, **id).is_none();
                for id in produced.iter().rev().filter(here) {
                    body = self.allocate(*id, body);
                }
            }
        }
        for id in schedule.order.iter().rev() {
            if let Some(StoragePlace::In(host, at)) = storage_place(schedule, *id)
                && (group.contains(&host), at) == (true, depth)
            {
                body = self.allocate(*id, body);
            }
        }
        // If several stages share a loop, each has such guards at its own innermost loop.
        let stage = schedule.stage(group[0]);
        let innermost = group.len() == 1 && depth == stage.leaves.len().checked_sub(1);
        // The loops of a scattered axis enclose start values only.
        let scattered = |guard: &Guard| {
            let mut leaves = stage.leaves.iter().filter(|leaf| is_scattered(stage, **leaf));
            leaves.any(|leaf| mentions(&guard.cond, &stage.axis(*leaf).var))
        };
        let guards = bounds.guards.iter().rev();
        let moved = |guard: &Guard| warm_up.is_some_and(|warm_up| warm_up.moves(guard));
        let guards = guards.filter(|guard| !guard.innermost && !scattered(guard) && !moved(guard));
        for guard in guards {
            if if is_terms_only(guard) { innermost } else { guard.depth == depth } {
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
        if let Some(producer) = producer {
            indices = self.bounded.of(producer).storage.place(indices);
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
        // Guards of lanes are innermost. If the loop over lanes is outside of the nest, they have
        // no loop here.
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
            inner = self.mark_start(stage, at, inner);
        }
        rename_loops(inner)
    }

    /// Returns the stores of the initial values of a reduction, and the innermost statement.
    fn statements(&self, id: StageId, stage: &Stage, bounds: &StageBounds) -> (Option<Stmt>, Stmt) {
        let te = &stage.te;
        let buffers: Vec<Buffer> =
            te.buffers.iter().map(|buffer| self.boxes[buffer].0.clone()).collect();
        let place = |expr: &Expr| self.place_reads(&over_loops(stage, bounds, expr));
        match &te.body {
            Body::Map(values) => (None, store_values(stage, bounds, &buffers, values, &place)),
            Body::Sort(sort) => {
                let order = Expr::load(&self.orders[&id], vec![sort.at.clone()]);
                let position = Expr::cast(DType::Index, order);
                let value = match sort.axis.min.as_int() {
                    Some(0) => position,
                    _ => Expr::add(sort.axis.min.clone(), position),
                };
                let at_rank = |(expr, buffer): (&Expr, &Buffer)| {
                    // An element of a 16-bit type keeps its bits, also those of a NaN.
                    let expr = narrowed_back(buffer.dtype, expr).unwrap_or(expr);
                    substitute(expr, &mut |var| (*var == sort.axis.var).then(|| value.clone()))
                };
                let values: Vec<Expr> = sort.values.iter().zip(&buffers).map(at_rank).collect();
                (None, store_values(stage, bounds, &buffers, &values, &place))
            }
            Body::Reduce(reduction) => {
                let stores = buffers.iter().zip(&reduction.identity).map(|(buffer, identity)| {
                    let identity = Expr::cast(buffer.dtype, fold_constant(place(identity)));
                    Stmt::store(buffer, bounds.locals.clone(), fold_constant(identity))
                });
                let start = Stmt::Block(stores.collect());
                let scan = stage.annotation::<Scan>().map(|(_, scan)| scan);
                let start = match scan {
                    Some(scan) => start_from_predecessor(stage, scan, bounds, &buffers, start),
                    None => start,
                };
                if stage.annotation::<Scatter>().is_some() {
                    let update = scatter_terms(
                        (&self.bounded.schedule, stage),
                        bounds,
                        reduction,
                        &buffers,
                        &place,
                    );
                    return (Some(start), update);
                }
                let terms: Vec<Expr> = reduction.terms.iter().map(place).collect();
                let ordered = in_order_of_loops(stage, bounds, reduction);
                let mut update = build_update(&buffers, &ordered, &bounds.locals, terms);
                let in_range = scan.map(|scan| term_in_range(scan, reduction));
                for condition in reduction.condition.iter().chain(&in_range) {
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
            Expr::load(buffer, self.bounded.of(*id).storage.place(indices.clone()))
        })
    }
}

/// Returns the stores of the start values of a scan: each element starts with the value of its
/// predecessor, and the first one, of each block if it is a scan in blocks, with the start value of
/// the reduction.
fn start_from_predecessor(
    stage: &Stage,
    scan: &Scan,
    bounds: &StageBounds,
    buffers: &[Buffer],
    first: Stmt,
) -> Stmt {
    let place = &bounds.locals[scan.axis];
    let before = match scan.reverse {
        false => Expr::sub(place.clone(), Expr::index(1)),
        true => Expr::add(place.clone(), Expr::index(1)),
    };
    let exists = Expr::le(Expr::index(1), axis_value(stage, bounds, scan.within));
    let mut indices = bounds.locals.clone();
    indices[scan.axis] = before;
    let stores = buffers.iter().map(|buffer| {
        let value = Expr::load(buffer, indices.clone());
        Stmt::store(buffer, bounds.locals.clone(), value)
    });
    Stmt::If {
        cond: Expr::unary(UnOp::Likely, exists),
        then: Box::new(Stmt::Block(stores.collect())),
        otherwise: Some(Box::new(first)),
    }
}

/// Returns the update of the element that a term belongs to, if the stage has it.
fn scatter_terms(
    (schedule, stage): (&Schedule, &Stage),
    bounds: &StageBounds,
    reduction: &Reduction,
    buffers: &[Buffer],
    place: &dyn Fn(&Expr) -> Expr,
) -> Stmt {
    let scattered = scattered_axes(schedule, stage);
    let fresh = |axis: usize| Var::index(stage.te.axes[axis].var.name());
    let scatters: Vec<(&ScatteredAxis, Var)> =
        scattered.iter().map(|scatter| (scatter, fresh(scatter.axis))).collect();
    let place = |expr: &Expr| {
        let along = |var: &Var| {
            let of =
                |(scatter, _): &&(&ScatteredAxis, Var)| stage.te.axes[scatter.axis].var == *var;
            scatters.iter().find(of).map(|(_, value)| Expr::var(value))
        };
        place(&substitute(expr, &mut |var| along(var)))
    };
    let mut indices = bounds.locals.clone();
    for (scatter, value) in &scatters {
        indices[scatter.axis] = Expr::sub(Expr::var(value), bounds.mins[scatter.axis].clone());
    }
    let terms: Vec<Expr> = reduction.terms.iter().map(place).collect();
    let mut update = build_update(buffers, reduction, &indices, terms);
    let guarded = |cond, then| Stmt::If { cond, then: Box::new(then), otherwise: None };
    let always_holds = |at: usize, condition: &Expr| {
        let mut later = scatters.iter().filter(|(scatter, _)| at < scatter.place);
        later.any(|(scatter, _)| mentions(condition, &stage.te.axes[scatter.axis].var))
    };
    for (at, condition) in reduction.conditions().iter().enumerate().rev() {
        if always_holds(at, condition) {
            continue;
        }
        let Some((scatter, var)) = scatters.iter().find(|(scatter, _)| scatter.place == at) else {
            update = guarded(place(condition), update);
            continue;
        };
        let (axis, zero) = (scatter.axis, Expr::index(0));
        let (index, element) = (indices[axis].clone(), Expr::var(var));
        let mut inside = Vec::new();
        // The region of an attached stage may leave the domain. Inside of the domain, the distance
        // from the first element of the region does not overflow.
        if matches!(stage.attach, Attach::At { .. }) {
            inside.push(Expr::le(zero.clone(), element.clone()));
            inside.push(Expr::lt(element, stage.te.axes[axis].extent.clone()));
        }
        inside.push(Expr::le(zero, index.clone()));
        inside.push(Expr::lt(index, bounds.shape[axis].clone()));
        let inside = inside.into_iter().reduce(|a, b| Expr::binary(BinOp::And, a, b));
        update = guarded(inside.expect("there are bounds"), update);
        let (var, value) = (var.clone(), place(&scatter.value));
        update = Stmt::Let { var, value, body: Box::new(update) };
    }
    update
}

/// Returns the condition under which an element of a scan has a term of its own.
fn term_in_range(scan: &Scan, reduction: &Reduction) -> Expr {
    let axis = &reduction.axes[scan.term];
    let value = Expr::var(&axis.var);
    let end = Expr::add(axis.min.clone(), axis.extent.clone());
    let likely = |cond| Expr::unary(UnOp::Likely, cond);
    let (low, high) = (Expr::le(axis.min.clone(), value.clone()), Expr::lt(value, end));
    Expr::binary(BinOp::And, likely(low), likely(high))
}

/// Returns the stores of an element of each buffer.
fn store_values(
    stage: &Stage,
    bounds: &StageBounds,
    buffers: &[Buffer],
    values: &[Expr],
    place: &dyn Fn(&Expr) -> Expr,
) -> Stmt {
    let store = |(buffer, value): (&Buffer, &Expr)| {
        let value = or_zero(bounds, Expr::cast(buffer.dtype, place(value)));
        let (buffer, indices) = (buffer.clone(), bounds.locals.clone());
        let nontemporal = stage.annotation::<StoreNontemporal>().is_some();
        Stmt::Store { buffer, indices, value, mask: None, nontemporal }
    };
    let mut stores: Vec<Stmt> = buffers.iter().zip(values).map(store).collect();
    let only = if stores.len() == 1 { stores.pop() } else { None };
    only.unwrap_or(Stmt::Block(stores))
}

/// Returns the value of an element of the region, which is 0 outside of the domain.
fn or_zero(bounds: &StageBounds, value: Expr) -> Expr {
    let Some(inside) = &bounds.zero_unless else { return value };
    let dtype = value.ty.dtype;
    let zero = match dtype.is_float() {
        true => Expr::float(if dtype.is_half() { DType::Float32 } else { dtype }, 0.0),
        false => Expr::int(dtype, 0),
    };
    // No operation but a conversion computes a half.
    let value = match same_half(&value) {
        Some(half) => Expr::cast(zero.ty.dtype, half.clone()),
        None => Expr::cast(zero.ty.dtype, value),
    };
    Expr::cast(dtype, Expr::if_then_else(inside.clone(), value, zero))
}

/// Returns the buffer of a stage as it is allocated. Outputs are arguments and stay as they are.
fn place_buffer(buffer: &Buffer, stage: &Stage, bounds: &StageBounds) -> Buffer {
    let scope = stage.scope.unwrap_or(buffer.scope);
    let attached = matches!(stage.attach, Attach::At { .. });
    let strides = strides(stage, &bounds.storage.shape);
    let whole = !attached && bounds.storage.ring.is_none();
    if stage.te.output || (whole && scope == buffer.scope && strides.is_none()) {
        return buffer.clone();
    }
    let (shape, how) = (bounds.storage.shape.clone(), stage.buffering());
    Buffer::with_layout(&buffer.name, buffer.dtype, shape, scope, strides, how)
}

/// Returns the position of the outermost reduction loop; the number of loops if there is none.
fn first_reduction(stage: &Stage) -> usize {
    let is_reduction = |leaf: &AxisId| stage.axis(*leaf).kind == AxisKind::Reduce;
    stage.leaves.iter().position(is_reduction).unwrap_or(stage.leaves.len())
}

/// Wraps `update` in the guards that skip terms and depend on no loop.
fn wrap_terms(bounds: &StageBounds, update: Stmt) -> Stmt {
    let guards = bounds.guards.iter().rev().filter(|guard| is_terms_only(guard));
    guards.fold(update, |body, guard| Stmt::If {
        cond: guard.cond.clone(),
        then: Box::new(body),
        otherwise: None,
    })
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
    let (min, extent) = match bounds.read_ranges.iter().find(|range| range.leaf == leaf) {
        Some(range) => (range.min.clone(), range.extent.clone()),
        None => (loop_min(stage, leaf), loop_extent(stage, bounds, leaf)),
    };
    let var = axis.var.clone();
    Stmt::For { var, min, extent, kind, body: Box::new(body) }
}

/// Wraps `body` in the guards of data axes that `is_selected` accepts.
fn wrap_guards(bounds: &StageBounds, body: Stmt, is_selected: impl Fn(&Guard) -> bool) -> Stmt {
    let guards = bounds.guards.iter().rev().filter(|guard| guard.kind == AxisKind::Data);
    guards.filter(|guard| is_selected(guard)).fold(body, |body, guard| Stmt::If {
        cond: guard.cond.clone(),
        then: Box::new(body),
        otherwise: None,
    })
}

/// Gives the loops of initial values new variables, named `x.init`.
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
