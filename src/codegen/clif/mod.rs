//! The Cranelift back end: every CPU target, scalars and 128-bit vectors.

use super::Object;
use crate::diag::Result;
use crate::ir::Kernel;
use crate::target::Target;

/// What goes into the object beside the kernels.
#[derive(Clone, Debug, Default)]
pub struct ObjectOptions {
    /// The module's name: prefix of `MODULE_last_error` and its like.
    pub module: String,
    /// Text returned by `MODULE_manifest`.
    pub manifest: String,
    /// Also make an assembly listing.
    pub listing: bool,
    /// `--opt`: 0 leaves Cranelift's optimiser off.
    pub opt: u8,
}

/// Compiles kernels, their checks and their entries into one object file.
pub fn compile_object(
    kernels: &[Kernel],
    target: &Target,
    options: &ObjectOptions,
) -> Result<Object> {
    let _ = (kernels, target, options);
    crate::bug!("the Cranelift back end is not written")
}
