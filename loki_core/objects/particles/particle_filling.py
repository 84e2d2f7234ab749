"""Particle Filling: places on a lattice inside a mesh, for the particles of a fluid.

The lattice has one place for each volume of a particle. It may be shifted: that of a source moves
with what comes out of it, so that what follows fits what went before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import InputError

if TYPE_CHECKING:
    from loki_core.data.grid_domain import GridDomain
    from loki_core.objects.colliders.triangles import PlacedTriangles

Array = NDArray[Any]

BALL = 4.0 / 3.0 * np.pi
MOST_PLACES = 1.0e9  # in the box around a mesh
AT_ONCE = 1 << 18


def painted_radius(mesh: Any, otherwise: float, *, label: str) -> float:
    """Radius [m] of the particles that fill a mesh: that of its channel "radius", if it has one.

    Raises:
        InputError: It has more than one value, or none that a particle can have.
    """
    from loki_core.objects.particles.mesh_to_particles import channels_of

    _, painted = channels_of(mesh).get("radius", ("", np.empty(0)))
    if not painted.size:
        return otherwise
    least, largest = float(painted.min()), float(painted.max())
    if not (np.isfinite(largest) and least > 0.0):
        raise InputError(f'{label}: channel "radius" has {least:g} m, expected positive numbers')
    if largest - least > 1e-6 * largest:
        raise InputError(
            f'{label}: channel "radius" is from {least:g} to {largest:g} m; particles that fill a '
            "mesh are on one lattice and have one radius: use a mesh for each"
        )
    return largest


def places_inside(
    placed: PlacedTriangles,
    domain: GridDomain,
    spacing: float,
    *,
    label: str,
    shift: Array | None = None,
    shell: float | None = None,
    share: tuple[int, int] = (0, 1),
) -> Array:
    """Return places inside a mesh and the domain box, relative to the origin [m], in one order.

    Args:
        spacing: Of the lattice [m].
        shift: By how much it is shifted [m], [3].
        shell: Thickness of the layer on the faces that is meant instead of the inside [m].
        share: Which part of how many parts of the box to look through.
    """
    if placed.is_empty:
        return np.empty((0, 3))
    corners = placed.tree.corners.reshape(-1, 3)
    reach = 0.0 if shell is None else 0.5 * shell
    lower = np.maximum(corners.min(axis=0) - reach, domain.relative_lower)
    upper = np.minimum(corners.max(axis=0) + reach, domain.relative_upper)
    offset = np.full(3, 0.5) if shift is None else np.asarray(shift) / spacing + 0.5
    first = np.ceil(lower / spacing - offset - 1e-9)
    counts = np.maximum(np.floor(upper / spacing - offset + 1e-9) - first + 1.0, 0.0)
    total = math.prod(counts.tolist())
    if total > MOST_PLACES:
        raise InputError(
            f"{label}: its box has room for {total:.2g} particles that are {spacing:g} m apart, "
            f"more than {MOST_PLACES:.0e}; use a larger radius"
        )
    part, parts = share
    begin, end = int(total) * part // parts, int(total) * (part + 1) // parts
    found = [np.empty((0, 3))]
    sizes = counts.astype(np.int64)
    for start in range(begin, end, AT_ONCE):
        numbers = np.arange(start, min(start + AT_ONCE, end))
        sites = np.stack(np.unravel_index(numbers, tuple(sizes)), axis=1)
        place = (sites + first + offset) * spacing
        found.append(place[_is_inside(placed, place, shell)])
    return np.concatenate(found)


def _is_inside(placed: PlacedTriangles, place: Array, shell: float | None) -> NDArray[np.bool_]:
    if shell is None:
        return np.asarray(placed.winding(place) > 0.5)
    from loki_core.objects.particles.mesh_to_particles import Nearest

    return np.asarray(Nearest(placed, place).distance <= 0.5 * shell)
