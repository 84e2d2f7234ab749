"""Unknowns of an Object: what the joint system solves for, numbered body by body.

Unknowns come in blocks: the three coordinates of each vertex, the angle of each edge. Numbers go
from 0 in the Object; the joint system says where the Object begins among the unknowns of the rank.
This is the only place that knows how wide a block is: others ask for the numbers of a block's
elements, or let it gather and scatter vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float = NDArray[np.float64]
Elements = NDArray[Any] | slice

POSITION = "position"  # of vertices, 3
TWIST = "twist"  # of edges, 1
ALL = slice(None)


class Block(NamedTuple):
    """One kind of element, and how many unknowns each has.

    Attributes:
        name: Of the block.
        width: Unknowns of an element.
        offsets: First element of each body, [bodies + 1].
    """

    name: str
    width: int
    offsets: Int64


class Unknowns:
    """The unknowns of one Object on this rank.

    Args:
        body_start: First unknown of each body, and the end of the last, [bodies + 1].
        starts: First unknown of each element, by block.
        widths: Unknowns of an element, by block.

    Attributes:
        first: Number of the first one among those of the rank.
    """

    def __init__(self, body_start: Int64, starts: dict[str, Int64], widths: dict[str, int]) -> None:
        self.first = 0
        self.body_start = body_start
        self._starts, self._widths = starts, widths

    @classmethod
    def interleaved(cls, blocks: Sequence[Block], places: Int64 | None = None) -> Unknowns:
        """Number the k-th elements of all blocks next to each other, which keeps bands narrow.

        A body has as many elements of a block as of those before it, or one less.

        Args:
            blocks: Kinds of elements.
            places: Place k of each element of the first block in its body, if that is not the
                order in which elements are stored.
        """
        bodies = len(blocks[0].offsets) - 1
        counts = [np.diff(block.offsets) for block in blocks]
        sizes = sum((one.width * n for one, n in zip(blocks, counts, strict=True)), np.int64(0))
        body_start = np.zeros(bodies + 1, np.int64)
        np.cumsum(sizes, out=body_start[1:])
        stride = sum(block.width for block in blocks)
        starts, before = {}, 0
        for block, count in zip(blocks, counts, strict=True):
            body = np.repeat(np.arange(bodies), count)
            place = np.arange(block.offsets[-1]) - block.offsets[body]
            if places is not None and not before:
                place = places
            starts[block.name] = body_start[body] + stride * place + before
            before += block.width
        return cls(body_start, starts, {block.name: block.width for block in blocks})

    @classmethod
    def of_points(cls, order: Int64) -> Unknowns:
        """Points that are a body each, numbered in an order: rows by number, [n]."""
        offsets = np.arange(len(order) + 1, dtype=np.int64)
        found = cls.interleaved([Block(POSITION, 3, offsets)])
        found.reorder(order)
        return found

    def reorder(self, order: Int64) -> None:
        """Take note of the rows that points of `of_points` have now; numbers stay."""
        starts = np.empty(len(order), np.int64)
        starts[order] = self.body_start[:-1]
        self._starts[POSITION] = starts

    # -- numbers ---------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self.body_start[-1])

    @property
    def bodies(self) -> int:
        """How many bodies there are."""
        return len(self.body_start) - 1

    @property
    def range(self) -> slice:
        """Where they are in a vector of the rank."""
        return slice(self.first, self.first + self.size)

    def __contains__(self, block: str) -> bool:
        """Whether there is such a block."""
        return block in self._starts

    def starts(self, block: str) -> Int64:
        """First unknown of each element of a block, from 0, [n]."""
        return self._starts[block]

    def widths(self) -> NDArray[np.int32]:
        """Unknowns of each element of any block, in the order of their numbers."""
        starts = np.concatenate(list(self._starts.values()))
        widths = np.concatenate(
            [np.full(len(one), self._widths[name]) for name, one in self._starts.items()]
        )
        return widths[np.argsort(starts, kind="stable")].astype(np.int32)

    def own_starts(self) -> Int64:
        """First unknown of the element that each one belongs to, from 0, [size]."""
        found = np.empty(self.size, np.int64)
        for block, starts in self._starts.items():
            self.scatter(found, block, starts[:, None])
        return found

    def rows(self, block: str, elements: Elements = ALL) -> Int64:
        """Unknowns of elements, from 0, [..., width]."""
        first = self._starts[block][elements]
        found: Int64 = first[..., None] + np.arange(self._widths[block])
        return found

    def joint(self, block: str, elements: Elements = ALL) -> Int64:
        """The same among the unknowns of the rank."""
        return self.rows(block, elements) + self.first

    def body_of(self, block: str) -> Int64:
        """Body of each element of a block, [n]."""
        found: Int64 = np.searchsorted(self.body_start, self._starts[block], side="right") - 1
        return found

    def range_of(self, body: int) -> tuple[int, int]:
        """First unknown of a body among those of the rank, and the one after its last."""
        return self.first + int(self.body_start[body]), self.first + int(self.body_start[body + 1])

    # -- vectors ---------------------------------------------------------------------------

    def gather(self, vector: NDArray[Any], block: str, elements: Elements = ALL) -> NDArray[Any]:
        """Values of elements in a vector [size of this Object], [..., width]."""
        found: NDArray[Any] = vector[self.rows(block, elements)]
        return found

    def scatter(
        self, vector: NDArray[Any], block: str, values: Any, elements: Elements = ALL
    ) -> None:
        """Write values of elements [..., width] into a vector [size of this Object]."""
        vector[self.rows(block, elements)] = values
