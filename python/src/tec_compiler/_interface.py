"""The arguments of a kernel, from its manifest (docs/MANIFEST.md)."""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from collections.abc import Callable, Collection, Mapping, Sequence
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


#: A run-time integer in an extent, which may have the name of a keyword or a function of Python.
_INTEGER = re.compile(r"\b(?!(?:and|or|not)\b)([A-Za-z_]\w*)\b(?!\s*\()")


def evaluate(extent: Extent, values: Mapping[str, Any]) -> Any:
    """The number of an extent, an expression over run-time integers. Raises `NameError` without a
    value for one of them."""
    if isinstance(extent, int):
        return extent
    if extent in values:
        return values[extent]
    tree = ast.parse(_INTEGER.sub(r"n_\1", extent), mode="eval")
    if not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
        raise ValueError(f"`{extent}` is no extent")
    code = compile(tree, "<extent>", "eval")
    named = {f"n_{name}": value for name, value in values.items()}
    return eval(code, {"__builtins__": {}}, {**_FUNCTIONS, **named})


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
    #: The name of the parameter in Python.
    python_name: str
    #: Whether it is a tensor that need not be contiguous.
    strided: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.kind in ("input", "inout", "output")

    def extent_of(self, value: Any, dim: int) -> Any:
        """The extent of a tensor, in elements: its bytes hold two each for types of 4 bits."""
        extent = value.shape[dim]
        holds_bytes = self.dtype in HALVED and str(value.dtype) in ("uint8", "torch.uint8")
        return 2 * extent if holds_bytes and dim + 1 == len(self.shape) else extent

    def stride_of(self, value: Any, dim: int) -> Any:
        """The stride of a tensor, in elements; those of NumPy count bytes."""
        if callable(getattr(value, "stride", None)):
            return value.stride(dim)
        return value.strides[dim] // value.itemsize

    def __str__(self) -> str:
        if self.is_tensor:
            return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        return "int" if self.kind == "integer" else self.dtype


def _python_name(name: str, others: Collection[str]) -> str:
    """The name of a parameter in Python, which no other argument has."""
    if not keyword.iskeyword(name):
        return name
    while name in others or keyword.iskeyword(name):
        name += "_"
    return name


class Interface:
    """What a kernel takes and returns."""

    def __init__(self, kernel: Mapping[str, Any], target: str) -> None:
        self.kernel = kernel
        self.name: str = kernel["name"]
        self.target = target
        self.arguments: list[Argument] = []
        #: The run-time integers that a shape gives: the name, the tensor and the dimension.
        self.extents: list[tuple[str, str, int]] = []
        #: Those that a stride gives, alike.
        self.strides: list[tuple[str, str, int]] = []
        #: Those that only the shapes of outputs give: a call that allocates them needs the number.
        self.chosen: list[Argument] = []
        args = kernel["args"]
        names = [arg["name"] for arg in args]
        for arg in args:
            name = arg["name"]
            python_name = _python_name(name, names)
            if arg["kind"] == "tensor":
                shape, strided = tuple(arg["shape"]), "strides" in arg
                found = Argument(name, arg["role"], arg["dtype"], shape, python_name, strided)
            elif arg["kind"] == "scalar":
                found = Argument(name, "scalar", arg["dtype"], (), python_name)
            elif arg["source"] is None:
                found = Argument(name, "integer", "int64", (), python_name)
            else:
                source = arg["source"]
                places = self.strides if source.get("stride") else self.extents
                places.append((name, names[source["arg"]], source["dim"]))
                if places is self.extents and args[source["arg"]]["role"] == "output":
                    self.chosen.append(Argument(name, "integer", "int64", (), python_name))
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
        for one in self.chosen:
            kind, text = inspect.Parameter.KEYWORD_ONLY, str(one)
            parameters.append(
                inspect.Parameter(one.python_name, kind, default=None, annotation=text)
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
            strides = "; any strides that the kernel permits" if one.strided else ""
            lines.append(f"{one.python_name}: {one} ({words[one.kind]}{strides})")
        for one in self.chosen:
            lines.append(f"{one.python_name}: {one} (an extent, if outputs are left out)")
        others = "Other tensors" if any(one.strided for one in self.arguments) else "Tensors"
        lines += ["", f"{others} are contiguous and row-major. Returns the outputs."]
        return "\n".join(lines)

    def result(self, outputs: Sequence[Any]) -> Any:
        """What a call returns: nothing, one tensor, or a tuple."""
        if len(outputs) < 2:
            return outputs[0] if outputs else None
        return tuple(outputs)

    def output_shapes(self, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The shape of each output for the values of the other arguments, by name."""
        numbers = {one.name: values[one.name] for one in self.arguments if one.kind == "integer"}
        numbers |= {one.name: values[one.name] for one in self.chosen if one.name in values}
        tensors = {one.name: one for one in self.arguments if one.is_tensor}
        for name, tensor, dim in self.extents:
            if tensor in values:
                self._require_rank(tensors[tensor], values[tensor])
                numbers[name] = tensors[tensor].extent_of(values[tensor], dim)
        for name, tensor, dim in self.strides:
            if tensor in values:
                self._require_rank(tensors[tensor], values[tensor])
                numbers[name] = tensors[tensor].stride_of(values[tensor], dim)
        return [self._output_shape(output, numbers) for output in self.outputs]

    def _output_shape(self, output: Argument, numbers: Mapping[str, Any]) -> tuple[Any, ...]:
        shape = []
        for dim, extent in enumerate(output.shape):
            place = f"{self.name}: the extent `{extent}` of `{output.name}`, dimension {dim},"
            try:
                number = evaluate(extent, numbers)
            except ZeroDivisionError as error:
                raise ValueError(f"{place} divides by 0") from error
            except NameError as error:
                names = ", ".join(f"`{one.python_name}`" for one in self.chosen)
                raise TypeError(
                    f"{self.name}: the inputs do not determine the shape of `{output.name}`, "
                    f"{output}: pass `{output.python_name}`" + (f" or {names}" if names else "")
                ) from error
            # The integers of PyTorch's compiler are not compared.
            if isinstance(number, int) and number < 0:
                raise ValueError(f"{place} is negative: {number}")
            shape.append(number)
        return tuple(shape)

    def _require_rank(self, tensor: Argument, value: Any) -> None:
        """Refuses a tensor of another rank, with the text of the checked entry."""
        rank, found = len(tensor.shape), len(value.shape)
        if rank != found:
            at = self.arguments.index(tensor) + 1
            dimensions = "1 dimension" if rank == 1 else f"{rank} dimensions"
            raise ValueError(
                f"argument {at} `{tensor.name}`: expected {dimensions}, got {found} "
                f"(in `{self.kernel['signature']}`)"
            )


def interfaces(manifest: Mapping[str, Any], running: str | None = None) -> list[Interface]:
    """The kernels of a module. `running` is the target of a module for several CPUs whose code
    calls run: shapes of packed tensors depend on it."""
    variants: Sequence[Mapping[str, Any]] = manifest.get("variants", [])
    names = [one["target"]["name"] for one in variants] or [manifest["target"]["name"]]
    kernels = manifest["kernels"]
    chosen = (one["kernels"] for one in variants if one["target"]["name"] == running)
    own: Sequence[Mapping[str, Any]] = next(chosen, [{}] * len(kernels))
    every = [{**kernel, **more} for kernel, more in zip(kernels, own, strict=True)]
    return [Interface(kernel, ", ".join(names)) for kernel in every]
