//! Instructions that do what an intrinsic of `lib/intrinsics.te` does.

use super::nest::Selector;
use crate::ir::Stmt;

impl Selector<'_> {
    /// Selects the instruction for a nest that `tensorize` matched; `false` if there is none and
    /// the loops have to run.
    pub(super) fn tensor_instruction(&mut self, _name: &str, _body: &Stmt) -> bool {
        false
    }
}
