//! Statements of the loop IR and the kernel that holds them.
//!
//! # GPUs
//!
//! An outermost `Produce` that contains a `Thread` loop over a GPU index is a *launch*: one kernel
//! of the GPU. Launches run one after the other; each reads what earlier ones wrote. In a launch,
//! every GPU index has one variable and one extent, even if several loops bind it. Every thread of
//! every block runs the whole body, including serial loops and `let`s. A `Thread` loop does not
//! iterate: it defines the index, and the threads whose index is below its extent run its body. An
//! index that no loop of the launch binds has extent 1.
//!
//! Blocks run in any order or concurrently. So do the threads of a block between two barriers. A
//! barrier is a `Barrier`, or before `insert_barriers` the beginning and the end of a *shared
//! stage*: a `Produce` with a store to shared memory outside of its inner `Produce`s. All threads
//! of the block must reach a barrier, so the control flow around it may depend on the block's index
//! but not on the thread's. Two accesses to one element, at least one of them a write, are a race
//! if different threads of a block make them without a barrier in between, or if different blocks
//! make them. A program with a race is invalid; the interpreter traps.

use super::ThreadIndex;
use super::expr::{Buffer, Expr, Var};
use super::types::DType;
use serde::{Deserialize, Serialize};

/// How the iterations of a loop are run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForKind {
    /// One after the other, ascending.
    Serial,
    /// In any order or concurrently; iterations are independent.
    Parallel,
    /// All at once, one lane for each; removed by `vectorize_loops`.
    Vectorized,
    /// Serial; `unroll_loops` writes out the iterations.
    Unrolled,
    /// Serial; the back end writes out the iterations if it can.
    UnrollHint,
    /// Over the index of a GPU's block or thread, from 0, such as `blockIdx.x` (see above). Or over
    /// a `vthread`: serial and independent iterations, which `inject_virtual_threads` interleaves.
    Thread(ThreadIndex),
}

/// The indices of a GPU's blocks and threads, in the order of the loops after `hoist_threads`.
pub const GPU_INDICES: [ThreadIndex; 6] = [
    ThreadIndex::Block(2),
    ThreadIndex::Block(1),
    ThreadIndex::Block(0),
    ThreadIndex::Thread(2),
    ThreadIndex::Thread(1),
    ThreadIndex::Thread(0),
];

impl ForKind {
    /// Returns the GPU index that the loop binds; `None` for `vthread` and other loops.
    pub fn gpu_index(&self) -> Option<ThreadIndex> {
        match self {
            ForKind::Thread(index) if *index != ThreadIndex::Virtual => Some(*index),
            _ => None,
        }
    }

