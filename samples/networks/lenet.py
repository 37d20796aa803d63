"""The weights of lenet.te, and a check of its module with NumPy.

python lenet.py weights    writes lenet.safetensors: random weights, the same in every run
python lenet.py check      compares ./lenet.so with the definition in NumPy
"""

import sys

import numpy as np
from safetensors.numpy import load_file, save_file

SHAPES = {
    "c1": (6, 1, 5, 5), "c3": (16, 6, 5, 5), "f5": (120, 400), "f6": (84, 120), "f7": (10, 84),
}


def weights():
    rng = np.random.default_rng(1998)
    tensors = {}
    for name, shape in SHAPES.items():
        scale = np.float32(np.prod(shape[1:]) ** -0.5)
        tensors[f"{name}_weight"] = rng.standard_normal(shape, np.float32) * scale
        tensors[f"{name}_bias"] = rng.standard_normal(shape[0], np.float32) / 10
    save_file(tensors, "lenet.safetensors")


def convolution(x, w, padding):
    """Windows by `w`, in float64."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("bcijrs,ocrs->boij", windows, w)


def means(x):
    """The means of windows of 2 x 2."""
    b, c, h, w = x.shape
    return x.reshape(b, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5))


def reference(image, t):
    t = {name: tensor.astype(np.float64) for name, tensor in t.items()}
    x = convolution(image.astype(np.float64), t["c1_weight"], 2)
    x = means(np.tanh(x + t["c1_bias"][:, None, None]))
    x = convolution(x, t["c3_weight"], 0)
    x = means(np.tanh(x + t["c3_bias"][:, None, None]))
    x = x.reshape(len(x), -1)
    x = np.tanh(x @ t["f5_weight"].T + t["f5_bias"])
    x = np.tanh(x @ t["f6_weight"].T + t["f6_bias"])
    return x @ t["f7_weight"].T + t["f7_bias"]


def check():
    import tvm_ffi

    module = tvm_ffi.load_module("./lenet.so")
    image = np.random.default_rng(28).random((4, 1, 28, 28), np.float32)
    scores = np.empty((4, 10), np.float32)
    module.lenet(image, scores)
    np.testing.assert_allclose(scores, reference(image, load_file("lenet.safetensors")), atol=1e-5)
    print("lenet: the scores are NumPy's; classes", *scores.argmax(axis=1))


{"weights": weights, "check": check}[sys.argv[1]]()
