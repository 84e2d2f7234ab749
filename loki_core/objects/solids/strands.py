"""Strands: what a Curves Object keeps of its input between two frames.

Where curves begin, which of them close, and what is said about each as a whole: some bytes a
strand. Points, which are most of a groom, are kept by the rank that has their strand; so a stream
can be let go as soon as its frame has begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.curves import Curves
from loki_core.errors import InputError
from loki_core.objects.solids.layout import members
from loki_core.wording import counted

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Strands:
    """The curves of an input, without their points.

    Attributes:
        offsets: First point of each curve, and the end, [curves + 1].
        closed: Which curves are said to close, [curves].
        channels: Values of each curve by name.
    """

    offsets: NDArray[np.int32]
    closed: NDArray[np.bool_]
    channels: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, stream: Curves) -> Strands:
        """What a stream says of its curves; copies, for its arrays may be parts of one buffer."""
        channels = {name: array.copy() for name, array in stream.channels["primitive"].items()}
        return cls(stream.offsets.copy(), stream.closed.copy(), channels)

    @property
    def point_count(self) -> int:
        return int(self.offsets[-1])

    @property
    def primitive_count(self) -> int:
        return len(self.closed)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Points of each curve."""
        return np.diff(self.offsets).astype(np.int64)

    @property
    def closes(self) -> NDArray[np.int64]:
        """Whether each curve closes; two points cannot."""
        return (self.closed & (np.diff(self.offsets) > 2)).astype(np.int64)

    @property
    def body_count(self) -> int:
        """Each curve is a body."""
        return self.primitive_count

    @property
    def words(self) -> str:
        """What messages say of it."""
        return f"{counted(self.primitive_count, 'curve')} of {counted(self.point_count, 'point')}"

    def points_of(self, bodies: Int64) -> tuple[Int64, Int64]:
        """Body and number of all points of these curves."""
        return members(bodies, self.sizes)

    def followed(self, stream: Curves) -> Strands:
        """The same curves, with what a later frame says of them."""
        return Strands.of(stream)

    def refuse_other(self, stream: Curves, *, label: str) -> None:
        """Refuse a stream that does not have the same curves."""
        if stream.point_count != self.point_count or not np.array_equal(
            stream.offsets, self.offsets
        ):
            raise InputError(
                f"{label} has {counted(stream.primitive_count, 'curve')} of "
                f"{counted(stream.point_count, 'point')} now, and {self.words} at the start; "
                "their number may not change"
            )
