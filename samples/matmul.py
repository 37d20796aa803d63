"""Calls the matrix product of matmul.te from Python: checks it against NumPy and times both.

tec build samples/matmul.te --schedule fast -o target/matmul.so
python samples/matmul.py target/matmul.so
"""

import os
import sys
import time

import numpy as np
import tvm_ffi


def best_time(call, seconds=0.5):
    """The shortest of as many calls as fit into `seconds`, at least one."""
    times = []
    while sum(times) < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    path = os.path.abspath(sys.argv[1])  # `load_module` searches a bare name in the library path.
    module = tvm_ffi.load_module(path)
    n = 1024
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    c = np.empty((n, n), dtype=np.float32)

    module.matmul(a, b, c)

    exact = a.astype(np.float64) @ b.astype(np.float64)
    # The error bound of a sum of n rounded terms, whatever their order.
    bound = n * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b))
    error = np.abs(c - exact)
    if not (error <= bound).all():
        sys.exit(f"wrong: error up to {error.max():.3g}, allowed there {bound.min():.3g}")

    print(f"{path}: {os.path.getsize(path)} bytes")
    print(f"matmul {n}x{n}x{n} float32, largest error {error.max():.2g}: correct")
    work = 2 * n**3 / 1e9
    print(f"  tec    {work / best_time(lambda: module.matmul(a, b, c)):8.2f} GFLOP/s")
    print(f"  NumPy  {work / best_time(lambda: np.matmul(a, b, out=c)):8.2f} GFLOP/s")


if __name__ == "__main__":
    main()
