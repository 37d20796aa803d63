//! Sliding windows: a stage keeps the elements that earlier iterations computed.
//!
//! Before: `B.compute_at(C, y)`, an iteration of `y` reads the rows `y - 1` to `y + 1` of `B` and
//! computes all three.
//! After `B.store_at(C, yo)`: the loop begins two iterations earlier, and iteration `y` computes
//! row `y + 1` only. Row `i` is stored in row `i % 4` of the buffer, which belongs to an iteration
//! of `yo`.
//!
//! The *window* is the region that an iteration reads. The loops between the buffer and the place
//! of computation run one by one ([`check_storage`]). For a dimension of the window that moves with
//! one of these loops, [`Inference::slide`] proves:
//!
//! - Each iteration moves the window by 0 to `s` elements, in one direction. So the last `s`
//!   elements of the window (the first ones, if it moves backwards) contain all that the iteration
//!   before does not have, and an iteration computes these.
//! - The window moves with no other of the loops, and the loop moves no other dimension. So the
//!   iteration before has computed the same elements in the other dimensions.
//! - After the additional iterations at the beginning of the loop, the *warm-up*, the window of the
//!   first iteration that reads is complete. `build_loops` runs only the stages that are read later
//!   in them. Elements outside of the domain or in front of the first window are not computed.
//!
//! An element that two iterations compute gets the same value twice. A loop inside that moves no
//! dimension repeats the elements, and one outside begins with a warm-up each time.
//!
//! A ring has at least as many places as the window has elements, so the elements that are computed
//! overwrite only those that the window has left, which no later iteration reads. That holds for
//! the outermost loop that keeps elements: an inner loop would overwrite what the next iteration of
//! the outer one reads.

use super::bounds::{Loop, attach_depth, region_extent};
use super::directives::store_at::StoreAt;
use super::directives::{Scan, Scatter};
use super::fused::group_of;
use super::phases::Inference;
use super::region::Interval;
use super::state::{Annotation, Attach, AxisId, Schedule, StageId};
use super::storage::{Limit, LimitEnd, Region, Ring, Storage};
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::print::print_expr;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{mentions, substitute};
use crate::ir::{BinOp, Buffering, Expr, ExprKind, Var};

/// The place where the buffer of an attached stage is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoragePlace {
    /// Outside of all loops.
    Root,
    /// Inside a loop of a stage, or in front of all its loops.
    In(StageId, Option<usize>),
}

/// Returns the place where the buffer of a stage is allocated, if that is not where the stage is
/// computed.
pub fn storage_place(schedule: &Schedule, id: StageId) -> Option<StoragePlace> {
    let (_, store) = schedule.stage(id).annotation::<StoreAt>()?;
    Some(match store.inside {
        Some((host, axis)) => StoragePlace::In(host, attach_depth(schedule.stage(host), axis)),
        None => StoragePlace::Root,
    })
}

/// Returns the innermost loop of its reader that encloses the buffer of an attached stage; `None`
/// if the buffer is in front of them. Refuses other places (E0362).
fn storage_depth(schedule: &Schedule, id: StageId, consumer: StageId) -> Result<Option<usize>> {
    let stage = schedule.stage(id);
    let (annotation, _) = stage.annotation::<StoreAt>().expect("it has a place");
    let target = schedule.stage(consumer);
    let (name, reader) = (&stage.te.name, &target.te.name);
    let wrong = |text: String| {
        let help = format!(
            "name a loop of `{reader}` outside of the `compute_at`: `{name}.store_at({reader}, \
             AXIS)`"
        );
        Err(Box::new(Diag::new("E0362", annotation.span, text).help(help)))
    };
    match (storage_place(schedule, id).expect("it has a place"), target.attach) {
        (StoragePlace::In(host, depth), _) if host == consumer => Ok(depth),
        (StoragePlace::Root, Attach::Root) => Ok(None),
        (StoragePlace::In(host, depth), Attach::At { stage, axis, .. })
            if stage == host && attach_depth(schedule.stage(host), axis) == depth =>
        {
            Ok(None)
        }
        (StoragePlace::Root, _) => {
            wrong(format!("`{name}` is stored outside of the loops around `{reader}`"))
        }
        (StoragePlace::In(host, _), _) => {
            let host = &schedule.stage(host).te.name;
            let at = format!("`{name}` is computed in a loop of `{reader}`");
            wrong(format!("{at}, and cannot be stored in this loop of `{host}`"))
        }
    }
}

