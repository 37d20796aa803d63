#!/usr/bin/env python3
"""Checks the GPU samples on a machine with an NVIDIA GPU, and times them against PyTorch.

Needs Python 3.8 with PyTorch, the CUDA driver, and either a `tec` binary that runs here or
modules that were built elsewhere; `make gpu-check-bundle` packs both with this script. Every
sample is compared with PyTorch in float64 on random data, then timed by CUDA events beside the
function of PyTorch that does the same: cuBLAS, cuDNN, its own kernels and torch.compile, TF32 off.
Everything goes to one JSON file; docs/BENCHMARKS.md is written from it.

Without PyTorch or a GPU, the status in the file is "skipped" and the exit status is 0. The exit
status is 1 if a result is wrong or a sample does not compile or run.
"""

import argparse
import concurrent.futures
import ctypes
import datetime
import json
import math
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# In a checkout this file is in tools/, in a bundle beside samples/ and modules/.
ROOT = HERE.parent if HERE.name == "tools" else HERE

# The targets of the modules in a bundle; a GPU runs the last one that it supports.
BUNDLE_TARGETS = ["nvptx-sm_75", "nvptx-sm_80", "nvptx-sm_86", "nvptx-sm_89", "nvptx-sm_90"]


class Case:
    """A kernel of a sample at one size, with PyTorch's computation of it.

    `reference(torch, *inputs)` returns the exact result from inputs in float64; `magnitude`, the
    same of absolute values, scales its error bound. `baseline(torch, *inputs)` returns a function
    to time.
    """

    def __init__(self, name, file, kernel, schedules, define, shapes, output, reference, terms,
                 baseline, flops, dtype="float32", result=None, positive=(), magnitude=None,
                 least=75):
        self.name, self.file, self.kernel = name, file, kernel
        self.schedules, self.define = schedules, define
        self.shapes, self.output, self.dtype = shapes, output, dtype
        self.result = result or dtype
        self.reference, self.terms, self.baseline = reference, terms, baseline
        self.flops, self.positive, self.magnitude = flops, positive, magnitude
        self.least = least

    def runs_on(self, target):
        """Whether the target has the instructions that the case needs."""
        return int(re.search(r"sm_(\d+)", target)[1]) >= self.least

    def bytes(self):
        """The bytes of all tensors, which is the minimum transfer."""
        size = {"float32": 4, "float16": 2, "bfloat16": 2}
        read = sum(math.prod(shape) for shape in self.shapes) * size[self.dtype]
        return read + math.prod(self.output) * size[self.result]


def matmul(n, schedules):
    return Case(
        f"matmul {n}", "matmul.te", "matmul", schedules, {"n": n}, [(n, n), (n, n)], (n, n),
        lambda torch, a, b: a @ b, n, lambda torch, a, b: lambda: torch.mm(a, b), 2 * n**3,
        magnitude=lambda torch, a, b: a.abs() @ b.abs(),
    )


def matmul_bf16(n):
    # Tensor cores truncate terms, which adds an error as large as that of rounding.
    return Case(
        f"matmul_bf16 {n}", "matmul_bf16.te", "matmul_bf16", ["tensor", "hopper"], {"n": n},
        [(n, n), (n, n)], (n, n), lambda torch, a, b: a @ b, 2 * n,
        lambda torch, a, b: lambda: torch.mm(a, b), 2 * n**3, dtype="bfloat16", result="float32",
        magnitude=lambda torch, a, b: a.abs() @ b.abs(), least=80,
    )


def conv(channels, n, schedules):
    def reference(torch, x, k):
        return torch.nn.functional.conv2d(x[None], k, padding=1)[0]

    return Case(
        f"conv {channels}x{channels}x3x3 of {n}x{n}", "conv.te", "conv", schedules,
        {"oc": channels, "ic": channels, "nh": n},
        [(channels, n, n), (channels, channels, 3, 3)], (channels, n, n),
        reference, 9 * channels, lambda torch, x, k: lambda: reference(torch, x, k),
        2 * 9 * channels * channels * n * n,
        magnitude=lambda torch, x, k: reference(torch, x.abs(), k.abs()),
    )


