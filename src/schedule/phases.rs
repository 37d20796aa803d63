//! From a schedule to one with all bounds: the list of phases after the last directive.
//!
//! Before: a [`Schedule`], each of whose directives was legal by names and kinds alone.
//! After: a [`BoundedSchedule`], the input of `lower::build_loops`; or an error at the directive
//! that is illegal.

use super::bounds::StageBounds;
use super::directives::prefetch::{PrefetchRegion, prefetch_regions};
use super::directives::{self, pipeline};
use super::reads::Reads;
use super::state::{Schedule, StageId};
use super::versions::Version;
use super::{fused, in_place, inline, legality, recurrence, sliding, sorts, threads, whole_tiles};
use crate::diag::Result;
use crate::ir::PrepackRole;
use crate::ir::arith::Facts;
use crate::ir::print::print_expr;

/// A schedule with the bounds of every stage.
#[derive(Clone, Debug)]
pub struct BoundedSchedule {
    /// The schedule; its order has no inlined stages.
    pub schedule: Schedule,
    /// The bounds of each stage, by [`StageId`]; `None` for inlined ones.
    pub bounds: Vec<Option<StageBounds>>,
    /// The regions to prefetch.
    pub prefetches: Vec<PrefetchRegion>,
    /// The schedules of calls in which conditions on run-time integers hold.
    pub versions: Vec<Version<BoundedSchedule>>,
    /// The role of a kernel that prepacking made from another one.
    pub prepack_role: Option<PrepackRole>,
}

impl BoundedSchedule {
    /// Returns the bounds of a stage that is in the order.
    pub fn of(&self, id: StageId) -> &StageBounds {
        self.bounds[id.0].as_ref().expect("the stage is in the order")
    }

    /// Lets every stage compute its whole region.
    pub fn compute_unread(&mut self) {
        self.bounds.iter_mut().flatten().for_each(|bounds| bounds.read_ranges.clear());
    }
}

/// What the phases compute.
pub(super) struct Inference {
    /// The schedule and the results so far.
    pub(super) bounded: BoundedSchedule,
    /// Facts that hold everywhere: assumptions, extents that are not negative.
    pub(super) facts: Facts,
    /// The reads between stages; empty before [`find_reads`].
    pub(super) reads: Reads,
}

/// A step of [`infer_bounds`].
type Phase = fn(&mut Inference) -> Result<()>;

/// All phases, in order.
const PHASES: &[Phase] = &[
    inline_stages,
    share_thread_variables,
    find_reads,
    place_sorts,
    check_steps,
    fuse_nests,
    check_attachments,
    check_updates,
    check_launch_stages,
    assign_pipelines,
    bound_stages,
    pad_launch_stages,
    skip_unread,
    pad_tiles,
    pad_rows,
    keep_last_steps,
    place_thread_guards,
    check_annotations,
    bound_prefetches,
    check_loops,
    note_order_of_terms,
];

/// Infers the bounds of all stages and checks that the schedule is legal.
pub fn infer_bounds(mut schedule: Schedule) -> Result<BoundedSchedule> {
    let versions = std::mem::take(&mut schedule.versions);
    let versions = versions.into_iter().map(|Version { cond, of }| match infer_bounds(of) {
        Ok(of) => Ok(Version { cond, of }),
        Err(diag) => Err(Box::new(diag.note(format!("where `{}` holds", print_expr(&cond))))),
    });
    let versions: Vec<Version<BoundedSchedule>> = versions.collect::<Result<_>>()?;
    let mut facts = Facts::new();
    schedule.known_facts().iter().for_each(|cond| facts.assume(cond));
    let bounds = vec![None; schedule.stages.len()];
    let (prefetches, prepack_role) = (Vec::new(), None);
    let bounded = BoundedSchedule { schedule, bounds, prefetches, versions, prepack_role };
    let mut inference = Inference { bounded, facts, reads: Reads::default() };
    for phase in PHASES {
        if let Err(diag) = phase(&mut inference) {
            let used = &inference.bounded.schedule.used;
            return Err(Box::new(used.iter().fold(*diag, |diag, used| used.explain(diag))));
        }
    }
    let BoundedSchedule { schedule, versions, .. } = &mut inference.bounded;
    schedule.reassociated |= versions.iter().any(|version| version.of.schedule.reassociated);
    Ok(inference.bounded)
}

/// Replaces the reads of inlined stages by their values.
///
/// Before: `S[i] = A[i] * 2`, `S` inlined, `C[i] = S[i + 1] + 1`.
/// After: `C[i] = A[i + 1] * 2 + 1`; `S` is not in the order.
fn inline_stages(inference: &mut Inference) -> Result<()> {
    inline::inline_stages(&mut inference.bounded.schedule)
}

