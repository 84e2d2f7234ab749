"""Exact sums: correctly rounded, whatever the order and the partition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loki_core.kernels.basics.accumulate import RUN, sum_limbs
from loki_core.parallel.comm import SERIAL
from loki_core.parallel.reduce import (
    exact_sum,
    exact_sums,
    fixed_point_scale,
    fixed_sum,
    of_limbs,
)


def hard_values(rng, count):
    """Numbers over 600 binary orders that cancel heavily."""
    values = rng.standard_normal(count) * 2.0 ** rng.integers(-300, 300, count)
    return np.concatenate((values, -values[: count // 2], rng.standard_normal(count)))


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_is_the_correctly_rounded_one(seed):
    values = hard_values(np.random.default_rng(seed), 1000)
    assert exact_sum(SERIAL, values) == math.fsum(values)


def test_order_and_shape_do_not_matter():
    rng = np.random.default_rng(6)
    values = rng.standard_normal(1000)
    orders = [rng.permutation(1000) for _ in range(20)]
    assert len({values[order].sum() for order in orders}) > 1  # plain sums do depend on it
    assert len({exact_sum(SERIAL, values[order]) for order in orders}) == 1
    assert exact_sum(SERIAL, values.reshape(-1, 2)) == exact_sum(SERIAL, values)


def test_columns_are_summed_apart():
    values = np.random.default_rng(7).standard_normal((400, 3)) * [1.0, 1e-200, 1e200]
    np.testing.assert_array_equal(
        exact_sums(SERIAL, values), [math.fsum(column) for column in values.T]
    )


def test_single_precision_and_integers_are_summed_exactly():
    values = np.random.default_rng(8).random(10_000).astype(np.float32)
    assert exact_sum(SERIAL, values) == math.fsum(values.astype(np.float64))
    assert exact_sum(SERIAL, np.arange(1000)) == 499500.0


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0, -0.0],
        [5e-324],
        [5e-324] * 3,
        [-5e-324, 2.2250738585072014e-308],
        [2.2250738585072014e-308, -2.225073858507201e-308],
        [1.7976931348623157e308, -1.7976931348623157e308, 1.0],
        [1.0, 2.0**-53, 2.0**-106],  # just above a tie
        [1.0, 2.0**-53, -(2.0**-106)],  # just below it
        [1e308, 1e308, -1e308],  # an intermediate overflow that the exact sum does not have
    ],
)
def test_extreme_values(values):
    expected = math.fsum(values) if values[:2] != [1e308, 1e308] else 1e308
    assert exact_sum(SERIAL, np.array(values, dtype=np.float64)) == expected


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sum_beyond_the_largest_number_is_infinite(sign):
    assert exact_sum(SERIAL, sign * np.array([1.7e308, 1.7e308])) == sign * math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_makes_its_column_not_a_number(bad):
    values = np.ones((10, 2))
    values[4, 1] = bad
    found = exact_sums(SERIAL, values)
    assert found[0] == 10.0
    assert math.isnan(found[1])


def test_sums_in_fixed_point_do_not_depend_on_order_or_partition():
    rng = np.random.default_rng(9)
    values = rng.standard_normal(20_000) * 2.0 ** rng.integers(-40, 3, 20_000)
    whole = fixed_sum(SERIAL, values)
    assert {fixed_sum(SERIAL, rng.permutation(values)) for _ in range(5)} == {whole}
    assert abs(whole - math.fsum(values)) < 20_000 * 2.0**-61 * np.abs(values).max()
    scale = fixed_point_scale(float(np.abs(values).max()))
    parts = []
    for part in np.split(values, [1, 5000, 5001, 17_000]):  # as ranks have them
        limbs = np.zeros((-(-len(part) // RUN), 2), np.int64)
        sum_limbs(part, scale, limbs)
        parts.append(limbs.sum(axis=0))
    assert float(of_limbs(np.sum(parts, axis=0), scale)) == whole


@pytest.mark.parametrize(
    "values", [[], [0.0, -0.0], [5e-324], [1.7e308], [-3.0, 1e-300], [1.0, -1.0]]
)
def test_sums_in_fixed_point_of_extreme_values(values):
    found = fixed_sum(SERIAL, np.array(values, np.float64))
    expected = math.fsum(values)
    assert found == pytest.approx(expected, rel=1e-15, abs=1e-300)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_sum_in_fixed_point_of_what_is_not_finite_is_not_a_number(bad):
    assert math.isnan(fixed_sum(SERIAL, np.array([1.0, bad, 2.0])))
