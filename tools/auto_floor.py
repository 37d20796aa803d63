#!/usr/bin/env python3
"""Compares `--schedule auto` with a naive vectorized loop on shapes that it was not tuned for.

    python3 tools/auto_floor.py [COUNT [SEED]] [--tec target/release/tec] [--threads 2]

Draws sample kernels and shapes (primes, long and thin, tiny), gives each stage a naive schedule
(its last axis innermost, in vectors of 16, everything else as declared), and times both
interleaved. Ratios near or below 0.8 are measured twice more, and the median counts. Prints
the worst ratios, and how many are below 0.8.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

# For each kernel: its file, its sizes, its stages with their loops; the last loop is vectorized.
KERNELS = {
    "matmul": ("matmul", "nml", {"C": "x k y"}),
    "matmul_add": ("matmul_add", "NLM", {"matmul": "i k j", "out": "i j"}),
    "transpose": ("transpose", "nm", {"b": "i j"}),
    "vector_add": ("vector_add", "n", {"c": "i"}),
    "exp_vector": ("exp", "n", {"y": "i"}),
    "broadcast_add_same": ("broadcast_add", "mn", {"C": "x y"}),
    "softmax": ("softmax", "mn", {"M": "k i", "E": "i j", "S": "k i", "Y": "i j"}),
    "layer_norm": ("layer_norm", "mn", {"Y": "i j"}),
    "conv": ("conv", "oc ic nh", {"Y": "c i ric rkh rkw j"}),
    "depthwise_conv": ("depthwise_conv", "ic nh", {"Y": "c i rkh rkw j"}),
    "max_pool": ("max_pool", "c nh", {"PoolMax": "k h rkh rkw w"}),
    "batch_norm_folded": ("batch_norm", "cn", {"Y": "k i j"}),
}
PRIMES = [3, 5, 7, 11, 13, 17, 23, 31, 37, 61, 97, 127, 211, 251, 509, 997, 1021]

# Ratios below this are measured again.
NEAR = 0.85


def size(rng):
    kind = rng.randrange(3)
    if kind == 0:
        return rng.choice(PRIMES)
    if kind == 1:
        return rng.choice([1, 2, 3, 4, 8, 1000, 4096])
    return rng.randrange(1, 300)


def draw(rng):
    name = rng.choice(sorted(KERNELS))
    file, sizes, stages = KERNELS[name]
    names = sizes.split() if " " in sizes else list(sizes)
    while True:
        values = {one: size(rng) for one in names}
        work = 1
        for value in values.values():
            work *= value
        if "nh" in values:
            values["nh"] = max(3, values["nh"])
            work *= 9 * values["nh"]
        if name in ("vector_add", "exp_vector"):
            values["n"] *= rng.choice([1, 10, 1000])
        if work <= 50_000_000 and values.get("nh", 0) <= 300:
            return name, file, values, stages


def naive(name, stages):
    lines = [f"schedule {name}.naive for cpu {{"]
    for stage, loops in stages.items():
        *outer, last = loops.split()
        lines.append(f"    let {stage}_o, {stage}_l = {stage}.split({last}, factor=16)")
        where = [loop for loop in outer if not loop.startswith(("k", "r"))]
        sums = [loop for loop in outer if loop not in where]
        if name in ("conv", "depthwise_conv", "max_pool", "batch_norm_folded"):
            where = [loop for loop in outer if not loop.startswith("r")]
            sums = [loop for loop in outer if loop.startswith("r")]
        order = where + [f"{stage}_o"] + sums + [f"{stage}_l"]
        lines.append(f"    {stage}.reorder({', '.join(order)})")
        lines.append(f"    {stage}.vectorize({stage}_l)")
    return "\n".join(lines + ["}"]) + "\n"


def measure(tec, threads, case, directory):
    name, file, values, stages = case
    source = os.path.join("samples", f"{file}.te")
    path = os.path.join(directory, f"{file}.te")
    with open(source, encoding="utf-8") as text, open(path, "w", encoding="utf-8") as out:
        out.write(text.read() + "\n" + naive(name, stages))
    command = [tec, "bench", path, "--kernel", name, "--schedule", "naive,auto", "--json"]
    command += ["--roofline=off", "--min-time", "0.2", "--threads", str(threads)]
    runtime = file in ("transpose", "broadcast_add")
    for key, value in values.items():
        command += ["--var" if runtime else "-D", f"{key}={value}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{result.stderr}")
    rows = json.loads(result.stdout)["results"]
    return rows[0]["median_ns"], rows[1]["median_ns"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--tec", default="target/release/tec")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--show", type=int, default=12, help="how many of the worst are printed")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(args.count):
            case = draw(rng)
            times = [measure(args.tec, args.threads, case, directory)]
            if times[0][0] / times[0][1] < NEAR:
                times += [measure(args.tec, args.threads, case, directory) for _ in range(2)]
            times.sort(key=lambda pair: pair[0] / pair[1])
            naive_ns, auto_ns = times[len(times) // 2]
            ratios.append((naive_ns / auto_ns, naive_ns, case[0], case[2]))
    ratios.sort(key=lambda one: one[0])
    for ratio, naive_ns, name, values in ratios[: args.show]:
        sizes = " ".join(f"{key}={value}" for key, value in values.items())
        print(f"{ratio:6.2f}  {naive_ns / 1e3:10.2f} us  {name}  {sizes}")
    below = sum(ratio < 0.8 for ratio, *_ in ratios)
    middle = ratios[len(ratios) // 2][0]
    print(f"{below} of {len(ratios)} below 0.8; median {middle:.2f}")


if __name__ == "__main__":
    main()
