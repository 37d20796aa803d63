"""`build`: runs `tec build`."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._binary import find_tec
from ._errors import error_of
from ._options import BuildOptions, Path, arguments

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger("tec_compiler")


@dataclass(frozen=True)
class Built:
    """The files that `build` wrote."""

    #: The module.
    output: pathlib.Path
    #: The C header, if one was written.
    header: pathlib.Path | None
    #: The manifest as a file, if one was written.
    manifest: pathlib.Path | None


def is_text(source: Path) -> bool:
    """Whether a source is a program itself, not a path: it has a line break, or a brace and not the
    end of a path."""
    if not isinstance(source, str):
        return False
    return "\n" in source or ("{" in source and not source.endswith((".te", ".onnx")))


@contextmanager
def source_file(source: Path) -> Iterator[tuple[str, str | None]]:
    """The path of a source, and the path that the user does not know."""
    if not is_text(source):
        yield os.fspath(source), None
        return
    with tempfile.TemporaryDirectory(prefix="tec-") as folder:
        path = pathlib.Path(folder, "text.te")
        path.write_text(os.fspath(source), encoding="utf-8")
        yield str(path), str(path)


def run_tec(command: list[str], unnamed: str | None = None) -> str:
    """Runs `tec`, and returns what it prints. Notes go to the logger `tec_compiler`."""
    done = subprocess.run(
        [find_tec(), "--color", "never", *command],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode != 0:
        raise error_of(done.returncode, done.stderr, unnamed)
    for line in done.stderr.splitlines():
        _log.info("%s", line)
    return done.stdout


def run_build(source: Path, output: Path, options: Mapping[str, Any]) -> None:
    """Runs `tec build`."""
    more = arguments(options)
    with source_file(source) as (path, unnamed):
        # A path may begin with a hyphen.
        run_tec(["build", *more, "-o", os.fspath(output), "--", path], unnamed)


def build(source: Path, output: Path | None = None, **options: Unpack[BuildOptions]) -> Built:
    """Compiles a program.

    `source` is the path of a `.te` file or an ONNX model, or the text of a program. The extension
    of `output` selects what is written: `.so`, `.a`, `.tar`, `.o`, `.s` or `.ptx`; the default is
    the source's path with `.so`. Raises `CompileError` if the program is wrong.
    """
    if output is None:
        if is_text(source):
            raise TypeError("a text needs an output: build(text, 'kernels.so')")
        output = pathlib.Path(source).with_suffix(".so")
    output = pathlib.Path(output)
    run_build(source, output, options)
    beside = output.suffix in (".so", ".a") and not options.get("no_sidecars")
    header = options.get("header") or (output.with_suffix(".h") if beside else None)
    manifest = options.get("manifest") or (output.with_suffix(".json") if beside else None)
    return Built(
        output,
        pathlib.Path(header) if header else None,
        pathlib.Path(manifest) if manifest else None,
    )


def read_manifest(path: pathlib.Path) -> dict[str, Any]:
    """The manifest in a file."""
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return manifest
