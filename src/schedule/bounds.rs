//! The bounds of one stage: the region that is computed, the extents of its loops, and guards.
//!
//! Before: `S.compute_at(C, xo)`, `C` reads `S[x]` and `S[x + 1]`, `x = xo*8 + xi`.
//! After: each iteration of `xo` computes the region `xo*8 .. xo*8 + 9` of `S`; its loop has the
//! extent 9, and a guard stands where the region may leave the domain of `S`.

use super::directives::{Scan, Tensorize};
use super::fused::group_of;
use super::phases::Inference;
use super::region::{Interval, IntervalEvaluator};
use super::sorts::sort_of;
use super::state::{Annotation, Attach, AxisId, AxisKind, Factor, Relation, Stage, StageId, Tail};
use super::storage::{Region, Storage};
use super::threads::is_private;
use crate::diag::Result;
use crate::ir::arith::Facts;
use crate::ir::print::print_expr;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{any_expr, mentions, substitute, walk_expr};
use crate::ir::{BinOp, Expr, ExprKind, Scope, ThreadIndex, UnOp, Var};
use rustc_hash::FxHashMap;

/// The bounds of one stage. Expressions are over the variables of its loops and of the enclosing
/// loops.
#[derive(Clone, Debug)]
pub struct StageBounds {
    /// The first index of the region, for each data axis.
    pub mins: Vec<Expr>,
    /// The extent of the region for each data axis, over run-time integers.
    pub shape: Vec<Expr>,
    /// Where the elements are stored: the region, or more if it keeps those of earlier iterations.
    pub storage: Storage,
    /// The loops of `enclosing_loops` that begin earlier for this stage, with the number of
    /// additional iterations.
    pub warm_up: Vec<(Var, i64)>,
    /// The extent of each axis, over run-time integers.
    pub extents: Vec<Expr>,
    /// The value of each declared axis (data, then reduction axes) in the domain.
    pub values: Vec<Expr>,
    /// The index in the buffer for each data axis.
    pub locals: Vec<Expr>,
    /// The conditions under which an element or reduction term is computed.
    pub guards: Vec<Guard>,
    /// The iterations of loops that compute what somebody reads; other loops run all of theirs.
    pub read_ranges: Vec<ReadRange>,
    /// The condition under which an element of a padded stage has a value, others being 0; `None`
    /// if all have.
    pub zero_unless: Option<Expr>,
    /// The loops of other stages that enclose it, outermost first.
    pub enclosing_loops: Vec<Loop>,
    /// The thread indices that its guards need and that neither its loops nor the enclosing ones
    /// bind, each with its variable and extent.
    pub threads: Vec<(ThreadIndex, Var, Expr)>,
}

/// The iterations of a loop that compute elements that are read, and perhaps others.
#[derive(Clone, Debug)]
pub struct ReadRange {
    /// The loop.
    pub leaf: AxisId,
    /// The first iteration.
    pub min: Expr,
    /// How many there are.
    pub extent: Expr,
}

/// The variable, first value and extent of a loop.
pub type Loop = (Var, Expr, Expr);

/// A condition around statements of a stage.
#[derive(Clone, Debug)]
pub struct Guard {
    /// The condition, over the loops of the stage and the enclosing ones.
    pub cond: Expr,
    /// The loop that it stands in, as an index into [`Stage::leaves`]; `None` if it stands around
    /// all of them. The innermost loop if the condition differs between lanes.
    pub depth: Option<usize>,
    /// The same for the loops that store start values, which have data axes only.
    pub initial_depth: Option<usize>,
    /// Whether it restricts a reduction axis or a data axis.
    pub kind: AxisKind,
    /// Whether it stands around the statement only, not around stages attached to that loop.
    pub innermost: bool,
}

impl Guard {
    /// Returns the condition as it is printed, without the mark of likely ones.
    pub(super) fn text(&self) -> String {
        print_expr(match &self.cond.kind {
            ExprKind::Unary(UnOp::Likely, cond) => cond,
            _ => &self.cond,
        })
    }
}

