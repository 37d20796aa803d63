#!/usr/bin/env python3
"""Measures how well the cost model ranks random schedules: `tools/rank.py WORKLOAD [COUNT] [SEED]`.

Writes COUNT random schedules of a sample to a file under target/rank/, measures and estimates
them with `tools/rank.rs`, and prints Spearman's rank correlation. Measurements are kept in
target/rank/, so that a second run only estimates.
"""

import os
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def matmul(r):
    """Register tiles or plain loops, packed or not, with any order of the outer loops."""
    lines = []
    ty = r.choice([16, 32, 48, 64, 96, 128])
    tx = r.choice([1, 2, 3, 4, 6, 8, 12, 16])
    tk = r.choice([1, 2, 4, 8, 16, 64])
    kind = r.choice(["tile", "tile", "tile", "block", "rows", "plain"])
    if kind == "plain":
        order = r.choice([["x", "k", "y"], ["x", "y", "k"], ["k", "x", "y"], ["y", "k", "x"]])
        lines.append(f"C.reorder({', '.join(order)})")
        if order[-1] == "y" and r.random() < 0.6:
            lines += [f"let yo, yi = C.split(y, factor={r.choice([16, 32, 64])})",
                      "C.vectorize(yi)"]
        if order[0] == "x" and r.random() < 0.7:
            lines.append("C.parallel(x)")
        return lines
    lines += [f"let xo, yo, xi, yi = C.tile(x, y, {tx}, {ty})",
              "let yv, yl = C.split(yi, factor=16)",
              f"let ko, ki = C.split(k, factor={tk})"]
    if kind == "tile":
        inner = r.choice([["ki", "xi", "yv"], ["ki", "yv", "xi"]])
        outer = r.choice([["yo", "xo"], ["xo", "yo"]])
        lines += [f"C.reorder({', '.join(outer + ['ko'] + inner + ['yl'])})", "C.vectorize(yl)"]
        for loop in ("xi", "yv"):
            if r.random() < 0.85:
                lines.append(f"C.unroll({loop})")
        if tk <= 8 and r.random() < 0.8:
            lines.append("C.unroll(ki)")
        if r.random() < 0.6:
            if r.random() < 0.8:
                lines += [f"let panel = B.cache_read(global, [C], "
                          f"layout=[ax1 // {ty}, ax0, ax1 % {ty}])", "panel.vectorize(p2)"]
            else:
                lines += ["let panel = B.cache_read(global, [C], layout=[ax1, ax0])"]
            lines.append("panel.parallel(p0)")
        fused = r.random() < 0.5
        if fused:
            lines += [f"let tiles = C.fuse({', '.join(outer)})", "C.parallel(tiles)"]
        elif r.random() < 0.8:
            lines.append(f"C.parallel({outer[0]})")
    elif kind == "block":
        inner = r.choice([["xi", "ki", "yv"], ["ki", "xi", "yv"], ["xi", "yv", "ki"]])
        outer = r.choice([["xo", "yo", "ko"], ["ko", "xo", "yo"], ["xo", "ko", "yo"],
                          ["yo", "ko", "xo"]])
        lines += [f"C.reorder({', '.join(outer + inner + ['yl'])})", "C.vectorize(yl)"]
        for loop in inner:
            if r.random() < 0.4 and not (loop == "ki" and tk > 16):
                lines.append(f"C.unroll({loop})")
        if outer[0] != "ko" and r.random() < 0.7:
            lines.append(f"C.parallel({outer[0]})")
    else:
        lines += ["C.reorder(xo, xi, ko, yo, ki, yv, yl)", "C.vectorize(yl)"]
        if tk <= 16 and r.random() < 0.7:
            lines.append("C.unroll(ki)")
        if r.random() < 0.5:
            lines.append("C.unroll(yv)")
        if r.random() < 0.7:
            lines.append("C.parallel(xo)")
    return lines


