//! The interpreter's program: operations on numbered registers, in the order they run.
//!
//! A kernel is translated once: variables become registers, buffers numbers, loops and lazy
//! branches jumps, and a vector its lanes, one scalar after the other.

use crate::ir::{BinOp, DType, Intrinsic, UnOp};

/// A register: 64 bits, see `scalar`.
pub type Reg = u32;

/// An index into the operations.
pub type Label = usize;

/// One step. `dst` is always written last.
#[derive(Clone, Debug)]
pub enum Op {
    Const {
        dst: Reg,
        bits: u64,
    },
    Move {
        dst: Reg,
        a: Reg,
    },
    Unary {
        op: UnOp,
        dtype: DType,
        dst: Reg,
        a: Reg,
    },
    Binary {
        op: BinOp,
        dtype: DType,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Select {
        dst: Reg,
        c: Reg,
        t: Reg,
        f: Reg,
    },
    Cast {
        from: DType,
        to: DType,
        dst: Reg,
        a: Reg,
    },
    Bitcast {
        from: DType,
        to: DType,
        dst: Reg,
        a: Reg,
    },
    Call {
        function: Intrinsic,
        dtype: DType,
        dst: Reg,
        args: Vec<Reg>,
    },
    /// `dst = base + stride * lane` of an integer type.
    Lane {
        dtype: DType,
        dst: Reg,
        base: Reg,
        stride: Reg,
        lane: u32,
    },
    /// Traps unless `0 <= index < extents[dim]` of the buffer; `dst = acc * extent + index`.
    Dim {
        dst: Reg,
        acc: Reg,
        index: Reg,
        buffer: u32,
        dim: u32,
    },
    /// Traps unless `0 <= index < length` of the buffer.
    Flat {
        index: Reg,
        buffer: u32,
    },
    /// Of an element whose number is in `index`, in bounds already.
    Load {
        dst: Reg,
        buffer: u32,
        index: Reg,
    },
    Store {
        buffer: u32,
        index: Reg,
        value: Reg,
    },
    /// Makes the buffer with extents from registers; its elements are not written yet.
    Allocate {
        buffer: u32,
        extents: Vec<Reg>,
    },
    Jump {
        to: Label,
    },
    JumpUnless {
        c: Reg,
        to: Label,
    },
    /// `if i >= end { goto to }` at the top of a loop.
    LoopTest {
        i: Reg,
        end: Reg,
        to: Label,
    },
    /// `i += 1; goto to`.
    LoopNext {
        i: Reg,
        to: Label,
    },
    /// From here on, an index overflow fails this assertion instead of being a bug.
    EnterAssert {
        assert: u32,
    },
    /// Fails the assertion unless `c`.
    Assert {
        c: Reg,
        assert: u32,
    },
}

/// A message of an entry check and the registers of its values.
#[derive(Clone, Debug)]
pub struct AssertText {
    pub message: String,
    pub values: Vec<Reg>,
}

/// A translated kernel.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub ops: Vec<Op>,
    pub registers: u32,
    pub asserts: Vec<AssertText>,
    /// Name, element type, constant contents.
    pub buffers: Vec<BufferInfo>,
}

/// What the program says of a buffer.
#[derive(Clone, Debug)]
pub struct BufferInfo {
    pub name: String,
    pub dtype: DType,
    pub init: Option<Vec<u64>>,
}
