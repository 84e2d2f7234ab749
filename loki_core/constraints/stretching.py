"""Stretching Constraint: strands resist a change of length as their material does.

    C = |x_1 - x_0| - l,     k = E A / l        (Hooke's law; A from the cross-section)

The Hessian of a length, (I - t t^T) / |e|, is semi-definite; a taut edge uses it, so that tension
stiffens a strand across.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.constraints.constraint import Constraint, ConstraintBehavior, Elements
from loki_core.kernels.solids.constraint_assembly import scatter_lengths
from loki_core.kernels.solids.rod_strains import length_hessians, stretching_strains
from loki_core.objects.basics.capabilities import Edges

Float = NDArray[np.float64]


class StretchingConstraint(ConstraintBehavior):
    """Keep strands from stretching, by Young's modulus and cross-section."""

    young_modulus: float = parameter(
        3.0e9,
        unit="Pa",
        minimum=0.0,
        varies="vertex",
        channel="young_modulus",
        doc="Stress over strain; the default is a hair's.",
    )
    stiffness: float | None = parameter(
        None,
        unit="N",
        minimum=0.0,
        varies="vertex",
        doc="E A, force over strain; none takes it from modulus and cross-section.",
    )


class EdgeConstraint(Constraint[Edges]):
    """Base of Constraints on the length of edges of strands."""

    components = 1
    place = "edges"
    reads = ("edges.rest_length", "edges.length")
    gradient_reads: tuple[str, ...] = ("particles.position",)
    scatter_reads = ("edges.length",)
    second_reads = ("edges.tangent",)
    has_hessian = True

    def find_elements(self) -> Elements:
        """Two ends of every edge."""
        rods = self.target
        ends = rods.particle_dof[rods.edge_vertices]  # [edges, 2]
        dofs = rods.first_dof + ends[:, :, None] + np.arange(3)
        count = len(ends)
        return Elements(
            rods.edge_offsets, dofs.reshape(count, 6).astype(np.int32), np.arange(count)
        )

    def evaluate(self, value: Float, gradient: Float) -> None:
        """Write lengths beyond those at rest, and their gradient."""
        rods = self.target
        stretching_strains(
            rods.particles.local("position"), rods.offsets, rods.edge_offsets, rods.closed, value,
            gradient,
        )  # fmt: skip
        value[:, 0] -= rods.edges.local("rest_length")

    def evaluate_only(self, value: Float) -> None:
        """Frames know the lengths already."""
        edges = self.target.edges
        np.subtract(edges.local("length"), edges.local("rest_length"), out=value[:, 0])

    def scatter(self) -> None:
        """Force, stiffness and tension of an edge in one go."""
        system, elements = self.target.system, self.elements
        scatter_lengths(
            elements.runs, elements.dofs, self.gradient, self.tension, self.slope,
            self.solved_tension(), self.target.edges.local("length"), system.fixed, system.row,
            system.rhs, system.values,
        )  # fmt: skip

    def hessian(self, matrices: Float) -> None:
        """Write that of a length."""
        edges = self.target.edges
        length_hessians(edges.local("tangent"), edges.local("length"), matrices)

    def rest_parameters(self) -> Float:
        """Rest lengths."""
        lengths: Float = self.target.edges.local("rest_length")[:, None].copy()
        return lengths

    def set_rest_parameters(self, values: Float) -> None:
        self.target.edges.local("rest_length")[:] = values[:, 0]
        self.target.parameter_version += 1


class StretchingAction(EdgeConstraint, behavior=StretchingConstraint):
    """Adds the energy E A (|e| - l)^2 / (2 l)."""

    cost = 0.09
    stiffness_reads = ("particles.radius", "edges.rest_length")

    def stiffness_touches(self) -> tuple[str, ...]:
        """The cross-section may be painted."""
        return (*self.stiffness_reads, *self.target.painted("aspect"))

    def stiffness(self) -> tuple[Float, int]:
        rods, label = self.target, self.path

        def by_section() -> Float:
            first, second = rods.half_axes()
            modulus = rods.per_vertex(self.behavior, "young_modulus", label=label)
            force: Float = np.pi * first * second * modulus
            return force

        given = rods.per_vertex_or(self.behavior, "stiffness", by_section, label=label)
        k = rods.on_edges(given) / rods.edges.local("rest_length")
        return k[:, None], 1
