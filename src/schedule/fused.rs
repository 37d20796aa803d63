//! Stages that share loops: the groups that `compute_with` and recurrences make.
//!
//! Before: `T.compute_with(S, i)`, two nests: `for i { S }  for i' { T }`.
//! After: `S` and `T` are one group and have one variable for `i`; `lower::build_loops` makes one
//! nest: `for i { S T }`. In each iteration, the stages run in their order of computation.
//!
//! No stage of a group that `compute_with` makes depends on another one, so every interleaving
//! gives the same values, and the statements of each stage keep their order. [`check_groups`]
//! proves this for the stages, the check of the directive (`directives::compute_with`) for the
//! loops. `recurrence` says what holds for the stages of a recurrence.

use super::directives::compute_with::ComputeWith;
use super::reads::Reads;
use super::recurrence::{in_same_recurrence, step_loops};
use super::state::{Attach, Schedule, StageId};
use crate::diag::{Diag, Result, Span};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// A `compute_with`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedLoops {
    /// The stage that takes the loops of `host`.
    pub(super) guest: StageId,
    /// The stage whose loops they are.
    pub(super) host: StageId,
    /// The innermost shared loop, as an index into the leaves of both.
    pub(super) depth: usize,
    /// The directive, or the declaration of a stage of a recurrence.
    pub(super) span: Span,
    /// Whether the loops are the steps of a recurrence, and no `compute_with` stands there.
    pub(super) steps: bool,
}

/// Returns every `compute_with` between stages that are in the order, by their place in the text,
/// and the shared steps of recurrences. `check_annotations` refuses those of inlined stages
/// (E0379).
pub(super) fn shared_loops(schedule: &Schedule) -> Vec<SharedLoops> {
    let mut ordered = vec![false; schedule.stages.len()];
    schedule.order.iter().for_each(|id| ordered[id.0] = true);
    let mut all = Vec::new();
    for guest in schedule.order.iter().copied() {
        let Some((annotation, with)) = schedule.stage(guest).annotation::<ComputeWith>() else {
            continue;
        };
        if ordered[with.host.0] {
            let depth = schedule.stage(with.host).place_of(with.axis);
            let (host, span) = (with.host, annotation.span);
            all.push(SharedLoops { guest, host, depth, span, steps: false });
        }
    }
    all.extend(step_loops(schedule));
    all.sort_by_key(|shared| shared.span.start);
    all
}

/// Returns the stages that share at least the outermost loop with a stage, in order of computation;
/// the stage itself if none does.
pub fn group_of(schedule: &Schedule, id: StageId) -> Vec<StageId> {
    if shared_loops(schedule).is_empty() {
        return vec![id];
    }
    let all = fused_groups(schedule, &schedule.order, 0);
    all.into_iter().find(|group| group.contains(&id)).unwrap_or_else(|| vec![id])
}

/// Returns the parts of `stages` that share their loops down to the one at `depth`, each in order
/// of computation.
pub fn fused_groups(schedule: &Schedule, stages: &[StageId], depth: usize) -> Vec<Vec<StageId>> {
    // A stage leads to another one of its group, at last to the representative.
    let mut leads_to: Vec<usize> = (0..schedule.stages.len()).collect();
    let mut inside = vec![false; schedule.stages.len()];
    stages.iter().for_each(|id| inside[id.0] = true);
    for SharedLoops { guest, host, .. } in
        shared_loops(schedule).iter().filter(|shared| shared.depth >= depth)
    {
        if inside[guest.0] && inside[host.0] {
            let guest = representative(&mut leads_to, *guest);
            leads_to[guest] = representative(&mut leads_to, *host);
        }
    }
    let mut groups: Vec<Vec<StageId>> = Vec::new();
    let mut place = vec![None; schedule.stages.len()];
    for id in stages {
        let place = place[representative(&mut leads_to, *id)].get_or_insert(groups.len());
        match groups.get_mut(*place) {
            Some(group) => group.push(*id),
            None => groups.push(vec![*id]),
        }
    }
    let mut order = vec![0; schedule.stages.len()];
    schedule.order.iter().enumerate().for_each(|(at, id)| order[id.0] = at);
    groups.iter_mut().for_each(|group| group.sort_by_key(|id| order[id.0]));
    groups
}

/// Returns the stage that stands for the group of a stage (union-find with path halving).
fn representative(leads_to: &mut [usize], StageId(mut at): StageId) -> usize {
    while leads_to[at] != at {
        leads_to[at] = leads_to[leads_to[at]];
        at = leads_to[at];
    }
    at
}

/// Whether two stages share the loop at `depth`, and with it all loops around it.
pub(super) fn share_loop(schedule: &Schedule, a: StageId, b: StageId, depth: usize) -> bool {
    if a == b || shared_loops(schedule).is_empty() {
        return a == b;
    }
    let groups = fused_groups(schedule, &schedule.order, depth);
    groups.iter().any(|group| group.contains(&a) && group.contains(&b))
}

