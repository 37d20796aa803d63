"""Measures what a change may slow down or enlarge: compiles, modules, calls, kernels.

    python tests/python/bench.py target/release/tec

The cost of a call from Python needs `tvm_ffi`, which the virtual environment has. On a busy machine
the minimum is more accurate than the median.
"""

import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MATMUL = ROOT / "samples/matmul.te"

# The samples that `tec bench` measures, with their options.
SAMPLES = [
    ("matmul.te", ["-D", "n=256"]),
    ("vector_add.te", []),
    ("softmax.te", []),
    ("layer_norm.te", []),
    ("conv.te", []),
    ("batch_norm.te", []),
]

KERNEL = """kernel product{0}(n = 64) {{
    input A: float32[n, n]
    reduce k: 0..n
    output C[x: n, y: n] = sum(A[x, k] * A[k, y], axis=k)
}}
"""


def line(name, value, unit, more=""):
    print(f"  {name:34} {value:6} {unit}{more}", flush=True)


def process_times(command, runs):
    """Returns the wall times of a command in milliseconds, one for each run."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def compiling(tec, folder):
    module = folder / "matmul.so"
    times = process_times([tec, "build", MATMUL, "-o", module], 41)
    print("tec build samples/matmul.te")
    least = f"   (min {min(times):.1f}; goal: under 30)"
    line("whole process, median of 41", f"{statistics.median(times):.1f}", "ms", least)
    line("size of matmul.so", module.stat().st_size, "bytes", "   (goal: under 32768)")


def large_files(tec, folder):
    print("tec check of 10 MB")
    kernels, size = [], 0
    while size < 10_000_000:
        kernels.append(KERNEL.format(len(kernels)))
        size += len(kernels[-1])
    programs = {
        f"{len(kernels)} kernels": "".join(kernels),
        "comments": "# a comment\n" * (size // 12) + kernels[0],
    }
    for name, text in programs.items():
        source = folder / "large.te"
        source.write_text(text)
        line(name, f"{min(process_times([tec, 'check', source], 3)) / 1e3:.2f}", "s")


def calls_from_c(tec, folder):
    module, program = folder / "add.so", folder / "call_cost"
    subprocess.run([tec, "build", ROOT / "samples/vector_add_var.te", "-o", module], check=True)
    source = ROOT / "tests/python/call_cost.c"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", source, "-o", program, "-ldl"], check=True)
    print("one call from C, three tensors of one element (goal: under 15 ns)", flush=True)
    subprocess.run([program, module], check=True)
    return module


def calls_from_python(module):
    """Measures a call with existing tensor objects, and one with NumPy arrays."""
    if not importlib.util.find_spec("tvm_ffi"):
        print("one call from Python: skipped, tvm_ffi is not installed")
        return
    import numpy as np
    import tvm_ffi

    print("one call from Python, three tensors of one element")
    function = tvm_ffi.load_module(str(module)).vector_add_var
    arrays = [np.ones(1, np.float32) for _ in range(3)]
    tensors = [tvm_ffi.from_dlpack(a) for a in arrays]
    for name, (a, b, c) in (("tvm_ffi tensors", tensors), ("NumPy arrays", arrays)):
        each = []
        for _ in range(21):
            start = time.perf_counter_ns()
            for _ in range(10000):
                function(a, b, c)
            each.append((time.perf_counter_ns() - start) / 10000)
        line(name, f"{statistics.median(each):.0f}", "ns", f"   (min {min(each):.0f})")


def kernels(tec):
    for name, options in SAMPLES:
        print(f"tec bench samples/{name} {' '.join(options)}", flush=True)
        command = [tec, "bench", ROOT / "samples" / name, "--min-time", "0.2", *options]
        subprocess.run(command, check=True)


def main():
    tec = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        compiling(tec, folder)
        large_files(tec, folder)
        calls_from_python(calls_from_c(tec, folder))
    kernels(tec)


if __name__ == "__main__":
    main()
