//! Refused indices and checks on entry, and that both are correct: the interpreter traps
//! exactly where a check was left out that could refuse the values.

use crate::diag::Diag;
use crate::ir::interp::{Tensor, Trap, Value, run};
use crate::ir::print::print_expr;
use crate::ir::simplify::simplify_kernel;
use crate::ir::{DType, Kernel, Param, Stmt};
use crate::lang::{Loader, load_program};
use crate::lower::build_loops::build_plain_loops;
use crate::target::Target;
use crate::te::{Graph, elaborate};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

struct Memory<'a>(&'a str);

impl Loader for Memory<'_> {
    fn read(&self, _path: &str) -> Result<Vec<u8>, String> {
        Ok(self.0.as_bytes().to_vec())
    }
}

fn graph(text: &str) -> Result<Graph, Vec<Diag>> {
    let (program, errors) = load_program("a.te", &Memory(text));
    assert!(errors.is_empty(), "{errors:?} in {text}");
    let mut graphs = elaborate(&program, None, &[])?;
    Ok(graphs.remove(0))
}

/// Code and message of each error.
fn errors(text: &str) -> Vec<String> {
    let errors = graph(text).err().unwrap_or_default();
    errors.iter().map(|diag| diag.to_string()).collect()
}

/// Returns the checks of indices, one per line; those of extents, sizes and `assume`s left out.
fn index_checks(text: &str) -> Vec<String> {
    let graph = graph(text).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let mut lines = Vec::new();
    for check in &graph.checks {
        let mut line = String::new();
        show_check(check, &mut line);
        let of_shape = ["negative", "memory", "argument", "assume"];
        if !of_shape.iter().any(|word| line.contains(word)) {
            lines.push(line);
        }
    }
    lines
}

