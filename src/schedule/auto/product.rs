//! The rule for matrix products and convolutions: `product`.

use super::plan::Planner;

/// A tile of results in registers.
pub(super) fn product(_planner: &mut Planner, _at: usize) -> bool {
    false
}
