//! Syntax trees and syntax errors.

use super::super::ast::{Arg, Expr, ExprKind, Schedule, ScheduleStmtKind, UnaryOp};
use super::*;
use crate::diag::{SourceFile, Sources, hints};

fn parse(text: &str) -> File {
    parse_file(text, 0).unwrap_or_else(|diag| panic!("{diag}\n{text}"))
}

fn error(text: &str) -> Diag {
    match parse_file(text, 0) {
        Ok(file) => panic!("parsed: {file:?}\n{text}"),
        Err(diag) => *diag,
    }
}

fn schedule(body: &str) -> Schedule {
    match parse(&format!("schedule k {{ {body} }}")).items.remove(0) {
        Item::Schedule(schedule) => schedule,
        item => panic!("{item:?}"),
    }
}

fn stmts(body: &str) -> Vec<Stmt> {
    match parse(&format!("kernel k() {{ {body} }}")).items.remove(0) {
        Item::Kernel(kernel) => kernel.body,
        item => panic!("{item:?}"),
    }
}

/// Returns an expression with all its parentheses.
fn tree(text: &str) -> String {
    match parse(&format!("def f() = {text}")).items.remove(0) {
        Item::Def(def) => show(&def.body),
        item => panic!("{item:?}"),
    }
}

fn show_all(exprs: &[Expr]) -> String {
    exprs.iter().map(show).collect::<Vec<_>>().join(" ")
}

fn show_args(args: &[Arg]) -> String {
    let arg = |arg: &Arg| match &arg.name {
        Some(name) => format!(" {}={}", name.text, show(&arg.value)),
        None => format!(" {}", show(&arg.value)),
    };
    args.iter().map(arg).collect()
}

fn show_path(path: &[Name]) -> String {
    path.iter().map(|name| name.text.as_str()).collect::<Vec<_>>().join(".")
}

fn show(expr: &Expr) -> String {
    match &*expr.kind {
        ExprKind::Int(text) | ExprKind::Real(text) => text.clone(),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Name(name) => name.text.clone(),
        ExprKind::Dotted(path) => show_path(path),
        ExprKind::Unary(op, a) => {
            let op = match op {
                UnaryOp::Neg => "-",
                UnaryOp::BitNot => "~",
                UnaryOp::Not => "not",
            };
            format!("({op} {})", show(a))
        }
        ExprKind::Binary(op, a, b, _) => format!("({} {} {})", op.symbol(), show(a), show(b)),
        ExprKind::Cast(a, dtype) => format!("(as {} {})", show(a), dtype.text),
        ExprKind::Index(name, index) => format!("{}[{}]", name.text, show_all(index)),
        ExprKind::Call(name, args) => format!("({}{})", name.text, show_args(args)),
        ExprKind::DottedCall(path, args) => format!("({}{})", show_path(path), show_args(args)),
        ExprKind::If(c, a, b) => format!("(if {} {} {})", show(c), show(a), show(b)),
        ExprKind::Tuple(parts) => format!("(tuple {})", show_all(parts)),
        ExprKind::List(items) => format!("[{}]", show_all(items)),
        ExprKind::Expand(pattern) => format!("{}...", show(pattern)),
        ExprKind::Range(from, to) => {
            let [from, to] = [from, to].map(|end| end.as_ref().map_or(String::new(), show));
            format!("{from}..{to}")
        }
        ExprKind::Star => "*".to_string(),
    }
}

