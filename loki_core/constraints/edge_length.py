"""Edge Length: the base of Constraints on how long the edges of any Object are.

    C = |x_1 - x_0| - l

The Hessian of a length, (I - t t^T) / |e|, is semi-definite; a taut edge uses it, so that tension
holds an edge across. What l and the stiffness are is for the Constraint to say.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from loki_core.constraints.constraint import Constraint
from loki_core.constraints.elements import Elements
from loki_core.errors import SetupError
from loki_core.kernels.solids.constraint_assembly import scatter_lengths
from loki_core.kernels.solids.edge_lengths import edge_lengths, edge_strains, length_hessians
from loki_core.objects.basics.capabilities import Edges
from loki_core.objects.solids.unknowns import POSITION

Float = NDArray[np.float64]
EdgeTarget = TypeVar("EdgeTarget", bound=Edges)

#: Rest lengths that a search for them finds stay above this part of the length that an edge has.
SHORTEST_REST = 0.05


class EdgeLength(Constraint[EdgeTarget]):
    """C and its derivatives; `rest_lengths` is the author's."""

    components = 1
    place = "edges"
    has_hessian = True
    length: Float  # of each element, at the last `evaluate`

    def find_elements(self) -> Elements:
        """Two ends of every edge."""
        solid = self.target
        ends = solid.edge_vertices
        dofs = solid.unknowns.joint(POSITION, ends).reshape(len(ends), 6).astype(np.int32)
        self.length = np.zeros(len(ends))
        return Elements(solid.edge_offsets, dofs, ends, solid.edges)

    def rest_lengths(self) -> Float:
        """Lengths without force [n]."""
        raise SetupError(f"{type(self).__name__} is on edges and must define rest_lengths()")

    def evaluate(self, value: Float, gradient: Float) -> None:
        """Write lengths beyond those at rest, and their gradient."""
        solid = self.target
        position = solid.particles.local("position")
        edge_strains(position, solid.edge_vertices, self.length, gradient)
        np.subtract(self.length, self.rest_lengths(), out=value[:, 0])

    def evaluate_only(self, value: Float) -> None:
        """Write lengths beyond those at rest."""
        solid = self.target
        edge_lengths(solid.particles.local("position"), solid.edge_vertices, value[:, 0])
        value[:, 0] -= self.rest_lengths()

    def scatter_into_envelopes(self) -> None:
        """Force, stiffness and tension of an edge in one go."""
        system, elements = self.target.system, self.elements
        scatter_lengths(
            elements.runs, elements.dofs, self.gradient, self.tension, self.slope,
            self.solved_tension(), self.length, system.fixed, system.row, system.rhs,
            system.values,
        )  # fmt: skip

    def second(self, tension: Float, matrices: Float, *, definite: bool) -> None:
        """That of a length, which is semi-definite under tension."""
        length_hessians(self.gradient, self.length, tension, int(definite), matrices)

    def least_rest(self) -> Float:
        """No edge may shrink to nothing."""
        least: Float = SHORTEST_REST * self.length[:, None]
        return least
