//! What the machine executes: straight code over numbered registers.

use super::scalar::{BinaryFn, IndexFn, UnaryFn};
use crate::ir::{Buffer, DType, Expr, Intrinsic, Stmt};

/// A register's number; a vector takes as many in a row as it has lanes.
pub type Reg = u32;
/// An index into [`Code::ops`].
pub type Pc = u32;

/// One instruction. `d` is where the result goes, `n` a number of lanes.
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
    /// Scalar `index` addition, the most frequent operation of all.
    IndexAdd { d: Reg, a: Reg, b: Reg },
    /// Scalar `index` multiplication.
    IndexMul { d: Reg, a: Reg, b: Reg },
    /// Any `index` operation that may overflow.
    Index { f: IndexFn, d: Reg, a: Reg, b: Reg, n: u32 },
    /// `d = c ? t : f`.
    Select { d: Reg, c: Reg, t: Reg, f: Reg, n: u32 },
    /// `d = a*b + c`.
    Fma { dtype: DType, d: Reg, a: Reg, b: Reg, c: Reg, n: u32 },
    /// A function of one argument, or two.
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
    /// Continues elsewhere.
    Jump { to: Pc },
    /// Continues elsewhere if a scalar is true.
    JumpIf { c: Reg, to: Pc },
    /// Continues elsewhere if a scalar is false.
    JumpUnless { c: Reg, to: Pc },
    /// Continues elsewhere if every lane equals `value`.
    JumpIfAll { c: Reg, value: u64, n: u32, to: Pc },
    /// Begins a loop: `var = min`, `last = min + extent - 1`; continues at `exit` if it is empty.
    Loop { var: Reg, min: Reg, extent: Reg, last: Reg, exit: Pc },
    /// The next iteration, at `body`.
    Next { var: Reg, last: Reg, body: Pc },
    /// Forgets what the shared computations of the last statement gave.
    Forget,
    /// Runs a shared computation unless it was run since the last `Forget`; `done` tells.
    Shared { done: Reg, to: Pc },
    /// The end of a shared computation.
    Return { done: Reg },
    /// New memory, with nothing written.
    Allocate { allocation: u32 },
    /// From here to the `Assert`, an overflow is the user's.
    BeginAssert { assert: u32 },
    /// Fails unless the condition holds.
    Assert { assert: u32 },
    /// Runs what follows for every thread of a launch.
    Launch { launch: u32 },
    /// All threads of the block meet.
    Meet,
    /// The end, of a thread or of everything.
    Halt,
}

/// A load or store in general.
#[derive(Clone, Debug)]
pub struct Access {
    /// Which buffer.
    pub buffer: u32,
    /// Registers of the indices, and whether each has lanes.
    pub indices: Vec<(Reg, bool)>,
    /// Lanes that are accessed.
    pub mask: Option<Reg>,
    /// What is stored, or where a load goes.
    pub value: Reg,
    /// Number of lanes.
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

/// Memory to be made.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// For which buffer.
    pub buffer: u32,
    /// Registers of its extents.
    pub shape: Vec<Reg>,
}

/// A kernel of the GPU.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The indices that are named in it.
    pub dims: Vec<LaunchDim>,
    /// Shared memory.
    pub shared: Vec<Allocation>,
    /// Buffers of which every thread has its own.
    pub locals: Vec<u32>,
    /// Global buffers that are written.
    pub tracked: Vec<u32>,
    /// Whether threads meet anywhere.
    pub meets: bool,
    /// Where it goes on.
    pub end: Pc,
}

/// An index of a launch.
#[derive(Clone, Debug)]
pub struct LaunchDim {
    /// In `GPU_INDICES`.
    pub position: usize,
    /// The variable's register.
    pub var: Reg,
    /// The extent's.
    pub extent: Reg,
}

/// Something that may trap: shown to the reader of the message.
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
    /// Number of registers.
    pub registers: u32,
    /// Registers that hold constants.
    pub constants: Vec<(Reg, u64)>,
    /// Every buffer that is accessed.
    pub buffers: Vec<Buffer>,
    /// For `LoadAny` and `StoreAny`.
    pub accesses: Vec<Access>,
    /// For `Assert`.
    pub assertions: Vec<Assertion>,
    /// For `Allocate`.
    pub allocations: Vec<Allocation>,
    /// For `Launch`.
    pub launches: Vec<Launch>,
    /// What stands at an instruction that may trap, ascending, with the innermost scope there.
    pub sites: Vec<(Pc, Culprit, Option<u32>)>,
    /// Variables around a site: name, register, enclosing scope.
    pub scopes: Vec<(String, Reg, Option<u32>)>,
}
