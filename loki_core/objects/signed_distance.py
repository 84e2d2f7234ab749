"""Signed Distance: the space near a mesh, as a narrow band of voxels on the Grid Domain's Buckets.

    distance   to the surface of the solid [m], below 0 inside, +-band farther away
    primitive  the closest primitive of the mesh, -1 beyond the band
    velocity   of the closest point [m/s]
    ...        any painted channel, at the closest point

What is solid is the inside of the mesh, its outside (a container), or a shell around its faces.
Inside is where the winding number is above 1/2 (Jacobson et al. 2013), which also means something
on meshes that are open, not manifold, or intersect themselves. The mesh is whole on every rank;
every rank measures its own Buckets, and a Bucket's values depend on the mesh alone. Buckets
beyond the band are not stored: `is_solid` knows on which side they lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loki_core.data.body import FACES, Body
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.mesh import Mesh
from loki_core.data.surface import Surface
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_core.kernels.bucket_hash import pack_buckets, unpack_buckets
from loki_core.kernels.triangle_field import (
    SIGNED,
    UNSIGNED,
    carry_channel,
    find_divided,
    measure_buckets,
    sample_field,
    shape_distance,
)
from loki_core.kernels.triangle_topology import first_of_repeats, fuse_points, orient
from loki_core.kernels.triangle_tree import (
    TriangleTree,
    build_tree,
    fill_winding_numbers,
    find_near_cubes,
)

Floats = NDArray[np.float64]
Int32 = NDArray[np.int32]

MODES = ("solid_inside", "solid_outside", "shell")
#: Voxels beyond the band within which Buckets are stored too, so that a sample between a stored
#: Bucket and a missing one finds the same value in both.
MARGIN = 0.87
#: Most Buckets that a rank measures, of 512 voxels and 20 bytes each.
LARGEST_FIELD = 1 << 21
BATCH = 4096  # Buckets that are measured at a time


@dataclass(frozen=True)
class Triangles:
    """Triangles of a mesh, made consistent; which points, vertices and primitives they come from.

    Attributes:
        points: Points of the mesh, shape [t, 3].
        vertices: Vertices of the mesh, shape [t, 3].
        primitives: Primitives of the mesh, shape [t].
        border: Points at the ends of edges that bound holes, shape [e, 2].
        excess: How many more triangles pass such an edge one way than the other, shape [e].
    """

    points: Int32
    vertices: Int32
    primitives: Int32
    border: Int32
    excess: Floats

    @classmethod
    def of(cls, mesh: Any, *, label: str) -> Triangles:
        """Return the triangles of a Surface, or of the boundary of a Body.

        Raises:
            InputError: It is another type of stream, or a point is not finite.
        """
        if isinstance(mesh, Body):
            vertices = _boundary_vertices(mesh)
            points = mesh.tetrahedra.reshape(-1)[vertices]
            primitives = (vertices[:, 0] // 4).astype(np.int32)
        elif isinstance(mesh, Surface):
            vertices, primitives = mesh.triangle_corners(), mesh.triangle_faces()
            points = mesh.face_vertices[vertices]
        else:
            raise InputError(
                f"{label} is a {type(mesh).__name__}; a collider is a Surface or a Body"
            )
        mesh.validate(label)
        fused = fuse_points(np.asarray(mesh.positions, np.float64))[points].reshape(-1, 3)
        keep = first_of_repeats(fused)
        turned, edges, excess = orient(fused[keep])
        points = points[keep]
        ends = (points[edges // 3, edges % 3], points[edges // 3, (edges + 1) % 3])
        columns = np.where(turned[:, None], (0, 2, 1), (0, 1, 2))
        return cls(
            np.take_along_axis(points, columns, axis=1).astype(np.int32),
            np.take_along_axis(vertices[keep], columns, axis=1).astype(np.int32),
            primitives[keep],
            np.stack(ends, axis=1).astype(np.int32),
            excess.astype(np.float64),
        )

    def to_document(self) -> dict[str, NDArray[Any]]:
        """Return plain arrays by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Triangles:
        """Read what `to_document` wrote."""
        return cls(**{name: np.asarray(document[name]) for name in cls.__dataclass_fields__})

    @property
    def count(self) -> int:
        """Number of triangles."""
        return len(self.points)

    @property
    def is_closed(self) -> bool:
        """Whether they enclose space without holes."""
        return len(self.border) == 0


