//! `prefetch`: each iteration of a loop asks for the elements that a later one reads.
//!
//! Before: `C.prefetch(A, i, 2)`, one iteration of `i` reads `A[i, 0 .. m]`.
//! After:  inside loop `i`, the box of `A` from `[i + 2, 0]`, `1` by `m` elements.
//! The box covers all that is read in one iteration, by the stage and by those attached inside, as
//! for `compute_at`. Loops are built from it by `build_loops`.

use super::bounds::{Inference, Loop, clip_to, is_vectorized, loop_min};
use super::directives::{Call, Value};
use super::legality::Point;
use super::region::{Ranges, Span as Range};
use super::state::{Attach, Prefetch, Schedule, StageId, Tensor};
use crate::diag::{Diag, Result};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{substitute, walk_expr};
use crate::ir::{Buffer, Expr, ExprKind};
use crate::te::{Body, Input};
use rustc_hash::FxHashMap;

/// The farthest `distance`.
const MAX_DISTANCE: i64 = 1 << 20;

/// What is asked for at the start of each iteration of a loop.
#[derive(Clone, Debug)]
pub struct PrefetchBox {
    /// The stage whose loop it is.
    pub stage: StageId,
    /// The loop, as an index into [`super::Stage::leaves`].
    pub depth: usize,
    /// What is read: an input's buffer or a stage's as declared.
    pub buffer: Buffer,
    /// Per dimension: the first element, as a reader's index; may lie outside.
    pub mins: Vec<Expr>,
    /// Per dimension: the number of elements.
    pub shape: Vec<Expr>,
}

/// `S.prefetch(A, i, distance)`: at each iteration of loop `i` of `S`, a hint that the elements of
/// `A` which the iteration `i + distance` reads are needed soon.
pub fn prefetch(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let tensor = match call.value(0) {
        Some(Value::Stage(id)) => Tensor::Stage(*id),
        Some(Value::Input(at)) => Tensor::Input(*at),
        other => crate::bug!("{other:?} for a tensor"),
    };
    let (axis, distance) = (call.axis(1), call.int(2).unwrap_or(1));
    if !(1..=MAX_DISTANCE).contains(&distance) {
        let text = format!("a distance of {distance} is not from 1 to {MAX_DISTANCE}");
        return Err(Box::new(Diag::new("E0374", call.span_of(2), text)));
    }
    let stage = schedule.stage_mut(call.stage());
    stage.prefetches.retain(|old| (old.tensor, old.axis) != (tensor, axis));
    stage.prefetches.push(Prefetch { tensor, axis, distance, span: call.span });
    stage.axis_mut(axis).used = Some(("prefetch", call.span));
    stage.touched = true;
    Ok(Vec::new())
}

/// The boxes of all stages, in order; bounds of all stages are known.
pub(super) fn prefetch_boxes(inference: &Inference) -> Result<Vec<PrefetchBox>> {
    let mut boxes = Vec::new();
    for id in inference.schedule.order.iter().copied() {
        for prefetch in &inference.schedule.stage(id).prefetches {
            boxes.extend(boxes_of(inference, id, prefetch)?);
        }
    }
    Ok(boxes)
}

