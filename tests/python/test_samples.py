"""Compares every kernel of `samples/` with a NumPy reference, through tvm-ffi."""

import re

import ml_dtypes
import numpy as np
import pytest

from conftest import ROOT, needs_feature
from dl import Module

SIZES = [0, 1, 2, 3, 7, 8, 31, 100, 257]
SHAPES = [(1, 1), (3, 4), (4, 3), (1, 17), (17, 1), (16, 16), (33, 70), (0, 3), (3, 0)]


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def empty(*shape, dtype=np.float32):
    """An output filled with garbage, so that a missing write is detected."""
    return (
        np.frombuffer(b"\xa5" * (int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype)
        .reshape(shape)
        .copy()
    )


def assert_sum_close(actual, exact, magnitude, terms):
    """Asserts the error bound of a float32 sum of `terms` terms, each rounded once."""
    bound = (terms + 2) * np.finfo(np.float32).eps * magnitude + 1e-30
    assert actual.shape == exact.shape
    np.testing.assert_array_less(np.abs(actual - exact), bound + 1e-12)


def test_every_kernel_is_covered():
    tests = open(__file__).read() + (ROOT / "tests/python/test_any_rank.py").read_text()
    for file in sorted((ROOT / "samples").glob("*.te")):
        for kernel in re.findall(r"^kernel (\w+)", file.read_text(), re.M):
            prefix = re.sub("_[a-z]+[0-9]*$", "_", kernel)
            pattern = rf"\b{kernel}\b|\b{prefix}{{"
            assert re.search(pattern, tests), f"{file.name}: kernel {kernel} has no test"


@pytest.mark.parametrize("schedule", ["default", "parallel", "vectorized", "fast"])
def test_vector_add(build, rng, schedule):
    # `fast` uses nontemporal stores for the last size.
    for n in (1, 100, 1000) + ((4194309,) if schedule == "fast" else ()):
        module = build("samples/vector_add.te", schedule, n=n)
        a, b, c = normal(rng, n), normal(rng, n), empty(n)
        module.vector_add(a, b, c)
        np.testing.assert_array_equal(c, a + b)


INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def operands(rng, dtype, n=100):
    if dtype in INTS:
        info = np.iinfo(dtype)
        a, b = (rng.integers(info.min, info.max, n, dtype, endpoint=True) for _ in range(2))
        a[0], b[0] = info.max, info.max
        return a, b
    return tuple((rng.standard_normal(n) * 100).astype(dtype) for _ in range(2))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"] + INTS)
def test_vector_add_dtypes(build, rng, dtype):
    a, b = operands(rng, dtype)
    expected = a + b
    for function in (
        build("samples/vector_add_dtypes.te")[f"vector_add_{dtype}"],
        build("samples/vector_add_dtypes.te", **{"vector_add_t.T": dtype})["vector_add_t"],
    ):
        c = empty(100, dtype=dtype)
        function(a, b, c)
        np.testing.assert_array_equal(c, expected)


def test_vector_add_bfloat16(build, rng):
    # NumPy does not export this type, so the call goes through the C entries.
    module = Module(build.path("samples/vector_add_dtypes.te"))
    a, b = ((rng.standard_normal(100) * 100).astype(ml_dtypes.bfloat16) for _ in range(2))
    expected = (a.astype(np.float32) + b.astype(np.float32)).astype(ml_dtypes.bfloat16)
    for call in (module.dl, module.raw):
        c = np.zeros(100, ml_dtypes.bfloat16)
        assert call("vector_add_bfloat16", a, b, c) == 0, module.last_error()
        np.testing.assert_array_equal(c.view(np.uint16), expected.view(np.uint16))


def test_vector_or_bool(build, rng):
    a, b = (rng.integers(0, 2, 100).astype(bool) for _ in range(2))
    c = np.zeros(100, bool)
    build("samples/vector_add_dtypes.te").vector_or_bool(a, b, c)
    np.testing.assert_array_equal(c, a | b)


def saturated(x, dtype):
    """Truncates and saturates, NaN to 0, as a cast from float does."""
    info = np.iinfo(dtype)
    whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30))
    return np.array([min(max(int(v), info.min), info.max) for v in whole], dtype)


@pytest.mark.parametrize("dtype", INTS + ["float16", "float32", "float64"])
def test_vector_add_cast(build, rng, dtype):
    a, b = normal(rng, 100) * 50, normal(rng, 100) * 50
    a[:5] = [np.nan, np.inf, -np.inf, 1e10, -1e10]
    b[:5] = 0
    module = build("samples/vector_add_cast.te", **{"vector_add_cast.T": dtype})
    if dtype in INTS:
        with np.errstate(over="ignore"):
            expected = saturated(a, dtype) + saturated(b, dtype)
    else:
        # Halves are rounded once, at the store.
        work = np.float32 if dtype == "float16" else dtype
        with np.errstate(over="ignore"):
            expected = (a.astype(dtype).astype(work) + b.astype(dtype).astype(work)).astype(dtype)
    c = empty(100, dtype=dtype)
    module.vector_add_cast(a, b, c)
    np.testing.assert_array_equal(c, expected)
    if f"kernel vector_add_cast_{dtype}(" in (ROOT / "samples/vector_add_cast.te").read_text():
        c = empty(100, dtype=dtype)
        module[f"vector_add_cast_{dtype}"](a, b, c)
        np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("n", SIZES)
