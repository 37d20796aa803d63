"""Operators of ONNX that few models have, on inputs that its conformance tests lack."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_models import model, refused, run, run_node

F = np.float32


def reference(op, inputs, count=1, opset=27, domain="", **attributes):
    """The results of the reference evaluator."""
    names = [f"y{at}" for at in range(count)]
    node = helper.make_node(op, list(inputs), names, domain=domain, **attributes)
    outputs = {name: np.zeros(1, F) for name in names}
    own = model([node], inputs, outputs, opset, domain=domain)
    for output in own.graph.output:
        output.type.tensor_type.ClearField("shape")
    return ReferenceEvaluator(own).run(None, inputs)


def check(folder, op, inputs, count=1, rtol=1e-5, atol=1e-6, opset=27, **attributes):
    """Compares a node with the reference evaluator."""
    expected = reference(op, inputs, count, opset, **attributes)
    outputs = {f"y{at}": np.zeros_like(value) for at, value in enumerate(expected)}
    found = run_node(folder, op, inputs, outputs, opset, **attributes)
    for own, wanted in zip(found, expected):
        np.testing.assert_allclose(own, wanted, rtol, atol)


def dividends(rng, dtype):
    """Pairs of all magnitudes and signs, with the special values."""
    finfo = np.finfo(dtype)
    power = rng.integers(finfo.minexp, finfo.maxexp, (2, 4000))
    x, y = np.ldexp(rng.uniform(-1, 1, (2, 4000)), power).astype(dtype)
    near = (rng.integers(-50, 50, 1000).astype(dtype) / 4, rng.integers(-9, 9, 1000).astype(dtype))
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, finfo.max, finfo.tiny, 3.0]
    a, b = np.meshgrid(np.array(special, dtype), np.array(special, dtype))
    return tuple(np.concatenate([x, n, s.ravel()]) for x, n, s in zip((x, y), near, (a, b)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_remainders_are_exact(tmp_path, rng, dtype, fmod):
    x, y = dividends(rng, dtype)
    [z] = run_node(tmp_path, "Mod", {"x": x, "y": y}, {"z": np.zeros_like(x)}, fmod=fmod)
    expected = np.fmod(x, y)
    if not fmod:
        # The specification differs from NumPy where the dividend is infinite or the divisor is.
        other = (expected != 0) & ((expected < 0) != (y < 0))
        expected = np.where(other, expected + y, expected)
        expected = np.where(expected == 0, np.copysign(dtype(0), y), expected).astype(dtype)
    assert np.array_equal(z, expected, equal_nan=True)
    there = ~np.isnan(expected) & ((expected != 0) | (not fmod))
    assert np.array_equal(np.signbit(z[there]), np.signbit(expected[there]))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_any_amount(tmp_path, dtype, direction):
    bits, signed = np.iinfo(dtype).bits, dtype[0] == "i"
    amounts = [0, 1, bits - 1, bits, bits + 1, 100, *([-1, -bits, -128] if signed else [])]
    values = [1, 5, np.iinfo(dtype).max, np.iinfo(dtype).min, *([-1, -6] if signed else [])]
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(np.array(values, dtype), amounts))
    [z] = run_node(
        tmp_path, "BitShift", {"x": x, "y": y}, {"z": np.zeros_like(x)}, direction=direction
    )
    for a, b, found in zip(x.tolist(), y.tolist(), z.tolist()):
        if not 0 <= b < bits:
            expected = -1 if direction == "RIGHT" and a < 0 else 0
        else:
            expected = a << b if direction == "LEFT" else a >> b
        assert found == wrapped(expected, bits, signed)


def wrapped(value, bits, signed):
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(tmp_path, rng, rule):
    b, t, groups, heads, size, width = 2, 5, 2, 4, 4, 6
    inputs = {
        "q": rng.standard_normal((b, t, heads * size)).astype(F),
        "k": rng.standard_normal((b, t, groups * size)).astype(F),
        "v": rng.standard_normal((b, t, groups * width)).astype(F),
        "p": rng.standard_normal((b, groups, size, width)).astype(F),
    }
    names = [*inputs, "d" if "gated" in rule else "", "r" if "delta" in rule else ""]
    if "gated" in rule:
        inputs["d"] = -rng.uniform(0, 1, (b, t, groups * size)).astype(F)
    if "delta" in rule:
        inputs["r"] = rng.uniform(0, 1, (b, t, 1)).astype(F)
    attributes = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}
    node = helper.make_node("LinearAttention", names, ["y", "s"], **attributes)
    outputs = {"y": np.zeros((b, t, heads * width), F), "s": np.zeros_like(inputs["p"])}
    own = model([node], inputs, outputs, 27)
    expected = ReferenceEvaluator(own).run(None, inputs)
    assert not run(tmp_path, own, inputs, outputs)
    for found, wanted in zip(outputs.values(), expected):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


def test_a_deformed_convolution_with_groups(tmp_path, rng):
    inputs = {
        "x": rng.standard_normal((2, 4, 7, 6)).astype(F),
        "w": rng.standard_normal((6, 2, 3, 2)).astype(F),
        "o": rng.uniform(-3, 3, (2, 2 * 2 * 6, 4, 3)).astype(F),
        "b": rng.standard_normal(6).astype(F),
        "m": rng.uniform(0, 1, (2, 2 * 6, 4, 3)).astype(F),
    }
    attributes = {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 1], "strides": [2, 2]}
    check(tmp_path, "DeformConv", inputs, rtol=1e-4, atol=1e-4, opset=22, **attributes)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_determinants(tmp_path, rng, size):
    check(tmp_path, "Det", {"x": rng.standard_normal((3, size, size)).astype(F)}, atol=1e-5)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_n_grams_with_weights(tmp_path, rng, mode):
    x = rng.integers(0, 5, (4, 9))
    attributes = {
        "mode": mode,
        "min_gram_length": 1,
        "max_gram_length": 3,
        "max_skip_count": 2,
        "ngram_counts": [0, 3, 9],
        "ngram_indexes": [4, 0, 1, 2, 6, 3, 5],
        "pool_int64s": [0, 2, 3, 1, 2, 2, 2, 4, 0, 1, 2, 3],
        "weights": [0.5, 1.0, 2.0, 0.25, 3.0, 1.5, 4.0],
    }
    check(tmp_path, "TfIdfVectorizer", {"x": x}, opset=9, **attributes)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("op", ["Momentum", "Adagrad", "Adam"])
def test_steps_of_optimizers(tmp_path, rng, op, count):
    kinds = 4 if op == "Adam" else 3
    inputs = {"r": np.array(0.1, F), "t": np.array(count, np.int64)}
    inputs |= {f"p{at}": rng.uniform(0.5, 1, (2, 3)).astype(F) for at in range(2 * kinds)}
    attributes = {"norm_coefficient": 0.01}
    if op == "Momentum":
        attributes |= {"alpha": 0.9, "beta": 0.5, "mode": "nesterov"}
    elif op == "Adam":
        attributes |= {"norm_coefficient_post": 0.1}
    else:
        attributes |= {"decay_factor": 0.1}
    domain = "ai.onnx.preview.training"
    check(tmp_path, op, inputs, 2 * (kinds - 1), domain=domain, **attributes)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [False, True])
def test_short_time_transforms(tmp_path, rng, onesided, windowed):
    inputs = {"x": rng.standard_normal((2, 50, 1)).astype(F), "s": np.array(7, np.int64)}
    names = ["x", "s", "w" if windowed else "", "n"]
    inputs |= {"w": rng.uniform(0, 1, 16).astype(F)} if windowed else {}
    length = np.array(16, np.int64)
    # The declared shape of one side fits a length of 17, too.
    constants = [numpy_helper.from_array(length, "n")] if onesided else []
    inputs |= {} if onesided else {"n": length}
    node = helper.make_node("STFT", names, ["y"], onesided=onesided)
    outputs = {"y": np.zeros((2, 5, 9 if onesided else 16, 2), F)}
    own = model([node], inputs, outputs, 17, constants)
    [expected] = ReferenceEvaluator(own).run(None, inputs)
    assert not run(tmp_path, own, inputs, outputs)
    np.testing.assert_allclose(outputs["y"], expected, 1e-4, 1e-5)
    inputs["s"] = np.array(20, np.int64)
    error = run(tmp_path, own, inputs, outputs)
    assert "the number of frames is not that of the declared shape" in error


@pytest.mark.parametrize("length", [8, 9, 5, 12])
def test_inverse_of_half_of_a_transform(tmp_path, rng, length):
    x = rng.standard_normal((2, 5, 2)).astype(F)
    node = helper.make_node("DFT", ["x", "n", "a"], ["y"], inverse=1, onesided=1)
    constants = [
        numpy_helper.from_array(np.array(length), "n"),
        numpy_helper.from_array(np.array(1), "a"),
    ]
    inputs, outputs = {"x": x}, {"y": np.zeros((2, length, 1), F)}
    assert not run(tmp_path, model([node], inputs, outputs, 20, constants), inputs, outputs)
    expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, axis=1)
    np.testing.assert_allclose(outputs["y"][..., 0], expected, 1e-5, 1e-6)


@pytest.mark.parametrize("length", [256, 300, 331])
@pytest.mark.parametrize("parts, inverse, onesided", [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0)])
@pytest.mark.parametrize("axis", [1, 2])
def test_long_transforms(tmp_path, rng, length, parts, inverse, onesided, axis):
    """Lengths with near factors, transformed in two steps, and a prime one; a longer operand."""
    shape = [2, 3, 3, parts]
    shape[axis] = length + 4 if length == 300 else length
    x = rng.standard_normal(shape).astype(F)
    node = helper.make_node("DFT", ["x", "n", "a"], ["y"], inverse=inverse, onesided=onesided)
    constants = [
        numpy_helper.from_array(np.array(length), "n"),
        numpy_helper.from_array(np.array(axis), "a"),
    ]
    numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    transform = np.fft.ifft if inverse else np.fft.fft
    expected = transform(numbers, length, axis=axis)
    if onesided:
        expected = np.take(expected, range(length // 2 + 1), axis)
    expected = np.stack([expected.real, expected.imag], -1)
    inputs, outputs = {"x": x}, {"y": np.zeros(expected.shape, F)}
    assert not run(tmp_path, model([node], inputs, outputs, 20, constants), inputs, outputs)
    np.testing.assert_allclose(outputs["y"], expected, 0, 1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_chosen_rows(tmp_path, rng, axis):
    x = rng.standard_normal((3, 4)).astype(F)
    flags = np.array([True, False, True, *([False] * 4 + [True] if axis is None else [])])
    attributes = {} if axis is None else {"axis": axis}
    expected = np.compress(flags, x, axis=axis)
    inputs, outputs = {"x": x, "c": flags}, {"y": np.zeros_like(expected)}
    node = helper.make_node("Compress", ["x", "c"], ["y"], **attributes)
    own = model([node], inputs, outputs)
    assert not run(tmp_path, own, inputs, outputs)
    assert np.array_equal(outputs["y"], expected)
    inputs["c"] = np.zeros_like(flags)
    assert "the number of chosen elements must be" in run(tmp_path, own, inputs, outputs)
    # A constant condition needs no declared shape.
    inputs.pop("c")
    own = model([node], inputs, outputs, 28, [numpy_helper.from_array(flags, "c")])
    own.graph.output[0].type.tensor_type.ClearField("shape")
    outputs["y"][...] = 0
    assert not run(tmp_path, own, inputs, outputs)
    assert np.array_equal(outputs["y"], expected)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.float32])
def test_places_that_are_not_zero(tmp_path, dtype):
    x = np.array([[[1, 0, 2], [0, 0, 0]], [[0, 3, 0], [4, 0, 0]]]).astype(dtype)
    expected = np.array(np.nonzero(x))
    inputs, outputs = {"x": x}, {"y": np.zeros_like(expected)}
    own = model([helper.make_node("NonZero", ["x"], ["y"])], inputs, outputs)
    assert not run(tmp_path, own, inputs, outputs)
    assert np.array_equal(outputs["y"], expected)
    inputs["x"] = np.ones_like(x)
    assert "the number of chosen elements must be 4" in run(tmp_path, own, inputs, outputs)
    own.graph.output[0].type.tensor_type.ClearField("shape")
    assert "NonZero: the number of results depends on the data" in refused(tmp_path, own)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_different_elements(tmp_path, axis, is_sorted):
    x = np.array([[2, np.nan, 2, -0.0], [np.nan, 1, np.nan, 0], [2, np.nan, 2, 0]], F)
    found, *rest = np.unique(x, True, True, True, axis=None) if axis is None else (x,)
    if axis is None:
        places, inverse, counts = rest
    else:
        # NumPy does not compare slices with NaN.
        found, places, inverse, counts = np.unique(
            np.nan_to_num(x, nan=9), True, True, True, axis=axis
        )
        found = np.where(found == 9, np.nan, found)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(places)
        found = np.take(found, order, axis=axis or 0)
        places, counts = places[order], counts[order]
        inverse = np.argsort(order)[inverse]
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node("Unique", ["x"], ["y", "p", "i", "c"], sorted=is_sorted, **attributes)
    expected = {"y": found.astype(F), "p": places, "i": inverse, "c": counts}
    inputs = {"x": x}
    outputs = {name: np.zeros_like(value) for name, value in expected.items()}
    own = model([node], inputs, outputs)
    assert not run(tmp_path, own, inputs, outputs)
    for name, value in expected.items():
        assert np.array_equal(outputs[name], value, equal_nan=name == "y"), name
    inputs["x"] = np.arange(12, dtype=F).reshape(3, 4)
    if axis != 1:
        assert "the number of different elements must be" in run(tmp_path, own, inputs, outputs)


@pytest.mark.parametrize("dtype", [F, np.float16, np.float64])
@pytest.mark.parametrize("op", ["Relu", "Clip", "Max", "Min"])
def test_nan_stays_nan(tmp_path, op, dtype):
    special = np.array([0.0, 1.0, -1.0, np.nan, np.inf, -np.inf], dtype)
    x, y = (value.ravel() for value in np.meshgrid(special, special))
    inputs, constants = {"x": x}, []
    if op == "Clip":
        bounds = {"low": dtype(-0.5), "high": dtype(2.0)}
        constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in bounds.items()]
        expected = np.clip(x, dtype(-0.5), dtype(2.0))
    elif op == "Relu":
        expected = np.maximum(x, dtype(0))
    else:
        inputs["y"] = y
        constants = [numpy_helper.from_array(np.asarray(dtype(0.25)), "c")]
        choose = np.maximum if op == "Max" else np.minimum
        expected = choose(choose(x, y), dtype(0.25))
    outputs = {"z": np.zeros_like(x)}
    names = [*inputs, *(constant.name for constant in constants)]
    node = helper.make_node(op, names, ["z"])
    assert not run(tmp_path, model([node], inputs, outputs, 13, constants), inputs, outputs)
    assert np.array_equal(outputs["z"], expected, equal_nan=True)


def test_training_is_refused_by_the_call(tmp_path):
    x = np.ones((2, 3), F)
    inputs = {"x": x, "r": np.array(0.0, F), "t": np.array(True)}
    outputs = {"y": np.zeros_like(x), "m": np.zeros(x.shape, np.bool_)}
    own = model([helper.make_node("Dropout", ["x", "r", "t"], ["y", "m"])], inputs, outputs, 13)
    assert not run(tmp_path, own, inputs, outputs)
    assert np.array_equal(outputs["y"], x) and outputs["m"].all()
    inputs["r"] = np.array(0.5, F)
    assert "training is not supported" in run(tmp_path, own, inputs, outputs)
    inputs["t"] = np.array(False)
    assert not run(tmp_path, own, inputs, outputs)


def test_sequences_exist_at_import_alone(tmp_path, rng):
    body = helper.make_graph(
        [helper.make_node("Mul", ["e", "w"], ["f"])],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ew"],
        [helper.make_tensor_value_info("f", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x", "size"], ["s"], axis=1),
        helper.make_node("SequenceMap", ["s", "x2"], ["m"], body=body),
        helper.make_node("SequenceAt", ["m", "last"], ["a"]),
        helper.make_node("SequenceInsert", ["m", "a", "first"], ["i"]),
        helper.make_node("SequenceErase", ["i", "first"], ["d"]),
        helper.make_node("SequenceLength", ["i"], ["n"]),
        helper.make_node("ConcatFromSequence", ["i"], ["y"], axis=-1),
    ]
    constants = {"size": np.array(2), "last": np.array(-1), "first": np.array(0)}
    constants = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    x = rng.standard_normal((3, 5)).astype(F)
    inputs = {"x": x, "x2": np.float32([[2.0]])}
    outputs = {"y": np.zeros((3, 6), F), "n": np.array(0, np.int64)}
    own = model(nodes, inputs, outputs, 27, constants)
    # Each element of a sequence is an output.
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    sequence = helper.make_sequence_type_proto(element)
    own.graph.output.append(helper.make_value_info("d", sequence))
    onnx.save(own, tmp_path / "model.onnx")
    outputs |= {"d0": np.zeros((3, 2), F), "d1": np.zeros((3, 2), F), "d2": np.zeros((3, 1), F)}
    assert not run(tmp_path, own, inputs, outputs)
    parts = [2 * x[:, :2], 2 * x[:, 2:4], 2 * x[:, 4:]]
    assert np.array_equal(outputs["y"], np.concatenate([parts[2], *parts], axis=1))
    assert outputs["n"] == 4
    for at, part in enumerate(parts):
        assert np.array_equal(outputs[f"d{at}"], part)


REASONS = {
    "RandomNormalLike": "random numbers are not supported; pass them as an input",
    "ImageDecoder": "images in files are not decoded; decode them before the call",
}


@pytest.mark.parametrize("op", REASONS)
def test_refusals_say_why(tmp_path, op):
    inputs = {"x": np.zeros((1, 2, 4), np.uint8 if op == "ImageDecoder" else F)}
    node = helper.make_node(op, ["x"], ["y"])
    text = refused(tmp_path, model([node], inputs, {"y": np.zeros((1, 3), F)}, 20))
    assert f"{op}: {REASONS[op]}" in text


def test_old_opsets(tmp_path):
    x = np.array([[True, False]])
    [y] = run_node(tmp_path, "Not", {"x": x}, {"y": np.zeros_like(x)}, 1)
    assert np.array_equal(y, ~x)
    node = helper.make_node("Relu", ["x"], ["y"])
    z = np.zeros(3, F)
    text = refused(tmp_path, model([node], {"x": z}, {"y": z}, 5))
    assert "Relu: opset 5; the oldest one supported is 7" in text
