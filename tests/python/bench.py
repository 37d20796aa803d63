"""Numbers that a change may make worse: time to compile, size of a module, cost of a call.

    python tests/python/bench.py target/release/tec
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def compile_times(tec, out, runs=20):
    """Milliseconds of `tec build samples/matmul.te` as a whole process."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([tec, "build", ROOT / "samples/matmul.te", "-o", out], check=True)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def python_calls(path):
    """Nanoseconds of a call from Python: with tensor objects made before, and with NumPy arrays."""
    import numpy as np
    import tvm_ffi

    function = tvm_ffi.load_module(str(path)).vector_add_var
    arrays = [np.ones(1, np.float32) for _ in range(3)]
    tensors = [tvm_ffi.from_dlpack(a) for a in arrays]
    for name, (a, b, c) in (("tvm_ffi tensors", tensors), ("NumPy arrays", arrays)):
        best = float("inf")
        for _ in range(20):
            start = time.perf_counter_ns()
            for _ in range(10000):
                function(a, b, c)
            best = min(best, (time.perf_counter_ns() - start) / 10000)
        print(f"  {'from Python, ' + name:34} {best:6.0f} ns")


def main():
    tec = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        matmul, add, program = folder / "matmul.so", folder / "add.so", folder / "call_cost"
        times = compile_times(tec, matmul)
        print("tec build samples/matmul.te")
        print(f"  {'whole process, median':34} {statistics.median(times):6.1f} ms   (least {min(times):.1f})")
        print(f"  {'size of matmul.so':34} {matmul.stat().st_size:6} bytes")
        subprocess.run([tec, "build", ROOT / "samples/vector_add_var.te", "-o", add], check=True)
        source = ROOT / "tests/python/call_cost.c"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", source, "-o", program, "-ldl"], check=True)
        print("one call, three tensors of one element", flush=True)
        subprocess.run([program, add], check=True)
        python_calls(add)


if __name__ == "__main__":
    main()
