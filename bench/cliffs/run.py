#!/usr/bin/env python3
"""Compares `--schedule auto` with the plain vectorized loops on every kernel of the suite.

    python3 bench/cliffs/run.py [--only REGEX] [--family NAME] [--quick] [--resume OUT.jsonl]

README.md beside this file describes the columns and the goals.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Minimum speed of `auto` relative to the plain schedule, and relative to the tuned one.
SPEED_GOAL = 0.95
SHORT_SPEED_GOAL = 0.8
TUNED_SPEED_GOAL = 0.8

# With run-time shapes, SHORT_SPEED_GOAL is for calls that take fewer nanoseconds than this.
SHORT_NS = 1000.0

# Maximum CPU seconds of a build with `auto`, with constant and with run-time shapes.
COMPILE_GOAL = 0.3
VAR_COMPILE_GOAL = 1.0

# Minimum geometric mean of the speeds.
MEAN_SPEED_GOAL = 3.0

# A speed below its goal times this is measured twice more; the median counts.
NEAR = 1.1

# Calls that take fewer nanoseconds than PLACED_NS depend on array addresses (4 KiB aliasing), so
# PROCESSES processes share a measurement, each with the variants in another order.
PLACED_NS = 100e3
PROCESSES = 5

# Maximum seconds of all rounds of one process; `tec bench` runs at least three rounds.
MAX_SECONDS = 20.0

# A variant that is this many times slower than the plain one is measured in the first pass only.
SLOW = 4.0

# Calls with more bytes of arguments than this are compared only with `--check all`.
CHECK_BYTES = 200e6

# Maximum relative difference of kernels that may reassociate.
TOLERANCE = 1e-3


class Failure(Exception):
    """A step of a row failed; the text becomes the row's status."""


class Runner:
    """Runs `tec` and measures the CPU time of its processes."""

    def __init__(self, args):
        self.args = args
        self.environment = dict(os.environ, NO_COLOR="1")
        options = subprocess.run([args.tec, "help", "build"], capture_output=True, text=True)
        self.no_cache = ["--no-cache"] if "--no-cache" in options.stdout else []

    def run(self, step, command):
        """Returns the standard output of a command, and its CPU seconds."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                [self.args.tec, *map(str, command)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.environment,
                start_new_session=True,
            )
            late = threading.Event()

            def end():
                late.set()
                os.killpg(process.pid, signal.SIGKILL)

            timer = threading.Timer(self.args.limit, end)
            timer.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            finally:
                timer.cancel()
            out.seek(0)
            err.seek(0)
            if late.is_set():
                raise Failure(f"{step}: more than {self.args.limit:g} s")
            if process.returncode < 0:
                raise Failure(f"{step}: killed by signal {-process.returncode}")
            if process.returncode > 0:
                lines = [line for line in err.read().splitlines() if line.strip()]
                error = next((line for line in lines if "error" in line.lower()), "")
                raise Failure(f"{step}: exit status {process.returncode}: {error.strip()[:120]}")
            return out.read(), usage.ru_utime + usage.ru_stime

    def build(self, case, schedule, out, extra=()):
        """Builds a module; returns its CPU seconds."""
        command = ["build", HERE / case["file"], "--kernel", case["kernel"], "-o", out]
        if schedule:
            command += ["--schedule", schedule]
            if schedule == "auto":
                command += self.no_cache
        step = f"build {schedule or 'tuned'}"
        return self.run(step, [*command, *self.defines(case), *extra])[1]

    def defines(self, case):
        """The options that fix the kernel's compile-time sizes, and the target."""
        options = [f"-D{name}={value}" for name, value in case["define"].items()]
        return options + (["--target", self.args.target] if self.args.target else [])

    @staticmethod
    def variables(case):
        """The options that give the kernel's run-time sizes."""
        return [f"--var={name}={value}" for name, value in case["var"].items()]


def manifest_of(module, kernel):
    """The manifest of a kernel of a built module."""
    document = json.loads(module.with_suffix(".json").read_text())
    return next(one for one in document["kernels"] if one["name"] == kernel)


def number(expression, variables):
    """Evaluates a number of the manifest, which may be an expression of run-time sizes."""
    if not isinstance(expression, str):
        return expression
    return eval(expression, {"__builtins__": {}, "min": min, "max": max}, dict(variables))


