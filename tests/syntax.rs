//! The parser on large, deep and damaged texts, and how the front end grows with their size.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;
use tec::diag::{SourceFile, Sources, render};
use tec::driver::{self, Options, Trace};
use tec::lang::Loader;
use tec::lang::ast::{Expr, ExprKind, Item, StmtKind};
use tec::lang::parse_file;
use tec::target::Target;

/// Runs on a stack as large as the compiler's own: syntax trees are as deep as a sum is long.
fn on_large_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    on_stack(1 << 30, work)
}

fn on_stack<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(bytes).spawn(work).unwrap().join().unwrap()
}

/// `ok`, or the code of the error.
fn outcome(text: &str) -> &'static str {
    parse_file(text, 0).map_or_else(|diag| diag.code, |_| "ok")
}

fn value(text: &str) -> String {
    format!("def f(a) = {text}")
}

/// `open` × depth, `1`, `close` × depth, as the value of a `def`.
fn nested(open: &str, close: &str, depth: usize) -> String {
    value(&format!("{}1{}", open.repeat(depth), close.repeat(depth)))
}

const NESTS: [(&str, &str); 10] = [
    ("(", ")"),
    ("-", ""),
    ("not ", ""),
    ("f(", ")"),
    ("f(a, axis=[a, ", "])"),
    ("A[", "]"),
    ("if a then ", " else 1"),
    ("if ", " then 1 else 1"),
    ("if a then 1 else (", ")"),
    ("a + (if c then (", ") else 1)"),
];

fn blocks(open: &str, depth: usize) -> String {
    format!("kernel f() {{ {} {} }}", open.repeat(depth), "} ".repeat(depth))
}

#[test]
fn nesting_is_limited() {
    on_stack(8 << 20, || {
        for (open, close) in NESTS {
            let per_level = open.matches(['(', '[']).count().max(1) + open.matches("if").count();
            let depth = if per_level > 2 { 80 } else { 120 };
            assert_eq!(outcome(&nested(open, close, depth)), "ok", "{open}");
            assert_eq!(outcome(&nested(open, close, 300)), "E0102", "{open}");
            assert_eq!(outcome(&value(&open.repeat(100_000))), "E0102", "{open}");
        }
        for (open, close) in [NESTS[0], NESTS[1], NESTS[3], NESTS[5], NESTS[6], NESTS[7]] {
            assert_eq!(outcome(&nested(open, close, 250)), "ok", "{open}");
        }
        assert_eq!(outcome(&blocks("if a { ", 200)), "ok");
        assert_eq!(outcome(&blocks("if a { ", 300)), "E0102");
        assert_eq!(outcome(&"kernel f() { ".repeat(1000)), "E0102");
        assert_eq!(outcome(&"}".repeat(1000)), "E0101");
        assert_eq!(outcome(&format!("# {}\nimport \"{0}\"", "(".repeat(1000))), "ok");
    });
}

#[test]
fn sequences_are_not_limited_as_nesting() {
    on_large_stack(|| {
        let chain = value(&format!("{}1", "if a then 1 else ".repeat(20_000)));
        assert_eq!(outcome(&chain), "ok");
        assert_eq!(outcome(&value(&format!("1{}", " as int8".repeat(20_000)))), "ok");
        let blocks = "if a { let x = if a then 1 else 2 } else ".repeat(20_000);
        assert_eq!(outcome(&format!("kernel f() {{ {blocks} if a {{}} }}")), "ok");
        assert_eq!(outcome(&format!("kernel f() {{ {} }}", "if a { } ".repeat(20_000))), "ok");
    });
}

#[test]
fn a_flat_sum_of_100_000_terms_is_a_left_tree() {
    on_large_stack(|| {
        let text = value(&format!("a{}", " + a".repeat(99_999)));
        let file = parse_file(&text, 0).unwrap();
        let Item::Def(def) = &file.items[0] else { panic!("no def") };
        let mut expr: &Expr = &def.body;
        let mut terms = 1;
        while let ExprKind::Binary(_, left, _, _) = &*expr.kind {
            expr = left;
            terms += 1;
        }
        assert_eq!(terms, 100_000);
        assert_eq!(def.body.span.end as usize, text.len());
    });
}

