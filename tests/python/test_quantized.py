"""Quantised types against ml_dtypes: every code, every float16, boundaries, DLPack and bytes."""

import ml_dtypes
import numpy as np
import pytest

from conftest import needs_feature
from dl import Module, tensor

FILE = "tests/python/quantized.te"
AVX512 = needs_feature("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
TARGETS = [
    "x86-64",
    pytest.param("x86-avx2", marks=needs_feature("avx2", "fma", "f16c")),
    pytest.param("x86-avx512", marks=AVX512),
    "native",
]
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@pytest.fixture(scope="session", params=TARGETS)
def module(build, request):
    """The module for each target that this CPU runs."""
    return build(FILE, target=request.param)


def same(bits, expected):
    """Whether bytes are those of `expected`, where all NaNs are equal."""
    found = bits.view(expected.dtype)
    nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(found.astype(np.float32)), nan)
    assert np.array_equal(bits[~nan], expected.view(np.uint8)[~nan])
    assert set(bits[nan]) <= {0x7F if expected.dtype == E4M3 else 0x7E}


def test_every_code_is_decoded(module):
    codes = np.arange(256, dtype=np.uint8)
    out = [np.empty(256, t) for t in (np.float32, np.float32, np.float64, np.float16)]
    module.decode(codes, codes, *out)
    e, f = codes.view(E4M3), codes.view(E5M2)
    for found, expected in zip(out, (e, f, e, f), strict=True):
        expected = expected.astype(found.dtype)
        assert np.array_equal(found, expected, equal_nan=True)
        number = ~np.isnan(expected)
        assert np.array_equal(np.signbit(found[number]), np.signbit(expected[number]))


def encode(module, values):
    values = np.ascontiguousarray(values)
    e, f = np.empty(len(values), np.uint8), np.empty(len(values), np.uint8)
    module.encode(values, e, f)
    return e, f


def boundaries(dtype, of):
    """Every number, the midpoints between neighbours, and the floats of `of` beside them."""
    numbers = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    beyond = numbers[-1] + (numbers[-1] - numbers[-2]) / 2
    middle = (numbers[1:] + numbers[:-1]) / 2
    around = np.concatenate([numbers, middle, [beyond, 1e30, np.inf, np.nan]]).astype(of)
    up, down = np.nextafter(around, of(np.inf)), np.nextafter(around, of(-np.inf))
    all_of_them = np.concatenate([around, up, down])
    return np.concatenate([all_of_them, -all_of_them])


@pytest.mark.parametrize("of", [np.float32, np.float64])
def test_boundaries_are_rounded_once(build, of):
    # ml_dtypes converts float64 by way of float32 for some types; `exact` rounds by definition.
    module = build(FILE, T=of.__name__)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32).astype(of)
    small = (rng.standard_normal(100_000) * 2.0 ** rng.integers(-20, 18, 100_000)).astype(of)
    for dtype, at in ((E4M3, 0), (E5M2, 1)):
        values = np.concatenate([boundaries(dtype, of), bits, small])
        same(encode(module, values)[at], exact(values, dtype))


def exact(values, dtype):
    """Rounds by the definition, in float64: multiples of the quantum, ties to even."""
    fraction, least, largest = (3, -6, 448.0) if dtype == E4M3 else (2, -14, 57344.0)
    values = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exponent = np.frexp(np.where(np.isfinite(values), values, 1.0))[1] - 1
        quantum = np.ldexp(1.0, np.maximum(exponent, least) - fraction)
        rounded = np.rint(values / quantum) * quantum
    beyond = np.abs(rounded) > largest
    rounded[beyond] = np.nan if dtype == E4M3 else np.copysign(np.inf, rounded[beyond])
    # Every number is exact in float32, and ml_dtypes has its code.
    return rounded.astype(np.float32).astype(dtype)


@pytest.mark.parametrize("of", ["float16", "bfloat16"])
def test_every_16_bit_float_is_rounded(build, of):
    module = build(FILE, T=of)
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = bits.view(np.float16 if of == "float16" else ml_dtypes.bfloat16)
    e, f = np.empty(1 << 16, np.uint8), np.empty(1 << 16, np.uint8)
    if of == "float16":
        module.encode(values, e, f)
    else:
        native = Module(build.path(FILE, T=of))
        assert native.dl("encode", values, e, f) == 0, native.last_error()
    same(e, values.astype(np.float32).astype(E4M3))
    same(f, values.astype(np.float32).astype(E5M2))


def test_float32_agrees_with_ml_dtypes(module):
    rng = np.random.default_rng(7)
    values = rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32)
    values = np.concatenate([values, boundaries(E4M3, np.float32), boundaries(E5M2, np.float32)])
    e, f = encode(module, values)
    same(e, values.astype(E4M3))
    same(f, values.astype(E5M2))


def test_clamp_saturates(module):
    values = np.array([1e9, -1e9, 448, 460, 464, 465, -0.0, np.inf], np.float32)
    found = np.empty(len(values), np.uint8)
    module.saturate(values, found)
    assert found.tolist() == [0x7E, 0xFE, 0x7E, 0x7E, 0x7E, 0x7E, 0x80, 0x7E]


def nibbles(packed):
    """The elements of packed bytes, the first one in the low half."""
    both = np.stack([packed & 15, packed >> 4], axis=-1)
    return both.reshape(*packed.shape[:-1], -1).astype(np.int32)


