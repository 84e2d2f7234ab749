"""Solid: the base of Objects whose points belong to bodies, which are kept whole and in order.

A solid is always part of the joint system (`objects/solids/joinable.py`). What it takes from its
input, what is prescribed and moves with the input, what overrides its parameters, and what it looks
like are the same for all of them and live here; a subclass adds what else has unknowns, masses and
rest shapes. What is prescribed stands where it has to be at the end of the step before the first
iteration begins, and is no unknown any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loki_core.behavior import Behavior
from loki_core.data.accessors import Access, Declaration
from loki_core.data.body_particles import BodyParticles
from loki_core.data.channels import check_values, motion_channels
from loki_core.data.mesh import Mesh
from loki_core.errors import InputError, SetupError
from loki_core.kernels.particles.lagrangian_step import first_bad_row
from loki_core.objects.basics.capabilities import Bodies
from loki_core.objects.basics.motion import motion_samples
from loki_core.objects.basics.override_channels import override_names, take_painted
from loki_core.objects.basics.point_channels import PointChannels
from loki_core.objects.solids.goals import input_places, start_goals, take_goals
from loki_core.objects.solids.joinable import Joinable
from loki_core.objects.solids.layout import Layout
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, Weights, task
from loki_core.sparse_parameters import Resolved, channel_names, resolve

Array = NDArray[Any]
Float = NDArray[np.float64]
Int64 = NDArray[np.int64]

#: Channels that the Object makes itself; all others of the input are the user's.
OWN_CHANNELS = (
    "id",
    "body",
    "position",
    "velocity",
    "mass",
    "radius",
    "force",
    "jacobian",
    "start_position",
    "start_velocity",
    "goal",
    "goal_before",
    "contact",
    "rest_size",
    "rest_position",
)
#: Channels of the input that say what is prescribed.
PINS = ("pinned", "twist_pinned")
POINT_UNITS = {"velocity": "m/s", "radius": "m"}
OUTPUT_CHANNELS = ("id", "velocity", "radius")


class Solid(Joinable, Bodies):
    """Particles that belong to bodies; what else has unknowns comes in subclasses.

    Class attributes, set by the author:
        stream_types: Types of its input, and the word for them.
        section: Own parameters that masses follow from.

    Attributes:
        topology: What is kept of the input between frames: its bodies, without their points.
        local_bodies: Numbers of the local ones.
        offsets: First vertex of each of them, and the end.
    """

    kept_by = "body"
    lets_input_go = True
    cost = 0.75  # of a vertex, its share of the joint system included
    stream_types: ClassVar[tuple[tuple[type[Mesh], ...], str]]
    section: ClassVar[tuple[str, ...]] = ()

    coupling_reads: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "held_points": ("particles.pinned",),
        "push_points": ("particles.pinned", "particles.mass"),
        "account": ("particles.pinned", "particles.body"),
    }

    particles: BodyParticles
    topology: Layout
    local_bodies: Int64
    offsets: Int64

    def __post_init__(self) -> None:
        super().__post_init__()
        self.particles = BodyParticles(self.scope.domain, name=self.path)
        for name, shape, default in (
            ("velocity", (3,), 0.0),
            ("mass", (), 1.0),
            ("radius", (), 1.0),
            ("force", (3,), 0.0),
            ("start_position", (3,), 0.0),
            ("start_velocity", (3,), 0.0),
        ):
            self.particles.add_channel(name, np.float64, shape, default=default)
        self.particles.add_channel("pinned", np.uint8)
        self._paints_radius = False
        self._has_samples = False  # whether the input tells of the way through frames
        self._sample_count = 0  # places of points on their way through the frame
        self._start_positions: Any = None  # of the input, while it is there
        self._frame_has_goals = False  # whether those of the frame under way are known

    # -- the author's part -----------------------------------------------------------------

    def layout_of(self, stream: Any) -> Layout:
        """Return what is to be kept of an input."""
        raise SetupError(f"{type(self).__name__} is a Solid and must define layout_of(stream)")

    def primitive_channels(self) -> Mapping[str, Array]:
        """Channels of primitives here, by which these may override parameters."""
        return {}

    def primitives_of_vertices(self) -> tuple[int, Int64]:
        """How many primitives these channels are for, and which each local vertex is part of."""
        return 0, np.zeros(self.particles.count, np.int64)

    def check_input(self, stream: Any) -> None:
        """Refuse an input that cannot be simulated."""

    def append_parts(self, stream: Any, bodies: Int64) -> None:
        """Add what there is of these bodies beside points; ids are the stream's own numbers."""

    def find_parts(self) -> None:
        """Find rows of the parts of local bodies, after bodies came or went."""

    def has_parts(self) -> bool:
        """Whether all parts that the input says are there, after a restart."""
        return True

    def measure(self) -> None:
        """Take sizes at rest from where points are at the start, and the shape at rest."""

    def weigh(self) -> None:
        """Find radii, masses and whatever inertia there is, from parameters and sizes at rest."""

    def pin(self, stream: Any) -> None:
        """Mark what is prescribed."""
        self.pin_points(stream)
        self.particles.mark_written("pinned")

    # -- start -----------------------------------------------------------------------------

    def ingest(self) -> None:
        """Take the input's bodies, each rank a share; they find their ranks."""
        stream = self._stream(self.scope.inputs)
        self.topology = self.layout_of(stream)
        self.check_input(stream)
        self._take(stream)
        self._start_positions = weakref.ref(stream.positions)
        self.overrides.add(("attached",), stream)
        self.details = {name: one.copy() for name, one in stream.channels["detail"].items()}
        comm, bodies = self.scope.domain.comm, self.topology.body_count
        mine = np.arange(bodies * comm.rank // comm.size, bodies * (comm.rank + 1) // comm.size)
        self._append_points(stream, mine)
        self.append_parts(stream, mine)
        self.redistribute()
        self.measure()
        self.weigh()
        self.pin(stream)
        self.find_rest_shape()

    def find_rest_shape(self) -> None:
        """Take the shape without stress from the start, when all else is known."""

    def _take(self, stream: Any) -> None:
        """Keep of a frame's input what the frame needs of it."""
        self._paints_radius = "radius" in stream.channels["point"]

    @property
    def input_label(self) -> str:
        """What messages call the input."""
        return f'{self.path}: input "{self.settings.input}"'

    def _stream(self, inputs: Mapping[str, Any]) -> Any:
        stream, (types, words) = inputs[self.settings.input], self.stream_types
        if not isinstance(stream, types):
            raise InputError(f"{self.input_label} is a {type(stream).__name__}; {words} expected")
        return stream

    def _append_points(self, stream: Any, bodies: Int64) -> None:
        """Add the points of these bodies; ids are the stream's own numbers."""
        body, ids = self.topology.points_of(bodies)
        position = self.scope.domain.to_relative(stream.positions[ids])
        values: dict[str, Array] = {"position": position, "body": body}
        motion = motion_channels(stream.channels["point"])
        self._has_samples = bool(motion)
        for name, array in stream.channels["point"].items():
            if name not in (*OWN_CHANNELS, *PINS, *motion):
                self.particles.add_channel(name, array.dtype, array.shape[1:])
                values[name] = array[ids]
        for name, shape in (("velocity", (3,)), ("radius", ())):
            if name in stream.channels["point"]:
                values[name] = self.point_channel(stream, name, shape)[ids]
        self.particles.next_id = stream.point_count
        self.particles.append(values, ids=ids)

    def point_channel(self, stream: Any, name: str, shape: tuple[int, ...]) -> Array:
        """A point channel of the input, checked."""
        array: Array = stream.channels["point"][name]
        unit = POINT_UNITS.get(name, "")
        label = f'{self.input_label}: point channel "{name}"'
        check_values(array, shape, label=label, unit=unit)
        return array

    def pin_points(self, stream: Any) -> None:
        """Mark the points that the input says are prescribed, and no others."""
        pinned = self.particles.local("pinned")
        pinned[:] = 0
        if "pinned" in stream.channels["point"]:
            ids = self.particles.local("id")
            pinned[:] = self.point_channel(stream, "pinned", ())[ids] != 0

    def redistribute(self) -> None:
        """Move whole bodies to their ranks. Collective."""
        bodies, owners_of_bodies = self.bodies(), self.owners()  # both in ascending order
        for system in self.data.values():
            assert isinstance(system, BodyParticles)
            owners = owners_of_bodies[np.searchsorted(bodies, system.local("body"))]
            system.settle(owners)
        self._find_bodies()

    def bodies(self) -> Int64:
        """Numbers of the local bodies."""
        bodies = self.particles.local("body")
        return bodies[self.particles.body_offsets()[:-1]]

    def _find_bodies(self) -> None:
        """Take note of the local bodies, after some came or went."""
        self.local_bodies, self.offsets = self.bodies(), self.particles.body_offsets()
        self.find_parts()

    # -- parameters ------------------------------------------------------------------------

    def override_places(self) -> dict[str, Mapping[str, Array]]:
        """Primitives may override, too."""
        return {
            "detail": self.details,
            "primitive": self.primitive_channels(),
            "vertex": self.vertex_channels(),
        }

    def resolve(
        self,
        behavior: Behavior,
        name: str,
        *,
        label: str,
        dtype: DTypeLike,
        time: float | None = None,
    ) -> Resolved:
        """A parameter for every local vertex, now or at a time."""
        primitives, of_vertex = self.primitives_of_vertices()
        return resolve(
            behavior,
            name,
            behavior_label=label,
            channels=self.override_places(),
            counts={"vertex": self.particles.count, "primitive": primitives},
            time=self.time if time is None else time,
            dtype=dtype,
            primitive_of_vertex=of_vertex,
            frames_per_second=self.scope.settings.frames_per_second,
            start_frame=self.scope.settings.start_frame,
        )

    def per_vertex(self, behavior: Behavior, name: str, *, label: str) -> Float:
        """A parameter spelled out for every local vertex."""
        values, step = self.resolve(behavior, name, label=label, dtype=np.float64)
        return values if step else np.full(self.particles.count, values[0])

    def per_vertex_or(
        self, behavior: Behavior, name: str, derived: Callable[[], Array], *, label: str
    ) -> Float:
        """A parameter that may be none, and is then derived; scales apply to either."""
        if getattr(behavior, name) is not None or self.is_painted(behavior, name):
            return self.per_vertex(behavior, name, label=label)
        scale = self.per_vertex(behavior.replace(**{name: 1.0}), name, label=label)
        values: Float = scale * derived()
        return values

    def own(self, name: str) -> Float:
        """One of its own parameters for every local vertex."""
        return self.per_vertex(self.behavior, name, label=self.path)

    def painted(self, name: str) -> tuple[str, ...]:
        """Channels that override one of its own parameters, as Tasks declare them."""
        present, names = self.vertex_channels(), channel_names(type(self.behavior), name)
        candidates = (one for own in names for one in (own, f"{own}_scale"))
        return tuple(f"particles.{one}" for one in candidates if one in present)

    def vertex_channels(self) -> Mapping[str, Array]:
        present = self.particles.channels
        own = {*OWN_CHANNELS, "pinned", *motion_channels(present)}
        if self._paints_radius:
            own.remove("radius")
        return PointChannels(self.particles, [name for name in present if name not in own])

    # -- frames of the input ---------------------------------------------------------------

    def update_input(self, inputs: Mapping[str, Any]) -> None:
        """Prescribed points go where the input's points are at the end of the frame."""
        super().update_input(inputs)
        stream = self._stream(inputs)
        self.topology.refuse_other(stream, label=self.input_label)
        self.check_input(stream)
        self.start_goals()
        self.topology = self.topology.followed(stream)
        self._take(stream)
        if not self._frame_has_goals:  # else the same input comes again, after a restart
            self.take_goals(stream)
            self._frame_has_goals = True
        self._take_samples(stream)
        self.pin(stream)

    def start_goals(self) -> None:
        """Keep where what is prescribed stands before the input moves it for the first time."""
        start_goals(self)

    def take_goals(self, stream: Any) -> None:
        """Let what is prescribed go where the input is at the end of a new frame."""
        take_goals(self, stream)

    def _take_samples(self, stream: Any) -> None:
        """Keep places of the local points on their way through the frame, if there are any."""
        came_no_way = stream.positions is self._start_positions()
        samples = [] if came_no_way else motion_samples(stream, label=self.input_label)
        self._sample_count = len(samples)
        for number, sample in enumerate(samples, 1):
            self.particles.add_channel(f"motion_{number}", np.float64, (3,))
            self.particles.local(f"motion_{number}")[:] = input_places(self, sample)

    def motion_samples(self) -> list[Array]:
        """Places of prescribed points on their way through the frame, if the input has them."""
        # They come and go with the input's frames, after Tasks have declared what they touch, and
        # are nobody else's: so their arrays are taken as they are.
        names = (f"motion_{n + 1}" for n in range(self._sample_count))
        return [self.particles.channels[name].values[: self.particles.count] for name in names]

    def part_of_frame(self, step: Step) -> float:
        """How much of the frame is over at the end of the step."""
        settings = self.scope.settings
        end = step.time + step.dt - settings.time_of_frame(step.frame - 1)
        return min(1.0, end / settings.frame_duration)

    def overriding_stream(self) -> Any:
        return self._stream(self.scope.inputs)

    def take_overrides(self, stream: Any, changed: Mapping[str, list[str]]) -> None:
        """Follow what is painted on points, by id; what is heavier has a new mass."""
        super().take_overrides(stream, changed)
        names = {name for some in changed.values() for name in some}
        is_heavier = bool(names.intersection(override_names(type(self.behavior), *self.section)))
        painted = [name for name in changed["point"] if name != "radius"]
        if is_heavier and self._paints_radius:  # else it would be scaled twice
            painted.append("radius")
        rows = self.particles.local("id")
        take_painted(
            self.particles, np.arange(len(rows)), stream, rows, painted, label=self.input_label
        )
        if is_heavier:
            self.weigh()

    @task(Stage.FRAME_END)
    def end_frame(self, access: Access, step: Step) -> None:
        """Let the next input bring new goals for prescribed points."""
        self._frame_has_goals = False

    # -- unknowns --------------------------------------------------------------------------

    def joint_declaration(self, name: str) -> Declaration:
        """Bodies are known; what is prescribed is pinned."""
        touched = super().joint_declaration(name)
        return {
            "number": Declaration(),
            "reset": Declaration(reads=("particles.pinned",)),
        }.get(name, touched)

    def needs_numbers(self) -> bool:
        """Bodies are in the order of their ids, so rows change only where bodies come or go."""
        return True

    def inertial_energy(self, change: NDArray[np.float64], dt: float) -> NDArray[np.float64]:
        """Kinetic potential of each body."""
        energy, offsets = super().inertial_energy(change, dt), self.offsets
        if len(offsets) == 1:
            return np.zeros(0)
        summed: NDArray[np.float64] = np.add.reduceat(energy, offsets[:-1])
        return summed

    # -- what it looks like ----------------------------------------------------------------

    def read(self, channel: str) -> tuple[Int64, Array]:
        """Ids and values of vertices, or of edges for "edges.<channel>"; positions in world."""
        system, _, name = channel.rpartition(".")
        holder = self.data[system] if system else self.particles
        assert isinstance(holder, BodyParticles)
        values = holder.local(name)
        if channel == "position":
            values = self.scope.domain.to_world(values)
        return holder.local("id"), values

    def write(self, channel: str, values: Array) -> None:
        """Set a channel of all vertices, or edges, ordered by id; positions in world space."""
        system, _, name = channel.rpartition(".")
        holder = self.data[system] if system else self.particles
        assert isinstance(holder, BodyParticles)
        values = np.asarray(values)
        expected = (holder.next_id, *holder.channel(name).shape)
        if values.shape != expected:
            raise InputError(
                f"{self.path}.{channel}: shape {values.shape} given, {expected} expected"
            )
        chosen = values[holder.local("id")]
        holder.local(name)[:] = (
            self.scope.domain.to_relative(chosen) if channel == "position" else chosen
        )
        holder.mark_written(name)
        if channel == "position":
            self.were_moved()

    def shown(self, stream: Any) -> Any:
        """A stream of the local points, with velocities, radii and the user's channels on them."""
        for name in dict.fromkeys((*OUTPUT_CHANNELS, *self.vertex_channels())):
            stream.set_channel("point", name, self.particles.local(name).copy())
        for name, array in self.details.items():
            stream.set_channel("detail", name, array)
        return stream

    def state(self) -> dict[str, Any]:
        """Whether prescribed points are on their way to the goals of a frame."""
        return {"frame_has_goals": self._frame_has_goals}

    def restore(self, state: dict[str, Any]) -> None:
        """Find the bodies again, which are whole in every part of a state.

        They stay where they were, though their roots may have left the Buckets of this rank since:
        a run that goes on without a restart leaves them there too, until it balances its load.

        Raises:
            InputError: It is a state of other bodies than those of the input.
        """
        self._frame_has_goals = bool(state.get("frame_has_goals", False))
        given, bodies = self.particles.next_id, self.bodies()
        fits = given == self.topology.point_count
        fits &= int(bodies.max(initial=-1)) < self.topology.body_count
        if fits:
            sizes = np.diff(self.particles.body_offsets())
            fits = np.array_equal(sizes, self.topology.sizes[bodies])
        if fits:
            self._find_bodies()
            fits = self.has_parts()
        if not fits:
            raise InputError(
                f"{self.input_label} has {self.topology.words}, and the state has {given} points, "
                "or joins them otherwise"
            )

    # -- what others ask -------------------------------------------------------------------

    def occupied_buckets(self) -> NDArray[np.int32]:
        return self.particles.occupied_buckets()

    def held_points(self) -> NDArray[np.uint8]:
        held: NDArray[np.uint8] = self.particles.local("pinned")
        return held

    def push_points(self, impulse: NDArray[np.float64], dt: float) -> None:
        """Give points an impulse; they move by it in the next step, as far as bodies let them."""
        free = self.particles.local("pinned") == 0
        change = np.where(free[:, None], impulse / self.particles.local("mass")[:, None], 0.0)
        self.particles.local("velocity")[:] += change

    def check_state(self) -> str | None:
        position, velocity = self.particles.local("position"), self.particles.local("velocity")
        maximum = float(self.scope.settings.maximum_speed)
        reach = self.scope.domain.reach
        row = int(first_bad_row(position, velocity, maximum, reach))
        if row < 0:
            return None
        body = int(self.particles.local("body")[row])
        return (
            f"point {int(self.particles.local('id')[row])} of body {body} has position "
            f"{position[row].tolist()} m and velocity {velocity[row].tolist()} m/s: not finite, "
            f"faster than {maximum:g} m/s, or farther than {reach:g} m from the domain's origin"
        )

    def count(self) -> int:
        return self.particles.count

    def weights(self) -> Weights:
        """Bodies weigh where their first particle is."""
        counts = np.diff(self.particles.body_offsets()).astype(np.float64)
        return self.particles.home_keys(), self.element_cost * counts

    def owners(self) -> NDArray[np.int64]:
        """Rank that each local body belongs to."""
        return self.scope.domain.body_owners(self.particles.home_keys()).astype(np.int64)
