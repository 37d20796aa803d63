"""`torch_op`: kernels as custom operators of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._interface import Argument
from ._load import Kernel, allocate, kernel, require
from ._options import Options, Path

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _schema_type(argument: Argument) -> str:
    if argument.kind == "input":
        return "Tensor"
    if argument.kind == "integer":
        return "SymInt"
    if "float" in argument.dtype:
        return "float"
    return "bool" if argument.dtype == "bool" else "int"


def torch_op(source: Path | Kernel, name: str, **options: Unpack[Options]) -> Any:
    """Registers a kernel as the operator `name`, "NAMESPACE::NAME", and returns the operator.

    `source` and `options` are those of `kernel`, or `source` is a kernel. The operator takes the
    inputs of the kernel, then the run-time integers that no shape gives, and returns new outputs.
    It works in `torch.compile` and on fake tensors; it has no gradient. Inputs that are not
    contiguous are copied.
    """
    torch = require("torch")
    one = source if isinstance(source, Kernel) else kernel(source, **options)
    interface = one.interface
    inputs, outputs = interface.inputs, interface.outputs
    parameters = ", ".join(f"{_schema_type(arg)} {arg.python_name}" for arg in inputs)
    returned = ", ".join(["Tensor"] * len(outputs))
    schema = f"({parameters}) -> " + (returned if len(outputs) == 1 else f"({returned})")
    device = "cuda" if interface.target.startswith("nvptx") else "cpu"

    def new_outputs(args: Sequence[Any]) -> list[Any]:
        values = {arg.name: value for arg, value in zip(inputs, args, strict=True)}
        tensors = (value for arg, value in zip(inputs, args, strict=True) if arg.kind == "input")
        like = next(tensors, torch.empty(0, device=device))
        shapes = interface.output_shapes(values)
        return [allocate(out, shape, like) for out, shape in zip(outputs, shapes, strict=True)]

    def result(tensors: list[Any]) -> Any:
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def run(*args: Any) -> Any:
        values = [
            value.detach().contiguous() if arg.kind == "input" else value
            for arg, value in zip(inputs, args, strict=True)
        ]
        made = new_outputs(values)
        given = {arg.name: value for arg, value in zip(inputs, values, strict=True)}
        given.update({arg.name: value for arg, value in zip(outputs, made, strict=True)})
        one.function(*(given[arg.name] for arg in interface.arguments))
        return result(made)

    def fake(*args: Any) -> Any:
        return result(new_outputs(args))

    run.__doc__ = one.__doc__
    operator = torch.library.custom_op(
        name, run, mutates_args=(), device_types=device, schema=schema
    )
    operator.register_fake(fake)
    return operator
