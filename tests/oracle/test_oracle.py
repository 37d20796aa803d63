"""Tests the oracle: exact arithmetic against fractions, planted mistakes that must be found."""

from __future__ import annotations

import dataclasses
import pathlib
import random
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from . import build, exact, functions, templates
from .__main__ import Finding, make_calls, run_batch, targets
from .build import Batch
from .call import Call, run_calls
from .evaluate import Rules
from .generate import Generator, floats
from .program import E, Input, Kernel, Reduction, Stage, axis, binary, index, var


def wild(t: str, seed: int, n: int = 4000) -> np.ndarray:
    """Random values of a type, including special ones."""
    return exact.from_memory(t, floats(np.random.default_rng(seed), t, (n,), "wild"))


def rounded(value: Fraction, t: str) -> float:
    """The nearest number of a type, ties to even, in exact arithmetic."""
    digits, least = {"float64": (53, -1074), "float32": (24, -149), "float16": (11, -24),
                     "bfloat16": (8, -133)}[t]
    if value == 0:
        return 0.0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > abs(value):
        exponent -= 1
    unit = Fraction(2) ** max(least, exponent - digits + 1)
    result = round(value / unit) * unit  # `round` of a fraction is to even
    top = {"float64": 1024, "float32": 128, "float16": 16, "bfloat16": 128}[t]
    if abs(result) >= Fraction(2) ** top:
        return float("inf") if result > 0 else float("-inf")
    return float(result)


@pytest.mark.parametrize("t", ["float32", "float64"])
def test_fma_rounds_once(t: str) -> None:
    a, b, c = (wild(t, seed) for seed in range(3))
    # Sums that nearly cancel and halfway cases are rare among random numbers.
    with np.errstate(all="ignore"):
        c[::3] = -(a * b)[::3]
        c[1::5] = np.nextafter(-(a * b)[1::5], np.array(np.inf, c.dtype))
        got = exact.fma(t, a, b, c)
    for x, y, z, have in zip(a, b, c, got):
        if not np.isfinite([x, y, z]).all():
            continue
        want = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert have == rounded(want, t), (x, y, z)


@pytest.mark.parametrize("t", ["float32", "float16", "bfloat16"])
def test_casts_round_once(t: str) -> None:
    values = wild("float64", 3)
    # Values next to the midpoint of two numbers are added.
    with np.errstate(all="ignore"):
        near = wild(t, 4).astype(np.float64)
    with np.errstate(all="ignore"):
        middle = (near + np.nextafter(near, np.inf) * (1 + 2.0**-9)) / 2
        values = np.concatenate([values, near, middle, near * (1 + 2.0**-12)])
        got = exact.cast(values, "float64", t)
    for x, have in zip(values, got):
        if np.isfinite(x):
            assert have == rounded(Fraction(float(x)), t), x
    for kind in ("int64", "uint64", "int32"):
        low, high = exact.limits(kind)
        numbers = np.random.default_rng(5).integers(low, high, 2000, dtype=kind)
        numbers[:500] >>= np.array(40 if kind != "int32" else 8, kind)
        numbers[500:600] = high - np.arange(100).astype(kind)
        for x, have in zip(numbers, exact.cast(numbers, kind, t)):
            assert have == rounded(Fraction(int(x)), t), x


def test_bfloat16_rounds_as_ml_dtypes_does() -> None:
    values = wild("float32", 6)
    with np.errstate(all="ignore"):
        want = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    some = ~np.isnan(values)
    assert (exact.bfloat16_bits(values)[some] == want[some]).all()


@pytest.mark.parametrize("t", exact.FLOATS8)
def test_8_bit_floats_are_those_of_ml_dtypes(t: str) -> None:
    kind = getattr(ml_dtypes, t)
    codes = np.arange(128, dtype=np.uint8).view(kind).astype(np.float64)
    numbers = exact.float8_numbers(t)
    assert np.array_equal(codes[np.isfinite(codes)], numbers)
    values = np.concatenate([wild("float32", 6), numbers, (numbers[1:] + numbers[:-1]) / 2])
    values = values.astype(np.float32)
    values = np.concatenate([values, np.nextafter(values, np.float32(np.inf)), -values])
    with np.errstate(all="ignore"):
        want = values.astype(kind).astype(np.float32)
    got = exact.cast(values, "float32", t)
    assert np.array_equal(got, want, equal_nan=True)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