def test_vector_add_var(build, rng, n):
    a, b, c = normal(rng, n), normal(rng, n), empty(n)
    build("samples/vector_add_var.te").vector_add_var(a, b, c)
    np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize("shape", [(5,), (2, 2), (3, 4, 5), (2, 3, 4, 5), (2, 0, 4), (1, 1, 1, 1)])
def test_vector_add_nd(build, rng, shape):
    module = build("samples/vector_add_nd.te")
    a, b, c = normal(rng, *shape), normal(rng, *shape), empty(*shape)
    add = [module.add_1d, module.add_2d, module.add_3d, module.add_4d][len(shape) - 1]
    add(a, b, c)
    np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("schedule", ["default", "fast", "large"])
def test_transpose(build, rng, schedule, shape):
    a, b = normal(rng, *shape), empty(*shape[::-1])
    build("samples/transpose.te", schedule).transpose(a, b)
    np.testing.assert_array_equal(b, a.T)


@pytest.mark.parametrize("shape", SHAPES)
def test_reshape_flat(build, rng, shape):
    a, b = normal(rng, *shape), empty(shape[0] * shape[1])
    build("samples/reshape_flat.te").reshape_flat(a, b)
    np.testing.assert_array_equal(b, a.reshape(-1))


def test_reshape_flat_fixed(build, rng):
    a, b = normal(rng, 3, 4), empty(12)
    build("samples/reshape_flat.te").reshape_flat_fixed(a, b)
    np.testing.assert_array_equal(b, a.reshape(-1))


@pytest.mark.parametrize(
    "old, new", [((3, 4), (6, 2)), ((3, 4), (1, 12)), ((8, 9), (12, 6)), ((0, 4), (5, 0))]
)
def test_reshape(build, rng, old, new):
    a = normal(rng, *old)
    for function in (
        build("samples/reshape.te").reshape,
        build("samples/reshape.te").reshape_prefix,
    ):
        b = empty(*new)
        function(a, b)
        np.testing.assert_array_equal(b, a.reshape(new))


def test_reshape_checks_the_shapes(build, rng):
    module = build("samples/reshape.te")
    a, b = normal(rng, 3, 4), np.zeros((2, 5), np.float32)
    with pytest.raises(ValueError, match=r"p \* q == n \* m"):
        module.reshape(a, b)
    assert (b == 0).all()
    module.reshape_prefix(a, b)
    np.testing.assert_array_equal(b.reshape(-1), a.reshape(-1)[:10])
    # A larger result is refused, and nothing is written.
    b = np.zeros((5, 4), np.float32)
    with pytest.raises(ValueError):
        module.reshape_prefix(a, b)
    assert (b == 0).all()


