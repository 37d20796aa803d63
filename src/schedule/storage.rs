//! Directives about the memory of a stage: `storage_align`, `double_buffer`, `pipeline`,
//! `store_nontemporal`, and what a schedule as a whole must fulfil for them.

use super::bounds::{Reads, attach_depth};
use super::directives::{Call, Value};
use super::legality::Point;
use super::state::{Annotation, Attach, Schedule, Stage, StageId, StorageAlign};
use crate::diag::{Diag, Result, Span};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::{BinOp, Expr, Scope};
use crate::te::Body;

/// The most stages of a pipeline.
const MAX_STAGES: u32 = 16;

/// The first GPUs with `cp.async`, as compute capability times 10.
const COPIES_FROM: u32 = 80;

/// The largest `factor` of `storage_align`: a row grows by less than this.
const MAX_ALIGN: i64 = 1 << 16;

/// `S.storage_align(i, factor, offset)`: in the buffer of `S`, the stride of the dimension of data
/// axis `i` is `offset` modulo `factor`, the smallest that fits.
pub fn storage_align(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    let axis = call.axis(0);
    let name = &stage.te.name;
    if stage.te.output {
        let text = format!("`{name}` is an output, its caller lays it out");
        return Err(Box::new(
            Diag::new("E0371", call.span, text)
                .help(format!("align a copy: `let L = {name}.cache_write(local)`")),
        ));
    }
    if axis.0 >= stage.rank() {
        let axis = &stage.axis(axis).name;
        let text = format!("`{axis}` is no dimension of `{name}`");
        let axes: Vec<String> =
            stage.te.axes.iter().map(|a| format!("`{}`", a.var.name())).collect();
        let note = match &axes[..] {
            [] => format!("`{name}` is a single element"),
            axes => format!("the dimensions of `{name}` are those of {}", axes.join(", ")),
        };
        return Err(Box::new(
            Diag::new("E0371", call.span_of(0), text)
                .note(note)
                .help("align a dimension before its axis is split or fused"),
        ));
    }
    let (factor, offset) = (call.int(1).unwrap_or(1), call.int(2).unwrap_or(0));
    if !(1..=MAX_ALIGN).contains(&factor) {
        let text = format!("a factor of {factor} is not from 1 to {MAX_ALIGN}");
        return Err(Box::new(Diag::new("E0370", call.span_of(1), text)));
    }
    if !(0..factor).contains(&offset) {
        let text = format!("an offset of {offset} is not from 0 to {}", factor - 1);
        return Err(Box::new(
            Diag::new("E0370", call.span_of(2), text)
                .note(format!("a stride modulo {factor} is one of these")),
        ));
    }
    stage.aligns.retain(|old| old.axis != axis);
    stage.aligns.push(StorageAlign { axis, factor, offset, span: call.span });
    stage.touched = true;
    Ok(Vec::new())
}

/// `S.double_buffer()`: the buffer of `S` has two halves, and each iteration of the loop that `S`
/// is attached to computes what the next one reads.
pub fn double_buffer(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    stage.double_buffer = Some(call.span);
    stage.touched = true;
    Ok(Vec::new())
}

/// `S.store_nontemporal()`: a hint that nobody reads what `S` stores soon, so that it need not take
/// the place of something else in the caches.
pub fn store_nontemporal(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let stage = schedule.stage_mut(call.stage());
    stage.nontemporal = Some(call.span);
    stage.touched = true;
    Ok(Vec::new())
}

/// `S.pipeline(i, stages)`: what is computed in loop `i` of `S` for shared memory is copied
/// `stages - 1` iterations before it is read.
pub fn pipeline(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let Some(gpu) = schedule.target.gpu else {
        let diag = Diag::new("E0311", call.span, "`pipeline` needs an nvptx target");
        return Err(Box::new(diag.help("write it in a schedule `for nvptx`")));
    };
    let (axis, stages) = (call.axis(0), call.int(1).unwrap_or(2));
    let Some(stages) = u32::try_from(stages).ok().filter(|n| (2..=MAX_STAGES).contains(n)) else {
        let text = format!("a pipeline of {stages} stages is not one of 2 to {MAX_STAGES}");
        return Err(Box::new(
            Diag::new("E0391", call.span_of(1), text)
                .note("each stage is a copy of the shared memory that the loop reads"),
        ));
    };
    if stages > 2 && gpu.capability < COPIES_FROM {
        let text = format!("a pipeline of {stages} stages needs the instruction `cp.async`");
        return Err(Box::new(
            Diag::new("E0403", call.span, text)
                .note(format!(
                    "it needs nvptx-sm_{COPIES_FROM} or newer, the target is {}",
                    schedule.target
                ))
                .help("with `stages=2` the copies wait in registers"),
        ));
    }
    let stage = schedule.stage_mut(call.stage());
    if let Some((.., old)) = stage.pipelines.iter().find(|(of, ..)| *of == axis) {
        let text = format!("`{}` has a pipeline already", stage.axis(axis).name);
        return Err(Box::new(Diag::new("E0391", call.span, text).related(*old, "here")));
    }
    stage.pipelines.push((axis, stages, call.span));
    stage.axis_mut(axis).used = Some(("pipeline", call.span));
    stage.touched = true;
    Ok(Vec::new())
}

