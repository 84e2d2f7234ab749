"""Layout: what a solid keeps of its input between frames, its bodies without their points."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


class Layout(Protocol):
    """The bodies of an input, those of all ranks."""

    @property
    def point_count(self) -> int:
        """Points of all bodies."""

    @property
    def body_count(self) -> int:
        """How many bodies there are."""

    @property
    def sizes(self) -> Int64:
        """Points of each body."""

    @property
    def words(self) -> str:
        """What messages say of it."""

    def points_of(self, bodies: Int64) -> tuple[Int64, Int64]:
        """Body and number in the input of all points of some bodies, body by body."""

    def followed(self, stream: Any) -> Layout:
        """The same bodies, with what a stream of a later frame says of them."""

    def refuse_other(self, stream: Any, *, label: str) -> None:
        """Refuse a stream of a later frame that does not have the same bodies."""


def members(bodies: Int64, sizes: Int64) -> tuple[Int64, Int64]:
    """(body, number) of all members of these bodies, given the sizes of all bodies.

    Members are numbered body by body.
    """
    counts, starts = sizes[bodies], cumulative(sizes)
    body = np.repeat(bodies, counts)
    local = np.arange(counts.sum()) - np.repeat(cumulative(counts)[:-1], counts)
    return body.astype(np.int64), (starts[body] + local).astype(np.int64)


def cumulative(counts: NDArray[Any]) -> Int64:
    """Where runs of these lengths begin, and the end."""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
