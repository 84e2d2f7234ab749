"""Viscous liquids: a surface that no stress crosses, viscosity that varies, rest from the start."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.constraints.viscosity import ViscosityAction
from loki_core.errors import InputError
from tests.unit.test_hybrid import H, box, drops, tank

pytestmark = pytest.mark.compiles


def drop(velocity, *others, viscosity=1.0e3, **channels):
    """A free ball of honey with a linear velocity, given as its gradient."""
    axis = (np.arange(-10, 10) + 0.5) * H / 2
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    x = x[np.linalg.norm(x, axis=1) < 0.28] + [0.03, 0.01, 0.02]
    gradient = np.asarray(velocity, float)
    given = drops(
        x,
        velocity=(x - x.mean(axis=0)) @ gradient.T + [0.3, 0.0, 0.0],
        affine=np.tile(gradient, (len(x), 1, 1)),
        **{name: values(x) for name, values in channels.items()},
    )
    setup = lk.SolverSetup(
        "drop",
        lk.HybridObject(name="Water", voxel_size=H, input="water", density_correction=0.0),
        lk.ViscosityMaterial(viscosity=viscosity, tolerance=1e-11),
        *others,
        precision="double",
        substeps=1,
    )
    return lk.Solver(setup, {"water": given})


def watched(solver, monkeypatch):
    """What viscous solves start from and end with: lists of velocities and masses of faces."""
    from loki_core.constraints import viscosity

    seen = {"before": [], "after": [], "mass": []}
    masses = viscosity.face_masses

    def weigh(liquid):
        seen["mass"].append(masses(liquid))
        return seen["mass"][-1]

    inner = ViscosityAction._solve_stress

    def solve(self, step):
        seen["before"].append(self.target.volume.local("velocity").copy())
        inner(self, step)
        seen["after"].append(self.target.volume.local("velocity").copy())

    monkeypatch.setattr(viscosity, "face_masses", weigh)
    monkeypatch.setattr(ViscosityAction, "_solve_stress", solve)
    return seen


def momenta(solver, velocity, mass):
    """Momentum and angular momentum of faces, in masses of a voxel."""
    volume = solver.object("Water").volume
    r = velocity.shape[2]
    place = np.stack(np.meshgrid(*(np.arange(r) + 0.5,) * 3, indexing="ij"))
    corner = volume.buckets.local_coords[:, :, None, None, None] * r
    total, turning = np.zeros(3), np.zeros(3)
    for a in range(3):
        x = (corner + place) * H
        x[:, a] -= 0.5 * H
        p = np.zeros_like(x)
        p[:, a] = mass[:, a] * velocity[:, a]
        total += p.sum(axis=(0, 2, 3, 4))
        turning += np.cross(x, p, axis=1).sum(axis=(0, 2, 3, 4))
    return total, turning


SPIN = [[0.0, -1.0, 0.4], [1.0, 0.0, 0.0], [-0.4, 0.0, 0.0]]
SHEAR = [[0.0, -1.5, 0.0], [0.0, 0.0, 0.0], [0.0, 0.3, 0.0]]


def test_a_rigid_drop_feels_no_stress(monkeypatch):
    """However stiff, a drop that flies and turns as a rigid body goes on."""
    solver = drop(SPIN, viscosity=1.0e4)
    seen = watched(solver, monkeypatch)
    solver.run(1)
    change = np.abs(seen["after"][0] - seen["before"][0])[seen["mass"][0] > 0.0]
    assert change.max() < 1e-9


def test_stress_keeps_momentum_and_angular_momentum(monkeypatch):
    solver = drop(SHEAR, viscosity=1.0e3)
    seen = watched(solver, monkeypatch)
    solver.run(1)
    mass = seen["mass"][0]
    before, after = (momenta(solver, seen[name][0], mass) for name in ("before", "after"))
    assert np.abs(seen["after"][0] - seen["before"][0]).max() > 0.05
    np.testing.assert_allclose(after[0], before[0], atol=1e-7 * mass.sum())
    np.testing.assert_allclose(after[1], before[1], atol=1e-7 * mass.sum())


def test_a_film_runs_down_a_slope():
    """Nusselt's film, u = g sin(a) (d y - y^2 / 2) / nu, whose surface is between voxels."""
    errors = []
    for layers in (9, 18):
        across, along, share = 16, 18, 8
        h = share * 64 / (layers * across * along)  # the film is 1 m deep
        length = 8 * h
        x, z = ((np.arange(n) + 0.5) * length / n for n in (along, across))
        y = (np.arange(layers) + 0.5) / layers
        places = np.stack(np.meshgrid(x, y, z, indexing="ij"), axis=-1).reshape(-1, 3)
        setup = lk.SolverSetup(
            "film",
            lk.HybridObject(name="Water", voxel_size=h, input="water"),
            lk.PressureMaterial(tolerance=1e-8),
            lk.ViscosityMaterial(viscosity=1000.0, tolerance=1e-8),
            lk.GravityForce(acceleration=(1.0, -9.81, 0.0)),
            precision="double",
            substeps=1,
            frames_per_second=6.0,
            domain_lower=(0.0, 0.0, 0.0),
            domain_upper=(length, 16 * h, length),
            boundary_lower=("periodic", "wall", "periodic"),
            boundary_upper=("periodic", "open", "periodic"),
        )
        solver = lk.Solver(setup, {"water": drops(places)})
        solver.run(24)
        y = solver.read("Water", "position")[:, 1]
        off = solver.read("Water", "velocity")[:, 0] - (y - 0.5 * y * y)
        errors.append(np.abs(off).max() / 0.5)
    assert errors[0] < 0.02
    assert errors[1] < 0.35 * errors[0]  # second order would be a quarter


