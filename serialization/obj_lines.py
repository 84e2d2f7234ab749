"""OBJ lines: faces of an OBJ file as its author wrote them, with the uv of every corner.

    vt 0.25 0.75          a texture coordinate; (0, 0) is the lower left corner of the image
    f 1/1 2/4 7/2 6/3     a face: point/texture coordinate of each corner

One point may have several coordinates, where faces meet in a seam. trimesh keeps one of them, and a
copy of all points for every material. So these lines are read here, and trimesh gets points and
plain triangles alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import FormatError, InputError

_MORE = re.compile(rb"^\s*(vt|usemtl)\s", re.MULTILINE)


def says_more(data: bytes) -> bool:
    """Whether a file has texture coordinates, or materials."""
    return _MORE.search(data) is not None


def plain_obj(data: bytes, label: str) -> tuple[bytes, NDArray[np.float64] | None]:
    """Return a file of the points and triangles alone, and what it says of uv.

    A face is cut into a fan of triangles, in the file's order. Corners without a coordinate are at
    (0, 0).

    Args:
        label: What messages call the file.

    Returns:
        The text for trimesh; and uv [3 triangles, 2] of all corners, or None without any.

    Raises:
        InputError, FormatError: A line cannot be read; the message has its number.
    """
    points: list[str] = []
    coordinates: list[tuple[float, float]] = []
    triangles: list[tuple[int, ...]] = []
    used: list[int] = []
    for number, line in _lines(data):
        kind, *words = line.split()
        place = f"{label}, line {number}"
        if kind == "v":
            points.append(f"v {' '.join(words)}")
        elif kind == "vt":
            coordinates.append(_coordinate(words, place))
        elif kind == "f":
            corners = [_corner(one, len(points), len(coordinates), place) for one in words]
            for k in range(1, len(corners) - 1):
                fan = (corners[0], corners[k], corners[k + 1])
                triangles.append(tuple(point + 1 for point, _ in fan))
                used += [coordinate for _, coordinate in fan]
    faces = (f"f {a} {b} {c}" for a, b, c in triangles)
    text = "\n".join((*points, *faces, "")).encode()
    index = np.array(used, np.int64)
    if not np.any(index >= 0):
        return text, None
    return text, np.array([*coordinates, (0.0, 0.0)])[index]  # -1 is the last one


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Number and text of the lines that say anything; those that end in a backslash go on."""
    begun = ""
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
        text = begun + line.partition("#")[0].rstrip()
        begun = f"{text[:-1]} " if text.endswith("\\") else ""
        if not begun and text.strip():
            yield number, text


def _coordinate(words: list[str], place: str) -> tuple[float, float]:
    """Two numbers; a third is of textures in space, and a second may be left out."""
    try:
        u, v, *_ = [*(float(one) for one in words[:3]), *([0.0] if len(words) == 1 else [])]
    except ValueError:
        u = v = math.nan
    if not (math.isfinite(u) and math.isfinite(v)):
        given = " ".join(("vt", *words))[:80]
        raise InputError(f'{place}: "{given}" is no texture coordinate; expected two numbers')
    return u, v


def _corner(word: str, points: int, coordinates: int, place: str) -> tuple[int, int]:
    """Point of a corner and its texture coordinate, -1 without one, both counted from zero."""
    point, _, rest = word.partition("/")
    coordinate = rest.partition("/")[0]
    at = _index(point, points, "vertex", word, place)
    if not coordinate:
        return at, -1
    return at, _index(coordinate, coordinates, "texture coordinate", word, place)


def _index(text: str, count: int, what: str, word: str, place: str) -> int:
    """A number from 1 on, or from -1 backwards, as an index."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    index = number - 1 if number > 0 else count + number
    if number == 0 or not 0 <= index < count:
        raise FormatError(
            f'{place}: a face names a {what} that is not there: "{word[:80]}"; {count} are above it'
        )
    return index
