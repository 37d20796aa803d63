#!/usr/bin/env python3
"""Computes the minimax coefficients of `src/lower/expand_math`.

    python3 -m venv target/mm && target/mm/bin/pip install mpmath scipy
    target/mm/bin/python tools/minimax.py            # every polynomial
    target/mm/bin/python tools/minimax.py exp32 ...  # some

A polynomial `sum c_i x^{k_i}` is fitted to `f` so that the largest `weight * |error|` is smallest
(a linear program on a dense grid). The coefficients are rounded to the target type one after the
other, lowest power first, and the others are fitted again each time, so that they compensate for
the rounding. Prints the coefficients, lowest power first, and log2 of the largest weighted error.
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
    # A linear program in doubles finds a correction; a few rounds reach the full precision. Its
    # columns are x^k T_j, with T_j Chebyshev polynomials of the interval, which are well scaled.
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
    """Fits and rounds the coefficients; the first ones are `fixed`."""
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
    """Splits a constant into a part with `keep` significant bits and parts of the full type."""
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
THIRDS = (mpf(-1) / 3 - mpf(2) ** -20, mpf(1) / 3 + mpf(2) ** -20)


def rel_exp(x):
    return x**2 / mp.exp(x)


def rel_expm1(x):
    return safe(lambda t: t**2 / mp.expm1(t), 0)(x)


def log2_part(x):
    """(log2(1+x) - x) / x."""
    return safe(lambda t: mp.log1p(t) / LN2 / t - 1, 1 / LN2 - 1)(x)


def rel_log2(x):
    return safe(lambda t: t * LN2 / mp.log1p(t), LN2)(x)


def erfc_root(x):
    return mp.sqrt(mp.sqrt(mp.erfc(x)))


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


ERFC_CENTRE = mpf("2.5")
ERF_LIMIT = mpf("1.1")
TANH_LIMIT = mpf("0.55") ** 2
ATAN_STEP = (mpf(7) / 16) ** 2
LOG_STEP = mpf("0.0137")
S = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)


def exp2_part(x):
    """(2^x - 1) / x."""
    return safe(lambda t: (mpf(2) ** t - 1) / t, LN2)(x)


def rel_exp2(x):
    return x / mpf(2) ** x


def erf_row(k):
    """erf(k/4 + t) for |t| <= 1/8: value, its tail, then the coefficients of t, t^2, …"""
    x = mpf(k) / 4
    h = mpf(1) / 8
    value = round_to(64, mp.erf(x))
    tail = round_to(64, mp.erf(x) - value)
    if k == 0:
        f = safe(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z), 2 / mp.sqrt(mp.pi))
        w = safe(lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)), mp.sqrt(mp.pi) / 2)
        odd = fit("erf_row 0", 64, f, w, count(7), 0, h * h)
        return [value, tail] + [c for o in odd for c in (o, mpf(0))][:13]
    f = safe(lambda t: (mp.erf(x + t) - value - tail) / t, 2 / mp.sqrt(mp.pi) * mp.exp(-x * x))
    return [value, tail] + fit(
        f"erf_row {k}", 64, f, lambda t: abs(t) / mp.erf(x + t), count(13), -h, h
    )


def erf_table():
    for k in range(25):
        print("    " + ", ".join(shortest(float(c), "d") for c in erf_row(k)) + ",")


def log_table():
    """For each 64th of an octave: 1/c, -log(1/c) rounded to multiples of 2^-42, the remainder."""
    first = 0x3FF0000000000000 - (1 << 45) - 37 * (1 << 46)
    print(f"bits of the first mantissa: {first:#x}")
    largest = 0
    for i in range(64):
        ends = [struct.pack("Q", first + j * (1 << 46)) for j in (i, i + 1)]
        lo, hi = (struct.unpack("d", end)[0] for end in ends)
        middle = 1.0 if lo <= 1 < hi else (lo + hi) / 2
        grid = 64 if hi <= 1 else 128
        inverse = mpf(mp.nint(grid / mpf(middle))) / grid
        value = -mp.log(inverse)
        top = mp.nint(value * mpf(2) ** 42) / mpf(2) ** 42
        rest = round_to(64, value - top)
        largest = max(largest, abs(lo * inverse - 1), abs(hi * inverse - 1))
        print(f"    [{float(inverse)!r}, {float(top)!r}, {float(rest)!r}],")
    print("largest |r|:", mp.nstr(largest, 5))


def two_over_pi():
    """The first 1280 bits of 2/pi after the binary point, in words of 64 bits."""
    with mp.workprec(1400):
        digits = int(mp.floor(2 / mp.pi * mpf(2) ** 1280))
    for i in range(20):
        print(f"    {digits >> (64 * (19 - i)) & (2**64 - 1):#018x},")


def constants():
    split("ln 2, Float32, 15 bits", 32, LN2, 15)
    split("ln 2, Float32", 32, LN2, 24)
    split("ln 2, Float64, 42 bits", 64, LN2, 42)
    split("ln 2, Float64", 64, LN2, 53)
    split("log2 e, Float32", 32, 1 / LN2, 24)
    split("log2 e, Float64", 64, 1 / LN2, 53)
    split("pi/2, Float32", 32, mp.pi / 2, 24)
    split("pi/2, Float64", 64, mp.pi / 2, 53)
    for name, x in (("1/2", mpf(1) / 2), ("1", 1), ("3/2", mpf(3) / 2)):
        split(f"atan {name}", 64, mp.atan(x), 53)


ANGLE = (0, QUARTER**2)


def job(*args, **keywords):
    return lambda: fit(*args, **keywords)


JOBS = {
    "sigmoid32": job(
        "sigmoid32", 32, expm1_part, rel_expm1, count(5), -HALF_LN2, HALF_LN2, fixed=[0.5]
    ),
    "expm1_32": job(
        "expm1_32", 32, expm1_part, rel_expm1, count(6), -HALF_LN2, HALF_LN2, fixed=[0.5]
    ),
    "exp2_32": job("exp2_32", 32, exp2_part, rel_exp2, count(6), -0.5, 0.5),
    "exp32": job("exp32", 32, expm1_part, rel_exp, count(5), -HALF_LN2, HALF_LN2),
    "log32": job("log32", 32, log1p_part, rel_log1p, count(9), *THIRDS, fixed=[-0.5]),
    "log2_32": job("log2_32", 32, log2_part, rel_log2, count(10), *ROOT),
    "tanh32": job(
        "tanh32", 32, odd_part(mp.tanh, mpf(-1) / 3), rel_odd(mp.tanh), count(4), 0, TANH_LIMIT
    ),
    "sin32": job("sin32", 32, odd_part(mp.sin, mpf(-1) / 6), rel_odd(mp.sin), count(3), *ANGLE),
    "cos32": job("cos32", 32, cos_part, rel_cos, count(3), *ANGLE),
    "tan32": job("tan32", 64, odd_part(mp.tan, mpf(1) / 3), rel_odd(mp.tan), count(8), *ANGLE),
    "atan32": job("atan32", 32, odd_part(mp.atan, mpf(-1) / 3), rel_odd(mp.atan), count(8), 0, 1),
    "erf32": job(
        "erf32", 32, safe(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, 2 / mp.sqrt(mp.pi) - 1),
        safe(lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)), mp.sqrt(mp.pi) / 2), count(7),
        0, ERF_LIMIT**2,
    ),
    "erfc32": job(
        "erfc32", 32, lambda t: erfc_root(t + ERFC_CENTRE),
        lambda t: 4 * erfc_root(t + ERFC_CENTRE) ** 3, count(8),
        ERF_LIMIT - ERFC_CENTRE, 4 - ERFC_CENTRE,
    ),
    "pow32_log2": job(
        "pow32_log2", 64, safe(lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) / LN2, 2 / LN2),
        safe(lambda z: mp.sqrt(z) / mp.atanh(mp.sqrt(z)), 1), count(6), 0, S**2 * mpf("1.001"),
    ),
    "pow32_exp2": job("pow32_exp2", 64, exp2_part, rel_exp2, count(7), -0.5, 0.5),
    "expm1_64": job(
        "expm1_64", 64, expm1_part, rel_expm1, count(11), -HALF_LN2, HALF_LN2, fixed=[0.5]
    ),
    "exp2_64": job(
        "exp2_64", 64, safe(lambda x: (mpf(2) ** x - 1 - x * LN2) / x**2, LN2**2 / 2),
        lambda x: x * x / mpf(2) ** x, count(10), -0.5, 0.5,
    ),
    "log64": job(
        "log64", 64, safe(lambda r: (mp.log1p(r) - r + r * r / 2) / r**3, mpf(1) / 3),
        safe(lambda r: abs(r**3 / mp.log1p(r)), 0), count(8), -LOG_STEP, LOG_STEP,
    ),
    "sin64": job("sin64", 64, odd_part(mp.sin, mpf(-1) / 6), rel_odd(mp.sin), count(6), *ANGLE),
    "cos64": job("cos64", 64, cos_part, rel_cos, count(6), *ANGLE),
    "atan64": job(
        "atan64", 64, odd_part(mp.atan, mpf(-1) / 3), rel_odd(mp.atan), count(11), 0, ATAN_STEP
    ),
    "erf_table": erf_table,
    "log_table": log_table,
    "two_over_pi": two_over_pi,
    "constants": constants,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or JOBS:
        JOBS[name]()
