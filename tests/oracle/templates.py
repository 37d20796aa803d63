"""Programs for directives that need a certain form, with schedules that use them: products for
`tensorize`, chains for `contract`, sums of sums for `merge`, long sums for `rfactor`, prefix sums
for `scan`, stencils for `double_buffer` and `prefetch`, chains of stencils for `store_at`, layouts
for `prepack`; and sorts. The other programs are random (`generate`).
"""

from __future__ import annotations

import random

from . import functions
from .exact import FLOATS
from .generate import EXTENTS, Generator
from .program import E, Input, Kernel, Line, Reduction, Stage, axis, binary, index, var
from .schedules import Scheduler

# Element types of sums; the data of floats is exact in every order.
SUMMED = ("float32", "float32", "float64", "int32", "int64", "uint8", "int16", "uint32")


def program(rng: random.Random, name: str) -> tuple[Kernel, tuple[Line, ...]]:
    """Returns a program and its schedule."""
    choice = rng.random()
    for make, share in TEMPLATES:
        if choice < share:
            kernel, scheduler = make(rng, name)
            if not kernel.function and rng.random() < 0.5:
                scheduler.random()
            return kernel, tuple(scheduler.lines)
        choice -= share
    kernel = Generator(rng, name).kernel()
    scheduler = Scheduler(kernel, rng)
    scheduler.random()
    return kernel, tuple(scheduler.lines)


def read(name: str, t: str, *at: E) -> E:
    """A read of a tensor."""
    return E("read", t, at, name)


def wide(e: E, t: str) -> E:
    """A value in another type."""
    return e if e.type == t else E("cast", t, (e,))


def extent(rng: random.Random, name: str, names: list[str], runtime: float = 0.4) -> E:
    """An extent, constant or run-time."""
    if rng.random() < runtime:
        names.append(name)
        return var(name)
    return index(rng.choice(EXTENTS))


def permission(kernel: Kernel) -> str:
    """Returns the argument that permits a sum of floats in another order."""
    t = kernel.stages[0].types[0]
    return "reassociate=true" if t in FLOATS and not kernel.reassociate else ""


def matmul(rng: random.Random, name: str, t: str, factors: tuple[str, str], shape: list[E],
           names: list[str], output: bool = True) -> Kernel:
    """`C[x, y] = sum(A[x, k] * B[k, y])` in `t`, sometimes followed by another stage."""
    n, m, l = shape
    a, b = (Input(x, f, s) for x, f, s in
            zip("AB", factors, ((n, l), (l, m))))
    x, y, k = axis("x"), axis("y"), axis("k")
    term = binary("*", wide(read("A", a.type, x, k), t), wide(read("B", b.type, k, y), t))
    more = rng.random() < 0.25
    c = Stage(("C",), (t,), (("x", n), ("y", m)), Reduction("sum", (term,), ("k",)),
              output or not more)
    stages = [c]
    if more:
        value = E("max", t, (read("C", t, x, y), E("bare", t, (), 0)))
        stages.append(Stage(("D",), (t,), (("x", n), ("y", m)), value, True))
    return Kernel(name, tuple(names), (a, b), (("k", index(0), l),), tuple(stages), (),
                  rng.random() < 0.3 and t in FLOATS, exact=True)


