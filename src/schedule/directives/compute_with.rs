//! `compute_with`: the outer loops of two independent stages become one nest.
//!
//! Before: `for x { for y { S } }  for x { for y { T } }`.
//! After `T.compute_with(S, x)`: `for x { for y { S }  for y { T } }`.

use super::call::{Call, Value};
use super::tensorize::Tensorize;
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result, Span};
use crate::ir::equal::equal;
use crate::ir::print::print_expr;
use crate::ir::{Buffering, Expr};
use crate::schedule::bounds::{Guard, StageBounds, is_terms_only, loop_extent, loop_min};
use crate::schedule::fused::{SharedLoops, shared_loops};
use crate::schedule::phases::Inference;
use crate::schedule::state::{Annotation, AxisId, AxisKind, Schedule, Stage, StageId};

/// The annotation of the stage that takes the loops of another one.
#[derive(Debug)]
pub(in crate::schedule) struct ComputeWith {
    /// The stage whose loops they are.
    pub(in crate::schedule) host: StageId,
    /// The innermost shared loop, an axis of `host`.
    pub(in crate::schedule) axis: AxisId,
}

/// The annotation of the host at that loop, which can no longer be split.
#[derive(Debug)]
struct SharesLoop;

/// `T.compute_with(S, i)`: computes `T` in the loops of `S` from the outermost one to `i`.
pub(super) static COMPUTE_WITH: Directive = Directive {
    name: "compute_with",
    subject: Subject::Stage,
    targets: Targets::Cpus,
    params: &[required("stage", ArgKind::Stage), required("axis", ArgKind::AxisOfStage)],
    usage: "compute_with(STAGE, axis)",
    run: compute_with,
    check: Some(check),
};

fn compute_with(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let Some(Value::Stage(host)) = call.value(0) else {
        crate::bug!("`compute_with` without a stage")
    };
    let (host, axis) = (*host, call.axis(1));
    let name = &schedule.stage(id).te.name;
    if let Some((old, with)) = schedule.stage(id).annotation::<ComputeWith>() {
        let other = &schedule.stage(with.host).te.name;
        let text = format!("`{name}` is already computed with `{other}`");
        let diag = Diag::new("E0345", call.span, text).related(old.span, "here");
        return Err(Box::new(diag.help(format!(
            "for a third stage, write `{}.compute_with({name}, AXIS)`",
            schedule.stage(host).te.name
        ))));
    }
    let mut at = host;
    loop {
        if at == id {
            let text = match host == id {
                true => format!("`{name}` cannot be computed with itself"),
                false => {
                    let other = &schedule.stage(host).te.name;
                    format!("`{other}` is already computed with `{name}`")
                }
            };
            let diag = Diag::new("E0345", call.span_of(0), text);
            let old = schedule.stage(host).annotation::<ComputeWith>();
            return Err(Box::new(match old {
                Some((old, _)) => diag.related(old.span, "here"),
                None => diag.help("name another stage"),
            }));
        }
        let Some((_, with)) = schedule.stage(at).annotation::<ComputeWith>() else { break };
        at = with.host;
    }
    let with = ComputeWith { host, axis };
    schedule.stage_mut(id).annotate(call.directive, None, call.span, with);
    let host = schedule.stage_mut(host);
    host.annotate(call.directive, Some(axis), call.span, SharesLoop);
    host.touched = true;
    Ok(Vec::new())
}

/// Checks that the shared loops correspond (E0347) and that what other directives left at them can
/// be shared (E0348).
fn check(inference: &Inference, id: StageId, span: Span) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    let all = shared_loops(schedule);
    let Some(shared) = all.iter().find(|shared| (shared.guest, shared.span) == (id, span)) else {
        return Ok(());
    };
    schedule.checked(check_loops(inference, shared))?;
    check_directives(schedule, shared)
}

