"""Bit-exact arithmetic on NumPy arrays, rounded as docs/LANGUAGE.md specifies.

Values of `float16` and `bfloat16` are arrays of float32: these are storage types, and arithmetic on
them happens in float32. `store` rounds to the type once. `index` is int64.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

FLOATS = ("float64", "float32", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = SIGNED + UNSIGNED
TYPES = FLOATS + INTS + ("bool",)

# The types that are cast before anything is computed: values of int4 are int8, those of uint4
# uint8, those of 8-bit floats float32. Bits of the exponent and of the fraction, and whether the
# largest exponent is that of infinity and NaN (OCP FP8).
NIBBLES = {"int4": "int8", "uint4": "uint8"}
FLOATS8 = {"float8_e4m3fn": (4, 3, False), "float8_e5m2": (5, 2, True)}
QUANTIZED = (*NIBBLES, *FLOATS8)

# The type of values of each type during computations.
VALUE = {t: np.dtype(t) for t in ("float64", "float32", "bool") + INTS}
VALUE |= {"float16": np.dtype("float32"), "bfloat16": np.dtype("float32")}
VALUE["index"] = np.dtype("int64")
# Their type in memory; a bfloat16 as its bits.
MEMORY = VALUE | {"float16": np.dtype("float16"), "bfloat16": np.dtype("uint16")}


def dense(x: np.ndarray, kind: type | None = None) -> np.ndarray:
    """An array in memory order, of the same rank (rank 0 too)."""
    return np.asarray(x, kind, order="C")


def width(t: str) -> int:
    """The bits of a type."""
    return MEMORY[t].itemsize * 8


def limits(t: str) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    info = np.iinfo(VALUE[t])
    return int(info.min), int(info.max)


def bfloat16_bits(x: np.ndarray) -> np.ndarray:
    """The bits of float32 values rounded to bfloat16, to nearest even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = (bits >> 16) | 0x40
    return np.where(np.isnan(x), nan, rounded).astype(np.uint16)


def from_memory(t: str, array: np.ndarray) -> np.ndarray:
    """Converts elements in memory to values."""
    if t == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).reshape(array.shape)
    if t == "bool":  # any byte but 0 is true
        return array.view(np.uint8) != 0
    return array.astype(VALUE[t])


def to_memory(t: str, value: np.ndarray) -> np.ndarray:
    """Converts values to elements in memory, rounded once."""
    value = np.asarray(value, order="C")
    if t == "bfloat16":
        return bfloat16_bits(value).reshape(value.shape)
    with np.errstate(all="ignore"):
        return value.astype(MEMORY[t])


def store(t: str, value: np.ndarray) -> np.ndarray:
    """Rounds values to the element type; returns values."""
    return from_memory(t, to_memory(t, value)) if t in HALVES else value.astype(VALUE[t])


def _towards(x: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Turns float64 sums `x`, rounded to nearest with an exact `error`, into sums rounded to odd.

    An inexact sum lies between `x` and its neighbour on the side of the error; of these two the
    one with an odd significand is the result.
    """
    even = (x.view(np.uint64) & 1) == 0
    move = even & (error != 0) & np.isfinite(x) & np.isfinite(error)
    return np.where(move, np.nextafter(x, np.where(error > 0, np.inf, -np.inf)), x)


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and its exact error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """`a*b + c` of float32, rounded once.

    The product is exact in float64 (48 bits, exponents from -298 to 256). The sum is rounded to odd
    in float64; 53 bits are more than 24 + 2, so that rounding it to float32 rounds only once.
    """
    p = a.astype(np.float64) * b.astype(np.float64)
    s, e = two_sum(p, c.astype(np.float64))
    s, e = np.broadcast_arrays(s, e)
    return _towards(dense(s), e).astype(np.float32)


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded product and its exact error (Dekker), for exponents far from the limits."""
    def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = 134217729.0 * x
        high = t - (t - x)
        return high, x - high

    p = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _rounded(x: Fraction) -> float:
    """Rounds a fraction other than 0 to float64, to nearest even, with overflow."""
    try:
        return x.numerator / x.denominator
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """`a*b + c` of float64, rounded once.

    Between 2^-200 and 2^200 by Boldo and Melquiond's emulation (error-free product and sums, the
    low parts added with rounding to odd); elsewhere by exact fractions.
    """
    a, b, c = (dense(x, np.float64) for x in np.broadcast_arrays(a, b, c))
    uh, ul = _two_product(a, b)
    th, tl = two_sum(c, ul)
    vh, vl = two_sum(uh, th)
    z, e = two_sum(tl, vl)
    result = vh + _towards(z, e)

    def plain(x: np.ndarray) -> np.ndarray:
        return (np.abs(x) > 2.0**-200) & (np.abs(x) < 2.0**200)

    # A product that is 0, infinite or NaN is exact, so one addition rounds once. An infinity or
    # NaN added to a finite product is the result, even if the product overflows.
    special = (a == 0) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b)
    result = np.where(special, a * b + c, result)
    added = ~special & ~np.isfinite(c)
    result, special = np.where(added, c, result), special | added
    hard = ~special & ~(plain(a) & plain(b) & (plain(c) | (c == 0)))
    for at in np.argwhere(hard):
        at = tuple(at)
        exact = Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at]))
        # A sum of -0 needs a zero product, which is special.
        result[at] = _rounded(exact) if exact else 0.0
    return result


