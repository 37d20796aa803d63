"""Builds and loads kernels of `tec`, the compiler for tensor expressions.

`build` compiles a `.te` file or a text, `load` and `kernel` also load the result, `torch_op`
registers it as an operator of PyTorch. The options have the names of those of `tec build`.
"""

from ._binary import __version__, cmake_dir, find_tec
from ._build import Built, build
from ._errors import CompileError, CompilerBug, Diagnostic, TecError, UsageError
from ._load import Kernel, Module, kernel, load
from ._options import BuildOptions, Options
from ._torch import torch_op

__all__ = [
    "BuildOptions",
    "Built",
    "CompileError",
    "CompilerBug",
    "Diagnostic",
    "Kernel",
    "Module",
    "Options",
    "TecError",
    "UsageError",
    "__version__",
    "build",
    "cmake_dir",
    "find_tec",
    "kernel",
    "load",
    "torch_op",
]