def test_a_viscous_pool_rests_from_the_first_step():
    solver = tank(box((-1, -1, -1), (2, 0.47, 2)), lk.ViscosityMaterial(viscosity=100.0))
    solver.run(2)
    assert np.abs(solver.read("Water", "velocity")).max() < 1e-6


def test_walls_that_let_go_hold_up_a_pool_whose_weight_falls():
    """Where walls only push, the pressure at the floor follows the weight down, too."""
    solver = tank(
        box((-1, -1, -1), (2, 0.47, 2)), lk.ViscosityMaterial(viscosity=1.0),
        pressure=[lk.PressureMaterial(walls="let_go")],
        gravity=lk.Keyframes([(0.0, (0.0, -9.81, 0.0)), (0.05, (0.0, -2.0, 0.0))]),
    )  # fmt: skip
    solver.run(6)
    assert np.abs(solver.read("Water", "velocity")).max() < 5e-3  # of 0.3 in a step of free fall
    floor = solver.object("Water").volume.local("pressure").max()
    assert floor == pytest.approx(1000.0 * 2.0 * (0.47 - 0.5 * H), rel=0.02)


def column(points, viscosity, *others, frames=3, pressure=1e-5, **settings):
    solver = tank(
        points, lk.ViscosityMaterial(viscosity=viscosity), *others,
        pressure=[lk.PressureMaterial(tolerance=pressure)], substeps=1, **settings,
    )  # fmt: skip
    solver.run(frames)
    return solver


def standing():
    """Places of a column on the floor."""
    x = (np.stack(np.meshgrid(*(np.arange(n) for n in (10, 18, 10)), indexing="ij"), -1) + 0.5) * H
    return x.reshape(-1, 3) / 2 + [0.35, 0.0, 0.35]


def test_lava_sinks_slowly_in_long_steps():
    """At 24 steps a second it neither explodes nor freezes, and is slower the stiffer it is."""
    tops = []
    for viscosity in (1.0e3, 1.0e5):
        solver = column(drops(standing()), viscosity, frames=8)
        position, velocity = (solver.read("Water", name) for name in ("position", "velocity"))
        assert np.abs(velocity).max() < 2.0
        tops.append(position[:, 1].max())
    assert 0.1 < tops[0] < 0.8 * tops[1] < 0.8 * 9 / 16