/// Whether a guard of a reduction axis depends on no loop: it skips terms, not initial values.
pub fn is_terms_only(guard: &Guard) -> bool {
    guard.depth.is_none() && guard.kind == AxisKind::Reduce
}

/// Returns the loop of the consumer, as an index into its leaves, at whose beginning an attached
/// stage is computed; `None` if that is before all loops. A stage that is attached to a vectorized
/// loop is computed before that loop, for all lanes.
pub fn attach_depth(consumer: &Stage, axis: AxisId) -> Option<usize> {
    let at = consumer.leaves.iter().position(|leaf| *leaf == axis).expect("the axis is a loop");
    let lanes = consumer.leaves[..=at].iter().position(|leaf| is_vectorized(consumer, *leaf));
    lanes.map_or(Some(at), |lanes| lanes.checked_sub(1))
}

/// Whether a loop is vectorized.
pub(super) fn is_vectorized(stage: &Stage, axis: AxisId) -> bool {
    matches!(stage.axis(axis).annotation, Some((Annotation::Vectorize, _)))
}

impl Inference {
    /// Returns the bounds of a stage whose consumers have theirs. A stage that is attached to a
    /// vectorized loop becomes vectorized where possible.
    pub(super) fn bound_stage(&mut self, id: StageId) -> Result<StageBounds> {
        let (mut enclosing, mut warm_up) = self.enclosing_loops(id);
        let mut facts = self.facts_in(&enclosing);
        let stage = self.bounded.schedule.stage(id);
        let domain: Vec<Expr> = stage.te.axes.iter().map(|axis| axis.extent.clone()).collect();
        let mut region: Vec<Interval> = match stage.attach {
            Attach::At { .. } => {
                // A shared stage is computed for all threads of the block.
                let shared = stage.scope == Some(Scope::Shared);
                let schedule = &self.bounded.schedule;
                let is_fixed = |(var, ..): &&Loop| !(shared && is_private(schedule, var));
                let fixed: Vec<Loop> = enclosing.iter().filter(is_fixed).cloned().collect();
                self.region(id, self.reads.of_stage(id), &fixed, &facts)
            }
            _ => domain.iter().map(|extent| whole(extent, &facts)).collect(),
        };
        if let Some((_, scan)) = stage.annotation::<Scan>() {
            // An element needs all elements before it.
            region[scan.axis] = whole(&domain[scan.axis], &facts);
        }
        let mins = region.iter().map(|dim| dim.min.clone()).collect();
        let shape: Vec<Expr> = region.iter().map(|dim| region_extent(dim, &facts)).collect();
        let mut region = Region::new(mins, shape);
        if let Some(slide) = self.slide(id, &enclosing, &region)? {
            region = slide.region;
            for (var, iterations) in slide.warm_up {
                begin_earlier(&mut enclosing, &mut warm_up, &var, iterations);
            }
            facts = self.facts_in(&enclosing);
        }
        if let Some(leaf) = self.loop_over_lanes(id, &region.shape) {
            let Attach::At { span, .. } = stage.attach else {
                crate::bug!("lanes of a stage that is not attached")
            };
            self.bounded.schedule.stage_mut(id).axis_mut(leaf).annotation =
                Some((Annotation::Vectorize, span));
        }
        let stage = self.bounded.schedule.stage(id);
        let attached = matches!(stage.attach, Attach::At { .. });
        let domain = attached.then_some(Domain { extents: &domain, whole_tiles: &[] });
        let bounds = compute_loops(stage, region, domain, enclosing, facts);
        Ok(StageBounds { warm_up, ..bounds })
    }

    /// Returns the facts inside of loops.
    pub(super) fn facts_in(&self, loops: &[Loop]) -> Facts {
        let mut facts = self.facts.clone();
        loops.iter().for_each(|(var, min, extent)| facts.bind(var, min, extent));
        facts
    }

