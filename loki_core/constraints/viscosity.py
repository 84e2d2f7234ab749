"""Viscosity Material: the full viscous stress of a fluid, implicit in time.

    rho (u - u*) / dt = div [ mu (grad u + grad u^T) ]

in the variational form of Batty & Bridson (2008); kernels/liquid/viscous_stress.py has the
equations. The system is symmetric positive definite at any viscosity and any step. Walls and solids
hold the fluid (no-slip) while this Behavior acts on it, unless they say that they slip.

The viscosity of a liquid may be a channel of its particles, "viscosity", that an input brings or a
Particle Expression writes; cells and edges have the mean of the particles around. Its surface,
which no stress crosses, lies where the filled part of the cells says
(objects/liquid/liquid_parts.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.kernels.gas.extension import HOLDS
from loki_core.kernels.liquid.viscous_stress import (
    count_viscous_entries,
    fill_viscous_matrix,
    fill_viscous_rhs,
)
from loki_core.linear_solvers.choice import NAMES_FOR_FLUIDS
from loki_core.linear_solvers.fluid_solve import FluidSolve, voxel_system
from loki_core.linear_solvers.system import SolveReport
from loki_core.objects.basics.capabilities import Faces, Liquid
from loki_core.objects.liquid.liquid_parts import cell_parts, face_masses
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

#: Up to this K = dt mu / (rho h^2) the diagonal is a good preconditioner.
EASY = 4.0
#: The same where every step has a new matrix, so that coarse levels have to earn their making.
EASY_IN_LIQUIDS = 1.0e3
CHANNEL = "viscosity"


class ViscosityMaterial(Behavior, kind="constraint", exclusive=True):
    """Give every gas and liquid in the Group a viscosity."""

    viscosity: float = parameter(
        1.81e-5,
        unit="Pa*s",
        minimum=0.0,
        varies="vertex",
        channel=CHANNEL,
        doc="Dynamic viscosity; the default is air at 20 degC, honey has 10. Particles of a liquid "
        "may have their own.",
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


class ViscosityAction(Action[Faces], behavior=ViscosityMaterial):
    """Solves for the velocity under viscous stress.

    Attributes:
        report: What the last solve did.
    """

    settings: ViscosityMaterial
    cost = 2.8

    def __init__(self, behavior: ViscosityMaterial, target: Faces) -> None:
        super().__init__(behavior, target)
        target.viscous = True
        if isinstance(target, Liquid):
            target.need_viscosity()
        self._solve = FluidSolve()
        self._matrix_version: Any = None
        self.report: SolveReport | None = None

    def update(self, settings: Behavior, time: float) -> None:
        """Take the values of the current time; new particles have this viscosity."""
        super().update(settings, time)
        if isinstance(self.target, Liquid):
            for name in self._painted():
                new = 1.0 if name.endswith("_scale") else float(self.settings.viscosity)
                self.target.particles.channels[name].default = new

    @task(
        Stage.SOLVE_VISCOSITY,
        reads=("volume.kind", "volume.open_fraction", "volume.velocity"),
        writes=("volume.velocity",),
        halo=1,
        corners=True,
    )
    def solve(self, access: Access, step: Step) -> None:
        """Let viscous stress act on the velocity."""
        if not isinstance(self.target, Liquid):
            self._solve_stress(step)
            return
        if self.target.projector is not None:
            self.target.projector.start(step.dt)
        # Faces in air that particles reach have felt Forces, but not the pressure.
        self.target.grid.extend_velocity(layers=2)
        self.target.hold_known_faces()
        self.target.volume.refresh("velocity", corners=True)
        self._solve_stress(step)
        self.target.volume.local("viscous_velocity")[:] = self.target.volume.local("velocity")

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add drag, what solids do to the fluid, and what a liquid has."""
        stage, declaration = super().declare(name, stage, declaration)
        has = self.target.volume.channels
        local = ("volume.drag",) if "drag" in has else ()
        declaration = replace(declaration, local_reads=local)
        if self.target.colliders:
            names = ("solid_grip", "solid_distance", "solid_velocity")
            solids = tuple(f"volume.{name}" for name in names)
            declaration = replace(declaration, reads=(*declaration.reads, *solids))
        if not self.target.is_liquid:
            return stage, declaration
        reads = (f"volume.{name}" for name in ("face_weight", "filled", "loose", "room"))
        changed = ("former_velocity", "viscous_velocity", "pressure")
        writes = (f"volume.{name}" for name in changed)
        return stage, replace(
            declaration,
            reads=(*declaration.reads, *reads),
            local_reads=self._liquid_reads(),
            writes=(*declaration.writes, *writes, *self.target.moved_by_pressure()),
        )

    def _liquid_reads(self) -> tuple[str, ...]:
        """What a liquid's first projection reads, and faces of solids; places of painted ones."""
        reads = dict.fromkeys(self.target.projection_reads())
        if self._painted():
            reads["particles.position"] = None
        return tuple(one for one in reads if one != "volume.filled")  # which has ghosts, too

    def _solve_stress(self, step: Step) -> None:
        target, volume = self.target, self.target.volume
        viscosity, carried = self._viscosity()
        kappa = step.dt * viscosity / (float(target.settings.density) * target.voxel_size**2)
        if kappa == 0.0:
            return
        surroundings = target.surroundings()
        velocity, fraction = volume.with_ghosts("velocity"), volume.with_ghosts("open_fraction")
        mass, parts = fraction, fraction[:1]
        grip, gap = self._solids()
        if target.colliders:
            # A face whose middle is inside of what holds the fluid moves with that.
            inside = (grip == HOLDS) & (gap <= 0.0)
            velocity[inside] = volume.with_ghosts("solid_velocity")[inside]
            fraction = np.where(inside, 0.0, fraction).astype(fraction.dtype)
        if isinstance(target, Liquid):
            mass, parts = face_masses(target), cell_parts(target, carried)
        geometry = (
            velocity,
            fraction,
            volume.with_ghosts("kind"),
            volume.buckets.coords,
            volume.buckets.neighbours,
            surroundings.lower,
            surroundings.upper,
            np.array(surroundings.kinds),
            surroundings.velocity,
            grip,
            gap,
            mass,
            parts,
            int(target.is_liquid),
            kappa,
        )
        inertia = self._inertia(mass, step.dt)
        self._assemble(geometry, kappa, inertia)
        velocity = volume.local("velocity")
        x = velocity.astype(np.float64).reshape(-1)
        rhs = np.where(self._unknown, x, 0.0)
        rhs *= mass[: len(velocity)].reshape(-1)
        fill_viscous_rhs(*geometry, self._bordering, rhs)
        if inertia is not None:
            rhs += np.where(self._unknown, inertia * x, 0.0)
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

    def _solids(self) -> tuple[Array, Array]:
        """What solids do to the fluid on faces, and how far they are; no Buckets without any."""
        volume, shape = self.target.volume, (0, 3, *(self.target.resolution,) * 3)
        if not self.target.colliders:
            return np.empty(shape, np.uint8), np.empty(shape, volume.dtype)
        return volume.with_ghosts("solid_grip"), volume.with_ghosts("solid_distance")

    def _painted(self) -> tuple[str, ...]:
        """Channels of the particles that say their viscosity."""
        painted: tuple[str, ...] = self.target.overriding_channels(self.behavior)
        return painted

    def _viscosity(self) -> tuple[float, Array | None]:
        """Largest viscosity [Pa s], and each particle's part of it, or None. Collective."""
        target = self.target
        if not isinstance(target, Liquid):
            return float(self.settings.viscosity), None
        values, step = self.resolve("viscosity", target.particles.dtype)
        if step == 0:
            return float(values[0]), None
        comm = target.scope.domain.comm
        largest = comm.maximum(float(values.max(initial=0.0)))
        return largest, values / (largest or 1.0)

    def _inertia(self, mass: Array, dt: float) -> Array | None:
        """What drag of solids adds to the mass of faces, m dt D / m_full; None without any.

        u* has felt the drag already: the step is m (1 + dt D / m_full) (u - u*) = viscous change.
        """
        mobility = self.target.mobility_under_drag(dt)
        if mobility is None:
            return None
        held: Array = 1.0 / mobility.reshape(-1).astype(np.float64) - 1.0
        held *= mass[: len(mobility)].reshape(-1)
        return held

    def _assemble(self, geometry: tuple[Any, ...], kappa: float, inertia: Array | None) -> None:
        """Build the matrix where the geometry, the step or the drag changed since the last one."""
        target, volume = self.target, self.target.volume
        pattern = (target.geometry_version, volume.layout_version)
        is_new = inertia is not None or target.is_liquid
        if (pattern, kappa) == self._matrix_version and not is_new:
            return
        self._matrix_version = (pattern, kappa)

        size = volume.local("velocity").size
        counts, bordering = np.empty(size, np.int32), np.empty(size, np.uint8)
        count_viscous_entries(*geometry, counts, bordering)
        self._unknown = counts > 0
        self._bordering = np.flatnonzero(bordering)

        def fill(starts: Array, columns: Array, data: Array) -> None:
            fill_viscous_matrix(*geometry, starts, columns, data)
            if inertia is not None:  # the first entry of a row is the diagonal's
                data[starts[:-1][self._unknown]] += inertia[self._unknown]

        system = voxel_system(volume, counts, fill, resolution=target.resolution, components=3)
        solver = str(self.settings.solver)
        if solver == "auto" and kappa <= (EASY_IN_LIQUIDS if target.is_liquid else EASY):
            solver = "conjugate_gradient"
        self._solve.prepare(system, solver)
