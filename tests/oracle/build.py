"""Checks and builds many kernels as one file; drops and counts refused kernels and directives."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field

from .program import Kernel, Line

ROOT = pathlib.Path(__file__).resolve().parents[2]
ERROR = re.compile(r"^error\[(E\d+)\]: (.*)\n +--> [^\n]*?:(\d+):\d+$", re.M)
LIMIT = 300.0


def tec() -> str:
    """The compiler under test: $TEC, or the release build."""
    return os.environ.get("TEC") or str(ROOT / "target/release/tec")


@dataclass
class CompilerFailure:
    """A failure of the compiler: a panic, a signal, a timeout."""

    kernel: Kernel
    options: tuple[str, ...]
    detail: str


@dataclass
class Batch:
    """Kernels in one file. `refused` counts (directive, code), `dropped` kernels by code."""

    folder: pathlib.Path
    kernels: list[Kernel]
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: list[tuple[Kernel, str]] = field(default_factory=list)
    failures: list[CompilerFailure] = field(default_factory=list)

    @property
    def path(self) -> pathlib.Path:
        """The source file."""
        return self.folder / "oracle.te"

    def write(self) -> list[tuple[int, int]]:
        """Writes the file; returns for each line its kernel and line of the schedule, or -1."""
        lines: list[str] = []
        where: list[tuple[int, int]] = []
        for k, kernel in enumerate(self.kernels):
            source = kernel.lines()
            lines += source
            where += [(k, -1)] * len(source)
            for i, line in enumerate(kernel.schedule):
                if line.part:
                    lines.append(f"schedule {kernel.name}.part{i} for cpu {{ {line.part} }}")
                    where.append((k, i))
            lines.append(f"schedule {kernel.name}.s for cpu {{")
            lines += [f"    use part{i}" if x.part else f"    {x.text}"
                      for i, x in enumerate(kernel.schedule)] + ["}"]
            where += [(k, -1)] + [(k, i) for i in range(len(kernel.schedule))] + [(k, -1)]
        self.path.write_text("\n".join(lines) + "\n")
        return where

    def settle(self, command: list[str], options: tuple[str, ...]) -> bool:
        """Runs a command of `tec`, dropping refused parts, until it succeeds or nothing is left."""
        for _ in range(60):
            if not self.kernels:
                return False
            where = self.write()
            code, messages = run(command + [str(self.path), *options])
            if code == 0:
                return True
            errors = ERROR.findall(messages)
            if code != 1 or not errors:
                self.blame(command, options, code, messages)
                continue
            self._drop(errors, where)
        self.dropped += [(k, "endless") for k in self.kernels]
        self.kernels = []
        return False

    def _drop(self, errors: list[tuple[str, str, str]], where: list[tuple[int, int]]) -> None:
        gone: dict[int, str] = {}
        lines: dict[int, dict[int, str]] = {}
        for code, message, line in errors:
            k, i = where[int(line) - 1]
            if i < 0 and code.startswith("E03") and self.kernels[k].schedule:
                # The error is about the whole schedule, so its last statement is dropped.
                lines.setdefault(k, {}).setdefault(len(self.kernels[k].schedule) - 1, code)
            elif i < 0:
                gone.setdefault(k, f"{code} {message}")
            else:
                lines.setdefault(k, {}).setdefault(i, code)
        for k, bad in lines.items():
            kernel = self.kernels[k]
            for i, code in bad.items():
                self.refused[(kernel.schedule[i].directive, code)] += 1
            self.kernels[k] = kernel.with_schedule(without(kernel.schedule, set(bad)))
        for k in sorted(gone, reverse=True):
            self.dropped.append((self.kernels.pop(k), gone[k]))

    def blame(self, command: list[str], options: tuple[str, ...], code: int, text: str) -> None:
        """Finds and removes the kernels on which the compiler fails."""
        everything, found = self.kernels, False
        keep = []
        for kernel in everything:
            self.kernels = [kernel]
            self.write()
            alone, messages = run(command + [str(self.path), *options])
            if alone not in (0, 1) or alone == 1 and not ERROR.search(messages):
                detail = f"exit {alone}: {messages.strip()[-600:]}"
                self.failures.append(CompilerFailure(kernel, without_output(options), detail))
                found = True
            else:
                keep.append(kernel)
        if not found:
            detail = f"exit {code} for the whole file only: {text.strip()[-600:]}"
            self.failures.append(CompilerFailure(everything[0], without_output(options), detail))
            keep = keep[1:]
        self.kernels = keep


def without_output(options: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the options before `-o`."""
    return options[:options.index("-o")] if "-o" in options else options


def without(lines: tuple[Line, ...], bad: set[int]) -> tuple[Line, ...]:
    """Returns a schedule without some lines and the lines that depend on them."""
    lost: set[str] = set()
    keep = []
    for i, line in enumerate(lines):
        if i in bad or lost & set(line.needs):
            lost |= set(line.makes)
        else:
            keep.append(line)
    return tuple(keep)


def run(command: list[str], limit: float = LIMIT) -> tuple[int, str]:
    """Runs `tec`; returns its exit status (negative: a signal, -999: a timeout) and messages."""
    try:
        done = subprocess.run([tec(), *command], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return -999, f"no end after {limit:.0f} s"
    return done.returncode, done.stderr