/// Checks that the loops down to the shared one have the same kinds and extents (E0347).
fn check_loops(inference: &Inference, shared: &SharedLoops) -> Result<()> {
    let schedule = &inference.bounded.schedule;
    let (guest, host) = (schedule.stage(shared.guest), schedule.stage(shared.host));
    let (name, other) = (&guest.te.name, &host.te.name);
    let refuse = |text: String, note: String| {
        let diag = Diag::new("E0347", shared.span, text).note(note);
        let outer = shared.depth.checked_sub(1).map(|at| &host.axis(host.leaves[at]).name);
        Box::new(diag.help(match outer {
            Some(outer) => format!(
                "apply the same loop directives to both stages, or share fewer loops: \
                 `{name}.compute_with({other}, {outer})`"
            ),
            None => "apply the same loop directives to both stages".to_string(),
        }))
    };
    let (bounds, host_bounds) =
        (inference.bounded.of(shared.guest), inference.bounded.of(shared.host));
    for at in 0..=shared.depth {
        let host_leaf = host.leaves[at];
        let host_name = &host.axis(host_leaf).name;
        let Some(leaf) = guest.leaves.get(at).copied() else {
            let text = format!("`{name}` has no loop to share with `{host_name}` of `{other}`");
            let count = guest.leaves.len();
            let loops = if count == 1 { "loop" } else { "loops" };
            let note = format!("`{name}` has {count} {loops}, `{host_name}` is loop {}", at + 1);
            return Err(refuse(text, note));
        };
        let axis = &guest.axis(leaf).name;
        let text = format!("loop `{axis}` of `{name}` is not loop `{host_name}` of `{other}`");
        let how = |stage: &Stage, leaf: AxisId| {
            let axis = stage.axis(leaf);
            match (axis.annotation, axis.kind) {
                (Some((Annotation::Thread(index), _)), _) => format!("bound to {}", index.name()),
                (Some((Annotation::Unroll, _)), _) => "unrolled".to_string(),
                (Some((Annotation::Vectorize, _)), _) => "vectorized".to_string(),
                (Some((Annotation::Parallel, _)), _) => "parallel".to_string(),
                (None, AxisKind::Reduce) => "a reduction axis".to_string(),
                (None, AxisKind::Data) => "a serial loop over elements".to_string(),
            }
        };
        let annotation = |stage: &Stage, leaf: AxisId| stage.axis(leaf).annotation.map(|(a, _)| a);
        let kinds = guest.axis(leaf).kind == host.axis(host_leaf).kind;
        if !kinds || annotation(guest, leaf) != annotation(host, host_leaf) {
            let (here, there) = (how(guest, leaf), how(host, host_leaf));
            let note = match here == there {
                true => "one is a reduction axis, the other one is not".to_string(),
                false => format!("`{axis}` is {here}, `{host_name}` is {there}"),
            };
            return Err(refuse(text, note));
        }
        let range = |stage: &Stage, bounds: &StageBounds, leaf: AxisId| {
            (loop_min(stage, leaf), loop_extent(stage, bounds, leaf))
        };
        let (min, extent) = range(guest, bounds, leaf);
        let (host_min, host_extent) = range(host, host_bounds, host_leaf);
        let is_equal = |a: &Expr, b: &Expr| {
            equal(a, b) || {
                let (low, high) = (Expr::le(a.clone(), b.clone()), Expr::le(b.clone(), a.clone()));
                inference.facts.prove(&low) && inference.facts.prove(&high)
            }
        };
        if !is_equal(&min, &host_min) || !is_equal(&extent, &host_extent) {
            let range = |min: &Expr, extent: &Expr| match min.as_int() {
                Some(0) => format!("{} iterations", print_expr(extent)),
                _ => format!("{} iterations from {}", print_expr(extent), print_expr(min)),
            };
            let (here, there) = (range(&min, &extent), range(&host_min, &host_extent));
            let note = format!("`{axis}` has {here}, `{host_name}` has {there}");
            return Err(refuse(text, note));
        }
    }
    let own = guards_within(bounds, shared.depth);
    let theirs = guards_within(host_bounds, shared.depth);
    let same = |a: &&Guard, b: &&Guard| a.depth == b.depth && equal(&a.cond, &b.cond);
    if own.len() == theirs.len() && own.iter().zip(&theirs).all(|(a, b)| same(a, b)) {
        return Ok(());
    }
    let describe = |guards: &[&Guard]| match guards.first() {
        None => "no condition".to_string(),
        Some(guard) => format!("the condition `{}`", guard.text()),
    };
    let differ: Vec<&Guard> =
        own.iter().filter(|a| !theirs.iter().any(|b| same(a, b))).copied().collect();
    let others: Vec<&Guard> =
        theirs.iter().filter(|a| !own.iter().any(|b| same(a, b))).copied().collect();
    let text = format!("the shared loops of `{name}` and `{other}` have different tails");
    let (here, there) = (describe(&differ), describe(&others));
    Err(refuse(text, format!("`{name}` has {here} in them, `{other}` {there}")))
}

/// Returns the conditions that stand in the shared loops, or around them.
fn guards_within(bounds: &StageBounds, depth: usize) -> Vec<&Guard> {
    let stands = |guard: &&Guard| guard.depth <= Some(depth) && !is_terms_only(guard);
    bounds.guards.iter().filter(stands).collect()
}

/// Refuses directives that need a nest of one stage (E0348).
fn check_directives(schedule: &Schedule, shared: &SharedLoops) -> Result<()> {
    let (guest, host) = (schedule.stage(shared.guest), schedule.stage(shared.host));
    for stage in [guest, host] {
        let name = &stage.te.name;
        let tensorize = stage.annotation::<Tensorize>();
        if let Some((annotation, _)) = tensorize.filter(|(_, asked)| {
            let at = stage.leaves.iter().position(|leaf| *leaf == asked.axis);
            at <= Some(shared.depth)
        }) {
            let text = format!("a shared loop of `{name}` is part of an instruction");
            return Err(Box::new(
                Diag::new("E0348", shared.span, text)
                    .related(annotation.span, "here")
                    .help("share the loops around those of the `tensorize` only"),
            ));
        }
        if let Some((annotation, _)) = stage.annotation::<Buffering>() {
            let text = format!("`{name}` is computed ahead and cannot share its loops");
            return Err(Box::new(
                Diag::new("E0348", shared.span, text)
                    .related(annotation.span, "here")
                    .note("a double buffer is filled one iteration before the other stage runs")
                    .help("leave one of the two out"),
            ));
        }
    }
    Ok(())
}
