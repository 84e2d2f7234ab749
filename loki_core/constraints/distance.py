"""Distance Constraint: edges keep their length, by a stiffness that is given (paper, 6.3).

    C = |x_1 - x_0| - s d,     E = k C^2 / 2

with d the length of the edge at the start and s a scale on it. It knows nothing of materials: any
Object with edges has it. Its rest lengths are its own, beside those that masses and other
Constraints go by.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.constraints.constraint import ConstraintBehavior
from loki_core.constraints.stretching import EdgeConstraint
from loki_core.data.accessors import Access, Declaration
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Float = NDArray[np.float64]


class DistanceConstraint(ConstraintBehavior):
    """Keep the ends of every edge at the distance that they start at."""

    stiffness: float = parameter(
        1000.0, unit="N/m", minimum=0.0, varies="vertex", doc="Force over change of length."
    )
    rest_scale: float = parameter(
        1.0,
        minimum=0.0,
        varies="vertex",
        doc="Length without force over that at the start; below 1 edges pull together.",
    )


class DistanceAction(EdgeConstraint, behavior=DistanceConstraint):
    """Adds the energy k (|e| - s d)^2 / 2."""

    cost = 0.14

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        further = self._channel_prefix.removeprefix("distance_constraint")  # of several: "_1"
        self.rest_name = f"rest_distance{further}"
        self.reads = (f"edges.{self.rest_name}", "edges.length")
        self.gradient_reads = ("particles.position", "edges.rest_length")
        target.data["edges"].add_channel(self.rest_name, np.float64)

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """The lengths of the start have a channel of their own."""
        stage, declaration = super().declare(name, stage, declaration)
        if name == "measure":
            declaration = replace(declaration, writes=(f"edges.{self.rest_name}",))
        return stage, declaration

    @task(Stage.INGEST, reads=("edges.rest_length",))
    def measure(self, access: Access, step: Step) -> None:
        """Take the lengths of the start."""
        access[f"edges.{self.rest_name}"][:] = access["edges.rest_length"]

    def rest_parameters(self) -> Float:
        """Lengths without force."""
        lengths: Float = (self._scale() * self.target.edges.local(self.rest_name))[:, None]
        return lengths

    def set_rest_parameters(self, values: Float) -> None:
        scale = self._scale()
        usable = scale > 0.0
        kept = self.target.edges.local(self.rest_name)
        kept[usable] = values[usable, 0] / scale[usable]

    def stiffness(self) -> tuple[Float, int]:
        rods = self.target
        k = rods.on_edges(rods.per_vertex(self.behavior, "stiffness", label=self.path))
        return k[:, None], 1

    def evaluate(self, value: Float, gradient: Float) -> None:
        """Write lengths beyond those at rest, and their gradient."""
        super().evaluate(value, gradient)
        value += self.target.edges.local("rest_length")[:, None] - self.rest_parameters()

    def evaluate_only(self, value: Float) -> None:
        value[:] = self.target.edges.local("length")[:, None] - self.rest_parameters()

    def _scale(self) -> Float:
        rods = self.target
        means: Float = rods.on_edges(rods.per_vertex(self.behavior, "rest_scale", label=self.path))
        return means
