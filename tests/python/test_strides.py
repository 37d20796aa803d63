"""Tensors with strides, and tensors that are updated in place, from Python."""

import ctypes

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from dl import Module, tensor

SIZES = [(1, 1), (1, 9), (9, 1), (5, 7), (16, 16), (30, 40), (33, 65)]


@pytest.fixture(params=["default", "auto"])
def path(request, build):
    return build.path("tests/python/strides.te", request.param)


@pytest.fixture
def module(path):
    import tvm_ffi

    return tvm_ffi.load_module(path)


def views(big, n, m):
    """Views of `n` by `m` elements of a large matrix."""
    yield big[:n, :m]
    yield big[3 : 3 + n, 5 : 5 + m]
    yield big[: 2 * n : 2, : 2 * m : 2]
    yield big[:m, :n].T
    yield big[::-1][:n, :m]
    yield big[:n, :m][:, ::-1]
    # A row and a column that repeat. NumPy's broadcast arrays are read-only.
    yield as_strided(big, (n, m), (0, big.itemsize))
    yield as_strided(big, (n, m), (big.strides[0], 0))


@pytest.mark.parametrize("n, m", SIZES)
def test_any_view(module, rng, n, m):
    big = rng.random((140, 200), dtype=np.float32)
    for a in views(big, n, m):
        around = np.full((140, 200), -1, np.float32)
        for b in list(views(around, n, m))[:6]:
            around[:] = -1
            module.twice(a, b)
            np.testing.assert_array_equal(b, 2 * a)
            assert (around != -1).sum() == n * m, "nothing else is written"


@pytest.mark.parametrize("n, m", [(0, 5), (5, 0), (0, 0)])
def test_empty_views(module, n, m):
    big = np.ones((9, 9), np.float32)
    module.twice(big[:n, :m], big[::-1][:n, :m])
    assert (big == 1).all()


def test_columns_of_one_matrix(module, rng):
    c = rng.random((20, 30), dtype=np.float32)
    before = c.copy()
    module.twice(c[:, :10], c[:, 10:20])
    np.testing.assert_array_equal(c[:, 10:20], 2 * before[:, :10])
    module.twice(c[:, 20:], c[:, 9:19])
    np.testing.assert_array_equal(c[:, 9:19], 2 * before[:, 20:])
    for a, b in [(c[:, :10], c[:, 9:19]), (c[:10], c[9:19]), (c[::2], c[::-1][1::2]), (c, c)]:
        with pytest.raises(ValueError, match="argument 2 `B`: the output shares memory with"):
            module.twice(a, b)


def test_elements_that_share_memory(module):
    source, memory = np.ones((20, 10), np.float32), np.zeros(400, np.float32)
    # The last strides give distinct elements, but the check does not recognise that.
    for strides in [(4, 4), (0, 4), (36, 4), (4, 76), (-4, 4), (12, 92)]:
        b = as_strided(memory[100:], (20, 10), strides)
        with pytest.raises(ValueError, match="elements may share memory"):
            module.twice(source, b)
    assert (memory == 0).all()
    b = as_strided(memory, (20, 10), (4, 80))
    module.twice(source, b)
    assert memory.sum() == 400


def test_gemm_on_slices(module, rng):
    a = rng.random((50, 90), dtype=np.float32)[:, :20]
    b = rng.random((20, 100), dtype=np.float32)[:, 3:63]
    whole = rng.random((50, 61), dtype=np.float32)
    c, border = whole[:, :60], whole[:, 60].copy()
    exact = 0.5 * (a.astype(np.float64) @ b) + 2.0 * c
    module.gemm(0.5, a, b, 2.0, c)
    np.testing.assert_allclose(c, exact, rtol=1e-4)
    np.testing.assert_array_equal(whole[:, 60], border)
    with pytest.raises(ValueError, match="argument 3 `B`: expected stride 1 in dimension 1, got 2"):
        module.gemm(0.5, a, b[:, ::2], 2.0, c[:, :30])
    # The stride of a dimension of extent 1 does not matter.
    module.gemm(0.5, a[:1], as_strided(b, (20, 1), (400, 8)), 2.0, c[:1, :1])


def test_update_of_an_argument(module, rng):
    c = rng.random((6, 6), dtype=np.float32)
    told = "argument 5 `C`: the `inout` tensor shares memory with argument 2 `A`"
    with pytest.raises(ValueError, match=told):
        module.gemm(0.5, c, c.copy(), 2.0, c)


def test_one_name_for_two_strides(module, rng):
    a, b = rng.random((6, 8)), rng.random((6, 9))
    c = np.empty((6, 8))
    with pytest.raises(ValueError, match="expected stride 8 in dimension 0 \\(`s`\\), got 9"):
        module.same(a, b[:, :8], c)
    module.same(a, rng.random((6, 8)), c)


def test_sums_of_columns(module, rng):
    q = rng.integers(-128, 127, (70, 60), dtype=np.int8)
    sums = np.zeros(140, np.int32)[::2]
    module.row_sums(q, sums)
    np.testing.assert_array_equal(sums, q.sum(axis=1, dtype=np.int32))
    module.row_sums(q.T, sums[:60])
    np.testing.assert_array_equal(sums[:60], q.sum(axis=0, dtype=np.int32))


def test_c_entries(path, rng):
    module = Module(path)
    a, b = rng.random((5, 7), dtype=np.float32), np.empty((5, 7), np.float32)
    # Without strides a tensor is contiguous.
    assert module.dl("twice", tensor(a, with_strides=False), tensor(b, with_strides=False)) == 0
    np.testing.assert_array_equal(b, 2 * a)
    b[:] = 0
    integers = [ctypes.c_int64(x) for x in (5, 7, 7, 1, 7, 1)]
    assert module.raw("twice", a, b, *integers) == 0
    np.testing.assert_array_equal(b, 2 * a)
    # The last element is further away than 63 bits count.
    for strides in [(2**62, 1), (-(2**62), 1), (1, 2**61), (2**63 - 1, 1)]:
        far = tensor(a, strides=strides)
        assert module.dl("twice", far, b) == -1
        assert "spans more bytes than 63 bits count" in module.last_error()
        assert module.dl("twice", a, tensor(b, strides=strides)) == -1
