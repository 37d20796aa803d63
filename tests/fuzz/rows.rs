//! Random sums over run-time sizes in tiles of unrolled rows: the rows at the end of a tensor may
//! not exist, and their sums stay in registers with those of the others. Terms differ between the
//! rows in indices, in conditions, in values and in data.

use crate::batch::{Batch, Draw};
use crate::differential::Case;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Parts of programs that legal programs must have.
const FEATURES: [&str; 10] = [
    "cache_write",
    "argmax",
    "max(",
    "where=",
    "clamp(",
    "(i as ",
    "//",
    "parallel",
    "unroll(ki)",
    "vectorize",
];

/// Runs `n` programs; fails at the first wrong one, or if too few are legal.
pub fn rows(n: u64, seed: u64) {
    let batch =
        Batch { name: "rows", features: &FEATURES, per_feature: 50, legal: 90, refusals: &[] };
    batch.run(n, seed, |number| {
        let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x517c_c1b7).wrapping_add(number));
        let mut writer = Writer { rng };
        let text = writer.program();
        let vars = ["n", "m", "l"].map(|name| (name.to_string(), writer.size())).to_vec();
        Case { text, kernel: "rows".to_string(), vars, seed: number }
    });
}

struct Writer {
    rng: ChaCha8Rng,
}

impl Writer {
    /// Draws a size: mostly one that ends in the middle of a tile, sometimes none or one element.
    fn size(&mut self) -> i64 {
        match self.rng.random_range(0..10) {
            0 => self.rng.pick(&[0, 1]),
            1 => self.rng.pick(&[8, 16, 32, 48, 64]),
            _ => self.rng.random_range(1..45),
        }
    }

    fn program(&mut self) -> String {
        let ty = self.rng.pick(&["float32", "float32", "float64", "int32", "uint8", "float16"]);
        let sum = match ty {
            "uint8" => "int32",
            "float16" => "float32",
            other => other,
        };
        let row = self.rng.pick(&[
            "A[i, k]",
            "A[i, k]",
            "A[i, k]",
            "A[n - 1 - i, k]",
            "A[clamp(G[i] as int64, 0, (n - 1) as int64), k]",
            "A[min(i + 1, n - 1), k]",
            "(if i > 0 then A[i - 1, k] else 1)",
            "(if i + 2 < n then A[i + 2, k] else A[i, k])",
            "(A[i, k] + A[0, k])",
        ]);
        let mut term = format!("({row} as {sum}) * (B[k, j] as {sum})");
        match self.rng.random_range(0..12) {
            0 => term = format!("{term} + D[i]"),
            1 => term = format!("{term} - D[n - 1 - i]"),
            2 => term = format!("(i as {sum}) * {term}"),
            3 => term = "(k as int32) * G[i] // (G[i] - G[n - 1 - i])".to_string(),
            4 => term = format!("{term} * (if D[i] > 0 then 2 else 3)"),
            _ => {}
        }
        // The quotient has no other data than integers.
        let (sum, data) = if term.contains("//") { ("int32", "float32") } else { (sum, sum) };
        let condition = self.rng.pick(&["", "", "", ", where=k <= j", ", where=k < i + 9"]);
        let reduction = match self.rng.random_range(0..6) {
            0 => format!("max({term}, axis=k{condition})"),
            _ => format!("sum({term}, axis=k{condition})"),
        };
        let output = match self.rng.random_range(0..8) {
            0 => {
                format!("(I: int32, C: {sum})[i: n, j: m] = argmax((k, {term}), axis=k{condition})")
            }
            _ => format!("C[i: n, j: m] = {reduction}"),
        };
        let is_tuple = output.starts_with('(');
        let text = format!(
            "kernel rows(n: var, m: var, l: var) {{\n    input A: {ty}[n, l]\n    \
             input B: {ty}[l, m]\n    input D: {data}[n]\n    input G: int32[n]\n    \
             reduce k: 0..l\n    output {output}\n}}\n\n"
        );
        let lines = self.schedule(is_tuple);
        format!("{text}schedule rows {{\n    {}\n}}\n", lines.join("\n    "))
    }

    fn schedule(&mut self, is_tuple: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let tile = !is_tuple && self.rng.chance(40);
        let (sums, stage) = if tile { ("T", "C") } else { ("C", "C") };
        if tile {
            lines.push("let T = C.cache_write(local)".to_string());
        }
        let height = self.rng.random_range(2..10);
        let lanes = self.rng.pick(&[4, 8, 16]);
        let width = lanes * self.rng.pick(&[1, 1, 2]);
        lines.push(format!("let io, ii = {stage}.split(i, factor={height})"));
        lines.push(format!("let jo, ji = {stage}.split(j, factor={width})"));
        let mut outer = vec!["io", "jo"];
        if self.rng.chance(50) {
            // Tiles of tiles: some begin outside of the domain.
            let (i, j) = (self.rng.pick(&[2, 3]), self.rng.pick(&[2, 4]));
            lines.push(format!("let ioo, ioi = {stage}.split(io, factor={i})"));
            lines.push(format!("let joo, joi = {stage}.split(jo, factor={j})"));
            outer = vec!["ioo", "joo", "ioi", "joi"];
        }
        if self.rng.chance(50) {
            outer.swap(0, 1);
        }
        if outer.len() == 4 && self.rng.chance(50) {
            outer.swap(2, 3);
        }
        let by = self.rng.pick(&[1, 1, 2, 3]);
        let (mut terms, mut unrolled) = (vec!["k"], false);
        if by > 1 {
            let of = if tile { sums } else { stage };
            lines.push(format!("let ko, ki = {of}.split(k, factor={by})"));
            terms = vec!["ko", "ki"];
            unrolled = self.rng.chance(70);
        }
        if tile {
            lines.push(format!("C.reorder({}, ii, ji)", outer.join(", ")));
            lines.push(format!("T.compute_at(C, {})", outer[outer.len() - 1]));
            lines.push(format!("T.reorder({}, i, j)", terms.join(", ")));
            lines.push("T.unroll(i)".to_string());
            if self.rng.chance(80) {
                lines.push("T.vectorize(j)".to_string());
            }
        } else {
            lines.push(format!("C.reorder({}, {}, ii, ji)", outer.join(", "), terms.join(", ")));
        }
        lines.push(format!("{stage}.unroll(ii)"));
        if self.rng.chance(80) {
            lines.push(format!("{stage}.vectorize(ji)"));
        }
        if unrolled {
            lines.push(format!("{}.unroll(ki)", if tile { sums } else { stage }));
        }
        match self.rng.random_range(0..4) {
            0 => lines.push(format!("C.parallel({})", outer[0])),
            1 if !tile => {
                lines.push(format!("let blocks = C.fuse({}, {})", outer[0], outer[1]));
                lines.push("C.parallel(blocks)".to_string());
            }
            _ => {}
        }
        lines
    }
}
