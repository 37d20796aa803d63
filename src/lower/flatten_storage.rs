//! `flatten_storage`.

use crate::diag::Result;
use crate::ir::Kernel;
use crate::target::Target;

/// See above.
pub fn flatten_storage(kernel: Kernel, target: &Target) -> Result<Kernel> {
    let _ = target;
    Ok(kernel)
}
