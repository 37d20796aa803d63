"""Models of the domains ai.onnx.ml and com.microsoft.

Random ensembles of trees are compared with ONNX's reference evaluator, which shares nothing with
the importer, and operators of onnxruntime with NumPy.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from conftest import run_tec

ML = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
MICROSOFT = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ"]


def model_of(nodes, inputs, outputs, opsets, constants=()):
    """A model; inputs and outputs are (name, type, shape)."""
    values = [[helper.make_tensor_value_info(*one) for one in list] for list in (inputs, outputs)]
    graph = helper.make_graph(
        nodes, "g", *values, [onnx.numpy_helper.from_array(a, name) for name, a in constants]
    )
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def outputs_of(model, inputs, names, folder):
    """What `tec run` computes."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    arguments = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        arguments += ["--input", f"{name}={folder / name}.npy"]
    for name in names:
        arguments += ["--output", f"{name}={folder / name}.out.npy"]
    run_tec("run", path, *arguments)
    return [np.load(folder / f"{name}.out.npy") for name in names]


def random_trees(rng, modes, features, targets):
    """The attributes of a TreeEnsembleRegressor."""
    rows = {name: [] for name in
            "treeids nodeids featureids values modes truenodeids falsenodeids missing".split()}
    leaves = {name: [] for name in "treeids nodeids ids weights".split()}
    for tree in range(3):
        depth = {0: 0}
        waiting, count = [0], 1
        while waiting:
            node = waiting.pop(0)
            leaf = depth[node] == 4 or (node > 0 and rng.random() < 0.3)
            ways = (0, 0) if leaf else (count, count + 1)
            if leaf:
                for target in range(targets):
                    for name, value in zip(
                        leaves, (tree, node, target, float(rng.integers(-8, 9))), strict=True
                    ):
                        leaves[name].append(value)
            else:
                count += 2
                waiting += ways
                depth.update(dict.fromkeys(ways, depth[node] + 1))
            mode = "LEAF" if leaf else str(rng.choice(modes))
            row = (tree, node, int(rng.integers(features)), float(rng.integers(-3, 4)), mode,
                   *ways, int(rng.integers(2)))
            for name, value in zip(rows, row, strict=True):
                rows[name].append(value)
    names = {"missing": "missing_value_tracks_true"}
    return {
        **{f"nodes_{names.get(name, name)}": values for name, values in rows.items()},
        **{f"target_{name}": values for name, values in leaves.items()},
        "n_targets": targets,
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], MODES], ids=["at_most", "all_modes"])
def test_trees_agree_with_the_reference_of_onnx(seed, modes, tmp_path):
    rng = np.random.default_rng(seed)
    features, targets = 5, 1 + seed % 3
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml",
        aggregate_function=["SUM", "MIN", "MAX", "AVERAGE"][seed % 4],
        **random_trees(rng, modes, features, targets),
    )
    model = model_of([node], [("x", TensorProto.FLOAT, ["rows", features])],
                     [("y", TensorProto.FLOAT, ["rows", targets])], ML)
    # Many elements equal a value of a node.
    x = rng.integers(-4, 5, (33, features)).astype(np.float32)
    x[::5, 1] = np.nan
    x[7, 2], x[8, 2] = np.inf, -np.inf
    (y,) = outputs_of(model, {"x": x}, ["y"], tmp_path)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    # A mean may be computed with the reciprocal of the number of trees.
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("tracks_true", [0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_nan_takes_the_branch_that_the_node_names(mode, tracks_true, tmp_path):
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0],
        nodes_values=[1.0, 0.0, 0.0], nodes_modes=[mode, "LEAF", "LEAF"],
        nodes_missing_value_tracks_true=[tracks_true, 0, 0],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[5.0, 7.0],
    )
    model = model_of([node], [("x", TensorProto.FLOAT, ["rows", 1])],
                     [("y", TensorProto.FLOAT, ["rows", 1])], ML)
    x = np.array([[1.0], [2.0], [np.nan]], np.float32)
    (y,) = outputs_of(model, {"x": x}, ["y"], tmp_path)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert y.ravel().tolist() == expected.ravel().tolist()
    assert y[2, 0] == (5.0 if tracks_true else 7.0)


