"""Buffer Pool: memory that is filled again and again, since making it costs more than filling it.

A buffer that nobody refers to any more is free: whoever holds a view of it, or an array on it,
keeps it from being used again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_BUFFERS = 64


def _references_of_unused() -> int:
    """Count the references to a buffer that only a list and a loop hold, as `_free` does."""
    for buffer in [np.empty(1, np.uint8)]:
        return sys.getrefcount(buffer)
    raise AssertionError


_UNUSED = _references_of_unused()  # versions of Python count differently


class BufferPool:
    """Copies parts of messages into memory of its own."""

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.uint8]] = []

    def copied(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts as copies; they are valid as long as somebody holds them."""
        return [self._copied(memoryview(part).cast("B")) for part in parts]

    def _copied(self, view: memoryview) -> Any:
        if view.nbytes == 0:
            return b""
        buffer = self._free(view.nbytes)
        target = buffer[: view.nbytes]
        np.copyto(target, np.frombuffer(view, np.uint8))
        return target.data

    def _free(self, size: int) -> NDArray[np.uint8]:
        for buffer in self._buffers:
            if size <= buffer.nbytes <= 2 * size and sys.getrefcount(buffer) == _UNUSED:
                return buffer
        if len(self._buffers) >= MOST_BUFFERS:  # sizes have changed: let go what nobody uses
            self._buffers = [one for one in self._buffers if sys.getrefcount(one) > _UNUSED]
        made = np.empty(size, np.uint8)
        self._buffers.append(made)
        return made
