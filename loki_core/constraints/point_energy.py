"""Point Energy: any function psi of the places of a few points, or of a deformation gradient.

    E = sum_n V_n psi(z_n),     z = (x_1 .. x_k)     or     z = F = sum_k x_k g_k^T

The author gives the elements, psi and its first and second derivatives by z. The base gathers z,
makes the second derivative semi-definite (Teran et al. 2005), chains back to unknowns, and brings
forces and matrices to the joint system. A Newton iteration that is near its solution gets the
second derivative whole.

With gradients g_k of the points' shares at rest an element is by deformation gradient: g_k are
those of a triangle's corners in the sheet, or of a tetrahedron's in space. Without, it is by place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.constraints.energy import EnergyAction, SolidTarget
from loki_core.errors import DivergenceError, SetupError
from loki_core.kernels.solids.constraint_assembly import scatter_matrices, scatter_rows
from loki_core.kernels.solids.point_energies import (
    chain_forces,
    chain_matrices,
    deformation_gradients,
    gather_places,
    make_definite,
)

Float = NDArray[np.float64]


class PointEnergy(EnergyAction[SolidTarget]):
    """Base of energies that are no sum of squares.

    Attributes:
        at: The places [n, k, 3], or deformation gradients [n, 3, c], of the last evaluation.
        stress: dpsi/dz there, as shaped.
        tangent: d2psi/dz2 [n, q, q], semi-definite; z row by row.
    """

    at: Float
    stress: Float
    tangent: Float

    # -- the author's part -----------------------------------------------------------------

    def energy(self, at: Float, psi: Float) -> None:
        """Write psi [n] at places or deformation gradients."""
        raise SetupError(f"{type(self).__name__} is a Point Energy and must define energy(...)")

    def derivatives(self, at: Float, stress: Float, tangent: Float) -> None:
        """Write dpsi/dz, shaped as z, and d2psi/dz2 [n, q, q], z row by row."""
        raise SetupError(f"{type(self).__name__} is a Point Energy and must define derivatives()")

    def sizes(self) -> Float:
        """What psi is a density over [n], m^3; 1 where it is an energy of places."""
        if self.elements.gradients is not None:
            raise SetupError(
                f"{type(self).__name__} is by deformation gradient and must define sizes(), the "
                "volumes that psi is a density over"
            )
        return np.ones(self.elements.count)

    # -- what the joint system asks --------------------------------------------------------

    def allocate(self) -> None:
        """Make room for z and derivatives by it, and by unknowns."""
        elements = self.elements
        n, k = elements.points.shape
        gradients = elements.gradients
        shape = (n, k, 3) if gradients is None else (n, 3, gradients.shape[2])
        q, d = shape[1] * shape[2], elements.dofs.shape[1]
        self.at, self.stress = np.zeros(shape), np.zeros(shape)
        self.tangent, self._missing = np.zeros((n, q, q)), np.zeros((0, q, q))
        self._forces = np.zeros((n, d))

    def find_parameters(self) -> None:
        """Find sizes; override for more."""
        self._size = self.sizes()

    def _find(self, at: Float) -> None:
        """Write z as the solid is now."""
        elements, position = self.elements, self.target.particles.local("position")
        if elements.gradients is None:
            gather_places(position, elements.points, at)
        else:
            deformation_gradients(position, elements.points, elements.gradients, at)

    def evaluate_all(self, dt: float) -> None:
        """Find forces, and the semi-definite part of the second derivative."""
        self._find(self.at)
        self.derivatives(self.at, self.stress, self.tangent)
        self._refuse_infinite()
        whole = self.tangent.copy() if self._adds_second else None
        make_definite(self.tangent)
        if whole is not None:
            self._missing = whole - self.tangent
        gradients, size = self.elements.gradients, self._size
        if gradients is None:
            self._forces[:] = -size[:, None] * self.stress.reshape(self._forces.shape)
        else:
            chain_forces(gradients, size, self.stress, self._forces)

    def _refuse_infinite(self) -> None:
        """A step that goes where derivatives have no number is tried again with half the dt."""
        sums = self.stress.sum(axis=(1, 2)) + self.tangent.sum(axis=(1, 2))
        if not np.all(np.isfinite(sums)):
            element = int(np.argmin(np.isfinite(sums)))
            raise DivergenceError(
                f"{self.path}: the derivatives of element {element} of {self.elements.count} are "
                f"not finite, at {self.at[element].tolist()}"
            )

    def _chained(self, second: Float) -> Float:
        """Second derivatives by the unknowns [n, d, d], of those by z."""
        gradients, size = self.elements.gradients, self._size
        if gradients is None:
            found: Float = size[:, None, None] * second
            return found
        matrices = np.empty((*self.elements.dofs.shape, self.elements.dofs.shape[1]))
        chain_matrices(gradients, size, second, matrices)
        return matrices

    def scatter(self) -> None:
        """Bring forces and matrices to the joint system."""
        system, elements, matrices = self.target.system, self.elements, self._chained(self.tangent)
        if self.coupled is not None:
            self.add_by_place(self.coupled, self._forces, matrices)
            return
        scatter_rows(elements.runs, elements.dofs, self._forces, system.fixed, system.rhs)
        scatter_matrices(
            elements.runs, elements.dofs, matrices, system.fixed, system.row, system.values
        )

    def scatter_second(self) -> None:
        """Add what the semi-definite part is short of."""
        system, elements = self.target.system, self.elements
        scatter_matrices(
            elements.runs, elements.dofs, self._chained(self._missing), system.fixed, system.row,
            system.second,
        )  # fmt: skip

    def energies(self, dt: float) -> Float:
        """What each element stores [J], at the present state."""
        psi = np.empty(self.elements.count)
        self._find(self.at)
        self.energy(self.at, psi)
        return self._size * psi

    def rounding(self, sizes: Float) -> Float:
        """Force times place of each element [J]."""
        found: Float = np.sum(np.abs(self._forces) * sizes[self.joint_dofs], axis=1)
        return found

    def add_forces(self, fixed: NDArray[np.uint8], out: Float) -> None:
        """Add the forces of the last evaluation."""
        scatter_rows(self.elements.runs, self.elements.dofs, self._forces, fixed, out)
