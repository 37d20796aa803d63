"""What a user of the installed package `tec-compiler` does; test_wheel.py runs it in an environment
of its own, in an empty folder."""

import inspect
import logging
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tec_compiler

SAXPY = """
kernel saxpy(n: var) {
    input alpha: float32
    input x: float32[n]
    input y: float32[n]
    output z[i: n] = alpha * x[i] + y[i]
}
schedule saxpy for cpu { }
"""

# Shapes that are expressions, two outputs, and a run-time integer that no shape gives.
BLOCKS = """
kernel blocks(n: var, lambda: var) {
    input x: float64[n]
    output first[i: (n + 1) // 2] = x[min(2*i, n - 1)] * (lambda as float64)
    output both[i: n, j: 2] = x[i]
}
schedule blocks for cpu { }
"""

# One with a tensor that is updated, one that has only that tensor.
APPEND = """
kernel append(n: var, r: var, p: var, d = 2) {
    input x: float32[r, d]
    inout K: float32[n, d]
    reduce j: 0..d
    update K[p + i: r, j: d] = x[i, j]
    output s[t: n] = sum(K[t, j], axis=j)
}
kernel twice(n: var) {
    inout x: float32[n]
    update x[i: n] = 2 * x[i]
}
"""


def test_kernels_are_functions():
    saxpy = tec_compiler.kernel(SAXPY)
    x, y = np.arange(10, dtype=np.float32), np.ones(10, np.float32)
    z = np.empty(10, np.float32)
    assert saxpy(2.0, x, y, z) is z
    np.testing.assert_array_equal(z, 2 * x + y)
    np.testing.assert_array_equal(saxpy(2.0, x, y=y), z)
    assert str(inspect.signature(saxpy)) == (
        "(alpha: 'float32', x: 'float32[n]', y: 'float32[n]', z: 'float32[n]' = None) "
        "-> 'float32[n]'"
    )
    assert "saxpy(alpha: float32, x: float32[n]" in saxpy.__doc__ and saxpy.__name__ == "saxpy"
    with pytest.raises(ValueError, match="argument 3 `y`: expected extent 10"):
        saxpy(2.0, x, y[:9])
    with pytest.raises(TypeError, match="saxpy.*missing a required argument: 'y'"):
        saxpy(2.0, x)
    with pytest.raises(TypeError, match="`x` must be a tensor, such as an array, not list"):
        saxpy(2.0, [1.0, 2.0], y)
    z.flags.writeable = False
    with pytest.raises(ValueError, match="saxpy.*readonly|saxpy.*read-only"):
        saxpy(2.0, x, y, z)


def test_shapes_of_outputs_are_computed():
    blocks = tec_compiler.kernel(BLOCKS, define={}, opt=1, fp_contract="off")
    x = np.arange(5.0)
    first, both = blocks(x, lambda_=3)
    np.testing.assert_array_equal(first, [0, 6, 12])
    assert both.shape == (5, 2) and both.dtype == np.float64
    parameters = inspect.signature(blocks).parameters
    assert parameters["lambda_"].kind is inspect.Parameter.KEYWORD_ONLY
    fixed = tec_compiler.kernel(BLOCKS, define={"n": 5, "lambda": 2})
    assert list(inspect.signature(fixed).parameters) == ["x", "first", "both"]


def test_scalars_are_numbers_of_python_or_numpy():
    source = "kernel f(n: var) {{ input s: {0} output y[i: n]: {0} = s }}"
    for dtype, values in {
        "bool": [True, np.bool_(True), np.array(False), 0],
        "uint64": [7, 2**63, 2**64 - 1, np.uint64(2**64 - 1)],
        "float16": [1.5, 2, np.float16(0.25), np.float64(3), np.array(0.5, np.float32)],
    }.items():
        same = tec_compiler.kernel(source.format(dtype))
        for value in values:
            assert same(value, n=2).tolist() == [value, value]
        for value in ("1", None, np.ones(1, dtype), 2**64):
            with pytest.raises((TypeError, ValueError), match="`s`"):
                same(value, n=2)


def test_names_of_python_are_names_of_arguments():
    program = (
        "kernel f(is: var, max: var) {\n input self: float32[is]\n input class: float32[is]\n"
        " input class_: float32[is]\n"
        " output y[i: max(2*is, max + 1)] = self[0] + class[0] + class_[0]\n}\n"
    )
    names = tec_compiler.kernel(program)
    one = np.ones(1, np.float32)
    np.testing.assert_array_equal(names(self=one, class__=one, class_=one, max=2), [3, 3, 3])


