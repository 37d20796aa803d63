//! Encodes every instruction with every kind of operand that it can have, decodes the bytes and
//! compares the operands, so that an operand that cannot be encoded fails here and not in a user's
//! program.

use super::super::encode::{POOL_OF_TESTS, encode_alone, encode_move};
use super::super::inst::{Arg, Base, Inst, Mem};
use super::{SOURCES, decode, named_codes, text_of};
use crate::target::SimdIsa;
use iced_x86::{Code, Instruction, OpCodeInfo, OpCodeOperandKind, OpKind, Register};
use regalloc2::{Allocation, PReg, RegClass, SpillSlot, VReg};
use std::collections::BTreeSet;

/// An operand: the input of the encoder and the expected output of the decoder.
#[derive(Clone, Copy, Debug)]
enum ExpectedOperand {
    /// A register: class, number, and its name in this operand.
    Reg(RegClass, usize, Register),
    Imm(i64),
    /// A tile register.
    Tile(u8),
    Mem {
        base: ExpectedBase,
        /// Class, number, name, scale.
        index: Option<(RegClass, usize, Register, u8)>,
        disp: i32,
    },
}

#[derive(Clone, Copy, Debug)]
enum ExpectedBase {
    Reg(usize),
    Frame(u32),
    Pool,
}

const GENERAL: [Register; 16] = {
    use Register::*;
    [RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15]
};
const GPRS_32: [Register; 16] = {
    use Register::*;
    [EAX, ECX, EDX, EBX, ESP, EBP, ESI, EDI, R8D, R9D, R10D, R11D, R12D, R13D, R14D, R15D]
};
const GPRS_16: [Register; 16] = {
    use Register::*;
    [AX, CX, DX, BX, SP, BP, SI, DI, R8W, R9W, R10W, R11W, R12W, R13W, R14W, R15W]
};
const GPRS_8: [Register; 16] = {
    use Register::*;
    [AL, CL, DL, BL, SPL, BPL, SIL, DIL, R8L, R9L, R10L, R11L, R12L, R13L, R14L, R15L]
};

/// All general registers that can be allocated, and `rbp`.
fn general(names: [Register; 16]) -> Vec<ExpectedOperand> {
    let all = (0..16).filter(|number| *number != 4);
    all.map(|number| ExpectedOperand::Reg(RegClass::Int, number, names[number])).collect()
}

/// All vector registers: AVX2 has 16, AVX-512 32.
fn vectors(first: Register, evex: bool) -> Vec<ExpectedOperand> {
    let all = 0..if evex { 32 } else { 16 };
    all.map(|number| ExpectedOperand::Reg(RegClass::Float, number, first + number as u32)).collect()
}

/// Addresses of all forms, with every base, index and scale; with a vector of offsets if `offsets`
/// is given.
fn addresses(offsets: Option<Register>, evex: bool) -> Vec<ExpectedOperand> {
    let disps = [0, 1, 8, 64, 127, 128, -128, -129, 4096, i32::MAX, i32::MIN];
    let mut all = Vec::new();
    let base = ExpectedBase::Reg(13);
    let mut push = |base, index, disp| all.push(ExpectedOperand::Mem { base, index, disp });
    if let Some(first) = offsets {
        for number in 0..if evex { 32 } else { 16 } {
            let scale = [1, 2, 4, 8][number % 4];
            let index = Some((RegClass::Float, number, first + number as u32, scale));
            push(base, index, disps[number % disps.len()]);
        }
        return all;
    }
    for number in (0..16).filter(|number| *number != 4) {
        for disp in disps {
            push(ExpectedBase::Reg(number), None, disp);
        }
        for scale in [1, 2, 4, 8] {
            let index = Some((RegClass::Int, number, GENERAL[number], scale));
            push(ExpectedBase::Reg(number), index, 0);
            push(base, index, 0x140);
        }
    }
    for disp in disps.into_iter().filter(|disp| disp.checked_add(0x80).is_some()) {
        push(ExpectedBase::Frame(0x80), None, disp);
    }
    push(ExpectedBase::Pool, None, 0);
    push(ExpectedBase::Pool, None, 16);
    all
}