/// GPUs: gives all loops of a launch that are bound to the same index one variable, and every
/// attached stage a storage scope.
///
/// Before: `C`'s `xi` and `S`'s `ax0` are bound to `threadIdx.x`; `S` has no scope.
/// After: both loops have the variable `threadIdx.x`; `S` is `shared`.
fn share_thread_variables(inference: &mut Inference) -> Result<()> {
    threads::share_thread_variables(&mut inference.bounded.schedule);
    Ok(())
}

/// Collects the reads of each stage by other stages.
///
/// Before: expressions. After: [`Inference::reads`]. No later phase changes an expression.
fn find_reads(inference: &mut Inference) -> Result<()> {
    inference.reads = Reads::of(&inference.bounded.schedule);
    Ok(())
}

/// Puts each sort inside the loops that its keys depend on.
///
/// Before: `S[p, i] = sort(A[i, r], axis=r, at=p)`, loops `p`, `i`, `r`.
/// After: loops `i`, `r`, `p`; no lanes are around `r` (E0392).
fn place_sorts(inference: &mut Inference) -> Result<()> {
    sorts::place_sorts(&mut inference.bounded.schedule)
}

/// Checks that each step of a recurrence runs behind those that it reads.
///
/// Before: any loops and attachments. After: the loops over the steps are in a legal order, the
/// stages of a recurrence at the root share them, and they enclose the others (E0399).
fn check_steps(inference: &mut Inference) -> Result<()> {
    let checked = recurrence::check_recurrences(inference);
    inference.bounded.schedule.checked(checked)
}

/// Checks the stages that `compute_with` puts into one nest.
///
/// Before: `T.compute_with(S, i)`, both with a loop `i`. After: `S` and `T` are independent and
/// next to each other in the order, and their shared loops have one variable (E0345, E0346).
fn fuse_nests(inference: &mut Inference) -> Result<()> {
    fused::check_groups(&mut inference.bounded.schedule, &inference.reads)
}

/// Checks that each attached stage is attached to a loop that encloses all its readers, and where
/// its buffer is.
///
/// Before: any attachments. After: each chain of attachments ends in a root stage (E0340 to E0342),
/// and each buffer is outside of the loop in which its stage is computed (E0362, E0363).
fn check_attachments(inference: &mut Inference) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    for id in schedule.order.iter().rev() {
        schedule.checked(legality::check_attachment(schedule, *id, &inference.reads))?;
    }
    let mut order = schedule.order.iter();
    order.try_for_each(|id| sliding::check_storage(schedule, *id))
}

/// Checks that no `update` overwrites elements before they are read.
///
/// Before: any nests. After: what reads the old elements of an `inout` tensor is computed before
/// its `update`, or reads in the `update` exactly the element that is then written (E0349).
fn check_updates(inference: &mut Inference) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    schedule.checked(in_place::check_order(schedule))
}

/// GPUs: checks the scopes and bound axes of each stage, which need no extents.
///
/// Before: any bound axes and scopes. After: each root stage is a launch, and threads see all that
/// they read; arguments are contiguous (E0241, E0261, E0380, E0385 to E0387).
fn check_launch_stages(inference: &mut Inference) -> Result<()> {
    threads::check_stages(&inference.bounded.schedule)
}

/// Gives each shared stage in the loop of a `pipeline` as many buffers as the pipeline has stages.
///
/// Before: `C.pipeline(ko, stages=3)`, `S` is shared and attached to `ko` of `C`.
/// After: `S` has `Buffering::Pipeline(3)` (E0391 if there is no such stage).
fn assign_pipelines(inference: &mut Inference) -> Result<()> {
    pipeline::assign_pipelines(&mut inference.bounded.schedule)
}

/// Infers the bounds of every stage, consumers before producers.
///
/// Before: `S.compute_at(C, xo)`, `C` reads `S[x]` and `S[x + 1]`, `x = xo*8 + xi`.
/// After: the region of `S` is `xo*8 .. xo*8 + 9`, its loop has the extent 9, and a guard stands
/// where the region may leave the domain. With `S.store_at(C, p)`, the region has only the elements
/// that earlier iterations have not computed (E0364). On a GPU, all stages of a launch give an
/// index the same extent (E0381).
fn bound_stages(inference: &mut Inference) -> Result<()> {
    let mut extents = Vec::new();
    for id in inference.bounded.schedule.order.clone().into_iter().rev() {
        let bounds = inference.bound_stage(id)?;
        threads::check_extents(&inference.bounded.schedule, id, &bounds, &mut extents)?;
        inference.bounded.bounds[id.0] = Some(bounds);
    }
    Ok(())
}

/// GPUs: lets stages in shared and private memory compute their whole regions.
///
/// Before: `CL`, `local`, has the guard `x < 100`, and `AS`, `shared`, which it reads, too.
/// After: `CL` has no guard, and elements of `AS` outside of the domain are 0.
fn pad_launch_stages(inference: &mut Inference) -> Result<()> {
    threads::pad_stages(inference);
    Ok(())
}

