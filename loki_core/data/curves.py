"""Curves: polylines, open or closed, each a run of consecutive points.

Curve i uses points offsets[i] to offsets[i + 1] - 1; a curve's vertices are its points, so point
and vertex channels have equal length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from loki_core.data.channels import Array
from loki_core.data.mesh import (
    Finding,
    Mesh,
    as_indices,
    check_edges,
    check_offsets,
    concatenated_offsets,
)
from loki_core.errors import InputError
from loki_core.wording import counted


class Curves(Mesh):
    """Polylines over consecutive points: hair, threads, cables."""

    type_name: ClassVar[str] = "curves"
    topology_names: ClassVar[tuple[str, ...]] = ("offsets", "closed")

    __slots__ = ("closed", "offsets")

    def __init__(
        self,
        positions: npt.ArrayLike,
        offsets: npt.ArrayLike,
        closed: npt.ArrayLike | None = None,
    ) -> None:
        """Take points [m], where each curve begins [curves + 1], and which curves close.

        `closed` is one flag for each curve, shape [curves], or a single one for all.
        """
        super().__init__(positions)
        self.offsets = as_indices(offsets, None, "curves.offsets")
        if self.offsets.size == 0:
            self.offsets = np.zeros(1, np.int32)
        count = self.offsets.size - 1
        flags = np.asarray(False if closed is None else closed)
        if flags.dtype != np.bool_ or flags.shape not in ((), (count,)):
            raise InputError(
                f"curves.closed is {flags.dtype}{list(flags.shape)}; expected bool[{count}], a "
                "flag for each curve"
            )
        self.closed: npt.NDArray[np.bool_] = np.ascontiguousarray(
            np.broadcast_to(flags, (count,)) if flags.ndim == 0 else flags
        )

    @classmethod
    def from_strands(cls, strands: npt.ArrayLike) -> Self:
        """Return open curves of equal length from positions [m], shape [curves, points, 3]."""
        array = np.asarray(strands)
        if array.ndim != 3 or array.shape[2] != 3:
            raise InputError(f"strands have shape {list(array.shape)}; expected [curves, n, 3]")
        offsets = np.arange(array.shape[0] + 1, dtype=np.int64) * array.shape[1]
        return cls(array.reshape(-1, 3), offsets)

    @property
    def vertex_count(self) -> int:
        """Return the number of curve vertices, which is the number of points."""
        return self.point_count

    @property
    def primitive_count(self) -> int:
        """Return the number of curves."""
        return int(self.offsets.size) - 1

    def edges(self) -> npt.NDArray[np.int32]:
        """Return the segments in curve order, shape [edges, 2]; closing ones stand last."""
        last = self.offsets[1:] - 1
        inner = np.ones(max(self.point_count, 0), dtype=bool)
        inner[last[np.diff(self.offsets) > 0]] = False
        start = np.flatnonzero(inner).astype(np.int32)
        closing = self.closed & (np.diff(self.offsets) > 2)
        segments = np.stack([start, start + 1], axis=1)
        loops = np.stack([last[closing], self.offsets[:-1][closing]], axis=1)
        return np.concatenate([segments, loops]).astype(np.int32)

    def curve_of_point(self) -> npt.NDArray[np.int32]:
        """Return the curve that each point belongs to, shape [point_count]."""
        curves = np.arange(self.primitive_count, dtype=np.int32)
        return np.repeat(curves, np.diff(self.offsets))

    def _check_topology(self, label: str) -> None:
        check_offsets(self.offsets, self.point_count, f"{label}.offsets")

    def _check_primitives(self, label: str) -> None:
        short = np.diff(self.offsets) < 2
        if short.any():
            i = int(np.argmax(short))
            size = int(self.offsets[i + 1] - self.offsets[i])
            raise InputError(
                f"{label}: curve {i} has {counted(int(size), 'point')} "
                f"({counted(int(short.sum()), 'such curve')}); "
                "expected at least 2: remove it or make it longer"
            )

    def _check_shape(self, label: str) -> list[Finding]:
        findings = check_edges(self.positions, self.edges(), label)
        flat = self.closed & (np.diff(self.offsets) == 2)
        if flat.any():
            findings.append(
                (
                    "warning",
                    f"{label}: closed curve {int(np.argmax(flat))} has only 2 points "
                    f"({int(flat.sum())} such curves) and is treated as open",
                )
            )
        return findings

    @classmethod
    def _merged_topology(cls, meshes: Sequence[Self], starts: Sequence[int]) -> dict[str, Array]:
        return {
            "offsets": concatenated_offsets([mesh.offsets for mesh in meshes]),
            "closed": np.concatenate([mesh.closed for mesh in meshes]),
        }
