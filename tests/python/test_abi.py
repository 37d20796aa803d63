"""Tests the checked entries of modules from Python: those of tvm-ffi and the C entries `_dl`."""

import concurrent.futures
import ctypes
import json
import struct
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

from conftest import ROOT, run_tec
from dl import DLTensor, Module, tensor

ABI = "tests/python/abi.te"


@pytest.fixture(scope="session")
def module(build):
    """The module, loaded by tvm-ffi."""
    return build(ABI)


@pytest.fixture(scope="session")
def native(build):
    """The same module, opened by ctypes."""
    return Module(build.path(ABI))


def f32(*shape):
    return np.ones(shape, np.float32)


def out(*shape, dtype=np.float32):
    """An output full of sevens, so that a write is detected."""
    return np.full(shape, 7, dtype)


def odd(n, dtype=np.float32):
    """An array at an odd address."""
    size = np.dtype(dtype).itemsize
    return np.frombuffer(bytearray(n * size + 1), dtype, offset=1, count=n)


SIGNATURE = r"\(in `add\(a: float32\[n\], b: float32\[n\], c: float32\[n\]\)`\)$"

# Each check of docs/ABI.md: arguments of `add`, the exception, its text.
REFUSED = {
    "too few": (lambda: (f32(3), f32(3)), TypeError, "^expected 3 arguments, got 2 "),
    "too many": (lambda: (f32(3),) * 4, TypeError, "^expected 3 arguments, got 4 "),
    "none": (lambda: (), TypeError, "^expected 3 arguments, got 0 "),
    "a list": (
        lambda: ([1.0], f32(1), f32(1)),
        TypeError,
        "^argument 1 `a`: expected a tensor, got a list ",
    ),
    "None": (
        lambda: (None, f32(1), f32(1)),
        TypeError,
        "^argument 1 `a`: expected a tensor, got None ",
    ),
    "an int": (
        lambda: (f32(1), 3, f32(1)),
        TypeError,
        "^argument 2 `b`: expected a tensor, got int ",
    ),
    "a float": (
        lambda: (f32(1), 3.5, f32(1)),
        TypeError,
        "^argument 2 `b`: expected a tensor, got float ",
    ),
    "a bool": (
        lambda: (f32(1), True, f32(1)),
        TypeError,
        "^argument 2 `b`: expected a tensor, got bool ",
    ),
    "a str": (
        lambda: (f32(1), f32(1), "c"),
        TypeError,
        "^argument 3 `c`: expected a tensor, got str ",
    ),
    "a long str": (
        lambda: (f32(1), f32(1), "c" * 99),
        TypeError,
        "^argument 3 `c`: expected a tensor, got str ",
    ),
    "memoryview": (
        lambda: (memoryview(b"1234"), f32(1), f32(1)),
        TypeError,
        "^argument 1 `a`: expected a tensor, got an object ",
    ),
    "np.bool_": (
        lambda: (np.bool_(True), f32(1), f32(1)),
        TypeError,
        "^argument 1 `a`: expected a tensor, got ",
    ),
    "rank 0": (
        lambda: (f32(), f32(1), f32(1)),
        ValueError,
        "^argument 1 `a`: expected 1 dimension, got 0 ",
    ),
    "rank 2": (
        lambda: (f32(3), f32(3, 1), f32(3)),
        ValueError,
        "^argument 2 `b`: expected 1 dimension, got 2 ",
    ),
    "float64": (
        lambda: (f32(3), np.ones(3), f32(3)),
        TypeError,
        "^argument 2 `b`: expected dtype float32, got float64 ",
    ),
    "int32": (
        lambda: (f32(3), np.ones(3, np.int32), f32(3)),
        TypeError,
        "^argument 2 `b`: expected dtype float32, got int32 ",
    ),
    "uint8": (
        lambda: (np.ones(3, np.uint8), f32(3), f32(3)),
        TypeError,
        "^argument 1 `a`: expected dtype float32, got uint8 ",
    ),
    "bool array": (
        lambda: (np.ones(3, bool), f32(3), f32(3)),
        TypeError,
        "^argument 1 `a`: expected dtype float32, got bool ",
    ),
    "complex": (
        lambda: (np.ones(3, np.complex64), f32(3), f32(3)),
        TypeError,
        "^argument 1 `a`: expected dtype float32, got complex64 ",
    ),
    "half": (
        lambda: (np.ones(3, np.float16), f32(3), f32(3)),
        TypeError,
        "^argument 1 `a`: expected dtype float32, got float16 ",
    ),
    "extent": (
        lambda: (f32(3), f32(4), f32(3)),
        ValueError,
        r"^argument 2 `b`: expected extent 3 in dimension 0 "
        r"\(`n`, from dimension 0 of argument 1 `a`\), got 4 ",
    ),
    "output extent": (
        lambda: (f32(3), f32(3), f32(2)),
        ValueError,
        "^argument 3 `c`: expected extent 3 in dimension 0 .*, got 2 ",
    ),
    "every second": (
        lambda: (f32(6)[::2], f32(3), f32(3)),
        ValueError,
        "^argument 1 `a`: expected a contiguous row-major tensor, "
        "but the stride of dimension 0 is 2 instead of 1 element ",
    ),
    "reversed": (
        lambda: (f32(3)[::-1], f32(3), f32(3)),
        ValueError,
        "the stride of dimension 0 is -1 instead of 1 element ",
    ),
    "broadcast": (
        lambda: (f32(3), dlpack(np.broadcast_to(f32(1), 3)), f32(3)),
        ValueError,
        "^argument 2 `b`: .* is 0 instead of 1 element ",
    ),
    "misaligned": (
        lambda: (odd(3), f32(3), f32(3)),
        ValueError,
        "^argument 1 `a`: the data is not aligned to 4 bytes, the size of float32 ",
    ),
}


