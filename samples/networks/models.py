"""ResNet-18 and BERT as ONNX models with random weights, and checks of their modules.

python models.py resnet18 [--small]          writes resnet18.onnx
python models.py bert [--small]              writes bert.onnx
python models.py resnet18 [--small] --check  compares ./resnet18.so with onnx's reference evaluator

Without --small the models have the published sizes: 11.7 and 109 million weights. The graphs are
written as PyTorch exports them. The weights are the same in every run.
"""

import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Model:
    """An ONNX graph under construction. `op(…)` adds a node and returns the name of its result."""

    def __init__(self, name):
        self.name, self.rng = name, np.random.default_rng(0)
        self.nodes, self.initializers = [], []
        self.inputs, self.outputs = [], []

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"{kind.lower()}_{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value, name=None):
        name = name or f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape, scale=1.0, around=0.0):
        draw = self.rng.standard_normal(shape, np.float32) * np.float32(scale)
        return self.constant(draw + np.float32(around), f"weight_{len(self.initializers)}")

    def input(self, name, dtype, shape):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def save(self, result, name, shape):
        self.nodes.append(helper.make_node("Identity", [result], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(
            self.nodes, self.name, self.inputs, self.outputs, self.initializers
        )
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, f"{self.name}.onnx")


def resnet18(small):
    """Residual blocks of two convolutions each (He et al. 2015)."""
    width, side, classes = (8, 32, 10) if small else (64, 224, 1000)
    m = Model("resnet18")

    def convolution(x, channels, out, kernel, stride):
        scale = (2 / (channels * kernel * kernel)) ** 0.5
        weight = m.weight(out, channels, kernel, kernel, scale=scale)
        pads, strides = [kernel // 2] * 4, [stride, stride]
        x = m.op("Conv", x, weight, kernel_shape=[kernel, kernel], pads=pads, strides=strides)
        gamma, beta, mean = m.weight(out, scale=0.1, around=1), m.weight(out), m.weight(out)
        variance = m.constant(1 + m.rng.random(out, np.float32))
        return m.op("BatchNormalization", x, gamma, beta, mean, variance)

    x = m.input("image", TensorProto.FLOAT, [1, 3, side, side])
    x = m.op("Relu", convolution(x, 3, width, 7, 2))
    x = m.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    channels = width
    for stage in range(4):
        out = width << stage
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            y = m.op("Relu", convolution(x, channels, out, 3, stride))
            y = convolution(y, out, out, 3, 1)
            if stride > 1 or channels != out:
                x = convolution(x, channels, out, 1, stride)
            x = m.op("Relu", m.op("Add", y, x))
            channels = out
    x = m.op("Flatten", m.op("GlobalAveragePool", x), axis=1)
    weight = m.weight(classes, channels, scale=channels**-0.5)
    x = m.op("Gemm", x, weight, m.weight(classes), transB=1)
    m.save(x, "scores", [1, classes])
    image = np.random.default_rng(1).standard_normal((1, 3, side, side), np.float32)
    return {"image": image}


def bert(small):
    """An encoder of words (Devlin et al. 2018) for texts of any length up to 512."""
    layers, d, heads, words = (2, 64, 4, 500) if small else (12, 768, 12, 30522)
    m = Model("bert")

    def dense(x, ins, outs):
        weight, bias = m.weight(ins, outs, scale=ins**-0.5), m.weight(outs, scale=0.1)
        return m.op("Add", m.op("MatMul", x, weight), bias)

    def normalized(x):
        mean = m.op("ReduceMean", x, axes=[-1])
        x = m.op("Sub", x, mean)
        two, epsilon = m.constant(np.float32(2)), m.constant(np.float32(1e-12))
        variance = m.op("ReduceMean", m.op("Pow", x, two), axes=[-1])
        x = m.op("Div", x, m.op("Sqrt", m.op("Add", variance, epsilon)))
        return m.op("Add", m.op("Mul", x, m.weight(d, scale=0.1, around=1)), m.weight(d, scale=0.1))

    ids = m.input("input_ids", TensorProto.INT64, ["batch", "sequence"])
    mask = m.input("attention_mask", TensorProto.INT64, ["batch", "sequence"])
    # 0 where a token counts, a large negative number where it is padding.
    mask = m.op("Cast", m.op("Unsqueeze", mask, m.constant([1, 2])), to=TensorProto.FLOAT)
    mask = m.op("Sub", m.constant(np.float32(1)), mask)
    mask = m.op("Mul", mask, m.constant(np.float32(-1e4)))
    length = m.op("Gather", m.op("Shape", ids), m.constant(np.int64(1)), axis=0)
    places = m.op("Unsqueeze", length, m.constant([0]))
    all_places, zero, one = m.constant(np.arange(512)[None]), m.constant([0]), m.constant([1])
    places = m.op("Slice", all_places, zero, places, one)
    x = m.op("Gather", m.weight(words, d), ids, axis=0)
    x = normalized(m.op("Add", x, m.op("Gather", m.weight(512, d), places, axis=0)))
    for _ in range(layers):
        shape = m.constant([0, 0, heads, d // heads])
        by_head = lambda x, order: m.op("Transpose", m.op("Reshape", x, shape), perm=order)
        q, k = by_head(dense(x, d, d), [0, 2, 1, 3]), by_head(dense(x, d, d), [0, 2, 3, 1])
        v = by_head(dense(x, d, d), [0, 2, 1, 3])
        root = m.constant(np.float32((d // heads) ** 0.5))
        scores = m.op("Add", m.op("Div", m.op("MatMul", q, k), root), mask)
        a = m.op("MatMul", m.op("Softmax", scores, axis=-1), v)
        a = m.op("Reshape", m.op("Transpose", a, perm=[0, 2, 1, 3]), m.constant([0, 0, d]))
        x = normalized(m.op("Add", dense(a, d, d), x))
        u = dense(x, d, 4 * d)
        one, half = m.constant(np.float32(1)), m.constant(np.float32(0.5))
        g = m.op("Erf", m.op("Div", u, m.constant(np.float32(2**0.5))))
        u = m.op("Mul", m.op("Mul", u, m.op("Add", g, one)), half)
        x = normalized(m.op("Add", dense(u, 4 * d, d), x))
    m.save(x, "hidden", ["batch", "sequence", d])
    ids = np.random.default_rng(1).integers(0, words, (2, 11))
    mask = np.ones_like(ids)
    mask[1, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def check(name, inputs):
    """Compares the module with onnx's reference evaluator."""
    import tvm_ffi
    from onnx.reference import ReferenceEvaluator

    (expected,) = ReferenceEvaluator(f"{name}.onnx").run(None, inputs)
    result = np.empty_like(expected, np.float32)
    getattr(tvm_ffi.load_module(f"./{name}.so"), name)(*inputs.values(), result)
    error = np.abs(result - expected).max() / np.abs(expected).max()
    assert error < 1e-4, f"{name}: the largest difference is {error:.1e} of the largest value"
    print(f"{name}: {result.size} results are those of onnx's reference evaluator")


parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["resnet18", "bert"])
parser.add_argument("--small", action="store_true", help="few channels and a small image")
parser.add_argument("--check", action="store_true", help="compare the module, after writing")
args = parser.parse_args()
inputs = {"resnet18": resnet18, "bert": bert}[args.model](args.small)
if args.check:
    check(args.model, inputs)
