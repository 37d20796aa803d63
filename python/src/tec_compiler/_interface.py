"""The arguments of a kernel, from its manifest (docs/MANIFEST.md)."""

from __future__ import annotations

import ast
import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Extent = int | str

#: Types of which two elements share a byte.
HALVED = ("int4", "uint4")
#: Types that NumPy lacks: its arrays hold their bytes.
QUANTIZED = (*HALVED, "float8_e4m3fn", "float8_e5m2")

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "max": max,
    "min": min,
    "select": lambda condition, yes, no: yes if condition else no,
}
_ALLOWED = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name,
    ast.Constant, ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def evaluate(extent: Extent, values: Mapping[str, Any]) -> Any:
    """The number of an extent, an expression over run-time integers."""
    if isinstance(extent, int):
        return extent
    if extent in values:
        return values[extent]
    tree = ast.parse(extent, mode="eval")
    if not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
        raise ValueError(f"`{extent}` is no extent")
    code = compile(tree, "<extent>", "eval")
    return eval(code, {"__builtins__": {}}, {**_FUNCTIONS, **values})


@dataclass(frozen=True)
class Argument:
    """An argument of the checked entry of a kernel."""

    #: As in the source.
    name: str
    #: "input", "inout", "output", "scalar" or "integer", a run-time integer that no shape gives.
    kind: str
    #: Of tensors and scalars.
    dtype: str
    #: Of tensors.
    shape: tuple[Extent, ...]

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.kind in ("input", "inout", "output")

    @property
    def python_name(self) -> str:
        """The name of the parameter in Python."""
        return self.name + "_" if keyword.iskeyword(self.name) else self.name

    def extent_of(self, value: Any, dim: int) -> Any:
        """The extent of a tensor, in elements: its bytes hold two each for types of 4 bits."""
        extent = value.shape[dim]
        holds_bytes = self.dtype in HALVED and str(value.dtype) in ("uint8", "torch.uint8")
        return 2 * extent if holds_bytes and dim + 1 == len(self.shape) else extent

    def __str__(self) -> str:
        if self.is_tensor:
            return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        return "int" if self.kind == "integer" else self.dtype


class Interface:
    """What a kernel takes and returns."""

    def __init__(self, kernel: Mapping[str, Any], target: str) -> None:
        self.kernel = kernel
        self.name: str = kernel["name"]
        self.target = target
        self.arguments: list[Argument] = []
        #: The run-time integers that a shape gives: the name, the tensor and the dimension.
        self.extents: list[tuple[str, str, int]] = []
        args = kernel["args"]
        for arg in args:
            if arg["kind"] == "tensor":
                found = Argument(arg["name"], arg["role"], arg["dtype"], tuple(arg["shape"]))
            elif arg["kind"] == "scalar":
                found = Argument(arg["name"], "scalar", arg["dtype"], ())
            elif arg["source"] is None:
                found = Argument(arg["name"], "integer", "int64", ())
            else:
                source = arg["source"]
                self.extents.append((arg["name"], args[source["arg"]]["name"], source["dim"]))
                continue
            self.arguments.append(found)

    @property
    def inputs(self) -> list[Argument]:
        """All arguments that a call needs: all but the outputs."""
        return [one for one in self.arguments if one.kind != "output"]

    @property
    def outputs(self) -> list[Argument]:
        """The output tensors."""
        return [one for one in self.arguments if one.kind == "output"]

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters in Python: outputs may be left out, run-time integers have names."""
        parameters = []
        for one in self.arguments:
            kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
            default: Any = inspect.Parameter.empty
            if one.kind == "output":
                default = None
            elif one.kind == "integer":
                kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(
                inspect.Parameter(one.python_name, kind, default=default, annotation=str(one))
            )
        returned = [str(one) for one in self.outputs]
        text = ", ".join(returned) if len(returned) == 1 else f"({', '.join(returned)})"
        return inspect.Signature(parameters, return_annotation=text if returned else None)

    def document(self) -> str:
        """The text for `help`."""
        lines = [f"{self.kernel['signature']}", "", "Compiled by tec for " + self.target + ".", ""]
        words = {
            "input": "read",
            "inout": "updated in place",
            "output": "written; allocated if it is left out",
            "scalar": "a number",
            "integer": "a run-time integer",
        }
        for one in self.arguments:
            lines.append(f"{one.python_name}: {one} ({words[one.kind]})")
        lines += ["", "Tensors are contiguous and row-major. Returns the outputs."]
        return "\n".join(lines)

    def result(self, outputs: Sequence[Any]) -> Any:
        """What a call returns: nothing, one tensor, or a tuple."""
        if len(outputs) < 2:
            return outputs[0] if outputs else None
        return tuple(outputs)

    def output_shapes(self, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The shape of each output for the values of the other arguments, by name."""
        numbers = {one.name: values[one.name] for one in self.arguments if one.kind == "integer"}
        tensors = {one.name: one for one in self.arguments if one.is_tensor}
        for name, tensor, dim in self.extents:
            if tensor in values:
                numbers[name] = tensors[tensor].extent_of(values[tensor], dim)
        shapes = []
        for output in self.outputs:
            try:
                shapes.append(tuple(evaluate(extent, numbers) for extent in output.shape))
            except NameError as error:
                raise TypeError(
                    f"{self.name}: the inputs do not determine the shape of `{output.name}`, "
                    f"{output}: pass `{output.python_name}`"
                ) from error
        return shapes


def interfaces(manifest: Mapping[str, Any]) -> list[Interface]:
    """The kernels of a module."""
    variants: Sequence[Mapping[str, Any]] = manifest.get("variants", [])
    names = [one["target"]["name"] for one in variants] or [manifest["target"]["name"]]
    return [Interface(kernel, ", ".join(names)) for kernel in manifest["kernels"]]
