"""The Python package `tec-compiler`: its wheel with the binary under test, its types, and its use
from an environment of its own (wheel_use.py)."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from conftest import ROOT, tec_binary

PACKAGE = ROOT / "python"


def run(*args, **more):
    """Runs a command and returns what it prints; fails if it fails."""
    done = subprocess.run(
        list(map(str, args)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    )
    assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}"
    return done.stdout


def make_wheel(folder):
    """Builds the wheel without compiling `tec` again."""
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "wheel"]
    environment = {**os.environ, "TEC_BINARY": tec_binary()}
    options = ["--no-build-isolation", "--no-deps", "-w", folder]
    run(*pip, *options, PACKAGE, env=environment, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_environment(folder, wheel):
    """Returns the Python of a new environment with the wheel, and the packages of this one."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python]
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    own = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # NumPy, tvm-ffi and pytest, which need no copy.
    pathlib.Path(own, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_works_in_an_environment_of_its_own(tmp_path):
    wheel = make_wheel(tmp_path)
    name = re.fullmatch(r"tec_compiler-(.+)-py3-none-(manylinux_2_\d+|linux)_\w+\.whl", wheel.name)
    assert name, wheel.name
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    script = f"tec_compiler-{name[1]}.data/scripts/tec"
    for file in ("py.typed", "LICENSE-MIT", "cmake/tec-config.cmake"):
        assert f"tec_compiler/{file}" in files, files
    assert script in files, files
    assert not any("__pycache__" in file for file in files)

    python = make_environment(tmp_path / "environment", wheel)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    test = folder / "wheel_use.py"
    test.write_text((ROOT / "tests/python/wheel_use.py").read_text())
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    pytest_run = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    print(run(*pytest_run, cwd=folder, env=environment))
    # The compiler of the environment is on the PATH of those that activate it.
    tec = run(python.parent / "tec", "--version").strip()
    assert tec == f"tec {name[1]}"


def test_the_package_has_types():
    """mypy, and what an editor shows for the options."""
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "--config-file"]
    run(*mypy, PACKAGE / "pyproject.toml", PACKAGE / "src/tec_compiler")
    program = (
        "import tec_compiler\n"
        "tec_compiler.kernel('kernel f() { }', target='x86-avx2', opt=2)\n"
        "tec_compiler.kernel('kernel f() { }', opt=4)\n"
        "tec_compiler.kernel('kernel f() { }', header='k.h')\n"
    )
    command = [*mypy, os.devnull, "-c", program]
    where = {**os.environ, "MYPYPATH": str(PACKAGE / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=where, cwd=PACKAGE)
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in lines] == ["3", "4"], done.stdout


def test_torch_is_tested_where_it_is(tmp_path):
    pytest.importorskip("torch")
    python = make_environment(tmp_path / "environment", make_wheel(tmp_path))
    test = ROOT / "tests/python/wheel_use.py"
    environment = {**os.environ, "TEC_TEST_EXTRA": "torch"}
    pytest_run = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "torch", test]
    run(*pytest_run, env=environment)