class Sample(NamedTuple):
    """A field at n places: distance [n] m, velocity [n, 3] m/s, primitive [n], channels [n, c]."""

    distance: Floats
    velocity: Floats
    primitive: Int32
    channels: dict[str, Floats]


@dataclass
class SignedDistance:
    """A narrow band around a mesh that may move.

    Args:
        domain: The Grid Domain.
        name: What messages call it.
        band: Largest distance that is stored [m]; at least two voxels.
        resolution: Voxels per Bucket edge.
        mode: "solid_inside", "solid_outside" or "shell".
        thickness: Of a shell [m].
        surface_offset: By how much the solid grows [m]; below 0 it shrinks.
        channels: Components of each painted channel that is carried.
        dtype: Of distances, velocities and channels.
    """

    domain: GridDomain
    name: str = "collider"
    band: float = 0.0
    resolution: int = 8
    mode: str = "solid_inside"
    thickness: float = 0.0
    surface_offset: float = 0.0
    channels: Mapping[str, int] = field(default_factory=dict)
    dtype: DTypeLike = np.float32

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            hint = did_you_mean(self.mode, MODES)
            raise SetupError(f'{self.name}: mode = "{self.mode}" is not known{hint}')
        self.volume = DiscreteVolume(self.domain, name=self.name, dtype=self.dtype)
        # The voxels on both sides of the surface must know it, and their neighbours too.
        band = max(float(self.band), 2.0 * self.voxel_size)
        self.band = float(np.asarray(band, self.dtype))  # as it is stored
        for name, dtype, components, background in (
            ("distance", None, 1, self.band),
            ("primitive", np.int32, 1, -1),
            ("velocity", None, 3, 0.0),
            *((name, None, count, 0.0) for name, count in self.channels.items()),
        ):
            self.volume.add_channel(
                name,
                dtype,
                components=components,
                resolution=self.resolution,
                background=background,
            )
        self._tree: TriangleTree | None = None
        self._triangles: Triangles | None = None

    @property
    def voxel_size(self) -> float:
        """Edge of a voxel [m]."""
        return self.domain.bucket_size / self.resolution

    # -- what is solid ---------------------------------------------------------------------

    @property
    def surface_kind(self) -> int:
        """How the kernels tell the two sides apart."""
        if self.mode == "shell" or self._triangles is None:
            return UNSIGNED
        return SIGNED

    @property
    def flip(self) -> float:
        """-1 where the outside of the mesh is solid, else 1."""
        return -1.0 if self.mode == "solid_outside" else 1.0

    @property
    def growth(self) -> float:
        """Distance of the solid's surface from the mesh [m]."""
        return self.surface_offset + (0.5 * self.thickness if self.mode == "shell" else 0.0)

    @property
    def limit(self) -> float:
        """Distance from the mesh up to which anything is measured [m]."""
        return self.band + abs(self.growth)

    def is_solid(self, coords: Int32) -> NDArray[np.bool_]:
        """Tell which Buckets [n, 3], of those that are not stored, lie in the solid."""
        if self._tree is None or self.mode == "shell":
            return np.zeros(len(coords), bool)
        centre = (coords.astype(np.float64) + 0.5) * self.domain.bucket_size
        inside = self._winding(centre) > 0.5
        return np.asarray(inside != (self.mode == "solid_outside"))

    def _winding(self, position: Floats) -> Floats:
        winding = np.zeros(len(position))
        if self._tree is not None:
            corners, _, box, dipole = self._tree
            fill_winding_numbers(corners, box, dipole, position, winding)
        return np.abs(winding)

    # -- measuring -------------------------------------------------------------------------

    def build(
        self,
        triangles: Triangles,
        position: Floats,
        *,
        velocity: Floats | None = None,
        painted: Mapping[str, tuple[str, NDArray[Any]]] | None = None,
        within: Int32 | None = None,
    ) -> None:
        """Measure a mesh. Collective.

        Args:
            triangles: Its triangles.
            position: Its points relative to the domain's origin [m], shape [points, 3].
            velocity: Of its points [m/s], shape [points, 3]; at rest if None.
            painted: Location and values of each channel that is carried.
            within: Buckets [n, 3] of interest, named by any rank; all Buckets if None.
        """
        self.follow(triangles, position)
        points = np.zeros((len(position), 3)) if velocity is None else np.asarray(velocity)
        self._carried = {"velocity": (triangles.points, _flat(points))}
        for name, (location, values) in (painted or {}).items():
            elements = {
                "point": triangles.points,
                "vertex": triangles.vertices,
                "primitive": np.repeat(triangles.primitives[:, None], 3, axis=1),
            }[location]
            self._carried[name] = (elements, _flat(values))
        self.volume.set_buckets(self._select(within))
        self._measure(self.volume.buckets.local)
        self.refresh_ghosts()

    def follow(self, triangles: Triangles, position: Floats) -> None:
        """Take the mesh without measuring it: the stored voxels are those of this mesh already."""
        self._triangles = triangles
        self._tree = None
        if triangles.count:
            corners = np.ascontiguousarray(position[triangles.points], np.float64).reshape(-1, 9)
            if not np.isfinite(corners).all():
                row = int(np.argmax(~np.isfinite(corners).all(axis=1)))
                raise InputError(
                    f"{self.name}: primitive {int(triangles.primitives[row])} has a point that is "
                    "not finite; repair the mesh before it reaches the solver"
                )
            self._tree = build_tree(corners)
        self._border = _border_edges(triangles, position)

    def move_within(self, within: Int32) -> None:
        """Keep the mesh, and measure what is new of other Buckets of interest. Collective."""
        before = pack_buckets(self.volume.buckets.local_coords)
        if self.domain.comm.size > 1:  # Buckets may come from other ranks with their values
            parts = self.domain.comm.all_gather(np.ascontiguousarray(before))
            before = np.concatenate(parts)
        self.volume.set_buckets(self._select(within))
        now = pack_buckets(self.volume.buckets.local_coords)
        self._measure(np.flatnonzero(~np.isin(now, before)).astype(np.int32))
        self.refresh_ghosts()

    def refresh_ghosts(self) -> None:
        """Make the layer of voxels around this rank's Buckets current. Collective."""
        pending = self.volume.post_ghosts(list(self.volume.channels), halo=1, corners=True)
        if pending is not None:
            pending.wait()

    def _select(self, within: Int32 | None) -> Int32:
        """Buckets of interest in which there is anything to store."""
        if self._tree is None:
            return np.empty((0, 3), np.int32)
        if within is None:
            return self._near_everywhere()
        coords = _surroundings(self.domain, within)
        near = self._near(coords, 0)
        if self._may_be_divided:
            near[~near] = self._is_divided(coords[~near])
        return coords[near]

    def _near(self, coords: Int32, level: int) -> NDArray[np.bool_]:
        near = np.zeros(len(coords), bool)
        assert self._tree is not None
        corners, _, box, _ = self._tree
        size = self.domain.bucket_size * 2.0**level
        find_near_cubes(corners, box, coords, size, self.limit + MARGIN * self.voxel_size, near)
        return near

    def _near_everywhere(self) -> Int32:
        """Buckets of this rank near the mesh, by halving blocks of Buckets that are."""
        first, last = self._range()
        level = max(0, int((last - first).max()).bit_length() - 3)
        coords = _lattice(first >> level, ((last - 1) >> level) + 1)
        while True:
            mine = self._has_own(coords, level)
            coords = coords[mine][self._near(coords[mine], level)]
            if level == 0:
                break
            level -= 1
            halves = _lattice(np.zeros(3, np.int32), np.full(3, 2, np.int32))
            coords = (2 * coords[:, None, :] + halves[None]).reshape(-1, 3).astype(np.int32)
            inside = np.all((coords >= first >> level) & (coords <= (last - 1) >> level), axis=1)
            coords = coords[inside]
        if not self._may_be_divided or len(coords) == 0:
            return coords
        self._refuse_large(int(np.prod((last - first).astype(np.int64))))
        rest = _lattice(first, last)
        rest = rest[self._has_own(rest, 0)]
        rest = rest[~np.isin(pack_buckets(rest), pack_buckets(coords))]
        return np.concatenate((coords, rest[self._is_divided(rest)]))

    def _range(self) -> tuple[Int32, Int32]:
        """Lattice range [first, last) of Buckets that the band can reach."""
        assert self._tree is not None
        size, reach = self.domain.bucket_size, self.limit + MARGIN * self.voxel_size
        lower, upper = self._tree.box[1, :3] - reach, self._tree.box[1, 3:] + reach
        low, high = self.domain.bucket_range()
        first = np.clip(np.floor(lower / size), low, high)
        last = np.clip(np.floor(upper / size) + 1, low, high)
        return first.astype(np.int32), np.maximum(first, last).astype(np.int32)

    def _has_own(self, coords: Int32, level: int) -> NDArray[np.bool_]:
        """Which blocks hold Buckets of this rank."""
        if len(coords) == 0:
            return np.zeros(0, bool)
        levels = np.full(len(coords), level, np.uint8)
        start = self.domain.keys(coords, levels)
        cuts, rank = self.domain.cuts, self.domain.comm.rank
        return np.asarray(
            (start < cuts[rank + 1]) & (start + np.uint64(1 << (3 * level)) > cuts[rank])
        )

    def _is_divided(self, coords: Int32) -> NDArray[np.bool_]:
        """Which Buckets the level set that closes a hole may pass."""
        divided = np.zeros(len(coords), bool)
        assert self._tree is not None
        corners, _, box, dipole = self._tree
        size = self.domain.bucket_size
        find_divided(corners, box, dipole, self._border, coords, size, divided)
        return divided

    @property
    def _may_be_divided(self) -> bool:
        return self.surface_kind == SIGNED and len(self._border) > 0

    def _refuse_large(self, count: int) -> None:
        if count > LARGEST_FIELD:
            raise InputError(
                f"{self.name}: the field takes {count} Buckets of {self.domain.bucket_size:g} m, "
                f"at most {LARGEST_FIELD} are allowed; enlarge the voxels, reduce domain_offset, "
                "or put a domain box around what matters"
            )

    def _measure(self, rows: Int32) -> None:
        self._refuse_large(len(rows))
        for start in range(0, len(rows), BATCH):
            self._measure_some(rows[start : start + BATCH])

    def _measure_some(self, rows: Int32) -> None:
        volume, voxels = self.volume, self.resolution**3
        assert self._tree is not None and self._triangles is not None
        measured = np.empty((len(rows), voxels))
        closest = np.empty((len(rows), voxels), np.int32)
        place = np.empty((len(rows), voxels, 2))
        coords = np.ascontiguousarray(volume.buckets.local_coords[rows])
        measure_buckets(
            *self._tree, self._border, coords, self.resolution, self.voxel_size, self.limit,
            self.surface_kind, measured, closest, place,
        )  # fmt: skip

        def stored(name: str) -> NDArray[Any]:
            values = volume.with_ghosts(name)
            return values.reshape(len(values), values.shape[1], voxels)

        shape_distance(measured, self.flip, self.growth, self.band, rows, stored("distance")[:, 0])
        primitive = self._triangles.primitives[np.maximum(closest, 0)]
        stored("primitive")[rows, 0] = np.where(closest >= 0, primitive, -1)
        for name, (elements, values) in self._carried.items():
            carry_channel(values, elements, closest, place, rows, stored(name))

    # -- sampling --------------------------------------------------------------------------

    def sample(self, position: NDArray[Any]) -> Sample:
        """Sample at positions [n, 3] relative to the domain's origin, in Buckets of this rank."""
        position = np.ascontiguousarray(position, np.float64)
        others = self.volume.with_ghosts("velocity")
        if self.channels:
            painted = [self.volume.with_ghosts(name) for name in self.channels]
            others = np.concatenate((others, *painted), axis=1)
        distance, primitive = np.empty(len(position)), np.empty(len(position), np.int32)
        sampled = np.empty((len(position), others.shape[1]))
        tree = self._tree
        if tree is None:
            none = np.empty((0, 9))
            tree = TriangleTree(none, np.empty(0, np.int32), np.empty((0, 6)), np.empty((0, 7)))
        sample_field(
            tree.corners, tree.box, tree.dipole, self.surface_kind, self.flip, self.band,
            self.voxel_size, *self.volume.buckets.table, self.volume.with_ghosts("distance"),
            self.volume.with_ghosts("primitive"), others, position,
            distance, primitive, sampled,
        )  # fmt: skip
        ends = np.cumsum([3, *self.channels.values()])
        parts = np.split(sampled, ends[:-1], axis=1)
        return Sample(
            distance, parts[0], primitive, dict(zip(self.channels, parts[1:], strict=True))
        )


