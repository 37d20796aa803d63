"""Models of ONNX with a few nodes: built by `tec`, called with arrays of any element type."""

import ml_dtypes  # noqa: F401: registers its types
import numpy as np
import onnx
from onnx import helper

from conftest import run_tec
from dl import Module

# Bits of the types whose elements share bytes.
PACKED = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}


def is_narrow(dtype):
    """Whether arguments of the element type are bytes."""
    return dtype.name in PACKED or dtype.name.startswith("float8_")


def bytes_of(array):
    """An array as an argument: elements of fewer than 8 bits share bytes, the first one lowest."""
    if not is_narrow(array.dtype):
        return np.array(array, order="C")
    codes = np.ascontiguousarray(array).view(np.uint8)
    bits = PACKED.get(array.dtype.name)
    if bits is None:
        return codes.reshape(array.shape)
    each = 8 // bits
    flat = np.zeros(-(-codes.size // each) * each, np.uint8)
    flat[: codes.size] = codes.reshape(-1) & ((1 << bits) - 1)
    packed = np.bitwise_or.reduce(flat.reshape(-1, each) << (bits * np.arange(each)), axis=1)
    packed = packed.astype(np.uint8)
    if bits == 4 and array.ndim == 0:
        return packed.reshape(())
    if bits == 4 and array.ndim > 1 and array.shape[-1] % 2 == 0:
        return packed.reshape(*array.shape[:-1], -1)
    return packed


def array_of(argument, like):
    """The array that bytes stand for."""
    bits = PACKED.get(like.dtype.name)
    if not is_narrow(like.dtype):
        return argument
    if bits is None:
        return argument.view(like.dtype).reshape(like.shape)
    each = 8 // bits
    codes = argument.reshape(-1, 1) >> (bits * np.arange(each))
    codes = (codes & ((1 << bits) - 1)).astype(np.uint8).reshape(-1)[: like.size]
    if like.dtype.name.startswith("int"):
        half = 1 << (bits - 1)
        codes = ((codes ^ half) - half).astype(np.int8).view(np.uint8)
    return codes.view(like.dtype).reshape(like.shape)


def call(path, name, inputs, outputs):
    """Calls a function of a module; returns its error, empty if there is none."""
    module = Module(str(path))
    arguments = [bytes_of(value) for value in inputs]
    results = [np.ones_like(bytes_of(value)) for value in outputs]
    status = module.dl(name, *arguments, *results)
    for value, result in zip(outputs, results):
        value[...] = array_of(result, value)
    return module.last_error() if status else ""


def model(nodes, inputs, outputs, opset=28, initializers=(), domain=""):
    """A model whose inputs and outputs have the types and shapes of arrays."""

    def info(item):
        name, value = item
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )

    graph = helper.make_graph(
        nodes, "g", list(map(info, inputs.items())), list(map(info, outputs.items())), initializers
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets)


def refused(folder, own):
    """The message with which `tec` refuses a model."""
    path = folder / "model.onnx"
    onnx.save(own, path)
    done = run_tec("build", path, "-o", folder / "model.so")
    assert done.returncode == 1 and "E0705" in done.stderr, done.stderr
    return done.stderr


def run(folder, own, inputs, outputs, *options):
    """Builds a model with options, and calls it: fills the arrays `outputs`; returns the error of the call."""
    path = folder / "model.onnx"
    onnx.save(own, path)
    # A path that is loaded a second time is the module that was loaded first.
    module = folder / f"model{len(list(folder.iterdir()))}.so"
    done = run_tec("build", path, "-o", module, "--module", "model", "--no-sidecars", *options)
    assert done.returncode == 0, done.stderr
    return call(module, "g", list(inputs.values()), list(outputs.values()))


def run_node(folder, op, inputs, outputs, opset=28, domain="", **attributes):
    """Builds and calls a model of one node."""
    node = helper.make_node(op, list(inputs), list(outputs), domain=domain, **attributes)
    error = run(folder, model([node], inputs, outputs, opset, domain=domain), inputs, outputs)
    assert not error, error
    return list(outputs.values())
