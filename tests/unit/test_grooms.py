"""Hair, grass and a braid of the examples: rooted, clear of the head, evenly cut, repeatable."""

from __future__ import annotations

import numpy as np
import pytest

from examples.braid_swing import braid as braids
from examples.grass import meadow as meadows
from examples.hair_in_wind import groom as grooms
from loki_core.data.curves import Curves
from loki_core.data.surface import Surface

STRANDS, VERTICES = 240, 16


def strands_of(curves: Curves) -> np.ndarray:
    return curves.positions.reshape(curves.primitive_count, -1, 3)


def segment_lengths(curves: Curves) -> np.ndarray:
    return np.linalg.norm(np.diff(strands_of(curves), axis=1), axis=2)


def enclosed_volume(surface: Surface) -> float:
    """Volume [m^3] in a closed surface whose faces look outwards, by the divergence theorem."""
    return float(np.linalg.det(surface.positions[surface.triangles()]).sum() / 6.0)


def winding(points: np.ndarray, surface: Surface) -> np.ndarray:
    """Turns of a closed surface around points, 1 inside and 0 outside (Van Oosterom 1983)."""
    total = np.zeros(len(points))
    for corners in surface.positions[surface.triangles()]:
        a, b, c = (corner - points for corner in corners)
        la, lb, lc = (np.linalg.norm(v, axis=1) for v in (a, b, c))
        volume = np.einsum("nd,nd->n", a, np.cross(b, c))
        ab, bc, ca = (np.einsum("nd,nd->n", *pair) for pair in ((a, b), (b, c), (c, a)))
        total += 2.0 * np.arctan2(volume, la * lb * lc + ab * lc + bc * la + ca * lb)
    return total / (4.0 * np.pi)


def distance_to_triangles(points: np.ndarray, surface: Surface) -> np.ndarray:
    """Smallest distance [m] from points to triangles in whose prism they stand."""
    nearest = np.full(len(points), np.inf)
    for a, b, c in surface.positions[surface.triangles()]:
        normal = np.cross(b - a, c - a)
        squared = normal @ normal
        offset = points - a
        u = np.cross(b - a, offset) @ normal / squared
        v = np.cross(offset, c - a) @ normal / squared
        within = (u > -1e-9) & (v > -1e-9) & (u + v < 1.0 + 1e-9)
        height = np.abs(offset @ normal) / np.sqrt(squared)
        nearest = np.where(within, np.minimum(nearest, height), nearest)
    return nearest


@pytest.fixture(scope="module")
def hair() -> Curves:
    return grooms.groom(STRANDS, VERTICES, 0.25)


@pytest.fixture(scope="module")
def head() -> Surface:
    return grooms.head_mesh()


@pytest.fixture(scope="module")
def meadow() -> tuple[Surface, Curves]:
    return meadows.meadow(300, 9)


@pytest.fixture(scope="module")
def braid() -> Curves:
    return braids.braid(20, 80)


# -- the head ----------------------------------------------------------------------------------


def test_the_head_is_closed_and_of_human_size(head):
    assert head.check("head") == []  # closed, manifold, no flat faces
    assert 1500 < head.primitive_count < 3000
    assert head.point_count - head.edges().shape[0] + head.primitive_count == 2  # Euler: a ball
    assert 0.003 < enclosed_volume(head) < 0.006  # m^3; positive: faces look outwards
    assert head.positions[:, 1].max() == pytest.approx(0.12, abs=0.003)
    # the nose is the foremost point
    assert abs(head.positions[np.argmax(head.positions[:, 2])][0]) < 0.01


def test_the_field_of_the_head_is_a_distance_near_it(head):
    np.testing.assert_allclose(grooms.head_distance(head.positions), 0.0, atol=1e-6)
    outside = head.positions + 0.005 * grooms.head_normals(head.positions)
    assert np.all(grooms.head_distance(outside) > 0.003)


