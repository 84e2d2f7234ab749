"""Collider: an animated mesh that fluids, and solids with a Collision Constraint, cannot pass.

A level set is one too, by its surface (`objects/colliders/level_set_mesh.py`).

Between two frames its points move on straight lines, or from sample to sample (see
`objects/basics/motion.py`). For every substep the Signed Distance of the mesh at the substep's end
is measured around the data that it may touch; `add_solids` brings it to the faces of a volume.
Along periodic axes the mesh stands in the box with all its images, whole periods away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, ChannelData
from loki_core.data.channels import check_values
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError, SetupError
from loki_core.kernels.colliders.solid_fractions import close_faces, measure_open_parts, unite_solid
from loki_core.kernels.colliders.solid_room import FAR
from loki_core.kernels.gas.extension import FARTHEST
from loki_core.objects.basics.capabilities import Faces
from loki_core.objects.basics.motion import PathInFrame, motion_samples
from loki_core.objects.basics.object import Object, Scope
from loki_core.objects.colliders.closed_faces import ClosedFaces
from loki_core.objects.colliders.cut_faces import CutFaces
from loki_core.objects.colliders.level_set_mesh import collider_mesh
from loki_core.objects.colliders.signed_distance import (
    MODES,
    Floats,
    Sample,
    SignedDistance,
    painted_channels,
)
from loki_core.objects.colliders.triangles import PlacedTriangles, Triangles
from loki_core.operators.operator import Operator
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

#: Open parts of faces below this are closed: what goes through a hundredth of a face is a hundred
#: times as fast in it, which spoils the solve and lets winds blow up.
SMALLEST_OPENING = 0.01
#: Second difference of the distance, in voxels, from which on it is not the curve of a surface with
#: a radius of two voxels or more, but an edge or a corner, where straight lines fit better.
LARGEST_BEND = 0.5
DEFAULT_BAND = 3.0  # voxels
#: Voxels of a shell's thickness from which on the faces that it closes have no gap between them,
#: whichever way it lies: the nodes within half of it are the diagonal of a voxel apart.
TIGHT_SHELL = 3.0**0.5
#: Most triangles or points that a mesh and its images along periodic axes may have together.
LARGEST_MESH = 1 << 24


class Collider(Behavior, kind="operator"):
    """Let an animated mesh stand in the way of the fluids and solids in the Group."""

    input: str | None = parameter(
        None,
        kind="stream",
        doc="Surface or Body, whose points may move and whose faces may change; or voxels with a "
        'level set "distance" and, if it moves, a "velocity".',
    )
    mode: str = parameter(
        "solid_inside",
        choices=MODES,
        doc="What is solid: the mesh's inside, its outside (a container), or a shell on its faces.",
    )
    thickness: float = parameter(
        0.0,
        unit="m",
        minimum=0.0,
        doc="Thickness of a shell; for liquids, gas and particle fluids at least one to two "
        "voxels, to be tight.",
    )
    surface_offset: float = parameter(
        0.0, unit="m", doc="By how much the solid grows; negative values shrink it."
    )
    cell_size: float | None = parameter(
        None,
        unit="m",
        minimum=1e-9,
        doc="Largest edge of the cells in which particle fluids and solids have the distance; none "
        "is a spacing of particles, or an eighth of a Bucket. Gas and liquids have it in their own "
        "voxels.",
    )
    domain_offset: float | None = parameter(
        None,
        unit="m",
        minimum=0.0,
        doc="How far from the surface the distance is known, at least; none is 3 voxels for gas "
        "and liquids, 6 cells for particle fluids and solids.",
    )
    slip: str = parameter(
        "auto",
        choices=("auto", "slip", "no_slip"),
        doc="Whether fluids slide along it; auto leaves it to their viscosity.",
    )
    channels: tuple[str, ...] = parameter(
        (), doc='Painted channels that the field carries; "Cd?" where the mesh has one.'
    )
    friction: float | None = parameter(
        None,
        minimum=0.0,
        doc="Coulomb's coefficient; a painted point, vertex or primitive channel of this name is "
        "used instead. None is the Collision Constraint's for solids, particles and droplets, and "
        "0 for particle fluids; grids have slip instead.",
    )
    velocity_scale: float = parameter(
        1.0, doc="Factor on the velocity that the solid hands on; its motion stays as it is."
    )

    def empty_stream(self, parameter_name: str) -> Surface:
        """No faces."""
        return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))

    def create(self, scope: Scope) -> list[Any]:
        """Make one field for each voxel size of the volumes, and one Action for each target."""
        from loki_core.objects.colliders.body_collider import (
            BodyCollider,  # which builds on this file
        )

        if self.input is None:
            return []
        volumes = [item for item in scope.objects if SolidBoundary.acts_on(item)]
        created: list[Any] = []
        for resolution in sorted({_resolution(item) for item in volumes}):
            targets = [item for item in volumes if _resolution(item) == resolution]
            collider = ColliderField(self, scope, resolution=resolution, targets=targets)
            created.append(collider)
            created += [SolidBoundary(self, item, collider) for item in targets]
        bodies = [item for item in scope.objects if BodyCollider.acts_on(item)]
        return created + [BodyCollider(self, item, scope) for item in bodies]


class SolidBoundary(Operator[Faces]):
    """Tells a volume of a collider, which it then takes in with all others."""

    def __init__(self, behavior: Collider, target: Faces, collider: ColliderField) -> None:
        super().__init__(behavior, target)
        self.collider = collider
        target.need_solids()
        target.colliders.append(collider)


@dataclass
class _Pose:
    """The mesh of one frame: triangles, positions [m] in world space, velocities, channels.

    `samples` are places [m] on the way from the frame before.
    """

    triangles: Triangles
    position: Floats
    velocity: Floats | None
    painted: dict[str, tuple[str, NDArray[Any]]]
    samples: list[NDArray[Any]] = field(default_factory=list)


@dataclass
class ColliderField(Object):
    """The mesh in motion, and the Signed Distance around it.

    Attributes:
        resolution: Voxels per Bucket edge.
        targets: Objects around whose Buckets the field is measured.
    """

    behavior: Collider
    cost = 0.5  # of a voxel around a mesh in motion

    resolution: int = 8
    targets: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._version = 0
        scope, settings = self.scope, self.scope.settings
        now = self.behavior.at(
            0.0, frames_per_second=settings.frames_per_second, start_frame=settings.start_frame
        )
        self.settings = now
        stream = self._mesh_now()
        painted = painted_channels(stream, self._channel_names(), label=self._input_label)
        voxel = scope.domain.bucket_size / self.resolution
        self.field = SignedDistance(
            scope.domain,
            name=self.path,
            band=DEFAULT_BAND * voxel if now.domain_offset is None else now.domain_offset,
            resolution=self.resolution,
            mode=now.mode,
            channels={
                name: int(np.prod(values.shape[1:], dtype=np.int64))
                for name, (_, values) in painted.items()
            },
            dtype=scope.dtype,
        )
        self._stream: Any = None
        self._start_stream = stream  # which has come no way
        self._frame = settings.start_frame
        self._current: _Pose | None = None
        self._previous: Floats | None = None
        self._built: tuple[Any, ...] | None = None  # what the field was measured for
        self._placed: Floats = np.empty((0, 3))  # where its points are, also after a restart
        self._around: tuple[Any, ...] = ()
        #: The mesh as it covers space, with the shape and the points that it was placed for.
        self._covering: tuple[tuple[float, float], Floats, PlacedTriangles] | None = None

    def _channel_names(self) -> tuple[str, ...]:
        """Painted channels that the field carries."""
        return tuple(self.behavior.channels)

    @property
    def _input_label(self) -> str:
        return f'{self.path}: input "{self.behavior.input}"'

    @property
    def data(self) -> dict[str, ChannelData]:
        return {"collider": self.field.volume}

    @property
    def volume(self) -> DiscreteVolume:
        """Voxels with "distance" [m], "velocity" [m/s], "primitive" and the carried channels."""
        return self.field.volume

    @property
    def version(self) -> int:
        """Changes whenever the field does."""
        return self._version

    @property
    def speed(self) -> float:
        """How fast its points are where it was measured, at most [m/s]."""
        velocity = np.zeros((0, 3)) if self._built is None else self._built[2]
        return float(np.linalg.norm(velocity, axis=1).max(initial=0.0))

    @property
    def slip(self) -> str:
        """Whether fluids slide along it: "auto", "slip" or "no_slip"."""
        return str(self.settings.slip)

    # -- the mesh --------------------------------------------------------------------------

    def _mesh_now(self) -> Any:
        """The mesh of the input, as it is at the current frame."""
        name = self.behavior.input
        assert name is not None  # or there is no collider
        return collider_mesh(self.scope.inputs[name], label=self._input_label)

    def ingest(self) -> None:
        """Measure the mesh of the start frame. Collective."""
        self._take_stream(self.scope.settings.start_frame)
        self._measure(1.0)

    def _take_stream(self, frame: int) -> None:
        """Let the mesh of the input be the one at the end of this frame."""
        stream = self._mesh_now()
        pose = self._current
        if frame != self._frame:
            self._previous = None if pose is None else pose.position
            self._frame = frame
        if stream is self._stream:
            return
        label = self._input_label
        given = stream.channels["point"].get("velocity")
        triangles = Triangles.of(stream, label=label)
        if given is not None:
            check_values(given, (3,), label=f'{label}: point channel "velocity"', unit="m/s")
        if pose is not None and not _same_topology(pose, triangles, stream.point_count):
            self._previous = None  # nobody knows which point has become which
        self._current = _Pose(
            triangles,
            np.asarray(stream.positions, np.float64),
            None if given is None else np.asarray(given, np.float64),
            painted_channels(stream, self._channel_names(), label=label),
            [] if stream is self._start_stream else motion_samples(stream, label=label),
        )
        self._stream = stream

    def _motion(self, fraction: float) -> tuple[Floats, Floats]:
        """World positions [m] at a part 0..1 of the frame, and velocities [m/s], of all points."""
        pose = self._current
        assert pose is not None
        position, before = pose.position, self._previous
        velocity = np.zeros_like(position) if pose.velocity is None else pose.velocity
        if before is not None and before.shape == position.shape:
            path = PathInFrame(before, position, pose.samples)
            if pose.velocity is None:
                velocity = path.velocity(fraction, self.scope.settings.frame_duration)
            position = path.position(fraction)
        return position, velocity * float(self.settings.velocity_scale)

    # -- the field -------------------------------------------------------------------------

    @task(Stage.UPDATE_COLLIDERS, layout=("collider",))
    def update_field(self, access: Access, step: Step) -> None:
        """Measure the distance to the mesh at the end of the substep."""
        self._take_stream(step.frame)
        settings = self.scope.settings
        elapsed = step.time + step.dt - settings.time_of_frame(step.frame - 1)
        fraction = elapsed / settings.frame_duration
        self._measure(1.0 if fraction > 1.0 - 1e-9 else max(0.0, fraction))

    def _measure(self, fraction: float) -> None:
        pose = self._current
        assert pose is not None
        position, velocity = self._motion(fraction)
        shape = (self._thickness(), float(self.settings.surface_offset))
        wanted = (pose.triangles, position, velocity, shape)
        around = self._layout()
        if not self._is_built(wanted):
            self._version += 1
            self.field.thickness, self.field.surface_offset = shape
            triangles, places, points = self._with_images(pose.triangles, position)
            self.field.build(
                triangles,
                places,
                velocity=velocity[points],
                painted={
                    name: (at, values[points] if at == "point" else values)
                    for name, (at, values) in pose.painted.items()
                },
                within=self._buckets_of_targets(),
            )
        elif self.scope.domain.comm.any(around != self._around):
            self._version += 1
            self.field.move_within(self._buckets_of_targets())
        self._built, self._around, self._placed = wanted, around, position

    def _with_images(
        self, triangles: Triangles, position: Floats
    ) -> tuple[Triangles, Floats, NDArray[np.intp]]:
        """The mesh as it stands in the box, with its images along periodic axes.

        Returns:
            Its triangles, places relative to the domain's origin [m], and for each of these the
            point of the mesh that is there.
        """
        place = self.scope.domain.to_relative(position)
        points = np.arange(len(place))
        offsets = self._image_offsets(triangles, place)
        if not np.any(offsets) and len(offsets) == 1:
            return triangles, place, points
        copies = len(offsets)
        first = len(place) * np.arange(copies, dtype=np.int32)[:, None, None]
        # Vertices and primitives stay those of the mesh itself: what is painted there is shared.
        images = replace(
            triangles,
            points=(triangles.points + first).reshape(-1, 3),
            vertices=np.tile(triangles.vertices, (copies, 1)),
            primitives=np.tile(triangles.primitives, copies),
            border=(triangles.border + first).reshape(-1, 2),
            excess=np.tile(triangles.excess, copies),
        )
        return images, (place + offsets[:, None]).reshape(-1, 3), np.tile(points, copies)

    def _thickness(self) -> float:
        """Thickness of a shell [m]: enough for the grid to have no hole in it."""
        return max(float(self.settings.thickness), TIGHT_SHELL * self.field.voxel_size)

    _beyond = 0.0  # how far outside of the box anything may ask for the distance [m]

    def _box(self) -> GridDomain:
        """The domain in whose box the mesh stands."""
        return self.scope.domain

    def _image_offsets(self, triangles: Triangles, place: Floats) -> Floats:
        """By how much the images that reach into the box are moved [m], shape [images, 3]."""
        domain, corners = self._box(), place[triangles.points].reshape(-1, 3)
        if not any(domain.periodic) or triangles.count == 0 or not np.isfinite(corners).all():
            return np.zeros((1, 3))  # what is not finite is refused where it is measured
        # Samples reach into the voxel beyond the band.
        reach = self.field.limit + self.field.voxel_size + self._beyond
        moves = [np.zeros(1)] * 3
        for axis in np.flatnonzero(domain.periodic):
            period = domain.upper[axis] - domain.lower[axis]
            lower, upper = corners[:, axis].min() - reach, corners[:, axis].max() + reach
            first = np.ceil((domain.relative_lower[axis] - upper) / period)
            last = np.floor((domain.relative_upper[axis] - lower) / period)
            self._refuse_many(int(last - first) + 1, triangles, place)
            moves[axis] = period * np.arange(first, last + 1.0)
        self._refuse_many(math.prod(len(some) for some in moves), triangles, place)
        return np.stack(np.meshgrid(*moves, indexing="ij"), axis=-1).reshape(-1, 3)

    def _refuse_many(self, images: int, triangles: Triangles, place: Floats) -> None:
        if images > 1 and images * max(triangles.count, len(place)) > LARGEST_MESH:
            raise InputError(
                f"{self._input_label}: {images} images of its {triangles.count} triangles reach "
                "into the periodic box, more than can be measured; cut the mesh to the box"
            )

    def _is_built(self, wanted: tuple[Any, ...]) -> bool:
        built = self._built
        return (
            built is not None
            and built[0] is wanted[0]
            and np.array_equal(built[1], wanted[1])
            and np.array_equal(built[2], wanted[2])
            and built[3] == wanted[3]
        )

    def _layout(self) -> tuple[Any, ...]:
        """What changes with the Buckets of the targets."""
        return tuple(
            holder.layout_version for item in self.targets for holder in item.data.values()
        )

    def _buckets_of_targets(self) -> NDArray[np.int32]:
        parts = [np.empty((0, 3), np.int32)]
        for item in self.targets:
            parts += [holder.buckets.local_coords for holder in item.data.values()]
        return np.concatenate(parts)

    def sample(self, position: NDArray[Any]) -> Sample:
        """Sample at positions [n, 3] relative to the domain's origin, in Buckets of this rank."""
        return self.field.sample(position)

    def solid_mesh(self) -> PlacedTriangles:
        """The mesh where it was measured last, or will be first; the same while its solid is."""
        if self._current is None:
            self._take_stream(self.scope.settings.start_frame)
        pose = self._current
        assert pose is not None
        points = self._placed if len(self._placed) else pose.position
        shape = (self._thickness(), float(self.settings.surface_offset))
        known = self._covering
        if known is None or known[0] != shape or not np.array_equal(known[1], points):
            triangles, places, _ = self._with_images(pose.triangles, points)
            mesh = triangles.at(places, label=self._input_label)
            self._covering = known = (shape, points, mesh)
        return known[2]

    def covers(self, position: Floats) -> NDArray[np.bool_]:
        """Which positions [n, 3] relative to the domain's origin are in the solid.

        By the mesh itself: the field is measured only where its targets are.
        """
        from loki_core.objects.particles.mesh_to_particles import Nearest

        mesh = self.solid_mesh()
        if mesh.is_empty or not len(position):
            return np.zeros(len(position), bool)
        offset = float(self.settings.surface_offset)
        if self.field.mode == "shell":
            reach = 0.5 * self._thickness() + offset
            return np.asarray(Nearest(mesh, position).distance <= reach)
        inside = mesh.winding(position) > 0.5
        covered = inside != (self.field.mode == "solid_outside")
        if offset:
            near = Nearest(mesh, position).distance <= abs(offset)
            covered = (covered | near) if offset > 0.0 else (covered & ~near)
        return np.asarray(covered)

    # -- accounts and state ----------------------------------------------------------------

    def output(self) -> Voxels:
        """Return this rank's part of the field, as voxels in world space."""
        volume = self.volume
        voxels = Voxels(
            volume.buckets.local_coords,
            self.field.voxel_size,
            origin=self.scope.domain.origin,
            block_resolution=self.resolution,
        )
        for name, channel in volume.channels.items():
            outside = channel.background[0]
            voxels.set_channel(name, volume.local(name).copy(), background=outside)
        return voxels

    def count(self) -> int:
        """Voxels on this rank."""
        return int(self.volume.buckets.local_count * self.resolution**3)

    def state(self) -> dict[str, Any]:
        """Return the meshes that the next frame's motion starts from."""
        pose = self._current
        assert pose is not None
        before = self._previous
        return {
            "frame": self._frame,
            "position": pose.position,
            "previous": np.empty((0, 3)) if before is None else before,
            "triangles": pose.triangles.to_document(),
            "built": self._placed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take the meshes back; the next substep measures anew, what it did before."""
        before = np.asarray(state["previous"], np.float64)
        position = np.asarray(state["position"], np.float64)
        triangles = Triangles.from_document(state["triangles"])
        self._frame = int(state["frame"])
        self._previous = before if len(before) == len(position) else None
        self._current = _Pose(triangles, position, None, {})
        self._stream = None
        self._built = None
        self._placed = np.asarray(state["built"], np.float64)
        if len(self._placed) == len(position):  # else nothing was measured yet
            self.field.follow(*self._with_images(triangles, self._placed)[:2])


def add_solids(
    volume: DiscreteVolume,
    colliders: Sequence[ColliderField | SignedDistance],
    *,
    grips: Sequence[int] | None = None,
    smallest: float = SMALLEST_OPENING,
) -> tuple[CutFaces, ClosedFaces]:
    """Close the faces and voxels of a volume that colliders cover. Collective.

    Multiplies "open_fraction" by the open part of each face, fills "solid_velocity" (where the
    volume has it) on faces that are not wholly open, and sets "kind" to 0 in voxels all of whose
    faces are closed. What the volume wrote there for its box before stays in force. "open_part",
    where the volume has it, becomes the part of every voxel that no solid takes, "node_distance"
    the distance at the lower corners of voxels, in voxels.

    Args:
        volume: Of the same voxel size as the colliders, on level 0.
        grips: What each collider does to a fluid (kernels/gas/extension.py): written to
            "solid_grip" on the faces that solids cut, of which it is the nearest one.
        smallest: Open parts below this are closed.

    Returns:
        The faces that are partly open, and those that are closed beside the surface, of this rank.
    """
    fields = [one.field if isinstance(one, ColliderField) else one for one in colliders]
    buckets, resolution = volume.buckets, volume.channel("open_fraction").resolution
    found = [buckets.index_in(one.volume.buckets)[: buckets.local_count] for one in fields]
    solid = []
    for one, rows in zip(fields, found, strict=True):
        if one.resolution != resolution:
            raise SetupError(
                f"{one.name} has {one.resolution} voxels per Bucket edge, {volume.name} "
                f"{resolution}; a collider's field follows its volume"
            )
        one.refresh_ghosts()
        one.volume.refresh("distance", halo=2, corners=True)
        is_solid = np.zeros(buckets.local_count, bool)
        is_solid[rows < 0] = one.is_solid(buckets.local_coords[rows < 0])
        solid.append(is_solid)
    touched = np.zeros(buckets.local_count, bool)
    for rows, is_solid in zip(found, solid, strict=True):
        touched |= (rows >= 0) | is_solid
    chosen = np.flatnonzero(touched).astype(np.int32)
    nodes = np.empty((0, 4, resolution + 1, resolution + 1, resolution + 1))
    if len(chosen):
        nodes, wall, grip, nearest = _unite(
            fields, [f[chosen] for f in found], [s[chosen] for s in solid], grips
        )
        has_velocity = "solid_velocity" in volume.channels
        opening = volume.with_ghosts("open_fraction")
        moving = volume.with_ghosts("solid_velocity") if has_velocity else opening
        kind = volume.with_ghosts("kind")
        before = volume.local("open_fraction")[chosen]
        close_faces(nodes, wall, chosen, float(smallest), opening, moving, has_velocity, kind)
        if grip is not None:  # on the faces that solids close, not on those of the box
            is_cut = volume.local("open_fraction")[chosen] != before
            volume.local("solid_grip")[chosen] = np.where(is_cut, grip, 0)
            volume.mark_written("solid_grip")
        if "solid_distance" in volume.channels:
            volume.local("solid_distance")[chosen] = np.minimum(nearest, FARTHEST)
            volume.mark_written("solid_distance")
    if "open_part" in volume.channels:
        volume.local("open_part")[:] = 1.0
        if len(chosen):
            measure_open_parts(nodes, chosen, volume.local("open_part"))
    if "node_distance" in volume.channels:
        _keep_nodes(volume, nodes, chosen)
    for name in ("open_fraction", "solid_velocity", "kind"):
        if name in volume.channels:
            volume.mark_written(name)
    return CutFaces.of(volume, nodes, chosen), ClosedFaces.of(volume, nodes, chosen, smallest)


def _keep_nodes(volume: DiscreteVolume, nodes: NDArray[Any], rows: NDArray[np.int32]) -> None:
    """Keep the distance at the lower corners of voxels, in voxels, FAR at most."""
    r = volume.channel("node_distance").resolution
    kept = volume.local("node_distance")
    kept[:] = FAR
    scale = r / volume.domain.bucket_size
    kept[rows, 0] = np.clip(nodes[:, 0, :r, :r, :r] * scale, -FAR, FAR)
    volume.mark_written("node_distance")


def _unite(
    fields: Sequence[SignedDistance],
    rows: Sequence[NDArray[np.int32]],
    solid: Sequence[NDArray[np.bool_]],
    grips: Sequence[int] | None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint8] | None, NDArray[Any]]:
    """Nodes (see solid_fractions), and wall velocities, grips and distances on faces, of all."""
    count, r = len(rows[0]), fields[0].resolution
    nodes = np.zeros((count, 4, r + 1, r + 1, r + 1))
    nodes[:, 0] = np.inf
    nearest = np.full((count, 3, r, r, r), np.inf)
    wall = np.zeros((count, 3, r, r, r))
    grip = None if grips is None else np.zeros(wall.shape, np.uint8)
    for number, (one, found, is_solid) in enumerate(zip(fields, rows, solid, strict=True)):
        held = one.volume
        before = nearest.copy() if grips is not None else nearest
        unite_solid(
            held.with_ghosts("distance"),
            held.with_ghosts("velocity"),
            held.with_ghosts("primitive"),
            held.buckets.neighbours,
            found,
            is_solid,
            one.band,
            LARGEST_BEND * one.voxel_size,
            nodes,
            nearest,
            wall,
        )
        if grip is not None and grips is not None:
            grip[nearest < before] = grips[number]
    return nodes, wall, grip, nearest


def _resolution(item: Faces) -> int:
    return int(item.data["volume"].channel("velocity").resolution)


def _same_topology(pose: _Pose, triangles: Triangles, points: int) -> bool:
    return len(pose.position) == points and np.array_equal(pose.triangles.points, triangles.points)
