"""Compares every operator of `lib/nn.te` and `lib/image.te` with NumPy or with the reference
evaluator of ONNX on random shapes of random ranks: floats within a bound, integers to the bit."""

import itertools
import re

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from conftest import ROOT, run_tec
from operators import Calls, draw, extents, text


@pytest.fixture
def calls(tmp_path):
    """Collects calls of operators, compiles them as one file and compares the results."""
    return Calls(tmp_path)


def onnx_op(name, *inputs, version=21, **attributes):
    """Returns the first result of one ONNX operator."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = onnx.helper.make_node(name, names, ["y"], **attributes)
    kind = onnx.helper.np_dtype_to_tensor_dtype
    values = [
        onnx.helper.make_tensor_value_info(n, kind(x.dtype), x.shape)
        for n, x in zip(names, inputs)
        if x is not None
    ]
    result = onnx.helper.make_tensor_value_info("y", kind(inputs[0].dtype), None)
    graph = onnx.helper.make_graph([node], "g", values, [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    feeds = {n: x for n, x in zip(names, inputs) if x is not None}
    return ReferenceEvaluator(model).run(None, feeds)[0]


SEEDS = range(3)
TYPES = ["float32", "float64", "int32", "int8"]


def test_every_operator_is_covered():
    tests = open(__file__).read() + (ROOT / "tests/python/test_train.py").read_text()
    for file, prefix in (("nn", "nn"), ("image", "image"), ("train", "train")):
        for kernel in re.findall(r"^kernel (\w+)", (ROOT / f"lib/{file}.te").read_text(), re.M):
            assert f"{prefix}.{kernel}" in tests, f"{file}.te: {kernel} has no test"


@pytest.mark.parametrize("seed", SEEDS)
def test_shapes(calls, seed):
    rng = np.random.default_rng(seed)
    for dtype in TYPES:
        # Rank 0 to 4, with extents of 0 and 1.
        for rank in range(5):
            shape = extents(rng, rank, low=0)
            x = draw(rng, dtype, *shape)
            perm = [int(p) for p in rng.permutation(rank)]
            calls.exact("nn.transpose", [x], x.transpose(perm), perm=perm)
            order = list(rng.permutation(shape)) + [1]
            to = [int(extent) for extent in order]
            calls.exact("nn.reshape", [x], x.reshape(to), to=to)
            start = [int(rng.integers(0, extent + 1)) for extent in shape]
            step = [int(rng.integers(1, 4)) for _ in shape]
            size = [-(-(n - a) // s) for n, a, s in zip(shape, start, step)]
            part = x[tuple(slice(a, None, s) for a, s in zip(start, step))]
            calls.exact("nn.slice", [x], part, start=start, size=size, step=step)
            before = [int(rng.integers(0, 3)) for _ in shape]
            after = [int(rng.integers(0, 3)) for _ in shape]
            padded = np.pad(x, list(zip(before, after)) or 0, constant_values=7)
            calls.exact("nn.pad", [x], padded, before=before, after=after, val=7)
            wide = extents(rng, int(rng.integers(0, 3)), low=0)
            thin = [n if rng.integers(2) else 1 for n in shape]
            y = draw(rng, dtype, *thin)
            target = [*wide, *shape]
            calls.exact("nn.broadcast_to", [y], np.broadcast_to(y, target), to=target)
            axis = int(rng.integers(0, rank + 1))
            other = draw(rng, dtype, *shape)
            calls.exact("nn.stack", [x, other], np.stack([x, other], axis), axis=axis)
            if rank == 0:
                continue
            axis = int(rng.integers(0, rank))
            shape[axis] = int(rng.integers(0, 4))
            other = draw(rng, dtype, *shape)
            calls.exact("nn.concat", [x, other], np.concatenate([x, other], axis), axis=axis)
            shape[axis] = 6
            x = draw(rng, dtype, *shape)
            calls.exact("nn.split", [x], np.split(x, 3, axis)[1], parts=3, at=1, axis=axis)
            index = rng.integers(0, 6, extents(rng, int(rng.integers(0, 3)))).astype("int32")
            calls.exact("nn.gather", [x, index], np.take(x, index, axis), axis=axis)
    calls.compare()


BINARY = {
    "nn.add": np.add,
    "nn.subtract": np.subtract,
    "nn.multiply": np.multiply,
    "nn.minimum": np.minimum,
    "nn.maximum": np.maximum,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_elementwise(calls, seed):
    rng = np.random.default_rng(seed)
    for rank, dtype in itertools.product(range(4), TYPES):
        shape = extents(rng, rank, low=0)
        left = [n if rng.integers(3) else 1 for n in shape]
        right = [n if rng.integers(3) else 1 for n in shape][int(rng.integers(0, rank + 1)):]
        a, b = draw(rng, dtype, *left), draw(rng, dtype, *right)
        for name, function in BINARY.items():
            calls.exact(name, [a, b], function(a, b))
            calls.exact(name, [b, a], function(b, a))
        x = draw(rng, dtype, *shape)
        calls.exact("nn.relu", [x], np.maximum(x, 0))
        if dtype.startswith("float"):
            calls.close("nn.divide", [a, b], a / b)
            calls.close("nn.leaky_relu", [x], np.where(x < 0, x * 0.1, x), slope=0.1)
            erf = np.vectorize(__import__("math").erf, otypes=[x.dtype])
            wide = x.astype("float64")
            calls.close("nn.gelu", [x], 0.5 * wide * (1 + erf(wide / np.sqrt(2))))
            calls.close("nn.silu", [x], wide / (1 + np.exp(-wide)))
    calls.compare()


REDUCED = {
    "nn.reduce_sum": np.sum,
    "nn.reduce_max": np.max,
    "nn.reduce_min": np.min,
    "nn.reduce_prod": np.prod,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_reductions(calls, seed):
    rng = np.random.default_rng(seed)
    for rank, dtype, keep in itertools.product(range(5), TYPES, (False, True)):
        x = draw(rng, dtype, *extents(rng, rank))
        axes = [int(a) for a in rng.permutation(rank)[: rng.integers(0, rank + 1)]]
        for name, function in REDUCED.items():
            options = {} if name.endswith(("max", "min")) else {"dtype": x.dtype}
            expected = function(x, axis=tuple(axes), keepdims=keep, **options)
            check = calls.close if dtype.startswith("float") else calls.exact
            check(name, [x], expected, axes=axes, keepdims=keep)
        if dtype.startswith("float"):
            mean = np.mean(x, axis=tuple(axes), keepdims=keep)
            calls.close("nn.reduce_mean", [x], mean, axes=axes, keepdims=keep)
    calls.compare()


@pytest.mark.parametrize("seed", SEEDS)
def test_products(calls, seed):
    rng = np.random.default_rng(seed)
    for rank, dtype in itertools.product(range(4), TYPES):
        n, l, m = extents(rng, 3)
        batch = extents(rng, rank)
        left = [k if rng.integers(2) else 1 for k in batch]
        right = [k if rng.integers(2) else 1 for k in batch][int(rng.integers(0, rank + 1)):]
        a, b = draw(rng, dtype, *left, n, l), draw(rng, dtype, *right, l, m)
        check = calls.close if dtype.startswith("float") else calls.exact
        check("nn.matmul", [a, b], np.matmul(a, b))
        w, bias = draw(rng, dtype, m, l), draw(rng, dtype, m)
        check("nn.dense", [a, w, bias], a @ w.T + bias)
    calls.compare()


def spatial(rng, dims, *, dilated=True):
    """Extents, window, stride, dilation and padding of random convolutions that are not empty."""
    window = extents(rng, dims, high=3)
    stride = extents(rng, dims, high=3)
    dilation = [int(rng.integers(1, 3)) if dilated else 1 for _ in window]
    before = [int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(window, dilation)]
    after = [int(rng.integers(0, (k - 1) * d + 1)) for k, d in zip(window, dilation)]
    image = [(k - 1) * d + 1 + int(rng.integers(0, 5)) for k, d in zip(window, dilation)]
    return image, window, stride, dilation, before, after


@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions(calls, seed):
    rng = np.random.default_rng(seed)
    for dims, dtype in itertools.product((1, 2, 3), ("float32", "float64")):
        for groups, gc, per_group in ((1, 3, 2), (2, 2, 2), (3, 1, 1)):
            image, window, stride, dilation, before, after = spatial(rng, dims)
            keys = dict(stride=stride, dilation=dilation, padding=before, padding_end=after)
            x = draw(rng, dtype, 2, groups * gc, *image)
            w = draw(rng, dtype, groups * per_group, gc, *window)
            attributes = dict(strides=stride, dilations=dilation, pads=[*before, *after])
            expected = onnx_op("Conv", x, w, group=groups, **attributes)
            calls.close("nn.conv", [x, w], expected, groups=groups, **keys)
            # Without a batch, and with two dimensions of it.
            calls.close("nn.conv", [x[0], w], expected[0], groups=groups, **keys)
            calls.close("nn.conv", [x[:, None], w], expected[:, None], groups=groups, **keys)
            if gc == 1:
                calls.close("nn.depthwise_conv", [x, w], expected, **keys)
            w = draw(rng, dtype, groups * gc, per_group, *window)
            # ONNX crops by `pads`, of which the reference evaluator takes small ones only.
            before = [int(rng.integers(0, k)) for k in window]
            extra = [int(rng.integers(0, s)) for s in stride]
            attributes = dict(strides=stride, output_padding=extra, pads=[*before, *before])
            expected = transposed(x, w, groups, stride, before, extra)
            if min(expected.shape) > 0:
                calls.close(
                    "nn.conv_transpose", [x, w], expected, groups=groups, stride=stride,
                    padding=before, output_padding=extra,
                )
    calls.compare()


def transposed(x, w, groups, stride, padding, extra):
    """The transposed convolution: each element places the weights on the result."""
    image, window = x.shape[2:], w.shape[2:]
    gc, per_group = x.shape[1] // groups, w.shape[1]
    full = [(n - 1) * s + k + e for n, s, k, e in zip(image, stride, window, extra)]
    y = np.zeros((x.shape[0], groups * per_group, *full), "float64")
    for place in np.ndindex(*image):
        at = tuple(slice(p * s, p * s + k) for p, s, k in zip(place, stride, window))
        for group in range(groups):
            own = slice(group * gc, (group + 1) * gc)
            outs = slice(group * per_group, (group + 1) * per_group)
            pixel = x[(slice(None), own, *place)].astype("float64")
            y[(slice(None), outs, *at)] += np.tensordot(pixel, w[own].astype("float64"), 1)
    crop = tuple(slice(p, n - p) for p, n in zip(padding, full))
    return y[(slice(None), slice(None), *crop)].astype(x.dtype)


def test_integer_convolutions(calls):
    rng = np.random.default_rng(0)
    for dims, dtype in itertools.product((1, 2, 3), ("int32", "int8")):
        image, window, stride, dilation, before, after = spatial(rng, dims)
        x = rng.integers(-9, 9, (2, 3, *image)).astype(dtype)
        w = rng.integers(-9, 9, (2, 3, *window)).astype(dtype)
        expected = onnx_op(
            "Conv", x.astype("float64"), w.astype("float64"), strides=stride, dilations=dilation,
            pads=[*before, *after],
        )
        expected = expected.astype("int64").astype(dtype)
        calls.exact(
            "nn.conv", [x, w], expected, stride=stride, dilation=dilation, padding=before,
            padding_end=after,
        )
    calls.compare()


def pooled(x, window, stride, dilation, before, after, ceil_mode):
    """The windows of each element as lists of elements of the image, the number of cells with the
    padding, and the shape of the result."""
    image = x.shape[2:]
    out = []
    for n, k, s, d, p, q in zip(image, window, stride, dilation, before, after):
        span = n + p + q - (k - 1) * d - 1
        count = (-(-span // s) if ceil_mode else span // s) + 1
        while ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        out.append(count)
    for place in np.ndindex(*out):
        axes = []
        cells = 1
        for i, n, k, s, d, p, q in zip(place, image, window, stride, dilation, before, after):
            positions = [i * s + j * d - p for j in range(k)]
            cells *= sum(-p <= position < n + q for position in positions)
            axes.append([position for position in positions if 0 <= position < n])
        yield place, x[(slice(None), slice(None), *np.ix_(*axes))], cells, out


@pytest.mark.parametrize("seed", SEEDS)
def test_pools(calls, seed):
    rng = np.random.default_rng(seed)
    for dims, ceil_mode in itertools.product((1, 2, 3), (False, True)):
        image, window, stride, dilation, before, after = spatial(rng, dims)
        before = [min(p, (k - 1) * d // 2) for p, k, d in zip(before, window, dilation)]
        after = [min(p, (k - 1) * d // 2) for p, k, d in zip(after, window, dilation)]
        keys = dict(
            window=window, stride=stride, dilation=dilation, padding=before, padding_end=after,
            ceil_mode=ceil_mode,
        )
        x = draw(rng, "float32", 2, 3, *image)
        windows = list(pooled(x, window, stride, dilation, before, after, ceil_mode))
        last = tuple(range(2, 2 + dims))
        results = {name: np.zeros((2, 3, *windows[0][3]), "float32") for name in "msab"}
        for place, cells, count, _ in windows:
            at = (slice(None), slice(None), *place)
            inside = np.prod(cells.shape[2:])
            results["m"][at] = cells.max(last) if inside else -np.inf
            results["s"][at] = cells.sum(last)
            results["a"][at] = cells.sum(last) / inside if inside else np.nan
            results["b"][at] = cells.sum(last) / count if count else np.nan
        calls.exact("nn.max_pool", [x], results["m"], **keys)
        calls.close("nn.sum_pool", [x], results["s"], **keys)
        calls.close("nn.avg_pool", [x], results["a"], border=False, **keys)
        calls.close("nn.avg_pool", [x], results["b"], **keys)
        calls.exact("nn.max_pool", [x[0, 0]], results["m"][0, 0], **keys)
        whole = x.mean(last)
        calls.close("nn.global_avg_pool", [x], whole, dims=dims)
    calls.compare()


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_norms(calls, seed):
    rng = np.random.default_rng(seed)
    for rank, dtype in itertools.product(range(1, 5), ("float32", "float64")):
        shape = extents(rng, rank)
        x = draw(rng, dtype, *shape)
        wide = x.astype("float64")
        axis = int(rng.integers(0, rank))
        calls.close("nn.softmax", [x], softmax(wide, axis), axis=axis)
        calls.close("nn.log_softmax", [x], np.log(softmax(wide, axis)), axis=axis)
        dims = int(rng.integers(1, rank + 1))
        gamma, beta = (draw(rng, dtype, *shape[rank - dims :]) for _ in range(2))
        last = tuple(range(rank - dims, rank))
        mean, var = wide.mean(last, keepdims=True), wide.var(last, keepdims=True)
        expected = (wide - mean) / np.sqrt(var + 1e-3) * gamma + beta
        calls.close("nn.layer_norm", [x, gamma, beta], expected, eps=1e-3)
        square = np.mean(wide * wide, last, keepdims=True)
        calls.close("nn.rms_norm", [x, gamma], wide / np.sqrt(square + 1e-3) * gamma, eps=1e-3)
        channel = [1] * rank
        channel[axis] = shape[axis]
        mean, gamma, beta = (draw(rng, dtype, shape[axis]) for _ in range(3))
        var = np.abs(draw(rng, dtype, shape[axis])) + 1
        by = lambda v: v.reshape(channel)
        expected = (wide - by(mean)) / np.sqrt(by(var) + 1e-3) * by(gamma) + by(beta)
        calls.close("nn.batch_norm", [x, mean, var, gamma, beta], expected, axis=axis, eps=1e-3)
        if rank < 2:
            continue
        groups = int(rng.integers(1, 4))
        x = draw(rng, dtype, shape[0], 2 * groups, *shape[2:], 2)
        gamma, beta = draw(rng, dtype, 2 * groups), draw(rng, dtype, 2 * groups)
        for name, parts, more in (
            ("nn.group_norm", groups, {"groups": groups}),
            ("nn.instance_norm", 2 * groups, {}),
        ):
            grouped = x.astype("float64").reshape(shape[0], parts, -1)
            mean, var = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
            unit = ((grouped - mean) / np.sqrt(var + 1e-3)).reshape(x.shape)
            channel = (1, -1) + (1,) * (x.ndim - 2)
            expected = unit * gamma.reshape(channel) + beta.reshape(channel)
            calls.close(name, [x, gamma, beta], expected, eps=1e-3, **more)
    calls.compare()


@pytest.mark.parametrize("seed", SEEDS)
def test_attention(calls, seed):
    rng = np.random.default_rng(seed)
    for rank, dtype in itertools.product(range(3), ("float32", "float64")):
        batch, (g, group, n, m, d, e) = extents(rng, rank), extents(rng, 6)
        m += n
        q = draw(rng, dtype, *batch, g * group, n, d)
        k, v = draw(rng, dtype, *batch, g, m, d), draw(rng, dtype, *batch, g, m, e)
        wide = [np.repeat(y, group, axis=-3).astype("float64") for y in (k, v)]
        scores = q.astype("float64") @ wide[0].swapaxes(-1, -2)
        scaled = scores / np.sqrt(d)
        calls.close("nn.attention", [q, k, v], softmax(scaled, -1) @ wide[1])
        calls.close("nn.attention", [q, k, v], softmax(scores * 0.5, -1) @ wide[1], scale=0.5)
        seen = np.tril(np.ones((n, m), bool), m - n)
        causal = softmax(np.where(seen, scaled, -np.inf), -1) @ wide[1]
        calls.close("nn.attention", [q, k, v], causal, causal=True)
        mask = np.where(rng.integers(0, 2, (n, m)), 0, -np.inf).astype(dtype)
        mask[0] = -np.inf
        with np.errstate(invalid="ignore"):
            masked = np.nan_to_num(softmax(scaled + mask, -1)) @ wide[1]
        calls.close("nn.masked_attention", [q, k, v, mask], masked)
        scores = draw(rng, dtype, *batch, m)
        calls.close("nn.attention_weights", [scores], softmax(scores.astype("float64"), -1))
    calls.compare()


BORDERS = {
    "image.pad_clamp": "edge",
    "image.pad_wrap": "wrap",
    "image.pad_mirror": "symmetric",
    "image.pad_reflect": "reflect",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_borders(calls, seed):
    rng = np.random.default_rng(seed)
    for rank, dtype in itertools.product(range(1, 4), TYPES):
        shape = extents(rng, rank, high=4)
        x = draw(rng, dtype, *shape)
        # Wider than the image, too.
        before, after = ([int(rng.integers(0, 7)) for _ in shape] for _ in range(2))
        keys = dict(before=before, after=after)
        for name, mode in BORDERS.items():
            calls.exact(name, [x], np.pad(x, list(zip(before, after)), mode), **keys)
        padded = np.pad(x, list(zip(before, after)), constant_values=3)
        calls.exact("image.pad_constant", [x], padded, val=3, **keys)
    calls.compare()


def interpolation(mode, n, size, align):
    """The weights of `n` elements for each of `size` elements, by PyTorch's rules."""
    weights = np.zeros((size, n))
    for i in range(size):
        at = i * (n - 1) / max(size - 1, 1) if align else (i + 0.5) * n / size - 0.5
        at = max(at, 0.0) if mode == "linear" else at
        # Rounding must not move a position that is an integer below it.
        base = int(np.floor(at + 1e-9))
        for tap in (0, 1) if mode == "linear" else (-1, 0, 1, 2):
            x = abs(at - base - tap)
            if mode == "linear":
                weight = 1 - x
            elif x <= 1:
                weight = 1.25 * x**3 - 2.25 * x**2 + 1
            else:
                weight = -0.75 * x**3 + 3.75 * x**2 - 6 * x + 3
            weights[i, min(max(base + tap, 0), n - 1)] += weight
    return weights


