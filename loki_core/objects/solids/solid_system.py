"""The joint system of all solids: one matrix for everything that Constraints couple strongly.

Each body keeps the lower envelope of its own symmetric matrix, or compressed rows where it is
large; what joins two bodies is a sparse remainder (`linear_solvers/body_system.py`). The pattern is
found once and kept while bodies and constraint elements stay. Every Newton iteration: sums are
cleared, Forces and Constraints are evaluated, inertia joins, the correction is found, and all
solids move by it; with more than one iteration a line search makes sure that the incremental
potential falls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import Access, Declaration, split_name
from loki_core.errors import DivergenceError
from loki_core.kernels.algebra.skyline import envelope_of, factor_bodies
from loki_core.kernels.solids.constraint_assembly import close_fixed, widen_envelope
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.choice import Solver, choose_solver, solve_with_fallback
from loki_core.linear_solvers.direct import SIZE_LIMIT
from loki_core.linear_solvers.multiplier_system import MultiplierSystem
from loki_core.linear_solvers.sparse_bodies import SparseBodies, is_large
from loki_core.linear_solvers.system import SolveReport
from loki_core.objects.solids.couplings import Couplings
from loki_core.objects.solids.line_search import LineSearch
from loki_core.objects.solids.solid_unknowns import SolidUnknowns
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, TaskOwner, task

if TYPE_CHECKING:
    from loki_core.objects.solids.joinable import Joinable
    from loki_core.parallel.comm import Communicator

TOLERANCE = 1.0e-10  # of the linear solves, where they iterate
NEAR = 0.1  # rad, turn of a whole step after which second derivatives are those of the solution
PATIENCE = 1000  # iterations after which a direct solve is mostly the quicker way


class SolidSystem(TaskOwner):
    """Unknowns of all solids of this rank.

    Attributes:
        constraints: Constraints that add to the system; they enter themselves.
        balanced_at_start: Actions that give solids a sag-free start; they enter themselves.
        version: Changes when unknowns are numbered anew.
        first_row: Number of the first unknown of this rank among those of all ranks.
        unknowns: Vectors and matrix, which Tasks name "solids".
        row: Where the rows of the bodies' matrices begin (kernels/skyline).
        is_exact: Whether this iteration adds second derivatives: the one before has shown that the
            solution is near. Far from it the plain matrix has the better steps.
        couplings: Elements that join bodies.
        report: What the last solve did.
    """

    def __init__(self, comm: Communicator) -> None:
        self.path = "Solids"
        self.solids: list[Joinable] = []
        self.comm = comm
        self.unknowns = SolidUnknowns(self.path)
        self.constraints: list[Any] = []
        self.balanced_at_start: list[Any] = []
        self.version = 0
        self.size = 0
        self.report: SolveReport | None = None
        self._layout: list[int] = []
        self._pattern: Any = None
        self._changing: list[int] = []
        self._large: list[Joinable] = []
        self._soft_solver: Solver | None = None  # of multipliers: it knows their pattern
        self._soft_for = -1  # version that it was chosen for
        self.relative_change = 0.0
        self.line_search = LineSearch(self)
        self.is_exact = False
        self._is_near = False  # whether the solution is, as the last iteration saw it
        self._frame: int | None = None  # for which the solver was chosen
        self._told = False  # that another solver had to take over

    def add(self, item: Joinable) -> None:
        """Take an Object in, while the Solver is being built; `Joinable.join` calls it."""
        self.solids.append(item)
        item.system = self

    # -- what is touched -------------------------------------------------------------------

    @property
    def fixed(self) -> NDArray[np.uint8]:
        """Which unknowns are prescribed, [size]."""
        return self.unknowns.local("fixed")

    @property
    def fixed_with_ghosts(self) -> NDArray[np.uint8]:
        """The same, and after them the ghosts of couplings."""
        return self.unknowns.local("fixed_with_ghosts")

    @property
    def rhs(self) -> NDArray[np.float64]:
        """Force on each unknown, [size]."""
        return self.unknowns.local("force")

    @property
    def values(self) -> NDArray[np.float64]:
        """The bodies' matrices (kernels/skyline)."""
        return self.unknowns.local("matrix")

    @property
    def second(self) -> NDArray[np.float64]:
        """Second derivatives that the matrices lack, of the same shape; none without a search."""
        return self.unknowns.local("second")

    @property
    def change(self) -> NDArray[np.float64]:
        """The last correction, [size]."""
        return self.unknowns.local("change")

    @property
    def task_data(self) -> dict[str, Any]:
        """The unknowns, and the data of all Objects that have joined."""
        data: dict[str, Any] = {"solids": self.unknowns}
        for item in self.solids:
            data |= {f"{item.path}/{name}": holder for name, holder in item.data.items()}
        return data

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add what Objects and Constraints touch when the system calls them."""
        names = {id(holder): data_name for data_name, holder in self.task_data.items()}
        reads, writes = dict.fromkeys(declaration.reads), dict.fromkeys(declaration.writes)
        if name in ("reset", "solve") and self.searches:
            (writes if name == "reset" else reads)["solids.second"] = None
        for owner in (*self.solids, *self.constraints):
            touched, data = owner.joint_declaration(name), owner.task_data
            for found, given in ((reads, touched.reads), (writes, touched.writes)):
                for one in given:
                    data_name, channel = split_name(one)
                    found[f"{names[id(data[data_name])]}.{channel}"] = None
        kept = tuple(one for one in reads if one not in writes)
        return stage, replace(declaration, reads=kept, writes=tuple(writes))

    @property
    def searches(self) -> bool:
        """Whether Newton iterations are repeated, and a line search looks at them."""
        return any(item.scope.settings.newton_iterations > 1 for item in self.solids)

    def tasks(self) -> Iterator[Task]:
        """Contacts are answered only where there are any."""
        for one in super().tasks():
            if one.name != "respond" or any(c.is_contact for c in self.constraints):
                yield one

    # -- numbering -------------------------------------------------------------------------

    @task(
        Stage.NUMBER_SOLIDS,
        writes=("solids.fixed", "solids.force", "solids.change"),
        communicates=True,
    )
    def number(self, access: Access, step: Step) -> None:
        """Number unknowns where bodies came or went."""
        self.renew()

    def renew(self) -> None:
        """Number the unknowns where bodies came or went; else only find their rows. Collective."""
        layout = [item.particles.layout_version for item in self.solids]
        former, self._layout = self._layout or [-1] * len(layout), layout
        moved = [item for item, a, b in zip(self.solids, former, layout, strict=True) if a != b]
        changed = any(item.needs_numbers() for item in moved)
        if not self.comm.any(changed or self.version == 0):
            return
        self.version += 1
        self.size = 0
        starts = [np.zeros(1, np.int64)]
        for item in self.solids:
            item.number()
            item.unknowns.first = self.size
            starts.append(self.size + item.unknowns.body_start[1:])
            self.size += item.unknowns.size
        self.body_start = np.concatenate(starts)
        sizes = self.comm.all_gather(np.array([self.size], np.int64))
        self.first_row = int(np.concatenate(sizes)[: self.comm.rank].sum())
        self.unknowns.replace("fixed", np.zeros(self.size, np.uint8))
        self.unknowns.replace("force", np.zeros(self.size))
        self.unknowns.replace("change", np.zeros(self.size))

    def _find_pattern(self) -> None:
        """Give every row its envelope, and find what joins bodies. Collective."""
        first, large = self._find_envelopes()
        kept = [one for one in self.constraints if not one.is_changing]
        placed = [one for one in kept if one.joins_bodies or self._is_large(one.target)]
        self.couplings = Couplings(
            self.body_start, self.first_row, [self._numbers(one) for one in placed], large
        )
        self.couplings.widen(first)
        self.row, count = envelope_of(self.body_start, first)
        self.first = first
        self.unknowns.replace("matrix", np.zeros(count))
        if self.searches:
            self.unknowns.replace("second", np.zeros(count))
        self.couplings.place(self.row)
        for constraint in self.constraints:
            constraint.coupled = None
        for constraint, coupled in zip(placed, self.couplings.elements, strict=True):
            constraint.coupled = coupled
        self._sparse = self._find_sparse(large)
        self._take_changing()
        self.solver = choose_solver(self.linear)

    def _take_changing(self) -> None:
        """Let the elements that change in every step join bodies. Collective."""
        changing = [one for one in self.constraints if one.is_changing]
        self.couplings.renew([self._numbers(one) for one in changing], self.row, self.first)
        for constraint, remainder in zip(changing, self.couplings.remainders, strict=True):
            constraint.coupled = remainder
        self.linear = self.body_system(self.values, self.couplings.data)
        self._body_of = np.full(self.linear.halo.length, -1, np.int64)  # of ghosts: none
        own = np.repeat(np.arange(len(self.body_start) - 1), np.diff(self.body_start))
        self._body_of[: self.size] = own

    def body_system(self, values: NDArray[np.float64], data: NDArray[np.float64]) -> BodySystem:
        """The present pattern with some entries: of the bodies, and of what joins them. Collective.

        Args:
            data: As long as `couplings.data`.
        """
        indptr, indices, _ = self.couplings.rows
        return BodySystem(
            self.body_start, self.first, self.row, values, (indptr, indices, data),
            ghost_rows=self.couplings.ghost_rows, sparse=self._sparse,
            remainders=self.couplings.remainders, comm=self.comm,
        )  # fmt: skip

    def _find_envelopes(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """First stored column of each row, and which unknowns are of bodies too large for that."""
        first = np.arange(self.size, dtype=np.int64)
        for item in self.solids:
            first[item.unknowns.range] = item.unknowns.first + item.unknowns.own_starts()
        alone = first.copy()
        for one in self.constraints:
            if not one.joins_bodies:
                widen_envelope(one.elements.runs, one.elements.dofs, first)
        large = np.zeros(self.size, bool)
        self._large = []
        for item in self.solids:
            part = item.unknowns.range
            if is_large(first[part], item.unknowns.body_start + item.unknowns.first):
                self._large.append(item)
                large[part], first[part] = True, alone[part]
        return first, large

    def _is_large(self, item: Joinable) -> bool:
        """Whether an Object's matrix has no envelope on this rank."""
        return any(one is item for one in self._large)

    def _numbers(self, constraint: Any) -> NDArray[np.int64]:
        """Unknowns of a Constraint's elements among those of all ranks, [n, d]."""
        if constraint.joins_bodies:
            found: NDArray[np.int64] = constraint.global_dofs
        else:
            found = constraint.elements.dofs.astype(np.int64) + self.first_row
        return found

    def _find_sparse(self, large: NDArray[np.bool_]) -> SparseBodies | None:
        """The bodies that have factors of their own, if any is so large."""
        if not self._large:
            return None
        widths, rest = zip(*(item.vertices() for item in self._large), strict=True)
        coordinates = None if any(one is None for one in rest) else np.concatenate(rest)
        known = all(item.is_of_points for item in self._large)
        indptr, indices, _ = self.couplings.rows
        return SparseBodies(
            np.flatnonzero(large), np.concatenate(widths), coordinates, self.row, self.first,
            (indptr, indices), self._large_places if known else None,
        )  # fmt: skip

    def _large_places(self) -> NDArray[np.float64]:
        """Where the vertices of large bodies are now, in the order of their unknowns."""
        return np.concatenate([item.places() for item in self._large])

    def with_ghosts(self, vector: NDArray[Any]) -> NDArray[np.float64]:
        """A vector of own unknowns, followed by the ghosts of couplings. Collective."""
        extended = np.zeros(self.linear.halo.length)
        extended[: self.size] = vector
        self.linear.halo.refresh(extended)
        return extended

    # -- the Newton iteration --------------------------------------------------------------

    @task(
        Stage.RESET_FORCES,
        writes=("solids.fixed", "solids.fixed_with_ghosts", "solids.force", "solids.matrix"),
        communicates=True,
    )
    def reset(self, access: Access, step: Step) -> None:
        """Clear the sums; find the matrix pattern where elements changed."""
        versions = [(one.is_changing, one.elements_version) for one in self.constraints]
        pattern = (self.version, *(number for changes, number in versions if not changes))
        changing = [number for changes, number in versions if changes]
        if pattern != self._pattern:
            self._pattern, self._changing = pattern, changing
            self._find_pattern()
        elif changing != self._changing:
            self._changing = changing
            self._take_changing()
        self.rhs[:] = 0.0
        self.values[:] = 0.0
        self.is_exact = self.searches and step.newton > 0 and self._is_near
        if self.is_exact:
            self.second[:] = 0.0
        self.couplings.clear()
        if step.newton == 0:
            self.fixed[:] = 0
            for item in self.solids:
                item.fill_fixed(self._part(self.fixed, item))
            extended = self.with_ghosts(self.fixed).astype(np.uint8)
            self.unknowns.replace("fixed_with_ghosts", extended)

    @task(
        Stage.SOLVE_SOLIDS,
        reads=("solids.fixed",),
        writes=("solids.force", "solids.matrix", "solids.change"),
        communicates=True,
    )
    def solve(self, access: Access, step: Step) -> None:
        """Find the correction of all unknowns together."""
        if self.has_multipliers:
            self._enter_multipliers()
        if self.is_exact:
            self._add_second()
        self._solve(step)

    def _solve(self, step: Step) -> None:
        """Solve with the matrix as it is; contacts may ask for another solve."""
        close_fixed(self.fixed, self.row, self.rhs, self.values)
        if self.has_multipliers:
            self.report = self._solve_with_multipliers(step)
        else:
            self.report = self._solve_bodies(step)
        for constraint in self.constraints:
            constraint.take_solution(self.change)
        self.iterations = self.report.iterations

    def _solve_bodies(self, step: Step) -> SolveReport:
        """Find the correction; the solver that took over stays for the rest of the frame."""
        if step.frame != self._frame:
            self._frame, self._told = step.frame, False
            self.solver = choose_solver(self.linear)
        self.change[:] = 0.0
        self.solver.prepare(self.linear)
        direct_is_an_option = self.linear.total_size <= SIZE_LIMIT
        report = solve_with_fallback(
            self.linear, self.rhs, self.change, solver=self.solver, tol=TOLERANCE,
            max_iterations=PATIENCE if direct_is_an_option else 10 * PATIENCE,
        )  # fmt: skip
        if report.solver != self.solver.name:
            self.solver = choose_solver(self.linear, report.solver)
        self._tell(report)
        return report

    def _tell(self, report: SolveReport) -> None:
        """Warn that another solver had to take over, once in a frame."""
        if report.warning and not self._told:
            self.warning, self._told = report.warning, True

    def _add_second(self) -> None:
        """Complete the matrices of bodies that are definite with all second derivatives.

        With them Newton's iteration converges as it should; where they make a matrix indefinite, as
        that of a rod that buckles, its step would lead uphill, and the body does without.
        """
        whole = self.values + self.second
        close_fixed(self.fixed, self.row, self.rhs, whole)
        failed = np.empty(len(self.body_start) - 1, np.int64)
        factors = np.empty_like(whole)
        factor_bodies(whole, self.row, self.first, self.body_start, factors, failed)
        definite = np.repeat(failed < 0, np.diff(self.body_start))
        self.values[:] += np.repeat(definite, np.arange(self.size) - self.first + 1) * self.second

    @property
    def has_multipliers(self) -> bool:
        """Whether any Constraint is in compliance mode."""
        return any(one.has_multipliers for one in self.constraints)

    def common_body(self, dofs: NDArray[Any]) -> NDArray[np.int64]:
        """Own body that all unknowns of each element lie in [n, d]; -1 where they do not."""
        bodies = self._body_of[dofs]
        same = np.all(bodies == bodies[:, :1], axis=1)
        found: NDArray[np.int64] = np.where(same, bodies[:, 0], -1)
        return found

    def _enter_multipliers(self) -> None:
        """Let Constraints in compliance mode share out what they carry, once an iteration."""
        diagonal = self.with_ghosts(self.linear.diagonal())
        for one in self.constraints:
            if one.has_multipliers:
                one.enter_multipliers(diagonal)

    def _solve_with_multipliers(self, step: Step) -> SolveReport:
        """Find the correction and the multipliers of Constraints in compliance mode. Collective."""
        soft = [one for one in self.constraints if one.has_multipliers]
        blocks = [one.soft.block(one.joint_dofs) for one in soft]
        system = MultiplierSystem(self.linear, blocks, self.fixed)
        parts = [one.soft.wanted(block) for one, block in zip(soft, blocks, strict=True)]
        found = np.zeros(system.size)
        if self._soft_solver is None or self._soft_for != self.version:
            self._soft_solver, self._soft_for = choose_solver(system), self.version
        report = solve_with_fallback(
            system, np.concatenate((self.rhs, *parts)), found, again=self._soft_solver,
            tol=TOLERANCE, max_iterations=PATIENCE,
        )  # fmt: skip
        if step.frame != self._frame:
            self._frame, self._told = step.frame, False
        self._tell(report)
        self.change[:], multipliers = system.split(found)
        for number, (one, block) in enumerate(zip(soft, blocks, strict=True)):
            mine = slice(system.starts[number], system.starts[number + 1])
            one.soft.take_multipliers(block, multipliers[mine])
        return report

    @task(
        Stage.RESPOND_TO_CONTACTS,
        reads=("solids.fixed",),
        writes=("solids.force", "solids.matrix", "solids.change"),
        communicates=True,
    )
    def respond(self, access: Access, step: Step) -> None:
        """Solve again while contacts pull, or begin, or stick by more than friction can hold."""
        contacts = [one for one in self.constraints if one.is_contact]
        for number in range(max(one.passes for one in contacts)):
            asked = [one for one in contacts if number < one.passes]
            wrong = [one for one in asked if self.comm.any(one.is_wrong())]
            if not wrong:
                break
            for one in wrong:
                one.revise()
            self._solve(step)
        for one in contacts:
            one.keep()

    @task(Stage.MOVE_ITERATE, reads=("solids.change",), communicates=True)
    def move(self, access: Access, step: Step) -> None:
        """Move all solids by the correction, or by a part of it that lowers the potential."""
        fraction = 1.0
        if self.searches:
            fraction = self.line_search.move(step.dt)
            turned = [item.largest_turn(self._part(self.change, item)) for item in self.solids]
            self._is_near = fraction == 1.0 and self.comm.maximum(max(turned)) < NEAR
        else:
            for item in self.solids:
                item.take_step(self._part(self.change, item), step.dt)
        self._note_change(fraction, step.dt)

    def _note_change(self, fraction: float, dt: float) -> None:
        largest = float(np.max(np.abs(self.change), initial=0.0)) * fraction / dt
        speeds = [np.max(np.abs(s.particles.local("velocity")), initial=0.0) for s in self.solids]
        speed = float(max(speeds, default=0.0))
        self.relative_change = largest / speed if speed > 0.0 else largest
        if self.line_search.is_rounding:  # there is nothing left to correct
            self.relative_change = 0.0

    def newton_change(self) -> float:
        """Largest correction relative to the speed, on this rank."""
        return self.relative_change

    def _part(self, vector: NDArray[Any], item: Joinable) -> NDArray[Any]:
        return vector[item.unknowns.range]


def _together(error: DivergenceError) -> DivergenceError:
    error.together = True
    return error
