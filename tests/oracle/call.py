"""Calls modules as docs/ABI.md describes, in a child process with a time limit.

Every tensor lies between two inaccessible pages, next to one of them. The rest of its own pages
holds a pattern that the call must not change. A crash or a hang is an outcome of a call.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import os
import pickle
import select
import signal
import struct
import time
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from .exact import FLOATS
from .program import Kernel

PAGE = 4096
SLOW = 8.0  # seconds; calls of these programs should take milliseconds at most
HUGE = 1 << 24  # an extent that only empty tensors have
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

# DLPack: type codes of the element types.
CODES = {"float16": 2, "float32": 2, "float64": 2, "bfloat16": 4, "bool": 6}
C_SCALAR = {"float64": ctypes.c_double, "float32": ctypes.c_float, "float16": ctypes.c_uint16,
            "bfloat16": ctypes.c_uint16, "bool": ctypes.c_uint8}
C_SCALAR |= {f"{s}int{w}": getattr(ctypes, f"c_{s}int{w}") for s in ("", "u") for w in
             (8, 16, 32, 64)}


class DLTensor(ctypes.Structure):
    """The tensor of DLPack, as `NAME_dl` takes it."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


@dataclass
class Call:
    """One call of a kernel: its arguments in memory form, and the expected outputs."""

    kernel: Kernel
    sizes: dict[str, int]
    inputs: dict[str, np.ndarray]
    expected: list[np.ndarray] | None  # None: the checked entry must refuse it
    likes: list[np.ndarray]  # the outputs' shapes and types
    entry: str = "dl"
    place: str = "end"
    overflow: bool = False  # an index exceeds 64 bits: the call may be refused for it
    possible: bool = False  # only conditions on data keep an index in bounds
    what: str = ""  # the arguments in words, for messages
    fixed: Any = None  # run-time integers, kind and seed of the data
    how: Callable[[ctypes.CDLL, "Call"], "Outcome"] | None = None  # another way to call it
    # Judges the one output of a function, instead of comparing it with `expected`.
    judge: Callable[[Kernel, dict[str, np.ndarray], np.ndarray], str] | None = None
    packed: Any = None  # the prepacked input, and the manifest


@dataclass
class Outcome:
    """The outcome of a call: "equal", or a kind of finding with its details."""

    state: str
    detail: str = ""
    digest: bytes = b""
    plain: bytes = b""  # the digest with all NaNs replaced


class Guarded:
    """A copy of an array between inaccessible pages."""

    def __init__(self, data: np.ndarray, place: str) -> None:
        size = data.nbytes
        pages = (size + 256 + PAGE - 1) // PAGE
        self.length = (pages + 2) * PAGE
        self.base = LIBC.mmap(None, self.length, 3, 0x22, -1, 0)
        assert self.base not in (None, ctypes.c_void_p(-1).value), "mmap"
        self.start, self.end = self.base + PAGE, self.base + PAGE * (pages + 1)
        ctypes.memset(self.start, 0xA5, pages * PAGE)
        if place == "end":
            self.address = self.end - size
        else:
            self.address = self.start + (data.itemsize * 3 if place == "odd" else 0)
        self.like = data
        if size:
            ctypes.memmove(self.address, np.ascontiguousarray(data).ctypes.data, size)
        LIBC.mprotect(self.base, PAGE, 0)
        LIBC.mprotect(self.end, PAGE, 0)

    def array(self) -> np.ndarray:
        """Returns the current content."""
        raw = ctypes.string_at(self.address, self.like.nbytes)
        return np.frombuffer(raw, self.like.dtype).reshape(self.like.shape)

    def touched_around(self) -> bool:
        """Whether memory around the data was written."""
        before = ctypes.string_at(self.start, self.address - self.start)
        behind = self.address + self.like.nbytes
        after = ctypes.string_at(behind, self.end - behind)
        return before.strip(b"\xa5") != b"" or after.strip(b"\xa5") != b""

    def free(self) -> None:
        """Unmaps the pages."""
        LIBC.munmap(self.base, self.length)


