//! `tec lower --schedule-tree`: the stages with their loops and attached stages.
//!
//! ```text
//! C: output float32[64, 64]
//! └─ parallel xy 4
//!    ├─ C.local: float32[32, 32], local
//!    │  └─ for ko 16, reduction
//!    │     └─ for x 32
//!    │        └─ vectorized y 32
//!    └─ for xi 32
//!       └─ for yi 32
//! ```

use super::bounds::attach_depth;
use super::fused::{fused_groups, group_of};
use super::phases::BoundedSchedule;
use super::sliding::{StoragePlace, storage_place};
use super::state::{Annotation, Attach, AxisKind, Stage, StageId};
use super::versions::Version;
use crate::ir::print::print_expr;

/// Prints the tree of a kernel's stages in order of computation, inlined ones at the end. If the
/// schedule has versions, each tree follows its condition.
pub fn print_tree(bounded: &BoundedSchedule) -> String {
    let mut out = String::new();
    for Version { cond, of } in &bounded.versions {
        out.push_str(&format!("if {}:\n{}\n", print_expr(cond), print_tree(of)));
    }
    if !bounded.versions.is_empty() {
        out.push_str("else:\n");
    }
    let schedule = &bounded.schedule;
    let is_at_root = |id: &&StageId| storage_place(schedule, **id) == Some(StoragePlace::Root);
    for id in schedule.order.iter().filter(is_at_root) {
        out.push_str(&format!("{}\n", buffer_of(bounded, *id)));
    }
    for id in schedule.order.iter().filter(|id| schedule.stage(**id).attach == Attach::Root) {
        if let Some(group) = group_ending_with(bounded, *id) {
            out.push_str(&format!("{}\n", heads(bounded, &group)));
            draw(&inside(bounded, &group, None), "", &mut out);
        }
    }
    for stage in &schedule.stages {
        if matches!(stage.attach, Attach::Inline { .. }) {
            out.push_str(&format!("{}: inlined\n", stage.te.name));
        }
    }
    out
}

/// A line and the lines below it.
struct Node {
    line: String,
    inside: Vec<Node>,
}

/// `C.local: float32[32, 32], local`.
fn head(bounded: &BoundedSchedule, id: StageId) -> String {
    let stage = bounded.schedule.stage(id);
    let bounds = bounded.of(id);
    let shape: Vec<String> = bounds.shape.iter().map(print_expr).collect();
    let output = if stage.te.output { "output " } else { "" };
    let scope = match stage.scope {
        Some(scope) if !stage.te.output => format!(", {}", scope.name()),
        _ => String::new(),
    };
    let types: Vec<&str> = stage.te.buffers.iter().map(|buffer| buffer.dtype.name()).collect();
    let name = &stage.te.name;
    format!("{name}: {output}{}[{}]{scope}", types.join(", "), shape.join(", "))
}

/// Returns the line of a buffer that is outside of the loop in which its stage is computed:
/// `B: buffer float32[4, 258], y at y % 4`.
fn buffer_of(bounded: &BoundedSchedule, id: StageId) -> String {
    let (stage, storage) = (bounded.schedule.stage(id), &bounded.of(id).storage);
    let shape: Vec<String> = storage.shape.iter().map(print_expr).collect();
    let types: Vec<&str> = stage.te.buffers.iter().map(|buffer| buffer.dtype.name()).collect();
    let mut line = format!("{}: buffer {}[{}]", stage.te.name, types.join(", "), shape.join(", "));
    if let Some(ring) = storage.ring {
        let axis = stage.te.axes[ring.dim].var.name();
        line.push_str(&format!(", {axis} at {axis} % {}", ring.extent));
    }
    line
}

/// Returns the stages that share loops with a stage, if it is the last of them.
fn group_ending_with(bounded: &BoundedSchedule, id: StageId) -> Option<Vec<StageId>> {
    let group = group_of(&bounded.schedule, id);
    (group.last() == Some(&id)).then_some(group)
}

