//! Legality checks of a whole schedule. Errors point to the directive that is illegal.
//!
//! [`check_attachment`] needs only the attachments, [`check_loops`] the extents of all loops. The
//! directives themselves check everything that follows from names and kinds of axes.

use super::bounds::{StageBounds, attach_depth, is_vectorized, needed_iterations, step_of};
use super::directives::{Scan, Scatter};
use super::fused::share_loop;
use super::phases::BoundedSchedule;
use super::reads::Reads;
use super::state::{
    Annotation, Attach, AxisId, AxisKind, Factor, Relation, Schedule, Stage, StageId, Tail,
};
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::limits::MAX_UNROLLED_COPIES;
use crate::ir::visit::{NodeSet, walk_nodes};
use crate::ir::{Expr, ThreadIndex};
use crate::te::{Body, Reduction, Sort};

/// The largest number of operations in all unrolled copies of a stage. More than that take many
/// seconds to compile.
const MAX_OPERATIONS: i128 = 131_072;

/// The number of operations of the loops that sort an axis.
const SORT_OPERATIONS: i128 = 512;

/// Checks that a stage is attached to a loop that encloses all its readers (E0340 to E0342).
pub(super) fn check_attachment(schedule: &Schedule, id: StageId, reads: &Reads) -> Result<()> {
    let stage = schedule.stage(id);
    let Attach::At { stage: consumer, axis, span } = stage.attach else { return Ok(()) };
    let name = &stage.te.name;
    let target = schedule.stage(consumer);
    let place = |id: StageId| schedule.order.iter().position(|other| *other == id);
    let Some(consumer_place) = place(consumer) else {
        let text =
            format!("`{}` is inlined and has no loops to compute `{name}` in", target.te.name);
        return Err(Box::new(Diag::new("E0342", span, text)));
    };
    if Some(consumer_place) < place(id) {
        let text = format!("`{name}` cannot be computed inside `{}`", target.te.name);
        return Err(Box::new(
            Diag::new("E0342", span, text)
                .note(format!("`{}` is computed before `{name}`", target.te.name))
                .help("attach a stage to one that reads it"),
        ));
    }
    let depth = attach_depth(target, axis);
    let point = AttachPoint { schedule, stage: consumer, depth };
    let mut inside = 0;
    for read in reads.of_stage(id) {
        if point.encloses(read.by, read.initial) {
            inside += 1;
        }
    }
    let reads = reads.of_stage(id);
    if inside == reads.len() && inside > 0 {
        return Ok(());
    }
    let axis_name = &target.axis(axis).name;
    let outside = reads.iter().find(|read| !point.encloses(read.by, read.initial));
    let readers = reader_names(schedule, reads.iter().map(|read| read.by));
    let Some(outside) = outside else {
        let text = format!("nothing reads `{name}`");
        return Err(Box::new(Diag::new("E0340", span, text)));
    };
    let reader = &schedule.stage(outside.by).te.name;
    if inside == 0 && outside.by != consumer {
        let text = format!("`{}` does not read `{name}`", target.te.name);
        return Err(Box::new(
            Diag::new("E0340", span, text)
                .note(format!("{readers} reads `{name}`"))
                .help(format!("attach it there: `{name}.compute_at({reader}, AXIS)`")),
        ));
    }
    let text = format!("`{reader}` reads `{name}` too, outside of loop `{axis_name}`");
    let diag = Diag::new("E0341", span, text);
    let diag = if let (true, Body::Sort(sort)) = (outside.by == consumer, &target.te.body) {
        let sorted = sort.axis.var.name();
        diag.note(format!(
            "`{reader}` sorts the values of `{sorted}` before its loop `{axis_name}`"
        ))
    } else if outside.by == consumer {
        diag.note(format!("the start value of `{reader}` is set before its loop `{axis_name}`"))
    } else {
        diag.note(format!("the elements that `{axis_name}` computes exist for one iteration only"))
            .related(schedule.stage(outside.by).span, "read here")
    };
    Err(Box::new(diag.help(format!(
        "compute `{name}` further out, or leave it at the root: it is computed there if \
         `compute_at` is left out"
    ))))
}

