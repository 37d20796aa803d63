"""Shrinks a program with a finding: drops directives and stages, and replaces expressions and
extents by smaller ones, as long as the finding is of the same kind."""

from __future__ import annotations

import pathlib
import tempfile
from dataclasses import dataclass, replace
from typing import Callable, Iterator

from . import build
from .build import Batch
from .call import Call, run_calls
from .generate import needed
from .program import E, Kernel, Reduction, Stage

Fixed = tuple[dict[str, int], str, int]


@dataclass
class Shrinker:
    """A finding, and the call that reproduces it."""

    options: tuple[str, ...]
    kind: str
    entry: str
    place: str
    make: Callable[[Kernel, Fixed], Call]
    budget: int = 250
    detail: str = ""

    def found(self, kernel: Kernel, fixed: Fixed) -> bool:
        """Whether the program has the same kind of finding."""
        self.budget -= 1
        with tempfile.TemporaryDirectory() as folder:
            batch = Batch(pathlib.Path(folder), [kernel])
            batch.write()
            out = pathlib.Path(folder) / "o.so"
            status, text = build.run(["build", str(batch.path), *self.options, "-o", str(out),
                                      "--no-sidecars"], 30)
            if self.kind == "compiler":
                self.detail = text.strip()[-400:]
                return status not in (0, 1, 2)
            if status != 0:
                return False
            try:
                call = self.make(kernel, fixed)
            except Exception:  # noqa: BLE001: the program is invalid
                return False
            call.entry, call.place = self.entry, self.place
            outcome = run_calls(str(out), "o", [call], 10)[0]
        if outcome.state == self.kind:
            self.detail = outcome.detail
        return outcome.state == self.kind

    def shrink(self, kernel: Kernel, fixed: Fixed) -> tuple[Kernel, Fixed]:
        """Returns the smallest program found within the budget."""
        better = True
        while better and self.budget > 0:
            better = False
            for smaller, call in self.candidates(kernel, fixed):
                if self.budget <= 0:
                    break
                if self.found(smaller, call):
                    kernel, fixed, better = smaller, call, True
                    break
        return kernel, fixed

    def candidates(self, kernel: Kernel, fixed: Fixed) -> Iterator[tuple[Kernel, Fixed]]:
        """Yields smaller programs, the largest steps first."""
        lines = kernel.schedule
        if len(lines) > 1:
            yield kernel.with_schedule(()), fixed
        for i in reversed(range(len(lines))):
            yield kernel.with_schedule(build.without(lines, {i})), fixed
        for stages in fewer(kernel.stages):
            yield trimmed(replace(kernel, stages=stages)), fixed
        sizes, kind, seed = fixed
        if kind == "wild":
            yield kernel, (sizes, "tame", seed)
        for name, n in sizes.items():
            for smaller in sorted({0, 1, 2, 3, n // 2, n - 1}):
                if 0 <= smaller < n:
                    yield kernel, (sizes | {name: smaller}, kind, seed)
        # Another body is no longer the function that is judged.
        for at, stage in enumerate(() if kernel.function else kernel.stages):
            for body in simpler_bodies(stage.body):
                stages = list(kernel.stages)
                stages[at] = replace(stage, body=body)
                yield trimmed(replace(kernel, stages=tuple(needed(stages)))), fixed


def trimmed(kernel: Kernel) -> Kernel:
    """Returns a kernel without unused inputs, axes, integers and reducers."""
    used = {e.value for s in kernel.stages for x in s.expressions() for e in x.walk()}
    axes = {a for s in kernel.stages if isinstance(s.body, Reduction) for a in s.body.axes}
    fns = {s.body.fn for s in kernel.stages if isinstance(s.body, Reduction)}
    updated = {s.name for s in kernel.stages if s.offsets is not None}
    inputs = tuple(i for i in kernel.inputs if i.name in used | updated
                   and (i.name in updated or not i.inout))
    reduces = tuple(r for r in kernel.reduces if r[0] in axes)
    words = used | {e.value for s in kernel.stages for _, x in s.axes for e in x.walk()}
    words |= {e.value for r in reduces for x in r[1:] for e in x.walk()}
    words |= {e.value for i in inputs for x in i.shape or () for e in x.walk()}
    return replace(kernel, inputs=inputs, reduces=reduces,
                   vars=tuple(v for v in kernel.vars if v in words),
                   reducers=tuple(r for r in kernel.reducers if r.name in fns))


def fewer(stages: tuple[Stage, ...]) -> Iterator[tuple[Stage, ...]]:
    """Yields kernels with one stage as the only output."""
    for stage in stages:
        alone = [replace(s, output=s is stage) for s in stages[: stages.index(stage) + 1]]
        kept = tuple(needed(alone))
        if len(kept) < len(stages):
            yield kept


def simpler_bodies(body: E | Reduction) -> Iterator[E | Reduction]:
    """Yields bodies with one expression replaced by a part of it or a constant."""
    if isinstance(body, E):
        yield from simpler(body)
        return
    if body.where is not None:
        yield replace(body, where=None)
    if body.init is not None:
        yield replace(body, init=None)
    for i, term in enumerate(body.terms):
        for less in simpler(term):
            yield replace(body, terms=body.terms[:i] + (less,) + body.terms[i + 1:])


def simpler(e: E) -> Iterator[E]:
    """Yields smaller expressions of the same type."""
    if not e.args:
        return
    for part in e.walk():
        if part is not e and part.type == e.type and part.op not in ("bare",):
            yield part
    if e.type not in ("bool", "index") and e.op != "read":
        yield E("literal", e.type, (), "1.0" if "float" in e.type else 1)
    if e.op == "read":
        return
    for i, arg in enumerate(e.args):
        for less in simpler(arg):
            yield replace(e, args=e.args[:i] + (less,) + e.args[i + 1:])
