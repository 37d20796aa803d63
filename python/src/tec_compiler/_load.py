"""`load` and `kernel`: modules that are compiled if necessary, and loaded through tvm-ffi."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import inspect
import json
import operator
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._arrays import BFloat16, is_bfloat16, is_numpy, readable
from ._binary import find_tec
from ._build import is_text, read_manifest, run_build, run_tec
from ._errors import TecError
from ._interface import HALVED, QUANTIZED, Argument, Interface, interfaces
from ._options import Options, Path, arguments, plain

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The source and the options that a module was loaded with.
Origin = tuple[Path, Mapping[str, Any]]

#: The largest number of modules in the cache.
_MOST_MODULES = 256


def require(name: str) -> Any:
    """Imports a package that is not a dependency of this one."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = {"tvm_ffi": "'tec-compiler[load]'", "numpy": "'tec-compiler[load]'"}
        raise TecError(f"this needs {name}: pip install {package.get(name, name)}") from error


def is_torch(value: object) -> bool:
    """Whether a value is a tensor of PyTorch, without importing it."""
    return type(value).__module__.split(".")[0] == "torch"


class Kernel:
    """A compiled function. `inspect.signature` and `help` show its arguments.

    Call it with its inputs, and with the outputs or without: it returns the outputs, and allocates
    those that are left out. Tensors are arrays of NumPy or tensors of PyTorch, or of any library
    with DLPack. Arrays of uint8 hold the bytes of `int4`, `uint4` and 8-bit floats, as inputs and
    as allocated outputs; inputs may be arrays of 8-bit floats of ml_dtypes. Arrays of bfloat16 are
    those of ml_dtypes. Inputs may be read-only. A wrong argument raises `TypeError` or
    `ValueError`, and nothing is written.

    Pickling keeps the source and the options, from which another process loads the kernel.
    """

    __signature__: inspect.Signature

    def __init__(self, interface: Interface, function: Any, origin: Origin | None = None) -> None:
        self.interface = interface
        self._origin = origin
        #: The function of tvm-ffi, which takes all tensors.
        self.function = function
        self.__name__ = self.__qualname__ = interface.name
        self.__doc__ = interface.document()
        self.__signature__ = interface.signature
        every = interface.arguments
        self._outputs = [at for at, one in enumerate(every) if one.kind == "output"]
        self._has_integers = any(one.kind == "integer" for one in every)
        self._scalars = [at for at, one in enumerate(every) if one.kind == "scalar"]
        self._floats8 = [at for at, one in enumerate(every) if one.dtype.startswith("float8")]

    def __reduce__(self) -> Any:
        if self._origin is None:
            raise TypeError(f"{self!r} cannot be pickled: it was not made by `load` or `kernel`")
        return _load_kernel, (*self._origin, self.interface.name)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: Any) -> Kernel:
        return self

    def __repr__(self) -> str:
        return f"<kernel {self.interface.name}{self.__signature__} of tec>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        values = list(args)
        complete = len(values) == len(self.interface.arguments) and not self._has_integers
        if kwargs or not complete or any(values[at] is None for at in self._outputs):
            values = self._bind(args, kwargs)
        passed = [*values] if self._floats8 or self._scalars else values
        for at in self._scalars:
            passed[at] = _scalar(self.interface.arguments[at].dtype, passed[at])
        for at in self._floats8:
            if type(passed[at]).__module__ == "numpy" and passed[at].dtype.name != "uint8":
                passed[at] = self._bytes_of(at, passed[at])
        try:
            self.function(*passed)
        except BufferError as error:
            # A library refuses to share an array. The kernel has not been called.
            pairs = zip(self.interface.arguments, passed, strict=True)
            shared = [self._shared(argument, value) for argument, value in pairs]
            if all(new is old for new, old in zip(shared, passed, strict=True)):
                raise ValueError(f"{self.interface.name}{self.__signature__}: {error}") from error
            try:
                self.function(*shared)
            except BufferError as again:
                raise ValueError(f"{self.interface.name}{self.__signature__}: {again}") from again
        return self.interface.result([values[at] for at in self._outputs])

    def _shared(self, argument: Argument, value: Any) -> Any:
        """An array of NumPy as one that is shared, if that is possible."""
        if not argument.is_tensor or not is_numpy(value):
            return value
        if argument.kind == "input":
            value = readable(value)
        elif not value.flags.writeable:
            name = f"{self.interface.name}{self.__signature__}"
            raise ValueError(f"{name}: `{argument.python_name}` is written, but read-only")
        return BFloat16(value) if is_bfloat16(value) else value

    def _bytes_of(self, at: int, array: Any) -> Any:
        """The bytes of an array of ml_dtypes, which NumPy does not export."""
        wanted = self.interface.arguments[at].dtype
        return array.view("uint8") if array.dtype.name == wanted else array

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            text = f"{self.interface.name}{self.__signature__}: {error}"
            raise TypeError(text) from None
        bound.apply_defaults()
        every = self.interface.arguments
        values = {one.name: bound.arguments[one.python_name] for one in every}
        for one in every:
            value = values[one.name]
            if one.kind == "integer":
                values[one.name] = self._integer(one, value)
            optional = value is None and one in self.interface.outputs
            if one.is_tensor and not optional and not hasattr(value, "shape"):
                found = type(value).__name__
                text = f"`{one.python_name}` must be a tensor, such as an array, not {found}"
                raise TypeError(f"{self.interface.name}{self.__signature__}: {text}")
        missing = [one for one in self.interface.outputs if values[one.name] is None]
        if missing:
            known = {name: value for name, value in values.items() if value is not None}
            for one in self.interface.chosen:
                if bound.arguments[one.python_name] is not None:
                    known[one.name] = self._integer(one, bound.arguments[one.python_name])
            shapes = self.interface.output_shapes(known)
            tensors = (known[one.name] for one in every if one.is_tensor and one.name in known)
            like = next(tensors, None)
            for output, shape in zip(self.interface.outputs, shapes, strict=True):
                if output in missing:
                    values[output.name] = allocate(output, shape, like)
        return [values[one.name] for one in every]

    def _integer(self, argument: Argument, value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError as error:
            text = f"`{argument.python_name}` must be an integer, not {type(value).__name__}"
            raise TypeError(f"{self.interface.name}{self.__signature__}: {text}") from error


def _scalar(dtype: str, value: Any) -> Any:
    """A scalar as tvm-ffi takes it, from a number of Python or NumPy."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    if dtype == "uint64" and type(value) is int and 2**63 <= value < 2**64:
        # tvm-ffi has signed integers and addresses, which have 64 bits.
        return ctypes.c_void_p(value)
    return value


def allocate(output: Argument, shape: tuple[int, ...], like: Any) -> Any:
    """An output of the library and on the device of a tensor."""
    dtype = output.dtype
    if dtype in HALVED and shape:
        shape = (*shape[:-1], (shape[-1] + 1) // 2)
    if is_torch(like):
        torch = require("torch")
        dtype = "uint8" if dtype in HALVED else dtype
        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
    if output.dtype == "bfloat16":
        dtype = require("ml_dtypes").bfloat16
    numpy = require("numpy")
    return numpy.empty(shape, "uint8" if dtype in QUANTIZED else dtype)


class Module:
    """A loaded module: its kernels are attributes."""

    def __init__(
        self,
        manifest: Mapping[str, Any],
        loaded: Any,
        origin: Origin | None = None,
        running: str | None = None,
    ) -> None:
        #: docs/MANIFEST.md describes it.
        self.manifest = manifest
        self._origin = origin
        #: The kernels by name.
        self.kernels: dict[str, Kernel] = {
            one.name: Kernel(one, loaded[one.name], origin) for one in interfaces(manifest, running)
        }

    def __reduce__(self) -> Any:
        if self._origin is None:
            raise TypeError(f"{self!r} cannot be pickled: it was not made by `load`")
        return _load_module, self._origin

    def __getattr__(self, name: str) -> Kernel:
        kernels: dict[str, Kernel] = self.__dict__.get("kernels", {})
        if name in kernels:
            return kernels[name]
        raise AttributeError(f"the module has no kernel `{name}`; it has {', '.join(kernels)}")

    def __getitem__(self, name: str) -> Kernel:
        return self.kernels[name]

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels.values())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.kernels]

    def __repr__(self) -> str:
        return f"<module {self.manifest['module']} of tec: {', '.join(self.kernels)}>"


def load(source: Path, **options: Unpack[Options]) -> Module:
    """Compiles a program for this machine, or for `target`, and loads it.

    `source` is the path of a `.te` file or an ONNX model, or the text of a program. Modules are
    kept in `~/.cache/tec/python` and compiled again only if the compiler, an option, the file, one
    of its imports or a file of the options changed; TEC_NO_CACHE=1 in the environment turns that
    off. Raises `CompileError` if the program is wrong.
    """
    return _load_module(source, options)


def _load_module(source: Path, options: Mapping[str, Any]) -> Module:
    tvm_ffi = require("tvm_ffi")
    options = _absolute(options)
    if not is_text(source):
        # Not a string, which could look like a text.
        source = pathlib.Path(os.path.abspath(source))
    with _module_folder(source, options) as folder:
        manifest = read_manifest(folder / "module.json")
        path = str(folder / "module.so")
        loaded = tvm_ffi.load_module(path)
        return Module(manifest, loaded, (source, options), _running_target(manifest, path))


def _running_target(manifest: Mapping[str, Any], path: str) -> str | None:
    """What a loaded module for several CPUs says of itself."""
    if "variants" not in manifest:
        return None
    function = getattr(ctypes.CDLL(path), f"{manifest['module']}_target")
    function.restype = ctypes.c_char_p
    name: bytes | None = function()
    return name.decode() if name else None


def _load_kernel(source: Path, options: Mapping[str, Any], name: str) -> Kernel:
    return _load_module(source, options)[name]


def kernel(source: Path, **options: Unpack[Options]) -> Kernel:
    """Compiles and loads a program with one kernel, as `load` does, and returns the kernel."""
    module = load(source, **options)
    if len(module.kernels) != 1:
        names = ", ".join(module.kernels)
        raise ValueError(
            f"the program has the kernels {names}: choose one, kernel='…', or use `load`"
        )
    return next(iter(module))


def _absolute(options: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(options)
    for name in ("params", "records"):
        if found.get(name) is not None:
            found[name] = os.path.abspath(found[name])
    if found.get("freeze"):
        found["freeze"] = {
            key: one if isinstance(plain(one), int | float) else os.path.abspath(one)
            for key, one in found["freeze"].items()
        }
    return found


def _build_into(folder: pathlib.Path, source: Path, options: Mapping[str, Any]) -> None:
    written = {
        "manifest": folder / "module.json",
        "header": folder / "module.h",
        "depfile": folder / "module.d",
    }
    given = {"module": _module_name(source), **options, **written}
    run_build(source, folder / "module.so", given)


def _module_name(source: Path) -> str:
    stem = "text" if is_text(source) else pathlib.Path(source).stem
    name = re.sub(r"[^A-Za-z0-9_]", "_", stem)
    return name if name[:1].isalpha() and name.isascii() and name != "tec" else f"m{name}"


@contextlib.contextmanager
def _module_folder(source: Path, options: Mapping[str, Any]) -> Iterator[pathlib.Path]:
    """A folder with `module.so` and `module.json`, from the cache if possible."""
    root = _cache_folder()
    if root is None:
        with tempfile.TemporaryDirectory(prefix="tec-") as folder:
            _build_into(pathlib.Path(folder), source, options)
            # The module stays loaded after its file is removed.
            yield pathlib.Path(folder)
        return
    key = _key(source, options)
    index = root / f"{key}.json"
    known = _known_module(root, index)
    if known is None:
        known = _build_cached(root, key, source, options)
    yield known


def _cache_folder() -> pathlib.Path | None:
    if os.environ.get("TEC_NO_CACHE", "") not in ("", "0"):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(base, "tec", "python")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder if os.access(folder, os.W_OK) else None
    except OSError:
        return None


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _key(source: Path, options: Mapping[str, Any]) -> str:
    """What a module depends on beside the contents of files."""
    tec = find_tec()
    about = tec.stat()
    # `native`, the default target, is another one on another machine with the same home.
    machine = run_tec(["targets", "--json"])
    compiler = f"{tec} {about.st_size} {about.st_mtime_ns}"
    return _digest(compiler, machine, os.fspath(source), *arguments(options))


def _hash_of(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _known_module(root: pathlib.Path, index: pathlib.Path) -> pathlib.Path | None:
    try:
        entry = json.loads(index.read_text(encoding="utf-8"))
        folder = root / str(entry["module"])
        unchanged = all(_hash_of(path) == known for path, known in entry["files"].items())
        if unchanged and _sizes(folder) == entry["sizes"]:
            os.utime(folder)
            return folder
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def _sizes(folder: pathlib.Path) -> list[int]:
    """The sizes of the files of a module, to notice those that are gone or were cut."""
    return [(folder / name).stat().st_size for name in ("module.so", "module.json")]


def _publish(building: pathlib.Path, folder: pathlib.Path) -> list[int]:
    """Moves a module that was built to its place, and returns the sizes of its files."""
    sizes = _sizes(building)
    for _ in range(2):
        with contextlib.suppress(OSError):
            building.rename(folder)
        with contextlib.suppress(OSError):
            # Another process may have been faster.
            if _sizes(folder) == sizes:
                return sizes
        # It was damaged.
        shutil.rmtree(folder, ignore_errors=True)
    raise TecError(f"cannot write the cache `{folder}`")


def _build_cached(
    root: pathlib.Path, key: str, source: Path, options: Mapping[str, Any]
) -> pathlib.Path:
    building = pathlib.Path(tempfile.mkdtemp(prefix=".building-", dir=root))
    try:
        _build_into(building, source, options)
        inputs = [path for path in _inputs_of(building / "module.d") if os.path.exists(path)]
        files = {path: _hash_of(path) for path in inputs + _absent_inputs(source, options)}
        # The loader knows a module by its path, so a changed module gets another one.
        name = _digest(key, json.dumps(files, sort_keys=True))
        sizes = _publish(building, root / name)
        entry = json.dumps({"module": name, "files": files, "sizes": sizes})
        fresh = root / f".{key}-{os.getpid()}"
        fresh.write_text(entry, encoding="utf-8")
        fresh.replace(root / f"{key}.json")
    finally:
        shutil.rmtree(building, ignore_errors=True)
    _remove_old(root)
    return root / name


def _absent_inputs(source: Path, options: Mapping[str, Any]) -> list[str]:
    """The file that is an input from the moment on when it is there: that of the params."""
    if is_text(source) or options.get("params") is not None:
        return []
    beside = pathlib.Path(source).with_suffix(".safetensors")
    return [] if beside.exists() else [str(beside)]


def _inputs_of(depfile: pathlib.Path) -> list[str]:
    """The inputs in a file that `--depfile` wrote; a text is a file that is gone."""
    lines = depfile.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    names = [line[2:].removesuffix(" \\") for line in lines if line.startswith("  ")]
    return [re.sub(r"\\+([ \t#:])", _unescape, name).replace("$$", "$") for name in names]


def _unescape(match: re.Match[str]) -> str:
    if match[1] == ":":
        return match[0][:-2] + ":"
    return "\\" * ((len(match[0]) - 2) // 2) + match[1]


def _remove_old(root: pathlib.Path) -> None:
    """Keeps the modules that were used last."""
    with contextlib.suppress(OSError):
        folders = [one for one in root.iterdir() if one.is_dir() and not one.name.startswith(".")]
        folders.sort(key=lambda one: one.stat().st_mtime, reverse=True)
        for folder in folders[_MOST_MODULES:]:
            shutil.rmtree(folder, ignore_errors=True)
        entries = [one for one in root.iterdir() if one.suffix == ".json"]
        entries.sort(key=lambda one: one.stat().st_mtime, reverse=True)
        for entry in entries[4 * _MOST_MODULES :]:
            entry.unlink(missing_ok=True)