    /// Returns the loop over the lanes of a stage that is attached to a vectorized axis. `None` if
    /// no loop as declared runs over them, or if the stage has loops that cannot enclose vectors.
    fn loop_over_lanes(&self, id: StageId, shape: &[Expr]) -> Option<AxisId> {
        let stage = self.bounded.schedule.stage(id);
        let Attach::At { stage: consumer, axis, .. } = stage.attach else { return None };
        let target = self.bounded.schedule.stage(consumer);
        let plain = |leaf: &AxisId| {
            !matches!(
                stage.axis(*leaf).annotation,
                Some((Annotation::Vectorize | Annotation::Parallel | Annotation::Thread(_), _))
            )
        };
        let needed = |leaf: &AxisId| {
            self.bounded.schedule.attached_to(id, *leaf).is_some()
                || stage.annotation_at(*leaf).is_some()
        };
        let is_needed = stage.leaves.iter().any(needed);
        let sorts = sort_of(stage).is_some();
        if !is_vectorized(target, axis) || is_needed || sorts || !stage.leaves.iter().all(plain) {
            return None;
        }
        let lane = &target.axis(axis).var;
        let values = &self.bounded.bounds[consumer.0].as_ref()?.values;
        let roots: Vec<&Var> = target.te.axes.iter().map(|axis| &axis.var).collect();
        let moves = |expr: &Expr| {
            any_expr(expr, &mut |e| {
                let root = e.as_var().and_then(|var| roots.iter().position(|root| *root == var));
                root.is_some_and(|root| mentions(&values[root], lane))
            })
        };
        let read = self.reads.of_stage(id).iter().find(|read| read.by == consumer)?;
        let dim = read.indices.iter().rposition(moves)?;
        let leaf = AxisId(dim);
        let lanes = shape[dim].as_int().is_some_and(|extent| extent > 1);
        let free = stage.leaves.contains(&leaf) && stage.axis(leaf).annotation.is_none();
        (lanes && free).then_some(leaf)
    }

    /// Returns the loops of other stages that enclose a stage, outermost first, and those of them
    /// that begin earlier because a reader does.
    fn enclosing_loops(&self, id: StageId) -> (Vec<Loop>, Vec<(Var, i64)>) {
        let Attach::At { stage, axis, .. } = self.bounded.schedule.stage(id).attach else {
            return (Vec::new(), Vec::new());
        };
        let bounds = self.bounded.bounds[stage.0].as_ref().expect("consumers come first");
        let mut enclosing = bounds.enclosing_loops.clone();
        let consumer = self.bounded.schedule.stage(stage);
        let inside = attach_depth(consumer, axis).map_or(0, |depth| depth + 1);
        enclosing.extend(consumer.leaves[..inside].iter().map(|leaf| {
            let var = consumer.axis(*leaf).var.clone();
            (var, loop_min(consumer, *leaf), bounds.extents[leaf.0].clone())
        }));
        let mut warm_up = bounds.warm_up.clone();
        // Stages that share loops begin together.
        let group = group_of(&self.bounded.schedule, id);
        for read in group.iter().flat_map(|id| self.reads.of_stage(*id)) {
            let Some(reader) = &self.bounded.bounds[read.by.0] else { continue };
            for (var, iterations) in &reader.warm_up {
                let known = warm_up.iter().find(|(other, _)| other == var).map_or(0, |(_, n)| *n);
                begin_earlier(&mut enclosing, &mut warm_up, var, (iterations - known).max(0));
            }
        }
        (enclosing, warm_up)
    }

