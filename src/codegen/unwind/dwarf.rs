//! Unwind tables of Mach-O objects: `__TEXT,__eh_frame` with one description of a frame for each
//! function (DWARF 5, section 6.4). Linkers make `__unwind_info` of it.
//!
//! Every function has one, because the unwinder of AArch64 stops at a function without. As in the
//! tables of Clang, epilogues are not described, and pointers have 8 bytes and are relative.

use super::{Function, Prologue, SavedBelow, SavedRegister};
use cranelift_object::object::macho::{
    ARM64_RELOC_SUBTRACTOR, ARM64_RELOC_UNSIGNED, X86_64_RELOC_SUBTRACTOR, X86_64_RELOC_UNSIGNED,
};
use cranelift_object::object::write::{Object, Relocation, StandardSection, Symbol, SymbolSection};
use cranelift_object::object::{
    Architecture, RelocationFlags, SymbolFlags, SymbolKind, SymbolScope,
};

/// The offset of the field with the address of the function in a description.
const FUNCTION_AT: u64 = 8;
/// Bytes of a pointer, and alignment of the descriptions.
const WORD: usize = 8;

/// What the tables need to know about an architecture.
struct Machine {
    /// The numbers of the registers in DWARF, by those in instructions.
    general: [u8; 32],
    /// The number of the first vector register.
    vectors: u8,
    stack_pointer: u8,
    frame_pointer: u8,
    return_address: u8,
    /// Bytes that a call pushes.
    pushed_by_call: u64,
    /// The types of a pair of relocations: what is subtracted, and from what.
    relocations: [u8; 2],
}

impl Machine {
    /// Returns the facts about an architecture (System V ABI for x86-64, figure 3.36; DWARF for the
    /// Arm 64-bit architecture, section 4.1).
    fn of(architecture: Architecture) -> Machine {
        let mut general = std::array::from_fn(|number| number as u8);
        if architecture == Architecture::X86_64 {
            // rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi
            general[..8].copy_from_slice(&[0, 2, 1, 3, 7, 6, 4, 5]);
            return Machine {
                general,
                vectors: 17,
                stack_pointer: 7,
                frame_pointer: 6,
                return_address: 16,
                pushed_by_call: 8,
                relocations: [X86_64_RELOC_SUBTRACTOR, X86_64_RELOC_UNSIGNED],
            };
        }
        Machine {
            general,
            vectors: 64,
            stack_pointer: 31,
            frame_pointer: 29,
            return_address: 30,
            pushed_by_call: 0,
            relocations: [ARM64_RELOC_SUBTRACTOR, ARM64_RELOC_UNSIGNED],
        }
    }

    fn number(&self, register: SavedRegister) -> u8 {
        match register {
            SavedRegister::General(number) => self.general[usize::from(number)],
            SavedRegister::Vector(number) => self.vectors + number,
        }
    }
}

