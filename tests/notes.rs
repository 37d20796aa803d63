//! Notes about programs that are correct, but compute far more than they need.

use crate::support::differential;
use tec::driver::{self, Options, Trace};
use tec::target::Target;

/// The notes of a program for AVX2.
fn notes(text: &str) -> Vec<String> {
    let options = Options::new(Target::parse("x86-avx2").expect("a target"));
    let mut trace = Trace::default();
    let program = differential::load(text).unwrap_or_else(|_| panic!("{text}"));
    let graphs = driver::elaborate(&program, &options, &mut trace);
    let graphs = graphs.unwrap_or_else(|_| panic!("{text}"));
    let bounded = driver::schedule(&program, graphs, &options, &mut trace);
    for kernel in bounded.unwrap_or_else(|_| panic!("{text}")) {
        let lowered = driver::lower(&kernel, &options, None, &mut trace);
        assert!(lowered.is_ok(), "{text}");
    }
    trace.notes
}

#[test]
fn a_stage_that_is_recomputed_more_than_twice_is_noted() {
    let noted = |read: &str, factor: i64, extent: &str| {
        let mut text = format!("kernel f(n{extent}) {{\n    input A: float32[n]\n");
        text += "    compute S[x: n] = A[x] * 3.0\n";
        text += &format!("    output C[x: n] = {read}\n}}\nschedule f {{\n");
        text += &format!("    let xo, xi = C.split(x, factor={factor})\n");
        text += "    S.compute_at(C, xo)\n}\n";
        notes(&text)
    };
    driver::with_stack(move || {
        let note = "`S` of `f` has 64 elements, but up to 512 are computed: each iteration of `xo` \
                    of `C` computes 64";
        assert_eq!(noted("S[(x + 1) % n]", 8, " = 64"), [note]);
        let clamped = "S[max(x - 1, 0)] + S[min(x + 1, n - 1)]";
        assert_eq!(noted(clamped, 8, " = 64").len(), 0);
        assert_eq!(noted(clamped, 1, " = 64").len(), 1);
        assert_eq!(noted("S[(x + 1) % n]", 8, ": var").len(), 0);
        // A tile of an input is copied, and converted, as often as it is used.
        let copied = "kernel f(n = 64) {\n    input A: int8[n]\n    \
                      compute S[x: n] = A[x] as float32\n    \
                      output C[x: n] = S[(x + 1) % n] * 3.0\n}\nschedule f {\n    \
                      let xo, xi = C.split(x, factor=8)\n    S.compute_at(C, xo)\n}\n";
        assert_eq!(notes(copied).len(), 0);
    });
}

#[test]
fn work_far_beyond_the_size_of_the_arguments_is_noted() {
    let noted = |params: &str, reduce: &str, output: &str| {
        let inputs = "    input A: float32[n]\n    input J: int32[n]\n";
        let text = format!(
            "kernel f({params}) {{\n{inputs}    reduce k: {reduce}\n    output {output}\n}}\n\
             schedule f {{ }}\n"
        );
        notes(&text)
    };
    driver::with_stack(move || {
        // Prefix sums: the condition halves the iterations, under any schedule.
        let prefix = "C[i: n] = sum(A[k], axis=k, where=k <= i)";
        let note = "`f` runs 5.0e11 iterations in the loops of `C` for 3.0e6 elements of inputs \
                    and outputs: each output visits all terms (docs/LIMITS.md has faster forms)";
        assert_eq!(noted("n = 1000000", "0..n", prefix), [note]);
        let text = "kernel f(n = 1000000) {\n    input A: float32[n]\n    input J: int32[n]\n    \
                    reduce k: 0..n\n    output C[i: n] = sum(A[k], axis=k, where=k <= i)\n}\n\
                    schedule f {\n    let o, i2 = C.split(i, factor=2048)\n    \
                    let ko, ki = C.split(k, factor=16)\n    C.reorder(o, ko, i2, ki)\n    \
                    C.unroll(ki)\n}\n";
        assert_eq!(notes(text), [note]);
        assert_eq!(noted("n = 10000", "0..n", prefix), [""; 0]);
        let note = &noted("n: var", "0..n", prefix)[0];
        assert!(note.contains("if every run-time integer is 1048576"), "{note}");
        // A histogram of few bins visits each element once for each bin.
        let bins = "C[b: 256] = sum(1, axis=k, where=J[k] == b as int32)";
        assert_eq!(noted("n = 100000000", "0..n", bins), [""; 0]);
        let bins = bins.replace("256", "1000000");
        assert_eq!(noted("n = 1000000", "0..n", &bins).len(), 1);
        // The number of iterations depends on data.
        let ragged = "C[i: n] = sum(A[k], axis=k, where=k as int64 < J[i] as int64)";
        assert_eq!(noted("n = 1000000", "0..n", ragged), [""; 0]);
        // The work of a matrix product.
        let product = "C[i: 4096, j: 4096] = sum(A[k] * A[k], axis=k)";
        assert_eq!(noted("n = 4096", "0..n", product), [""; 0]);
    });
}

#[test]
fn checks_that_need_a_loop_although_no_data_decides_them_are_noted() {
    let noted = |more: &str, read: &str| {
        let inputs = "    input A: float32[n]\n    input J: int32[m]\n";
        notes(&format!(
            "kernel f(n: var, m: var) {{\n{inputs}{more}    output B[i: m] = {read}\n}}\n"
        ))
    };
    driver::with_stack(move || {
        let note = "each call of `f` checks index 0 of `A` in a loop over `i` before it computes: \
                    an `assume` or a `clamp` that proves it saves the time";
        let every_second = "if i % 2 == 0 then A[i] else 0.0";
        assert_eq!(noted("", every_second), [note]);
        assert_eq!(noted("    assume n >= m\n", every_second).len(), 0);
        assert_eq!(noted("", "A[min(i, n - 1)]").len(), 0);
        // The index at the end decides.
        assert_eq!(noted("", "A[2*i]").len(), 0);
        // Data decides.
        assert_eq!(noted("", "A[J[i]]").len(), 0);
        let product = "A[if i*i < m then i*i else 0]";
        assert!(noted("", product)[0].contains("checks `i*i` in a loop over `i`"));
    });
}