def test_the_head_moves_rigidly_from_rest():
    at_rest = np.column_stack((np.eye(3), np.zeros(3)))
    for frame in range(6):
        np.testing.assert_allclose(grooms.head_motion(frame, 24.0), at_rest, atol=1e-12)
    frames = np.array([grooms.head_motion(f, 240.0) for f in range(960)])
    rotation = frames[:, :, :3]
    products = rotation @ rotation.transpose(0, 2, 1)
    np.testing.assert_allclose(products, np.broadcast_to(np.eye(3), (960, 3, 3)), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(rotation), 1.0, atol=1e-12)
    pivot = frames[:, :, :3] @ np.array(grooms.PIVOT) + frames[:, :, 3]
    np.testing.assert_allclose(pivot - np.array(grooms.PIVOT), 0.0, atol=1e-12)
    turned = np.degrees(np.arctan2(frames[:, 0, 2], frames[:, 2, 2]))
    assert turned.max() > 30.0 and turned.min() < -30.0
    # smooth: no jump of speed [rad per frame^2] anywhere, also when it begins
    assert np.abs(np.diff(rotation, n=2, axis=0)).max() < 3e-4


# -- hair --------------------------------------------------------------------------------------


def test_roots_lie_on_the_scalp_evenly(hair, head):
    roots = strands_of(hair)[:, 0]
    assert distance_to_triangles(roots, head).max() < 1e-9
    face = (roots[:, 2] > 0.06) & (roots[:, 1] < 0.05)
    assert not face.any()
    apart = np.linalg.norm(roots[:, None] - roots[None], axis=2) + np.eye(len(roots))
    nearest = apart.min(axis=1)
    # of random places the nearest neighbours are anywhere between 0 and twice the mean
    assert nearest.min() > 0.6 * nearest.mean()


def test_hair_begins_along_the_normal_and_stays_outside(hair, head):
    strands = strands_of(hair)
    first = strands[:, 1] - strands[:, 0]
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    np.testing.assert_allclose(first, grooms.head_normals(strands[:, 0]), atol=1e-9)
    free = strands[:, 1:].reshape(-1, 3)
    assert grooms.head_distance(free).min() >= grooms.CLEARANCE
    assert np.abs(winding(free, head)).max() < 1e-6
    assert strands[:, -1, 1].mean() < strands[:, 0, 1].mean() - 0.1  # it hangs
    assert strands[:, -1, 2].mean() < strands[:, 0, 2].mean() - 0.02  # it is combed back


def test_hair_follows_the_head_rigidly(hair, head):
    moved = grooms.attached(hair, grooms.head_motion(30, 24.0))
    np.testing.assert_allclose(segment_lengths(moved), segment_lengths(hair), rtol=1e-9)
    roots = strands_of(moved)[:, 0]
    there = grooms.attached(head, grooms.head_motion(30, 24.0))
    assert distance_to_triangles(roots, there).max() < 1e-9
    np.testing.assert_array_equal(
        moved.channels["point"]["radius"], hair.channels["point"]["radius"]
    )


# -- grass -------------------------------------------------------------------------------------


def test_grass_stands_on_the_ground(meadow):
    ground, grass = meadow
    blades = strands_of(grass)
    roots = blades[:, 0]
    np.testing.assert_allclose(meadows.ground_height(roots[:, [0, 2]]), roots[:, 1], atol=1e-12)
    assert distance_to_triangles(roots, ground).max() < 1e-9
    np.testing.assert_allclose(ground.bounds()[:, [0, 2]], [[-1.0, -1.0], [1.0, 1.0]])
    assert np.all(ground.area_vectors()[:, 1] > 0.0)
    lengths = segment_lengths(grass).sum(axis=1)
    assert lengths.min() >= meadows.SHORTEST - 1e-9 and lengths.max() <= meadows.LONGEST + 1e-9
    above = blades[:, 1:].reshape(-1, 3)
    inside = np.all(np.abs(above[:, [0, 2]]) < 1.0, axis=1)
    assert np.all(above[inside, 1] > meadows.ground_height(above[inside][:, [0, 2]]))
    bent = np.diff(blades, axis=1)[:, [0, -1], 1] / segment_lengths(grass)[:, [0, -1]]
    assert np.all(bent[:, 1] < bent[:, 0] - 0.05)  # each leans more at its tip


