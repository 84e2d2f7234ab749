"""The schedule: which Task of which Behavior runs at which Stage (Algorithm 1 of the paper).

For each Stage, for each Group: Objects first, then Actions, by class and path; never by the order
    in which the tree was
written. Two Tasks of one Stage that conflict (one writes what the other reads or writes) cannot be
ordered by that rule, so they are an error here, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loki_core.data.accessors import Access, split_name
from loki_core.data.task_notes import Seen, TaskNotes
from loki_core.errors import ScheduleError
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.statistics import TaskStatistics
from loki_core.pipeline.task import Task, TaskOwner


@dataclass
class ScheduledTask:
    """A Task with its owner, in its place."""

    task: Task
    owner: TaskOwner
    group: str
    kind: str  # "object" or "action"
    statistics: TaskStatistics
    seen: Seen = field(default_factory=Seen)

    @property
    def label(self) -> str:
        """What messages and `explain` call it: path and Task."""
        return f"{self.owner.path}.{self.task.name}"

    def access(self) -> Access:
        """A fresh Accessor for one run."""
        return Access(self.task.declaration, self.owner.task_data, self.label)

    @property
    def speaks(self) -> bool:
        """Whether other ranks may wait for this one inside the Task."""
        return self.task.declaration.speaks(self.owner.task_data)

    def notes(self) -> TaskNotes:
        """Fresh notes on one run."""
        return TaskNotes(self.task.declaration, self.owner.task_data, self.label, self.seen)


Schedule = dict[Stage, list[ScheduledTask]]


def build_schedule(
    groups: Iterable[tuple[str, Iterable[TaskOwner], Iterable[TaskOwner]]],
) -> Schedule:
    """Map all Tasks onto Stages.

    Args:
        groups: For each Group in canonical order: its path, its Objects, its Actions.

    Raises:
        ScheduleError: Two Tasks of one Stage conflict.
    """
    schedule: Schedule = {stage: [] for stage in Stage}
    for group, objects, actions in groups:
        for kind, owners in (("object", objects), ("action", actions)):
            for owner in sorted(owners, key=lambda o: (type(o).__name__, o.path)):
                for one in owner.tasks():
                    statistics = TaskStatistics(f"{owner.path}.{one.name}", one.stage.name)
                    schedule[one.stage].append(ScheduledTask(one, owner, group, kind, statistics))
    for stage, tasks in schedule.items():
        _refuse_conflicts(stage, tasks)
    return schedule


def _refuse_conflicts(stage: Stage, tasks: list[ScheduledTask]) -> None:
    """Raise if one Task changes what another one of the Stage touches.

    Accumulations commute with each other, reads with reads; everything else conflicts.
    """
    seen: dict[str, dict[tuple[int, str], ScheduledTask]] = {
        "reads": {},
        "writes": {},
        "accumulates": {},
    }
    conflicts_with = {
        "reads": ("writes", "accumulates"),
        "writes": ("reads", "writes", "accumulates"),
        "accumulates": ("reads", "writes"),
    }
    for scheduled in tasks:
        data = scheduled.owner.task_data
        touched = {
            kind: {_identity(data, name): name for name in names}
            for kind, names in _touched(scheduled).items()
        }
        for kind, names in touched.items():
            for other_kind in conflicts_with[kind]:
                for key, name in names.items():
                    if key in seen[other_kind]:
                        raise _conflict(stage, scheduled, seen[other_kind][key], name)
        for kind, names in touched.items():
            seen[kind] |= dict.fromkeys(names, scheduled)


def _touched(scheduled: ScheduledTask) -> dict[str, list[str]]:
    """Channels by how the Task touches them; a change of layout writes every channel."""
    declared, data = scheduled.task.declaration, scheduled.owner.task_data
    moved = [f"{name}.{channel}" for name in declared.layout for channel in data[name].channels]
    return {
        "reads": list(declared.all_reads),
        "writes": [*declared.writes, *moved],
        "accumulates": list(declared.accumulates),
    }


def _identity(data: dict[str, Any], name: str) -> tuple[int, str]:
    data_name, channel = split_name(name)
    if data_name not in data:
        raise ScheduleError(f'"{name}" names data that its owner does not have')
    return id(data[data_name]), channel


def _conflict(stage: Stage, one: ScheduledTask, other: ScheduledTask, name: str) -> ScheduleError:
    remedy = (
        "merge the two, or run one of them at another user-facing Stage"
        if stage.user_facing
        else "keep one of the two, or give each its own Group; whoever writes a Behavior can move "
        "one of them to another developer-facing Stage (pipeline/stages.py)"
    )
    return ScheduleError(
        f'{other.label} and {one.label} both run at {stage.name} and touch "{name}", which one of '
        f"them writes; their order would be arbitrary: {remedy}"
    )
