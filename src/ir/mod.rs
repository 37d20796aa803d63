//! The loop IR: what kernels are between the stage graph and machine code.
//!
//! Types, expressions and statements with their exact semantics, and what works on them alone:
//! printer, visitor, verifier, interpreter, arithmetic, simplifier. The IR knows no target.

mod expr;
mod part;
mod stmt;
mod thread_index;
mod types;

pub mod arith;
pub mod async_copy;
pub mod copy;
pub mod cost;
pub mod empty;
pub mod equal;
pub mod interp;
pub mod launch;
pub mod limits;
pub mod print;
pub mod reference;
pub mod simplify;
pub mod verify;
pub mod visit;
pub mod warp;

pub use expr::{
    BinOp, Buffer, BufferData, Buffering, Const, Expr, ExprKind, Intrinsic, Node, Scope, UnOp, Var,
};
pub use part::Part;
pub use stmt::{ActualDim, ForKind, GPU_INDICES, Kernel, Param, Stmt};
pub use thread_index::ThreadIndex;
pub use types::{DType, Type, half_bits};
