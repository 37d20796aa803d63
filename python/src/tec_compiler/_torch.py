"""`torch_op`: kernels as custom operators of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._interface import Argument
from ._load import Kernel, allocate, kernel, require
from ._options import Options, Path

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _schema(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> str:
    # Each tensor that is updated has a name of its own, `a0`, `a1` …
    types = (_schema_type(one).replace("(a!", f"(a{at}!") for at, one in enumerate(inputs))
    names = (one.python_name for one in inputs)
    parameters = ", ".join(map(" ".join, zip(types, names, strict=True)))
    returned = ", ".join(["Tensor"] * len(outputs))
    return f"({parameters}) -> " + (returned if len(outputs) == 1 else f"({returned})")


def _schema_type(argument: Argument) -> str:
    if argument.kind == "input":
        return "Tensor"
    if argument.kind == "inout":
        return "Tensor(a!)"
    if argument.kind == "integer":
        return "SymInt"
    if "float" in argument.dtype:
        return "float"
    return "bool" if argument.dtype == "bool" else "int"


def torch_op(source: Path | Kernel, name: str, **options: Unpack[Options]) -> Any:
    """Registers a kernel as the operator `name`, "NAMESPACE::NAME", and returns the operator.

    `source` and `options` are those of `kernel`, or `source` is a kernel. The operator takes the
    inputs of the kernel, then the run-time integers that no shape gives, and returns new outputs;
    it updates `inout` tensors. It works in `torch.compile` and on fake tensors; it has no gradient.
    Inputs that are not contiguous are copied.
    """
    torch = require("torch")
    one = source if isinstance(source, Kernel) else kernel(source, **options)
    interface = one.interface
    inputs, outputs = interface.inputs, interface.outputs
    updated = [arg.python_name for arg in inputs if arg.kind == "inout"]
    device = "cuda" if interface.target.startswith("nvptx") else "cpu"

    def new_outputs(args: Sequence[Any]) -> list[Any]:
        values = {arg.name: value for arg, value in zip(inputs, args, strict=True)}
        tensors = (value for arg, value in zip(inputs, args, strict=True) if arg.is_tensor)
        like = next(tensors, torch.empty(0, device=device))
        shapes = interface.output_shapes(values)
        return [allocate(out, shape, like) for out, shape in zip(outputs, shapes, strict=True)]

    def run(*args: Any) -> Any:
        values = list(args)
        for at, arg in enumerate(inputs):
            if arg.is_tensor:
                values[at] = args[at].detach()
            if arg.kind == "input":
                values[at] = values[at].contiguous()
        made = new_outputs(values)
        given = {arg.name: value for arg, value in zip(inputs, values, strict=True)}
        given.update({arg.name: value for arg, value in zip(outputs, made, strict=True)})
        one.function(*(given[arg.name] for arg in interface.arguments))
        return interface.result(made)

    def fake(*args: Any) -> Any:
        return interface.result(new_outputs(args))

    run.__doc__ = one.__doc__
    operator = torch.library.custom_op(
        name,
        run,
        mutates_args=updated,
        device_types=device,
        schema=_schema(inputs, outputs),
    )
    operator.register_fake(fake)
    return operator
