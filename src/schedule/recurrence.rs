//! Recurrences: stages that read the results of earlier steps.
//!
//! Before: `scan t: n { compute r[t] = sum(h[t - 1, k] …)  compute h[t, j: m] = r[t] + … }`, one
//! nest for each stage.
//! After: the stages have one loop over `t`, in which each computes its elements of one step:
//! `for t { r  h }`. They run in the order of the graph. A stage that only the same step reads is
//! attached to the loop, so that it has storage for one step.
//!
//! A read of an earlier step is a load of [`Recurrence::previous`](crate::te::Recurrence), which is
//! no stage: no directive and no phase moves it. `te::check_bounds` proves that the step is an
//! earlier one, and [`check_recurrences`] that the loops over the steps enclose everything and run
//! each step behind those that it reads, also if directives changed them ([`super::step_order`]).

use super::bounds::attach_depth;
use super::directives::compute_with::ComputeWith;
use super::fused::SharedLoops;
use super::phases::Inference;
use super::state::{Attach, AxisId, Relation, Schedule, Stage, StageId};
use super::step_order::{StepLoops, in_declared_order, step_depth};
use super::storage::{Ring, Waves};
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{NodeSet, walk_nodes};
use crate::ir::{Buffer, Buffering, Expr, ExprKind, Var};
use crate::te::{self, Body, StepRead};
use rustc_hash::{FxHashMap, FxHashSet};

/// A stage that is read from more steps than this keeps all of them.
const MAX_RING: i64 = 1 << 16;

/// Calls `f` on the buffer of each load of a body.
fn for_each_loaded(body: &Body, f: &mut dyn FnMut(&Buffer)) {
    let mut seen = NodeSet::default();
    body.for_each_expr(&mut |expr| {
        walk_nodes(expr, &mut seen, &mut |e| {
            if let ExprKind::Load { buffer, .. } = &e.kind {
                f(buffer);
            }
        });
    });
}

/// Returns the recurrence of a stage.
fn id_of(stage: &te::Stage) -> Option<usize> {
    stage.recurrence.as_ref().map(|recurrence| recurrence.id)
}

/// Whether two stages belong to the same recurrence.
pub fn in_same_recurrence(a: &te::Stage, b: &te::Stage) -> bool {
    id_of(a).is_some() && id_of(a) == id_of(b)
}

/// Whether stages outside of the current step read a stage: other steps, stages that do not belong
/// to the recurrence, or the caller. Such a stage keeps all its steps.
pub fn outlives_its_step(schedule: &Schedule, id: StageId) -> bool {
    let te = &schedule.stage(id).te;
    let Some(recurrence) = &te.recurrence else { return false };
    let mut read = te.output;
    for other in schedule.order.iter().map(|id| &schedule.stage(*id).te) {
        let inside = in_same_recurrence(te, other);
        for_each_loaded(&other.body, &mut |buffer| {
            read |= recurrence.previous.contains(buffer);
            read |= !inside && te.buffers.contains(buffer);
        });
    }
    read
}

/// Attaches the stages that only the same step reads to the loop over the steps, in front of the
/// first of their readers that keeps its steps.
pub(super) fn attach_to_steps(schedule: &mut Schedule) {
    let mut hosts: FxHashMap<Buffer, StageId> = FxHashMap::default();
    let order = schedule.order.clone();
    let place = |host: &StageId| order.iter().position(|other| other == host);
    for id in order.iter().copied().rev() {
        let te = &schedule.stage(id).te;
        if te.recurrence.is_none() {
            continue;
        }
        let read_by = te.buffers.iter().filter_map(|buffer| hosts.get(buffer)).copied();
        let host = match outlives_its_step(schedule, id) {
            true => id,
            false => read_by.min_by_key(place).unwrap_or(id),
        };
        if host != id {
            let of = schedule.stage(host).te.recurrence.as_ref();
            let steps = of.map_or(0, |recurrence| recurrence.steps);
            let axis = steps.checked_sub(1).expect("a stage that keeps its steps has them");
            let (axis, span) = (AxisId(axis), te.span);
            schedule.stage_mut(id).attach = Attach::At { stage: host, axis, span };
        }
        let te = &schedule.stage(id).te;
        let mut found = Vec::new();
        for_each_loaded(&te.body, &mut |buffer| found.push(buffer.clone()));
        for buffer in found {
            // The order is reversed: the last entry is the first reader.
            let earliest = hosts.get(&buffer).copied().into_iter().chain([host]);
            let earliest = earliest.min_by_key(place).expect("there is one");
            hosts.insert(buffer, earliest);
        }
    }
}