@pytest.mark.parametrize(
    "bi, si, bj, sj", [(1, 2, 1, 1), (2, 1, 0, 2), (0, 1, 0, 1), (0, 3, 2, 5), (3, 1, 4, 1)]
)
def test_slice(build, rng, bi, si, bj, sj):
    a = normal(rng, 7, 9)
    shape = ((7 - bi) // si, (9 - bj) // sj)
    b = empty(*shape)
    build("samples/slice.te").slice(a, b, bi, si, bj, sj)
    np.testing.assert_array_equal(b, a[bi::si, bj::sj][: shape[0], : shape[1]])


def test_slice_checks_its_arguments(build, rng):
    module = build("samples/slice.te")
    a, b = normal(rng, 3, 4), np.zeros((1, 3), np.float32)
    with pytest.raises(ValueError, match="bi >= 0"):
        module.slice(a, b, -1, 2, 1, 1)
    with pytest.raises(ValueError, match="si >= 1"):
        module.slice(a, b, 1, 0, 1, 1)
    with pytest.raises(ValueError):  # `b` has the shape for other arguments.
        module.slice(a, b, 0, 1, 1, 1)
    assert (b == 0).all()


def fold(step, start, a):
    """Reduces the last axis, one term after the other."""
    acc = np.full(a.shape[:-1], start, a.dtype)
    for k in range(a.shape[-1]):
        acc = step(acc, a[..., k])
    return acc


@pytest.mark.parametrize("shape", SHAPES)
def test_sum_rows(build, rng, shape):
    a, b = normal(rng, *shape), empty(shape[0])
    build("samples/sum_rows.te", "default").sum_rows(a, b)
    np.testing.assert_array_equal(b, fold(np.add, 0, a))


@pytest.mark.parametrize("shape", SHAPES + [(9, 1000)])
def test_sum_rows_reassociated(build, rng, shape):
    a, b = normal(rng, *shape), empty(shape[0])
    build("samples/sum_rows.te", "fast").sum_rows(a, b)
    exact = a.astype(np.float64).sum(axis=1)
    assert_sum_close(b, exact, np.abs(a).sum(axis=1), shape[1])


@pytest.mark.parametrize("shape", SHAPES)
def test_sum_all(build, rng, shape):
    a, b = normal(rng, *shape), empty()
    build("samples/sum_all.te").sum_all(a, b)
    np.testing.assert_array_equal(b, fold(np.add, 0, a.reshape(-1)))


@pytest.mark.parametrize("shape", SHAPES)
def test_min_max_rows(build, rng, shape):
    a, lo, hi = normal(rng, *shape), empty(shape[0]), empty(shape[0])
    build("samples/min_max_rows.te").min_max_rows(a, lo, hi)
    np.testing.assert_array_equal(lo, a.min(axis=1, initial=np.inf))
    np.testing.assert_array_equal(hi, a.max(axis=1, initial=-np.inf))


@pytest.mark.parametrize("shape", SHAPES)
def test_any_all_rows(build, rng, shape):
    a = normal(rng, *shape) + 1
    some, every = np.zeros(shape[0], bool), np.zeros(shape[0], bool)
    build("samples/min_max_rows.te").any_all_rows(a, some, every)
    np.testing.assert_array_equal(some, (a > 0).any(axis=1))
    np.testing.assert_array_equal(every, (a > 0).all(axis=1))


@pytest.mark.parametrize("shape", SHAPES)
def test_prod_rows(build, rng, shape):
    a, b = normal(rng, *shape), empty(shape[0])
    build("samples/prod_rows.te").prod_rows(a, b)
    np.testing.assert_array_equal(b, fold(np.multiply, 1, a))


@pytest.mark.parametrize("shape", SHAPES)
def test_lower_triangle(build, rng, shape):
    a, b = normal(rng, *shape), empty(*shape)
    build("samples/lower_triangle.te").lower_triangle(a, b)
    np.testing.assert_array_equal(b, np.tril(a))


@pytest.mark.parametrize("p", [0, 1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_padding(build, rng, shape, p):
    a, b = normal(rng, *shape), empty(shape[0] + 2 * p, shape[1] + 2 * p)
    build("samples/padding.te", p=p).padding(a, b)
    np.testing.assert_array_equal(b, np.pad(a, p))


@pytest.mark.parametrize("schedule", ["default", "good", "bad", "fast"])
@pytest.mark.parametrize("first", [(3, 4), (1, 4), (3, 1), (1, 1)])
@pytest.mark.parametrize("second", [(3, 4), (1, 4), (3, 1), (1, 1)])
def test_broadcast_add(build, rng, schedule, first, second):
    keys = dict(zip(["m1", "n1", "m2", "n2"], first + second))
    sizes = {f"broadcast_add.{key}": value for key, value in keys.items()}
    module = build("samples/broadcast_add.te", schedule, **sizes)
    a, b = normal(rng, *first), normal(rng, *second)
    c = empty(*(a + b).shape)
    module.broadcast_add(a, b, c)
    np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize("shape", SHAPES)
def test_broadcast_add_patterns(build, rng, shape):
    module = build("samples/broadcast_add.te")
    m, n = shape
    patterns = {
        "broadcast_add_column": ((m, 1), (m, n)),
        "broadcast_add_row": ((1, n), (m, n)),
        "broadcast_add_outer": ((m, 1), (1, n)),
        "broadcast_add_one": ((1, 1), (m, n)),
        "broadcast_add_same": ((m, n), (m, n)),
    }
    for kernel, (first, second) in patterns.items():
        a, b, c = normal(rng, *first), normal(rng, *second), empty(m, n)
        module[kernel](a, b, c)
        np.testing.assert_array_equal(c, a + b)


@pytest.mark.parametrize("schedule", ["default", "reorder", "parallel", "block", "cached_block"])
@pytest.mark.parametrize("n, m, l", [(1, 1, 1), (100, 100, 100), (17, 5, 33), (1, 64, 3)])
def test_matmul(build, rng, schedule, n, m, l):
    a, b, c = normal(rng, n, l), normal(rng, l, m), empty(n, m)
    build("samples/matmul.te", schedule, n=n, m=m, l=l).matmul(a, b, c)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert_sum_close(c, exact, np.abs(a) @ np.abs(b), l)


def test_padding_nd(build, rng):
    module = build("samples/padding_nd.te")
    for function, shape, val in (
        (module.padding_2d, (3, 4), 0),
        (module.padding_3d, (2, 3, 4), 0),
        (module.padding_4d, (2, 2, 3, 4), 0.5),
    ):
        a = normal(rng, *shape)
        expected = np.pad(a, [(0, 0)] * (len(shape) - 2) + [(1, 1), (2, 2)], constant_values=val)
        b = empty(*expected.shape)
        function(a, b)
        np.testing.assert_array_equal(b, expected)


def windows(x, kh, kw, ph, pw, sh, sw, val=0.0):
    """The windows of an image [c, h, w]: an array [c, kh, kw, oh, ow]."""
    x = np.pad(x, [(0, 0), (ph, ph), (pw, pw)], constant_values=val)
    oh, ow = (x.shape[1] - kh) // sh + 1, (x.shape[2] - kw) // sw + 1
    columns = [
        [x[:, a : a + oh * sh : sh, b : b + ow * sw : sw][:, :oh, :ow] for b in range(kw)]
        for a in range(kh)
    ]
    return np.stack([np.stack(row, 1) for row in columns], 1)


CONVS = [
    dict(kh=3, kw=3, ph=1, pw=1, sh=1, sw=1),
    dict(kh=3, kw=3, ph=0, pw=0, sh=1, sw=1),
    dict(kh=3, kw=2, ph=1, pw=0, sh=2, sw=1),
    dict(kh=1, kw=1, ph=0, pw=0, sh=3, sw=2),
    dict(kh=5, kw=4, ph=2, pw=3, sh=1, sw=3),
]


@pytest.mark.parametrize("schedule", ["default", "cached_block", "fast"])
@pytest.mark.parametrize("window", CONVS)
def test_conv(build, rng, schedule, window):
    sizes = dict(oc=4, ic=6, nh=12, nw=10)
    x, k = normal(rng, 6, 12, 10), normal(rng, 4, 6, window["kh"], window["kw"])
    w = windows(x, **window)
    exact = np.einsum("ockl,cklij->oij", k.astype(np.float64), w)
    y = empty(*exact.shape)
    build("samples/conv.te", schedule, **sizes, **window).conv(x, k, y)
    assert_sum_close(y, exact, np.einsum("ockl,cklij->oij", np.abs(k), np.abs(w)), 6 * 25)


def test_conv_with_default_sizes(build, rng):
    x, k, y = normal(rng, 6, 12, 12), normal(rng, 4, 6, 3, 3), empty(4, 12, 12)
    build("samples/conv.te").conv(x, k, y)
    w = windows(x, 3, 3, 1, 1, 1, 1)
    np.testing.assert_allclose(y, np.einsum("ockl,cklij->oij", k, w), atol=1e-4)


@pytest.mark.parametrize("schedule", ["default", "cached_block", "fast"])
@pytest.mark.parametrize("window", CONVS)
def test_packed_conv(build, rng, window, schedule):
    sizes = dict(oc=8, ic=6, nh=12, nw=10, toc=4, tic=3)
    x, k = normal(rng, 6, 12, 10), normal(rng, 8, 6, window["kh"], window["kw"])
    w = windows(x, **window)
    exact = np.einsum("ockl,cklij->oij", k.astype(np.float64), w)
    y = empty(*exact.shape)
    build("samples/packed_conv.te", schedule, **sizes, **window).packed_conv(x, k, y)
    assert_sum_close(y, exact, np.einsum("ockl,cklij->oij", np.abs(k), np.abs(w)), 6 * 25)


@pytest.mark.parametrize("schedule", ["default", "cached_block", "fast"])
@pytest.mark.parametrize("window", CONVS)
def test_packed_depthwise_conv(build, rng, window, schedule):
    x, k = normal(rng, 6, 12, 10), normal(rng, 6, 1, window["kh"], window["kw"])
    w = windows(x, **window)
    exact = np.einsum("ckl,cklij->cij", k[:, 0].astype(np.float64), w)
    y = empty(*exact.shape)
    sizes = dict(ic=6, nh=12, nw=10, tc=3)
    module = build("samples/packed_depthwise_conv.te", schedule, **sizes, **window)
    module.packed_depthwise_conv(x, k, y)
    assert_sum_close(y, exact, np.einsum("ckl,cklij->cij", np.abs(k[:, 0]), np.abs(w)), 25)


@pytest.mark.parametrize("schedule", ["default", "fast"])
@pytest.mark.parametrize("window", CONVS)
def test_depthwise_conv(build, rng, schedule, window):
    x, k = normal(rng, 5, 12, 10), normal(rng, 5, 1, window["kh"], window["kw"])
    w = windows(x, **window)
    exact = np.einsum("ckl,cklij->cij", k[:, 0].astype(np.float64), w)
    y = empty(*exact.shape)
    module = build("samples/depthwise_conv.te", schedule, ic=5, nh=12, nw=10, **window)
    module.depthwise_conv(x, k, y)
    assert_sum_close(y, exact, np.einsum("ckl,cklij->cij", np.abs(k[:, 0]), np.abs(w)), 25)


@pytest.mark.parametrize("schedule", ["default", "optimized", "fast"])
@pytest.mark.parametrize("window", CONVS)
def test_max_pool(build, rng, schedule, window):
    x = normal(rng, 4, 12, 10)
    expected = windows(x, **window, val=np.finfo(np.float32).min).max(axis=(1, 2))
    y = empty(*expected.shape)
    module = build("samples/max_pool.te", schedule, c=4, nh=12, nw=10, **window)
    module.max_pool(x, y)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("schedule", ["default", "optimized", "fast"])
@pytest.mark.parametrize("window", CONVS)
def test_avg_pool(build, rng, schedule, window):
    x = normal(rng, 4, 12, 10)
    w = windows(x, **window)
    # One term after the other, then one multiplication by the rounded reciprocal.
    total = fold(np.add, 0, np.moveaxis(w.reshape(4, -1, *w.shape[3:]), 1, -1))
    expected = total * np.float32(1 / (window["kh"] * window["kw"]))
    y = empty(*expected.shape)
    module = build("samples/avg_pool.te", schedule, c=4, nh=12, nw=10, **window)
    module.avg_pool(x, y)
    np.testing.assert_allclose(y, expected, rtol=3e-7)


@pytest.mark.parametrize("schedule", ["default", "optimized", "fast"])
@pytest.mark.parametrize("c, n", [(32, 28), (1, 1), (3, 5)])
def test_batch_norm(build, rng, schedule, c, n):
    x = normal(rng, c, n, n)
    mean, gamma, beta = (normal(rng, c, 1, 1) for _ in range(3))
    var = np.abs(normal(rng, c, 1, 1) + 1)
    y = empty(c, n, n)
    build("samples/batch_norm.te", schedule, c=c, n=n).batch_norm(x, mean, var, gamma, beta, y)
    expected = (x - mean) / np.sqrt(var + np.float32(1e-5)) * gamma + beta
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("schedule", ["default", "fast"])
@pytest.mark.parametrize("c, n", [(32, 28), (1, 1), (3, 5)])
def test_batch_norm_folded(build, rng, schedule, c, n):
    x = normal(rng, c, n, n)
    mean, gamma, beta = (normal(rng, c) for _ in range(3))
    var = np.abs(normal(rng, c)) + 0.5
    y = empty(c, n, n)
    module = build("samples/batch_norm.te", schedule, c=c, n=n)
    module.batch_norm_folded(x, mean, var, gamma, beta, y)
    scale = gamma.astype(np.float64) / np.sqrt(var + 1e-5)
    expected = x * scale[:, None, None] + (beta - mean * scale)[:, None, None]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", ["default", "fast"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_matmul_add(build, rng, schedule, dtype):
    shapes = (12, 7), (7, 9), (12, 9)
    a, b, c = ((rng.standard_normal(s) * 100).astype(dtype) for s in shapes)
    out = empty(12, 9, dtype=dtype)
    build("samples/matmul_add.te", schedule, N=12, L=7, M=9, T=dtype).matmul_add(a, b, c, out)
    if dtype == "int32":
        np.testing.assert_array_equal(out, a @ b + c)
    else:
        exact = a.astype(np.float64) @ b + c
        tolerance = 16 * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b) + np.abs(c))
        assert (np.abs(out - exact) <= tolerance).all()


def ways(flag, feature):
    """Schedules and targets of a dot product; without its instruction, one is skipped."""
    fast = pytest.param("fast", f"x86-avx512+{feature}", marks=needs_feature(flag))
    return [("default", None), ("fast", None), fast]


@pytest.mark.parametrize("schedule, target", ways("avx512_vnni", "vnni"))
def test_dot_int8(build, rng, schedule, target):
    a = rng.integers(0, 256, (16, 40), np.uint8)
    b = rng.integers(-128, 128, (40, 96), np.int8)
    out = empty(16, 96, dtype=np.int32)
    build("samples/dot_int8.te", schedule, target, n=16, l=40, m=96).dot_int8(a, b, out)
    np.testing.assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("schedule, target", ways("avx512_bf16", "bf16"))
def test_dot_bf16(build, rng, schedule, target):
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((16, 40), (40, 96)))
    out = empty(16, 96)
    module = Module(build.path("samples/dot_bf16.te", schedule, target, n=16, l=40, m=96))
    assert module.dl("dot_bf16", a, b, out) == 0, module.last_error()
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert_sum_close(out, a @ b, np.abs(a) @ np.abs(b), 40)


