//! Bounds inference: how far every loop runs, and which part of an attached stage is computed.
//!
//! Before: `S.compute_at(C, xo)`, `C` reads `S[x]` and `S[x + 1]`, `x = xo*8 + xi`.
//! After: of `S` the box `xo*8 .. xo*8 + 9` is computed in each iteration of `xo`; its loop runs
//! from 0 to 9; where the box may leave the domain of `S`, there is a guard.
//! The box covers all that is read (Halide calls it the region required); consumers come before
//! producers.

use super::prefetch::PrefetchBox;
use super::region::{Ranges, Span};
use super::state::{
    Annotation, Attach, AxisId, AxisKind, Factor, Relation, Schedule, Stage, StageId, Tail,
};
use super::threads::is_private;
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{any_expr, mentions, substitute, walk_expr};
use crate::ir::{BinOp, Buffer, Expr, ExprKind, Part, Scope, ThreadIndex, UnOp, Var};
use crate::te::Body;
use rustc_hash::FxHashMap;

/// A schedule whose every extent is known: what loops are built from.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The schedule; inlined stages are gone from its order.
    pub schedule: Schedule,
    /// One per stage, by [`StageId`]; nothing for inlined ones.
    pub bounds: Vec<Option<StageBounds>>,
    /// What is asked for ahead of its use.
    pub prefetches: Vec<PrefetchBox>,
    /// What the kernel is to the one that it was made of, if it was.
    pub part: Option<Part>,
}

impl Placed {
    /// Bounds of a stage that is computed.
    pub fn of(&self, id: StageId) -> &StageBounds {
        self.bounds[id.0].as_ref().expect("the stage is in the order")
    }
}

/// Extents of one stage. Expressions are over the variables of its loops and of the loops around.
#[derive(Clone, Debug)]
pub struct StageBounds {
    /// Per data axis: the first index of the box.
    pub mins: Vec<Expr>,
    /// Per data axis: the extent of the box, over run-time integers.
    pub shape: Vec<Expr>,
    /// Per axis that it ever had: the extent, over run-time integers.
    pub extents: Vec<Expr>,
    /// Per root (data, then reduction axes): its index in the domain.
    pub values: Vec<Expr>,
    /// Per data axis: its index in the box.
    pub locals: Vec<Expr>,
    /// What must hold for an element or term to be computed.
    pub guards: Vec<Guard>,
    /// The loops around the point where it is attached, outermost first.
    pub around: Vec<Loop>,
    /// Threads around all its loops, for its guards: those of its launch that none of its own
    /// loops and none around is bound to.
    pub threads: Vec<(ThreadIndex, Var, Expr)>,
}

/// Variable, first value, extent of a loop.
pub type Loop = (Var, Expr, Expr);

/// A condition.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Over loops of the stage and of those around.
    pub cond: Expr,
    /// The loop, as an index into [`Stage::leaves`], inside which it stands; before all of them if
    /// none. [`Stage::leaves`]`.len() - 1` for what varies by lane.
    pub depth: Option<usize>,
    /// The same in the loops of start values, where only data axes are.
    pub initial_depth: Option<usize>,
    /// A condition on a reduction axis or a data axis.
    pub kind: AxisKind,
    /// It stands around the statement alone, not around what is attached inside that loop.
    pub innermost: bool,
}

/// Where an attached stage's code stands: inside the loop at this place of the consumer's leaves,
/// before everything else there; before all loops if `None`. A vectorized loop has no inside: the
/// stage is computed before it, for all lanes.
pub fn attach_depth(consumer: &Stage, axis: AxisId) -> Option<usize> {
    let at = consumer.leaves.iter().position(|leaf| *leaf == axis).expect("the axis is a loop");
    let lanes = consumer.leaves[..=at].iter().position(|leaf| is_vectorized(consumer, *leaf));
    lanes.map_or(Some(at), |lanes| lanes.checked_sub(1))
}

pub(super) fn is_vectorized(stage: &Stage, axis: AxisId) -> bool {
    matches!(stage.axis(axis).annotation, Some((Annotation::Vectorize, _)))
}

