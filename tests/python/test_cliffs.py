"""The suite in `bench/cliffs` is complete, and its files pass `tec check`."""

import importlib.util
import json
import re

import numpy as np
import pytest
from conftest import ROOT, run_tec

FOLDER = ROOT / "bench/cliffs"
SUITE = json.loads((FOLDER / "suite.json").read_text())
FILES = sorted(FOLDER.glob("*.te"))


def names(pattern, text):
    return set(re.findall(pattern, text, re.MULTILINE))


def parameters(kernel, text):
    """The compile-time parameters of a kernel, and its run-time integers."""
    header = re.search(rf"^kernel {kernel}\s*\(([^)]*)\)", text, re.MULTILINE)
    parts = [part.strip() for part in header.group(1).split(",")] if header else []
    run_time = {part.split(":")[0].strip() for part in parts if part.endswith("var")}
    return {re.match(r"\w+", part).group() for part in parts} - run_time, run_time


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("cliffs_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_manifest_lists_every_kernel_of_every_file():
    assert len(SUITE) >= 120
    listed = [entry["kernel"] for entry in SUITE]
    assert len(set(listed)) == len(listed)
    found = set()
    for path in FILES:
        found |= {(path.name, name) for name in names(r"^kernel (\w+)", path.read_text())}
    assert {(entry["file"], entry["kernel"]) for entry in SUITE} == found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_kernel_has_both_schedules_and_two_sizes(path):
    text = path.read_text()
    schedules = names(r"^schedule (\w+\.\w+) for cpu", text)
    for entry in SUITE:
        if entry["file"] != path.name:
            continue
        kernel = entry["kernel"]
        assert entry["family"] == path.stem
        assert {f"{kernel}.plain", f"{kernel}.plain_parallel"} <= schedules
        assert re.search(rf"^# .*\nkernel {kernel}\b", text, re.MULTILINE), "a comment above"
        compiled, run_time = parameters(kernel, text)
        assert entry["small"] != entry["large"]
        for size in (entry["small"], entry["large"]):
            assert set(size.get("define", {})) <= compiled
            assert set(size.get("var", {})) == run_time
            assert size["bytes"] > 0 and size["operations"] >= 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_passes_check(path):
    done = run_tec("check", path)
    assert done.returncode == 0, done.stderr


def test_a_row_lists_the_goals_that_it_misses(runner):
    row = {"status": "ok", "var": {}, "ns": {"plain": 900.0, "default": 900.0, "auto": 1000.0}}
    row |= {"speed": 0.9, "compile_s": 0.5}
    assert runner.misses_of(row) == ["slower than plain", "slower than default", "compile time"]
    assert runner.misses_of(row | {"var": {"n": 3}}) == []
    assert runner.misses_of({"status": "bench: killed by signal 11", "var": {}}) == [
        "bench: killed by signal 11"
    ]


def test_results_are_compared_by_their_bits(runner):
    one = np.array([1.0, np.nan, -0.0, np.inf], np.float32)
    other = one.copy()
    assert runner.difference(one, other, exact=True) is None
    other[2] = 0.0
    assert runner.difference(one, other, exact=True) == "1 of 4 elements differ"
    assert runner.difference(one, other, exact=False) is None
    other[0] = 2.0
    assert runner.difference(one, other, exact=False) == "1 of 4 elements differ"


def test_a_row_names_the_step_that_failed(runner, tmp_path, monkeypatch):
    out = tmp_path / "rows.jsonl"
    command = ["run.py", "--only", "^tiny_add$", "--sizes", "small", "--threads", "1"]
    command += ["--tec", "/bin/false", "--json", str(out)]
    monkeypatch.setattr("sys.argv", command)
    assert runner.main() == 1
    row = json.loads(out.read_text())
    assert row["status"].startswith("build auto: exit status 1")


def test_speeds_are_medians_of_the_ratios_of_processes(runner):
    def one(plain, auto):
        return {"plain": {"median_ns": plain}, "auto": {"median_ns": auto}}

    passes = [one(100.0, 50.0), one(120.0, 120.0), one(90.0, 60.0)]
    assert runner.ratio(passes, "plain", "auto") == (1.5, 1.0, 2.0)