def narrow_band(
    domain: GridDomain,
    mesh: Mesh,
    *,
    resolution: int = 8,
    mode: str = "solid_inside",
    thickness: float = 0.0,
    surface_offset: float = 0.0,
    domain_offset: float | None = None,
    channels: Sequence[str] = (),
    within: Int32 | None = None,
    dtype: DTypeLike = np.float32,
    label: str = "collider",
) -> SignedDistance:
    """Return the field of a mesh in world space that stands still or has velocities. Collective.

    Args:
        domain_offset: How far from the surface the field is known [m]; 3 voxels if None.
        channels: Painted channels of the mesh to carry.
    """
    triangles = Triangles.of(mesh, label=label)
    painted = painted_channels(mesh, channels, label=label)
    voxel = domain.bucket_size / resolution
    distance = SignedDistance(
        domain,
        name=label,
        band=3.0 * voxel if domain_offset is None else domain_offset,
        resolution=resolution,
        mode=mode,
        thickness=thickness,
        surface_offset=surface_offset,
        channels={name: _flat(values).shape[1] for name, (_, values) in painted.items()},
        dtype=dtype,
    )
    velocity = mesh.channels["point"].get("velocity")
    distance.build(
        triangles,
        domain.to_relative(mesh.positions),
        velocity=None if velocity is None else np.asarray(velocity, np.float64),
        painted=painted,
        within=within,
    )
    return distance


