"""Builds `.te` files with the `tec` binary and loads the modules through tvm-ffi."""

import os
import pathlib
import subprocess

import numpy as np
import pytest

# No helper extension for torch: a module must never depend on it.
os.environ.setdefault("TVM_FFI_DISABLE_TORCH_C_DLPACK", "1")

# Tests do not use the user's cache of automatic schedules.
os.environ["TEC_NO_CACHE"] = "1"

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tec_binary():
    """The compiler under test: $TEC, or what cargo built last in debug or release."""
    named = os.environ.get("TEC")
    names = [named] if named else ["target/debug/tec", "target/release/tec"]
    candidates = [ROOT / name for name in names]
    for path in candidates:
        if path.exists():
            return str(path)
    raise FileNotFoundError(f"no tec binary at {', '.join(map(str, candidates))}: cargo build")


def run_tec(*args):
    """Runs `tec` and returns the finished process."""
    return subprocess.run([tec_binary(), *map(str, args)], capture_output=True, text=True, cwd=ROOT)


def has_feature(*flags):
    """Whether this processor has instruction sets, by their names in /proc/cpuinfo."""
    try:
        return set(flags) <= set(pathlib.Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False


def needs_feature(*flags):
    """Skips a test, and says why, on a processor that lacks one of these instruction sets."""
    reason = f"this processor lacks one of {', '.join(flags)}"
    return pytest.mark.skipif(not has_feature(*flags), reason=reason)


class Builder:
    """Builds each combination of file, schedule and definitions once."""

    def __init__(self, folder):
        self.folder = folder
        self.paths = {}

    def path(self, file, schedule=None, target=None, **defines):
        """Returns the path of the `.so` of `file`, built with these options."""
        key = (str(file), schedule, target, tuple(sorted(defines.items())))
        if key not in self.paths:
            source = ROOT / file
            out = self.folder / f"{source.stem}_{len(self.paths)}.so"
            options = [f"-D{name}={value}" for name, value in defines.items()]
            options += ["--schedule", schedule] if schedule else []
            options += ["--target", target] if target else []
            done = run_tec("build", source, "-o", out, *options)
            assert done.returncode == 0, done.stderr
            self.paths[key] = out
        return str(self.paths[key])

    def __call__(self, file, schedule=None, target=None, **defines):
        import tvm_ffi

        return tvm_ffi.load_module(self.path(file, schedule, target, **defines))


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """`build("samples/matmul.te", n=64)` is the loaded module; `build.path(...)` its file."""
    return Builder(tmp_path_factory.mktemp("modules"))


@pytest.fixture
def rng():
    """Random numbers, the same in every run."""
    return np.random.default_rng(20260101)
