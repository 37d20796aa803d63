//! The limits of `.target` and `.version`: the instructions of each, and the shared memory of a
//! block.
//!
//! The table follows `ptxas` 13.5; `tests/needs.rs` compares each form with `ptxas`.

use crate::error::{Error, Result};

/// The header of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The number of the target: 90 for `sm_90a`.
    sm: u32,
    /// The letter after it, or nothing.
    letter: &'static str,
    version: (u32, u32),
}

/// Targets with the first version that knows them; some have a letter after the number.
const TARGETS: &[(u32, &str, (u32, u32))] = &[
    (50, "", (4, 0)),
    (52, "", (4, 1)),
    (53, "", (4, 2)),
    (60, "", (5, 0)),
    (61, "", (5, 0)),
    (62, "", (5, 0)),
    (70, "", (6, 0)),
    (72, "", (6, 1)),
    (75, "", (6, 3)),
    (80, "", (7, 0)),
    (86, "", (7, 1)),
    (87, "", (7, 4)),
    (88, "", (9, 0)),
    (89, "", (7, 8)),
    (90, "", (7, 8)),
    (90, "a", (8, 0)),
    (100, "", (8, 6)),
    (100, "f", (8, 8)),
    (100, "a", (8, 6)),
    (103, "", (8, 8)),
    (103, "f", (8, 8)),
    (103, "a", (8, 8)),
    (110, "", (9, 0)),
    (110, "f", (9, 0)),
    (110, "a", (9, 0)),
    (120, "", (8, 7)),
    (120, "f", (8, 8)),
    (120, "a", (8, 7)),
    (121, "", (8, 8)),
    (121, "f", (8, 8)),
    (121, "a", (8, 8)),
];

/// The known versions.
const VERSIONS: [(u32, u32); 2] = [(6, 0), (9, 3)];

/// Words of an opcode, in order but with gaps, and the target number and version that instructions
/// with these words need. `a|b` matches either word, `#4` four operands. All matching rows apply.
const TABLE: &[(&str, u32, (u32, u32))] = &[
    // Arithmetic.
    ("add|sub|mul|fma|neg|abs|setp f16|f16x2", 53, (6, 0)),
    ("abs f16|f16x2", 53, (6, 5)),
    ("min|max f16|f16x2", 80, (7, 0)),
    ("min|max NaN", 80, (7, 0)),
    ("min|max f32 #4", 100, (8, 8)),
    ("fma relu", 80, (7, 0)),
    ("fma|neg|abs|min|max bf16|bf16x2", 80, (7, 0)),
    ("add|sub|mul|setp|tanh|ex2 bf16|bf16x2", 90, (7, 8)),
    ("add|sub|mul|fma f32x2", 100, (8, 6)),
    ("tanh", 75, (7, 0)),
    ("ex2 f16|f16x2", 75, (7, 0)),
    ("dp4a", 61, (6, 0)),
    // Conversions: the type of the result comes first.
    ("cvt bf16|bf16x2|f16x2|tf32", 80, (7, 0)),
    ("cvt relu", 80, (7, 0)),
    ("cvt f32 bf16", 80, (7, 1)),
    ("cvt bf16 u8|s8|u16|s16|u32|s32|u64|s64|f16|bf16|f64", 90, (7, 8)),
    ("cvt u8|s8|u16|s16|u32|s32|u64|s64|f16|f64 bf16", 90, (7, 8)),
    ("cvt rn|rz tf32", 90, (7, 8)),
    // sm_90 has these since 7.8.
    ("cvt e4m3x2|e5m2x2", 89, (8, 1)),
    // Memory.
    ("ld|st|atom|red|ldmatrix|stmatrix|isspacep|cvta shared::cta", 50, (7, 8)),
    ("ld|isspacep param::entry", 50, (8, 3)),
    ("ld|st|atom|red relaxed|acquire|release|acq_rel", 70, (6, 0)),
    ("ld|st weak", 70, (6, 0)),
    ("ld|st mmio", 70, (8, 2)),
    ("ld|st|atom|red|fence cluster", 90, (7, 8)),
    (
        "ld|st L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate",
        70,
        (7, 4),
    ),
    ("ld L2::64B|L2::128B", 75, (7, 4)),
    ("ld L2::256B", 80, (7, 4)),
    ("ld|st v8", 100, (8, 8)),
    ("ld|st v4 b64|u64|s64|f64", 100, (8, 8)),
    ("isspacep param|param::entry", 70, (7, 7)),
    ("applypriority", 80, (7, 4)),
    ("atom|red cta|gpu|sys", 60, (6, 0)),
    ("atom|red add f64", 60, (6, 0)),
    ("atom|red f16x2", 60, (6, 2)),
    ("atom|red f16", 70, (6, 3)),
    ("atom b16", 70, (6, 3)),
    ("atom|red bf16|bf16x2", 90, (7, 8)),
    ("cp async", 80, (7, 0)),
    ("cp async L2::64B|L2::128B|L2::256B", 80, (7, 4)),
    // Threads.
    ("bar|barrier cta", 50, (7, 8)),
    ("fence", 70, (6, 0)),
    ("fence acquire|release", 90, (8, 6)),
    ("fence proxy async", 90, (8, 0)),
    ("nanosleep", 70, (6, 2)),
    ("activemask", 50, (6, 2)),
    ("match", 70, (6, 0)),
    ("redux", 80, (7, 0)),
    ("elect", 90, (8, 0)),
    // Matrices.
    ("ldmatrix", 75, (6, 5)),
    ("stmatrix", 90, (7, 8)),
    ("mma", 75, (6, 5)),
    ("mma m16n8k4|m16n8k16|m16n8k32", 80, (7, 0)),
    ("mma bf16|tf32|f64", 80, (7, 0)),
    ("mma e4m3|e5m2", 89, (8, 4)),
    ("wgmma", 90, (8, 0)),
];

