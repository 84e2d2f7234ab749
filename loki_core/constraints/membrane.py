"""Membrane Constraint: sheets resist stretch and shear (Volino, Magnenat-Thalmann and Faure 2009).

    C = ((F_u.F_u - 1) / 2, (F_v.F_v - 1) / 2, F_u.F_v) - rest        Green's strain
    2 S = A t [E_u, c, 0; c, E_v, 0; 0, 0, G]

for each triangle of area A, with the columns of the deformation gradient along the two directions
of the material. One modulus E and Poisson's ratio nu give plane stress (Timoshenko 1951):

    E_u = E_v = E / (1 - nu^2),    c = nu E / (1 - nu^2),    G = E / (2 (1 + nu))

Two moduli, of weft and warp, take their geometric mean for c and, unless it is given, for G.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.constraints.constraint import Constraint, ConstraintBehavior
from loki_core.constraints.elements import Elements
from loki_core.kernels.solids.membranes import green_gradients, green_seconds, green_strains
from loki_core.kernels.solids.point_energies import deformation_gradients
from loki_core.objects.basics.capabilities import Triangles

Float = NDArray[np.float64]


class MembraneConstraint(ConstraintBehavior):
    """Keep surfaces from stretching and shearing, as their material does."""

    young_modulus: float = parameter(
        1.0e6, unit="Pa", minimum=0.0, doc="Stress over strain in the sheet, of its weft."
    )
    warp_modulus: float | None = parameter(
        None, unit="Pa", minimum=0.0, doc="The same of its warp; none is that of the weft."
    )
    shear_modulus: float | None = parameter(
        None,
        unit="Pa",
        minimum=0.0,
        doc="Shear stress over shear; none follows from the others.",
    )
    poisson_ratio: float = parameter(
        0.3, minimum=-0.99, maximum=0.99, doc="Contraction across over stretch."
    )


class MembraneAction(Constraint[Triangles], behavior=MembraneConstraint):
    """Adds the energy of Green's strain."""

    cost = 0.5
    components = 3
    place = "triangles"
    has_hessian = True
    reads = ("particles.position", "triangles.rest_strain")
    target: Triangles
    settings: MembraneConstraint

    def __init__(self, behavior: MembraneConstraint, target: Triangles) -> None:
        super().__init__(behavior, target)
        target.faces.add_channel("rest_strain", np.float64, (3,))

    def find_elements(self) -> Elements:
        """Every triangle."""
        elements = self.target.triangle_elements()
        self._deformation = np.empty((elements.count, 3, 2))
        return elements

    def stiffness_touches(self) -> tuple[str, ...]:
        """Places at rest and thicknesses."""
        return self.target.triangle_reads()

    def stiffness(self) -> tuple[Float, int]:
        """Matrices [n, 3, 3] in joules."""
        weft, nu = self._each("young_modulus"), self._each("poisson_ratio")
        warp = self._each("warp_modulus") if self.is_given("warp_modulus") else weft
        both = np.sqrt(weft * warp)
        given = self.is_given("shear_modulus")
        shear = self._each("shear_modulus") if given else 0.5 * both / (1.0 + nu)
        volume = self.target.triangle_volumes()
        k = np.zeros((self.elements.count, 3, 3))
        k[:, 0, 0], k[:, 1, 1] = weft / (1.0 - nu**2), warp / (1.0 - nu**2)
        k[:, 0, 1] = k[:, 1, 0] = nu * both / (1.0 - nu**2)
        k[:, 2, 2] = shear
        return volume[:, None, None] * k, 1

    def _each(self, name: str) -> Float:
        """A parameter spelled out for every triangle."""
        values, _ = self.of_elements(name)
        return np.broadcast_to(values, (self.elements.count,))

    def evaluate(self, value: Float, gradient: Float) -> None:
        """Write strains beyond those at rest, and their gradient."""
        self.evaluate_only(value)
        assert self.elements.gradients is not None
        green_gradients(self._deformation, self.elements.gradients, gradient)

    def evaluate_only(self, value: Float) -> None:
        """Write strains beyond those at rest."""
        position, elements = self.target.particles.local("position"), self.elements
        deformation_gradients(position, elements.points, elements.gradients, self._deformation)
        green_strains(self._deformation, value)
        value -= self.target.faces.local("rest_strain")

    def second(self, tension: Float, matrices: Float, *, definite: bool) -> None:
        """Stress holds a sheet across: that of tension is semi-definite."""
        green_seconds(tension, self.elements.gradients, int(definite), matrices)

    def rest_parameters(self) -> Float:
        """Strains without stress."""
        return self.target.faces.local("rest_strain").copy()

    def set_rest_parameters(self, values: Float) -> None:
        self.target.faces.local("rest_strain")[:] = values
        self.target.parameter_version += 1
