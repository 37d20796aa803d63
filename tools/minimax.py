#!/usr/bin/env python3
"""Minimax coefficients of `src/lower/expand_math`.

    python3 -m venv /tmp/mm && /tmp/mm/bin/pip install mpmath scipy
    /tmp/mm/bin/python tools/minimax.py            # every polynomial
    /tmp/mm/bin/python tools/minimax.py exp32 ...  # some

A polynomial `sum c_i x^{k_i}` is fitted to `f` so that the largest `weight * |error|` is smallest (a
linear program on a dense grid). The coefficients are rounded to the target type one after the
other, lowest power first, and the rest is fitted again each time, so that later coefficients make
up for the rounding of earlier ones.
Printed: the coefficients, lowest power first, and log2 of the largest weighted error.
"""

import struct
import sys

import numpy as np
from mpmath import mp, mpf
from scipy.optimize import linprog

mp.prec = 200


def round_to(bits, x):
    """`x` rounded to float32 or float64."""
    with mp.workprec(24 if bits == 32 else 53):
        return +mpf(x)


def correct(residual, weight, powers, lo, hi):
    """Coefficients `c` that minimise the largest `weight * |residual - sum c_i x^{k_i}|`."""
    count = 60 * (len(powers) + 2)
    xs = [lo + (hi - lo) * (1 - mp.cos(mp.pi * i / count)) / 2 for i in range(count + 1)]
    ws = [abs(weight(x)) for x in xs]
    rs = [residual(x) for x in xs]
    # A linear program in doubles finds a correction; a few rounds of it give any precision. The
    # columns are x^k T_j, T_j Chebyshev polynomials of the interval, so that it is well scaled.
    first = powers[0]
    chebyshev = [[mpf(1)]]
    a, b = 2 / (hi - lo), -(hi + lo) / (hi - lo)
    if len(powers) > 1:
        chebyshev.append([b, a])
    while len(chebyshev) < len(powers):
        p, q = chebyshev[-1], chebyshev[-2]
        t = [2 * b * c for c in p] + [mpf(0)]
        for i, c in enumerate(p):
            t[i + 1] += 2 * a * c
        chebyshev.append([c - (q[i] if i < len(q) else 0) for i, c in enumerate(t)])
    columns = [[sum(c * x**i for i, c in enumerate(t)) * x**first for x in xs] for t in chebyshev]
    total = [mpf(0)] * len(powers)
    for _ in range(4):
        scale = max(abs(w * r) for w, r in zip(ws, rs))
        if scale == 0:
            break
        n = len(powers)
        matrix = np.array([[float(w * c[i]) for c in columns] for i, w in enumerate(ws)])
        norms = np.abs(matrix).max(axis=0)
        target = np.array([float(w * r / scale) for w, r in zip(ws, rs)])
        ones = np.ones((len(xs), 1))
        upper = np.vstack([np.hstack([matrix / norms, -ones]), np.hstack([-matrix / norms, -ones])])
        result = linprog(
            [0] * n + [1],
            A_ub=upper,
            b_ub=np.concatenate([target, -target]),
            bounds=[(None, None)] * n + [(0, None)],
        )
        step = [mpf(float(v)) / float(norm) * scale for v, norm in zip(result.x[:n], norms)]
        for s, t in zip(step, chebyshev):
            for i, c in enumerate(t):
                total[i] += s * c
        rs = [r - sum(s * c[i] for s, c in zip(step, columns)) for i, r in enumerate(rs)]
        if result.x[n] > 0.9:
            break
    return total


def fit(name, bits, f, weight, powers, lo, hi, fixed=()):
    """Rounded coefficients, of which `fixed` are given."""
    lo, hi = mpf(lo), mpf(hi)
    done = [mpf(c) for c in fixed]
    while len(done) < len(powers):
        rest = powers[len(done) :]

        def left(x):
            return f(x) - sum(c * x**k for c, k in zip(done, powers))

        done.append(round_to(bits, correct(left, weight, rest, lo, hi)[0]))
    worst = max(
        abs((f(x) - sum(c * x**k for c, k in zip(done, powers))) * weight(x))
        for x in (lo + (hi - lo) * i / 2000 for i in range(2001))
    )
    kind = "f" if bits == 32 else "d"
    shown = [shortest(struct.unpack(kind, struct.pack(kind, float(c)))[0], kind) for c in done]
    span = f"powers {powers[0]}..{powers[-1]} on [{mp.nstr(lo, 6)}, {mp.nstr(hi, 6)}]"
    print(f"{name}: {span}, error 2^{mp.nstr(mp.log(worst, 2), 5)}")
    for text in shown:
        print(f"    {text},")
    return done