/// Infers the bounds of all stages.
pub fn infer_bounds(mut schedule: Schedule) -> Result<Placed> {
    super::inline::inline_stages(&mut schedule)?;
    super::threads::join_threads(&mut schedule);
    let mut facts = Facts::new();
    schedule.graph.known_facts().iter().for_each(|cond| facts.assume(cond));
    let reads = Reads::of(&schedule);
    let mut inference = Inference { bounds: vec![None; schedule.stages.len()], schedule, facts };
    for id in inference.schedule.order.iter().rev() {
        let schedule = &inference.schedule;
        schedule.checked(super::legality::check_attachment(schedule, *id, &reads))?;
    }
    super::threads::check_stages(&inference.schedule)?;
    super::storage::assign_pipelines(&mut inference.schedule)?;
    let mut extents = Vec::new();
    for id in inference.schedule.order.clone().into_iter().rev() {
        let bounds = inference.stage(id, &reads);
        super::threads::check_extents(&inference.schedule, id, &bounds, &mut extents)?;
        inference.bounds[id.0] = Some(bounds);
    }
    super::threads::place_guards(&inference.schedule, &mut inference.bounds);
    let schedule = &inference.schedule;
    schedule.checked(super::storage::check_storage(schedule, &reads))?;
    let prefetches = super::prefetch::prefetch_boxes(&inference)?;
    let (schedule, bounds) = (inference.schedule, inference.bounds);
    let mut placed = Placed { schedule, bounds, prefetches, part: None };
    super::legality::check_placed(&placed, &inference.facts)?;
    placed.schedule.reassociated |= super::legality::changes_order(&placed);
    Ok(placed)
}

/// A read of a stage's element.
#[derive(Clone, Debug)]
pub(super) struct Read {
    /// The stage that reads.
    pub(super) by: StageId,
    /// Over the roots of the reader.
    pub(super) indices: Vec<Expr>,
    /// It stands in the start value of a reduction.
    pub(super) initial: bool,
}

/// Who reads what.
pub(super) struct Reads(FxHashMap<StageId, Vec<Read>>);

impl Reads {
    fn of(schedule: &Schedule) -> Reads {
        let mut producers: FxHashMap<&Buffer, StageId> = FxHashMap::default();
        for id in &schedule.order {
            producers.extend(schedule.stage(*id).te.buffers.iter().map(|buffer| (buffer, *id)));
        }
        let mut reads: FxHashMap<StageId, Vec<Read>> = FxHashMap::default();
        for by in schedule.order.iter().copied() {
            let body = &schedule.stage(by).te.body;
            let mut find = |expr: &Expr, initial: bool| {
                walk_expr(expr, &mut |e| {
                    let ExprKind::Load { buffer, indices, .. } = &e.kind else { return };
                    if let Some(of) = producers.get(buffer) {
                        let indices = indices.clone();
                        reads.entry(*of).or_default().push(Read { by, indices, initial });
                    }
                });
            };
            match body {
                Body::Map(values) => values.iter().for_each(|value| find(value, false)),
                Body::Reduce(reduction) => {
                    reduction.identity.iter().for_each(|expr| find(expr, true));
                    reduction.terms.iter().for_each(|expr| find(expr, false));
                    reduction.condition.iter().for_each(|expr| find(expr, false));
                }
            }
        }
        Reads(reads)
    }

    /// Every read of a stage.
    pub(super) fn of_stage(&self, id: StageId) -> &[Read] {
        self.0.get(&id).map_or(&[], |reads| reads)
    }
}

pub(super) struct Inference {
    pub(super) schedule: Schedule,
    pub(super) bounds: Vec<Option<StageBounds>>,
    /// What holds everywhere.
    pub(super) facts: Facts,
}

impl Inference {
    /// Bounds of a stage whose consumers have theirs.
    fn stage(&mut self, id: StageId, reads: &Reads) -> StageBounds {
        let around = self.around(id);
        let mut facts = self.facts.clone();
        for (var, min, extent) in &around {
            facts.bind(var, min, extent);
        }
        let stage = self.schedule.stage(id);
        let domain: Vec<Expr> = stage.te.axes.iter().map(|axis| axis.extent.clone()).collect();
        let region: Vec<Span> = match stage.attach {
            Attach::At { .. } => {
                // What threads share is computed for all of them at once.
                let shared = stage.scope == Some(Scope::Shared);
                let stands = |(var, ..): &&Loop| !(shared && is_private(&self.schedule, var));
                let fixed: Vec<Loop> = around.iter().filter(stands).cloned().collect();
                self.region(id, reads.of_stage(id), &fixed, &facts)
            }
            _ => domain.iter().map(|extent| whole(extent, &facts)).collect(),
        };
        let mins = region.iter().map(|span| span.min.clone()).collect();
        let shape: Vec<Expr> = region.iter().map(|span| box_extent(span, &facts)).collect();
        if let Some(leaf) = self.lanes_of(id, reads, &shape) {
            let Attach::At { span, .. } = stage.attach else {
                crate::bug!("lanes of a stage that is not attached")
            };
            self.schedule.stage_mut(id).axis_mut(leaf).annotation =
                Some((Annotation::Vectorize, span));
        }
        let stage = self.schedule.stage(id);
        let attached = matches!(stage.attach, Attach::At { .. });
        compute_loops(stage, mins, shape, attached.then_some(&domain[..]), around, facts)
    }

