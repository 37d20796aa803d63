"""A process on a machine of a cluster whose standard input and output are those of this program.

`dask_connection.py` and `ray_connection.py` make `Process` an actor of their engine. `relay` calls
its methods from here, so the bytes use the connections of the engine and no port is opened.

Every call returns within `WAIT` seconds, with or without a result. So an engine that loses this
program can drop the actor, and `Process.__del__` ends the process. If the actor's own process is
killed, the standard input of the process ends, and `tec serve` with it.
"""

import asyncio
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

# The most bytes in a call: the size of the pieces in which `tec` sends files.
PIECE_BYTES = 256 << 10
# The longest time of a call, in seconds.
WAIT = 2.0
# The time after which a call counts as lost, in seconds. `tec` gives up after 20 s of silence.
CALL_LIMIT = 60.0


class Process:
    """A process on a machine of the cluster, with bounded buffers.

    Reads stop while `PIECE_BYTES` wait, and a write is taken only if the earlier ones have left.
    """

    # Ray makes objects of a derived class without `__init__`.
    process: asyncio.subprocess.Process | None = None

    def __init__(self, words: list[str]) -> None:
        self.words = words

    async def start(self) -> None:
        """Starts the process in the home directory, as `ssh` does, in a session of its own."""
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *self.words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=PIECE_BYTES // 2,
            cwd=pathlib.Path.home(),
            start_new_session=True,
        )

    async def write(self, piece: bytes) -> bool:
        """Takes a piece for standard input, an empty one to close it; false: try again."""
        try:
            await asyncio.wait_for(self.process.stdin.drain(), WAIT)
        except asyncio.TimeoutError:
            return False
        if piece:
            self.process.stdin.write(piece)
        else:
            self.process.stdin.close()
        return True

    async def read(self, descriptor: int) -> bytes | None:
        """Returns a piece of standard output (1) or error (2), empty at its end; None: not yet."""
        stream = self.process.stdout if descriptor == 1 else self.process.stderr
        try:
            return await asyncio.wait_for(stream.read(PIECE_BYTES), WAIT)
        except asyncio.TimeoutError:
            return None

    async def wait(self) -> int | None:
        """Returns the exit status, 128 + N after signal N; None: it runs."""
        try:
            status = await asyncio.wait_for(self.process.wait(), WAIT)
        except asyncio.TimeoutError:
            return None
        return status if status >= 0 else 128 - status

    def __del__(self) -> None:
        if self.process is not None and self.process.returncode is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def own_output() -> int:
    """Returns a descriptor of standard output. What libraries print goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def relay(call: Callable[..., Any], output: int) -> int:
    """Carries bytes until the process ends, and returns its exit status.

    `call(name, *args)` calls a method of a started `Process`. It raises if the process is lost.
    """

    def copy_input() -> None:
        try:
            piece = b"start"
            while piece:
                piece = os.read(0, PIECE_BYTES)
                while not call("write", piece):
                    pass
        except Exception:
            pass  # The process has ended or is lost: the other calls say which.

    def copy_output(descriptor: int, to: int) -> None:
        piece = None
        while piece != b"":
            piece = call("read", descriptor)
            while piece:
                piece = piece[os.write(to, piece) :] or None

    def copy_errors() -> None:
        try:
            copy_output(2, 2)
        except Exception:
            pass  # `copy_output` of standard output fails, too.

    threading.Thread(target=copy_input, daemon=True).start()
    errors = threading.Thread(target=copy_errors, daemon=True)
    errors.start()
    copy_output(1, output)
    # A child of the process may keep standard error open.
    errors.join(WAIT)
    status = None
    while status is None:
        status = call("wait")
    return status


def main(connect: Callable[[], Callable[..., Any]]) -> None:
    """Connects, relays and exits with the status of the process; 255 for errors, as `ssh` does."""
    output = own_output()
    name = pathlib.Path(sys.argv[0]).name
    try:
        status = relay(connect(), output)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        sys.stderr.write(f"{name}: {lines[0]}\n")
        status = 255
    sys.stderr.flush()
    # The engine's threads and handlers may wait, and `tec` does not.
    os._exit(status)
