//! Small programs: what their graphs hold, and which errors they give.

use super::{Defines, elaborate, kernel_names};
use crate::diag::Diag;
use crate::ir::{Const, Expr, ExprKind};
use crate::lang::{Loader, Program, load_program};
use crate::te::{Body, Graph, Input};

/// Files in memory; the first is the one to compile.
struct Memory<'a>(&'a [(&'a str, &'a str)]);

impl Loader for Memory<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let file = self.0.iter().find(|(name, _)| *name == path);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or("no such file".to_string())
    }
}

fn load(files: &[(&str, &str)]) -> Program {
    let (program, errors) = load_program(files[0].0, &Memory(files));
    assert!(errors.is_empty(), "{errors:?}");
    program
}

/// Runs on a large stack, as the compiler does.
fn deep<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(1 << 30);
        thread.spawn_scoped(scope, f).expect("a thread").join().expect("no panic")
    })
}

pub fn graphs(text: &str, defines: &Defines) -> Result<Vec<Graph>, Vec<Diag>> {
    elaborate(&load(&[("a.te", text)]), None, defines)
}

pub fn define(name: &str, value: &str) -> (Option<String>, String, String) {
    (None, name.to_string(), value.to_string())
}

/// Returns the stages of a file of one kernel, as text.
pub fn shown(text: &str) -> String {
    match graphs(text, &[]) {
        Ok(graphs) => graphs.iter().map(show_graph).collect(),
        Err(diags) => panic!("{diags:#?}"),
    }
}

/// Code, line and message of each error.
pub fn errors(text: &str) -> Vec<String> {
    errors_of(&[("a.te", text)], &[])
}

pub fn errors_of(files: &[(&str, &str)], defines: &Defines) -> Vec<String> {
    let program = load(files);
    match elaborate(&program, None, defines) {
        Ok(_) => Vec::new(),
        Err(diags) => diags
            .iter()
            .map(|diag| {
                let line = diag.span.map_or(0, |span| program.sources.line_column(span).0);
                let help = diag.help.as_ref().map_or(String::new(), |help| format!(" [{help}]"));
                format!("{}:{line}: {}{help}", diag.code, diag.message)
            })
            .collect(),
    }
}

pub fn show_graph(graph: &Graph) -> String {
    let mut text = String::new();
    for input in &graph.inputs {
        if let Input::Scalar { var, dtype, .. } = input {
            text += &format!("{}: {dtype}\n", var.name());
        }
    }
    for (cond, _, _) in &graph.assumes {
        text += &format!("assume {}\n", show(cond));
    }
    for stage in &graph.stages {
        let axes: Vec<String> = stage
            .axes
            .iter()
            .map(|axis| format!("{}: {}", axis.var.name(), show(&axis.extent)))
            .collect();
        let types: Vec<String> = stage.buffers.iter().map(|b| b.dtype.to_string()).collect();
        let head = format!("{}[{}]: {}", stage.name, axes.join(", "), types.join(", "));
        text += &match &stage.body {
            Body::Map(values) => format!("{head} = {}\n", show(&values[0])),
            Body::Sort(sort) => format!("{head} = sort {}\n", show(&sort.key)),
            Body::Reduce(reduction) => {
                let all = |exprs: &[Expr]| exprs.iter().map(show).collect::<Vec<_>>().join(", ");
                let axes: Vec<String> = reduction
                    .axes
                    .iter()
                    .map(|a| format!("{}: {} + {}", a.var.name(), show(&a.min), show(&a.extent)))
                    .collect();
                let condition = reduction.condition.as_ref();
                let condition = condition.map_or(String::new(), |c| format!(" if {}", show(c)));
                let flag = if reduction.reassociate { " reassociate" } else { "" };
                format!(
                    "{head} = {}({}) over {} from {}{condition}{flag}\n",
                    reduction.combiner.name,
                    all(&reduction.terms),
                    axes.join(", "),
                    all(&reduction.identity),
                )
            }
        };
    }
    text
}