fn show_check(stmt: &Stmt, out: &mut String) {
    match stmt {
        Stmt::For { var, extent, body, .. } => {
            *out += &format!("for {} in {}: ", var.name(), print_expr(extent));
            show_check(body, out);
        }
        Stmt::If { cond, then, .. } => {
            *out += &format!("if {}: ", print_expr(cond));
            show_check(then, out);
        }
        Stmt::Assert { cond, message, .. } => *out += &format!("{} | {message}", print_expr(cond)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn decides_constant_indices() {
    let a =
        |index: &str| format!("kernel f() {{ input A: float32[100] output B[i: 100] = {index} }}");
    let shown = |index: &str| errors(&a(index));
    assert_eq!(
        shown("A[i + 1]"),
        ["E0260: index 0 of `A` is out of bounds: `i + 1` is 100 at i = 99, but the extent is 100"]
    );
    assert_eq!(
        shown("A[i - 1]"),
        ["E0260: index 0 of `A` is out of bounds: `i - 1` is -1 at i = 0, but the extent is 100"]
    );
    assert_eq!(
        shown("A[100]"),
        ["E0260: index 0 of `A` is out of bounds: 100, but the extent is 100"]
    );
    assert!(shown("if i > 0 then A[i - 1] else 0.0").is_empty());
    assert!(shown("if i < 99 and A[i + 1] > 0.0 then 1.0 else 0.0").is_empty());
    assert!(shown("if i == 99 or A[i + 1] > 0.0 then 1.0 else 0.0").is_empty());
    assert_eq!(shown("select(i > 0, A[i - 1], 0.0)").len(), 1);
    assert!(shown("A[(i*i + 37) % 100]").is_empty());
    assert!(shown("A[i*i // 100]").is_empty());
    assert!(shown("A[99 - i]").is_empty());
    // Only points decide these: the prover knows nothing of squares modulo 8.
    assert!(shown("if (i*i) % 8 == 3 then A[i + 50] else 0.0").is_empty());
    assert_eq!(
        shown("if (i*i) % 8 == 1 then A[i + 50] else 0.0"),
        [
            "E0260: index 0 of `A` is out of bounds: `i + 50` is 149 at i = 99, but the extent is 100"
        ]
    );
    assert!(errors("kernel f() { input A: float32[4] output B[i: 0] = A[i + 9] }").is_empty());
}

#[test]
fn uses_the_condition_of_a_reduction() {
    let text = |condition: &str| {
        format!(
            "kernel f() {{ input A: float32[10] reduce k: 0..20
            output B[i: 3] = sum(A[k - i], axis=k{condition}) }}"
        )
    };
    assert_eq!(errors(&text("")).len(), 1);
    assert!(errors(&text(", where=k >= i and k < 10")).is_empty());
}

#[test]
fn checks_symbolic_indices_once() {
    let checks =
        index_checks("kernel f(n: var, m: var) { input A: float32[n] output B[i: m] = A[i + 3] }");
    assert_eq!(
        checks,
        ["if (0 < m): ((m + 2) < n) | index 0 of `A` runs to {0}, but the extent is {1}"]
    );
    let none = |text: &str| assert_eq!(index_checks(text), [""; 0], "{text}");
    none("kernel f(n: var, m: var) { input A: float32[n, m] output B[j: m, i: n] = A[i, j] }");
    none("kernel f(n: var) { input A: float32[n] output B[i: n] = A[n - 1 - i] }");
    none("kernel f(n: var, m: var) { input A: float32[n, m] output B[i: n*m] = A[i // m, i % m] }");
    none(
        "kernel f(n: var, m: var, p: var, q: var) { assume p*q == n*m input A: float32[n, m]
        output B[i: p, j: q] = A[(i*q + j) // m, (i*q + j) % m] }",
    );
    none(
        "kernel f(n: var, k: var, p = 2, s = 3) { input A: float32[n] input K: float32[k] reduce r: 0..k
        compute P[i: n + 2*p] = if i < p or i >= n + p then 0.0 else A[i - p]
        output C[i: (n + 2*p - k) // s + 1] = sum(P[i*s + r] * K[r], axis=r) }",
    );
}

#[test]
fn needs_no_loop_for_borders_told_by_equality() {
    let text = "kernel f(n: var, m: var) { input A: float32[n, m] output B[i: n, j: m] =
        if any(i == 0, j == 0, i == n - 1, j == m - 1) then A[i, j]
        else A[i - 1, j] + A[i + 1, j] + A[i, j - 1] + A[i, j + 1] }";
    assert_eq!(index_checks(text), [""; 0]);
    // `n` is no extent of a tensor, but it has 64 bits.
    let text = "kernel f(n: var) { reduce k: 0..n output B[i: 4] =
        sum(1 as int64, axis=k, where=i - k == 2) }";
    assert_eq!(index_checks(text), [""; 0]);
}

#[test]
fn scans_guarded_symbolic_indices() {
    let checks = index_checks(
        "kernel f(n: var, m: var) { input A: float32[n] output B[i: m, j: 2] =
        if i % 3 == 0 then A[i] else 0.0 }",
    );
    let text = "for i in m: if (floormod(i, 3) == 0): ((0 <= i) && (i < n)) | \
        index 0 of `A` is {0}, but the extent is {1}";
    assert_eq!(checks, [text]);
}

#[test]
fn refuses_symbolic_indices_outside() {
    assert_eq!(
        errors("kernel f(n: var) { input A: float32[n] output B[i: n] = A[i + 1] }"),
        [
            "E0260: index 0 of `A` is out of bounds: `i + 1` is `n` at i = n - 1, but the extent is `n`"
        ]
    );
}

#[test]
fn scans_indices_from_inputs() {
    let gather = |index: &str| {
        index_checks(&format!(
            "kernel f(n: var, m: var) {{ input A: float32[n] input I: int64[m] output B[i: m] = {index} }}"
        ))
    };
    assert_eq!(
        gather("A[I[i]]"),
        [
            "for i in m: ((0 <= index(I[i])) && (index(I[i]) < n)) | index 0 of `A` is {0}, but the extent is {1}"
        ]
    );
    let nonempty = "(0 < n) | index 0 of `A` has no valid value: the extent is {0}";
    assert_eq!(gather("A[I[i] % (n as int64)]"), [format!("if (0 < m): {nonempty}")]);
    let clamped = "A[clamp(I[i], 0, (n - 1) as int64)]";
    assert_eq!(gather(clamped), [format!("if (0 < m): {nonempty}")]);
    assert!(gather(&format!("if n > 0 then {clamped} else 0.0")).is_empty());
}

