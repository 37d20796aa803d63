"""Prepacked inputs: `tec build --prepack`, docs/CLI.md and docs/ABI.md, "Packed inputs".

The packing function and the kernel that takes the packed input are called through their raw
entries, as the manifest describes. The results must be those of the kernel, bit for bit.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
import re
from typing import Any

import numpy as np

from . import build
from .build import Batch
from .call import C_SCALAR, Call, Guarded, Outcome, verdict
from .exact import MEMORY
from .program import Kernel

COPY = re.compile(r"= (\w+)\.cache_read\(global")
FUNCTIONS = {"min": min, "max": max, "abs": abs, "select": lambda c, a, b: a if c else b,
             "__builtins__": {}}


def candidates(kernels: list[Kernel]) -> dict[str, str]:
    """Returns the kernels whose schedule copies an input, each with the input."""
    found = {}
    for kernel in kernels:
        inputs = {i.name for i in kernel.inputs if i.shape and not i.inout}
        copied = [m[1] for x in kernel.schedule if (m := COPY.search(x.text)) and m[1] in inputs]
        if copied:
            found[kernel.name] = copied[0]
    return found


def prepack(batch: Batch, options: tuple[str, ...], out: pathlib.Path) -> dict[str, str]:
    """Builds the file with all inputs prepacked that the compiler accepts; maps kernel to input."""
    wanted = candidates(batch.kernels)
    for _ in range(8):
        if not wanted:
            return {}
        where = batch.write()
        more = [x for k, i in wanted.items() for x in ("--prepack", f"{k}.{i}")]
        code, messages = build.run(["build", str(batch.path), *options, *more, "-o", str(out),
                                    "--module", "o"])
        if code == 0:
            return wanted
        errors = build.ERROR.findall(messages)
        if code != 1 or not errors:
            batch.blame(["build"], (*options, *more), code, messages)
            return {}
        for error, _, line in errors:
            name = batch.kernels[where[int(line) - 1][0]].name
            batch.refused[("prepack", error)] += 1
            wanted.pop(name, None)
    return {}


def manifest(out: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the functions of a module by name."""
    return {k["name"]: k for k in json.loads(out.with_suffix(".json").read_text())["kernels"]}


def size(extent: int | str, sizes: dict[str, int]) -> int:
    """Evaluates an extent of the manifest."""
    if isinstance(extent, int):
        return extent
    return int(eval(extent, FUNCTIONS, sizes))  # noqa: S307: an expression of the language


def run_packed(library: ctypes.CDLL, call: Call) -> Outcome:
    """Packs an input and calls the kernel that takes it packed."""
    name, functions = call.packed
    kernel = call.kernel
    pack = functions[f"{kernel.name}_pack_{name}"]
    shape = tuple(size(x, call.sizes) for x in pack["args"][1]["shape"])
    kind = MEMORY[pack["args"][1]["dtype"]]
    canary = np.full(int(np.prod(shape)) * kind.itemsize, 0xC3, np.uint8).view(kind).reshape(shape)
    source, packed = Guarded(call.inputs[name], call.place), Guarded(canary, call.place)
    own = [ctypes.c_int64(call.sizes[a["name"]]) for a in pack["args"] if a["kind"] == "runtime"]
    bytes_of = getattr(library, f"{kernel.name}_pack_{name}_bytes")
    bytes_of.restype = ctypes.c_int64
    if bytes_of(*own) != canary.nbytes or size(pack["prepack"]["bytes"], call.sizes) != \
            canary.nbytes:
        return Outcome("bytes", f"{bytes_of(*own)} bytes for a packed input of {canary.nbytes}")
    function = getattr(library, f"{kernel.name}_pack_{name}")
    status = function(ctypes.c_void_p(source.address), ctypes.c_void_p(packed.address), *own)
    if status or source.touched_around() or packed.touched_around():
        return Outcome("outside", f"packing: status {status}")
    guards, args, inouts, outputs = [source, packed], [], [], []
    for a in functions[f"{kernel.name}_prepacked"]["args"]:
        if a["kind"] == "runtime":
            args.append(ctypes.c_int64(call.sizes[a["name"]]))
        elif a["kind"] == "scalar":
            bits = call.inputs[a["name"]]
            value = int(bits.view(np.uint16).item()) if a["dtype"] == "float16" else bits.item()
            args.append(C_SCALAR[a["dtype"]](value))
        elif a["name"] == name:
            args.append(ctypes.c_void_p(packed.address))
        else:
            at = [n for n, _, _ in kernel.outputs()].index(a["name"]) \
                if a["role"] == "output" else -1
            like = call.inputs[a["name"]] if at < 0 else call.likes[at]
            data = like if at < 0 else np.full(like.nbytes, 0xC3, np.uint8).view(like.dtype)
            guards.append(Guarded(data.reshape(like.shape), call.place))
            outputs += [guards[-1]] if at >= 0 else []
            args.append(ctypes.c_void_p(guards[-1].address))
            inouts += [guards[-1]] if a["role"] == "inout" else []
    status = getattr(library, f"{kernel.name}_prepacked")(*args)
    if status or any(g.touched_around() for g in guards):
        return Outcome("outside", f"prepacked: status {status}")
    difference = verdict(call, [g.array() for g in inouts + outputs])
    for guard in guards:
        guard.free()
    return Outcome("differs", f"prepacked {name}: {difference}") if difference else \
        Outcome("equal")