    /// Whether the iterations are virtual threads.
    pub fn is_vthread(&self) -> bool {
        matches!(self, ForKind::Thread(ThreadIndex::Virtual))
    }
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// Statements that run one after the other; may be empty.
    Block(Vec<Stmt>),
    /// `for var in min .. min + extent`; no iteration if `extent <= 0`.
    For {
        /// The loop variable, of type `index`, bound in `body` only.
        var: Var,
        /// The first value.
        min: Expr,
        /// The number of iterations, evaluated once.
        extent: Expr,
        /// How the iterations run.
        kind: ForKind,
        /// The statement of an iteration.
        body: Box<Stmt>,
    },
    /// Runs one of two statements.
    If {
        /// The condition, a scalar `bool`.
        cond: Expr,
        /// Runs if it is true.
        then: Box<Stmt>,
        /// Runs if it is false.
        otherwise: Option<Box<Stmt>>,
    },
    /// `buffer[indices] = value`. The value has the element type of the buffer (a `Cast` makes
    /// halves). All operands are evaluated before memory changes.
    Store {
        /// The buffer that is written.
        buffer: Buffer,
        /// One per dimension before `flatten_storage`, exactly one after.
        indices: Vec<Expr>,
        /// The new value.
        value: Expr,
        /// The lanes that are written; all if absent.
        mask: Option<Expr>,
        /// A hint to bypass the caches, because the elements are not read soon. Global buffers
        /// only. `drop_hints` removes it if the back end has no such instruction.
        nontemporal: bool,
    },
    /// Binds a variable in `body`.
    Let {
        /// The variable.
        var: Var,
        /// The value, evaluated once.
        value: Expr,
        /// The scope.
        body: Box<Stmt>,
    },
    /// Allocates memory for `buffer` while `body` runs, uninitialised (the interpreter traps on
    /// reads of elements that were never written). In a launch, every thread has its own `local`
    /// and `register` buffers. A `shared` buffer belongs to the block and exists as long as the
    /// block: in a loop it keeps its contents from one iteration to the next.
    Allocate {
        /// The buffer.
        buffer: Buffer,
        /// The scope.
        body: Box<Stmt>,
    },
    /// Marks the statements that compute a stage. Has a meaning for launches and shared stages only
    /// (see above).
    Produce {
        /// The name of the stage.
        name: String,
        /// The statements.
        body: Box<Stmt>,
    },
    /// Stores the positions of an axis in order. CPUs only; `expand_sorts` replaces it by loops.
    Sort(Box<SortAxis>),
    /// Means `body`, which computes the intrinsic `name` of `lib/intrinsics.te`. A back end that
    /// has the instruction emits it; another one runs the loops.
    Tensorize {
        /// The name of the intrinsic.
        name: String,
        /// The loop nest of the intrinsic, over buffers of the kernel.
        body: Box<Stmt>,
    },
    /// Means `body`, a nest that `outline_simd` selected for the SIMD back end.
    SimdKernel {
        /// A nest without parallel loops.
        body: Box<Stmt>,
    },
    /// A hint that the element is read soon. The indices may be out of bounds and may overflow.
    /// `drop_hints` removes it on targets without such an instruction.
    Prefetch {
        /// The buffer.
        buffer: Buffer,
        /// One per dimension before `flatten_storage`, exactly one after; scalars without loads.
        indices: Vec<Expr>,
    },
    /// Only in [`Kernel::checks`]: the entry fails with `message` if `cond` is false or if an
    /// `index` operation in `cond` or `values` overflows.
    Assert {
        /// The condition, a scalar `bool`.
        cond: Expr,
        /// The text for the user; `{0}`, `{1}`, … stand for `values` in decimal.
        message: String,
        /// At most four, type `index`.
        values: Vec<Expr>,
    },
    /// A barrier: the memory accesses of all threads of the block before it are done before any
    /// after it begins. Only in launches, under control flow that does not depend on the thread's
    /// index.
    Barrier,
    /// Means `body`, whose stores to shared memory may be asynchronous copies: a *group*. No thread
    /// accesses the elements that they write before `AwaitCopies` waits for the group. An empty
    /// group counts.
    CopyGroup {
        /// The copies.
        body: Box<Stmt>,
    },
    /// A `Barrier` before which each thread waits for all its groups but the last `in_flight` ones.
    AwaitCopies {
        /// The number of groups that need not be complete.
        in_flight: u32,
        /// Whether warpgroup products before it (`ir::warp`) may still run after it. What they read
        /// and add to is not accessed before the next `AwaitCopies`.
        products_run: bool,
    },
}

/// `order[q]` = the position, from 0, of the `q`-th of the values `min .. min + extent` of `var`
/// in order of `key`, for each `q` in `0 .. count`.
///
/// Keys are compared as numbers: -0 equals 0, and a NaN is greater than all numbers and equals
/// every NaN. Of equal keys, the lesser value stands first, whether the order is ascending or
/// descending.
#[derive(Clone, Debug)]
pub struct SortAxis {
    /// Of type `int32`, with one dimension.
    pub order: Buffer,
    /// The number of positions that are stored, over run-time integers; at most `extent`.
    pub count: Expr,
    /// Of type `index`, bound in `key` only.
    pub var: Var,
    /// The first value.
    pub min: Expr,
    /// The number of values, at most the largest `int32`; nothing happens if it is not positive.
    pub extent: Expr,
    /// What the values are compared by: a number in a compute type.
    pub key: Expr,
    /// Whether the greatest key stands first.
    pub descending: bool,
}

impl Stmt {
    /// Returns the empty statement.
    pub fn nothing() -> Stmt {
        Stmt::Block(Vec::new())
    }

    /// Returns a serial loop from 0.
    pub fn serial(var: Var, extent: Expr, body: Stmt) -> Stmt {
        let min = Expr::index(0);
        Stmt::For { var, min, extent, kind: ForKind::Serial, body: Box::new(body) }
    }

    /// Returns a store without a mask.
    pub fn store(buffer: &Buffer, indices: Vec<Expr>, value: Expr) -> Stmt {
        let (buffer, mask) = (buffer.clone(), None);
        Stmt::Store { buffer, indices, value, mask, nontemporal: false }
    }
}

