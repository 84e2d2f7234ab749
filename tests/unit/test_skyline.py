"""Skyline matrices: products, factors and solutions against numpy, for envelopes of all kinds."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.kernels.algebra.skyline import (
    dot_bodies,
    envelope_of,
    factor_bodies,
    multiply_bodies,
    solve_bodies,
)
from loki_core.kernels.jit import set_thread_count, thread_count
from tests.unit.body_systems import dense, full_first, random_values, rod_first, shape

RNG = np.random.default_rng(11)
RAGGED = np.minimum(np.arange(23), np.random.default_rng(5).integers(0, 23, 23))
CASES = {
    "rods": [rod_first(6)] * 19,  # two groups of eight side by side, three alone
    "rods of different lengths": [rod_first(2 + k % 5) for k in range(12)],
    "closed rods": [rod_first(5, closed=True)] * 9,
    "full": [full_first(12)] * 3,
    "ragged": [RAGGED] * 8,
    "ragged, mixed": [RAGGED, rod_first(3), full_first(1), RAGGED],
    "one unknown each": [full_first(1)] * 17,
    "bodies without unknowns": [full_first(0), full_first(2), full_first(0)],
    "one large": [full_first(150)],
    "eight too large to go side by side": [full_first(95)] * 8,
    "nothing": [],
}


@pytest.fixture(params=CASES, name="bodies")
def make_bodies(request):
    body_start, first, row, count = shape(CASES[request.param])
    return body_start, first, row, random_values(body_start, first, row, count, 1)


def factors_of(body_start, first, row, values):
    factors = np.full(len(values), np.nan)
    failed = np.full(len(body_start) - 1, 7, dtype=np.int64)
    factor_bodies(values, row, first, body_start, factors, failed)
    return factors, failed


def test_the_product_is_that_of_the_whole_matrix(bodies):
    body_start, first, row, values = bodies
    x = RNG.standard_normal(len(row))
    out = np.full(len(row), np.nan)
    multiply_bodies(values, row, first, body_start, x, out)
    np.testing.assert_allclose(out, dense(*bodies) @ x, rtol=0, atol=1e-12)


def test_the_solution_is_that_of_numpy(bodies):
    body_start, first, row, values = bodies
    before = values.copy()
    factors, failed = factors_of(*bodies)
    assert np.all(failed == -1)
    np.testing.assert_array_equal(values, before)
    b = RNG.standard_normal(len(row))
    x = np.full(len(row), np.nan)
    solve_bodies(factors, row, first, body_start, b, x)
    np.testing.assert_allclose(x, np.linalg.solve(dense(*bodies), b), rtol=0, atol=1e-11)
    solve_bodies(factors, row, first, body_start, b, b)
    np.testing.assert_array_equal(b, x)


def test_factors_are_those_of_cholesky():
    body_start, first, row, count = shape([rod_first(4)])
    values = random_values(body_start, first, row, count, 2)
    factors, _ = factors_of(body_start, first, row, values)
    lower = np.linalg.cholesky(dense(body_start, first, row, values))
    for i in range(len(row)):
        left = lower[i, first[i] : i]
        np.testing.assert_allclose(factors[row[i] + first[i] : row[i] + i], left, atol=1e-13)
        np.testing.assert_allclose(factors[row[i] + i] * lower[i, i], 1.0, rtol=1e-13)


def test_stiff_bodies_are_solved_to_rounding():
    # 1e8 times a chain's Laplacian and a mass of 1: backward stable, so |r| is some eps |A| |x|.
    count, stiffness = 60, 1.0e8
    body_start, first, row, entries = shape([np.maximum(np.arange(count) - 1, 0)] * 8)
    values = np.full(entries, -stiffness)
    values[row + np.arange(len(row))] = 2.0 * stiffness + 1.0
    factors, failed = factors_of(body_start, first, row, values)
    assert np.all(failed == -1)
    b = RNG.standard_normal(len(row))
    x, product = np.empty_like(b), np.empty_like(b)
    solve_bodies(factors, row, first, body_start, b, x)
    multiply_bodies(values, row, first, body_start, x, product)
    assert np.linalg.norm(product - b) <= 10 * 2.2e-16 * 4.0 * stiffness * np.linalg.norm(x)


@pytest.mark.parametrize("bodies", [11, 16])  # alone and side by side
@pytest.mark.parametrize("bad", [-3.0, 0.0, np.nan, np.inf])
def test_a_body_that_is_not_positive_definite_is_named(bodies, bad):
    body_start, first, row, count = shape([rod_first(3)] * bodies)
    values = random_values(body_start, first, row, count, 3)
    for body, place in ((9, 4), (9, 6), (10, 0)):
        i = body_start[body] + place
        values[row[i] + i] = bad
    factors, failed = factors_of(body_start, first, row, values)
    expected = np.full(bodies, -1)
    expected[9], expected[10] = body_start[9] + 4, body_start[10]
    np.testing.assert_array_equal(failed, expected)
    b, x = np.ones(len(row)), np.empty(len(row))
    solve_bodies(factors, row, first, body_start, b, x)
    good = slice(0, int(body_start[9]))  # the others are not spoilt
    solution = np.linalg.solve(dense(body_start, first, row, values)[good, good], b[good])
    np.testing.assert_allclose(x[good], solution, rtol=0, atol=1e-11)


def test_sums_of_bodies():
    body_start = np.array([0, 3, 3, 10], dtype=np.int64)
    x, y, out = RNG.standard_normal(10), RNG.standard_normal(10), np.full(3, np.nan)
    dot_bodies(x, y, body_start, out)
    np.testing.assert_allclose(out, [x[:3] @ y[:3], 0.0, x[3:] @ y[3:]], rtol=1e-13, atol=1e-15)


def test_threads_do_not_change_a_bit():
    firsts = [rod_first(7)] * 24 + [rod_first(2 + k % 6, closed=k % 6 > 2) for k in range(30)]
    body_start, first, row, count = shape(firsts)
    values = random_values(body_start, first, row, count, 4)
    b = RNG.standard_normal(len(row))
    threads, found = thread_count(), []
    try:
        for count in (1, 2):
            set_thread_count(count)
            factors, _ = factors_of(body_start, first, row, values)
            x, product = np.empty_like(b), np.empty_like(b)
            solve_bodies(factors, row, first, body_start, b, x)
            multiply_bodies(values, row, first, body_start, b, product)
            found.append((factors, x, product))
    finally:
        set_thread_count(threads)
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_an_envelope_has_rows_one_after_the_other():
    body_start = np.array([0, 2, 5], dtype=np.int64)
    row, count = envelope_of(body_start, np.array([0, 0, 2, 3, 2], dtype=np.int64))
    assert count == 1 + 2 + 1 + 1 + 3
    np.testing.assert_array_equal(row + np.array([0, 0, 2, 3, 2]), [0, 1, 3, 4, 5])
    assert row.dtype == np.int64
    with pytest.raises(ValueError, match="row 3 is stored from column 1; its body begins at 2"):
        envelope_of(body_start, np.array([0, 0, 2, 1, 2], dtype=np.int64))
    with pytest.raises(ValueError, match="row 2 is stored from column 3"):
        envelope_of(body_start, np.array([0, 0, 3, 3, 2], dtype=np.int64))
