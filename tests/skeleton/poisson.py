"""A Poisson solve on a Discrete Volume, with walls inside a Bucket or with periodic axes."""

from __future__ import annotations

import numpy as np

from loki_core.behavior import Behavior, parameter
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.linear_solvers.conjugate_gradient import ConjugateGradient
from loki_core.objects.basics.object import Object
from loki_core.parallel.reduce import exact_sum
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import task
from tests.skeleton.poisson_kernels import bucket_dots, laplacian_diagonal, weighted_laplacian


class PoissonObject(Behavior, kind="object"):
    """Solve L p = rhs in the domain box, with the rhs of a known solution."""

    tolerance: float = parameter(1e-12, doc="Relative residual.")

    def create(self, scope):
        return [PoissonVolume(self, scope)]


class PoissonVolume(Object):
    def __post_init__(self):
        super().__post_init__()
        self.volume = DiscreteVolume(self.scope.domain, name=self.path, dtype=np.float64)
        for name in ("pressure", "rhs", "direction", "product"):
            self.volume.add_channel(name)
        self.volume.add_channel("weight", components=3, location="face")
        self.report = None

    @property
    def data(self):
        return {"volume": self.volume}

    def cell_centres(self):
        """World positions of local voxels, shape [local, 3, r, r, r]."""
        domain, r = self.scope.domain, 8
        h = domain.bucket_size / r
        corner = self.volume.buckets.coords[: self.volume.buckets.local_count] * domain.bucket_size
        grid = np.stack(np.meshgrid(*[(np.arange(r) + 0.5) * h] * 3, indexing="ij"))
        return (
            corner[:, :, None, None, None] + grid[None] + domain.origin[None, :, None, None, None]
        )

    def ingest(self):
        domain = self.scope.domain
        first, last = domain.bucket_range()
        lattice = np.stack(
            np.meshgrid(*[np.arange(a, b) for a, b in zip(first, last)], indexing="ij"), axis=-1
        )
        self.volume.set_buckets(lattice.reshape(-1, 3).astype(np.int32))
        self.fill()

    def redistribute(self):
        super().redistribute()
        self.fill()

    def fill(self):
        domain = self.scope.domain
        centre = self.cell_centres()
        h = domain.bucket_size / 8
        inside = np.all(
            (centre > domain.lower[None, :, None, None, None])
            & (centre < domain.upper[None, :, None, None, None]),
            axis=1,
        )
        weight = np.zeros_like(self.volume.local("weight"))
        for axis in range(3):
            lower = centre[:, axis] - h
            open_below = (
                np.ones_like(inside) if domain.periodic[axis] else lower > domain.lower[axis]
            )
            weight[:, axis] = inside & open_below
        self.volume.local("weight")[:] = weight
        self.volume.mark_written("weight")
        solution = np.where(inside, self.solution(centre), 0.0)
        self.volume.local("rhs")[:, 0] = self.eigenvalue() * solution

    def wave_numbers(self):
        domain = self.scope.domain
        length = domain.upper - domain.lower
        return np.where(domain.periodic, 2.0, 1.0) * np.pi / length

    def solution(self, centre):
        """A product of cosines: an exact eigenvector of the discrete operator."""
        domain = self.scope.domain
        k = self.wave_numbers()[None, :, None, None, None]
        return np.prod(np.cos(k * (centre - domain.lower[None, :, None, None, None])), axis=1)

    def eigenvalue(self):
        h = self.scope.domain.bucket_size / 8
        return float(np.sum(4.0 / h**2 * np.sin(0.5 * self.wave_numbers() * h) ** 2))

    @task(
        Stage.SOLVE_PRESSURE,
        reads=("volume.weight", "volume.rhs", "volume.direction"),
        writes=("volume.pressure", "volume.direction", "volume.product"),
        halo=1,
    )
    def solve(self, access, step):
        system = _Poisson(self, access)
        solver = ConjugateGradient()
        solver.prepare(system)
        local = self.volume.buckets.local_count
        pressure = access["volume.pressure"].reshape(-1)
        rhs = access["volume.rhs"][:local].reshape(-1)
        self.report = solver.solve(rhs, pressure, tol=self.settings.tolerance, max_iterations=2000)
        self.iterations = self.report.iterations

    def read(self, channel):
        local = self.volume.buckets
        ids = np.arange(local.first, local.first + local.local_count)
        return ids, self.volume.local(channel)


class _Poisson:
    kind, block_size = "spd", 1

    def __init__(self, item, access):
        self.volume, self.access = item.volume, access
        self.local = item.volume.buckets.local_count
        self.size = self.local * 512
        self.scale = (8 / item.scope.domain.bucket_size) ** 2
        self.boundary = np.zeros(9)
        diagonal = self.diagonal()
        ones = (diagonal > 0).astype(float)
        self.null_space = []
        self.null_space = [ones / np.sqrt(self.dot(ones, ones))]

    def multiply(self, x, out):
        direction = self.access["volume.direction"]
        direction[: self.local] = x.reshape(-1, 1, 8, 8, 8)
        self.access.refresh("volume.direction")
        buckets = self.volume.buckets
        weighted_laplacian(
            direction,
            self.access["volume.weight"],
            self.boundary,
            buckets.local,
            buckets.neighbours,
            self.scale,
            self.access["volume.product"],
        )
        out[:] = self.access["volume.product"].reshape(-1)

    def dot(self, x, y):
        dots = np.empty(self.local)
        bucket_dots(x.reshape(self.local, 512), y.reshape(self.local, 512), dots)
        return exact_sum(self.volume.domain.comm, dots)

    def diagonal(self):
        out = np.empty((self.local, 1, 8, 8, 8))
        buckets = self.volume.buckets
        weight = self.access["volume.weight"]
        laplacian_diagonal(
            weight, self.boundary, buckets.local, buckets.neighbours, self.scale, out
        )
        return out.reshape(-1)
