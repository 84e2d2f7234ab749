"""Action: a deferred operation on one Object; the base of Forces, Constraints and Operators.

An Action says what it needs of its target by a capability, `Action[Gas]`; it acts on the Objects
that have it (`objects/basics/capabilities.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

from numpy.typing import DTypeLike

from loki_core.behavior import Behavior, register_action
from loki_core.data.accessors import ChannelData, Declaration
from loki_core.objects.basics.capabilities import Capability, Faces
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import TaskOwner
from loki_core.sparse_parameters import Resolved

if TYPE_CHECKING:
    from loki_core.objects.gas.voxel_parameters import VoxelParameter

Target = TypeVar("Target", bound=Capability)


class Action(TaskOwner, Generic[Target]):
    """Base of all Actions.

    Class keywords:
        behavior: The Behavior class whose default `create` makes one of these per Object.

    Attributes:
        capability: What the target has to have: the argument in the brackets after the base.
        settings: The Behavior with the values of the current time.
        target: The Object that is acted on.
        peers: All Actions that its Behavior has made, itself included.
        exchange: What a coupling has exchanged, where it is one.
        resolving: Tasks that look painted channels up; all if None.
    """

    behavior: Behavior
    settings: Behavior
    capability: ClassVar[Any] = object
    exchange: Any = None
    resolving: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls, *, behavior: type[Behavior] | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.capability = _capability_of(cls)
        if behavior is not None:
            register_action(behavior, cls)

    def __init__(self, behavior: Behavior, target: Target) -> None:
        self.behavior = behavior
        self.settings = behavior
        self.target = target
        self.peers: list[Any] = [self]

    @classmethod
    def acts_on(cls, item: Capability) -> bool:
        """Whether the Action has anything to do on this Object: what it needs is there."""
        return isinstance(item, cls.capability)

    def is_elsewhere(self, has: Callable[[Any], bool]) -> bool:
        """Whether its target lacks what a peer's has, so that the Behavior acts there alone.

        What no Object in reach has is no reason to be idle: it is a name that is wrong.

        Args:
            has: Whether the target of an Action has it.
        """
        return not has(self) and any(has(one) for one in self.peers)

    @property
    def data(self) -> dict[str, ChannelData]:
        """The target's data, under the target's names."""
        data: dict[str, ChannelData] = self.target.data
        return data

    @property
    def task_data(self) -> dict[str, Any]:
        """What the target's Tasks can name, and its own."""
        data: dict[str, Any] = self.target.task_data | self.data
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

    def on_voxels(self, name: str) -> VoxelParameter:
        """A parameter in the cells and on the faces of a fluid. Collective where it varies."""
        assert isinstance(self.target, Faces)
        return self.target.on_voxels(self.behavior, name, label=self.path)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the painted channels that override parameters to what the Task reads.

        They are read where they are; particles beside the rank's are known one layer deep alone.
        """
        painted = self.target.painted_reads(self.behavior)
        if self.resolving is not None and name not in self.resolving:
            painted = ()
        if declaration.halo > 1:
            local = tuple(dict.fromkeys((*declaration.local_reads, *painted)))
            return stage, replace(declaration, local_reads=local)
        reads = tuple(dict.fromkeys((*declaration.reads, *painted)))
        return stage, replace(declaration, reads=reads)


def _capability_of(cls: type[Action[Any]]) -> Any:
    """The argument of the base that it derives from, or what that base needs itself."""
    if "capability" in vars(cls):
        return cls.capability
    for base in vars(cls).get("__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Action):
            (wanted,) = get_args(base)
            if isinstance(wanted, TypeVar):
                wanted = wanted.__bound__
            return object if wanted is Capability else wanted
    return cls.capability
