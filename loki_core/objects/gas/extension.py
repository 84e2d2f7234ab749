"""Extension of a volume's channels into the solids that stand in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.kernels.gas.extension import HELD, HOLDS, extend_layer, mark_cells, mark_faces


def extend(volume: DiscreteVolume, names: Sequence[str], *, layers: int) -> None:
    """Fill cells, or closed faces, of solids up to `layers` voxels deep. Collective.

    Reads the channels "kind", "open_fraction" and "solid_grip": faces of solids that hold the fluid
    are left alone.
    """
    for name in names:
        channel, values = volume.channel(name), volume.with_ghosts(name)
        with volume.scratch(
            "extended",
            np.uint8,
            components=channel.components,
            resolution=channel.resolution,
            location=channel.location,
        ) as mask:
            local = volume.local(mask.name)
            if channel.location == "face":
                fraction, grip = volume.local("open_fraction"), volume.local("solid_grip")
                mark_faces(fraction, local)
                local[(fraction == 0.0) & (grip == HOLDS)] = HELD
            else:
                for component in range(channel.components):
                    mark_cells(volume.local("kind"), component, local)
            for layer in range(1, layers + 1):
                volume.mark_written(mask.name)
                volume.mark_written(name)
                volume.refresh(mask.name, name)
                extend_layer(values, mask.values, volume.buckets.neighbours, layer)
        volume.mark_written(name)
