"""The runner: `python -m tests.oracle N SEED` prints a table of what agreed.

A batch of programs is one file. It is built with the default and its own schedules for each target,
called with guarded buffers, and compared bit by bit. The exit status is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from . import build, functions, packed, templates
from .build import Batch
from .call import Call, plain_digest, run_calls
from .evaluate import Evaluator, Refused, Rules
from .exact import MEMORY, from_memory, to_memory
from .generate import arguments, tensor
from .program import Kernel
from .shrink import Fixed, Shrinker

TARGETS = ("x86-64", "x86-avx2", "x86-avx512")
BATCH = 40
Made = dict[tuple[str, bool], tuple[Call, set[bytes]]]
NAN_NOTES = bool(os.environ.get("ORACLE_NAN"))
CALLS = 2
# The most elements of a tensor or a reduction that the evaluator runs in good time.
SMALL = 30_000


@dataclass
class Finding:
    """A call whose outcome differs from the specification."""

    kernel: Kernel
    options: tuple[str, ...]
    kind: str
    detail: str
    what: str
    seed: str
    call: tuple[str, str, object] | None = None
    judge: bool | None = None  # overrides `--fp-contract` of the options in the evaluation

    def shrunk(self) -> "Finding":
        """The same finding in a smaller program."""
        entry, place, fixed = self.call or ("dl", "end", ({}, "tame", 0))
        contract = "fast" in self.options if self.judge is None else self.judge

        def make(kernel: Kernel, fixed: Fixed) -> Call:
            return make_calls(kernel, random.Random(0), contract, fixed=fixed)

        shrinker = Shrinker(self.options, self.kind, entry, place, make)
        kernel, fixed = shrinker.shrink(self.kernel, fixed)
        sizes, kind, seed = fixed
        what = f"{entry} {place} {sizes} data={kind}:{seed}" if self.call else ""
        return Finding(kernel, self.options, self.kind, shrinker.detail or self.detail, what,
                       self.seed, self.call)

    def __str__(self) -> str:
        lines = [f"=== {self.kind} ({self.seed}): tec {' '.join(self.options)}",
                 *self.kernel.lines(), f"schedule {self.kernel.name}.s for cpu {{"]
        lines += [f"    {x.text}" + (f"  # {x.part}" if x.part else "")
                  for x in self.kernel.schedule] + ["}"]
        return "\n".join(lines + [f"call: {self.what}", f"finding: {self.detail}", ""])


@dataclass
class Tally:
    """The counts and findings of a run."""

    programs: int = 0
    modules: int = 0
    calls: int = 0
    refused_calls: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    equal: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    nan_bits: int = 0
    careful: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Adds another tally to this one."""
        for name in ("programs", "modules", "calls", "refused_calls", "nan_bits", "careful"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("tried", "accepted", "equal", "refused", "features", "dropped"):
            getattr(self, name).update(getattr(other, name))
        self.findings += other.findings


@dataclass(frozen=True)
class Variant:
    """A way to build a file."""

    target: str
    schedule: str
    contract: bool
    opt: int

    def options(self) -> tuple[str, ...]:
        """The options of `tec build`."""
        return ("--target", self.target, "--schedule", self.schedule, "--fp-contract",
                "fast" if self.contract else "off", "--opt", str(self.opt))


def targets() -> list[str]:
    """The targets that this machine runs, `x86-avx512` with the CPU's features."""
    flags = set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split())
            break
    have = ["x86-64"]
    have += ["x86-avx2"] if {"avx2", "fma", "f16c"} <= flags else []
    if {f"avx512{x}" for x in ("f", "bw", "cd", "dq", "vl")} <= flags:
        more = "+vnni" if "avx512_vnni" in flags else ""
        more += "+bf16" if "avx512_bf16" in flags else ""
        have.append("x86-avx512" + more)
    return have


