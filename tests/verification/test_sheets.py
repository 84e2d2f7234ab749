"""Sheets against closed forms: stress over area at rest, for a stretch l.

    rubber (Treloar 1975)      in one direction, free across      mu (l - 1 / l^2)
                               in both directions                 mu (l - 1 / l^5)
    Green's strain, linear     in one direction                   E l (l^2 - 1) / 2,
                               where it is  sqrt(1 - nu (l^2 - 1))  across
                               in both directions                 E l (l^2 - 1) / (2 (1 - nu))

A mesh of triangles holds these deformations exactly, so what is left is what Newton leaves.
"""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk

pytestmark = pytest.mark.compiles

MU, THICK, LONG, WIDE = 3.0e5, 1.0e-3, 0.3, 0.2  # Pa, m, m, m
YOUNG, POISSON = 5.0e5, 0.3  # Pa, -
RUBBER = lk.NeoHookeanConstraint(name="Material", shear_modulus=MU)
CLOTH = lk.MembraneConstraint(name="Material", young_modulus=YOUNG, poisson_ratio=POISSON)


def sheet(seed=4):
    """Uneven triangles of a rectangle in the x-y plane, turned; its corners' coordinates."""
    rng = np.random.default_rng(seed)
    u, v = np.meshgrid(np.linspace(0.0, 1.0, 9), np.linspace(0.0, 1.0, 7), indexing="ij")
    inside = (u > 0.0) & (u < 1.0) & (v > 0.0) & (v < 1.0)
    u = u + 0.03 * inside * rng.uniform(-1.0, 1.0, u.shape)
    v = v + 0.04 * inside * rng.uniform(-1.0, 1.0, v.shape)
    row = np.arange(63).reshape(9, 7)
    quads = np.stack((row[:-1, :-1], row[1:, :-1], row[1:, 1:], row[:-1, 1:]), axis=-1)
    return u.reshape(-1), v.reshape(-1), quads.reshape(-1, 4)


def pulled(material, along, across, held):
    """Places after a pull to these stretches, where some points are held; and forces on points."""
    u, v, quads = sheet()
    axis, other = np.array([0.6, 0.0, 0.8]), np.array([0.0, 1.0, 0.0])

    def places(one, two):
        return (one * LONG * u)[:, None] * axis + (two * WIDE * v)[:, None] * other

    def at(frame):
        stretched = places(1.0, 1.0) if frame == 1 else places(along, across)
        mesh = lk.Surface.from_faces(stretched, quads)
        mesh.set_channel("point", "pinned", held(u, v).astype(float))
        return mesh

    setup = lk.SolverSetup(
        "pulled",
        lk.GeometryObject(name="Sheet", input="mesh", thickness=THICK, density=900.0),
        material,
        frames_per_second=2,  # long steps, which come to rest soon
        newton_iterations=30,
    )
    solver = lk.Solver(setup, {"mesh": at})
    solver.run(14)
    ((action,),) = solver.actions.values()
    action.evaluate_all(0.5)
    force = np.zeros(action.target.system.size)
    action.add_forces(np.zeros(len(force), np.uint8), force)
    force = action.target.unknowns.gather(force, "position")
    return solver.read("Sheet", "position"), places(along, across), force, (u, axis, other)


def ends(u, v):
    return (u == 0.0) | (u == 1.0)


def border(u, v):
    return ends(u, v) | (v == 0.0) | (v == 1.0)


def check(found, expected, force, frame, stress):
    """Hold places and the pull at one end to what is expected."""
    u, axis, _ = frame
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * LONG)
    pull = -(force[u == 1.0] @ axis).sum() / (WIDE * THICK)
    assert pull == pytest.approx(stress, rel=1e-6)


@pytest.mark.parametrize("stretch", [1.05, 1.3, 2.5])
def test_rubber_in_one_direction(stretch):
    check(*pulled(RUBBER, stretch, stretch**-0.5, ends), MU * (stretch - stretch**-2))


@pytest.mark.parametrize("stretch", [1.2, 3.0])
def test_rubber_in_both_directions(stretch):
    check(*pulled(RUBBER, stretch, stretch, border), MU * (stretch - stretch**-5))


@pytest.mark.parametrize("stretch", [1.02, 1.4])
def test_linear_material_in_one_direction(stretch):
    across = np.sqrt(1.0 - POISSON * (stretch**2 - 1.0))
    check(*pulled(CLOTH, stretch, across, ends), 0.5 * YOUNG * stretch * (stretch**2 - 1.0))


def test_linear_material_in_both_directions():
    stress = 0.5 * YOUNG * 1.3 * (1.3**2 - 1.0) / (1.0 - POISSON)
    check(*pulled(CLOTH, 1.3, 1.3, border), stress)


def test_a_sheet_that_hangs_stays_with_a_sag_free_start():
    u, v, quads = sheet()
    x = np.stack((LONG * u, -WIDE * v, 0.0 * u), axis=1)
    mesh = lk.Surface.from_faces(x, quads)
    mesh.set_channel("point", "pinned", (v == 0.0).astype(float))
    moved = {}
    for name, start in (("as it is", ()), ("sag-free", (lk.SagFreeStart(),))):
        setup = lk.SolverSetup(
            name,
            lk.GeometryObject(name="Sheet", input="mesh", thickness=THICK, density=900.0),
            lk.MembraneConstraint(young_modulus=3.0e4, poisson_ratio=POISSON),
            lk.GravityForce(),
            *start,
        )
        solver = lk.Solver(setup, {"mesh": mesh})
        solver.run(6)
        moved[name] = np.abs(solver.read("Sheet", "position") - x).max()
    assert moved["as it is"] > 3e-3
    assert moved["sag-free"] < 1e-8
