//! From loop IR to machine code.
//!
//! [`clif`] compiles each kernel to two functions that only this object sees, then
//! `entry::emit_entries` builds the exported entry points of ABI.md around them:
//!
//! - `NAME.body(params…) -> i32`: 0 when done, 1 when out of memory, 2 when the host's function
//!   for parallel loops failed. It verifies nothing.
//! - `NAME.check(params…, dims…, values) -> i32`: 0, or 1 + the index of the `Assert` that failed.
//!
//! Parallel loops of the body are functions `NAME.task.K`, called by the runtime. Kernels for GPUs
//! are compiled by [`ptx`]; the entries of a module for them launch what it made.
//!
//! Both take [`Kernel::params`](crate::ir::Kernel::params) in order: tensors as pointers (i64),
//! run-time integers as i64, scalars in their declared type (floats as f64 or f32, halves as the
//! i16 of their bits, `bool` as i8, any non-zero value is true). They use the target's CPU
//! features and the default floating-point mode, so an entry has to establish both first.

pub mod clif;
pub mod entry;
pub mod ptx;
pub mod simd;

use crate::ir::Kernel;
use cranelift_module::FuncId;
use ptx::PtxKernel;

/// Set in the result of `NAME.check` beside the index when index arithmetic of the failed
/// `Assert` overflowed 64 bits; `values` are meaningless then.
pub const CHECK_OVERFLOW: i32 = 1 << 30;

/// Number of i64 elements that the `values` argument of `NAME.check` points to.
pub const CHECK_VALUES: usize = 4;

/// A compiled kernel, as the entry points see it.
#[derive(Clone, Debug)]
pub struct EntryKernel<'a> {
    /// Its params, dims and name.
    pub kernel: &'a Kernel,
    /// `NAME.body`; of a kernel for GPUs `NAME.plan.body`, which takes a pointer to i64 after the
    /// params and stores [`PtxKernel::numbers`] there.
    pub body: FuncId,
    /// `NAME.check`; none if the kernel has no checks. After the params it takes one i64 per
    /// [`Kernel::dims`], then a pointer to [`CHECK_VALUES`] i64, which it fills for the message.
    pub check: Option<FuncId>,
    /// The text of each `Assert` in textual order; `{0}` … `{3}` stand for the values.
    pub messages: Vec<String>,
    /// `NAME.bytes` of the kernels of [`clif::ObjectOptions::sized`]: takes the run-time integers
    /// and a pointer to i64, where it stores the bytes of the kernel's output.
    pub bytes: Option<FuncId>,
    /// What a kernel for GPUs launches.
    pub launches: Option<&'a PtxKernel>,
}

/// The object file of a module: kernels and entries, the runtime's symbols undefined.
#[derive(Clone, Debug)]
pub struct Object {
    /// ELF relocatable file.
    pub bytes: Vec<u8>,
    /// Assembly listing, if asked for.
    pub listing: Option<String>,
}