/// Checks that the stages of each group are computed at the same place (E0345) and that none
/// depends on another (E0346), moves them together in the order of computation, and gives the loops
/// that they share one variable.
pub(super) fn check_groups(schedule: &mut Schedule, reads: &Reads) -> Result<()> {
    let all = shared_loops(schedule);
    if all.is_empty() {
        return Ok(());
    }
    for shared in all.iter().filter(|shared| !shared.steps) {
        schedule.checked(check_place(schedule, shared))?;
        schedule.checked(check_dependence(schedule, reads, shared))?;
    }
    let order = order_groups(schedule, reads, &all);
    match order {
        Ok(order) => schedule.order = order,
        Err(diag) => schedule.checked(Err(diag))?,
    }
    share_variables(schedule, &all);
    Ok(())
}

/// Checks that both stages are computed at the same place (E0345).
fn check_place(schedule: &Schedule, shared: &SharedLoops) -> Result<()> {
    let (guest, host) = (schedule.stage(shared.guest), schedule.stage(shared.host));
    let place = |attach| match attach {
        Attach::At { stage, axis, .. } => Some((stage, axis)),
        _ => None,
    };
    if place(guest.attach) == place(host.attach) {
        return Ok(());
    }
    let (name, other) = (&guest.te.name, &host.te.name);
    let describe = |attach| match place(attach) {
        None => "at the root".to_string(),
        Some((stage, axis)) => {
            let stage = schedule.stage(stage);
            format!("in loop `{}` of `{}`", stage.axis(axis).name, stage.te.name)
        }
    };
    let (here, there) = (describe(guest.attach), describe(host.attach));
    let text = format!("`{name}` and `{other}` are not computed at the same place");
    let mut diag = Diag::new("E0345", shared.span, text)
        .note(format!("`{name}` is computed {here}, `{other}` {there}"));
    for attach in [guest.attach, host.attach] {
        if let Attach::At { span, .. } = attach {
            diag = diag.related(span, "attached here");
        }
    }
    let output = guest.te.output || host.te.output;
    Err(Box::new(match output {
        true => diag.help("compute both at the root: leave out the `compute_at`"),
        false => diag.help("attach both to the same loop, or compute both at the root"),
    }))
}

/// Checks that no stage of the group depends on another one (E0346).
fn check_dependence(schedule: &Schedule, reads: &Reads, shared: &SharedLoops) -> Result<()> {
    let group = group_of(schedule, shared.guest);
    let others = group.iter().filter(|id| **id != shared.guest);
    let pairs = others.flat_map(|id| [(*id, shared.guest), (shared.guest, *id)]);
    for (producer, reader) in pairs {
        let Some(path) = path_between(schedule, reads, producer, reader) else { continue };
        let name = |id: StageId| &schedule.stage(id).te.name;
        let (made, by) = (name(producer), name(reader));
        let between: Vec<String> =
            path[1..path.len() - 1].iter().map(|id| format!("`{}`", name(*id))).collect();
        let (text, note) = match between.is_empty() {
            true => (
                format!("`{by}` reads `{made}` and cannot share its loops"),
                format!("an iteration of `{by}` may read what a later one of `{made}` computes"),
            ),
            false => (
                format!("`{by}` depends on `{made}` and cannot share its loops"),
                format!("`{by}` reads `{made}` through {}", between.join(", ")),
            ),
        };
        let diag = Diag::new("E0346", shared.span, text).note(note);
        let output = schedule.stage(producer).te.output;
        let axis = schedule.stage(reader).leaves.first();
        let axis = axis.map_or("AXIS", |leaf| &schedule.stage(reader).axis(*leaf).name);
        return Err(Box::new(match (between.is_empty(), output) {
            (true, false) => diag.help(format!(
                "compute what an iteration reads inside it: `{made}.compute_at({by}, {axis})`"
            )),
            (true, true) => diag.help(format!(
                "leave it out: `{made}` is an output and is computed as a whole before `{by}`"
            )),
            (false, _) => diag.help("leave it out, or share the loops of independent stages"),
        }));
    }
    Ok(())
}

/// Returns the stages from a producer to a reader that depends on it, both included.
fn path_between(
    schedule: &Schedule,
    reads: &Reads,
    producer: StageId,
    reader: StageId,
) -> Option<Vec<StageId>> {
    let mut from: Vec<Option<StageId>> = vec![None; schedule.stages.len()];
    let mut queue = VecDeque::from([producer]);
    while let Some(id) = queue.pop_front() {
        for read in reads.of_stage(id) {
            if read.by == producer || from[read.by.0].is_some() {
                continue;
            }
            from[read.by.0] = Some(id);
            if read.by == reader {
                let mut path = vec![reader];
                while let Some(previous) = from[path[path.len() - 1].0] {
                    path.push(previous);
                }
                path.reverse();
                return Some(path);
            }
            queue.push_back(read.by);
        }
    }
    None
}