def dlpack(array):
    """A tensor over a read-only array, which NumPy itself refuses to export."""
    return tvm_ffi.from_dlpack(array.__dlpack__(max_version=(1, 0)))


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused(module, name):
    arguments, exception, text = REFUSED[name]
    arguments = arguments()
    with pytest.raises(exception, match=text) as info:
        module.add(*arguments)
    assert info.type is exception
    with pytest.raises(exception, match=SIGNATURE):
        module.add(*arguments)
    if len(arguments) == 3 and isinstance(arguments[2], np.ndarray):
        assert (arguments[2] == 1).all(), "the output was written"


def test_keyword_arguments_are_refused(module):
    with pytest.raises(TypeError):
        module.add(a=f32(3), b=f32(3), c=f32(3))


def test_a_call_returns_none(module):
    c = out(3)
    assert module.add(f32(3), f32(3), c) is None
    assert (c == 2).all()


def test_after_an_error_the_next_call_works(module):
    for _ in range(100):
        with pytest.raises(TypeError):
            module.add(1, 2, 3)
        c = out(3)
        module.add(f32(3), f32(3), c)
        assert (c == 2).all()


def test_tensor_objects_are_accepted(module):
    c = out(5)
    module.add(tvm_ffi.from_dlpack(f32(5)), tvm_ffi.from_dlpack(f32(5)), tvm_ffi.from_dlpack(c))
    assert (c == 2).all()


def test_repeated_extents_must_agree(module):
    a, b = np.arange(24, dtype=np.float32).reshape(3, 4, 2), f32(4)
    c = out(3, 4)
    module.rows(a, b, c)
    np.testing.assert_array_equal(c, a.sum(axis=2) + b)
    with pytest.raises(
        ValueError, match="^argument 1 `a`: expected extent 2 in dimension 2, got 3 "
    ):
        module.rows(f32(3, 4, 3), b, c)
    with pytest.raises(
        ValueError,
        match=r"^argument 2 `b`: expected extent 4 in dimension 0 "
        r"\(`m`, from dimension 1 of argument 1 `a`\), got 5 ",
    ):
        module.rows(a, f32(5), c)
    with pytest.raises(
        ValueError, match="^argument 3 `c`: expected extent 3 in dimension 0 .*, got 4 "
    ):
        module.rows(a, b, out(4, 4))


def test_a_constant_extent_is_checked(module):
    b = out(100)
    module.fixed(f32(100), b)
    assert (b == 2).all()
    with pytest.raises(
        ValueError, match="^argument 1 `a`: expected extent 100 in dimension 0, got 200 "
    ):
        module.fixed(f32(200), b)


