//! Checks the stages of launches, and the limits of the target.

use super::{bound_index, has_launches, indices_around, is_bound, launch_of, span_of};
use crate::diag::{Diag, Result, Span};
use crate::ir::print::print_expr;
use crate::ir::{Buffering, Expr, Scope, ThreadIndex};
use crate::schedule::bounds::StageBounds;
use crate::schedule::phases::BoundedSchedule;
use crate::schedule::state::{Attach, Schedule, Stage, StageId};
use crate::target::Gpu;
use crate::te::{Graph, Input};

/// Bytes of `local` memory that a thread can have.
const MAX_LOCAL_BYTES: i128 = 512 << 10;

/// Checks scopes, attachments and bound axes, before extents are known.
pub(in crate::schedule) fn check_stages(schedule: &Schedule) -> Result<()> {
    if !has_launches(schedule) {
        return Ok(());
    }
    check_arguments(&schedule.graph)?;
    for id in schedule.order.iter().copied() {
        let stage = schedule.stage(id);
        match stage.attach {
            Attach::Root => check_root(stage)?,
            Attach::At { span, .. } => check_attached(schedule, id, stage, span)?,
            Attach::Inline { .. } => {}
        }
    }
    Ok(())
}

/// Refuses arguments with strides (E0241).
fn check_arguments(graph: &Graph) -> Result<()> {
    let inputs = graph.inputs.iter().filter_map(|input| match input {
        Input::Tensor { buffer, span, .. } => Some((buffer, *span)),
        Input::Scalar { .. } => None,
    });
    let outputs = graph.stages.iter().filter(|stage| stage.output);
    let outputs = outputs.flat_map(|stage| stage.buffers.iter().map(|one| (one, stage.span)));
    match inputs.chain(outputs).find(|(buffer, _)| buffer.strides.is_some()) {
        None => Ok(()),
        Some((buffer, span)) => {
            let text = format!("`{}` has strides, and the kernel is for a GPU", buffer.name);
            let help = "on GPUs, tensors are contiguous: leave the strides out";
            Err(Box::new(Diag::new("E0241", span, text).help(help)))
        }
    }
}

/// Checks a root stage, which is a launch: it is in global memory (E0386) and has a bound axis
/// (E0385).
fn check_root(stage: &Stage) -> Result<()> {
    let name = &stage.te.name;
    if let Some(scope @ (Scope::Shared | Scope::Local)) = stage.scope {
        let text = format!("`{name}` is `{}` and computed at the root", scope.name());
        return Err(Box::new(
            Diag::new("E0386", stage.span, text)
                .note(match scope {
                    Scope::Shared => "shared memory ends with its thread block",
                    _ => "local memory ends with its thread",
                })
                .help(format!("compute it where it is read: `{name}.compute_at(READER, AXIS)`")),
        ));
    }
    if is_bound(stage) || stage.te.axes.is_empty() {
        return Ok(());
    }
    let axis = stage.leaves.first().map_or("i", |leaf| &stage.axis(*leaf).name[..]);
    let text = format!("no axis of `{name}` is bound");
    let diag = Diag::new("E0385", stage.span, text).note(
        "a root stage is a launch; without a bound axis every thread would compute all of it",
    );
    Err(Box::new(diag.help(format!(
        "bind one: `{name}.bind({axis}, blockIdx.x)`, or compute it inside another stage"
    ))))
}

/// Checks an attached stage, which the threads of a block compute together or each thread for
/// itself (E0380, E0386, E0387).
fn check_attached(schedule: &Schedule, id: StageId, stage: &Stage, span: Span) -> Result<()> {
    let name = &stage.te.name;
    for leaf in &stage.leaves {
        let Some(index) = bound_index(stage, *leaf) else { continue };
        let (place, axis) = (span_of(stage, *leaf), &stage.axis(*leaf).name);
        match (index, stage.scope) {
            (ThreadIndex::Block(_), _) => {
                let text =
                    format!("`{name}` is computed inside a block and binds `{}`", { index.name() });
                return Err(Box::new(
                    Diag::new("E0380", place, text)
                        .related(span, "computed inside a block here")
                        .note("each block computes the elements that its own threads read")
                        .help(format!("bind `{axis}` to `threadIdx`, or leave it unbound")),
                ));
            }
            (ThreadIndex::Thread(_), Some(Scope::Local)) => {
                let text = format!(
                    "`{name}` is `local`, and its axis `{axis}` is distributed over `{}`",
                    index.name()
                );
                return Err(Box::new(
                    Diag::new("E0387", place, text)
                        .note(
                            "a thread can read only its own local memory, so it would miss the \
                             elements of other threads",
                        )
                        .help(format!(
                            "leave `{axis}` unbound, or store it for all: \
                             `{name}.set_scope(shared)`"
                        )),
                ));
            }
            _ => {}
        }
    }
    if stage.scope == Some(Scope::Global) {
        let enclosing = indices_around(schedule, id);
        let text = format!("`{name}` is `global` and computed inside a GPU kernel");
        let note = match enclosing.is_empty() {
            true => "no enclosing loop is bound to a thread, so all threads compute it",
            false => "no barrier orders the writes of one block before the reads of another",
        };
        return Err(Box::new(Diag::new("E0386", span, text).note(note).help(format!(
            "store it in the block or the thread: `{name}.set_scope(shared)` or \
             `{name}.set_scope(local)`, or leave it at the root"
        ))));
    }
    Ok(())
}

