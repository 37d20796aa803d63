"""Why a compilation failed: the messages of `tec` as exceptions."""

from __future__ import annotations

import re
from dataclasses import dataclass


class TecError(RuntimeError):
    """Any failure of this package."""


class UsageError(TecError):
    """An option that `tec` does not have, or a combination that it refuses."""


class CompilerBug(TecError):
    """A bug of `tec`, not of the program; please report it with the text."""


@dataclass(frozen=True)
class Diagnostic:
    """One error of a program."""

    #: The code, "E0201"; `tec explain-error E0201` explains it.
    code: str
    #: The first line of the message.
    message: str
    #: The file, or None if the program was given as a text or the error has no place.
    file: str | None
    #: The line, from 1, or None if the error has no place.
    line: int | None
    #: The column in characters, from 1.
    column: int | None
    #: The whole message, with the line of the program, notes and help.
    text: str


class CompileError(TecError):
    """A program that does not compile.

    `diagnostics` has all errors; `code`, `message`, `file`, `line` and `column` are those of the
    first one.
    """

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(text)
        self.diagnostics = diagnostics
        first = diagnostics[0]
        self.code = first.code
        self.message = first.message
        self.file = first.file
        self.line = first.line
        self.column = first.column


_HEAD = re.compile(r"^error\[(E\d{4})\]: (.*)$")
_PLACE = re.compile(r"^ *--> (.*):(\d+):(\d+)$")


def diagnostics_of(messages: str, unnamed: str | None) -> tuple[Diagnostic, ...]:
    """The errors in the messages of `tec`. `unnamed` is a file that the user does not know."""
    blocks: list[list[str]] = []
    for line in messages.splitlines():
        if _HEAD.match(line):
            blocks.append([])
        elif re.match(r"^(warning|note|\d+ errors)\b", line):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
    found = []
    for block in blocks:
        head = _HEAD.match(block[0])
        if head is None:
            continue
        places = (_PLACE.match(line) for line in block[1:])
        place = next((place for place in places if place), None)
        file = place[1] if place else None
        found.append(
            Diagnostic(
                code=head[1],
                message=head[2],
                file=None if file == unnamed else file,
                line=int(place[2]) if place else None,
                column=int(place[3]) if place else None,
                text="\n".join(block).replace(unnamed or "\0", "<text>"),
            )
        )
    return tuple(found)


def error_of(status: int, messages: str, unnamed: str | None) -> TecError:
    """The exception for a run of `tec` that failed."""
    diagnostics = diagnostics_of(messages, unnamed)
    if unnamed is not None:
        messages = messages.replace(unnamed, "<text>")
    messages = messages.strip()
    if diagnostics:
        return CompileError(messages, diagnostics)
    if status == 2:
        return UsageError(messages.removeprefix("error: ").split("\n\nFor more information")[0])
    if status == 101:
        return CompilerBug(messages)
    return TecError(f"tec ended with status {status}: {messages}")
