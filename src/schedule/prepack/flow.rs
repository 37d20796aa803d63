//! Finds the root stages that, with everything attached to them, depend on one input only.

use super::{loads, tensor};
use crate::diag::{Diag, Result};
use crate::ir::visit::{NodeSet, walk_nodes};
use crate::ir::{Buffer, Var};
use crate::schedule::fused::group_of;
use crate::schedule::state::{Attach, Origin, Schedule, StageId};
use crate::te::{Body, Input};
use rustc_hash::{FxHashMap, FxHashSet};

/// The stages that depend on one input only.
pub(super) struct Packing {
    /// The stages.
    pub(super) stages: FxHashSet<StageId>,
    /// The only stage that other stages read.
    pub(super) last: StageId,
}

/// The tensors and scalars that each root stage and those attached to it read, in order of
/// computation.
pub(super) struct Flow {
    groups: Vec<Group>,
}

/// A root stage with everything attached to it.
struct Group {
    root: StageId,
    members: Vec<Member>,
}

struct Member {
    id: StageId,
    /// The tensors and scalars that it reads, as indices of the graph's inputs.
    inputs: FxHashSet<usize>,
    stages: FxHashSet<StageId>,
}

/// Returns the error E0554 at a stage; without a place if the compiler wrote the schedule.
pub(super) fn refuse(schedule: &Schedule, id: StageId, text: String) -> Diag {
    match schedule.origin == Origin::Auto {
        true => Diag::global("E0554", text),
        false => Diag::new("E0554", schedule.stage(id).span, text),
    }
}

impl Flow {
    pub(super) fn of(schedule: &Schedule) -> Flow {
        let mut scalars: FxHashMap<&Var, usize> = FxHashMap::default();
        let mut tensors: FxHashMap<&Buffer, usize> = FxHashMap::default();
        for (at, input) in schedule.graph.inputs.iter().enumerate() {
            match input {
                Input::Tensor { buffer, .. } => drop(tensors.insert(buffer, at)),
                Input::Scalar { var, .. } => drop(scalars.insert(var, at)),
            }
        }
        let mut producers: FxHashMap<&Buffer, StageId> = FxHashMap::default();
        for id in &schedule.order {
            producers.extend(schedule.stage(*id).te.buffers.iter().map(|buffer| (buffer, *id)));
        }
        let mut members: FxHashMap<StageId, Vec<Member>> = FxHashMap::default();
        // A consumer stands after the stages that are attached to it.
        let mut roots: FxHashMap<StageId, StageId> = FxHashMap::default();
        for id in schedule.order.iter().rev() {
            let root = match schedule.stage(*id).attach {
                Attach::At { stage, .. } => roots[&stage],
                // Stages that share loops are packed together.
                _ => *group_of(schedule, *id).last().expect("itself"),
            };
            roots.insert(*id, root);
        }
        for id in &schedule.order {
            let mut member =
                Member { id: *id, inputs: FxHashSet::default(), stages: FxHashSet::default() };
            let mut seen = NodeSet::default();
            schedule.stage(*id).te.body.for_each_expr(&mut |expr| {
                walk_nodes(expr, &mut seen, &mut |e| {
                    let tensor = loads(e).and_then(|buffer| tensors.get(buffer));
                    let scalar = e.as_var().and_then(|var| scalars.get(var));
                    member.inputs.extend(tensor.or(scalar));
                    member.stages.extend(loads(e).and_then(|buffer| producers.get(buffer)));
                });
            });
            members.entry(roots[id]).or_default().push(member);
        }
        let at_root = schedule.order.iter().filter(|id| roots[id] == **id);
        let group =
            |id: &StageId| Group { root: *id, members: members.remove(id).expect("itself") };
        Flow { groups: at_root.map(group).collect() }
    }

    /// Returns the stages that depend on `input` only, if no other stage reads it.
    pub(super) fn packing(&self, schedule: &Schedule, input: usize) -> Result<Packing> {
        let graph = &schedule.graph;
        let name = &tensor(graph, input).name;
        let mut alone: FxHashSet<StageId> = FxHashSet::default();
        for group in &self.groups {
            if group.depends_on_input_only(schedule, input, &alone) {
                alone.extend(group.members.iter().map(|member| member.id));
            }
        }
        let (mut used, mut last) = (false, Vec::new());
        for group in &self.groups {
            used |= group.reader(input).is_some();
            if alone.contains(&group.root) {
                continue;
            }
            if let Some(reader) = group.reader(input) {
                return Err(self.explain(schedule, input, reader, &alone));
            }
            for id in group.members.iter().flat_map(|member| &member.stages) {
                if alone.contains(id) && !last.contains(id) {
                    last.push(*id);
                }
            }
        }
        last.sort_unstable();
        match last[..] {
            [last] => Ok(Packing { stages: alone, last }),
            _ if !used => {
                let text = format!("`{}` does not read `{name}`", graph.name);
                Err(Box::new(Diag::global("E0554", text)))
            }
            [] => crate::bug!("no stage reads the tensors computed from {name}"),
            [first, ..] => {
                let names = last.iter().map(|id| format!("`{}`", schedule.stage(*id).te.name));
                let names: Vec<String> = names.collect();
                let text = format!("more than one tensor is computed from `{name}` alone");
                let note = format!("the rest of the kernel reads {}", names.join(", "));
                let help = format!("pack `{name}` once for all its readers");
                Err(Box::new(refuse(schedule, first, text).note(note).help(help)))
            }
        }
    }