@pytest.mark.parametrize("seed", SEEDS)
def test_resizes(calls, seed):
    rng = np.random.default_rng(seed)
    names = {"linear": "image.resize_linear", "cubic": "image.resize_cubic"}
    for dims, dtype in itertools.product((1, 2, 3), ("float32", "float64")):
        image, sizes = extents(rng, dims, high=6), extents(rng, dims, high=9)
        x = draw(rng, dtype, 2, *image)
        for mode, align in itertools.product(names, (False, True)):
            expected = x.astype("float64")
            for axis, (n, size) in enumerate(zip(image, sizes), 1):
                weights = interpolation(mode, n, size, align)
                expected = np.moveaxis(np.tensordot(weights, expected, (1, axis)), 0, axis)
            calls.close(names[mode], [x], expected, sizes=sizes, align_corners=align)
            # The reference evaluator computes with float32.
            if dtype == "float32" and min(*image, *sizes) > 1:
                position = "align_corners" if align else "half_pixel"
                size = np.array([2, *sizes], "int64")
                again = onnx_op(
                    "Resize", x, None, None, size, mode=mode,
                    coordinate_transformation_mode=position,
                )
                np.testing.assert_allclose(expected, again, rtol=1e-3, atol=1e-4)
        nearest = lambda half: x[
            (
                slice(None),
                *np.ix_(*[
                    [(2 * i + 1) * n // (2 * k) if half else i * n // k for i in range(k)]
                    for n, k in zip(image, sizes)
                ]),
            )
        ]
        calls.exact("image.resize_nearest", [x], nearest(False), sizes=sizes)
        calls.exact("image.resize_nearest", [x], nearest(True), sizes=sizes, centers=True)
    calls.compare()


def test_run_time_extents(calls):
    """Extents that only the call knows, and tensors without elements."""
    rng = np.random.default_rng(0)
    for shape in ([0, 3], [4, 0], [1, 1], [5, 7]):
        x = draw(rng, "float32", *shape)
        calls.exact("nn.relu", [x], np.maximum(x, 0), run_time=True)
        calls.exact("nn.transpose", [x], x.T, run_time=True, perm=[1, 0])
        calls.exact("nn.add", [x, x], x + x, run_time=True)
        calls.close("nn.reduce_sum", [x], x.sum(1), run_time=True, axes=[1])
        bias, w = draw(rng, "float32", 2), draw(rng, "float32", 2, shape[1])
        calls.close("nn.dense", [x, w, bias], x @ w.T + bias, run_time=True)
        if 0 not in shape:
            calls.close("nn.softmax", [x], softmax(x, 1), run_time=True)
            border = np.pad(x, 2, "reflect") if min(shape) > 1 else np.pad(x, 2, "edge")
            calls.exact("image.pad_reflect", [x], border, run_time=True, before=2)
    calls.compare()


def test_messages(tmp_path):
    """What does not fit is refused with the values and the place of the call."""
    for call, message in {
        "nn.add(X, Y)": "do not broadcast",
        "nn.reshape(X, to=[5])": "different numbers of elements",
        "nn.transpose(X, perm=[0, 0])": "not a permutation",
        "nn.matmul(X, X)": "needs",
        "nn.concat(X, Y, axis=0)": "differ in another dimension",
        "nn.conv(X, X, padding=[1, 1, 1])": "expanded together",
        "nn.softmax(X, axis=2)": "has no element 2",
        "nn.relu(X, Y)": "takes 1 input",
    }.items():
        file = tmp_path / "k.te"
        file.write_text(
            'import "nn.te" as nn\nkernel k() {\n    input X: float32[2, 3]\n'
            f"    input Y: float32[2, 4]\n    output Z = {call}\n}}\n"
        )
        done = run_tec("check", file)
        assert done.returncode == 1, call
        assert message in done.stderr, done.stderr
        assert text([2, 3]) == "[2, 3]"
