//! Dot products by one instruction: the module against the interpreter, bit by bit, for bytes and
//! for bfloat16 in the order of the instruction; what the instruction does to tiny numbers against
//! a model of it; how far its sums are from those in the order of the source. If this processor
//! lacks the instruction, a test only compiles, and prints that it does.

use crate::support;
use crate::support::differential;
use crate::support::differential::{Case, Interpreted, Verdict};
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;
use tec::driver::{self, Options, with_stack};
use tec::ir::interp::{Tensor, Value};
use tec::target::Target;

/// Options for a target; `None`, with a note on standard error, if its code does not run here.
fn options(target: &str, schedule: &str) -> Options {
    let target = Target::parse(target).expect("a target");
    let mut options = Options::new(target);
    options.schedule = Some((None, schedule.to_string()));
    options
}

fn runs_here(options: &Options) -> bool {
    support::runs_here(&options.target, "machine code with dot products")
}

/// Returns a product of matrices with a packed B, as in the samples; `lines` after the common ones.
fn product(a: &str, b: &str, sum: &str, extents: &str, head: &str, lines: &str) -> String {
    let (terms, name) = match (a, b) {
        ("uint8", _) => (4, "dot4_u8_i8"),
        ("int8", _) => (4, "dot4_i8_u8"),
        _ => (2, "dot2_bf16"),
    };
    format!(
        "kernel product({extents}) {head}{{\n    input A: {a}[n, l]\n    input B: {b}[l, m]\n    \
         reduce k: 0..l\n    \
         output C[x: n, y: m] = sum((A[x, k] as {sum}) * (B[k, y] as {sum}), axis=k)\n}}\n\
         schedule product.s {{\n    \
         B.cache_read(global, [C], layout=[ax1 // 16, ax0 // {terms}, ax1 % 16, ax0 % {terms}])\n\
         {}}}\n",
        lines.replace("TERMS", &terms.to_string()).replace("NAME", name)
    )
}

/// Ways to write the loops around the instruction.
const WAYS: [&str; 5] = [
    // A tile in registers, a loop over tiles.
    "
    let xo, yo, xi, yi = C.tile(x, y, 3, 32)
    let yv, yl = C.split(yi, factor=16)
    let ko, ki = C.split(k, factor=TERMS)
    C.reorder(yo, xo, ko, xi, yv, yl, ki)
    C.unroll(xi)
    C.unroll(yv)
    C.tensorize(yl, NAME)
",
    // Sums in a buffer of their own.
    "
    let T = C.cache_write(local)
    let xo, yo, xi, yi = C.tile(x, y, 2, 16)
    T.compute_at(C, yo)
    let ko, ki = T.split(k, factor=TERMS)
    T.reorder(ko, x, y, ki)
    T.unroll(x)
    T.tensorize(y, NAME)
    C.vectorize(yi)
",
    // Loops that stay loops: sums in memory.
    "
    let yo, yl = C.split(y, factor=16)
    let ko, ki = C.split(k, factor=TERMS)
    C.reorder(ko, x, yo, yl, ki)
    C.tensorize(yl, NAME)
",
    // The terms of a few steps at once, on threads.
    "
    let yo, yl = C.split(y, factor=16)
    let ko, km, ki = C.split(k, factors=[2, TERMS])
    C.reorder(x, yo, ko, km, yl, ki)
    C.unroll(km)
    C.parallel(x)
    C.tensorize(yl, NAME)
",
    // The outer loop is a row, with a tail of rows.
    "
    let yo, yl = C.split(y, factor=16)
    let xo, xi = C.split(x, factor=4)
    let ko, ki = C.split(k, factor=TERMS)
    C.reorder(xo, yo, ko, xi, yl, ki)
    C.unroll(xi)
    C.tensorize(yl, NAME)
",
];

fn same(text: &str, options: &Options, seed: u64) {
    let case = Case { text: text.to_string(), kernel: "product".into(), vars: Vec::new(), seed };
    let verdict = differential::compare_all(&case, options);
    assert!(matches!(verdict, Verdict::Same { .. }), "{text}\n{} {verdict:?}", options.target);
}

fn all_ways(a: &str, b: &str, sum: &str, head: &str, targets: &[&str]) {
    with_stack(|| {
        for target in targets {
            runs_here(&options(target, "s"));
            for opt in [0, 1, 3] {
                let mut options = options(target, "s");
                options.opt = opt;
                for (seed, lines) in WAYS.iter().enumerate() {
                    let extents = "n = 6, m = 64, l = 24";
                    same(&product(a, b, sum, extents, head, lines), &options, seed as u64);
                }
                // Columns and terms that are no whole instructions, down to a single column.
                for extents in ["n = 5, m = 53, l = 23", "n = 4, m = 33, l = 9"] {
                    for (seed, lines) in WAYS.iter().enumerate() {
                        same(&product(a, b, sum, extents, head, lines), &options, seed as u64);
                    }
                }
                // All terms in one instruction: it sets the start values too.
                let lines = "    let yo, yl = C.split(y, factor=16)\n    C.tensorize(yl, NAME)\n";
                let extents =
                    if sum == "int32" { "n = 3, m = 32, l = 4" } else { "n = 3, m = 32, l = 2" };
                same(&product(a, b, sum, extents, head, lines), &options, 9);
            }
        }
    });
}

#[test]
fn byte_sums_match_the_interpreter() {
    let targets = ["x86-avx512+vnni", "x86-avx512", "x86-avx2", "aarch64"];
    all_ways("uint8", "int8", "int32", "", &targets);
    all_ways("int8", "uint8", "int32", "", &targets[..2]);
    with_stack(|| {
        let text = product("uint8", "int8", "int32", "n = 6, m = 64, l = 24", "", WAYS[0]);
        let swapped = "(B[k, y] as int32) * (A[x, k] as int32)";
        let text = text.replace("(A[x, k] as int32) * (B[k, y] as int32)", swapped);
        assert!(text.contains(swapped));
        same(&text, &options(targets[0], "s"), 5);
    });
}