/// Checks the place of a buffer: outside of the loop in which its stage is computed, and around
/// loops of one stage (E0362) whose iterations run one by one (E0363).
pub(super) fn check_storage(schedule: &Schedule, id: StageId) -> Result<()> {
    let stage = schedule.stage(id);
    let Some((annotation, _)) = stage.annotation::<StoreAt>() else { return Ok(()) };
    let (name, span) = (&stage.te.name, annotation.span);
    let refuse = |text: String| Diag::new("E0362", span, text);
    let (consumer, axis) = match stage.attach {
        Attach::At { stage, axis, .. } => (stage, axis),
        // `check_annotations` refuses inlined stages.
        Attach::Inline { .. } => return Ok(()),
        Attach::Root => {
            let text = format!("`{name}` is computed at the root, where its buffer is");
            let help = format!("compute it in a loop of its reader: `{name}.compute_at(R, AXIS)`");
            return Err(Box::new(refuse(text).help(help)));
        }
    };
    let target = schedule.stage(consumer);
    let outer = storage_depth(schedule, id, consumer)?;
    let depth = attach_depth(target, axis);
    let Some(depth) = depth.filter(|_| outer < depth) else {
        let text = format!("`{name}` is not stored outside of the loop in which it is computed");
        let loops = target.axis_names().join("`, `");
        let diag = refuse(text).note(format!("the loops of `{}` are `{loops}`", target.te.name));
        return Err(Box::new(diag.help("name an outer loop, or leave out the `store_at`")));
    };
    for (other, of) in [(id, stage), (consumer, target)] {
        let of = &of.te.name;
        let why = if schedule.stage(other).te.recurrence.is_some() {
            format!("`{of}` is part of a recurrence, whose steps are stored in another way")
        } else if group_of(schedule, other).len() > 1 {
            format!("`{of}` shares its loops with another stage")
        } else {
            continue;
        };
        let text = format!("`{name}` cannot keep elements of earlier iterations");
        return Err(Box::new(refuse(text).note(why).help("leave out the `store_at`")));
    }
    let other = stage.annotation::<Buffering>().map(|(other, _)| other);
    let other = other.or(stage.annotation::<Scatter>().map(|(other, _)| other));
    // A scan computes each element from the one before, in the iteration itself.
    let other = other.or(stage.annotation::<Scan>().map(|(other, _)| other));
    if let Some(other) = other {
        let text = format!("`{name}` cannot have both `store_at` and `{}`", other.directive.name);
        let diag = refuse(text).related(other.span, "here");
        return Err(Box::new(diag.help("leave one of the two out")));
    }
    let between = &target.leaves[outer.map_or(0, |outer| outer + 1)..=depth];
    schedule.checked(check_serial(schedule, id, consumer, between, span))
}

/// Refuses loops whose iterations do not run one after the other (E0363).
fn check_serial(
    schedule: &Schedule,
    id: StageId,
    consumer: StageId,
    between: &[AxisId],
    span: Span,
) -> Result<()> {
    let (name, target) = (&schedule.stage(id).te.name, schedule.stage(consumer));
    for leaf in between {
        let axis = target.axis(*leaf);
        let Some((how, place)) = axis.annotation.filter(|(how, _)| *how != Annotation::Unroll)
        else {
            continue;
        };
        let text = format!(
            "`{name}` is stored outside of `{}`, whose iterations do not run one after the other",
            axis.name
        );
        return Err(Box::new(
            Diag::new("E0363", span, text)
                .related(place, format!("`{}` here", how.name()))
                .note("an iteration would read elements that another one may not have computed")
                .help(format!(
                    "store it inside: `{name}.store_at({}, {})`",
                    target.te.name, axis.name
                )),
        ));
    }
    Ok(())
}

/// The largest number of elements of a window in a dimension in which it slides. A larger one is
/// the range of a type.
const MAX_WINDOW: i64 = 1 << 20;

/// The numbers of additional iterations that are tried.
const MAX_TRIES: usize = 4;

/// Returns the largest number of additional iterations for a window with `extent` elements.
fn most_warm_up(extent: i64) -> i64 {
    extent.saturating_mul(2)
}

