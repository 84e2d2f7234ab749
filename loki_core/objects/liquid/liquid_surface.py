"""Liquid Surface: what a Hybrid Object looks like, as a closed mesh or as a level set.

The level set is that of `kernels/liquid/surface_field.py`; the mesh is its iso-surface, in which
every vertex has the mean velocity of the particles around it, for motion blur. Nothing is done in
substeps: the surface is made at the start and at the end of each frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import Access, Declaration
from loki_core.data.discrete_volume import RESOLUTIONS
from loki_core.data.grid_domain import GridDomain
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.errors import SetupError, did_you_mean
from loki_core.kernels.liquid.surface_channels import means_at_places, means_at_voxels
from loki_core.objects.basics.capabilities import Liquid
from loki_core.objects.basics.object import Object, Scope
from loki_core.objects.buckets.iso_surface import find_iso_surface
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_field import field_of
from loki_core.objects.liquid.liquid_level_set import BAND, LiquidLevelSet
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task

Array = NDArray[Any]


class LiquidSurface(Behavior, kind="object"):
    """Show a liquid as a mesh or as a level set, made once per frame."""

    source: str | None = parameter(
        None,
        kind="object_reference",
        doc="Hybrid Object that is shown; none is the only one in the Group, or the next above.",
    )
    output: str = parameter(
        "mesh",
        choices=("mesh", "level_set", "field"),
        doc="A closed mesh of triangles; voxels with the distance; or the voxels of the liquid "
        "with density and velocity, all through it. Voxels export as VDB.",
    )
    refinement: int = parameter(
        2,
        choices=(1, 2, 4),
        doc="Voxels of the surface along a voxel of the liquid; with 4 single drops are round.",
    )
    smoothing: int = parameter(
        2, minimum=0, maximum=50, doc="How often the surface is smoothed; its volume stays."
    )
    droplet_scale: float = parameter(
        1.0, minimum=0.0, maximum=4.0, doc="Factor on the radius of drops of a few particles."
    )
    channels: tuple[str, ...] = parameter(
        (), doc="Channels of the particles that vertices get too, such as a colour."
    )

    def create(self, scope: Scope) -> list[Any]:
        """Make the Object."""
        return [SurfaceOfLiquid(self, scope)]


class SurfaceOfLiquid(Object):
    """The surface of one liquid.

    Attributes:
        liquid: What is shown, or None while that is disabled or has no input.
    """

    behavior: LiquidSurface

    def __post_init__(self) -> None:
        super().__post_init__()
        self.liquid: Liquid | None = None
        self._shown: Surface | Voxels | None = None

    def ingest(self) -> None:
        """Find the liquid; by now all Objects are there."""
        self.liquid = find_liquid(self.path, self.behavior.source, self.scope)
        if self.liquid is not None:
            resolution = self.liquid.resolution * self.behavior.refinement
            if resolution not in RESOLUTIONS:
                raise SetupError(
                    f"{self.path}.refinement = {self.behavior.refinement} makes {resolution} "
                    f"voxels along a Bucket, at most {RESOLUTIONS[-1]} are possible; choose less"
                )

    @property
    def task_data(self) -> dict[str, Any]:
        """The liquid's, and the fields of the colliders at which it ends."""
        return {} if self.liquid is None else self.liquid.task_data

    def declare(
        self, name: str, stage: Stage, declaration: Declaration
    ) -> tuple[Stage, Declaration]:
        """Add the particles, which are sorted first, and what bounds them."""
        if self.liquid is None:
            return stage, declaration
        reads = list(self.liquid.collider_reads())
        if self.liquid.band is not None:
            is_field = self.behavior.output == "field"
            reads += ["volume.deep", *(["volume.velocity"] if is_field else [])]
        return stage, replace(declaration, reads=tuple(reads), layout=("particles",))

    @task(Stage.MAKE_SURFACES, communicates=True)
    def show(self, access: Access, step: Step) -> None:
        """Make the surface of the frame, or of the start."""
        self._make()

    def restore(self, state: dict[str, Any]) -> None:
        """Forget the surface; it follows from the particles."""
        self._shown = None

    def output(self) -> Surface | Voxels:
        """Return this rank's part, in world space. Collective after a restart."""
        if self._shown is None:
            self._make()
        assert self._shown is not None
        return self._shown

    def count(self) -> int:
        """Vertices, or voxels, on this rank."""
        shown = self._shown
        if shown is None:
            return 0
        return shown.voxel_count if isinstance(shown, Voxels) else shown.point_count

    # -- making it -------------------------------------------------------------------------

    def _make(self) -> None:
        if self.liquid is None:
            self._shown = self._nothing()
            return
        settings = self.settings
        if self.behavior.output == "field":
            self._shown = field_of(self.liquid, tuple(self._carried()))
            return
        level_set = LiquidLevelSet(
            self.liquid,
            refinement=self.behavior.refinement,
            smoothing=int(settings.smoothing),
            droplet_scale=float(settings.droplet_scale),
        )
        is_mesh = self.behavior.output == "mesh"
        self._shown = self._mesh(level_set) if is_mesh else self._voxels(level_set)

    def _nothing(self) -> Surface | Voxels:
        if self.behavior.output == "mesh":
            return Surface.from_faces(np.empty((0, 3)), np.empty((0, 3), np.int32))
        domain = self.scope.domain
        return Voxels(np.empty((0, 3), np.int32), domain.bucket_size / 8.0, origin=domain.origin)

    def _carried(self) -> dict[str, tuple[int, ...]]:
        """Channels that the surface gets, and the shape of one value."""
        assert self.liquid is not None
        known = self.liquid.particles.channels
        for name in self.behavior.channels:
            if name not in known or known[name].dtype.kind != "f":
                floats = [one for one in known if known[one].dtype.kind == "f"]
                raise SetupError(
                    f'{self.path}.channels names "{name}", which is no channel of numbers of '
                    f"{self.liquid.path}{did_you_mean(name, floats)}"
                )
        names = dict.fromkeys(("velocity", *self.behavior.channels))
        return {name: known[name].shape for name in names if name != "position"}

    def _mesh(self, level_set: LiquidLevelSet) -> Surface:
        volume, domain, carried = level_set.volume, self.scope.domain, self._carried()
        found = find_iso_surface(
            volume, "distance", lower=level_set.lower, upper=level_set.upper, empty=level_set.empty
        )
        sums = volume.with_ghosts(level_set.means(tuple(carried)))
        means = np.empty((len(found.places), sums.shape[1] - 1))
        means_at_places(
            sums, volume.buckets.coords, volume.buckets.neighbours, found.buckets, found.places,
            float(level_set.refinement), means,
        )  # fmt: skip
        positions = domain.to_world(found.places * level_set.voxel_size)
        if not np.any(domain.origin):
            positions = positions.astype(self.scope.dtype)
        surface = Surface.from_faces(positions, found.triangles)
        first = 0
        for name, shape in carried.items():
            width = int(np.prod(shape, dtype=np.int64))
            values = means[:, first : first + width].astype(self.scope.dtype)
            surface.set_channel("point", name, values.reshape(len(values), *shape))
            first += width
        return surface

    def _voxels(self, level_set: LiquidLevelSet) -> Voxels:
        volume, domain, carried = level_set.volume, self.scope.domain, self._carried()
        distance = level_set.narrow_band()
        sums = volume.with_ghosts(level_set.means(tuple(carried)))
        means = np.empty((len(distance), sums.shape[1] - 1, *distance.shape[2:]), volume.dtype)
        means_at_voxels(
            sums, volume.buckets.neighbours, float(level_set.refinement), distance, float(BAND),
            means,
        )  # fmt: skip
        used = distance.min(axis=(1, 2, 3, 4), initial=BAND) < BAND
        coords, distance, means = with_outside_of_box(
            domain, volume.buckets.local_coords[used], distance[used], means[used]
        )
        voxels = Voxels(
            coords,
            level_set.voxel_size,
            origin=domain.origin,
            block_resolution=level_set.resolution,
        )
        distance = (distance * level_set.voxel_size).astype(volume.dtype)
        voxels.set_channel("distance", distance, background=BAND * level_set.voxel_size)
        first = 0
        for name, shape in carried.items():
            width = int(np.prod(shape, dtype=np.int64))
            voxels.set_channel(name, means[:, first : first + width])
            first += width
        return voxels


