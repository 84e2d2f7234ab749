"""Liquid Sink: where liquid goes.

A sink takes the particles away that are inside a mesh: a drain; or those that are outside of it:
beyond it nothing is of interest any more, and a liquid that runs away costs nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loki_core.behavior import Behavior, parameter
from loki_core.data.surface import Surface
from loki_core.objects.basics.capabilities import Liquid
from loki_core.operators.liquid_mesh import LiquidMesh, no_faces


class LiquidSink(Behavior, kind="operator"):
    """Take away the liquid inside, or outside of, a mesh."""

    source: str | None = parameter(None, kind="stream", doc="Closed mesh that swallows liquid.")
    side: str = parameter(
        "inside", choices=("inside", "outside"), doc="Which side of the mesh swallows."
    )

    def empty_stream(self, parameter_name: str) -> Surface:
        """No faces."""
        return no_faces()

    def create(self, scope: Any) -> list[Any]:
        """Make one Action for each liquid, of voxels or of particles, if there is a sink."""
        from loki_core.operators.particle_fluid_source import ParticleFluidSink

        if self.source is None:
            return []
        fluids = [item for item in scope.objects if ParticleFluidSink.acts_on(item)]
        return super().create(scope) + [ParticleFluidSink(self, item) for item in fluids]


class LiquidSinkAction(LiquidMesh[Liquid], behavior=LiquidSink):
    """Empties one liquid in the sink."""

    behavior: LiquidSink

    def __init__(self, behavior: LiquidSink, target: Liquid) -> None:
        super().__init__(behavior, target)
        target.liquid_sinks.append(self)

    def drain(self) -> None:
        """Take particles away that are in the sink."""
        target, particles, placed = self.target, self.target.particles, self.placed()
        if placed.is_empty:  # and has neither an inside nor an outside
            return
        rows = np.flatnonzero(self.near(placed, float(target.voxel_size)))
        position = particles.local("position")[rows].astype(np.float64)
        inside = np.zeros(particles.count, bool)
        inside[rows[placed.winding(position) > 0.5]] = True
        target.take_away(inside if self.behavior.side == "inside" else ~inside, "drained")
