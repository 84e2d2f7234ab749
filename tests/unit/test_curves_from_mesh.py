"""Strands that grow on a surface: where they stand, their shape, and what carries them along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loki_core.data.curves import Curves
from loki_core.data.surface import Surface
from loki_core.errors import GraphError, InputError
from loki_graph import Evaluator, Graph
from loki_graph.nodes.curves_from_mesh import CurvesFromMesh
from loki_graph.nodes.host_input import HostInput
from loki_graph.nodes.shape_source import unit_grid, unit_sphere

PLAIN = {"spread": 0.0, "length_variation": 0.0}


def graph_of(node: CurvesFromMesh) -> Graph:
    return Graph("g", nodes={"skin": HostInput(), "hair": node}, connections=[CONNECTION])


CONNECTION = ("skin.out", "hair.in")


def grown(skin: Any, frame: int = 1, **parameters: Any) -> Curves:
    graph = graph_of(CurvesFromMesh(**parameters))
    curves = Evaluator(graph, host_inputs={"skin": skin}).evaluate("hair.out", frame)
    assert isinstance(curves, Curves)
    return curves


def strands_of(curves: Curves) -> np.ndarray:
    return curves.positions.reshape(curves.primitive_count, -1, 3)


def rotation(angle: float) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    matrix[:3, 3] = (0.3, 0.1, -0.2)
    return matrix


def ball() -> Surface:
    sphere = unit_sphere(24, 16)
    sphere.positions = 0.2 * sphere.positions
    return sphere


def warped(skin: Surface) -> Surface:
    """A bend and a stretch that leave no triangle as it was."""
    moved = skin.transformed(rotation(0.7))
    x, y, z = moved.positions.T
    moved.positions = np.stack((1.2 * x + 0.3 * y * y, y + 0.2 * x * z, z * (1.0 + x)), axis=1)
    return moved


# -- shape --------------------------------------------------------------------------------------


def test_strands_stand_on_the_surface_along_its_normals() -> None:
    curves = grown(ball(), count=400, vertices=6, length=0.05, **PLAIN)
    strands = strands_of(curves)
    out = strands[:, 0] / np.linalg.norm(strands[:, 0], axis=1, keepdims=True)
    assert np.linalg.norm(strands[:, 0], axis=1).max() <= 0.1 + 1e-9
    assert np.linalg.norm(strands[:, 0], axis=1).min() > 0.095  # facets cut the corners
    heading = (strands[:, -1] - strands[:, 0]) / 0.05
    assert np.einsum("na,na->n", heading, out).min() > 0.99
    np.testing.assert_allclose(np.linalg.norm(np.diff(strands, axis=1), axis=2), 0.01, rtol=1e-9)
    assert curves.check("hair") == []


def test_lean_and_bend_turn_towards_the_direction() -> None:
    ground = unit_grid(3, 3)
    shape = {"count": 5, "vertices": 41, "direction": (2.0, 0.0, 0.0), **PLAIN}
    headings = np.diff(strands_of(grown(ground, lean=0.5, bend=1.0, **shape)), axis=1)
    angle = np.degrees(np.arctan2(headings[..., 0], headings[..., 1]))
    expected = 90.0 * (0.5 + 0.5 * (np.arange(40) + 0.5) / 40.0)
    np.testing.assert_allclose(angle, np.broadcast_to(expected, angle.shape), atol=1e-6)
    straight = np.diff(strands_of(grown(ground, lean=1.0, **shape)), axis=1)
    np.testing.assert_allclose(straight[..., 1:], 0.0, atol=1e-12)


def test_strands_against_the_direction_bend_to_some_side() -> None:
    strands = strands_of(grown(unit_grid(1, 1), count=3, lean=0.5, **PLAIN))  # normals up, it down
    np.testing.assert_allclose(strands[:, -1, 1], strands[:, 0, 1], atol=1e-12)
    sideways = np.linalg.norm((strands[:, -1] - strands[:, 0])[:, [0, 2]], axis=1)
    np.testing.assert_allclose(sideways, 0.1, rtol=1e-9)


def test_clearance_keeps_combed_hair_out_of_the_head() -> None:
    shape = {"count": 300, "vertices": 20, "length": 0.25, "lean": 0.6, "bend": 1.0}
    comb = shape | {"clumping": 0.6, "curl_radius": 0.005}
    through = np.linalg.norm(strands_of(grown(ball(), **comb))[:, 1:], axis=2)
    around = np.linalg.norm(strands_of(grown(ball(), clearance=0.004, **comb))[:, 1:], axis=2)
    assert through.min() < 0.09
    assert around.min() > 0.1 + 0.002  # facets lie up to 1.3 mm inside the ball
    lengths = np.linalg.norm(
        np.diff(strands_of(grown(ball(), clearance=0.004, **comb)), axis=1), axis=2
    )
    np.testing.assert_allclose(lengths / lengths[:, :1], 1.0, rtol=1e-9)


def test_clumps_gather_at_their_tips() -> None:
    def spacing(strands: np.ndarray, vertex: int) -> float:
        points = strands[:, vertex]
        apart = np.linalg.norm(points[:, None] - points[None], axis=2) + 9.0 * np.eye(len(points))
        return float(apart.min(axis=1).mean())

    shape = {"count": 200, "vertices": 12, "length": 0.3, **PLAIN}
    loose = strands_of(grown(unit_grid(4, 4), **shape))
    tight = strands_of(grown(unit_grid(4, 4), clumping=1.0, clump_size=10, **shape))
    np.testing.assert_array_equal(tight[:, 0], loose[:, 0])
    assert spacing(tight, -1) < 0.5 * spacing(loose, -1)


def test_radius_runs_from_root_to_tip() -> None:
    curves = grown(ball(), count=7, vertices=5, root_radius=5.0e-5, tip_radius=1.0e-5)
    radius = curves.channels["point"]["radius"].reshape(7, 5)
    np.testing.assert_allclose(radius, np.tile(np.linspace(5e-5, 1e-5, 5), (7, 1)))
    axis = curves.channels["primitive"]["normal"]
    first = np.diff(strands_of(curves), axis=1)[:, 0]
    np.testing.assert_allclose(np.einsum("na,na->n", axis, first), 0.0, atol=1e-12)


# -- places -------------------------------------------------------------------------------------


def test_places_are_even_and_the_first_ones_do_not_depend_on_the_count() -> None:
    few, many = (strands_of(grown(ball(), count=count))[:, 0] for count in (500, 2000))
    np.testing.assert_array_equal(many[:500], few)
    upper = (many[:, 1] > 0.0).sum()
    assert abs(upper - 1000) < 20  # of random places it would be off by 45 at two sigma
    apart = np.linalg.norm(few[:, None] - few[None], axis=2) + np.eye(500)
    area = 4.0 * np.pi * 0.1**2 / 500
    assert apart.min(axis=1).mean() > 0.55 * np.sqrt(area)  # of random places 0.5


def test_other_seeds_give_other_places() -> None:
    first, again, other = (strands_of(grown(ball(), count=50, seed=s)) for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_paint_thins_out_and_shortens_and_moves_nothing_else() -> None:
    ground = unit_grid(20, 20)
    whole = grown(ground, count=1000, **PLAIN)
    right = ground.positions[:, 0] > 0.01
    ground.set_channel("point", "density", np.where(right, 0.0, 1.0).astype(np.float32))
    ground.set_channel("point", "length_scale", np.full(ground.point_count, 0.5))
    painted = grown(ground, count=1000, **PLAIN)
    assert strands_of(painted)[:, 0, 0].max() < 0.06
    assert painted.primitive_count == pytest.approx(500, abs=40)
    kept = painted.channels["primitive"]["id"]
    np.testing.assert_array_equal(strands_of(painted)[:, 0], strands_of(whole)[kept, 0])
    reach = np.linalg.norm(strands_of(painted)[:, -1] - strands_of(painted)[:, 0], axis=1)
    np.testing.assert_allclose(reach, 0.05)
    ground.set_channel("point", "length_scale", np.zeros(ground.point_count))
    assert grown(ground, count=100).primitive_count == 0


def test_strands_have_what_the_mesh_has_at_their_roots() -> None:
    ground = unit_grid(6, 6)
    ground.set_channel("point", "young_modulus", 1.0e9 * (2.0 + ground.positions[:, 0]))
    ground.set_channel("point", "part", np.arange(ground.point_count, dtype=np.int32))
    ground.set_channel("point", "density", np.ones(ground.point_count))
    corners = ground.positions[ground.face_vertices]
    ground.set_channel("vertex", "uv", corners[:, [0, 2]].astype(np.float32))
    curves = grown(ground, count=60)
    root, own = strands_of(curves)[:, 0], curves.channels["primitive"]
    np.testing.assert_allclose(own["young_modulus"], 1.0e9 * (2.0 + root[:, 0]))
    np.testing.assert_allclose(own["uv"], root[:, [0, 2]], atol=1e-6)
    nearest = np.linalg.norm(ground.positions[own["part"]] - root, axis=1)
    assert own["part"].dtype == np.int32 and nearest.max() < 1.0 / 6.0
    np.testing.assert_allclose(own["root_normal"], np.tile((0.0, 1.0, 0.0), (60, 1)), atol=1e-12)
    assert "density" not in own  # painted thickness is not the strands' mass


# -- motion -------------------------------------------------------------------------------------


def test_strands_are_carried_rigidly_by_a_rigid_motion() -> None:
    skin, shape = ball(), {"count": 80, "lean": 0.4, "bend": 0.5, "clumping": 0.3}
    moving = lambda frame: skin.transformed(rotation(0.3 * (frame - 1)))  # noqa: E731
    start, later = grown(moving, 1, **shape), grown(moving, 5, **shape)
    expected = start.transformed(rotation(1.2) @ np.linalg.inv(rotation(0.0)))
    np.testing.assert_allclose(later.positions, expected.positions, atol=1e-12)
    for name in ("normal", "root_normal"):
        found, wanted = (one.channels["primitive"][name] for one in (later, expected))
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_roots_stay_in_their_triangles_when_the_mesh_deforms() -> None:
    skin, bent = ball(), warped(ball())
    moving = lambda frame: skin if frame == 1 else bent  # noqa: E731
    for mesh in (skin, bent):
        mesh.set_channel("point", "rest", skin.positions)
    start, later = (grown(moving, frame, count=200, **PLAIN) for frame in (1, 2))
    np.testing.assert_allclose(
        later.channels["primitive"]["rest"], strands_of(start)[:, 0], atol=1e-12
    )
    first, after = strands_of(start), strands_of(later)
    np.testing.assert_allclose(
        np.linalg.norm(np.diff(after, axis=1), axis=2),
        np.linalg.norm(np.diff(first, axis=1), axis=2),
        rtol=1e-9,
    )
    # a mesh that was in that shape from the start would have its roots elsewhere
    assert np.abs(strands_of(grown(bent, count=200))[:, 0] - after[:, 0]).max() > 0.01


def test_the_start_frame_is_the_one_of_the_graph() -> None:
    asked: list[int] = []

    def moving(frame: int) -> Surface:
        asked.append(frame)
        return ball()

    graph = graph_of(CurvesFromMesh(count=3)).with_settings(start_frame=10)
    evaluator = Evaluator(graph, host_inputs={"skin": moving})
    for frame in (12, 13):
        evaluator.evaluate("hair.out", frame)
    assert asked == [10, 12, 13]  # the start is looked at once


def test_a_changed_parameter_or_mesh_grows_anew() -> None:
    evaluator = Evaluator(graph_of(CurvesFromMesh(count=3)), host_inputs={"skin": ball()})
    assert evaluator.evaluate("hair.out", 1).primitive_count == 3
    evaluator.update(graph_of(CurvesFromMesh(count=5)))
    assert evaluator.evaluate("hair.out", 1).primitive_count == 5
    evaluator.set_input("skin", unit_grid(2, 2))
    np.testing.assert_allclose(strands_of(evaluator.evaluate("hair.out", 1))[:, 0, 1], 0.0)


# -- refusals -----------------------------------------------------------------------------------


def test_other_faces_are_refused() -> None:
    moving = lambda frame: ball() if frame == 1 else unit_grid(3, 3)  # noqa: E731
    with pytest.raises(InputError, match=r"g/hair: the mesh has 9 faces of 16 points, and other"):
        grown(moving, 2)


def test_bad_input_is_named() -> None:
    flat = Surface.from_faces(np.zeros((3, 3)), np.array([[0, 1, 2]]))
    with pytest.raises(InputError, match="g/hair: the surface has no area to grow from"):
        grown(flat)
    assert grown(flat, count=0).point_count == 0
    skin = ball()
    skin.set_channel("point", "density", np.full(skin.point_count, np.nan))
    with pytest.raises(InputError, match=r'point channel "density"\[0\] = nan'):
        grown(skin)
    with pytest.raises(GraphError, match=r"direction = \(0, 0, 0\)"):
        graph_of(CurvesFromMesh()).replace("hair", direction=(0.0, 0.0, 0.0))
    with pytest.raises(GraphError, match=r"g/hair.in is not connected"):
        Evaluator(Graph("g", nodes={"hair": CurvesFromMesh()})).evaluate("hair.out", 1)