/// Returns where a stage that a directive adds in front of `reader` is computed: in the step of its
/// reader if it belongs to the recurrence.
pub(super) fn place_of_added(schedule: &Schedule, te: &te::Stage, reader: StageId) -> Attach {
    let stage = schedule.stage(reader);
    match (&te.recurrence, &stage.te.recurrence, stage.attach) {
        (Some(_), Some(of), Attach::Root) if of.steps > 0 => {
            let depth = step_depth(schedule, reader).expect("the reader belongs to a recurrence");
            Attach::At { stage: reader, axis: stage.leaves[depth - 1], span: stage.span }
        }
        (Some(_), Some(_), attach @ Attach::At { .. }) => attach,
        _ => Attach::Root,
    }
}

/// Returns the loops over steps that root stages of recurrences share.
pub(super) fn step_loops(schedule: &Schedule) -> Vec<SharedLoops> {
    let mut first: FxHashMap<usize, StageId> = FxHashMap::default();
    let mut shared = Vec::new();
    for id in schedule.order.iter().copied() {
        let stage = schedule.stage(id);
        let Some(recurrence) = &stage.te.recurrence else { continue };
        if stage.attach != Attach::Root || recurrence.steps == 0 {
            continue;
        }
        let host = *first.entry(recurrence.id).or_insert(id);
        if host != id {
            let depth = step_depth(schedule, host).map_or(0, |depth| depth - 1);
            shared.push(SharedLoops { guest: id, host, depth, span: stage.span, steps: true });
        }
    }
    shared
}

/// Returns the stage at the root that a stage is attached to, directly or through others.
fn root_of(schedule: &Schedule, mut id: StageId) -> StageId {
    for _ in 0..schedule.order.len() {
        let Attach::At { stage, .. } = schedule.stage(id).attach else { break };
        id = stage;
    }
    id
}

impl Inference {
    /// Returns the loop over the steps whose variable each data axis of an attached stage always
    /// equals, if there is one.
    pub(super) fn current_steps(&self, id: StageId) -> Vec<Option<Var>> {
        let schedule = &self.bounded.schedule;
        let stage = schedule.stage(id);
        if stage.te.recurrence.is_none() || stage.attach == Attach::Root {
            return vec![None; stage.rank()];
        }
        let host = schedule.stage(root_of(schedule, id));
        let steps = host.te.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
        let is_unchanged = |step: &usize| host.leaves.get(*step) == Some(&AxisId(*step));
        let var = |step: usize| host.axis(AxisId(step)).var.clone();
        let axes = self.step_axes(id).into_iter();
        axes.map(|step| step.filter(|at| *at < steps && is_unchanged(at)).map(var)).collect()
    }

    /// Returns which step each data axis of a stage of a recurrence is: as declared, or as its
    /// readers use it if a directive added it.
    fn step_axes(&self, id: StageId) -> Vec<Option<usize>> {
        let te = &self.bounded.schedule.stage(id).te;
        let Some(recurrence) = &te.recurrence else { return vec![None; te.axes.len()] };
        if recurrence.steps > 0 {
            return (0..te.axes.len()).map(|at| (at < recurrence.steps).then_some(at)).collect();
        }
        let mut found: Option<Vec<Option<usize>>> = None;
        for read in self.reads.of_stage(id) {
            let reader = &self.bounded.schedule.stage(read.by).te;
            let steps = self.step_axes(read.by);
            let step = |index: &Expr| {
                let axis = reader.axes.iter().position(|axis| index.as_var() == Some(&axis.var))?;
                steps[axis]
            };
            let new: Vec<Option<usize>> = read.indices.iter().map(step).collect();
            found = Some(match found {
                None => new,
                Some(old) => old.into_iter().zip(new).map(|(a, b)| a.filter(|_| a == b)).collect(),
            });
        }
        found.unwrap_or_else(|| vec![None; te.axes.len()])
    }
}

/// Checks that the steps of each recurrence run in order, and that all that a step computes stands
/// inside the loops over the steps (E0399).
pub(super) fn check_recurrences(inference: &Inference) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    let members = schedule.stages.iter().filter(|stage| stage.te.recurrence.is_some());
    if members.count() == 0 {
        return Ok(());
    }
    for id in schedule.order.iter().copied() {
        let Some(recurrence) = &schedule.stage(id).te.recurrence else { continue };
        check_target(schedule, id)?;
        match schedule.stage(id).attach {
            Attach::Root => check_steps(schedule, id, recurrence.steps)?,
            _ => check_inside(schedule, inference, id)?,
        }
    }
    check_kept(schedule)
}