    /// A stage attached to a vectorized axis is computed for all lanes: the loop over them, if it
    /// is one as declared and nothing stands in the way of lanes there.
    fn lanes_of(&self, id: StageId, reads: &Reads, shape: &[Expr]) -> Option<AxisId> {
        let stage = self.schedule.stage(id);
        let Attach::At { stage: consumer, axis, .. } = stage.attach else { return None };
        let target = self.schedule.stage(consumer);
        let plain = |leaf: &AxisId| {
            !matches!(
                stage.axis(*leaf).annotation,
                Some((Annotation::Vectorize | Annotation::Parallel | Annotation::Thread(_), _))
            )
        };
        let used = stage.axes.iter().any(|axis| axis.attached.is_some() || axis.used.is_some());
        if !is_vectorized(target, axis) || used || !stage.leaves.iter().all(plain) {
            return None;
        }
        let lane = &target.axis(axis).var;
        let values = &self.bounds[consumer.0].as_ref()?.values;
        let roots: Vec<&Var> = target.te.axes.iter().map(|axis| &axis.var).collect();
        let moves = |expr: &Expr| {
            any_expr(expr, &mut |e| {
                let root = e.as_var().and_then(|var| roots.iter().position(|root| *root == var));
                root.is_some_and(|root| mentions(&values[root], lane))
            })
        };
        let read = reads.of_stage(id).iter().find(|read| read.by == consumer)?;
        let dim = read.indices.iter().rposition(moves)?;
        let leaf = AxisId(dim);
        let lanes = shape[dim].as_int().is_some_and(|extent| extent > 1);
        let free = stage.leaves.contains(&leaf) && stage.axis(leaf).annotation.is_none();
        (lanes && free).then_some(leaf)
    }

    /// The loops around a stage, outermost first.
    fn around(&self, id: StageId) -> Vec<Loop> {
        let Attach::At { stage, axis, .. } = self.schedule.stage(id).attach else {
            return Vec::new();
        };
        let bounds = self.bounds[stage.0].as_ref().expect("consumers come first");
        let mut around = bounds.around.clone();
        let consumer = self.schedule.stage(stage);
        let inside = attach_depth(consumer, axis).map_or(0, |depth| depth + 1);
        around.extend(consumer.leaves[..inside].iter().map(|leaf| {
            let var = consumer.axis(*leaf).var.clone();
            (var, loop_min(consumer, *leaf), bounds.extents[leaf.0].clone())
        }));
        around
    }

    /// The box that all reads of one iteration lie in.
    fn region(&self, id: StageId, reads: &[Read], around: &[Loop], facts: &Facts) -> Vec<Span> {
        let domain = &self.schedule.stage(id).te.axes;
        let mut region: Vec<Option<Span>> = vec![None; domain.len()];
        let mut readers: FxHashMap<StageId, FxHashMap<Var, Span>> = FxHashMap::default();
        for read in reads {
            let roots =
                readers.entry(read.by).or_insert_with(|| self.root_spans(read.by, around, facts));
            let ranges = Ranges { moving: roots, facts };
            // The index is over roots, of which an unsplit one shares its variable with a loop that
            // may run over less.
            let mut over_roots = self.facts.clone();
            let reader = &self.schedule.stage(read.by).te;
            for axis in reader.axes.iter().chain(reader.reduce_axes()) {
                over_roots.bind(&axis.var, &axis.min, &axis.extent);
            }
            for ((index, axis), span) in read.indices.iter().zip(domain).zip(&mut region) {
                let index = simplify_expr(index, &over_roots);
                let new = ranges.span(&index);
                let new = self.tighter(new, read.by, &index, around, facts);
                let new = new.unwrap_or_else(|| whole(&axis.extent, facts));
                *span = Some(match span.take() {
                    None => new,
                    Some(old) => {
                        ranges.union(old, new).unwrap_or_else(|| whole(&axis.extent, facts))
                    }
                });
            }
        }
        let clip = |(span, axis): (Option<Span>, &crate::te::Axis)| {
            let span = span.unwrap_or_else(|| whole(&axis.extent, facts));
            clip_to(span, &axis.extent, facts)
        };
        region.into_iter().zip(domain).map(clip).collect()
    }

