"""Embedded points: places and frames follow unknowns, and derivatives are those of differences."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as loki
from loki_core.data.grid_domain import GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.errors import InputError
from loki_core.objects.solids.embedded_points import (
    FacePoints,
    LocalPoints,
    OwnPoints,
    WeightedPoints,
)
from loki_core.objects.solids.unknowns import Unknowns

COUNT = 60


class Cage:
    """Loose points; what an embedding needs of an Object."""

    path = "Cage"

    def __init__(self):
        self.particles = ParticleSystem(GridDomain(0.3), name="Cage", dtype=np.float64)
        position = np.random.default_rng(1).random((COUNT, 3))
        self.particles.append({"position": position}, ids=np.arange(COUNT))
        self.particles.rebucketize()
        self.unknowns = Unknowns.of_points(np.argsort(self.particles.local("id")))

    def displace(self, change, fraction, dt):
        moved = self.unknowns.gather(change, "position")
        self.particles.local("position")[:] += fraction * moved


@pytest.fixture
def cage():
    return Cage()


@pytest.fixture(scope="module")
def rods():
    t = np.linspace(0.0, 1.0, 6)
    places = np.stack((t, 0.2 * np.sin(5.0 * t), 0.1 * t**2), axis=1)
    both = np.concatenate((places, places + np.array([0.0, 0.5, 0.0])))
    groom = loki.Curves(both, np.array([0, 6, 12]))
    setup = loki.SolverSetup(
        "rods", loki.CurvesObject(input="groom"), loki.StretchingConstraint(),
        loki.BendingConstraint(), loki.GravityForce(),
    )  # fmt: skip
    solver = loki.Solver(setup, {"groom": groom})
    solver.run(1)
    (item,) = solver.solids.solids
    return item


def weighted(cage, count=200, carriers=4, seed=2):
    rng = np.random.default_rng(seed)
    weights = rng.random((count, carriers))
    weights /= weights.sum(axis=1, keepdims=True)
    gradients = rng.standard_normal((count, carriers, 3))
    gradients -= gradients.mean(axis=1, keepdims=True)
    return WeightedPoints(cage, rng.integers(0, COUNT, (count, carriers)), weights, gradients)


def on_faces(cage):
    rng = np.random.default_rng(5)
    corners = np.array([rng.choice(COUNT, 3, replace=False) for _ in range(40)])
    weights = rng.random((40, 3))
    return FacePoints(cage, corners, weights / weights.sum(axis=1, keepdims=True))


def on_rows(cage):
    rng = np.random.default_rng(6)
    part = rng.random(40)
    weights = np.stack((1.0 - part, part), axis=1)
    return LocalPoints(cage, rng.integers(0, COUNT, (40, 2)), weights)


def on_edges(rods):
    edges = np.array([0, 3, 4, 7, 9])
    part = np.array([0.0, 0.3, 0.5, 0.9, 1.0])
    ids = rods.particles.local("id")[rods.edge_vertices[edges]]
    weights = np.stack((1.0 - part, part), axis=1)
    return rods.embed(rods.edges.local("id")[edges], ids, weights)


def turn_of(frames, moved):
    """Small turn dphi that takes frames to others, [n, 3]: half the sum of F_k x F'_k."""
    return 0.5 * np.cross(frames, moved).sum(axis=1)


KINDS = {
    "own": lambda cage: OwnPoints(cage, np.arange(0, COUNT, 7)),
    "face": on_faces,
    "weighted": weighted,
    "local": on_rows,
}


