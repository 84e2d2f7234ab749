"""Which linear solver takes a system, and what happens when it fails.

Automatic: systems of bodies by manybodies. With multipliers strands take a Schur complement; where
a body is so large that it has factors of its own, or multipliers join bodies, all is factorised
together if it lies on one rank, and else gathered. Of the others small ones and those that are not
spd directly, the rest by smoothed aggregation, on rigid motions where the system says that these
are what its matrix makes small. When a solve does not converge the next solver is tried from the
same start, and the report says so. Conjugate gradients, plain or preconditioned, never get a system
that is not spd.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from loki_core.errors import DivergenceError, LokiError, SetupError, did_you_mean
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.linear_solvers.direct import Direct
from loki_core.linear_solvers.elastic_aggregation import ElasticAggregation
from loki_core.linear_solvers.manybodies import Manybodies
from loki_core.linear_solvers.multiplier_system import MultiplierSystem
from loki_core.linear_solvers.quasi_definite import QuasiDefinite
from loki_core.linear_solvers.schur_complement import SchurComplement
from loki_core.linear_solvers.smoothed_aggregation import SmoothedAggregation
from loki_core.linear_solvers.sparse_system import SparseSystem
from loki_core.linear_solvers.system import SolveReport, Vector


class Solver(Protocol):
    """What all linear solvers do; which systems one takes is for `choose_solver` to know."""

    name: str

    def prepare(self, system: Any, reuse: str | None = None) -> None:
        """Take a system. Collective."""

    def solve(
        self, b: Vector, x: Vector, *, tol: float = ..., max_iterations: int = ...
    ) -> SolveReport:
        """Improve x until |b - A x| <= tol |b|. Collective."""


SOLVERS: dict[str, type[Solver]] = {
    "smoothed_aggregation": SmoothedAggregation,
    "conjugate_gradient": ConjugateGradient,
    "direct": Direct,
    "manybodies": Manybodies,
    "schur_complement": SchurComplement,
    "quasi_definite": QuasiDefinite,
    "elastic_aggregation": ElasticAggregation,
}
FOR_BODIES = ("manybodies", "direct", "conjugate_gradient")
FOR_OTHERS = ("smoothed_aggregation", "conjugate_gradient", "direct")
FOR_ELASTIC = ("elastic_aggregation", "conjugate_gradient", "direct")
NAMES = ("auto", *SOLVERS)
NAMES_FOR_FLUIDS = ("auto", *FOR_OTHERS)
AnySystem = SparseSystem | BodySystem | MultiplierSystem
# Unknowns over all ranks for which a factorisation is quicker than a hierarchy; with rigid modes
# that is so up to 600 of a solid and 5,000 of a cloth.
SMALL = 1000
SMALL_ELASTIC = 3000


def choose_solver(system: AnySystem, name: str = "auto") -> Solver:
    """Return a solver for a system, not prepared; the same on all ranks.

    Args:
        name: "auto", or a solver by its name.
    """
    return SOLVERS[_order(system, name)[0]]()


def solve_with_fallback(
    system: AnySystem,
    b: Vector,
    x: Vector,
    *,
    name: str = "auto",
    solver: Solver | None = None,
    again: Solver | None = None,
    tol: float = 1e-8,
    max_iterations: int = 1000,
) -> SolveReport:
    """Solve A x = b, by the next solver where one fails. Collective.

    Args:
        name: Which solver comes first: "auto", or its name.
        solver: One that is prepared for this system already, used first.
        again: One that has solved others and is to be prepared for this one; used where its turn
            comes, so that it keeps what it knows of the pattern.

    Raises:
        DivergenceError: When every solver failed; x is as it was.
    """
    order = _order(system, solver.name if solver is not None else name)
    start = x.copy()
    failures: list[str] = []
    last: SolveReport | None = None
    for candidate in order:
        x[:] = start
        attempt = solver if solver is not None and candidate == solver.name else None
        try:
            if attempt is None:
                known = again is not None and candidate == again.name
                attempt = again if again is not None and known else SOLVERS[candidate]()
                attempt.prepare(system)
            report = attempt.solve(b, x, tol=tol, max_iterations=max_iterations)
        except LokiError as error:
            failures.append(f"{candidate} ({error})")
            continue
        if report.converged:
            return replace(report, fell_back_from="; ".join(failures) or None)
        last = report
        failures.append(
            f"{candidate} (residual {report.residual:.2g} after {report.iterations} iterations, "
            f"wanted {tol:.2g})"
        )
    x[:] = start
    residual = "unknown" if last is None else f"{last.residual:.3g}"
    iterations = 0 if last is None else last.iterations
    failed = DivergenceError(
        f"a linear system of {system.total_size} unknowns ({system.kind}) was not solved: "
        f"{iterations} iterations, residual {residual}; tried {'; '.join(failures)}; "
        "look for values that are not finite, a wrong null space, or a matrix that is not spd"
    )
    failed.together = True  # every attempt ends on all ranks alike, so a step may be tried again
    raise failed


def _order(system: AnySystem, name: str) -> list[str]:
    """Solvers to try, in order."""
    if name not in NAMES:
        raise SetupError(f'linear solver "{name}" is not known{did_you_mean(name, NAMES)}')
    if isinstance(system, MultiplierSystem):
        return _order_with_multipliers(system, name)
    if isinstance(system, BodySystem):
        suitable, what, small = FOR_BODIES, "a system of bodies", -1
    elif _has_rigid_modes(system):
        suitable, what, small = FOR_ELASTIC, "a system with rigid modes", SMALL_ELASTIC
    else:
        suitable, what, small = FOR_OTHERS, "a system without rigid modes", SMALL
    if name != "auto" and name not in suitable:
        raise SetupError(
            f'linear solver "{name}" cannot solve {what}; it can be solved by {", ".join(suitable)}'
        )
    if system.kind != "spd":
        if name not in ("auto", "direct"):
            raise SetupError(
                f'linear solver "{name}" cannot solve a {system.kind} system; '
                'use "direct" or "auto"'
            )
        return ["direct"]
    first = name
    if name == "auto":
        first = "direct" if system.total_size <= small else suitable[0]
    return [first, *(other for other in suitable if other != first)]


def _has_rigid_modes(system: SparseSystem) -> bool:
    """Whether what the matrix makes small are the motions and turns of a body, not components."""
    modes = system.near_null_space
    return modes is not None and len(modes) == 6 and system.block_size > 1


def _order_with_multipliers(system: MultiplierSystem, name: str) -> list[str]:
    suitable = ["direct"]
    if (system.joins_bodies or system.bodies.has_sparse) and system.is_local:
        suitable = ["quasi_definite", "direct"]
    if not system.joins_bodies:
        suitable.insert(len(suitable) - 1, "schur_complement")
    if name not in ("auto", *suitable):
        raise SetupError(
            f'linear solver "{name}" cannot solve bodies with multipliers; use '
            f"{' or '.join(suitable)}"
        )
    return sorted(suitable, key=lambda one: one != name) if name != "auto" else suitable