    /// Of a part of a root (`x // 8`, `x % 8`), whose values may lie apart, the loops tell more
    /// than the root does: with `x = xo*8 + xi`, `xi` fixed, `x % 8` is `xi`.
    fn tighter(
        &self,
        span: Option<Span>,
        reader: StageId,
        index: &Expr,
        around: &[Loop],
        facts: &Facts,
    ) -> Option<Span> {
        let parts = any_expr(index, &mut |e| {
            matches!(e.kind, ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, ..))
        });
        let wide = |span: &Span| span.width.as_int().is_none_or(|width| width > 0);
        if !parts || !span.as_ref().is_none_or(wide) {
            return span;
        }
        let te = &self.schedule.stage(reader).te;
        let bounds = self.bounds[reader.0].as_ref().expect("consumers come first");
        let roots: FxHashMap<&Var, &Expr> = te
            .axes
            .iter()
            .chain(te.reduce_axes())
            .map(|axis| &axis.var)
            .zip(&bounds.values)
            .collect();
        let index = substitute(index, &mut |var| roots.get(var).map(|value| (*value).clone()));
        let moving = self.moving_loops(reader, around, facts);
        let mut inside = facts.clone();
        for (var, span) in &moving {
            let extent = Expr::add(span.width.clone(), Expr::index(1));
            inside.bind(var, &span.min, &extent);
        }
        let index = simplify_expr(&index, &inside);
        let new = Ranges { moving: &moving, facts }.span(&index);
        let width = |span: &Option<Span>| span.as_ref().and_then(|span| span.width.as_int());
        match (width(&span), width(&new)) {
            (old, Some(new_width)) if old.is_none_or(|old| new_width < old) => new,
            _ => span,
        }
    }

    /// The loops of a stage and around it that run while those of `around` stand still.
    fn moving_loops(&self, id: StageId, around: &[Loop], facts: &Facts) -> FxHashMap<Var, Span> {
        let stage = self.schedule.stage(id);
        let bounds = self.bounds[id.0].as_ref().expect("consumers come first");
        let mut moving: FxHashMap<Var, Span> = FxHashMap::default();
        let own = stage.leaves.iter().map(|leaf| {
            let axis = stage.axis(*leaf);
            (axis.var.clone(), loop_min(stage, *leaf), bounds.extents[leaf.0].clone())
        });
        for (var, min, extent) in bounds.around.iter().cloned().chain(own) {
            if around.iter().all(|(fixed, ..)| *fixed != var) {
                let width = Expr::sub(extent, Expr::index(1));
                moving.insert(var, Span { min, width: simplify_expr(&width, facts) });
            }
        }
        moving
    }

    /// What each root of a stage covers while the loops of `around` stand still.
    pub(super) fn root_spans(
        &self,
        id: StageId,
        around: &[Loop],
        facts: &Facts,
    ) -> FxHashMap<Var, Span> {
        let stage = self.schedule.stage(id);
        let bounds = self.bounds[id.0].as_ref().expect("consumers come first");
        let moving = self.moving_loops(id, around, facts);
        let ranges = Ranges { moving: &moving, facts };
        let mut spans = FxHashMap::default();
        let reduce = stage.te.reduce_axes();
        for (axis, value) in stage.te.axes.iter().chain(reduce).zip(&bounds.values) {
            let domain = {
                let width = Expr::sub(axis.extent.clone(), Expr::index(1));
                Span { min: axis.min.clone(), width: simplify_expr(&width, facts) }
            };
            let span = match ranges.span(&simplify_expr(value, facts)) {
                Some(span) if !covers(&span, &domain.width, facts) => span,
                _ => domain,
            };
            spans.insert(axis.var.clone(), span);
        }
        spans
    }
}

/// The first value of a loop: 0, but for a reduction axis that is a loop as it was declared.
pub fn loop_min(stage: &Stage, leaf: AxisId) -> Expr {
    let reduce = stage.te.reduce_axes();
    match leaf.0.checked_sub(stage.rank()).and_then(|at| reduce.get(at)) {
        Some(axis) => axis.min.clone(),
        None => Expr::index(0),
    }
}