def write_inputs(manifest, case, folder):
    """Writes random inputs that NumPy can hold; returns their options. Floats are -0.25 to 1."""
    import numpy as np

    random = np.random.default_rng(17)
    options = []
    for arg in manifest["args"]:
        if arg["kind"] != "tensor" or arg["role"] != "input" or arg["dtype"] == "bfloat16":
            continue
        shape = [number(extent, case["var"]) for extent in arg["shape"]]
        dtype = np.dtype(arg["dtype"])
        if arg["name"] in case["inputs"]:
            low, high = case["inputs"][arg["name"]]
            data = random.integers(low, high + 1, shape).astype(dtype)
        elif dtype.kind == "f":
            data = (random.random(shape) * 1.25 - 0.25).astype(dtype)
        elif dtype == bool:
            data = random.random(shape) < 0.5
        elif dtype.itemsize > 2:
            data = random.integers(0, 1000, shape).astype(dtype)
        else:
            limits = np.iinfo(dtype)
            data = random.integers(limits.min, limits.max + 1, shape).astype(dtype)
        path = folder / f"in_{arg['name']}.npy"
        np.save(path, data)
        options += ["--input", f"{arg['name']}={path}"]
    return options


def read_array(path):
    """Reads an array of `tec run`; bfloat16, which NumPy lacks, becomes float32."""
    import numpy as np

    data = np.load(path, allow_pickle=False)
    if data.dtype.kind == "V":
        data = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return data


def difference(expected, found, exact):
    """Describes how two arrays differ, or returns None. All NaNs are equal."""
    import numpy as np

    if expected.dtype != found.dtype or expected.shape != found.shape:
        return "another type or shape"
    if expected.dtype.kind != "f":
        wrong = expected != found
    elif exact:
        bits = np.dtype(f"u{expected.dtype.itemsize}")
        wrong = (expected.view(bits) != found.view(bits)) & ~(np.isnan(expected) & np.isnan(found))
    else:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = finite.max() if finite.size else 0.0
        near = np.isclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)
        wrong = ~near
    count = int(np.count_nonzero(wrong))
    return f"{count} of {wrong.size} elements differ" if count else None


def check(runner, case, threads, modules, folder):
    """Compares the results of all modules with those of the default schedule."""
    manifest = manifest_of(modules["default"], case["kernel"])
    inputs = write_inputs(manifest, case, folder)
    outputs = [arg["name"] for arg in manifest["args"] if arg.get("role") == "output"]
    results = {}
    for name, module in modules.items():
        command = ["run", module, "--threads", threads, *runner.variables(case), *inputs]
        for output in outputs:
            command += ["--output", f"{output}={folder / f'{name}_{output}.npy'}"]
        runner.run(f"run {name}", command)
        exact = not manifest_of(module, case["kernel"]).get("reassociated")
        results[name] = exact
    for name, exact in results.items():
        for output in outputs:
            if name != "default":
                expected = read_array(folder / f"default_{output}.npy")
                found = read_array(folder / f"{name}_{output}.npy")
                wrong = difference(expected, found, exact)
                if wrong:
                    raise Failure(f"WRONG: {output} of {name}: {wrong}")
    return "bits" if all(results.values()) else "near"


def bench(runner, case, threads, modules, seconds):
    """Times the modules interleaved; returns the result of each by its name."""
    command = ["bench", *modules.values(), "--json", "--roofline=off", "--threads", threads]
    command += ["--min-time", f"{seconds:g}", *runner.variables(case)]
    text, _ = runner.run("bench", command)
    names = {str(path): name for name, path in modules.items()}
    return {names[one["file"]]: one for one in json.loads(text)["results"]}


def measure(runner, case, threads, modules, row):
    """Fills the times and speeds of a row."""
    args = runner.args
    first = bench(runner, case, threads, modules, 0.01)
    row["ns"] = {name: one["median_ns"] for name, one in first.items()}
    passes = [first]
    if not args.quick:
        passes = []
        plain_ns = row["ns"]["plain"]
        kept = [
            name for name in modules
            if name in ("plain", "auto") or row["ns"][name] <= SLOW * plain_ns
        ]
        near = NEAR * goal_of(case, plain_ns)
        number_of_processes = PROCESSES if plain_ns < PLACED_NS else 1
        # `bench` shares its time among the variants, and a round takes at least one call of each.
        a_round = sum(row["ns"][name] for name in kept) * 1e-9
        seconds = min(args.rounds * a_round, MAX_SECONDS) / len(kept)
        seconds = max(seconds, args.min_time / number_of_processes)
        while len(passes) < 3 * number_of_processes:
            # Another order of the variants gives their arrays other addresses.
            at = len(passes) % len(kept)
            order = {name: modules[name] for name in kept[at:] + kept[:at]}
            passes.append(bench(runner, case, threads, order, seconds))
            whole = len(passes) % number_of_processes == 0
            same = row["same_code"] == "plain"
            if whole and (same or ratio(passes, "plain", "auto")[0] > near):
                break
    for name in passes[0]:
        row["ns"][name] = statistics.median(one[name]["median_ns"] for one in passes)
    row["rounds"] = sum(one["auto"]["rounds"] for one in passes)
    row["speed"], row["low"], row["high"] = ratio(passes, "plain", "auto")
    if row["same_code"] == "plain":
        row["speed"] = 1.0
    if "tuned" in passes[0]:
        row["of_tuned"] = ratio(passes, "tuned", "auto")[0]