def painted_channels(
    mesh: Mesh, names: Sequence[str], *, label: str
) -> dict[str, tuple[str, NDArray[Any]]]:
    """Return location and values of painted channels, the narrowest place first."""
    found = {}
    locations = ("vertex", "point", "primitive")
    for name in names:
        holder = next((at for at in locations if name in mesh.channels[at]), None)
        if name in ("distance", "primitive", "velocity"):
            raise SetupError(f'{label}: "{name}" is a channel of every field; paint another one')
        if holder is None:
            known = [known for at in locations for known in mesh.channels[at]]
            raise InputError(
                f'{label} has no point, vertex or primitive channel "{name}"'
                f"{did_you_mean(name, known)}"
            )
        found[name] = (holder, mesh.channels[holder][name])
    return found


def _flat(values: NDArray[Any]) -> Floats:
    """Values as float64 of shape [elements, components]."""
    array = np.asarray(values, np.float64)
    width = int(np.prod(array.shape[1:], dtype=np.int64))
    return np.ascontiguousarray(array.reshape(len(array), width))


def _border_edges(triangles: Triangles, position: Floats) -> Floats:
    """Middle, half length and excess of each border edge, shape [e, 5]."""
    ends = np.asarray(position[triangles.border], np.float64).reshape(-1, 2, 3)
    half = 0.5 * np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    return np.column_stack((ends.mean(axis=1), half, triangles.excess))


