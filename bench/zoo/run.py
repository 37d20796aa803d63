#!/usr/bin/env python3
"""Exports networks of models.py to ONNX, compares `tec` with onnxruntime, and times both in turns.

  run.py --tec ../../target/release/tec                    all, one thread, a Markdown table
  run.py --tec … --only 'tv_*,hf_bart' --exporter new --rounds 15

README.md says what it needs.
"""

import argparse
import contextlib
import fnmatch
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--tec", help="the compiler")
parser.add_argument("--only", default="*", help="patterns of names, separated by commas")
parser.add_argument("--exporter", choices=["old", "new"], default="old")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--json", help="append the rows to this file")
parser.add_argument("--list", action="store_true", help="print the names, and end")
options = parser.parse_args()
os.environ["TEC_NUM_THREADS"] = str(options.threads)
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402
import torch  # noqa: E402
import tvm_ffi  # noqa: E402

from models import MODELS  # noqa: E402

# Differences in proportion to the largest magnitude of an output.
TOLERANCE = 2e-4
# Seconds that a round times each of both.
SHARE = 0.05


class Refused(Exception):
    """A step of another tool failed, so there is nothing to compare."""


@contextlib.contextmanager
def silence():
    """Hides what exporters print from Python and from C++: graphs and advice."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def export(name, path):
    """Writes the model; returns its inputs."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    with torch.no_grad(), silence():
        if options.exporter == "new":
            torch.onnx.export(model, inputs, path, dynamo=True, external_data=False, verbose=False)
        else:
            torch.onnx.export(model, inputs, path, dynamo=False, opset_version=17)
    return [value.numpy() for value in inputs]


def build(path):
    """Returns the function of the module, and the seconds of the build."""
    begin = time.perf_counter()
    target = path.with_suffix(".so")
    command = [options.tec, "build", path, "-o", target, "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    seconds = time.perf_counter() - begin
    manifest = json.loads(path.with_suffix(".json").read_text())
    module = tvm_ffi.load_module(str(target))
    return getattr(module, manifest["kernels"][0]["name"]), seconds


def difference(found, wanted):
    """The largest difference in proportion to the largest magnitude; 1 for other elements."""
    if wanted.dtype.kind in "iub":
        return float((found != wanted).any())
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(wanted)
    same = np.array_equal(found[~finite], wanted[~finite], equal_nan=True)
    if not same or not np.isfinite(found[finite]).all():
        return 1.0
    largest = np.abs(wanted[finite]).max(initial=0)
    return float(np.abs(found - wanted)[finite].max(initial=0) / max(largest, 1e-30))


def seconds_of(call):
    """The seconds of one call, by calls for about SHARE seconds."""
    begin, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - begin < SHARE:
        call()
        calls += 1
    return (time.perf_counter() - begin) / calls


def compare(name, folder):
    """A row about one network."""
    path = pathlib.Path(folder) / f"{name}.onnx"
    settings = ort.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = options.threads, 4
    try:
        inputs = export(name, str(path))
        session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        feeds = dict(zip((one.name for one in session.get_inputs()), inputs))
        wanted = [np.asarray(value) for value in session.run(None, feeds)]
    except Exception as error:  # Any tool's own.
        raise Refused(f"{type(error).__name__}: {str(error).splitlines()[0][:100]}") from None
    function, built = build(path)
    found = [np.empty_like(value) for value in wanted]
    arguments = [*list(inputs)[: len(feeds)], *found]
    function(*arguments)
    differs = max(difference(a, b) for a, b in zip(found, wanted))
    peer, own, ratios = [], [], []
    for _ in range(options.rounds):
        peer.append(seconds_of(lambda: session.run(None, feeds)))
        own.append(seconds_of(lambda: function(*arguments)))
        ratios.append(peer[-1] / own[-1])
    median = statistics.median
    return {
        "network": name, "exporter": options.exporter, "threads": options.threads,
        "difference": differs, "build_s": built, "onnxruntime_ms": median(peer) * 1e3,
        "tec_ms": median(own) * 1e3, "ratio": median(ratios),
    }


def main():
    patterns = options.only.split(",")
    names = [one for one in MODELS if any(fnmatch.fnmatch(one, own) for own in patterns)]
    if options.list:
        print("\n".join(names))
        return 0
    if not options.tec:
        parser.error("--tec is required")
    options.tec = os.path.abspath(options.tec)
    torch.set_num_threads(2)
    print("| network | difference | build, s | onnxruntime, ms | tec, ms | onnxruntime / tec |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    ratios, failed = [], 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = compare(name, folder)
            except Refused as refused:
                print(f"| {name} | refused by {refused} |", flush=True)
                continue
            except RuntimeError as error:
                failed += 1
                lines = [line.strip(" |") for line in str(error).splitlines()]
                print(f"| {name} | tec: {' '.join(filter(None, lines))} |", flush=True)
                continue
        ratios.append(row["ratio"])
        failed += row["difference"] > TOLERANCE
        print(
            f"| {name} | {row['difference']:.1e} | {row['build_s']:.1f} "
            f"| {row['onnxruntime_ms']:.3f} | {row['tec_ms']:.3f} | {row['ratio']:.2f} |",
            flush=True,
        )
        if options.json:
            with open(options.json, "a") as file:
                file.write(json.dumps(row) + "\n")
    if ratios:
        print(f"\ngeometric mean of {len(ratios)} ratios: {statistics.geometric_mean(ratios):.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
