"""Recurrences along two axes under skews, tiles and other orders of their steps.

The judge computes the cells one by one in the order of docs/LANGUAGE.md. It shares no code with the
compiler: an order that runs a step before one that it reads gives other numbers.
"""

import random

import numpy as np
import pytest
import tvm_ffi

from conftest import run_tec

TYPES = {"int32": np.int32, "uint8": np.uint8, "int64": np.int64, "float32": np.float32}
# Distances along both axes of the steps, from the current step back.
DISTANCES = [(1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (1, -1), (1, -2), (2, -1), (1, 2), (3, 1)]


def reads(rng):
    """Returns two or three distances; in half of the cases none is negative."""
    forward = [one for one in DISTANCES if one[1] >= 0]
    return rng.sample(forward if rng.random() < 0.5 else DISTANCES, rng.choice((2, 3)))


def orders(rng, stages, lanes):
    """Returns the statements of one order of the steps, for each stage the same ones."""
    factor = rng.choice((1, 1, 2, 3, 4))
    a, b = rng.choice((1, 2, 5, 8, 16)), rng.choice((1, 3, 4, 8, 32))
    kind = rng.randrange(6)
    lines = []
    for stage in stages:
        w, p, o, q = (part + stage for part in "wpoq")
        if kind == 0:
            lines += [f"let {w}, {p} = {stage}.skew(i, j, factor={factor})"]
            lines += [f"let {o}, {q} = {stage}.split({p}, factor={lanes})"]
            lines += [f"{stage}.vectorize({q})"]
        elif kind == 1:
            lines += [f"let {w}, {p} = {stage}.skew(j, i, factor={factor})"]
            lines += [f"{stage}.parallel({p})"]
        elif kind == 2:
            lines += [f"let x{stage}, y{stage}, u{stage}, v{stage} = {stage}.tile(i, j, {a}, {b})"]
            lines += [f"let {w}, {p} = {stage}.skew(x{stage}, y{stage})", f"{stage}.parallel({p})"]
        elif kind == 3:
            lines += [f"let {w}, {p} = {stage}.skew(i, j, factor={factor})"]
            lines += [f"let {o}, {q}, x{stage}, y{stage} = {stage}.tile({p}, {w}, {a}, {b})"]
        elif kind == 4:
            lines += [f"{stage}.reorder(j, i)"]
        else:
            lines += [f"let {w}, {p} = {stage}.skew(i, j, factor={factor})"]
            lines += [f"let {o}, {q} = {stage}.split({w}, factor={a})", f"{stage}.parallel({p})"]
    return lines


def term(stage, ty, distance, start):
    """Returns the text of a read at a distance, with a start value where it leaves the table."""
    conditions, indices = [], []
    for axis, extent, back in (("i", "n", distance[0]), ("j", "m", distance[1])):
        if back > 0:
            conditions.append(f"{axis} >= {back}")
        elif back < 0:
            conditions.append(f"{axis} + {-back} < {extent}")
        indices.append(axis if back == 0 else f"{axis} {'-' if back > 0 else '+'} {abs(back)}")
    read = f"{stage}[{', '.join(indices)}]"
    return f"(if all({', '.join(conditions)}) then {read} else {start} as {ty})"


def expected(x, ty, distances, two):
    """Returns the tables D and E, cell by cell."""
    n, m = x.shape
    d, e = np.zeros((n, m), ty), np.zeros((n, m), ty)

    def at(table, i, j, distance, start):
        row, column = i - distance[0], j - distance[1]
        inside = 0 <= row < n and 0 <= column < m
        return table[row, column] if inside else ty(start)

    with np.errstate(over="ignore"):
        for i in range(n):
            for j in range(m):
                if two:
                    e[i, j] = ty(x[i, j] - at(d, i, j, distances[0], 2))
                value = ty(x[i, j] + at(d, i, j, distances[0], 1))
                for back in distances[1:]:
                    value = max(value, at(e if two else d, i, j, back, 3))
                d[i, j] = ty(value + e[i, j]) if two else value
    return d, e


@pytest.mark.parametrize("seed", range(48))
def test_orders_of_steps(tmp_path, seed):
    rng = random.Random(seed)
    name = rng.choice(sorted(TYPES))
    ty, two, distances = TYPES[name], rng.random() < 0.4, reads(rng)
    keep = rng.random() < 0.5
    stages = ["E", "D"] if two else ["D"]
    value = f"x[i, j] + {term('D', name, distances[0], 1)}"
    for back in distances[1:]:
        value = f"max({value}, {term('E' if two else 'D', name, back, 3)})"
    first = f"compute E[i, j]: {name} = x[i, j] - {term('D', name, distances[0], 2)}"
    text = f"""
kernel table(n: var, m: var) {{
    input x: {name}[n, m]
    scan i: n, j: m {{
        {first if two else ''}
        {'output' if keep else 'compute'} D[i, j]: {name} = {'E[i, j] + ' if two else ''}({value})
    }}
    output last[z: 1] = if all(n > 0, m > 0) then D[n - 1, m - 1] else 0 as {name}
}}
schedule table.some {{
"""
    lines = orders(rng, stages, rng.choice((4, 8, 16)))
    source = tmp_path / "table.te"
    source.write_text(text + "\n".join(lines) + "\n}\n")
    module = tmp_path / "table.so"
    done = run_tec("build", source, "--schedule", "some", "-o", module)
    if done.returncode != 0:
        # The order is refused where a step would run before one that it reads. The default runs.
        assert "E0399" in done.stderr, done.stderr
        done = run_tec("build", source, "--schedule", "default", "-o", module)
        assert done.returncode == 0, done.stderr
    table = tvm_ffi.load_module(str(module))
    numbers = np.random.default_rng(seed)
    for n, m in [(0, 4), (3, 0), (1, 1), (7, 5), (33, 20), (20, 41)]:
        x = numbers.integers(0, 200, (n, m)).astype(ty)
        d, _ = expected(x, ty, distances, two)
        outputs = [np.full((n, m), 77, ty)] if keep else []
        last = np.full(1, 77, ty)
        table.table(x, *outputs, last)
        for output in outputs:
            np.testing.assert_array_equal(output, d)
        np.testing.assert_array_equal(last, d[-1:, -1] if n and m else np.zeros(1, ty))