def conv(r):
    """Tiles of channels and columns, with or without a buffer, or plain loops."""
    tc = r.choice([1, 2, 4, 8, 16])
    tw = r.choice([8, 16, 32, 48, 64])
    ti = r.choice([1, 2, 4, 8, 16])
    lines = []
    kind = r.choice(["tile", "tile", "tile", "plain", "block"])
    if kind == "plain":
        order = r.choice([["c", "i", "ric", "rkh", "rkw", "j"],
                          ["c", "i", "j", "ric", "rkh", "rkw"],
                          ["i", "c", "ric", "rkh", "rkw", "j"],
                          ["c", "ric", "rkh", "rkw", "i", "j"]])
        lines.append(f"Y.reorder({', '.join(order)})")
        if order[-1] == "j" and r.random() < 0.7:
            lines += [f"let jo, ji = Y.split(j, factor={r.choice([8, 16, 32, 64])})",
                      "Y.vectorize(ji)"]
        if r.random() < 0.5 and order[-1] == "j":
            lines.append("Y.unroll(rkw)")
        if r.random() < 0.8:
            lines.append(f"Y.parallel({order[0]})")
    else:
        lines += ["let T = Y.cache_write(local)",
                  f"let co, jo, ci, ji = Y.tile(c, j, {tc}, {tw})",
                  f"let io, ii = Y.split(i, factor={ti})"]
        outer = r.choice([["io", "co", "ii", "jo"], ["co", "io", "ii", "jo"],
                          ["io", "ii", "jo", "co"], ["co", "jo", "io", "ii"],
                          ["io", "jo", "co", "ii"]])
        lines += [f"Y.reorder({', '.join(outer + ['ci', 'ji'])})", "Y.vectorize(ji)"]
        if r.random() < 0.7:
            lines.append("Y.unroll(ci)")
        if r.random() < 0.85:
            lines.append(f"Y.parallel({outer[0]})")
        lines.append(f"T.compute_at(Y, {outer[3]})")
        if kind == "tile":
            order = r.choice([["ric", "rkh", "rkw", "c", "j"], ["ric", "rkh", "rkw", "c", "j"],
                              ["c", "ric", "rkh", "rkw", "j"]])
        else:
            order = r.choice([["c", "ric", "rkh", "rkw", "j"], ["ric", "c", "rkh", "rkw", "j"],
                              ["ric", "rkh", "c", "rkw", "j"]])
        lines.append(f"T.reorder({', '.join(order)})")
        for loop in ("rkw", "rkh", "c"):
            if r.random() < (0.3 if loop == "rkh" else 0.75):
                lines.append(f"T.unroll({loop})")
        if r.random() < 0.9:
            lines.append("T.vectorize(j)")
    if r.random() < 0.8:
        lines += ["let rows = PaddedX.fuse(i0, i1)", "PaddedX.parallel(rows)"]
    if r.random() < 0.7:
        lines.append("PaddedX.vectorize(i2)")
    return lines


def softmax(r):
    """Partial reductions in lanes or not, stages attached to the row or at root."""
    vectors = r.choice([1, 2, 4, 8])
    lines = []
    together = r.random() < 0.7
    width = r.choice([8, 16, 32, 64])
    lines += [f"let jo, jl = Y.split(j, factor={width})"]
    if r.random() < 0.85:
        lines.append("Y.vectorize(jl)")
    parallel = r.random() < 0.85
    if parallel:
        lines.append("Y.parallel(i)")
    for P in ("M", "S"):
        how = r.choice(["lanes", "lanes", "vectors", "vectors", "plain"])
        parts = [P]
        if how == "plain":
            if r.random() < 0.3:
                lines += [f"let {P}o, {P}i = {P}.split(k, factor={r.choice([4, 8, 16])})",
                          f"{P}.unroll({P}i)"]
        elif how == "lanes":
            lanes = r.choice([8, 16, 32, 64])
            lines += [f"let {P}o, {P}l = {P}.split(k, factor={lanes})",
                      f"let {P}L = {P}.rfactor({P}l)", f"{P}L.reorder({P}o, {P}l)",
                      f"{P}L.vectorize({P}l)"]
            parts.append(f"{P}L")
        else:
            lines += [f"let {P}o, {P}u, {P}l = {P}.split(k, factors=[{vectors}, 16])",
                      f"let {P}L = {P}.rfactor({P}l)", f"let {P}V = {P}L.rfactor({P}u)",
                      f"{P}L.reorder({P}u, {P}l)", f"{P}L.vectorize({P}l)",
                      f"{P}V.reorder({P}o, {P}u, {P}l)", f"{P}V.vectorize({P}l)"]
            if r.random() < 0.8:
                lines.append(f"{P}V.unroll({P}u)")
            parts += [f"{P}L", f"{P}V"]
        if together:
            lines += [f"{part}.compute_at(Y, i)" for part in parts]
        elif parallel and r.random() < 0.6 and how == "plain":
            lines.append(f"{P}.parallel(i)")
    what = r.random()
    if what < 0.6:
        lines += [f"let eo, el = E.split(j, factor={r.choice([8, 16, 32, 64])})",
                  "E.vectorize(el)"]
    if together:
        lines.append("E.compute_at(Y, i)")
    elif r.random() < 0.6:
        lines.append("E.parallel(i)")
    return lines


