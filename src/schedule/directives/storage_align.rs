//! `storage_align`: padding between the rows of a stage's buffer.

use super::call::{Call, Value};
use super::{ArgKind, Directive, Subject, Targets, required};
use crate::diag::{Diag, Result};
use crate::ir::arith::Facts;
use crate::ir::simplify::simplify_expr;
use crate::ir::visit::mentions;
use crate::ir::{BinOp, Buffer, Expr};
use crate::schedule::bounds::{StageBounds, is_vectorized};
use crate::schedule::derived_stage::proposed_name;
use crate::schedule::state::{Attach, Schedule, Stage};

/// The largest `factor`; a row grows by less elements than that.
const MAX_ALIGN: i64 = 1 << 16;

/// Alignment of a stride: the smallest stride that fits and is `offset` modulo `factor`.
#[derive(Debug)]
struct StorageAlign {
    /// The dimension.
    dim: usize,
    /// At least 1.
    factor: i64,
    /// From 0 to `factor - 1`.
    offset: i64,
}

/// `S.storage_align(i, factor, offset)`: pads the buffer of `S` so that the stride of the dimension
/// of data axis `i` is `offset` modulo `factor`.
pub(super) static STORAGE_ALIGN: Directive = Directive {
    name: "storage_align",
    subject: Subject::Stage,
    targets: Targets::All,
    params: &[
        required("i", ArgKind::Axis),
        required("factor", ArgKind::Int),
        required("offset", ArgKind::Int),
    ],
    usage: "storage_align(i, factor, offset)",
    run: storage_align,
    check: None,
};

fn storage_align(schedule: &mut Schedule, call: &Call) -> Result<Vec<Value>> {
    let copy = proposed_name(schedule, "L");
    let stage = schedule.stage_mut(call.stage());
    let axis = call.axis(0);
    let name = &stage.te.name;
    if stage.te.output {
        let text = format!("`{name}` is an output, whose layout the caller determines");
        return Err(Box::new(
            Diag::new("E0371", call.span, text)
                .help(format!("align a copy: `let {copy} = {name}.cache_write(local)`")),
        ));
    }
    if axis.0 >= stage.rank() {
        let axis = &stage.axis(axis).name;
        let text = format!("`{axis}` is not a dimension of `{name}`");
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
        let text = format!("the factor must be from 1 to {MAX_ALIGN}, not {factor}");
        return Err(Box::new(Diag::new("E0370", call.span_of(1), text)));
    }
    if !(0..factor).contains(&offset) {
        let text = format!("an offset of {offset} is not from 0 to {}", factor - 1);
        return Err(Box::new(
            Diag::new("E0370", call.span_of(2), text)
                .note(format!("a stride modulo {factor} is one of these")),
        ));
    }
    let dim = axis.0;
    stage.remove_annotations(|_, old: &StorageAlign| old.dim == dim);
    stage.annotate(call.directive, None, call.span, StorageAlign { dim, factor, offset });
    Ok(Vec::new())
}

/// Returns the strides of a stage's buffer of this shape; `None` if it is row-major without
/// padding.
pub fn strides(stage: &Stage, shape: &[Expr]) -> Option<Vec<Expr>> {
    stage.annotation::<StorageAlign>()?;
    let facts = Facts::new();
    let mut strides: Vec<Expr> = Vec::new();
    let mut next = Expr::index(1);
    for (at, extent) in shape.iter().enumerate().rev() {
        let mut stride = next;
        let mut aligns = stage.annotations_of::<StorageAlign>();
        if let Some((_, align)) = aligns.find(|(_, align)| align.dim == at) {
            let gap = Expr::sub(Expr::index(align.offset), stride.clone());
            let gap = Expr::binary(BinOp::FloorMod, gap, Expr::index(align.factor));
            stride = simplify_expr(&Expr::add(stride, gap), &facts);
        }
        next = simplify_expr(&Expr::mul(extent.clone(), stride.clone()), &facts);
        strides.insert(0, stride);
    }
    Some(strides)
}

/// The most by which rows grow, as a part of their length, unless the buffer is small.
const MAX_GROWTH: i64 = 4;

/// Bytes of a buffer whose rows may double: half the smallest L1 cache.
const SMALL_BUFFER: i64 = 16 << 10;

/// Targets with masked stores: pads the rows of a temporary that vectors of `lanes` elements do not
/// fill, if no directive aligned them.
///
/// The last vector of such a row is stored under a mask. Processors do not forward such a store to
/// a load that overlaps the whole vector, so a load of the next row would wait until the store has
/// left the store buffer.
pub(in crate::schedule) fn pad_rows(stage: &mut Stage, bounds: &StageBounds, lanes: i64) {
    let (shape, rank) = (&bounds.storage.shape, stage.rank());
    let attached = matches!(stage.attach, Attach::At { .. });
    if stage.te.output || !attached || rank < 2 || stage.annotation::<StorageAlign>().is_some() {
        return;
    }
    let Some(row) = shape[rank - 1].as_int() else { return };
    let row = row as i64;
    let is_single = shape[..rank - 1].iter().all(|extent| extent.as_int() == Some(1));
    let runs_along = stage.leaves.iter().any(|leaf| {
        is_vectorized(stage, *leaf) && mentions(&bounds.values[rank - 1], &stage.axis(*leaf).var)
    });
    if is_single || !runs_along || row % lanes == 0 {
        return;
    }
    let padded = row + lanes - row % lanes;
    let bytes = |buffer: &Buffer| padded.saturating_mul(buffer.dtype.bytes() as i64);
    let mut rows = shape[..rank - 1].iter().map(|extent| extent.as_int().map(|n| n as i64));
    let rows = rows.try_fold(1_i64, |product, n| Some(product.saturating_mul(n?)));
    let total = rows.map(|n| n.saturating_mul(stage.te.buffers.iter().map(bytes).sum()));
    let is_small = total.is_some_and(|total| total <= SMALL_BUFFER) && padded <= 2 * row;
    if !is_small && (padded - row) * MAX_GROWTH > row {
        return;
    }
    let align = StorageAlign { dim: rank - 2, factor: lanes, offset: 0 };
    stage.annotate(&STORAGE_ALIGN, None, stage.span, align);
}
