"""Particle Expression: a user's snippet, run over each particle at a user-facing Stage.

    speed = length(velocity)
    heat = clamp(heat + dt * a * speed, 0.0, 1.0)
    if age > 2.0:
        alive = False

The language is a small, typed, safe subset of Python (loki_core/expressions). Names of channels
read and write them; `dt`, `time`, `frame`, `id` and the four user values `a` to `d` can be read.
Positions are world positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import SetupError
from loki_core.expressions import (
    ChannelType,
    CheckedExpression,
    check_expression,
    compile_expression,
)
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import USER_STAGES, Stage
from loki_core.pipeline.task import Step, task

USER_VALUES = ("a", "b", "c", "d")
#: Channels that an expression must not change: the Object's own bookkeeping.
READ_ONLY_CHANNELS = ("id", "force", "jacobian", "start_velocity", "change")
_NEW_CHANNEL_TYPES = {
    "float": (np.float32, ()),
    "vector": (np.float32, (3,)),
    "int": (np.int32, ()),
    "bool": (np.bool_, ()),
}


class ParticleExpression(Behavior, kind="expression"):
    """Run a snippet of code over each particle in the Group."""

    expression: str = parameter("", kind="expression", doc="The snippet.")
    stage: str = parameter(
        "PRE_SOLVE", choices=USER_STAGES, doc="User-facing Stage at which it runs."
    )
    new_channels: tuple[str, ...] = parameter(
        (), doc='Channels to create, as "name" or "name:type" with type float, vector, int or bool.'
    )
    a: float = parameter(0.0, doc="A value that the snippet may read.")
    b: float = parameter(0.0, doc="A value that the snippet may read.")
    c: float = parameter(0.0, doc="A value that the snippet may read.")
    d: float = parameter(0.0, doc="A value that the snippet may read.")

    def validate(self, place: str) -> None:
        """Check the form of `new_channels`."""
        for text in self.new_channels:
            name, _, kind = text.partition(":")
            if not name.isidentifier() or (kind or "float") not in _NEW_CHANNEL_TYPES:
                raise SetupError(
                    f'{place}.new_channels: "{text}" is not "name" or "name:type" with type '
                    + ", ".join(_NEW_CHANNEL_TYPES)
                )


class ParticleExpressionAction(Operator, behavior=ParticleExpression):
    """Runs the compiled snippet."""

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        particles = target.data["particles"]
        for text in behavior.new_channels:
            name, _, kind = text.partition(":")
            dtype, shape = _NEW_CHANNEL_TYPES[kind or "float"]
            dtype = particles.dtype if dtype is np.float32 else dtype
            particles.add_channel(name, dtype, shape)
        self._checked: CheckedExpression | None = None
        self._run: Any = None

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Expressions run on whatever has particles."""
        return "particles" in item.data

    @property
    def checked(self) -> CheckedExpression:
        """The snippet, checked against the channels that the target has now."""
        channels = {
            name: ChannelType(kind, writable=name not in READ_ONLY_CHANNELS)
            for name, channel in self.target.data["particles"].channels.items()
            if (kind := _kind(channel.dtype, channel.shape)) is not None
        }
        if self._checked is None or not set(channels) >= set(self._checked.channels):
            self._checked = check_expression(
                self.behavior.expression,
                channels=channels,
                parameters=dict.fromkeys(USER_VALUES, 0.0),
                label=f"{self.path or type(self.behavior).__name__}.expression",
            )
            self._run = None
        return self._checked

    @task(Stage.PRE_SOLVE)
    def run(self, access: Access, step: Step) -> None:
        """Run the snippet on every local particle."""
        checked = self.checked
        if self._run is None:
            self._run = compile_expression(checked)
        particles = access.of("particles")
        names = sorted({*checked.reads, *checked.writes})
        arrays: dict[str, NDArray[Any]] = {name: access[f"particles.{name}"] for name in names}
        origin = particles.domain.origin
        shift = "position" in arrays and bool(np.any(origin))
        if shift:  # stored positions are relative; the user's are the world's
            arrays["position"] = arrays["position"] + origin
        self._run(
            arrays,
            dt=step.dt,
            time=step.time,
            frame=step.frame,
            substep=step.substep,
            seed=step.seed,
            parameters={name: float(getattr(self.settings, name)) for name in USER_VALUES},
            count=particles.count,
        )
        if shift and "position" in checked.writes:
            access["particles.position"][:] = arrays["position"] - origin

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Run at the Stage that the user chose, and declare what the snippet touches."""
        checked = self.checked
        declared = replace(
            declaration,
            reads=tuple(sorted(f"particles.{c}" for c in checked.reads)),
            writes=tuple(sorted(f"particles.{c}" for c in checked.writes)),
        )
        return Stage[self.behavior.stage], declared


def _kind(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """The expression language's kind of a channel, or None if it has no such kind."""
    if dtype.kind == "f":
        return {(): "float", (3,): "vector"}.get(shape)
    if shape == ():
        return {"i": "int", "u": "int", "b": "bool"}.get(dtype.kind)
    return None
