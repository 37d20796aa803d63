//! Encodings, compared with the bytes of another assembler and with a disassembly.
//!
//! `encodings.txt` has two lines for every instruction that the sources of this folder name: one
//! with high registers and, if possible, a mask and zeroing; one with a memory operand, broadcast
//! if possible. The bytes are those of GNU `as`; `TEC_BLESS=1` writes the file again.

use super::encode::encode_alone;
use super::inst::{Arg, Base, Inst, Mem, Width};
use super::table::{ALL_FORMS, VOp};
use crate::target::SimdIsa;
use iced_x86::{
    Code, Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, OpCodeOperandKind,
};
use regalloc2::{Allocation, PReg, RegClass, VReg};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

mod forms;
mod selection;

const SOURCES: [&str; 23] = [
    include_str!("address.rs"),
    include_str!("alloc.rs"),
    include_str!("amx.rs"),
    include_str!("arith.rs"),
    include_str!("build.rs"),
    include_str!("convert.rs"),
    include_str!("divide.rs"),
    include_str!("encode.rs"),
    include_str!("fold.rs"),
    include_str!("gather.rs"),
    include_str!("mask.rs"),
    include_str!("memory.rs"),
    include_str!("nest.rs"),
    include_str!("nontemporal.rs"),
    include_str!("offsets.rs"),
    include_str!("plan.rs"),
    include_str!("range.rs"),
    include_str!("reload.rs"),
    include_str!("shift.rs"),
    include_str!("table.rs"),
    include_str!("tensor.rs"),
    include_str!("tile.rs"),
    include_str!("value.rs"),
];

/// Every instruction that a source names, by name.
fn named_codes() -> BTreeMap<String, Code> {
    let all: FxHashMap<String, Code> =
        Code::values().map(|code| (format!("{code:?}"), code)).collect();
    let mut named = BTreeMap::new();
    for source in SOURCES {
        for word in source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if let Some(code) = all.get(word)
                && word.contains('_')
            {
                named.insert(word.to_string(), *code);
            }
        }
    }
    named
}

/// The operands of an instruction.
#[derive(Default)]
struct Operands {
    args: Vec<Arg>,
    allocs: Vec<Allocation>,
}

impl Operands {
    /// Adds a register as the next operand.
    fn reg(&mut self, number: usize, class: RegClass) -> VReg {
        self.allocs.push(Allocation::reg(PReg::new(number, class)));
        VReg::new(self.allocs.len(), class)
    }

    fn memory(&mut self, kind: OpCodeOperandKind) {
        use OpCodeOperandKind::*;
        let base = Base::Reg(self.reg(13, RegClass::Int));
        let index = match kind {
            mem_vsib32x | mem_vsib64x | mem_vsib32y | mem_vsib64y | mem_vsib32z | mem_vsib64z => {
                (self.reg(13, RegClass::Float), 4)
            }
            _ => (self.reg(9, RegClass::Int), 8),
        };
        self.args.push(Arg::Mem(Mem { base, index: Some(index), disp: 0x140 }));
    }