/// One box per component of what is read.
fn boxes_of(inference: &Inference, id: StageId, prefetch: &Prefetch) -> Result<Vec<PrefetchBox>> {
    let schedule = &inference.schedule;
    let stage = schedule.stage(id);
    let depth = stage.leaves.iter().position(|leaf| *leaf == prefetch.axis);
    let depth = depth.expect("the axis is a loop");
    let axis = &stage.axis(prefetch.axis).name;
    if let Some(lanes) = stage.leaves[..=depth].iter().find(|leaf| is_vectorized(stage, **leaf)) {
        let text = format!("loop `{axis}` has no iterations of its own to prefetch in");
        let note = format!("`{}` is vectorized: its iterations are lanes", stage.axis(*lanes).name);
        return Err(Box::new(Diag::new("E0374", prefetch.span, text).note(note)));
    }
    let bounds = inference.bounds[id.0].as_ref().expect("the stage is in the order");
    let mut around: Vec<Loop> = bounds.around.clone();
    around.extend(stage.leaves[..=depth].iter().map(|leaf| {
        let var = stage.axis(*leaf).var.clone();
        (var, loop_min(stage, *leaf), bounds.extents[leaf.0].clone())
    }));
    check_source(inference, prefetch, &around)?;
    let (name, buffers) = match prefetch.tensor {
        Tensor::Stage(source) => {
            let te = &schedule.stage(source).te;
            (te.name.clone(), te.buffers.clone())
        }
        Tensor::Input(at) => match &schedule.graph.inputs[at] {
            Input::Tensor { buffer, .. } => (buffer.name.clone(), vec![buffer.clone()]),
            Input::Scalar { .. } => crate::bug!("a scalar for a tensor"),
        },
    };
    let point = Point { schedule, stage: id, depth: Some(depth) };
    let mut boxes = Vec::new();
    for buffer in buffers {
        let region = read_region(inference, &buffer, &point, &around);
        let Some(region) = region else { continue };
        let Some(region) = region.into_iter().collect::<Option<Vec<Range>>>() else {
            let text = format!("which elements of `{name}` loop `{axis}` reads is not known");
            return Err(Box::new(
                Diag::new("E0375", prefetch.span, text)
                    .note("an index depends on data, or is no sum of multiples of axes"),
            ));
        };
        let dims = region.into_iter().zip(&buffer.shape);
        let region: Vec<Range> =
            dims.map(|(range, extent)| clip_to(range, extent, &inference.facts)).collect();
        let var = &stage.axis(prefetch.axis).var;
        let later = Expr::add(Expr::var(var), Expr::index(prefetch.distance));
        let later = |min: &Expr| substitute(min, &mut |v| (v == var).then(|| later.clone()));
        let count = |range: &Range| Expr::add(range.width.clone(), Expr::index(1));
        boxes.push(PrefetchBox {
            stage: id,
            depth,
            buffer,
            mins: region.iter().map(|range| later(&range.min)).collect(),
            shape: region.iter().map(|r| simplify_expr(&count(r), &inference.facts)).collect(),
        });
    }
    if boxes.is_empty() {
        let text = format!("loop `{axis}` of `{}` does not read `{name}`", stage.te.name);
        return Err(Box::new(Diag::new("E0374", prefetch.span, text)));
    }
    Ok(boxes)
}

/// What is prefetched has memory of which the later iteration's part exists already.
fn check_source(inference: &Inference, prefetch: &Prefetch, around: &[Loop]) -> Result<()> {
    let Tensor::Stage(source) = prefetch.tensor else { return Ok(()) };
    let made = inference.schedule.stage(source);
    let name = &made.te.name;
    if let Attach::Inline { span } = made.attach {
        let text = format!("`{name}` is inlined and has no memory to prefetch");
        return Err(Box::new(
            Diag::new("E0375", prefetch.span, text)
                .related(span, "inlined here")
                .help("prefetch what its value reads"),
        ));
    }
    let bounds = inference.bounds[source.0].as_ref().expect("the stage is in the order");
    let outside = &around[..around.len() - 1];
    if bounds.around.iter().all(|(var, ..)| outside.iter().any(|(other, ..)| other == var)) {
        return Ok(());
    }
    let text = format!("`{name}` is computed in each iteration, just before it is read");
    Err(Box::new(
        Diag::new("E0375", prefetch.span, text)
            .note("a later iteration's part does not exist yet")
            .help(format!("leave the prefetch out, or say `{name}.double_buffer()`")),
    ))
}

/// Per dimension what one iteration reads of a buffer, `None` where that is not known; nothing if
/// it reads nothing.
fn read_region(
    inference: &Inference,
    buffer: &Buffer,
    point: &Point,
    around: &[Loop],
) -> Option<Vec<Option<Range>>> {
    let mut facts = inference.facts.clone();
    for (var, min, extent) in around {
        facts.bind(var, min, extent);
    }
    let mut region: Option<Vec<Option<Range>>> = None;
    for by in inference.schedule.order.iter().copied() {
        let mut reads: Vec<Vec<Expr>> = Vec::new();
        let mut find = |expr: &Expr| {
            walk_expr(expr, &mut |e| match &e.kind {
                ExprKind::Load { buffer: read, indices, .. } if read == buffer => {
                    reads.push(indices.clone());
                }
                _ => {}
            });
        };
        match &inference.schedule.stage(by).te.body {
            Body::Map(values) => values.iter().for_each(&mut find),
            Body::Reduce(reduction) => {
                reduction.terms.iter().chain(&reduction.condition).for_each(find);
            }
        }
        if reads.is_empty() || !point.encloses(by, false) {
            continue;
        }
        let moving: FxHashMap<_, _> = inference.root_spans(by, around, &facts);
        let ranges = Ranges { moving: &moving, facts: &facts };
        for indices in reads {
            let new = indices.iter().map(|index| ranges.span(&simplify_expr(index, &facts)));
            region = Some(match region.take() {
                None => new.collect(),
                Some(old) => {
                    let pairs = old.into_iter().zip(new);
                    pairs.map(|(old, new)| ranges.union(old?, new?)).collect()
                }
            });
        }
    }
    region
}
