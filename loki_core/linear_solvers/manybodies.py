"""The manybodies solver: conjugate gradients preconditioned by each body's own factors.

Strands and meshes are stiff inside and joined softly, by contacts and attachments. With every body
factorised exactly (kernels/algebra/skyline.py) the iteration sees only the couplings: its count
does not grow with the stiffness of the bodies. Where nothing joins bodies the factors are the
solution.

Those of large bodies (`sparse_bodies.py`) are dear, and kept while solves with them take few
iterations: a body that moves a little keeps most of its stiffness. A solve that takes more goes on
with new ones, and then the next solves begin with new ones: one, two, four and so on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import perf_counter

import numpy as np

from loki_core.errors import DivergenceError, SetupError
from loki_core.kernels.algebra.skyline import factor_bodies, solve_bodies
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.system import SolveReport, System, Vector

EPSILON = float(np.finfo(np.float64).eps)
KEPT = 8  # iterations of a solve up to which factors of large bodies are kept
PROBE = 2  # of them, after which it is clear whether they will do


class Manybodies(ConjugateGradient):
    """Factorise the bodies in `prepare`; in `solve` substitute, or iterate over couplings."""

    name = "manybodies"

    def __init__(self) -> None:
        self.system: BodySystem
        self._factored: BodySystem | None = None
        self._factors = np.empty(0)
        self._failed = np.empty(0, dtype=np.int64)
        self._penalty = self._renewals = 1  # solves that begin with new factors, of large bodies

    def prepare(self, system: System, reuse: str | None = None) -> None:
        """Factorise every body; reuse = "values" keeps the factors of that system. Collective.

        Raises:
            DivergenceError: On all ranks, where a body is not positive definite.
        """
        if not isinstance(system, BodySystem):
            raise SetupError(
                f"manybodies solves systems of bodies, not a {type(system).__name__}; "
                'use "auto" or another linear solver'
            )
        if reuse == "values" and system is self._factored:
            return
        self._factored = None
        super().prepare(system)
        # |A| is at least its largest diagonal entry: a residual of eps |A| |x| is rounding. Rods
        # end at 0.4 eps of it (validation/manybodies.py).
        own = float(system.diagonal().max(initial=0.0))
        self._rounding_unit = 2.0 * EPSILON * system.comm.maximum(own)
        if len(self._factors) != len(system.values):
            self._factors = np.empty(len(system.values))
        if len(self._failed) != system.bodies:
            self._failed = np.empty(system.bodies, dtype=np.int64)
        factor_bodies(
            system.values, system.row, system.first, system.body_start, self._factors, self._failed
        )
        system.comm.raise_together(self._failure(system))
        self._factored = system
        if system.has_sparse:
            self._keep_or_factor_sparse()

    def _keep_or_factor_sparse(self) -> None:
        """Factorise the large bodies, unless solves have been quick. Collective."""
        sparse = self.system.sparse
        if sparse is not None:
            sparse.is_fresh = False
        missing = sparse is not None and not sparse.has_factors
        if self.system.comm.any(self._renewals > 0 or missing):
            self._renewals -= 1
            self._factor_sparse()

    def _factor_sparse(self) -> None:
        """Factorise the large bodies as they are now. Collective."""
        sparse, couplings, error = self.system.sparse, self.system.couplings, None
        if sparse is not None and couplings is not None:
            try:
                sparse.factor(self.system.values, couplings[2])
            except DivergenceError as failure:
                error = failure
        self.system.comm.raise_together(error)

    def solve(
        self, b: Vector, x: Vector, *, tol: float = 1e-8, max_iterations: int = 1000
    ) -> SolveReport:
        """Improve x until |b - A x| <= tol |b|, or until the rest is rounding. Collective."""
        system = self.system
        if not system.has_couplings:
            return self._substitute(b, x, tol)
        sparse = system.sparse
        kept = system.has_sparse and system.comm.any(sparse is not None and not sparse.is_fresh)
        if not kept:
            report = super().solve(b, x, tol=tol, max_iterations=max_iterations)
            if sparse is not None:
                sparse.note(report.iterations)
            return report
        report = super().solve(b, x, tol=tol, max_iterations=PROBE)
        if not report.converged and report.residual ** (KEPT / PROBE) < tol:
            report = self._go_on(report, b, x, tol, KEPT)
        if not report.converged:
            self._penalty *= 2
            self._renewals = self._penalty
            self._factor_sparse()
            report = self._go_on(report, b, x, tol, max_iterations)
        return report

    def _go_on(
        self, report: SolveReport, b: Vector, x: Vector, tol: float, most: int
    ) -> SolveReport:
        """Iterate further from the x of a report. Collective."""
        more = super().solve(b, x, tol=tol, max_iterations=most)
        return replace(
            more, iterations=report.iterations + more.iterations,
            seconds=report.seconds + more.seconds,
        )  # fmt: skip

    def _substitute(self, b: Vector, x: Vector, tol: float) -> SolveReport:
        """Solve where nothing joins bodies. Collective."""
        start, system = perf_counter(), self.system
        scale = math.sqrt(system.dot(b, b))
        x[:] = self._apply(b)
        residual = np.empty_like(b)
        norm = self._residual(b, x, residual)
        if norm > tol * scale:
            better = x + self._apply(residual)
            refined = self._residual(b, better, residual)
            if refined < norm:
                x[:], norm = better, refined
        return SolveReport(
            self.name,
            system.total_size,
            1,
            perf_counter() - start,
            norm / scale if scale > 0.0 else 0.0,
            math.isfinite(norm) and norm <= max(tol * scale, self._rounding(x)),
        )

    def _residual(self, b: Vector, x: Vector, out: Vector) -> float:
        """Write b - A x to out and return its norm."""
        self.system.multiply(x, out)
        np.subtract(b, out, out=out)
        return math.sqrt(self.system.dot(out, out))

    def _apply(self, residual: Vector) -> Vector:
        system, found = self.system, np.empty_like(residual)
        solve_bodies(self._factors, system.row, system.first, system.body_start, residual, found)
        if system.sparse is not None:
            system.sparse.solve(residual, found)
        return found

    def _rounding(self, x: Vector) -> float:
        return self._rounding_unit * math.sqrt(self.system.dot(x, x))

    def _failure(self, system: BodySystem) -> DivergenceError | None:
        """What to say of the first body that could not be factorised."""
        bad = np.flatnonzero(self._failed >= 0)
        if not bad.size:
            return None
        body = int(bad[0])
        row = int(self._failed[body])
        return DivergenceError(
            f"body {body} of {system.bodies} is not positive definite: the pivot of row "
            f"{row - int(system.body_start[body])} of its "
            f"{int(np.diff(system.body_start)[body])} (unknown {row}) is not positive; look for "
            "values that are not finite, a negative stiffness, or unknowns without mass"
        )