    /// Returns a smaller interval of an index with a quotient or remainder, if the loops give one:
    /// with `x = xo*8 + xi` and `xi` fixed, `x % 8` is `xi`.
    pub(super) fn tighten(
        &self,
        interval: Option<Interval>,
        reader: StageId,
        index: &Expr,
        fixed: &[Loop],
        facts: &Facts,
    ) -> Option<Interval> {
        let parts = any_expr(index, &mut |e| {
            matches!(e.kind, ExprKind::Binary(BinOp::FloorDiv | BinOp::FloorMod, ..))
        });
        let is_wide = |interval: &Interval| interval.width.as_int().is_none_or(|width| width > 0);
        if !parts || !interval.as_ref().is_none_or(is_wide) {
            return interval;
        }
        let te = &self.bounded.schedule.stage(reader).te;
        let bounds = self.bounded.bounds[reader.0].as_ref().expect("consumers come first");
        let roots: FxHashMap<&Var, &Expr> = te
            .axes
            .iter()
            .chain(te.reduce_axes())
            .map(|axis| &axis.var)
            .zip(&bounds.values)
            .collect();
        let index = substitute(index, &mut |var| roots.get(var).map(|value| (*value).clone()));
        let moving = self.moving_loops(reader, fixed, facts);
        let mut inside = facts.clone();
        for (var, values) in &moving {
            let extent = Expr::add(values.width.clone(), Expr::index(1));
            inside.bind(var, &values.min, &extent);
        }
        let index = simplify_expr(&index, &inside);
        let new = IntervalEvaluator { moving: &moving, facts }.interval(&index);
        let width = |of: &Option<Interval>| of.as_ref().and_then(|of| of.width.as_int());
        match (width(&interval), width(&new)) {
            (old, Some(new_width)) if old.is_none_or(|old| new_width < old) => new,
            _ => interval,
        }
    }

    /// Returns the loops of a stage and the enclosing ones, without those of `fixed`.
    pub(super) fn moving_loops(
        &self,
        id: StageId,
        fixed: &[Loop],
        facts: &Facts,
    ) -> FxHashMap<Var, Interval> {
        let stage = self.bounded.schedule.stage(id);
        let bounds = self.bounded.bounds[id.0].as_ref().expect("consumers come first");
        let mut moving: FxHashMap<Var, Interval> = FxHashMap::default();
        let own = stage.leaves.iter().map(|leaf| {
            let axis = stage.axis(*leaf);
            (axis.var.clone(), loop_min(stage, *leaf), bounds.extents[leaf.0].clone())
        });
        for (var, min, extent) in bounds.enclosing_loops.iter().cloned().chain(own) {
            if fixed.iter().all(|(other, ..)| *other != var) {
                let width = Expr::sub(extent, Expr::index(1));
                moving.insert(var, Interval { min, width: simplify_expr(&width, facts) });
            }
        }
        moving
    }

    /// Returns the values of each declared axis of a stage, for fixed iterations of the loops
    /// `fixed`.
    pub(super) fn axis_intervals(
        &self,
        id: StageId,
        fixed: &[Loop],
        facts: &Facts,
    ) -> FxHashMap<Var, Interval> {
        let stage = self.bounded.schedule.stage(id);
        let bounds = self.bounded.bounds[id.0].as_ref().expect("consumers come first");
        let moving = self.moving_loops(id, fixed, facts);
        let evaluator = IntervalEvaluator { moving: &moving, facts };
        let mut intervals = FxHashMap::default();
        let reduce = stage.te.reduce_axes();
        for (axis, value) in stage.te.axes.iter().chain(reduce).zip(&bounds.values) {
            let domain = {
                let width = Expr::sub(axis.extent.clone(), Expr::index(1));
                Interval { min: axis.min.clone(), width: simplify_expr(&width, facts) }
            };
            let interval = match evaluator.interval(&simplify_expr(value, facts)) {
                Some(interval) if !covers(&interval, &domain.width, facts) => interval,
                _ => domain,
            };
            intervals.insert(axis.var.clone(), interval);
        }
        // Stages that are computed inside a step have elements of this step only, whatever the
        // loops over them exceed: those of the next step do not exist yet.
        for (axis, step) in stage.te.axes.iter().zip(self.current_steps(id)) {
            if let Some(step) = step.filter(|step| fixed.iter().any(|(var, ..)| var == step)) {
                let interval = Interval { min: Expr::var(&step), width: Expr::index(0) };
                intervals.insert(axis.var.clone(), interval);
            }
        }
        intervals
    }
}

