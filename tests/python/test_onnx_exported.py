"""Patterns that PyTorch's exporters write: operators on which PyTorch and onnxruntime agree against
ONNX's reference, and shapes that are computed in a roundabout way."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import run_tec
from onnx_models import call

F = np.float32


def build(folder, nodes, inputs, outputs, constants=(), opset=20):
    """Builds a model; `inputs` and `outputs` have an element type and a shape by name."""

    def infos(values):
        return [helper.make_tensor_value_info(name, *own) for name, own in values.items()]

    own = [numpy_helper.from_array(np.asarray(v), name) for name, v in dict(constants).items()]
    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), own)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    done = run_tec("build", path, "-o", folder / "model.so", "--no-sidecars")
    assert done.returncode == 0, done.stderr
    return folder / "model.so"


def close(module, inputs, expected, rtol=1e-5, atol=1e-6):
    """Calls a module and compares its results."""
    outputs = [np.zeros_like(value) for value in expected]
    error = call(module, "g", inputs, outputs)
    assert not error, error
    for own, wanted in zip(outputs, expected):
        np.testing.assert_allclose(own, wanted, rtol, atol)


@pytest.mark.parametrize("size", [7, "w"])
def test_corners_are_those_of_the_result(tmp_path, rng, size):
    # The reference of ONNX takes `7 * 2.5` as the length here.
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], mode="linear",
        coordinate_transformation_mode="align_corners",
    )
    one = (TensorProto.FLOAT, ["n", size])
    inputs, outputs = {"x": one}, {"y": (TensorProto.FLOAT, ["n", None])}
    module = build(tmp_path, [node], inputs, outputs, {"scales": np.array([1, 2.5], F)})
    for width in [7] if size == 7 else [7, 4, 1]:
        x = rng.standard_normal((3, width)).astype(F)
        places = np.linspace(0, width - 1, int(width * 2.5))
        rows = [np.interp(places, range(width), row) for row in x]
        close(module, [x], [np.stack(rows).astype(F)])


def cubic(distance):
    """Factors of a cubic with -0.75."""
    d = np.abs(distance)
    near = (1.25 * d - 2.25) * d * d + 1
    return np.where(d <= 1, near, ((-0.75 * d + 3.75) * d - 6) * d + 3)


@pytest.mark.parametrize("align", [0, 1])
def test_elements_of_a_cubic_are_clamped(tmp_path, rng, align):
    # The reference of ONNX clamps the coordinate.
    node = helper.make_node(
        "GridSample", ["x", "at"], ["y"], mode="cubic", padding_mode="border", align_corners=align
    )
    inputs = {"x": (TensorProto.FLOAT, [1, 1, "h", "w"]), "at": (TensorProto.FLOAT, [1, "m", 1, 2])}
    module = build(tmp_path, [node], inputs, {"y": (TensorProto.FLOAT, [1, 1, "m", 1])})
    x = rng.standard_normal((5, 6)).astype(F)
    at = np.concatenate([rng.uniform(-2, 2, (40, 2)), [[1e20, -1e20], [-1e9, 3e5]]]).astype(F)
    expected = []
    for place in at.astype(np.float64):
        value = x.astype(np.float64)
        for axis, (p, n) in enumerate(zip(place[::-1], x.shape)):
            c = (p + 1) / 2 * (n - 1) if align else ((p + 1) * n - 1) / 2
            places = np.floor(np.clip(c, -9, n + 9)) + np.arange(-1, 3)
            factors = cubic(np.clip(c, -9, n + 9) - places)
            value = np.tensordot(factors, value.take(np.clip(places, 0, n - 1).astype(int), 0), 1)
        expected.append(value)
    expected = np.array(expected, F).reshape(1, 1, -1, 1)
    close(module, [x[None, None], at[None, :, None]], [expected], 1e-4, 1e-5)


@pytest.mark.parametrize("form", ["times", "half", "ceil"])
def test_extents_are_fractions(tmp_path, rng, form):
    # `int(n * 2.5)`, `int((n + 1) / 2)` and `ceil(n / 3)`.
    chain = {
        "times": [("Mul", ["f", "a"], "p"), ("Cast", ["p"], "k")],
        "half": [("Add", ["f", "b"], "q"), ("Div", ["q", "c"], "p"), ("Cast", ["p"], "k")],
        "ceil": [("Div", ["f", "d"], "q"), ("Ceil", ["q"], "p"), ("Cast", ["p"], "k")],
    }[form]
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        *(
            helper.make_node(op, ins, [out], **({"to": TensorProto.INT64} if op == "Cast" else {}))
            for op, ins, out in chain
        ),
        helper.make_node("Cast", ["k"], ["l"], to=TensorProto.FLOAT),
        helper.make_node("Range", ["zero", "l", "b"], ["r"]),
        helper.make_node("Add", ["r", "first"], ["y"]),
        helper.make_node("ReduceSum", ["x"], ["first"], keepdims=0),
    ]
    nodes = nodes[:-2] + nodes[:-3:-1]
    numbers = {"a": 2.5, "b": 1, "c": 2, "d": 3, "zero": 0}
    module = build(
        tmp_path, nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.FLOAT, [None])},
        {name: F(value) for name, value in numbers.items()},
    )
    for n in [1, 2, 7, 9, 100]:
        x = rng.standard_normal(n).astype(F)
        count = {"times": int(n * 2.5), "half": (n + 1) // 2, "ceil": -(-n // 3)}[form]
        close(module, [x], [np.arange(count, dtype=F) + x.sum(dtype=F)], 1e-5, 1e-5)


def test_more_updates_than_indices(tmp_path, rng):
    node = helper.make_node("ScatterElements", ["x", "at", "v"], ["y"], axis=1)
    inputs = {
        "x": (TensorProto.FLOAT, ["b", "n"]), "at": (TensorProto.INT64, ["c", "k"]),
        "v": (TensorProto.FLOAT, ["b", "n"]),
    }
    module = build(tmp_path, [node], inputs, {"y": inputs["x"]})
    x, v = rng.standard_normal((2, 3, 8)).astype(F)
    at = np.stack([rng.permutation(8)[:5] for _ in range(2)])
    expected = x.copy()
    np.put_along_axis(expected[:2], at, v[:2, :5], 1)
    close(module, [x, at, v], [expected])


def test_updates_of_rows_and_columns(tmp_path, rng):
    # `x[:, at] = v`: places of two coordinates, both of run-time extents.
    node = helper.make_node("ScatterND", ["x", "at", "v"], ["y"])
    inputs = {
        "x": (TensorProto.FLOAT, ["b", "n"]), "at": (TensorProto.INT64, ["b", "k", 2]),
        "v": (TensorProto.FLOAT, ["b", "k"]),
    }
    module = build(tmp_path, [node], inputs, {"y": inputs["x"]})
    for b, n, k in [(3, 8, 5), (1, 1, 1), (2, 5, 5)]:
        x, v = rng.standard_normal((b, n)).astype(F), rng.standard_normal((b, k)).astype(F)
        columns = rng.permutation(n)[:k]
        at = np.stack(np.meshgrid(np.arange(b), columns, indexing="ij"), -1)
        expected = x.copy()
        expected[:, columns] = v
        close(module, [x, at, v], [expected])


@pytest.mark.parametrize("form", ["least", "open", "end"])
def test_bounds_of_a_slice_are_differences(tmp_path, rng, form):
    # `w[8 - min(n, 8) : 8 + min(n, 8)]` of 16 rows, `w[8 - n : 8 + n]`, `w[-n:]`.
    shape = helper.make_node("Shape", ["x"], ["n"], start=0, end=1)
    least = helper.make_node("Min", ["n", "half"], ["m"])
    size = "m" if form == "least" else "n"
    bounds = [
        helper.make_node("Sub", ["half", size], ["from"]),
        helper.make_node("Add", ["half", size], ["to"]),
    ]
    if form == "end":
        bounds = [
            helper.make_node("Neg", ["n"], ["from"]), helper.make_node("Identity", ["all"], ["to"])
        ]
    nodes = [
        shape, least, *bounds,
        helper.make_node("Slice", ["w", "from", "to", "zero"], ["part"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["part", "sum"], ["y"]),
    ]
    w = rng.standard_normal((16, 3)).astype(F)
    constants = {"w": w, "half": np.array([8]), "zero": np.array([0]), "all": np.array([2**63 - 1])}
    module = build(
        tmp_path, nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.FLOAT, [None, 3])},
        constants,
    )
    for n in [1, 3, 8] + [11] * (form == "least"):
        x = rng.uniform(1, 2, n).astype(F)
        m = min(n, 8)
        part = w[-n:] if form == "end" else w[8 - m : 8 + m]
        close(module, [x], [part * x.sum(dtype=F)])
    if form == "open":
        y = np.zeros((16, 3), F)
        assert "n" in call(module, "g", [np.ones(9, F), y], [])


def test_updates_of_an_inner_part(tmp_path, rng):
    # `x[:, 1:-1] = v` of the older exporter: the number of columns is `max(n - 2, 0)`.
    nodes = [
        helper.make_node("Slice", ["v", "one", "minus", "one"], ["inner"]),
        helper.make_node("Slice", ["at", "one", "minus", "one"], ["places"]),
        helper.make_node("ScatterND", ["x", "places", "inner"], ["y"]),
    ]
    inputs = {
        "x": (TensorProto.FLOAT, ["b", "n"]), "at": (TensorProto.INT64, ["b", "n", 2]),
        "v": (TensorProto.FLOAT, ["b", "n"]),
    }
    constants = {"one": np.array([1]), "minus": np.array([-1])}
    module = build(tmp_path, nodes, inputs, {"y": inputs["x"]}, constants)
    x, v = rng.standard_normal((2, 3, 8)).astype(F)
    at = np.stack(np.meshgrid(np.arange(3), np.arange(8), indexing="ij"), -1)
    expected = x.copy()
    expected[:, 1:-1] = v[:, 1:-1]
    close(module, [x, at, v], [expected])


def test_windows_of_a_padded_axis(tmp_path, rng):
    # `(4 - n % 4) % 4` elements of padding give whole windows.
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Mod", ["n", "four"], ["over"]),
        helper.make_node("Sub", ["four", "over"], ["some"]),
        helper.make_node("Mod", ["some", "four"], ["more"]),
        helper.make_node("Concat", ["zero", "zero", "more", "zero"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Add", ["n", "more"], ["all"]),
        helper.make_node("Div", ["all", "four"], ["windows"]),
        helper.make_node("Concat", ["windows", "four", "three"], ["split"], axis=0),
        helper.make_node("Reshape", ["padded", "split"], ["parts"]),
        helper.make_node("ReduceMax", ["parts", "one"], ["top"], keepdims=1),
        helper.make_node("Sub", ["parts", "top"], ["lower"]),
        helper.make_node("Concat", ["all", "three"], ["whole"], axis=0),
        helper.make_node("Reshape", ["lower", "whole"], ["joined"]),
        helper.make_node("Slice", ["joined", "zero", "n", "zero"], ["cut"]),
        helper.make_node("Add", ["cut", "x"], ["y"]),
    ]
    numbers = {"zero": 0, "one": 1, "three": 3, "four": 4}
    module = build(
        tmp_path, nodes, {"x": (TensorProto.FLOAT, ["n", 3])}, {"y": (TensorProto.FLOAT, ["n", 3])},
        {name: np.array([value]) for name, value in numbers.items()},
    )
    for n in [1, 4, 7, 13]:
        x = rng.standard_normal((n, 3)).astype(F)
        parts = np.pad(x, [(0, -n % 4), (0, 0)]).reshape(-1, 4, 3)
        lower = (parts - parts.max(1, keepdims=True)).reshape(-1, 3)[:n]
        close(module, [x], [lower + x])


def test_the_square_of_an_extent(tmp_path, rng):
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Pow", ["n", "two"], ["square"]),
        helper.make_node("Expand", ["number", "square"], ["all"]),
        helper.make_node("Reshape", ["all", "sides"], ["grid"]),
        helper.make_node("Concat", ["n", "minus"], ["sides"], axis=0),
        helper.make_node("Add", ["grid", "x"], ["y"]),
    ]
    nodes[3:5] = nodes[4:2:-1]
    module = build(
        tmp_path, nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.FLOAT, ["n", "n"])},
        {"two": np.array([2]), "number": F(3), "minus": np.array([-1])},
    )
    for n in [1, 5]:
        x = rng.standard_normal(n).astype(F)
        close(module, [x], [np.broadcast_to(x + F(3), (n, n)).copy()])
