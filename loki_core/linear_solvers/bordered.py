"""Bordered system: a few unknowns y that touch many others, and are not worth rows of their own.

    [ A    B ] [x]   [b]        S y = c - B^T A^-1 b,   S = D - B^T A^-1 B     (Schur complement)
    [ B^T  D ] [y] = [c]        x = A^-1 b - A^-1 B y

y is the pressure of pockets of air (D the mobility of their surface) or the velocity of bodies that
the fluid moves (D = -mass: eliminating y then adds B mass^-1 B^T to A). A stays as it is, with its
solver; each unknown of y costs one more solve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loki_core.linear_solvers.fluid_solve import FluidSolve
from loki_core.linear_solvers.system import Vector

Floats = NDArray[np.float64]

#: Part of the tolerance of x to which the columns are solved: S is a difference of large numbers.
COLUMN_TOLERANCE = 1.0e-2
RANK_TOLERANCE = 1.0e-9  # singular values of S that count as none, of the largest


@dataclass(frozen=True)
class Border:
    """What y adds to a system.

    Attributes:
        columns: Those of B, this rank's part, shape [m, rows].
        corner: D, symmetric, the same on all ranks, shape [m, m].
        rhs: c, the same on all ranks, shape [m].
    """

    columns: Floats
    corner: Floats
    rhs: Floats

    @staticmethod
    def joined(parts: list[Border]) -> Border:
        """Several borders as one; they touch each other through A alone."""
        ends = np.cumsum([0] + [len(part.rhs) for part in parts])
        corner = np.zeros((ends[-1], ends[-1]))
        for part, start, stop in zip(parts, ends[:-1], ends[1:], strict=True):
            corner[start:stop, start:stop] = part.corner
        columns = np.concatenate([part.columns for part in parts])
        return Border(columns, corner, np.concatenate([part.rhs for part in parts]))


class BorderedSolve:
    """Solves with a border, beside a solver that is prepared for A. Made collectively.

    Attributes:
        y: The unknowns of the border.
        warning: What went wrong in the solves of columns, or nothing.
    """

    def __init__(
        self, solve: FluidSolve, border: Border, *, tol: float, max_iterations: int
    ) -> None:
        self.border = border
        self._fluid = solve
        self._solved = np.zeros_like(border.columns)
        self.warning = ""
        for column, solved in zip(border.columns, self._solved, strict=True):
            solve.solve(
                column.copy(), solved, tol=COLUMN_TOLERANCE * tol, max_iterations=max_iterations
            )
            self.warning = self.warning or solve.warning
        rows = [self._onto_columns(solved) for solved in self._solved]
        schur = border.corner - np.array(rows).reshape(border.corner.shape)
        self._schur = 0.5 * (schur + schur.T)
        self.y = np.zeros(len(border.rhs))

    def _onto_columns(self, x: Vector) -> Floats:
        """B^T x. Collective."""
        return np.array([self._fluid.dot(column, x) for column in self.border.columns])

    def complete(
        self, b: Vector, x: Vector, *, first: int | None = None, rhs: Floats | None = None
    ) -> None:
        """Turn a solution of A x = b into one of the whole system. Collective.

        b loses B y, so that A x = b still holds; x and `y` are changed in place.

        Args:
            first: Of the border's unknowns that take part, those in front; None are all.
            rhs: Instead of the border's own c.
        """
        self.y[:] = 0.0
        self._step(b, x, first, self.border.rhs if rhs is None else rhs)

    def correct(self, b: Vector, x: Vector) -> float:
        """Do the same after x was changed by bounds; returns the largest error before. Collective.

        It is a step of a Newton method with the matrix that has no bounds.
        """
        return self._step(b, x, None, self.border.rhs)

    def _step(self, b: Vector, x: Vector, first: int | None, rhs: Floats) -> float:
        part = slice(first)
        missing = rhs - self._onto_columns(x) - self.border.corner @ self.y
        schur = self._schur[part, part]
        change = np.linalg.lstsq(schur, missing[part], rcond=RANK_TOLERANCE)[0]
        self.y[part] += change
        x -= change @ self._solved[part]
        b -= change @ self.border.columns[part]
        return float(np.abs(missing[part]).max(initial=0.0))
