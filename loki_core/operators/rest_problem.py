"""Rest Problem: which rest parameters make the forces on a solid vanish (paper, 6.3).

All Constraints that offer rest parameters p have dC/dp = -1, so with the load g of everything else

    f(x, p) = g - G^T k C,     df/dp = G^T k,     K = G^T k G

The sag-free problem  min |f|^2 + regularisation  has, in the norm of the energy of the change, a
solution that costs one solve with the solid's own matrix:

    (K + w^2 M) y = f,     p <- p - G y

y is by how much the solid would sag, and p takes the strain of it back. Where the parameters are as
many as the unknowns the forces vanish; where they are more, the change of least energy is found;
modes slower than the rate w, such as the free fall of what nothing holds, are left alone. k may
depend on p (a rest length divides it), hence a few Gauss-Newton iterations.

An equilibrium moves with p as  dx/dp = -[df/dx]^-1 df/dp  (implicit function theorem).

The state of the solid is borrowed and given back by `undisturbed`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.constraints.constraint import Constraint
from loki_core.constraints.elements import Elements
from loki_core.data.accessors import Declaration, split_name
from loki_core.errors import DivergenceError, SetupError, did_you_mean
from loki_core.kernels.algebra.skyline import factor_bodies, solve_bodies
from loki_core.kernels.solids.constraint_assembly import (
    close_fixed,
    scatter_elements,
    scatter_forces,
    scatter_matrices,
)
from loki_core.kernels.solids.coupling_assembly import add_element_stiffness
from loki_core.linear_solvers.sparse_bodies import SparseBodies
from loki_core.objects.basics.capabilities import Bodies
from loki_core.objects.solids.unknowns import POSITION

Float = NDArray[np.float64]
Matrix = tuple[Float, Float]
"""Entries of the joint system's envelopes, and of its compressed rows."""

#: Forces below this part of the load count as none.
BALANCED = 1.0e-10
#: Factors of ten by which the regularisation grows before a matrix is given up.
LOOSENINGS = 24
HALVINGS = 30


@dataclass
class RestTerm:
    """A Constraint in the problem, at the state of its last evaluation.

    Attributes:
        constraint: The Constraint.
        adjustable: Whether its rest parameters may change.
        value, gradient, k: C [n, m], dC/dx [n, m, d], stiffness [n, m].
        held: Parameters that have met their bound, shape [n, m].
    """

    constraint: Any
    elements: Elements
    adjustable: bool
    value: Float
    gradient: Float
    k: Float
    held: NDArray[np.bool_]