fn whole(extent: &Expr, facts: &Facts) -> Span {
    let width = simplify_expr(&Expr::sub(extent.clone(), Expr::index(1)), facts);
    Span { min: Expr::index(0), width }
}

/// The extent of a box: not negative where loops of the consumer may be empty.
fn box_extent(span: &Span, facts: &Facts) -> Expr {
    let extent = simplify_expr(&Expr::add(span.width.clone(), Expr::index(1)), facts);
    let zero = Expr::index(0);
    match facts.prove(&Expr::le(zero.clone(), extent.clone())) {
        true => extent,
        false => Expr::binary(BinOp::Max, extent, zero),
    }
}

fn covers(span: &Span, width: &Expr, facts: &Facts) -> bool {
    facts.prove(&Expr::le(width.clone(), span.width.clone()))
}

/// Wider boxes are made only where the domain is known to be wider still: such a width comes from
/// the range of a type.
const MAX_WIDTH: i128 = 1 << 20;

/// A box that is as wide as the domain is the domain.
pub(super) fn clip_to(span: Span, extent: &Expr, facts: &Facts) -> Span {
    let domain = whole(extent, facts);
    let wide = span.width.as_int().is_some_and(|width| width > MAX_WIDTH)
        && !facts.prove(&Expr::le(span.width.clone(), domain.width.clone()));
    if wide || covers(&span, &domain.width, facts) { domain } else { span }
}

/// Extents, values and guards of a stage's loops over its box.
fn compute_loops(
    stage: &Stage,
    mins: Vec<Expr>,
    shape: Vec<Expr>,
    domain: Option<&[Expr]>,
    around: Vec<Loop>,
    mut facts: Facts,
) -> StageBounds {
    let extents = axis_extents(stage, &shape, &facts);
    for leaf in &stage.leaves {
        facts.bind(&stage.axis(*leaf).var, &loop_min(stage, *leaf), &extents[leaf.0]);
    }
    let (values, shifted) = axis_values(stage, &extents);
    let mut conditions: Vec<(Expr, AxisKind, bool)> = Vec::new();
    for (at, relation) in stage.relations.iter().enumerate() {
        let Relation::Split { parent, tail, .. } = relation else { continue };
        // What leaves the range of an outer part leaves that of the whole too.
        let implied = stage.relations[..at].iter().enumerate().any(|(at, earlier)| {
            matches!(earlier, Relation::Split { outer, .. } if outer == parent)
                && !shifted.contains(&at)
        });
        if shifted.contains(&at) || implied {
            continue;
        }
        let cond = Expr::lt(values[parent.0].clone(), extents[parent.0].clone());
        let likely = !matches!(tail, Some(Tail::Guard | Tail::Mask));
        conditions.push((cond, stage.axis(*parent).kind, likely));
    }
    let rank = stage.rank();
    let locals: Vec<Expr> = values[..rank].to_vec();
    let mut indices: Vec<Expr> = Vec::new();
    for (at, (local, min)) in locals.iter().zip(&mins).enumerate() {
        let index = if min.as_int() == Some(0) {
            local.clone()
        } else {
            Expr::add(min.clone(), local.clone())
        };
        if let Some(domain) = domain {
            let zero = Expr::index(0);
            conditions.push((Expr::le(zero, index.clone()), AxisKind::Data, true));
            conditions.push((Expr::lt(index.clone(), domain[at].clone()), AxisKind::Data, true));
        }
        indices.push(index);
    }
    for (axis, at) in stage.te.reduce_axes().iter().zip(rank..) {
        let unsplit = stage.leaves.contains(&AxisId(at));
        let value = values[at].clone();
        indices.push(match unsplit || axis.min.as_int() == Some(0) {
            true => value,
            false => Expr::add(axis.min.clone(), value),
        });
    }
    let simple = |(cond, kind, likely)| (simplify_expr(&cond, &facts), kind, likely);
    let mut conditions: Vec<(Expr, AxisKind, bool)> = conditions.into_iter().map(simple).collect();
    conditions.retain(|(cond, ..)| !facts.prove(cond));
    drop_implied(&mut conditions, &facts);
    let mut guards = Vec::new();
    for (cond, kind, likely) in conditions {
        let depth = guard_depth(stage, &cond, |_| true);
        let initial_depth =
            guard_depth(stage, &cond, |leaf| stage.axis(leaf).kind == AxisKind::Data);
        let cond = if likely { Expr::unary(UnOp::Likely, cond) } else { cond };
        guards.push(Guard { cond, depth, initial_depth, kind, innermost: false });
    }
    let threads = Vec::new();
    StageBounds { mins, shape, extents, values: indices, locals, guards, around, threads }
}