/// All operands for a position of an instruction.
fn choices(kind: OpCodeOperandKind, evex: bool) -> Vec<ExpectedOperand> {
    use OpCodeOperandKind::*;
    use Register::{K0, XMM0, YMM0, ZMM0};
    let with_memory = |mut all: Vec<ExpectedOperand>| {
        all.extend(addresses(Option::None, evex));
        all
    };
    let masks = || {
        let all =
            (0..8).map(|number| ExpectedOperand::Reg(RegClass::Vector, number, K0 + number as u32));
        all.collect::<Vec<_>>()
    };
    let constants =
        |values: &[i64]| values.iter().map(|value| ExpectedOperand::Imm(*value)).collect();
    match kind {
        r8_reg => general(GPRS_8),
        r8_or_mem => with_memory(general(GPRS_8)),
        r16_or_mem => with_memory(general(GPRS_16)),
        r32_reg | r32_rm | r32_vvvv | r32_opcode => general(GPRS_32),
        r32_or_mem => with_memory(general(GPRS_32)),
        r64_reg | r64_rm | r64_vvvv | r64_opcode => general(GENERAL),
        r64_or_mem => with_memory(general(GENERAL)),
        xmm_reg | xmm_rm | xmm_vvvv | xmm_is4 => vectors(XMM0, evex),
        xmm_or_mem => with_memory(vectors(XMM0, evex)),
        ymm_reg | ymm_rm | ymm_vvvv | ymm_is4 => vectors(YMM0, evex),
        ymm_or_mem => with_memory(vectors(YMM0, evex)),
        zmm_reg | zmm_rm | zmm_vvvv => vectors(ZMM0, evex),
        zmm_or_mem => with_memory(vectors(ZMM0, evex)),
        k_reg | k_rm | k_vvvv => masks(),
        k_or_mem => with_memory(masks()),
        mem => addresses(Option::None, evex),
        sibmem => {
            let mut all = addresses(Option::None, evex);
            all.retain(|one| matches!(one, ExpectedOperand::Mem { index: Some(_), .. }));
            all
        }
        tmm_reg | tmm_rm | tmm_vvvv => (0..8).map(ExpectedOperand::Tile).collect(),
        mem_vsib32x | mem_vsib64x => addresses(Some(XMM0), evex),
        mem_vsib32y | mem_vsib64y => addresses(Some(YMM0), evex),
        mem_vsib32z | mem_vsib64z => addresses(Some(ZMM0), evex),
        imm8 => constants(&[0, 1, 63, 127, 128, 255]),
        imm8sex32 | imm8sex64 => constants(&[0, 1, 127, -1, -128]),
        imm32 => constants(&[0, 1, 128, i64::from(i32::MAX), 0xffff_ffff]),
        imm32sex64 => constants(&[0, 1, 128, i64::from(i32::MAX), -1, i64::from(i32::MIN)]),
        imm64 => constants(&[0, -1, i64::MAX, i64::MIN, 0x0123_4567_89ab_cdef]),
        other => panic!("no operand of the kind {other:?} is known: add it here"),
    }
}

/// An instruction, its mask and whether that zeroes, whether it broadcasts.
struct Form<'a> {
    code: Code,
    operands: &'a [ExpectedOperand],
    /// Whether the first operand is read, too.
    modifies: bool,
    mask: Option<(usize, bool)>,
    broadcast: bool,
}

