"""Viscosity Material: the full viscous stress of a volume's gas, implicit in time.

    rho (u - u*) / dt = div [ mu (grad u + grad u^T) ]

in the variational form of Batty & Bridson (2008); kernels/viscous_stress.py has the equations. The
system is symmetric positive definite at any viscosity and any step. Walls and solids hold the gas
(no-slip) while this Behavior acts on it, unless they say that they slip.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access
from loki_core.kernels.mac_grid import AMBIENT
from loki_core.kernels.viscous_stress import (
    MISSING,
    count_viscous_entries,
    fill_viscous_matrix,
    fill_viscous_rhs,
)
from loki_core.linear_solvers.choice import NAMES_FOR_FLUIDS
from loki_core.linear_solvers.fluid_solve import FluidSolve, voxel_system
from loki_core.linear_solvers.system import SolveReport
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

#: Up to this K = dt mu / (rho h^2) the diagonal is a good preconditioner.
EASY = 4.0


class ViscosityMaterial(Behavior, kind="constraint", exclusive=True):
    """Give the gas of every Volume in the Group a viscosity."""

    viscosity: float = parameter(
        1.81e-5, unit="Pa*s", minimum=0.0, doc="Dynamic viscosity; the default is air at 20 degC."
    )
    tolerance: float = parameter(
        1.0e-6, minimum=1.0e-14, maximum=0.5, doc="Residual that is left, of the velocities."
    )
    max_iterations: int = parameter(
        500, minimum=1, maximum=1_000_000, doc="Most iterations of a solve."
    )
    solver: str = parameter(
        "auto", choices=NAMES_FOR_FLUIDS, doc="Linear solver; auto suits the system."
    )


class ViscosityAction(Action, behavior=ViscosityMaterial):
    """Solves for the velocity under viscous stress.

    Attributes:
        report: What the last solve did.
    """

    cost = 2.8

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        target.viscous = True
        self._solve = FluidSolve()
        self._matrix_version: Any = None
        self.report: SolveReport | None = None

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Viscosity acts on whatever has velocities on faces."""
        return "volume" in item.data and "open_fraction" in item.data["volume"].channels

    @task(
        Stage.SOLVE_VISCOSITY,
        reads=("volume.kind", "volume.open_fraction", "volume.velocity"),
        writes=("volume.velocity",),
        halo=1,
        corners=True,
    )
    def solve(self, access: Access, step: Step) -> None:
        """Let viscous stress act on the velocity."""
        target, volume = self.target, self.target.volume
        density = float(target.settings.density)
        kappa = step.dt * float(self.settings.viscosity) / (density * target.voxel_size**2)
        if kappa == 0.0:
            return
        surroundings = target.surroundings()
        geometry = (
            volume.with_ghosts("velocity"),
            volume.with_ghosts("open_fraction"),
            self._kinds(),
            volume.buckets.coords,
            volume.buckets.neighbours,
            surroundings.lower,
            surroundings.upper,
            np.array(surroundings.kinds),
            surroundings.velocity,
            int(all(collider.slip == "slip" for collider in target.colliders)),
            kappa,
        )
        drag = self._drag(step.dt)
        self._assemble(geometry, kappa, drag)
        velocity = volume.local("velocity")
        x = velocity.astype(np.float64).reshape(-1)
        rhs = np.where(self._unknown, x, 0.0)
        fill_viscous_rhs(*geometry, self._bordering, rhs)
        if drag is not None:
            rhs += np.where(self._unknown, drag * x, 0.0)
        self.report = self._solve.solve(
            rhs,
            x,
            tol=float(self.settings.tolerance),
            max_iterations=int(self.settings.max_iterations),
        )
        velocity[:] = np.where(self._unknown, x, velocity.reshape(-1)).reshape(velocity.shape)
        volume.mark_written("velocity")
        self.iterations = self.report.iterations
        self.warning = self._solve.warning

    def _kinds(self) -> Array:
        """Kinds of cells with ghosts; around a liquid there is nothing that could hold it."""
        kind: Array = self.target.volume.with_ghosts("kind")
        if not self.target.is_liquid:
            return kind
        kinds: Array = np.where(kind == AMBIENT, np.uint8(MISSING), kind)
        return kinds

    def _drag(self, dt: float) -> Array | None:
        """Drag of solids on faces, dt D / m, by which u* is held; None without any.

        u* has felt the drag already, so the step is (1 + dt D / m) (u - u*) = viscous change.
        """
        mobility = self.target.mobility_under_drag(dt)
        if mobility is None:
            return None
        held: Array = 1.0 / mobility.reshape(-1).astype(np.float64) - 1.0
        return held

    def _assemble(self, geometry: tuple[Any, ...], kappa: float, drag: Array | None) -> None:
        """Build the matrix where the geometry, the step or the drag changed since the last one."""
        target, volume = self.target, self.target.volume
        pattern = (target.geometry_version, volume.layout_version)
        if (pattern, kappa) == self._matrix_version and drag is None:
            return
        self._matrix_version = (pattern, kappa)

        size = volume.local("velocity").size
        counts, bordering = np.empty(size, np.int32), np.empty(size, np.uint8)
        count_viscous_entries(*geometry, counts, bordering)
        self._unknown = counts > 0
        self._bordering = np.flatnonzero(bordering)

        def fill(starts: Array, columns: Array, data: Array) -> None:
            fill_viscous_matrix(*geometry, starts, columns, data)
            if drag is not None:  # the first entry of a row is the diagonal's
                data[starts[:-1][self._unknown]] += drag[self._unknown]

        system = voxel_system(volume, counts, fill, resolution=target.resolution, components=3)
        solver = str(self.settings.solver)
        if solver == "auto" and kappa <= EASY:
            solver = "conjugate_gradient"
        self._solve.prepare(system, solver)
