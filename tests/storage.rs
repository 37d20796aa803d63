//! Directives about storage and loops, applied one by one: the results stay the same, bit for bit,
//! before and after every pass.

use tec::diag::{Diag, Span};
use tec::driver::{Options, PASSES};
use tec::ir::print::{Style, print_kernel};
use tec::ir::verify::verify_kernel;
use tec::ir::{DType, Kernel, interp};
use tec::lang::load_program;
use tec::lower::build_loops::{build_loops, build_plain_loops};
use tec::schedule::directives::{ArgKind, Argument, Call, DIRECTIVES, Value};
use tec::schedule::{Schedule, Tensor, infer_bounds, print_tree};
use tec::target::Target;
use tec::te::Graph;

struct Text(String);

impl tec::lang::Loader for Text {
    fn read(&self, _path: &str) -> Result<Vec<u8>, String> {
        Ok(self.0.as_bytes().to_vec())
    }
}

fn graph_of(text: &str) -> Graph {
    let (program, errors) = load_program("test.te", &Text(text.to_string()));
    assert!(errors.is_empty(), "{errors:?}");
    tec::te::elaborate(&program, None, &Vec::new()).unwrap().remove(0)
}

/// `S.split i 8`: the subject, the directive, its arguments; axes and names are looked up as the
/// language does.
fn apply(schedule: &mut Schedule, line: &str) -> tec::diag::Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (subject, name) = words[0].rsplit_once('.').unwrap();
    let subject = schedule.find(subject).unwrap();
    let directive = *DIRECTIVES.iter().find(|directive| directive.name == name).unwrap();
    let Tensor::Stage(id) = subject else { panic!("an input") };
    let mut at = id;
    let mut args: Vec<Option<Argument>> = Vec::new();
    for (param, word) in directive.params.iter().zip(&words[1..]) {
        let tensor = |schedule: &Schedule| match schedule.find(word).unwrap() {
            Tensor::Stage(id) => Value::Stage(id),
            Tensor::Input(at) => Value::Input(at),
        };
        let axis = |at| Value::Axis(at, schedule.stage(at).find_axis(word).unwrap());
        let value = match param.kind {
            ArgKind::Axis => axis(id),
            ArgKind::AxisOfStage => axis(at),
            ArgKind::Stage | ArgKind::Tensor => tensor(schedule),
            ArgKind::Int => Value::Int(word.parse().unwrap()),
            ArgKind::Word => Value::Word(word.to_string()),
            ArgKind::Bool => Value::Bool(*word == "true"),
            ArgKind::IntOrBool => match word.parse() {
                Ok(value) => Value::Int(value),
                Err(_) => Value::Bool(*word == "true"),
            },
            ArgKind::Axes => {
                let items = word.split(',').map(|name| Argument {
                    value: Value::Axis(id, schedule.stage(id).find_axis(name).unwrap()),
                    span: Span::default(),
                });
                Value::List(items.collect())
            }
            other => panic!("{other:?}"),
        };
        if let Value::Stage(stage) = value {
            at = stage;
        }
        args.push(Some(Argument { value, span: Span::default() }));
    }
    args.resize_with(directive.params.len(), || None);
    let span = Span::default();
    let call = Call { directive, subject, subject_span: span, span, args };
    call.apply(schedule).map(|_| ())
}

fn build(text: &str, lines: &[&str]) -> tec::diag::Result<Kernel> {
    let mut schedule = Schedule::new(graph_of(text), &Target::native());
    for line in lines {
        apply(&mut schedule, line)?;
    }
    build_loops(&infer_bounds(schedule)?)
}

fn refused(text: &str, lines: &[&str]) -> Diag {
    *build(text, lines).map(|kernel| print_kernel(&kernel, Style::Simple)).unwrap_err()
}

/// Runs a kernel without run-time integers on numbers that depend only on their position.
fn run(kernel: &Kernel) -> Vec<Vec<u8>> {
    let mut args: Vec<interp::Value> = Vec::new();
    for param in &kernel.params {
        let tec::ir::Param::Tensor { buffer, .. } = param else { panic!("a tensor") };
        let shape: Vec<i64> = buffer.shape.iter().map(|e| e.as_int().unwrap() as i64).collect();
        let len = shape.iter().product::<i64>() as usize;
        let number = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) as i32 % 1000;
        let data = (0..len).flat_map(|i| match buffer.dtype {
            DType::Float32 => (number(i) as f32 / 7.0).to_le_bytes(),
            DType::Int32 => number(i).to_le_bytes(),
            other => panic!("{other}"),
        });
        let data = data.collect();
        args.push(interp::Value::Tensor(interp::Tensor { dtype: buffer.dtype, shape, data }));
    }
    if let Err(trap) = interp::run(kernel, &mut args) {
        panic!("{trap:?}\n{}", print_kernel(kernel, Style::Full));
    }
    args.into_iter()
        .map(|arg| match arg {
            interp::Value::Tensor(tensor) => tensor.data,
            _ => panic!("a tensor"),
        })
        .collect()
}

