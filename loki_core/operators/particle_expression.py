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

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.errors import DivergenceError, SetupError
from loki_core.expressions import ChannelType
from loki_core.expressions.expression_behavior import (
    ExpressionAction,
    ExpressionBehavior,
    channel_kind,
)
from loki_core.objects.basics.capabilities import Liquid, Points
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

#: Channels that an expression must not change: the Object's own bookkeeping.
READ_ONLY_CHANNELS = ("id", "force", "jacobian", "start_velocity", "change")
_NEW_CHANNEL_TYPES = {
    "float": (np.float32, ()),
    "vector": (np.float32, (3,)),
    "int": (np.int32, ()),
    "bool": (np.bool_, ()),
}


def names_in(snippet: str) -> list[str]:
    """Words of a snippet, sorted; whether it is one is checked elsewhere."""
    return sorted(set(re.findall(r"[A-Za-z_]\w*", snippet)))


class ParticleExpression(ExpressionBehavior):
    """Run a snippet of code over each particle in the Group."""

    channel_form = '"name" or "name:type" with type ' + ", ".join(_NEW_CHANNEL_TYPES)

    new_channels: tuple[str, ...] = parameter(
        (), doc='Channels to create, as "name" or "name:type" with type float, vector, int or bool.'
    )

    @classmethod
    def takes_detail(cls, detail: str) -> bool:
        """Return whether it is a type of channel, or nothing."""
        return (detail or "float") in _NEW_CHANNEL_TYPES


class ParticleExpressionAction(ExpressionAction[Points], behavior=ParticleExpression):
    """Runs the compiled snippet."""

    data_name = "particles"

    def __init__(self, behavior: ParticleExpression, target: Points) -> None:
        super().__init__(behavior, target)
        particles = target.particles
        for name in names_in(behavior.expression):
            target.offer_channel(name)
        for name, kind in behavior.channels_to_create():
            asked, shape = _NEW_CHANNEL_TYPES[kind or "float"]
            dtype = particles.dtype if asked is np.float32 else asked
            particles.add_channel(name, dtype, shape)

    def channel_types(self) -> dict[str, ChannelType]:
        """Return the kinds of the particles' channels."""
        return {
            name: ChannelType(kind, writable=name not in READ_ONLY_CHANNELS)
            for name, channel in self.target.data["particles"].channels.items()
            if (kind := channel_kind(channel.dtype, channel.shape)) is not None
            and not channel.is_scratch
        }

    @task(Stage.PRE_SOLVE)
    def run(self, access: Access, step: Step) -> None:
        """Run the snippet on every local particle."""
        checked, particles = self.checked, access.of("particles")
        names = sorted({*checked.reads, *checked.writes})
        arrays: dict[str, NDArray[Any]] = {name: access[f"particles.{name}"] for name in names}
        origin = particles.domain.origin
        shift = "position" in arrays and bool(np.any(origin))
        if shift:  # stored positions are relative; the user's are the world's
            arrays["position"] = arrays["position"] + origin
        self.run_on(arrays, step, count=particles.count)
        self._check_motion(arrays)
        if shift and "position" in checked.writes:
            access["particles.position"][:] = arrays["position"] - origin
        if "position" in checked.writes:
            self.target.were_moved()

    def _check_motion(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Refuse places and velocities that are not finite before anything is made of them."""
        particles = self.target.data["particles"]
        for name in ("position", "velocity"):
            if name in self.checked.writes:
                finite = np.isfinite(arrays[name][: particles.count]).all(axis=1)
                if not finite.all():
                    row = int(np.argmin(finite))
                    raise DivergenceError(
                        f"{self.path}.expression: {name} of particle id "
                        f"{int(particles.local('id')[row])} of {self.target.path} is "
                        f"{arrays[name][row].tolist()}; finite numbers are expected"
                    )

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Declare what the snippet touches.

        Raises:
            SetupError: It moves particles at a Stage at which they have to stay in their Buckets.
        """
        stage, declaration = super().declare(name, stage, declaration)
        moved = [one for one in ("position", "velocity") if one in self.checked.writes]
        if moved:  # a message tells whose is not finite
            reads = dict.fromkeys((*declaration.reads, "particles.id"))
            declaration = replace(declaration, reads=tuple(reads))
        if "position" in moved and isinstance(self.target, Liquid):  # which lets some go
            declaration = replace(declaration, layout=("particles",))
        allowed = self.target.stages_to_move
        if "particles.position" in declaration.writes and stage.name not in allowed:
            raise SetupError(
                f"{self.path}.expression moves particles of {self.target.path} at {stage.name}, "
                f"where they are sorted already; a stage of {', '.join(allowed)} is expected"
            )
        return stage, declaration
