"""ONNX models against ONNX's own conformance tests of one node, through the module.

The tests of the onnx package have inputs and expected outputs. Inputs that shapes depend on are
arguments of the function, except those of `FROZEN`, which become constants (`--freeze`).
"""

import re
import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from conftest import run_tec
from onnx_models import call, is_narrow

# Of the tests whose node is written as nodes of other operators: those of reductions, shapes and
# windows, and one of each other kind.
EXPANDED = (
    "center_crop_pad_crop_axes_hwc_expanded", "center_crop_pad_pad_expanded",
    "hammingwindow_expanded", "reduce_l2_keepdims_example_expanded",
    "reduce_log_sum_exp_do_not_keepdims_example_expanded", "layer_normalization_2d_axis0_expanded",
    "attention_4d_causal_expanded", "softmax_axis_1_expanded",
)

# The newest opset that the importer knows.
MAX_OPSET = 28

# Operators that `tec` refuses, with the reason of docs/NETWORKS.md: the test makes sure that it
# does refuse them.
REFUSED = {
    "Bernoulli", "ImageDecoder", "MelWeightMatrix", "RandomUniformLike",
}

# Other tests that `tec` refuses, with the reason.
KNOWN = {
    "test_bitcast_2d_float32_to_int32": "the bits of a float",
    "test_bitcast_float32_to_int32": "the bits of a float",
    "test_bitcast_float64_to_int64": "the bits of a float",
    "test_bitcast_int32_to_float32": "the bits of a float",
    "test_bitcast_int64_to_float64": "the bits of a float",
    "test_bitcast_scalar_float32_to_int32": "the bits of a float",
    "test_scan_sum": "a scan over a batch",
}
KNOWN |= {
    f"test_unique_{name}": "the number of results is not declared"
    for name in (
        "length_1", "not_sorted_without_axis", "sorted_with_axis", "sorted_with_axis_3d",
        "sorted_with_negative_axis", "sorted_without_axis",
    )
}

# Tests whose call is refused: their results are random.
TRAINING = {
    "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}

# Tests whose expected results are not those of PyTorch and onnxruntime, which `tec` follows: they
# align corners to a length that is no integer.
OTHERWISE = {
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
}

# Tests whose declared shapes leave values open.
FROZEN = {"test_col2im", "test_col2im_5d", "test_col2im_dilations", "test_col2im_strides"}

NAMES = "float64 float32 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
TYPES = {np.dtype(name) for name in NAMES.split()} | {np.dtype(ml_dtypes.bfloat16)}


def is_plain(test):
    """Whether all values are tensors of types that `tec` knows."""
    values = [value for ins, outs in test.data_sets for value in [*ins, *outs]]
    opsets = [one.version for one in test.model.opset_import if one.domain in ("", "ai.onnx")]
    nodes = test.model.graph.node
    return (
        all(
            isinstance(value, np.ndarray) and (value.dtype in TYPES or is_narrow(value.dtype))
            for value in values
        )
        and 1 <= max(opsets, default=0) <= MAX_OPSET
        and (len(nodes) == 1 or test.name.endswith(EXPANDED))
        and nodes[0].domain != "ai.onnx.ml"
    )


# Some of the generators overflow on purpose.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    TESTS = {test.name: test for test in collect_testcases(None) if is_plain(test)}


def build(test, folder):
    """Builds a model; freezes the inputs of tests in `FROZEN`. Returns them and the process."""
    path = folder / "model.onnx"
    onnx.save(test.model, path)
    names = [value.name for value in test.model.graph.input]
    values = dict(zip(names, test.data_sets[0][0]))
    done = run_tec("build", path, "-o", folder / "node.so")
    needed = re.search("constant values are needed for the inputs (.*)", done.stderr)
    if needed is None or test.name not in FROZEN:
        return [], done
    frozen = re.findall("`([^`]*)`", needed[1])
    for name in frozen:
        np.save(folder / f"{name}.npy", np.ascontiguousarray(values[name]))
    options = [word for name in frozen for word in ("--freeze", f"{name}={folder / name}.npy")]
    return frozen, run_tec("build", path, "-o", folder / "node.so", *options)


@pytest.mark.parametrize("name", sorted(TESTS))
def test_node(name, tmp_path):
    test = TESTS[name]
    graph = test.model.graph
    frozen, done = build(test, tmp_path)
    if graph.node[0].op_type in REFUSED or name in KNOWN:
        assert done.returncode == 1 and "E0705" in done.stderr, done.stderr
        pytest.skip(f"{graph.node[0].op_type} is refused: {KNOWN.get(name, 'by operator')}")
    assert done.returncode == 0, done.stderr
    inputs, expected = test.data_sets[0]
    given = [
        np.array(value, order="C")
        for value, info in zip(inputs, graph.input)
        if info.name not in frozen
    ]
    outputs = [np.zeros(value.shape, value.dtype) for value in expected]
    error = call(tmp_path / "node.so", graph.name, given, outputs)
    if name in TRAINING:
        assert "training is not supported" in error
        pytest.skip("its results are random")
    assert not error, error
    if name in OTHERWISE:
        pytest.skip("PyTorch and onnxruntime have other results")
    for value, wanted in zip(outputs, expected):
        # The expected values of a chain of bfloat16 operators are rounded after each of them.
        half = value.dtype == ml_dtypes.bfloat16
        rtol = max(test.rtol, 2**-6) if half else test.rtol
        value, wanted = value.astype(np.float64), wanted.astype(np.float64)
        # The expected values have errors of their own: zeros of a Fourier transform are 1e-7.
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
        np.testing.assert_allclose(value, wanted, rtol, max(test.atol, 1e-7 * largest))