fn refuse(span: Span, text: String) -> Diag {
    Diag::new("E0399", span, text)
}

fn check_target(schedule: &Schedule, id: StageId) -> Result<()> {
    if !schedule.target.is_gpu() {
        return Ok(());
    }
    let name = &schedule.stage(id).te.name;
    let text = format!("`{name}` is part of a recurrence, which runs on CPUs only");
    let diag = refuse(schedule.stage(id).te.span, text);
    Err(Box::new(diag.help("build the kernel for a CPU, or write it without `scan`")))
}

/// Checks that the outermost loops of a stage at the root are its steps, one after the other.
fn check_steps(schedule: &Schedule, id: StageId, steps: usize) -> Result<()> {
    let stage = schedule.stage(id);
    let name = &stage.te.name;
    if let Some((annotation, _)) = stage.annotation::<ComputeWith>() {
        let text = format!("`{name}` shares the loop over its steps already");
        return Err(Box::new(refuse(annotation.span, text).help("leave out the `compute_with`")));
    }
    if steps == 0 {
        let text = format!("`{name}` is computed in each step and cannot be at the root");
        return Err(Box::new(refuse(stage.span, text)));
    }
    match in_declared_order(stage, steps) {
        true => Ok(()),
        false => check_order(schedule, id),
    }
}

/// Checks that changed loops over steps run each step behind those that it reads, and that the
/// stages of the recurrence share them.
fn check_order(schedule: &Schedule, id: StageId) -> Result<()> {
    let stage = schedule.stage(id);
    let name = &stage.te.name;
    let loops = StepLoops::of(schedule, id);
    let loop_name = |at: usize| &stage.axis(stage.leaves[at]).name;
    if let Some((directive, span)) = loops.unknown_order() {
        let text = format!("`{directive}` changes the order of the steps of `{name}`");
        let help = "split, reorder or skew the axes of the steps among themselves";
        let diag = refuse(span, text).note("a step reads the results of earlier ones").help(help);
        return Err(Box::new(diag));
    }
    if let Some((at, read)) = loops.violation {
        let axis = stage.axis(stage.leaves[at]);
        let made = stage.relations.iter().rfind(|one| one.made().contains(&stage.leaves[at]));
        let made = made.map(Relation::span).or(stage.moved).unwrap_or(stage.span);
        let text =
            format!("the loop over `{}` would run a step before one that it reads", axis.name);
        let diag = refuse(made, text).related(read.span, "the step that is read");
        let factors =
            (larger_factor(stage, stage.leaves[at], read), factor_of_tiles(schedule, stage));
        let help = match factors {
            (Some(factor), _) => format!("write `factor={factor}`, or keep the order of the steps"),
            (None, Some(factor)) => {
                let [i, j] = [0, 1].map(|at| stage.te.axes[at].var.name());
                format!("skew them first: `{name}.skew({i}, {j}, factor={factor})`")
            }
            (None, None) => "keep the axes of the scan outermost and in order".to_string(),
        };
        return Err(Box::new(diag.help(help)));
    }
    let depth = loops.depth();
    for (at, leaf) in stage.leaves[..depth].iter().enumerate() {
        if !loops.is_over_steps(*leaf) {
            let last = loop_name(depth - 1);
            let text = format!("`{}` encloses the loop over `{last}` of `{name}`", loop_name(at));
            let note = "a step reads the results of earlier ones, of all elements";
            let help = "keep the loops over the steps outermost".to_string();
            let span = stage.moved.unwrap_or(stage.span);
            return Err(Box::new(refuse(span, text).note(note).help(help)));
        }
        let Some((annotation, span)) = stage.axis(*leaf).annotation else { continue };
        if let Some(read) = loops.carried_by(at) {
            let text = format!("the iterations of `{}` run one after the other", loop_name(at));
            let help = format!("apply `{}` to a loop inside it", annotation.name());
            let diag = refuse(span, text).related(read.span, "an earlier one is read here");
            return Err(Box::new(diag.help(help)));
        }
    }
    let is_other = |other: &&StageId| {
        **other != id && in_same_recurrence(&stage.te, &schedule.stage(**other).te)
    };
    let outer = stage.leaves[..depth].iter();
    let outer: Vec<_> =
        outer.map(|leaf| (loops.describe(*leaf), stage.axis(*leaf).annotation_only())).collect();
    for other in schedule.order.iter().filter(is_other) {
        let (of, loops) = (schedule.stage(*other), StepLoops::of(schedule, *other));
        if of.attach != Attach::Root {
            let text = format!("`{}` is computed in the steps of `{name}`", of.te.name);
            let text = format!("{text}, whose loops are not as declared");
            let help = match of.te.body {
                Body::Map(_) => format!("inline it: `{}.compute_inline()`", of.te.name),
                _ => "leave this out".to_string(),
            };
            return Err(Box::new(refuse(changed_by(stage), text).help(help)));
        }
        let same = of.leaves.iter().zip(&outer).all(|(leaf, (described, annotation))| {
            loops.describe(*leaf) == *described && of.axis(*leaf).annotation_only() == *annotation
        });
        if !same || step_depth(schedule, *other) != Some(depth) {
            let text =
                format!("`{name}` and `{}` have different loops over their steps", of.te.name);
            let help = "apply the same directives to both".to_string();
            let note = "the stages of a recurrence share the loops over the steps";
            return Err(Box::new(refuse(changed_by(stage), text).note(note).help(help)));
        }
    }
    Ok(())
}

