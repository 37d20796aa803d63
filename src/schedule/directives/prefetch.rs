//! `prefetch`: each iteration of a loop prefetches the elements that a later one reads.
//!
//! Before: `C.prefetch(A, i, 2)`, one iteration of `i` reads `A[i, 0 .. m]`.
//! After:  inside loop `i`, the region of `A` from `[i + 2, 0]`, `1` by `m` elements.
//! The region covers all that one iteration reads, in the stage and in the stages that are attached
//! inside, as for `compute_at`. `build_loops` makes the loops.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result, Span};
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::{substitute, walk_expr};
use crate::ir::{Buffer, Expr, ExprKind};
use crate::schedule::annotations::StageAnnotation;
use crate::schedule::bounds::{Loop, clip_to, is_vectorized, loop_min};
use crate::schedule::legality::AttachPoint;
use crate::schedule::phases::Inference;
use crate::schedule::region::{Interval, IntervalEvaluator};
use crate::schedule::sorts::sort_place;
use crate::schedule::state::{Attach, AxisId, Schedule, Stage, StageId, Tensor};
use crate::te::{Body, Input};
use rustc_hash::FxHashMap;

/// The largest `distance`.
const MAX_DISTANCE: i64 = 1 << 20;

/// The region that each iteration of a loop prefetches at its start.
#[derive(Clone, Debug)]
pub struct PrefetchRegion {
    /// The stage whose loop it is.
    pub stage: StageId,
    /// The loop, as an index into [`Stage::leaves`].
    pub depth: usize,
    /// The buffer that is read: that of an input, or of a stage as declared.
    pub buffer: Buffer,
    /// The first index of each dimension, as the reader writes it; may lie outside.
    pub mins: Vec<Expr>,
    /// The extent of each dimension.
    pub shape: Vec<Expr>,
}

/// The annotation of `prefetch`.
#[derive(Clone, Debug)]
struct Prefetch {
    /// The tensor that is read.
    tensor: Tensor,
    /// The number of iterations ahead, at least 1.
    distance: i64,
}

/// `S.prefetch(A, i, distance)`: each iteration of loop `i` of `S` prefetches the elements of `A`
/// that iteration `i + distance` reads.
pub(super) static PREFETCH: Directive = Directive {
    name: "prefetch",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[
        required("tensor", ArgKind::Tensor),
        required("i", ArgKind::Axis),
        required("distance", ArgKind::Int),
    ],
    usage: "prefetch(A, i, distance)",
    run: prefetch,
    check: None,
};

fn prefetch(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let tensor = match call.value(0) {
        Some(Value::Stage(id)) => Tensor::Stage(*id),
        Some(Value::Input(at)) => Tensor::Input(*at),
        other => crate::bug!("{other:?} for a tensor"),
    };
    let (axis, distance) = (call.axis(1), call.int(2).unwrap_or(1));
    if !(1..=MAX_DISTANCE).contains(&distance) {
        let text = format!("the distance must be from 1 to {MAX_DISTANCE}, not {distance}");
        return Err(Box::new(Diag::new("E0374", call.span_of(2), text)));
    }
    let stage = schedule.stage_mut(call.stage());
    stage.remove_annotations(|old, of: &Prefetch| (of.tensor, old.axis) == (tensor, Some(axis)));
    stage.annotate(call.directive, Some(axis), call.span, Prefetch { tensor, distance });
    Ok(Vec::new())
}

/// Makes every prefetch of an input one of the first input.
pub(in crate::schedule) fn prefetch_first_input(stage: &mut Stage) {
    stage.update_annotations(|prefetch: &mut Prefetch| {
        if let Tensor::Input(at) = &mut prefetch.tensor {
            *at = 0;
        }
    });
}

/// The regions that all stages prefetch. All bounds are known.
pub(in crate::schedule) fn prefetch_regions(inference: &Inference) -> Result<Vec<PrefetchRegion>> {
    let schedule = &inference.bounded.schedule;
    let mut regions = Vec::new();
    for id in schedule.order.iter().copied() {
        for (annotation, prefetch) in schedule.stage(id).annotations_of() {
            regions.extend(regions_of(inference, id, annotation, prefetch)?);
        }
    }
    Ok(regions)
}

