"""Account of a liquid's volume: what was there, what came, and where the rest went.

Particles are counted, which is exact: so the account closes to the last of them,

    start + emitted - drained - left - killed = what is there now

but for what a narrow band owes for the moment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.parallel.comm import Communicator

CAME = ("start", "emitted")
WENT = ("drained", "left", "killed")  # by sinks, through open sides, by expressions
NAMES = (*CAME, *WENT)


class LiquidAccount:
    """Particles that came and went since the start, over all ranks once it is settled.

    Attributes:
        counts: Of all ranks, in the order of NAMES.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.counts: NDArray[np.int64] = np.zeros(len(NAMES), np.int64)
        self._here: NDArray[np.int64] = np.zeros(len(NAMES), np.int64)

    def note(self, name: str, count: int) -> None:
        """Count particles of this rank."""
        self._here[NAMES.index(name)] += count

    def settle(self) -> None:
        """Add what all ranks have noted. Collective."""
        self.counts += self.comm.all_reduce(self._here, "sum")
        self._here[:] = 0

    def to_document(self, particle_volume: float, volume: float) -> dict[str, float]:
        """Volumes [m^3], and what of them is missing.

        Args:
            particle_volume: Of one particle [m^3].
            volume: Of the liquid now [m^3].
        """
        document = {
            name: int(count) * particle_volume
            for name, count in zip(NAMES, self.counts, strict=True)
        }
        came, went = len(CAME), len(WENT)
        signs = np.array([1] * came + [-1] * went)
        expected = int((signs * self.counts).sum()) * particle_volume
        return {**document, "volume": volume, "missing": expected - volume}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"counts": self.counts.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take such a state back; checkpoints of earlier versions have none."""
        self.counts = np.zeros(len(NAMES), np.int64)
        kept = np.asarray(state.get("counts", self.counts), np.int64)
        self.counts[: len(kept)] = kept
        self._here[:] = 0