/// Returns the directive that changed the loops over the steps of a stage.
fn changed_by(stage: &Stage) -> Span {
    let steps = stage.te.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
    let steps = stage.axes.iter().take(steps);
    let mut changes =
        steps.filter_map(|axis| axis.replaced.map(|of| of.1).or(axis.annotation.map(|of| of.1)));
    changes.next().or(stage.moved).unwrap_or(stage.span)
}

/// Returns the smallest factor with which a skew of two axes of steps makes all distances along the
/// waves positive or 0, if that is what tiles of them lack.
fn factor_of_tiles(schedule: &Schedule, stage: &Stage) -> Option<i64> {
    let recurrence = stage.te.recurrence.as_ref().filter(|recurrence| recurrence.steps == 2)?;
    let members = schedule.graph.stages.iter().filter_map(|te| te.recurrence.as_ref());
    let mut factor = 0;
    for read in members.filter(|other| other.id == recurrence.id).flat_map(|other| &other.reads) {
        let (outer, inner) = (read.distances[0].0?, read.distances[1].0?);
        match (outer, inner) {
            (0.., 0..) => {}
            (1.., _) => factor = factor.max((outer - 1 - inner) / outer),
            _ => return None,
        }
    }
    (factor > 0).then_some(factor)
}

/// Returns the smallest factor with which the waves of a skew run behind those that are read.
fn larger_factor(stage: &Stage, wave: AxisId, read: &StepRead) -> Option<i64> {
    let is_skew =
        |relation: &&Relation| matches!(relation, Relation::Skew { wave: of, .. } if *of == wave);
    let Some(Relation::Skew { outer, inner, .. }) = stage.relations.iter().find(is_skew) else {
        return None;
    };
    let least = |axis: &AxisId| read.distances.get(axis.0).and_then(|(least, _)| *least);
    let (outer, inner) = (least(outer)?, least(inner)?);
    (outer > 0 && inner < 1).then(|| (outer - inner) / outer)
}

/// Checks that a stage that is attached to a loop is computed inside a step, before its readers.
fn check_inside(schedule: &Schedule, inference: &Inference, id: StageId) -> Result<()> {
    let stage = schedule.stage(id);
    let Attach::At { stage: consumer, axis, span } = stage.attach else { return Ok(()) };
    let (te, name) = (&stage.te, &stage.te.name);
    let root = root_of(schedule, id);
    let host = schedule.stage(root);
    if !in_same_recurrence(te, &host.te) {
        let text = format!("`{name}` is part of a recurrence, but `{}` is not", host.te.name);
        let help = "compute it inside a stage of the recurrence";
        return Err(Box::new(refuse(span, text).help(help)));
    }
    let steps = host.te.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
    if consumer != root {
        return Ok(());
    }
    let depth = attach_depth(host, axis);
    if depth.is_some_and(|depth| depth + 1 < steps) {
        let text = format!("`{name}` is computed outside of the steps of `{}`", host.te.name);
        let inner = &host.axis(AxisId(steps - 1)).name;
        let help = format!("attach it to `{inner}` or to a loop inside it");
        return Err(Box::new(refuse(span, text).help(help)));
    }
    if depth.is_some_and(|depth| depth + 1 == steps)
        && let Some((annotation, _)) = stage.annotation::<Buffering>()
    {
        let text = format!("`{name}` cannot be computed one step ahead");
        let note = format!("a step of `{name}` needs the results of the step before it");
        return Err(Box::new(refuse(annotation.span, text).note(note).help("leave this out")));
    }
    let place = |id: StageId| schedule.order.iter().position(|other| *other == id);
    for read in inference.reads.of_stage(id) {
        let reader = root_of(schedule, read.by);
        if place(reader) < place(root) {
            let reader = &schedule.stage(reader).te.name;
            let text = format!("`{reader}` reads `{name}` before `{}` is computed", host.te.name);
            let help = format!("attach it there: `{name}.compute_at({reader}, AXIS)`");
            return Err(Box::new(refuse(span, text).help(help)));
        }
    }
    Ok(())
}