/// Returns the first value of a loop: 0, except for an unsplit reduction axis with another start.
pub fn loop_min(stage: &Stage, leaf: AxisId) -> Expr {
    let reduce = stage.te.reduce_axes();
    match leaf.0.checked_sub(stage.rank()).and_then(|at| reduce.get(at)) {
        Some(axis) => axis.min.clone(),
        None => Expr::index(0),
    }
}

/// Returns the interval of all indices of a dimension.
pub(super) fn whole(extent: &Expr, facts: &Facts) -> Interval {
    let width = simplify_expr(&Expr::sub(extent.clone(), Expr::index(1)), facts);
    Interval { min: Expr::index(0), width }
}

/// Returns the extent of an interval; 0 if it may be negative, because loops of the consumer may be
/// empty.
pub(super) fn region_extent(interval: &Interval, facts: &Facts) -> Expr {
    let extent = simplify_expr(&Expr::add(interval.width.clone(), Expr::index(1)), facts);
    let zero = Expr::index(0);
    match facts.prove(&Expr::le(zero.clone(), extent.clone())) {
        true => extent,
        false => Expr::binary(BinOp::Max, extent, zero),
    }
}

/// Whether an interval is at least `width` wide. One of constant width does not count as wider
/// than a run-time width, because lanes need constant extents.
fn covers(interval: &Interval, width: &Expr, facts: &Facts) -> bool {
    let stays_constant = interval.width.as_int().is_some() && width.as_int().is_none();
    !stays_constant && facts.prove(&Expr::le(width.clone(), interval.width.clone()))
}

/// A wider region is used only if the domain is provably wider, because such a width is the range
/// of a type.
const MAX_WIDTH: i128 = 1 << 20;

/// Returns the interval, or the whole dimension if the interval is as wide.
pub(super) fn clip_to(interval: Interval, extent: &Expr, facts: &Facts) -> Interval {
    let domain = whole(extent, facts);
    let (least, _) = facts.const_bounds(&interval.width);
    let wide = least.is_some_and(|width| width > MAX_WIDTH)
        && !facts.prove(&Expr::le(interval.width.clone(), domain.width.clone()));
    if wide || covers(&interval, &domain.width, facts) { domain } else { interval }
}

/// What keeps the loops of a region inside the domain of a stage.
#[derive(Clone, Copy)]
pub(super) struct Domain<'a> {
    /// The extents of the data axes.
    pub(super) extents: &'a [Expr],
    /// The data axes in which tiles that begin in the domain are computed whole; none if empty.
    pub(super) whole_tiles: &'a [bool],
}

/// Makes one of `loops` begin earlier, if it is one of them.
fn begin_earlier(loops: &mut [Loop], warm_up: &mut Vec<(Var, i64)>, var: &Var, iterations: i64) {
    let found = loops.iter_mut().find(|(other, ..)| other == var);
    let Some((_, min, extent)) = found.filter(|_| iterations > 0) else { return };
    let facts = Facts::new();
    *min = simplify_expr(&Expr::sub(min.clone(), Expr::index(iterations)), &facts);
    *extent = simplify_expr(&Expr::add(extent.clone(), Expr::index(iterations)), &facts);
    match warm_up.iter_mut().find(|(other, _)| other == var) {
        Some((_, known)) => *known += iterations,
        None => warm_up.push((var.clone(), iterations)),
    }
}

