//! The syntax tree of PTX: directives and statements, without name resolution.

use crate::ty::Ty;

/// The whole text: its header, its variables and its kernels.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub version: String,
    pub target: String,
    pub vars: Vec<Var>,
    pub entries: Vec<Entry>,
}

/// The state space of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

/// A declared variable of any state space.
#[derive(Debug, Clone)]
pub(crate) struct Var {
    pub line: u32,
    pub space: Space,
    pub name: String,
    pub align: u32,
    /// Size in bytes; 0 for an `.extern .shared` array without a length.
    pub bytes: u64,
    pub is_extern: bool,
    /// The initial bytes, if the text has some; the rest of the variable is zero.
    pub init: Option<Vec<u8>>,
}

/// One `.entry`.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub line: u32,
    pub name: String,
    pub params: Vec<Param>,
    pub maxntid: Option<[u32; 3]>,
    pub reqntid: Option<[u32; 3]>,
    pub body: Vec<Stmt>,
}

/// A kernel parameter.
#[derive(Debug, Clone)]
pub(crate) struct Param {
    pub name: String,
    pub align: u32,
    pub bytes: u32,
    /// Whether it is a single 64-bit value, which can hold an address.
    pub is_pointer_size: bool,
}

/// A statement of a body.
#[derive(Debug)]
pub(crate) struct Stmt {
    pub line: u32,
    pub kind: StmtKind,
}

#[derive(Debug)]
pub(crate) enum StmtKind {
    Label(String),
    Inst(RawInst),
    /// `.reg .b32 %r<8>, %x;`: names and the counts of ranges.
    Regs(Ty, Vec<(String, Option<u32>)>),
    Var(Var),
    /// `{` opens a scope of registers, variables and labels.
    Open,
    Close,
    /// `name: .branchtargets a, b, c;`
    Targets(String, Vec<String>),
}

/// An instruction.
#[derive(Debug)]
pub(crate) struct RawInst {
    /// The name of the predicate, and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// The opcode with its modifiers, `ld.global.v4.f32`.
    pub op: String,
    pub args: Vec<Arg>,
}

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Arg {
    Name(String),
    /// An integer constant as a 64-bit pattern.
    Int(u64),
    /// `0f3F800000`.
    F32(u32),
    /// `0d3FF0000000000000` or a decimal number with a point or an exponent.
    F64(u64),
    /// `[base+offset]`.
    Addr(Option<String>, i64),
    /// `symbol+4` outside of brackets.
    Sum(String, i64),
    Vec(Vec<Arg>),
    /// `a|b`.
    Pair(Box<Arg>, Box<Arg>),
    /// `!p`.
    Not(Box<Arg>),
    /// `_`, a discarded result.
    Sink,
}
