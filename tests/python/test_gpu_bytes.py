"""Products of bytes on tensor cores, run by the emulator, against integer products in NumPy.

Both factors have either signedness and are stored by rows or by columns; the elements include the
smallest and largest values, so the sums go beyond 16 bits.
"""

import itertools

import numpy as np
import pytest

from conftest import run_tec

TYPES = {"uint8": np.uint8, "int8": np.int8}


def matrix(rng, dtype, shape):
    """Random elements, many of them the smallest and the largest."""
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    ends = rng.integers(0, 4, shape)
    return np.where(ends == 0, info.min, np.where(ends == 1, info.max, values)).astype(dtype)


def program(left, right, turned, term):
    a, at = ("l, n", "k, x") if turned[0] else ("n, l", "x, k")
    b, bt = ("m, l", "y, k") if turned[1] else ("l, m", "k, y")
    term = term.format(a=f"(A[{at}] as int32)", b=f"(B[{bt}] as int32)")
    return f"""kernel product(n = 256, m = 256, l = 256) {{
    input A: {left}[{a}]
    input B: {right}[{b}]
    input za: int32
    input zb: int32
    reduce k: 0..l
    output C[x: n, y: m] = sum({term}, axis=k)
}}
"""


LAYOUTS = list(itertools.product([False, True], [False, True]))
CASES = [(turned, False) for turned in LAYOUTS] + [((False, False), True)]


@pytest.mark.parametrize("left, right", itertools.product(TYPES, TYPES))
@pytest.mark.parametrize("turned, zero_points", CASES)
def test_product(tmp_path, rng, left, right, turned, zero_points):
    term = "({a} - za) * ({b} - zb)" if zero_points else "{a} * {b}"
    source = tmp_path / "product.te"
    text = program(left, right, turned, term)
    if not zero_points:
        text = text.replace("    input za: int32\n    input zb: int32\n", "")
    source.write_text(text)
    a, b = matrix(rng, TYPES[left], (256, 256)), matrix(rng, TYPES[right], (256, 256))
    np.save(tmp_path / "a.npy", np.ascontiguousarray(a.T) if turned[0] else a)
    np.save(tmp_path / "b.npy", np.ascontiguousarray(b.T) if turned[1] else b)
    za, zb = (131, -77) if zero_points else (0, 0)
    scalars = ["--scalar", f"za={za}", "--scalar", f"zb={zb}"] if zero_points else []
    files = ["--input", f"A={tmp_path / 'a.npy'}", "--input", f"B={tmp_path / 'b.npy'}"]
    done = run_tec(
        "run", source, "--schedule", "auto", "--target", "nvptx-sm_80", "--emulate",
        *files, *scalars, "--output", f"C={tmp_path / 'c.npy'}",
    )
    assert done.returncode == 0, done.stderr
    assert "no findings" in done.stdout, done.stdout
    ptx = tmp_path / "product.ptx"
    built = run_tec("build", source, "--schedule", "auto", "--target", "nvptx-sm_80", "-o", ptx)
    assert built.returncode == 0 and "mma.sync.aligned.m16n8k32" in ptx.read_text()
    expected = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
    assert np.abs(expected).max() > 2**15
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), expected.astype(np.int32))