/// Returns the bounds of a stage that computes a region, under conditions that keep it in `domain`
/// if it may leave it.
pub(super) fn compute_loops(
    stage: &Stage,
    region: Region,
    domain: Option<Domain>,
    enclosing_loops: Vec<Loop>,
    mut facts: Facts,
) -> StageBounds {
    let Region { mins, shape, storage } = region;
    let extents = axis_extents(stage, &shape, &facts);
    for leaf in &stage.leaves {
        facts.bind(&stage.axis(*leaf).var, &loop_min(stage, *leaf), &extents[leaf.0]);
    }
    let (values, shifted) = axis_values(stage, &extents);
    let mut conditions: Vec<(Expr, AxisKind, bool)> = Vec::new();
    let mut without_tail: Vec<usize> = shifted.to_vec();
    for (at, relation) in stage.relations.iter().enumerate() {
        let (parent, tail, factor) = match relation {
            Relation::Split { parent, tail, factor, .. } => (parent, tail, factor),
            Relation::Fuse { .. } => continue,
            Relation::Skew { inner, .. } => {
                let value = &values[inner.0];
                let first = Expr::le(Expr::index(0), value.clone());
                let last = Expr::lt(value.clone(), extents[inner.0].clone());
                conditions.extend([first, last].map(|cond| (cond, AxisKind::Data, true)));
                continue;
            }
        };
        // If the outer part of a split leaves its range, the whole axis does too.
        let implied = stage.relations[..at].iter().enumerate().any(|(at, earlier)| {
            matches!(earlier, Relation::Split { outer, .. } if outer == parent)
                && !without_tail.contains(&at)
        });
        if let Factor::Inner(factor) = factor
            && is_multiple(&extents[parent.0], *factor, &facts)
        {
            without_tail.push(at);
        }
        if without_tail.contains(&at) || implied {
            continue;
        }
        let cond = Expr::lt(values[parent.0].clone(), extents[parent.0].clone());
        let likely = !matches!(tail, Some(Tail::Guard | Tail::Mask));
        conditions.push((cond, stage.axis(*parent).kind, likely));
    }
    let rank = stage.rank();
    let mut locals: Vec<Expr> = values[..rank].to_vec();
    let scan = stage.annotation::<Scan>().map(|(_, scan)| scan);
    if let Some(scan) = scan.filter(|scan| scan.reverse) {
        let last = Expr::sub(extents[scan.axis].clone(), Expr::index(1));
        locals[scan.axis] = Expr::sub(last, locals[scan.axis].clone());
    }
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
            let inside = Expr::lt(index.clone(), domain.extents[at].clone());
            let inside = match domain.whole_tiles.get(at) {
                Some(true) => begins_inside(stage, inside, &facts),
                _ => inside,
            };
            conditions.push((inside, AxisKind::Data, true));
            for limit in storage.limits.iter().filter(|limit| limit.dim == at) {
                conditions.push((limit.inside(&index), AxisKind::Data, true));
            }
        }
        indices.push(index);
    }
    if !storage.is_region() {
        locals = storage.place(indices.clone());
    }
    for (axis, at) in stage.te.reduce_axes().iter().zip(rank..) {
        let unsplit = stage.leaves.contains(&AxisId(at));
        if let Some(scan) = scan.filter(|scan| rank + scan.term == at) {
            let value = substitute(&scan.value, &mut |var| {
                let at = stage.te.axes.iter().position(|axis| axis.var == *var)?;
                Some(indices[at].clone())
            });
            indices.push(value);
            continue;
        }
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
    let (values, zero_unless, threads) = (indices, None, Vec::new());
    StageBounds {
        mins,
        shape,
        storage,
        warm_up: Vec::new(),
        extents,
        values,
        locals,
        guards,
        read_ranges: Vec::new(),
        zero_unless,
        enclosing_loops,
        threads,
    }
}

/// Returns the condition for the first iterations of the loops that make a tile, if it follows from
/// the condition for every iteration; otherwise the condition.
fn begins_inside(stage: &Stage, inside: Expr, facts: &Facts) -> Expr {
    let in_tile = |var: &Var| {
        let mut leaves = stage.leaves.iter().enumerate();
        let (_, leaf) =
            leaves.find(|(at, leaf)| stage.axis(**leaf).var == *var && is_in_tile(stage, *at))?;
        Some(loop_min(stage, *leaf))
    };
    let first = simplify_expr(&substitute(&inside, &mut |var| in_tile(var)), facts);
    let mut known = facts.clone();
    known.assume(&inside);
    if known.prove(&first) { first } else { inside }
}

