"""Linear systems whose unknowns are voxels or faces, and the solver that stays with one of them.

An unknown is numbered by its place in the channel, over local Buckets, then ghosts: a vector of
unknowns is the channel's array, flat. What takes part in nothing has an empty row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.linear_solvers.choice import choose_solver, solve_with_fallback
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_core.linear_solvers.system import SolveReport, Vector

Array = NDArray[Any]
Fill = Callable[[Array, Array, Array], None]


def voxel_system(
    volume: DiscreteVolume, counts: NDArray[np.int32], fill: Fill, *, rows_per_bucket: int
) -> SparseSystem:
    """Assemble a symmetric positive definite system over a volume's local Buckets. Collective.

    Args:
        counts: Entries of each local row.
        fill: Writes all rows, given their starts [rows + 1], to columns and data.
        rows_per_bucket: Unknowns of a Bucket.
    """
    buckets = volume.buckets
    starts = np.zeros(len(counts) + 1, np.int32 if counts.sum(dtype=np.int64) < 2**31 else np.int64)
    np.cumsum(counts, out=starts[1:])
    columns = np.empty(int(starts[-1]), np.int32)
    data = np.empty(int(starts[-1]), volume.dtype)
    fill(starts, columns, data)
    ghost_rows = None
    if volume.domain.comm.size > 1:
        rows = len(counts)
        foreign = columns >= rows
        touched, places = np.unique(columns[foreign], return_inverse=True)
        columns[foreign] = rows + places.astype(np.int32)
        bucket = touched // rows_per_bucket - buckets.local_count
        place = touched % rows_per_bucket
        # Ranks own runs of the curve, so a row's number is its Bucket's place among all.
        ghost_rows = buckets.ghosts[bucket].astype(np.int64) * rows_per_bucket + place
    return SparseSystem(starts, columns, data, comm=volume.domain.comm, ghost_rows=ghost_rows)
