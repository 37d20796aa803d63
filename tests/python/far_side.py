"""A far side of `tec --on` that fails or lies, in front of a true one.

    far_side.py TEC ACTION [NUMBER] [JSON]

It starts `TEC serve --stdio` and hands on what both sides say. `$FAR_SIDE_LOG` gets a line for each
message. ACTION:

    relay       nothing else
    cut N       ends in the middle of the N-th frame of the true far side, from 0
    cut-up N    ends after N frames of the near side
    kill N      kills the true far side after N of its frames
    hang N      says nothing more after N frames of the true far side
    hello - J   changes fields of the hello
    slow N      sends the outcome of each candidate N milliseconds later
    reply N J   the N-th frame of the true far side is this message
    once …      the rest of the line, but only the first time in this folder
"""

import hashlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import threading
import time

MAGIC = b"\x02tec serve\x03\r\n\x1a\n\0"


def read(stream, count):
    data = b""
    while len(data) < count:
        more = stream.read(count - len(data))
        if not more:
            return None
        data += more
    return data


def read_frame(stream):
    head = read(stream, 9)
    if head is None:
        return None
    payload = read(stream, struct.unpack("<I", head[:4])[0] + 1)
    return None if payload is None else (head[4], payload[:-1])


def frame_bytes(kind, payload):
    checksum = hashlib.sha256(bytes([kind]) + payload).digest()[:4]
    return struct.pack("<I", len(payload)) + bytes([kind]) + checksum + payload + b"\n"


def changed(value, changes):
    for key, change in changes.items():
        value[key] = changed(value[key], change) if isinstance(change, dict) else change
    return value


def main():
    tec, action, *rest = sys.argv[1:]
    rest = [word for word in rest if word not in ("tec", "serve", "--stdio")]
    if action == "once":
        try:
            pathlib.Path("far-side-ran").touch(exist_ok=False)
            action, *rest = rest
        except FileExistsError:
            action, rest = "relay", []
    number = int(rest[0]) if rest and rest[0] != "-" else 0
    change = json.loads(rest[1]) if len(rest) > 1 else None
    out, up = sys.stdout.buffer, sys.stdin.buffer
    far = subprocess.Popen([tec, "serve", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    log = open(os.environ["FAR_SIDE_LOG"], "a") if "FAR_SIDE_LOG" in os.environ else None

    def note(side, kind, payload):
        if log and kind == 1:
            print(side, payload.decode()[:100], file=log, flush=True)

    def upwards():
        count = 0
        while True:
            if action == "cut-up" and count == number:
                os._exit(0)
            frame = read_frame(up)
            if frame is None:
                far.stdin.close()
                return
            note("near", *frame)
            far.stdin.write(frame_bytes(*frame))
            far.stdin.flush()
            count += 1

    assert read(far.stdout, len(MAGIC)) == MAGIC
    out.write(MAGIC)
    threading.Thread(target=upwards, daemon=True).start()
    count = 0
    while True:
        frame = read_frame(far.stdout)
        if frame is None:
            break
        kind, payload = frame
        if kind == 3:
            # Signs of life depend on time.
            if action != "hang" or count < number:
                out.write(frame_bytes(kind, payload))
                out.flush()
            continue
        note("far", kind, payload)
        if action == "hello" and count == 0:
            payload = json.dumps(changed(json.loads(payload), change)).encode()
        if action == "reply" and count == number:
            payload = json.dumps(change).encode()
        if action == "slow" and payload.startswith(b'{"measured"'):
            time.sleep(number / 1000)
        if action == "hang" and count >= number:
            time.sleep(600)
        data = frame_bytes(kind, payload)
        if action == "cut" and count == number:
            out.write(data[: len(data) // 2])
            out.flush()
            os._exit(0)
        if action == "kill" and count == number:
            far.send_signal(signal.SIGKILL)
        out.write(data)
        out.flush()
        count += 1


main()