/// Whether the iterations of a loop, given by its place, are lanes or copies of its body: a
/// condition in it becomes a mask or is tested for each copy.
pub(super) fn is_in_tile(stage: &Stage, at: usize) -> bool {
    let leaf = stage.leaves[at];
    let tensorized = stage.annotation::<Tensorize>().is_some_and(|(_, tensorize)| {
        stage.leaves.iter().position(|leaf| *leaf == tensorize.axis).is_some_and(|of| of <= at)
    });
    tensorized || !runs_one_by_one(stage, leaf)
}

/// Removes conditions that follow from the others: the tail of an inner split often implies that of
/// the outer one, and both imply that the region lies in the domain. A condition on a data axis
/// must follow from such conditions only, because the stores of start values have no others.
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

/// Returns the innermost loop in `nest` whose variable the condition contains; the innermost loop
/// of `nest` if the condition differs between lanes.
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

/// The largest number of idle iterations for which a constant extent is better than a smaller
/// variable one.
const MAX_IDLE_ITERATIONS: i128 = 65_536;

/// Returns the extent of every axis, given the shape of the region. Parts of a split that are split
/// again or fused can have constant extents far beyond the axis. If that costs at least
/// [`MAX_IDLE_ITERATIONS`] idle iterations, such parts get only the iterations that they need.
pub(super) fn axis_extents(stage: &Stage, shape: &[Expr], facts: &Facts) -> Vec<Expr> {
    let mut capped = vec![false; stage.axes.len()];
    let extents = extents_with(stage, shape, facts, &capped);
    let mut parts_of: FxHashMap<AxisId, Vec<AxisId>> = FxHashMap::default();
    for relation in &stage.relations {
        let together: Vec<AxisId> = match relation {
            Relation::Split { parent, .. } => vec![*parent],
            Relation::Fuse { .. } | Relation::Skew { .. } => {
                let parts = relation.replaced().into_iter();
                parts.flat_map(|p| parts_of.get(&p).cloned().unwrap_or(vec![p])).collect()
            }
        };
        let beyond =
            |axis: &&AxisId| needed_iterations(&stage.relations, &extents, **axis).is_some();
        let beyond: Vec<&AxisId> = together.iter().filter(beyond).collect();
        let steps = beyond.iter().filter_map(|axis| extents[axis.0].as_int());
        if steps.fold(1i128, i128::saturating_mul) >= MAX_IDLE_ITERATIONS {
            beyond.iter().for_each(|axis| capped[axis.0] = true);
        }
        if !matches!(relation, Relation::Split { .. }) {
            parts_of.extend(relation.made().into_iter().map(|made| (made, together.clone())));
        }
    }
    match capped.contains(&true) {
        true => extents_with(stage, shape, facts, &capped),
        false => extents,
    }
}

/// Whether facts such as `n % 16 == 0` say that a run-time extent is a multiple of a factor.
pub(super) fn is_multiple(extent: &Expr, factor: i64, facts: &Facts) -> bool {
    let rest = Expr::binary(BinOp::FloorMod, extent.clone(), Expr::index(factor));
    extent.as_int().is_none() && facts.prove(&Expr::eq(rest, Expr::index(0)))
}

/// Returns the extent of every axis; those in `capped` have only the iterations that they need.
fn extents_with(stage: &Stage, shape: &[Expr], facts: &Facts, capped: &[bool]) -> Vec<Expr> {
    let mut extents: Vec<Expr> = vec![Expr::index(1); stage.axes.len()];
    extents[..shape.len()].clone_from_slice(shape);
    for (axis, extent) in stage.te.reduce_axes().iter().zip(&mut extents[shape.len()..]) {
        *extent = axis.extent.clone();
    }
    let divide_up = |extent: &Expr, by: i64| {
        let up = if is_multiple(extent, by, facts) { 0 } else { by - 1 };
        let sum = Expr::add(extent.clone(), Expr::index(up));
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
                    if let Some((needed, _)) = needed_iterations(&stage.relations, &extents, *axis)
                    {
                        extents[axis.0] = simplify_expr(&needed, facts);
                    }
                }
            }
            Relation::Fuse { parts, fused, .. } => {
                let product = parts.iter().map(|part| extents[part.0].clone()).reduce(Expr::mul);
                let product = product.expect("at least two are fused");
                extents[fused.0] = simplify_expr(&product, facts);
            }
            Relation::Skew { outer, inner, factor, wave, position, .. } => {
                let [last, inner] =
                    [outer, inner].map(|axis| Expr::sub(extents[axis.0].clone(), Expr::index(1)));
                let width = Expr::add(Expr::mul(last, Expr::index(*factor)), inner);
                let waves = Interval { min: Expr::index(0), width };
                extents[wave.0] = region_extent(&waves, facts);
                extents[position.0] = extents[outer.0].clone();
            }
        }
    }
    extents
}