/// Checks that the stages whose earlier steps are read keep them, and that no stage outside of a
/// recurrence reads them.
fn check_kept(schedule: &Schedule) -> Result<()> {
    let mut owners: FxHashMap<&Buffer, StageId> = FxHashMap::default();
    for (at, stage) in schedule.stages.iter().enumerate() {
        let previous = stage.te.recurrence.iter().flat_map(|recurrence| &recurrence.previous);
        owners.extend(previous.map(|buffer| (buffer, StageId(at))));
    }
    let ordered: FxHashSet<StageId> = schedule.order.iter().copied().collect();
    for reader in schedule.order.iter().copied() {
        let mut loaded = Vec::new();
        let te = &schedule.stage(reader).te;
        for_each_loaded(&te.body, &mut |buffer| loaded.extend(owners.get(buffer).copied()));
        for owner in loaded {
            let stage = schedule.stage(owner);
            let name = &stage.te.name;
            let at_root = ordered.contains(&owner) && stage.attach == Attach::Root;
            if !at_root {
                let span = match stage.attach {
                    Attach::At { span, .. } | Attach::Inline { span } => span,
                    Attach::Root => stage.span,
                };
                let text = format!("`{name}` must be computed at the root");
                let note = format!("later steps of `{}` read it", te.name);
                return Err(Box::new(refuse(span, text).note(note).help("leave this out")));
            }
            if !in_same_recurrence(te, &stage.te) {
                let text = format!("`{}` would read single steps of `{name}`", te.name);
                let help = "do not inline stages of a recurrence into other stages";
                return Err(Box::new(refuse(te.span, text).help(help)));
            }
        }
    }
    Ok(())
}

/// Lets stages store their last steps only, or the last waves of steps.
pub(super) fn keep_last_steps(inference: &mut Inference) {
    let schedule = &inference.bounded.schedule;
    let kept = |id: &StageId| {
        let stage = schedule.stage(*id);
        let steps = stage.te.recurrence.as_ref().map_or(0, |recurrence| recurrence.steps);
        steps > 0 && stage.attach == Attach::Root && !stage.te.output
    };
    let facts = &inference.facts;
    let mut found: Vec<(StageId, Ring, Option<Waves>)> = Vec::new();
    for id in schedule.order.iter().copied().filter(kept) {
        let stage = schedule.stage(id);
        let first = stage.leaves[0];
        if stage.axis(first).annotation.is_some() {
            continue;
        }
        if first == AxisId(0) {
            let extent = needed_steps(schedule, id, facts);
            found.extend(extent.map(|extent| (id, Ring { dim: 0, extent }, None)));
        } else if let Some(waves) = waves_of(stage) {
            let extent = needed_waves(schedule, id, &waves, facts);
            let ring = extent.map(|extent| Ring { dim: waves.dims().0, extent });
            found.extend(ring.map(|ring| (id, ring, Some(waves))));
        }
    }
    for (id, ring, waves) in found {
        let Some(bounds) = &mut inference.bounded.bounds[id.0] else { continue };
        let storage = &mut bounds.storage;
        (storage.ring, storage.waves) = (Some(ring), waves);
        if let Some(waves) = waves {
            storage.shape[waves.dims().1] = bounds.shape[waves.outer].clone();
        }
        storage.shape[ring.dim] = Expr::index(ring.extent);
        bounds.locals = storage.place(bounds.locals.clone());
    }
}

