//! Random tiles of products whose extents are no multiples of the tile: packed or plain operands,
//! lanes of vectors and of instructions, unrolled rows, tiles of tiles, conditions and gathers.
//! `schedule::whole_tiles` decides for each axis whether a tile is computed whole.

use crate::batch::{Batch, Draw};
use crate::differential::Case;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Parts of programs that legal programs must have.
const FEATURES: [&str; 11] = [
    "cache_write",
    "layout=[ax1 //",
    "layout=[ax0 //",
    "dot",
    "tile_",
    "vectorize(bt)",
    "vectorize",
    "unroll",
    "where=",
    "bias",
    "G[",
];

/// Runs `n` programs; fails at the first wrong one, or if too few are legal.
pub fn tiles(n: u64, seed: u64) {
    // An instruction may not match.
    let refusals = &["E0378"];
    let batch = Batch { name: "tiles", features: &FEATURES, per_feature: 50, legal: 50, refusals };
    batch.run(n, seed, |number| {
        let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9).wrapping_add(number));
        let text = Writer { rng }.program();
        Case { text, kernel: "product".to_string(), vars: Vec::new(), seed: number }
    });
}

/// Types of the factors and of the sum, terms of an instruction and its name.
type Kind = (&'static str, &'static str, &'static str, i64, &'static str);

const KINDS: [Kind; 8] = [
    ("uint8", "int8", "int32", 4, "dot4_u8_i8"),
    ("int8", "uint8", "int32", 4, "dot4_i8_u8"),
    ("int16", "int16", "int32", 2, "dot2_i16"),
    ("uint8", "int8", "int32", 4, "tile_u8_i8"),
    ("int8", "int8", "int32", 4, "tile_i8_i8"),
    ("float32", "float32", "float32", 1, ""),
    ("int32", "int32", "int32", 1, ""),
    ("bfloat16", "float16", "float32", 1, ""),
];

