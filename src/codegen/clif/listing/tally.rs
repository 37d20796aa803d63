//! Instruction counts of the innermost loops of vectorized nests, and the table of them that ends
//! the listing.
//!
//! An arithmetic instruction with a memory operand counts as that operation and as a load or
//! broadcast.

use iced_x86::{Instruction, OpKind, Register};
use std::fmt::Write;

/// The instructions of one iteration, by kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    instructions: usize,
    /// Fused multiply-adds, dot products among them.
    fmas: usize,
    loads: usize,
    /// Loads of one element to all lanes.
    broadcasts: usize,
    stores: usize,
    prefetches: usize,
    /// Loads and stores of the register allocator, which count as nothing else.
    spills: usize,
    /// Moves between registers.
    copies: usize,
    /// Integer arithmetic in general registers.
    integers: usize,
    compares: usize,
    branches: usize,
    /// Other computation.
    others: usize,
    /// Floating-point operations: two for each lane of a multiply-add, one for other arithmetic.
    flop: usize,
}

impl Tally {
    /// Counts instructions; `is_spill` says whether the instruction at an address is a spill.
    pub(super) fn of<'i>(
        instructions: impl Iterator<Item = &'i Instruction>,
        is_spill: &dyn Fn(u64) -> bool,
    ) -> Tally {
        let mut tally = Tally::default();
        for instruction in instructions {
            tally.instructions += 1;
            match is_spill(instruction.ip()) {
                true => tally.spills += 1,
                false => tally.count(instruction),
            }
        }
        tally
    }

    fn count(&mut self, instruction: &Instruction) {
        let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
        let first = instruction.op0_kind();
        let compares = matches!(&name[..], "cmp" | "test");
        if first == OpKind::NearBranch64 {
            self.branches += 1;
        } else if name.starts_with("prefetch") {
            self.prefetches += 1;
        } else if name == "nop" {
            self.others += 1;
        } else if first == OpKind::Memory && !compares {
            self.stores += 1;
        } else {
            let reads = (0..instruction.op_count())
                .any(|operand| instruction.op_kind(operand) == OpKind::Memory);
            let loads = reads && name != "lea";
            let broadcasts = name.starts_with("vbroadcast") || name.starts_with("vpbroadcast");
            match (loads, broadcasts || instruction.is_broadcast()) {
                (true, true) => self.broadcasts += 1,
                (true, false) => self.loads += 1,
                (false, _) => {}
            }
            if compares {
                self.compares += 1;
            } else if is_fma(&name) {
                self.fmas += 1;
            } else if is_move(&name) && !instruction.has_op_mask() {
                self.copies += usize::from(!loads);
            } else if loads && broadcasts {
                // Counted above.
            } else if instruction.op0_register().is_gpr() {
                self.integers += 1;
            } else {
                self.others += 1;
            }
            self.flop += flop(&name, instruction.op0_register());
        }
    }

    /// The counts in words: the common ones always, the others if they are not 0.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let always = [
            (self.instructions, "instruction", "instructions"),
            (self.fmas, "FMA", "FMAs"),
            (self.loads, "load", "loads"),
            (self.broadcasts, "broadcast", "broadcasts"),
            (self.stores, "store", "stores"),
            (self.spills, "spill", "spills"),
        ];
        let rare = [
            (self.prefetches, "prefetch", "prefetches"),
            (self.copies, "copy", "copies"),
            (self.others, "other operation", "other operations"),
            (self.integers, "pointer or counter update", "pointer or counter updates"),
            (self.compares, "compare", "compares"),
            (self.branches, "branch", "branches"),
            (self.flop, "flop", "flop"),
        ];
        let rare = rare.into_iter().filter(|(count, ..)| *count > 0);
        for (count, one, many) in always.into_iter().chain(rare) {
            let gap = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{gap}{count} {}", if count == 1 { one } else { many });
        }
        text
    }

    fn columns(&self) -> [usize; 13] {
        [
            self.instructions,
            self.fmas,
            self.loads,
            self.broadcasts,
            self.stores,
            self.spills,
            self.prefetches,
            self.copies,
            self.others,
            self.integers,
            self.compares,
            self.branches,
            self.flop,
        ]
    }
}

