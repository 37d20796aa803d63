"""Compares the gradients of `lib/train.te` with finite differences in float64, and its losses and
optimizers with NumPy."""

import itertools

import numpy as np
import pytest

from operators import Calls, draw, extents, kernel, load

SEEDS = range(3)
STEP = 1e-6


class Gradients:
    """Operators with their gradients."""

    def __init__(self, folder, rng):
        self.folder, self.rng, self.all = folder, rng, []

    def check(self, forward, gradient):
        """Adds an operator and its gradient.

        `forward` is (name, inputs, keywords, the input that is varied), `gradient` (name, function
        of the result and its gradient that gives the inputs, keywords)."""
        self.all.append((forward, gradient))

    def compare(self, shapes):
        """Compiles everything as one module; `shapes` gives the results' shapes in order."""
        source = ""
        cases = []
        for at, ((forward, gradient), shape) in enumerate(zip(self.all, shapes, strict=True)):
            name, inputs, keywords, varied = forward
            back, arguments, more = gradient
            given = self.rng.standard_normal(shape)
            source += kernel(f"f{at}", name, inputs, keywords)
            source += kernel(f"g{at}", back, arguments(np.zeros(shape), given), more)
            cases.append((forward, gradient, given))
        module = load(self.folder, source)
        for at, ((name, inputs, _, varied), (back, arguments, _), given) in enumerate(cases):
            values = [np.array(x, order="C") for x in inputs]
            result = np.zeros(given.shape)

            def loss():
                module[f"f{at}"](*values, result)
                return np.sum(result * given)

            loss()
            found = np.full(values[varied].shape, np.nan)
            of = [np.array(x, order="C") for x in arguments(result.copy(), given)]
            module[f"g{at}"](*of, found)
            expected = np.zeros_like(values[varied])
            for place in np.ndindex(*expected.shape):
                kept = values[varied][place]
                values[varied][place] = kept + STEP
                high = loss()
                values[varied][place] = kept - STEP
                expected[place] = (high - loss()) / (2 * STEP)
                values[varied][place] = kept
            text = f"{back} {[x.shape for x in values]}"
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=text)


def f64(rng, *shape):
    return draw(rng, "float64", *shape)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_elements(tmp_path, seed):
    rng = np.random.default_rng(seed)
    all = Gradients(tmp_path, rng)
    shapes = []
    for rank in range(4):
        x = f64(rng, *extents(rng, rank, high=4))
        for name, gradient in (
            ("nn.relu", "train.relu_grad"),
            ("nn.gelu", "train.gelu_grad"),
            ("nn.silu", "train.silu_grad"),
        ):
            all.check((name, [x], {}, 0), (gradient, lambda y, dy, x=x: [x, dy], {}))
            shapes.append(x.shape)
        wide = [3, *x.shape]
        all.check(
            ("nn.broadcast_to", [x], {"to": wide}, 0),
            ("train.sum_to", lambda y, dy: [dy], {"to": list(x.shape)}),
        )
        shapes.append(wide)
        if rank:
            axis = int(rng.integers(0, rank))
            for name, gradient in (
                ("nn.softmax", "train.softmax_grad"),
                ("nn.log_softmax", "train.log_softmax_grad"),
            ):
                keys = {"axis": axis}
                all.check((name, [x], keys, 0), (gradient, lambda y, dy: [y, dy], keys))
                shapes.append(x.shape)
    all.compare(shapes)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_products(tmp_path, seed):
    rng = np.random.default_rng(seed)
    all = Gradients(tmp_path, rng)
    shapes = []
    for rank in range(3):
        batch, (n, l, m) = extents(rng, rank, high=3), extents(rng, 3, high=4)
        x, y = f64(rng, *batch, n, l), f64(rng, *batch, l, m)
        result = [*batch, n, m]
        all.check(
            ("nn.matmul", [x, y], {}, 0),
            ("train.matmul_grad_x", lambda c, dc, y=y: [dc, y], {}),
        )
        all.check(
            ("nn.matmul", [x, y], {}, 1),
            ("train.matmul_grad_y", lambda c, dc, x=x: [x, dc], {}),
        )
        w, bias = f64(rng, m, l), f64(rng, m)
        for varied, name, arguments in (
            (0, "train.dense_grad_data", lambda y, dy, w=w: [dy, w]),
            (1, "train.dense_grad_weights", lambda y, dy, x=x: [x, dy]),
            (2, "train.dense_grad_bias", lambda y, dy: [dy]),
        ):
            all.check(("nn.dense", [x, w, bias], {}, varied), (name, arguments, {}))
        shapes += [result] * 5
    all.compare(shapes)