/// Bytes of a large file.
const SIZE: usize = 10_000_000;

#[test]
fn large_files_parse() {
    on_large_stack(|| {
        assert_eq!(outcome(&"# a comment\n".repeat(SIZE / 12)), "ok");
        assert_eq!(outcome(&" ".repeat(SIZE)), "ok");
        assert_eq!(outcome(&format!("#{}", "(".repeat(SIZE))), "ok");
        assert_eq!(outcome(&format!("import \"{}\"", "x".repeat(SIZE))), "ok");
        assert_eq!(outcome(&value(&"1".repeat(SIZE))), "ok");
        assert_eq!(outcome(&value(&format!("a{};", " ".repeat(SIZE)))), "E0106");

        let kernel = "kernel f() { input A: int8[n] output B[i: n] = 1 }\n";
        let file = parse_file(&kernel.repeat(SIZE / kernel.len()), 0).unwrap();
        assert_eq!(file.items.len(), SIZE / kernel.len());
    });
}

#[test]
fn a_large_expression_parses() {
    on_large_stack(|| {
        let sum = " + A[i, j] * B[i, j]".repeat(SIZE / 20);
        let text = format!("kernel f(n) {{ output C[i: n, j: n] = 1{sum} }}");
        let file = parse_file(&text, 0).unwrap();
        let Item::Kernel(kernel) = &file.items[0] else { panic!("no kernel") };
        assert!(matches!(kernel.body[0].kind, StmtKind::Stage(_)));
        assert_eq!(kernel.body[0].span.end as usize, text.len() - 2);
    });
}

/// Programs that together use every rule of the grammar.
const PROGRAMS: [&str; 4] = [
    include_str!("../samples/matmul.te"),
    include_str!("../lib/nn.te"),
    r#"import "nn.te"
def f(a, b,) = if a > 0x1f then -b else if not a == 2 then ~b // 3 else b % 4 # comment
reducer best((i, a), (j, b)) = (if a >= b then i else j, max(a, b)) identity (max_value, -inf)
kernel k(n = 16, m: var, T: dtype = float32, eps: real = 1e-5, relu: bool = false) reassociate {
    input A: T[n, m] layout_free
    input s: float32
    reduce r: 0..m, q: 1..n + 2
    let oh = (n - 3) // 2 + 1
    let P, _ = padding(A, ph=1)
    if n > 3 and oh != 1 { assume m % 16 == 0 } else if relu { assert n >= 3, "small" } else { }
    compute X[i: n, j: m]: float16 = (A[i, j] as float32 * s << 2 & 3 | 4 ^ 5) as float16
    output (I: int32, V)[i: n] = best((r, A[i, r]), axis=[r, q], where=r > 0 or r < -1, reassociate)
    output S[] = select(true, 0.5e+3, false)
}
"#,
    r#"schedule k.fast(tx = 32, t = target.lanes(float32) * 2) for x86-avx512 {
    let CL = C.cache_write(local)
    let xo, _, yo, yi = C.tile(x, y, tx, ty, tail=peel)
    C.reorder(*, xo)
    let l = target.lanes(float32)
    if tx > 16 and target.cores > 2 { C.parallel(xo) } else if tx == 1 { use other } else { }
    for S in [A, B] { S.compute_inline() }
    for (S, L) in [(AS, AL), (BS, BL)] { S.compute_at(L, yo) }
    knob u = 4 in [1, 2, 4,]
    P.pad.bind(i, blockIdx.x)
    let AA = A.cache_read(shared, [C, P.pad], layout=[ax1 // 16, ax0, ax1 % 16])
    assert tx % 2 == 0, "odd"
    use lib.tile(C, x, size=tx)
    auto_inline_injective()
}

template tile(S: tensor, x: axis, size = 8, T: dtype = float32, deep: bool = false) {
    S.split(x, factor=size)
}
"#,
];

/// Pieces of text that are inserted to damage a program.
const PIECES: [&str; 37] = [
    "(", ")", "[", "]", "{", "}", ",", ":", "=", "==", "...", "..", ".", "+", "-", "*", "//", "<",
    "<<", "if ", " then ", " else ", "not ", " and ", " as ", "let ", "input", "\"", "#", "\n",
    "0x", "1.", "1e", "é", "\u{0}", ";", "&&",
];

fn mutate(text: &str, rng: &mut ChaCha8Rng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..chars.len());
        let to = (at + rng.random_range(1..12)).min(chars.len());
        let piece: Vec<char> = PIECES[rng.random_range(0..PIECES.len())].chars().collect();
        match rng.random_range(0..5) {
            0 => drop(chars.drain(at..to)),
            1 => drop(chars.splice(at..at, piece)),
            2 => drop(chars.splice(at..to, piece)),
            3 => {
                let copy: Vec<char> = chars[at..to].to_vec();
                let at = rng.random_range(0..chars.len());
                drop(chars.splice(at..at, copy));
            }
            _ => chars.truncate(at.max(1)),
        }
        if chars.is_empty() {
            return String::new();
        }
    }
    chars.into_iter().collect()
}

