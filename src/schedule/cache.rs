//! Directives that copy: `cache_write` computes a stage elsewhere and leaves a copy, `cache_read`
//! copies what some readers read, `set_scope` says where a stage is stored.
//!
//! Before: `C[x] = sum(A[x, k], axis=k)`.
//! After `C.cache_write(local)`: `C.local[x] = sum(A[x, k], axis=k)`, `C[x] = C.local[x]`.
//! After `A.cache_read(local, [C])`: `A.local[ax0, ax1] = A[ax0, ax1]`, `C[x] = sum(A.local[x, k],
//! axis=k)`.

use super::directives::{Call, Value};
use super::layout::{Layout, parse_layout};
use super::state::{AxisId, AxisKind, Schedule, Stage, StageId, Tensor};
use crate::diag::{Diag, Result, Span};
use crate::ir::visit::{Memo, NodeSet, for_each_load, map_children, substitute};
use crate::ir::{Buffer, DType, Expr, ExprKind, Scope, Var};
use crate::te::{self, Axis, Body, Input};
use rustc_hash::FxHashMap;

/// `C.cache_write(SCOPE)`: a new stage takes what `C` computes, `C` copies it.
pub fn cache_write(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let id = call.stage();
    let scope = storage_scope(schedule, call)?;
    check_untouched(schedule, call)?;
    let mut te = schedule.stage(id).te.clone();
    let layout = write_layout(schedule, call, &te)?;
    te.output = false;
    if let Some(layout) = &layout {
        te = lay_out(te, layout);
    }
    rename(schedule, &mut te, scope.name(), scope);
    let buffers = te.buffers.clone();
    let new = insert_stage(schedule, te, id, call.span);
    schedule.stage_mut(new).scope = Some(scope);
    let stage = schedule.stage_mut(id);
    let indices: Vec<Expr> = stage.te.axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let places = layout.map_or(indices.clone(), |layout| layout.places(&indices));
    stage.te.body = Body::Map(buffers.iter().map(|b| load(b, places.clone())).collect());
    // No directive has made axes yet, so those of the reduction are the last.
    stage.axes.truncate(stage.te.axes.len());
    stage.leaves.retain(|leaf| leaf.0 < stage.te.axes.len());
    stage.computed_by = Some(new);
    stage.touched = true;
    Ok(vec![Value::Stage(new)])
}

/// The layout of `C.cache_write(SCOPE, layout=[…])`, which leaves no place without an element.
fn write_layout(schedule: &Schedule, call: &Call, te: &te::Stage) -> Result<Option<Layout>> {
    if call.args[1].is_none() {
        return Ok(None);
    }
    let axes: Vec<String> = te.axes.iter().map(|axis| axis.var.name().to_string()).collect();
    let shape: Vec<Expr> = te.axes.iter().map(|axis| axis.extent.clone()).collect();
    let layout = parse_layout(schedule, (call, 1), &te.name, &axes, &shape)?;
    let places: Vec<Expr> =
        data_axes("p", &layout.shape).iter().map(|axis| Expr::var(&axis.var)).collect();
    if layout.inside(&places, &layout.elements(&places)).is_some() {
        let text = format!("the layout has places without an element of `{}`", te.name);
        return Err(Box::new(
            Diag::new("E0353", call.span_of(1), text)
                .note("what is computed there would be no element")
                .help("take divisors of the extents"),
        ));
    }
    Ok(Some(layout))
}

/// The stage that computes the same elements place by place, axes `p0`, `p1`, ….
fn lay_out(te: te::Stage, layout: &Layout) -> te::Stage {
    let axes = data_axes("p", &layout.shape);
    let places: Vec<Expr> = axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let elements = layout.elements(&places);
    let mut body = te.body.clone();
    body.map_exprs(&mut |expr| {
        substitute(expr, &mut |var| {
            let at = te.axes.iter().position(|axis| axis.var == *var)?;
            Some(elements[at].clone())
        })
    });
    te::Stage { axes, body, ..te }
}

