//! Random reductions in lanes: partial results of vectors are reduced in a few steps, each of which
//! reads lanes of the one before, in registers or in memory. Types, reductions, conditions, the
//! numbers of lanes and the sizes differ, some of which are known at run time only.

use crate::batch::{Batch, Draw};
use crate::differential::Case;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Parts of programs that legal programs must have.
const FEATURES: [&str; 12] = [
    "float16",
    "float64",
    "int16",
    "uint64",
    "m: var",
    "m = ",
    "where=",
    "max(",
    "min(",
    "set_scope",
    "let second",
    "let third",
];

/// Runs `n` programs; fails at the first wrong one, or if too few are legal.
pub fn lanes(n: u64, seed: u64) {
    let batch = Batch {
        name: "lanes",
        features: &FEATURES,
        per_feature: 80,
        legal: 90,
        refusals: &["E0226"],
    };
    batch.run(n, seed, |number| {
        let rng = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x2545_f491).wrapping_add(number));
        let mut writer = Writer { rng };
        let (text, constant) = writer.program();
        let mut vars = vec![("n".to_string(), writer.size(20))];
        if !constant {
            vars.push(("m".to_string(), writer.size(150)));
        }
        Case { text, kernel: "lanes".to_string(), vars, seed: number }
    });
}

struct Writer {
    rng: ChaCha8Rng,
}

impl Writer {
    /// Draws a size, sometimes none or one element, or whole vectors.
    fn size(&mut self, most: i64) -> i64 {
        match self.rng.random_range(0..8) {
            0 => self.rng.pick(&[0, 1]),
            1 => self.rng.pick(&[16, 32, 64, 128]).min(most),
            _ => self.rng.random_range(1..most),
        }
    }

    /// Returns a program and whether the number of terms is constant.
    fn program(&mut self) -> (String, bool) {
        let ty = self.rng.pick(&[
            "float32", "float32", "float32", "float64", "float16", "int32", "int16", "uint8",
            "int64", "uint64",
        ]);
        let sum = match ty {
            "float16" => "float32",
            "uint8" => "int32",
            other => other,
        };
        let constant = self.rng.chance(40);
        let extent =
            if constant { format!("m = {}", self.size(150)) } else { "m: var".to_string() };
        let term = self.rng.pick(&[
            "(A[i, k] as T) * (B[k] as T)",
            "(A[i, k] as T) * (B[k] as T)",
            "(A[i, k] as T)",
            "(A[i, k] as T) * (D[i] as T)",
            "(A[i, m - 1 - k] as T)",
            "((if k > 0 then A[i, k - 1] else A[i, k]) as T)",
            "(A[i, k // 2] as T)",
        ]);
        let term = term.replace('T', sum);
        let condition = self.rng.pick(&["", "", "", ", where=k <= i + 3", ", where=B[k] > 0"]);
        let output = match self.rng.random_range(0..10) {
            0 | 1 => format!("S[i: n] = max({term}, axis=k{condition})"),
            2 => format!("S[i: n] = min({term}, axis=k{condition})"),
            _ => format!("S[i: n] = sum({term}, axis=k{condition})"),
        };
        let more = match self.rng.chance(50) {
            true => format!("    output R[i: n] = S[i] + (A[i, 0] as {sum})\n"),
            false => String::new(),
        };
        // `A[i, 0]` exists only if there are terms.
        let more = if constant && !extent.ends_with(" 0") { more } else { String::new() };
        let text = format!(
            "kernel lanes(n: var, {extent}) reassociate {{\n    input A: {ty}[n, m]\n    \
             input B: {ty}[m]\n    input D: {ty}[n]\n    reduce k: 0..m\n    output {output}\n\
             {more}}}\n\n"
        );
        let lines = self.schedule();
        (format!("{text}schedule lanes {{\n    {}\n}}\n", lines.join("\n    ")), constant)
    }

    fn schedule(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut at = "i";
        if self.rng.chance(40) {
            let factor = self.rng.pick(&[2, 3, 4, 8]);
            lines.push(format!("let io, ii = S.split(i, factor={factor})"));
            at = "ii";
            if self.rng.chance(30) {
                lines.push("S.parallel(io)".to_string());
            }
        }
        let factors = self.rng.pick(&[
            &[64, 16, 4][..],
            &[64, 16],
            &[32, 8, 4],
            &[32, 4],
            &[16, 4],
            &[16, 8, 2],
            &[16],
            &[8, 4, 2],
            &[8, 2],
            &[24, 8, 4],
            &[12, 4],
            &[6, 3],
        ]);
        // Each step splits the lanes of the one before.
        let mut axis = "k".to_string();
        let mut stages = Vec::new();
        for (name, factor) in ["first", "second", "third"].into_iter().zip(factors) {
            let (outer, inner) = (format!("{axis}o"), format!("{axis}i"));
            lines.push(format!("let {outer}, {inner} = S.split({axis}, factor={factor})"));
            lines.push(format!("let {name} = S.rfactor({inner})"));
            stages.push((name, outer, inner.clone()));
            axis = inner;
        }
        if self.rng.chance(60) {
            lines.push(format!("S.unroll({axis})"));
        }
        let local = self.rng.chance(80);
        for (name, outer, inner) in stages.iter().rev() {
            lines.push(format!("{name}.compute_at(S, {at})"));
            if local {
                lines.push(format!("{name}.set_scope(local)"));
            }
            lines.push(format!("{name}.reorder(i, {outer}, {inner})"));
            if self.rng.chance(85) {
                lines.push(format!("{name}.vectorize({inner})"));
            }
            if outer != "ko" && self.rng.chance(70) {
                lines.push(format!("{name}.unroll({outer})"));
            }
        }
        lines
    }
}
