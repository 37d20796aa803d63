"""Kernels of other architectures under qemu-user: every bit as on this machine.

    python3 tests/cross/run.py [TEC] [PART OF A FILE'S NAME...]

Builds the samples and the programs of this folder for each target, calls them from a C program made
from the manifest, through the raw and the checked entry, and compares the outputs with those of the
default schedule on `x86-avx2`, also for the schedules of the samples. NaNs are replaced by one
value first. A target without its cross compiler or qemu is skipped with a message.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# The compiler and what runs its programs, per target; the first is what the others are compared to.
REFERENCE = "x86-avx2"
X86 = (os.environ.get("CC", "cc"), None)
AARCH64 = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
RISCV64 = ("riscv64-linux-gnu-gcc", "qemu-riscv64")
TARGETS = {REFERENCE: X86, "x86-64": X86, "aarch64": AARCH64, "riscv64": RISCV64}

# Sizes that an emulator is done with in a moment.
DEFINES = {
    "matmul.te": ["n=40"],
    "matmul_add.te": ["N=40", "L=24", "M=33"],
    "conv_bwd_weight.te": ["batch=2", "in_channel=3", "out_channel=4", "in_h=10", "in_w=11"],
    "exp.te": ["n=20000"],
    "softmax.te": ["m=33", "n=50"],
}
VARS = {"n": 12, "m": 20, "p": 15, "q": 16, "l": 3, "o": 2, "bi": 2, "si": 3, "bj": 1, "sj": 2}

CTYPES = {
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "bool": "_Bool",
}
CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


def ctype(dtype):
    return CTYPES.get(dtype, f"{dtype}_t")


def bits(dtype):
    return 8 if dtype == "bool" else int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"))


def code(dtype):
    return CODES[dtype.rstrip("0123456789")]


def extent(text):
    """An extent of the manifest: a number, or an expression over run-time integers."""
    names = {"min": min, "max": max, "abs": abs, "select": lambda c, a, b: a if c else b}
    return eval(str(text), {"__builtins__": {}}, names | VARS)


def call_of(kernel, module):
    """The C function that calls one kernel and prints a line per output."""
    lines = [f"static int run_{kernel['name']}(int wild) {{"]
    raw, checked, outputs = [], [], []
    for place, arg in enumerate(kernel["args"]):
        if arg["kind"] == "runtime":
            value = VARS.get(arg["name"], 5)
            raw.append(f"INT64_C({value})")
            if arg["source"] is None:
                checked.append(raw[-1])
        elif arg["kind"] == "scalar":
            kind = f"{code(arg['dtype'])}, {bits(arg['dtype'])}"
            lines.append(f"  {ctype(arg['dtype'])} s{place};")
            lines.append(f"  fill(&s{place}, 1, {kind}, 0, {place});")
            raw.append(f"s{place}")
            checked.append(f"s{place}")
        else:
            shape = [extent(e) for e in arg["shape"]]
            dims = ", ".join(map(str, shape)) or "1"
            kind = f"{code(arg['dtype'])}, {bits(arg['dtype'])}"
            lines.append(f"  static int64_t d{place}[] = {{{dims}}};")
            lines.append(f"  DLTensor t{place} = tensor(d{place}, {len(shape)}, {kind});")
            lines.append(f"  DLTensor u{place} = tensor(d{place}, {len(shape)}, {kind});")
            if arg["role"] == "output":
                outputs.append((place, arg["name"]))
            else:
                lines.append(f"  fill(t{place}.data, count(&t{place}), {kind}, wild, {place});")
                lines.append(f"  memcpy(u{place}.data, t{place}.data, size(&t{place}));")
            raw.append(f"t{place}.data")
            checked.append(f"&u{place}")
    name = kernel["name"]
    lines.append(f"  if ({name}_dl({', '.join(checked)}))")
    lines.append(f'    return printf("{name} %d refused: %s\\n", wild, {module}_last_error()), 0;')
    lines.append(f"  if ({name}({', '.join(raw)})) return 1;")
    for place, output in outputs:
        lines.append(f'  show("{name}", "{output}", wild, &t{place}, &u{place});')
    lines += ["  return 0;", "}"]
    return "\n".join(lines)


def program(manifest):
    """The C program for a module. With an argument it prints every element of that kernel."""
    module = manifest["module"]
    calls = [call_of(kernel, module) for kernel in manifest["kernels"]]
    names = [kernel["name"] for kernel in manifest["kernels"]]
    loop = "for (int wild = 0; wild < 2; wild++)"
    runs = [f"  {loop} if (run_{name}(wild)) return 1;" for name in names]
    main = ["int main(int count, char **arguments) {", "  if (count > 1) dumped = arguments[1];"]
    head = [f'#include "{module}.h"', '#include "support.h"']
    return "\n".join([*head, *calls, *main, *runs, "  return 0;\n}"])


def run(command):
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def schedules(source):
    """Names of the schedules in a file, once each, the default schedule first.

    Schedules of a kernel with `reassociate` may add in an order that depends on the target's lanes,
    so they are left out, except the default schedule.
    """
    text = source.read_text()
    free = set(re.findall(r"^kernel (\w+)\([^{]*\) reassociate", text, re.MULTILINE))
    heads = re.findall(r"^schedule (\w+)\.(\w+)([^{]*)\{", text, re.MULTILINE)
    named = [(kernel, name) for kernel, name, rest in heads if "for nvptx" not in rest]
    apart = {name for kernel, name in named if kernel in free}
    if apart:
        print(f"{source.name}: {', '.join(sorted(apart))} may add in another order, not compared")
    return ["default", *dict.fromkeys(name for _, name in named if name not in apart)]


def build(tec, source, target, folder, schedule="default"):
    """The program for a source file and target, ready to be run: its command."""
    folder = folder / target / source.stem / schedule
    folder.mkdir(parents=True)
    archive = folder / "m.tar"
    defines = [part for define in DEFINES.get(source.name, []) for part in ("-D", define)]
    contraction = ["--fp-contract", "fast"]
    options = ["--target", target, "--schedule", schedule, *contraction, *defines]
    run([tec, "build", source, "-o", archive, *options])
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    manifest = json.loads((folder / "m.json").read_text())
    (folder / "main.c").write_text(program(manifest))
    compiler, emulator = TARGETS[target]
    runtime = folder / "runtime/tec_runtime.c"
    if not runtime.exists():
        runtime = folder / "tec_runtime.o"
    files = [folder / "main.c", folder / "m.o", runtime]
    flags = ["-O1", "-w", "-static", "-I", HERE, "-I", folder]
    run([compiler, *flags, *files, "-o", folder / "main"])
    return [emulator, folder / "main"] if emulator else [folder / "main"]


def differences(reference, command, source, target):
    """What the program prints otherwise than the reference, in words; the number of its lines."""
    expected, found = run(reference).splitlines(), run(command).splitlines()
    strange = [line for line in expected if "entries differ" in line or " 0 refused" in line]
    if strange:
        return strange, 0
    if expected == found:
        return [], len(found)
    pairs = [pair for pair in zip(expected, found) if pair[0] != pair[1]]
    kernels = sorted({line.split()[0] for line, _ in pairs})
    texts = [f"{source.name} on {target}: {len(pairs)} of {len(expected)} outputs differ"]
    for kernel in kernels:
        elements = zip(run([*reference, kernel]).splitlines(), run([*command, kernel]).splitlines())
        wrong = [pair for pair in elements if pair[0] != pair[1]]
        texts += [f"  {a}\n  {b}  <- {target}" for a, b in wrong[:6]]
    return texts, len(found)


def check(tec, source, targets, folder):
    reference = build(tec, source, REFERENCE, folder)
    texts, count = [], 0
    names = schedules(source)
    ways = [(target, schedule) for schedule in names for target in targets]
    ways += [(REFERENCE, schedule) for schedule in names[1:]]
    for target, schedule in ways:
        try:
            command = build(tec, source, target, folder, schedule)
            wrong, lines = differences(reference, command, source, f"{target}, {schedule}")
        except RuntimeError as error:
            wrong, lines = [f"{source.name} on {target}, {schedule}: {error}"], 0
        texts += wrong
        count += lines
    return texts, count


def available(targets):
    """Those that can be compiled for and run here; says which cannot."""
    found = []
    for target in targets:
        missing = [tool for tool in TARGETS[target] if tool and not shutil.which(tool)]
        if missing:
            print(f"skipped {target}: {', '.join(missing)} not found")
        else:
            found.append(target)
    return found


def main():
    tec = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/debug/tec")
    if "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
        print("skipped: this machine has no AVX2 to compare with")
        return 0
    targets = available([target for target in TARGETS if target != REFERENCE])
    sources = sorted((ROOT / "samples").glob("*.te")) + sorted(HERE.glob("*.te"))
    if len(sys.argv) > 2:
        sources = [s for s in sources if any(part in s.name for part in sys.argv[2:])]
    texts, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(check, tec, source, targets, folder) for source in sources]
            for job in jobs:
                wrong, lines = job.result()
                texts += wrong
                count += lines
    print("\n".join(texts + [f"{len(sources)} files, {count} outputs, {', '.join(targets)}"]))
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
