"""Evaluates programs: every element of every output, from docs/LANGUAGE.md alone.

Expressions are evaluated for all points of a stage at once, reductions term after term in the
lexicographic order of their axes. An index in a branch that is not taken may be out of bounds: it
is clipped, and the value read is discarded with the branch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from . import exact
from .exact import FLOATS, INTS, VALUE, dense
from .program import COMPARISONS, E, Kernel, Reducer, Reduction, Stage

SLACK = 4096  # more than the extent of any loop whose index is added
Env = dict[str, np.ndarray]


class Refused(Exception):
    """The checked entry refuses the call: an extent is negative."""


@dataclass
class Rules:
    """The mode of `--fp-contract`, and the mistake that a test of the oracle plants."""

    contract: bool = True
    planted: str = ""


@dataclass
class Evaluator:
    """The state of one call: tensors by name, run-time integers and scalars."""

    kernel: Kernel
    rules: Rules
    values: dict[str, np.ndarray] = field(default_factory=dict)
    # Whether an index exceeded 64 bits: the checked entry may refuse such a call.
    overflow: bool = False
    # Whether an index left its tensor or 64 bits where all conditions of `if`s and `where`s hold
    # (those of `select` do not count): such a call must be refused.
    outside: bool = False
    mask: np.ndarray = field(default_factory=lambda: np.array(True))
    # The same, ignoring conditions that depend on data: the check on entry may not know them and
    # may refuse.
    possible: bool = False
    loose: np.ndarray = field(default_factory=lambda: np.array(True))
    # The value of an out-of-bounds read; None: the nearest element.
    filler: int | None = None

    def evaluate(self, e: E, env: Env) -> np.ndarray:
        """The values of `e` for all points of `env`."""
        with np.errstate(all="ignore"):
            return self._value(e, env)

    def _value(self, e: E, env: Env) -> np.ndarray:
        op, t = e.op, e.type
        if op in ("bare", "literal"):
            return self._constant(e)
        if op == "limit":
            return limit(e.value, t)
        if op in ("axis", "param"):
            return env[e.value]
        if op in ("var", "scalar"):
            return self.values[e.value]
        if op in ("+", "-") and t in FLOATS and self.rules.contract:
            fused = self._fused(e, env)
            if fused is not None:
                return fused
        if op == "if":
            return self._choice(e, env)
        if op == "/" and self.rules.contract and e.args[1].op in ("bare", "literal"):
            by = exact.reciprocal(self._constant(e.args[1]), t)
            if by is not None:
                return self._value(e.args[0], env) * by
        a = [self._value(x, env) for x in e.args]
        if op == "read":
            return self._read(self.values[e.value], a)
        if op == "cast":
            return exact.cast(a[0], e.args[0].type, t)
        if op == "select":
            return np.where(a[0], a[1], a[2])
        return self._apply(op, t, e.args[0].type, a)

    def _choice(self, e: E, env: Env) -> np.ndarray:
        """Evaluates `if`: each branch where it is taken."""
        condition, outer, loose = self._value(e.args[0], env), self.mask, self.loose
        on_data = any(x.op in ("read", "scalar") for x in e.args[0].walk())
        either = np.array(True)
        self.mask, self.loose = outer & condition, loose & (either if on_data else condition)
        yes = self._value(e.args[1], env)
        self.mask, self.loose = outer & ~condition, loose & (either if on_data else ~condition)
        no = self._value(e.args[2], env)
        self.mask, self.loose = outer, loose
        return np.where(condition, yes, no)

    def _fused(self, e: E, env: Env) -> np.ndarray | None:
        """Evaluates `+` or `-` of a product, the left one if there are two, with one rounding."""
        left, right = (without_identity(x) for x in e.args)
        product, other = (left, right) if left.op == "*" else (right, left)
        if product.op != "*":
            return None
        a, b = (self._value(x, env) for x in product.args)
        c = self._value(other, env)
        if e.op == "-":
            a, c = (a, -c) if product is left else (-a, c)
        return exact.fma(e.type, a, b, c)

    @staticmethod
    def _constant(e: E) -> np.ndarray:
        """Evaluates a constant; one that is cast to a 16-bit float is rounded to it."""
        value = exact.constant(Fraction(str(e.value)), e.type)
        if str(e.value).startswith("-0"):
            value = -value if not value.any() and e.type in FLOATS else value
        return exact.store(e.type, value) if e.op == "literal" else value

    def _read(self, tensor: np.ndarray, at: list[np.ndarray]) -> np.ndarray:
        if not at:
            return tensor[()]
        anywhere = np.array(False)
        for x, n in zip(at, tensor.shape):
            away = (x < 0) | (x >= n)
            self.outside |= bool((away & self.mask).any())
            self.possible |= bool((away & self.loose).any())
            anywhere = anywhere | away
        at = list(np.broadcast_arrays(*at))
        if tensor.size == 0:
            return np.full(at[0].shape, self.filler or 0, tensor.dtype)
        clipped = [np.clip(x, 0, n - 1) for x, n in zip(at, tensor.shape)]
        read = tensor[tuple(clipped)]
        if self.filler is None:
            return read
        return np.where(anywhere, np.asarray(self.filler).astype(tensor.dtype), read)

    def _apply(self, op: str, t: str, of: str, a: list[np.ndarray]) -> np.ndarray:
        """Applies an operation; `of` is the type of the operands, `t` that of the result."""
        if op in COMPARISONS:
            kinds = {x.dtype for x in a}
            if len(kinds) > 1 and all(kind.kind in "iu" for kind in kinds):
                a = [x.astype(object) for x in a]  # Python's integers, which are exact
                return np.asarray(COMPARE[op](*a)).astype(bool)
            return COMPARE[op](*a)
        if op in ("and", "&") and t == "bool" or op == "all":
            return np.logical_and.reduce(np.broadcast_arrays(*a))
        if op in ("or", "|") and t == "bool" or op == "any":
            return np.logical_or.reduce(np.broadcast_arrays(*a))
        if op == "not":
            return ~a[0]
        if op == "//":
            return exact.floor_div(t, *a)
        if op == "%":
            return exact.floor_mod(t, *a)
        if op in ("<<", ">>"):
            return exact.shift(t, op, *a)
        if op == "fma":
            return exact.fma(t, *a)
        if op == "popcount":
            return exact.popcount(of, dense(a[0]))
        if op == "tf32":
            return exact.tf32(dense(a[0]))
        if op == "max" and self.planted("max"):
            return np.maximum(*a)
        if op == "neg" and self.planted("zero"):
            return (0 - a[0]).astype(VALUE[t])
        if t == "index" and op in ("+", "-", "*"):
            # The 64-bit significand is exact near the limits.
            left, right = (np.asarray(x, np.longdouble) for x in a)
            wide = PLAIN[op](left, right)
            beyond = (wide >= 2.0**63) | (wide < -(2.0**63))
            self.outside |= bool((beyond & self.mask).any())
            # The check on entry may consider one iteration more than there is.
            more = np.abs(left) + np.abs(right) if op == "*" else SLACK
            self.overflow |= bool((np.abs(wide) + more >= 2.0**63).any())
        return np.asarray(PLAIN[op](*a)).astype(VALUE[t], copy=False)

    def planted(self, what: str) -> bool:
        """Whether this mistake is planted."""
        return self.rules.planted == what

    def run(self) -> None:
        """Computes all stages."""
        self.outside |= not self.keeps_promises()
        for stage in self.kernel.stages:
            shape = self.extents([x for _, x in stage.axes])
            with np.errstate(all="ignore"):
                results = self._stage(stage, shape)
            if stage.offsets is not None:
                self._update(stage, shape, results[0])
                continue
            for name, t, value in zip(stage.names, stage.types, results):
                if not self.planted("unrounded"):
                    value = exact.store(t, np.asarray(value))
                self.values[name] = np.broadcast_to(value, shape).copy()

    def _update(self, stage: Stage, shape: tuple[int, ...], value: np.ndarray) -> None:
        """Stores the elements of an `update` into a copy of the tensor."""
        tensor = self.values[stage.name].copy()
        starts = [int(self.evaluate(x, {})) for x in stage.offsets or ()]
        inside = all(0 <= a and a + n <= whole for a, n, whole in zip(starts, shape, tensor.shape))
        if 0 in shape:
            return
        if not inside:
            self.outside = True
            return
        region = tuple(slice(a, a + n) for a, n in zip(starts, shape))
        tensor[region] = np.broadcast_to(exact.store(stage.types[0], np.asarray(value)), shape)
        self.values[stage.name] = tensor

    def keeps_promises(self) -> bool:
        """Whether every `assume` holds."""
        return all(self.evaluate(promise, {}) for promise in self.kernel.assumes)

    def extents(self, shape: Any) -> tuple[int, ...]:
        """Returns extents as numbers; a negative one refuses the call."""
        sizes = tuple(int(self.evaluate(x, {})) for x in shape)
        if min(sizes, default=0) < 0:
            raise Refused
        return sizes

    def _stage(self, stage: Stage, shape: tuple[int, ...]) -> list[np.ndarray]:
        rank = len(shape)
        if 0 in shape:
            return [np.zeros(shape, VALUE[t]) for t in stage.types]
        env = {name: np.arange(n).reshape((n,) + (1,) * (rank - 1 - d))
               for d, ((name, _), n) in enumerate(zip(stage.axes, shape))}
        if isinstance(stage.body, E):
            return [self._value(stage.body, env)]
        if stage.body.at:
            return self._sort(stage.body, env, shape)
        return self._reduce(stage.body, env, shape)

    def _sort(self, r: Reduction, env: Env, shape: tuple[int, ...]) -> list[np.ndarray]:
        """Returns the values at a rank of an axis in order, or their positions."""
        (name,) = r.axes
        low, high = next((low, high) for n, low, high in self.kernel.reduces if n == name)
        first, last = int(self._value(low, {})), int(self._value(high, {}))
        at = np.broadcast_to(self._value(r.at, env), shape)
        if last <= first or at.min() < 0 or at.max() >= last - first:
            self.outside = True
            return [np.zeros(shape, VALUE[x.type]) for x in r.terms]
        places = np.arange(first, last).reshape((last - first,) + (1,) * len(shape))
        env = {**env, name: places}
        terms = [exact.store(x.type, np.asarray(self._value(x, env))) for x in r.terms]
        # Rows that do not depend on an axis, as that of the ranks, are sorted once.
        rows = np.broadcast_shapes(places.shape, *(x.shape for x in terms))
        terms = [np.broadcast_to(x, rows) for x in terms]
        key = terms[0]
        if r.terms[0].type in FLOATS:
            # Ranks as integers: equal numbers have one, a NaN the greatest.
            nan = np.isnan(key.astype(np.float64))
            numbers = np.where(nan, 0, key).astype(np.float64) + 0.0
            key = np.unique(numbers, return_inverse=True)[1].reshape(key.shape)
            key = np.where(nan, key.size, key)
        else:
            key = np.unique(key, return_inverse=True)[1].reshape(key.shape)
        descending = r.descending != self.planted("order")
        order = np.argsort(-key if descending else key, axis=0, kind="stable")
        points = np.ix_(*(np.arange(n) for n in shape))
        row = tuple(x if n > 1 else 0 for x, n in zip(points, rows[1:]))
        chosen = order[(at.astype(np.int64), *row)]
        if r.fn == "argsort":
            return [chosen + first]
        return [x[(chosen, *row)] for x in terms]

    def _reduce(self, r: Reduction, env: Env, shape: tuple[int, ...]) -> list[np.ndarray]:
        bounds = {name: (low, high) for name, low, high in self.kernel.reduces}
        limits = [tuple(int(self._value(x, {})) for x in bounds[name]) for name in r.axes]
        count = math.prod(max(0, high - low) for low, high in limits)
        state = [np.broadcast_to(x, shape) for x in self._start(r, env)]
        if not count:
            return state
        # The new first dimension holds all terms in lexicographic order.
        grid = np.meshgrid(*(np.arange(low, high) for low, high in limits), indexing="ij")
        env = dict(env)
        for name, values in zip(r.axes, grid):
            env[name] = values.reshape((count,) + (1,) * len(shape))
        whole = (count,) + shape
        fold = self._folder(r)
        use = np.broadcast_to(self._value(r.where, env), whole) if r.where is not None else None
        on_data = use is not None and any(x.op in ("read", "scalar") for x in r.where.walk())
        self.mask = np.array(True) if use is None else use
        self.loose = np.array(True) if on_data else self.mask
        operands = [np.broadcast_to(x, whole) for x in self._operands(r, env)]
        self.mask = self.loose = np.array(True)
        order = range(count - 1, -1, -1) if self.planted("order") else range(count)
        for k in order:
            terms = [x[k] for x in operands]
            after = fold(state, terms)
            if use is not None:
                after = [np.where(use[k], x, old) for x, old in zip(after, state)]
            state = [exact.store(x.type, s) for x, s in zip(r.terms, after)]
        return state

    def _is_fused(self, r: Reduction) -> bool:
        term = without_identity(r.terms[0])
        return (r.fn == "sum" and term.op == "*" and term.type in FLOATS
                and self.rules.contract)

    def _operands(self, r: Reduction, env: Env) -> list[np.ndarray]:
        """Returns the terms; for a fused sum of products, the factors.

        A term of a 16-bit type is rounded before it is combined.
        """
        if self._is_fused(r):
            return [self._value(x, env) for x in without_identity(r.terms[0]).args]
        return [exact.store(x.type, np.asarray(self._value(x, env))) for x in r.terms]

    def _start(self, r: Reduction, env: Env) -> list[np.ndarray]:
        """Returns the start values."""
        t = r.terms[0].type
        if r.init is not None:
            return [exact.store(t, np.asarray(self._value(r.init, env)))]
        own = {x.name: x for x in self.kernel.reducers}.get(r.fn)
        if own:
            return [self._value(x, {}) for x in own.identity]
        if r.fn in ("argmax", "argmin"):
            value = r.terms[1].type
            return [np.array(-1, VALUE[t]), worst(r.fn[3:], value)]
        if r.fn in ("max", "min"):
            return [worst(r.fn, t)]
        return [np.array({"sum": 0, "prod": 1, "any": 0, "all": 1}[r.fn], VALUE[t])]

    def _folder(self, r: Reduction) -> Any:
        """Returns the function that combines the running values with the next terms."""
        own = {x.name: x for x in self.kernel.reducers}.get(r.fn)
        t = r.terms[0].type
        if own:
            return lambda old, new: self._own(own, old, new)
        if self._is_fused(r):
            return lambda old, new: [exact.fma(t, new[0], new[1], old[0])]
        if r.fn in ("argmax", "argmin"):
            better = np.greater if r.fn == "argmax" else np.less

            def best(old: list[np.ndarray], new: list[np.ndarray]) -> list[np.ndarray]:
                take = better(new[1], old[1]) | ((old[0] == -1) & (new[1] == new[1]))
                return [np.where(take, x, y) for x, y in zip(new, old)]

            return best
        if r.fn == "prod":
            return lambda old, new: [(old[0] * new[0]).astype(VALUE[t])]
        if r.fn == "sum":
            return lambda old, new: [(old[0] + new[0]).astype(VALUE[t])]
        join = {"max": exact.greatest, "min": exact.least,
                "any": np.logical_or, "all": np.logical_and}[r.fn]
        return lambda old, new: [join(old[0], new[0])]

    def _own(self, own: Reducer, old: list[np.ndarray], new: list[np.ndarray]) -> list[np.ndarray]:
        env = dict(zip(own.left + own.right, old + new))
        return [self._value(x, env) for x in own.results]


def without_identity(e: E) -> E:
    """Returns `e` without casts to its own type, which do nothing."""
    while e.op == "cast" and e.args[0].type == e.type:
        e = e.args[0]
    return e


def limit(word: str, t: str) -> np.ndarray:
    """Returns `min_value(T)`, `max_value(T)` or `inf(T)`."""
    if word == "inf":
        return np.array(np.inf, VALUE[t])
    if t in INTS:
        return np.array(exact.limits(t)[word == "max_value"], VALUE[t])
    raise ValueError(f"{word} of {t}")


def worst(fn: str, t: str) -> np.ndarray:
    """Returns the start value of `max` or `min`."""
    if t in FLOATS:
        return np.array(-np.inf if fn == "max" else np.inf, VALUE[t])
    return np.array(exact.limits(t)[fn == "min"], VALUE[t])


def _clamp(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return exact.least(exact.greatest(x, low), high)


COMPARE = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
           ">": np.greater, ">=": np.greater_equal}
PLAIN = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "&": np.bitwise_and,
         "|": np.bitwise_or, "^": np.bitwise_xor, "neg": np.negative, "~": np.invert,
         "min": exact.least, "max": exact.greatest, "abs": np.abs, "clamp": _clamp,
         "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
         "sqrt": np.sqrt, "is_nan": np.isnan}
