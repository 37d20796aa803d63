//! Unwind tables of objects for Windows and macOS: they say what the prologues of the functions do
//! to the stack. Handlers of exceptions, debuggers and profilers walk the stack with them.
//!
//! The tables are written here, because Cranelift knows no functions of the SIMD back end, and its
//! own tables (0.135) are wrong for Windows and absent for macOS.

mod dwarf;
mod windows;

use crate::bug;
use crate::target::Os;
use cranelift_codegen::CompiledCode;
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInst;
use cranelift_module::FuncId;
use cranelift_object::ObjectModule;
use cranelift_object::object::write::SymbolId;
use regalloc2::RegClass;
use std::ops::{Deref, DerefMut};

/// The number of `rbp`.
const RBP: u8 = 5;
/// The number of `x29`, the frame pointer of AArch64.
const FP: u8 = 29;
/// The number of `x30`, the return address of AArch64.
const LR: u8 = 30;

/// The object of a module, with the unwind tables of its functions if the system needs them.
pub struct CodeModule {
    object: ObjectModule,
    os: Os,
    /// The functions with bytes of code, unless the system needs no tables.
    unwind: Vec<(FuncId, usize, Prologue)>,
}

/// A function of an object with tables.
struct Function {
    symbol: SymbolId,
    /// Bytes of code.
    bytes: usize,
    prologue: Prologue,
}

impl CodeModule {
    /// Makes an object without functions.
    pub(super) fn new(object: ObjectModule, os: Os) -> CodeModule {
        CodeModule { object, os, unwind: Vec::new() }
    }

    /// Notes the prologue of a function.
    pub(super) fn add_unwind(&mut self, id: FuncId, bytes: usize, prologue: Prologue) {
        if self.os != Os::Linux {
            self.unwind.push((id, bytes, prologue));
        }
    }

    /// Returns the bytes of the object file.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut product = self.object.finish();
        let function = |(id, bytes, prologue)| Function {
            symbol: product.function_symbol(id),
            bytes,
            prologue,
        };
        let functions: Vec<Function> = self.unwind.into_iter().map(function).collect();
        match self.os {
            Os::Linux => {}
            Os::Windows => windows::write_tables(&mut product.object, &functions),
            Os::MacOs => dwarf::write_eh_frame(&mut product.object, &functions),
        }
        product.emit().expect("an object in memory is written")
    }
}

impl Deref for CodeModule {
    type Target = ObjectModule;

    fn deref(&self) -> &ObjectModule {
        &self.object
    }
}

impl DerefMut for CodeModule {
    fn deref_mut(&mut self) -> &mut ObjectModule {
        &mut self.object
    }
}

/// A register that a prologue saves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SavedRegister {
    /// A general register.
    General(u8),
    /// The low 128 bits of a vector register.
    Vector(u8),
}

/// A register that a prologue stores below the frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SavedBelow {
    /// The offset in the code after the instruction.
    pub(super) end: usize,
    pub(super) register: SavedRegister,
    /// Bytes from the stored value to the frame pointer.
    pub(super) below: u32,
}

/// What a prologue does to the stack.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Prologue {
    /// Pushes of general registers: the offset in the code after each, and the register. One
    /// instruction of AArch64 pushes two.
    pub(super) pushes: Vec<(usize, u8)>,
    /// The offset in the code after the frame pointer is set, if there is a frame; a push of the
    /// frame pointer precedes.
    pub(super) frame: Option<usize>,
    /// What it stores afterwards, also by pushes.
    pub(super) saves: Vec<SavedBelow>,
}

impl Prologue {
    /// The prologue of a function that Cranelift compiled.
    pub(super) fn of_function(code: &CompiledCode, isa: &dyn TargetIsa) -> Prologue {
        let mut prologue = Prologue::default();
        let frame_registers: &[u8] = match isa.name() {
            "x64" => &[RBP],
            _ => &[LR, FP],
        };
        let mut size = 0;
        for (offset, inst) in &code.buffer.unwind_info {
            let end = *offset as usize;
            match inst {
                UnwindInst::PushFrameRegs { .. } => {
                    prologue.pushes.extend(frame_registers.iter().map(|register| (end, *register)));
                }
                UnwindInst::DefineNewFrame { offset_downward_to_clobbers, .. } => {
                    prologue.frame = Some(end);
                    size = *offset_downward_to_clobbers;
                }
                UnwindInst::SaveReg { clobber_offset, reg } => {
                    let register = match reg.class() {
                        RegClass::Int => SavedRegister::General(reg.hw_enc()),
                        _ => SavedRegister::Vector(reg.hw_enc()),
                    };
                    let below = size - clobber_offset;
                    prologue.saves.push(SavedBelow { end, register, below });
                }
                // The frame pointer stays.
                UnwindInst::StackAlloc { .. } if prologue.frame.is_some() => {}
                UnwindInst::Aarch64SetPointerAuth { return_addresses: false } => {}
                other => bug!("a prologue with {other:?}"),
            }
        }
        prologue
    }
}