class RestProblem:
    """Forces, matrices and rest parameters of one solid, in the numbering of the joint system.

    Args:
        target: The solid.
        load: What all else does to its unknowns [N, N m], shape [size of the joint system].
        regularization: Rate w of the slowest mode that is balanced [1/s].
        names: Behaviors whose rest parameters may change; all that have some if empty.

    Attributes:
        joined: Entries of the stiffness by which others hold it, in the system's envelope, if any.
    """

    def __init__(
        self, target: Bodies, load: Float, *, regularization: float, names: Sequence[str] = ()
    ) -> None:
        self.target, self.system, self.load = target, target.system, load
        self.regularization = regularization
        self.own = np.arange(self.system.size)[target.unknowns.range]
        fixed = np.ones(self.system.size, np.uint8)
        fixed[self.own] = self.system.fixed[self.own]
        self.fixed = fixed
        self.load = np.where(fixed == 1, 0.0, load)
        self.mass = self._mass()
        self.terms = [self._term(one, names) for one in adjustable_constraints(target)]
        self.joined: Float | None = None

    def _mass(self) -> Float:
        mass = np.zeros(self.system.size)
        self.target.fill_inertia(mass[self.own[0] : self.own[-1] + 1] if len(self.own) else mass)
        return mass

    def _term(self, constraint: Any, names: Sequence[str]) -> RestTerm:
        elements = constraint.find_elements()
        n, m, d = elements.count, constraint.components, elements.dofs.shape[1]
        behavior = constraint.behavior
        adjustable = not names or type(behavior).__name__ in names or behavior.name in names
        return RestTerm(
            constraint, elements, adjustable, np.zeros((n, m)), np.zeros((n, m, d)),
            np.zeros((n, m)), np.zeros((n, m), bool),
        )  # fmt: skip

    # -- forces and matrices ---------------------------------------------------------------

    def force(self) -> Float:
        """Force on every free unknown at the present state and rest parameters, [size]."""
        total = self.load.copy()
        for term in self.terms:
            k, _ = term.constraint.stiffness_in_use()
            term.constraint.find_values(term.value, term.gradient)
            term.k = np.broadcast_to(k, term.value.shape)
            scatter_forces(
                term.elements.runs, term.elements.dofs, term.gradient, term.k * term.value,
                self.fixed, total,
            )  # fmt: skip
        return total

    def potential(self) -> float:
        """Energy of the Constraints [J] at the present state, without the load's."""
        total = 0.0
        for term in self.terms:
            term.constraint.find_values_only(term.value)
            total += 0.5 * float(np.sum(term.k * term.value**2))
        return total

    def matrix(self, *, adjustable_only: bool = False, geometric: bool = False) -> Matrix:
        """Entries of K in the system's envelopes and in its compressed rows, after `force`."""
        system = self.system
        values: Float = np.zeros(len(system.values))
        data: Float = np.zeros_like(system.couplings.data)
        for term in self.terms:
            if adjustable_only and not term.adjustable:
                continue
            slope = term.k * (~term.held if adjustable_only else np.ones_like(term.held))
            second = self._second(term) if geometric and term.constraint.has_hessian else None
            if term.constraint.coupled is None:
                self._into_envelopes(term, slope, second, values)
            else:
                self._by_place(term, slope, second, values, data)
        return values, data

    def _second(self, term: RestTerm) -> Float:
        """The semi-definite part of T . d2C/dx2, [n, d, d]."""
        width, constraint = term.elements.dofs.shape[1], term.constraint
        second = np.zeros((term.elements.count, width, width))
        constraint.second(constraint.pulled(term.k * term.value), second, definite=True)
        return second

    def _into_envelopes(
        self, term: RestTerm, slope: Float, second: Float | None, values: Float
    ) -> None:
        """Add a term where bodies keep envelopes."""
        elements, row = term.elements, self.system.row
        scatter_elements(
            elements.runs, elements.dofs, term.gradient, np.zeros_like(term.value), slope,
            self.fixed, row, np.zeros(self.system.size), values,
        )  # fmt: skip
        if second is not None:
            scatter_matrices(elements.runs, elements.dofs, second, self.fixed, row, values)

    def _by_place(
        self, term: RestTerm, slope: Float, second: Float | None, values: Float, data: Float
    ) -> None:
        """Add a term of large bodies."""
        n, d = term.elements.dofs.shape
        matrices = np.zeros((n, d, d))
        add_element_stiffness(term.gradient, slope, matrices)
        if second is not None:
            matrices += second
        fixed = np.ones(self.system.linear.halo.length, np.uint8)
        fixed[: self.system.size] = self.fixed
        nothing = np.zeros(self.system.size)
        term.constraint.coupled.add(np.zeros((n, d)), matrices, fixed, nothing, values, data)

    def solver(self, matrix: Matrix) -> Callable[[Float], Float]:
        """Factorise K + w^2 M; w grows where that is not positive within rounding."""
        system, (values, data) = self.system, matrix
        diagonal, sparse = system.row + np.arange(system.size), system.linear.sparse
        factors, failed = np.empty_like(values), np.empty(len(system.body_start) - 1, np.int64)
        rate = max(self.regularization, 1e-12)
        for _ in range(LOOSENINGS):
            whole = values.copy()
            whole[diagonal] += rate**2 * self.mass
            close_fixed(self.fixed, system.row, np.zeros(system.size), whole)
            factor_bodies(whole, system.row, system.first, system.body_start, factors, failed)
            if np.all(failed < 0) and self._factor_large(sparse, whole, data):
                break
            rate *= 10.0
        else:
            raise DivergenceError(f"{self.target.path}: the stiffness at the start is not finite")

        def solve(force: Float) -> Float:
            found = np.empty(system.size)
            solve_bodies(factors, system.row, system.first, system.body_start, force, found)
            if sparse is not None:
                sparse.solve(force, found)
            return found

        return solve

    @staticmethod
    def _factor_large(sparse: SparseBodies | None, values: Float, data: Float) -> bool:
        """Factorise large bodies, if there are any; whether they are definite."""
        if sparse is not None:
            try:
                sparse.factor(values, data)
            except DivergenceError:
                return False
            sparse.is_fresh = False  # for the system's own matrix
        return True

    # -- the sag-free problem --------------------------------------------------------------

    def balance(self, iterations: int = 8) -> tuple[float, float]:
        """Change rest parameters until forces vanish; largest force before and after [N]."""
        force = self.force()
        before = after = self.largest(force)
        for _ in range(iterations):
            if after <= BALANCED * self.largest(self.load):
                break
            # Each iteration's regularisation acts on what is left, so what can be balanced is.
            y = self.solver(self.matrix(adjustable_only=True))(force)
            self.take_back(y)
            force = self.force()
            after = self.largest(force)
        return before, after

    def take_back(self, y: Float) -> None:
        """Take the strains of displacements y [size] out of all rest parameters that may change."""
        for term in self.terms:
            if term.adjustable:
                self._take_back(term, y)

    def _take_back(self, term: RestTerm, y: Float) -> None:
        """Take the strain of displacements y out of the rest parameters, within bounds."""
        moved = np.einsum("nmd,nd->nm", term.gradient, y[term.elements.dofs])
        change = -term.constraint.unmixed(moved)
        change[term.held] = 0.0
        wanted = term.constraint.rest_parameters() + change
        least = term.constraint.least_rest()
        term.held |= wanted < least
        term.constraint.set_rest_parameters(np.maximum(wanted, least))

    def largest(self, force: Float) -> float:
        """Largest force on a point [N]; moments on edges are not looked at."""
        on_points = force[self.target.unknowns.joint(POSITION)]
        return float(np.max(np.abs(on_points), initial=0.0))

    # -- equilibria ------------------------------------------------------------------------

    def settle(self, iterations: int = 100) -> float:
        """Move the solid to its equilibrium under the load; returns the largest force left [N]."""
        limit = max(BALANCED * self.largest(self.load), 1e-300)
        force = self.force()
        for _ in range(iterations):
            if self.largest(force) <= limit:
                break
            change = self.solver(self.matrix(geometric=True))(force)
            change[self.fixed == 1] = 0.0
            if not self._move_down(change):
                break
            force = self.force()
        return self.largest(force)

    def _move_down(self, change: Float) -> bool:
        """Move along a Newton direction as far as the potential falls; False where it does not."""
        start, work = self.potential(), float(self.load @ change)
        fraction = 1.0
        self.displace(change)
        for _ in range(HALVINGS):
            if self.potential() - fraction * work < start:
                return True
            self.displace(-0.5 * fraction * change)
            fraction *= 0.5
        self.displace(-fraction * change)
        return False

    def displace(self, change: Float) -> None:
        """Move the solid by a displacement of all unknowns [size]; its velocity is not kept."""
        self.target.displace(np.ascontiguousarray(change[self.own]), 1.0, 1.0)

    def places(self) -> Float:
        """Positions of the solid's points as unknowns [size]; other unknowns are 0."""
        vector = np.zeros(self.system.size)
        vector[self.target.unknowns.joint(POSITION)] = self.target.particles.local("position")
        return vector

    def is_point(self) -> NDArray[np.bool_]:
        """Which unknowns are free coordinates of points, [size]."""
        chosen = np.zeros(self.system.size, bool)
        chosen[self.target.unknowns.joint(POSITION)] = True
        found: NDArray[np.bool_] = chosen & (self.fixed == 0)
        return found

    def force_by_rest(self, body: int) -> Float:
        """df/dp of a local body, dense: its unknowns by all its adjustable parameters."""
        begin, end = self.range_of(body)
        parts = [np.zeros((end - begin, 0))]
        for term in self.terms:
            if not term.adjustable:
                continue
            first, last = term.elements.runs[body : body + 2]
            n, m = last - first, term.k.shape[1]
            part = np.zeros((end - begin, n, m))
            places = term.elements.dofs[first:last] - begin
            entries = term.k[first:last, :, None] * term.gradient[first:last]
            for number in range(n):
                part[places[number], number] += entries[number].T
            parts.append(part.reshape(end - begin, n * m))
        whole = np.concatenate(parts, axis=1)
        whole[self.fixed[begin:end] == 1] = 0.0
        return whole

    def joined_block(self, body: int) -> Float:
        """Stiffness by which others hold a local body, dense."""
        begin, end = self.range_of(body)
        block = np.zeros((end - begin, end - begin))
        if self.joined is None:
            return block
        for i in range(begin, end):
            first, at = int(self.system.first[i]), int(self.system.row[i])
            block[i - begin, first - begin : i - begin + 1] = self.joined[at + first : at + i + 1]
        lower: Float = block + np.tril(block, -1).T
        return lower

    def range_of(self, body: int) -> tuple[int, int]:
        """First unknown of a local body of the solid, and the one after its last."""
        found: tuple[int, int] = self.target.unknowns.range_of(body)
        return found


