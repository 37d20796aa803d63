//! Products by tile registers: the module against the interpreter, bit by bit, for bytes; against a
//! model of the instruction for bfloat16, whose terms it adds in an order of its own. If this
//! processor lacks the instructions, a test only compiles, and prints that it does.

use crate::support;
use crate::support::differential::{self, Case, Interpreted, Verdict};
use rand::prelude::*;
use rand_chacha::ChaCha8Rng;
use tec::driver::{Options, with_stack};
use tec::ir::interp::{Tensor, Value};
use tec::target::Target;

fn options(target: &str, schedule: Option<&str>) -> Options {
    let mut options = Options::new(Target::parse(target).expect("a target"));
    options.schedule = schedule.map(|name| (None, name.to_string()));
    options
}

fn runs_here(options: &Options) -> bool {
    support::runs_here(&options.target, "machine code with tile registers")
}

/// The types of the factors and of the sum, terms of a group, and the intrinsic.
type Kind = (&'static str, &'static str, &'static str, i64, &'static str);

const KINDS: [Kind; 5] = [
    ("uint8", "int8", "int32", 4, "tile_u8_i8"),
    ("int8", "uint8", "int32", 4, "tile_i8_u8"),
    ("int8", "int8", "int32", 4, "tile_i8_i8"),
    ("uint8", "uint8", "int32", 4, "tile_u8_u8"),
    ("bfloat16", "bfloat16", "float32", 2, "tile_bf16"),
];