/// Returns the loops of a schedule, after checking that every pass keeps the results of the default
/// schedule.
fn same(text: &str, lines: &[&str]) -> String {
    let plain = build_plain_loops(&graph_of(text), &Target::native()).unwrap();
    let expected = run(&plain);
    let kernel = match build(text, lines) {
        Ok(kernel) => kernel,
        Err(diag) => panic!("{diag:?}"),
    };
    let printed = print_kernel(&kernel, Style::Simple);
    verify_kernel(&kernel).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert!(run(&kernel) == expected, "{printed}");
    let options = Options::new(Target::native());
    let mut kernel = kernel;
    let mut readable = String::new();
    let passes = PASSES.iter().filter(|pass| pass.runs(&options.target, options.opt));
    for pass in passes.take_while(|pass| pass.name != "expand_math") {
        kernel = (pass.run)(kernel, &options.target).unwrap();
        let after = print_kernel(&kernel, Style::Full);
        verify_kernel(&kernel).unwrap_or_else(|e| panic!("{}: {e}\n{after}", pass.name));
        assert!(run(&kernel) == expected, "{}\n{after}", pass.name);
        if pass.name == "simplify" {
            readable = print_kernel(&kernel, Style::Simple);
        }
    }
    format!("{printed}----\n{readable}")
}

const TWO: &str = "kernel two(n = 20, m = 12) {
    input A: float32[n, m]
    compute S[i: n, j: m] = A[i, j] * 2.0
    output C[i: n, j: m] = S[i, j] + 1.0
}";

#[test]
fn strides_are_padded() {
    let text = same(TWO, &["S.storage_align i 8 1"]);
    assert!(text.contains("allocate S[float32 * 340]"), "{text}");
    assert!(text.contains("S[((i*17) + j)] = "), "{text}");
    let text = same(TWO, &["S.storage_align j 3 2", "S.storage_align i 8 0"]);
    assert!(text.contains("S[((i*24) + (j*2))] = "), "{text}");
    same(TWO, &["S.storage_align i 8 1", "S.compute_at C i", "C.split j 5"]);
    assert_eq!(refused(TWO, &["C.storage_align i 8 1"]).code, "E0371");
    assert_eq!(refused(TWO, &["S.split i 4", "S.storage_align i_o 8 1"]).code, "E0371");
    assert_eq!(refused(TWO, &["S.storage_align i 8 8"]).code, "E0370");
    assert_eq!(refused(TWO, &["S.storage_align i 0 0"]).code, "E0370");
    assert_eq!(refused(TWO, &["S.storage_align i 8 1", "S.compute_inline"]).code, "E0379");
}

const CHAIN: &str = "kernel chain(n = 20, m = 12) {
    input A: float32[n + 2, m]
    compute R[i: n + 2, j: m] = A[i, j] * 2.0
    compute S[i: n + 2, j: m] = R[i, j] + 3.0
    compute T[i: n, j: m] = S[i, j] + S[i + 2, j]
    reduce k: 0..m
    output C[i: n] = sum(T[i, k], axis=k)
}";

