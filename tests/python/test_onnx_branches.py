"""`If` on sizes, as `x.squeeze(-1)` of PyTorch becomes, and inputs that are frozen to a number."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import run_tec
from onnx_models import call, model, refused, run

F = np.float32
FLOAT = TensorProto.FLOAT


def branch(name, nodes, result):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(result, FLOAT, None)])


def squeezing(stride, rank=None):
    """A maximum over windows along the last axis, which goes if one window is left, times 2."""
    ones = [numpy_helper.from_array(np.array([value]), name) for name, value in
            (("last", -1), ("one", 1))]
    drop = branch("drop", [helper.make_node("Squeeze", ["m", "last"], ["less"])], "less")
    keep = branch("keep", [helper.make_node("Identity", ["m"], ["same"])], "same")
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[stride], strides=[stride]),
        helper.make_node("Shape", ["m"], ["s"]),
        helper.make_node("Gather", ["s", "last"], ["d"], axis=0),
        helper.make_node("Equal", ["d", "one"], ["c"]),
        helper.make_node("If", ["c"], ["q"], then_branch=drop, else_branch=keep),
        helper.make_node("Add", ["q", "q"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    shape = None if rank is None else [f"d{at}" for at in range(rank)]
    values = [] if shape is None else [info("q", FLOAT, shape)]
    graph = helper.make_graph(
        nodes, "g", [info("x", FLOAT, ["b", 3, "w"])], [info("y", FLOAT, shape)], ones,
        value_info=values,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def build(folder, own, *options):
    onnx.save(own, folder / "model.onnx")
    module = folder / f"model{len(list(folder.iterdir()))}.so"
    done = run_tec("build", folder / "model.onnx", "-o", module, "--no-sidecars", *options)
    assert done.returncode == 0, done.stderr
    return module


def expected(x, stride, squeezed):
    count = x.shape[2] // stride
    y = 2 * x[:, :, : count * stride].reshape(*x.shape[:2], count, stride).max(3)
    return y[:, :, 0] if squeezed else y


@pytest.mark.parametrize("options", [(), ("-D", "w=5"), ("-D", "b=2"), ("-D", "b=2", "-D", "w=5")])
def test_an_axis_of_one_window_goes(tmp_path, rng, options):
    module = build(tmp_path, squeezing(4), *options)
    x = rng.standard_normal((2, 3, 5)).astype(F)
    y = np.zeros((2, 3), F)
    assert call(module, "g", [x], [y]) == ""
    assert np.array_equal(y, expected(x, 4, True))


@pytest.mark.parametrize("width", [3, 8, 9, 400])
def test_calls_with_other_sizes_are_refused(tmp_path, rng, width):
    module = build(tmp_path, squeezing(4))
    x = rng.standard_normal((2, 3, width)).astype(F)
    error = call(module, "g", [x], [np.zeros((2, 3), F)])
    assert f"w is {width}" in error, error


@pytest.mark.parametrize("width", [8, 31])
@pytest.mark.parametrize("options", [(), ("-D", "w")])
def test_the_declared_rank_and_constant_sizes_decide(tmp_path, rng, width, options):
    constant = [f"w={width}" if option == "w" else option for option in options]
    module = build(tmp_path, squeezing(4, None if constant else 3), *constant)
    x = rng.standard_normal((2, 3, width)).astype(F)
    y = np.zeros((2, 3, width // 4), F)
    assert call(module, "g", [x], [y]) == ""
    assert np.array_equal(y, expected(x, 4, False))


def reshaping():
    inputs = {"x": np.zeros((2, 6), F), "rows": np.zeros((), np.int64)}
    rest = numpy_helper.from_array(np.array([-1]), "rest")
    nodes = [
        helper.make_node("Unsqueeze", ["rows", "axis"], ["r"]),
        helper.make_node("Concat", ["r", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    axis = numpy_helper.from_array(np.array([0]), "axis")
    own = model(nodes, inputs, {"y": np.zeros((3, 4), F)}, 17, [rest, axis])
    own.graph.output[0].type.tensor_type.ClearField("shape")
    return own


def test_an_input_is_frozen_to_a_number(tmp_path, rng):
    assert "--freeze rows=NUMBER" in refused(tmp_path, reshaping())
    x, y = rng.standard_normal((2, 6)).astype(F), np.zeros((3, 4), F)
    assert run(tmp_path, reshaping(), {"x": x}, {"y": y}, "--freeze", "rows=3") == ""
    assert np.array_equal(y, x.reshape(3, 4))
    for value, message in [("3.5", "`3.5` is none"), ("x.npy", "x.npy"), ("1e30", "is none")]:
        done = run_tec("build", tmp_path / "model.onnx", "--freeze", f"rows={value}")
        assert done.returncode == 1 and message in done.stderr, done.stderr