#[test]
fn operators_bind_by_precedence() {
    for (text, expected) in [
        ("a or b and not c == d | e", "(or a (and b (not (== c (| d e)))))"),
        ("a | b ^ c & d << e + f * -g as T", "(| a (^ b (& c (<< d (+ e (* f (- (as g T))))))))"),
        ("a * b + c < d", "(< (+ (* a b) c) d)"),
        ("a - b - c", "(- (- a b) c)"),
        ("a / b // c % d * e", "(* (% (// (/ a b) c) d) e)"),
        ("a << b >> c", "(>> (<< a b) c)"),
        ("not not a", "(not (not a))"),
        ("- ~ -a", "(- (~ (- a)))"),
        ("-1 as uint8", "(- (as 1 uint8))"),
        ("a as int8 as T * b", "(* (as (as a int8) T) b)"),
        ("-a * b", "(* (- a) b)"),
        ("a * -b", "(* a (- b))"),
        ("(a + b) * c", "(* (+ a b) c)"),
        ("if a or b then c + d else e or f", "(if (or a b) (+ c d) (or e f))"),
        ("if a then b else if c then d else e", "(if a b (if c d e))"),
        ("if a then if b then c else d else e", "(if a (if b c d) e)"),
        ("if if a then b else c then d else e", "(if (if a b c) d e)"),
        ("(if a then b else c) + (not d)", "(+ (if a b c) (not d))"),
        (
            "sum(A[i, k] * B[], axis=[k, l], where=a < b,)",
            "(sum (* A[i k] B[]) axis=[k l] where=(< a b))",
        ),
        (
            "argmax((k, A[i, k]), axis=k, reassociate)",
            "(argmax (tuple k A[i k]) axis=k reassociate)",
        ),
        ("f() + 0x1F + 1e-5 + 0.5E+3", "(+ (+ (+ (f) 0x1F) 1e-5) 0.5E+3)"),
        ("true and not false", "(and true (not false))"),
        ("notable + iff + in_ + as_", "(+ (+ (+ notable iff) in_) as_)"),
        ("a<-b", "(< a (- b))"),
        ("a==b", "(== a b)"),
    ] {
        assert_eq!(tree(text), expected, "{text}");
    }
}

#[test]
fn spans_are_of_the_text_without_outer_parentheses() {
    let text = "def f(a) = (( a + 1 )) * g( a ) # end\n";
    let Item::Def(def) = parse(text).items.remove(0) else { panic!("no def") };
    let of = |span: Span| &text[span.start as usize..span.end as usize];
    assert_eq!(of(def.body.span), "(( a + 1 )) * g( a )");
    let ExprKind::Binary(_, left, right, op) = *def.body.kind else { panic!("no product") };
    assert_eq!((of(left.span), of(right.span), of(op)), ("a + 1", "g( a )", "*"));
    let text = "kernel k() { input A: int8  # here\n  }";
    let Item::Kernel(kernel) = parse(text).items.remove(0) else { panic!("no kernel") };
    let span = kernel.body[0].span;
    assert_eq!(&text[span.start as usize..span.end as usize], "input A: int8");
}

#[test]
fn items_are_parsed() {
    let file = parse(
        "import \"a/b.te\" def f(a, b,) = a reducer p(a, b) = a * b identity 1 \
         reducer q((ai, av), (bi, bv)) = (ai, max(av, bv)) identity (max_value, -inf)",
    );
    let Item::Import(import) = &file.items[0] else { panic!("no import") };
    assert_eq!((import.path.as_str(), import.span.start, import.span.end), ("a/b.te", 7, 15));
    let Item::Def(def) = &file.items[1] else { panic!("no def") };
    assert_eq!((def.name.text.as_str(), def.params.len()), ("f", 2));
    let Item::Reducer(p) = &file.items[2] else { panic!("no reducer") };
    assert_eq!(
        (p.lhs.len(), show(&p.result[0]), show(&p.identity[0])),
        (1, "(* a b)".into(), "1".into())
    );
    let Item::Reducer(q) = &file.items[3] else { panic!("no reducer") };
    assert_eq!(show_path(&q.lhs) + " " + &show_path(&q.rhs), "ai.av bi.bv");
    assert_eq!(show_all(&q.result), "ai (max av bv)");
    assert_eq!(show_all(&q.identity), "max_value (- inf)");
}

