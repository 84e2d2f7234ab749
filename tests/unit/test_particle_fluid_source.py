"""Sources and sinks of particle fluids, and meshes that they fill."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import InputError
from tests.particle_fluids import G, block, box_mesh, radius_of, sphere_mesh

pytestmark = pytest.mark.compiles

D = 0.05


def solver_of(*parts, inputs=None, **settings):
    setup = lk.SolverSetup(
        "t",
        lk.ParticleObject(name="P", radius=radius_of(D)),
        lk.PositionBasedFluid(),
        *parts,
        frames_per_second=50.0,
        substeps=2,
        **settings,
    )
    return lk.Solver(setup, inputs or {})


def test_a_jet_brings_the_volume_that_its_velocity_carries():
    nozzle = box_mesh((0.0, 0.0, 0.0), (4 * D, 0.3, 4 * D))
    source = lk.LiquidSource(source="nozzle", velocity=(0.0, 2.0, 0.0))
    solver = solver_of(source, inputs={"nozzle": nozzle})
    solver.run(25)  # half a second
    y = solver.read("P", "position")[:, 1]
    expected = (2.0 * 0.5 + 0.3) * 16.0 / D
    assert len(y) == pytest.approx(expected, rel=0.03)
    assert y.max() == pytest.approx(1.3, abs=0.1)
    assert solver.read("P", "density_ratio").max() < 1.02


def test_flux_and_capacity_limit_it():
    nozzle = box_mesh((0.0, 0.0, 0.0), (0.4, 0.4, 0.4))
    source = lk.LiquidSource(source="nozzle", velocity=(0.0, 3.0, 0.0), flux=0.02)
    solver = solver_of(source, inputs={"nozzle": nozzle})
    solver.run(25)
    assert len(solver.read("P", "id")) == pytest.approx(0.02 * 0.5 / D**3, rel=0.03)
    source = lk.LiquidSource(source="nozzle", velocity=(0.0, 3.0, 0.0), capacity=100)
    solver = solver_of(source, inputs={"nozzle": nozzle})
    solver.run(10)
    assert len(solver.read("P", "id")) == 100
    assert any("its capacity" in one for one in solver.warnings)


@pytest.mark.parametrize("velocity", [3.0, 0.5])
def test_flux_holds_for_slow_jets_too(velocity):
    """Layers of places come every tenth substep at half a metre a second."""
    nozzle = box_mesh((0.0, 0.0, 0.0), (0.4, 0.2, 0.4))
    source = lk.LiquidSource(source="nozzle", velocity=(0.0, velocity, 0.0), flux=0.04)
    solver = solver_of(source, inputs={"nozzle": nozzle})
    solver.run(50)
    assert len(solver.read("P", "id")) == pytest.approx(0.04 * 1.0 / D**3, rel=0.15)


def test_a_full_space_takes_nothing_more():
    """A closed box that is full: the source is blocked, and nothing is pressed in."""
    side = 6 * D
    source = lk.LiquidSource(source="nozzle", velocity=(0.0, 1.0, 0.0))
    solver = solver_of(
        source, inputs={"nozzle": box_mesh((0.0,) * 3, (side,) * 3)},
        domain_lower=(0.0,) * 3, domain_upper=(side,) * 3, boundary_lower=("wall",) * 3,
        boundary_upper=("wall",) * 3,
    )  # fmt: skip
    solver.run(50)
    assert len(solver.read("P", "id")) <= 6**3 * 1.15
    assert np.isfinite(solver.read("P", "velocity")).all()


def test_what_is_painted_on_the_source_comes_with_the_particles():
    nozzle = box_mesh((0.0, 0.0, 0.0), (0.2, 0.2, 0.2))
    nozzle.set_channel("point", "Cd", np.tile((1.0, 0.5, 0.0), (8, 1)))
    source = lk.LiquidSource(source="nozzle", channels=("Cd",))
    solver = solver_of(source, inputs={"nozzle": nozzle})
    solver.run(1)
    np.testing.assert_allclose(solver.read("P", "Cd"), np.tile((1.0, 0.5, 0.0), (64, 1)))


def test_nothing_comes_out_inside_of_colliders():
    nozzle = box_mesh((0.0, 0.0, 0.0), (0.4, 0.4, 0.4))
    solid = box_mesh((-0.1, -0.1, -0.1), (0.2, 0.5, 0.5))
    solver = solver_of(
        lk.LiquidSource(source="nozzle"), lk.Collider(input="solid"),
        inputs={"nozzle": nozzle, "solid": solid},
    )  # fmt: skip
    solver.run(1)
    assert solver.read("P", "position")[:, 0].min() > 0.2


def test_a_sink_swallows():
    x = block(4, 4, 4, spacing=D, corner=(0.0, 1.0, 0.0))
    sink = lk.LiquidSink(source="drain")
    drain = box_mesh((-1.0, -1.0, -1.0), (2.0, 0.0, 2.0))
    setup = lk.SolverSetup(
        "t",
        lk.ParticleObject(name="P", input="start", radius=radius_of(D)),
        lk.PositionBasedFluid(),
        sink,
        lk.GravityForce(acceleration=(0.0, -G, 0.0)),
    )
    solver = lk.Solver(setup, {"start": lk.Points(x), "drain": drain})
    solver.run(8)
    assert len(solver.read("P", "id")) == 64
    solver.run(12)
    assert len(solver.read("P", "id")) == 0


def test_a_steady_fountain_keeps_its_memory():
    nozzle = box_mesh((0.0, 0.0, 0.0), (0.2, 0.2, 0.2))
    drain = box_mesh((-9.0, -9.0, -9.0), (9.0, -0.5, 9.0))
    solver = solver_of(
        lk.LiquidSource(source="nozzle", velocity=(0.0, 3.0, 0.0)), lk.LiquidSink(source="drain"),
        lk.GravityForce(acceleration=(0.0, -G, 0.0)),
        inputs={"nozzle": nozzle, "drain": drain},
    )  # fmt: skip
    solver.run(100)
    capacity = []
    for _ in range(4):
        solver.run(25)
        capacity.append(solver.object("P").particles.capacity)
    assert max(capacity) <= 1.6 * min(capacity)
    assert solver.object("P").particles.next_id > 2 * solver.object("P").count()


@pytest.mark.parametrize("precision", ["single", "double"])
def test_a_mesh_is_filled(precision):
    setup = lk.SolverSetup(
        "t",
        lk.ParticleObject(name="P", input="drop", radius=radius_of(D)),
        lk.PositionBasedFluid(),
        precision=precision,
    )
    drop = sphere_mesh(0.5)
    drop.set_channel("point", "heat", drop.positions[:, 1])
    solver = lk.Solver(setup, {"drop": drop})
    x = solver.read("P", "position")
    assert len(x) * D**3 == pytest.approx(4.0 / 3.0 * np.pi * 0.5**3, rel=0.02)
    assert np.linalg.norm(x, axis=1).max() < 0.5
    assert np.corrcoef(solver.read("P", "heat"), x[:, 1])[0, 1] > 0.9


@pytest.mark.parametrize("location, count", [("detail", 1), ("point", None)])
def test_a_mesh_is_filled_by_particles_of_its_own_radius(location, count):
    setup = lk.SolverSetup(
        "t", lk.ParticleObject(name="P", input="drop", radius=radius_of(D)), lk.PositionBasedFluid()
    )
    drop = sphere_mesh(0.3)
    values = np.full(count or drop.point_count, radius_of(0.5 * D))
    drop.set_channel(location, "radius", values)
    solver = lk.Solver(setup, {"drop": drop})
    assert solver.read("P", "mass").sum() == pytest.approx(
        1000.0 * 4.0 / 3.0 * np.pi * 0.3**3, rel=0.03
    )
    solver.run(1)
    assert solver.read("P", "density_ratio").max() < 1.05


def test_a_drowned_source_of_finer_particles_gives_nothing():
    nozzle = box_mesh((0.1, 0.1, 0.1), (0.3, 0.3, 0.3))
    nozzle.set_channel("detail", "radius", [radius_of(0.5 * D)])
    setup = lk.SolverSetup(
        "t", lk.ParticleObject(name="P", input="p", radius=radius_of(D)), lk.PositionBasedFluid(),
        lk.LiquidSource(source="nozzle", velocity=(0.0, 0.5, 0.0)),
    )  # fmt: skip
    pool = lk.Points(block(8, 8, 8, spacing=D))
    solver = lk.Solver(setup, {"nozzle": nozzle, "p": pool})
    solver.run(2)
    assert len(solver.read("P", "id")) <= 512 * 1.02


def test_a_mesh_for_too_many_particles_is_refused():
    setup = lk.SolverSetup(
        "t",
        lk.ParticleObject(name="P", input="drop", radius=1e-5),
        lk.PositionBasedFluid(),
    )
    with pytest.raises(InputError, match=r"room for 2\.4e\+14 particles"):
        lk.Solver(setup, {"drop": sphere_mesh(0.5)})


def falling_jet(**parts):
    nozzle = box_mesh((0.0, 0.0, 0.0), (4 * D, 0.3, 4 * D))
    source = lk.LiquidSource(source="nozzle", velocity=(0.0, -1.0, 0.0))
    return solver_of(
        source, lk.GravityForce(acceleration=(0.0, -G, 0.0)), inputs={"nozzle": nozzle}, **parts
    )


def test_gravity_draws_no_more_out_of_a_source_than_its_velocity_brings():
    solver = falling_jet()
    solver.run(50)  # a second
    expected = (1.0 * 1.0 + 0.3) * 16.0 / D
    assert len(solver.read("P", "id")) == pytest.approx(expected, rel=0.03)


def test_a_resumed_source_goes_on_bit_for_bit():
    whole, first = falling_jet(), falling_jet()
    whole.run(12)
    first.run(5)
    second = falling_jet()
    second.restore(first.state())
    second.run(7)
    for name in ("position", "velocity", "id"):
        np.testing.assert_array_equal(second.read("P", name), whole.read("P", name))


def test_a_source_without_velocity_is_kept_full():
    nozzle = box_mesh((0.0, 0.0, 0.0), (4 * D, 4 * D, 4 * D))
    gravity = lk.GravityForce(acceleration=(0.0, -G, 0.0))
    solver = solver_of(lk.LiquidSource(source="nozzle"), gravity, inputs={"nozzle": nozzle})
    solver.run(25)
    y = solver.read("P", "position")[:, 1]
    assert np.count_nonzero(y > 0.0) >= 48  # of 64
    assert len(y) > 3 * 64


def test_the_first_substeps_are_short_enough_for_what_comes_out_of_a_source():
    nozzle = box_mesh((0.0, 0.0, 0.0), (4 * D, 0.3, 4 * D))
    source = lk.LiquidSource(source="nozzle", velocity=(0.0, -4.0, 0.0))
    setup = lk.SolverSetup(
        "t", lk.ParticleObject(name="P", radius=radius_of(D)), lk.PositionBasedFluid(), source,
        frames_per_second=10.0, adaptive_substeps=True, max_substeps=20,
    )  # fmt: skip
    solver = lk.Solver(setup, {"nozzle": nozzle})
    solver.run(1)
    first = 2 * D / 4.0  # s, in which the source is filled: particles go two spacings a substep
    expected = (0.3 + 4.0 * (0.1 - first)) * 16.0 / D
    assert len(solver.read("P", "id")) == pytest.approx(expected, rel=0.05)


def test_sources_of_one_fluid_may_differ_in_resolution():
    fine, coarse = (box_mesh((x, 0.0, 0.0), (x + 0.4, 0.4, 0.4)) for x in (0.0, 1.0))
    fine.set_channel("detail", "radius", [radius_of(0.5 * D)])
    fine.set_channel("detail", "density", [500.0])
    solver = solver_of(
        lk.LiquidSource(name="A", source="fine"), lk.LiquidSource(name="B", source="coarse"),
        inputs={"fine": fine, "coarse": coarse},
    )  # fmt: skip
    solver.run(1)
    x, radius = solver.read("P", "position")[:, 0], solver.read("P", "radius")
    assert np.count_nonzero(x < 0.5) == 8 * np.count_nonzero(x > 0.5) == 8 * 512
    np.testing.assert_allclose(radius[x < 0.5], radius_of(0.5 * D), rtol=1e-6)
    np.testing.assert_allclose(solver.read("P", "mass")[x < 0.5].sum(), 500.0 * 0.064, rtol=1e-5)
    assert solver.read("P", "density_ratio").max() < 1.01
    assert np.median(solver.read("P", "density_ratio")) > 0.9


@pytest.mark.parametrize(
    "radius, words", [([0.01] * 7 + [0.02], "from 0.01 to 0.02 m"), ([-0.01] * 8, "has -0.01 m")]
)
def test_a_source_has_one_radius(radius, words):
    nozzle = box_mesh((0.0, 0.0, 0.0), (0.4, 0.4, 0.4))
    nozzle.set_channel("point", "radius", radius)
    solver = solver_of(lk.LiquidSource(source="nozzle"), inputs={"nozzle": nozzle})
    with pytest.raises(InputError, match=words):
        solver.run(1)


@pytest.mark.parametrize("iterations", [5, 20])
def test_a_jet_that_meets_a_plate_gains_no_energy(iterations):
    """Along streamlines v^2 / 2 + g y stays (Bernoulli); what is squeezed is not shot away."""
    speed, height = 3.0, 0.8
    nozzle = box_mesh((-2 * D, height - 0.2, -2 * D), (2 * D, height, 2 * D))
    plate = box_mesh((-2.0, -0.2, -2.0), (2.0, 0.0, 2.0))
    setup = lk.SolverSetup(
        "t", lk.ParticleObject(name="P", radius=radius_of(D)),
        lk.PositionBasedFluid(iterations=iterations), lk.Collider(input="plate"),
        lk.LiquidSource(source="nozzle", velocity=(0.0, -speed, 0.0)),
        lk.GravityForce(acceleration=(0.0, -G, 0.0)), adaptive_substeps=True, max_substeps=32,
    )  # fmt: skip
    solver = lk.Solver(setup, {"nozzle": nozzle, "plate": plate})
    for _ in range(12):
        solver.run(1)
        v, y = solver.read("P", "velocity").astype(np.float64), solver.read("P", "position")[:, 1]
        energy = (0.5 * (v**2).sum(axis=1) + G * y) / (0.5 * speed**2 + G * height)
        assert np.quantile(energy, 0.995) < 1.1
        assert energy.max() < 1.15
