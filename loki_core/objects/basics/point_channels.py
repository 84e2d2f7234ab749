"""Point Channels: some channels of a Particle System by name, handed out when they are asked for.

Whoever looks for one painted channel among many touches only that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.particle_system import ParticleSystem


class PointChannels(Mapping[str, NDArray[Any]]):
    """Local values by name.

    Args:
        particles: What has the channels.
        names: Those that can be asked for.
        rows: Of which particles; all local ones if None.
    """

    def __init__(
        self,
        particles: ParticleSystem,
        names: Sequence[str],
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.particles = particles
        self._names = dict.fromkeys(names)
        self._rows = rows

    @property
    def count(self) -> int:
        """Values of each channel."""
        return self.particles.count if self._rows is None else len(self._rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        values = self.particles.local(name)
        return values if self._rows is None else values[self._rows]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
