//! Test helpers: launches of the hand-made kernels with reference results.

#![allow(dead_code)]

use half::bf16;
use nvptx_emulator::{Launch, Memory, Module, Report};

pub const SGEMM: &str = include_str!("../data/sgemm.ptx");
pub const BF16_MMA: &str = include_str!("../data/bf16_mma.ptx");
pub const BF16_LDMATRIX: &str = include_str!("../data/bf16_ldmatrix.ptx");

/// Returns pseudo-random numbers between -1 and 1.
pub fn numbers(count: usize, mut state: u64) -> Vec<f32> {
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1 << 23) as f32) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Returns the product of row-major matrices, by fused multiply-adds in ascending order.
pub fn product(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = vec![0f32; m * n];
    for i in 0..m {
        for kk in 0..k {
            for j in 0..n {
                c[i * n + j] = a[i * k + kk].mul_add(b[kk * n + j], c[i * n + j]);
            }
        }
    }
    c
}

pub fn max_error(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, |m, e| if e > m || e.is_nan() { e } else { m })
}

/// Runs the float32 product; returns the report and the largest error.
pub fn sgemm(text: &str, m: usize, n: usize, k: usize) -> (Report, f32) {
    let module = Module::parse(text).unwrap();
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let mut memory = Memory::new();
    let (pa, pb) = (memory.input("A", &a), memory.input("B", &b));
    let pc = memory.output("C", 4 * m * n);
    let report = Launch::new(&module, "sgemm")
        .grid([n as u32 / 128, m as u32 / 128, 1])
        .block([256, 1, 1])
        .buffer(pa)
        .buffer(pb)
        .buffer(pc)
        .value(n as u32)
        .value(k as u32)
        .run_twice(&mut memory)
        .unwrap();
    let error = max_error(&memory.read(pc), &product(&a, &b, m, n, k));
    (report, error)
}

/// Runs a bf16 product; B is row-major or transposed, depending on the kernel.
pub fn bf16_product(text: &str, m: usize, n: usize, k: usize) -> (Report, f32) {
    let module = Module::parse(text).unwrap();
    let name = module.kernels().next().unwrap().to_string();
    let round = |v: Vec<f32>| v.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
    let (a, b) = (round(numbers(m * k, 3)), round(numbers(k * n, 4)));
    let wide = |v: &[bf16]| v.iter().map(|x| x.to_f32()).collect::<Vec<_>>();
    let expected = product(&wide(&a), &wide(&b), m, n, k);
    let given =
        if name == "bf16_mma" { (0..n * k).map(|i| b[i % k * n + i / k]).collect() } else { b };
    let mut memory = Memory::new();
    let (pa, pb) = (memory.input("A", &a), memory.input("B", &given));
    let pc = memory.output("C", 4 * m * n);
    let report = Launch::new(&module, &name)
        .grid([n as u32 / 64, m as u32 / 64, 1])
        .block([128, 1, 1])
        .buffer(pa)
        .buffer(pb)
        .buffer(pc)
        .value(n as u32)
        .value(k as u32)
        .run_twice(&mut memory)
        .unwrap();
    (report, max_error(&memory.read(pc), &expected))
}

/// Replaces a line of the text: the `nth`, from 0, that contains `old`.
pub fn replace_nth(text: &str, old: &str, new: &str, nth: usize) -> String {
    let at = text.match_indices(old).nth(nth).expect("the text is there").0;
    format!("{}{new}{}", &text[..at], &text[at + old.len()..])
}

/// Returns the number, from 1, of the `nth` line that contains the text.
pub fn line_of(text: &str, what: &str, nth: usize) -> u32 {
    let found = text.lines().enumerate().filter(|(_, l)| l.contains(what)).nth(nth);
    found.expect("the text is there").0 as u32 + 1
}
