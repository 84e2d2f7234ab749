"""Pressure Material: keeps a volume's gas incompressible, with walls and solids of any shape.

Among all velocities whose flux out of every cell is what its sources ask for, the pressure chooses
the one nearest to u* in kinetic energy. With the open fractions w of faces this is the variational
form of Batty, Bertails & Bridson (2007), a symmetric positive definite system:

    sum_f w_f m_f (q_c - q_n) = h d - sum_f s_f [w_f u*_f + (1 - w_f) u_solid],     q = p dt/(rho h)
    u = u* - m (q_above - q_below)

What couples: implicit drag makes faces less mobile, m = mass / (mass + dt D) (Stomakhin et al.
2020); solids in the pores of the gas take a share of every face, with their own velocity and
mobility; solids add their compliance to the diagonal (channel "compliance"), and sources their
divergence d. A closed box of gas has a constant that no equation sees: it is removed, together with
the net flux that no incompressible gas could take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access
from loki_core.kernels.mac_grid import (
    FLUID,
    count_pressure_entries,
    fill_pressure_matrix,
    find_wall_cells,
    guess_pressure,
    negative_divergence,
    subtract_pressure_gradient,
    total_pressure,
)
from loki_core.linear_solvers.choice import NAMES_FOR_FLUIDS
from loki_core.linear_solvers.fluid_solve import (
    FluidSolve,
    attainable,
    voxel_system,
)
from loki_core.linear_solvers.system import SolveReport
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

LCP_TOLERANCE = 0.1  # of that of a linear solve: here it is a largest error, there their norm
LCP_ITERATIONS = 10  # for each of a linear solve, that a solve with walls that let go may take
#: How much more of an excess of volume may stay than of a divergence: the next step corrects it.
SPREAD_TOLERANCE = 1.0e3


class PressureMaterial(Behavior, kind="constraint", exclusive=True):
    """Keep the gas of every Volume in the Group incompressible."""

    tolerance: float = parameter(
        1.0e-5, minimum=1.0e-14, maximum=0.5, doc="Divergence that is left, of that of u*."
    )
    max_iterations: int = parameter(
        200, minimum=1, maximum=1_000_000, doc="Most iterations of a solve."
    )
    walls: str = parameter(
        "auto",
        choices=("auto", "hold", "let_go"),
        doc="Whether walls and solids may pull: hold, or let go of the fluid; auto lets liquids "
        "without viscosity go.",
    )
    solver: str = parameter(
        "auto", choices=NAMES_FOR_FLUIDS, doc="Linear solver; auto suits the system."
    )


class PressureAction(Action, behavior=PressureMaterial):
    """Solves for the pressure and corrects the velocity.

    Attributes:
        report: What the last solve did.
    """

    cost = 0.55

    def __init__(self, behavior: Any, target: Any) -> None:
        super().__init__(behavior, target)
        target.projector = self
        self._solve = FluidSolve()
        self._matrix_version: Any = None
        self._assembled_for: Any = None  # that, and the frame
        self._frame: int | None = None
        self.report: SolveReport | None = None
        self._pushed = 0.0  # part of the step for which the pressure has acted already
        self._pushing: Array | None = None  # that pressure, where Newton iterations change it

    @classmethod
    def acts_on(cls, item: Any) -> bool:
        """Pressure acts on whatever has velocities on faces."""
        return "volume" in item.data and "open_fraction" in item.data["volume"].channels

    @task(
        Stage.SOLVE_PRESSURE,
        reads=("volume.kind", "volume.open_fraction", "volume.velocity"),
        writes=("volume.velocity", "volume.pressure"),
        halo=1,
    )
    def solve(self, access: Access, step: Step) -> None:
        """Make the velocity free of divergence."""
        volume, scale = self.target.volume, self._pressure_scale(step.dt)
        pressure, kind = volume.local("pressure").reshape(-1), volume.local("kind").reshape(-1)
        before = pressure if self._pushing is None else self._pushing.reshape(-1)
        # What the pressure has already done before the velocity was carried along is not missing.
        # Cells may have become ambient air since the last step.
        q = np.empty(len(pressure))
        guess_pressure(before, kind, (1.0 - self._pushed) / scale, q)
        self.project(step.dt, q)
        total_pressure(q, scale, before, self._pushed, kind, pressure)
        volume.mark_written("pressure")
        assert self.report is not None
        self.iterations = self.report.iterations
        self.warning = self._solve.warning

    def restore(self, state: dict[str, Any]) -> None:
        """Keep nothing of the state that was left."""
        self._matrix_version = self._assembled_for = None
        self._solve.forget()

    def begin_step(self, frame: int) -> None:
        """Forget how long the pressure pushed in the step before."""
        self._pushed, self._pushing = 0.0, None
        self._frame = frame

    def push(self, dt: float) -> None:
        """Let the present pressure act on the target's velocity for a time dt [s]. Collective.

        With half a step before the velocity is carried along, and the rest after it, a particle of
        gas feels the pressure at both ends of its way: the trapezoidal rule. The solve at the end
        of the step then finds what is missing.
        """
        volume, target = self.target.volume, self.target
        density = float(target.settings.density)
        if target.keeps_start and self._pushing is None:
            self._pushing = volume.local("pressure").copy()
        q = volume.local("pressure") * (dt / (density * float(target.voxel_size)))
        mobility = None
        if target.is_liquid:  # which was elsewhere when it had this pressure
            q[volume.local("kind") != FLUID] = 0.0
            mobility = self._mobility(dt)
        self._subtract_gradient(q.reshape(-1), mobility)
        self._pushed += 0.5

    def _pressure_scale(self, dt: float) -> float:
        """What makes a pressure [Pa] of q [m/s]."""
        return float(self.target.settings.density) * float(self.target.voxel_size) / dt

    def project(self, dt: float, guess: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Correct the target's velocity for a step dt [s]; returns q [m/s]. Collective."""
        volume = self.target.volume
        self.target.volume.refresh("velocity", "kind", "open_fraction")
        mobility = self._mobility(dt)
        self._assemble(dt, self._shared(mobility))
        rhs = self._divergence(dt)
        q = np.zeros_like(rhs) if guess is None else guess
        tolerance = float(self.settings.tolerance)
        self.report = self._solve.solve(
            rhs,
            q,
            tol=attainable(self._solve.system, rhs, volume.local("velocity"), tolerance),
            max_iterations=int(self.settings.max_iterations),
        )
        if self._lets_go():
            self._let_go(rhs, q)
        self._subtract_gradient(q, mobility)
        self.target.let_ambient_faces_flow()
        return q

    def _lets_go(self) -> bool:
        """Whether walls and solids only push: a liquid falls off them."""
        wanted = str(self.settings.walls)
        return wanted == "let_go" or (wanted == "auto" and bool(self.target.falls_off_walls))

    def _let_go(self, rhs: NDArray[np.float64], q: NDArray[np.float64]) -> None:
        """Take back what walls pull: a cell beside one has a pressure, or grows. Collective."""
        volume = self.target.volume
        bounded = np.empty(len(q), bool)
        find_wall_cells(
            volume.with_ghosts("kind"), volume.with_ghosts("open_fraction"),
            volume.buckets.neighbours, bounded,
        )  # fmt: skip
        tolerance = float(self.settings.tolerance)
        if self._solve.let_go(
            rhs, q, bounded, tol=LCP_TOLERANCE * tolerance,
            max_iterations=LCP_ITERATIONS * int(self.settings.max_iterations),
        ):  # fmt: skip
            # A pressure that is no more than the solver's error is none: there walls let go.
            speed = volume.domain.comm.maximum(
                float(np.abs(volume.local("velocity")).max(initial=0.0))
            )
            q[bounded & (q < tolerance * speed)] = 0.0
        self.report = self._solve.report

    def spread(self, excess: NDArray[np.float64], name: str, dt: float) -> None:
        """Fill a face channel with the displacement [m] that takes an excess of volume away.

        It is the potential one whose flux out of every cell is its excess [part of the cell], found
        with the matrix of the last projection. Collective.
        """
        target, volume = self.target, self.target.volume
        rhs = float(target.voxel_size) * excess
        q = np.zeros_like(rhs)
        report = self._solve.solve(
            rhs,
            q,
            tol=min(0.1, SPREAD_TOLERANCE * float(self.settings.tolerance)),
            max_iterations=int(self.settings.max_iterations),
        )
        self.iterations += report.iterations
        mobility = self._mobility(dt)
        self._subtract_gradient(q, mobility, name)
        volume.mark_written(name)

    def gradient_push(self, dt: float) -> Array:
        """Velocity that the present pressure gives free gas in a time dt [m/s], faces with ghosts.

        Collective.
        """
        target, volume = self.target, self.target.volume
        scale = self._pressure_scale(dt)
        with (
            volume.scratch("q", resolution=target.resolution) as scratch,
            volume.scratch(
                "push", components=3, resolution=target.resolution, location="face"
            ) as push,
        ):
            volume.local(scratch.name)[:] = volume.local("pressure") / scale
            volume.refresh(scratch.name, "open_fraction")
            push.values[:] = 0.0
            flat = volume.local(push.name).reshape(-1)
            subtract_pressure_gradient(
                scratch.values.reshape(-1), volume.local("open_fraction").reshape(-1), flat, 0,
                volume.buckets.neighbours, target.resolution, flat,
            )  # fmt: skip
            volume.mark_written(push.name)
            volume.refresh(push.name, corners=True)
            values: Array = volume.with_ghosts(push.name).copy()
        return values

    def _subtract_gradient(self, q: Array, mobility: Array | None, name: str = "velocity") -> None:
        """Correct a face channel by the gradient of q, flat over local voxels. Collective."""
        target, volume = self.target, self.target.volume
        flat = volume.local(name).reshape(-1)
        with volume.scratch("q", resolution=target.resolution) as scratch:
            volume.local(scratch.name).reshape(-1)[:] = q
            self.target.volume.refresh(scratch.name)
            subtract_pressure_gradient(
                scratch.values.reshape(-1),
                volume.local("open_fraction").reshape(-1),
                flat if mobility is None else mobility.reshape(-1),
                int(mobility is not None),
                volume.buckets.neighbours,
                target.resolution,
                flat,
            )
        volume.mark_written(name)

    def _mobility(self, dt: float) -> Array | None:
        """Mobility of faces with ghosts, or None without drag."""
        volume = self.target.volume
        own = self.target.mobility(dt)
        if own is None:
            return None
        with volume.scratch(
            "mobility", components=3, resolution=own.shape[2], location="face"
        ) as mobility:
            volume.local(mobility.name)[:] = own
            self.target.volume.refresh(mobility.name)
        values: Array = mobility.values
        return values

    def _shared(self, mobility: Array | None) -> Array | None:
        """Mobility of gas and of the solids in its pores together, with ghosts."""
        volume = self.target.volume
        if "solid_share" not in volume.channels:
            return mobility
        volume.refresh("solid_share", "solid_give")
        share, give = volume.with_ghosts("solid_share"), volume.with_ghosts("solid_give")
        gas = 1.0 if mobility is None else mobility
        together: Array = (1.0 - share) * gas + give
        return together

    def _assemble(self, dt: float, mobility: Array | None) -> None:
        """Build the matrix where the geometry or the drag changed since the last one."""
        target, volume = self.target, self.target.volume
        compliance = volume.channels.get("compliance")
        changes = mobility is not None or compliance is not None
        version = (target.geometry_version, volume.layout_version)
        if version == self._matrix_version and not changes:
            return
        # A run may be resumed at a frame: what changes is made anew there in every run.
        similar = self._assembled_for == (version, self._frame)
        self._matrix_version, self._assembled_for = version, (version, self._frame)
        kind, fraction = volume.with_ghosts("kind"), volume.with_ghosts("open_fraction")
        neighbours = volume.buckets.neighbours
        none = fraction[:1]

        def fill(starts: Array, columns: Array, data: Array) -> None:
            fill_pressure_matrix(
                kind,
                fraction,
                none if mobility is None else mobility,
                int(mobility is not None),
                none if compliance is None else compliance.values,
                int(compliance is not None),
                neighbours,
                starts,
                columns,
                data,
            )

        counts = np.empty(volume.buckets.local_count * target.resolution**3, np.int32)
        count_pressure_entries(
            kind,
            fraction,
            none if compliance is None else compliance.values,
            int(compliance is not None),
            neighbours,
            counts,
        )
        system = voxel_system(
            volume,
            counts,
            fill,
            resolution=target.resolution,
            is_closed=self._is_closed(),
            # What compliance holds, of the gas or of a part of it, is found by the sums of rows.
            has_pockets=bool(target.colliders) or compliance is not None,
        )
        self._solve.prepare(system, str(self.settings.solver), similar=similar)

    def _is_closed(self) -> bool:
        """Whether no cell touches ambient air, on any rank."""
        kind = self.target.volume.local("kind")
        return not self.target.volume.domain.comm.any(bool(np.any(kind > FLUID)))

    def _divergence(self, dt: float) -> NDArray[np.float64]:
        """Right-hand side, flat over local voxels."""
        target, volume = self.target, self.target.volume
        buckets = volume.buckets
        surroundings = target.surroundings()
        flow = volume.with_ghosts("velocity")
        if "solid_share" in volume.channels:  # what fills the pores flows too
            volume.refresh("solid_share", "solid_flux")
            flow = (1.0 - volume.with_ghosts("solid_share")) * flow
            flow += volume.with_ghosts("solid_flux")
        velocity = flow.reshape(-1)
        solids = "solid_velocity" in volume.channels
        if solids:
            self.target.volume.refresh("solid_velocity")
        source = volume.channels.get("divergence")
        r = target.resolution
        rhs = np.empty(buckets.local_count * r**3)
        normal = np.array([surroundings.velocity[side, side // 2] for side in range(6)])
        negative_divergence(
            velocity,
            volume.with_ghosts("solid_velocity").reshape(-1) if solids else velocity,
            int(solids),
            volume.with_ghosts("open_fraction").reshape(-1),
            normal,
            buckets.neighbours,
            volume.with_ghosts("kind").reshape(-1),
            velocity if source is None else source.values.reshape(-1),
            int(source is not None),
            target.voxel_size,
            r,
            rhs,
        )
        return rhs
