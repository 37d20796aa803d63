"""Compares the modules that two builds of `tec` make of the samples: every schedule and target.

    python3 tools/same_modules.py OLD NEW [SAMPLE ...]

Builds each sample, or the given ones (`matmul conv`), with both programs and compares the object
files and PTX texts. Prints each module that differs and exits with 1 if there is one.
"""

import argparse
import hashlib
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGETS = ("x86-64", "x86-avx2", "x86-avx512", "aarch64", "riscv64", "nvptx-sm_80", "nvptx-sm_90")


def schedules(path: pathlib.Path) -> list[str]:
    """The names of a file's schedules, with those that every kernel has."""
    names = re.findall(r"^schedule \w+\.(\w+)", path.read_text(), re.MULTILINE)
    return ["default", "auto", *sorted(set(names))]


def built(tec: str, path: pathlib.Path, schedule: str, target: str) -> tuple[int, object]:
    """The exit status of a build and a digest of its output, or the messages of a refusal."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / ("m.ptx" if target.startswith("nvptx") else "m.o")
        command = [tec, "build", path, "--schedule", schedule, "--target", target, "-o", out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return done.returncode, re.findall(r"E\d{4}", done.stderr)[:1]
        return 0, hashlib.sha256(out.read_bytes()).hexdigest()


def main() -> int:
    """Compares the builds of all samples, or of the given ones."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("sample", nargs="*")
    options = parser.parse_args()
    paths = [path for path in sorted((ROOT / "samples").glob("*.te"))
             if not options.sample or path.stem in options.sample]
    jobs = [(path, schedule, target)
            for path, target in itertools.product(paths, TARGETS)
            for schedule in schedules(path)]

    def both(job):
        return built(options.old, *job), built(options.new, *job)

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(both, jobs))
    different = [(job, pair) for job, pair in zip(jobs, results) if pair[0] != pair[1]]
    for (path, schedule, target), (old, new) in different:
        print(f"{path.name} --schedule {schedule} --target {target}: {old} -> {new}")
    made = sum(old[0] == 0 for old, _ in results)
    print(f"{len(jobs)} builds, {made} modules, {len(different)} differ")
    return 1 if different or not made else 0


if __name__ == "__main__":
    sys.exit(main())
