"""Voxel Field: a Voxels stream that can be sampled anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.grid_domain import GridDomain
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.kernels.buckets.bucket_hash import build_table, pack_buckets
from loki_core.kernels.buckets.interpolation import sample_voxels


class VoxelField:
    """One channel of a Voxels stream, with the look-up table to sample it.

    The stream is an input and whole on every rank.

    Args:
        voxels: The stream.
        channel: Name of the channel.
        components: How many the caller expects: 1 or 3.
        label: Who asks, for messages.
    """

    def __init__(self, voxels: Voxels, channel: str, *, components: int, label: str) -> None:
        if not isinstance(voxels, Voxels):
            raise InputError(f"{label} needs a voxel stream, but got {type(voxels).__name__}")
        found = voxels.channel(channel)
        if found.components != components:
            raise InputError(
                f'{label} needs {components} components in channel "{channel}", '
                f"found {found.components}"
            )
        self.voxels = voxels
        # Whole numbers are interpolated too: a painted mask of 0 and 1 has values between them.
        kind = found.values.dtype if found.values.dtype.kind == "f" else np.float32
        self.values = np.ascontiguousarray(found.values, dtype=kind)
        self.is_face = 1 if found.location == "face" else 0
        self.background = found.background
        # Block coordinates are packed relative to the first block, whose corner becomes the origin.
        first = voxels.coords.min(axis=0) if voxels.block_count else np.zeros(3, np.int32)
        near = voxels.coords - first
        if near.size and int(near.max()) >= 1 << 17:
            raise InputError(
                f"{label}: voxel blocks are {int(near.max())} apart; at most {1 << 17}"
            )
        block = voxels.voxel_size * voxels.block_resolution
        self._corner: NDArray[np.float64] = voxels.origin + first * block
        self._table = build_table(pack_buckets(near))

    def sample(self, position: NDArray[Any], domain: GridDomain) -> NDArray[Any]:
        """Trilinear values [n, components] at positions relative to the domain's origin."""
        sampled = np.empty((len(position), self.values.shape[1]), self.values.dtype)
        # The two origins are subtracted in float64, once: no digits are lost far from the world's
        # origin.
        offset = domain.origin - self._corner
        kind = self.values.dtype.type
        sample_voxels(
            position,
            offset,
            1.0 / float(self.voxels.voxel_size),
            self.values,
            self.is_face,
            kind(self.background),
            *self._table,
            sampled,
        )
        return sampled


class FieldSampler:
    """Samples voxel streams; keeps the look-up table while the stream stays the same."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._fields: dict[tuple[str, str], VoxelField] = {}

    def sample(
        self, scope: Any, stream: str, channel: str, *, components: int, position: NDArray[Any]
    ) -> NDArray[Any]:
        """Values [n, components] at positions relative to the domain's origin, in their type.

        Args:
            scope: Whose inputs hold the stream and whose domain the positions are in.
        """
        voxels = scope.inputs[stream]
        field = self._fields.get((stream, channel))
        if field is None or field.voxels is not voxels:
            label = f'{self.label} "{stream}"'
            field = VoxelField(voxels, channel, components=components, label=label)
            self._fields[stream, channel] = field
        return field.sample(position, scope.domain).astype(position.dtype, copy=False)