/// The names of [`Tally::columns`].
const COLUMNS: [&str; 13] = [
    "instr", "FMA", "load", "bcast", "store", "spill", "pref", "copy", "other", "int", "cmp",
    "branch", "flop",
];

/// A table of loops with their functions, as comments; empty without loops.
pub(super) fn table(loops: &[(String, Tally)]) -> String {
    if loops.is_empty() {
        return String::new();
    }
    let mut out =
        String::from("\n# Innermost loops of vectorized nests, one iteration of each:\n#");
    COLUMNS.iter().for_each(|name| {
        let _ = write!(out, " {name:>6}");
    });
    out.push_str("  loop\n");
    for (name, tally) in loops {
        out.push('#');
        tally.columns().iter().for_each(|count| {
            let _ = write!(out, " {count:>6}");
        });
        let _ = writeln!(out, "  {name}");
    }
    out
}

fn is_fma(name: &str) -> bool {
    ["vfmadd", "vfmsub", "vfnmadd", "vfnmsub", "vdpbf16", "vpdp"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether an instruction moves a whole register, from a register or memory.
fn is_move(name: &str) -> bool {
    let vector = ["vmovap", "vmovup", "vmovdq", "vmovss", "vmovsd", "vmovd", "vmovq", "kmov"];
    matches!(name, "mov" | "movzx" | "movsx" | "movsxd")
        || vector.iter().any(|prefix| name.starts_with(prefix)) && !name.ends_with("dup")
}

/// Floating-point operations of an instruction that writes `register`.
fn flop(name: &str, register: Register) -> usize {
    let simple = ["vadd", "vsub", "vmul", "vdiv", "vsqrt", "vmin", "vmax"];
    let each = match () {
        () if name.starts_with("vdpbf16") => 4,
        // Integers.
        () if name.starts_with("vpdp") => 0,
        () if is_fma(name) => 2,
        () if simple.iter().any(|prefix| name.starts_with(prefix)) => 1,
        () => 0,
    };
    let bytes = match register as usize {
        at if at >= Register::ZMM0 as usize => 64,
        at if at >= Register::YMM0 as usize => 32,
        _ => 16,
    };
    let lanes = match name.get(name.len().saturating_sub(2)..) {
        Some("ps") => bytes / 4,
        Some("pd") => bytes / 8,
        Some("ph") => bytes / 2,
        _ => 1,
    };
    each * lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// The innermost loop of a dot product, assembled by hand from the manual's tables.
    #[test]
    fn counts_by_kind() {
        let code: &[&[u8]] = &[
            &[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x06], // vmovups (%rsi),%zmm0
            &[0x62, 0xf2, 0x7d, 0x58, 0xb8, 0x0a], // vfmadd231ps (%rdx){1to16},%zmm0,%zmm1
            &[0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc1], // vaddps %zmm1,%zmm0,%zmm0
            &[0xc5, 0xf8, 0x28, 0xd1],             // vmovaps %xmm1,%xmm2
            &[0x0f, 0x18, 0x0e],                   // prefetcht0 (%rsi)
            &[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x07], // vmovups %zmm0,(%rdi)
            &[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x04, 0x24], // vmovups %zmm0,(%rsp)
            &[0x48, 0x83, 0xc6, 0x40],             // add $0x40,%rsi
            &[0x48, 0x39, 0xc6],                   // cmp %rax,%rsi
            &[0x7c, 0x00],                         // jl
        ];
        let bytes = code.concat();
        let spill = code[..6].iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        let instructions: Vec<Instruction> =
            Decoder::new(64, &bytes, DecoderOptions::NONE).into_iter().collect();
        let tally = Tally::of(instructions.iter(), &|at| at == spill);
        assert_eq!(
            tally.text(),
            "10 instructions, 1 FMA, 1 load, 1 broadcast, 1 store, 1 spill, 1 prefetch, 1 copy, \
             1 other operation, 1 pointer or counter update, 1 compare, 1 branch, 48 flop"
        );
        let table = table(&[("f for (i, 0, 4)".to_string(), tally)]);
        assert!(table.ends_with(" 48  f for (i, 0, 4)\n"), "{table}");
    }
}
