"""Where the compiler and the package for CMake are."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess
import sysconfig
from importlib.metadata import version

from ._errors import TecError

__version__ = version("tec-compiler")

_PACKAGE = pathlib.Path(__file__).resolve().parent


def cmake_dir() -> pathlib.Path:
    """The folder of the package for CMake, for `cmake -Dtec_DIR=…`."""
    return _PACKAGE / "cmake"


@functools.cache
def find_tec() -> pathlib.Path:
    """The compiler: the file of the environment variable TEC_EXECUTABLE, or the one that was
    installed with this package."""
    named = os.environ.get("TEC_EXECUTABLE")
    if named:
        candidates = [pathlib.Path(named)]
    else:
        user = sysconfig.get_preferred_scheme("user")
        folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=user)]
        # `pip install --target` and `--prefix`.
        candidates = [pathlib.Path(folder, "tec") for folder in folders]
        candidates += [_PACKAGE.parent / "bin/tec", _PACKAGE.parents[3] / "bin/tec"]
        found = shutil.which("tec")
        candidates += [pathlib.Path(found)] if found else []
    seen = []
    for path in candidates:
        if path.is_file():
            said = _version_of(path)
            if said == f"tec {__version__}":
                return path
            seen.append(f"`{path}` is {said}")
    looked = "; ".join(seen) or "looked for " + ", ".join(map(str, candidates))
    raise TecError(
        f"there is no `tec` of version {__version__} ({looked}); install tec-compiler again, or "
        "set TEC_EXECUTABLE to its path"
    )


def _version_of(path: pathlib.Path) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stdout.strip() or f"no compiler (exit status {done.returncode})"
