//! Random programs on rows with borders: indices are clamped, mirrored or wrapped at the ends, or
//! take turns between a few rows that are far apart; factors are the same in all lanes. Rows have
//! any length, and their last vectors are masked, guarded or shorter.

use crate::batch::{Batch, Draw};
use crate::differential::Case;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Parts of programs that legal programs must have.
const FEATURES: [&str; 13] = [
    "clamp(x - 1",
    "min(x + ",
    "max(",
    "x % 2",
    "A[y, x // 2",
    "x % 3 * h",
    "x // 2 % 2",
    "f[y]",
    "uint8",
    "float64",
    "w: var",
    "tail=mask",
    "unroll",
];

/// Runs `n` programs; fails at the first wrong one, or if too few are legal.
pub fn borders(n: u64, seed: u64) {
    let batch =
        Batch { name: "borders", features: &FEATURES, per_feature: 80, legal: 90, refusals: &[] };
    batch.run(n, seed, |number| {
        let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x85eb_ca6b).wrapping_add(number));
        let mut writer = Writer { rng };
        let (text, constant) = writer.program();
        let mut vars = vec![("h".to_string(), writer.rng.random_range(0..7))];
        if !constant {
            vars.push(("w".to_string(), writer.width()));
        }
        Case { text, kernel: "borders".to_string(), vars, seed: number }
    });
}

struct Writer {
    rng: ChaCha8Rng,
}

impl Writer {
    /// Draws the length of a row.
    fn width(&mut self) -> i64 {
        match self.rng.random_range(0..6) {
            0 => self.rng.random_range(1..6),
            1 => self.rng.pick(&[16, 32, 64, 96]),
            _ => self.rng.random_range(6..130),
        }
    }

    /// Returns a program and whether the length of a row is constant.
    fn program(&mut self) -> (String, bool) {
        let from = self.rng.pick(&[
            "uint8", "uint8", "int16", "uint16", "float32", "float32", "float32", "float64",
            "int64", "float16", "int32",
        ]);
        let into = match from {
            "uint8" => self.rng.pick(&["uint8", "int16", "int32", "float32"]),
            "float16" => "float32",
            other => other,
        };
        let constant = self.rng.chance(75);
        let width = if constant { format!("w = {}", self.width()) } else { "w: var".to_string() };
        let terms = self.rng.random_range(1..4);
        let terms: Vec<String> = (0..terms).map(|_| self.term(into)).collect();
        let sum = terms.join(" + ");
        let value = match self.rng.random_range(0..4) {
            0 => format!("f[y] * ({sum})"),
            1 => format!("if x < w // 2 then {sum} else f[y]"),
            2 => format!("max({sum}, f[y])"),
            _ => sum,
        };
        // Rows that take turns are `h` rows apart.
        let text = format!(
            "kernel borders(h: var, {width}) {{\n    input A: {from}[4 * h, w + 1]\n    \
             input f: {into}[h]\n    output B[y: h, x: w] = {value}\n}}\n\n"
        );
        let lines = self.schedule();
        (format!("{text}schedule borders {{\n    {}\n}}\n", lines.join("\n    ")), constant)
    }

    /// Draws an element as a value of a type.
    fn term(&mut self, into: &str) -> String {
        let by = self.rng.random_range(1..4);
        let read = match self.rng.random_range(0..12) {
            0 => "A[y, clamp(x - 1, 0, w - 1)]".to_string(),
            1 => format!("A[y, clamp(x + {by}, 0, w - 1)]"),
            2 => format!("A[y, min(x + {by}, w)]"),
            3 => format!("A[y, max(x - {by}, {})]", self.rng.random_range(0..2)),
            4 => "A[y + x % 2 * h, x // 2]".to_string(),
            5 => "A[y, x // 2 + x % 2]".to_string(),
            6 => format!("A[y, (x + {by}) % w]"),
            7 => format!("A[y, w - 1 - max(x - {by}, 0)]"),
            8 => "A[y + x % 3 * h, x // 3]".to_string(),
            9 => "A[y + x % 4 * h, x // 4]".to_string(),
            10 => "A[y + x // 2 % 2 * h, x // 4 * 2 + x % 2]".to_string(),
            _ => "A[y, x]".to_string(),
        };
        format!("({read} as {into})")
    }

    fn schedule(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let lanes = self.rng.pick(&[4, 8, 8, 16, 16, 32, 64]);
        let tail = self.rng.pick(&["", ", tail=mask", ", tail=mask", ", tail=guard"]);
        if self.rng.chance(25) {
            lines.push("let yo, yi = B.split(y, factor=3)".to_string());
            lines.push(format!("let xo, xi = B.split(x, factor={lanes}{tail})"));
            lines.push("B.reorder(yo, xo, yi, xi)".to_string());
            lines.push("B.unroll(yi)".to_string());
        } else {
            lines.push(format!("let xo, xi = B.split(x, factor={lanes}{tail})"));
        }
        lines.push("B.vectorize(xi)".to_string());
        if self.rng.chance(20) {
            lines.push("B.store_nontemporal()".to_string());
        }
        lines
    }
}
