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
