//! From loop IR to machine code.

pub mod clif;
pub mod entry;

use crate::ir::Kernel;

/// A kernel that is ready for a back end, with what the manifest and the entries need of it.
#[derive(Clone, Debug)]
pub struct CompiledKernel {
    /// The lowered kernel; params and checks describe the entries.
    pub kernel: Kernel,
}

/// The object file of a module: kernels and entries, the runtime's symbols undefined.
#[derive(Clone, Debug)]
pub struct Object {
    /// ELF relocatable file.
    pub bytes: Vec<u8>,
    /// Assembly listing, if asked for.
    pub listing: Option<String>,
}
