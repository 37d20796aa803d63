"""Language models as onnxruntime's tools write them: attention with caches, weights in blocks.

`attention` is written by hand after the definition of the operator; onnxruntime gives the same.
"""

import ctypes

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from conftest import run_tec
from dl import Module
from onnx_models import model, refused, run, run_node

F = np.float32
HEADS, GROUPS, SIZE = 4, 2, 16
TABLE = 64


def angles(turned):
    """Cosines and sines of the positions."""
    angle = np.arange(TABLE)[:, None] * np.linspace(1, 0.1, turned // 2)
    return np.cos(angle).astype(F), np.sin(angle).astype(F)


def rotated(x, positions, cos, sin, interleaved):
    """Turns [batch, head, position, size] by the angles of the positions."""
    x, half = x.copy(), cos.shape[1]
    c, s = cos[positions][:, None], sin[positions][:, None]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(0, half), slice(half, 2 * half))
    )
    a, b = x[..., first].copy(), x[..., second].copy()
    x[..., first], x[..., second] = a * c - b * s, b * c + a * s
    return x


def attention(feeds, total, **attributes):
    """Results and caches of a GroupQueryAttention; `feeds` is by the names of the operator."""
    attribute = attributes.get
    q, k, v = (feeds.get(name) for name in ("query", "key", "value"))
    if k is None:
        ends = np.cumsum([HEADS * SIZE, GROUPS * SIZE])
        q, k, v = np.split(q, ends, axis=2)
    batch, new = q.shape[:2]
    q, k, v = (
        x.reshape(batch, new, -1, SIZE).transpose(0, 2, 1, 3).astype(F) for x in (q, k, v)
    )
    last = feeds["seqlens_k"].reshape(-1)
    past = np.zeros(batch, int) if new == total else last + 1 - new
    if attribute("do_rotary"):
        positions = past[:, None] + np.arange(new)
        if "position_ids" in feeds:
            positions = feeds["position_ids"]
            if new == total:
                positions = np.tile(positions[0, 0] + np.arange(new), (batch, 1))
        tables = feeds["cos_cache"], feeds["sin_cache"], attribute("rotary_interleaved")
        q, k = rotated(q, positions, *tables), rotated(k, positions, *tables)
    before = feeds.get("past_key", np.zeros((batch, GROUPS, 0, SIZE), F))
    rows = max(total, before.shape[2])
    keys, values = np.zeros((2, batch, GROUPS, rows, SIZE), F)
    result = np.zeros((batch, new, HEADS * SIZE), F)
    bias, sink = feeds.get("attention_bias"), feeds.get("head_sink")
    for b, start in enumerate(past):
        if start:
            keys[b, :, :start] = feeds["past_key"][b, :, :start]
            values[b, :, :start] = feeds["past_value"][b, :, :start]
        keys[b, :, start : start + new] = k[b]
        values[b, :, start : start + new] = v[b]
        for i in range(new):
            end = start + i + 1 if attribute("causal", 1) else last[b] + 1
            window = attribute("local_window_size", -1)
            low = max(0, end - window) if window > 0 else 0
            for head in range(HEADS):
                group = head // (HEADS // GROUPS)
                score = keys[b, group, low:end] @ q[b, head, i]
                score = score * (attribute("scale") or SIZE**-0.5)
                if attribute("softcap"):
                    score = attribute("softcap") * np.tanh(score / attribute("softcap"))
                if bias is not None:
                    score = score + bias[b % len(bias), head % bias.shape[1], i, low:end]
                most, rest = score.max(), 0.0
                if attribute("smooth_softmax") or sink is not None:
                    extra = 0.0 if sink is None else sink[head]
                    most = max(most, extra)
                    rest = np.exp(extra - most)
                weight = np.exp(score - most)
                weight /= weight.sum() + rest
                place = slice(head * SIZE, (head + 1) * SIZE)
                result[b, i, place] = weight @ values[b, group, low:end]
    return result, keys, values


NAMES = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache "
    "position_ids attention_bias head_sink"
).split()