def fma(t: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """`a*b + c` in the arithmetic of `t`, rounded once."""
    return fma64(a, b, c) if t == "float64" else fma32(a, b, c)


def tf32(x: np.ndarray) -> np.ndarray:
    """Rounds to ten bits of significand, ties away from zero; NaN and infinity stay."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(x), rounded, x).astype(np.float32)


def floor_div(t: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`//` towards minus infinity; x // 0 is 0; the least integer // -1 is itself."""
    a, b = np.broadcast_arrays(a, b)
    safe = np.where(b == 0, 1, b).astype(VALUE[t])
    if t in UNSIGNED:
        return np.where(b == 0, 0, a // safe).astype(VALUE[t])
    minus = safe == -1
    quotient = np.where(minus, -a, a // np.where(minus, 1, safe).astype(VALUE[t]))
    return np.where(b == 0, 0, quotient).astype(VALUE[t])


def floor_mod(t: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`%` with the sign of the divisor; x % 0 is 0."""
    a, b = np.broadcast_arrays(a, b)
    none = (b == 0) if t in UNSIGNED else (b == 0) | (b == -1)
    safe = np.where(none, 1, b).astype(VALUE[t])
    return np.where(none, 0, a % safe).astype(VALUE[t])


def shift(t: str, op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`<<` and `>>` by the amount modulo the width; `>>` keeps the sign of signed types."""
    amount = (b & VALUE[t].type(width(t) - 1)).astype(VALUE[t])
    return (a << amount if op == "<<" else a >> amount).astype(VALUE[t])


def popcount(t: str, x: np.ndarray) -> np.ndarray:
    """The number of bits that are one, in the same type."""
    return np.bitwise_count(x.view(f"uint{width(t)}")).astype(VALUE[t])


def greatest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`max(a, b)` is `if a > b then a else b`, for NaN and signed zeros too."""
    return np.where(a > b, a, b)


def least(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`min(a, b)` is `if a < b then a else b`."""
    return np.where(a < b, a, b)


def _odd_float64(x: np.ndarray) -> np.ndarray:
    """Rounds 64-bit integers to odd float64: the 53 top bits and a sticky bit."""
    magnitude = x.astype(np.uint64) if x.dtype.kind == "u" else np.abs(x).astype(np.uint64)
    rest = magnitude & np.uint64(0x7FF)
    big = magnitude >= np.uint64(1 << 53)
    sticky = (magnitude - rest) | ((rest != 0).astype(np.uint64) << np.uint64(11))
    value = np.where(big, sticky, magnitude).astype(np.float64)
    return np.where(x < 0, -value, value) if x.dtype.kind == "i" else value


def _odd_float32(x: np.ndarray) -> np.ndarray:
    """Rounds float64 to odd float32; an overflow gives the largest number or infinity."""
    x = dense(x, np.float64)
    near = x.astype(np.float32)
    # Round towards zero, then set the last bit of inexact results.
    over = np.abs(near.astype(np.float64)) > np.abs(x)
    cut = np.where(over, np.nextafter(near, np.float32(0)), near).astype(np.float32)
    inexact = (cut.astype(np.float64) != x) & ~np.isnan(x)
    bits = dense(cut).view(np.uint32) | inexact.astype(np.uint32)
    # A result of zero has the sign of the number.
    sign = (x.view(np.uint64) >> np.uint64(63)).astype(np.uint32) << np.uint32(31)
    return np.where(np.isnan(x), near, (bits | sign).view(np.float32)).astype(np.float32)


def float8_numbers(t: str) -> np.ndarray:
    """The positive finite numbers of an 8-bit float type, and 0, in the order of their codes."""
    exponent_bits, fraction_bits, special = FLOATS8[t]
    bias = 2**(exponent_bits - 1) - 1
    numbers = []
    for code in range(128):
        exponent, fraction = code >> fraction_bits, code % 2**fraction_bits
        largest = 2**exponent_bits - 1
        if exponent == largest and (special or fraction == 2**fraction_bits - 1):
            break
        if exponent:
            value = Fraction(2)**(exponent - bias) * (1 + Fraction(fraction, 2**fraction_bits))
        else:
            value = Fraction(2)**(1 - bias) * Fraction(fraction, 2**fraction_bits)
        numbers.append(float(value))
    return np.array(numbers)


def float8(x: np.ndarray, t: str) -> np.ndarray:
    """Rounds numbers to an 8-bit float type: the nearest one, or of two the one with an even code.

    Numbers are compared as float64: integers beyond 2^53 are far beyond the largest number.
    """
    x = np.asarray(x).astype(np.float64)
    numbers = float8_numbers(t)
    # The number after the largest one would be the next with these steps.
    steps = np.append(numbers, 2 * numbers[-1] - numbers[-2])
    size = np.where(np.isnan(x), 0, np.minimum(np.abs(x), steps[-1]))
    high = np.minimum(np.searchsorted(steps, size), len(steps) - 1)
    low = np.maximum(high - 1, 0)
    up, down = steps[high] - size, size - steps[low]
    code = np.where((up < down) | ((up == down) & (high % 2 == 0)), high, low)
    beyond = np.inf if FLOATS8[t][2] else np.nan
    value = np.where(code == len(numbers), beyond, numbers[np.minimum(code, len(numbers) - 1)])
    return np.where(np.isnan(x), np.nan, np.copysign(value, x)).astype(np.float32)


def nibble(x: np.ndarray, source: str, target: str) -> np.ndarray:
    """`x as target` for 4 bits: integers drop bits, floats truncate and saturate."""
    low, high = (-8, 7) if target == "int4" else (0, 15)
    if source in FLOATS:
        wide = x.astype(np.float64)
        whole = np.clip(np.trunc(np.where(np.isnan(wide), 0, wide)), low, high)
        return whole.astype(VALUE[NIBBLES[target]])
    bits = x.astype(np.uint8) & 15
    if target == "int4":
        return ((bits ^ 8).astype(np.int16) - 8).astype(np.int8)
    return bits


def cast(x: np.ndarray, source: str, target: str) -> np.ndarray:
    """`x as target`."""
    source = NIBBLES.get(source, "float32" if source in FLOATS8 else source)
    if target in FLOATS8:
        return float8(x, target)
    if target in NIBBLES:
        return nibble(x, source, target)
    if target == "bool":
        return x != 0
    if source in INTS + ("bool", "index"):
        if target not in FLOATS:
            return x.astype(VALUE[target])
        if target == "float64":
            return x.astype(np.float64)
        if source == "bool" or width(source) <= 16:
            return store(target, x.astype(np.float32))
        if width(source) == 32:
            return from_float64(x.astype(np.float64), target)
        return from_float64(_odd_float64(dense(x)), target)
    if target in FLOATS:
        if source == "float64" and target != "float64":
            return from_float64(x, target)
        return x.astype(np.float64) if target == "float64" else store(target, x)
    # Float to integer: truncated, saturated, NaN becomes 0.
    target = "int64" if target == "index" else target
    low, high = limits(target)
    wide = x.astype(np.float64)
    # Numbers from `high + 1` on, a power of two, saturate.
    inside = (wide > low - 1 if width(target) < 64 else wide >= low) & (wide < float(high + 1))
    whole = np.trunc(np.where(inside, wide, 0)).astype(VALUE[target])
    kind = VALUE[target].type
    result = np.where(inside, whole, np.where(wide < 0, kind(low), kind(high)))
    return np.where(np.isnan(wide), kind(0), result)


def from_float64(x: np.ndarray, target: str) -> np.ndarray:
    """Rounds float64 once to `target`, to nearest even; returns a value of it."""
    x = dense(x, np.float64)
    if target == "float32":
        return x.astype(np.float32)
    # After rounding to odd with 24 bits, rounding to 11 or 8 bits rounds only once.
    return store(target, _odd_float32(x))


def constant(value: Fraction, t: str) -> np.ndarray:
    """Rounds a constant to the arithmetic type of `t`: float32 for the 16-bit floats."""
    if t not in FLOATS:
        return np.array(int(value), VALUE[t])
    if t == "float64":
        return np.array(_rounded(value) if value else 0.0)
    return np.array(fraction_to_float32(value), np.float32)


def fraction_to_float32(value: Fraction) -> float:
    """Rounds a fraction to float32, to nearest even (by rounding to odd in float64 first)."""
    if not value:
        return 0.0
    near = np.array(_rounded(value))
    if np.isinf(near):
        return float(near)
    rest = value - Fraction(float(near))
    error = np.array(float((rest > 0) - (rest < 0)))
    return float(_towards(near, error).astype(np.float32))


def reciprocal(value: np.ndarray, t: str) -> np.ndarray | None:
    """Returns the factor that replaces a division by a constant under `--fp-contract fast`; none
    unless both are normal numbers."""
    with np.errstate(all="ignore"):
        by = VALUE[t].type(1) / value
    least = np.finfo(VALUE[t]).tiny
    normal = all(np.isfinite(x) and abs(x) >= least for x in (value, by))
    return by if normal else None
