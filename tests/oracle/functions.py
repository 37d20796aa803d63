"""Math functions: docs/MATH.md promises a bound in units in the last place, not bits.

Results must lie within the bound of the exact result, and have the same bits in every module. The
reference of float32 is computed in float64, that of float64 with 80 bits (x86).
"""

from __future__ import annotations

import math
import random

import numpy as np

from . import exact
from .call import shown
from .program import E, Input, Kernel, Stage, axis, index, var
from .schedules import Scheduler

BOUNDS = {"exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "rsqrt": 1, "sigmoid": 2, "tanh": 2,
          "erf": 2, "sin": 2, "cos": 2, "tan": 2, "atan": 2, "pow": 4}
ERF = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(x)


def _pow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    # The 80-bit function of some C libraries is wrong for infinite arguments, for which the 64-bit
    # function is exact.
    special = np.isinf(x) | np.isinf(y)
    exact_results = np.power(x.astype(np.float64), y.astype(np.float64))
    return np.where(special, exact_results, np.power(x, y))


FUNCTIONS = {"exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
             "rsqrt": _rsqrt, "sigmoid": _sigmoid, "tanh": np.tanh, "erf": ERF, "sin": np.sin,
             "cos": np.cos, "tan": np.tan, "atan": np.arctan, "pow": _pow}


def program(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """Returns a program that applies one function to one or two inputs."""
    fn = rng.choice(tuple(BOUNDS))
    # Python has no 80-bit error function.
    t = rng.choice(exact.FLOATS if fn != "erf" else ("float32", "float16", "bfloat16"))
    n = var("n") if rng.random() < 0.5 else index(rng.choice((1, 7, 33, 64, 200)))
    m = index(rng.choice((1, 5, 16, 33)))
    at = (axis("i"), axis("j"))
    count = 2 if fn == "pow" else 1
    args = tuple(E("read", t, at, x) for x in "ab"[:count])
    stage = Stage(("c",), (t,), (("i", n), ("j", m)), E(fn, t, args), True)
    names = ("n",) if n.op == "var" else ()
    kernel = Kernel(name, names, tuple(Input(x, t, (n, m)) for x in "ab"[:count]), (), (stage,),
                    function=fn)
    scheduler = Scheduler(kernel, rng)
    scheduler.random()
    return kernel, scheduler


def judge(kernel: Kernel, inputs: dict[str, np.ndarray], got: np.ndarray) -> str:
    """Describes what is wrong with the results of a function; empty if nothing is."""
    t = kernel.stages[0].types[0]
    wide = np.longdouble if t == "float64" else np.float64
    with np.errstate(all="ignore"):
        values = [exact.from_memory(t, inputs[i.name]).astype(wide) for i in kernel.inputs]
        have = exact.from_memory(t, got).astype(wide)
        want = FUNCTIONS[kernel.function](*values)
        # The unit is that of the arithmetic: float32 for the 16-bit types.
        narrow = want.astype(exact.VALUE[t])
        unit = np.spacing(np.where(np.isfinite(narrow), np.abs(narrow), exact.VALUE[t].type(1)))
        slack = unit.astype(wide) * BOUNDS[kernel.function]
        low, high = (exact.store(t, x.astype(exact.VALUE[t])).astype(wide)
                     if t in exact.HALVES else x for x in (want - slack, want + slack))
        near = (have >= low) & (have <= high)
        # Exact zeros and infinities must be equal; near the largest number the bound decides.
        near = np.where(np.isinf(want), have == want, near)
        top = np.finfo(exact.VALUE[t]).max
        near |= np.isinf(have) & (np.sign(have) == np.sign(want)) & (np.abs(want) >= top - slack)
        if t in exact.HALVES:
            near |= np.isinf(have) & (np.isinf(low) | np.isinf(high))
        near = np.where(want == 0, (have == 0) & (np.signbit(have) == np.signbit(want)), near)
        near = np.where(np.isnan(want), np.isnan(have), near)
    if near.all():
        return ""
    at = tuple(int(x) for x in np.argwhere(~near)[0])
    shown_args = ", ".join(shown(t, inputs[i.name][at]) for i in kernel.inputs)
    return (f"{kernel.function}({shown_args}): expected {want[at]} within "
            f"{BOUNDS[kernel.function]} ulp, got {shown(t, got[at])}; {int((~near).sum())} differ")
