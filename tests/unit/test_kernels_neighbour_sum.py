"""Sums over neighbours within a radius, against all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import InputError
from loki_core.kernels import bucket_hash, jit
from loki_core.kernels.neighbour_sum import (
    build_search_cells,
    count_neighbours,
    density_sum,
    neighbour_pairs,
)
from loki_core.kernels.particle_sort import sort_particles


def neighbour_table(codes, coords, periodic=0):
    """27 neighbours of each Bucket; `periodic` Buckets along every axis, or an open domain."""
    table_keys, table_values = bucket_hash.build_table(codes)
    table = np.empty((len(codes), 27), np.int32)
    for column in range(27):
        step = np.array([column // 9 - 1, column // 3 % 3 - 1, column % 3 - 1], np.int32)
        there = coords + step
        if periodic:
            there %= periodic
        packed = bucket_hash.pack_buckets(there)
        table[:, column] = bucket_hash.find_buckets(table_keys, table_values, codes=packed)
    return table


def make_cells(position, bucket_size, radius, *, periodic=0, local_count=None):
    ids = np.arange(len(position))
    order = sort_particles(position, ids, bucket_size, curve="hilbert")
    return build_search_cells(
        position[order.permutation],
        order.offsets,
        coords=order.coords,
        neighbours=neighbour_table(order.codes, order.coords, periodic),
        bucket_size=bucket_size,
        radius=radius,
        local_count=local_count,
    )


def squared_distances(position, length=None):
    apart = position[:, None, :].astype(np.float64) - position[None, :, :]
    if length is not None:
        apart -= length * np.round(apart / length)
    return (apart**2).sum(axis=2)


def check(cells, length=None):
    squares = squared_distances(cells.position, length)
    radius = cells.radius
    within = squares <= radius**2
    np.fill_diagonal(within, False)

    np.testing.assert_array_equal(count_neighbours(cells), within.sum(axis=1))
    first, neighbours = neighbour_pairs(cells)
    for i in range(len(cells.position)):
        mine = neighbours[first[i] : first[i + 1]]
        np.testing.assert_array_equal(np.sort(mine), np.flatnonzero(within[i]))

    mass = np.random.default_rng(9).random(len(cells.position)).astype(cells.position.dtype)
    density = np.empty_like(mass)
    density_sum(cells, mass, density)
    kernel = 315.0 / (64.0 * np.pi * radius**9) * np.maximum(radius**2 - squares, 0.0) ** 3
    # float32: each term is off by a few parts in 1e7 of h^2, and its third power thrice that
    tolerance = 2e-5 if mass.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(density, kernel @ mass.astype(np.float64), rtol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fraction", [0.25, 0.4, 1.0, 0.05])
def test_an_open_domain_equals_all_pairs(dtype, fraction):
    position = (np.random.default_rng(1).normal(size=(1200, 3)) * 1.5).astype(dtype)
    check(make_cells(position, 1.0, fraction))


@pytest.mark.parametrize("buckets", [2, 3])
def test_a_periodic_domain_equals_all_pairs_of_nearest_images(buckets):
    length = 0.5 * buckets
    position = np.random.default_rng(2).random((900, 3)) * length
    check(make_cells(position, 0.5, 0.2, periodic=buckets), length=length)


def test_particles_far_from_the_origin_lose_no_precision():
    near = np.random.default_rng(3).random((400, 3))
    counts = []
    for corner in (0.0, 65536.0):  # a multiple of the Bucket, so that the lattice is the same
        cells = make_cells(near + corner, 1.0, 0.25)
        density = np.empty(len(near))
        density_sum(cells, np.ones(len(near)), density)
        counts.append(np.sort(density))
    np.testing.assert_allclose(counts[0], counts[1], rtol=1e-8)


def test_only_local_buckets_are_summed_and_ghosts_are_seen():
    position = np.random.default_rng(4).random((800, 3)).astype(np.float32)
    whole = make_cells(position, 0.25, 0.1)
    some = make_cells(position, 0.25, 0.1, local_count=10)
    last = int(some.offsets[10])
    np.testing.assert_array_equal(count_neighbours(some), count_neighbours(whole)[:last])
    assert len(neighbour_pairs(some)[0]) == last + 1


def test_one_and_two_threads_agree_bit_for_bit():
    position = np.random.default_rng(5).random((20_000, 3)).astype(np.float32)
    mass = np.random.default_rng(6).random(20_000).astype(np.float32)
    cells = make_cells(position, 0.2, 0.05)
    threads = jit.thread_count()
    try:
        results = []
        for count in (1, 2):
            jit.set_thread_count(count)
            density = np.empty(20_000, np.float32)
            density_sum(cells, mass, density)
            results.append((density, *neighbour_pairs(cells)))
    finally:
        jit.set_thread_count(threads)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


def test_no_particles_and_a_radius_beyond_the_bucket():
    empty = make_cells(np.empty((0, 3), np.float32), 1.0, 0.25)
    assert len(count_neighbours(empty)) == 0
    with pytest.raises(InputError, match=r"radius 1\.5 m"):
        make_cells(np.zeros((1, 3), np.float32), 1.0, 1.5)
