"""Random programs and random arguments.

A program has a few extents (constants and run-time integers), inputs over them, and stages that
read earlier tensors. Types are chosen top down, so that every expression is well typed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from .exact import FLOATS, HALVES, INTS, MEMORY, QUANTIZED, SIGNED, TYPES, UNSIGNED
from .exact import bfloat16_bits, limits
from .program import COMPARISONS, E, Input, Kernel, Reducer, Reduction, Stage, axis, binary
from .program import index, var

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65)
SMALL = (1, 2, 3, 4, 5, 7, 8, 16, 17)
RUNTIME = (0, 0, 1, 1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 19, 31, 32, 33, 37, 63, 64, 65)
REAL = ("0.5", "1.5", "2.0", "-1.0", "0.1", "3.0", "0.001", "100.0", "-0.75", "7.0", "0.0", "1.0",
        "-0.0", "255.0", "0.3333")
WHOLE = (0, 1, 2, 3, 5, 7, 10, 31, 63, 100, 127)
EXTREME = (0, 1, -1, 2, 5, 40, 2**31 - 1, -2**31, 2**31, 2**62, -2**62, 2**63 - 1, -2**63,
           -2**63 + 1, 2**63 - 2, -2**63 + 5, 2**63 - 9)


def p(name: str, t: str) -> E:
    """A parameter of a reducer."""
    return E("param", t, (), name)


def reducers(t: str, name: str, rng: random.Random) -> Reducer | None:
    """Returns a custom reducer over `t`. It is associative, so most are for integers."""
    a, b, c, d = (p(x, t) for x in "abcd")
    zero, one = E("bare", t, (), 0), E("bare", t, (), 1)
    if t in FLOATS:
        if t in HALVES:
            return None
        return Reducer(name, ("a", "b"), ("c", "d"), (binary("+", a, c), binary("+", b, d)),
                       (zero, zero))
    choice = rng.randrange(5)
    if choice == 0:  # not commutative: composes x -> a*x + b
        return Reducer(name, ("a", "b"), ("c", "d"),
                       (binary("*", a, c), binary("+", binary("*", b, c), d)), (one, zero))
    if choice == 1:
        return Reducer(name, ("a",), ("b",), (binary("^", a, b),), (zero,))
    if choice == 2:
        return Reducer(name, ("a", "b"), ("c", "d"),
                       (binary("+", a, c), binary("|", b, d)), (zero, zero))
    if choice == 3:
        return Reducer(name, ("a",), ("b",), (binary("*", a, b),), (one,))
    return Reducer(name, ("a",), ("b",), (binary("+", a, b),), (zero,))


@dataclass
class Scope:
    """The names that an expression may read."""

    axes: list[tuple[str, E]]
    tensors: dict[str, tuple[str, tuple[E, ...]]]
    scalars: dict[str, str]
    vars: list[str]


@dataclass
class Generator:
    """One random kernel."""

    rng: random.Random
    name: str
    types: list[str] = field(default_factory=list)
    dims: list[E] = field(default_factory=list)

    def kernel(self) -> Kernel:
        """Returns a kernel of one to four stages, each of which may be a reduction."""
        rng = self.rng
        self.types = rng.sample([t for t in TYPES if t != "bool"], rng.choice((1, 1, 2, 2, 3)))
        if rng.random() < 0.5:
            self.types[0] = rng.choice(("float32", "float32", "float64", "float16", "bfloat16"))
        names = ["n", "m", "l"][: rng.choice((0, 1, 1, 2, 2))]
        self.dims = [var(v) for v in names]
        while len(self.dims) < rng.choice((2, 2, 3)):
            self.dims.append(index(rng.choice(EXTENTS)))
        own = ["s"] if rng.random() < 0.3 else []
        inputs, tensors, scalars = self._inputs()
        scope = Scope([], tensors, scalars, names + own)
        reduces: list[tuple[str, E, E]] = []
        for r in range(rng.choice((1, 1, 2))):
            bound = rng.choice(self.dims)
            low = 1 if bound.op == "literal" and bound.value > 2 and rng.random() < 0.1 else 0
            reduces.append((f"k{r}", index(low), bound))
        stages: list[Stage] = []
        own_reducers: list[Reducer] = []
        count = rng.choice((1, 1, 2, 2, 3, 4))
        operators: list[str] = []
        updates = rng.randrange(count) if rng.random() < 0.2 else -1
        if updates >= 0:
            shape = tuple(rng.sample(self.dims, rng.choice((1, min(2, len(self.dims))))))
            inputs.append(Input("u", self.types[0], shape, inout=True))
            tensors["u"] = (self.types[0], shape)
        for s in range(count):
            if s == updates:
                stages.append(self._update(inputs[-1], scope, reduces))
            last = s == count - 1
            if not last and rng.random() < 0.12:
                stages.append(self._operator(f"S{s}", scope, operators))
                shape = tuple(x for _, x in stages[-1].axes)
                scope.tensors[f"S{s}"] = (stages[-1].types[0], shape)
                continue
            stage = self._stage(f"S{s}", last or rng.random() < 0.25, scope, reduces, own_reducers)
            stages.append(stage)
            shape = tuple(x for _, x in stage.axes)
            for name, t in zip(stage.names, stage.types):
                scope.tensors[name] = (t, shape)
        stages = needed(stages)
        used = {e.value for s in stages for x in s.expressions() for e in x.walk()}
        used |= {e.value for s in stages for _, x in s.axes for e in x.walk()}
        used |= {e.value for i in inputs for x in i.shape or () for e in x.walk()}
        used_axes = {a for s in stages if isinstance(s.body, Reduction) for a in s.body.axes}
        kept = tuple(r for r in reduces if r[0] in used_axes)
        used |= {x.value for r in kept for x in r[1:]}
        shaped = sorted({e.value for i in inputs for x in i.shape or () for e in x.walk()
                         if e.op == "var"})
        assumes = (self._promise(rng.choice(shaped)),) if shaped and rng.random() < 0.06 else ()
        return Kernel(self.name, tuple(v for v in scope.vars if v in used), tuple(inputs), kept,
                      tuple(stages), tuple(own_reducers), assumes=assumes,
                      operators=tuple(operators))

    def _promise(self, name: str) -> E:
        """Returns the condition of an `assume`; a call that violates it is refused."""
        choice = self.rng.randrange(3)
        if choice == 0:
            by = index(self.rng.choice((2, 4, 8)))
            return binary("==", binary("%", var(name), by), index(0))
        if choice == 1:
            return binary(">=", var(name), index(self.rng.choice((1, 8))))
        return binary("<=", var(name), index(32))

    def _operator(self, name: str, scope: Scope, operators: list[str]) -> Stage:
        """Adds an operator that pads the first dimension by `p` elements on each side."""
        rng = self.rng
        source = rng.choice([n for n, (_, s) in scope.tensors.items() if s] or [""])
        t, shape = scope.tensors[source]
        by = rng.choice((0, 1, 2, 3))
        extents = [f"d{i}" for i in range(len(shape))]
        axes = [f"u{i}" for i in range(len(shape))]
        op = f"{self.name}_op{len(operators)}"
        declared = ", ".join(["u0: d0 + 2*p"] + [f"{a}: {d}" for a, d in
                                                  zip(axes[1:], extents[1:])])
        border = "u0 == u0" if t == "bool" else "7 as T"
        operators += [
            f"kernel {op}({', '.join(extents)}, T: dtype, p = 1) {{",
            f"    input X: T[{', '.join(extents)}]",
            f"    output Y[{declared}] = if any(u0 < p, u0 >= d0 + p) then {border} "
            f"else X[{', '.join(['u0 - p'] + axes[1:])}]",
            "}"]
        first = axis("u0")
        inside = E("read", t, (binary("-", first, index(by)),) + tuple(map(axis, axes[1:])),
                   source)
        edge = binary("==", first, first) if t == "bool" else \
            E("literal", t, (), "7.0" if t in FLOATS else 7)
        away = E("any", "bool", (binary("<", first, index(by)),
                                 binary(">=", first, binary("+", shape[0], index(by)))))
        wide = tuple(zip(axes, (binary("+", shape[0], index(2 * by)),) + shape[1:]))
        return Stage((name,), (t,), wide, E("if", t, (away, edge, inside)), False,
                     f"{op}({source}, p={by})")

    def _inputs(self) -> tuple[list[Input], dict[str, tuple[str, tuple[E, ...]]], dict[str, str]]:
        rng = self.rng
        inputs, tensors, scalars = [], {}, {}
        for i in range(rng.choice((1, 2, 2, 3))):
            t = self.types[i % len(self.types)] if rng.random() < 0.9 else "bool"
            rank = rng.choice((1, 1, 2, 2, 3))
            shape = tuple(rng.sample(self.dims, min(rank, len(self.dims))))
            if rng.random() < 0.1:
                shape = (binary("+", shape[0], index(rng.choice((1, 2, 3)))),) + shape[1:]
            inputs.append(Input("abcde"[i], t, shape, rng.random() < 0.1))
            tensors["abcde"[i]] = (t, shape)
        if rng.random() < 0.3:
            t = rng.choice(self.types)
            inputs.append(Input("f", t, None))
            scalars["f"] = t
        if rng.random() < 0.1:
            inputs.append(Input("z", rng.choice(self.types), ()))
            tensors["z"] = (inputs[-1].type, ())
        return inputs, tensors, scalars

    def _stage(self, name: str, output: bool, scope: Scope, reduces: list[tuple[str, E, E]],
               own: list[Reducer]) -> Stage:
        rng = self.rng
        rank = rng.choice((1, 1, 2, 2, 2, 3))
        extents = rng.sample(self.dims, min(rank, len(self.dims)))
        # The source text of a stage with the second names has a pack (`Stage.__str__`).
        names = ("i", "j", "h") if rng.random() < 0.6 else ("i0", "i1", "i2")
        axes = tuple(zip(names, extents))
        t = rng.choice(self.types)
        if rng.random() < 0.4:
            return self._reduction(name, t, output, scope, axes, reduces, own)
        inner = Scope(list(axes), scope.tensors, scope.scalars, scope.vars)
        if rng.random() < 0.06:
            t = "bool"
        return Stage((name,), (t,), axes, self.expression(t, rng.choice((1, 2, 2, 3)), inner),
                     output)

    def _update(self, tensor: Input, scope: Scope, reduces: list[tuple[str, E, E]]) -> Stage:
        """Returns an update of a region of a tensor, whose old elements it may read."""
        rng, t = self.rng, tensor.type
        offsets, axes = [], []
        for at, extent in enumerate(tensor.shape or ()):
            # A region that leaves a constant extent is refused at compile time.
            size = extent.value if extent.op == "literal" else 4
            before, behind = rng.choice((0, 0, 1, 2)), rng.choice((0, 0, 1))
            cut = before + behind if before + behind <= size and rng.random() < 0.5 else 0
            offsets.append(index(before if cut else 0))
            axes.append(("ij"[at], binary("-", extent, index(cut)) if cut else extent))
        own = E("read", t, tuple(binary("+", by, axis(a)) for by, (a, _) in zip(offsets, axes)),
                tensor.name)
        tensors = {n: x for n, x in scope.tensors.items() if n != tensor.name}
        inner = Scope(axes, tensors, scope.scalars, scope.vars)
        body: E | Reduction = self.expression(t, rng.choice((1, 2)), inner)
        if rng.random() < 0.4 and t not in HALVES:
            name, _, high = rng.choice(reduces)
            inner = Scope(axes + [(name, high)], tensors, scope.scalars, scope.vars)
            term = self.expression(t, 1, inner)
            body = Reduction(rng.choice(("sum", "max")), (term,), (name,), None, own)
        elif rng.random() < 0.6:
            body = binary(rng.choice("+*-"), body, own)
        return Stage((tensor.name,), (t,), tuple(axes), body, True, offsets=tuple(offsets))

    def _reduction(self, name: str, t: str, output: bool, scope: Scope,
                   axes: tuple[tuple[str, E], ...], reduces: list[tuple[str, E, E]],
                   own: list[Reducer]) -> Stage:
        rng = self.rng
        axes = axes[:2] if rng.random() < 0.9 else ()
        taken = rng.sample(reduces, rng.choice((1, len(reduces))))
        inner = Scope(list(axes) + [(n, high) for n, _, high in taken], scope.tensors,
                      scope.scalars, scope.vars)
        over = tuple(n for n, _, _ in taken)
        depth = rng.choice((0, 1, 1, 2))
        fns = ["min", "max", "argmax", "argmin"]
        if t not in HALVES:
            fns += ["sum"] * 4 + ["prod", "own"]
        fn = rng.choice(fns)
        where = self.condition(1, inner) if rng.random() < 0.2 else None
        if rng.random() < 0.05:
            body = Reduction(rng.choice(("any", "all")), (self.condition(1, inner),), over, where)
            return Stage((name,), ("bool",), axes, body, output)
        if fn in ("argmax", "argmin"):
            where_at = rng.choice(("int32", "int64", "int16"))
            position = E("cast", where_at, (axis(over[0]),))
            body = Reduction(fn, (position, self.expression(t, depth, inner)), over, where)
            return Stage((name, name + "v"), (where_at, t), axes, body, output)
        if fn == "own":
            made = reducers(t, f"{self.name}_r{len(own)}", rng)
            if made:
                own.append(made)
                terms = tuple(self.expression(t, depth, inner) for _ in made.results)
                names = (name, name + "v")[: len(terms)]
                return Stage(names, (t,) * len(terms), axes,
                             Reduction(made.name, terms, over, where), output)
            fn = "max"
        term = self.expression(t, depth, inner)
        if fn == "sum" and rng.random() < 0.5:
            term = binary("*", self.expression(t, 0, inner), self.expression(t, 0, inner))
        init = None
        if rng.random() < 0.15:
            init = self.literal(t, bare=True)
        return Stage((name,), (t,), axes, Reduction(fn, (term,), over, where, init), output)

    # Expressions.

    def literal(self, t: str, bare: bool = False) -> E:
        """Returns a constant; the other operand (`bare`) or a cast gives its type."""
        rng = self.rng
        if t in FLOATS:
            value = rng.choice(REAL)
            # A bare constant must be exact in a 16-bit type.
            if bare and t in HALVES and value in ("0.1", "0.001", "0.3333"):
                value = "0.5"
            return E("bare" if bare else "literal", t, (), value)
        if t == "index":
            return index(rng.choice(WHOLE))
        value = rng.choice(WHOLE)
        if t in SIGNED and rng.random() < 0.3:
            value = -value
        elif rng.random() < 0.1:
            return E("limit", t, (), rng.choice(("min_value", "max_value")))
        return E("bare" if bare else "literal", t, (), value)

    def expression(self, t: str, depth: int, scope: Scope) -> E:
        """An expression of type `t`."""
        if t == "bool":
            return self.condition(depth, scope)
        if t == "index":
            return self.position(depth, scope)
        rng = self.rng
        if depth <= 0 or rng.random() < 0.1:
            return self._leaf(t, scope)
        choice = rng.random()
        if choice < 0.45:
            return self._operation(t, depth, scope)
        if choice < 0.60:
            return self._call(t, depth, scope)
        if choice < 0.75:
            source = rng.choice(self.types + ["index", "bool"])
            inner = self.expression(source, depth - 1, scope)
            if rng.random() < 0.15:
                inner = E("cast", rng.choice(QUANTIZED), (inner,))
            return E("cast", t, (inner,))
        if choice < 0.9:
            op = "if" if rng.random() < 0.7 else "select"
            c = self.condition(1, scope)
            return E(op, t, (c, self.expression(t, depth - 1, scope),
                             self.expression(t, depth - 1, scope)))
        return self._leaf(t, scope)

    def _leaf(self, t: str, scope: Scope) -> E:
        rng = self.rng
        names = [n for n, (of, _) in scope.tensors.items() if of == t]
        scalars = [n for n, of in scope.scalars.items() if of == t]
        choice = rng.random()
        if names and choice < 0.85:
            return self.read(rng.choice(names), scope)
        if scalars and choice < 0.95:
            return E("scalar", t, (), rng.choice(scalars))
        if choice < 0.5 or t in HALVES and choice < 0.8:
            others = [n for n, (of, _) in scope.tensors.items() if of != t]
            if others:
                name = rng.choice(others)
                return E("cast", t, (self.read(name, scope),))
        return E("cast", t, (self.position(0, scope),)) if rng.random() < 0.5 else self.literal(t)

    def _operation(self, t: str, depth: int, scope: Scope) -> E:
        rng = self.rng
        ops = ["+", "+", "-", "*", "*"]
        ops += ["/"] if t in FLOATS else ["//", "%", "&", "|", "^", "<<", ">>"]
        op = rng.choice(ops)
        left = self.expression(t, depth - 1, scope)
        if rng.random() < 0.25 and left.op not in ("literal", "limit"):
            right = self.literal(t, bare=True)
            if op == "/" and right.value in ("0.0", "-0.0"):
                right = E("bare", t, (), "3.0")
            if op in ("//", "%", "/") or rng.random() < 0.7:
                return binary(op, left, right)
            return binary(op, right, left)
        right = self.expression(t, depth - 1, scope)
        if right.op in ("literal", "limit") and left.op in ("literal", "limit"):
            return left
        return binary(op, left, right)

    def _call(self, t: str, depth: int, scope: Scope) -> E:
        rng = self.rng
        names = ["min", "max", "abs", "neg", "clamp"]
        if t in FLOATS:
            names += ["floor", "ceil", "round", "trunc", "sqrt", "fma"]
            names += ["tf32"] if t == "float32" else []
        else:
            names += ["popcount", "~"]
        name = rng.choice(names)
        count = {"min": 2, "max": 2, "clamp": 3, "fma": 3}.get(name, 1)
        args = [self.expression(t, depth - 1, scope)]
        args += [self.expression(t, max(0, depth - 2), scope) for _ in range(count - 1)]
        if args[0].op in ("literal", "limit", "bare"):
            return args[0]
        return E(name, t, tuple(args))

    def condition(self, depth: int, scope: Scope) -> E:
        """Returns a condition: comparisons of data or of indices, and combinations of them."""
        rng = self.rng
        choice = rng.random()
        if depth > 0 and choice < 0.2:
            op = rng.choice(("and", "or", "all", "any", "not"))
            count = 1 if op == "not" else 2
            return E(op, "bool", tuple(self.condition(depth - 1, scope) for _ in range(count)))
        if choice < 0.45 and scope.axes:
            left = self.position(1, scope)
            if left.op not in ("literal", "bare"):
                if scope.vars and rng.random() < 0.6:
                    right = var(rng.choice(scope.vars))
                else:
                    right = index(rng.choice(WHOLE[:8]))
                return binary(rng.choice(COMPARISONS), left, right)
        # Integers of different types are compared as numbers.
        whole = [n for n, (of, _) in scope.tensors.items() if "int" in of]
        if whole and choice < 0.52:
            left = self.read(rng.choice(whole), scope)
            near = scope.axes and rng.random() < 0.4
            right = axis(rng.choice(scope.axes)[0]) if near else self.read(rng.choice(whole), scope)
            pair = (left, right) if rng.random() < 0.5 else (right, left)
            return binary(rng.choice(COMPARISONS), *pair)
        flags = [n for n, (of, _) in scope.tensors.items() if of == "bool"]
        if flags and choice < 0.6:
            return self.read(rng.choice(flags), scope)
        t = rng.choice(self.types)
        left = self._leaf(t, scope)
        if t in FLOATS and rng.random() < 0.15:
            return E("is_nan", "bool", (left,))
        if left.op in ("literal", "limit"):
            left = E("cast", t, (self.position(0, scope),))
        right = self.literal(t, bare=True) if rng.random() < 0.4 else self._leaf(t, scope)
        return binary(rng.choice(COMPARISONS), left, right)

    def position(self, depth: int, scope: Scope) -> E:
        """An expression of type `index`."""
        rng = self.rng
        names = [axis(n) for n, _ in scope.axes] * 2 + [var(v) for v in scope.vars]
        if not names:
            return index(rng.choice(WHOLE))
        leaf = rng.choice(names)
        if depth <= 0 or rng.random() < 0.4:
            return leaf
        op = rng.choice(("+", "-", "*", "//", "%", "min", "max"))
        other = index(rng.choice((1, 2, 3, 5, 8))) if rng.random() < 0.7 else rng.choice(names)
        if op in ("min", "max"):
            return E(op, "index", (leaf, other))
        return binary(op, leaf, other)

    # Reads.

    def read(self, name: str, scope: Scope) -> E:
        """Returns a read that axes, a condition, `clamp` or `%` keep in bounds."""
        t, shape = scope.tensors[name]
        at, conditions = [], []
        for extent in shape:
            where, condition = self._index(extent, scope)
            at.append(where)
            conditions += condition
        e = E("read", t, tuple(at), name)
        if conditions:
            both = conditions[0]
            for more in conditions[1:]:
                both = binary_bool("and", both, more)
            # There is no bare `false`, but a comparison of constants is always accepted.
            other = E("cast", "bool", (axis(scope.axes[0][0]),)) if t == "bool" and scope.axes \
                else self.literal(t)
            if t == "bool" and not scope.axes:
                other = binary("==", E("var", "index", (), scope.vars[0]), index(1)) \
                    if scope.vars else binary("==", index(1), index(2))
            e = E("if", t, (both, e, other))
        return e

    def _index(self, extent: E, scope: Scope) -> tuple[E, list[E]]:
        """Returns an index into a dimension, and the conditions under which it is in bounds."""
        rng = self.rng
        base = extent.args[0] if extent.op == "+" else extent
        same = [n for n, x in scope.axes if str(x) in (str(extent), str(base))]
        constant = extent.op == "literal"
        choice = rng.random()
        if same and choice < 0.72:
            name = rng.choice(same)
            if extent.op == "+" and rng.random() < 0.7:
                return binary("+", axis(name), index(rng.randint(0, extent.args[1].value))), []
            return axis(name), []
        if same and choice < 0.78:
            return binary("-", binary("-", base, index(1)), axis(rng.choice(same))), []
        if same and choice < 0.88:
            name = rng.choice(same)
            by = index(rng.choice((1, 2, 3)))
            if rng.random() < 0.5:
                at = binary("+", axis(name), by)
                return at, [binary("<", at, extent)]
            at = binary("-", axis(name), by)
            return at, [binary(">=", at, index(0))]
        if constant and choice < 0.5:
            return index(rng.randrange(extent.value)), []
        if choice > 0.985 and scope.vars and not constant:
            # The entry checks such an index, by run-time integers or by data.
            other = var(rng.choice(scope.vars))
            return rng.choice((other, binary("-", other, index(1)),
                               binary("+", binary("-", other, index(2)), index(1)))), []
        if choice > 0.965 and scope.axes:
            data = [(n, of, s) for n, (of, s) in scope.tensors.items()
                    if of in INTS and len(s) == 1 and n in "abcde"]
            for n, of, s in data:
                over = [a for a, x in scope.axes if str(x) == str(s[0])]
                if over and of != "uint64":
                    return E("read", of, (axis(rng.choice(over)),), n), []
        guard = [] if constant else [binary(">", extent, index(0))]
        # Indices from data: any integer tensor of rank 1 over one of the axes.
        data = [(n, of, s) for n, (of, s) in scope.tensors.items()
                if of in INTS and of != "uint64" and len(s) == 1]
        last = index(extent.value - 1) if constant else binary("-", extent, index(1))
        if data and choice < 0.95:
            n, of, s = rng.choice(data)
            over = [a for a, x in scope.axes if str(x) == str(s[0])]
            if over:
                raw = E("read", of, (axis(rng.choice(over)),), n)
                wide = E("cast", "int64", (raw,))
                low, high = E("cast", "int64", (index(0),)), E("cast", "int64", (last,))
                return E("clamp", "int64", (wide, low, high)), guard
        inner = self.position(1, scope)
        if rng.random() < 0.5:
            return binary("%", inner, extent), guard
        return E("clamp", "index", (inner, index(0), last)), guard


def needed(stages: list[Stage]) -> list[Stage]:
    """Returns the stages that an output needs; the compiler drops the others."""
    kept: list[Stage] = []
    read: set[str] = set()
    for stage in reversed(stages):
        if stage.output or read & set(stage.names):
            kept.append(stage)
            read |= stage.reads()
    return kept[::-1]


def binary_bool(op: str, a: E, b: E) -> E:
    """Returns the `and` or `or` of two conditions."""
    return E(op, "bool", (a, b))


# Arguments.

def floats(rng: np.random.Generator, t: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Random floats in memory form: tame, whole, or wild with special values."""
    n = int(np.prod(shape))
    if kind == "whole":
        values = rng.integers(-4, 5, n).astype(np.float64)
    else:
        values = rng.standard_normal(n) * rng.choice([1.0, 1.0, 10.0, 1000.0], n)
        if rng.random() < 0.3:
            values = np.round(values * 4) / 4
    with np.errstate(all="ignore"):
        if t == "bfloat16":
            out = bfloat16_bits(values.astype(np.float32))
        else:
            out = values.astype(MEMORY[t])
    if kind == "wild" and n:
        bits = out.view(f"uint{out.itemsize * 8}")
        some = rng.random(n) < 0.3
        bits[some] = rng.integers(0, 2**(out.itemsize * 8), n, dtype=bits.dtype)[some]
        special = special_bits(t)
        some = rng.random(n) < 0.3
        bits[some] = rng.choice(special, n)[some]
    return out.reshape(shape)