#[test]
fn parameters_are_parsed() {
    let text = "kernel k(n = 16, m: var, T: dtype = float32, eps: real = 1e-5, on: bool = true,) \
                reassociate { }";
    let Item::Kernel(kernel) = parse(text).items.remove(0) else { panic!("no kernel") };
    assert!(kernel.reassociate);
    let kinds: Vec<ParamKind> = kernel.params.iter().map(|param| param.kind).collect();
    use ParamKind::*;
    assert_eq!(kinds, [Index, Var, DType, Real, Bool]);
    let defaults = kernel.params.iter().map(|p| p.default.as_ref().map_or("-".into(), show));
    assert_eq!(defaults.collect::<Vec<_>>(), ["16", "-", "float32", "1e-5", "true"]);
}

#[test]
fn statements_are_parsed() {
    let body = stmts(
        "input A: T[n, m] layout_free input s: float32 input z: float32[]
         reduce r: 0..m, q: n..n + 2
         compute X[i: n, j: m]: float16 = A[i, j]
         output (I: int32, V)[i: n] = f(i) output layout_free[] = 1
         let a, _ = g(A) assume n % 2 == 0 assert n > 0, \"text, # and all\"",
    );
    let StmtKind::Input { shape: Some(shape), layout_free: true, .. } = &body[0].kind else {
        panic!("{:?}", body[0])
    };
    assert_eq!(show_all(shape), "n m");
    assert!(matches!(&body[1].kind, StmtKind::Input { shape: None, layout_free: false, .. }));
    assert!(matches!(&body[2].kind, StmtKind::Input { shape: Some(s), .. } if s.is_empty()));
    let StmtKind::Reduce(axes) = &body[3].kind else { panic!("{:?}", body[3]) };
    assert_eq!((show(&axes[0].min), show(&axes[1].end)), ("0".into(), "(+ n 2)".into()));
    let StmtKind::Stage(stage) = &body[4].kind else { panic!("{:?}", body[4]) };
    assert!(!stage.output && stage.axes.len() == 2);
    assert_eq!(stage.dtype.as_ref().unwrap().text, "float16");
    let StmtKind::Stage(stage) = &body[5].kind else { panic!("{:?}", body[5]) };
    let types: Vec<_> = stage.names.iter().map(|(_, t)| t.as_ref().map(|t| &*t.text)).collect();
    assert!(stage.output && types == [Some("int32"), None]);
    let StmtKind::Stage(stage) = &body[6].kind else { panic!("{:?}", body[6]) };
    assert!(stage.names[0].0.text == "layout_free" && stage.axes.is_empty());
    let StmtKind::Let { names, value } = &body[7].kind else { panic!("{:?}", body[7]) };
    assert_eq!((names.len(), names[1].is_none(), show(value)), (2, true, "(g A)".into()));
    assert!(matches!(&body[8].kind, StmtKind::Assume(_)));
    assert!(matches!(&body[9].kind, StmtKind::Assert(_, text) if text == "text, # and all"));
}

#[test]
fn estimates_have_names_and_values() {
    // The word is a name elsewhere.
    let text = "kernel estimate(n: var, estimate: var) { estimate n = 2 * 4, estimate = 8 }";
    let file = parse_file(text, 0).unwrap();
    let Item::Kernel(kernel) = &file.items[0] else { panic!("{:?}", file.items[0]) };
    let StmtKind::Estimate(known) = &kernel.body[0].kind else { panic!("{:?}", kernel.body) };
    let known: Vec<_> = known.iter().map(|(name, value)| (&*name.text, show(value))).collect();
    assert_eq!(known, [("n", "(* 2 4)".to_string()), ("estimate", "8".to_string())]);
}

#[test]
fn packs_are_parsed() {
    let body = "input X: float32[B..., n, 2*m...] reduce k...: 0..K..., r: 1..n \
        output Y[i...: S..., j: n] = X[i..., (j + r)..., S[1..], p[..2]...]";
    let stmts = stmts(body);
    let StmtKind::Input { shape: Some(shape), .. } = &stmts[0].kind else { panic!("{stmts:?}") };
    assert_eq!(show_all(shape), "B... n (* 2 m)...");
    let StmtKind::Reduce(axes) = &stmts[1].kind else { panic!("{stmts:?}") };
    assert_eq!((axes[0].is_pack, axes[1].is_pack), (true, false));
    assert_eq!(show(&axes[0].end), "K");
    let StmtKind::Stage(stage) = &stmts[2].kind else { panic!("{stmts:?}") };
    let axes: Vec<String> =
        stage.axes.iter().map(|(name, extent)| format!("{} {}", name.text, show(extent))).collect();
    assert_eq!(axes, ["i S...", "j n"]);
    assert_eq!(show(&stage.body), "X[i... (+ j r)... S[1..] p[..2]...]");
    assert_eq!(tree("[n, S..., 0..4, a..]"), "[n S... 0..4 a..]");
    assert_eq!(tree("max(S..., 1)"), "(max S... 1)");
}