/// The inside of a loop of a stage; of all its loops if `depth` is `None`. The stages that share
/// the loop belong to it.
pub(super) struct AttachPoint<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) stage: StageId,
    pub(super) depth: Option<usize>,
}

impl AttachPoint<'_> {
    /// Whether it encloses the code of a stage, or the start values of its reduction if `initial`.
    pub(super) fn encloses(&self, reader: StageId, initial: bool) -> bool {
        let shares = |id| share_loop(self.schedule, id, self.stage, self.depth.unwrap_or(0));
        if shares(reader) {
            let stage = self.schedule.stage(reader);
            let reduce = |leaf: &AxisId| stage.axis(*leaf).kind == AxisKind::Reduce;
            let first = stage.leaves.iter().position(reduce);
            return !initial || first.is_none_or(|first| self.depth < Some(first));
        }
        let mut child = reader;
        // At most as many steps as stages: attachments that form a cycle are refused elsewhere.
        for _ in 0..self.schedule.order.len() {
            let Attach::At { stage, axis, .. } = self.schedule.stage(child).attach else {
                return false;
            };
            if shares(stage) {
                return attach_depth(self.schedule.stage(stage), axis) >= self.depth;
            }
            child = stage;
        }
        false
    }
}

/// Returns the names of stages for a message: `each of `A`, `B` and `C``.
fn reader_names(schedule: &Schedule, readers: impl Iterator<Item = StageId>) -> String {
    let mut names: Vec<String> = Vec::new();
    for id in readers {
        let name = format!("`{}`", schedule.stage(id).te.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match &names[..] {
        [] => "no stage".to_string(),
        [one] => one.clone(),
        [rest @ .., last] => format!("each of {} and {last}", rest.join(", ")),
    }
}

/// Checks the loops of every stage, whose extents are known.
pub(super) fn check_loops(bounded: &BoundedSchedule, facts: &Facts) -> Result<()> {
    let schedule = &bounded.schedule;
    for id in schedule.order.iter().copied() {
        let (stage, bounds) = (schedule.stage(id), bounded.of(id));
        schedule.checked(check_constant_extents(stage, bounds))?;
        schedule.checked(check_nesting(stage))?;
        check_unrolled(bounded, id)?;
        schedule.checked(check_order(schedule, stage, bounds))?;
        schedule.checked(check_tails(stage, bounds, facts))?;
    }
    super::threads::check_launches(bounded)
}

/// The largest number of lanes of a split whose factor may exceed the axis: idle vectors run too.
const MAX_IDLE_LANES: i128 = 1 << 20;

/// Refuses a vectorized loop with more than [`MAX_IDLE_LANES`] lanes that may exceed its axis
/// (E0332).
fn check_lanes(
    stage: &Stage,
    bounds: &StageBounds,
    leaf: AxisId,
    (lanes, span): (i128, Span),
) -> Result<()> {
    if lanes <= MAX_IDLE_LANES
        || needed_iterations(&stage.relations, &bounds.extents, leaf).is_none()
    {
        return Ok(());
    }
    let name = &stage.axis(leaf).name;
    let text = format!("`{name}` would be {lanes} lanes, more than the axis may have elements");
    let help = format!("split by the lanes of a vector: `{}.split(…, factor=8)`", stage.te.name);
    Err(Box::new(Diag::new("E0332", span, text).help(help)))
}

/// Checks that the extents of vectorized and unrolled loops are constant (E0330).
fn check_constant_extents(stage: &Stage, bounds: &StageBounds) -> Result<()> {
    for leaf in &stage.leaves {
        let axis = stage.axis(*leaf);
        let Some((how @ (Annotation::Vectorize | Annotation::Unroll), span)) = axis.annotation
        else {
            continue;
        };
        let extent = &bounds.extents[leaf.0];
        if let Some(lanes) = extent.as_int() {
            if how == Annotation::Vectorize {
                check_lanes(stage, bounds, *leaf, (lanes, span))?;
            }
            continue;
        }
        let extent = crate::ir::print::print_expr(extent);
        let text = format!(
            "`{}` needs a constant extent, but that of `{}` is {extent}",
            how.name(),
            axis.name
        );
        return Err(Box::new(Diag::new("E0330", span, text).help(format!(
            "split off a constant part: `let o, i = {}.split({}, factor=8)`, then \
             `{}.{}(i)`",
            stage.te.name,
            axis.name,
            stage.te.name,
            how.name()
        ))));
    }
    Ok(())
}

/// Refuses vectorized, parallel and bound loops inside a vectorized one (E0331).
fn check_nesting(stage: &Stage) -> Result<()> {
    let lanes = stage.leaves.iter().position(|leaf| is_vectorized(stage, *leaf));
    let Some(lanes) = lanes else { return Ok(()) };
    for leaf in &stage.leaves[lanes + 1..] {
        let axis = stage.axis(*leaf);
        let Some((
            how @ (Annotation::Vectorize | Annotation::Parallel | Annotation::Thread(_)),
            span,
        )) = axis.annotation
        else {
            continue;
        };
        let outer = &stage.axis(stage.leaves[lanes]).name;
        let text = format!("`{}` is inside the vectorized axis `{outer}`", axis.name);
        let diag = Diag::new("E0331", span, text);
        let name = &stage.te.name;
        return Err(Box::new(match how {
            Annotation::Vectorize => diag.help(format!(
                "vectorize one axis: `let lanes = {name}.fuse({outer}, {})`, then \
                 `{name}.vectorize(lanes)`, or unroll one of them",
                axis.name
            )),
            _ => diag.help(format!("move `{}` outside with `reorder`", axis.name)),
        }));
    }
    Ok(())
}

/// Refuses unrolled loops that would make too many copies of a stage (E0332).
fn check_unrolled(bounded: &BoundedSchedule, id: StageId) -> Result<()> {
    let mut copies: i128 = 1;
    let mut blame: Option<Span> = None;
    let mut at = Some((id, usize::MAX));
    while let Some((id, depth)) = at {
        let (stage, bounds) = (bounded.schedule.stage(id), bounded.of(id));
        for leaf in stage.leaves.iter().take(depth) {
            if let Some((Annotation::Unroll, span)) = stage.axis(*leaf).annotation {
                copies = copies.saturating_mul(bounds.extents[leaf.0].as_int().unwrap_or(1));
                // Report the last directive.
                blame = blame.filter(|other| other.start > span.start).or(Some(span));
            }
        }
        at = match stage.attach {
            Attach::At { stage: consumer, axis, .. } => {
                let depth = attach_depth(bounded.schedule.stage(consumer), axis);
                Some((consumer, depth.map_or(0, |depth| depth + 1)))
            }
            _ => None,
        };
    }
    let te = &bounded.schedule.stage(id).te;
    let (name, operations) = (&te.name, count_operations(te));
    match blame {
        Some(span) if copies > MAX_UNROLLED_COPIES => {
            let text = format!("unrolled loops would write out `{name}` {copies} times");
            Err(Box::new(
                Diag::new("E0332", span, text)
                    .note(format!("at most {MAX_UNROLLED_COPIES} copies are allowed"))
                    .help("unroll the inner part of a split"),
            ))
        }
        Some(span) if copies.saturating_mul(operations) > MAX_OPERATIONS => {
            let text = format!(
                "unrolled loops would write out `{name}` {copies} times, {operations} operations \
                 each time"
            );
            Err(Box::new(
                Diag::new("E0332", span, text)
                    .note(format!("at most {MAX_OPERATIONS} operations are allowed"))
                    .help("unroll the inner part of a split"),
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the number of operations of one element and its indices; shared ones count once.
fn count_operations(stage: &crate::te::Stage) -> i128 {
    let mut seen = NodeSet::default();
    let values = match &stage.body {
        Body::Map(values) => values,
        Body::Reduce(Reduction { terms, .. }) => terms,
        Body::Sort(Sort { values, .. }) => values,
    };
    values.iter().for_each(|value| walk_nodes(value, &mut seen, &mut |_| {}));
    let sort = matches!(stage.body, Body::Sort(_));
    // The store and its index.
    seen.count() as i128 + 2 + if sort { SORT_OPERATIONS } else { 0 }
}

/// Checks that each element combines its terms in the order of the source, unless the order cannot
/// change the result or the program allows another one (E0333).
fn check_order(schedule: &Schedule, stage: &Stage, bounds: &StageBounds) -> Result<()> {
    let Body::Reduce(reduction) = &stage.te.body else { return Ok(()) };
    let allowed = stage.reordered.is_some_and(|(_, allowed)| allowed)
        || reduction.reassociate
        || schedule.graph.reassociate;
    let commutes = reduction.combiner.commutative;
    if (allowed && commutes) || order_is_free(stage, reduction) {
        return Ok(());
    }
    let Err((first, second, span)) = declared_order(stage, &bounds.extents) else { return Ok(()) };
    let span = span.or(stage.reordered.map(|(span, _)| span)).unwrap_or(stage.span);
    let (first, second) = (&stage.axis(first).name, &stage.axis(second).name);
    let dtype = stage.te.buffers[0].dtype;
    let text = format!(
        "with `{second}` outside `{first}`, `{}` combines its terms in another order",
        stage.te.name
    );
    let before = format!(
        "terms with `{first}` = 0, `{second}` = 1 before those with `{first}` = 1, `{second}` = 0"
    );
    let diag = Diag::new("E0333", span, text);
    Err(Box::new(match commutes {
        true => diag
            .note(format!("the source combines {dtype} {before}; {}", order_note(reduction)))
            .help(
                "keep the reduction axes in their order, or allow another one: `reassociate=true`",
            ),
        false => diag
            .note(format!("the source combines {before}"))
            .note(format!(
                "`{}` is not commutative: another order gives another result, and \
                 `reassociate=true` does not allow that",
                reduction.combiner.name
            ))
            .help("keep the reduction axes in their order"),
    }))
}

/// Says why the order changes the result of a commutative reducer of floats.
fn order_note(reduction: &Reduction) -> String {
    match reduction.combiner.name.as_str() {
        name @ ("max" | "min") => {
            let sign = if name == "max" { '>' } else { '<' };
            format!(
                "`{name}(a, b)` is `if a {sign} b then a else b`: it does not round, but it drops \
                 a NaN in `a`, and of 0.0 and -0.0 it takes `b`, so with these values another \
                 order gives another result"
            )
        }
        _ => "another order rounds differently".to_string(),
    }
}

/// Returns a reduction with the simplest combiner that gives its result in the order of its loops.
pub fn in_order_of_loops(stage: &Stage, bounds: &StageBounds, reduction: &Reduction) -> Reduction {
    match &reduction.combiner.in_order {
        Some(result)
            if stage.annotation::<Scan>().is_none()
                && stage.annotation::<Scatter>().is_none()
                && declared_order(stage, &bounds.extents).is_ok() =>
        {
            let mut simple = reduction.clone();
            simple.combiner.result = result.clone();
            simple
        }
        _ => reduction.clone(),
    }
}

/// Whether a stage combines its terms in another order than the source, and that can change the
/// result.
pub(super) fn changes_order(bounded: &BoundedSchedule) -> bool {
    bounded.schedule.order.iter().any(|id| {
        let stage = bounded.schedule.stage(*id);
        let Body::Reduce(reduction) = &stage.te.body else { return false };
        !order_is_free(stage, reduction) && declared_order(stage, &bounded.of(*id).extents).is_err()
    })
}

/// Whether every order of the terms gives the same bits.
pub(super) fn order_is_free(stage: &Stage, reduction: &Reduction) -> bool {
    let exact = reduction.combiner.exact || stage.te.buffers.iter().all(|b| !b.dtype.is_float());
    reduction.combiner.commutative && exact
}

/// Checks that the reduction loops enumerate the terms in declared order. Otherwise returns two
/// axes in the wrong order, and the directive if it is a `fuse`.
pub(super) fn declared_order(
    stage: &Stage,
    extents: &[Expr],
) -> std::result::Result<(), (AxisId, AxisId, Option<Span>)> {
    let moves = moving_axes(stage, extents);
    let matters = |axis: &AxisId| moves[axis.0];
    let rank = stage.rank();
    let roots = (rank..rank + stage.te.reduce_axes().len()).map(AxisId);
    // A scan checks the place of the axis whose loop it replaces.
    let scan = stage.annotation::<Scan>().map(|(_, scan)| AxisId(rank + scan.term));
    let mut order: Vec<AxisId> =
        roots.filter(|root| matters(root) && Some(*root) != scan).collect();
    for relation in &stage.relations {
        match relation {
            Relation::Split { parent, outer, inner, .. } => {
                if let Some(at) = order.iter().position(|axis| axis == parent) {
                    let parts = [*outer, *inner].into_iter().filter(&matters);
                    order.splice(at..=at, parts);
                }
            }
            Relation::Fuse { parts, fused, span } => {
                let parts: Vec<AxisId> = parts.iter().copied().filter(&matters).collect();
                let Some(first) = parts.first() else { continue };
                let at = order.iter().position(|axis| axis == first);
                let Some(at) = at else { continue };
                let together = order[at..].iter().zip(&parts).take_while(|(a, b)| a == b).count();
                if together < parts.len() {
                    let place = |axis| order.iter().position(|other| *other == axis);
                    let (a, b) = (parts[together - 1], parts[together]);
                    let pair = if place(a) < place(b) { (b, a) } else { (a, b) };
                    return Err((pair.1, pair.0, Some(*span)));
                }
                order.splice(at..at + parts.len(), [*fused]);
            }
            // It has data axes only.
            Relation::Skew { .. } => {}
        }
    }
    let leaves: Vec<AxisId> = stage.leaves.iter().copied().filter(matters).collect();
    match order.iter().zip(&leaves).find(|(declared, now)| declared != now) {
        None => Ok(()),
        Some((declared, now)) => Err((*declared, *now, None)),
    }
}

/// Whether each axis is a reduction axis with more than one value. The parts of an axis with one
/// value have one value too, whatever the factor.
fn moving_axes(stage: &Stage, extents: &[Expr]) -> Vec<bool> {
    let moves = |at: usize, axis: &super::state::Axis| {
        axis.kind == AxisKind::Reduce && extents[at].as_int() != Some(1)
    };
    let mut moving: Vec<bool> =
        stage.axes.iter().enumerate().map(|(at, axis)| moves(at, axis)).collect();
    for relation in &stage.relations {
        if relation.replaced().iter().all(|axis| !moving[axis.0]) {
            relation.made().iter().for_each(|axis| moving[axis.0] = false);
        }
    }
    moving
}

/// Checks `tail=shift` and `tail=mask` of each split (E0334 to E0336).
fn check_tails(stage: &Stage, bounds: &StageBounds, facts: &Facts) -> Result<()> {
    for relation in &stage.relations {
        let Relation::Split { parent, outer, inner, factor, tail, span } = relation else {
            continue;
        };
        match tail {
            Some(Tail::Shift) => {
                check_shift(stage, bounds, facts, (*parent, *outer, *inner, *factor), *span)?
            }
            Some(Tail::Mask)
                if !leaves_of(stage, *inner).any(|leaf| is_vectorized(stage, leaf)) =>
            {
                let (name, inner) = (&stage.te.name, &stage.axis(*inner).name);
                let text = format!("`tail=mask` masks lanes, but `{inner}` is not vectorized");
                return Err(Box::new(
                    Diag::new("E0336", *span, text)
                        .help(format!("add `{name}.vectorize({inner})`, or write `tail=guard`")),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks a split with `tail=shift`, whose last step recomputes elements: no term may be added
/// twice (E0334), a whole step must fit (E0335), and threads must not race (E0334).
fn check_shift(
    stage: &Stage,
    bounds: &StageBounds,
    facts: &Facts,
    (parent, outer, inner, factor): (AxisId, AxisId, AxisId, Factor),
    span: Span,
) -> Result<()> {
    let name = &stage.axis(parent).name;
    let extent = &bounds.extents[parent.0];
    let step = step_of(factor, &bounds.extents[inner.0]);
    // Steps overlap if they are longer than the axis together.
    let reach = Expr::mul(bounds.extents[outer.0].clone(), step.clone());
    let overlap = !facts.prove(&Expr::le(reach, extent.clone()));
    if overlap && adds_twice(stage, bounds, parent, outer) {
        let text = format!("`tail=shift` on `{name}`: `{}` accumulates", stage.te.name);
        return Err(Box::new(
            Diag::new("E0334", span, text)
                .note("the steps overlap, and terms would be added twice")
                .help("write `tail=peel`, `tail=mask` or `tail=guard`"),
        ));
    }
    if !facts.prove(&Expr::le(step.clone(), extent.clone())) {
        let (extent, step) =
            (crate::ir::print::print_expr(extent), crate::ir::print::print_expr(&step));
        let text = format!("`tail=shift` needs at least one whole step of {step} in {extent}");
        return Err(Box::new(
            Diag::new("E0335", span, text).help("write `tail=guard`, or `assume` that it fits"),
        ));
    }
    // Two threads write the same elements if each runs another step, or another part of all steps.
    let steps: Vec<AxisId> = leaves_of(stage, outer).collect();
    let is_single = |leaf: &AxisId| bounds.extents[leaf.0].as_int() == Some(1);
    let encloses_steps = |leaf: &AxisId| {
        let mut inside = stage.leaves.iter().skip_while(|other| *other != leaf).skip(1);
        inside.any(|other| steps.contains(other) && !is_single(other))
    };
    let threads = |leaf: &AxisId| {
        let at_once = match stage.axis(*leaf).annotation {
            Some((Annotation::Parallel, _)) => true,
            Some((Annotation::Thread(index), _)) => index != ThreadIndex::Virtual,
            _ => false,
        };
        at_once && !is_single(leaf)
    };
    // Threads of a GPU have no barrier between steps.
    let bound =
        |leaf: &AxisId| matches!(stage.axis(*leaf).annotation, Some((Annotation::Thread(_), _)));
    let shared = leaves_of(stage, inner)
        .filter(|leaf| encloses_steps(leaf) || bound(leaf))
        .chain(steps.iter().copied())
        .find(threads);
    if let (true, Some(leaf)) = (overlap, shared) {
        let text = format!("`tail=shift` on `{name}` makes iterations of `{}` overlap", {
            &stage.axis(leaf).name
        });
        let place = stage.axis(leaf).annotation.map_or(span, |(_, span)| span);
        return Err(Box::new(
            Diag::new("E0334", span, text)
                .related(place, "in parallel here")
                .note(format!(
                    "the last two steps both write some elements of `{}`: threads race",
                    stage.te.name
                ))
                .help("write `tail=peel`, `tail=mask` or `tail=guard`"),
        ));
    }
    Ok(())
}

/// Whether overlapping steps of `outer` add terms twice. They do not if each step first stores the
/// start values of its elements and adds all terms before the next step begins. Lanes and virtual
/// threads begin together.
fn adds_twice(stage: &Stage, bounds: &StageBounds, parent: AxisId, outer: AxisId) -> bool {
    if matches!(stage.te.body, Body::Sort(_)) {
        return false;
    }
    let reduce = |axis: AxisId| stage.axis(axis).kind == AxisKind::Reduce;
    let first = stage.leaves.iter().position(|leaf| reduce(*leaf));
    let together = |leaf: AxisId| {
        let interleaved = matches!(
            stage.axis(leaf).annotation,
            Some((Annotation::Vectorize | Annotation::Thread(ThreadIndex::Virtual), _))
        );
        interleaved && bounds.extents[leaf.0].as_int() != Some(1)
    };
    reduce(parent)
        || first.is_some_and(|first| {
            leaves_of(stage, outer)
                .any(|leaf| stage.leaves[first..].contains(&leaf) || together(leaf))
        })
}

/// Returns the loops that an axis was split, fused or skewed into.
fn leaves_of(stage: &Stage, axis: AxisId) -> impl Iterator<Item = AxisId> {
    let mut axes = vec![axis];
    for relation in &stage.relations {
        if relation.replaced().iter().any(|axis| axes.contains(axis)) {
            axes.extend(relation.made());
        }
    }
    let leaves: Vec<AxisId> = axes.into_iter().filter(|axis| stage.leaves.contains(axis)).collect();
    leaves.into_iter()
}