#[test]
fn the_next_iteration_is_computed_ahead() {
    let text = same(TWO, &["S.compute_at C i", "S.double_buffer"]);
    assert!(text.contains("if (likely((i < 19)))"), "{text}");
    for lines in [
        &["T.compute_at C i", "T.double_buffer"][..],
        &["C.split i 3", "T.compute_at C i_o", "T.double_buffer"],
        &["C.split k 5", "T.compute_at C k_o", "T.double_buffer", "T.storage_align i 4 3"],
        &["T.compute_at C i", "S.compute_at T i", "T.double_buffer", "S.double_buffer"],
        &["C.split i 3", "S.compute_at C i_o", "T.compute_at C i_i", "T.double_buffer"],
        &["C.split i 3", "S.compute_at C i_o", "S.double_buffer", "T.compute_at C i_i"],
        &[
            "C.split i 3",
            "R.compute_at C i_o",
            "R.double_buffer",
            "S.compute_at C i_i",
            "T.compute_at C i_i",
        ],
    ] {
        same(CHAIN, lines);
    }
    assert_eq!(refused(CHAIN, &["T.double_buffer"]).code, "E0372");
    let lines = &["C.parallel i", "T.compute_at C i", "T.double_buffer"];
    assert_eq!(refused(CHAIN, lines).code, "E0372");
    let lines = &["T.compute_at C i", "S.compute_at C i", "T.double_buffer"];
    let diag = refused(CHAIN, lines);
    assert_eq!(diag.message, "`T` reads `S`, which is computed in the same iteration");
}

#[test]
fn short_loops_are_unrolled() {
    let lines = &["C.split i 4", "C.pragma i_o auto_unroll_max_step 48"];
    let text = same(TWO, lines);
    assert!(text.contains("unrolled (i_i, 0, 4) {\n      unrolled (j, 0, 12)"), "{text}");
    let lines = &["C.split i 4", "C.pragma i_o auto_unroll_max_step 47"];
    let text = same(TWO, lines);
    assert!(text.contains("for (i_i, 0, 4) {\n      unrolled (j, 0, 12)"), "{text}");
    let lines = &["C.unroll j", "C.pragma i unroll_explicit false"];
    assert!(same(TWO, lines).contains("unrolled (j, 0, 12)"));
    let lines = &["S.compute_at C i", "C.pragma i auto_unroll_max_step 24"];
    assert!(same(TWO, lines).contains("unrolled (j, 0, 12)"));
    assert_eq!(refused(TWO, &["C.pragma i auto_unroll 4"]).code, "E0376");
    assert_eq!(refused(TWO, &["C.pragma i unroll_explicit 4"]).code, "E0376");
    assert_eq!(refused(TWO, &["C.pragma i auto_unroll_max_step -4"]).code, "E0376");
}

const BLUR: &str = "kernel blur(n = 20, m = 40) {
    input A: float32[n + 2, m]
    compute S[i: n + 2, j: m] = A[i, j] * 2.0
    output C[i: n, j: m] = S[i, j] + S[i + 2, j]
}";

#[test]
fn a_later_iteration_is_prefetched() {
    let text = same(BLUR, &["C.prefetch S i 3"]);
    let loops = "unrolled (p0, 0, 3) {
      unrolled (p1, 0, 3) {
        prefetch(S[((i + 3) + p0), (p1*16)])";
    assert!(text.contains(loops), "{text}");
    let text = same(BLUR, &["S.compute_at C i", "C.prefetch A i 1"]);
    assert!(text.contains("prefetch(A[((i + 1) + p0), (p1*16)])"), "{text}");
    let text = same(BLUR, &["C.split j 8", "C.prefetch S j_o 2"]);
    assert!(text.contains("prefetch(S[(i + p0), ((j_o + 2)*8)])"), "{text}");
    // More than a few cache lines are prefetched by a loop.
    let text = same(&BLUR.replace("m = 40", "m = 400"), &["C.prefetch S i 3"]);
    let loops = "for (p0, 0, 3) {
      unrolled (p1, 0, 25) {";
    assert!(text.contains(loops), "{text}");
    same(BLUR, &["C.split i 6", "S.compute_at C i_o", "C.prefetch S i_i 1"]);
    same(BLUR, &["S.storage_align i 16 1", "C.parallel i", "C.prefetch S i 1"]);
    assert_eq!(refused(BLUR, &["C.prefetch A i 1"]).code, "E0374");
    assert_eq!(refused(BLUR, &["C.prefetch S i 0"]).code, "E0374");
    assert_eq!(refused(BLUR, &["C.prefetch S j 1", "C.vectorize j"]).code, "E0374");
    assert_eq!(refused(BLUR, &["S.compute_inline", "C.prefetch S i 1"]).code, "E0375");
    assert_eq!(refused(BLUR, &["S.compute_at C i", "C.prefetch S i 1"]).code, "E0375");
    assert_eq!(refused(BLUR, &["C.prefetch S i 1", "C.split i 4"]).code, "E0324");
    let gather = "kernel gather(n = 20, m = 40) {
    input A: float32[m]
    input I: int32[n]
    output C[i: n] = A[I[i]]
}";
    assert_eq!(refused(gather, &["C.prefetch A i 1"]).code, "E0375");
}

#[test]
fn nontemporal_stores_keep_the_results() {
    let text = same(BLUR, &["C.store_nontemporal", "S.store_nontemporal", "C.parallel i"]);
    assert!(text.contains("S[i, j] = (A[i, j]*2f)  // nontemporal\n"), "{text}");
    assert!(text.contains("C[i, j] = (S[i, j] + S[(i + 2), j])  // nontemporal\n"), "{text}");
    same(BLUR, &["C.store_nontemporal", "C.split j 16", "C.vectorize j_i"]);
    same(BLUR, &["S.storage_align i 16 1", "S.store_nontemporal", "S.vectorize j"]);
    assert_eq!(refused(BLUR, &["S.store_nontemporal", "S.compute_inline"]).code, "E0379");
    assert_eq!(refused(BLUR, &["S.store_nontemporal", "S.compute_at C i"]).code, "E0390");
    assert_eq!(refused(DOT, &["C.store_nontemporal"]).code, "E0390");
}

const DOT: &str = "kernel dot(n = 6, m = 5, l = 16) {
    input A: int32[n, l]
    input B: int32[m, l]
    input D: int32[l, m]
    reduce k: 0..l
    output C[i: n, j: m] = sum(A[i, k] * B[j, k], axis=k)
    output E[i: n, j: m] = sum(A[i, k] * D[k, j], axis=k)
    output F[i: n, j: m] = max(A[i, k] * B[j, k], axis=k)
}";