#[test]
fn mistakes_in_packs() {
    for (body, message) in [
        ("output Y[i...: n] = 1", "`...` follows the name of the axis `i`, but not its extents"),
        ("output Y[i: S...] = 1", "`...` follows the extents of the axis `i`, but not its name"),
        ("reduce k...: 0..n", "`...` follows the name of the axis `k`, but not its extents"),
        ("update A[i: S...] = 1", "`...` follows the extents of the axis `i`, but not its name"),
        ("let a = S...", "expected `}` or a statement, found `...`"),
    ] {
        assert_eq!(error(&format!("kernel k() {{ {body} }}")).message, message, "{body}");
    }
    let diag = error("schedule k { C.reorder(i...) }");
    assert_eq!(diag.to_string(), "E0109: `...` is not part of a schedule");
}

#[test]
fn else_if_is_an_if_alone_in_otherwise() {
    let body = stmts("if a { let x = 1 } else if b { let x = 2 } else { let x = 3 } if c { }");
    assert_eq!(body.len(), 2);
    let StmtKind::If { then, otherwise, .. } = &body[0].kind else { panic!("{:?}", body[0]) };
    assert_eq!((then.len(), otherwise.len()), (1, 1));
    let StmtKind::If { then, otherwise, .. } = &otherwise[0].kind else { panic!("no else if") };
    assert_eq!((then.len(), otherwise.len()), (1, 1));
}