/// Returns the regions of one `prefetch`: one for each component of the tensor.
fn regions_of(
    inference: &Inference,
    id: StageId,
    annotation: &StageAnnotation,
    prefetch: &Prefetch,
) -> Result<Vec<PrefetchRegion>> {
    let schedule = &inference.bounded.schedule;
    let stage = schedule.stage(id);
    let (leaf, span): (AxisId, Span) =
        (annotation.axis.expect("a prefetch has a loop"), annotation.span);
    let depth = stage.place_of(leaf);
    let axis = &stage.axis(leaf).name;
    if let Some(lanes) = stage.leaves[..=depth].iter().find(|leaf| is_vectorized(stage, **leaf)) {
        let text = format!("loop `{axis}` has no iterations to prefetch in");
        let note = format!("`{}` is vectorized: its iterations are lanes", stage.axis(*lanes).name);
        return Err(Box::new(Diag::new("E0374", span, text).note(note)));
    }
    let bounds = inference.bounded.of(id);
    let mut around: Vec<Loop> = bounds.enclosing_loops.clone();
    // A sorted axis is no loop: in an iteration of the loops behind it, all of it counts.
    let sorted = sort_place(stage);
    let loops = stage.leaves[..=depth].iter().enumerate().filter(|(at, _)| Some(*at) != sorted);
    around.extend(loops.map(|(_, leaf)| {
        let var = stage.axis(*leaf).var.clone();
        (var, loop_min(stage, *leaf), bounds.extents[leaf.0].clone())
    }));
    check_source(inference, prefetch, span, &around)?;
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
    let point = AttachPoint { schedule, stage: id, depth: Some(depth) };
    let mut regions = Vec::new();
    for buffer in buffers {
        let region = read_region(inference, &buffer, &point, &around);
        let Some(region) = region else { continue };
        let Some(region) = region.into_iter().collect::<Option<Vec<Interval>>>() else {
            let text = format!("the elements of `{name}` that loop `{axis}` reads are unknown");
            return Err(Box::new(
                Diag::new("E0375", span, text)
                    .note("an index depends on data, or is not a sum of multiples of axes"),
            ));
        };
        let dims = region.into_iter().zip(&buffer.shape);
        let region: Vec<Interval> =
            dims.map(|(dim, extent)| clip_to(dim, extent, &inference.facts)).collect();
        let var = &stage.axis(leaf).var;
        let later = Expr::add(Expr::var(var), Expr::index(prefetch.distance));
        let later = |min: &Expr| substitute(min, &mut |v| (v == var).then(|| later.clone()));
        let count = |dim: &Interval| Expr::add(dim.width.clone(), Expr::index(1));
        regions.push(PrefetchRegion {
            stage: id,
            depth,
            buffer,
            mins: region.iter().map(|dim| later(&dim.min)).collect(),
            shape: region.iter().map(|dim| simplify_expr(&count(dim), &inference.facts)).collect(),
        });
    }
    if regions.is_empty() {
        let text = format!("loop `{axis}` of `{}` does not read `{name}`", stage.te.name);
        return Err(Box::new(Diag::new("E0374", span, text)));
    }
    Ok(regions)
}

/// Refuses a stage without memory, or whose elements for a later iteration do not exist yet
/// (E0375).
fn check_source(
    inference: &Inference,
    prefetch: &Prefetch,
    span: Span,
    around: &[Loop],
) -> Result<()> {
    let Tensor::Stage(source) = prefetch.tensor else { return Ok(()) };
    let made = inference.bounded.schedule.stage(source);
    let name = &made.te.name;
    if let Attach::Inline { span: inlined } = made.attach {
        let text = format!("`{name}` is inlined and has no memory to prefetch");
        return Err(Box::new(
            Diag::new("E0375", span, text)
                .related(inlined, "inlined here")
                .help("prefetch the tensors that its expression reads"),
        ));
    }
    let bounds = inference.bounded.of(source);
    let outside = &around[..around.len() - 1];
    if bounds.enclosing_loops.iter().all(|(var, ..)| outside.iter().any(|(other, ..)| other == var))
    {
        return Ok(());
    }
    let text = format!("`{name}` is computed in each iteration, just before it is read");
    Err(Box::new(
        Diag::new("E0375", span, text)
            .note("the elements of a later iteration do not exist yet")
            .help(format!("leave out the prefetch, or write `{name}.double_buffer()`")),
    ))
}

/// Returns the interval of each dimension that one iteration reads of a buffer, `None` where it is
/// unknown; `None` for the whole region if the iteration does not read the buffer.
fn read_region(
    inference: &Inference,
    buffer: &Buffer,
    point: &AttachPoint,
    around: &[Loop],
) -> Option<Vec<Option<Interval>>> {
    let mut facts = inference.facts.clone();
    for (var, min, extent) in around {
        facts.bind(var, min, extent);
    }
    let mut region: Option<Vec<Option<Interval>>> = None;
    for by in inference.bounded.schedule.order.iter().copied() {
        let mut reads: Vec<Vec<Expr>> = Vec::new();
        let mut find = |expr: &Expr| {
            walk_expr(expr, &mut |e| match &e.kind {
                ExprKind::Load { buffer: read, indices, .. } if read == buffer => {
                    reads.push(indices.clone());
                }
                _ => {}
            });
        };
        match &inference.bounded.schedule.stage(by).te.body {
            Body::Reduce(reduction) => {
                reduction.terms.iter().chain(&reduction.condition).for_each(find);
            }
            body => body.for_each_expr(&mut find),
        }
        if reads.is_empty() || !point.encloses(by, false) {
            continue;
        }
        let moving: FxHashMap<_, _> = inference.axis_intervals(by, around, &facts);
        let evaluator = IntervalEvaluator { moving: &moving, facts: &facts };
        for indices in reads {
            let new = indices.iter().map(|index| evaluator.interval(&simplify_expr(index, &facts)));
            region = Some(match region.take() {
                None => new.collect(),
                Some(old) => {
                    let pairs = old.into_iter().zip(new);
                    pairs.map(|(old, new)| evaluator.union(old?, new?)).collect()
                }
            });
        }
    }
    region
}
