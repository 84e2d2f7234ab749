"""Stream on Voxels: voxel streams, sampled where the cells or the faces of a volume are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.voxel_field import VoxelField
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.objects.gas.volume_input import cell_positions, in_parts

Array = NDArray[Any]


class StreamOnVoxels:
    """Samples voxel streams where the voxels of a volume are; keeps tables while they last.

    Args:
        label: Who asks, for messages.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._fields: dict[tuple[str, str, int], tuple[Voxels, list[VoxelField]]] = {}
        self._sampled: dict[tuple[str, str, str], tuple[list[VoxelField], int, Array]] = {}

    def on_faces(
        self,
        scope: Any,
        stream: str,
        channel: str,
        *,
        volume: DiscreteVolume,
        components: int = 1,
    ) -> Array:
        """Values on the faces of local Buckets, shape [local, 3, r, r, r], in the volume's type.

        They are kept while stream and Buckets stay the same, so do not write to them.

        Args:
            scope: Whose inputs hold the stream.
            components: 3 takes component a for the faces across axis a; 1 the same scalar for all.
        """
        fields = self._of(scope, stream, channel, components)
        known = self._sampled.get((stream, channel, "faces"))
        if known is not None and known[0] is fields and known[1] == volume.layout_version:
            return known[2]
        sampled = np.empty_like(volume.local("velocity"))
        for a in range(3):
            _sample(fields[a % len(fields)], volume, "velocity", a, sampled[:, a])
        self._sampled[stream, channel, "faces"] = (fields, volume.layout_version, sampled)
        return sampled

    def on_cells(
        self, scope: Any, stream: str, channel: str, *, volume: DiscreteVolume, like: str
    ) -> Array:
        """Scalars in the cells of local Buckets, shaped and typed as the channel `like`.

        They are kept while stream and Buckets stay the same, so do not write to them.
        """
        fields = self._of(scope, stream, channel, 1)
        known = self._sampled.get((stream, channel, like))
        if known is not None and known[0] is fields and known[1] == volume.layout_version:
            return known[2]
        sampled = np.empty_like(volume.local(like))
        _sample(fields[0], volume, like, None, sampled[:, 0])
        sampled[:, 1:] = sampled[:, :1]
        self._sampled[stream, channel, like] = (fields, volume.layout_version, sampled)
        return sampled

    def _of(self, scope: Any, stream: str, channel: str, components: int) -> list[VoxelField]:
        """One scalar field for each component."""
        voxels = scope.inputs[stream]
        key = (stream, channel, components)
        known = self._fields.get(key)
        if known is None or known[0] is not voxels:
            label = f'{self.label} "{stream}"'
            known = (voxels, _component_fields(voxels, channel, components, label))
            self._fields[key] = known
        return known[1]


def _component_fields(
    voxels: Voxels, channel: str, components: int, label: str
) -> list[VoxelField]:
    if not isinstance(voxels, Voxels):
        raise InputError(f"{label} needs a voxel stream, but got {type(voxels).__name__}")
    found = voxels.channel(channel)
    if found.components != components:
        raise InputError(
            f'{label} needs {components} components in channel "{channel}", '
            f"found {found.components}"
        )
    fields = []
    for a in range(components):
        # Component a of a face channel is a cell channel whose lattice lies half a voxel lower.
        shift = np.zeros(3)
        shift[a] = -0.5 * voxels.voxel_size if found.location == "face" else 0.0
        one = Voxels(
            voxels.coords,
            voxels.voxel_size,
            origin=voxels.origin + shift,
            block_resolution=voxels.block_resolution,
        )
        one.set_channel(channel, found.values[:, a : a + 1], background=found.background)
        fields.append(VoxelField(one, channel, components=1, label=label))
    return fields


def _sample(
    field: VoxelField, volume: DiscreteVolume, like: str, axis: int | None, out: Array
) -> None:
    """Fill out [local, r, r, r] in the cells of a channel, or on its lower faces along an axis."""
    for part in in_parts(volume.buckets.local):
        position = cell_positions(volume, like, part, axis=axis)
        out[part] = field.sample(position, volume.domain).reshape(-1, *out.shape[1:])
