"""Models of one convolution. NumPy's float64 is the oracle."""

import numpy as np
from onnx import helper, numpy_helper

from conftest import run_tec
from onnx_models import model, run

F = np.float32


def reference(x, w, pads, strides=(1, 1), dilations=(1, 1)):
    """The convolution in float64, and the sum of the magnitudes of its terms."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (top, bottom), (left, right)])
    kh, kw = w.shape[2:]
    oh = (padded.shape[2] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    ow = (padded.shape[3] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    total = np.zeros((x.shape[0], w.shape[0], oh, ow))
    size = np.zeros_like(total)
    for r in range(kh):
        for c in range(kw):
            y, z = r * dilations[0], c * dilations[1]
            part = padded[:, :, y : y + oh * strides[0] : strides[0]]
            part = part[:, :, :oh, z : z + (ow - 1) * strides[1] + 1 : strides[1]]
            own = w[:, :, r, c].astype(np.float64)
            total += np.einsum("oc,nchw->nohw", own, part)
            size += np.einsum("oc,nchw->nohw", abs(own), abs(part))
    return total, size


def conv(x, w, batch=None, **attributes):
    """A model of a convolution, and its result to write."""
    found, size = reference(x, w, attributes["pads"], **{
        name: attributes[name] for name in ("strides", "dilations") if name in attributes
    })
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
    weights = [numpy_helper.from_array(w, "w")]
    own = model([node], {"x": x}, {"y": found.astype(F)}, 22, weights)
    if batch:
        for value in (own.graph.input[0], own.graph.output[0]):
            value.type.tensor_type.shape.dim[0].dim_param = batch
    return own, found, size


def result(folder, own, x, like, *options):
    """The result of a model."""
    y = np.zeros(like.shape, F)
    error = run(folder, own, {"x": x}, {"y": y}, *options)
    assert not error, error
    return y


def text_of(folder, own):
    """The text of a model."""
    path = folder / "model.onnx"
    path.write_bytes(own.SerializeToString())
    run_tec("import", path, "-o", folder / "model.te")
    return (folder / "model.te").read_text()
