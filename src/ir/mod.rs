//! The loop IR, the form of kernels between the stage graph and machine code.
//!
//! This folder specifies types, expressions and statements. It contains the printer, the visitor,
//! the verifier, the interpreter, the prover and the simplifier. The IR depends on no target.

mod expr;
mod prepack_role;
mod stmt;
mod thread_index;
mod types;

pub mod argument;
pub mod arith;
pub mod async_copy;
pub mod copy;
pub mod cost;
pub mod empty;
pub mod equal;
pub mod fp8;
pub mod interp;
pub mod iterations;
pub mod launch;
pub mod limits;
pub mod print;
pub mod reference;
pub mod scopes;
pub mod simplify;
pub mod steps;
pub mod tile;
pub mod verify;
pub mod visit;
pub mod warp;
pub mod warpgroup;

pub use expr::{
    BinOp, Buffer, BufferData, Buffering, Const, Expr, ExprKind, Intrinsic, Node, Scope, UnOp, Var,
};
pub use prepack_role::PrepackRole;
pub use stmt::{ActualDim, ForKind, GPU_INDICES, Kernel, Param, Role, SortAxis, Source, Stmt};
pub use thread_index::ThreadIndex;
pub use types::{DType, Type, half_bits};