/// Columns that are packed next to each other, and the lines of a schedule.
type Way = (i64, &'static str);

/// Returns a product with a packed B. Without extents, they are run-time integers.
fn product((a, b, sum, terms, name): Kind, extents: &str, (panel, lines): Way) -> String {
    let head = if sum == "float32" { "reassociate " } else { "" };
    let layout = format!("layout=[ax1 // {panel}, ax0 // {terms}, ax1 % {panel}, ax0 % {terms}]");
    let extents = if extents.is_empty() { "n: var, m: var, l: var" } else { extents };
    format!(
        "kernel product({extents}) {head}{{\n    input A: {a}[n, l]\n    input B: {b}[l, m]\n    \
         reduce k: 0..l\n    \
         output C[x: n, y: m] = sum((A[x, k] as {sum}) * (B[k, y] as {sum}), axis=k)\n}}\n\
         schedule product.s {{\n    \
         B.cache_read(global, [C], {layout})\n\
         {}}}\n",
        lines.replace("TERMS", &terms.to_string()).replace("NAME", name)
    )
}

/// Ways to write the loops around the instruction.
const WAYS: [Way; 6] = [
    // Two by two registers of sums, in the output.
    (
        32,
        "
    let xo, xi = C.split(x, factor=32)
    let yo, yi = C.split(y, factor=32)
    let ko, km, ki = C.split(k, factors=[16, TERMS])
    let xm, xr = C.split(xi, factor=16)
    let ym, yr = C.split(yi, factor=16)
    C.reorder(yo, xo, ko, xm, ym, xr, yr, km, ki)
    C.unroll(xm)
    C.unroll(ym)
    C.tensorize(xr, NAME)
    C.parallel(yo)
",
    ),
    // Sums in a buffer of their own, with short sides.
    (
        16,
        "
    let T = C.cache_write(local)
    let xo, xi = C.split(x, factor=14)
    let yo, yi = C.split(y, factor=16)
    C.reorder(yo, xo, xi, yi)
    C.vectorize(yi)
    T.compute_at(C, xo)
    let ko, km, ki = T.split(k, factors=[5, TERMS])
    let xm, xr = T.split(x, factor=7)
    T.reorder(ko, xm, xr, y, km, ki)
    T.unroll(xm)
    T.tensorize(xr, NAME)
",
    ),
    // All loops stay loops: the sums leave their registers in each step.
    (
        3,
        "
    let xo, xr = C.split(x, factor=5)
    let yo, yr = C.split(y, factor=3)
    let ko, km, ki = C.split(k, factors=[6, TERMS])
    C.reorder(ko, xo, yo, xr, yr, km, ki)
    C.tensorize(xr, NAME)
",
    ),
    // More registers of sums than there are.
    (
        16,
        "
    let xo, xi = C.split(x, factor=12)
    let yo, yi = C.split(y, factor=16)
    let ko, km, ki = C.split(k, factors=[2, TERMS])
    let xm, xr = C.split(xi, factor=4)
    let ym, yr = C.split(yi, factor=4)
    C.reorder(yo, xo, ko, xm, ym, xr, yr, km, ki)
    C.unroll(xm)
    C.unroll(ym)
    C.tensorize(xr, NAME)
",
    ),
    // One row of registers; the loop over terms is unrolled, too.
    (
        32,
        "
    let xo, xr = C.split(x, factor=8)
    let yo, yi = C.split(y, factor=32)
    let ko, ku, km, ki = C.split(k, factors=[2, 4, TERMS])
    let ym, yr = C.split(yi, factor=16)
    C.reorder(xo, yo, ko, ku, ym, xr, yr, km, ki)
    C.unroll(ku)
    C.unroll(ym)
    C.parallel(xo)
    C.prefetch(A, ko, 2)
    C.tensorize(xr, NAME)
",
    ),
    // The columns are outside of the rows' registers, whose factors are kept for them.
    (
        32,
        "
    let xo, xi = C.split(x, factor=32)
    let yo, yi = C.split(y, factor=32)
    let ko, km, ki = C.split(k, factors=[3, TERMS])
    let xm, xr = C.split(xi, factor=16)
    let ym, yr = C.split(yi, factor=16)
    C.reorder(xo, yo, ko, ym, xm, xr, yr, km, ki)
    C.unroll(xm)
    C.unroll(ym)
    C.tensorize(xr, NAME)
",
    ),
];

fn same(text: &str, options: &Options, vars: &[(&str, i64)], seed: u64) {
    let vars = vars.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    let case = Case { text: text.to_string(), kernel: "product".into(), vars, seed };
    let verdict = differential::compare_all(&case, options);
    assert!(matches!(verdict, Verdict::Same { .. }), "{text}\n{} {verdict:?}", options.target);
}

const TARGETS: [&str; 5] =
    ["x86-avx512+amx-int8", "x86-avx512+amx-int8+vnni", "x86-avx512+vnni", "x86-avx2", "aarch64"];

/// Sizes that are whole tiles, and that are not: rows, columns, terms.
const EXTENTS: [&str; 5] = [
    "n = 84, m = 64, l = 160",
    "n = 61, m = 96, l = 64",
    "n = 32, m = 77, l = 64",
    "n = 64, m = 64, l = 99",
    "n = 33, m = 35, l = 131",
];

#[test]
fn bytes_match_the_interpreter() {
    with_stack(|| {
        for target in TARGETS {
            runs_here(&options(target, Some("s")));
            for (first, kind) in KINDS[..4].iter().enumerate() {
                // Targets without the instructions run plain loops.
                let ways = if target.contains("amx") { &WAYS[..] } else { &WAYS[first..=first] };
                for (number, way) in ways.iter().enumerate() {
                    let extents = EXTENTS[(first + number) % EXTENTS.len()];
                    let mut options = options(target, Some("s"));
                    options.opt = [3, 1, 2, 0][(first + number) % 4];
                    same(&product(*kind, extents, *way), &options, &[], number as u64);
                }
            }
        }
        // Each way with each size.
        for (number, way) in WAYS.iter().enumerate() {
            for extents in EXTENTS {
                let options = options(TARGETS[1], Some("s"));
                same(&product(KINDS[0], extents, *way), &options, &[], number as u64);
            }
        }
    });
}

#[test]
fn all_terms_in_one_instruction() {
    with_stack(|| {
        let lines = "
    let xo, xr = C.split(x, factor=16)
    let yo, yr = C.split(y, factor=16)
    let km, ki = C.split(k, factor=TERMS)
    C.reorder(xo, yo, xr, yr, km, ki)
    C.tensorize(xr, NAME)
";
        for target in &TARGETS[..3] {
            for extents in ["n = 48, m = 32, l = 64", "n = 20, m = 37, l = 48"] {
                let options = options(target, Some("s"));
                same(&product(KINDS[2], extents, (16, lines)), &options, &[], 7);
            }
        }
    });
}

#[test]
fn sizes_known_at_run_time() {
    with_stack(|| {
        let options = options(TARGETS[1], Some("s"));
        for (number, way) in WAYS.iter().enumerate() {
            let text = product(KINDS[number % 4], "", *way);
            for sizes in [[64, 64, 64], [1, 1, 1], [0, 5, 3], [37, 50, 0], [17, 33, 70]] {
                let vars: Vec<(&str, i64)> = ["n", "m", "l"].into_iter().zip(sizes).collect();
                same(&text, &options, &vars, number as u64);
            }
        }
    });
}

/// Kernels for the automatic schedule.
const AUTOMATIC: [&str; 6] = [
    "kernel product(n = 96, m = 112, l = 160) {
    input A: uint8[n, l]
    input B: int8[l, m]
    reduce k: 0..l
    output C[x: n, y: m] = sum((A[x, k] as int32) * (B[k, y] as int32), axis=k)
}",
    // Both have signs, the second one is transposed, and the results become bytes again.
    "kernel product(n = 49, m = 64, l = 128) {
    input A: int8[n, l]
    input B: int8[m, l]
    input bias: int32[m]
    reduce k: 0..l
    compute S[x: n, y: m] = sum((A[x, k] as int32) * (B[y, k] as int32), axis=k)
    output C[x: n, y: m] = clamp((S[x, y] + bias[y]) >> 7, -128, 127) as int8
}",
    // Zero points.
    "kernel product(n = 64, m = 96, l = 96) {
    input A: uint8[n, l]
    input B: uint8[l, m]
    input za: uint8
    input zb: uint8
    reduce k: 0..l
    output C[x: n, y: m] =
        sum(((A[x, k] as int32) - (za as int32)) * ((B[k, y] as int32) - (zb as int32)), axis=k)
}",
    // A convolution with rows of 14, and a border.
    "kernel product(h = 14, w = 14, ic = 64, oc = 48) {
    input A: uint8[h, w, ic]
    input K: int8[3, 3, ic, oc]
    reduce i: 0..3
    reduce j: 0..3
    reduce c: 0..ic
    compute P[y: h + 2, x: w + 2, c: ic] =
        if all(y >= 1, y <= h, x >= 1, x <= w) then A[y - 1, x - 1, c] else (0 as uint8)
    output C[y: h, x: w, o: oc] =
        sum((P[y + i, x + j, c] as int32) * (K[i, j, c, o] as int32), axis=[i, j, c])
}",
    // Steps of 2, rows of 7, several images.
    "kernel product(b = 2, h = 7, w = 7, ic = 32, oc = 64) {
    input A: int8[b, 2 * h + 1, 2 * w + 1, ic]
    input K: int8[3, 3, ic, oc]
    reduce i: 0..3
    reduce j: 0..3
    reduce c: 0..ic
    output C[n: b, y: h, x: w, o: oc] =
        sum((A[n, 2 * y + i, 2 * x + j, c] as int32) * (K[i, j, c, o] as int32), axis=[i, j, c])
}",
    "kernel product(n: var, m: var, l: var) {
    input A: int8[n, l]
    input B: uint8[l, m]
    reduce k: 0..l
    output C[x: n, y: m] = sum((A[x, k] as int32) * (B[k, y] as int32), axis=k)
}",
];