def elementwise(axes, stage):
    def make(r):
        a, b = axes
        lines = []
        order = r.choice([[a, b], [b, a]])
        kind = r.choice(["flat", "tile", "tile"])
        lanes = r.choice([8, 16, 32, 64])
        if kind == "flat":
            lines.append(f"{stage}.reorder({', '.join(order)})")
            if r.random() < 0.7:
                lines += [f"let o, v = {stage}.split({order[1]}, factor={lanes})",
                          f"{stage}.vectorize(v)"]
            if r.random() < 0.7:
                lines.append(f"{stage}.parallel({order[0]})")
        else:
            p, q = r.choice([8, 16, 32, 64, 128]), r.choice([8, 16, 32, 64])
            lines += [f"let ao, bo, ai, bi = {stage}.tile({a}, {b}, {p}, {q})"]
            outer = r.choice([["ao", "bo"], ["bo", "ao"]])
            inner = r.choice([["ai", "bi"], ["bi", "ai"]])
            lines.append(f"{stage}.reorder({', '.join(outer + inner)})")
            if (p if inner[1] == "ai" else q) <= 64 and r.random() < 0.7:
                lines.append(f"{stage}.vectorize({inner[1]})")
            if r.random() < 0.3:
                lines.append(f"{stage}.unroll({inner[0]})")
            if r.random() < 0.7:
                lines.append(f"{stage}.parallel({outer[0]})")
        return lines
    return make


def matmul_add(r):
    tx, ty = r.choice([1, 2, 4, 6, 8]), r.choice([16, 32, 64])
    lines = [f"let io, jo, ii, ji = out.tile(i, j, {tx}, {ty})"]
    outer = r.choice([["io", "jo"], ["jo", "io"]])
    lines += [f"out.reorder({', '.join(outer + ['ii', 'ji'])})", "out.vectorize(ji)"]
    fused = r.random() < 0.5
    at = outer[1]
    if fused:
        lines += [f"let t = out.fuse({', '.join(outer)})", "out.parallel(t)"]
        at = "t"
    else:
        lines.append(f"out.parallel({outer[0]})")
    lines += [f"matmul.compute_at(out, {at})"]
    lines.append(f"matmul.reorder({r.choice(['k, i, j', 'k, i, j', 'i, k, j'])})")
    lines.append("matmul.vectorize(j)")
    if r.random() < 0.8:
        lines.append("matmul.unroll(i)")
    if r.random() < 0.6:
        lines.append("matmul.set_scope(local)")
    if r.random() < 0.6:
        lines += [f"let panel = B.cache_read(global, [matmul], "
                  f"layout=[ax1 // {ty}, ax0, ax1 % {ty}])",
                  "panel.vectorize(p2)", "panel.parallel(p0)"]
    return lines