# -- what the Operators share ------------------------------------------------------------------


def adjustable_constraints(target: Bodies) -> list[Any]:
    """Constraints on a solid that offer rest parameters."""
    return [
        one
        for one in target.system.constraints
        if one.target is target
        and isinstance(one, Constraint)
        and type(one).rest_parameters is not Constraint.rest_parameters
    ]


def carrying_constraints(target: Bodies, names: Sequence[str] = ()) -> list[Any]:
    """Constraints that join a solid with others and can carry a load from the start.

    Args:
        names: Behaviors that may; all if empty.
    """
    return [
        one
        for one in target.system.constraints
        if one.joins_bodies
        and one.carries
        and one.is_at(target)
        and (not names or type(one.behavior).__name__ in names or one.behavior.name in names)
    ]


def refuse_unknown_names(target: Bodies, names: Sequence[str], *, label: str) -> None:
    """Refuse names of Constraints that are not there or have no rest parameters."""
    adjustable = [*adjustable_constraints(target), *carrying_constraints(target)]
    behaviors = [one.behavior for one in adjustable]
    known = {type(one).__name__ for one in behaviors}
    known |= {one.name for one in behaviors if one.name is not None}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise SetupError(
                f'{label}.constraints: no Constraint "{name}" with rest parameters acts on '
                f"{target.path}{hint}"
            )


