//! `cache_read`: a new stage copies a tensor, and some of its readers read the copy.
//!
//! Before: `C[x] = sum(A[x, k], axis=k)`.
//! After `A.cache_read(local, [C])`: `A.local[ax0, ax1] = A[ax0, ax1]`, `C[x] = sum(A.local[x, k],
//! axis=k)`.
//!
//! The copy may have another type (`dtype=`), and each element a constant added (`offset=`), if
//! the reads get the same values from it.

use super::call::{Call, Value};
use super::set_scope::storage_scope;
use super::{ArgKind, Directive, Subject, Targets, optional, required};
use crate::diag::{Diag, Result, Span, closest};
use crate::ir::visit::walk_expr;
use crate::ir::{Buffer, DType, Expr, ExprKind};
use crate::schedule::converted_copy::{Conversion, redirect_converted};
use crate::schedule::derived_stage::{data_axes, insert_stage, load, redirect, rename};
use crate::schedule::layout::{Layout, parse_layout};
use crate::schedule::recurrence::in_same_recurrence;
use crate::schedule::state::{Schedule, Stage, StageId, Tensor};
use crate::te::{self, Axis, Body, Input, Recurrence};
use rustc_hash::FxHashMap;

/// `A.cache_read(SCOPE, [C, …], layout=[…], dtype=T, offset=c)`: the named readers read a copy of
/// `A`; all readers if none is named.
pub(super) static CACHE_READ: Directive = Directive {
    name: "cache_read",
    subject: Subject::Tensor,
    targets: Targets::All,
    params: &[
        required("scope", ArgKind::Scope),
        optional("readers", ArgKind::Stages),
        optional("layout", ArgKind::Exprs),
        optional("dtype", ArgKind::Word),
        optional("offset", ArgKind::Int),
    ],
    usage: "cache_read(global, [READER, …], layout=[ax1 // 16, ax0, ax1 % 16], dtype=int16)",
    run: cache_read,
    check: None,
};

fn cache_read(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let scope = storage_scope(schedule, call)?;
    let source = source_of(schedule, call.subject);
    let readers = readers_of(schedule, call, &source)?;
    let shape = source.buffers[0].shape.clone();
    let layout = match &call.args[2] {
        Some(_) => Some(parse_layout(schedule, (call, 2), &source.name, &source.axes, &shape)?),
        None => None,
    };
    let conversion = conversion_of(schedule, call, &source, &readers)?;
    let element = |buffer: &Buffer, indices: Vec<Expr>| match &conversion {
        Some(conversion) => conversion.element(load(buffer, indices)),
        None => load(buffer, indices),
    };
    let (axes, values) = match &layout {
        Some(layout) => copy_through(&source.buffers, layout, &element),
        None => copy_whole(&source.buffers, &shape, &element),
    };
    let recurrence = source.recurrence(schedule, &readers);
    let mut te = te::Stage {
        name: source.name,
        buffers: source.buffers.clone(),
        axes,
        body: Body::Map(values),
        output: false,
        recurrence,
        update: None,
        span: source.span,
        load_spans: Vec::new(),
    };
    if let Some(conversion) = &conversion {
        te.buffers = te.buffers.iter().map(|buffer| conversion.buffer(buffer)).collect();
    }
    rename(schedule, &mut te, scope.name(), scope);
    let copies: FxHashMap<Buffer, Buffer> =
        source.buffers.iter().cloned().zip(te.buffers.iter().cloned()).collect();
    for reader in &readers {
        let body = &mut schedule.stage_mut(*reader).te.body;
        match &conversion {
            Some(conversion) => redirect_converted(body, &copies, layout.as_ref(), conversion),
            None => redirect(body, &copies, layout.as_ref()),
        }
    }
    let place = |id: &StageId| schedule.order.iter().position(|other| other == id);
    let first = readers.iter().copied().min_by_key(place).expect("there are readers");
    let new = insert_stage(schedule, te, first, call.span);
    schedule.stage_mut(new).scope = Some(scope);
    Ok(vec![Value::Stage(new)])
}

impl Source {
    /// Returns the recurrence of a copy that stages of the same recurrence read.
    fn recurrence(&self, schedule: &Schedule, readers: &[StageId]) -> Option<Recurrence> {
        let of = schedule.stages.iter().find(|stage| stage.te.buffers == self.buffers)?;
        let mut readers = readers.iter().map(|reader| &schedule.stage(*reader).te);
        let inside = readers.any(|reader| in_same_recurrence(&of.te, reader));
        of.te.recurrence.as_ref().filter(|_| inside).map(Recurrence::of_added_stage)
    }
}

/// The tensor that is copied.
struct Source {
    /// Its name.
    name: String,
    /// One buffer, or one for each component of a tuple.
    buffers: Vec<Buffer>,
    /// The names of its axes in a layout, besides `ax0`, `ax1`, ….
    axes: Vec<String>,
    /// Its declaration.
    span: Span,
}

