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
mod unwind;

use crate::ir::tile::has_tile_product;
use crate::ir::{Expr, Kernel};
use crate::target::Target;
use cranelift_module::FuncId;
pub use object::{compile_launchers, compile_object, compile_variants};
use std::sync::Arc;

/// An operand of a call in the body of a network.
#[derive(Clone, Debug)]
pub enum Operand {
    /// The parameter of the network at this position.
    Param(usize),
    /// The address of the constant at this position.
    Constant(usize),
    /// The address of a tensor in the arena, at this offset in bytes.
    Arena(Expr),
    /// An expression of run-time integers of the network.
    Integer(Expr),
}

/// A call of a kernel in the body of a network.
#[derive(Clone, Debug)]
pub struct CallCode {
    /// The position of the kernel in [`NetworkCode::kernels`].
    pub kernel: usize,
    /// One for each of its parameters.
    pub operands: Vec<Operand>,
}

/// The elements of a constant tensor, row-major, little-endian.
pub type ConstantBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A lowered network: `NAME.body` calls kernels that have no entries of their own.
#[derive(Clone)]
pub struct NetworkCode {
    /// Name, parameters and checks; its body is empty.
    pub entry: Kernel,
    /// The kernels, lowered. Their names are unique in the module.
    pub kernels: Vec<Kernel>,
    /// The calls, in order.
    pub calls: Vec<CallCode>,
    /// The size of the arena, over run-time integers; none if no call needs it.
    pub arena_bytes: Option<Expr>,
    /// The constants.
    pub constants: Vec<ConstantBytes>,
}

/// The functions of a module, lowered.
#[derive(Clone, Copy)]
pub struct Code<'a> {
    /// The kernels.
    pub kernels: &'a [Kernel],
    /// The networks.
    pub networks: &'a [NetworkCode],
}

impl<'a> Code<'a> {
    /// Whether a kernel computes in tile registers.
    fn has_tiles(self) -> bool {
        let inner = self.networks.iter().flat_map(|network| &network.kernels);
        self.kernels.iter().chain(inner).any(|kernel| has_tile_product(&kernel.body))
    }

    /// Returns the kernels, and the entries of the networks behind them.
    pub fn entries(self) -> impl Iterator<Item = &'a Kernel> {
        self.kernels.iter().chain(self.networks.iter().map(|network| &network.entry))
    }
}

/// The functions of a module, lowered for one of its targets.
#[derive(Clone, Copy)]
pub struct Variant<'a> {
    /// The functions, in the same order in all variants.
    pub code: Code<'a>,
    /// The target.
    pub target: &'a Target,
}

/// Returns a suffix for the symbols of a variant: `__x86_avx512_vnni`.
fn variant_suffix(target: &Target) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("__{}", target.to_string().chars().map(allowed).collect::<String>())
}

impl<'a> From<&'a [Kernel]> for Code<'a> {
    fn from(kernels: &'a [Kernel]) -> Code<'a> {
        Code { kernels, networks: &[] }
    }
}

impl<'a> From<&'a Vec<Kernel>> for Code<'a> {
    fn from(kernels: &'a Vec<Kernel>) -> Code<'a> {
        Code::from(&kernels[..])
    }
}

impl<'a, const N: usize> From<&'a [Kernel; N]> for Code<'a> {
    fn from(kernels: &'a [Kernel; N]) -> Code<'a> {
        Code::from(&kernels[..])
    }
}

/// What goes into the object beside the kernels.
#[derive(Clone, Debug, Default)]
pub struct ObjectOptions {
    /// The module's name: prefix of `MODULE_last_error` and its like.
    pub module: String,
    /// Only the `_dl` entries are exported, and their names begin with this.
    pub symbol_prefix: Option<String>,
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
    /// Relocatable file in the format of the operating system.
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
