"""NonMaxSuppression of ONNX against its definition in NumPy, and against onnxruntime."""

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import run_tec
from onnx_models import call, model, refused, run

F = np.float32
INT = np.int64
LOW = -np.inf


def corners(boxes, center):
    """The least and greatest coordinates of boxes."""
    if center:
        half = boxes[:, 2:] / F(2)
        return boxes[:, :2] - half, boxes[:, :2] + half
    return np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])


def overlap(low, high, at):
    """The intersection of each box with one box, over their union; 0 if they share no area."""
    sides = np.minimum(high, high[at]) - np.maximum(low, low[at])
    shared = np.where((sides > 0).all(1), sides[:, 0] * sides[:, 1], F(0))
    size = high - low
    area = size[:, 0] * size[:, 1]
    union = area + area[at] - shared
    there = (shared > 0) & (union > 0)
    return np.where(there, shared / np.where(there, union, F(1)), F(0))


@np.errstate(invalid="ignore", over="ignore")
def select(boxes, scores, most, iou=0.0, least=None, center=0):
    """All boxes that are selected: rows of batch, class and box."""
    rows = []
    for batch, of_classes in enumerate(scores):
        low, high = corners(boxes[batch], center)
        for number, own in enumerate(of_classes):
            left = ~np.isnan(own) if least is None else own > F(least)
            for _ in range(max(most, 0)):
                if not left.any():
                    break
                # Of equal scores, the first one.
                best = np.flatnonzero(left)[np.argmax(own[left])]
                rows.append((batch, number, best))
                left &= ~(overlap(low, high, best) > F(iou))
                left[best] = False
    return np.array(rows, INT).reshape(-1, 3)


def padded(rows, count):
    return np.concatenate([rows, np.full((count, 3), -1, INT)])[:count]


def draw(rng, b, c, n, center=0):
    """Boxes of all kinds, and scores with ties."""
    a, size = rng.uniform(0, 10, (b, n, 2)), rng.uniform(0, 4, (b, n, 2))
    boxes = np.concatenate([a, size if center else a + size], -1).astype(F)
    kind = rng.integers(0, 8, (b, n))
    # Other diagonals, boxes without an area, equal boxes, and boxes that touch.
    if not center:
        boxes = np.where((kind == 0)[..., None], boxes[..., [2, 3, 0, 1]], boxes)
        boxes = np.where((kind == 1)[..., None], boxes[..., [2, 1, 0, 3]], boxes)
        boxes[..., 3] = np.where(kind == 2, boxes[..., 1], boxes[..., 3])
    else:
        boxes[..., 3] = np.where(kind == 2, 0, boxes[..., 3])
    if n:
        boxes = np.where((kind == 3)[..., None], boxes[:, :1], boxes)
    boxes = np.where((kind == 4)[..., None], np.round(boxes), boxes)
    scores = np.round(rng.uniform(-0.5, 1, (b, c, n)) * 16) / F(16)
    return boxes, scores.astype(F)


def nms(rows=None, opset=11, names="b s m i t", constants=(), **attributes):
    """A model of one node; `rows` is the declared number of rows of the result."""
    node = helper.make_node("NonMaxSuppression", names.split(" "), ["y"], **attributes)
    return lambda inputs: own_shape(
        model([node], inputs, {"y": np.zeros((0, 3), INT)}, opset, constants), rows
    )


def own_shape(own, rows):
    dim = own.graph.output[0].type.tensor_type.shape.dim[0]
    dim.Clear()
    if isinstance(rows, str):
        dim.dim_param = rows
    elif rows is not None:
        dim.dim_value = rows
    return own


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def build(folder, own, *options):
    path, module = folder / "model.onnx", folder / f"model{len(list(folder.iterdir()))}.so"
    onnx.save(own, path)
    done = run_tec("build", path, "-o", module, "--module", "model", "--no-sidecars", *options)
    assert done.returncode == 0, done.stderr
    return module


def found(module, inputs, count):
    y = np.full((count, 3), 77, INT)
    error = call(module, "g", list(inputs.values()), [y])
    assert not error, error
    return y


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 100])
@pytest.mark.parametrize("b, c", [(1, 1), (1, 5), (3, 17)])
def test_random_boxes(tmp_path, rng, b, c, n, center):
    most = 7
    boxes, scores = draw(rng, b, c, n, center)
    inputs = {"b": boxes, "s": scores, "i": np.array([0], F), "t": np.array([0], F)}
    own = nms(constants=[constant("m", [most])], center_point_box=center)(inputs)
    module = build(tmp_path, own)
    count = b * c * min(n, most)
    for iou, least in [(0, LOW), (0.3, 0.0), (0.5, 0.5), (0.75, 0.25), (1, 1), (1, LOW), (0, 0.0)]:
        inputs["i"][0], inputs["t"][0] = iou, least
        expected = select(boxes, scores, most, iou, least, center)
        assert np.array_equal(found(module, inputs, count), padded(expected, count)), (iou, least)


