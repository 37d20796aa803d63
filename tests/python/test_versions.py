"""Schedules that branch on run-time integers: every version, at and beside its bounds."""

import numpy as np
import pytest

SIZES = [0, 1, 3, 4, 5, 15, 16, 17, 32, 33, 100]


@pytest.fixture(params=["branches", "auto"])
def module(request, build):
    import tvm_ffi

    return tvm_ffi.load_module(build.path("tests/python/versions.te", request.param))


@pytest.mark.parametrize("n", SIZES)
def test_products(module, rng, n):
    for m in SIZES:
        for l in SIZES:
            # Integers, so that any order of the terms gives the same sums.
            a = rng.integers(-8, 9, (n, l)).astype(np.float32)
            b = rng.integers(-8, 9, (l, m)).astype(np.float32)
            around = np.full(n * m + 32, 7, np.float32)
            c = around[16 : 16 + n * m].reshape(n, m)
            module.product(a, b, c)
            np.testing.assert_array_equal(c, a @ b, err_msg=f"{n}, {m}, {l}")
            assert (around[:16] == 7).all() and (around[16 + n * m :] == 7).all()


@pytest.mark.parametrize("s", [-(2**63), -3, -2, -1, 0, 1, 2, 2**40, 2**63 - 1])
def test_integers_of_any_size(module, rng, s):
    for n in [0, 2, 3, 7, 8, 9, 70]:
        a = rng.integers(-(2**63), 2**63 - 1, n)
        t = np.zeros(4, np.int64)
        try:
            module.totals(a, t, s)
        except Exception as error:
            assert "64 bit" in str(error) and abs(s) > 2**62, error
            continue
        with np.errstate(over="ignore"):
            factors = np.arange(4) + np.int64(s)
            np.testing.assert_array_equal(t, [(a * factor).sum() for factor in factors])
