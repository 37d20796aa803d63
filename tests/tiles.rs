//! Transpositions in registers: kernels that read by columns and write by rows, of every type, with
//! tails, unrolled loops and several inputs. Machine code of both widths gives the results of the
//! default schedule, bit for bit.

use crate::support;
use crate::support::Random;
use crate::support::differential;
use crate::support::differential::{Case, Verdict};
use tec::driver::{self, Options};
use tec::ir::DType;
use tec::ir::print::{Style, print_kernel};
use tec::target::Target;

const TYPES: [&str; 13] = [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "bfloat16", "float32", "float64", "bool",
];

/// The expressions of an element that is read by columns.
const VALUES: [&str; 4] = ["a[j, i]", "c[j, i]", "f(a[j, i], c[j, i])", "f(a[j, i], a[j, i + 1])"];

/// Returns a kernel of one type with a schedule of tiles.
fn draw(random: &mut Random, dtype: &str, lanes: u64) -> String {
    let (n, m) = (1 + random.below(70), 1 + random.below(70));
    let extents = match random.below(2) {
        0 => "n: var, m: var".to_string(),
        _ => format!("n = {n}, m = {m}"),
    };
    let f = if dtype == "bool" { "x or y" } else { "max(x, y)" };
    let value = random.pick(&VALUES);
    let mut text = format!("def f(x, y) = {f}\n\nkernel k({extents}) {{\n");
    text += &format!("    input a: {dtype}[n, m + 1]\n    input c: {dtype}[n, m]\n");
    text += &format!("    output b[i: m, j: n] = {value}\n}}\nschedule k {{\n");
    let tails = ["", "", ", tail=guard", ", tail=mask", ", tail=peel"];
    let factor = match random.below(3) {
        0 => lanes * (1 + random.below(2)),
        1 => lanes,
        _ => 2 + random.below(2 * lanes),
    };
    let rows = [4, 8, 16, 3, 11, 20][random.below(6) as usize];
    text += &format!("    let jo, ji = b.split(j, factor={factor}{})\n", random.pick(&tails));
    let tail = random.pick(&["", ", tail=guard", ", tail=peel"]);
    text += &format!("    let io, ii = b.split(i, factor={rows}{tail})\n");
    text += "    b.reorder(io, jo, ii, ji)\n    b.vectorize(ji)\n";
    text += random.pick(&["", "    b.unroll(ii)\n", "    b.parallel(io)\n"]);
    text + "}\n"
}

fn transpositions(target: &str) {
    let target = Target::parse(target).expect("a target");
    if !support::runs_here(&target, "transpositions in registers") {
        return;
    }
    let options = Options::new(target);
    let mut random = Random(7);
    let (mut same, mut tiles, mut refused) = (0, 0, Vec::new());
    for seed in 0..13 * 8 {
        let name = TYPES[seed as usize % TYPES.len()];
        let dtype = DType::from_name(name).expect("a type");
        let text = draw(&mut random, name, options.target.lanes(dtype).into());
        let (n, m) = (1 + random.below(70) as i64, 1 + random.below(70) as i64);
        let vars = match text.contains("n: var") {
            true => vec![("n".to_string(), n), ("m".to_string(), m)],
            false => Vec::new(),
        };
        let case = Case { text: text.clone(), kernel: "k".to_string(), vars, seed };
        let interpreted = match differential::interpret(&case, &options) {
            Ok(interpreted) => interpreted,
            Err(Verdict::Refused(codes, _)) => {
                refused.push((codes, text));
                continue;
            }
            Err(verdict) => panic!("{verdict:?}\n{text}"),
        };
        tiles += i32::from(print_kernel(&interpreted.kernel, Style::Full).contains(".tile"));
        let module = differential::link(&[&interpreted], &options)
            .unwrap_or_else(|v| panic!("{v:?}\n{text}"));
        let verdict = differential::call(&interpreted, &module);
        assert!(matches!(verdict, Verdict::Same { .. }), "{verdict:?}\n{text}");
        same += 1;
    }
    assert!(same >= 90, "{same} legal; {:?}", refused.first());
    assert!(tiles >= 40, "{tiles} of {same} have a tile");
}

#[test]
fn transpositions_of_32_bytes() {
    driver::with_stack(|| transpositions("x86-avx2"));
}

#[test]
fn transpositions_of_64_bytes() {
    driver::with_stack(|| transpositions("x86-avx512"));
}
