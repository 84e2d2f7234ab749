"""Contact detection: points of solids against the signed distance of colliders (paper, 6.3).

A contact may begin at every vertex and at some points along every edge, which two vertices carry:

    x = w_0 x_0 + w_1 x_1,     separation = distance(x) - (radius + thickness)

Of several colliders the nearest counts. Normals are differences of the distance over a voxel, so
that they turn smoothly. A point that is deeper than the distance is known goes back to the place
where its way of this step went in. What is inside is told by winding numbers
(`objects/colliders/signed_distance.py`), so holes in a collider's mesh are closed as well as can
be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loki_core.objects.basics.capabilities import Edges, SolvedPoints
from loki_core.objects.colliders.body_collider import BodyCollider
from loki_core.objects.solids.embedded_points import LocalPoints
from loki_core.objects.solids.unknowns import POSITION

Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

#: Part of the band up to which a distance is believed; at its end it stands still.
BELIEVED = 0.98
BISECTIONS = 16  # of the way into a solid
#: Gradients of the distance below this have no direction.
FLAT = 0.3


def contact_points(target: SolvedPoints, samples: int) -> tuple[LocalPoints, Int64, Int64]:
    """Find where contacts may be: at all points of an Object, and at some inside of every edge.

    Returns:
        The places, body by body; the row of the vertex, or of the edge, of each, [n]; and -1 at a
        vertex, else which place of the edge, [n].
    """
    vertices = np.arange(target.particles.count, dtype=np.int64)
    carriers, weights = [np.stack((vertices, vertices), axis=1)], [np.ones((len(vertices), 2))]
    weights[0][:, 1] = 0.0
    row, place = [vertices], [np.full(len(vertices), -1, np.int64)]
    if samples and isinstance(target, Edges):
        edges = np.arange(len(target.edge_vertices), dtype=np.int64)
        for number in range(samples):
            part = (number + 1.0) / (samples + 1.0)
            carriers.append(target.edge_vertices)
            weights.append(np.tile([1.0 - part, part], (len(edges), 1)))
            row.append(edges)
            place.append(np.full(len(edges), number, np.int64))
    rows = np.concatenate(carriers).astype(np.int64)
    order = np.argsort(target.unknowns.body_of(POSITION)[rows[:, 0]], kind="stable")
    shares = np.ascontiguousarray(np.concatenate(weights)[order])
    points = LocalPoints(target, rows[order], shares)
    return points, np.concatenate(row)[order], np.concatenate(place)[order]


@dataclass
class Contacts:
    """Places that are near a collider, with what is known of it there.

    Attributes:
        site: Which places, ascending, shape [n].
        thickness: Distance from the collider that they keep [m], shape [n].
        collider: Which collider is the nearest, shape [n].
        distance: From it [m], shape [n].
        normal: Away from it, shape [n, 3].
        velocity: Its own at the nearest point [m/s], shape [n, 3].
    """

    site: Int64
    thickness: Float
    collider: Int64
    distance: Float
    normal: Float
    velocity: Float

    @property
    def count(self) -> int:
        return len(self.site)

    @property
    def separation(self) -> Float:
        gap: Float = self.distance - self.thickness
        return gap


def detect(
    colliders: Sequence[BodyCollider], position: Float, start: Float, thickness: Float
) -> Contacts:
    """Return the places that may touch a collider in this step.

    Args:
        position, start: Where they are expected at the step's end, and where it began, [n, 3] m.
        thickness: Distance that they keep [m], shape [n].
    """
    distance = np.full(len(position), np.inf)
    nearest = np.zeros(len(position), np.int64)
    known = np.zeros(len(position))
    for number, collider in enumerate(colliders):
        found = collider.field.sample(position).distance
        better = found < distance
        distance[better], nearest[better] = found[better], number
        known[better] = BELIEVED * collider.field.band
    # What may come on the way: forces act within the step, and a voxel is near.
    moved = np.linalg.norm(position - start, axis=1)
    voxel = max((one.field.voxel_size for one in colliders), default=0.0)
    near = distance < np.minimum(thickness + moved + 2.0 * voxel, known)
    site = np.flatnonzero(near)
    count = len(site)
    return Contacts(
        site, thickness[near], nearest[near], distance[near], np.zeros((count, 3)),
        np.zeros((count, 3)),
    )  # fmt: skip


def measure(
    colliders: Sequence[BodyCollider], contacts: Contacts, position: Float, start: Float
) -> None:
    """Fill distances, normals and velocities of contacts at positions [n, 3] m."""
    for number, collider in enumerate(colliders):
        rows = np.flatnonzero(contacts.collider == number)
        if len(rows) == 0:
            continue
        found = collider.field.sample(position[rows])
        normal, steepness = _normals(collider, position[rows])
        distance = found.distance
        lost = (steepness < FLAT) | (distance < -BELIEVED * collider.field.band)
        if np.any(lost):
            distance[lost], normal[lost] = _way_in(
                collider, start[rows[lost]], position[rows[lost]]
            )
        contacts.distance[rows], contacts.normal[rows] = distance, normal
        contacts.velocity[rows] = found.velocity


def _way_in(collider: BodyCollider, start: Float, end: Float) -> tuple[Float, Float]:
    """Distances of ends below the surface where their ways from outside go in, and its normals.

    Those that begin inside have no way in: they get a distance without end.
    """
    distance, normals = np.full(len(start), np.inf), np.zeros((len(start), 3))
    outside = np.flatnonzero(collider.field.sample(start).distance > 0.0)
    start, end = start[outside], end[outside]
    before, after = np.zeros(len(start)), np.ones(len(start))
    for _ in range(BISECTIONS if len(start) else 0):
        middle = 0.5 * (before + after)
        places = start + middle[:, None] * (end - start)
        passed = collider.field.sample(places).distance < 0.0
        after, before = np.where(passed, middle, after), np.where(passed, before, middle)
    place = start + before[:, None] * (end - start)
    normal, steepness = _normals(collider, place)
    known = steepness >= FLAT
    depth = np.einsum("na,na->n", normal, end - place)
    distance[outside[known]], normals[outside[known]] = depth[known], normal[known]
    return distance, normals


def _normals(collider: BodyCollider, position: Float) -> tuple[Float, Float]:
    """Directions away from a collider, and how steep its distance is there."""
    count, half = len(position), 0.5 * collider.field.voxel_size
    offsets = half * np.concatenate((np.eye(3), -np.eye(3)))
    places = (position[None] + offsets[:, None]).reshape(-1, 3)
    sampled = collider.field.sample(places).distance.reshape(6, count)
    gradient = ((sampled[:3] - sampled[3:]) / (2.0 * half)).T
    steepness = np.linalg.norm(gradient, axis=1)
    normal: Float = gradient / np.maximum(steepness, 1e-30)[:, None]
    return normal, steepness