#[test]
fn automatic_schedules_use_them() {
    with_stack(|| {
        for (number, text) in AUTOMATIC.iter().enumerate() {
            let options = options("x86-avx512+amx-int8+vnni", None);
            let vars: &[(&str, i64)] =
                if text.contains(": var") { &[("n", 35), ("m", 70), ("l", 130)] } else { &[] };
            same(text, &options, vars, number as u64);
        }
    });
}

/// Rows, columns, terms of the products of bfloat16 here.
const SHAPE: (usize, usize, usize) = (32, 32, 96);

/// `tdpbf16ps` (Intel SDM, volume 2): for each sum, first and second terms of the groups are added
/// up apart, from 0 on, by fused multiply-adds that round to nearest; then both to each other, and
/// to the sum. Subnormal numbers are 0 on the way in and out.
fn model(a: &[u16], b: &[u16]) -> Vec<f32> {
    let flushed = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    let wide = |bits: u16| flushed(f32::from_bits(u32::from(bits) << 16));
    let (n, m, l) = SHAPE;
    let mut sums = Vec::new();
    for (x, y) in (0..n).flat_map(|x| (0..m).map(move |y| (x, y))) {
        let mut sum = 0f32;
        for step in (0..l).step_by(32) {
            let part = |odd: usize| {
                (0..16).map(|group| step + 2 * group + odd).fold(0f32, |sum, k| {
                    flushed(wide(a[x * l + k]).mul_add(wide(b[k * m + y]), sum))
                })
            };
            sum = flushed(sum + flushed(part(0) + part(1)));
        }
        sums.push(sum);
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

fn floats(values: &[Value]) -> Vec<f32> {
    let Some(Value::Tensor(Tensor { data, .. })) = values.last() else { panic!("an output") };
    data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Returns a bfloat16 product with these elements of A and B, after the passes.
fn with_data(options: &Options, a: &[u16], b: &[u16]) -> Interpreted {
    let text = product(KINDS[4], "n = 32, m = 32, l = 96", WAYS[0]);
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

#[test]
fn bfloat16_sums_are_those_of_the_model() {
    with_stack(|| {
        let options = options("x86-avx512+amx-bf16+bf16", Some("s"));
        let here = runs_here(&options);
        let (n, m, l) = SHAPE;
        let mut rng = ChaCha8Rng::seed_from_u64(11);
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
            let plain = tec::driver::lower_unoptimized(&interpreted.graph, &options.target);
            let plain = plain.expect("it lowers");
            let Ok(Ok(plain)) = differential::run(&plain, &interpreted.args, "default") else {
                panic!("it runs")
            };
            let (expected, plain) = (model(&a, &b), floats(&plain));
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

#[test]
fn run_verify_knows_how_sums_of_bfloat16_differ() {
    let target = "x86-avx512+amx-bf16+bf16";
    if !runs_here(&options(target, None)) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("product.te");
    std::fs::write(&file, product(KINDS[4], "n = 32, m = 32, l = 96", WAYS[0])).expect("written");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tec"));
    command.args(["run", "--schedule", "s", "--verify", "--target", target]).arg(&file);
    let output = command.output().expect("tec starts");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
}
