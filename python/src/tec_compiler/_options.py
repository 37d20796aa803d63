"""The options of `tec build` as keyword arguments of the same names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]


class Options(TypedDict, total=False):
    """How a program is compiled. docs/CLI.md explains each option of `tec build`."""

    #: The processor that automatic schedules are made for.
    cpu: str
    #: Parameters, `{"n": 512, "matmul.tile": 8}`; a run-time integer becomes a constant.
    define: Mapping[str, int | float | bool | str | Sequence[int | str]]
    #: Approximate instructions on GPUs.
    fast_math: bool
    #: Fuse products and sums, or round each operation.
    fp_contract: Literal["fast", "off"]
    #: ONNX models: inputs that become constants, with one number or the `.npy` file of each.
    freeze: Mapping[str, Path | int | float]
    #: Only these kernels.
    kernel: str | Sequence[str]
    #: The name of the module.
    module: str
    #: Search for automatic schedules again.
    no_cache: bool
    #: ONNX models: compute no convolution by Winograd's algorithm.
    no_winograd: bool
    #: The optimisation level.
    opt: Literal[0, 1, 2, 3]
    #: The elements of params, a `.safetensors` file.
    params: Path
    #: In front of the name of each function.
    prefix: str
    #: Inputs that are packed once for many calls.
    prepack: str | Sequence[str]
    #: Recorded schedules.
    records: Path
    #: Which schedule: a name, `default` or `auto`.
    schedule: str
    #: The target, or several CPUs; the default is this machine.
    target: str | Sequence[str]
    #: The run-time integers of a typical call, or of several, for automatic schedules.
    typical: Mapping[str, int] | Sequence[Mapping[str, int]]


class BuildOptions(Options, total=False):
    """`Options`, and where files are written."""

    #: The files that the module was built from, as `make` and Ninja read them.
    depfile: Path
    #: The C header.
    header: Path
    #: The manifest.
    manifest: Path
    #: Neither header nor manifest.
    no_sidecars: bool


def _texts(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def plain(value: Any) -> Any:
    """A value as one of Python, if it is one of NumPy."""
    return value.tolist() if hasattr(value, "tolist") else value


def _number(value: object) -> str:
    value = plain(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_number, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def arguments(options: Mapping[str, Any]) -> list[str]:
    """The arguments of `tec build` for options."""
    known = BuildOptions.__annotations__.keys() | Options.__annotations__.keys()
    found: list[str] = []
    for name, value in options.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise TypeError(f"`{name}` is not an option of tec; the options are {names}")
        flag = "--" + name.replace("_", "-")
        if name in ("define", "freeze") and not isinstance(value, Mapping | None):
            found_type = type(value).__name__
            raise TypeError(f"`{name}` is a mapping, such as {{'n': 512}}, not {found_type}")
        value = plain(value)
        if value is None or value is False:
            continue
        if value is True:
            found.append(flag)
        elif name == "define":
            for key, one in value.items():
                found += ["-D", f"{key}={_number(one)}"]
        elif name == "freeze":
            for key, one in value.items():
                number = isinstance(plain(one), int | float)
                text = _number(one) if number else os.fspath(one)
                found += [flag, f"{key}={text}"]
        elif name == "target":
            found += [flag, ",".join(_texts(value))]
        elif name == "typical":
            for call in [value] if isinstance(value, Mapping) else value:
                found += [flag, ",".join(f"{key}={size}" for key, size in call.items())]
        elif name in ("kernel", "prepack"):
            for one in _texts(value):
                found += [flag, one]
        else:
            found += [flag, str(value) if isinstance(value, int) else os.fspath(value)]
    return found