/// Instructions of one target only, which has a letter.
const OF_ONE_TARGET: &[(&str, u32, &str)] = &[("wgmma", 90, "a")];

impl Machine {
    /// Parses the header of a text; the error is for its `.version` or `.target`.
    pub fn new(version: &str, target: &str) -> Result<Machine> {
        let error = |message: String| Error::at(1, message);
        let numbers = version.split_once('.');
        let number = numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let version =
            number.ok_or_else(|| error(format!("`{version}` is not a version of PTX")))?;
        let show = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        let [first, last] = VERSIONS;
        if version < first || version > last {
            let known = format!("{} to {} are known", show(first), show(last));
            return Err(error(format!("PTX {}: {known}", show(version))));
        }
        let row = TARGETS.iter().find(|(sm, letter, _)| format!("sm_{sm}{letter}") == target);
        let Some((sm, letter, since)) = row else {
            return Err(error(format!("unknown target `{target}`: sm_50 to sm_121 are known")));
        };
        if version < *since {
            let since = show(*since);
            return Err(error(format!("`.target {target}` needs `.version {since}` or later")));
        }
        Ok(Machine { sm: *sm, letter, version })
    }

    /// Checks that the target has an instruction with this number of operands.
    pub fn check(&self, opcode: &str, operands: usize, line: u32) -> Result<()> {
        let fail = |needs: String| Err(Error::at(line, format!("`{opcode}` needs {needs}")));
        for (pattern, sm, letter) in OF_ONE_TARGET {
            let has = (self.sm, self.letter) == (*sm, *letter);
            if fits(pattern, opcode, operands) && !has {
                return fail(format!("`.target sm_{sm}{letter}`"));
            }
        }
        for (pattern, sm, version) in TABLE {
            if !fits(pattern, opcode, operands) {
                continue;
            }
            if self.sm < *sm {
                return fail(format!("`.target sm_{sm}` or later"));
            }
            if self.version < *version {
                return fail(format!("`.version {}.{}` or later", version.0, version.1));
            }
        }
        Ok(())
    }

    /// Returns the largest shared memory of a block in bytes.
    pub fn max_shared(&self) -> u32 {
        let kib = match self.sm {
            70 | 72 => 96,
            75 => 64,
            80 | 87 => 163,
            86 | 88 | 89 | 120 | 121 => 99,
            90 | 100 | 103 | 110 => 227,
            _ => 48,
        };
        kib << 10
    }
}

/// Whether an opcode has the words of a pattern in this order, the first one at its beginning.
fn fits(pattern: &str, opcode: &str, operands: usize) -> bool {
    let mut words = opcode.split('.');
    let mut pattern = pattern.split(' ');
    let is = |wanted: &str, word: &str| wanted.split('|').any(|one| one == word);
    let root = pattern.next().unwrap_or_default();
    if !words.next().is_some_and(|word| is(root, word)) {
        return false;
    }
    pattern.all(|wanted| match wanted.strip_prefix('#') {
        Some(count) => count.parse() == Ok(operands),
        None => words.any(|word| is(wanted, word)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_order() {
        assert!(fits("cvt f32 bf16", "cvt.f32.bf16", 2));
        assert!(!fits("cvt f32 bf16", "cvt.rn.bf16.f32", 2));
        assert!(fits("cvt bf16 bf16", "cvt.rni.bf16.bf16", 2));
        assert!(!fits("cvt bf16 bf16", "cvt.rn.bf16.f32", 2));
        assert!(fits("min|max f32 #4", "max.NaN.f32", 4));
        assert!(!fits("min|max f32 #4", "max.NaN.f32", 3));
        assert!(!fits("add", "addc.u32", 3));
    }

    /// `tests/needs.rs` compares the rows with `ptxas` by these instructions.
    #[test]
    fn every_row_is_one_of_an_instruction_that_is_tested() {
        let forms = include_str!("../tests/data/forms.txt");
        for (pattern, ..) in TABLE {
            for first in pattern.split(' ').next().unwrap_or_default().split('|') {
                let rest = pattern.split_once(' ').map_or("", |(_, rest)| rest);
                let pattern = format!("{first} {rest}");
                let is_one = |form: &&str| {
                    let (opcode, operands) = form.split_once(' ').unwrap_or((form, ""));
                    // Commas in braces do not separate operands.
                    let operands = operands.split(", ").count();
                    fits(pattern.trim_end(), opcode.trim_end_matches(';'), operands)
                };
                assert!(forms.lines().any(|form| is_one(&form)), "no form of `{pattern}`");
            }
        }
    }
}
