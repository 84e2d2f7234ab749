"""Extension of a volume's channels into the solids that stand in it."""

from __future__ import annotations

from collections.abc import Sequence

from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.kernels.extension import extend_layer, mark_cells, mark_faces

MASK = "extended"


def extend(volume: DiscreteVolume, names: Sequence[str], *, layers: int) -> None:
    """Fill cells, or closed faces, of solids up to `layers` voxels deep. Collective.

    Reads the channels "kind" and "open_fraction".
    """
    for name in names:
        channel = volume.channel(name)
        volume.add_channel(
            MASK,
            "u1",
            components=channel.components,
            resolution=channel.resolution,
            location=channel.location,
            derived=True,
        )
        mask = volume.local(MASK)
        if channel.location == "face":
            mark_faces(volume.local("open_fraction"), mask)
        else:
            for component in range(channel.components):
                mark_cells(volume.local("kind"), component, mask)
        for layer in range(1, layers + 1):
            volume.mark_written(MASK)
            volume.mark_written(name)
            pending = volume.post_ghosts((MASK, name), halo=1)
            if pending is not None:
                pending.wait()
            extend_layer(
                volume.with_ghosts(name),
                volume.with_ghosts(MASK),
                volume.buckets.neighbours,
                layer,
            )
        del volume.channels[MASK]
        volume.mark_written(name)