/// Returns bounds of the difference of an index between two iterations of the loop over `var`;
/// `None` if they are unknown.
fn steps(index: &Expr, var: &Var) -> Option<(i128, i128)> {
    if !mentions(index, var) {
        return Some((0, 0));
    }
    match &index.kind {
        ExprKind::Var(_) => Some((1, 1)),
        ExprKind::Binary(op, a, b) => {
            let (of_a, of_b) = (steps(a, var)?, steps(b, var)?);
            Some(match (op, b.as_int()) {
                (BinOp::Add, _) => (of_a.0.checked_add(of_b.0)?, of_a.1.checked_add(of_b.1)?),
                (BinOp::Sub, _) => (of_a.0.checked_sub(of_b.1)?, of_a.1.checked_sub(of_b.0)?),
                (BinOp::Min | BinOp::Max, _) => (of_a.0.min(of_b.0), of_a.1.max(of_b.1)),
                (BinOp::Mul, Some(by)) => {
                    let ends = (of_a.0.checked_mul(by)?, of_a.1.checked_mul(by)?);
                    (ends.0.min(ends.1), ends.0.max(ends.1))
                }
                // `(x + d) // c - x // c` is `d / c`, rounded down or up.
                (BinOp::FloorDiv, Some(by @ 1..)) => {
                    (of_a.0.div_euclid(by), -(-of_a.1).div_euclid(by))
                }
                _ => return None,
            })
        }
        _ => None,
    }
}

/// What a stage computes whose buffer is outside of the loop in which it is computed.
pub(super) struct Slide {
    /// The region of one iteration.
    pub(super) region: Region,
    /// The loops that begin earlier, with the number of additional iterations.
    pub(super) warm_up: Vec<(Var, i64)>,
}

/// A dimension along which the window moves with a loop.
struct SlidingDim {
    /// The window of an iteration.
    window: Interval,
    /// The number of its elements.
    extent: i64,
    /// The loop.
    along: Loop,
    /// Whether the window moves to larger indices.
    ascends: bool,
    /// The largest number of elements that it moves by.
    step: i64,
    /// The additional iterations.
    warm_up: i64,
}

impl Inference {
    /// Returns what a stage computes in each iteration if its buffer keeps elements of earlier
    /// ones; `None` if it does not keep any. `enclosing` are the loops around it, `region` is the
    /// region that an iteration reads. Refuses stages without such elements (E0364).
    pub(super) fn slide(
        &self,
        id: StageId,
        enclosing: &[Loop],
        region: &Region,
    ) -> Result<Option<Slide>> {
        let schedule = &self.bounded.schedule;
        let stage = schedule.stage(id);
        let (Some((annotation, _)), Attach::At { stage: consumer, axis, .. }) =
            (stage.annotation::<StoreAt>(), stage.attach)
        else {
            return Ok(None);
        };
        let inside = |depth: Option<usize>| depth.map_or(0, |depth| depth + 1);
        let depth = attach_depth(schedule.stage(consumer), axis);
        let outer = storage_depth(schedule, id, consumer)?;
        let first = enclosing.len() + inside(outer) - inside(depth);
        let between = &enclosing[first..];
        let refuse = |why: String| {
            let name = &stage.te.name;
            let text = format!("`{name}` has no window that provably slides in these loops");
            let diag = Diag::new("E0364", annotation.span, text).note(why);
            Box::new(diag.help(format!(
                "leave out the `store_at`, or compute `{name}` at the root: `{name}.compute_root()`"
            )))
        };
        let facts = self.facts_in(enclosing);
        let unclamped = self.unclamped_region(id, enclosing, &facts);
        let mut dims: Vec<Option<SlidingDim>> = Vec::new();
        let (mut mins, mut shape) = (region.mins.clone(), region.shape.clone());
        for (dim, unclamped) in unclamped.into_iter().enumerate() {
            let extent = Expr::sub(shape[dim].clone(), Expr::index(1));
            let read = Interval { min: mins[dim].clone(), width: simplify_expr(&extent, &facts) };
            let windows: Vec<Interval> = [unclamped, Some(read)].into_iter().flatten().collect();
            let slides = |window: &Interval| self.sliding_dim(window, enclosing, between);
            let found = windows.iter().filter_map(slides).min_by_key(|dim| dim.extent);
            let is_fixed =
                |window: &&Interval| between.iter().all(|(var, ..)| !mentions(&window.min, var));
            if let Some(found) = &found {
                let new = found.computed(&facts);
                (mins[dim], shape[dim]) = (new.min.clone(), region_extent(&new, &facts));
            } else if let Some(window) = windows.iter().rfind(is_fixed) {
                (mins[dim], shape[dim]) = (window.min.clone(), region_extent(window, &facts));
            } else {
                let index = print_expr(&mins[dim]);
                let axis = stage.te.axes[dim].var.name();
                return Err(refuse(format!(
                    "along `{axis}`, an iteration reads from index `{index}` on"
                )));
            }
            dims.push(found);
        }
        for (var, ..) in between {
            let moved = dims.iter().flatten().filter(|dim| dim.along.0 == *var).count();
            if moved > 1 {
                let name = var.name();
                return Err(refuse(format!("`{name}` moves the window in {moved} dimensions")));
            }
        }
        // A large image has a window that slides, but not one of a single row.
        let is_single = |extent: &Expr| extent.as_int() == Some(1);
        let is_small = between.iter().all(|(.., count)| is_single(count))
            || stage.te.axes.iter().any(|axis| is_single(&axis.extent));
        if dims.iter().all(Option::is_none) && !is_small {
            let why = "each iteration reads the same elements, or any of them".to_string();
            return Err(refuse(why));
        }
        let whole = self.region(id, self.reads.of_stage(id), &enclosing[..first], &{
            self.facts_in(&enclosing[..first])
        });
        let storage = self.storage_of(&dims, (&mins, &shape), &whole, enclosing, first);
        let region = Region { mins, shape, storage };
        let warm_up = dims.into_iter().flatten().filter(|dim| dim.warm_up > 0);
        let warm_up = warm_up.map(|dim| (dim.along.0, dim.warm_up)).collect();
        Ok(Some(Slide { region, warm_up }))
    }

