"""The grid of a liquid: what its particles give to it, and what they get back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.colliders.solid_room import measure_room_near_solids
from loki_core.kernels.liquid.liquid_cells import (
    SMALLEST_ROOM,
    TOLD,
    UNTOLD,
    classify_liquid,
    cut_to_box,
    density_error,
    judge_cut_cells,
    mark_near_air,
    mark_told,
    measure_room,
    open_outside,
    surface_mobility,
    trust_particles,
)
from loki_core.kernels.liquid.liquid_extension import (
    extend_layer,
    mark_known_faces,
    mark_reached_faces,
)
from loki_core.kernels.liquid.liquid_motion import faces_to_particles, push_out
from loki_core.kernels.liquid.liquid_tiles import (
    TILE_CHANNELS,
    collect_tiles,
    divide_by_weight,
    fill_tiles,
    occupied_ranges_of_particles,
)
from loki_core.kernels.particles.lagrangian_step import largest_speed
from loki_core.objects.colliders.closed_faces import ClosedFaces
from loki_core.objects.particles.particle_tiles import tiles_around

if TYPE_CHECKING:
    from loki_core.objects.liquid.hybrid import Hybrid

Array = NDArray[Any]

MARGIN = 4  # voxels of air around particles that have faces, at least
FULL_ERROR = 1.0  # of a cell's volume that is corrected at once, at most
#: Rows of cells beside solids that those beside them judge: two of whole ones, then three of cut
#: ones, which become liquid beside liquid only once lines have told where the surface is.
JUDGEMENTS = ((TOLD, 0), (TOLD, 0), (UNTOLD, 0), (UNTOLD, 1), (UNTOLD, 1))
#: By the layer at which particles far from the surface tell velocities: parts of faces that solids
#: close, from which on they do not yet. Beside a solid the way to the surface goes around closed
#: faces, so what is on cut ones may be of the surface one layer farther away.
CLOSED_PARTS = {2: 1.0e-3, 3: 1.0}
SURFACE_NOISE = 0.25  # voxels by which the surface is not known, at most
SOLID_MARGIN = 0.05  # voxels that particles keep from solids


class LiquidGrid:
    """Transfers of one Hybrid Object."""

    def __init__(self, liquid: Hybrid) -> None:
        self.liquid = liquid
        self.margin = MARGIN

    def look_ahead(self, dt: float) -> None:
        """Have air around particles as far as they go in a step dt [s]. Collective."""
        liquid = self.liquid
        speed = float(largest_speed(liquid.particles.local("velocity")))
        self.margin = int(min(liquid.resolution, max(MARGIN, self._voxels_in(speed, dt) + 2)))

    # -- Buckets ---------------------------------------------------------------------------

    def occupied(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Buckets that hold particles, and the voxels of them that do, [n, 2, 3]."""
        particles = self.liquid.particles
        count = particles.buckets.local_count
        ranges = np.empty((count, 2, 3), np.int64)
        occupied_ranges_of_particles(
            particles.local("position"), particles.offsets, particles.buckets.local_coords,
            particles.domain.bucket_size, self.liquid.resolution, ranges,
        )  # fmt: skip
        used = ranges[:, 1, 0] >= 0
        return particles.buckets.local_coords[used], ranges[used]

    def rows(self) -> NDArray[np.int32]:
        """The volume's row of each local Bucket of particles."""
        particles, volume = self.liquid.particles, self.liquid.volume
        count = particles.buckets.local_count
        return particles.buckets.index_in(volume.buckets)[:count].astype(np.int32)

    def remember_space(self) -> None:
        """Measure the room around every cell, once after solids have told theirs. Collective."""
        liquid, volume, buckets = self.liquid, self.liquid.volume, self.liquid.volume.buckets
        volume.local("space")[:] = volume.local("kind")
        around = liquid.surroundings()
        open_outside(
            buckets.local_coords, around.lower, around.upper, np.array(around.kinds),
            volume.local("space"),
        )  # fmt: skip
        if not liquid.colliders:  # who else would have measured it
            volume.local("open_part")[:] = 1.0
        cut_to_box(
            buckets.local_coords, around.lower, around.upper, volume.local("space"),
            volume.local("open_part"),
        )  # fmt: skip
        volume.mark_written("open_part")
        volume.refresh("open_part", corners=True)
        measure_room(
            volume.with_ghosts("open_part"), buckets.coords, buckets.neighbours, around.lower,
            around.upper, np.array(around.kinds), volume.local("room"),
        )  # fmt: skip
        if liquid.colliders:
            volume.refresh("node_distance", halo=2, corners=True)  # nodes one voxel beyond
            volume.local("unsure")[:] = 0.0
            measure_room_near_solids(
                volume.with_ghosts("node_distance"), buckets.coords, buckets.neighbours,
                around.lower, around.upper, np.array(around.kinds), SMALLEST_ROOM,
                1.0 / float(liquid.behavior.particles_per_axis), volume.local("room"),
                volume.local("unsure"),
            )  # fmt: skip

    # -- particles to grid -----------------------------------------------------------------

    def take_particles(self) -> None:
        """Bring the particles' momentum to faces and their volume to cells. Collective."""
        liquid, volume, particles = self.liquid, self.liquid.volume, self.liquid.particles
        r, count = liquid.resolution, particles.buckets.local_count
        tiles = np.empty((count, TILE_CHANNELS, r + 2, r + 2, r + 2), volume.dtype)
        fill_tiles(
            particles.local("position"), particles.local("velocity"), *self._affine(),
            liquid.particle_share, particles.offsets, particles.buckets.coords,
            particles.domain.bucket_size, r, tiles,
        )  # fmt: skip
        names = ("velocity", "face_weight", "filled")
        tiles, around = tiles_around(volume.buckets, self.rows(), tiles)
        collect_tiles(tiles, around, *(volume.local(name) for name in names))
        for name in names:
            volume.mark_written(name)
        if liquid.band is not None:
            liquid.band.add_to_grid()
        divide_by_weight(
            volume.local("velocity").reshape(-1), volume.local("face_weight").reshape(-1)
        )
        volume.local("former_velocity")[:] = volume.local("velocity")
        liquid.hold_known_faces()

    def _affine(self) -> tuple[Array, int]:
        """Gradients that particles carry, and whether they do."""
        liquid = self.liquid
        if liquid.is_affine:
            return liquid.particles.local("affine"), 1
        return np.zeros((1, 3, 3), liquid.particles.dtype), 0

    def find_liquid(self) -> None:
        """Tell liquid cells from air. Collective."""
        volume = self.liquid.volume
        names = ("space", "room", "filled", "kind")
        classify_liquid(*(volume.local(name).reshape(-1) for name in names))
        if self.liquid.colliders:
            self._judge_cut_cells()

    def _judge_cut_cells(self) -> None:
        """Tell liquid from air beside solids, where particles alone are not sure. Collective."""
        volume, r = self.liquid.volume, self.liquid.resolution
        new_kind = np.empty_like(volume.local("kind"))
        with volume.scratch("told", np.uint8, resolution=r) as told:
            new_told = np.empty(new_kind.shape, np.uint8)
            open_part, unsure = volume.local("open_part"), volume.local("unsure")
            mark_told(open_part.reshape(-1), unsure.reshape(-1), new_told.reshape(-1))
            volume.refresh("open_fraction", halo=2, corners=True)
            for judged, fills in JUDGEMENTS:
                volume.local(told.name)[:] = new_told
                for name in ("kind", "filled", told.name):
                    volume.mark_written(name)
                volume.refresh("kind", "filled", told.name, halo=2, corners=True)
                judge_cut_cells(
                    volume.with_ghosts("kind"), volume.local("space"), open_part, unsure,
                    told.values, volume.with_ghosts("open_fraction"), volume.buckets.neighbours,
                    judged, fills, volume.with_ghosts("filled"), new_kind, new_told,
                )  # fmt: skip
                volume.local("kind")[:] = new_kind
        for name in ("kind", "filled"):
            volume.mark_written(name)

    def with_surface(self, mobility: Array) -> Array:
        """Multiply the mobility of local faces by what the surface between two cells makes of it.

        Collective.
        """
        volume = self.liquid.volume
        volume.refresh("kind", "filled")
        surface_mobility(
            volume.with_ghosts("kind"), volume.with_ghosts("filled"), volume.buckets.neighbours,
            mobility,
        )  # fmt: skip
        return mobility

    def density_error(self) -> NDArray[np.float64]:
        """Part of its volume by which each local cell is too full, flat. Collective."""
        volume = self.liquid.volume
        volume.refresh("kind", corners=True)
        error = np.empty(volume.local("filled").size)
        density_error(
            volume.with_ghosts("kind"), volume.local("filled"), volume.local("open_part"),
            volume.local("loose"), volume.buckets.neighbours, FULL_ERROR, error,
        )  # fmt: skip
        if self.liquid.colliders:
            trust_particles(
                volume.local("unsure").reshape(-1), volume.local("open_part").reshape(-1), error
            )
        return error

    # -- grid to particles -----------------------------------------------------------------

    def extend_velocity(self, layers: int | None = None, start: str = "former_velocity") -> None:
        """Let the air near the liquid have its velocity, as far as particles go. Collective.

        Args:
            layers: How many faces far; as far as particles go without it.
            start: The velocity from which on air that particles reach changes as liquid does.
        """
        volume, r = self.liquid.volume, self.liquid.resolution
        names = ("velocity", start)
        with volume.scratch(
            "known", np.uint8, components=3, resolution=r, location="face"
        ) as known:
            volume.refresh("kind", "loose")
            fraction, neighbours = volume.local("open_fraction"), volume.buckets.neighbours
            kind = volume.with_ghosts("kind")
            mark_known_faces(
                kind, fraction, volume.with_ghosts("loose"), neighbours, volume.local(known.name),
            )  # fmt: skip
            sliding = self._sliding_faces()
            opening = fraction
            if sliding is not None:  # they follow the liquid as if they were open
                opening = fraction.copy()
                opening.reshape(-1)[sliding.face] = 1.0
                volume.local(known.name).reshape(-1)[sliding.face] = 0
            weight = volume.local("face_weight")
            for layer in range(1, self.margin if layers is None else layers + 1):
                if layer in CLOSED_PARTS:  # drops far from the surface come in
                    mark_reached_faces(
                        weight.reshape(-1), fraction.reshape(-1), CLOSED_PARTS[layer],
                        volume.local(known.name).reshape(-1),
                    )  # fmt: skip
                for name in (*names, known.name):
                    volume.mark_written(name)
                volume.refresh(*names, known.name)
                extend_layer(
                    weight, kind, opening, neighbours, layer,
                    *(volume.with_ghosts(name) for name in names), known.values,
                )  # fmt: skip
            if sliding is not None:
                volume.mark_written("velocity")
                volume.mark_written(known.name)
                sliding.slide(volume, known.name)
        for name in names:
            volume.mark_written(name)

    def _sliding_faces(self) -> ClosedFaces | None:
        """Faces that solids close along which the liquid slides, or None. The same on all ranks."""
        liquid = self.liquid
        if not liquid.colliders or liquid.viscous or not liquid.closed_faces.exist:
            return None
        closed: ClosedFaces = liquid.closed_faces
        return closed

    def move_particles(self, dt: float) -> None:
        """Bring velocities to particles, and move these along the flow and out of solids."""
        liquid, volume, particles = self.liquid, self.liquid.volume, self.liquid.particles
        halo = self.halo(dt)
        volume.refresh("velocity", halo=halo, corners=True)
        keep, around = liquid.keep(), liquid.surroundings()
        keeps = bool(keep.step) or keep.values[0] > 0.0
        if keeps:
            volume.refresh("former_velocity", corners=True)
        volume.refresh("spread", corners=True)
        rows = self.rows()
        faces_to_particles(
            volume.with_ghosts("velocity"), volume.with_ghosts("former_velocity"), int(keeps),
            *keep, volume.with_ghosts("spread"), volume.buckets.neighbours,
            np.array(around.kinds), around.velocity, rows, particles.buckets.coords,
            particles.domain.bucket_size, halo, dt, particles.offsets, particles.local("position"),
            particles.local("velocity"), *self._affine(), self._near_air(), self._noise(dt),
        )  # fmt: skip
        for collider in liquid.colliders:
            self._push_out(collider, halo)

    def _near_air(self) -> Array:
        """Local cells that air is around, 1 or 0. Collective."""
        volume = self.liquid.volume
        volume.refresh("kind", corners=True)
        near = np.empty_like(volume.local("kind"))
        mark_near_air(volume.with_ghosts("kind"), volume.buckets.neighbours, near)
        return near

    def _noise(self, dt: float) -> float:
        """Gradient [1/s] that the surface makes in a step where it is known no better than it is.

        Particles tell where the surface is to a part of a voxel; weight that this part is not
        balanced moves the liquid there, which has no viscosity to come to rest again.
        """
        pull = float(np.linalg.norm(self.liquid.uniform_acceleration()))
        return SURFACE_NOISE * pull * dt / float(self.liquid.voxel_size)

    def _push_out(self, collider: Any, halo: int) -> None:
        liquid, particles, held = self.liquid, self.liquid.particles, collider.field.volume
        collider.field.refresh_ghosts()
        held.refresh("distance", halo=halo, corners=True)
        count = particles.buckets.local_count
        push_out(
            held.with_ghosts("distance"), held.buckets.neighbours,
            particles.buckets.index_in(held.buckets)[:count].astype(np.int32),
            particles.buckets.coords, particles.domain.bucket_size, halo,
            SOLID_MARGIN * liquid.voxel_size, particles.offsets, particles.local("position"),
        )  # fmt: skip

    def halo(self, dt: float) -> int:
        """Layers of faces around a Bucket that its particles may reach in a step. Collective."""
        liquid = self.liquid
        speed = float(liquid.bucket_speeds().max(initial=0.0))
        return int(min(liquid.resolution, max(2, self._voxels_in(speed, dt) + 1)))

    def _voxels_in(self, speed: float, dt: float) -> int:
        """Voxels that the fastest of all ranks crosses in a step; 0 if that is not finite.

        Collective.
        """
        way = speed * dt / self.liquid.voxel_size
        return math.ceil(self.liquid.scope.domain.comm.maximum(way if np.isfinite(way) else 0.0))
