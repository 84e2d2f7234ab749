"""Compliance mode: Lagrange multipliers carry what a Constraint does (Tournier et al. 2015).

With slope s and tension T of the formulas in `kernels/solids/constraint_assembly.py` a Newton
iteration of stiffness mode solves (A + G^T s G) dx = r - G^T T. The same, with y = T + s G dx as
unknown, is

    A dx + G^T y = r,      G dx - y / s = -T / s

which stays well conditioned for any s, and has a meaning for a rigid Constraint, 1 / s = 0. A part
k of s stays in the matrix where elements lie within a body, whose factors take it for nothing: then
the rest, of stiffness s - k, converges in a few iterations (`linear_solvers/schur_complement.py`).
Stiffness is counted in units of what holds the element otherwise, 1 / (G D^-1 G^T) with D the
diagonal of A. So multipliers enter last, when A is known.

A line search takes |T / s - y / s| times a weight above |y| as the potential of an element, an
exact penalty whose minimum is the solution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.solids.constraint_assembly import predict_tension, weigh_rows
from loki_core.linear_solvers.multiplier_system import MultiplierBlock

Float = NDArray[np.float64]

FIRM = 1.0e2  # stiffness that the matrix of bodies carries, in these units
RIGIDEST = 1.0e10  # largest stiffness, in the same units: what two rigid Constraints may share
ROUNDING = 1.0e-10  # of a gradient, against the largest of its element
PENALTY = 2.0  # weight of the line search over the multiplier's size


class Compliance:
    """What a Constraint in compliance mode keeps beside its values.

    Attributes:
        residual, give: T / s and 1 / s of the last evaluation, [n, m].
        least: Smallest 1 / s that is used, infinite for rows that move nothing, [n, m].
        multiplier: Those of the last solve, the part that the matrix carries apart, [n, m].
        tension: All that the last solve balanced, [n, m].
    """

    def __init__(self, constraint: Any) -> None:
        self.constraint = constraint
        shape = constraint.value.shape
        self.residual, self.give = np.zeros(shape), np.zeros(shape)
        self.multiplier, self.tension = np.zeros(shape), np.zeros(shape)
        self.least = np.zeros(shape)

    def split(self, dofs: NDArray[Any], diagonal: Float) -> None:
        """Share out s: tension and slope of the Constraint become the matrix's part.

        Args:
            diagonal: That of A, own unknowns and ghosts, [size].
        """
        one = self.constraint
        system = one.target.system
        weight = np.empty_like(self.give)
        weigh_rows(dofs, one.gradient, system.fixed_with_ghosts, diagonal, weight)
        # A gradient of rounding alone, as across a direction that is followed, moves nothing.
        moves = weight > ROUNDING**2 * np.max(weight, axis=1, initial=0.0, keepdims=True)
        unit = np.divide(1.0, weight, out=np.zeros_like(weight), where=moves)
        self.least = np.divide(1.0, RIGIDEST * unit, out=np.full_like(unit, np.inf), where=moves)
        whole = 1.0 / np.maximum(self.give, self.least)
        # Between bodies nothing stays in the matrix: their factors would not know of it.
        self.body = system.common_body(dofs)
        firm = np.where(self.body >= 0, FIRM, 0.0)[:, None]
        carried = np.isfinite(self.give)  # without k there is only friction, which stays as it is
        one.slope[:] = np.where(carried, np.minimum(whole, firm * unit), one.slope)
        one.tension[:] = np.where(carried, one.slope * self.residual, one.tension)
        rest = np.where(carried, whole - one.slope, 0.0)
        self.compliance = np.divide(1.0, rest, out=np.full_like(rest, np.inf), where=rest > 0.0)

    def block(self, dofs: NDArray[Any]) -> MultiplierBlock:
        """Rows of the multipliers in the joint system, body by body where none joins bodies."""
        one = self.constraint
        system, joins = one.target.system, bool(np.any(self.body < 0))
        self.order = np.argsort(self.body, kind="stable")
        runs = np.searchsorted(self.body[self.order], np.arange(len(system.body_start)))
        gradient = one.gradient * (system.fixed_with_ghosts[dofs] == 0)[:, None, :]
        count = len(dofs)
        return MultiplierBlock(
            np.zeros(1, np.int64) if joins else runs.astype(np.int64),
            dofs[self.order],
            gradient[self.order],
            self.compliance[self.order],
            one.slope[self.order],
            (one.is_owner if one.joins_bodies else np.ones(count, bool))[self.order],
            (one.numbers if one.joins_bodies else np.arange(count))[self.order],
        )

    def wanted(self, block: MultiplierBlock) -> Float:
        """Right-hand side of the block's rows."""
        found: Float = -self.residual[self.order][block.rows]
        return found

    def take_multipliers(self, block: MultiplierBlock, values: Float) -> None:
        """Keep the multipliers of the block's rows. Collective where bodies are joined."""
        sorted_ones = np.zeros_like(self.multiplier)
        sorted_ones[block.rows] = values
        self.multiplier[self.order] = sorted_ones
        if self.constraint.joins_bodies:
            self.multiplier[:] = self.constraint.from_owners(self.multiplier)

    def take(self, dofs: NDArray[Any], change: Float) -> None:
        """Keep the tension after a correction [size and ghosts] and its multipliers."""
        one = self.constraint
        predict_tension(dofs, one.gradient, one.tension, one.slope, change, self.tension)
        self.tension += self.multiplier

    def pull(self) -> Float:
        """Slope of the penalty by each component [n, m]."""
        weight: Float = PENALTY * np.abs(self.tension)
        return weight

    def energies(self) -> Float:
        """Penalty of each element at the residual that was evaluated last [J]."""
        give = np.maximum(self.give, self.least)
        there = np.isfinite(give)
        wanted = self.tension * np.where(there, give, 0.0)
        missed = np.where(there, np.abs(self.residual - wanted), 0.0)
        energy: Float = np.sum(self.pull() * missed, axis=1)
        return energy
