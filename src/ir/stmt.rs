//! Statements of the loop IR and the kernel that holds them.
//!
//! # GPUs
//!
//! A `Produce` that contains a `Thread` loop of a GPU index, and stands in no other such one, is a
//! *launch*: one kernel of the GPU. Launches run one after the other; what one wrote is there for
//! the next. In a launch every GPU index has one variable and one extent, however many loops name
//! it, and every thread of every block runs the whole body: serial loops, `let`s and all. A
//! `Thread` loop is no loop then. It makes the index known, and its body is run by the threads
//! whose index is below its extent. An index that no loop of the launch names has extent 1.
//!
//! Blocks run in any order or at once, and so do the threads of a block between two places where
//! they meet: a `Barrier`, or before `insert_barriers` the beginning and the end of a *shared
//! stage*, which is a `Produce` with a store to shared memory that is in no other `Produce` inside
//! it. All threads of the block meet there; what stands around may depend on the block's index,
//! but not on the thread's. Two accesses of one element by different threads of a block, at least
//! one of them a write, without such a place between them, are a race, and so are two by different
//! blocks: the program is wrong then. The interpreter traps.

use super::ThreadIndex;
use super::expr::{Buffer, Expr, Var};
use super::types::DType;

/// How the iterations of a loop are run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForKind {
    /// One after the other, ascending.
    Serial,
    /// In any order, at the same time; iterations are independent.
    Parallel,
    /// All at once, one lane each; gone after `vectorize_loops`.
    Vectorized,
    /// Serial, to be written out; gone after `unroll_loops`.
    Unrolled,
    /// Serial, left to the back end to write out: it runs it as a loop if it cannot.
    UnrollHint,
    /// The index of a GPU's block or thread, from 0: `blockIdx.x`, `threadIdx.y` (see above). Or a
    /// `vthread`: serial, but the iterations do not depend on each other, and
    /// `inject_virtual_threads` writes them out side by side.
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
    /// The one of [`GPU_INDICES`] that a loop is about; none for `vthread`.
    pub fn gpu_index(&self) -> Option<ThreadIndex> {
        match self {
            ForKind::Thread(index) if *index != ThreadIndex::Virtual => Some(*index),
            _ => None,
        }
    }

    /// Whether its iterations are virtual threads.
    pub fn is_vthread(&self) -> bool {
        matches!(self, ForKind::Thread(ThreadIndex::Virtual))
    }
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// One after the other; may be empty.
    Block(Vec<Stmt>),
    /// `for var in min .. min + extent`; no iteration if `extent <= 0`.
    For {
        /// Loop variable, type `index`, bound in `body` only.
        var: Var,
        /// First value.
        min: Expr,
        /// Number of iterations, evaluated once, before the first.
        extent: Expr,
        /// How they run.
        kind: ForKind,
        /// What they do.
        body: Box<Stmt>,
    },
    /// Runs one of the two; scalar condition.
    If {
        /// Condition, `bool`.
        cond: Expr,
        /// Where it is true.
        then: Box<Stmt>,
        /// Where it is false.
        otherwise: Option<Box<Stmt>>,
    },
    /// `buffer[indices] = value`. The value has the buffer's element type (a half value is made
    /// by a `Cast`). All operands are evaluated before memory changes.
    Store {
        /// What is written.
        buffer: Buffer,
        /// One per dimension before `flatten_storage`, exactly one after.
        indices: Vec<Expr>,
        /// The new value.
        value: Expr,
        /// Lanes that are written; all if absent.
        mask: Option<Expr>,
        /// A hint that nobody reads the elements soon, so that they need no place in the caches. No
        /// effect. Global buffers only; gone after `drop_hints` where the back end has no such
        /// instruction.
        nontemporal: bool,
    },
    /// A variable for the statements of `body`.
    Let {
        /// The variable.
        var: Var,
        /// Evaluated once.
        value: Expr,
        /// Where it is visible.
        body: Box<Stmt>,
    },
    /// Memory for `buffer` while `body` runs; uninitialised (the interpreter traps on a read of
    /// an element never written). In a launch every thread has a `local` or `register` buffer of
    /// its own. A `shared` one belongs to the block and is there as long as the block runs: in a
    /// loop it is the same memory in every iteration, with what it held.
    Allocate {
        /// What is allocated.
        buffer: Buffer,
        /// Where it is visible.
        body: Box<Stmt>,
    },
    /// The statements that compute the stage `name`: a launch or a shared stage if they are (see
    /// above), else a mark for readers of dumps.
    Produce {
        /// The stage's name.
        name: String,
        /// What computes it.
        body: Box<Stmt>,
    },
    /// `body` does what the intrinsic `name` of `lib/intrinsics.te` does; means `body`. A back end
    /// that has the instruction puts it in its place, any other one runs the loops.
    Tensorize {
        /// The intrinsic's name.
        name: String,
        /// Its loop nest, over the buffers at hand.
        body: Box<Stmt>,
    },
    /// `body`, to be compiled with the target's wide vectors: a nest that `outline_simd` selected.
    /// Means `body`.
    SimdKernel {
        /// A nest without parallel loops.
        body: Box<Stmt>,
    },
    /// A hint that the element is read soon. No effect, and the indices may lie outside: they are
    /// not evaluated as far as results are concerned. Gone after `drop_hints` on targets without
    /// such an instruction.
    Prefetch {
        /// What is read soon.
        buffer: Buffer,
        /// One per dimension before `flatten_storage`, exactly one after; scalars without loads.
        indices: Vec<Expr>,
    },
    /// Only in [`Kernel::checks`]: the entry fails with `message` if `cond` is false or if an
    /// `index` operation in `cond` or `values` overflows.
    Assert {
        /// What must hold.
        cond: Expr,
        /// User's text; `{0}`, `{1}` … stand for `values` in decimal.
        message: String,
        /// At most four, type `index`.
        values: Vec<Expr>,
    },
    /// All threads of the GPU block meet: what they did before is done before anything after it
    /// begins. In a launch only, where nothing around depends on the thread's index.
    Barrier,
    /// `body`, whose stores to shared memory may be copies that go on behind the thread's back: a
    /// *group*. Nobody accesses what they write before `AwaitCopies` waits for the group. Means
    /// `body`. An empty one counts as a group too.
    CopyGroup {
        /// What is copied.
        body: Box<Stmt>,
    },
    /// A `Barrier`, before which each thread waits for its groups but the last `in_flight` ones.
    AwaitCopies {
        /// How many groups may still be under way.
        in_flight: u32,
    },
}

