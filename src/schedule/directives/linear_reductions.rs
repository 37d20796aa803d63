//! What `scan` and `scatter` share: their annotations, of which a stage can have only one kind, and
//! checks of the axis and of index arithmetic.

use crate::ir::Expr;
use crate::ir::arith::Facts;
use crate::schedule::state::{AxisId, AxisKind, Stage};
use crate::te::{Body, Reduction};

/// The annotation of a stage that is computed by a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The data axis, by its index among the declared ones.
    pub axis: usize,
    /// The reduction axis whose loop the scan replaces, by its index among the declared ones.
    pub term: usize,
    /// The value of the reduction axis in the terms that an element adds to those of its
    /// predecessor, over the declared data axes.
    pub value: Expr,
    /// Whether elements are computed from the last to the first.
    pub reverse: bool,
    /// The axis or part of it along which elements have a predecessor: the declared axis, or the
    /// inner part of its split if each block has a start value of its own.
    pub within: AxisId,
}

impl Scan {
    /// Whether each block of elements begins with a start value of its own.
    pub fn is_in_blocks(&self) -> bool {
        self.within.0 != self.axis
    }
}

/// The annotation of a stage whose terms are scattered along a data axis.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The data axis, by its index among the declared ones.
    pub axis: usize,
}

/// Returns the reduction of a stage with a `where=`, for a directive along one of its declared data
/// axes. The error says what is missing.
pub(super) fn conditional_reduction<'a>(
    stage: &'a Stage,
    axis: AxisId,
    directive: &str,
) -> Result<&'a Reduction, String> {
    let (name, loop_name) = (&stage.te.name, &stage.axis(axis).name);
    let Body::Reduce(reduction) = &stage.te.body else {
        return Err(format!("`{name}` is not a reduction"));
    };
    if axis.0 >= stage.rank() {
        return Err(match stage.axis(axis).kind {
            AxisKind::Reduce => format!("`{loop_name}` is a reduction axis"),
            AxisKind::Data => format!(
                "`{loop_name}` is part of an axis: write the `{directive}` before the `split`"
            ),
        });
    }
    if stage.te.recurrence.as_ref().is_some_and(|recurrence| axis.0 < recurrence.steps) {
        return Err(format!("`{loop_name}` is a step of a recurrence"));
    }
    match reduction.condition {
        Some(_) => Ok(reduction),
        None => Err(format!("`{name}` has no `where=`")),
    }
}

/// The largest magnitude of an index that a directive computes and the source does not.
const MAX_INDEX: i128 = 1 << 62;

/// Whether an index provably needs no more than 64 bits.
pub(super) fn is_small(index: &Expr, facts: &Facts) -> bool {
    let (low, high) = facts.const_bounds(index);
    low.is_some_and(|low| low >= -MAX_INDEX) && high.is_some_and(|high| high <= MAX_INDEX)
}