def special_bits(t: str) -> np.ndarray:
    """±0, ±1, ±inf, NaN with payloads, the least and largest numbers, halfway cases of casts."""
    size = MEMORY[t].itemsize * 8
    mantissa = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[t]
    sign, one = 1 << (size - 1), 1 << mantissa
    inf = ((1 << (size - 1 - mantissa)) - 1) << mantissa
    unit = (((1 << (size - 2 - mantissa)) - 1) << mantissa)
    values = [0, sign, unit, sign | unit, inf, sign | inf, inf | one >> 1, inf | 1, sign | inf | 5,
              1, sign | 1, one - 1, one, inf - 1, sign | (inf - 1), unit + 1, unit - 1]
    if t == "float32":
        values += [unit | 0x1000, unit | 0x3000, unit | 0x8000, unit | 0x18000, 0x477FF000,
                   0x477FEFFF, 0x33000000, 0x33000001, 0x4F000000, 0xCF000000, 0x4EFFFFFF]
    if t == "float64":
        values += [0x3FF0000010000000, 0x3FF0000030000000, 0x3FF0000010000001, 0x43E0000000000000,
                   0xC3E0000000000000, 0x41DFFFFFFFC00000, 0x47EFFFFFF0000000, 0x36A0000000000000]
    return np.array(values, f"uint{size}")