def ratio(passes, above, below):
    """The median ratio of two variants' times over the processes, and its range.

    The range of a single process is between the ratios of the quartiles of its rounds.
    """
    ratios = [one[above]["median_ns"] / one[below]["median_ns"] for one in passes]
    if len(ratios) > 1:
        return statistics.median(ratios), min(ratios), max(ratios)
    top, bottom = passes[0][above], passes[0][below]
    low, high = top["q1_ns"] / bottom["q3_ns"], top["q3_ns"] / bottom["q1_ns"]
    return ratios[0], low, high


def sections_of(path, names):
    """The contents of sections of a 64-bit ELF file."""
    data = path.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, strings = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + at * size) for at in range(count)]
    base = headers[strings][4]
    found = {}
    for header in headers:
        start = base + header[0]
        name = data[start : data.index(0, start)].decode()
        if name in names:
            found[name] = data[header[4] : header[4] + header[5]]
    return found


def same_code(runner, case, schedules, modules, folder):
    """The first of `schedules` whose code is that of `auto`, or None."""
    size = len(sections_of(modules["auto"], [".text"])[".text"])
    objects = {}
    for name, schedule in schedules.items():
        if len(sections_of(modules[name], [".text"])[".text"]) != size:
            continue
        for key, value in (("auto", "auto"), (name, schedule)):
            if key not in objects:
                out = folder / f"{key}.o"
                runner.build(case, value, out, ["--module", "cliffs"])
                objects[key] = sections_of(out, [".text", ".rela.text", ".rodata"])
        if objects[name] == objects["auto"]:
            return name
    return None


def tune(runner, case, threads, folder):
    """Builds the best schedule that a search finds."""
    records = folder / f"tuned{threads}.jsonl"
    command = ["tune", HERE / case["file"], "--kernel", case["kernel"], "--records", records]
    command += ["--budget", runner.args.tune, "--threads", threads]
    runner.run("tune", [*command, *runner.defines(case), *runner.variables(case)])
    out = folder / f"tuned{threads}.so"
    runner.build(case, None, out, ["--records", records])
    return out


def goal_of(case, plain_ns):
    """The minimum speed of a row."""
    return SHORT_SPEED_GOAL if case["var"] and plain_ns < SHORT_NS else SPEED_GOAL


def misses_of(row):
    """The goals that a row misses."""
    misses = []
    if row["status"] != "ok":
        misses.append(row["status"])
    if "speed" in row:
        if row["speed"] < goal_of(row, row["ns"]["plain"]):
            misses.append("slower than plain")
        default = row["ns"].get("default")
        slow = default and default < goal_of(row, default) * row["ns"]["auto"]
        if slow and not row.get("same_code"):
            misses.append("slower than default")
    if row.get("of_tuned", 1.0) < TUNED_SPEED_GOAL:
        misses.append("slower than tuned")
    goal = VAR_COMPILE_GOAL if row["var"] else COMPILE_GOAL
    if row.get("compile_s", 0.0) > goal:
        misses.append("compile time")
    return misses


def compile_auto(runner, case, out):
    """CPU seconds of a build with `auto`: the minimum of three if the first misses its goal."""
    seconds = runner.build(case, "auto", out)
    goal = VAR_COMPILE_GOAL if case["var"] else COMPILE_GOAL
    for _ in range(2):
        if seconds > goal and not runner.args.quick and seconds < 5.0:
            seconds = min(seconds, runner.build(case, "auto", out))
    return seconds


