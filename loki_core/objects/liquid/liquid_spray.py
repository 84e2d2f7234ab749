"""Liquid Spray: the particles of a liquid that meet the air, as points that a gas can drag.

A Hybrid Object offers them to couplings as other Objects offer theirs. They are found in every
substep from the filled part of the cells around (kernels/liquid_exposure): inside the liquid there
is no air to drag. A particle of volume V is one drop, or as many of `drop_radius` r as make V:

    K = e n K_drop(r),    n = V / (4/3 pi r^3),    e its exposure

Each has its own backward Euler step in the drag, stable for any K:

    m (v - v0) = h f(v),    as in the Particle Object

What drag changed of its velocity a particle gets after the liquid's own step, and brings to the
grid with the next: the impulse that the gas has lost is the particles' to round-off, and pressure
sees it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.data.particle_system import ParticleSystem
from loki_core.kernels.liquid.liquid_exposure import find_exposure
from loki_core.kernels.particles.lagrangian_step import solve_implicit
from loki_core.objects.basics.capabilities import Immersed
from loki_core.objects.basics.object import Object
from loki_core.objects.basics.point_channels import PointChannels
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

if TYPE_CHECKING:
    from loki_core.objects.liquid.hybrid import Hybrid

BALL = 4.0 / 3.0 * np.pi


class LiquidSpray(Object, Immersed):
    """The exposed particles of one liquid; its Tasks are the liquid's.

    Attributes:
        points: Their copies, from PARTICLES_TO_GRID on; at other times there are none.
    """

    def __init__(self, liquid: Hybrid) -> None:
        super().__init__(liquid.behavior, liquid.scope)
        self.liquid = liquid
        self.points = ParticleSystem(self.scope.domain, name=f"spray of {self.path}", dtype="f8")
        for name, shape in (
            ("velocity", (3,)),
            ("start_velocity", (3,)),
            ("change", (3,)),
            ("force", (3,)),
            ("jacobian", (3, 3)),
            ("mass", ()),
            ("radius", ()),
            ("exposure", ()),
        ):
            self.points.add_channel(name, np.float64, shape)
        self.points.add_channel("row", np.int64)  # among the liquid's particles

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"particles": self.points}

    @property
    def task_data(self) -> dict[str, Any]:
        """The drops, and the particles of the liquid that they are."""
        return self.data | {"liquid": self.liquid.particles}

    # -- the step --------------------------------------------------------------------------

    @task(
        Stage.DETECT_CONTACTS,
        reads=("particles.id", "particles.position", "particles.velocity", "volume.filled"),
        layout=("spray",),
    )
    def meet_air(self, access: Access, step: Step) -> None:
        """Find the particles that the air meets."""
        particles = self.liquid.particles
        exposure = self._exposure()
        rows = np.flatnonzero(exposure > 0.0)
        velocity = particles.local("velocity")[rows]
        radius = self._drop_radii(rows)
        self.points.append(
            {
                "position": particles.local("position")[rows],
                "velocity": velocity,
                "start_velocity": velocity,
                "mass": np.full(len(rows), float(self.liquid.settings.density) * self._volume),
                "radius": radius,
                "exposure": exposure[rows] * (self._volume / (BALL * radius**3)),
                "row": rows,
            },
            ids=particles.local("id")[rows],
        )
        self.points.rebucketize()

    @task(Stage.RESET_FORCES, writes=("spray.force", "spray.jacobian"))
    def reset_drag(self, access: Access, step: Step) -> None:
        """Clear what Forces add to."""
        access["spray.force"][:] = 0.0
        access["spray.jacobian"][:] = 0.0

    @task(
        Stage.SOLVE_SOLIDS,
        reads=("spray.mass", "spray.force", "spray.jacobian", "spray.start_velocity"),
        writes=("spray.velocity", "spray.change"),
    )
    def follow_drag(self, access: Access, step: Step) -> None:
        """Correct velocities by one Newton step."""
        names = ("mass", "force", "jacobian", "start_velocity")
        solve_implicit(
            *(access[f"spray.{name}"] for name in names), step.dt, access["spray.velocity"],
            access["spray.change"],
        )  # fmt: skip

    @task(Stage.SOLVE_SECONDARIES, writes=("particles.velocity",), layout=("spray",))
    def hand_back(self, access: Access, step: Step) -> None:
        """Give the liquid's particles what drag has changed."""
        change = self.points.local("velocity") - self.points.local("start_velocity")
        access["particles.velocity"][self.points.local("row")] += change
        self.points.clear()

    # -- details ---------------------------------------------------------------------------

    @property
    def _volume(self) -> float:
        """Of one particle [m^3]."""
        return self.liquid.particle_share * self.liquid.voxel_size**3

    def _drop_radii(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of the drops that some of the liquid's particles are, [rows] m."""
        liquid = self.liquid
        behavior = liquid.behavior
        if behavior.drop_radius is None:  # what is painted may be factors alone
            behavior = behavior.replace(drop_radius=float(np.cbrt(self._volume / BALL)))
        values, step = liquid.resolve(behavior, "drop_radius", label=liquid.path, dtype=np.float64)
        return values[rows] if step else np.full(len(rows), values[0])

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Where drops are found, what is painted on particles says how large they are."""
        if name == "meet_air":
            painted = Object.painted_reads(self.liquid, self.liquid.behavior)
            reads = tuple(dict.fromkeys((*declaration.reads, *painted)))
            declaration = replace(declaration, reads=reads)
        return super().declare(name, stage, declaration)

    def _exposure(self) -> NDArray[np.float64]:
        """Exposure of all local particles. Collective."""
        liquid, volume, particles = self.liquid, self.liquid.volume, self.liquid.particles
        volume.refresh("filled", corners=True)
        exposure = np.empty(particles.count)
        find_exposure(
            volume.with_ghosts("filled"), volume.buckets.neighbours, liquid.grid.rows(),
            particles.buckets.coords, particles.domain.bucket_size, particles.offsets,
            particles.local("position"), exposure,
        )  # fmt: skip
        return exposure

    # -- what couplings ask ----------------------------------------------------------------

    coupling_reads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "drag_shares": ("particles.exposure",),
        "push_points": ("particles.mass",),
    }

    def need_jacobian(self) -> None:
        """There is one."""

    def drag_shares(self) -> NDArray[np.float64]:
        """Exposed drops of each particle."""
        shares: NDArray[np.float64] = self.points.local("exposure")
        return shares

    def push_points(self, impulse: NDArray[np.float64], dt: float) -> None:
        """Give drops an impulse at the end of a step."""
        self.points.local("velocity")[:] += impulse / self.points.local("mass")[:, None]

    def vertex_channels(self) -> Mapping[str, NDArray[Any]]:
        """The user's channels of the liquid, of the drops."""
        names = list(self.liquid.vertex_channels())
        rows = self.points.local("row") if names else np.zeros(self.points.count, np.int64)
        return PointChannels(self.liquid.particles, names, rows)

    def overriding_channels(self, behavior: Behavior) -> tuple[str, ...]:
        """Those are read off the liquid, not off the drops."""
        return ()

    def painted_reads(self, behavior: Behavior) -> tuple[str, ...]:
        """Channels of the liquid, and which of its particles the drops are."""
        painted = self.liquid.overriding_channels(behavior)
        row = ("particles.row",) if self.liquid.vertex_channels() else ()
        return (*(f"liquid.{name}" for name in painted), *row)