@pytest.mark.parametrize("schedule", ["default", "auto"])
def test_matmul_bf16(build, rng, schedule):
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((16, 40), (40, 24)))
    out = empty(16, 24)
    module = Module(build.path("samples/matmul_bf16.te", schedule, n=16, l=40, m=24))
    assert module.dl("matmul_bf16", a, b, out) == 0, module.last_error()
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert_sum_close(out, a @ b, np.abs(a) @ np.abs(b), 40)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("schedule", ["default", "fast"])
def test_conv_bwd_weight(build, rng, schedule, stride):
    batch, ci, co, n, k = 3, 2, 4, 9, 3
    o = (n - k) // stride + 1
    a, b = normal(rng, batch, ci, n, n), normal(rng, batch, co, o, o)
    shift = [
        [
            a[:, :, h : h + o * stride : stride, w : w + o * stride : stride][:, :, :o, :o]
            for w in range(k)
        ]
        for h in range(k)
    ]
    cols = np.stack([np.stack(row, 2) for row in shift], 2)  # batch, ci, kh, kw, oh, ow
    exact = np.einsum("nchkij,noij->ochk", cols.astype(np.float64), b)
    size = np.einsum("nchkij,noij->ochk", np.abs(cols), np.abs(b))
    sizes = dict(batch=batch, in_channel=ci, out_channel=co, in_h=n, kernel_h=k, stride_h=stride)
    module = build("samples/conv_bwd_weight.te", schedule, **sizes)
    for function in (module.conv_bwd_weight, module.conv_bwd_weight_steps):
        result = empty(co, ci, k, k)
        function(a, b, result)
        assert_sum_close(result, exact, size, batch * o * o)


