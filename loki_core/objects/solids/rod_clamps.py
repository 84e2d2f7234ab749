"""What is prescribed of rods: points that follow the input, and edges whose frames follow it.

A clamped edge has a direction from its two points, but its spin about that direction shows only
elsewhere: in the `normal` of its strand, if the input has one, or in the point of the strand that
lies farthest from the edge's line. That director turns with the input, and the material frame with
it, so that hair on a head that turns is not twisted at its roots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from loki_core.data.curves import Curves
from loki_core.objects.solids.goals import goals

if TYPE_CHECKING:
    from loki_core.objects.solids.curves import Rods

Float = NDArray[np.float64]
STRAIGHT = 1e-3  # of an edge's length: a strand nearer to its line shows no spin


def pin(rods: Rods, stream: Curves) -> None:
    """Mark prescribed vertices and edges; find how much of each joint may bend."""
    rods.pin_points(stream)
    pinned, edge_pinned = rods.particles.local("pinned"), rods.edges.local("pinned")
    roots = rods.offsets[:-1][rods.closed == 0]
    if rods.behavior.root != "free":
        pinned[roots] = 1
    if rods.behavior.root == "clamped":
        pinned[roots + 1] = 1
    both = np.all(pinned[rods.edge_vertices] != 0, axis=1)
    edge_pinned[:] = both
    if "twist_pinned" in stream.channels["point"]:
        ids = rods.particles.local("id")
        given = rods.point_channel(stream, "twist_pinned", ())[ids] != 0
        edge_pinned[:] |= given[rods.edge_vertices[:, 0]]
    rest = rods.edges.local("rest_length")
    half = np.where(both, 0.0, 0.5 * rest)
    length = half[rods.joint_edges].sum(axis=1)
    whole = 0.5 * rest[rods.joint_edges].sum(axis=1)
    length = np.where(length > 0.0, length, whole)
    if not np.array_equal(length, rods.joints.local("length")):
        rods.joints.local("length")[:] = length
        rods.parameter_version += 1
    rods.particles.mark_written("pinned")
    rods.edges.mark_written("pinned")


def start_directors(rods: Rods) -> None:
    """Keep where edges point before the input moves them for the first time."""
    if "director" not in rods.edges.channels:
        _find_directors(rods)


def take_directors(rods: Rods) -> None:
    """Let prescribed edges turn with the goals of a new frame."""
    edges = rods.edges
    edges.local("director_before")[:] = edges.local("director")
    edges.local("director")[:] = _directors(rods, rods.particles.local("goal"))


def _find_directors(rods: Rods) -> None:
    """Choose what shows the spin of each edge, and where the material frame is against it."""
    edges, goal = rods.edges, rods.particles.local("goal")
    for name in ("director", "director_before"):
        edges.add_channel(name, np.float64, (3,))
    edges.add_channel("director_angle", np.float64)
    edges.add_channel("director_point", np.int64, default=-1)
    first = goal[rods.edge_vertices[:, 0]]
    along = _unit(goal[rods.edge_vertices[:, 1]] - first)
    point = edges.local("director_point")
    farthest = STRAIGHT * edges.local("rest_length")
    strand = np.repeat(np.arange(len(rods.offsets) - 1), np.diff(rods.edge_offsets))
    count = np.diff(rods.offsets)[strand]
    for local in range(int(np.diff(rods.offsets).max(initial=0))):
        row = rods.offsets[strand] + np.minimum(local, count - 1)
        between = goal[row] - first
        between -= np.einsum("na,na->n", between, along)[:, None] * along
        distance = np.linalg.norm(between, axis=1)
        better = distance > farthest
        farthest = np.where(better, distance, farthest)
        point[:] = np.where(better, row - rods.offsets[strand], point)
    edges.local("director")[:] = _directors(rods, goal)
    edges.local("director_angle")[:] = 0.0
    edges.local("director_angle")[:] = edges.local("angle") - _angle_of_directors(
        rods, edges.local("director"), edges.local("angle")
    )


def _directors(rods: Rods, places: Float) -> Float:
    """What shows the spin of every edge, with its part along the edge; zero where nothing does."""
    strand = np.repeat(np.arange(len(rods.offsets) - 1), np.diff(rods.edge_offsets))
    if "normal" in rods.topology.channels:
        normal = rods.topology.channels["normal"][rods.local_bodies]
        spread: Float = normal[strand].astype(np.float64)
        return spread
    point = rods.edges.local("director_point")
    row = rods.offsets[strand] + np.maximum(point, 0)
    between: Float = places[row] - places[rods.edge_vertices[:, 0]]
    between[point < 0] = 0.0
    return between


def _angle_of_directors(rods: Rods, director: Float, near: Float) -> Float:
    """Material angle that the directors ask for: the one nearest to the given, or that itself."""
    edges = rods.edges
    tangent, first = edges.local("tangent"), edges.local("reference")
    second = np.cross(tangent, first)
    x = np.einsum("na,na->n", director, first)
    y = np.einsum("na,na->n", director, second)
    angle = np.arctan2(y, x) + edges.local("director_angle")
    angle += 2.0 * np.pi * np.round((near - angle) / (2.0 * np.pi))
    return np.where(np.hypot(x, y) > 0.0, angle, near)


def turn_clamps(rods: Rods, part: float) -> None:
    """Let the base angle of prescribed edges follow the input at a part of the frame."""
    edges = rods.edges
    if "director" not in edges.channels:
        return
    before, after = edges.local("director_before"), edges.local("director")
    if rods.motion_samples() and "normal" not in rods.topology.channels:
        start, end, part = goals(rods, part)
        before, after = (_directors(rods, places) for places in (start, end))
    director = (1.0 - part) * before + part * after
    base = edges.local("base_angle")
    turned = _angle_of_directors(rods, director, base)
    held = np.all(rods.particles.local("pinned")[rods.edge_vertices] != 0, axis=1)
    base[:] = np.where(held, turned, base)


def _unit(vectors: Float) -> Float:
    unit: Float = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