def differences(t: str, expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Marks elements whose bits differ; NaNs are equal, as the language specifies no payload."""
    kind = f"uint{8 * expected.itemsize}"
    different = expected.view(kind) != got.view(kind)
    if t in FLOATS:
        different &= ~(is_nan(t, expected) & is_nan(t, got))
    return different


def is_nan(t: str, x: np.ndarray) -> np.ndarray:
    """Marks the NaNs among elements in memory form."""
    if t not in FLOATS:
        return np.zeros(x.shape, bool)
    return (x & 0x7FFF) > 0x7F80 if t == "bfloat16" else np.isnan(x)


def compare(kernel: Kernel, expected: list[np.ndarray], got: list[np.ndarray]) -> str:
    """Describes the first difference; empty if there is none."""
    for (name, t, _), want, have in zip(kernel.results(), expected, got):
        different = differences(t, want, have)
        if different.any():
            at = tuple(int(x) for x in np.argwhere(different)[0])
            return (f"{name}{list(at)}: expected {shown(t, want[at])}, got {shown(t, have[at])}; "
                    f"{int(different.sum())} of {different.size} differ")
    return ""


def verdict(call: Call, got: list[np.ndarray]) -> str:
    """Describes what is wrong with the outputs; empty if nothing is."""
    if call.judge:
        return call.judge(call.kernel, call.inputs, got[0])
    return compare(call.kernel, call.expected or [], got)


def shown(t: str, x: Any) -> str:
    """Formats an element with its bits."""
    bits = int(np.asarray(x).view(f"uint{8 * np.asarray(x).itemsize}"))
    value = (np.array([bits], np.uint32) << 16).view(np.float32)[0] if t == "bfloat16" else x
    return f"{value} ({bits:#x})"


def run_call(library: ctypes.CDLL, module: str, call: Call) -> Outcome:
    """Makes one call in this process."""
    kernel = call.kernel
    held: list[Any] = []
    guards: list[Guarded] = []
    args: list[Any] = []

    def tensor(t: str, data: np.ndarray) -> None:
        guard = Guarded(data, call.place)
        guards.append(guard)
        if call.entry == "raw":
            args.append(ctypes.c_void_p(guard.address))
            return
        shape = (ctypes.c_int64 * max(1, data.ndim))(*data.shape)
        code = CODES.get(t, 1 if t.startswith("u") else 0)
        held.append(shape)
        one = DLTensor(guard.address, 1, 0, data.ndim, code, 8 * data.itemsize, 1,
                       ctypes.addressof(shape), None, 0)
        held.append(one)
        args.append(ctypes.byref(one))

    for i in kernel.inputs:
        data = call.inputs[i.name]
        if i.shape is None:
            kind = C_SCALAR[i.type]
            args.append(kind(data.item() if i.type != "float16" else
                             int(data.view(np.uint16).item())))
        else:
            tensor(i.type, data)
    inputs = len(guards)
    shaped = [i for i in kernel.inputs if i.shape is not None]
    inouts = [at for at, i in enumerate(shaped) if i.inout]
    for (_, t, _), like in zip(kernel.outputs(), call.likes):
        canary = np.full(like.nbytes, 0xC3, np.uint8).view(like.dtype).reshape(like.shape) \
            if t != "bool" else np.full(like.shape, 0xC3, np.uint8).view(bool)
        tensor(t, canary)
    names = kernel.vars if call.entry == "raw" else kernel.own_vars()
    args += [ctypes.c_int64(call.sizes[v]) for v in names]
    function = getattr(library, kernel.name + ("_dl" if call.entry == "dl" else ""))
    status = function(*args)
    got = [guards[at].array() for at in inouts] + [g.array() for g in guards[inputs:]]
    around = [g.touched_around() for g in guards]
    written = [g.array().tobytes() != g.like.tobytes() for g in guards]
    changed = [at not in inouts and one for at, one in enumerate(written[:inputs])]
    for g in guards:
        g.free()
    if any(around):
        return Outcome("outside", f"memory beside argument {around.index(True)} was written")
    if any(changed):
        return Outcome("input", f"input {changed.index(True)} was modified")
    if call.expected is None:
        if status == 0:
            return Outcome("accepted", "the call must be refused", plain=plain_digest(kernel, got))
        return Outcome("outside", "refused, but a tensor was written") if any(written) else \
            Outcome("equal")
    if status != 0:
        last = getattr(library, f"{module}_last_error")
        last.restype = ctypes.c_char_p
        message = (last() or b"").decode()
        if call.overflow and "overflow" in message or call.possible and "index" in message:
            return Outcome("careful")
        # Empty tensors may have huge other extents, and temporaries too large for memory.
        memory = status == 1 or "memory" in message
        if memory and max(call.sizes.values(), default=0) >= HUGE:
            return Outcome("careful")
        return Outcome("refused", f"status {status}: {message}")
    difference = verdict(call, got)
    if difference:
        return Outcome("differs", difference)
    return Outcome("equal", digest=digest(got), plain=plain_digest(kernel, got))


def digest(arrays: list[np.ndarray]) -> bytes:
    """Returns a digest of arrays."""
    return hashlib.blake2b(b"".join(x.tobytes() for x in arrays), digest_size=8).digest()


def plain_digest(kernel: Kernel, outputs: list[np.ndarray]) -> bytes:
    """Returns a digest of outputs with all NaNs replaced."""
    return digest([without_nan(t, x) for (_, t, _), x in zip(kernel.results(), outputs)])


def without_nan(t: str, x: np.ndarray) -> np.ndarray:
    """Replaces all NaNs by zero."""
    return np.where(is_nan(t, x), x.dtype.type(0), x)


def run_calls(path: str, module: str, calls: list[Call], limit: float = 20.0,
              host: bool = False) -> list[Outcome]:
    """Makes the calls in a child process, with a new one after a call that ended it. With `host`,
    parallel loops run by `backwards`, in chunks from the last one to the first."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(calls):
        outcomes += _in_child(path, module, calls[len(outcomes):], limit, host)
    return outcomes


TASK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, TASK, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


@RUN
def backwards(task: Callable[..., int], data: int, n: int, _: int) -> int:
    """The host's `parallel_for`: chunks of 1 to 3 iterations, from the last to the first."""
    end, step = n, 1
    while end > 0:
        begin = max(0, end - step)
        if task(data, begin, end):
            return 1
        end, step = begin, step % 3 + 1
    return 0


def _in_child(path: str, module: str, calls: list[Call], limit: float,
              host: bool) -> list[Outcome]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(path, module, calls, writer, host)
    os.close(writer)
    outcomes: list[Outcome] = []
    buffer, why = b"", ""
    try:
        while len(outcomes) < len(calls):
            deadline = time.monotonic() + limit
            while len(buffer) < 4 or len(buffer) < 4 + struct.unpack_from("I", buffer)[0]:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([reader], [], [], left)[0]:
                    why = f"hangs: no result after {limit:.0f} s"
                    break
                more = os.read(reader, 1 << 20)
                if not more:
                    why = "ended"
                    break
                buffer += more
            if why:
                break
            size = struct.unpack_from("I", buffer)[0]
            outcomes.append(pickle.loads(buffer[4: 4 + size]))
            buffer = buffer[4 + size:]
    finally:
        os.close(reader)
        if why.startswith("hangs"):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if why:
        if why == "ended":
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            why = signal.Signals(number).name if number else f"exit {os.WEXITSTATUS(status)}"
        outcomes.append(Outcome("crash", why))
    return outcomes


def _child(path: str, module: str, calls: list[Call], writer: int, host: bool) -> None:
    """Runs the calls in the child; never returns."""
    try:
        faulthandler.disable()  # a crash is reported by the parent
        library = ctypes.CDLL(path)
        if host:
            getattr(library, f"{module}_set_parallel_for")(backwards, None)
        for call in calls:
            started = time.monotonic()
            outcome = call.how(library, call) if call.how else run_call(library, module, call)
            spent = time.monotonic() - started
            if spent > SLOW and outcome.state == "equal":
                outcome = Outcome("slow", f"{spent:.1f} s")
            frame = pickle.dumps(outcome)
            os.write(writer, struct.pack("I", len(frame)) + frame)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001: any failure is reported to the parent
        frame = pickle.dumps(Outcome("crash", f"{type(error).__name__}: {error}"))
        os.write(writer, struct.pack("I", len(frame)) + frame)
        os._exit(3)