def make_calls(kernel: Kernel, rng: random.Random, contract: bool, rules: Rules | None = None,
               fixed: tuple[dict[str, int], str, int] | None = None) -> Call:
    """Returns a call with random arguments and its expected outcome."""
    drawn = []
    while not drawn or len(drawn) < 20 and not fixed and drawn[-1][0] > SMALL:
        call = fixed or arguments(kernel, rng)
        evaluator = Evaluator(kernel, rules or Rules(contract))
        evaluator.values.update({v: np.array(n, np.int64) for v, n in call[0].items()})
        drawn.append((volume(kernel, evaluator), len(drawn), call, evaluator))
    _, _, (sizes, kind, seed), evaluator = min(drawn, key=lambda one: one[:2])
    data = np.random.default_rng(seed)
    memory = {}
    for i in kernel.inputs:
        shape = evaluator.extents(i.shape) if i.shape is not None else ()
        memory[i.name] = tensor(data, i.type, shape, kind)
        evaluator.values[i.name] = from_memory(i.type, memory[i.name])
    what = ", ".join(f"{v}={n}" for v, n in sizes.items()) + f" data={kind}:{seed}"
    try:
        if not kernel.function:
            evaluator.run()
        else:
            shape = evaluator.extents([x for _, x in kernel.stages[0].axes])
            evaluator.values["c"] = np.zeros(shape, np.float32)
        expected = None if evaluator.outside else \
            [to_memory(t, evaluator.values[n]) for n, t, _ in kernel.results()]
    except Refused:
        expected = None
    likes = [np.zeros([max(0, int(evaluator.evaluate(x, {}))) for x in shape], MEMORY[t])
             for _, t, shape in kernel.outputs()]
    return Call(kernel, sizes, memory, expected, likes, overflow=evaluator.overflow, what=what,
                judge=functions.judge if kernel.function else None,
                fixed=(sizes, kind, seed), possible=evaluator.possible)


def without_unneeded_reads(call: Call, contract: bool) -> set[bytes]:
    """Returns the `plain_digest`s of the outputs for several values of out-of-bounds reads: one if
    no output depends on them, none if the call must be refused for another reason."""
    digests = set()
    for filler in (None, 0, 1, 77):
        sizes, _, _ = call.fixed
        evaluator = Evaluator(call.kernel, Rules(contract), filler=filler)
        evaluator.values.update({v: np.array(n, np.int64) for v, n in sizes.items()})
        for i in call.kernel.inputs:
            evaluator.values[i.name] = from_memory(i.type, call.inputs[i.name])
        try:
            if not evaluator.keeps_promises():
                return set()
            evaluator.run()
        except Refused:
            return set()
        digests.add(plain_digest(call.kernel, [to_memory(t, evaluator.values[n])
                                               for n, t, _ in call.kernel.results()]))
    return digests


def volume(kernel: Kernel, evaluator: Evaluator) -> int:
    """Returns the size of the largest tensor or reduction; if a call must be refused, of the ones
    before the refusal: its inputs are made all the same."""
    bounds = {n: high for n, _, high in kernel.reduces}
    shapes = [i.shape for i in kernel.inputs if i.shape is not None]
    for s in kernel.stages:
        shapes.append(tuple(x for _, x in s.axes))
        shapes.append(shapes[-1] + tuple(bounds[a] for a in getattr(s.body, "axes", ())))
    largest = 0
    try:
        for shape in shapes:
            largest = max(largest, math.prod(evaluator.extents(shape)))
    except Refused:
        pass
    return largest


def variants(rng: random.Random, have: list[str]) -> list[Variant]:
    """Returns random ways to build for each target: schedule, contraction, optimization."""
    out = []
    for target in have:
        contract = rng.random() < (0.3 if target == "x86-64" else 0.75)
        opt = 3 if rng.random() < 0.75 else rng.choice((0, 1, 2))
        out.append(Variant(target, "s", contract, opt))
        if rng.random() < 0.5:
            out.append(Variant(target, "default", rng.random() < 0.7, rng.choice((0, 3, 3))))
    return out


