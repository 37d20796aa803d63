"""Programs as data: expressions, stages, kernels, and their text in the `.te` language."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Iterator

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
INFIX = COMPARISONS + ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "and", "or")


@dataclass(frozen=True)
class E:
    """An expression: an operation, its type, its operands, and a name or constant."""

    op: str
    type: str
    args: tuple["E", ...] = ()
    value: Any = None

    def __str__(self) -> str:
        return text(self)

    def walk(self) -> Iterator["E"]:
        """Yields this expression and all its subexpressions."""
        yield self
        for arg in self.args:
            yield from arg.walk()


def text(e: E) -> str:
    """The source text of an expression."""
    a = [text(x) for x in e.args]
    op = e.op
    if op == "bare":  # a constant that takes the type of the other operand
        return f"({e.value})" if str(e.value).startswith("-") else str(e.value)
    if op == "literal":
        shown = f"({e.value})" if str(e.value).startswith("-") else str(e.value)
        return shown if e.type in ("index", "bool") else f"({shown} as {e.type})"
    if op in ("axis", "var", "scalar", "param"):
        return e.value
    if op == "limit":  # min_value(T), max_value(T), inf(T)
        return f"{e.value}({e.type})"
    if op == "read":
        return f"{e.value}[{', '.join(a)}]"
    if op in INFIX:
        return f"({a[0]} {op} {a[1]})"
    if op == "neg":
        return f"(-{a[0]})"
    if op == "~":
        return f"(~{a[0]})"
    if op == "not":
        return f"(not {a[0]})"
    if op == "cast":
        return f"({a[0]} as {e.type})"
    if op == "if":
        return f"(if {a[0]} then {a[1]} else {a[2]})"
    return f"{op}({', '.join(a)})"


def index(value: int) -> E:
    """An integer constant of type `index`."""
    return E("literal", "index", (), value)


def axis(name: str) -> E:
    """A loop's variable."""
    return E("axis", "index", (), name)


def var(name: str) -> E:
    """A run-time integer."""
    return E("var", "index", (), name)


def binary(op: str, a: E, b: E) -> E:
    """Returns an infix operation; a bare constant takes the type of the other operand."""
    t = a.type
    return E(op, "bool" if op in COMPARISONS else t, (a, b))


@dataclass(frozen=True)
class Reduction:
    """`FN(terms, axis=axes, where=…, init=…, reassociate)`, or a sort with `at=…`."""

    fn: str
    terms: tuple[E, ...]
    axes: tuple[str, ...]
    where: E | None = None
    init: E | None = None
    reassociate: bool = False
    at: E | None = None  # the rank of a sort
    descending: bool = False

    def __str__(self) -> str:
        terms = ", ".join(map(str, self.terms))
        terms = f"({terms})" if len(self.terms) > 1 else terms
        axes = self.axes[0] if len(self.axes) == 1 else f"[{', '.join(self.axes)}]"
        more = f", where={self.where}" if self.where else ""
        more += f", init={self.init}" if self.init else ""
        more += ", reassociate" if self.reassociate else ""
        more += f", at={self.at}" if self.at else ""
        more += ", descending=true" if self.descending else ""
        return f"{self.fn}({terms}, axis={axes}{more})"