/// Returns the waves of a stage whose outermost loop runs over the waves of two axes of the steps.
fn waves_of(stage: &Stage) -> Option<Waves> {
    let steps = stage.te.recurrence.as_ref()?.steps;
    stage.relations.iter().find_map(|relation| match relation {
        Relation::Skew { outer, inner, factor, wave, .. }
            if *wave == stage.leaves[0] && outer.0 < steps && inner.0 < steps =>
        {
            Some(Waves { outer: outer.0, inner: inner.0, factor: *factor })
        }
        _ => None,
    })
}

/// Returns a power of two of waves of which no older one is read; `None` if that is unknown, or if
/// they need as much memory as all elements.
fn needed_waves(schedule: &Schedule, id: StageId, waves: &Waves, facts: &Facts) -> Option<i64> {
    let te = &schedule.stage(id).te;
    let mut oldest: i128 = 0;
    for member in schedule.graph.stages.iter().filter(|other| in_same_recurrence(te, other)) {
        for read in member.recurrence.iter().flat_map(|recurrence| &recurrence.reads) {
            let (outer, inner) = (read.distances[waves.outer].1?, read.distances[waves.inner].1?);
            oldest = oldest.max(i128::from(outer) * i128::from(waves.factor) + i128::from(inner));
        }
    }
    let last: Vec<Expr> =
        te.axes.iter().map(|axis| Expr::sub(axis.extent.clone(), Expr::index(1))).collect();
    let (last, _) = waves.of(&last);
    let mut is_known = true;
    for reader in schedule.order.iter().map(|id| &schedule.stage(*id).te) {
        if in_same_recurrence(te, reader) {
            continue;
        }
        let mut seen = NodeSet::default();
        reader.body.for_each_expr(&mut |expr| {
            walk_nodes(expr, &mut seen, &mut |e| {
                let ExprKind::Load { buffer, indices, .. } = &e.kind else { return };
                if te.buffers.contains(buffer) {
                    let age = Expr::sub(last.clone(), waves.of(indices).0);
                    match simplify_expr(&age, facts).as_int() {
                        Some(age) => oldest = oldest.max(age),
                        None => is_known = false,
                    }
                }
            });
        });
    }
    let count = u64::try_from(oldest + 1).ok().filter(|_| is_known)?.checked_next_power_of_two()?;
    let count = i64::try_from(count).ok().filter(|count| *count <= MAX_RING)?;
    let shorter = te.axes[waves.inner].extent.as_int().is_none_or(|all| i128::from(count) < all);
    shorter.then_some(count)
}

/// Returns a power of two of steps of which no older one is read; `None` if that is unknown, or
/// all.
fn needed_steps(schedule: &Schedule, id: StageId, facts: &Facts) -> Option<i64> {
    let te = &schedule.stage(id).te;
    let previous = &te.recurrence.as_ref()?.previous;
    let extent = &te.axes.first()?.extent;
    let mut oldest = Some(0);
    for reader in schedule.order.iter().map(|id| &schedule.stage(*id).te) {
        let inside = in_same_recurrence(te, reader);
        let step = match &reader.recurrence {
            Some(recurrence) if recurrence.steps > 0 => reader.axes.first(),
            _ => None,
        };
        let mut seen = NodeSet::default();
        let age = |buffer: &Buffer, index: &Expr| -> Option<i128> {
            let newest = match (previous.contains(buffer), te.buffers.contains(buffer)) {
                (true, _) => Expr::var(&step?.var),
                (_, true) if inside => return Some(0),
                (_, true) => Expr::sub(extent.clone(), Expr::index(1)),
                _ => return Some(0),
            };
            simplify_expr(&Expr::sub(newest, index.clone()), facts).as_int()
        };
        reader.body.for_each_expr(&mut |expr| {
            walk_nodes(expr, &mut seen, &mut |e| {
                if let ExprKind::Load { buffer, indices, .. } = &e.kind {
                    // A tensor of rank 0 has no steps.
                    let age = indices.first().map_or(Some(0), |index| age(buffer, index));
                    oldest = oldest.zip(age).map(|(oldest, age)| age.max(oldest));
                }
            });
        });
    }
    let steps = u64::try_from(oldest? + 1).ok()?.checked_next_power_of_two()?;
    let steps = i64::try_from(steps).ok()?;
    let shorter = extent.as_int().is_none_or(|extent| i128::from(steps) < extent);
    (shorter && steps <= MAX_RING).then_some(steps)
}
