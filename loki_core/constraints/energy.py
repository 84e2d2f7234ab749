"""Energy: an Action with a potential over small sets of unknowns of solids (paper, 6.3).

The joint system (`objects/solids/solid_system.py`) asks every energy for the same: its elements,
forces and matrices of these, what they store, and what they keep of a solution. Which formula is
behind that is for the subclasses to say: E = C^T S C of a `Constraint`, or any function of places
or deformation gradients (`point_energy.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.constraints.elements import Elements
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError
from loki_core.linear_solvers.remainder import Remainder
from loki_core.objects.basics.capabilities import Bodies, SolvedPoints
from loki_core.objects.solids.couplings import CoupledElements
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task
from loki_core.sparse_parameters import snake_case

Float = NDArray[np.float64]
SolidTarget = TypeVar("SolidTarget", bound=SolvedPoints)


class EnergyAction(Action[SolidTarget]):
    """Base of all energies of solids.

    Class attributes, set by the author:
        place: Name of the data whose rows elements lie on; what they remember is kept there.
        reads: Channels that an energy needs, "<data>.<channel>"; positions, if not set.
        gradient_reads: Channels that its derivatives need besides; none if that is all there is.
        stiffness_reads: Channels that finding parameters and elements needs.
        scatter_reads: Channels that the matrix needs besides.
        second_reads: Channels that `scatter_second` needs besides.
        joins_bodies: Whether elements reach over several bodies (`joining.py`).
        is_contact: Whether it may want a solve to be repeated (`collision.py`).
        carries: Whether it joins bodies and can carry a load from the start.
        can_stiffen: Whether `stiffen` is there for those that would buckle.

    Attributes:
        elements: What it acts on, in the numbering of the joint system.
        elements_version: Changes when those do.
        coupled: Where elements enter the joint system, if not by bodies' envelopes; it sets this.
    """

    capability = Bodies  # most ask for more, few for less
    place: ClassVar[str] = "particles"
    reads: tuple[str, ...] = ("particles.position",)
    gradient_reads: tuple[str, ...] = ()
    stiffness_reads: tuple[str, ...] = ()
    scatter_reads: tuple[str, ...] = ()
    second_reads: tuple[str, ...] = ()
    joins_bodies: ClassVar[bool] = False
    is_contact: ClassVar[bool] = False
    carries: ClassVar[bool] = False
    can_stiffen: ClassVar[bool] = False

    elements: Elements
    coupled: CoupledElements | Remainder | None = None
    _parameters_of: Any = None  # what they were found for

    def __init__(self, behavior: Behavior, target: SolidTarget) -> None:
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

    # -- what subclasses may have ----------------------------------------------------------

    @property
    def is_changing(self) -> bool:
        """Whether elements may be others in every step, so that no pattern is made of them."""
        return False

    @property
    def has_multipliers(self) -> bool:
        """Whether multipliers carry what it does."""
        return False

    @property
    def has_damping(self) -> bool:
        """Whether a step needs the values at its start."""
        return False

    @property
    def has_friction(self) -> bool:
        """Whether there is inner friction, which is remembered."""
        return False

    @property
    def kept_friction(self) -> tuple[str, ...]:
        """The channel of its memory, where there is friction to remember."""
        return ()

    @property
    def tensions(self) -> tuple[str, ...]:
        """The channel of what the last solve balanced, where it is used."""
        return ()

    @property
    def gives_second(self) -> bool:
        """Whether `scatter_second` has anything to add."""
        return type(self).scatter_second is not EnergyAction.scatter_second

    # -- the author's part -----------------------------------------------------------------

    def find_elements(self) -> Elements:
        """Return the elements, after bodies came or went."""
        raise SetupError(f"{type(self).__name__} is an energy and must define find_elements()")

    def allocate(self) -> None:
        """Make room for what is known of each element, after they were found."""

    def find_parameters(self) -> None:
        """Resolve parameters, where elements or what paints them changed."""

    def find_start(self) -> None:
        """Take note of the start of the step."""

    def evaluate_all(self, dt: float) -> None:
        """Find the forces and matrices of all elements at the present state of the target."""
        raise SetupError(f"{type(self).__name__} is an energy and must define evaluate_all(dt)")

    def scatter(self) -> None:
        """Bring what `evaluate_all` found to the joint system."""
        raise SetupError(f"{type(self).__name__} is an energy and must define scatter()")

    def scatter_second(self) -> None:
        """Add to the system's `second` what the matrix is short of the second derivative."""

    def energies(self, dt: float) -> Float:
        """What each element stores and will dissipate in the step [J], at the present state."""
        raise SetupError(f"{type(self).__name__} is an energy and must define energies(dt)")

    def rounding(self, sizes: Float) -> Float:
        """By how much rounding of unknowns may change each element's energy, over epsilon [J].

        Args:
            sizes: Magnitudes of all unknowns, own ones and then ghosts, [size].
        """
        raise SetupError(f"{type(self).__name__} is an energy and must define rounding(sizes)")

    def add_forces(self, fixed: NDArray[np.uint8], out: Float) -> None:
        """Add the forces of the last evaluation on unknowns that are not fixed to out [size]."""
        raise SetupError(f"{type(self).__name__} is an energy and must define add_forces(...)")

    def take_solution(self, change: Float) -> None:
        """Keep what a correction [size of the joint system] tells."""

    # -- parameters ------------------------------------------------------------------------

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

    # -- the Tasks -------------------------------------------------------------------------

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add what this energy reads, and what it adds to the joint system."""
        stage, declaration = super().declare(name, stage, declaration)
        reads, writes = list(declaration.reads), declaration.writes
        accumulates = declaration.accumulates
        if name == "emit":
            reads += [*self.stiffness_touches(), *(self.reads if self.has_damping else ())]
        if name == "accumulate":
            reads += [*self.reads, *self.gradient_reads, *self.kept_friction]
            if not self.has_multipliers:
                reads += self.scatter_touches
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
    def scatter_touches(self) -> tuple[str, ...]:
        """What bringing matrices to the joint system reads."""
        fixed = ("solids.fixed", "solids.fixed_with_ghosts")  # of these one is used
        return (*fixed, *self.scatter_reads, *self.tensions)

    @property
    def _has_second(self) -> bool:
        """Whether it is asked for, in Newton iterations that are near their solution."""
        return self.gives_second and not self.joins_bodies and bool(self.target.system.searches)

    @property
    def _adds_second(self) -> bool:
        """Whether it does so in this iteration; large bodies do without."""
        return self.target.system.is_exact and self._has_second and self.coupled is None

    def joint_declaration(self, name: str) -> Declaration:
        """What a Task of the joint system touches when it calls this energy."""
        if name == "move" and self.target.scope.settings.newton_iterations > 1:
            return Declaration(reads=(*self.reads, *self.kept_friction))
        if name not in ("solve", "respond"):
            return Declaration()
        if not self.has_multipliers:
            return Declaration(writes=self.tensions)
        return Declaration((*self.scatter_touches, "solids.fixed_with_ghosts"), self.tensions)

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
        if self._parameters_of != found_for:
            self.find_parameters()
            self._parameters_of = found_for
        self.find_start()

    def _renew_elements(self) -> None:
        self._parameters_of = None
        self.elements = self.find_elements()
        self.elements_version = self.target.system.version
        self.allocate()

    @property
    def joint_dofs(self) -> NDArray[np.int32]:
        """Unknowns of each element in the joint system, own ones and then ghosts, [n, d]."""
        return self.elements.dofs

    @task(Stage.EVALUATE_CONSTRAINTS)
    def accumulate(self, access: Access, step: Step) -> None:
        """Add forces and stiffness to the joint system."""
        self.evaluate_all(step.dt)
        if not self.has_multipliers:
            self.scatter()
            if self._adds_second:
                self.scatter_second()

    def add_by_place(
        self, coupled: CoupledElements | Remainder, forces: Float, matrices: Float
    ) -> None:
        """Add forces [n, d] and matrices [n, d, d] of elements to the joint system."""
        system = self.target.system
        coupled.add(
            forces, matrices, system.fixed_with_ghosts, system.rhs, system.values,
            system.couplings.data,
        )  # fmt: skip
