"""The interface between linear systems and their solvers, the same on one rank and on many.

Vectors are flat float64 arrays of this rank's unknowns. `dot` sums over all ranks in a way that
does not depend on their number where the System can offer that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class System(Protocol):
    """A square linear system A x = b, distributed over ranks.

    Attributes:
        kind: "spd" (semi-definite with a known null space counts), "quasi-definite" or "general".
        size: Unknowns of this rank.
        block_size: Unknowns that belong together: 1, 3, 6.
        null_space: Vectors n with A n = 0, orthonormal over all ranks; empty for a regular system.
    """

    kind: str
    size: int
    block_size: int
    null_space: list[Vector]

    def multiply(self, x: Vector, out: Vector) -> None:
        """Write A x to out. Collective."""

    def dot(self, x: Vector, y: Vector) -> float:
        """Inner product over all ranks. Collective."""

    def diagonal(self) -> Vector:
        """The diagonal of A, this rank's part."""


@dataclass(frozen=True)
class SolveReport:
    """What a solve did.

    Attributes:
        size: Unknowns over all ranks.
        residual: |b - A x| / |b|, not preconditioned; b without its part in the null space.
    """

    solver: str
    size: int
    iterations: int
    seconds: float
    residual: float
    converged: bool