#[test]
fn schedules_are_parsed() {
    let text = "schedule k.fast(t = target.cores) for x86-avx512 { }";
    let Item::Schedule(head) = parse(text).items.remove(0) else { panic!("no schedule") };
    assert_eq!(head.kernel.text + "." + &head.name.unwrap().text, "k.fast");
    assert_eq!(head.target.unwrap().text, "x86-avx512");
    assert_eq!(show(head.params[0].default.as_ref().unwrap()), "target.cores");

    let body = schedule(
        "let xo, _ = P.pad.tile(x, y, 4, n*2, tail=peel) C.reorder(*, xo) let t = n * n let S = P
         C.bind(i, blockIdx.x) let l = target.lanes(T) use other auto_inline_injective()
         knob u = 4 in [1, 2 * t,] for (S, L) in [(A, B), (C, D)] { S.compute_at(L, yo) }
         for S in [A, B] { } if t > 1 { } else if t { } else { use x } assert t, \"t\"
         let AA = A.cache_read(shared, [C], layout=[ax1 // 16, ax0])",
    );
    let text: Vec<String> = body.body.iter().map(|stmt| show_schedule(&stmt.kind)).collect();
    assert_eq!(
        text,
        [
            "xo,_ = P.pad . tile x y 4 (* n 2) tail=peel",
            " = C . reorder * xo",
            "let t = (* n n)",
            "let S = P",
            " = C . bind i blockIdx.x",
            "let l = (target.lanes T)",
            "use other",
            "auto_inline_injective",
            "knob u = 4 in 1 (* 2 t)",
            "for S.L in (tuple A B) (tuple C D) 1",
            "for S in A B 0",
            "if (> t 1) 0 1",
            "assert t",
            "AA = A . cache_read shared [C] layout=[(// ax1 16) ax0]",
        ]
    );
}

fn show_schedule(kind: &ScheduleStmtKind) -> String {
    let names = |names: &[Option<Name>]| {
        let text = |name: &Option<Name>| name.as_ref().map_or("_".to_string(), |n| n.text.clone());
        names.iter().map(text).collect::<Vec<_>>().join(",")
    };
    match kind {
        ScheduleStmtKind::Directive { results, stage, directive, args } => format!(
            "{} = {} . {}{}",
            names(results),
            show_path(stage),
            directive.text,
            show_args(args)
        ),
        ScheduleStmtKind::Let { names: new, value } => {
            format!("let {} = {}", names(new), show(value))
        }
        ScheduleStmtKind::If { cond, then, otherwise } => {
            format!("if {} {} {}", show(cond), then.len(), otherwise.len())
        }
        ScheduleStmtKind::For { names, items, body } => {
            format!("for {} in {} {}", show_path(names), show_all(items), body.len())
        }
        ScheduleStmtKind::Use(name) => format!("use {}", name.text),
        ScheduleStmtKind::UseTemplate { path, args } => {
            format!("use {}{}", show_path(path), show_args(args))
        }
        ScheduleStmtKind::Knob { name, default, choices } => {
            format!("knob {} = {} in {}", name.text, show(default), show_all(choices))
        }
        ScheduleStmtKind::Assert(cond, _) => format!("assert {}", show(cond)),
        ScheduleStmtKind::AutoInlineInjective => "auto_inline_injective".to_string(),
    }
}

#[test]
fn words_of_their_place_are_names_elsewhere() {
    parse(
        "kernel reassociate(var = 1, dtype: var, axis = 2) {
             input layout_free: float32[where] layout_free
             reduce axis: 0..init
             output local[peel: n, split: 3] = sum(min_value + inf, axis=axis, init=target)
         }
         schedule reassociate.knob_ for cpu { local.split(target, factor=tail) }",
    );
}

/// A body of a kernel, the token at fault, the message, and a word of the help.
const MISTAKES: [(&str, &str, &str, &str); 52] = [
    ("output C[i: n = A[i]", "=", "E0101: expected `,` or `]`, found `=`", ""),
    ("compute C = 1", "=", "E0101: expected `[`, found `=`", ""),
    ("let x = f(a, b", "}", "E0101: expected `)` or `,`, found `}`", ""),
    ("let x = f(a,, b)", ",", "E0101: expected `)` or an expression, found `,`", ""),
    ("let x = (a]", "]", "E0101: expected `)` or `,`, found `]`", ""),
    ("let x =", "}", "E0101: expected an expression, found `}`", ""),
    ("let x = a + * b", "*", "E0101: expected an expression, found `*`", ""),
    ("let x = a b", "b", "E0101: expected `}` or a statement, found `b`", ""),
    ("let x = \"abc\"", "\"abc\"", "E0101: expected an expression, found a string", ""),
    ("let x = if a then b", "}", "E0101: expected `else`, found `}`", ""),
    ("let x = a == not b", "not", "E0101: expected an expression, found `not`", "parentheses"),
    (
        "let x = a + if b then c else d",
        "if",
        "E0101: expected an expression, found `if`",
        "parenth",
    ),
    ("let a = b = c", "=", "E0101: expected `}` or a statement, found `=`", "equality is `==`"),
    ("let x = A[i][j]", "[", "E0101: expected `}` or a statement, found `[`", "`A[i, j]`"),
    ("let x = ]", "]", "E0101: expected an expression, found `]`", ""),
    ("inptu A: float32", "inptu", "E0101: expected `}` or a statement, found `inptu`", "`input`"),
    (
        "if a { } elif b { }",
        "elif",
        "E0101: expected `else`, `}` or a statement, found `elif`",
        "else if",
    ),
    ("for x in [1] { }", "for", "E0101: expected `}` or a statement, found `for`", "no loops"),
    ("use x", "use", "E0101: expected `}` or a statement, found `use`", "only in a schedule"),
    ("x = 1", "x", "E0101: expected `}` or a statement, found `x`", "let x"),
    ("C[i: n] = 1", "C", "E0101: expected `}` or a statement, found `C`", "compute C"),
    ("C.split(i)", "C", "E0101: expected `}` or a statement, found `C`", "schedule"),
    ("return x", "return", "E0101: expected `}` or a statement, found `return`", "output"),
    ("assert a, b", "b", "E0101: expected a string in double quotes, found `b`", ""),
    ("reduce k: 0, 1", ",", "E0101: expected `..`, found `,`", ""),
    ("input A float32", "float32", "E0101: expected `:`, found `float32`", ""),
    ("let x = 12abc", "12abc", "E0103: malformed number `12abc`", "12 * abc"),
    ("let x = 1.", "1.", "E0103: malformed number `1.`", "`1.0`"),
    ("let x = 1.5.2", "1.5.2", "E0103: malformed number `1.5.2`", "one point"),
    ("let x = .5", ".5", "E0103: malformed number `.5`", "`0.5`"),
    ("let x = 0xg", "0xg", "E0103: malformed number `0xg`", "hexadecimal"),
    ("let x = 1e", "1e", "E0103: malformed number `1e`", "1e5"),
    ("let x = 1_000", "1_000", "E0103: malformed number `1_000`", "without `_`"),
    ("let input = 1", "input", "E0104: `input` is a reserved word, not a name", "input_"),
    ("let x = in", "in", "E0101: expected an expression, found `in`", ""),
    ("let x = output + 1", "output", "E0104: `output` is a reserved word, not a name", ""),
    ("assert a, \"x", "\"", "E0105: this string is not closed on its line", ""),
    ("let x = 1;", ";", "E0106: the language has no `;`", "without a semicolon"),
    ("let x = a && b", "&&", "E0106: the language has no `&&`", "`and`"),
    ("let x = a || b", "||", "E0106: the language has no `||`", "`or`"),
    ("let x = !a", "!", "E0106: the language has no `!`", "`not`"),
    ("let x = a ** 2", "**", "E0106: the language has no `**`", "pow"),
    ("// comment", "//", "E0106: unexpected `//`", "`#`"),
    ("let x = a × b", "×", "E0106: the language has no `×`", "`*`"),
    ("let x = a\u{a0}", "\u{a0}", "E0106: the language has no `\\u{a0}`", "ASCII"),
    ("let x = a < b < c", "<", "E0107: comparisons do not chain", "a < b and b < c"),
    ("let x = a == b != c", "!=", "E0107: comparisons do not chain", "and"),
    ("let x = a.b", "a.b", "E0109: the dotted name `a.b` is allowed only in a schedule", ""),
    ("let x = (a, b) + 1", "(a, b)", "E0109: a tuple is allowed only as an argument", ""),
    ("let x = f(*)", "*", "E0109: `*` is an argument of schedule directives only", ""),
    ("let x = f(a=1, b)", "b", "E0110: a positional argument after the named argument `a`", ""),
    ("let x = -f((((1)))", "}", "E0101: expected `)` or `,`, found `}`", ""),
];

#[test]
fn mistakes_in_kernels() {
    for (body, token, message, help) in MISTAKES {
        let text = format!("kernel k() {{\n    {body}\n}}\n");
        let mut diags = [error(&text)];
        let files = vec![SourceFile { path: String::new(), text: text.clone() }];
        hints::give(&mut diags, &Sources { files });
        let [diag] = diags;
        let span = diag.span.unwrap();
        assert_eq!(diag.to_string(), message, "{body}");
        assert_eq!(&text[span.start as usize..span.end as usize], token, "{body}");
        assert!(diag.help.unwrap_or_default().contains(help), "{body}: help without `{help}`");
    }
}

#[test]
fn mistakes_outside_kernels() {
    let items =
        "expected `import`, `def`, `reducer`, `kernel`, `network`, `schedule` or `template`";
    for (text, message) in [
        ("kernal f() {}", format!("E0101: {items}, found `kernal`")),
        ("def f() = 1 }", format!("E0101: {items}, found `}}`")),
        ("\0", format!("E0101: {items}, found `\\u{{0}}`")),
        ("kernel f {}", "E0101: expected `(`, found `{`".into()),
        ("kernel f() {", "E0101: expected `}` or a statement, found the end of the file".into()),
        ("kernel if() {}", "E0104: `if` is a reserved word, not a name".into()),
        ("kernel f(n: int) {}", "E0108: unknown parameter kind `int`".into()),
        ("def f(a b) = a", "E0101: expected `)` or `,`, found `b`".into()),
        ("reducer r(a, b) = a", "E0101: expected `identity`, found the end of the file".into()),
        (
            "reducer r((a, b), (c, d)) = a identity 1",
            "E0111: reducer `r` combines 2 components, but 1 are given".into(),
        ),
        (
            "reducer r((a, b), c) = (a, b) identity (1, 2)",
            "E0111: the two operands of reducer `r` have 2 and 1 components".into(),
        ),
        ("import x", "E0101: expected a string in double quotes, found `x`".into()),
        ("schedule f for { }", "E0101: expected a target, found `{`".into()),
        ("schedule f { t = 4 }", "E0101: expected `.`, found `=`".into()),
        ("schedule f { knob t = 3 }", "E0101: expected `in`, found `}`".into()),
        ("schedule f { output C }", "E0101: expected `}` or a statement, found `output`".into()),
        ("schedule f { let x = ] }", "E0101: expected an expression, found `]`".into()),
    ] {
        assert_eq!(error(text).to_string(), message, "{text}");
    }
}

#[test]
fn an_open_bracket_is_shown() {
    let diag = error("kernel f() {\n let x = (1 + 2\n let y = 3\n}\n");
    assert_eq!(diag.related[0].0.start, 22);
    let diag = error("kernel f() {\n let x = 1\nkernel g() { }");
    assert_eq!(diag.related[0].0.start, 11);
    assert_eq!(error("kernel f() { x }").related, []);
}

/// The part after `else` is an `if` of its own, which a message may quote.
#[test]
fn an_else_if_begins_at_its_if() {
    let text = "kernel k(n = 4) { output z[i: n] = if i > 2 then 1 else if i == 1 then 2 else 3 }";
    let file = parse_file(text, 0).expect("a right program");
    let Item::Kernel(kernel) = &file.items[0] else { panic!("no kernel") };
    let StmtKind::Stage(stage) = &kernel.body[0].kind else { panic!("no stage") };
    let ExprKind::If(_, _, otherwise) = &*stage.body.kind else { panic!("no `if`") };
    let span = otherwise.span;
    let quoted = &text[span.start as usize..span.end as usize];
    assert_eq!(quoted, "if i == 1 then 2 else 3");
}

/// The syntax tree without the places in the text.
fn without_spans(schedule: &Schedule) -> String {
    let text = format!("{schedule:?}");
    let mut parts = text.split("Span {");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| all + part.split_once('}').expect("a span ends").1)
}

