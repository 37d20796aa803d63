"""Patterns that PyTorch's exporters write, where PyTorch's results are not those of ONNX's reference
or where shapes are computed in a roundabout way."""

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
        close(module, [x], [np.stack([np.interp(places, range(width), row) for row in x]).astype(F)])


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
