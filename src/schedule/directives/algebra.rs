//! Checks and changes that `merge`, `contract` and `distribute` share.

use super::call::Call;
use super::linear_reductions::Scatter;
use crate::diag::{Diag, Result};
use crate::ir::equal::equal;
use crate::ir::{BinOp, Buffer, DType, Expr, ExprKind};
use crate::schedule::state::{Attach, Axis, AxisId, AxisKind, Schedule, Stage, StageId};
use crate::te::{self, Body, Reduction};

/// Refuses a stage whose loops a directive changed (E0395): a new body has new loops.
pub(super) fn check_default_loops(
    schedule: &Schedule,
    id: StageId,
    call: &Call,
    what: &str,
) -> Result<()> {
    let stage = schedule.stage(id);
    let in_order = stage.leaves.iter().copied().eq((0..stage.axes.len()).map(AxisId));
    let is_plain = |leaf: &AxisId| {
        stage.axis(*leaf).annotation.is_none()
            && stage.annotation_at(*leaf).is_none()
            && schedule.attached_to(id, *leaf).is_none()
    };
    let root = stage.attach == Attach::Root && stage.computed_by.is_none();
    let gathers = stage.annotation::<Scatter>().is_none();
    let plain = gathers && root && stage.leaves.iter().all(is_plain);
    if stage.relations.is_empty() && in_order && plain {
        return Ok(());
    }
    let name = &stage.te.name;
    let text = format!("`{what}` comes after a directive that changed the loops of `{name}`");
    Err(Box::new(
        Diag::new("E0395", call.span, text)
            .note("it changes the expression of the stage, and with it the loops")
            .help(format!("write the `{what}` before the other directives of `{name}`")),
    ))
}

/// Refuses another order of reduction terms that nothing allows (E0357). `flag` is the number of
/// the parameter `reassociate`.
pub(super) fn check_order(
    schedule: &Schedule,
    call: &Call,
    flag: usize,
    allowed: bool,
    what: &str,
) -> Result<()> {
    if allowed || call.flag(flag) || schedule.graph.reassociate {
        return Ok(());
    }
    let stage = schedule.stage(call.stage());
    let (name, dtype) = (&stage.te.name, stage.te.buffers[0].dtype);
    let text = format!("`{what}` changes how the {dtype} sum `{name}` is rounded");
    Err(Box::new(
        Diag::new("E0357", call.span, text)
            .note("another order of terms may round differently")
            .help(format!("allow it: `{name}.{what}(…, reassociate=true)`")),
    ))
}

/// Whether a reduction starts with the neutral element of its reducer.
pub(super) fn is_neutral(reduction: &Reduction) -> bool {
    let pairs = reduction.identity.iter().zip(&reduction.combiner.identity);
    pairs.into_iter().all(|(start, neutral)| {
        equal(start, &Expr::cast(start.ty.dtype, neutral.clone())) || equal(start, neutral)
    })
}

/// Gives a stage another body and the default loops for it.
pub(super) fn set_body(stage: &mut Stage, body: Body) {
    stage.te.body = body;
    stage.te.load_spans.clear();
    stage.axes.truncate(stage.te.axes.len());
    let reduce: Vec<te::Axis> = stage.te.reduce_axes().to_vec();
    for axis in reduce {
        stage.axes.push(Axis::new(axis.var, AxisKind::Reduce));
    }
    stage.leaves = (0..stage.axes.len()).map(AxisId).collect();
    stage.touched = true;
}

/// Returns the same buffer with another element type.
pub(super) fn typed(buffer: &Buffer, dtype: DType) -> Buffer {
    Buffer::new(buffer.name.clone(), dtype, buffer.shape.clone(), buffer.scope)
}

/// Returns the sum that a stage computes: one term, no condition. The error says why it is none.
pub(super) fn plain_sum(stage: &Stage) -> std::result::Result<&Reduction, String> {
    let name = &stage.te.name;
    let Body::Reduce(sum) = &stage.te.body else {
        return Err(format!("`{name}` is not a reduction"));
    };
    if !sum.combiner.is_sum() || sum.terms.len() != 1 {
        return Err(format!("`{name}` is a `{}`, not a sum", sum.combiner.name));
    }
    if sum.condition.is_some() {
        return Err(format!("the sum of `{name}` has a `where=`"));
    }
    Ok(sum)
}

/// Returns the factors of a product, from left to right.
pub(super) fn factors_of(expr: &Expr) -> Vec<Expr> {
    let mut factors = Vec::new();
    let mut left = vec![expr.clone()];
    while let Some(expr) = left.pop() {
        match &expr.kind {
            ExprKind::Binary(BinOp::Mul, a, b) => left.extend([b.clone(), a.clone()]),
            _ => factors.push(expr),
        }
    }
    factors
}