def test_rank_0_is_accepted_and_checked(module):
    b = np.zeros(())
    module.rank0(np.array(41.0), b)
    assert b == 42
    with pytest.raises(ValueError, match="^argument 1 `a`: expected 0 dimensions, got 1 "):
        module.rank0(np.ones(1), b)


@pytest.mark.parametrize("n, m", [(3, 4), (0, 4), (3, 0), (0, 0)])
def test_an_extent_that_is_an_expression_is_checked(module, n, m):
    a, b, c = np.arange(n, dtype=np.int32), -np.arange(m, dtype=np.int32), np.zeros(n + m, np.int32)
    module.concat(a, b, c)
    np.testing.assert_array_equal(c, np.concatenate([a, b]))
    wrong = np.full(n + m + 1, 7, np.int32)
    with pytest.raises(ValueError, match="`c`"):
        module.concat(a, b, wrong)
    assert (wrong == 7).all()


def test_empty_tensors_are_accepted(module):
    # NumPy gives an empty array strides of 0, which are ignored.
    module.add(f32(0), f32(0), f32(0))
    module.rows(f32(0, 4, 2), f32(4), f32(0, 4))
    module.rows(f32(3, 0, 2), f32(0), f32(3, 0))
    module.smooth(np.ones(0), np.ones(0))
    with pytest.raises(ValueError):
        module.add(f32(0), f32(1), f32(0))


def test_strides_of_extent_1_are_ignored(module):
    a = np.arange(24, dtype=np.float32).reshape(2, 6, 2)[0:1, :3]  # strides 12, 2, 1
    c = out(1, 3)
    module.rows(a, f32(3), c)
    np.testing.assert_array_equal(c, a.sum(axis=2) + 1)
    one = np.broadcast_to(f32(1), (1,))
    c = out(1)
    module.add(np.ones(5, np.float32)[::5], dlpack(one), c)
    assert (c == 2).all()


def test_a_transposed_tensor_is_refused(module):
    with pytest.raises(ValueError, match="expected a contiguous row-major tensor"):
        module.rows(f32(2, 4, 3).transpose(2, 1, 0), f32(4), out(3, 4))


def test_views_with_an_offset_are_accepted(module, native):
    base = np.arange(10, dtype=np.float32)
    c = out(4)
    module.add(base[3:7], base[5:9], c)
    np.testing.assert_array_equal(c, base[3:7] + base[5:9])
    # A producer may put the offset into `byte_offset` instead.
    c = out(4)
    a = tensor(base, shape=[4], byte_offset=12)
    b = tensor(base, shape=[4], byte_offset=20)
    assert native.dl("add", a, b, c) == 0, native.last_error()
    np.testing.assert_array_equal(c, base[3:7] + base[5:9])


def test_a_read_only_input_is_accepted(module):
    a = f32(3)
    a.flags.writeable = False
    with pytest.raises(BufferError):  # NumPy refuses the export.
        module.add(a, f32(3), out(3))
    c = out(3)
    module.add(dlpack(a), f32(3), c)
    assert (c == 2).all()


def test_an_output_that_overlaps_an_argument_is_refused(module):
    x = np.arange(8, dtype=np.float32)
    before = x.copy()
    for a, b, c, text in [
        (x, f32(8), x, "^argument 3 `c`: the output shares memory with argument 1 `a` "),
        (f32(8), x, x, "^argument 3 `c`: the output shares memory with argument 2 `b` "),
        (x[:4], f32(4), x[3:7], "shares memory"),
        (x[4:], f32(4), x[1:5], "shares memory"),
    ]:
        with pytest.raises(ValueError, match=text):
            module.add(a, b, c)
        np.testing.assert_array_equal(x, before)
    # Inputs may share memory, tensors may be adjacent, empty ones share nothing.
    module.add(x[:4], x[:4], x[4:])
    np.testing.assert_array_equal(x[4:], 2 * before[:4])
    module.add(x[:0], x[:0], x[:0])


def test_an_assumption_is_checked(module):
    b = out(32)
    module.blocks(f32(32), b)
    assert (b == 2).all()
    b = out(17)
    with pytest.raises(ValueError, match="n % 16 == 0"):
        module.blocks(f32(17), b)
    assert (b == 7).all()


def test_bounds_are_checked_at_run_time(module):
    a = np.arange(5, dtype=np.float32)
    b = out(3)
    module.prefix(a, b)
    np.testing.assert_array_equal(b, a[:3])
    b = out(6)
    with pytest.raises(ValueError, match="`a`"):
        module.prefix(a, b)
    assert (b == 7).all()


