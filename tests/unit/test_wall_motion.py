"""Walls, inflows and solids whose velocity changes while colliders are present."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.constraints.pressure import PressureMaterial
from loki_core.keyframes import Keyframes
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from tests.unit.test_pressure import ball

pytestmark = pytest.mark.compiles

H = 0.125


def tunnel(*behaviors, solid, boundary_upper):
    """Air of 16^3 voxels that nothing carries along, with a solid."""
    setup = SolverSetup(
        "tunnel",
        VolumeObject(name="air", voxel_size=H, region="box", velocity_scheme="none"),
        PressureMaterial(tolerance=1e-10),
        Collider(name="solid", input="solid"),
        *behaviors,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        boundary_lower=("wall",) * 3,
        boundary_upper=boundary_upper,
        precision="double",
    )
    return Solver(setup, {"solid": solid})


@pytest.mark.parametrize("has_solid", [True, False])
def test_an_animated_inflow_blows_past_a_still_solid(has_solid):
    # Incompressible: what flows in, v times the section of the box, flows out.
    centre = (1.0, 1.0, 1.0) if has_solid else (1.0, 30.0, 1.0)
    wind = DomainBoundary(
        sides=("x_lower",),
        condition="inflow",
        velocity=Keyframes([(1.0, (1.0, 0.0, 0.0)), (2.0, (3.0, 0.0, 0.0))], time_unit="frame"),
    )
    solver = tunnel(wind, solid=ball(centre, 0.3), boundary_upper=("open", "wall", "wall"))
    for speed in (1.0, 3.0, 3.0):  # of the time at which a substep begins
        solver.run(1)
        u = solver.outputs()["air"].to_dense("velocity")[0]
        np.testing.assert_allclose(u[0], speed, rtol=1e-12)
        np.testing.assert_allclose(u[14].sum(), speed * 16 * 16, rtol=1e-6)


def test_a_solid_that_has_gone_leaves_no_velocity_behind():
    def at(frame):
        return ball((0.6 + 0.25 * min(frame, 4), 1.0, 1.0), 0.2)

    solver = tunnel(solid=at, boundary_upper=("open", "wall", "wall"))
    solver.run(2)
    faces = solver.object("air").volume.local("solid_velocity")
    assert np.abs(faces).max() == pytest.approx(0.25 * 24.0)
    solver.run(2)  # it rests elsewhere
    np.testing.assert_array_equal(solver.object("air").volume.local("solid_velocity"), 0.0)
