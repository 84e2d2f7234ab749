"""Colliders near and across periodic sides: the same as in the middle of the box, moved."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import InputError
from loki_core.objects.colliders import collider
from loki_core.objects.colliders.collider import Collider
from loki_core.pipeline.stages import Stage
from tests.skeleton.volume_scene import VolumeScene
from tests.unit.test_pressure import ball

pytestmark = pytest.mark.compiles

H, SIZE, MIDDLE = 0.125, 2.0, 1.0  # 16^3 voxels
#: Keeps voxels off the symmetries of the ball.
ASIDE = np.array([0.0131, 0.0272, -0.0193])


def painted_ball(centre, radius):
    """A ball that turns, with channels on its points, vertices and faces."""
    centre = np.asarray(centre) + ASIDE
    mesh = ball(centre, radius)
    away = mesh.positions - centre
    spin = np.cross([0.0, 3.0, 1.0], away)
    mesh.set_channel("point", "velocity", spin + np.array([0.5, 0.0, 0.0]))
    mesh.set_channel("point", "height", away[:, 1])
    mesh.set_channel("vertex", "side", away[mesh.face_vertices])
    mesh.set_channel("primitive", "mark", np.full(mesh.primitive_count, 5.0))
    return mesh


def scene_with(mesh, *, sides="periodic", **options):
    solid = Collider(name="solid", input="solid", channels=("height", "side", "mark"), **options)
    scene = VolumeScene(solid, inputs={"solid": mesh}, sides=sides)
    scene.run(Stage.UPDATE_COLLIDERS)
    scene.run(Stage.UPDATE_BOUNDARIES)
    return scene


def samples(scene, places):
    """What the field says at places, brought into the box."""
    relative = np.mod(scene.solver.domain.to_relative(places), SIZE)
    return scene.solver.object("solid").sample(relative)


def places_around(centre, *, count=600, reach=0.45):
    """Places relative to a centre that are not within half a voxel of a side of the box."""
    away = np.random.default_rng(7).uniform(-reach, reach, (count, 3))
    inside = np.mod(away + centre, SIZE)
    return away[np.all((inside > 0.5 * H) & (inside < SIZE - 0.5 * H), axis=1)]


def test_a_ball_centred_on_a_periodic_side_is_whole():
    solid = Collider(name="solid", input="solid")
    counts = []
    for centre in ((MIDDLE,) * 3, (0.0, MIDDLE, MIDDLE), (SIZE, 0.0, MIDDLE), (0.0, SIZE, 0.0)):
        scene = VolumeScene(solid, inputs={"solid": ball(centre, 0.25)})
        counts.append(int((scene.dense("kind") == 0).sum()))
    assert counts[0] > 0 and counts == [counts[0]] * 4


@pytest.mark.parametrize(
    "centre",
    [
        (0.0, 1.0, 1.0),
        (2.0, 1.0, 1.0),
        (1.0, 0.0, 2.0),
        (0.0, 2.0, 0.0),
        (0.375, 1.0, 1.0),  # it comes near, but does not touch
        (1.0, 1.0, 1.625),
        (5.0, 1.0, -3.0),  # periods away
        (-2.25, 1.0, 1.0),
    ],
)
@pytest.mark.parametrize("options", [{}, {"mode": "shell", "thickness": 0.3}])
def test_places_by_periodic_sides_are_as_good_as_the_middle(centre, options):
    moved = scene_with(painted_ball(centre, 0.3), **options)
    inner = scene_with(painted_ball((MIDDLE,) * 3, 0.3), **options)
    turns = np.round((np.array(centre) - MIDDLE) / H).astype(int)
    for name in ("kind", "open_fraction", "solid_velocity"):
        expected = np.roll(inner.dense(name), turns, axis=(1, 2, 3))
        # The same numbers but for the round-off of the positions, 1e-16 m of 0.1 m.
        np.testing.assert_allclose(moved.dense(name), expected, rtol=0, atol=1e-9, err_msg=name)
    away = places_around(centre)
    assert len(away) > 200
    one, other = samples(moved, away + centre), samples(inner, away + MIDDLE)
    assert (other.distance < 0.0).any() and (other.primitive >= 0).any()
    np.testing.assert_allclose(one.distance, other.distance, rtol=0, atol=1e-9)
    # Off an edge two triangles are as close, so which of them it is, round-off decides.
    np.testing.assert_array_equal(one.primitive >= 0, other.primitive >= 0)
    assert one.primitive.max() < 320  # of the mesh, not of an image
    np.testing.assert_allclose(one.velocity, other.velocity, rtol=0, atol=1e-9)
    for name, values in other.channels.items():
        np.testing.assert_allclose(one.channels[name], values, rtol=0, atol=1e-9, err_msg=name)


def test_the_offset_of_a_surface_reaches_across_the_side():
    # The mesh stays inside, the solid does not.
    moved = scene_with(painted_ball((0.375, 1.0, 1.0), 0.2), surface_offset=0.25)
    inner = scene_with(painted_ball((1.0, 1.0, 1.0), 0.2), surface_offset=0.25)
    expected = np.roll(inner.dense("kind"), -5, axis=1)
    assert not expected[0, 15, 8, 8] or not expected[0, 0, 8, 8]
    np.testing.assert_array_equal(moved.dense("kind"), expected)


def test_sides_that_are_not_periodic_have_no_images():
    scene = scene_with(painted_ball((0.0, 1.0, 1.0), 0.3), sides="wall")
    opening = scene.dense("open_fraction")
    assert (opening[1, 0, 7:9, 7:9] == 0.0).all()
    np.testing.assert_array_equal(opening[1, 8:, 1:], 1.0)


def test_a_mesh_that_moves_round_the_box_hands_on_one_velocity():
    def at(frame):
        return ball((1.75 + 0.125 * frame, 1.0, 1.0), 0.25)

    solid = Collider(name="solid", input="solid")
    scene = VolumeScene(solid, inputs={"solid": at}, air={"velocity_scheme": "none"})
    cells = []
    for _ in range(4):
        scene.solver.run(1)
        cells.append(int((scene.dense("kind") == 0).sum()))
        faces = scene.dense("solid_velocity")[0][scene.dense("open_fraction")[0] == 0.0]
        np.testing.assert_allclose(faces, 0.125 * 24.0, rtol=1e-9)
    assert cells[0] > 0 and cells == [cells[0]] * 4


def test_too_many_images_are_refused(monkeypatch):
    monkeypatch.setattr(collider, "LARGEST_MESH", 1000)
    with pytest.raises(InputError, match=r"solid.*8 images.*periodic"):
        scene_with(painted_ball((0.0, 0.0, 0.0), 0.3))