/// A program as a function of its number of parts of one kind.
type Shape = fn(usize) -> String;

fn each(count: usize, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect()
}

const KERNEL: &str = "kernel k() { input A: float32[4] output B[i: 4] = A[i] }\n";

/// Programs with many parts of one kind, and how many of them are a small number.
const SHAPES: [(&str, usize, Shape); 16] = [
    ("kernels", 4000, |n| each(n, |at| KERNEL.replace(" k(", &format!(" k{at}(")))),
    ("kernels with schedules", 1000, |n| {
        each(n, |at| {
            let kernel = KERNEL.replace(" k(", &format!(" k{at}("));
            format!("{kernel}schedule k{at}.a {{ B.unroll(i) }} schedule k{at} {{ use a }}\n")
        })
    }),
    ("schedules", 1000, |n| {
        let schedule = |at| format!("schedule k.s{at} {{ B.unroll(i) }}\n");
        KERNEL.to_string() + &each(n, schedule)
    }),
    ("schedules that use another", 1000, |n| {
        let schedule = |at| format!("schedule k.s{at} {{ use a }}\n");
        KERNEL.to_string() + "schedule k.a { B.unroll(i) }\n" + &each(n, schedule)
    }),
    ("schedules of a search", 1000, |n| {
        KERNEL.to_string() + &each(n, |_| "schedule k.tuned for cpu { B.unroll(i) }\n".to_string())
    }),
    ("constants of a schedule", 4000, |n| {
        format!("{KERNEL}schedule k {{ {} }}", each(n, |at| format!("let t{at} = {at}\n")))
    }),
    ("stages in a row", 1000, |n| {
        let stage = |at: usize| format!("compute S{}[i: 4] = S{at}[i] + 1.0\n", at + 1);
        let (first, stages) = ("compute S0[i: 4] = A[i]\n", each(n, stage));
        format!("kernel k() {{ input A: float32[4] {first}{stages} output B[i: 4] = S{n}[i] }}")
    }),
    ("stages side by side", 500, |n| {
        let stages = each(n, |at| format!("compute S{at}[i: 4] = A[i] + {at}.0\n"));
        let sum = each(n, |at| format!(" + S{at}[i]"));
        format!("kernel k() {{ input A: float32[4] {stages} output B[i: 4] = 1.0{sum} }}")
    }),
    ("outputs", 1000, |n| {
        let outputs = each(n, |at| format!("output B{at}[i: 4] = A[i] + {at}.0\n"));
        format!("kernel k() {{ input A: float32[4] {outputs} }}")
    }),
    ("inputs", 2000, |n| {
        let inputs = each(n, |at| format!("input A{at}: float32[4]\n"));
        format!("kernel k() {{ {inputs} output B[i: 4] = A0[i] }}")
    }),
    ("constants", 4000, |n| {
        let lets = each(n, |at| format!("let l{} = l{at} + 1\n", at + 1));
        format!("kernel k() {{ let l0 = 1 {lets} output B[i: 4] = i + l{n} }}")
    }),
    ("parameters", 4000, |n| {
        let params = each(n, |at| format!("p{at} = {at}, "));
        format!("kernel k({params}) {{ output B[i: 4] = i + p1 }}")
    }),
    ("defs", 4000, |n| each(n, |at| format!("def f{at}(x) = x + 1\n")) + KERNEL),
    ("defs that call one another", 2000, |n| {
        each(n, |at| format!("def f{}(x) = f{at}(x) + 1\n", at + 1)) + "def f0(x) = x\n" + KERNEL
    }),
    ("terms", 4000, |n| {
        format!("kernel k() {{ input A: float32[4] output B[i: 4] = A[i]{} }}", " + A[i]".repeat(n))
    }),
    ("imports", 500, |n| each(n, |at| format!("import \"f{at}.te\"\n")) + KERNEL),
];

