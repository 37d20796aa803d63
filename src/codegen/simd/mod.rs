//! The SIMD back end: compiles the nests that `outline_simd` marked to AVX2 (vectors of 32 bytes)
//! or AVX-512 (64 bytes, masks).
//!
//! ```text
//! loop IR ─nest, value, memory, arith, mask, convert─► instructions over virtual registers
//!         ─fold, reload─► … ─alloc (regalloc2)─► … ─encode (iced)─► bytes
//! ```
//!
//! A nest becomes one function. Its argument is the address of a struct ([`Closure`]) with the
//! values of variables and the addresses of buffers. The function refers to no symbol; its
//! constants follow the code. `simd_ops` says how each operation is computed.

mod address;
mod alloc;
mod amx;
mod arith;
mod build;
mod convert;
mod divide;
mod encode;
mod fold;
mod gather;
mod inst;
mod mask;
mod memory;
mod nest;
mod nontemporal;
mod offsets;
mod plan;
mod range;
mod reload;
mod shift;
mod table;
mod tensor;
#[cfg(test)]
mod tests;
mod tile;
mod value;

use super::unwind::Prologue;
use crate::ir::Stmt;
use crate::target::{Os, SimdIsa, Target};
use inst::{Func, LoopInfo};
pub use nest::Closure;
use regalloc2::Output;

/// The machine code of a nest.
#[derive(Clone, Debug)]
pub struct NestCode {
    /// Code and constants, to be placed at a multiple of 64.
    pub bytes: Vec<u8>,
    /// Bytes of code.
    pub code_len: usize,
    /// The beginning of each statement: offset, loop depth, text.
    pub marks: Vec<(usize, u32, String)>,
    /// The loops, in the order of their heads.
    pub loops: Vec<NestLoop>,
    /// The offsets of spills and reloads.
    pub spills: Vec<usize>,
    /// The constants after the code, in order: offset and length.
    pub constants: Vec<(usize, usize)>,
    /// What the prologue does to the stack.
    pub(super) prologue: Prologue,
}

/// A loop of a nest's code.
#[derive(Clone, Debug)]
pub struct NestLoop {
    /// Its head, as the printer writes it.
    pub title: String,
    /// Whether it contains no loop.
    pub innermost: bool,
    /// Offset of its first instruction.
    pub start: usize,
    /// Offset after its last one, which branches back.
    pub end: usize,
}

/// The registers that [`reload`] leaves free in turn. The allocator does not always find an
/// allocation without spills where values need all registers.
const FREE_REGISTERS: [usize; 3] = [0, 1, 2];

/// Allocates registers, with as few loads and spills in innermost loops as the trials find.
fn with_registers(func: Func, isa: SimdIsa) -> (Func, Output) {
    let mut best: Option<(usize, Func, Output)> = None;
    for free in FREE_REGISTERS {
        let mut trial = func.clone();
        let changed = reload::reload(&mut trial, isa.registers() as usize - free);
        fold::fold(&mut trial);
        let view = alloc::View::new(&trial, isa);
        let output = match alloc::allocate(&view, isa) {
            Ok(output) => output,
            Err(error) => crate::bug!("register allocation: {error}"),
        };
        let spills = alloc::spills_in_loops(&view, &output);
        let accesses = spills + alloc::reads_in_loops(&trial);
        if best.as_ref().is_none_or(|(least, ..)| accesses < *least) {
            best = Some((accesses, trial, output));
        }
        if spills == 0 || !changed {
            break;
        }
    }
    let (_, func, output) = best.expect("there is a trial");
    (func, output)
}

/// Compiles a nest.
pub fn compile_nest(body: &Stmt, closure: &Closure, target: &Target) -> NestCode {
    let isa = target.simd().expect("nests are outlined for targets with a SIMD back end");
    let selector =
        nest::Selector::new(build::Builder::new(isa, target.features.contains(&"vnni")), closure);
    let mut func = selector.run(body);
    fold::simplify(&mut func);
    let (func, output) = with_registers(func, isa);
    let view = alloc::View::new(&func, isa);
    let encoded = encode::encode(&view, &output, isa, target.os == Os::Windows);
    let mark = |(offset, mark): &(usize, u32)| {
        let (depth, text) = &func.marks[*mark as usize];
        (!text.is_empty()).then(|| (*offset, *depth, text.clone()))
    };
    let marks = encoded.marks.iter().filter_map(mark).collect();
    // The block after the latch passes values to the head; often it needs no code.
    let as_loop = |info: &LoopInfo| NestLoop {
        title: info.title.clone(),
        innermost: info.innermost,
        start: encoded.blocks[info.head],
        end: encoded.ends[info.latch].max(encoded.ends[info.latch + 1]),
    };
    let loops = func.loops.iter().map(as_loop).collect();
    let encode::Encoded { bytes, code_len, spills, constants, prologue, .. } = encoded;
    NestCode { bytes, code_len, marks, loops, spills, constants, prologue }
}