def shortest(value, kind):
    """The shortest decimal that rounds to `value`."""
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if struct.unpack(kind, struct.pack(kind, float(text)))[0] == value:
            return text if "." in text or "e" in text else text + ".0"
    return repr(value)


def split(name, bits, x, keep):
    """A constant as a part with `keep` significant bits, then parts of the full type."""
    x = mpf(x)
    with mp.workprec(keep):
        hi = +x
    parts = [hi, round_to(bits, x - hi)]
    parts.append(round_to(bits, x - parts[0] - parts[1]))
    print(f"{name}: " + ", ".join(shortest(float(p), "d") for p in parts))


def one(_):
    return mpf(1)


def relative(f):
    return lambda x: 1 / f(x)


def safe(f, at_zero):
    """`f`, with its limit at (or next to) zero."""
    return lambda x: mpf(at_zero) if abs(x) < mpf(2) ** -60 else f(x)


def expm1_part(x):
    """(e^x - 1 - x) / x^2."""
    return safe(lambda t: (mp.expm1(t) - t) / t**2, 0.5)(x)


def log1p_part(x):
    """(log(1+x) - x) / x^2."""
    return safe(lambda t: (mp.log1p(t) - t) / t**2, -0.5)(x)


LN2 = mp.ln2
HALF_LN2 = mpf("0.3467")
QUARTER = mp.pi / 4 + mpf(2) ** -20
ROOT = (mpf("0.7071") - 1, mpf("1.41422") - 1)


def rel_exp(x):
    return x**2 / mp.exp(x)


def rel_expm1(x):
    return safe(lambda t: t**2 / mp.expm1(t), 0)(x)


def rel_log1p(x):
    return safe(lambda t: t**2 / mp.log1p(t), 0)(x)


def odd_part(function, limit):
    """(f(y) - y) / y^3 as a function of z = y^2."""
    return safe(lambda z: (function(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3, limit)


def rel_odd(function):
    """The weight that makes the error of `odd_part` relative to f."""
    return safe(lambda z: mp.sqrt(z) ** 3 / function(mp.sqrt(z)), 0)


cos_part = safe(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24)


def rel_cos(z):
    return z**2 / mp.cos(mp.sqrt(z))


def count(n):
    return list(range(n))


JOBS = {
    "exp32": lambda: fit("exp32", 32, expm1_part, rel_exp, count(5), -HALF_LN2, HALF_LN2),
    "expm1_32": lambda: fit("expm1_32", 32, expm1_part, rel_expm1, count(5), -HALF_LN2, HALF_LN2),
    "exp2_32": lambda: fit(
        "exp2_32", 32, safe(lambda x: (mpf(2) ** x - 1) / x, LN2), lambda x: x / mpf(2) ** x,
        count(6), -0.5, 0.5,
    ),
    "log32": lambda: fit("log32", 32, log1p_part, rel_log1p, count(9), *ROOT),
    "log2_32": lambda: fit(
        "log2_32", 32, lambda x: log1p_part(x) / LN2, lambda x: rel_log1p(x) * LN2, count(9), *ROOT
    ),
    "sin32": lambda: fit(
        "sin32", 32, odd_part(mp.sin, mpf(-1) / 6), rel_odd(mp.sin), count(3), 0, QUARTER**2
    ),
    "cos32": lambda: fit("cos32", 32, cos_part, rel_cos, count(3), 0, QUARTER**2),
    "atan32": lambda: fit(
        "atan32", 32, odd_part(mp.atan, mpf(-1) / 3), rel_odd(mp.atan), count(8), 0, 1
    ),
}

if __name__ == "__main__":
    for job in sys.argv[1:] or JOBS:
        JOBS[job]()
