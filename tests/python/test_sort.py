"""Sorts against NumPy: every type, special values, ties, extents, the first few of long rows."""

import ml_dtypes
import numpy as np
import pytest

from dl import Module

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]

# Lengths around the limits of the methods: counting, digits of 8 and of 11 bits.
LENGTHS = [0, 1, 2, 3, 31, 47, 48, 49, 50, 300, 16383, 16384, 16400]


def numpy_dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def order(row, descending):
    """The positions in order: a stable sort of numbers, NaNs as the greatest."""
    wide = row.astype(np.float64) if row.dtype.kind not in "iu" else row
    if row.dtype.kind in "iu":
        ranks = np.unique(wide, return_inverse=True)[1].astype(np.int64)
    else:
        numbers = np.where(np.isnan(wide), 0.0, wide) + 0.0
        ranks = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        ranks[np.isnan(wide)] = len(row)
    return np.argsort(-ranks if descending else ranks, kind="stable")


def rows(rng, dtype, n, m):
    """Rows with many ties and the extremes of the type."""
    kind = numpy_dtype(dtype)
    if dtype in INTS:
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (n, m), dtype=kind, endpoint=True)
        x[:, ::3] = rng.integers(0, 5, x[:, ::3].shape).astype(kind)
        special = np.array([info.min, info.max, 0, 1], kind)
    else:
        x = rng.standard_normal((n, m)).astype(kind)
        x[:, ::3] = np.round(x[:, ::3].astype(np.float32)).astype(kind)
        special = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, -np.nan], np.float64).astype(kind)
    at = rng.integers(0, max(m, 1), (n, min(m, 8)))
    for row, places in zip(x, at):
        row[places] = special[rng.integers(0, len(special), len(places))]
    return x


def same_bits(a, b):
    np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


def garbage(*shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(b"\xa5" * size, np.uint8).copy().view(dtype).reshape(shape)


def call(module, name, *args):
    assert module.dl(name, *args) == 0, module.last_error()


@pytest.mark.parametrize("dtype", INTS + FLOATS)
def test_every_type(build, rng, dtype):
    module = Module(build.path("samples/sort.te", T=dtype))
    for m in LENGTHS:
        n = 3
        x = rows(rng, dtype, n, m)
        s, i = garbage(n, m, dtype=x.dtype), garbage(n, m, dtype=np.int64)
        call(module, "sort_rows", x, s)
        call(module, "argsort_rows", x, i)
        expected = np.array([order(row, False) for row in x], np.int64).reshape(n, m)
        np.testing.assert_array_equal(i, expected)
        same_bits(s, np.take_along_axis(x, expected, axis=1))
        for k in sorted({0, 1, 2, 10, 100, m // 2, m}):
            if k > m:
                continue
            v, j = garbage(n, k, dtype=x.dtype), garbage(n, k, dtype=np.int64)
            call(module, "topk", x, v, j)
            first = np.array([order(row, True)[:k] for row in x], np.int64).reshape(n, k)
            np.testing.assert_array_equal(j, first)
            same_bits(v, np.take_along_axis(x, first, axis=1))