def test_integer_arithmetic_is_that_of_the_language() -> None:
    a = np.array([-128, -128, 7, -7, 7, -7, 5, 0], np.int8)
    b = np.array([-1, 0, 2, 2, -2, -2, 0, 3], np.int8)
    assert exact.floor_div("int8", a, b).tolist() == [-128, 0, 3, -4, -4, 3, 0, 0]
    assert exact.floor_mod("int8", a, b).tolist() == [0, 0, 1, 1, -1, -1, 0, 0]
    assert exact.shift("int8", ">>", a, np.full(8, 9, np.int8)).tolist()[:2] == [-64, -64]
    wide = np.array([np.nan, 1e30, -1e30, -0.9, 3.99, 255.5], np.float32)
    assert exact.cast(wide, "float32", "uint8").tolist() == [0, 255, 0, 0, 3, 255]
    assert exact.cast(wide, "float32", "int64").tolist() == \
        [0, 2**63 - 1, -2**63, 0, 3, 255]


def fused_sum() -> Kernel:
    """`sum(a[i, k] * b[k])` in float32, whose bits depend on contraction."""
    n = var("n")
    term = binary("*", E("read", "float32", (axis("i"), axis("k")), "a"),
                  E("read", "float32", (axis("k"),), "b"))
    stage = Stage(("c",), ("float32",), (("i", n),), Reduction("sum", (term,), ("k",)), True)
    return Kernel("planted", ("n",), (Input("a", "float32", (n, index(33))),
                                      Input("b", "float32", (index(33),))),
                  (("k", index(0), index(33)),), (stage,))


def elementwise(op: str) -> Kernel:
    """One operation on float32."""
    x = E("read", "float32", (axis("i"),), "a")
    y = E("read", "float32", (axis("i"),), "b")
    body = E(op, "float32", (x,) if op == "neg" else (x, y))
    return Kernel("planted", (), tuple(Input(n, "float32", (index(999),)) for n in "ab"), (),
                  (Stage(("c",), ("float32",), (("i", index(999)),), body, True),))


def outcome(folder: pathlib.Path, kernel: Kernel, rules: Rules, kind: str,
            contract: str = "fast") -> str:
    """Returns the outcome of a call under these rules."""
    batch = Batch(folder, [kernel])
    out = folder / "o.so"
    assert batch.settle(["build"], ("--target", "x86-64", "--fp-contract", contract, "-o",
                                    str(out)))
    call = make_calls(kernel, random.Random(1), True, rules, ({"n": 65}, kind, 9))
    return run_calls(str(out), "o", [call])[0].state


@pytest.mark.parametrize(("kernel", "planted", "kind"), [
    (fused_sum(), "contract", "tame"), (fused_sum(), "order", "tame"),
    (elementwise("max"), "max", "wild"), (elementwise("neg"), "zero", "wild"),
])
def test_planted_mistakes_are_found(tmp_path: pathlib.Path, kernel: Kernel, planted: str,
                                    kind: str) -> None:
    assert outcome(tmp_path, kernel, Rules(True), kind) == "equal"
    rules = Rules(False) if planted == "contract" else Rules(True, planted)
    assert outcome(tmp_path, kernel, rules, kind) == "differs"


def test_a_module_with_the_wrong_contraction_is_found(tmp_path: pathlib.Path) -> None:
    assert outcome(tmp_path, fused_sum(), Rules(True), "tame", "off") == "differs"


C_SOURCE = """
#include <signal.h>
#include <stdint.h>
int32_t planted(float *a, float *b, float *c) { %s return 0; }
"""