/// A parameter of the raw entry. Their order: `input`s and `inout`s as declared, outputs as
/// declared, then all run-time integers.
#[derive(Clone, Debug)]
pub enum Param {
    /// A tensor, passed as a pointer.
    Tensor {
        /// The tensor; its shape depends on run-time integers only.
        buffer: Buffer,
        /// Whether the kernel reads or writes it.
        role: Role,
        /// Whether the caller may store it in another layout (manifest).
        layout_free: bool,
    },
    /// A scalar `input`, by value. The variable has the compute type of `dtype`: a half is passed
    /// as `uint16_t` and widened at the beginning of the body.
    Scalar {
        /// The variable that the body uses.
        var: Var,
        /// The declared type.
        dtype: DType,
    },
    /// A run-time integer (`n: var`).
    Runtime {
        /// The variable, of type `index`.
        var: Var,
        /// Where the checked entries find its value. If there is no source, the variable is one of
        /// their parameters, too.
        source: Option<Source>,
    },
}

/// The place where a run-time integer is found: a parameter and a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The first extent that is this variable.
    Extent(usize, usize),
    /// The first stride that is this variable; no extent is.
    Stride(usize, usize),
}

/// What a kernel does with a tensor of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads it.
    Input,
    /// Writes each element; what it holds on entry does not matter.
    Output,
    /// Reads it, and writes some of its elements in place.
    Inout,
}

impl Role {
    /// Whether its elements change.
    pub fn is_written(self) -> bool {
        self != Role::Input
    }

    /// Whether the elements that it holds on entry matter.
    pub fn is_read(self) -> bool {
        self != Role::Output
    }
}

impl Param {
    /// Whether it is a tensor that the kernel writes.
    pub fn is_written(&self) -> bool {
        matches!(self, Param::Tensor { role, .. } if role.is_written())
    }

    /// Returns the name in the source.
    pub fn name(&self) -> &str {
        match self {
            Param::Tensor { buffer, .. } => &buffer.name,
            Param::Scalar { var, .. } | Param::Runtime { var, .. } => var.name(),
        }
    }
}

/// The actual extent of a dimension whose declared extent is neither a constant nor a single
/// run-time integer. The checked entries bind `var` to it, and [`Kernel::checks`] compares it.
#[derive(Clone, Debug)]
pub struct ActualDim {
    /// The position in [`Kernel::params`].
    pub param: usize,
    /// The dimension of that tensor.
    pub dim: usize,
    /// The variable; bound in `checks` only.
    pub var: Var,
}

/// A function of the module.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The name of the exported function.
    pub name: String,
    /// The parameters of the raw entry.
    pub params: Vec<Param>,
    /// Additional variables of `checks`.
    pub dims: Vec<ActualDim>,
    /// The checks of the checked entries, beyond types, constant extents and single run-time
    /// integers: loops, conditions, `let`s and `Assert`s. Reads inputs, writes nothing. Assumes
    /// only that buffers have their actual extents.
    pub checks: Stmt,
    /// The computation. Valid only after the checks passed.
    pub body: Stmt,
    /// Whether the order of floating-point operations may differ from the source.
    pub reassociated: bool,
    /// Facts about the run-time integers (`assume`s, extents not negative), for the simplifier.
    pub facts: Vec<Expr>,
}

impl Kernel {
    /// Creates a kernel without checks and facts.
    pub fn new(name: &str, params: Vec<Param>, body: Stmt) -> Kernel {
        let (name, dims, checks, facts) = (name.into(), Vec::new(), Stmt::nothing(), Vec::new());
        Kernel { name, params, dims, checks, body, reassociated: false, facts }
    }

    /// Adds the run-time extents that the checked entries would not know: neither single run-time
    /// integers nor compared by the checks. Kernels of a network have such, because the network
    /// has checked its arguments; a caller of one alone must pass the right ones.
    pub fn with_all_dims(mut self) -> Kernel {
        let is_bound = |extent: &Expr| {
            self.params.iter().any(|param| match param {
                Param::Runtime { var, source: Some(Source::Extent(..)) } => {
                    extent.as_var() == Some(var)
                }
                _ => false,
            })
        };
        let mut dims = Vec::new();
        for (param, tensor) in self.params.iter().enumerate() {
            let Param::Tensor { buffer, .. } = tensor else { continue };
            for (dim, extent) in buffer.declared_shape().iter().enumerate() {
                let is_known = self.dims.iter().any(|one| (one.param, one.dim) == (param, dim));
                if extent.as_int().is_none() && !is_known && !is_bound(extent) {
                    let var = Var::index(format!("{}_dim{dim}", buffer.name));
                    dims.push(ActualDim { param, dim, var });
                }
            }
        }
        self.dims.extend(dims);
        self
    }
}
