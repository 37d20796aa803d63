//! The assembly listing. For x86 and aarch64 it is the disassembled object, with its entries, in
//! GNU syntax. Comments give the loop IR statement of the code below them, and count the
//! instructions of each innermost loop of a vectorized nest; a table of these loops ends the
//! listing. For riscv64 it is Cranelift's text of the kernels' functions, which has no offsets, so
//! it has no comments.

mod arm;
mod tally;

use crate::codegen::simd::{NestCode, NestLoop};
use crate::target::Arch;
use cranelift_codegen::CompiledCode;
use iced_x86::{
    Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, OpKind, SymbolResolver,
    SymbolResult,
};
use object::{
    BinaryFormat, Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolFlags, SymbolKind,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;
use tally::Tally;

/// What the listing needs to know about a kernel's function beside its bytes.
pub(in crate::codegen) struct FunctionNotes {
    /// Its symbol.
    name: String,
    /// Statement heads with the offset of the first instruction of each.
    comments: Vec<(u32, String)>,
    /// Cranelift's disassembly.
    text: String,
    /// The code of a vectorized nest.
    nest: Option<NestCode>,
}

impl FunctionNotes {
    /// The notes of a compiled function; source location `n` stands for `heads[n]`.
    pub(super) fn new(name: &str, heads: Vec<String>, code: &CompiledCode) -> FunctionNotes {
        let mut comments = Vec::new();
        let mut shown = BTreeSet::new();
        for location in code.buffer.get_srclocs_sorted() {
            if let Some(head) = heads.get(location.loc.bits() as usize)
                && shown.insert(location.loc.bits())
            {
                comments.push((location.start, head.clone()));
            }
        }
        FunctionNotes {
            name: name.to_string(),
            comments,
            text: code.vcode.clone().unwrap_or_default(),
            nest: None,
        }
    }

    /// The notes of a vectorized nest.
    pub(super) fn of_nest(name: &str, nest: NestCode) -> FunctionNotes {
        let comment = |(offset, depth, text): &(usize, u32, String)| {
            (*offset as u32, format!("{}{text}", "  ".repeat(*depth as usize)))
        };
        let comments = nest.marks.iter().map(comment).collect();
        FunctionNotes { name: name.to_string(), comments, text: String::new(), nest: Some(nest) }
    }
}

/// The listing of an object file.
pub(in crate::codegen) fn write_listing(
    arch: Arch,
    object: &[u8],
    notes: &[FunctionNotes],
) -> String {
    match arch {
        Arch::X86_64 => x86_listing(object, notes),
        Arch::Aarch64 => arm::arm_listing(object, notes),
        _ => text_listing(notes),
    }
}

/// The listing of an x86 object file.
fn x86_listing(object: &[u8], notes: &[FunctionNotes]) -> String {
    let file = object::File::parse(object).expect("the object was just written");
    let text = file.section_by_name(".text").expect("it has code");
    let code = text.data().expect("the section is in the file");
    let mut relocations = BTreeMap::new();
    for (offset, relocation) in text.relocations() {
        if let RelocationTarget::Symbol(index) = relocation.target()
            && let Ok(symbol) = file.symbol_by_index(index)
        {
            relocations.insert(offset, name_of(&symbol));
        }
    }
    let mut out = String::from("        .text\n");
    let mut loops = Vec::new();
    for function in functions(&file) {
        function.write_head(&mut out);
        let Function { start, size, name, .. } = function;
        let notes = notes.iter().find(|notes| notes.name == name);
        let comments = notes.map_or(&[][..], |notes| &notes.comments);
        let nest = notes.and_then(|notes| notes.nest.as_ref());
        // The constants of a nest may end in zeros, like padding.
        let size = nest.map_or(size as usize, |nest| nest.bytes.len());
        let bytes = &code[start as usize..][..size];
        let function = Code { bytes, start, relocations: &relocations, comments, nest };
        for (title, tally) in function.write(&mut out) {
            loops.push((format!("{name}: {title}"), tally));
        }
    }
    out.push_str(&tally::table(&loops));
    out
}

/// A function of an object.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: u64,
    size: u64,
    name: String,
    global: bool,
}

impl Function {
    fn write_head(&self, out: &mut String) {
        let name = &self.name;
        if self.global {
            let _ = writeln!(out, "\n        .globl {name}");
        } else {
            out.push('\n');
        }
        let _ = writeln!(out, "        .type {name}, @function\n{name}:");
    }
}

