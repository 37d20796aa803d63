"""Convolutions whose windows lie mostly in the padding: NumPy's float64 is the oracle."""

import numpy as np
import pytest

from onnx_convolutions import conv, result, text_of

F = np.float32
CASES = [
    # Image, weights, pads, dilations.
    ((1, 16, 4, 4), (24, 16, 3, 3), (24, 24, 24, 24), (24, 24)),
    ((2, 8, 14, 14), (16, 8, 3, 3), (12, 12, 12, 12), (12, 12)),
    ((1, 5, 9, 7), (6, 5, 3, 5), (8, 10, 8, 10), (8, 5)),
    ((3, 4, 6, 6), (7, 4, 3, 3), (5, 1, 5, 1), (5, 1)),
    ((1, 3, 5, 6), (4, 3, 2, 3), (7, 2, 0, 11), (6, 6)),
    ((1, 2, 1, 1), (3, 2, 5, 5), (2, 2, 2, 2), (1, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("batch", [None, "batch"])
def test_taps_in_the_padding_cost_nothing(tmp_path, rng, case, batch):
    image, weights, pads, dilations = case
    x, w = rng.normal(size=image).astype(F), rng.normal(size=weights).astype(F)
    own, found, size = conv(x, w, batch, pads=pads, dilations=dilations)
    text = text_of(tmp_path, own)
    assert "ph=" not in text and "pw=" not in text
    y = result(tmp_path, own, x, found)
    assert np.all(abs(y - found) <= 4 * np.finfo(F).eps * size)


@pytest.mark.parametrize(
    "case",
    [
        # Most of the windows lie in the image; strides; few pixels for each tap.
        (((1, 4, 33, 33), (4, 4, 3, 3)), {"pads": (6,) * 4, "dilations": (6, 6)}),
        (((1, 4, 9, 9), (4, 4, 3, 3)), {"pads": (8,) * 4, "dilations": (8, 8), "strides": (2, 2)}),
        (((1, 4, 2, 2), (4, 4, 3, 3)), {"pads": (1,) * 4}),
    ],
    ids=str,
)
def test_others_are_padded(tmp_path, rng, case):
    (image, weights), settings = case
    x, w = rng.normal(size=image).astype(F), rng.normal(size=weights).astype(F)
    own, found, size = conv(x, w, **settings)
    assert "ph=" in text_of(tmp_path, own)
    y = result(tmp_path, own, x, found)
    assert np.all(abs(y - found) <= 4 * np.finfo(F).eps * size)


def test_infinite_weights_in_the_padding_are_not_read(tmp_path, rng):
    x = rng.normal(size=(1, 2, 3, 3)).astype(F)
    w = np.full((2, 2, 3, 3), np.inf, F)
    w[:, :, 1, 1] = rng.normal(size=(2, 2))
    finite = np.where(np.isinf(w), 0, w).astype(F)
    _, found, size = conv(x, finite, pads=(5,) * 4, dilations=(5, 5))
    own, _, _ = conv(x, w, pads=(5,) * 4, dilations=(5, 5))
    y = result(tmp_path, own, x, found)
    assert np.all(abs(y - found) <= 4 * np.finfo(F).eps * size)