#[test]
fn bfloat16_sums_use_the_order_of_the_instruction() {
    let targets = ["x86-avx512+bf16", "x86-avx512", "riscv64"];
    all_ways("bfloat16", "bfloat16", "float32", "reassociate ", &targets);
    with_stack(|| {
        let mut options = options("x86-avx512+bf16", "s");
        options.fp_contract = driver::FpContract::Off;
        let text = product("bfloat16", "bfloat16", "float32", "n = 6, m = 64, l = 24", "", WAYS[0]);
        let text = text.replace("dot2_bf16)", "dot2_bf16, reassociate=true)");
        same(&text, &options, 3);
    });
}

/// Rows, columns, terms of the products of bfloat16 here.
const SHAPE: (usize, usize, usize) = (6, 64, 24);

/// Returns a bfloat16 product with these elements of A and B, after the passes.
fn with_data(options: &Options, a: &[u16], b: &[u16]) -> Interpreted {
    let text = product(
        "bfloat16",
        "bfloat16",
        "float32",
        "n = 6, m = 64, l = 24",
        "reassociate ",
        WAYS[0],
    );
    let case = Case { text, kernel: "product".into(), vars: Vec::new(), seed: 0 };
    let Ok(mut interpreted) = differential::interpret(&case, options) else {
        panic!("it compiles")
    };
    for (arg, values) in interpreted.args.iter_mut().zip([a, b]) {
        let Value::Tensor(tensor) = arg else { panic!("tensors only") };
        tensor.data = values.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    }
    interpreted
}

/// Returns the results of the default schedule for the arguments.
fn plain_sums(interpreted: &Interpreted, options: &Options) -> Vec<f32> {
    let default_loops =
        driver::lower_unoptimized(&interpreted.graph, &options.target).expect("it lowers");
    let Ok(Ok(values)) = differential::run(&default_loops, &interpreted.args, "default") else {
        panic!("it runs")
    };
    floats(&values)
}

fn floats(values: &[Value]) -> Vec<f32> {
    let Some(Value::Tensor(Tensor { data, .. })) = values.last() else { panic!("an output") };
    data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// `vdpbf16ps` (Intel SDM, volume 2): the second product first, each by one fused multiply-add that
/// rounds to nearest; subnormal numbers are 0 on the way in and out.
fn model(a: &[u16], b: &[u16]) -> Vec<f32> {
    let flushed = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    let wide = |bits: u16| flushed(f32::from_bits(u32::from(bits) << 16));
    let (n, m, l) = SHAPE;
    let mut sums = Vec::new();
    for (x, y) in (0..n).flat_map(|x| (0..m).map(move |y| (x, y))) {
        let order = (0..l / 2).flat_map(|pair| [2 * pair + 1, 2 * pair]);
        sums.push(order.fold(0f32, |sum, k| {
            flushed(wide(a[x * l + k]).mul_add(wide(b[k * m + y]), flushed(sum)))
        }));
    }
    sums
}

/// The bound that docs/SCHEDULES.md states: `l·2^-22·Σ|a·b| + l·2^-124·max(1, |a|, |b|)`.
fn is_within_bound(a: &[u16], b: &[u16], x: usize, y: usize, difference: f64) -> bool {
    let (_, m, l) = SHAPE;
    let wide = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16)).abs();
    let pairs = (0..l).map(|k| (wide(a[x * l + k]), wide(b[k * m + y])));
    let total: f64 = pairs.clone().map(|(a, b)| a * b).sum();
    let largest = pairs.fold(1f64, |largest, (a, b)| largest.max(a).max(b));
    let terms = l as f64;
    difference <= terms * (2f64.powi(-22) * total + 2f64.powi(-124) * largest)
}

#[test]
fn bfloat16_sums_stay_within_the_documented_bound() {
    with_stack(|| {
        let options = options("x86-avx512+bf16", "s");
        let here = runs_here(&options);
        let (n, m, l) = SHAPE;
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        // Ordinary numbers; small ones, whose products and sums are tiny; subnormal numbers.
        for exponents in [120..130, 60..68, 0..4, 0..140] {
            let mut draw = |count: usize| -> Vec<u16> {
                let mut one = || {
                    let exponent: u16 = rng.random_range(exponents.clone());
                    rng.random_range(0..=1u16) << 15 | exponent << 7 | rng.random_range(0..128u16)
                };
                (0..count).map(|_| one()).collect()
            };
            let (a, b) = (draw(n * l), draw(l * m));
            let mut interpreted = with_data(&options, &a, &b);
            let (expected, plain) = (model(&a, &b), plain_sums(&interpreted, &options));
            for (at, (sum, plain)) in expected.iter().zip(&plain).enumerate() {
                let difference = (f64::from(*sum) - f64::from(*plain)).abs();
                let (x, y) = (at / m, at % m);
                assert!(is_within_bound(&a, &b, x, y, difference), "{x} {y}: {sum} {plain}");
            }
            if !here {
                continue;
            }
            let mut values = interpreted.args.clone();
            let Some(Value::Tensor(output)) = values.last_mut() else { panic!("an output") };
            output.data = expected.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            interpreted.expected = Ok(values);
            let module = differential::link(&[&interpreted], &options).expect("it links");
            let verdict = differential::call(&interpreted, &module);
            assert!(matches!(verdict, Verdict::Same { .. }), "{exponents:?} {verdict:?}");
        }
    });
}
