"""The NumPy oracle of `tec`: random programs, evaluated as docs/LANGUAGE.md specifies.

It is written from the documents alone (LANGUAGE, SCHEDULES, ABI, CLI, MATH) and shares no code with
the compiler, its interpreter or its other tests. Run it by `make oracle N=20000 SEED=0`.

    exact.py      arithmetic on NumPy arrays with the rounding of the language
    program.py    programs as data, and their text
    generate.py   random programs, random arguments
    templates.py  programs that certain directives need: products, sums, transpositions
    schedules.py  random schedules
    functions.py  exp, sin, pow …: within their bounds, the same bits in every module
    packed.py     prepacked inputs
    evaluate.py   evaluates a program: every bit of every output
    call.py       calls of modules: buffers between guard pages, in a child with a time limit
    build.py      builds batches of programs as one file; drops and counts refused parts
    shrink.py     shrinks a program that has a finding
    __main__.py   the runner and its table
    test_oracle.py   tests of the oracle: it finds planted mistakes
"""
