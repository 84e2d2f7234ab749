"""Conjugate gradients preconditioned by the factors of an older state of the system.

A body that moves a little keeps most of its stiffness. An iteration with old factors costs a ninth
of new ones, so they are kept while the last solve took few enough. What hurts most is that stiff
and soft directions turn with the body: a cloth turned by 2 degrees takes 50 iterations. Where the
turns R of its vertices are known, R A^-1 R^T takes the place of A^-1: one iteration for a body that
turns as a whole, a third or a fifth as many for one that bends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import LokiError
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.multifrontal import SparseFactors, vertex_graph
from loki_core.linear_solvers.system import SolveReport, System, Vector

Array = NDArray[Any]
MOST_ITERATIONS = 8  # of a solve, with which factors are kept


class KeptFactors(ConjugateGradient):
    """Factorise in `prepare` when the last solve was slow, else keep what there is.

    Args:
        widths: Unknowns of each vertex; the system's `block_size` where nothing is given.
        coordinates: Rest positions of the vertices, which suggest the order.
        precision: Of the factors; "single" costs an iteration and halves the memory.

    Attributes:
        factorisations: How many there have been.
        turns: How each vertex has turned since the factors were made, [vertices, 3, 3], or None;
            for bodies of points. New factors set it to None.
    """

    name = "kept_factors"

    def __init__(
        self,
        *,
        widths: Array | None = None,
        coordinates: Array | None = None,
        precision: str = "double",
    ) -> None:
        self.factorisations = 0
        self.turns: Array | None = None
        self._widths, self._coordinates, self._precision = widths, coordinates, precision
        self._factors: SparseFactors | None = None
        self._pattern: tuple[Array, Array] | None = None
        self._slow = True

    def prepare(self, system: System, reuse: str | None = None) -> None:
        """Take a system; reuse = "values" keeps the factors whatever the last solve. Collective.

        Raises:
            DivergenceError: On all ranks, where new factors are due and the matrix is not definite.
        """
        super().prepare(system)
        fits = self._factors is not None and self._factors.size == system.size
        if fits and (reuse == "values" or not self._slow):
            return
        error = None
        try:
            self._factorise(system)
        except LokiError as failure:
            self._factors, self._pattern, error = None, None, failure
        self.system.comm.raise_together(error)

    def solve(
        self, b: Vector, x: Vector, *, tol: float = 1e-8, max_iterations: int = 1000
    ) -> SolveReport:
        """Improve x until |b - A x| <= tol |b|. Collective."""
        report = super().solve(b, x, tol=tol, max_iterations=max_iterations)
        self._slow = report.iterations > MOST_ITERATIONS or not report.converged
        return report

    def _factorise(self, system: System) -> None:
        """Factorise this rank's own part, on the same fronts while its pattern stays."""
        indptr, indices, data = system.csr()
        idle = np.flatnonzero(~self._used)
        if idle.size:  # an unknown that takes part in nothing gets a one on the diagonal
            indices = np.insert(indices, indptr[idle], idle.astype(indices.dtype))
            data = np.insert(data, indptr[idle], 1.0)
            indptr = indptr + np.searchsorted(idle, np.arange(len(indptr)))
        known = self._pattern
        if (
            self._factors is None
            or known is None
            or not np.array_equal(known[0], indptr)
            or not np.array_equal(known[1], indices)
        ):
            widths = self._widths
            if widths is None:
                widths = np.full(system.size // system.block_size, system.block_size)
            self._factors = SparseFactors(
                *vertex_graph(indptr, indices, widths),
                widths=widths,
                coordinates=self._coordinates,
                precision=self._precision,
            )
            self._pattern = known = indptr, indices
        self._factors.factor(known[0], known[1], data)
        self.factorisations += 1
        self.turns, self._slow = None, False

    def _apply(self, residual: Vector) -> Vector:
        assert self._factors is not None
        found = np.empty_like(residual)
        if self.turns is None:
            self._factors.solve(residual, found)
            return found
        self._factors.solve(_turned("nij,ni->nj", self.turns, residual), found)
        return _turned("nij,nj->ni", self.turns, found)


def _turned(rule: str, turns: Array, vector: Vector) -> Vector:
    return np.ascontiguousarray(np.einsum(rule, turns, vector.reshape(-1, 3))).reshape(-1)
