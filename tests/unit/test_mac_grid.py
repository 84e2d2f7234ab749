"""The staggered grid: which faces follow the ambient air, and the rows of the pressure's matrix."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse

from loki_core.kernels.gas.mac_grid import (
    AMBIENT,
    FLUID,
    SOLID,
    count_pressure_entries,
    fill_pressure_matrix,
    let_ambient_faces_flow,
)

pytestmark = pytest.mark.compiles

R = 4
NO_SIDE = np.full(3, np.inf)


def neighbours_of(coords):
    """The Bucket in each of 27 directions, -1 where there is none."""
    index = {tuple(c): b for b, c in enumerate(coords)}
    steps = list(product((-1, 0, 1), repeat=3))
    found = [[index.get(tuple(np.add(c, s)), -1) for s in steps] for c in coords]
    return np.array(found, np.int32)


# -- ambient air -------------------------------------------------------------------------------


def flow(kind, *, lower=-NO_SIDE, upper=NO_SIDE):
    """Velocities of the faces of one Bucket without neighbours, before and after."""
    coords = np.zeros((1, 3), np.int32)
    before = np.random.default_rng(1).normal(size=(1, 3, R, R, R))
    after = before.copy()
    let_ambient_faces_flow(kind[None, None], coords, lower, upper, neighbours_of(coords), after)
    return before[0], after[0]


def test_ambient_air_at_the_edge_of_the_buckets_follows_the_next_face_inside():
    kind = np.full((R, R, R), AMBIENT, np.uint8)
    kind[1:-1, 1:-1, 1:-1] = FLUID
    before, after = flow(kind)
    for axis in range(3):
        was, now = np.moveaxis(before[axis], axis, 0), np.moveaxis(after[axis], axis, 0)
        np.testing.assert_array_equal(now[0], was[1])
        np.testing.assert_array_equal(now[1:], was[1:])


def test_a_collider_at_the_edge_of_the_padding_is_not_nothing():
    # It moves the faces of its voxels, and those between it and the ambient air, itself.
    kind = np.full((R, R, R), AMBIENT, np.uint8)
    kind[:2, 1:3, 1:3] = SOLID  # reaches the lower edge along x
    kind[3, 0, 3] = SOLID  # in a corner
    before, after = flow(kind)
    for axis in range(3):
        here = np.moveaxis(kind, axis, 0)
        was, now = np.moveaxis(before[axis], axis, 0), np.moveaxis(after[axis], axis, 0)
        solid = here == SOLID
        np.testing.assert_array_equal(now[solid], was[solid])
        above = np.zeros_like(solid)
        above[1:] = solid[:-1]
        np.testing.assert_array_equal(now[above], was[above])
        np.testing.assert_array_equal(now[0][~solid[0]], was[1][~solid[0]])


def test_faces_on_an_open_side_follow_and_those_of_a_collider_beside_it_do_not():
    # the box ends below the last layer along x: that layer is solid, and is nothing
    kind = np.full((R, R, R), AMBIENT, np.uint8)
    kind[3] = SOLID
    kind[2, 1, 1] = SOLID  # a collider inside, which touches the side
    before, after = flow(kind, upper=np.array([3.0, np.inf, np.inf]))
    side = np.ones((R, R), bool)
    side[1, 1] = False
    np.testing.assert_array_equal(after[0, 3][side], before[0, 2][side])
    assert after[0, 3, 1, 1] == before[0, 3, 1, 1]
    assert after[0, 2, 1, 1] == before[0, 2, 1, 1]


# -- matrix ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("has_mobility", [0, 1])
@pytest.mark.parametrize("has_compliance", [0, 1])
def test_rows_of_the_pressure_are_counted_as_they_are_filled(seed, has_mobility, has_compliance):
    rng = np.random.default_rng(seed)
    coords = np.array(list(product((0, 1), repeat=3)), np.int32)
    coords = coords[rng.permutation(8)[: rng.integers(3, 9)]]
    neighbours, shape = neighbours_of(coords), (len(coords), 1, R, R, R)
    kind = rng.choice([SOLID, FLUID, AMBIENT], size=shape, p=[0.25, 0.65, 0.1]).astype(np.uint8)
    fraction = rng.choice([0.0, 0.3, 1.0], size=(len(coords), 3, R, R, R))
    mobility = rng.uniform(0.1, 1.0, fraction.shape)
    compliance = rng.choice([0.0, 0.5], size=shape)

    counts = np.full(kind.size, -1, np.int32)
    count_pressure_entries(kind, fraction, compliance, has_compliance, neighbours, counts)
    starts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    columns = np.full(starts[-1] + 1, -1, np.int64)  # one more, which nobody writes
    data = np.full(starts[-1] + 1, np.nan)
    fill_pressure_matrix(
        kind, fraction, mobility, has_mobility, compliance, has_compliance, neighbours, starts,
        columns, data,
    )  # fmt: skip

    assert columns[-1] == -1 and np.isnan(data[-1])
    columns, data = columns[:-1], data[:-1]
    assert columns.min() >= 0 and not np.isnan(data).any()
    matrix = scipy.sparse.csr_array((data, columns, starts), shape=(kind.size, kind.size))
    assert matrix.has_canonical_format or len(matrix.tocoo().todok()) == len(data)  # none twice
    np.testing.assert_array_equal(columns[starts[:-1][counts > 0]], np.flatnonzero(counts))
    assert abs(matrix - matrix.T).max() == 0.0
    fluid = kind.reshape(-1) == FLUID
    assert not counts[~fluid].any() and counts[fluid].any()
    # rows sum to what compliance and ambient air take up
    sums = matrix.sum(axis=1)
    assert sums.min() > -1e-12
    np.testing.assert_allclose(sums, taken_up(kind, fraction, coords, mobility, has_mobility)
        + has_compliance * np.where(fluid, compliance.reshape(-1), 0.0), atol=1e-12)  # fmt: skip


def taken_up(kind, fraction, coords, mobility, has_mobility):
    """Sum over a FLUID cell's faces to AMBIENT cells of w m, from whole arrays, flat by Bucket."""
    weight = fraction * mobility if has_mobility else fraction
    kinds, faces = np.full((2 * R,) * 3, SOLID), np.zeros((3, *(2 * R,) * 3))
    places = [tuple(slice(R * c, R * c + R) for c in place) for place in coords]
    for b, place in enumerate(places):
        kinds[place], faces[:, *place] = kind[b, 0], weight[b]
    total = np.zeros(kinds.shape)
    for axis in range(3):
        k, w = np.moveaxis(kinds, axis, 0), np.moveaxis(faces[axis], axis, 0)[1:]
        out = np.moveaxis(total, axis, 0)
        out[1:] += w * ((k[1:] == FLUID) & (k[:-1] == AMBIENT))
        out[:-1] += w * ((k[:-1] == FLUID) & (k[1:] == AMBIENT))
    return np.concatenate([total[place].reshape(-1) for place in places])
