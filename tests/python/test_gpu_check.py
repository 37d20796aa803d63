"""Tests `tools/gpu_check.py` without a GPU."""

import importlib.util
import json
import re
import subprocess
import sys

import types

import numpy as np
import pytest

from conftest import ROOT

SCRIPT = ROOT / "tools/gpu_check.py"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "torch, reason",
    [
        ("raise ImportError('none here')", "no PyTorch: none here"),
        ("class cuda:\n    is_available = staticmethod(lambda: False)", "PyTorch finds no GPU"),
    ],
)
def test_without_a_gpu_the_check_is_skipped(tmp_path, torch, reason):
    (tmp_path / "torch.py").write_text(torch + "\n")
    out = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", out],
        capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"skipped: {reason}\n"
    result = json.loads(out.read_text())
    assert (result["status"], result["reason"]) == ("skipped", reason)
    assert result["results"] == []


def test_every_schedule_for_gpus_is_checked(script):
    checked = set()
    for quick in (False, True):
        for case in script.cases(quick):
            names = script.schedules_of(case, ROOT / "samples")
            assert names, f"{case.name}: no schedule for GPUs"
            checked |= {(case.kernel, name) for name in names}
    for file in sorted((ROOT / "samples").glob("*.te")):
        pattern = r"^schedule (\w+)\.(\w+)[^{]*?for nvptx"
        for kernel, name in re.findall(pattern, file.read_text(), re.M):
            assert (kernel, name) in checked, f"{file.name}: schedule {kernel}.{name}"


def test_a_gpu_gets_the_best_target_that_it_runs(script):
    known = ["nvptx-sm_75", "nvptx-sm_80", "nvptx-sm_90", "nvptx-sm_90a", "nvptx-sm_100"]
    assert script.find_target(9, 0, known) == "nvptx-sm_90"
    assert script.find_target(8, 6, known) == "nvptx-sm_80"
    assert script.find_target(12, 0, known) == "nvptx-sm_100"
    assert script.find_target(7, 0, known) is None


class Tensor(np.ndarray):
    """The methods of PyTorch's tensor that the comparison uses."""

    def double(self):
        return self.astype(np.float64)

    def abs(self):
        return np.abs(self)


@pytest.mark.parametrize("name", ["vector_add", "broadcast_add", "matmul", "batch_norm"])
def test_wrong_results_are_detected(script, rng, name):
    torch = types.SimpleNamespace(isfinite=np.isfinite, sqrt=np.sqrt)
    (case, *_) = [case for case in script.cases(quick=True) if case.kernel == name]
    inputs = [rng.random(shape, np.float32).view(Tensor) for shape in case.shapes]
    result = case.reference(torch, *inputs)
    assert result.dtype == np.float32
    told = script.compare(torch, case, inputs, result)
    assert told["right"] and told["error_of_bound"] <= 1
    for wrong in (1.001, np.nan):
        other = result.copy()
        other.flat[other.size // 2] *= wrong
        assert not script.compare(torch, case, inputs, other)["right"]
    assert not script.compare(torch, case, inputs, 0 * result)["right"]