@pytest.mark.parametrize(("body", "state"), [
    ("for (int i = 0; i < 999; i++) c[i] = a[i] - b[i];", "equal"),
    ("for (int i = 0; i < 998; i++) c[i] = a[i] - b[i];", "differs"),
    ("for (int i = 0; i < 999; i++) c[i] = a[i] - b[i]; a[3] = 5;", "input"),
    ("for (int i = 0; i < 999; i++) c[i] = a[i] - b[i]; c[-1] = 5;", "outside"),
    ("for (int i = 0; i < 1000; i++) c[i] = a[i] - b[i];", "crash"),
    ("for (volatile int i = 0;; i = i + 1) {}", "crash"),
])
def test_stray_writes_and_crashes_are_found(tmp_path: pathlib.Path, body: str, state: str) -> None:
    source, out = tmp_path / "k.c", tmp_path / "k.so"
    source.write_text(C_SOURCE % body)
    done = build.subprocess.run(["cc", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o",
                                 str(out), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    call = make_calls(elementwise("-"), random.Random(1), False, None, ({}, "tame", 7))
    call.entry = "raw"
    after = dataclasses.replace(call)
    got = run_calls(str(out), "o", [call, after], 2.0)
    assert [x.state for x in got] == [state, state]  # the next call is still made


def test_findings_are_shrunk() -> None:
    kernel = fused_sum()
    extra = Stage(("d",), ("float32",), (("i", var("n")),),
                  E("read", "float32", (axis("i"),), "c"), True)
    kernel = dataclasses.replace(kernel, stages=kernel.stages + (extra,))
    # The evaluation fuses, but the module does not.
    options = ("--target", "x86-64", "--schedule", "s", "--fp-contract", "off")
    found = Finding(kernel, options, "differs", "", "", "", ("dl", "end", ({"n": 65}, "tame", 9)))
    found.judge = True
    less = found.shrunk()
    assert len(less.kernel.stages) == 1
    assert any(f"n': {n}}}" in less.what for n in range(1, 9))


def test_a_function_beyond_its_bound_is_found() -> None:
    x = np.linspace(-3, 3, 35, dtype=np.float32).reshape(7, 5)
    body = E("exp", "float32", (E("read", "float32", (axis("i"), axis("j")), "a"),))
    stage = Stage(("c",), ("float32",), (("i", index(7)), ("j", index(5))), body, True)
    kernel = Kernel("planted", (), (Input("a", "float32", (index(7), index(5))),), (), (stage,),
                    function="exp")
    right = np.exp(x.astype(np.float64)).astype(np.float32)
    assert functions.judge(kernel, {"a": x}, right) == ""
    wrong = right.copy()
    wrong[3, 2] = np.nextafter(np.nextafter(wrong[3, 2], np.float32(9)), np.float32(9))
    assert "1 differ" in functions.judge(kernel, {"a": x}, wrong)
    wrong[3, 2] = np.nan
    assert "1 differ" in functions.judge(kernel, {"a": x}, wrong)


def test_programs_are_the_same_for_a_seed() -> None:
    one, two = (templates.program(random.Random(11), "k") for _ in range(2))
    assert str(one[0]) == str(two[0]) and one[1] == two[1]
    assert str(Generator(random.Random(3), "k").kernel()) != \
        str(Generator(random.Random(4), "k").kernel())


def test_a_batch_of_programs_agrees() -> None:
    tally = run_batch(0, 20, 1, targets())
    assert not tally.findings, "\n".join(map(str, tally.findings))
    # A machine without AVX-512 runs two modules, others three.
    assert tally.calls > 25 * tally.modules and sum(tally.equal.values()) > 10 * tally.modules


def test_a_call_that_must_be_refused_is_refused(tmp_path: pathlib.Path) -> None:
    n = binary("-", var("n"), index(9))
    body = E("read", "float32", (index(0),), "a")
    kernel = Kernel("planted", ("n",), (Input("a", "float32", (var("n"),)),), (),
                    (Stage(("c",), ("float32",), (("i", n),), body, True),))
    batch = Batch(tmp_path, [kernel])
    out = tmp_path / "o.so"
    assert batch.settle(["build"], ("--target", "x86-64", "-o", str(out)))
    call = make_calls(kernel, random.Random(1), False, None, ({"n": 3}, "tame", 7))
    assert call.expected is None
    assert isinstance(call, Call) and run_calls(str(out), "o", [call])[0].state == "equal"
