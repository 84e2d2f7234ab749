"""Particles to grid and back, every substep, on Buckets that follow the particles."""

from __future__ import annotations

import numpy as np

from loki_core.behavior import Behavior, parameter
from loki_core.data.accessors import MultiAccessor
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.objects.particles.particles import Particles
from loki_core.parallel.reduce import exact_sums
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import task
from tests.skeleton.transfer_kernels import grid_to_particles, particles_to_grid

OFFSETS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)


class GridParticleObject(Behavior, kind="object"):
    """Particles that exchange velocity with a grid (PIC without forces)."""

    input: str = parameter("", kind="stream", doc="Points.")
    source: str | None = parameter(None, kind="stream", doc="Unused.")
    rate: float = parameter(0.0, doc="Unused.")
    lifetime: float | None = parameter(None, doc="Unused.")
    radius: float = parameter(0.01, varies="vertex", channel="radius", doc="Radius.")
    density: float = parameter(1000.0, varies="vertex", channel="density", doc="Density.")

    def create(self, scope):
        return [GridParticles(self, scope)]


class GridParticles(Particles):
    def __post_init__(self):
        super().__post_init__()
        self.volume = DiscreteVolume(self.scope.domain, name=f"{self.path} grid", dtype=np.float64)
        self.volume.add_channel("momentum", components=4)  # mass, then momentum
        self.volume.add_channel("velocity", components=3)
        self.sums = []

    # Velocities come from the grid alone, and particles move after they have read it.
    begin = reset_forces = solve = move = None

    @property
    def data(self):
        return {**super().data, "volume": self.volume}

    @task(Stage.ADAPT_TOPOLOGY, layout=("volume", "particles"))
    def follow(self, access, step):
        occupied = self.particles.buckets
        own = occupied.coords[: occupied.local_count]
        own = own[np.diff(self.particles.offsets)[: occupied.local_count] > 0]
        around = (own[:, None, :] + OFFSETS[None]).reshape(-1, 3).astype(np.int32)
        around = np.unique(self.scope.domain.wrap(around), axis=0)
        first, last = self.scope.domain.bucket_range()
        around = around[np.all((around >= first) & (around < last), axis=1)]
        self.volume.set_buckets(around)
        local = self.volume.buckets
        self.particles.track(local.coords[: local.local_count])
        self.particles.rebucketize()

    @task(
        Stage.PARTICLES_TO_GRID,
        reads=("particles.position", "particles.mass", "particles.velocity"),
        writes=("volume.momentum", "volume.velocity"),
        halo=1,
        overlap=True,
    )
    def to_grid(self, access, step):
        particles, both = self.particles, MultiAccessor(self.particles, self.volume)
        momentum = access["volume.momentum"]
        momentum[:] = 0.0
        for buckets in access.passes("volume"):
            mass, velocity = access["particles.mass"], access["particles.velocity"]
            with np.errstate(all="ignore"):  # ghosts are not there yet in the first pass
                mass = mass.astype(np.float64)[:, None]
                values = np.concatenate((mass, mass * velocity), axis=1)
            particles_to_grid(
                access["particles.position"],
                values,
                particles.offsets,
                particles.buckets.coords,
                self.scope.domain.bucket_size,
                buckets,
                both.particle_buckets,
                momentum,
            )
        mass = momentum[:, :1]
        access["volume.velocity"][:] = np.where(
            mass > 0, momentum[:, 1:] / np.where(mass > 0, mass, 1), 0
        )
        per_bucket = momentum.sum(axis=(2, 3, 4))
        self.sums.append(exact_sums(self.scope.domain.comm, per_bucket))

    @task(
        Stage.GRID_TO_PARTICLES,
        reads=("volume.velocity", "particles.position"),
        writes=("particles.velocity",),
        halo=1,
        corners=True,
    )
    def to_particles(self, access, step):
        particles = self.particles
        rows = particles.buckets.index_in(self.volume.buckets)[: particles.buckets.local_count]
        values = np.empty((particles.count, 3))
        grid_to_particles(
            access["particles.position"][: particles.count],
            particles.offsets,
            particles.buckets.coords,
            self.scope.domain.bucket_size,
            rows,
            self.volume.buckets.neighbours,
            access["volume.velocity"],
            values,
        )
        access["particles.velocity"][:] = values

    @task(Stage.ADVECT_VOLUMES, reads=("particles.velocity",), writes=("particles.position",))
    def drift(self, access, step):
        dt = access["particles.position"].dtype.type(step.dt)
        access["particles.position"][:] += dt * access["particles.velocity"]
