//! Random programs on pixels with their channels last: each channel may have an expression of its
//! own, indices have `%` and `//` by the number of channels, and rows have any length. Columns and
//! channels are fused and vectorized, often in lanes that end in the middle of a pixel or of a row,
//! and stored with or without the cache.

use crate::batch::{Batch, Draw};
use crate::differential::Case;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Parts of programs that legal programs must have.
const FEATURES: [&str; 10] = [
    "else if c == 1",
    " % ",
    " // 2",
    "uint8",
    "float16",
    "w: var",
    "fuse(x, c)",
    "fuse(y, x, c)",
    "store_nontemporal",
    "tail=mask",
];

/// Runs `n` programs; fails at the first wrong one, or if too few are legal.
pub fn pixels(n: u64, seed: u64) {
    let batch =
        Batch { name: "pixels", features: &FEATURES, per_feature: 80, legal: 90, refusals: &[] };
    batch.run(n, seed, |number| {
        let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9e37_79b1).wrapping_add(number));
        let mut writer = Writer { rng };
        let (text, constant) = writer.program();
        let mut vars = vec![("h".to_string(), writer.rng.random_range(0..6))];
        if !constant {
            vars.push(("w".to_string(), writer.width()));
        }
        Case { text, kernel: "pixels".to_string(), vars, seed: number }
    });
}

struct Writer {
    rng: ChaCha8Rng,
}

impl Writer {
    /// Draws a number of pixels in a row.
    fn width(&mut self) -> i64 {
        match self.rng.random_range(0..8) {
            0 => self.rng.pick(&[1, 2]),
            1 => self.rng.pick(&[16, 32, 64]),
            _ => self.rng.random_range(1..90),
        }
    }

    /// Returns a program and whether the length of a row is constant.
    fn program(&mut self) -> (String, bool) {
        let channels = self.rng.pick(&[2, 3, 3, 3, 4, 4, 5]);
        let from = self.rng.pick(&["uint8", "uint8", "float32", "float32", "uint16", "float16"]);
        let into = match from {
            "float16" => self.rng.pick(&["float32", "float16"]),
            "uint8" => self.rng.pick(&["uint8", "uint8", "float32", "int32"]),
            other => other,
        };
        let constant = self.rng.chance(70);
        let width = if constant { format!("w = {}", self.width()) } else { "w: var".to_string() };
        let mut value = self.term(channels, into);
        for c in (0..self.rng.random_range(0..channels)).rev() {
            value = format!("if c == {c} then {} else {value}", self.term(channels, into));
        }
        let text = format!(
            "kernel pixels(h: var, {width}) {{\n    input X: {from}[h, w, {channels}]\n    \
             input G: {into}[{channels}]\n    \
             output Y[y: h, x: w, c: {channels}] = {value}\n}}\n\n"
        );
        let lines = self.schedule(channels);
        (format!("{text}schedule pixels {{\n    {}\n}}\n", lines.join("\n    ")), constant)
    }

    /// Draws the value of a channel.
    fn term(&mut self, channels: i64, into: &str) -> String {
        let one = self.rng.random_range(0..channels);
        let by = self.rng.random_range(1..channels);
        let read = match self.rng.random_range(0..9) {
            0 => format!("X[y, x, {one}]"),
            1 => format!("X[y, x, (c + {by}) % {channels}]"),
            2 => format!("X[y, x, {} - c]", channels - 1),
            3 => "X[y, x // 2, c]".to_string(),
            4 => format!("X[y, x // 2 * 2, {one}]"),
            5 => "X[y, clamp(x - 1, 0, w - 1), c]".to_string(),
            6 => "X[y, w - 1 - x, c]".to_string(),
            7 => "X[y, x, c // 2]".to_string(),
            _ => "X[y, x, c]".to_string(),
        };
        let read = format!("({read} as {into})");
        match self.rng.random_range(0..6) {
            0 => format!("{read} * G[c]"),
            1 => format!("{read} + (X[y, x, {one}] as {into})"),
            2 => format!("max({read}, G[{one}])"),
            3 => format!("(if (x + c) % 2 == 0 then {read} else G[c])"),
            _ => read,
        }
    }

    fn schedule(&mut self, channels: i64) -> Vec<String> {
        let mut lines = Vec::new();
        let axis = match self.rng.random_range(0..6) {
            0 => "c",
            1 => "x",
            2 => {
                lines.push("let p = Y.fuse(y, x, c)".to_string());
                "p"
            }
            _ => {
                lines.push("let p = Y.fuse(x, c)".to_string());
                "p"
            }
        };
        let lanes = self.rng.pick(&[4, 8, 16, 16, 32, 64]);
        let factor = match self.rng.random_range(0..3) {
            0 => lanes * channels,
            1 => 12 * self.rng.pick(&[1, 2, 4]),
            _ => lanes,
        };
        let tail = self.rng.pick(&["", "", ", tail=mask", ", tail=guard"]);
        if axis == "c" {
            lines.push("Y.vectorize(c)".to_string());
        } else {
            lines.push(format!("let po, pi = Y.split({axis}, factor={factor}{tail})"));
            if axis == "x" {
                lines.push("Y.reorder(y, po, c, pi)".to_string());
            }
            lines.push("Y.vectorize(pi)".to_string());
            if self.rng.chance(25) {
                let outer = self.rng.pick(&[2, 3]);
                lines.push(format!("let poo, poi = Y.split(po, factor={outer})"));
                lines.push("Y.unroll(poi)".to_string());
            }
        }
        if self.rng.chance(35) {
            lines.push("Y.store_nontemporal()".to_string());
        }
        lines
    }
}
