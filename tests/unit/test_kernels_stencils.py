"""The Laplacian on sparse Buckets, against a dense array with one layer of ghosts."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.kernels import jit
from loki_vfx.benchmarks._stencils import laplacian

SCALE = np.array([1.0, -1.0, 0.0])  # no flux, a value on the face, a value outside
VALUE = np.array([0.0, 2.0 * 0.7, 0.4])


def bucket_lattice(shape, conditions=None):
    """Coordinates in a scrambled order and the table; no conditions: periodic."""
    coords = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 3)
    coords = np.random.default_rng(0).permutation(coords)
    rows = np.empty(shape, np.int32)
    rows[tuple(coords.T)] = np.arange(len(coords))
    table = np.full((len(coords), 27), -1, np.int32)
    for column in range(27):
        step = np.array([column // 9 - 1, column // 3 % 3 - 1, column % 3 - 1])
        there = coords + step
        inside = ((there >= 0) & (there < shape)).all(axis=1)
        table[:, column] = rows[tuple((there % shape).T)]
        if conditions is not None:
            axis = int(np.argmax(np.abs(step)))
            table[~inside, column] = -1 - conditions[axis][int(step[axis] > 0)]
    return coords, table


def dense_laplacian(dense, conditions, inverse_h2):
    """The same by numpy on an array with ghosts."""
    u = dense.astype(np.float64)
    total = -6.0 * u
    for axis in range(3):
        for upper in (0, 1):
            moved = np.roll(u, -1 if upper else 1, axis)
            if conditions is not None:
                edge = [slice(None)] * 3
                edge[axis] = -1 if upper else 0
                code = conditions[axis][upper]
                moved[tuple(edge)] = SCALE[code] * u[tuple(edge)] + VALUE[code]
            total += moved
    return total * inverse_h2


@pytest.mark.parametrize("resolution", [4, 8, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("conditions", [None, ((0, 1), (2, 0), (1, 2)), ((1, 2), (0, 1), (2, 0))])
def test_walls_and_periodic_axes_equal_a_dense_array(resolution, dtype, conditions):
    shape = (3, 2, 4)
    coords, table = bucket_lattice(shape, conditions)
    dense = np.random.default_rng(1).random([n * resolution for n in shape]).astype(dtype)
    blocks = [
        tuple(slice(c * resolution, (c + 1) * resolution) for c in bucket) for bucket in coords
    ]
    values = np.stack([dense[block] for block in blocks])
    out = np.empty_like(values)
    everything = np.arange(len(coords), dtype=np.int32)
    laplacian(
        values, everything, table,
        boundary_scale=SCALE, boundary_value=VALUE, inverse_h2=4.0, out=out,
    )  # fmt: skip
    expected = dense_laplacian(dense, conditions, 4.0)
    tolerance = 2e-5 if dtype == np.float32 else 1e-12  # round-off of seven terms below 6 / h^2
    for bucket, block in enumerate(blocks):
        np.testing.assert_allclose(out[bucket], expected[block], rtol=0, atol=tolerance)


def test_only_the_listed_buckets_are_written():
    _, table = bucket_lattice((2, 2, 2))
    values = np.random.default_rng(2).random((8, 8, 8, 8)).astype(np.float32)
    out = np.full_like(values, 7.0)
    some = np.array([5, 2], np.int32)
    arguments = {"boundary_scale": SCALE, "boundary_value": VALUE, "inverse_h2": 1.0}
    laplacian(values, some, table, out=out, **arguments)
    untouched = np.setdiff1d(np.arange(8), some)
    assert (out[untouched] == 7.0).all() and (out[some] != 7.0).all()
    laplacian(values, some[:0], table, out=out, **arguments)
    with pytest.raises(ValueError, match="float64"):
        laplacian(values, some, table, out=out.astype(np.float64), **arguments)


def test_a_bad_voxel_reaches_its_six_neighbours_only():
    _, table = bucket_lattice((2, 2, 2))
    values = np.zeros((8, 8, 8, 8), np.float32)
    values[0, 3, 3, 7] = np.nan
    out = np.empty_like(values)
    laplacian(
        values, np.arange(8, dtype=np.int32), table,
        boundary_scale=SCALE, boundary_value=VALUE, inverse_h2=1.0, out=out,
    )  # fmt: skip
    assert np.isnan(out).sum() == 7


def test_one_and_two_threads_agree_bit_for_bit():
    _, table = bucket_lattice((6, 6, 6))
    values = np.random.default_rng(3).random((216, 8, 8, 8)).astype(np.float32)
    threads = jit.thread_count()
    results = []
    try:
        for count in (1, 2):
            jit.set_thread_count(count)
            out = np.empty_like(values)
            laplacian(
                values, np.arange(216, dtype=np.int32), table,
                boundary_scale=SCALE, boundary_value=VALUE, inverse_h2=1.0, out=out,
            )  # fmt: skip
            results.append(out)
    finally:
        jit.set_thread_count(threads)
    np.testing.assert_array_equal(*results)