/// A program as a text; another file `fN.te` has one `def`.
struct Text(String);

impl Loader for Text {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        Ok(match path.strip_suffix(".te").filter(|name| *name != "main") {
            Some(name) => format!("def {name}(x) = x\n").into_bytes(),
            None => self.0.clone().into_bytes(),
        })
    }
}

/// Nanoseconds that this thread was on a CPU, which others on the machine do not change much; by
/// the clock where the system does not tell.
fn busy(begin: Instant) -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let run = told.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    run.filter(|run| *run > 0.0).unwrap_or(begin.elapsed().as_nanos() as f64)
}

/// Seconds of what `tec check` does to a program.
fn check_time(text: String) -> f64 {
    let loader = Text(text);
    let begin = Instant::now();
    let start = busy(begin);
    let options = Options::new(Target::parse("x86-64").expect("a target"));
    let trace = &mut Trace::default();
    let program = driver::load("main.te", &loader, trace).expect("it parses");
    let graphs = driver::elaborate(&program, &options, trace).expect("it is right");
    driver::check_schedules(&program, &graphs, &options, trace).expect("so are its schedules");
    (busy(begin) - start) / 1e9
}

/// Eight times as many parts take eight times as long, or up to twice that; not 64 times.
#[test]
fn front_end_time_is_linear_in_program_size() {
    on_large_stack(|| {
        const TIMES: usize = 8;
        let mut slow = Vec::new();
        for (name, count, shape) in SHAPES {
            let ratio = || {
                let small = check_time(shape(count)).min(check_time(shape(count)));
                let large = check_time(shape(TIMES * count));
                eprintln!("{name}: {count} in {small:.3} s, {TIMES} times as many in {large:.3} s");
                // Times that are too short cannot be compared.
                large / (small + 0.02)
            };
            // Load on the machine may disturb one of the two measurements, but not likely three
            // times.
            if (0..3).all(|_| ratio() > 2.0 * TIMES as f64) {
                slow.push(name);
            }
        }
        assert!(slow.is_empty(), "{slow:?}");
    });
}

#[test]
fn programs_parse() {
    for program in PROGRAMS {
        assert_eq!(outcome(program), "ok", "{program}");
    }
}

#[test]
fn damaged_programs_are_parsed_or_refused_with_a_place() {
    on_large_stack(|| {
        const SEED: u64 = 1;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        for round in 0..3000 {
            let program = PROGRAMS[rng.random_range(0..PROGRAMS.len())];
            // A short text allows many rounds.
            let items: Vec<&str> = program.split_inclusive("\n}\n").collect();
            let text = mutate(items[rng.random_range(0..items.len())], &mut rng);
            let Err(diag) = parse_file(&text, 0) else { continue };
            let span = diag.span.unwrap_or_else(|| panic!("no place, round {round}:\n{text}"));
            let (start, end) = (span.start as usize, span.end as usize);
            assert!(text.get(start..end).is_some(), "{start}..{end}, round {round}:\n{text}");
            let sources = Sources { files: vec![SourceFile { path: "a.te".into(), text }] };
            let shown = render(&diag, &sources, false);
            assert!(shown.starts_with(&format!("error[{}]: ", diag.code)), "{shown}");
        }
    });
}
