"""Random schedules: every directive of docs/SCHEDULES.md for CPUs.

A model tracks the stages and their loops as the directives are documented. It does not check
legality: statements that the compiler refuses are dropped and counted (`build`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .exact import FLOATS
from .program import E, Kernel, Line, Reduction

FACTORS = (1, 2, 3, 4, 5, 7, 8, 8, 16, 16, 32, 64)
TAILS = ("", "", "", ", tail=peel", ", tail=guard", ", tail=mask", ", tail=shift")


@dataclass
class Loop:
    """A loop: its name, whether it reduces, its extent if known."""

    name: str
    reduces: bool
    size: int | None
    made: bool = False  # by a directive, which users of the name depend on
    free: bool = True  # not annotated, and no stage is attached to it


@dataclass
class Model:
    """A stage as a schedule sees it."""

    name: str
    loops: list[Loop]
    output: bool
    reads: list[str]
    fn: str = ""
    type: str = ""
    rank: int = 0
    made: bool = False
    fresh: bool = True  # no directive yet
    attached: bool = False
    volume: int = 1  # approximate number of iterations

    def needs(self, *loops: Loop) -> tuple[str, ...]:
        """The made names that a directive on these loops needs."""
        own = (self.name,) if self.made else ()
        return own + tuple(x.name for x in loops if x.made)

    def data(self) -> list[Loop]:
        """The loops over data axes."""
        return [x for x in self.loops if not x.reduces]


def size_of(e: E) -> int | None:
    """Returns a constant extent, else None."""
    return e.value if e.op == "literal" else None


@dataclass
class Scheduler:
    """A schedule under construction."""

    kernel: Kernel
    rng: random.Random
    lines: list[Line] = field(default_factory=list)
    stages: dict[str, Model] = field(default_factory=dict)
    count: int = 0
    prefix: str = "v"

    def __post_init__(self) -> None:
        bounds = {n: (low, high) for n, low, high in self.kernel.reduces}
        for s in self.kernel.stages:
            loops = [Loop(n, False, size_of(x)) for n, x in s.axes]
            fn = ""
            if isinstance(s.body, Reduction):
                fn = s.body.fn
                # No directive names the axis of a sort.
                for a in () if s.body.at else s.body.axes:
                    low, high = bounds[a]
                    n = size_of(high)
                    loops.append(Loop(a, True, n - low.value if n is not None else None))
            volume = 1
            for loop in loops:
                volume *= loop.size or 33
            self.stages[s.name] = Model(s.name, loops, s.output, sorted(s.reads()), fn, s.types[0],
                                        len(s.axes), volume=volume)

    def new(self) -> str:
        """Returns an unused name."""
        self.count += 1
        return f"{self.prefix}{self.count}"

    def add(self, directive: str, text: str, makes: tuple[str, ...] = (),
            needs: tuple[str, ...] = ()) -> None:
        """Adds a statement."""
        self.lines.append(Line(directive, text, makes, needs))

    def reassociate(self, s: Model) -> str:
        """Returns the permission to reorder, if every order gives the same bits. Without it, the
        compiler must refuse to reorder floats."""
        free = self.kernel.exact and s.fn == "sum"
        return ", reassociate=true" if free and s.type in FLOATS else ""

    # Loops.

    def split(self, s: Model, loop: Loop, how: str = "", factor: int = 0,
              tail: str | None = None) -> list[Loop]:
        """`S.split`; returns the new loops, outer ones first."""
        rng = self.rng
        tail = rng.choice(TAILS) if tail is None else tail
        how = how or rng.choice(("factor", "factor", "factor", "nparts", "factors"))
        factor = factor or rng.choice(FACTORS)
        sizes: list[int | None]
        n = loop.size
        if how == "factor":
            value, sizes = str(factor), [None if n is None else -(-n // factor), factor]
        elif how == "nparts":
            value, sizes = str(factor), [factor, None if n is None else -(-n // factor)]
        else:
            second = rng.choice((2, 4, 8))
            value = f"[{factor}, {second}]"
            sizes = [None if n is None else -(-n // (factor * second)), factor, second]
        names = [self.new() for _ in sizes]
        if rng.random() < 0.08:
            self.add("knob", f"knob t{names[0]} = {value} in [{value}]", (f"t{names[0]}",)) \
                if how != "factors" else None
            known = how != "factors"
        else:
            known = False
        text = f"t{names[0]}" if known else value
        needs = s.needs(loop) + ((f"t{names[0]}",) if known else ())
        self.add("split", f"let {', '.join(names)} = {s.name}.split({loop.name}, {how}={text}"
                 f"{tail})", tuple(names), needs)
        made = [Loop(x, loop.reduces, size, True) for x, size in zip(names, sizes)]
        at = s.loops.index(loop)
        s.loops[at:at + 1] = made
        s.fresh = False
        return made

    def tile(self, s: Model) -> None:
        """`S.tile` of two data axes."""
        data = [x for x in s.data() if x.free]
        if len(data) < 2:
            return
        x, y = data[:2] if self.rng.random() < 0.8 else self.rng.sample(data, 2)
        a, b = self.rng.choice(FACTORS), self.rng.choice(FACTORS)
        names = tuple(self.new() for _ in range(4))
        self.add("tile", f"let {', '.join(names)} = {s.name}.tile({x.name}, {y.name}, {a}, {b})",
                 names, s.needs(x, y))
        sizes = (None, None, a, b)
        made = [Loop(n, False, size, True) for n, size in zip(names, sizes)]
        at = min(s.loops.index(x), s.loops.index(y))
        s.loops = s.loops[:at] + made + [z for z in s.loops[at:] if z not in (x, y)]
        s.fresh = False

    def fuse(self, s: Model) -> None:
        """`S.fuse` of adjacent loops, or of all data axes."""
        pairs = [(a, b) for a, b in zip(s.loops, s.loops[1:])
                 if a.reduces == b.reduces and a.free and b.free]
        name = self.new()
        data = s.data()
        if data and all(x.free for x in data) and self.rng.random() < 0.2:
            self.add("fuse", f"let {name} = {s.name}.fuse(*)", (name,), s.needs(*data))
            at = s.loops.index(data[0])
            s.loops = [x for x in s.loops if x.reduces]
            s.loops.insert(min(at, len(s.loops)), Loop(name, False, None, True))
        elif pairs:
            a, b = self.rng.choice(pairs)
            self.add("fuse", f"let {name} = {s.name}.fuse({a.name}, {b.name})", (name,),
                     s.needs(a, b))
            at = s.loops.index(a)
            size = a.size * b.size if a.size and b.size else None
            s.loops[at:at + 2] = [Loop(name, a.reduces, size, True)]
        s.fresh = False

    def reorder(self, s: Model) -> None:
        """`S.reorder` of some loops; reduction terms mostly stay in order."""
        if len(s.loops) < 2:
            return
        rng = self.rng
        some = rng.sample(s.loops, rng.randint(2, len(s.loops)))
        more = self.reassociate(s) if rng.random() < 0.7 else ""
        if not more and s.fn and rng.random() < 0.8:
            order = iter(sorted((x for x in some if x.reduces), key=s.loops.index))
            some = [next(order) if x.reduces else x for x in some]
        places = sorted(s.loops.index(x) for x in some)
        for at, loop in zip(places, some):
            s.loops[at] = loop
        star = ", *" if rng.random() < 0.03 else ""
        self.add("reorder", f"{s.name}.reorder({', '.join(x.name for x in some)}{star}{more})", (),
                 s.needs(*some))
        s.fresh = False

    def skew(self, s: Model) -> None:
        """`S.skew` of two data axes."""
        data = [x for x in s.data() if x.free]
        if len(data) < 2:
            return
        x, y = self.rng.sample(data, 2)
        factor = self.rng.choice((1, 1, 1, 2, 3))
        wave, position = self.new(), self.new()
        more = f", factor={factor}" if factor > 1 else ""
        self.add("skew", f"let {wave}, {position} = {s.name}.skew({x.name}, {y.name}{more})",
                 (wave, position), s.needs(x, y))
        waves = factor * (x.size - 1) + y.size if x.size and y.size else None
        places = sorted(s.loops.index(z) for z in (x, y))
        s.loops[places[0]] = Loop(wave, False, waves, True)
        s.loops[places[1]] = Loop(position, False, x.size, True)
        s.fresh = False

    # Annotations.

    def unroll(self, s: Model) -> None:
        """`S.unroll` of a short loop."""
        some = [x for x in s.loops if x.free and x.size is not None and x.size <= 16]
        if some:
            loop = self.rng.choice(some)
            loop.free = False
            self.add("unroll", f"{s.name}.unroll({loop.name})", (), s.needs(loop))
            s.fresh = False

    def vectorize(self, s: Model) -> None:
        """`S.vectorize` of a data axis, made by a split if there is none of constant extent."""
        rng = self.rng
        some = [x for x in s.data() if x.free]
        taken = [i for i, x in enumerate(s.loops) if not x.free]
        if taken and rng.random() < 0.9:
            some = [x for x in some if s.loops.index(x) > taken[-1]]
        if not some:
            return
        loop = some[-1] if rng.random() < 0.8 else rng.choice(some)
        if loop.size is None or loop.size > 64 or rng.random() < 0.4:
            loop = self.split(s, loop, "factor", rng.choice((2, 3, 4, 7, 8, 8, 16, 16, 32, 64)))[1]
        loop.free = False
        self.add("vectorize", f"{s.name}.vectorize({loop.name})", (), s.needs(loop))
        s.fresh = False

    def parallel(self, s: Model) -> None:
        """`S.parallel` of an outer data axis."""
        some = [x for x in s.data() if x.free]
        if some:
            loop = some[0] if self.rng.random() < 0.8 else self.rng.choice(some)
            loop.free = False
            self.add("parallel", f"{s.name}.parallel({loop.name})", (), s.needs(loop))
            s.fresh = False

    def pragma(self, s: Model) -> None:
        """`S.pragma`."""
        if s.loops:
            loop = self.rng.choice(s.loops)
            what = self.rng.choice(("auto_unroll_max_step, 16", "auto_unroll_max_step, 4",
                                    "unroll_explicit, false", "unroll_explicit, true"))
            self.add("pragma", f"{s.name}.pragma({loop.name}, {what})", (), s.needs(loop))

    # Places.

    def readers(self, name: str) -> list[Model]:
        """The stages that read a tensor."""
        names = {name} | {x for x in (name + "v",) if name in self.stages}
        return [s for s in self.stages.values() if names & set(s.reads)]

    def compute_at(self, s: Model) -> Loop | None:
        """`S.compute_at` a loop of a reader."""
        readers = [x for x in self.readers(s.name)]
        if s.output or not readers or s.attached:
            return None
        p = self.rng.choice(readers)
        if not p.loops:
            return None
        loop = self.rng.choice(p.loops[: max(1, len(p.loops) - 1)]) \
            if self.rng.random() < 0.7 else self.rng.choice(p.loops)
        # A stage that is computed again in each iteration of an inner loop may take too long.
        if s.volume * p.volume > 20_000_000:
            loop = p.loops[0]
            if s.volume * (loop.size or 33) > 20_000_000:
                return None
        p.volume *= max(1, min(s.volume, 20_000_000 // p.volume))
        loop.free = False
        s.attached = True
        self.add("compute_at", f"{s.name}.compute_at({p.name}, {loop.name})", (),
                 s.needs() + p.needs(loop))
        return loop

    def store_at(self, s: Model, p: Model | None = None, at: int = -1, inside: int = -2) -> None:
        """`S.compute_at` a loop of a reader, with the buffer in an outer loop or at the root."""
        readers = self.readers(s.name)
        if s.output or s.attached or not (readers or p):
            return
        rng = self.rng
        p = p or rng.choice(readers)
        if not p.loops or s.volume * p.volume > 20_000_000:
            return
        at = rng.randrange(len(p.loops)) if at < 0 else at
        inside = rng.randrange(-1, at) if inside < -1 else inside
        p.volume *= max(1, min(s.volume, 20_000_000 // p.volume))
        for loop in p.loops[max(inside, 0):at + 1]:
            loop.free = False
        s.attached = True
        loop = p.loops[at]
        self.add("compute_at", f"{s.name}.compute_at({p.name}, {loop.name})", (),
                 s.needs() + p.needs(loop))
        if inside < 0:
            self.add("store_root", f"{s.name}.store_root()", (), s.needs() + p.needs(loop))
        else:
            outer = p.loops[inside]
            self.add("store_at", f"{s.name}.store_at({p.name}, {outer.name})", (),
                     s.needs() + p.needs(loop, outer))

    def compute_with(self, s: Model) -> None:
        """`S.compute_with` another stage; both often get the same directives first."""
        others = [x for x in self.stages.values() if x is not s and x.attached == s.attached]
        def same(x: Model) -> int:
            pairs = zip(x.loops, s.loops)
            return next((i for i, (a, b) in enumerate(pairs)
                         if (a.reduces, a.size) != (b.reduces, b.size)),
                        min(len(x.loops), len(s.loops)))
        alike = [x for x in others if same(x)]
        if not alike:
            return
        host = self.rng.choice(alike)
        at = self.rng.randrange(same(host))
        if self.rng.random() < 0.4 and host.loops[0].free and s.loops[0].free:
            factor = self.rng.choice(FACTORS)
            for x in (host, s):
                self.split(x, x.loops[0], "factor", factor, "")
                if self.rng.random() < 0.9:
                    x.loops[0].free = False
                    self.add("parallel", f"{x.name}.parallel({x.loops[0].name})", (),
                             x.needs(x.loops[0]))
        loop = host.loops[at]
        loop.free = False
        self.add("compute_with", f"{s.name}.compute_with({host.name}, {loop.name})", (),
                 s.needs() + host.needs(loop))

    def compute_inline(self, s: Model) -> None:
        """`S.compute_inline`, sometimes undone."""
        if s.output or s.fn:
            return
        self.add("compute_inline", f"{s.name}.compute_inline()", (), s.needs())
        if self.rng.random() < 0.2:
            self.compute_root(s)
        else:
            s.attached = True

    def compute_root(self, s: Model) -> None:
        """`S.compute_root`."""
        self.add("compute_root", f"{s.name}.compute_root()", (), s.needs())
        s.attached = False

    def auto_inline(self, _: Model) -> None:
        """`auto_inline_injective()`."""
        self.add("auto_inline_injective", "auto_inline_injective()")

    # Copies.

    def layout(self, prefix: list[str], sizes: list[int | None], exact: bool) -> tuple[str, int]:
        """Returns a `layout=` over some axes, and its rank; `exact` allows no padding."""
        rng = self.rng
        if len(prefix) > 1 and rng.random() < 0.4:
            order = rng.sample(range(len(prefix)), len(prefix))
            return f", layout=[{', '.join(prefix[i] for i in order)}]", len(prefix)
        at = rng.randrange(len(prefix))
        by = [f for f in (2, 4, 8, 16) if not exact or sizes[at] and sizes[at] % f == 0]
        if not by:
            return "", len(prefix)
        f = rng.choice(by)
        rest = [x for i, x in enumerate(prefix) if i != at]
        parts = [f"{prefix[at]} // {f}", *rest, f"{prefix[at]} % {f}"]
        return f", layout=[{', '.join(parts)}]", len(parts)

    def cache_read(self, s: Model) -> Model | None:
        """`A.cache_read` for stage `s`."""
        if not s.reads:
            return None
        rng = self.rng
        source = rng.choice(s.reads)
        shapes = {i.name: i.shape for i in self.kernel.inputs}
        shapes |= {n: tuple(x for _, x in t.axes) for t in self.kernel.stages for n in t.names}
        if source not in shapes:
            return None
        sizes = [size_of(x) for x in shapes[source]]
        name = self.new()
        readers = [x.name for x in self.readers(source)] if rng.random() < 0.3 else [s.name]
        axes = [f"ax{i}" for i in range(len(sizes))]
        layout, rank = "", len(sizes)
        if axes and rng.random() < 0.4:
            layout, rank = self.layout(axes, sizes, False)
        names = [f"p{i}" for i in range(rank)] if layout else axes
        scope = rng.choice(("global", "global", "local"))
        needs = s.needs() + ((source,) if source in self.stages and self.stages[source].made else
                             ())
        self.add("cache_read" + (" layout" if layout else ""),
                 f"let {name} = {source}.cache_read({scope}, [{', '.join(readers)}]{layout})",
                 (name,), needs)
        loops = [Loop(x, False, None if layout else n) for x, n in
                 zip(names, sizes if not layout else [None] * rank)]
        volume = 1
        for n in sizes:
            volume *= n or 33
        copy = Model(name, loops, False, [source], "", s.type, rank, True, volume=volume)
        self.stages[name] = copy
        s.reads = [name if x == source else x for x in s.reads]
        return copy

    def cache_write(self, s: Model) -> Model | None:
        """`S.cache_write`, before other directives on the loops of `s`."""
        if not s.fresh and self.rng.random() < 0.95:
            return None
        rng = self.rng
        name = self.new()
        data, rest = s.data(), [x for x in s.loops if x.reduces]
        layout, rank = "", len(data)
        if data and rng.random() < 0.3:
            layout, rank = self.layout([x.name for x in data], [x.size for x in data], True)
        scope = rng.choice(("global", "local"))
        self.add("cache_write" + (" layout" if layout else ""),
                 f"let {name} = {s.name}.cache_write({scope}{layout})", (name,), s.needs())
        own = [Loop(f"p{i}", False, None) for i in range(rank)] if layout else \
            [Loop(x.name, False, x.size) for x in data]
        copy = Model(name, own + [Loop(x.name, True, x.size) for x in rest], False, s.reads, s.fn,
                     s.type, rank, True, volume=s.volume)
        s.loops, s.reads, s.fn = data, [name], ""
        before = dict(self.stages)
        self.stages.clear()
        for key, x in before.items():
            if x is s:
                self.stages[name] = copy
            self.stages[key] = x
        return copy

    def rfactor(self, s: Model) -> Model | None:
        """`S.rfactor` of a reduction axis or a part of one."""
        some = [x for x in s.loops if x.reduces and x.free]
        if not some:
            return None
        loop = self.rng.choice(some)
        if self.rng.random() < 0.6 or len(some) == 1 and self.rng.random() < 0.7:
            loop = self.rng.choice(self.split(s, loop, tail=""))
        name = self.new()
        more = self.reassociate(s) if self.rng.random() < 0.9 else ""
        self.add("rfactor" + (" reassociate" if more else ""),
                 f"let {name} = {s.name}.rfactor({loop.name}{more})", (name,), s.needs(loop))
        rest = [x for x in s.loops if x.reduces and x is not loop]
        loops = [Loop(loop.name, False, loop.size, True)]
        loops += [Loop(x.name, False, x.size) for x in s.data() if not x.made]
        loops += [Loop(x.name, True, x.size, x.made) for x in rest]
        part = Model(name, loops, False, s.reads, s.fn, s.type, s.rank + 1, True,
                     volume=s.volume)
        s.loops = [x for x in s.loops if not x.reduces] + [loop]
        s.reads = [name]
        before = dict(self.stages)
        self.stages.clear()
        for key, x in before.items():
            if x is s:
                self.stages[name] = part
            self.stages[key] = x
        return part

    # Storage.

    def storage_align(self, s: Model) -> None:
        """`S.storage_align` of a dimension of an intermediate."""
        if not s.output and s.loops:
            axis = self.rng.choice(s.data() or s.loops)
            factor = self.rng.choice((2, 4, 8, 16, 32))
            self.add("storage_align", f"{s.name}.storage_align({axis.name}, {factor}, "
                     f"{self.rng.choice((0, 1, factor // 2))})", (), s.needs(axis))

    def double_buffer(self, s: Model) -> None:
        """`S.double_buffer` of an attached stage."""
        if s.attached:
            self.add("double_buffer", f"{s.name}.double_buffer()", (), s.needs())

    def prefetch(self, s: Model) -> None:
        """`S.prefetch` of a tensor that a loop reads."""
        if s.reads and s.loops:
            loop = self.rng.choice(s.loops)
            source = self.rng.choice(s.reads)
            needs = (source,) if source in self.stages and self.stages[source].made else ()
            self.add("prefetch", f"{s.name}.prefetch({source}, {loop.name}, "
                     f"{self.rng.choice((1, 2, 3, 8))})", (), s.needs(loop) + needs)

    def store_nontemporal(self, s: Model) -> None:
        """`S.store_nontemporal`."""
        self.add("store_nontemporal", f"{s.name}.store_nontemporal()", (), s.needs())

    def set_scope(self, s: Model) -> None:
        """`S.set_scope`."""
        if not s.output:
            scope = self.rng.choice(("global", "local", "shared"))
            self.add("set_scope", f"{s.name}.set_scope({scope})", (), s.needs())

    def statement(self, s: Model) -> None:
        """Statements other than directives: `for`, `if`, `let`, `assert`, `use`."""
        rng = self.rng
        data = [x for x in s.data() if x.free]
        choice = rng.randrange(5)
        plain = [x for x in data if not x.made]
        if choice == 4 and plain and not s.made:
            loop = rng.choice(plain)
            loop.free = False
            self.lines.append(Line("use", "use part", (), (), f"{s.name}.parallel({loop.name})"))
        elif choice == 0 and data:
            loop = rng.choice(data)
            loop.free = False
            self.add("for", f"for T in [{s.name}] {{ T.parallel({loop.name}) }}", (),
                     s.needs(loop))
        elif choice == 1 and data and data[0].size is not None:
            loop = data[0]
            loop.free = False
            self.add("if", f"if target.lanes(float32) >= 8 {{ {s.name}.vectorize({loop.name}) }} "
                     f"else {{ {s.name}.unroll({loop.name}) }}", (), s.needs(loop))
        elif choice == 2:
            self.add("assert", 'assert target.lanes(float32) >= 4, "vectors"')
        else:
            name = self.new()
            self.add("let", f"let {name} = {s.name}", (name,), s.needs())

    def random(self) -> None:
        """Adds a few random directives: those that add or inline stages come first."""
        rng = self.rng
        if not self.stages:
            return
        early = [self.cache_read, self.cache_write, self.rfactor, self.compute_inline,
                 self.auto_inline]
        weights = [4, 3, 2, 2, 1]
        late = [self.split, self.tile, self.fuse, self.reorder, self.skew, self.unroll,
                self.vectorize, self.parallel, self.pragma, self.compute_at, self.compute_root,
                self.storage_align, self.double_buffer, self.prefetch, self.store_nontemporal,
                self.set_scope, self.statement, self.compute_with, self.store_at]
        often = [6, 3, 4, 5, 3, 3, 7, 4, 1, 5, 1, 2, 2, 2, 1, 1, 3, 3, 3]
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            self.step(rng.choices(early, weights)[0])
        for _ in range(rng.choice((1, 2, 3, 4, 5, 7))):
            self.step(rng.choices(late, often)[0])
        if rng.random() < 0.3:
            for s in list(self.stages.values()):
                if rng.random() < 0.6:
                    self.vectorize(s)

    def step(self, what: object) -> None:
        """Adds one directive for a random stage."""
        rng = self.rng
        s = rng.choice(list(self.stages.values()))
        if what == self.split:
            free = [x for x in s.loops if x.free]
            if free:
                self.split(s, rng.choice(free))
            return
        what(s)  # type: ignore[operator]
        if what == self.compute_at and s.attached:
            if rng.random() < 0.35:
                self.double_buffer(s)
            elif rng.random() < 0.3:
                self.set_scope(s)