/// Returns a layout of panels of elements along one axis, in groups along the other one.
fn packed((axis, panel): (&str, i64), (other, group): (&str, i64)) -> String {
    let part = |axis: &str, by: i64| match by {
        1 => (axis.to_string(), None),
        _ => (format!("{axis} // {by}"), Some(format!("{axis} % {by}"))),
    };
    let ((outer, inner), (groups, rest)) = (part(axis, panel), part(other, group));
    let dims = [Some(outer), Some(groups), inner, rest];
    dims.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

struct Writer {
    rng: ChaCha8Rng,
}

impl Writer {
    fn program(mut self) -> String {
        let (a, b, sum, terms, instruction) = self.rng.pick(&KINDS);
        let tensorized = terms > 1 && self.rng.chance(75);
        let group = if tensorized { terms } else { self.rng.pick(&[1, 1, 2, 3]) };
        let sizes: Vec<i64> = (0..3).map(|_| self.rng.random_range(1..45)).collect();
        let (rows, columns, depth) = (sizes[0], sizes[1], sizes[2]);
        let gather = self.rng.chance(15);
        let same_rows = !gather && self.rng.chance(12);
        let row = match (gather, same_rows) {
            (true, _) => "G[i]",
            (_, true) => "0",
            _ => "i",
        };
        let (x, y) = (format!("(A[{row}, k] as {sum})"), format!("(B[k, j] as {sum})"));
        let mut term =
            if self.rng.chance(50) { format!("{x} * {y}") } else { format!("{y} * {x}") };
        if !tensorized && self.rng.chance(15) {
            term = format!("{term} + D[j]");
        }
        let bias = self.rng.chance(25);
        let condition = match tensorized {
            true => "",
            false => self.rng.pick(&["", "", ", where=k <= j", ", where=k < i + 9"]),
        };
        let mut text = format!(
            "kernel product() {{\n    input A: {a}[{rows}, {depth}]\n    \
             input B: {b}[{depth}, {columns}]\n    input D: {sum}[{columns}]\n    \
             input G: uint8[{rows}]\n    reduce k: 0..{depth}\n"
        );
        if gather {
            // Every value of the type is a row.
            text = text.replace(&format!("A: {a}[{rows},"), &format!("A: {a}[256,"));
        }
        let name = if bias { "S" } else { "C" };
        let what = if bias { "compute" } else { "output" };
        text.push_str(&format!(
            "    {what} {name}[i: {rows}, j: {columns}] = sum({term}, axis=k{condition})\n"
        ));
        if bias {
            let stage = format!("output C[i: {rows}, j: {columns}] = S[i, j] + D[j]  # bias");
            text.push_str(&format!("    {stage}\n"));
        }
        let lines = self.schedule(bias, group, tensorized.then_some(instruction));
        text.push_str(&format!("}}\n\nschedule product {{\n    {}\n}}\n", lines.join("\n    ")));
        text
    }

    fn schedule(&mut self, bias: bool, group: i64, instruction: Option<&str>) -> Vec<String> {
        let mut lines = Vec::new();
        let tile = if bias { "S" } else { "T" };
        if !bias {
            lines.push("let T = C.cache_write(local)".to_string());
        }
        let in_tiles = instruction.is_some_and(|name| name.starts_with("tile"));
        let lanes = match instruction {
            Some(_) if in_tiles => self.rng.pick(&[2, 5, 16, 16]),
            Some(_) => 16,
            None => self.rng.pick(&[4, 8, 16]),
        };
        let vectors = self.rng.pick(&[1, 1, 2, 3]);
        let side = if in_tiles { self.rng.pick(&[2, 3, 7, 16]) } else { 1 };
        let (width, height) = (lanes * vectors, side * self.rng.pick(&[1, 2, 3, 5]));
        let packs_rows = !in_tiles && self.rng.chance(40);
        if instruction.is_some() || self.rng.chance(75) {
            let panel = if self.rng.chance(85) { width } else { lanes };
            let layout = packed(("ax1", panel), ("ax0", group));
            lines.push(format!("let BP = B.cache_read(global, [{tile}], layout=[{layout}])"));
            if group > 1 && panel > 1 && self.rng.chance(50) {
                // Rows of terms in turns.
                lines.push("let bt = BP.fuse(p2, p3)".to_string());
                lines.push("BP.vectorize(bt)".to_string());
            }
        } else if self.rng.chance(40) {
            lines.push(format!("let BL = B.cache_read(local, [{tile}])"));
        }
        if packs_rows {
            let terms = if instruction.is_some() { group } else { 1 };
            let layout = packed(("ax0", height), ("ax1", terms));
            lines.push(format!("let AP = A.cache_read(global, [{tile}], layout=[{layout}])"));
        }
        lines.push(format!("let io, ii = C.split(i, factor={height})"));
        lines.push(format!("let jo, ji = C.split(j, factor={width})"));
        let mut order = vec!["io", "jo", "ii", "ji"];
        let mut at = "jo";
        if self.rng.chance(50) {
            // Tiles of tiles: some begin outside of the domain.
            let (i, j) = (self.rng.pick(&[2, 3]), self.rng.pick(&[2, 3]));
            lines.push(format!("let ioo, ioi = C.split(io, factor={i})"));
            lines.push(format!("let joo, joi = C.split(jo, factor={j})"));
            order = vec!["ioo", "joo", "ioi", "joi", "ii", "ji"];
            at = "joi";
        }
        lines.push(format!("C.reorder({})", order.join(", ")));
        if self.rng.chance(70) {
            lines.push("C.vectorize(ji)".to_string());
        }
        if self.rng.chance(30) {
            lines.push(format!("C.parallel({})", order[0]));
        }
        lines.push(format!("{tile}.compute_at(C, {at})"));
        if lines.iter().any(|line| line.starts_with("let BL")) {
            lines.push(format!("BL.compute_at(C, {at})"));
        }
        if in_tiles {
            let groups = self.rng.pick(&[2, 3, 8, 16]);
            lines.push(format!("let ko, km, ki = {tile}.split(k, factors=[{groups}, {group}])"));
            lines.push(format!("let it, ir = {tile}.split(i, factor={side})"));
        } else {
            lines.push(format!("let ko, ki = {tile}.split(k, factor={group})"));
        }
        lines.push(format!("let jv, jl = {tile}.split(j, factor={lanes})"));
        match instruction {
            Some(name) if in_tiles => {
                let order = self.rng.pick(&["it, jv", "jv, it"]);
                lines.push(format!("{tile}.reorder(ko, {order}, ir, jl, km, ki)"));
                lines.push(format!("{tile}.tensorize(ir, {name})"));
            }
            Some(name) => {
                lines.push(format!("{tile}.reorder(ko, i, jv, jl, ki)"));
                lines.push(format!("{tile}.tensorize(jl, {name})"));
            }
            None => {
                lines.push(format!("{tile}.reorder(ko, ki, i, jv, jl)"));
                if self.rng.chance(85) {
                    lines.push(format!("{tile}.vectorize(jl)"));
                }
            }
        }
        for axis in [if in_tiles { "it" } else { "i" }, "jv"] {
            if self.rng.chance(75) {
                lines.push(format!("{tile}.unroll({axis})"));
            }
        }
        lines
    }
}