def depthwise(r):
    """A tile of rows and columns, the padded image attached to the channel or at root."""
    ti, tw = r.choice([1, 2, 4, 8, 14]), r.choice([8, 16, 28, 32, 64])
    lines = []
    if r.random() < 0.75:
        lines += ["let T = Y.cache_write(local)",
                  f"let io, jo, ii, ji = Y.tile(i, j, {ti}, {tw})", "Y.vectorize(ji)"]
        if r.random() < 0.6:
            lines.append("Y.unroll(ii)")
        order = r.choice(["rkh, rkw, i, j", "i, rkh, rkw, j"])
        lines += ["T.compute_at(Y, jo)", f"T.reorder({order})"]
        for loop in ("rkh", "rkw", "i"):
            if r.random() < 0.6:
                lines.append(f"T.unroll({loop})")
        if r.random() < 0.85:
            lines.append("T.vectorize(j)")
    else:
        order = r.choice(["c, i, rkh, rkw, j", "c, rkh, rkw, i, j", "c, i, j, rkh, rkw"])
        lines.append(f"Y.reorder({order})")
        if order.endswith(" j") and r.random() < 0.7:
            lines += [f"let jo, ji = Y.split(j, factor={tw})", "Y.vectorize(ji)"]
    if r.random() < 0.8:
        lines.append("Y.parallel(c)")
    if r.random() < 0.5:
        lines.append("PaddedX.compute_at(Y, c)")
    elif r.random() < 0.7:
        lines.append("PaddedX.parallel(i0)")
    if r.random() < 0.7:
        lines.append("PaddedX.vectorize(i2)")
    return lines


def sum_rows(r):
    """Partial sums in lanes and vectors, or several rows at once."""
    lines = [f"let block, row = b.split(i, factor={r.choice([1, 4, 8, 16, 64])})"]
    if r.random() < 0.7:
        lines.append("b.parallel(block)")
    how = r.choice(["plain", "rows", "lanes", "vectors", "vectors"])
    if how == "rows":
        lines.append("b.reorder(block, j, row)")
        if r.random() < 0.6:
            lines.append("b.unroll(row)")
    elif how == "lanes":
        lines += [f"let jo, jl = b.split(j, factor={r.choice([8, 16, 32, 64])})",
                  "let L = b.rfactor(jl)", "L.compute_at(b, row)", "L.vectorize(jl)",
                  "L.reorder(jo, jl)"]
    elif how == "vectors":
        lines += [f"let jo, ju, jl = b.split(j, factors=[{r.choice([1, 2, 4, 8, 16])}, 16])",
                  "let L = b.rfactor(jl)", "let V = L.rfactor(ju)", "L.compute_at(b, row)",
                  "V.compute_at(b, row)", "L.reorder(ju, jl)", "L.vectorize(jl)",
                  "V.reorder(jo, ju, jl)", "V.vectorize(jl)"]
        if r.random() < 0.7:
            lines.append("V.unroll(ju)")
    return lines


WORKLOADS = {
    "matmul": ("matmul", "matmul", {"n": 512}, matmul),
    "conv": ("conv", "conv", {"oc": 64, "ic": 64, "nh": 64}, conv),
    "softmax": ("softmax", "softmax", {}, softmax),
    "matmul1024": ("matmul", "matmul", {"n": 1024}, matmul),
    "transpose": ("transpose", "transpose", {}, elementwise(("i", "j"), "b")),
    "depthwise": ("depthwise_conv", "depthwise_conv", {"ic": 128, "nh": 56}, depthwise),
    "sum_rows": ("sum_rows", "sum_rows", {}, sum_rows),
    "matmul_add": ("matmul_add", "matmul_add", {}, matmul_add),
}


def main():
    name = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    sample, kernel, defines, make = WORKLOADS[name]
    r = random.Random(f"{name} {seed}")
    seen = []
    while len(seen) < count:
        lines = make(r)
        if lines not in seen:
            seen.append(lines)
    folder = ROOT / "target" / "rank"
    folder.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "samples" / f"{sample}.te").read_text()
    text = text[:text.index("\nschedule ")].replace(": var", " = 2048")
    for at, lines in enumerate(seen):
        text += f"\nschedule {kernel}.s{at} for cpu {{\n"
        text += "".join(f"    {line}\n" for line in lines) + "}\n"
    path = folder / f"{name}-{seed}.te"
    path.write_text(text)
    program = os.environ.get("RANK", ROOT / "target/release/examples/rank")
    command = [program, path, kernel,
               folder / f"{name}-{seed}.json"]
    for key, value in defines.items():
        command += ["-D", f"{key}={value}"]
    sys.exit(subprocess.run(command + sys.argv[4:]).returncode)


if __name__ == "__main__":
    main()