    /// Returns how a window moves, if it moves with one of the loops `between`.
    fn sliding_dim(
        &self,
        window: &Interval,
        enclosing: &[Loop],
        between: &[Loop],
    ) -> Option<SlidingDim> {
        let mut moving = between.iter().filter(|(var, ..)| mentions(&window.min, var));
        let along = moving.next().filter(|_| moving.next().is_none())?.clone();
        let extent = i64::try_from(window.width.as_int()?).ok()?.checked_add(1)?;
        if !(1..=MAX_WINDOW).contains(&extent) {
            return None;
        }
        let (var, first, _) = &along;
        let at = |value: Expr| {
            substitute(&window.min, &mut |other| (other == var).then(|| value.clone()))
        };
        let (low, high) = self.steps_of(window, &along, enclosing, extent)?;
        let (ascends, step) = if low >= 0 { (true, high) } else { (false, -low) };
        let step = i64::try_from(step).ok().filter(|step| *step > 0)?;
        let missing = extent.saturating_sub(step).max(0);
        let least = missing / step + i64::from(missing % step > 0);
        // The warm-up begins with the first element of the first window, or before it.
        let others = enclosing.iter().filter(|(other, ..)| other != var).cloned();
        let facts = self.facts_in(&others.collect::<Vec<Loop>>());
        let completes = |warm_up: &i64| {
            let begin = at(Expr::sub(first.clone(), Expr::index(*warm_up)));
            let (missing, window) = (Expr::index(missing), at(first.clone()));
            let complete = match ascends {
                true => Expr::le(Expr::add(begin, missing), window),
                false => Expr::le(Expr::add(window, missing), begin),
            };
            *warm_up == 0 || facts.prove(&simplify_expr(&complete, &facts))
        };
        let warm_up = (least..=most_warm_up(extent)).take(MAX_TRIES).find(completes)?;
        let (window, along) = (window.clone(), along.clone());
        Some(SlidingDim { window, extent, along, ascends, step, warm_up })
    }