def signed(values):
    return (values ^ 8) - 8


def test_four_bits_are_unpacked(module):
    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (3, 37), dtype=np.uint8)
    w, u = np.empty((3, 74), np.int32), np.empty((3, 74), np.float32)
    module.unpack(packed, packed, w, u)
    assert np.array_equal(w, signed(nibbles(packed)))
    assert np.array_equal(u, nibbles(packed))


def test_four_bits_are_packed(module):
    values = np.array([-9.5, -8, -1.9, 0, 7.9, 100, np.nan, np.inf], np.float32)
    w, u = np.full(4, 0xAA, np.uint8), np.full(4, 0xAA, np.uint8)
    module.pack(values, w, u)
    assert signed(nibbles(w)).tolist() == [-8, -8, -1, 0, 7, 7, 0, 7]
    assert nibbles(u).tolist() == [0, 0, 0, 0, 7, 15, 0, 15]


def test_the_last_half_byte_is_zero(module):
    values = np.arange(7, dtype=np.float32)
    w, u = np.full(4, 0xAA, np.uint8), np.full(4, 0xAA, np.uint8)
    module.pack(values, w, u)
    assert nibbles(w).tolist() == [*range(7), 0]
    assert nibbles(u).tolist() == [*range(7), 0]


def test_group_products(module):
    rng = np.random.default_rng(2)
    n, m = 5, 96
    packed = rng.integers(0, 256, (n, m // 2), dtype=np.uint8)
    s, x = rng.random((n, m // 32), np.float32), rng.random(m, np.float32)
    y = np.empty(n, np.float32)
    module.gemv(packed, s, x, y)
    w = signed(nibbles(packed)) * np.repeat(s, 32, axis=1).astype(np.float64)
    assert np.allclose(y, w @ x, rtol=1e-5)


@pytest.fixture(scope="session")
def native(build):
    return Module(build.path(FILE))


def test_dlpack_types(native):
    """DLPack's own types, with shapes in elements."""
    packed = np.arange(8, dtype=np.uint8).reshape(2, 4) * 37
    w, u = np.empty((2, 8), np.int32), np.empty((2, 8), np.float32)
    typed = [tensor(packed, shape=(2, 8), strides=(8, 1), code=c, bits=4) for c in (0, 1)]
    assert native.dl("unpack", *typed, w, u) == 0, native.last_error()
    assert np.array_equal(w, signed(nibbles(packed)))
    codes = np.arange(256, dtype=np.uint8)
    out = [np.empty(256, t) for t in (np.float32, np.float32, np.float64, np.float16)]
    given = [tensor(codes, code=10), tensor(codes, code=12)]
    assert native.dl("decode", *given, *out) == 0, native.last_error()
    assert np.array_equal(out[0], codes.view(E4M3).astype(np.float32), equal_nan=True)
    x, low, high = np.arange(7, dtype=np.float32), np.empty(4, np.uint8), np.empty(4, np.uint8)
    typed = [tensor(low, shape=(7,), code=0, bits=4), tensor(high, shape=(7,), code=1, bits=4)]
    assert native.dl("pack", x, *typed) == 0, native.last_error()
    assert nibbles(low).tolist() == [*range(7), 0]


REFUSED = {
    "another type": (
        lambda p, w: (tensor(p, code=0, bits=8), p, w, w),
        "argument 1 `W`: expected dtype int4 or uint8, got int8",
    ),
    "the other sign": (
        lambda p, w: (tensor(p, shape=(2, 8), strides=None, code=1, bits=4), p, w, w),
        "argument 1 `W`: expected dtype int4 or uint8, got uint4",
    ),
    "another extent": (
        lambda p, w: (p, np.zeros((2, 5), np.uint8), w, w),
        "argument 2 `U`: expected extent 8 in dimension 1 (`m`, from dimension 1 of argument 1 `W`),"
        " got 10 in 5 bytes",
    ),
    "odd rows": (
        lambda p, w: (
            tensor(p, shape=(2, 7), strides=None, code=0, bits=4),
            tensor(p, shape=(2, 7), strides=None, code=1, bits=4),
            np.empty((2, 7), np.int32),
            np.empty((2, 7), np.float32),
        ),
        "`assume m % 2 == 0` does not hold: m is 7",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_arguments(native, case):
    arguments, text = REFUSED[case]
    packed = np.zeros((2, 4), np.uint8)
    assert native.dl("unpack", *arguments(packed, np.empty((2, 8), np.int32))) == -1
    assert text in native.last_error()


def test_shared_bytes_are_refused(native):
    """The exact bytes of a tensor: half of its elements."""
    memory = np.zeros(64, np.uint8)
    x = memory[:32].view(np.float32)
    for offset, code in ((28, -1), (32, 0)):
        out = memory[offset : offset + 4]
        typed = tensor(out, shape=(8,), strides=None, code=0, bits=4)
        other = np.empty(4, np.uint8)
        assert native.dl("pack", x, typed, other) == code, native.last_error()
    # Two outputs side by side.
    first = tensor(memory[32:36], shape=(8,), strides=None, code=0, bits=4)
    second = tensor(memory[36:40], shape=(8,), strides=None, code=1, bits=4)
    assert native.dl("pack", x, first, second) == 0, native.last_error()
