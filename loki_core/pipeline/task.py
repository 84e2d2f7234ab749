"""Tasks: units of work, declared next to their code with the Stage they run at and what they touch.

@task(Stage.MOVE_PARTICLES, reads=("particles.velocity",), writes=("particles.position",))
def move(self, access, step):
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.pipeline.stages import Stage

Function = TypeVar("Function", bound=Callable[..., None])
#: Places on the space-filling curve, and what weighs there in the load balance.
Weights = tuple[NDArray[np.uint64], NDArray[np.float64]]


@dataclass(frozen=True)
class Step:
    """Where on the timeline a Task runs.

    Attributes:
        frame: The frame that is being computed.
        time: Time at the start of the substep [s].
        dt: Length of the substep [s].
        substep: Number of substeps done since the start of the run.
        newton: Newton iteration, from 0.
        seed: Random seed of the Solver Setup.
    """

    frame: int
    time: float
    dt: float
    substep: int = 0
    newton: int = 0
    seed: int = 0

    def at_newton(self, iteration: int) -> Step:
        """The same step in another Newton iteration."""
        return replace(self, newton=iteration)


def task(
    stage: Stage,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    accumulates: tuple[str, ...] = (),
    halo: int = 0,
    corners: bool = False,
    overlap: bool = False,
    layout: tuple[str, ...] = (),
    local_sums: bool = False,
    communicates: bool = False,
    local_reads: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Declare a method as a Task; see `Declaration` for what the arguments mean."""
    declaration = Declaration(
        reads, writes, accumulates, halo, corners, overlap, layout, local_sums, communicates,
        local_reads,
    )  # fmt: skip

    def mark(function: Function) -> Function:
        function.__loki_task__ = (stage, declaration)  # type: ignore[attr-defined]
        return function

    return mark


@dataclass(frozen=True)
class Task:
    """A Task of one Object or Action, ready to be scheduled."""

    name: str
    stage: Stage
    declaration: Declaration
    run: Callable[[Access, Step], None]
    doc: str


class TaskOwner:
    """Base of what runs: Objects and Actions.

    Attributes:
        path: Place in the Solver Setup's tree; set when the Solver is built.
        data: Particle Systems and Discrete Volumes that it owns, by the names that Tasks use.
        task_data: What its Tasks can name: its own data, and what they touch of others.
        iterations: Iterations of the last solve, for the statistics; 0 where there are none.
        warning: What the user should know of the last Task, such as a solver that was replaced.
        cost: Work on one element in a substep, for the load balance, in voxels of smoke
            (`data/cost_model.py`): of an Object's own, or, for an Action, of those it acts on.
    """

    path: str = ""
    cost: float = 0.0
    iterations: int = 0
    warning: str = ""

    @property
    def data(self) -> dict[str, ChannelData]:
        return {}

    @property
    def task_data(self) -> dict[str, Any]:
        return dict(self.data)

    def tasks(self) -> Iterator[Task]:
        """The Tasks of this owner, in the order of their names."""
        for name in sorted(dir(type(self))):
            marked = getattr(getattr(type(self), name), "__loki_task__", None)
            if marked is not None:
                stage, declaration = marked
                stage, declaration = self.declare(name, stage, declaration)
                method = getattr(self, name)
                doc = (method.__doc__ or "").strip().partition("\n")[0]
                yield Task(name, stage, declaration, method, doc)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Complete a declaration with what only the instance knows, such as painted channels."""
        return stage, declaration

    def weights(self) -> Weights:
        """What weighs here in the load balance; a place may come again, and be any rank's.

        Objects weigh what they own. Actions add to that by `cost`; one whose work is elsewhere,
        such as in the Buckets of another Object, says here where.
        """
        return np.empty(0, np.uint64), np.empty(0)

    def state(self) -> dict[str, Any]:
        """Everything beyond `data` that changes the numbers, as a plain document."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take such a state back."""
