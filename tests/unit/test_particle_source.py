"""Particle sources: places evenly spread over points, lengths and areas."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_core.objects.particles.particle_source import places_on
from loki_core.objects.particles.particles import ParticleObject
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup


def uniforms(count, seed=1):
    return np.random.default_rng(seed).random((count, 3))


def surface(positions, *faces):
    sizes = [len(face) for face in faces]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return Surface(positions, offsets, np.concatenate(faces))


def test_points_are_chosen_evenly():
    source = Points(np.arange(12.0).reshape(4, 3))
    places = places_on(source, uniforms(8000), label="Sparks")
    counts = [np.count_nonzero(places.position[:, 0] == x) for x in (0.0, 3.0, 6.0, 9.0)]
    assert sum(counts) == 8000
    # Binomial with p = 1/4: sigma = sqrt(8000 * 3/16) = 39; four sigma.
    np.testing.assert_allclose(counts, 2000, atol=160)
    np.testing.assert_array_equal(places.normal, 0.0)


def test_the_last_point_is_reached_and_never_passed():
    source = Points(np.arange(9.0).reshape(3, 3))
    edge = np.full((1, 3), np.nextafter(1.0, 0.0))
    np.testing.assert_array_equal(places_on(source, edge, label="Sparks").position, [[6, 7, 8]])


def test_edges_are_chosen_by_length():
    positions = np.array([[0.0, 0, 0], [1.0, 0, 0], [1.0, 3.0, 0]])
    places = places_on(Wireframe(positions, [[0, 1], [1, 2]]), uniforms(8000), label="Sparks")
    on_second = places.position[:, 1] > 0.0
    # p = 3/4, sigma = 39.
    np.testing.assert_allclose(np.count_nonzero(on_second), 6000, atol=160)
    assert np.all(places.position[on_second, 0] == 1.0)
    np.testing.assert_allclose(places.position[on_second, 1].mean(), 1.5, atol=0.05)


def test_triangles_are_filled_evenly_by_area():
    positions = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [10, 0, 0], [13, 0, 0], [10, 1, 0]])
    source = surface(positions, [0, 1, 2], [3, 4, 5])
    places = places_on(source, uniforms(20_000), label="Sparks")
    first = places.position[places.position[:, 0] <= 1.0]
    # Areas 1 : 3, sigma = sqrt(20000 * 3/16) = 61.
    np.testing.assert_allclose(len(first), 5000, atol=245)
    assert np.all(first.min(axis=0) >= 0.0) and np.all(first[:, :2].sum(axis=1) <= 1.0 + 1e-12)
    # Mean of an even triangle is its centroid; sigma of a coordinate 0.236 / sqrt(5000) = 0.0033.
    np.testing.assert_allclose(first.mean(axis=0), [1 / 3, 1 / 3, 0.0], atol=0.014)
    # Variance of a coordinate over the unit triangle: 1/18.
    np.testing.assert_allclose(first[:, 0].var(), 1 / 18, rtol=0.1)
    np.testing.assert_allclose(places.normal, np.broadcast_to([0.0, 0.0, 1.0], (20_000, 3)))


def test_velocities_are_interpolated_like_places():
    positions = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    source = surface(positions, [0, 1, 2])
    source.set_channel("point", "velocity", positions * 2.0 + 1.0)
    places = places_on(source, uniforms(100), label="Sparks")
    np.testing.assert_allclose(places.velocity, places.position * 2.0 + 1.0, atol=1e-14)


def test_a_degenerate_triangle_gets_nothing():
    positions = np.array([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0]])
    source = surface(positions, [0, 1, 2], [0, 1, 3])
    places = places_on(source, uniforms(500), label="Sparks")
    assert np.all(np.isfinite(places.normal))
    assert np.all(places.position[:, 0] <= 1.0)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Points(np.empty((0, 3))), "Sparks: the source stream has no points to emit from"),
        (Voxels(np.empty((0, 3), np.int32), 0.1), "Sparks: cannot emit from a Voxels"),
        (Wireframe(np.zeros((2, 3)), [[0, 1]]), "Sparks: the source stream has no length or area"),
        (surface(np.zeros((3, 3)), [0, 1, 2]), "Sparks: the source stream has no length or area"),
    ],
)
def test_sources_that_cannot_emit_are_named(source, words):
    with pytest.raises(InputError, match=words):
        places_on(source, uniforms(3), label="Sparks")


# -- emission by the Particle Object ----------------------------------------------------------


def emitter(rate=240.0, substeps=1, source=None, **options):
    positions = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, -1]])
    source = surface(positions, [0, 1, 2]) if source is None else source
    setup = SolverSetup(
        "s",
        ParticleObject(source="source", rate=rate, **options),
        substeps=substeps,
        precision="double",
    )
    return Solver(setup, {"source": source})


@pytest.mark.parametrize("substeps", [1, 3, 7])
def test_the_rate_is_kept_whatever_the_substeps(substeps):
    solver = emitter(rate=1000.0, substeps=substeps)
    solver.run(12)  # half a second
    assert abs(solver.counts()["ParticleObject"] - 500) <= 1
    np.testing.assert_array_equal(
        solver.read("ParticleObject", "id"), np.arange(solver.counts()["ParticleObject"])
    )


def test_no_particle_is_older_than_the_run():
    # Emission is spread evenly over the substep: at its end ages lie between 0 and dt.
    solver = emitter(rate=240.0)
    solver.run(1)
    age = np.sort(solver.read("ParticleObject", "age"))
    assert age.max() <= solver.time
    np.testing.assert_allclose(age, (np.arange(10) + 0.5) / 240.0, atol=1e-12)


def test_emitted_particles_lie_where_their_age_has_brought_them():
    solver = emitter(rate=240.0, velocity=(0.0, 2.0, 0.0))
    solver.run(3)
    age = solver.read("ParticleObject", "age")
    np.testing.assert_allclose(
        solver.read("ParticleObject", "position")[:, 1], 2.0 * age, atol=1e-12
    )


def test_start_velocities_add_up():
    solver = emitter(rate=2400.0, velocity=(1.0, 0.0, 0.0), normal_speed=3.0, velocity_spread=0.5)
    solver.run(2)
    velocity = solver.read("ParticleObject", "velocity")
    around = velocity - [1.0, 3.0, 0.0]
    speed = np.linalg.norm(around, axis=1)
    assert speed.max() <= 0.5
    # Evenly in a ball: the mean of |v| is 3/4 of the largest; sigma = 0.5 * 0.194 / sqrt(200).
    np.testing.assert_allclose(speed.mean(), 0.375, atol=0.03)
    assert np.all(np.abs(around.mean(axis=0)) < 0.08)


def test_particles_die_at_their_lifetime():
    solver = emitter(rate=240.0, lifetime=0.2)
    solver.run(24)
    age = solver.read("ParticleObject", "age")
    assert age.max() < 0.2 + 1e-9
    assert abs(len(age) - 48) <= 10  # rate times lifetime, to within one substep's emission
    assert solver.read("ParticleObject", "id").min() > 150  # the old ones are gone


def test_a_source_without_points_emits_nothing_until_it_has_some():
    full = Points(np.eye(3))
    off = Points(np.empty((0, 3)))
    solver = emitter(rate=240.0, source=lambda frame: off if 3 <= frame < 6 else full)
    counts = []
    for _ in range(7):
        solver.run(1)
        counts.append(solver.counts()["ParticleObject"])
    on = [frame for frame in range(2, 9) if not 3 <= frame < 6]
    assert counts == [10 * sum(one <= frame for one in on) for frame in range(2, 9)]


def test_emission_is_a_function_of_the_seed():
    runs = []
    for seed in (0, 0, 1):
        positions = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, -1]])
        setup = SolverSetup("s", ParticleObject(source="s", rate=240.0), random_seed=seed)
        solver = Solver(setup, {"s": surface(positions, [0, 1, 2])})
        solver.run(2)
        runs.append(solver.read("ParticleObject", "position"))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.all(np.any(runs[0] != runs[2], axis=1))


def test_a_rate_on_the_whole_object_overrides_the_parameter():
    # `rate` varies per object: the detail channel particle_rate is narrower than the Behavior.
    points = Points(np.zeros((1, 3)))
    points.set_channel("detail", "particle_rate", np.array([240.0]))
    setup = SolverSetup("s", ParticleObject(input="p", source="p", rate=24.0))
    solver = Solver(setup, {"p": points})
    solver.run(1)
    assert solver.counts()["ParticleObject"] == 1 + 10


def test_painted_overrides_do_not_reach_emitted_particles_as_zeros():
    # Particles that bring no channel of their own keep the Behavior's value, here gravity.
    from loki_core.forces.gravity import GravityForce

    points = Points(np.zeros((2, 3)))
    points.set_channel("point", "gravity_acceleration_scale", np.array([1.0, 2.0]))
    setup = SolverSetup("s", ParticleObject(input="p", source="p", rate=24.0), GravityForce())
    solver = Solver(setup, {"p": points})
    solver.run(2)
    falling = solver.read("ParticleObject", "velocity")[:, 1]
    # The last one was born at the end of the last substep and has felt no force yet.
    assert len(falling) == 4 and np.all(falling[:-1] < 0.0) and falling[-1] == 0.0
