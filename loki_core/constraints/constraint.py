"""Constraint: an Action with an energy E = C^T S C over small sets of unknowns (paper, 6.3).

The author gives the elements (which unknowns belong together), C and its gradient, and the
stiffness k = 2 S; optionally the second derivative of C, and the derivative of C in its rest
parameters. From that come forces and matrices, Rayleigh damping, Dahl friction, the potential for
the line search, and the derivatives that inverse dynamics needs. The formulas are in
`kernels/solids/constraint_assembly.py`. In compliance mode Lagrange multipliers carry what is stiff
(`compliance.py`): then a Constraint may be rigid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.constraints.compliance import Compliance
from loki_core.constraints.elements import Elements
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError
from loki_core.kernels.solids.constraint_assembly import (
    comply,
    element_energies,
    element_roundings,
    predict_tension,
    respond,
    scatter_diagonals,
    scatter_elements,
    scatter_forces,
    scatter_matrices,
)
from loki_core.kernels.solids.coupling_assembly import add_element_stiffness, element_forces
from loki_core.objects.basics.capabilities import Bodies, SolvedPoints
from loki_core.objects.solids.couplings import CoupledElements
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task
from loki_core.sparse_parameters import snake_case

Array = NDArray[Any]
Float = NDArray[np.float64]

RIGID = 1.0e9  # stiffness that stands for a rigid Constraint where one is asked for


class ConstraintBehavior(Behavior, abstract=True, kind="constraint", varies="vertex"):
    """What every Constraint of solids offers: two modes, and two kinds of damping."""

    mode: str = parameter(
        "stiffness",
        choices=("stiffness", "compliance"),
        doc="Springs in the matrix; or multipliers, for what is very stiff or rigid.",
    )
    compliance: float | None = parameter(
        None,
        minimum=0.0,
        doc="In compliance mode: inverse of all stiffness that is not 0, 0 is rigid; none takes it "
        "from the stiffness.",
    )
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

    def validate(self, place: str) -> None:
        """A compliance is for its mode alone."""
        if self.compliance is not None and self.mode != "compliance":
            raise SetupError(
                f'{place}.compliance = {self.compliance} has no effect with mode = "{self.mode}"; '
                'set mode = "compliance"'
            )


SolidTarget = TypeVar("SolidTarget", bound=SolvedPoints)


class Constraint(Action[SolidTarget]):
    """Base of the Constraints of solids.

    Class attributes, set by the author:
        components: M, the size of C.
        place: Name of the data whose rows elements lie on; what they remember is kept there.
        reads: Channels that `evaluate_only` needs, "<data>.<channel>"; positions, if not set.
        gradient_reads: Channels that `evaluate` needs besides; none if that is all there is.
        stiffness_reads: Channels that `stiffness` needs, and that finding elements does.
        scatter_reads: Channels that `hessian`, `curvature` or a `scatter` of its own need.
        second_reads: Channels that `scatter_second` needs besides.
        has_hessian: Whether `hessian` gives the second derivative of a C of one component that is
            semi-definite, as that of a length is.
        curved: Unknowns of an element for which `curvature` gives diagonal parts of it.
        joins_bodies: Whether elements reach over several bodies (`joining.py`).
        can_stiffen: Whether `stiffen` is there for those that would buckle.
        is_contact: Whether it may want a solve to be repeated (`collision.py`).

    Attributes:
        elements: What it acts on, in the numbering of the joint system.
        elements_version: Changes when those do.
        value, gradient, tension: C [n, m], its gradient [n, m, d], and 2 S C with damping [n, m]
            of the last Newton iteration; in compliance mode the part that the matrix carries.
        soft: What compliance mode keeps.
        coupled: Where elements enter the joint system, if not by bodies' envelopes; it sets this.
    """

    capability = Bodies  # most ask for more, few for less
    components: ClassVar[int] = 1
    place: ClassVar[str] = "particles"
    reads: tuple[str, ...] = ("particles.position",)
    gradient_reads: tuple[str, ...] = ()
    stiffness_reads: tuple[str, ...] = ()
    scatter_reads: tuple[str, ...] = ()
    second_reads: tuple[str, ...] = ()
    has_hessian: ClassVar[bool] = False
    curved: ClassVar[tuple[int, ...]] = ()
    joins_bodies: ClassVar[bool] = False
    can_stiffen: ClassVar[bool] = False
    is_contact: ClassVar[bool] = False

    elements: Elements
    value: Float
    gradient: Float
    k: Float
    k_step: int
    soft: Compliance
    coupled: CoupledElements | None = None
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

    def stiffness_in_use(self) -> tuple[Float, int]:
        """The same, or the inverse of a given compliance where it is not 0; a large k if rigid."""
        k, step = self.stiffness()
        if self.has_multipliers and self.is_given("compliance"):
            given, given_step = self.of_elements("compliance")
            k = np.where(k > 0.0, 1.0 / np.maximum(given[:, None], 1.0 / RIGID), 0.0)
            step = max(step, given_step)
        return k, step

    def hessian(self, matrices: Float) -> None:
        """Write d2C/dx2 [n, d, d] where `has_hessian` says that there is one."""

    def curvature(self, diagonal: Float) -> None:
        """Write T . d2C/dx_a^2 [n, c] for the `curved` unknowns, whose inertia is too small.

        What is positive is used; the present `gradient` and `tension` are there.
        """

    def scatter_second(self) -> None:
        """Add T . d2C/dx2 to the system's `second`, as far as the matrix is without it.

        Of a length that is what compression does; override where there is more.
        """
        system, elements = self.target.system, self.elements
        width = elements.dofs.shape[1]
        matrices = np.zeros((elements.count, width, width))
        self.hessian(matrices)
        scatter_matrices(
            elements.runs, elements.dofs, -matrices, -self.solved_tension(), system.fixed,
            system.row, system.second,
        )  # fmt: skip

    def rest_parameters(self) -> Float:
        """Return p [n, m] with dC/dp = -1: rest lengths, rest strains; for inverse dynamics."""
        raise SetupError(f"{type(self).__name__} has no rest parameters")

    def set_rest_parameters(self, values: Float) -> None:
        """Take such parameters; override, and count `target.parameter_version` up."""
        raise SetupError(f"{type(self).__name__} has no rest parameters")

    def least_rest(self) -> Float | float:
        """Bound of rest parameters [n, m] that a search for them keeps to."""
        return -np.inf

    def stiffen(self, factors: Float) -> None:
        """Multiply the stiffness of local bodies by factors [bodies]; where `can_stiffen`."""
        raise SetupError(f"{type(self).__name__} cannot be stiffened")

    # -- mode and damping ------------------------------------------------------------------

    @property
    def has_multipliers(self) -> bool:
        """Whether multipliers carry what it does."""
        return bool(self.behavior.mode == "compliance")

    @property
    def has_damping(self) -> bool:
        """Whether a step needs the values at its start."""
        return self._acts("damping_time") or self.has_friction

    @property
    def has_friction(self) -> bool:
        """Whether there may be Dahl friction."""
        return self._acts("friction") and self._acts("friction_stiffness")

    def _acts(self, name: str) -> bool:
        """Whether a parameter may be other than 0: it is set, animated or painted."""
        return bool(getattr(self.behavior, name)) or self.target.is_painted(self.behavior, name)

    def is_given(self, name: str) -> bool:
        """Whether a parameter is other than none; 0 is."""
        given = getattr(self.behavior, name) is not None
        return given or self.target.is_painted(self.behavior, name)

    def of_elements(self, name: str) -> tuple[Float, int]:
        """A parameter of each element, `(values [n or 1], step)`."""
        values, step = self.resolve(name, np.float64)
        return (self.elements.mean(values), 1) if step else (values, 0)

    @property
    def memory_name(self) -> str:
        """Channel in which the friction at the start of the step is kept."""
        return f"{self._channel_prefix}_friction_memory"

    def find_parameters(self) -> None:
        """Resolve what damps, of all elements; override for more."""
        self._relaxation = self.of_elements("damping_time")
        if self.has_friction:
            self._friction_limit = self.of_elements("friction")
            self._friction_slope = self.of_elements("friction_stiffness")

    def _damping(self) -> tuple[Any, ...]:
        """Arguments of the kernels after the stiffness."""
        if not self.has_friction:
            nothing, zero = np.zeros((1, self.components)), np.zeros(1)
            return *self._relaxation, nothing, zero, 0, zero, 0, 0
        memory = self.elements.remembered(self.memory_name, self.components)
        return *self._relaxation, memory, *self._friction_limit, *self._friction_slope, 1

    # -- the Tasks -------------------------------------------------------------------------

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add what this Constraint reads, and what it adds to the joint system."""
        stage, declaration = super().declare(name, stage, declaration)
        reads, writes = list(declaration.reads), declaration.writes
        accumulates = declaration.accumulates
        if name == "emit":
            reads += [*self.stiffness_touches(), *(self.reads if self.has_damping else ())]
        if name == "accumulate":
            reads += [*self.reads, *self.gradient_reads, *self.kept_friction]
            if not self.has_multipliers:
                reads += self._scatter_touches
                accumulates = (*accumulates, "solids.force", "solids.matrix")
                if self._has_second:
                    reads += self.second_reads
                    accumulates = (*accumulates, "solids.second")
        if name == "remember" and self.has_friction:
            reads += self.reads
            writes = (*writes, *self.kept_friction)
        kept = tuple(one for one in dict.fromkeys(reads) if one not in writes)
        return stage, replace(declaration, reads=kept, writes=writes, accumulates=accumulates)

    def stiffness_touches(self) -> tuple[str, ...]:
        """`stiffness_reads`, and what only the instance knows."""
        return self.stiffness_reads

    @property
    def kept_friction(self) -> tuple[str, ...]:
        """The channel of its memory, where there is friction to remember."""
        if self.joins_bodies or not self.has_friction:
            return ()
        self.target.data[self.place].add_channel(self.memory_name, np.float64, (self.components,))
        return (f"{self.place}.{self.memory_name}",)

    @property
    def tensions(self) -> tuple[str, ...]:
        """The channel of the tension that the last solve balanced, where it is used."""
        return (f"{self.place}.{self.tension_name}",) if self.has_hessian else ()

    @property
    def _has_second(self) -> bool:
        """Whether `scatter_second` has anything to add, in Newton iterations that ask for it."""
        gives = self.has_hessian or type(self).scatter_second is not Constraint.scatter_second
        return gives and not self.joins_bodies and bool(self.target.system.searches)

    @property
    def _adds_second(self) -> bool:
        """Whether it does so in this iteration; large bodies do without."""
        return self.target.system.is_exact and self._has_second and self.coupled is None

    @property
    def _scatter_touches(self) -> tuple[str, ...]:
        fixed = ("solids.fixed", "solids.fixed_with_ghosts")  # of these one is used
        return (*fixed, *self.scatter_reads, *self.tensions)

    def joint_declaration(self, name: str) -> Declaration:
        """What a Task of the joint system touches when it calls this Constraint."""
        if name == "move" and self.target.scope.settings.newton_iterations > 1:
            return Declaration(reads=(*self.reads, *self.kept_friction))
        if name not in ("solve", "respond"):
            return Declaration()
        if not self.has_multipliers:
            return Declaration(writes=self.tensions)
        return Declaration((*self._scatter_touches, "solids.fixed_with_ghosts"), self.tensions)

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
        found_for = (self.settings, self.target.parameters_version(self.behavior))
        if self._stiffness_of != found_for:
            self.find_parameters()
            self.k, self.k_step = self.stiffness_in_use()
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
        if self.has_multipliers:
            self.soft = Compliance(self)

    @property
    def joint_dofs(self) -> NDArray[np.int32]:
        """Unknowns of each element in the joint system, own ones and then ghosts, [n, d]."""
        return self.elements.dofs

    @task(Stage.EVALUATE_CONSTRAINTS)
    def accumulate(self, access: Access, step: Step) -> None:
        """Add forces and stiffness to the joint system."""
        self.evaluate(self.value, self.gradient)
        self._respond(step.dt)
        if not self.has_multipliers:
            self.scatter()
            if self._adds_second:
                self.scatter_second()

    def enter_multipliers(self, diagonal: Float) -> None:
        """Add the matrix's part in compliance mode, when all else is in the joint system.

        Args:
            diagonal: That of the matrix so far, own unknowns and ghosts, [size].
        """
        self.soft.split(self.joint_dofs, diagonal)
        self.scatter()

    def scatter(self) -> None:
        """Bring forces and stiffness of the present values to the joint system."""
        if self.coupled is None:
            self.scatter_into_envelopes()
        else:
            self._scatter_by_place(self.coupled)

    def scatter_into_envelopes(self) -> None:
        """The same where bodies keep envelopes; override what can be quicker."""
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

    def _scatter_by_place(self, coupled: CoupledElements) -> None:
        """The same where places of the matrix know their elements, of large bodies."""
        n, d = self.elements.dofs.shape
        forces, matrices = np.empty((n, d)), np.zeros((n, d, d))
        element_forces(self.gradient, self.tension, forces)
        add_element_stiffness(self.gradient, self.slope, matrices)
        if self.has_hessian:
            second = np.zeros((n, d, d))
            self.hessian(second)
            matrices += np.maximum(self.solved_tension(), 0.0)[:, :, None] * second
        if self.curved:
            self.curvature(self.diagonal)
            matrices[:, self.curved, self.curved] += np.maximum(self.diagonal, 0.0)
        self.add_by_place(coupled, forces, matrices)

    def add_by_place(self, coupled: CoupledElements, forces: Float, matrices: Float) -> None:
        """Add forces [n, d] and matrices [n, d, d] of elements to the joint system."""
        system = self.target.system
        coupled.add(
            forces, matrices, system.fixed_with_ghosts, system.rhs, system.values,
            system.couplings.rows[2],
        )  # fmt: skip

    def add_response(self, tension: Float, slope: Float) -> None:
        """Add a further tension and slope [n, m] of the present values."""
        system, elements, coupled = self.target.system, self.elements, self.coupled
        if coupled is None:
            scatter_elements(
                elements.runs, elements.dofs, self.gradient, tension, slope, system.fixed,
                system.row, system.rhs, system.values,
            )  # fmt: skip
            return
        n, d = elements.dofs.shape
        forces, matrices = np.empty((n, d)), np.zeros((n, d, d))
        element_forces(self.gradient, tension, forces)
        add_element_stiffness(self.gradient, slope, matrices)
        self.add_by_place(coupled, forces, matrices)

    def add_forces(self, fixed: NDArray[np.uint8], out: Float) -> None:
        """Add the forces of the last evaluation on unknowns that are not fixed to out [size]."""
        elements, tension = self.elements, self.tension
        if self.has_multipliers:  # T of the residual T / s; what is rigid carries what it has to
            soft = self.soft
            tension = np.divide(
                soft.residual, soft.give, out=np.zeros_like(soft.give), where=soft.give > 0.0
            )
        scatter_forces(elements.runs, elements.dofs, self.gradient, tension, fixed, out)

    def solved_tension(self) -> Float:
        """Tension that the last solve balanced, where the second derivative is used."""
        return self.elements.remembered(self.tension_name, self.components)

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
        if self.has_multipliers:
            self.soft.take(self.joint_dofs, change)
        if not self.has_hessian:
            return
        tension = self.solved_tension()
        if self.has_multipliers:
            tension[:] = self.soft.tension
        else:
            predict_tension(
                self.elements.dofs, self.gradient, self.tension, self.slope, change, tension
            )
        self.elements.remember(self.tension_name, tension)

    def _compliances(self) -> tuple[Float, int]:
        """Inverse stiffness `(values [n or 1, m], step)`; infinite where there is none."""
        carried = self.k > 0.0
        if self.is_given("compliance"):
            given, step = self.of_elements("compliance")
            inverse = np.where(carried, given[:, None], np.inf)
            return inverse, max(self.k_step, step)
        inverse = np.divide(1.0, self.k, out=np.full_like(self.k, np.inf), where=carried)
        return inverse, self.k_step

    def _respond(self, dt: float) -> Float:
        """Tension and slope of the present values; returns friction."""
        friction = np.zeros_like(self.value if self.has_friction else self.value[:1])
        if self.has_multipliers:
            comply(
                self.value, self.start, *self._compliances(), *self._damping(), dt,
                self.soft.residual, self.soft.give, self.tension, self.slope, friction,
            )  # fmt: skip
            return friction
        respond(
            self.value, self.start, self.k, self.k_step, *self._damping(), dt, self.tension,
            self.slope, friction,
        )  # fmt: skip
        return friction

    @task(Stage.REMEMBER_CONSTRAINTS)
    def remember(self, access: Access, step: Step) -> None:
        """Keep the friction at the end of the step."""
        self.evaluate_only(self.value)
        friction = self._respond(step.dt)
        self.elements.remember(self.memory_name, friction)

    def rounding(self, sizes: Float) -> Float:
        """By how much rounding of unknowns may change each element's energy, over epsilon [J].

        Args:
            sizes: Magnitudes of all unknowns, own ones and then ghosts, [size].
        """
        energy = np.empty(self.elements.count)
        tension, slope = self.tension, self.slope
        if self.has_multipliers:
            tension, slope = self.soft.pull(), np.zeros_like(slope)
        element_roundings(self.joint_dofs, self.gradient, tension, slope, sizes, energy)
        return energy

    def energies(self, dt: float) -> Float:
        """What each element stores and will dissipate in the step [J], at the present state."""
        self.evaluate_only(self.value)
        if self.has_multipliers:
            self._respond(dt)
            return self.soft.energies()
        energy = np.empty(self.elements.count)
        element_energies(self.value, self.start, self.k, self.k_step, *self._damping(), dt, energy)
        return energy