/// The extent of an index of a launch, and the first stage that binds it.
pub(in crate::schedule) struct Extent {
    launch: StageId,
    index: ThreadIndex,
    extent: Expr,
    stage: StageId,
    span: Span,
}

/// Checks that all stages of a launch give an index the same extent (E0381). `extents` has those
/// of earlier stages.
pub(in crate::schedule) fn check_extents(
    schedule: &Schedule,
    id: StageId,
    bounds: &StageBounds,
    extents: &mut Vec<Extent>,
) -> Result<()> {
    let Some(launch) = launch_of(schedule, id).filter(|_| has_launches(schedule)) else {
        return Ok(());
    };
    let stage = schedule.stage(id);
    for leaf in &stage.leaves {
        let Some(index) = bound_index(stage, *leaf) else { continue };
        let (extent, span) = (&bounds.extents[leaf.0], span_of(stage, *leaf));
        let axis = &stage.axis(*leaf).name;
        if !matches!(index, ThreadIndex::Block(_)) && extent.as_int().is_none() {
            let name = &stage.te.name;
            let text = format!(
                "`{}` needs a constant extent, but that of `{axis}` is {}",
                index.name(),
                print_expr(extent)
            );
            return Err(Box::new(Diag::new("E0330", span, text).help(format!(
                "split off a constant part: `let o, i = {name}.split({axis}, factor=64)`, then \
                 `{name}.bind(i, {})`",
                index.name()
            ))));
        }
        if index == ThreadIndex::Virtual {
            continue;
        }
        let first = extents.iter().find(|other| (other.launch, other.index) == (launch, index));
        let Some(first) = first else {
            let extent = extent.clone();
            extents.push(Extent { launch, index, extent, stage: id, span });
            continue;
        };
        if crate::ir::equal::equal(extent, &first.extent) {
            continue;
        }
        let (here, there) = (print_expr(extent), print_expr(&first.extent));
        let (name, other) = (&stage.te.name, &schedule.stage(first.stage).te.name);
        let text =
            format!("`{name}` gives `{}` the extent {here}, `{other}` {there}", { index.name() });
        return Err(Box::new(
            Diag::new("E0381", span, text)
                .related(first.span, format!("{there} here"))
                .note(format!("both are computed by the kernel of `{}`", {
                    &schedule.stage(launch).te.name
                }))
                .help(format!("split `{axis}` into that many parts: `nparts={there}`")),
        ));
    }
    Ok(())
}

/// Checks the limits of the target for each launch.
pub(in crate::schedule) fn check_launches(bounded: &BoundedSchedule) -> Result<()> {
    let schedule = &bounded.schedule;
    let Some(gpu) = schedule.target.gpu.filter(|_| has_launches(schedule)) else { return Ok(()) };
    let roots = schedule.order.iter().filter(|id| schedule.stage(**id).attach == Attach::Root);
    for launch in roots.copied() {
        let of = |id: &StageId| launch_of(schedule, *id) == Some(launch);
        let stages: Vec<StageId> = schedule.order.iter().copied().filter(of).collect();
        schedule.checked(check_threads(bounded, launch, &stages))?;
        schedule.checked(check_memory(bounded, launch, &stages, gpu))?;
    }
    Ok(())
}