fn show(expr: &Expr) -> String {
    let list = |exprs: &[Expr]| exprs.iter().map(show).collect::<Vec<_>>().join(", ");
    match &expr.kind {
        ExprKind::Const(Const::Int(value)) => value.to_string(),
        ExprKind::Const(Const::Float(value)) => format!("{value:?}"),
        ExprKind::Var(var) => var.name().to_string(),
        ExprKind::Unary(op, x) => format!("{op:?}({})", show(x)),
        ExprKind::Binary(op, x, y) => format!("{op:?}({}, {})", show(x), show(y)),
        ExprKind::Select(c, x, y) => format!("select({}, {}, {})", show(c), show(x), show(y)),
        ExprKind::IfThenElse(c, x, y) => format!("if({}, {}, {})", show(c), show(x), show(y)),
        ExprKind::Cast(x) => format!("{}({})", expr.ty, show(x)),
        ExprKind::Load { buffer, indices, .. } => format!("{}[{}]", buffer.name, list(indices)),
        ExprKind::Call(function, args) => format!("{}({})", function.name(), list(args)),
        other => panic!("elaboration made {other:?}"),
    }
}

#[test]
fn elaborates_matmul() {
    let text = "kernel matmul(n = 4, m = n, l = 2*n) {
        input A: float32[n, l]
        input B: float32[l, m]
        reduce k: 0..l
        output C[x: n, y: m] = sum(A[x, k] * B[k, y], axis=k)
    }";
    assert_eq!(
        shown(text),
        "C[x: 4, y: 4]: float32 = sum(Mul(A[x, k], B[k, y])) over k: 0 + 8 from 0.0\n"
    );
}

#[test]
fn every_sample_has_a_graph() {
    for entry in std::fs::read_dir("samples").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "te") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let program = load(&[(&name, &text)]);
        if let Err(diags) = elaborate(&program, None, &[]) {
            panic!("{name}: {diags:#?}");
        }
        assert!(kernel_names(&program, &[]).iter().all(|(_, complete)| *complete), "{name}");
    }
}

/// Returns the right side of the one stage `C[i: 4]` of a kernel with these inputs.
fn element(expr: &str) -> String {
    let text = format!(
        "kernel k(n: var, eps: real = 0.1, T: dtype = float16) {{
            input F: float32[4]  input D: float64[4]  input H: float16[4]  input G: bfloat16[4]
            input I: int32[4]  input L: int64[4]  input U: uint8[4]  input B: bool[4]
            input alpha: float16  input S: float32[]
            output C[i: 4] = {expr}
        }}"
    );
    let shown = shown(&text);
    let (_, stage) = shown.split_once("C[i: 4]: ").expect("a stage");
    stage.trim_end().to_string()
}

#[test]
fn constants_adapt_to_typed_operands() {
    let cases = [
        ("F[i] * 2", "float32 = Mul(F[i], 2.0)"),
        ("0.1 + D[i]", "float64 = Add(0.1, D[i])"),
        ("F[i] * 0.1", "float32 = Mul(F[i], 0.10000000149011612)"),
        ("I[i] + (1 + 2) * 3", "int32 = Add(I[i], 9)"),
        ("U[i] & 0xff", "uint8 = BitAnd(U[i], 255)"),
        ("max(F[i], 0)", "float32 = Max(F[i], 0.0)"),
        ("F[i] > 0", "bool = Gt(F[i], 0.0)"),
        ("i", "int64 = int64(i)"),
        ("3", "int64 = 3"),
        ("1.0 / 3", "float32 = 0.3333333432674408"),
        ("i * 2 + n", "int64 = int64(Add(Mul(i, 2), n))"),
        ("I[i] // 0", "int32 = FloorDiv(I[i], 0)"),
        ("7 // -2 + 7 % -2", "int64 = -5"),
        ("1 << 65", "int64 = 2"),
        ("~5", "int64 = -6"),
        ("B[i] and true", "bool = B[i]"),
        ("B[i] == true", "bool = Eq(B[i], 1)"),
        ("F[i] + eps", "float32 = Add(F[i], 0.10000000149011612)"),
        ("0xffffffffffffffff as uint64", "uint64 = 18446744073709551615"),
        ("clamp(I[i], 0, 3)", "int32 = Min(Max(I[i], 0), 3)"),
        ("round(2.5) + floor(-0.5)", "float32 = 1.0"),
        ("abs(-3) + popcount(7)", "int64 = 6"),
        ("if 1 < 2 then i else 0", "int64 = int64(i)"),
        ("sqrt(2.0)", "float32 = Sqrt(2.0)"),
    ];
    for (expr, expected) in cases {
        assert_eq!(element(expr), expected, "{expr}");
    }
}

