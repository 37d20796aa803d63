"""ONNX's types of at most 8 bits: casts, quantisation and moved elements, against ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_models import model, refused, run, run_node

FLOAT8 = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
]
FLOATS = [*FLOAT8, ml_dtypes.float4_e2m1fn]
INTEGERS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def number(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def codes_of(dtype):
    """Every number of a type."""
    codes = np.arange(16 if dtype is ml_dtypes.float4_e2m1fn else 256, dtype=np.uint8)
    return codes.view(dtype)


def same(found, expected):
    """Whether floats are equal, signs of zeros included; all NaNs are equal."""
    found, expected = found.astype(np.float32), expected.astype(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)
    there = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[there]), np.signbit(expected[there]))


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.float8_e8m0fnu])
@pytest.mark.parametrize("to", [np.float32, np.float16, np.float64])
def test_every_code_is_decoded(tmp_path, dtype, to):
    x = codes_of(dtype)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float32).astype(to)
    [y] = run_node(tmp_path, "Cast", {"x": x}, {"y": np.zeros(x.shape, to)}, to=number(to))
    same(y, expected)


def values(dtype, of):
    """Numbers of a type, what is between them and beside, and values beyond all of them."""
    numbers = np.unique(codes_of(dtype).astype(np.float64))
    numbers = numbers[np.isfinite(numbers)]
    middle = (numbers[1:] + numbers[:-1]) / 2
    beyond = numbers[-1] + (numbers[-1] - numbers[-2]) / 2
    special = [beyond, -beyond, 1e9, -1e9, 1e-9, -1e-9, np.inf, -np.inf, np.nan, 0.0, -0.0]
    with np.errstate(over="ignore"):
        around = np.concatenate([numbers, middle, special]).astype(of)
    if of == np.float32:
        around = np.concatenate([around, np.nextafter(around, of(9)), np.nextafter(around, of(-9))])
    return around


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("of", [np.float32, np.float16])
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_rounded_once(tmp_path, dtype, of, saturate):
    x = values(dtype, of)
    y = {"y": np.zeros(x.shape, dtype)}
    [y] = run_node(tmp_path, "Cast", {"x": x}, y, to=number(dtype), saturate=saturate)
    with np.errstate(invalid="ignore"):
        if saturate and dtype in FLOAT8:
            expected = numpy_helper.saturate_cast(x, np.dtype(dtype))
        else:
            expected = x.astype(dtype)
    if dtype is ml_dtypes.float4_e2m1fn:
        # The type has no NaN, and what becomes of one is not specified.
        there = ~np.isnan(x)
        x, y, expected = x[there], y[there], expected[there]
    same(y, expected)


# The largest power of two is 2^127; 2^-126 is the least normal float32.
POWERS = [1.0, 1.5, 1.4999999, 1.0000001, 0.99999994, 3.0, 2.0**-126, 2.0**127, 3.4e38, 0.1]


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two(tmp_path, mode):
    x = np.array(POWERS, np.float32)
    y = {"y": np.zeros(x.shape, ml_dtypes.float8_e8m0fnu)}
    to = TensorProto.FLOAT8E8M0
    [y] = run_node(tmp_path, "Cast", {"x": x}, y, to=to, round_mode=mode, saturate=1)
    same(y, numpy_helper.to_float8e8m0(x, True, mode))


@pytest.mark.parametrize("saturate", [1, 0])
def test_what_is_beyond_the_powers_of_two(tmp_path, saturate):
    x = np.array([0.0, 1e-45, np.inf, 3.4e38, np.nan], np.float32)
    y = {"y": np.zeros(x.shape, ml_dtypes.float8_e8m0fnu)}
    [y] = run_node(tmp_path, "Cast", {"x": x}, y, to=TensorProto.FLOAT8E8M0, saturate=saturate)
    low, high = 2.0**-127, 2.0**127
    expected = [low, low, high, high, np.nan] if saturate else [np.nan] * 5
    same(y, np.array(expected, np.float32))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0,), ()])
def test_integers_drop_bits(tmp_path, rng, name, shape):
    dtype = getattr(ml_dtypes, name)
    x = np.asarray(rng.integers(-40, 40, shape), np.int32)
    [y] = run_node(tmp_path, "Cast", {"x": x}, {"y": np.zeros(shape, dtype)}, to=number(dtype))
    bits = int(name[-1])
    low = INTEGERS[name][0]
    assert np.array_equal(y.astype(np.int32), (x - low) % (1 << bits) + low)
    z = {"z": np.zeros(shape, np.int64)}
    [z] = run_node(tmp_path, "Cast", {"y": y}, z, to=number(np.int64))
    assert np.array_equal(z, y.astype(np.int64))


@pytest.mark.parametrize("name", INTEGERS)
def test_quantised_integers_saturate(tmp_path, name):
    dtype, (low, high) = getattr(ml_dtypes, name), INTEGERS[name]
    x = np.array([[0.0, 0.75, -0.25, 1e9, -1e9], [0.25, 1.25, np.inf, -np.inf, 100.0]], np.float32)
    inputs = {"x": x, "s": np.float32([0.5]), "z": np.array([1], dtype)}
    [y] = run_node(tmp_path, "QuantizeLinear", inputs, {"y": np.zeros(x.shape, dtype)}, axis=0)
    with np.errstate(invalid="ignore"):
        expected = np.clip(np.rint(x / np.float32(0.5)) + 1, low, high).astype(np.int32)
    assert np.array_equal(y.astype(np.int32), expected)
    inputs = {"y": y, "s": np.float32([0.5]), "z": np.array([1], dtype)}
    outputs = {"w": np.zeros(x.shape, np.float32)}
    [w] = run_node(tmp_path, "DequantizeLinear", inputs, outputs, axis=0)
    assert np.array_equal(w, (expected - 1) * np.float32(0.5))


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e5m2"])
def test_weights_in_blocks(tmp_path, rng, name, raw):
    """Constant weights with a scale for each block, as exporters of language models write them."""
    dtype = getattr(ml_dtypes, name)
    weights = rng.integers(-2, 2, (6, 8)).astype(np.float32)
    weights = (weights if "u" not in name else np.abs(weights)).astype(dtype)
    scales = rng.uniform(0.5, 2.0, (6, 2)).astype(np.float32)
    constant = numpy_helper.from_array(weights, "w")
    if not raw:
        bytes_ = constant.raw_data
        constant.ClearField("raw_data")
        constant.int32_data.extend(bytes_)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=4),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x, y = rng.standard_normal((3, 6)).astype(np.float32), np.zeros((3, 8), np.float32)
    own = model(
        nodes, {"x": x}, {"y": y}, 25, [constant, numpy_helper.from_array(scales, "s")]
    )
    assert not run(tmp_path, own, {"x": x}, {"y": y})
    expected = x @ (weights.astype(np.float32) * np.repeat(scales, 4, axis=1))
    np.testing.assert_allclose(y, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["int4", "uint2", "float4_e2m1fn", "float8_e4m3fnuz"])
def test_elements_are_moved(tmp_path, rng, name):
    dtype = getattr(ml_dtypes, name)
    x, w = (rng.integers(0, 2, (3, 5)).astype(np.float32).astype(dtype) for _ in "xw")
    nodes = [
        helper.make_node("Concat", ["x", "w"], ["c"], axis=0),
        helper.make_node("Transpose", ["c"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
        helper.make_node("CastLike", ["f", "t"], ["z"]),
    ]
    f = np.float32([0.0, 1.0, 0.3])
    y, z = np.zeros((2, 15), dtype), np.zeros(3, dtype)
    inputs, outputs = {"x": x, "f": f}, {"y": y, "z": z}
    constants = [
        numpy_helper.from_array(w, "w"),
        numpy_helper.from_array(np.int64([2, 15]), "shape"),
    ]
    assert not run(tmp_path, model(nodes, inputs, outputs, 25, constants), inputs, outputs)
    expected = np.concatenate([x, w]).astype(np.float32).T.reshape(2, 15)
    assert np.array_equal(y.astype(np.float32), expected)
    assert np.array_equal(z.astype(np.float32), f.astype(dtype).astype(np.float32))


def test_arithmetic_is_refused(tmp_path):
    x, y = (np.zeros(4, ml_dtypes.float8_e5m2) for _ in "xy")
    node = helper.make_node("Add", ["x", "x"], ["y"])
    text = refused(tmp_path, model([node], {"x": x}, {"y": y}))
    assert "Add: the element type float8e5m2 is not supported" in text
