//! Inlining: replaces reads of inlined stages by their values.
//!
//! Before: `S[i] = A[i] * 2`, `S` inline, `C[i] = S[i + 1] + 1`.  After: `C[i] = A[i + 1] * 2 + 1`.
//! The value is cast to the element type of the stage, as a store and a load would do, so no bit
//! changes.

use super::state::{Attach, Schedule, StageId};
use crate::diag::{Diag, Result};
use crate::ir::visit::{map_children, substitute};
use crate::ir::{Buffer, Expr, ExprKind};
use crate::te::Body;
use rustc_hash::FxHashMap;

/// The largest number of nodes of a body after inlining.
const MAX_NODES: usize = 1 << 18;

/// The value of an inlined stage's buffer.
struct Inlined {
    stage: StageId,
    value: Expr,
}

/// Replaces every read of an inlined stage and removes inlined stages from the order.
pub(crate) fn inline_stages(schedule: &mut Schedule) -> Result<()> {
    let is_inline = |schedule: &Schedule, id: StageId| {
        matches!(schedule.stage(id).attach, Attach::Inline { .. })
    };
    if !schedule.order.iter().any(|id| is_inline(schedule, *id)) {
        return Ok(());
    }
    let mut values: FxHashMap<Buffer, Inlined> = FxHashMap::default();
    for id in schedule.order.clone() {
        let mut body = schedule.stage(id).te.body.clone();
        let mut nodes = 0;
        let mut last = None;
        body.map_exprs(&mut |expr| {
            let (expr, used) = inline_expr(expr, &values, schedule);
            last = used.or(last);
            nodes += count_nodes(&expr);
            expr
        });
        if nodes > MAX_NODES
            && let Some(Attach::Inline { span }) = last.map(|id| schedule.stage(id).attach)
        {
            let name = &schedule.stage(id).te.name;
            let text = format!("inlined here, the expression of `{name}` becomes too large");
            return Err(Box::new(
                Diag::new("E0344", span, text)
                    .note(format!("it has more than {MAX_NODES} operations"))
                    .help("compute one of the stages in between with `compute_at` or at the root"),
            ));
        }
        if let (true, Body::Map(all)) = (is_inline(schedule, id), &body) {
            for (buffer, value) in schedule.stage(id).te.buffers.iter().zip(all) {
                let value = Expr::cast(buffer.dtype, value.clone());
                values.insert(buffer.clone(), Inlined { stage: id, value });
            }
        }
        schedule.stage_mut(id).te.body = body;
    }
    let order = std::mem::take(&mut schedule.order);
    schedule.order = order.into_iter().filter(|id| !is_inline(schedule, *id)).collect();
    Ok(())
}

/// Returns the expression without reads of inlined stages, and one of the inlined stages.
fn inline_expr(
    expr: &Expr,
    values: &FxHashMap<Buffer, Inlined>,
    schedule: &Schedule,
) -> (Expr, Option<StageId>) {
    let mut used = None;
    let expr = rewrite(expr, values, schedule, &mut used);
    (expr, used)
}

fn rewrite(
    expr: &Expr,
    values: &FxHashMap<Buffer, Inlined>,
    schedule: &Schedule,
    used: &mut Option<StageId>,
) -> Expr {
    let expr = map_children(expr, &mut |child| rewrite(child, values, schedule, used));
    let ExprKind::Load { buffer, indices, .. } = &expr.kind else { return expr };
    let Some(inlined) = values.get(buffer) else { return expr };
    *used = Some(inlined.stage);
    let axes = &schedule.stage(inlined.stage).te.axes;
    substitute(&inlined.value, &mut |var| {
        let at = axes.iter().position(|axis| axis.var == *var)?;
        Some(indices[at].clone())
    })
}

/// Returns the number of nodes of a tree; counting stops above the limit.
fn count_nodes(expr: &Expr) -> usize {
    fn count(expr: &Expr, nodes: &mut usize) {
        *nodes += 1;
        if *nodes <= MAX_NODES {
            crate::ir::visit::for_each_child(expr, &mut |child| count(child, nodes));
        }
    }
    let mut nodes = 0;
    count(expr, &mut nodes);
    nodes
}