#[test]
fn schedules_with_a_statement_on_each_line_are_parsed_alike() {
    let parsed = ParsedLines::default();
    let text = "schedule k.fast for x86-avx512 {
    # rows: C has long rows,
    # in lanes
    let xo, _ = C.split(x, factor=(8 + 8))

    C.parallel(xo)
    let A_packed = C.cache_read(A)
    C.reorder(xo, k, [x])
}
";
    for _ in 0..2 {
        let lines = parsed.parse(text).expect("one statement on each line");
        let Item::Schedule(whole) = parse(text).items.remove(0) else { panic!("a schedule") };
        assert_eq!(without_spans(&lines), without_spans(&whole));
        assert!(lines.body.len() == 4 && without_spans(&lines).contains("cache_read"));
    }
    for other in [
        "schedule k { C.parallel(x) }",
        "schedule k {\nC.parallel(x) C.parallel(y)\n}",
        "schedule k {\nC.split(x,\nfactor=8)\n}",
        "schedule k {\nif true {\nC.parallel(x)\n}\n}",
        "schedule k {\nC.parallel(x)\n}\nschedule k.b {\n}",
        "schedule k {\nC.parallel(x\n}",
        "schedule k {\nC.parallel(x)",
        "kernel k() {\n}",
        "",
    ] {
        assert!(parsed.parse(other).is_none(), "{other}");
    }
}
