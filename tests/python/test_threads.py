"""Tests parallel loops in a process that has its own threads and forks children. The test runs
this file as that process, with the path of a module."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import tvm_ffi


def has_workers(expected):
    for _ in range(1000):  # A new thread sets its name only when it runs.
        names = []
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/comm") as file:
                names.append(file.read())
        if names.count("tec worker\n") == expected:
            return True
        time.sleep(0.01)
    return False


class Product:
    """A matrix product without rounding errors."""

    def __init__(self, path):
        rng = np.random.default_rng(1)
        self.A, self.B = (rng.integers(-9, 9, (64, 64)).astype(np.float32) for _ in range(2))
        self.expected = self.A @ self.B
        self.matmul = tvm_ffi.load_module(path).matmul
        self.library = ctypes.CDLL(path)

    def right(self, turns):
        for _ in range(turns):
            C = np.zeros((64, 64), np.float32)
            self.matmul(self.A, self.B, C)
            if not (C == self.expected).all():
                return False
        return True

    def run_for_ever(self):
        """Calls the raw entry until Python ends the daemon thread at exit."""
        C = np.zeros((64, 64), np.float32)
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (self.A, self.B, C)]
        while True:
            self.library.matmul(*pointers)


product = None


def right_in_child(turns):
    return product.right(turns)


def main(path):
    global product
    product = Product(path)
    assert has_workers(0)
    product.library.tec_set_num_threads(3)
    assert product.right(10) and has_workers(2)

    wrong = []
    callers = [
        threading.Thread(target=lambda: product.right(200) or wrong.append(1)) for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert all(pool.map(right_in_child, [20] * 6))
    child = os.fork()
    if child == 0:
        os._exit(0 if has_workers(0) and product.right(10) and has_workers(2) else 1)
    assert os.waitpid(child, 0)[1] == 0
    for caller in callers:
        caller.join()
    assert not wrong and has_workers(2)

    threading.Thread(target=product.run_for_ever, daemon=True).start()


def test_parallel_loops_work_in_a_host_with_threads_and_forks(build):
    path = build.path("samples/matmul.te", schedule="parallel", n=64)
    command = [sys.executable, __file__, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    main(sys.argv[1])
