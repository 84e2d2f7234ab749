"""Particle Directory on one rank: gather and scatter by id."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_directory import ParticleDirectory
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import InputError


@pytest.fixture
def particles():
    rng = np.random.default_rng(1)
    particles = ParticleSystem(GridDomain(0.2), name="Rope", dtype=np.float64)
    ids = 3 * np.arange(200)  # with holes
    particles.append({"position": rng.random((200, 3))}, ids=rng.permutation(ids))
    particles.rebucketize()
    return particles


def test_gather_finds_particles_in_any_order_with_repeats(particles):
    wanted = np.array([300, 0, 597, 300, 3])
    plan = ParticleDirectory(particles).plan(wanted)
    np.testing.assert_array_equal(plan.gather(particles.local("id")), wanted)
    rows = [int(np.flatnonzero(particles.local("id") == i)[0]) for i in wanted]
    np.testing.assert_array_equal(
        plan.gather(particles.local("position")), particles.local("position")[rows]
    )


def test_scatter_adds_every_contribution_also_of_repeats(particles):
    wanted = np.array([300, 0, 300, 300, 3])
    plan = ParticleDirectory(particles).plan(wanted)
    contributions = np.arange(15.0).reshape(5, 3)
    target = np.ones((200, 3))
    plan.scatter_add(contributions, target)
    expected = {300: contributions[[0, 2, 3]].sum(axis=0), 0: contributions[1], 3: contributions[4]}
    for row, ident in enumerate(particles.local("id").tolist()):
        np.testing.assert_array_equal(target[row], 1.0 + expected.get(ident, np.zeros(3)))


def test_scatter_is_the_transpose_of_gather(particles):
    # <gather(x), y> = <x, scatter(y)> for any x, y: what J and J^T of an embedding rest on.
    rng = np.random.default_rng(2)
    plan = ParticleDirectory(particles).plan(3 * rng.integers(0, 200, 500))
    x, y = rng.standard_normal((200, 3)), rng.standard_normal((500, 3))
    scattered = np.zeros((200, 3))
    plan.scatter_add(y, scattered)
    np.testing.assert_allclose(np.sum(plan.gather(x) * y), np.sum(x * scattered), rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (3,), (3, 3)])
def test_values_of_any_shape_travel(particles, shape):
    rng = np.random.default_rng(3)
    values = rng.standard_normal((200, *shape))
    plan = ParticleDirectory(particles).plan(particles.local("id")[::-1].copy())
    np.testing.assert_array_equal(plan.gather(values), values[::-1])
    target = np.zeros((200, *shape))
    plan.scatter_add(values, target)
    np.testing.assert_array_equal(target, values[::-1])


def test_scatter_into_a_view_is_not_lost(particles):
    # A column range of a larger array is not contiguous; a copy of it would swallow the sum.
    target = np.zeros((200, 6))
    plan = ParticleDirectory(particles).plan(np.array([0, 3]))
    plan.scatter_add(np.ones((2, 3)), target[:, :3])
    assert target.sum() == 6.0


def test_an_empty_list_is_fine(particles):
    plan = ParticleDirectory(particles).plan(np.empty(0, np.int64))
    assert plan.gather(particles.local("position")).shape == (0, 3)


@pytest.mark.parametrize("missing", [1, 600, -3])
def test_an_unknown_id_is_named(particles, missing):
    with pytest.raises(InputError, match=f"Rope: particle id {missing} does not exist"):
        ParticleDirectory(particles).plan(np.array([0, missing]))


def test_no_particle_is_found_where_there_is_none():
    empty = ParticleSystem(GridDomain(0.2), name="Nothing")
    empty.rebucketize()
    with pytest.raises(InputError, match="particle id 0 does not exist"):
        ParticleDirectory(empty).plan(np.array([0]))


def test_a_plan_is_void_when_particles_change_places(particles):
    plan = ParticleDirectory(particles).plan(np.array([0]))
    particles.rebucketize()
    with pytest.raises(InputError, match="Rope: this plan was made before"):
        plan.gather(particles.local("position"))
