"""Models with QuantizeLinear and DequantizeLinear (QDQ) against sums of integers in NumPy.

The expected values follow docs/NETWORKS.md: an exact sum, one multiplication in float32, one
rounding to nearest even, saturation. The results must be equal, not only near. The definition of
ONNX, in float64, is at most one step away.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import run_tec

F = np.float32
SEEDS = range(24)


class Builder:
    """A QDQ model under construction."""

    def __init__(self):
        self.nodes, self.initializers = [], []

    def constant(self, name, value):
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def dequantized(self, name, level):
        scale = self.constant(f"{name}_s", level["scale"])
        zero = self.constant(f"{name}_z", level["zero"])
        return self.node("DequantizeLinear", [name, scale, zero], f"{name}_f", axis=level["axis"])

    def quantized(self, name, value, level):
        scale = self.constant(f"{name}_s", level["scale"])
        zero = self.constant(f"{name}_z", level["zero"])
        return self.node("QuantizeLinear", [value, scale, zero], name)

    def weights(self, name, value, level):
        self.constant(name, value)
        return self.dequantized(name, level)

    def run(self, folder, inputs, output, shape, dtype):
        """Builds the model and calls it."""
        import tvm_ffi

        def info(name, array_shape, array_dtype):
            number = helper.np_dtype_to_tensor_dtype(np.dtype(array_dtype))
            return helper.make_tensor_value_info(name, number, array_shape)

        given = [info(name, value.shape, value.dtype) for name, value in inputs.items()]
        outputs = [info(output, shape, dtype)]
        graph = helper.make_graph(self.nodes, "quantized", given, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        onnx.checker.check_model(model)
        path = folder / "quantized.onnx"
        onnx.save(model, path)
        done = run_tec("build", path, "-o", folder / "quantized.so")
        assert done.returncode == 0, done.stderr
        text = run_tec("import", path, "-o", folder / "quantized.te")
        assert text.returncode == 0, text.stderr
        result = np.zeros(shape, dtype)
        module = tvm_ffi.load_module(str(folder / "quantized.so"))
        module.quantized(*inputs.values(), result)
        return result, (folder / "quantized.te").read_text()


def level(rng, dtype, scale=None, zero=None):
    """One scale and zero point; zero points at both ends are frequent."""
    limits = np.iinfo(dtype)
    ends = [limits.min, limits.max, 0, rng.integers(limits.min, limits.max, endpoint=True)]
    zero = rng.choice(ends) if zero is None else zero
    scale = rng.uniform(0.001, 0.1) if scale is None else scale
    return {"scale": F(scale), "zero": dtype(zero), "axis": 0}


def data(rng, shape, dtype):
    """Random bytes, often only the extreme ones."""
    limits = np.iinfo(dtype)
    if rng.integers(3) == 0:
        return rng.choice([limits.min, limits.max], shape).astype(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def rounded(value, to, low=-np.inf, high=np.inf):
    """Rounds relative to the zero point of a level, between bounds of the model."""
    limits, zero = np.iinfo(to["zero"].dtype), int(to["zero"])

    def element(bound):
        return np.clip(np.rint(F(bound) / to["scale"]) + zero, limits.min, limits.max)

    return np.clip(np.rint(value) + zero, element(low), element(high)).astype(to["zero"].dtype)


def near(result, exact, to, low=-np.inf, high=np.inf):
    """Whether a result is at most one step from the definition of ONNX in float64."""
    limits = np.iinfo(to["zero"].dtype)
    value = np.clip(exact, low, high) / np.float64(to["scale"]) + int(to["zero"])
    expected = np.clip(np.rint(value), limits.min, limits.max)
    return np.abs(result.astype(int) - expected).max(initial=0) <= 1


def windows(x, taps, strides, dilations):
    """The elements of the windows of `x[c, …]`: `[c, taps…, out…]`."""
    extents = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[1:], taps, strides, dilations)
    ]
    result = np.empty([x.shape[0], *taps, *extents], x.dtype)
    for at in np.ndindex(*taps):
        places = [
            slice(i * d, i * d + (n - 1) * s + 1, s)
            for i, d, s, n in zip(at, dilations, strides, extents)
        ]
        result[(slice(None), *at)] = x[(slice(None), *places)]
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_convolution(seed, tmp_path):
    rng = np.random.default_rng(seed)
    rank = [2, 2, 2, 1][seed % 4]
    taps = [int(n) for n in rng.integers(1, 4, rank)]
    strides = [int(n) for n in rng.integers(1, 3, rank)]
    dilations = [int(n) for n in rng.integers(1, 3, rank)]
    pads = [int(n) for n in rng.integers(0, 3, 2 * rank)]
    kind = ["full", "depthwise", "grouped"][seed % 3]
    groups = {"full": 1, "depthwise": int(rng.integers(2, 20)), "grouped": 3}[kind]
    each = 1 if kind == "depthwise" else int(rng.integers(1, 10))
    out = groups * (1 if kind == "depthwise" else int(rng.integers(1, 20)))
    extents = [int(n) for n in rng.integers(5, 12, rank)]
    of_x = rng.choice([np.uint8, np.uint8, np.int8])
    of_w = rng.choice([np.int8, np.int8, np.uint8])
    x, w = data(rng, [1, each * groups, *extents], of_x), data(rng, [out, each, *taps], of_w)
    lx, ly = level(rng, of_x), level(rng, rng.choice([np.uint8, np.int8]))
    several = bool(rng.integers(2))
    count = [out] if several else []
    lw = {"scale": rng.uniform(1e-3, 1e-2, count).astype(F), "axis": 0}
    lw["zero"] = np.full(count, rng.choice([0, 0, 1, 127]), of_w)
    bias = rng.integers(-20000, 20000, out).astype(np.int32) if rng.integers(2) else None
    bounds = [(-np.inf, np.inf), (0.0, np.inf), (0.0, 1.5)][int(rng.integers(3))]

    model = Builder()
    inputs = [model.dequantized("x", lx), model.weights("w", w, lw)]
    if bias is not None:
        of_bias = (lx["scale"] * lw["scale"]).astype(F)
        of_zero = np.zeros(count, np.int32)
        inputs.append(
            model.weights("b", bias, {"scale": of_bias, "zero": of_zero, "axis": 0})
        )
    value = model.node(
        "Conv", inputs, "conv", pads=pads, strides=strides, dilations=dilations, group=groups
    )
    if bounds == (0.0, np.inf):
        value = model.node("Relu", [value], "bounded")
    elif bounds[1] < np.inf:
        ends = [model.constant("low", F(bounds[0])), model.constant("high", F(bounds[1]))]
        value = model.node("Clip", [value, *ends], "bounded")
    model.quantized("y", value, ly)

    centred = x[0].astype(np.int64) - int(lx["zero"])
    centred = np.pad(centred, [(0, 0), *zip(pads[:rank], pads[rank:])])
    cells = windows(centred, taps, strides, dilations)
    own_zero = lw["zero"].astype(np.int64).reshape([-1] + [1] * (rank + 1))
    weights = w.astype(np.int64) - own_zero
    total = np.stack([
        np.tensordot(
            weights[k],
            cells[k // (out // groups) * each:][:each],
            axes=(range(rank + 1), range(rank + 1)),
        )
        for k in range(out)
    ])
    channel = (-1, *[1] * rank)
    if bias is not None:
        total = total + bias.reshape(channel)
    factor = (lx["scale"] * lw["scale"]).astype(F) / ly["scale"]
    factor = np.broadcast_to(factor, [out]).reshape(channel)
    expected = rounded(total.astype(F) * factor, ly, *bounds)
    result, text = model.run(tmp_path, {"x": x}, "y", [1, *expected.shape], ly["zero"].dtype)
    assert "x_f" not in text, "the convolution is computed as written"
    np.testing.assert_array_equal(result[0], expected)
    scale = np.float64(lx["scale"]) * lw["scale"].astype(np.float64)
    exact = total * np.broadcast_to(scale, [out]).reshape(channel)
    assert near(result[0], exact, ly, *bounds)


@pytest.mark.parametrize("seed", SEEDS)
def test_product(seed, tmp_path):
    rng = np.random.default_rng(1000 + seed)
    gemm, transposed = bool(seed % 2), bool(rng.integers(2))
    n, m, k = (int(one) for one in rng.integers(1, 70, 3))
    of_x = rng.choice([np.uint8, np.int8])
    x, w = data(rng, [n, k], of_x), data(rng, [k, m], np.int8)
    lx, ly = level(rng, of_x), level(rng, np.uint8)
    transposed = gemm and transposed
    lw = {"scale": rng.uniform(1e-3, 1e-2, m).astype(F), "zero": np.zeros(m, np.int8)}
    lw["axis"] = 0 if transposed else 1
    stored = np.ascontiguousarray(w.T) if transposed else w
    model = Builder()
    inputs = [model.dequantized("x", lx), model.weights("w", stored, lw)]
    total = (x.astype(np.int64) - int(lx["zero"])) @ w.astype(np.int64)
    if gemm:
        bias = rng.integers(-(2**30), 2**30, m).astype(np.int32)
        of_bias = {"scale": lx["scale"] * lw["scale"], "zero": np.zeros(m, np.int32), "axis": 0}
        inputs.append(model.weights("b", bias, of_bias))
        total = total + bias
        value = model.node("Gemm", inputs, "product", transB=int(transposed))
    else:
        value = model.node("MatMul", inputs, "product")
    model.quantized("y", value, ly)
    expected = rounded(total.astype(F) * (lx["scale"] * lw["scale"] / ly["scale"]), ly)
    result, text = model.run(tmp_path, {"x": x}, "y", [n, m], np.uint8)
    assert "x_f" not in text, "the product is computed as written"
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("seed", range(8))
def test_sums_and_moves(seed, tmp_path):
    rng = np.random.default_rng(2000 + seed)
    dtype = rng.choice([np.uint8, np.int8])
    shape = [1, 5, 6, 7]
    a, b = data(rng, shape, dtype), data(rng, shape, dtype)
    la, lb, ly, lm = (level(rng, dtype) for _ in range(4))
    model = Builder()
    value = model.node("Add", [model.dequantized("a", la), model.dequantized("b", lb)], "added")
    y = model.quantized("y", value, ly)
    pooled = model.node(
        "MaxPool", [model.node("DequantizeLinear", [y, "y_s", "y_z"], "y_f")], "pool",
        kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1],
    )
    model.node("QuantizeLinear", [pooled, "y_s", "y_z"], "p")
    model.node("DequantizeLinear", ["p", "y_s", "y_z"], "p_f")
    model.quantized("m", model.node("GlobalAveragePool", ["p_f"], "mean"), lm)
    flat = model.node("Flatten", [model.node("DequantizeLinear", ["m", "m_s", "m_z"], "mf")], "fl")
    model.node("QuantizeLinear", [flat, "m_s", "m_z"], "f")
    model.node("Identity", ["f"], "out")

    # Both products and sums have one rounding each; float64 holds them exactly.
    ra, rb = la["scale"] / ly["scale"], lb["scale"] / ly["scale"]
    offset = F(ra * F(la["zero"])) + F(rb * F(lb["zero"]))
    fixed = F(ly["zero"]) - offset
    inner = (b.astype(np.float64) * rb + np.float64(fixed)).astype(F)
    total = (a.astype(np.float64) * ra + np.float64(inner)).astype(F)
    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(total), limits.min, limits.max).astype(np.int64)
    padded = np.pad(expected[0], [(0, 0), (1, 1), (0, 1)], constant_values=limits.min)
    pool = windows(padded, [3, 2], [2, 1], [1, 1]).max(axis=(1, 2))
    count = pool.shape[1] * pool.shape[2]
    means = pool.sum(axis=(1, 2)) - count * int(ly["zero"])
    expected = rounded(means.astype(F) * (ly["scale"] / (lm["scale"] * F(count))), lm)
    result, text = model.run(tmp_path, {"a": a, "b": b}, "out", [1, 5], dtype)
    assert "a_f" not in text, "the sum is computed as written"
    np.testing.assert_array_equal(result[0], expected)


@pytest.mark.parametrize("is_constant", [True, False])
def test_qlinear_convolution(is_constant, tmp_path):
    """Constant weights take the same way as QDQ; others have the same integers."""
    rng = np.random.default_rng(3000)
    x, w = data(rng, [1, 6, 9, 9], np.uint8), data(rng, [10, 6, 3, 3], np.int8)
    bias = rng.integers(-9999, 9999, 10).astype(np.int32)
    model, names, inputs = Builder(), ["x"], {"x": x}
    for name, scale, zero in [("x", 0.02, 7), ("w", 0.003, 0), ("y", 0.9, 100)]:
        of_zero = (np.int8 if name == "w" else np.uint8)(zero)
        level_of = [model.constant(f"{name}_s", F(scale)), model.constant(f"{name}_z", of_zero)]
        if name == "w":
            names.append(model.constant("w", w) if is_constant else "w")
        names.extend(level_of)
    names.append(model.constant("b", bias))
    if not is_constant:
        inputs["w"] = w
    model.node("QLinearConv", names, "y", pads=[1, 1, 1, 1])
    padded = np.pad(x[0].astype(np.int64) - 7, [(0, 0), (1, 1), (1, 1)])
    cells = windows(padded, [3, 3], [1, 1], [1, 1])
    total = np.tensordot(w.astype(np.int64), cells, axes=([1, 2, 3], [0, 1, 2]))
    total += bias.reshape(-1, 1, 1)
    to = {"scale": F(0.9), "zero": np.uint8(100)}
    expected = rounded(total.astype(F) * (F(0.02) * F(0.003) / F(0.9)), to)
    result, _ = model.run(tmp_path, inputs, "y", [1, 10, 9, 9], np.uint8)
    np.testing.assert_array_equal(result[0], expected)


def test_int32_limit(tmp_path):
    """A sum that could leave int32 is computed as written, a sum that just cannot is exact."""
    terms = (2**31 - 1) // (255 * 128)
    for k, is_exact in ((terms, True), (terms + 1, False)):
        x, w = np.full([1, k], 255, np.uint8), np.full([k, 16], -128, np.int8)
        lx = {"scale": F(0.5), "zero": np.uint8(0), "axis": 0}
        lw = {"scale": F(0.5), "zero": np.int8(0), "axis": 0}
        ly = {"scale": F(2.0**24), "zero": np.uint8(255), "axis": 0}
        model = Builder()
        inputs = [model.dequantized("x", lx), model.weights("w", w, lw)]
        model.quantized("y", model.node("MatMul", inputs, "product"), ly)
        folder = tmp_path / str(k)
        folder.mkdir()
        result, text = model.run(folder, {"x": x}, "y", [1, 16], np.uint8)
        assert ("x_f" not in text) == is_exact
        assert (result == 223).all()