def test_exp_vector(build, rng):
    x = np.concatenate(
        [
            rng.uniform(-110, 95, 9989),
            [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 88.7, 88.8, -103.9, -104.1],
        ]
    )
    x, y = x.astype(np.float32), empty(10000)
    build("samples/exp.te", n=10000).exp_vector(x, y)
    with np.errstate(over="ignore"):
        exact = np.exp(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(y[~finite], rounded[~finite])
    ulp = np.spacing(np.maximum(rounded[finite], np.float32(1e-45)))
    assert (np.abs(y[finite] - exact[finite]) <= ulp).all()


@pytest.mark.parametrize("m, n", [(1, 1), (4, 10), (33, 100)])
@pytest.mark.parametrize("schedule", ["default", "fast"])
@pytest.mark.parametrize("kernel", ["softmax", "softmax_reciprocal"])
def test_softmax(build, rng, kernel, schedule, m, n):
    x, y = normal(rng, m, n) * 10, empty(m, n)
    build("samples/softmax.te", schedule, m=m, n=n)[kernel](x, y)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=2e-5)


def layer_norm(x, gamma, beta, eps=1e-5):
    x = x.astype(np.float64)
    mean, var = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * gamma + beta


@pytest.mark.parametrize("schedule", ["default", "fast"])
@pytest.mark.parametrize("m, n", [(1, 1), (4, 10), (64, 256)])
def test_layer_norm(build, rng, schedule, m, n):
    x, gamma, beta, y = normal(rng, m, n), normal(rng, n), normal(rng, n), empty(m, n)
    build("samples/layer_norm.te", schedule, m=m, n=n).layer_norm(x, gamma, beta, y)
    np.testing.assert_allclose(y, layer_norm(x, gamma, beta), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[1] > 0])
