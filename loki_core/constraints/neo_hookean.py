"""Neo-Hookean Constraint: sheets that stretch as rubber does, without change of volume.

    psi(F) = mu / 2 (tr C + 1 / det C - 3),     C = F^T F     [2 x 2, in the sheet]

The thickness follows from the sheet, t / sqrt(det C), so 1 / det C is what it takes to stretch the
material across. For a stretch l in one direction and for one of l in both the stress (force over
area at rest) is (Treloar 1975)

    mu (l - 1 / l^2)     and     mu (l - 1 / l^5)

With f_1, f_2 the columns of F, a = f_1.f_1, b = f_2.f_2, c = f_1.f_2, D = a b - c^2 = det C,

    dD/df_1 = 2 (b f_1 - c f_2),     d2D/df_1 df_1 = 2 (b I - f_2 f_2^T)
    d2D/df_1 df_2 = 4 f_1 f_2^T - 2 f_2 f_1^T - 2 c I
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.constraints.elements import Elements
from loki_core.constraints.point_energy import PointEnergy
from loki_core.kernels.jit import parallel_kernel, prange
from loki_core.objects.basics.capabilities import Triangles

Float = NDArray[np.float64]


class NeoHookeanConstraint(Behavior, kind="constraint", varies="vertex"):
    """Let surfaces stretch as rubber: soft at first, with a stress that large strains do not end.

    Has the thickness of its Object.
    """

    shear_modulus: float = parameter(
        4.0e5, unit="Pa", minimum=0.0, doc="Stress over small shear, mu; that of soft rubber."
    )


class NeoHookeanAction(PointEnergy[Triangles], behavior=NeoHookeanConstraint):
    """Adds the energy of a sheet of rubber."""

    cost = 0.5

    def find_elements(self) -> Elements:
        """Every triangle, with the gradients of its corners' shares."""
        return self.target.triangle_elements()

    def stiffness_touches(self) -> tuple[str, ...]:
        """Places at rest and thicknesses."""
        return self.target.triangle_reads()

    def find_parameters(self) -> None:
        """Find volumes and moduli."""
        super().find_parameters()
        self._modulus = np.broadcast_to(self.of_elements("shear_modulus")[0], self._size.shape)

    def sizes(self) -> Float:
        """Volumes at rest."""
        return self.target.triangle_volumes()

    def energy(self, at: Float, psi: Float) -> None:
        """Write mu / 2 (tr C + 1 / det C - 3)."""
        first, second = at[:, :, 0], at[:, :, 1]
        a, b, c = (
            np.einsum("ni,ni->n", one, two)
            for one, two in ((first, first), (second, second), (first, second))
        )
        with np.errstate(divide="ignore"):  # a sheet without area: no finite energy
            psi[:] = 0.5 * self._modulus * (a + b + 1.0 / np.maximum(a * b - c * c, 0.0) - 3.0)

    def derivatives(self, at: Float, stress: Float, tangent: Float) -> None:
        """Write dpsi/dF and d2psi/dF2."""
        stretch_rubber(at, np.ascontiguousarray(self._modulus), stress, tangent)


@parallel_kernel
def stretch_rubber(at, modulus, stress, tangent):
    """Write dpsi/dF [n, 3, 2] and d2psi/dF2 [n, 6, 6], F row by row."""
    for n in prange(at.shape[0]):
        f, mu = at[n], modulus[n]
        a = f[0, 0] ** 2 + f[1, 0] ** 2 + f[2, 0] ** 2
        b = f[0, 1] ** 2 + f[1, 1] ** 2 + f[2, 1] ** 2
        c = f[0, 0] * f[0, 1] + f[1, 0] * f[1, 1] + f[2, 0] * f[2, 1]
        inverse = 1.0 / (a * b - c * c)
        for i in range(3):  # of D, for now
            stress[n, i, 0] = 2.0 * (b * f[i, 0] - c * f[i, 1])
            stress[n, i, 1] = 2.0 * (a * f[i, 1] - c * f[i, 0])
        for i in range(3):
            for j in range(3):
                one = 1.0 if i == j else 0.0
                second = (
                    (
                        2.0 * (b * one - f[i, 1] * f[j, 1]),
                        4.0 * f[i, 0] * f[j, 1] - 2.0 * f[i, 1] * f[j, 0] - 2.0 * c * one,
                    ),
                    (
                        4.0 * f[i, 1] * f[j, 0] - 2.0 * f[i, 0] * f[j, 1] - 2.0 * c * one,
                        2.0 * (a * one - f[i, 0] * f[j, 0]),
                    ),
                )
                for p in range(2):
                    for q in range(2):
                        steep = stress[n, i, p] * stress[n, j, q]
                        entry = inverse**2 * (2.0 * inverse * steep - second[p][q])
                        if i == j and p == q:
                            entry += 2.0
                        tangent[n, 2 * i + p, 2 * j + q] = 0.5 * mu * entry
        for i in range(3):
            for p in range(2):
                stress[n, i, p] = 0.5 * mu * (2.0 * f[i, p] - inverse**2 * stress[n, i, p])
