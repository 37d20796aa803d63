//! Rules for reductions along rows: `partial` and `rows`.

use super::plan::Planner;

/// Partial results in lanes.
pub(super) fn partial(_planner: &mut Planner, _at: usize) -> bool {
    false
}

/// Several rows at once.
pub(super) fn rows(_planner: &mut Planner, _at: usize) -> bool {
    false
}