#[test]
fn refuses_unclamped_indices_from_stages() {
    let text = |index: &str| {
        format!(
            "kernel f() {{ input A: float32[10] input I: int32[4] compute S[i: 4] = I[i] + 1
            output B[i: 4] = A[{index}] }}"
        )
    };
    assert_eq!(
        errors(&text("S[i]")),
        ["E0261: index 0 of `A` is computed by stage `S` and may be out of bounds: `S[i]`"]
    );
    let diag = graph(&text("S[i]")).expect_err("an error").remove(0);
    assert_eq!(diag.help.as_deref(), Some("write `clamp(S[i], 0, 9)`"));
    assert!(errors(&text("clamp(S[i], 0, 9)")).is_empty());
    assert!(errors(&text("S[i] % 10")).is_empty());
    assert!(errors(&text("S[i] & 7")).is_empty());
}

#[test]
fn definitions_of_stages_keep_indices_inside() {
    let errors = |stages: &str, index: &str| {
        errors(&format!(
            "kernel f(n: var, m: var) {{ assume m >= 1 input A: float32[10] input B: float32[m]
            input I: int32[4] input X: float32[m] reduce k: 0..m, r: 0..10, z: 0..n {stages}
            output C[i: 4] = {index} }}"
        ))
    };
    let refused = |stages: &str, index: &str, stage: &str| {
        let found = errors(stages, index);
        assert_eq!(found.len(), 1, "{stages}: {found:?}");
        let text = format!("is computed by stage `{stage}` and may be out of bounds");
        assert!(found[0].contains(&text), "{found:?}");
    };
    for inside in ["I[i] & 7", "I[i] % 10", "clamp(I[i], 0, 9)", "(I[i] & 1) + 8"] {
        assert!(errors(&format!("compute S[i: 4] = {inside}"), "A[S[i]]").is_empty(), "{inside}");
    }
    let row = "compute S[i: 4] = I[i] & 3";
    assert!(errors(row, "A[2*S[i] + 3]").is_empty());
    refused(row, "A[2*S[i] + 4]", "S");
    assert!(errors(&format!("{row} compute T[i: 4] = S[i] + 6"), "A[T[i]]").is_empty());
    refused(&format!("{row} compute T[i: 4] = S[i] + 7"), "A[T[i]]", "T");
    let last = "compute S[i: 4] = clamp(I[i] as int64, 0, (m - 1) as int64)";
    assert!(errors(last, "B[S[i]]").is_empty());
    refused(last, "A[S[i]]", "S");

    let sort = "compute S[p: m] = argsort(X[k], axis=k, at=p)";
    assert!(errors(sort, "A[i]").is_empty());
    assert!(errors(&format!("{sort} compute T[p: m] = B[S[p]]"), "A[i]").is_empty());
    // -1 where there is no greatest element.
    let position = "compute (S, V)[i: 4] = argmax((k, X[k]), axis=k)";
    refused(position, "B[S[i]]", "S");
    assert!(errors(position, "B[max(S[i], 0)]").is_empty());
    // The start value need not be a term, and the axis may be empty.
    let start = |init| format!("compute S[i: 4] = max(z, axis=z, init={init}, where=z < 10)");
    assert!(errors(&start(0), "A[S[i]]").is_empty());
    refused(&start(12), "A[S[i]]", "S");
    refused("compute S[i: 4] = max(k, axis=k, init=0, where=k < 10)", "A[S[i] - 1]", "S");
    refused("compute S[i: 4] = sum(r, axis=r)", "A[S[i]]", "S");
    // What holds under a condition of one stage does not hold of another one over the same axis.
    let sums = "compute S[i: 4] = max(r, axis=r, init=0) compute T[i: 4] = sum(
        if r < 5 then A[S[i] * 2] else 0.0, axis=r)";
    refused(sums, "A[i]", "S");
}

