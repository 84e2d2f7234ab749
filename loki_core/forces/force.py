"""Force: an Action that gives f, and optionally df/dx, at single points.

The author of a Force writes `evaluate`; this base owns the Task. By convention derivatives are with
respect to the end-of-step position, so a velocity-dependent force has df/dx = (df/dv) / dt (paper,
5.1). A Force that leaves the Jacobian alone is integrated explicitly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from loki_core.data.accessors import Access, Declaration
from loki_core.errors import AccessError, SetupError
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task
from loki_core.sparse_parameters import Resolved

Array = NDArray[Any]


@dataclass(frozen=True)
class ForcePoints:
    """The points that a Force acts on: an Object's particles.

    Attributes:
        dt: Length of the substep [s].
        time: Time at its end [s], which is when an implicit force acts.
    """

    _force: Force
    _channels: Mapping[str, Array]
    dt: float
    time: float

    def __getitem__(self, channel: str) -> Array:
        if channel not in self._channels:
            kind = type(self._force).__name__
            raise AccessError(
                f'{self._force.path}: "{channel}" is used but was never declared; '
                f'add it to {kind}.reads, as in reads = ("{channel}",)'
            )
        return self._channels[channel]

    def resolve(self, parameter: str) -> Resolved:
        """A parameter of the Behavior for every point, as `(values, step)`."""
        return self._force.resolve(parameter, self._channels["position"].dtype)


class Force(Action):
    """Base of all Forces.

    Class attributes, set by the author:
        reads: Channels that `evaluate` needs besides position and velocity.
        implicit: Whether `evaluate` adds to the Jacobian.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    implicit: ClassVar[bool] = False

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        if self.implicit:
            target.need_jacobian()

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Forces act on whatever accumulates forces on particles."""
        return "particles" in item.data and "force" in item.data["particles"].channels

    def evaluate(self, points: ForcePoints, force: Array, jacobian: Array | None) -> None:
        """Add f [N] to force [n, 3], and df/dx [N/m] to jacobian [n, 3, 3] where there is one."""
        raise SetupError(f"{type(self).__name__} is a Force and must define evaluate(...)")

    @task(Stage.EVALUATE_FORCES, accumulates=("particles.force",))
    def accumulate(self, access: Access, step: Step) -> None:
        """Add the force and its Jacobian."""
        declared = access.declaration
        channels = {name.partition(".")[2]: access[name] for name in declared.reads}
        jacobian = access["particles.jacobian"] if self.implicit else None
        points = ForcePoints(self, channels, step.dt, step.time + step.dt)
        self.evaluate(points, access["particles.force"], jacobian)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add what this Force reads, and the Jacobian if it is implicit."""
        stage, declaration = super().declare(name, stage, declaration)
        if name != "accumulate":
            return stage, declaration
        wanted = ("position", "velocity", *self.reads)
        reads = dict.fromkeys((*declaration.reads, *(f"particles.{channel}" for channel in wanted)))
        accumulates = declaration.accumulates
        if self.implicit:
            accumulates = (*accumulates, "particles.jacobian")
        return stage, replace(declaration, reads=tuple(reads), accumulates=accumulates)
