//! Random sums of products under `merge`, `contract`, `distribute` and copies in other types, with
//! integers, whose sums are exact.
//!
//! These directives seldom apply to other random programs, so these programs are made for them:
//! chains of factors over random axes, read shifted and mirrored, and sums over sums.

use crate::batch::Batch;
use crate::differential::Case;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Parts of schedules that legal programs must have.
const FEATURES: [&str; 5] =
    ["P.distribute()", "P.contract(", ".merge(", "dtype=uint8, offset=128", "dtype=int16"];

/// Runs `n` programs; fails at the first wrong one, or if too few are legal.
pub fn algebra(n: u64, seed: u64) {
    let batch = Batch {
        name: "sums of products",
        features: &FEATURES,
        per_feature: 200,
        legal: 50,
        refusals: &["E0395", "E0396", "E0397", "E0398"],
    };
    batch.run(n, seed, |number| {
        let text = Writer::new(seed, number).program();
        Case { text, kernel: "sums".to_string(), vars: Vec::new(), seed: number }
    });
}

struct Writer {
    rng: ChaCha8Rng,
    inputs: String,
    count: usize,
    /// The names of inputs of int8.
    narrow: Vec<String>,
}

/// Data axes, then reduction axes: name, first value, extent.
type Axes = Vec<(String, i64, i64)>;

impl Writer {
    fn new(seed: u64, number: u64) -> Writer {
        let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9).wrapping_add(number));
        Writer { rng, inputs: String::new(), count: 0, narrow: Vec::new() }
    }

    fn axes(&mut self, names: &[&str], sums: bool) -> Axes {
        let axis = |name: &&str| {
            let min =
                if sums && self.rng.random_bool(0.3) { self.rng.random_range(0..3) } else { 0 };
            (name.to_string(), min, self.rng.random_range(1..5i64))
        };
        names.iter().map(axis).collect()
    }

    /// Returns an element of a new input, over some of the axes.
    fn factor(&mut self, axes: &Axes) -> String {
        let name = format!("F{}", self.count);
        self.count += 1;
        let (mut indices, mut shape) = (Vec::new(), Vec::new());
        for (axis, min, extent) in axes {
            if !self.rng.random_bool(0.5) {
                continue;
            }
            let end = min + extent;
            let (index, size) = match self.rng.random_range(0..4u32) {
                0 => (format!("{} - {axis}", end + 1), end + 2),
                1 => (format!("2 * {axis} + 1"), 2 * end),
                _ => (axis.clone(), end),
            };
            indices.push(index);
            shape.push(size.to_string());
        }
        let narrow = self.rng.random_bool(0.2);
        let dtype = if narrow { "int8" } else { "int32" };
        self.inputs.push_str(&format!("    input {name}: {dtype}[{}]\n", shape.join(", ")));
        let mut element = format!("{name}[{}]", indices.join(", "));
        if narrow {
            element = format!("({element} as int32)");
            self.narrow.push(name);
        }
        match self.rng.random_range(0..6u32) {
            0 => format!("({element} - {})", self.rng.random_range(-9..300)),
            1 => format!("({} - ({element} + (i as int32)))", self.rng.random_range(-9..300)),
            _ => element,
        }
    }

    /// Returns a product in a random tree.
    fn product(&mut self, axes: &Axes) -> String {
        let mut parts: Vec<String> =
            (0..self.rng.random_range(1..5)).map(|_| self.factor(axes)).collect();
        while parts.len() > 1 {
            let at = self.rng.random_range(0..parts.len() - 1);
            let right = parts.remove(at + 1);
            parts[at] = format!("({} * {right})", parts[at]);
        }
        parts.remove(0)
    }

    fn program(mut self) -> String {
        let data = self.axes(&["i", "j"], false);
        let sums = self.axes(&["k", "l", "q"], true);
        let all: Axes = data.iter().chain(&sums).cloned().collect();
        let term = self.product(&all);
        let names = |axes: &Axes| -> String {
            axes.iter().map(|axis| axis.0.clone()).collect::<Vec<_>>().join(", ")
        };
        let shape = |axes: &Axes| -> String {
            let axis = |(name, _, extent): &(String, i64, i64)| format!("{name}: {extent}");
            axes.iter().map(axis).collect::<Vec<_>>().join(", ")
        };
        let range =
            |(name, min, extent): &(String, i64, i64)| format!("{name}: {min}..{}", min + extent);
        let mut body =
            format!("    compute P[{}] = sum({term}, axis=[{}])\n", shape(&data), names(&sums));
        // A sum over the first axis of `P`, sometimes mirrored, and a copy of it.
        let rows = data[0].2;
        let (first, last) =
            if self.rng.random_bool(0.3) && rows > 1 { (1, rows) } else { (0, rows) };
        let row =
            if self.rng.random_bool(0.5) { "r".to_string() } else { format!("{} - r", rows - 1) };
        let reduce: Vec<String> =
            sums.iter().map(range).chain([format!("r: {first}..{last}")]).collect();
        let whole = if self.rng.random_bool(0.2) { ", where=r != 1" } else { "" };
        let columns = data[1].2;
        body.push_str(&format!("    compute S[j: {columns}] = sum(P[{row}, j], axis=r{whole})\n"));
        body.push_str(&format!("    output T[j: {columns}] = S[{} - j]\n", columns - 1));
        let mut lines = Vec::new();
        if let Some(name) = self.narrow.first().filter(|_| self.rng.random_bool(0.5)) {
            let to = ["dtype=uint8, offset=128", "dtype=int16", "dtype=int16, offset=-7"];
            let to = to[self.rng.random_range(0..to.len())];
            lines.push(format!("    {name}.cache_read(global, [P], {to})"));
        }
        let distributed = self.rng.random_bool(0.3);
        if distributed {
            lines.push("    P.distribute()".to_string());
        }
        let mut left: Vec<String> = sums.iter().map(|axis| axis.0.clone()).collect();
        for round in 0..if distributed { 0 } else { self.rng.random_range(0..3u32) } {
            if left.is_empty() {
                break;
            }
            let at = self.rng.random_range(0..left.len());
            let mut chosen = vec![left.remove(at)];
            if !left.is_empty() && self.rng.random_bool(0.3) {
                chosen.push(left.remove(0));
            }
            lines.push(format!("    let C{round} = P.contract({})", chosen.join(", ")));
        }
        for merge in ["S.merge(P)", "T.merge(S)"] {
            if !distributed && self.rng.random_bool(0.7) {
                lines.push(format!("    {merge}"));
            }
        }
        for loops in ["T.vectorize(j)", "T.parallel(j)"] {
            if self.rng.random_bool(0.3) {
                lines.push(format!("    {loops}"));
                break;
            }
        }
        format!(
            "kernel sums() {{\n{}    reduce {}\n{body}}}\n\nschedule sums {{\n{}\n}}\n",
            self.inputs,
            reduce.join(", "),
            lines.join("\n")
        )
    }
}