def test_a_run_time_integer_that_is_an_argument_is_checked(module):
    a, b = np.arange(9, dtype=np.float32), out(3)
    module.shifted(a, b, 4)
    np.testing.assert_array_equal(b, a[4:7])
    module.shifted(a, b, np.int64(6))
    np.testing.assert_array_equal(b, a[6:9])
    for k in (7, -1, 2**62, -(2**63), 2**63 - 1):
        b = out(3)
        with pytest.raises(ValueError):
            module.shifted(a, b, k)
        assert (b == 7).all()
    with pytest.raises(TypeError, match="^argument 3 `k`: expected int, got float "):
        module.shifted(a, b, 1.5)
    with pytest.raises(TypeError, match="^argument 3 `k`: expected int, got str "):
        module.shifted(a, b, "one")
    with pytest.raises((TypeError, OverflowError)):
        module.shifted(a, b, 2**70)


def test_an_extent_beyond_64_bits_is_called_so(module):
    y = np.zeros(6, np.int64)
    module.doubled(y, 3)
    np.testing.assert_array_equal(y, np.arange(6))
    with pytest.raises(ValueError, match=r"^extent `n\*2` does not fit 64 bits \(in `doubled\("):
        module.doubled(y, 2**62)
    with pytest.raises(ValueError, match=r"^extent `n\*2` is negative: -2 \(in `doubled\("):
        module.doubled(y, -1)


def test_indices_from_data_are_checked_before_anything_is_written(module):
    table, index = np.arange(5, dtype=np.float32), np.array([4, 0, 3], np.int32)
    c = out(3)
    module.gather(table, index, c)
    np.testing.assert_array_equal(c, table[index])
    for bad in (5, -1, 2**31 - 1, -(2**31)):
        index[2] = bad
        c = out(3)
        with pytest.raises(ValueError, match="`table`"):
            module.gather(table, index, c)
        assert (c == 7).all(), "written before all indices were checked"


def test_a_float_scalar_takes_any_number(module):
    b = out(3)
    for alpha, expected in [
        (2.5, 2.5),
        (2, 2),
        (True, 1),
        (np.float32(0.5), 0.5),
        (np.int32(4), 4),
    ]:
        module.scale(alpha, f32(3), b)
        assert (b == expected).all()
    for alpha in ("2", None, [2.0], f32(1)):
        with pytest.raises(TypeError, match="^argument 1 `alpha`: expected float, got "):
            module.scale(alpha, f32(3), b)


SCALARS = [
    ("f64", np.float64, 1 / 3),
    ("f32", np.float32, 1 / 3),
    ("f16", np.float16, 1 / 3),
    ("bf16", np.float32, 1 / 3),
    ("i8", np.int8, -128),
    ("i16", np.int16, -(2**15)),
    ("i32", np.int32, -(2**31)),
    ("i64", np.int64, -(2**63)),
    ("u8", np.uint8, 255),
    ("u16", np.uint16, 2**16 - 1),
    ("u32", np.uint32, 2**32 - 1),
    ("u64", np.uint64, 2**63 - 1),
    ("t", np.bool_, True),
]


def expected_scalars():
    values = [dtype(value) for _, dtype, value in SCALARS]
    values[3] = np.float32(ml_dtypes.bfloat16(1 / 3))
    return values


def test_every_type_of_scalar_is_passed_and_checked(module):
    outputs = [np.zeros((), dtype) for _, dtype, _ in SCALARS]
    module.scalars(*[value for _, _, value in SCALARS], *outputs)
    for (name, _, _), got, expected in zip(SCALARS, outputs, expected_scalars()):
        assert got == expected, name
    for k, bad in [
        (4, 128),
        (4, -129),
        (8, 256),
        (8, -1),
        (9, 2**16),
        (10, 2**32),
        (11, -1),
        (6, 2**31),
    ]:
        values = [value for _, _, value in SCALARS]
        values[k] = bad
        with pytest.raises(
            ValueError,
            match=f"^argument {k + 1} `{SCALARS[k][0]}`: {bad} does not fit u?int[0-9]+ ",
        ):
            module.scalars(*values, *outputs)


