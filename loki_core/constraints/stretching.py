"""Stretching Constraint: strands resist a change of length as their material does.

C = |x_1 - x_0| - l,     k = E A / l        (Hooke's law; A from the cross-section)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.constraints.constraint import ConstraintBehavior
from loki_core.constraints.edge_length import EdgeLength
from loki_core.objects.basics.capabilities import Sections

Float = NDArray[np.float64]


class StretchingConstraint(ConstraintBehavior):
    """Keep strands from stretching, by Young's modulus and cross-section."""

    young_modulus: float | None = parameter(
        None,
        unit="Pa",
        minimum=0.0,
        doc="Stress over strain, of this alone; none is that of the Object's material.",
    )
    stiffness: float | None = parameter(
        None,
        unit="N",
        minimum=0.0,
        doc="E A, force over strain; none takes it from modulus and cross-section.",
    )


class StretchingAction(EdgeLength[Sections], behavior=StretchingConstraint):
    """Adds the energy E A (|e| - l)^2 / (2 l)."""

    cost = 0.09
    reads = ("particles.position", "edges.rest_length")
    stiffness_reads = ("particles.radius", "edges.rest_length")

    def stiffness_touches(self) -> tuple[str, ...]:
        """The cross-section and the material may be painted."""
        painted = (one for name in ("aspect", "young_modulus") for one in self.target.painted(name))
        return (*self.stiffness_reads, *painted)

    def stiffness(self) -> tuple[Float, int]:
        rods, label = self.target, self.path

        def by_section() -> Float:
            first, second = rods.half_axes()
            modulus = rods.per_vertex_or(
                self.behavior, "young_modulus", lambda: rods.own("young_modulus"), label=label
            )
            force: Float = np.pi * first * second * modulus
            return force

        given = rods.per_vertex_or(self.behavior, "stiffness", by_section, label=label)
        k = rods.on_edges(given) / rods.edges.local("rest_length")
        return k[:, None], 1

    def rest_lengths(self) -> Float:
        """Those that masses and joints go by."""
        lengths: Float = self.target.edges.local("rest_length")
        return lengths

    def rest_parameters(self) -> Float:
        """Rest lengths."""
        return self.rest_lengths()[:, None].copy()

    def set_rest_parameters(self, values: Float) -> None:
        self.target.edges.local("rest_length")[:] = values[:, 0]
        self.target.parameter_version += 1
