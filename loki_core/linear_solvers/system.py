"""The interface between linear systems and their solvers, the same on one rank and on many.

Vectors are flat float64 arrays of this rank's unknowns. `dot` sums over all ranks in a way that
does not depend on their number where the System can offer that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]


class System(Protocol):
    """A square linear system A x = b, distributed over ranks.

    Attributes:
        kind: "spd" (semi-definite with a known null space counts), "quasi-definite" or "general".
        size: Unknowns of this rank.
        block_size: Unknowns that belong together: 1, 3, 6.
        null_space: Vectors n with A n = 0, orthonormal over all ranks; empty for a regular system.
        near_null_space: Vectors that A makes small; None stands for the constant vector.
    """

    kind: str
    size: int
    block_size: int
    null_space: list[Vector]
    near_null_space: Sequence[NDArray[Any]] | None

    def multiply(self, x: Vector, out: Vector) -> None:
        """Write A x to out. Collective."""

    def dot(self, x: Vector, y: Vector) -> float:
        """Inner product over all ranks. Collective."""

    def diagonal(self) -> Vector:
        """The diagonal of A, this rank's part."""

    def csr(self) -> Rows:
        """This rank's rows as (indptr, indices, data); columns from `size` on are ghosts."""


@dataclass(frozen=True)
class SolveReport:
    """What a solve did.

    Attributes:
        size: Unknowns over all ranks.
        residual: |b - A x| / |b|, not preconditioned; b without its part in the null space. For a
            complementarity problem: the largest |min(x - l, A x + b)|, relative (see there).
        fell_back_from: The solver that failed before this one, with the reason; None if none did.
        back_end: The library that did the work, where there is a choice, and why not another.
    """

    solver: str
    size: int
    iterations: int
    seconds: float
    residual: float
    converged: bool
    fell_back_from: str | None = None
    back_end: str = ""

    @property
    def warning(self) -> str:
        """What the user should know of the solve, or nothing."""
        failed = self.fell_back_from
        return f"{self.solver} took over from {failed}" if failed else ""
