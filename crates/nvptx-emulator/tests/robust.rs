//! Damaged texts never make the emulator panic: they are refused or run.

mod common;

use common::{BF16_LDMATRIX, BF16_MMA, SGEMM};
use nvptx_emulator::{Launch, Memory, Module};

/// Parses and runs the text; returns whether it ran.
fn try_text(text: &str) -> bool {
    let Ok(module) = Module::parse(text) else { return false };
    for name in module.kernels() {
        let mut memory = Memory::new();
        let [a, b] = ["A", "B"].map(|name| memory.input(name, &vec![0x3f80u16; 128 * 32]));
        let c = memory.output("C", 4 * 128 * 128);
        let launch = Launch::new(&module, name).block([128, 1, 1]).limit(300_000);
        let launch = launch.buffer(a).buffer(b).buffer(c).value(128u32).value(32u32);
        if let Ok(report) = launch.run(&mut memory) {
            assert!(!report.to_string().is_empty());
        }
    }
    true
}

#[test]
fn missing_lines_cause_no_panic() {
    for text in [BF16_MMA, BF16_LDMATRIX] {
        let lines: Vec<&str> = text.lines().collect();
        let mut ran = 0;
        for skip in (0..lines.len()).filter(|i| !lines[*i].contains("mma.sync")) {
            let rest = lines.iter().enumerate().filter(|(i, _)| *i != skip).map(|(_, l)| *l);
            ran += usize::from(try_text(&rest.collect::<Vec<_>>().join("\n")));
        }
        assert!(ran > lines.len() / 2, "{ran} of {}", lines.len());
    }
}

#[test]
fn exchanged_words_cause_no_panic() {
    let mut state = 12345u64;
    let mut next = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    for text in [BF16_MMA, BF16_LDMATRIX, SGEMM] {
        // A word is a run of characters without spaces, commas and semicolons.
        let is_end = |c: char| c.is_whitespace() || ",;".contains(c);
        let words: Vec<&str> = text.split_inclusive(is_end).collect();
        for _ in 0..150 {
            let mut changed = words.clone();
            for _ in 0..=next(3) {
                let (i, j) = (next(words.len()), next(words.len()));
                changed[i] = words[j];
            }
            try_text(&changed.concat());
        }
    }
}

#[test]
fn missing_characters_cause_no_panic() {
    for start in (0..SGEMM.len()).step_by(211) {
        if let (Some(head), Some(tail)) = (SGEMM.get(..start), SGEMM.get(start + 3..)) {
            try_text(&format!("{head}{tail}"));
        }
        if let Some(head) = SGEMM.get(..start) {
            assert!(!try_text(head), "a text without its end is refused");
        }
    }
}