def test_argmax_rows(build, rng, shape):
    module = build("samples/argmax.te")
    a = np.round(normal(rng, *shape) * 3)  # Many ties: the first one wins.
    for function in (module.argmax_rows, module.argbest_rows):
        index, value = empty(shape[0], dtype=np.int32), empty(shape[0])
        function(a, index, value)
        np.testing.assert_array_equal(index, a.argmax(axis=1))
        np.testing.assert_array_equal(value, a.max(axis=1, initial=-np.inf))


def test_argmax_of_infinities_nan_and_empty_rows(build):
    function = build("samples/argmax.te").argmax_rows
    a = np.array([[-np.inf] * 3, [np.nan] * 3, [np.nan, -np.inf, 1]], np.float32)
    index, value = empty(3, dtype=np.int32), empty(3)
    function(a, index, value)
    assert list(index) == [0, -1, 2] and list(value) == [-np.inf, -np.inf, 1]
    function(empty(3, 0), index, value)
    assert list(index) == [-1, -1, -1] and list(value) == [-np.inf] * 3


def test_conv_block(build, rng):
    x, w = normal(rng, 3, 32, 32), normal(rng, 8, 3, 3, 3)
    mean, gamma, beta = (normal(rng, 8) for _ in range(3))
    var = np.abs(normal(rng, 8)) + 0.5
    y = empty(8, 16, 16)
    build("samples/conv_block.te").conv_block(x, w, mean, var, gamma, beta, y)
    conv = np.einsum("ockl,cklij->oij", w.astype(np.float64), windows(x, 3, 3, 1, 1, 1, 1))
    column = (slice(None), None, None)
    norm = (conv - mean[column]) * (gamma / np.sqrt(var + 1e-5))[column] + beta[column]
    expected = np.maximum(norm, 0).reshape(8, 16, 2, 16, 2).max(axis=(2, 4))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_classifier(build, rng):
    x, gamma, beta = normal(rng, 8, 64), normal(rng, 64), normal(rng, 64)
    w, bias = normal(rng, 10, 64), normal(rng, 10)
    best, probability = empty(8, dtype=np.int32), empty(8)
    build("samples/classifier.te").classifier(x, gamma, beta, w, bias, best, probability)
    scores = layer_norm(x, gamma, beta) @ w.T.astype(np.float64) + bias
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(best, p.argmax(axis=1))
    np.testing.assert_allclose(probability, p.max(axis=1), rtol=1e-4)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


