//! `hoist_invariants`.

use crate::diag::Result;
use crate::ir::Kernel;
use crate::target::Target;

/// See above.
pub fn hoist_invariants(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let _ = target;
    Ok(kernel)
}
