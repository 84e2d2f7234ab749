"""Faces of a volume that solids cut: where the middles of their open parts are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.kernels.colliders.cut_faces import change_towards_middles, find_open_middles

Array = NDArray[Any]


@dataclass(frozen=True)
class CutFaces:
    """What of a face value is to be added in the middle of a face's open part.

    Attributes:
        face: Places of cut faces in a flat face channel, local Buckets, [n].
        toward: Places of the faces next to them on the open side along the face's two axes, with
            ghosts, or -1, [n, 2].
        part: How far the middle is towards them, in voxels, [n, 2].
        exist: Whether any rank has some.
    """

    face: NDArray[np.int64]
    toward: NDArray[np.int64]
    part: NDArray[np.float64]
    exist: bool

    @classmethod
    def of(cls, volume: DiscreteVolume, nodes: Array, rows: NDArray[np.int32]) -> CutFaces:
        """Find them, given the nodes [m, 4, r+1, r+1, r+1] of Buckets. Collective."""
        volume.refresh("open_fraction")
        opening = volume.with_ghosts("open_fraction")
        place = np.argwhere((opening[rows] > 0.0) & (opening[rows] < 1.0))
        count = len(place)
        face, toward = np.empty(count, np.int64), np.empty((count, 2), np.int64)
        part = np.empty((count, 2))
        if count:
            find_open_middles(
                nodes, rows, place, opening, volume.buckets.neighbours, face, toward, part
            )
        return cls(face, toward, part, exist=volume.domain.comm.any(count > 0))

    def change(self, values: Array) -> NDArray[np.float64]:
        """By how much more a face channel, with ghosts, is in the middles, [n]."""
        out = np.empty(len(self.face))
        if len(self.face):
            change_towards_middles(values.reshape(-1), self.face, self.toward, self.part, out)
        return out
