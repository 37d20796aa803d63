"""Tests modules for GPUs through tvm-ffi, without a GPU: tensors claim to be on one, and
`tests/c/fake_cuda.c` is the driver. It computes nothing, but logs each launch with its device,
stream and arguments."""

import ctypes
import os
import re
import subprocess
import sys
import textwrap

import pytest
import tvm_ffi

from conftest import ROOT
from dl import DLTensor

TARGET = "nvptx-sm_80"


class Managed(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class OnGpu:
    """A float32 tensor that claims to be on a GPU; its memory is that of the host."""

    def __init__(self, *shape, device=0):
        count = 1
        for extent in shape:
            count *= extent
        self.memory = (ctypes.c_float * count)()
        self.device = device
        self.managed = Managed()
        one = self.managed.tensor
        one.data = ctypes.addressof(self.memory)
        one.device_type, one.device_id = 2, device
        one.ndim, one.code, one.bits, one.lanes = len(shape), 2, 32, 1
        one.shape = (ctypes.c_int64 * len(shape))(*shape)

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return (2, self.device)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """The fake driver."""
    path = tmp_path_factory.mktemp("driver") / "libfake_cuda.so"
    command = ["cc", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-o", path]
    subprocess.run([*command, ROOT / "tests/c/fake_cuda.c"], check=True)
    os.environ["TEC_CUDA_LIBRARY"] = str(path)
    library = ctypes.CDLL(str(path))
    library.fake_log.restype = ctypes.c_char_p
    library.fake_primary.restype = ctypes.c_void_p
    library.fake_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


@pytest.fixture
def log(driver):
    """Returns the calls of the driver since the test began."""
    driver.fake_clear()
    return lambda: driver.fake_log().decode()


@pytest.fixture(scope="session")
def module(build, driver):
    """A module for GPUs."""
    return build("samples/vector_add.te", "parallel", TARGET, n=1000)


def test_tensors_on_a_gpu_are_launched(module, log):
    a, b, c = (OnGpu(1000) for _ in range(3))
    module.vector_add(a, b, c)
    (line,) = [line for line in log().splitlines() if line.startswith("launch")]
    assert re.match(r"launch \w+ on 0 stream \(nil\) grid 16 1 1 block 64 1 1 ", line), line
    # The PTX entry may take its parameters in another order.
    addresses = {f"{ctypes.addressof(one.memory):x}" for one in (a, b, c)}
    assert set(line.split(" params ")[1].split()) == addresses, line


def test_a_launch_uses_the_stream_of_tvm_ffi(module, driver, log):
    driver.fake_stream(0xABC0, driver.fake_primary(1))
    tensors = [OnGpu(1000, device=1) for _ in range(3)]
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 1), 0xABC0):
        module.vector_add(*tensors)
    assert " on 1 stream 0xabc0 " in log()
    module.vector_add(*tensors)
    assert " on 1 stream (nil) " in log()


def test_a_stream_of_another_device_is_refused(module, driver, log):
    driver.fake_stream(0xABC8, driver.fake_primary(0))
    tensors = [OnGpu(1000, device=1) for _ in range(3)]
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 1), 0xABC8):
        with pytest.raises(RuntimeError, match="invalid resource handle "):
            module.vector_add(*tensors)
    assert "launch" not in log()


def test_wrong_tensors_are_refused(module, log):
    import numpy as np

    good = lambda **device: OnGpu(1000, **device)
    with pytest.raises(ValueError, match="^argument 2 `b`: expected a tensor on a CUDA device, got "
                                         "one on cpu "):
        module.vector_add(good(), np.zeros(1000, np.float32), good())
    with pytest.raises(ValueError, match="^argument 3 `c`: expected a tensor on cuda:0, the device "
                                         "of argument 1 `a`, got one on cuda:1 "):
        module.vector_add(good(), good(), good(device=1))
    with pytest.raises(ValueError, match="^argument 1 `a`: expected extent 1000 in dimension 0, "):
        module.vector_add(OnGpu(999), good(), good())
    one = good()
    with pytest.raises(ValueError, match="^argument 3 `c`: the output shares memory with "):
        module.vector_add(one, good(), one)
    assert "launch" not in log()


def test_failures_of_the_driver_are_exceptions(module, driver, log):
    tensors = [OnGpu(1000) for _ in range(3)]
    driver.fake_fail(b"cuLaunchKernel", 700)
    try:
        with pytest.raises(RuntimeError, match="an illegal memory access was encountered "):
            module.vector_add(*tensors)
    finally:
        driver.fake_fail(b"cuLaunchKernel", 0)
    driver.fake_fail(b"cuLaunchKernel", 2)
    try:
        with pytest.raises(MemoryError, match="out of memory "):
            module.vector_add(*tensors)
    finally:
        driver.fake_fail(b"cuLaunchKernel", 0)
    module.vector_add(*tensors)


def test_a_call_without_a_driver_is_an_error(build):
    path = build.path("samples/vector_add.te", "parallel", TARGET, n=1000)
    program = f"""
        import numpy as np, tvm_ffi
        a = np.zeros(1000, np.float32)
        try:
            tvm_ffi.load_module({path!r}).vector_add(a, a, a)
        except RuntimeError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, env=os.environ | {"TEC_CUDA_LIBRARY": "/no/driver.so"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no CUDA driver: /no/driver.so: cannot open"), done.stdout