@pytest.mark.parametrize("kind", [*KINDS, "edge"])
def test_derivatives_are_those_of_differences(kind, cage, request):
    item = request.getfixturevalue("rods") if kind == "edge" else cage
    points = on_edges(item) if kind == "edge" else KINDS[kind](cage)
    rng = np.random.default_rng(3)
    count = len(points.locate()[0])
    by_place = rng.standard_normal((count, 2, 3))
    by_frame = rng.standard_normal((count, 2, 3, 3) if kind == "weighted" else (count, 2, 3))
    gradient = np.full((count, 2, points.width + 1), np.nan)
    points.chain(by_place, by_frame, -1.0, gradient, 1)
    assert np.all(np.isnan(gradient[:, :, 0])) and not np.isnan(gradient[:, :, 1:]).any()
    numbers = points.numbers(0)
    assert numbers.shape == (count, points.width)
    change = rng.standard_normal(item.unknowns.size)
    expected = np.einsum("nmd,nd->nm", gradient[:, :, 1:], change[numbers - item.unknowns.first])
    step, sides = 1e-6, []
    for sign in (1.0, -2.0, 1.0):
        item.displace(sign * step * change, 1.0, 1.0)
        sides.append(points.locate())
    (after, turned), (before, back) = sides[0], sides[1]
    moved = (after - before) / (2.0 * step)
    found = -np.einsum("nmi,ni->nm", by_place, moved)
    if kind == "weighted":
        found += np.einsum("nmia,nia->nm", by_frame, (turned - back) / (2.0 * step))
    else:
        spin = turn_of(back, turned) / (2.0 * step)
        found += np.einsum("nmi,ni->nm", by_frame, spin)
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_rigid_motions_are_carried_exactly(kind, cage):
    # Weights sum to 1, so x -> R x + t of the carriers is R x + t of what is embedded.
    points = KINDS[kind](cage)
    rotation = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    rotation *= np.linalg.det(rotation)
    place, frame = points.locate()
    position = cage.particles.local("position")
    position[:] = position @ rotation.T + [1.0, -2.0, 3.0]
    after, turned = points.locate()
    np.testing.assert_allclose(after, place @ rotation.T + [1.0, -2.0, 3.0], rtol=0, atol=1e-13)
    if kind == "face":  # rows are axes
        np.testing.assert_allclose(turned, frame @ rotation.T, atol=1e-11)
    if kind == "weighted":
        np.testing.assert_allclose(turned, np.einsum("ij,nja->nia", rotation, frame), atol=1e-11)


def test_pulling_back_is_the_transpose_and_keeps_force_and_torque(cage):
    rng = np.random.default_rng(4)
    points = weighted(cage)
    force, velocity = rng.standard_normal((200, 3)), rng.standard_normal((COUNT, 3))
    pulled = np.zeros((COUNT, 3))
    points.pull_back(force, pulled)
    # Virtual work: <f, J v> = <J^T f, v>.
    work = np.sum(force * points.carry(velocity))
    np.testing.assert_allclose(work, np.sum(pulled * velocity), rtol=1e-12)
    position = cage.particles.local("position")
    moment = np.cross(points.carry(position), force).sum(axis=0)
    np.testing.assert_allclose(pulled.sum(axis=0), force.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(np.cross(position, pulled).sum(axis=0), moment, atol=1e-12)


@pytest.mark.parametrize("kind", [one for one in KINDS if one != "local"])
def test_points_follow_carriers_that_change_rows(kind, cage):
    points = KINDS[kind](cage)
    before = points.locate()[0]
    ids = cage.particles.local("id").copy()
    cage.particles.local("position")[:, 0] += np.where(cage.particles.local("id") >= 0, 1.0, 0.0)
    cage.particles.local("position")[:] *= [-1.0, 1.0, -1.0]
    cage.particles.rebucketize()
    assert not np.array_equal(ids, cage.particles.local("id"))
    points.follow()
    after = points.locate()[0]
    before[:, 0] += 1.0
    np.testing.assert_allclose(after, before * [-1.0, 1.0, -1.0], atol=1e-13)


def test_nothing_may_be_embedded(cage):
    points = WeightedPoints(cage, np.empty((0, 2), np.int64), np.empty((0, 2)))
    assert points.count == 0 and points.numbers(0).shape == (0, 6)
    assert points.locate()[0].shape == (0, 3)


def test_bad_weights_and_carriers_are_named(cage):
    with pytest.raises(InputError, match=r"weights\[1\] = \[0.5 0.6\] do not sum to 1"):
        WeightedPoints(cage, np.zeros((2, 2), np.int64), np.array([[0.5, 0.5], [0.5, 0.6]]))
    with pytest.raises(InputError, match=r"ids \(2, 2\) and weights \(2, 3\) do not match"):
        WeightedPoints(cage, np.zeros((2, 2), np.int64), np.full((2, 3), 1 / 3))
    missing = WeightedPoints(cage, np.array([[0, COUNT]]), np.array([[0.5, 0.5]]))
    with pytest.raises(InputError, match="Cage: particle id 60 does not exist"):
        missing.locate()


def test_a_flat_triangle_has_no_frame(cage):
    flat = FacePoints(cage, np.array([[1, 2, 2]]), np.full((1, 3), 1 / 3))
    with pytest.raises(InputError, match=r"triangle of points \[1, 2, 2\] has no area"):
        flat.locate()
