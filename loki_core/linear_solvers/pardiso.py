"""PARDISO of Intel's MKL, where `pypardiso` is installed: an option of the direct solver.

Symmetric matrices are factorised as such, of which one triangle is stored: in half of the time and
two thirds of the memory that an unsymmetric factorisation takes. The analysis is kept while the
pattern stays.
"""

from __future__ import annotations

import importlib
import importlib.util
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.linear_solvers.system import Vector

#: PARDISO's matrix types by kind of system.
TYPES = {"spd": 2, "quasi-definite": -2, "general": 11}
ANALYSE, FACTORISE, SOLVE = 11, 22, 33  # its phases
#: Its parameters that differ from its defaults, counted from 1: take them, the order of METIS, and
#: the factorisation for many threads, which pivots of other than definite matrices do without.
PARAMETERS = ((1, 1), (2, 2))
FOR_THREADS = (24, 1)


def is_there() -> bool:
    """Whether the library can be imported."""
    return importlib.util.find_spec("pypardiso") is not None


class Pardiso:
    """Factors of matrices of one kind.

    Args:
        kind: "spd", "quasi-definite" or "general", as systems have it.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._solver: Any = importlib.import_module("pypardiso").PyPardisoSolver(mtype=TYPES[kind])
        for number, value in (*PARAMETERS, *((FOR_THREADS,) if kind == "spd" else ())):
            self._solver.set_iparm(number, value)
        self._matrix: Any = None
        # Its memory is the library's own: nothing frees it with the object.
        weakref.finalize(self, self._solver.free_memory, everything=True)

    def factor(self, matrix: Any) -> None:
        """Factorise a matrix of scipy, with both triangles. The library raises what it finds."""
        rows = matrix.tocsr()
        if self.kind != "general":
            rows = importlib.import_module("scipy.sparse").triu(rows, format="csr")
        rows.sort_indices()
        known, self._matrix = self._matrix, rows
        self._nothing = np.zeros((rows.shape[0], 1))
        if not _same_pattern(known, rows):
            self._call(ANALYSE, self._nothing)
        self._call(FACTORISE, self._nothing)

    def solve(self, b: Vector) -> Vector:
        """The solution for one right-hand side."""
        return self._call(SOLVE, b.reshape(-1, 1)).reshape(-1)

    def _call(self, phase: int, b: NDArray[np.float64]) -> NDArray[np.float64]:
        self._solver.set_phase(phase)
        found: NDArray[np.float64] = self._solver._call_pardiso(self._matrix, np.asfortranarray(b))
        return found


def _same_pattern(one: Any, other: Any) -> bool:
    return one is not None and (
        np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)
    )