    /// Returns the error for `reader`, a stage that reads the input and cannot be prepacked.
    fn explain(
        &self,
        schedule: &Schedule,
        input: usize,
        reader: &Member,
        alone: &FxHashSet<StageId>,
    ) -> Box<Diag> {
        let graph = &schedule.graph;
        let input_name = |at: &usize| match &graph.inputs[*at] {
            Input::Tensor { buffer, .. } => format!("`{}`", buffer.name),
            Input::Scalar { var, .. } => format!("`{}`", var.name()),
        };
        let (name, stage) = (&tensor(graph, input).name, schedule.stage(reader.id));
        let (read, is_map) = (&stage.te.name, matches!(stage.te.body, Body::Map(_)));
        let mut others: Vec<usize> =
            reader.inputs.iter().copied().filter(|at| *at != input).collect();
        others.sort_unstable();
        let mut others: Vec<String> = others.iter().map(input_name).collect();
        let mut stages: Vec<StageId> = reader.stages.difference(alone).copied().collect();
        stages.sort_unstable();
        others.extend(stages.iter().map(|id| format!("`{}`", schedule.stage(*id).te.name)));
        let group = group_of(schedule, reader.id);
        let partner = group.iter().find(|id| **id != reader.id);
        let diag = match stage.attach {
            Attach::Root if partner.is_some() && others.is_empty() => {
                let partner = partner.map_or("", |id| &schedule.stage(*id).te.name);
                let text = format!("`{read}`, a copy of `{name}`, shares loops with `{partner}`");
                refuse(schedule, reader.id, text)
                    .note("a prepacked tensor is computed as a whole, before the call")
                    .help("leave out the `compute_with`")
            }
            Attach::At { stage: consumer, span, .. } if others.is_empty() => {
                let consumer = &schedule.stage(consumer).te.name;
                let text =
                    format!("`{read}`, a copy of `{name}`, is made in a loop of `{consumer}`");
                let diag = refuse(schedule, reader.id, text)
                    .note("a prepacked tensor is computed as a whole, before the call");
                let diag = diag.help(format!("leave out `{read}.compute_at`"));
                if schedule.origin == Origin::Auto {
                    diag
                } else {
                    diag.related(span, "attached here")
                }
            }
            _ if is_map && !stage.te.output && !others.is_empty() => {
                let others = others.join(", ");
                let text = format!("`{read}` is computed from `{name}` and also from {others}");
                refuse(schedule, reader.id, text)
                    .note(format!("`{name}` is packed before the other arguments are known"))
            }
            _ => {
                let text = format!("the schedule of `{}` does not pack `{name}`", graph.name);
                let help = match schedule.origin == Origin::Auto {
                    true => "choose one that does with `--schedule NAME`".to_string(),
                    false => format!("copy it first: `let Packed = {name}.cache_read(global)`"),
                };
                refuse(schedule, reader.id, text)
                    .note(format!("`{read}` reads `{name}` as the caller passes it"))
                    .help(help)
            }
        };
        match alone.iter().min() {
            Some(id) => {
                let packed = &schedule.stage(*id).te.name;
                Box::new(diag.note(format!("`{packed}` is computed from `{name}` alone")))
            }
            None => Box::new(diag),
        }
    }
}

impl Group {
    /// Whether it reads only `input` and stages that depend on it only, and has no output.
    fn depends_on_input_only(
        &self,
        schedule: &Schedule,
        input: usize,
        alone: &FxHashSet<StageId>,
    ) -> bool {
        let own = |id: &StageId| self.members.iter().any(|member| member.id == *id);
        let fits = |member: &Member| {
            let output = schedule.stage(member.id).te.output;
            let inputs = member.inputs.iter().all(|at| *at == input);
            let stages = member.stages.iter().all(|id| alone.contains(id) || own(id));
            !output && inputs && stages
        };
        let reads = |member: &Member| {
            !member.inputs.is_empty() || member.stages.iter().any(|id| alone.contains(id))
        };
        self.members.iter().all(fits) && self.members.iter().any(reads)
    }

    /// Returns the first stage that reads an input.
    fn reader(&self, input: usize) -> Option<&Member> {
        self.members.iter().find(|member| member.inputs.contains(&input))
    }
}