def _boundary_vertices(body: Body) -> Int32:
    """Vertices of the triangles that only one tetrahedron has, facing outward, shape [t, 3]."""
    vertices = (4 * np.arange(body.primitive_count)[:, None, None] + FACES[None]).reshape(-1, 3)
    if len(vertices) == 0:
        return np.empty((0, 3), np.int32)
    keys = np.sort(body.tetrahedra.reshape(-1)[vertices], axis=1)
    _, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(vertices[counts[inverse.reshape(-1)] == 1], np.int32)


def _lattice(first: Int32, last: Int32) -> Int32:
    """All whole places of [first, last), shape [n, 3]."""
    axes = np.meshgrid(*(np.arange(a, b) for a, b in zip(first, last, strict=True)), indexing="ij")
    return np.stack([axis.reshape(-1) for axis in axes], axis=1).astype(np.int32)


def _surroundings(domain: GridDomain, coords: Int32) -> Int32:
    """The Buckets and all that touch them, each once, inside the box."""
    if len(coords) == 0:
        return np.empty((0, 3), np.int32)
    offsets = _lattice(np.full(3, -1, np.int32), np.full(3, 2, np.int32))
    around = (coords[:, None, :] + offsets[None]).reshape(-1, 3).astype(np.int32)
    around = unpack_buckets(np.unique(pack_buckets(domain.wrap(around))))
    first, last = domain.bucket_range()
    return around[np.all((around >= first) & (around < last), axis=1)]