#[test]
fn ignores_conditions_that_stages_compute() {
    let diags = graph(
        "kernel f() { input A: float32[10] compute S[i: 10] = A[i] * 2.0
        output B[i: 10] = if S[i] > 0.0 then A[i + 1] else 0.0 }",
    );
    let diag = diags.expect_err("an error").remove(0);
    assert_eq!(
        diag.to_string(),
        "E0261: index 0 of `A` may be out of bounds: `i + 1` is 10 at i = 9, but the extent is 10"
    );
    assert!(diag.notes[0].contains("`S[i] > 0.0`"), "{diag:?}");
}

#[test]
fn index_arithmetic_fits_64_bits() {
    let text = "kernel f() { output B[i: 8] = i * 4611686018427387904 }";
    assert_eq!(errors(text), ["E0262: `i*4611686018427387904` does not fit 64 bits at i = 7"]);
    assert!(errors("kernel f() { output B[i: 2] = i * 4611686018427387904 }").is_empty());
    let checks = index_checks("kernel f(n: var) { output B[i: 4] = (i + n) * n }");
    assert!(
        checks.iter().any(|check| check.contains("`(i + n)*n` does not fit 64 bits")),
        "{checks:?}"
    );
}

#[test]
fn shape_checks_have_readable_texts() {
    let text = "kernel f(n: var, k: var, p = 1) { assume k % 2 == 1
        input A: float32[n] input K: float32[k]
        output C[i: n - k + 2*p] = 0.0 }";
    let graph = graph(text).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let mut lines = Vec::new();
    for check in &graph.checks {
        let mut line = String::new();
        show_check(check, &mut line);
        lines.push(line.split_once(" | ").expect("an assert").1.to_string());
    }
    assert_eq!(
        lines,
        [
            "extent `n` is negative: {0}",
            "extent `k` is negative: {0}",
            "extent `n - k + 2` is negative: {0}",
            "`assume k % 2 == 1` does not hold: k is {0}",
            "`A` would be larger than memory can be: float32[n] with n = {0}",
            "`K` would be larger than memory can be: float32[k] with k = {0}",
            "`C` would be larger than memory can be: float32[n - k + 2] with n - k + 2 = {0}",
            "argument 3 `C`: extent of dimension 0 must be `n - k + 2` = {0}, got {1}",
        ]
    );
    assert_eq!((graph.dims[0].param, graph.dims[0].dim), (2, 0));
}

/// Runs a kernel whose run-time integers have these values, tensors filled with small integers.
fn run_with(
    kernel: &Kernel,
    sizes: &[(&str, i64)],
    random: &mut ChaCha8Rng,
) -> Result<Vec<Value>, Trap> {
    let values: crate::ir::arith::tests::Assignment = kernel
        .params
        .iter()
        .filter_map(|param| match param {
            Param::Runtime { var, .. } => {
                let value = sizes.iter().find(|(name, _)| *name == var.name())?.1;
                Some((var.clone(), value))
            }
            _ => None,
        })
        .collect();
    let mut args = Vec::new();
    for param in &kernel.params {
        args.push(match param {
            Param::Runtime { var, .. } => {
                Value::Index(values.iter().find(|(known, _)| known == var).expect("a value").1)
            }
            Param::Scalar { .. } => Value::Int(random.random_range(-3..9)),
            Param::Tensor { buffer, .. } => {
                let extents = buffer.shape.iter();
                let extent = |e| crate::ir::arith::tests::evaluate(e, &values).unwrap_or(0).max(0);
                let shape: Vec<i64> = extents.map(extent).collect();
                let count = shape.iter().product::<i64>() as usize;
                let mut data = Vec::new();
                for _ in 0..count {
                    match buffer.dtype {
                        DType::Int32 => {
                            data.extend(random.random_range(-3..9i32).to_le_bytes());
                        }
                        _ => data.extend(1.0f32.to_le_bytes()),
                    }
                }
                Value::Tensor(Tensor { dtype: buffer.dtype, shape, data })
            }
        });
    }
    run(kernel, &mut args).map(|()| args)
}

