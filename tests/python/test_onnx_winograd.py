"""Convolutions by Winograd's algorithm: NumPy's float64 is the oracle."""

import numpy as np
import pytest

from conftest import run_tec
from onnx_convolutions import conv, result, text_of

F = np.float32


CASES = [
    # Image, weights, pads, strides, dilations.
    ((1, 16, 8, 8), (16, 16, 3, 3), (1, 1, 1, 1), (1, 1), (1, 1)),
    ((2, 20, 7, 9), (17, 20, 3, 3), (1, 1, 1, 1), (1, 1), (1, 1)),
    ((1, 16, 6, 5), (16, 16, 3, 3), (0, 0, 0, 0), (1, 1), (1, 1)),
    ((1, 33, 13, 13), (40, 33, 3, 3), (1, 1, 1, 1), (1, 1), (1, 1)),
    ((1, 16, 11, 10), (16, 16, 3, 1), (2, 0, 0, 0), (1, 1), (1, 1)),
    ((3, 16, 14, 21), (24, 16, 3, 5), (0, 3, 2, 1), (1, 2), (1, 2)),
    ((1, 64, 56, 56), (64, 64, 3, 3), (1, 1, 1, 1), (1, 1), (1, 1)),
    ((1, 128, 4, 17), (128, 128, 3, 3), (1, 1, 1, 1), (1, 1), (1, 1)),
    ((1, 17, 40, 1), (31, 17, 3, 1), (1, 0, 1, 0), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("batch", [None, "batch"])
def test_results_are_as_close_as_those_of_sums(tmp_path, rng, case, batch):
    image, weights, pads, strides, dilations = case
    x, w = rng.normal(size=image).astype(F), rng.normal(size=weights).astype(F)
    settings = {"pads": pads, "strides": strides, "dilations": dilations}
    own, found, size = conv(x, w, batch, **settings)
    assert "winograd_conv2d" in text_of(tmp_path, own)
    y = result(tmp_path, own, x, found)
    # The error of a sum in any order grows with the magnitudes of its terms; the transforms have
    # factors up to 2.5 and 8.
    assert np.all(abs(y - found) <= 4 * np.finfo(F).eps * size.max())


def test_every_height_of_a_last_tile(tmp_path, rng):
    for height in range(4, 21):
        x, w = rng.normal(size=(1, 16, height, 6)).astype(F), rng.normal(size=(16, 16, 3, 3))
        own, found, size = conv(x, w.astype(F), pads=(1, 1, 1, 1))
        folder = tmp_path / str(height)
        folder.mkdir()
        # Five rows need two tiles of four, which save too little.
        assert ("winograd_conv2d" in text_of(folder, own)) == (height != 5)
        y = result(folder, own, x, found)
        assert np.all(abs(y - found) <= 4 * np.finfo(F).eps * size.max()), height


def test_elements_that_are_not_finite_stay_near_their_column(tmp_path, rng):
    x, w = rng.normal(size=(1, 16, 16, 16)).astype(F), rng.normal(size=(16, 16, 3, 3)).astype(F)
    own, found, size = conv(x, w, pads=(1, 1, 1, 1))
    x[0, 3, 6, 9] = np.inf
    y = result(tmp_path, own, x, found)
    # Row 6 is in the tiles of the rows 4 to 7, padded by one row on either side.
    reach = np.zeros(found.shape, bool)
    reach[:, :, 4:8, 8:11] = True
    assert not np.isfinite(y[:, :, 5:8, 8:11]).any()
    assert np.all(abs(y - found)[~reach] <= 4 * np.finfo(F).eps * size.max())


def test_convolutions_can_be_sums(tmp_path, rng):
    x, w = rng.normal(size=(1, 16, 8, 8)).astype(F), rng.normal(size=(16, 16, 3, 3)).astype(F)
    own, found, size = conv(x, w, pads=(1, 1, 1, 1))
    text_of(tmp_path, own)
    run_tec("import", tmp_path / "model.onnx", "--no-winograd", "-o", tmp_path / "direct.te")
    assert "winograd" not in (tmp_path / "direct.te").read_text()
    y = result(tmp_path, own, x, found, "--no-winograd")
    assert np.all(abs(y - found) <= 2 * np.finfo(F).eps * size.max())
