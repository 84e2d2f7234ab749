"""SparseSystem against scipy: products, diagonal, rows back, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from loki_core.errors import InputError
from loki_core.linear_solvers.sparse_system import SparseSystem
from tests.unit.linear_systems import box_with_holes, poisson, random_spd, system


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100, 5000])
def test_product_diagonal_and_rows_are_those_of_the_matrix(count, dtype):
    matrix = random_spd(count, 1) if count > 1 else sp.csr_matrix(np.full((count, count), 3.0))
    matrix.data = matrix.data.astype(dtype).astype(np.float64)
    found = system(matrix, dtype)
    x = np.random.default_rng(2).standard_normal(count)
    out = np.full(count, np.nan)
    found.multiply(x, out)
    np.testing.assert_allclose(out, matrix @ x, rtol=0, atol=1e-11)  # entries of some tens
    np.testing.assert_allclose(found.dot(x, out), x @ out, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found.diagonal(), matrix.diagonal())
    indptr, indices, data = found.csr()
    again = sp.csr_matrix((data, indices, indptr), shape=matrix.shape)
    assert data.dtype == dtype or count < 2  # 3.0 is kept in float32 without loss
    np.testing.assert_array_equal((again - matrix).data, 0.0)


def test_rows_of_different_length_and_empty_rows():
    matrix = poisson(box_with_holes(9))
    found = system(matrix)
    x = np.arange(found.size, dtype=np.float64)
    out = np.empty(found.size)
    found.multiply(x, out)
    np.testing.assert_array_equal(out, matrix @ x)


def test_ghosts_that_are_own_rows_make_a_periodic_line():
    # Columns 5 and 6 are ghosts of rows 4 and 0.
    indptr = np.arange(0, 16, 3, dtype=np.int32)
    indices = np.array([5, 0, 1, 0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 6], dtype=np.int32)
    data = np.tile([-1.0, 2.0, -1.0], 5)
    found = SparseSystem(indptr, indices, data, ghost_rows=np.array([4, 0]))
    x = np.array([1.0, 4.0, 9.0, 16.0, 25.0])
    out = np.empty(5)
    found.multiply(x, out)
    np.testing.assert_array_equal(out, 2 * x - np.roll(x, 1) - np.roll(x, -1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([0, 5], np.int32)}, "columns 0 to 5; .* only 0 to 1"),
        ({"indptr": np.array([0, 2, 1], np.int32)}, "must begin with 0 and not decrease"),
        ({"indptr": np.array([0, 1, 3], np.int32)}, "ends with 3, but there are 2 indices"),
        ({"data": np.array([1, 2])}, "int64; they must be float32 or float64"),
        ({"kind": "nice"}, 'kind "nice" is not known'),
        ({"ghost_rows": np.array([2])}, r"ghost_rows\[0\] = 2 is not a row"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {
        "indptr": np.array([0, 1, 2], np.int32),
        "indices": np.array([0, 1], np.int32),
        "data": np.ones(2),
    }
    arguments = {**good, **change}
    with pytest.raises(InputError, match=message):
        SparseSystem(
            arguments.pop("indptr"), arguments.pop("indices"), arguments.pop("data"), **arguments
        )
