"""Signatures of kernels as text: what a kernel was compiled for, written down and read back.

    array(float64, 2d, C)   float32   UniTuple(int64 x 2)   Tuple(float32, int64)

These are numba's own names of types; only such as kernels take from Python are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from loki_core.errors import FormatError

_ARRAY = re.compile(r"array\((\w+), (\d)d, ([CFA])\)")
_SAME = re.compile(r"UniTuple\((.+) x (\d+)\)")
_MIXED = re.compile(r"Tuple\((.+)\)")
_NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(32|64)")


def signature_text(types: Iterable[Any]) -> list[str]:
    """Return numba types as text."""
    return [str(one) for one in types]


def read_signature(texts: Sequence[str]) -> tuple[Any, ...]:
    """Return the numba types that texts name.

    Raises:
        FormatError: One of them is no type that a kernel takes.
    """
    return tuple(_read(text.strip()) for text in texts)


def _read(text: str) -> Any:
    import numba

    types: Any = numba.types
    if array := _ARRAY.fullmatch(text):
        return types.Array(_read(array[1]), int(array[2]), array[3])
    if same := _SAME.fullmatch(text):
        return types.UniTuple(_read(same[1]), int(same[2]))
    if mixed := _MIXED.fullmatch(text):
        return types.Tuple([_read(part.strip()) for part in _parts(mixed[1])])
    if _NUMBERS.fullmatch(text):
        return types.boolean if text == "bool" else getattr(types, text)
    raise FormatError(f'"{text}" is no type that a kernel takes')


def _parts(text: str) -> list[str]:
    """Split at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