def with_outside_of_box(
    domain: GridDomain, coords: NDArray[np.int32], distance: Array, means: Array
) -> tuple[NDArray[np.int32], Array, Array]:
    """Add the blocks beyond the sides of the box, so that a level set ends on these too.

    Args:
        coords: Buckets, [b, 3].
        distance: In voxels, within +-BAND, [b, 1, r, r, r].
        means: Other channels, [b, c, r, r, r]; they go on as they are at the side.
    """
    ends = domain.bucket_range()
    planes = (domain.relative_lower, domain.relative_upper)
    away = np.arange(distance.shape[-1]) + 0.5
    for axis, side in np.ndindex(3, 2):
        step = 2 * side - 1
        if abs(planes[side][axis] - ends[side][axis] * domain.bucket_size) > 1e-6:
            continue  # there is no side, or it lies inside the last Buckets
        rows = np.flatnonzero(coords[:, axis] == ends[side][axis] - side)
        last = np.take(distance[rows], [-side], axis=axis + 2)
        beyond = np.expand_dims(away[::step], [a for a in range(5) if a != axis + 2])
        outer = np.minimum(np.maximum(last, beyond), BAND).astype(distance.dtype)
        used = outer.min(axis=(1, 2, 3, 4), initial=BAND) < BAND
        rows, outer = rows[used], outer[used]
        carried = np.repeat(np.take(means[rows], [-side], axis=axis + 2), len(away), axis=axis + 2)
        coords = np.concatenate((coords, coords[rows] + step * np.eye(3, dtype=np.int32)[axis]))
        distance = np.concatenate((distance, outer))
        means = np.concatenate((means, carried))
    return coords, distance, means


def find_liquid(path: str, source: str | None, scope: Scope) -> Liquid | None:
    """Return the liquid that a text names, or the one nearest to a path in the tree.

    Returns None where it is disabled or has no input.

    Raises:
        SetupError: There is none, or there are several.
    """
    present = {name: item for name, item in scope.others.items() if isinstance(item, Liquid)}
    absent = [name for name, item in scope.absent.items() if isinstance(item, HybridObject)]
    known = [*present, *absent]
    if source is not None:
        found = [name for name in known if name == source or name.startswith(f"{source}/")]
        place = f'{path}.source = "{source}"'
    else:
        group, found, place = path, [], path
        while not found and group:
            group = group.rpartition("/")[0]
            found = [name for name in known if name.startswith(f"{group}/" if group else "")]
    if len(found) != 1:
        several = f"it may be {', '.join(found)}: name one" if found else "there is none"
        hint = did_you_mean(source or "", known) if not found else ""
        raise SetupError(f"{place}: a Liquid Surface needs one Hybrid Object; {several}{hint}")
    return present.get(found[0])
