"""The pressure's equations on a fluid's voxels: the matrix, and the flux that it has to take away.

See `pressure.py` for the formula, `kernels/gas/mac_grid.py` for the stencil.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.gas.mac_grid import (
    FLUID,
    count_pressure_entries,
    fill_pressure_matrix,
    find_wall_cells,
    negative_divergence,
)
from loki_core.linear_solvers.fluid_solve import voxel_system
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_core.objects.basics.capabilities import Faces

Array = NDArray[Any]


def mobility_with_pores(target: Faces, mobility: Array | None) -> Array | None:
    """Mobility of a fluid and of the solids in its pores together, with ghosts. Collective."""
    volume = target.volume
    if "solid_share" not in volume.channels:
        return mobility
    volume.refresh("solid_share", "solid_give")
    share, give = volume.with_ghosts("solid_share"), volume.with_ghosts("solid_give")
    fluid = 1.0 if mobility is None else mobility
    together: Array = (1.0 - share) * fluid + give
    return together


def pressure_system(target: Faces, mobility: Array | None) -> SparseSystem:
    """Assemble the matrix of a fluid. Collective.

    Args:
        mobility: Of faces with ghosts; None is 1.
    """
    volume, neighbours = target.volume, target.volume.buckets.neighbours
    compliance = volume.with_ghosts("compliance") if "compliance" in volume.channels else None
    kind, fraction = volume.with_ghosts("kind"), volume.with_ghosts("open_fraction")
    none = fraction[:1]
    compliances = (none, 0) if compliance is None else (compliance, 1)
    mobilities = (none, 0) if mobility is None else (mobility, 1)

    def fill(starts: Array, columns: Array, data: Array) -> None:
        fill_pressure_matrix(
            kind, fraction, *mobilities, *compliances, neighbours, starts, columns, data
        )

    counts = np.empty(volume.buckets.local_count * target.resolution**3, np.int32)
    count_pressure_entries(kind, fraction, *compliances, neighbours, counts)
    touches_air = volume.domain.comm.any(bool(np.any(volume.local("kind") > FLUID)))
    return voxel_system(
        volume,
        counts,
        fill,
        resolution=target.resolution,
        is_closed=not touches_air,
        # What compliance holds, of the gas or of a part of it, is found by the sums of rows.
        may_fall_apart=bool(target.colliders) or compliance is not None,
    )


def flux_into(target: Faces, kind: Array | None, solid: Array | None) -> NDArray[np.float64]:
    """Minus the flux out of cells that are FLUID by kind, flat over local voxels. Collective.

    Args:
        kind: With ghosts; None is that of the target.
        solid: Velocity of solids on faces with ghosts, which alone counts then; None is all.
    """
    volume, buckets, r = target.volume, target.volume.buckets, target.resolution
    flow = volume.with_ghosts("velocity")
    if solid is not None:
        flow = np.zeros_like(flow)
    elif "solid_share" in volume.channels:  # what fills the pores flows too
        volume.refresh("solid_share", "solid_flux")
        flow = (1.0 - volume.with_ghosts("solid_share")) * flow
        flow += volume.with_ghosts("solid_flux")
    velocity = flow.reshape(-1)
    normal, source = np.zeros(6), None
    if solid is None:
        around = target.surroundings()
        normal = np.array([around.velocity[side, side // 2] for side in range(6)])
        source = volume.with_ghosts("divergence") if "divergence" in volume.channels else None
        if "solid_velocity" in volume.channels:
            volume.refresh("solid_velocity")
            solid = volume.with_ghosts("solid_velocity")
    solids = (velocity, 0) if solid is None else (solid.reshape(-1), 1)
    sources = (velocity, 0) if source is None else (source.reshape(-1), 1)
    kind = volume.with_ghosts("kind") if kind is None else kind
    rhs = np.empty(buckets.local_count * r**3)
    negative_divergence(
        velocity, *solids, volume.with_ghosts("open_fraction").reshape(-1), normal,
        buckets.neighbours, kind.reshape(-1), *sources, target.voxel_size, r, rhs,
    )  # fmt: skip
    return rhs


def wall_cells(target: Faces) -> NDArray[np.bool_]:
    """Cells beside walls and solids, flat over local voxels."""
    volume = target.volume
    bounded = np.empty(volume.local("kind").size, bool)
    find_wall_cells(
        volume.with_ghosts("kind"), volume.with_ghosts("open_fraction"),
        volume.buckets.neighbours, bounded,
    )  # fmt: skip
    return bounded