/// Returns the extent of a loop as it is built. If its iterations run one by one, those outside of
/// the domain are left out: `nparts=64` of 40 elements makes 40 parts, and `factor=` may be larger
/// than the whole.
pub fn loop_extent(stage: &Stage, bounds: &StageBounds, leaf: AxisId) -> Expr {
    let extent = bounds.extents[leaf.0].clone();
    if !runs_one_by_one(stage, leaf) {
        return extent;
    }
    let needed = needed_iterations(&stage.relations, &bounds.extents, leaf);
    let Some((needed, factor)) = needed else { return extent };
    let needed = simplify_expr(&needed, &Facts::new());
    let few = extent.as_int().is_none_or(|extent| extent < MAX_IDLE_ITERATIONS);
    match factor {
        Factor::Inner(_) if few && needed.as_int().is_none() => extent,
        _ => needed,
    }
}

/// Whether the iterations of a loop run in order: they are not lanes, threads or copies of its
/// body.
pub(super) fn runs_one_by_one(stage: &Stage, leaf: AxisId) -> bool {
    matches!(stage.axis(leaf).annotation, None | Some((Annotation::Parallel, _)))
}

/// Returns the step of the outer part of a split, whose inner part has the extent `inner`.
pub(super) fn step_of(factor: Factor, inner: &Expr) -> Expr {
    match factor {
        Factor::Inner(step) => Expr::index(step),
        Factor::Outer(_) => inner.clone(),
    }
}

/// Returns the number of iterations of `axis` that are not idle, and the factor of its split;
/// `None` if no split gave it a constant extent that may be larger.
pub(super) fn needed_iterations(
    relations: &[Relation],
    extents: &[Expr],
    axis: AxisId,
) -> Option<(Expr, Factor)> {
    relations.iter().find_map(|relation| {
        let Relation::Split { parent, outer, inner, factor, .. } = relation else { return None };
        let whole = &extents[parent.0];
        match factor {
            Factor::Outer(_) if *outer == axis => {
                // The number of parts that are not empty.
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

/// Returns the value of every axis over the loops, and the indices of the relations that are splits
/// with `tail=shift`.
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
            Relation::Skew { outer, inner, factor, wave, position, .. } => {
                let (wave, position) = (values[wave.0].clone(), values[position.0].clone());
                let first = Expr::mul(position.clone(), Expr::index(*factor));
                values[inner.0] = Expr::sub(wave, first);
                values[outer.0] = position;
            }
        }
    }
    (values, shifted)
}

/// Returns the value of an axis over the loops of its stage.
pub fn axis_value(stage: &Stage, bounds: &StageBounds, axis: AxisId) -> Expr {
    axis_values(stage, &bounds.extents).0.swap_remove(axis.0)
}

/// Replaces the declared axes of a stage in an expression of its body by their values.
pub fn over_loops(stage: &Stage, bounds: &StageBounds, expr: &Expr) -> Expr {
    let reduce = stage.te.reduce_axes();
    substitute(expr, &mut |var| {
        let mut roots = stage.te.axes.iter().chain(reduce);
        let at = roots.position(|axis| axis.var == *var)?;
        Some(bounds.values[at].clone())
    })
}
