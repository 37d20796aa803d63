"""An outside judge of `tec`: random programs, and what docs/LANGUAGE.md says they compute.

Written from the documents alone (LANGUAGE, SCHEDULES, ABI, CLI, MATH), it shares no code and no
assumption with the compiler, its interpreter or its other tests. `make oracle N=20000 SEED=0`.

    exact.py      arithmetic with the rounding that the language asks for, on NumPy arrays
    program.py    programs as data, and their text
    generate.py   random programs, random arguments
    templates.py  programs of the shapes that directives ask for: products, sums, transpositions
    schedules.py  random schedules
    functions.py  exp, sin, pow …: within their bounds, the same bits in every module
    packed.py     inputs packed ahead
    evaluate.py   what a program computes: every bit of every output
    call.py       calls of modules: buffers between guard pages, in a child with a time limit
    build.py      batches of programs as one file; what is refused is dropped and counted
    shrink.py     a smaller program with the same finding
    __main__.py   the runner and its table
    test_oracle.py   the judge judged: planted mistakes are found
"""