LAYERS = [(1, 1, 3, 4), (9, 2, 5, 24), (20, 1, 80, 256)]


@pytest.mark.parametrize("schedule", ["default", "auto"])
@pytest.mark.parametrize("steps, batch, inputs, units", LAYERS)
def test_lstm(build, rng, schedule, steps, batch, inputs, units):
    x = normal(rng, steps, batch, inputs)
    w = normal(rng, 4 * units, inputs) / np.float32(inputs**0.5)
    r = normal(rng, 4 * units, units) / np.float32(units**0.5)
    bias, h, c = normal(rng, 4 * units), normal(rng, batch, units), normal(rng, batch, units)
    all_h, cell = empty(steps, batch, units), empty(batch, units)
    module = build("samples/lstm.te", schedule, batch=batch, inputs=inputs, units=units)
    module.lstm(x, w, r, bias, h, c, all_h, cell)
    h, c = h.astype(np.float64), c.astype(np.float64)
    for t in range(steps):
        i, o, f, g = np.split(x[t] @ w.T.astype(np.float64) + h @ r.T + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(all_h[t], h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(cell, c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", ["default", "auto"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 200])
def test_iir(build, rng, schedule, steps):
    x, y = normal(rng, steps, 33), empty(steps, 33)
    a, b = np.array([-0.5, 0.25], np.float32), np.array([0.3, -0.1, 0.2], np.float32)
    build("samples/iir.te", schedule, channels=33).iir(x, a, b, y)
    exact = np.zeros((steps + 2, 33))
    fed = np.concatenate([np.zeros((2, 33)), x])
    for t in range(2, steps + 2):
        exact[t] = b[0] * fed[t] + b[1] * fed[t - 1] + b[2] * fed[t - 2]
        exact[t] -= a[0] * exact[t - 1] + a[1] * exact[t - 2]
    np.testing.assert_allclose(y, exact[2:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", ["default", "auto"])
@pytest.mark.parametrize("steps, n", [(1, 1), (2, 3), (7, 40), (100, 65)])
def test_heat(build, rng, schedule, steps, n):
    start, end = normal(rng, n, n), empty(n, n)
    build("samples/heat.te", schedule, n=n).heat(start, end, steps)
    u = start.astype(np.float64)
    for _ in range(steps - 1):
        new = u.copy()
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        new[1:-1, 1:-1] += 0.2 * (around - 4 * u[1:-1, 1:-1])
        u = new
    np.testing.assert_allclose(end, u, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", ["default", "auto", "fast", "tiles", "whole"])
@pytest.mark.parametrize("h, w, dtype", [(1, 1, "float32"), (5, 3, "uint8"), (210, 45, "float32")])
def test_edges(build, rng, schedule, h, w, dtype):
    def taps(a, axis, *weights):
        rows = np.clip(np.arange(a.shape[axis])[:, None] + np.arange(5) - 2, 0, a.shape[axis] - 1)
        return np.moveaxis(np.moveaxis(a, axis, -1)[..., rows] @ np.array(weights), -1, axis)

    image, strength = rng.integers(0, 256, (h, w)).astype(dtype), empty(h, w)
    build("samples/edges.te", schedule, h=h, w=w, T=dtype).edges(image, strength)
    u = taps(taps(image.astype(np.float64), 1, 1, 4, 6, 4, 1), 0, 1, 4, 6, 4, 1) / 256
    gx, gy = (taps(taps(u, at, 0, 1, 2, 1, 0), 1 - at, 0, -1, 0, 1, 0) for at in (0, 1))
    np.testing.assert_allclose(strength, np.hypot(gx, gy), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("schedule", ["default", "auto"])
@pytest.mark.parametrize("n", [1, 2, 17, 100])
def test_cholesky(build, rng, schedule, n):
    root, u, x = normal(rng, n, n), empty(n, n), empty(n, 5)
    a = (root @ root.T + n * np.eye(n)).astype(np.float32)
    module = build("samples/cholesky.te", schedule)
    module.cholesky(a, u)
    exact = np.linalg.cholesky(a.astype(np.float64)).T
    np.testing.assert_allclose(u, exact, rtol=1e-3, atol=1e-4)
    lower, b = np.ascontiguousarray(u.T), normal(rng, n, 5)
    module.triangular_solve(lower, b, x)
    exact = np.linalg.solve(lower.astype(np.float64), b)
    np.testing.assert_allclose(x, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("schedule", ["default", "auto", "fast"])
@pytest.mark.parametrize("n, m", [(0, 0), (0, 3), (4, 0), (1, 1), (20, 31), (140, 300)])
def test_edit_distance(build, rng, schedule, n, m):
    a, b = (rng.integers(0, 4, size, np.int32) for size in (n, m))
    table, last = empty(n + 1, m + 1, dtype=np.int32), empty(1, dtype=np.int32)
    module = build("samples/edit_distance.te", schedule)
    module.edit_distance(a, b, table)
    module.distance(a, b, last)
    exact = np.zeros((n + 1, m + 1), int)
    exact[0], exact[:, 0] = range(m + 1), range(n + 1)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            changed = exact[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            exact[i, j] = min(exact[i - 1, j] + 1, exact[i, j - 1] + 1, changed)
    np.testing.assert_array_equal(table, exact)
    assert last == exact[n, m]


@pytest.mark.parametrize("schedule", ["default", "auto"])
def test_viterbi(build, rng, schedule):
    emission, transition = normal(rng, 50, 8), normal(rng, 8, 8)
    before, score = empty(50, 8, dtype=np.int32), empty(50, 8)
    module = build("samples/edit_distance.te", schedule, states=8)
    module.viterbi(emission, transition, before, score)
    exact = np.zeros(8)
    for t in range(50):
        paths = exact[:, None] + transition + emission[t]
        np.testing.assert_array_equal(before[t], paths.argmax(axis=0))
        exact = paths.max(axis=0)
        np.testing.assert_allclose(score[t], exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("schedule", ["default", "auto", "fast"])
@pytest.mark.parametrize("n, m, l", [(1, 1, 1), (64, 64, 64), (33, 70, 19), (100, 3, 129)])
def test_gemm(build, rng, schedule, n, m, l):
    a, b, c = normal(rng, n, l), normal(rng, l, m), normal(rng, n, m)
    exact = 0.5 * (a.astype(np.float64) @ b) - 2.0 * c
    build("samples/gemm.te", schedule, n=n, m=m, l=l).gemm(0.5, a, b, -2.0, c)
    np.testing.assert_allclose(c, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("schedule", ["default", "auto"])
def test_decode(build, rng, schedule):
    heads, n, d = 3, 20, 16
    module = build("samples/decode.te", schedule, heads=heads, d=d)
    keys, values = np.full((heads, n, d), np.nan, np.float32), normal(rng, heads, n, d)
    keys[:, :], y = 7.0, empty(heads, d)
    kept_keys, kept_values = keys.copy(), values.copy()
    for at in range(n):
        q, key, value = (normal(rng, heads, d) for _ in range(3))
        module.decode(q, key, value, keys, values, y, at)
        kept_keys[:, at], kept_values[:, at] = key, value
        np.testing.assert_array_equal(keys, kept_keys)
        np.testing.assert_array_equal(values, kept_values)
        s = np.einsum("hd,htd->ht", q, keys[:, : at + 1]).astype(np.float64) * 0.125
        p = np.exp(s - s.max(axis=1, keepdims=True))
        exact = np.einsum("ht,htd->hd", p / p.sum(axis=1, keepdims=True), values[:, : at + 1])
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="at < n"):
        module.decode(q, key, value, keys, values, y, n)
    np.testing.assert_array_equal(keys, kept_keys)
    with pytest.raises(ValueError, match="shares memory"):
        module.decode(q, key, value, keys, keys, y, 0)


@pytest.mark.parametrize("schedule", ["default", "auto"])
@pytest.mark.parametrize("n, m", [(1, 1), (0, 3), (3, 40), (5, 700), (2, 9000)])
def test_sort(build, rng, schedule, n, m):
    # test_sort.py has the other types and special values.
    x = normal(rng, n, m).round(1)
    module = build("samples/sort.te", schedule)
    s, i, k = empty(n, m), empty(n, m, dtype=np.int64), min(m, 20)
    module.sort_rows(x, s)
    module.argsort_rows(x, i)
    order = np.argsort(x, axis=1, kind="stable")
    np.testing.assert_array_equal(i, order)
    np.testing.assert_array_equal(s, np.take_along_axis(x, order, axis=1))
    v, j, middle = empty(n, k), empty(n, k, dtype=np.int64), empty(n)
    module.topk(x, v, j)
    first = np.argsort(-x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(j, first)
    np.testing.assert_array_equal(v, np.take_along_axis(x, first, axis=1))
    module.median(x, middle)
    np.testing.assert_array_equal(middle, np.sort(x, axis=1)[:, (m - 1) // 2])