/// The name of a symbol in C: the symbols of Mach-O have an underscore in front of it.
fn name_of(symbol: &object::Symbol<'_, '_>) -> String {
    let name = symbol.name().unwrap_or_default();
    let is_macho = matches!(symbol.flags(), SymbolFlags::MachO { .. });
    name.strip_prefix('_').filter(|_| is_macho).unwrap_or(name).to_string()
}

/// The functions of an object by address. Only ELF has sizes: elsewhere a function ends where the
/// padding in front of the next one begins, which is zero.
fn functions(file: &object::File<'_>) -> Vec<Function> {
    let mut functions: Vec<Function> = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .map(|symbol| Function {
            start: symbol.address(),
            size: symbol.size(),
            name: name_of(&symbol),
            global: symbol.is_global(),
        })
        .collect();
    functions.sort();
    let text = file.section_by_name(".text").and_then(|section| section.data().ok());
    let text = text.unwrap_or_default();
    let starts = functions.iter().map(|function| function.start as usize);
    let starts: Vec<usize> = starts.chain([text.len()]).collect();
    for (function, range) in functions.iter_mut().zip(starts.windows(2)) {
        if file.format() != BinaryFormat::Elf {
            let code = &text[range[0]..range[1]];
            let end = code.iter().rposition(|byte| *byte != 0);
            function.size = end.map_or(0, |last| last as u64 + 1);
        }
    }
    functions
}

/// The listing for targets without a disassembler.
fn text_listing(notes: &[FunctionNotes]) -> String {
    let mut out = String::new();
    for function in notes {
        let _ = writeln!(out, "{}:", function.name);
        for line in function.text.lines() {
            let _ = writeln!(out, "{line}");
        }
        out.push('\n');
    }
    out
}

/// The code of an x86 function.
struct Code<'c> {
    bytes: &'c [u8],
    start: u64,
    /// The symbols of relocations, by offset in the section.
    relocations: &'c BTreeMap<u64, String>,
    comments: &'c [(u32, String)],
    nest: Option<&'c NestCode>,
}

/// A disassembled function.
struct Decoded {
    instructions: Vec<Instruction>,
    /// Offset of the constants behind the instructions.
    end: usize,
    /// Names of branch targets and constants, by address.
    labels: BTreeMap<u64, String>,
}

