"""Particle fluids and droplets in the wind, and beside rods: the Behaviors of other particles."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from tests.particle_fluids import block, radius_of
from tests.unit.attachment_scenes import line, pairs_stream, solver_of
from tests.unit.test_coupled_drag import (
    AIR,
    V0,
    box,
    fluid_momentum,
    solid_momentum,
    wind,
)
from tests.unit.test_particle_attachments import RODS, rods

pytestmark = pytest.mark.compiles

SPRAY = "Spray/P"
D = 0.05


def spray(kind, **settings):
    points = lk.Points(block(5, 5, 5, spacing=D, corner=(0.4, 0.4, 0.4)))
    points.set_channel("point", "velocity", np.tile(V0, (125, 1)))
    particles = lk.ParticleObject(name="P", input="spray", radius=radius_of(D), density=2.0)
    return lk.Group("Spray", particles, kind, **settings), points


@pytest.mark.parametrize(
    "kind",
    [
        lk.PositionBasedFluid(surface_tension=0.3),
        lk.SmoothedParticleFluid(),
        lk.BinaryDropletCollisions(),
    ],
    ids=["pbf", "sph", "droplets"],
)
def test_wind_gains_what_spray_loses(kind):
    group, points = spray(kind)
    solver = box(
        group,
        wind(),
        lk.CoupledDragForce(law="linear", coefficient=2.0),
        inputs={"spray": points},
    )
    before, own = fluid_momentum(solver), solid_momentum(solver, SPRAY)
    solver.run(1)  # advection of the air, from the next step on, keeps its momentum in part
    lost = own - solid_momentum(solver, SPRAY)
    gained = fluid_momentum(solver) - before
    assert np.linalg.norm(lost) > 0.05 * np.linalg.norm(own)
    np.testing.assert_allclose(gained, lost, rtol=0, atol=1e-9 * np.linalg.norm(own))


def test_one_way_drag_leaves_the_wind_alone():
    group, points = spray(lk.PositionBasedFluid())
    solver = box(
        group,
        wind(),
        lk.CoupledDragForce(law="linear", coefficient=2.0, direction="fluid_to_solids"),
        inputs={"spray": points},
    )
    own = solid_momentum(solver, SPRAY)
    solver.run(5)
    assert np.abs(solver.read(AIR, "velocity")).max() < 1e-12
    assert np.linalg.norm(solid_momentum(solver, SPRAY)) < 0.9 * np.linalg.norm(own)


def test_a_rod_carries_a_drop_of_a_fluid():
    """Attached to the end of a strand, a drop pulls with its weight: k d = m g."""
    stiffness, mass = 50.0, 0.02
    drop = lk.Points([[0.0, -0.13, 0.0]])
    drop.set_channel("point", "mass", np.array([mass]))
    solver = solver_of(
        rods(),
        lk.Group("drops", lk.ParticleObject(input="drops"), lk.PositionBasedFluid()),
        lk.GravityForce(),
        lk.AttachmentConstraint(
            source="drops",
            target="rods",
            emission="explicit",
            pairs="pairs",
            stiffness=stiffness,
            flexibility=1.0,
            damping_time=0.05,
        ),
        inputs={
            "rods": lk.Curves(line((0, 0, 0), (0, -1, 0)), [0, 6]),
            "drops": drop,
            "pairs": pairs_stream([0], [5]),
        },
    )
    solver.run(300)
    end = solver.read(RODS, "position")[-1]
    apart = np.linalg.norm(solver.read("drops/ParticleObject", "position")[0] - end)
    assert apart - 0.03 == pytest.approx(mass * 9.81 / stiffness, rel=0.02)