    /// Returns by how many elements an iteration of a loop moves the window, at least and at most,
    /// if that is always in the same direction.
    fn steps_of(
        &self,
        window: &Interval,
        (var, min, count): &Loop,
        enclosing: &[Loop],
        extent: i64,
    ) -> Option<(i128, i128)> {
        let mut loops: Vec<Loop> = Vec::new();
        loops.extend(enclosing.iter().filter(|(other, ..)| other != var).cloned());
        let more = Expr::index(most_warm_up(extent));
        let min = Expr::sub(min.clone(), more.clone());
        loops.push((var.clone(), min, Expr::add(count.clone(), more)));
        let facts = self.facts_in(&loops);
        let before = Expr::sub(Expr::var(var), Expr::index(1));
        let before = substitute(&window.min, &mut |other| (other == var).then(|| before.clone()));
        let moved = simplify_expr(&Expr::sub(window.min.clone(), before), &facts);
        let is_one_way = |(low, high): &(i128, i128)| *low >= 0 || *high <= 0;
        let (low, high) = facts.const_bounds(&moved);
        Option::zip(low, high).filter(is_one_way).or(steps(&window.min, var).filter(is_one_way))
    }

    /// Returns where the elements are stored. `computed` is the region of an iteration, `whole` the
    /// one of all iterations that use the same buffer.
    fn storage_of(
        &self,
        dims: &[Option<SlidingDim>],
        computed: (&[Expr], &[Expr]),
        whole: &[Interval],
        enclosing: &[Loop],
        first: usize,
    ) -> Storage {
        let facts = self.facts_in(&enclosing[..first]);
        let mut storage = Region::new(computed.0.to_vec(), computed.1.to_vec()).storage;
        let place = |dim: &SlidingDim| {
            enclosing.iter().position(|(var, ..)| *var == dim.along.0).expect("it is one of them")
        };
        // The elements of a row are neighbours, so that lanes can load them.
        let keeps = |at: &usize| dims[*at].as_ref().is_some_and(|dim| dim.warm_up > 0);
        let outermost =
            (0..dims.len()).filter(keeps).min_by_key(|at| dims[*at].as_ref().map(&place));
        let ring = outermost.filter(|dim| dim + 1 < dims.len()).and_then(|dim| {
            let extent = u64::try_from(dims[dim].as_ref()?.extent).ok()?;
            let extent = i64::try_from(extent.checked_next_power_of_two()?).ok()?;
            Some(Ring { dim, extent })
        });
        for (dim, sliding) in dims.iter().enumerate() {
            let Some(sliding) = sliding else { continue };
            storage.sliding.push(dim);
            let extent = region_extent(&whole[dim], &facts);
            let is_shorter = |ring: &Ring| {
                ring.dim == dim
                    && extent.as_int().is_none_or(|extent| i128::from(ring.extent) < extent)
            };
            if let Some(ring) = ring.filter(is_shorter) {
                storage.ring = Some(ring);
                storage.shape[dim] = Expr::index(ring.extent);
                storage.mins[dim] = Expr::index(0);
                storage.limits.push(Limit { dim, end: sliding.first_window(&facts) });
                continue;
            }
            let min = whole[dim].min.clone();
            let end = simplify_expr(&Expr::add(min.clone(), extent.clone()), &facts);
            storage.limits.push(Limit { dim, end: LimitEnd::First(min.clone()) });
            storage.limits.push(Limit { dim, end: LimitEnd::Behind(end) });
            (storage.mins[dim], storage.shape[dim]) = (min, extent);
        }
        storage
    }
}

impl SlidingDim {
    /// Returns the elements of the window that an iteration computes.
    fn computed(&self, facts: &Facts) -> Interval {
        let count = self.step.min(self.extent);
        let min = match self.ascends {
            true => Expr::add(self.window.min.clone(), Expr::index(self.extent - count)),
            false => self.window.min.clone(),
        };
        Interval { min: simplify_expr(&min, facts), width: Expr::index(count - 1) }
    }

    /// Returns the end of the first window in front of which no element is read.
    fn first_window(&self, facts: &Facts) -> LimitEnd {
        let (var, first, _) = &self.along;
        let first = |other: &Var| (other == var).then(|| first.clone());
        let min = substitute(&self.window.min, &mut |var| first(var));
        match self.ascends {
            true => LimitEnd::First(simplify_expr(&min, facts)),
            false => {
                let end = Expr::add(min, Expr::index(self.extent));
                LimitEnd::Behind(simplify_expr(&end, facts))
            }
        }
    }
}
