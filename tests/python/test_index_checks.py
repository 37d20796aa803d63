"""Indices that are data, against NumPy: tensors longer than those that are checked element by
element, with a wrong index in any place, at the limits of every type."""

import numpy as np
import pytest

from dl import Module

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SOURCE = "tests/python/gathers.te"

# Around the least length for the test of a whole tensor and the steps of its vectors.
LENGTHS = [0, 1, 63, 64, 65, 79, 96, 127, 128, 130, 1000]


def wrong_indices(dtype, extent):
    """The indices next to the valid ones, and the extremes of the type."""
    info = np.iinfo(dtype)
    return sorted({x for x in (-1, extent, info.min, info.max) if info.min <= x <= info.max} - {0})


def is_valid(index, extent):
    return 0 <= index < extent


@pytest.mark.parametrize("dtype", INTS)
def test_wrong_indices_are_found_in_every_place(build, rng, dtype):
    module = Module(build.path(SOURCE, T=dtype))
    info = np.iinfo(dtype)
    for extent in (1, 2, 100, 127, 128, 200, 255, 256, 40000, 70000):
        a = rng.standard_normal(extent).astype(np.float32)
        for n in LENGTHS:
            good = rng.integers(0, min(extent - 1, info.max), n, endpoint=True).astype(dtype)
            c = np.zeros(n, np.float32)
            assert module.dl("take", a, good, c) == 0, module.last_error()
            np.testing.assert_array_equal(c, a[good.astype(np.int64)])
            for value in wrong_indices(dtype, extent) if n else []:
                bad = good.copy()
                bad[rng.integers(0, n)] = value
                c[:] = 7
                failed = module.dl("take", a, bad, c) != 0
                assert failed != is_valid(value, extent), (extent, n, value)
                if failed:
                    shown = value if value < 2**63 else value - 2**64
                    expected = f"index 0 of `A` is {shown}, but the extent is {extent}"
                    assert expected in module.last_error()
                    assert np.all(c == 7)


def test_an_empty_tensor_has_no_valid_index(build):
    module = Module(build.path(SOURCE))
    a, c = np.zeros(0, np.float32), np.zeros(100, np.float32)
    assert module.dl("take", a, np.zeros(100, np.int32), c) != 0
    assert "index 0 of `A` is 0, but the extent is 0" in module.last_error()


def test_the_first_wrong_index_is_named(build, rng):
    module = Module(build.path(SOURCE))
    a = rng.standard_normal(50).astype(np.float32)
    index = rng.integers(0, 50, (30, 20)).astype(np.int32)
    index[17, 3], index[17, 4], index[29, 0] = 51, -5, 52
    c = np.zeros((30, 20), np.float32)
    assert module.dl("take_pairs", a, index, c) != 0
    assert "is 51, but" in module.last_error()
    assert module.dl("take_pairs", a, index[:17], c[:17]) == 0
    np.testing.assert_array_equal(c[:17], a[index[:17]])


def test_elements_that_are_not_read_may_be_anything(build, rng):
    module = Module(build.path(SOURCE))
    a = rng.standard_normal(50).astype(np.float32)
    index = rng.integers(0, 50, 400).astype(np.int32)
    index[1::2] = -1
    c = np.zeros(200, np.float32)
    assert module.dl("take_even", a, index, c) == 0, module.last_error()
    np.testing.assert_array_equal(c, a[index[::2]])
    index[398] = 50
    assert module.dl("take_even", a, index, c) != 0


@pytest.mark.parametrize("gap", [0, 5, 5000])
def test_rows_of_a_sparse_matrix(build, rng, gap):
    module = Module(build.path(SOURCE))
    n, m = 40, 300
    first = np.concatenate([[0], np.cumsum(rng.integers(0, 9, n))]).astype(np.int32)
    z = int(first[-1]) + gap
    columns = rng.integers(0, m, z).astype(np.int32)
    columns[first[-1] :] = m
    v, x = (rng.standard_normal(size).astype(np.float32) for size in (z, m))
    y = np.zeros(n, np.float32)
    assert module.dl("sparse", v, columns, first, x, y) == 0, module.last_error()
    for row in range(n):
        span = slice(first[row], first[row + 1])
        expected = np.sum(v[span].astype(np.float64) * x[columns[span]])
        assert abs(y[row] - expected) < 1e-5
    columns[first[20]] = m
    failed = module.dl("sparse", v, columns, first, x, y) != 0
    # The first element after an empty row is one of the next row that has some.
    assert failed == (first[20] < first[-1])
