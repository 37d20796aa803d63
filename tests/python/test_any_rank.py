"""Compares the kernels of `samples/any_rank.te` with NumPy for several ranks."""

import numpy as np
import pytest

from test_samples import assert_sum_close, empty, normal


@pytest.mark.parametrize("shape", [[], [7], [4, 1, 9], [2, 3, 1, 4, 2]])
def test_any_rank_relu(build, rng, shape):
    for dtype in ("float32", "int8"):
        x = np.asarray(rng.standard_normal(shape) * 50).astype(dtype)
        y = empty(*shape, dtype=x.dtype)
        options = {"any_rank_relu.S": str(shape), "any_rank_relu.T": dtype}
        module = build("samples/any_rank.te", **options)
        module.any_rank_relu(x, y)
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_any_rank_with_run_time_extents(build, rng):
    module = build("samples/any_rank.te", **{"any_rank_relu.S": "[var, 3]"})
    for n in (0, 1, 8, 100):
        x, y = normal(rng, n, 3), empty(n, 3)
        module.any_rank_relu(x, y)
        np.testing.assert_array_equal(y, np.maximum(x, 0))


@pytest.mark.parametrize("left,right", [([6, 1, 5], [4, 5]), ([], [3]), ([2, 3], [2, 3])])
def test_any_rank_add(build, rng, left, right):
    options = {"any_rank_add.A": str(left), "any_rank_add.B": str(right)}
    module = build("samples/any_rank.te", **options)
    x, y = np.asarray(normal(rng, *left)), normal(rng, *right)
    z = empty(*np.broadcast_shapes(x.shape, y.shape))
    module.any_rank_add(x, y, z)
    np.testing.assert_array_equal(z, x + y)


@pytest.mark.parametrize("perm", [[0], [1, 0], [2, 0, 1], [3, 1, 0, 2]])
def test_any_rank_transpose(build, rng, perm):
    shape = [3, 5, 17, 2][: len(perm)]
    options = {"any_rank_transpose.S": str(shape), "any_rank_transpose.perm": str(perm)}
    x = normal(rng, *shape)
    expected = x.transpose(perm)
    y = empty(*expected.shape)
    build("samples/any_rank.te", **options).any_rank_transpose(x, y)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("axes", [[], [1], [2, 0], [0, 1, 2]])
def test_any_rank_sum(build, rng, axes):
    module = build("samples/any_rank.te", **{"any_rank_sum.axes": str(axes)})
    x = normal(rng, 3, 5, 17)
    exact = x.astype(np.float64).sum(tuple(axes))
    magnitude = np.abs(x).astype(np.float64).sum(tuple(axes))
    y = empty(*exact.shape)
    module.any_rank_sum(x, y)
    assert_sum_close(y, exact, magnitude, 255)


@pytest.mark.parametrize("schedule", ["default", "rows"])
def test_any_rank_layer(build, rng, schedule):
    module = build("samples/any_rank.te", schedule)
    x, w, bias = normal(rng, 4, 6, 16), normal(rng, 24, 16), normal(rng, 24)
    y = empty(4, 6, 24)
    module.any_rank_layer(x, w, bias, y)
    exact = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64) + bias, 0)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(w.T) + np.abs(bias)
    assert_sum_close(y, exact, magnitude, 17)