impl Stmt {
    /// The empty statement.
    pub fn nothing() -> Stmt {
        Stmt::Block(Vec::new())
    }

    /// A serial loop from 0.
    pub fn serial(var: Var, extent: Expr, body: Stmt) -> Stmt {
        let min = Expr::index(0);
        Stmt::For { var, min, extent, kind: ForKind::Serial, body: Box::new(body) }
    }

    /// An unmasked store.
    pub fn store(buffer: &Buffer, indices: Vec<Expr>, value: Expr) -> Stmt {
        let (buffer, mask) = (buffer.clone(), None);
        Stmt::Store { buffer, indices, value, mask, nontemporal: false }
    }
}

/// An argument of the raw entry point, in its order: inputs as declared, outputs as declared,
/// then every run-time integer.
#[derive(Clone, Debug)]
pub enum Param {
    /// A tensor, passed as a pointer.
    Tensor {
        /// Its shape is over the run-time integers.
        buffer: Buffer,
        /// Written, not read.
        output: bool,
        /// The user allows another layout (manifest).
        layout_free: bool,
    },
    /// A scalar `input`, by value. `dtype` is the declared type; the variable has its compute
    /// type (a half arrives as `uint16_t`; the prologue of the body widens it).
    Scalar {
        /// What the body reads.
        var: Var,
        /// The declared type.
        dtype: DType,
    },
    /// A run-time integer (`n: var`).
    Runtime {
        /// What shapes, loops and the body read; type `index`.
        var: Var,
        /// The first parameter and dimension whose extent is exactly this variable; without one
        /// it is an argument of the checked entries too.
        source: Option<(usize, usize)>,
    },
}

impl Param {
    /// The user's name for it.
    pub fn name(&self) -> &str {
        match self {
            Param::Tensor { buffer, .. } => &buffer.name,
            Param::Scalar { var, .. } | Param::Runtime { var, .. } => var.name(),
        }
    }
}

/// The actual extent of an argument's dimension that is neither a constant nor a lone run-time
/// integer; the checked entries bind `var` to it and [`Kernel::checks`] compares it.
#[derive(Clone, Debug)]
pub struct ActualDim {
    /// Index into [`Kernel::params`].
    pub param: usize,
    /// Which dimension of that tensor.
    pub dim: usize,
    /// Bound to the actual extent in `checks` only.
    pub var: Var,
}

/// A function of the module.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The exported name.
    pub name: String,
    /// Arguments of the raw entry.
    pub params: Vec<Param>,
    /// Extra variables of `checks`.
    pub dims: Vec<ActualDim>,
    /// What the checked entries verify beyond the types, constant extents and lone run-time
    /// integers of the arguments: loops, conditions, `let`s and `Assert`s, in order. Reads
    /// inputs, writes nothing. Assumes nothing but that buffers are as long as their actual extents
    /// say.
    pub checks: Stmt,
    /// What it computes. Valid when `checks` pass.
    pub body: Stmt,
    /// True if the order of floating-point operations may differ from the source.
    pub reassociated: bool,
    /// Facts about the run-time integers (`assume`s, extents not negative), for the simplifier.
    pub facts: Vec<Expr>,
}

impl Kernel {
    /// A kernel of which nothing is to be checked and nothing is known beside its body.
    pub fn new(name: &str, params: Vec<Param>, body: Stmt) -> Kernel {
        let (name, dims, checks, facts) = (name.into(), Vec::new(), Stmt::nothing(), Vec::new());
        Kernel { name, params, dims, checks, body, reassociated: false, facts }
    }
}