@pytest.mark.parametrize("rows", [1, 6, 20, 64, 500])
def test_declared_rows(tmp_path, rng, rows):
    boxes, scores = draw(rng, 2, 3, 30)
    inputs = {"b": boxes, "s": scores}
    constants = [constant("m", [10]), constant("i", F(0.5)), constant("t", F(0.25))]
    expected = select(boxes, scores, 10, 0.5, 0.25)
    assert 20 < len(expected) < 60
    module = build(tmp_path, nms(rows, constants=constants)(inputs))
    assert np.array_equal(found(module, inputs, rows), padded(expected, rows))


@pytest.mark.parametrize("rows", [4, 40])
def test_a_greatest_number_of_run_time(tmp_path, rng, rows):
    boxes, scores = draw(rng, 1, 4, 20)
    inputs = {"b": boxes, "s": scores, "m": np.array([0], INT)}
    module = build(tmp_path, nms(rows, names="b s m")(inputs))
    for most in [-3, 0, 1, 3, 10, 1000, sys.maxsize]:
        inputs["m"][0] = most
        expected = padded(select(boxes, scores, most), rows)
        assert np.array_equal(found(module, inputs, rows), expected), most
    text = refused(tmp_path, nms(None, names="b s m")(inputs))
    assert "constant values are needed for the inputs `m`" in text
    np.save(tmp_path / "m.npy", np.array([3], INT))
    frozen = build(
        tmp_path, nms(None, names="b s m")(inputs), "--freeze", f"m={tmp_path / 'm.npy'}"
    )
    del inputs["m"]
    expected = padded(select(boxes, scores, 3), 12)
    assert np.array_equal(found(frozen, inputs, 12), expected)


def test_greatest_numbers(tmp_path, rng):
    boxes, scores = draw(rng, 1, 2, 9)
    inputs = {"b": boxes, "s": scores}
    for most in [0, -1, 1, 9, 10, sys.maxsize]:
        own = nms(names="b s m", constants=[constant("m", most)], opset=10)(inputs)
        count = 2 * min(9, max(most, 0))
        expected = padded(select(boxes, scores, most), count)
        assert np.array_equal(found(build(tmp_path, own), inputs, count), expected), most
    # Without a greatest number no box is selected.
    for rows in [None, 0, 5]:
        module = build(tmp_path, nms(rows, names="b s")(inputs))
        assert (found(module, inputs, rows or 0) == -1).all()
    # Nor is one of no boxes.
    inputs = {"b": boxes[:, :0], "s": scores[..., :0]}
    for rows in [None, 4]:
        module = build(tmp_path, nms(rows, names="b s m", constants=[constant("m", 5)])(inputs))
        assert (found(module, inputs, rows or 0) == -1).all()


def test_special_values(tmp_path, rng):
    boxes, scores = draw(rng, 1, 3, 40)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], F)
    at = rng.integers(0, 5, scores.shape)
    scores = np.where(rng.random(scores.shape) < 0.4, special[at], scores)
    strange = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-30], F)
    at = rng.integers(0, 6, boxes.shape)
    boxes = np.where(rng.random(boxes.shape) < 0.1, strange[at], boxes)
    scores[0, 2] = np.nan
    inputs = {"b": boxes, "s": scores}
    for center in [0, 1]:
        for iou in [0.0, 0.5]:
            constants = [constant("m", 40), constant("i", F(iou))]
            own = nms(names="b s m i", constants=constants, center_point_box=center)(inputs)
            expected = padded(select(boxes, scores, 40, iou, None, center), 120)
            assert np.array_equal(found(build(tmp_path, own), inputs, 120), expected)


@pytest.mark.parametrize("center", [0, 1])
def test_each_operation_is_rounded(tmp_path, rng, center):
    """At the overlap itself as the threshold two boxes stay, and just below it one is dropped."""
    inputs = {"b": np.zeros((1, 2, 4), F), "s": F([[[2, 1]]]), "i": np.array([0], F)}
    own = nms(names="b s m i", constants=[constant("m", 2)], center_point_box=center)(inputs)
    module = build(tmp_path, own)
    for _ in range(300):
        a, size = rng.uniform(0, 1, (2, 2)), rng.uniform(2, 3, (2, 2))
        inputs["b"][0] = np.concatenate([a, size if center else a + size], -1)
        [_, iou] = overlap(*corners(inputs["b"][0], center), 0)
        assert 0 < iou < 1
        inputs["i"][0] = iou
        assert found(module, inputs, 2)[:, 2].tolist() == [0, 1]
        inputs["i"][0] = np.nextafter(iou, F(0))
        assert found(module, inputs, 2)[:, 2].tolist() == [0, -1]


