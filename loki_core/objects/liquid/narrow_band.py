"""Narrow band: particles near the surface only; deeper liquid is full voxels that the grid carries.

After Ferstl et al. (2016). A voxel is deep where no air, no solid, and no source or sink is within
`narrow_band` voxels, or in a voxel more than a step's way. In a step

    particles to grid   deep voxels count as if they were full of particles, with the velocity that
                        the grid carried along (channel "carried_velocity")
    motion              particles that end in deep voxels vanish; where the flow leaves these,
                        particles appear, at the ends of the ways of a regular lattice
    the next step       the velocity is carried along by the cubic scheme of the gas

Volume is accounted for: what voxels and particles together lose or gain, since a lattice stands for
what flows, is owed, and the particles that appear are by as many more or fewer.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.errors import SetupError
from loki_core.kernels.basics.emission import fill_uniforms
from loki_core.kernels.basics.random import random_key
from loki_core.kernels.liquid.liquid_band import (
    add_deep_liquid,
    choose_deep,
    deepen,
    find_entered,
    find_layer,
    let_leave,
    mark_edges,
    mark_leaving,
)
from loki_core.objects.gas.advection import advect
from loki_core.objects.liquid.liquid_seeding import add_particles
from loki_core.pipeline.task import Step

if TYPE_CHECKING:
    from loki_core.objects.liquid.hybrid import Hybrid

Array = NDArray[Any]

SHARE_PAID = 0.5  # of the particles that appear in a step, by which these are more or fewer


class NarrowBand:
    """The deep voxels of one Hybrid Object.

    Attributes:
        owed: Volume that was lost, or gained, and is still to be given back, in voxels.
    """

    def __init__(self, liquid: Hybrid) -> None:
        self.liquid = liquid
        self.owed = 0.0
        self._stream = zlib.crc32(f"{liquid.path}/narrow_band".encode())  # of random numbers

    def check(self) -> None:
        """Refuse channels of the user's: deep liquid has nothing to keep them in."""
        names = sorted(self.liquid.vertex_channels())
        if names:
            raise SetupError(
                f"{self.liquid.path}.narrow_band: deep liquid carries no channels, but its "
                f"particles have {', '.join(names)}; leave narrow_band out, or the channels"
            )

    def buckets(self) -> NDArray[np.int32]:
        """Local Buckets that have deep voxels, shape [n, 3]."""
        volume = self.liquid.volume
        has_deep = volume.local("deep").any(axis=(1, 2, 3, 4))
        found: NDArray[np.int32] = volume.buckets.local_coords[has_deep]
        return found

    def voxel_count(self) -> int:
        """Deep voxels on all ranks. Collective."""
        volume = self.liquid.volume
        return volume.domain.comm.total(int(volume.local("deep").sum(dtype=np.int64)))

    def holds(self, place: Array) -> NDArray[np.bool_]:
        """Which places [n, 3], in Buckets of this rank, relative to the origin, are deep."""
        volume, domain, r = self.liquid.volume, self.liquid.scope.domain, self.liquid.resolution
        own = domain.keys(volume.buckets.local_coords)
        if not len(own):
            return np.zeros(len(place), bool)
        order = np.argsort(own)
        wanted = domain.keys(domain.bucket_coordinates(place))
        row = order[np.minimum(np.searchsorted(own[order], wanted), len(own) - 1)]
        i, j, k = (np.floor(place / self.liquid.voxel_size).astype(np.int64) % r).T
        is_deep: NDArray[np.bool_] = volume.local("deep")[row, 0, i, j, k] == 1
        is_deep &= own[row] == wanted
        return is_deep

    def add_to_grid(self) -> None:
        """Add deep liquid to momentum, weights and filled parts of local faces and cells."""
        volume = self.liquid.volume
        volume.refresh("deep", corners=True)
        add_deep_liquid(
            volume.with_ghosts("deep"), volume.with_ghosts("carried_velocity"),
            volume.buckets.neighbours, volume.local("velocity"), volume.local("face_weight"),
            volume.local("filled"),
        )  # fmt: skip

    # -- motion ----------------------------------------------------------------------------

    def follow(self, step: Step) -> None:
        """Let particles enter and leave deep liquid; they have moved. Collective."""
        liquid, volume = self.liquid, self.liquid.volume
        halo = liquid.grid.halo(step.dt)  # velocities are current so far
        reach = halo - 1
        before = volume.local("deep").copy()
        self._choose(reach)
        volume.mark_written("deep")
        volume.refresh("deep", halo=halo, corners=True)
        gone = self._remove_entered()
        new = self._leaving(before, halo, step)
        share = liquid.particle_share
        comm = volume.domain.comm
        change = int(before.sum(dtype=np.int64)) - int(volume.local("deep").sum(dtype=np.int64))
        self.owed += comm.total(change) + share * (comm.total(gone) - comm.total(len(new[0])))
        values = {"velocity": new[1]}
        if liquid.is_affine:
            values["affine"] = new[2]
        add_particles(liquid, new[0], values)

    def carry_velocity(self, dt: float) -> None:
        """Carry the velocity along the flow, for the next step. Collective."""
        volume = self.liquid.volume
        volume.local("carried_velocity")[:] = volume.local("velocity")
        volume.mark_written("carried_velocity")
        advect(
            volume, ["carried_velocity"], dt=dt, scheme="cubic", limiter="clamp", trace_order=3,
            surroundings=self.liquid.surroundings(),
        )  # fmt: skip

    def _choose(self, reach: int) -> None:
        """Find the deep voxels of the next step."""
        liquid, volume = self.liquid, self.liquid.volume
        around, neighbours = liquid.surroundings(), volume.buckets.neighbours
        asked = liquid.behavior.narrow_band
        assert asked is not None  # or there is no band
        least = max(int(asked), reach + 2)
        with volume.scratch("depth", np.uint8, resolution=liquid.resolution) as depth:
            mark_edges(
                volume.local("kind"), volume.local("loose"), volume.buckets.coords,
                 around.lower, around.upper, self._boxes(),
                volume.local(depth.name),
            )  # fmt: skip
            sides, touched = np.array(around.kinds), np.empty(volume.buckets.count, np.bool_)
            for layer in range(1, least + 1):
                volume.mark_written(depth.name)
                volume.refresh(depth.name)
                find_layer(depth.values, layer - 1, touched)
                deepen(neighbours, sides, layer, touched, depth.values)
            choose_deep(volume.local("kind"), volume.local(depth.name), least, volume.local("deep"))

    def _boxes(self) -> NDArray[np.int64]:
        """Voxels about sources and sinks, first and last, shape [n, 2, 3]."""
        liquid, boxes = self.liquid, []
        for mesh in (*liquid.liquid_sources, *liquid.liquid_sinks):
            placed = mesh.placed()
            if not placed.is_empty:
                corners = placed.tree.corners.reshape(-1, 3)
                lower, upper = corners.min(axis=0) - mesh.reach, corners.max(axis=0) + mesh.reach
                boxes.append((lower / liquid.voxel_size, upper / liquid.voxel_size))
        return np.floor(np.array(boxes).reshape(-1, 2, 3)).astype(np.int64)

    def _remove_entered(self) -> int:
        """Take particles away that are in deep voxels now; return how many these were."""
        volume, particles = self.liquid.volume, self.liquid.particles
        entered = np.empty(particles.count, bool)
        find_entered(
            volume.with_ghosts("deep"), volume.buckets.neighbours, self.liquid.grid.rows(),
            particles.buckets.coords, particles.domain.bucket_size, particles.offsets,
            particles.local("position"), entered,
        )  # fmt: skip
        kept = particles.kept()
        if not isinstance(kept, slice):
            entered &= kept
        particles.remove(entered)
        return int(np.count_nonzero(entered))

    def _leaving(self, before: Array, halo: int, step: Step) -> tuple[Array, Array, Array]:
        """Places, velocities and their gradients of particles that come out of deep voxels."""
        liquid, volume, around = self.liquid, self.liquid.volume, self.liquid.surroundings()
        deep, neighbours = volume.with_ghosts("deep"), volume.buckets.neighbours
        near = np.empty((len(before), *before.shape[2:]), np.uint8)
        counts = np.empty(len(before), np.int64)
        mark_leaving(before, deep, neighbours, halo - 1, near, counts)
        per_axis = int(liquid.behavior.particles_per_axis)
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(per_axis**3 * counts, out=starts[1:])
        total, dtype = int(starts[-1]), volume.dtype
        position, velocity = np.empty((total, 3)), np.empty((total, 3), dtype)
        affine, leaves = np.empty((total, 3, 3), dtype), np.empty(total, bool)
        let_leave(
            near, deep, neighbours, volume.with_ghosts("velocity"), np.array(around.kinds),
            around.velocity, volume.buckets.coords, volume.domain.bucket_size, halo, step.dt,
            per_axis, step.substep, starts, position, velocity, affine, leaves,
        )  # fmt: skip
        chosen = self._paid(np.flatnonzero(leaves), position, step)
        position = position[chosen]
        position[np.flatnonzero(np.diff(chosen) == 0) + 1] += 0.25 * liquid.voxel_size / per_axis
        return position, velocity[chosen], affine[chosen]

    def _paid(self, rows: NDArray[np.int64], position: Array, step: Step) -> NDArray[np.int64]:
        """The rows that appear: some left out, or twice, while volume is owed. Collective.

        Which these are does not depend on the number of ranks.
        """
        comm, share = self.liquid.scope.domain.comm, self.liquid.particle_share
        count = comm.total(len(rows))
        wanted = int(np.clip(round(self.owed / share), -SHARE_PAID * count, SHARE_PAID * count))
        if wanted == 0:
            return rows
        lattice = np.floor(position[rows] * (1024.0 / self.liquid.voxel_size)).astype(np.int64)
        codes = (lattice[:, 0] << 42) ^ (lattice[:, 1] << 21) ^ lattice[:, 2]
        drawn = np.empty((len(rows), 1))
        fill_uniforms(random_key(step.seed, self._stream, step.substep), codes, drawn)
        everyone = np.sort(np.concatenate(comm.all_gather(drawn[:, 0])))
        chosen = drawn[:, 0] <= everyone[abs(wanted) - 1]
        if wanted < 0:
            fewer: NDArray[np.int64] = rows[~chosen]
            return fewer
        more: NDArray[np.int64] = np.sort(np.concatenate((rows, rows[chosen])))
        return more