def rows_of_case(runner, case, threads, folder):
    """Yields a row for each thread count of a kernel at one size."""
    args = runner.args
    common = {key: case[key] for key in ("kernel", "family", "size", "define", "var")}
    auto, default = folder / "auto.so", folder / "default.so"
    failed, compile_s = None, None
    try:
        compile_s = compile_auto(runner, case, auto)
    except Failure as failure:
        failed = str(failure)
    if args.compile_only:
        row = dict(common, threads=0, status=failed or "ok", target=args.target)
        if compile_s is not None:
            row["compile_s"] = compile_s
        yield row
        return
    for count in threads:
        row = dict(common, threads=count, status=failed or "ok", target=args.target)
        if failed is None:
            row["compile_s"] = compile_s
            try:
                plain = folder / f"plain{count}.so"
                plain_schedule = "plain" if count == 1 else "plain_parallel"
                runner.build(case, plain_schedule, plain)
                if not default.exists():
                    runner.build(case, "default", default)
                modules = {"plain": plain, "default": default, "auto": auto}
                if args.tune:
                    modules["tuned"] = tune(runner, case, count, folder)
                bytes_moved = number(manifest_of(auto, case["kernel"])["bytes"], case["var"])
                small = case["size"] == "small" or bytes_moved <= CHECK_BYTES
                row["checked"] = "no"
                if args.check == "all" or args.check == "some" and small:
                    row["checked"] = check(runner, case, count, modules, folder)
                row["same_code"] = None
                if not args.check_only:
                    schedules = {"plain": plain_schedule, "default": "default"}
                    row["same_code"] = same_code(runner, case, schedules, modules, folder)
                    measure(runner, case, count, modules, row)
            except Failure as failure:
                row["status"] = str(failure)
            except (OSError, ValueError, KeyError, StopIteration, MemoryError) as error:
                row["status"] = f"runner: {type(error).__name__}: {error}"
        yield row


def duration(nanoseconds):
    """A time with its unit."""
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if nanoseconds < 1000 * scale:
            return f"{nanoseconds / scale:.4g} {unit}"
    return f"{nanoseconds / 1e9:.4g} s"


HEADER = (
    f"{'kernel':24} {'size':5} {'t':1} {'plain':>9} {'default':>9} {'auto':>9} {'speed':>7}"
    f" {'interval':>14} {'compile':>8}  check misses"
)


def line_of(row):
    """The line of the table for a row."""
    times = row.get("ns", {})
    names = ("plain", "default", "auto")
    shown = [duration(times[name]) if name in times else "-" for name in names]
    speed = f"{row['speed']:.2f}x" if "speed" in row else "-"
    interval = f"{row['low']:.2f} to {row['high']:.2f}" if "speed" in row else "-"
    compiled = f"{row['compile_s']:.2f} s" if "compile_s" in row else "-"
    notes = [f"{row['of_tuned']:.2f}x of tuned"] if "of_tuned" in row else []
    notes += [f"same code as {row['same_code']}"] if row.get("same_code") else []
    note = f" ({', '.join(notes)})" if notes else ""
    return (
        f"{row['kernel']:24} {row['size']:5} {row['threads'] or '-':1} {shown[0]:>9} {shown[1]:>9}"
        f" {shown[2]:>9} {speed:>7} {interval:>14} {compiled:>8}  {row.get('checked', '-'):5}"
        f" {', '.join(misses_of(row))}{note}"
    )


