"""Sag-free Start: solids stand still at the start, though Forces such as gravity pull at them.

    min_p |f(x0, p)|^2 + regularisation          (paper, 6.3, inverse dynamics)

Rest lengths and rest strains p change once, in the first substep, so that Constraints carry the
load in the shape of the input. How that is solved is told in `operators/rest_problem.py`. Strands
that Attachments hold are balanced together with them (`operators/joint_rest.py`). A shape
that no rest shape can hold (nothing holds it up, or bounds are met) moves as little as can be. A
strand that would buckle, as one that stands up and is too long for its stiffness, is stiffened with
`stabilize` until it does not (`operators/rest_stability.py`); without, it stays only until
something disturbs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration, split_name
from loki_core.objects.basics.capabilities import Bodies, Joints
from loki_core.operators.joint_rest import JointRest
from loki_core.operators.operator import Operator
from loki_core.operators.rest_problem import (
    RestProblem,
    adjustable_constraints,
    carrying_constraints,
    external_load,
    refuse_unknown_names,
    take_new_rest,
    to_start,
    undisturbed,
    with_rest_channels,
)
from loki_core.operators.rest_stability import describe, stabilize
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task


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

    behavior: SagFreeStart
    settings: SagFreeStart

    def __init__(self, behavior: SagFreeStart, target: Bodies) -> None:
        super().__init__(behavior, target)
        self.largest_force = (0.0, 0.0)
        self.together = target.system.balanced_at_start
        self.together.append(self)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the rest channels, which only the target's Constraints know; maybe those of all."""
        refuse_unknown_names(self.target, self.behavior.constraints, label=self.path)
        stage, declaration = super().declare(name, stage, declaration)
        plain, declaration = declaration, self._with_rest(declaration)
        joining = self._joining()
        if not joining or self.together[0] is not self:
            return stage, declaration
        names = {id(holder): data_name for data_name, holder in self.task_data.items()}

        def here(owner: Any, given: Iterable[str]) -> Iterator[str]:
            """Channels of another's data, as this Action names them."""
            data = owner.task_data
            for one in given:
                data_name, channel = split_name(one)
                yield f"{names[id(data[data_name])]}.{channel}"

        reads, writes = dict.fromkeys(declaration.reads), dict.fromkeys(declaration.writes)
        for other in self.together[1:]:
            touched = other._with_rest(plain)
            reads |= dict.fromkeys(here(other, touched.reads))
            writes |= dict.fromkeys(here(other, touched.writes))
        for one in joining:
            painted = one.target.painted_reads(one.behavior)
            reads |= dict.fromkeys(here(one, (*one.reads, *one.gradient_reads, *painted)))
        reads["solids.fixed_with_ghosts"] = None
        kept = tuple(one for one in reads if one not in writes)
        return stage, replace(declaration, reads=kept, writes=tuple(writes))

    def tasks(self) -> Iterator[Task]:
        """What is joined is one problem, and the first of the Actions acts for all."""
        for one in super().tasks():
            if self.together[0] is self or not self._joining():
                yield one

    def _with_rest(self, declaration: Declaration) -> Declaration:
        """Add what a balance of the target alone changes."""
        if self.behavior.stabilize and isinstance(self.target, Joints):
            writes = (*declaration.writes, "joints.rest_stiffening")
            declaration = replace(declaration, writes=writes)
        return with_rest_channels(self.target, declaration)

    @property
    def task_data(self) -> dict[str, Any]:
        """Those of the target, and of all that has joined, for the one that acts for all."""
        data = super().task_data
        if self.together[0] is self:
            own = {id(holder) for holder in data.values()}
            whole = self.target.system.task_data
            data |= {name: holder for name, holder in whole.items() if id(holder) not in own}
        return data

    @task(
        Stage.FIND_REST_SHAPES,
        reads=("particles.force",),
        communicates=True,
    )
    def balance(self, access: Access, step: Step) -> None:
        """Let Constraints carry what Forces do at the start."""
        if step.substep != 0 or step.newton != 0:
            return
        joining = self._joining()
        if joining:
            self._balance_together(joining, step)
        else:
            self._balance_alone(access["particles.force"], step)

    def _joining(self) -> list[Any]:
        """What joins any of the solids that have such a start, each once."""
        found: list[Any] = []
        for one in self.together:
            for joining in carrying_constraints(one.target, one.behavior.constraints):
                if not any(joining is other for other in found):
                    found.append(joining)
        return found

    def problem(self, force: Any) -> RestProblem:
        """The rest problem of the target, which has to be at its start."""
        return RestProblem(
            self.target,
            external_load(self.target, force),
            regularization=float(self.settings.regularization),
            names=self.settings.constraints,
        )

    def _balance_alone(self, force: Any, step: Step) -> None:
        target = self.target
        before = [one.rest_parameters() for one in adjustable_constraints(target)]
        with undisturbed(target):
            to_start(target)
            problem = self.problem(force)
            self.largest_force = problem.balance()
            if self._stabilize(problem):
                self.largest_force = (self.largest_force[0], problem.balance()[1])
        take_new_rest(target, before, step.dt)

    def _balance_together(self, joining: list[Any], step: Step) -> None:
        """Balance all solids with what joins them, by one of the Actions. Collective."""
        actions, system = self.together, self.target.system
        before = [
            [one.rest_parameters() for one in adjustable_constraints(action.target)]
            for action in actions
        ]
        shifts = [one.shift() for one in joining]
        with contextlib.ExitStack() as stack:
            for action in actions:
                stack.enter_context(undisturbed(action.target))
                to_start(action.target)
            for one in joining:
                one.to_start(step)
                stack.callback(one.end_step, step)
            problems = [
                action.problem(action.target.particles.local("force")) for action in actions
            ]
            joint = JointRest(system, problems, joining)
            first, last = joint.balance()
            joint.hold()
            stiffened = [
                action._stabilize(problem)
                for action, problem in zip(actions, problems, strict=True)
            ]
            if any(stiffened):
                _, last = joint.balance()
        for action, old in zip(actions, before, strict=True):
            action.largest_force = (first, last)
            take_new_rest(action.target, old, step.dt)
        for one, shift in zip(joining, shifts, strict=True):
            one.take_shift(shift, step.dt)

    def _stabilize(self, problem: RestProblem) -> bool:
        """Stiffen strands that would buckle; whether any has to be balanced anew. Collective."""
        if not self.settings.stabilize or not isinstance(self.target, Joints):
            return False
        comm = self.target.scope.domain.comm
        stiffened, largest, hopeless = stabilize(problem)
        strands = comm.total(self.target.unknowns.bodies)
        found = comm.total(stiffened), comm.maximum(largest), comm.total(hopeless)
        self.warning = describe(found, strands)
        return bool(found[0])