def test_wrong_extents_are_named():
    half = tec_compiler.kernel("kernel half(n: var, d: var) { output y[i: n // d] = 1.0 }")
    assert half(n=np.uint8(200), d=np.int8(2)).shape == (100,)
    with pytest.raises(ValueError, match="half: the extent `n//d` of `y`.* divides by 0"):
        half(n=4, d=0)
    with pytest.raises(ValueError, match="half: the extent `n//d` of `y`.* is negative: -4"):
        half(n=-4, d=1)
    with pytest.raises(TypeError, match="half.*`n` must be an integer, not float"):
        half(n=2.0, d=1)
    with pytest.raises(ValueError, match="argument 2 `x`: expected 1 dimension, got 0"):
        tec_compiler.kernel(SAXPY)(2.0, np.float32(3), np.ones(3, np.float32))
    # Only the output has the extent.
    numbers = tec_compiler.kernel("kernel numbers(n: var) { output y[i: n] = (i as int32) }")
    np.testing.assert_array_equal(numbers(n=3), [0, 1, 2])
    with pytest.raises(TypeError, match="pass `y` or `n`"):
        numbers()


def test_arrays_that_numpy_does_not_share():
    strided = tec_compiler.kernel(
        "kernel f(n: var, m: var) {\n input x: float32[n, m] strided\n"
        " output y[i: n, j: m] = x[i, j] + 1\n}\n"
    )
    constant = np.broadcast_to(np.float32(3), (2, 3))
    np.testing.assert_array_equal(strided(constant), np.full((2, 3), 4))
    assert "x: float32[n, m] (read; any strides" in strided.__doc__
    rows = np.zeros((3, 2), np.float32)
    rows.flags.writeable = False
    with pytest.raises(ValueError, match="twice.*`x` is written, but read-only"):
        tec_compiler.load(APPEND, kernel="twice").twice(rows.reshape(-1))
    frozen = np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32)
    np.testing.assert_array_equal(tec_compiler.kernel(SAXPY)(2.0, frozen, frozen), 3 * frozen)


def test_arrays_of_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    double = tec_compiler.kernel("kernel f(n: var) { input x: bfloat16[n] output y[i: n] = x[i] }")
    x = np.arange(5).astype(ml_dtypes.bfloat16)
    y = double(x)
    assert y.dtype == ml_dtypes.bfloat16 and y.tolist() == x.tolist()
    with pytest.raises(TypeError, match="`x`: expected dtype bfloat16, got float32"):
        double(x.astype(np.float32), y)
    with pytest.raises(ValueError, match="`x`: expected a contiguous"):
        double(x[::2])


def test_kernels_are_pickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("saxpy.te").write_text(SAXPY)
    ones = np.ones(2, np.float32)
    for source in (SAXPY, "saxpy.te"):
        pickled = pickle.dumps(tec_compiler.kernel(source, opt=1))
        module = pickle.dumps(tec_compiler.load(source))
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            assert pickle.loads(pickled)(2.0, ones, ones).tolist() == [3, 3]
            assert pickle.loads(module).saxpy(2.0, ones, ones).tolist() == [3, 3]
    kernel = tec_compiler.kernel(SAXPY)
    other = tec_compiler.Kernel(kernel.interface, kernel.function)
    with pytest.raises(TypeError, match="cannot be pickled: it was not made by `load`"):
        pickle.dumps(other)


def test_options_may_be_numbers_of_numpy():
    options = {"n": np.int32(2), "S": np.array([2, 3]), "b": np.bool_(True)}
    program = "kernel f(S: shape, n = 1, b: bool) { output y[i...: S...] = if b then n else 0 }"
    made = tec_compiler.kernel(program, define=options, opt=np.int64(1))
    np.testing.assert_array_equal(made(), np.full((2, 3), 2))
    with pytest.raises(TypeError, match="`define` is a mapping"):
        tec_compiler.kernel(SAXPY, define="n=2")


def test_paths_may_have_braces(tmp_path, monkeypatch):
    folder = tmp_path / "{a}"
    folder.mkdir()
    (folder / "saxpy.te").write_text(SAXPY)
    monkeypatch.chdir(folder)
    for path in ("saxpy.te", str(folder / "saxpy.te"), folder / "saxpy.te"):
        assert tec_compiler.kernel(path).__name__ == "saxpy"