#[test]
fn halves_are_computed_in_float32() {
    let cases = [
        ("H[i]", "float16 = float32(H[i])"),
        (
            "H[i] * H[i] + 0.1",
            "float16 = Add(Mul(float32(H[i]), float32(H[i])), 0.10000000149011612)",
        ),
        ("(H[i] + 1) as float32", "float32 = Add(float32(H[i]), 1.0)"),
        ("F[i] as float16", "float16 = float32(float16(F[i]))"),
        ("H[i] as float16", "float16 = float32(H[i])"),
        ("(H[i] * H[i]) as T", "float16 = float32(float16(Mul(float32(H[i]), float32(H[i]))))"),
        (
            "H[i] as bfloat16 + G[i]",
            "bfloat16 = Add(float32(bfloat16(float32(H[i]))), float32(G[i]))",
        ),
        ("H[i] as int8", "int8 = int8(float32(H[i]))"),
        ("0.1 as bfloat16", "bfloat16 = 0.10009765625"),
        ("alpha * H[i]", "float16 = Mul(alpha, float32(H[i]))"),
        ("exp(H[i])", "float16 = exp(float32(H[i]))"),
        ("H[i] < 1", "bool = Lt(float32(H[i]), 1.0)"),
        ("max_value(T)", "float16 = 65504.0"),
    ];
    for (expr, expected) in cases {
        assert_eq!(element(expr), expected, "{expr}");
    }
}

#[test]
fn elaborates_operations_and_functions() {
    let cases = [
        ("F[I[i]]", "float32 = F[index(I[i])]"),
        ("F[(i as int64 + 0)]", "float32 = F[index(Add(int64(i), 0))]"),
        ("F[i as int64]", "float32 = F[i]"),
        ("F[U[i] % 4]", "float32 = F[index(FloorMod(U[i], 4))]"),
        ("S[] + F[0]", "float32 = Add(S[], F[0])"),
        ("i as float32 * F[i]", "float32 = Mul(float32(i), F[i])"),
        ("-1 as uint8", "uint8 = 255"),
        ("300 as uint8", "uint8 = 44"),
        ("-1.5 as int8", "int8 = -1"),
        ("1e30 as int8", "int8 = 127"),
        ("1e39 as float32", "float32 = inf"),
        ("0.5 as bool", "bool = 1"),
        ("true as float32", "float32 = 1.0"),
        ("-inf(float32)", "float32 = -inf"),
        ("min_value(int8)", "int8 = -128"),
        ("fma(F[i], 2, F[i])", "float32 = fma(F[i], 2.0, F[i])"),
        ("pow(F[i], 2)", "float32 = pow(F[i], 2.0)"),
        ("is_nan(H[i])", "bool = IsNan(float32(H[i]))"),
        ("popcount(I[i])", "int32 = Popcount(I[i])"),
        ("abs(I[i]) >> 1", "int32 = Shr(Abs(I[i]), 1)"),
        ("any(B[i], i < 2, n > i)", "bool = Or(Or(B[i], Lt(i, 2)), Gt(n, i))"),
        ("all(B[i])", "bool = B[i]"),
        ("any(1 < 2, B[i])", "bool = 1"),
        ("not B[i] or i == 3", "bool = Or(Not(B[i]), Eq(i, 3))"),
        ("if i >= 1 then F[i - 1] else 0", "float32 = if(Ge(i, 1), F[Sub(i, 1)], 0.0)"),
        ("select(B[i], 1.0, F[i])", "float32 = select(B[i], 1.0, F[i])"),
        ("select(1 < 2, I[i], 7)", "int32 = select(1, I[i], 7)"),
        ("if B[i] then 1 else 0", "int64 = int64(if(B[i], 1, 0))"),
        ("~U[i] | 1", "uint8 = BitOr(BitNot(U[i]), 1)"),
        ("B[i] ^ B[0]", "bool = BitXor(B[i], B[0])"),
        ("if false then F[i] else F[0]", "float32 = F[0]"),
    ];
    for (expr, expected) in cases {
        assert_eq!(element(expr), expected, "{expr}");
    }
}