def test_c_entries_take_every_type_of_scalar_by_value(native):
    types = [
        ctypes.c_double,
        ctypes.c_float,
        ctypes.c_uint16,
        ctypes.c_uint16,
        ctypes.c_int8,
        ctypes.c_int16,
    ]
    types += [
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_uint8,
        ctypes.c_uint16,
        ctypes.c_uint32,
        ctypes.c_uint64,
    ]
    types += [ctypes.c_bool]
    values = [value for _, _, value in SCALARS]
    values[2] = int(np.float16(1 / 3).view(np.uint16))
    values[3] = int(np.array(1 / 3, ml_dtypes.bfloat16).view(np.uint16))
    for call in (native.dl, native.raw):
        outputs = [np.zeros((), dtype) for _, dtype, _ in SCALARS]
        assert call("scalars", *[t(v) for t, v in zip(types, values)], *outputs) == 0
        for (name, _, _), got, expected in zip(SCALARS, outputs, expected_scalars()):
            assert got == expected, name


def test_float16_tensors_are_accepted(module, rng):
    a = rng.standard_normal(100).astype(np.float16)
    b = np.zeros(100, np.float16)
    module.halves(a, b)
    np.testing.assert_array_equal(b, a + a)


def test_bool_tensors_are_accepted(module):
    b = np.zeros(2, bool)
    module.flip(np.array([True, False]), b)
    assert list(b) == [False, True]


def smooth(a):
    p = np.pad(a * 0.5, 1, mode="edge")
    return p[:-2] + p[1:-1] + p[2:]


def test_concurrent_calls_are_independent(module, rng):
    """Concurrent calls have their own temporaries and their own errors."""
    sizes = [1, 10, 1000, 50000]

    def work(seed):
        own = np.random.default_rng(seed)
        for turn in range(50):
            a = own.standard_normal(sizes[(seed + turn) % len(sizes)])
            b = np.empty_like(a)
            module.smooth(a, b)
            np.testing.assert_array_equal(b, smooth(a))
            with pytest.raises(
                ValueError, match=f"expected extent {seed + 1} in dimension 0 .*got {seed + 2} "
            ):
                module.add(f32(seed + 1), f32(seed + 2), f32(seed + 1))
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_call_works_with_the_gil_held(module):
    add = module.add
    add.release_gil = False
    c = out(3)
    add(f32(3), f32(3), c)
    assert (c == 2).all()


# ---- the C entries ----

DL_REFUSED = {
    "null tensor": (lambda: dict(a=None), "argument 1 `a`: the tensor is a null pointer"),
    "rank": (lambda: dict(b=tensor(f32(3), ndim=2)), "argument 2 `b`: expected 1 dimension, got 2"),
    "negative rank": (
        lambda: dict(b=tensor(f32(3), ndim=-1)),
        "argument 2 `b`: expected 1 dimension, got -1",
    ),
    "lanes": (
        lambda: dict(a=tensor(f32(3), lanes=4)),
        "argument 1 `a`: expected dtype float32, got float32x4",
    ),
    "bfloat16": (
        lambda: dict(a=tensor(f32(3), code=4, bits=16)),
        "argument 1 `a`: expected dtype float32, got bfloat16",
    ),
    "device": (
        lambda: dict(c=tensor(f32(3), device_type=2)),
        "argument 3 `c`: expected a tensor on the CPU, got one on cuda",
    ),
    "null shape": (
        lambda: dict(a=tensor(f32(3), shape=None)),
        "argument 1 `a`: the shape is a null pointer",
    ),
    "negative extent": (
        lambda: dict(a=tensor(f32(3), shape=[-1])),
        "argument 1 `a`: the extent of dimension 0 is negative: -1",
    ),
    "null data": (
        lambda: dict(a=tensor(f32(3), data=None)),
        "argument 1 `a`: the data is a null pointer",
    ),
    "odd offset": (
        lambda: dict(a=tensor(f32(3), byte_offset=2)),
        "argument 1 `a`: the data is not aligned to 4 bytes",
    ),
    "stride": (
        lambda: dict(a=tensor(f32(3), strides=[2])),
        "argument 1 `a`: expected a contiguous row-major tensor",
    ),
}