#[test]
fn a_nest_becomes_an_intrinsic() {
    let text = same(DOT, &["C.split k 4", "C.tensorize k_i dot4_i32"]);
    assert!(text.contains("// intrinsic dot4_i32\n        for (k_i, 0, 4) {"), "{text}");
    same(
        DOT,
        &["C.split k 4", "C.reorder k_o,j", "C.reorder i,k_o,j,k_i", "C.tensorize k_i dot4_i32"],
    );
    same(DOT, &["C.split k 4", "C.tensorize k_i dot4_i32", "C.pragma i auto_unroll_max_step 64"]);
    let difference = |lines: &[&str]| {
        let diag = refused(DOT, lines);
        assert_eq!(diag.code, "E0378");
        diag.notes[0].clone()
    };
    let text = difference(&["C.split k 8", "C.tensorize k_i dot4_i32"]);
    assert_eq!(text, "loop `k_i` has extent 8; expected 4");
    let text = difference(&["E.split k 4", "E.tensorize k_i dot4_i32"]);
    assert_eq!(
        text,
        "`D[((k_o*4) + k_i), j]` moves by 5 elements per iteration of `k_i`; expected 1"
    );
    let text = difference(&["F.split k 4", "F.tensorize k_i dot4_i32"]);
    assert!(text.contains("in place of"), "{text}");
    let text = difference(&["C.split k 4", "C.unroll k_i", "C.tensorize k_i dot4_i32"]);
    assert_eq!(text, "loop `k_i` is not serial");
    let lines = ["C.split k 4", "C.reorder k_o,j", "C.vectorize j", "C.tensorize k_i dot4_i32"];
    assert_eq!(difference(&lines), "the enclosing loop `j` is vectorized");
    let text = difference(&["C.split j 4", "C.tensorize j_i dot4_i32"]);
    assert_eq!(text, "the inner loop `j_i` has no counterpart in the intrinsic");
    assert_eq!(refused(DOT, &["C.tensorize k dot_i32"]).code, "E0377");
}

#[test]
fn a_tree_shows_the_loops_that_stages_share() {
    let text = "kernel k(n = 8, m = 16) {
        input A: float32[n, m]
        output S[i: n, j: m] = A[i, j] + 1.0
        output T[i: n, j: m] = A[i, j] * 2.0
        output U[i: n] = A[i, 0]
    }";
    let mut schedule = Schedule::new(graph_of(text), &Target::parse("x86-64").unwrap());
    for line in ["T.compute_with S j", "U.compute_with T i"] {
        apply(&mut schedule, line).unwrap();
    }
    let tree = "S: output float32[8, 16]; T: output float32[8, 16]; U: output float32[8]\n\
                └─ for i 8\n   ├─ for j 16\n   │  ├─ S\n   │  └─ T\n   └─ U\n";
    assert_eq!(print_tree(&infer_bounds(schedule).unwrap()), tree);
}
