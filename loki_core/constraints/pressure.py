"""Pressure Material: keeps gases and liquids incompressible, with walls and solids of any shape.

Among all velocities whose flux out of every cell is what its sources ask for, the pressure chooses
the one nearest to u* in kinetic energy. With the open fractions w of faces this is the variational
form of Batty, Bertails & Bridson (2007), a symmetric positive definite system:

    sum_f w_f m_f (q_c - q_n) = h d - sum_f s_f [w_f u*_f + (1 - w_f) u_solid],     q = p dt/(rho h)
    u = u* - m (q_above - q_below)

What couples: implicit drag makes faces less mobile, m = mass / (mass + dt D) (Stomakhin et al.
2020); solids in the pores of the gas take a share of every face, with their own velocity and
mobility; solids add their compliance to the diagonal (channel "compliance"), and sources their
divergence d. Pockets of air and bodies that the fluid moves have a few unknowns of their own
(`pressure_border.py`). A closed box of gas has a constant that no equation sees: it is removed,
together with the net flux that no incompressible gas could take.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.constraints.pressure_border import PressureBorder
from loki_core.constraints.pressure_system import (
    flux_into,
    mobility_with_pores,
    pressure_system,
    wall_cells,
)
from loki_core.data.accessors import Access, Declaration
from loki_core.kernels.gas.mac_grid import (
    FLUID,
    guess_pressure,
    subtract_pressure_gradient,
    total_pressure,
)
from loki_core.linear_solvers.choice import NAMES_FOR_FLUIDS
from loki_core.linear_solvers.fluid_solve import FluidSolve
from loki_core.linear_solvers.system import SolveReport
from loki_core.objects.basics.capabilities import Faces, Liquid
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]

LCP_TOLERANCE = 0.1  # of that of a linear solve: here it is a largest error, there their norm
LEAST_LCP_TOLERANCE = 1.0e-13  # that can be reached
LCP_ITERATIONS = 10  # for each of a linear solve, that a solve with walls that let go may take
#: How much more of an excess of volume may stay than of a divergence: the next step corrects it.
SPREAD_TOLERANCE = 1.0e3

#: Solves that go before the last where solids cut faces and no pressure of a step before is known.
CUT_FACE_PASSES = 2
CUT_FACE_TOLERANCE = 100.0  # of those, over that of the solve which follows


class PressureMaterial(Behavior, kind="constraint", exclusive=True):
    """Keep every gas and liquid in the Group incompressible."""

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
    air: str = parameter(
        "free",
        choices=("free", "trapped"),
        doc="What air does that liquid encloses: nothing, or it keeps its volume.",
    )
    solver: str = parameter(
        "auto", choices=NAMES_FOR_FLUIDS, doc="Linear solver; auto suits the system."
    )


class PressureAction(Action[Faces], behavior=PressureMaterial):
    """Solves for the pressure and corrects the velocity.

    Attributes:
        report: What the last solve did.
    """

    settings: PressureMaterial
    cost = 0.55

    def __init__(self, behavior: PressureMaterial, target: Faces) -> None:
        super().__init__(behavior, target)
        target.projector = self
        self._solve = FluidSolve()
        self._matrix_version: Any = None
        self._assembled_for: Any = None  # that, and the frame
        self._frame: int | None = None
        self.report: SolveReport | None = None
        self._pushed = 0.0  # part of the step for which the pressure has acted already
        self._moved_with: Array | None = None  # mobility of the last projection
        self._pushing: Array | None = None  # that pressure, where Newton iterations change it
        self._border: PressureBorder | None = None  # of the last projection
        self._acted: Array | None = None  # q that has acted already, which bounds are told from
        self._loose: NDArray[np.bool_] | None = None  # cells that walls let go of, in the last one

    @task(
        Stage.SOLVE_PRESSURE,
        reads=("volume.kind", "volume.open_fraction", "volume.velocity"),
        writes=("volume.velocity", "volume.pressure"),
        halo=1,
    )
    def solve(self, access: Access, step: Step) -> None:
        """Make the velocity free of divergence."""
        self.target.forces_have_acted()
        volume, scale = self.target.volume, self._pressure_scale(step.dt)
        pressure, kind = volume.local("pressure").reshape(-1), volume.local("kind").reshape(-1)
        before = pressure if self._pushing is None else self._pushing.reshape(-1)
        # What the pressure has already done before the velocity was carried along is not missing.
        # Cells may have become ambient air since the last step.
        q = np.empty(len(pressure))
        guess_pressure(before, kind, (1.0 - self._pushed) / scale, q)
        self._acted = None  # also where a solve before failed
        if self._pushed:
            self._acted = np.empty(len(pressure))
            guess_pressure(before, kind, self._pushed / scale, self._acted)
        self.project(step.dt, q)
        self._acted = None
        total_pressure(q, scale, before, self._pushed, kind, pressure)
        if self._border is not None:
            self._border.write_pockets(pressure, scale)
        volume.mark_written("pressure")
        if "loose" in volume.channels:
            volume.local("loose").reshape(-1)[:] = 0 if self._loose is None else self._loose
            volume.mark_written("loose")
        assert self.report is not None
        self.iterations = self.report.iterations

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Bodies that the pressure moves have their velocity on faces; walls let go of liquids."""
        stage, declaration = super().declare(name, stage, declaration)
        if name == "solve":
            writes = (*declaration.writes, *self.target.moved_by_pressure())
            if "loose" in self.target.volume.channels:
                writes = (*writes, "volume.loose")
            reads = (*self.target.projection_reads(), *self.target.acted_reads())
            declaration = replace(declaration, writes=writes, local_reads=reads)
        return stage, declaration

    def restore(self, state: dict[str, Any]) -> None:
        """Keep nothing of the state that was left."""
        self._matrix_version = self._assembled_for = None
        self._solve.forget()

    def release(self) -> None:
        """Free the matrix and its levels, which the next step would make anew in any case."""
        self._matrix_version = self._assembled_for = self._moved_with = self._border = None
        self._solve.release()

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
        if isinstance(target, Liquid):  # which was elsewhere when it had this pressure
            q[volume.local("kind") != FLUID] = 0.0
            # Of the drag only that of the step before is known, which a resumed run would not.
            mobility = self._with_ghosts(target.free_mobility())
        if self._has_cut_faces:
            self._correct_cut_faces(q.reshape(-1), mobility)
        self._subtract_gradient(q.reshape(-1), mobility)
        self._pushed += 0.5

    def project_first(self, dt: float) -> None:
        """Find the pressure before other stress acts; `solve` then finds what changes. Collective.

        It stands in the place of `push`, where the last step's pressure says too little.
        """
        volume, scale = self.target.volume, self._pressure_scale(dt)
        pressure, kind = volume.local("pressure").reshape(-1), volume.local("kind").reshape(-1)
        q = np.empty(len(pressure))
        guess_pressure(pressure, kind, 1.0 / scale, q)
        self.project(dt, q)
        total_pressure(q, scale, pressure, 0.0, kind, pressure)
        volume.mark_written("pressure")
        self._pushed, self._pushing = 1.0, None

    def start(self, dt: float) -> None:
        """Do that in the very first step of a liquid, which has no pressure yet. Collective.

        Its weight alone then moves nothing along walls that hold it.
        """
        pressure = self.target.volume.local("pressure")
        if not self.target.keeps_start and not self.target.volume.domain.comm.any(
            bool(pressure.any())
        ):
            self.project_first(dt)

    def _pressure_scale(self, dt: float) -> float:
        """What makes a pressure [Pa] of q [m/s]."""
        return float(self.target.settings.density) * float(self.target.voxel_size) / dt

    def project(self, dt: float, guess: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Correct the target's velocity for a step dt [s]; returns q [m/s]. Collective."""
        self.target.volume.refresh("velocity", "kind", "open_fraction")
        mobility = self._mobility(dt)
        self._moved_with = mobility
        self._assemble(mobility_with_pores(self.target, mobility))
        rhs = flux_into(self.target, None, None)
        q = np.zeros_like(rhs) if guess is None else guess
        self._loose = None
        if self._has_cut_faces:
            rhs = self._meet_cut_faces(rhs, q, mobility)
        self._solve_all(rhs, q, mobility)
        self._subtract_gradient(q, mobility)
        if self._border is not None:
            self._border.move_bodies()
        self.target.let_ambient_faces_flow()
        return q

    @property
    def _has_cut_faces(self) -> bool:
        """Whether solids cut faces, on any rank, and these are to be corrected.

        They are not where more than the cells couples to the pressure: what they are corrected by
        is not known before all is.
        """
        if not self.target.colliders or self._may_have_border:
            return False
        return bool(self.target.cut_faces.exist)

    def _meet_cut_faces(
        self, rhs: NDArray[np.float64], q: NDArray[np.float64], mobility: Array | None
    ) -> NDArray[np.float64]:
        """Correct cut faces for where their open parts are; returns the new right-hand side.

        The matrix, which is symmetric, takes the gradient of q in the middle of a face. What flows
        through the open part of a cut face follows the gradient in the middle of that part
        (Johansen & Colella 1998), so the difference of the two, of the q that is known so far, is
        taken off u*: a deferred correction, of which a solve leaves a third. Collective.
        """
        volume, cut = self.target.volume, self.target.cut_faces
        flat = volume.local("velocity").reshape(-1)
        before = flat[cut.face]
        passes = 0 if volume.domain.comm.any(bool(np.any(q))) else CUT_FACE_PASSES
        for n in range(passes + 1):
            if n > 0:
                tolerance = min(0.1, CUT_FACE_TOLERANCE * float(self.settings.tolerance))
                self._solve.solve(
                    rhs, q, tol=tolerance, max_iterations=int(self.settings.max_iterations)
                )
            flat[cut.face] = before
            pushes = q
            if self.lets_go:
                pushes = np.where(wall_cells(self.target), np.maximum(q, self._bound(0.0)), q)
            self._correct_cut_faces(pushes, mobility)
            volume.refresh("velocity")
            rhs = flux_into(self.target, None, None)
        return rhs

    def _correct_cut_faces(self, q: Array, mobility: Array | None) -> None:
        """Give cut faces what the gradient of q differs by in their open parts. Collective."""
        volume, cut = self.target.volume, self.target.cut_faces
        with volume.scratch(
            "push", components=3, resolution=self.target.resolution, location="face"
        ) as push:
            push.values[:] = 0.0
            self._subtract_gradient(q, mobility, push.name)
            volume.refresh(push.name)
            flat = volume.local("velocity").reshape(-1)
            flat[cut.face] += cut.change(push.values).astype(flat.dtype)
        volume.mark_written("velocity")

    @property
    def _traps_air(self) -> bool:
        return bool(self.target.is_liquid and self.settings.air == "trapped")

    @property
    def _may_have_border(self) -> bool:
        """Whether more than the cells may couple to the pressure."""
        return self._traps_air or bool(self.target.bodies)

    def _find_border(self, mobility: Array | None) -> PressureBorder | None:
        """What couples to the pressure through a few unknowns, or None. Collective."""
        if not self._may_have_border:
            return None
        border = PressureBorder(self.target, mobility, traps_air=self._traps_air)
        return None if border.is_empty else border

    @property
    def lets_go(self) -> bool:
        """Whether walls and solids only push, so that the fluid falls off them."""
        if self.settings.walls == "auto":  # what holds a liquid is its viscosity
            return bool(self.target.is_liquid and not self.target.viscous)
        return bool(self.settings.walls == "let_go")

    def _solve_all(self, rhs: Array, q: Array, mobility: Array | None) -> None:
        """Solve for the pressure and all that couples to it. Collective."""
        asked, most = float(self.settings.tolerance), int(self.settings.max_iterations)
        border = self._border = self._find_border(mobility)
        if border is None and self.lets_go:
            self._let_go(rhs, q)
        else:
            self._solve.solve(rhs, q, tol=self._attainable(rhs), max_iterations=most)
        self.report, self.warning = self._solve.report, self._solve.warning
        if border is None:
            return
        border.complete(self._solve, rhs, q, tol=asked, max_iterations=most)
        if self.lets_go:
            border.complete_bounded(rhs, q, self._let_go, tol=asked)
        border.fill_pockets(q)
        self.warning = "; ".join(filter(None, (self.warning, border.warning)))

    def _attainable(self, rhs: Array) -> float:
        """Tolerance that the right-hand side allows. Collective."""
        velocity = self.target.volume.local("velocity")
        return self._solve.attainable(rhs, velocity, float(self.settings.tolerance))

    def _bound(self, least: float) -> float | Array:
        """What q is not to be below: with what has acted already it is to be `least`."""
        return least if self._acted is None else least - self._acted

    def _let_go(self, rhs: NDArray[np.float64], q: NDArray[np.float64], least: float = 0.0) -> None:
        """Solve so that walls only push: a cell beside one has a pressure, or grows. Collective.

        Args:
            least: q of the air that comes in where a wall lets go.
        """
        volume, bounded, bound = self.target.volume, wall_cells(self.target), self._bound(least)
        asked = float(self.settings.tolerance)
        if self._solve.solve_bounded(
            rhs, q, bounded, least=bound, tol=self._attainable(rhs),
            bound_tol=max(LCP_TOLERANCE * asked, LEAST_LCP_TOLERANCE),
            max_iterations=LCP_ITERATIONS * int(self.settings.max_iterations),
        ):  # fmt: skip
            # A pressure that is no more than the solver's error is none: there walls let go.
            speed = volume.domain.comm.maximum(
                float(np.abs(volume.local("velocity")).max(initial=0.0))
            )
            np.copyto(q, bound, where=bounded & (q - bound < asked * speed))
        self._loose = bounded & (q <= bound)

    def spread(self, excess: NDArray[np.float64], name: str) -> SolveReport:
        """Fill a face channel with the displacement [m] that takes an excess of volume away.

        It is the potential one whose flux out of every cell is its excess [part of the cell], found
        with the matrix and the mobility of the last projection. Collective.
        """
        rhs = float(self.target.voxel_size) * excess
        q = np.zeros_like(rhs)
        report = self._solve.solve(
            rhs,
            q,
            tol=min(0.1, SPREAD_TOLERANCE * float(self.settings.tolerance)),
            max_iterations=int(self.settings.max_iterations),
        )
        if self._border is not None:
            self._border.complete_displacement(rhs, q)
        self._subtract_gradient(q, self._moved_with, name)
        return report

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
        own = self.target.mobility(dt)
        return None if own is None else self._with_ghosts(own)

    def _with_ghosts(self, own: Array) -> Array:
        """The mobility of local faces, with ghosts. Collective."""
        volume = self.target.volume
        with volume.scratch(
            "mobility", components=3, resolution=own.shape[2], location="face"
        ) as mobility:
            volume.local(mobility.name)[:] = own
            volume.refresh(mobility.name)
        values: Array = mobility.values
        return values

    def _assemble(self, mobility: Array | None) -> None:
        """Build the matrix where the geometry or the drag changed since the last one."""
        target, volume = self.target, self.target.volume
        changes = mobility is not None or "compliance" in volume.channels
        version = (target.geometry_version, volume.layout_version)
        if version == self._matrix_version and not changes:
            return
        # A run may be resumed at a frame: what changes is made anew there in every run.
        similar = self._assembled_for == (version, self._frame)
        self._matrix_version, self._assembled_for = version, (version, self._frame)
        self._solve.prepare(
            pressure_system(target, mobility), str(self.settings.solver), similar=similar
        )
