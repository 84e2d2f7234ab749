"""Solid Unknowns: the vectors and the matrix of the joint system, as channels that Tasks name.

    fixed               which unknowns are prescribed, uint8 [size]
    fixed_with_ghosts   the same, and after them the ghosts of couplings
    force               force on each unknown, [size]
    matrix              the bodies' matrices (kernels/skyline), and what joins bodies
    second              second derivatives that the matrices lack, where a line search looks
    change              the last correction, [size]

They follow from the Objects' data in every Newton iteration, so no state has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data import notes

Array = NDArray[Any]


@dataclass
class UnknownsChannel:
    """One array over this rank's unknowns."""

    values: Array


class SolidUnknowns:
    """Arrays by name, noted where they are handed out, as those of Particle Systems are."""

    def __init__(self, name: str) -> None:
        self.name = name
        nothing: dict[str, Array] = {
            "fixed": np.zeros(0, np.uint8),
            "fixed_with_ghosts": np.zeros(0, np.uint8),
            "force": np.zeros(0),
            "matrix": np.zeros(0),
            "second": np.zeros(0),
            "change": np.zeros(0),
        }
        self.channels = {name: UnknownsChannel(values) for name, values in nothing.items()}

    def local(self, name: str) -> Array:
        """Values of this rank."""
        if notes.running is not None:
            notes.running.note_use(self, name)
        return self.channels[name].values

    def replace(self, name: str, values: Array) -> None:
        """Take another array, after unknowns were numbered anew."""
        if notes.running is not None:
            notes.running.note_write(self, name)
        self.channels[name].values = values

    def mark_written(self, name: str) -> None:
        """Note that values changed; there are no ghosts that could be stale."""
        if notes.running is not None:
            notes.running.note_write(self, name)