#[test]
fn checks_explicit_types() {
    let text = "kernel k(n = 4) {
        input A: float32[n]
        reduce k: 0..n
        output B[i: n]: float64 = 0.1
        output C[i: n]: int64 = i
        output D[i: n]: uint8 = 255
        output (I: uint16, V)[] = argmin((k, A[k]), axis=k)
        output (J, W: float32)[] = argmax((k, A[k]), axis=k, init=(0, 1))
    }";
    assert_eq!(
        shown(text),
        "B[i: 4]: float64 = 0.1\n\
         C[i: 4]: int64 = int64(i)\n\
         D[i: 4]: uint8 = 255\n\
         I[]: uint16, float32 = argmin(uint16(k), A[k]) over k: 0 + 4 from 65535, inf\n\
         J[]: int64, float32 = argmax(int64(k), A[k]) over k: 0 + 4 from 0, 1.0\n"
    );
}

#[test]
fn elaborates_reductions() {
    let text = "
    reducer product(a, b) = a * b identity 1
    reducer best((ai, av), (bi, bv)) =
        (if av > bv or (av == bv and ai < bi) then ai else bi, max(av, bv))
        identity (max_value, -inf)
    kernel k(n: var) reassociate {
        input A: float32[n, 8]
        input H: float16[8]
        input B: bool[8]
        input bias: float32[n]
        reduce k: 1..n, l: 0..8, m: n // 2..n
        output C1[i: n] = sum(A[k, l], axis=[k, l], where=k != i and l < 4, init=bias[i])
        output C2[] = product(A[m, 0], axis=m)
        output C3[] = max(H[l], axis=l, where=true)
        output C4[] = all(B[l], axis=l, where=false)
        output C5[] = min(l, axis=l)
        output (C6, C7)[] = best((l, A[0, l]), axis=l, reassociate)
        output C8[] = sum(1, axis=l)
    }";
    assert_eq!(
        shown(text),
        "C1[i: n]: float32 = sum(A[k, l]) over k: 1 + Sub(n, 1), l: 0 + 8 from bias[i] \
         if And(Ne(k, i), Lt(l, 4)) reassociate\n\
         C2[]: float32 = product(A[m, 0]) over m: FloorDiv(n, 2) + Sub(n, FloorDiv(n, 2)) from 1.0 \
         reassociate\n\
         C3[]: float16 = max(float32(H[l])) over l: 0 + 8 from -inf reassociate\n\
         C4[]: bool = all(B[l]) over l: 0 + 8 from 1 if 0 reassociate\n\
         C5[]: int64 = min(int64(l)) over l: 0 + 8 from 9223372036854775807 reassociate\n\
         C6[]: int64, float32 = best(int64(l), A[0, l]) over l: 0 + 8 \
         from 9223372036854775807, -inf reassociate\n\
         C8[]: int64 = sum(1) over l: 0 + 8 from 0 reassociate\n"
    );
}

#[test]
fn builds_combiners() {
    let text = "reducer product(a, b) = a * b identity 1
    kernel k(n = 4) {
        input A: float32[n]
        reduce k: 0..n
        output (I, V)[] = argmax((k, A[k]), axis=k)
        output P[] = product(A[k], axis=k)
    }";
    let graphs = graphs(text, &[]).unwrap();
    let combiner = |stage: usize| match &graphs[0].stages[stage].body {
        Body::Reduce(reduction) => reduction.combiner.clone(),
        Body::Map(_) | Body::Sort(_) => panic!("a reduction"),
    };
    let first = combiner(0);
    let takes = "Or(Gt(bv, av), And(Eq(ai, -1), Eq(bv, av)))";
    assert_eq!(show(&first.result[0]), format!("select({takes}, bi, ai)"));
    assert_eq!(show(&first.result[1]), format!("select({takes}, bv, av)"));
    assert_eq!(show(&combiner(1).result[0]), "Mul(a, b)");
}

