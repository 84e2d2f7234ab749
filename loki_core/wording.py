"""Wording: numbers with their nouns in messages, in the right form.

counted(1, "error")        1 error
counted(2000, "vertex")    2,000 vertices
"""

from __future__ import annotations

_IRREGULAR = {
    "vertex": "vertices",
    "tetrahedron": "tetrahedra",
    "has": "have",
    "is": "are",
    "it": "they",
    "this": "these",
}
_HISSING = ("s", "x", "z", "ch", "sh")


def plural(word: str) -> str:
    """Return the plural of a noun, or of one of the few words that go with it."""
    first, space, last = word.rpartition(" ")
    if last in _IRREGULAR:
        return first + space + _IRREGULAR[last]
    if word.endswith(_HISSING):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in ("a", "e", "o", "u"):
        return f"{word[:-1]}ies"
    return f"{word}s"


def noun(count: float, word: str) -> str:
    """Return the word as it stands after a count."""
    return word if count == 1 else plural(word)


def counted(count: float, word: str) -> str:
    """Return the count and its noun; thousands are told apart by commas."""
    return f"{count:,} {noun(count, word)}"
