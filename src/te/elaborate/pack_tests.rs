//! Packs: the graphs of kernels with packs equal those of the same kernels written out.

use super::Defines;
use super::tests::{define, errors, errors_of, graphs, show_graph, shown};

/// Compares the graphs of two texts.
fn same(packed: &str, written: &str) {
    assert_eq!(shown(packed), shown(written));
}

#[test]
fn packs_are_expanded_to_single_axes() {
    same(
        "kernel k(n: var, S: shape = [n, 3], p: list = [1, 0]) {
            input A: float32[S...]
            reduce k...: 0..S..., r...: p..S...
            compute B[i...: S[p]...] = A[i[p]...]
            compute C[j: 2, i...: (S + p)...] = if all((i < S)...) then 1.0 else 0.0
            output D[] = sum(A[k...] * B[k[p]...] * C[0, k...], axis=k...)
            output E[i: S[1]] = max(A[r[0], i], axis=r...)
        }",
        "kernel k(n: var) {
            input A: float32[n, 3]
            reduce k0: 0..n, k1: 0..3, r0: 1..n, r1: 0..3
            compute B[i0: 3, i1: n] = A[i1, i0]
            compute C[j: 2, i0: n + 1, i1: 3] = if all(i0 < n, i1 < 3) then 1.0 else 0.0
            output D[] = sum(A[k0, k1] * B[k1, k0] * C[0, k0, k1], axis=[k0, k1])
            output E[i: 3] = max(A[r0, i], axis=[r0, r1])
        }",
    );
}

#[test]
fn expansions_nest() {
    same(
        "kernel k(S: shape = [2, 3, 4]) {
            let d = [0..rank(S)]
            let strides = [prod(S[d + 1..]...)...]
            input A: float32[S...]
            output B[i: prod(S...)] = A[(i // strides % S)...]
            output C[i...: S...]: int32 = sum((i * strides)...) as int32
        }",
        "kernel k() {
            input A: float32[2, 3, 4]
            output B[i: 24] = A[i // 12 % 2, i // 4 % 3, i // 1 % 4]
            output C[i0: 2, i1: 3, i2: 4]: int32 = (i0*12 + i1*4 + i2*1) as int32
        }",
    );
}

#[test]
fn operators_take_shapes_from_later_inputs() {
    // `N` follows from the second input, and only then `B` from the first one.
    let text = "kernel norm(B: shape, N: shape) {
            input X: float32[B..., N...]
            input G: float32[N...]
            output Y[b...: B..., i...: N...] = X[b..., i...] * G[i...]
        }
        kernel k(n: var) {
            input X: float32[5, n, 3]
            input G: float32[n, 3]
            input H: float32[]
            let P = norm(X, G)
            output Q = norm(P, H)
        }";
    assert_eq!(
        shown(text),
        "P[b0: 5, i0: n, i1: 3]: float32 = Mul(X[b0, i0, i1], G[i0, i1])\n\
         Q[b0: 5, b1: n, b2: 3]: float32 = Mul(P[b0, b1, b2], H[])\n"
    );
}

#[test]
fn a_constant_if_guards_places_of_packs() {
    same(
        "kernel k(S: shape = [2, 3], axes: list = [1]) {
            let d = [0..rank(S)]
            input A: float32[S...]
            reduce k...: 0..S[axes]...
            output B[i...: without(S, axes)...] =
                sum(A[(if find(axes, d) >= 0 then k[find(axes, d)] else i[d])...], axis=k...)
        }",
        "kernel k() {
            input A: float32[2, 3]
            reduce k0: 0..3
            output B[i0: 2] = sum(A[i0, k0], axis=k0)
        }",
    );
}

#[test]
fn a_reduction_over_no_axes_has_one_term() {
    let text = "kernel k(S: shape = []) { input A: float32[S...] reduce k...: 0..S... \
                output B[] = sum(A[k...], axis=k...) }";
    assert_eq!(shown(text), "B[]: float32 = sum(A[]) over k: 0 + 1 from 0.0\n");
}

#[test]
fn shapes_are_defined_on_the_command_line() {
    let text = "kernel k(S: shape, p: list = 1, T: dtype = float32) { input A: T[S...] \
                output B[i...: (S + p)...]: T = 0 }";
    let params = |defines: &Defines| {
        let graph = graphs(text, defines).unwrap().remove(0);
        let params: Vec<String> = graph.params.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let vars: Vec<String> = graph.vars.iter().map(|var| var.name().to_string()).collect();
        (params.join(" "), vars.join(" "), show_graph(&graph))
    };
    assert_eq!(
        params(&[define("S", "[var, 4]"), define("p", "[1, 2]")]),
        (
            "S=[var, 4] p=[1, 2] T=float32".to_string(),
            "S0".to_string(),
            "B[i0: Add(S0, 1), i1: 6]: float32 = 0.0\n".to_string()
        )
    );
    assert_eq!(params(&[define("S", "[ ]")]).2, "B[]: float32 = 0.0\n");
    for (name, value, wanted) in [
        ("S", "4", "a list of extents"),
        ("S", "[4, x]", "a list of extents"),
        ("S", "[4,,5]", "a list of extents"),
        ("p", "[1, var]", "an integer or a list of integers"),
    ] {
        let mut defines = vec![define("S", "[4, 5]")];
        defines.push(define(name, value));
        let found = errors_of(&[("a.te", text)], &defines);
        assert!(found[0].starts_with(&format!("E0220:0: -D {name}={value}")), "{found:?}");
        assert!(found[0].contains(wanted), "{found:?}");
    }
}

#[test]
fn axes_of_packs_have_names_of_their_own() {
    let clash = |axes: &str| {
        let text = format!(
            "kernel k(n = 4, i2 = 1, S: shape = [2, 3, 4]) {{ reduce k...: 0..S... \
             output B[{axes}] = 0.0 }}"
        );
        errors(&text).len()
    };
    assert_eq!(clash("i...: S[..2]..."), 0);
    assert_eq!(clash("i...: S..."), 1);
    assert_eq!(clash("j...: S..., j1: n"), 1);
    let text = "kernel k(S: shape = [2, 3]) { input A: float32[S...] reduce k...: 0..S... \
                output B[k1: 2] = sum(A[k...], axis=k...) }";
    let message =
        "E0202:1: two axes of this stage are named `k1` [choose another name for the pack]";
    assert_eq!(errors(text), [message]);
}

#[test]
fn nested_expansions_are_limited() {
    let text = "kernel k() { let d = [0..256] \
                let n = sum((d + sum((d + sum((d + sum(d...))...))...))...) \
                output A[i: 2] = 0.0 }";
    let found = errors(text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("E0213"), "{found:?}");
}