def geometric_mean(values):
    """The geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))


def report(rows):
    """Prints the table, the means and the misses; returns whether all goals are reached."""
    print(HEADER)
    for row in rows:
        print(line_of(row))
    timed = [row for row in rows if "speed" in row]
    holds = True
    if timed:
        print("\ngeometric means of the speed of `auto` relative to plain")
        for family in sorted({row["family"] for row in timed}):
            speeds = [row["speed"] for row in timed if row["family"] == family]
            print(f"  {family:14} {geometric_mean(speeds):7.2f}x of {len(speeds)} rows")
        mean = geometric_mean([row["speed"] for row in timed])
        holds = mean >= MEAN_SPEED_GOAL
        print(f"  {'all':14} {mean:7.2f}x of {len(timed)} rows; the goal is {MEAN_SPEED_GOAL:g}x")
    tuned = [row["of_tuned"] for row in rows if "of_tuned" in row]
    if tuned:
        good = sum(one >= TUNED_SPEED_GOAL for one in tuned)
        print(f"{good} of {len(tuned)} rows reach {TUNED_SPEED_GOAL:g}x of the tuned schedule")
    compiled = sorted(row["compile_s"] for row in rows if "compile_s" in row)
    if compiled:
        middle = compiled[len(compiled) // 2]
        print(f"compile time of `auto`: median {middle:.2f} s, largest {compiled[-1]:.2f} s of CPU")
    missing = [row for row in rows if misses_of(row)]
    print(f"\n{len(missing)} of {len(rows)} rows miss a goal")
    for row in sorted(missing, key=lambda row: row.get("speed", 0.0)):
        print("  " + line_of(row))
    return holds and not missing


def cases_of(args):
    """The kernels that the options select, once for each size."""
    for entry in json.loads((HERE / "suite.json").read_text())[:: args.every]:
        if args.only and not re.search(args.only, entry["kernel"]):
            continue
        if args.family and entry["family"] not in args.family:
            continue
        for size in ("small", "large"):
            if args.sizes in (size, "both"):
                sizes = entry[size]
                yield {
                    "kernel": entry["kernel"], "file": entry["file"], "family": entry["family"],
                    "size": size, "define": sizes.get("define", {}), "var": sizes.get("var", {}),
                    "inputs": entry.get("inputs", {}),
                }


def key_of(row):
    """The key that identifies a row in later runs."""
    return (row["kernel"], row["size"], row["threads"], row["target"])


def arguments():
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tec = os.environ.get("TEC", str(ROOT / "target/release/tec"))
    parser.add_argument("--tec", default=tec, help="the compiler; $TEC or target/release/tec")
    parser.add_argument("--only", metavar="REGEX", help="kernels whose name matches")
    parser.add_argument("--family", action="append", help="kernels of a family (repeatable)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one kernel in N")
    parser.add_argument("--sizes", choices=["small", "large", "both"], default="both")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], choices=range(1, 65),
                        metavar="N", help="numbers of threads; 1 2 by default")
    parser.add_argument("--rounds", type=int, default=9, help="minimum rounds; 9 by default")
    parser.add_argument("--min-time", type=float, default=0.3, help="seconds for each schedule")
    parser.add_argument("--target", help="the target of all builds; native by default")
    parser.add_argument("--tune", metavar="BUDGET", help="also search, for example 20s a row")
    parser.add_argument("--check", choices=["none", "some", "all"], default="some",
                        help="compare the results; `some` omits arguments over 200 MB")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each process")
    parser.add_argument("--quick", action="store_true", help="at least 3 rounds of 10 ms, no more")
    parser.add_argument("--compile-only", action="store_true", help="only build with `auto`")
    parser.add_argument("--check-only", action="store_true", help="build and compare the results")
    parser.add_argument("--json", metavar="OUT", help="write a JSON line for each row")
    parser.add_argument("--resume", metavar="OUT", help="the same, and skip rows already there")
    parser.add_argument("--retry", action="store_true", help="with --resume: repeat failed rows")
    args = parser.parse_args()
    if args.check != "none" and not args.compile_only and not importlib.util.find_spec("numpy"):
        parser.error("comparing results needs NumPy: install it, or use `--check none`")
    return args


def earlier_rows(args):
    """The rows of the file that a run continues, the last one of each key."""
    if not args.resume or not os.path.exists(args.resume):
        return {}
    rows = {}
    with open(args.resume, encoding="utf-8") as lines:
        for line in lines:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # An incomplete line.
            rows[key_of(row)] = row
    timed = not (args.compile_only or args.check_only)

    def is_there(row):
        if row["status"] != "ok":
            return not args.retry
        return "speed" in row or not timed

    return {key: row for key, row in rows.items() if is_there(row)}


def seconds_of(budget):
    """Converts a time in the syntax of `tec tune` to seconds."""
    return float(budget.rstrip("smh")) * {"m": 60, "h": 3600}.get(budget[-1], 1)


def main():
    args = arguments()
    if not shutil.which(args.tec):
        sys.exit(f"no compiler at {args.tec}; `--tec PATH` names another one")
    if args.tune:
        args.limit += 2 * seconds_of(args.tune)
    rows = earlier_rows(args)
    out = None
    if args.json or args.resume:
        out = open(args.resume or args.json, "a" if args.resume else "w", encoding="utf-8")
        if args.resume and out.tell():
            out.write("\n")  # Ends an incomplete line.
    runner = Runner(args)
    cases = list(cases_of(args))
    shown = []
    wanted = [0] if args.compile_only else args.threads
    begin = time.monotonic()
    try:
        for at, case in enumerate(cases):
            row = dict(case, target=args.target)
            keys = {count: key_of(dict(row, threads=count)) for count in wanted}
            missing = [count for count in wanted if keys[count] not in rows]
            if missing:
                with tempfile.TemporaryDirectory(prefix="cliffs-") as folder:
                    for row in rows_of_case(runner, case, missing, pathlib.Path(folder)):
                        rows[key_of(row)] = row
                        if out:
                            out.write(json.dumps(row) + "\n")
                            out.flush()
                        passed = time.monotonic() - begin
                        head = f"[{at + 1}/{len(cases)} {passed:.0f} s]"
                        print(head, line_of(row), file=sys.stderr, flush=True)
            shown += [rows[key] for key in keys.values()]
    except KeyboardInterrupt:
        print("interrupted; --resume continues", file=sys.stderr)
    return 0 if report(shown) else 1


if __name__ == "__main__":
    sys.exit(main())
