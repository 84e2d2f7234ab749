"""Action: a deferred operation on one Object; the base of Forces, Constraints and Operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import DTypeLike

from loki_core.behavior import Behavior, register_action
from loki_core.data.accessors import ChannelData, Declaration
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import TaskOwner
from loki_core.sparse_parameters import Resolved


class Action(TaskOwner):
    """Base of all Actions.

    Class keywords:
        behavior: The Behavior class whose default `create` makes one of these per Object.

    Attributes:
        settings: The Behavior with the values of the current time.
        target: The Object that is acted on.
    """

    def __init_subclass__(cls, *, behavior: type[Behavior] | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if behavior is not None:
            register_action(behavior, cls)

    def __init__(self, behavior: Any, target: Any) -> None:
        self.behavior = behavior
        self.settings = behavior
        self.target = target

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Whether the Action has anything to do on this Object."""
        return True

    @property
    def data(self) -> dict[str, ChannelData]:
        """The target's data, under the target's names."""
        data: dict[str, ChannelData] = self.target.data
        return data

    @property
    def place(self) -> str:
        """What tells it from the other Actions of its Behavior."""
        path: str = self.target.path
        return path

    def update(self, settings: Behavior, time: float) -> None:
        """Take the parameter values of the current time [s]."""
        self.settings = settings

    def resolve(self, name: str, dtype: DTypeLike) -> Resolved:
        """A parameter as kernels read it, `(values, step)`, for every vertex of the target."""
        resolved: Resolved = self.target.resolve(self.behavior, name, label=self.path, dtype=dtype)
        return resolved

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the painted channels that override parameters to what the Task reads."""
        painted = (f"particles.{c}" for c in self.target.overriding_channels(self.behavior))
        return stage, replace(
            declaration, reads=tuple(dict.fromkeys((*declaration.reads, *painted)))
        )
