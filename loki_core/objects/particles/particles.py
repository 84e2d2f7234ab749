"""Particle Object: particles without neighbours. Forces move them; they are emitted, age and die.

A substep is backward Euler on each particle's own 3x3 system (kernels/lagrangian_step), so implicit
Forces such as drag are stable at any stiffness. The mass of a particle is its density times the
volume of a ball of its radius.

An Attachment that reaches the particles lets them join the system of all solids, where each is a
body of its own (`objects/solids/joinable.py`). What they have are degrees of freedom of solids
then, so they are stored in float64, whatever the precision of the Setup. A Collision Constraint
lets them bounce off Colliders (`constraints/particle_contacts.py`), joined or not.

What particles are emitted with may vary over the source (`source_parameters.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.body import Body
from loki_core.data.channels import motion_channels
from loki_core.data.mesh import Mesh
from loki_core.data.particle_system import ParticleSystem
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.errors import InputError
from loki_core.kernels.basics.emission import fill_uniforms
from loki_core.kernels.basics.random import random_key
from loki_core.kernels.particles.lagrangian_step import (
    begin_step,
    keep_in_box,
    largest_speed,
    move_iterate,
    solve_explicit,
    solve_implicit,
)
from loki_core.objects.basics.capabilities import LooseParticles
from loki_core.objects.basics.object import Scope
from loki_core.objects.basics.override_channels import (
    InputPoints,
    give_defaults,
    override_names,
    take_painted,
)
from loki_core.objects.basics.point_channels import PointChannels
from loki_core.objects.particles.neighbour_search import NEIGHBOUR_CHANNELS
from loki_core.objects.particles.particle_source import (
    UNIFORMS_PER_PLACE,
    inherited_channels,
    places_on,
)
from loki_core.objects.particles.particle_state import (
    implausible_particle,
    kept_count,
    read_particles,
    sort_moved,
    world_positions,
    write_particles,
)
from loki_core.objects.particles.source_parameters import of_source, resolve_on_source, says
from loki_core.objects.solids.joinable import Joinable
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Task, task
from loki_core.sparse_parameters import resolve

BALL = 4.0 / 3.0 * np.pi
RADII_PER_BUCKET = 10.0  # so that neighbours, of liquids too, are in a Bucket or beside it
PARTICLES_PER_BUCKET = 128  # enough to pay for a Bucket, few enough to share out between ranks
#: Channels that the Object makes itself; all others are the user's and pass through.
OWN_CHANNELS = (
    "id",
    "position",
    "velocity",
    "mass",
    "radius",
    "age",
    "lifetime",
    "alive",
    "force",
    "jacobian",
    "start_velocity",
    "change",
)
OUTPUT_CHANNELS = ("id", "velocity", "mass", "radius", "age")


class ParticleObject(Behavior, kind="object", varies="vertex"):
    """Simulate points as particles, and emit new ones from a source."""

    input: str | None = parameter(
        None,
        kind="stream",
        doc="Stream whose points are there from the start, with all channels; of a fluid also a "
        "closed mesh, which is filled.",
    )
    source: str | None = parameter(
        None, kind="stream", doc="Points or mesh that new particles are emitted from."
    )
    rate: float = parameter(
        0.0, unit="1/s", minimum=0.0, varies="object", doc="Particles emitted in a second."
    )
    velocity: tuple[float, float, float] = parameter(
        (0.0, 0.0, 0.0), unit="m/s", is_spatial=True, doc="Start velocity of emitted particles."
    )
    normal_speed: float = parameter(
        0.0, unit="m/s", doc="Start speed along the source's normals, added to the velocity."
    )
    velocity_spread: float = parameter(
        0.0, unit="m/s", minimum=0.0, doc="Largest random speed in any direction, added too."
    )
    inherit_velocity: float = parameter(
        1.0, doc="How much of the source's own velocity channel is added."
    )
    lifetime: float | None = parameter(
        None, unit="s", minimum=0.0, doc="Age at which particles die; none lives for ever."
    )
    lifetime_variation: float = parameter(
        0.0, minimum=0.0, maximum=1.0, doc="Part by which lifetimes are shortened at random."
    )
    radius: float = parameter(
        0.005,
        unit="m",
        minimum=1e-9,
        channel="radius",
        doc="Radius of a particle.",
    )
    density: float = parameter(
        1000.0,
        unit="kg/m^3",
        minimum=1e-9,
        channel="density",
        doc="Mass of a particle over the volume of its ball.",
    )

    def bucket_size_hint(self, inputs: Mapping[str, Any]) -> float | None:
        """Buckets of about a hundred of the start particles, or a sixteenth of the source."""
        stream = inputs.get(self.input or self.source or "")
        if not isinstance(stream, Mesh) or stream.point_count == 0:
            return RADII_PER_BUCKET * float(self.at(0.0).radius)
        lower, upper = stream.bounds()
        extent = float(np.max(upper - lower))
        smallest = RADII_PER_BUCKET * self._largest_radius(stream)
        if self.input is None or stream.point_count < PARTICLES_PER_BUCKET:
            return max(extent / 16.0, smallest)
        # A flat or thin cloud still fills Buckets as wide as its Buckets are.
        volume = float(np.prod(np.maximum(upper - lower, 0.02 * extent)))
        return max(float(np.cbrt(volume * PARTICLES_PER_BUCKET / stream.point_count)), smallest)

    def _largest_radius(self, stream: Mesh) -> float:
        painted = np.asarray(stream.channels["point"].get("radius", ()), np.float64)
        given = self.at(0.0).radius if self.input is None or not painted.size else 0.0
        finite = painted[np.isfinite(painted)] if self.input is not None else painted[:0]
        return max(float(given), float(finite.max(initial=0.0)))

    def create(self, scope: Scope) -> list[Any]:
        """Make the Object; without input and source others may fill it, such as a Liquid Source."""
        return [Particles(self, scope)]


class Particles(Joinable, LooseParticles):
    """The particles of one Particle Object.

    Attributes:
        derived: Channels that Operators fill and that are part of the output.
        fluid: The Operator that makes a liquid of them, if any.
        droplets: The Operator that collides them as droplets, if any.
        contacts: What lets them meet Colliders, if anything does.
        fluid_sources, fluid_sinks: Where such a liquid comes from and goes; they enter themselves.
    """

    behavior: ParticleObject
    cost = 0.17  # of a particle

    def __post_init__(self) -> None:
        super().__post_init__()
        dtype = self.scope.dtype
        self.particles = ParticleSystem(self.scope.domain, name=self.path, dtype=dtype)
        for name, shape, default in (
            ("velocity", (3,), 0.0),
            ("mass", (), 1.0),
            ("radius", (), 1.0),
            ("age", (), 0.0),
            ("lifetime", (), np.inf),
            ("force", (3,), 0.0),
            ("start_velocity", (3,), 0.0),
            ("change", (3,), 0.0),
        ):
            self.particles.add_channel(name, dtype, shape, default=default)
        self.particles.add_channel("alive", np.bool_, default=True)
        self.emission_debt = 0.0  # part of the next particle that is due
        self.derived: list[str] = []
        self.input_points: InputPoints | None = None
        self.lets_input_go = True
        self.fluid: Any = None
        self.droplets: Any = None
        self.contacts: Any = None
        self.fluid_sources: list[Any] = []
        self.fluid_sinks: list[Any] = []

    def become_fluid(self, fluid: Any) -> None:
        """Let an Operator make a liquid of the particles; what Forces leave is not kept."""
        self.fluid = fluid
        self.lets_input_go = False  # Colliders ask how fine it is
        for name in ("force", "start_velocity", "change"):
            self.particles.channels[name].is_scratch = True

    def become_droplets(self, collisions: Any) -> None:
        """Let an Operator collide the particles as droplets, in double precision."""
        self.droplets = collisions
        self.particles.store_as(np.float64)

    def meet_colliders(self, contacts: Any) -> None:
        """Let an Action follow the ways of the particles, from where a step begins."""
        self.contacts = contacts
        self._keep_start()

    def _keep_start(self) -> None:
        self.particles.add_channel("start_position", self.particles.dtype, (3,))

    @property
    def keeps_start(self) -> bool:
        """Whether it is known where a step began."""
        return "start_position" in self.particles.channels

    def derive_channel(self, name: str) -> None:
        """Add a channel that an Operator fills and that is part of the output."""
        self.particles.add_channel(name, self.particles.dtype)
        self.derived.append(name)

    def join(self) -> None:
        """Become part of the joint system, in double precision."""
        if not self.is_joined:
            super().join()
            self.particles.store_as(np.float64)
            self._keep_start()

    def tasks(self) -> Iterator[Task]:
        """The joint system solves for particles that are in it, and moves them."""
        left_out = ("move", "solve") if self.is_joined else ("assemble",)
        for one in super().tasks():
            if one.name not in left_out:
                yield one

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Contacts ask where the step began."""
        stage, declaration = super().declare(name, stage, declaration)
        if self.keeps_start and name == "begin":
            writes = (*declaration.writes, "particles.start_position")
            declaration = replace(declaration, writes=writes)
        return stage, declaration

    @property
    def own_channels(self) -> tuple[str, ...]:
        """Channels that the user's may not be mistaken for."""
        start = ("start_position",) if self.keeps_start else ()
        return (*OWN_CHANNELS, *start, *self.derived, *NEIGHBOUR_CHANNELS)

    def overriding_channels(self, behavior: Behavior) -> tuple[str, ...]:
        """Name the painted overrides; particles that are emitted later get the Behavior's value."""
        names = super().overriding_channels(behavior)
        give_defaults(self.particles, self.now(behavior), names)
        return names

    def vertex_channels(self) -> Mapping[str, NDArray[Any]]:
        names = [name for name in self.particles.channels if name not in self.own_channels]
        return PointChannels(self.particles, names)

    # -- start -----------------------------------------------------------------------------

    def ingest(self) -> None:
        """Take the input stream's points, each rank an equal share; they find their ranks."""
        if self.behavior.input is None:
            self.particles.rebucketize()
            return
        stream = self.scope.inputs[self.behavior.input]
        label = f'{self.path}: input "{self.behavior.input}"'
        if not isinstance(stream, Mesh):
            raise InputError(f"{label} is a {type(stream).__name__}; points or a mesh are expected")
        if self.fluid is not None and isinstance(stream, (Surface, Body)):
            stream = self._fill(stream, label)
        self.details = dict(stream.channels["detail"].items())
        self._add_user_channels(stream, label)
        is_filled = stream is not self.scope.inputs[self.behavior.input]
        count, comm = stream.point_count, self.scope.domain.comm
        rows = slice(count * comm.rank // comm.size, count * (comm.rank + 1) // comm.size)
        values = {
            name: array[rows]
            for name, array in stream.channels["point"].items()
            if name not in ("id", "position")
        }
        dtype = self.particles.dtype
        values["position"] = self.scope.domain.to_relative(stream.positions[rows]).astype(dtype)
        values["radius"] = self._per_point("radius", stream, rows, label)
        if "mass" not in values:
            density = self._per_point("density", stream, rows, label)
            values["mass"] = BALL * values["radius"].astype(np.float64) ** 3 * density
        if "lifetime" not in values and says(self.behavior, "lifetime", stream, item=self):
            values["lifetime"] = self._per_point("lifetime", stream, rows, label)
        values = {n: v for n, v in values.items() if n in self.particles.channels}
        first = self.particles.reserve_ids(count)
        ids = np.arange(first + rows.start, first + rows.stop, dtype=np.int64)
        if not is_filled:
            self.input_points = InputPoints(stream, first=first, rows=None, label=label)
            self.overrides.add(("id", "attached"), stream)
        if self.fluid is not None:
            moved = self._part_coincident(stream.positions)[rows] * values["radius"][:, None]
            values["position"] += moved.astype(dtype)
        self.particles.append(values, ids=ids)
        self.particles.rebucketize()

    def _part_coincident(self, positions: NDArray[Any]) -> NDArray[np.float64]:
        """Moves [n, 3], in radii, of points that stand where another one does.

        Nothing tells which way the particles of a fluid should go that are in one point.
        """
        moves = np.zeros((len(positions), 3))
        bits = np.ascontiguousarray(positions, np.float64).view(np.uint64).reshape(-1, 3)
        code = (bits * np.array([1, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)).sum(axis=1)
        _, first = np.unique(code, return_index=True)
        again = np.setdiff1d(np.arange(len(positions)), first)
        if len(again):
            self.warning = (
                f"{len(again)} of {len(positions)} points stand where another one does; they are "
                "moved by up to a hundredth of a radius, so that they can part"
            )
            random = np.random.default_rng(self.scope.settings.random_seed)
            moves[again] = 0.01 * random.uniform(-1.0, 1.0, (len(again), 3))
        return moves

    def _fill(self, mesh: Any, label: str) -> Points:
        """The points of a fluid that fill a mesh but for Colliders, with what is painted there."""
        from loki_core.objects.colliders.triangles import Triangles
        from loki_core.objects.particles.mesh_to_particles import Nearest, channels_of
        from loki_core.objects.particles.particle_filling import painted_radius, places_inside

        domain = self.scope.domain
        spacing = np.cbrt(BALL) * painted_radius(mesh, float(self.settings.radius), label=label)
        relative = domain.to_relative(mesh.positions)
        placed = Triangles.of(mesh, label=label).at(relative, label=label)
        place = places_inside(placed, domain, float(spacing), label=label)
        for collider in self.body_colliders:
            place = place[~collider.covers(place)]
        points = Points(domain.to_world(place))
        painted = channels_of(mesh)
        nearest = Nearest(placed, place) if len(place) and painted else None
        for name, (location, array) in painted.items():
            if location == "detail":
                points.set_channel("detail", name, array)
            elif nearest is not None:
                points.set_channel("point", name, nearest.carried(location, array))
        return points

    def _add_user_channels(self, stream: Any, label: str) -> None:
        motion = motion_channels(stream.channels["point"])
        for name, array in stream.channels["point"].items():
            if name in motion:
                continue  # says how the input moves, which particles do not follow
            if name in self.own_channels:
                expected = self.particles.channels.get(name)
                if expected is not None and array.shape[1:] != expected.shape:
                    raise InputError(
                        f'{label}: channel "{name}" has {list(array.shape[1:])} values a point, '
                        f"expected {list(expected.shape)}"
                    )
                _check_own_channel(name, array, label)
            else:  # bulk numbers are stored in the particles' precision
                dtype = self.particles.dtype if array.dtype.kind == "f" else array.dtype
                self.particles.add_channel(name, dtype, array.shape[1:])

    def _per_point(
        self, name: str, stream: Any, rows: slice | NDArray[np.int64], label: str
    ) -> NDArray[Any]:
        """A sparse parameter for these points of the input stream."""
        values, step = resolve(
            self.behavior,
            name,
            behavior_label=label,
            channels={"detail": self.details, "vertex": dict(stream.channels["point"].items())},
            counts={"vertex": stream.point_count, "primitive": 0},
            time=self.time,
            dtype=self.particles.dtype,
            frames_per_second=self.scope.settings.frames_per_second,
            start_frame=self.scope.settings.start_frame,
        )
        whole = values if step else np.broadcast_to(values, stream.point_count)
        return np.array(whole[rows])

    # -- an input in motion ----------------------------------------------------------------

    def overriding_stream(self) -> Any:
        return None if self.behavior.input is None else self.scope.inputs[self.behavior.input]

    def take_overrides(self, stream: Any, changed: Mapping[str, list[str]]) -> None:
        """Follow what is painted on points, by id, and the size of particles that are alone.

        What a fluid or a droplet weighs is its state, which does not change by paint.
        """
        super().take_overrides(stream, changed)
        points = self.input_points
        if points is None:
            return  # a mesh that was filled: nothing says which particle is which point of it
        is_single = self.fluid is None and self.droplets is None
        sizes = set(override_names(type(self.behavior), "radius", "density"))
        names = {name for some in changed.values() for name in some}
        is_resized = is_single and ("id" in names or bool(sizes & names))
        painted = self.overrides.painted(stream, changed, without=self.own_channels)
        if not is_resized and not painted:
            return
        label = f'{self.path}: input "{self.behavior.input}"'
        mine, rows = points.find(self.particles.local("id"), stream)
        take_painted(self.particles, mine, stream, rows, painted, label=label)
        if is_resized:
            self._resize(stream, mine, rows, label)

    def _resize(
        self, stream: Any, mine: NDArray[np.int64], rows: NDArray[np.int64], label: str
    ) -> None:
        """Give particles the radius of their points, and its mass where the input has none."""
        radius = self._per_point("radius", stream, rows, label)
        self.particles.local("radius")[mine] = radius
        self.particles.mark_written("radius")
        if "mass" not in stream.channels["point"]:
            density = self._per_point("density", stream, rows, label)
            mass = BALL * radius.astype(np.float64) ** 3 * density
            self.particles.local("mass")[mine] = mass
            self.particles.mark_written("mass")

    # -- emission --------------------------------------------------------------------------

    @task(Stage.EMIT_PARTICLES, layout=("particles",))
    def emit(self, access: Access, step: Step) -> None:
        """Emit what was due in this substep, evenly spread over it."""
        for source in self.fluid_sources:
            source.emit(step)
        if self.settings.source is None:
            return
        source = self.scope.inputs[self.settings.source]
        if isinstance(source, Mesh) and source.point_count == 0:
            self.emission_debt = 0.0  # an emitter that is off owes nothing when it is on again
            return
        rate = of_source(self.behavior, "rate", source, item=self, label=self.path)
        self.emission_debt += float(rate) * step.dt
        count = int(self.emission_debt + 1e-9)  # a sum of parts may be a hair below the whole
        self.emission_debt -= count
        if count == 0:
            return
        particles, comm = self.particles, self.scope.domain.comm
        first = particles.reserve_ids(count)
        mine = slice(count * comm.rank // comm.size, count * (comm.rank + 1) // comm.size)
        numbers = np.arange(mine.start, mine.stop)
        ids = (first + numbers).astype(np.int64)
        uniforms = np.empty((len(ids), UNIFORMS_PER_PLACE + 4))
        fill_uniforms(random_key(step.seed, zlib.crc32(self.path.encode())), ids, uniforms)
        self._append_emitted(ids, uniforms, age=step.dt * (1.0 - (numbers + 0.5) / count))

    def _append_emitted(
        self, ids: NDArray[np.int64], uniforms: NDArray[np.float64], age: NDArray[np.float64]
    ) -> None:
        dtype, source = self.particles.dtype, self.scope.inputs[self.settings.source]
        places = places_on(source, uniforms[:, :UNIFORMS_PER_PLACE], label=self.path)

        def found(name: str) -> NDArray[np.float64]:
            """A parameter at the places; one for all where it is the same."""
            values: NDArray[np.float64] = resolve_on_source(
                self.behavior, name, source, places.carry, len(ids), item=self, label=self.path
            ).values
            return values

        velocity = (
            found("velocity")
            + found("normal_speed")[:, None] * places.normal
            + found("inherit_velocity")[:, None] * places.velocity
            + found("velocity_spread")[:, None] * _in_ball(uniforms[:, UNIFORMS_PER_PLACE:-1])
        )
        position = self.scope.domain.to_relative(places.position) + velocity * age[:, None]
        radius = np.broadcast_to(found("radius"), len(ids))
        values: dict[str, NDArray[Any]] = {
            "position": position.astype(dtype),
            "velocity": velocity,
            "radius": radius,
            "mass": BALL * radius**3 * found("density"),
            "age": age,
        }
        if says(self.behavior, "lifetime", source, item=self):
            shorter = found("lifetime_variation") * uniforms[:, -1]
            values["lifetime"] = found("lifetime") * (1.0 - shorter)
        values |= inherited_channels(source, places, self.vertex_channels())
        self.particles.append(values, ids=ids)

    @task(Stage.REBUCKET, layout=("particles",))
    def rebucket(self, access: Access, step: Step) -> None:
        """Sort by Bucket, move particles to their ranks, drop dead ones."""
        sort_moved(self.particles)

    # -- the step --------------------------------------------------------------------------

    @task(
        Stage.RESET_ACCUMULATORS,
        reads=("particles.velocity",),
        writes=("particles.start_velocity", "particles.position"),
    )
    def begin(self, access: Access, step: Step) -> None:
        """Keep the start velocity and guess the end position."""
        if self.keeps_start:
            access["particles.start_position"][:] = access["particles.position"]
        begin_step(
            access["particles.velocity"],
            step.dt,
            access["particles.start_velocity"],
            access["particles.position"],
        )

    @task(
        Stage.SOLVE_SOLIDS,
        reads=("particles.mass", "particles.force", "particles.start_velocity"),
        writes=("particles.velocity", "particles.change"),
    )
    def solve(self, access: Access, step: Step) -> None:
        """Correct velocities by one Newton step."""
        mass, force = access["particles.mass"], access["particles.force"]
        start, velocity = access["particles.start_velocity"], access["particles.velocity"]
        change = access["particles.change"]
        if self.is_implicit:
            jacobian = access["particles.jacobian"]
            solve_implicit(mass, force, jacobian, start, step.dt, velocity, change)
        else:
            solve_explicit(mass, force, start, step.dt, velocity, change)

    @task(Stage.MOVE_ITERATE, reads=("particles.change",), writes=("particles.position",))
    def move(self, access: Access, step: Step) -> None:
        """Let positions follow the corrected velocities."""
        move_iterate(access["particles.change"], step.dt, access["particles.position"])

    @task(
        Stage.MOVE_PARTICLES,
        writes=(
            "particles.position",
            "particles.velocity",
            "particles.age",
            "particles.alive",
        ),
    )
    def age_and_keep_in_box(self, access: Access, step: Step) -> None:
        """Let particles age, stop them at walls, let them leave through open sides."""
        access["particles.age"][:] += access["particles.age"].dtype.type(step.dt)
        self.particles.wrap()
        domain = self.scope.domain
        if np.all(np.isinf(domain.lower)) and np.all(np.isinf(domain.upper)):
            return
        codes = {"wall": 1, "periodic": 2}
        sides = np.array([codes.get(c.kind, 0) for c in domain.boundaries], dtype=np.uint8)
        dtype: np.dtype[Any] = self.particles.dtype
        upper = domain.relative_upper.astype(dtype)
        keep_in_box(
            access["particles.position"],
            access["particles.velocity"],
            domain.relative_lower.astype(dtype),
            upper,
            np.nextafter(upper, upper.dtype.type(-np.inf)),
            np.ascontiguousarray(sides[0::2]),
            np.ascontiguousarray(sides[1::2]),
            access["particles.alive"],
        )

    @task(
        Stage.REMOVE_DEAD,
        reads=("particles.age", "particles.lifetime", "particles.alive"),
        layout=("particles",),
    )
    def remove_dead(self, access: Access, step: Step) -> None:
        """Mask particles that are too old, were killed, or are in a sink."""
        too_old = access["particles.age"] >= access["particles.lifetime"]
        dead = too_old | ~access["particles.alive"]
        for sink in self.fluid_sinks:
            dead |= sink.swallowed()
        if np.any(dead):
            self.particles.remove(dead)

    # -- what others ask -------------------------------------------------------------------

    def point_volumes(self) -> NDArray[np.float64]:
        """Balls."""
        return BALL * self.particles.local("radius").astype(np.float64) ** 3

    coupling_reads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "point_volumes": ("particles.radius",),
        "push_points": ("particles.mass",),
    }

    def pushed_channels(self) -> tuple[str, ...]:
        moved = () if self.is_joined else ("particles.position",)
        return ("particles.velocity", *moved)

    def push_points(self, impulse: NDArray[np.float64], dt: float) -> None:
        """Give particles an impulse at the end of a step; contacts see to where it takes them."""
        change = impulse / self.particles.local("mass")[:, None]
        self.particles.local("velocity")[:] += change
        if not self.is_joined:
            self.particles.local("position")[:] += dt * change

    def check_state(self) -> str | None:
        return implausible_particle(self.particles, float(self.scope.settings.maximum_speed))

    def time_step_limit(self) -> float:
        limit = super().time_step_limit()
        return limit if self.fluid is None else min(limit, self.fluid.time_step_limit())

    def newton_change(self) -> float:
        if self.is_joined:
            return 0.0  # the joint system knows
        speed = float(largest_speed(self.particles.local("velocity")))
        change = float(largest_speed(self.particles.local("change")))
        return change / speed if speed > 0.0 else change

    def count(self) -> int:
        return kept_count(self.particles)

    def output(self) -> Points:
        """Positions, velocities, ids and the user's channels, in world space."""
        kept = self.particles.kept()
        points = Points(world_positions(self.particles))
        for name in (*OUTPUT_CHANNELS, *self.derived, *self.vertex_channels()):
            points.set_channel("point", name, self.particles.local(name)[kept].copy())
        for name, array in self.details.items():
            points.set_channel("detail", name, array)
        return points

    def read(self, channel: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Ids and values of this rank's particles; positions in world space."""
        return read_particles(self.particles, channel)

    def write(self, channel: str, values: NDArray[Any]) -> None:
        """Set a channel of all particles, ordered by id; positions in world space."""
        write_particles(self.particles, channel, values)

    def state(self) -> dict[str, Any]:
        return {"emission_debt": self.emission_debt}

    def restore(self, state: dict[str, Any]) -> None:
        self.emission_debt = float(state["emission_debt"])


def _check_own_channel(name: str, array: NDArray[Any], label: str) -> None:
    """Refuse values that no particle can have; an endless lifetime is one that it can."""
    if array.dtype.kind != "f":
        return
    bad = np.isnan(array) if name == "lifetime" else ~np.isfinite(array)
    if name == "mass":
        bad |= ~(array > 0.0)
    if np.any(bad):
        row = int(np.flatnonzero(bad.reshape(len(array), -1).any(axis=1))[0])
        words = " kg is not finite and positive" if name == "mass" else " is not finite"
        raise InputError(f"{label}: {name}[{row}] = {array[row].tolist()}{words}")


def _in_ball(uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Vectors evenly distributed in the unit ball, from uniforms [n, 3]."""
    radius = np.cbrt(uniforms[:, 0])
    height = 2.0 * uniforms[:, 1] - 1.0
    ring = np.sqrt(np.maximum(0.0, 1.0 - height * height))
    angle = 2.0 * np.pi * uniforms[:, 2]
    directions = np.stack((ring * np.cos(angle), height, ring * np.sin(angle)), axis=1)
    vectors: NDArray[np.float64] = radius[:, None] * directions
    return vectors