def with_rest_channels(target: Bodies, declaration: Declaration) -> Declaration:
    """Let a Task write the rest channels that the solid's Constraints read, and try places."""
    constraints = adjustable_constraints(target)
    rest = [
        name
        for one in constraints
        for name in one.reads
        if name.partition(".")[2].startswith("rest_")
    ]
    tried = target.joint_declaration("move").writes  # and put back
    writes = tuple(dict.fromkeys((*declaration.writes, *rest, *tried)))
    needs = ["solids.fixed", "solids.fixed_with_ghosts"]
    for name in ("fill_inertia", "way_to_start"):
        needs += target.joint_declaration(name).reads
    for one in constraints:
        needs += [*one.reads, *one.gradient_reads, *one.stiffness_touches(), *one.kept_friction]
        needs += target.painted_reads(one.behavior)
    reads = dict.fromkeys((*declaration.reads, *needs))
    return replace(
        declaration,
        reads=tuple(one for one in reads if one not in writes),
        writes=writes,
        accumulates=("solids.force", "solids.matrix"),
    )


def external_load(target: Bodies, force: Float) -> Float:
    """What acts on a solid besides adjustable Constraints, [size of the joint system].

    Args:
        force: Sum of the Forces on its particles [N], shape [n, 3].
    """
    system, load = target.system, np.zeros(target.system.size)
    load[target.unknowns.joint(POSITION)] = force
    adjustable = adjustable_constraints(target)
    for one in system.constraints:
        is_load = one.target is target and not any(one is other for other in adjustable)
        if is_load and not one.joins_bodies:
            one.add_forces(system.fixed, load)
    return load


@contextlib.contextmanager
def undisturbed(target: Bodies) -> Iterator[None]:
    """Let a solid be moved for a while; its rest channels may change for good."""
    moved = [split_name(name) for name in target.joint_declaration("move").writes]
    kept = [
        (target.data[data_name], channel, target.data[data_name].local(channel).copy())
        for data_name, channel in moved
    ]
    try:
        yield
    finally:
        for holder, channel, values in kept:
            holder.local(channel)[:] = values
            holder.mark_written(channel)


def to_start(target: Bodies) -> None:
    """Move a solid from the guess of the step's end back to the step's start."""
    target.displace(target.way_to_start(), 1.0, 1.0)


def take_new_rest(target: Bodies, before: Sequence[Float], dt: float) -> None:
    """Let the step that is under way know rest parameters that have just changed.

    Args:
        before: Parameters of `adjustable_constraints` that the step has seen so far.
    """
    for one, old in zip(adjustable_constraints(target), before, strict=True):
        shift = one.mixed(old - one.rest_parameters())
        one.value += shift
        if one.has_damping:  # else a change of the rest shape would count as motion
            one.start += shift
        one.k, one.k_step = one.stiffness_in_use()
        tension, slope = one.tension.copy(), one.slope.copy()
        one._respond(dt)
        if not one.has_multipliers:  # those enter later
            one.add_response(one.tension - tension, one.slope - slope)