fn random_index(random: &mut ChaCha8Rng, depth: u32) -> String {
    let leaf = ["i", "j", "n", "m", "1", "2", "3"];
    if depth == 0 {
        return leaf[random.random_range(0..leaf.len())].to_string();
    }
    let (a, b) = (random_index(random, depth - 1), random_index(random, depth - 1));
    match random.random_range(0..9) {
        0 => format!("({a} + {b})"),
        1 => format!("({a} - {b})"),
        2 => format!("({a} * {b})"),
        3 => format!("({a} // {b})"),
        4 => format!("({a} % {b})"),
        5 => format!("min({a}, {b})"),
        6 => format!("max({a}, {b})"),
        7 => format!("clamp({a}, 0, {b})"),
        _ => leaf[random.random_range(0..leaf.len())].to_string(),
    }
}

fn random_condition(random: &mut ChaCha8Rng) -> String {
    let (a, b) = (random_index(random, 1), random_index(random, 1));
    let op = ["<", "<=", ">", ">=", "==", "!="][random.random_range(0..6)];
    match random.random_range(0..5) {
        // An end of an axis.
        4 => {
            let axis = ["i", "j"][random.random_range(0..2)];
            let end = ["0", "n - 1", "m - 1", "6", "n + 1", "n*m - 1"][random.random_range(0..6)];
            format!("{axis} {op} {end}")
        }
        0 => format!("{a} {op} {b}"),
        1 => format!("({a} {op} {b} and {})", random_condition(random)),
        2 => format!("({a} {op} {b} or {})", random_condition(random)),
        _ => format!("not ({a} {op} {b})"),
    }
}

fn random_kernel(random: &mut ChaCha8Rng) -> String {
    let extents = ["n", "m", "7", "n + 2", "n*m", "n - m", "max(n, 1)"];
    let mut extent = || extents[random.random_range(0..extents.len())];
    let (first, second, of_a) = (extent(), extent(), extent());
    let index = match random.random_range(0..6) {
        0 => "I[i % 5]".to_string(),
        1 => format!("clamp(I[i % 5], 0, {} as int32)", random_index(random, 1)),
        2 => format!("I[i % 5] % ({} as int32)", random_index(random, 1)),
        _ => random_index(random, 2),
    };
    let load = format!("A[{index}]");
    let value = match random.random_range(0..4) {
        0 => load,
        1 => format!("if {} then 0.0 else {load}", random_condition(random)),
        2 => format!("if I[j % 5] > 0 then {load} else 0.0"),
        _ => format!("if {} then {load} else 0.0", random_condition(random)),
    };
    format!(
        "kernel f(n: var, m: var) {{ input A: float32[{of_a}] input I: int32[5]
        output B[i: {first}, j: {second}] = {value} }}"
    )
}

#[test]
fn checks_agree_with_the_interpreter() {
    let seeds = std::env::var("SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(600);
    let (mut passed, mut failed, mut refused) = (0, 0, 0);
    for seed in 0..seeds {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let text = random_kernel(&mut random);
        let graph = match graph(&text) {
            Ok(graph) => graph,
            Err(_) => {
                refused += 1;
                continue;
            }
        };
        let kernel = build_plain_loops(&graph, &Target::native()).expect("it is lowered");
        for _ in 0..6 {
            let (n, m) = (random.random_range(0..7), random.random_range(0..7));
            let sizes = [("n", n), ("m", m)];
            let mut data = random.clone();
            match run_with(&kernel, &sizes, &mut data.clone()) {
                Ok(results) => {
                    passed += 1;
                    let simple = run_with(&simplify_kernel(kernel.clone()), &sizes, &mut data);
                    assert_eq!(
                        simple,
                        Ok(results),
                        "seed {seed}: simplified, with {sizes:?}\n{text}"
                    );
                }
                Err(Trap::Check(message)) if message.contains("index") => {
                    failed += 1;
                    let unchecked = Kernel { checks: Stmt::nothing(), ..kernel.clone() };
                    let trap = run_with(&unchecked, &sizes, &mut data);
                    let needless = format!("seed {seed}: {message} with {sizes:?}\n{text}");
                    assert!(trap.is_err(), "refused without need: {needless}");
                }
                Err(Trap::Check(_)) => {}
                Err(Trap::Memory(what) | Trap::Bug(what)) => {
                    panic!("seed {seed}: {what} with {sizes:?}\n{text}")
                }
            }
        }
    }
    assert!(passed > seeds / 2 && failed > seeds / 6 && refused > 0, "{passed} {failed} {refused}");
}
