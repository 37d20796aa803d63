//! Skip empty nests: what stores nothing takes no time, however large its other extents are.
//!
//! Before: `for (j, 0, m) { for (i, 0, n) { c[…] = … } }`
//! After:  `if (0 < n) { for (j, 0, m) { for (i, 0, n) { c[…] = … } } }`
//! The last pass: nobody after it looks for nests.

use crate::diag::Result;
use crate::ir::Kernel;
use crate::target::Target;

/// Makes the loops ask first whether anything inside of them has an iteration.
pub fn skip_empty_nests(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = crate::ir::empty::skip_empty_nests(&kernel);
    Ok(Kernel { body, ..kernel })
}
