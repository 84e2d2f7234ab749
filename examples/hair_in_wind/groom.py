"""A head, how it moves, and hair on it; in metres, Y up, the face along +Z.

The head is where a smooth union of ellipsoids and a capsule is zero; its mesh is that surface, seen
from the middle, so that it is closed. Hair is grown step by step from roots that lie evenly on the
scalp: a step goes where the comb, curls and the middle of the own lock pull it, and past the head.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loki_core.data.curves import Curves
from loki_core.data.surface import Surface

Doubles = npt.NDArray[np.float64]

SUBDIVISIONS = 10  # of an edge of the icosahedron: 20 * 10^2 triangles
FINER = (0.0, -0.22, 0.38)  # towards the face triangles are smaller
BLEND = 0.022  # m over which the parts of the head run into each other
#: Middle, half axes and blend [m] of skull, jaw, brow, nose and mouth.
ELLIPSOIDS = (
    ((0.0, 0.026, -0.012), (0.076, 0.094, 0.096), BLEND),
    ((0.0, -0.058, 0.034), (0.050, 0.062, 0.052), 0.03),
    ((0.0, 0.020, 0.052), (0.050, 0.024, 0.036), BLEND),
    ((0.0, -0.022, 0.083), (0.013, 0.028, 0.023), 0.020),
    ((0.0, -0.072, 0.070), (0.024, 0.016, 0.018), 0.018),
)
EYES = ((0.033, -0.004, 0.098), (0.018, 0.012, 0.018), 0.014)  # hollows, of which one is mirrored
NECK = ((0.0, -0.04, -0.025), (0.0, -0.15, -0.04), 0.052)  # ends and radius [m]
SKIN, SCALP = (0.50, 0.30, 0.21), (0.10, 0.052, 0.026)  # linear colours
PIVOT = (0.0, -0.11, -0.03)  # m: where the head turns on the neck
REST = 0.25  # s before the head begins to move

#: Degrees from the face backwards, and the height [m] above the middle at which hair begins there.
HAIRLINE = ((0, 25, 55, 80, 115, 180), (0.078, 0.074, 0.045, -0.005, -0.045, -0.062))
CLEARANCE = 0.0012  # m between hair and head
ROOT_RADIUS = 4.0e-5  # m
TIP_PART = 0.35  # of the root's radius
CANDIDATES = 4  # places that a root is chosen from
LOCK = 20  # strands in a lock
CURL_LENGTH = 0.07  # m along a strand for one turn of its curl


# -- the head ----------------------------------------------------------------------------------


def head_mesh() -> Surface:
    """Return a closed head with jaw, nose and neck, 0.24 m from chin to crown."""
    directions, triangles = _geodesic_sphere(SUBDIVISIONS)
    directions = _unit(directions + np.array(FINER))
    near, far = np.zeros(len(directions)), np.full(len(directions), 0.4)
    for _ in range(50):  # the head is star-shaped about the origin: halve the interval
        middle = 0.5 * (near + far)
        inside = head_distance(middle[:, None] * directions) < 0.0
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    surface = Surface.from_faces(near[:, None] * directions, triangles)
    hairy = np.clip(0.5 + _above_hairline(surface.positions) / 0.012, 0.0, 1.0)[:, None]
    surface.set_channel("point", "Cd", (1.0 - hairy) * np.array(SKIN) + hairy * np.array(SCALP))
    return surface


def head_distance(points: Doubles) -> Doubles:
    """Return about how far points [n, 3] are from the head [m], negative inside."""
    total = _capsule(points, *NECK)
    for middle, axes, blend in ELLIPSOIDS:
        total = _smooth_union(total, _ellipsoid(points, middle, axes), blend)
    middle, axes, blend = EYES
    mirrored = np.abs(points) * (1.0, 0.0, 0.0) + points * (0.0, 1.0, 1.0)
    return -_smooth_union(-total, _ellipsoid(mirrored, middle, axes), blend)


def head_normals(points: Doubles) -> Doubles:
    """Return the unit vectors [n, 3] along which the distance from the head grows."""
    step = 1.0e-5 * np.eye(3)
    slope = [head_distance(points + d) - head_distance(points - d) for d in step]
    return _unit(np.stack(slope, axis=1))


def head_motion(frame: float, fps: float = 24.0) -> Doubles:
    """Return the rigid transform [3, 4] of the head at a frame: it looks around and nods.

    p' = R p + t; the head rests for a quarter of a second and then begins without a jerk.
    """
    time = max(frame / fps - REST, 0.0)
    x = min(time / 0.6, 1.0)
    begun = x**3 * (10.0 - 15.0 * x + 6.0 * x * x)
    turn = begun * np.radians(38.0) * np.sin(2.0 * np.pi * 0.55 * time)
    nod = begun * np.radians(13.0) * np.sin(2.0 * np.pi * 0.8 * time)
    cosine, sine = np.cos([turn, nod]), np.sin([turn, nod])
    around_y = np.array([[cosine[0], 0.0, sine[0]], [0.0, 1.0, 0.0], [-sine[0], 0.0, cosine[0]]])
    around_x = np.array([[1.0, 0.0, 0.0], [0.0, cosine[1], -sine[1]], [0.0, sine[1], cosine[1]]])
    rotation = around_y @ around_x
    return np.column_stack((rotation, np.array(PIVOT) - rotation @ np.array(PIVOT)))


def _ellipsoid(
    points: Doubles, middle: tuple[float, float, float], axes: tuple[float, float, float]
) -> Doubles:
    """Return distances that are exact near an ellipsoid, f / |grad f| of f = |p / a| - 1."""
    scaled = (points - np.array(middle)) / np.array(axes)
    length = np.linalg.norm(scaled, axis=1)
    slope = np.linalg.norm(scaled / np.array(axes), axis=1)
    return np.asarray(length * (length - 1.0) / np.maximum(slope, 1.0e-9))


def _capsule(
    points: Doubles,
    start: tuple[float, float, float],
    end: tuple[float, float, float],
    radius: float,
) -> Doubles:
    axis = np.array(end) - np.array(start)
    offset = points - np.array(start)
    place = np.clip(offset @ axis / (axis @ axis), 0.0, 1.0)
    return np.asarray(np.linalg.norm(offset - place[:, None] * axis, axis=1) - radius)


def _smooth_union(a: Doubles, b: Doubles, blend: float) -> Doubles:
    """Return the lesser of two distances, rounded by a quadratic where they are alike."""
    near = np.maximum(blend - np.abs(a - b), 0.0)
    return np.asarray(np.minimum(a, b) - 0.25 * near**2 / blend)


def _geodesic_sphere(parts: int) -> tuple[Doubles, npt.NDArray[np.int64]]:
    """Return unit vectors and triangles of an icosahedron whose edges are cut into parts."""
    golden = 0.5 * (1.0 + np.sqrt(5.0))
    corners = np.array(
        [(0.0, s, t * golden) for s in (-1.0, 1.0) for t in (-1.0, 1.0)]
        + [(s, t * golden, 0.0) for s in (-1.0, 1.0) for t in (-1.0, 1.0)]
        + [(t * golden, 0.0, s) for s in (-1.0, 1.0) for t in (-1.0, 1.0)]
    )
    apart = np.linalg.norm(corners[:, None] - corners[None], axis=2)
    joined = np.abs(apart - 2.0) < 1.0e-6
    faces = [
        (a, b, c)
        for a in range(12)
        for b in range(a + 1, 12)
        for c in range(b + 1, 12)
        if joined[a, b] and joined[b, c] and joined[a, c]
    ]
    points, triangles = [], []
    for a, b, c in faces:
        if np.linalg.det(corners[[a, b, c]]) < 0.0:
            b, c = c, b
        index = {}
        for i in range(parts + 1):
            for j in range(parts + 1 - i):
                index[i, j] = len(points)
                points.append((parts - i - j) * corners[a] + i * corners[b] + j * corners[c])
        for i in range(parts):
            for j in range(parts - i):
                triangles.append((index[i, j], index[i + 1, j], index[i, j + 1]))
                if i + j < parts - 1:
                    triangles.append((index[i + 1, j], index[i + 1, j + 1], index[i, j + 1]))
    directions = _unit(np.array(points))
    _, first, shared = np.unique(
        np.rint(directions * 1.0e6).astype(np.int64), axis=0, return_index=True, return_inverse=True
    )
    return directions[first], np.asarray(shared.reshape(-1)[np.array(triangles)])


# -- hair --------------------------------------------------------------------------------------


def groom(strand_count: int = 3000, vertices: int = 20, length: float = 0.28) -> Curves:
    """Return hair that is combed back and down from a parting in the middle.

    Args:
        strand_count: Strands; any first part of them lies evenly on the scalp.
        vertices: Points of a strand, at equal distances.
        length: Of the longest strands [m].
    """
    random = np.random.default_rng(4)
    roots = scalp_points(strand_count, random)
    normals = head_normals(roots)
    lock = _nearest(roots, roots[: max(1, strand_count // LOCK)])
    wave = random.random((strand_count, 3))
    turns = 2.0 * np.pi * (0.75 * wave[lock, 0] + 0.25 * wave[:, 0])
    lengths = length * (0.80 + 0.12 * wave[lock, 1] + 0.08 * wave[:, 1])
    step = lengths / (vertices - 1)
    strands = np.empty((strand_count, vertices, 3))
    strands[:, 0] = roots
    strands[:, 1] = roots + step[:, None] * normals
    heading = normals
    for k in range(1, vertices - 1):
        here = strands[:, k]
        along = k / (vertices - 1)
        wish = 0.75 * heading + _combed(here, roots)
        wish += (0.1 + 0.3 * along) * _curled(wish, turns + 2.0 * np.pi * k * step / CURL_LENGTH)
        wish += (0.2 + 0.5 * along) * (strands[lock, k] - here) / 0.025
        heading = _past_head(here, _unit(wish), step)
        strands[:, k + 1] = here + step[:, None] * heading
    curves = Curves.from_strands(strands)
    taper = 1.0 - (1.0 - TIP_PART) * np.linspace(0.0, 1.0, vertices) ** 2
    curves.set_channel("point", "radius", np.tile(ROOT_RADIUS * taper, strand_count))
    curves.set_channel("primitive", "id", np.arange(strand_count, dtype=np.int64))
    return curves


def attached(curves: Curves, transform: npt.ArrayLike) -> Curves:
    """Return curves that follow a rigid transform [3, 4] with all their points."""
    return curves.transformed(np.vstack((np.asarray(transform), (0.0, 0.0, 0.0, 1.0))))


def scalp_points(count: int, random: np.random.Generator) -> Doubles:
    """Return places on the head's mesh where hair grows, each far from those before it."""
    head = head_mesh()
    corners = np.asarray(head.positions, dtype=np.float64)[head.triangles()]
    corners = corners[_above_hairline(corners.mean(axis=1)) > 0.0]
    areas = np.linalg.norm(
        np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1
    )
    chosen = random.choice(len(corners), size=CANDIDATES * count + 8, p=areas / areas.sum())
    a, b = np.sqrt(random.random(len(chosen))), random.random(len(chosen))
    weights = np.stack((1.0 - a, a * (1.0 - b), a * b), axis=1)
    return _farthest(np.einsum("nk,nkd->nd", weights, corners[chosen]), count)


