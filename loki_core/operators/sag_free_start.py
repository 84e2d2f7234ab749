"""Sag-free Start: solids stand still at the start, though Forces such as gravity pull at them.

    min_p |f(x0, p)|^2 + regularisation          (paper, 6.3, inverse dynamics)

Rest lengths and rest strains p change once, in the first substep, so that Constraints carry the
load in the shape of the input. How that is solved is told in `operators/rest_problem.py`. A shape
that no rest shape can hold (nothing holds it up, or bounds are met) moves as little as can be. A
strand that would buckle, as one that stands up and is too long for its stiffness, is stiffened with
`stabilize` until it does not (`operators/rest_stability.py`); without, it stays only until
something disturbs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.objects.capabilities import Bodies, Joints
from loki_core.operators.operator import Operator
from loki_core.operators.rest_problem import (
    RestProblem,
    adjustable_constraints,
    external_load,
    refuse_unknown_names,
    take_new_rest,
    to_start,
    undisturbed,
    with_rest_channels,
)
from loki_core.operators.rest_stability import describe, stabilize
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task


class SagFreeStart(Behavior, kind="operator"):
    """Change the rest shape of the solids in the Group so that they do not sag at the start."""

    regularization: float = parameter(
        1.0e-3,
        unit="1/s",
        minimum=0.0,
        doc="Modes slower than this rate are left alone; larger values change rest shapes less.",
    )
    constraints: tuple[str, ...] = parameter(
        (), doc="Constraints whose rest parameters may change; all that have some if empty."
    )
    stabilize: bool = parameter(
        True, doc="Stiffen the bending of strands that would buckle out of their shape."
    )


class SagFreeStartAction(Operator[Bodies], behavior=SagFreeStart):
    """Finds rest parameters in the first substep, when Forces are known.

    Attributes:
        largest_force: Largest force on a point before and after [N].
    """

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        self.largest_force = (0.0, 0.0)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the rest channels, which only the target's Constraints know."""
        refuse_unknown_names(self.target, self.behavior.constraints, label=self.path)
        stage, declaration = super().declare(name, stage, declaration)
        if self.behavior.stabilize and "joints" in self.target.data:
            writes = (*declaration.writes, "joints.rest_stiffening")
            declaration = replace(declaration, writes=writes)
        return stage, with_rest_channels(self.target, declaration)

    @task(
        Stage.FIND_REST_SHAPES,
        reads=("particles.force", "particles.start_position"),
        communicates=True,
    )
    def balance(self, access: Access, step: Step) -> None:
        """Let Constraints carry what Forces do at the start."""
        if step.substep != 0 or step.newton != 0:
            return
        target, settings = self.target, self.settings
        before = [one.rest_parameters() for one in adjustable_constraints(target)]
        with undisturbed(target):
            to_start(target)
            problem = RestProblem(
                target,
                external_load(target, access["particles.force"]),
                regularization=float(settings.regularization),
                names=settings.constraints,
            )
            self.largest_force = problem.balance()
            if settings.stabilize and isinstance(target, Joints):
                self._stabilize(problem)
        take_new_rest(target, before, step.dt)

    def _stabilize(self, problem: RestProblem) -> None:
        """Stiffen strands that would buckle, and balance them anew. Collective."""
        comm = self.target.scope.domain.comm
        stiffened, largest, hopeless = stabilize(problem)
        if stiffened:
            self.largest_force = (self.largest_force[0], problem.balance()[1])
        strands = comm.total(len(self.target.body_start) - 1)
        found = comm.total(stiffened), comm.maximum(largest), comm.total(hopeless)
        self.warning = describe(found, strands)
