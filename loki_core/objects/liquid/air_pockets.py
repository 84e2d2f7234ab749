"""Pockets of air: parts of the air around a liquid that nothing but liquid and solids touches.

A part is open, and not a pocket, where a cell of it lies at an open side of the box or beside space
without Buckets. So what is further from the liquid than Buckets reach counts as open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.gas.mac_grid import (
    AMBIENT,
    FLUID,
    SOLID,
    count_pressure_entries,
    fill_pressure_matrix,
)
from loki_core.linear_solvers.fluid_solve import number_ghosts, row_starts
from loki_core.linear_solvers.unheld_parts import parts_of
from loki_core.objects.basics.capabilities import Faces

Array = NDArray[Any]

SMALLEST_POCKET = 27  # cells; smaller bubbles are free air, so that splashes cost nothing
MOST_POCKETS = 8  # each costs a solve


def air_as_fluid(kind: Array) -> Array:
    """Kinds with air in the place of fluid, and everything else solid."""
    return np.where(kind == AMBIENT, np.uint8(FLUID), np.uint8(SOLID))


def find_pockets(liquid: Faces) -> tuple[NDArray[np.int32], int]:
    """Pocket of each local cell, numbered from 1, or 0; and how many there are. Collective.

    Where there is no other air, the largest is left out: liquid that fills all the rest keeps it,
    and its pressure is what others are measured from.
    """
    volume, comm = liquid.volume, liquid.volume.domain.comm
    parts, count = _air_parts(liquid)
    air = parts >= 0
    size = comm.all_reduce(np.bincount(parts[air], minlength=count), "sum")
    ends = air & (volume.local("space").reshape(-1) == AMBIENT)
    opened = comm.all_reduce(np.bincount(parts[ends], minlength=count), "sum")
    closed = np.flatnonzero((size >= SMALLEST_POCKET) & (opened == 0))
    kept = closed[np.argsort(-size[closed], kind="stable")][:MOST_POCKETS]
    if len(kept) and len(kept) == np.count_nonzero(size):
        kept = kept[1:]
    number = np.zeros(count + 1, np.int32)  # the last is for what is no air
    number[kept] = np.arange(1, len(kept) + 1)
    return number[parts], len(kept)


def _air_parts(liquid: Faces) -> tuple[NDArray[np.int64], int]:
    """Part of each local cell, -1 for what is no air, and the number of parts. Collective."""
    volume, r = liquid.volume, liquid.resolution
    volume.refresh("kind", "open_fraction")
    kind, fraction = air_as_fluid(volume.with_ghosts("kind")), volume.with_ghosts("open_fraction")
    neighbours = volume.buckets.neighbours
    none, rows = fraction[:1], volume.buckets.local_count * r**3
    counts = np.empty(rows, np.int32)
    count_pressure_entries(kind, fraction, none, 0, neighbours, counts)
    starts = row_starts(counts)
    columns, data = np.empty(int(starts[-1]), np.int32), np.empty(int(starts[-1]), volume.dtype)
    fill_pressure_matrix(
        kind, fraction, none, 0, none, 0, neighbours, starts, columns, data
    )  # fmt: skip
    ghost_rows = number_ghosts(volume, columns, rows, r**3)
    parts, _ = parts_of(starts, columns, volume.domain.comm, ghost_rows)
    air = counts > 0
    used = np.unique(np.concatenate(volume.domain.comm.all_gather(np.unique(parts[air]))))
    numbered = np.full(rows, -1, np.int64)
    numbered[air] = np.searchsorted(used, parts[air])
    return numbered, len(used)
