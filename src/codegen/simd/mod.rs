//! Machine code of our own for x86: loop nests that `outline_simd` selected, with the vectors of
//! AVX2 (32 bytes) or AVX-512 (64 bytes, masks).
//!
//! ```text
//! loop IR ─nest, value, memory, arith, mask, convert─► instructions over virtual registers
//!         ─fold─► … ─alloc (regalloc2)─► … ─encode (iced)─► bytes
//! ```
//!
//! A nest becomes one function: its argument is the address of a struct ([`Closure`]) with the
//! values of variables and the addresses of buffers. The function refers to no symbol; constants
//! stand after its code.

mod address;
mod alloc;
mod arith;
mod build;
mod convert;
mod encode;
mod fold;
mod inst;
mod mask;
mod memory;
mod nest;
mod plan;
mod table;
mod tensor;
mod value;

use crate::ir::Stmt;
use crate::target::Target;
pub use nest::Closure;

/// The code of a nest.
#[derive(Clone, Debug)]
pub struct NestCode {
    /// Code and constants; place it at a multiple of 64.
    pub bytes: Vec<u8>,
    /// Bytes of code.
    pub code_len: usize,
    /// Statements and where they begin: offset, depth, text.
    pub marks: Vec<(usize, u32, String)>,
}

/// Compiles a nest.
pub fn compile_nest(body: &Stmt, closure: &Closure, target: &Target) -> NestCode {
    let evex = target.vector_bytes == 64;
    let builder = build::Builder::new(evex);
    let selector = nest::Selector::new(builder, target.vector_bytes, closure);
    let mut func = selector.run(body);
    fold::fold(&mut func);
    let view = alloc::View::new(&func, target.vector_bytes);
    let output = match alloc::allocate(&view, evex) {
        Ok(output) => output,
        Err(error) => crate::bug!("register allocation: {error}"),
    };
    let encoded = encode::encode(&view, &output, evex, target.vector_bytes);
    let mark = |(offset, mark): &(usize, u32)| {
        let (depth, text) = &func.marks[*mark as usize];
        (*offset, *depth, text.clone())
    };
    let marks = encoded.marks.iter().map(mark).collect();
    NestCode { bytes: encoded.bytes, code_len: encoded.code_len, marks }
}