/// Checks the number of threads of a block (E0382) and blocks of the grid (E0383).
fn check_threads(bounded: &BoundedSchedule, launch: StageId, stages: &[StageId]) -> Result<()> {
    let schedule = &bounded.schedule;
    let name = &schedule.stage(launch).te.name;
    let mut threads: Vec<(ThreadIndex, i128, Span)> = Vec::new();
    for id in stages.iter().rev() {
        let stage = schedule.stage(*id);
        for leaf in &stage.leaves {
            let (Some(index), Some(extent)) =
                (bound_index(stage, *leaf), bounded.of(*id).extents[leaf.0].as_int())
            else {
                continue;
            };
            let span = span_of(stage, *leaf);
            let (limit, what, code) = match index {
                ThreadIndex::Block(at) => (Gpu::MAX_GRID[at], "blocks of a grid", "E0383"),
                ThreadIndex::Thread(at) => (Gpu::MAX_BLOCK[at], "threads of a block", "E0382"),
                ThreadIndex::Virtual => continue,
            };
            if extent > i128::from(limit) {
                let text = format!("`{}` would have the extent {extent}", index.name());
                let axis = &stage.axis(*leaf).name;
                let help = match (index, code) {
                    (ThreadIndex::Block(1 | 2), _) => "bind the longest axis to `blockIdx.x`",
                    _ => "split it further, and leave a part to a loop",
                };
                let note = format!("{what} along it: at most {limit}");
                return Err(Box::new(
                    Diag::new(code, span, text).note(note).help(format!("{help}: `{axis}`")),
                ));
            }
            let known = threads.iter().any(|(other, ..)| *other == index);
            if matches!(index, ThreadIndex::Thread(_)) && !known {
                threads.push((index, extent, span));
            }
        }
    }
    let total: i128 = threads.iter().map(|(_, extent, _)| *extent).product();
    let limit = i128::from(Gpu::MAX_THREADS);
    let last = threads.iter().max_by_key(|(.., span)| span.start);
    match last {
        Some((.., span)) if total > limit => {
            let parts: Vec<String> = threads
                .iter()
                .map(|(index, extent, _)| format!("`{}` has {extent}", index.name()))
                .collect();
            let text = format!("a block of `{name}` would have {total} threads");
            Err(Box::new(
                Diag::new("E0382", *span, text)
                    .note(parts.join(", "))
                    .note(format!("at most {limit} on {}", schedule.target))
                    .help("bind fewer iterations, and leave the rest to a loop in each thread"),
            ))
        }
        _ => Ok(()),
    }
}

/// Checks the sizes of shared memory of a block and local memory of a thread (E0384).
fn check_memory(
    bounded: &BoundedSchedule,
    launch: StageId,
    stages: &[StageId],
    gpu: Gpu,
) -> Result<()> {
    let schedule = &bounded.schedule;
    let name = &schedule.stage(launch).te.name;
    for scope in [Scope::Shared, Scope::Local] {
        let (mut total, mut parts) = (0i128, Vec::new());
        let mut largest: Option<(i128, Span)> = None;
        for id in stages.iter().copied().filter(|id| schedule.stage(*id).scope == Some(scope)) {
            let stage = schedule.stage(id);
            let bytes = stage_bytes(stage, bounded.of(id))?;
            total = total.saturating_add(bytes);
            parts.push(format!("`{}` has {bytes}", stage.te.name));
            if largest.is_none_or(|(most, _)| bytes > most) {
                let attached = match stage.attach {
                    Attach::At { span, .. } => span,
                    _ => stage.span,
                };
                largest = Some((bytes, attached));
            }
        }
        let (limit, whose) = match scope {
            Scope::Shared => (i128::from(gpu.shared_bytes), "a block"),
            _ => (MAX_LOCAL_BYTES, "a thread"),
        };
        if let (true, Some((_, span))) = (total > limit, largest) {
            let text =
                format!("{whose} of `{name}` would need {total} bytes of {} memory", scope.name());
            return Err(Box::new(
                Diag::new("E0384", span, text)
                    .note(parts.join(", "))
                    .note(format!("{} has {limit} for {whose}", schedule.target))
                    .help("use smaller tiles, or attach the stage to an inner loop"),
            ));
        }
    }
    Ok(())
}

/// Returns the bytes of a stage's region: all components and copies, each rounded up to a multiple
/// of 16.
fn stage_bytes(stage: &Stage, bounds: &StageBounds) -> Result<i128> {
    let mut extents = Vec::new();
    for (axis, extent) in stage.te.axes.iter().zip(&bounds.shape) {
        let Some(extent) = extent.as_int() else {
            let (name, axis) = (&stage.te.name, axis.var.name());
            let scope = stage.scope.unwrap_or(Scope::Global).name();
            let span = match stage.attach {
                Attach::At { span, .. } => span,
                _ => stage.span,
            };
            let text = format!(
                "`{name}` is `{scope}` and would have the extent {} along `{axis}`",
                print_expr(extent)
            );
            return Err(Box::new(
                Diag::new("E0388", span, text)
                    .note(format!("{scope} memory is laid out when the program is compiled"))
                    .help("split the axes of its readers by constants, and attach it inside"),
            ));
        };
        extents.push(extent);
    }
    let strides = crate::schedule::strides(stage, &bounds.shape);
    let outermost = strides.as_ref().and_then(|strides| strides.first()?.as_int());
    let elements = match (outermost, extents.first()) {
        (Some(stride), Some(extent)) => extent.saturating_mul(stride),
        _ => extents.iter().fold(1i128, |product, extent| product.saturating_mul(*extent)),
    };
    let copies = match stage.buffering() {
        Buffering::Single => 1,
        Buffering::Double => 2,
        Buffering::Pipeline(stages) => stages.into(),
    };
    let bytes = stage.te.buffers.iter().map(|buffer| {
        let bytes = elements.saturating_mul(copies * buffer.dtype.bytes() as i128);
        bytes.saturating_add(15) / 16 * 16
    });
    Ok(bytes.fold(0, i128::saturating_add))
}
