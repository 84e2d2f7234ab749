"""Free bodies of a liquid, such as drops in the air, keep their momentum and angular momentum.

Pressure and density correction are forces between parts of the liquid: they move neither the centre
of mass of a body that touches nothing, nor turn it. On the grid they do so only as far as the
weights of particles on faces are what the pressure takes them to be, and by what solvers leave. The
way along the flow turns particles away from their velocity, too. So at the end of a substep every
free body gets the rigid motion that is missing (a projection on the invariants; Hairer, Lubich &
Wanner 2006, IV.4):

    sum v = P + impulse,   sum x = X + dt sum v,   sum (x - x_c) cross v = L + moment of the impulse

with P, X and L of the particles at the start and the impulse that Forces and viscosity brought, as
the grid felt it between the transfer and the pressure. Bodies are sets of the volume's Buckets that
touch; one is free if no Bucket of it touches a wall or holds a part of a solid. Across a periodic
axis places have no moment: there a body is only turned about that axis. With a narrow band, where
particles are not all of the liquid, and with surface tension, which only the pressure balances,
nothing is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loki_core.kernels.gas.mac_grid import EMPTY_CODE, SIDE_OPEN, SOLID
from loki_core.kernels.liquid.body_momentum import (
    FACE_SUMS,
    PARTICLE_SUMS,
    move_rigidly,
    sum_faces,
    sum_particles,
)
from loki_core.linear_solvers.unheld_parts import parts_of

if TYPE_CHECKING:
    from loki_core.objects.liquid.hybrid import Hybrid

Floats = NDArray[np.float64]

#: Channels through which others share the liquid's pressure, or hold it back.
SHARED = ("drag", "compliance", "solid_share")
MASS_ERROR = 1.0e-4  # by which masses on the grid and of the particles may differ
THINNEST = 1.0e-9  # moment of inertia, of the largest, about an axis that a body is turned about


class FreeBodies:
    """Momenta of one Hybrid Object's free bodies, over a substep."""

    def __init__(self, liquid: Hybrid) -> None:
        self.liquid = liquid
        self._version: Any = None
        self._part = np.empty(0, np.int64)  # of each local Bucket of the volume; -1 is not free
        self._count = 0
        self._start: Floats = np.empty((0, PARTICLE_SUMS))
        self._on_grid: Floats = np.empty((0, FACE_SUMS))
        self._brought: Floats = np.empty((0, FACE_SUMS))
        self._is_whole = np.empty(0, bool)  # whether all the mass on the grid is the particles'

    @property
    def may_be(self) -> bool:
        """Whether bodies can be free: nothing but their own pressure and uniform forces acts."""
        liquid = self.liquid
        shares = any(name in liquid.volume.channels for name in SHARED)
        shares |= bool(liquid.surface_forces)
        return liquid.projector is not None and liquid.band is None and not shares

    def begin(self) -> None:
        """Take note of the momenta after the transfer to the grid. Collective."""
        self._find()
        if self._count:
            self._start = self._of_particles()
            self._on_grid = self._of_faces()
            mass = self.liquid.particle_share * self._start[:, 0]
            self._is_whole = np.abs(self._on_grid[:, 6] - mass) <= MASS_ERROR * mass

    def forces_have_acted(self) -> None:
        """Take note of what Forces brought, just before the pressure. Collective."""
        if self._count:
            self._brought = self._of_faces() - self._on_grid

    def keep_momentum(self, dt: float) -> None:
        """Give all free bodies the rigid motion that a substep dt [s] left out. Collective."""
        if not self._count:
            return
        start, end = self._start, self._of_particles()
        mass = np.maximum(start[:, 0], 1.0)[:, None]
        impulse = self._brought[:, :6] / self.liquid.particle_share
        wanted = start[:, 4:7] + impulse[:, :3]
        shift = (start[:, 1:4] + dt * wanted - end[:, 1:4]) / mass
        change = (wanted - end[:, 4:7]) / mass
        before, after = start[:, 1:4] / mass, end[:, 1:4] / mass  # centres of mass
        spin = start[:, 7:10] - np.cross(before, start[:, 4:7])
        spin += impulse[:, 3:] - np.cross(before, impulse[:, :3])
        spin -= end[:, 7:10] - np.cross(after, end[:, 4:7])
        turn = self._turn(end, after, mass, spin)
        for motion in (shift, change, turn):  # a body with parts that are not particles is left
            motion[~self._is_whole] = 0.0
        particles = self.liquid.particles
        affine = particles.local("affine") if self.liquid.is_affine else np.zeros((1, 3, 3))
        move_rigidly(
            self._of_buckets(), after + shift, shift, change, turn, particles.offsets,
            particles.local("position"), particles.local("velocity"), affine,
            int(self.liquid.is_affine),
        )  # fmt: skip

    def _turn(self, sums: Floats, centre: Floats, mass: Floats, spin: Floats) -> Floats:
        """Angular velocities [1/s] that have given angular momenta about the centres of mass."""
        second = np.empty((len(sums), 3, 3))
        for place, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))):
            moment = sums[:, 10 + place] - mass[:, 0] * centre[:, a] * centre[:, b]
            second[:, a, b] = second[:, b, a] = moment
        inertia = np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) - second
        periodic = np.array(self.liquid.scope.domain.periodic)
        if periodic.any():
            turn = np.zeros_like(spin)
            if np.count_nonzero(periodic) == 1:
                axis = int(np.argmax(periodic))
                about = inertia[:, axis, axis]
                turn[:, axis] = spin[:, axis] / np.where(about > 0.0, about, np.inf)
            return turn
        inverse = np.linalg.pinv(inertia, rcond=THINNEST, hermitian=True)
        turned: Floats = np.einsum("nij,nj->ni", inverse, spin)
        return turned

    # -- sums ------------------------------------------------------------------------------

    def _of_particles(self) -> Floats:
        particles, part = self.liquid.particles, self._of_buckets()
        sums = np.empty((len(part), PARTICLE_SUMS))
        sum_particles(
            particles.local("position"), particles.local("velocity"), particles.offsets, part >= 0,
            sums,
        )  # fmt: skip
        return self._by_part(sums, part)

    def _of_faces(self) -> Floats:
        liquid, volume, part = self.liquid, self.liquid.volume, self._part
        sums = np.empty((len(part), FACE_SUMS))
        sum_faces(
            volume.local("velocity"), volume.local("face_weight"), volume.buckets.local_coords,
            liquid.voxel_size, part >= 0, sums,
        )  # fmt: skip
        return self._by_part(sums, part)

    def _by_part(self, sums: Floats, part: NDArray[np.int64]) -> Floats:
        """Sums of all ranks' Buckets, for each body."""
        total = np.zeros((self._count, sums.shape[1]))
        np.add.at(total, part[part >= 0], sums[part >= 0])
        return self.liquid.scope.domain.comm.all_reduce(total, "sum")

    def _of_buckets(self) -> NDArray[np.int64]:
        """Body of each local Bucket of particles."""
        return self._part[self.liquid.grid.rows()]

    # -- bodies ----------------------------------------------------------------------------

    def _find(self) -> None:
        """Find the bodies, where Buckets or solids changed. Collective."""
        liquid, volume = self.liquid, self.liquid.volume
        if not self.may_be:
            self._count = 0
            return
        version = (volume.layout_version, tuple(one.version for one in liquid.colliders))
        if version == self._version:
            return
        self._version = version
        buckets, comm = volume.buckets, liquid.scope.domain.comm
        around = buckets.neighbours
        starts = np.zeros(len(around) + 1, np.int64)
        np.cumsum((around >= 0).sum(axis=1), out=starts[1:])
        columns = around[around >= 0].astype(np.int64)
        ghosts = buckets.ghosts.astype(np.int64) if comm.size > 1 else None
        part, count = parts_of(starts, columns, comm, ghosts)
        held = np.zeros(count, np.int64)
        held[part[self._touches()]] = 1
        held = comm.all_reduce(held, "sum")
        number = np.cumsum(held == 0) - 1
        self._part = np.where(held[part] == 0, number[part], -1)
        self._count = int(np.count_nonzero(held == 0))

    def _touches(self) -> NDArray[np.bool_]:
        """Local Buckets of the volume that touch a wall, or hold a part of a solid."""
        liquid, volume, buckets = self.liquid, self.liquid.volume, self.liquid.volume.buckets
        touches = (volume.local("space") == SOLID).any(axis=(1, 2, 3, 4))
        for side, kind in enumerate(liquid.surroundings().kinds):
            if kind != SIDE_OPEN:
                step = (9, 3, 1)[side // 2]
                beyond = buckets.neighbours[:, 13 + (step if side % 2 else -step)]
                touches |= beyond < EMPTY_CODE
        for collider in liquid.colliders:
            known = buckets.index_in(collider.field.volume.buckets)[: buckets.local_count]
            touches |= known >= 0
        found: NDArray[np.bool_] = touches
        return found