/// Gives each stage that a pipeline fills the pipeline: those in shared memory that are attached
/// to its loop.
pub(super) fn assign_pipelines(schedule: &mut Schedule) -> Result<()> {
    let copies = schedule.target.gpu.is_some_and(|gpu| gpu.capability >= COPIES_FROM);
    for consumer in schedule.order.clone() {
        for (axis, stages, span) in schedule.stage(consumer).pipelines.clone() {
            let mut found = false;
            for id in schedule.order.clone() {
                let stage = schedule.stage_mut(id);
                let here = matches!(stage.attach, Attach::At { stage, axis: at, .. }
                    if stage == consumer && at == axis);
                if here && stage.scope == Some(Scope::Shared) && stage.double_buffer.is_none() {
                    found = true;
                    match copies {
                        true => stage.pipelined = Some((stages, span)),
                        // Two stages that pass through registers are a double buffer.
                        false => stage.double_buffer = Some(span),
                    }
                }
            }
            if !found {
                let (name, axis) = {
                    let stage = schedule.stage(consumer);
                    (stage.te.name.clone(), stage.axis(axis).name.clone())
                };
                let text =
                    format!("nothing in loop `{axis}` of `{name}` is copied to shared memory");
                return Err(Box::new(Diag::new("E0391", span, text).help(format!(
                    "copy what it reads: `let S = A.cache_read(shared, [{name}])` and \
                     `S.compute_at({name}, {axis})`"
                ))));
            }
        }
    }
    Ok(())
}

/// The strides of a stage's buffer of that shape; `None` if it is row-major.
pub fn strides(stage: &Stage, shape: &[Expr]) -> Option<Vec<Expr>> {
    if stage.aligns.is_empty() {
        return None;
    }
    let facts = Facts::new();
    let mut strides: Vec<Expr> = Vec::new();
    let mut next = Expr::index(1);
    for (at, extent) in shape.iter().enumerate().rev() {
        let mut stride = next;
        if let Some(align) = stage.aligns.iter().find(|align| align.axis.0 == at) {
            let gap = Expr::sub(Expr::index(align.offset), stride.clone());
            let gap = Expr::binary(BinOp::FloorMod, gap, Expr::index(align.factor));
            stride = simplify_expr(&Expr::add(stride, gap), &facts);
        }
        next = simplify_expr(&Expr::mul(extent.clone(), stride.clone()), &facts);
        strides.insert(0, stride);
    }
    Some(strides)
}

/// Checks what only the whole schedule tells: inlined stages are gone from its order.
pub(super) fn check_storage(schedule: &Schedule, reads: &Reads) -> Result<()> {
    for stage in &schedule.stages {
        if let Attach::Inline { span } = stage.attach {
            check_inlined(stage, span)?;
        }
    }
    for id in schedule.order.iter().copied() {
        let stage = schedule.stage(id);
        if let Some(span) = stage.double_buffer.or(stage.pipelined.map(|(_, span)| span)) {
            check_double_buffer(schedule, id, span, reads)?;
        }
        check_nontemporal(schedule.stage(id))?;
    }
    Ok(())
}

/// An inlined stage has neither memory nor loops.
fn check_inlined(stage: &Stage, inlined: Span) -> Result<()> {
    let of = |name: &'static str, span: Option<Span>| span.map(|span| (name, span));
    let asked = of("storage_align", stage.aligns.first().map(|align| align.span))
        .or(of("double_buffer", stage.double_buffer))
        .or(of("store_nontemporal", stage.nontemporal))
        .or(of("pipeline", stage.pipelines.first().map(|(.., span)| *span)))
        .or(of("prefetch", stage.prefetches.first().map(|prefetch| prefetch.span)))
        .or(of("pragma", stage.pragmas.first().map(|pragma| pragma.span)))
        .or(of("tensorize", stage.tensorize.as_ref().map(|tensorize| tensorize.span)));
    let Some((directive, span)) = asked else { return Ok(()) };
    let name = &stage.te.name;
    let text = format!("`{name}` is inlined and has no memory or loops for `{directive}`");
    Err(Box::new(
        Diag::new("E0379", span, text)
            .related(inlined, "inlined here")
            .help("leave one of the two out"),
    ))
}

