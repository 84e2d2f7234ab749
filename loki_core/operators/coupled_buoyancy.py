"""Coupled Buoyancy Operator: solids and a fluid share the pressure in the pores between them.

A point of volume V takes a share of the faces around it, phi = W^T V / h^3. Gas and solid together
keep their volume, and both feel the gradient of the one pressure (Stomakhin et al. 2020):

    div [(1 - phi) u + phi u_s] = 0,    u = u* - (dt / rho) grad p,    v = v* - dt (V / m) grad p

so the pressure matrix has on each face the mobility (1 - phi) m + W^T V (rho V / m) / h^3: the
solids' inertia as compliance. Without compliance the solids are walls that move as they do. The
pressure is that against the ambient air at rest; the weight of the displaced air, -rho V g, is the
hydrostatic part of buoyancy, which points feel in their own solve. A liquid's pressure has its
weight in it: there points feel the gradient of the last step in their solve, together with drag,
and what is new of it after the step. The gas keeps the mass of whole
faces: every face takes the whole of -dt grad p, with or without solids in it. So there is no part
of its momentum that is the reaction to these points, and the account of what was exchanged tells
what points and walls got, and that the fluid's side is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.objects.basics.boundary import POINTS, Boundary
from loki_core.objects.basics.capabilities import Displacing, Faces, Gas
from loki_core.objects.basics.exchange import Exchange, in_runs
from loki_core.objects.basics.object import Scope
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, Weights, task

Float = NDArray[np.float64]

DIRECTIONS = ("two_way", "fluid_to_solids", "solids_to_fluid", "off")
FULLEST = 0.9  # share of a face that solids may take: some gas is left to carry the pressure


class CoupledBuoyancyOperator(Behavior, kind="operator"):
    """Let the fluids and the solids of the Group share their pressure."""

    direction: str = parameter(
        "two_way", choices=DIRECTIONS, doc="Who feels the other: both, one of the two, or none."
    )
    compliance: bool = parameter(
        True, doc="Let solids give way in the pressure solve by their inertia."
    )

    def create(self, scope: Scope) -> list[Any]:
        """Make an Action for everything that has points, with every fluid of the Group."""
        if self.direction == "off":
            return []
        fluids, solids = scope.offering(Faces), scope.offering(Displacing)
        return [CoupledBuoyancyAction(self, solid, fluid) for solid in solids for fluid in fluids]


class CoupledBuoyancyAction(Operator[Displacing]):
    """Shared pressure of the points of one Object and the gas of another.

    Attributes:
        target: The Object with points.
        fluid: The Object with faces.
        exchange: What was exchanged so far.
    """

    behavior: CoupledBuoyancyOperator
    exchange: Exchange

    def __init__(self, behavior: CoupledBuoyancyOperator, target: Displacing, fluid: Faces) -> None:
        super().__init__(behavior, target)
        self.fluid = fluid
        self.exchange = Exchange(target.scope.domain.comm, measures_fluid=False)
        if self.pushes_fluid:
            fluid.need_pores()
        self.boundary = Boundary.between(target, fluid)
        self._lift: Float = np.zeros((0, 3))  # force that points feel in their own solve [N]

    @property
    def pushes_solids(self) -> bool:
        return self.behavior.direction in ("two_way", "fluid_to_solids")

    @property
    def pushes_fluid(self) -> bool:
        return self.behavior.direction in ("two_way", "solids_to_fluid")

    @property
    def place(self) -> str:
        """Which points in which fluid."""
        return f"{self.target.path} in {self.fluid.path}"

    def weights(self) -> Weights:
        """Most of the work is with points in the Buckets of the fluid."""
        return self.boundary.weights(cost=0.9)

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"particles": self.target.data["particles"], "volume": self.fluid.volume}

    @property
    def task_data(self) -> dict[str, Any]:
        """All of the target, the fluid's faces, and the points in its Buckets."""
        return super().task_data | {"points": self.boundary.points}

    def tasks(self) -> Iterator[Task]:
        """Those of the chosen direction."""
        for one in super().tasks():
            wanted = self.pushes_fluid if one.name == "fill_pores" else self.pushes_solids
            if wanted:
                yield replace(one, declaration=self._completed(one.name, one.declaration))

    def _completed(self, name: str, declared: Declaration) -> Declaration:
        """Add what target and fluid are asked for."""
        target, reads, accumulates = self.target, list(declared.reads), declared.accumulates
        pushes = self.fluid.projector is not None and (
            name == "push_solids" or self.fluid.is_liquid
        )
        if pushes and name != "fill_pores":
            reads += ["volume.pressure", "volume.open_fraction", *POINTS]
        if name != "push_solids" or pushes:
            reads += target.reads_of("point_volumes")
        if name != "lift":
            reads += target.reads_of("held_points")
        if name == "push_solids":
            reads += [
                *target.reads_of("account"),
                *(target.reads_of("push_points") if pushes else ()),
            ]
            reads += [] if pushes else ["particles.velocity"]
            accumulates = target.pushed_channels() if pushes else ()
        return replace(
            declared,
            reads=tuple(dict.fromkeys(reads)),
            accumulates=accumulates,
            communicates=pushes or name != "lift",
        )

    @task(
        Stage.EVALUATE_FORCES,
        accumulates=("particles.force",),
        communicates=True,
    )
    def lift(self, access: Access, step: Step) -> None:
        """Add the weight of the displaced ambient air, upwards, or the push of a liquid so far."""
        if not isinstance(self.fluid, Gas):
            self._lift = self._push(step.dt) / step.dt
        else:
            density = self.fluid.ambient_density
            total = np.zeros(3)
            for acceleration in self.fluid.uniform_forces:
                total += acceleration()
            self._lift = -(density * self.target.point_volumes())[:, None] * total
        access["particles.force"][:] += self._lift

    def _push(self, dt: float) -> Float:
        """Impulse of the present pressure on points in a time dt [N s]. Collective."""
        projector = self.fluid.projector
        if projector is None:
            return np.zeros((self.target.data["particles"].count, 3))
        change: Float
        if self.fluid.is_liquid:  # which rests on its walls: there is no push across these
            volume = self.fluid.volume
            volume.refresh("open_fraction", corners=True)
            is_open = (volume.with_ghosts("open_fraction") > 0.0).astype(volume.dtype)
            change = self.boundary.gather_open(projector.gradient_push(dt), is_open)
        else:
            change = self.boundary.gather(projector.gradient_push(dt))
        displaced = float(self.fluid.settings.density) * self.target.point_volumes()
        push: Float = displaced[:, None] * change
        return push

    @task(
        Stage.TRANSFER_SOLIDS_TO_GRID,
        reads=("particles.velocity", "particles.mass", *POINTS),
        accumulates=("volume.solid_share", "volume.solid_flux", "volume.solid_give"),
        communicates=True,
    )
    def fill_pores(self, access: Access, step: Step) -> None:
        """Bring the share of space, the flux and the mobility of solids to the faces."""
        space = self.target.point_volumes() / self.fluid.voxel_size**3
        held = self.target.held_points() == 0
        lightness = float(self.fluid.settings.density) * self.target.point_volumes()
        lightness = lightness / access["particles.mass"] * held
        give = space * lightness * (self.behavior.compliance and self.pushes_solids)
        three = np.ones(3)
        velocity = access["particles.velocity"]
        if self.fluid.is_liquid and self.pushes_solids:  # whose whole pressure is yet to be found
            felt = self._lift / access["particles.mass"][:, None]
            velocity = velocity - np.where(held[:, None], step.dt * felt, 0.0)
        share = access["volume.solid_share"]
        self.boundary.splat(
            (space[:, None] * three, share),
            (space[:, None] * velocity, access["volume.solid_flux"]),
            (give[:, None] * three, access["volume.solid_give"]),
        )
        # What is fuller than it may be is thinned as a whole.
        scale = np.minimum(1.0, FULLEST / np.maximum(share, 1e-12))
        if np.any(scale < 1.0):
            for name in ("volume.solid_share", "volume.solid_flux", "volume.solid_give"):
                access[name][:] *= scale

    @task(
        Stage.GRID_TO_PARTICLES,
        communicates=True,  # impulses commute
    )
    def push_solids(self, access: Access, step: Step) -> None:
        """Give points their part of the pressure gradient."""
        impulse = step.dt * self._lift
        before = np.array(self.target.data["particles"].local("velocity"), np.float64)
        if self.fluid.projector is not None:
            push = self._push(step.dt)
            if self.fluid.is_liquid:
                push -= impulse
            self.target.push_points(push, step.dt)
            impulse = impulse + push
        after = np.asarray(self.target.data["particles"].local("velocity"), np.float64)
        free = (self.target.held_points() == 0)[:, None]
        given, carrier = np.where(free, impulse, 0.0), self.target.data["particles"]
        work = np.einsum("na,na->n", given, 0.5 * (before + after))
        self.exchange.add(
            step.substep,
            to_points=in_runs(given, carrier),
            to_walls=in_runs(impulse - given, carrier),
            energy_to_points=in_runs(work, carrier),
        )

    def state(self) -> dict[str, Any]:
        return self.exchange.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.exchange.restore(state)
