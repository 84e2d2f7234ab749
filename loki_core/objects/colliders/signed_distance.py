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

from loki_core.data.bucket_lattice import buckets_around, has_own_buckets, lattice
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import GridDomain
from loki_core.data.mesh import Mesh
from loki_core.errors import InputError, SetupError, did_you_mean
from loki_core.kernels.buckets.bucket_hash import pack_buckets
from loki_core.kernels.colliders.triangle_field import (
    SIGNED,
    UNSIGNED,
    carry_channel,
    measure_buckets,
    sample_field,
    shape_distance,
)
from loki_core.objects.colliders.triangles import NO_TREE, PlacedTriangles, Triangles

Floats = NDArray[np.float64]
Int32 = NDArray[np.int32]

MODES = ("solid_inside", "solid_outside", "shell")
#: Voxels beyond the band within which Buckets are stored too, so that a sample between a stored
#: Bucket and a missing one finds the same value in both.
MARGIN = 0.87
#: Most Buckets that a rank measures, of 512 voxels and 20 bytes each.
LARGEST_FIELD = 1 << 21
BATCH = 4096  # Buckets that are measured at a time


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
        self._mesh: PlacedTriangles | None = None

    @property
    def voxel_size(self) -> float:
        """Edge of a voxel [m]."""
        return self.domain.bucket_size / self.resolution

    # -- what is solid ---------------------------------------------------------------------

    @property
    def surface_kind(self) -> int:
        """How the kernels tell the two sides apart."""
        if self.mode == "shell" or self._mesh is None:
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
        if self._mesh is None or self._mesh.is_empty or self.mode == "shell":
            return np.zeros(len(coords), bool)
        centre = (coords.astype(np.float64) + 0.5) * self.domain.bucket_size
        inside = self._mesh.winding(centre) > 0.5
        return np.asarray(inside != (self.mode == "solid_outside"))

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
            self._carried[name] = (triangles.elements(location), _flat(values))
        self.volume.set_buckets(self._select(within))
        self._measure(self.volume.buckets.local)
        self.refresh_ghosts()

    def follow(self, triangles: Triangles, position: Floats) -> None:
        """Take the mesh without measuring it: the stored voxels are those of this mesh already."""
        self._mesh = triangles.at(position, label=self.name)

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
        self.volume.refresh(*self.volume.channels, corners=True)

    def _select(self, within: Int32 | None) -> Int32:
        """Buckets of interest in which there is anything to store."""
        mesh = self._mesh
        if mesh is None or mesh.is_empty:
            return np.empty((0, 3), np.int32)
        size, reach = self.domain.bucket_size, self.limit + MARGIN * self.voxel_size
        may_be_divided = self.surface_kind == SIGNED and len(mesh.border) > 0
        if within is not None:
            coords = buckets_around(self.domain, within)
            near = mesh.are_near(coords, size=size, reach=reach)
            if may_be_divided:
                near[~near] = mesh.may_divide(coords[~near], size=size)
            return coords[near]
        coords = mesh.near_buckets(self.domain, reach=reach)
        if not may_be_divided or len(coords) == 0:
            return coords
        first, last = mesh.bucket_range(self.domain, reach=reach)
        self._refuse_large(int(np.prod((last - first).astype(np.int64))))
        rest = lattice(first, last)
        rest = rest[has_own_buckets(self.domain, rest, level=0)]
        rest = rest[~np.isin(pack_buckets(rest), pack_buckets(coords))]
        return np.concatenate((coords, rest[mesh.may_divide(rest, size=size)]))

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
        mesh, volume, voxels = self._mesh, self.volume, self.resolution**3
        assert mesh is not None
        measured = np.empty((len(rows), voxels))
        closest = np.empty((len(rows), voxels), np.int32)
        place = np.empty((len(rows), voxels, 2))
        coords = np.ascontiguousarray(volume.buckets.local_coords[rows])
        measure_buckets(
            *mesh.tree, mesh.border, coords, self.resolution, self.voxel_size, self.limit,
            self.surface_kind, measured, closest, place,
        )  # fmt: skip

        def stored(name: str) -> NDArray[Any]:
            values = volume.with_ghosts(name)
            return values.reshape(len(values), values.shape[1], voxels)

        shape_distance(measured, self.flip, self.growth, self.band, rows, stored("distance")[:, 0])
        primitive = mesh.triangles.primitives[np.maximum(closest, 0)]
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
        tree = NO_TREE if self._mesh is None else self._mesh.tree
        sample_field(
            tree.corners, tree.box, tree.dipole, self.surface_kind, self.flip, self.band,
            self.voxel_size, *self.volume.buckets.table, self.volume.with_ghosts("distance"),
            self.volume.with_ghosts("primitive"), others, position,
            distance, primitive, sampled,
        )  # fmt: skip
        ends = np.cumsum([3, *self.channels.values()])
        parts = np.split(sampled, ends[:-1], axis=1)
        channels = dict(zip(self.channels, parts[1:], strict=True))
        return Sample(distance, parts[0], primitive, channels)


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
    """Return location and values of painted channels, the narrowest place first.

    Args:
        names: Of the channels; those that end with "?" may be missing.
    """
    found = {}
    locations = ("vertex", "point", "primitive")
    for wanted in names:
        name = wanted.removesuffix("?")
        holder = next((at for at in locations if name in mesh.channels[at]), None)
        if name in ("distance", "primitive", "velocity"):
            raise SetupError(f'{label}: "{name}" is a channel of every field; paint another one')
        if holder is None and wanted.endswith("?"):
            continue
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