def node_of(names, **attributes):
    inputs = [name if name in names else "" for name in NAMES]
    return helper.make_node(
        "GroupQueryAttention",
        inputs,
        ["y", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        **attributes,
    )


def operands(rng, batch, new, past, last, packed=False, rotary=0, extra=(), dtype=F):
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)  # noqa: E731
    width = HEADS * SIZE, GROUPS * SIZE
    feeds = {"query": draw(batch, new, width[0] + 2 * width[1] * packed)}
    if not packed:
        feeds |= {"key": draw(batch, new, width[1]), "value": draw(batch, new, width[1])}
    if past is not None:
        feeds |= {name: draw(batch, GROUPS, past, SIZE) for name in ("past_key", "past_value")}
    feeds["seqlens_k"] = np.array(last, np.int32)
    if rotary:
        cos, sin = angles(rotary)
        feeds |= {"cos_cache": cos.astype(dtype), "sin_cache": sin.astype(dtype)}
    return feeds | dict(extra)


def check(folder, feeds, total, tolerance=1e-5, **attributes):
    dtype = feeds["query"].dtype
    expected = attention(feeds, total, **attributes)
    outputs = dict(zip(("y", "present_key", "present_value"), (e.astype(dtype) for e in expected)))
    wanted = [value.astype(F) for value in expected]
    names = [*feeds, "total_sequence_length"]
    number = numpy_helper.from_array(np.array(total, np.int32), "total_sequence_length")
    own = model([node_of(names, **attributes)], feeds, outputs, 18, [number], "com.microsoft")
    error = run(folder, own, feeds, outputs)
    assert not error, error
    lengths = feeds["seqlens_k"].reshape(-1) + 1
    new = feeds["query"].shape[1]
    for b, length in enumerate(lengths):
        # Behind the end of a sequence that is shorter than the longest one nothing is defined.
        end = length if new == total else new
        found = outputs["y"].astype(F)[b, :end]
        np.testing.assert_allclose(found, wanted[0][b, :end], tolerance, tolerance)
    for name, value in zip(("present_key", "present_value"), wanted[1:]):
        np.testing.assert_allclose(outputs[name].astype(F), value, tolerance, tolerance)


# Batch, new tokens, rows of the caches, last tokens of the sequences, tokens of the longest one.
SHAPES = {
    "prompt": (2, 5, 0, [4, 4], 5),
    "prompts of several lengths": (3, 5, 0, [4, 2, 0], 5),
    "prompt without a cache": (1, 3, None, [2], 3),
    "one token": (1, 1, 5, [5], 6),
    "one token of several lengths": (3, 1, 7, [7, 3, 0], 8),
    "several tokens": (1, 3, 5, [7], 8),
    "prompt in a longer cache": (2, 5, 12, [4, 2], 5),
    "one token in a longer cache": (2, 1, 12, [5, 3], 6),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_caches_have_the_new_rows(tmp_path, rng, shape):
    batch, new, past, last, total = SHAPES[shape]
    check(tmp_path, operands(rng, batch, new, past, last, rotary=SIZE), total, do_rotary=1)


@pytest.mark.parametrize(
    "attributes",
    [
        {"local_window_size": 1},
        {"local_window_size": 3},
        {"softcap": 2.0, "scale": 0.5},
        {"smooth_softmax": 1},
        {"do_rotary": 1, "rotary_interleaved": 1},
        {"causal": 0},
    ],
    ids=str,
)
def test_attributes(tmp_path, rng, attributes):
    rotary = SIZE if attributes.get("do_rotary") else 0
    prompt = operands(rng, 2, 7, 0, [6, 4], rotary=rotary)
    check(tmp_path, prompt, 7, **attributes)
    check(tmp_path, operands(rng, 2, 1, 8, [8, 4], rotary=rotary), 9, **attributes)


def test_packed_operands_and_half_of_each_head_turned(tmp_path, rng):
    check(tmp_path, operands(rng, 2, 5, 0, [4, 1], packed=True, rotary=8), 5, do_rotary=1)


def test_positions_bias_and_sinks(tmp_path, rng):
    draw = lambda *shape: rng.standard_normal(shape).astype(F)  # noqa: E731
    extra = {
        "position_ids": np.array([[9], [2]]),
        "attention_bias": draw(1, HEADS, 1, 6),
        "head_sink": draw(HEADS),
    }
    check(tmp_path, operands(rng, 2, 1, 5, [5, 3], rotary=SIZE, extra=extra), 6, do_rotary=1)
    # The first call counts on from the first position.
    extra = {"position_ids": np.array([[3, 1, 4, 1]])}
    check(tmp_path, operands(rng, 1, 4, 0, [3], rotary=SIZE, extra=extra), 4, do_rotary=1)


def test_halves(tmp_path, rng):
    feeds = operands(rng, 2, 1, 5, [5, 3], rotary=SIZE, dtype=np.float16)
    check(tmp_path, feeds, 6, tolerance=4e-3, do_rotary=1)


def test_impossible_lengths_give_nan(tmp_path, rng):
    feeds = operands(rng, 3, 1, 5, [5, 6, -1])
    outputs = {"y": np.zeros((3, 1, HEADS * SIZE), F)}
    outputs |= {name: np.zeros((3, GROUPS, 6, SIZE), F) for name in ("k", "v")}
    number = numpy_helper.from_array(np.array(6, np.int32), "total_sequence_length")
    node = node_of([*feeds, "total_sequence_length"])
    node.output[:] = list(outputs)
    own = model([node], feeds, outputs, 18, [number], "com.microsoft")
    assert not run(tmp_path, own, feeds, outputs)
    found = np.isnan(outputs["y"]).all(axis=(1, 2)).tolist()
    assert found == [False, True, True] and not np.isnan(outputs["y"][0]).any()


def tables_by_length(cos, sin):
    """A node that takes other angles for texts of more than 5 tokens, in tables of more rows."""
    branches = {}
    for name, tables in (("then", (cos, sin)), ("else", (cos[:5] / 2, sin[:5] / 2))):
        values = [numpy_helper.from_array(value, f"{name}{at}") for at, value in enumerate(tables)]
        nodes = [helper.make_node("Constant", [], [value.name], value=value) for value in values]
        info = [
            helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, value.dims)
            for value in values
        ]
        branches[f"{name}_branch"] = helper.make_graph(nodes, name, [], info)
    return [
        helper.make_node("Greater", ["width", "five"], ["is_long"]),
        helper.make_node("If", ["is_long"], ["cos_cache", "sin_cache"], **branches),
    ]


