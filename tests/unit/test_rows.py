"""Rows of eight numbers: the compiled functions do what the plain ones say."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.kernels.basics import rows
from loki_core.kernels.basics.rows import (
    LANES,
    bits,
    choose,
    cut,
    gather,
    greatest,
    joined,
    lane,
    larger,
    least,
    load,
    load_first,
    numbers,
    put,
    repeated,
    smaller,
    store,
    store_first,
    total,
    within,
)
from loki_core.kernels.jit import kernel

pytestmark = pytest.mark.compiles


@kernel
def combine(a, b, limit, whole, columns, out, sums):
    """Use every function once on the rows of a and b."""
    for n in range(a.shape[0] // LANES):
        at = np.uint64(LANES * n)
        x, y = load(a, at), load(b, at)
        inside = (x > limit) & (y <= x * limit)
        z = choose(inside, within(x - y, limit, x), cut(x / y))
        z = larger(z, smaller(y, x + limit))
        z = put(z, 3, lane(y, 5))
        store(whole, at, z * z)
        z = z + joined(x, y, 2) + numbers(load(whole, at), limit) + repeated(limit)
        store(out, at, z + gather(a, columns, at))
        store_first(out, at, load_first(b, at, 3), 2)
        sums[n, 0], sums[n, 1], sums[n, 2] = least(z), greatest(z), total(z)
        sums[n, 3] = bits(inside)


def plain(lazy):
    """The same functions as plain Python: what they are where nothing is compiled."""
    names = dict(lazy.function.__globals__)
    for name in names:
        value = getattr(rows, name, None)
        if hasattr(value, "function"):
            names[name] = value.function
    return type(lazy.function)(lazy.function.__code__, names)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("small", [np.int8, np.uint16])
def test_compiled_rows_equal_plain_ones(dtype, small, monkeypatch):
    rng = np.random.default_rng(4)
    a, b = (5.0 * rng.random((2, 10 * LANES)) + 0.1).astype(dtype)
    columns = rng.permutation(len(a)).astype(np.int32)
    found = {}
    for name, run in (("compiled", combine), ("plain", plain(combine))):
        if name == "plain":
            for inner in ("within", "load_first", "store_first", "gather"):
                monkeypatch.setitem(run.__globals__, inner, plain(getattr(rows, inner)))
        out, whole = np.zeros_like(a), np.zeros(len(a), small)
        sums = np.zeros((10, 4), dtype)
        run(a, b, dtype(1.5), whole, columns, out, sums)
        found[name] = out, whole, sums
    tolerance = 20 * np.finfo(dtype).eps
    for compiled, expected in zip(*found.values(), strict=True):
        np.testing.assert_allclose(compiled, expected, rtol=tolerance, atol=100 * tolerance)
    assert len(np.unique(found["compiled"][2][:, 3])) > 3  # masks that differ


@kernel
def extremes_of(a, limit, out):
    x = load(a, np.uint64(0))
    store(out, np.uint64(0), larger(limit, x))
    store(out, np.uint64(8), smaller(limit, x))
    store(out, np.uint64(16), within(x, limit, limit))


def test_what_is_not_a_number_loses():
    a = np.array([np.nan, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 0.0])
    out = np.empty(24)
    extremes_of(a, 0.5, out)
    np.testing.assert_array_equal(out[:8], [0.5, 1.0, 0.5, np.inf, 0.5, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(out[8:16], [0.5, 0.5, -1.0, 0.5, -np.inf, 0.5, 0.5, 0.0])
    np.testing.assert_array_equal(out[16:], 0.5)
