"""Axes: the one place where the spaces of Blender and Loki meet.

Blender is right-handed with Z up, in the units of its scene; Loki is right-handed with Y up, in
metres:

    (x, y, z) in Blender  =  unit_scale (x, z, -y) in Loki

Time is in seconds on both sides, so velocities follow like differences of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Matrix = npt.NDArray[np.float64]

Y_UP: Matrix = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
"""Turns vectors of Blender into those of Loki."""

ROWS = 1 << 14  # at a time: they stay in the cache, and a matrix product needs no threads

LENGTH_CHANNELS = frozenset({"radius", "width", "thickness"})
"""Channels whose numbers are lengths, in scene units in Blender and in metres in Loki."""


@dataclass(frozen=True)
class Axes:
    """How the space of a scene becomes that of Loki, and the other way round.

    Attributes:
        unit_scale: Metres in one unit of the scene.
    """

    unit_scale: float = 1.0

    def to_loki(self, matrix_world: npt.ArrayLike | None = None) -> Placement:
        """Return the way from an object's own space, or from the world's, to Loki."""
        linear = self.unit_scale * Y_UP
        return Placement(linear) if matrix_world is None else Placement(linear).after(matrix_world)

    def to_blender(self) -> Placement:
        """Return the way from Loki to the world of the scene."""
        return Placement(Y_UP.T / self.unit_scale)

    def matrix_to_loki(self, matrix: npt.ArrayLike) -> Matrix:
        """Return a 4x4 matrix that moves things in Blender as one that moves them in Loki."""
        return _between(self.to_loki(), self.to_blender(), matrix)

    def matrix_to_blender(self, matrix: npt.ArrayLike) -> Matrix:
        """Return a 4x4 matrix that moves things in Loki as one that moves them in Blender."""
        return _between(self.to_blender(), self.to_loki(), matrix)


class Placement:
    """An affine map from one space to another, p' = L p + o, and how values follow it.

    The maps of a scene whose objects are not turned have one entry in each row of L; they are
    copied column by column, which is quick and keeps what is not finite to its own component.
    """

    def __init__(self, linear: Matrix, offset: npt.ArrayLike = (0.0, 0.0, 0.0)) -> None:
        self.linear = linear
        self.offset: Matrix = np.array(offset, dtype=np.float64)
        self.determinant = float(np.linalg.det(linear))

    def after(self, matrix: npt.ArrayLike) -> Placement:
        """Return the map that takes a 4x4 matrix first and this map then."""
        first = np.asarray(matrix, dtype=np.float64)
        return Placement(self.linear @ first[:3, :3], self.linear @ first[:3, 3] + self.offset)

    @property
    def matrix(self) -> Matrix:
        """Return the map as a 4x4 matrix for column vectors."""
        result = np.eye(4)
        result[:3, :3], result[:3, 3] = self.linear, self.offset
        return result

    @property
    def length_scale(self) -> float:
        """Return what lengths grow by; for an uneven scale, its geometric mean."""
        return float(np.cbrt(abs(self.determinant)))

    def points(self, values: Array) -> Array:
        """Return places, shape [n, 3], as float32."""
        return _mapped(values, self.linear, self.offset)

    def vectors(self, values: Array) -> Array:
        """Return differences of places, shape [n, 3], as float32."""
        return _mapped(values, self.linear, np.zeros(3))

    def normals(self, values: Array) -> Array:
        """Return normals, shape [n, 3], as float32, at the length they had."""
        scale = self.length_scale or 1.0
        unit = self.linear / scale
        if np.allclose(unit @ unit.T, np.eye(3), rtol=0.0, atol=1e-6):
            return _mapped(values, unit, np.zeros(3))
        cofactors = [np.cross(unit[i - 2], unit[i - 1]) for i in range(3)]
        moved = _mapped(
            values, np.copysign(1.0, self.determinant) * np.array(cofactors), np.zeros(3)
        )
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        wanted = np.linalg.norm(values, axis=1, keepdims=True)
        np.divide(moved * wanted, length, out=moved, where=length > 0.0)
        return moved

    def values(self, values: Array, *, name: str, kind: str) -> Array:
        """Return a channel's values after the map, by its transform kind and its name."""
        if kind == "point":
            return self.points(values)
        if kind == "vector":
            return self.vectors(values)
        if kind == "normal":
            return self.normals(values)
        if name in LENGTH_CHANNELS and values.dtype.kind == "f" and self.length_scale != 1.0:
            return np.multiply(values, self.length_scale, dtype=values.dtype)
        return values


def turn_to_loki(vector: Sequence[float]) -> tuple[float, float, float]:
    """Return the direction of Loki that three numbers mean in Blender; their unit stays."""
    x, y, z = vector
    return (x, z, 0.0 - y)


def turn_to_host(vector: Sequence[float]) -> tuple[float, float, float]:
    """Return the direction of Blender that three numbers mean in Loki; their unit stays."""
    x, y, z = vector
    return (x, 0.0 - z, y)


def _mapped(values: Array, linear: Matrix, offset: Matrix) -> Array:
    """Return L v + o for every row, as float32."""
    result = np.empty(values.shape, np.float32)
    turn = np.ascontiguousarray(linear.T, dtype=values.dtype)
    entries = np.argmax(linear != 0.0, axis=1) if _is_monomial(linear) else None
    shifts = np.tile(offset.astype(np.float32), ROWS) if offset.any() else None
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is data as well
        for start in range(0, len(values), ROWS):
            rows, filled = values[start : start + ROWS], result[start : start + ROWS]
            if entries is None:
                np.matmul(rows, turn, out=filled, casting="same_kind")
            else:
                for to, of in enumerate(entries):
                    np.multiply(rows[:, of], turn[of, to], out=filled[:, to], casting="same_kind")
            if shifts is not None:
                flat = filled.reshape(-1)
                flat += shifts[: flat.size]
    return result


def _is_monomial(linear: Matrix) -> bool:
    return bool((np.count_nonzero(linear, axis=1) == 1).all())


def _between(to: Placement, back: Placement, matrix: npt.ArrayLike) -> Matrix:
    return np.asarray(to.matrix @ np.asarray(matrix, dtype=np.float64) @ back.matrix)
