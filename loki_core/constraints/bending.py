"""Bending Constraint: strands resist bending and twist about their rest shape.

At each joint of length l (half of the two edges that may bend), with the strains of
`kernels/solids/rod_strains.py` and those at rest,

    C = (kappa1, kappa2, twist) - rest,     k = (E I1, E I2, G J) / l

for an elliptic section with half axes a (along the first material axis) and b:

    I1 = pi a^3 b / 4,   I2 = pi a b^3 / 4,   J = pi a^3 b^3 / (a^2 + b^2)

(Bergou et al. 2008, 2010; J after Saint-Venant, which for an ellipse is not the polar moment.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import parameter
from loki_core.constraints.constraint import Constraint, ConstraintBehavior
from loki_core.constraints.elements import Elements
from loki_core.kernels.solids.rod_curvature import scatter_curvatures
from loki_core.kernels.solids.rod_strains import bending_strains, bending_strains_only
from loki_core.objects.basics.capabilities import Joints
from loki_core.objects.solids.unknowns import POSITION, TWIST

Float = NDArray[np.float64]


class BendingConstraint(ConstraintBehavior):
    """Keep strands in their shape, by moduli and cross-section: bending and twist."""

    young_modulus: float | None = parameter(
        None,
        unit="Pa",
        minimum=0.0,
        doc="Stress over strain, of this alone; none is that of the Object's material.",
    )
    shear_modulus: float | None = parameter(
        None,
        unit="Pa",
        minimum=0.0,
        doc="Shear stress over shear strain, of this alone; none is that of the Object's material.",
    )
    stiffness: float | None = parameter(
        None,
        unit="N*m^2",
        minimum=0.0,
        doc="E I, moment over curvature; none takes it from modulus and cross-section.",
    )
    second_stiffness: float | None = parameter(
        None,
        unit="N*m^2",
        minimum=0.0,
        doc="E I along the second material axis; none is stiffness times the aspect squared.",
    )
    twist_stiffness: float | None = parameter(
        None,
        unit="N*m^2",
        minimum=0.0,
        doc="G J, moment over twist; none takes it from modulus and cross-section.",
    )
    natural_twist: float = parameter(
        0.0,
        unit="rad/m",
        doc="Twist without stress, beyond that of the rest shape.",
    )


class BendingAction(Constraint[Joints], behavior=BendingConstraint):
    """Adds the energy of bending and twist."""

    cost = 0.42
    components = 3
    place = "joints"
    curved = (3, 7)
    reads = (
        "edges.tangent",
        "edges.reference",
        "edges.angle",
        "joints.reference_twist",
        "joints.rest_strain",
        "joints.length",
    )
    gradient_reads = ("edges.length",)
    stiffness_reads = ("particles.radius", "joints.rest_stiffening", "joints.length")

    can_stiffen = True

    def find_elements(self) -> Elements:
        """Three vertices and two angles at every joint, in the order of a strand's unknowns."""
        rods = self.target
        before, after = rods.joint_edges[:, 0], rods.joint_edges[:, 1]
        unknowns, ends = rods.unknowns, rods.edge_vertices
        parts = [
            unknowns.joint(POSITION, ends[before, 0]), unknowns.joint(TWIST, before),
            unknowns.joint(POSITION, rods.joint_vertex), unknowns.joint(TWIST, after),
            unknowns.joint(POSITION, ends[after, 1]),
        ]  # fmt: skip
        dofs = np.concatenate(parts, axis=1).astype(np.int32)
        return Elements(rods.joint_offsets, dofs, rods.joint_vertex[:, None], rods.joints)

    def evaluate(self, value: Float, gradient: Float) -> None:
        """Write strains beyond those at rest, and their gradient."""
        rods, edges, joints = self.target, self.target.edges, self.target.joints
        bending_strains(
            edges.local("tangent"), edges.local("length"), edges.local("reference"),
            edges.local("angle"), joints.local("reference_twist"), rods.edge_offsets,
            rods.joint_offsets, rods.closed, value, gradient,
        )  # fmt: skip
        self._subtract_rest(value)

    def curvature(self, diagonal: Float) -> None:
        """Write how bending moments hold the angles of edges.

        An angle hardly has inertia, and where the curvature at rest lies in the plane of bending
        the gradient does not see it. kappa1 turns into kappa2 with the mean of a joint's angles, so
        their second derivatives are c [[1, 1], [1, 1]] / 2 with c = T1 d kappa2 / d theta
        - T2 d kappa1 / d theta; c on the diagonal bounds that.
        """
        for column, angle in enumerate(self.curved):
            np.multiply(self.tension[:, 0], self.gradient[:, 1, angle], out=diagonal[:, column])
            diagonal[:, column] -= self.tension[:, 1] * self.gradient[:, 0, angle]

    def scatter_second(self) -> None:
        """Add how moments change as the rod turns, beyond what `curvature` has."""
        rods, edges, joints = self.target, self.target.edges, self.target.joints
        scatter_curvatures(
            rods.joint_offsets, self.elements.dofs, edges.local("tangent"), edges.local("length"),
            edges.local("reference"), edges.local("angle"), joints.local("reference_twist"),
            rods.edge_offsets, rods.closed, self.tension, self.diagonal, rods.system.fixed,
            rods.system.row, rods.system.second,
        )  # fmt: skip

    def evaluate_only(self, value: Float) -> None:
        """Strains without their gradient."""
        rods, edges, joints = self.target, self.target.edges, self.target.joints
        bending_strains_only(
            edges.local("tangent"), edges.local("reference"), edges.local("angle"),
            joints.local("reference_twist"), rods.edge_offsets, rods.joint_offsets, rods.closed,
            value,
        )  # fmt: skip
        self._subtract_rest(value)

    def _subtract_rest(self, value: Float) -> None:
        joints = self.target.joints
        value -= joints.local("rest_strain")
        rate, step = self.of_elements("natural_twist")
        if step or rate[0] != 0.0:
            value[:, 2] -= rate * joints.local("length")

    def stiffness_touches(self) -> tuple[str, ...]:
        """The cross-section and the material may be painted."""
        names = ("aspect", "young_modulus", "shear_modulus")
        painted = (one for name in names for one in self.target.painted(name))
        return (*self.stiffness_reads, *painted)

    def stiffness(self) -> tuple[Float, int]:
        """Return moduli times moments of area over the length of joints."""
        rods, behavior = self.target, self.behavior
        first, second = rods.half_axes()

        def of(name: str, derived: Callable[[], Float]) -> Float:
            values: Float = rods.per_vertex_or(behavior, name, derived, label=self.path)
            return values

        def modulus(name: str) -> Float:
            return of(name, lambda: rods.own(name))

        bending = of(
            "stiffness", lambda: modulus("young_modulus") * (0.25 * np.pi) * first**3 * second
        )
        other = of("second_stiffness", lambda: bending * (second / first) ** 2)
        polar = np.pi * (first * second) ** 3 / (first**2 + second**2)
        twist = of("twist_stiffness", lambda: modulus("shear_modulus") * polar)
        at = rods.joint_vertex
        k = np.stack((bending[at], other[at], twist[at]), axis=1)
        k *= (rods.joints.local("rest_stiffening") / rods.joints.local("length"))[:, None]
        return k, 1

    def stiffen(self, factors: Float) -> None:
        """Multiply the stiffness of local strands by factors [strands], for good."""
        rods = self.target
        rods.joints.local("rest_stiffening")[:] *= np.repeat(factors, np.diff(rods.joint_offsets))
        rods.parameter_version += 1

    def rest_parameters(self) -> Float:
        """Rest strains."""
        strains: Float = self.target.joints.local("rest_strain").copy()
        return strains

    def set_rest_parameters(self, values: Float) -> None:
        self.target.joints.local("rest_strain")[:] = values
        self.target.parameter_version += 1
