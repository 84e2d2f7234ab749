"""Conjugate gradients preconditioned by smoothed aggregation on rigid motions.

    Vanek, Mandel, Brezina 1996; for cloth: Tamstorf, Jones, McCormick 2015

For large elastic bodies, whose factors would fill memory. What an elastic matrix makes small are no
constants per component, as in a fluid, but rigid motions: coarse vertices have six unknowns, three
motions and three turns (`elastic_hierarchy.py`). Vectors are double precision and the
preconditioner is single.

On several ranks each preconditions its own rows, without the ghosts (block Jacobi over the ranks),
and the iteration goes over the whole matrix: it takes more iterations on more ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import LokiError, SetupError
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.elastic_hierarchy import ElasticHierarchy, neighbours
from loki_core.linear_solvers.system import System, Vector

Array = NDArray[Any]


class ElasticAggregation(ConjugateGradient):
    """Make a hierarchy in `prepare`, and precondition with one V-cycle of it in `solve`.

    Args:
        widths: Unknowns of each vertex; the system's `block_size` where nothing is given.
        coordinates: Positions of the vertices at which the matrix is taken, [vertices, 3]; the
            system's `near_null_space` holds the modes where nothing is given.

    Attributes:
        coordinates: As given; where a body moves, take new ones before `prepare`.
        hierarchy: The levels, of this rank's rows.
    """

    name = "elastic_aggregation"

    def __init__(self, *, widths: Array | None = None, coordinates: Array | None = None) -> None:
        self.hierarchy: ElasticHierarchy | None = None
        self.coordinates = coordinates
        self._widths = widths

    def prepare(self, system: System, reuse: str | None = None) -> None:
        """Make the hierarchy. Collective.

        Args:
            system: An spd system. Unknowns that nothing couples, as prescribed ones, are left out
                of the modes.
            reuse: None makes everything; "pattern" keeps the aggregates where neighbours are the
                same; "values" keeps the whole hierarchy, for a matrix that is nearly the same.

        Raises:
            DivergenceError: On all ranks, where a vertex's own block is not positive definite.
            SetupError: The system is not spd, or there are no modes that fit it.
        """
        if system.kind != "spd":
            raise SetupError(f"elastic aggregation cannot solve a {system.kind} system")
        if reuse not in (None, "pattern", "values"):
            raise SetupError(f'reuse = "{reuse}" is not known; known: None, "pattern", "values"')
        super().prepare(system)
        if reuse is None:
            self.hierarchy = None  # frees its memory
        is_other = self.hierarchy is None or self.hierarchy.size != system.size
        if reuse == "values" and not self.system.comm.any(is_other):
            return
        error = None
        try:
            self._make(system)
        except LokiError as failure:
            self.hierarchy, error = None, failure
        self.system.comm.raise_together(error)

    def _make(self, system: System) -> None:
        """Make this rank's levels, on the aggregates of those before where these fit."""
        widths = self._widths
        if widths is None:
            widths = np.full(system.size // system.block_size, system.block_size)
        if int(np.sum(widths)) != system.size:
            raise SetupError(
                f"the widths of {len(widths)} vertices make {int(np.sum(widths))} unknowns; the "
                f"system has {system.size}"
            )
        indptr, indices, data = system.csr()
        graph = neighbours(indptr, indices, widths)
        modes = None if self.coordinates is not None else self._modes(system)
        if self.hierarchy is not None and self.hierarchy.fits(graph, widths):
            self.hierarchy.take_modes(coordinates=self.coordinates, modes=modes)
        else:
            self.hierarchy = None
            self.hierarchy = ElasticHierarchy(
                *graph, widths=widths, coordinates=self.coordinates, modes=modes
            )
        self.hierarchy.factor(indptr, indices, data)

    def _modes(self, system: System) -> Array | None:
        vectors = system.near_null_space
        return np.column_stack(vectors) if vectors is not None and len(vectors) else None

    def _apply(self, residual: Vector) -> Vector:
        assert self.hierarchy is not None
        found = np.empty_like(residual)
        self.hierarchy.solve(residual, found)
        return found
