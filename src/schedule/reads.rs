//! The reads of each stage's elements by other stages.

use super::state::{Schedule, StageId};
use crate::ir::visit::walk_expr;
use crate::ir::{Buffer, Expr, ExprKind};
use crate::te::Body;
use rustc_hash::FxHashMap;

/// A read of an element of a stage.
#[derive(Clone, Debug)]
pub(super) struct Read {
    /// The stage that reads.
    pub(super) by: StageId,
    /// The indices, over the axes of the reader as declared.
    pub(super) indices: Vec<Expr>,
    /// Whether the start value of a reduction reads.
    pub(super) initial: bool,
}

/// All reads of a schedule, by the stage that is read.
#[derive(Default)]
pub(super) struct Reads(FxHashMap<StageId, Vec<Read>>);

impl Reads {
    /// Collects the reads of all stages in the order.
    pub(super) fn of(schedule: &Schedule) -> Reads {
        let mut producers: FxHashMap<&Buffer, StageId> = FxHashMap::default();
        for id in &schedule.order {
            producers.extend(schedule.stage(*id).te.buffers.iter().map(|buffer| (buffer, *id)));
        }
        let mut reads: FxHashMap<StageId, Vec<Read>> = FxHashMap::default();
        for by in schedule.order.iter().copied() {
            let body = &schedule.stage(by).te.body;
            let mut find = |expr: &Expr, initial: bool| {
                walk_expr(expr, &mut |e| {
                    let ExprKind::Load { buffer, indices, .. } = &e.kind else { return };
                    if let Some(of) = producers.get(buffer) {
                        let indices = indices.clone();
                        reads.entry(*of).or_default().push(Read { by, indices, initial });
                    }
                });
            };
            match body {
                Body::Map(values) => values.iter().for_each(|value| find(value, false)),
                Body::Reduce(reduction) => {
                    reduction.identity.iter().for_each(|expr| find(expr, true));
                    reduction.terms.iter().for_each(|expr| find(expr, false));
                    reduction.condition.iter().for_each(|expr| find(expr, false));
                }
            }
        }
        Reads(reads)
    }

    /// The reads of a stage.
    pub(super) fn of_stage(&self, id: StageId) -> &[Read] {
        self.0.get(&id).map_or(&[], |reads| reads)
    }
}