/// Returns the conversion that `dtype=` and `offset=` ask for, after checking that every read gets
/// the same value from the copy (E0397).
fn conversion_of(
    schedule: &Schedule,
    call: &Call,
    source: &Source,
    readers: &[StageId],
) -> Result<Option<Conversion>> {
    if call.args[3].is_none() && call.args[4].is_none() {
        return Ok(None);
    }
    let from = source.buffers[0].dtype;
    let refuse = |span: Span, text: String, help: String| -> Result<Option<Conversion>> {
        Err(Box::new(Diag::new("E0397", span, text).help(help)))
    };
    let name = &source.name;
    let word = call.word(3);
    let to = match word {
        Some(word) => DType::from_name(word).filter(|to| Conversion::is_element_type(*to)),
        None => Some(from),
    };
    let Some(to) = to else {
        let word = word.unwrap_or_default();
        let text = format!("a copy cannot have the type `{word}`");
        let types = DType::ALL.into_iter().filter(|to| Conversion::is_element_type(*to));
        let help = match closest(word, types.map(DType::name)) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "write an integer or a float type".to_string(),
        };
        return refuse(call.span_of(3), text, help);
    };
    if source.buffers.len() > 1 || !Conversion::is_element_type(from) {
        let what = if source.buffers.len() > 1 { "a tuple".to_string() } else { from.to_string() };
        let text = format!("the copy of `{name}` cannot have another type: `{name}` is {what}");
        return refuse(call.span, text, "leave out `dtype` and `offset`".to_string());
    }
    let conversion = Conversion { from, to, offset: call.int(4).unwrap_or(0).into() };
    if conversion.offset != 0 {
        if from.is_float() || to.is_float() {
            let text = format!("`offset` takes integers, but the copy of `{name}` is {to}");
            let text = if from.is_float() {
                format!("`offset` takes integers, but `{name}` is {from}")
            } else {
                text
            };
            return refuse(call.span_of(4), text, "leave out `offset`".to_string());
        }
        if !conversion.keeps_values() {
            let (low, high) = conversion.range();
            let text = format!("the elements of this copy are {low} to {high}, which {to} lacks");
            let help = format!("choose `dtype` and `offset` so that {to} has all of them");
            return refuse(call.span_of(4), text, help);
        }
    }
    let buffer = &source.buffers[0];
    for reader in readers {
        let te = &schedule.stage(*reader).te;
        let Some(read) = conversion.unsuitable_read(&te.body, buffer) else { continue };
        let text = format!("`{}` would read other values from a copy of `{name}` in {to}", te.name);
        let help = match read {
            Some(to) => format!("`{}` reads `{name}` as {to}: copy it as {to}", te.name),
            None => format!("choose a type that has all values of {from}"),
        };
        return refuse(call.span_of(3), text, help);
    }
    Ok(Some(conversion))
}

fn source_of(schedule: &Schedule, subject: Tensor) -> Source {
    match subject {
        Tensor::Stage(id) => {
            let te = &schedule.stage(id).te;
            let axes = te.axes.iter().map(|axis| axis.var.name().to_string()).collect();
            // Others read an argument that is updated in place as a whole.
            let buffers = match &te.update {
                Some(update) => vec![update.after.clone()],
                None => te.buffers.clone(),
            };
            Source { name: te.name.clone(), buffers, axes, span: te.span }
        }
        Tensor::Input(at) => {
            let Input::Tensor { buffer, span, .. } = &schedule.graph.inputs[at] else {
                crate::bug!("a scalar input is not a tensor")
            };
            let (name, buffers) = (buffer.name.clone(), vec![buffer.clone()]);
            Source { name, buffers, axes: Vec::new(), span: *span }
        }
    }
}

/// Returns the stages that will read the copy, each once (E0352).
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
        // After a `cache_write`, the new stage reads, not the named one.
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

/// Whether a stage reads one of the buffers.
fn reads(stage: &Stage, buffers: &[Buffer]) -> bool {
    let mut found = false;
    stage.te.body.for_each_expr(&mut |expr| {
        walk_expr(expr, &mut |e| {
            if let ExprKind::Load { buffer, .. } = &e.kind {
                found |= buffers.contains(buffer);
            }
        });
    });
    found
}

/// Returns the axes `ax0`, `ax1`, … and values of a copy in the layout of the source.
fn copy_whole(
    buffers: &[Buffer],
    shape: &[Expr],
    element: &dyn Fn(&Buffer, Vec<Expr>) -> Expr,
) -> (Vec<Axis>, Vec<Expr>) {
    let axes = data_axes("ax", shape);
    let indices: Vec<Expr> = axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    (axes, buffers.iter().map(|buffer| element(buffer, indices.clone())).collect())
}

/// Returns the axes `p0`, `p1`, … and values of a copy in another layout; padding is 0.
fn copy_through(
    buffers: &[Buffer],
    layout: &Layout,
    element: &dyn Fn(&Buffer, Vec<Expr>) -> Expr,
) -> (Vec<Axis>, Vec<Expr>) {
    let axes = data_axes("p", &layout.shape);
    let places: Vec<Expr> = axes.iter().map(|axis| Expr::var(&axis.var)).collect();
    let indices = layout.elements(&places);
    let inside = layout.inside(&places, &indices);
    let value = |buffer: &Buffer| {
        let value = element(buffer, indices.clone());
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