impl Code<'_> {
    /// Writes the function. Returns the titles and counts of a nest's innermost loops.
    fn write(&self, out: &mut String) -> Vec<(String, Tally)> {
        let Decoded { instructions, end, labels } = self.decode();
        let relocation = Rc::new(RefCell::new(None));
        let names = Names { labels: labels.clone(), relocation: relocation.clone() };
        let mut formatter = GasFormatter::with_options(Some(Box::new(names)), None);
        let mut comments = self.comments.iter().peekable();
        let loops = self.innermost_loops(&instructions);
        if let Some(nest) = self.nest {
            let number = |count: usize, what: &str| match count {
                1 => format!("1 {what}"),
                count => format!("{count} {what}s"),
            };
            let all = number(instructions.len(), "instruction");
            let inner = number(loops.len(), "innermost loop");
            let spills = number(nest.spills.len(), "spill");
            let _ = writeln!(out, "        # {all}, {inner}, {spills}");
        }
        for instruction in &instructions {
            if let Some(label) = labels.get(&instruction.ip()) {
                let _ = writeln!(out, "{label}:");
            }
            let offset = instruction.ip() - self.start;
            for (_, title, tally) in loops.iter().filter(|(at, ..)| *at as u64 == offset) {
                let _ = writeln!(out, "        # {title}: {}", tally.text());
            }
            while let Some((_, text)) = comments.next_if(|(at, _)| u64::from(*at) <= offset) {
                let _ = writeln!(out, "        # {text}");
            }
            *relocation.borrow_mut() = self.relocation_of(instruction).cloned();
            let mut text = String::new();
            formatter.format(instruction, &mut text);
            let _ = writeln!(out, "        {text}");
        }
        match self.nest {
            None => self.data(end..self.bytes.len(), 1, &labels, out),
            Some(nest) => {
                let mut at = end;
                for (offset, length) in &nest.constants {
                    if *offset > at {
                        let _ = writeln!(out, "        .balign {length}, 0xcc");
                    }
                    let unit = if length.is_multiple_of(4) { 4 } else { 1 };
                    self.data(*offset..offset + length, unit, &labels, out);
                    at = offset + length;
                }
            }
        }
        loops.into_iter().map(|(_, title, tally)| (title, tally)).collect()
    }

    /// The offset, title and instruction counts of each innermost loop.
    fn innermost_loops(&self, instructions: &[Instruction]) -> Vec<(usize, String, Tally)> {
        let Some(nest) = self.nest else { return Vec::new() };
        let spills: BTreeSet<u64> = nest.spills.iter().map(|at| self.start + *at as u64).collect();
        let innermost = nest.loops.iter().filter(|one| one.innermost);
        let count = |one: &NestLoop| {
            let span = self.start + one.start as u64..self.start + one.end as u64;
            let inside = instructions.iter().filter(|inst| span.contains(&inst.ip()));
            let tally = Tally::of(inside, &|at| spills.contains(&at));
            (one.start, one.title.clone(), tally)
        };
        innermost.map(count).collect()
    }

    /// Writes constants, in units of 1 or 4 bytes.
    fn data(
        &self,
        span: Range<usize>,
        unit: usize,
        labels: &BTreeMap<u64, String>,
        out: &mut String,
    ) {
        let directive = if unit == 4 { ".long" } else { ".byte" };
        let mut at = span.start;
        while at < span.end {
            let address = self.start + at as u64;
            if let Some(label) = labels.get(&address) {
                let _ = writeln!(out, "{label}:");
            }
            let next = labels.range(address + 1..).next().map_or(u64::MAX, |(label, _)| *label);
            let stop = (at + 8 * unit.min(2)).min(span.end).min((next - self.start) as usize);
            let list: Vec<String> = self.bytes[at..stop]
                .chunks(unit)
                .map(|bytes| {
                    let digits: String = bytes.iter().rev().map(|b| format!("{b:02x}")).collect();
                    format!("0x{digits}")
                })
                .collect();
            let _ = writeln!(out, "        {directive} {}", list.join(", "));
            at = stop;
        }
    }

    fn relocation_of(&self, instruction: &Instruction) -> Option<&String> {
        let span = instruction.ip()..instruction.next_ip();
        self.relocations.range(span).next().map(|(_, name)| name)
    }

    fn decode(&self) -> Decoded {
        let mut end = self.nest.map_or(self.bytes.len(), |nest| nest.code_len);
        let mut instructions = Vec::new();
        let (mut targets, mut constants) = (BTreeSet::new(), BTreeSet::new());
        let mut decoder = Decoder::with_ip(64, self.bytes, self.start, DecoderOptions::NONE);
        while decoder.can_decode() && decoder.position() < end {
            let instruction = decoder.decode();
            if self.relocation_of(&instruction).is_none() {
                let inside = self.start..self.start + self.bytes.len() as u64;
                if instruction.is_ip_rel_memory_operand() {
                    let address = instruction.ip_rel_memory_address();
                    if inside.contains(&address) {
                        end = end.min((address - self.start) as usize);
                        constants.insert(address);
                    }
                } else if instruction.op_count() > 0
                    && instruction.op0_kind() == OpKind::NearBranch64
                {
                    targets.insert(instruction.near_branch64());
                }
            }
            instructions.push(instruction);
        }
        let mut labels = BTreeMap::new();
        for (number, address) in targets.into_iter().enumerate() {
            labels.insert(address, format!(".L{number}"));
        }
        for (number, address) in constants.into_iter().enumerate() {
            labels.insert(address, format!(".LC{number}"));
        }
        Decoded { instructions, end, labels }
    }
}

/// Resolves addresses to names for the formatter.
struct Names {
    labels: BTreeMap<u64, String>,
    /// The symbol that the current instruction refers to.
    relocation: Rc<RefCell<Option<String>>>,
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        let kind = instruction_operand.map(|operand| instruction.op_kind(operand));
        let is_address = match kind {
            Some(OpKind::NearBranch64) => true,
            Some(OpKind::Memory) => instruction.is_ip_rel_memory_operand(),
            _ => false,
        };
        let name = match &*self.relocation.borrow() {
            Some(symbol) => symbol.clone(),
            None => self.labels.get(&address)?.clone(),
        };
        is_address.then(|| SymbolResult::with_string(address, name))
    }
}
