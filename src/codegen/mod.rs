//! From loop IR to machine code.
//!
//! [`clif`] compiles each kernel to two functions that are local to the object. [`entry`] builds
//! the exported entry points of docs/ABI.md around them, and [`object`] composes both:
//!
//! - `NAME.body(params…) -> i32`: 0 when done, 1 when out of memory, 2 when the host's function
//!   for parallel loops failed. It verifies nothing.
//! - `NAME.check(params…, dims…, values) -> i32`: 0, or 1 + the index of the `Assert` that failed.
//!
//! Parallel loops of the body are functions `NAME.task.K`, which the runtime calls. [`ptx`]
//! compiles kernels for GPUs, and the entries of their module launch the PTX.
//!
//! Body and check take [`Kernel::params`](crate::ir::Kernel::params) in order: tensors as pointers
//! (i64), run-time integers as i64, scalars in their declared type (floats as f64 or f32, halves as
//! the i16 of their bits, `bool` as i8, any non-zero value is true). They use the target's CPU
//! features and the default floating-point mode, so an entry has to establish both first.

pub mod clif;
mod common;
pub mod entry;
mod object;
pub mod ptx;
pub mod simd;

use cranelift_module::FuncId;
pub use object::{compile_launchers, compile_object};

/// What goes into the object beside the kernels.
#[derive(Clone, Debug, Default)]
pub struct ObjectOptions {
    /// The module's name: prefix of `MODULE_last_error` and its like.
    pub module: String,
    /// Text returned by `MODULE_manifest`.
    pub manifest: String,
    /// Also make an assembly listing.
    pub listing: bool,
    /// `--opt`: 0 turns Cranelift's optimiser off.
    pub opt: u8,
    /// Kernels with one output that get a `NAME_bytes`, which returns its size.
    pub sized: Vec<String>,
}

/// The object file of a module: kernels and entries, the runtime's symbols undefined.
#[derive(Clone, Debug)]
pub struct Object {
    /// ELF relocatable file.
    pub bytes: Vec<u8>,
    /// Assembly listing, if asked for.
    pub listing: Option<String>,
}

/// The functions of a compiled kernel, before it has entries.
#[derive(Clone, Debug)]
struct KernelFunctions {
    /// `NAME.body`; of a kernel for GPUs `NAME.plan.body`, which takes a pointer to i64 after the
    /// params and stores [`PtxKernel::numbers`](ptx::PtxKernel::numbers) there.
    body: FuncId,
    /// `NAME.check`; none if the kernel has no checks. After the params it takes one i64 per
    /// [`Kernel::dims`](crate::ir::Kernel::dims), then a pointer to [`common::CHECK_VALUES`] i64,
    /// which it fills for the message.
    check: Option<FuncId>,
    /// The text of each `Assert` in textual order; `{0}` … `{3}` stand for the values.
    messages: Vec<String>,
    /// `NAME.bytes` of the kernels of [`ObjectOptions::sized`]: takes the run-time integers and a
    /// pointer to i64, where it stores the bytes of the kernel's output.
    bytes: Option<FuncId>,
}