def windows(n, k, s, d, p, q):
    return (n + p + q - (k - 1) * d - 1) // s + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_convolutions(tmp_path, seed):
    rng = np.random.default_rng(seed)
    all = Gradients(tmp_path, rng)
    shapes = []
    for dims, groups in itertools.product((1, 2, 3), (1, 2)):
        window, stride = extents(rng, dims, high=3), extents(rng, dims, high=2)
        dilation = extents(rng, dims, high=2)
        reach = [(k - 1) * d for k, d in zip(window, dilation)]
        before, after = ([int(rng.integers(0, r + 1)) for r in reach] for _ in range(2))
        image = [r + 1 + int(rng.integers(0, 3)) for r in reach]
        out = [windows(*one) for one in zip(image, window, stride, dilation, before, after)]
        x, w = f64(rng, 2, 2 * groups, *image), f64(rng, groups, 2, *window)
        keys = dict(stride=stride, dilation=dilation, padding=before, groups=groups)
        both = dict(keys, padding_end=after)
        all.check(
            ("nn.conv", [x, w], both, 0),
            ("train.conv_grad_data", lambda y, dy, w=w: [dy, w], dict(both, extents=image)),
        )
        all.check(
            ("nn.conv", [x, w], both, 1),
            ("train.conv_grad_weights", lambda y, dy, x=x: [x, dy], dict(keys, window=window)),
        )
        shapes += [[2, groups, *out]] * 2
        # A pool without dilation, whose windows have an element of the image.
        before, after = ([int(rng.integers(0, k // 2 + 1)) for k in window] for _ in range(2))
        out = [windows(*one) for one in zip(image, window, stride, [1] * dims, before, after)]
        keys = dict(stride=stride, padding=before, window=window)
        both = dict(keys, padding_end=after)
        all.check(
            ("nn.max_pool", [x], both, 0),
            ("train.max_pool_grad", lambda y, dy, x=x: [x, dy], keys),
        )
        all.check(
            ("nn.avg_pool", [x], both, 0),
            ("train.avg_pool_grad", lambda y, dy: [dy], dict(keys, extents=image)),
        )
        shapes += [[2, 2 * groups, *out]] * 2
    all.compare(shapes)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_norms(tmp_path, seed):
    rng = np.random.default_rng(seed)
    all = Gradients(tmp_path, rng)
    shapes = []
    for rank, dims in ((1, 1), (2, 1), (3, 2), (3, 3)):
        x = f64(rng, *[n + 1 for n in extents(rng, rank, high=3)])
        gamma, beta = f64(rng, *x.shape[rank - dims :]), f64(rng, *x.shape[rank - dims :])
        own = lambda y, dy, x=x, gamma=gamma: [x, gamma, dy]
        all.check(
            ("nn.layer_norm", [x, gamma, beta], {}, 0), ("train.layer_norm_grad_data", own, {})
        )
        all.check(
            ("nn.layer_norm", [x, gamma, beta], {}, 1), ("train.layer_norm_grad_gamma", own, {})
        )
        all.check(
            ("nn.layer_norm", [x, gamma, beta], {}, 2),
            ("train.sum_to", lambda y, dy: [dy], {"to": list(gamma.shape)}),
        )
        all.check(("nn.rms_norm", [x, gamma], {}, 0), ("train.rms_norm_grad_data", own, {}))
        axis = int(rng.integers(0, rank))
        gamma, beta = f64(rng, x.shape[axis]), f64(rng, x.shape[axis])
        own = lambda y, dy, x=x, gamma=gamma: [x, gamma, dy]
        keys, name = {"axis": axis}, "train.batch_norm_train"
        all.check((name, [x, gamma, beta], keys, 0), ("train.batch_norm_grad_data", own, keys))
        own = lambda y, dy, x=x: [x, dy]
        all.check((name, [x, gamma, beta], keys, 1), ("train.batch_norm_grad_gamma", own, keys))
        own = lambda y, dy: [dy]
        all.check((name, [x, gamma, beta], keys, 2), ("train.channel_grad", own, keys))
        shapes += [x.shape] * 7
    all.compare(shapes)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_losses(tmp_path, seed):
    rng = np.random.default_rng(seed)
    all = Gradients(tmp_path, rng)
    for rank in range(3):
        x, y = (f64(rng, *extents(rng, rank)) for _ in range(2))
        y = f64(rng, *x.shape)
        label = rng.integers(0, 3, x.shape).astype("int32")
        logits = f64(rng, *x.shape, 3)
        # A loss has one element, whose gradient is 1.
        for name, gradient, inputs in (
            ("train.squared_error", "train.squared_error_grad", [x, y]),
            ("train.cross_entropy", "train.cross_entropy_grad", [logits, label]),
        ):
            own = lambda y, dy, inputs=inputs: inputs
            all.check((name, inputs, {}, 0), (gradient, own, {}))
    all.rng = Ones()
    all.compare([[]] * len(all.all))


class Ones:
    """Draws ones."""

    def standard_normal(self, shape):
        return np.ones(shape)


def test_losses_and_steps(tmp_path):
    rng = np.random.default_rng(0)
    calls = Calls(tmp_path)
    for rank, dtype in itertools.product(range(3), ("float32", "float64")):
        x, y, m = (draw(rng, dtype, *extents(rng, rank)) for _ in range(3))
        y, m = draw(rng, dtype, *x.shape), draw(rng, dtype, *x.shape)
        v = np.asarray(np.abs(draw(rng, dtype, *x.shape)))
        calls.close("train.squared_error", [x, y], np.mean((x - y) ** 2))
        label = rng.integers(0, 4, x.shape).astype("int64")
        logits = draw(rng, dtype, *x.shape, 4)
        wide = logits.astype("float64")
        log = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
        picked = np.take_along_axis(log, label[..., None], -1)
        calls.close("train.cross_entropy", [logits, label], -np.mean(picked))
        calls.close("train.normalized", [logits], unit(wide), dims=1, eps=1e-5)
        calls.close("train.adam_mean", [m, x], 0.9 * m + 0.1 * x)
        calls.close("train.adam_square", [v, x], 0.999 * v + 0.001 * x * x)
        calls.close("train.tanh_grad", [x, y], y * (1 - x * x))
        calls.close("train.sigmoid_grad", [x, y], y * x * (1 - x))
        scalar = np.dtype(dtype).type
        calls.close("train.sgd", [x, y, scalar(0.1)], x - 0.1 * y)
        calls.close("train.momentum", [x, y, scalar(0.9)], 0.9 * x + y)
        step = x - 0.1 * (m / 0.5) / (np.sqrt(v / 0.25) + 1e-8)
        calls.close("train.adam", [x, m, v, scalar(0.1), scalar(0.5), scalar(0.25)], step)
        image = draw(rng, dtype, 2, 3, *x.shape)
        bias = image.sum((0, *range(2, image.ndim)))
        calls.close("train.channel_grad", [image], bias)
        own = (0, *range(2, image.ndim))
        calls.close("train.channel_mean", [image], image.mean(own))
        calls.close("train.channel_var", [image, image.mean(own)], image.var(own))
    calls.compare()


def unit(x):
    """The last dimension to mean 0 and variance 1."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