/// Returns the order of computation with the stages of each group next to each other. Refuses
/// groups that depend on each other (E0346).
fn order_groups(schedule: &Schedule, reads: &Reads, all: &[SharedLoops]) -> Result<Vec<StageId>> {
    let units = units_of(schedule);
    let numbered =
        units.iter().enumerate().flat_map(|(at, unit)| unit.iter().map(move |id| (*id, at)));
    let numbers: FxHashMap<StageId, usize> = numbered.collect();
    let unit_of = |id: StageId| numbers.get(&id).copied();
    let mut needs: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
    for (at, unit) in units.iter().enumerate() {
        let readers = unit.iter().flat_map(|id| reads.of_stage(*id)).map(|read| read.by);
        for reader in readers.filter_map(unit_of).filter(|reader| *reader != at) {
            needs[reader].push(at);
        }
    }
    let mut order: Vec<StageId> = Vec::new();
    let mut done = vec![false; units.len()];
    while order.len() < schedule.order.len() {
        let is_ready = |at: &usize| !done[*at] && needs[*at].iter().all(|need| done[*need]);
        let Some(next) = (0..units.len()).find(is_ready) else { break };
        done[next] = true;
        order.extend(&units[next]);
    }
    if order.len() == schedule.order.len() {
        return Ok(order);
    }
    // No group depends on itself, so the circle leads through two groups at least.
    let is_stuck = |shared: &&SharedLoops| unit_of(shared.guest).is_some_and(|at| !done[at]);
    let mut stuck = all.iter().filter(is_stuck);
    let (Some(first), Some(last)) = (stuck.next(), stuck.next_back()) else {
        crate::bug!("stages that depend on each other without `compute_with`")
    };
    let names = |shared: &SharedLoops| {
        let of = |id: StageId| &schedule.stage(id).te.name;
        format!("`{}` and `{}`", of(shared.host), of(shared.guest))
    };
    let text = format!("{} cannot share loops besides {}", names(last), names(first));
    Err(Box::new(
        Diag::new("E0346", last.span, text)
            .related(first.span, "these share loops")
            .note("each of the two nests reads what the other one computes")
            .help("leave out one of the two"),
    ))
}

/// Returns the groups, each with the stages of its recurrence that are attached to its steps: these
/// may read what an earlier stage of the group computes in the same step.
fn units_of(schedule: &Schedule) -> Vec<Vec<StageId>> {
    let mut units = fused_groups(schedule, &schedule.order, 0);
    let is_attached = |id: StageId| matches!(schedule.stage(id).attach, Attach::At { .. });
    let place = |id: &StageId| schedule.order.iter().position(|other| other == id);
    let mut inside = Vec::new();
    units.retain(|unit| {
        let te = &schedule.stage(unit[0]).te;
        let moves = is_attached(unit[0]) && te.recurrence.is_some();
        inside.extend(unit.iter().copied().filter(|_| moves));
        !moves
    });
    for id in inside {
        let te = &schedule.stage(id).te;
        let is_home =
            |unit: &&mut Vec<StageId>| in_same_recurrence(te, &schedule.stage(unit[0]).te);
        match units.iter_mut().find(is_home) {
            Some(unit) => unit.push(id),
            None => units.push(vec![id]),
        }
    }
    units.iter_mut().for_each(|unit| unit.sort_by_key(place));
    units.sort_by_key(|unit| place(&unit[0]));
    units
}

/// Gives the shared loops of each guest the variables of its host.
fn share_variables(schedule: &mut Schedule, all: &[SharedLoops]) {
    let hosts: FxHashMap<StageId, SharedLoops> =
        all.iter().map(|shared| (shared.guest, *shared)).collect();
    let mut done = FxHashSet::default();
    for shared in all {
        // A host takes the variables of its own host first.
        let mut chain = Vec::new();
        let mut next = Some(shared);
        while let Some(shared) = next.filter(|shared| done.insert(shared.guest)) {
            chain.push(*shared);
            next = hosts.get(&shared.host);
        }
        for SharedLoops { guest, host, depth, .. } in chain.into_iter().rev() {
            let host = schedule.stage(host);
            let leaves = host.leaves.iter().take(depth + 1);
            let vars: Vec<_> = leaves.map(|leaf| host.axis(*leaf).var.clone()).collect();
            let guest = schedule.stage_mut(guest);
            for (leaf, var) in guest.leaves.clone().into_iter().zip(vars) {
                guest.axis_mut(leaf).var = var;
            }
        }
    }
}
