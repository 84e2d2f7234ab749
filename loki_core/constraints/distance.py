"""Distance Constraint: edges keep their length, by a stiffness that is given (paper, 6.3).

    C = |x_1 - x_0| - s d,     E = k C^2 / 2

with d the length of the edge at the start and s a scale on it. It knows nothing of materials: any
Object with edges has it. Its rest lengths are its own, beside those that masses and other
Constraints go by.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.constraints.constraint import ConstraintBehavior
from loki_core.constraints.edge_length import EdgeLength
from loki_core.data.accessors import Access, Declaration
from loki_core.objects.basics.capabilities import Edges
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Float = NDArray[np.float64]


class DistanceConstraint(ConstraintBehavior):
    """Keep the ends of every edge at the distance that they start at."""

    stiffness: float = parameter(
        1000.0, unit="N/m", minimum=0.0, doc="Force over change of length."
    )
    rest_scale: float = parameter(
        1.0,
        minimum=0.0,
        doc="Length without force over that at the start; below 1 edges pull together.",
    )


class DistanceAction(EdgeLength[Edges], behavior=DistanceConstraint):
    """Adds the energy k (|e| - s d)^2 / 2."""

    cost = 0.14

    def __init__(self, behavior: DistanceConstraint, target: Edges) -> None:
        super().__init__(behavior, target)
        further = self._channel_prefix.removeprefix("distance_constraint")  # of several: "_1"
        self.rest_name = f"rest_distance{further}"
        self.reads = ("particles.position", f"edges.{self.rest_name}")
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
        return self.rest_lengths()[:, None].copy()

    def rest_lengths(self) -> Float:
        """Those of the start, scaled."""
        scale, step = self.of_elements("rest_scale")
        start = self.target.edges.local(self.rest_name)
        return start if not step and scale[0] == 1.0 else scale * start

    def set_rest_parameters(self, values: Float) -> None:
        kept = self.target.edges.local(self.rest_name)
        scale = np.broadcast_to(self.of_elements("rest_scale")[0], kept.shape)
        usable = scale > 0.0
        kept[usable] = values[usable, 0] / scale[usable]

    def stiffness(self) -> tuple[Float, int]:
        k, step = self.of_elements("stiffness")
        return k[:, None], step
