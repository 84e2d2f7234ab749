"""The motion that a source hands on: when it starts, stops, pauses, and in resumed runs."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.keyframes import Keyframes
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from tests.unit.test_pressure import ball
from tests.unit.test_volume import cube

pytestmark = pytest.mark.compiles

H = 0.125
STEP = 0.02  # metres a frame
SPEED = STEP * 24.0


def make_solver(source, *, substeps=1, **options):
    setup = SolverSetup(
        "moving",
        VolumeObject(name="air", voxel_size=H, region="box", velocity_scheme="none"),
        VolumeEmission(name="burner", source="source", inherit_velocity=1.0, **options),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        precision="double",
        substeps=substeps,
    )
    return Solver(setup, {"source": source})


def moving(frame):
    return ball((0.9 + STEP * frame, 1.0, 1.0), 0.3)


def stamped(solver):
    """The velocity along x in the middle of the source."""
    return solver.outputs()["air"].to_dense("velocity")[0][7:9, 7:9, 7:9]


def test_a_source_that_moves_from_the_start_hands_it_on_in_the_first_frame():
    solver = make_solver(moving)
    solver.run(1)
    np.testing.assert_allclose(stamped(solver), SPEED, rtol=1e-6)


@pytest.mark.parametrize("substeps", [1, 3])
def test_a_source_that_stops_on_the_same_mesh_hands_on_no_motion(substeps):
    meshes = {frame: moving(frame) for frame in range(1, 4)}
    solver = make_solver(lambda frame: meshes[min(frame, 3)], substeps=substeps)
    for speed in (SPEED, SPEED, 0.0, 0.0):
        solver.run(1)
        np.testing.assert_allclose(stamped(solver), speed, rtol=1e-6, atol=1e-12)


def test_a_still_source_is_measured_once():
    solver = make_solver(moving(1), substeps=2)
    solver.run(1)
    (action,) = solver.actions["burner"]
    measured = action._distance
    solver.run(2)
    assert action._distance is measured
    assert not stamped(solver).any()


def test_motion_while_the_source_is_off_is_not_made_up_for():
    strength = Keyframes([(1.0, 1.0), (2.0, 0.0), (4.0, 0.0), (5.0, 1.0)], time_unit="frame")
    solver = make_solver(moving, strength=strength)
    solver.run(5)  # the last substep begins in frame 5
    np.testing.assert_allclose(stamped(solver), SPEED, rtol=1e-6)


def test_a_source_of_other_points_starts_at_rest():
    def at(frame):
        return ball((0.9 + STEP * frame, 1.0, 1.0), 0.3, subdivisions=2 if frame < 3 else 3)

    solver = make_solver(at)
    for speed in (SPEED, 0.0, SPEED):
        solver.run(1)
        np.testing.assert_allclose(stamped(solver), speed, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("moment", ["between frames", "in a frame", "rolled back"])
def test_a_resumed_run_hands_on_the_same_motion_to_the_bit(moment):
    whole = make_solver(moving, substeps=2)
    whole.run(2)
    if moment == "in a frame":
        states = []
        whole.observe("PRE_SOLVE", lambda s, step: s.cancel() if not states else None)
        with pytest.raises(Exception, match="stopped on request"):
            whole.run(1)
        states.append(whole.state())
    elif moment == "rolled back":
        whole.roll_back(whole.snapshot())
    state = whole.state()
    resumed = make_solver(moving, substeps=2)
    resumed.restore(state)
    for _ in range(2):
        for solver in (whole, resumed):
            solver.run(1)
        np.testing.assert_allclose(stamped(resumed), SPEED, rtol=1e-6)
        for name in ("velocity", "density"):
            np.testing.assert_array_equal(whole.read("air", name), resumed.read("air", name))


def test_voxels_have_no_motion_to_keep():
    whole = make_solver(cube((6, 6, 6), (10, 10, 10)))
    whole.run(1)
    resumed = make_solver(cube((6, 6, 6), (10, 10, 10)))
    resumed.restore(whole.state())
    for solver in (whole, resumed):
        solver.run(1)
    np.testing.assert_array_equal(whole.read("air", "density"), resumed.read("air", "density"))


def test_a_state_without_the_motion_is_taken_at_rest():
    whole = make_solver(moving)
    whole.run(1)
    state = whole.state()
    state["actions"] = {}  # of an older version
    resumed = make_solver(moving)
    resumed.restore(state)
    resumed.run(1)
    np.testing.assert_allclose(stamped(resumed), 0.0, atol=1e-12)
    resumed.run(1)
    np.testing.assert_allclose(stamped(resumed), SPEED, rtol=1e-6)