def run_batch(first: int, count: int, seed: int, have: list[str], auto: bool = False) -> Tally:
    """Builds, calls and compares a batch of programs."""
    tally = Tally(programs=count)
    kernels = []
    for number in range(first, first + count):
        rng = random.Random(seed * 1_000_003 + number)
        kernel, lines = templates.program(rng, f"k{number}")
        kernels.append(kernel.with_schedule(lines))
    for kernel in kernels:
        tally.tried.update({x.directive for x in kernel.schedule})
    rng = random.Random(seed * 7_000_003 + first)
    with tempfile.TemporaryDirectory() as folder:
        batch = Batch(pathlib.Path(folder), kernels)
        batch.settle(["check"], ("--target", have[-1]))
        made: Made = {}
        agreed: dict[str, bool] = {}
        for number, variant in enumerate(variants(rng, have)):
            run_variant(batch, variant, number, made, agreed, tally, rng, f"seed {seed}")
        if auto and first // BATCH % 2 == 0 and batch.kernels:
            run_auto(batch, rng.choice(batch.kernels), made, tally, rng, f"seed {seed}", have)
        run_prepacked(batch, variants(rng, have)[0], made, agreed, tally, rng, f"seed {seed}")
        for kernel in batch.kernels:
            used = {x.directive for x in kernel.schedule}
            tally.accepted.update(used)
            if agreed.get(kernel.name):
                tally.equal.update(used)
        tally.refused.update(batch.refused)
        tally.dropped.update(why.split(":")[0] for _, why in batch.dropped)
        for failure in batch.failures:
            tally.findings.append(Finding(failure.kernel, failure.options, "compiler",
                                          failure.detail, "", f"seed {seed}"))
    return tally


def run_variant(batch: Batch, variant: Variant, number: int,
                made: Made, agreed: dict[str, bool],
                tally: Tally, rng: random.Random, seed: str) -> None:
    """Builds the file in one way and makes the calls."""
    out = batch.folder / f"v{number}.so"
    options = variant.options()
    if not batch.settle(["build"], (*options, "-o", str(out), "--module", "o", "--no-sidecars")):
        return
    tally.modules += 1
    calls = []
    for kernel in batch.kernels:
        for turn in range(CALLS):
            key = (f"{kernel.name}/{turn}", variant.contract)
            if key not in made:
                source = random.Random(f"{seed} {kernel.name} {turn}")
                made[key] = (make_calls(kernel, source, variant.contract), set())
            call = made[key][0]
            call.kernel = kernel
            # The raw entry checks nothing, so it gets only calls that the checked one accepts.
            call.entry = "dl" if checked_only(call) or rng.random() < 0.7 else "raw"
            call.place = rng.choice(("end", "end", "start", "odd"))
            calls.append((key, call))
    outcomes = run_calls(str(out), "o", [c for _, c in calls], host=rng.random() < 0.4)
    for (key, call), outcome in zip(calls, outcomes):
        tally.calls += 1
        name = call.kernel.name
        if outcome.state == "careful" or outcome.state == "accepted" and \
                without_unneeded_reads(call, variant.contract) == {outcome.plain}:
            tally.careful += 1
            continue
        if outcome.state == "equal":
            agreed.setdefault(name, True)
            tally.refused_calls += call.expected is None
            if call.kernel.function and call.expected is not None:
                first = made.setdefault((key[0], True), (call, set()))[1]
                plain = {x for x in first if x.startswith(b"plain")}
                first.add(b"plain" + outcome.plain)
                if plain and b"plain" + outcome.plain not in plain:
                    tally.findings.append(Finding(call.kernel, options, "other bits",
                                                  "than in another module", call.what, seed,
                                                  (call.entry, call.place, call.fixed)))
            elif outcome.digest and not call.kernel.reassociate:
                made[key][1].add(outcome.digest)
                if len(made[key][1]) == 2:
                    tally.nan_bits += 1
                    if NAN_NOTES:
                        tally.findings.append(
                            Finding(call.kernel, options, "nan", "other bits of NaN", call.what,
                                    seed, (call.entry, call.place, call.fixed)))
            continue
        agreed[name] = False
        tally.findings.append(Finding(call.kernel, options, outcome.state, outcome.detail,
                                      f"{call.entry} {call.place} {call.what}", seed,
                                      (call.entry, call.place, call.fixed)))


def run_auto(batch: Batch, kernel: Kernel, made: Made, tally: Tally, rng: random.Random,
             seed: str, have: list[str]) -> None:
    """Builds and calls one kernel with its automatic schedule; only one, since it is slow."""
    alone = Batch(batch.folder, [kernel])
    agreed: dict[str, bool] = {}
    variant = Variant(rng.choice(have), "auto", True, 3)
    tally.tried["(auto)"] += 1
    run_variant(alone, variant, 99, made, agreed, tally, rng, seed)
    tally.accepted["(auto)"] += len(alone.kernels)
    tally.equal["(auto)"] += sum(agreed.values())
    batch.failures += alone.failures


