"""Motion: the way of an input's points within a frame, through places that the host has sampled.

    position                 where a point is at the end of the frame
    motion_1 .. motion_k     point channels: where it is at 1 / (k + 1), 2 / (k + 1), ... of the way
                             from the frame before

Between two samples, and without any between two frames, points move on straight lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loki_core.data.channels import check_values, motion_channels
from loki_core.errors import InputError

Floats = NDArray[np.float64]
#: Parts of the whole way by which a fraction may miss a sample and still be at it.
ROUND_OFF = 1e-9


def motion_samples(stream: Any, *, label: str) -> list[NDArray[Any]]:
    """Return the sampled places [m] of a stream's points, in the order of time.

    Raises:
        InputError: One is missing, or holds something else.
    """
    channels = stream.channels["point"]
    samples = []
    for number in range(1, len(motion_channels(channels)) + 1):
        name = f"motion_{number}"
        if name not in channels:
            raise InputError(
                f'{label}: point channel "{name}" is missing, and there are '
                f"{', '.join(motion_channels(channels))}; samples are numbered from 1 on"
            )
        check_values(channels[name], (3,), label=f'{label}: point channel "{name}"', unit="m")
        samples.append(channels[name])
    return samples


class Piece(NamedTuple):
    """A straight piece of a way: its ends [n, 3], and how much of it is over, 0 to 1."""

    start: Floats
    end: Floats
    part: float


class PathInFrame:
    """The ways of points from the end of one frame to the end of the next.

    Args:
        before, after: Where they are at the two ends [n, 3].
        samples: Where they are in between, at even distances in time.
        place: Makes places like `before` and `after` of a sample.
    """

    def __init__(
        self,
        before: Floats,
        after: Floats,
        samples: Sequence[NDArray[Any]] = (),
        *,
        place: Callable[[NDArray[Any]], Floats] = lambda sample: np.asarray(sample, np.float64),
    ) -> None:
        self._ends = before, after
        self._samples = samples
        self._place = place

    @property
    def piece_count(self) -> int:
        """How many straight pieces the ways have."""
        return len(self._samples) + 1

    def piece(self, fraction: float) -> Piece:
        """Return the piece on which points are at a fraction 0..1 of the frame, or at whose end."""
        reached = fraction * self.piece_count
        number = max(0, math.ceil(reached - ROUND_OFF) - 1)
        return Piece(self._at(number), self._at(number + 1), min(1.0, reached - number))

    def _at(self, number: int) -> Floats:
        if 0 < number < self.piece_count:
            return self._place(self._samples[number - 1])
        before, after = self._ends
        return after if number else before

    def position(self, fraction: float) -> Floats:
        """Return the places at a fraction 0..1 of the frame."""
        start, end, part = self.piece(fraction)
        return start + part * (end - start) if part < 1.0 else end

    def velocity(self, fraction: float, duration: float) -> Floats:
        """Return the velocities on the piece at a fraction of a frame of this duration [s]."""
        start, end, _ = self.piece(fraction)
        return (end - start) / (duration / self.piece_count)
