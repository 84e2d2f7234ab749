"""Constraint: an Action with an energy E = C^T S C over small sets of unknowns (paper, 6.3).

The author gives the elements (which unknowns belong together), C and its gradient, and the
stiffness k = 2 S; optionally the second derivative of C, and the derivative of C in its rest
parameters. From that come forces and matrices, Rayleigh damping, Dahl friction, the potential for
the line search, and the derivatives that inverse dynamics needs. The formulas are in
`kernels/constraint_assembly.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError
from loki_core.kernels.constraint_assembly import (
    element_energies,
    predict_tension,
    respond,
    scatter_diagonals,
    scatter_elements,
    scatter_matrices,
)
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task
from loki_core.sparse_parameters import snake_case

Array = NDArray[Any]
Float = NDArray[np.float64]


class ConstraintBehavior(Behavior, abstract=True, kind="constraint"):
    """What every Constraint of solids offers: two kinds of damping."""

    damping_time: float = parameter(
        0.0,
        unit="s",
        minimum=0.0,
        doc="Rayleigh damping: relaxation time tau; a mode of frequency omega gets tau omega / 2.",
    )
    friction: float = parameter(
        0.0,
        minimum=0.0,
        doc="Dahl friction: largest force, or moment, that inner friction opposes to a change.",
    )
    friction_stiffness: float = parameter(
        0.0, minimum=0.0, doc="Dahl friction: its slope at rest, force or moment over change."
    )


@dataclass(frozen=True)
class Elements:
    """Which unknowns belong together, element by element.

    Attributes:
        runs: Elements of each local body of the target, shape [bodies + 1].
        dofs: Unknowns of each element in the rank's numbering, shape [n, d].
        rows: Rows that the elements lie on, of the Constraint's `place`, shape [n].
    """

    runs: NDArray[np.int64]
    dofs: NDArray[np.int32]
    rows: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.dofs)


class Constraint(Action):
    """Base of the Constraints of solids.

    Class attributes, set by the author:
        components: M, the size of C.
        place: Name of the data whose rows elements lie on; what they remember is kept there.
        reads: Channels that `evaluate` needs, "<data>.<channel>".
        has_hessian: Whether `hessian` gives the second derivative of a C of one component that is
            semi-definite, as that of a length is.
        curved: Unknowns of an element for which `curvature` gives diagonal parts of it.
        joins_bodies: Whether elements reach over several bodies (`joining.py`).

    Attributes:
        elements: What it acts on, in the numbering of the joint system.
        elements_version: Changes when those do.
        value, gradient, tension: C [n, m], its gradient [n, m, d], and 2 S C with damping [n, m]
            of the last Newton iteration.
    """

    components: ClassVar[int] = 1
    place: ClassVar[str] = "particles"
    reads: ClassVar[tuple[str, ...]] = ()
    has_hessian: ClassVar[bool] = False
    curved: ClassVar[tuple[int, ...]] = ()
    joins_bodies: ClassVar[bool] = False

    elements: Elements
    value: Float
    gradient: Float
    k: Float
    k_step: int
    _stiffness_of: Any = None  # what k was found for

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        self.elements_version = -1
        others = [
            one
            for one in target.system.constraints
            if one.target is target and type(one) is type(self)
        ]
        word = snake_case(type(behavior).__name__)
        self._channel_prefix = f"{word}_{len(others)}" if others else word
        target.system.constraints.append(self)

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Constraints act on solids; most ask for more."""
        return hasattr(item, "fill_fixed")

    # -- the author's part -----------------------------------------------------------------

    def find_elements(self) -> Elements:
        """Return the elements, after bodies came or went."""
        raise SetupError(f"{type(self).__name__} is a Constraint and must define find_elements()")

    def evaluate(self, value: Float, gradient: Float) -> None:
        """Write C [n, m] and dC/dx [n, m, d] at the present state of the target."""
        raise SetupError(f"{type(self).__name__} is a Constraint and must define evaluate(...)")

    def evaluate_only(self, value: Float) -> None:
        """Write C alone; override where that is cheaper."""
        self.evaluate(value, np.empty_like(self.gradient))

    def stiffness(self) -> tuple[Float, int]:
        """Return k = 2 S as `(values [n or 1, m], step)`."""
        raise SetupError(f"{type(self).__name__} is a Constraint and must define stiffness()")

    def hessian(self, matrices: Float) -> None:
        """Write d2C/dx2 [n, d, d] where `has_hessian` says that there is one."""

    def curvature(self, diagonal: Float) -> None:
        """Write T . d2C/dx_a^2 [n, c] for the `curved` unknowns, whose inertia is too small.

        What is positive is used; the present `gradient` and `tension` are there.
        """

    def rest_parameters(self) -> Float:
        """Return p [n, m] with dC/dp = -1: rest lengths, rest strains; for inverse dynamics."""
        raise SetupError(f"{type(self).__name__} has no rest parameters")

    def set_rest_parameters(self, values: Float) -> None:
        """Take such parameters; override, and count `target.parameter_version` up."""
        raise SetupError(f"{type(self).__name__} has no rest parameters")

    # -- damping ---------------------------------------------------------------------------

    @property
    def has_damping(self) -> bool:
        """Whether a step needs the values at its start."""
        now = self.behavior
        painted = self.target.overriding_channels(now)
        names = ("damping_time", "friction")
        return any(getattr(self.settings, name) for name in names) or bool(painted)

    @property
    def has_friction(self) -> bool:
        return bool(self.settings.friction) and bool(self.settings.friction_stiffness)

    @property
    def memory_name(self) -> str:
        """Channel in which the friction at the start of the step is kept."""
        return f"{self._channel_prefix}_friction_memory"

    def _memory(self) -> Float:
        if not self.has_friction:
            return np.zeros((1, self.components))
        holder = self.target.data[self.place]
        kept: Float = holder.local(self.memory_name)[self.elements.rows]
        return kept

    def _damping(self) -> tuple[Any, ...]:
        """Arguments of the kernels after the stiffness."""
        zero = np.zeros(1)
        relaxation = np.array([float(self.settings.damping_time)])
        if not self.has_friction:
            return relaxation, 0, self._memory(), zero, 0, zero, 0, 0
        limit = np.array([float(self.settings.friction)])
        sigma = np.array([float(self.settings.friction_stiffness)])
        return relaxation, 0, self._memory(), limit, 0, sigma, 0, 1

    # -- the Tasks -------------------------------------------------------------------------

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add what this Constraint reads, as far as the target has it."""
        stage, declaration = super().declare(name, stage, declaration)
        if name not in ("emit", "accumulate", "remember"):
            return stage, declaration
        reads = dict.fromkeys((*declaration.reads, "particles.position", *self.reads))
        writes = declaration.writes
        if name == "remember" and not self.joins_bodies:
            holder = self.target.data[self.place]
            holder.add_channel(self.memory_name, np.float64, (self.components,))
            writes = (*writes, f"{self.place}.{self.memory_name}")
        return stage, replace(declaration, reads=tuple(reads), writes=writes)

    def tasks(self) -> Iterator[Task]:
        """Friction is remembered only where there is any."""
        for one in super().tasks():
            if one.name != "remember" or self.has_friction:
                yield one

    @task(Stage.EMIT_CONSTRAINTS)
    def emit(self, access: Access, step: Step) -> None:
        """Find the elements where bodies changed, and their values at the start of the step."""
        if self.elements_version != self.target.system.version:
            self._renew_elements()
        found_for = (id(self.settings), self.target.parameter_version)
        if self._stiffness_of != found_for or self.target.paints:
            self.k, self.k_step = self.stiffness()
            self._stiffness_of = found_for
        if self.has_damping:
            self.evaluate_only(self.start)
        else:
            self.start[:] = 0.0

    def _renew_elements(self) -> None:
        self._stiffness_of = None
        self.elements = self.find_elements()
        self.elements_version = self.target.system.version
        n, m, d = self.elements.count, self.components, self.elements.dofs.shape[1]
        self.value, self.start = np.zeros((n, m)), np.zeros((n, m))
        self.tension, self.slope = np.zeros((n, m)), np.zeros((n, m))
        self.gradient = np.zeros((n, m, d))
        self.diagonal = np.zeros((n, len(self.curved)))

    @task(Stage.EVALUATE_CONSTRAINTS)
    def accumulate(self, access: Access, step: Step) -> None:
        """Add forces and stiffness to the joint system."""
        self.evaluate(self.value, self.gradient)
        self._respond(step.dt)
        self.scatter()

    def scatter(self) -> None:
        """Bring forces and stiffness of the present values to the joint system."""
        system, elements = self.target.system, self.elements
        scatter_elements(
            elements.runs, elements.dofs, self.gradient, self.tension, self.slope, system.fixed,
            system.row, system.rhs, system.values,
        )  # fmt: skip
        if self.has_hessian:
            width = elements.dofs.shape[1]
            matrices = np.zeros((elements.count, width, width))
            self.hessian(matrices)
            scatter_matrices(
                elements.runs, elements.dofs, matrices, self.solved_tension(), system.fixed,
                system.row, system.values,
            )  # fmt: skip
        if self.curved:
            self.curvature(self.diagonal)
            scatter_diagonals(
                elements.runs, elements.dofs, np.array(self.curved), self.diagonal, system.fixed,
                system.row, system.values,
            )  # fmt: skip

    def solved_tension(self) -> Float:
        """Tension that the last solve balanced, where the second derivative is used."""
        holder = self.target.data[self.place]
        holder.add_channel(self.tension_name, np.float64, (self.components,))
        kept: Float = holder.local(self.tension_name)
        return kept

    @property
    def tension_name(self) -> str:
        """Channel with the tension that the last solve balanced."""
        return f"{self._channel_prefix}_tension"

    def take_solution(self, change: Float) -> None:
        """Keep the tension to first order after a correction [size of the joint system].

        What the nonlinear C says after a step that turned an edge is mostly the second-order
        stretch of the step itself. As geometric stiffness it would hold the strand in place; what
        the solve balanced is the tension that is really there.
        """
        if self.has_hessian:
            tension = self.solved_tension()
            predict_tension(
                self.elements.dofs, self.gradient, self.tension, self.slope, change, tension
            )

    def _respond(self, dt: float) -> Float:
        friction = np.zeros_like(self.value if self.has_friction else self.value[:1])
        respond(
            self.value, self.start, self.k, self.k_step, *self._damping(), dt, self.tension,
            self.slope, friction,
        )  # fmt: skip
        return friction

    @task(Stage.MOVE_PARTICLES)
    def remember(self, access: Access, step: Step) -> None:
        """Keep the friction at the end of the step."""
        self.evaluate_only(self.value)
        friction = self._respond(step.dt)
        holder = self.target.data[self.place]
        holder.local(self.memory_name)[self.elements.rows] = friction
        holder.mark_written(self.memory_name)

    def energies(self, dt: float) -> Float:
        """What each element stores and will dissipate in the step [J], at the present state."""
        self.evaluate_only(self.value)
        energy = np.empty(self.elements.count)
        element_energies(self.value, self.start, self.k, self.k_step, *self._damping(), dt, energy)
        return energy