def test_particles_have_their_own_viscosity():
    """One that is the same everywhere changes nothing, however it is given."""
    places = standing()
    plain = column(drops(places), 300.0).read("Water", "position")
    painted = drops(places, viscosity=np.full(len(places), 300.0))
    np.testing.assert_allclose(column(painted, 7.0).read("Water", "position"), plain, atol=1e-5)
    scaled = drops(places, viscosity_scale=np.full(len(places), 100.0))
    np.testing.assert_allclose(column(scaled, 3.0).read("Water", "position"), plain, atol=1e-5)
    written = lk.ParticleExpression(expression="viscosity = a", new_channels=("viscosity",), a=300)
    solver = column(drops(places), 7.0, written)
    np.testing.assert_allclose(solver.read("Water", "position"), plain, atol=1e-5)


def test_a_stiff_half_stands_while_the_other_runs():
    places = standing()
    left = places[:, 0] < 0.35 + 5 * H / 2
    points = drops(places, viscosity=np.where(left, 3.0e4, 30.0))
    position = column(points, 1.0, frames=6).read("Water", "position")
    assert position[left, 1].max() > 0.47
    fallen = places[~left, 1].mean() - position[~left, 1].mean()
    assert fallen > 3.0 * (places[left, 1].mean() - position[left, 1].mean())


def test_layers_share_their_stress():
    """Of two layers between plates that shear them, u = U (y / mu) / sum(d / mu) in the lower."""
    h, mu = 1 / 16, (100.0, 400.0)
    x = (np.stack(np.meshgrid(*(np.arange(n) for n in (16, 32, 16)), indexing="ij"), -1) + 0.5) * h
    x = x.reshape(-1, 3) / 2
    setup = lk.SolverSetup(
        "layers",
        lk.HybridObject(name="Water", voxel_size=h, input="water"),
        lk.PressureMaterial(),
        lk.ViscosityMaterial(),
        lk.DomainBoundary(sides=("y_upper",), velocity=(1.0, 0.0, 0.0)),
        precision="double",
        substeps=1,
        frames_per_second=2.0,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(8 * h, 1.0, 8 * h),
        boundary_lower=("periodic", "wall", "periodic"),
        boundary_upper=("periodic", "wall", "periodic"),
    )
    viscosity = np.where(x[:, 1] < 0.5, mu[0], mu[1])
    solver = lk.Solver(setup, {"water": drops(x, viscosity=viscosity)})
    solver.run(40)
    y, u = solver.read("Water", "position")[:, 1], solver.read("Water", "velocity")[:, 0]
    stress = 1.0 / (0.5 / mu[0] + 0.5 / mu[1])
    exact = np.where(y < 0.5, stress * y / mu[0], 1.0 - stress * (1.0 - y) / mu[1])
    assert np.abs(u - exact).max() < 0.03


def test_new_liquid_has_the_materials_viscosity():
    points = drops([[0.5, 0.1, 0.5]], viscosity=[5.0])
    solver = column(
        points, 40.0, lk.LiquidSource(source="tap"), frames=1,
        inputs={"tap": box((0.4, 0.6, 0.4), (0.6, 0.7, 0.6))},
    )  # fmt: skip
    viscosity = solver.read("Water", "viscosity")
    assert viscosity[0] == 5.0 and len(viscosity) > 50 and np.all(viscosity[1:] == 40.0)


@pytest.mark.parametrize("value", [-1.0, np.inf])
def test_bad_viscosity_is_refused(value):
    places = standing()
    points = drops(places, viscosity=np.r_[value, np.ones(len(places) - 1)])
    with pytest.raises(InputError, match="viscosity"):
        column(points, 1.0, frames=1)