    /// Adds an operand of a kind; `false` if no instruction here has that kind.
    fn add(&mut self, place: usize, kind: OpCodeOperandKind, in_memory: bool, evex: bool) -> bool {
        use OpCodeOperandKind::*;
        let vector = if evex { [17, 30, 25, 12] } else { [9, 14, 11, 12] }[place];
        let arg = match kind {
            mem | sibmem | mem_vsib32x | mem_vsib64x | mem_vsib32y | mem_vsib64y | mem_vsib32z
            | mem_vsib64z => {
                self.memory(kind);
                return true;
            }
            r8_or_mem | r16_or_mem | r32_or_mem | r64_or_mem | xmm_or_mem | ymm_or_mem
            | zmm_or_mem | k_or_mem
                if in_memory =>
            {
                self.memory(kind);
                return true;
            }
            r8_or_mem | r8_reg | r16_or_mem | r32_or_mem | r32_reg | r32_rm | r64_or_mem
            | r64_reg | r64_rm | r64_opcode => {
                Arg::Use(self.reg([14, 11, 10, 15][place], RegClass::Int))
            }
            xmm_or_mem | xmm_reg | xmm_rm | xmm_vvvv | xmm_is4 | ymm_or_mem | ymm_reg | ymm_rm
            | ymm_vvvv | ymm_is4 | zmm_or_mem | zmm_reg | zmm_rm | zmm_vvvv => {
                Arg::Use(self.reg(vector, RegClass::Float))
            }
            k_or_mem | k_reg | k_rm | k_vvvv => {
                Arg::Use(self.reg([5, 3, 6, 2][place], RegClass::Vector))
            }
            tmm_reg | tmm_rm | tmm_vvvv => Arg::Tile([6, 3, 5][place]),
            imm8 => Arg::Imm(2),
            imm8sex64 => Arg::Imm(-5),
            imm8sex32 => Arg::Imm(-5),
            imm32 | imm32sex64 => Arg::Imm(0x0123_4567),
            imm64 => Arg::Imm(0x0123_4567_89ab_cdef),
            _ => return false,
        };
        self.args.push(arg);
        true
    }
}

/// Forms for which GNU `as` uses another instruction of the same meaning: instruction, whether its
/// operand is in memory.
const AMBIGUOUS: [(Code, bool); 7] = [
    (Code::VEX_Vmovq_rm64_xmm, true),
    (Code::VEX_Vmovq_xmm_rm64, true),
    (Code::VEX_Vpextrw_r32m16_xmm_imm8, false),
    (Code::EVEX_Vpextrw_r32m16_xmm_imm8, false),
    (Code::EVEX_Vmovq_xmm_xmmm64, true),
    (Code::EVEX_Vmovq_xmmm64_xmm, false),
    (Code::EVEX_Vmovq_xmmm64_xmm, true),
];

/// An instruction with operands in registers, or with one in memory; `None` if there is no such
/// form.
fn example(code: Code, in_memory: bool) -> Option<Vec<u8>> {
    let info = code.op_code();
    let evex = format!("{code:?}").starts_with("EVEX");
    let mut operands = Operands::default();
    for place in 0..info.op_count() {
        let kind = info.op_kind(place);
        if !operands.add(place as usize, kind, in_memory, evex) {
            return None;
        }
    }
    let has_memory = operands.args.iter().any(|arg| matches!(arg, Arg::Mem(_)));
    if has_memory != in_memory || AMBIGUOUS.contains(&(code, in_memory)) {
        return None;
    }
    let mut inst = Inst::new(code, operands.args);
    inst.broadcast = in_memory && info.can_broadcast();
    if info.can_use_op_mask_register() && (!in_memory || info.require_op_mask_register()) {
        operands.allocs.push(Allocation::reg(PReg::new(3, RegClass::Vector)));
        inst.mask = Some((VReg::new(99, RegClass::Vector), info.can_use_zeroing_masking()));
    }
    Some(encode_alone(&inst, &operands.allocs))
}

/// All examples: name of the instruction, form, our bytes.
fn examples() -> Vec<(String, Code, bool, Vec<u8>)> {
    let mut all = Vec::new();
    for (name, code) in named_codes() {
        for in_memory in [false, true] {
            if let Some(bytes) = example(code, in_memory) {
                all.push((name.clone(), code, in_memory, bytes));
            }
        }
    }
    all
}

fn decode(bytes: &[u8]) -> Instruction {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let instruction = decoder.decode();
    assert_eq!(instruction.len(), bytes.len(), "{bytes:02x?} is no single instruction");
    instruction
}

