"""Calls of operators of the library: kernels that are written, compiled and called together."""

import numpy as np

from conftest import run_tec

IMPORTS = "".join(f'import "{name}.te" as {name}\n' for name in ("nn", "image", "train"))


def extents(rng, rank, low=1, high=5):
    """Random extents; 1 is frequent."""
    drawn = [int(rng.integers(low, high + 1)) for _ in range(rank)]
    return [1 if rng.integers(6) == 0 and low <= 1 else n for n in drawn]


def draw(rng, dtype, *shape):
    """A random tensor."""
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def text(value):
    """A value of a keyword in the language."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, (list, tuple)) else str(value)


def kernel(name, call, inputs, keywords, run_time=False):
    """The source of a kernel whose output is a call of an operator."""
    lines, names, params = [], [], []
    for at, x in enumerate(inputs):
        shape = []
        for extent in x.shape:
            same = [var for var, known in params if known == extent]
            if not run_time:
                shape.append(str(extent))
            elif same:
                shape.append(same[0])
            else:
                params.append((f"n{len(params)}", extent))
                shape.append(params[-1][0])
        names.append(f"X{at}")
        brackets = "" if isinstance(x, np.generic) else f"[{', '.join(shape)}]"
        lines.append(f"    input X{at}: {x.dtype.name}{brackets}\n")
    given = names + [f"{key}={text(value)}" for key, value in keywords.items()]
    head = ", ".join(f"{var}: var" for var, _ in params)
    body = "".join(lines) + f"    output Y = {call}({', '.join(given)})\n"
    return f"kernel {name}({head}) {{\n{body}}}\n"


def load(folder, source, schedule="default"):
    """Compiles a source text and loads the module."""
    import tvm_ffi

    file, out = folder / "calls.te", folder / "calls.so"
    file.write_text(IMPORTS + source)
    done = run_tec("build", file, "-o", out, "--schedule", schedule)
    assert done.returncode == 0, done.stderr
    return tvm_ffi.load_module(str(out))


def argument(x):
    """What a module takes: contiguous arrays, and numbers for scalar inputs."""
    return float(x) if isinstance(x, np.generic) else np.array(x, order="C")


class Calls:
    """Calls with expected results."""

    def __init__(self, folder):
        self.folder = folder
        self.all = []

    def exact(self, name, inputs, expected, run_time=False, **keywords):
        """Adds a call whose result is expected to the bit."""
        self.all.append((name, inputs, expected, run_time, keywords, 0))

    def close(self, name, inputs, expected, run_time=False, **keywords):
        """Adds a call whose result may differ by rounding."""
        self.all.append((name, inputs, expected, run_time, keywords, 1))

    def compare(self):
        """Compiles all calls as one module, runs them and compares the results."""
        source = "".join(
            kernel(f"k{at}", name, inputs, keywords, run_time)
            for at, (name, inputs, _, run_time, keywords, _) in enumerate(self.all)
        )
        module = load(self.folder, source)
        for at, (name, inputs, expected, _, keywords, rounds) in enumerate(self.all):
            expected = np.asarray(expected)
            result = np.full(expected.shape, 77, inputs[0].dtype)
            module[f"k{at}"](*map(argument, inputs), result)
            place = f"{name}{[x.shape for x in inputs]} {keywords}"
            if rounds == 0:
                np.testing.assert_array_equal(result, expected, err_msg=place)
                continue
            bound = 2e-4 if inputs[0].dtype == np.float32 else 1e-11
            scale = max(1.0, float(np.max(np.abs(expected), initial=0, where=~np.isnan(expected))))
            np.testing.assert_allclose(
                result, expected, rtol=bound, atol=bound * scale, err_msg=place
            )
