"""What lies around and inside a volume: sides of the domain box, walls, solids, ambient air."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.gas.mac_grid import classify_box, set_wall_faces
from loki_core.objects.gas.surroundings import INFLOW, NO_SLIP, OPEN, PERIODIC, SLIP, Surroundings

if TYPE_CHECKING:
    from loki_core.objects.gas.fluid import Fluid

Array = NDArray[Any]


def surroundings_of(item: Fluid) -> Surroundings:
    """What lies beyond the sides of the domain box, now."""
    domain = item.scope.domain
    wall = NO_SLIP if item.viscous else SLIP
    kinds = {"open": OPEN, "wall": wall, "periodic": PERIODIC, "inflow": INFLOW}
    codes = np.array([kinds[side.kind] for side in domain.boundaries], np.int64)
    velocity = np.array([side.velocity for side in domain.boundaries], np.float64)
    values: dict[str, list[float]] = {
        name: [item.volume.channel(name).background[0]] * 6 for name in item.materials
    }
    for boundary in item.boundaries:
        boundary.apply(codes, velocity, values)
    periodic = np.array(domain.periodic)
    return Surroundings(
        lower=np.where(periodic, -np.inf, domain.relative_lower / item.voxel_size),
        upper=np.where(periodic, np.inf, domain.relative_upper / item.voxel_size),
        kinds=tuple(codes.tolist()),
        velocity=velocity,
        inflow=values,
        ambient_velocity=item.ambient_velocity,
    )


def classify(item: Fluid, surroundings: Surroundings) -> None:
    """Find what is fluid, solid or ambient, and how open every face is."""
    volume, buckets = item.volume, item.volume.buckets
    classify_box(
        buckets.local_coords,
        buckets.neighbours,
        surroundings.lower,
        surroundings.upper,
        np.array(surroundings.kinds),
        volume.local("kind"),
        volume.local("open_fraction"),
    )
    volume.mark_written("kind")
    volume.mark_written("open_fraction")
    if item.colliders:
        from loki_core.objects.colliders.collider import add_solids

        # Solids write it on the faces that they touch now, not where they were before.
        volume.local("solid_velocity")[:] = 0.0
        volume.local("solid_grip")[:] = 0
        if "solid_distance" in volume.channels:
            volume.local("solid_distance")[:] = volume.channel("solid_distance").background[0]
        grips = [item.grip_of(collider) for collider in item.colliders]
        item.cut_faces, item.closed_faces = add_solids(volume, item.colliders, grips=grips)


def hold_walls(item: Fluid, surroundings: Surroundings, faces: Array) -> None:
    """Give faces on the sides of the domain box the velocity of the side."""
    set_wall_faces(
        item.volume.buckets.local_coords,
        surroundings.lower,
        surroundings.upper,
        np.array(surroundings.kinds),
        surroundings.velocity,
        faces,
    )
