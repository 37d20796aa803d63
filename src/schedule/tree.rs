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
use super::phases::BoundedSchedule;
use super::state::{Annotation, Attach, AxisKind, Stage, StageId};
use crate::ir::print::print_expr;
use crate::ir::{ExprKind, UnOp};

/// Prints the tree of a kernel's stages in order of computation, inlined ones at the end.
pub fn print_tree(bounded: &BoundedSchedule) -> String {
    let schedule = &bounded.schedule;
    let mut out = String::new();
    for id in schedule.order.iter().filter(|id| schedule.stage(**id).attach == Attach::Root) {
        out.push_str(&format!("{}\n", head(bounded, *id)));
        draw(&loops(bounded, *id, None), "", &mut out);
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

/// The lines inside a loop of a stage, or around all its loops: attached stages, then the next
/// loop.
fn loops(bounded: &BoundedSchedule, id: StageId, depth: Option<usize>) -> Vec<Node> {
    let schedule = &bounded.schedule;
    let stage = schedule.stage(id);
    let mut nodes = Vec::new();
    for other in schedule.order.iter().copied() {
        let Attach::At { stage: consumer, axis, .. } = schedule.stage(other).attach else {
            continue;
        };
        if consumer == id && attach_depth(stage, axis) == depth {
            let inside = loops(bounded, other, None);
            nodes.push(Node { line: head(bounded, other), inside });
        }
    }
    let next = depth.map_or(0, |depth| depth + 1);
    if next < stage.leaves.len() {
        let inside = loops(bounded, id, Some(next));
        nodes.push(Node { line: loop_line(bounded, id, stage, next), inside });
    }
    nodes
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
        let cond = match &guard.cond.kind {
            ExprKind::Unary(UnOp::Likely, cond) => cond,
            _ => &guard.cond,
        };
        line.push_str(&format!(", if {}", print_expr(cond)));
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