/// Leaves out what follows from the other conditions: the tail of an outer part of a split often
/// follows from that of the inner one, and that a box lies in the domain from both. Start values
/// are under the conditions on data axes alone.
fn drop_implied(conditions: &mut Vec<(Expr, AxisKind, bool)>, facts: &Facts) {
    let mut at = 0;
    while at < conditions.len() && conditions.len() > 1 {
        let (cond, kind, _) = &conditions[at];
        let mut known = facts.clone();
        for (place, (other, of, _)) in conditions.iter().enumerate() {
            if place != at && (*of == AxisKind::Data || *kind == AxisKind::Reduce) {
                known.assume(other);
            }
        }
        match known.prove(cond) {
            true => drop(conditions.remove(at)),
            false => at += 1,
        }
    }
}

/// The innermost loop that a condition mentions, of those of `nest`; the innermost of all of them
/// if lanes differ in it.
fn guard_depth(stage: &Stage, cond: &Expr, nest: impl Fn(AxisId) -> bool) -> Option<usize> {
    let mut depth = None;
    let last = stage.leaves.iter().rposition(|leaf| nest(*leaf));
    walk_expr(cond, &mut |e| {
        let Some(var) = e.as_var() else { return };
        let at = stage.leaves.iter().position(|leaf| stage.axis(*leaf).var == *var);
        if let Some(at) = at {
            let lanes = is_vectorized(stage, stage.leaves[at]);
            depth = depth.max(if lanes { last } else { Some(at) });
        }
    });
    depth
}

/// So many iterations that do nothing are not worth a smaller extent that is no constant.
pub const FEW_STEPS: i128 = 65_536;

/// The extent of every axis, from the box on. Where parts of a split are split again or fused,
/// those with a constant extent may run far beyond what there is, and a loop made of them asks each
/// time: such parts get no more iterations than there can be.
pub(super) fn axis_extents(stage: &Stage, shape: &[Expr], facts: &Facts) -> Vec<Expr> {
    let mut capped = vec![false; stage.axes.len()];
    let extents = extents_with(stage, shape, facts, &capped);
    let mut parts_of: FxHashMap<AxisId, Vec<AxisId>> = FxHashMap::default();
    for relation in &stage.relations {
        let together: Vec<AxisId> = match relation {
            Relation::Split { parent, .. } => vec![*parent],
            Relation::Fuse { parts, .. } => {
                parts.iter().flat_map(|p| parts_of.get(p).cloned().unwrap_or(vec![*p])).collect()
            }
        };
        let beyond = |axis: &&AxisId| needed(&stage.relations, &extents, **axis).is_some();
        let beyond: Vec<&AxisId> = together.iter().filter(beyond).collect();
        let steps = beyond.iter().filter_map(|axis| extents[axis.0].as_int());
        if steps.fold(1i128, i128::saturating_mul) >= FEW_STEPS {
            beyond.iter().for_each(|axis| capped[axis.0] = true);
        }
        if let Relation::Fuse { fused, .. } = relation {
            parts_of.insert(*fused, together);
        }
    }
    match capped.contains(&true) {
        true => extents_with(stage, shape, facts, &capped),
        false => extents,
    }
}