/// The next iteration's part is computed while the present one is read: there is a loop whose
/// iterations follow each other, and nothing in it makes what `S` reads.
fn check_double_buffer(schedule: &Schedule, id: StageId, span: Span, reads: &Reads) -> Result<()> {
    let name = &schedule.stage(id).te.name;
    let help = format!("attach it to a serial loop: `{name}.compute_at(CONSUMER, AXIS)`");
    let Attach::At { stage: consumer, axis, .. } = schedule.stage(id).attach else {
        let text = format!("`{name}` is not computed inside a loop");
        return Err(Box::new(
            Diag::new("E0372", span, text)
                .note("the copies serve iterations of the loop that a stage is attached to")
                .help(help),
        ));
    };
    let target = schedule.stage(consumer);
    let depth = attach_depth(target, axis);
    let looped = depth.map(|depth| target.axis(target.leaves[depth]));
    let why = match looped {
        None => {
            format!("`{}` is vectorized: all lanes use `{name}` at once", target.axis(axis).name)
        }
        Some(looped) => match looped.annotation {
            None | Some((Annotation::Unroll, _)) => String::new(),
            Some((how, _)) => format!(
                "`{}` has `{}`: its iterations do not follow each other",
                looped.name,
                how.name()
            ),
        },
    };
    if !why.is_empty() {
        let text = format!("`{name}` is not computed in a serial loop");
        return Err(Box::new(Diag::new("E0372", span, text).note(why).help(help)));
    }
    // What is computed in the same iteration, but not for `S` alone.
    let around = Point { schedule, stage: consumer, depth };
    let own = |other: StageId| other == id || is_within(schedule, other, id);
    for other in schedule.order.iter().copied().filter(|other| !own(*other)) {
        let inside = other != consumer && around.encloses(other, false);
        let read = reads.of_stage(other).iter().find(|read| own(read.by));
        if let (true, Some(_)) = (inside, read) {
            let (made, looped) = (&schedule.stage(other).te.name, looped.map(|axis| &axis.name));
            let looped = looped.map_or("", |name| &name[..]);
            let text = format!("`{name}` reads `{made}`, which is computed in the same iteration");
            return Err(Box::new(
                Diag::new("E0373", span, text)
                    .note(format!(
                        "in each iteration of `{looped}`, `{name}` is computed for the next one, \
                         where `{made}` does not exist yet"
                    ))
                    .help(format!("compute `{made}` inside `{name}` or outside of `{looped}`")),
            ));
        }
    }
    Ok(())
}

/// What a stage stores past the caches lies in memory, and nobody reads it in the same loops.
fn check_nontemporal(stage: &Stage) -> Result<()> {
    let Some(span) = stage.nontemporal else { return Ok(()) };
    let name = &stage.te.name;
    let scope = stage.scope.unwrap_or(stage.te.buffers[0].scope);
    let (why, help) = if let Body::Reduce(_) = stage.te.body {
        let note =
            format!("each term of an element of `{name}` reads and stores its running value");
        (note, format!("store a copy of the results: `let L = {name}.cache_write(local)`"))
    } else if let Attach::At { .. } = stage.attach {
        let note = format!("`{name}` is computed in the loops of the stage that reads it");
        (note, format!("leave it out, or say `{name}.compute_root()`"))
    } else if scope != Scope::Global {
        let note = format!("`{name}` is {}", scope.name());
        (note, format!("leave it out, or say `{name}.set_scope(global)`"))
    } else {
        return Ok(());
    };
    let text = format!("what `{name}` stores is read again soon");
    Err(Box::new(Diag::new("E0390", span, text).note(why).help(help)))
}

/// Whether a stage is attached to loops of `outer`, or of what is attached there.
fn is_within(schedule: &Schedule, mut id: StageId, outer: StageId) -> bool {
    // A chain of attachments is no longer than the order.
    for _ in 0..schedule.order.len() {
        let Attach::At { stage, .. } = schedule.stage(id).attach else { return false };
        if stage == outer {
            return true;
        }
        id = stage;
    }
    false
}