def integers(rng: np.random.Generator, t: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Random integers: small, or wild with the extremes."""
    n = int(np.prod(shape))
    low, high = limits(t)
    if kind == "wild":
        values = rng.integers(low, high, n, dtype=MEMORY[t], endpoint=True)
        some = rng.random(n) < 0.4
        edge = np.array([low, high, 0, 1, high - 1, low + 1, high // 2], MEMORY[t])
        values[some] = rng.choice(edge, n)[some]
        some = rng.random(n) < 0.3
        values[some] = rng.integers(0, 10, n).astype(MEMORY[t])[some]
    else:
        values = rng.integers(0 if t in UNSIGNED else -8, 9, n).astype(MEMORY[t])
    return values.reshape(shape)


def tensor(rng: np.random.Generator, t: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """A random tensor in memory form."""
    if t == "bool":
        values = [0, 1] if kind != "wild" else [0, 0, 0, 1, 2, 128, 255]
        return rng.choice(np.array(values, np.uint8), shape).view(bool)
    return floats(rng, t, shape, kind) if t in FLOATS else integers(rng, t, shape, kind)


def arguments(kernel: Kernel, rng: random.Random) -> tuple[dict[str, int], str, int]:
    """Returns run-time integers, the kind of data and its seed for one call."""
    extents = [x for s in kernel.stages for _, x in s.axes]
    extents += [x for r in kernel.reduces for x in r[1:]]
    extents += [x for i in kernel.inputs for x in i.shape or ()]
    shaped = {e.value for x in extents for e in x.walk() if e.op == "var"}
    sizes = {v: rng.choice(RUNTIME if v in shaped or rng.random() < 0.4 else EXTREME)
             for v in kernel.vars}
    # An empty tensor may have any other extent.
    if len(shaped) > 1 and rng.random() < 0.04:
        empty, other = rng.sample(sorted(shaped), 2)
        sizes |= {empty: 0, other: rng.choice((2**20, 2**31, 2**40))}
    kind = "whole" if kernel.exact else rng.choice(("tame", "tame", "wild", "wild", "whole"))
    return sizes, kind, rng.randrange(2**32)
