"""Strands between simulated ones: they stay among their parents and move as these do."""

from __future__ import annotations

import numpy as np

from loki_core.data.curves import Curves
from loki_vfx.bridges.blender.gallery.strand_children import Children


def meadow(shift: float = 0.0) -> Curves:
    place = np.stack(np.meshgrid(np.arange(6.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    strands = np.zeros((30, 4, 3))
    strands[:, :, [0, 2]] = place[:, None]
    strands[:, :, 1] = np.arange(4.0)
    strands[:, :, 0] += shift * np.arange(4.0)
    return Curves.from_strands(strands)


def test_children_lie_between_parents_that_are_near() -> None:
    children = Children.between(meadow(), 500, astray=0.0, radius=(2.0e-4, 1.0e-4))
    np.testing.assert_allclose(children.weights.sum(axis=1), 1.0)
    roots = meadow().positions.reshape(30, 4, 3)[:, 0]
    apart = np.linalg.norm(roots[children.parents] - roots[children.parents[:, :1]], axis=2)
    assert apart.max() <= 3.0  # the eight nearest, also at a corner
    made = children.of(meadow())
    assert (made.primitive_count, made.point_count) == (500, 5000)
    lower, upper = made.bounds()
    assert (lower >= -1e-6).all() and (upper <= (5.0 + 1e-6, 3.0 + 1e-6, 4.0 + 1e-6)).all()
    radius = made.channels["point"]["radius"].reshape(500, 10)
    np.testing.assert_allclose(radius[:, [0, -1]], np.tile((2.0e-4, 1.0e-4), (500, 1)), rtol=1e-6)


def test_children_lean_as_their_parents_do() -> None:
    children = Children.between(meadow(), 200, astray=0.05, radius=(1.0e-4, 1.0e-4))
    upright, leaning = (children.of(meadow(shift)).positions for shift in (0.0, 0.25))
    moved = (leaning - upright).reshape(200, 10, 3)
    expected = np.linspace(0.0, 0.75, 10)[:, None] * (1.0, 0.0, 0.0)
    np.testing.assert_allclose(moved, np.broadcast_to(expected, moved.shape), atol=1e-5)
    straight = Children.between(meadow(), 200, astray=0.0, radius=(1.0e-4, 1.0e-4))
    plain = straight.of(meadow()).positions.reshape(200, 10, 3)
    astray = upright.reshape(200, 10, 3) - plain
    np.testing.assert_allclose(astray[:, 0], 0.0, atol=1e-6)  # roots stay
    assert 0.01 < np.linalg.norm(astray[:, -1], axis=1).mean() < 0.3