@pytest.mark.parametrize("name", DL_REFUSED)
def test_dl_refuses_wrong_tensors(native, name):
    make, text = DL_REFUSED[name]
    arguments = dict(a=tensor(f32(3)), b=tensor(f32(3)), c=tensor(out(3)))
    arguments.update(make())
    kept = arguments["c"].keep.copy()
    assert native.dl("add", *arguments.values()) != 0
    assert native.last_error().startswith(text)
    assert native.last_error().endswith("(in `add(a: float32[n], b: float32[n], c: float32[n])`)")
    np.testing.assert_array_equal(arguments["c"].keep, kept)


def test_dl_accepts_null_strides_shape_and_data_where_unused(native):
    c = out(3)
    assert native.dl("add", tensor(f32(3), with_strides=False), f32(3), c) == 0
    assert (c == 2).all()
    # An empty tensor may have no data.
    nothing = [tensor(f32(0), data=None) for _ in range(3)]
    assert native.dl("add", *nothing) == 0, native.last_error()
    # A tensor of rank 0 has neither shape nor strides.
    b = np.zeros(())
    assert native.dl("rank0", np.array(1.0), b) == 0
    assert b == 2


def test_dl_takes_run_time_integers_by_value(native):
    a, b = np.arange(9, dtype=np.float32), out(3)
    assert native.dl("shifted", a, b, ctypes.c_int64(4)) == 0
    np.testing.assert_array_equal(b, a[4:7])
    assert native.dl("shifted", a, b, ctypes.c_int64(7)) != 0
    assert "`a`" in native.last_error()


def test_raw_takes_every_run_time_integer(native):
    a, b = np.arange(9, dtype=np.float32), out(3)
    values = [ctypes.c_int64(v) for v in (9, 3, 5)]
    assert native.raw("shifted", a, b, *values) == 0
    np.testing.assert_array_equal(b, a[5:8])


def test_each_thread_has_its_last_error(native):
    assert native.dl("add", None, f32(1), f32(1)) != 0
    mine = native.last_error()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: native.dl("add", f32(1), f32(2), f32(1))).result() != 0
        theirs = pool.submit(native.last_error).result()
    assert mine == native.last_error() and "null pointer" in mine
    assert "expected extent 1" in theirs


