"""Patterns of names as Houdini writes them: `* ^uv` is all but uv, later words win."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


def matching(pattern: str, names: Iterable[str]) -> set[str]:
    """Return the names that a pattern takes."""
    words = pattern.split()
    found: set[str] = set()
    for name in names:
        taken = False
        for word in words:
            is_out = word.startswith("^")
            if fnmatchcase(name, word[1:] if is_out else word):
                taken = not is_out
        if taken:
            found.add(name)
    return found