def test_dimensions_of_run_time(tmp_path, rng):
    inputs = {"b": np.zeros((1, 1, 4), F), "s": np.zeros((1, 1, 1), F)}
    constants = [constant("m", [6]), constant("i", F(0.5))]
    own = nms("found", names="b s m i", constants=constants)(inputs)
    shapes = [("batch", "boxes", 4), ("batch", "classes", "boxes")]
    for info, shape in zip(own.graph.input, shapes):
        fresh = helper.make_tensor_value_info(info.name, TensorProto.FLOAT, shape)
        info.CopyFrom(fresh)
    module = build(tmp_path, own)
    for b, c, n in [(1, 1, 1), (2, 3, 5), (1, 7, 33), (2, 2, 16), (0, 2, 3), (1, 2, 0)]:
        boxes, scores = draw(rng, b, c, n)
        count = b * c * min(n, 6)
        expected = padded(select(boxes, scores, 6, 0.5), count)
        assert np.array_equal(found(module, {"b": boxes, "s": scores}, count), expected), (b, c, n)


def test_thresholds_that_the_model_computes(tmp_path, rng):
    boxes, scores = draw(rng, 1, 2, 30)
    inputs = {"b": boxes, "s": scores, "x": np.zeros(3, F)}
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["i"], keepdims=0),
        helper.make_node("ReduceMin", ["x"], ["t"], keepdims=0),
        helper.make_node("NonMaxSuppression", ["b", "s", "m", "i", "t"], ["y"]),
    ]
    outputs = {"y": np.zeros((60, 3), INT)}
    module = build(tmp_path, model(nodes, inputs, outputs, 13, [constant("m", 30)]))
    for x in [(0, 0.5, 0.25), (0.5, 0.25, 1), (-1, -0.5, -0.5)]:
        inputs["x"][:] = x
        # Boxes that share nothing are never dropped.
        expected = padded(select(boxes, scores, 30, max(*x, 0), min(x)), 60)
        assert np.array_equal(found(module, inputs, 60), expected), x


def test_refusals(tmp_path, rng):
    boxes, scores = draw(rng, 1, 2, 9)
    inputs = {"b": boxes, "s": scores, "i": np.array(0.5, F)}
    most = constant("m", 5)
    module = build(tmp_path, nms(names="b s m i", constants=[most])(inputs))
    y = np.zeros((10, 3), INT)
    for iou in [-0.1, 1.5, np.nan]:
        error = call(module, "g", [boxes, scores, np.array(iou, F)], [y])
        assert "`iou_threshold` must be between 0 and 1" in error
    del inputs["i"]
    text = refused(tmp_path, nms(names="b s m i", constants=[most, constant("i", F(2))])(inputs))
    assert "NonMaxSuppression: `iou_threshold` must be between 0 and 1" in text
    text = refused(tmp_path, nms(names="b s m", constants=[most], center_point_box=2)(inputs))
    assert "`center_point_box` is 2, not 0 or 1" in text
    two = constant("i", np.array([0.5, 0.5], F))
    text = refused(tmp_path, nms(names="b s m i", constants=[most, two])(inputs))
    assert "`iou_threshold`" in text
    inputs["b"] = boxes.astype(np.float64)
    text = refused(tmp_path, nms(names="b s m", constants=[most])(inputs))
    assert "the element type float64 is not supported" in text
    inputs["b"] = boxes[0]
    text = refused(tmp_path, nms(names="b s m", constants=[most])(inputs))
    assert "the boxes and the scores must have three dimensions" in text