def test_a_module_contains_its_manifest(build, native):
    native.library.tec_manifest.restype = ctypes.c_char_p
    own = json.loads(native.library.tec_manifest())
    done = run_tec("inspect", build.path(ABI), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == own
    names = {kernel["name"] for kernel in own["kernels"]}
    assert {"add", "scalars", "smooth"} <= names


def test_the_prefixed_names_exist(build, native):
    stem = build.path(ABI).rsplit("/", 1)[1].removesuffix(".so")
    for name in ("last_error", "manifest", "set_num_threads", "set_parallel_for"):
        assert hasattr(native.library, f"{stem}_{name}")
        assert hasattr(native.library, f"tec_{name}")


def test_two_modules_with_the_same_kernels_are_independent(build):
    small, large = build(ABI, **{"fixed.n": 5}), build(ABI, **{"fixed.n": 6})
    for n, own, other in ((5, small, large), (6, large, small)):
        b = out(n)
        own.fixed(f32(n), b)
        assert (b == 2).all()
        with pytest.raises(ValueError):
            other.fixed(f32(n), b)


# ---- other hosts, each in its own process ----

PRELUDE = """
import ctypes, os, sys
sys.path.insert(0, {tests!r})
os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"
import numpy as np
from dl import DLTensor, Module, tensor

class Any(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("zero", ctypes.c_uint32), ("value", ctypes.c_uint64)]

def packed(library, name, *args):
    "Calls the packed entry with DLTensor pointers (type 7); None is type 0, an int type 1."
    cells = (Any * max(len(args), 1))()
    for cell, arg in zip(cells, args):
        if isinstance(arg, DLTensor):
            cell.type, cell.value = 7, ctypes.addressof(arg)
        elif arg is not None:
            cell.type, cell.value = 1, arg
    ret = Any()
    entry = getattr(library, "__tvm_ffi_" + name)
    entry.argtypes = [ctypes.c_void_p, ctypes.POINTER(Any), ctypes.c_int32, ctypes.POINTER(Any)]
    code = entry(None, cells, len(args), ctypes.byref(ret))
    assert (ret.type, ret.zero, ret.value) == (0, 0, 0), "the result was written"
    return code

f32 = lambda n: np.ones(n, np.float32)
path = {path!r}
"""


def in_a_process(build, body):
    """Runs Python code in a new process and asserts that it reaches its end."""
    prelude = PRELUDE.format(tests=str(ROOT / "tests/python"), path=build.path(ABI))
    code = prelude + textwrap.dedent(body) + "\nprint('ok')\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("ok\n"), done.stdout + done.stderr


def test_packed_entries_work_without_tvm_ffi(build):
    in_a_process(
        build,
        """
        module = Module(path)
        a, b, c = (tensor(f32(3)) for _ in range(3))
        assert packed(module.library, "add", a, b, c) == 0
        assert (c.keep == 2).all()
        # Without tvm-ffi, no error is raised: only the return code reports the failure.
        assert packed(module.library, "add", a, b) == -1
        assert packed(module.library, "add", a, b, None) == -1
        assert packed(module.library, "add", a, b, 3) == -1
        assert packed(module.library, "add", a, b, tensor(f32(4))) == -1
        assert module.dl("add", f32(3), f32(4), f32(3)) != 0
        assert "expected extent 3" in module.last_error()
        assert "libtvm_ffi" not in open("/proc/self/maps").read()
        """,
    )


def test_a_module_opened_before_tvm_ffi_raises_its_errors(build):
    in_a_process(
        build,
        """
        module = Module(path)  # Its imports of libtvm_ffi stay unresolved.
        import tvm_ffi
        loaded = tvm_ffi.load_module(path)
        for wrong, kind in (((f32(3),), TypeError), ((f32(3), f32(4), f32(3)), ValueError)):
            try:
                loaded.add(*wrong)
            except kind as error:
                assert "(in `add(" in str(error)
            else:
                raise AssertionError("not refused")
        c = f32(3)
        loaded.add(f32(3), f32(3), c)
        assert (c == 2).all()
        assert "type_schema" in loaded.get_function_metadata("add")
        """,
    )


def test_a_module_finds_tvm_ffi_loaded_with_local_symbols(build):
    in_a_process(
        build,
        """
        import importlib.util, pathlib
        folder = pathlib.Path(importlib.util.find_spec("tvm_ffi").origin).parent
        library = next(folder.rglob("libtvm_ffi.so"))
        ffi = ctypes.CDLL(str(library), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        module = Module(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        a, b = tensor(f32(3)), tensor(f32(4))
        assert packed(module.library, "add", a, b, a) == -1
        error = ctypes.c_void_p()
        ffi.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
        assert error.value, "nothing was raised"

        def text(offset):
            pointer, size = (ctypes.c_uint64 * 2).from_address(error.value + offset)
            return ctypes.string_at(pointer, size).decode()

        assert text(24) == "ValueError"
        assert text(40).startswith("argument 2 `b`: expected extent 3 in dimension 0")
        """,
    )


def test_the_metadata_has_the_types_of_the_arguments(module):
    schema = module.get_function_metadata("scale")["type_schema"]
    schema = json.loads(schema) if isinstance(schema, str) else schema
    kinds = [arg["type"] for arg in schema["args"]]
    assert kinds == ["None", "float", "DLTensor*", "DLTensor*"]


# ---- the file ----


def segments_and_dynamic(data):
    """Program headers as (type, flags), and the tags of the dynamic section with their values."""
    assert data[:6] == b"\x7fELF\x02\x01"
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers, tags = [], []
    for k in range(count):
        kind, flags, start, _, _, length = struct.unpack_from("<IIQQQQ", data, offset + k * size)
        headers.append((kind, flags))
        if kind == 2:
            tags = [struct.unpack_from("<QQ", data, start + 16 * i) for i in range(length // 16)]
    return headers, tags


def test_a_module_needs_no_library_and_has_no_writable_code(build):
    data = open(build.path(ABI), "rb").read()
    headers, tags = segments_and_dynamic(data)
    stack = [flags for kind, flags in headers if kind == 0x6474E551]
    assert stack == [6], "PT_GNU_STACK must exist, with flags RW"
    names = {tag for tag, _ in tags}
    assert 1 not in names, "DT_NEEDED"
    assert 22 not in names, "DT_TEXTREL"
    assert not any(
        kind == 1 and flags & 3 == 3 for kind, flags in headers
    ), "a segment is writable and executable"