def decoder(by_length=False):
    """One layer with run-time extents, and the numbers of tokens from a mask."""
    cache = ["batch", GROUPS, "past", SIZE]
    new = ["batch", "new"]
    inputs = {
        "query": [*new, HEADS * SIZE],
        "key": [*new, GROUPS * SIZE],
        "value": [*new, GROUPS * SIZE],
        "past_key": cache,
        "past_value": cache,
    }
    present = ["batch", GROUPS, "total", SIZE]
    outputs = {"y": [*new, HEADS * SIZE], "present_key": present, "present_value": present}
    cos, sin = angles(SIZE)
    constants = {"five": np.array(5), "one": np.array([1]), "axis": np.array(1)}
    if not by_length:
        constants |= {"cos_cache": cos, "sin_cache": sin}
    own = helper.make_node
    nodes = [
        own("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
        own("Sub", ["count", "one"], ["last"]),
        own("Cast", ["last"], ["seqlens_k"], to=onnx.TensorProto.INT32),
        own("Shape", ["mask"], ["shape"]),
        own("Gather", ["shape", "axis"], ["width"]),
        own("Cast", ["width"], ["total_sequence_length"], to=onnx.TensorProto.INT32),
        *(tables_by_length(cos, sin) if by_length else []),
        node_of(NAMES[:9], do_rotary=1),
    ]
    info = lambda shapes: [  # noqa: E731
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    mask = helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, ["batch", "total"])
    graph = helper.make_graph(
        nodes,
        "g",
        [*info(inputs), mask],
        info(outputs),
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def built(folder, *options, by_length=False):
    onnx.save(decoder(by_length), folder / "decoder.onnx")
    done = run_tec("import", folder / "decoder.onnx", "-o", folder / "decoder.te", *options)
    assert done.returncode == 0, done.stderr
    done = run_tec("build", folder / "decoder.te", "-o", folder / "decoder.so")
    assert done.returncode == 0, done.stderr
    return Module(str(folder / "decoder.so"))


def steps(rng, lengths, count):
    """Calls of a batch: the prompt, then one token after the other, with masks and tokens."""
    lengths = np.array(lengths)
    longest = lengths.max()
    for step in range(count):
        total = longest + step
        mask = (np.arange(total) < (lengths + step)[:, None]).astype(np.int64)
        yield longest if step == 0 else 1, total, mask


@pytest.mark.parametrize("lengths", [[4], [5, 2, 1]], ids=str)
def test_a_module_generates_with_caches_that_grow(tmp_path, rng, lengths):
    module = built(tmp_path)
    keys = values = np.zeros((len(lengths), GROUPS, 0, SIZE), F)
    for new, total, mask in steps(rng, lengths, 4):
        last = mask.sum(1).astype(np.int32) - 1
        feeds = operands(rng, len(lengths), new, keys.shape[2], last, rotary=SIZE)
        feeds |= {"past_key": keys, "past_value": values}
        expected = attention(feeds, total, do_rotary=1)
        found = [np.ones_like(value) for value in expected]
        arguments = [feeds[name] for name in NAMES[:5]]
        assert module.dl("decoder", *arguments, mask, *found) == 0, module.last_error()
        for b, end in enumerate(last + 1 if new == total else [new] * len(lengths)):
            np.testing.assert_allclose(found[0][b, :end], expected[0][b, :end], 1e-5, 1e-5)
        np.testing.assert_allclose(found[1], expected[1], 1e-5, 1e-5)
        np.testing.assert_allclose(found[2], expected[2], 1e-5, 1e-5)
        keys, values = expected[1:]


def test_tables_of_angles_by_the_number_of_tokens(tmp_path, rng):
    module = built(tmp_path, by_length=True)
    for total in (3, 5, 6, 9):
        feeds = operands(rng, 1, total, 0, [total - 1], rotary=SIZE)
        if total <= 5:
            feeds["cos_cache"], feeds["sin_cache"] = feeds["cos_cache"] / 2, feeds["sin_cache"] / 2
        expected = attention(feeds, total, do_rotary=1)
        found = [np.ones_like(value) for value in expected]
        arguments = [feeds[name] for name in NAMES[:5]]
        mask = np.ones((1, total), np.int64)
        assert module.dl("decoder", *arguments, mask, *found) == 0, module.last_error()
        for value, wanted in zip(found, expected):
            np.testing.assert_allclose(value, wanted, 1e-5, 1e-5)


def test_more_tokens_than_rows_are_refused(tmp_path, rng):
    module = built(tmp_path)
    feeds = operands(rng, 1, 1, 5, [6])
    cache = np.zeros((1, GROUPS, 7, SIZE), F)
    outputs = [np.zeros((1, 1, HEADS * SIZE), F), cache, cache.copy()]
    arguments = [feeds[name] for name in NAMES[:5]]
    assert module.dl("decoder", *arguments, np.ones((1, 7), np.int64), *outputs) != 0
    assert "total" in module.last_error()


def test_a_module_generates_in_place(tmp_path, rng):
    module = built(tmp_path, "--in-place", "past_*=present_*")
    capacity, batch = 12, 2
    caches = np.full((2, batch, GROUPS, capacity, SIZE), np.nan, F)
    keys = values = np.zeros((batch, GROUPS, 0, SIZE), F)
    for new, total, mask in steps(rng, [4, 4], 4):
        past = int(total - new)
        feeds = operands(rng, batch, new, past, [total - 1] * batch, rotary=SIZE)
        feeds |= {"past_key": keys, "past_value": values}
        expected = attention(feeds, total, do_rotary=1)
        found = np.ones_like(expected[0])
        arguments = [feeds[name] for name in NAMES[:3]]
        status = module.dl("decoder", *arguments, *caches, mask, found, ctypes.c_int64(past))
        assert status == 0, module.last_error()
        np.testing.assert_allclose(found, expected[0], 1e-5, 1e-5)
        np.testing.assert_allclose(caches[0, :, :, :total], expected[1], 1e-5, 1e-5)
        np.testing.assert_allclose(caches[1, :, :, :total], expected[2], 1e-5, 1e-5)
        assert np.isnan(caches[:, :, :, total:]).all()
        keys, values = expected[1:]
    # A mask that hides a token would need other rows.
    mask[0, -1] = 0
    status = module.dl("decoder", *arguments, *caches, mask, found, ctypes.c_int64(past))
    assert status == 0 and np.isnan(found[0]).all() and not np.isnan(found[1]).any()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
@pytest.mark.parametrize("k, n, block", [(64, 48, 16), (72, 70, 32), (48, 6, 16)])
def test_products_by_packed_weights(tmp_path, rng, bits, zeros, k, n, block):
    count, each = -(-k // block), 8 // bits
    codes = rng.integers(0, 1 << bits, (n, count * block))
    scales = rng.uniform(0.5, 1.5, (n, count)).astype(F)
    pack = lambda x: np.bitwise_or.reduce(  # noqa: E731
        x.reshape(*x.shape[:-1], -1, each) << (bits * np.arange(each)), axis=-1
    ).astype(np.uint8)
    constants = {"b": pack(codes).reshape(n, count, -1), "s": scales.reshape(-1)}
    zero = np.full((n, count), 1 << (bits - 1))
    if zeros != "none":
        zero = rng.integers(0, 1 << bits, (n, count))
        rows = np.zeros((n, -(-count // each) * each), int)
        rows[:, :count] = zero
        constants["z"] = zero.astype(F) if zeros == "floats" else pack(rows).reshape(-1)
    bias = rng.standard_normal(n).astype(F)
    names = ["x", "b", "s", "z" if zeros != "none" else "", "", "c"]
    constants["c"] = bias
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
    )
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    wide = ((codes - zero.repeat(block, 1)) * scales.repeat(block, 1).astype(float))[:, :k]
    for rows in (1, 3, 40):
        x = rng.standard_normal((2, rows, k)).astype(F)
        outputs = {"y": np.zeros((2, rows, n), F)}
        own = model([node], {"x": x}, outputs, 17, initializers, "com.microsoft")
        assert not run(tmp_path, own, {"x": x}, outputs)
        scale = np.abs(x).astype(float) @ np.abs(wide).T + np.abs(bias)
        assert (np.abs(outputs["y"] - (x @ wide.T + bias)) <= 1e-5 * scale + 1e-5).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("shape", [["rows", 32], [2, "rows", 32], ["rows", 2, 32]], ids=str)
def test_a_few_and_many_rows_of_one_module(tmp_path, rng, bits, shape):
    n, count, each = 24, 2, 8 // bits
    codes = rng.integers(0, 1 << bits, (n, count * 16))
    scales = rng.uniform(0.5, 1.5, (n, count)).astype(F)
    packed = np.bitwise_or.reduce(codes.reshape(n, -1, each) << (bits * np.arange(each)), axis=-1)
    constants = {"b": packed.astype(np.uint8).reshape(n, count, -1), "s": scales}
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=32, N=n, bits=bits,
        block_size=16,
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", onnx.TensorProto.FLOAT, shape)],
        [info("y", onnx.TensorProto.FLOAT, [*shape[:-1], n])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "rows.onnx")
    done = run_tec("build", tmp_path / "rows.onnx", "-o", tmp_path / "rows.so")
    assert done.returncode == 0, done.stderr
    module = Module(str(tmp_path / "rows.so"))
    wide = ((codes - (1 << (bits - 1))) * scales.repeat(16, 1)).astype(float)
    for rows in (0, 1, 3, 4, 6, 7, 40):
        x = rng.standard_normal([rows if at == "rows" else at for at in shape]).astype(F)
        y = np.ones((*x.shape[:-1], n), F)
        assert module.dl("rows", x, y) == 0, module.last_error()
        np.testing.assert_allclose(y, x @ wide.T, 1e-4, 1e-3)


def test_orders_of_groups(tmp_path, rng):
    """`g_idx` of blocks of neighbours changes nothing; another one is refused."""
    groups = np.arange(32, dtype=np.int32) // 16
    weights = rng.integers(0, 256, (4, 2, 8)).astype(np.uint8)
    constants = {"b": weights, "s": rng.random((4, 2), F), "g": groups}
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s", "", "g"], ["y"], domain="com.microsoft", K=32, N=4,
        bits=4, block_size=16,
    )
    x, results = rng.standard_normal((1, 32)).astype(F), []
    for own_node in (node, helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"],
                     domain="com.microsoft", K=32, N=4, bits=4, block_size=16)):
        initializers = [numpy_helper.from_array(v, name) for name, v in constants.items()]
        outputs = {"y": np.zeros((1, 4), F)}
        own = model([own_node], {"x": x}, outputs, 17, initializers, "com.microsoft")
        assert not run(tmp_path, own, {"x": x}, outputs)
        results.append(outputs["y"])
    np.testing.assert_array_equal(*results)
    constants["g"] = groups[::-1].copy()
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    own = model([node], {"x": x}, {"y": np.zeros((1, 4), F)}, 17, initializers, "com.microsoft")
    assert "`g_idx` is not supported" in refused(tmp_path, own)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rows", [1, 40])
def test_blocks_that_are_dequantised(tmp_path, rng, dtype, axis, zeros, rows):
    k, n, block = 72, 48, 16
    own = np.dtype(getattr(ml_dtypes, dtype) if "4" in dtype else dtype)
    low = {"int4": -8, "int8": -128}.get(dtype, 0)
    span = 16 if "4" in dtype else 256
    shape = [n, k] if axis else [k, n]
    few = list(shape)
    few[axis] = -(-k // block)
    draw = lambda shape: rng.integers(low, low + span, shape).astype(own)  # noqa: E731
    constants = {"q": draw(shape), "s": rng.uniform(0.5, 1.5, few).astype(F)}
    if zeros:
        constants["z"] = draw(few)
    nodes = [
        helper.make_node(
            "DequantizeLinear", list(constants), ["w"], axis=axis, block_size=block
        )
    ]
    if axis:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if axis else "w"], ["y"]))
    x = rng.standard_normal((rows, k)).astype(F)
    outputs = {"y": np.zeros((rows, n), F)}
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    made = model(nodes, {"x": x}, outputs, 21, initializers)
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    assert not run(tmp_path, made, {"x": x}, outputs)
    np.testing.assert_allclose(outputs["y"], expected, 1e-4, 1e-4 * span)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_quantised_table(tmp_path, rng, bits, zeros):
    rows, width, block, each = 10, 96, 32, 8 // bits
    codes = rng.integers(0, 1 << bits, (rows, width))
    pack = lambda x: np.bitwise_or.reduce(  # noqa: E731
        x.reshape(rows, -1, each) << (bits * np.arange(each)), axis=-1
    ).astype(np.uint8)
    scales = rng.random((rows, width // block), F)
    inputs = {"d": pack(codes), "i": rng.integers(-rows, rows, (2, 3)), "s": scales}
    zero = np.full(scales.shape, 1 << (bits - 1))
    if zeros:
        zero = rng.integers(0, 1 << bits, scales.shape)
        padded = np.zeros((rows, -(-scales.shape[1] // each) * each), int)
        padded[:, : scales.shape[1]] = zero
        inputs["z"] = pack(padded)
    outputs = {"y": np.zeros((2, 3, width), F)}
    [y] = run_node(
        tmp_path, "GatherBlockQuantized", inputs, outputs, 17, "com.microsoft", bits=bits,
        block_size=block, gather_axis=0, quantize_axis=1,
    )
    expected = (codes - zero.repeat(block, 1)) * scales.repeat(block, 1)
    np.testing.assert_allclose(y, expected[inputs["i"]], 1e-6)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_rows_of_a_table_of_four_bits(tmp_path, rng, dtype):
    own = np.dtype(getattr(ml_dtypes, dtype))
    table = rng.integers(-8 if dtype == "int4" else 0, 8, (6, 5, 32)).astype(own)
    scales = rng.random((6, 5, 2), F)
    initializers = [numpy_helper.from_array(table, "d"), numpy_helper.from_array(scales, "s")]
    ids = rng.integers(0, 5, 4)
    node = helper.make_node(
        "GatherBlockQuantized", ["d", "i", "s"], ["y"], domain="com.microsoft", block_size=16,
        gather_axis=1, quantize_axis=-1,
    )
    outputs = {"y": np.zeros((6, 4, 32), F)}
    made = model([node], {"i": ids}, outputs, 21, initializers, "com.microsoft")
    assert not run(tmp_path, made, {"i": ids}, outputs)
    expected = table.astype(F) * scales.repeat(16, 2)
    np.testing.assert_allclose(outputs["y"], expected[:, ids], 1e-6)


def test_what_is_not_supported_is_named(tmp_path, rng):
    feeds = operands(rng, 1, 1, 5, [5])
    outputs = {"y": np.zeros((1, 1, HEADS * SIZE), F)}
    present = ("present_key", "present_value")
    outputs |= {name: np.zeros((1, GROUPS, 6, SIZE), F) for name in present}
    number = numpy_helper.from_array(np.array(6, np.int32), "total_sequence_length")
    for attributes in (
        {"sliding_window_cache": 1, "local_window_size": 4},
        {"k_quant_type": "PER_TENSOR"},
        {"qk_output": 1},
    ):
        node = node_of([*feeds, "total_sequence_length"], **attributes)
        own = model([node], feeds, outputs, 18, [number], "com.microsoft")
        message = refused(tmp_path, own)
        assert "GroupQueryAttention" in message and f"`{list(attributes)[0]}`" in message
