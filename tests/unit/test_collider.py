"""Colliders in a Solver Setup: motion between frames, velocities, changes of topology, restarts."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from loki_core.behavior import isolated_registry
from loki_core.data.mesh import merge
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import InputError
from loki_core.keyframes import Keyframes
from loki_core.objects.colliders.collider import Collider, ColliderField
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from tests.mpi.scripts.collider_scene import (
    FRAME,
    RADIUS,
    SPEED,
    TURN,
    ball,
    define_air,
    make_solver,
)

pytestmark = pytest.mark.compiles


@pytest.fixture
def air():
    with isolated_registry():
        yield define_air()


def sphere(radius=0.3, subdivisions=3, shift=(0.0, 0.0, 0.0)):
    mesh = trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)
    return Surface.from_faces(np.array(mesh.vertices) + shift, np.array(mesh.faces))


def solver_with(air, stream, *, substeps=1, **options):
    setup = SolverSetup(
        "scene",
        air(name="air"),
        Collider(input="solid", name="solid", **options),
        substeps=substeps,
        bucket_size=0.25,
        precision="double",
    )
    return Solver(setup, {"solid": stream})


def radii(solver, path, places, centre):
    """Distance that the field shows at world places, and the ball's own."""
    item = solver.object(path)
    relative = item.scope.domain.to_relative(places)
    return item.sample(relative).distance, np.linalg.norm(places - centre, axis=1) - RADIUS


def test_the_field_follows_the_mesh_between_frames(air):
    solver = make_solver(air, wanders=False, substeps=4)
    seen = []
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(200, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def look(solver, step):
        centre = SPEED * (step.time + step.dt) - [0.4, 0.0, 0.1]
        got, exact = radii(solver, "Room/ball", centre + 0.31 * directions, centre)
        seen.append(step.time)
        np.testing.assert_allclose(got, exact, rtol=0, atol=0.02 * RADIUS)  # facets and chords

    solver.observe("SUBSTEP_END", look)
    solver.run(2)
    assert len(seen) == 8


def test_velocity_of_the_wall_is_that_of_the_mesh(air):
    solver = make_solver(air, wanders=False)
    solver.run(2)
    item = solver.object("Room/ball")
    centre = SPEED * 2 * FRAME - [0.4, 0.0, 0.1]
    place = centre + RADIUS * np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0]])
    sample = item.sample(item.scope.domain.to_relative(place))
    # Backward differences are the mean over the frame: the ball turned by TURN * FRAME = 0.17.
    spin = np.cross([0.0, TURN, 0.0], place - centre)
    np.testing.assert_allclose(sample.velocity, SPEED + spin, rtol=0, atol=0.12 * TURN * RADIUS)
    # The latitude was painted on the points.
    np.testing.assert_allclose(
        sample.channels["paint"][:, 0], (place - centre)[:, 1], rtol=0, atol=0.02
    )
    assert (sample.primitive >= 0).all()
    air_volume = solver.object("Room/air").volume
    moving = air_volume.local("solid_velocity")[air_volume.local("open_fraction") < 1.0]
    assert np.abs(moving).max() > 1.0


def test_a_velocity_channel_is_preferred_and_scaled(air):
    mesh = sphere()
    mesh.set_channel("point", "velocity", np.tile([2.0, 0.0, 0.0], (mesh.point_count, 1)))
    solver = solver_with(air, mesh, velocity_scale=0.5)
    solver.run(1)
    item = solver.object("solid")
    sample = item.sample(item.scope.domain.to_relative(np.array([[0.3, 0.0, 0.0]])))
    np.testing.assert_allclose(sample.velocity, [[1.0, 0.0, 0.0]], atol=1e-12)


def test_a_still_mesh_is_measured_once(air):
    solver = solver_with(air, sphere(), substeps=3)
    version = solver.object("solid").version
    solver.run(2)
    assert solver.object("solid").version == version
    assert solver.object("air").changes == 1
    np.testing.assert_array_equal(solver.object("solid").volume.local("velocity"), 0.0)


def test_a_mesh_that_comes_to_rest_stops_moving_the_wall(air):
    def stream(frame):
        return sphere(shift=(0.1 * min(frame, 2), 0.0, 0.0))

    solver = solver_with(air, stream)
    solver.run(1)
    assert np.abs(solver.object("solid").volume.local("velocity")).max() == pytest.approx(2.4)
    solver.run(1)
    assert np.abs(solver.object("solid").volume.local("velocity")).max() == 0.0


