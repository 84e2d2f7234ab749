"""Sent Arrays: which arrays of an input have changed since it was last sent.

Most of what a host sends each frame is as before: topology, rest shapes, colours. A digest of the
whole tells that for certain, but is slower than sending to the next process; so a sample is looked
at first, and the whole only where the sample is as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

SMALL = 4096  # bytes: sent anyway
SAMPLES = 16
SAMPLE_BYTES = 1024


class _Known(NamedTuple):
    size: int
    sample: bytes
    whole: bytes | None


class SentArrays:
    """Remembers the parts of the last message of each input."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, list[_Known]]] = {}

    def reduce(
        self, name: str, parts: Sequence[Any], version: int
    ) -> tuple[list[Any], int | None, dict[str, int]]:
        """Return the parts to send, the version that they build on, and which parts are from it.

        Args:
            parts: All parts of the input, the first of which is always sent.
            version: A number for what is sent now.
        """
        base, before = self._known.get(name, (0, []))
        now, reduced, reused = [], list(parts), {}
        for number, part in enumerate(parts):
            view = memoryview(part).cast("B")
            old = before[number] if number < len(before) else None
            known = _look_at(view, old)
            now.append(known)
            is_same = old is not None and known.whole is not None and old == known
            if number > 0 and view.nbytes > SMALL and is_same:
                reduced[number] = b""
                reused[str(number)] = number
        self._known[name] = (version, now)
        return reduced, base if reused else None, reused

    def forget(self) -> None:
        """Send everything again: the other side is new."""
        self._known.clear()


def _look_at(view: memoryview, old: _Known | None) -> _Known:
    size = view.nbytes
    if size <= SMALL:
        return _Known(size, bytes(view), None)
    step = max(1, (size - SAMPLE_BYTES) // (SAMPLES - 1))
    sample = blake2b(digest_size=16)
    for start in range(0, size, step):
        sample.update(view[start : start + SAMPLE_BYTES])
    seen = sample.digest()
    # one that differs in the sample differs; its whole is looked at when the sample stays
    same = old is not None and old.size == size and old.sample == seen
    return _Known(size, seen, blake2b(view, digest_size=32).digest() if same else None)