def checked_only(call: Call) -> bool:
    """Whether the call may have to be refused, so that only the checked entry may get it."""
    return call.expected is None or call.overflow or call.possible


def run_prepacked(batch: Batch, variant: Variant, made: Made, agreed: dict[str, bool],
                  tally: Tally, rng: random.Random, seed: str) -> None:
    """Builds the file with prepacked inputs and calls both functions of each kernel."""
    out = batch.folder / "packed.so"
    variant = Variant(rng.choice(targets()), "s", variant.contract, 3)
    tally.tried["prepack"] += len(packed.candidates(batch.kernels))
    wanted = packed.prepack(batch, variant.options(), out)
    if not wanted:
        return
    tally.modules += 1
    functions = packed.manifest(out)
    calls = []
    for kernel in batch.kernels:
        made_of = made.get((f"{kernel.name}/0", variant.contract))
        if kernel.name in wanted and made_of and not checked_only(made_of[0]):
            calls.append(replace(made_of[0], kernel=kernel, entry="prepacked", place="end",
                                 how=packed.run_packed, packed=(wanted[kernel.name], functions)))
    for call, outcome in zip(calls, run_calls(str(out), "o", calls)):
        tally.calls += 1
        tally.accepted["prepack"] += 1
        tally.equal["prepack"] += outcome.state == "equal"
        if outcome.state != "equal":
            agreed[call.kernel.name] = False
            options = (*variant.options(), "--prepack", call.packed[0])
            tally.findings.append(Finding(call.kernel, options, "prepacked", outcome.detail,
                                          call.what, seed, ("raw", "end", call.fixed)))


def work(job: tuple[int, int, int, list[str], bool]) -> Tally:
    """Runs a batch in a worker process."""
    return run_batch(*job)


def table(tally: Tally) -> str:
    """Formats the table of directives, and the totals."""
    lines = [f"{'directive':24}{'tried':>8}{'accepted':>10}{'bit-equal':>11}"]
    for name in sorted(tally.tried):
        lines.append(f"{name:24}{tally.tried[name]:8}{tally.accepted[name]:10}"
                     f"{tally.equal[name]:11}")
    lines.append(f"{tally.programs} programs, {tally.modules} modules, {tally.calls} calls; "
                 f"{tally.refused_calls} correctly refused, "
                 f"{tally.careful} with either outcome (an index of more than 64 bits, behind a "
                 "condition on data, or of a read that no output needs); "
                 f"{sum(tally.dropped.values())} programs refused {dict(tally.dropped)}; "
                 f"{tally.nan_bits} with different NaN bits; {len(tally.findings)} findings")
    return "\n".join(lines)


def main() -> int:
    """Runs all batches and prints the findings and the table."""
    parser = argparse.ArgumentParser(prog="tests.oracle", description=__doc__)
    parser.add_argument("programs", type=int, nargs="?", default=20_000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", type=int, default=20, help="findings to print")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    parser.add_argument("--no-auto", dest="auto", action="store_false",
                        help="no automatic schedules, which are slow in a debug build")
    parser.add_argument("--refusals", action="store_true", help="print the refusals by error code")
    options = parser.parse_args()
    have = targets()
    for target in TARGETS:
        if not any(x.startswith(target) for x in have):
            print(f"skipped: {target}, which this CPU does not run")
    os.environ.setdefault("TEC_NUM_THREADS", "3")
    started = time.monotonic()
    total = Tally()
    shown: set[str] = set()
    end = options.first + options.programs
    jobs = [(i, min(BATCH, end - i), options.seed, have, options.auto)
            for i in range(options.first, end, BATCH)]
    with multiprocessing.Pool(options.jobs, maxtasksperchild=20) as pool:
        for tally in pool.imap(work, jobs):
            total.add(tally)
            for finding in tally.findings:
                if len(shown) < options.show and finding.kernel.name not in shown:
                    shown.add(finding.kernel.name)
                    print(finding.shrunk() if options.shrink else finding, flush=True)
    print(table(total))
    if options.refusals:
        for (name, code), count in sorted(total.refused.items()):
            print(f"    {name:24}{code}{count:8}")
    print(f"{time.monotonic() - started:.0f} s; tec: {build.tec()}")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