impl Form<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut allocs = Vec::new();
        let mut take = |class, number| {
            allocs.push(Allocation::reg(PReg::new(number, class)));
            VReg::new(allocs.len(), class)
        };
        let mut args = Vec::new();
        for (place, operand) in self.operands.iter().enumerate() {
            args.push(match *operand {
                ExpectedOperand::Reg(class, number, _) if place == 0 && self.modifies => {
                    let from = take(class, number);
                    Arg::Mod { from, to: take(class, number) }
                }
                ExpectedOperand::Reg(class, number, _) => match place {
                    0 => Arg::Def(take(class, number)),
                    _ => Arg::Use(take(class, number)),
                },
                ExpectedOperand::Imm(value) => Arg::Imm(value),
                ExpectedOperand::Tile(number) => Arg::Tile(number),
                ExpectedOperand::Mem { base, index, disp } => {
                    let base = match base {
                        ExpectedBase::Reg(number) => Base::Reg(take(RegClass::Int, number)),
                        ExpectedBase::Frame(offset) => Base::Frame(offset),
                        ExpectedBase::Pool => Base::Pool(0),
                    };
                    let index = index.map(|(class, number, _, scale)| (take(class, number), scale));
                    Arg::Mem(Mem { base, index, disp })
                }
            });
        }
        let mut inst = Inst::new(self.code, args);
        inst.broadcast = self.broadcast;
        if let Some((number, zeroing)) = self.mask {
            let mask = take(RegClass::Vector, number);
            if self.code.op_code().require_op_mask_register() {
                inst.clobbered = Some((mask, take(RegClass::Vector, number)));
            } else {
                inst.mask = Some((mask, zeroing));
            }
        }
        encode_alone(&inst, &allocs)
    }

    /// The difference of the decoded instruction in words.
    fn difference(&self, got: &Instruction) -> Option<String> {
        let mut wrong = Vec::new();
        let mut same = |what: &str, is: String, should: String| {
            if is != should {
                wrong.push(format!("{what} {is} instead of {should}"));
            }
        };
        same("code", format!("{:?}", got.code()), format!("{:?}", self.code));
        for (place, operand) in (0..).zip(self.operands) {
            match operand {
                ExpectedOperand::Reg(_, _, name) => {
                    same("kind", format!("{:?}", got.op_kind(place)), "Register".to_string());
                    same("register", format!("{:?}", got.op_register(place)), format!("{name:?}"));
                }
                ExpectedOperand::Tile(number) => {
                    let name = Register::TMM0 + u32::from(*number);
                    same("register", format!("{:?}", got.op_register(place)), format!("{name:?}"));
                }
                ExpectedOperand::Imm(value) => {
                    let bits = match got.op_kind(place) {
                        OpKind::Immediate8 => 0xff,
                        OpKind::Immediate32 | OpKind::Immediate8to32 => 0xffff_ffff,
                        _ => u64::MAX,
                    };
                    let (is, should) = (got.immediate(place) & bits, *value as u64 & bits);
                    same("immediate", is.to_string(), should.to_string());
                }
                ExpectedOperand::Mem { base, index, disp } => {
                    let (name, disp) = match base {
                        ExpectedBase::Reg(number) => (GENERAL[*number], i64::from(*disp)),
                        ExpectedBase::Frame(offset) => {
                            (Register::RSP, i64::from(*offset) + i64::from(*disp))
                        }
                        ExpectedBase::Pool => {
                            (Register::RIP, POOL_OF_TESTS as i64 + i64::from(*disp))
                        }
                    };
                    let (other, scale) = match index {
                        Some((_, _, name, scale)) => (*name, u32::from(*scale)),
                        None => (Register::None, 1),
                    };
                    same("kind", format!("{:?}", got.op_kind(place)), "Memory".to_string());
                    same("base", format!("{:?}", got.memory_base()), format!("{name:?}"));
                    same("index", format!("{:?}", got.memory_index()), format!("{other:?}"));
                    same("scale", got.memory_index_scale().to_string(), scale.to_string());
                    let is = got.memory_displacement64() as i64;
                    same("displacement", is.to_string(), disp.to_string());
                }
            }
        }
        let mask = self.mask.map_or(Register::None, |(number, _)| Register::K0 + number as u32);
        same("mask", format!("{:?}", got.op_mask()), format!("{mask:?}"));
        let zeroing = self.mask.is_some_and(|(_, zeroing)| zeroing);
        same("zeroing", got.zeroing_masking().to_string(), zeroing.to_string());
        same("broadcast", got.is_broadcast().to_string(), self.broadcast.to_string());
        (!wrong.is_empty()).then(|| wrong.join(", "))
    }
}

/// The masks and broadcasts that a form may have.
fn variants(
    info: &OpCodeInfo,
    in_memory: bool,
    to_memory: bool,
) -> Vec<(Option<(usize, bool)>, bool)> {
    let broadcasts: &[bool] =
        if in_memory && info.can_broadcast() { &[false, true] } else { &[false] };
    let mut masks = Vec::new();
    if !info.require_op_mask_register() {
        masks.push(None);
    }
    if info.can_use_op_mask_register() || info.require_op_mask_register() {
        // The encoding of a mask does not depend on the address.
        let numbers: &[usize] = if in_memory { &[1, 7] } else { &[1, 2, 3, 4, 5, 6, 7] };
        masks.extend(numbers.iter().map(|number| Some((*number, false))));
        if info.can_use_zeroing_masking() && !to_memory {
            masks.extend(numbers.iter().map(|number| Some((*number, true))));
        }
    }
    let pairs = masks.iter().flat_map(|mask| broadcasts.iter().map(|one| (*mask, *one)));
    pairs.collect()
}

#[test]
fn all_sources_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/codegen/simd");
    let names_codes = |text: &str| text.contains("Code::") || text.contains("VOp::");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".rs") || name == "tests.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let known = SOURCES.contains(&text.as_str());
        assert!(known || !names_codes(&text), "SOURCES lacks {name}, which names instructions");
    }
}