/// `A.cache_read(SCOPE, [C, …], layout=[…])`: the readers read a copy. All that read `A` if none
/// are named.
pub fn cache_read(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let scope = storage_scope(schedule, call)?;
    let source = source_of(schedule, call.subject);
    let readers = readers_of(schedule, call, &source)?;
    let shape = source.buffers[0].shape.clone();
    let layout = match &call.args[2] {
        Some(_) => Some(parse_layout(schedule, (call, 2), &source.name, &source.axes, &shape)?),
        None => None,
    };
    let (axes, values) = match &layout {
        Some(layout) => copy_through(&source.buffers, layout),
        None => copy_whole(&source.buffers, &shape),
    };
    let mut te = te::Stage {
        name: source.name,
        buffers: source.buffers.clone(),
        axes,
        body: Body::Map(values),
        output: false,
        span: source.span,
        load_spans: Vec::new(),
    };
    rename(schedule, &mut te, scope.name(), scope);
    let copies: FxHashMap<Buffer, Buffer> =
        source.buffers.iter().cloned().zip(te.buffers.iter().cloned()).collect();
    for reader in &readers {
        let body = &mut schedule.stage_mut(*reader).te.body;
        redirect(body, &copies, layout.as_ref());
    }
    let place = |id: &StageId| schedule.order.iter().position(|other| other == id);
    let first = readers.iter().copied().min_by_key(place).expect("there are readers");
    let new = insert_stage(schedule, te, first, call.span);
    schedule.stage_mut(new).scope = Some(scope);
    Ok(vec![Value::Stage(new)])
}

/// `S.set_scope(SCOPE)`: where the elements of `S` are stored.
pub fn set_scope(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let scope = storage_scope(schedule, call)?;
    let stage = schedule.stage_mut(call.stage());
    if stage.te.output {
        let name = &stage.te.name;
        let text = format!("`{name}` is an output, and an output is stored by the caller");
        return Err(Box::new(
            Diag::new("E0350", call.span, text)
                .help(format!("store a copy there: `let L = {name}.cache_write(local)`")),
        ));
    }
    stage.scope = Some(scope);
    stage.touched = true;
    Ok(Vec::new())
}

/// The scope that the first argument names.
fn storage_scope(schedule: &Schedule, call: &Call) -> Result<Scope> {
    let Some(Value::Scope(scope)) = call.value(0) else { crate::bug!("no scope") };
    match scope {
        Scope::Shared if !schedule.target.is_gpu() => {
            let text = format!(
                "`shared` is the memory of a GPU's blocks, and {} is a CPU",
                schedule.target
            );
            Err(Box::new(
                Diag::new("E0350", call.span_of(0), text).help("write `local` or `global`"),
            ))
        }
        scope => Ok(*scope),
    }
}

/// The new stage takes the loops with their names as they were declared, so `C` has no others.
fn check_untouched(schedule: &Schedule, call: &Call) -> Result<()> {
    let stage = schedule.stage(call.stage());
    let name = &stage.te.name;
    let declared = stage.leaves.iter().enumerate().all(|(at, leaf)| at == leaf.0);
    let replaced = stage.axes.iter().find_map(|axis| axis.replaced);
    let annotation = stage.axes.iter().find_map(|axis| axis.annotation);
    let attached = stage.axes.iter().find_map(|axis| axis.attached);
    let used = stage.axes.iter().find_map(|axis| axis.used);
    let (what, place) = match (replaced.or(used), annotation, attached) {
        (Some((directive, place)), ..) => (directive, Some(place)),
        (None, Some((annotation, place)), _) => (annotation.name(), Some(place)),
        (None, None, Some(place)) => ("compute_at", Some(place)),
        _ if !declared => ("reorder", stage.moved),
        _ => return Ok(()),
    };
    let text = format!("the loops of `{name}` were changed before `cache_write`");
    let diag = Diag::new("E0351", call.span, text)
        .note(format!("the new stage takes the loops of `{name}` as they were declared"))
        .help("write `cache_write` first, then schedule the two stages one by one");
    Err(Box::new(match place {
        Some(place) => diag.related(place, format!("`{what}` here")),
        None => diag,
    }))
}

/// What is copied.
struct Source {
    /// Its name.
    name: String,
    /// One, or a component of a tuple each.
    buffers: Vec<Buffer>,
    /// The names that its axes have in a layout, besides `ax0`, `ax1`, ….
    axes: Vec<String>,
    /// Its declaration.
    span: Span,
}

fn source_of(schedule: &Schedule, subject: Tensor) -> Source {
    match subject {
        Tensor::Stage(id) => {
            let te = &schedule.stage(id).te;
            let axes = te.axes.iter().map(|axis| axis.var.name().to_string()).collect();
            Source { name: te.name.clone(), buffers: te.buffers.clone(), axes, span: te.span }
        }
        Tensor::Input(at) => {
            let Input::Tensor { buffer, span, .. } = &schedule.graph.inputs[at] else {
                crate::bug!("a scalar input is no tensor")
            };
            let (name, buffers) = (buffer.name.clone(), vec![buffer.clone()]);
            Source { name, buffers, axes: Vec::new(), span: *span }
        }
    }
}

