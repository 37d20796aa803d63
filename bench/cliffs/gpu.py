#!/usr/bin/env python3
"""Checks and times the automatic schedules of the suite on the first NVIDIA GPU.

    python3 bench/cliffs/gpu.py --target nvptx-sm_90 --json gpu.jsonl [--only REGEX]

For each kernel, `tec run --verify` compares the small size with the interpreter, and `tec bench`
times the large one. README.md beside this file describes the columns.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from run import HERE, ROOT, cases_of, duration, geometric_mean

# Modules that one process times: each process needs a CUDA context, which takes half a second.
MODULES_PER_PROCESS = 8


def options_of(case, args, schedule=True):
    """The options that select a kernel at a size."""
    options = ["--kernel", case["kernel"], "--target", args.target]
    options += ["--schedule", args.schedule] if schedule else []
    return options + [f"-D{name}={value}" for name, value in case["define"].items()]


def run(args, command):
    """Returns the standard output of `tec`, or raises RuntimeError with what it says."""
    try:
        done = subprocess.run([args.tec, *map(str, command)], capture_output=True, text=True,
                              timeout=args.limit, env=dict(os.environ, NO_COLOR="1"))
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"more than {args.limit:g} s") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        said = [line for line in lines if re.search("error|differ|panic", line, re.I)] or lines
        raise RuntimeError((said or [f"exit status {done.returncode}"])[0].strip()[:200])
    return done.stdout + done.stderr


def verify(case, args):
    """Whether the results of a kernel are those of the interpreter, as text."""
    options = [f"--var={name}={value}" for name, value in case["var"].items()]
    try:
        run(args, ["run", HERE / case["file"], "--verify", *options_of(case, args), *options])
        return "right"
    except RuntimeError as error:
        return str(error)


def build(case, args, folder):
    """Builds a module. Returns its path and the notes, or None and the error."""
    path = folder / f"{case['kernel']}.so"
    try:
        command = ["build", HERE / case["file"], "--no-sidecars", "-o", path]
        return path, run(args, command + options_of(case, args))
    except RuntimeError as error:
        return None, str(error)


def times(cases, paths, args):
    """Times kernels in one process, or each in its own if that fails."""
    variables = {}
    for case in cases:
        variables.update(case["var"])
    options = [f"--var={name}={value}" for name, value in variables.items()]
    options += ["--json", "--roofline=off", "--min-time", args.min_time]
    try:
        results = json.loads(run(args, ["bench", *paths, *options]))["results"]
        return {one["kernel"]: one["median_ns"] for one in results}
    except (RuntimeError, ValueError) as error:
        if len(cases) == 1:
            return {cases[0]["kernel"]: str(error)}
    found = {}
    for case, path in zip(cases, paths):
        found.update(times([case], [path], args))
    return found


def groups_of(cases):
    """Kernels that one process can time: without run-time integers, or each by itself."""
    group = []
    for case in cases:
        if case["var"]:
            yield [case]
            continue
        group.append(case)
        if len(group) == MODULES_PER_PROCESS:
            yield group
            group = []
    if group:
        yield group


def row_of(case, entry, args, time):
    """The row of a kernel, with the least time that the GPU's limits allow."""
    row = {"kernel": case["kernel"], "family": case["family"], "define": case["define"],
           "target": args.target, "schedule": args.schedule}
    if not isinstance(time, (int, float)):
        return dict(row, status=time)
    large = entry["large"]
    limit = max(large["bytes"] / args.bandwidth, large["operations"] / args.peak) * 1e9
    return dict(row, status="ok", ns=time, limit_ns=limit, of_limit=limit / time)


def arguments():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tec = os.environ.get("TEC", str(ROOT / "target/release/tec"))
    parser.add_argument("--tec", default=tec, help="the compiler; $TEC or target/release/tec")
    parser.add_argument("--target", required=True, help="the GPU, for example nvptx-sm_90")
    parser.add_argument("--schedule", default="auto", help="`auto` by default")
    parser.add_argument("--only", metavar="REGEX", help="kernels whose name matches")
    parser.add_argument("--family", action="append", help="kernels of a family (repeatable)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one kernel in N")
    parser.add_argument("--sizes", choices=["small", "large", "both"], default="both",
                        help="small sizes are verified, large ones timed")
    parser.add_argument("--min-time", default="0.02", help="seconds for each kernel")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    parser.add_argument("--bandwidth", type=float, default=4.3e12, metavar="B",
                        help="bytes a second of the GPU's memory; 4.3e12, an H200, by default")
    parser.add_argument("--peak", type=float, default=60e12, metavar="N",
                        help="float32 operations a second; 60e12 by default")
    parser.add_argument("--modules", type=pathlib.Path, metavar="DIR",
                        help="keep modules there, and time those that are there already")
    parser.add_argument("--json", metavar="OUT", help="write a JSON line for each row")
    return parser.parse_args()


def main():
    args = arguments()
    entries = {one["kernel"]: one for one in json.loads((HERE / "suite.json").read_text())}
    selected = list(cases_of(args))
    small = [case for case in selected if case["size"] == "small"]
    large = [case for case in selected if case["size"] == "large"]
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        folder = args.modules or pathlib.Path(folder)
        folder.mkdir(exist_ok=True)

        def module(case):
            path = folder / f"{case['kernel']}.so"
            return (path, "") if path.exists() else build(case, args, folder)

        rows, notes = [], {}
        built = dict(zip((case["kernel"] for case in large), pool.map(module, large)))
        for name, (path, text) in built.items():
            notes[name] = text
        ready = [case for case in large if built[case["kernel"]][0]]
        rows += [row_of(case, entries[case["kernel"]], args, f"build: {notes[case['kernel']]}")
                 for case in large if case not in ready]
        for group in groups_of(ready):
            paths = [built[case["kernel"]][0] for case in group]
            found = times(group, paths, args)
            for case in group:
                entry = entries[case["kernel"]]
                row = row_of(case, entry, args, found.get(case["kernel"], "no result"))
                rows.append(row)
                text = duration(row["ns"]) if "ns" in row else row["status"]
                share = f"{row['of_limit']:6.3f}" if "ns" in row else ""
                print(f"{row['kernel']:28} {text:>12} {share}", flush=True)
        for case, status in zip(small, pool.map(lambda case: verify(case, args), small)):
            rows.append({"kernel": case["kernel"], "size": "small", "status": status})
            if status != "right":
                print(f"{case['kernel']:28} {status}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    timed = [row["of_limit"] for row in rows if row.get("of_limit")]
    right = sum(row["status"] == "right" for row in rows)
    print(f"{right} of {len(small)} kernels are right")
    if timed:
        print(f"{len(timed)} of {len(large)} timed, geometric mean of limit / time: "
              f"{geometric_mean(timed):.3f}")
    return 0 if right == len(small) and len(timed) == len(large) else 1


if __name__ == "__main__":
    sys.exit(main())