/// CPUs: leaves out elements of attached stages that nobody reads.
///
/// Before: `C[i, j] = if j < i then 0 else S[i, j]`, `S.compute_at(C, i)` computes a whole row.
/// After: the loop over `j` of `S` begins at `i`.
fn skip_unread(inference: &mut Inference) -> Result<()> {
    inference.skip_unread();
    Ok(())
}

/// CPUs: lets attached stages compute whole tiles of lanes and of unrolled loops where all that
/// they read is there.
///
/// Before: `CL` has the lanes `y`, the guard `yo*32 + y < 1021`, and reads a packed copy that has
/// 1024 columns.
/// After: `CL` has no guard. The guard of the stage that reads `CL` stays.
fn pad_tiles(inference: &mut Inference) -> Result<()> {
    whole_tiles::pad_tiles(inference);
    Ok(())
}

/// AVX2 and AVX-512: pads the rows of temporaries whose last vector has a mask.
///
/// Before: `CL`, attached, has rows of 28 elements, the lanes of one loop.
/// After: rows begin 32 elements apart, as after `CL.storage_align(x, 16, 0)`.
fn pad_rows(inference: &mut Inference) -> Result<()> {
    let BoundedSchedule { schedule, bounds, .. } = &mut inference.bounded;
    // Others store the tail of a row as scalars.
    if threads::has_launches(schedule) || schedule.target.simd().is_none() {
        return Ok(());
    }
    for id in schedule.order.clone() {
        let stage = schedule.stage(id);
        let lanes = stage.te.buffers.iter().map(|buffer| schedule.target.lanes(buffer.dtype));
        let lanes = lanes.max().unwrap_or(1).into();
        let bounds = bounds[id.0].as_ref().expect("the stage is in the order");
        directives::pad_rows(schedule.stage_mut(id), bounds, lanes);
    }
    Ok(())
}

/// Lets stages of recurrences store their last steps only, if nothing reads others.
///
/// Before: `u[t, i]` has `n` steps, and step `t` reads `u[t - 1, …]`.
/// After: the first extent of its buffer is 2, and step `t` is stored at `t % 2`.
fn keep_last_steps(inference: &mut Inference) -> Result<()> {
    recurrence::keep_last_steps(inference);
    Ok(())
}

/// GPUs: adds the conditions that keep threads from repeating each other's work, and moves
/// conditions that differ between threads inwards past barriers.
///
/// Before: `C` does not bind `threadIdx.x`, another stage of its launch does.
/// After: `C` has the guard `threadIdx.x == 0`.
fn place_thread_guards(inference: &mut Inference) -> Result<()> {
    let BoundedSchedule { schedule, bounds, .. } = &mut inference.bounded;
    threads::place_guards(schedule, bounds);
    Ok(())
}

/// Runs the legality check of each annotation's directive.
///
/// Before: any annotations. After: `double_buffer`, `store_nontemporal` and the others stand where
/// they can be implemented (E0347, E0348, E0372, E0373, E0379, E0390).
fn check_annotations(inference: &mut Inference) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    schedule.checked(directives::check_annotations(inference))
}

/// Infers the region of each `prefetch`.
///
/// Before: `C.prefetch(A, i, 2)`, an iteration of `i` reads `A[i, 0 .. m]`.
/// After: the region of `A` from `[i + 2, 0]`, `1` by `m` elements (E0374, E0375).
fn bound_prefetches(inference: &mut Inference) -> Result<()> {
    inference.bounded.prefetches = prefetch_regions(inference)?;
    Ok(())
}

/// Checks everything that depends on the extents of loops: lanes, copies, the order of reduction
/// terms, tails, and the sizes of launches.
///
/// Before: any loops. After: `build_loops` can build them, and each element has the result of the
/// default schedule (E0330 to E0336, E0382 to E0384, E0388).
fn check_loops(inference: &mut Inference) -> Result<()> {
    legality::check_loops(&inference.bounded, &inference.facts)
}

/// Records whether a stage combines its terms in another order than the source.
///
/// Before: `reassociated` covers `merge`, `contract`, `rfactor` and `tensorize`.
/// After: it covers reordered loops too.
fn note_order_of_terms(inference: &mut Inference) -> Result<()> {
    inference.bounded.schedule.reassociated |= legality::changes_order(&inference.bounded);
    Ok(())
}

/// Gives a kernel the schedule of `leader`, which is for a more capable target of the same module,
/// if one of both adds in another order than the source. The bits of the result then do not depend
/// on the target. Returns whether the schedule changed.
pub fn order_as(bounded: &mut BoundedSchedule, leader: &BoundedSchedule) -> bool {
    if !bounded.schedule.reassociated && !leader.schedule.reassociated {
        return false;
    }
    let target = bounded.schedule.target.clone();
    let changed = bounded.schedule.text != leader.schedule.text;
    *bounded = leader.clone();
    bounded.schedule.target = target;
    changed
}
