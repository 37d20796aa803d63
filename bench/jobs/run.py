#!/usr/bin/env python3
"""Times the kernels of jobs.te, scheduled by `tec` alone, beside the Python libraries that people
use for these jobs: NumPy, SciPy, OpenCV, onnxruntime.

  run.py --tec ../../target/release/tec              every job, one thread, a Markdown table
  run.py --tec … --only csr,argsort --threads 2 --rounds 15

All run in one process on the same arrays, in turns: each round times a few calls of each, and a
ratio is the median over the rounds of (library's time / tec's time). The results are compared
first. README.md says what it needs.
"""

import argparse
import importlib
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--tec", required=True, help="the compiler")
parser.add_argument("--only", help="names of jobs, separated by commas")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--scale", type=float, default=1.0, help="smaller inputs, for a test: 0.05")
parser.add_argument("--json", help="append the rows to this file")
options = parser.parse_args()

# Before NumPy is loaded.
for name in ["OMP", "OPENBLAS", "MKL", "TEC"]:
    os.environ[f"{name}_NUM_THREADS"] = str(options.threads)
os.environ["TEC_EXECUTABLE"] = os.path.abspath(options.tec)

import numpy as np  # noqa: E402

import tec_compiler  # noqa: E402


def library(name):
    """A library that need not be installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


scipy = library("scipy")
cv2 = library("cv2")
ort = library("onnxruntime")
rng = np.random.default_rng(1)
if cv2:
    cv2.setNumThreads(options.threads)
if scipy:
    for part in ["linalg", "ndimage", "signal", "sparse", "spatial", "special"]:
        importlib.import_module(f"scipy.{part}")


def size(n, least=8):
    """An extent, scaled."""
    return max(least, int(n * options.scale))


def floats(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def octets(*shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def onnx_session(node, inputs, outputs=1, initializers=None, opset=20, **attributes):
    """A session of onnxruntime with one node, bound to the inputs."""
    import onnx
    from onnx import helper, numpy_helper

    initializers = initializers or {}
    names = list(inputs) + list(initializers)
    info = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in inputs.items()
    ]
    results = [f"out{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(node, [n if n != "_" else "" for n in names], results, **attributes)],
        "job",
        info,
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(v, n) for n, v in initializers.items() if n != "_"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    about = ort.SessionOptions()
    about.intra_op_num_threads = options.threads
    about.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), about, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for name in results:
        binding.bind_output(name)

    def call():
        session.run_with_iobinding(binding)
        return [one.numpy() for one in binding.get_outputs()]

    return call


class Job:
    """A kernel with its inputs, what the libraries do with them, and how results compare."""

    def __init__(self, *inputs, tolerance=1e-5, define=None, result=None, inout=None):
        self.inputs = inputs
        self.peers = {}
        self.tolerance = tolerance
        self.define = define or {}
        # Makes of tec's result what the libraries return.
        self.result = result or (lambda value: value)
        self.inout = inout

    def peer(self, name, call, available=True):
        if available:
            self.peers[name] = call
        return self


def box_blur():
    x = octets(size(1080), size(1920))
    job = Job(x, tolerance=1)
    return job.peer(
        "OpenCV", lambda: cv2.blur(x, (3, 3), borderType=cv2.BORDER_REPLICATE), cv2
    ).peer("SciPy", lambda: scipy.ndimage.uniform_filter(x, 3, mode="nearest"), scipy)


def gaussian():
    x = floats(size(1080), size(1920))
    k = np.array([1, 4, 6, 4, 1], np.float32) / 16
    return Job(x).peer(
        "OpenCV", lambda: cv2.sepFilter2D(x, -1, k, k, borderType=cv2.BORDER_REPLICATE), cv2
    )


def sobel():
    x = floats(size(1080), size(1920))

    def opencv():
        a = cv2.Sobel(x, cv2.CV_32F, 1, 0, borderType=cv2.BORDER_REPLICATE)
        return cv2.magnitude(a, cv2.Sobel(x, cv2.CV_32F, 0, 1, borderType=cv2.BORDER_REPLICATE))

    return Job(x).peer("OpenCV", opencv, cv2)


def gray():
    x = octets(size(1080), size(1920), 3)
    return Job(x, tolerance=1).peer(
        "OpenCV", lambda: cv2.cvtColor(x, cv2.COLOR_BGR2GRAY), cv2
    )


def half():
    h, w = size(1080) // 2 * 2, size(1920) // 2 * 2
    x = octets(h, w)
    return Job(x, tolerance=1).peer(
        "OpenCV",
        lambda: cv2.resize(x, (w // 2, h // 2), interpolation=cv2.INTER_AREA),
        cv2,
    )


def erode():
    x = octets(size(1080), size(1920))
    ones = np.ones((3, 3), np.uint8)
    return (
        Job(x, tolerance=0)
        .peer("OpenCV", lambda: cv2.erode(x, ones, borderType=cv2.BORDER_REPLICATE), cv2)
        .peer("SciPy", lambda: scipy.ndimage.grey_erosion(x, 3, mode="nearest"), scipy)
    )


def histogram():
    x = octets(size(1_000_000))
    job = Job(x, tolerance=0).peer("NumPy", lambda: np.bincount(x, minlength=256))
    return job.peer(
        "OpenCV", lambda: cv2.calcHist([x], [0], None, [256], [0, 256]).reshape(256), cv2
    )


def mandelbrot():
    re = np.linspace(-2, 0.5, size(640), dtype=np.float32)
    im = np.linspace(-1.2, 1.2, size(480), dtype=np.float32)

    def numpy():
        a = np.zeros((len(im), len(re)), np.float32)
        b, steps = a.copy(), np.ones(a.shape, np.int32)
        inside = np.ones(a.shape, np.int32)
        with np.errstate(all="ignore"):
            for _ in range(63):
                a, b = a * a - b * b + re, 2 * a * b + im[:, None]
                inside &= a * a + b * b <= 4
                steps += inside
        return steps

    # Points on the border escape a step earlier with another rounding.
    return Job(re, im, tolerance=64).peer("NumPy", numpy)


def n_body():
    p, mass = floats(3, size(1024)), np.abs(floats(size(1024)))

    def numpy():
        d = p[:, None, :] - p[:, :, None]
        r = 1 / np.sqrt((d * d).sum(0) + np.float32(0.01))
        return (d * (mass * r * r * r)).sum(2)

    return Job(p, mass, tolerance=1e-3).peer("NumPy", numpy)


def black_scholes():
    n = size(1_000_000)
    s, x, t = (rng.uniform(a, b, n).astype(np.float32) for a, b in [(5, 30), (1, 100), (0.2, 10)])
    rate, sigma = np.float32(0.02), np.float32(0.3)

    def peer():
        phi = scipy.special.ndtr
        root = sigma * np.sqrt(t)
        d = (np.log(s / x) + (rate + np.float32(0.5) * sigma * sigma) * t) / root
        return s * phi(d) - x * np.exp(-rate * t) * phi(d - root)

    job = Job(s, x, t, float(rate), float(sigma), tolerance=1e-4)
    return job.peer("SciPy", peer, scipy)


def distances():
    a, b = floats(size(1000), 16), floats(size(1000), 16)
    return Job(a, b).peer("SciPy", lambda: scipy.spatial.distance.cdist(a, b), scipy)


def life():
    x = rng.integers(0, 2, (size(1024), size(1024)), dtype=np.uint8)
    ones = np.ones((3, 3), np.uint8)

    def rule(n):
        return ((n == 3) | ((n == 4) & (x == 1))).astype(np.uint8)

    def numpy():
        row = np.roll(x, 1, 1) + x + np.roll(x, -1, 1)
        return rule(np.roll(row, 1, 0) + row + np.roll(row, -1, 0))

    job = Job(x, tolerance=0).peer("NumPy", numpy)
    return job.peer(
        "SciPy", lambda: rule(scipy.ndimage.convolve(x, ones, mode="wrap")), scipy
    )


def moving_mean():
    x = floats(size(1_000_000, 64))
    return Job(x, tolerance=1e-4).peer(
        "SciPy", lambda: scipy.ndimage.uniform_filter1d(x, 31, mode="nearest"), scipy
    )


def sgemm():
    n = size(1024)
    a, b, c = floats(n, n), floats(n, n), floats(n, n)
    start = c.copy()

    def numpy():
        return np.float32(0.5) * (a @ b) + np.float32(0.25) * start

    job = Job(a, b, 0.5, 0.25, c, tolerance=1e-4, inout=(c, start)).peer("NumPy", numpy)
    if scipy:
        # BLAS has its matrices by columns: this is the product of the transposed ones, in place.
        out = start.copy()
        gemm = scipy.linalg.blas.sgemm

        def blas():
            return gemm(0.5, b.T, a.T, 0.25, out.T, overwrite_c=True).T

        job.peer("BLAS", blas)
        job.fresh = lambda: np.copyto(out, start)
    return job


def sgemv():
    a, x = floats(size(1024), size(1024)), floats(size(1024))
    return Job(a, x, tolerance=1e-4).peer("NumPy", lambda: a @ x)


def sdot():
    x, y = floats(size(100_000)), floats(size(100_000))
    return Job(x, y, tolerance=1e-3).peer("NumPy", lambda: np.dot(x, y))


def int8_product():
    n = size(512)
    a, b = (rng.integers(-128, 128, (n, n), dtype=np.int8) for _ in range(2))
    job = Job(a, b, tolerance=0)
    if ort:
        job.peer("onnxruntime", onnx_session("MatMulInteger", {"a": a}, initializers={"b": b}))
    return job


def cholesky():
    n = size(512)
    a = floats(n, n)
    a = (a @ a.T / n + np.eye(n, dtype=np.float32)).astype(np.float32)
    job = Job(a, tolerance=1e-4)
    job.peer("NumPy", lambda: np.linalg.cholesky(a).T)
    return job.peer("SciPy", lambda: scipy.linalg.cholesky(a, check_finite=False), scipy)


def solve_lower():
    n = size(512)
    low = np.tril(floats(n, n)) / n + np.eye(n, dtype=np.float32)
    b = floats(n, size(64))
    return Job(low, b, tolerance=1e-3).peer(
        "SciPy",
        lambda: scipy.linalg.solve_triangular(low, b, lower=True, check_finite=False),
        scipy,
    )


def csr():
    n, z = size(100_000), size(1_000_000)
    rows = np.sort(rng.integers(0, n, z))
    columns = rng.integers(0, n, z, dtype=np.int32)
    first = np.searchsorted(rows, np.arange(n + 1)).astype(np.int32)
    values, x = floats(z), floats(n)
    job = Job(values, columns, first, x, tolerance=1e-4)
    if scipy:
        matrix = scipy.sparse.csr_array((values, columns, first), shape=(n, n))
        job.peer("SciPy", lambda: matrix @ x)
    return job


def prefix_sum():
    x = floats(size(1_000_000))
    return Job(x, tolerance=1e-3).peer("NumPy", lambda: np.cumsum(x))


def argsort():
    x = floats(size(1_000_000))
    job = Job(x, tolerance=0, result=lambda index: x[index])
    job.compare = lambda index: x[index]
    return job.peer("NumPy", lambda: np.argsort(x))


def iir():
    x = floats(size(20_000), size(64))
    a, b = np.float32([-1.8, 0.81]), np.float32([0.0025, 0.005, 0.0025])
    return Job(x, a, b, tolerance=1e-4).peer(
        "SciPy", lambda: scipy.signal.lfilter(b, np.float32([1, *a]), x, axis=0), scipy
    )


def heat():
    n, steps = size(512), 20
    start = floats(n, n)

    def numpy():
        u = start.copy()
        for _ in range(steps - 1):
            near = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            u[1:-1, 1:-1] = u[1:-1, 1:-1] + np.float32(0.2) * (near - 4 * u[1:-1, 1:-1])
        return u

    job = Job(start, tolerance=1e-4).peer("NumPy", numpy)
    job.integers = {"steps": steps}
    return job


def softmax_rows():
    x = floats(size(1000), size(1000))
    job = Job(x)
    if scipy:
        job.peer("SciPy", lambda: scipy.special.softmax(x, axis=1))
    if ort:
        job.peer("onnxruntime", onnx_session("Softmax", {"x": x}))
    return job


def layer_norm_rows():
    x, scale, bias = floats(size(1000), 768), floats(768), floats(768)
    job = Job(x, scale, bias, tolerance=1e-4)
    if ort:
        weights = {"scale": scale, "bias": bias}
        job.peer(
            "onnxruntime", onnx_session("LayerNormalization", {"x": x}, initializers=weights)
        )
    return job


def conv3x3():
    x, w = floats(1, 64, 56, 56), floats(64, 64, 3, 3)
    job = Job(x, w, tolerance=1e-3)
    if ort:
        call = onnx_session("Conv", {"x": x}, initializers={"w": w}, pads=[1, 1, 1, 1])
        job.peer("onnxruntime", call)
    return job


def top_10():
    x = floats(size(1000), size(50_000, 16))
    job = Job(x, tolerance=0)
    if ort:
        k = {"k": np.int64([10])}
        job.peer("onnxruntime", onnx_session("TopK", {"x": x}, outputs=2, initializers=k))
    return job.peer(
        "NumPy", lambda: np.sort(-np.partition(-x, 10, axis=1)[:, :10], axis=1)[:, ::-1]
    )


def causal_attention():
    q, k, v = (floats(12, size(512), 64) for _ in range(3))
    job = Job(q, k, v, tolerance=1e-4)
    later = np.triu(np.full((q.shape[1],) * 2, -np.inf, np.float32), 1)

    def numpy():
        s = q @ k.transpose(0, 2, 1) * np.float32(0.125) + later
        e = np.exp(s - s.max(2, keepdims=True))
        return (e / e.sum(2, keepdims=True)) @ v

    job.peer("NumPy", numpy)
    if ort:
        inputs = {"q": q[None], "k": k[None], "v": v[None]}
        call = onnx_session("Attention", inputs, opset=23, is_causal=1)
        job.peer("onnxruntime", lambda: call()[0][0])
    return job


def lstm():
    steps, units = size(128), 512
    x = floats(steps, units)
    w, r = floats(4 * units, units) * 0.05, floats(4 * units, units) * 0.05
    w, r = w.astype(np.float32), r.astype(np.float32)
    bias = floats(4 * units)
    job = Job(x, w, r, bias, tolerance=1e-3)
    if ort:
        zeros = np.zeros_like(bias)
        weights = {"w": w[None], "r": r[None], "b": np.concatenate([bias, zeros])[None]}
        call = onnx_session(
            "LSTM", {"x": x[:, None]}, initializers=weights, hidden_size=units, opset=14
        )
        job.peer("onnxruntime", lambda: call()[0][:, 0, 0])
    return job


JOBS = [
    box_blur, gaussian, sobel, gray, half, erode, histogram, mandelbrot, n_body, black_scholes,
    distances, life, moving_mean, sgemm, sgemv, sdot, int8_product, cholesky, solve_lower, csr,
    prefix_sum, argsort, iir, heat, softmax_rows, layer_norm_rows, conv3x3, top_10,
    causal_attention, lstm,
]  # fmt: skip


def first(value):
    return value[0] if isinstance(value, (list, tuple)) else value


def check(name, peer, found, wanted, job):
    """Compares results; a wrong one ends the program."""
    found, wanted = np.asarray(first(found)), np.asarray(first(wanted))
    convert = getattr(job, "compare", lambda value: value)
    found, wanted = convert(found).astype(np.float64), convert(wanted).astype(np.float64)
    if found.shape != wanted.shape:
        sys.exit(f"{name}: the shape is {found.shape}, that of {peer} {wanted.shape}")
    scale = 1.0 if job.tolerance in (0, 1, 64) else max(1e-30, np.abs(wanted).max())
    error = np.abs(found - wanted).max() / scale
    if name == "mandelbrot":
        error = 0 if np.mean(found != wanted) < 0.01 else 64.5
    if not error <= job.tolerance:
        sys.exit(f"{name}: differs from {peer} by {error:.3g}")


def timed(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def measure(make):
    name = make.__name__
    job = make()
    start = time.perf_counter()
    kernel = tec_compiler.kernel(HERE / "jobs.te", kernel=name, define=job.define)
    compiled = time.perf_counter() - start
    integers = getattr(job, "integers", {})
    # The extent `n` of `first: int32[n + 1]` is that of the result.
    given = {"y": np.empty(len(job.inputs[3]), np.float32)} if name == "csr" else {}
    outputs = kernel(*job.inputs, **integers, **given)
    values = [one for one in (outputs if isinstance(outputs, tuple) else (outputs,))]
    found = values if job.inout is None else [job.inout[0].copy()]
    for peer, call in job.peers.items():
        getattr(job, "fresh", lambda: None)()
        check(name, peer, found, call(), job)
    run = kernel.function
    arguments = bind(kernel, job, values, integers)
    calls = {"tec": lambda: run(*arguments), **job.peers}
    counts = {}
    for who, call in calls.items():
        call()
        counts[who] = max(1, min(1000, int(0.02 / max(1e-7, timed(call, 1)))))
    rounds = [{who: timed(call, counts[who]) for who, call in calls.items()}
              for _ in range(options.rounds)]
    row = {"job": name, "threads": options.threads, "build_s": round(compiled, 2)}
    row["seconds"] = {who: statistics.median(one[who] for one in rounds) for who in calls}
    row["ratio"] = {
        who: statistics.median(one[who] / one["tec"] for one in rounds) for who in job.peers
    }
    return row


def bind(kernel, job, outputs, integers):
    """All arguments of the function, in order."""
    inputs, made = iter(job.inputs), iter(outputs)
    values = []
    for one in kernel.interface.arguments:
        if one.kind == "output":
            values.append(next(made))
        elif one.name in integers:
            values.append(integers[one.name])
        else:
            values.append(next(inputs))
    return values


def main():
    wanted = options.only.split(",") if options.only else [make.__name__ for make in JOBS]
    unknown = set(wanted) - {make.__name__ for make in JOBS}
    if unknown:
        sys.exit(f"no such job: {', '.join(sorted(unknown))}")
    print("| job | tec, ms | beside (above 1: tec is faster) |\n|---|---|---|", flush=True)
    for make in JOBS:
        if make.__name__ not in wanted:
            continue
        row = measure(make)
        beside = ", ".join(f"{who} {ratio:.2f}" for who, ratio in row["ratio"].items())
        print(f"| `{row['job']}` | {row['seconds']['tec'] * 1e3:.3g} | {beside} |", flush=True)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


main()
