"""State tables of the two space filling curves: one step from a cube to its eight octants.

A curve is a small automaton. In orientation `state`, the octant `x << 2 | y << 1 | z` of a cube
is visited as number `digits[state, octant]`, and is itself traversed in the orientation
`children[state, octant]`; `octants[state, digit]` is the inverse. Morton's curve has one state,
Hilbert's has twelve. The Hilbert tables follow C. Hamilton, "Compact Hilbert Indices",
Dalhousie University CS-2006-07: an orientation is an entry corner e and a direction d, and

    digit = gray^-1(rotate_right(octant ^ e, d + 1))
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CURVES = ("morton", "hilbert")


class CurveTables(NamedTuple):
    """The automaton of one curve; every table is uint8 of shape [states, 8]."""

    digits: npt.NDArray[np.uint8]
    octants: npt.NDArray[np.uint8]
    children: npt.NDArray[np.uint8]


@cache
def curve_tables(curve: str) -> CurveTables:
    """Return the tables of `"morton"` or `"hilbert"`; the start state is always 0."""
    if curve == "morton":
        identity = np.arange(8, dtype=np.uint8)[None, :]
        return CurveTables(identity, identity, np.zeros((1, 8), np.uint8))
    if curve == "hilbert":
        return _hilbert_tables()
    raise ValueError(f'curve "{curve}" is unknown; use one of {", ".join(CURVES)}')


@cache
def cell_order(curve: str) -> npt.NDArray[np.uint16]:
    """Position along the curve of each sort cell of a Bucket, shape [states, 512].

    The row is the Bucket's orientation, the column is the cell `x * 64 + y * 8 + z`.
    """
    tables = curve_tables(curve)
    x, y, z = np.indices((8, 8, 8)).reshape(3, 512)
    state = np.repeat(np.arange(len(tables.digits))[:, None], 512, axis=1)
    order = np.zeros(state.shape, np.uint16)
    for bit in (2, 1, 0):
        octant = (x >> bit & 1) << 2 | (y >> bit & 1) << 1 | (z >> bit & 1)
        order = order << 3 | tables.digits[state, octant]
        state = tables.children[state, octant]
    return order.astype(np.uint16)


def _hilbert_tables() -> CurveTables:
    orientations = [(0, 0)]  # (entry corner, direction); grows as new ones are reached
    digits, children = [], []
    for entry, direction in orientations:
        digit_of, child_of = [0] * 8, [0] * 8
        for digit in range(8):
            octant = entry ^ _rotate_left(_gray_code(digit), direction + 1)
            child = (
                entry ^ _rotate_left(_child_entry(digit), direction + 1),
                (direction + _child_direction(digit) + 1) % 3,
            )
            if child not in orientations:
                orientations.append(child)
            digit_of[octant] = digit
            child_of[octant] = orientations.index(child)
        digits.append(digit_of)
        children.append(child_of)
    digit_table = np.array(digits, np.uint8)
    octant_table = np.argsort(digit_table, axis=1).astype(np.uint8)
    return CurveTables(digit_table, octant_table, np.array(children, np.uint8))


def _gray_code(number: int) -> int:
    return number ^ number >> 1


def _rotate_left(octant: int, by: int) -> int:
    by %= 3
    return (octant << by | octant >> 3 - by) & 7


def _child_entry(digit: int) -> int:
    return 0 if digit == 0 else _gray_code(2 * ((digit - 1) // 2))


def _child_direction(digit: int) -> int:
    if digit == 0:
        return 0
    odd = digit if digit % 2 else digit - 1
    trailing_ones = (odd ^ odd + 1).bit_length() - 1
    return trailing_ones % 3