/// The stages whose loads change, each once.
fn readers_of(schedule: &Schedule, call: &Call, source: &Source) -> Result<Vec<StageId>> {
    let reader = |id: &StageId| reads(schedule.stage(*id), &source.buffers);
    let all: Vec<StageId> = schedule.order.iter().copied().filter(reader).collect();
    let name = &source.name;
    let none = |text: String, span: Span| {
        let names: Vec<String> =
            all.iter().map(|id| format!("`{}`", schedule.stage(*id).te.name)).collect();
        let diag = Diag::new("E0352", span, text);
        Box::new(match &names[..] {
            [] => diag.note(format!("no stage reads `{name}`")),
            names => diag.note(format!("`{name}` is read by {}", names.join(", "))),
        })
    };
    if call.args[1].is_none() && !all.is_empty() {
        return Ok(all);
    }
    if call.list(1).is_empty() {
        return Err(none(format!("this copy of `{name}` has no reader"), call.span_of(1)));
    }
    let mut readers = Vec::new();
    for argument in call.list(1) {
        let Value::Stage(named) = argument.value else { crate::bug!("a reader is a stage") };
        // Of a stage with `cache_write`, the reader is the one that computes.
        let mut reader = Some(named);
        while let Some(id) = reader.filter(|id| !all.contains(id)) {
            reader = schedule.stage(id).computed_by;
        }
        let Some(reader) = reader else {
            let text = format!("`{}` does not read `{name}`", schedule.stage(named).te.name);
            return Err(none(text, argument.span));
        };
        if !readers.contains(&reader) {
            readers.push(reader);
        }
    }
    Ok(readers)
}

fn reads(stage: &Stage, buffers: &[Buffer]) -> bool {
    let (mut found, mut seen) = (false, NodeSet::default());
    stage.te.body.for_each_expr(&mut |expr| {
        for_each_load(expr, &mut seen, &mut |buffer, _, _| found |= buffers.contains(buffer));
    });
    found
}

/// Element by element, axes `ax0`, `ax1`, ….
fn copy_whole(buffers: &[Buffer], shape: &[Expr]) -> (Vec<Axis>, Vec<Expr>) {
    let axes = data_axes("ax", shape);
    let indices: Vec<Expr> = axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    (axes, buffers.iter().map(|buffer| load(buffer, indices.clone())).collect())
}

/// Place by place, axes `p0`, `p1`, …; 0 where no element stands.
fn copy_through(buffers: &[Buffer], layout: &Layout) -> (Vec<Axis>, Vec<Expr>) {
    let axes = data_axes("p", &layout.shape);
    let places: Vec<Expr> = axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let indices = layout.elements(&places);
    let inside = layout.inside(&places, &indices);
    let value = |buffer: &Buffer| {
        let value = load(buffer, indices.clone());
        match &inside {
            Some(inside) => {
                let zero = match value.ty.dtype {
                    DType::Bool => Expr::bool(false),
                    dtype if dtype.is_float() => Expr::float(dtype, 0.0),
                    dtype => Expr::int(dtype, 0),
                };
                Expr::if_then_else(inside.clone(), value, zero)
            }
            None => value,
        }
    };
    (axes, buffers.iter().map(value).collect())
}

fn data_axes(prefix: &str, shape: &[Expr]) -> Vec<Axis> {
    let axis = |(at, extent): (usize, &Expr)| Axis {
        var: Var::index(format!("{prefix}{at}")),
        min: Expr::index(0),
        extent: extent.clone(),
    };
    shape.iter().enumerate().map(axis).collect()
}

/// An element in its compute type.
pub(super) fn load(buffer: &Buffer, indices: Vec<Expr>) -> Expr {
    Expr::cast(buffer.dtype.compute_type(), Expr::load(buffer, indices))
}

/// Reads the copies instead of the source. An expression that stands in several places is
/// rewritten once.
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
    // The old expressions stay alive until the end, so that no address is used twice.
    let old = body.clone();
    body.map_exprs(&mut |expr| visit(expr, copies, layout, &mut done));
    drop(old);
}

/// Gives a stage and its buffers names of their own, and buffers as large as its axes.
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

/// Adds a stage that is computed before `reader`.
pub(super) fn insert_stage(
    schedule: &mut Schedule,
    te: te::Stage,
    reader: StageId,
    span: Span,
) -> StageId {
    let id = schedule.add_stage(te, span);
    schedule.stage_mut(id).touched = true;
    let at = schedule.order.iter().position(|other| *other == reader);
    schedule.order.insert(at.expect("every stage is in the order"), id);
    id
}

/// The loops of terms, outermost first.
pub(super) fn reduce_leaves(stage: &Stage) -> Vec<AxisId> {
    let reduce = |leaf: &AxisId| stage.axis(*leaf).kind == AxisKind::Reduce;
    stage.leaves.iter().copied().filter(reduce).collect()
}
