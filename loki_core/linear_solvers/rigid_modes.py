"""Rigid motions of a body of points and frames: what elastic matrices make small."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MOST = 6  # modes, and unknowns of a vertex


def rigid_modes(coordinates: Array, widths: Array) -> Array:
    """The six rigid motions of vertices, [size, 6].

    A point at p from the middle of all moves by e_k, and by e_k x p / r where r is their extent. A
    frame, a vertex of six unknowns, turns by e_k / r as well. Any other unknown is at rest.

    Args:
        coordinates: Positions of the vertices, [vertices, 3].
        widths: Unknowns of each vertex, which follow one another: at least the three of its motion,
            or one or two that are something else.
    """
    begin = np.cumsum(widths) - widths
    points, turns = begin[widths >= 3], begin[widths == 6]
    place = coordinates[widths >= 3]
    place = place - place.mean(axis=0) if len(place) else place
    extent = float(np.abs(place).max(initial=0.0)) or 1.0
    modes = np.zeros((int(np.sum(widths)), MOST))
    for axis in range(3):
        second, third = (axis + 1) % 3, (axis + 2) % 3
        modes[points + axis, axis] = 1.0
        modes[points + third, 3 + axis] = place[:, second] / extent
        modes[points + second, 3 + axis] = -place[:, third] / extent
        modes[turns + 3 + axis, 3 + axis] = 1.0 / extent
    return modes


def wrong_widths(vertices: int, widths: Array) -> str | None:
    """What is wrong with the numbers of unknowns of vertices, or None."""
    if len(widths) == vertices and np.all((widths >= 1) & (widths <= MOST)):
        return None
    return (
        f"{vertices} vertices have {len(widths)} widths, from {widths.min(initial=MOST)} to "
        f"{widths.max(initial=0)}; each needs one, from 1 to {MOST}"
    )


def wrong_modes(widths: Array, coordinates: Array | None, modes: Array | None) -> str | None:
    """What is wrong with the modes of vertices, or where there are none with the coordinates."""
    if modes is not None:
        return _wrong_table("modes", modes, int(widths.sum()), 1)
    if coordinates is not None:
        return _wrong_table("coordinates", coordinates, len(widths), 3, 3)
    return (
        "elastic aggregation needs rigid modes: give the coordinates of the vertices, or vectors "
        "that the matrix makes small"
    )


def _wrong_table(what: str, table: Array, rows: int, least: int, most: int = MOST) -> str | None:
    shape = np.shape(table)
    if len(shape) != 2 or shape[0] != rows or not least <= shape[1] <= most:
        columns = f"{least}" if least == most else f"{least} to {most}"
        return f"{what} have the shape {list(shape)}; it must be [{rows}, {columns}]"
    return None if np.all(np.isfinite(table)) else f"{what} have numbers that are not finite"