/// [`axis_extents`], `capped` where an axis is to have no more iterations than are needed.
fn extents_with(stage: &Stage, shape: &[Expr], facts: &Facts, capped: &[bool]) -> Vec<Expr> {
    let mut extents: Vec<Expr> = vec![Expr::index(1); stage.axes.len()];
    extents[..shape.len()].clone_from_slice(shape);
    for (axis, extent) in stage.te.reduce_axes().iter().zip(&mut extents[shape.len()..]) {
        *extent = axis.extent.clone();
    }
    let divide_up = |extent: &Expr, by: i64| {
        let sum = Expr::add(extent.clone(), Expr::index(by - 1));
        simplify_expr(&Expr::binary(BinOp::FloorDiv, sum, Expr::index(by)), facts)
    };
    for relation in &stage.relations {
        match relation {
            Relation::Split { parent, outer, inner, factor, .. } => {
                let extent = extents[parent.0].clone();
                let (out, inn) = match factor {
                    Factor::Inner(f) => (divide_up(&extent, *f), Expr::index(*f)),
                    Factor::Outer(p) => (Expr::index(*p), divide_up(&extent, *p)),
                };
                (extents[outer.0], extents[inner.0]) = (out, inn);
                for axis in [outer, inner].into_iter().filter(|axis| capped[axis.0]) {
                    if let Some((needed, _)) = needed(&stage.relations, &extents, *axis) {
                        extents[axis.0] = simplify_expr(&needed, facts);
                    }
                }
            }
            Relation::Fuse { parts, fused, .. } => {
                let product = parts.iter().map(|part| extents[part.0].clone()).reduce(Expr::mul);
                let product = product.expect("at least two are fused");
                extents[fused.0] = simplify_expr(&product, facts);
            }
        }
    }
    extents
}

/// How far the outer part of a split goes in a step, where the inner one has so many iterations.
pub(super) fn step_of(factor: Factor, inner: &Expr) -> Expr {
    match factor {
        Factor::Inner(step) => Expr::index(step),
        Factor::Outer(_) => inner.clone(),
    }
}

/// How many iterations of `axis` have something to do, if a split gave it a constant extent that
/// may be more; and the split's factor.
pub fn needed(relations: &[Relation], extents: &[Expr], axis: AxisId) -> Option<(Expr, Factor)> {
    relations.iter().find_map(|relation| {
        let Relation::Split { parent, outer, inner, factor, .. } = relation else { return None };
        let whole = &extents[parent.0];
        match factor {
            Factor::Outer(_) if *outer == axis => {
                // Never more than there are parts.
                let part = &extents[inner.0];
                let sum = Expr::sub(Expr::add(whole.clone(), part.clone()), Expr::index(1));
                Some((Expr::binary(BinOp::FloorDiv, sum, part.clone()), *factor))
            }
            Factor::Inner(step) if *inner == axis => match whole.as_int() {
                Some(whole) if whole >= i128::from(*step) => None,
                _ => {
                    let least = Expr::binary(BinOp::Min, Expr::index(*step), whole.clone());
                    Some((least, *factor))
                }
            },
            _ => None,
        }
    })
}

/// The value of every axis over the loops, and the splits (as indices of relations) whose tail
/// is a shift.
pub(super) fn axis_values(stage: &Stage, extents: &[Expr]) -> (Vec<Expr>, Vec<usize>) {
    let mut values: Vec<Expr> = stage.axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let mut shifted = Vec::new();
    for (at, relation) in stage.relations.iter().enumerate().rev() {
        match relation {
            Relation::Split { parent, outer, inner, factor, tail, .. } => {
                let step = step_of(*factor, &extents[inner.0]);
                let mut first = Expr::mul(values[outer.0].clone(), step.clone());
                if *tail == Some(Tail::Shift) {
                    shifted.push(at);
                    let last = Expr::sub(extents[parent.0].clone(), step);
                    first = Expr::binary(BinOp::Min, first, last);
                }
                values[parent.0] = Expr::add(first, values[inner.0].clone());
            }
            Relation::Fuse { parts, fused, .. } => {
                let fused = values[fused.0].clone();
                let mut rest: Option<Expr> = None;
                for (place, part) in parts.iter().enumerate().rev() {
                    let extent = extents[part.0].clone();
                    let mut value = fused.clone();
                    if let Some(rest) = &rest {
                        value = Expr::binary(BinOp::FloorDiv, value, rest.clone());
                    }
                    if place > 0 {
                        value = Expr::binary(BinOp::FloorMod, value, extent.clone());
                    }
                    values[part.0] = value;
                    rest = Some(match rest {
                        None => extent,
                        Some(rest) => Expr::mul(extent, rest),
                    });
                }
            }
        }
    }
    (values, shifted)
}

/// Replaces the roots of a stage in an expression of its body by their indices.
pub fn over_loops(stage: &Stage, bounds: &StageBounds, expr: &Expr) -> Expr {
    let reduce = stage.te.reduce_axes();
    substitute(expr, &mut |var| {
        let mut roots = stage.te.axes.iter().chain(reduce);
        let at = roots.position(|axis| axis.var == *var)?;
        Some(bounds.values[at].clone())
    })
}
