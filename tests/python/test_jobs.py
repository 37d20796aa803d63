"""The jobs in `bench/jobs`: the file passes `tec check`, and `run.py` has a job for each kernel."""

import re

from conftest import ROOT, run_tec

FOLDER = ROOT / "bench/jobs"


def test_every_kernel_is_a_job():
    kernels = re.findall(r"^kernel (\w+)", (FOLDER / "jobs.te").read_text(), re.MULTILINE)
    script = (FOLDER / "run.py").read_text()
    listed = re.search(r"^JOBS = \[(.*?)\]", script, re.MULTILINE | re.DOTALL).group(1)
    assert sorted(kernels) == sorted(re.findall(r"\w+", listed))
    assert len(kernels) == 30


def test_the_kernels_pass_the_check():
    done = run_tec("check", FOLDER / "jobs.te")
    assert done.returncode == 0, done.stderr
