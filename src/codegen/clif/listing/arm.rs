//! The listing for aarch64, disassembled in GNU syntax.

use super::{FunctionNotes, functions, name_of};
use object::{Object, ObjectSection, RelocationFlags, RelocationTarget, elf, macho};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

/// The listing of an aarch64 object file.
pub(super) fn arm_listing(object: &[u8], notes: &[FunctionNotes]) -> String {
    let file = object::File::parse(object).expect("the object was just written");
    let text = file.section_by_name(".text").expect("it has code");
    let code = text.data().expect("the section is in the file");
    let mut symbols = BTreeMap::new();
    for (offset, relocation) in text.relocations() {
        if let RelocationTarget::Symbol(index) = relocation.target()
            && let Ok(symbol) = file.symbol_by_index(index)
        {
            let part = part_of(relocation.flags());
            symbols.insert(offset, format!("{part}{}", name_of(&symbol)));
        }
    }
    let mut out = String::from("        .text\n");
    for function in functions(&file) {
        function.write_head(&mut out);
        let notes = notes.iter().find(|notes| notes.name == function.name);
        let comments = notes.map_or(&[][..], |notes| &notes.comments);
        let (start, end) = (function.start, function.start + function.size);
        let bytes = &code[start as usize..end as usize];
        write_function(bytes, start, &symbols, comments, &mut out);
    }
    out
}

/// The part of the address of a symbol that an instruction contains.
fn part_of(flags: RelocationFlags) -> &'static str {
    match flags {
        RelocationFlags::Elf { r_type } => match r_type {
            elf::R_AARCH64_ADR_GOT_PAGE => ":got:",
            elf::R_AARCH64_LD64_GOT_LO12_NC => ":got_lo12:",
            elf::R_AARCH64_ADD_ABS_LO12_NC => ":lo12:",
            _ => "",
        },
        RelocationFlags::MachO { r_type, .. } => match r_type {
            macho::ARM64_RELOC_GOT_LOAD_PAGE21 => ":got:",
            macho::ARM64_RELOC_GOT_LOAD_PAGEOFF12 => ":got_lo12:",
            macho::ARM64_RELOC_PAGEOFF12 => ":lo12:",
            _ => "",
        },
        _ => "",
    }
}

fn write_function(
    bytes: &[u8],
    start: u64,
    symbols: &BTreeMap<u64, String>,
    comments: &[(u32, String)],
    out: &mut String,
) {
    let decoder = InstDecoder::default();
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect();
    let decoded: Vec<Option<Instruction>> = words
        .iter()
        .map(|word| decoder.decode(&mut U8Reader::new(&word.to_le_bytes())).ok())
        .collect();
    // Constants follow the code. The first address that an instruction loads relative to itself
    // starts them.
    let (mut targets, mut constants) = (BTreeSet::new(), BTreeSet::new());
    let mut end = bytes.len() as u64;
    for (at, instruction) in decoded.iter().enumerate() {
        let at = 4 * at as u64;
        let Some(instruction) = instruction.filter(|_| at < end) else { continue };
        let Some(distance) = distance(&instruction) else { continue };
        let to = at.wrapping_add_signed(distance);
        if symbols.contains_key(&(start + at)) || to >= bytes.len() as u64 {
            continue;
        }
        if is_branch(instruction.opcode) {
            targets.insert(to);
        } else {
            constants.insert(to);
            end = end.min(to);
        }
    }
    let mut labels = BTreeMap::new();
    labels.extend(targets.into_iter().enumerate().map(|(n, at)| (at, format!(".L{n}"))));
    labels.extend(constants.into_iter().enumerate().map(|(n, at)| (at, format!(".LC{n}"))));
    let mut comments = comments.iter().peekable();
    for (number, instruction) in decoded.iter().enumerate() {
        let at = 4 * number as u64;
        if let Some(label) = labels.get(&at) {
            let _ = writeln!(out, "{label}:");
        }
        while let Some((_, text)) = comments.next_if(|(offset, _)| u64::from(*offset) <= at) {
            let _ = writeln!(out, "        // {text}");
        }
        let text = match instruction {
            Some(instruction) if at < end => {
                named(instruction, at, symbols.get(&(start + at)), &labels)
            }
            _ => format!(".word 0x{:08x}", words[number]),
        };
        let _ = writeln!(out, "        {text}");
    }
}

/// The distance from an instruction to its branch target or constant.
fn distance(instruction: &Instruction) -> Option<i64> {
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(distance) => Some(*distance),
        _ => None,
    })
}

fn is_branch(opcode: Opcode) -> bool {
    use Opcode::{B, BL, Bcc, CBNZ, CBZ, TBNZ, TBZ};
    matches!(opcode, B | BL | Bcc(_) | CBZ | CBNZ | TBZ | TBNZ)
}

/// The text of an instruction, with the symbol or label that it refers to.
fn named(
    instruction: &Instruction,
    at: u64,
    symbol: Option<&String>,
    labels: &BTreeMap<u64, String>,
) -> String {
    let text = instruction.to_string();
    let name = match (symbol, distance(instruction)) {
        (Some(symbol), _) => Some(symbol.as_str()),
        (None, Some(distance)) => labels.get(&at.wrapping_add_signed(distance)).map(String::as_str),
        (None, None) => None,
    };
    let Some(name) = name else { return text };
    // A distance begins with `$` and is the last operand.
    if let Some((head, _)) = text.split_once('$') {
        return format!("{head}{name}");
    }
    match text.strip_suffix(']') {
        Some(head) => format!("{head}, {name}]"),
        None => format!("{text} // {name}"),
    }
}