#[test]
fn every_form_of_every_instruction_is_encoded() {
    let (mut wrong, mut count, mut kinds) = (Vec::new(), 0, BTreeSet::new());
    for (name, code) in named_codes() {
        let evex = name.starts_with("EVEX");
        let info = code.op_code();
        let places = (0..info.op_count())
            .map(|place| {
                kinds.insert(format!("{:?}", info.op_kind(place)));
                choices(info.op_kind(place), evex)
            })
            .collect::<Vec<_>>();
        // Different registers for all operands, as gathers require.
        let usual = places.iter().enumerate().map(|(place, all)| all[(place + 1) % all.len()]);
        let usual = usual.collect::<Vec<_>>();
        for (place, all) in places.iter().enumerate() {
            for choice in all {
                let mut operands = usual.clone();
                operands[place] = *choice;
                make_registers_distinct(&mut operands, place, &places);
                let is_memory = matches!(operands[0], ExpectedOperand::Mem { .. });
                let in_memory =
                    operands.iter().any(|one| matches!(one, ExpectedOperand::Mem { .. }));
                for (mask, broadcast) in variants(info, in_memory, is_memory) {
                    count += 1;
                    let modifies = count % 2 == 0;
                    let form = Form { code, operands: &operands, modifies, mask, broadcast };
                    let got = decode(&form.encode());
                    if let Some(what) = form.difference(&got) {
                        wrong.push(format!("{name} `{}`: {what}", text_of(&got)));
                    }
                }
            }
        }
    }
    println!("{count} forms, operands of the kinds {kinds:?}");
    assert!(count > 100_000, "only {count} forms");
    wrong.truncate(40);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Makes the vector registers of an instruction with a vector of offsets different, and tile
/// registers, as the processor requires.
fn make_registers_distinct(
    operands: &mut [ExpectedOperand],
    fixed: usize,
    places: &[Vec<ExpectedOperand>],
) {
    let number = |operand: &ExpectedOperand| match operand {
        ExpectedOperand::Reg(RegClass::Float, number, _) => Some(*number),
        ExpectedOperand::Tile(number) => Some(usize::from(*number)),
        ExpectedOperand::Mem { index: Some((RegClass::Float, number, ..)), .. } => Some(*number),
        _ => None,
    };
    let offsets = |operand: &ExpectedOperand| {
        matches!(
            operand,
            ExpectedOperand::Tile(_)
                | ExpectedOperand::Mem { index: Some((RegClass::Float, ..)), .. }
        )
    };
    if !operands.iter().any(offsets) {
        return;
    }
    for place in (0..operands.len()).filter(|place| *place != fixed) {
        let taken: Vec<_> = (0..operands.len())
            .filter(|other| *other != place)
            .filter_map(|other| number(&operands[other]))
            .collect();
        if number(&operands[place]).is_some_and(|own| taken.contains(&own)) {
            let free =
                |choice: &&ExpectedOperand| number(choice).is_some_and(|own| !taken.contains(&own));
            operands[place] = *places[place].iter().find(free).expect("a free register");
        }
    }
}

#[test]
fn moves_of_the_allocator_are_encoded() {
    use Register::{K0, RAX, RSP, YMM0, ZMM0};
    const SPILLS: u32 = 0x40;
    let classes = [
        (RegClass::Int, 16, RAX, SimdIsa::Avx2, ["r64"; 3]),
        (RegClass::Float, 16, YMM0, SimdIsa::Avx2, ["ymm"; 3]),
        (RegClass::Float, 32, ZMM0, SimdIsa::Avx512, ["zmm"; 3]),
        (RegClass::Vector, 8, K0, SimdIsa::Avx512, ["kr_km64", "m64_kr", "kr_km64"]),
    ];
    for (class, count, first, isa, names) in classes {
        let reg = |number| Allocation::reg(PReg::new(number, class));
        let encoded = |from, to| decode(&encode_move((from, to), SPILLS, isa));
        let named = |inst: &Instruction, name: &str| {
            let code = format!("{:?}", inst.code());
            assert!(code.contains(name), "{code} has no {name}");
        };
        for number in 0..count {
            let (name, other) = (first + number as u32, (number + 5) % count);
            let copy = encoded(reg(number), reg(other));
            assert_eq!((copy.op0_register(), copy.op1_register()), (first + other as u32, name));
            named(&copy, names[2]);
            for slot in [0, 1, 8, 15, 16, 200] {
                let place = (RSP, u64::from(SPILLS) + 8 * slot as u64);
                let slot = Allocation::stack(SpillSlot::new(slot));
                let (load, store) = (encoded(slot, reg(number)), encoded(reg(number), slot));
                named(&load, names[0]);
                named(&store, names[1]);
                assert_eq!((load.op0_register(), store.op1_register()), (name, name));
                for inst in [load, store] {
                    assert_eq!((inst.memory_base(), inst.memory_displacement64()), place);
                }
            }
        }
    }
}