def _above_hairline(points: Doubles) -> Doubles:
    """Return how far points are above the hairline [m]: high on the brow, low at the nape."""
    around = np.arctan2(np.abs(points[:, 0]), points[:, 2])  # 0 in front, pi behind
    return np.asarray(points[:, 1] - np.interp(around, np.radians(HAIRLINE[0]), HAIRLINE[1]))


def _farthest(candidates: Doubles, count: int) -> Doubles:
    """Return points of which each is the candidate that is farthest from all before it."""
    left = np.full(len(candidates), np.inf)
    chosen = np.zeros(count, np.int64)
    for i in range(1, count):
        offset = candidates - candidates[chosen[i - 1]]
        np.minimum(left, np.einsum("nd,nd->n", offset, offset), out=left)
        chosen[i] = np.argmax(left)
    return candidates[chosen]


def _nearest(points: Doubles, among: Doubles) -> npt.NDArray[np.int64]:
    """Return for each point which of others is the nearest."""
    return np.concatenate(
        [
            np.argmin(np.sum((part[:, None] - among[None]) ** 2, axis=2), axis=1)
            for part in np.array_split(points, max(1, len(points) // 500))
        ]
    )


def _combed(here: Doubles, roots: Doubles) -> Doubles:
    """Return where a comb pulls: along the head near it, downwards away from it."""
    side = np.tanh(roots[:, 0] / 0.012)
    top = np.clip((here[:, 1] - 0.02) / 0.08, 0.0, 1.0)
    front = np.clip((here[:, 2] + 0.03) / 0.08, 0.0, 1.0)
    pull = np.stack(
        (side * (0.1 + 0.7 * top), -0.9 + (0.3 + 0.8 * front) * top, -0.1 - 0.9 * front), axis=1
    )
    normals, distance = head_normals(here), head_distance(here)
    inward = np.minimum(np.einsum("nd,nd->n", pull, normals), 0.0)
    near = np.exp(-np.maximum(distance - 0.006, 0.0) / 0.012)
    # what has left the head comes back to it, as long as it is above the ears
    back = np.clip((distance - 0.008) / 0.03, 0.0, 1.0) * np.clip(here[:, 1] / 0.05 + 1.0, 0.0, 1.0)
    return _unit(pull - (0.92 * near * inward + 0.6 * back)[:, None] * normals)


def _curled(direction: Doubles, turn: Doubles) -> Doubles:
    """Return unit vectors across a direction, turned around it."""
    first = _unit(np.cross(direction, (0.3, 0.1, 1.0)))
    second = np.cross(_unit(direction), first)
    return np.cos(turn)[:, None] * first + np.sin(turn)[:, None] * second


def _past_head(here: Doubles, heading: Doubles, step: Doubles) -> Doubles:
    """Return directions near `heading` whose steps end outside of the head."""
    for _ in range(24):
        there = here + step[:, None] * heading
        missing = CLEARANCE - head_distance(there)
        if not np.any(missing > 0.0):
            break
        push = np.maximum(missing, 0.0) + 0.1 * CLEARANCE * (missing > 0.0)
        heading = _unit(heading + (push / step)[:, None] * head_normals(there))
    return heading


def _unit(vectors: Doubles) -> Doubles:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1.0e-12))
