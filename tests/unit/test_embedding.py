"""Embedding: positions pushed forward, forces pulled back as the transpose."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.accessors import Access, Declaration
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import InputError
from loki_core.objects.solids.embedding import Embedding


@pytest.fixture
def particles():
    particles = ParticleSystem(GridDomain(0.3), name="Cage", dtype=np.float64)
    position = np.random.default_rng(1).random((60, 3))
    particles.append({"position": position}, ids=np.arange(60))
    particles.rebucketize()
    return particles


def access_to(particles):
    return Access(Declaration(reads=("particles.position",)), {"particles": particles}, "test")


def random_embedding(seed=2, count=200, carriers=4):
    rng = np.random.default_rng(seed)
    weights = rng.random((count, carriers))
    weights /= weights.sum(axis=1, keepdims=True)
    return Embedding(rng.integers(0, 60, (count, carriers)), weights)


def test_embedded_positions_are_weighted_sums(particles):
    embedding, access = random_embedding(), access_to(particles)
    by_id = particles.local("position")[np.argsort(particles.local("id"))]
    expected = np.einsum("ek,ekc->ec", embedding.weights, by_id[embedding.ids])
    found = embedding.push_forward(access, access["particles.position"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


def test_rigid_motions_are_carried_exactly(particles):
    # Weights sum to 1, so x -> R x + t of the carriers is R x + t of what is embedded.
    embedding, access = random_embedding(), access_to(particles)
    rotation = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    before = embedding.push_forward(access, particles.local("position"))
    moved = particles.local("position") @ rotation.T + [1.0, -2.0, 3.0]
    after = embedding.push_forward(access, moved)
    np.testing.assert_allclose(after, before @ rotation.T + [1.0, -2.0, 3.0], rtol=0, atol=1e-14)


def test_pulling_back_is_the_transpose_and_keeps_force_and_torque(particles):
    rng = np.random.default_rng(4)
    embedding, access = random_embedding(), access_to(particles)
    force, velocity = rng.standard_normal((200, 3)), rng.standard_normal((60, 3))
    pulled = np.zeros((60, 3))
    embedding.pull_back(access, force, pulled)
    # Virtual work: <f, J v> = <J^T f, v>.
    np.testing.assert_allclose(
        np.sum(force * embedding.push_forward(access, velocity)),
        np.sum(pulled * velocity),
        rtol=1e-12,
    )
    position = particles.local("position")
    embedded = embedding.push_forward(access, position)
    np.testing.assert_allclose(pulled.sum(axis=0), force.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(
        np.cross(position, pulled).sum(axis=0), np.cross(embedded, force).sum(axis=0), atol=1e-12
    )


def test_an_embedding_follows_its_carriers_through_rebucketize(particles):
    embedding = random_embedding()
    before = embedding.push_forward(access_to(particles), particles.local("position"))
    particles.local("position")[:] += 1.0
    particles.rebucketize()
    after = embedding.push_forward(access_to(particles), particles.local("position"))
    np.testing.assert_allclose(after, before + 1.0, rtol=0, atol=1e-14)


def test_nothing_may_be_embedded(particles):
    embedding = Embedding(np.empty((0, 2), np.int64), np.empty((0, 2)))
    access = access_to(particles)
    assert embedding.count == 0
    assert embedding.push_forward(access, particles.local("position")).shape == (0, 3)


def test_bad_weights_are_named(particles):
    with pytest.raises(InputError, match=r"weights\[1\] = \[0.5 0.6\] do not sum to 1"):
        Embedding(np.zeros((2, 2), np.int64), np.array([[0.5, 0.5], [0.5, 0.6]]))
    with pytest.raises(InputError, match=r"ids \(2, 2\) and weights \(2, 3\) do not match"):
        Embedding(np.zeros((2, 2), np.int64), np.full((2, 3), 1 / 3))
    missing = Embedding(np.array([[0, 60]]), np.array([[0.5, 0.5]]))
    with pytest.raises(InputError, match="Cage: particle id 60 does not exist"):
        missing.push_forward(access_to(particles), particles.local("position"))