def test_a_detector_of_torchvision(tmp_path, rng):
    """`torchvision.ops.nms` of one class, and the boxes that it keeps."""
    n, rows = 50, 10
    boxes, scores = draw(rng, 1, 1, n)
    inputs = {"boxes": boxes[0], "scores": scores[0, 0]}
    constants = [
        constant("m", [sys.maxsize]), constant("i", [F(0.5)]), constant("two", [2]),
        constant("zero", [0]), constant("one", [1]), constant("rows", [rows]),
    ]
    nodes = [
        helper.make_node("Unsqueeze", ["boxes", "zero"], ["b"]),
        helper.make_node("Unsqueeze", ["scores", "zero"], ["s0"]),
        helper.make_node("Unsqueeze", ["s0", "zero"], ["s"]),
        helper.make_node("NonMaxSuppression", ["b", "s", "m", "i"], ["all"]),
        helper.make_node("Gather", ["all", "two"], ["column"], axis=1),
        helper.make_node("Squeeze", ["column", "one"], ["index"]),
        helper.make_node("Slice", ["index", "zero", "rows", "zero"], ["keep"]),
        helper.make_node("Gather", ["boxes", "keep"], ["kept"], axis=0),
        helper.make_node("Gather", ["scores", "keep"], ["kept_scores"], axis=0),
    ]
    keep = padded(select(boxes, scores, n, 0.5), n)[:rows, 2]
    outputs = {
        "keep": np.zeros(rows, INT), "kept": np.zeros((rows, 4), F), "kept_scores": np.zeros(rows, F),
    }
    own = model(nodes, inputs, outputs, 13, constants)
    assert not run(tmp_path, own, inputs, outputs)
    assert np.array_equal(outputs["keep"], keep)
    assert np.array_equal(outputs["kept"], boxes[0][keep])
    assert np.array_equal(outputs["kept_scores"], scores[0, 0][keep])
    # With few boxes, the rows behind the last one read the last box.
    inputs["scores"][...] = np.nan
    inputs["scores"][3] = 1
    assert not run(tmp_path, own, inputs, outputs)
    assert outputs["keep"].tolist() == [3] + [-1] * (rows - 1)
    assert np.array_equal(outputs["kept"], boxes[0][outputs["keep"]])


def test_a_detector_with_classes(tmp_path, rng):
    """A result with a box, a class and a score in each row, as exporters of YOLO and TensorFlow
    write it."""
    b, c, n, rows = 2, 4, 60, 25
    boxes, scores = draw(rng, b, c, n)
    inputs = {"boxes": boxes, "scores": scores, "least": np.array([0.25], F)}
    constants = [
        constant("m", [5]), constant("i", [F(0.45)]), constant("axis", [1]),
        constant("from0", [0]), constant("to1", [1]), constant("from2", [2]), constant("to3", [3]),
        constant("pair", np.array([0, 2])),
    ]
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "m", "i", "least"], ["all"]),
        helper.make_node("GatherND", ["scores", "all"], ["score"]),
        helper.make_node("Gather", ["all", "pair"], ["where"], axis=1),
        helper.make_node("GatherND", ["boxes", "where"], ["box"]),
        helper.make_node("Slice", ["all", "to1", "from2", "axis"], ["class2"]),
        helper.make_node("Cast", ["class2"], ["class"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["score", "axis"], ["score2"]),
        helper.make_node("Concat", ["box", "score2", "class"], ["y"], axis=1),
    ]
    for declared in [None, rows]:
        count = declared or b * c * 5
        outputs = {"y": np.zeros((count, 6), F)}
        own = model(nodes, inputs, outputs, 13, constants)
        if declared:
            info = helper.make_tensor_value_info("all", TensorProto.INT64, [rows, 3])
            own.graph.value_info.append(info)
        assert not run(tmp_path, own, inputs, outputs)
        at, number, box = padded(select(boxes, scores, 5, 0.45, 0.25), count).T
        expected = np.concatenate(
            [boxes[at, box], scores[at, number, box][:, None], number[:, None].astype(F)], 1
        )
        assert np.array_equal(outputs["y"], expected)


@pytest.mark.parametrize("center", [0, 1])
def test_onnxruntime_selects_the_same(tmp_path, rng, center):
    ort = pytest.importorskip("onnxruntime")
    for b, c, n, most in [(1, 3, 40, 40), (2, 2, 300, 20), (1, 1, 1000, 1000)]:
        boxes, scores = draw(rng, b, c, n, center)
        inputs = {"b": boxes, "s": scores, "i": np.array([0.5], F), "t": np.array([0.1], F)}
        own = nms(constants=[constant("m", [most])], center_point_box=center)(inputs)
        own.ir_version = 10
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(own.SerializeToString(), options)
        module = build(tmp_path, own)
        count = b * c * most
        for iou, least in [(0.0, 0.0), (0.2, 0.3), (0.5, 0.5), (1.0, 0.0)]:
            inputs["i"][0], inputs["t"][0] = iou, least
            [expected] = session.run(None, inputs)
            assert np.array_equal(expected, select(boxes, scores, most, iou, least, center))
            assert np.array_equal(found(module, inputs, count), padded(expected, count))