def test_products_with_weights_of_four_bits(tmp_path):
    rng = np.random.default_rng(1)
    k, n, block = 48, 6, 16
    weights = rng.integers(0, 16, (n, k)).astype(np.uint8)
    scales = rng.random((n, k // block), np.float32)
    packed = weights[:, 0::2] | weights[:, 1::2] << 4
    packed = packed.reshape(n, k // block, block // 2)
    node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n,
                            bits=4, block_size=block)
    model = model_of([node], [("a", TensorProto.FLOAT, ["rows", k])],
                     [("y", TensorProto.FLOAT, ["rows", n])], MICROSOFT,
                     [("b", packed), ("s", scales.reshape(-1))])
    a = rng.random((7, k), np.float32)
    (y,) = outputs_of(model, {"a": a}, ["y"], tmp_path)
    wide = (weights.astype(np.float64) - 8) * scales.repeat(block, 1)
    np.testing.assert_allclose(y, a.astype(np.float64) @ wide.T, rtol=1e-5, atol=1e-5)


def test_normalisations_of_sums(tmp_path):
    rng = np.random.default_rng(2)
    x, skip = rng.random((2, 3, 5, 8), np.float32)
    gamma, beta, bias = rng.random((3, 8), np.float32)
    node = helper.make_node("SkipLayerNormalization", ["x", "s", "g", "b", "c"],
                            ["y", "", "", "total"], domain="com.microsoft", epsilon=1e-5)
    shape = ["batch", 5, 8]
    model = model_of([node], [("x", TensorProto.FLOAT, shape), ("s", TensorProto.FLOAT, shape)],
                     [("y", TensorProto.FLOAT, shape), ("total", TensorProto.FLOAT, shape)],
                     MICROSOFT, [("g", gamma), ("b", beta), ("c", bias)])
    y, total = outputs_of(model, {"x": x, "s": skip}, ["y", "total"], tmp_path)
    wide = x.astype(np.float64) + skip + bias
    spread = np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    expected = (wide - wide.mean(-1, keepdims=True)) / spread * gamma + beta
    np.testing.assert_allclose(total, wide, rtol=1e-6)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def quantized(x):
    """Quantises to uint8 by the range with 0. Returns integers, their scale and their zero."""
    low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int32), scale, np.int32(zero)


def quantized_lstm(x, w, r, bias, lengths, units):
    """The states of a forward layer; `w` and `r` are (integers, scales, zeros)."""
    def product(x, scale, zero, weights):
        integers, scales, zeros = weights
        sums = (x - zero) @ (integers.astype(np.int32) - zeros.astype(np.int32))
        return sums.astype(np.float32) * (scale * scales)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x.astype(np.float64)))

    steps, batch, _ = x.shape
    h, c = np.zeros((2, batch, units), np.float32)
    gates = product(*quantized(x), w) + bias[: 4 * units] + bias[4 * units :]
    rows = []
    for step in range(steps):
        runs = (lengths > step)[:, None]
        # Sequences that ended before the last step do not count for the range.
        recent = np.where((lengths >= step)[:, None], h, 0)
        i, o, f, g = np.split(gates[step] + product(*quantized(recent), r), 4, axis=1)
        new = sigmoid(f) * c + sigmoid(i) * np.tanh(g.astype(np.float64))
        c = np.where(runs, new, c).astype(np.float32)
        h = np.where(runs, sigmoid(o) * np.tanh(c.astype(np.float64)), h).astype(np.float32)
        rows.append(np.where(runs, h, 0))
    return np.stack(rows)[:, None], h[None], c[None]


@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("silent", [False, True])
def test_an_lstm_with_integer_weights(tmp_path, weights, columns, silent):
    rng = np.random.default_rng(3)
    steps, batch, inputs, units = 5, 3, 6, 7
    limits = np.iinfo(weights)

    def matrix(rows):
        shape = (1, 4 * units) if columns else (1,)
        integers = rng.integers(limits.min, limits.max + 1, (1, rows, 4 * units)).astype(weights)
        middle = limits.min + 128
        zeros = np.full(shape, middle) if columns else rng.integers(middle - 4, middle + 4, shape)
        return integers, rng.random(shape, np.float32) / 100 + np.float32(0.003), zeros.astype(
            weights)

    w, r = matrix(inputs), matrix(units)
    bias = rng.standard_normal((1, 8 * units)).astype(np.float32)
    lengths = np.array([steps, steps - 2, 1], np.int32)
    operands = ["x", "w", "r", "b", "n", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", operands, ["y", "h", "c"],
                            domain="com.microsoft", hidden_size=units)
    constants = [("w", w[0]), ("r", r[0]), ("b", bias), ("n", lengths), ("ws", w[1]), ("wz", w[2]),
                 ("rs", r[1]), ("rz", r[2])]
    state = (TensorProto.FLOAT, [1, "batch", units])
    model = model_of([node], [("x", TensorProto.FLOAT, ["steps", batch, inputs])],
                     [("y", TensorProto.FLOAT, ["steps", 1, batch, units]), ("h", *state),
                      ("c", *state)], MICROSOFT, constants)
    # Of a range without numbers but 0, too.
    x = rng.standard_normal((steps, batch, inputs)).astype(np.float32) * (not silent)
    results = outputs_of(model, {"x": x}, ["y", "h", "c"], tmp_path)
    of_direction = [tuple(part[0] for part in weight) for weight in (w, r)]
    expected = quantized_lstm(x, *of_direction, bias[0], lengths, units)
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, right, atol=2e-5)
