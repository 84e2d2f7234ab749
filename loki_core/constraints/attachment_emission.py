"""Emission of attachments: which points of two geometries belong together (paper, 6.3).

    explicit       the user's list: edges of a Wireframe, or points with two numbers
    closest        every source point with the nearest point of the target
    within_range   every source point with the nearest point of all target primitives in range

Two points of one Object are joined once, not once from either side.

The queries are written once for each kind of boundary: triangles, edges, points. Both geometries
are whole on every rank here, so that all ranks find the same pairs in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import GridDomain
from loki_core.data.points import Points
from loki_core.data.wireframe import Wireframe
from loki_core.errors import InputError
from loki_core.kernels.colliders.triangle_tree import build_tree
from loki_core.kernels.solids.attachments import nearest_triangles
from loki_core.objects.basics.capabilities import SolvedPoints

Array = NDArray[Any]
Int64 = NDArray[np.int64]
Float = NDArray[np.float64]

CORNER = 1e-9  # weights of other corners below which a place is a corner


@dataclass(frozen=True)
class Spots:
    """Places on a geometry.

    Attributes:
        primitive: On which they are, [n].
        weights: Shares of its corners, [n, k].
    """

    primitive: Int64
    weights: Float

    def __getitem__(self, rows: Any) -> Spots:
        return Spots(self.primitive[rows], self.weights[rows])

    @property
    def count(self) -> int:
        return len(self.primitive)


@dataclass(frozen=True)
class Geometry:
    """What queries see of an Object or of host geometry.

    Attributes:
        places: Of all points, [points, 3], relative to the domain's origin.
        primitives: Points of triangles, edges or bare points, [m, 3, 2 or 1].
        bodies: Body of each point where points of one body do not attract each other, or None.
        attached: Points that take part as sources.
        names: What points are called where that is not their place in the list: the ids of
            particles, ascending, which are born and die. Each of them is a primitive.
    """

    places: Float
    primitives: Int64
    bodies: Int64 | None
    attached: NDArray[np.bool_]
    names: Int64 | None = None

    def named(self, numbers: Int64) -> Int64:
        """What points, or primitives, of these numbers are called."""
        return numbers if self.names is None else self.names[numbers]

    def at_points(self, points: Int64) -> Spots:
        """Points of the geometry as spots; those that no primitive has are left out."""
        count, k = self.primitives.shape
        first = np.full(len(self.places), -1, np.int64)
        # The lowest primitive that begins with the point, else the lowest that has it.
        for corner in range(k - 1, -1, -1):
            first[self.primitives[::-1, corner]] = np.arange(count)[::-1] * k + corner
        found = first[points]
        found = found[found >= 0]
        return Spots(found // k, np.eye(k)[found % k])

    def places_of(self, spots: Spots) -> Float:
        """Where spots are, [n, 3]."""
        corners = self.places[self.primitives[spots.primitive]]
        found: Float = np.einsum("nk,nka->na", spots.weights, corners)
        return found

    def points_of(self, spots: Spots) -> Int64:
        """The point with the largest share of each spot."""
        corners = self.primitives[spots.primitive]
        which = np.argmax(spots.weights, axis=1)[:, None]
        return np.take_along_axis(corners, which, axis=1)[:, 0]


def attached_points(stream: Any, *, label: str) -> NDArray[np.bool_]:
    """The group of points that take part: all, or those with `attached` not 0."""
    given = stream.channels["point"].get("attached")
    if given is None:
        return np.ones(stream.point_count, bool)
    if given.ndim != 1:
        raise InputError(f'{label}: channel "attached" has {given.shape[1]} values a point, not 1')
    return np.asarray(given != 0)


def geometry_of(item: SolvedPoints) -> Geometry:
    """An Object as it is now, whole on every rank, its points in the order of ids. Collective."""
    ids, places, attached = _gathered(item)
    primitives, bodies, has_names = item.attachable(ids)
    return Geometry(places, primitives, bodies, attached, ids if has_names else None)


def _gathered(item: SolvedPoints) -> tuple[Int64, Float, NDArray[np.bool_]]:
    """Ids of all points in their order, places, and which take part. Collective."""
    particles, comm = item.particles, item.scope.domain.comm
    parts = [particles.local("id"), particles.local("position").reshape(-1)]
    if "attached" in particles.channels:
        shape = particles.channel("attached").shape
        if shape:
            raise InputError(
                f'{item.path}: channel "attached" has {shape[0]} values a point, not 1'
            )
        parts.append(particles.local("attached") != 0)
    ids, flat, *attached = (
        np.concatenate(comm.all_gather(np.ascontiguousarray(part))) for part in parts
    )
    order, count = np.argsort(ids), len(ids)
    chosen = attached[0][order] if attached else np.ones(count, bool)
    return ids[order], flat.reshape(-1, 3)[order], chosen


def find_pairs(
    source: Geometry,
    target: Geometry,
    *,
    emission: str,
    reach: float | None,
    pairs: Any,
    domain: GridDomain,
    same: bool,
    label: str,
    complete: bool = True,
) -> tuple[Spots, Spots]:
    """Return spots of the source and of the target that belong together.

    Args:
        reach: Largest distance [m], or None.
        pairs: The user's list, a stream, for explicit emission.
        domain: In which places are relative.
        same: Whether both are one Object: then points of one body are not paired by distance.
        label: What messages call that list.
        complete: Whether all that the list names has to be there; if not, pairs wait for it.

    Raises:
        InputError: The user's list is not one.
    """
    if emission == "explicit":
        return _explicit(source, target, pairs, domain, complete, label=label)
    spots = source.at_points(np.flatnonzero(source.attached))
    points = source.places_of(spots)
    bodies = source.bodies[source.points_of(spots)] if same and source.bodies is not None else None
    if emission == "closest" and bodies is None:
        which, found = _closest(target, points, np.inf if reach is None else reach)
    else:
        assert reach is not None  # the Behavior asks for it
        which, found, distance = _within(target, points, reach)
        if bodies is not None and target.bodies is not None:
            other = bodies[which] != target.bodies[target.points_of(found)]
            which, found, distance = which[other], found[other], distance[other]
        if emission == "closest":
            order = np.lexsort((found.primitive, distance, which))
            first = order[np.unique(which[order], return_index=True)[1]]
            which, found = which[first], found[first]
    if same:
        rows = _one_way(source, spots[which], found)
        which, found = which[rows], found[rows]
    return spots[which], found


def _one_way(geometry: Geometry, one: Spots, two: Spots) -> Int64:
    """Rows without those that join two points of a geometry the other way round once more."""
    a, b = geometry.points_of(one), geometry.points_of(two)
    key = np.minimum(a, b) * len(geometry.places) + np.maximum(a, b)
    corner = two.weights.max(axis=1, initial=0.0) >= 1.0 - CORNER
    rows = np.arange(one.count)
    _, first = np.unique(key[corner], return_index=True)
    kept: Int64 = np.sort(np.concatenate((rows[~corner], rows[corner][first])))
    return kept


# -- explicit ------------------------------------------------------------------------------------


def _explicit(
    source: Geometry,
    target: Geometry,
    pairs: Any,
    domain: GridDomain,
    complete: bool,
    *,
    label: str,
) -> tuple[Spots, Spots]:
    """Pairs by number where channels `source_id` and `target_id` are, else by nearness."""
    if not isinstance(pairs, (Wireframe, Points)):
        raise InputError(f"{label} is a {type(pairs).__name__}; a Wireframe or Points are expected")
    given = pairs.channels["primitive" if isinstance(pairs, Wireframe) else "point"]
    if "source_id" in given and "target_id" in given:
        sides = ((source, "source_id"), (target, "target_id"))
        numbers = [
            _numbers(geometry, given[name], complete, f'{label}: channel "{name}"')
            for geometry, name in sides
        ]
        both = (numbers[0] >= 0) & (numbers[1] >= 0)
        one, two = (
            _spots_of(geometry, found[both], f'{label}: channel "{name}"')
            for (geometry, name), found in zip(sides, numbers, strict=True)
        )
        return one, two
    if not isinstance(pairs, Wireframe):
        raise InputError(
            f'{label}: point channels "source_id" and "target_id" are missing; a Wireframe could '
            "do without them"
        )
    ends = domain.to_relative(np.asarray(pairs.positions, np.float64))[pairs.edge_points]
    points = np.intersect1d(np.flatnonzero(source.attached), source.primitives)
    which, nearest = _closest(_bare(source.places[points]), ends[:, 0], np.inf)
    there, spots = _closest(target, ends[:, 1], np.inf)
    if len(which) < len(ends) or len(there) < len(ends):
        if not complete:
            return source.at_points(points[:0]), spots[:0]
        raise InputError(f"{label}: there is nothing that its {len(ends)} edges could join")
    return source.at_points(points[nearest.primitive]), spots


def _bare(places: Float) -> Geometry:
    """Points alone."""
    count = len(places)
    return Geometry(places, np.arange(count)[:, None], None, np.ones(count, bool))


def _numbers(geometry: Geometry, values: Array, complete: bool, label: str) -> Int64:
    """Which points are meant; -1 for particles that are not there, where they may be missing."""
    count = len(geometry.places)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InputError(f"{label} is {values.dtype}{list(values.shape)}; one integer is expected")
    found = values.astype(np.int64)
    if geometry.names is not None:
        place = np.searchsorted(geometry.names, found)
        is_there = np.append(geometry.names, -1)[place] == found
        found = np.where(is_there, place, -1).astype(np.int64)
    may_miss = geometry.names is not None and not complete
    wrong = values < 0 if may_miss else (found < 0) | (found >= count)
    if np.any(wrong):
        row = int(np.argmax(wrong))
        points = "points" if geometry.names is None else "particles that are there"
        raise InputError(f"{label}[{row}] = {int(values[row])} is not one of {count} {points}")
    return found


def _spots_of(geometry: Geometry, points: Int64, label: str) -> Spots:
    """Points by number, as spots."""
    spots = geometry.at_points(points)
    if spots.count < len(points):
        raise InputError(f"{label} names points that no primitive has")
    return spots


# -- by distance ---------------------------------------------------------------------------------


def _closest(target: Geometry, points: Float, reach: float) -> tuple[Int64, Spots]:
    """(which points, the spot of the target nearest to each), for those within reach."""
    k = target.primitives.shape[1]
    if not len(target.primitives) or not len(points):
        return np.empty(0, np.int64), Spots(np.empty(0, np.int64), np.empty((0, k)))
    if k == 3:
        return _closest_triangles(target, points, reach)
    from scipy.spatial import cKDTree

    used = np.unique(target.primitives)
    bound, nearest = cKDTree(target.places[used]).query(points)
    if k == 1:
        which = np.flatnonzero(bound <= reach)
        return which, target.at_points(used[nearest[which]])
    bound = np.minimum(bound * (1.0 + 1e-12), reach)
    which, spots, distance = _within(target, points, bound)
    order = np.lexsort((spots.primitive, distance, which))
    which, first = np.unique(which[order], return_index=True)
    return which, spots[order[first]]


def _closest_triangles(target: Geometry, points: Float, reach: float) -> tuple[Int64, Spots]:
    corners = np.ascontiguousarray(target.places[target.primitives].reshape(-1, 9))
    tree = build_tree(corners)
    n = len(points)
    found, distance2 = np.empty(n, np.int64), np.empty(n)
    v, w = np.empty(n), np.empty(n)
    bound2 = np.full(n, np.nextafter(min(reach, 1e100) ** 2, np.inf))
    nearest_triangles(tree.corners, tree.box, points, bound2, found, distance2, v, w)
    which = np.flatnonzero(found >= 0)
    weights = np.stack((np.maximum(1.0 - v - w, 0.0), v, w), axis=1)[which]
    return which, Spots(tree.triangle[found[which]].astype(np.int64), weights)


def _within(target: Geometry, points: Float, reach: float | Float) -> tuple[Int64, Spots, Float]:
    """(which points, spots, distances [m]) of all primitives in reach; a corner counts once."""
    from scipy.spatial import cKDTree

    k = target.primitives.shape[1]
    corners = target.places[target.primitives]
    if not len(corners) or not len(points):
        return np.empty(0, np.int64), Spots(np.empty(0, np.int64), np.empty((0, k))), np.empty(0)
    centres = corners.mean(axis=1)
    radius = float(np.linalg.norm(corners - centres[:, None], axis=2).max())
    reaches = np.broadcast_to(np.asarray(reach, np.float64), len(points))
    tree = cKDTree(centres)
    lists = tree.query_ball_point(points, reaches + radius * (1.0 + 1e-12), return_sorted=True)
    counts = np.array([len(one) for one in lists], np.int64)
    which = np.repeat(np.arange(len(points)), counts)
    primitive = np.concatenate([np.empty(0, np.int64), *lists]).astype(np.int64)
    weights = _nearest_weights(points[which], corners[primitive])
    spots = Spots(primitive, weights)
    distance = np.linalg.norm(target.places_of(spots) - points[which], axis=1)
    near = distance <= reaches[which]
    which, spots, distance = which[near], spots[near], distance[near]
    once = _once(target, which, spots)
    return which[once], spots[once], distance[once]


def _once(target: Geometry, which: Int64, spots: Spots) -> Int64:
    """Rows without those whose place is a corner that another primitive has given already."""
    rows = np.arange(spots.count)
    corner = spots.weights.max(axis=1, initial=0.0) >= 1.0 - CORNER
    points = len(target.places)
    key = which * points + target.points_of(spots)
    _, first = np.unique(key[corner], return_index=True)
    keep = ~corner
    keep[rows[corner][first]] = True
    kept: Int64 = rows[keep]
    return kept


def _nearest_weights(points: Float, corners: Float) -> Float:
    """Weights [n, k] of the nearest point of each primitive, corners [n, k, 3]."""
    n, k = corners.shape[:2]
    if k == 1:
        return np.ones((n, 1))
    if k == 2:
        return _on_segment(points, corners[:, 0], corners[:, 1])
    inside = _on_plane(points, corners)
    over = inside.min(axis=1) >= 0.0
    weights = np.where(over[:, None], inside, 0.0)
    best = np.where(over, 0.0, np.inf)
    for a, b in ((0, 1), (1, 2), (2, 0)):
        along = _on_segment(points, corners[:, a], corners[:, b])
        place = along[:, :1] * corners[:, a] + along[:, 1:] * corners[:, b]
        distance = np.linalg.norm(place - points, axis=1)
        better = distance < best
        best = np.where(better, distance, best)
        candidate = np.zeros((n, 3))
        candidate[:, a], candidate[:, b] = along[:, 0], along[:, 1]
        weights = np.where(better[:, None], candidate, weights)
    return weights


def _on_segment(points: Float, one: Float, two: Float) -> Float:
    edge = two - one
    square = np.einsum("na,na->n", edge, edge)
    along = np.einsum("na,na->n", points - one, edge)
    part = np.clip(np.divide(along, square, out=np.zeros(len(along)), where=square > 0.0), 0.0, 1.0)
    return np.stack((1.0 - part, part), axis=1)


def _on_plane(points: Float, corners: Float) -> Float:
    """Barycentric coordinates of the foot on each plane; -1 where there is no area."""
    one, two = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    to = points - corners[:, 0]
    normal = np.cross(one, two)
    square = np.einsum("na,na->n", normal, normal)
    good = square > 1e-24 * np.einsum("na,na->n", one, one) * np.einsum("na,na->n", two, two)
    scale = np.where(good, square, 1.0)
    v = np.einsum("na,na->n", np.cross(to, two), normal) / scale
    w = np.einsum("na,na->n", np.cross(one, to), normal) / scale
    found = np.stack((1.0 - v - w, v, w), axis=1)
    found[~good] = -1.0
    return found
