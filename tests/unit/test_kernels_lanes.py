"""Lanes: eight numbers at once, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.kernels.basics.lanes import (
    LANES,
    append_lanes,
    at_least,
    at_most,
    bits_below,
    lanes_at,
    lanes_of,
    lanes_where_below,
    same_lanes,
    square_root,
    store_lanes,
    store_lanes_of,
    sum_of_lanes,
)
from loki_core.kernels.jit import kernel


@kernel
def compute(values, other, result):
    for i in range(0, values.shape[0], LANES):
        x = lanes_at(values, i)
        y = lanes_at(other, i)
        z = (x + y * 2.0 - 1.0) / (3.0 + x * x)
        z = square_root(at_least(z, 0.25)) + at_most(y, 0.5)
        store_lanes(result, i, lanes_where_below(x, 0.3, z, same_lanes(values[0])))


@kernel
def turn(values, result, sums):
    first = lanes_of(values, 1, 3)
    store_lanes_of(result, 0, 2, first)
    sums[0] = sum_of_lanes(first)


@kernel
def choose(values, limit, found):
    place = 0
    for i in range(0, values.shape[0], LANES):
        place += append_lanes(found, place, i, bits_below(lanes_at(values, i), limit))
    return place


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_arithmetic_is_that_of_each_number(kind):
    random = np.random.default_rng(1)
    x, y = random.random((2, 5 * LANES)).astype(kind)
    result = np.empty_like(x)
    compute(x, y, result)
    z = np.sqrt(np.maximum((x + y * 2.0 - 1.0) / (3.0 + x * x), 0.25)) + np.minimum(y, 0.5)
    expected = np.where(x < kind(0.3), z, x[0])
    np.testing.assert_allclose(result, expected, rtol=4 * np.finfo(kind).eps)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_strides(kind):
    values = np.arange(30, dtype=kind)
    result, sums = np.full(20, -1, kind), np.zeros(1, kind)
    turn(values, result, sums)
    np.testing.assert_array_equal(result[:16:2], values[1:25:3])
    assert np.all(result[1::2] == -1)
    assert sums[0] == values[1:25:3].sum()


def test_numbers_of_the_lanes_that_are_below_a_limit():
    values = np.random.default_rng(2).random(64).astype(np.float32)
    found = np.empty(64 + LANES, np.int32)
    count = choose(values, 0.4, found)
    np.testing.assert_array_equal(found[:count], np.flatnonzero(values <= np.float32(0.4)))


def test_as_plain_python():
    """What runs where numba does not."""
    values = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.0, 7.0, 6.0])
    found = np.zeros(LANES, np.int32)
    assert bits_below.function(values, 2.0) == 0b00100110
    assert append_lanes.function(found, 0, 10, 0b00100110) == 3
    np.testing.assert_array_equal(found[:3], [11, 12, 15])
    assert sum_of_lanes.function(values) == 28.0
    np.testing.assert_array_equal(lanes_of.function(np.arange(20), 1, 2), np.arange(1, 17, 2))
