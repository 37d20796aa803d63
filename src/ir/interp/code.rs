//! The instructions of the virtual machine, over numbered registers.

use super::scalar::{BinaryFn, IndexFn, UnaryFn};
use crate::ir::{Buffer, DType, Expr, Intrinsic, Stmt};

/// The number of a register. A vector is in consecutive registers, one for each lane.
pub type Reg = u32;
/// An index into [`Code::ops`].
pub type Pc = u32;

/// An instruction. `d` is the destination, `n` the number of lanes.
#[derive(Clone, Debug)]
pub enum Op {
    /// `d = a`.
    Copy { d: Reg, a: Reg, n: u32 },
    /// Scalar `d = f(a)`.
    Unary { f: UnaryFn, d: Reg, a: Reg },
    /// Lane by lane.
    UnaryLanes { f: UnaryFn, d: Reg, a: Reg, n: u32 },
    /// Scalar `d = f(a, b)`.
    Binary { f: BinaryFn, d: Reg, a: Reg, b: Reg },
    /// Lane by lane.
    BinaryLanes { f: BinaryFn, d: Reg, a: Reg, b: Reg, n: u32 },
    /// Scalar `index` addition, the most frequent operation.
    IndexAdd { d: Reg, a: Reg, b: Reg },
    /// Scalar `index` multiplication.
    IndexMul { d: Reg, a: Reg, b: Reg },
    /// Any `index` operation that may overflow.
    Index { f: IndexFn, d: Reg, a: Reg, b: Reg, n: u32 },
    /// `d = c ? t : f`.
    Select { d: Reg, c: Reg, t: Reg, f: Reg, n: u32 },
    /// `d = a*b + c`.
    Fma { dtype: DType, d: Reg, a: Reg, b: Reg, c: Reg, n: u32 },
    /// A math function of one or two arguments.
    Call { function: Intrinsic, dtype: DType, d: Reg, a: Reg, b: Option<Reg>, n: u32 },
    /// `base + stride * lane`, as `index` or wrapping in another type.
    Ramp { dtype: DType, d: Reg, base: Reg, stride: Reg, n: u32 },
    /// A scalar in every lane.
    Broadcast { d: Reg, a: Reg, n: u32 },
    /// Scalar, one index, no mask.
    Load { d: Reg, buffer: u32, index: Reg },
    /// Any other load: see [`Code::accesses`].
    LoadAny { access: u32 },
    /// Scalar, one index, no mask.
    Store { a: Reg, buffer: u32, index: Reg },
    /// Any other store.
    StoreAny { access: u32 },
    /// Continues at `to`.
    Jump { to: Pc },
    /// Continues at `to` if a scalar is true.
    JumpIf { c: Reg, to: Pc },
    /// Continues at `to` if a scalar is false.
    JumpUnless { c: Reg, to: Pc },
    /// Continues at `to` if every lane equals `value`.
    JumpIfAll { c: Reg, value: u64, n: u32, to: Pc },
    /// Begins a loop: `var = min`, `last = min + extent - 1`; continues at `exit` if it is empty.
    Loop { var: Reg, min: Reg, extent: Reg, last: Reg, exit: Pc },
    /// The next iteration, at `body`.
    Next { var: Reg, last: Reg, body: Pc },
    /// Invalidates the results of all shared computations.
    Forget,
    /// Runs a shared computation unless `done` says that it ran since the last `Forget`.
    Shared { done: Reg, to: Pc },
    /// The end of a shared computation.
    Return { done: Reg },
    /// Allocates memory, unwritten.
    Allocate { allocation: u32 },
    /// Forgets the keys of a sort.
    BeginSort,
    /// Adds a key.
    SortKey { a: Reg },
    /// Stores the positions of the first `count` keys in order.
    Sort { order: u32, count: Reg, dtype: DType, descending: bool },
    /// From here to the `Assert`, an overflow makes the check fail.
    BeginAssert { assert: u32 },
    /// Fails unless the condition holds.
    Assert { assert: u32 },
    /// Runs the following code for every thread of a launch.
    Launch { launch: u32 },
    /// A barrier.
    Barrier,
    /// Ends the thread, or the run.
    Halt,
}

/// A load or store of any form.
#[derive(Clone, Debug)]
pub struct Access {
    /// The number of the buffer.
    pub buffer: u32,
    /// Registers of the indices, and whether each has lanes.
    pub indices: Vec<(Reg, bool)>,
    /// The mask; all lanes are accessed if absent.
    pub mask: Option<Reg>,
    /// The stored value, or the destination of a load.
    pub value: Reg,
    /// The number of lanes.
    pub lanes: u32,
}

/// A condition to be checked.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// The condition.
    pub cond: Reg,
    /// The text with `{0}` for values.
    pub message: String,
    /// The values.
    pub values: Vec<Reg>,
}

/// An allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The number of the buffer.
    pub buffer: u32,
    /// Registers of its extents.
    pub shape: Vec<Reg>,
}

/// A launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The indices that its loops bind.
    pub dims: Vec<LaunchDim>,
    /// Shared memory.
    pub shared: Vec<Allocation>,
    /// Buffers of the threads.
    pub locals: Vec<u32>,
    /// Global buffers that are written.
    pub tracked: Vec<u32>,
    /// Whether it contains a barrier.
    pub has_barriers: bool,
    /// The instruction after the launch.
    pub end: Pc,
}

/// An index of a launch.
#[derive(Clone, Debug)]
pub struct LaunchDim {
    /// The position in `GPU_INDICES`.
    pub position: usize,
    /// The register of the variable.
    pub var: Reg,
    /// The register of the extent.
    pub extent: Reg,
}

/// The source of an instruction that may trap, for the message.
#[derive(Clone, Debug)]
pub enum Culprit {
    /// An expression.
    Expr(Expr),
    /// A statement.
    Stmt(Stmt),
}

/// Compiled statements.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The instructions, ending in `Halt`.
    pub ops: Vec<Op>,
    /// The number of registers.
    pub registers: u32,
    /// Registers that hold constants.
    pub constants: Vec<(Reg, u64)>,
    /// All accessed buffers.
    pub buffers: Vec<Buffer>,
    /// The operands of `LoadAny` and `StoreAny`.
    pub accesses: Vec<Access>,
    /// The operands of `Assert`.
    pub assertions: Vec<Assertion>,
    /// The operands of `Allocate`.
    pub allocations: Vec<Allocation>,
    /// The operands of `Launch`.
    pub launches: Vec<Launch>,
    /// The source and the innermost scope of each instruction that may trap, ascending.
    pub sites: Vec<(Pc, Culprit, Option<u32>)>,
    /// Variables in scope: name, register, enclosing scope.
    pub scopes: Vec<(String, Reg, Option<u32>)>,
}