@dataclass(frozen=True)
class Stage:
    """`compute` or `output`: names, axes with extents, element types, a body."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    axes: tuple[tuple[str, E], ...]
    body: E | Reduction
    output: bool
    let: str = ""  # the call of an operator: `let NAME = …`
    # Of an `update`, whose name is that of an `inout` tensor: what is added to each axis.
    offsets: tuple[E, ...] | None = None

    @property
    def name(self) -> str:
        """The name that schedules use."""
        return self.names[0]

    def __str__(self) -> str:
        if self.let:
            return f"let {self.name} = {self.let}"
        if self.offsets is not None:
            places = zip(self.offsets, self.axes)
            axes = ", ".join(f"{by} + {a}: {extent}" for by, (a, extent) in places)
            return f"update {self.name}[{axes}] = {self.body}"
        kind = "output" if self.output else "compute"
        axes = ", ".join(f"{a}: {extent}" for a, extent in self.axes)
        body = str(self.body)
        if self.axes and all(a == f"i{at}" for at, (a, _) in enumerate(self.axes)):
            axes, body = self._packed(body)
        if len(self.names) > 1:
            named = ", ".join(f"{n}: {t}" for n, t in zip(self.names, self.types))
            return f"{kind} ({named})[{axes}] = {body}"
        return f"{kind} {self.name}[{axes}]: {self.types[0]} = {body}"

    def _packed(self, body: str) -> tuple[str, str]:
        """The axes and the body with a pack `i...` in place of the axes `i0`, `i1`, …"""
        rank = len(self.axes)
        axes = f"i...: [{', '.join(str(extent) for _, extent in self.axes)}]..."
        body = re.sub(r"\bi([0-2])\b", r"i[\1]", body)
        whole = ", ".join(f"i[{at}]" for at in range(rank))
        if rank > 1:
            # Every second index with all axes in order is the pack, or two slices of it.
            parts = body.split(f"[{whole}]")
            forms = ("[i...]", f"[{whole}]", "[i[..1]..., i[1..]...]")
            body = parts[0]
            for at, part in enumerate(parts[1:]):
                body += forms[at % len(forms)] + part
        return axes, body

    def expressions(self) -> tuple[E, ...]:
        """The expressions of the body."""
        if isinstance(self.body, E):
            return (self.body,)
        more = tuple(x for x in (self.body.where, self.body.init, self.body.at) if x)
        return self.body.terms + more

    def reads(self) -> set[str]:
        """The tensors that the stage reads."""
        return {e.value for x in self.expressions() for e in x.walk() if e.op == "read"}


@dataclass(frozen=True)
class Input:
    """A tensor, or a scalar if `shape` is None."""

    name: str
    type: str
    shape: tuple[E, ...] | None
    layout_free: bool = False
    inout: bool = False

    def __str__(self) -> str:
        if self.inout:
            return f"inout {self.name}: {self.type}[{', '.join(map(str, self.shape or ()))}]"
        if self.shape is None:
            return f"input {self.name}: {self.type}"
        free = " layout_free" if self.layout_free else ""
        extents = ", ".join(map(str, self.shape))
        # Some shapes of two extents are a pack.
        extents = f"[{extents}]..." if len(self.shape) == 2 and self.name < "b" else extents
        return f"input {self.name}: {self.type}[{extents}]{free}"


@dataclass(frozen=True)
class Reducer:
    """A custom reducer: parameters of both sides, results, identities."""

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    results: tuple[E, ...]
    identity: tuple[E, ...]

    def __str__(self) -> str:
        def group(xs: tuple[Any, ...]) -> str:
            shown = ", ".join(map(str, xs))
            return f"({shown})" if len(xs) > 1 else shown

        return (f"reducer {self.name}({group(self.left)}, {group(self.right)}) = "
                f"{group(self.results)} identity {group(self.identity)}")


@dataclass(frozen=True)
class Kernel:
    """A kernel; `reduces` are reduction axes with their bounds, `vars` the run-time integers."""

    name: str
    vars: tuple[str, ...]
    inputs: tuple[Input, ...]
    reduces: tuple[tuple[str, E, E], ...]
    stages: tuple[Stage, ...]
    reducers: tuple[Reducer, ...] = ()
    reassociate: bool = False
    exact: bool = False  # sums of its data are exact in every order
    assumes: tuple[E, ...] = ()
    operators: tuple[str, ...] = ()  # kernels that it uses as operators
    function: str = ""  # its one stage is this function, judged within its bound
    # The statements of its schedule.
    schedule: tuple["Line", ...] = field(default=())

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The source lines of the kernel, without its schedule."""
        params = ", ".join(f"{v}: var" for v in self.vars)
        more = " reassociate" if self.reassociate else ""
        out = [str(r) for r in self.reducers] + list(self.operators)
        out.append(f"kernel {self.name}({params}){more} {{")
        out += [f"    assume {a}" for a in self.assumes]
        out += [f"    {i}" for i in self.inputs]
        out += [f"    reduce {n}: {low}..{high}" for n, low, high in self.reduces]
        out += [f"    {s}" for s in self.stages]
        return out + ["}"]

    def with_schedule(self, lines: tuple["Line", ...]) -> "Kernel":
        """The same kernel with another schedule."""
        return replace(self, schedule=lines)

    def outputs(self) -> list[tuple[str, str, tuple[E, ...]]]:
        """Name, type and shape of each output, in order."""
        return [(name, t, tuple(x for _, x in s.axes)) for s in self.stages
                if s.output and s.offsets is None for name, t in zip(s.names, s.types)]

    def results(self) -> list[tuple[str, str, tuple[E, ...]]]:
        """The same of each tensor that a call writes: `inout` tensors, then outputs."""
        return [(i.name, i.type, i.shape or ()) for i in self.inputs if i.inout] + self.outputs()

    def own_vars(self) -> list[str]:
        """The run-time integers that are no extents: arguments of the checked entries."""
        told = set()
        for shape in [i.shape for i in self.inputs if i.shape] + [s for _, _, s in self.outputs()]:
            told |= {x.value for x in shape if x.op == "var"}
        return [v for v in self.vars if v not in told]


@dataclass(frozen=True)
class Line:
    """A statement of a schedule, with the names that it declares and depends on."""

    directive: str
    text: str
    makes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    part: str = ""  # of `use`: the statement of the other schedule