def test_packed_inputs_have_the_layout_of_the_cpu():
    program = """
kernel scale(n = 64) {
    input B: float32[n, n]
    input x: float32[n]
    reduce k: 0..n
    output y[i: n] = sum(B[k, i] * x[k], axis=k)
}
schedule scale for cpu {
    let width = target.lanes(float32)
    let P = B.cache_read(global, [y], layout=[ax1 // width, ax0, ax1 % width])
}
"""
    targets = ["x86-avx512", "x86-avx2", "x86-64"]
    module = tec_compiler.load(program, target=targets, prepack="B", fp_contract="off")
    matrix = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7
    x = np.arange(64, dtype=np.float32) % 5
    packed = module.scale_pack_B(matrix)
    np.testing.assert_array_equal(module.scale_prepacked(packed, x), module.scale(matrix, x))


def test_tensors_are_updated():
    module = tec_compiler.load(APPEND, schedule="default")
    rows, x = np.zeros((3, 2), np.float32), np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(module.append(x, rows, p=1), [0, 2, 0])
    np.testing.assert_array_equal(rows, [[0, 0], [1, 1], [0, 0]])
    assert module["twice"](rows.reshape(-1)) is None and rows.sum() == 4
    assert "K: float32[n, 2] (updated in place)" in module.append.__doc__
    assert [one.__name__ for one in module] == ["append", "twice"]


def test_errors_have_a_code_and_a_place(tmp_path):
    wrong = SAXPY.replace("y[i]\n", "yy[i]\n")
    path = tmp_path / "a b.te"
    path.write_text(wrong)
    with pytest.raises(tec_compiler.CompileError) as raised:
        tec_compiler.build(path, tmp_path / "k.so")
    error = raised.value
    assert (error.code, error.message) == ("E0201", "unknown name `yy`")
    assert (error.file, error.line, error.column) == (str(path), 6, 37)
    assert "did you mean" in error.diagnostics[0].text or "names here" in str(error)
    assert len(error.diagnostics) == 1 and not (tmp_path / "k.so").exists()
    with pytest.raises(tec_compiler.CompileError) as raised:
        tec_compiler.kernel(wrong)
    assert raised.value.file is None and raised.value.line == 6
    assert "--> <text>:6:37" in str(raised.value)
    with pytest.raises(tec_compiler.CompileError) as raised:
        tec_compiler.load("none.te")
    assert raised.value.code == "E0120" and raised.value.line is None
    with pytest.raises(tec_compiler.CompileError, match="E0401"):
        tec_compiler.kernel(SAXPY, target="x86-avx3")
    with pytest.raises(tec_compiler.UsageError, match="0..=3"):
        tec_compiler.kernel(SAXPY, opt=4)
    with pytest.raises(TypeError, match="`optimize` is not an option of tec"):
        tec_compiler.kernel(SAXPY, optimize=3)
    with pytest.raises(ValueError, match="has the kernels saxpy, blocks: choose one, kernel='"):
        tec_compiler.kernel(SAXPY + BLOCKS)
    assert tec_compiler.kernel(SAXPY + BLOCKS, kernel="blocks").__name__ == "blocks"
    with pytest.raises(AttributeError, match="no kernel `axpy`; it has saxpy"):
        tec_compiler.load(SAXPY).axpy  # noqa: B018


def test_files_are_built(tmp_path, caplog):
    path = tmp_path / "saxpy.te"
    path.write_text(SAXPY)
    built = tec_compiler.build(path)
    assert built.output == tmp_path / "saxpy.so" and built.output.exists()
    assert built.header.exists() and built.manifest.exists()
    with caplog.at_level(logging.INFO, "tec_compiler"):
        built = tec_compiler.build(
            SAXPY, tmp_path / "k.a", target=["x86-avx2", "x86-64"], depfile=tmp_path / "k.d",
            header=tmp_path / "other.h",
        )  # fmt: skip
    assert "x86-64 has no fused multiply-add" in caplog.text
    assert built.header.name == "other.h" and (tmp_path / "k.d").exists()
    listing = tec_compiler.build(path, tmp_path / "k.s", target="x86-avx2")
    assert listing.header is None and "saxpy" in listing.output.read_text()
    with pytest.raises(TypeError, match="a text needs an output"):
        tec_compiler.build(SAXPY)