# -- the braid ---------------------------------------------------------------------------------


def test_a_braid_hangs_from_a_point_and_ends_in_a_tie(braid):
    strands = strands_of(braid)
    np.testing.assert_allclose(strands[:, 0, 1], 0.0, atol=0.005)
    assert np.linalg.norm(strands[:, 0], axis=1).max() < 0.008
    assert strands[:, :, 1].min() == pytest.approx(-braids.LENGTH, abs=0.01)
    held = braid.channels["point"]["tied"].reshape(len(strands), -1)
    assert held.any(axis=1).all()  # every strand goes through the tie
    around = np.linalg.norm(strands[held][:, [0, 2]], axis=1)
    assert around.max() < braids.TIE_RADIUS + braids.TIE_THICKNESS
    ring = braids.tie()
    assert ring.check("tie") == [] and enclosed_volume(ring) > 0.0


def test_plies_cross_over_and_under_in_turn(braid):
    strands, ply = strands_of(braid), braid.channels["primitive"]["ply"]
    core = np.stack([strands[ply == k].mean(axis=0) for k in range(3)])
    heights = np.linspace(-0.06, -0.28, 400)
    x, z = (
        np.stack([np.interp(-heights, -one[:, 1], one[:, axis]) for one in core]) for axis in (0, 2)
    )
    order = np.argsort(x, axis=0)
    changes = np.flatnonzero(np.any(np.diff(order, axis=1) != 0, axis=0))
    # three plies make six crossings in a period
    assert len(changes) == pytest.approx(6 * 0.22 / braids.PERIOD, abs=1.5)
    fronts = []
    for at in changes:
        swapped = np.flatnonzero(order[:, at] != order[:, at + 1])
        pair = order[swapped, at]
        assert abs(z[pair[0], at] - z[pair[1], at]) > 0.7 * braids.HALF_DEPTH  # one is in front
        fronts.append(int(pair[np.argmax(z[pair, at])]))
    assert set(fronts) == {0, 1, 2}


# -- all of them -------------------------------------------------------------------------------


def test_strands_are_finite_even_and_thinner_at_the_tip(hair, meadow, braid):
    for curves in (hair, meadow[1], braid):
        assert curves.check("curves") == []
        lengths = segment_lengths(curves)
        mean = lengths.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(lengths / mean, 1.0, atol=0.01)
        radius = curves.channels["point"]["radius"].reshape(curves.primitive_count, -1)
        assert np.all(radius > 0.0) and np.all(np.diff(radius, axis=1) <= 0.0)
        np.testing.assert_array_equal(
            curves.channels["primitive"]["id"], np.arange(curves.primitive_count)
        )


def test_the_same_call_gives_the_same_strands(hair, meadow, braid):
    again = grooms.groom(STRANDS, VERTICES, 0.25), meadows.meadow(300, 9)[1], braids.braid(20, 80)
    for one, other in zip((hair, meadow[1], braid), again, strict=True):
        np.testing.assert_array_equal(one.positions, other.positions)


@pytest.mark.parametrize("vertices", [2, 5, 40])
def test_strands_have_as_many_vertices_as_asked_for(vertices):
    for curves, count in (
        (grooms.groom(7, vertices, 0.2), 7),
        (meadows.meadow(5, vertices)[1], 5),
        (braids.braid(2, max(vertices, 5)), 6),
    ):
        assert curves.primitive_count == count
        assert np.isfinite(curves.positions).all()
