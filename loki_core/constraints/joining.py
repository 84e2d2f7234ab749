"""Joining Constraint: a Constraint whose elements reach over several bodies, on any ranks.

Elements are known by numbers that all ranks agree on, and each rank has and evaluates those that
touch its bodies. Forces and matrices are summed by `objects/solids/couplings.py`. What an element
remembers between steps is its owner's, and others that have it too take it from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.constraints.constraint import Constraint, Float
from loki_core.constraints.elements import Elements
from loki_core.constraints.energy import EnergyAction
from loki_core.constraints.shared_rows import Copies
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError
from loki_core.kernels.solids.constraint_assembly import (
    comply,
    element_energies,
    predict_tension,
    respond,
)
from loki_core.kernels.solids.coupling_assembly import add_element_stiffness, element_forces
from loki_core.linear_solvers.remainder import Remainder
from loki_core.objects.basics.capabilities import Capability, SolvedPoints
from loki_core.objects.solids.couplings import CoupledElements
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task

Int64 = NDArray[np.int64]


class JoiningConstraint(Constraint[SolvedPoints]):
    """Base of Constraints between bodies.

    Class attributes, set by the author:
        rubbing: How many components, the first ones, may have friction; they have one unit.
        carries: Whether C has a shift, by which elements carry a load from the start.

    Attributes:
        global_dofs: Unknowns of this rank's elements, in the numbering of all ranks, [n, d].
        numbers: Which of all elements they are, [n].
        is_owner: Which of them this rank counts where all ranks add up, [n].
        coupled: Where they enter the joint system; the system sets it.
        emission: Changes when other elements are emitted.
        held_tension, held_friction: Of this rank's elements, after the last step, [n, components].
        copies: Of its elements, those that other ranks own; `find_joined` sets it.
    """

    joins_bodies: ClassVar[bool] = True
    rubbing: ClassVar[int] = 1

    global_dofs: Int64
    numbers: Int64
    is_owner: NDArray[np.bool_]
    coupled: CoupledElements | Remainder | None
    copies: Copies
    emission = 0
    _renewed_for: tuple[int, int] = (-1, -1)

    def __init__(self, behavior: Behavior, target: SolvedPoints) -> None:
        super().__init__(behavior, target)
        self.forget(0)

    def forget(self, count: int) -> None:
        """Begin anew with this many elements here, without memory."""
        self.held_tension = np.zeros((count, self.components))
        self.held_friction = np.zeros((count, self.rubbing))

    # -- the author's part -----------------------------------------------------------------

    def begin_step(self, step: Step) -> None:
        """Emit elements where that is due, from the state at the step's start. Collective."""

    def end_step(self, step: Step) -> None:
        """What is prescribed goes to the step's end."""

    def is_at(self, item: Capability) -> bool:
        """Whether elements hold on to an Object."""
        return item is self.target

    def to_start(self, step: Step) -> None:
        """What is prescribed goes back to the step's start; `end_step` brings it to the end."""

    def shift(self) -> Float:
        """What is subtracted from C, of this rank's elements [n, m], where `carries` says so."""
        raise SetupError(f"{type(self).__name__} carries no load from the start")

    def set_shift(self, shift: Float) -> None:
        """Take such a shift. Collective."""
        raise SetupError(f"{type(self).__name__} carries no load from the start")

    def take_shift(self, before: Float, dt: float) -> None:
        """Let the step that is under way know a shift that has just changed. Collective.

        Args:
            before: The one that the step has seen so far.
        """
        moved = before - self.shift()
        self.value += moved
        if self.has_damping:  # else a change of the shift would count as motion
            self.start += moved
        tension = self.tension.copy()
        self._respond(dt)
        if self.has_multipliers:  # those enter later
            return
        element_forces(self.gradient, self.tension - tension, self._forces)
        self._matrices[:] = 0.0
        assert self.coupled is not None
        self.add_by_place(self.coupled, self._forces, self._matrices)

    def carried(self, values: Float) -> Float:
        """What the target's points have [count], at this rank's elements [n]. Collective."""
        raise SetupError(f"{type(self).__name__} joins bodies and must define carried(...)")

    def of_elements(self, name: str) -> tuple[Float, int]:
        """A parameter of each element, `(values [n or 1], step)`. Collective."""
        values, step = self.resolve(name, np.float64)
        return (self.carried(values), 1) if step else (values, 0)

    def geometric_stiffness(self, tension: Float) -> tuple[Float, Float] | None:
        """Rows g [n, r, d] and weights s >= 0 [n, r] of g^T s g, the stiffness under tension."""
        return None

    # -- the Tasks -------------------------------------------------------------------------

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Values are gathered from all ranks wherever they are evaluated."""
        stage, declaration = super().declare(name, stage, declaration)
        return stage, replace(declaration, communicates=True)

    @property
    def scatter_touches(self) -> tuple[str, ...]:
        return ("solids.fixed_with_ghosts", *self.scatter_reads)

    @task(Stage.EMIT_CONSTRAINTS)
    def emit(self, access: Access, step: Step) -> None:
        """Find the elements, and their values at the start of the step."""
        self.begin_step(step)
        wanted = (self.target.system.version, self.emission)
        if wanted != self._renewed_for:
            self._renewed_for = wanted
            self._renew_elements()
        self.find_parameters()
        self.find_start()
        self.end_step(step)

    def _renew_elements(self) -> None:
        version = self.elements_version + 1
        super()._renew_elements()
        self.elements_version = version
        n, d = self.global_dofs.shape
        self._forces, self._matrices = np.zeros((n, d)), np.zeros((n, d, d))
        self._solved = self.held_tension.copy()

    def find_elements(self) -> Elements:
        """Set `numbers`, `global_dofs`, `is_owner` and `copies` by `find_joined`. Collective."""
        self.find_joined()
        none = np.zeros(1, np.int64)
        points = np.empty((len(self.numbers), 0), np.int64)  # they may be other ranks'
        return Elements(none, self.global_dofs.astype(np.int32), points)

    def find_joined(self) -> None:
        """Find the elements that touch this rank's bodies. Collective."""
        raise SetupError(f"{type(self).__name__} joins bodies and must define find_joined()")

    @property
    def joint_dofs(self) -> NDArray[np.int32]:
        assert self.coupled is not None
        return self.coupled.dofs

    def scatter(self) -> None:
        """Bring forces and stiffness of the present values to the joint system."""
        element_forces(self.gradient, self.tension, self._forces)
        self._matrices[:] = 0.0
        add_element_stiffness(self.gradient, self.slope, self._matrices)
        geometric = self.geometric_stiffness(self._solved)
        if geometric is not None:
            add_element_stiffness(*geometric, self._matrices)
        assert self.coupled is not None
        self.add_by_place(self.coupled, self._forces, self._matrices)

    def take_solution(self, change: Float) -> None:
        """Keep the tension to first order after a correction. Collective."""
        extended = self.target.system.with_ghosts(change)
        if self.has_multipliers:
            self.soft.take(self.joint_dofs, extended)
            self._solved[:] = self.soft.tension
            return
        predict_tension(
            self.joint_dofs, self.gradient, self.tension, self.slope, extended, self._solved
        )

    def rounding(self, sizes: Float) -> Float:
        return super().rounding(sizes)[self.is_owner]

    def energies(self, dt: float) -> Float:
        """What each element of this rank stores and will dissipate in the step [J]. Collective."""
        self.find_values_only(self.value)
        if self.has_multipliers:
            self._respond(dt)
            return self.soft.energies()[self.is_owner]
        energy, work = (np.empty(self.elements.count) for _ in range(2))
        element_energies(
            self.value, self.start, self.k, self.k_step, *self._without_friction(), dt, energy
        )
        if self.has_friction:
            value, start = self._rubbing_part(self.value), self._rubbing_part(self.start)
            element_energies(value, start, *self._friction_alone(), dt, work)
            energy += work
        return energy[self.is_owner]

    def _respond(self, dt: float) -> Float:
        """Tension and slope; friction is that of the first components."""
        if self.has_multipliers:
            return self._comply(dt)
        respond(
            self.value, self.start, self.k, self.k_step, *self._without_friction(), dt,
            self.tension, self.slope, np.zeros((1, self.components)),
        )  # fmt: skip
        if not self.has_friction:
            return np.zeros((0, self.rubbing))
        value, start = self._rubbing_part(self.value), self._rubbing_part(self.start)
        tension, slope, friction = (np.empty_like(value) for _ in range(3))
        respond(value, start, *self._friction_alone(), dt, tension, slope, friction)
        self.tension[:, : self.rubbing] += tension
        self.slope[:, : self.rubbing] += slope
        return friction

    def _comply(self, dt: float) -> Float:
        """The same in compliance mode."""
        soft, (compliance, step) = self.soft, self._compliances()
        comply(
            self.value, self.start, compliance, step, *self._without_friction(), dt,
            soft.residual, soft.give, self.tension, self.slope, np.zeros((1, self.components)),
        )  # fmt: skip
        if not self.has_friction:
            return np.zeros((0, self.rubbing))
        value, start = self._rubbing_part(self.value), self._rubbing_part(self.start)
        residual, give, tension, slope, friction = (np.zeros_like(value) for _ in range(5))
        relaxation, rate_step = self._without_friction()[:2]
        comply(
            value, start, self._rubbing_part(compliance), step, relaxation, rate_step,
            *self._friction_alone()[4:], dt, residual, give, tension, slope, friction,
        )  # fmt: skip
        soft.residual[:, : self.rubbing], soft.give[:, : self.rubbing] = residual, give
        self.tension[:, : self.rubbing], self.slope[:, : self.rubbing] = tension, slope
        return friction

    def _without_friction(self) -> tuple[Any, ...]:
        """Arguments of the kernels after the stiffness."""
        nothing, zero = np.zeros((1, self.components)), np.zeros(1)
        return *self._relaxation, nothing, zero, 0, zero, 0, 0

    def _friction_alone(self) -> tuple[Any, ...]:
        """Arguments of the kernels from the stiffness on."""
        none = np.zeros((1, self.rubbing))
        return (
            none,
            0,
            np.zeros(1),
            0,
            self.held_friction,
            *self._friction_limit,
            *self._friction_slope,
            1,
        )

    def _rubbing_part(self, values: Float) -> Float:
        return np.ascontiguousarray(values[:, : self.rubbing])

    def tasks(self) -> Iterator[Task]:
        """Tension is always remembered."""
        yield from super(EnergyAction, self).tasks()

    @task(Stage.REMEMBER_CONSTRAINTS)
    def remember(self, access: Access, step: Step) -> None:
        """Keep tension and friction at the end of the step."""
        kept = [self._solved]
        if self.has_friction:
            self.find_values_only(self.value)
            kept.append(self._respond(step.dt))
        rows = self.from_owners(np.concatenate(kept, axis=1))
        self._solved[:] = self.held_tension[:] = rows[:, : self.components]
        if self.has_friction:
            self.held_friction[:] = rows[:, self.components :]

    def from_owners(self, rows: Float) -> Float:
        """Rows of this rank's elements [n, c] as their owners have them. Collective."""
        if self.target.scope.domain.comm.size == 1:
            return rows
        return self.copies.refresh(rows)