def depthwise(channels, n, schedules):
    def reference(torch, x, k):
        return torch.nn.functional.conv2d(x[None], k, padding=1, groups=channels)[0]

    return Case(
        f"depthwise_conv {channels} of {n}x{n}", "depthwise_conv.te", "depthwise_conv", schedules,
        {"ic": channels, "nh": n}, [(channels, n, n), (channels, 1, 3, 3)], (channels, n, n),
        reference, 9, lambda torch, x, k: lambda: reference(torch, x, k),
        2 * 9 * channels * n * n, magnitude=lambda torch, x, k: reference(torch, x.abs(), k.abs()),
    )


def pool(kind, channels, n, schedules):
    def reference(torch, x):
        if kind == "max":
            return torch.nn.functional.max_pool2d(x[None], 3, 1, 1)[0]
        return torch.nn.functional.avg_pool2d(x[None], 3, 1, 1)[0]

    return Case(
        f"{kind}_pool {channels} of {n}x{n}", f"{kind}_pool.te", f"{kind}_pool", schedules,
        {"c": channels, "nh": n}, [(channels, n, n)], (channels, n, n), reference, 10,
        lambda torch, x: lambda: reference(torch, x), 9 * channels * n * n,
        magnitude=lambda torch, x: reference(torch, x.abs()),
    )


def batch_norm(channels, n, schedules):
    def reference(torch, x, mean, var, gamma, beta):
        return (x - mean) / torch.sqrt(var + 1e-5) * gamma + beta

    def baseline(torch, x, *rest):
        mean, var, gamma, beta = (one.flatten() for one in rest)
        norm = torch.nn.functional.batch_norm
        return lambda: norm(x[None], mean, var, gamma, beta, eps=1e-5)

    def magnitude(torch, x, mean, var, gamma, beta):
        scaled = (x.abs() + mean.abs()) / torch.sqrt(var + 1e-5) * gamma.abs()
        return scaled + beta.abs()

    one = (channels, 1, 1)
    return Case(
        f"batch_norm {channels} of {n}x{n}", "batch_norm.te", "batch_norm", schedules,
        {"c": channels, "n": n}, [(channels, n, n), one, one, one, one], (channels, n, n),
        reference, 8, baseline, 4 * channels * n * n, positive=(2,), magnitude=magnitude,
    )


def add(name, file, kernel, schedules, define, left, right, output):
    return Case(
        name, file, kernel, schedules, define, [left, right], output,
        lambda torch, a, b: a + b, 1, lambda torch, a, b: lambda: torch.add(a, b),
        math.prod(output), magnitude=lambda torch, a, b: a.abs() + b.abs(),
    )


def cases(quick):
    """The cases of all GPU schedules of the samples, each at one or more sizes."""
    n = 1 << (20 if quick else 26)
    rows = 256 if quick else 4096
    sizes = [256] if quick else [1024, 2048, 4096, 8192]
    image = 32 if quick else 64
    found = [
        add(f"vector_add {n}", "vector_add.te", "vector_add", ["parallel", "fast"], {"n": n},
            (n,), (n,), (n,)),
        add(f"broadcast_add {rows}", "broadcast_add.te", "broadcast_add",
            ["continuous", "alternate", "fast"], {"m1": rows, "n1": 1, "m2": rows, "n2": rows},
            (rows, 1), (rows, rows), (rows, rows)),
    ]
    found += [matmul(size, ["blocked", "fast"]) for size in sizes]
    found += [matmul_bf16(size) for size in sizes]
    found += [
        conv(64, image, ["bound", "tiling", "vthread"]),
        depthwise(256, image, ["bound", "tiling"]),
        pool("max", 256, image, ["optimized"]),
        pool("avg", 256, image, ["optimized"]),
        batch_norm(256, image, ["bound", "optimized"]),
    ]
    return found


# ---- the modules ----


def schedules_of(case, folder):
    """The case's schedules that the sample declares for GPUs, and the automatic one."""
    text = (folder / case.file).read_text()
    found = re.findall(rf"^schedule {case.kernel}\.(\w+)[^{{]*?for nvptx", text, re.M)
    return [name for name in case.schedules if name in found] + ["auto"]


def target_of(case, schedule, target, folder):
    """The target of a schedule: its own (`for nvptx-sm_90a`), or the GPU's.

    None if the schedule is for GPUs of another compute capability.
    """
    text = (folder / case.file).read_text()
    head = rf"^schedule {case.kernel}\.{schedule}\b[^{{]*?for (nvptx-sm_\w+)"
    named = re.search(head, text, re.M)
    if not named:
        return target
    return named[1] if named[1].rstrip("a") == target.rstrip("a") else None


