"""Task Notes: what a Task really touches, held against what it declares.

The data note every array that they hand out (`data/notes.py`), the observed communicator counts
what ranks say, and checksums find what was changed. What was not declared is an error that names
the Task, the channel and what to add. What is declared and never touched cannot be told from one
run; `Seen` keeps what was, for whoever runs enough scenes to tell.

Checksums of all channels cost more than most Tasks do, so they are taken at the first runs of a
Task and at some of the later ones; what is handed out is noted at all of them.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.data import notes
from loki_core.data.accessors import Declaration, split_name
from loki_core.errors import AccessError
from loki_core.parallel.comm import Communicator
from loki_core.parallel.observed import ObservedCommunicator

#: Runs of a Task at which checksums are taken: the first ones, and one in so many of the others.
FIRST_SUMS, SUMS_EVERY = 4, 32


@dataclass
class Seen:
    """What a Task was seen to do, over all its runs under the check.

    Attributes:
        runs: How often it ran.
        touched: Channels that were handed out to it, as "<data>.<channel>".
        changed: Those that had other values after it.
        moved: Data whose elements it added, removed or moved.
        spoke: Whether it spoke to other ranks by itself.
    """

    runs: int = 0
    touched: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    spoke: bool = False

    @property
    def is_due(self) -> bool:
        """Whether checksums are taken at the next run."""
        return self.runs < FIRST_SUMS or self.runs % SUMS_EVERY == 0

    @staticmethod
    def promised(declared: Declaration) -> set[str]:
        """All that a Task declares, as "<word> <name>"; elements that move are new in any case."""
        promised = {f"touches {name}" for name in declared.names()}
        for name in (*declared.writes, *declared.accumulates):
            if split_name(name)[0] not in declared.layout:
                promised.add(f"changes {name}")
        promised |= {f"moves {name}" for name in declared.layout}
        return promised | ({"communicates"} if declared.communicates else set())

    def idle(self, declared: Declaration) -> set[str]:
        """What is declared and was not seen, in the same words."""
        seen = {f"touches {name}" for name in self.touched}
        seen |= {f"changes {name}" for name in self.changed}
        seen |= {f"moves {name}" for name in self.moved}
        return self.promised(declared) - seen - ({"communicates"} if self.spoke else set())


class TaskNotes:
    """Notes of one run of a Task.

    Args:
        declaration: What the Task may do.
        data: What it may do it to, by the names of the declaration.
        label: Who runs, for messages.
        seen: What is added to.
    """

    def __init__(
        self, declaration: Declaration, data: Mapping[str, Any], label: str, seen: Seen
    ) -> None:
        self.declaration, self.data, self.label, self.seen = declaration, data, label, seen
        self._names: dict[int, list[str]] = {}
        for name, holder in data.items():
            self._names.setdefault(id(holder), []).append(name)
        self._declared = set(declaration.names())
        self._may_change = {*declaration.writes, *declaration.accumulates}
        self._made: list[Any] = []  # data of the Task's own, kept so that ids stay theirs
        self._thread = threading.get_ident()

    @contextmanager
    def taken(self, comm: Communicator) -> Iterator[None]:
        """Take notes while a Task runs, and find what it changed.

        Raises:
            AccessError: The Task changed a channel, or spoke to other ranks, undeclared.
        """
        is_due, calls = self.seen.is_due, _calls(comm)
        before = self._checksums() if is_due else {}
        former, notes.running = notes.running, self
        try:
            yield
        finally:
            notes.running = former
        self.seen.runs += 1
        self.seen.spoke |= _calls(comm) > calls
        after = self._checksums() if is_due else {}
        changed = {name for name in before if after.get(name, before[name]) != before[name]}
        self.seen.changed |= changed
        for name in sorted(changed - self._may_change):
            raise self._undeclared(f'"{name}" was changed', "writes or accumulates")
        declared = self.declaration
        if _calls(comm) > calls and not (declared.communicates or declared.halo or declared.layout):
            raise AccessError(
                f'"{self.label}" speaks to other ranks but does not say so; '
                "add communicates=True to the Task"
            )

    # -- what data note --------------------------------------------------------------------

    def note_use(self, holder: Any, channel: str) -> None:
        """Values of a channel are handed out, to be read or changed."""
        name = self._name(holder, channel)
        if name is None or name in self._declared:
            return
        raise self._undeclared(f'"{name}" is used', "reads, writes or accumulates")

    def note_write(self, holder: Any, channel: str) -> None:
        """Values of a channel were changed."""
        name = self._name(holder, channel)
        if name is None or name in self._may_change:
            self.seen.changed |= {name} if name else set()
            return
        raise self._undeclared(f'"{name}" was changed', "writes or accumulates")

    def note_layout(self, holder: Any) -> None:
        """Elements come, go or change places."""
        names = self._known(holder)
        moved = [name for name in names if name in self.declaration.layout]
        self.seen.moved |= set(moved)
        if names and not moved:
            raise self._undeclared(f'the layout of "{names[0]}" is changed', "layout")

    def note_new(self, holder: Any) -> None:
        """The Task makes data of its own."""
        if threading.get_ident() == self._thread:
            self._made.append(holder)

    # -- details ---------------------------------------------------------------------------

    def _name(self, holder: Any, channel: str) -> str | None:
        """A channel by the declaration's name; None if the Task may do with it what it likes."""
        found = [f"{name}.{channel}" for name in self._known(holder)]
        if not found or channel.startswith("scratch/"):  # lent for the length of a block
            return None
        declared = [name for name in found if name in self._declared]
        self.seen.touched |= set(declared)
        moved = any(name in self.declaration.layout for name in self._known(holder))
        return None if moved else (*declared, *found)[0]

    def _known(self, holder: Any) -> list[str]:
        """Names of data; none for what the Task made, and for what another thread touches."""
        if threading.get_ident() != self._thread:
            return []
        if id(holder) in self._names:
            return self._names[id(holder)]
        if any(one is holder for one in self._made):
            return []
        raise AccessError(
            f'{holder.name} is used in "{self.label}", whose owner does not name it; '
            "add it to the owner's `task_data`, and its channels to what the Task declares"
        )

    def _undeclared(self, what: str, words: str) -> AccessError:
        return AccessError(
            f'{what} in "{self.label}" but was never declared; add it to the Task\'s {words}'
        )

    def _checksums(self) -> dict[str, int]:
        """Of all channels that may not change, and of those that were not seen to change yet."""
        sums: dict[str, int] = {}
        for data_name, holder in self.data.items():
            if data_name in self.declaration.layout:
                continue
            for channel, stored in list(holder.channels.items()):
                name = f"{data_name}.{channel}"
                if name not in self.seen.changed and len(stored.values):  # scratch may have none
                    sums[name] = zlib.crc32(_bytes_of(holder.local(channel)))
        return sums


def _bytes_of(values: NDArray[Any]) -> memoryview:
    """Of an array where they lie, if it is in one piece."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _calls(comm: Communicator) -> int:
    """How often a communicator was used; one that is not observed does not tell."""
    return comm.calls if isinstance(comm, ObservedCommunicator) else 0
