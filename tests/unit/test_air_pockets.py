"""Air that liquid encloses: it keeps its volume where that is asked for; bubbles do not."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

import loki_core as lk
from loki_core.errors import SetupError
from loki_core.objects.liquid.air_pockets import find_pockets

H = 1 / 16


def box(lower, upper):
    mesh = trimesh.creation.box(bounds=[lower, upper])
    return lk.Surface.from_faces(np.array(mesh.vertices), np.array(mesh.faces))


def lattice(lower, upper):
    axes = [
        0.5 * H * (np.arange(round(2 * a / H), round(2 * b / H)) + 0.5)
        for a, b in zip(lower, upper, strict=True)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)


def tube(air, left=0.375, right=0.75, *, tolerance=1e-5, **settings):
    """Water in two arms that join at the floor; each has air of its own, to the lid."""
    water = np.concatenate(
        (
            lattice((0.0, 0.0, 0.0), (0.375, left, 0.5)),
            lattice((0.375, 0.0, 0.0), (0.625, 0.25, 0.5)),
            lattice((0.625, 0.0, 0.0), (1.0, right, 0.5)),
        )
    )
    setup = lk.SolverSetup(
        "tube",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.GravityForce(),
        lk.PressureMaterial(air=air, tolerance=tolerance),
        lk.Collider(input="divider"),
        **{
            "substeps": 3,
            "domain_lower": (0.0, 0.0, 0.0),
            "domain_upper": (1.0, 1.0, 0.5),
            "boundary_lower": ("wall",) * 3,
            "boundary_upper": ("wall",) * 3,
            **settings,
        },
    )
    divider = box((0.375, 0.25, 0.0), (0.625, 1.0, 0.5))
    return lk.Solver(setup, {"water": lk.Points(water), "divider": divider})


def arms(solver):
    """Particles left and right of the middle."""
    x = solver.read("Water", "position")[:, 0]
    return np.count_nonzero(x < 0.5), np.count_nonzero(x > 0.5)


def test_trapped_air_carries_a_column():
    solver = tube("trapped")
    before = np.array(arms(solver))
    solver.run(6)
    assert find_pockets(solver.object("Water"))[1] == 1  # the other is what it is measured from
    assert np.array_equal(arms(solver), before)
    assert np.abs(solver.read("Water", "velocity")).max() < 0.04  # beside the divider


def test_free_air_lets_it_fall():
    solver = tube("free")
    before = np.array(arms(solver))
    solver.run(6)
    assert arms(solver)[0] - before[0] > 0.05 * before.sum()
    assert np.abs(solver.read("Water", "velocity")).max() > 0.8


def test_air_at_an_open_side_is_free():
    solver = tube("trapped", boundary_upper=("wall", "open", "wall"))
    solver.run(1)
    assert find_pockets(solver.object("Water"))[1] == 0


def test_the_pressure_of_a_pocket_is_the_weight_of_a_column():
    """The arm with the lower water has more of it, by rho g times the difference."""
    solver = tube("trapped", tolerance=1e-8, precision="double")
    solver.run(1)
    water = solver.object("Water")
    inside = find_pockets(water)[0] == 1
    found = water.volume.local("pressure").reshape(-1)[inside]
    np.testing.assert_allclose(found, -1000.0 * 9.81 * 0.375, rtol=0.05)  # against the larger one


@pytest.mark.parametrize("air", ["free", "trapped"])
def test_a_bubble_rises_and_keeps_its_volume(air):
    water = lattice((0.0, 0.0, 0.0), (1.0, 0.75, 1.0))
    water = water[np.linalg.norm(water - (0.5, 0.3, 0.5), axis=1) > 0.2]
    setup = lk.SolverSetup(
        "bubble",
        lk.HybridObject(name="Water", voxel_size=H, input="water"),
        lk.GravityForce(),
        lk.PressureMaterial(air=air),
        substeps=3,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=("wall", "open", "wall"),
    )
    solver = lk.Solver(setup, {"water": lk.Points(water)})
    solver.run(4)
    cells, count = find_pockets(solver.object("Water"))
    if air == "free":  # it has collapsed
        assert count == 0
    else:
        assert np.count_nonzero(cells) == pytest.approx(4.0 / 3.0 * np.pi * 3.2**3, rel=0.1)


def test_small_bubbles_are_free():
    water = lattice((0.0, 0.0, 0.0), (1.0, 0.75, 0.5))
    for side, count in ((0.125, 0), (0.25, 1)):
        inside = np.abs(water - (0.5, 0.4375, 0.25)).max(axis=1) < 0.5 * side
        setup = lk.SolverSetup(
            "bubble",
            lk.HybridObject(name="Water", voxel_size=H, input="water"),
            lk.PressureMaterial(air="trapped"),
            domain_lower=(0.0, 0.0, 0.0),
            domain_upper=(1.0, 1.0, 0.5),
            boundary_lower=("wall",) * 3,
            boundary_upper=("wall", "open", "wall"),
        )
        solver = lk.Solver(setup, {"water": lk.Points(water[~inside])})
        solver.run(1)
        assert find_pockets(solver.object("Water"))[1] == count


def test_bad_input():
    with pytest.raises(SetupError, match="air"):
        lk.PressureMaterial(air="none")