def module_name(case, schedule, target):
    """The file name of a case's module, without its extension."""
    define = "_".join(f"{name}{value}" for name, value in sorted(case.define.items()))
    return re.sub(r"\W", "_", f"{case.kernel}_{schedule}_{define}_{target}")


def build(tec, case, schedule, target, samples, folder):
    """Compiles a case. Returns the path and the compiler's message on failure."""
    path = folder / (module_name(case, schedule, target) + ".so")
    define = [f"-D{name}={value}" for name, value in case.define.items()]
    command = [str(tec), "build", str(samples / case.file), "--kernel", case.kernel, "--target",
               target, "--schedule", f"{case.kernel}.{schedule}", "--no-sidecars", "-o", str(path)]
    done = subprocess.run(command + define, capture_output=True, text=True)
    return (path, None) if done.returncode == 0 else (None, done.stderr.strip())


def build_all(tec, selected, samples, folder):
    """Compiles pairs of a case and its schedule with a target, as many at a time as there are CPUs.

    Returns a list of what `build` returns, in the same order.
    """
    def one(pair):
        case, schedule, target = pair
        return build(tec, case, schedule, target, samples, folder)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, selected))


def runs(tec):
    """Whether the binary runs on this machine."""
    try:
        return subprocess.run([str(tec), "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


def find_target(major, minor, known):
    """The best target that a GPU of this compute capability can run."""
    have, best = 10 * major + minor, None
    for name in known:
        match = re.fullmatch(r"nvptx-sm_(\d+)", name)
        if match and int(match[1]) <= have and (not best or int(match[1]) > best[0]):
            best = (int(match[1]), name)
    return best[1] if best else None


def bundle(tec, out, quick):
    """Packs script, binary, samples and modules for a machine that has no Rust."""
    samples = ROOT / "samples"
    failures = []
    with tempfile.TemporaryDirectory() as folder, tarfile.open(out, "w:gz") as archive:
        folder = pathlib.Path(folder)
        selected = []
        for case in cases(quick):
            for schedule in schedules_of(case, samples):
                targets = {target_of(case, schedule, own, samples) for own in BUNDLE_TARGETS}
                for target in filter(case.runs_on, sorted(filter(None, targets))):
                    selected.append((case, schedule, target))
        for (case, schedule, target), (_, error) in zip(
            selected, build_all(tec, selected, samples, folder)
        ):
            if error:
                failures.append(f"{case.name}, {schedule}, {target}: {error}")
        archive.add(pathlib.Path(__file__), "gpu-check/gpu_check.py")
        archive.add(tec, "gpu-check/tec")
        for path in sorted(samples.glob("*.te")):
            archive.add(path, f"gpu-check/samples/{path.name}")
        for path in sorted(folder.iterdir()):
            archive.add(path, f"gpu-check/modules/{path.name}")
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"{out}: unpack it on a machine with a GPU and run python3 gpu-check/gpu_check.py")
    return 1 if failures else 0


# ---- calling a module ----


class DLTensor(ctypes.Structure):
    """DLPack's tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


CODES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16)}


def view(tensor, dtype):
    """A DLTensor over a contiguous tensor on a GPU."""
    result = DLTensor(data=tensor.data_ptr(), device_type=2, device_id=tensor.device.index or 0)
    result.code, result.bits = CODES[dtype]
    result.lanes, result.ndim = 1, tensor.dim()
    result.shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    return result


class Module:
    """A module's kernel, called through its checked C entry."""

    def __init__(self, path, kernel):
        self.library = ctypes.CDLL(str(path))
        self.entry = getattr(self.library, f"{kernel}_dl")
        self.entry.restype = ctypes.c_int32
        self.library.tec_last_error.restype = ctypes.c_char_p

    def bind(self, torch, tensors, dtypes):
        """Returns a function that launches the kernel on PyTorch's current stream."""
        views = [view(tensor, dtype) for tensor, dtype in zip(tensors, dtypes)]
        pointers = [ctypes.byref(one) for one in views]

        def call():
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            if self.entry(*pointers, stream):
                raise RuntimeError(self.library.tec_last_error().decode())

        call.keep = (views, tensors)
        return call


# ---- measuring ----


def milliseconds(torch, call, budget):
    """Measures the median time of a call by CUDA events, over batches of `budget` seconds in total.

    The calls of a batch are one CUDA graph if possible, so that the times of short kernels do not
    include the overhead of Python.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()

    def timed(run, count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    once = max(timed(call, 3) / 3, 1e-3)
    inner = max(1, min(200, int(20 / once)))
    run, graph = call, None
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(inner):
                call()
        run, count = graph.replay, 1
        timed(run, count)
    except RuntimeError:
        torch.cuda.synchronize()
        run, count, graph = call, inner, None
    rounds = max(5, min(200, int(budget * 1e3 / (inner * once))))
    times = sorted(timed(run, count) / inner for _ in range(rounds))
    return {"median_ms": times[len(times) // 2], "min_ms": times[0], "rounds": rounds,
            "graph": graph is not None}


def compare(torch, case, inputs, actual):
    """The largest error of a result, divided by the error bound of its sums."""
    exact = case.reference(torch, *[one.double() for one in inputs])
    scale = case.magnitude(torch, *[one.double() for one in inputs])
    unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
    # Each term is rounded in float32, the result once in its own type.
    bound = (case.terms + 4) * unit["float32"] * scale + unit[case.result] * exact.abs() + 1e-30
    error = (actual.double() - exact).abs()
    if not bool(torch.isfinite(actual).all()):
        return {"right": False, "error": "the result has elements that are not finite"}
    worst = float((error / bound).max())
    return {"max_abs_error": float(error.max()), "error_of_bound": worst, "right": worst <= 1.0}


def check(torch, case, schedule, path, args):
    """Checks one case. Returns its line of the result."""
    line = {"case": case.name, "kernel": case.kernel, "schedule": schedule}
    types = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    torch.manual_seed(20260101)
    inputs = []
    for index, shape in enumerate(case.shapes):
        random = torch.rand if index in case.positive else torch.randn
        one = random(shape, device="cuda", dtype=torch.float32)
        inputs.append((one + 0.1 if index in case.positive else one).to(types[case.dtype]))
    output = torch.full(case.output, float("nan"), device="cuda", dtype=types[case.result])
    dtypes = [case.dtype] * len(inputs) + [case.result]
    call = Module(path, case.kernel).bind(torch, inputs + [output], dtypes)
    call()
    torch.cuda.synchronize()
    line.update(compare(torch, case, inputs, output))
    if args.no_times or not line["right"]:
        return line
    line.update(milliseconds(torch, call, args.seconds))
    seconds = line["median_ms"] * 1e-3
    line["tflops"] = case.flops / seconds / 1e12
    line["gbs"] = case.bytes() / seconds / 1e9
    baseline = case.baseline(torch, *inputs)
    line["torch"] = milliseconds(torch, baseline, args.seconds)
    line["speed_of_torch"] = line["torch"]["median_ms"] / line["median_ms"]
    if args.compile:
        try:
            compiled = torch.compile(case.baseline(torch, *inputs))
            line["torch_compile"] = milliseconds(torch, compiled, args.seconds)
            ratio = line["torch_compile"]["median_ms"] / line["median_ms"]
            line["speed_of_torch_compile"] = ratio
        except Exception as error:  # torch.compile may raise anything.
            line["torch_compile"] = f"not measured: {type(error).__name__}"
    return line


def machine(torch):
    """Describes the machine and the versions."""
    device = torch.cuda.get_device_properties(0)
    told = {
        "gpu": device.name,
        "capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "memory_gib": round(device.total_memory / 2**30, 1),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
    }
    query = "driver_version,clocks.max.sm,clocks.max.mem,power.limit"
    try:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "-i", "0"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            told.update(zip(query.split(","), (one.strip() for one in done.stdout.split(","))))
    except OSError:
        pass  # nvidia-smi may be missing.
    return told


def find_gpu():
    """Returns PyTorch, or the reason to skip the checks."""
    try:
        import torch
    except ImportError as error:
        return None, f"no PyTorch: {error}"
    if not torch.cuda.is_available():
        return None, "PyTorch finds no GPU"
    return torch, None


def measure(torch, args, result):
    """Checks and times all cases on this GPU."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = True
    result["machine"] = machine(torch)
    prebuilt = ROOT / "modules"
    can_build = runs(args.tec)
    if can_build:
        told = json.loads(subprocess.check_output([str(args.tec), "targets", "--json"]))
        known = [target["name"] for target in told]
    else:
        known = BUNDLE_TARGETS
    target = find_target(*torch.cuda.get_device_capability(0), known)
    if target is None:
        raise SystemExit(f"no target for a GPU of {result['machine']['capability']}")
    result.update(target=target, compiled="here" if can_build else "elsewhere")
    selected = []
    for case in cases(args.quick):
        for schedule in schedules_of(case, args.samples) if case.runs_on(target) else []:
            own = target_of(case, schedule, target, args.samples)
            if own is not None:
                selected.append((case, schedule, own))
    with tempfile.TemporaryDirectory() as folder:
        if can_build:
            print(f"compiling {len(selected)} modules", flush=True)
            built = build_all(args.tec, selected, args.samples, pathlib.Path(folder))
        else:
            paths = [prebuilt / (module_name(*one) + ".so") for one in selected]
            built = [
                (path, None if path.exists() else f"there is no {path.name}") for path in paths
            ]
        for (case, schedule, _), (path, error) in zip(selected, built):
            line = {"case": case.name, "kernel": case.kernel, "schedule": schedule}
            try:
                if error:
                    line.update(right=False, error=error)
                else:
                    line = check(torch, case, schedule, path, args)
            except (RuntimeError, OSError) as failure:
                line.update(right=False, error=str(failure))
            result["results"].append(line)
            save(result, args.out)
            print(describe(line), flush=True)


def describe(line):
    """Formats a line of the result."""
    text = f"{line['case']:<28} {line['schedule']:<12} "
    if "error" in line:
        return text + "FAILED: " + line["error"].splitlines()[0]
    text += "right" if line["right"] else f"WRONG by {line['error_of_bound']:.3g} bounds"
    if "median_ms" in line:
        text += f"  {line['median_ms']:.4f} ms  {line['tflops']:.2f} TFLOP/s"
        text += f"  {line['gbs']:.0f} GB/s  {line['speed_of_torch']:.2f} of PyTorch's speed"
        if "speed_of_torch_compile" in line:
            text += f", {line['speed_of_torch_compile']:.2f} of torch.compile's"
    return text


def save(result, path):
    """Writes the result atomically."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)


def table(path):
    """Formats a result as rows of Markdown, for docs/BENCHMARKS.md."""
    result = json.loads(path.read_text())
    if result["status"] == "skipped":
        return f"not measured: {result['reason']}"
    told = result["machine"]
    rows = [
        f"{told['gpu']}, driver {told.get('driver_version', 'unknown')}, PyTorch {told['torch']} "
        f"with CUDA {told['cuda']} and cuDNN {told['cudnn']}, TF32 off; {result['target']}, "
        f"{result['when'][:10]}.",
        "",
        "| case | schedule | ms | TFLOP/s | GB/s | speed of PyTorch |",
        "|---|---|---|---|---|---|",
    ]
    for line in result["results"]:
        head = f"| {line['case']} | `{line['schedule']}` |"
        if "median_ms" not in line:
            said = "right" if line["right"] else line.get("error", "wrong")
            rows.append(f"{head} {said} | | | |")
            continue
        rows.append(f"{head} {line['median_ms']:.4f} | {line['tflops']:.2f} | {line['gbs']:.0f} | "
                    f"{line['speed_of_torch']:.2f} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ROOT / "tec" if (ROOT / "tec").exists() else ROOT / "target/release/tec"
    parser.add_argument("--tec", type=pathlib.Path, default=default, help="the compiler")
    parser.add_argument("--samples", type=pathlib.Path, default=ROOT / "samples")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-check.json"))
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--no-times", action="store_true", help="measure no times")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds of each measurement")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--bundle", type=pathlib.Path, metavar="OUT.tar.gz",
                        help="pack everything for another machine instead")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE.json",
                        help="print a result as Markdown instead")
    args = parser.parse_args()
    if args.table:
        print(table(args.table))
        return 0
    if args.bundle:
        return bundle(args.tec, args.bundle, args.quick)
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {"when": now.isoformat(timespec="seconds"), "status": "unfinished", "results": []}
    torch, reason = find_gpu()
    if torch is None:
        result.update(status="skipped", reason=reason)
        print(f"skipped: {reason}")
    else:
        measure(torch, args, result)
        right = all(line["right"] for line in result["results"])
        result["status"] = "right" if right and result["results"] else "wrong"
    save(result, args.out)
    return 1 if result["status"] == "wrong" else 0


if __name__ == "__main__":
    sys.exit(main())
