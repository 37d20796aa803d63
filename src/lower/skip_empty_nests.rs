//! Skip empty nests: tests in front of a nest whether it has an iteration that stores, so that the
//! other loops of an empty nest take no time.
//!
//! Before: `for (j, 0, m) { for (i, 0, n) { c[…] = … } }`
//! After:  `if (0 < n) { for (j, 0, m) { for (i, 0, n) { c[…] = … } } }`
//! Needs: loops in their final form. Stands directly before `expand_math`, the last pass, because
//! the condition would hide nests from the other passes.
//! Declines: nests with constant extents, and nests that are never empty.

use crate::diag::Result;
use crate::ir::Kernel;
use crate::target::Target;

/// Adds the conditions.
pub fn skip_empty_nests(kernel: Kernel, _target: &Target) -> Result<Kernel> {
    let body = crate::ir::empty::skip_empty_nests(&kernel);
    Ok(Kernel { body, ..kernel })
}
