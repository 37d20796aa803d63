"""Kernels that the tests of `--on` run on another machine."""

PRODUCT = """kernel product(n = 24) {
    input A: float32[n, n]
    input B: float32[n, n]
    reduce k: 0..n
    output C[i: n, j: n] = sum(A[i, k] * B[k, j], axis=k)
}
"""
# About half a minute of adding on one thread.
SLOW = """kernel slow(n: var) {
    input A: float32[4]
    reduce k: 0..n
    output C[i: 4] = sum(A[i] + (k as float32), axis=k)
}
"""
