//! The parser on large, deep and damaged texts.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tec::diag::{SourceFile, Sources, render};
use tec::lang::ast::{Expr, ExprKind, Item, StmtKind};
use tec::lang::parse_file;

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
fn what_is_not_nested_has_no_limit() {
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

#[test]
fn large_files_parse() {
    const SIZE: usize = 10_000_000;
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
        drop(file);

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
    auto_inline_injective()
}
"#,
];

/// Text pieces that damage a program in interesting ways.
const PIECES: [&str; 36] = [
    "(", ")", "[", "]", "{", "}", ",", ":", "=", "==", "..", ".", "+", "-", "*", "//", "<", "<<",
    "if ", " then ", " else ", "not ", " and ", " as ", "let ", "input", "\"", "#", "\n", "0x",
    "1.", "1e", "é", "\u{0}", ";", "&&",
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
            // A short text keeps the rounds many.
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