def product(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """A matrix product with copies, tiles, partial sums."""
    names: list[str] = []
    shape = [extent(rng, v, names) for v in "nml"]
    t = rng.choice(SUMMED)
    kernel = matmul(rng, name, t, (t, t), shape, names, rng.random() < 0.5)
    s = Scheduler(kernel, rng)
    c = s.stages["C"]
    recipe = rng.randrange(4)
    if recipe == 0:
        f = rng.choice((4, 8, 16))
        # `--prepack` needs an input that is packed at the root.
        s.add("cache_read layout",
              f"let R = B.cache_read(global, [C], layout=[ax1 // {f}, ax0, ax1 % {f}])", ("R",))
        if rng.random() < 0.5:
            s.add("vectorize", "R.vectorize(p2)", (), ("R",))
        c.reads = ["A", "R"]
    elif recipe == 1:
        local = s.cache_write(c)
        s.tile(c)
        if local:
            s.step(s.compute_at)
            s.vectorize(local)
    elif recipe == 2:
        part = s.rfactor(c)
        if part and rng.random() < 0.6:
            s.vectorize(part) if rng.random() < 0.5 else s.parallel(part)
    else:
        x, y = c.loops[0], c.loops[1]
        xo, xi = s.split(c, x, "factor", rng.choice((2, 3, 4, 6)), "")
        yo, yi = s.split(c, y, "factor", rng.choice((8, 16, 32)), "")
        k = c.loops[-1]
        s.add("reorder", f"C.reorder({xo.name}, {yo.name}, {k.name}, {xi.name}, {yi.name})", (),
              (xo.name, yo.name))
        c.loops = [xo, yo, k, xi, yi]
        s.add("vectorize", f"C.vectorize({yi.name})", (), (yi.name,))
        s.add("unroll", f"C.unroll({xi.name})", (), (xi.name,))
        yi.free = xi.free = False
    return kernel, s


DOTS = {"dot4_u8_i8": ("uint8", "int8", "int32", 4), "dot4_i8_u8": ("int8", "uint8", "int32", 4),
        "dot2_bf16": ("bfloat16", "bfloat16", "float32", 2)}


def tensorized(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """A product whose innermost loops become a dot product instruction."""
    names: list[str] = []
    what = rng.choice(tuple(DOTS) + ("dot4_i32",))
    n = extent(rng, "n", names)
    if what == "dot4_i32":
        m = extent(rng, "m", names)
        l = index(rng.choice((4, 8, 16, 36)))
        kernel = matmul(rng, name, "int32", ("int32", "int32"), [n, m, l], names)
        # The terms of both factors are consecutive.
        a, b = kernel.inputs
        term = binary("*", read("A", "int32", axis("x"), axis("k")),
                      read("B", "int32", axis("y"), axis("k")))
        c = Stage(("C",), ("int32",), (("x", n), ("y", m)), Reduction("sum", (term,), ("k",)),
                  True)
        kernel = Kernel(name, tuple(names), (a, Input("B", "int32", (m, l))),
                        (("k", index(0), l),), (c,), exact=rng.random() < 0.5)
        s = Scheduler(kernel, rng)
        _, ki = s.split(s.stages["C"], s.stages["C"].loops[-1], "factor", 4, "")
        s.add("tensorize dot4_i32", f"C.tensorize({ki.name}, dot4_i32)", (), (ki.name,))
        ki.free = False
        return kernel, s
    ta, tb, t, terms = DOTS[what]
    m = index(rng.choice((16, 32, 48, 64))) if rng.random() < 0.85 else extent(rng, "m", names)
    l = index(terms * rng.choice((1, 2, 4, 7, 16))) if rng.random() < 0.85 else \
        extent(rng, "l", names)
    kernel = matmul(rng, name, t, (ta, tb), [n, m, l], names)
    s = Scheduler(kernel, rng)
    c = s.stages["C"]
    s.add("cache_read layout", f"let R = B.cache_read(global, [C], layout=[ax1 // 16, "
          f"ax0 // {terms}, ax1 % 16, ax0 % {terms}])", ("R",))
    x, y, k = c.loops
    xo, xi = s.split(c, x, "factor", rng.choice((1, 2, 4, 8)), "")
    yo, yi = s.split(c, y, "factor", 16, "")
    ko, ki = s.split(c, k, "factor", terms, "")
    order = (yo, xo, ko, xi, yi, ki)
    made = tuple(v.name for v in order)
    s.add("reorder", f"C.reorder({', '.join(made)})", (), made)
    c.loops, c.reads = list(order), ["A", "R"]
    if rng.random() < 0.6:
        s.add("unroll", f"C.unroll({xi.name})", (), (xi.name,))
        xi.free = False
    more = ", reassociate=true" if what == "dot2_bf16" and not kernel.reassociate else ""
    s.add(f"tensorize {what}", f"C.tensorize({yi.name}, {what}{more})", (), made + ("R",))
    yi.free = ki.free = False
    return kernel, s


def chain(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """`A*B*C` summed over two axes; `contract` sums over one of them first."""
    names: list[str] = []
    t = rng.choice(SUMMED)
    i, l, k, j = (index(rng.choice((2, 3, 4, 7, 8, 16))) if rng.random() < 0.7 else
                  extent(rng, v, names, 1.0) for v in "nmlq")
    a, b, c = (read(x, t, *at) for x, at in
               (("A", (axis("i"), axis("k"))), ("B", (axis("k"), axis("j"))),
                ("C", (axis("j"), axis("h")))))
    term = binary("*", binary("*", a, b), c)
    axes = ("k", "j") if rng.random() < 0.7 else ("j", "k")
    stage = Stage(("D",), (t,), (("i", i), ("h", l)), Reduction("sum", (term,), axes), True)
    inputs = (Input("A", t, (i, k)), Input("B", t, (k, j)), Input("C", t, (j, l)))
    kernel = Kernel(name, tuple(names), inputs, (("k", index(0), k), ("j", index(0), j)),
                    (stage,), (), rng.random() < 0.3 and t in FLOATS, exact=True)
    s = Scheduler(kernel, rng)
    over = rng.choice(("k", "j", "k", "j", "k, j"))
    more = ", reassociate=true" if permission(kernel) else ""
    s.add("contract" + (" reassociate" if t in FLOATS else ""),
          f"let T = D.contract({over}{more})", ("T",))
    s.stages.clear()  # the model does not know the new loops
    return kernel, s


def merged(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """A sum of a sum, or a transposed sum; `merge` combines the two stages."""
    names: list[str] = []
    t = rng.choice(SUMMED)
    n, m, r = (extent(rng, v, names) for v in "nml")
    term = binary("*", read("A", t, axis("i"), axis("k")), read("B", t, axis("k"), axis("j")))
    fn = rng.choice(("sum", "sum", "sum", "max", "min"))
    p = Stage(("P",), (t,), (("i", n), ("j", m)), Reduction(fn, (term,), ("k",)), False)
    copy = rng.random() < 0.35
    if copy:
        s1 = Stage(("S",), (t,), (("j", m), ("i", n)), read("P", t, axis("i"), axis("j")), True)
    else:
        s1 = Stage(("S",), (t,), (("j", m),),
                   Reduction(fn, (read("P", t, axis("r"), axis("j")),), ("r",)), True)
    reduces = [("k", index(0), r)] + ([] if copy else [("r", index(0), n)])
    kernel = Kernel(name, tuple(names), (Input("A", t, (n, r)), Input("B", t, (r, m))),
                    tuple(reduces), (p, s1), (), rng.random() < 0.3 and t in FLOATS, exact=True)
    s = Scheduler(kernel, rng)
    needs = not copy and t in FLOATS and not kernel.reassociate
    s.add("merge" + (" reassociate" if t in FLOATS and not copy else ""),
          f"S.merge(P{', reassociate=true' if needs else ''})")
    s.stages.pop("P")
    stage = s.stages["S"]
    if rng.random() < 0.5:
        s.vectorize(stage)
    return kernel, s


def neighbours(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """A stencil over another stage: attached, double-buffered, prefetched."""
    names: list[str] = []
    n, m = extent(rng, "n", names), extent(rng, "m", names)
    t = rng.choice(("float32", "float64", "float16", "bfloat16", "int32", "uint8", "int64"))
    halo = rng.choice((0, 1, 2))
    wide_n = binary("+", n, index(halo)) if halo else n
    two = E("bare", t, (), "2" if t not in FLOATS else "0.1")
    i, j = axis("i"), axis("j")
    b = Stage(("B",), (t,), (("i", wide_n), ("j", m)), binary("*", read("A", t, i, j), two), False)
    far = binary("+", i, index(halo)) if halo else i
    op = rng.choice(("+", "-", "*"))
    c = Stage(("C",), (t,), (("i", n), ("j", m)),
              binary(op, read("B", t, i, j), read("B", t, far, j)), True)
    kernel = Kernel(name, tuple(names), (Input("A", t, (wide_n, m)),), (), (b, c))
    s = Scheduler(kernel, rng)
    stage, part = s.stages["C"], s.stages["B"]
    recipe = rng.randrange(4)
    if recipe == 0:
        o, _ = s.split(stage, stage.loops[0], "factor", rng.choice((2, 4, 8)),
                       rng.choice(("", "", ", tail=guard")))
        s.add("compute_at", f"B.compute_at(C, {o.name})", (), (o.name,))
        o.free = False
        part.attached = True
        s.double_buffer(part)
    elif recipe == 1:
        o, lane = s.split(stage, stage.loops[1], "factor", rng.choice((8, 16, 32)), "")
        s.add("vectorize", f"C.vectorize({lane.name})", (), (lane.name,))
        lane.free = False
        s.compute_inline(part)
        s.add("prefetch", f"C.prefetch(A, {o.name}, {rng.choice((1, 2, 4))})", (), (o.name,))
    elif recipe == 2:
        lane = s.split(stage, stage.loops[1], "factor", rng.choice((8, 16, 32, 64)), "")[1]
        s.add("vectorize", f"C.vectorize({lane.name})", (), (lane.name,))
        lane.free = False
        s.store_nontemporal(stage)
    else:
        s.storage_align(part)
        s.set_scope(part)
    return kernel, s


def windows(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """Stencils over stencils, with a rule for the border, whose windows slide."""
    names: list[str] = []
    n, m = extent(rng, "n", names), extent(rng, "m", names)
    t = rng.choice(("float32", "float32", "float64", "float16", "int32", "uint8", "int64"))
    i, j = axis("i"), axis("j")
    last = binary("-", n, index(1))

    def near(at: E) -> E:
        return E("clamp", "index", (at, index(0), last))

    def moved(at: E, by: int) -> E:
        return binary("+", at, index(by)) if by >= 0 else binary("-", at, index(-by))

    def stencil(source: str) -> E:
        value = None
        how = rng.choice(("clamp", "clamp", "clamp", "if", "half", "mirror"))
        for by in sorted(rng.sample(range(-3, 4), rng.randint(2, 3))):
            row = moved(i, by)
            if how == "half":
                row = moved(binary("//", i, index(2)), by)
            if how == "mirror":
                row = binary("-", last, row)
            one = read(source, t, near(row), j)
            if how == "if":
                outside = read(source, t, i, j)
                cond = binary(">=", row, index(0)) if by < 0 else binary("<=", row, last)
                one = E("if", t, (cond, read(source, t, row, j), outside))
            value = one if value is None else binary(rng.choice("+-*"), value, one)
        assert value is not None
        return value

    axes = (("i", n), ("j", m))
    stages = [Stage(("B",), (t,), axes, stencil("A"), False)]
    if rng.random() < 0.6:
        stages.append(Stage(("D",), (t,), axes, stencil("B"), False))
    value = stencil(stages[-1].names[0])
    if len(stages) == 2 and rng.random() < 0.5:
        value = binary("+", value, read("B", t, i, j))
    stages.append(Stage(("C",), (t,), axes, value, True))
    kernel = Kernel(name, tuple(names), (Input("A", t, (n, m)),), (), tuple(stages))
    s = Scheduler(kernel, rng)
    c = s.stages["C"]
    at = 0
    if rng.random() < 0.7:
        s.split(c, c.loops[0], "factor", rng.choice((2, 3, 4, 8)))
        at = rng.choice((0, 1, 1, 1))
        if at and rng.random() < 0.5:
            c.loops[0].free = False
            s.add("parallel", f"C.parallel({c.loops[0].name})", (), c.needs(c.loops[0]))
    elif rng.random() < 0.3:
        s.split(c, c.loops[1], "factor", rng.choice((2, 4, 8)), "")
        at = 1
    inside = at - 1
    for stage in reversed(stages[:-1]):
        if rng.random() < 0.9:
            s.store_at(s.stages[stage.names[0]], c, at, inside)
        if rng.random() < 0.5:
            s.vectorize(s.stages[stage.names[0]])
    return kernel, s


def transposed(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """Transpositions of every element size by register tiles."""
    names: list[str] = []
    n, m = extent(rng, "n", names), extent(rng, "m", names)
    t = rng.choice(("float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool"))
    c = Stage(("C",), (t,), (("i", n), ("j", m)), read("A", t, axis("j"), axis("i")), True)
    kernel = Kernel(name, tuple(names), (Input("A", t, (m, n)),), (), (c,))
    s = Scheduler(kernel, rng)
    stage = s.stages["C"]
    io, ii = s.split(stage, stage.loops[0], "factor", rng.choice((2, 4, 8, 16)),
                     rng.choice(("", ", tail=guard", ", tail=peel")))
    jo, ji = s.split(stage, stage.loops[-1], "factor", rng.choice((4, 8, 16, 32)),
                     rng.choice(("", "", ", tail=mask")))
    order = (io.name, jo.name, ii.name, ji.name)
    s.add("reorder", f"C.reorder({', '.join(order)})", (), order)
    s.add("vectorize", f"C.vectorize({ji.name})", (), order)
    ji.free = False
    if rng.random() < 0.5:
        s.add("unroll", f"C.unroll({ii.name})", (), order)
        ii.free = False
    return kernel, s


def prefixes(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """Prefix reductions along rows or columns, computed by scans, some of them in blocks."""
    names: list[str] = []
    n, m = extent(rng, "n", names), extent(rng, "m", names)
    t = rng.choice(SUMMED)
    rows = rng.random() < 0.5
    i, j, k = axis("i"), axis("j"), axis("k")
    term = read("A", t, *((j, k) if rows else (k, j)))
    distance = index(rng.choice((1, 2, 5)))
    reverse, blocks = rng.random() < 0.3, rng.random() < 0.4
    fn = rng.choice(("sum", "sum", "max", "min"))
    if (reverse or blocks) and t in FLOATS:
        fn = "sum"  # the order of NaN and of zeros matters to the others
    where = rng.choice((binary(">=", k, i), binary(">", k, i), binary("<", i, k)) if reverse else
                       (binary("<=", k, i), binary("<", k, i), binary(">=", i, k),
                        binary("<=", binary("+", k, distance), i)))
    body = Reduction(fn, (term,), ("k",), where)
    axes = (("j", m), ("i", n)) if rows else (("i", n), ("j", m))
    stages = [Stage(("S",), (t,), axes, body, True)]
    if rng.random() < 0.3:
        at = (j, i) if rows else (i, j)
        twice = binary("+", read("S", t, *at), read("A", t, *at))
        stages.append(Stage(("D",), (t,), axes, twice, True))
    shape = (m, n) if rows else (n, m)
    kernel = Kernel(name, tuple(names), (Input("A", t, shape),), (("k", index(0), n),),
                    tuple(stages), (), rng.random() < 0.2 and t in FLOATS, exact=True)
    s = Scheduler(kernel, rng)
    stage = s.stages["S"]
    more = ", reassociate=true" if (reverse or blocks) and permission(kernel) else ""
    along = next(x for x in stage.loops if x.name == "i")
    if blocks:
        tails = ("", "", ", tail=guard", ", tail=peel")
        how = rng.choice(("factor", "factor", "nparts"))
        outer, along = s.split(stage, along, how, rng.choice((2, 4, 8, 64)), rng.choice(tails))
        terms, starts = s.new(), s.new()
        s.add("scan blocks" + (" reassociate" if more else ""),
              f"let {terms}, {starts} = S.scan({along.name}{more})", (terms, starts),
              (along.name,))
        if rng.random() < 0.4:
            s.add("parallel", f"{terms}.parallel({outer.name})", (), (terms, outer.name))
    else:
        s.add("scan" + (" reassociate" if more else ""), f"S.scan(i{more})")
    stage.loops = stage.data()
    if rng.random() < 0.5:
        for part in s.split(stage, along, "factor", rng.choice((2, 4, 8, 64)),
                            rng.choice(("", ", tail=guard", ", tail=peel"))):
            part.free = False
    along.free = False
    if rng.random() < 0.6:
        s.vectorize(stage) if rng.random() < 0.7 else s.parallel(stage)
    return kernel, s


def sorts(rng: random.Random, name: str) -> tuple[Kernel, Scheduler]:
    """Whole orders, first elements and single ranks of rows or columns."""
    names: list[str] = []
    n, m = extent(rng, "n", names), extent(rng, "m", names)
    if rng.random() < 0.2:
        m = index(rng.choice((49, 193, 700, 3000)))
    t = rng.choice(("float32", "float32", "float64", "float16", "bfloat16", "int8", "uint8",
                    "int16", "uint16", "int32", "uint32", "int64", "uint64"))
    rows = rng.random() < 0.7
    i, r, p = axis("i"), axis("r"), axis("p")
    term = read("A", t, *((i, r) if rows else (r, i)))
    if rng.random() < 0.3 and t not in ("float16", "bfloat16"):
        term = binary("*", term, read("B", t, i))
    whole = binary("-", binary("-", m, index(1)), p)
    few = index(rng.randint(1, m.value)) if m.op == "literal" and m.value > 0 else m
    ranks, at = rng.choice(((m, p), (m, p), (m, whole), (few, p), (few, p), (None, index(0))))
    axes = (("i", n),) if ranks is None else (("i", n), ("p", ranks))
    axes = axes[::-1] if rng.random() < 0.3 else axes
    fn = rng.choice(("sort", "argsort"))
    terms: tuple[E, ...] = (term,)
    made, types = ("S",), (t if fn == "sort" else "int64",)
    if fn == "sort" and rng.random() < 0.4:
        terms, made, types = (term, read("B", t, i)), ("S", "T"), (t, t)
    body = Reduction(fn, terms, ("r",), at=at, descending=rng.random() < 0.5)
    stages = [Stage(made, types, axes, body, rng.random() < 0.6)]
    if not stages[0].output:
        stages.append(Stage(("D",), types[:1], axes,
                            read("S", types[0], *(axis(a) for a, _ in axes)), True))
    inputs = (Input("A", t, (n, m) if rows else (m, n)), Input("B", t, (n,)))
    used = {e.value for s in stages for x in s.expressions() for e in x.walk() if e.op == "read"}
    kernel = Kernel(name, tuple(names), tuple(x for x in inputs if x.name in used),
                    (("r", index(0), m),), tuple(stages))
    return kernel, Scheduler(kernel, rng)


TEMPLATES = ((product, 0.12), (tensorized, 0.12), (chain, 0.05), (merged, 0.07),
             (neighbours, 0.08), (windows, 0.08), (transposed, 0.05), (prefixes, 0.06),
             (functions.program, 0.04), (sorts, 0.05))
