"""Joint Rest: rest parameters of solids that Attachments hold, to each other or to a moving mesh.

Strands that hang on an Attachment are in balance only where it pulls, and what pulls at one end
pulls at the other. So the sag-free problem of `rest_problem.py` is one for all solids together,

    (K + A^T k A + w^2 M) y = f,     p <- p - G y,     s <- s - A y

with A the gradient of the Attachments' C and s their shift, the load that they carry from the
start. What holds the other end and has no sag-free start stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import DivergenceError
from loki_core.kernels.solids.constraint_assembly import close_fixed
from loki_core.kernels.solids.coupling_assembly import add_element_stiffness, element_forces
from loki_core.linear_solvers.choice import choose_solver, solve_with_fallback
from loki_core.operators.rest_problem import BALANCED, LOOSENINGS, RestProblem

Float = NDArray[np.float64]

TOLERANCE = 1.0e-12  # of the linear solves
PATIENCE = 2000
FASTEST = 1.0e3  # 1/s: modes beyond are stiff in every sense


class JointRest:
    """The sag-free problem of several solids and of what joins them. All of it is collective.

    Args:
        system: The joint system.
        problems: Those of the solids, each by itself.
        joining: Constraints between bodies that carry loads.
    """

    def __init__(self, system: Any, problems: Sequence[RestProblem], joining: Sequence[Any]):
        self.system, self.problems, self.joining = system, problems, joining
        self.fixed = np.minimum.reduce([one.fixed for one in problems])
        self.fixed_with_ghosts = system.with_ghosts(self.fixed).astype(np.uint8)
        self.gradients = [np.zeros_like(one.gradient) for one in joining]
        self.mass = np.sum([one.mass for one in problems], axis=0)

    def balance(self, iterations: int = 24) -> tuple[float, float]:
        """Change rest parameters and shifts until forces vanish; largest force before, after.

        Where something is free to fall or to spin the smallest rate makes y so large that the error
        of a solve shows in all else. A step that brings no balance is taken back, and w grows.
        """
        force, values, data = self._assemble()
        before = after = self._largest(force)
        load = self._largest(np.sum([one.load for one in self.problems], axis=0))
        rate = max(*(one.regularization for one in self.problems), 1e-12)
        for _ in range(iterations):
            if after <= BALANCED * load or rate > FASTEST:
                break
            kept = self._parameters()
            y, rate = self._solve(values, data, force, rate)
            self._take_back(y)
            assembled = self._assemble()
            found = self._largest(assembled[0])
            if found < after:
                (force, values, data), after = assembled, found
            else:
                self._put_back(kept)
                rate *= 10.0
        self._assemble()  # values and gradients of what is kept
        return before, after

    def _take_back(self, y: Float) -> None:
        """Take the strains of displacements y out of rest parameters and shifts."""
        for problem in self.problems:
            problem.take_back(y)
        moved = self.system.with_ghosts(y)
        for one, gradient in zip(self.joining, self.gradients, strict=True):
            change = np.einsum("nmd,nd->nm", gradient, moved[one.joint_dofs])
            carried = one.stiffness_in_use()[0] > 0.0
            one.set_shift(one.shift() - np.where(carried, change, 0.0))

    def _terms(self) -> list[Any]:
        return [term for one in self.problems for term in one.terms if term.adjustable]

    def _parameters(self) -> tuple[list[Float], list[Float]]:
        rest = [term.constraint.rest_parameters() for term in self._terms()]
        return rest, [one.shift() for one in self.joining]

    def _put_back(self, kept: tuple[list[Float], list[Float]]) -> None:
        for term, rest in zip(self._terms(), kept[0], strict=True):
            term.constraint.set_rest_parameters(rest)
        for one, shift in zip(self.joining, kept[1], strict=True):
            one.set_shift(shift)

    def _assemble(self) -> tuple[Float, Float, Float]:
        """Force on every free unknown, and the matrix: bodies, and what joins them."""
        force = np.sum([one.force() for one in self.problems], axis=0)
        matrices = [one.matrix(adjustable_only=True) for one in self.problems]
        values = np.sum([own for own, _ in matrices], axis=0)
        data = np.sum([own for _, own in matrices], axis=0)
        self._add_joining(force, values, data)
        return force, values, data

    def _add_joining(self, force: Float, values: Float, data: Float) -> None:
        """Add forces and stiffness of what joins bodies, as the solids are now."""
        for one, gradient in zip(self.joining, self.gradients, strict=True):
            value = np.zeros(gradient.shape[:2])
            k = np.broadcast_to(one.stiffness_in_use()[0], value.shape)
            one.find_values(value, gradient)
            forces = np.zeros((gradient.shape[0], gradient.shape[2]))
            matrices = np.zeros((*forces.shape, forces.shape[1]))
            element_forces(gradient, k * value, forces)
            add_element_stiffness(gradient, np.ascontiguousarray(k), matrices)
            one.coupled.add(forces, matrices, self.fixed_with_ghosts, force, values, data)

    def _solve(self, values: Float, data: Float, force: Float, rate: float) -> tuple[Float, float]:
        """Find y; the rate w grows where the matrix is not definite within rounding."""
        system = self.system
        diagonal = system.row + np.arange(system.size)
        for _ in range(LOOSENINGS):
            whole = values.copy()
            whole[diagonal] += rate**2 * self.mass
            close_fixed(self.fixed, system.row, np.zeros(system.size), whole)
            linear = system.body_system(whole, data)
            solver, y = choose_solver(linear), np.zeros(system.size)
            try:
                solver.prepare(linear)
            except DivergenceError:  # on all ranks
                rate *= 10.0
                continue
            solve_with_fallback(
                linear, force, y, solver=solver, tol=TOLERANCE, max_iterations=PATIENCE
            )
            return y, rate
        paths = ", ".join(one.target.path for one in self.problems)
        raise DivergenceError(f"{paths}: the stiffness at the start is not finite")

    def _largest(self, force: Float) -> float:
        found = max((one.largest(force) for one in self.problems), default=0.0)
        return float(self.system.comm.maximum(found))

    def hold(self) -> None:
        """Tell each solid's own problem how stiffly it is held, the other ends at rest."""
        stiffness = np.zeros(len(self.system.values))
        nowhere = np.zeros_like(self.system.couplings.data)
        self._add_joining(np.zeros(self.system.size), stiffness, nowhere)
        for problem in self.problems:
            problem.joined = stiffness
