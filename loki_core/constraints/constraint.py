"""Constraint: an Action with an energy E = C^T S C over small sets of unknowns (paper, 6.3).

The author gives the elements (which unknowns belong together), C and its gradient, and the
stiffness k = 2 S; optionally the second derivative of C, and the derivative of C in its rest
parameters. From that come forces and matrices, Rayleigh damping, Dahl friction, the potential for
the line search, and the derivatives that inverse dynamics needs. The formulas are in
`kernels/solids/constraint_assembly.py`. In compliance mode Lagrange multipliers carry what is stiff
(`compliance.py`): then a Constraint may be rigid.

S may be a matrix for each element. With its factors  2 S = L k L^T,  L lower triangular with ones
on its diagonal, the energy is that of  L^T C  and the diagonal k: so all else, friction included,
knows of a diagonal alone, and C keeps its units.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.constraints.compliance import Compliance
from loki_core.constraints.elements import Elements
from loki_core.constraints.energy import EnergyAction, SolidTarget
from loki_core.data.accessors import Access
from loki_core.errors import SetupError
from loki_core.kernels.solids.constraint_assembly import (
    comply,
    element_energies,
    element_roundings,
    factor_stiffness,
    mix_components,
    mix_gradients,
    predict_tension,
    respond,
    scatter_diagonals,
    scatter_elements,
    scatter_forces,
    scatter_matrices,
    unmix_components,
)
from loki_core.kernels.solids.coupling_assembly import add_element_stiffness, element_forces
from loki_core.linear_solvers.remainder import Remainder
from loki_core.objects.solids.couplings import CoupledElements
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

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


class Constraint(EnergyAction[SolidTarget]):
    """Base of the Constraints of solids.

    Class attributes, set by the author, beside those of every energy:
        components: M, the size of C.
        has_hessian: Whether `second` gives the second derivatives of C.
        curved: Unknowns of an element for which `curvature` gives diagonal parts of it.

    Attributes:
        value, gradient, tension: C [n, m], its gradient [n, m, d], and 2 S C with damping [n, m]
            of the last Newton iteration; in compliance mode the part that the matrix carries.
            Where S is a matrix, of L^T C in place of C (`find_values`).
        k, k_step: Its diagonal, `(values [n or 1, m], step)`.
        mix: L of a stiffness that is a matrix, [n or 1, m, m].
        soft: What compliance mode keeps.
    """

    components: ClassVar[int] = 1
    has_hessian: ClassVar[bool] = False
    curved: ClassVar[tuple[int, ...]] = ()

    value: Float
    gradient: Float
    k: Float
    k_step: int
    soft: Compliance
    mix: Float | None = None
    _matrix_room: Float | None = None

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
        """Return k = 2 S as `(values, step)`: [n or 1, m], or matrices [n or 1, m, m]."""
        raise SetupError(f"{type(self).__name__} is a Constraint and must define stiffness()")

    def second(self, tension: Float, matrices: Float, *, definite: bool) -> None:
        """Write sum_m T_m d2C_m/dx2 [n, d, d] where `has_hessian` says that there is one.

        Args:
            tension: Of each component of C [n, m].
            matrices: Written.
            definite: Whether only the semi-definite part is asked for.
        """

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

    def least_rest(self) -> Float | float:
        """Bound of rest parameters [n, m] that a search for them keeps to."""
        return -np.inf

    def stiffen(self, factors: Float) -> None:
        """Multiply the stiffness of local bodies by factors [bodies]; where `can_stiffen`."""
        raise SetupError(f"{type(self).__name__} cannot be stiffened")

    # -- C as the stiffness sees it --------------------------------------------------------

    def stiffness_in_use(self) -> tuple[Float, int]:
        """The diagonal of k, or the inverse of a given compliance where it is not 0.

        A large k if it is rigid.
        """
        k, step = self.stiffness()
        if k.ndim not in (2, 3) or any(size != self.components for size in k.shape[1:]):
            raise SetupError(
                f"{type(self).__name__}.stiffness() has the shape {list(k.shape)}; it has to be "
                f"[n or 1, {self.components}], or matrices"
            )
        if k.ndim == 3:
            self.mix, diagonal = np.empty_like(k), np.empty(k.shape[:2])
            if factor_stiffness(np.ascontiguousarray(k), self.mix, diagonal):
                raise SetupError(f"{self.path}: a matrix of stiffness is not positive")
            k = diagonal
        if self.has_multipliers and self.is_given("compliance"):
            given, given_step = self.of_elements("compliance")
            k = np.where(k > 0.0, 1.0 / np.maximum(given[:, None], 1.0 / RIGID), 0.0)
            step = max(step, given_step)
        return k, step

    def find_values(self, value: Float, gradient: Float) -> None:
        """Write C and its gradient for a diagonal stiffness: L^T C where that is a matrix."""
        self.evaluate(value, gradient)
        if self.mix is not None:
            mix_components(self.mix, value)
            mix_gradients(self.mix, gradient)

    def find_values_only(self, value: Float) -> None:
        """Write C alone for a diagonal stiffness."""
        self.evaluate_only(value)
        if self.mix is not None:
            mix_components(self.mix, value)

    def mixed(self, value: Float) -> Float:
        """L^T C of some C [n, m], such as a change of rest parameters."""
        if self.mix is None:
            return value
        found = value.copy()
        mix_components(self.mix, found)
        return found

    def unmixed(self, value: Float) -> Float:
        """The C [n, m] that gives some L^T C."""
        if self.mix is None:
            return value
        found = value.copy()
        unmix_components(self.mix, found)
        return found

    def pulled(self, tension: Float) -> Float:
        """Tensions of the author's components, L T, from those of L^T C, [n, m]."""
        if self.mix is None:
            return tension
        found: Float = (self.mix @ tension[:, :, None])[:, :, 0]
        return found

    # -- mode and damping ------------------------------------------------------------------

    @property
    def has_multipliers(self) -> bool:
        """Whether multipliers carry what it does."""
        behavior = self.behavior
        return isinstance(behavior, ConstraintBehavior) and behavior.mode == "compliance"

    @property
    def has_damping(self) -> bool:
        """Whether a step needs the values at its start."""
        return self._acts("damping_time") or self.has_friction

    @property
    def has_friction(self) -> bool:
        """Whether there may be Dahl friction."""
        return self._acts("friction") and self._acts("friction_stiffness")

    @property
    def memory_name(self) -> str:
        """Channel in which the friction at the start of the step is kept."""
        return f"{self._channel_prefix}_friction_memory"

    def find_parameters(self) -> None:
        """Resolve the stiffness and what damps, of all elements; override for more."""
        self._relaxation = self.of_elements("damping_time")
        if self.has_friction:
            self._friction_limit = self.of_elements("friction")
            self._friction_slope = self.of_elements("friction_stiffness")
        self.k, self.k_step = self.stiffness_in_use()

    def find_start(self) -> None:
        """Values at the start of the step, where damping asks for them."""
        if self.has_damping:
            self.find_values_only(self.start)
        else:
            self.start[:] = 0.0

    def _damping(self) -> tuple[Any, ...]:
        """Arguments of the kernels after the stiffness."""
        if not self.has_friction:
            nothing, zero = np.zeros((1, self.components)), np.zeros(1)
            return *self._relaxation, nothing, zero, 0, zero, 0, 0
        memory = self.elements.remembered(self.memory_name, self.components)
        return *self._relaxation, memory, *self._friction_limit, *self._friction_slope, 1

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
    def gives_second(self) -> bool:
        """A C with second derivatives has more of them than the matrix."""
        return self.has_hessian or type(self).scatter_second is not Constraint.scatter_second

    # -- assembly --------------------------------------------------------------------------

    def allocate(self) -> None:
        """Make room for C, its gradient and what follows from these."""
        holder = self.elements.holder
        if holder is not None and holder is not self.target.data.get(self.place):
            names = [name for name, one in self.target.data.items() if one is holder]
            raise SetupError(
                f'{type(self).__name__}.place = "{self.place}", but its elements are rows of '
                f"{names}"
            )
        n, m, d = self.elements.count, self.components, self.elements.dofs.shape[1]
        self.value, self.start = np.zeros((n, m)), np.zeros((n, m))
        self.tension, self.slope = np.zeros((n, m)), np.zeros((n, m))
        self.gradient = np.zeros((n, m, d))
        self.diagonal = np.zeros((n, len(self.curved)))
        if self.has_multipliers:
            self.soft = Compliance(self)

    def evaluate_all(self, dt: float) -> None:
        """Find C, its gradient, tension and slope."""
        self.find_values(self.value, self.gradient)
        self._respond(dt)

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
            scatter_matrices(
                elements.runs, elements.dofs, self._second_of(self.solved_tension(), definite=True),
                system.fixed, system.row, system.values,
            )  # fmt: skip
        if self.curved:
            self.curvature(self.diagonal)
            scatter_diagonals(
                elements.runs, elements.dofs, np.array(self.curved), self.diagonal, system.fixed,
                system.row, system.values,
            )  # fmt: skip

    def _second_of(self, tension: Float, *, definite: bool) -> Float:
        """What `second` writes for the tensions of L^T C, in a room that is used again."""
        matrices = self._room_for_matrices()
        self.second(self.pulled(tension), matrices, definite=definite)
        return matrices

    def _room_for_matrices(self) -> Float:
        """Element matrices [n, d, d] to be written; large ones are not made anew in each step."""
        n, d = self.elements.dofs.shape
        if self._matrix_room is None or self._matrix_room.shape != (n, d, d):
            self._matrix_room = np.zeros((n, d, d))
        return self._matrix_room

    def scatter_second(self) -> None:
        """Add T . d2C/dx2 to the system's `second`, as far as the matrix is without it.

        Of a length that is what compression does; override where there is more.
        """
        system, elements, tension = self.target.system, self.elements, self.solved_tension()
        missing = self._second_of(tension, definite=False).copy()
        missing -= self._second_of(tension, definite=True)
        scatter_matrices(
            elements.runs, elements.dofs, missing, system.fixed, system.row, system.second
        )

    def _scatter_by_place(self, coupled: CoupledElements | Remainder) -> None:
        """The same where places of the matrix know their elements, of large bodies."""
        forces = np.empty(self.elements.dofs.shape)
        element_forces(self.gradient, self.tension, forces)
        if self.has_hessian:
            matrices = self._second_of(self.solved_tension(), definite=True)
        else:
            matrices = self._room_for_matrices()
            matrices[:] = 0.0
        add_element_stiffness(self.gradient, self.slope, matrices)
        if self.curved:
            self.curvature(self.diagonal)
            matrices[:, self.curved, self.curved] += np.maximum(self.diagonal, 0.0)
        self.add_by_place(coupled, forces, matrices)

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
        self.find_values_only(self.value)
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
        self.find_values_only(self.value)
        if self.has_multipliers:
            self._respond(dt)
            return self.soft.energies()
        energy = np.empty(self.elements.count)
        element_energies(self.value, self.start, self.k, self.k_step, *self._damping(), dt, energy)
        return energy