def test_a_change_of_topology_takes_the_new_mesh_at_rest(air):
    def stream(frame):
        return sphere(subdivisions=2 if frame < 3 else 3, shift=(0.05 * frame, 0.0, 0.0))

    solver = solver_with(air, stream, substeps=2)
    solver.run(1)
    assert np.abs(solver.object("solid").volume.local("velocity")).max() == pytest.approx(1.2)
    places = []
    solver.observe("SUBSTEP_END", lambda s, step: places.append(
        s.object("solid").sample(np.array([[0.15 + 0.3, 0.0, 0.0]])
                                 - s.domain.origin).distance[0]))  # fmt: skip
    solver.run(1)
    assert np.abs(solver.object("solid").volume.local("velocity")).max() == 0.0
    np.testing.assert_allclose(places, 0.0, atol=2e-3)
    solver.run(1)
    assert np.abs(solver.object("solid").volume.local("velocity")).max() == pytest.approx(1.2)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_resumed_run_is_the_same_to_the_bit(air, cancelled):
    whole = make_solver(air)
    whole.run(2)
    if cancelled:  # in the middle of a frame
        states = []
        whole.observe(
            "SUBSTEP_END", lambda s, step: states.append(s.state()) if not states else None
        )
        whole.run(1)
        state = states[0]
        state["timeline"] |= {"frame": 3, "elapsed": 0.5 * FRAME, "frame_begun": True}
        state["timeline"] |= {"substep": 5, "substeps_of_frame": 1}
        whole.run(1)
    else:
        state = whole.state()
        whole.run(2)
    resumed = make_solver(air)
    resumed.restore(state)
    before = resumed.object("Room/ball").sample(np.zeros((1, 3))).distance
    assert np.isfinite(before).all()
    resumed.run(whole.frame - resumed.frame)
    for path in ("Room/air", "Room/ball", "Room/bowl"):
        one, other = whole.object(path).volume, resumed.object(path).volume
        np.testing.assert_array_equal(one.buckets.local_coords, other.buckets.local_coords)
        for name in one.channels:
            np.testing.assert_array_equal(one.local(name), other.local(name), err_msg=name)


def test_the_field_is_measured_only_near_the_air(air):
    solver = solver_with(air, sphere(20.0, 3))
    solver.run(1)
    item = solver.object("solid")
    assert item.count() == 0  # the air lies far inside
    assert not solver.object("air").volume.local("kind").any()
    left, right = sphere(20.0, 5, (-20.0, 0.0, 0.0)), sphere(20.0, 5, (20.0, 0.0, 0.0))
    near = solver_with(air, merge([left, right]))  # they touch where the air is
    coords = near.object("solid").volume.buckets.local_coords
    assert len(coords) and coords.min() >= -5 and coords.max() < 5


def test_growing_offset_is_followed(air):
    offset = Keyframes([(1.0, 0.0), (3.0, 0.06)], time_unit="frame")
    solver = solver_with(air, sphere(), surface_offset=offset)
    solver.run(3)
    item = solver.object("solid")
    place = item.scope.domain.to_relative(np.array([[0.3, 0.0, 0.0]]))
    np.testing.assert_allclose(item.sample(place).distance, -0.06, atol=4e-3)


def test_output_is_voxels_in_world_space(air):
    solver = solver_with(air, sphere(shift=(0.1, 0.0, 0.0)), channels=())
    voxels = solver.object("solid").output()
    assert sorted(voxels.channels) == ["distance", "primitive", "velocity"]
    r = voxels.block_resolution
    local = np.stack(np.meshgrid(*[np.arange(r)] * 3, indexing="ij"), axis=-1)
    places = voxels.origin + voxels.voxel_size * (
        voxels.coords[:, None, None, None, :] * r + local + 0.5
    )
    exact = np.linalg.norm(places - [0.1, 0.0, 0.0], axis=-1) - 0.3
    got = voxels.channels["distance"].values[:, 0]
    near = np.abs(got) < 0.9 * voxels.channels["distance"].background
    assert near.sum() > 1000
    np.testing.assert_allclose(got[near], exact[near], rtol=0, atol=4e-3)
    assert solver.object("solid").count() == voxels.voxel_count


def test_without_a_volume_a_collider_is_inactive():
    setup = SolverSetup("scene", Collider(input="solid", name="solid"), bucket_size=0.25)
    solver = Solver(setup, {"solid": sphere()})
    assert [one.path for one in solver.inactive] == ["solid"]
    assert not solver.objects


def test_paths_and_settings(air):
    solver = solver_with(air, sphere(), slip="no_slip", thickness=0.1, mode="shell")
    item = solver.object("solid")
    assert isinstance(item, ColliderField) and item.slip == "no_slip"
    assert [action.path for action in solver.actions["solid"]] == ["solid[air]"]
    assert solver.object("air").colliders == [item]
    inside = item.scope.domain.to_relative(np.array([[0.0, 0.0, 0.0], [0.3, 0.0, 0.0]]))
    distance = item.sample(inside).distance
    assert distance[0] > 0.0 > distance[1]


def test_bad_streams_are_named(air):
    with pytest.raises(InputError, match='solid: input "solid" is a Points'):
        solver_with(air, Points(np.zeros((3, 3))))

    def breaks(frame):
        mesh = ball(frame)
        if frame == 2:
            mesh.positions[3, 0] = np.inf
        return mesh

    with pytest.raises(InputError, match=r'input "solid"\.positions\[3\]'):
        solver_with(air, breaks).run(1)


def test_a_channel_that_may_be_missing():
    from loki_core.objects.colliders.signed_distance import painted_channels
    from loki_graph.nodes.shape_source import unit_sphere

    ball = unit_sphere(8, 4)
    assert painted_channels(ball, ("Cd?",), label="ball") == {}
    ball.set_channel("point", "Cd", np.ones((ball.point_count, 3)))
    assert list(painted_channels(ball, ("Cd?",), label="ball")) == ["Cd"]
    with pytest.raises(InputError, match='no point, vertex or primitive channel "heat"'):
        painted_channels(ball, ("heat",), label="ball")
