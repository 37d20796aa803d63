//! Stages that directives add: their names, buffers and axes, and the reads that change with them.

use super::layout::Layout;
use super::recurrence::place_of_added;
use super::state::{Schedule, StageId};
use crate::diag::Span;
use crate::ir::visit::{Memo, map_children};
use crate::ir::{Buffer, Expr, ExprKind, Scope, Var};
use crate::te::{self, Axis, Body, Input};
use rustc_hash::FxHashMap;

/// Data axes named after a prefix: `ax0`, `ax1`, ….
pub(super) fn data_axes(prefix: &str, shape: &[Expr]) -> Vec<Axis> {
    let axis = |(at, extent): (usize, &Expr)| Axis {
        var: Var::index(format!("{prefix}{at}")),
        min: Expr::index(0),
        extent: extent.clone(),
    };
    shape.iter().enumerate().map(axis).collect()
}

/// Returns a load of an element, cast to its compute type.
pub(super) fn load(buffer: &Buffer, indices: Vec<Expr>) -> Expr {
    Expr::cast(buffer.dtype.compute_type(), Expr::load(buffer, indices))
}

/// Replaces the reads of buffers by reads of their copies, in the layout of the copy. A shared
/// expression is rewritten once.
pub(super) fn redirect(
    body: &mut Body,
    copies: &FxHashMap<Buffer, Buffer>,
    layout: Option<&Layout>,
) {
    fn visit(
        expr: &Expr,
        copies: &FxHashMap<Buffer, Buffer>,
        layout: Option<&Layout>,
        done: &mut Memo<Expr>,
    ) -> Expr {
        if let Some(done) = done.get(expr) {
            return done.clone();
        }
        let new = map_children(expr, &mut |child| visit(child, copies, layout, done));
        let new = match &new.kind {
            ExprKind::Load { buffer, indices, .. } if copies.contains_key(buffer) => {
                let indices = match layout {
                    Some(layout) => layout.places(indices),
                    None => indices.clone(),
                };
                Expr::load(&copies[buffer], indices)
            }
            _ => new,
        };
        done.insert(expr, new.clone());
        new
    }
    let mut done = Memo::default();
    body.map_exprs(&mut |expr| visit(expr, copies, layout, &mut done));
}

/// Gives a stage and its buffers unique names with a suffix, and the buffers the shape of its axes.
pub(super) fn rename(schedule: &Schedule, te: &mut te::Stage, suffix: &str, scope: Scope) {
    let shape: Vec<Expr> = te.axes.iter().map(|axis| axis.extent.clone()).collect();
    let free = |number: u32| {
        let suffix = match number {
            1 => suffix.to_string(),
            _ => format!("{suffix}_{number}"),
        };
        let names = te.buffers.iter().map(|buffer| &buffer.name).chain([&te.name]);
        let taken = |name: &String| schedule.find(&format!("{name}.{suffix}")).is_some();
        (!names.into_iter().any(taken)).then_some(suffix)
    };
    let suffix = (1..).find_map(free).expect("there are more numbers than stages");
    te.name = format!("{}.{suffix}", te.name);
    for buffer in &mut te.buffers {
        let name = format!("{}.{suffix}", buffer.name);
        *buffer = Buffer::new(name, buffer.dtype, shape.clone(), scope);
    }
}

/// Adds a stage to the order, immediately before `reader`.
pub(super) fn insert_stage(
    schedule: &mut Schedule,
    te: te::Stage,
    reader: StageId,
    span: Span,
) -> StageId {
    let attach = place_of_added(schedule, &te, reader);
    let id = schedule.add_stage(te, span);
    schedule.stage_mut(id).attach = attach;
    schedule.stage_mut(id).touched = true;
    let at = schedule.order.iter().position(|other| *other == reader);
    schedule.order.insert(at.expect("every stage is in the order"), id);
    id
}

/// Returns the name, numbered if it is taken.
pub(super) fn free_name(name: &str, taken: &[&str]) -> String {
    if !taken.contains(&name) {
        return name.to_string();
    }
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    numbered
        .into_iter()
        .find(|name| !taken.contains(&&name[..]))
        .expect("there are more numbers than axes")
}

/// Returns the name for a stage that a message proposes, numbered if the kernel or a `let` of the
/// schedule has it.
pub(super) fn proposed_name(schedule: &Schedule, name: &str) -> String {
    let graph = &schedule.graph;
    let stages = schedule.stages.iter().map(|stage| &stage.te.name[..]);
    let inputs = graph.inputs.iter().map(|input| match input {
        Input::Tensor { buffer, .. } => &buffer.name[..],
        Input::Scalar { var, .. } => var.name(),
    });
    let others = graph.aliases.iter().chain(&graph.consts).chain(&graph.params);
    let others = others.map(|(name, _)| &name[..]).chain(graph.vars.iter().map(Var::name));
    free_name(name, &stages.chain(inputs).chain(others).collect::<Vec<&str>>())
}
