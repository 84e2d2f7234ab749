"""Lists of neighbours, against scipy's tree."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import DivergenceError, InputError
from loki_core.kernels.basics.lanes import LANES
from loki_core.kernels.jit import set_thread_count
from loki_core.objects.particles.neighbour_search import NeighbourSearch

RANDOM = np.random.default_rng(3)


def searched(position, support, *, skin=0.0, bucket=0.5, box=None, dtype=np.float64):
    """A search over particles at world positions."""
    given = {}
    if box is not None:
        periodic = BoundaryCondition("periodic")
        given = {"lower": (0, 0, 0), "upper": box, "boundaries": [periodic] * 6}
    domain = GridDomain(bucket, **given)
    particles = ParticleSystem(domain, name="test", dtype=dtype)
    place = domain.to_relative(np.asarray(position, np.float64)).astype(dtype)
    particles.append({"position": place}, ids=np.arange(len(place), dtype=np.int64))
    particles.rebucketize()
    support = np.broadcast_to(support, len(place))[particles.local("id")]
    search = NeighbourSearch(particles)
    search.build(support, np.ones(len(place)), skin=skin)
    return search


def missing_pairs(search, position, support, reach=None):
    """Pairs of ids within reach of each other that no list has."""
    ids = search.particles.local("id")[search.rows]
    listed = set()
    for c, cluster in enumerate(search.clusters):
        entries = search.entries[search.first[c] : search.last[c]]
        assert len(set(entries.tolist())) == len(entries)
        for place in range(cluster * LANES, (cluster + 1) * LANES):
            listed |= {(int(ids[place]), int(ids[other])) for other in entries}
    support = np.broadcast_to(support, len(position))
    tree = cKDTree(position)
    farthest = float(support.max(initial=0.0)) if reach is None else reach
    near = tree.query_pairs(farthest, output_type="ndarray")
    apart = np.linalg.norm(position[near[:, 0]] - position[near[:, 1]], axis=1)
    limit = 0.5 * (support[near[:, 0]] + support[near[:, 1]]) if reach is None else reach
    wanted = near[apart < limit - 1e-9]
    itself = np.stack((np.arange(len(position)),) * 2, axis=1)
    both = np.concatenate((wanted, wanted[:, ::-1], itself))
    return {(int(i), int(j)) for i, j in both} - listed


@pytest.mark.parametrize("bucket", [0.2, 0.5, 3.0])
def test_all_pairs_are_listed(bucket):
    position = RANDOM.random((1500, 3))
    search = searched(position, 0.12, bucket=bucket)
    assert search.is_uniform
    assert not missing_pairs(search, position, 0.12)


def test_lists_reach_the_skin():
    position = RANDOM.random((800, 3))
    search = searched(position, 0.1, skin=0.05)
    assert not missing_pairs(search, position, 0.1, reach=0.15)


@pytest.mark.parametrize("ratio", [1.5, 8.0, 100.0])
def test_particles_of_different_size(ratio):
    position = RANDOM.random((900, 3))
    support = np.where(RANDOM.random(900) < 0.02, 0.02 * ratio, 0.02 * (1.0 + RANDOM.random(900)))
    search = searched(position, support, bucket=2.0)
    assert not search.is_uniform
    assert not missing_pairs(search, position, support)


def test_sizes_are_listed_by_the_cells_of_their_own_class():
    """A few large particles do not make all others look far around."""
    position = RANDOM.random((20000, 3))
    support = np.full(20000, 0.04)
    alone = searched(position, support)
    support[:3] = 0.4
    mixed = searched(position, support)
    mean = [float((one.last - one.first).mean()) for one in (alone, mixed)]
    assert mean[1] < 1.2 * mean[0]


def test_single_precision_far_from_the_origin():
    position = RANDOM.random((500, 3)) + 1.0e6
    domain = GridDomain(0.5, near=position.mean(axis=0))
    particles = ParticleSystem(domain, name="test", dtype=np.float32)
    place = domain.to_relative(position).astype(np.float32)
    particles.append({"position": place}, ids=np.arange(500, dtype=np.int64))
    particles.rebucketize()
    search = NeighbourSearch(particles)
    search.build(np.full(500, 0.15), np.ones(500), skin=1e-6)
    assert not missing_pairs(search, place.astype(np.float64), 0.15)


@pytest.mark.parametrize(
    "position",
    [
        np.zeros((0, 3)),
        np.zeros((1, 3)),
        np.zeros((300, 3)),
        np.concatenate((np.zeros((7, 3)), np.full((2, 3), 50.0))),
    ],
    ids=["none", "one", "all in one point", "two clouds"],
)
def test_degenerate_clouds(position):
    search = searched(position, 0.1)
    assert search.places % LANES == 0
    assert not missing_pairs(search, position, 0.1)
    np.testing.assert_array_equal(np.sort(search.rows[search.own]), np.arange(len(position)))


def test_images_across_periodic_sides():
    box = np.array([1.0, 1.5, 2.0])
    position = RANDOM.random((700, 3)) * box
    search = searched(position, 0.15, bucket=0.25, box=tuple(box))
    ids = search.particles.local("id")
    counts = np.zeros(len(position), int)
    for c, cluster in enumerate(search.clusters):
        for place in range(cluster * LANES, (cluster + 1) * LANES):
            if place in search.own:
                entries = search.entries[search.first[c] : search.last[c]]
                apart = search.packed[entries, :3] - search.packed[place, :3]
                near = np.linalg.norm(apart, axis=1) < 0.15
                counts[ids[search.rows[place]]] = np.count_nonzero(near)
    tree = cKDTree(position, boxsize=box)
    expected = [len(found) for found in tree.query_ball_point(position, 0.15)]
    np.testing.assert_array_equal(counts, expected)


def test_images_follow_what_they_copy():
    position = np.array([[0.02, 0.5, 0.5], [0.98, 0.5, 0.5]])
    search = searched(position, 0.2, bucket=0.5, box=(1.0, 1.0, 1.0))
    search.packed[search.own, 0] += 0.01
    search.share(search.packed, moves=True)
    x = np.unique(np.round(search.packed[:, 0] - search.particles.domain.relative_lower[0], 12))
    np.testing.assert_allclose(x, [-0.01, 0.03, 0.99, 1.03], atol=1e-12)


def test_a_periodic_box_that_is_too_narrow_is_refused():
    with pytest.raises(InputError, match=r"0\.3 m away, but the box is only 0\.5 m long"):
        searched(RANDOM.random((10, 3)) * 0.5, 0.3, bucket=0.25, box=(0.5, 1.0, 1.0))


def test_a_position_that_is_no_number_is_an_error():
    search = searched(RANDOM.random((10, 3)), 0.1)
    search.particles.local("position")[3] = np.nan
    with pytest.raises(DivergenceError, match=r"particle id .* is not finite"):
        search.build(np.full(10, 0.1), np.ones(10), skin=0.0)


def test_lists_do_not_depend_on_threads():
    position = RANDOM.random((4000, 3))
    lists = []
    for threads in (1, 2):
        set_thread_count(threads)
        search = searched(position, 0.08, bucket=0.3)
        lists.append(
            np.concatenate(
                [search.entries[a:b] for a, b in zip(search.first, search.last, strict=True)]
            )
        )
    np.testing.assert_array_equal(*lists)


def test_values_go_to_places_and_back():
    position = RANDOM.random((123, 3))
    search = searched(position, 0.1)
    values = RANDOM.random((123, 3))
    found = search.gather(values)
    back = np.empty_like(values)
    search.scatter(found, back)
    np.testing.assert_array_equal(back, values)
