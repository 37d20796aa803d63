"""Tests prepacked inputs (`tec build --prepack`) through tvm-ffi."""

import json

import numpy as np
import pytest
import tvm_ffi

from conftest import run_tec

RUN_TIME = """
kernel rt(n: var, l: var, m: var, T: dtype = float32) {
    input A: T[n, l]
    input B: T[l, m] layout_free
    reduce k: 0..l
    output C[i: n, j: m] = sum(A[i, k] * B[k, j], axis=k)
}

schedule rt.fast for cpu {
    let Packed = B.cache_read(global, [C], layout=[ax1 // 32, ax0, ax1 % 32])
    let jo, ji = C.split(j, factor=32)
    C.reorder(jo, i, k, ji)
    C.vectorize(ji)
    C.parallel(jo)
}
"""


def build(folder, file, *options):
    out = folder / "module.so"
    done = run_tec("build", file, "-o", out, "--schedule", "fast", "--prepack", "B", *options)
    assert done.returncode == 0, done.stderr
    manifest = json.loads(out.with_suffix(".json").read_text())
    return tvm_ffi.load_module(str(out)), {k["name"]: k for k in manifest["kernels"]}


def test_weights_packed_once_give_the_same_bits(tmp_path, rng):
    module, kernels = build(tmp_path, "samples/matmul_add.te", "-D", "N=70")
    pack = kernels["matmul_add_pack_B"]
    shape, size = pack["args"][1]["shape"], pack["prepack"]["bytes"]
    packed = np.full(shape, np.nan, np.float32)
    assert packed.nbytes == size
    B = rng.standard_normal((70, 70)).astype(np.float32)
    module.matmul_add_pack_B(B, packed)
    for _ in range(2):
        A, C = (rng.standard_normal((70, 70)).astype(np.float32) for _ in range(2))
        expected, out = np.empty_like(C), np.empty_like(C)
        module.matmul_add(A, B, C, expected)
        module.matmul_add_prepacked(A, packed, C, out)
        np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))
        np.testing.assert_allclose(out, A @ B + C, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="argument 2 `B`: expected 3 dimensions, got 2"):
        module.matmul_add_prepacked(A, B, C, out)
    with pytest.raises(ValueError, match="argument 2 `out`: expected 3 dimensions, got 2"):
        module.matmul_add_pack_B(B, out)
    with pytest.raises(TypeError, match="argument 2 `out`"):
        module.matmul_add_pack_B(B, packed.astype(np.float64))
    doc = module.get_function_doc("matmul_add_pack_B")
    assert doc.startswith("matmul_add_pack_B(B: float32[70, 70], out: float32[")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_prepacking_takes_extents_known_at_run_time(tmp_path, rng, dtype):
    source = tmp_path / "rt.te"
    source.write_text(RUN_TIME)
    module, kernels = build(tmp_path, source, "-D", f"rt.T={dtype}")
    assert kernels["rt_pack_B"]["args"][1]["shape"] == ["(m + 31)//32", "l", 32]
    for n, l, m in [(5, 7, 50), (1, 1, 1), (3, 0, 5), (8, 16, 64)]:
        A, B = ((rng.standard_normal(shape) * 9).astype(dtype) for shape in [(n, l), (l, m)])
        packed = np.ones(((m + 31) // 32, l, 32), dtype)
        expected, out = np.empty((n, m), dtype), np.ones((n, m), dtype)
        module.rt(A, B, expected)
        module.rt_pack_B(B, packed)
        module.rt_prepacked(A, packed, out)
        assert out.tobytes() == expected.tobytes()
    with pytest.raises(ValueError, match=r"dimension 0 must be `\(m \+ 31\) // 32` = 2, got 3"):
        module.rt_prepacked(A, np.ones((3, 16, 32), dtype), out)