/// Returns the line of stages that share loops: `Low: output float32[8]; High: output float32[8]`.
fn heads(bounded: &BoundedSchedule, group: &[StageId]) -> String {
    let heads: Vec<String> = group.iter().map(|id| head(bounded, *id)).collect();
    heads.join("; ")
}

/// Returns the lines inside a loop that `group` shares, or around all its loops: attached stages,
/// then the next loops.
fn inside(bounded: &BoundedSchedule, group: &[StageId], depth: Option<usize>) -> Vec<Node> {
    let schedule = &bounded.schedule;
    let mut nodes = Vec::new();
    for other in schedule.order.iter().copied() {
        let Attach::At { stage: consumer, axis, .. } = schedule.stage(other).attach else {
            continue;
        };
        let here = attach_depth(schedule.stage(consumer), axis) == depth;
        if here
            && group.contains(&consumer)
            && let Some(others) = group_ending_with(bounded, other)
        {
            let inside = inside(bounded, &others, None);
            nodes.push(Node { line: heads(bounded, &others), inside });
        }
    }
    let is_here = |id: &&StageId| {
        let place = storage_place(schedule, **id);
        matches!(place, Some(StoragePlace::In(host, at)) if group.contains(&host) && at == depth)
    };
    let buffers = schedule.order.iter().filter(is_here);
    nodes
        .splice(0..0, buffers.map(|id| Node { line: buffer_of(bounded, *id), inside: Vec::new() }));
    nodes.extend(loops(bounded, group, depth.map_or(0, |depth| depth + 1)));
    nodes
}

/// Returns the loops of stages from the one at `at` inwards; those that they do not share stand
/// below the name of their stage.
fn loops(bounded: &BoundedSchedule, group: &[StageId], at: usize) -> Vec<Node> {
    let schedule = &bounded.schedule;
    let line = |id: StageId| loop_line(bounded, id, schedule.stage(id), at);
    if let [id] = group {
        let ends = at == schedule.stage(*id).leaves.len();
        let node = || Node { line: line(*id), inside: inside(bounded, group, Some(at)) };
        return if ends { Vec::new() } else { vec![node()] };
    }
    let parts = fused_groups(schedule, group, at).into_iter().map(|part| match part[..] {
        [id] => {
            let name = schedule.stage(id).te.name.clone();
            Node { line: name, inside: loops(bounded, &[id], at) }
        }
        _ => Node { line: line(part[0]), inside: inside(bounded, &part, Some(at)) },
    });
    parts.collect()
}

/// `parallel xo 13, if xo*8 + xi < 100`.
fn loop_line(bounded: &BoundedSchedule, id: StageId, stage: &Stage, at: usize) -> String {
    let leaf = stage.leaves[at];
    let axis = stage.axis(leaf);
    let bounds = bounded.of(id);
    let kind = match axis.annotation {
        None => "for",
        Some((Annotation::Unroll, _)) => "unrolled",
        Some((Annotation::Vectorize, _)) => "vectorized",
        Some((Annotation::Parallel, _)) => "parallel",
        Some((Annotation::Thread(index), _)) => index.name(),
    };
    let mut line = format!("{kind} {} {}", axis.name, print_expr(&bounds.extents[leaf.0]));
    if axis.kind == AxisKind::Reduce {
        line.push_str(", reduction");
    }
    for guard in bounds.guards.iter().filter(|guard| guard.depth == Some(at)) {
        line.push_str(&format!(", if {}", guard.text()));
    }
    line
}

/// Draws lines with the branches of the tree.
fn draw(nodes: &[Node], indent: &str, out: &mut String) {
    for (at, node) in nodes.iter().enumerate() {
        let last = at + 1 == nodes.len();
        let (branch, rest) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        out.push_str(&format!("{indent}{branch}{}\n", node.line));
        draw(&node.inside, &format!("{indent}{rest}"), out);
    }
}