/// Adds the section with the descriptions of the functions.
pub(super) fn write_eh_frame(object: &mut Object<'_>, functions: &[Function]) {
    let machine = Machine::of(object.architecture());
    let section = object.section_id(StandardSection::EhFrame);
    let common = machine.common_information();
    object.append_section_data(section, &common, WORD as u64);
    // The beginning of the section, from which relocations are computed. Linkers ignore symbols
    // that begin like those of assemblers.
    let start = object.add_symbol(Symbol {
        name: b"ltmp.eh_frame".to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Unknown,
        scope: SymbolScope::Compilation,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
    let mut fields = Vec::new();
    let mut at = common.len() as u64;
    for function in functions {
        let description = machine.frame_description(at, function);
        object.append_section_data(section, &description, WORD as u64);
        fields.push((at + FUNCTION_AT, function.symbol));
        at += description.len() as u64;
    }
    // Linkers expect relocations in descending order, a subtraction in front of its base.
    for (offset, symbol) in fields.into_iter().rev() {
        let [subtract, from] = machine.relocations;
        for (r_type, symbol) in [(subtract, start), (from, symbol)] {
            let flags = RelocationFlags::MachO { r_type, r_pcrel: false, r_length: 3 };
            let relocation = Relocation { offset, symbol, addend: 0, flags };
            object.add_relocation(section, relocation).expect("a relocation of Mach-O");
        }
    }
}

const ADVANCE: u8 = 0x40;
const ADVANCE_1: u8 = 0x02;
const OFFSET: u8 = 0x80;
const OFFSET_EXTENDED: u8 = 0x05;
const DEFINE_CFA: u8 = 0x0c;
const DEFINE_CFA_REGISTER: u8 = 0x0d;
const DEFINE_CFA_OFFSET: u8 = 0x0e;

impl Machine {
    /// The common information entry: the state at the beginning of every function.
    fn common_information(&self) -> Vec<u8> {
        /// Pointers of 8 bytes, relative to themselves (`DW_EH_PE_pcrel`).
        const RELATIVE: u8 = 0x10;
        /// The factor of the offsets of saved registers, -8.
        const MINUS_WORD: u8 = 0x78;
        let mut entry = vec![0; 4];
        entry.push(1);
        entry.extend(b"zR\0");
        entry.extend([1, MINUS_WORD, self.return_address, 1, RELATIVE]);
        entry.extend([DEFINE_CFA, self.stack_pointer, self.pushed_by_call as u8]);
        if self.pushed_by_call > 0 {
            entry.extend([OFFSET | self.return_address, 1]);
        }
        with_length(entry)
    }

    /// The description of the frame of a function, at an offset of the section.
    fn frame_description(&self, at: u64, Function { bytes, prologue, .. }: &Function) -> Vec<u8> {
        let to_common = u32::try_from(at + 4).expect("descriptions have less than 4 GiB");
        let mut entry = to_common.to_le_bytes().to_vec();
        // The relocation adds the distance from the beginning of the section to the function.
        entry.extend((at + FUNCTION_AT).wrapping_neg().to_le_bytes());
        entry.extend((*bytes as u64).to_le_bytes());
        entry.push(0);
        entry.extend(self.instructions(prologue));
        with_length(entry)
    }

    /// The effect of a prologue. The canonical frame address is the stack pointer in front of the
    /// call.
    fn instructions(&self, prologue: &Prologue) -> Vec<u8> {
        let mut out = Vec::new();
        let mut position = 0;
        let mut advance = |out: &mut Vec<u8>, end: usize| {
            let by = u8::try_from(end - position).expect("a prologue of at most 255 bytes");
            position = end;
            match by {
                0 => {}
                1..0x40 => out.push(ADVANCE | by),
                _ => out.extend([ADVANCE_1, by]),
            }
        };
        // Bytes from the stored value to the canonical frame address.
        let save = |out: &mut Vec<u8>, register: u8, distance: u64| {
            match register {
                0..0x40 => out.push(OFFSET | register),
                _ => out.extend([OFFSET_EXTENDED, register]),
            }
            unsigned(out, distance / WORD as u64);
        };
        let mut depth = self.pushed_by_call;
        for same in prologue.pushes.chunk_by(|a, b| a.0 == b.0) {
            advance(&mut out, same[0].0);
            depth += (same.len() * WORD) as u64;
            out.push(DEFINE_CFA_OFFSET);
            unsigned(&mut out, depth);
            for (behind, (_, register)) in same.iter().rev().enumerate() {
                let register = self.number(SavedRegister::General(*register));
                save(&mut out, register, depth - (behind * WORD) as u64);
            }
        }
        if let Some(end) = prologue.frame {
            advance(&mut out, end);
            out.extend([DEFINE_CFA_REGISTER, self.frame_pointer]);
        }
        for SavedBelow { end, register, below } in &prologue.saves {
            advance(&mut out, *end);
            save(&mut out, self.number(*register), depth + u64::from(*below));
        }
        out
    }
}

/// Appends an unsigned number in the encoding LEB128.
fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Puts the length in front of an entry and fills it up with no-operations.
fn with_length(mut entry: Vec<u8>) -> Vec<u8> {
    entry.resize((entry.len() + 4).next_multiple_of(WORD) - 4, 0);
    let length = entry.len() as u32;
    entry.splice(0..0, length.to_le_bytes());
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_from_the_frame_of_the_caller() {
        let save = |end, register, below| SavedBelow { end, register, below };
        let x86 = Prologue {
            pushes: vec![(1, 5), (3, 12)],
            frame: Some(6),
            saves: vec![save(70, SavedRegister::General(3), 8)],
        };
        let expected = [
            &[0x41, 0x0e, 16, 0x86, 2][..], // push rbp
            &[0x42, 0x0e, 24, 0x8c, 3],     // push r12
            &[0x43, 0x0d, 6],               // mov rbp, rsp
            &[0x02, 64, 0x83, 4],           // rbx below
        ];
        assert_eq!(Machine::of(Architecture::X86_64).instructions(&x86), expected.concat());
        let arm = Prologue {
            pushes: vec![(4, 30), (4, 29)],
            frame: Some(8),
            saves: vec![
                save(12, SavedRegister::General(19), 16),
                save(12, SavedRegister::Vector(8), 1024),
            ],
        };
        let expected = [
            &[0x44, 0x0e, 16, 0x9d, 2, 0x9e, 1][..], // stp x29, x30, [sp, #-16]!
            &[0x44, 0x0d, 29],                       // mov x29, sp
            &[0x44, 0x93, 4],                        // x19
            &[0x05, 72, 0x82, 1],                    // d8
        ];
        assert_eq!(Machine::of(Architecture::Aarch64).instructions(&arm), expected.concat());
    }

    #[test]
    fn entries_have_whole_words() {
        let machine = Machine::of(Architecture::Aarch64);
        let common = machine.common_information();
        assert_eq!(common[..4], [20, 0, 0, 0]);
        assert!(common.len().is_multiple_of(WORD));
    }
}
