"""Faces of a volume that solids close, near their surface, and the normals of the solid there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.kernels.colliders.closed_faces import mark_closed_faces, normals_at, slide_along

Array = NDArray[Any]

DEEPEST = 2.0  # voxels below the surface of a solid, down to which liquid may reach a face


@dataclass(frozen=True)
class ClosedFaces:
    """What is known of them.

    Attributes:
        face: Places in a flat face channel, local Buckets, [n].
        normal: Outward normal of the solid, 0 where it has none, [n, 3].
        exist: Whether any rank has some.
    """

    face: NDArray[np.int64]
    normal: NDArray[np.float64]
    exist: bool

    @classmethod
    def of(
        cls, volume: DiscreteVolume, nodes: Array, rows: NDArray[np.int32], smallest: float
    ) -> ClosedFaces:
        """Find them, given the nodes [m, 4, r+1, r+1, r+1] of Buckets. Collective.

        Args:
            smallest: Open parts below this are closed.
        """
        r = volume.channel("open_fraction").resolution
        marked = np.empty((len(rows), 3, r, r, r), np.uint8)
        mark_closed_faces(nodes, smallest, DEEPEST * volume.domain.bucket_size / r, marked)
        place = np.argwhere(marked)
        normal = np.empty((len(place), 3))
        normals_at(nodes, place, normal)
        bucket, axis, i, j, k = place.T
        face = (((rows[bucket].astype(np.int64) * 3 + axis) * r + i) * r + j) * r + k
        return cls(face, normal, exist=volume.domain.comm.any(len(face) > 0))

    def slide(self, volume: DiscreteVolume, known: str) -> None:
        """Take the part across the solids off the "velocity" of these faces. Collective.

        Args:
            known: Face channel that is above 0 where a velocity is known.
        """
        names = ("velocity", "solid_velocity", "open_fraction", known, "kind", "loose")
        volume.refresh(*names, corners=True)
        slid = np.empty(len(self.face))
        slide_along(
            self.face, self.normal, *(volume.with_ghosts(name) for name in names),
            volume.buckets.neighbours, slid,
        )  # fmt: skip
        flat = volume.local("velocity").reshape(-1)
        flat[self.face] = slid.astype(flat.dtype)
        volume.mark_written("velocity")
