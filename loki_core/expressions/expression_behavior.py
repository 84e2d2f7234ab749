"""Expression Behavior: what snippets over particles and over voxels have in common.

The Behavior holds the snippet, the Stage and the four user values `a` to `d`; the Action checks the
snippet against the channels of its target, compiles it once, runs it on arrays, and declares what
it touches. What the arrays are is for Particle Expression and Volume Expression to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import methodcaller
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Declaration
from loki_core.errors import SetupError, UnknownNameError
from loki_core.expressions.compile import CompiledExpression, compile_expression
from loki_core.expressions.functions import Kind
from loki_core.expressions.language import ChannelType, CheckedExpression, check_expression
from loki_core.operators.operator import Operator
from loki_core.pipeline.action import Target
from loki_core.pipeline.stages import USER_STAGES, Stage
from loki_core.pipeline.task import Step, Task

USER_VALUES = ("a", "b", "c", "d")

_SCALAR_KINDS: Mapping[str, Kind] = {"f": "float", "i": "int", "u": "int", "b": "bool"}


class ExpressionBehavior(Behavior, kind="expression", abstract=True):
    """Run a snippet of code over each element in the Group."""

    #: How an entry of `new_channels` is written, for messages.
    channel_form: ClassVar[str] = '"name"'

    expression: str = parameter("", kind="expression", doc="The snippet.")
    stage: str = parameter(
        "PRE_SOLVE", choices=USER_STAGES, doc="User-facing Stage at which it runs."
    )
    new_channels: tuple[str, ...] = parameter((), doc="Channels to create.")
    a: float = parameter(0.0, doc="A value that the snippet may read.")
    b: float = parameter(0.0, doc="A value that the snippet may read.")
    c: float = parameter(0.0, doc="A value that the snippet may read.")
    d: float = parameter(0.0, doc="A value that the snippet may read.")

    @classmethod
    def takes_detail(cls, detail: str) -> bool:
        """Return whether a new channel may have this after its name and ":", or nothing."""
        return detail == ""

    def channels_to_create(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each new channel and what stands after ":", "" if nothing does."""
        for text in self.new_channels:
            name, _, detail = text.partition(":")
            yield name, detail

    def validate(self, place: str) -> None:
        """Check the form of `new_channels`."""
        for text, (name, detail) in zip(self.new_channels, self.channels_to_create(), strict=True):
            if not name.isidentifier() or not self.takes_detail(detail):
                raise SetupError(f'{place}.new_channels: "{text}" is not {self.channel_form}')


class ExpressionAction(Operator[Target], ABC):
    """Checks, compiles and runs the snippet."""

    behavior: ExpressionBehavior

    #: The target's data that the snippet runs over.
    data_name: ClassVar[str]

    def __init__(self, behavior: ExpressionBehavior, target: Target) -> None:
        super().__init__(behavior, target)
        self._checked: CheckedExpression | None = None
        self._compiled: CompiledExpression | None = None

    @abstractmethod
    def channel_types(self) -> dict[str, ChannelType]:
        """Return what a snippet may know of the channels that the target has now."""

    @property
    def checked(self) -> CheckedExpression:
        """The snippet, checked against the channels that the target has now."""
        channels = self.channel_types()
        # A snippet may use `id` where no channel holds it.
        if self._checked is None or not set(channels) >= set(self._checked.channels) - {"id"}:
            self._checked = check_expression(
                self.behavior.expression,
                channels=channels,
                parameters=dict.fromkeys(USER_VALUES, 0.0),
                label=f"{self.path or type(self.behavior).__name__}.expression",
            )
            self._compiled = None
        return self._checked

    def knows_names(self) -> bool:
        """Whether the target has all channels that the snippet names."""
        try:
            return self.checked is not None
        except UnknownNameError:
            return False

    def tasks(self) -> Iterator[Task]:
        """None where the snippet is about channels that other targets have."""
        if not self.is_elsewhere(methodcaller("knows_names")):
            yield from super().tasks()

    def run_on(self, arrays: Mapping[str, NDArray[Any]], step: Step, *, count: int) -> None:
        """Run the snippet on the first `count` elements; written channels change in place."""
        checked = self.checked
        if self._compiled is None:
            self._compiled = compile_expression(checked)
        self._compiled(
            arrays,
            dt=step.dt,
            time=step.time,
            frame=step.frame,
            substep=step.substep,
            seed=step.seed,
            parameters={name: float(getattr(self.settings, name)) for name in USER_VALUES},
            count=count,
        )

    def touched(self) -> tuple[set[str], set[str]]:
        """Return the names of the channels that are read, and of those that are written."""
        return set(self.checked.reads), set(self.checked.writes)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Run at the Stage that the user chose, and declare what the snippet touches."""
        reads, writes = self.touched()
        declared = replace(
            declaration,
            reads=tuple(sorted(f"{self.data_name}.{channel}" for channel in reads)),
            writes=tuple(sorted(f"{self.data_name}.{channel}" for channel in writes)),
        )
        return Stage[self.behavior.stage], declared


def channel_kind(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Kind | None:
    """Return the language's kind of a channel of elements of a shape, or None if it has none."""
    if shape == (3,) and dtype.kind == "f":
        return "vector"
    return _SCALAR_KINDS.get(dtype.kind) if shape == () else None