#[test]
fn expands_operators() {
    let text = "
    kernel pad(n, m, T: dtype, p = 0, val: real = 0.0) {
        input X: T[n, m]
        assume n > 0
        output Y[i: n + 2*p, j: m] = if i < p or i >= n + p then val as T else X[i - p, j]
    }
    kernel scale(n, m, T: dtype = float32) {
        input X: T[n, m]
        input by: T
        compute twice[i: n, j: m] = X[i, j] * 2
        output Y[i: n, j: m] = twice[i, j] * by
    }
    kernel both(n, m) {
        input X: float32[n, m]
        let P = pad(X, p=1)
        let Q = scale(P, 0.5)
        output Z[x: n + 2, y: m] = Q[x, y]
    }
    kernel k(a: var) {
        input A: float32[a, 8]
        input alpha: float32
        let S = scale(A, alpha)
        let B = both(S)
        let C = B
        output R[i: a] = C[i + 1, 0]
        output H[i: 4] = 1
    }";
    assert_eq!(
        shown(text),
        "alpha: float32\n\
         assume Gt(a, 0)\n\
         S.twice[i: a, j: 8]: float32 = Mul(A[i, j], 2.0)\n\
         S[i: a, j: 8]: float32 = Mul(S.twice[i, j], alpha)\n\
         B.P[i: Add(a, 2), j: 8]: float32 = \
         if(Or(Lt(i, 1), Ge(i, Add(a, 1))), 0.0, S[Sub(i, 1), j])\n\
         B.Q.twice[i: Add(a, 2), j: 8]: float32 = Mul(B.P[i, j], 2.0)\n\
         B.Q[i: Add(a, 2), j: 8]: float32 = Mul(B.Q.twice[i, j], 0.5)\n\
         B[x: Add(a, 2), y: 8]: float32 = B.Q[x, y]\n\
         R[i: a]: float32 = B[Add(i, 1), 0]\n\
         H[i: 4]: int64 = 1\n"
    );
}

#[test]
fn decides_compile_time_choices_and_drops_unneeded_stages() {
    let text = "def half(x) = x // 2
    kernel k(n = 8, relu: bool = true, eps: real = 1e-5, T: dtype = float64) {
        input A: T[n]
        let m = half(n)
        let Q = A
        if relu and m == 4 {
            compute P[i: n] = max(Q[i], 0)
        } else if eps > 0.0 {
            compute P[i: nonsense] = Q[i] + true
        } else {
            let P = Q
        }
        compute dropped[i: n] = P[i] + 1
        assume n > 3
        assert m < n, \"no\"
        output C[i: m] = P[i * 2]
        output D[i: m] = C[i]
    }";
    assert_eq!(
        shown(text),
        "P[i: 8]: float64 = Max(A[i], 0.0)\nC[i: 4]: float64 = P[Mul(i, 2)]\n\
         D[i: 4]: float64 = C[i]\n"
    );
    let graph = graphs(text, &[]).unwrap().remove(0);
    let params: Vec<String> = graph.params.iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(params, ["n=8", "relu=true", "eps=1e-5", "T=float64"]);
    let other = [define("relu", "false"), define("eps", "-0.5"), define("T", "float32")];
    let graph = graphs(text, &other).unwrap().remove(0);
    assert_eq!(show_graph(&graph), "C[i: 4]: float32 = A[Mul(i, 2)]\nD[i: 4]: float32 = C[i]\n");
}

