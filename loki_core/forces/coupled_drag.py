"""Coupled Drag Force: points and a simulated fluid drag each other along.

    f = K (u - v) on a point, -f on the fluid,     u = W u_faces at the point

K is frozen in a Newton iteration (kernels/filament_drag). The points' solve takes f with its
derivative at the present flow u^k. The fluid then gets the reaction, splatted by W^T, the exact
transpose of the gather, and as derivative the Schur complement of the points,

    K' = K (I + K h / m)^-1,     D = W^T diag(K') 1   on faces,

since a point that is dragged gives way. Viscosity and pressure honour D, so when they are done the
fluid has received h (W^T pull - D (u^{k+1} - u^k)). What the points have not got of that yet,
h diag(K') W (u^{k+1} - u^k), they get after the last iteration: both sides have the same impulse
to round-off. The account of it measures either side by itself, the fluid's on the faces: so its
residual is a true one, as small as the precision in which faces are stored.

Of a liquid, points meet the faces beside its cells alone: W has the weights among those, and K is
that of the part of a point that is there. A liquid's own points are its particles that the air
meets (`objects/liquid/liquid_spray.py`).

With one coefficient for all this is backward Euler of both together, whose slip falls by the
factor 1 / (1 + K h (1/m_p + 1/m_f)) (Stomakhin et al. 2020).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, ChannelData
from loki_core.kernels.solids.filament_drag import drag_coefficients, drag_on_fluid, drag_points
from loki_core.objects.basics.boundary import POINTS, Boundary
from loki_core.objects.basics.capabilities import Faces, Immersed, Meeting
from loki_core.objects.basics.exchange import Exchange, in_runs
from loki_core.objects.basics.object import Scope
from loki_core.pipeline.action import Action
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, Weights, task

Array = NDArray[Any]
Float = NDArray[np.float64]

AIR, WATER = 1.81e-5, 1.0e-3  # viscosity [Pa s] at 20 degC
LAWS = ("linear", "quadratic", "reynolds")
DIRECTIONS = ("two_way", "fluid_to_solids", "solids_to_fluid", "off")


class CoupledDragForce(Behavior, kind="force"):
    """Let the fluids and the solids of the Group drag each other along."""

    direction: str = parameter(
        "two_way", choices=DIRECTIONS, doc="Who is dragged: both, one of the two, or none."
    )
    law: str = parameter(
        "reynolds", choices=LAWS, doc="How drag depends on the speed; reynolds suits the shape."
    )
    coefficient: float = parameter(
        1.0, unit="kg/s", minimum=0.0, varies="vertex", doc="K of the linear law, of each point."
    )
    normal_coefficient: float = parameter(
        1.2,
        minimum=0.0,
        varies="vertex",
        doc="Drag coefficient of the quadratic law across a filament, or of a sphere.",
    )
    tangential_coefficient: float = parameter(
        0.02,
        minimum=0.0,
        varies="vertex",
        doc="Friction coefficient of the quadratic law along a filament.",
    )
    viscosity: float | None = parameter(
        None,
        unit="Pa*s",
        minimum=1.0e-12,
        doc="Of the fluid, for the law; none takes that of air for a gas, of water for a liquid.",
    )

    def create(self, scope: Scope) -> list[Any]:
        """Make an Action for everything that has points, with every fluid of the Group."""
        if self.direction == "off":
            return []
        fluids = scope.offering(Faces)
        pairs = [
            (one.points_in(fluid), fluid) for one in scope.offering(Meeting) for fluid in fluids
        ]
        met = [(points, fluid) for points, fluid in pairs if points is not None]
        return [CoupledDragAction(self, points, fluid) for points, fluid in met]


class CoupledDragAction(Action[Immersed]):
    """Drag between the points of one Object and the faces of another.

    Attributes:
        target: The Object with points.
        fluid: The Object with faces.
        exchange: What was exchanged so far, on this rank.
    """

    behavior: CoupledDragForce
    settings: CoupledDragForce
    resolving = ("drag_solids",)
    exchange: Exchange

    def __init__(self, behavior: CoupledDragForce, target: Immersed, fluid: Faces) -> None:
        super().__init__(behavior, target)
        self.fluid = fluid
        one_way = behavior.direction != "two_way"
        self.exchange = Exchange(target.scope.domain.comm, is_one_way=one_way)
        target.need_jacobian()
        if self.drags_fluid:
            fluid.need_drag()
        self.boundary = Boundary.between(target, fluid)
        self.flow: Float = np.zeros((0, 3))

    @property
    def drags_solids(self) -> bool:
        return self.behavior.direction in ("two_way", "fluid_to_solids")

    @property
    def drags_fluid(self) -> bool:
        return self.behavior.direction in ("two_way", "solids_to_fluid")

    @property
    def place(self) -> str:
        """Which points in which fluid."""
        return f"{self.target.path} in {self.fluid.path}"

    def weights(self) -> Weights:
        """Most of the work is with points in the Buckets of the fluid."""
        return self.boundary.weights(cost=1.3)

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"particles": self.target.data["particles"], "volume": self.fluid.volume}

    @property
    def task_data(self) -> dict[str, Any]:
        """All of the target, the fluid's faces, and the points in its Buckets."""
        return super().task_data | {"points": self.boundary.points}

    def tasks(self) -> Any:
        """All of them, for the account; they touch what the direction lets them."""
        for one in super().tasks():
            yield self._completed(one)

    def _completed(self, one: Task) -> Task:
        """Leave out what the direction leaves alone, add what target and fluid are asked for."""
        declared, target, accumulates = one.declaration, self.target, one.declaration.accumulates
        reads = list(declared.reads)
        if one.name == "drag_solids":
            reads += [*target.reads_of("filaments", "drag_shares"), *self.fluid.met_reads()]
            accumulates = accumulates if self.drags_solids else ()
        if one.name == "drag_fluid":
            reads += target.reads_of("held_points") if self.drags_solids else ()
            accumulates = accumulates if self.drags_fluid else ()
            reads += ["volume.velocity", *POINTS] if self.drags_fluid else []
        if one.name == "feed_back":
            reads += target.reads_of("held_points", "account")
            if self.drags_fluid:
                reads += ["volume.velocity", "volume.open_fraction", "particles.mass", *POINTS]
            if self.drags_fluid and self.drags_solids:
                reads += target.reads_of("push_points")
                accumulates = target.pushed_channels()
        return replace(
            one,
            declaration=replace(
                declared, reads=tuple(dict.fromkeys(reads)), accumulates=accumulates
            ),
        )

    # -- the moments of a step -------------------------------------------------

    @task(
        Stage.EVALUATE_FORCES,
        reads=(
            "particles.velocity",
            "particles.radius",
            "volume.velocity",
            *POINTS,
        ),
        accumulates=("particles.force", "particles.jacobian"),
        communicates=True,
    )
    def drag_solids(self, access: Access, step: Step) -> None:
        """Find the flow at the points and what it does to them."""
        volume = self.fluid.volume
        volume.refresh("velocity", corners=True)
        self.faces = self.fluid.met_faces()
        self.boundary.immerse(None if self.faces is None else self.faces.wet)
        self.flow, self.stored = self.boundary.gather_flow(
            volume.with_ghosts("velocity"), self.fluid.ambient_velocity
        )
        velocity = self._local("velocity")
        filaments = self.target.filaments()
        self.is_filament = int(filaments is not None)
        count = len(velocity)
        self.tangent: Float
        self.tangent, length = filaments or (np.zeros((1, 3)), np.zeros(1))
        self.coefficient = np.empty((count, 2))
        law = LAWS.index(self.settings.law)
        names = ("coefficient", "coefficient")
        if law != 0:
            names = ("normal_coefficient", "tangential_coefficient")
        normal, n_step = self.resolve(names[0], np.float64)
        tangential, t_step = self.resolve(names[1], np.float64)
        drag_coefficients(
            velocity, self.flow, self._local("radius"), self.tangent, length, self.is_filament,
            law, normal, n_step, tangential, t_step, float(self.fluid.settings.density),
            self._viscosity(), self.coefficient,
        )  # fmt: skip
        for shares in (self.target.drag_shares(), self._immersed()):
            if shares is not None:
                self.coefficient *= shares[:, None]
        if self.drags_solids:
            force, jacobian = access["particles.force"], access["particles.jacobian"]
            drag_points(
                velocity, self.flow, self.tangent, self.is_filament, self.coefficient, step.dt,
                force, jacobian,
            )  # fmt: skip

    @task(
        Stage.TRANSFER_SOLIDS_TO_GRID,
        reads=("particles.velocity", "particles.mass"),
        accumulates=("volume.force", "volume.drag"),
        communicates=True,
    )
    def drag_fluid(self, access: Access, step: Step) -> None:
        """Bring the reaction, and how it falls when the fluid gives way, to the faces."""
        self.velocity = velocity = self._local("velocity").copy()
        count = len(velocity)
        held = self.target.held_points() if self.drags_solids else np.ones(count, np.uint8)
        self.impulse, pull, self.grip = (np.empty((count, 3)) for _ in range(3))
        drag_on_fluid(
            velocity, self.flow, self.tangent, self.is_filament, self.coefficient,
            self._local("mass"), held, step.dt, self.impulse, pull, self.grip,
        )  # fmt: skip
        self.lost = (self.stored - 1.0) * self.impulse if self.drags_fluid else -self.impulse
        if self.drags_fluid:
            self._splat(pull, access)

    def _splat(self, pull: Float, access: Access) -> None:
        """Add pull and grip to the faces; keep what this coupling did, for the account."""
        force, drag = access["volume.force"], access["volume.drag"]
        own_force, own_drag = np.zeros(force.shape, force.dtype), np.zeros(drag.shape, drag.dtype)
        self.boundary.splat_reaction((pull, own_force), (self.grip, own_drag))
        self._near = near = self.boundary.near_rows()
        self._on_faces = own_force[near], own_drag[near], access["volume.velocity"][near]
        scale: Any = 1.0  # the fluid takes what comes to a face for that of a whole one
        if self.faces is not None:
            scale = 1.0 / np.where(own_drag[near] > 0.0, self.faces.fill[near], 1.0)
        force[near] += scale * self._on_faces[0]
        drag[near] += scale * self._on_faces[1]

    @task(
        Stage.GRID_TO_PARTICLES,
        communicates=True,  # what is touched depends on the direction; impulses commute
    )
    def feed_back(self, access: Access, step: Step) -> None:
        """Give the points what the fluid received beyond what they have; account for it all."""
        if self.drags_fluid:
            self.fluid.volume.refresh("velocity", corners=True)
            flow, _ = self.boundary.gather_flow(
                self.fluid.volume.with_ghosts("velocity"), self.fluid.ambient_velocity
            )
            missing = step.dt * self.grip * (flow - self.flow)
            if self.drags_solids:
                self.target.push_points(missing, step.dt)
            self.impulse += missing
            given = np.where((self.target.held_points() == 0)[:, None], missing, 0.0)
            self.velocity = self.velocity + 0.5 * given / self._local("mass")[:, None]
        self._account(step)

    # -- details ---------------------------------------------------------------------------

    def _viscosity(self) -> float:
        given = self.settings.viscosity
        return float((WATER if self.fluid.is_liquid else AIR) if given is None else given)

    def _immersed(self) -> Float | None:
        """Part of each point that is in the fluid, shape [n]; None for all of it."""
        wet = self.boundary.wet
        return None if wet is None else np.min(wet, axis=1, initial=1.0)

    def _local(self, name: str) -> Float:
        values = self.target.data["particles"].local(name)
        return np.ascontiguousarray(values, dtype=np.float64)

    def _account(self, step: Step) -> None:
        """Note what the substep exchanged, either side by itself."""
        carrier = self.target.data["particles"]
        free = (self.target.held_points() == 0)[:, None] & self.drags_solids
        given = np.where(free, self.impulse, 0.0)
        to_points, to_walls = in_runs(given, carrier), in_runs(self.impulse - given, carrier)
        to_fluid, work = np.zeros((0, 3)), np.zeros(0)
        if self.drags_fluid:
            to_fluid, to_closed, work = self._measure_faces(step.dt)
            to_walls = np.concatenate((to_walls, to_closed))
        self.exchange.add(
            step.substep,
            to_points=to_points,
            to_fluid=to_fluid,
            to_walls=to_walls,
            unanswered=in_runs(self.lost, carrier),
            energy_to_points=in_runs(np.einsum("na,na->n", given, self.velocity), carrier),
            energy_to_fluid=work,
        )

    def _measure_faces(self, dt: float) -> tuple[Float, Float, Float]:
        """Impulse on the open and on the closed faces of each Bucket, and its work on the fluid."""
        force, drag, before = self._on_faces
        volume, near = self.fluid.volume, self._near
        after = volume.local("velocity")[near].astype(np.float64)
        impulse = dt * (force - drag.astype(np.float64) * (after - before))
        taken = np.where(volume.local("open_fraction")[near] > 0.0, impulse, 0.0)
        within = (2, 3, 4)  # the voxels of a Bucket
        to_fluid, to_closed = taken.sum(axis=within), (impulse - taken).sum(axis=within)
        return to_fluid, to_closed, (taken * after).sum(axis=within)

    def state(self) -> dict[str, Any]:
        return self.exchange.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.exchange.restore(state)
