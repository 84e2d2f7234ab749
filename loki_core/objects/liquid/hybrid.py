"""Hybrid Object: a liquid of particles on a sparse staggered grid (PIC, FLIP, APIC).

Particles carry the liquid's volume, velocity and channels; the grid gives them pressure, viscosity
and forces (Harlow & Welch 1965; Zhu & Bridson 2005; Jiang et al. 2015). A substep:

    particles to grid        velocities on faces, and the filled part of every cell
    u* -> u                  Forces, Viscosity Material, Pressure Material; the air has p = 0
    grid to particles        PIC, FLIP or the affine transfers, and the way along u
    density                  a second solve with the same matrix moves particles, not momentum, from
                             where they are too many to where they are too few

The last is the density projection of Kugelstadt et al. (2019), with the density before the step: so
volume, which is that of the particles, neither drains nor grows by clumping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, ChannelData, Declaration
from loki_core.data.particle_system import ParticleSystem
from loki_core.data.points import Points
from loki_core.kernels.liquid.liquid_motion import keep_inside
from loki_core.kernels.particles.lagrangian_step import largest_speed
from loki_core.objects.basics.capabilities import Faces, Liquid
from loki_core.objects.basics.object import Object, Scope
from loki_core.objects.basics.override_channels import InputPoints, give_defaults, take_painted
from loki_core.objects.basics.point_channels import PointChannels
from loki_core.objects.gas.fluid import Fluid
from loki_core.objects.liquid.free_bodies import FreeBodies
from loki_core.objects.liquid.liquid_account import LiquidAccount
from loki_core.objects.liquid.liquid_buckets import follow_particles
from loki_core.objects.liquid.liquid_crowding import shake_apart
from loki_core.objects.liquid.liquid_faces import LiquidFaces
from loki_core.objects.liquid.liquid_grid import LiquidGrid
from loki_core.objects.liquid.liquid_parts import present_pressure
from loki_core.objects.liquid.liquid_seeding import seed
from loki_core.objects.liquid.liquid_spray import LiquidSpray
from loki_core.objects.liquid.narrow_band import NarrowBand
from loki_core.objects.particles.particle_state import (
    implausible_particle,
    kept_count,
    read_particles,
    sort_moved,
    world_positions,
    write_particles,
)
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task
from loki_core.sparse_parameters import Resolved

TRANSFERS = ("apic", "flip", "pic", "affine_flip")
#: Channels that the Object makes itself; all others are the user's and pass through.
OWN_CHANNELS = ("id", "position", "velocity", "affine", "alive")
#: Channels that particles have where an expression names them: type and start value.
OFFERED_CHANNELS = {"alive": (np.dtype(np.bool_), True), "age": (np.dtype(np.float32), 0.0)}
LONGEST_FALL = 4.0  # voxels in a substep, g dt^2, up to which a pool rests
WALL_MARGIN = 1.0e-3  # voxels that particles keep from walls


class HybridObject(Behavior, kind="object"):
    """Simulate a liquid: water, honey, anything with a free surface."""

    voxel_size: float = parameter(
        0.05, unit="m", minimum=1.0e-6, doc="Edge of a voxel; a Bucket is mostly eight of them."
    )
    input: str | None = parameter(
        None, kind="stream", doc="Points that are particles, or a mesh that is full at the start."
    )
    density: float = parameter(
        1000.0, unit="kg/m^3", minimum=1.0e-9, doc="Mass of the liquid in a volume."
    )
    velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m/s", is_spatial=True, doc="Start velocity, where none is given."
    )
    transfer: str = parameter(
        "apic",
        choices=TRANSFERS,
        doc="How velocities pass between particles and grid: apic is smooth and keeps rotation, "
        "flip is lively, pic is damped.",
    )
    flip_part: float = parameter(
        0.97,
        minimum=0.0,
        maximum=1.0,
        varies="vertex",
        doc="Part of flip, the rest is pic; of both flip transfers.",
    )
    particles_per_axis: int = parameter(
        2, minimum=1, maximum=4, doc="Particles along the edge of a full voxel."
    )
    jitter: float = parameter(
        0.0, minimum=0.0, maximum=1.0, doc="By how much start places differ from a regular lattice."
    )
    density_correction: float = parameter(
        1.0, minimum=0.0, maximum=1.0, doc="Part of a wrong density that is corrected in a substep."
    )
    narrow_band: int | None = parameter(
        None,
        minimum=3,
        maximum=32,
        doc="Voxels below the surface that have particles, deeper liquid is carried by the grid; "
        "none has particles everywhere.",
    )
    drop_radius: float | None = parameter(
        None,
        unit="m",
        minimum=1.0e-6,
        varies="vertex",
        doc="Of the drops that particles break up into where a wind drags them; none takes one "
        "drop of a particle's volume.",
    )

    def voxel_size_hint(self) -> float | None:
        """Buckets suit the voxels."""
        return float(self.voxel_size)

    def create(self, scope: Scope) -> list[Any]:
        """Make the Object."""
        return [Hybrid(self, scope)]


class Hybrid(Fluid, Liquid):
    """The liquid of one Hybrid Object.

    Attributes:
        particles: Its particles; `data["particles"]`.
        grid: The transfers between the two.
        free_bodies: What keeps the momentum of drops in the air.
        liquid_sources: Actions that add particles; they add themselves.
        liquid_sinks: Actions that take particles away; they add themselves.
        surface_forces: Actions that press on its surface; they add themselves, and limit its step.
        account: Where its volume came from and went.
        spray: Its particles that a gas meets, once a coupling asks for them.
    """

    behavior: HybridObject
    cost = 1.5  # of a voxel that is full of particles
    #: Stages at which others may move particles: at the others they are in their Buckets.
    stages_to_move = (
        "INGEST", "FRAME_BEGIN", "SUBSTEP_BEGIN", "GROUP_EXIT", "SUBSTEP_END", "FRAME_END",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        dtype = self.scope.dtype
        self.particles = ParticleSystem(self.scope.domain, name=self.path, dtype=dtype)
        self.particles.add_channel("velocity", dtype, (3,))
        if self.is_affine:
            self.particles.add_channel("affine", dtype, (3, 3))
        self._add("space", dtype=np.uint8, derived=True)
        self._add("loose", dtype=np.uint8)  # cells that a wall or solid lets go of
        self._add("open_part", derived=True)
        self._add("room", derived=True)
        self._add("filled", derived=True)
        self._add("face_weight", components=3, derived=True)
        self._add("former_velocity", components=3, derived=True)
        self._add("spread", components=3, derived=True)
        self.grid = LiquidGrid(self)
        self.band: NarrowBand | None = None
        if self.behavior.narrow_band is not None:
            self.band = NarrowBand(self)
            self._add("deep", dtype=np.uint8)
            self._add("carried_velocity", components=3)
        self.free_bodies = FreeBodies(self)
        self.input_points: InputPoints | None = None
        self.liquid_sources: list[Any] = []
        self.liquid_sinks: list[Any] = []
        self.surface_forces: list[Any] = []
        self.account = LiquidAccount(self.scope.domain.comm)
        self.spray: LiquidSpray | None = None
        self._has_warned = False
        self._told: set[str] = set()

    @property
    def data(self) -> dict[str, ChannelData]:
        data: dict[str, ChannelData] = {"volume": self.volume, "particles": self.particles}
        return data if self.spray is None else data | {"spray": self.spray.points}

    def tasks(self) -> Iterator[Task]:
        """Its own and those of the spray."""
        yield from super().tasks()
        if self.spray is not None:
            yield from self.spray.tasks()

    @property
    def is_affine(self) -> bool:
        """Whether particles carry the gradient of the velocity."""
        return self.behavior.transfer in ("apic", "affine_flip")

    def keep(self) -> Resolved:
        """Part of a particle's own velocity that a step leaves to it, of each or of all."""
        if "flip" not in self.behavior.transfer:
            return Resolved(np.zeros(1), 0, "transfer")
        return self.resolve(self.behavior, "flip_part", label=self.path, dtype=np.float64)

    @property
    def particles_per_axis(self) -> int:
        """Particles along the edge of a full voxel."""
        return int(self.behavior.particles_per_axis)

    @property
    def jitter(self) -> float:
        """By how much start places differ from a regular lattice, of the distance there."""
        return float(self.behavior.jitter)

    @property
    def particle_share(self) -> float:
        """Part of a voxel that one particle fills."""
        return float(self.particles_per_axis) ** -3

    @property
    def particle_volume(self) -> float:
        """Liquid that one particle stands for [m^3]."""
        return self.particle_share * self.voxel_size**3

    def offer_channel(self, name: str) -> None:
        """Let particles know their age, or whether they stay, where somebody asks for it."""
        if name in OFFERED_CHANNELS:
            dtype, start = OFFERED_CHANNELS[name]
            self.particles.add_channel(name, dtype, default=start)

    def vertex_channels(self) -> Mapping[str, NDArray[Any]]:
        """Channels of the user's."""
        names = [name for name in self.particles.channels if name not in OWN_CHANNELS]
        return PointChannels(self.particles, names)

    def overriding_channels(self, behavior: Behavior) -> tuple[str, ...]:
        """Channels of the particles that override a parameter of the Behavior.

        Particles that come later have the Behavior's value.
        """
        names = Object.overriding_channels(self, behavior)
        give_defaults(self.particles, self.now(behavior), names)
        return names

    def painted_reads(self, behavior: Behavior) -> tuple[str, ...]:
        """The same as a Task declares them; voxels have the means of the particles around them."""
        names = Object.painted_reads(self, behavior)
        return (*names, "particles.position") if names else ()

    # -- start -----------------------------------------------------------------------------

    def ingest(self) -> None:
        """Take or make the particles of the start."""
        if self.keeps_start:
            self._add("start_velocity", components=3, derived=True)
        if self.behavior.input is not None:
            stream = self.scope.inputs[self.behavior.input]
            seed(self, stream)
            self.details = dict(stream.channels["detail"].items())
        if self.projector is None:
            self.tell_once("no Pressure Material acts on it: it is not incompressible")
        self.account.note("start", self.particles.count)
        self.hold_inside()
        self.particles.rebucketize()
        self.account.settle()
        if self.band is not None:
            self.band.check()
        follow_particles(self)

    def overriding_stream(self) -> Any:
        return None if self.behavior.input is None else self.scope.inputs[self.behavior.input]

    def take_overrides(self, stream: Any, changed: Mapping[str, list[str]]) -> None:
        """Follow what is painted on points that are particles since the start, by id."""
        if self.input_points is None:
            return  # a mesh that was filled: nothing says which particle is which point of it
        painted = self.overrides.painted(stream, changed, without=OWN_CHANNELS)
        if painted:
            mine, rows = self.input_points.find(self.particles.local("id"), stream)
            label = f'{self.path}: input "{self.behavior.input}"'
            take_painted(self.particles, mine, stream, rows, painted, label=label)

    # -- Buckets ---------------------------------------------------------------------------

    @task(Stage.REBUCKET, layout=("particles",))
    def rebucket(self, access: Access, step: Step) -> None:
        """Sort by Bucket, move particles to their ranks; let liquid come and go."""
        sort_moved(self.particles)
        self._come_and_go(step)
        shake_apart(self, step)

    def _come_and_go(self, step: Step) -> None:
        """Let sources and sinks act. Collective."""
        for source in self.liquid_sources:
            before = self.particles.next_id
            source.emit(step)
            if self.particles.next_id != before:  # the next source finds these places taken
                self.particles.rebucketize()
        for sink in self.liquid_sinks:
            sink.drain()
        if self.liquid_sinks:
            self.particles.rebucketize()
        if self.band is not None:
            self.band.check()

    def take_away(self, gone: NDArray[np.bool_], how: str) -> None:
        """Mask local particles [n] for removal, and account for them: "drained", "left", ..."""
        if gone.any():
            kept = self.particles.kept()
            fresh = gone[kept] if isinstance(kept, slice) else gone & kept
            self.account.note(how, int(np.count_nonzero(fresh)))
            self.particles.remove(gone)

    def tell_once(self, text: str) -> None:
        """Warn of something with the next Task, unless that was said before."""
        if text not in self._told:
            self._told.add(text)
            self.warning = f"{self.warning}; {text}" if self.warning else text

    @task(
        Stage.ADAPT_TOPOLOGY,
        reads=("particles.position", "particles.velocity"),
        layout=("volume",),
    )
    def adapt(self, access: Access, step: Step) -> None:
        """Keep Buckets around all particles, as far as they go in a step."""
        follow_particles(self, step.dt)

    @property
    def is_liquid(self) -> bool:
        """It ends at its surface."""
        return True

    def points_in(self, fluid: Faces) -> LiquidSpray | None:
        """Its spray, for a gas."""
        if fluid.is_liquid:
            return None
        if self.spray is None:
            self.spray = LiquidSpray(self)
        return self.spray

    def met_faces(self) -> LiquidFaces:
        """Those beside liquid cells. Collective."""
        return LiquidFaces.of(self)

    def met_reads(self) -> tuple[str, ...]:
        return ("volume.face_weight", "volume.kind", "volume.open_fraction")

    def projection_reads(self) -> tuple[str, ...]:
        """Where the surface is, too, and where trapped air ends."""
        traps = self.projector is not None and self.projector.behavior.air == "trapped"
        return (*super().projection_reads(), "volume.filled", *(("volume.space",) * traps))

    def need_viscosity(self) -> None:
        """Make room for the velocity after viscous stress [m/s], from which pressure starts."""
        if "viscous_velocity" not in self.volume.channels:
            self._add("viscous_velocity", components=3, derived=True)

    @property
    def falls_off_walls(self) -> bool:
        """Whether walls only push; the Pressure Material says."""
        return self.projector is not None and bool(self.projector.lets_go)

    def need_solids(self) -> None:
        """Make room for what Colliders tell: the distance at nodes, too."""
        super().need_solids()
        if "node_distance" not in self.volume.channels:
            self._add("node_distance", derived=True)
            self._add("unsure", derived=True)  # part by which particles may be wrong beside them

    def remember_space(self) -> None:
        """Keep what is solid and what is open, whatever the liquid fills of it."""
        self.grid.remember_space()

    # -- the step --------------------------------------------------------------------------

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the channels that this liquid has."""
        stage, declaration = super().declare(name, stage, declaration)
        writes, reads = declaration.writes, list(declaration.reads)
        wanted: dict[str, tuple[str, ...]] = {
            "transfer_to_grid": ("open_fraction", "open_part", "room", "space"),
            "correct_density": ("filled", "kind", "open_fraction", "open_part", "loose"),
            "move": ("face_weight", "kind", "loose", "open_fraction", "spread"),
        }
        reads += [f"volume.{one}" for one in wanted.get(name, ())]
        if name in ("transfer_to_grid", "correct_density") and "unsure" in self.volume.channels:
            reads.append("volume.unsure")
        if name == "transfer_to_grid":
            reads += ["particles.position", "particles.velocity"]
            reads += ["particles.affine"] if self.is_affine else []
            if self.colliders:
                reads.append("volume.solid_velocity")
            if self.band is not None:
                reads += ["volume.deep", "volume.carried_velocity"]
        if name == "rebucket" and self.band is not None:
            reads.append("volume.deep")
        if name == "move":
            reads += [*self.collider_reads("distance"), "volume.former_velocity"]
            reads += ["volume.solid_velocity"] if self.colliders else []
            changed = "viscous_velocity" if self.viscous else "former_velocity"
            writes = (*writes, f"volume.{changed}")
        if name == "update_boundaries":
            writes = (*writes, "volume.space", "volume.open_part", "volume.room")
            if "node_distance" in self.volume.channels:
                writes = (*writes, "volume.node_distance", "volume.unsure")
        if name == "transfer_to_grid" and self.keeps_start:
            writes = (*writes, "volume.start_velocity")
        if name == "move":
            reads += self.painted_reads(self.behavior)
        if name == "move" and self.is_affine:
            writes = (*writes, "particles.affine")
        if name == "move" and self.band is not None:
            writes = (*writes, "volume.deep", "volume.carried_velocity")
        if name == "remove_dead":
            has = self.particles.channels
            writes = (*writes, *(("particles.age",) if "age" in has else ()))
            reads += ["particles.alive"] if "alive" in has else []
        if name == "transfer_to_grid" and self.viscous and not self.surface_forces:
            writes = (*writes, "volume.pressure")
        kept = tuple(one for one in dict.fromkeys(reads) if one not in writes)
        return stage, replace(declaration, reads=kept, writes=writes)

    @task(
        Stage.PARTICLES_TO_GRID,
        writes=(
            "volume.velocity",
            "volume.former_velocity",
            "volume.face_weight",
            "volume.filled",
            "volume.kind",
        ),
        communicates=True,
    )
    def transfer_to_grid(self, access: Access, step: Step) -> None:
        """Bring the particles' momentum to faces, and find what is liquid."""
        self._warn_of_long_step(step.dt)
        if self.projector is not None:
            self.projector.begin_step(step.frame)
        self.grid.take_particles()
        self.grid.find_liquid()
        self.geometry_version += 1
        if self.viscous and self.projector is not None and not self.surface_forces:
            # Viscous stress then acts on nearly the final velocity: weight alone moves nothing
            # along walls that hold the liquid (van Kan 1986).
            self.volume.local("pressure")[:] = present_pressure(self)
            self.volume.mark_written("pressure")
            self.projector.push(0.5 * step.dt)
            self.projector.push(0.5 * step.dt)
        if self.keeps_start:
            self.volume.local("start_velocity")[:] = self.volume.local("velocity")
        self.free_bodies.begin()

    def forces_have_acted(self) -> None:
        """Take note of the momentum that Forces brought."""
        self.free_bodies.forces_have_acted()

    def acted_reads(self) -> tuple[str, ...]:
        return ("volume.face_weight",) if self.free_bodies.may_be else ()

    def mobility(self, dt: float) -> NDArray[Any]:
        """What a pressure gradient moves of each face: more at the surface, less with drag."""
        drag = self.mobility_under_drag(dt)
        if drag is None:
            drag = np.ones_like(self.volume.local("velocity"))
        return self.grid.with_surface(drag)

    def free_mobility(self) -> NDArray[Any]:
        """The same without drag."""
        return self.grid.with_surface(np.ones_like(self.volume.local("velocity")))

    @task(Stage.GRID_TO_PARTICLES, writes=("volume.spread",), communicates=True)
    def correct_density(self, access: Access, step: Step) -> None:
        """Find where particles are to go that are too many."""
        part = float(self.settings.density_correction)
        self.volume.local("spread")[:] = 0.0
        if part > 0.0 and self.projector is not None:
            report = self.projector.spread(part * self.grid.density_error(), "spread")
            self.iterations, self.warning = report.iterations, report.warning
        if self.projector is not None:
            self.projector.release()

    @task(
        Stage.MOVE_PARTICLES,
        writes=("volume.velocity", "particles.position", "particles.velocity"),
        layout=("particles",),
    )
    def move(self, access: Access, step: Step) -> None:
        """Bring velocities to particles and let them go along the flow, as far as walls allow."""
        self.grid.extend_velocity(start="viscous_velocity" if self.viscous else "former_velocity")
        self.grid.move_particles(step.dt)
        self.free_bodies.keep_momentum(step.dt)
        if self.band is not None:
            self.band.follow(step)
        self.hold_inside()
        if self.band is not None:
            self.band.carry_velocity(step.dt)

    def were_moved(self) -> None:
        """Hold particles inside that others have moved."""
        self.hold_inside()

    def hold_inside(self) -> None:
        """Hold particles off the box's walls, and let go of those beyond its open sides."""
        domain, particles = self.scope.domain, self.particles
        walls = np.array([_SIDES[side] for side in self.surroundings().kinds], np.uint8)
        inside = np.empty(particles.count, bool)
        keep_inside(
            particles.local("position"), domain.relative_lower, domain.relative_upper, walls,
            WALL_MARGIN * self.voxel_size, inside,
        )  # fmt: skip
        self.take_away(~inside, "left")
        self._let_go_far_away()

    def _let_go_far_away(self) -> None:
        """Let particles leave that went farther than places can be told, where no side is."""
        domain, position = self.scope.domain, self.particles.local("position")
        if np.isfinite(domain.relative_lower).all() and np.isfinite(domain.relative_upper).all():
            return
        far = (np.abs(position) > 0.99 * domain.reach) & np.isfinite(position)
        gone: NDArray[np.bool_] = np.any(far, axis=1)
        self.take_away(gone, "left")

    @task(Stage.REMOVE_DEAD, layout=("particles",))
    def remove_dead(self, access: Access, step: Step) -> None:
        """Let particles age, take away those that were killed, and settle the account."""
        if "age" in self.particles.channels:
            self.particles.local("age")[:] += np.float32(step.dt)
        if "alive" in self.particles.channels:
            self.take_away(~self.particles.local("alive"), "killed")
        self.account.settle()

    # -- the length of a step --------------------------------------------------------------

    def time_step_limit(self) -> float:
        """Time in which no particle crosses `courant_number` voxels, nor falls through one.

        The second is what keeps waves of the grid's own length stable: their frequency is about
        sqrt(pi g / h).
        """
        speed = float(largest_speed(self.particles.local("velocity")))
        if self.band is not None:
            speed = max(speed, float(self.bucket_speeds().max(initial=0.0)))
        speed = max([speed, *(source.speed for source in self.liquid_sources)])
        limit = np.inf
        if speed > 0.0:
            limit = float(self.scope.settings.courant_number) * self.voxel_size / speed
        pull = float(np.linalg.norm(self.uniform_acceleration()))
        if pull > 0.0 and self.particles.count:
            limit = min(limit, float(np.sqrt(self.voxel_size / pull)))
        return min([limit, *(float(one.time_step_limit()) for one in self.surface_forces)])

    def _warn_of_long_step(self, dt: float) -> None:
        """Say that gravity waves are not resolved, so that the surface will not hold."""
        fall = float(np.linalg.norm(self.uniform_acceleration())) * dt * dt / self.voxel_size
        if fall > LONGEST_FALL and not self._has_warned:
            self._has_warned = True
            self.warning = (
                f"liquid falls through {fall:.1f} voxels in a substep of {dt:.3g} s, and its "
                "surface gets rough; turn adaptive_substeps on, or use more substeps"
            )

    # -- checks and output -----------------------------------------------------------------

    def check_state(self) -> str | None:
        """First particle that is not finite, or faster than is plausible."""
        return implausible_particle(self.particles, float(self.scope.settings.maximum_speed))

    def count(self) -> int:
        """Particles on this rank."""
        return kept_count(self.particles)

    def output(self) -> Points:
        """Return the particles in world space."""
        particles, kept = self.particles, self.particles.kept()
        points = Points(world_positions(particles))
        radius = 0.5 * self.voxel_size / float(self.behavior.particles_per_axis)
        points.set_channel("point", "radius", np.full(self.count(), radius, particles.dtype))
        for name in ("id", "velocity", *self.vertex_channels()):
            points.set_channel("point", name, particles.local(name)[kept].copy())
        return points

    def read(self, channel: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Ids and values of particles, in world space, or of Buckets: "volume.pressure"."""
        if channel.startswith("volume."):
            return super().read(channel.removeprefix("volume."))
        return read_particles(self.particles, channel)

    def write(self, channel: str, values: NDArray[Any]) -> None:
        """Set a channel of all particles, ordered by id; positions in world space."""
        write_particles(self.particles, channel, values)
        if channel == "position":
            self.hold_inside()
            self.particles.rebucketize()

    def account_document(self) -> dict[str, float]:
        """Where the volume came from and went, and what is there now [m^3]. Collective."""
        present = self.scope.domain.comm.total(self.count()) * self.particle_volume
        if self.band is not None:
            present += self.band.voxel_count() * self.voxel_size**3
        return self.account.to_document(self.particle_volume, present)

    def state(self) -> dict[str, Any]:
        """The account, and the volume that a narrow band owes, in voxels."""
        owed = {} if self.band is None else {"owed": self.band.owed}
        return {"account": self.account.state(), **owed}

    def restore(self, state: dict[str, Any]) -> None:
        """Forget what was derived from the Buckets; it is found again."""
        self._geometry = None
        self.account.restore(state.get("account", {}))
        if self.band is not None:
            self.band.owed = float(state.get("owed", 0.0))


_SIDES = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2}  # of Surroundings: open, slip, no slip, inflow, periodic