#[test]
fn applies_command_line_defines() {
    let text = "kernel a(n, m = n * 2, p: var) { output C[i: n, j: m, k: p] = i }
    kernel b(T: dtype, n = 1) { output C[i: n] = 1 as T }";
    let program = load(&[("a.te", text)]);
    let names = |defines: &Defines| -> Vec<bool> {
        kernel_names(&program, defines).into_iter().map(|(_, complete)| complete).collect()
    };
    assert_eq!(names(&[]), [false, false]);
    assert_eq!(names(&[define("n", "3")]), [true, false]);
    let defines =
        [(Some("a".into()), "n".into(), "5".into()), define("n", "0x10"), define("p", "7")];
    let shown: Vec<String> =
        elaborate(&program, None, &defines).unwrap().iter().map(show_graph).collect();
    assert_eq!(shown, ["C[i: 5, j: 10, k: 7]: int64 = int64(i)\n"]);
    let wrong = [define("n", "a"), define("q", "1"), define("m.x", "1"), define("T", "float")];
    assert_eq!(
        errors_of(&[("a.te", text)], &wrong),
        [
            "E0217:0: -D: no kernel has a parameter `q`",
            "E0217:0: -D: no kernel has a parameter `m.x`\
            ",
            "E0220:0: -D n=a: `a` is not an integer of 64 bits",
            "E0220:0: -D T=float: `float` is not a data type",
        ]
    );
    let asked = elaborate(&program, Some(&["a".into(), "c".into()]), &[]).unwrap_err();
    let asked: Vec<String> = asked.iter().map(Diag::to_string).collect();
    assert_eq!(
        asked,
        ["E0218: unknown kernel `c`", "E0219: the parameter `n` of the kernel `a` has no value",]
    );
}

#[test]
fn resolves_names_of_several_files() {
    let main = "import \"x.te\"\nimport \"sub/y.te\"\ndef own(a) = a\n\
        kernel k(n = 4) { output C[i: n] = f(i) + hidden(i) }";
    let x = "def f(a) = g(a) + 1\ndef g(a) = a\ndef own(a) = a";
    let y = "import \"z.te\"\ndef f(a) = hidden(a)";
    let z = "def hidden(a) = a";
    let files = [("a.te", main), ("x.te", x), ("sub/y.te", y), ("sub/z.te", z)];
    assert_eq!(
        errors_of(&files, &[]),
        [
            "E0202:2: `f` is declared in two files [import the file under a name, `import \"sub/y.te\" \
             as other`, and write `other.f(…)`]",
            "E0202:3: `own` is declared in two files [import the file under a name, `import \"x.te\" \
             as other`, and write `other.own(…)`]",
            "E0201:4: unknown function `hidden` [another file declares it: `import \"sub/z.te\"`]",
        ]
    );
    let files = [
        ("a.te", "import \"x.te\"\nimport \"./x.te\"\nkernel k(n = 4) { output C[i: n] = f(i) }"),
        ("x.te", x),
    ];
    assert_eq!(errors_of(&files, &[]), Vec::<String>::new());
}

#[test]
fn loads_have_source_locations() {
    let text = "kernel k(n = 4) { input A: float32[n] \
                output C[i: n] = A[i] + (if i < 2 then A[0] else A[1]) }";
    let graph = graphs(text, &[]).unwrap().remove(0);
    let spans = &graph.stages[0].load_spans;
    let texts: Vec<&str> =
        spans.iter().map(|(_, s)| &text[s.start as usize..s.end as usize]).collect();
    assert_eq!(texts, ["A[i]", "A[0]", "A[1]"]);
}

#[test]
fn limits_large_programs() {
    let sum = "A[i] + ".repeat(100_000);
    let text = format!("kernel k(n = 4) {{ input A: float32[n] output C[i: n] = {sum} 1.0 }}");
    assert_eq!(deep(|| errors(&text)), Vec::<String>::new());
    // A sum of constants, and a chain of `def`s that is as deep.
    let mut text = String::from("def f0(x) = x\n");
    for i in 1..20_000 {
        text += &format!("def f{i}(x) = f{}(x) + 1\n", i - 1);
    }
    text += "kernel k(n = 4) { output C[i: n] = f19999(i) }";
    assert_eq!(deep(|| errors(&text)), Vec::<String>::new());
}

#[test]
fn refuses_operators_that_grow_exponentially() {
    let mut text = String::from("kernel k0(n) { input X: float32[n] output Y[i: n] = X[i] }\n");
    for i in 1..40 {
        let inner = format!("k{}", i - 1);
        text += &format!(
            "kernel k{i}(n) {{ input X: float32[n] let A = {inner}(X) let B = {inner}(A) \
             output Y[i: n] = B[i] }}\n"
        );
    }
    text +=
        "kernel main_kernel(n = 4) { input X: float32[n] let Z = k39(X) output Y[i: n] = Z[i] }";
    let errors = deep(|| errors(&text));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("E0213:41"), "{errors:?}");
}