fn text_of(instruction: &Instruction) -> String {
    let mut text = String::new();
    GasFormatter::new().format(instruction, &mut text);
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of GNU `as` for the text of each example. If several encodings have the same meaning,
/// the text selects one.
fn assembled(examples: &[(String, Code, bool, Vec<u8>)]) -> Vec<Vec<u8>> {
    use object::{Object, ObjectSection, ObjectSymbol};
    let mut source = String::new();
    for (number, (name, code, _, bytes)) in examples.iter().enumerate() {
        let info = code.op_code();
        let to_memory = matches!(
            info.op0_kind(),
            OpCodeOperandKind::r8_or_mem
                | OpCodeOperandKind::r64_or_mem
                | OpCodeOperandKind::xmm_or_mem
                | OpCodeOperandKind::ymm_or_mem
                | OpCodeOperandKind::zmm_or_mem
        );
        let form = match (name.starts_with("EVEX"), to_memory) {
            (true, true) if name.starts_with("EVEX_Vmov") => "{evex} {store}",
            (true, _) if name.starts_with("EVEX_Vmov") => "{evex} {load}",
            (true, _) => "{evex}",
            (false, true) => "{store}",
            (false, false) => "{load}",
        };
        let text = text_of(&decode(bytes));
        writeln!(source, "at_{number}: {form} {text}").unwrap();
    }
    writeln!(source, "at_{}: nop", examples.len()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("all.s"), source).unwrap();
    let mut command = Command::new("as");
    command.arg("--64").arg("-o").args([path("all.o"), path("all.s")]);
    assert!(command.status().expect("an assembler").success());
    let data = std::fs::read(path("all.o")).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let place: FxHashMap<&str, u64> =
        file.symbols().map(|symbol| (symbol.name().unwrap(), symbol.address())).collect();
    let code = file.section_by_name(".text").unwrap().data().unwrap();
    let at = |number: usize| place[&*format!("at_{number}")] as usize;
    (0..examples.len()).map(|number| code[at(number)..at(number + 1)].to_vec()).collect()
}

#[test]
fn encodings_are_those_of_another_assembler() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/codegen/simd/encodings.txt");
    let examples = examples();
    if std::env::var_os("TEC_BLESS").is_some() {
        let mut table = String::from("# Instruction; bytes by GNU as; text.\n");
        for ((name, _, _, ours), theirs) in examples.iter().zip(assembled(&examples)) {
            let text = text_of(&decode(ours));
            writeln!(table, "{name} {} {text}", hex(&theirs)).unwrap();
        }
        std::fs::write(path, table).unwrap();
    }
    let table = std::fs::read_to_string(path).expect("the table is there");
    let mut wrong = Vec::new();
    let lines = table.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
    assert_eq!(lines.len(), examples.len(), "TEC_BLESS=1 makes the table anew");
    for ((name, code, _, ours), line) in examples.iter().zip(lines) {
        let instruction = decode(ours);
        let is = format!("{name} {} {}", hex(ours), text_of(&instruction));
        if is != *line || instruction.code() != *code {
            wrong.push(format!("{is}\n  should be {line}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every form of every operation is in the table, and operations differ.
#[test]
fn forms_are_what_their_names_say() {
    let named = named_codes();
    let mut seen: FxHashMap<Code, VOp> = FxHashMap::default();
    for op in VOp::ALL {
        for (width, isa) in ALL_FORMS {
            let Some(code) = op.code(width, isa) else { continue };
            let evex = isa == SimdIsa::Avx512;
            let register = match width {
                Width::X => "xmm",
                Width::Y => "ymm",
                Width::Z => "zmm",
            };
            let name = format!("{code:?}");
            assert!(named.contains_key(&name), "{name}");
            let (family, rest) = name.split_once('_').expect("VEX or EVEX");
            assert_eq!(family == "EVEX", evex, "{op:?} at {width:?}: {name}");
            assert!(rest.contains(register), "{op:?} at {width:?}: {name}");
            let broadcast = match () {
                _ if name.contains("b32") => 4,
                _ if name.contains("b64") => 8,
                _ => 0,
            };
            assert!(!evex || broadcast == op.broadcast_bytes(), "{name}");
            // Bitwise operations on doublewords and quadwords differ in AVX-512 only.
            if let Some(other) = seen.insert(code, *op) {
                assert!(format!("{op:?}") == format!("{other:?}Q"), "{op:?} and {other:?}");
            }
        }
    }
}