def test_modules_are_kept_until_a_file_changes(tmp_path, monkeypatch):
    monkeypatch.delenv("TEC_NO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "a $b#c"
    folder.mkdir()
    (folder / "main.te").write_text(
        'import "part.te"\nkernel f() {\n    input x: float32[3]\n'
        "    output y[i: 3] = g(x[i])\n}\nschedule f for cpu { }\n"
    )
    part = folder / "part.te"
    ones = np.ones(3, np.float32)
    count = lambda: len([one for one in (tmp_path / "cache/tec/python").iterdir() if one.is_dir()])
    for factor, modules in [(2, 1), (2, 1), (3, 2), (2, 2)]:
        part.write_text(f"def g(x) = {factor} * x\n")
        assert tec_compiler.load(folder / "main.te").f(ones)[0] == factor
        assert count() == modules
    tec_compiler.load(folder / "main.te", opt=0)
    assert count() == 3
    # Damage is repaired.
    for file in (tmp_path / "cache/tec/python").glob("*.json"):
        file.write_text("{")
    assert tec_compiler.load(folder / "main.te").f(ones)[0] == 2
    modules = tmp_path / "cache/tec/python"
    for damage in (lambda one: one.unlink(), lambda one: one.write_bytes(b"")):
        for name in ("module.json", "module.so"):
            for file in modules.glob(f"*/{name}"):
                damage(file)
            assert tec_compiler.load(folder / "main.te").f(ones)[0] == 2
    part.write_text("def g(x) = x +\n")
    with pytest.raises(tec_compiler.CompileError, match="E0101"):
        tec_compiler.load(folder / "main.te")


def test_a_file_of_params_that_is_new_counts(tmp_path, monkeypatch):
    monkeypatch.delenv("TEC_NO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "net.te"
    path.write_text(
        "network net() {\n input x: float32[2]\n param w: float32[2]\n"
        " output y[i: 2] = x[i] + w[i]\n}\n"
    )
    assert len(tec_compiler.load(path).net.interface.inputs) == 2
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    params = np.array([3, 4], np.float32)
    content = len(header).to_bytes(8, "little") + header + params.tobytes()
    path.with_suffix(".safetensors").write_bytes(content)
    for _ in range(2):
        np.testing.assert_array_equal(tec_compiler.load(path).net(params), 2 * params)


def test_the_command_and_the_package_for_cmake_are_there():
    tec = tec_compiler.find_tec()
    assert pathlib.Path(sys.prefix) in tec.parents
    run = lambda *args: subprocess.run(
        [sys.executable, "-m", "tec_compiler", *args], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert run("--version") == f"tec {tec_compiler.__version__}"
    folder = pathlib.Path(run("--cmake-dir"))
    assert folder == tec_compiler.cmake_dir() and (folder / "tec-config.cmake").exists()


def test_the_options_are_those_of_the_command():
    shown = subprocess.run(
        [tec_compiler.find_tec(), "build", "--help"], capture_output=True, text=True, check=True
    ).stdout
    words = (word.strip("-,") for word in shown.split() if word.startswith("--") and len(word) > 2)
    there = {word.replace("-", "_") for word in words if word.replace("-", "_").isidentifier()}
    known = set(tec_compiler.BuildOptions.__annotations__)
    # `define` has no long name; the others print on the terminal or are arguments of `build`.
    assert known - {"define"} == there - {"output", "dump", "time", "color", "help"}


@pytest.mark.skipif("torch" not in os.environ.get("TEC_TEST_EXTRA", ""), reason="no torch here")
def test_kernels_are_operators_of_torch():
    import torch

    op = tec_compiler.torch_op(SAXPY, "tec_test::saxpy")
    x, y = torch.arange(6.0), torch.ones(6)
    torch.testing.assert_close(op(2.0, x, y), 2 * x + y)
    torch.testing.assert_close(op(2.0, x[::2], y[::2]), 2 * x[::2] + 1)
    torch.library.opcheck(op, (2.0, x, y), test_utils=("test_schema", "test_faketensor"))
    compiled = torch.compile(lambda x, y: torch.ops.tec_test.saxpy(2.0, x, y) + 1, backend="eager")
    torch.testing.assert_close(compiled(x, y), 2 * x + y + 1)
    blocks = tec_compiler.torch_op(BLOCKS, "tec_test::blocks")
    append = tec_compiler.torch_op(APPEND, "tec_test::append", kernel="append")
    rows = torch.zeros(3, 2)
    assert append(torch.ones(1, 2), rows, 1).tolist() == [0, 2, 0] and rows.sum() == 2
    with pytest.raises(ValueError, match="contiguous"):
        append(torch.ones(1, 2), torch.zeros(3, 4)[:, ::2], 1)
    first, both = blocks(torch.arange(5.0, dtype=torch.float64), 3)
    assert first.tolist() == [0, 6, 12] and both.shape == (5, 2)
    with pytest.raises(ValueError, match="expected extent"):
        op(2.0, x, y[:5])
    # A kernel allocates tensors of the library that its inputs are from.
    assert isinstance(tec_compiler.kernel(SAXPY)(2.0, x, y), torch.Tensor)


def test_types_of_the_package():
    assert (pathlib.Path(tec_compiler.__file__).parent / "py.typed").exists()
